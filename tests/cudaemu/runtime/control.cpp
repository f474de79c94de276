/*
 * control.cpp - the functions of emu.h, errors, and device properties.
 *
 * The environment variables GSV_EMU_SEED, GSV_EMU_LATE, GSV_EMU_MEMORY and GSV_EMU_FAIL=N:ERROR
 * make the same settings from outside, for runs of the command-line program.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <cuda.h>

#include "state.h"

/* Never destroyed: a hung call may be inside it at process exit. */
gsv_emu_runtime &gsv_emu = *new gsv_emu_runtime();

namespace
{

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

struct error_text {
    cudaError_t error;
    const char *name;
    const char *text;
};

const error_text error_texts[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error" },
    { cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
      "invalid configuration argument" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
      "CUDA driver version is insufficient for CUDA runtime version" },
    { cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
      "CUDA-capable device(s) is/are busy or unavailable" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
    { cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable",
      "uncorrectable ECC error encountered" },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
    { cudaErrorNotReady, "cudaErrorNotReady", "device not ready" },
    { cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
      "an illegal memory access was encountered" },
    { cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address" },
    { cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure" },
    { cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
      "operation not permitted when stream is capturing" },
    { cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
      "operation failed due to a previous error during capture" },
    { cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
      "the graph update was not performed because it included changes which violated constraints" },
    { cudaErrorUnknown, "cudaErrorUnknown", "unknown error" },
};

const error_text &find_error(cudaError_t error)
{
    static const error_text other = { cudaErrorUnknown, "cudaErrorOther",
                                      "unrecognized error code" };

    for (const error_text &e : error_texts)
        if (e.error == error)
            return e;
    return other;
}

bool sticks(cudaError_t error)
{
    return error == cudaErrorECCUncorrectable || error == cudaErrorIllegalAddress ||
           error == cudaErrorLaunchTimeout || (error >= 710 && error <= 719) ||
           error == cudaErrorUnknown;
}

uint64_t environment(const char *name)
{
    const char *value = getenv(name);
    return value ? strtoull(value, nullptr, 10) : 0;
}

struct environment_reader {
    environment_reader()
    {
        unsigned long long n;
        int error;
        const char *fail = getenv("GSV_EMU_FAIL");

        gsv_emu.seed = gsv_emu.random = environment("GSV_EMU_SEED");
        gsv_emu.late = environment("GSV_EMU_LATE") != 0;
        if (getenv("GSV_EMU_DEVICES"))
            gsv_emu.n_devices = static_cast<int>(environment("GSV_EMU_DEVICES"));
        if (getenv("GSV_EMU_MEMORY"))
            gsv_emu.memory_bytes = environment("GSV_EMU_MEMORY");
        if (const char *copy = getenv("GSV_EMU_COPY_NS"))
            for (uint64_t &ns : gsv_emu.copy_ns) {
                char *end;

                ns = strtoull(copy, &end, 10);
                copy = *end ? end + 1 : end;
            }
        if (fail && sscanf(fail, "%llu:%d", &n, &error) == 2) {
            gsv_emu.fail_at = n;
            gsv_emu.fail_with = static_cast<cudaError_t>(error);
        }
    }
} read_environment;

} // namespace

double gsv_emu_now()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

uint64_t gsv_emu_pick(uint64_t n)
{
    return gsv_emu.seed ? gsv_emu_random(&gsv_emu.random) % n : 0;
}

void gsv_emu_stick(cudaError_t error, int device)
{
    cudaError_t &stuck = gsv_emu.stuck[device < 0 ? current_device : device];

    if (sticks(error) && stuck == cudaSuccess)
        stuck = error;
}

gsv_emu_entry::gsv_emu_entry(const char *name, bool asks, int device)
    : lock(gsv_emu.lock), error_(cudaSuccess)
{
    gsv_emu_wait_for_calls(lock);
    gsv_emu.counters.calls++;
    if (gsv_emu.fail_at && gsv_emu.counters.calls == gsv_emu.fail_at) {
        gsv_emu.failed_in = name;
        gsv_emu_stick(gsv_emu.fail_with, device < gsv_emu.n_devices ? device : -1);
        error_ = gsv_emu.fail_with;
    } else {
        error_ = asks ? cudaSuccess : gsv_emu_stuck();
    }
    if (failed())
        last_error = error_;
}

cudaError_t gsv_emu_entry::finish(cudaError_t error)
{
    gsv_emu_stick(error);
    if (failed())
        return error_;
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

/* --- emu.h -------------------------------------------------------------------------------------
 */

void gsv_emu_reset(void)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu_counters &c = gsv_emu.counters;
    const gsv_emu_counters live = c;

    c = gsv_emu_counters();
    c.live_bytes = c.peak_bytes = live.live_bytes;
    c.live_host_bytes = live.live_host_bytes;
    c.live_allocations = live.live_allocations;
    c.live_objects = live.live_objects;
    gsv_emu.memory_bytes = 16ull << 30;
    gsv_emu.n_devices = 1;
    gsv_emu.capability[0] = 9;
    gsv_emu.capability[1] = 0;
    gsv_emu.driver = CUDART_VERSION;
    gsv_emu.history.clear();
    gsv_emu.devices_error = cudaSuccess;
    std::fill(std::begin(gsv_emu.stuck), std::end(gsv_emu.stuck), cudaSuccess);
    gsv_emu.fail_at = 0;
    gsv_emu.failed_in = nullptr;
    gsv_emu.late = false;
    gsv_emu.hang = 0;
    gsv_emu.seed = gsv_emu.random = 0;
    gsv_emu.report.clear();
    last_error = cudaSuccess;
    gsv_emu_wake();
}

void gsv_emu_seed(uint64_t seed)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu.seed = gsv_emu.random = seed;
}

void gsv_emu_set_late(int late)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu.late = late != 0;
}

void gsv_emu_set_memory(uint64_t bytes)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu.memory_bytes = bytes ? bytes : 16ull << 30;
}

