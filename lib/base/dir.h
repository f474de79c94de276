/*
 * dir.h - reading the files of a model directory, and nothing outside it.
 *
 * A name may hold slashes ("1_Pooling/config.json") but cannot leave the directory: not by "..",
 * not by an absolute path, not through a symbolic link. The one exception is the layout of the
 * Hugging Face cache, models--ORG--NAME/snapshots/REVISION/FILE -> ../../blobs/HASH: there links
 * may lead anywhere inside models--ORG--NAME.
 */
#ifndef GSV_BASE_DIR_H
#define GSV_BASE_DIR_H

#include <gpuserve/types.h>

#include <stdbool.h>

struct gsv_dir;

gpuserve_status gsv_dir_open(struct gsv_dir **dir, const char *path, gpuserve_error *error);
void gsv_dir_close(struct gsv_dir **dir); /* accepts NULL, leaves NULL */

/* The path as it was given, for messages. Lent. */
const char *gsv_dir_path(const struct gsv_dir *dir);

#define GSV_FILE_NAME_BYTES 512

/* Join a folder ("" or "1_Pooling") and a file's name. False when that is too long. */
bool gsv_join_name(char out[GSV_FILE_NAME_BYTES], const char *folder, const char *name);

/* Whether a regular file of that name is there. */
bool gsv_dir_has(const struct gsv_dir *dir, const char *name);
bool gsv_dir_has_in(const struct gsv_dir *dir, const char *folder, const char *name);

/* Open a regular file for reading; the caller closes the descriptor. */
gpuserve_status gsv_dir_open_file(const struct gsv_dir *dir, const char *name, int *fd,
                                  uint64_t *size_bytes, gpuserve_error *error);

/* A whole file, with a closing NUL that `size_bytes` does not count. Owned: free(). Refuses files
 * over `max_bytes` with GPUSERVE_E_TOO_LARGE. */
gpuserve_status gsv_dir_read(const struct gsv_dir *dir, const char *name, size_t max_bytes,
                             char **bytes, size_t *size_bytes, gpuserve_error *error);

/* The same for a file named by the user, wherever it is. */
gpuserve_status gsv_file_read(const char *path, size_t max_bytes, char **bytes, size_t *size_bytes,
                              gpuserve_error *error);

/* Exactly `size` bytes from `offset`: retries short reads and EINTR; a file that ends early is
 * GPUSERVE_E_FORMAT. `name` is for the message. */
gpuserve_status gsv_fd_read(int fd, void *to, size_t size, uint64_t offset, const char *name,
                            gpuserve_error *error);

#endif
