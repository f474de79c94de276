/*
 * test_public.c - from text to vector through the public API, on the emulated CUDA device.
 */
#include "tests/base/sanitized.h"
#include "tests/cudaemu/emu.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_TEXTS 3
/* A sanitizer sees the same of a smaller model. */
enum { DIM = IS_SANITIZED ? 64 : 384 };
#define SMALL_SHAPE ",hidden=64,vocab=1000,positions=64,seed=3"

static const char *const texts[N_TEXTS] = { "hello world", "The cat sat on the mat.", "" };

static const char *minilm(void)
{
    static char path[1024];
    const char *models = getenv("GPUSERVE_TEST_MODELS"), *cache = getenv("XDG_CACHE_HOME");

    if (models)
        snprintf(path, sizeof(path), "%s/all-MiniLM-L6-v2", models);
    else if (cache && *cache)
        snprintf(path, sizeof(path), "%s/gpuserve/models/all-MiniLM-L6-v2", cache);
    else
        snprintf(path, sizeof(path), "%s/.cache/gpuserve/models/all-MiniLM-L6-v2", getenv("HOME"));
    cr_assert(access(path, R_OK) == 0, "%s is missing: run ./dev models all-MiniLM-L6-v2", path);
    return path;
}

static const char *model_path(void)
{
    return IS_SANITIZED ? "random:layers=4" SMALL_SHAPE : minilm();
}

static gpuserve_context *make_context(void)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;

    cr_assert_eq(gpuserve_context_create(&context, NULL, &error), GPUSERVE_OK, "%s", error.message);
    return context;
}

static gpuserve_status try_open(gpuserve_model **model, gpuserve_context *context, const char *path,
                                const char *device, gpuserve_error *error)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = device;
    options.max_batch_tokens = 512;
    options.n_threads = 1;
    return gpuserve_model_open(model, context, path, &options, error);
}

