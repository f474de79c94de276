/*
 * test_threads.c - sixteen threads open, embed, submit, cancel, swap, suspend, query and close at
 * random; at the end the process has no extra threads, descriptors or memory.
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* WIDTH is the row size of the small model that is opened, swapped and suspended; DIM that of
 * splade-tiny. */
enum { N_THREADS = 16, N_STEPS = 100, WIDTH = FOLDER_HIDDEN, DIM = 128, N_TEXTS = 12 };
enum { CACHE_BYTES = 4000 };

struct stage {
    gpuserve_context *context;
    gpuserve_model *model; /* shared by all */
    const char *path;
    const char *const *texts;
    const float *want; /* [N_TEXTS, WIDTH] */
    atomic_int n_wrong;
    atomic_int n_callbacks;
};

struct actor {
    struct stage *stage;
    uint32_t seed;
};

static void count_callback(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct stage *stage = user;

    (void)request;
    (void)status;
    atomic_fetch_add(&stage->n_callbacks, 1);
}

static void check(struct stage *stage, const float *rows, size_t first, size_t n)
{
    if (memcmp(rows, stage->want + first * WIDTH, n * WIDTH * sizeof(float)) != 0)
        atomic_fetch_add(&stage->n_wrong, 1);
}

static void blocking(struct stage *stage, gpuserve_model *model, size_t first, size_t n)
{
    float rows[N_TEXTS * WIDTH];

    if (gpuserve_embed(model, stage->texts + first, n, rows, n * WIDTH, NULL, NULL) != GPUSERVE_OK)
        atomic_fetch_add(&stage->n_wrong, 1);
    check(stage, rows, first, n);
}

static void asynchronous(struct stage *stage, size_t first, size_t n, bool cancels)
{
    float rows[N_TEXTS * WIDTH];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_request *request = NULL;
    gpuserve_status st;

    job.n_items = n;
    job.texts = stage->texts + first;
    job.output = rows;
    job.output_capacity = n * WIDTH;
    memset(rows, 0, sizeof(rows));
    if (gpuserve_submit(&request, stage->model, &job, count_callback, stage, NULL) != GPUSERVE_OK) {
        atomic_fetch_add(&stage->n_wrong, 1);
        return;
    }
    if (cancels)
        gpuserve_cancel(request);
    st = gpuserve_wait(request, -1, NULL);
    if (st == GPUSERVE_OK)
        check(stage, rows, first, n);
    else if (!cancels || st != GPUSERVE_E_CANCELLED)
        atomic_fetch_add(&stage->n_wrong, 1);
    gpuserve_request_free(&request);
}

/* With a deadline that may expire in any state, a priority class and a cache mode. */
static void in_a_hurry(struct stage *stage, uint32_t *seed, size_t first, size_t n)
{
    float rows[N_TEXTS * WIDTH];
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_status st;

    job.n_items = n;
    job.texts = stage->texts + first;
    job.output = rows;
    job.output_capacity = n * WIDTH;
    job.result = &result;
    job.deadline_us = 1 + next_random(seed) % 3000;
    job.priority = next_random(seed) % 3;
    job.cache = next_random(seed) % 3;
    st = gpuserve_run(stage->model, &job, NULL);
    if (st == GPUSERVE_OK)
        check(stage, rows, first, n);
    if (st != GPUSERVE_OK && st != GPUSERVE_E_EXPIRED)
        atomic_fetch_add(&stage->n_wrong, 1);
    if ((st == GPUSERVE_OK) != (result.n_tokens > 0))
        atomic_fetch_add(&stage->n_wrong, 1);
}

/* A chain of requests: each callback frees its request and submits the next one. */
struct chain {
    struct stage *stage;
    float row[WIDTH];
    size_t text;
    atomic_int n_left; /* 0: the chain has ended */
};

static void submit_link(struct chain *chain, gpuserve_status allowed);

