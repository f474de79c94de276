/*
 * launch.cuh - declaration and launch of kernels, for nvcc and for the emulator.
 *
 * The same .cu sources are compiled twice: by nvcc for a GPU, and by a C++ compiler with
 * -DGSV_CUDA_EMU for the emulator of tests/cudaemu, which runs each CUDA thread as a fiber. Kernels
 * must follow the rules of kernels/cuda/README.md: launches by GSV_LAUNCH, dynamic shared memory by
 * GSV_SHARED, inline PTX only in ptx.cuh.
 *
 *     template <typename T> __global__ void scale_rows(T *rows, int n, float by) { ... }
 *
 *     cudaError_t e = GSV_LAUNCH((scale_rows<half>), grid, 128, bytes, stream, rows, n, 2.f);
 *
 * A kernel with more than 48 KiB of shared memory needs GSV_ALLOW_SHARED first.
 */
#ifndef GSV_CUDA_LAUNCH_CUH
#define GSV_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#ifdef GSV_CUDA_EMU
#include <emu_kernel.h>
#else

/* The block's dynamic shared memory, 128-byte aligned, as `type *name`. */
#define GSV_SHARED(type, name)                                          \
    extern __shared__ __align__(128) unsigned char gsv_shared_memory[]; \
    type *const name = reinterpret_cast<type *>(gsv_shared_memory)

/* For device functions that must not be inlined; the name __noinline__ breaks host headers. */
#define GSV_NOINLINE __noinline__

#define GSV_KERNEL_NAME(text) ((void)(text))

#endif

/* Launches on `stream`; returns a cudaError_t that must be checked. A kernel template name with
 * commas needs parentheses. */
#define GSV_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                               \
    gsv_launch(#kernel, GSV_LAUNCH_PLAIN, kernel, dim3(grid), dim3(block), shared_bytes, stream, \
               __VA_ARGS__)

/* Like GSV_LAUNCH, but the kernel may start while its predecessor in the stream still runs
 * (programmatic dependent launch). Each thread calls gsv_grid_wait() (ptx.cuh) before it accesses
 * data of the predecessor. */
#define GSV_LAUNCH_OVERLAP(kernel, grid, block, shared_bytes, stream, ...)                       \
    gsv_launch(#kernel, GSV_LAUNCH_EARLY, kernel, dim3(grid), dim3(block), shared_bytes, stream, \
               __VA_ARGS__)

/* Like GSV_LAUNCH_OVERLAP, but the blocks along z form a cluster: they run together and read each
 * other's shared memory (ptx_hopper.cuh). At most 8; capability 9.0 and newer. */
#define GSV_LAUNCH_CLUSTER(kernel, grid, block, shared_bytes, stream, ...)                       \
    gsv_launch(#kernel, GSV_LAUNCH_EARLY_CLUSTER, kernel, dim3(grid), dim3(block), shared_bytes, \
               stream, __VA_ARGS__)

/* Like GSV_LAUNCH, but cooperative: all blocks are co-resident, or the launch fails. They may wait
 * for each other's signals (ptx.cuh). */
#define GSV_LAUNCH_TOGETHER(kernel, grid, block, shared_bytes, stream, ...)                 \
    gsv_launch(#kernel, GSV_LAUNCH_RESIDENT, kernel, dim3(grid), dim3(block), shared_bytes, \
               stream, __VA_ARGS__)

/* Allows `kernel` up to `bytes` of shared memory per block; once for each device, before
 * capture. */
#define GSV_ALLOW_SHARED(kernel, bytes)                          \
    cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), \
                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))

/* Whether the thread's current device overlaps kernels, as gsv_cuda_set_device() found; -1: the
 * thread has not called it. */
inline thread_local int gsv_overlaps = -1;

/* True if the current device supports programmatic dependent launch: sm_90 and newer. Two questions
 * to the driver for each launch would cost as much as the launch. */
inline bool gsv_device_overlaps()
{
    int device = 0;
    int major = 0;

    if (gsv_overlaps >= 0)
        return gsv_overlaps != 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
}

enum gsv_launch_kind {
    GSV_LAUNCH_PLAIN,
    GSV_LAUNCH_EARLY,
    GSV_LAUNCH_EARLY_CLUSTER,
    GSV_LAUNCH_RESIDENT
};

/* Fills the attributes of a launch; returns their number. */
inline unsigned gsv_launch_attributes(enum gsv_launch_kind kind, const dim3 &grid,
                                      cudaLaunchAttribute (&attributes)[2])
{
    unsigned n = 0;

    if (kind == GSV_LAUNCH_RESIDENT) {
        attributes[n].id = cudaLaunchAttributeCooperative;
        attributes[n++].val.cooperative = 1;
    } else if (kind != GSV_LAUNCH_PLAIN && gsv_device_overlaps()) {
        attributes[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[n++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (kind == GSV_LAUNCH_EARLY_CLUSTER) {
        attributes[n].id = cudaLaunchAttributeClusterDimension;
        attributes[n].val.clusterDim.x = attributes[n].val.clusterDim.y = 1;
        attributes[n++].val.clusterDim.z = grid.z;
    }
    return n;
}

template <typename... Parameters, typename... Arguments>
inline cudaError_t gsv_launch(const char *name, enum gsv_launch_kind kind,
                              void (*kernel)(Parameters...), dim3 grid, dim3 block,
                              size_t shared_bytes, cudaStream_t stream, Arguments &&...arguments)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};

    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = gsv_launch_attributes(kind, grid, attributes);
    GSV_KERNEL_NAME(name);
    return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

#endif
