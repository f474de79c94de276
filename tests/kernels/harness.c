/*
 * harness.c - targets, guarded buffers and comparisons of the kernel tests.
 */
#include "tests/kernels/harness.h"

#include "kernels/cpu/runtime/cpu.h"
#include "lib/base/number.h"
#include "tests/kernels/tile_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64 /* floats */
#define GUARD_BITS 0x7FC0DEADu
#define MAX_THREADS 3
#ifdef RUNS_UNDER_QEMU
#define THREAD_STEP 2 /* 1 and 3 threads suffice */
#else
#define THREAD_STEP 1
#endif

static struct target targets[MAX_TARGETS];
static int n_targets;
static char said[256];

/* All instruction sets, and their models. */
static const struct instruction_set {
    const char *name;
    const char *limit;               /* the value of GPUSERVE_MAX_ISA; NULL: generic */
    const struct gsv_cpu_isa *model; /* replaces the table of the limit; NULL: none */
} sets[] = {
    { .name = "generic", .limit = "generic" },
/* All sets use the same work partitioning, and each takes a minute with the thread sanitizer. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    { .name = "avx2", .limit = "avx2" },
    { .name = "avx2_vnni", .limit = "avx2_vnni" },
    { .name = "avx512", .limit = "avx512" },
    { .name = "avx512_vnni", .limit = "avx512_vnni" },
    { .name = "avx512_bf16", .limit = "avx512_bf16" },
    { .name = "avx512_amx", .limit = "avx512_amx" },
    { .name = "avx2_tile_model", .limit = "avx2", .model = &gsv_cpu_isa_avx2_tile_model },
    { .name = "avx512_tile_model", .limit = "avx512", .model = &gsv_cpu_isa_avx512_tile_model },
#elif defined(__aarch64__) && !defined(__SANITIZE_THREAD__)
    { .name = "neon", .limit = "neon" },
    { .name = "neon_dotprod", .limit = "neon_dotprod" },
    { .name = "neon_i8mm", .limit = "neon_i8mm" },
    { .name = "neon_bf16", .limit = "neon_bf16" },
#endif
};

#define N_SETS (sizeof(sets) / sizeof(sets[0]))

static struct target *add_target(const struct gpuserve_backend *backend, const char *set,
                                 int32_t n_threads)
{
    struct target *t = &targets[n_targets];

    cr_assert_lt(n_targets, MAX_TARGETS);
    cr_assert_eq(backend->device_open(&t->device, 0, NULL), GPUSERVE_OK);
    t->backend = backend;
    t->n_threads = n_threads;
    snprintf(t->name, sizeof(t->name), "%s %s, %d threads", backend->name, set, (int)n_threads);
    n_targets++;
    return t;
}

/* True if the processor has the set, or can run its model. */
static bool is_supported(const struct instruction_set *set)
{
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };

    setenv("GPUSERVE_MAX_ISA", set->limit, 1);
    cr_assert_eq(gsv_backend_cpu()->device_facts(0, &facts, NULL), GPUSERVE_OK);
    return strcmp(facts.isa, set->limit) == 0;
}

int target_count(void)
{
    if (n_targets)
        return n_targets;
    add_target(gsv_backend_ref(), "c", 1);
    for (size_t i = 0; i < N_SETS; i++) {
        for (int32_t n_threads = 1; is_supported(&sets[i]) && n_threads <= MAX_THREADS;
             n_threads += THREAD_STEP) {
            struct target *t = add_target(gsv_backend_cpu(), sets[i].name, n_threads);

            if (sets[i].model)
                t->device->isa = sets[i].model;
            t->has_model = sets[i].model != NULL;
            t->has_bf16 = t->device->isa->gemm_bf16 != NULL;
            t->has_s16 = t->device->isa->gemm_s16 != NULL;
        }
    }
    unsetenv("GPUSERVE_MAX_ISA");
    cr_assert_gt(n_targets, 3, "no instruction set of the cpu backend could be opened");
    return n_targets;
}

