/*
 * device.cu - lists and opens GPUs, and maps CUDA errors to statuses, messages and remedies.
 *
 * Some CUDA errors destroy the process's context on a device: each later call on it fails with a
 * new error. The first such error is stored per device, and every later call returns it at once
 * (gsv_cuda_check_lost). A mutex guards the table of losses; any thread may call.
 *
 * Listing devices creates no context, since a context takes about 300 MB of device memory.
 */
#include "kernels/cuda/runtime/watchdog.cuh"
#include "kernels/cuda/runtime/int8.cuh"
#include "kernels/cuda/compute/chain_source.cuh"
#include "kernels/cuda/runtime/cublaslt.cuh"
#include "kernels/cuda/runtime/cudnn.cuh"
#include "kernels/cuda/compute/lstm.cuh"
#include "kernels/cuda/compute/matmul.cuh"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{

const int MAX_DEVICES = 64;
const int OLDEST_CAPABILITY = 80; /* cp.async and bfloat16 */

/* The oldest driver for this plugin's CUDA, whatever the minor version. */
#if CUDART_VERSION >= 13000
#define OLDEST_DRIVER "580"
#else
#define OLDEST_DRIVER "525.60.13"
#endif

struct loss {
    bool lost;
    bool hangs;
    gpuserve_error cause;
};

struct loss losses[MAX_DEVICES];
pthread_mutex_t losses_lock = PTHREAD_MUTEX_INITIALIZER;

/* gsv_overlaps plus 1 of each device that was opened; atomic. */
int overlaps[MAX_DEVICES];

/* Errors that destroy the context (sticky errors). */
bool ends_context(int code)
{
    static const int codes[] = {
        214, /* ECC, uncorrectable */
        220, /* NVLink */
        226, /* contained hardware error */
        700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999
    }; /* 999: unknown to the driver */

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (codes[i] == code)
            return true;
    }
    return false;
}

const char *remedy(int code)
{
    switch (code) {
    case 2:
        return "close other models or programs on this device, lower max_batch_tokens, or choose "
               "another device";
    case 3:
    case 999:
        return "the driver does not work: check nvidia-smi and the kernel log (dmesg | grep -i "
               "xid), then reload the driver or restart the machine";
    case 35:
        return CUDART_VERSION >= 13000
                   ? "update the NVIDIA driver to " OLDEST_DRIVER " or newer, or add "
                     "libgpuserve-cuda12.so, which needs 525.60.13 or newer, to the plugin's folder"
                   : "update the NVIDIA driver to " OLDEST_DRIVER " or newer";
    case 46:
        return "another process holds the device exclusively: find it with nvidia-smi and end it, "
               "or set the compute mode to DEFAULT";
    case 100:
        return "check nvidia-smi and CUDA_VISIBLE_DEVICES; start a container with --gpus all";
    case 209:
        return "build the plugin for this GPU: meson configure -Dgpu_targets=sm_XX";
    case 214:
    case 220:
        return "the hardware failed: check nvidia-smi -q and the kernel log, then restart the "
               "process; have the device checked if the error returns";
    case 803:
    case 804:
        return "the driver's library and kernel module have different versions: restart the "
               "machine, or use the host's driver version in the container";
    default:
        return ends_context(code)
                   ? "the device's context is lost: close every model on it and restart the process"
                   : "check the kernel log (dmesg | grep -i xid)";
    }
}

gpuserve_status status_of(int code)
{
    switch (code) {
    case 2:
        return GPUSERVE_E_NOMEM;
    case 209:
    case 801:
        return GPUSERVE_E_UNSUPPORTED;
    case 1:
    case 9:
    case 98:
        return GPUSERVE_E_INTERNAL; /* wrong launch parameters: a bug in this backend */
    default:
        return GPUSERVE_E_DEVICE;
    }
}

void set_lost(int index, bool hangs, const gpuserve_error *cause)
{
    if (index < 0 || index >= MAX_DEVICES)
        return;
    pthread_mutex_lock(&losses_lock);
    if (!losses[index].lost) {
        losses[index].cause = *cause;
        losses[index].lost = true;
    }
    losses[index].hangs = losses[index].hangs || hangs;
    pthread_mutex_unlock(&losses_lock);
    gsv_cuda_log(GPUSERVE_LOG_ERROR, "device %d is lost: %s", index, cause->message);
}

} /* namespace */

gpuserve_status gsv_cuda_fail(int index, cudaError_t code, const char *call, gpuserve_error *error)
{
    const int number = static_cast<int>(code);
    const gpuserve_status status = status_of(number);
    gpuserve_error local = GPUSERVE_ERROR_INIT;

    cudaGetLastError(); /* clears the error, so that the next launch does not report it again */
    gsv_fail(&local, status, "CUDA error %d (%s: %s) from %s on device %d", number,
             cudaGetErrorName(code), cudaGetErrorString(code), call, index);
    gsv_hint(&local, status, "%s", remedy(number));
    if (ends_context(number))
        set_lost(index, false, &local);
    gsv_error_copy(error, &local);
    return status;
}

