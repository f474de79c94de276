/*
 * nvml.c - queries the driver through NVML, its management library.
 *
 * The library is loaded for each query and unloaded afterwards, so a process without a GPU
 * keeps nothing of it. Not every toolkit has its header, so this file declares the functions as
 * NVIDIA documents them. A function that an older driver lacks leaves its values unknown.
 */
#include "lib/runtime/devices/gpu_inventory.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"

/* nvmlReturn_t */
#define NVML_OK 0
#define NVML_NOT_SUPPORTED 3
#define NVML_NO_PERMISSION 4
#define NVML_INSUFFICIENT_SIZE 7
#define NVML_DRIVER_NOT_LOADED 9
#define NVML_GPU_IS_LOST 15
#define NVML_RESET_REQUIRED 16
#define NVML_VERSION_MISMATCH 18

typedef void *nvml_device;

struct nvml_nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_utilization {
    unsigned int gpu, memory;
};

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

/* For nvmlDeviceGetComputeRunningProcesses_v2 and _v3. */
struct nvml_process {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
};

#define USUAL_PROCESSES 128    /* for one GPU */
#define MAX_PROCESS_LIST 65536 /* more are counted, not listed */
#define MORE_PROCESSES 32      /* that may start between two calls */
#define NO_MEMORY_FIGURE (~0ull)

struct nvml {
    void *handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *, unsigned int);
    int (*cuda_version)(int *);
    int (*count)(unsigned int *);
    int (*by_index)(unsigned int, nvml_device *);
    int (*uuid)(nvml_device, char *, unsigned int);
    int (*name)(nvml_device, char *, unsigned int);
    int (*pci)(nvml_device, struct nvml_pci *);
    int (*memory)(nvml_device, struct nvml_nvml_memory *);
    int (*utilization)(nvml_device, struct nvml_utilization *);
    int (*temperature)(nvml_device, int, unsigned int *);
    int (*power)(nvml_device, unsigned int *);
    int (*power_limit)(nvml_device, unsigned int *);
    int (*capability)(nvml_device, int *, int *);
    int (*compute_mode)(nvml_device, int *);
    int (*virtualization)(nvml_device, int *);
    int (*mig_mode)(nvml_device, unsigned int *, unsigned int *);
    int (*mig_max)(nvml_device, unsigned int *);
    int (*mig_by_index)(nvml_device, unsigned int, nvml_device *);
    int (*processes)(nvml_device, unsigned int *, struct nvml_process *);
    int (*ancestor)(nvml_device, nvml_device, int *);
    int (*p2p)(nvml_device, nvml_device, int, int *);
};

/* ------------------------------------------------------------------------------------ loading */

#define NEEDED true
#define SYMBOL(field, name, needed)                \
    {                                              \
        name, offsetof(struct nvml, field), needed \
    }

