/*
 * test_tokenizing.c - the worker threads of a model tokenize a large request at once: on a GPU as
 * many as the options say, and not only those that its batches need. Vectors and their order do not
 * depend on it.
 *
 * Too few threads show as a test timeout.
 */
#include "tests/runtime/fake.h"
#include "tests/runtime/plugin_folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Some 60 chunks of 16 kB and 250,000 tokens; a text has 1 to 20 words. */
enum { N_TEXTS = 20000, TEXT_BYTES = 120 };

static gpuserve_model *open_on(const char *device, uint32_t context_threads, uint32_t n_threads,
                               uint32_t max_batch_tokens)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    char plugin_dir[PLUGIN_FOLDER_BYTES];

    plugin_folder_make(plugin_dir, "plugin-small");
    context_options.n_threads = context_threads;
    context_options.plugin_dir = plugin_dir;
    options.device = device;
    options.n_threads = n_threads;
    options.max_batch_tokens = max_batch_tokens;
    options.dtype = GPUSERVE_DTYPE_FLOAT32; /* dtype of the CPU backend, which the fake GPU uses */
    cr_assert_eq(gpuserve_context_create(&context, &context_options, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    plugin_folder_remove(plugin_dir); /* it is loaded */
    gpuserve_context_unref(&context);
    return model;
}

struct large {
    char (*bytes)[TEXT_BYTES];
    const char **texts;
    float *rows;
    gpuserve_request *request;
};

static void submit(struct large *large, gpuserve_model *model)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job;

    large->bytes = calloc(N_TEXTS, sizeof(*large->bytes));
    large->texts = calloc(N_TEXTS, sizeof(*large->texts));
    large->rows = calloc((size_t)N_TEXTS * FAKE_DIM, sizeof(*large->rows));
    cr_assert(large->bytes && large->texts && large->rows);
    for (unsigned i = 0; i < N_TEXTS; i++) {
        int at = 0;

        for (unsigned w = 0; w <= i % 20; w++)
            at += snprintf(large->bytes[i] + at, (size_t)(TEXT_BYTES - at), "w%u ", i % 97 + w);
        large->texts[i] = large->bytes[i];
    }
    job = fake_job(large->texts, N_TEXTS, large->rows);
    cr_assert_eq(gpuserve_submit(&large->request, model, &job, NULL, NULL, &error), GPUSERVE_OK,
                 "%s", error.message);
}

static void finish(struct large *large)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t n_wrong = 0;

    cr_expect_eq(gpuserve_wait(large->request, -1, &error), GPUSERVE_OK, "%s", error.message);
    gpuserve_request_free(&large->request);
    for (size_t i = 0; i < N_TEXTS; i++) {
        float want[FAKE_DIM];

        fake_vector(large->texts[i], want);
        n_wrong += memcmp(want, large->rows + i * FAKE_DIM, sizeof(want)) != 0;
    }
    cr_expect_eq(n_wrong, 0, "%zu of %d rows differ", n_wrong, N_TEXTS);
    free(large->bytes);
    free(large->texts);
    free(large->rows);
}

static void expect_tokenizing(const char *device, uint32_t context_threads, uint32_t n_threads,
                              int expected)
{
    gpuserve_model *model = open_on(device, context_threads, n_threads, 0);
    struct large large;
    char told[32], info[4096];

    (void)fake_most_tokenizing();
    fake_hold_tokenization();
    submit(&large, model);
    fake_wait_tokenizing(expected);
    fake_release_tokenization();
    finish(&large);
    cr_expect_eq(fake_most_tokenizing(), expected, "%s with %u of %u threads", device, n_threads,
                 context_threads);
    snprintf(told, sizeof(told), "\"threads\": %d", expected);
    cr_assert_eq(gpuserve_model_info(model, info, sizeof(info), NULL, NULL), GPUSERVE_OK);
    cr_expect_not_null(strstr(info, told), "%s in %s", told, info);
    gpuserve_model_close(&model);
}

Test(tokenizing, a_gpu_has_as_many_threads_as_the_options_say)
{
    expect_tokenizing("cuda:0", 6, 0, 6);
    expect_tokenizing("cuda:0", 6, 4, 4);
    expect_tokenizing("cuda:*", 7, 0, 7);
}

Test(tokenizing, a_gpu_has_at_least_the_threads_of_its_batches)
{
    expect_tokenizing("cuda:0", 1, 0, 2);
    expect_tokenizing("cuda:*", 6, 1, 4);
}

Test(tokenizing, a_cpu_has_as_many_threads_as_the_options_say)
{
    expect_tokenizing("cpu", 5, 3, 3);
}

/* While two batches run and enough tokens for two more are ready, the other four threads sleep. The
 * next batch takes tokens: they tokenize while it runs, and so does the thread of the one that
 * ended. */
Test(tokenizing, a_batch_that_takes_tokens_wakes_the_threads)
{
    gpuserve_model *model = open_on("cuda:0", 6, 0, 32768);
    struct large large;

    fake_hold();
    submit(&large, model);
    fake_wait_running(2);
    usleep(200000); /* a thread that does not sleep yet tokenizes, which is no fault */
    fake_hold_tokenization();
    fake_release_one();
    fake_wait_tokenizing(4);
    fake_release_tokenization();
    fake_release();
    finish(&large);
    gpuserve_model_close(&model);
}
