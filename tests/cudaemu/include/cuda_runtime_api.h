/*
 * cuda_runtime_api.h - the part of the CUDA runtime that the emulator implements.
 *
 * Replaces the toolkit's header of this name. Names and numbers are CUDA's, so the same source
 * compiles with both; structs have only the fields in use. The functions are in
 * tests/cudaemu/runtime/.
 */
#ifndef GSV_EMU_CUDA_RUNTIME_API_H
#define GSV_EMU_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#define CUDART_VERSION 13000
#define CUDART_CB
#define CUDARTAPI
#define GSV_EMU_CUDA extern "C" __attribute__((visibility("default")))

enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorCudartUnloading = 4,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchTimeout = 702,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorNotSupported = 801,
    cudaErrorSystemDriverMismatch = 803,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorGraphExecUpdateFailure = 910,
    cudaErrorUnknown = 999
};
typedef enum cudaError cudaError_t;

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUlib_st *cudaLibrary_t;
typedef struct CUkern_st *cudaKernel_t;

#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostAllocWriteCombined 0x04

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrIntegrated = 18,
    cudaDevAttrConcurrentKernels = 31,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor = 82,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};

enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};

enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
    cudaLaunchAttributePriority = 8
};

enum cudaGraphExecUpdateResult {
    cudaGraphExecUpdateSuccess = 0,
    cudaGraphExecUpdateError = 1,
    cudaGraphExecUpdateErrorTopologyChanged = 2
};

typedef struct {
    char bytes[16];
} cudaUUID_t;

typedef struct {
    enum cudaGraphExecUpdateResult result;
    cudaGraphNode_t errorNode;
    cudaGraphNode_t errorFromNode;
} cudaGraphExecUpdateResultInfo;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    size_t sharedMemPerBlockOptin;
    size_t sharedMemPerMultiprocessor;
    int regsPerBlock;
    int regsPerMultiprocessor;
    int warpSize;
    int maxThreadsPerBlock;
    int maxThreadsPerMultiProcessor;
    int maxGridSize[3];
    int major;
    int minor;
    int multiProcessorCount;
    int l2CacheSize;
    int memoryBusWidth;
    int integrated;
    int concurrentKernels;
    int pciBusID;
    int pciDeviceID;
    int pciDomainID;
    int ECCEnabled;
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int maxDynamicSharedSizeBytes;
};

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

union cudaLaunchAttributeValue {
    char pad[64];
    int cooperative;
    int programmaticStreamSerializationAllowed;
    int priority;
    struct {
        unsigned int x, y, z;
    } clusterDim;
};

typedef struct {
    enum cudaLaunchAttributeID id;
    union cudaLaunchAttributeValue val;
} cudaLaunchAttribute;

typedef struct {
    dim3 gridDim;
    dim3 blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned int numAttrs;
} cudaLaunchConfig_t;

typedef void (*cudaHostFn_t)(void *user);

/* --- errors and versions ---------------------------------------------------------------------- */

GSV_EMU_CUDA cudaError_t cudaGetLastError(void);
GSV_EMU_CUDA cudaError_t cudaPeekAtLastError(void);
GSV_EMU_CUDA const char *cudaGetErrorName(cudaError_t error);
GSV_EMU_CUDA const char *cudaGetErrorString(cudaError_t error);
GSV_EMU_CUDA cudaError_t cudaDriverGetVersion(int *version);
GSV_EMU_CUDA cudaError_t cudaRuntimeGetVersion(int *version);

/* --- devices ---------------------------------------------------------------------------------- */

GSV_EMU_CUDA cudaError_t cudaGetDeviceCount(int *count);
GSV_EMU_CUDA cudaError_t cudaGetDevice(int *device);
GSV_EMU_CUDA cudaError_t cudaSetDevice(int device);
GSV_EMU_CUDA cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags);
GSV_EMU_CUDA cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
GSV_EMU_CUDA cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
GSV_EMU_CUDA cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device);
GSV_EMU_CUDA cudaError_t cudaDeviceSynchronize(void);
GSV_EMU_CUDA cudaError_t cudaSetDeviceFlags(unsigned int flags);

/* --- memory ----------------------------------------------------------------------------------- */

