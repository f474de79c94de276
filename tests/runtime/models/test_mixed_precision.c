/*
 * test_mixed_precision.c - int8 for every model: vectors close to those of float32 for any text, or
 * the model is rejected.
 */
#include "tests/base/sanitized.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXTS 512
#define MAX_BYTES 1024

static char odd[MAX_TEXTS][MAX_BYTES];
static const char *texts[MAX_TEXTS];
static size_t n_texts;

static void add_repeated(const char *text, int times)
{
    char *to = odd[n_texts];

    for (int i = 0; i < times && strlen(to) + strlen(text) + 2 < MAX_BYTES; i++) {
        strcat(to, text);
        strcat(to, " ");
    }
    texts[n_texts] = to;
    n_texts++;
}

static void make_texts(void)
{
    static const char *const units[] = {
        "\xE6\xBC\xA2",
        "\xE8\xAA\x9E",
        "\xE3\x80\x82",
        "\xE0\xB8\x81",
        "\xC3\x9F",
        "\xF0\x9F\x98\x80",
        "?",
        "!",
        ".",
        "-",
        "_",
        "a",
        "the",
        "42",
        "no",
        "hello",
        "Paris",
    };
    static const int times[] = { 1, 2, 5, 17, 50, 94, 101, 200 };
    size_t n;
    const char *const *ordinary = oracle_texts(&n);

    n_texts = 0;
    /* Each unit and each length comes in some text of a sanitizer's. */
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        for (size_t j = 0; j < sizeof(times) / sizeof(times[0]); j++)
            if (!IS_SANITIZED || j == i % (sizeof(times) / sizeof(times[0])))
                add_repeated(units[i], times[j]);
    for (size_t i = 0; i < n && n_texts < MAX_TEXTS; i += IS_SANITIZED ? 16 : 1)
        texts[n_texts++] = ordinary[i];
}

static float *embed_all(gpuserve_model *model, size_t dim)
{
    float *vectors = calloc(n_texts * dim, sizeof(float));
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_not_null(vectors);
    cr_assert_eq(gpuserve_embed(model, texts, n_texts, vectors, n_texts * dim, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    return vectors;
}

static double cosine(const float *a, const float *b, size_t n)
{
    double dot = 0, aa = 0, bb = 0;

    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return dot / sqrt(aa * bb);
}

static void info_of(gpuserve_model *model, char *text, size_t capacity)
{
    size_t size;

    cr_assert_eq(gpuserve_model_info(model, text, capacity, &size, NULL), GPUSERVE_OK);
}

static void expect_bound(const char *name)
{
    static char info[16384];
    gpuserve_model *exact = open_real(name, GPUSERVE_DTYPE_FLOAT32, 0);
    gpuserve_model *int8 = open_real(name, GPUSERVE_DTYPE_INT8, 0);
    const size_t dim = gpuserve_model_dim(exact);
    float *want, *got;

    info_of(int8, info, sizeof(info));
    cr_expect(strstr(info, "\"least_cosine\""), "%s", info);
    cr_expect(strstr(info, "\"kept_dtype\""), "%s", info);
    cr_expect(strstr(info, "\"kept\": ["), "%s", info);
    make_texts();
    want = embed_all(exact, dim);
    got = embed_all(int8, dim);
    for (size_t i = 0; i < n_texts; i++) {
        const double c = cosine(want + i * dim, got + i * dim, dim);

        cr_expect_geq(c, 0.997, "%s: cosine %.5f of \"%.40s\"", name, c, texts[i]);
    }
    free(want);
    free(got);
    gpuserve_model_close(&exact);
    gpuserve_model_close(&int8);
}

/* The info tells the cosine and what is kept, which depends on the instruction set. */
Test(int8, vectors_of_ordinary_odd_and_repeated_texts_are_near)
{
    expect_bound("all-MiniLM-L6-v2");
    expect_bound("splade-tiny");
}

Test(int8, info_of_float32_tells_no_cosine)
{
    static char text[16384];
    gpuserve_model *model = open_real("splade-tiny", GPUSERVE_DTYPE_FLOAT32, 0);

    info_of(model, text, sizeof(text));
    cr_expect_not(strstr(text, "least_cosine"), "%s", text);
    gpuserve_model_close(&model);
}

Test(int8, another_instruction_set_is_another_vector_space)
{
    char best[64], generic[64];
    gpuserve_model *model = open_real("splade-tiny", GPUSERVE_DTYPE_INT8, 1);

    snprintf(best, sizeof(best), "%s", gpuserve_model_fingerprint(model));
    gpuserve_model_close(&model);
    setenv("GPUSERVE_MAX_ISA", "generic", 1);
    model = open_real("splade-tiny", GPUSERVE_DTYPE_INT8, 1);
    snprintf(generic, sizeof(generic), "%s", gpuserve_model_fingerprint(model));
    gpuserve_model_close(&model);
    cr_expect_str_neq(best, generic);
    model = open_real("splade-tiny", GPUSERVE_DTYPE_FLOAT32, 1);
    snprintf(best, sizeof(best), "%s", gpuserve_model_fingerprint(model));
    gpuserve_model_close(&model);
    unsetenv("GPUSERVE_MAX_ISA");
    model = open_real("splade-tiny", GPUSERVE_DTYPE_FLOAT32, 1);
    cr_expect_str_eq(best, gpuserve_model_fingerprint(model), "float32 is the same on all");
    gpuserve_model_close(&model);
}
