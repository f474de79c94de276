/*
 * test_experts.c - a model with a mixture of experts (tests/data/models/nomic-moe-hub).
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 32, VOCAB = 48 };

static gpuserve_status open_model(gpuserve_model **model, uint32_t dtype, gpuserve_error *error)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    struct folder folder;
    gpuserve_status st;

    folder_make(&folder, "nomic-moe-hub");
    folder_set_vocabulary(&folder, VOCAB);
    options.device = "cpu";
    options.dtype = dtype;
    st = gpuserve_model_open(model, NULL, folder.path, &options, error);
    folder_remove(&folder);
    return st;
}

static void embed(uint32_t dtype, float *row)
{
    static const char *const text = "w20 w21 w22 w23 w24 w25";
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_assert_eq(open_model(&model, dtype, &error), GPUSERVE_OK, "%s", error.message);
    options.normalize = GPUSERVE_NORMALIZE_YES;
    cr_assert_eq(gpuserve_embed(model, &text, 1, row, DIM, &options, NULL), GPUSERVE_OK);
    gpuserve_model_close(&model);
}

Test(experts, bfloat16_is_near)
{
    float exact[DIM], rounded[DIM];
    double cosine = 0;

    embed(GPUSERVE_DTYPE_FLOAT32, exact);
    embed(GPUSERVE_DTYPE_BFLOAT16, rounded);
    for (int i = 0; i < DIM; i++)
        cosine += (double)exact[i] * (double)rounded[i];
    cr_expect_gt(cosine, 0.999, "%g", cosine);
}

Test(experts, int8_is_refused)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_expect_eq(open_model(&model, GPUSERVE_DTYPE_INT8, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect_not_null(
        strstr(error.message, "a model with a mixture of experts does not compute in int8"), "%s",
        error.message);
    cr_expect_null(model);
}
