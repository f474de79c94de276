/*
 * chain: a list of elementwise operations. Each step is computed in float64 and rounded to float32,
 * because the other backends keep float32 between two steps.
 */
#include "kernels/ref/ref.h"

#include <math.h>

static double larger(double x, double y)
{
    return isnan(x) || x > y ? x : y;
}

static double apply(double x, const gpuserve_chain_step *step)
{
    const double a = (double)step->a;

    switch (step->kind) {
    case GPUSERVE_CHAIN_ADD:
        return x + a;
    case GPUSERVE_CHAIN_MULTIPLY:
        return x * a;
    case GPUSERVE_CHAIN_FMA:
        return fma(x, a, (double)step->b);
    case GPUSERVE_CHAIN_MINIMUM:
        return isnan(x) || x < a ? x : a;
    case GPUSERVE_CHAIN_MAXIMUM:
        return larger(x, a);
    case GPUSERVE_CHAIN_ABSOLUTE:
        return fabs(x);
    case GPUSERVE_CHAIN_RECIPROCAL:
        return 1.0 / x;
    case GPUSERVE_CHAIN_SQRT:
        return sqrt(x);
    case GPUSERVE_CHAIN_EXP:
        return exp(x);
    case GPUSERVE_CHAIN_LOG:
        return log(x);
    case GPUSERVE_CHAIN_SIN:
        return sin(x);
    case GPUSERVE_CHAIN_COS:
        return cos(x);
    case GPUSERVE_CHAIN_TANH:
        return tanh(x);
    case GPUSERVE_CHAIN_ERF:
        return erf(x);
    case GPUSERVE_CHAIN_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case GPUSERVE_CHAIN_RELU:
        return larger(x, 0.0);
    default:
        return 0.5 * x * erfc(-x * 0.70710678118654752440);
    }
}

gpuserve_status gsv_ref_chain(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                              gpuserve_error *error)
{
    (void)stream;
    (void)error;
    for (size_t i = 0; i < op->n; i++) {
        float x = op->in[i];

        for (size_t s = 0; s < op->n_steps; s++)
            x = (float)apply((double)x, &op->steps[s]);
        op->out[i] = x;
    }
    op->seconds = 0.0;
    return GPUSERVE_OK;
}
