/*
 * test_weights_cache.c - packed weights on disk: equal bits with and without them, no reading and
 * no calibration with them, and loads that succeed whatever is in the folder.
 */
#define _GNU_SOURCE
#include "lib/runtime/core/process.h"
#include "tests/base/sanitized.h"
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The small one has every part of the file, but no product that stays in float. */
#define MODEL (IS_SANITIZED ? "splade-tiny" : "all-MiniLM-L6-v2")
enum { DIM = IS_SANITIZED ? 128 : 384, LEAST_KIB = IS_SANITIZED ? 15000 : 80000 };

static const char *const texts[] = { "How do I reset the password of my account?", "yes",
                                     "? ? ? ?" };
enum { N_TEXTS = sizeof(texts) / sizeof(texts[0]) };

struct loads {
    char folder[64]; /* of the cache */
    char log[8192];  /* lines of the last load */
    uint64_t bytes_read;
    float vectors[N_TEXTS * DIM];
    char fingerprint[64];
    char info[65536];
};

static void note_log(void *user, int32_t level, const char *message)
{
    struct loads *loads = user;
    const size_t size = strlen(loads->log);

    snprintf(loads->log + size, sizeof(loads->log) - size, "%d %s\n", level, message);
}

static int32_t note_progress(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    struct loads *loads = user;

    if (stage == GPUSERVE_STAGE_WEIGHTS && done < total && done > loads->bytes_read)
        loads->bytes_read = done;
    return 0;
}

static void begin(struct loads *loads)
{
    memset(loads, 0, sizeof(*loads));
    strcpy(loads->folder, "/tmp/weights-cache-XXXXXX");
    cr_assert_not_null(mkdtemp(loads->folder));
    setenv("GPUSERVE_WEIGHTS_CACHE", loads->folder, 1);
}

/* Names of the cache's files; the last one in `path`, which may be NULL. */
static int list(const struct loads *loads, char *path)
{
    DIR *entries = opendir(loads->folder);
    const struct dirent *entry;
    int n = 0;

    cr_assert_not_null(entries);
    while ((entry = readdir(entries))) {
        if (entry->d_name[0] == '.')
            continue;
        n++;
        if (path)
            snprintf(path, PATH_MAX, "%s/%s", loads->folder, entry->d_name);
    }
    closedir(entries);
    return n;
}

static void end(struct loads *loads)
{
    each_file(loads->folder, NULL);
}

static gpuserve_model *open_model(struct loads *loads, const char *path,
                                  gpuserve_model_options options)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;

    loads->log[0] = '\0';
    loads->bytes_read = 0;
    context_options.n_threads = 2;
    context_options.log = note_log;
    context_options.log_user = loads;
    context_options.log_level = GPUSERVE_LOG_DEBUG;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, &error), GPUSERVE_OK);
    options.device = "cpu";
    options.progress = note_progress;
    options.progress_user = loads;
    cr_assert_eq(gpuserve_model_open(&model, context, path, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    gpuserve_context_unref(&context);
    return model;
}

/* Opens the model, notes what it computes, and closes it. */
static void load(struct loads *loads, gpuserve_model_options options)
{
    gpuserve_model *model = open_model(loads, real_model(MODEL), options);
    size_t size;

    cr_assert_eq(gpuserve_embed(model, texts, N_TEXTS, loads->vectors, N_TEXTS * DIM, NULL, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_info(model, loads->info, sizeof(loads->info), &size, NULL),
                 GPUSERVE_OK);
    snprintf(loads->fingerprint, sizeof(loads->fingerprint), "%s",
             gpuserve_model_fingerprint(model));
    gpuserve_model_close(&model);
}

static bool was_used(const struct loads *loads)
{
    return strstr(loads->log, "packed weights from ") != NULL;
}

static void expect_equal(const struct loads *loads, const struct loads *want, const char *what)
{
    cr_expect_eq(memcmp(loads->vectors, want->vectors, sizeof(want->vectors)), 0, "%s", what);
    cr_expect_str_eq(loads->fingerprint, want->fingerprint, "%s", what);
    cr_expect_str_eq(loads->info, want->info, "%s", what);
}

static gpuserve_model_options options_of(uint32_t dtype, uint32_t use_mmap)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.dtype = dtype;
    options.use_mmap = use_mmap;
    return options;
}

Test(weights_cache, a_second_load_has_the_same_bits_and_reads_no_weights)
{
    static const struct {
        uint32_t dtype, use_mmap;
    } cases[] = { { GPUSERVE_DTYPE_INT8, 0 },
                  { GPUSERVE_DTYPE_INT8, 1 },
                  { GPUSERVE_DTYPE_FLOAT32, 1 },
                  { GPUSERVE_DTYPE_BFLOAT16, 1 },
                  { GPUSERVE_DTYPE_FLOAT16, 1 } };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const gpuserve_model_options options = options_of(cases[i].dtype, cases[i].use_mmap);
        struct loads without, loads;

        begin(&without);
        setenv("GPUSERVE_WEIGHTS_CACHE", "off", 1);
        load(&without, options);
        cr_expect_eq(list(&without, NULL), 0);
        begin(&loads);
        for (int j = 0; j < 3; j++) {
            load(&loads, options);
            expect_equal(&loads, &without, "with the cache");
            cr_expect_eq(was_used(&loads), j > 0, "case %zu, load %d: %s", i, j, loads.log);
            cr_expect_eq(loads.bytes_read > 0, j == 0);
            cr_expect_eq(list(&loads, NULL), 1);
        }
        end(&loads);
        end(&without);
    }
}

