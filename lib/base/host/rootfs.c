/*
 * rootfs.c - resolves paths below a root folder, component by component.
 *
 *   path -> component -> openat(O_PATH | O_NOFOLLOW) -> folder: descend, link: replace, "..":
 * ascend
 *
 * The walk keeps the descriptor of every folder on its path, so ".." returns to the folder that was
 * entered, whatever is renamed meanwhile, and stops at the root. Unlike openat2(RESOLVE_IN_ROOT) it
 * works on every kernel and under seccomp filters of containers.
 */
#define _GNU_SOURCE
#include "lib/base/host/rootfs.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ENTRIES 65536

struct path_walk {
    int root;
    int folders[GSV_ROOTFS_DEPTH]; /* below the root, to the current folder */
    int depth;
    int links;
    char real[GSV_ROOTFS_PATH_BYTES]; /* path of the current folder, "" at the root */
    char rest[GSV_ROOTFS_PATH_BYTES]; /* not yet resolved */
};

gpuserve_status gsv_rootfs_open(struct gsv_rootfs *rootfs, const char *root, gpuserve_error *error)
{
    const char *const path = root ? root : "/";

    rootfs->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (rootfs->root >= 0)
        return GPUSERVE_OK;
    return gsv_fail(error, errno == ENOENT ? GPUSERVE_E_NOT_FOUND : GPUSERVE_E_INVALID,
                    "root folder %s: %s", path, strerror(errno));
}

void gsv_rootfs_close(struct gsv_rootfs *rootfs)
{
    if (rootfs->root >= 0)
        close(rootfs->root);
    rootfs->root = -1;
}

static int current_folder(const struct path_walk *walk)
{
    return walk->depth > 0 ? walk->folders[walk->depth - 1] : walk->root;
}

static void ascend(struct path_walk *walk)
{
    char *slash = strrchr(walk->real, '/');

    if (walk->depth == 0)
        return;
    close(walk->folders[--walk->depth]);
    if (slash)
        *slash = '\0';
}

static void end_walk(struct path_walk *walk)
{
    while (walk->depth > 0)
        ascend(walk);
}

static bool fails(int code)
{
    errno = code;
    return false;
}

/* Appends a component to the resolved path. */
static bool append_component(struct path_walk *walk, const char *name)
{
    const size_t at = strlen(walk->real), length = strlen(name);

    if (at + 1 + length >= sizeof(walk->real))
        return fails(ENAMETOOLONG);
    walk->real[at] = '/';
    memcpy(walk->real + at + 1, name, length + 1);
    return true;
}

/* Enters a folder; takes ownership of `fd`. */
static bool descend(struct path_walk *walk, const char *name, int fd)
{
    if (walk->depth == GSV_ROOTFS_DEPTH || !append_component(walk, name)) {
        close(fd);
        return fails(ENAMETOOLONG);
    }
    walk->folders[walk->depth++] = fd;
    return true;
}

/* Puts the text of a link before the unresolved rest; takes ownership of `fd`. */
static bool follow(struct path_walk *walk, int fd, size_t next)
{
    char target[GSV_ROOTFS_PATH_BYTES];
    const ssize_t length = readlinkat(fd, "", target, sizeof(target));
    const size_t left = strlen(walk->rest + next);

    close(fd);
    if (length <= 0)
        return fails(ENOENT);
    if (++walk->links > GSV_ROOTFS_LINKS)
        return fails(ELOOP);
    if ((size_t)length + left >= sizeof(walk->rest))
        return fails(ENAMETOOLONG);
    memmove(walk->rest + length, walk->rest + next, left + 1);
    memcpy(walk->rest, target, (size_t)length);
    if (target[0] == '/')
        end_walk(walk);
    return true;
}

/* Copies the next component to `name`; *next is the offset of the rest, which begins with a slash
 * unless it is empty. False at the end of the path. */
static bool next_component(const struct path_walk *walk, char name[256], size_t *next)
{
    const char *const begin = walk->rest + strspn(walk->rest, "/");
    const size_t length = strcspn(begin, "/");

    *next = (size_t)(begin - walk->rest) + length;
    if (length == 0)
        return false;
    snprintf(name, 256, "%.*s", (int)(length < 256 ? length : 255), begin);
    return true;
}

/*
 * Resolves `path`. On success the walk is in the folder of the result: `name` is the last component
 * if it is no folder, and empty if the path names the current folder itself. The last link is
 * followed unless `keep_link`. End the walk with end_walk().
 */