GSV_EMU_CUDA cudaError_t cudaMalloc(void **memory, size_t size);
GSV_EMU_CUDA cudaError_t cudaFree(void *memory);
GSV_EMU_CUDA cudaError_t cudaMallocHost(void **memory, size_t size);
GSV_EMU_CUDA cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned int flags);
GSV_EMU_CUDA cudaError_t cudaFreeHost(void *memory);
GSV_EMU_CUDA cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
GSV_EMU_CUDA cudaError_t cudaMemcpy(void *to, const void *from, size_t size,
                                    enum cudaMemcpyKind kind);
GSV_EMU_CUDA cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size,
                                         enum cudaMemcpyKind kind, cudaStream_t stream = nullptr);
GSV_EMU_CUDA cudaError_t cudaMemset(void *memory, int value, size_t size);
GSV_EMU_CUDA cudaError_t cudaMemsetAsync(void *memory, int value, size_t size,
                                         cudaStream_t stream = nullptr);

/* --- streams and events ----------------------------------------------------------------------- */

GSV_EMU_CUDA cudaError_t cudaStreamCreate(cudaStream_t *stream);
GSV_EMU_CUDA cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
GSV_EMU_CUDA cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags,
                                                      int priority);
GSV_EMU_CUDA cudaError_t cudaStreamDestroy(cudaStream_t stream);
GSV_EMU_CUDA cudaError_t cudaStreamSynchronize(cudaStream_t stream);
GSV_EMU_CUDA cudaError_t cudaStreamQuery(cudaStream_t stream);
GSV_EMU_CUDA cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                             unsigned int flags = 0);
GSV_EMU_CUDA cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user);
GSV_EMU_CUDA cudaError_t cudaEventCreate(cudaEvent_t *event);
GSV_EMU_CUDA cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags);
GSV_EMU_CUDA cudaError_t cudaEventDestroy(cudaEvent_t event);
GSV_EMU_CUDA cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
GSV_EMU_CUDA cudaError_t cudaEventSynchronize(cudaEvent_t event);
GSV_EMU_CUDA cudaError_t cudaEventQuery(cudaEvent_t event);
GSV_EMU_CUDA cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start,
                                              cudaEvent_t end);

/* --- graphs ----------------------------------------------------------------------------------- */

GSV_EMU_CUDA cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                                enum cudaStreamCaptureMode mode);
GSV_EMU_CUDA cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
GSV_EMU_CUDA cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                               enum cudaStreamCaptureStatus *status);
GSV_EMU_CUDA cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                                           size_t *count);
GSV_EMU_CUDA cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                              unsigned long long flags = 0);
GSV_EMU_CUDA cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                             cudaGraphExecUpdateResultInfo *info);
GSV_EMU_CUDA cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
GSV_EMU_CUDA cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
GSV_EMU_CUDA cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
GSV_EMU_CUDA cudaError_t cudaGraphDestroy(cudaGraph_t graph);

/* --- kernels ---------------------------------------------------------------------------------- */

GSV_EMU_CUDA cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute,
                                              int value);
GSV_EMU_CUDA cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                               const void *kernel);
GSV_EMU_CUDA cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                                       const void *kernel,
                                                                       int block_size,
                                                                       size_t shared_bytes);

enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1
};
enum { cudaEnableDefault = 0 };
GSV_EMU_CUDA cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned int version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result);

enum cudaJitOption { cudaJitMaxRegisters = 0 };
enum cudaLibraryOption { cudaLibraryHostUniversalFunctionAndDataTable = 0 };
GSV_EMU_CUDA cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                             enum cudaJitOption *jit_options,
                                             void **jit_option_values, unsigned int n_jit_options,
                                             enum cudaLibraryOption *library_options,
                                             void **library_option_values,
                                             unsigned int n_library_options);
GSV_EMU_CUDA cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
                                              const char *name);
GSV_EMU_CUDA cudaError_t cudaLibraryUnload(cudaLibrary_t library);

/** Entry of the emulator for every launch: `invoke` calls `kernel` with the arguments at the given
 * addresses. The arguments are copied before the launch returns. */
struct gsv_emu_kernel {
    const void *kernel;
    const char *name;
    void (*invoke)(const void *kernel, void *const *arguments);
    const void *const *arguments;
    const size_t *sizes;
    size_t n_arguments;
};
GSV_EMU_CUDA cudaError_t gsv_emu_launch(const cudaLaunchConfig_t *config,
                                        const struct gsv_emu_kernel *kernel);

#endif
