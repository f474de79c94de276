/*
 * ops.cu - operation entries of the backend table: each selects a kernel and enqueues it on the
 * stream.
 *
 * Nothing waits here. A launch error is returned as a status at once and recorded in the stream;
 * batch_end or stream_wait return its message.
 */
#include "kernels/cuda/runtime/cublaslt.cuh"
#include "kernels/cuda/runtime/stream.cuh"

gpuserve_status gsv_cuda_note(struct gpuserve_stream *stream, cudaError_t code, const char *call)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (code == cudaSuccess)
        return GPUSERVE_OK;
    gsv_cuda_fail(stream->device->index, code, call, &error);
    if (stream->failure.status == GPUSERVE_OK)
        stream->failure = error;
    return static_cast<gpuserve_status>(error.status);
}

gpuserve_status gsv_cuda_op_prefetch(struct gpuserve_stream *stream,
                                     const struct gpuserve_op_prefetch *op)
{
    cudaError_t code = cudaSuccess;

    if (stream->is_prefetching)
        code = cudaStreamWaitEvent(stream->queue, stream->arrived, 0);
    stream->is_prefetching = false;
    if (code != cudaSuccess || op->size == 0)
        return gsv_cuda_note(stream, code, "cudaStreamWaitEvent");
    code = cudaEventRecord(stream->reached, stream->queue);
    if (code == cudaSuccess)
        code = cudaStreamWaitEvent(stream->copies, stream->reached, 0);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(op->to, op->from, op->size, cudaMemcpyHostToDevice, stream->copies);
    if (code == cudaSuccess)
        code = cudaEventRecord(stream->arrived, stream->copies);
    stream->is_prefetching = code == cudaSuccess;
    return gsv_cuda_note(stream, code, "the prefetch of weights");
}

gpuserve_status gsv_cuda_op_embed(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_embed *op)
{
    struct gsv_int8_target next;

    gsv_int8_aim(&stream->int8, op->reader, op->out, op->batch->n_rows, op->hidden, &next);
    return gsv_cuda_note(stream, gsv_cuda_embed(op, stream->element, &next, stream->queue),
                         "the launch of embed");
}

gpuserve_status gsv_cuda_op_add_norm(struct gpuserve_stream *stream,
                                     const struct gpuserve_op_add_norm *op)
{
    struct gsv_int8_target next;

    if (op->rows == 0)
        return GPUSERVE_OK;
    gsv_int8_aim(&stream->int8, op->reader, op->out, op->rows, op->cols, &next);
    return gsv_cuda_note(stream, gsv_cuda_add_norm(op, stream->element, &next, stream->queue),
                         "the launch of add_norm");
}

gpuserve_status gsv_cuda_op_rotate(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_rotate *op)
{
    gsv_int8_forget(&stream->int8);
    return gsv_cuda_note(stream, gsv_cuda_rotate(op, stream->element, stream->queue),
                         "the launch of rotate");
}

gpuserve_status gsv_cuda_op_glu(struct gpuserve_stream *stream, const struct gpuserve_op_glu *op)
{
    struct gsv_int8_target next;

    if (op->rows == 0)
        return GPUSERVE_OK;
    gsv_int8_aim(&stream->int8, op->reader, op->out, op->rows, op->cols, &next);
    return gsv_cuda_note(stream, gsv_cuda_glu(op, stream->element, &next, stream->queue),
                         "the launch of glu");
}

gpuserve_status gsv_cuda_op_route(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_route *op)
{
    if (op->rows == 0)
        return GPUSERVE_OK;
    return gsv_cuda_note(stream, gsv_cuda_route(op, stream->element, stream->queue),
                         "the launch of route");
}

gpuserve_status gsv_cuda_op_add_scaled(struct gpuserve_stream *stream,
                                       const struct gpuserve_op_add_scaled *op)
{
    if (op->rows == 0)
        return GPUSERVE_OK;
    gsv_int8_forget(&stream->int8);
    return gsv_cuda_note(stream, gsv_cuda_add_scaled(op, stream->element, stream->queue),
                         "the launch of add_scaled");
}

/* On tensor cores, which also quantize for the next product. */
static gpuserve_status attend_mma(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_attention *op)
{
    struct gsv_int8_target next;

    gsv_int8_aim(&stream->int8, op->reader, op->out, op->batch->n_rows, op->n_heads * op->head_size,
                 &next);
    if (gsv_cuda_attention_has_mma(op, stream->element))
        return gsv_cuda_note(
            stream,
            gsv_cuda_attention_mma(op, &stream->tiles, stream->element, &next, stream->queue),
            "the launch of attention_mma");
    return gsv_cuda_note(
        stream,
        gsv_cuda_attention_mma_options(op, &stream->tiles, stream->element, &next, stream->queue),
        "the launch of attention_mma_options");
}

