/*
 * timer.cu - measures the duration of work on a stream with CUDA events (device clock).
 */
#include "kernels/cuda/runtime/stream.cuh"

gpuserve_status gsv_cuda_timer_start(struct gsv_timer *timer, struct gpuserve_stream *stream)
{
    cudaError_t code = cudaEventCreate(&timer->begin);

    if (code == cudaSuccess)
        code = cudaEventCreate(&timer->end);
    if (code == cudaSuccess)
        code = cudaEventRecord(timer->begin, stream->queue);
    return gsv_cuda_note(stream, code, "the events of a timer");
}

void gsv_cuda_timer_stop(struct gsv_timer *timer, struct gpuserve_stream *stream)
{
    timer->stopped = gsv_cuda_note(stream, cudaEventRecord(timer->end, stream->queue),
                                   "cudaEventRecord") == GPUSERVE_OK;
}

double gsv_cuda_timer_end(struct gsv_timer *timer, const struct gpuserve_stream *stream)
{
    float ms = 0.f;

    if (gsv_cuda_hangs(stream->device->index))
        return 0;
    if (timer->stopped && cudaEventElapsedTime(&ms, timer->begin, timer->end) != cudaSuccess) {
        cudaGetLastError();
        ms = 0.f;
    }
    if (timer->begin)
        cudaEventDestroy(timer->begin);
    if (timer->end)
        cudaEventDestroy(timer->end);
    return ms / 1e3;
}
