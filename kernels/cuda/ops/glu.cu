/*
 * glu: activation(gate) * value, the gated linear unit after a product that computes both.
 *
 *   16 bytes per thread if alignment permits. If an int8 product reads the rows next, one block per
 *   row also quantizes them: a row's range needs all of its columns.
 *
 *   Needs:  any size. `out` may be the gates: each thread reads only what it overwrites itself.
 *   Oracle: kernels/ref/gates.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/math.cuh"
#include "kernels/cuda/ops/quantize.cuh"
#include "kernels/cuda/ops/rownorm.cuh"

namespace
{

const int THREADS = 256;
const int ROW_THREADS = 128;

/* The `width` elements at `column` of one row, rounded as stored. */
template <typename T, int width>
__device__ __forceinline__ void gate(float (&y)[width], const struct gpuserve_op_glu &op,
                                     size_t row, int column)
{
    const T *const in = static_cast<const T *>(op.in) + row * op.in_ld + column;
    T *const out = static_cast<T *>(op.out) + row * op.out_ld + column;

    if constexpr (width > 1) {
        float value[width] = {};

#pragma unroll
        for (int j = 0; j < width; j++)
            y[j] = 0.f;
        gsv_add_chunk(in, 0, y);
        gsv_add_chunk(in + op.cols, 0, value);
        gsv_activate_all<T>(y, op.activation);
#pragma unroll
        for (int j = 0; j < width; j++)
            y[j] = gsv_to_float(gsv_from_float<T>(y[j] * value[j]));
        gsv_store_chunk(out, 0, y);
    } else {
        out[0] = gsv_from_float<T>(gsv_activate(gsv_to_float(in[0]), op.activation) *
                                   gsv_to_float(in[op.cols]));
        y[0] = gsv_to_float(out[0]);
    }
}

template <typename T, int width>
__global__ void __launch_bounds__(THREADS) glu(const struct gpuserve_op_glu op)
{
    /* 32 bits: a division of 64 takes longer than the rest. */
    const uint32_t a_row = static_cast<uint32_t>(op.cols / width);
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    float y[width];

    gsv_grid_wait();
    gsv_grid_launch_next();
    if (i < static_cast<uint32_t>(op.rows) * a_row)
        gate<T, width>(y, op, i / a_row, static_cast<int>(i % a_row) * width);
}

template <int width>
__global__ void __launch_bounds__(ROW_THREADS)
    glu_quantized(const struct gpuserve_op_glu op, const gsv_int8_target to)
{
    GSV_SHARED(float, scratch); /* two floats for each warp */
    const size_t row = blockIdx.x;
    const int first = static_cast<int>(threadIdx.x) * width;
    gsv_row_range range;

    gsv_grid_wait();
    gsv_grid_launch_next();
    for (int c = first; c < op.cols; c += ROW_THREADS * width) {
        float y[width];

        gate<half, width>(y, op, row, c);
#pragma unroll
        for (int j = 0; j < width; j++)
            range.add(gsv_scaled_input(y[j], to.input_scale, c + j));
    }
    range.settle();
    range.settle_block(scratch);
    gsv_quantize_bytes<width>(to, static_cast<const half *>(op.out) + row * op.out_ld, row, range,
                              first, ROW_THREADS * width);
    if (threadIdx.x == 0)
        range.store(to.rows, row);
}

template <typename T, int width>
cudaError_t launch_width(const struct gpuserve_op_glu *op, cudaStream_t stream)
{
    const size_t chunks = static_cast<size_t>(op->rows) * (op->cols / width);
    const unsigned blocks = static_cast<unsigned>((chunks + THREADS - 1) / THREADS);

    if (chunks > UINT32_MAX - THREADS)
        return cudaErrorInvalidValue;
    return GSV_LAUNCH_OVERLAP((glu<T, width>), blocks, THREADS, 0, stream, *op);
}

template <typename T> bool has_chunks(const struct gpuserve_op_glu *op)
{
    constexpr int width = gsv_vector_chunk<T>::size;

    return op->cols % width == 0 && op->in_ld % width == 0 && op->out_ld % width == 0 &&
           gsv_aligned_16(op->in) && gsv_aligned_16(op->out);
}

template <typename T> cudaError_t launch(const struct gpuserve_op_glu *op, cudaStream_t stream)
{
    return has_chunks<T>(op) ? launch_width<T, gsv_vector_chunk<T>::size>(op, stream)
                             : launch_width<T, 1>(op, stream);
}

cudaError_t launch_quantized(const struct gpuserve_op_glu *op, const struct gsv_int8_target &next,
                             cudaStream_t stream)
{
    const size_t bytes = 2 * sizeof(float) * ROW_THREADS / GSV_WARP;

    if (has_chunks<half>(op))
        return GSV_LAUNCH_OVERLAP(glu_quantized<8>, op->rows, ROW_THREADS, bytes, stream, *op,
                                  next);
    return GSV_LAUNCH_OVERLAP(glu_quantized<1>, op->rows, ROW_THREADS, bytes, stream, *op, next);
}

} /* namespace */

cudaError_t gsv_cuda_glu(const struct gpuserve_op_glu *op, enum gsv_element element,
                         const struct gsv_int8_target *next, cudaStream_t stream)
{
    switch (element) {
    case GSV_ELEMENT_F16:
        return next->rows.values ? launch_quantized(op, *next, stream) : launch<half>(op, stream);
    case GSV_ELEMENT_BF16:
        return launch<__nv_bfloat16>(op, stream);
    default:
        return launch<float>(op, stream);
    }
}
