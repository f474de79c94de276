/*
 * test_rerank.c - order of reranked documents, on a fake model whose vectors the test can compute.
 */
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5 };

static const char *const documents[N] = { "cats eat mice", "the price of oil", "what do cats eat",
                                          "cats eat mice", "" };

static double cosine(const char *a, const char *b)
{
    float x[FAKE_DIM], y[FAKE_DIM];
    double dot = 0, xx = 0, yy = 0;

    fake_vector(a, x);
    fake_vector(b, y);
    for (size_t i = 0; i < FAKE_DIM; i++) {
        dot += (double)x[i] * y[i];
        xx += (double)x[i] * x[i];
        yy += (double)y[i] * y[i];
    }
    return dot / sqrt(xx * yy);
}

/* Expects decreasing scores, ties in document order, and each document exactly once. */
static void expect_order(const float *scores, const size_t *order, size_t n)
{
    for (size_t i = 1; i < n; i++)
        cr_expect(scores[order[i - 1]] > scores[order[i]] ||
                      (scores[order[i - 1]] == scores[order[i]] && order[i - 1] < order[i]),
                  "place %zu", i);
}

Test(rerank, scores_are_cosines_with_the_models_own_prompts)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    float scores[N];
    size_t order[N];
    gpuserve_item items[N];
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_model_properties properties = GPUSERVE_MODEL_PROPERTIES_INIT;
    uint64_t n_tokens = 7; /* of the query: words, prompt, [CLS], [SEP] */

    job.items = items;
    job.result = &result;
    cr_assert_eq(gpuserve_model_get_properties(model, &properties, NULL), GPUSERVE_OK);
    cr_expect_eq(properties.rerank_method, GPUSERVE_RERANK_COSINE);
    cr_assert_eq(gpuserve_rerank(model, "what do cats eat", documents, N, scores, order, N, NULL,
                                 &job, NULL),
                 GPUSERVE_OK);
    for (size_t i = 0; i < N; i++) {
        char document[64];

        snprintf(document, sizeof(document), "passage: %s", documents[i]);
        cr_expect_float_eq(scores[i], cosine("query: what do cats eat", document), 1e-6, "%zu", i);
        cr_expect_eq(items[i].status, GPUSERVE_OK);
        n_tokens += items[i].n_tokens;
    }
    cr_expect_eq(result.n_tokens, n_tokens, "%d", (int)result.n_tokens);
    cr_expect_str_eq(result.fingerprint, gpuserve_model_fingerprint(model));
    cr_expect_str_eq(result.device, "cpu");
    expect_order(scores, order, N);
    gpuserve_model_close(&model);
}

Test(rerank, prompts_and_top_are_as_asked)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    float scores[N];
    size_t order[N] = { 99, 99, 99, 99, 99 };
    gpuserve_rerank_options options = GPUSERVE_RERANK_OPTIONS_INIT;

    options.query_prompt = "ask ";
    options.document_prompt = "";
    options.top_n = 2;
    cr_assert_eq(
        gpuserve_rerank(model, "cats", documents, N, scores, order, N, &options, NULL, NULL),
        GPUSERVE_OK);
    for (size_t i = 0; i < N - 1; i++)
        cr_expect_float_eq(scores[i], cosine("ask cats", documents[i]), 1e-6, "%zu", i);
    cr_expect_lt(order[1], N);
    cr_expect_eq(order[2], 99); /* untouched */
    gpuserve_model_close(&model);
}

Test(rerank, many_documents_keep_their_places)
{
    enum { MANY = 9001 }; /* more than two blocks */
    gpuserve_model *model = fake_open(0, 0, 0);
    char(*texts)[16] = calloc(MANY, sizeof(*texts));
    const char **pointers = calloc(MANY, sizeof(*pointers));
    float *scores = calloc(MANY, sizeof(*scores));
    gpuserve_rerank_options options = GPUSERVE_RERANK_OPTIONS_INIT;
    size_t *order = calloc(MANY, sizeof(*order));

    for (size_t i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof(texts[i]), "word%zu", i % 97);
        pointers[i] = texts[i];
    }
    options.query_prompt = options.document_prompt = "";
    cr_assert_eq(
        gpuserve_rerank(model, "word5", pointers, MANY, scores, order, MANY, &options, NULL, NULL),
        GPUSERVE_OK);
    for (size_t i = 0; i < MANY; i++)
        cr_expect_float_eq(scores[i], cosine("word5", texts[i]), 1e-6, "%zu", i);
    expect_order(scores, order, MANY);
    free(texts);
    free(pointers);
    free(scores);
    free(order);
    gpuserve_model_close(&model);
}

Test(rerank, a_document_of_nan_is_last_and_told)
{
    static const char *const bad[3] = { "a NAN here", "cats", "dogs" };
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_item items[3];
    float scores[3];
    size_t order[3];

    job.items = items;
    cr_expect_eq(gpuserve_rerank(model, "cats", bad, 3, scores, order, 3, NULL, &job, &error),
                 GPUSERVE_E_NUMERIC);
    cr_expect_not_null(strstr(error.message, "document 0"), "%s", error.message);
    cr_expect(isnan(scores[0]) && isfinite(scores[1]) && isfinite(scores[2]));
    cr_expect_eq(order[2], 0);
    cr_expect_eq(items[0].status, GPUSERVE_E_NUMERIC);
    cr_expect_eq(items[1].status, GPUSERVE_OK);
    cr_expect_eq(gpuserve_rerank(model, "NAN", bad + 1, 2, scores, order, 3, NULL, &job, &error),
                 GPUSERVE_E_NUMERIC);
    cr_expect_eq(items[1].status, GPUSERVE_E_NUMERIC);
    gpuserve_model_close(&model);
}

