/*
 * gemm_chain.h - the matrix products of a transformer encoder in sequence, on two engines.
 *
 * Their rate is an upper bound of the model's throughput on this machine.
 */
#ifndef GSV_GEMM_CHAIN_H
#define GSV_GEMM_CHAIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHAIN_SHAPES = 4, CHAIN_MAX_LAYERS = 128, CHAIN_MAX_WIDTH = 1 << 16 };

struct chain_shape {
    int32_t n, k;
};

/* The products of one layer: Q, K and V projections together; attention output; FFN up; FFN down.
 */
struct chain_model {
    int32_t n_layers;
    struct chain_shape shapes[CHAIN_SHAPES];
};

/* GFLOP/s of our CPU backend. Each thread runs its own chain on `rows` rows, as the library does.
 * `dtype` is a gpuserve_dtype. 0 if the backend does not support it. */
double chain_rate_own(const struct chain_model *model, uint32_t dtype, int32_t n_threads,
                      int32_t rows, double seconds);

/* GFLOP/s of oneDNN with weights packed by oneDNN, all threads in one product. 0 if unsupported. */
double chain_rate_onednn(const struct chain_model *model, uint32_t dtype, int32_t n_threads,
                         int32_t rows, double seconds);

#ifdef __cplusplus
}
#endif

#endif
