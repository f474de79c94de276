/*
 * nvml.c - a fake libnvidia-ml.so.1 with canned machines, selected by GPUSERVE_FAKE_MACHINE:
 *
 *   one         one GPU
 *   eight       eight GPUs with different load and memory, NVLink within each half
 *   mixed       an older GPU before a newer one on the bus
 *   mig         a GPU in MIG mode with two MIG devices, and one without MIG
 *   virtual     a vGPU
 *   lost        the second of two GPUs fell off the bus
 *   exclusive   a GPU used exclusively by one process, and one in prohibited mode
 *   crowded     a GPU with 300 processes
 *   hang        counting the GPUs never returns
 *   no-module   the kernel driver is not loaded
 *   mismatch    kernel driver and library have different versions
 *
 * Also built as a driver from before MIG (OLD), without the newer functions. Structs and numbers
 * are from NVIDIA's documentation; in the tests nvidia-ml-py reads this library.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
#define GIB (1ull << 30)

enum {
    OK = 0,
    INVALID = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    SMALL = 7,
    NO_MODULE = 9,
    LOST = 15,
    MISMATCH = 18
};

struct gpu {
    const char *uuid, *name;
    int bus, capability, load, temperature, watts;
    unsigned long long total, used;
    unsigned pid;         /* of the first process on it, or 0 */
    unsigned n_more;      /* further processes, of the numbers that follow */
    int n_mig, first_mig; /* MIG devices: elements of the machine from first_mig on */
    int compute_mode;
    bool is_lost, is_virtual, is_mig, no_load;
};

struct machine {
    const char *name;
    int n;
    struct gpu gpus[8];
};

#define H200 "NVIDIA H200"
static const struct machine machines[] = {
    { "one",
      1,
      { { "GPU-11111111-1111-1111-1111-111111111111", H200, 0x0f, 90, 12, 41, 115, 141 * GIB,
          2 * GIB, 1 } } },
    { "eight",
      8,
      { { "GPU-80000000-0000-0000-0000-000000000000", H200, 0x0f, 90, 97, 71, 690, 141 * GIB,
          130 * GIB, 1 },
        { "GPU-80000001-0000-0000-0000-000000000001", H200, 0x2d, 90, 30, 51, 300, 141 * GIB,
          60 * GIB, 1 },
        { "GPU-80000002-0000-0000-0000-000000000002", H200, 0x44, 90, 49, 50, 350, 141 * GIB,
          1 * GIB, 1 },
        { "GPU-80000003-0000-0000-0000-000000000003", H200, 0x5b, 90, 0, 30, 75, 141 * GIB,
          70 * GIB },
        { "GPU-81000004-0000-0000-0000-000000000004", H200, 0x89, 90, 10, 33, 90, 141 * GIB,
          5 * GIB },
        { "GPU-81000005-0000-0000-0000-000000000005", H200, 0xa8, 90, 50, 60, 400, 141 * GIB, 0 },
        { "GPU-81000006-0000-0000-0000-000000000006", H200, 0xc0, 90, 0, 29, 70, 141 * GIB,
          90 * GIB },
        { "GPU-81000007-0000-0000-0000-000000000007", H200, 0xd8, 90, 0, 0, 70, 141 * GIB,
          141 * GIB, .no_load = true } } },
    { "mixed",
      2,
      { { "GPU-aaaaaaaa-0000-0000-0000-000000000000", "NVIDIA A100-SXM4-80GB", 0x07, 80, 0, 30, 60,
          80 * GIB, 1 * GIB },
        { "GPU-bbbbbbbb-0000-0000-0000-000000000001", H200, 0x0f, 90, 0, 30, 75, 141 * GIB,
          1 * GIB } } },
    { "mig",
      2,
      { { "GPU-cccccccc-0000-0000-0000-000000000000", "NVIDIA A100-SXM4-80GB", 0x07, 80, 0, 30, 60,
          80 * GIB, 30 * GIB, .n_mig = 2, .first_mig = 2, .no_load = true },
        { "GPU-dddddddd-0000-0000-0000-000000000001", "NVIDIA A100-SXM4-80GB", 0x0f, 80, 0, 30, 60,
          80 * GIB, 1 * GIB },
        { "MIG-eeeeeeee-0000-0000-0000-000000000002", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", 0x07, 80,
          0, 0, 0, 39 * GIB, 4 * GIB, .is_mig = true, .no_load = true },
        { "MIG-ffffffff-0000-0000-0000-000000000003", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 0x07, 80,
          0, 0, 0, 9 * GIB, 1 * GIB, .is_mig = true, .no_load = true } } },
    { "virtual",
      1,
      { { "GPU-22222222-0000-0000-0000-000000000000", "NVIDIA A16-8Q", 0x02, 86, 3, 0, 0, 8 * GIB,
          3 * GIB, .is_virtual = true } } },
    { "lost",
      2,
      { { "GPU-33333333-0000-0000-0000-000000000000", H200, 0x0f, 90, 1, 41, 115, 141 * GIB,
          2 * GIB },
        { "GPU-33333333-0000-0000-0000-000000000001", H200, 0x2d, 90, 0, 0, 0, 141 * GIB, 0,
          .is_lost = true } } },
    { "exclusive",
      2,
      { { "GPU-44444444-0000-0000-0000-000000000000", H200, 0x0f, 90, 0, 41, 115, 141 * GIB,
          2 * GIB, 1, .compute_mode = 3 },
        { "GPU-55555555-0000-0000-0000-000000000001", H200, 0x2d, 90, 0, 41, 115, 141 * GIB, 0,
          .compute_mode = 2 } } },
    { "crowded",
      1,
      { { "GPU-77777777-0000-0000-0000-000000000000", H200, 0x0f, 90, 0, 41, 115, 141 * GIB,
          2 * GIB, 1, .n_more = 299 } } },
    { "hang",
      1,
      { { "GPU-66666666-0000-0000-0000-000000000000", H200, 0x0f, 90, 0, 0, 0, GIB, 0 } } },
};

