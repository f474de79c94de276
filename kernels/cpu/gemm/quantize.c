/*
 * quantize: float32 rows to unsigned bytes, with a zero point (`min`) and a scale (`step`) per
 * row.
 *
 * Each row is read twice, for its range and for rounding, and both times multiplied by input_scale
 * in the same way. A row with a NaN or an infinity gets step NaN and so a result of NaN. The check:
 * the sum of x * 0 over the row is not exactly 0 then.
 *
 * An input that takes several columns (outlier channel splitting, Zhao et al. 2019) has as many
 * times finer steps; its integer is divided among the columns.
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#include <math.h>

#define MIN_WIDTH 1e-30f /* minimum range to divide into steps: 255 / width stays finite */

/* Elements [i, i + n) of the row, scaled; lanes from n on repeat the first element. */
GSV_INLINE vf scaled(const struct gsv_quantize *q, const float *x, int32_t i, int n)
{
    vf v = n == GSV_VL ? vf_load(x + i) : vf_load_part(x + i, n);

    if (q->input_scale)
        v = v * (n == GSV_VL ? vf_load(q->input_scale + i) : vf_load_part(q->input_scale + i, n));
    return n == GSV_VL ? v : vf_keep(v, n, vf_set(v[0]));
}

GSV_INLINE int lanes_at(const struct gsv_quantize *q, int32_t i)
{
    return q->k - i < GSV_VL ? q->k - i : GSV_VL;
}

struct range {
    float min, max;
    int finite;
};

/* Independent accumulators, so that consecutive vectors have no dependency on each other. */
#define STREAMS 4

static struct range range_of(const struct gsv_quantize *q, const float *x)
{
    const int32_t whole = q->k / (STREAMS * GSV_VL) * (STREAMS * GSV_VL);
    vf min[STREAMS], max[STREAMS], poison[STREAMS];

#pragma GCC unroll 4
    for (int s = 0; s < STREAMS; s++) {
        min[s] = vf_set(INFINITY);
        max[s] = vf_set(-INFINITY);
        poison[s] = vf_set(0.0f);
    }
    for (int32_t i = 0; i < whole; i += STREAMS * GSV_VL) {
#pragma GCC unroll 4
        for (int s = 0; s < STREAMS; s++) {
            const vf v = scaled(q, x, i + s * GSV_VL, GSV_VL);

            min[s] = vf_min(v, min[s]);
            max[s] = vf_max(v, max[s]);
            poison[s] = vf_fma(v, vf_set(0.0f), poison[s]);
        }
    }
    for (int32_t i = whole; i < q->k; i += GSV_VL) {
        const vf v = scaled(q, x, i, lanes_at(q, i));

        min[0] = vf_min(v, min[0]);
        max[0] = vf_max(v, max[0]);
        poison[0] = vf_fma(v, vf_set(0.0f), poison[0]);
    }
#pragma GCC unroll 4
    for (int s = 1; s < STREAMS; s++) {
        min[0] = vf_min(min[s], min[0]);
        max[0] = vf_max(max[s], max[0]);
        poison[0] = poison[0] + poison[s];
    }
    /* Of -0 and +0 either is the minimum, by the order of the lanes: + 0.0f makes it +0. */
    return (struct range){ -vf_largest(-min[0]) + 0.0f, vf_largest(max[0]),
                           vf_sum(poison[0]) == 0.0f };
}

/* Rounds to nearest, ties to even, and stores bytes. The lanes are in 0..255, except that (most -
 * least) * (255 / (most - least)) may exceed 255 by one rounding error, which rounds back to
 * 255. */
GSV_INLINE void store_bytes(uint8_t *out, vf v)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)(void *)out, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32((__m512)v)));
#elif defined(__AVX2__)
    const __m256i whole = _mm256_cvtps_epi32((__m256)v);
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));

    _mm_storel_epi64((__m128i *)(void *)out, _mm_packus_epi16(words, words));
#elif defined(GSV_NEON)
    const uint16x4_t words = vmovn_u32(vcvtnq_u32_f32((float32x4_t)v));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));

    memcpy(out, &bytes, GSV_VL);
