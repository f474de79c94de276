/*
 * memory.cu - device memory, and conversion of floats to the activation type during upload.
 *
 * Copies go through the watchdog in chunks of PIECE bytes, from or to a staging buffer that can be
 * abandoned with a hung call.
 */
#include "kernels/cuda/runtime/watchdog.cuh"
#include "kernels/cuda/runtime/types.cuh"

extern "C" {
#include "lib/base/host/host.h"
}

#include <stdlib.h>
#include <string.h>

enum gsv_element gsv_cuda_element(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_FLOAT16:
    case GPUSERVE_DTYPE_INT8: /* type of the activations between int8 products */
        return GSV_ELEMENT_F16;
    case GPUSERVE_DTYPE_BFLOAT16:
        return GSV_ELEMENT_BF16;
    default:
        return GSV_ELEMENT_F32;
    }
}

size_t gsv_cuda_activation_size(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_FLOAT16:
    case GPUSERVE_DTYPE_BFLOAT16:
    case GPUSERVE_DTYPE_INT8:
        return 2;
    case GPUSERVE_DTYPE_FLOAT32:
    case GPUSERVE_DTYPE_TF32:
        return 4;
    default:
        return 0;
    }
}

/* Bytes of one watchdog copy: the staging buffer outlives a call that never returns. */
static const size_t CHUNK = static_cast<size_t>(4) << 20;

gpuserve_status gsv_cuda_take(const struct gpuserve_device *device, void **memory, size_t size,
                              gpuserve_error *error)
{
    size_t free = 0;
    size_t total = 0;
    gpuserve_status status;
    const cudaError_t code = cudaMalloc(memory, size > 0 ? size : 1);

    if (code == cudaSuccess)
        return GPUSERVE_OK;
    status = gsv_cuda_fail(device->index, code, "cudaMalloc", error);
    if (status != GPUSERVE_E_NOMEM || cudaMemGetInfo(&free, &total) != cudaSuccess)
        return status;
    return gsv_fail_in(error, status, "%.1f MB requested, %.1f of %.1f MB free on %s", size / 1e6,
                       free / 1e6, total / 1e6, device->name);
}

gpuserve_status gsv_cuda_take_pinned(const struct gpuserve_device *device, void **memory,
                                     size_t size, gpuserve_error *error)
{
    gpuserve_status status;
    const cudaError_t code = cudaMallocHost(memory, size > 0 ? size : 1);

    if (code == cudaSuccess)
        return GPUSERVE_OK;
    status = gsv_cuda_fail(device->index, code, "cudaMallocHost", error);
    if (status != GPUSERVE_E_NOMEM)
        return status;
    gsv_hint(error, status,
             "free memory of the machine, raise the container's memory limit or the locked-memory "
             "limit (ulimit -l), or lower max_batch_tokens");
    return gsv_fail_in(
        error, status,
        "%.1f MB of pinned host memory requested, %.1f of %.1f MB free on the machine", size / 1e6,
        gsv_host_memory_free_bytes() / 1e6, gsv_host_memory_bytes() / 1e6);
}

gpuserve_status gsv_cuda_take_guarded(struct gpuserve_device *device, gsv_cuda_take_fn take,
                                      void **memory, size_t size, gpuserve_error *error)
{
    gpuserve_status status = gsv_cuda_check_lost(device->index, error);
    void **taken;
    bool left;

    *memory = NULL;
    if (status != GPUSERVE_OK)
        return status;
    taken = static_cast<void **>(calloc(1, sizeof(*taken)));
    if (!taken)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    status = gsv_watchdog(
        device->index, "allocating memory",
        [=](gpuserve_error *e) { return take(device, taken, size, e); }, &left, error);
    if (left)
        return status;
    *memory = status == GPUSERVE_OK ? *taken : NULL;
    free(taken);
    return status;
}

gpuserve_status gsv_cuda_memory_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                      gpuserve_error *error)
{
    return gsv_cuda_take_guarded(device, gsv_cuda_take, memory, size, error);
}

void gsv_cuda_memory_free(struct gpuserve_device *device, void *memory)
{
    /* Fails on a lost device, whose memory is already gone with the context. */
    if (memory)
        gsv_watchdog_release(device->index, "freeing memory", [=] { cudaFree(memory); });
}

/* One copy of at most PIECE bytes between the device and the staging buffer; *left: the buffer is
 * abandoned. */
