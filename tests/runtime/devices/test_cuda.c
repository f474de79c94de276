/*
 * test_cuda.c - from text to vector on the CUDA backend, which runs on the emulator.
 *
 * Results equal those of the CPU within each dtype's bounds. EMULATED_PLUGIN is the plugin's
 * folder.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two streams' batches of 512 tokens, or of as few texts as still make two. */
enum { DIM = 128, N_TEXTS = IS_SANITIZED ? 8 : 24, BATCH_TOKENS = IS_SANITIZED ? 128 : 512 };

static gpuserve_context *emulated(void)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;

    options.plugin_dir = EMULATED_PLUGIN;
    cr_assert_eq(gpuserve_context_create(&context, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    return context;
}

static void embed_on(gpuserve_context *context, const char *device, uint32_t dtype, float *rows)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_job embed = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    size_t n;
    const char *const *texts = oracle_texts(&n);

    options.device = device;
    options.dtype = dtype;
    options.max_batch_tokens = BATCH_TOKENS; /* several batches, on both streams */
    embed.normalize = GPUSERVE_NORMALIZE_YES;
    cr_assert_eq(gpuserve_model_open(&model, context, real_model("splade-tiny"), &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gpuserve_embed(model, texts, N_TEXTS, rows, N_TEXTS * DIM, &embed, &error),
                 GPUSERVE_OK, "%s", error.message);
    gpuserve_model_close(&model);
}

static void suspend_and_compare(uint32_t dtype)
{
    gpuserve_context *context = emulated();
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    float before[2 * DIM], after[2 * DIM];
    size_t n;
    const char *const *texts = oracle_texts(&n);

    options.device = "cuda:0";
    options.dtype = dtype;
    options.max_batch_tokens = 512;
    cr_assert_eq(gpuserve_model_open(&model, context, real_model("splade-tiny"), &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gpuserve_embed(model, texts, 2, before, 2 * DIM, NULL, NULL), GPUSERVE_OK);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(gpuserve_model_suspend(model, &error), GPUSERVE_OK, "%s", error.message);
        cr_assert_eq(gpuserve_embed(model, texts, 2, after, 2 * DIM, NULL, &error), GPUSERVE_OK,
                     "%s", error.message);
        cr_expect_eq(memcmp(before, after, sizeof(before)), 0);
    }
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(cuda, a_suspended_model_comes_back_bit_for_bit)
{
    suspend_and_compare(GPUSERVE_DTYPE_FLOAT16);
    suspend_and_compare(GPUSERVE_DTYPE_INT8);
}

Test(cuda, vectors_equal_the_cpus_within_each_dtypes_bounds)
{
    /* The bounds documented in the README. */
    static const struct {
        uint32_t dtype;
        double min_cosine, max_difference;
    } cases[] = {
        { GPUSERVE_DTYPE_FLOAT32, 0.999999, 1e-5 },
        { GPUSERVE_DTYPE_FLOAT16, 0.99999, 1e-3 },
        { GPUSERVE_DTYPE_BFLOAT16, 0.9998, 5e-3 },
    };
    gpuserve_context *context = emulated();
    float want[N_TEXTS * DIM], got[N_TEXTS * DIM];

    embed_on(context, "cpu", GPUSERVE_DTYPE_FLOAT32, want);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        embed_on(context, "cuda:0", cases[c].dtype, got);
        for (size_t i = 0; i < N_TEXTS; i++) {
            const float *a = want + i * DIM, *b = got + i * DIM;

            cr_expect_geq(gpuserve_dot(a, b, DIM), cases[c].min_cosine - 1e-7, "dtype %u, text %zu",
                          cases[c].dtype, i);
            for (size_t j = 0; j < DIM; j++)
                cr_assert_leq(fabs((double)a[j] - b[j]), cases[c].max_difference,
                              "dtype %u, text %zu", cases[c].dtype, i);
        }
    }
    gpuserve_context_unref(&context);
}

Test(cuda, auto_takes_the_gpu_in_float16_and_the_space_has_the_same_name)
{
    gpuserve_context *context = emulated();
    gpuserve_model_options on_cpu = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *gpu = NULL, *cpu = NULL;
    char info[8192];

    on_cpu.device = "cpu";
    cr_assert_eq(gpuserve_model_open(&gpu, context, real_model("splade-tiny"), NULL, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&cpu, context, real_model("splade-tiny"), &on_cpu, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_info(gpu, info, sizeof(info), NULL, NULL), GPUSERVE_OK);
    cr_expect_neq(strstr(info, "\"device\": \"cuda:0\""), NULL, "%s", info);
    cr_expect_neq(strstr(info, "\"dtype\": \"float16\""), NULL, "%s", info);
    cr_expect_str_eq(gpuserve_model_fingerprint(gpu), gpuserve_model_fingerprint(cpu));
    gpuserve_model_close(&gpu);
    gpuserve_model_close(&cpu);
    gpuserve_context_unref(&context);
}

Test(cuda, a_model_over_the_budget_is_refused_with_the_numbers_before_it_is_loaded)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;

    context_options.plugin_dir = EMULATED_PLUGIN;
    context_options.memory_budget_bytes = 1 << 20;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, NULL), GPUSERVE_OK);
    options.device = "cuda";
    cr_expect_eq(gpuserve_model_open(&model, context, real_model("splade-tiny"), &options, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_null(model);
    cr_expect_neq(strstr(error.message, "1048576"), NULL, "%s", error.message);
    gpuserve_context_unref(&context);
}

/* ----------------------------------------------------------------------------- float16 overflow */

struct warned {
    char text[256];
};

static void keep_warning(void *user, int32_t level, const char *message)
{
    struct warned *warned = user;

    if (level == GPUSERVE_LOG_WARNING)
        snprintf(warned->text, sizeof(warned->text), "%s", message);
}

/* Computes the vector of "w7 w9" and returns the model info. */
static gpuserve_status embed_folder(gpuserve_context *context, const struct folder *folder,
                                    const char *device, uint32_t dtype, float *vector, char *info,
                                    size_t capacity)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_job embed = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const char *const texts[] = { "w7 w9" };
    gpuserve_model *model = NULL;
    gpuserve_status st;

    options.device = device;
    options.dtype = dtype;
    options.max_batch_tokens = 256;
    embed.normalize = GPUSERVE_NORMALIZE_YES;
    cr_assert_eq(gpuserve_model_open(&model, context, folder->path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_assert_eq(gpuserve_model_dim(model), FOLDER_HIDDEN);
    cr_assert_eq(gpuserve_model_info(model, info, capacity, NULL, NULL), GPUSERVE_OK);
    st = gpuserve_embed(model, texts, 1, vector, FOLDER_HIDDEN, &embed, &error);
    gpuserve_model_close(&model);
    return st;
}

/* [CLS], which every text has, is 70,000 in each component. LayerNorm normalizes it, but the max of
 * float16 is 65,504. */
Test(cuda, a_model_that_overflows_in_float16_computes_in_bfloat16)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    struct warned warned = { "" };
    float want[FOLDER_HIDDEN], got[FOLDER_HIDDEN];
    char info[16384];
    struct folder folder;

    folder_make(&folder, "bert");
    folder_set_word(&folder, 2, 7e4f);
    options.plugin_dir = EMULATED_PLUGIN;
    options.log = keep_warning;
    options.log_user = &warned;
    options.log_level = GPUSERVE_LOG_WARNING;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    cr_assert_eq(embed_folder(context, &folder, "cpu", 0, want, info, sizeof(info)), GPUSERVE_OK);

    cr_assert_eq(embed_folder(context, &folder, "cuda:0", 0, got, info, sizeof(info)), GPUSERVE_OK);
    cr_expect_neq(strstr(info, "\"dtype\": \"bfloat16\""), NULL, "%s", info);
    cr_expect_neq(strstr(warned.text, "exceed the range of float16"), NULL, "%s", warned.text);
    cr_expect_geq(gpuserve_dot(want, got, FOLDER_HIDDEN), 0.98f);

    /* An explicit float16 is used; its overflow is reported as an error. */
    warned.text[0] = '\0';
    cr_expect_eq(
        embed_folder(context, &folder, "cuda:0", GPUSERVE_DTYPE_FLOAT16, got, info, sizeof(info)),
        GPUSERVE_E_NUMERIC);
    cr_expect_neq(strstr(info, "\"dtype\": \"float16\""), NULL, "%s", info);
    cr_expect_str_empty(warned.text);
    gpuserve_context_unref(&context);
    folder_remove(&folder);
}

/* ------------------------------------------------------------------------------ nothing to pool */

/* A prompt of seven tokens without [SEP]. With a digit appended its last word becomes unknown, so
 * after the prompt's tokens nothing is left to pool. */
static const char empty_prompt[] = "abcdef", *const empty_text[] = { "0" };
static const char *const full_text[] = { " w1 w2 w3" };

static void pool_by(const struct folder *folder, const char *mode)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/1_Pooling/config.json", folder->path);
    file = fopen(path, "w");
    cr_assert_not_null(file);
    fprintf(file, "{\"word_embedding_dimension\": 32, \"include_prompt\": false, \"%s\": true}",
            mode);
    fclose(file);
}

