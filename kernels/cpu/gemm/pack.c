/*
 * pack.c - packs weights into panels when a model is loaded; rounds them to 16 bits or quantizes
 * them for INT8 and INT16.
 *
 * One 32-bit lane of a panel holds as many k of a column as fit: one float32, two bfloat16 or
 * int16, or four bytes; float16 is not interleaved. isa.h describes the layout; sizes are the same
 * for every instruction set.
 */
#include "kernels/cpu/runtime/cpu.h"
#include "kernels/kernels.h"
#include "kernels/s16_range.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FLOAT16 65504.0f
#define MIN_SCALE 1e-32f /* minimum scale whose inverse is used, as in kernels/ref/linear.c */

static size_t element_size(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_INT8:
        return sizeof(int8_t);
    case GPUSERVE_DTYPE_INT16:
    case GPUSERVE_DTYPE_BFLOAT16:
    case GPUSERVE_DTYPE_FLOAT16:
        return sizeof(uint16_t);
    default:
        return sizeof(float);
    }
}

/* Number of adjacent k of a column. */
static size_t lane_depth(uint32_t dtype)
{
    return dtype == GPUSERVE_DTYPE_FLOAT16 ? 1 : sizeof(float) / element_size(dtype);
}

static size_t columns_up(int32_t n)
{
    return gsv_round_up((size_t)n, GSV_COLUMN_STEP);
}

int32_t gsv_cpu_depth_up(int32_t k, uint32_t dtype)
{
    return (int32_t)gsv_round_up((size_t)k, lane_depth(dtype));
}

int32_t gsv_cpu_linear_depth(const struct gpuserve_linear *linear)
{
    return gsv_cpu_depth_up(linear->k + linear->n_copies, linear->dtype);
}

/* The packed weights as a number of 32-bit lanes, with the most copies. */
static size_t lanes_of(int32_t n, int32_t k, uint32_t dtype)
{
    if (dtype == GPUSERVE_DTYPE_INT8)
        k += gsv_cpu_max_copies(k);
    return columns_up(n) * (size_t)gsv_cpu_depth_up(k, dtype) * element_size(dtype) / sizeof(float);
}

/* Bytes for the inputs with several columns; each has a copy at least. */
static size_t shared_bytes(int32_t k)
{
    return (size_t)gsv_cpu_max_copies(k) * sizeof(struct gsv_shared_input);
}

size_t gsv_cpu_linear_bytes(int32_t n, int32_t k, uint32_t dtype)
{
    const bool int8 = dtype == GPUSERVE_DTYPE_INT8;
    const size_t per_column = int8 ? 3 : dtype == GPUSERVE_DTYPE_INT16 ? 2 : 1;
    const size_t floats = columns_up(n) * per_column + (int8 ? (size_t)k : 0);
    const size_t shared = int8 ? shared_bytes(k) : 0;

    return gsv_round_up((lanes_of(n, k, dtype) + floats) * sizeof(float) + shared, 64);
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
    linear->shared = (const void *)(linear->input_scale + linear->k);
}

static struct gsv_panel_layout layout_of(const struct gpuserve_linear *to,
                                         const struct gsv_cpu_isa *isa)
{
    return gsv_panel_layout(isa, to->dtype,
                            (size_t)gsv_cpu_linear_depth(to) / lane_depth(to->dtype));
}

/* Index of the first element of column j's panel in the packed weights. */
static size_t panel_start(const struct gpuserve_linear *to, const struct gsv_panel_layout *panel,
                          size_t j)
{
    return j / panel->columns * panel->columns * panel->lanes * lane_depth(to->dtype);
}

static void pack_f32(struct gpuserve_linear *to, const float *w, size_t j,
                     struct gsv_panel_layout panel)
{
    float *at = (float *)to->weight + panel_start(to, &panel, j) + j % panel.columns;

    for (size_t i = 0; i < (size_t)to->k; i++)
        at[i * panel.columns] = w[i];
}

static void pack_f16(struct gpuserve_linear *to, const float *w, size_t j,
                     struct gsv_panel_layout panel)
{
    uint16_t *at = (uint16_t *)to->weight + panel_start(to, &panel, j) + j % panel.columns;

    for (size_t i = 0; i < (size_t)to->k; i++)
        at[i * panel.columns] = gsv_f16_of(w[i]);
}

static void pack_bf16(struct gpuserve_linear *to, const float *w, size_t j,
                      struct gsv_panel_layout panel)
{
    uint16_t *at = (uint16_t *)to->weight + panel_start(to, &panel, j);
    const size_t column = j % panel.columns;

    for (size_t i = 0; i < (size_t)to->k; i++)
        at[2 * gsv_lane_at(&panel, i / 2, column) + i % 2] = gsv_bf16_of(w[i]);
}

