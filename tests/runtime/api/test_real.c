/*
 * test_real.c - from text to vector, against vectors that torch computed from the same weights.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *reference;
} models[] = {
    { "all-MiniLM-L6-v2", "oracle/vectors/all-MiniLM-L6-v2.safetensors" },
    { "splade-tiny", "oracle/vectors/splade-bert-tiny.safetensors" },
};

/* Several batches on two threads, of texts of all lengths. */
enum { SANITIZED_TEXTS = 40 };
enum { LOCALE_DIM = 128, LOCALE_TOKENS = 64 };

#define N_MODELS (sizeof(models) / sizeof(models[0]))

/* float32 against float64: tolerance is the float32 error of the oracle itself plus a margin. */
static void expect_close(const char *name, const float *got, const float *want, size_t rows,
                         size_t dim, double min_cosine, double max_difference)
{
    for (size_t r = 0; r < rows; r++) {
        double dot = 0, a = 0, b = 0, most = 0;

        for (size_t j = r * dim; j < (r + 1) * dim; j++) {
            dot += (double)got[j] * want[j];
            a += (double)got[j] * got[j];
            b += (double)want[j] * want[j];
            most = fmax(most, fabs((double)got[j] - want[j]));
        }
        cr_expect_geq(dot / sqrt(a * b), min_cosine, "%s, row %zu", name, r);
        cr_expect_leq(most, max_difference, "%s, row %zu", name, r);
    }
}

