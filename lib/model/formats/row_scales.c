/*
 * row_scales.c - checks how the weights of a file are quantized.
 *
 * Two kinds of file pass: one without quantized weights, and a safetensors file of the int8 format
 * that gpuserve_convert() writes. A weight read without its scales gives wrong results and no
 * error, so every other quantization is refused by the name of a tensor.
 */
#include "lib/base/error.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/formats/formats.h"

#include <stdio.h>
#include <string.h>

/* Endings of tensors that hold another method's scales, zero points or packed weights: block-scaled
 * FP8, compressed-tensors, bitsandbytes, GPTQ and AWQ. */
static const char *const foreign_endings[] = {
    ".weight_scale_inv",    ".weight_scale",  ".weight_scale_2",
    ".scale_weight",        ".input_scale",   ".weight_packed",
    ".weight_zero_point",   ".weight.absmax", ".weight.quant_map",
    ".weight.quant_state",  ".qweight",       ".qzeros",
    ".weight_global_scale", ".SCB",
};

static bool ends_in(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n >= m && strcmp(name + n - m, ending) == 0;
}

static gpuserve_status fail_foreign(const struct gsv_tensor *tensor, gpuserve_error *error)
{
    const gpuserve_status st =
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                 "%s: tensor '%s': the weights are quantized with separate scales, which this "
                 "version does not apply",
                 gsv_weight_file_name(tensor->file), tensor->name);

    return gsv_hint(error, st, "take the model's float16, bfloat16 or float32 weights");
}

/* Refuse a tensor of a file that is not of the int8 format. */
static gpuserve_status check_foreign(const struct gsv_tensor *tensor, gpuserve_error *error)
{
    gpuserve_status st;

    for (size_t i = 0; i < sizeof(foreign_endings) / sizeof(foreign_endings[0]); i++)
        if (ends_in(tensor->name, foreign_endings[i]))
            return fail_foreign(tensor, error);
    if (!ends_in(tensor->name, ".weight") ||
        (strcmp(tensor->type_name, "I8") != 0 && strcmp(tensor->type_name, "U8") != 0))
        return GPUSERVE_OK;
    st = gsv_fail(
        error, GPUSERVE_E_UNSUPPORTED,
        "%s: tensor '%s' is %s, and the file names no quantized format that gpuserve reads",
        gsv_weight_file_name(tensor->file), tensor->name, tensor->type_name);
    return gsv_hint(error, st,
                    "take the model's float16, bfloat16 or float32 weights; `gpuserve convert "
                    "--dtype int8` writes int8 weights that gpuserve reads");
}

/* Check that an I8 tensor of the int8 format has the scales it needs. */
static gpuserve_status check_scales(const struct gsv_tensor *tensor, gpuserve_error *error)
{
    const char *const shown = gsv_weight_file_name(tensor->file);
    char name[GSV_INT8_NAME_BYTES];
    struct gsv_tensor scales;
    const int length = snprintf(name, sizeof(name), "%s" GSV_SCALE_SUFFIX, tensor->name);

    if (length < 0 || (size_t)length >= sizeof(name))
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%.64s...': the name is longer than %d bytes", shown,
                        tensor->name, GSV_INT8_NAME_BYTES - 1);
    if (tensor->rank != 2)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' is I8 of rank %llu; " GSV_INT8_FORMAT " has rank 2", shown,
                        tensor->name, (unsigned long long)tensor->rank);
    if (!gsv_weight_file_find(tensor->file, name, &scales))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing: the scales of '%s'",
                        shown, name, tensor->name);
    if (scales.type != GSV_TENSOR_F32 || scales.rank != 1 || scales.shape[0] != tensor->shape[0])
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' is %s of rank %llu with %llu elements, expected F32 of "
                        "shape [%llu]",
                        shown, name, scales.type_name, (unsigned long long)scales.rank,
                        (unsigned long long)scales.count, (unsigned long long)tensor->shape[0]);
    return GPUSERVE_OK;
}

gpuserve_status gsv_check_quantization(struct gsv_weight_file *file, gpuserve_error *error)
{
    const char *const format = gsv_safetensors_metadata(file, "format");
    const bool is_int8 = format && strcmp(format, GSV_INT8_FORMAT) == 0;
    gpuserve_status st = GPUSERVE_OK;
    struct gsv_tensor tensor;

    for (size_t i = 0; st == GPUSERVE_OK && gsv_weight_file_at(file, i, &tensor); i++) {
        if (!is_int8)
            st = check_foreign(&tensor, error);
        else if (strcmp(tensor.type_name, "I8") == 0)
            st = check_scales(&tensor, error);
    }
    if (st == GPUSERVE_OK && is_int8)
        gsv_safetensors_use_row_scales(file);
    return st;
}

bool gsv_is_row_scales(const struct gsv_tensor *scales)
{
    char whole[GSV_INT8_NAME_BYTES];
    struct gsv_tensor tensor;
    const size_t n = strlen(scales->name), ending = strlen(GSV_SCALE_SUFFIX);

    if (n <= ending || n >= sizeof(whole) || !ends_in(scales->name, GSV_SCALE_SUFFIX))
        return false;
    memcpy(whole, scales->name, n - ending);
    whole[n - ending] = '\0';
    return gsv_weight_file_find(scales->file, whole, &tensor) && tensor.type == GSV_TENSOR_I8_ROWS;
}
