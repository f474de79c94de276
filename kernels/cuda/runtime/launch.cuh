/*
 * launch.cuh - how every kernel here is declared and launched.
 *
 * The same .cu sources are compiled twice: by nvcc for a GPU, and by an ordinary C++ compiler with
 * -DGSV_CUDA_EMU for the emulator of tests/cudaemu, which runs each CUDA thread as a fiber. That
 * works as long as kernels keep to what stands in README.md: launches by GSV_LAUNCH, dynamic shared
 * memory by GSV_SHARED, inline PTX only inside ptx.cuh.
 *
 *     template <typename T> __global__ void scale_rows(T *rows, int n, float by) { ... }
 *
 *     cudaError_t e = GSV_LAUNCH((scale_rows<half>), grid, 128, shared_bytes, stream, rows,
 * n, 2.f);
 *
 * Above 48 KiB of shared memory the kernel must have been given more by GSV_ALLOW_SHARED first.
 */
#ifndef GSV_CUDA_LAUNCH_CUH
#define GSV_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#ifdef GSV_CUDA_EMU
#include <emu_kernel.h>
#else

/** The block's dynamic shared memory, 128-byte aligned, as `type *name`. */
#define GSV_SHARED(type, name)                                          \
    extern __shared__ __align__(128) unsigned char gsv_shared_memory[]; \
    type *const name = reinterpret_cast<type *>(gsv_shared_memory)

/** For device functions that must stay calls; __noinline__ itself breaks host headers. */
#define GSV_NOINLINE __noinline__

#define GSV_KERNEL_NAME(text) ((void)(text))

#endif

/** Launch on `stream`; the value is a cudaError_t, to be checked. A kernel template's name with
 *  commas stands in parentheses. */
#define GSV_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                               \
    gsv_launch(#kernel, GSV_LAUNCH_PLAIN, kernel, dim3(grid), dim3(block), shared_bytes, stream, \
               __VA_ARGS__)

/** The same, but the kernel may start while the one before it in the stream still runs. Each of its
 *  threads calls gsv_grid_wait() (ptx.cuh) before it reads or writes what that one touches. */
#define GSV_LAUNCH_OVERLAP(kernel, grid, block, shared_bytes, stream, ...)                       \
    gsv_launch(#kernel, GSV_LAUNCH_EARLY, kernel, dim3(grid), dim3(block), shared_bytes, stream, \
               __VA_ARGS__)

/** The same, but all blocks run at the same time, or the launch fails: they may wait for each
 * other's signals (ptx.cuh). */
#define GSV_LAUNCH_TOGETHER(kernel, grid, block, shared_bytes, stream, ...)                 \
    gsv_launch(#kernel, GSV_LAUNCH_RESIDENT, kernel, dim3(grid), dim3(block), shared_bytes, \
               stream, __VA_ARGS__)

/** Let `kernel` have up to `bytes` of shared memory a block; once for each device, before capture.
 */
#define GSV_ALLOW_SHARED(kernel, bytes)                          \
    cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), \
                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))

/* Whether this thread's device starts a kernel before the one ahead of it has ended: sm_90 on. */
inline bool gsv_device_overlaps()
{
    int device = 0;
    int major = 0;

    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
}

enum gsv_launch_kind { GSV_LAUNCH_PLAIN, GSV_LAUNCH_EARLY, GSV_LAUNCH_RESIDENT };

template <typename... Parameters, typename... Arguments>
inline cudaError_t gsv_launch(const char *name, enum gsv_launch_kind kind,
                              void (*kernel)(Parameters...), dim3 grid, dim3 block,
                              size_t shared_bytes, cudaStream_t stream, Arguments &&...arguments)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};

    if (kind == GSV_LAUNCH_RESIDENT) {
        attribute.id = cudaLaunchAttributeCooperative;
        attribute.val.cooperative = 1;
    } else {
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs =
        kind == GSV_LAUNCH_RESIDENT || (kind == GSV_LAUNCH_EARLY && gsv_device_overlaps()) ? 1 : 0;
    GSV_KERNEL_NAME(name);
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

#endif
