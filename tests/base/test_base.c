/*
 * test_base.c - lib/base: UTF-8, bounded JSON, containment of a directory, errors.
 */
#define _GNU_SOURCE
#include "lib/base/alloc.h"
#include "lib/base/dir.h"
#include "lib/base/error.h"
#include "lib/base/host/host.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

Test(utf8, valid_length_stops_at_the_first_bad_byte)
{
    static const struct {
        const char *bytes;
        size_t size, valid;
    } cases[] = {
        { "", 0, 0 },
        { "plain ascii text", 16, 16 },
        { "\xC3\xA9t\xC3\xA9", 5, 5 },
        { "abc\xFF", 4, 3 },
        { "\xC0\x80", 2, 0 },          /* overlong NUL */
        { "\xED\xA0\x80", 3, 0 },      /* surrogate */
        { "\xF4\x90\x80\x80", 4, 0 },  /* above U+10FFFF */
        { "12345678\xE2\x82", 10, 8 }, /* truncated */
        { "\xF0\x9F\x98\x80", 4, 4 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_expect_eq(gsv_utf8_valid_length(cases[i].bytes, cases[i].size), cases[i].valid,
                     "case %zu", i);
}

Test(utf8, every_code_point_survives_the_round_trip)
{
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char bytes[4];
        size_t length, decoded;

        if (c >= 0xD800 && c <= 0xDFFF)
            continue;
        length = gsv_utf8_encode(c, bytes);
        cr_assert_eq(gsv_utf8_valid_length(bytes, length), length, "U+%04X", c);
        cr_assert_eq(gsv_utf8_decode(bytes, &decoded), c);
        cr_assert_eq(decoded, length);
    }
}

Test(json, limits_and_duplicates_are_refused_before_or_while_parsing)
{
    static const struct {
        const char *text;
        gpuserve_status status;
    } cases[] = {
        { "{\"a\": [1, 2]}", GPUSERVE_OK },
        { "[[[[[1]]]]]", GPUSERVE_E_TOO_LARGE },
        { "[1,2,3,4,5,6,7,8,9,10,11,12]", GPUSERVE_E_TOO_LARGE },
        { "{\"a\": 1, \"a\": 2}", GPUSERVE_E_FORMAT },
        { "{\"a\": ", GPUSERVE_E_FORMAT },
        { "\"[[[[[[[,,,,,,,,,,,,,\"", GPUSERVE_OK }, /* brackets inside a string do not count */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_json_value *json = NULL;

        cr_expect_eq(gsv_json_read(&json, cases[i].text, strlen(cases[i].text), "case",
                                   (struct gsv_json_limits){ 10, 4 }, &error),
                     cases[i].status, "case %zu: %s", i, error.message);
        gsv_json_free(&json);
    }
}

Test(json, a_number_beyond_64_bits_is_a_real_and_the_others_stay_whole)
{
    static const char text[] =
        "{\"limit\": 1000000000000000019884624838656, \"n\": 512, \"x\": 0.5}";
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_json_value *json = NULL;
    int64_t n = 0, limit = 7;
    double real = 0;

    cr_assert_eq(
        gsv_json_read(&json, text, strlen(text), "case", (struct gsv_json_limits){ 10, 4 }, &error),
        GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(gsv_json_int(json, "n", "case", 0, 1000, &n, &error), GPUSERVE_OK);
    cr_expect_eq(n, 512);
    cr_expect_eq(gsv_json_int(json, "x", "case", 0, 1000, &n, &error), GPUSERVE_E_FORMAT);
    cr_expect_eq(gsv_json_int(json, "limit", "case", 0, 1000, &limit, &error), GPUSERVE_E_FORMAT);
    cr_expect_eq(limit, 7);
    cr_expect_eq(gsv_json_double(json, "limit", "case", 0, 1e300, &real, &error), GPUSERVE_OK);
    cr_expect_gt(real, 9e29);
    gsv_json_free(&json);
}

Test(dir, names_and_links_cannot_leave_the_directory)
{
    char path[] = "/tmp/gsv-dir-XXXXXX";
    char file[128], link[128];
    struct gsv_dir *dir = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char *bytes;
    size_t size;
    FILE *f;

    cr_assert(mkdtemp(path));
    snprintf(file, sizeof(file), "%s/inside", path);
    f = fopen(file, "w");
    cr_assert(f);
    fputs("hello", f);
    fclose(f);
    snprintf(link, sizeof(link), "%s/link", path);
    cr_assert_eq(symlink("/etc/passwd", link), 0);

    cr_assert_eq(gsv_dir_open(&dir, path, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(gsv_dir_read(dir, "inside", 100, &bytes, &size, &error), GPUSERVE_OK);
    cr_expect_str_eq(bytes, "hello");
    free(bytes);
    cr_expect_eq(gsv_dir_read(dir, "inside", 4, &bytes, &size, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(gsv_dir_read(dir, "../etc/passwd", 100, &bytes, &size, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gsv_dir_read(dir, "/etc/passwd", 100, &bytes, &size, &error), GPUSERVE_E_INVALID);
    cr_expect_eq(gsv_dir_read(dir, "link", 1 << 20, &bytes, &size, &error), GPUSERVE_E_INVALID);
    cr_expect_eq(gsv_dir_read(dir, "absent", 100, &bytes, &size, &error), GPUSERVE_E_NOT_FOUND);
    gsv_dir_close(&dir);
    cr_expect_null(dir);
    unlink(link);
    unlink(file);
    rmdir(path);
}

struct renames {
    char path[64];
    atomic_bool is_over;
};

/* Renames a folder in a loop, as any program of the machine may. */
static void *rename_on_and_on(void *argument)
{
    struct renames *renames = argument;
    char from[80], to[80];

    snprintf(from, sizeof(from), "%s/a", renames->path);
    snprintf(to, sizeof(to), "%s/b", renames->path);
    cr_assert_eq(mkdir(from, 0700), 0);
    while (!atomic_load(&renames->is_over)) {
        cr_assert_eq(rename(from, to), 0);
        cr_assert_eq(rename(to, from), 0);
    }
    rmdir(from);
    return NULL;
}

/* The layout of the Hugging Face cache. */
Test(dir, a_link_of_the_cache_opens_while_other_programs_rename)
{
    static const char *const folders[] = { "", "/models--a--b", "/models--a--b/snapshots",
                                           "/models--a--b/blobs", "/models--a--b/snapshots/1" };
    char path[] = "/tmp/gsv-dir-XXXXXX", name[128];
    const size_t n = sizeof(folders) / sizeof(folders[0]);
    struct renames renames = { 0 };
    struct gsv_dir *dir = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    pthread_t thread;
    FILE *f;

    cr_assert(mkdtemp(path));
    for (size_t i = 1; i < n; i++) {
        snprintf(name, sizeof(name), "%s%s", path, folders[i]);
        cr_assert_eq(mkdir(name, 0700), 0);
    }
    cr_assert_eq(gsv_dir_open(&dir, name, &error), GPUSERVE_OK, "%s", error.message);
    snprintf(name, sizeof(name), "%s/models--a--b/blobs/file", path);
    f = fopen(name, "w");
    cr_assert(f);
    fclose(f);
    snprintf(name, sizeof(name), "%s/models--a--b/snapshots/1/link", path);
    cr_assert_eq(symlink("../../blobs/file", name), 0);
    strcpy(renames.path, path);
    cr_assert_eq(pthread_create(&thread, NULL, rename_on_and_on, &renames), 0);
    for (int i = 0; i < 20000; i++) {
        uint64_t size_bytes;
        int fd;

        cr_assert_eq(gsv_dir_open_file(dir, "link", &fd, &size_bytes, &error), GPUSERVE_OK,
                     "%s, time %d", error.message, i);
        close(fd);
    }
    atomic_store(&renames.is_over, true);
    pthread_join(thread, NULL);
    gsv_dir_close(&dir);
    unlink(name);
    snprintf(name, sizeof(name), "%s/models--a--b/blobs/file", path);
    unlink(name);
    for (size_t i = n; i-- > 0;) {
        snprintf(name, sizeof(name), "%s%s", path, folders[i]);
        cr_expect_eq(rmdir(name), 0);
    }
}

/* Absent is only what is not there: what cannot be opened has its own message. */
Test(dir, a_file_that_cannot_be_opened_is_there)
{
    char path[] = "/tmp/gsv-dir-XXXXXX", name[64];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct rlimit limit;
    struct gsv_dir *dir = NULL;
    uint64_t size_bytes;
    bool is_there;
    FILE *f;
    int fd;

    cr_assert(mkdtemp(path));
    snprintf(name, sizeof(name), "%s/file", path);
    f = fopen(name, "w");
    cr_assert(f);
    fclose(f);
    cr_assert_eq(gsv_dir_open(&dir, path, &error), GPUSERVE_OK);
    cr_expect_not(gsv_dir_has(dir, "."));
    cr_expect_not(gsv_dir_has(dir, "absent"));
    cr_expect_not(gsv_dir_has(dir, "file/below"));
    cr_expect(gsv_dir_has(dir, "file"));
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, limit.rlim_max }), 0);
    is_there = gsv_dir_has(dir, "file");
    cr_expect_eq(gsv_dir_open_file(dir, "file", &fd, &size_bytes, &error), GPUSERVE_E_IO);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect(is_there);
    cr_expect(strstr(error.message, "Too many open files"), "%s", error.message);
    gsv_dir_close(&dir);
    unlink(name);
    rmdir(path);
}

Test(error, nothing_is_written_past_a_shorter_struct)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    error.struct_size = 8;
    memset(error.message, 'x', sizeof(error.message));
    cr_expect_eq(gsv_fail(&error, GPUSERVE_E_IO, "message"), GPUSERVE_E_IO);
    cr_expect_eq(error.message[0], 'x');
    cr_expect_eq(gsv_fail(NULL, GPUSERVE_E_IO, "message"), GPUSERVE_E_IO);
}

/* types.h: message and hint are always NUL-terminated UTF-8, truncated if too long. */
Test(error, texts_are_utf8_whatever_they_quote)
{
    char full[GPUSERVE_ERROR_TEXT_BYTES + 8];
    const struct {
        const char *quoted, *is;
    } cases[] = {
        { "a\xFF\xFE"
          "b",
          "a??b" },
        { "\xC3\xA4 and \xC3", "\xC3\xA4 and ?" },
        { "\xED\xA0\x80", "???" }, /* a surrogate */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        gsv_fail(&error, GPUSERVE_E_IO, "%s", cases[i].quoted);
        gsv_hint(&error, GPUSERVE_E_IO, "%s", cases[i].quoted);
        cr_expect_str_eq(error.message, cases[i].is);
        cr_expect_str_eq(error.hint, cases[i].is);
        gsv_fail_in(&error, GPUSERVE_E_IO, "%s", cases[i].quoted);
        cr_expect_eq(gsv_utf8_valid_length(error.message, strlen(error.message)),
                     strlen(error.message));
    }
    for (size_t shift = 0; shift < 4; shift++) { /* truncates at each byte of a character */
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        const size_t most = GPUSERVE_ERROR_TEXT_BYTES - 1;

        memset(full, 'x', sizeof(full));
        memcpy(full + most - shift, "\xF0\x9F\x98\x80", 5);
        gsv_fail(&error, GPUSERVE_E_IO, "%s", full);
        cr_expect_eq(strlen(error.message), most - shift, "shift %zu", shift);
    }
}

Test(host, obeys_the_affinity_mask)
{
    const int32_t before = gsv_host_cpus();
    cpu_set_t all, one;

    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    cr_expect_leq(before, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &all))
            continue;
        CPU_SET(i, &one);
        break;
    }
    cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    cr_expect_eq(gsv_host_cpus(), 1);
}

Test(host, free_memory_is_part_of_all_memory)
{
    char name[8];

    cr_expect_gt(gsv_host_memory_bytes(), 16u << 20);
    cr_expect_leq(gsv_host_memory_free_bytes(), gsv_host_memory_bytes());
    memset(name, 'x', sizeof(name));
    gsv_host_cpu_name(name, sizeof(name));
    cr_expect_lt(strlen(name), sizeof(name));
    cr_expect_gt(strlen(name), 0);
}
