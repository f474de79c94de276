/*
 * dir.c - reads files of a model directory and rejects paths that leave it.
 *
 * openat2 with RESOLVE_BENEATH under `root` enforces containment in the kernel. Names are also
 * checked for ".." and a leading "/". On kernels before 5.6 the name check is the only one; outside
 * the Hugging Face cache a final symbolic link is then refused (O_NOFOLLOW) instead of followed.
 *
 * A directory in memory has texts instead of a descriptor.
 *
 * A gsv_dir is immutable after gsv_dir_open() and the last gsv_dir_add(), so threads may share it.
 */
#define _GNU_SOURCE
#include "lib/base/dir.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/gguf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GSV_PATH_BYTES 4096
#define MAX_TRIES 100000

/* A file of a directory in memory. */
struct made_file {
    const char *name;
    char *text;
    size_t size;
};

struct gsv_dir {
    int root;     /* O_PATH descriptor; no link may leave this directory. -1: none, in memory */
    char *path;   /* as given by the caller */
    char *prefix; /* path from root to the model directory: "" or "snapshots/REVISION/" */
    char *gguf;   /* name of the GGUF file with the model; NULL: none */
    bool is_file; /* `path` is the GGUF file itself */
    struct made_file made[GSV_MAX_MADE_FILES];
    size_t n_made;
    struct gsv_dir *base; /* has the files that this one lacks; NULL: none */
};

/* Length of REPO in a real path "REPO/snapshots/REVISION" of the Hugging Face cache; 0 for any
 * other path. */
static size_t hub_repo_length(const char *real)
{
    const char *revision = strrchr(real, '/');
    const char *snapshots, *repo;
    const size_t word = strlen("/snapshots");

    if (!revision || revision == real || (size_t)(revision - real) < word)
        return 0;
    snapshots = revision - word;
    if (strncmp(snapshots, "/snapshots", word) != 0)
        return 0;
    repo = snapshots;
    while (repo > real && repo[-1] != '/')
        repo--;
    return strncmp(repo, "models--", 8) == 0 ? (size_t)(snapshots - real) : 0;
}

/* Splits the real path into root and prefix in place: `real` keeps the root, the result points into
 * the same buffer. */
static const char *split_root(char *real)
{
    const size_t repo = hub_repo_length(real);

    if (repo == 0)
        return "";
    real[repo] = '\0';
    return real + repo + 1;
}

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);

    return n > m && strcasecmp(name + n - m, suffix) == 0;
}

