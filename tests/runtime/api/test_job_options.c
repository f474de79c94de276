/*
 * test_job_options.c - gpuserve_job as the options of calls that make the job themselves: fields
 * that they set or cannot hold are refused by name, all others are those of gpuserve_run().
 */
#include "tests/model/support.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { N = 2, MAX = 4096 };

static const char *const texts[N] = { "A dog runs", "the lazy fox" };
static const char *const seconds[N] = { "w30", "w40 w41" };
static gpuserve_error error = GPUSERVE_ERROR_INIT;

static gpuserve_model *open_model(const char *name)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.n_threads = 2;
    cr_assert_eq(gpuserve_model_open(&model, NULL, test_data(name), &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    return model;
}

static void expect_named(gpuserve_status got, const char *function, const char *field)
{
    char words[96];

    snprintf(words, sizeof(words), "%s() does not take job.%s: leave it zero", function, field);
    cr_expect_eq(got, GPUSERVE_E_INVALID, "%s", words);
    cr_expect_str_eq(error.message, words);
}

/* ------------------------------------------------------------------------- embed and classify */

static float output[MAX];
static const int32_t ids[] = { 2, 3 };
static const size_t sizes[N + 1] = { 0, 1, 2 };

/* Jobs with one field that gpuserve_embed() refuses; gpuserve_classify() takes the last two. */
static const struct {
    const char *field;
    gpuserve_job job;
} refused[] = {
#define WITH(name, value)                                        \
    {                                                            \
#name,                                                   \
        {                                                        \
            .struct_size = sizeof(gpuserve_job), .name = (value) \
        }                                                        \
    }
    WITH(task, GPUSERVE_TASK_CLASSIFY),
    WITH(n_items, N),
    WITH(texts, texts),
    WITH(text_sizes, sizes),
    WITH(ids, ids),
    WITH(id_offsets, sizes),
    WITH(prompt_in_ids, 1),
    WITH(output, output),
    WITH(output_capacity, MAX),
    WITH(output_stride, 64),
    WITH(precision, GPUSERVE_PRECISION_INT8),
    WITH(pairs, seconds),
    WITH(pair_sizes, sizes),
};
#define N_REFUSED (sizeof(refused) / sizeof(refused[0]))

Test(job_options, embed_and_classify_refuse_the_fields_that_they_set)
{
    gpuserve_model *embedder = open_model("long-texts/model");
    gpuserve_model *classifier = open_model("models/bert-pairs");

    for (size_t i = 0; i < N_REFUSED; i++) {
        const char *const field = refused[i].field;

        output[0] = 7;
        expect_named(gpuserve_embed(embedder, texts, N, output, MAX, &refused[i].job, &error),
                     "gpuserve_embed", field);
        if (i + 2 < N_REFUSED)
            expect_named(
                gpuserve_classify(classifier, texts, N, output, MAX, &refused[i].job, &error),
                "gpuserve_classify", field);
        cr_expect_eq(output[0], 7);
        expect_named(gpuserve_embed(embedder, NULL, 0, NULL, 0, &refused[i].job, &error),
                     "gpuserve_embed", field);
    }
    gpuserve_model_close(&embedder);
    gpuserve_model_close(&classifier);
}

/* Embeddings by both functions have the same bits, with every kind of field that both take. */
Test(job_options, embed_takes_the_other_fields_as_run)
{
    gpuserve_model *model = open_model("long-texts/model");
    const size_t dim = gpuserve_model_dim(model) / 2;
    gpuserve_item items[N] = { { 0 } };
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_trace trace = GPUSERVE_TRACE_INIT;
    size_t offsets[N + 1], want_offsets[N + 1];
    static float want[MAX], got[MAX], vectors[MAX], want_vectors[MAX];
    gpuserve_output more = { .task = GPUSERVE_TASK_TOKEN_VECTORS,
                             .rows = want_vectors,
                             .capacity = MAX };
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.dimensions = (uint32_t)dim;
    job.normalize = GPUSERVE_NORMALIZE_YES;
    job.prompt = "a cat ";
    job.truncation = GPUSERVE_TRUNCATE_STRICT;
    job.more = &more;
    job.n_more = 1;
    job.token_offsets = want_offsets;
    job.n_items = N;
    job.texts = texts;
    job.output = want;
    job.output_capacity = MAX;
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    job.n_items = job.output_capacity = 0;
    job.texts = NULL;
    job.output = NULL;
    more.rows = vectors;
    job.token_offsets = offsets;
    job.items = items;
    job.result = &result;
    job.trace = &trace;
    cr_assert_eq(gpuserve_embed(model, texts, N, got, MAX, &job, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_eq(memcmp(got, want, N * dim * sizeof(*got)), 0);
    cr_expect_eq(memcmp(offsets, want_offsets, sizeof(offsets)), 0);
    cr_expect_eq(memcmp(vectors, want_vectors, sizeof(vectors)), 0);
    cr_expect_eq(items[0].n_tokens, offsets[1]);
    cr_expect_eq(result.n_tokens, offsets[N]);
    cr_expect_gt(trace.completed_ns, trace.submitted_ns);
    job.heads = "*";
    cr_expect_eq(gpuserve_embed(model, texts, N, got, MAX, &job, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "job.heads"), "%s", error.message);
    gpuserve_model_close(&model);
}

Test(job_options, classify_takes_pairs_with_sizes)
{
    static const size_t bytes[N] = { 3, 3 };
    static const char *const cut[N] = { "w30", "w40" };
    gpuserve_model *model = open_model("models/bert-pairs");
    const size_t n = N * gpuserve_model_label_count(model);
    float want[16], got[16];
    gpuserve_job job = GPUSERVE_JOB_INIT;

    cr_assert_leq(n, 16);
    job.score = GPUSERVE_SCORE_RAW;
    job.pairs = cut;
    cr_assert_eq(gpuserve_classify(model, texts, N, want, n, &job, &error), GPUSERVE_OK, "%s",
                 error.message);
    job.pairs = seconds;
    job.pair_sizes = bytes;
    cr_assert_eq(gpuserve_classify(model, texts, N, got, n, &job, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_eq(memcmp(got, want, n * sizeof(*got)), 0);
    gpuserve_model_close(&model);
}

/* -------------------------------------------------------------------------- calls of several jobs
 */

/* Sets each byte of a job that is not of a field in `taken` and expects the call to refuse it. */
#define BYTES_OF(field)                                                      \
    {                                                                        \
        offsetof(gpuserve_job, field), sizeof(((gpuserve_job *)NULL)->field) \
    }

struct bytes {
    size_t offset, size;
};

static const struct bytes settings[] = {
    BYTES_OF(struct_size), BYTES_OF(deadline_us),          BYTES_OF(priority), BYTES_OF(cache),
    BYTES_OF(client),      BYTES_OF(expected_fingerprint), BYTES_OF(result),
};

static bool is_in(size_t at, const struct bytes *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at >= fields[i].offset && at < fields[i].offset + fields[i].size)
            return true;
    return false;
}

typedef gpuserve_status (*run_fn)(const gpuserve_job *job);

static void expect_others_refused(run_fn run, const char *function, const struct bytes *taken,
                                  size_t n_taken)
{
    char words[64];
    size_t n = 0;

    snprintf(words, sizeof(words), "%s() does not take job.", function);
    for (size_t at = 0; at < sizeof(gpuserve_job); at++) {
        gpuserve_job job = GPUSERVE_JOB_INIT;

        if (is_in(at, settings, sizeof(settings) / sizeof(settings[0])) ||
            is_in(at, taken, n_taken))
            continue;
        ((unsigned char *)&job)[at] = 1;
        cr_expect_eq(run(&job), GPUSERVE_E_INVALID, "byte %zu", at);
        cr_expect_eq(strncmp(error.message, words, strlen(words)), 0, "byte %zu: %s", at,
                     error.message);
        n++;
    }
    cr_expect_gt(n, 150);
}

static gpuserve_model *model;
static gpuserve_long_texts *long_texts;
static gpuserve_entity_query *query;

static gpuserve_status rerank(const gpuserve_job *job)
{
    float scores[N];

    return gpuserve_rerank(model, "A cat", texts, N, scores, NULL, N, NULL, job, &error);
}

static gpuserve_status run_long_texts(const gpuserve_job *job)
{
    return gpuserve_long_texts_run(long_texts, model, job, &error);
}

static gpuserve_status run_query(const gpuserve_job *job)
{
    return gpuserve_entity_query_run(query, job, &error);
}

Test(job_options, rerank_refuses_all_but_settings_truncation_and_items)
{
    static const struct bytes taken[] = { BYTES_OF(truncation), BYTES_OF(items) };
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_item items[N] = { { 0 } };

    model = open_model("long-texts/model");
    expect_others_refused(rerank, "gpuserve_rerank", taken, 2);
    job.items = items;
    cr_expect_eq(rerank(&job), GPUSERVE_OK, "%s", error.message);
    cr_expect_gt(items[0].n_tokens, 2);
    job.truncation = 9;
    cr_expect_eq(rerank(&job), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "job.truncation is 9"), "%s", error.message);
    gpuserve_model_close(&model);
}

Test(job_options, long_texts_refuse_all_but_settings)
{
    static const char *const text = "A dog";

    model = open_model("long-texts/model");
    cr_assert_eq(gpuserve_long_texts_create(&long_texts, model, &text, NULL, 1, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    expect_others_refused(run_long_texts, "gpuserve_long_texts_run", NULL, 0);
    gpuserve_long_texts_free(&long_texts);
    gpuserve_model_close(&model);
}

Test(job_options, entity_queries_refuse_all_but_settings_and_items)
{
    static const struct bytes taken[] = { BYTES_OF(items) };
    static const char *const text = "Ada lives in London", *const label = "person";
    gpuserve_entity_request request = GPUSERVE_ENTITY_REQUEST_INIT;

    model = open_model("entities/bert-spans");
    request.texts = &text;
    request.n_texts = 1;
    request.labels = &label;
    request.n_labels = 1;
    cr_assert_eq(gpuserve_entity_query_create(&query, model, &request, &error), GPUSERVE_OK, "%s",
                 error.message);
    expect_others_refused(run_query, "gpuserve_entity_query_run", taken, 1);
    gpuserve_entity_query_free(&query);
    gpuserve_model_close(&model);
}