#else
    const vf magic = vf_set(12582912.0f); /* adding it rounds to an integer, ties to even */
    const vi whole = (vi)(v + magic) - (vi)magic;

    for (int i = 0; i < GSV_VL; i++)
        out[i] = (uint8_t)whole[i];
#endif
}

#if defined(__AVX2__) && !defined(__AVX512F__)
/* STREAMS vectors at once, with a quarter of the shuffles. */
GSV_INLINE void store_vectors(uint8_t *out, const vf v[STREAMS])
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes the two packs */
    const __m256i first =
        _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)v[0]), _mm256_cvtps_epi32((__m256)v[1]));
    const __m256i second =
        _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)v[2]), _mm256_cvtps_epi32((__m256)v[3]));

    _mm256_storeu_si256((__m256i *)(void *)out,
                        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order));
}
#else
GSV_INLINE void store_vectors(uint8_t *out, const vf v[STREAMS])
{
#pragma GCC unroll 4
    for (int i = 0; i < STREAMS; i++)
        store_bytes(out + i * GSV_VL, v[i]);
}
#endif

static void quantize_row(const struct gsv_quantize *q, const float *x, uint8_t *out, float min,
                         float inverse)
{
    const int32_t whole = q->k / (STREAMS * GSV_VL) * (STREAMS * GSV_VL);

    for (int32_t i = 0; i < whole; i += STREAMS * GSV_VL) {
        vf v[STREAMS];

#pragma GCC unroll 4
        for (int s = 0; s < STREAMS; s++)
            v[s] = (scaled(q, x, i + s * GSV_VL, GSV_VL) - vf_set(min)) * vf_set(inverse);
        store_vectors(out + i, v);
    }
    for (int32_t i = whole; i < q->k; i += GSV_VL)
        store_bytes(out + i, (scaled(q, x, i, lanes_at(q, i)) - vf_set(min)) * vf_set(inverse));
}

/* Rounds to nearest, ties to even, for |x| < 2^22. */
static int32_t nearest(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */
    const float shifted = x + magic;

    return (int32_t)(shifted - magic);
}

/* Divides the integers of inputs that take several columns among these: an input in steps of 1 /
 * columns is a sum of `columns` bytes that differ by at most 1, the larger ones last. */
static void share_inputs(const struct gsv_quantize *q, const float *x, uint8_t *out, float min,
                         float inverse)
{
    uint8_t *copies = out + q->k;

    for (int32_t i = 0; i < q->n_shared; i++) {
        const int32_t input = q->shared[i].input, columns = q->shared[i].columns;
        const float v = x[input] * (q->input_scale ? q->input_scale[input] : 1.0f);
        const int32_t whole = nearest((v - min) * inverse * (float)columns);
        const int32_t limit = 255 * columns;
        const int32_t sum = whole < 0 ? 0 : whole > limit ? limit : whole;
        const int32_t each = sum / columns, rest = sum - each * columns;
        const size_t n_equal = (size_t)(columns - 1 - rest);

        out[input] = (uint8_t)each;
        memset(copies, each, n_equal);
        memset(copies + n_equal, each + 1, (size_t)rest);
        copies += columns - 1;
    }
}

void GSV_VARIANT(gsv_quantize)(const struct gsv_quantize *q, int32_t row, int32_t row_end)
{
    for (; row < row_end; row++) {
        const float *x = q->in + (size_t)row * q->in_ld;
        float inverse;
        uint8_t *out = q->out + (size_t)row * q->out_ld;
        const struct range range = range_of(q, x);
        const float width = range.max - range.min + 0.0f; /* not -0 */

        if (!range.finite || !(width < INFINITY)) {
            q->min[row] = q->step[row] = NAN;
            memset(out, 0, q->out_ld);
            continue;
        }
        q->min[row] = range.min;
        q->step[row] = width / 255.0f;
        inverse = width >= MIN_WIDTH ? 255.0f / width : 0.0f;
        quantize_row(q, x, out, range.min, inverse);
        share_inputs(q, x, out, range.min, inverse);
    }
}