static bool is_file(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Count the weight files of a directory; *name is the first of the GGUF files, owned. A directory
 * that cannot be listed has none. False: out of memory. */
static bool count_weights(const char *real, size_t *n_gguf, size_t *n_safetensors, char **name)
{
    DIR *entries = opendir(real);
    const struct dirent *entry;

    *n_gguf = *n_safetensors = 0;
    *name = NULL;
    if (!entries)
        return errno != ENOMEM;
    while ((entry = readdir(entries))) {
        *n_safetensors += has_suffix(entry->d_name, ".safetensors");
        if (!has_suffix(entry->d_name, ".gguf"))
            continue;
        if ((*n_gguf)++ > 0 && (!*name || strcmp(*name, entry->d_name) < 0))
            continue;
        free(*name);
        *name = gsv_copy_text(entry->d_name, strlen(entry->d_name));
    }
    closedir(entries);
    return *n_gguf == 0 || *name;
}

/* Set dir->gguf from the real path. A path of a GGUF file is cut to that of its directory: a
 * symbolic link to the file is followed, because the user names it. A link to a part of a split
 * file is not: the other parts are next to the link. */
static gpuserve_status find_gguf(struct gsv_dir *dir, char **real, gpuserve_error *error)
{
    size_t n_gguf, n_safetensors;

    if (has_suffix(dir->path, ".gguf") && is_file(*real)) {
        char *slash;

        dir->is_file = true;
        if (!gsv_gguf_part_path(real, dir->path))
            return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", dir->path);
        slash = strrchr(*real, '/'); /* a real path has one */
        dir->gguf = gsv_copy_text(slash + 1, strlen(slash + 1));
        slash[slash == *real] = '\0';
        return dir->gguf ? GPUSERVE_OK
                         : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", dir->path);
    }
    if (!count_weights(*real, &n_gguf, &n_safetensors, &dir->gguf))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", dir->path);
    if (n_safetensors > 0) {
        free(dir->gguf);
        dir->gguf = NULL;
    } else if (n_gguf > 1 && !gsv_gguf_is_first_part(dir->gguf, n_gguf)) {
        gsv_fail(error, GPUSERVE_E_INVALID, "%s: the directory has %zu GGUF files", dir->path,
                 n_gguf);
        return gsv_hint(error, GPUSERVE_E_INVALID, "give the path of one of them, such as %s/%s",
                        dir->path, dir->gguf);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_dir_open(struct gsv_dir **out, const char *path, gpuserve_error *error)
{
    struct gsv_dir *dir = gsv_alloc_array(1, sizeof(*dir));
    char *real = NULL;
    const char *below;
    gpuserve_status st;

    *out = NULL;
    if (!dir)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", path);
    dir->root = -1;
    real = realpath(path, NULL);
    if (!real) {
        st = gsv_fail(error, errno == ENOMEM ? GPUSERVE_E_NOMEM : GPUSERVE_E_NOT_FOUND, "%s: %s",
                      path, strerror(errno));
        goto fail;
    }
    dir->path = gsv_copy_text(path, strlen(path));
    if (!dir->path)
        goto no_memory;
    st = find_gguf(dir, &real, error);
    if (st != GPUSERVE_OK)
        goto fail;
    below = split_root(real);
    dir->prefix = gsv_alloc_array(strlen(below) + 2, 1);
    if (!dir->prefix)
        goto no_memory;
    if (*below)
        sprintf(dir->prefix, "%s/", below);
    dir->root = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir->root < 0) {
        st = gsv_fail(error, errno == ENOTDIR ? GPUSERVE_E_INVALID : GPUSERVE_E_IO, "%s: %s", path,
                      strerror(errno));
        goto fail;
    }
    free(real);
    *out = dir;
    return GPUSERVE_OK;
no_memory:
    st = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", path);
fail:
    free(real);
    gsv_dir_close(&dir);
    return st;
}

void gsv_dir_close(struct gsv_dir **dir)
{
    if (!dir || !*dir)
        return;
    if ((*dir)->root >= 0)
        close((*dir)->root);
    gsv_dir_close(&(*dir)->base);
    free((*dir)->path);
    free((*dir)->prefix);
    free((*dir)->gguf);
    for (size_t i = 0; i < (*dir)->n_made; i++)
        free((*dir)->made[i].text);
    free(*dir);
    *dir = NULL;
}

/* ------------------------------------------------------------------------------------ in memory */

gpuserve_status gsv_dir_create(struct gsv_dir **out, const char *path, gpuserve_error *error)
{
    struct gsv_dir *dir = gsv_alloc_array(1, sizeof(*dir));

    *out = NULL;
    if (dir) {
        dir->root = -1;
        dir->path = gsv_copy_text(path, strlen(path));
        dir->prefix = gsv_copy_text("", 0);
    }
    if (!dir || !dir->path || !dir->prefix) {
        gsv_dir_close(&dir);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", path);
    }
    *out = dir;
    return GPUSERVE_OK;
}

gpuserve_status gsv_dir_add(struct gsv_dir *dir, const char *name, char *text, size_t size,
                            gpuserve_error *error)
{
    if (!text || dir->n_made == GSV_MAX_MADE_FILES) {
        const gpuserve_status st = text ? GPUSERVE_E_INTERNAL : GPUSERVE_E_NOMEM;

        free(text);
        return gsv_fail(error, st, "%s/%s: %s", dir->path, name,
                        st == GPUSERVE_E_NOMEM ? "out of memory" : "too many files in memory");
    }
    dir->made[dir->n_made++] = (struct made_file){ name, text, size };
    return GPUSERVE_OK;
}

bool gsv_dir_is_made(const struct gsv_dir *dir)
{
    return dir->root < 0;
}

static const struct made_file *find_made(const struct gsv_dir *dir, const char *name)
{
    for (size_t i = 0; i < dir->n_made; i++)
        if (strcmp(dir->made[i].name, name) == 0)
            return &dir->made[i];
    return NULL;
}

/* A descriptor of a copy, which is removed when it is closed. */
static gpuserve_status open_made(const struct gsv_dir *dir, const char *name, int *out,
                                 uint64_t *size_bytes, gpuserve_error *error)
{
    const struct made_file *file = find_made(dir, name);
    gpuserve_status st;
    int fd;

    if (!file)
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s/%s: no such file", dir->path, name);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        return gsv_fail(error, GPUSERVE_E_IO, "%s/%s: %s", dir->path, name, strerror(errno));
    st = gsv_fd_write(fd, file->text, file->size, 0, name, error);
    if (st != GPUSERVE_OK) {
        close(fd);
        return st;
    }
    *out = fd;
    *size_bytes = file->size;
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------- on disk */

const char *gsv_dir_path(const struct gsv_dir *dir)
{
    return dir->path;
}

const char *gsv_dir_gguf(const struct gsv_dir *dir)
{
    return dir->gguf;
}

char *gsv_dir_gguf_path(const struct gsv_dir *dir)
{
    char *path = NULL;

    if (dir->is_file)
        return gsv_copy_text(dir->path, strlen(dir->path));
    return asprintf(&path, "%s/%s", dir->path, dir->gguf) < 0 ? NULL : path;
}

static bool name_stays_inside(const char *name)
{
    const char *part = name;

    if (*name == '/' || *name == '\0')
        return false;
    for (;;) {
        const size_t length = strcspn(part, "/");

        if (length == 2 && part[0] == '.' && part[1] == '.')
            return false;
        if (part[length] == '\0')
            return true;
        part += length + 1;
    }
}

/* Links of the cache have "..": openat2(2) answers EAGAIN while any program renames. */
static int open_beneath(const struct gsv_dir *dir, const char *name)
{
    char path[GSV_PATH_BYTES];
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    const int length = snprintf(path, sizeof(path), "%s%s", dir->prefix, name);
    int fd;

    if (length < 0 || (size_t)length >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (int tries = 0;; tries++) {
        fd = (int)syscall(__NR_openat2, dir->root, path, &how, sizeof(how));
        if (fd >= 0 || errno != EAGAIN || tries == MAX_TRIES)
            break;
        sched_yield();
    }
    if (fd < 0 && (errno == ENOSYS ||
                   errno == EPERM)) /* old kernel, or blocked by a container's seccomp filter */
        fd = openat(dir->root, path,
                    O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (*dir->prefix ? 0 : O_NOFOLLOW));
    return fd;
}

static gpuserve_status fail_open(const struct gsv_dir *dir, const char *name, gpuserve_error *error)
{
    switch (errno) {
    case ENOENT:
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s/%s: no such file", dir->path, name);
    case EXDEV:
    case ELOOP:
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s/%s: the path leaves the model's directory",
                        dir->path, name);
    default:
        return gsv_fail(error, GPUSERVE_E_IO, "%s/%s: %s", dir->path, name, strerror(errno));
    }
}

static gpuserve_status open_own(const struct gsv_dir *dir, const char *name, int *out,
                                uint64_t *size_bytes, gpuserve_error *error)
{
    struct stat info;
    int fd;

    *out = -1;
    if (!name_stays_inside(name))
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: the name '%s' leaves the directory",
                        dir->path, name);
    if (gsv_dir_is_made(dir))
        return open_made(dir, name, out, size_bytes, error);
    fd = open_beneath(dir, name);
    if (fd < 0)
        return fail_open(dir, name, error);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s/%s: not a regular file", dir->path, name);
    }
    *size_bytes = (uint64_t)info.st_size;
    *out = fd;
    return GPUSERVE_OK;
}

gpuserve_status gsv_dir_open_file(const struct gsv_dir *dir, const char *name, int *out,
                                  uint64_t *size_bytes, gpuserve_error *error)
{
    return open_own(gsv_dir_owner(dir, name), name, out, size_bytes, error);
}

bool gsv_dir_has_own(const struct gsv_dir *dir, const char *name)
{
    struct stat info;
    bool is_there;
    int fd;

    if (gsv_dir_is_made(dir))
        return find_made(dir, name) != NULL;
    if (!name_stays_inside(name))
        return false;
    fd = open_beneath(dir, name);
    if (fd < 0)
        return errno == EACCES || errno == EAGAIN || errno == EMFILE || errno == ENFILE ||
               errno == EIO;
    is_there = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    close(fd);
    return is_there;
}

bool gsv_dir_has(const struct gsv_dir *dir, const char *name)
{
    return gsv_dir_has_own(gsv_dir_owner(dir, name), name);
}

/* ---------------------------------------------------------------------------------------- base */

gpuserve_status gsv_dir_set_base(struct gsv_dir *dir, struct gsv_dir *base, gpuserve_error *error)
{
    dir->base = base;
    if (!gsv_dir_is_made(base) && !gsv_dir_gguf(base))
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: the base model %s is %s, and no directory with safetensors", dir->path,
                    base->path, gsv_dir_is_made(base) ? "random" : "a GGUF file");
}