static uint64_t n_batches(gpuserve_context *context)
{
    gpuserve_stats stats = { .struct_size = sizeof(stats) };

    cr_assert_eq(gpuserve_context_stats(context, &stats, NULL), GPUSERVE_OK);
    return stats.batches;
}

static gpuserve_job prompted(const char *const *text, float *row)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.texts = text;
    job.n_items = 1;
    job.prompt = empty_prompt;
    job.output = row;
    job.output_capacity = FOLDER_HIDDEN;
    return job;
}

/* Two callers whose texts wait while another text runs; true if one batch contained both. */
static bool run_two(gpuserve_context *context, gpuserve_model *model, float *empty, float *full)
{
    static const char *const first[] = { "w9 w8 w7 w6 w5 w4 w3 w2 w1 w9 w8 w7 w6 w5 w4 w3 w2 w1" };
    const uint64_t before = n_batches(context);
    float other[FOLDER_HIDDEN];
    gpuserve_job jobs[3] = { prompted(first, other), prompted(empty_text, empty),
                             prompted(full_text, full) };
    gpuserve_request *requests[3];

    jobs[0].prompt = ""; /* a different batch key */
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(gpuserve_submit(&requests[i], model, &jobs[i], NULL, NULL, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK, "job %zu", i);
        gpuserve_request_free(&requests[i]);
    }
    return n_batches(context) - before == 2;
}

