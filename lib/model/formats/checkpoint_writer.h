/*
 * checkpoint_writer.h - writes the tensors of a checkpoint as safetensors files of another type.
 */
#ifndef GSV_MODEL_CHECKPOINT_WRITER_H
#define GSV_MODEL_CHECKPOINT_WRITER_H

#include "lib/base/dir.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/formats/weight_file.h"

#define GSV_F16_MAX 65504.0f
#define GSV_BF16_MAX 0x1.FEp127f

/* Tensors of this size and above are int8 rows; smaller ones gain little and stay float32. */
#define GSV_INT8_MIN_ELEMENTS 4096

struct gsv_write_options {
    enum gsv_tensor_type type;   /* F32, F16, BF16, I8_ROWS */
    uint64_t max_file_bytes;     /* of tensors in a file; larger checkpoints are sharded */
    struct gsv_pruning *pruning; /* applied before the conversion; its numbers grow. NULL: none */
    /* Receives the number of source bytes that were converted since the last call. A nonzero result
     * cancels with GPUSERVE_E_CANCELLED. May be NULL. */
    int32_t (*progress)(void *user, uint64_t bytes);
    void *progress_user;
};

struct gsv_write_facts {
    uint64_t n_tensors, n_quantized;
    uint64_t bytes_before, bytes_after; /* of tensors, scales included */
};

/* Write the floating-point tensors as options->type, and tensors of other types as they are, to
 * model.safetensors or model-00001-of-0000N.safetensors with an index, in the directory `to`; for
 * I8_ROWS the names begin with GSV_INT8_FILE.
 * `shown` is that directory in messages. A value outside the range of the type, NaN and infinity
 * are GPUSERVE_E_FORMAT with the tensor's name. Files that exist already are an error. On failure
 * files may be left. Adds to *facts. */
gpuserve_status gsv_checkpoint_write(const struct gsv_checkpoint *from, int to, const char *shown,
                                     const struct gsv_write_options *options,
                                     struct gsv_write_facts *facts, gpuserve_error *error);

/* The bytes of a checkpoint's tensors. */
gpuserve_status gsv_checkpoint_bytes(const struct gsv_checkpoint *from, uint64_t *bytes,
                                     gpuserve_error *error);

/* narrow.c: convert n values, rounding to nearest even. Finite input within the type's range. */
void gsv_floats_to_f16(void *to, const float *from, size_t n);
void gsv_floats_to_bf16(void *to, const float *from, size_t n);
/* Symmetric codes from -127 to 127 with one scale for each row: value = code * scale. */
void gsv_floats_to_rows(signed char *codes, float *scales, const float *from, size_t rows,
                        size_t columns);
/* Index of the first value with a larger magnitude; n if there is none. */
size_t gsv_floats_above(const float *values, size_t n, float maximum);

/*
 * Sets weights of a matrix to zero: by magnitude, or two of each four.
 *
 * Magnitude pruning of a tensor needs the threshold, which is found in two passes over the tensor
 * with a fixed amount of memory; then the chunks are pruned in order.
 */

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