void gsv_emu_set_devices(int count, int error)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu.n_devices = count < 0 ? 0 : count > 8 ? 8 : count;
    gsv_emu.devices_error = static_cast<cudaError_t>(error);
    gsv_emu.driver = error == cudaErrorInsufficientDriver ? 0 : CUDART_VERSION;
}

void gsv_emu_set_capability(int major, int minor)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu.capability[0] = major;
    gsv_emu.capability[1] = minor;
}

void gsv_emu_set_driver(int version)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu.driver = version;
    gsv_emu.devices_error = version < CUDART_VERSION ? cudaErrorInsufficientDriver : cudaSuccess;
}

size_t gsv_emu_history(struct gsv_emu_deed *deeds, size_t most)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    const size_t n = gsv_emu.history.size();

    std::copy_n(gsv_emu.history.begin(), n < most ? n : most, deeds);
    return n;
}

void gsv_emu_fail_call(uint64_t n, int cuda_error)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu.fail_at = n ? gsv_emu.counters.calls + n : 0;
    gsv_emu.fail_with = static_cast<cudaError_t>(cuda_error);
    gsv_emu.failed_in = nullptr;
}

const char *gsv_emu_failed_call(void)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    return gsv_emu.failed_in;
}

void gsv_emu_hang(int hang)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    gsv_emu.hang = hang;
    gsv_emu_wake();
}

void gsv_emu_get_counters(struct gsv_emu_counters *counters)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    *counters = gsv_emu.counters;
    for (const CUstream_st *stream : gsv_emu.streams)
        counters->waiting_streams += stream->queue.empty() ? 0 : 1;
}

const char *gsv_emu_report(void)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    return gsv_emu.report.c_str();
}

/* --- errors and devices --------------------------------------------------------------------------
 */