/* Rounds to nearest, ties to even, for |x| < 2^22; lrintf() would be a function call. */
static int32_t nearest(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */
    const float shifted = x + magic;

    return (int32_t)(shifted - magic);
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The longest sums that n weights, up to GSV_QUAD_DEPTH, fit; `longest` at most. */
static enum gsv_s8_sum fitting_sum(enum gsv_s8_sum longest, const int8_t *w, size_t n)
{
    int32_t positive[GSV_QUAD_DEPTH / 2] = { 0 }, negative[GSV_QUAD_DEPTH / 2] = { 0 };
    int32_t largest = 0;

    if (longest == GSV_SUM_NONE)
        return longest;
    for (size_t i = 0; i < n; i++) {
        const size_t at = gsv_s8_sum_at(longest, i);

        positive[at] += w[i] > 0 ? w[i] : 0;
        negative[at] += w[i] < 0 ? -w[i] : 0;
    }
    for (size_t i = 0; i < GSV_QUAD_DEPTH / 2; i++)
        largest = larger(largest, larger(positive[i], negative[i]));
    if (largest <= GSV_SUM_WEIGHTS)
        return longest;
    return longest == GSV_SUM_QUAD ? fitting_sum(GSV_SUM_PAIR, w, n) : GSV_SUM_NONE;
}

/* Floor of a / b; b is positive. */
static int32_t floor_of(int64_t a, int32_t b)
{
    return (int32_t)(a >= 0 ? a / b : -((b - 1 - a) / b));
}

/* Stores copies 1 to columns - 1 of an integer from index `at` of k on. Its columns' larger ones
 * are evenly spread; those of activations are not (quantize.c). So the sum of the products of both
 * is within 1 of the product of the sums divided by the number of columns. */
static void pack_copies(int8_t *panel_at, const struct gsv_panel_layout *panel, size_t column,
                        size_t at, int32_t whole, int32_t columns)
{
    for (int32_t c = 1; c < columns; c++, at++)
        panel_at[4 * gsv_lane_at(panel, at / 4, column) + at % 4] =
            (int8_t)(floor_of((int64_t)whole * (c + 1), columns) -
                     floor_of((int64_t)whole * c, columns));
}

static void pack_s8(struct gpuserve_linear *to, const float *w, size_t j,
                    struct gsv_panel_layout panel)
{
    const size_t k = (size_t)to->k, column = j % panel.columns;
    int8_t *at = (int8_t *)to->weight + panel_start(to, &panel, j);
    const float inverse = to->scale[j] >= MIN_SCALE ? 1.0f / to->scale[j] : 0.0f;
    int8_t last[GSV_QUAD_DEPTH] = { 0 };
    size_t copy = k;
    int32_t sum = 0, shared = 0;

    for (size_t i = 0; i < k; i++) {
        const bool has_copies = shared < to->n_shared && (size_t)to->shared[shared].input == i;
        const int32_t columns = has_copies ? to->shared[shared++].columns : 1;
        const float limit = 127.0f * (float)columns;
        const int32_t whole = nearest(fminf(fmaxf(w[i] * inverse, -limit), limit));
        const int8_t q = (int8_t)floor_of(whole, columns);

        at[4 * gsv_lane_at(&panel, i / 4, column) + i % 4] = q;
        pack_copies(at, &panel, column, copy, whole, columns);
        copy += (size_t)columns - 1;
        sum += whole;
        last[i % GSV_QUAD_DEPTH] = q;
        if ((i + 1) % GSV_QUAD_DEPTH == 0 || i + 1 == k)
            to->sum = fitting_sum(to->sum, last, i % GSV_QUAD_DEPTH + 1);
    }
    to->column_sum[j] = (float)sum;
}

static void pack_s16(struct gpuserve_linear *to, const float *w, size_t j,
                     struct gsv_panel_layout panel)
{
    int16_t *at = (int16_t *)to->weight + panel_start(to, &panel, j);
    const size_t k = (size_t)to->k, column = j % panel.columns;
    const float levels = (float)gsv_s16_weight_levels(to->k);
    float largest = 0.0f, inverse;
    int32_t sum = 0;

    for (size_t i = 0; i < k; i++)
        largest = fmaxf(largest, fabsf(w[i]));
    to->scale[j] = largest / levels;
    inverse = to->scale[j] >= MIN_SCALE ? 1.0f / to->scale[j] : 0.0f;
    for (size_t i = 0; i < k; i++) {
        const int32_t q = nearest(fminf(fmaxf(w[i] * inverse, -levels), levels));

        at[2 * gsv_lane_at(&panel, i / 2, column) + i % 2] = (int16_t)q;
        sum += abs(q);
    }
    to->row_levels = gsv_min(to->row_levels, gsv_s16_row_levels(sum));
}

/* At most gsv_cpu_copies_limit(), which check_source() made sure of. */
static void set_copies(struct gpuserve_linear *to, const int32_t *copies)
{
    struct gsv_shared_input *shared = (struct gsv_shared_input *)(uintptr_t)to->shared;

    for (int32_t i = 0; i < to->k; i++) {
        if (copies[i] < 2)
            continue;
        shared[to->n_shared++] = (struct gsv_shared_input){ i, copies[i] };
        to->n_copies += copies[i] - 1;
    }
}

/* Scales of an INT8 product. */
static void set_scales(struct gpuserve_device *device, struct gpuserve_linear *to,
                       const struct gpuserve_linear_source *source)
{
    to->sum = GSV_SUM_QUAD; /* until a weight shows otherwise */
    if (source->scale)
        memcpy(to->scale, source->scale, (size_t)to->n * sizeof(float));
    else
        gsv_cpu_int8_scales(device, source, to->scale);
    if (source->input_scale)
        memcpy(to->input_scale, source->input_scale, (size_t)to->k * sizeof(float));
    else
        to->input_scale = NULL;
    if (source->copies)
        set_copies(to, source->copies);
}

static void pack(struct gpuserve_device *device, struct gpuserve_linear *to,
                 const struct gpuserve_linear_source *source)
{
    const size_t n = (size_t)to->n, k = (size_t)to->k;
    struct gsv_panel_layout panel;

    memset(to->weight, 0, gsv_cpu_linear_bytes(to->n, to->k, to->dtype));
    to->row_levels = GSV_S16_MAX_LEVELS; /* until a column shows otherwise */
    if (source->bias)
        memcpy(to->bias, source->bias, n * sizeof(float));
    if (to->dtype == GPUSERVE_DTYPE_INT8)
        set_scales(device, to, source);
    else
        to->input_scale = NULL;
    panel = layout_of(to, device->isa);
    for (size_t j = 0; j < n; j++) {
        const float *w = source->weight + j * k;

        if (to->dtype == GPUSERVE_DTYPE_INT8)
            pack_s8(to, w, j, panel);
        else if (to->dtype == GPUSERVE_DTYPE_INT16)
            pack_s16(to, w, j, panel);
        else if (to->dtype == GPUSERVE_DTYPE_BFLOAT16)
            pack_bf16(to, w, j, panel);
        else if (to->dtype == GPUSERVE_DTYPE_FLOAT16)
            pack_f16(to, w, j, panel);
        else
            pack_f32(to, w, j, panel);
    }
}

size_t gsv_cpu_activation_size(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_FLOAT32:
    case GPUSERVE_DTYPE_FLOAT16:
    case GPUSERVE_DTYPE_BFLOAT16:
    case GPUSERVE_DTYPE_INT8:
    case GPUSERVE_DTYPE_INT16:
        return sizeof(float);
    default:
        return 0;
    }
}

