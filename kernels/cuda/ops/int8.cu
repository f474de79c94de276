/*
 * int8.cu - weights of an int8 product, its double buffer of quantized rows, and the product
 * itself.
 *
 * A linear's memory: values [n, k_up], then scale, column_sum, bias [n] and input_scale [k] in
 * float32, each part aligned to 64 bytes.
 */
#include "kernels/cuda/runtime/int8.cuh"

#include <math.h>
#include <stdlib.h>
#include <string.h>

namespace
{

const float MIN_SCALE = 1e-32f; /* as in kernels/ref/linear.c */

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

/* Image of a linear's memory, built on the host and uploaded by one copy. */
struct image {
    char *memory;
    int8_t *values;
    float *scale;
    float *column_sum;
    float *bias;
    float *input_scale;
};

struct image image_at(void *memory, int32_t n, int32_t k)
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
    const float inverse = to->scale[j] >= MIN_SCALE ? 1.f / to->scale[j] : 0.f;
    int32_t sum = 0;

    for (int32_t i = 0; i < k; i++) {
        values[i] = static_cast<int8_t>(lrintf(fminf(fmaxf(w[i] * inverse, -127.f), 127.f)));
        sum += values[i];
    }
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

static size_t max_rows(const struct gpuserve_stream_options *options)
{
    return static_cast<size_t>(options->max_tokens > options->max_sequences
                                   ? options->max_tokens
                                   : options->max_sequences);
}

/* Offsets of the parts of a stream's int8 memory. */
struct stage_layout {
    size_t values[2];
    size_t row_bytes[2];
    size_t steps[2]; /* [rows], followed by as many zero points */
    size_t arrived;
    size_t size;
};

static bool add_part(struct stage_layout *layout, size_t *offset, size_t count, size_t size)
{
    size_t bytes;

    *offset = layout->size;
    return gsv_mul_size(count, size, &bytes) && bytes <= SIZE_MAX - 256 &&
           gsv_add_size(layout->size, gsv_round_up(bytes, 256), &layout->size);
}

/* Upper bound of a kernel's parts of its rows: each has at least 16 rows, or ends with a
 * sequence. */
static size_t max_parts(const struct gpuserve_stream_options *options)
{
    return max_rows(options) / 16 + static_cast<size_t>(options->max_sequences) + 1;
}

static bool lay_out(const struct gpuserve_stream_options *options, struct stage_layout *layout)
{
    const size_t rows = max_rows(options);

    *layout = {};
    layout->row_bytes[0] = k_up(options->max_columns);
    layout->row_bytes[1] = k_up(options->hidden_size);
    for (int i = 0; i < 2; i++) {
        if (!add_part(layout, &layout->values[i], rows, layout->row_bytes[i]) ||
            !add_part(layout, &layout->steps[i], rows, 2 * sizeof(float)))
            return false;
    }
    return add_part(layout, &layout->arrived, max_parts(options), sizeof(unsigned));
}

size_t gsv_cuda_int8_stage_bytes(const struct gpuserve_stream_options *options)
{
    struct stage_layout layout;

    return lay_out(options, &layout) ? layout.size : SIZE_MAX;
}

struct gsv_int8_stage gsv_cuda_int8_stage(void *memory,
                                          const struct gpuserve_stream_options *options)
{
    char *const at = static_cast<char *>(memory);
    struct gsv_int8_stage stage = {};
    struct stage_layout layout;

    lay_out(options, &layout);
    for (int i = 0; i < 2; i++) {
        stage.rows[i].values = reinterpret_cast<int8_t *>(at + layout.values[i]);
        stage.rows[i].step = reinterpret_cast<float *>(at + layout.steps[i]);
        stage.rows[i].min = stage.rows[i].step + max_rows(options);
        stage.row_bytes[i] = layout.row_bytes[i];
    }
    stage.arrived = reinterpret_cast<unsigned *>(at + layout.arrived);
    return stage;
}

/* ------------------------------------------------------------------------------- quantized rows */

void gsv_int8_forget(struct gsv_int8_stage *stage)
{
    stage->of = NULL;
}

static struct gsv_int8_target target_of(const struct gsv_int8_stage *stage, int at,
                                        const struct gpuserve_linear *reader, const void *rows,
                                        int32_t ld)
{
    struct gsv_int8_target target = {};

    target.rows = stage->rows[at];
    target.rows.ld = reader->int8.k_up;
    target.input_scale = reader->int8.input_scale;
    target.k = reader->k;
    target.wide = reader->k % 8 == 0 && ld % 8 == 0 && reinterpret_cast<uintptr_t>(rows) % 16 == 0;
    target.arrived = stage->arrived;
    return target;
}

/* Selects the narrower buffer if the rows fit, so that the wider one is free for the product's
 * output. */
static int slot_for(const struct gsv_int8_stage *stage, const struct gpuserve_linear *reader)
{
    return static_cast<size_t>(reader->int8.k_up) <= stage->row_bytes[1] ? 1 : 0;
}

static void keep(struct gsv_int8_stage *stage, int at, const struct gpuserve_linear *reader,
                 const void *of, int32_t n_rows)
{
    stage->of = of;
    stage->reader = reader;
    stage->n_rows = n_rows;
    stage->at = at;
}

void gsv_int8_aim(struct gsv_int8_stage *stage, const struct gpuserve_linear *reader,
                  const void *out, int32_t rows, int32_t columns, struct gsv_int8_target *target)
{
    *target = {};
    gsv_int8_forget(stage);
    if (!stage->arrived || !reader || reader->math != GSV_MATH_S8 || reader->k != columns)
        return;
    const int at = slot_for(stage, reader);

    *target = target_of(stage, at, reader, out, columns);
    keep(stage, at, reader, out, rows);
}

void gsv_cuda_int8_scales(struct gpuserve_device *device,
                          const struct gpuserve_linear_source *source, float *scales)
{
    (void)device;
    for (int32_t j = 0; j < source->n; j++) {
        const float *const w = source->weight + static_cast<size_t>(j) * source->k;
        float largest = 0.f;

        for (int32_t i = 0; i < source->k; i++)
            largest = fmaxf(largest, fabsf(w[i]));
        scales[j] = largest / 127.f;
    }
}

int32_t gsv_cuda_int8_copies(struct gpuserve_device *device, int32_t k, int32_t *step)
{
    (void)device;
    (void)k;
    *step = 1;
    return 0;
}

gpuserve_status gsv_cuda_int8_create(struct gpuserve_linear *linear, void *memory,
                                     const struct gpuserve_linear_source *source,
                                     gpuserve_error *error)
{
    const int32_t n = source->n;
    const int32_t k = source->k;
    const size_t size = gsv_cuda_int8_bytes(n, k);
    const struct image there = image_at(memory, n, k);
    struct image here;
    gpuserve_status status;
    void *filled;

    if (k > GSV_INT8_MAX_K)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "an int8 product over %d inputs is not supported, the limit is %d", k,
                        GSV_INT8_MAX_K);
    filled = gsv_alloc_array(size, 1);
    if (!filled)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory while quantizing weights");
    here = image_at(filled, n, k);
    if (source->scale)
        memcpy(here.scale, source->scale, static_cast<size_t>(n) * sizeof(float));
    else
        gsv_cuda_int8_scales(linear->device, source, here.scale);
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

/* Ensures that the product's quantized input rows are in the buffer. */
static cudaError_t bring(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                         struct gsv_int8_stage *stage, cudaStream_t stream)
{
    if (stage->of == gemm->in && stage->reader == linear && stage->n_rows >= gemm->m)
        return cudaSuccess;
    const int at = slot_for(stage, linear);
    const struct gsv_int8_target to = target_of(stage, at, linear, gemm->in, gemm->in_ld);

    keep(stage, at, linear, gemm->in, gemm->m);
    return gsv_cuda_quantize(gemm, &to, stream);
}

cudaError_t gsv_cuda_int8_multiply(const struct gpuserve_linear *linear,
                                   const struct gsv_gemm *gemm,
                                   const struct gpuserve_linear *reader,
                                   struct gsv_int8_stage *stage, cudaStream_t stream)
{
    const bool whole =
        gemm->activation == GPUSERVE_ACT_NONE || gemm->activation == GPUSERVE_ACT_GELU;
    struct gsv_int8_target next = {};
    struct gsv_gemm plain = *gemm;
    struct gsv_gemm rest = *gemm;
    cudaError_t code = bring(linear, gemm, stage, stream);
    const int n_processors = linear->device->n_processors;
    const int at = stage->at;
    bool by_wgmma;
    struct gsv_int8_rows quantized = stage->rows[at];

