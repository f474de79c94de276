/*
 * test_entities.c - entities from labelled tokens: rejected calls, and how tokens are grouped.
 *
 * The comparison with transformers' pipeline is in tests/http/inference/test_entities.py,
 * tests/http/inference/test_tokenizers.py and tests/python/test_model.py.
 */
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The labels of bert-tokens. */
enum { O, B_PER, I_PER, B_LOC, I_LOC, MISC, N_LABELS };

static gpuserve_model *open_model(void)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_assert_eq(gpuserve_model_open(&model, NULL, test_data("models/bert-tokens"), NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gpuserve_model_label_count(model), N_LABELS);
    return model;
}

#define MAX 8

/* Tokens of one byte each with these labels; -1: a special token. */
struct row {
    int labels[MAX];
    size_t n, n_found;
    struct {
        uint32_t first, last;
        const char *name;
    } found[MAX];
};

static const struct row rows[] = {
    { { -1, -1 }, 2, 0, { { 0, 0, "" } } },
    { { 0 }, 0, 0, { { 0, 0, "" } } },
    { { -1, B_PER, I_PER, I_PER, -1 }, 5, 1, { { 1, 3, "PER" } } },
    { { B_PER, B_PER, I_LOC, I_LOC }, 4, 3, { { 0, 0, "PER" }, { 1, 1, "PER" }, { 2, 3, "LOC" } } },
    { { I_PER, I_PER, B_PER, O, O }, 5, 3, { { 0, 1, "PER" }, { 2, 2, "PER" }, { 3, 4, "O" } } },
    { { MISC, MISC, -1, MISC }, 4, 1, { { 0, 3, "MISC" } } },
};

Test(entities, neighbours_of_one_kind_are_one)
{
    gpuserve_model *model = open_model();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        float scores[MAX * N_LABELS] = { 0 };
        gpuserve_span spans[MAX] = { { 0, 0 } };
        gpuserve_entity found[MAX];
        size_t n = 99;

        for (size_t j = 0; j < row->n; j++) {
            const int label = row->labels[j];

            scores[j * N_LABELS + (size_t)(label < 0 ? O : label)] = (float)(j + 1);
            if (label >= 0)
                spans[j] = (gpuserve_span){ (uint32_t)j, (uint32_t)j + 1 };
        }
        cr_assert_eq(gpuserve_entities(model, scores, N_LABELS, NULL, 0, NULL, spans, row->n,
                                       GPUSERVE_AGGREGATION_SIMPLE, found, &n, NULL),
                     GPUSERVE_OK);
        cr_assert_eq(n, row->n_found, "row %zu: %zu", i, n);
        for (size_t j = 0; j < n; j++) {
            cr_expect_eq(found[j].first, row->found[j].first, "row %zu", i);
            cr_expect_eq(found[j].last, row->found[j].last, "row %zu", i);
            cr_expect_str_eq(gpuserve_entity_name(model, &found[j], GPUSERVE_AGGREGATION_SIMPLE),
                             row->found[j].name);
        }
        if (i == 5) /* mean over the tokens that are not special */
            cr_expect_float_eq(found[0].score, (1 + 2 + 4) / 3.0, 1e-6);
        cr_assert_eq(gpuserve_entities(model, scores, N_LABELS, NULL, 0, NULL, spans, row->n,
                                       GPUSERVE_AGGREGATION_NONE, found, &n, NULL),
                     GPUSERVE_OK);
        for (size_t j = 0; j < n; j++)
            cr_expect_str_eq(gpuserve_entity_name(model, &found[j], GPUSERVE_AGGREGATION_NONE),
                             gpuserve_model_label(model, (size_t)row->labels[found[j].first]));
    }
    gpuserve_model_close(&model);
}

