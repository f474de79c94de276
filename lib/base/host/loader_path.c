/*
 * loader_path.c - lists the folders that the dynamic loader of a root searches.
 *
 * ld.so searches LD_LIBRARY_PATH, the cache that ldconfig made from ld.so.conf, then the default
 * folders. The configuration is read, not the cache: its format is private to the C library.
 */
#define _GNU_SOURCE
#include "lib/base/host/rootfs.h"

#include <stdio.h>
#include <string.h>

#define MAX_FILES 64
#define MAX_DEPTH 3
#define CONF_BYTES 16384

#if defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif

void gsv_folder_list_add(struct gsv_folder_list *out, const char *folder, const char *below)
{
    if (out->n < GSV_MAX_FOLDERS && snprintf(out->folders[out->n], GSV_ROOTFS_PATH_BYTES, "%s%s",
                                             folder, below) < GSV_ROOTFS_PATH_BYTES)
        out->n++;
}

static void add_words(struct gsv_folder_list *out, const char *list)
{
    while (*list) {
        const size_t length = strcspn(list, ":;");
        char folder[GSV_ROOTFS_PATH_BYTES];

        if (*list == '/' && length < sizeof(folder)) {
            snprintf(folder, sizeof(folder), "%.*s", (int)length, list);
            gsv_folder_list_add(out, folder, "");
        }
        list += length + (list[length] != '\0');
    }
}

struct loader_conf {
    struct gsv_folder_list *out;
    const struct gsv_rootfs *rootfs;
    int n_files; /* files and patterns read so far: files may include each other */
};

static void read_conf(struct loader_conf *conf, const char *path, int depth);

/* Reads the files of "include /etc/ld.so.conf.d/?*.conf": one pattern in the last component. */
static void read_included(struct loader_conf *conf, const char *pattern, int depth)
{
    char folder[GSV_ROOTFS_PATH_BYTES], path[GSV_ROOTFS_PATH_BYTES];
    const char *const slash = strrchr(pattern, '/');
    const char *const star = strchr(pattern, '*');
    struct gsv_names names;

    if (*pattern != '/')
        return;
    if (!star) {
        read_conf(conf, pattern, depth + 1);
        return;
    }
    if (star < slash || conf->n_files == MAX_FILES)
        return;
    conf->n_files++;
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - pattern), pattern);
    snprintf(path, sizeof(path), "%.*s", (int)(star - slash - 1), slash + 1);
    if (!gsv_rootfs_list(conf->rootfs, folder, path, MAX_FILES, &names))
        return;
    for (size_t i = 0; i < names.n; i++) {
        const size_t length = strlen(names.names[i]), tail = strlen(star + 1);

        if (length < tail || strcmp(names.names[i] + length - tail, star + 1) != 0)
            continue;
        if (snprintf(path, sizeof(path), "%s/%s", folder, names.names[i]) < (int)sizeof(path))
            read_conf(conf, path, depth + 1);
    }
    gsv_names_free(&names);
}

static void read_conf(struct loader_conf *conf, const char *path, int depth)
{
    char text[CONF_BYTES];
    char *rest = text, *line;

    if (depth > MAX_DEPTH || conf->n_files == MAX_FILES)
        return;
    conf->n_files++;
    if (gsv_rootfs_read(conf->rootfs, path, text, sizeof(text)) == 0)
        return;
    while ((line = strsep(&rest, "\n"))) {
        const bool is_include = strncmp(line, "include", 7) == 0;

        line += is_include ? 7 : 0;
        line += strspn(line, " \t");
        line[strcspn(line, "# \t\r")] = '\0';
        if (is_include)
            read_included(conf, line, depth);
        else if (*line == '/')
            gsv_folder_list_add(conf->out, line, "");
    }
}

void gsv_loader_list_folders(struct gsv_folder_list *out, const struct gsv_rootfs *rootfs,
                             const char *ld_library_path)
{
    static const char *const defaults[] = {
        "/lib/" MULTIARCH, "/usr/lib/" MULTIARCH, "/lib64", "/usr/lib64", "/lib", "/usr/lib"
    };
    struct loader_conf conf = { out, rootfs, 0 };

    out->n = 0;
    if (ld_library_path)
        add_words(out, ld_library_path);
    read_conf(&conf, "/etc/ld.so.conf", 0);
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
        gsv_folder_list_add(out, defaults[i], "");
}
