/*
 * test_outputs.c - jobs with several outputs: one pass, the rows of separate jobs, and no row of a
 * job with another set.
 */
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, N_TASKS = 4, STRIDE = FAKE_VOCAB + 3, FLOATS = N * FAKE_MAX_TOKENS * STRIDE };

static const char *const texts[N] = { "one two three", "four", "one two three five six" };

/* The fake model has all of these. */
static const uint32_t tasks[N_TASKS] = { GPUSERVE_TASK_EMBED, GPUSERVE_TASK_CLASSIFY,
                                         GPUSERVE_TASK_TOKEN_VECTORS, GPUSERVE_TASK_SPARSE };

struct results {
    float *rows[N_TASKS];
    size_t offsets[N + 1];
    gpuserve_item items[N];
};

static void make_results(struct results *results)
{
    memset(results, 0, sizeof(*results));
    for (size_t i = 0; i < N_TASKS; i++) {
        results->rows[i] = calloc(FLOATS, sizeof(float));
        cr_assert_not_null(results->rows[i]);
    }
}

static void free_results(struct results *results)
{
    for (size_t i = 0; i < N_TASKS; i++)
        free(results->rows[i]);
}

static bool has(unsigned set, size_t task)
{
    return (set >> task & 1) != 0;
}

/* A job with the outputs of bits in `set`, of which `main` is that of the job itself. */
static gpuserve_job job_of(unsigned set, size_t main, struct results *results,
                           gpuserve_output more[N_TASKS])
{
    gpuserve_job job = fake_job(texts, N, results->rows[main]);

    job.task = tasks[main];
    job.output_capacity = FLOATS;
    job.items = results->items;
    if (has(set, 2))
        job.token_offsets = results->offsets;
    for (size_t i = 0; i < N_TASKS; i++)
        if (i != main && has(set, i))
            more[job.n_more++] =
                (gpuserve_output){ .task = tasks[i], .rows = results->rows[i], .capacity = FLOATS };
    job.more = job.n_more ? more : NULL;
    return job;
}

/* Outputs outside of the set stay zeros. */
static void expect_equal(const struct results *got, const struct results *want, unsigned set)
{
    for (size_t i = 0; i < N_TASKS; i++) {
        const float *rows = got->rows[i];

        if (has(set, i))
            cr_expect_eq(memcmp(rows, want->rows[i], FLOATS * sizeof(float)), 0,
                         "set %u: task %u has other rows", set, tasks[i]);
        for (size_t j = 0; j < FLOATS && !has(set, i); j++)
            cr_assert_eq(rows[j], 0, "set %u: task %u was written", set, tasks[i]);
    }
    if (has(set, 2))
        cr_expect_eq(memcmp(got->offsets, want->offsets, sizeof(want->offsets)), 0, "set %u", set);
}

/* Each task in a job of its own. */
static void run_alone(gpuserve_model *model, struct results *results)
{
    make_results(results);
    for (size_t i = 0; i < N_TASKS; i++) {
        gpuserve_output more[N_TASKS];
        gpuserve_job job = job_of(1u << i, i, results, more);

        job.cache = GPUSERVE_CACHE_OFF;
        cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    }
}

Test(outputs, any_set_is_one_pass_with_the_rows_of_separate_jobs)
{
    gpuserve_model *model = fake_open_one_worker(0);
    struct results want;

    run_alone(model, &want);
    for (unsigned set = 1; set < 1u << N_TASKS; set++) {
        for (size_t main = 0; main < N_TASKS; main++) {
            struct results got;
            gpuserve_output more[N_TASKS];
            const int before = fake_batches();
            gpuserve_job job;

            if (!has(set, main))
                continue;
            make_results(&got);
            job = job_of(set, main, &got, more);
            job.cache = GPUSERVE_CACHE_OFF;
            cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
            cr_expect_eq(fake_batches() - before, 1, "set %u", set);
            expect_equal(&got, &want, set);
            free_results(&got);
        }
    }
    free_results(&want);
    gpuserve_model_close(&model);
}

