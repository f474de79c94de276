/*
 * rootfs.h - reads files below a folder that stands for the root of another file system, such as an
 * unpacked container image or /proc/PID/root.
 *
 * A path is absolute within that root. Absolute symbolic links and ".." are resolved within the
 * root, as chroot() would; no path leaves it. Paths have at most GSV_ROOTFS_PATH_BYTES bytes,
 * GSV_ROOTFS_DEPTH folders and GSV_ROOTFS_LINKS links. Only regular files are opened. A gsv_rootfs
 * is immutable after gsv_rootfs_open(), so threads may share it.
 */
#ifndef GSV_BASE_ROOTFS_H
#define GSV_BASE_ROOTFS_H

#include "lib/base/dir.h"

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define GSV_ROOTFS_PATH_BYTES 1024
#define GSV_ROOTFS_DEPTH 64
#define GSV_ROOTFS_LINKS 40

struct gsv_rootfs {
    int root; /* O_PATH descriptor */
};

/* NULL and "/" are this machine's root. */
gpuserve_status gsv_rootfs_open(struct gsv_rootfs *rootfs, const char *root, gpuserve_error *error);
void gsv_rootfs_close(struct gsv_rootfs *rootfs);

/* Resolves a path of any file type. `real` and `info` may be NULL; `real` has
 * GSV_ROOTFS_PATH_BYTES and receives the path without links, absolute within the root. */
bool gsv_rootfs_find(const struct gsv_rootfs *rootfs, const char *path, char *real,
                     struct stat *info);

/* Opens a regular file for reading; -1 with errno. The caller closes the descriptor. */
int gsv_rootfs_open_file(const struct gsv_rootfs *rootfs, const char *path);

/* Reads at most `capacity` - 1 bytes from the start of a regular file and appends a NUL. Returns
 * the number of bytes, 0 if the file is missing or empty. */
size_t gsv_rootfs_read(const struct gsv_rootfs *rootfs, const char *path, char *text,
                       size_t capacity);

/* The text of a symbolic link after its last slash, such as the driver of a PCI device. */
bool gsv_rootfs_link_name(const struct gsv_rootfs *rootfs, const char *path, char *name,
                          size_t capacity);

/* Names in a folder that begin with `prefix`, sorted: at most `limit` of its first 65,536 entries.
 * An unreadable folder has none. Names that begin with a dot are left out. False: out of memory.
 * Owned: gsv_names_free(). */
bool gsv_rootfs_list(const struct gsv_rootfs *rootfs, const char *folder, const char *prefix,
                     size_t limit, struct gsv_names *names);

#endif
