/*
 * test_prompt.c - a model whose pooling excludes the prompt, against sentence-transformers with the
 * same texts (tests/data/models/st-no-prompt).
 */
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXTS = 8, DIM = 96 };

static gpuserve_model *open_model(uint32_t n_threads)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.n_threads = n_threads;
    cr_assert_eq(
        gpuserve_model_open(&model, NULL, test_data("models/st-no-prompt"), &options, &error),
        GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gpuserve_model_dim(model), DIM);
    return model;
}

static size_t texts_of(const json_t *row, const char **texts)
{
    const json_t *array = json_object_get(row, "texts");
    size_t n = json_array_size(array);

    cr_assert(n > 0 && n <= MAX_TEXTS);
    for (size_t i = 0; i < n; i++)
        texts[i] = json_string_value(json_array_get(array, i));
    return n;
}

static void expect_row(const float *got, const json_t *row, size_t i)
{
    const json_t *want = json_array_get(json_object_get(row, "embeddings"), i);

    for (size_t j = 0; j < DIM; j++)
        cr_expect_float_eq(got[j], json_real_value(json_array_get(want, j)), 1e-5,
                           "text %zu, number %zu", i, j);
}

Test(prompt, what_pooling_leaves_out_is_what_sentence_transformers_leaves_out)
{
    json_t *rows = json_load_file(test_data("models/st-no-prompt/expected.json"), 0, NULL);
    gpuserve_model *model = open_model(0);
    const json_t *row;
    size_t r;

    cr_assert_eq(json_array_size(rows), 3);
    json_array_foreach(rows, r, row)
    {
        const char *texts[MAX_TEXTS];
        const size_t n = texts_of(row, texts);
        gpuserve_job options = GPUSERVE_JOB_INIT;
        float together[MAX_TEXTS * DIM], alone[DIM];

        options.prompt_name = json_string_value(json_object_get(row, "prompt_name"));
        cr_assert_eq(gpuserve_embed(model, texts, n, together, n * DIM, &options, NULL),
                     GPUSERVE_OK);
        for (size_t i = 0; i < n; i++) {
            expect_row(together + i * DIM, row, i);
            cr_assert_eq(gpuserve_embed(model, &texts[i], 1, alone, DIM, &options, NULL),
                         GPUSERVE_OK);
            cr_expect_eq(memcmp(alone, together + i * DIM, sizeof(alone)), 0, "text %zu", i);
        }
    }
    json_decref(rows);
    gpuserve_model_close(&model);
}

/* The same tokens with a prompt of another length are a different text for the cache. */
Test(prompt, equal_tokens_of_other_prompts_are_told_apart)
{
    gpuserve_model *model = open_model(1);
    const char *const with = "w20 w21: w1", *const without = "w1";
    gpuserve_job options = GPUSERVE_JOB_INIT;
    float whole[DIM], left[DIM], cut[8];

    cr_assert_eq(gpuserve_embed(model, &with, 1, whole, DIM, NULL, NULL), GPUSERVE_OK);
    options.prompt = "w20 w21: ";
    cr_assert_eq(gpuserve_embed(model, &without, 1, left, DIM, &options, NULL), GPUSERVE_OK);
    cr_expect_neq(memcmp(whole, left, sizeof(whole)), 0);
    options.dimensions = 8;
    options.normalize = GPUSERVE_NORMALIZE_NO;
    cr_assert_eq(gpuserve_embed(model, &without, 1, cut, 8, &options, NULL), GPUSERVE_OK);
    options.dimensions = 0;
    cr_assert_eq(gpuserve_embed(model, &without, 1, left, DIM, &options, NULL), GPUSERVE_OK);
    cr_expect_eq(memcmp(cut, left, sizeof(cut)), 0);
    gpuserve_model_close(&model);
}

/* ------------------------------------------------------------------------------- default prompt */

#define DENSE "models/st-dense" /* its prompts are query and passage, query its default */

enum { DENSE_DIM = 24 };

static gpuserve_model *open_with(const char *name, const char *text)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.default_prompt_name = name;
    options.default_prompt = text;
    cr_assert_eq(gpuserve_model_open(&model, NULL, test_data(DENSE), &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    return model;
}

/* The vector of a text with the call's prompt; NULL: the default prompt. */
static void vector_of(gpuserve_model *model, const char *prompt, float *row)
{
    const char *const text = "w1 w2";
    gpuserve_job options = GPUSERVE_JOB_INIT;

    options.prompt = prompt;
    cr_assert_eq(gpuserve_embed(model, &text, 1, row, DENSE_DIM, &options, NULL), GPUSERVE_OK);
}

Test(prompt, the_default_is_the_models_own_or_that_of_the_options)
{
    static const struct {
        const char *name, *text; /* options of the open call */
        const char *prompt;      /* resulting prompt */
        const char *fact;        /* expected field of gpuserve_model_info() */
    } cases[] = {
        { NULL, NULL, "query: ", "\"default_prompt_text\": \"query: \"" },
        { "query", NULL, "query: ", "\"default_prompt\": \"query\"" },
        { "passage", NULL, "passage: ", "\"default_prompt\": \"passage\"" },
        { NULL, "w7 w8 ", "w7 w8 ", "\"default_prompt_text\": \"w7 w8 \"" },
        { NULL, "", "", "\"default_prompt_text\": null" },
    };
    char spaces[5][33];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_model *model = open_with(cases[i].name, cases[i].text);
        float got[DENSE_DIM], want[DENSE_DIM];
        char info[8192];

        vector_of(model, NULL, got);
        vector_of(model, cases[i].prompt, want);
        cr_expect_eq(memcmp(got, want, sizeof(got)), 0, "case %zu", i);
        cr_assert_eq(gpuserve_model_info(model, info, sizeof(info), NULL, NULL), GPUSERVE_OK);
        cr_expect_not_null(strstr(info, cases[i].fact), "case %zu: %s", i, info);
        memcpy(spaces[i], gpuserve_model_fingerprint(model), sizeof(spaces[i]));
        for (size_t j = 0; j < i; j++)
            cr_expect_eq(strcmp(spaces[i], spaces[j]) == 0, i == 1 && j == 0, "%zu, %zu", i, j);
        gpuserve_model_close(&model);
    }
}

Test(prompt, a_default_that_cannot_be)
{
    static const struct {
        const char *name, *text, *words;
    } cases[] = {
        { "question", NULL,
          "default_prompt_name: unknown prompt \"question\": the model has \"query\"" },
        { "query", "w1", "default_prompt and default_prompt_name are both set" },
        { NULL, "w1 \xff", "default_prompt is not UTF-8" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model *model = NULL;

        options.default_prompt_name = cases[i].name;
        options.default_prompt = cases[i].text;
        cr_expect_eq(gpuserve_model_open(&model, NULL, test_data(DENSE), &options, &error),
                     GPUSERVE_E_INVALID);
        cr_expect_not_null(strstr(error.message, cases[i].words), "%s", error.message);
    }
}

/* After suspend and resume the prompt is set again from the copied options. */
Test(prompt, the_default_outlives_the_options)
{
    char name[] = "passage";
    gpuserve_model *model = open_with(name, NULL);
    float before[DENSE_DIM], after[DENSE_DIM];

    vector_of(model, NULL, before);
    memset(name, 'x', sizeof(name) - 1);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_resume(model, NULL), GPUSERVE_OK);
    vector_of(model, NULL, after);
    cr_expect_eq(memcmp(before, after, sizeof(before)), 0);
    gpuserve_model_close(&model);
}
