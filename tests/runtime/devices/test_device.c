/*
 * test_device.c - device selectors, and plugins that are missing, broken, rejecting or good.
 */
#include "lib/runtime/devices/gpu_inventory.h"
#include "tests/runtime/fake.h"
#include "tests/runtime/plugin_folder.h"

#include <gpuserve/sys/backend.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gpuserve_context *context_with(const char *plugin_dir)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;

    options.plugin_dir = plugin_dir;
    options.n_threads = 2;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    return context;
}

Test(device, the_message_names_the_missing_layer_and_the_remedy)
{
    char newer[64];
    const struct {
        const char *module, *message, *hint;
    } cases[] = {
        { NULL, "the plugin is missing: libgpuserve-cuda.so", "GPUSERVE_PLUGIN_DIR" },
        { "no-library", "cannot be loaded", "loader" },
        { "plugin-abi", newer, "this library's version" },
        { "plugin-slot", "the operation `attention` is missing", "" },
        { "plugin-no-entry", "symbol gpuserve_backend_entry is missing", "" },
        { "plugin-no-driver", "no driver: libcuda.so.1 is missing", "install the driver" },
        { "plugin-no-device", "the driver sees no device", "plug one in" },
    };

    snprintf(newer, sizeof(newer), "the plugin has backend ABI %u", GPUSERVE_BACKEND_ABI + 1);
    unsetenv("GPUSERVE_PLUGIN_DIR");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_device_info device = { .struct_size = sizeof(device) };
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
        gpuserve_context *context;
        gpuserve_model *model = NULL;
        char folder[PLUGIN_FOLDER_BYTES], reason[512];
        size_t n = 0;

        plugin_folder_make(folder, cases[i].module);
        context = context_with(folder);
        options.device = "cuda";
        cr_expect_eq(gpuserve_device_select(context, "cuda", &device, 1, NULL, NULL, 0, &error),
                     GPUSERVE_E_DEVICE);
        cr_expect_neq(strstr(error.message, cases[i].message), NULL, "case %zu: %s", i,
                      error.message);
        cr_expect_neq(strstr(error.hint, cases[i].hint), NULL, "case %zu: %s", i, error.hint);
        cr_expect_eq(gpuserve_model_open(&model, context, ".", &options, &error), GPUSERVE_E_DEVICE,
                     "explicit: never another device");
        cr_expect_null(model);
        cr_expect_eq(
            gpuserve_device_select(context, "auto", &device, 1, NULL, reason, sizeof(reason), NULL),
            GPUSERVE_OK);
        cr_expect_str_eq(device.selector, "cpu");
        if (!cases[i].module && !gsv_has_nvidia_device(NULL))
            cr_expect_str_eq(reason, "no GPU", "a CPU user has no use for the plugin");
        else
            cr_expect_neq(strstr(reason, cases[i].message), NULL, "case %zu: %s", i, reason);
        cr_expect_eq(gpuserve_device_list(context, &device, 1, &n, NULL), GPUSERVE_OK);
        cr_expect_eq(n, 1);
        gpuserve_context_unref(&context);
        plugin_folder_remove(folder);
    }
}

static void collect(void *user, int32_t level, const char *message)
{
    (void)level;
    snprintf(user, 64, "%s", message);
}

/* The test plugin logs "never NULL" when it is loaded. */
Test(device, what_a_plugin_logs_reaches_the_context_it_works_for)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_device_info device = { .struct_size = sizeof(device) };
    char folder[PLUGIN_FOLDER_BYTES], lines[2][64] = { "", "" };
    gpuserve_context *contexts[2] = { NULL, NULL };

    unsetenv("GPUSERVE_PLUGIN_DIR");
    plugin_folder_make(folder, "plugin-good");
    for (size_t i = 0; i < 2; i++) {
        options.plugin_dir = folder;
        options.log = collect;
        options.log_user = lines[i];
        options.log_level = GPUSERVE_LOG_DEBUG;
        cr_assert_eq(gpuserve_context_create(&contexts[i], &options, NULL), GPUSERVE_OK);
    }
    cr_expect_eq(gpuserve_device_select(contexts[1], "cuda", &device, 1, NULL, NULL, 0, NULL),
                 GPUSERVE_OK);
    cr_expect_str_eq(lines[1], "never NULL");
    cr_expect_str_eq(lines[0], "");
    for (size_t i = 0; i < 2; i++)
        gpuserve_context_unref(&contexts[i]);
    plugin_folder_remove(folder);
}

