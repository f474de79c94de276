/*
 * test_pairs.c - classifiers of text pairs, from text to logits, against transformers with the same
 * weights; and reranking with such a classifier.
 */
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LABELS = 4 };

static gpuserve_model *open_tiny(const char *name)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    char path[64];

    snprintf(path, sizeof(path), "models/%s", name);
    options.device = "cpu";
    cr_assert_eq(gpuserve_model_open(&model, NULL, test_data(path), &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    return model;
}

static json_t *read_pairs(const char *name)
{
    char path[96];
    json_t *rows;

    snprintf(path, sizeof(path), "models/%s/pairs.json", name);
    rows = json_load_file(test_data(path), 0, NULL);
    cr_assert(json_array_size(rows) > 10);
    return rows;
}

static const char *member(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static double logit(const json_t *row, size_t label)
{
    return json_real_value(json_array_get(json_object_get(row, "logits"), label));
}

static void compare(gpuserve_model *model, const json_t *row, uint32_t score, float *got)
{
    const char *const text = member(row, "text"), *const pair = member(row, "pair");
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    options.score = score;
    options.pairs = pair ? &pair : NULL;
    cr_assert_eq(gpuserve_classify(model, &text, 1, got, MAX_LABELS, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
}

/* Default activation: softmax for mutually exclusive labels, sigmoid for independent labels, none
 * for a regression. */
static double expected(const json_t *row, size_t label, size_t n, int kind)
{
    double sum = 0;

    for (size_t j = 0; j < n; j++)
        sum += exp(logit(row, j));
    if (kind == GPUSERVE_SCORE_SOFTMAX)
        return exp(logit(row, label)) / sum;
    return kind == GPUSERVE_SCORE_SIGMOID ? 1 / (1 + exp(-logit(row, label))) : logit(row, label);
}

Test(pairs, logits_and_scores_equal_transformers)
{
    static const struct {
        const char *name;
        int kind;
    } models[] = {
        { "bert-pairs", GPUSERVE_SCORE_SOFTMAX },
        { "bert-pairs-multi", GPUSERVE_SCORE_SIGMOID },
        { "bert-cross-encoder", GPUSERVE_SCORE_RAW },
    };

    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        gpuserve_model *model = open_tiny(models[m].name);
        json_t *rows = read_pairs(models[m].name);
        const size_t n = gpuserve_model_label_count(model);
        const json_t *row;
        size_t i;

        json_array_foreach(rows, i, row)
        {
            float raw[MAX_LABELS], scores[MAX_LABELS];

            cr_assert_eq(json_array_size(json_object_get(row, "logits")), n);
            compare(model, row, GPUSERVE_SCORE_RAW, raw);
            compare(model, row, GPUSERVE_SCORE_DEFAULT, scores);
            for (size_t j = 0; j < n; j++) {
                cr_expect_float_eq(raw[j], logit(row, j), 2e-5, "%s, row %zu, label %zu",
                                   models[m].name, i, j);
                cr_expect_float_eq(scores[j], expected(row, j, n, models[m].kind), 2e-5,
                                   "%s, row %zu, label %zu", models[m].name, i, j);
            }
        }
        json_decref(rows);
        gpuserve_model_close(&model);
    }
}

static uint32_t rerank_method(const gpuserve_model *model)
{
    gpuserve_model_properties properties = GPUSERVE_MODEL_PROPERTIES_INIT;

    cr_assert_eq(gpuserve_model_get_properties(model, &properties, NULL), GPUSERVE_OK);
    return properties.rerank_method;
}

Test(pairs, a_cross_encoder_reranks)
{
    gpuserve_model *model = open_tiny("bert-cross-encoder");
    json_t *rows = read_pairs("bert-cross-encoder");
    gpuserve_rerank_options options = GPUSERVE_RERANK_OPTIONS_INIT;
    const char *documents[16];
    double want[16];
    float scores[16], raw[16];
    size_t order[16], n = 0, i;
    const json_t *row;

    json_array_foreach(rows, i, row)
    {
        if (!member(row, "pair") || strcmp(member(row, "text"), "w1 w2 w3") != 0)
            continue;
        want[n] = logit(row, 0);
        documents[n++] = member(row, "pair");
    }
    cr_assert_geq(n, 3);
    cr_expect_eq(rerank_method(model), GPUSERVE_RERANK_CROSS_ENCODER);
    cr_assert_eq(
        gpuserve_rerank(model, "w1 w2 w3", documents, n, scores, order, n, NULL, NULL, NULL),
        GPUSERVE_OK);
    options.score = GPUSERVE_SCORE_RAW;
    cr_assert_eq(
        gpuserve_rerank(model, "w1 w2 w3", documents, n, raw, NULL, n, &options, NULL, NULL),
        GPUSERVE_OK);
    for (i = 0; i < n; i++) {
        cr_expect_float_eq(raw[i], want[i], 2e-5);
        cr_expect_float_eq(scores[i], 1 / (1 + exp(-want[i])), 1e-5);
        cr_expect(i == 0 || want[order[i - 1]] >= want[order[i]]);
    }
    options.query_prompt = "ask: ";
    cr_expect_eq(gpuserve_rerank(model, "q", documents, n, raw, NULL, n, &options, NULL, NULL),
                 GPUSERVE_E_INVALID);
    options.query_prompt = NULL;
    options.document_prompt = "document: ";
    cr_expect_eq(gpuserve_rerank(model, "q", documents, n, raw, NULL, n, &options, NULL, NULL),
                 GPUSERVE_E_INVALID);
    options.document_prompt = NULL;
    options.method = GPUSERVE_RERANK_COSINE;
    cr_expect_eq(gpuserve_rerank(model, "q", documents, n, raw, NULL, n, &options, NULL, NULL),
                 GPUSERVE_E_UNSUPPORTED);
    json_decref(rows);
    gpuserve_model_close(&model);
}

Test(pairs, a_classifier_of_labels_does_not_rerank)
{
    gpuserve_model *model = open_tiny("bert-pairs");
    const char *const document = "w1";
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float score;

    cr_expect_eq(rerank_method(model), GPUSERVE_RERANK_DEFAULT);
    cr_expect_eq(gpuserve_rerank(model, "w2", &document, 1, &score, NULL, 1, NULL, NULL, &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "3 labels"), "%s", error.message);
    gpuserve_model_close(&model);
}
