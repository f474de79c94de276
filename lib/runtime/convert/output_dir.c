/*
 * output_dir.c - a directory that appears under its name only when it is complete.
 *
 *   PARENT/.NAME.partial-PID-N --(files, sync, renameat2)--> PARENT/NAME
 *
 * An existing directory is exchanged for the new one in one step, where the file system can, and
 * then removed.
 *
 * A temporary directory is locked with flock() as long as its process uses it, so one without a
 * lock is left over from a process that was killed. The next output of the same name removes it.
 */
#define _GNU_SOURCE
#include "lib/runtime/convert/convert.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_TRIES 100
#define MAX_DEPTH 16 /* of a directory to remove */

/* -------------------------------------------------------------------------------------- removing
 */

/* Remove NAME in the directory `at` with everything below; links are removed, not followed. */
static void remove_tree(int at, const char *name, int depth)
{
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const struct dirent *entry;
    DIR *stream;

    if (fd < 0) {
        unlinkat(at, name, 0);
        return;
    }
    stream = fdopendir(fd);
    if (!stream) {
        close(fd);
        return;
    }
    while (depth < MAX_DEPTH && (entry = readdir(stream)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_tree(fd, entry->d_name, depth + 1);
    closedir(stream);
    unlinkat(at, name, AT_REMOVEDIR);
}

/* -------------------------------------------------------------------------------------- checking
 */

static bool is_empty(const char *path)
{
    DIR *stream = opendir(path);
    const struct dirent *entry;
    bool empty = stream != NULL;

    while (stream && (entry = readdir(stream)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            empty = false;
    if (stream)
        closedir(stream);
    return empty;
}

static bool has_file(const char *folder, const char *name)
{
    struct stat info;
    const int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    const bool has = fd >= 0 && fstatat(fd, name, &info, 0) == 0 && S_ISREG(info.st_mode);

    if (fd >= 0)
        close(fd);
    return has;
}

/* A path is `folder` itself or inside it. */
static bool is_inside(const char *path, const char *folder)
{
    char *a = realpath(path, NULL), *b = realpath(folder, NULL);
    const size_t n = b ? strlen(b) : 0;
    const bool inside =
        a && b && strncmp(a, b, n) == 0 && (a[n] == '\0' || a[n] == '/' || b[n - 1] == '/');

    free(a);
    free(b);
    return inside;
}

gpuserve_status gsv_output_check(const char *path, const char *input, bool force,
                                 gpuserve_error *error)
{
    struct stat info;
    gpuserve_status st;

    if (!path || !*path)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the output directory is %s",
                        path ? "empty" : "NULL");
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? GPUSERVE_OK
                               : gsv_fail(error, GPUSERVE_E_IO, "%s: %s", path, strerror(errno));
    if (is_inside(input, path))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "%s: the output directory is the model's, or contains it", path);
    if (!force) {
        st = gsv_fail(error, GPUSERVE_E_INVALID, "%s: the output exists", path);
        return gsv_hint(error, st, "name another directory, or replace this one with --force");
    }
    if (!S_ISDIR(info.st_mode))
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: the output exists and is no directory",
                        path);
    if (is_empty(path) || has_file(path, "config.json") || has_file(path, "modules.json"))
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_INVALID,
                    "%s: the directory is not a model's (it has no config.json): not replaced",
                    path);
}

/* ------------------------------------------------------------------------------------ leftovers */

/* Open and lock a temporary directory. -1 with EEXIST if another process uses or removes it, else
 * with the cause. One that may be a leftover must belong to this user, on a file system with locks.
 */
static int open_locked(int at, const char *name, bool may_be_leftover)
{
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat opened, named;
    bool is_usable;

    if (fd < 0) {
        errno = errno == ENOENT ? EEXIST : errno;
        return -1;
    }
    is_usable = flock(fd, LOCK_EX | LOCK_NB) == 0 || (!may_be_leftover && errno != EWOULDBLOCK);
    /* Between opening and locking, another process may have removed it. */
    is_usable = is_usable && fstat(fd, &opened) == 0 &&
                fstatat(at, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
                opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
    if (is_usable && (!may_be_leftover || opened.st_uid == geteuid()))
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

/* ".NAME.partial-PID-N", nothing behind it: a directory "...-old" holds an earlier output. */
static bool is_temporary_of(const char *entry, const char *name)
{
    const size_t length = strlen(name);
    const char *at = entry;
    size_t digits;

    if (*at++ != '.' || strncmp(at, name, length) != 0 ||
        strncmp(at + length, ".partial-", strlen(".partial-")) != 0)
        return false;
    at += length + strlen(".partial-");
    digits = strspn(at, "0123456789");
    if (digits == 0 || at[digits] != '-')
        return false;
    at += digits + 1;
    digits = strspn(at, "0123456789");
    return digits > 0 && at[digits] == '\0';
}

/* Remove what killed processes left in the folder of `path`. A failure only leaves it there. */
static void remove_leftovers(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *parent = slash ? gsv_copy_text(path, (size_t)(slash - path) + 1) : gsv_copy_text(".", 1);
    DIR *stream = parent ? opendir(parent) : NULL;
    const struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        const int fd = is_temporary_of(entry->d_name, name)
                           ? open_locked(dirfd(stream), entry->d_name, true)
                           : -1;

        if (fd < 0)
            continue;
        remove_tree(dirfd(stream), entry->d_name, 0);
        close(fd);
    }
    if (stream)
        closedir(stream);
    free(parent);
}

/* ------------------------------------------------------------------------------- begin and end */

/* "PARENT/.NAME.partial-PID-N"; NULL if out of memory. */
static char *temporary_name(const char *path, int n)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *made;

    if (asprintf(&made, "%.*s.%s.partial-%d-%d", (int)(name - path), path, name, (int)getpid(), n) <
        0)
        return NULL;
    return made;
}

