/*
 * harness.c - loads the plugin, manages buffers on host and device, and compares results.
 */
#include "tests/kernels_cuda/harness.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 256
#define GUARD_BYTE 0xA5

const struct format formats[4] = {
    { GPUSERVE_DTYPE_FLOAT32, "float32", 1e-6 },
    { GPUSERVE_DTYPE_FLOAT16, "float16", 1e-3 },
    { GPUSERVE_DTYPE_BFLOAT16, "bfloat16", 4e-3 },
    { GPUSERVE_DTYPE_TF32, "tf32", 1e-3 },
};

static int32_t n_warnings;

static void print_log(void *user, int32_t level, const char *message)
{
    (void)user;
    if (level <= GPUSERVE_LOG_WARNING)
        fprintf(stderr, "%s\n", message);
    n_warnings += level == GPUSERVE_LOG_WARNING;
}

int32_t cuda_warnings(void)
{
    return n_warnings;
}

const struct gpuserve_backend *cuda_backend(void)
{
    static const struct gpuserve_backend *backend;
    static const struct gpuserve_host host = { sizeof(host), GPUSERVE_BACKEND_ABI, print_log,
                                               NULL };
    const char *folder = getenv("GPUSERVE_PLUGIN_DIR");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char path[4096];
    void *library;

    if (backend)
        return backend;
    cr_assert_not_null(folder, "GPUSERVE_PLUGIN_DIR must name the plugin's folder");
    snprintf(path, sizeof(path), "%s/libgpuserve-cuda.so", folder);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    backend = ((gpuserve_backend_entry_fn)dlsym(library, GPUSERVE_BACKEND_ENTRY))(&host, &error);
    cr_assert_not_null(backend, "%s", error.message);
    return backend;
}

struct gpuserve_device *cuda_device(void)
{
    static struct gpuserve_device *device;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (!device)
        cr_assert_eq(cuda_backend()->device_open(&device, 0, &error), GPUSERVE_OK, "%s",
                     error.message);
    return device;
}

int32_t tiled_side(int32_t tile)
{
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };
    int32_t side = 0;
    int32_t least;

    cr_assert_eq(cuda_backend()->device_facts(0, &facts, NULL), GPUSERVE_OK);
    /* As gsv_mma_choose(): large tiles need as many tiles as cores, medium tiles half of that. */
    least = tile == 128 ? facts.n_cores : (facts.n_cores + 1) / 2;
    while ((side + 1) * (side + 1) < least)
        side++;
    return side * tile;
}

struct gpuserve_stream *cuda_stream(uint32_t dtype, int32_t max_tokens, int32_t max_sequences,
                                    int32_t n_heads, int32_t flags)
{
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = dtype,
        .max_tokens = max_tokens,
        .max_sequences = max_sequences,
        .max_seqlen = max_tokens,
        .n_heads = n_heads,
        .flags = flags,
        .output_bytes = 4096,
    };
    struct gpuserve_stream *stream;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(cuda_backend()->stream_create(cuda_device(), &stream, &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    return stream;
}

/* ----------------------------------------------------------------------------------- numbers */

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float half_to_float(uint16_t h)
{
    const int exponent = h >> 10 & 31;
    const int mantissa = h & 1023;
    const float sign = h >> 15 ? -1.0f : 1.0f;

    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)mantissa, -24);
    return sign * ldexpf((float)(1024 + mantissa), exponent - 25);
}

static float bfloat16_to_float(uint16_t b)
{
    return float_of((uint32_t)b << 16);
}

static float element_at(const void *from, uint32_t dtype, size_t i)
{
    if (dtype == GPUSERVE_DTYPE_FLOAT16)
        return half_to_float(((const uint16_t *)from)[i]);
    if (dtype == GPUSERVE_DTYPE_BFLOAT16)
        return bfloat16_to_float(((const uint16_t *)from)[i]);
    return ((const float *)from)[i];
}

/* Clears the low bits: the result is exact in the format, and unchanged by tf32. */
static float round_to(float x, uint32_t dtype)
{
    static const uint32_t kept[] = {
        [GPUSERVE_DTYPE_FLOAT32] = 0xFFFFFFFFu,
        [GPUSERVE_DTYPE_FLOAT16] = 0xFFFFE000u,
        [GPUSERVE_DTYPE_BFLOAT16] = 0xFFFF0000u,
        [GPUSERVE_DTYPE_TF32] = 0xFFFFE000u,
    };

    return float_of(bits_of(x) & kept[dtype]);
}

/* ----------------------------------------------------------------------------------- buffers */

static size_t bytes_of(const struct buffer *buffer)
{
    return buffer->n * cuda_backend()->activation_size(buffer->dtype);
}

static struct buffer make_buffer(uint32_t dtype, size_t n)
{
    struct buffer buffer = { .dtype = dtype, .n = n, .host = malloc(n * sizeof(float) + 1) };
    const size_t size = bytes_of(&buffer);
    unsigned char *fill = malloc(size + GUARD_BYTES);

    cr_assert(buffer.host && fill);
    memset(fill, 0xFF, size); /* NaN in every format */
    memset(fill + size, GUARD_BYTE, GUARD_BYTES);
    cr_assert_eq(
        cuda_backend()->memory_alloc(cuda_device(), &buffer.device, size + GUARD_BYTES, NULL),
        GPUSERVE_OK);
    cr_assert_eq(
        cuda_backend()->memory_write(cuda_device(), buffer.device, fill, size + GUARD_BYTES, NULL),
        GPUSERVE_OK);
    free(fill);
    return buffer;
}

