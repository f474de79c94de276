/*
 * tile_model.c - the tile registers of AMX in plain C. See tile_model.h.
 *
 * Rows are contiguous, and the loops over columns are innermost: the compiler vectorizes them.
 */
#include "tests/kernels/tile_model.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tile {
    int rows, row_bytes;
    _Alignas(64) uint8_t row[GSV_TILE_HEIGHT][GSV_TILE_ROW_BYTES];
};

static _Thread_local struct {
    bool configured;
    struct tile tiles[GSV_TILE_REGISTERS];
} state;
static atomic_int configured;
static atomic_long products;

int tile_model_configured(void)
{
    return atomic_load(&configured);
}

long tile_model_products(void)
{
    return atomic_load(&products);
}

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "tile model: %s\n", what);
    abort();
}

static struct tile *tile_at(int tile)
{
    struct tile *t = &state.tiles[tile];

    require(state.configured, "an operation without a configuration");
    require(t->rows > 0 && t->row_bytes > 0, "an operation on a tile without rows");
    return t;
}

void gsv_tile_model_configure(const struct gsv_tile_config *config)
{
    static const uint8_t zeros[16];

    require(config->palette == 1, "the palette is not 1");
    require(config->start_row == 0, "a start row");
    require(memcmp(config->reserved, zeros, sizeof(config->reserved)) == 0 &&
                memcmp(&config->row_bytes[8], zeros, 16) == 0 &&
                memcmp(&config->rows[8], zeros, 8) == 0,
            "reserved bytes of the configuration are not 0");
    if (!state.configured)
        atomic_fetch_add(&configured, 1);
    memset(&state, 0, sizeof(state));
    state.configured = true;
    for (int i = 0; i < GSV_TILE_REGISTERS; i++) {
        require(config->rows[i] <= GSV_TILE_HEIGHT && config->row_bytes[i] <= GSV_TILE_ROW_BYTES &&
                    (config->rows[i] == 0) == (config->row_bytes[i] == 0),
                "a tile has too many rows, too long rows or no rows of some bytes");
        state.tiles[i].rows = config->rows[i];
        state.tiles[i].row_bytes = config->row_bytes[i];
    }
}

void gsv_tile_model_release(void)
{
    if (state.configured)
        atomic_fetch_sub(&configured, 1);
    memset(&state, 0, sizeof(state));
}

void gsv_tile_model_zero(int tile)
{
    struct tile *t = tile_at(tile);

    memset(t->row, 0, sizeof(t->row));
}

/* Bytes and rows past the configured shape become zeros. */
void gsv_tile_model_load(int tile, const void *from, size_t ld)
{
    struct tile *t = tile_at(tile);

    memset(t->row, 0, sizeof(t->row));
    for (int r = 0; r < t->rows; r++)
        memcpy(t->row[r], (const char *)from + (size_t)r * ld, (size_t)t->row_bytes);
}

void gsv_tile_model_store(int tile, void *to, size_t ld)
{
    const struct tile *t = tile_at(tile);

    for (int r = 0; r < t->rows; r++)
        memcpy((char *)to + (size_t)r * ld, t->row[r], (size_t)t->row_bytes);
}

/* Operands of a product: sum [m][n] += a [m][k] . b [k][n], in 32-bit words. */
struct operands {
    struct tile *sum;
    const struct tile *a, *b;
    int m, n, k;
};

static struct operands operands_of(int sum, int a, int b)
{
    struct operands o = { tile_at(sum), tile_at(a), tile_at(b), 0, 0, 0 };

    require(sum != a && sum != b && a != b, "two operands of a product are the same tile");
    require(o.sum->row_bytes % 4 == 0 && o.a->row_bytes % 4 == 0 && o.b->row_bytes % 4 == 0,
            "rows of an operand are not whole words");
    o.m = o.sum->rows;
    o.n = o.sum->row_bytes / 4;
    o.k = o.a->row_bytes / 4;
    require(o.a->rows == o.m, "A has not the rows of the sums");
    require(o.b->row_bytes / 4 == o.n, "B has not the columns of the sums");
    require(o.b->rows == o.k, "B has not a row for each column of A");
    atomic_fetch_add_explicit(&products, 1, memory_order_relaxed);
    return o;
}

/* TDPBUSD: 32-bit sums wrap around. */
void gsv_tile_model_dot_u8s8(int sum, int a, int b)
{
    const struct operands o = operands_of(sum, a, b);

    for (int m = 0; m < o.m; m++) {
        uint32_t out[GSV_TILE_WIDTH];

        memcpy(out, o.sum->row[m], sizeof(out));
        for (int k = 0; k < o.k; k++) {
            const uint8_t *x = &o.a->row[m][4 * k];
            const int8_t *y = (const int8_t *)o.b->row[k];

            for (int n = 0; n < GSV_TILE_WIDTH; n++)
                out[n] += (uint32_t)(x[0] * y[4 * n] + x[1] * y[4 * n + 1] + x[2] * y[4 * n + 2] +
                                     x[3] * y[4 * n + 3]);
        }
        memcpy(o.sum->row[m], out, (size_t)o.n * 4);
    }
}

/* Denormals become zeros of their sign (DAZ, FTZ). */
static inline float flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

/* The bfloat16 in the upper or lower half of a word. */
static inline float upper(uint32_t word)
{
    const uint32_t bits = word & 0xFFFF0000u;
    float x;

    memcpy(&x, &bits, sizeof(x));
    return flush(x);
}

static inline float lower(uint32_t word)
{
    return upper(word << 16);
}

/* TDPBF16PS: the products of the lower and of the upper halves are summed separately over k, each
 * by fused multiply-adds from zero; then their sum is added. Every step rounds to nearest even,
 * with DAZ and FTZ; MXCSR is not consulted. */
void gsv_tile_model_dot_bf16(int sum, int a, int b)
{
    const struct operands o = operands_of(sum, a, b);

    for (int m = 0; m < o.m; m++) {
        float out[GSV_TILE_WIDTH], low[GSV_TILE_WIDTH] = { 0 }, high[GSV_TILE_WIDTH] = { 0 };
        uint32_t x[GSV_TILE_WIDTH], y[GSV_TILE_WIDTH];

        memcpy(out, o.sum->row[m], sizeof(out));
        memcpy(x, o.a->row[m], sizeof(x));
        for (int k = 0; k < o.k; k++) {
            const float x_low = lower(x[k]), x_high = upper(x[k]);

            memcpy(y, o.b->row[k], sizeof(y));
            for (int n = 0; n < GSV_TILE_WIDTH; n++) {
                low[n] = flush(__builtin_fmaf(x_low, lower(y[n]), low[n]));
                high[n] = flush(__builtin_fmaf(x_high, upper(y[n]), high[n]));
            }
        }
        for (int n = 0; n < GSV_TILE_WIDTH; n++)
            out[n] = flush(flush(out[n]) + flush(low[n] + high[n]));
        memcpy(o.sum->row[m], out, (size_t)o.n * 4);
    }
}
