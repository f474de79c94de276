/*
 * chain: a list of operations on each element, interpreted while the elements stay in registers.
 *
 *   A thread takes four neighbours, reads them once and writes them once. Steps are the same for
 *   all threads, so a warp never parts ways, and come from the cache. One kernel serves every
 *   list: nothing is compiled when a new one comes.
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref/chain.c.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/stream.cuh"

namespace
{

const int THREADS = 256;
const int WIDTH = 4;

struct chain {
    const float *in;
    float *out;
    size_t n;
    const gpuserve_chain_step *steps;
    int n_steps;
};

__device__ __forceinline__ float apply(float x, uint32_t kind, float a, float b)
{
    switch (kind) {
    case GPUSERVE_CHAIN_ADD:
        return __fadd_rn(x, a);
    case GPUSERVE_CHAIN_MULTIPLY:
        return __fmul_rn(x, a);
    case GPUSERVE_CHAIN_FMA:
        return fmaf(x, a, b);
    case GPUSERVE_CHAIN_MINIMUM:
        return x != x || x < a ? x : a;
    case GPUSERVE_CHAIN_MAXIMUM:
        return x != x || x > a ? x : a;
    case GPUSERVE_CHAIN_ABSOLUTE:
        return fabsf(x);
    case GPUSERVE_CHAIN_RECIPROCAL:
        return 1.f / x;
    case GPUSERVE_CHAIN_SQRT:
        return sqrtf(x);
    case GPUSERVE_CHAIN_EXP:
        return expf(x);
    case GPUSERVE_CHAIN_LOG:
        return logf(x);
    case GPUSERVE_CHAIN_SIN:
        return sinf(x);
    case GPUSERVE_CHAIN_COS:
        return cosf(x);
    case GPUSERVE_CHAIN_TANH:
        return tanhf(x);
    case GPUSERVE_CHAIN_ERF:
        return erff(x);
    case GPUSERVE_CHAIN_SIGMOID:
        return 1.f / (1.f + expf(-x));
    case GPUSERVE_CHAIN_RELU:
        return x != x || x > 0.f ? x : 0.f;
    default:
        return 0.5f * x * erfcf(x * -0.70710678f);
    }
}

__global__ void __launch_bounds__(THREADS) run_chain(const struct chain of, const bool aligned)
{
    const size_t at = (static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x) * WIDTH;
    const int there = at >= of.n ? 0 : of.n - at < WIDTH ? static_cast<int>(of.n - at) : WIDTH;
    float x[WIDTH] = {};

    if (there == 0)
        return;
    if (aligned && there == WIDTH) {
        const float4 four = *reinterpret_cast<const float4 *>(of.in + at);

        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            x[i] = i < there ? of.in[at + i] : 0.f;
    }
    for (int s = 0; s < of.n_steps; s++) {
        const gpuserve_chain_step step = of.steps[s];

#pragma unroll 1
        for (int i = 0; i < WIDTH; i++)
            x[i] = apply(x[i], step.kind, step.a, step.b);
    }
    if (aligned && there == WIDTH) {
        *reinterpret_cast<float4 *>(of.out + at) = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
        if (i < there)
            of.out[at + i] = x[i];
    }
}

} /* namespace */

static cudaError_t launch(const struct gpuserve_op_chain *op, cudaStream_t stream)
{
    const struct chain of = { op->in, op->out, op->n, op->steps, static_cast<int>(op->n_steps) };
    const bool aligned = reinterpret_cast<uintptr_t>(op->in) % sizeof(float4) == 0 &&
                         reinterpret_cast<uintptr_t>(op->out) % sizeof(float4) == 0;
    const size_t a_block = static_cast<size_t>(THREADS) * WIDTH;

    return GSV_LAUNCH(run_chain, static_cast<unsigned>((op->n - 1) / a_block + 1), THREADS, 0,
                      stream, of, aligned);
}

gpuserve_status gsv_cuda_op_chain(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                                  gpuserve_error *error)
{
    struct gsv_timer timer = {};
    gpuserve_status status = gsv_cuda_stream_begin(stream, error);

    if (status != GPUSERVE_OK)
        return status;
    if (gsv_cuda_timer_start(&timer, stream) == GPUSERVE_OK &&
        gsv_cuda_note(stream, launch(op, stream->queue), "the launch of chain") == GPUSERVE_OK)
        gsv_cuda_timer_stop(&timer, stream);
    status = gsv_cuda_stream_finish(stream, error);
    op->seconds = gsv_cuda_timer_end(&timer, stream);
    return status;
}
