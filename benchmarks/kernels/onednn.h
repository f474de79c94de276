/*
 * onednn.h - the same matrix products by oneDNN, for comparison.
 *
 * Weights are packed by oneDNN beforehand, with one primitive per number of rows. All preparation
 * is outside the measured time.
 */
#ifndef GSV_BENCH_ONEDNN_H
#define GSV_BENCH_ONEDNN_H

#include <stdint.h>

struct onednn_product;

/* With `bytes`: uint8 times int8 with int32 sums, without the quantization and dequantization that
 * ours includes. Otherwise float32 with bias and optional erf GELU. NULL if not built in or
 * unsupported. */
struct onednn_product *onednn_open(int bytes, int32_t rows, int32_t n, int32_t k, int gelu,
                                   const float *weight, int copies);
void onednn_run(struct onednn_product *product, int copy);
void onednn_close(struct onednn_product *product);

void onednn_set_threads(int n);

#endif
