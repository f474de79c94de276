/*
 * finish.h - what follows the sums of a product while they are still in the first-level cache:
 * back to float32 where they are whole numbers, bias, activation, residual, and the cut at the
 * last column. Inlined into each product, once for each activation.
 */
#ifndef GSV_CPU_FINISH_H
#define GSV_CPU_FINISH_H

#include "kernels/cpu/isa.h"
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

/* Rows [row, row + rows) of one panel from `column` on. `sums` is [rows][GSV_NR] floats, or whole
 * numbers with `bytes`, the int8 product they belong to. */
GSV_INLINE void finish_as(const struct gsv_finish *finish, const struct gsv_gemm_s8 *bytes,
                          const void *sums, int32_t row, int32_t rows, int32_t column,
                          int32_t activation)
{
    for (int v = 0; v < GSV_NV; v++) {
        const int32_t from = column + v * GSV_VL;
        const int32_t width = finish->n - from < GSV_VL ? finish->n - from : GSV_VL;
        const vf bias = vf_load(finish->bias + from);
        const vf scale = bytes ? vf_load(bytes->scale + from) : bias;
        const vf column_sum = bytes ? vf_load(bytes->column_sum + from) : bias;

        if (width <= 0)
            return;
        for (int32_t r = 0; r < rows; r++) {
            const size_t at = (size_t)(row + r) * finish->out_ld + (size_t)from;
            const float *lane = (const float *)sums + r * GSV_NR + v * GSV_VL;
            vf x = vf_load(lane);

            if (bytes) {
                x = __builtin_convertvector((vi)x, vf);
                x = vf_fma(vf_set(bytes->step[row + r]), x,
                           vf_set(bytes->least[row + r]) * column_sum);
                x = x * scale;
            }
            finish_vector(finish->out + at, finish->residual ? finish->residual + at : NULL,
                          vf_activation(x + bias, activation), width);
        }
    }
}

GSV_INLINE void finish_tile(const struct gsv_finish *finish, const struct gsv_gemm_s8 *bytes,
                            const void *sums, int32_t row, int32_t rows, int32_t column)
{
    switch (finish->activation) {
    case GPUSERVE_ACT_GELU:
        finish_as(finish, bytes, sums, row, rows, column, GPUSERVE_ACT_GELU);
        break;
    case GPUSERVE_ACT_GELU_TANH:
        finish_as(finish, bytes, sums, row, rows, column, GPUSERVE_ACT_GELU_TANH);
        break;
    case GPUSERVE_ACT_RELU:
        finish_as(finish, bytes, sums, row, rows, column, GPUSERVE_ACT_RELU);
        break;
    case GPUSERVE_ACT_TANH:
        finish_as(finish, bytes, sums, row, rows, column, GPUSERVE_ACT_TANH);
        break;
    case GPUSERVE_ACT_SILU:
        finish_as(finish, bytes, sums, row, rows, column, GPUSERVE_ACT_SILU);
        break;
    default:
        finish_as(finish, bytes, sums, row, rows, column, GPUSERVE_ACT_NONE);
        break;
    }
}

#endif
