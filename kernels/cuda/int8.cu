/*
 * int8.cu - the weights of an int8 product, and the product as a linear asks for it.
 *
 * A linear's memory: values [n, k_up], then scale, column_sum, bias [n] and input_scale [k] in
 * float32, each part beginning at 64 bytes.
 */
#include "kernels/cuda/int8.cuh"

#include <math.h>
#include <stdlib.h>
#include <string.h>

namespace
{

const float LEAST_WIDTH = 1e-30f; /* as kernels/ref/linear.c */

size_t k_up(int32_t k)
{
    return gsv_round_up(static_cast<size_t>(k), 16);
}

size_t floats(int32_t count)
{
    return gsv_round_up(static_cast<size_t>(count) * sizeof(float), 64);
}

size_t values_bytes(int32_t n, int32_t k)
{
    size_t bytes;

    return gsv_mul_size(static_cast<size_t>(n), k_up(k), &bytes) ? gsv_round_up(bytes, 64)
                                                                 : SIZE_MAX;
}

/* A linear's memory as it is filled here, before one copy brings it over. */
struct image {
    char *memory;
    int8_t *values;
    float *scale;
    float *column_sum;
    float *bias;
    float *input_scale;
};

struct image place(void *memory, int32_t n, int32_t k)
{
    struct image at = {};

    at.memory = static_cast<char *>(memory);
    at.values = reinterpret_cast<int8_t *>(at.memory);
    at.scale = reinterpret_cast<float *>(at.memory + values_bytes(n, k));
    at.column_sum = at.scale + floats(n) / sizeof(float);
    at.bias = at.column_sum + floats(n) / sizeof(float);
    at.input_scale = at.bias + floats(n) / sizeof(float);
    return at;
}

void quantize_column(const struct image *to, const float *w, int32_t j, int32_t k)
{
    int8_t *const values = to->values + static_cast<size_t>(j) * k_up(k);
    float largest = 0.f;
    int32_t sum = 0;

    for (int32_t i = 0; i < k; i++)
        largest = fmaxf(largest, fabsf(w[i]));
    const float inverse = largest >= LEAST_WIDTH ? 127.f / largest : 0.f;
    for (int32_t i = 0; i < k; i++) {
        values[i] = static_cast<int8_t>(lrintf(w[i] * inverse));
        sum += values[i];
    }
    to->scale[j] = largest / 127.f;
    to->column_sum[j] = static_cast<float>(sum);
}

} /* namespace */

size_t gsv_cuda_int8_bytes(int32_t n, int32_t k)
{
    size_t all;

    if (!gsv_add_size(values_bytes(n, k), 3 * floats(n) + floats(k), &all))
        return SIZE_MAX;
    return all;
}

static size_t most_rows(const struct gpuserve_stream_options *options)
{
    return static_cast<size_t>(options->max_tokens > options->max_sequences
                                   ? options->max_tokens
                                   : options->max_sequences);
}

size_t gsv_cuda_int8_rows_bytes(const struct gpuserve_stream_options *options)
{
    const size_t rows = most_rows(options);
    size_t bytes;

    if (!gsv_mul_size(rows, k_up(options->max_columns), &bytes) ||
        !gsv_add_size(gsv_round_up(bytes, 256), gsv_round_up(2 * rows * sizeof(float), 256),
                      &bytes))
        return SIZE_MAX;
    return bytes;
}

struct gsv_int8_rows gsv_cuda_int8_rows(void *memory, const struct gpuserve_stream_options *options)
{
    const size_t rows = most_rows(options);
    struct gsv_int8_rows made = {};

    made.values = static_cast<int8_t *>(memory);
    made.step = reinterpret_cast<float *>(made.values +
                                          gsv_round_up(rows * k_up(options->max_columns), 256));
    made.least = made.step + rows;
    return made;
}

gpuserve_status gsv_cuda_int8_create(struct gpuserve_linear *linear, void *memory,
                                     const struct gpuserve_linear_source *source,
                                     gpuserve_error *error)
{
    const int32_t n = source->n;
    const int32_t k = source->k;
    const size_t size = gsv_cuda_int8_bytes(n, k);
    const struct image there = place(memory, n, k);
    struct image here;
    gpuserve_status status;
    void *filled;

    if (k > GSV_INT8_MAX_K)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "int8 product over %d inputs: at most %d", k,
                        GSV_INT8_MAX_K);
    filled = gsv_alloc_array(size, 1);
    if (!filled)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory while quantizing weights");
    here = place(filled, n, k);
    for (int32_t j = 0; j < n; j++)
        quantize_column(&here, source->weight + static_cast<size_t>(j) * k, j, k);
    if (source->bias)
        memcpy(here.bias, source->bias, static_cast<size_t>(n) * sizeof(float));
    if (source->input_scale)
        memcpy(here.input_scale, source->input_scale, static_cast<size_t>(k) * sizeof(float));
    status = gsv_cuda_memory_write(linear->device, memory, filled, size, error);
    free(filled);
    linear->bias = source->bias ? there.bias : NULL;
    linear->int8.values = there.values;
    linear->int8.scale = there.scale;
    linear->int8.column_sum = there.column_sum;
    linear->int8.input_scale = source->input_scale ? there.input_scale : NULL;
    linear->int8.k_up = static_cast<int32_t>(k_up(k));
    return status;
}

cudaError_t gsv_cuda_int8_multiply(const struct gpuserve_linear *linear,
                                   const struct gsv_gemm *gemm, const struct gsv_int8_rows *rows,
                                   cudaStream_t stream)
{
    const bool whole =
        gemm->activation == GPUSERVE_ACT_NONE || gemm->activation == GPUSERVE_ACT_GELU;
    struct gsv_int8_rows quantized = *rows;
    struct gsv_gemm plain = *gemm;
    struct gsv_gemm rest = *gemm;
    cudaError_t code;

    quantized.ld = linear->int8.k_up;
    code = gsv_cuda_quantize(gemm, &linear->int8, &quantized, stream);
    if (!whole) { /* the others are not in its epilogue */
        plain.activation = GPUSERVE_ACT_NONE;
        plain.residual = NULL;
        rest.bias = NULL;
    }
    if (code == cudaSuccess)
        code = gsv_cuda_gemm_s8(&plain, &linear->int8, &quantized, linear->device->n_processors,
                                stream);
    return code == cudaSuccess && !whole ? gsv_cuda_bias_act(&rest, GSV_ELEMENT_F16, stream) : code;
}