static gpuserve_status copy_chunk(const struct gpuserve_device *device, void *to, const void *from,
                                  size_t size, enum cudaMemcpyKind kind, bool *left,
                                  gpuserve_error *error)
{
    const int index = device->index;

    return gsv_watchdog(
        index, "copying memory",
        [=](gpuserve_error *e) {
            const cudaError_t code = cudaMemcpy(to, from, size, kind);

            return code == cudaSuccess ? GPUSERVE_OK : gsv_cuda_fail(index, code, "cudaMemcpy", e);
        },
        left, error);
}

static void *alloc_chunk(size_t size, gpuserve_error *error)
{
    void *const chunk = malloc(size < CHUNK ? size + 1 : CHUNK);

    if (!chunk)
        gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory while copying to or from the device");
    return chunk;
}

gpuserve_status gsv_cuda_memory_write(struct gpuserve_device *device, void *to, const void *from,
                                      size_t size, gpuserve_error *error)
{
    gpuserve_status status = gsv_cuda_check_lost(device->index, error);
    bool left = false;
    void *chunk;

    if (status != GPUSERVE_OK)
        return status;
    chunk = alloc_chunk(size, error);
    if (!chunk)
        return GPUSERVE_E_NOMEM;
    for (size_t at = 0; at < size && status == GPUSERVE_OK; at += CHUNK) {
        const size_t n = size - at < CHUNK ? size - at : CHUNK;

        memcpy(chunk, static_cast<const char *>(from) + at, n);
        status = copy_chunk(device, static_cast<char *>(to) + at, chunk, n, cudaMemcpyHostToDevice,
                            &left, error);
    }
    if (!left)
        free(chunk);
    return status;
}

gpuserve_status gsv_cuda_memory_read(struct gpuserve_device *device, void *to, const void *from,
                                     size_t size, gpuserve_error *error)
{
    gpuserve_status status = gsv_cuda_check_lost(device->index, error);
    bool left = false;
    void *chunk;

    if (status != GPUSERVE_OK)
        return status;
    chunk = alloc_chunk(size, error);
    if (!chunk)
        return GPUSERVE_E_NOMEM;
    for (size_t at = 0; at < size && status == GPUSERVE_OK; at += CHUNK) {
        const size_t n = size - at < CHUNK ? size - at : CHUNK;

        status = copy_chunk(device, chunk, static_cast<const char *>(from) + at, n,
                            cudaMemcpyDeviceToHost, &left, error);
        if (status == GPUSERVE_OK)
            memcpy(static_cast<char *>(to) + at, chunk, n);
    }
    if (!left)
        free(chunk);
    return status;
}

static void convert(void *to, const float *from, size_t count, enum gsv_element element)
{
    if (element == GSV_ELEMENT_F16) {
        half *const halves = static_cast<half *>(to);
        for (size_t i = 0; i < count; i++)
            halves[i] = __float2half_rn(from[i]);
    } else {
        __nv_bfloat16 *const brains = static_cast<__nv_bfloat16 *>(to);
        for (size_t i = 0; i < count; i++)
            brains[i] = __float2bfloat16_rn(from[i]);
    }
}

gpuserve_status gsv_cuda_memory_write_floats(struct gpuserve_device *device, void *to,
                                             const float *from, size_t count, uint32_t dtype,
                                             gpuserve_error *error)
{
    const enum gsv_element element = gsv_cuda_element(dtype);
    const size_t max_count = CHUNK / 2;
    gpuserve_status status = gsv_cuda_check_lost(device->index, error);
    bool left = false;
    void *chunk;

    if (element == GSV_ELEMENT_F32)
        return gsv_cuda_memory_write(device, to, from, count * sizeof(float), error);
    if (status != GPUSERVE_OK)
        return status;
    chunk = alloc_chunk(count < max_count ? 2 * count : CHUNK, error);
    if (!chunk)
        return GPUSERVE_E_NOMEM;
    for (size_t at = 0; at < count && status == GPUSERVE_OK; at += max_count) {
        const size_t n = count - at < max_count ? count - at : max_count;

        convert(chunk, from + at, n, element);
        status = copy_chunk(device, static_cast<char *>(to) + 2 * at, chunk, 2 * n,
                            cudaMemcpyHostToDevice, &left, error);
    }
    if (!left)
        free(chunk);
    return status;
}
