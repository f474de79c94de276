/*
 * isa.h - the inner loops of the CPU backend, as one function table per instruction set.
 *
 *   linear.c, ops.c       cut an operation into tasks     compiled once
 *        |
 *   struct gsv_cpu_isa    runs one task                   compiled for each instruction set
 *
 * Layout of packed weights, in panels of `panel` columns:
 *
 *   float32    [k][panel]
 *   int8       [k / 4][panel][4], k rounded up to 4: four k of a column are adjacent
 *   bfloat16   [k / 2][panel][2], k rounded up to 2
 *   int16      the same
 *   float16    [k][panel]
 *
 * A lane is what is adjacent in a column: one float32 or float16, two bfloat16 or int16, or four
 * bytes. Where the table says so (pairs_s8, pairs_bf16) two lanes of a column are adjacent:
 *
 *   int8       [k / 8][panel][8], then [panel][4] for an odd number of lanes
 *   bfloat16   [k / 4][panel][4], then [panel][2]
 *
 * The matrix multiplication instructions of Arm read 8 bytes of a column. Sizes are the same for
 * both layouts. Columns past n are zero.
 */
#ifndef GSV_CPU_ISA_H
#define GSV_CPU_ISA_H

#include "kernels/cpu/runtime/s8_sums.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stdint.h>

/* A multiple of every panel width, so that sizes are the same for all instruction sets. */
#define GSV_COLUMN_STEP 32
#define GSV_TILE_ROWS 16     /* maximum rows of a tile */
#define GSV_MAX_INT8_K 65536 /* columns; keeps 65536 * 255 * 127 below 2^31 */
/* Rounded rows are followed by zeros up to a multiple of this, in elements: 64 bytes. */
#define GSV_BF16_STEP 32

/* Epilogue of a product: applied to the sums before they are stored. */
struct gsv_finish {
    const float *bias; /* [n rounded up to GSV_COLUMN_STEP] */
    const float *residual;
    float *out;
    size_t out_ld;
    int32_t n;
    int32_t activation;
};

struct gsv_gemm_f32 {
    const float *in;
    const float *weight;
    size_t in_ld;
    int32_t k;
    struct gsv_finish finish;
};

/* Scales of integer rows and weights: x is about min + step * integer. */
struct gsv_scales {
    const float *min, *step; /* [rows]; zero points of int8 rows only */
    const float *scale;      /* [n rounded up]: scale of each column's weights */
    const float *column_sum; /* [n rounded up]: sum of each column's integers; int8 only */
};

/* Input rows as unsigned bytes. */
struct gsv_gemm_s8 {
    const uint8_t *in;
    const int8_t *weight;
    struct gsv_scales scales;
    size_t in_ld;        /* k rounded up to 64 or more: rows are read up to there */
    int32_t k;           /* rounded up to 4 */
    enum gsv_s8_sum sum; /* the longest that all weights fit */
    struct gsv_finish finish;
};

/* Input rows as signed 16-bit integers in the range of kernels/s16_range.h, like the weights. */
struct gsv_gemm_s16 {
    const int16_t *in;
    const int16_t *weight;
    struct gsv_scales scales;
    size_t in_ld; /* k rounded up to 2 or more, with zeros up to there */
    int32_t k;    /* rounded up to 2 */
    struct gsv_finish finish;
};

/* An input of an INT8 product that takes several columns: its own and copies behind k. */
struct gsv_shared_input {
    int32_t input;
    int32_t columns; /* 2 or more */
};

struct gsv_quantize {
    const float *in;
    const float *input_scale;              /* [k] or NULL */
    const struct gsv_shared_input *shared; /* [n_shared]; their copies follow each other */
    int32_t n_shared;
    uint8_t *out;
    float *min, *step;
    size_t in_ld, out_ld;
    int32_t k;
};

struct gsv_quantize_s16 {
    const float *in;
    int16_t *out;
    float *step;
    size_t in_ld, out_ld;
    int32_t k;
    int32_t levels; /* the largest integer */
};