void print_instruction_sets(void)
{
    printf("note: kernels executed for");
    for (size_t i = 0; i < N_SETS; i++)
        if (is_supported(&sets[i]))
            printf(" %s", sets[i].name);
    printf("; compiled only:");
    for (size_t i = 0; i < N_SETS; i++)
        if (!is_supported(&sets[i]))
            printf(" %s", sets[i].name);
    printf("\n");
    unsetenv("GPUSERVE_MAX_ISA");
}

const struct target *target_at(int i)
{
    cr_assert_lt(i, target_count());
    return &targets[i];
}

static struct gpuserve_stream *open_stream_of(const struct target *t,
                                              const struct gpuserve_stream_options *options)
{
    struct gpuserve_stream *stream;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(t->backend->stream_create(t->device, &stream, options, &error), GPUSERVE_OK, "%s",
                 error.message);
    return stream;
}

static struct gpuserve_stream_options options_of(const struct target *t, uint32_t dtype,
                                                 int32_t max_tokens, int32_t columns,
                                                 int32_t n_heads, int32_t head_size)
{
    return (struct gpuserve_stream_options){
        .struct_size = sizeof(struct gpuserve_stream_options),
        .dtype = dtype,
        .n_threads = t->n_threads,
        .max_tokens = max_tokens,
        .max_sequences = max_tokens,
        .max_seqlen = max_tokens,
        .max_columns = columns,
        .hidden_size = n_heads * head_size,
        .n_heads = n_heads,
        .output_bytes = 64,
    };
}

struct gpuserve_stream *open_stream(const struct target *t, uint32_t dtype, int32_t max_tokens,
                                    int32_t columns, int32_t n_heads, int32_t head_size)
{
    const struct gpuserve_stream_options options =
        options_of(t, dtype, max_tokens, columns, n_heads, head_size);

    return open_stream_of(t, &options);
}

struct gpuserve_stream *open_attention_stream(const struct target *t, uint32_t dtype,
                                              int32_t max_tokens, int32_t max_seqlen,
                                              int32_t n_heads, int32_t head_size,
                                              int32_t position_rows)
{
    struct gpuserve_stream_options options =
        options_of(t, dtype, max_tokens, 3 * n_heads * head_size, n_heads, 1);

    options.head_size = head_size; /* more columns than hidden_size / n_heads, as in Gemma */
    options.max_seqlen =
        max_seqlen; /* as short as possible: a sanitizer sees a scratch too small */
    options.position_rows = position_rows;
    return open_stream_of(t, &options);
}

struct test_linear open_linear(const struct target *t, uint32_t dtype, int32_t n, int32_t k,
                               const float *weight, const float *bias, const float *input_scale)
{
    return open_scaled_linear(t, dtype, n, k, weight, bias, input_scale, NULL);
}

struct test_linear open_scaled_linear(const struct target *t, uint32_t dtype, int32_t n, int32_t k,
                                      const float *weight, const float *bias,
                                      const float *input_scale, const float *scale)
{
    const struct gpuserve_linear_source source = {
        .struct_size = sizeof(source),
        .dtype = dtype,
        .n = n,
        .k = k,
        .weight = weight,
        .bias = bias,
        .input_scale = input_scale,
        .scale = scale,
    };
    struct test_linear made;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const size_t bytes = t->backend->linear_bytes(n, k, dtype);

    cr_assert_eq(bytes % 64, 0);
    cr_assert_eq(t->backend->memory_alloc(t->device, &made.memory, bytes + 64, &error),
                 GPUSERVE_OK);
    memset(made.memory, 0xFF, bytes + 64); /* NaN in all bytes that packing does not write */
    cr_assert_eq(t->backend->linear_create(t->device, &made.linear, made.memory, &source, &error),
                 GPUSERVE_OK, "%s", error.message);
    for (size_t i = 0; i < 64; i++)
        cr_assert_eq(((unsigned char *)made.memory)[bytes + i], 0xFF,
                     "%s: packing wrote past linear_bytes", t->name);
    return made;
}

