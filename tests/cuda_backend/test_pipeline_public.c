/*
 * test_pipeline_public.c - a model on two or three emulated devices that share its layers, through
 * the public API: bits, memory, budgets, failures, lost devices.
 */
#include "tests/base/sanitized.h"
#include "tests/cudaemu/emu.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHAPE ",vocab=1000,positions=64,seed=3"
#define MODEL (IS_SANITIZED ? "random:layers=4,hidden=64" SHAPE : "random:layers=8,hidden=64" SHAPE)
/* Half of its weights are more than the activations and streams of one execution context. */
#define LARGE "random:layers=6,hidden=384" SHAPE

enum {
    DIM = 64,
    LARGE_DIM = 384,
    N_LAYERS = IS_SANITIZED ? 4 : 8,
    MAX_TOKENS = 64,
    N_THREADS = IS_SANITIZED ? 2 : 6,
    ROUNDS = IS_SANITIZED ? 1 : 3
};

static const char *const texts[] = { "w1 w2 w3",  "w4", "w5 w6 w7 w8 w9", "w2 w1", "w30 w31",
                                     "w77 w7 w1", "",   "w3 w3 w3 w3" };
#define N_TEXTS (IS_SANITIZED ? 4 : sizeof(texts) / sizeof(texts[0]))

static gpuserve_context *make_context(int n_devices)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;

    gsv_emu_set_devices(n_devices, 0);
    cr_assert_eq(gpuserve_context_create(&context, NULL, &error), GPUSERVE_OK, "%s", error.message);
    return context;
}

static gpuserve_model_options options_on(const char *device, uint32_t pipeline)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = device;
    options.dtype = GPUSERVE_DTYPE_FLOAT16;
    options.max_batch_tokens = MAX_TOKENS;
    options.deterministic = 1;
    options.n_threads = 1; /* none beyond those of the streams */
    options.pipeline = pipeline;
    return options;
}

static gpuserve_model *open_with(gpuserve_context *context, const char *path,
                                 const gpuserve_model_options *options)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_assert_eq(gpuserve_model_open(&model, context, path, options, &error), GPUSERVE_OK, "%s",
                 error.message);
    return model;
}

static void embed_first(gpuserve_model *model, float *vector, size_t dim)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_embed(model, texts, 1, vector, dim, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
}

static void embed_each(gpuserve_model *model, float *vectors)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (size_t i = 0; i < N_TEXTS; i++)
        cr_assert_eq(gpuserve_embed(model, &texts[i], 1, vectors + i * DIM, DIM, NULL, &error),
                     GPUSERVE_OK, "%s", error.message);
}

/* The vectors on one device; their fingerprint is kept for the model's. */
static char fingerprint[64];

static const float *right_vectors(gpuserve_context *context, uint32_t dtype)
{
    static float vectors[N_TEXTS * DIM];
    gpuserve_model_options options = options_on("cuda:0", 0);
    gpuserve_model *model;

    options.dtype = dtype;
    model = open_with(context, MODEL, &options);
    embed_each(model, vectors);
    snprintf(fingerprint, sizeof(fingerprint), "%s", gpuserve_model_fingerprint(model));
    gpuserve_model_close(&model);
    return vectors;
}

static void expect_right(gpuserve_model *model, const float *right)
{
    float vectors[N_TEXTS * DIM];

    embed_each(model, vectors);
    cr_expect_eq(memcmp(vectors, right, sizeof(vectors)), 0);
}

/* ------------------------------------------------------------------------------------- facts */

struct share {
    unsigned long long first, layers, bytes;
};

static void read_info(gpuserve_model *model, char *text, size_t capacity)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_model_info(model, text, capacity, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
}

static void expect_info(gpuserve_model *model, const char *wanted)
{
    char text[8192];

    read_info(model, text, sizeof(text));
    cr_expect_not_null(strstr(text, wanted), "no %s in %s", wanted, text);
}

static unsigned long long number_after(const char **at, const char *key)
{
    *at = *at ? strstr(*at, key) : NULL;
    cr_assert_not_null(*at, "%s", key);
    return strtoull(*at + strlen(key), NULL, 10);
}

