/*
 * transfer.cu - single copies between host and device, to be measured.
 *
 * A copy is one cudaMemcpyAsync() from or to the caller's memory, and a wait for it. The watchdog
 * makes both calls; the clock runs on its thread, so that the hand-over is not measured. A copy
 * that never returns still holds the memory: host_free() then abandons it.
 */
#include "kernels/cuda/runtime/watchdog.cuh"
#include "lib/base/clock.h"

#include <stdlib.h>

gpuserve_status gsv_cuda_host_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                    uint32_t kind, gpuserve_error *error)
{
    if (kind == GPUSERVE_HOST_PINNED)
        return gsv_cuda_take_guarded(device, gsv_cuda_take_pinned, memory, size, error);
    *memory = malloc(size);
    return *memory ? GPUSERVE_OK
                   : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory: %zu bytes", size);
}

void gsv_cuda_host_free(struct gpuserve_device *device, void *memory, uint32_t kind)
{
    if (!memory)
        return;
    if (kind == GPUSERVE_HOST_PINNED)
        gsv_watchdog_release(device->index, "freeing memory", [=] { cudaFreeHost(memory); });
    else if (!gsv_cuda_hangs(device->index))
        free(memory);
}

gpuserve_status gsv_cuda_transfer(struct gpuserve_device *device, struct gpuserve_op_transfer *op,
                                  gpuserve_error *error)
{
    const bool is_out = op->direction == GPUSERVE_TRANSFER_FROM_DEVICE;
    const enum cudaMemcpyKind kind = is_out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    void *const to = is_out ? op->host : op->device;
    const void *const from = is_out ? op->device : op->host;
    const size_t size = op->size;
    const int index = device->index;
    gpuserve_status status = gsv_cuda_check_lost(index, error);
    double *seconds;
    bool left;

    if (status != GPUSERVE_OK)
        return status;
    seconds = static_cast<double *>(calloc(1, sizeof(*seconds)));
    if (!seconds)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    status = gsv_watchdog(
        index, "copying memory",
        [=](gpuserve_error *e) {
            const uint64_t begin = gsv_now_ns();
            const char *call = "cudaMemcpyAsync";
            cudaError_t code = cudaMemcpyAsync(to, from, size, kind, NULL);

            if (code == cudaSuccess) {
                call = "cudaStreamSynchronize";
                code = cudaStreamSynchronize(NULL);
            }
            *seconds = gsv_seconds_since(begin);
            return code == cudaSuccess ? GPUSERVE_OK : gsv_cuda_fail(index, code, call, e);
        },
        &left, error);
    if (left)
        return status;
    op->seconds = *seconds;
    free(seconds);
    return status;
}