uint32_t gsv_cpu_widened(const struct gsv_cpu_isa *isa)
{
    const uint32_t f16 = 1u << GPUSERVE_DTYPE_FLOAT16, bf16 = 1u << GPUSERVE_DTYPE_BFLOAT16;

    return isa->gemm_bf16 ? f16 : f16 | bf16;
}

static gpuserve_status check_source(const struct gsv_cpu_isa *isa,
                                    const struct gpuserve_linear_source *source,
                                    gpuserve_error *error)
{
    const size_t k = (size_t)source->k, count = (size_t)source->n * k;

    if (gsv_cpu_activation_size(source->dtype) == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype is %u; the CPU backend supports float32, float16, bfloat16 and int8",
                        (unsigned)source->dtype);
    if (source->dtype == GPUSERVE_DTYPE_INT16 && !isa->gemm_s16)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s has no products in int16", isa->name);
    if (source->dtype == GPUSERVE_DTYPE_INT8 && source->k > GSV_MAX_INT8_K)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "an int8 product over %d inputs is not supported, the limit is %d",
                        (int)source->k, GSV_MAX_INT8_K);
    if (source->dtype == GPUSERVE_DTYPE_INT8 && source->copies) {
        const int32_t limit = gsv_cpu_copies_limit(isa, source->k);
        int64_t columns = 0;

        for (size_t i = 0; i < k; i++)
            columns += source->copies[i] > 1 ? source->copies[i] - 1 : 0;
        if (columns > limit)
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "the inputs take %lld columns more than %d, the limit is %d more",
                            (long long)columns, (int)source->k, (int)limit);
    }
    for (size_t i = 0; source->dtype == GPUSERVE_DTYPE_FLOAT16 && i < count; i++)
        if (!(fabsf(source->weight[i]) <= MAX_FLOAT16))
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "the weight of output %zu and input %zu is %g; the largest float16 "
                            "is %.0f: load the model in bfloat16 or float32",
                            i / k, i % k, (double)source->weight[i], (double)MAX_FLOAT16);
    return GPUSERVE_OK;
}

