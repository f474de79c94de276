/*
 * harness.h - the CUDA backend's operations against the plain C of kernels/ref.
 *
 * The plugin is loaded from GPUSERVE_PLUGIN_DIR, as libgpuserve does. This is the emulator's plugin
 * (tests/cudaemu), or the real one on a machine with a GPU; the tests are identical.
 *
 * Inputs are rounded to the tested number format on both sides, so only the arithmetic is compared.
 * Outputs start as NaN and have guards after them.
 */
#ifndef GSV_TEST_KERNELS_CUDA_HARNESS_H
#define GSV_TEST_KERNELS_CUDA_HARNESS_H

#include "kernels/kernels.h"
#include "tests/base/sanitized.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number formats, and their max relative distance |got - want| / |want| to the reference. */
struct format {
    uint32_t dtype;
    const char *name;
    double tolerance;
};
extern const struct format formats[4];
#define N_FORMATS 4

/* True for most cases of the thread sanitizer, when case `i` is shape i / 3 in format i % 3: what a
 * kernel's threads order depends on the shape, so each shape comes in one format, in turn. */
static inline bool is_left_out(size_t i)
{
    return FOR_RACES && i % 3 != i / 3 % 3;
}

const struct gpuserve_backend *cuda_backend(void);
struct gpuserve_device *cuda_device(void);
/* Number of warnings that the backend logged in this process. */
int32_t cuda_warnings(void);

/* Side of a square product that selects tiles of this size, 64 x 64 or 128 x 128, on any device.
 * Without the last tile, which the test adds as a partial one. */
int32_t tiled_side(int32_t tile);

/* A stream with these max sizes; outputs of up to 4 KiB. */
struct gpuserve_stream *cuda_stream(uint32_t dtype, int32_t max_tokens, int32_t max_sequences,
                                    int32_t n_heads, int32_t flags);

/* --- buffers on both sides --- */

/* n elements on the device in `dtype`'s activation type, and the same values as floats on the
 * host. */
struct buffer {
    uint32_t dtype;
    size_t n;
    float *host;
    void *device;
};

/* Values in [-1, 1] times `scale`, the same for the same seed. */
struct buffer make_input(uint32_t dtype, size_t n, uint32_t seed, float scale);
/* NaN on both sides, with a guard after the device buffer. */
struct buffer make_output(uint32_t dtype, size_t n);
/* Copies `host` to the device, rounded like make_input(), after a test has changed it. */
void upload(struct buffer *buffer);
/* Copies the device buffer to `host`; checks the guard. */
void download(struct buffer *buffer);
void free_buffer(struct buffer *buffer);

/* --- batches --- */

/* Packed sequences of the given lengths, arrays owned; ids and types of small vocabularies. */
struct lengths {
    int32_t n;
    int32_t of[72];
};
struct gpuserve_host_batch make_host_batch(const struct lengths *lengths, int32_t vocab,
                                           uint32_t seed);
void free_host_batch(struct gpuserve_host_batch *batch);

/* The same batch for the reference, which has no device. Borrowed from `host`. */
struct gpuserve_batch oracle_batch(const struct gpuserve_host_batch *host);

/* Begins a batch of a single token, for operations that need no batch. */
void begin_any(struct gpuserve_stream *stream);
struct gpuserve_batch begin(struct gpuserve_stream *stream, const struct gpuserve_host_batch *host);
/* Ends the batch, copies one float at `from` back, and waits. */
void finish(struct gpuserve_stream *stream, const void *from);

/* --- comparing --- */

/* |got - want|_2 / |want|_2; infinity on any NaN, or if `want` has norm 0 and `got` has not. */
double distance(const float *got, const float *want, size_t n);

#endif