    quantized.ld = linear->int8.k_up;
    gsv_int8_forget(stage);
    if (!whole) { /* the epilogue has NONE and GELU only */
        plain.activation = GPUSERVE_ACT_NONE;
        plain.residual = NULL;
        rest.bias = NULL;
    }
    by_wgmma = linear->device->has_wgmma && gsv_cuda_gemm_s8_has_wgmma(&plain, n_processors);
    /* gemm_wgmma quantizes no rows: the next product's bring() does. */
    if (whole && !by_wgmma && reader && reader->math == GSV_MATH_S8 && reader->k == gemm->n &&
        static_cast<size_t>(reader->int8.k_up) <= stage->row_bytes[1 - at]) {
        next = target_of(stage, 1 - at, reader, gemm->out, gemm->out_ld);
        keep(stage, 1 - at, reader, gemm->out, gemm->m);
    }
    if (code == cudaSuccess)
        code =
            by_wgmma
                ? gsv_cuda_gemm_s8_wgmma(&plain, &linear->int8, &quantized, n_processors, stream)
                : gsv_cuda_gemm_s8(&plain, &linear->int8, &quantized, &next, n_processors, stream);
    return code == cudaSuccess && !whole ? gsv_cuda_bias_act(&rest, GSV_ELEMENT_F16, stream) : code;
}
