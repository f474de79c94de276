/*
 * test_convert_nomem.c - a conversion in which one allocation fails: out of memory is reported,
 * nothing remains on the disk or in memory.
 */
#define _GNU_SOURCE
#include "tests/base/failing_malloc.h"
#include "tests/runtime/folder.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP 17 /* coprime to the loops' lengths, so that every kind of allocation fails */

static char parent[] = "/tmp/gsv-convert-XXXXXX", output[64];

static void remove_output(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", output);
    cr_assert_eq(system(command), 0);
}

static bool is_empty(void)
{
    DIR *stream = opendir(parent);
    size_t n = 0;

    while (readdir(stream))
        n++;
    closedir(stream);
    return n == 2; /* "." and ".." */
}

/* The report of a finished conversion is a whole object. */
static void check_report(long n)
{
    char path[128], text[4096];
    size_t size;
    FILE *file;

    snprintf(path, sizeof(path), "%s/gpuserve-convert.json", output);
    file = fopen(path, "rb");
    cr_assert(file, "allocation %ld: no report", n);
    size = fread(text, 1, sizeof(text), file);
    fclose(file);
    cr_assert(size > 3 && memcmp(text + size - 3, "\n}\n", 3) == 0,
              "allocation %ld: a report of %zu bytes", n, size);
}

/* Convert with the n-th allocation failing; true if all allocations succeeded. */
static bool convert_with(gpuserve_context *context, const struct folder *folder, long n)
{
    gpuserve_convert_options options = GPUSERVE_CONVERT_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;
    bool fired;

    options.dtype = GPUSERVE_DTYPE_INT8;
    options.max_file_bytes = 20000;
    failing_malloc_arm(n, false);
    st = gpuserve_convert(context, folder->path, output, &options, NULL, &error);
    fired = failing_malloc_fired();
    failing_malloc_arm(0, false);
    if (st == GPUSERVE_OK) { /* some allocations are optional */
        check_report(n);
        remove_output();
    } else {
        cr_assert(fired && st == GPUSERVE_E_NOMEM, "allocation %ld: %d: %s", n, st, error.message);
    }
    cr_assert(is_empty(), "allocation %ld: files remain", n);
    return !fired;
}

Test(runtime_convert_nomem, a_failed_allocation_leaves_nothing)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    struct folder folder;
    long n, before = 0;

    folder_make(&folder, "bert");
    cr_assert(mkdtemp(parent));
    snprintf(output, sizeof(output), "%s/out", parent);
    options.n_threads = 1;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    for (n = 1; !convert_with(context, &folder, n); n += STEP)
        if (n == 1 + STEP)
            before = failing_malloc_live_blocks();
    cr_expect_gt(n, 1000);
    cr_expect_leq(failing_malloc_live_blocks(), before + 8, "%ld blocks leaked over %ld calls",
                  failing_malloc_live_blocks() - before, n / STEP);
    gpuserve_context_unref(&context);
    rmdir(parent);
    folder_remove(&folder);
}
