/*
 * gemm_chain.h - the matrix products of all-MiniLM-L6-v2, one after the other, as two engines run
 * them. Their rate bounds what the model can do on this machine.
 */
#ifndef GSV_GEMM_CHAIN_H
#define GSV_GEMM_CHAIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHAIN_LAYERS = 6, CHAIN_SHAPES = 4 };

/* One layer: queries, keys and values together; attention's output; up; down. */
static const struct chain_shape {
    int32_t n, k;
} chain_shapes[CHAIN_SHAPES] = { { 1152, 384 }, { 384, 384 }, { 1536, 384 }, { 384, 1536 } };

/* GFLOP/s of our CPU backend: each thread runs the chain by itself on `rows` rows, as the library
 * does. `dtype` is a gpuserve_dtype. 0 when the backend cannot compute in it. */
double chain_rate_own(uint32_t dtype, int32_t n_threads, int32_t rows, double seconds);

/* GFLOP/s of oneDNN on weights it packed itself, all threads in one product. 0 when it cannot. */
double chain_rate_onednn(uint32_t dtype, int32_t n_threads, int32_t rows, double seconds);

#ifdef __cplusplus
}
#endif

#endif
