/*
 * test_sharing.c - jobs on equal texts that differ in one property share no batch, no computation
 * and no cache row.
 */
#include "tests/runtime/fake.h"

#include "lib/text/tokenizer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FLOATS = FAKE_MAX_TOKENS * FAKE_VOCAB };

static const char *const text[] = { "one two three" };

/* Job fields other than the text. */
struct kind {
    uint32_t task, dimensions, normalize, score;
    const char *prompt, *prompt_name;
};

/* All other fields of the batch key are equal: an empty prompt skips [CLS], no prompt does not. */
static const struct {
    const char *member;
    struct kind a, b;
    bool may_share_a_batch; /* each text has its own value in it */
} pairs[] = {
    { "task", { .task = GPUSERVE_TASK_TOKEN_VECTORS }, { .task = GPUSERVE_TASK_SPARSE } },
    { "dimensions", { .dimensions = 0 }, { .dimensions = 3 } },
    { "normalize",
      { .normalize = GPUSERVE_NORMALIZE_NO },
      { .normalize = GPUSERVE_NORMALIZE_YES } },
    { "score",
      { .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_RAW },
      { .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_SIGMOID } },
    { "adapter",
      { .normalize = GPUSERVE_NORMALIZE_NO, .prompt_name = "default" },
      { .normalize = GPUSERVE_NORMALIZE_NO, .prompt_name = "adapted" },
      true },
    { "route",
      { .normalize = GPUSERVE_NORMALIZE_NO, .prompt_name = "default" },
      { .normalize = GPUSERVE_NORMALIZE_NO, .prompt_name = "routed" } },
    { "skip", { .prompt = "one " }, { .prompt = "one two " } },
};
#define N_PAIRS (sizeof(pairs) / sizeof(pairs[0]))

/* The prompt completes the text, so that the tokens are equal for any prompt. */
static gpuserve_job job_of(const struct kind *kind, const char **rest, float *row)
{
    gpuserve_job job = fake_job(rest, 1, row);

    *rest = text[0] + (kind->prompt ? strlen(kind->prompt) : 0);
    job.output_capacity = MAX_FLOATS;
    job.task = kind->task;
    job.dimensions = kind->dimensions;
    job.normalize = kind->normalize;
    job.score = kind->score;
    job.prompt = kind->prompt;
    job.prompt_name = kind->prompt_name;
    return job;
}

static float *make_row(void)
{
    float *row = calloc(MAX_FLOATS, sizeof(*row));

    cr_assert_not_null(row);
    return row;
}

static void expect_alone(gpuserve_model *model, const char *member, const struct kind *kind,
                         const float *row)
{
    const char *rest;
    float *want = make_row();
    gpuserve_job job = job_of(kind, &rest, want);

    job.cache = GPUSERVE_CACHE_OFF;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK, "%s", member);
    cr_expect_eq(memcmp(row, want, MAX_FLOATS * sizeof(*row)), 0, "%s: another's row", member);
    free(want);
}

/* Both jobs wait for the same worker, which puts all compatible jobs into one batch. */
static void run_both(gpuserve_model *model, const char *member, const struct kind *kinds[2],
                     uint32_t cache, int n_batches)
{
    static const char *const other[] = { "it keeps the worker" };
    float first[FAKE_DIM], *rows[2] = { make_row(), make_row() };
    const gpuserve_job blocker = fake_job(other, 1, first);
    const int running = fake_batches();
    gpuserve_request *requests[3];
    const char *rest[2];

    fake_hold();
    cr_assert_eq(gpuserve_submit(&requests[2], model, &blocker, NULL, NULL, NULL), GPUSERVE_OK);
    fake_wait_running(1);
    for (size_t i = 0; i < 2; i++) {
        gpuserve_job job = job_of(kinds[i], &rest[i], rows[i]);

        job.cache = cache;
        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, NULL), GPUSERVE_OK,
                     "%s", member);
    }
    fake_release();
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK, "%s", member);
        gpuserve_request_free(&requests[i]);
    }
    cr_expect_eq(fake_batches() - running, 1 + n_batches, "%s: %d batches", member,
                 fake_batches() - running - 1);
    for (size_t i = 0; i < 2; i++) {
        expect_alone(model, member, kinds[i], rows[i]);
        free(rows[i]);
    }
}

