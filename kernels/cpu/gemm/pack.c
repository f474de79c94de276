/*
 * pack.c - packs weights into panels when a model is loaded; quantizes them for INT8.
 *
 * One 32-bit lane of a panel holds as many k of a column as fit: one float32, two bfloat16 or four
 * bytes. isa.h describes the layout; sizes are the same for every instruction set.
 */
#include "kernels/cpu/runtime/cpu.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INT8_K 65536 /* keeps 65536 * 255 * 127 below 2^31 */
#define MIN_WIDTH 1e-30f /* minimum range to divide into steps, as in kernels/ref/linear.c */

/* Number of k in one lane. */
static size_t lane_depth(uint32_t dtype)
{
    return dtype == GPUSERVE_DTYPE_INT8 ? 4 : dtype == GPUSERVE_DTYPE_BFLOAT16 ? 2 : 1;
}

static size_t columns_up(int32_t n)
{
    return gsv_round_up((size_t)n, GSV_COLUMN_STEP);
}

int32_t gsv_cpu_depth_up(int32_t k, uint32_t dtype)
{
    return (int32_t)gsv_round_up((size_t)k, lane_depth(dtype));
}

static size_t lanes_of(int32_t n, int32_t k, uint32_t dtype)
{
    return columns_up(n) * ((size_t)gsv_cpu_depth_up(k, dtype) / lane_depth(dtype));
}

size_t gsv_cpu_linear_bytes(int32_t n, int32_t k, uint32_t dtype)
{
    const bool int8 = dtype == GPUSERVE_DTYPE_INT8;
    const size_t floats = columns_up(n) * (int8 ? 3 : 1) + (int8 ? (size_t)k : 0);

    return gsv_round_up((lanes_of(n, k, dtype) + floats) * sizeof(float), 64);
}

/* Sets the array pointers in the caller's memory. */
static void set_addresses(struct gpuserve_linear *linear, void *memory)
{
    const size_t columns = columns_up(linear->n);

    linear->weight = memory;
    linear->bias = (float *)memory + lanes_of(linear->n, linear->k, linear->dtype);
    linear->scale = linear->bias + columns;
    linear->column_sum = linear->scale + columns;
    linear->input_scale = linear->column_sum + columns;
}

/* Index of the element (column j, k i) in the packed weights. */
static size_t offset_of(const struct gpuserve_linear *to, size_t panel, size_t j, size_t i)
{
    const size_t depth = lane_depth(to->dtype);
    const size_t panel_start = j / panel * panel * (size_t)gsv_cpu_depth_up(to->k, to->dtype);

    return panel_start + (i / depth * panel + j % panel) * depth + i % depth;
}

static void pack_f32(struct gpuserve_linear *to, const float *w, size_t j, size_t panel)
{
    float *at = (float *)to->weight + offset_of(to, panel, j, 0);

    for (size_t i = 0; i < (size_t)to->k; i++)
        at[i * panel] = w[i];
}

static void pack_bf16(struct gpuserve_linear *to, const float *w, size_t j, size_t panel)
{
    for (size_t i = 0; i < (size_t)to->k; i++)
        ((uint16_t *)to->weight)[offset_of(to, panel, j, i)] = gsv_bf16_of(w[i]);
}

/* Rounds to nearest, ties to even, for |x| < 2^22; lrintf() would be a function call. */
static int32_t nearest(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */
    const float shifted = x + magic;

    return (int32_t)(shifted - magic);
}

static void pack_s8(struct gpuserve_linear *to, const float *w, size_t j, size_t panel)
{
    const size_t k = (size_t)to->k;
    int8_t *at = (int8_t *)to->weight + offset_of(to, panel, j, 0);
    float largest = 0.0f, inverse;
    int32_t sum = 0;

    for (size_t i = 0; i < k; i++)
        largest = fabsf(w[i]) > largest ? fabsf(w[i]) : largest;
    inverse = largest >= MIN_WIDTH ? 127.0f / largest : 0.0f;
    for (size_t i = 0; i < k; i++) {
        const int32_t q = nearest(w[i] * inverse);

        at[i / 4 * panel * 4 + i % 4] = (int8_t)q;
        sum += q;
    }
    to->scale[j] = largest / 127.0f;
    to->column_sum[j] = (float)sum;
}

static void pack(struct gpuserve_linear *to, const struct gpuserve_linear_source *source,
                 size_t panel)
{
    const size_t n = (size_t)to->n, k = (size_t)to->k;

    memset(to->weight, 0, gsv_cpu_linear_bytes(to->n, to->k, to->dtype));
    if (source->bias)
        memcpy(to->bias, source->bias, n * sizeof(float));
    if (to->dtype == GPUSERVE_DTYPE_INT8 && source->input_scale)
        memcpy(to->input_scale, source->input_scale, k * sizeof(float));
    else
        to->input_scale = NULL;
    for (size_t j = 0; j < n; j++) {
        const float *w = source->weight + j * k;

        if (to->dtype == GPUSERVE_DTYPE_INT8)
            pack_s8(to, w, j, panel);
        else if (to->dtype == GPUSERVE_DTYPE_BFLOAT16)
            pack_bf16(to, w, j, panel);
        else
            pack_f32(to, w, j, panel);
    }
}

size_t gsv_cpu_activation_size(const struct gsv_cpu_isa *isa, uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_FLOAT32:
    case GPUSERVE_DTYPE_INT8:
        return sizeof(float);
    case GPUSERVE_DTYPE_BFLOAT16:
        return isa->gemm_bf16 ? sizeof(float) : 0;
    default:
        return 0;
    }
}

gpuserve_status gsv_cpu_linear_create(struct gpuserve_device *device,
                                      struct gpuserve_linear **linear, void *memory,
                                      const struct gpuserve_linear_source *source,
                                      gpuserve_error *error)
{
    struct gpuserve_linear *made;

    *linear = NULL;
    if (gsv_cpu_activation_size(device->isa, source->dtype) == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype is %u; this processor (%s) supports float32%s and int8",
                        (unsigned)source->dtype, device->isa->name,
                        device->isa->gemm_bf16 ? ", bfloat16" : "");
    if (source->dtype == GPUSERVE_DTYPE_INT8 && source->k > MAX_INT8_K)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "an int8 product over %d inputs is not supported, the limit is %d",
                        (int)source->k, MAX_INT8_K);
    made = gsv_alloc_array(1, sizeof(*made));
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a linear");
    made->n = source->n;
    made->k = source->k;
    made->dtype = source->dtype;
    set_addresses(made, memory);
    pack(made, source, (size_t)device->isa->panel);
    *linear = made;
    return GPUSERVE_OK;
}

void gsv_cpu_linear_move(struct gpuserve_linear *linear, const void *from, void *to)
{
    linear->weight = gsv_moved(linear->weight, from, to);
    linear->bias = gsv_moved(linear->bias, from, to);
    linear->scale = gsv_moved(linear->scale, from, to);
    linear->column_sum = gsv_moved(linear->column_sum, from, to);
    linear->input_scale = gsv_moved(linear->input_scale, from, to);
}

void gsv_cpu_linear_destroy(struct gpuserve_linear **linear)
{
    if (!linear)
        return;
    free(*linear);
    *linear = NULL;
}
