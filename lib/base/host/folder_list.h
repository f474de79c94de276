/*
 * folder_list.h - a bounded list of folders to search, by priority.
 */
#ifndef GSV_BASE_FOLDER_LIST_H
#define GSV_BASE_FOLDER_LIST_H

#include "lib/base/host/rootfs.h"

#include <stdint.h>

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

#endif
