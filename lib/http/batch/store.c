/*
 * store.c - the directory of --batch-dir. File names are ids that this
 * program generates, never text of a client.
 */
#include "lib/http/batch/store.h"

#include "lib/base/alloc.h"
#include "lib/base/dir.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ID_RANDOM_BYTES = 12, MAX_JSON_BYTES = 1 << 20 };

static gpuserve_status fail_io(const struct gsv_store *store, const char *name,
                               gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_IO, "%s/%s: %s", store->path, name, strerror(errno));
}

/* True for an id of gsv_store_new_id() with this prefix, followed by `end`. The directory may also
 * contain files of the user, which are not read and not removed. */
static bool is_own(const char *name, const char *prefix, const char *end)
{
    const size_t n = strlen(prefix), n_digits = (size_t)2 * ID_RANDOM_BYTES;

    return strncmp(name, prefix, n) == 0 && strspn(name + n, "0123456789abcdef") == n_digits &&
           strcmp(name + n + n_digits, end) == 0;
}

gpuserve_status gsv_store_new_id(char id[GSV_STORE_ID_BYTES], const char *prefix,
                                 gpuserve_error *error)
{
    unsigned char random[ID_RANDOM_BYTES];
    size_t n = strlen(prefix);

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return gsv_fail(error, GPUSERVE_E_IO, "no random numbers: %s", strerror(errno));
    memcpy(id, prefix, n);
    for (size_t i = 0; i < sizeof(random); i++, n += 2)
        snprintf(id + n, 3, "%02x", random[i]);
    return GPUSERVE_OK;
}

/* ----------------------------------------------------------------------------------------- data */

gpuserve_status gsv_store_reserve(struct gsv_store *store, uint64_t n_bytes, gpuserve_error *error)
{
    uint64_t used = atomic_load(&store->n_bytes);

    do {
        if (n_bytes > store->max_bytes || used > store->max_bytes - n_bytes)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%llu bytes more than the %llu stored ones exceed the limit of %llu "
                            "bytes (--batch-disk): delete files",
                            (unsigned long long)n_bytes, (unsigned long long)used,
                            (unsigned long long)store->max_bytes);
    } while (!atomic_compare_exchange_weak(&store->n_bytes, &used, used + n_bytes));
    return GPUSERVE_OK;
}

void gsv_store_release(struct gsv_store *store, uint64_t n_bytes)
{
    atomic_fetch_sub(&store->n_bytes, n_bytes);
}

