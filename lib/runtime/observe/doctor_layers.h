/*
 * doctor_layers.h - diagnosis of the GPU stack, layer by layer, from the files of a root.
 *
 *   files of the root -> struct gsv_machine (facts) -> one function per group of layers -> findings
 *   this machine only: backends and driver, as the process sees them -> findings
 *
 * A layer's verdict is that of its worst finding. The cause is the first broken layer in the order
 * of enum gsv_layer_id. Nothing of the root is executed or loaded.
 */
#ifndef GSV_RUNTIME_DOCTOR_LAYERS_H
#define GSV_RUNTIME_DOCTOR_LAYERS_H

#include "lib/base/host/rootfs.h"
#include "lib/runtime/devices/gpu_inventory.h"
#include "lib/runtime/core/json_out.h"
#include "lib/runtime/devices/cuda_devices.h"

#include <gpuserve/context.h>

/* From the program down to the devices. Exit statuses are GSV_LAYER_EXIT_STATUS + the number, so
 * the order is part of the command line's contract: append only. */
enum gsv_layer_id {
    GSV_LAYER_PROGRAM,
    GSV_LAYER_LIBRARY,
    GSV_LAYER_PLUGIN,
    GSV_LAYER_CUBLASLT,
    GSV_LAYER_CUDNN,
    GSV_LAYER_CURAND,
    GSV_LAYER_NVRTC,
    GSV_LAYER_CUDART,
    GSV_LAYER_LIBCUDA,
    GSV_LAYER_KERNEL_MODULE,
    GSV_LAYER_DEVICE_FILES,
    GSV_LAYER_DEVICES,
    GSV_LAYER_PROCESSOR,
    GSV_LAYER_MEMORY,
    GSV_N_LAYERS
};

#define GSV_LAYER_EXIT_STATUS 10
#define GSV_MAX_FINDINGS 4

/* In rising order. */
enum gsv_verdict {
    GSV_VERDICT_OK,
    GSV_VERDICT_ABSENT,  /* not there, and not needed */
    GSV_VERDICT_WARNING, /* works, or would, with a disadvantage */
    GSV_VERDICT_BROKEN   /* ends the use of a GPU */
};

struct gsv_finding {
    enum gsv_verdict verdict;
    char text[384];
    char remedy[384];
};

struct gsv_stack_layer {
    char path[GSV_ROOTFS_PATH_BYTES]; /* "" if none was found */
    char version[64];                 /* "" if unknown */
    struct gsv_finding findings[GSV_MAX_FINDINGS];
    int32_t n_findings;
    bool is_found; /* without findings: ok if found, else absent */
};

/* A shared object as the loader or the plugin would find it. */
struct gsv_found_library {
    char path[GSV_ROOTFS_PATH_BYTES]; /* as searched: folder and name */
    char real[GSV_ROOTFS_PATH_BYTES]; /* without links */
    char version[64];                 /* of the file's name or of its wheel; "" if unknown */
    char fault_path[GSV_ROOTFS_PATH_BYTES];
    const char *fault;   /* of the first file that cannot be loaded; NULL: none */
    bool in_loader_path; /* LD_LIBRARY_PATH, ld.so.conf or the default folders */
    bool needs_ldconfig; /* in a folder of ld.so.conf, but not in ld.so.cache */
};