bool gsv_dir_has_base(const struct gsv_dir *dir)
{
    return dir->base != NULL;
}

const struct gsv_dir *gsv_dir_owner(const struct gsv_dir *dir, const char *name)
{
    return dir->base && !gsv_dir_has_own(dir, name) ? dir->base : dir;
}

/* -------------------------------------------------------------------------------------- listing */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void gsv_names_free(struct gsv_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->names[i]);
    free(names->names);
    memset(names, 0, sizeof(*names));
}

static gpuserve_status add_name(const struct gsv_dir *dir, struct gsv_names *names,
                                const char *name, gpuserve_error *error)
{
    if (names->n == GSV_MAX_NAMES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: the directory has over %d files",
                        dir->path, GSV_MAX_NAMES);
    if (!gsv_grow((void **)&names->names, &names->capacity, names->n + 1, sizeof(char *),
                  GSV_MAX_NAMES))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", dir->path);
    names->names[names->n] = gsv_copy_text(name, strlen(name));
    if (!names->names[names->n])
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", dir->path);
    names->n++;
    return GPUSERVE_OK;
}

static gpuserve_status list_names(DIR *stream, const struct gsv_dir *dir, struct gsv_names *names,
                                  gpuserve_error *error)
{
    const struct dirent *entry;
    gpuserve_status st = GPUSERVE_OK;

    while (st == GPUSERVE_OK && (entry = readdir(stream)))
        if (entry->d_name[0] != '.')
            st = add_name(dir, names, entry->d_name, error);
    if (names->n > 0)
        qsort(names->names, names->n, sizeof(char *), compare_names);
    return st;
}

