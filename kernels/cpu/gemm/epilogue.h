/*
 * epilogue.h - the fused epilogue of a product, applied while the sums are in the L1 cache:
 * dequantization (int8, int16), bias, activation, residual, and the cut at the last column. Inlined
 * into each product, once per activation.
 */
#ifndef GSV_CPU_EPILOGUE_H
#define GSV_CPU_EPILOGUE_H

#include "kernels/cpu/runtime/isa.h"
#include "kernels/cpu/runtime/vmath.h"

/* Number format of the sums of a product. */
enum finish_sums {
    FINISH_FLOAT,
    FINISH_ROUNDED, /* floats of products of bfloat16 */
    FINISH_BYTES,   /* 32-bit integers of the int8 product */
    FINISH_WORDS,   /* 32-bit integers of the int16 product */
};

/* One column of vectors through the rows of a tile. Passed by value, so that all fields stay in
 * registers. */
struct finish_column {
    const float *sums; /* row stride GSV_NR */
    float *out;        /* row stride ld */
    const float *residual;
    const float *step, *min; /* scale and zero point of the rows; integers only */
    size_t ld;
    int32_t rows;
    int width; /* GSV_VL except for the last columns */
    vf bias, scale, column_sum;
};

GSV_INLINE void finish_rows(struct finish_column c, int32_t activation, enum finish_sums kind,
                            int residual, int whole)
{
    for (int32_t r = 0; r < c.rows; r++) {
        vf x = vf_load(c.sums);

        if (kind == FINISH_BYTES) {
            x = __builtin_convertvector((vi)x, vf);
            x = vf_fma(vf_set(c.step[r]), x, vf_set(c.min[r]) * c.column_sum);
            x = vf_fma(x, c.scale, c.bias);
        } else if (kind == FINISH_WORDS) {
            x = __builtin_convertvector((vi)x, vf) * vf_set(c.step[r]);
            x = vf_fma(x, c.scale, c.bias);
        } else {
            x = x + c.bias;
        }
        if ((kind == FINISH_BYTES || kind == FINISH_ROUNDED) && activation == GPUSERVE_ACT_GELU)
            x = vf_gelu_coarse(x);
        else
            x = vf_activation(x, activation);
        if (residual)
            x = x + (whole ? vf_load(c.residual) : vf_load_part(c.residual, c.width));
        if (whole)
            vf_store(c.out, x);
        else
            vf_store_part(c.out, x, c.width);
        c.sums += GSV_NR;
        c.out += c.ld;
        if (residual)
            c.residual += c.ld;
    }
}

/* Rows [row, row + rows) of one panel from `column` on. `sums` is [rows][GSV_NR]; `scales` is NULL
 * for floats. */
GSV_INLINE void finish_as(const struct gsv_finish *finish, enum finish_sums kind,
                          const struct gsv_scales *scales, const void *sums, int32_t row,
                          int32_t rows, int32_t column, int32_t activation)
{
    for (int32_t from = column; from < column + GSV_NR && from < finish->n; from += GSV_VL) {
        const size_t at = (size_t)row * finish->out_ld + (size_t)from;
        struct finish_column c = {
            .sums = (const float *)sums + (from - column),
            .out = finish->out + at,
            .ld = finish->out_ld,
            .rows = rows,
            .width = finish->n - from < GSV_VL ? finish->n - from : GSV_VL,
            .bias = vf_load(finish->bias + from),
        };

        if (finish->residual)
            c.residual = finish->residual + at;
        if (kind == FINISH_BYTES || kind == FINISH_WORDS) {
            c.step = scales->step + row;
            c.scale = vf_load(scales->scale + from);
        }
        if (kind == FINISH_BYTES) {
            c.min = scales->min + row;
            c.column_sum = vf_load(scales->column_sum + from);
        }
        if (c.width < GSV_VL)
            finish_rows(c, activation, kind, c.residual != NULL, 0);
        else if (c.residual)
            finish_rows(c, activation, kind, 1, 1);
        else
            finish_rows(c, activation, kind, 0, 1);
    }
}

GSV_INLINE void finish_tile(const struct gsv_finish *finish, enum finish_sums kind,
                            const struct gsv_scales *scales, const void *sums, int32_t row,
                            int32_t rows, int32_t column)
{
    switch (finish->activation) {
    case GPUSERVE_ACT_GELU:
        finish_as(finish, kind, scales, sums, row, rows, column, GPUSERVE_ACT_GELU);
        break;
    case GPUSERVE_ACT_GELU_TANH:
        finish_as(finish, kind, scales, sums, row, rows, column, GPUSERVE_ACT_GELU_TANH);
        break;
    case GPUSERVE_ACT_RELU:
        finish_as(finish, kind, scales, sums, row, rows, column, GPUSERVE_ACT_RELU);
        break;
    case GPUSERVE_ACT_TANH:
        finish_as(finish, kind, scales, sums, row, rows, column, GPUSERVE_ACT_TANH);
        break;
    case GPUSERVE_ACT_SILU:
        finish_as(finish, kind, scales, sums, row, rows, column, GPUSERVE_ACT_SILU);
        break;
    case GPUSERVE_ACT_QUICK_GELU:
        finish_as(finish, kind, scales, sums, row, rows, column, GPUSERVE_ACT_QUICK_GELU);
        break;
    default:
        finish_as(finish, kind, scales, sums, row, rows, column, GPUSERVE_ACT_NONE);
        break;
    }
}

#endif
