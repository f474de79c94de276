/*
 * gpu_inventory.h - the GPUs of this machine as its driver sees them, whether or not CUDA shows
 * them to us.
 *
 *   libnvidia-ml.so.1 (nvml.c), else nvidia-smi (nvidia_smi.c)  --gsv_gpus_read-->  struct gsv_gpus
 *
 * Numbers are the driver's own: the order of the PCI bus. What CUDA calls 0 may be another one, or
 * be hidden: see cuda_visible_devices.h. A GPU in MIG mode is followed by its MIG devices.
 */
#ifndef GSV_RUNTIME_GPU_INVENTORY_H
#define GSV_RUNTIME_GPU_INVENTORY_H

#include <gpuserve/types.h>

#include <stdbool.h>

#define GSV_MAX_GPUS 128 /* MIG devices included */
#define GSV_MAX_GPU_PROCESSES 512
#define GSV_MAX_PEERS 32 /* GPUs in the peer matrix */
#define GSV_GPU_UNKNOWN (-1)

struct gsv_gpu {
    int32_t index;    /* the driver's; of a MIG device its GPU's */
    int32_t instance; /* of a MIG device, from 0; -1: a whole GPU */
    char uuid[96];    /* "GPU-..." or "MIG-..." */
    char name[96];
    char bus_id[32];
    uint64_t memory_bytes, memory_used_bytes, memory_free_bytes; /* all 0: not known */
    /* GSV_GPU_UNKNOWN where the driver does not say. */
    int32_t load_percent;
    int32_t temperature_celsius;
    int32_t power_milliwatts, power_limit_milliwatts;
    int32_t capability;   /* 90 for 9.0 */
    int32_t compute_mode; /* 0 shared, 2 prohibited, 3 one process only */
    int32_t n_processes;  /* that compute on it */
    bool mig_mode;        /* its MIG devices can be used, it cannot */
    bool is_virtual;      /* a vGPU: memory is the guest's share */
    bool is_lost;         /* fell off the bus, or needs a reset; the rest may be unknown */
    char fault[128];      /* why it cannot be asked, or empty */
};

struct gsv_gpu_process {
    int32_t gpu; /* element of gsv_gpus.all */
    int32_t pid;
    uint64_t memory_bytes; /* 0: not known */
    char name[64];         /* of the program, or empty */
    bool is_gpuserve;      /* it has our library mapped */
};

/* How two GPUs reach each other. */
struct gsv_peer {
    int8_t link;   /* enum gsv_link */
    int8_t access; /* 1: they can read each other's memory; -1: not known */
};

enum gsv_link {
    GSV_LINK_UNKNOWN,
    GSV_LINK_SELF,
    GSV_LINK_NVLINK,
    GSV_LINK_BOARD,  /* one board */
    GSV_LINK_SWITCH, /* one PCI switch */
    GSV_LINK_BRIDGE, /* several PCI switches, one host bridge */
    GSV_LINK_HOST,   /* one processor's host bridges */
    GSV_LINK_NODE,   /* one NUMA node */
    GSV_LINK_SYSTEM  /* across the link between processors */
};

struct gsv_gpus {
    const char *source; /* "nvml", "nvidia-smi" */
    char driver[64];
    int32_t cuda_version; /* that the driver supports: 13000; 0: not known */
    struct gsv_gpu all[GSV_MAX_GPUS];
    int32_t n;
    struct gsv_gpu_process processes[GSV_MAX_GPU_PROCESSES];
    int32_t n_processes;
    /* By gsv_gpu.index. */
    struct gsv_peer peers[GSV_MAX_PEERS][GSV_MAX_PEERS];
    int32_t n_peers;
};

/*
 * Ask the driver. *gpus is owned, freed with free(); NULL on failure.
 *
 * Takes at most some seconds: a driver that does not answer is left alone with its thread, and
 * *hangs is set, for the caller to not ask again. `detail`: processes by name and peers as well.
 */
gpuserve_status gsv_gpus_read(struct gsv_gpus **gpus, bool detail, bool *hangs,
                              gpuserve_error *error);

/* The two ways, without a limit of time in the first. Fill what is zeroed. */
gpuserve_status gsv_nvml_read(struct gsv_gpus *gpus, bool detail, gpuserve_error *error);
/* GPUSERVE_E_TIMEOUT when the program does not answer. */
gpuserve_status gsv_smi_read(struct gsv_gpus *gpus, bool detail, gpuserve_error *error);

/* One more element with everything unknown; NULL when there is no room. */
struct gsv_gpu *gsv_gpus_add(struct gsv_gpus *gpus, int32_t index);
void gsv_gpus_add_process(struct gsv_gpus *gpus, int32_t gpu, int32_t pid, uint64_t memory_bytes,
                          const char *name);

/* The element with this UUID, -1 when none. Compared without its "GPU-" or "MIG-", which CUDA and
 * the driver give differently to a MIG device, and whatever the letters' case. */
int32_t gsv_gpus_find(const struct gsv_gpus *gpus, const char *uuid);

#endif
