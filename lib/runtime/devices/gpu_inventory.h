/*
 * gpu_inventory.h - the GPUs of this machine as the NVIDIA driver lists them, visible to CUDA or
 * not.
 *
 *   libnvidia-ml.so.1 (nvml.c), else nvidia-smi (nvidia_smi.c)  --gsv_gpus_read-->  struct gsv_gpus
 *
 * Numbers are the driver's: PCI bus order. CUDA may number the GPUs differently or hide some
 * (cuda_devices.h). A GPU in MIG mode is followed by its MIG devices.
 */
#ifndef GSV_RUNTIME_GPU_INVENTORY_H
#define GSV_RUNTIME_GPU_INVENTORY_H

#include "lib/base/host/rootfs.h"

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stddef.h>

#define GSV_MAX_GPUS 128 /* MIG devices included */
#define GSV_MAX_GPU_PROCESSES 512
#define GSV_MAX_PEERS 32 /* GPUs in the peer matrix */
#define GSV_GPU_UNKNOWN (-1)

struct gsv_gpu {
    int32_t index;    /* the driver's number; of a MIG device: its GPU's */
    int32_t instance; /* MIG device number, from 0; -1: a whole GPU */
    char uuid[96];    /* "GPU-..." or "MIG-..." */
    char name[96];
    char bus_id[32];
    uint64_t memory_bytes, memory_used_bytes, memory_free_bytes; /* all 0: unknown */
    /* GSV_GPU_UNKNOWN if the driver does not report them. */
    int32_t load_percent;
    int32_t temperature_celsius;
    int32_t power_milliwatts, power_limit_milliwatts;
    int32_t capability;   /* 90 for 9.0 */
    int32_t compute_mode; /* 0 shared, 2 prohibited, 3 one process only */
    int32_t n_processes;  /* compute processes on it */
    bool mig_mode;        /* only its MIG devices are usable */
    bool is_virtual;      /* a vGPU: memory is the guest's share */
    bool is_lost;         /* fell off the bus, or needs a reset; other fields may be unknown */
    char fault[128];      /* error of its query, or empty */
};

struct gsv_gpu_process {
    int32_t gpu; /* index in gsv_gpus.all */
    int32_t pid;
    uint64_t memory_bytes; /* 0: unknown */
    char name[64];         /* of the program, or empty */
    bool is_gpuserve;      /* it maps libgpuserve */
};

/* Connection of two GPUs. */
struct gsv_peer {
    int8_t link;   /* enum gsv_gpu_link */
    int8_t access; /* 1: they can read each other's memory; -1: unknown */
};

enum gsv_gpu_link {
    GSV_LINK_UNKNOWN,
    GSV_LINK_SELF,
    GSV_LINK_NVLINK,
    GSV_LINK_BOARD,  /* same board */
    GSV_LINK_SWITCH, /* same PCI switch */
    GSV_LINK_BRIDGE, /* several PCI switches, same host bridge */
    GSV_LINK_HOST,   /* same processor, several host bridges */
    GSV_LINK_NODE,   /* same NUMA node */
    GSV_LINK_SYSTEM  /* across the link between processors */
};

struct gsv_gpus {
    const char *source; /* "nvml", "nvidia-smi" */
    char driver[64];
    int32_t cuda_version; /* maximum that the driver supports: 13000; 0: unknown */
    struct gsv_gpu all[GSV_MAX_GPUS];
    int32_t n;
    struct gsv_gpu_process processes[GSV_MAX_GPU_PROCESSES];
    int32_t n_processes;
    /* Indexed by gsv_gpu.index. */
    struct gsv_peer peers[GSV_MAX_PEERS][GSV_MAX_PEERS];
    int32_t n_peers;
};

/*
 * Query the driver. *gpus is owned, freed with free(); NULL on failure.
 *
 * Takes a few seconds at most. A driver that does not answer is abandoned with its thread, and
 * *hangs is set: the caller must not query again. `detail`: process names and peers, too.
 */
gpuserve_status gsv_gpus_read(struct gsv_gpus **gpus, bool detail, bool *hangs,
                              gpuserve_error *error);

/* The two sources; the first has no time limit. Both fill a zeroed struct. */
gpuserve_status gsv_nvml_read(struct gsv_gpus *gpus, bool detail, gpuserve_error *error);
/* GPUSERVE_E_TIMEOUT if the program does not answer. */
gpuserve_status gsv_smi_read(struct gsv_gpus *gpus, bool detail, gpuserve_error *error);

/* Append an element with all fields unknown; NULL if the array is full. */
struct gsv_gpu *gsv_gpus_add(struct gsv_gpus *gpus, int32_t index);
void gsv_gpus_add_process(struct gsv_gpus *gpus, int32_t gpu, int32_t pid, uint64_t memory_bytes,
                          const char *name);

/* Index of the GPU with this UUID, -1 for none. Compares case-insensitively and without the "GPU-"
 * or "MIG-" prefix, which CUDA and the driver report differently for a MIG device. */
int32_t gsv_gpus_find(const struct gsv_gpus *gpus, const char *uuid);

/* The PCI address of the first NVIDIA display controller, from the files of a root. False: none.
 * `address` has GSV_PCI_ADDRESS_BYTES. */
#define GSV_PCI_ADDRESS_BYTES 32
bool gsv_find_nvidia_pci(const struct gsv_rootfs *rootfs, char *address);

/* The root has an NVIDIA device: a PCI display controller, a device file, a loaded driver, or WSL's
 * device. Reads files only and asks no driver. A root that cannot be opened counts as having one.
 */
bool gsv_has_nvidia_device(const char *root);

#endif
