/*
 * table: the function table of one instruction set. Compiled once per instruction set; dispatch.c
 * selects one of the tables.
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

extern const struct gsv_cpu_isa GSV_VARIANT(gsv_cpu_isa);

const struct gsv_cpu_isa GSV_VARIANT(gsv_cpu_isa) = {
    .name = GSV_NAME_OF(GSV_ISA_NAME),
    .panel = GSV_NR,
    .tile_rows = GSV_MR,
    .adds_sums = GSV_ADDS_SUMS,
    .adds_pairs = GSV_ADDS_SUMS && GSV_VL == 8,
#if defined(GSV_HAS_MMLA)
    .pairs_s8 = true,
#if defined(GSV_HAS_BF16)
    .pairs_bf16 = true,
#endif
#endif
#if defined(GSV_HAS_TILES)
    .copy_step = 64,
#else
    .copy_step = 4,
#endif
    .gemm_f32 = GSV_BASE(gsv_gemm_f32),
    .gemm_s8 = GSV_VARIANT(gsv_gemm_s8),
#if defined(GSV_HAS_S16)
    .gemm_s16 = GSV_VARIANT(gsv_gemm_s16),
    .quantize_s16 = GSV_VARIANT(gsv_quantize_s16),
#endif
    .gemm_half = GSV_BASE(gsv_gemm_half),
#if defined(GSV_HAS_BF16)
    .gemm_bf16 = GSV_VARIANT(gsv_gemm_bf16),
    .round_bf16 = GSV_VARIANT(gsv_round_bf16),
#endif
#if defined(GSV_HAS_16BIT_ATTENTION)
    .attention_16bit = GSV_VARIANT(gsv_attention_16bit),
#endif
    .quantize = GSV_BASE(gsv_quantize),
    .attention = GSV_BASE(gsv_attention),
    .embed = GSV_BASE(gsv_embed),
    .add_norm = GSV_BASE(gsv_add_norm),
    .pool = GSV_BASE(gsv_pool),
    .normalize = GSV_BASE(gsv_normalize),
    .activate = GSV_BASE(gsv_activate),
    .rotate = GSV_BASE(gsv_rotate),
    .glu = GSV_BASE(gsv_glu),
    .route = GSV_BASE(gsv_route),
    .add_scaled = GSV_BASE(gsv_add_scaled),
    .chain = GSV_BASE(gsv_chain),
    .lstm_gates = GSV_BASE(gsv_lstm_gates),
    .gru_gates = GSV_BASE(gsv_gru_gates),
    .gru_reset = GSV_BASE(gsv_gru_reset),
    .compact = GSV_BASE(gsv_compact),
    .max_sim = GSV_BASE(gsv_max_sim),
};
