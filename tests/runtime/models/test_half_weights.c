/*
 * test_half_weights.c - weights in bfloat16 and float16 on every CPU: half the memory of the
 * products, vectors near float32's, and the model says in which format it multiplies.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = IS_SANITIZED ? 6 : 24, DIM = 384 };

static const char *const model_name = "all-MiniLM-L6-v2";
static const char *const isas[] = { "generic", "avx2", "avx512_vnni", NULL };

static void limit_isa(const char *isa)
{
    if (isa)
        setenv("GPUSERVE_MAX_ISA", isa, 1);
    else
        unsetenv("GPUSERVE_MAX_ISA");
}

static void embed(gpuserve_model *model, size_t first, size_t n, float *vectors)
{
    size_t n_texts;
    const char *const *texts = oracle_texts(&n_texts);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_geq(n_texts, N_TEXTS);
    cr_assert_eq(gpuserve_model_dim(model), DIM);
    cr_assert_eq(gpuserve_embed(model, texts + first, n, vectors, n * DIM, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
}

static double cosine(const float *a, const float *b)
{
    double dot = 0, aa = 0, bb = 0;

    for (size_t i = 0; i < DIM; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return dot / sqrt(aa * bb);
}

static void expect_near(const float *exact, uint32_t dtype, double bound, const char *isa)
{
    static float got[N_TEXTS * DIM], alone[DIM];
    gpuserve_model *model = open_real(model_name, dtype, 2);

    embed(model, 0, N_TEXTS, got);
    for (size_t i = 0; i < N_TEXTS; i++) {
        const double c = cosine(exact + i * DIM, got + i * DIM);

        cr_expect_geq(c, bound, "%s, dtype %u: cosine %.6f", isa ? isa : "best", (unsigned)dtype,
                      c);
        cr_expect_lt(c, 1.0 - 1e-12, "%s: the weights are not rounded", isa ? isa : "best");
    }
    for (size_t i = 0; i < N_TEXTS; i += 5) {
        embed(model, i, 1, alone);
        cr_expect_arr_eq(alone, got + i * DIM, sizeof(alone),
                         "%s, dtype %u: text %zu depends on others", isa ? isa : "best",
                         (unsigned)dtype, i);
    }
    gpuserve_model_close(&model);
}

Test(half_weights, vectors_are_near_on_every_instruction_set)
{
    static float exact[N_TEXTS * DIM];

    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
        gpuserve_model *model;

        limit_isa(isas[i]);
        model = open_real(model_name, GPUSERVE_DTYPE_FLOAT32, 2);
        embed(model, 0, N_TEXTS, exact);
        gpuserve_model_close(&model);
        expect_near(exact, GPUSERVE_DTYPE_FLOAT16, 0.99999, isas[i]);
        expect_near(exact, GPUSERVE_DTYPE_BFLOAT16, 0.9995, isas[i]);
    }
}

static bool says(const char *member, uint32_t dtype)
{
    static char text[16384];
    gpuserve_model *model = open_real("splade-tiny", dtype, 1);
    size_t size;

    cr_assert_eq(gpuserve_model_info(model, text, sizeof(text), &size, NULL), GPUSERVE_OK);
    gpuserve_model_close(&model);
    return strstr(text, member) != NULL;
}

Test(half_weights, the_model_says_in_which_format_it_multiplies)
{
    limit_isa("generic");
    cr_expect(says("\"products_dtype\": \"float32\"", GPUSERVE_DTYPE_FLOAT16));
    cr_expect(says("\"products_dtype\": \"float32\"", GPUSERVE_DTYPE_BFLOAT16));
    cr_expect(says("\"products_dtype\": \"int8\"", GPUSERVE_DTYPE_INT8));
    limit_isa(NULL);
    cr_expect(says("\"products_dtype\": \"float32\"", GPUSERVE_DTYPE_FLOAT16));
    cr_expect(says("\"dtype\": \"float16\"", GPUSERVE_DTYPE_FLOAT16));
    cr_expect(says("\"products_dtype\": \"float32\"", GPUSERVE_DTYPE_FLOAT32));
}

static uint64_t weights_of(uint32_t dtype)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;

    options.device = "cpu";
    options.dtype = dtype;
    cr_assert_eq(gpuserve_context_create(&context, NULL, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(
        gpuserve_model_footprint(context, real_model(model_name), &options, &footprint, &error),
        GPUSERVE_OK, "%s", error.message);
    gpuserve_context_unref(&context);
    return footprint.weights_bytes;
}

/* 6 layers of 12 * 384 * 384 weights and the tables of 30,522 words, 512 positions and 2 types: two
 * bytes less each. */
Test(half_weights, products_and_tables_take_half_the_memory)
{
    const uint64_t halved = (uint64_t)(6 * 12 * 384 + 30522 + 512 + 2) * 384 * 2;

    cr_expect_eq(weights_of(GPUSERVE_DTYPE_FLOAT16), weights_of(GPUSERVE_DTYPE_FLOAT32) - halved);
    cr_expect_eq(weights_of(GPUSERVE_DTYPE_BFLOAT16), weights_of(GPUSERVE_DTYPE_FLOAT32) - halved);
}
