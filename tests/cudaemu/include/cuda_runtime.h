/*
 * cuda_runtime.h - replaces the toolkit's header: the runtime's C++ functions, and the declarations
 * that nvcc adds to every .cu file (emu_device.h, emu_math.h).
 */
#ifndef GSV_EMU_CUDA_RUNTIME_H
#define GSV_EMU_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>
#include <emu_device.h>
#include <emu_math.h>
#include <utility>

template <typename T> inline cudaError_t cudaMalloc(T **memory, size_t size)
{
    return cudaMalloc(reinterpret_cast<void **>(memory), size);
}

template <typename T> inline cudaError_t cudaMallocHost(T **memory, size_t size)
{
    return cudaMallocHost(reinterpret_cast<void **>(memory), size);
}

template <typename T> inline cudaError_t cudaHostAlloc(T **memory, size_t size, unsigned int flags)
{
    return cudaHostAlloc(reinterpret_cast<void **>(memory), size, flags);
}

template <typename... P>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), enum cudaFuncAttribute attribute,
                                        int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

template <typename... P>
inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                         void (*kernel)(P...))
{
    return cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}

template <typename... P>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...),
                                                                 int block_size,
                                                                 size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks, reinterpret_cast<const void *>(kernel), block_size, shared_bytes);
}

template <typename... P> struct gsv_emu_call {
    template <size_t... i>
    static void unpack(const void *kernel, void *const *arguments, std::index_sequence<i...>)
    {
        (void)arguments;
        reinterpret_cast<void (*)(P...)>(const_cast<void *>(kernel))(
            *static_cast<std::remove_cv_t<std::remove_reference_t<P>> *>(arguments[i])...);
    }

    static void invoke(const void *kernel, void *const *arguments)
    {
        unpack(kernel, arguments, std::index_sequence_for<P...>());
    }
};

template <typename... P, typename... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                      A &&...arguments)
{
    static_assert((std::is_trivially_copyable<P>::value && ...), "kernel arguments are copied");
    const auto launch = [&](const P &...copied) {
        const void *addresses[] = { static_cast<const void *>(&copied)..., nullptr };
        const size_t sizes[] = { sizeof(P)..., 0 };
        const struct gsv_emu_kernel call = { reinterpret_cast<const void *>(kernel),
                                             nullptr,
                                             &gsv_emu_call<P...>::invoke,
                                             addresses,
                                             sizes,
                                             sizeof...(P) };
        return gsv_emu_launch(config, &call);
    };
    return launch(static_cast<P>(arguments)...);
}

#endif