/* All wait for one worker, on equal texts: those with equal sets may share a computation. */
static void run_together(gpuserve_model *model, uint32_t cache, const struct results *want)
{
    enum { SETS = (1 << N_TASKS) - 1, JOBS = 2 * SETS };
    static const char *const other[] = { "it keeps the worker" };
    static struct results got[JOBS];
    float first[FAKE_DIM];
    const gpuserve_job blocker = fake_job(other, 1, first);
    gpuserve_request *requests[JOBS + 1];

    fake_hold();
    cr_assert_eq(gpuserve_submit(&requests[JOBS], model, &blocker, NULL, NULL, NULL), GPUSERVE_OK);
    fake_wait_running(1);
    for (unsigned i = 0; i < JOBS; i++) {
        const unsigned set = i % SETS + 1;
        gpuserve_output more[N_TASKS];
        size_t main = i < SETS ? 0 : N_TASKS - 1;
        gpuserve_job job;

        while (!has(set, main))
            main = i < SETS ? main + 1 : main - 1;
        make_results(&got[i]);
        job = job_of(set, main, &got[i], more); /* `more` is read at submission */
        job.cache = cache;
        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, NULL), GPUSERVE_OK);
        memset(more, 0xff, sizeof(more));
    }
    fake_release();
    for (unsigned i = 0; i <= JOBS; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
    }
    for (unsigned i = 0; i < JOBS; i++) {
        expect_equal(&got[i], want, i % SETS + 1);
        cr_expect_eq(got[i].items[1].status, GPUSERVE_OK);
        free_results(&got[i]);
    }
}

Test(outputs, callers_of_different_sets_get_their_own_rows)
{
    gpuserve_model *model = fake_open_one_worker(0);
    struct results want;
    int before;

    run_alone(model, &want);
    before = fake_batches();
    run_together(model, GPUSERVE_CACHE_DEFAULT, &want);
    cr_expect_eq(fake_batches() - before, 16, "each set is one batch, its second job joins it: %d",
                 fake_batches() - before);
    run_together(model, GPUSERVE_CACHE_OFF, &want);
    free_results(&want);
    gpuserve_model_close(&model);
}

Test(outputs, a_row_of_the_cache_is_of_one_set)
{
    gpuserve_model *model = fake_open_one_worker(1 << 22);
    struct results want;

    run_alone(model, &want);
    for (unsigned set = 1; set < 1u << N_TASKS; set++) {
        for (int again = 0; again < 2; again++) {
            gpuserve_result result = GPUSERVE_RESULT_INIT;
            gpuserve_output more[N_TASKS];
            struct results got;
            size_t main = 0;
            gpuserve_job job;

            while (!has(set, main))
                main++;
            make_results(&got);
            job = job_of(set, main, &got, more);
            job.result = &result;
            cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
            cr_expect_eq(result.n_cached, again ? N : 0, "set %u", set);
            expect_equal(&got, &want, set);
            free_results(&got);
        }
    }
    free_results(&want);
    gpuserve_model_close(&model);
}

Test(outputs, have_strides_and_dimensions_of_their_own)
{
    gpuserve_model *model = fake_open_one_worker(0);
    struct results want, got;
    gpuserve_output more[N_TASKS];
    gpuserve_job job;

    run_alone(model, &want);
    make_results(&got);
    job = job_of(0xD, 0, &got, more);
    job.dimensions = 3;
    job.normalize = GPUSERVE_NORMALIZE_WHOLE;
    job.output_stride = 5;
    for (size_t i = 0; i < job.n_more; i++)
        more[i].stride = STRIDE;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < N; i++) {
        cr_expect_eq(memcmp(got.rows[0] + i * 5, want.rows[0] + i * FAKE_DIM, 3 * sizeof(float)),
                     0);
        cr_expect_eq(got.rows[0][i * 5 + 3], 0, "between the rows");
        cr_expect_eq(memcmp(got.rows[3] + i * STRIDE, want.rows[3] + i * FAKE_VOCAB,
                            FAKE_VOCAB * sizeof(float)),
                     0);
        cr_expect_eq(got.rows[3][i * STRIDE + FAKE_VOCAB], 0, "between the rows");
    }
    for (size_t i = 0; i < got.offsets[N]; i++)
        cr_expect_eq(
            memcmp(got.rows[2] + i * STRIDE, want.rows[2] + i * FAKE_DIM, FAKE_DIM * sizeof(float)),
            0, "token %zu", i);
    free_results(&got);
    free_results(&want);
    gpuserve_model_close(&model);
}