gpuserve_status gsv_store_open_data(const struct gsv_store *store, const char *id, int flags,
                                    int *fd, gpuserve_error *error)
{
    *fd = openat(store->dir, id, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *fd >= 0 ? GPUSERVE_OK : fail_io(store, id, error);
}

void gsv_store_remove_data(struct gsv_store *store, const char *id)
{
    struct stat st;

    if (fstatat(store->dir, id, &st, AT_SYMLINK_NOFOLLOW) == 0 && unlinkat(store->dir, id, 0) == 0)
        gsv_store_release(store, (uint64_t)st.st_size);
}

/* -------------------------------------------------------------------------------------- records */

static gpuserve_status write_all(const struct gsv_store *store, const char *name, const char *text,
                                 gpuserve_error *error)
{
    gpuserve_status st;
    int fd;

    st = gsv_store_open_data(store, name, O_WRONLY | O_CREAT | O_TRUNC, &fd, error);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_fd_write(fd, text, strlen(text), 0, name, error);
    return gsv_finish_file(fd, st, store->path, name, error);
}

gpuserve_status gsv_store_write_json(const struct gsv_store *store, const char *id,
                                     const json_t *value, gpuserve_error *error)
{
    char *text = gsv_json_dump(value, JSON_COMPACT | JSON_SORT_KEYS);
    char name[GSV_STORE_ID_BYTES + 8], temporary[GSV_STORE_ID_BYTES + 8];
    gpuserve_status st;

    if (!text)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the record %s", id);
    snprintf(name, sizeof(name), "%s.json", id);
    snprintf(temporary, sizeof(temporary), "%s.tmp", id);
    st = write_all(store, temporary, text, error);
    free(text);
    if (st == GPUSERVE_OK && renameat(store->dir, temporary, store->dir, name) != 0)
        st = fail_io(store, name, error);
    if (st == GPUSERVE_OK && fsync(store->dir) != 0 && errno != EINVAL)
        st = fail_io(store, name, error);
    return st;
}

void gsv_store_remove_json(const struct gsv_store *store, const char *id)
{
    char name[GSV_STORE_ID_BYTES + 8];

    snprintf(name, sizeof(name), "%s.json", id);
    unlinkat(store->dir, name, 0);
}

static gpuserve_status read_json(const struct gsv_store *store, const char *name, json_t **value,
                                 gpuserve_error *error)
{
    const struct gsv_json_limits limits = { 100000, 8 };
    char *text = NULL;
    struct stat st;
    gpuserve_status status;
    int fd;

    *value = NULL;
    status = gsv_store_open_data(store, name, O_RDONLY, &fd, error);
    if (status != GPUSERVE_OK)
        return status;
    if (fstat(fd, &st) != 0)
        status = fail_io(store, name, error);
    else if (st.st_size > MAX_JSON_BYTES)
        status = gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s/%s has %lld bytes, the limit is %d",
                          store->path, name, (long long)st.st_size, MAX_JSON_BYTES);
    if (status == GPUSERVE_OK && (text = malloc((size_t)st.st_size + 1)) == NULL)
        status = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %s", name);
    if (status == GPUSERVE_OK)
        status = gsv_fd_read(fd, text, (size_t)st.st_size, 0, name, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_parse(value, text, (size_t)st.st_size, name, limits, error);
    free(text);
    close(fd);
    return status;
}

gpuserve_status gsv_store_each_json(const struct gsv_store *store, const char *prefix,
                                    gpuserve_status (*read)(void *user, const char *id,
                                                            const json_t *value,
                                                            gpuserve_error *error),
                                    void *user, gpuserve_error *error)
{
    const int copy = openat(store->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    gpuserve_status st = GPUSERVE_OK;
    const struct dirent *entry;

    if (!entries) {
        st = fail_io(store, ".", error);
        if (copy >= 0)
            close(copy);
        return st;
    }
    while (st == GPUSERVE_OK && (entry = readdir(entries))) {
        char id[GSV_STORE_ID_BYTES];
        json_t *value;

        if (!is_own(entry->d_name, prefix, ".json"))
            continue;
        snprintf(id, sizeof(id), "%.*s", (int)(strlen(entry->d_name) - 5), entry->d_name);
        st = read_json(store, entry->d_name, &value, error);
        if (st == GPUSERVE_OK)
            st = read(user, id, value, error);
        json_decref(value);
    }
    closedir(entries);
    return st;
}

/* ---------------------------------------------------------------------------------------- files */

static json_t *description_of(const struct gsv_stored_file *file)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "owner", file->owner, "filename", file->name,
                     "purpose", file->purpose, "bytes", (json_int_t)file->n_bytes, "created_at",
                     (json_int_t)file->created, "expires_at", (json_int_t)file->expires);
}

static bool copy_text(char *to, size_t size, const char *from)
{
    return (size_t)snprintf(to, size, "%s", from) < size;
}

gpuserve_status gsv_store_check_files(const struct gsv_store *store, gpuserve_error *error)
{
    return store->n_files < GSV_STORE_MAX_FILES
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                          "%zu files are stored, the limit is %d: delete some", store->n_files,
                          GSV_STORE_MAX_FILES);
}

static gpuserve_status add(struct gsv_store *store, const struct gsv_stored_file *file,
                           gpuserve_error *error)
{
    const size_t limit = GSV_STORE_MAX_FILES + GSV_STORE_MAX_OUTPUTS;

    if (store->n_files >= limit)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "more than %zu files", limit);
    if (!gsv_grow((void **)&store->files, &store->capacity, store->n_files + 1,
                  sizeof(*store->files), limit))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the list of files");
    store->files[store->n_files++] = *file;
    return GPUSERVE_OK;
}

