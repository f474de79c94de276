/*
 * attention_mma: softmax(scale * Q K^T + bias) V of packed sequences on tensor cores.
 *
 *   attention_mma.cuh has the body. attention_mma_options.cu is the same with the options.
 *
 *   Needs:  16-bit elements; head size 32, 64 or 128; rows 16-byte aligned; no options.
 *   Oracle: kernels/ref/attention.c.
 */
#include "kernels/cuda/attention/attention_mma.cuh"

namespace
{

template <typename T, int head_size, int warps>
__global__ void __launch_bounds__(warps *GSV_WARP, MIN_BLOCKS(head_size, warps))
    attention_mma(const struct attention::attention_args args)
{
    GSV_SHARED(T, shared);

    attention::run_block<T, head_size, warps>(
        args, shared, [&](const struct gsv_attention_tile &tile, T *out, size_t out_stride) {
            attention::attend<false, T, head_size, warps>(args, tile, shared, out, out_stride);
        });
}

template <typename T, int head_size>
cudaError_t launch_size(const struct attention::attention_args &args, const struct gsv_tiles *tiles,
                        cudaStream_t stream)
{
    const dim3 grid(tiles->n_tiles, args.n_heads);

    return attention::launch_height(tiles, [&](auto warps) {
        return GSV_LAUNCH_OVERLAP((attention_mma<T, head_size, decltype(warps)::value>), grid,
                                  warps * GSV_WARP, attention::layout<head_size>::bytes(tiles),
                                  stream, args);
    });
}

template <typename T>
cudaError_t launch(const struct gpuserve_op_attention *op, const struct gsv_tiles *tiles,
                   const struct gsv_int8_target *next, cudaStream_t stream)
{
    const struct attention::attention_args args = attention::args_of(op, tiles, next);

    switch (op->head_size) {
    case 32:
        return launch_size<T, 32>(args, tiles, stream);
    case 64:
        return launch_size<T, 64>(args, tiles, stream);
    default:
        return launch_size<T, 128>(args, tiles, stream);
    }
}

template <typename T> cudaError_t allow_shared(void)
{
    const size_t bytes = attention::layout<128>::max_bytes;
    cudaError_t error = GSV_ALLOW_SHARED((attention_mma<T, 128, 1>), bytes);

    if (error == cudaSuccess)
        error = GSV_ALLOW_SHARED((attention_mma<T, 128, 2>), bytes);
    if (error == cudaSuccess)
        error = GSV_ALLOW_SHARED((attention_mma<T, 128, 4>), bytes);
    return error;
}

} /* namespace */

bool gsv_cuda_attention_has_mma(const struct gpuserve_op_attention *op, enum gsv_element element)
{
    const bool size = op->head_size == 32 || op->head_size == 64 || op->head_size == 128;

    return size && !gsv_cuda_attention_has_options(op) && element != GSV_ELEMENT_F32 &&
           reinterpret_cast<uintptr_t>(op->qkv) % 16 == 0 &&
           reinterpret_cast<uintptr_t>(op->out) % 16 == 0;
}

cudaError_t gsv_cuda_attention_mma(const struct gpuserve_op_attention *op,
                                   const struct gsv_tiles *tiles, enum gsv_element element,
                                   const struct gsv_int8_target *next, cudaStream_t stream)
{
    return element == GSV_ELEMENT_F16 ? launch<half>(op, tiles, next, stream)
                                      : launch<__nv_bfloat16>(op, tiles, next, stream);
}

cudaError_t gsv_cuda_attention_mma_prepare(void)
{
    const cudaError_t error = allow_shared<half>();

    return error == cudaSuccess ? allow_shared<__nv_bfloat16>() : error;
}
