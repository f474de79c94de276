/*
 * tile_order.h - the order in which the tiles of a float32 product are computed.
 *
 *   for each chunk of rows, up to GSV_CHUNK_TILES tiles
 *     for each panel
 *       for each tile, which prefetches its part of the next panel
 *
 * This order loads weights from memory at an even rate, once for all rows of a chunk. With the rows
 * in the outer loop, the first tile would wait for the weights, and the others would leave memory
 * idle. So a row more costs no more than a row, unless it begins a chunk. Packed int8 and bfloat16
 * rows do not gain: their weights stay in the caches.
 */
#ifndef GSV_CPU_TILE_ORDER_H
#define GSV_CPU_TILE_ORDER_H

#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#define GSV_STEP_BYTES (4 * GSV_NR) /* packed weights for one k of each column */
#define GSV_CHUNK_TILES 8
#define GSV_CHUNK_BYTES (384 << 10) /* rows of a chunk, which stay in the L2 cache */

/* The tile prefetches `ahead` while it computes and advances it by ahead_step bytes per step: one k
 * of float32, two of 16-bit weights. */
struct gsv_tile {
    int32_t row, rows, panel;
    const char *weight, *ahead;
    size_t ahead_step;
};

typedef void (*gsv_tile_fn)(const void *gemm, const struct gsv_tile *tile);

GSV_INLINE void gsv_walk_chunk(const void *gemm, const struct gsv_span *span, const char *weight,
                               size_t panel_bytes, gsv_tile_fn run)
{
    const size_t n_tiles = (size_t)(span->row_end - span->row - 1) / GSV_MR + 1;
    struct gsv_tile tile = { .ahead_step = GSV_STEP_BYTES / n_tiles };

    for (tile.panel = span->panel; tile.panel < span->panel_end; tile.panel++) {
        tile.weight = weight + (size_t)tile.panel * panel_bytes;
        tile.ahead = tile.weight + (n_tiles == 1 ? GSV_AHEAD_BYTES : panel_bytes);
        for (tile.row = span->row; tile.row < span->row_end; tile.row += tile.rows) {
            tile.rows = gsv_tile_height(span->row_end - tile.row, GSV_MR);
            run(gemm, &tile);
            tile.ahead += panel_bytes / n_tiles;
        }
    }
}

GSV_INLINE void gsv_walk(const void *gemm, const struct gsv_span *span, const void *weight,
                         size_t panel_bytes, size_t row_bytes, gsv_tile_fn run)
{
    const size_t n_tiles = GSV_CHUNK_BYTES / (GSV_MR * row_bytes);
    const int32_t max = GSV_MR * (n_tiles < 1                 ? 1
                                  : n_tiles < GSV_CHUNK_TILES ? (int32_t)n_tiles
                                                              : GSV_CHUNK_TILES);
    struct gsv_span chunk = *span;

    for (; chunk.row < span->row_end; chunk.row = chunk.row_end) {
        chunk.row_end = chunk.row + gsv_tile_height(span->row_end - chunk.row, max);
        gsv_walk_chunk(gemm, &chunk, weight, panel_bytes, run);
    }
}

/* Prefetches the part of one step. */
GSV_INLINE void gsv_fetch(const char *ahead)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < GSV_STEP_BYTES; i += 64)
        __builtin_prefetch(ahead + i);
}

#endif
