/*
 * test_nomem.c - each allocation fails in turn, once and permanently: an error, no leak, and the
 * model works again when memory is available.
 */
#include "tests/base/failing_malloc.h"
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char *const texts[] = { "a text of words", "another", "and a third one" };

static bool expected(gpuserve_status st)
{
    return st == GPUSERVE_OK || (st == GPUSERVE_E_NOMEM && failing_malloc_fired());
}

/* All calls that allocate, on an open model; outputs must be unchanged on failure. */
static void use(gpuserve_context *context, gpuserve_model *model, long n)
{
    float rows[3 * FAKE_DIM];
    char info[8192];
    int32_t ids[16];
    size_t n_tokens;
    gpuserve_job job = fake_job(texts, 3, rows);
    gpuserve_request *request = NULL;
    gpuserve_status st;

    memset(rows, 0x77, sizeof(rows));
    st = gpuserve_embed(model, texts, 3, rows, 3 * FAKE_DIM, NULL, NULL);
    cr_assert(expected(st), "embed: %s at allocation %ld", gpuserve_status_name(st), n);
    for (size_t i = 0; st != GPUSERVE_OK && i < sizeof(rows); i++)
        cr_assert_eq(((unsigned char *)rows)[i], 0x77);
    job.prompt = "prompt ";
    st = gpuserve_submit(&request, model, &job, NULL, NULL, NULL);
    cr_assert(expected(st), "submit: %s at allocation %ld", gpuserve_status_name(st), n);
    if (st == GPUSERVE_OK) {
        st = gpuserve_wait(request, -1, NULL);
        cr_assert(expected(st), "wait: %s at allocation %ld", gpuserve_status_name(st), n);
    }
    gpuserve_request_free(&request);
    st = gpuserve_tokenize(model, "a b c", 5, ids, NULL, 16, &n_tokens, NULL, NULL);
    cr_assert(expected(st), "tokenize: %s at allocation %ld", gpuserve_status_name(st), n);
    st = gpuserve_model_swap(model, NULL, NULL, NULL, NULL, NULL);
    cr_assert(expected(st), "swap: %s at allocation %ld", gpuserve_status_name(st), n);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK, "giving back needs nothing");
    st = gpuserve_embed(model, texts, 3, rows, 3 * FAKE_DIM, NULL, NULL);
    cr_assert(expected(st), "resume: %s at allocation %ld", gpuserve_status_name(st), n);
    st = gpuserve_context_models(context, info, sizeof(info), NULL, NULL);
    cr_assert(expected(st), "models: %s at allocation %ld", gpuserve_status_name(st), n);
    st = gpuserve_model_info(model, info, sizeof(info), NULL, NULL);
    cr_assert(expected(st), "info: %s at allocation %ld", gpuserve_status_name(st), n);
}

/* A text is joined with its prompt in a buffer that is kept for the next text, unless it is
 * large. */
Test(nomem, what_joined_a_long_text_is_given_back)
{
    enum { LONG = 4 << 20 };
    gpuserve_model *model = fake_open(1, 0, 0);
    char *text = calloc(LONG + 1, 1);
    const char *const long_text = text;
    float rows[3 * FAKE_DIM];
    gpuserve_job job = fake_job(texts, 3, rows);
    size_t before;

    job.prompt = "prompt ";
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    memset(text, 'a', LONG);
    job.texts = &long_text;
    job.n_items = 1;
    before = failing_malloc_live_bytes();
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_lt(failing_malloc_live_bytes(), before + LONG / 4);
    gpuserve_model_close(&model);
    free(text);
}

static void use_context(gpuserve_context *context, long n)
{
    gpuserve_device_info device = { .struct_size = sizeof(device) };
    gpuserve_footprint footprint = { .struct_size = sizeof(footprint) };
    char text[32768];
    size_t count;
    gpuserve_status st[6];

    st[0] = gpuserve_context_doctor(context, NULL, text, sizeof(text), NULL, NULL);
    st[1] = gpuserve_context_metrics(context, text, sizeof(text), NULL, NULL);
    st[2] = gpuserve_model_inspect(context, ".", NULL, text, sizeof(text), NULL, NULL);
    st[3] = gpuserve_model_footprint(context, ".", NULL, &footprint, NULL);
    st[4] = gpuserve_device_list(context, &device, 1, &count, NULL);
    st[5] = gpuserve_context_set_budget(context, "cpu", UINT64_C(1) << 40, NULL);
    for (size_t i = 0; i < 6; i++)
        cr_assert(expected(st[i]), "call %zu: %s at allocation %ld", i, gpuserve_status_name(st[i]),
                  n);
}

/* The life of a context and a model while allocation n fails. False if none failed. */
static bool live_through(long n, bool forever)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options model_options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    gpuserve_status st;
    bool fired;

    model_options.cache_bytes = 1 << 16; /* rows are cached if memory is available */
    options.n_threads = 2;
    options.plugin_dir = "/nonexistent";
    failing_malloc_arm(n, forever);
    st = gpuserve_context_create(&context, &options, NULL);
    cr_assert(expected(st), "create: %s at allocation %ld", gpuserve_status_name(st), n);
    cr_assert_eq(context == NULL, st != GPUSERVE_OK);
    if (context) {
        use_context(context, n);
        st = gpuserve_model_open(&model, context, ".", &model_options, NULL);
        cr_assert(expected(st), "open: %s at allocation %ld", gpuserve_status_name(st), n);
        cr_assert_eq(model == NULL, st != GPUSERVE_OK);
    }
    if (model)
        use(context, model, n);
    fired = failing_malloc_fired();
    failing_malloc_arm(0, false);
    if (model) { /* memory is available again */
        float row[FAKE_DIM];

        cr_assert_eq(gpuserve_embed(model, texts, 1, row, FAKE_DIM, NULL, NULL), GPUSERVE_OK);
    }
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    return fired;
}

Test(nomem, every_allocation_may_fail)
{
    for (int forever = 0; forever < 2; forever++) {
        long blocks, n = 1;

        live_through(0, false); /* one-time allocations of the C library and jansson */
        blocks = failing_malloc_live_blocks();
        while (live_through(n, forever)) {
            /* Fewer blocks are no leak: the C library may free thread caches at any time. */
            cr_assert_leq(failing_malloc_live_blocks(), blocks,
                          "%ld more blocks after allocation %ld failed",
                          failing_malloc_live_blocks() - blocks, n);
            n++;
        }
        cr_expect_gt(n, 50, "allocations were failed");
    }
}