void upload(struct buffer *buffer)
{
    if (buffer->n > 0)
        cr_assert_eq(cuda_backend()->memory_write_floats(cuda_device(), buffer->device,
                                                         buffer->host, buffer->n, buffer->dtype,
                                                         NULL),
                     GPUSERVE_OK);
}

struct buffer make_input(uint32_t dtype, size_t n, uint32_t seed, float scale)
{
    struct buffer buffer = make_buffer(dtype, n);
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;

    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        buffer.host[i] = round_to(scale * (float)(int32_t)(state >> 32) / 2147483648.0f, dtype);
    }
    upload(&buffer);
    return buffer;
}

struct buffer make_output(uint32_t dtype, size_t n)
{
    struct buffer buffer = make_buffer(dtype, n);

    for (size_t i = 0; i < n; i++)
        buffer.host[i] = NAN;
    return buffer;
}

void download(struct buffer *buffer)
{
    const size_t size = bytes_of(buffer);
    unsigned char *bytes = malloc(size + GUARD_BYTES);

    cr_assert_not_null(bytes);
    cr_assert_eq(
        cuda_backend()->memory_read(cuda_device(), bytes, buffer->device, size + GUARD_BYTES, NULL),
        GPUSERVE_OK);
    for (size_t i = 0; i < buffer->n; i++)
        buffer->host[i] = element_at(bytes, buffer->dtype, i);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        cr_assert_eq(bytes[size + i], GUARD_BYTE, "written %zu bytes behind the buffer", i);
    free(bytes);
}

void free_buffer(struct buffer *buffer)
{
    cuda_backend()->memory_free(cuda_device(), buffer->device);
    free(buffer->host);
}

/* ----------------------------------------------------------------------------------- batches */

static int32_t *make_ints(int32_t n)
{
    int32_t *ints = calloc((size_t)n + 1, sizeof(*ints));

    cr_assert_not_null(ints);
    return ints;
}

struct gpuserve_host_batch make_host_batch(const struct lengths *lengths, int32_t vocab,
                                           uint32_t seed)
{
    struct gpuserve_host_batch batch = { .n_sequences = lengths->n };
    int32_t *cu_seqlens = make_ints(lengths->n + 1);
    int32_t *ids, *type_ids, *positions;

    for (int32_t i = 0; i < lengths->n; i++) {
        cu_seqlens[i + 1] = cu_seqlens[i] + lengths->of[i];
        if (lengths->of[i] > batch.max_seqlen)
            batch.max_seqlen = lengths->of[i];
    }
    batch.n_tokens = cu_seqlens[lengths->n];
    ids = make_ints(batch.n_tokens);
    type_ids = make_ints(batch.n_tokens);
    positions = make_ints(batch.n_tokens);
    for (int32_t i = 0, s = 0; i < batch.n_tokens; i++) {
        while (i >= cu_seqlens[s + 1])
            s++;
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % (uint32_t)vocab);
        type_ids[i] = (int32_t)(seed >> 31);
        positions[i] = i - cu_seqlens[s];
    }
    batch.ids = ids;
    batch.type_ids = type_ids;
    batch.positions = positions;
    batch.cu_seqlens = cu_seqlens;
    return batch;
}

void free_host_batch(struct gpuserve_host_batch *batch)
{
    free((void *)batch->ids);
    free((void *)batch->type_ids);
    free((void *)batch->positions);
    free((void *)batch->cu_seqlens);
}

struct gpuserve_batch oracle_batch(const struct gpuserve_host_batch *host)
{
    const struct gpuserve_batch batch = {
        .n_tokens = host->n_tokens,
        .n_sequences = host->n_sequences,
        .max_seqlen = host->max_seqlen,
        .n_rows = host->n_tokens,
        .ids = host->ids,
        .type_ids = host->type_ids,
        .positions = host->positions,
        .cu_seqlens = host->cu_seqlens,
    };

    return batch;
}

struct gpuserve_batch begin(struct gpuserve_stream *stream, const struct gpuserve_host_batch *host)
{
    static uint64_t program; /* unique: no replay */
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_batch batch;
    int32_t replayed;

    cr_assert_eq(cuda_backend()->batch_begin(stream, ++program, host, &batch, &replayed, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(replayed, 0);
    cr_assert_geq(batch.n_rows, host->n_tokens);
    cr_assert_geq(batch.n_sequences, host->n_sequences);
    return batch;
}

void begin_any(struct gpuserve_stream *stream)
{
    static const struct lengths one = { 1, { 1 } };
    struct gpuserve_host_batch host = make_host_batch(&one, 1, 1);

    begin(stream, &host);
    free_host_batch(&host);
}

void finish(struct gpuserve_stream *stream, const void *from)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float first;

    cr_assert_eq(cuda_backend()->batch_end(stream, &first, from, sizeof(first), &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(cuda_backend()->stream_wait(stream, &error), GPUSERVE_OK, "%s", error.message);
}

double distance(const float *got, const float *want, size_t n)
{
    double far = 0;
    double length = 0;

    for (size_t i = 0; i < n; i++) {
        if (!isfinite(got[i]) || !isfinite(want[i]))
            return INFINITY;
        far += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        length += (double)want[i] * want[i];
    }
    if (far == 0)
        return 0;
    return length > 0 ? sqrt(far / length) : INFINITY;
}
