/*
 * memory.cu - device memory, and floats on their way to it in the activation type.
 */
#include "kernels/cuda/backend.cuh"
#include "kernels/cuda/types.cuh"

#include <stdlib.h>

enum gsv_element gsv_cuda_element(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_FLOAT16:
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
        return 2;
    case GPUSERVE_DTYPE_FLOAT32:
    case GPUSERVE_DTYPE_TF32:
        return 4;
    default:
        return 0;
    }
}

gpuserve_status gsv_cuda_memory_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                      gpuserve_error *error)
{
    gpuserve_status status = gsv_cuda_use(device, error);
    size_t free = 0;
    size_t total = 0;
    cudaError_t code;

    *memory = NULL;
    if (status != GPUSERVE_OK)
        return status;
    code = cudaMalloc(memory, size > 0 ? size : 1);
    if (code == cudaSuccess)
        return GPUSERVE_OK;
    *memory = NULL;
    status = gsv_cuda_fail(device->index, code, "cudaMalloc", error);
    if (status != GPUSERVE_E_NOMEM || cudaMemGetInfo(&free, &total) != cudaSuccess)
        return status;
    return gsv_fail_in(error, status, "%.1f MB wanted, %.1f of %.1f MB free on %s", size / 1e6,
                       free / 1e6, total / 1e6, device->name);
}

void gsv_cuda_memory_free(struct gpuserve_device *device, void *memory)
{
    if (!memory || gsv_cuda_hangs(device->index))
        return;
    cudaSetDevice(device->index);
    cudaFree(memory); /* on a lost device this fails, and the memory went with the context */
}

gpuserve_status gsv_cuda_memory_write(struct gpuserve_device *device, void *to, const void *from,
                                      size_t size, gpuserve_error *error)
{
    const gpuserve_status status = gsv_cuda_use(device, error);
    cudaError_t code;

    if (status != GPUSERVE_OK)
        return status;
    code = cudaMemcpy(to, from, size, cudaMemcpyHostToDevice);
    return code == cudaSuccess ? GPUSERVE_OK
                               : gsv_cuda_fail(device->index, code, "cudaMemcpy", error);
}

gpuserve_status gsv_cuda_memory_read(struct gpuserve_device *device, void *to, const void *from,
                                     size_t size, gpuserve_error *error)
{
    const gpuserve_status status = gsv_cuda_use(device, error);
    cudaError_t code;

    if (status != GPUSERVE_OK)
        return status;
    code = cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost);
    return code == cudaSuccess ? GPUSERVE_OK
                               : gsv_cuda_fail(device->index, code, "cudaMemcpy", error);
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
    const size_t piece = static_cast<size_t>(1) << 20;
    gpuserve_status status = GPUSERVE_OK;
    void *converted;

    if (element == GSV_ELEMENT_F32)
        return gsv_cuda_memory_write(device, to, from, count * sizeof(float), error);
    converted = malloc(2 * (count < piece ? count : piece) + 1);
    if (!converted)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory while converting weights");
    for (size_t at = 0; at < count && status == GPUSERVE_OK; at += piece) {
        const size_t n = count - at < piece ? count - at : piece;

        convert(converted, from + at, n, element);
        status = gsv_cuda_memory_write(device, static_cast<char *>(to) + 2 * at, converted, 2 * n,
                                       error);
    }
    free(converted);
    return status;
}
