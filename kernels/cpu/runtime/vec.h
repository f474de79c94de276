/*
 * vec.h - a SIMD vector type with one set of names for every instruction set.
 *
 * The sources that include it are compiled several times with different -m flags
 * (kernels/cpu/meson.build). GCC's vector extension does plain arithmetic; intrinsics cover
 * operations that it lacks (fused multiply-add) or compiles poorly (max, select). -ffp-contract=off
 * forbids implicit fusing: each element needs the same operations in every tile height, or a row's
 * bits would depend on the other rows.
 *
 *   GSV_VL   floats in a vector
 *   GSV_NV   vectors in a panel of packed weights; GSV_NR columns in a panel
 *   GSV_MR   rows of the largest tile: GSV_MR * GSV_NV accumulators fill the registers
 *   GSV_NS   vectors that hold the GSV_SUM_LANES partial sums of a row
 *
 * The same bits on every instruction set: an element is one chain of operations in a fixed order,
 * and a sum over a row has 16 partial sums, whatever the width of a vector. Exceptions: bfloat16
 * products, and the table `generic`, which rounds twice in vf_fma(). GSV_EXACT_FMA, of the table
 * `portable`, makes it round once, without instructions for that.
 */
#ifndef GSV_CPU_VEC_H
#define GSV_CPU_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define GSV_VL 16
#define GSV_NV 2
#define GSV_MR 14
#elif defined(__AVX2__)
#include <immintrin.h>
#define GSV_VL 8
#define GSV_NV 2
#define GSV_MR 6
#elif defined(GSV_NEON) /* aarch64, except for the table `generic` */
#include <arm_neon.h>
#define GSV_VL 4
#define GSV_NV 4
#define GSV_MR 6
#else
#define GSV_VL 4
#if defined(GSV_EXACT_FMA) /* a panel of GSV_SUM_LANES: see attention.c */
#define GSV_NV 4
#else
#define GSV_NV 2
#endif
#define GSV_MR 6
#endif
#define GSV_NR (GSV_VL * GSV_NV)

/* Expands X(1) to X(GSV_MR): the inner loop of a product is compiled for each tile height. */
#define GSV_HEIGHTS_6(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define GSV_HEIGHTS_14(X) GSV_HEIGHTS_6(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#if GSV_MR == 14
#define GSV_HEIGHTS(X) GSV_HEIGHTS_14(X)
#else
#define GSV_HEIGHTS(X) GSV_HEIGHTS_6(X)
#endif

#define GSV_SUM_LANES 16
#define GSV_NS (GSV_SUM_LANES / GSV_VL)

typedef float vf __attribute__((vector_size(4 * GSV_VL)));
typedef int32_t vi __attribute__((vector_size(4 * GSV_VL)));
typedef float vf_any __attribute__((vector_size(4 * GSV_VL), aligned(4), may_alias));
typedef uint16_t vu16_any __attribute__((vector_size(2 * GSV_VL), aligned(2), may_alias));
typedef int32_t vi_any __attribute__((vector_size(4 * GSV_VL), aligned(1), may_alias));

/* Prefetch distance for weights. A product with few rows is bound by memory: 8 KiB was 30 % faster
 * than 2 KiB for a text of 8 tokens, and no slower for many rows. */
#define GSV_AHEAD_BYTES 8192

#define GSV_INLINE static inline __attribute__((always_inline, unused))

GSV_INLINE vf vf_load(const float *p)
{
    return *(const vf_any *)p;
}

GSV_INLINE void vf_store(float *p, vf v)
{
    *(vf_any *)p = v;
}

GSV_INLINE vf vf_set(float x)
{
    return x - (vf){ 0 }; /* x - 0 is x for every x, including -0 */
}

GSV_INLINE vi vi_set(int32_t x)
{
    return x + (vi){ 0 };
}

/* The 4 bytes at p in each lane. */
GSV_INLINE vi vi_broadcast(const void *p)
{
    int32_t word;

    memcpy(&word, p, sizeof(word));
    return vi_set(word);
}

/* The first n elements of p, then zeros; 0 <= n <= GSV_VL. */
GSV_INLINE vf vf_load_part(const float *p, int n)
{
    float lanes[GSV_VL] = { 0 };

    memcpy(lanes, p, (size_t)n * sizeof(float));
    return vf_load(lanes);
}