static void next_link(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct chain *chain = user;

    if (status == GPUSERVE_OK)
        check(chain->stage, chain->row, chain->text, 1);
    else
        atomic_fetch_add(&chain->stage->n_wrong, 1);
    gpuserve_request_free(&request);
    if (atomic_fetch_sub(&chain->n_left, 1) > 1) /* at 0 the chain is freed */
        submit_link(chain, GPUSERVE_E_BUSY);
}

/* `allowed`: status that a suspended model returns to a callback, which ends the chain. */
static void submit_link(struct chain *chain, gpuserve_status allowed)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_request *request = NULL;
    gpuserve_status st;

    job.n_items = 1;
    job.texts = &chain->stage->texts[chain->text];
    job.output = chain->row;
    job.output_capacity = WIDTH;
    job.cache = GPUSERVE_CACHE_OFF; /* forces a computation */
    st = gpuserve_submit(&request, chain->stage->model, &job, next_link, chain, NULL);
    if (st == GPUSERVE_OK)
        return; /* the chain may be freed already */
    if (st != allowed)
        atomic_fetch_add(&chain->stage->n_wrong, 1);
    atomic_store(&chain->n_left, 0);
}

static void chain_of_callbacks(struct stage *stage, size_t text)
{
    struct chain chain = { .stage = stage, .text = text };

    atomic_store(&chain.n_left, 5);
    submit_link(&chain, GPUSERVE_OK);
    while (atomic_load(&chain.n_left) > 0)
        sched_yield();
}

/* Closes the model with a request in flight; reads its rows afterwards. */
static void submit_and_close(struct stage *stage, size_t first, size_t n)
{
    float rows[N_TEXTS * WIDTH];
    gpuserve_model *own = NULL;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_request *request = NULL;

    job.n_items = n;
    job.texts = stage->texts + first;
    job.output = rows;
    job.output_capacity = n * WIDTH;
    if (gpuserve_model_open(&own, stage->context, stage->path, NULL, NULL) != GPUSERVE_OK ||
        gpuserve_submit(&request, own, &job, count_callback, stage, NULL) != GPUSERVE_OK)
        atomic_fetch_add(&stage->n_wrong, 1);
    gpuserve_model_close(&own);
    if (gpuserve_wait(request, 0, NULL) != GPUSERVE_OK)
        atomic_fetch_add(&stage->n_wrong, 1);
    check(stage, rows, first, n);
    gpuserve_request_free(&request);
}

static void open_use_close(struct stage *stage, size_t first, size_t n)
{
    gpuserve_model *own = NULL;

    if (gpuserve_model_open(&own, stage->context, stage->path, NULL, NULL) != GPUSERVE_OK) {
        atomic_fetch_add(&stage->n_wrong, 1);
        return;
    }
    blocking(stage, own, first, n);
    gpuserve_model_close(&own);
}

/* Swaps in the same model with warm-up. */
static void swap(struct stage *stage)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    uint32_t changes = UINT32_MAX;

    options.cache_bytes = CACHE_BYTES;
    options.warmup = 1;
    if (gpuserve_model_swap(stage->model, stage->path, &changes, &options, NULL, NULL) !=
            GPUSERVE_OK ||
        changes != 0)
        atomic_fetch_add(&stage->n_wrong, 1);
}

/* Requests of other threads resume it meanwhile. */
static void suspend(struct stage *stage, bool resumes)
{
    if (gpuserve_model_suspend(stage->model, NULL) != GPUSERVE_OK ||
        (resumes && gpuserve_model_resume(stage->model, NULL) != GPUSERVE_OK))
        atomic_fetch_add(&stage->n_wrong, 1);
}

static void ask(struct stage *stage)
{
    int32_t ids[64];
    size_t n;

    if (gpuserve_tokenize(stage->model, "some words", 10, ids, NULL, 64, &n, NULL, NULL) !=
            GPUSERVE_OK ||
        gpuserve_model_info(stage->model, NULL, 0, &n, NULL) != GPUSERVE_OK ||
        gpuserve_model_ready(stage->model, NULL) != GPUSERVE_OK ||
        gpuserve_model_dim(stage->model) != WIDTH)
        atomic_fetch_add(&stage->n_wrong, 1);
}

