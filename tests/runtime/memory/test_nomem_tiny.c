/*
 * test_nomem_tiny.c - each allocation in a model's life fails in turn, once and permanently.
 *
 * From the directory to an answer and close. If the calls succeed anyway, the answer is the same.
 */
#include "tests/model/support.h"
#include "tests/base/failing_malloc.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { MAX = 64 };

static const char *const texts[2] = { "w1 w2 cab w3", "w9" };
static const char *const seconds[2] = { "w4 w5", "bad" };

static gpuserve_status embed(gpuserve_model *model, float *output)
{
    return gpuserve_embed(model, texts, 2, output, MAX, NULL, NULL);
}

static gpuserve_status classify(gpuserve_model *model, float *output)
{
    gpuserve_job options = GPUSERVE_JOB_INIT;

    options.pairs = seconds;
    return gpuserve_classify(model, texts, 2, output, MAX, &options, NULL);
}

static gpuserve_status rerank(gpuserve_model *model, float *output)
{
    size_t order[2];

    return gpuserve_rerank(model, texts[0], seconds, 2, output, order, 2, NULL, NULL, NULL);
}

static const struct life {
    const char *model;
    gpuserve_status (*run)(gpuserve_model *model, float *output);
} lives[] = {
    { "models/st-dense", embed },
    { "models/st-dense", rerank },
    { "models/bert-pairs", classify },
    { "models/bert-cross-encoder", rerank },
};

/* False if no allocation failed. */
static bool live_through(const struct life *life, const float *want, long n, bool forever)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    float got[MAX] = { 0 };
    gpuserve_status st;
    bool fired;

    context_options.n_threads = 2;
    context_options.plugin_dir = "/nonexistent";
    options.device = "cpu";
    failing_malloc_arm(n, forever);
    st = gpuserve_context_create(&context, &context_options, &error);
    if (st == GPUSERVE_OK)
        st = gpuserve_model_open(&model, context, test_data(life->model), &options, &error);
    if (st == GPUSERVE_OK)
        st = life->run(model, got);
    fired = failing_malloc_fired();
    if (!forever)
        gpuserve_model_close(&model); /* while memory may be short */
    failing_malloc_arm(0, false);
    cr_assert(st == GPUSERVE_OK || (st == GPUSERVE_E_NOMEM && fired), "%s, allocation %ld: %s: %s",
              life->model, n, gpuserve_status_name(st), error.message);
    if (st == GPUSERVE_OK)
        cr_assert_eq(memcmp(got, want, sizeof(got)), 0, "%s, allocation %ld", life->model, n);
    if (model) { /* memory is available again */
        memset(got, 0, sizeof(got));
        cr_assert_eq(life->run(model, got), GPUSERVE_OK);
        cr_assert_eq(memcmp(got, want, sizeof(got)), 0, "%s, allocation %ld", life->model, n);
    }
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    return fired;
}

static void answer(const struct life *life, float *output)
{
    gpuserve_model *model = NULL;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = "cpu";
    cr_assert_eq(gpuserve_model_open(&model, NULL, test_data(life->model), &options, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(life->run(model, output), GPUSERVE_OK);
    gpuserve_model_close(&model);
}

static void fail_each(bool forever)
{
    for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        float want[MAX] = { 0 };
        long blocks, n = 1;

        answer(&lives[i], want);
        live_through(&lives[i], want, 0, false); /* one-time allocations */
        blocks = failing_malloc_live_blocks();
        while (live_through(&lives[i], want, n, forever)) {
            cr_assert_leq(failing_malloc_live_blocks(), blocks, "%s: %ld more after allocation %ld",
                          lives[i].model, failing_malloc_live_blocks() - blocks, n);
            n++;
        }
        cr_expect_gt(n, 100, "%s: only %ld allocations", lives[i].model, n);
    }
}

Test(nomem_tiny, each_allocation_may_fail_once)
{
    fail_each(false);
}

Test(nomem_tiny, memory_may_end_at_each_allocation)
{
    fail_each(true);
}