static bool resolve(struct path_walk *walk, const struct gsv_rootfs *rootfs, const char *path,
                    bool keep_link, char name[256], struct stat *info)
{
    size_t next;

    memset(walk, 0, sizeof(*walk));
    walk->root = rootfs->root;
    if (strlen(path) >= sizeof(walk->rest))
        return fails(ENAMETOOLONG);
    memcpy(walk->rest, path, strlen(path) + 1);
    while (next_component(walk, name, &next)) {
        const bool is_last = walk->rest[next + strspn(walk->rest + next, "/")] == '\0';
        bool is_parent = strcmp(name, "..") == 0;
        int fd;

        if (is_parent || strcmp(name, ".") == 0) {
            if (is_parent)
                ascend(walk);
            memmove(walk->rest, walk->rest + next, strlen(walk->rest + next) + 1);
            continue;
        }
        fd = openat(current_folder(walk), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return false;
        if (fstat(fd, info) != 0) {
            close(fd);
            return false;
        }
        if (S_ISLNK(info->st_mode) && !(is_last && keep_link)) {
            if (!follow(walk, fd, next))
                return false;
            continue;
        }
        if (!S_ISDIR(info->st_mode)) {
            close(fd);
            return is_last ? true : fails(ENOTDIR);
        }
        if (!descend(walk, name, fd))
            return false;
        memmove(walk->rest, walk->rest + next, strlen(walk->rest + next) + 1);
    }
    name[0] = '\0';
    return fstatat(current_folder(walk), "", info, AT_EMPTY_PATH) == 0;
}

bool gsv_rootfs_find(const struct gsv_rootfs *rootfs, const char *path, char *real,
                     struct stat *info)
{
    struct path_walk walk;
    struct stat own;
    char name[256];
    bool found = resolve(&walk, rootfs, path, false, name, info ? info : &own);

    if (found && name[0] != '\0')
        found = append_component(&walk, name);
    if (found && real)
        snprintf(real, GSV_ROOTFS_PATH_BYTES, "%s", walk.real[0] ? walk.real : "/");
    end_walk(&walk);
    return found;
}

/* Opens the regular file, unless it was replaced since `info` was read. */
static int open_regular(const struct path_walk *walk, const char *name, const struct stat *info)
{
    struct stat now;
    int fd;

    if (name[0] == '\0' || !S_ISREG(info->st_mode)) {
        errno = EINVAL;
        return -1;
    }
    fd = openat(current_folder(walk), name,
                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &now) == 0 && S_ISREG(now.st_mode))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

int gsv_rootfs_open_file(const struct gsv_rootfs *rootfs, const char *path)
{
    struct path_walk walk;
    struct stat info;
    char name[256];
    int fd = -1, code;

    if (resolve(&walk, rootfs, path, false, name, &info))
        fd = open_regular(&walk, name, &info);
    code = errno;
    end_walk(&walk);
    errno = code;
    return fd;
}

size_t gsv_rootfs_read(const struct gsv_rootfs *rootfs, const char *path, char *text,
                       size_t capacity)
{
    const int fd = gsv_rootfs_open_file(rootfs, path);
    size_t done = 0;

    text[0] = '\0';
    if (fd < 0)
        return 0;
    while (done < capacity - 1) {
        const ssize_t got = read(fd, text + done, capacity - 1 - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    close(fd);
    text[done] = '\0';
    return done;
}

bool gsv_rootfs_link_name(const struct gsv_rootfs *rootfs, const char *path, char *name,
                          size_t capacity)
{
    char target[GSV_ROOTFS_PATH_BYTES];
    struct path_walk walk;
    struct stat info;
    char last[256];
    ssize_t length = -1;
    const char *slash;

    if (resolve(&walk, rootfs, path, true, last, &info) && S_ISLNK(info.st_mode))
        length = readlinkat(current_folder(&walk), last, target, sizeof(target) - 1);
    end_walk(&walk);
    if (length <= 0)
        return false;
    target[length] = '\0';
    slash = strrchr(target, '/');
    snprintf(name, capacity, "%s", slash ? slash + 1 : target);
    return true;
}

/* ------------------------------------------------------------------------------------ listing */

static DIR *open_folder(const struct gsv_rootfs *rootfs, const char *path)
{
    struct path_walk walk;
    struct stat info;
    char name[256];
    DIR *stream = NULL;
    int fd = -1;

    if (resolve(&walk, rootfs, path, false, name, &info) && name[0] == '\0')
        fd = openat(current_folder(&walk), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    end_walk(&walk);
    if (fd >= 0)
        stream = fdopendir(fd);
    if (!stream && fd >= 0)
        close(fd);
    return stream;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool add_name(struct gsv_names *names, const char *name, size_t limit)
{
    char *copy;

    if (!gsv_grow((void **)&names->names, &names->capacity, names->n + 1, sizeof(char *), limit))
        return false;
    copy = gsv_copy_text(name, strlen(name));
    if (!copy)
        return false;
    names->names[names->n++] = copy;
    return true;
}

bool gsv_rootfs_list(const struct gsv_rootfs *rootfs, const char *folder, const char *prefix,
                     size_t limit, struct gsv_names *names)
{
    DIR *const stream = open_folder(rootfs, folder);
    const struct dirent *entry;
    bool is_complete = true;

    memset(names, 0, sizeof(*names));
    if (!stream)
        return true;
    for (int i = 0; is_complete && i < MAX_ENTRIES && names->n < limit; i++) {
        entry = readdir(stream);
        if (!entry)
            break;
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            is_complete = add_name(names, entry->d_name, limit);
    }
    closedir(stream);
    if (!is_complete)
        gsv_names_free(names);
    else if (names->n > 0)
        qsort(names->names, names->n, sizeof(char *), compare_names);
    return is_complete;
}