/* Input rows rounded to bfloat16; two elements of a row form one 32-bit word. */
struct gsv_gemm_bf16 {
    const uint16_t *in;
    const uint16_t *weight;
    size_t in_ld; /* k rounded up to GSV_BF16_STEP or more, with zeros behind k */
    int32_t k;    /* rounded up to 2 */
    struct gsv_finish finish;
};

/* Float32 rows by weights in bfloat16 or float16. */
struct gsv_gemm_half {
    const float *in;
    const uint16_t *weight;
    size_t in_ld, panel_bytes;
    int32_t k;
    bool is_f16;
    struct gsv_finish finish;
};

struct gsv_round_bf16 {
    const float *in;
    uint16_t *out;
    size_t in_ld, out_ld;
    int32_t k;
};

/* The type of an embedding table's elements. */
enum gsv_table_type { GSV_TABLE_F32, GSV_TABLE_F16, GSV_TABLE_BF16 };

/* That of a model's dtype. int8 has float16, which rounds far less than the products do: in float32
 * the table of words would be two thirds of a small model, nine tenths of a multilingual one. */
static inline enum gsv_table_type gsv_table_type(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_FLOAT16:
    case GPUSERVE_DTYPE_INT8:
        return GSV_TABLE_F16;
    case GPUSERVE_DTYPE_BFLOAT16:
        return GSV_TABLE_BF16;
    default:
        return GSV_TABLE_F32;
    }
}

/* One step of an LSTM or a GRU for one sequence. */
struct gsv_lstm_gates {
    const float *sums; /* [gates, n]: recurrent products */
    const float *add;  /* [gates, n]: input products with the bias */
    float *c;          /* [n], in and out; GRU: written by gru_reset */
    float *h;          /* [n]; GRU: in and out */
    float *out;        /* [n]: copy of h */
    bool reset_before; /* gru_gates: the last block of `sums` is a product of c */
    int32_t n;
};

/* Rows [row, row_end) by panels [panel, panel_end). */
struct gsv_span {
    int32_t row, row_end, panel, panel_end;
};

/* Computes one head of one sequence. */
typedef void (*gsv_attention_fn)(const struct gpuserve_op_attention *op, int32_t sequence,
                                 int32_t head, float *scratch);

struct gsv_cpu_isa {
    const char *name;
    int32_t panel;     /* columns of a panel */
    int32_t tile_rows; /* maximum rows of a tile */
    bool adds_sums;    /* int8 weights that fit s8_sums.h multiply faster */
    bool adds_pairs;   /* not quads, in products that do not widen */
    bool pairs_s8;     /* int8 panels hold pairs of lanes */
    int32_t copy_step; /* columns behind k that int8 multiplies at once */
    bool pairs_bf16;   /* bfloat16 panels do */
    void (*gemm_f32)(const struct gsv_gemm_f32 *gemm, const struct gsv_span *span);
    void (*gemm_s8)(const struct gsv_gemm_s8 *gemm, const struct gsv_span *span);
    void (*quantize)(const struct gsv_quantize *q, int32_t row, int32_t row_end);
    /* The next two are NULL where products in int16 do not pay: see gemm_s16.c. */
    void (*gemm_s16)(const struct gsv_gemm_s16 *gemm, const struct gsv_span *span);
    void (*quantize_s16)(const struct gsv_quantize_s16 *q, int32_t row, int32_t row_end);
    void (*gemm_half)(const struct gsv_gemm_half *gemm, const struct gsv_span *span);
    /* The next two are NULL if the processor has no bfloat16 products. */
    void (*gemm_bf16)(const struct gsv_gemm_bf16 *gemm, const struct gsv_span *span);
    void (*round_bf16)(const struct gsv_round_bf16 *r, int32_t row, int32_t row_end);
    /* In bfloat16, or int16 where gemm_s16 is present; otherwise NULL. */
    gsv_attention_fn attention_16bit;
    gsv_attention_fn attention;
    void (*embed)(const struct gpuserve_op_embed *op, int32_t row, int32_t row_end);
    void (*add_norm)(const struct gpuserve_op_add_norm *op, int32_t row, int32_t row_end);
    void (*pool)(const struct gpuserve_op_pool *op, int32_t sequence);
    void (*normalize)(const struct gpuserve_op_rows *op, int32_t row, int32_t row_end);
    void (*activate)(const struct gpuserve_op_rows *op, int32_t row, int32_t row_end);
    void (*rotate)(const struct gpuserve_op_rotate *op, int32_t row, int32_t row_end);
    void (*glu)(const struct gpuserve_op_glu *op, int32_t row, int32_t row_end);
    void (*route)(const struct gpuserve_op_route *op, int32_t row, int32_t row_end);
    void (*add_scaled)(const struct gpuserve_op_add_scaled *op, int32_t row, int32_t row_end);
    /* In place. */
    void (*chain)(float *x, size_t n, const gpuserve_chain_step *steps, size_t n_steps);
    void (*lstm_gates)(const struct gsv_lstm_gates *gates);
    void (*gru_gates)(const struct gsv_lstm_gates *gates);
    void (*gru_reset)(const struct gsv_lstm_gates *gates); /* c = s(r) * h */
    void (*compact)(const float *row, size_t n, uint32_t precision, const float *ranges,
                    uint8_t *to);
    /* best[i] = the largest dot product of query row i with a document row: kernels.h. */
    void (*max_sim)(const struct gsv_max_sim *op, float *best);
};