static const struct {
    const char *name;
    size_t offset;
    bool needed;
} symbols[] = {
    SYMBOL(init, "nvmlInit_v2", NEEDED),
    SYMBOL(shutdown, "nvmlShutdown", NEEDED),
    SYMBOL(driver_version, "nvmlSystemGetDriverVersion", false),
    SYMBOL(cuda_version, "nvmlSystemGetCudaDriverVersion", false),
    SYMBOL(count, "nvmlDeviceGetCount_v2", NEEDED),
    SYMBOL(by_index, "nvmlDeviceGetHandleByIndex_v2", NEEDED),
    SYMBOL(uuid, "nvmlDeviceGetUUID", NEEDED),
    SYMBOL(name, "nvmlDeviceGetName", NEEDED),
    SYMBOL(pci, "nvmlDeviceGetPciInfo_v3", false),
    SYMBOL(memory, "nvmlDeviceGetMemoryInfo", NEEDED),
    SYMBOL(utilization, "nvmlDeviceGetUtilizationRates", false),
    SYMBOL(temperature, "nvmlDeviceGetTemperature", false),
    SYMBOL(power, "nvmlDeviceGetPowerUsage", false),
    SYMBOL(power_limit, "nvmlDeviceGetEnforcedPowerLimit", false),
    SYMBOL(capability, "nvmlDeviceGetCudaComputeCapability", false),
    SYMBOL(compute_mode, "nvmlDeviceGetComputeMode", false),
    SYMBOL(virtualization, "nvmlDeviceGetVirtualizationMode", false),
    SYMBOL(mig_mode, "nvmlDeviceGetMigMode", false),
    SYMBOL(mig_max, "nvmlDeviceGetMaxMigDeviceCount", false),
    SYMBOL(mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex", false),
    SYMBOL(processes, "nvmlDeviceGetComputeRunningProcesses_v3", false),
    SYMBOL(ancestor, "nvmlDeviceGetTopologyCommonAncestor", false),
    SYMBOL(p2p, "nvmlDeviceGetP2PStatus", false),
};

static gpuserve_status load(struct nvml *nvml, gpuserve_error *error)
{
    memset(nvml, 0, sizeof(*nvml));
    nvml->handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->handle) {
        gsv_fail(error, GPUSERVE_E_DEVICE,
                 "the NVIDIA driver is not installed: " LIBRARY " cannot be loaded");
        return gsv_hint(error, GPUSERVE_E_DEVICE,
                        "install the NVIDIA driver; in a container, start it with --gpus all");
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(nvml->handle, symbols[i].name);

        memcpy((char *)nvml + symbols[i].offset, &symbol, sizeof(symbol));
        if (!symbol && symbols[i].needed) {
            gsv_fail(error, GPUSERVE_E_DEVICE, LIBRARY " has no function %s", symbols[i].name);
            dlclose(nvml->handle);
            return gsv_hint(error, GPUSERVE_E_DEVICE, "update the NVIDIA driver");
        }
    }
    if (!nvml->processes) { /* the same struct under an older name */
        void *symbol = dlsym(nvml->handle, "nvmlDeviceGetComputeRunningProcesses_v2");

        memcpy(&nvml->processes, &symbol, sizeof(symbol));
    }
    return GPUSERVE_OK;
}

static gpuserve_status fail_call(int code, const char *call, gpuserve_error *error)
{
    const gpuserve_status st = GPUSERVE_E_DEVICE;

    gsv_fail(error, st, "NVML error %d from %s", code, call);
    switch (code) {
    case NVML_DRIVER_NOT_LOADED:
        gsv_fail(error, st, "the NVIDIA kernel driver is not loaded (NVML error %d from %s)", code,
                 call);
        return gsv_hint(error, st, "load the driver (modprobe nvidia), or restart the machine");
    case NVML_NO_PERMISSION:
        return gsv_hint(error, st, "give the process access to /dev/nvidiactl");
    case NVML_VERSION_MISMATCH:
        gsv_fail(error, st,
                 "the NVIDIA kernel driver and " LIBRARY
                 " have different versions (NVML error %d from %s)",
                 code, call);
        return gsv_hint(error, st, "restart the machine after a driver update");
    default:
        return gsv_hint(error, st, "check nvidia-smi and the kernel log (dmesg | grep -i xid)");
    }
}

/* -------------------------------------------------------------------------------------- facts */

static void read_identity(const struct nvml *nvml, nvml_device device, struct gsv_gpu *gpu)
{
    struct nvml_pci pci = { 0 };

    nvml->uuid(device, gpu->uuid, sizeof(gpu->uuid));
    nvml->name(device, gpu->name, sizeof(gpu->name));
    if (nvml->pci && nvml->pci(device, &pci) == NVML_OK)
        snprintf(gpu->bus_id, sizeof(gpu->bus_id), "%.*s", (int)sizeof(pci.bus_id) - 1, pci.bus_id);
}

/* Query a single value. */
static int32_t ask(int (*call)(nvml_device, unsigned int *), nvml_device device)
{
    unsigned int value = 0;

    return call && call(device, &value) == NVML_OK && value <= INT32_MAX ? (int32_t)value
                                                                         : GSV_GPU_UNKNOWN;
}