static gpuserve_status make_temporary(struct gsv_output_dir *output, gpuserve_error *error)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        char *name = temporary_name(output->path, i);
        int cause;

        if (!name)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", output->path);
        if (mkdir(name, 0777) == 0) {
            output->fd = open_locked(AT_FDCWD, name, false);
            if (output->fd >= 0) {
                output->temporary = name;
                return GPUSERVE_OK;
            }
            cause = errno;
            rmdir(name);
            errno = cause;
        }
        free(name);
        if (errno != EEXIST)
            break;
    }
    return gsv_fail(error, errno == ENOENT ? GPUSERVE_E_NOT_FOUND : GPUSERVE_E_IO, "%s: %s",
                    output->path, strerror(errno));
}

gpuserve_status gsv_output_begin(struct gsv_output_dir *output, const char *path, bool force,
                                 gpuserve_error *error)
{
    size_t size = strlen(path);

    while (size > 1 && path[size - 1] == '/')
        size--;
    *output = (struct gsv_output_dir){ .fd = -1, .replaces = force };
    output->path = gsv_copy_text(path, size);
    if (!output->path)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", path);
    remove_leftovers(output->path);
    return make_temporary(output, error);
}

static int rename_with(const char *from, const char *to, unsigned flags)
{
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

/* For file systems without renameat2: the old directory is renamed first. */
static int replace_in_two_steps(const struct gsv_output_dir *output)
{
    char *previous;
    int failed;

    if (asprintf(&previous, "%s-old", output->temporary) < 0)
        return -1;
    failed = rename(output->path, previous) != 0 && errno != ENOENT;
    if (!failed && rename(output->temporary, output->path) != 0) {
        const int cause = errno;

        failed = 1;
        (void)rename(previous, output->path);
        errno = cause;
    }
    if (!failed)
        remove_tree(AT_FDCWD, previous, 0);
    free(previous);
    return failed ? -1 : 0;
}

static int rename_output(const struct gsv_output_dir *output)
{
    if (rename_with(output->temporary, output->path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EEXIST && !output->replaces)
        return -1;
    if (errno == EEXIST && rename_with(output->temporary, output->path, RENAME_EXCHANGE) == 0) {
        remove_tree(AT_FDCWD, output->temporary, 0); /* the previous content now */
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != EPERM)
        return -1;
    return output->replaces ? replace_in_two_steps(output)
                            : rename(output->temporary, output->path);
}

gpuserve_status gsv_output_end(struct gsv_output_dir *output, gpuserve_error *error)
{
    if ((fsync(output->fd) != 0 && errno != EINVAL) || rename_output(output) != 0)
        return gsv_fail(error, errno == EEXIST ? GPUSERVE_E_INVALID : GPUSERVE_E_IO, "%s: %s",
                        output->path, strerror(errno));
    free(output->temporary);
    output->temporary = NULL;
    return GPUSERVE_OK;
}

void gsv_output_abandon(struct gsv_output_dir *output)
{
    if (output->fd >= 0)
        close(output->fd);
    if (output->temporary)
        remove_tree(AT_FDCWD, output->temporary, 0);
    free(output->temporary);
    free(output->path);
    *output = (struct gsv_output_dir){ .fd = -1 };
}

gpuserve_status gsv_output_folder(const struct gsv_output_dir *output, const char *folder, int *fd,
                                  gpuserve_error *error)
{
    if (*folder && mkdirat(output->fd, folder, 0777) != 0 && errno != EEXIST)
        return gsv_fail(error, GPUSERVE_E_IO, "%s/%s: %s", output->path, folder, strerror(errno));
    *fd =
        openat(output->fd, *folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd >= 0
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_IO, "%s/%s: %s", output->path, folder, strerror(errno));
}