/* The sum over the query rows, as gsv_cpu_max_sim(), with this instruction set. */
float gsv_cpu_sum_max_sim(const struct gsv_cpu_isa *isa, const struct gsv_max_sim *op);

/* Floats of scratch per thread, enough for either attention function. */
size_t gsv_cpu_attention_floats(int32_t max_seqlen, int32_t head_size, int32_t position_rows);

/* A panel of packed weights of one dtype. */
struct gsv_panel_layout {
    size_t columns;
    size_t lanes; /* of a column */
    bool paired;  /* two lanes of a column are adjacent */
};

static inline struct gsv_panel_layout gsv_panel_layout(const struct gsv_cpu_isa *isa,
                                                       uint32_t dtype, size_t lanes)
{
    return (struct gsv_panel_layout){
        .columns = (size_t)isa->panel,
        .lanes = lanes,
        .paired = (dtype == GPUSERVE_DTYPE_INT8 && isa->pairs_s8) ||
                  (dtype == GPUSERVE_DTYPE_BFLOAT16 && isa->pairs_bf16),
    };
}

/* Offset, in lanes, of one lane of a column within its panel. */
static inline size_t gsv_lane_at(const struct gsv_panel_layout *panel, size_t lane, size_t column)
{
    if (panel->paired && lane < panel->lanes / 2 * 2)
        return lane / 2 * 2 * panel->columns + 2 * column + lane % 2;
    return lane * panel->columns + column;
}

/* Returns the best table for this processor. The environment variable GPUSERVE_MAX_ISA limits it to
 * one of generic, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, avx512_amx; on aarch64 of
 * generic, neon, neon_dotprod, neon_i8mm, neon_bf16. Where avx512_bf16 is slower than avx512_vnni,
 * it is chosen only if the variable names it. */
const struct gsv_cpu_isa *gsv_cpu_choose_isa(void);
/* The one with the same bits as on every other instruction set. Its fields are those of the best
 * table but for bfloat16 and int16, which it has not, and adds_sums. */
const struct gsv_cpu_isa *gsv_cpu_choose_portable_isa(void);

/*
 * Whether the tile registers of AMX can be used: by the processor, and by this process.
 */

/* AMX capabilities reported by CPUID, XGETBV and the operating system. */
struct gsv_amx_facts {
    uint32_t features;     /* CPUID leaf 7, EDX */
    uint64_t enabled;      /* XCR0; 0 without XGETBV */
    uint32_t palettes;     /* CPUID leaf 0x1D, EAX: the largest palette */
    uint32_t palette_1[3]; /* CPUID leaf 0x1D, subleaf 1: EAX, EBX, ECX */
};

struct gsv_amx_facts gsv_amx_read_facts(void);

/* True if the facts hold for the kernels in tile registers. */
bool gsv_amx_is_present(const struct gsv_amx_facts *facts);

/* Requests permission to use tile data, for all threads of the process and its children. Linux
 * refuses it to a process with an alternate signal stack too small for the tile data. */
bool gsv_amx_request_permission(void);

#endif