static void read_figures(const struct nvml *nvml, nvml_device device, struct gsv_gpu *gpu)
{
    struct nvml_nvml_memory memory = { 0 };
    struct nvml_utilization use = { 0 };
    unsigned int value = 0;
    int major = 0, minor = 0, mode = 0;

    if (nvml->memory(device, &memory) == NVML_OK) {
        gpu->memory_bytes = memory.total;
        gpu->memory_used_bytes = memory.used;
        gpu->memory_free_bytes = memory.free;
    }
    if (nvml->utilization && nvml->utilization(device, &use) == NVML_OK)
        gpu->load_percent = (int32_t)(use.gpu <= 100 ? use.gpu : 100);
    if (nvml->temperature && nvml->temperature(device, 0, &value) == NVML_OK && value < 1000)
        gpu->temperature_celsius = (int32_t)value;
    gpu->power_milliwatts = ask(nvml->power, device);
    gpu->power_limit_milliwatts = ask(nvml->power_limit, device);
    if (nvml->capability && nvml->capability(device, &major, &minor) == NVML_OK)
        gpu->capability = major * 10 + minor;
    if (nvml->compute_mode && nvml->compute_mode(device, &mode) == NVML_OK)
        gpu->compute_mode = mode;
    if (nvml->virtualization && nvml->virtualization(device, &mode) == NVML_OK)
        gpu->is_virtual = mode == 2; /* NVML_GPU_VIRTUALIZATION_MODE_VGPU */
}

static void add_processes(struct gsv_gpus *gpus, int32_t gpu, const struct nvml_process *list,
                          unsigned int n)
{
    for (unsigned int i = 0; i < n; i++)
        gsv_gpus_add_process(gpus, gpu, (int32_t)list[i].pid,
                             list[i].memory == NO_MEMORY_FIGURE ? 0 : list[i].memory, NULL);
}

/* For more than USUAL_PROCESSES, `n` at the last call. */
static void add_many_processes(const struct nvml *nvml, nvml_device device, struct gsv_gpus *gpus,
                               int32_t gpu, unsigned int n)
{
    struct nvml_process *list;

    if (n > MAX_PROCESS_LIST)
        return;
    n += MORE_PROCESSES;
    list = gsv_alloc_array(n, sizeof(*list));
    if (list && nvml->processes(device, &n, list) == NVML_OK) {
        gpus->all[gpu].n_processes = (int32_t)n;
        add_processes(gpus, gpu, list, n);
    }
    free(list);
}

static void read_processes(const struct nvml *nvml, nvml_device device, struct gsv_gpus *gpus,
                           int32_t gpu, bool detail)
{
    struct nvml_process list[USUAL_PROCESSES];
    unsigned int n = USUAL_PROCESSES;
    const int code = nvml->processes ? nvml->processes(device, &n, list) : NVML_NOT_SUPPORTED;

    /* If the list is too short the driver returns the number all the same. */
    if ((code != NVML_OK && code != NVML_INSUFFICIENT_SIZE) || n > INT32_MAX)
        return;
    gpus->all[gpu].n_processes = (int32_t)n;
    if (detail && code == NVML_OK)
        add_processes(gpus, gpu, list, n);
    else if (detail)
        add_many_processes(nvml, device, gpus, gpu, n);
}

/* Append the MIG devices of a GPU to the list. */
static void read_mig(const struct nvml *nvml, nvml_device device, struct gsv_gpus *gpus,
                     int32_t parent, bool detail)
{
    unsigned int current = 0, pending = 0, max_devices = 0;
    int32_t instance = 0;

    if (!nvml->mig_mode || !nvml->mig_max || !nvml->mig_by_index ||
        nvml->mig_mode(device, &current, &pending) != NVML_OK || current == 0 ||
        nvml->mig_max(device, &max_devices) != NVML_OK)
        return;
    gpus->all[parent].mig_mode = true;
    for (unsigned int i = 0; i < max_devices; i++) {
        nvml_device part;
        struct gsv_gpu *gpu;

        if (nvml->mig_by_index(device, i, &part) != NVML_OK)
            continue; /* the numbers may have gaps */
        gpu = gsv_gpus_add(gpus, gpus->all[parent].index);
        if (!gpu)
            return;
        gpu->instance = instance++;
        read_identity(nvml, part, gpu);
        read_figures(nvml, part, gpu);
        memcpy(gpu->bus_id, gpus->all[parent].bus_id, sizeof(gpu->bus_id));
        if (gpu->capability < 0)
            gpu->capability = gpus->all[parent].capability;
        read_processes(nvml, part, gpus, gpus->n - 1, detail);
    }
}