gpuserve_status gsv_cuda_fail_timeout(int index, const char *what, int64_t timeout_ms,
                                      gpuserve_error *error)
{
    gpuserve_error local = GPUSERVE_ERROR_INIT;

    gsv_fail(&local, GPUSERVE_E_DEVICE, "device %d did not answer within %lld ms while %s", index,
             static_cast<long long>(timeout_ms), what);
    gsv_hint(&local, GPUSERVE_E_DEVICE,
             "the device hangs: restart the process, and check the kernel log (dmesg | grep -i "
             "xid); GPUSERVE_CUDA_TIMEOUT_MS sets the timeout");
    set_lost(index, true, &local);
    gsv_error_copy(error, &local);
    return GPUSERVE_E_DEVICE;
}

gpuserve_status gsv_cuda_check_lost(int index, gpuserve_error *error)
{
    gpuserve_status status = GPUSERVE_OK;

    if (index < 0 || index >= MAX_DEVICES)
        return GPUSERVE_OK;
    pthread_mutex_lock(&losses_lock);
    if (losses[index].lost) {
        status = GPUSERVE_E_DEVICE;
        gsv_error_copy(error, &losses[index].cause);
    }
    pthread_mutex_unlock(&losses_lock);
    return status;
}

bool gsv_cuda_hangs(int index)
{
    bool hangs;

    if (index < 0 || index >= MAX_DEVICES)
        return false;
    pthread_mutex_lock(&losses_lock);
    hangs = losses[index].hangs;
    pthread_mutex_unlock(&losses_lock);
    return hangs;
}

cudaError_t gsv_cuda_set_device(int index)
{
    const cudaError_t code = cudaSetDevice(index);

    if (code == cudaSuccess)
        gsv_overlaps = index >= 0 && index < MAX_DEVICES
                           ? __atomic_load_n(&overlaps[index], __ATOMIC_RELAXED) - 1
                           : -1;
    return code;
}

gpuserve_status gsv_cuda_use(const struct gpuserve_device *device, gpuserve_error *error)
{
    gpuserve_status status = gsv_cuda_check_lost(device->index, error);

    if (status == GPUSERVE_OK) {
        const cudaError_t code = gsv_cuda_set_device(device->index);
        if (code != cudaSuccess)
            status = gsv_cuda_fail(device->index, code, "cudaSetDevice", error);
    }
    return status;
}

/* ---------------------------------------------------------------------------------- counting */

/* Names the missing layer if no device is found. The static runtime returns 35 both without a
 * driver and with an outdated one; GPUSERVE_E_UNSUPPORTED lets the library try the plugin of an
 * older CUDA. */
static gpuserve_status fail_count(cudaError_t code, gpuserve_error *error)
{
    int driver = 0;
    const gpuserve_status status = GPUSERVE_E_DEVICE;

    cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    if (driver == 0) {
        gsv_fail(error, status,
                 "no CUDA device: the NVIDIA driver is not installed (CUDA error %d: %s)",
                 static_cast<int>(code), cudaGetErrorString(code));
        return gsv_hint(error, status,
                        "install the driver (" OLDEST_DRIVER " or newer); start a container with "
                        "--gpus all and the NVIDIA container toolkit");
    }
    if (driver < CUDART_VERSION && static_cast<int>(code) == 35) {
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                 "no CUDA device: the driver supports CUDA %d.%d, the plugin is built with %d.%d "
                 "and needs driver " OLDEST_DRIVER " or newer",
                 driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                 CUDART_VERSION % 1000 / 10);
        return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "%s", remedy(35));
    }
    if (static_cast<int>(code) == 100) {
        gsv_fail(error, status,
                 "no CUDA device: the driver (CUDA %d.%d) is installed, but shows no device",
                 driver / 1000, driver % 1000 / 10);
        return gsv_hint(error, status, "%s", remedy(100));
    }
    return gsv_cuda_fail(-1, code, "cudaGetDeviceCount", error);
}

static gpuserve_status count_devices(int32_t *count, gpuserve_error *error)
{
    int n = 0;
    const cudaError_t code = cudaGetDeviceCount(&n);

    if (code == cudaSuccess && n == 0)
        return fail_count(static_cast<cudaError_t>(100), error);
    if (code != cudaSuccess)
        return fail_count(code, error);
    *count = n < MAX_DEVICES ? n : MAX_DEVICES;
    return GPUSERVE_OK;
}