/* A directory in memory has no folders. */
static gpuserve_status list_made(const struct gsv_dir *dir, const char *folder,
                                 struct gsv_names *names, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (*folder && find_made(dir, folder))
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s/%s: not a directory", dir->path, folder);
    if (*folder)
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s/%s: no such directory", dir->path, folder);
    for (size_t i = 0; i < dir->n_made && st == GPUSERVE_OK; i++)
        st = add_name(dir, names, dir->made[i].name, error);
    if (names->n > 0)
        qsort(names->names, names->n, sizeof(char *), compare_names);
    if (st != GPUSERVE_OK)
        gsv_names_free(names);
    return st;
}

static gpuserve_status list_own(const struct gsv_dir *dir, const char *folder,
                                struct gsv_names *names, gpuserve_error *error)
{
    const char *const shown = *folder ? folder : ".";
    gpuserve_status st;
    DIR *stream;
    int fd;

    memset(names, 0, sizeof(*names));
    if (!name_stays_inside(shown))
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s: the name '%s' leaves the directory",
                        dir->path, shown);
    if (gsv_dir_is_made(dir))
        return list_made(dir, folder, names, error);
    fd = open_beneath(dir, shown);
    stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) {
        if (errno == ENOTDIR || errno == ENOMEM)
            st = gsv_fail(error, errno == ENOMEM ? GPUSERVE_E_NOMEM : GPUSERVE_E_INVALID,
                          "%s/%s: %s", dir->path, shown, strerror(errno));
        else
            st = fail_open(dir, shown, error);
        if (fd >= 0)
            close(fd);
        return st;
    }
    st = list_names(stream, dir, names, error);
    closedir(stream);
    if (st != GPUSERVE_OK)
        gsv_names_free(names);
    return st;
}