static void embed_on(const char *device, float *vectors)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = make_context();
    gpuserve_model *model = NULL;

    cr_assert_eq(try_open(&model, context, model_path(), device, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_eq(gpuserve_model_dim(model), DIM);
    cr_assert_eq(gpuserve_embed(model, texts, N_TEXTS, vectors, N_TEXTS * DIM, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* float16 on the device, float32 on the CPU: cosine 0.99999, and 1e-3 for unit vectors, whose
 * numbers are larger where there are fewer. */
Test(cuda_public, vectors_are_those_of_the_cpu)
{
    float cpu[N_TEXTS * DIM], cuda[N_TEXTS * DIM];
    struct gsv_emu_counters c;

    embed_on("cpu", cpu);
    embed_on("cuda:0", cuda);
    for (int i = 0; i < N_TEXTS; i++) {
        cr_expect_geq(gpuserve_dot(cpu + i * DIM, cuda + i * DIM, DIM), 0.99999f);
        for (int j = 0; j < DIM; j++)
            cr_expect_float_eq(cpu[i * DIM + j], cuda[i * DIM + j], DIM < 100 ? 3e-3f : 1e-3f);
    }
    gsv_emu_get_counters(&c);
    cr_expect_gt(c.launches, 0);
    cr_expect_eq(c.live_allocations, 0);
    cr_expect_eq(c.live_objects, 0);
}

static void classify_on(const char *device, const char *name, float *scores, size_t n_scores)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = make_context();
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_model *model = NULL;
    char path[1024];

    snprintf(path, sizeof(path), TEST_DATA_DIR "/recurrent/%s", name);
    options.device = device;
    options.n_threads = 1;
    cr_assert_eq(gpuserve_model_open(&model, context, path, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_leq(N_TEXTS * gpuserve_model_label_count(model), n_scores);
    job.task = GPUSERVE_TASK_CLASSIFY;
    job.n_items = N_TEXTS;
    job.texts = texts;
    job.output = scores;
    job.output_capacity = N_TEXTS * gpuserve_model_label_count(model);
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s on %s: %s", name, device,
                 error.message);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* Those of the CPU are compared with torch and Keras in tests/python/test_recurrent.py. */
Test(cuda_public, scores_of_recurrent_models_are_those_of_the_cpu)
{
    static const char *const names[] = { "torch-two-layers", "keras", "gru-two-layers",
                                         "gru-keras-before" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        float cpu[8 * N_TEXTS] = { 0 }, cuda[8 * N_TEXTS] = { 0 };

        classify_on("cpu", names[i], cpu, 8 * N_TEXTS);
        classify_on("cuda:0", names[i], cuda, 8 * N_TEXTS);
        cr_expect_gt(cpu[0], 0.0f);
        for (int j = 0; j < 8 * N_TEXTS; j++)
            cr_expect_float_eq(cpu[j], cuda[j], 1e-5f, "%s: score %d", names[i], j);
    }
}

enum { LATE_WIDTH = 16, N_DOCUMENTS = 5 };

static const char *const documents[N_DOCUMENTS] = { "w20 w21", "w21 w22 w20", "w1 w30 w2", "",
                                                    "w9 w8 w7 w6 w5 w20 w21 w22 w23 w24 w25" };

static gpuserve_model *open_late(const char *device, gpuserve_context *context)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = device;
    options.dtype = GPUSERVE_DTYPE_FLOAT32;
    options.n_threads = 1;
    cr_assert_eq(gpuserve_model_open(&model, context, TEST_DATA_DIR "/models/st-multi-vector",
                                     &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    return model;
}

static void rank_on(gpuserve_model *model, uint32_t score, float *scores, size_t *order)
{
    gpuserve_rerank_options options = GPUSERVE_RERANK_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    options.score = score;
    cr_assert_eq(gpuserve_rerank(model, "w20 w21 w3", documents, N_DOCUMENTS, scores, order,
                                 N_DOCUMENTS, &options, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
}

static uint64_t bytes_out(void)
{
    struct gsv_emu_counters c;

    gsv_emu_get_counters(&c);
    return c.bytes_out;
}

/* The vectors of the query and one float for each document leave the device. */
Test(cuda_public, max_sim_scores_are_those_of_the_cpu_and_are_made_on_the_device)
{
    static const uint32_t kinds[] = { GPUSERVE_SCORE_DEFAULT, GPUSERVE_SCORE_RAW };
    gpuserve_context *context = make_context();
    gpuserve_model *cpu = open_late("cpu", context), *cuda = open_late("cuda:0", context);
    const char *text = "w20 w21 w3";
    float vectors[64 * LATE_WIDTH];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    uint64_t before, of_query;

    for (size_t kind = 0; kind < 2; kind++) {
        float want[N_DOCUMENTS], got[N_DOCUMENTS];
        size_t want_order[N_DOCUMENTS], order[N_DOCUMENTS];

        rank_on(cpu, kinds[kind], want, want_order);
        for (int again = 0; again < 3; again++) { /* the third time replays a recorded batch */
            rank_on(cuda, kinds[kind], got, order);
            for (size_t i = 0; i < N_DOCUMENTS; i++) {
                cr_expect_float_eq(got[i], want[i], 1e-5f, "document %zu", i);
                cr_expect_eq(order[i], want_order[i]);
            }
        }
        before = bytes_out();
        rank_on(cuda, kinds[kind], got, order);
        job.task = GPUSERVE_TASK_TOKEN_VECTORS;
        job.prompt_name = "query";
        job.texts = &text;
        job.n_items = 1;
        job.output = vectors;
        job.output_capacity = 64 * LATE_WIDTH;
        of_query = bytes_out();
        cr_assert_eq(gpuserve_run(cuda, &job, NULL), GPUSERVE_OK);
        cr_expect_eq(of_query - before, bytes_out() - of_query + N_DOCUMENTS * sizeof(float));
    }
    gpuserve_model_close(&cpu);
    gpuserve_model_close(&cuda);
    gpuserve_context_unref(&context);
}

/* The bytes of a precision are those that the host makes of float32 rows, and all that leaves. */
Test(cuda_public, compact_vectors_are_made_on_the_device)
{
    enum { MAX_DIM = 64 };
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_context *context = make_context();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float rows[N_DOCUMENTS * MAX_DIM], ranges[2 * MAX_DIM];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_model *model = NULL;
    size_t dim;

    options.device = "cuda:0";
    cr_assert_eq(
        gpuserve_model_open(&model, context, TEST_DATA_DIR "/models/st-dense", &options, &error),
        GPUSERVE_OK, "%s", error.message);
    dim = gpuserve_model_dim(model);
    cr_assert(dim > 0 && dim <= MAX_DIM);
    job.texts = documents;
    job.n_items = N_DOCUMENTS;
    job.output = rows;
    job.output_capacity = N_DOCUMENTS * dim;
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gpuserve_vector_ranges(rows, N_DOCUMENTS, dim, 0, ranges, NULL), GPUSERVE_OK);
    ranges[0] = 0.5f * (ranges[0] + ranges[dim]); /* some numbers are outside */
    for (uint32_t one = GPUSERVE_PRECISION_FLOAT16; one <= GPUSERVE_PRECISION_UBINARY;
         one += FOR_RACES ? 4 : 1) {
        const size_t bytes = gpuserve_quantized_bytes(one, dim);
        unsigned char want[N_DOCUMENTS * 2 * MAX_DIM], got[N_DOCUMENTS * 2 * MAX_DIM];

        cr_assert_eq(
            gpuserve_quantize(rows, N_DOCUMENTS, dim, one, ranges, want, sizeof(want), NULL),
            GPUSERVE_OK);
        job.precision = one;
        job.ranges = ranges;
        job.output = (float *)(void *)got;
        job.output_capacity = sizeof(got);
        for (int again = 0; again < 3; again++) { /* the third time replays a recorded batch */
            const uint64_t before = bytes_out();

            cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
            cr_expect_eq(memcmp(got, want, N_DOCUMENTS * bytes), 0, "precision %u", one);
            cr_expect_eq(bytes_out() - before,
                         N_DOCUMENTS * ((bytes + 3) / 4 + 1) * sizeof(uint32_t));
        }
    }
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(cuda_public, a_model_that_does_not_fit_is_refused_with_the_numbers)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = make_context();
    gpuserve_model *model = NULL;
    struct gsv_emu_counters c;

    gsv_emu_set_memory(20u << 20);
    cr_expect_eq(try_open(&model, context, minilm(), "cuda:0", &error), GPUSERVE_E_TOO_LARGE, "%s",
                 error.message);
    cr_expect_null(model);
    gsv_emu_get_counters(&c);
    cr_expect_eq(c.allocations, 0, "told before anything is taken");
    gpuserve_context_unref(&context);
}

/* No driver (35) and no device (100): an explicit request fails, the default uses the CPU. */
Test(cuda_public, without_a_device)
{
    static const int causes[] = { 35, 100 };

    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_device_info device = { .struct_size = sizeof(device) };
        gpuserve_context *context = make_context();
        gpuserve_model *model = NULL;
        char reason[512] = "";

        gsv_emu_set_devices(0, causes[i]);
        cr_expect_eq(try_open(&model, context, model_path(), "cuda:0", &error), GPUSERVE_E_DEVICE,
                     "%s", error.message);
        cr_expect_null(model);
        cr_expect(strstr(error.message, "driver"), "%s", error.message);
        cr_expect_eq(gpuserve_device_select(context, "auto", &device, 1, NULL, reason,
                                            sizeof(reason), &error),
                     GPUSERVE_OK);
        cr_expect_str_eq(device.selector, "cpu");
        cr_expect(reason[0], "it says why");
        gpuserve_context_unref(&context);
    }
}

/* An explicit request for a GPU that is too old fails; the default uses the CPU and returns the
 * reason. */
Test(cuda_public, a_gpu_that_is_too_old)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_device_info device = { .struct_size = sizeof(device) };
    gpuserve_context *context = make_context();
    gpuserve_model *model = NULL;
    char reason[512] = "";

    gsv_emu_set_capability(7, 5);
    cr_expect_eq(try_open(&model, context, model_path(), "cuda:0", &error), GPUSERVE_E_DEVICE, "%s",
                 error.message);
    cr_expect_null(model);
    cr_expect(strstr(error.message, "compute capability 7.5"), "%s", error.message);
    cr_expect(strstr(error.message, "8.0 or newer"), "%s", error.message);
    cr_expect(strstr(error.hint, "cpu"), "%s", error.hint);
    cr_expect_eq(
        gpuserve_device_select(context, "auto", &device, 1, NULL, reason, sizeof(reason), &error),
        GPUSERVE_OK);
    cr_expect_str_eq(device.selector, "cpu");
    cr_expect(strstr(reason, "7.5"), "%s", reason);
    gpuserve_context_unref(&context);
}

/* While the device runs one batch, the next one is submitted to its other stream. The texts differ,
 * because equal texts would be coalesced. */
Test(cuda_public, both_streams_have_a_batch_at_a_time)
{
    static const char *const each[2] = { "the first batch", "and the one that follows it" };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = make_context();
    gpuserve_model *model = NULL;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_request *requests[2] = { NULL };
    float got[2][DIM], want[2][DIM];
    struct gsv_emu_counters c;

    cr_assert_eq(try_open(&model, context, model_path(), "cuda:0", &error), GPUSERVE_OK, "%s",
                 error.message);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(gpuserve_embed(model, &each[i], 1, want[i], DIM, NULL, &error), GPUSERVE_OK);
    job.n_items = 1;
    job.output_capacity = DIM;
    gsv_emu_hang(1);
    for (int i = 0; i < 2; i++) {
        job.texts = &each[i];
        job.output = got[i];
        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, &error), GPUSERVE_OK,
                     "%s", error.message);
        do { /* until a worker has submitted the batch to its hung stream */
            usleep(1000);
            gsv_emu_get_counters(&c);
        } while (c.waiting_streams < (uint64_t)i + 1);
    }
    gsv_emu_hang(0);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, &error), GPUSERVE_OK, "%s", error.message);
        gpuserve_request_free(&requests[i]);
        for (int j = 0; j < DIM; j++)
            cr_assert_float_eq(got[i][j], want[i][j], 1e-3f);
    }
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* ------------------------------------------------------------------------ deterministic mode */

#define N_BATCH 40 /* texts of more than 129 rows in all: cuBLASLt computes their products */

static gpuserve_model *open_small(gpuserve_context *context, uint32_t deterministic)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = "cuda:0";
    options.dtype = GPUSERVE_DTYPE_FLOAT16;
    options.max_batch_tokens = 512;
    options.n_threads = 1;
    options.deterministic = deterministic;
    cr_assert_eq(
        gpuserve_model_open(&model, context, TEST_DATA_DIR "/models/st-dense", &options, &error),
        GPUSERVE_OK, "%s", error.message);
    return model;
}

