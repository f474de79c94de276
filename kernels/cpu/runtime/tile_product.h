/*
 * tile_product.h - one block of a matrix product in tile registers: up to two tiles of rows by two
 * tiles of columns.
 *
 *   tiles 0 1   sums of the first tile of rows     4   A, first tile of rows    6   B, first
 * columns tiles 2 3   sums of the second tile of rows    5   A, second tile of rows   7   B, second
 * columns
 *
 * A step covers 64 bytes of a row of A: 64 k of int8 or 32 k of bfloat16. B is packed as in isa.h:
 * one row of B holds 4 bytes of k of each column. A sum is one chain of operations in order of k,
 * and no row of A affects another row: the bits of a row do not depend on the block's height.
 */
#ifndef GSV_CPU_TILE_PRODUCT_H
#define GSV_CPU_TILE_PRODUCT_H

#include "kernels/cpu/runtime/tiles.h"
#include "kernels/cpu/runtime/vec.h"

enum gsv_tile_kind { GSV_TILE_U8S8, GSV_TILE_BF16 };

/* Addresses of a block's operands; strides in bytes. */
struct gsv_tile_operands {
    const char *a[2]; /* tiles of rows */
    const char *b[2]; /* tiles of columns */
    size_t a_ld, b_ld;
};

/* `rows` and `columns`, in tiles, and `kind` are constants where this is inlined. */
GSV_INLINE void gsv_tile_zero(int rows, int columns)
{
    GSV_TILE_ZERO(0);
    if (columns > 1)
        GSV_TILE_ZERO(1);
    if (rows > 1)
        GSV_TILE_ZERO(2);
    if (rows > 1 && columns > 1)
        GSV_TILE_ZERO(3);
}

#define GSV_TILE_DOT(kind, sum, a, b)     \
    do {                                  \
        if ((kind) == GSV_TILE_U8S8)      \
            GSV_TILE_DOT_U8S8(sum, a, b); \
        else                              \
            GSV_TILE_DOT_BF16(sum, a, b); \
    } while (0)

GSV_INLINE void gsv_tile_step(enum gsv_tile_kind kind, int rows, int columns,
                              const struct gsv_tile_operands *at)
{
    GSV_TILE_LOAD(6, at->b[0], at->b_ld);
    GSV_TILE_LOAD(4, at->a[0], at->a_ld);
    GSV_TILE_DOT(kind, 0, 4, 6);
    if (columns > 1) {
        GSV_TILE_LOAD(7, at->b[1], at->b_ld);
        GSV_TILE_DOT(kind, 1, 4, 7);
    }
    if (rows > 1) {
        GSV_TILE_LOAD(5, at->a[1], at->a_ld);
        GSV_TILE_DOT(kind, 2, 5, 6);
        if (columns > 1)
            GSV_TILE_DOT(kind, 3, 5, 7);
    }
}

GSV_INLINE void gsv_tile_advance(struct gsv_tile_operands *at)
{
    for (int i = 0; i < 2; i++) {
        at->a[i] += GSV_TILE_ROW_BYTES;
        at->b[i] += GSV_TILE_HEIGHT * at->b_ld;
    }
}

/* Advances the operands by `steps`. */
GSV_INLINE void gsv_tile_steps(enum gsv_tile_kind kind, int rows, int columns,
                               struct gsv_tile_operands *at, int32_t steps)
{
    for (int32_t i = 0; i < steps; i++) {
        gsv_tile_step(kind, rows, columns, at);
        gsv_tile_advance(at);
    }
}

/* The sums of the second columns are `next` bytes, those of the second rows `down` bytes behind the
 * first. */
GSV_INLINE void gsv_tile_store(int rows, int columns, void *to, size_t ld, size_t next, size_t down)
{
    char *out = to;

    GSV_TILE_STORE(0, out, ld);
    if (columns > 1)
        GSV_TILE_STORE(1, out + next, ld);
    if (rows > 1)
        GSV_TILE_STORE(2, out + down, ld);
    if (rows > 1 && columns > 1)
        GSV_TILE_STORE(3, out + down + next, ld);
}

/* Configures tiles 0 and 1 of the sums and 4 of A with `first` rows, 2, 3 and 5 with `second` rows
 * (0: unused), and B with 16 rows. */
GSV_INLINE void gsv_tile_configure(int32_t first, int32_t second)
{
    const uint8_t upper = (uint8_t)first, lower = (uint8_t)(second > 0 ? second : first);
    struct gsv_tile_config config = {
        .palette = 1,
        .rows = { upper, upper, lower, lower, upper, lower, GSV_TILE_HEIGHT, GSV_TILE_HEIGHT },
    };

    for (int i = 0; i < GSV_TILE_REGISTERS; i++)
        config.row_bytes[i] = GSV_TILE_ROW_BYTES;
    GSV_TILES_CONFIGURE(&config);
}

#endif