static gpuserve_status read_description(void *user, const char *id, const json_t *value,
                                        gpuserve_error *error)
{
    const char *owner, *name, *purpose;
    json_int_t n_bytes, created, expires;
    struct gsv_stored_file file = { .id = "" };

    if (json_unpack((json_t *)value, "{s:s, s:s, s:s, s:I, s:I, s:I}", "owner", &owner, "filename",
                    &name, "purpose", &purpose, "bytes", &n_bytes, "created_at", &created,
                    "expires_at", &expires) != 0 ||
        n_bytes < 0 || !copy_text(file.id, sizeof(file.id), id) ||
        !copy_text(file.owner, sizeof(file.owner), owner) ||
        !copy_text(file.name, sizeof(file.name), name) ||
        !copy_text(file.purpose, sizeof(file.purpose), purpose))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s.json is no description of a file", id);
    file.n_bytes = (uint64_t)n_bytes;
    file.created = created;
    file.expires = expires;
    return add(user, &file, error);
}

/* Called with the lock held. SIZE_MAX: not found. */
static size_t index_of(const struct gsv_store *store, const char *id, const char *owner)
{
    for (size_t i = 0; i < store->n_files; i++) {
        if (strcmp(store->files[i].id, id) == 0 &&
            (!owner || strcmp(store->files[i].owner, owner) == 0))
            return i;
    }
    return SIZE_MAX;
}

gpuserve_status gsv_store_describe(struct gsv_store *store, const struct gsv_stored_file *file,
                                   gpuserve_error *error)
{
    json_t *description = description_of(file);
    gpuserve_status st = GPUSERVE_OK;
    size_t i;

    if (!description)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the file %s", file->id);
    pthread_mutex_lock(&store->lock);
    i = index_of(store, file->id, NULL);
    if (i == SIZE_MAX)
        st = add(store, file, error);
    if (st == GPUSERVE_OK) {
        st = gsv_store_write_json(store, file->id, description, error);
        if (st == GPUSERVE_OK && i != SIZE_MAX)
            store->files[i] = *file;
        else if (st != GPUSERVE_OK && i == SIZE_MAX)
            store->n_files--;
    }
    pthread_mutex_unlock(&store->lock);
    json_decref(description);
    return st;
}

gpuserve_status gsv_store_upload(struct gsv_store *store, struct gsv_stored_file *file,
                                 const char *bytes, size_t size, gpuserve_error *error)
{
    gpuserve_status st = gsv_store_new_id(file->id, "file-", error);
    int fd;

    if (st == GPUSERVE_OK) {
        pthread_mutex_lock(&store->lock);
        st = gsv_store_check_files(store, error);
        pthread_mutex_unlock(&store->lock);
    }
    if (st == GPUSERVE_OK)
        st = gsv_store_reserve(store, size, error);
    if (st != GPUSERVE_OK)
        return st;
    file->n_bytes = size;
    st = gsv_store_open_data(store, file->id, O_WRONLY | O_CREAT | O_EXCL, &fd, error);
    if (st == GPUSERVE_OK) {
        st = gsv_fd_write(fd, bytes, size, 0, file->id, error);
        st = gsv_finish_file(fd, st, store->path, file->id, error);
    }
    if (st == GPUSERVE_OK)
        st = gsv_store_describe(store, file, error);
    if (st != GPUSERVE_OK) { /* the description exists if only its flush has failed */
        gsv_store_remove_json(store, file->id);
        unlinkat(store->dir, file->id, 0);
        gsv_store_release(store, size);
    }
    return st;
}

const struct gsv_stored_file *gsv_store_file(const struct gsv_store *store, const char *id,
                                             const char *owner)
{
    const size_t i = index_of(store, id, owner);

    return i != SIZE_MAX && !gsv_store_has_expired(&store->files[i], (int64_t)time(NULL))
               ? &store->files[i]
               : NULL;
}

bool gsv_store_find(struct gsv_store *store, const char *id, const char *owner,
                    struct gsv_stored_file *file)
{
    const struct gsv_stored_file *found;

    pthread_mutex_lock(&store->lock);
    found = gsv_store_file(store, id, owner);
    if (found)
        *file = *found;
    pthread_mutex_unlock(&store->lock);
    return found != NULL;
}

/* Called with the lock held. The description goes first: data without one is removed at the next
 * start. */