/* Result of a watchdog call in memory of its own: the call may be abandoned. */
template <typename Result> static Result *alloc_result(gpuserve_error *error)
{
    Result *const result = static_cast<Result *>(calloc(1, sizeof(Result)));

    if (!result)
        gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the query of devices");
    return result;
}

gpuserve_status gsv_cuda_device_count(int32_t *count, gpuserve_error *error)
{
    int32_t *const found = alloc_result<int32_t>(error);
    bool left;
    gpuserve_status status = GPUSERVE_E_NOMEM;

    *count = 0;
    if (!found)
        return status;
    status = gsv_watchdog(
        -1, "listing devices", [=](gpuserve_error *e) { return count_devices(found, e); }, &left,
        error);
    if (left)
        return status;
    *count = *found;
    free(found);
    return status;
}

/* ------------------------------------------------------------------------------------- facts */

/* NVML reports free memory without a context. Some toolkits lack its header, so the functions used
 * are declared here after its documentation. */
struct device_nvml_memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};
typedef int (*nvml_init_fn)(void);
typedef int (*nvml_by_bus_fn)(const char *, void **);
typedef int (*nvml_memory_fn)(void *, struct device_nvml_memory *);

static bool nvml_free_bytes(int index, uint64_t *bytes)
{
    void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct device_nvml_memory memory = {};
    char bus[32] = "";
    void *handle = NULL;
    bool ok = false;

    if (!library)
        return false;
    nvml_init_fn init = reinterpret_cast<nvml_init_fn>(dlsym(library, "nvmlInit_v2"));
    nvml_init_fn end = reinterpret_cast<nvml_init_fn>(dlsym(library, "nvmlShutdown"));
    nvml_by_bus_fn find =
        reinterpret_cast<nvml_by_bus_fn>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    nvml_memory_fn ask =
        reinterpret_cast<nvml_memory_fn>(dlsym(library, "nvmlDeviceGetMemoryInfo"));

    if (init && end && find && ask && init() == 0) {
        ok = cudaDeviceGetPCIBusId(bus, sizeof(bus), index) == cudaSuccess &&
             find(bus, &handle) == 0 && ask(handle, &memory) == 0;
        end();
    }
    dlclose(library);
    *bytes = memory.free;
    return ok;
}

static gpuserve_status free_bytes(int index, uint64_t *bytes, gpuserve_error *error)
{
    size_t free = 0;
    size_t total = 0;
    cudaError_t code;

    if (nvml_free_bytes(index, bytes))
        return GPUSERVE_OK;
    code = gsv_cuda_set_device(index);
    if (code == cudaSuccess)
        code = cudaMemGetInfo(&free, &total);
    if (code != cudaSuccess)
        return gsv_cuda_fail(index, code, "cudaMemGetInfo", error);
    *bytes = free;
    return GPUSERVE_OK;
}

static void write_uuid(char *text, size_t size, const void *uuid)
{
    const unsigned char *b = static_cast<const unsigned char *>(uuid);

    snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

static void copy_name(char *to, size_t size, const char *name)
{
    const size_t length = strnlen(name, size - 1);

    memcpy(to, name, length);
    to[length] = '\0';
}

/* An unsupported old device counts as absent: automatic selection takes another one, or the CPU. */
static gpuserve_status check_capability(int index, const struct cudaDeviceProp *properties,
                                        gpuserve_error *error)
{
    if (properties->major * 10 + properties->minor >= OLDEST_CAPABILITY)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "device %d (%s) has compute capability %d.%d; gpuserve needs 8.0 or newer", index,
             properties->name, properties->major, properties->minor);
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED,
                    "choose another device, or the CPU with device \"cpu\"");
}

static gpuserve_status read_facts(int index, struct gpuserve_device_facts *facts,
                                  gpuserve_error *error)
{
    struct cudaDeviceProp properties = {};
    const cudaError_t code = cudaGetDeviceProperties(&properties, index);

    if (code != cudaSuccess)
        return gsv_cuda_fail(index, code, "cudaGetDeviceProperties", error);
    if (check_capability(index, &properties, error) != GPUSERVE_OK)
        return GPUSERVE_E_UNSUPPORTED;
    facts->index = index;
    copy_name(facts->name, sizeof(facts->name), properties.name);
    snprintf(facts->isa, sizeof(facts->isa), "sm_%d%d", properties.major, properties.minor);
    write_uuid(facts->uuid, sizeof(facts->uuid), &properties.uuid);
    facts->memory_bytes = properties.totalGlobalMem;
    facts->n_cores = properties.multiProcessorCount;
    return free_bytes(index, &facts->memory_free_bytes, error);
}

