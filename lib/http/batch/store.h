/*
 * store.h - the directory of --batch-dir: data files, their descriptions, and records of batches.
 *
 *   file-ID        the bytes of an uploaded file or of a batch's output
 *   file-ID.json   its description; a data file without one is not part of the API
 *   batch_ID.json  the record of a batch
 *   lock           held while a server uses the directory
 *
 * ID is 24 hexadecimal digits. Other files in the directory are ignored.
 *
 * A description or a record is written to NAME.tmp, flushed, renamed, and then the directory is
 * flushed: after a crash the file has the old or the new text. Uploaded bytes are flushed before
 * their description exists. `max_bytes` bounds the data files together.
 *
 * Locking: one mutex for the tables and the small files. It is held during disk writes, so the
 * event loop must not take it.
 */
#ifndef GSV_HTTP_BATCH_STORE_H
#define GSV_HTTP_BATCH_STORE_H

#include <gpuserve/types.h>

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GSV_STORE_ID_BYTES = 40,
    GSV_STORE_OWNER_BYTES = 9,
    GSV_STORE_NAME_BYTES = 256,
    GSV_STORE_MAX_FILES = 10000,
    GSV_STORE_MAX_OUTPUTS = 2048, /* more, for the outputs of unfinished batches */
    GSV_STORE_MAX_UPLOAD = 200 * 1024 * 1024
};

/* A file of the API. `owner` is the name of the API key that made it, "" without keys. */
struct gsv_stored_file {
    char id[GSV_STORE_ID_BYTES], owner[GSV_STORE_OWNER_BYTES];
    char name[GSV_STORE_NAME_BYTES];
    char purpose[16];
    uint64_t n_bytes;
    int64_t created, expires; /* seconds since the epoch; expires 0: never */
};

struct gsv_store {
    pthread_mutex_t lock; /* protects the tables */
    int dir, lock_file;   /* descriptors, -1: closed */
    char *path;           /* for messages */
    uint64_t max_bytes;
    _Atomic uint64_t n_bytes; /* of the data files */
    struct gsv_stored_file *files;
    size_t n_files, capacity;
};

/* Opens or creates the directory, reads the descriptions and removes temporary files of interrupted
 * writes. */
gpuserve_status gsv_store_open(struct gsv_store *store, const char *path, uint64_t max_bytes,
                               gpuserve_error *error);
void gsv_store_close(struct gsv_store *store);

/* A new random id: the prefix and 24 hexadecimal digits. */
gpuserve_status gsv_store_new_id(char id[GSV_STORE_ID_BYTES], const char *prefix,
                                 gpuserve_error *error);

/* Counts data bytes before they are written. GPUSERVE_E_TOO_LARGE over max_bytes. */
gpuserve_status gsv_store_reserve(struct gsv_store *store, uint64_t n_bytes, gpuserve_error *error);
void gsv_store_release(struct gsv_store *store, uint64_t n_bytes);

/* A data file; the caller closes the descriptor. `flags` as for open(). */
gpuserve_status gsv_store_open_data(const struct gsv_store *store, const char *id, int flags,
                                    int *fd, gpuserve_error *error);
/* Removes a data file and its reservation. */
void gsv_store_remove_data(struct gsv_store *store, const char *id);

/* Writes or replaces ID.json atomically and durably. */
gpuserve_status gsv_store_write_json(const struct gsv_store *store, const char *id,
                                     const json_t *value, gpuserve_error *error);
/* Calls `read` for the JSON file of each id with this prefix. Stops at the first failure. */
gpuserve_status gsv_store_each_json(const struct gsv_store *store, const char *prefix,
                                    gpuserve_status (*read)(void *user, const char *id,
                                                            const json_t *value,
                                                            gpuserve_error *error),
                                    void *user, gpuserve_error *error);
void gsv_store_remove_json(const struct gsv_store *store, const char *id);

/* With the lock held: GPUSERVE_E_TOO_LARGE at the limit of files, for an upload or a new batch. */
gpuserve_status gsv_store_check_files(const struct gsv_store *store, gpuserve_error *error);
/* Stores uploaded bytes under a new id, which is written to file->id. */
gpuserve_status gsv_store_upload(struct gsv_store *store, struct gsv_stored_file *file,
                                 const char *bytes, size_t size, gpuserve_error *error);
/* Describes an existing data file, again if it has a description already. */
gpuserve_status gsv_store_describe(struct gsv_store *store, const struct gsv_stored_file *file,
                                   gpuserve_error *error);
static inline bool gsv_store_has_expired(const struct gsv_stored_file *file, int64_t now)
{
    return file->expires != 0 && file->expires <= now;
}

/* Copies the description of a file of this owner. False: there is none, or it has expired. */
bool gsv_store_find(struct gsv_store *store, const char *id, const char *owner,
                    struct gsv_stored_file *file);
/* The same with the lock held, borrowed until it is released; NULL: no file. gsv_store_delete()
 * deletes the returned file. */
const struct gsv_stored_file *gsv_store_file(const struct gsv_store *store, const char *id,
                                             const char *owner);
void gsv_store_delete(struct gsv_store *store, const struct gsv_stored_file *file);
/* Deletes the files that have expired at `now`, except those that `is_used` names. */
void gsv_store_expire(struct gsv_store *store, int64_t now,
                      bool (*is_used)(void *user, const char *id), void *user);
/* Removes data files without a description that `is_used` does not name: interrupted uploads. At
 * the start only. */
void gsv_store_remove_orphans(struct gsv_store *store, bool (*is_used)(void *user, const char *id),
                              void *user);

#endif