gpuserve_status gsv_cpu_linear_create(struct gpuserve_device *device,
                                      struct gpuserve_linear **linear, void *memory,
                                      const struct gpuserve_linear_source *source,
                                      gpuserve_error *error)
{
    const gpuserve_status st = check_source(device->isa, source, error);
    struct gpuserve_linear *made;

    *linear = NULL;
    if (st != GPUSERVE_OK)
        return st;
    made = gsv_alloc_array(1, sizeof(*made));
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a linear");
    made->n = source->n;
    made->k = source->k;
    made->dtype = source->dtype;
    set_addresses(made, memory);
    pack(device, made, source);
    *linear = made;
    return GPUSERVE_OK;
}

/* --------------------------------------------------------------------------- packed elsewhere */

#define HAS_INPUT_SCALE 1u
#define SUM_SHIFT 1
#define SUM_MASK 7u
#define LEVELS_SHIFT 4 /* row_levels of INT16, n_shared of INT8 */

static void describe(const struct gpuserve_linear *linear, struct gsv_packed_linear *packed)
{
    const uint32_t flags =
        (linear->input_scale ? HAS_INPUT_SCALE : 0) | (uint32_t)linear->sum << SUM_SHIFT |
        (uint32_t)(linear->dtype == GPUSERVE_DTYPE_INT8 ? linear->n_shared : linear->row_levels)
            << LEVELS_SHIFT;

    *packed =
        (struct gsv_packed_linear){ linear->n, linear->k, linear->dtype, flags, linear->weight };
}

/* Counts the copies, if there are `n_shared` valid inputs with several columns. */
static bool restore_copies(const struct gsv_cpu_isa *isa, struct gpuserve_linear *linear,
                           int32_t n_shared)
{
    const int32_t max_copies = gsv_cpu_copies_limit(isa, linear->k);

    if (n_shared > max_copies)
        return false;
    for (int32_t i = 0; i < n_shared; i++) {
        const struct gsv_shared_input shared = linear->shared[i];

        if (shared.input < 0 || shared.input >= linear->k || shared.columns < 2 ||
            shared.columns - 1 > max_copies - linear->n_copies)
            return false;
        linear->n_copies += shared.columns - 1;
    }
    linear->n_shared = n_shared;
    return true;
}

static gpuserve_status restore(struct gpuserve_device *device, struct gpuserve_linear **linear,
                               const struct gsv_packed_linear *packed, gpuserve_error *error)
{
    struct gpuserve_linear *made = gsv_alloc_array(1, sizeof(*made));

    *linear = made;
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a linear");
    made->n = packed->n;
    made->k = packed->k;
    made->dtype = packed->dtype;
    set_addresses(made, (void *)(uintptr_t)packed->memory);
    if ((packed->flags & HAS_INPUT_SCALE) == 0)
        made->input_scale = NULL;
    made->sum = (enum gsv_s8_sum)(packed->flags >> SUM_SHIFT & SUM_MASK);
    if (made->dtype != GPUSERVE_DTYPE_INT8) {
        made->row_levels = (int32_t)(packed->flags >> LEVELS_SHIFT);
    } else if (!restore_copies(device->isa, made, (int32_t)(packed->flags >> LEVELS_SHIFT))) {
        gsv_cpu_linear_destroy(linear);
        return gsv_fail(error, GPUSERVE_E_INVALID, "the columns of a packed product are damaged");
    }
    return GPUSERVE_OK;
}

const struct gsv_packing *gsv_cpu_packing(void)
{
    static const struct gsv_packing packing = { describe, restore };

    return &packing;
}

void gsv_cpu_linear_move(struct gpuserve_linear *linear, const void *from, void *to)
{
    linear->weight = gsv_moved(linear->weight, from, to);
    linear->bias = gsv_moved(linear->bias, from, to);
    linear->scale = gsv_moved(linear->scale, from, to);
    linear->column_sum = gsv_moved(linear->column_sum, from, to);
    linear->input_scale = gsv_moved(linear->input_scale, from, to);
    linear->shared = gsv_moved(linear->shared, from, to);
}

void gsv_cpu_linear_destroy(struct gpuserve_linear **linear)
{
    if (!linear)
        return;
    free(*linear);
    *linear = NULL;
}