static void delete_at(struct gsv_store *store, size_t i)
{
    gsv_store_remove_json(store, store->files[i].id);
    gsv_store_remove_data(store, store->files[i].id);
    store->n_files--;
    memmove(store->files + i, store->files + i + 1, (store->n_files - i) * sizeof(*store->files));
}

void gsv_store_delete(struct gsv_store *store, const struct gsv_stored_file *file)
{
    delete_at(store, (size_t)(file - store->files));
}

void gsv_store_expire(struct gsv_store *store, int64_t now,
                      bool (*is_used)(void *user, const char *id), void *user)
{
    pthread_mutex_lock(&store->lock);
    for (size_t i = store->n_files; i-- > 0;) {
        if (gsv_store_has_expired(&store->files[i], now) && !is_used(user, store->files[i].id))
            delete_at(store, i);
    }
    pthread_mutex_unlock(&store->lock);
}

void gsv_store_remove_orphans(struct gsv_store *store, bool (*is_used)(void *user, const char *id),
                              void *user)
{
    const int copy = openat(store->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;

    if (!entries && copy >= 0)
        close(copy);
    while (entries && (entry = readdir(entries))) {
        if (is_own(entry->d_name, "file-", "") &&
            index_of(store, entry->d_name, NULL) == SIZE_MAX && !is_used(user, entry->d_name))
            gsv_store_remove_data(store, entry->d_name);
    }
    if (entries)
        closedir(entries);
}

/* ----------------------------------------------------------------------------------------- open */

/* Sorts by time of creation, then by id: the order of the list. */
static int compare(const void *a, const void *b)
{
    const struct gsv_stored_file *one = a, *other = b;

    if (one->created != other->created)
        return one->created < other->created ? -1 : 1;
    return strcmp(one->id, other->id);
}

/* Counts the data files, and removes temporary files. */
static gpuserve_status count(struct gsv_store *store, gpuserve_error *error)
{
    const int copy = openat(store->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;
    struct stat st;

    if (!entries) {
        if (copy >= 0)
            close(copy);
        return fail_io(store, ".", error);
    }
    while ((entry = readdir(entries))) {
        if (is_own(entry->d_name, "file-", ".tmp") || is_own(entry->d_name, "batch_", ".tmp"))
            unlinkat(store->dir, entry->d_name, 0);
        else if (is_own(entry->d_name, "file-", "") &&
                 fstatat(store->dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            atomic_fetch_add(&store->n_bytes, (uint64_t)st.st_size);
    }
    closedir(entries);
    return GPUSERVE_OK;
}

static gpuserve_status open_directory(struct gsv_store *store, gpuserve_error *error)
{
    if (mkdir(store->path, 0700) != 0 && errno != EEXIST && errno != EACCES)
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s (--batch-dir)", store->path, strerror(errno));
    store->dir = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->dir < 0)
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s (--batch-dir)", store->path, strerror(errno));
    store->lock_file = openat(store->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (store->lock_file < 0)
        return fail_io(store, "lock", error);
    if (flock(store->lock_file, LOCK_EX | LOCK_NB) != 0)
        return gsv_fail(error, GPUSERVE_E_IO, "%s is in use by another server (--batch-dir)",
                        store->path);
    return GPUSERVE_OK;
}

gpuserve_status gsv_store_open(struct gsv_store *store, const char *path, uint64_t max_bytes,
                               gpuserve_error *error)
{
    gpuserve_status st;

    *store = (struct gsv_store){ .dir = -1, .lock_file = -1, .max_bytes = max_bytes };
    pthread_mutex_init(&store->lock, NULL);
    store->path = gsv_copy_text(path, strlen(path));
    if (!store->path)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a path");
    st = open_directory(store, error);
    if (st == GPUSERVE_OK)
        st = count(store, error);
    if (st == GPUSERVE_OK)
        st = gsv_store_each_json(store, "file-", read_description, store, error);
    if (st == GPUSERVE_OK && store->n_files > 0)
        qsort(store->files, store->n_files, sizeof(*store->files), compare);
    return st;
}

void gsv_store_close(struct gsv_store *store)
{
    if (store->lock_file >= 0)
        close(store->lock_file);
    if (store->dir >= 0)
        close(store->dir);
    free(store->files);
    free(store->path);
    pthread_mutex_destroy(&store->lock);
}
