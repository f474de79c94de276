/*
 * gemm_chain.h - the matrix products of all-MiniLM-L6-v2 in sequence, on two engines.
 *
 * Their rate is an upper bound of the model's throughput on this machine.
 */
#ifndef GSV_GEMM_CHAIN_H
#define GSV_GEMM_CHAIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHAIN_LAYERS = 6, CHAIN_SHAPES = 4 };

/* One layer: Q, K and V projections together; attention output; FFN up; FFN down. */
static const struct chain_shape {
    int32_t n, k;
} chain_shapes[CHAIN_SHAPES] = { { 1152, 384 }, { 384, 384 }, { 1536, 384 }, { 384, 1536 } };

/* GFLOP/s of our CPU backend. Each thread runs its own chain on `rows` rows, as the library does.
 * `dtype` is a gpuserve_dtype. 0 if the backend does not support it. */
double chain_rate_own(uint32_t dtype, int32_t n_threads, int32_t rows, double seconds);

/* GFLOP/s of oneDNN with weights packed by oneDNN, all threads in one product. 0 if unsupported. */
double chain_rate_onednn(uint32_t dtype, int32_t n_threads, int32_t rows, double seconds);

#ifdef __cplusplus
}
#endif

#endif