gpuserve_status gsv_cuda_device_facts(int32_t index, struct gpuserve_device_facts *facts,
                                      gpuserve_error *error)
{
    const uint32_t struct_size = facts->struct_size;
    struct gpuserve_device_facts *found;
    bool left;
    gpuserve_status status = gsv_cuda_check_lost(index, error);

    if (status != GPUSERVE_OK)
        return status;
    found = alloc_result<struct gpuserve_device_facts>(error);
    if (!found)
        return GPUSERVE_E_NOMEM;
    status = gsv_watchdog(
        index, "querying device properties",
        [=](gpuserve_error *e) { return read_facts(index, found, e); }, &left, error);
    if (left)
        return status;
    if (status == GPUSERVE_OK) {
        *facts = *found;
        facts->struct_size = struct_size;
    }
    free(found);
    return status;
}

/* ----------------------------------------------------------------------------------- opening */

/* Raises the shared memory limit of kernels that need more than 48 KiB; this also loads them. */
static cudaError_t prepare_kernels(size_t shared_bytes)
{
    cudaError_t code = gsv_cuda_attention_mma_prepare();

    if (code == cudaSuccess)
        code = gsv_cuda_attention_mma_options_prepare();
    if (code == cudaSuccess)
        code = gsv_cuda_attention_simt_prepare();
    if (code == cudaSuccess)
        code = gsv_cuda_attention_simt_options_prepare();
    if (code == cudaSuccess)
        code = gsv_cuda_attention_naive_prepare();
    if (code == cudaSuccess)
        code = gsv_cuda_matmul_mma_prepare();
    if (code == cudaSuccess)
        code = gsv_cuda_gemm_s8_prepare();
    if (code == cudaSuccess)
        code = gsv_cuda_lstm_fused_prepare(shared_bytes);
    return code == cudaSuccess ? gsv_cuda_gemm_mma_prepare() : code;
}

static gpuserve_status open_device(struct gpuserve_device *device, gpuserve_error *error)
{
    struct cudaDeviceProp properties = {};
    int cooperates = 0;
    cudaError_t code = cudaGetDeviceProperties(&properties, device->index);

    if (code != cudaSuccess)
        return gsv_cuda_fail(device->index, code, "cudaGetDeviceProperties", error);
    copy_name(device->name, sizeof(device->name), properties.name);
    device->capability = properties.major * 10 + properties.minor;
    device->n_processors = properties.multiProcessorCount;
    if (device->index < MAX_DEVICES)
        __atomic_store_n(&overlaps[device->index], properties.major >= 9 ? 2 : 1, __ATOMIC_RELAXED);
    if (check_capability(device->index, &properties, error) != GPUSERVE_OK)
        return GPUSERVE_E_UNSUPPORTED;
    code = cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device->index);
    if (code != cudaSuccess)
        return gsv_cuda_fail(device->index, code, "cudaDeviceGetAttribute", error);
    device->cooperates = cooperates != 0;
    device->shared_bytes = properties.sharedMemPerBlockOptin;
    code = prepare_kernels(device->shared_bytes);
    if (code == cudaSuccess)
        code = gsv_cuda_gemm_wgmma_prepare(device->capability, &device->has_wgmma);
    if (code != cudaSuccess)
        return gsv_cuda_fail(device->index, code, "cudaFuncSetAttribute", error);
    device->lt = gsv_lt_open();
    device->chains = gsv_chains_open();
    return GPUSERVE_OK;
}

gpuserve_status gsv_cuda_device_open(struct gpuserve_device **device, int32_t index,
                                     gpuserve_error *error)
{
    struct gpuserve_device *opened;
    bool left;
    gpuserve_status status = gsv_cuda_check_lost(index, error);

    *device = NULL;
    if (status != GPUSERVE_OK)
        return status;
    opened = static_cast<struct gpuserve_device *>(calloc(1, sizeof(*opened)));
    if (!opened)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "device %d: out of memory", index);
    opened->index = index;
    opened->timeout_ms = gsv_cuda_timeout_ms();
    status = gsv_watchdog(
        index, "loading kernels", [=](gpuserve_error *e) { return open_device(opened, e); }, &left,
        error);
    if (status != GPUSERVE_OK) {
        if (!left)
            free(opened);
        return status;
    }
    *device = opened;
    return GPUSERVE_OK;
}

void gsv_cuda_device_close(struct gpuserve_device **device)
{
    if (!device || !*device)
        return;
    struct gpuserve_device *const closed = *device;

    *device = NULL;
    if (gsv_watchdog_release(closed->index, "closing the device", [=] {
            gsv_lt_close(&closed->lt);
            gsv_cudnn_close(&closed->cudnn);
            gsv_chains_close(&closed->chains);
        }))
        free(closed);
}