static void ask_context(struct stage *stage)
{
    gpuserve_stats stats = { .struct_size = sizeof(stats) };
    gpuserve_device_info device = { .struct_size = sizeof(device) };
    gpuserve_model *found = NULL;
    size_t n;

    if (gpuserve_context_metrics(stage->context, NULL, 0, &n, NULL) != GPUSERVE_OK ||
        gpuserve_context_models(stage->context, NULL, 0, &n, NULL) != GPUSERVE_OK ||
        gpuserve_context_stats(stage->context, &stats, NULL) != GPUSERVE_OK ||
        gpuserve_device_list(stage->context, &device, 1, &n, NULL) != GPUSERVE_OK || n < 1 ||
        gpuserve_device_select(stage->context, "cpu", &device, 1, NULL, NULL, 0, NULL) !=
            GPUSERVE_OK ||
        gpuserve_device_refresh(stage->context, &device, NULL) != GPUSERVE_OK ||
        gpuserve_device_report(stage->context, NULL, 0, &n, NULL) != GPUSERVE_OK ||
        gpuserve_context_set_budget(stage->context, "cpu", UINT64_C(1) << 40, NULL) !=
            GPUSERVE_OK ||
        gpuserve_context_find(&found, stage->context, "shared", NULL, NULL) != GPUSERVE_OK)
        atomic_fetch_add(&stage->n_wrong, 1);
    gpuserve_model_close(&found);
}

static void *act(void *argument)
{
    struct actor *actor = argument;
    struct stage *stage = actor->stage;

    for (size_t step = 0; step < N_STEPS; step++) {
        const size_t first = next_random(&actor->seed) % N_TEXTS;
        const size_t n = 1 + next_random(&actor->seed) % (N_TEXTS - first);

        switch (next_random(&actor->seed) % 18) {
        case 0:
            if (next_random(&actor->seed) % 2)
                open_use_close(stage, first, n);
            else
                submit_and_close(stage, first, n);
            break;
        case 1:
            ask(stage);
            ask_context(stage);
            break;
        case 16:
            swap(stage);
            break;
        case 17:
            suspend(stage, first % 2);
            break;
        case 2:
            chain_of_callbacks(stage, first);
            break;
        case 3:
        case 4:
            asynchronous(stage, first, n, true);
            break;
        case 5:
        case 6:
            in_a_hurry(stage, &actor->seed, first, n);
            break;
        case 7:
        case 8:
        case 9:
            asynchronous(stage, first, n, false);
            break;
        default:
            blocking(stage, stage->model, first, n);
        }
    }
    return NULL;
}

