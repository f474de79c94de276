/*
 * tile_model.h - a software model of the tile registers of AMX, with the operations that
 * kernels/cpu/runtime/tiles.h declares for it. Each thread has its own registers.
 *
 * What the processor refuses (#UD, #GP) aborts: an operation without a configuration, a
 * configuration with reserved bytes or too many rows, operands whose shapes do not match.
 *
 * Semantics: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, LDTILECFG,
 * TILELOADD, TILESTORED, TDPBUSD and TDPBF16PS, section "Operation".
 */
#ifndef GSV_TEST_KERNELS_TILE_MODEL_H
#define GSV_TEST_KERNELS_TILE_MODEL_H

#define GSV_TILE_MODEL 1 /* tiles.h declares the operations */

#include "kernels/cpu/runtime/isa.h"
#include "kernels/cpu/runtime/tiles.h"

#include <stdbool.h>

/* Tables of the kernels in tile registers, compiled with the model. */
#if defined(__x86_64__)
extern const struct gsv_cpu_isa gsv_cpu_isa_avx2_tile_model;
extern const struct gsv_cpu_isa gsv_cpu_isa_avx512_tile_model;
#endif

/* Number of threads with configured tiles; 0 between operations. */
int tile_model_configured(void);

/* Number of products of tiles since the program began. */
long tile_model_products(void);

#endif
