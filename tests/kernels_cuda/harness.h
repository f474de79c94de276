/*
 * harness.h - the CUDA backend's operations against the plain C of kernels/ref.
 *
 * The plugin is loaded as libgpuserve loads it: from GPUSERVE_PLUGIN_DIR. There it is the one for
 * the emulator (tests/cudaemu), or the real one on a machine with a GPU: the tests are the same.
 *
 * Inputs are rounded to the number format under test before either side sees them, so that what
 * is compared is the arithmetic. Outputs start as NaN and have guards behind.
 */
#ifndef GSV_TEST_KERNELS_CUDA_HARNESS_H
#define GSV_TEST_KERNELS_CUDA_HARNESS_H

#include "kernels/kernels.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number formats, and how far a result may be from the oracle's: |got - want| / |want|. */
struct format {
    uint32_t dtype;
    const char *name;
    double tolerance;
};
extern const struct format formats[4];
#define N_FORMATS 4

const struct gpuserve_backend *cuda_backend(void);
struct gpuserve_device *cuda_device(void);
/* How many warnings the backend has logged in this process. */
int32_t cuda_warnings(void);

/* Of a square product that the tiles of this size are taken for, 64 x 64 or 128 x 128, on whatever
 * device: rows and columns but for the last tile, of which it shall have a part. */
int32_t tiled_side(int32_t tile);

/* A stream for up to these sizes; outputs of up to 4 KiB. */
struct gpuserve_stream *cuda_stream(uint32_t dtype, int32_t max_tokens, int32_t max_sequences,
                                    int32_t n_heads, int32_t flags);

/* --- buffers on both sides --- */

/* n elements on the device in `dtype`'s activation type, and the same numbers as floats here. */
struct buffer {
    uint32_t dtype;
    size_t n;
    float *host;
    void *device;
};

/* Numbers between -1 and 1, the same for the same seed, times `scale`. */
struct buffer make_input(uint32_t dtype, size_t n, uint32_t seed, float scale);
/* NaN on both sides, with a guard behind the device's. */
struct buffer make_output(uint32_t dtype, size_t n);
/* As make_input with what is in `host`, after a test has changed it. */
void upload(struct buffer *buffer);
/* Device to `host`; the guard must be untouched. */
void download(struct buffer *buffer);
void free_buffer(struct buffer *buffer);

/* --- batches --- */

/* Sequences of the given lengths end to end, arrays owned; ids and types of small vocabularies. */
struct lengths {
    int32_t n;
    int32_t of[72];
};
struct gpuserve_host_batch make_host_batch(const struct lengths *lengths, int32_t vocab,
                                           uint32_t seed);
void free_host_batch(struct gpuserve_host_batch *batch);

/* The same batch for the oracle, which has no device. Lent by `host`. */
struct gpuserve_batch oracle_batch(const struct gpuserve_host_batch *host);

/* For operations that need no batch: one of a single token. */
void begin_any(struct gpuserve_stream *stream);
struct gpuserve_batch begin(struct gpuserve_stream *stream, const struct gpuserve_host_batch *host);
/* Ends the batch, bringing back one float at `from`, and waits. */
void finish(struct gpuserve_stream *stream, const void *from);

/* --- comparing --- */

/* |got - want|_2 / |want|_2; NaN anywhere, or a length of zero of `want`, gives infinity unless
 * both are all zero. */
double distance(const float *got, const float *want, size_t n);

#endif