static void count_choices(void *user, int32_t level, const char *message)
{
    if (level == GPUSERVE_LOG_INFO && strstr(message, "libgpuserve-cuda12.so is used") &&
        strstr(message, "libgpuserve-cuda.so: driver 550, needs 580"))
        ++*(int *)user;
}

static gpuserve_context *context_that_counts(const char *folder, int *n_choices)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;

    options.plugin_dir = folder;
    options.log = count_choices;
    options.log_user = n_choices;
    options.log_level = GPUSERVE_LOG_INFO;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    return context;
}

/* Both reports, gpuserve_device_report() and gpuserve_context_doctor(), name the plugin. */
static void expect_in_reports(gpuserve_context *context, const char *file, const char *reason)
{
    char *const text = malloc(65536);
    size_t size = 0;

    cr_assert_not_null(text);
    for (int i = 0; i < 2; i++) {
        const gpuserve_status st =
            i == 0 ? gpuserve_device_report(context, text, 65536, &size, NULL)
                   : gpuserve_context_doctor(context, NULL, text, 65536, &size, NULL);

        cr_assert_eq(st, GPUSERVE_OK);
        cr_expect_neq(strstr(text, file), NULL, "report %d lacks %s: %s", i, file, text);
        if (reason)
            cr_expect_neq(strstr(text, reason), NULL, "report %d lacks %s: %s", i, reason, text);
        else
            cr_expect_null(strstr(text, "needs 580"), "report %d: %s", i, text);
    }
    free(text);
}

Test(device, the_build_that_fits_the_driver_is_used)
{
    static const struct {
        const char *driver, *first, *second, *used;
        const char *file, *reason; /* in the reports */
        int n_logged;
    } cases[] = {
        { "590", "plugin-needs-580", "plugin-needs-525", "build for 580", "/libgpuserve-cuda.so",
          NULL, 0 },
        { "550", "plugin-needs-580", "plugin-needs-525", "build for 525", "/libgpuserve-cuda12.so",
          "libgpuserve-cuda.so: driver 550, needs 580", 1 },
        { "550", NULL, "plugin-needs-525", "build for 525", "/libgpuserve-cuda12.so", NULL, 0 },
        { "590", NULL, "plugin-needs-525", "build for 525", "/libgpuserve-cuda12.so", NULL, 0 },
        { "590", "plugin-needs-580", "no-library", "build for 580", "/libgpuserve-cuda.so", NULL,
          0 },
    };

    unsetenv("GPUSERVE_PLUGIN_DIR");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_device_info device = { .struct_size = sizeof(device) };
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char folder[PLUGIN_FOLDER_BYTES];
        gpuserve_context *context;
        int n_logged = 0;

        setenv("GPUSERVE_TEST_DRIVER", cases[i].driver, 1);
        plugin_folder_make(folder, cases[i].first);
        plugin_folder_add_cuda12(folder, cases[i].second);
        context = context_that_counts(folder, &n_logged);
        for (int k = 0; k < 2; k++) {
            cr_expect_eq(gpuserve_device_select(context, "cuda", &device, 1, NULL, NULL, 0, &error),
                         GPUSERVE_OK, "case %zu: %s", i, error.message);
            cr_expect_str_eq(device.selector, "cuda:0");
            cr_expect_str_eq(device.name, cases[i].used, "case %zu", i);
        }
        cr_expect_eq(n_logged, cases[i].n_logged, "case %zu", i);
        expect_in_reports(context, cases[i].file, cases[i].reason);
        gpuserve_context_unref(&context);
        plugin_folder_remove(folder);
    }
}