/* What is examined: facts from the files of one root. */
struct gsv_machine {
    struct gsv_rootfs rootfs;
    bool is_live;      /* this machine and process, not a folder */
    const char *asked; /* device selector, NULL: any */
    bool wants_gpu;    /* asked for, or the machine is set up for one */
    bool in_container;
    char *environment; /* of the root's first process; owned, NULL: none */
    size_t environment_bytes;
    struct gsv_folder_list loader;  /* the loader's path */
    struct gsv_folder_list folders; /* of one search, kept off the stack */
    char plugin[GSV_ROOTFS_PATH_BYTES];
    int32_t cuda_version;             /* 13000: toolkit of the plugin; 0: unknown */
    char plugin_targets[128];         /* "sm_80+sm_90+ptx_90"; "": unknown */
    struct gsv_found_library libcuda; /* path[0] is NUL: none */
    bool is_baked;                    /* libcuda is a file of the container's image */
    bool is_wsl;
    char module[32];                         /* version of the loaded kernel module, or "" */
    char gpu_address[GSV_PCI_ADDRESS_BYTES]; /* PCI address of the first NVIDIA GPU, or "" */
    char gpu_driver[32];                     /* the kernel driver that holds it, or "" */
    int32_t n_device_files;                  /* /dev/nvidia0, ... */
    struct gsv_gpus *gpus;                   /* owned; NULL: not read */
    bool driver_answers; /* `gpus` is the driver's answer, not read from its files */
    struct gsv_stack_layer layers[GSV_N_LAYERS];
};

/* Examines `root`, NULL: this machine. *machine is owned: gsv_machine_free(). */
gpuserve_status gsv_machine_examine(struct gsv_machine **machine, gpuserve_context *context,
                                    const char *root, const char *asked, gpuserve_error *error);
/* Finds only the plugin and the libraries of the toolkit, on this machine. */
gpuserve_status gsv_machine_find_toolkit(struct gsv_machine **machine, gpuserve_context *context,
                                         gpuserve_error *error);
void gsv_machine_free(struct gsv_machine **machine);

/* The verdict, the cause and all layers as JSON. */
struct gsv_json gsv_machine_json(const struct gsv_machine *machine);

/* Path and version of the toolkit's libraries as JSON, null for one that is not found. */
struct gsv_json gsv_machine_libraries_json(const struct gsv_machine *machine);

/* --------------------------------------------------------------------- used by the layers' files
 */

/* The value of an environment variable of the root, NULL if unset. */
const char *gsv_machine_variable(const struct gsv_machine *machine, const char *name);

/* Adds a finding. `remedy` may be NULL. In the layers of the GPU nothing is broken or worth a
 * warning while no GPU is wanted. */
void gsv_layer_find(struct gsv_machine *machine, enum gsv_layer_id id, enum gsv_verdict verdict,
                    const char *remedy, const char *format, ...) GPUSERVE_PRINTF(5, 6);
/* Says where a layer was found; `version` may be "". */
void gsv_layer_found(struct gsv_machine *machine, enum gsv_layer_id id, const char *path,
                     const char *version);
bool gsv_layer_is_broken(const struct gsv_machine *machine, enum gsv_layer_id id);

/* Finds a library in the loader's path, or for `in_toolkit` where the plugin searches too. False if
 * no loadable file was found; `fault` may then have the reason. */
bool gsv_machine_find_library(struct gsv_machine *machine, const char *name, bool in_toolkit,
                              struct gsv_found_library *found);

/* NULL for a shared object that can be loaded and whose soname is `name`: a link may lead to
 * another version; else the fault. */
const char *gsv_machine_check_file(const struct gsv_machine *machine, const char *path,
                                   const char *name);

/* The GPUs that the driver offers this root, MIG devices not counted. */
int32_t gsv_machine_whole_gpus(const struct gsv_machine *machine);

/* Driver versions such as "580.65.06": -1, 0 or 1. */
int gsv_compare_versions(const char *a, const char *b);

/* Facts, in this order; then the layers. */
void gsv_machine_read_driver(struct gsv_machine *machine);
void gsv_machine_judge_program(struct gsv_machine *machine, gpuserve_context *context);
void gsv_machine_judge_toolkit(struct gsv_machine *machine);
/* Parts of the two above. The runtime is a part of the plugin; it needs a driver that is new
 * enough.
 */
void gsv_machine_judge_plugin(struct gsv_machine *machine, gpuserve_context *context);
void gsv_machine_judge_runtime(struct gsv_machine *machine);
void gsv_machine_judge_driver(struct gsv_machine *machine);
void gsv_machine_judge_devices(struct gsv_machine *machine);
void gsv_machine_judge_host(struct gsv_machine *machine);

#endif