/* Expects a rejection because of the number of tokens, before any token is read. */
static void expect_no_tokens(gpuserve_model *model, const gpuserve_entity *entity,
                             const char *words)
{
    const gpuserve_span spans[2] = { { 0, 2 }, { 0, 2 } };
    const int32_t ids[2] = { 7, 7 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char word[64];
    size_t n;

    cr_expect_eq(gpuserve_entity_word(model, entity, 1, "ab", 2, ids, spans, 1 + entity->first,
                                      word, sizeof(word), &n, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_neq(strstr(error.message, words), NULL, "%s, not: %s", words, error.message);
}

Test(entities, what_cannot_be)
{
    gpuserve_model *model = open_model();
    const float scores[N_LABELS] = { 1 };
    const gpuserve_span span = { 0, 2 }, backwards = { 1, 0 };
    const int32_t id = 7, no_id = 1 << 30;
    const gpuserve_entity entity = { 0, 0, N_LABELS, 1 }, past = { 0, 1, 0, 1 },
                          odd = { 1, 0, 0, 1 };
    gpuserve_entity found;
    char word[64];
    size_t n;

    cr_expect_eq(
        gpuserve_entities(NULL, scores, N_LABELS, NULL, 0, NULL, &span, 1, 0, &found, &n, NULL),
        GPUSERVE_E_INVALID);
    cr_expect_eq(
        gpuserve_entities(model, NULL, N_LABELS, NULL, 0, NULL, &span, 1, 0, &found, &n, NULL),
        GPUSERVE_E_INVALID);
    cr_expect_eq(
        gpuserve_entities(model, scores, N_LABELS, NULL, 0, NULL, NULL, 1, 0, &found, &n, NULL),
        GPUSERVE_E_INVALID);
    cr_expect_eq(
        gpuserve_entities(model, scores, N_LABELS, NULL, 0, NULL, &span, 1, 0, NULL, &n, NULL),
        GPUSERVE_E_INVALID);
    cr_expect_eq(
        gpuserve_entities(model, scores, N_LABELS, NULL, 0, NULL, &span, 1, 0, &found, NULL, NULL),
        GPUSERVE_E_INVALID);
    cr_expect_eq(
        gpuserve_entities(model, scores, N_LABELS, NULL, 0, NULL, &span, 1, 5, &found, &n, NULL),
        GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_entities(model, scores, N_LABELS, NULL, 0, NULL, &span,
                                   (size_t)UINT32_MAX + 1, 0, &found, &n, NULL),
                 GPUSERVE_E_INVALID);
    for (size_t other = N_LABELS - 1; other <= N_LABELS + 1; other += 2) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char words[96];

        snprintf(words, sizeof(words), "%zu labels a token, the model has %d labels", other,
                 N_LABELS);
        cr_expect_eq(
            gpuserve_entities(model, scores, other, NULL, 0, NULL, &span, 1, 0, &found, &n, &error),
            GPUSERVE_E_MISMATCH);
        cr_expect_neq(strstr(error.message, words), NULL, "%s", error.message);
    }
    cr_expect_null(gpuserve_entity_name(model, &entity, 0));
    cr_expect_null(gpuserve_entity_name(model, NULL, 0));

#define WORD(entity, text, size, ids, spans) \
    gpuserve_entity_word(model, entity, 1, text, size, ids, spans, 1, word, sizeof(word), &n, NULL)
    cr_expect_eq(WORD(&entity, "ab", 2, &id, &span), GPUSERVE_OK);
    expect_no_tokens(model, &past, "tokens 0 to 1 are outside the 1 tokens");
    expect_no_tokens(model, &odd, "tokens 1 to 0 are outside the 2 tokens");
    cr_expect_eq(WORD(&entity, "a", 1, &id, &span), GPUSERVE_E_INVALID, "beyond the text");
    cr_expect_eq(WORD(&entity, "ab", 2, &id, &backwards), GPUSERVE_E_INVALID);
    cr_expect_eq(WORD(&entity, "ab", 2, &no_id, &span), GPUSERVE_E_INVALID);
    cr_expect_eq(WORD(NULL, "ab", 2, &id, &span), GPUSERVE_E_INVALID);
    cr_expect_eq(WORD(&entity, NULL, 2, &id, &span), GPUSERVE_E_INVALID);
    cr_expect_eq(WORD(&entity, "ab", 2, NULL, &span), GPUSERVE_E_INVALID);
    cr_expect_eq(WORD(&entity, "ab", 2, &id, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_token_text(model, -1, word, sizeof(word), &n, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_token_text(model, no_id, word, sizeof(word), &n, NULL),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_token_text(NULL, 1, word, sizeof(word), &n, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_token_text(model, 7, word, 1, &n, NULL), GPUSERVE_E_TOO_LARGE);
    cr_expect_gt(n, 1);
    gpuserve_model_close(&model);
}

enum { N_LONG = 20000, N_SWAPS = 20 };

static atomic_bool is_swapped;

/* To a model of three labels and back. */
static void *swap_often(void *argument)
{
    static const char *const names[] = { "models/bert-pairs", "models/bert-tokens" };
    gpuserve_swap_options how = GPUSERVE_SWAP_OPTIONS_INIT;
    gpuserve_model *model = argument;

    how.allow = GPUSERVE_CHANGE_LABELS | GPUSERVE_CHANGE_DIM;
    for (int i = 0; i < N_SWAPS; i++)
        cr_expect_eq(gpuserve_model_swap(model, test_data(names[i % 2]), NULL, NULL, &how, NULL),
                     GPUSERVE_OK);
    atomic_store(&is_swapped, true);
    return NULL;
}

/* A call uses the labels of one model, whatever is swapped in meanwhile. */
Test(entities, labels_are_those_of_one_model, .timeout = 120)
{
    gpuserve_model *model = open_model();
    float *scores = calloc((size_t)N_LONG * N_LABELS, sizeof(*scores));
    gpuserve_span *spans = calloc(N_LONG, sizeof(*spans));
    gpuserve_entity *found = calloc(N_LONG, sizeof(*found));
    pthread_t swapper;

    cr_assert(scores && spans && found);
    for (size_t i = 0; i < N_LONG; i++) {
        scores[i * N_LABELS + MISC] = 1;
        spans[i].end = 1;
    }
    cr_assert_eq(pthread_create(&swapper, NULL, swap_often, model), 0);
    while (!atomic_load(&is_swapped)) {
        size_t n = 0;

        const gpuserve_status st =
            gpuserve_entities(model, scores, N_LABELS, NULL, 0, NULL, spans, N_LONG,
                              GPUSERVE_AGGREGATION_NONE, found, &n, NULL);

        cr_assert(st == GPUSERVE_OK || st == GPUSERVE_E_MISMATCH, "status %d", st);
        cr_expect_eq(n, st == GPUSERVE_OK ? (size_t)N_LONG : 0);
    }
    pthread_join(swapper, NULL);
    gpuserve_model_close(&model);
    free(found);
    free(spans);
    free(scores);
}