/* Add the names that only the base has. */
static gpuserve_status join_names(const struct gsv_dir *dir, struct gsv_names *names,
                                  const struct gsv_names *more, gpuserve_error *error)
{
    const size_t n = names->n;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < more->n && st == GPUSERVE_OK; i++)
        if (n == 0 || !bsearch(&more->names[i], names->names, n, sizeof(char *), compare_names))
            st = add_name(dir, names, more->names[i], error);
    if (names->n > 0)
        qsort(names->names, names->n, sizeof(char *), compare_names);
    return st;
}

gpuserve_status gsv_dir_list(const struct gsv_dir *dir, const char *folder, struct gsv_names *names,
                             gpuserve_error *error)
{
    struct gsv_names more;
    gpuserve_status st = list_own(dir, folder, names, error);

    if (dir->base && st == GPUSERVE_E_NOT_FOUND)
        return list_own(dir->base, folder, names, error);
    if (!dir->base || st != GPUSERVE_OK || list_own(dir->base, folder, &more, NULL) != GPUSERVE_OK)
        return st;
    st = join_names(dir, names, &more, error);
    gsv_names_free(&more);
    if (st != GPUSERVE_OK)
        gsv_names_free(names);
    return st;
}

bool gsv_join_name(char out[GSV_FILE_NAME_BYTES], const char *folder, const char *name)
{
    const int length =
        snprintf(out, GSV_FILE_NAME_BYTES, "%s%s%s", folder, *folder ? "/" : "", name);

    return length > 0 && length < GSV_FILE_NAME_BYTES;
}

bool gsv_dir_has_in(const struct gsv_dir *dir, const char *folder, const char *name)
{
    char path[GSV_FILE_NAME_BYTES];

    return gsv_join_name(path, folder, name) && gsv_dir_has(dir, path);
}

gpuserve_status gsv_dir_read(const struct gsv_dir *dir, const char *name, size_t max_bytes,
                             char **bytes, size_t *size_bytes, gpuserve_error *error)
{
    char shown[GSV_PATH_BYTES];
    uint64_t size;
    int fd;
    const gpuserve_status st = gsv_dir_open_file(dir, name, &fd, &size, error);

    *bytes = NULL;
    *size_bytes = 0;
    if (st != GPUSERVE_OK)
        return st;
    snprintf(shown, sizeof(shown), "%s/%s", gsv_dir_owner(dir, name)->path, name);
    return gsv_fd_read_whole(fd, size, shown, max_bytes, bytes, size_bytes, error);
}