Test(device, a_driver_too_old_for_every_build_is_told_what_each_needs)
{
    static const struct {
        const char *driver, *second, *message, *hint;
    } cases[] = {
        { "550", NULL, "driver 550, needs 580", "update to 580" },
        { "470", "plugin-needs-525",
          "libgpuserve-cuda.so: driver 470, needs 580; libgpuserve-cuda12.so: driver 470, needs "
          "525",
          "update to 525" },
        { "550", "plugin-no-entry", "libgpuserve-cuda12.so: not a gpuserve plugin", "" },
        { "550", "plugin-no-device", "the driver sees no device", "plug one in" },
    };

    unsetenv("GPUSERVE_PLUGIN_DIR");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_device_info device = { .struct_size = sizeof(device) };
        char folder[PLUGIN_FOLDER_BYTES];
        gpuserve_context *context;

        setenv("GPUSERVE_TEST_DRIVER", cases[i].driver, 1);
        plugin_folder_make(folder, "plugin-needs-580");
        if (cases[i].second)
            plugin_folder_add_cuda12(folder, cases[i].second);
        context = context_with(folder);
        for (int k = 0; k < 2; k++) { /* a failure is not remembered */
            gpuserve_error error = GPUSERVE_ERROR_INIT;

            cr_expect_eq(gpuserve_device_select(context, "cuda", &device, 1, NULL, NULL, 0, &error),
                         GPUSERVE_E_DEVICE, "case %zu", i);
            cr_expect_eq(error.status, GPUSERVE_E_DEVICE);
            cr_expect_neq(strstr(error.message, cases[i].message), NULL, "case %zu: %s", i,
                          error.message);
            cr_expect_neq(strstr(error.hint, cases[i].hint), NULL, "case %zu: %s", i, error.hint);
        }
        setenv("GPUSERVE_TEST_DRIVER", "590", 1); /* updated meanwhile */
        cr_expect_eq(gpuserve_device_select(context, "cuda", &device, 1, NULL, NULL, 0, NULL),
                     GPUSERVE_OK, "case %zu", i);
        cr_expect_str_eq(device.name, "build for 580");
        gpuserve_context_unref(&context);
        plugin_folder_remove(folder);
    }
}

