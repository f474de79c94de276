/*
 * kernel_cache.cu - on-disk cache of machine code compiled by NVRTC.
 *
 * A file holds a header, the key text and the code. Its name is the FNV-1a hash of the key; the
 * stored key resolves collisions, and a checksum detects damage. Reading a file updates its mtime,
 * which orders the LRU eviction. Files are replaced by rename, so several processes may share the
 * folder. The functions keep no state.
 */
#include "kernels/cuda/runtime/kernel_cache.cuh"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

const char MAGIC[8] = { 'G', 'S', 'V', 'C', 'O', 'D', 'E', '1' };
const char VERSION_FILE[] = "nvrtc-version";
const size_t MAX_FILE_BYTES = static_cast<size_t>(16) << 20;
const uint64_t MAX_BYTES = 64 << 20;
const int MAX_FILES = 256;

struct kernel_cache_header {
    char magic[8];
    uint64_t key_size;
    uint64_t code_size;
    uint64_t sum; /* of key and code */
};

/* FNV-1a hash. */
uint64_t add_to_sum(uint64_t sum, const void *data, size_t size)
{
    const unsigned char *const bytes = static_cast<const unsigned char *>(data);

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ bytes[i]) * 0x100000001b3u;
    return sum;
}

const uint64_t SUM_OF_NOTHING = 0xcbf29ce484222325u;

/* The key as text: everything that the code depends on. NULL when out of memory. */
char *write_key(const struct gsv_code_key *key)
{
    size_t size = strlen(key->source) + 64;
    char *text;
    int at;

    for (int i = 0; i < key->n_options; i++)
        size += strlen(key->options[i]) + 1;
    text = static_cast<char *>(malloc(size));
    if (!text)
        return NULL;
    at = snprintf(text, size, "sm_%d nvrtc %d", key->capability, key->version);
    for (int i = 0; i < key->n_options; i++)
        at += snprintf(text + at, size - at, " %s", key->options[i]);
    snprintf(text + at, size - at, "\n%s", key->source);
    return text;
}

bool write_path(const struct gsv_code_cache *cache, const char *name, char *path)
{
    return *cache->folder && snprintf(path, PATH_MAX, "%s/%s", cache->folder, name) < PATH_MAX;
}

bool write_code_path(const struct gsv_code_cache *cache, const char *key, char *path)
{
    char name[40];

    snprintf(name, sizeof(name), "%016llx.code",
             static_cast<unsigned long long>(add_to_sum(SUM_OF_NOTHING, key, strlen(key))));
    return write_path(cache, name, path);
}