static const char *machine_name(void)
{
    const char *name = getenv("GPUSERVE_FAKE_MACHINE");

    return name ? name : "one";
}

static const struct machine *the_machine(void)
{
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        if (strcmp(machines[i].name, machine_name()) == 0)
            return &machines[i];
    }
    return &machines[0];
}

/* Handles start at 1, so that NULL is invalid. */
static const struct gpu *of(void *device)
{
    return &the_machine()->gpus[(size_t)device - 1];
}

static int copy(char *to, unsigned size, const char *from)
{
    if (strlen(from) >= size)
        return SMALL;
    strcpy(to, from);
    return OK;
}

SHOWN int nvmlInit_v2(void);
SHOWN int nvmlInit_v2(void)
{
    if (strcmp(machine_name(), "no-module") == 0)
        return NO_MODULE;
    return strcmp(machine_name(), "mismatch") == 0 ? MISMATCH : OK;
}

SHOWN int nvmlInitWithFlags(unsigned flags);
SHOWN int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return nvmlInit_v2();
}

SHOWN int nvmlShutdown(void);
SHOWN int nvmlShutdown(void)
{
    return OK;
}

SHOWN const char *nvmlErrorString(int code);
SHOWN const char *nvmlErrorString(int code)
{
    return code == OK ? "Success" : "canned failure";
}

SHOWN int nvmlSystemGetDriverVersion(char *version, unsigned size);
SHOWN int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
#ifdef OLD
    return copy(version, size, "418.40.04");
#else
    return copy(version, size, "580.65.06");
#endif
}

SHOWN int nvmlDeviceGetCount_v2(unsigned *count);
SHOWN int nvmlDeviceGetCount_v2(unsigned *count)
{
    while (strcmp(machine_name(), "hang") == 0)
        pause();
    *count = (unsigned)the_machine()->n;
    return OK;
}

SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    const struct machine *machine = the_machine();

    if (index >= (unsigned)machine->n)
        return INVALID;
    *device = (void *)(size_t)(index + 1);
    return machine->gpus[index].is_lost ? LOST : OK;
}

SHOWN int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size);
SHOWN int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    return copy(uuid, size, of(device)->uuid);
}

SHOWN int nvmlDeviceGetName(void *device, char *name, unsigned size);
SHOWN int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    return copy(name, size, of(device)->name);
}

