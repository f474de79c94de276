/*
 * add_norm: residual add, the sum if it is wanted, and the norm in one pass over the row.
 *
 *   rownorm.cuh has the body. Bound by memory: 3 rows of `cols` elements per row, 4 with the sum.
 *
 *   Needs:  any cols; whole chunks of up to GSV_NORM_WIDE columns in registers. `out` and the sum
 * may be inputs, or the same; rows are `ld` elements apart. Oracle: kernels/ref/norm.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/rownorm.cuh"

namespace
{

template <typename T> struct sum_source {
    const T *in;
    const T *residual; /* or NULL */
    T *sum;            /* or NULL */
    int32_t ld;

    __device__ __forceinline__ void bind(int row)
    {
        in += static_cast<size_t>(row) * ld;
        if (residual)
            residual += static_cast<size_t>(row) * ld;
        if (sum)
            sum += static_cast<size_t>(row) * ld;
    }

    __device__ __forceinline__ void add_chunk(int i, float *x) const
    {
        gsv_add_chunk(in, i, x);
        if (residual)
            gsv_add_chunk(residual, i, x);
    }

    __device__ __forceinline__ void keep_chunk(int i, const float *x) const
    {
        if (sum)
            gsv_store_chunk(sum, i, x);
    }

    __device__ __forceinline__ float at(int column) const
    {
        const float x = gsv_to_float(in[column]);

        return residual ? x + gsv_to_float(residual[column]) : x;
    }

    __device__ __forceinline__ void keep(int column, float x) const
    {
        if (sum)
            sum[column] = gsv_from_float<T>(x);
    }
};

template <typename T, typename After>
cudaError_t launch(const struct gpuserve_op_add_norm *op, const After &after, cudaStream_t stream)
{
    const int32_t ld = op->ld > 0 ? op->ld : op->cols;
    const gsv_norm norm = { op->gamma, op->beta, op->eps, op->rows, op->cols, op->norm, ld };
    const sum_source<T> source = { static_cast<const T *>(op->in),
                                   static_cast<const T *>(op->residual), static_cast<T *>(op->sum),
                                   ld };
    const bool aligned = gsv_aligned_16(op->in) && gsv_aligned_16(op->residual) &&
                         gsv_aligned_16(op->out) && gsv_aligned_16(op->sum) &&
                         gsv_aligned_16(op->gamma) && gsv_aligned_16(op->beta) &&
                         ld * sizeof(T) % 16 == 0;

    return gsv_norm_launch(source, static_cast<T *>(op->out), norm, aligned, after, stream);
}

} /* namespace */

cudaError_t gsv_cuda_add_norm(const struct gpuserve_op_add_norm *op, enum gsv_element element,
                              const struct gsv_int8_target *next, cudaStream_t stream)
{
    switch (element) {
    case GSV_ELEMENT_F16:
        return next->rows.values ? launch<half>(op, gsv_norm_quantized{ *next }, stream)
                                 : launch<half>(op, gsv_norm_only(), stream);
    case GSV_ELEMENT_BF16:
        return launch<__nv_bfloat16>(op, gsv_norm_only(), stream);
    default:
        return launch<float>(op, gsv_norm_only(), stream);
    }
}
