/*
 * tiles.h - the tile registers of AMX: eight tiles of up to 16 rows by 64 bytes, and their
 * products.
 *
 *   GSV_TILES_CONFIGURE    sets the heights of the tiles and clears them
 *   GSV_TILE_LOAD ...      use the tiles; the tile number is a literal
 *   GSV_TILES_RELEASE      returns the registers to their initial state
 *
 * A task that configures its tiles releases them before it returns: neither a context switch nor a
 * signal frame of the caller's thread then has 8 KiB of tile data to save.
 *
 * The build sets GSV_HAS_TILES for avx512_amx. With -DGSV_TILE_MODEL too, each operation is a call
 * of a software model (tests/kernels/tile_model.c), so that the tests run the same source on a
 * processor without AMX.
 */
#ifndef GSV_CPU_TILES_H
#define GSV_CPU_TILES_H

#include <stddef.h>
#include <stdint.h>

#define GSV_TILE_HEIGHT 16    /* maximum rows of a tile register */
#define GSV_TILE_WIDTH 16     /* 32-bit columns of a tile register */
#define GSV_TILE_ROW_BYTES 64 /* of a tile register */
#define GSV_TILE_REGISTERS 8

/* The memory operand of LDTILECFG, palette 1. */
struct gsv_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

_Static_assert(sizeof(struct gsv_tile_config) == 64, "LDTILECFG reads 64 bytes");

#if defined(GSV_TILE_MODEL)
void gsv_tile_model_configure(const struct gsv_tile_config *config);
void gsv_tile_model_release(void);
void gsv_tile_model_zero(int tile);
void gsv_tile_model_load(int tile, const void *from, size_t ld);
void gsv_tile_model_store(int tile, void *to, size_t ld);
void gsv_tile_model_dot_u8s8(int sum, int a, int b);
void gsv_tile_model_dot_bf16(int sum, int a, int b);

#define GSV_TILES_CONFIGURE(config) gsv_tile_model_configure(config)
#define GSV_TILES_RELEASE() gsv_tile_model_release()
#define GSV_TILE_ZERO(tile) gsv_tile_model_zero(tile)
#define GSV_TILE_LOAD(tile, from, ld) gsv_tile_model_load(tile, from, ld)
#define GSV_TILE_STORE(tile, to, ld) gsv_tile_model_store(tile, to, ld)
#define GSV_TILE_DOT_U8S8(sum, a, b) gsv_tile_model_dot_u8s8(sum, a, b)
#define GSV_TILE_DOT_BF16(sum, a, b) gsv_tile_model_dot_bf16(sum, a, b)
#elif defined(GSV_HAS_TILES)
#include <immintrin.h>

/* GCC's intrinsics do not name the memory that they read: without the barrier the compiler may drop
 * a store to it. */
#define GSV_TILE_BARRIER() __asm__ volatile("" ::: "memory")

#define GSV_TILES_CONFIGURE(config) \
    do {                            \
        GSV_TILE_BARRIER();         \
        _tile_loadconfig(config);   \
    } while (0)
#define GSV_TILES_RELEASE() _tile_release()
#define GSV_TILE_ZERO(tile) _tile_zero(tile)
#define GSV_TILE_LOAD(tile, from, ld) \
    do {                              \
        GSV_TILE_BARRIER();           \
        _tile_loadd(tile, from, ld);  \
    } while (0)
#define GSV_TILE_STORE(tile, to, ld) _tile_stored(tile, to, ld)
#define GSV_TILE_DOT_U8S8(sum, a, b) _tile_dpbusd(sum, a, b)
#define GSV_TILE_DOT_BF16(sum, a, b) _tile_dpbf16ps(sum, a, b)
#endif

#endif
