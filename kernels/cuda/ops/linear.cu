/*
 * linear.cu - weights of a product in device memory, and the choice among the own kernels.
 *
 * Layout: weights [n, k] in the activation type, for the own kernels and cuBLASLt alike, then the
 * bias in float32, then the bias in the activation type. INT8: int8.cu.
 */
#include "kernels/cuda/runtime/watchdog.cuh"
#include "kernels/cuda/runtime/int8.cuh"
#include "kernels/cuda/runtime/cublaslt.cuh"

#include <stdlib.h>

static enum gsv_math math_of(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_FLOAT16:
        return GSV_MATH_F16;
    case GPUSERVE_DTYPE_BFLOAT16:
        return GSV_MATH_BF16;
    case GPUSERVE_DTYPE_TF32:
        return GSV_MATH_TF32;
    case GPUSERVE_DTYPE_INT8:
        return GSV_MATH_S8;
    default:
        return GSV_MATH_F32;
    }
}

static size_t weight_bytes(int32_t n, int32_t k, uint32_t dtype)
{
    size_t elements;
    size_t bytes;

    if (!gsv_mul_size(static_cast<size_t>(n), static_cast<size_t>(k), &elements) ||
        !gsv_mul_size(elements, gsv_cuda_activation_size(dtype), &bytes))
        return SIZE_MAX;
    return gsv_round_up(bytes, 64);
}

static size_t bias_bytes(int32_t n, size_t element_size)
{
    return gsv_round_up(static_cast<size_t>(n) * element_size, 64);
}

size_t gsv_cuda_linear_bytes(int32_t n, int32_t k, uint32_t dtype)
{
    const size_t weight = weight_bytes(n, k, dtype);
    size_t all;

    if (dtype == GPUSERVE_DTYPE_INT8)
        return gsv_cuda_int8_bytes(n, k);
    if (!gsv_add_size(weight,
                      bias_bytes(n, sizeof(float)) + bias_bytes(n, gsv_cuda_activation_size(dtype)),
                      &all))
        return SIZE_MAX;
    return all;
}

static gpuserve_status write_bias(struct gpuserve_linear *linear, char *memory,
                                  const struct gpuserve_linear_source *source,
                                  gpuserve_error *error)
{
    char *const second = memory + bias_bytes(source->n, sizeof(float));
    const size_t n = static_cast<size_t>(source->n);
    gpuserve_status status =
        gsv_cuda_memory_write(linear->device, memory, source->bias, n * sizeof(float), error);

    if (status == GPUSERVE_OK)
        status = gsv_cuda_memory_write_floats(linear->device, second, source->bias, n,
                                              source->dtype, error);
    linear->bias = reinterpret_cast<const float *>(memory);
    linear->element_bias = second;
    return status;
}

static gpuserve_status fill(struct gpuserve_linear *linear, void *memory,
                            const struct gpuserve_linear_source *source, gpuserve_error *error)
{
    const size_t count = static_cast<size_t>(source->n) * static_cast<size_t>(source->k);
    gpuserve_status status = gsv_cuda_memory_write_floats(linear->device, memory, source->weight,
                                                          count, source->dtype, error);

    linear->weight = memory;
    if (status != GPUSERVE_OK || !source->bias)
        return status;
    return write_bias(
        linear, static_cast<char *>(memory) + weight_bytes(source->n, source->k, source->dtype),
        source, error);
}

gpuserve_status gsv_cuda_linear_create(struct gpuserve_device *device,
                                       struct gpuserve_linear **linear, void *memory,
                                       const struct gpuserve_linear_source *source,
                                       gpuserve_error *error)
{
    struct gpuserve_linear *made;
    bool left;
    gpuserve_status status;

    *linear = NULL;
    if (gsv_cuda_activation_size(source->dtype) == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "the CUDA backend does not support dtype %u",
                        source->dtype);
    made = static_cast<struct gpuserve_linear *>(calloc(1, sizeof(*made)));
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory while loading weights");
    made->device = device;
    made->math = math_of(source->dtype);
    made->element = gsv_cuda_element(source->dtype);
    made->n = source->n;
    made->k = source->k;
    status = made->math == GSV_MATH_S8 ? gsv_cuda_int8_create(made, memory, source, error)
                                       : fill(made, memory, source, error);
    if (status != GPUSERVE_OK) {
        gsv_cuda_linear_destroy(&made);
        return status;
    }
    if (!device->lt || made->math == GSV_MATH_S8) {
        *linear = made;
        return GPUSERVE_OK;
    }
    status = gsv_watchdog(
        device->index, "timing products",
        [=](gpuserve_error *) {
            made->choice = gsv_lt_choose(made);
            return GPUSERVE_OK;
        },
        &left, error);
    if (status != GPUSERVE_OK) {
        if (!left)
            gsv_cuda_linear_destroy(&made);
        return status;
    }
    *linear = made;
    return GPUSERVE_OK;
}

void gsv_cuda_linear_move(struct gpuserve_linear *linear, const void *from, void *to)
{
    struct gsv_int8_weights *const int8 = &linear->int8;

    linear->weight = gsv_moved(linear->weight, from, to);
    linear->bias = static_cast<const float *>(gsv_moved(linear->bias, from, to));
    linear->element_bias = gsv_moved(linear->element_bias, from, to);
    int8->values = static_cast<const int8_t *>(gsv_moved(int8->values, from, to));
    int8->scale = static_cast<const float *>(gsv_moved(int8->scale, from, to));
    int8->column_sum = static_cast<const float *>(gsv_moved(int8->column_sum, from, to));
    int8->input_scale = static_cast<const float *>(gsv_moved(int8->input_scale, from, to));
}

void gsv_cuda_linear_destroy(struct gpuserve_linear **linear)
{
    if (!linear || !*linear)
        return;
    free(*linear);
    *linear = NULL;
}

/* On tensor cores, with an activation that the epilogues have. */
static cudaError_t multiply_fused(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                                  cudaStream_t stream)
{
    const int n_processors = linear->device->n_processors;

    if (linear->device->has_wgmma && gsv_cuda_gemm_has_wgmma(gemm, linear->math))
        return gsv_cuda_gemm_wgmma(gemm, linear->math, n_processors, stream);
    return gsv_cuda_gemm_mma(gemm, linear->math, n_processors, stream);
}

cudaError_t gsv_cuda_multiply(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                              cudaStream_t stream)
{
    struct gsv_gemm plain = *gemm;
    struct gsv_gemm rest = *gemm;
    cudaError_t code;

    if (!gsv_cuda_gemm_has_mma(gemm, linear->math))
        return gsv_cuda_gemm_simt(gemm, linear->element, linear->device->n_processors, stream);
    if (gemm->activation == GPUSERVE_ACT_NONE || gemm->activation == GPUSERVE_ACT_GELU)
        return multiply_fused(linear, gemm, stream);

    plain.activation = GPUSERVE_ACT_NONE; /* the epilogues have NONE and GELU only */
    plain.residual = NULL;
    rest.bias = NULL;
    code = multiply_fused(linear, &plain, stream);
    return code == cudaSuccess ? gsv_cuda_bias_act(&rest, linear->element, stream) : code;
}
