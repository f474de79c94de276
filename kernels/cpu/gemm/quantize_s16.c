/*
 * quantize_s16: float32 rows to signed 16-bit integers with a scale (`step`) per row, the input of
 * gemm_s16.c.
 *
 * Each row is read twice, for its largest magnitude and for rounding. A row with a NaN or an
 * infinity gets step NaN and so a result of NaN.
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/s16.h"

#include <math.h>

/* Independent accumulators, so that consecutive vectors have no dependency on each other. */
#define STREAMS 4

GSV_INLINE vf part_of(const struct gsv_quantize_s16 *q, const float *x, int32_t i)
{
    const int32_t left = q->k - i;

    return left >= GSV_VL ? vf_load(x + i) : vf_load_part(x + i, left > 0 ? left : 0);
}

/* The largest magnitude; NaN if an element is infinite or NaN. */
static float largest_of(const struct gsv_quantize_s16 *q, const float *x)
{
    const int32_t whole = q->k / (STREAMS * GSV_VL) * (STREAMS * GSV_VL);
    vf largest[STREAMS];
    float found;

#pragma GCC unroll 4
    for (int s = 0; s < STREAMS; s++)
        largest[s] = vf_set(0.0f);
    for (int32_t i = 0; i < whole; i += STREAMS * GSV_VL)
#pragma GCC unroll 4
        for (int s = 0; s < STREAMS; s++)
            largest[s] = vs_larger(largest[s], vf_load(x + i + s * GSV_VL));
    for (int32_t i = whole; i < q->k; i += GSV_VL)
        largest[0] = vs_larger(largest[0], part_of(q, x, i));
#pragma GCC unroll 4
    for (int s = 1; s < STREAMS; s++)
        largest[0] = vs_larger(largest[0], largest[s]);
    found = vs_largest(largest[0]);
    return found < INFINITY ? found : NAN;
}

/* Rounds two vectors to nearest, ties to even. */
GSV_INLINE void store_words(int16_t *out, vf first, vf second)
{
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)out,
                        _mm512_cvtepi32_epi16(_mm512_cvtps_epi32((__m512)first)));
    _mm256_storeu_si256((__m256i *)(void *)(out + GSV_VL),
                        _mm512_cvtepi32_epi16(_mm512_cvtps_epi32((__m512)second)));
#else
    const __m256i words =
        _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)first), _mm256_cvtps_epi32((__m256)second));

    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_permute4x64_epi64(words, 0xD8));
#endif
}

/* Zeros follow up to a multiple of two vectors. */
void GSV_VARIANT(gsv_quantize_s16)(const struct gsv_quantize_s16 *q, int32_t row, int32_t row_end)
{
    for (; row < row_end; row++) {
        const float *x = q->in + (size_t)row * q->in_ld;
        int16_t *out = q->out + (size_t)row * q->out_ld;
        const float largest = largest_of(q, x), levels = (float)q->levels;
        vf inverse;

        q->step[row] = largest / levels;
        if (!(largest < INFINITY)) {
            memset(out, 0, q->out_ld * sizeof(*out));
            continue;
        }
        inverse = vf_set(largest >= VS_MIN_LARGEST ? levels / largest : 0.0f);
        for (int32_t i = 0; i < q->k; i += 2 * GSV_VL)
            store_words(out + i, part_of(q, x, i) * inverse, part_of(q, x, i + GSV_VL) * inverse);
    }
}