static bool lacks_build_id;

size_t __real_gsv_build_id(unsigned char *bytes, size_t capacity);
size_t __wrap_gsv_build_id(unsigned char *bytes, size_t capacity);

size_t __wrap_gsv_build_id(unsigned char *bytes, size_t capacity)
{
    return lacks_build_id ? 0 : __real_gsv_build_id(bytes, capacity);
}

/* Without a build id, two builds with different packings would have the same cache key. */
Test(weights_cache, a_build_without_an_id_keeps_nothing)
{
    const gpuserve_model_options options = options_of(GPUSERVE_DTYPE_FLOAT16, 1);
    struct loads loads;

    begin(&loads);
    lacks_build_id = true;
    load(&loads, options);
    cr_expect_eq(list(&loads, NULL), 0);
    lacks_build_id = false;
    load(&loads, options);
    cr_expect_eq(list(&loads, NULL), 1);
    end(&loads);
}

Test(weights_cache, without_mmap_only_int8_is_kept)
{
    struct loads loads;

    begin(&loads);
    load(&loads, options_of(GPUSERVE_DTYPE_FLOAT32, 0));
    cr_expect_eq(list(&loads, NULL), 0);
    end(&loads);
}

static void set_bytes(const char *path, long at, int whence, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "r+b");

    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, at, whence), 0);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void damage(const char *path, int how)
{
    struct stat s;

    cr_assert_eq(stat(path, &s), 0);
    switch (how) {
    case 0: /* each part: head, tables, first and last byte of the image */
        set_bytes(path, 40, SEEK_SET, "\xA5\x5A", 2);
        break;
    case 1:
        set_bytes(path, 2000, SEEK_SET, "\xA5\x5A", 2);
        break;
    case 2:
        set_bytes(path, 65536 * 2 + 4096, SEEK_SET, "\xA5\x5A\xA5\x5A\x11", 5);
        break;
    case 3:
        set_bytes(path, -5, SEEK_END, "\xA5\x5A\xA5\x5A\x11", 5);
        break;
    case 4:
        cr_assert_eq(truncate(path, s.st_size - 1), 0);
        break;
    case 5:
        cr_assert_eq(truncate(path, s.st_size + 4096), 0);
        break;
    case 6:
        cr_assert_eq(truncate(path, 100), 0);
        break;
    case 7:
        cr_assert_eq(truncate(path, 0), 0);
        break;
    case 8:
        set_bytes(path, 0, SEEK_SET, "#!/bin/sh", 9);
        break;
    case 9: /* another user could have written it */
        cr_assert_eq(chmod(path, 0622), 0);
        break;
    default: /* a link */
        cr_assert_eq(unlink(path), 0);
        cr_assert_eq(symlink("/etc/passwd", path), 0);
        break;
    }
}

