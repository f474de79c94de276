/*
 * dir.h - reads files of a model directory and rejects paths that leave it.
 *
 * A name may contain slashes ("1_Pooling/config.json"). It cannot leave the directory by "..", by
 * an absolute path or through a symbolic link. The one exception is the layout of the Hugging Face
 * cache, models--ORG--NAME/snapshots/REVISION/FILE -> ../../blobs/HASH: links there may lead
 * anywhere inside models--ORG--NAME.
 *
 * A directory may also be in memory: then its files are texts that the program generates.
 */
#ifndef GSV_BASE_DIR_H
#define GSV_BASE_DIR_H

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gsv_dir;

/* `path` is a directory or a GGUF file. The whole model is in that file then, and also if the
 * directory has exactly one file *.gguf and none *.safetensors. */
gpuserve_status gsv_dir_open(struct gsv_dir **dir, const char *path, gpuserve_error *error);
void gsv_dir_close(struct gsv_dir **dir); /* accepts NULL, leaves NULL */

/* Creates an empty directory in memory. `path` is for messages, and for gsv_dir_path(). */
gpuserve_status gsv_dir_create(struct gsv_dir **dir, const char *path, gpuserve_error *error);
/* Adds a file to a directory in memory; there may be GSV_MAX_MADE_FILES. `name` is static; the file
 * takes ownership of `text` (from malloc), also on failure. */
#define GSV_MAX_MADE_FILES 4
gpuserve_status gsv_dir_add(struct gsv_dir *dir, const char *name, char *text, size_t size,
                            gpuserve_error *error);
/* True for a directory in memory. */
bool gsv_dir_is_made(const struct gsv_dir *dir);

/* Gives a directory a second one, owned, even on failure: a file that the first lacks is that of
 * the second. A base in memory or in a GGUF file is GPUSERVE_E_UNSUPPORTED. */
gpuserve_status gsv_dir_set_base(struct gsv_dir *dir, struct gsv_dir *base, gpuserve_error *error);
bool gsv_dir_has_base(const struct gsv_dir *dir);
/* As gsv_dir_has(), without the base. */
bool gsv_dir_has_own(const struct gsv_dir *dir, const char *name);

/* The directory that a file of this name is read from: `dir`, or its base. Borrowed. */
const struct gsv_dir *gsv_dir_owner(const struct gsv_dir *dir, const char *name);

/* The path as given to gsv_dir_open(), for messages. Borrowed. */
const char *gsv_dir_path(const struct gsv_dir *dir);

/* The name of the GGUF file that holds the model, borrowed; NULL: the model is in other files. */
const char *gsv_dir_gguf(const struct gsv_dir *dir);
/* Its path for messages, owned; NULL if out of memory. */
char *gsv_dir_gguf_path(const struct gsv_dir *dir);

#define GSV_FILE_NAME_BYTES 512

/* Joins a folder ("" or "1_Pooling") and a file name. False if the result is too long. */
bool gsv_join_name(char out[GSV_FILE_NAME_BYTES], const char *folder, const char *name);

/* Whether a regular file of that name exists. True also where that cannot be known, for lack of
 * rights or of descriptors: gsv_dir_open_file() then says why. */
bool gsv_dir_has(const struct gsv_dir *dir, const char *name);
bool gsv_dir_has_in(const struct gsv_dir *dir, const char *folder, const char *name);

/* Names in a folder of the directory, sorted; "" is the directory itself. Names that begin with a
 * dot are left out. GPUSERVE_E_INVALID for a file, GPUSERVE_E_TOO_LARGE for more than
 * GSV_MAX_NAMES. Owned: gsv_names_free(). */
#define GSV_MAX_NAMES 4096
struct gsv_names {
    char **names;
    size_t n, capacity;
};
gpuserve_status gsv_dir_list(const struct gsv_dir *dir, const char *folder, struct gsv_names *names,
                             gpuserve_error *error);
void gsv_names_free(struct gsv_names *names);

/* Opens a regular file for reading; the caller closes the descriptor. */
gpuserve_status gsv_dir_open_file(const struct gsv_dir *dir, const char *name, int *fd,
                                  uint64_t *size_bytes, gpuserve_error *error);

/* Reads a whole file and appends a NUL that `size_bytes` does not count. *bytes is owned: free().
 * Files over `max_bytes` fail with GPUSERVE_E_TOO_LARGE. */
gpuserve_status gsv_dir_read(const struct gsv_dir *dir, const char *name, size_t max_bytes,
                             char **bytes, size_t *size_bytes, gpuserve_error *error);

/* Like gsv_dir_read(), for a path given by the user, without containment. */
gpuserve_status gsv_file_read(const char *path, size_t max_bytes, char **bytes, size_t *size_bytes,
                              gpuserve_error *error);

/* Reads exactly `size` bytes from `offset`. Retries short reads and EINTR; a file that ends early
 * is GPUSERVE_E_FORMAT. `name` is for the message. */
gpuserve_status gsv_fd_read(int fd, void *to, size_t size, uint64_t offset, const char *name,
                            gpuserve_error *error);

/* Reads a whole file of `file_size` bytes as gsv_dir_read() does. Takes ownership of `fd` and
 * closes it. */
gpuserve_status gsv_fd_read_whole(int fd, uint64_t file_size, const char *name, size_t max_bytes,
                                  char **bytes, size_t *size_bytes, gpuserve_error *error);

/*
 * Creates files, writes bytes at offsets, and flushes.
 */

/* Write all bytes at `offset`; a full disk is GPUSERVE_E_IO. */
gpuserve_status gsv_fd_write(int fd, const void *from, size_t size, uint64_t offset,
                             const char *shown, gpuserve_error *error);

/* Create NAME in the directory `to`; fails if it exists. */
gpuserve_status gsv_create_file(int *fd, int to, const char *name, const char *shown,
                                gpuserve_error *error);
/* Flush to the disk and close, also after a failure `st`, which it returns. */
gpuserve_status gsv_finish_file(int fd, gpuserve_status st, const char *shown, const char *name,
                                gpuserve_error *error);

#endif
