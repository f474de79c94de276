/*
 * embed: gathers and adds the word, position and type rows of each token, then the norm.
 *
 *   rownorm.cuh has the body; this file defines the source of a row. Bound by memory: 4 rows of
 *   `hidden` elements per token.
 *
 *   Needs:  any hidden; whole chunks of up to GSV_NORM_WIDE columns in registers. Rows past the
 * batch's tokens have id 0 and are computed like others. Oracle: kernels/ref/norm.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/rownorm.cuh"

namespace
{

template <typename T> struct embed_source {
    const int32_t *ids;
    const int32_t *positions;
    const int32_t *type_ids;
    const T *word;
    const T *position; /* or NULL */
    const T *type;     /* or NULL */
    int32_t hidden;
    float word_scale;

    __device__ __forceinline__ void bind(int row)
    {
        word += static_cast<size_t>(ids[row]) * hidden;
        if (position)
            position += static_cast<size_t>(positions[row]) * hidden;
        if (type)
            type += static_cast<size_t>(type_ids[row]) * hidden;
    }

    __device__ __forceinline__ void add_chunk(int i, float *x) const
    {
        gsv_add_chunk(word, i, x);
#pragma unroll
        for (int j = 0; j < gsv_vector_chunk<T>::size; j++)
            x[j] *= word_scale;
        if (type)
            gsv_add_chunk(type, i, x);
        if (position)
            gsv_add_chunk(position, i, x);
    }

    __device__ __forceinline__ void keep_chunk(int, const float *) const
    {
    }

    __device__ __forceinline__ float at(int column) const
    {
        float x = gsv_to_float(word[column]) * word_scale;

        if (type)
            x += gsv_to_float(type[column]);
        if (position)
            x += gsv_to_float(position[column]);
        return x;
    }

    __device__ __forceinline__ void keep(int, float) const
    {
    }
};

template <typename T, typename After>
cudaError_t launch(const struct gpuserve_op_embed *op, const After &after, cudaStream_t stream)
{
    const struct gpuserve_batch *batch = op->batch;
    const gsv_norm norm = { op->gamma,  op->beta, op->eps,   batch->n_rows,
                            op->hidden, op->norm, op->hidden };
    const embed_source<T> source = { batch->ids,
                                     batch->positions,
                                     batch->type_ids,
                                     static_cast<const T *>(op->word),
                                     static_cast<const T *>(op->position),
                                     static_cast<const T *>(op->type),
                                     op->hidden,
                                     op->word_scale != 0.f ? op->word_scale : 1.f };
    const bool aligned = gsv_aligned_16(op->word) && gsv_aligned_16(op->position) &&
                         gsv_aligned_16(op->type) && gsv_aligned_16(op->out) &&
                         gsv_aligned_16(op->gamma) && gsv_aligned_16(op->beta);

    return gsv_norm_launch(source, static_cast<T *>(op->out), norm, aligned, after, stream);
}

} /* namespace */

cudaError_t gsv_cuda_embed(const struct gpuserve_op_embed *op, enum gsv_element element,
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