/* What the info tells of each device of the pipeline; returns the bytes of all. */
static unsigned long long read_shares(gpuserve_model *model, struct share *shares, int n)
{
    char text[8192];
    const char *at;
    unsigned long long sum = 0;

    read_info(model, text, sizeof(text));
    at = strstr(text, "\"pipeline\": [");
    cr_assert_not_null(at, "%s", text);
    for (int i = 0; i < n; i++) {
        shares[i].first = number_after(&at, "\"first_layer\": ");
        shares[i].layers = number_after(&at, "\"layers\": ");
        shares[i].bytes = number_after(&at, "\"bytes\": ");
        cr_expect_eq(shares[i].first, i ? shares[i - 1].first + shares[i - 1].layers : 0);
        sum += shares[i].bytes;
    }
    cr_expect_null(strstr(at, "\"first_layer\": "), "%d devices: %s", n, text);
    return sum;
}

static gpuserve_footprint footprint_of(gpuserve_context *context, const char *path,
                                       const gpuserve_model_options *options)
{
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_model_footprint(context, path, options, &footprint, &error), GPUSERVE_OK,
                 "%s", error.message);
    return footprint;
}

static uint64_t on_devices(const gpuserve_footprint *footprint)
{
    return footprint->weights_bytes + footprint->workspace_bytes + footprint->stream_bytes;
}

static void set_budget(gpuserve_context *context, const char *device, uint64_t bytes)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_context_set_budget(context, device, bytes, &error), GPUSERVE_OK, "%s",
                 error.message);
}

/* -------------------------------------------------------------------------------------- bits */

