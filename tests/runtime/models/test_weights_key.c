/*
 * test_weights_key.c - each member of the key of packed weights on disk counts.
 *
 * Keys are computed for a planned model, which has read no weights. One thing changes at a time:
 * the linker replaces fstat() and the functions that identify the build. The open weight file is
 * not the file of that name in the folder, so that either is seen alone.
 */
#define _GNU_SOURCE
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "lib/runtime/core/process.h"
#include "lib/runtime/models/weights_cache.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct key {
    uint64_t name, key[2];
};

/* ------------------------------------------------------------------------------- replacements */

enum field { NONE, INODE, SIZE, MTIME, MTIME_NS, CTIME, CTIME_NS, FIXED_CTIME, N_FIELDS };

static const char *const field_names[N_FIELDS] = { "",         "inode", "size",     "mtime",
                                                   "mtime ns", "ctime", "ctime ns", "" };

static struct {
    ino_t inode; /* of the file whose `field` changes */
    enum field field;
    bool has_other_id, has_other_version, has_other_libc;
} change;

/* The names that a library built with 64-bit offsets calls, and one without. */
int __real_fstat(int fd, struct stat *s);
int __wrap_fstat(int fd, struct stat *s);
int __real_fstat64(int fd, struct stat *s);
int __wrap_fstat64(int fd, struct stat *s);
size_t __real_gsv_build_id(unsigned char *bytes, size_t capacity);
size_t __wrap_gsv_build_id(unsigned char *bytes, size_t capacity);
const char *__real_gpuserve_version(void);
const char *__wrap_gpuserve_version(void);
const char *__real_gnu_get_libc_version(void);
const char *__wrap_gnu_get_libc_version(void);

static int changed(int result, struct stat *s)
{
    if (result != 0 || s->st_ino != change.inode)
        return result;
    s->st_ino += change.field == INODE;
    s->st_size += change.field == SIZE;
    s->st_mtim.tv_sec -= change.field == MTIME;
    s->st_mtim.tv_nsec ^= change.field == MTIME_NS;
    s->st_ctim.tv_sec -= change.field == CTIME;
    s->st_ctim.tv_nsec ^= change.field == CTIME_NS;
    if (change.field == FIXED_CTIME)
        memset(&s->st_ctim, 0, sizeof(s->st_ctim));
    return result;
}

int __wrap_fstat(int fd, struct stat *s)
{
    return changed(__real_fstat(fd, s), s);
}

int __wrap_fstat64(int fd, struct stat *s)
{
    return changed(__real_fstat64(fd, s), s);
}

size_t __wrap_gsv_build_id(unsigned char *bytes, size_t capacity)
{
    const size_t size = __real_gsv_build_id(bytes, capacity);

    cr_assert_gt(size, 0);
    bytes[0] ^= change.has_other_id;
    return size;
}

const char *__wrap_gpuserve_version(void)
{
    return change.has_other_version ? "0.0.0" : __real_gpuserve_version();
}

const char *__wrap_gnu_get_libc_version(void)
{
    return change.has_other_libc ? "2.00" : __real_gnu_get_libc_version();
}

/* ------------------------------------------------------------------------------------- subject */

struct subject {
    struct folder folder;
    char cache[64];
    gpuserve_context *context;
    struct gsv_model *model;
    ino_t opened, listed, below; /* the weights, config.json, a file in a subfolder */
};

static void run_in(const char *folder, const char *command)
{
    char line[512];

    snprintf(line, sizeof(line), "cd '%s' && %s", folder, command);
    cr_assert_eq(system(line), 0, "%s", line);
}

static ino_t inode_of(const struct subject *subject, const char *name)
{
    char path[128];
    struct stat s;

    snprintf(path, sizeof(path), "%s/%s", subject->folder.path, name);
    cr_assert_eq(stat(path, &s), 0, "%s", path);
    return s.st_ino;
}