static void read_gpu(const struct nvml *nvml, unsigned int index, struct gsv_gpus *gpus,
                     bool detail)
{
    struct gsv_gpu *gpu = gsv_gpus_add(gpus, (int32_t)index);
    const int32_t at = gpus->n - 1;
    nvml_device device;
    int code;

    if (!gpu)
        return;
    code = nvml->by_index(index, &device);
    if (code != NVML_OK) {
        gpu->is_lost = code == NVML_GPU_IS_LOST || code == NVML_RESET_REQUIRED;
        snprintf(gpu->fault, sizeof(gpu->fault), "%s (NVML error %d)",
                 code == NVML_GPU_IS_LOST      ? "fell off the bus"
                 : code == NVML_RESET_REQUIRED ? "requires a reset"
                 : code == NVML_NO_PERMISSION  ? "no permission"
                                               : "query failed",
                 code);
        return;
    }
    read_identity(nvml, device, gpu);
    read_figures(nvml, device, gpu);
    read_processes(nvml, device, gpus, at, detail);
    read_mig(nvml, device, gpus, at, detail);
}

/* -------------------------------------------------------------------------------------- peers */

static int8_t link_of(int level)
{
    switch (level) { /* nvmlGpuTopologyLevel_t */
    case 0:
        return GSV_LINK_BOARD;
    case 10:
        return GSV_LINK_SWITCH;
    case 20:
        return GSV_LINK_BRIDGE;
    case 30:
        return GSV_LINK_HOST;
    case 40:
        return GSV_LINK_NODE;
    case 50:
        return GSV_LINK_SYSTEM;
    default:
        return GSV_LINK_UNKNOWN;
    }
}

static struct gsv_peer read_peer(const struct nvml *nvml, nvml_device a, nvml_device b)
{
    enum { CAPS_READ = 0, CAPS_NVLINK = 2, P2P_OK = 0 };
    struct gsv_peer peer = { GSV_LINK_UNKNOWN, -1 };
    int value = 0;

    if (nvml->ancestor && nvml->ancestor(a, b, &value) == NVML_OK)
        peer.link = link_of(value);
    if (!nvml->p2p)
        return peer;
    if (nvml->p2p(a, b, CAPS_NVLINK, &value) == NVML_OK && value == P2P_OK)
        peer.link = GSV_LINK_NVLINK;
    if (nvml->p2p(a, b, CAPS_READ, &value) == NVML_OK)
        peer.access = value == P2P_OK;
    return peer;
}

static void read_peers(const struct nvml *nvml, struct gsv_gpus *gpus, unsigned int n)
{
    gpus->n_peers = (int32_t)(n < GSV_MAX_PEERS ? n : GSV_MAX_PEERS);
    for (int32_t i = 0; i < gpus->n_peers; i++) {
        for (int32_t j = 0; j < gpus->n_peers; j++) {
            struct gsv_peer *peer = &gpus->peers[i][j];
            nvml_device a, b;

            *peer = (struct gsv_peer){ GSV_LINK_UNKNOWN, -1 };
            if (i == j)
                *peer = (struct gsv_peer){ GSV_LINK_SELF, 1 };
            else if (nvml->by_index((unsigned int)i, &a) == NVML_OK &&
                     nvml->by_index((unsigned int)j, &b) == NVML_OK)
                *peer = read_peer(nvml, a, b);
        }
    }
}

/* --------------------------------------------------------------------------------------- read */

static gpuserve_status read_all(const struct nvml *nvml, struct gsv_gpus *gpus, bool detail,
                                gpuserve_error *error)
{
    unsigned int n = 0;
    int version = 0;
    const int code = nvml->count(&n);

    if (code != NVML_OK)
        return fail_call(code, "nvmlDeviceGetCount_v2", error);
    gpus->source = "nvml";
    if (nvml->driver_version)
        nvml->driver_version(gpus->driver, sizeof(gpus->driver));
    if (nvml->cuda_version && nvml->cuda_version(&version) == NVML_OK)
        gpus->cuda_version = version;
    for (unsigned int i = 0; i < n && i < GSV_MAX_GPUS; i++)
        read_gpu(nvml, i, gpus, detail);
    if (detail)
        read_peers(nvml, gpus, n);
    return GPUSERVE_OK;
}

gpuserve_status gsv_nvml_read(struct gsv_gpus *gpus, bool detail, gpuserve_error *error)
{
    struct nvml nvml;
    gpuserve_status st = load(&nvml, error);
    int code;

    if (st != GPUSERVE_OK)
        return st;
    code = nvml.init();
    if (code == NVML_OK) {
        st = read_all(&nvml, gpus, detail, error);
        nvml.shutdown();
    } else {
        st = fail_call(code, "nvmlInit_v2", error);
    }
    dlclose(nvml.handle);
    return st;
}