struct memory {
    unsigned long long total, free, used;
};

SHOWN int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
SHOWN int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    const struct gpu *gpu = of(device);

    *memory = (struct memory){ gpu->total, gpu->total - gpu->used, gpu->used };
    return OK;
}

struct utilization {
    unsigned gpu, memory;
};

SHOWN int nvmlDeviceGetUtilizationRates(void *device, struct utilization *use);
SHOWN int nvmlDeviceGetUtilizationRates(void *device, struct utilization *use)
{
    if (of(device)->no_load)
        return NOT_SUPPORTED;
    *use = (struct utilization){ (unsigned)of(device)->load, 1 };
    return OK;
}

SHOWN int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
SHOWN int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    if (of(device)->temperature == 0 || sensor != 0)
        return NOT_SUPPORTED;
    *celsius = (unsigned)of(device)->temperature;
    return OK;
}

SHOWN int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
SHOWN int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    if (of(device)->watts == 0)
        return NOT_SUPPORTED;
    *milliwatts = (unsigned)of(device)->watts * 1000;
    return OK;
}

#ifndef OLD
SHOWN int nvmlSystemGetCudaDriverVersion(int *version);
SHOWN int nvmlSystemGetCudaDriverVersion(int *version)
{
    *version = 13000;
    return OK;
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

SHOWN int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);
SHOWN int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
    memset(pci, 0, sizeof(*pci));
    pci->bus = (unsigned)of(device)->bus;
    snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", pci->bus);
    return OK;
}

SHOWN int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts);
SHOWN int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    if (of(device)->watts == 0)
        return NOT_SUPPORTED;
    *milliwatts = 700000;
    return OK;
}

SHOWN int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
SHOWN int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    *major = of(device)->capability / 10;
    *minor = of(device)->capability % 10;
    return OK;
}

SHOWN int nvmlDeviceGetComputeMode(void *device, int *mode);
SHOWN int nvmlDeviceGetComputeMode(void *device, int *mode)
{
    *mode = of(device)->compute_mode;
    return OK;
}

SHOWN int nvmlDeviceGetVirtualizationMode(void *device, int *mode);
SHOWN int nvmlDeviceGetVirtualizationMode(void *device, int *mode)
{
    *mode = of(device)->is_virtual ? 2 : 0;
    return OK;
}

SHOWN int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending);
SHOWN int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    if (of(device)->is_mig)
        return NOT_SUPPORTED;
    *current = *pending = of(device)->n_mig > 0;
    return OK;
}

SHOWN int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count);
SHOWN int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    (void)device;
    *count = 7;
    return OK;
}

/* Before each MIG device is an unused index. */
SHOWN int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part);
SHOWN int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part)
{
    const struct gpu *gpu = of(device);

    if (index % 2 == 0 || (int)index / 2 >= gpu->n_mig)
        return NOT_FOUND;
    *part = (void *)(size_t)(gpu->first_mig + (int)index / 2 + 1);
    return OK;
}

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

/* Pid 1 is replaced by GPUSERVE_FAKE_PID. */
SHOWN int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *list);
SHOWN int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, struct process *list)
{
    const struct gpu *gpu = of(device);
    const unsigned room = *n;
    const char *pid = getenv("GPUSERVE_FAKE_PID");

    *n = gpu->pid ? 1 + gpu->n_more : 0;
    if (room < *n)
        return SMALL;
    for (unsigned i = 0; i < *n; i++)
        list[i] = (struct process){ (pid ? (unsigned)atoi(pid) : 1) + i, gpu->used / 2, ~0u, ~0u };
    return OK;
}

SHOWN int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level);
SHOWN int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level)
{
    *level = ((size_t)a - 1) / 4 == ((size_t)b - 1) / 4 ? 40 : 50;
    return OK;
}

SHOWN int nvmlDeviceGetP2PStatus(void *a, void *b, int capability, int *status);
SHOWN int nvmlDeviceGetP2PStatus(void *a, void *b, int capability, int *status)
{
    const bool same_half = ((size_t)a - 1) / 4 == ((size_t)b - 1) / 4;

    *status = capability == 2 && !same_half ? 4 /* not supported */ : 0;
    return OK;
}
#endif
