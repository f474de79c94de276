/*
 * test_random.c - random models through the public interface: footprint before any allocation,
 * refusal, equal results after suspension, and what belongs to files.
 */
#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIM 128

static gpuserve_error error;
static gpuserve_context *context;

static void begin(void)
{
    const gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;

    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    cr_assert_eq(gpuserve_context_create(&context, &options, &error), GPUSERVE_OK);
}

static void end(void)
{
    gpuserve_context_unref(&context);
}

static gpuserve_model *open_model(const char *path, const char *name)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.name = name;
    cr_assert_eq(gpuserve_model_open(&model, context, path, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    return model;
}

static void embed(gpuserve_model *model, float vector[DIM])
{
    static const char *const text[] = { "The same weights on every machine." };

    cr_assert_eq(gpuserve_model_dim(model), DIM);
    cr_assert_eq(gpuserve_embed(model, text, 1, vector, DIM, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
}

Test(random_models, the_path_is_the_model, .init = begin, .fini = end)
{
    gpuserve_model *a = open_model("random:bert-tiny,seed=1", "a");
    gpuserve_model *b = open_model("random:seed=1,hidden=128,layers=2", "b");
    gpuserve_model *c = open_model("random:bert-tiny,seed=2", "c");
    float x[DIM], y[DIM], z[DIM];

    embed(a, x);
    embed(b, y);
    embed(c, z);
    cr_expect_arr_eq(x, y, sizeof(x));
    cr_expect_neq(memcmp(x, z, sizeof(x)), 0);
    cr_expect_str_eq(gpuserve_model_fingerprint(a), gpuserve_model_fingerprint(b));
    cr_expect_str_neq(gpuserve_model_fingerprint(a), gpuserve_model_fingerprint(c));
    cr_assert_eq(gpuserve_model_suspend(a, &error), GPUSERVE_OK);
    embed(a, y); /* computes the weights again */
    cr_expect_arr_eq(x, y, sizeof(x));
    cr_assert_eq(gpuserve_model_swap(a, "random:bert-tiny,seed=2", NULL, NULL, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    embed(a, y);
    cr_expect_arr_eq(z, y, sizeof(z));
    gpuserve_model_close(&a);
    gpuserve_model_close(&b);
    gpuserve_model_close(&c);
}

static void embed_portable(uint32_t dtype, const char *isa, float vector[DIM], char fingerprint[40])
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.dtype = dtype;
    options.portable_bits = 1;
    setenv("GPUSERVE_MAX_ISA", isa, 1);
    /* Small, with short probes of INT8: where fused multiply-add is computed in plain C it takes
     * minutes under QEMU. */
    cr_assert_eq(
        gpuserve_model_open(&model, context,
                            "random:layers=1,hidden=128,intermediate=32,vocab=2000,positions=24",
                            &options, &error),
        GPUSERVE_OK, "%s", error.message);
    embed(model, vector);
    snprintf(fingerprint, 40, "%s", gpuserve_model_fingerprint(model));
    gpuserve_model_close(&model);
    unsetenv("GPUSERVE_MAX_ISA");
}

Test(random_models, portable_bits_do_not_depend_on_the_instruction_set, .init = begin, .fini = end)
{
    static const uint32_t dtypes[] = { GPUSERVE_DTYPE_FLOAT32, GPUSERVE_DTYPE_BFLOAT16,
                                       GPUSERVE_DTYPE_INT8 };
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model;

    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        float generic[DIM], best[DIM];
        char of_generic[40], of_best[40];

        embed_portable(dtypes[i], "generic", generic, of_generic);
        embed_portable(dtypes[i], "best", best, of_best); /* no instruction set: no limit */
        cr_expect_arr_eq(generic, best, sizeof(best), "dtype %u", (unsigned)dtypes[i]);
        cr_expect_str_eq(of_generic, of_best, "dtype %u", (unsigned)dtypes[i]);
    }
    options.portable_bits = 2;
    cr_expect_eq(gpuserve_model_open(&model, context, "random:bert-tiny", &options, &error),
                 GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "portable_bits is 2"), "%s", error.message);
}

Test(random_models, a_model_of_terabytes_is_sized_and_refused_without_memory, .init = begin,
     .fini = end)
{
    const char *const path = "random:layers=512,hidden=16384";
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    cr_assert_eq(gpuserve_model_footprint(context, path, &options, &footprint, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_expect_gt(footprint.weights_bytes, UINT64_C(6000000000000));
    cr_expect_eq(footprint.fits, 0);
    cr_expect_eq(gpuserve_model_open(&model, context, path, &options, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect(strstr(error.message, path), "%s", error.message);
    cr_expect_null(model);
}

Test(random_models, the_footprint_is_what_a_loaded_model_holds, .init = begin, .fini = end)
{
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_stats stats = GPUSERVE_STATS_INIT;
    gpuserve_model *model;

    options.device = "cpu";
    cr_assert_eq(
        gpuserve_model_footprint(context, "random:bert-tiny", &options, &footprint, &error),
        GPUSERVE_OK);
    model = open_model("random:bert-tiny", NULL);
    cr_assert_eq(gpuserve_context_stats(context, &stats, &error), GPUSERVE_OK);
    cr_expect_eq(stats.weights_bytes, footprint.weights_bytes);
    cr_expect_eq(stats.workspace_bytes, footprint.workspace_bytes);
    gpuserve_model_close(&model);
}

Test(random_models, a_bad_shape_is_an_invalid_argument, .init = begin, .fini = end)
{
    gpuserve_tokenizer *tokenizer = NULL;
    gpuserve_model *model = NULL;

    cr_expect_eq(gpuserve_model_open(&model, context, "random:heads=5", NULL, &error),
                 GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "heads is 5, which does not divide hidden, 768"), "%s",
              error.message);
    cr_expect_eq(gpuserve_tokenizer_open(&tokenizer, context, "random:x", &error),
                 GPUSERVE_E_INVALID);
    cr_assert_eq(gpuserve_tokenizer_open(&tokenizer, context, "random:bert-tiny", &error),
                 GPUSERVE_OK, "%s", error.message);
    gpuserve_tokenizer_close(&tokenizer);
}