/* True if owned by this user and not writable by group or others. */
bool is_safe(const struct stat *s)
{
    return s->st_uid == geteuid() && (s->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Creates the folder and its parents; false unless the folder is safe. */
bool make_folder(const char *folder)
{
    char path[PATH_MAX];
    struct stat s;

    snprintf(path, sizeof(path), "%s", folder);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return false;
    return lstat(path, &s) == 0 && S_ISDIR(s.st_mode) && is_safe(&s);
}

/* Reads a regular, safe file. Owned bytes with a terminating zero; NULL on failure. */
char *read_file(const char *path, size_t *size)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat s;
    char *bytes = NULL;
    ssize_t n;

    if (file < 0)
        return NULL;
    if (fstat(file, &s) == 0 && S_ISREG(s.st_mode) && is_safe(&s) &&
        static_cast<uint64_t>(s.st_size) <= MAX_FILE_BYTES)
        bytes = static_cast<char *>(malloc(static_cast<size_t>(s.st_size) + 1));
    for (*size = 0; bytes && *size < static_cast<size_t>(s.st_size); *size += n) {
        n = read(file, bytes + *size, static_cast<size_t>(s.st_size) - *size);
        if (n <= 0) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (bytes) {
        bytes[*size] = '\0';
        futimens(file, NULL); /* updates the time of last use for LRU */
    }
    close(file);
    return bytes;
}

struct kernel_cache_part {
    const void *data;
    size_t size;
};

bool write_parts(int file, const struct kernel_cache_part *parts, int n_parts)
{
    for (int i = 0; i < n_parts; i++) {
        for (size_t at = 0; at < parts[i].size;) {
            const ssize_t n =
                write(file, static_cast<const char *>(parts[i].data) + at, parts[i].size - at);

            if (n <= 0)
                return false;
            at += static_cast<size_t>(n);
        }
    }
    return true;
}

/* Atomic replacement by rename: other processes see either the old or the new file, complete. */
bool replace_file(const struct gsv_code_cache *cache, const char *path,
                  const struct kernel_cache_part *parts, int n_parts)
{
    char temporary[PATH_MAX];
    int file;
    bool ok;

    if (!make_folder(cache->folder) || !write_path(cache, ".new-XXXXXX", temporary))
        return false;
    file = mkostemp(temporary, O_CLOEXEC);
    if (file < 0)
        return false;
    ok = write_parts(file, parts, n_parts);
    ok = close(file) == 0 && ok && rename(temporary, path) == 0;
    if (!ok)
        unlink(temporary);
    return ok;
}

/* Counts the files and bytes of the cache and finds the least recently used file (`path`). */
int survey(const struct gsv_code_cache *cache, uint64_t *bytes, char *path)
{
    DIR *const folder = opendir(cache->folder);
    struct timespec oldest = {};
    int n = 0;

    *bytes = 0;
    while (struct dirent *const entry = folder ? readdir(folder) : NULL) {
        char name[PATH_MAX];
        struct stat s;

        if (!strstr(entry->d_name, ".code") && strncmp(entry->d_name, ".new-", 5) != 0)
            continue;
        if (!write_path(cache, entry->d_name, name) || lstat(name, &s) != 0)
            continue;
        *bytes += static_cast<uint64_t>(s.st_size);
        if (n++ == 0 || s.st_mtim.tv_sec < oldest.tv_sec ||
            (s.st_mtim.tv_sec == oldest.tv_sec && s.st_mtim.tv_nsec < oldest.tv_nsec)) {
            oldest = s.st_mtim;
            memcpy(path, name, sizeof(name));
        }
    }
    if (folder)
        closedir(folder);
    return n;
}

void keep_bounded(const struct gsv_code_cache *cache)
{
    char oldest[PATH_MAX];
    uint64_t bytes;

    while (survey(cache, &bytes, oldest) > MAX_FILES || bytes > MAX_BYTES) {
        if (unlink(oldest) != 0 && errno != ENOENT)
            return;
    }
}

/* Returns a copy of the code if the header, key and checksum match, else NULL. */
void *take_code(const char *bytes, size_t size, const char *key, size_t *code_size)
{
    const size_t key_size = strlen(key);
    struct kernel_cache_header h;
    void *code;

    if (size < sizeof(h))
        return NULL;
    memcpy(&h, bytes, sizeof(h));
    if (memcmp(h.magic, MAGIC, sizeof(MAGIC)) != 0 || h.key_size != key_size ||
        key_size > size - sizeof(h) || h.code_size != size - sizeof(h) - key_size ||
        h.code_size == 0 || memcmp(bytes + sizeof(h), key, key_size) != 0 ||
        h.sum != add_to_sum(SUM_OF_NOTHING, bytes + sizeof(h), size - sizeof(h)))
        return NULL;
    code = malloc(h.code_size);
    if (code)
        memcpy(code, bytes + sizeof(h) + key_size, h.code_size);
    *code_size = h.code_size;
    return code;
}

} /* namespace */

void gsv_code_cache_open(struct gsv_code_cache *cache)
{
    const char *const wanted = secure_getenv("GPUSERVE_KERNEL_CACHE");
    const char *const caches = secure_getenv("XDG_CACHE_HOME");
    const char *const home = secure_getenv("HOME");
    int length = 0;

    cache->folder[0] = '\0';
    if (wanted)
        length = snprintf(cache->folder, PATH_MAX, "%s", *wanted == '/' ? wanted : "");
#ifndef GSV_CUDA_EMU /* code for the emulator cannot be shared */
    else if (caches && *caches == '/')
        length = snprintf(cache->folder, PATH_MAX, "%s/gpuserve/kernels", caches);
    else if (home && *home == '/')
        length = snprintf(cache->folder, PATH_MAX, "%s/.cache/gpuserve/kernels", home);
#endif
    (void)caches, (void)home;
    if (length >= PATH_MAX)
        cache->folder[0] = '\0';
}

void *gsv_code_cache_read(const struct gsv_code_cache *cache, const struct gsv_code_key *key,
                          size_t *code_size)
{
    char path[PATH_MAX];
    char *const text = *cache->folder ? write_key(key) : NULL;
    size_t size = 0;
    char *const bytes = text && write_code_path(cache, text, path) ? read_file(path, &size) : NULL;
    void *const code = bytes ? take_code(bytes, size, text, code_size) : NULL;

    free(bytes);
    free(text);
    return code;
}

void gsv_code_cache_write(const struct gsv_code_cache *cache, const struct gsv_code_key *key,
                          const void *code, size_t size)
{
    char path[PATH_MAX];
    char *const text = *cache->folder ? write_key(key) : NULL;
    struct kernel_cache_header h = {};

    if (text && write_code_path(cache, text, path)) {
        const struct kernel_cache_part parts[] = { { &h, sizeof(h) },
                                                   { text, strlen(text) },
                                                   { code, size } };

        memcpy(h.magic, MAGIC, sizeof(MAGIC));
        h.key_size = strlen(text);
        h.code_size = size;
        h.sum = add_to_sum(add_to_sum(SUM_OF_NOTHING, text, strlen(text)), code, size);
        if (sizeof(h) + h.key_size + size <= MAX_FILE_BYTES && replace_file(cache, path, parts, 3))
            keep_bounded(cache);
    }
    free(text);
}

void gsv_code_cache_forget(const struct gsv_code_cache *cache, const struct gsv_code_key *key)
{
    char path[PATH_MAX];
    char *const text = *cache->folder ? write_key(key) : NULL;

    if (text && write_code_path(cache, text, path))
        unlink(path);
    free(text);
}

/* Describes the library file as it is now: a replaced library differs in size or mtime. */
static bool describe(const char *library, int version, char *text, size_t size)
{
    struct stat s;

    return stat(library, &s) == 0 &&
           snprintf(text, size, "%d %lld %lld.%09ld %s", version, static_cast<long long>(s.st_size),
                    static_cast<long long>(s.st_mtim.tv_sec), s.st_mtim.tv_nsec,
                    library) < static_cast<int>(size);
}

int gsv_code_cache_known_version(const struct gsv_code_cache *cache)
{
    char path[PATH_MAX];
    char now[PATH_MAX + 128];
    size_t size;
    char *const then = write_path(cache, VERSION_FILE, path) ? read_file(path, &size) : NULL;
    const char *library = then ? strchr(then, '/') : NULL;
    const int version = then ? atoi(then) : 0;
    const bool same =
        library && describe(library, version, now, sizeof(now)) && strcmp(now, then) == 0;

    free(then);
    return same ? version : 0;
}

void gsv_code_cache_know_version(const struct gsv_code_cache *cache, const char *library,
                                 int version)
{
    char path[PATH_MAX];
    char text[PATH_MAX + 128];

    if (!write_path(cache, VERSION_FILE, path) || !describe(library, version, text, sizeof(text)))
        return;
    const struct kernel_cache_part part = { text, strlen(text) };
    (void)replace_file(cache, path, &part, 1);
}
