/*
 * isa_symbols.h - symbol names of the sources that are compiled once per instruction set.
 *
 * GSV_VARIANT(gsv_x) is gsv_x_avx512 in the library built with -DGSV_ISA_NAME=avx512. An extension
 * adds products of 8 or 16 bits to an instruction set: the library built with
 * -DGSV_ISA_NAME=avx512_vnni -DGSV_ISA_BASE=avx512 has these alone, and GSV_BASE(gsv_y) is
 * gsv_y_avx512. The declarations below are the entries of struct gsv_cpu_isa, filled in by table.c.
 */
#ifndef GSV_CPU_ISA_SYMBOLS_H
#define GSV_CPU_ISA_SYMBOLS_H

#include "kernels/cpu/runtime/isa.h"

#define GSV_JOIN_NAMES(a, b) a##_##b
#define GSV_JOIN(a, b) GSV_JOIN_NAMES(a, b)
#define GSV_VARIANT(name) GSV_JOIN(name, GSV_ISA_NAME)
#if !defined(GSV_ISA_BASE)
#define GSV_ISA_BASE GSV_ISA_NAME
#endif
#define GSV_BASE(name) GSV_JOIN(name, GSV_ISA_BASE)
#define GSV_NAME_STRING(name) #name
#define GSV_NAME_OF(name) GSV_NAME_STRING(name)

/* 1 where int8 products are fastest as sums in 16 bits: see runtime/s8_sums.h. */
#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__) && \
    !defined(GSV_HAS_TILES)
#define GSV_ADDS_SUMS 1
#else
#define GSV_ADDS_SUMS 0
#endif

/* Defined where products in int16 are faster than in float32 and there are none in bfloat16: see
 * gemm/gemm_s16.c and attention/attention_s16.h. Without VNNI, AVX-512 adds on the ports that
 * multiply. */
#if defined(__AVX2__) && !defined(__AVX512BF16__) && !defined(GSV_HAS_TILES) && \
    (!defined(__AVX512F__) || defined(__AVX512VNNI__))
#define GSV_HAS_S16 1
#endif

/* Instructions that multiply two rows by two columns: see gemm/tile_mmla.h. */
#if defined(GSV_NEON) && defined(__ARM_FEATURE_MATMUL_INT8)
#define GSV_HAS_MMLA 1
#endif

/* c[r][0..panel) = sum over i of a[r][i] * b[i][0..panel) for each row r of the tile. Meanwhile the
 * tile prefetches ahead + i * ahead_step; prefetching past the end is harmless. */
typedef void (*gsv_tile_f32_fn)(const float *a, size_t lda, const float *b, int32_t k, float *c,
                                size_t ldc, const char *ahead, size_t ahead_step);
/* Indexed by tile height; [0] is NULL. */
extern const gsv_tile_f32_fn GSV_BASE(gsv_tiles_f32)[GSV_TILE_ROWS + 1];

void GSV_BASE(gsv_gemm_f32)(const struct gsv_gemm_f32 *gemm, const struct gsv_span *span);
void GSV_VARIANT(gsv_gemm_s8)(const struct gsv_gemm_s8 *gemm, const struct gsv_span *span);
#if defined(GSV_HAS_S16)
void GSV_VARIANT(gsv_gemm_s16)(const struct gsv_gemm_s16 *gemm, const struct gsv_span *span);
void GSV_VARIANT(gsv_quantize_s16)(const struct gsv_quantize_s16 *q, int32_t row, int32_t row_end);
#endif
void GSV_BASE(gsv_gemm_half)(const struct gsv_gemm_half *gemm, const struct gsv_span *span);
#if defined(__AVX512BF16__) || defined(GSV_HAS_TILES) || \
    (defined(GSV_NEON) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC))
#define GSV_HAS_BF16 1
void GSV_VARIANT(gsv_gemm_bf16)(const struct gsv_gemm_bf16 *gemm, const struct gsv_span *span);
void GSV_VARIANT(gsv_round_bf16)(const struct gsv_round_bf16 *r, int32_t row, int32_t row_end);
#endif
/* Tiles are as wide as a vector of AVX-512. */
#if defined(GSV_HAS_S16) || \
    (defined(GSV_HAS_BF16) && (!defined(GSV_HAS_TILES) || defined(__AVX512F__)))
#define GSV_HAS_16BIT_ATTENTION 1
void GSV_VARIANT(gsv_attention_16bit)(const struct gpuserve_op_attention *op, int32_t sequence,
                                      int32_t head, float *scratch);
#endif
void GSV_BASE(gsv_quantize)(const struct gsv_quantize *q, int32_t row, int32_t row_end);
void GSV_BASE(gsv_attention)(const struct gpuserve_op_attention *op, int32_t sequence, int32_t head,
                             float *scratch);
void GSV_BASE(gsv_embed)(const struct gpuserve_op_embed *op, int32_t row, int32_t row_end);
void GSV_BASE(gsv_add_norm)(const struct gpuserve_op_add_norm *op, int32_t row, int32_t row_end);
void GSV_BASE(gsv_pool)(const struct gpuserve_op_pool *op, int32_t sequence);
void GSV_BASE(gsv_normalize)(const struct gpuserve_op_rows *op, int32_t row, int32_t row_end);
void GSV_BASE(gsv_activate)(const struct gpuserve_op_rows *op, int32_t row, int32_t row_end);
void GSV_BASE(gsv_rotate)(const struct gpuserve_op_rotate *op, int32_t row, int32_t row_end);
void GSV_BASE(gsv_glu)(const struct gpuserve_op_glu *op, int32_t row, int32_t row_end);
void GSV_BASE(gsv_route)(const struct gpuserve_op_route *op, int32_t row, int32_t row_end);
void GSV_BASE(gsv_add_scaled)(const struct gpuserve_op_add_scaled *op, int32_t row,
                              int32_t row_end);
void GSV_BASE(gsv_lstm_gates)(const struct gsv_lstm_gates *gates);
void GSV_BASE(gsv_gru_gates)(const struct gsv_lstm_gates *gates);
void GSV_BASE(gsv_gru_reset)(const struct gsv_lstm_gates *gates);
void GSV_BASE(gsv_compact)(const float *row, size_t n, uint32_t precision, const float *ranges,
                           uint8_t *to);
void GSV_BASE(gsv_max_sim)(const struct gsv_max_sim *op, float *best);
void GSV_BASE(gsv_chain)(float *x, size_t n, const gpuserve_chain_step *steps, size_t n_steps);

/* Height of the next tile. The `left` rows are split into tiles of nearly equal height, since a low
 * tile keeps too few independent sums in flight. */
static inline int32_t gsv_tile_height(int32_t left, int32_t max)
{
    const int32_t tiles = (left + max - 1) / max;

    return (left + tiles - 1) / tiles;
}

#endif
