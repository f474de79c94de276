/*
 * chain: a list of elementwise operations, interpreted while the elements stay in registers.
 *
 *   Each thread reads four adjacent elements once and writes them once. The steps are the same for
 *   all threads, so a warp does not diverge, and come from the cache. One kernel serves every list;
 *   lists with enough work get a kernel of their own from chain_generated.cu.
 *
 *   Needs:  nothing.
 *   Oracle: kernels/ref/chain.c.
 */
#include "kernels/cuda/compute/chain_source.cuh"
#include "kernels/cuda/compute/chain_ops.cuh"
#include "kernels/cuda/runtime/launch.cuh"
#include "kernels/cuda/runtime/stream.cuh"

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

#define CODE(...) __VA_ARGS__
GSV_CHAIN_FUNCTIONS(CODE)

__device__ __forceinline__ float apply(const float x, uint32_t kind, const float a, const float b)
{
#define OPERATION(number, name, is_long, ...) \
    case number:                              \
        return __VA_ARGS__;
    switch (kind) {
        GSV_CHAIN_OPERATIONS(OPERATION)
    default:
        return x;
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

static cudaError_t interpret(const struct gpuserve_op_chain *op, bool aligned, cudaStream_t stream)
{
    const struct chain of = { op->in, op->out, op->n, op->steps, static_cast<int>(op->n_steps) };
    const size_t a_block = static_cast<size_t>(THREADS) * WIDTH;

    return GSV_LAUNCH(run_chain, static_cast<unsigned>((op->n - 1) / a_block + 1), THREADS, 0,
                      stream, of, aligned);
}

static cudaError_t launch(struct gpuserve_op_chain *op, gsv_chain_kernel_fn generated,
                          cudaStream_t stream)
{
    const bool aligned = reinterpret_cast<uintptr_t>(op->in) % sizeof(float4) == 0 &&
                         reinterpret_cast<uintptr_t>(op->out) % sizeof(float4) == 0;

    op->variant = generated ? GPUSERVE_CHAIN_GENERATED : GPUSERVE_CHAIN_PRECOMPILED;
    return generated ? gsv_chain_launch(generated, op, aligned, stream)
                     : interpret(op, aligned, stream);
}

gpuserve_status gsv_cuda_op_chain(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                                  gpuserve_error *error)
{
    const gsv_chain_kernel_fn generated = gsv_chain_acquire(stream->device, op);
    struct gsv_timer timer = {};
    gpuserve_status status = gsv_cuda_stream_begin(stream, error);

    if (status == GPUSERVE_OK) {
        if (gsv_cuda_timer_start(&timer, stream) == GPUSERVE_OK &&
            gsv_cuda_note(stream, launch(op, generated, stream->queue), "the launch of chain") ==
                GPUSERVE_OK)
            gsv_cuda_timer_stop(&timer, stream);
        status = gsv_cuda_stream_finish(stream, error);
        op->seconds = gsv_cuda_timer_end(&timer, stream);
    }
    gsv_chain_release(stream->device);
    return status;
}
