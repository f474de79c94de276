/*
 * onednn.h - the same products by oneDNN, to compare with: weights packed by it beforehand, one
 * primitive for each number of rows, everything prepared outside the measured time.
 */
#ifndef GSV_BENCH_ONEDNN_H
#define GSV_BENCH_ONEDNN_H

#include <stdint.h>

struct onednn_product;

/* Unsigned bytes times signed ones with 32-bit sums where `bytes`: without quantization and
 * dequantization, which ours includes. Else float32 with bias and perhaps erf GELU. NULL when it
 * was not built in or cannot. */
struct onednn_product *onednn_open(int bytes, int32_t rows, int32_t n, int32_t k, int gelu,
                                   const float *weight, int copies);
void onednn_run(struct onednn_product *product, int copy);
void onednn_close(struct onednn_product *product);

void onednn_set_threads(int n);

#endif
