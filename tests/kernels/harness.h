/*
 * harness.h - runs each operation on all available backends against the plain C of kernels/ref.
 *
 * A target is a backend with an instruction set and a number of threads; target 0 is ref. The
 * kernels in tile registers (AMX) are targets on every x86 processor, with a model of the
 * registers. Buffers have guards before and after that must stay unchanged; outputs start as NaN.
 */
#ifndef GSV_TEST_KERNELS_HARNESS_H
#define GSV_TEST_KERNELS_HARNESS_H

#include "kernels/kernels.h"

#include <criterion/criterion.h>
#include <stdbool.h>

/* Defined where a program takes minutes, in the cross build of `./dev arm`: smaller problems. */
#if defined(__aarch64__) && defined(GSV_PLAIN_CRITERION_H)
#define RUNS_UNDER_QEMU
#endif

struct target {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    char name[112]; /* "cpu avx2, 2 threads" */
    int32_t n_threads;
    bool has_bf16;  /* products in bfloat16 */
    bool has_s16;   /* products in int16 */
    bool has_model; /* of the tile registers */
};

#define MAX_TARGETS 32

/* Opens all targets at the first call. */
int target_count(void);
const struct target *target_at(int i);

/* Prints which instruction sets the tests execute, and which were only compiled. */
void print_instruction_sets(void);

/* A stream for `max_tokens` activations of width `columns`. */
struct gpuserve_stream *open_stream(const struct target *t, uint32_t dtype, int32_t max_tokens,
                                    int32_t columns, int32_t n_heads, int32_t head_size);

/* As above for attention over texts of up to max_seqlen tokens; head_size is set in the options. */
struct gpuserve_stream *open_attention_stream(const struct target *t, uint32_t dtype,
                                              int32_t max_tokens, int32_t max_seqlen,
                                              int32_t n_heads, int32_t head_size,
                                              int32_t position_rows);

/* Weights with their packed memory. */
struct test_linear {
    struct gpuserve_linear *linear;
    void *memory;
};
struct test_linear open_linear(const struct target *t, uint32_t dtype, int32_t n, int32_t k,
                               const float *weight, const float *bias, const float *input_scale);
/* The same with given scales of an int8 product; NULL: the target's own. */
struct test_linear open_scaled_linear(const struct target *t, uint32_t dtype, int32_t n, int32_t k,
                                      const float *weight, const float *bias,
                                      const float *input_scale, const float *scale);
void close_linear(const struct target *t, struct test_linear *linear);

/* Sequences of the given lengths as one batch; arrays live until the next call. */
struct gpuserve_batch make_batch(const int32_t *lengths, int32_t n_sequences);

/* n floats in [-1, 1], the same for the same seed. Aligned, with 64 guard floats around; free with
 * free_floats(), which checks the guards. */
float *make_floats(size_t n, uint32_t seed);
float *make_poison(size_t n);
void free_floats(float *floats);

/* |got - want| <= absolute + relative * |want| for all; NaN equals NaN. Prints the first
 * difference. */
bool all_close(const float *got, const float *want, size_t n, float absolute, float relative);
const char *difference(void);

/* Rounds to float16 or bfloat16, to nearest, ties to even. */
void round_to_16_bits(float *floats, size_t n, uint32_t dtype);

/* Truncates to values that bfloat16 represents exactly. */
void round_to_bf16(float *floats, size_t n);

bool same_bits(const float *a, const float *b, size_t n);

#endif
