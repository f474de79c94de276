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
#include <stdint.h>
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

/*
 * Checks a shared object and reads its soname without loading it.
 */

#define GSV_SONAME_BYTES 128

/* Returns NULL if `fd` is a complete 64-bit shared object for this processor, else what is wrong
 * with it (static text). `soname` receives "libcuda.so.1", or "" if the file has none. */
const char *gsv_elf_check(int fd, char soname[GSV_SONAME_BYTES]);

/* Searches the file's first 256 MiB for `key` and copies what follows it, up to a NUL or
 * `capacity` - 1 bytes. `key` has at most 64 bytes. False if the key is not found. */
bool gsv_elf_find_text(int fd, const char *key, char *text, size_t capacity);

/*
 * A bounded list of folders to search, by priority.
 */

#define GSV_MAX_FOLDERS 64

struct gsv_folder_list {
    char folders[GSV_MAX_FOLDERS][GSV_ROOTFS_PATH_BYTES];
    int32_t n;
};

/* Lists the folders that the dynamic loader searches: LD_LIBRARY_PATH (may be NULL), those of
 * /etc/ld.so.conf, the default ones. Relative folders are left out. */
void gsv_loader_list_folders(struct gsv_folder_list *out, const struct gsv_rootfs *rootfs,
                             const char *ld_library_path);

/* Appends a folder of two parts; does nothing if the list is full or the path is too long. */
void gsv_folder_list_add(struct gsv_folder_list *out, const char *folder, const char *below);

/*
 * The folders in which a library of the CUDA toolkit may be installed.
 *
 *   /usr/local/nvidia/lib64                  provided by a container runtime
 *   CUDA_HOME, CUDA_PATH                     a toolkit that the user names
 *   site-packages of the plugin's wheel,     nvidia/cu13/lib (CUDA 13), nvidia/cublas/lib (CUDA 12)
 *     of VIRTUAL_ENV and of CONDA_PREFIX
 *   CONDA_PREFIX                             lib, targets/x86_64-linux/lib
 *   /usr/local/cuda, /usr/local/cuda-13*,    an installed toolkit
 *     /opt/cuda
 *
 * The plugin loads the first library that it finds there, after the loader's own path; the doctor
 * reports the same list for any root.
 */

struct gsv_toolkit_search {
    const struct gsv_rootfs *rootfs;
    /* The value of an environment variable, NULL if unset. */
    const char *(*variable)(const void *environment, const char *name);
    const void *environment;
    const char *prefix; /* before the fixed folders: "" outside of tests */
    const char *plugin; /* absolute path of the plugin; NULL: unknown */
    int32_t cuda_major; /* of the toolkit: 13 */
};

/* Lists the folders for `library`, "libcublasLt.so.13", by priority. Folders need not exist. A
 * variable that is no absolute path is ignored, as is a folder over the limits. */
void gsv_toolkit_list_folders(struct gsv_folder_list *out, const struct gsv_toolkit_search *search,
                              const char *library);

#endif
