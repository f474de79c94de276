/*
 * harness.h - every operation on every backend that runs here, against the plain C of kernels/ref.
 *
 * A target is a backend on one instruction set with a number of threads; target 0 is ref. Buffers
 * have guard rows before and behind that must stay untouched, and outputs start as NaN.
 */
#ifndef GSV_TEST_KERNELS_HARNESS_H
#define GSV_TEST_KERNELS_HARNESS_H

#include "kernels/kernels.h"

#include <criterion/criterion.h>
#include <stdbool.h>

struct target {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    char name[112]; /* "cpu avx2, 2 threads" */
    int32_t n_threads;
};

#define MAX_TARGETS 24

/* Opens all of them at the first call. */
int target_count(void);
const struct target *target_at(int i);

/* A stream large enough for `max_tokens` of `columns` wide activations. */
struct gpuserve_stream *open_stream(const struct target *t, uint32_t dtype, int32_t max_tokens,
                                    int32_t columns, int32_t n_heads, int32_t head_size);

/* Weights with their packed memory. */
struct test_linear {
    struct gpuserve_linear *linear;
    void *memory;
};
struct test_linear open_linear(const struct target *t, uint32_t dtype, int32_t n, int32_t k,
                               const float *weight, const float *bias, const float *input_scale);
void close_linear(const struct target *t, struct test_linear *linear);

/* Sequences of the given lengths as one batch; arrays live until the next call. */
struct gpuserve_batch make_batch(const int32_t *lengths, int32_t n_sequences);

/* n floats between -1 and 1, the same for the same seed. Aligned, 64 guard floats around; free
 * with free_floats, which checks them. */
float *make_floats(size_t n, uint32_t seed);
float *make_poison(size_t n);
void free_floats(float *floats);

/* |got - want| <= absolute + relative * |want| for all, NaN like NaN. Says where it is not. */
bool all_close(const float *got, const float *want, size_t n, float absolute, float relative);
const char *difference(void);

/* Cut to what bfloat16 holds exactly. */
void round_to_bf16(float *floats, size_t n);

bool same_bits(const float *a, const float *b, size_t n);

#endif
