/*
 * gemm_s8: the quantized product: unsigned 8-bit rows, signed 8-bit weights, 32-bit integer sums.
 *
 * gsv_quantize() gives each row its own zero point (`min`) and scale (`step`), as
 * kernels/ref/linear.c defines them, so a row's bits depend on that row alone. Integer sums are
 * exact in any order. The epilogue computes
 *
 *   ((step * sum) + (least * column_sum)) * scale + bias, then activation and residual
 *
 * One 32-bit lane holds four products of a column. They are added by one VNNI instruction. Without
 * VNNI, weights that fit s8_sums.h are multiplied as bytes, all others by two 16-bit multiply-adds
 * (32-bit results, since 2 * 255 * 127 exceeds 16 bits), or by plain vector arithmetic (255 * 127
 * fits 16 bits). aarch64 has its own tile: tile_s8_neon.h.
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/runtime/s8_sums.h"

/* Rows whose bytes stay in the L1 cache together with a panel. */
#define CHUNK_BYTES (16 << 10)

#if defined(GSV_NEON)
#include "kernels/cpu/gemm/tile_s8_neon.h"
#else
#if defined(__AVX512VNNI__) && GSV_VL == 16
#define DOT4_VNNI(sum, x, w) (vi) _mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(x), (__m512i)(w))
#elif defined(__AVXVNNI__) && GSV_VL == 8
#define DOT4_VNNI(sum, x, w) \
    (vi) _mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(x), (__m256i)(w))
#elif GSV_VL == 16 && defined(__AVX512BW__)
#define MADD16(a, b) (vi) _mm512_madd_epi16((__m512i)(a), (__m512i)(b))
#define MADD8(x, w) (vs) _mm512_maddubs_epi16((__m512i)(x), (__m512i)(w))
#define SUM_ROWS 10 /* 20 sums, 4 weights and the products fill 32 registers */
#elif GSV_VL == 8
#define MADD16(a, b) (vi) _mm256_madd_epi16((__m256i)(a), (__m256i)(b))
#define MADD8(x, w) (vs) _mm256_maddubs_epi16((__m256i)(x), (__m256i)(w))
#define SUM_ROWS 4 /* 8 sums, 4 weights and the products fill 16 registers */
#endif

typedef int16_t vs __attribute__((vector_size(4 * GSV_VL)));
typedef uint16_t vus __attribute__((vector_size(4 * GSV_VL)));

/* The four bytes of each lane as 16-bit numbers: `even` has bytes 0 and 2, `odd` bytes 1 and 3. */
struct gemm_s8_split {
    vs even, odd;
};

GSV_INLINE struct gemm_s8_split split_weight(vi w)
{
    return (struct gemm_s8_split){ (vs)((vus)w << 8) >> 8, (vs)w >> 8 };
}

GSV_INLINE struct gemm_s8_split split_input(vi x)
{
    return (struct gemm_s8_split){ (vs)(x & vi_set(0x00FF00FF)), (vs)((vus)x >> 8) };
}

GSV_INLINE vi dot4(vi sum, struct gemm_s8_split x, struct gemm_s8_split w)
{
#if defined(MADD16)
    return sum + MADD16(x.even, w.even) + MADD16(x.odd, w.odd);
#else
    const vi even = (vi)(x.even * w.even), odd = (vi)(x.odd * w.odd);

    return sum + ((even << 16) >> 16) + (even >> 16) + ((odd << 16) >> 16) + (odd >> 16);
#endif
}

/* One step of four k: sums[r][v] += in[r] . weight[v]. */
GSV_INLINE void step4(int32_t rows, const uint8_t *a, size_t lda, const int8_t *b,
                      vi sums[GSV_MR][GSV_NV])
{
#if defined(DOT4_VNNI)
    vi weight[GSV_NV];
#else
    struct gemm_s8_split weight[GSV_NV];
#endif

#pragma GCC unroll 16
    for (int v = 0; v < GSV_NV; v++) {
        const vi w = *(const vi_any *)(b + v * 4 * GSV_VL);

        __builtin_prefetch((const char *)(b + v * 4 * GSV_VL) + GSV_AHEAD_BYTES);
#if defined(DOT4_VNNI)
        weight[v] = w;
#else
        weight[v] = split_weight(w);
#endif
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        const vi x = vi_broadcast(a + (size_t)r * lda);
#if defined(DOT4_VNNI)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = DOT4_VNNI(sums[r][v], x, weight[v]);
#else
        const struct gemm_s8_split in = split_input(x);

#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = dot4(sums[r][v], in, weight[v]);
#endif
    }
}

GSV_INLINE void tile(int32_t rows, const uint8_t *a, size_t lda, const int8_t *b, int32_t k,
                     const float *column_sum, int32_t *c)
{
    vi sums[GSV_MR][GSV_NV];

    (void)column_sum;
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vi_set(0);
    for (int32_t i = 0; i < k; i += 4) {
        step4(rows, a, lda, b, sums);
        a += 4;
        b += 4 * GSV_NR;
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            *(vi_any *)(c + r * GSV_NR + v * GSV_VL) = sums[r][v];
}
#endif

/* `column_sum` is that of the panel's columns. */
typedef void (*tile_fn)(const uint8_t *a, size_t lda, const int8_t *b, int32_t k,
                        const float *column_sum, int32_t *c);

#define TILE(rows)                                                                    \
    static void tile_##rows(const uint8_t *a, size_t lda, const int8_t *b, int32_t k, \
                            const float *column_sum, int32_t *c)                      \
    {                                                                                 \
        tile(rows, a, lda, b, k, column_sum, c);                                      \
    }

#define TILE_NAME(rows) tile_##rows,

GSV_HEIGHTS(TILE)

static const tile_fn tiles[GSV_MR + 1] = { NULL, GSV_HEIGHTS(TILE_NAME) };

