/*
 * chain: applies a list of operations to one block, which stays in the L1 cache.
 *
 * Each step runs over the whole block, so the step is decoded once per block. chain_math.h has the
 * transcendental functions. A step whose input is known to lie in [-1, 1] from the steps before it,
 * as after a sine, skips the range reduction of sine and cosine; this depends on the list alone,
 * never on the values.
 */
#include "kernels/cpu/compute/chain_math.h"
#include "kernels/cpu/runtime/isa_symbols.h"

#include <math.h>
#include <stdbool.h>

#define EACH(expression)             \
    for (size_t i = 0; i < n; i++) { \
        const float v = x[i];        \
                                     \
        x[i] = (expression);         \
    }                                \
    return

/* Apply a vector function of `v`; the last lanes of the vector past the end are zeros. */
#define EACH_VECTOR(expression)                               \
    do {                                                      \
        size_t i = 0;                                         \
                                                              \
        for (; i + GSV_VL <= n; i += GSV_VL) {                \
            const vf v = vf_load(x + i);                      \
                                                              \
            vf_store(x + i, (expression));                    \
        }                                                     \
        if (i < n) {                                          \
            const vf v = vf_load_part(x + i, (int)(n - i));   \
                                                              \
            vf_store_part(x + i, (expression), (int)(n - i)); \
        }                                                     \
        return;                                               \
    } while (0)

/* As EACH_VECTOR, in float64. */
#define EACH_DOUBLE(function)                          \
    do {                                               \
        float lanes[GSV_DL] = { 0 };                   \
        size_t i = 0;                                  \
                                                       \
        for (; i + GSV_DL <= n; i += GSV_DL)           \
            vd_store(x + i, function(vd_load(x + i))); \
        memcpy(lanes, x + i, (n - i) * sizeof(float)); \
        vd_store(lanes, function(vd_load(lanes)));     \
        memcpy(x + i, lanes, (n - i) * sizeof(float)); \
        return;                                        \
    } while (0)

static void sine(float *restrict x, size_t n, bool is_unit)
{
    if (is_unit)
        EACH_VECTOR(vf_sin_near(v));
    EACH_VECTOR(vf_sin(v));
}

static void cosine(float *restrict x, size_t n, bool is_unit)
{
    if (is_unit)
        EACH_VECTOR(vf_cos_near(v));
    EACH_VECTOR(vf_cos(v));
}

static void transcendental(float *restrict x, size_t n, uint32_t kind)
{
    switch (kind) {
    case GPUSERVE_CHAIN_EXP:
        EACH_DOUBLE(vd_exp);
    case GPUSERVE_CHAIN_LOG:
        EACH_DOUBLE(vd_log);
    case GPUSERVE_CHAIN_TANH:
        EACH_DOUBLE(vd_tanh);
    case GPUSERVE_CHAIN_ERF:
        EACH_DOUBLE(vd_erf);
    case GPUSERVE_CHAIN_SIGMOID:
        EACH_DOUBLE(vd_sigmoid);
    default:
        EACH_DOUBLE(vd_gelu);
    }
}

/* `is_unit`: all values are in [-1, 1] or NaN. */
static void apply(float *restrict x, size_t n, const gpuserve_chain_step *step, bool is_unit)
{
    const float a = step->a;

    switch (step->kind) {
    case GPUSERVE_CHAIN_ADD:
        EACH(v + a);
    case GPUSERVE_CHAIN_MULTIPLY:
        EACH(v * a);
    case GPUSERVE_CHAIN_FMA:
#if GSV_HAS_FMA
        EACH_VECTOR(vf_fma(v, vf_set(a), vf_set(step->b)));
#else
        EACH(fmaf(v, a, step->b));
#endif
    case GPUSERVE_CHAIN_MINIMUM:
        EACH(v != v || v < a ? v : a);
    case GPUSERVE_CHAIN_MAXIMUM:
        EACH(v != v || v > a ? v : a);
    case GPUSERVE_CHAIN_ABSOLUTE:
        EACH(fabsf(v));
    case GPUSERVE_CHAIN_RECIPROCAL:
        EACH(1.0f / v);
    case GPUSERVE_CHAIN_SQRT:
        EACH(sqrtf(v));
    case GPUSERVE_CHAIN_SIN:
        sine(x, n, is_unit);
        return;
    case GPUSERVE_CHAIN_COS:
        cosine(x, n, is_unit);
        return;
    case GPUSERVE_CHAIN_RELU:
        EACH(v != v || v > 0.0f ? v : 0.0f);
    default:
        transcendental(x, n, step->kind);
    }
}

/* True if the output of a step is in [-1, 1]. */
static bool stays_unit(uint32_t kind, bool is_unit)
{
    switch (kind) {
    case GPUSERVE_CHAIN_SIN:
    case GPUSERVE_CHAIN_COS:
    case GPUSERVE_CHAIN_TANH:
    case GPUSERVE_CHAIN_ERF:
    case GPUSERVE_CHAIN_SIGMOID:
        return true;
    case GPUSERVE_CHAIN_ABSOLUTE:
    case GPUSERVE_CHAIN_RELU:
        return is_unit;
    default:
        return false;
    }
}

void GSV_VARIANT(gsv_chain)(float *x, size_t n, const gpuserve_chain_step *steps, size_t n_steps)
{
    bool is_unit = false;

    for (size_t s = 0; s < n_steps; s++) {
        apply(x, n, &steps[s], is_unit);
        is_unit = stays_unit(steps[s].kind, is_unit);
    }
}