Test(sharing, a_batch_is_of_one_key)
{
    gpuserve_model *model = fake_open_one_worker(0);

    for (size_t i = 0; i < 2 * N_PAIRS; i++) {
        const struct kind *kinds[] = { &pairs[i / 2].a, &pairs[i / 2].b };
        const struct kind *turned[] = { kinds[1], kinds[0] };

        run_both(model, pairs[i / 2].member, i % 2 ? turned : kinds, GPUSERVE_CACHE_OFF,
                 pairs[i / 2].may_share_a_batch ? 1 : 2);
    }
    gpuserve_model_close(&model);
}

/* Equal tokens of one batch coalesce only if their rows are equal. */
Test(sharing, a_coalesced_row_is_of_one_key)
{
    gpuserve_model *model = fake_open_one_worker(0);

    for (size_t i = 0; i < N_PAIRS; i++) {
        const struct kind *kinds[] = { &pairs[i].a, &pairs[i].b };

        run_both(model, pairs[i].member, kinds, GPUSERVE_CACHE_DEFAULT,
                 pairs[i].may_share_a_batch ? 1 : 2);
    }
    gpuserve_model_close(&model);
}

Test(sharing, a_row_of_the_cache_is_of_one_key)
{
    for (size_t i = 0; i < N_PAIRS; i++) {
        gpuserve_model *model = fake_open_one_worker(1 << 20);
        const struct kind *kinds[] = { &pairs[i].a, &pairs[i].b };

        for (size_t k = 0; k < 2; k++) {
            const char *rest;
            float *row = make_row();
            gpuserve_result result = GPUSERVE_RESULT_INIT;
            gpuserve_job job = job_of(kinds[k], &rest, row);

            job.result = &result;
            cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
            cr_expect_eq(result.n_cached, 0, "%s: a row of another key", pairs[i].member);
            expect_alone(model, pairs[i].member, kinds[k], row);
            cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
            cr_expect_eq(result.n_cached, 1, "%s", pairs[i].member);
            free(row);
        }
        gpuserve_model_close(&model);
    }
}

/* A text pair, and the ids of its tokens as one text: equal ids with different types; the hash
 * covers only the ids. */
Test(sharing, equal_ids_of_other_types_are_computed_each)
{
    enum { N = 4 };
    static const char *const one[] = { "one" }, *const two[] = { "two" };
    const int32_t ids[N] = { 1, gsv_tokenizer_id(NULL, "one"), 2, gsv_tokenizer_id(NULL, "two") };
    const size_t offsets[] = { 0, N };
    gpuserve_model *model = fake_open_one_worker(0);
    float rows[2][N * FAKE_DIM], first[FAKE_DIM];
    gpuserve_job jobs[3] = { fake_job(one, 1, rows[0]), fake_job(NULL, 1, rows[1]),
                             fake_job(text, 1, first) };
    gpuserve_request *requests[3];

    jobs[0].pairs = two;
    jobs[1].ids = ids;
    jobs[1].id_offsets = offsets;
    for (size_t i = 0; i < 2; i++) {
        jobs[i].task = GPUSERVE_TASK_TOKEN_VECTORS;
        jobs[i].output_capacity = N * (size_t)FAKE_DIM;
    }
    fake_hold();
    for (size_t i = 3; i-- > 0;) { /* the last one keeps the worker busy */
        cr_assert_eq(gpuserve_submit(&requests[i], model, &jobs[i], NULL, NULL, NULL), GPUSERVE_OK);
        if (i == 2)
            fake_wait_running(1);
    }
    fake_release();
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
    }
    cr_expect_eq(fake_batches(), 2, "the two share a batch");
    for (size_t i = 0; i < N * FAKE_DIM; i++)
        cr_expect_float_eq(rows[0][i] - rows[1][i], i / FAKE_DIM == N - 1 ? 100000 : 0, 0.1,
                           "token %zu: %g and %g", i / FAKE_DIM, rows[0][i], rows[1][i]);
    gpuserve_model_close(&model);
}