#if !defined(__AVX512F__) && !defined(__F16C__) && !defined(GSV_NEON)
/* Moves the exponent to its place in a float32 by a product, which also normalizes subnormals. */
GSV_INLINE float gsv_float_of_f16(uint16_t half)
{
    const uint32_t magnitude = (uint32_t)(half & 0x7FFF) << 13;
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t special = magnitude | 0x7F800000; /* infinity or NaN */
    uint32_t bits;
    float x;

    memcpy(&x, &magnitude, sizeof(x));
    x *= 0x1p112f;
    memcpy(&bits, &x, sizeof(bits));
    bits = sign | (magnitude >= 0x0F800000 ? special : bits);
    memcpy(&x, &bits, sizeof(x));
    return x;
}
#endif

/* GSV_VL adjacent numbers in float16. */
GSV_INLINE vf vf_load_f16(const uint16_t *from)
{
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
#elif defined(__F16C__)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
#elif defined(GSV_NEON)
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
    vf x;

    for (int i = 0; i < GSV_VL; i++)
        x[i] = gsv_float_of_f16(from[i]);
    return x;
#endif
}

/* GSV_VL adjacent numbers in bfloat16. */
GSV_INLINE vf vf_load_bf16(const uint16_t *from)
{
    return (vf)(__builtin_convertvector(*(const vu16_any *)(const void *)from, vi) << 16);
}

GSV_INLINE void vf_store_part(float *p, vf v, int n)
{
    float lanes[GSV_VL];

    vf_store(lanes, v);
    memcpy(p, lanes, (size_t)n * sizeof(float));
}

#if defined(GSV_EXACT_FMA)
typedef double vf_wide __attribute__((vector_size(8 * GSV_VL)));
typedef int64_t vi_wide __attribute__((vector_size(8 * GSV_VL)));

/* fmaf() of each element. The product of two floats is exact in double. The sum is rounded to odd
 * (Boldo and Melquiond 2008): where its error, exact by TwoSum (Knuth), is not 0 and its last bit
 * is, the neighbour on the side of the error replaces it. Rounding that to float rounds the exact
 * value. Infinities and NaNs have no error. */
GSV_INLINE vf gsv_exact_fma(vf a, vf b, vf c)
{
    const vf_wide product =
        __builtin_convertvector(a, vf_wide) * __builtin_convertvector(b, vf_wide);
    const vf_wide addend = __builtin_convertvector(c, vf_wide), sum = product + addend;
    const vf_wide part = sum - product;
    const vf_wide error = (product - (sum - part)) + (addend - part), zero = { 0 };
    const vi_wide bits = (vi_wide)sum, grows = (error > zero) ^ (sum < zero);
    const vi_wide is_even = (bits & 1) - 1, is_inexact = (error > zero) | (error < zero);
    const vi_wide odd = bits + (is_even & is_inexact & (~grows | 1)); /* + 1 or - 1 */

    return __builtin_convertvector((vf_wide)odd, vf);
}
#endif

/* a * b + c, with a single rounding if the hardware has FMA. */
GSV_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if defined(GSV_EXACT_FMA)
    return gsv_exact_fma(a, b, c);
#else
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(GSV_NEON)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
#endif
}

/* a in lanes where `mask` is all ones, b where it is 0. */
GSV_INLINE vf vf_select(vi mask, vf a, vf b)
{
#if defined(__AVX512DQ__)
    return (vf)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)b, (__m512)a);
#elif defined(GSV_NEON)
    return (vf)vbslq_f32((uint32x4_t)mask, (float32x4_t)a, (float32x4_t)b);
#else
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
#endif
}

/* Maximum; b if either is NaN. */
GSV_INLINE vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vf_select(a > b, a, b);
#endif
}

/* Minimum; b if either is NaN. */
GSV_INLINE vf vf_min(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vf_select(a < b, a, b);
#endif
}

/* Lane numbers 0, 1, 2, ... */
GSV_INLINE vi vi_lanes(void)
{
    vi lanes;

    for (int i = 0; i < GSV_VL; i++)
        lanes[i] = i;
    return lanes;
}

/* v in the first n lanes, `other` in the rest. */
GSV_INLINE vf vf_keep(vf v, int n, vf other)
{
    return vf_select(vi_lanes() < vi_set(n), v, other);
}

/* VF_FROM_n: moves the upper n of the first 2 n lanes to the lowest lanes; the other lanes are
 * unspecified. */
#if GSV_VL == 16
#define VF_FROM_8(v) \
    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15)
#define VF_FROM_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7)
#define VF_FROM_2(v) \
    __builtin_shufflevector(v, v, 2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15)
#define VF_FROM_1(v) \
    __builtin_shufflevector(v, v, 1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15)
