/*
 * gemm_amx: the int8 and bfloat16 products in tile registers (AMX).
 *
 *   for each block of up to 32 rows       tiles of its height
 *     for each 32 columns                 one block of tile_product.h over all of k
 *       epilogue                          on the sums, stored to a buffer in the L1 cache
 *
 * Both kinds read the packed weights of isa.h as they are: a row of B holds 4 bytes of k of each
 * column. A step covers 64 bytes of k. If k ends within a step, the rest of B is copied to a buffer
 * and padded with zeros. A is read past k up to a multiple of 64 bytes (isa.h): int8 multiplies any
 * byte there by zero, bfloat16 has zeros there.
 *
 * int8 sums are exact, equal to those of gemm_s8.c. A bfloat16 sum adds the products of the even
 * and of the odd k of a step separately (TDPBF16PS), so its last bits differ from gemm_bf16.c.
 */
#include "kernels/cpu/runtime/isa_symbols.h"

#if defined(GSV_HAS_TILES)
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/runtime/tile_product.h"

#define BLOCK_ROWS (2 * GSV_TILE_HEIGHT)
#define BLOCK_COLUMNS (2 * GSV_TILE_WIDTH)
#define PANELS (BLOCK_COLUMNS / GSV_NR) /* of a block: one, or two with vectors of 8 floats */
#define LANE_BYTES 4                    /* of k in a row of B */
#define WEIGHT_LD ((size_t)LANE_BYTES * GSV_NR)
#define BLOCK_SUMS (BLOCK_ROWS * BLOCK_COLUMNS)

/* A product of either kind; sizes and strides in bytes. */
struct amx_product {
    const char *in, *weight;
    size_t in_ld, panel_bytes;
    int32_t depth; /* of k */
    const struct gsv_finish *finish;
    const struct gsv_gemm_s8 *bytes; /* int8; NULL: bfloat16 */
};

/* The rows of B behind the last whole step of one or two tiles of columns, padded with zeros. */
struct amx_tail {
    char b[2][GSV_TILE_HEIGHT][GSV_TILE_ROW_BYTES];
};

static void copy_tail(struct amx_tail *tail, const struct gsv_tile_operands *at, int columns,
                      int32_t lanes)
{
    memset(tail, 0, sizeof(*tail));
    for (int c = 0; c < columns; c++)
        for (int32_t i = 0; i < lanes; i++)
            memcpy(tail->b[c][i], at->b[c] + (size_t)i * at->b_ld, GSV_TILE_ROW_BYTES);
}

/* The sums of one block: [panel][rows][GSV_NR] 32-bit integers or floats. */
GSV_INLINE void block(enum gsv_tile_kind kind, int row_tiles, int columns,
                      struct gsv_tile_operands at, int32_t depth, int32_t rows, int32_t *sums)
{
    const size_t first_rows = (size_t)(rows + row_tiles - 1) / (size_t)row_tiles;
    const size_t next = PANELS == 1 ? GSV_TILE_ROW_BYTES : (size_t)rows * WEIGHT_LD;
    struct amx_tail tail;

    gsv_tile_zero(row_tiles, columns);
    gsv_tile_steps(kind, row_tiles, columns, &at, depth / GSV_TILE_ROW_BYTES);
    if (depth % GSV_TILE_ROW_BYTES) {
        copy_tail(&tail, &at, columns, depth % GSV_TILE_ROW_BYTES / LANE_BYTES);
        at.b[0] = tail.b[0][0];
        at.b[1] = tail.b[1][0];
        at.b_ld = GSV_TILE_ROW_BYTES;
        gsv_tile_step(kind, row_tiles, columns, &at);
    }
    gsv_tile_store(row_tiles, columns, sums, WEIGHT_LD, next, first_rows * WEIGHT_LD);
}

