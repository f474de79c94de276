/*
 * round_bf16: float32 rows to bfloat16 rows, the input of a bfloat16 product.
 */
#include "kernels/cpu/runtime/bf16.h"
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

/* Rounds rows: ties to even, a NaN stays a NaN. Zeros follow up to a multiple of GSV_BF16_STEP. */
void GSV_VARIANT(gsv_round_bf16)(const struct gsv_round_bf16 *r, int32_t row, int32_t row_end)
{
    const int32_t end = (r->k + GSV_BF16_STEP - 1) / GSV_BF16_STEP * GSV_BF16_STEP;

    for (; row < row_end; row++) {
        const float *in = r->in + (size_t)row * r->in_ld;
        uint16_t *out = r->out + (size_t)row * r->out_ld;

        for (int32_t i = 0; i < end; i += GSV_VL) {
            const int32_t left = r->k - i;
            const vf x =
                left >= GSV_VL ? vf_load(in + i) : vf_load_part(in + i, left > 0 ? left : 0);

            vh_store(out + i, vh_round(x));
        }
    }
}
