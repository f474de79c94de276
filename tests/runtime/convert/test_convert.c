/*
 * test_convert.c - gpuserve_convert() from C: the report, invalid arguments, and what remains after
 * a failure. The numbers of the types are in tests/python/test_convert.py.
 */
#define _GNU_SOURCE
#include "tests/runtime/folder.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct folder folder;
static char parent[] = "/tmp/gsv-convert-XXXXXX", output[64];
static gpuserve_error error;

static void begin(void)
{
    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    folder_make(&folder, "bert");
    cr_assert(mkdtemp(parent));
    snprintf(output, sizeof(output), "%s/out", parent);
}

static size_t count_entries(void)
{
    DIR *stream = opendir(parent);
    const struct dirent *entry;
    size_t n = 0;

    while ((entry = readdir(stream)))
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(stream);
    return n;
}

static void end(void)
{
    char command[128];

    folder_remove(&folder);
    snprintf(command, sizeof(command), "rm -rf '%s'", parent);
    cr_assert_eq(system(command), 0);
}

static void expect(gpuserve_status got, gpuserve_status status, const char *says)
{
    cr_expect_eq(got, status, "status %d, expected %d (%s): %s", got, status, says, error.message);
    cr_expect(strstr(error.message, says), "'%s' is not in: %s", says, error.message);
    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
}

static gpuserve_convert_options to(uint32_t dtype)
{
    gpuserve_convert_options options = GPUSERVE_CONVERT_OPTIONS_INIT;

    options.dtype = dtype;
    return options;
}

Test(runtime_convert, the_report_has_the_accuracy_and_the_sizes, .init = begin, .fini = end)
{
    gpuserve_convert_options options = to(GPUSERVE_DTYPE_FLOAT16);
    gpuserve_convert_report report = GPUSERVE_CONVERT_REPORT_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;

    cr_assert_eq(gpuserve_context_create(&context, NULL, &error), GPUSERVE_OK);
    cr_assert_eq(gpuserve_convert(context, folder.path, output, &options, &report, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(report.dtype, GPUSERVE_DTYPE_FLOAT16);
    cr_expect_eq(report.task, GPUSERVE_TASK_EMBED);
    cr_expect_gt(report.n_probes, 100);
    cr_expect(report.cosine_min > 0.999 && report.cosine_min <= report.cosine_mean &&
              report.cosine_mean <= 1.0);
    cr_expect_eq(report.bytes_after * 2, report.bytes_before);
    cr_expect_gt(report.n_tensors, 30);
    cr_expect_eq(report.n_quantized, 0);
    cr_expect_gt(report.seconds, 0.0);
    cr_expect_eq(count_entries(), 1);
    cr_assert_eq(gpuserve_model_open(&model, context, output, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_eq(gpuserve_model_dim(model), FOLDER_HIDDEN);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(runtime_convert, invalid_arguments_are_named_and_write_nothing, .init = begin, .fini = end)
{
    gpuserve_convert_options options = to(GPUSERVE_DTYPE_TF32);
    gpuserve_convert_report report = { .struct_size = 4 };

    expect(gpuserve_convert(NULL, folder.path, output, &options, NULL, &error), GPUSERVE_E_INVALID,
           "dtype is tf32");
    expect(gpuserve_convert(NULL, folder.path, output, NULL, NULL, &error), GPUSERVE_E_INVALID,
           "dtype is default");
    options = to(GPUSERVE_DTYPE_FLOAT16);
    expect(gpuserve_convert(NULL, folder.path, output, &options, &report, &error),
           GPUSERVE_E_INVALID, "gpuserve_convert_report");
    expect(gpuserve_convert(NULL, NULL, output, &options, NULL, &error), GPUSERVE_E_INVALID,
           "NULL");
    expect(gpuserve_convert(NULL, folder.path, NULL, &options, NULL, &error), GPUSERVE_E_INVALID,
           "output directory is NULL");
    expect(gpuserve_convert(NULL, folder.path, folder.path, &options, NULL, &error),
           GPUSERVE_E_INVALID, "is the model's");
    options.force = 2;
    expect(gpuserve_convert(NULL, folder.path, output, &options, NULL, &error), GPUSERVE_E_INVALID,
           "force is 2");
    cr_expect_eq(count_entries(), 0);
}

static int32_t cancel_at(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    const uint64_t *at = user;

    cr_expect_leq(done, total);
    return stage == GPUSERVE_STAGE_CONVERT && done >= *at;
}

Test(runtime_convert, a_cancelled_conversion_leaves_nothing_and_keeps_the_old, .init = begin,
     .fini = end)
{
    gpuserve_convert_options options = to(GPUSERVE_DTYPE_BFLOAT16);
    uint64_t at;

    cr_assert_eq(gpuserve_convert(NULL, folder.path, output, &options, NULL, &error), GPUSERVE_OK);
    options.progress = cancel_at;
    options.progress_user = &at;
    options.force = 1;
    for (at = 1; at < 100000; at += 30000) {
        expect(gpuserve_convert(NULL, folder.path, output, &options, NULL, &error),
               GPUSERVE_E_CANCELLED, "cancelled");
        cr_expect_eq(count_entries(), 1);
    }
    at = UINT64_MAX;
    cr_expect_eq(gpuserve_convert(NULL, folder.path, output, &options, NULL, &error), GPUSERVE_OK);
    cr_expect_eq(count_entries(), 1);
}

Test(runtime_convert, a_folder_without_permission_is_an_error, .init = begin, .fini = end)
{
    gpuserve_convert_options options = to(GPUSERVE_DTYPE_FLOAT16);

    expect(gpuserve_convert(NULL, folder.path, "/proc/out", &options, NULL, &error),
           GPUSERVE_E_NOT_FOUND, "/proc/out");
    snprintf(output, sizeof(output), "%s/no/such/parent", parent);
    expect(gpuserve_convert(NULL, folder.path, output, &options, NULL, &error),
           GPUSERVE_E_NOT_FOUND, "no/such/parent");
}