Test(outputs, a_nan_in_one_of_them_marks_the_item)
{
    static const char *const with_nan[N] = { "one", "NAN", "two" };
    gpuserve_model *model = fake_open_one_worker(0);
    struct results got;
    gpuserve_output more[N_TASKS];
    gpuserve_job job;

    make_results(&got);
    job = job_of(0x9, 3, &got, more); /* the word counts are finite */
    job.texts = with_nan;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_E_NUMERIC);
    for (size_t i = 0; i < N; i++)
        cr_expect_eq(got.items[i].status, i == 1 ? GPUSERVE_E_NUMERIC : GPUSERVE_OK);
    free_results(&got);
    gpuserve_model_close(&model);
}

/* clang-format off */
static float rows[FAKE_VOCAB];
#define OUTPUT(task) { task, 0, rows, FAKE_VOCAB, 0 }
static const struct {
    gpuserve_output more[6];
    size_t n_more;
    gpuserve_status status;
    const char *words, *hint;
} wrong[] = {
    { { OUTPUT(9) }, 1, GPUSERVE_E_INVALID, "job.more[0].task is 9, outside 0 to 5", "" },
    { { OUTPUT(3), OUTPUT(3) }, 2, GPUSERVE_E_INVALID, "job.more[1].task is 3 (sparse vector), which the job already has", "" },
    { { OUTPUT(0) }, 1, GPUSERVE_E_INVALID, "job.more[0].task is 0 (embedding), which the job already has", "" },
    { { { 3, 0, NULL, 9, 0 } }, 1, GPUSERVE_E_INVALID, "job.more[0].rows is NULL", "" },
    { { { 3, 1, rows, 9, 0 } }, 1, GPUSERVE_E_INVALID, "job.more[0].reserved is not zero", "" },
    { { { 3, 0, rows, FAKE_VOCAB - 1, 0 } }, 1, GPUSERVE_E_INVALID, "task 3 (sparse vector): the output has capacity for 999 floats, 1 rows of 1000 need 1000", "" },
    { { { 3, 0, rows, FAKE_VOCAB, 9 } }, 1, GPUSERVE_E_INVALID, "task 3 (sparse vector): output_stride is 9, less than the row width 1000", "" },
    { { { 2, 0, rows, 8 * 5 - 1, 0 } }, 1, GPUSERVE_E_INVALID, "task 2 (token vectors): the output has capacity for 39 floats, 5 rows of 8 need 40", "" },
    { { OUTPUT(4) }, 1, GPUSERVE_E_UNSUPPORTED, "job.more[0].task is 4 (token labels): the model is not a token classifier", "the model's outputs: token vectors, embedding, sparse vector, labels" },
    { { OUTPUT(5) }, 1, GPUSERVE_E_UNSUPPORTED, "job.more[0].task is 5 (MaxSim): the model does not support MaxSim", "the model's outputs: token vectors, embedding, sparse vector, labels" },
    { { OUTPUT(1), OUTPUT(2), OUTPUT(3), OUTPUT(4), OUTPUT(5), OUTPUT(5) }, 6, GPUSERVE_E_INVALID, "job.n_more is 6, the limit is 5", "" },
};
/* clang-format on */

Test(outputs, that_are_wrong_are_refused_by_name)
{
    gpuserve_model *model = fake_open_one_worker(0);
    float vector[FAKE_DIM];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = fake_job(texts, 1, vector);

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        error = (gpuserve_error)GPUSERVE_ERROR_INIT;
        job.more = wrong[i].more;
        job.n_more = wrong[i].n_more;
        cr_expect_eq(gpuserve_run(model, &job, &error), wrong[i].status, "%zu: %s", i,
                     error.message);
        cr_expect_not_null(strstr(error.message, wrong[i].words), "%zu: %s", i, error.message);
        cr_expect_str_eq(error.hint, wrong[i].hint, "%zu: %s", i, error.hint);
    }
    job.more = NULL;
    job.n_more = 1;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID);
    cr_expect_not_null(strstr(error.message, "job.n_more is 1, but `more` is NULL"));
    cr_expect_eq(fake_batches(), 0, "nothing ran");
    gpuserve_model_close(&model);
}
