/*
 * checkpoint_writer.h - writes the tensors of a checkpoint as safetensors files of another type.
 */
#ifndef GSV_MODEL_CHECKPOINT_WRITER_H
#define GSV_MODEL_CHECKPOINT_WRITER_H

#include "lib/base/dir.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/formats/prune.h"

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

#endif
