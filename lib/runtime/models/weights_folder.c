/*
 * weights_folder.c - finds, creates and bounds the folder of packed weights.
 */
#define _GNU_SOURCE /* asprintf, secure_getenv */
#include "lib/runtime/models/weights_cache.h"

#include "lib/base/error.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 64
#define NAME_DIGITS 16
#define TEMPORARY_BYTES 7 /* ".XXXXXX" of mkostemp() */

bool gsv_weights_folder_make(const char *folder)
{
    char path[PATH_MAX];
    struct stat s;

    if (snprintf(path, sizeof(path), "%s", folder) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return false;
        *slash = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return false;
    if (stat(path, &s) != 0)
        return false;
    errno = S_ISDIR(s.st_mode) ? EPERM : ENOTDIR;
    return S_ISDIR(s.st_mode) && s.st_uid == geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* True for the names that weights_cache.c and gsv_net_save() give: other files may be in a folder
 * of GPUSERVE_WEIGHTS_CACHE, and are not removed. */
static bool is_own_name(const char *name)
{
    const size_t suffix = strlen(GSV_WEIGHTS_SUFFIX);
    const char *rest = name + NAME_DIGITS;

    if (strspn(name, "0123456789abcdef") != NAME_DIGITS ||
        strncmp(rest, GSV_WEIGHTS_SUFFIX, suffix) != 0)
        return false;
    rest += suffix;
    return *rest == '\0' || (*rest == '.' && strlen(rest) == TEMPORARY_BYTES);
}

/* Counts the packed files and their bytes and finds the least recently used one. Temporary files of
 * a process that ended count too. */
static int survey(const char *folder, uint64_t *bytes, char *oldest)
{
    DIR *const entries = opendir(folder);
    const struct dirent *entry;
    char path[PATH_MAX];
    int64_t time_of_oldest = INT64_MAX;
    struct stat s;
    int n = 0;

    *bytes = 0;
    while (entries && (entry = readdir(entries))) {
        if (!is_own_name(entry->d_name) ||
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) >= (int)sizeof(path) ||
            lstat(path, &s) != 0 || S_ISDIR(s.st_mode))
            continue;
        n++;
        *bytes += (uint64_t)s.st_size;
        if (s.st_mtim.tv_sec >= time_of_oldest)
            continue;
        time_of_oldest = s.st_mtim.tv_sec;
        memcpy(oldest, path, sizeof(path));
    }
    if (entries)
        closedir(entries);
    return n;
}

void gsv_weights_folder_bound(const char *folder)
{
    char oldest[PATH_MAX];
    uint64_t bytes;

    while (survey(folder, &bytes, oldest) > MAX_FILES) {
        if (unlink(oldest) != 0 && errno != ENOENT)
            return;
    }
}

int gsv_weights_folder_size(const char *folder, uint64_t *bytes)
{
    char oldest[PATH_MAX];

    return survey(folder, bytes, oldest);
}

gpuserve_status gsv_weights_folder(char **folder, gpuserve_error *error)
{
    const char *given = secure_getenv("GPUSERVE_WEIGHTS_CACHE");
    const char *caches = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int length = 0;

    *folder = NULL;
    if (given && *given == '/')
        length = asprintf(folder, "%s", given);
    else if (!given && caches && *caches == '/')
        length = asprintf(folder, "%s/gpuserve/weights", caches);
    else if (!given && home && *home == '/')
        length = asprintf(folder, "%s/.cache/gpuserve/weights", home);
    if (length >= 0)
        return GPUSERVE_OK;
    *folder = NULL;
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the path of the weights cache");
}