/* Whether the first text's vector has other bits in a batch than alone. */
static bool depends_on_batch(gpuserve_model *model)
{
    char texts_of_batch[N_BATCH][64]; /* different ones: equal texts are computed once */
    const char *many[N_BATCH];
    const size_t dim = gpuserve_model_dim(model);
    float *const vectors = malloc((N_BATCH + 1) * dim * sizeof(*vectors));
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    bool differs;

    cr_assert_not_null(vectors);
    for (int i = 0; i < N_BATCH; i++) {
        snprintf(texts_of_batch[i], sizeof(texts_of_batch[i]), "%c%c cat sat on the mat.",
                 'a' + i % 20, 'a' + i / 20);
        many[i] = texts_of_batch[i];
    }
    cr_assert_eq(gpuserve_embed(model, many, N_BATCH, vectors, N_BATCH * dim, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gpuserve_embed(model, many, 1, vectors + N_BATCH * dim, dim, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    differs = memcmp(vectors, vectors + N_BATCH * dim, dim * sizeof(*vectors)) != 0;
    cr_expect_geq(gpuserve_dot(vectors, vectors + N_BATCH * dim, dim), 0.9999f);
    free(vectors);
    return differs;
}

static void expect_info(gpuserve_model *model, const char *wanted)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char text[8192];
    size_t size;

    cr_assert_eq(gpuserve_model_info(model, text, sizeof(text), &size, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_not_null(strstr(text, wanted), "%s", text);
}

/* The control without the mode shows that the batch is one in which it matters. */
Test(cuda_public, a_deterministic_vector_does_not_depend_on_its_batch, .disabled = FOR_RACES)
{
    gpuserve_context *context = make_context();
    gpuserve_model *fixed = open_small(context, 1), *model = open_small(context, 0);

    cr_expect_not(depends_on_batch(fixed));
    cr_expect(depends_on_batch(model), "without the mode the bits change with the batch");
    cr_expect_str_neq(gpuserve_model_fingerprint(fixed), gpuserve_model_fingerprint(model));
    expect_info(fixed, "\"deterministic\": true");
    expect_info(model, "\"deterministic\": false");
    gpuserve_model_close(&fixed);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(cuda_public, deterministic_is_0_or_1)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = make_context();
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.deterministic = 2;
    cr_expect_eq(
        gpuserve_model_open(&model, context, TEST_DATA_DIR "/models/st-dense", &options, &error),
        GPUSERVE_E_INVALID);
    cr_expect_not_null(strstr(error.message, "deterministic is 2"), "%s", error.message);
    gpuserve_context_unref(&context);
}

/* ----------------------------------------------------------------------------- weight streaming */

/* A sanitizer sees the same on fewer layers. */
#define DEEP_MODEL (IS_SANITIZED ? "random:layers=4" SMALL_SHAPE : "random:layers=8" SMALL_SHAPE)
enum { STREAMED_DIM = 64, N_THREADS = IS_SANITIZED ? 2 : 4, ROUNDS = IS_SANITIZED ? 1 : 3 };

static gpuserve_model_options streaming_options(uint32_t streams)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = "cuda:0";
    options.dtype = GPUSERVE_DTYPE_FLOAT16;
    options.max_batch_tokens = 64;
    options.deterministic = 1;
    options.stream_weights = streams;
    options.n_threads = 1; /* so that a model has a thread for each stream alone */
    return options;
}

static void embed_two(gpuserve_model *model, float *vectors)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_embed(model, texts, 2, vectors, 2 * (size_t)STREAMED_DIM, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
}

/* Bytes on the device, and of the weights there. */
static uint64_t device_bytes(gpuserve_context *context, const gpuserve_model_options *options,
                             uint64_t *weights)
{
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_model_footprint(context, DEEP_MODEL, options, &footprint, &error),
                 GPUSERVE_OK, "%s", error.message);
    *weights = footprint.weights_bytes;
    return footprint.weights_bytes + footprint.workspace_bytes + footprint.stream_bytes;
}

/* Bytes of the only model. */
static unsigned long long bytes_listed(gpuserve_context *context)
{
    static const char key[] = "\"bytes\": ";
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char text[8192];
    const char *at;
    size_t size;

    cr_assert_eq(gpuserve_context_models(context, text, sizeof(text), &size, &error), GPUSERVE_OK,
                 "%s", error.message);
    at = strstr(text, key);
    cr_assert_not_null(at, "%s", text);
    return strtoull(at + strlen(key), NULL, 10);
}

struct streamed_model {
    gpuserve_model *model;
    const float *want;
    int n_wrong;
};

static void *embed_often(void *argument)
{
    struct streamed_model *streamed = argument;
    float vectors[2 * STREAMED_DIM];

    for (int i = 0; i < ROUNDS; i++) {
        embed_two(streamed->model, vectors);
        streamed->n_wrong += memcmp(vectors, streamed->want, sizeof(vectors)) != 0;
    }
    return NULL;
}

static void embed_on_threads(gpuserve_model *model, const float *want)
{
    struct streamed_model of[N_THREADS];
    pthread_t threads[N_THREADS];

    for (int i = 0; i < N_THREADS; i++) {
        of[i] = (struct streamed_model){ model, want, 0 };
        cr_assert_eq(pthread_create(&threads[i], NULL, embed_often, &of[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(of[i].n_wrong, 0);
    }
}

Test(cuda_public, a_model_larger_than_the_device_is_streamed)
{
    gpuserve_context *context = make_context();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model_options options = streaming_options(0);
    float want[2 * STREAMED_DIM], got[2 * STREAMED_DIM];
    uint64_t weights, on_device;
    const uint64_t whole = device_bytes(context, &options, &weights);
    gpuserve_model *model = NULL;

    cr_assert_eq(gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    embed_two(model, want);
    expect_info(model, "\"streamed_layers\": 0");
    gpuserve_model_close(&model);

    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", whole / 2, &error), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_not_null(strstr(error.hint, "stream_weights"), "%s", error.hint);
    options = streaming_options(1);
    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", whole, &error), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    expect_info(model, "\"streamed_layers\": 0"); /* it fits */
    gpuserve_model_close(&model);
    for (uint64_t i = 1; i < (IS_SANITIZED ? 2 : 4); i++) {
        /* Each time below what the last model took: more layers are streamed. */
        cr_assert_eq(gpuserve_context_set_budget(
                         context, "cuda:0",
                         device_bytes(context, &options, &on_device) - i * 100000, &error),
                     GPUSERVE_OK);
        cr_assert_eq(gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error),
                     GPUSERVE_OK, "%s", error.message);
        expect_info(model, "\"threads\": 1");
        embed_two(model, got);
        cr_expect_eq(memcmp(got, want, sizeof(got)), 0);
        cr_assert_eq(gpuserve_model_suspend(model, &error), GPUSERVE_OK, "%s", error.message);
        cr_expect_geq(bytes_listed(context), weights); /* on the device before, and streamed */
        embed_on_threads(model, want);
        gpuserve_model_close(&model);
    }
    gpuserve_context_unref(&context);
}

Test(cuda_public, what_streaming_refuses)
{
    gpuserve_context *context = make_context();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model_options options = streaming_options(1);
    gpuserve_model *model = NULL;

    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 100000, &error), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error),
                 GPUSERVE_E_TOO_LARGE);
    options.dtype = GPUSERVE_DTYPE_INT8;
    cr_expect_eq(gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "stream_weights"), "%s", error.message);
    options.stream_weights = 2;
    cr_expect_eq(gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_not_null(strstr(error.message, "stream_weights is 2"), "%s", error.message);
    options = streaming_options(1);
    options.device = "cpu";
    options.dtype = GPUSERVE_DTYPE_INT8;
    cr_assert_eq(gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    expect_info(model, "\"streamed_layers\": 0");
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* Calls of CUDA in the load fail in turn. */
Test(cuda_public, a_streamed_load_that_fails_leaves_nothing)
{
    gpuserve_model_options options = streaming_options(1);
    int n_failed = 0;

    for (uint64_t n = 1;; n += FOR_RACES ? 121 : IS_SANITIZED ? 61 : 13) {
        gpuserve_context *context = make_context();
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model *model = NULL;
        struct gsv_emu_counters c;
        uint64_t weights;
        gpuserve_status st;
        bool has_failed;

        cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0",
                                                 device_bytes(context, &options, &weights) - 100000,
                                                 &error),
                     GPUSERVE_OK);
        gsv_emu_fail_call(n, 2); /* out of memory */
        st = gpuserve_model_open(&model, context, DEEP_MODEL, &options, &error);
        has_failed = gsv_emu_failed_call() != NULL;
        gsv_emu_fail_call(0, 0);
        if (st != GPUSERVE_OK) {
            cr_expect(has_failed && error.message[0], "call %llu: %s", (unsigned long long)n,
                      error.message);
            n_failed++;
        } else if (!has_failed) {
            expect_info(model, "\"threads\": 1");
        }
        gpuserve_model_close(&model);
        gpuserve_context_unref(&context);
        gsv_emu_get_counters(&c);
        cr_expect_eq(c.live_allocations, 0, "call %llu", (unsigned long long)n);
        cr_expect_eq(c.live_objects, 0, "call %llu", (unsigned long long)n);
        if (!has_failed)
            break;
    }
    cr_expect_geq(n_failed, IS_SANITIZED ? 1 : 5);
}