extern "C" {

cudaError_t cudaGetLastError(void)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    const cudaError_t error = gsv_emu_stuck() != cudaSuccess ? gsv_emu_stuck() : last_error;

    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    return gsv_emu_stuck() != cudaSuccess ? gsv_emu_stuck() : last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return find_error(error).name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return find_error(error).text;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);
    *version = gsv_emu.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    gsv_emu_entry entry("cudaGetDeviceCount", true);

    *count = 0;
    if (entry.failed())
        return entry.error();
    if (gsv_emu.devices_error != cudaSuccess)
        return entry.finish(gsv_emu.devices_error);
    *count = gsv_emu.n_devices;
    return entry.finish(gsv_emu.n_devices ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    gsv_emu_entry entry("cudaGetDevice", true);

    *device = current_device;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
    gsv_emu_entry entry("cudaSetDevice", true, device);

    if (entry.failed())
        return entry.error();
    if (device < 0 || device >= gsv_emu.n_devices)
        return entry.finish(cudaErrorInvalidDevice);
    current_device = device;
    return entry.finish(gsv_emu_stuck());
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int)
{
    gsv_emu_entry entry("cudaInitDevice", true, device);

    return entry.finish(device < gsv_emu.n_devices ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaSetDeviceFlags(unsigned int)
{
    gsv_emu_entry entry("cudaSetDeviceFlags");

    return entry.finish(cudaSuccess);
}

/* Like an H100 or H200 except for the settings, and with few multiprocessors, so that grids that
 * fill the device stay small. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    gsv_emu_entry entry("cudaGetDeviceProperties", true, device);

    if (entry.failed())
        return entry.error();
    if (device < 0 || device >= gsv_emu.n_devices)
        return entry.finish(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof(*prop));
    snprintf(prop->name, sizeof(prop->name), "CUDA emulator");
    for (int i = 0; i < 16; i++)
        prop->uuid.bytes[i] = static_cast<char>(16 * device + i);
    prop->totalGlobalMem = gsv_emu.memory_bytes;
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerBlockOptin = gsv_emu_shared_optin();
    prop->sharedMemPerMultiprocessor = 228 << 10;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = gsv_emu.capability[0];
    prop->minor = gsv_emu.capability[1];
    prop->multiProcessorCount = GSV_EMU_PROCESSORS;
    prop->l2CacheSize = 50 << 20;
    prop->memoryBusWidth = 5120;
    prop->concurrentKernels = 1;
    prop->ECCEnabled = 1;
    prop->pciBusID = device + 1;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    gsv_emu_entry entry("cudaDeviceGetAttribute", true, device);
    const std::map<int, int> values = {
        { cudaDevAttrMaxThreadsPerBlock, 1024 },
        { cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10 },
        { cudaDevAttrWarpSize, 32 },
        { cudaDevAttrClockRate, 1980000 },
        { cudaDevAttrMultiProcessorCount, GSV_EMU_PROCESSORS },
        { cudaDevAttrIntegrated, 0 },
        { cudaDevAttrConcurrentKernels, 1 },
        { cudaDevAttrMemoryClockRate, 3201000 },
        { cudaDevAttrGlobalMemoryBusWidth, 5120 },
        { cudaDevAttrL2CacheSize, 50 << 20 },
        { cudaDevAttrMaxThreadsPerMultiProcessor, 2048 },
        { cudaDevAttrComputeCapabilityMajor, gsv_emu.capability[0] },
        { cudaDevAttrComputeCapabilityMinor, gsv_emu.capability[1] },
        { cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10 },
        { cudaDevAttrMaxRegistersPerMultiprocessor, 65536 },
        { cudaDevAttrCooperativeLaunch, 1 },
        { cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(gsv_emu_shared_optin()) },
    };

    if (entry.failed())
        return entry.error();
    const auto found = values.find(attr);
    if (device < 0 || device >= gsv_emu.n_devices)
        return entry.finish(cudaErrorInvalidDevice);
    if (found == values.end())
        return entry.finish(cudaErrorInvalidValue);
    *value = found->second;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    gsv_emu_entry entry("cudaDeviceGetPCIBusId", true, device);

    snprintf(id, static_cast<size_t>(size), "0000:%02x:00.0", device + 1);
    return entry.finish(cudaSuccess);
}

} // extern "C"

/* Values of real devices: 8.0 and 8.7, others below 9.0, 9.0 and later. */
size_t gsv_emu_shared_optin()
{
    const int capability = 10 * gsv_emu.capability[0] + gsv_emu.capability[1];
    return (capability == 80 || capability == 87 ? 163u : capability < 90 ? 99u : 227u) << 10;
}

int gsv_emu_current_device()
{
    return current_device;
}

/* cuTensorMapEncodeTiled, the only function of the driver that the backend calls. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    gsv_emu_entry entry("cudaGetDriverEntryPointByVersion");
    const bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0;

    if (entry.failed())
        return entry.error();
    *function = known ? reinterpret_cast<void *>(&cuTensorMapEncodeTiled) : nullptr;
    *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return entry.finish(cudaSuccess);
}