static int count_warnings(const char *log)
{
    int n = 0;

    for (const char *at = log; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        n += at[0] == '0' + GPUSERVE_LOG_WARNING;
    return n;
}

Test(weights_cache, a_damaged_file_is_ignored_with_one_warning_and_replaced)
{
    const gpuserve_model_options options = options_of(GPUSERVE_DTYPE_FLOAT16, 1);
    struct loads loads, want;
    char path[PATH_MAX];

    begin(&loads);
    load(&loads, options);
    want = loads;
    for (int how = 0; how <= 10; how++) {
        cr_assert_eq(list(&loads, path), 1);
        damage(path, how);
        load(&loads, options);
        expect_equal(&loads, &want, "damaged");
        cr_expect_not(was_used(&loads), "damage %d", how);
        cr_expect_eq(count_warnings(loads.log), 1, "damage %d: %s", how, loads.log);
        cr_expect_not_null(strstr(loads.log, "is ignored: "), "damage %d: %s", how, loads.log);
        load(&loads, options);
        expect_equal(&loads, &want, "replaced");
        cr_expect(was_used(&loads), "damage %d: %s", how, loads.log);
        cr_expect_eq(count_warnings(loads.log), 0);
    }
    end(&loads);
}

Test(weights_cache, a_folder_that_cannot_be_written_fails_no_load)
{
    static const char *const folders[] = { "/proc/nowhere/weights", "/dev/null", "relative", "" };
    const gpuserve_model_options options = options_of(GPUSERVE_DTYPE_FLOAT16, 1);
    const struct rlimit small = { 1 << 20, 1 << 20 };
    struct loads loads;

    begin(&loads);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        setenv("GPUSERVE_WEIGHTS_CACHE", folders[i], 1);
        load(&loads, options);
        cr_expect_not(was_used(&loads));
        cr_expect_eq(count_warnings(loads.log), 0, "%s: %s", folders[i], loads.log);
    }
    setenv("GPUSERVE_WEIGHTS_CACHE", loads.folder, 1);
    cr_assert_eq(chmod(loads.folder, 0777), 0); /* others may write */
    load(&loads, options);
    cr_expect_eq(list(&loads, NULL), 0);
    cr_assert_eq(chmod(loads.folder, 0700), 0);
    signal(SIGXFSZ, SIG_IGN); /* a full disk: files end at 1 MiB */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    load(&loads, options);
    cr_expect_not_null(strstr(loads.log, "are not kept: "), "%s", loads.log);
    cr_expect_eq(list(&loads, NULL), 0, "a temporary file is left");
    end(&loads);
}

static void make_file(const struct loads *loads, const char *format, int i)
{
    char path[PATH_MAX], name[64];

    snprintf(name, sizeof(name), format, i);
    snprintf(path, sizeof(path), "%s/%s", loads->folder, name);
    write_file(path, "mine", 4);
}

/* The folder is the user's: only files with names of packed weights are counted and removed. */
Test(weights_cache, files_of_other_names_stay)
{
    enum { N = 40, MAX_FILES = 64, OWN = 70 };
    struct loads loads;
    char path[PATH_MAX];

    begin(&loads);
    for (int i = 0; i < N; i++) {
        make_file(&loads, "photos-%d.packed.zip", i);
        make_file(&loads, "%020x.packed", i);
    }
    snprintf(path, sizeof(path), "%s/0123456789abcdef.packed", loads.folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    load(&loads, options_of(GPUSERVE_DTYPE_FLOAT16, 1));
    cr_expect_eq(list(&loads, NULL), 2 * N + 2);
    for (int i = 0; i < OWN / 2; i++) {
        make_file(&loads, "%016x.packed", i);
        make_file(&loads, "%016x.packed.AbCd12", i);
    }
    load(&loads, options_of(GPUSERVE_DTYPE_BFLOAT16, 1));
    cr_expect_eq(list(&loads, NULL), 2 * N + 1 + MAX_FILES);
    cr_expect_eq(rmdir(path), 0);
    end(&loads);
}

Test(weights_cache, other_options_and_processors_have_other_weights)
{
    gpuserve_model_options options = options_of(GPUSERVE_DTYPE_FLOAT16, 1);
    struct loads loads;

    begin(&loads);
    load(&loads, options);
    options.max_tokens = 64;
    load(&loads, options);
    cr_expect_not(was_used(&loads));
    options.max_tokens = 0;
    options.pooling = GPUSERVE_POOLING_CLS;
    load(&loads, options);
    cr_expect_not(was_used(&loads));
    options.pooling = 0;
    setenv("GPUSERVE_MAX_ISA", "generic", 1);
    load(&loads, options);
    cr_expect_not(was_used(&loads));
    cr_expect_eq(list(&loads, NULL), 4);
    unsetenv("GPUSERVE_MAX_ISA");
    load(&loads, options);
    cr_expect(was_used(&loads));
    end(&loads);
}

/* A model that has just been written may change again within the same tick of the clock. */
Test(weights_cache, a_model_that_has_just_changed_is_not_kept)
{
    const gpuserve_model_options options = options_of(GPUSERVE_DTYPE_FLOAT32, 1);
    struct folder folder;
    struct loads loads;
    gpuserve_model *model;

    begin(&loads);
    folder_make(&folder, "bert");
    model = open_model(&loads, folder.path, options);
    gpuserve_model_close(&model);
    cr_expect_eq(list(&loads, NULL), 0, "%s", loads.log);
    folder_remove(&folder);
    end(&loads);
}

/* --------------------------------------------------------------------------------- processes */

/* Sums a field of the mappings of the cache's files, in KiB. */
static long mapped_kib(const char *folder, const char *field)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[PATH_MAX + 256];
    bool inside = false;
    long sum = 0, kib;

    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (strchr(line, '-') && strspn(line, "0123456789abcdef") > 6)
            inside = strstr(line, folder) != NULL;
        else if (inside && strncmp(line, field, strlen(field)) == 0 &&
                 sscanf(line + strlen(field), ": %ld", &kib) == 1)
            sum += kib;
    }
    fclose(file);
    return sum;
}