static void compare_on(int n_devices, uint32_t dtype)
{
    gpuserve_context *context = make_context(n_devices);
    const float *right = right_vectors(context, dtype);
    gpuserve_model_options options = options_on("cuda:*", 1);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct share shares[3];
    gpuserve_model *model;

    options.dtype = dtype;
    model = open_with(context, MODEL, &options);
    expect_right(model, right);
    cr_expect_str_eq(gpuserve_model_fingerprint(model), fingerprint);
    (void)read_shares(model, shares, n_devices);
    cr_expect_eq(shares[n_devices - 1].first + shares[n_devices - 1].layers, N_LAYERS);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(gpuserve_model_suspend(model, &error), GPUSERVE_OK, "%s", error.message);
        expect_right(model, right); /* resumes it */
    }
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* In the order of the selector. */
static void compare_on_a_list(void)
{
    gpuserve_context *context = make_context(3);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    const gpuserve_model_options options = options_on("cuda:2,cuda:0", 1);
    gpuserve_model *model = open_with(context, MODEL, &options);
    gpuserve_job how = GPUSERVE_JOB_INIT;
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float vector[DIM];

    expect_info(model, "\"device\": \"cuda:2,cuda:0\"");
    expect_right(model, right);
    how.result = &result;
    cr_assert_eq(gpuserve_embed(model, texts, 1, vector, DIM, &how, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_str_eq(result.device, "cuda:2,cuda:0");
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(cuda_pipeline, vectors_are_those_of_one_device)
{
    compare_on_a_list();
    for (int n = 2; n <= (FOR_RACES ? 2 : 3); n++) {
        compare_on(n, GPUSERVE_DTYPE_FLOAT16);
        if (!FOR_RACES)
            compare_on(n, GPUSERVE_DTYPE_FLOAT32);
    }
}

struct caller {
    gpuserve_model *model;
    const float *right;
    size_t first;
    int n_wrong;
};

/* Different texts, so that each is a batch of its own. */
static void *call_often(void *argument)
{
    struct caller *caller = argument;
    gpuserve_job options = GPUSERVE_JOB_INIT;
    float vector[DIM];

    for (size_t i = 0; i < ROUNDS * N_TEXTS; i++) {
        const size_t text = (caller->first + i) % N_TEXTS;

        caller->n_wrong += gpuserve_embed(caller->model, &texts[text], 1, vector, DIM, &options,
                                          NULL) != GPUSERVE_OK ||
                           memcmp(vector, caller->right + text * DIM, sizeof(vector)) != 0;
    }
    return NULL;
}

static void call_on_threads(gpuserve_model *model, const float *right)
{
    struct caller callers[N_THREADS];
    pthread_t threads[N_THREADS];

    for (size_t i = 0; i < N_THREADS; i++) {
        callers[i] = (struct caller){ model, right, i, 0 };
        cr_assert_eq(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(callers[i].n_wrong, 0);
    }
}

Test(cuda_pipeline, many_callers_and_streams_that_run_late, .timeout = 240)
{
    gpuserve_context *context = make_context(3);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    const gpuserve_model_options options = options_on("cuda:*", 1);
    gpuserve_model *model = open_with(context, MODEL, &options);

    call_on_threads(model, right);
    for (uint64_t seed = 1; seed <= (IS_SANITIZED ? 1 : 3); seed++) {
        gsv_emu_set_late(1);
        gsv_emu_seed(seed);
        call_on_threads(model, right);
    }
    gsv_emu_set_late(0);
    gsv_emu_seed(0);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* While no stream makes progress, each of the three workers has begun a batch on the first device.
 */
Test(cuda_pipeline, one_batch_more_than_devices_is_in_flight)
{
    enum { N = 3 };
    gpuserve_context *context = make_context(2);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    const gpuserve_model_options options = options_on("cuda:*", 1);
    gpuserve_model *model = open_with(context, MODEL, &options);
    gpuserve_request *requests[N] = { NULL };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const time_t begin = time(NULL);
    struct gsv_emu_counters c;
    gpuserve_job jobs[N];
    float vectors[N][DIM];

    expect_right(model, right);
    expect_info(model, "\"threads\": 3");
    gsv_emu_hang(1);
    for (int i = 0; i < N; i++) {
        jobs[i] = (gpuserve_job)GPUSERVE_JOB_INIT;
        jobs[i].n_items = 1;
        jobs[i].texts = &texts[i];
        jobs[i].output = vectors[i];
        jobs[i].output_capacity = DIM;
        cr_assert_eq(gpuserve_submit(&requests[i], model, &jobs[i], NULL, NULL, &error),
                     GPUSERVE_OK, "%s", error.message);
        do {
            usleep(1000);
            gsv_emu_get_counters(&c);
            cr_assert_lt(time(NULL) - begin, 60, "%llu of %d streams",
                         (unsigned long long)c.waiting_streams, i + 1);
        } while (c.waiting_streams < (uint64_t)i + 1);
    }
    gsv_emu_hang(0);
    for (int i = 0; i < N; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, &error), GPUSERVE_OK, "%s", error.message);
        cr_expect_eq(memcmp(vectors[i], right + (size_t)i * DIM, sizeof(vectors[i])), 0);
        gpuserve_request_free(&requests[i]);
    }
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* ------------------------------------------------------------------------------------ memory */

/* The rows of a border, of each of n + 1 workers, are pinned and part of the host's bytes. */
Test(cuda_pipeline, bytes_are_those_that_the_footprint_and_the_info_tell, .disabled = FOR_RACES)
{
    for (int n = 2; n <= 3; n++) {
        const uint64_t border = (uint64_t)(n + 1) * MAX_TOKENS * DIM * 2;
        gpuserve_context *context = make_context(n);
        const gpuserve_model_options options = options_on("cuda:*", 1);
        const gpuserve_footprint footprint = footprint_of(context, MODEL, &options);
        struct gsv_emu_counters before, c;
        struct share shares[3];
        gpuserve_model *model;

        gsv_emu_get_counters(&before);
        model = open_with(context, MODEL, &options);
        gsv_emu_get_counters(&c);
        cr_expect_eq(footprint.n_streams, (uint32_t)(n * (n + 1)));
        cr_expect_eq(footprint.fits, 1);
        cr_expect_geq(footprint.host_bytes, border);
        cr_expect_eq(read_shares(model, shares, n), on_devices(&footprint));
        cr_expect_eq(c.live_bytes + c.live_host_bytes - before.live_bytes - before.live_host_bytes,
                     on_devices(&footprint) + border);
        gpuserve_model_close(&model);
        gsv_emu_get_counters(&c);
        cr_expect_eq(c.live_bytes, before.live_bytes);
        cr_expect_eq(c.live_host_bytes, before.live_host_bytes);
        gpuserve_context_unref(&context);
    }
}

/* Each device's budget bounds its part: the layers go where there is room. */
Test(cuda_pipeline, budgets_of_devices_decide_the_layers, .disabled = FOR_RACES)
{
    gpuserve_context *context = make_context(2);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    const gpuserve_model_options options = options_on("cuda:*", 1);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = open_with(context, MODEL, &options), *failed = NULL;
    struct share balanced[2], shares[2];

    (void)read_shares(model, balanced, 2);
    gpuserve_model_close(&model);
    set_budget(context, "cuda:0", balanced[0].bytes);
    set_budget(context, "cuda:1", balanced[1].bytes);
    model = open_with(context, MODEL, &options);
    (void)read_shares(model, shares, 2);
    cr_expect_eq(memcmp(shares, balanced, sizeof(shares)), 0);
    cr_expect_eq(gpuserve_model_open(&failed, context, MODEL, &options, &error),
                 GPUSERVE_E_TOO_LARGE, "the budget is used up");
    gpuserve_model_close(&model);

    set_budget(context, "cuda:1", balanced[1].bytes - 1);
    cr_expect_eq(gpuserve_model_open(&failed, context, MODEL, &options, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_not_null(strstr(error.message, "the budget of cuda:"), "%s", error.message);
    cr_expect_not_null(strstr(error.hint, "pipeline"), "%s", error.hint);
    cr_expect_eq(footprint_of(context, MODEL, &options).fits, 0);
    set_budget(context, "cuda:0", 0); /* none */
    cr_expect_eq(footprint_of(context, MODEL, &options).fits, 1);
    model = open_with(context, MODEL, &options);
    (void)read_shares(model, shares, 2);
    cr_expect_eq(shares[0].layers, balanced[0].layers + 1);
    cr_expect_lt(shares[1].bytes, balanced[1].bytes);
    expect_right(model, right);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* A model beside it takes memory of one device: the free memory counts, not the whole. */
Test(cuda_pipeline, layers_go_where_memory_is_free, .disabled = FOR_RACES)
{
    gpuserve_context *context = make_context(2);
    const gpuserve_model_options options = options_on("cuda:*", 1), one = options_on("cuda:1", 0);
    gpuserve_model *model = open_with(context, MODEL, &options), *beside;
    const gpuserve_footprint footprint = footprint_of(context, MODEL, &one);
    struct share balanced[2], shares[2];

    (void)read_shares(model, balanced, 2);
    gpuserve_model_close(&model);
    set_budget(context, "cuda:1", balanced[1].bytes - 1 + on_devices(&footprint));
    beside = open_with(context, MODEL, &one);
    model = open_with(context, MODEL, &options);
    (void)read_shares(model, shares, 2);
    cr_expect_gt(shares[0].layers, balanced[0].layers);
    gpuserve_model_close(&model);
    gpuserve_model_close(&beside);
    gpuserve_context_unref(&context);
}

/* Not under a sanitizer: a large model on ways that others take. */
Test(cuda_pipeline, a_model_larger_than_each_device, .disabled = IS_SANITIZED)
{
    gpuserve_context *context = make_context(2);
    gpuserve_model_options options = options_on("cuda:0", 0);
    gpuserve_model *model = open_with(context, LARGE, &options);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float want[LARGE_DIM], got[LARGE_DIM];
    struct share shares[2];
    uint64_t most;

    embed_first(model, want, LARGE_DIM);
    gpuserve_model_close(&model);
    options = options_on("cuda:*", 1);
    model = open_with(context, LARGE, &options);
    (void)read_shares(model, shares, 2);
    gpuserve_model_close(&model);
    most = shares[0].bytes > shares[1].bytes ? shares[0].bytes : shares[1].bytes;
    set_budget(context, "cuda:0", most);
    set_budget(context, "cuda:1", most);
    options = options_on("cuda:0", 0);
    cr_expect_eq(gpuserve_model_open(&model, context, LARGE, &options, &error),
                 GPUSERVE_E_TOO_LARGE);
    options = options_on("cuda:*", 1);
    model = open_with(context, LARGE, &options);
    embed_first(model, got, LARGE_DIM);
    cr_expect_eq(memcmp(got, want, sizeof(got)), 0);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* ---------------------------------------------------------------------------------- refusals */

static void expect_refused(gpuserve_context *context, const char *path,
                           const gpuserve_model_options *options, gpuserve_status status,
                           const char *words)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_expect_eq(gpuserve_model_open(&model, context, path, options, &error), status, "%s: %s",
                 words, error.message);
    cr_expect_not_null(strstr(error.message, words), "no '%s' in: %s", words, error.message);
    cr_expect_null(model);
}

static void write_nothing(void *user, const char *text, size_t size)
{
    (void)user;
    (void)text;
    (void)size;
}

Test(cuda_pipeline, what_it_refuses)
{
    gpuserve_context *context = make_context(3);
    gpuserve_model_options options = options_on("cuda:0", 1);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    expect_refused(context, MODEL, &options, GPUSERVE_E_UNSUPPORTED,
                   "needs 2 GPUs or more, the device is cuda:0 alone");
    options.device = "cpu";
    options.dtype = GPUSERVE_DTYPE_DEFAULT;
    expect_refused(context, MODEL, &options, GPUSERVE_E_UNSUPPORTED,
                   "needs 2 GPUs or more, the device is cpu alone");
    options = options_on("cuda:*", 1);
    expect_refused(context, "random:layers=2,hidden=64" SHAPE, &options, GPUSERVE_E_UNSUPPORTED,
                   "3 devices share the layers of the model, which has 2");
    expect_refused(context, TEST_DATA_DIR "/models/st-static", &options, GPUSERVE_E_UNSUPPORTED,
                   "which has 0");
    options.dtype = GPUSERVE_DTYPE_FLOAT32;
    expect_refused(context, TEST_DATA_DIR "/recurrent/torch-two-layers", &options,
                   GPUSERVE_E_UNSUPPORTED, "which has 0");
    options.dtype = GPUSERVE_DTYPE_INT8;
    expect_refused(context, MODEL, &options, GPUSERVE_E_UNSUPPORTED, "int8");
    options = options_on("cuda:*", 1);
    options.stream_weights = 1;
    expect_refused(context, MODEL, &options, GPUSERVE_E_UNSUPPORTED,
                   "pipeline and stream_weights exclude each other");
    options = options_on("cuda:*", 2);
    expect_refused(context, MODEL, &options, GPUSERVE_E_INVALID, "pipeline is 2, neither 0 nor 1");
    options = options_on("cuda:*", 1);
    cr_expect_eq(
        gpuserve_model_profile(context, MODEL, &options, NULL, write_nothing, NULL, &error),
        GPUSERVE_E_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "pipeline"), "%s", error.message);
    gpuserve_context_unref(&context);
}

/* Even a GPU of `auto` that is too small does not make it a model on the CPU. */
Test(cuda_pipeline, auto_does_not_fall_back_to_the_cpu)
{
    gpuserve_context *context = make_context(2);
    gpuserve_model_options options = options_on("auto:limit=2,include_unknown=yes", 1);
    gpuserve_model *model = open_with(context, MODEL, &options);

    expect_info(model, "\"device\": \"cuda:0,cuda:1\"");
    gpuserve_model_close(&model);
    set_budget(context, "cuda:1", 100000);
    expect_refused(context, MODEL, &options, GPUSERVE_E_TOO_LARGE, "the budget of cuda:1");
    gpuserve_context_unref(&context);
}

/* ---------------------------------------------------------------------------------- failures */

/* Calls of CUDA in the load fail in turn. */
Test(cuda_pipeline, a_load_that_fails_leaves_nothing, .timeout = 240, .disabled = FOR_RACES)
{
    const gpuserve_model_options options = options_on("cuda:*", 1);
    int n_failed = 0;

    for (uint64_t n = 1;; n += IS_SANITIZED ? 61 : 31) {
        gpuserve_context *context = make_context(2);
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model *model = NULL;
        struct gsv_emu_counters c;
        gpuserve_status st;
        bool has_failed;

        gsv_emu_fail_call(n, 2); /* out of memory */
        st = gpuserve_model_open(&model, context, MODEL, &options, &error);
        has_failed = gsv_emu_failed_call() != NULL;
        gsv_emu_fail_call(0, 0);
        cr_expect(st == GPUSERVE_OK || (has_failed && error.message[0]), "call %llu: %s",
                  (unsigned long long)n, error.message);
        n_failed += st != GPUSERVE_OK;
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

/* Calls of CUDA in a batch fail in turn: its caller gets the error, and the next batch is right. */
Test(cuda_pipeline, a_batch_that_fails_is_the_only_one, .timeout = 240)
{
    gpuserve_context *context = make_context(2);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    const gpuserve_model_options options = options_on("cuda:*", 1);
    gpuserve_model *model = open_with(context, MODEL, &options);
    int n_failed = 0;

    for (uint64_t n = 1;; n += FOR_RACES ? 31 : IS_SANITIZED ? 17 : 5) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        float vector[DIM];
        gpuserve_status st;
        bool has_failed;

        gsv_emu_fail_call(n, 1); /* an invalid value */
        st = gpuserve_embed(model, &texts[n % N_TEXTS], 1, vector, DIM, NULL, &error);
        has_failed = gsv_emu_failed_call() != NULL;
        gsv_emu_fail_call(0, 0);
        n_failed += st != GPUSERVE_OK;
        if (st == GPUSERVE_OK)
            cr_expect_eq(memcmp(vector, right + n % N_TEXTS * DIM, sizeof(vector)), 0);
        else
            cr_expect(has_failed && error.message[0], "call %llu", (unsigned long long)n);
        if (!has_failed)
            break;
        cr_assert_eq(gpuserve_embed(model, texts, 1, vector, DIM, NULL, &error), GPUSERVE_OK,
                     "after call %llu: %s", (unsigned long long)n, error.message);
        cr_expect_eq(memcmp(vector, right, sizeof(vector)), 0);
    }
    cr_expect_geq(n_failed, IS_SANITIZED ? 1 : 4);
    expect_right(model, right);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* ------------------------------------------------------------------------------ lost devices */

static void wait_while_moving(gpuserve_model *model)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const time_t begin = time(NULL);

    while (gpuserve_model_ready(model, &error) == GPUSERVE_E_BUSY) {
        cr_assert_lt(time(NULL) - begin, 120, "still moving: %s", error.message);
        usleep(1000);
    }
}

/* Calls of CUDA of a batch that is replayed. */
static uint64_t calls_of_a_batch(gpuserve_model *model)
{
    struct gsv_emu_counters before, after;
    float vector[DIM];

    for (int i = 0; i < 3; i++)
        embed_first(model, vector, DIM);
    gsv_emu_get_counters(&before);
    embed_first(model, vector, DIM);
    gsv_emu_get_counters(&after);
    return after.calls - before.calls;
}

/* Loses the first device of a pipeline, or the last one. */
static gpuserve_model *lose_one(gpuserve_context *context, uint32_t policy, const float *right,
                                bool last)
{
    gpuserve_model_options options = options_on("cuda:*", 1);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model;
    float vector[DIM];

    options.on_device_lost = policy;
    model = open_with(context, MODEL, &options);
    expect_right(model, right);
    gsv_emu_fail_call(last ? calls_of_a_batch(model) - 2 : 3, 719);
    cr_expect_eq(gpuserve_embed(model, texts, 1, vector, DIM, NULL, &error), GPUSERVE_E_DEVICE);
    cr_expect_not_null(strstr(error.message, "719"), "%s", error.message);
    cr_expect_not_null(gsv_emu_failed_call());
    wait_while_moving(model);
    return model;
}

static void expect_lost(bool last)
{
    gpuserve_context *context = make_context(2);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    gpuserve_model *model = lose_one(context, GPUSERVE_LOST_FAIL, right, last);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float vector[DIM];

    for (int i = 0; i < 2; i++) {
        cr_expect_eq(gpuserve_embed(model, texts, 1, vector, DIM, NULL, &error), GPUSERVE_E_DEVICE);
        cr_expect_not_null(strstr(error.message, "719"), "%s", error.message);
    }
    cr_expect_eq(gpuserve_model_ready(model, &error), GPUSERVE_E_DEVICE);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(cuda_pipeline, lost_with_its_first_device)
{
    expect_lost(false);
}

Test(cuda_pipeline, lost_with_its_last_device)
{
    expect_lost(true);
}

Test(cuda_pipeline, moves_to_the_cpu)
{
    gpuserve_context *context = make_context(2);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    gpuserve_model *model = lose_one(context, GPUSERVE_LOST_CPU, right, false);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float vector[DIM];

    expect_info(model, "\"device\": \"cpu\"");
    cr_expect_eq(gpuserve_embed(model, texts, 1, vector, DIM, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
    for (int i = 0; i < DIM; i++)
        cr_expect_float_eq(vector[i], right[i], 2e-2f);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(cuda_pipeline, moves_to_the_others_of_three)
{
    gpuserve_context *context = make_context(3);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    gpuserve_model *model = lose_one(context, GPUSERVE_LOST_GPU, right, false);
    struct share shares[2];

    expect_info(model, "\"device\": \"cuda:1,cuda:2\"");
    (void)read_shares(model, shares, 2);
    expect_right(model, right);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(cuda_pipeline, moves_to_the_one_that_is_left)
{
    gpuserve_context *context = make_context(2);
    const float *right = right_vectors(context, GPUSERVE_DTYPE_FLOAT16);
    gpuserve_model *model = lose_one(context, GPUSERVE_LOST_GPU_OR_CPU, right, true);
    char info[8192];

    expect_info(model, "\"device\": \"cuda:0\"");
    read_info(model, info, sizeof(info));
    cr_expect_null(strstr(info, "\"pipeline\""), "%s", info);
    expect_right(model, right);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}