gpuserve_status gsv_cuda_op_attention(struct gpuserve_stream *stream,
                                      const struct gpuserve_op_attention *op)
{
    if (gsv_cuda_attention_has_mma(op, stream->element) ||
        gsv_cuda_attention_has_mma_options(op, stream->element))
        return attend_mma(stream, op);
    gsv_int8_forget(&stream->int8);
    if (gsv_cuda_attention_has_simt(op, stream->element))
        return gsv_cuda_note(stream, gsv_cuda_attention_simt(op, &stream->tiles, stream->queue),
                             "the launch of attention_simt");
    if (gsv_cuda_attention_has_simt_options(op, stream->element))
        return gsv_cuda_note(
            stream,
            gsv_cuda_attention_simt_options(op, &stream->tiles, stream->element, stream->queue),
            "the launch of attention_simt_options");
    if (op->head_size > GSV_ATTENTION_NAIVE_MAX_HEAD) {
        stream->failure.struct_size = sizeof(stream->failure);
        return gsv_fail(&stream->failure, GPUSERVE_E_UNSUPPORTED,
                        "attention heads have size %d, the limit of the CUDA backend is %d",
                        op->head_size, GSV_ATTENTION_NAIVE_MAX_HEAD);
    }
    return gsv_cuda_note(stream, gsv_cuda_attention_naive(op, stream->element, stream->queue),
                         "the launch of attention_naive");
}

gpuserve_status gsv_cuda_op_pool(struct gpuserve_stream *stream, const struct gpuserve_op_pool *op)
{
    return gsv_cuda_note(stream, gsv_cuda_pool(op, stream->element, stream->queue),
                         "the launch of pool");
}

gpuserve_status gsv_cuda_op_normalize(struct gpuserve_stream *stream,
                                      const struct gpuserve_op_rows *op)
{
    if (op->rows == 0)
        return GPUSERVE_OK;
    return gsv_cuda_note(stream, gsv_cuda_normalize(op, stream->queue), "the launch of normalize");
}

gpuserve_status gsv_cuda_op_activate(struct gpuserve_stream *stream,
                                     const struct gpuserve_op_rows *op)
{
    if (op->rows == 0)
        return GPUSERVE_OK;
    return gsv_cuda_note(stream, gsv_cuda_activate(op, stream->queue), "the launch of activate");
}

gpuserve_status gsv_cuda_op_compact(struct gpuserve_stream *stream,
                                    const struct gpuserve_op_compact *op)
{
    if (op->rows == 0)
        return GPUSERVE_OK;
    return gsv_cuda_note(stream, gsv_cuda_compact(op, stream->queue), "the launch of compact");
}

gpuserve_status gsv_cuda_op_max_sim(struct gpuserve_stream *stream,
                                    const struct gpuserve_op_max_sim *op)
{
    return gsv_cuda_note(stream, gsv_cuda_max_sim(op, stream->element, stream->queue),
                         "the launch of max_sim");
}

/* A product on float32 rows in a stream of 16-bit activations: pooled rows of a head, few in
 * number. */
static bool is_head(const struct gpuserve_stream *stream, const struct gpuserve_op_linear *op)
{
    return stream->element != GSV_ELEMENT_F32 && op->weight->math == GSV_MATH_F32 &&
           op->weight->n <= GSV_GEMV_MAX_N && op->rows <= 65535;
}

static cudaError_t multiply(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op,
                            const struct gsv_gemm *gemm)
{
    if (op->weight->math == GSV_MATH_S8)
        return gsv_cuda_int8_multiply(op->weight, gemm, op->reader, &stream->int8, stream->queue);
    if (is_head(stream, op))
        return gsv_cuda_gemv(gemm, stream->queue);
    if (gsv_lt_wins(op->weight->choice, gemm, stream->deterministic))
        return gsv_lt_multiply(op->weight, gemm, stream->deterministic, stream->workspace,
                               stream->queue);
    return gsv_cuda_multiply(op->weight, gemm, stream->queue);
}

gpuserve_status gsv_cuda_op_linear(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_linear *op)
{
    const struct gpuserve_linear *const linear = op->weight;
    struct gsv_gemm gemm = {};

    if (op->rows == 0)
        return GPUSERVE_OK;
    gemm.in = op->in;
    gemm.weight = linear->weight;
    gemm.bias = linear->bias;
    gemm.residual = op->residual;
    gemm.out = op->out;
    gemm.m = op->rows;
    gemm.n = linear->n;
    gemm.k = linear->k;
    gemm.in_ld = op->in_ld;
    gemm.weight_ld = linear->k;
    gemm.out_ld = op->out_ld;
    gemm.activation = op->activation;
    gemm.fixed_order = stream->deterministic;
    return gsv_cuda_note(stream, multiply(stream, op, &gemm), "the launch of linear");
}
