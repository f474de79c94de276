/*
 * prune.h - sets weights of a matrix to zero: by magnitude, or two of each four.
 *
 * Magnitude pruning of a tensor needs the threshold, which is found in two passes over the tensor
 * with a fixed amount of memory; then the chunks are pruned in order.
 */
#ifndef GSV_MODEL_PRUNE_H
#define GSV_MODEL_PRUNE_H

#include "lib/model/formats/weight_file.h"

#define GSV_PRUNE_MAX_PERCENT 95
#define GSV_PRUNE_GROUP 4
#define GSV_PRUNE_BUCKETS 65536

struct gsv_pruning {
    uint32_t percent; /* of the values of each matrix; 0: two of each four */
    uint64_t *counts; /* [GSV_PRUNE_BUCKETS] */
    /* Of the matrix in work: its values whose magnitude has bits below `threshold` become zero, and
     * the first n_equal values with exactly these bits. */
    uint32_t threshold;
    uint64_t n_equal;
    uint64_t n_matrices, n_values, n_zeros; /* of all pruned matrices; n_zeros after pruning */
};

/* True for a matrix in a layer of the encoder, which pruning applies to: embedding tables, vectors
 * and small matrices stay as they are. For 2:4 the columns are a multiple of four. */
bool gsv_is_prunable(const struct gsv_tensor *tensor, const struct gsv_pruning *pruning);

/* Find the threshold of a matrix. `read` gives its values in chunks. */
typedef gpuserve_status (*gsv_prune_read)(void *user, uint64_t first, const float **values,
                                          size_t *n);
gpuserve_status gsv_prune_begin(struct gsv_pruning *pruning, const struct gsv_tensor *tensor,
                                gsv_prune_read read, void *user);
/* Prune the next values of the matrix; 2:4: a multiple of four. */
void gsv_prune_values(struct gsv_pruning *pruning, float *values, size_t n);

#endif