Test(threads, sixteen_do_everything_at_once)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options model_options = GPUSERVE_MODEL_OPTIONS_INIT;
    static const char *const texts[N_TEXTS] = {
        "w10",     "w11 w10",        "w10 w12 w13", "w20 w21 w22 w10",
        "w30 w31", "w5 w6 w7 w8 w9", "w40 w41 w42", "w10 w11 w12 w14",
        "w15",     "w16 w17 w18",    "w19 w23",     "w24 w25 w26 w27"
    };
    struct folder folder;
    struct stage stage = { .texts = texts };
    struct actor actors[N_THREADS];
    pthread_t threads[N_THREADS];
    float want[N_TEXTS * WIDTH];

    options.n_threads = 2;
    folder_make(&folder, "bert");
    stage.path = folder.path;
    options.plugin_dir = "/nonexistent";
    cr_assert_eq(gpuserve_context_create(&stage.context, &options, NULL), GPUSERVE_OK);
    model_options.cache_bytes = CACHE_BYTES; /* for a few rows: hits and misses */
    model_options.name = "shared";
    cr_assert_eq(gpuserve_model_open(&stage.model, stage.context, stage.path, &model_options, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(
        gpuserve_embed(stage.model, stage.texts, N_TEXTS, want, N_TEXTS * WIDTH, NULL, NULL),
        GPUSERVE_OK);
    stage.want = want;
    for (uint32_t i = 0; i < N_THREADS; i++) {
        actors[i] = (struct actor){ &stage, i * 977 + 1 };
        cr_assert_eq(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
    }
    for (uint32_t i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(atomic_load(&stage.n_wrong), 0);
    cr_expect_gt(atomic_load(&stage.n_callbacks), 0);
    gpuserve_model_close(&stage.model);
    gpuserve_context_unref(&stage.context);
    folder_remove(&folder);
}

Test(threads, close_completes_submitted_jobs)
{
    size_t n_all;
    const char *const *texts = oracle_texts(&n_all);

    for (size_t round = 0; round < 10; round++) {
        gpuserve_model *model = open_real("splade-tiny", 0, 2);
        gpuserve_request *requests[20];
        static float rows[20][N_TEXTS * DIM];

        for (size_t i = 0; i < 20; i++) {
            gpuserve_job job = GPUSERVE_JOB_INIT;

            job.n_items = 1 + i % N_TEXTS;
            job.texts = texts;
            job.output = rows[i];
            job.output_capacity = N_TEXTS * DIM;
            cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, NULL), GPUSERVE_OK);
            if (i % 3 == 0)
                gpuserve_cancel(requests[i]);
        }
        gpuserve_model_close(&model);
        for (size_t i = 0; i < 20; i++) {
            const gpuserve_status st = gpuserve_wait(requests[i], 0, NULL);

            cr_expect(st == GPUSERVE_OK || (i % 3 == 0 && st == GPUSERVE_E_CANCELLED), "%s",
                      gpuserve_status_name(st));
            gpuserve_request_free(&requests[i]);
        }
    }
}

Test(threads, opening_and_closing_leaves_no_thread_and_no_descriptor)
{
    static const char *const text[] = { "w10 w11" };
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    struct folder folder;
    float row[WIDTH];
    int threads = 0, descriptors = 0;

    folder_make(&folder, "bert");
    options.device = "cpu";
    for (int i = 0; i < 50; i++) {
        gpuserve_model *model = NULL;

        cr_assert_eq(gpuserve_model_open(&model, NULL, folder.path, &options, NULL), GPUSERVE_OK);
        cr_assert_geq(gpuserve_completion_fd(model), 0);
        cr_assert_eq(gpuserve_embed(model, text, 1, row, WIDTH, NULL, NULL), GPUSERVE_OK);
        gpuserve_model_close(&model);
        if (i == 0) {
            threads = settled_threads();
            descriptors = count_descriptors();
        }
    }
    cr_expect_eq(settled_threads(), threads);
    cr_expect_eq(count_descriptors(), descriptors);
    folder_remove(&folder);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CALLERS_STACK = 1 << 20 }; /* the callers' frames are larger */
#elif defined(__aarch64__)
enum { CALLERS_STACK = 128 << 10 }; /* the C library has no smaller stack */
#else
enum { CALLERS_STACK = 65536 };
#endif

static void *open_and_embed(void *failed)
{
    static const char *const text[] = { "a text" };
    gpuserve_model *model = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    static float row[384];

    *(bool *)failed = gpuserve_model_open(&model, NULL, real_model("all-MiniLM-L6-v2"), NULL,
                                          &error) != GPUSERVE_OK ||
                      gpuserve_embed(model, text, 1, row, 384, NULL, &error) != GPUSERVE_OK ||
                      gpuserve_model_info(model, NULL, 0, NULL, &error) != GPUSERVE_OK;
    gpuserve_model_close(&model);
    return NULL;
}

Test(threads, a_callers_small_stack_is_enough)
{
    pthread_attr_t attributes;
    pthread_t thread;
    bool failed = true;

    pthread_attr_init(&attributes);
    cr_assert_eq(pthread_attr_setstacksize(&attributes, CALLERS_STACK), 0);
    cr_assert_eq(pthread_create(&thread, &attributes, open_and_embed, &failed), 0);
    pthread_join(thread, NULL);
    cr_expect(!failed);
}
