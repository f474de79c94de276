/*
 * chain: applies a list of operations to one block, which stays in the L1 cache.
 *
 * Each step runs over the whole block, so the step is decoded once per block. Arithmetic uses
 * vector registers; the transcendental functions are the C library's, which are accurate to the
 * last bits.
 */
#include "kernels/cpu/runtime/isa_symbols.h"
#include "kernels/cpu/runtime/vec.h"

#include <math.h>

#define EACH(expression)             \
    for (size_t i = 0; i < n; i++) { \
        const float v = x[i];        \
                                     \
        x[i] = (expression);         \
    }                                \
    return

/* x[i] = x[i] * a + b with one rounding. */
static void multiply_add(float *x, size_t n, float a, float b)
{
    size_t i = 0;

    for (; i + GSV_VL <= n; i += GSV_VL)
        vf_store(x + i, vf_fma(vf_load(x + i), vf_set(a), vf_set(b)));
    for (; i < n; i++)
        x[i] = fmaf(x[i], a, b);
}

static void transcendental(float *x, size_t n, uint32_t kind)
{
    switch (kind) {
    case GPUSERVE_CHAIN_EXP:
        EACH(expf(v));
    case GPUSERVE_CHAIN_LOG:
        EACH(logf(v));
    case GPUSERVE_CHAIN_SIN:
        EACH(sinf(v));
    case GPUSERVE_CHAIN_COS:
        EACH(cosf(v));
    case GPUSERVE_CHAIN_TANH:
        EACH(tanhf(v));
    case GPUSERVE_CHAIN_ERF:
        EACH(erff(v));
    case GPUSERVE_CHAIN_SIGMOID:
        EACH(1.0f / (1.0f + expf(-v)));
    default:
        EACH(0.5f * v * erfcf(v * -0.70710678f));
    }
}

static void apply(float *restrict x, size_t n, const gpuserve_chain_step *step)
{
    const float a = step->a;

    switch (step->kind) {
    case GPUSERVE_CHAIN_ADD:
        EACH(v + a);
    case GPUSERVE_CHAIN_MULTIPLY:
        EACH(v * a);
    case GPUSERVE_CHAIN_FMA:
        multiply_add(x, n, a, step->b);
        return;
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
    case GPUSERVE_CHAIN_RELU:
        EACH(v != v || v > 0.0f ? v : 0.0f);
    default:
        transcendental(x, n, step->kind);
    }
}

void GSV_VARIANT(gsv_chain)(float *x, size_t n, const gpuserve_chain_step *steps, size_t n_steps)
{
    for (size_t s = 0; s < n_steps; s++)
        apply(x, n, &steps[s]);
}