static void expect_zeros(const char *path, const char *device, const char *mode)
{
    gpuserve_context *context = emulated();
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    float alone[FOLDER_HIDDEN], empty[FOLDER_HIDDEN], full[FOLDER_HIDDEN];
    gpuserve_job job = prompted(full_text, alone);
    bool shared = false;

    options.device = device;
    options.n_threads = 1;
    options.max_wait_us = 20000;
    cr_assert_eq(gpuserve_model_open(&model, context, path, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    for (int round = 0; !shared && round < 100; round++) {
        memset(empty, 0xff, sizeof(empty));
        shared = run_two(context, model, empty, full);
        for (size_t i = 0; i < FOLDER_HIDDEN; i++) {
            cr_expect_eq(empty[i], 0.0f, "%s, %s, number %zu: %g, the other's is %g", device, mode,
                         i, (double)empty[i], (double)full[i]);
            cr_expect_float_eq(full[i], alone[i], 1e-2, "%s, %s, number %zu", device, mode, i);
        }
    }
    cr_expect(shared, "%s, %s: never in one batch", device, mode);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(cuda, a_text_of_which_its_prompt_leaves_nothing_is_zeros_beside_anothers)
{
    static const char *const modes[] = { "pooling_mode_mean_tokens", "pooling_mode_max_tokens",
                                         "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_lasttoken" };
    struct folder folder;

    folder_make(&folder, "st-no-prompt");
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        pool_by(&folder, modes[i]);
        expect_zeros(folder.path, "cpu", modes[i]);
        expect_zeros(folder.path, "cuda:0", modes[i]);
    }
    folder_remove(&folder);
}
