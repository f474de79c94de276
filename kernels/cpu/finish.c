/*
 * finish: what follows the sums of a product while they are still in the first-level cache: bias,
 * activation, residual, and the cut at the last column.
 */
#include "kernels/cpu/variant.h"
#include "kernels/cpu/vmath.h"

/* One vector of one row; `width` is GSV_VL but for the last columns. */
GSV_INLINE void finish_vector(float *out, const float *residual, vf x, int width)
{
    if (width == GSV_VL) {
        vf_store(out, residual ? x + vf_load(residual) : x);
        return;
    }
    vf_store_part(out, residual ? x + vf_load_part(residual, width) : x, width);
}

GSV_INLINE void finish_rows(const struct gsv_finish *finish, const float *tile, int32_t row,
                            int32_t rows, int32_t column, int32_t activation)
{
    for (int v = 0; v < GSV_NV; v++) {
        const int32_t at_column = column + v * GSV_VL;
        const int32_t left = finish->n - at_column;
        const vf bias = vf_load(finish->bias + at_column);

        if (left <= 0)
            return;
        for (int32_t r = 0; r < rows; r++) {
            const size_t at = (size_t)(row + r) * finish->out_ld + (size_t)at_column;
            const vf sum = vf_load(tile + r * GSV_NR + v * GSV_VL);

            finish_vector(finish->out + at, finish->residual ? finish->residual + at : NULL,
                          vf_activation(sum + bias, activation), left < GSV_VL ? left : GSV_VL);
        }
    }
}

void GSV_VARIANT(gsv_finish_tile)(const struct gsv_finish *finish, float *tile, int32_t row,
                                  int32_t rows, int32_t column)
{
    switch (finish->activation) {
    case GPUSERVE_ACT_GELU:
        finish_rows(finish, tile, row, rows, column, GPUSERVE_ACT_GELU);
        break;
    case GPUSERVE_ACT_GELU_TANH:
        finish_rows(finish, tile, row, rows, column, GPUSERVE_ACT_GELU_TANH);
        break;
    case GPUSERVE_ACT_RELU:
        finish_rows(finish, tile, row, rows, column, GPUSERVE_ACT_RELU);
        break;
    case GPUSERVE_ACT_TANH:
        finish_rows(finish, tile, row, rows, column, GPUSERVE_ACT_TANH);
        break;
    case GPUSERVE_ACT_SILU:
        finish_rows(finish, tile, row, rows, column, GPUSERVE_ACT_SILU);
        break;
    default:
        finish_rows(finish, tile, row, rows, column, GPUSERVE_ACT_NONE);
        break;
    }
}