Test(rerank, sizes_bound_texts)
{
    static const char *const joined[2] = { "cats and more", "dogs\0and" };
    static const size_t sizes[2] = { 4, 4 };
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_rerank_options options = GPUSERVE_RERANK_OPTIONS_INIT;
    float scores[2];

    options.document_sizes = sizes;
    options.query_size = 4;
    options.query_prompt = options.document_prompt = "";
    cr_assert_eq(gpuserve_rerank(model, "cats!", joined, 2, scores, NULL, 2, &options, NULL, NULL),
                 GPUSERVE_OK);
    cr_expect_float_eq(scores[0], 1, 1e-6);
    cr_expect_float_eq(scores[1], cosine("cats", "dogs"), 1e-6);
    gpuserve_model_close(&model);
}

static void expect_refused(gpuserve_model *model, const char *query, const char *const *texts,
                           size_t n, size_t capacity, const gpuserve_rerank_options *options,
                           const gpuserve_job *job, gpuserve_status status, const char *message)
{
    float scores[N] = { 7, 7, 7, 7, 7 };
    size_t order[N] = { 99, 99, 99, 99, 99 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_expect_eq(
        gpuserve_rerank(model, query, texts, n, scores, order, capacity, options, job, &error),
        status, "%s", message);
    cr_expect_not_null(strstr(error.message, message), "%s", error.message);
    cr_expect_eq(scores[0], 7);
    cr_expect_eq(order[0], 99);
}

Test(rerank, wrong_calls_are_refused_and_touch_nothing)
{
    static const char *const holes[2] = { "a", NULL };
    static const char *const bytes[2] = { "a", "b\xFF" };
    static const char *const broken[2] = { "a", "BREAK" };
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_rerank_options options = GPUSERVE_RERANK_OPTIONS_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    expect_refused(NULL, "q", documents, N, N, NULL, NULL, GPUSERVE_E_INVALID, "model");
    expect_refused(model, NULL, documents, N, N, NULL, NULL, GPUSERVE_E_INVALID, "`query` is NULL");
    expect_refused(model, "q\xC3", documents, N, N, NULL, NULL, GPUSERVE_E_INVALID,
                   "the query is not UTF-8 at byte 1");
    expect_refused(model, "q", NULL, N, N, NULL, NULL, GPUSERVE_E_INVALID, "documents");
    expect_refused(model, "q", holes, 2, N, NULL, NULL, GPUSERVE_E_INVALID, "document 1 is NULL");
    expect_refused(model, "q", bytes, 2, N, NULL, NULL, GPUSERVE_E_INVALID,
                   "the documents: item 1");
    expect_refused(model, "q", documents, N, N - 1, NULL, NULL, GPUSERVE_E_INVALID,
                   "capacity for 4 scores, the call has 5 documents");
    cr_expect_eq(gpuserve_rerank(model, "q", documents, N, NULL, NULL, N, NULL, NULL, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_str_eq(error.message, "`scores` is NULL");
    expect_refused(model, "q", broken, 2, N, NULL, NULL, GPUSERVE_E_DEVICE, "");
    options.method = GPUSERVE_RERANK_CROSS_ENCODER;
    expect_refused(model, "q", documents, N, N, &options, NULL, GPUSERVE_E_UNSUPPORTED,
                   "not a cross-encoder");
    options.method = 9;
    expect_refused(model, "q", documents, N, N, &options, NULL, GPUSERVE_E_INVALID, "method is 9");
    options.method = 0;
    options.score = GPUSERVE_SCORE_SOFTMAX;
    expect_refused(model, "q", documents, N, N, &options, NULL, GPUSERVE_E_INVALID, "score");
    options.score = 0;
    options.reserved = 1;
    expect_refused(model, "q", documents, N, N, &options, NULL, GPUSERVE_E_INVALID, "`reserved`");
    job.expected_fingerprint = "another";
    expect_refused(model, "q", documents, N, N, NULL, &job, GPUSERVE_E_MISMATCH, "another");
    job.expected_fingerprint = NULL;
    job.deadline_us = -1;
    expect_refused(model, "q", documents, N, N, NULL, &job, GPUSERVE_E_EXPIRED, "");
    job = (gpuserve_job){ 8 };
    expect_refused(model, "q", documents, N, N, NULL, &job, GPUSERVE_E_INVALID, "struct_size");
    options = (gpuserve_rerank_options){ 8 };
    expect_refused(model, "q", documents, N, N, &options, NULL, GPUSERVE_E_INVALID, "struct_size");
    cr_expect_eq(gpuserve_rerank(model, "q", NULL, 0, NULL, NULL, 0, NULL, NULL, NULL),
                 GPUSERVE_OK);
    gpuserve_model_close(&model);
}