#if GSV_ADDS_SUMS
/* Two lanes of four k of each column, as quads, or one lane as pairs. */
GSV_INLINE void step_sums(enum gsv_s8_sum sum, int32_t rows, const struct gsv_tile_rows *at,
                          const int8_t *b, vi sums[SUM_ROWS][GSV_NV])
{
    const int lanes = sum == GSV_SUM_QUAD ? 2 : 1;
    const vs ones = (vs)vi_set(0x00010001);
    vi first[GSV_NV], second[GSV_NV];

#pragma GCC unroll 16
    for (int v = 0; v < GSV_NV; v++) {
        first[v] = *(const vi_any *)(b + v * 4 * GSV_VL);
        if (lanes == 2)
            second[v] = *(const vi_any *)(b + 4 * GSV_NR + v * 4 * GSV_VL);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes * 4 * GSV_NR; i += 64)
        __builtin_prefetch((const char *)b + GSV_AHEAD_BYTES + i);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        const uint8_t *in = gsv_row(at, r);
        const vi x = vi_broadcast(in), y = lanes == 2 ? vi_broadcast(in + 4) : vi_set(0);

#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++) {
            vs added = MADD8(x, first[v]);

            if (lanes == 2)
                added = added + MADD8(y, second[v]);
            sums[r][v] += MADD16(added, ones);
        }
    }
}

/* With quads, an odd last lane is one of pairs. */
GSV_INLINE void tile_sums(enum gsv_s8_sum sum, int32_t rows, const uint8_t *a, size_t lda,
                          const int8_t *b, int32_t k, int32_t *c)
{
    vi sums[SUM_ROWS][GSV_NV];
    struct gsv_tile_rows at;

#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            sums[r][v] = vi_set(0);
    gsv_rows_start(&at, rows, a, lda);
    for (; sum == GSV_SUM_QUAD && k >= GSV_QUAD_DEPTH; k -= GSV_QUAD_DEPTH) {
        step_sums(GSV_SUM_QUAD, rows, &at, b, sums);
        b += GSV_QUAD_DEPTH * GSV_NR;
        gsv_rows_advance(&at, rows, GSV_QUAD_DEPTH);
    }
    for (; k > 0; k -= 4) {
        step_sums(GSV_SUM_PAIR, rows, &at, b, sums);
        b += 4 * GSV_NR;
        gsv_rows_advance(&at, rows, 4);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < GSV_NV; v++)
            *(vi_any *)(c + r * GSV_NR + v * GSV_VL) = sums[r][v];
}

#define SUMS(name, sum, rows)                                                           \
    static void name##_##rows(const uint8_t *a, size_t lda, const int8_t *b, int32_t k, \
                              const float *column_sum, int32_t *c)                      \
    {                                                                                   \
        (void)column_sum;                                                               \
        tile_sums(sum, rows, a, lda, b, k, c);                                          \
    }
#define QUADS(rows) SUMS(quads, GSV_SUM_QUAD, rows)
#define PAIRS(rows) SUMS(pairs, GSV_SUM_PAIR, rows)
#define QUADS_NAME(rows) quads_##rows,
#define PAIRS_NAME(rows) pairs_##rows,
#define SUM_HEIGHTS_4(X) X(1) X(2) X(3) X(4)
#if SUM_ROWS == 10
#define SUM_HEIGHTS(X) SUM_HEIGHTS_4(X) X(5) X(6) X(7) X(8) X(9) X(10)
#else
#define SUM_HEIGHTS(X) SUM_HEIGHTS_4(X)
#endif

SUM_HEIGHTS(QUADS)
SUM_HEIGHTS(PAIRS)

static const tile_fn quad_tiles[SUM_ROWS + 1] = { NULL, SUM_HEIGHTS(QUADS_NAME) };
static const tile_fn pair_tiles[SUM_ROWS + 1] = { NULL, SUM_HEIGHTS(PAIRS_NAME) };
#endif

/* A chunk of rows stays in the L1 cache while all panels pass, and a panel while all tiles of the
 * chunk pass. */
static void walk(const struct gsv_gemm_s8 *gemm, const struct gsv_span *span, const tile_fn *run,
                 int32_t height)
{
    const size_t panel_bytes = (size_t)gemm->k * GSV_NR;
    const int32_t n_tiles = CHUNK_BYTES / (height * gemm->k);
    const int32_t max_rows = n_tiles < 1 ? height : n_tiles * height;
    int32_t sums[GSV_MR * GSV_NR] __attribute__((aligned(64)));

    for (int32_t row = span->row, end; row < span->row_end; row = end) {
        end = row + gsv_tile_height(span->row_end - row, max_rows);
        for (int32_t panel = span->panel; panel < span->panel_end; panel++) {
            for (int32_t at = row, rows; at < end; at += rows) {
                rows = gsv_tile_height(end - at, height);
                run[rows](gemm->in + (size_t)at * gemm->in_ld, gemm->in_ld,
                          gemm->weight + (size_t)panel * panel_bytes, gemm->k,
                          gemm->scales.column_sum + (size_t)panel * GSV_NR, sums);
                finish_tile(&gemm->finish, FINISH_BYTES, &gemm->scales, sums, at, rows,
                            panel * GSV_NR);
            }
        }
    }
}

void GSV_VARIANT(gsv_gemm_s8)(const struct gsv_gemm_s8 *gemm, const struct gsv_span *span)
{
#if GSV_ADDS_SUMS
    if (gemm->sum != GSV_SUM_NONE) {
        walk(gemm, span, gemm->sum == GSV_SUM_QUAD ? quad_tiles : pair_tiles, SUM_ROWS);
        return;
    }
#endif
    walk(gemm, span, tiles, GSV_MR);
}