static void compare_with_oracle(size_t which, uint32_t dtype, double min_cosine,
                                double max_difference)
{
    size_t n_all, n, n_floats;
    const char *const *all = oracle_texts(&n_all);
    int32_t *row = read_reference(test_data(models[which].reference), "row", &n);
    int32_t *n_tokens = read_reference(test_data(models[which].reference), "n_tokens", &n);
    float *want = read_reference(test_data(models[which].reference), "mean_l2", &n_floats);
    gpuserve_model *model = open_real(models[which].name, dtype, 0);
    const size_t dim = gpuserve_model_dim(model);
    const char **texts = calloc(n, sizeof(*texts));
    float *got = calloc(n * dim, sizeof(*got));
    gpuserve_item *items = calloc(n, sizeof(*items));
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(n_floats, n * dim);
    if (IS_SANITIZED && n > SANITIZED_TEXTS)
        n = SANITIZED_TEXTS;
    for (size_t i = 0; i < n; i++) {
        cr_assert_lt((size_t)row[i], n_all);
        texts[i] = all[row[i]];
    }
    options.normalize = GPUSERVE_NORMALIZE_YES;
    options.items = items;
    cr_assert_eq(gpuserve_embed(model, texts, n, got, n * dim, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    for (size_t i = 0; i < n; i++)
        cr_expect_eq(items[i].n_tokens, (uint32_t)n_tokens[i], "row %d", row[i]);
    expect_close(models[which].name, got, want, n, dim, min_cosine, max_difference);
    gpuserve_model_close(&model);
    free(row);
    free(n_tokens);
    free(want);
    free(texts);
    free(got);
    free(items);
}

Test(real, float32_vectors_equal_the_oracles)
{
    for (size_t i = 0; i < N_MODELS; i++)
        compare_with_oracle(i, GPUSERVE_DTYPE_FLOAT32, 0.999999, 1e-5);
}

/* Opening the first in int8 measures its products, on one thread. */
Test(real, int8_vectors_are_near_the_oracles)
{
    for (size_t i = FOR_RACES; i < N_MODELS; i++)
        compare_with_oracle(i, GPUSERVE_DTYPE_INT8, 0.997, 0.05);
}

/* -------------------------------------------------------------------------------- other tasks */

Test(real, token_vectors_pool_to_the_embedding)
{
    static const char *const text[] = { "A man is eating food." };
    gpuserve_model *model = open_real("all-MiniLM-L6-v2", 0, 0);
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    float tokens[64 * 384], vector[384];
    size_t offsets[2];

    options.normalize = GPUSERVE_NORMALIZE_NO;
    cr_assert_eq(gpuserve_embed(model, text, 1, vector, 384, &options, NULL), GPUSERVE_OK);
    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    job.n_items = 1;
    job.texts = text;
    job.output = tokens;
    job.output_capacity = sizeof(tokens) / sizeof(tokens[0]);
    job.token_offsets = offsets;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_assert_eq(offsets[1], 8); /* [CLS] a man is eating food . [SEP] */
    for (size_t j = 0; j < 384; j++) {
        double sum = 0;

        for (size_t t = 0; t < offsets[1]; t++)
            sum += tokens[t * 384 + j];
        cr_expect_float_eq(vector[j], sum / (double)offsets[1], 1e-5);
    }
    gpuserve_model_close(&model);
}

Test(real, tokens_go_to_ids_and_back_and_ids_run_as_texts_do)
{
    static const char text[] = "A man is eating food.";
    const char *const texts[] = { text };
    gpuserve_model *model = open_real("all-MiniLM-L6-v2", 0, 0);
    int32_t ids[16], few[2] = { -7, -7 };
    gpuserve_span spans[16];
    char back[64], small[4] = "abc";
    size_t n = 0, size = 0;
    float from_text[384], from_ids[384];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    size_t offsets[2] = { 0 };

    cr_assert_eq(gpuserve_tokenize(model, text, strlen(text), ids, spans, 16, &n, NULL, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(n, 8);
    cr_expect_eq(ids[0], 101);
    cr_expect_eq(ids[7], 102);
    cr_expect_eq(spans[2].begin, 2);
    cr_expect_eq(spans[2].end, 5);
    cr_expect_eq(gpuserve_tokenize(model, text, strlen(text), few, NULL, 2, &n, NULL, NULL),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(n, 8);
    cr_expect_eq(few[0], -7);
    cr_expect_eq(gpuserve_detokenize(model, ids, 8, 1, back, sizeof(back), &size, NULL),
                 GPUSERVE_OK);
    cr_expect_str_eq(back, "a man is eating food.");
    cr_expect_eq(size, strlen(back) + 1);
    cr_expect_eq(gpuserve_detokenize(model, ids, 8, 1, small, sizeof(small), &size, NULL),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_str_eq(small, "abc");
    offsets[1] = 8;
    job.n_items = 1;
    job.ids = ids;
    job.id_offsets = offsets;
    job.output = from_ids;
    job.output_capacity = 384;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_embed(model, texts, 1, from_text, 384, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(memcmp(from_ids, from_text, sizeof(from_text)), 0);
    gpuserve_model_close(&model);
}

Test(real, an_empty_text_has_a_vector_and_cutting_dimensions_cuts_before_normalizing)
{
    static const char *const texts[] = { "", "A man is eating food." };
    gpuserve_model *model = open_real("all-MiniLM-L6-v2", 0, 0);
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_item items[2];
    float cut[2 * 64], whole[2 * 384];

    options.items = items;
    options.dimensions = 64;
    cr_assert_eq(gpuserve_embed(model, texts, 2, cut, 128, &options, NULL), GPUSERVE_OK);
    cr_expect_eq(items[0].n_tokens, 2);
    cr_assert_eq(gpuserve_embed(model, texts, 2, whole, 768, NULL, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < 2; i++) {
        const float norm = sqrtf(gpuserve_dot(whole + i * 384, whole + i * 384, 64));

        cr_expect_float_eq(gpuserve_dot(cut + i * 64, cut + i * 64, 64), 1, 1e-5);
        for (size_t j = 0; j < 64; j++)
            cr_expect_float_eq(cut[i * 64 + j], whole[i * 384 + j] / norm, 1e-5);
    }
    gpuserve_model_close(&model);
}

Test(real, dimensions_of_a_whole_vector_are_its_first_ones)
{
    static const char *const texts[] = { "A man is eating food.", "A dog." };
    gpuserve_model *model = open_real("all-MiniLM-L6-v2", 0, 0);
    gpuserve_job job = GPUSERVE_JOB_INIT;
    float whole[2 * 384], cut[2 * 100];

    cr_assert_eq(gpuserve_embed(model, texts, 2, whole, 768, NULL, NULL), GPUSERVE_OK);
    job.n_items = 2;
    job.texts = texts;
    job.normalize = GPUSERVE_NORMALIZE_WHOLE;
    job.dimensions = 64;
    job.output = cut;
    for (size_t stride = 64; stride <= 100; stride += 36) {
        memset(cut, 0, sizeof(cut));
        job.output_stride = stride;
        job.output_capacity = stride + 64;
        cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
        for (size_t i = 0; i < 2; i++)
            cr_expect_arr_eq(cut + i * stride, whole + i * 384, 64 * sizeof(float));
        cr_expect_eq(cut[stride + 64 < 200 ? stride + 64 : 199], 0, "nothing past the last row");
    }
    job.output_capacity--;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_E_INVALID);
    gpuserve_model_close(&model);
}

Test(real, the_fingerprint_is_of_the_space_and_of_int8)
{
    gpuserve_model *a = open_real("splade-tiny", GPUSERVE_DTYPE_FLOAT32, 1);
    gpuserve_model *b = open_real("splade-tiny", GPUSERVE_DTYPE_INT8, 2);
    gpuserve_model *c = open_real("all-MiniLM-L6-v2", GPUSERVE_DTYPE_FLOAT32, 1);

    cr_expect_str_neq(gpuserve_model_fingerprint(a), gpuserve_model_fingerprint(b));
    cr_expect_str_neq(gpuserve_model_fingerprint(a), gpuserve_model_fingerprint(c));
    gpuserve_model_close(&a);
    gpuserve_model_close(&b);
    gpuserve_model_close(&c);
}

/* In Turkish locales the lower case of I is another letter; in German ones the decimal point is a
 * comma. */
static void answer(float *rows, int32_t *ids, size_t *n_ids)
{
    static const char *const texts[] = { "INDIA IS AN ISLAND, I THINK: 3.14 OR 3,14" };
    gpuserve_model *model = open_real("splade-tiny", GPUSERVE_DTYPE_FLOAT32, 1);

    cr_assert_eq(gpuserve_model_dim(model), LOCALE_DIM);
    cr_assert_eq(gpuserve_embed(model, texts, 1, rows, LOCALE_DIM, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_tokenize(model, texts[0], strlen(texts[0]), ids, NULL, LOCALE_TOKENS,
                                   n_ids, NULL, NULL),
                 GPUSERVE_OK);
    gpuserve_model_close(&model);
}

Test(real, answers_do_not_change_with_the_hosts_locale)
{
    static const char *const names[] = { "de_DE.UTF-8", "tr_TR.UTF-8" };
    float want[LOCALE_DIM], got[LOCALE_DIM];
    int32_t want_ids[LOCALE_TOKENS], got_ids[LOCALE_TOKENS];
    size_t n_want, n_got;

    answer(want, want_ids, &n_want);
    for (size_t i = 0; i < 2; i++) {
        if (!setlocale(LC_ALL, names[i])) {
            cr_assert_null(getenv("LOCPATH"), "the build made %s", names[i]);
            continue;
        }
        answer(got, got_ids, &n_got);
        cr_assert_eq(n_got, n_want);
        cr_expect_eq(memcmp(got_ids, want_ids, n_want * sizeof(*got_ids)), 0, "%s", names[i]);
        cr_expect_eq(memcmp(got, want, sizeof(want)), 0, "%s", names[i]);
        cr_expect_str_eq(setlocale(LC_ALL, NULL), names[i]);
    }
}