/* The rows [row, row + rows) by `columns` tiles of columns from `panel` on. */
GSV_INLINE void run_block(enum gsv_tile_kind kind, const struct amx_product *p, int32_t row,
                          int32_t rows, int32_t panel, int columns, int32_t *sums)
{
    const char *a = p->in + (size_t)row * p->in_ld;
    const char *b = p->weight + (size_t)panel * p->panel_bytes;
    const size_t half = (size_t)(rows + 1) / 2 * p->in_ld;
    const size_t across = PANELS == 1 ? GSV_TILE_ROW_BYTES : p->panel_bytes;
    const struct gsv_tile_operands at = { { a, a + half }, { b, b + across }, p->in_ld, WEIGHT_LD };

    if (rows > GSV_TILE_HEIGHT && columns > 1)
        block(kind, 2, 2, at, p->depth, rows, sums);
    else if (rows > GSV_TILE_HEIGHT)
        block(kind, 2, 1, at, p->depth, rows, sums);
    else if (columns > 1)
        block(kind, 1, 2, at, p->depth, rows, sums);
    else
        block(kind, 1, 1, at, p->depth, rows, sums);
}

/* Not inlined: without its jump tables tests/cpu_static/check_tiles.py can follow the functions
 * that use tiles. */
static __attribute__((noinline)) void finish_block(const struct amx_product *p, const int32_t *sums,
                                                   int32_t row, int32_t rows, int32_t panel)
{
    if (p->bytes)
        finish_tile(p->finish, FINISH_BYTES, &p->bytes->scales, sums, row, rows, panel * GSV_NR);
    else
        finish_tile(p->finish, FINISH_ROUNDED, NULL, sums, row, rows, panel * GSV_NR);
}

/* One block of rows by all panels of the span. */
GSV_INLINE void run_rows(enum gsv_tile_kind kind, const struct amx_product *p,
                         const struct gsv_span *span, int32_t row, int32_t rows)
{
    int32_t sums[BLOCK_SUMS] __attribute__((aligned(64)));

    for (int32_t panel = span->panel; panel < span->panel_end; panel += PANELS) {
        const int32_t panels = span->panel_end - panel < PANELS ? 1 : PANELS;

        run_block(kind, p, row, rows, panel, PANELS == 1 ? 2 : panels, sums);
        for (int32_t i = 0; i < panels; i++)
            finish_block(p, sums + i * rows * GSV_NR, row, rows, panel + i);
    }
}

/* Configures the tiles only where the height changes: consecutive blocks have two heights at
 * most. */
GSV_INLINE void run(enum gsv_tile_kind kind, const struct amx_product *p,
                    const struct gsv_span *span)
{
    for (int32_t row = span->row; row < span->row_end;) {
        const int32_t rows = gsv_tile_height(span->row_end - row, BLOCK_ROWS);

        if (rows > GSV_TILE_HEIGHT)
            gsv_tile_configure((rows + 1) / 2, rows / 2);
        else
            gsv_tile_configure(rows, 0);
        do {
            run_rows(kind, p, span, row, rows);
            row += rows;
        } while (row < span->row_end && gsv_tile_height(span->row_end - row, BLOCK_ROWS) == rows);
    }
    GSV_TILES_RELEASE();
}

void GSV_VARIANT(gsv_gemm_s8)(const struct gsv_gemm_s8 *gemm, const struct gsv_span *span)
{
    const struct amx_product product = {
        .in = (const char *)gemm->in,
        .weight = (const char *)gemm->weight,
        .in_ld = gemm->in_ld,
        .panel_bytes = (size_t)gemm->k * GSV_NR,
        .depth = gemm->k,
        .finish = &gemm->finish,
        .bytes = gemm,
    };

    run(GSV_TILE_U8S8, &product, span);
}

void GSV_VARIANT(gsv_gemm_bf16)(const struct gsv_gemm_bf16 *gemm, const struct gsv_span *span)
{
    const struct amx_product product = {
        .in = (const char *)gemm->in,
        .weight = (const char *)gemm->weight,
        .in_ld = gemm->in_ld * sizeof(uint16_t),
        .panel_bytes = (size_t)gemm->k * sizeof(uint16_t) * GSV_NR,
        .depth = (int32_t)sizeof(uint16_t) * gemm->k,
        .finish = &gemm->finish,
    };

    run(GSV_TILE_BF16, &product, span);
}
#endif