static struct gsv_model *plan(const struct subject *subject, const char *path, uint32_t pooling)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_model *model = NULL;

    options.device = "cpu";
    options.use_mmap = 1;
    options.pooling = pooling;
    cr_assert_eq(gsv_model_plan(&model, subject->context, "m", path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    return model;
}

static void begin(struct subject *subject)
{
    memset(subject, 0, sizeof(*subject));
    folder_make(&subject->folder, "bert");
    run_in(subject->folder.path, "mkdir below && echo a > below/file && echo b > notes-1");
    strcpy(subject->cache, "/tmp/weights-key-XXXXXX");
    cr_assert_not_null(mkdtemp(subject->cache));
    setenv("GPUSERVE_WEIGHTS_CACHE", subject->cache, 1);
    cr_assert_eq(gpuserve_context_create(&subject->context, NULL, NULL), GPUSERVE_OK);
    subject->opened = inode_of(subject, "model.safetensors");
    subject->model = plan(subject, subject->folder.path, 0);
    run_in(subject->folder.path,
           "cp model.safetensors new && mv new model.safetensors"); /* another inode */
    subject->listed = inode_of(subject, "config.json");
    subject->below = inode_of(subject, "below/file");
    cr_assert_neq(subject->opened, inode_of(subject, "model.safetensors"));
}

static void end(struct subject *subject)
{
    gsv_model_free(&subject->model);
    gpuserve_context_unref(&subject->context);
    each_file(subject->cache, NULL);
    folder_remove(&subject->folder);
}

static struct key key_of_model(const struct gsv_model *model)
{
    struct gsv_weights_cache cache;
    struct key key;

    gsv_weights_cache_begin(&cache, model);
    cr_assert(cache.is_on);
    key.name = strtoull(strrchr(cache.path, '/') + 1, NULL, 16);
    memcpy(key.key, cache.file.key, sizeof(key.key));
    return key;
}

static struct key key_of(const struct subject *subject)
{
    return key_of_model(subject->model);
}

static void expect_key(struct key a, struct key b, bool is_named, const char *member)
{
    cr_expect_neq(memcmp(a.key, b.key, sizeof(a.key)), 0, "%s is not in the key", member);
    cr_expect_eq(a.name != b.name, is_named, "%s in the file's name", member);
}

/* --------------------------------------------------------------------------------------- tests */

Test(weights_key, states_of_files)
{
    static const char *const files[] = { "an open weight file", "a file", "a file in a subfolder" };
    struct subject subject;
    struct key before;
    char member[64];

    begin(&subject);
    before = key_of(&subject);
    cr_expect_eq(key_of(&subject).key[0], before.key[0], "a key without changes");
    for (size_t i = 0; i < 3; i++) {
        for (enum field field = INODE; field <= CTIME_NS; field++) {
            change.inode = i == 0 ? subject.opened : i == 1 ? subject.listed : subject.below;
            change.field = field;
            snprintf(member, sizeof(member), "%s of %s", field_names[field], files[i]);
            expect_key(before, key_of(&subject), false, member);
        }
    }
    change.inode = inode_of(&subject, "notes-1");
    change.field = FIXED_CTIME; /* a rename changes it */
    before = key_of(&subject);
    run_in(subject.folder.path, "mv notes-1 notes-2");
    expect_key(before, key_of(&subject), false, "the name of a file");
    end(&subject);
}

/* Hard links: equal files below another path. */
Test(weights_key, path_and_settings)
{
    struct subject subject;
    struct gsv_plan *of;
    struct gsv_model *other;
    struct key before;
    char path[128];

    begin(&subject);
    snprintf(path, sizeof(path), "%s-linked", subject.folder.path);
    other = plan(&subject, subject.folder.path, 0);
    run_in(subject.folder.path, "cp -rl . \"$PWD-linked\"");
    before = key_of_model(other);
    gsv_model_free(&other);
    other = plan(&subject, path, 0);
    expect_key(before, key_of_model(other), true, "path");
    gsv_model_free(&other);
    run_in(path, "rm -r \"$PWD\"");
    other = plan(&subject, subject.folder.path, GPUSERVE_POOLING_CLS);
    before = key_of_model(other);
    gsv_model_free(&other);
    other = plan(&subject, subject.folder.path, GPUSERVE_POOLING_MAX);
    expect_key(before, key_of_model(other), true, "pooling");
    of = &other->plan;
    before = key_of_model(other);
    of->dtype = GPUSERVE_DTYPE_FLOAT16;
    expect_key(before, key_of_model(other), true, "dtype");
    of->dtype = GPUSERVE_DTYPE_FLOAT32;
    of->max_tokens--;
    expect_key(before, key_of_model(other), true, "max_tokens");
    of->max_tokens++;
    strcpy(of->device.facts.isa, "another");
    expect_key(before, key_of_model(other), true, "instruction set");
    gsv_model_free(&other);
    end(&subject);
}

Test(weights_key, build_and_c_library)
{
    struct subject subject;
    struct key before;

    begin(&subject);
    before = key_of(&subject);
    change.has_other_id = true;
    expect_key(before, key_of(&subject), false, "build id");
    change.has_other_id = false;
    change.has_other_version = true;
    expect_key(before, key_of(&subject), false, "version");
    change.has_other_version = false;
    change.has_other_libc = true;
    expect_key(before, key_of(&subject), false, "C library");
    end(&subject);
}