void close_linear(const struct target *t, struct test_linear *linear)
{
    t->backend->linear_destroy(&linear->linear);
    cr_assert_null(linear->linear);
    t->backend->memory_free(t->device, linear->memory);
}

struct gpuserve_batch make_batch(const int32_t *lengths, int32_t n_sequences)
{
    static int32_t cu_seqlens[1024];
    struct gpuserve_batch batch = { .n_sequences = n_sequences, .cu_seqlens = cu_seqlens };

    cr_assert_lt(n_sequences, 1024);
    for (int32_t i = 0; i < n_sequences; i++) {
        cu_seqlens[i + 1] = cu_seqlens[i] + lengths[i];
        if (lengths[i] > batch.max_seqlen)
            batch.max_seqlen = lengths[i];
    }
    batch.n_tokens = batch.n_rows = cu_seqlens[n_sequences];
    return batch;
}

/* ----------------------------------------------------------------------------------- buffers */

/* Layout: the count, a guard, the floats, a guard. */
static float *make_guarded(size_t n)
{
    const size_t total = 16 + GUARD + n + GUARD;
    float *block = aligned_alloc(64, (total * sizeof(float) + 63) / 64 * 64);
    const uint32_t guard = GUARD_BITS;

    cr_assert_not_null(block);
    memcpy(block, &n, sizeof(n));
    for (size_t i = 0; i < GUARD; i++) {
        memcpy(&block[16 + i], &guard, sizeof(guard));
        memcpy(&block[16 + GUARD + n + i], &guard, sizeof(guard));
    }
    return block + 16 + GUARD;
}

float *make_floats(size_t n, uint32_t seed)
{
    float *floats = make_guarded(n);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;

    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        floats[i] = (float)(int32_t)(state >> 32) / 2147483648.0f;
    }
    return floats;
}

float *make_poison(size_t n)
{
    float *floats = make_guarded(n);

    for (size_t i = 0; i < n; i++)
        floats[i] = NAN;
    return floats;
}

void free_floats(float *floats)
{
    float *block = floats - 16 - GUARD;
    size_t n;
    uint32_t guard;

    memcpy(&n, block, sizeof(n));
    for (size_t i = 0; i < GUARD; i++) {
        memcpy(&guard, &block[16 + i], sizeof(guard));
        cr_assert_eq(guard, GUARD_BITS, "something was written before the buffer");
        memcpy(&guard, &block[16 + GUARD + n + i], sizeof(guard));
        cr_assert_eq(guard, GUARD_BITS, "something was written behind the buffer");
    }
    free(block);
}

void round_to_16_bits(float *floats, size_t n, uint32_t dtype)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        if (dtype == GPUSERVE_DTYPE_FLOAT16) {
            const uint16_t half = gsv_f16_of(floats[i]);
            const int exponent = half >> 10 & 31, fraction = half & 1023;
            const float size = exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
                                        : ldexpf((float)fraction, -24);

            floats[i] = half >> 15 ? -size : size;
            continue;
        }
        memcpy(&bits, &floats[i], sizeof(bits));
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
        memcpy(&floats[i], &bits, sizeof(bits));
    }
}

/* ------------------------------------------------------------------------------- comparisons */

bool all_close(const float *got, const float *want, size_t n, float absolute, float relative)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(got[i]) && isnan(want[i]))
            continue;
        if (got[i] == want[i] || fabsf(got[i] - want[i]) <= absolute + relative * fabsf(want[i]))
            continue;
        snprintf(said, sizeof(said), "element %zu of %zu is %.9g, not %.9g", i, n, (double)got[i],
                 (double)want[i]);
        return false;
    }
    return true;
}

const char *difference(void)
{
    return said;
}

void round_to_bf16(float *floats, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &floats[i], sizeof(bits));
        bits &= 0xFFFF0000u;
        memcpy(&floats[i], &bits, sizeof(bits));
    }
}

bool same_bits(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof(float)) == 0;
}