struct shares {
    long size, shared, private_dirty, anonymous;
};

static void tell_shares(struct loads *loads, int to)
{
    const struct shares shares = { mapped_kib(loads->folder, "Size"),
                                   mapped_kib(loads->folder, "Shared_Clean"),
                                   mapped_kib(loads->folder, "Private_Dirty"),
                                   mapped_kib(loads->folder, "Anonymous") };

    cr_assert_eq(write(to, &shares, sizeof(shares)), (ssize_t)sizeof(shares));
}

/* A process that opens the model, says so, waits for a byte and counts its pages. */
static void run_child(struct loads *loads, int from, int to)
{
    gpuserve_model *model =
        open_model(loads, real_model(MODEL), options_of(GPUSERVE_DTYPE_FLOAT32, 1));
    char byte = '.';

    if (gpuserve_embed(model, texts, N_TEXTS, loads->vectors, N_TEXTS * DIM, NULL, NULL) !=
            GPUSERVE_OK ||
        write(to, &byte, 1) != 1 || read(from, &byte, 1) != 1)
        _exit(1);
    tell_shares(loads, to);
    if (read(from, &byte, 1) != 1)
        _exit(1);
    _exit(0);
}

Test(weights_cache, two_processes_share_the_pages_of_the_weights)
{
    enum { N = 2 };
    int down[N][2], up[N][2], status;
    struct shares shares;
    struct loads loads;
    pid_t children[N];
    char byte = '.';

    begin(&loads);
    load(&loads, options_of(GPUSERVE_DTYPE_FLOAT32, 1));
    for (int i = 0; i < N; i++) {
        cr_assert(pipe(down[i]) == 0 && pipe(up[i]) == 0);
        children[i] = fork();
        if (children[i] == 0)
            run_child(&loads, down[i][0], up[i][1]);
        cr_assert_eq(read(up[i][0], &byte, 1), 1);
    }
    for (int i = 0; i < N; i++) {
        cr_assert_eq(write(down[i][1], &byte, 1), 1);
        cr_assert_eq(read(up[i][0], &shares, sizeof(shares)), (ssize_t)sizeof(shares));
        cr_expect_geq(shares.size, LEAST_KIB, "16 or 90 MB of weights: %ld KiB", shares.size);
        cr_expect_geq(shares.shared, shares.size * 98 / 100, "%ld of %ld KiB are shared",
                      shares.shared, shares.size);
        cr_expect_eq(shares.private_dirty + shares.anonymous, 0);
    }
    for (int i = 0; i < N; i++) {
        cr_assert_eq(write(down[i][1], &byte, 1), 1);
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_expect_eq(status, 0);
    }
    end(&loads);
}

/* The file that a process has mapped may be replaced or removed. */
Test(weights_cache, a_mapped_file_may_be_replaced_and_removed)
{
    const gpuserve_model_options options = options_of(GPUSERVE_DTYPE_FLOAT16, 1);
    float after[N_TEXTS * DIM];
    struct loads loads;
    gpuserve_model *model;
    char path[PATH_MAX];

    begin(&loads);
    load(&loads, options);
    model = open_model(&loads, real_model(MODEL), options);
    cr_expect(was_used(&loads));
    cr_assert_eq(list(&loads, path), 1);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(gpuserve_embed(model, texts, N_TEXTS, after, N_TEXTS * DIM, NULL, NULL),
                 GPUSERVE_OK);
    cr_expect_eq(memcmp(after, loads.vectors, sizeof(after)), 0);
    cr_expect_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    cr_expect_eq(mapped_kib(loads.folder, "Size"), 0);
    cr_expect_eq(gpuserve_model_resume(model, NULL), GPUSERVE_OK);
    cr_expect_eq(list(&loads, NULL), 1);
    cr_assert_eq(gpuserve_embed(model, texts, N_TEXTS, after, N_TEXTS * DIM, NULL, NULL),
                 GPUSERVE_OK);
    cr_expect_eq(memcmp(after, loads.vectors, sizeof(after)), 0);
    gpuserve_model_close(&model);
    end(&loads);
}
