/*
 * gpuserve/sys/outputs.h - operations of a backend after the encoder: pooling, pooled rows, late
 * interaction. <gpuserve/sys/backend.h> includes this header, and describes devices, batches and the
 * types of rows; GPUSERVE_BACKEND_ABI covers both.
 */
#ifndef GPUSERVE_SYS_OUTPUTS_H
#define GPUSERVE_SYS_OUTPUTS_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpuserve_batch;

enum gpuserve_pooling {
    GPUSERVE_POOL_CLS = 1,           /**< the first token */
    GPUSERVE_POOL_MEAN = 2,
    GPUSERVE_POOL_MAX = 3,
    GPUSERVE_POOL_MEAN_SQRT_LEN = 4, /**< sum / sqrt(n) */
    GPUSERVE_POOL_WEIGHTED_MEAN = 5, /**< token i of n has weight i + 1 */
    GPUSERVE_POOL_LAST = 6
};

/** Pooling: reduces the token rows of each sequence to one vector. The output is always float32. */
struct gpuserve_op_pool {
    const struct gpuserve_batch *batch;
    const void                  *in;      /**< [n_rows, hidden] */
    float                       *out;     /**< [n_sequences, columns], rows out_ld floats apart */
    int32_t                      pooling; /**< gpuserve_pooling */
    int32_t                      hidden;
    int32_t                      columns; /**< number of leading columns to keep; hidden keeps
                                               all */
    int32_t                      out_ld;
    int32_t                      normalize; /**< 1: divide by max(L2 norm, 1e-12) after the cut */
};

/** In place on float32 rows: x / max(|x|_2, 1e-12), or an activation or LayerNorm. */
struct gpuserve_op_rows {
    float  *data; /**< [rows, cols], rows ld floats apart */
    int32_t rows;
    int32_t cols;
    int32_t ld;
    int32_t activation; /**< activate only: RELU to LAYERNORM */
    float   eps;        /**< LAYERNORM only, as the next two */
    const float *gamma; /**< [cols] or NULL: ones */
    const float *beta;  /**< [cols] or NULL: zeros */
};

/** Rows of floats as a gpuserve_precision other than FLOAT32, with the bits of gpuserve_quantize(). */
struct gpuserve_op_compact {
    const float *in;        /**< [rows, cols], rows ld floats apart */
    uint32_t    *out;       /**< [rows, words]: the converted row, zeros up to a multiple of 4 bytes,
                                 and in the last word 1 if every number of the row is finite, else 0.
                                 Bytes are in the order of a little-endian host */
    const float *ranges;    /**< [2, cols] of INT8 and UINT8, else not read */
    int32_t      rows;
    int32_t      cols;
    int32_t      ld;
    int32_t      words;
    uint32_t     precision; /**< gpuserve_precision */
    uint32_t     reserved;
};

/** The query and the rows of a text in late interaction. */
struct gpuserve_max_sim_text {
    int32_t query;   /**< first row of its query in `query` */
    int32_t n_query; /**< 0: the score is 0 */
    int32_t first;   /**< its first element in `rows` */
    int32_t n;       /**< elements; 0: the score is 0 */
};

/** Late interaction (MaxSim):
 *
 *    out[s] = sum over the rows q of the text's query of the maximum over its rows r of q . in[r]
 *
 *  with in[r] / max(|in[r]|_2, 1e-12) in place of in[r] if `normalize`. Dot products and lengths are
 *  accumulated in float32 and in an order that depends on nothing but `dim`, the sum over q in
 *  float64 and in the order of the rows. NaN if a dot product is NaN. */
struct gpuserve_op_max_sim {
    const struct gpuserve_batch        *batch;
    const void                         *in;    /**< [n_rows, dim] */
    const float                        *query; /**< rows of `dim` floats, of all queries */
    const struct gpuserve_max_sim_text *texts; /**< [n_sequences of the batch], device memory */
    const int32_t                      *rows;  /**< row numbers of `in`, device memory */
    float                              *out;   /**< [n_sequences of the batch] */
    int32_t                             dim;
    int32_t                             normalize;
};

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_SYS_OUTPUTS_H */