Test(device, a_working_plugin_is_chosen_by_auto_and_by_name)
{
    static const char *const text[] = { "on another device" };
    gpuserve_device_info devices[4] = { { .struct_size = sizeof(devices[0]) } };
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context;
    gpuserve_model *model = NULL;
    float row[FAKE_DIM], want[FAKE_DIM];
    char folder[PLUGIN_FOLDER_BYTES], reason[8];
    size_t n = 0;

    plugin_folder_make(folder, "plugin-good");
    context = context_with(NULL);
    setenv("GPUSERVE_PLUGIN_DIR", folder, 1);
    cr_assert_eq(gpuserve_device_list(context, devices, 4, &n, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_eq(n, 2);
    cr_expect_str_eq(devices[0].selector, "cpu");
    cr_expect_str_eq(devices[1].selector, "cuda:0");
    cr_expect_gt(devices[0].n_cores, 0);
    cr_expect_gt(devices[0].memory_free_bytes, 0);
    cr_expect_eq(
        gpuserve_device_select(context, NULL, devices, 1, NULL, reason, sizeof(reason), NULL),
        GPUSERVE_OK);
    cr_expect_str_eq(devices[0].selector, "cuda:0");
    cr_expect_eq(strlen(reason), sizeof(reason) - 1, "cut");
    n = 0;
    cr_expect_eq(
        gpuserve_device_select(context, "cuda:*", NULL, 0, &n, reason, sizeof(reason), NULL),
        GPUSERVE_OK);
    cr_expect_eq(n, 1, "counted without an array");
    cr_expect_str_eq(reason, "request");
    cr_expect_eq(gpuserve_device_select(context, "cuda:1", devices, 1, NULL, NULL, 0, &error),
                 GPUSERVE_E_DEVICE);
    cr_expect_neq(strstr(error.message, "cuda:0"), NULL, "%s", error.message);
    options.device = "cuda:0";
    options.dtype = GPUSERVE_DTYPE_FLOAT32;
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_eq(gpuserve_embed(model, text, 1, row, FAKE_DIM, NULL, NULL), GPUSERVE_OK);
    fake_vector(text[0], want);
    cr_expect_eq(memcmp(row, want, sizeof(want)), 0);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    plugin_folder_remove(folder);
}

Test(device, selectors_and_arguments_that_are_wrong_are_refused)
{
    static const char *const wrong[] = { "",        "gpu",      "CPU",           "cuda:", "cuda:x",
                                         "cuda:-1", "cuda:0x1", "cuda:99999999", "cpu:0" };
    gpuserve_context *context = context_with(NULL);
    gpuserve_device_info device = { .struct_size = sizeof(device) };
    gpuserve_device_info small = { .struct_size = 8 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t n;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_eq(gpuserve_device_select(context, wrong[i], &device, 1, NULL, NULL, 0, &error),
                     GPUSERVE_E_INVALID, "%s", wrong[i]);
    cr_expect_eq(gpuserve_device_select(context, "cpu", &small, 1, NULL, NULL, 0, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_device_select(context, "cpu", NULL, 1, NULL, NULL, 0, NULL),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_device_select(context, "cpu", &device, 1, NULL, NULL, 3, NULL),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_device_select(NULL, "cpu", &device, 1, NULL, NULL, 0, NULL),
                 GPUSERVE_E_INVALID);
    device.selector[0] = '\0';
    cr_expect_eq(gpuserve_device_refresh(context, &device, &error), GPUSERVE_E_INVALID);
    cr_expect_str_eq(error.message, "the device has no selector");
    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    cr_expect_eq(gpuserve_device_list(context, NULL, 0, &n, &error), GPUSERVE_OK);
    cr_expect_geq(n, 1);
    cr_expect_str_eq(error.message, "", "why there is no GPU is no failure");
    cr_expect_eq(error.status, GPUSERVE_OK);
    cr_expect_eq(gpuserve_device_list(context, NULL, 1, &n, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_device_list(context, &small, 1, &n, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_device_list(context, &device, 1, NULL, NULL), GPUSERVE_E_INVALID);
    gpuserve_context_unref(&context);
}

/* The device of this plugin leaves the last byte of a copy out. */
Test(device, a_measured_copy_is_checked)
{
    char folder[PLUGIN_FOLDER_BYTES];
    gpuserve_context *context;

    unsetenv("GPUSERVE_PLUGIN_DIR");
    plugin_folder_make(folder, "plugin-lossy");
    context = context_with(folder);
    for (uint32_t direction = 0; direction < 2; direction++) {
        gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
        gpuserve_transfer_job job = GPUSERVE_TRANSFER_JOB_INIT;
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_compute *compute = NULL;
        double seconds;

        options.device = "cuda:0";
        cr_assert_eq(gpuserve_compute_open(&compute, context, &options, &error), GPUSERVE_OK, "%s",
                     error.message);
        job.direction = direction;
        job.n_copies = 1;
        job.size_bytes = 1001;
        job.seconds = &seconds;
        cr_expect_eq(gpuserve_transfer(compute, &job, &error), GPUSERVE_E_DEVICE);
        cr_expect_neq(strstr(error.message, direction ? "1001 bytes from" : "1001 bytes to"), NULL,
                      "%s", error.message);
        cr_expect_neq(strstr(error.message, "from byte 1000 on"), NULL, "%s", error.message);
        gpuserve_compute_close(&compute);
    }
    gpuserve_context_unref(&context);
    plugin_folder_remove(folder);
}