#elif GSV_VL == 8
#define VF_FROM_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 4, 5, 6, 7)
#define VF_FROM_2(v) __builtin_shufflevector(v, v, 2, 3, 2, 3, 6, 7, 6, 7)
#define VF_FROM_1(v) __builtin_shufflevector(v, v, 1, 1, 3, 3, 5, 5, 7, 7)
#else
#define VF_FROM_2(v) __builtin_shufflevector(v, v, 2, 3, 2, 3)
#define VF_FROM_1(v) __builtin_shufflevector(v, v, 1, 1, 3, 3)
#endif

/* Horizontal sum and maximum by halving, always in the same order. */
GSV_INLINE float vf_sum(vf v)
{
#if GSV_VL == 16
    v = v + VF_FROM_8(v);
#endif
#if GSV_VL >= 8
    v = v + VF_FROM_4(v);
#endif
    v = v + VF_FROM_2(v);
    v = v + VF_FROM_1(v);
    return v[0];
}

/* The partial sums of a row: element i belongs to lane i % GSV_SUM_LANES. */
struct vf_sums {
    vf part[GSV_NS];
};

GSV_INLINE struct vf_sums vf_no_sums(void)
{
    struct vf_sums sums;

    for (int s = 0; s < GSV_NS; s++)
        sums.part[s] = vf_set(0.0f);
    return sums;
}

/* Their sum, by halving: of 16 lanes, then of 8, and so on. */
GSV_INLINE float vf_total(struct vf_sums sums)
{
#if GSV_NS == 4
    return vf_sum((sums.part[0] + sums.part[2]) + (sums.part[1] + sums.part[3]));
#elif GSV_NS == 2
    return vf_sum(sums.part[0] + sums.part[1]);
#else
    return vf_sum(sums.part[0]);
#endif
}

GSV_INLINE float vf_largest(vf v)
{
#if GSV_VL == 16
    v = vf_max(v, VF_FROM_8(v));
#endif
#if GSV_VL >= 8
    v = vf_max(v, VF_FROM_4(v));
#endif
    v = vf_max(v, VF_FROM_2(v));
    v = vf_max(v, VF_FROM_1(v));
    return v[0];
}

/* Interleaves the first (low) or second (high) halves of a and b: (a0, b0, a1, b1, ...). */
#if GSV_VL == 16
#define VF_ZIP_LOW(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define VF_ZIP_HIGH(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif GSV_VL == 8
#define VF_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define VF_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define VF_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define VF_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* The elements at even (odd) positions of a, then of b: undoes VF_ZIP_LOW and VF_ZIP_HIGH. */
#if GSV_VL == 16
#define VF_EVEN(a, b) \
    __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define VF_ODD(a, b) \
    __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif GSV_VL == 8
#define VF_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define VF_ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define VF_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define VF_ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

/* Transpose: log2(GSV_VL) rounds of interleaving row i with row i + GSV_VL / 2. */
GSV_INLINE void vf_transpose(vf rows[GSV_VL])
{
    for (int round = 1; round < GSV_VL; round *= 2) {
        vf zipped[GSV_VL];

        for (int i = 0; i < GSV_VL / 2; i++) {
            zipped[2 * i] = VF_ZIP_LOW(rows[i], rows[i + GSV_VL / 2]);
            zipped[2 * i + 1] = VF_ZIP_HIGH(rows[i], rows[i + GSV_VL / 2]);
        }
        for (int i = 0; i < GSV_VL; i++)
            rows[i] = zipped[i];
    }
}

/* Row pointers of a tile: one base pointer for three rows, reached by scaled addressing, so that
 * the loop over k has arithmetic and loads only. With one register per row the compiler would run
 * out of registers. */
#define GSV_BASES(rows) (((rows) + 2) / 3)

struct gsv_tile_rows {
    const char *base[GSV_BASES(GSV_MR)];
    size_t ld; /* bytes */
};

GSV_INLINE void gsv_rows_start(struct gsv_tile_rows *at, int32_t rows, const void *a, size_t ld)
{
    at->ld = ld;
#pragma GCC unroll 16
    for (int b = 0; b < GSV_BASES(rows); b++)
        at->base[b] = (const char *)a + 3 * (size_t)b * ld;
}

GSV_INLINE const void *gsv_row(const struct gsv_tile_rows *at, int r)
{
    return at->base[r / 3] + (size_t)(r % 3) * at->ld;
}

/* The empty asm hides that the pointers differ by constants. */
GSV_INLINE void gsv_rows_advance(struct gsv_tile_rows *at, int32_t rows, size_t bytes)
{
#pragma GCC unroll 16
    for (int b = 0; b < GSV_BASES(rows); b++) {
        at->base[b] += bytes;
        __asm__("" : "+r"(at->base[b]));
    }
}

#endif
