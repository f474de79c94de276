/*
 * doctor_devices.c - the layer devices: which GPUs the process is shown, MIG, MPS, containers.
 */
#define _GNU_SOURCE
#include "lib/runtime/observe/doctor_layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OLDEST_CAPABILITY 80 /* of kernels/cuda */

int32_t gsv_machine_whole_gpus(const struct gsv_machine *machine)
{
    int32_t n = 0;

    for (int32_t i = 0; machine->gpus && i < machine->gpus->n; i++)
        n += machine->gpus->all[i].instance < 0 && !machine->gpus->all[i].is_lost;
    return n;
}

static bool exists(const struct gsv_machine *machine, const char *path)
{
    return gsv_rootfs_find(&machine->rootfs, path, NULL, NULL);
}

/* --------------------------------------------------------------------------- CUDA_VISIBLE_DEVICES
 */

static void judge_hidden(struct gsv_machine *machine, const char *list,
                         const struct gsv_visible *visible)
{
    const char *const remedy = "give the numbers or UUIDs that nvidia-smi -L lists, separated by "
                               "commas, or unset CUDA_VISIBLE_DEVICES";

    if (visible->repeated)
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_BROKEN, remedy,
                       "CUDA_VISIBLE_DEVICES=%s names a GPU twice; CUDA shows no GPU", list);
    else if (visible->n == 0 && (*list == '\0' || strcmp(list, "-1") == 0))
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_BROKEN,
                       "unset CUDA_VISIBLE_DEVICES, or give a number",
                       "CUDA_VISIBLE_DEVICES=%s hides all GPUs", list);
    else if (visible->n == 0)
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_BROKEN, remedy,
                       "CUDA_VISIBLE_DEVICES=%s: \"%s\" is not a GPU of this machine; CUDA shows "
                       "no GPU",
                       list, visible->stopped);
    else if (visible->stopped[0])
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_WARNING, remedy,
                       "CUDA_VISIBLE_DEVICES=%s: \"%s\" is not a GPU of this machine; CUDA ignores "
                       "it and the entries after it",
                       list, visible->stopped);
}

/* The files of the driver do not list MIG devices: without the driver's answer their UUIDs are not
 * checked. */
static bool names_mig(const struct gsv_machine *machine, const char *list)
{
    return strncmp(list, "MIG-", 4) == 0 && !machine->driver_answers;
}

static void judge_visible(struct gsv_machine *machine)
{
    const char *const list = gsv_machine_variable(machine, "CUDA_VISIBLE_DEVICES");
    struct gsv_visible visible;

    if (!machine->gpus || gsv_machine_whole_gpus(machine) == 0)
        return;
    if (list && names_mig(machine, list)) {
        if (!exists(machine, "/dev/nvidia-caps"))
            gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_BROKEN,
                           "give the container the MIG device (--gpus '\"device=MIG-...\"'); on "
                           "the host run nvidia-modprobe -f",
                           "CUDA_VISIBLE_DEVICES=%s names a MIG device, but /dev/nvidia-caps is "
                           "missing",
                           list);
        return;
    }
    gsv_visible_resolve(&visible, machine->gpus, list,
                        gsv_machine_variable(machine, "CUDA_DEVICE_ORDER"));
    if (list)
        judge_hidden(machine, list, &visible);
}

/* -------------------------------------------------------------------------------------------- MIG
 */

/* Whether the driver has a MIG instance of a GPU, which then cannot be used as a whole. */
static bool has_mig_instances(const struct gsv_machine *machine)
{
    struct gsv_names gpus, instances;
    char path[128];
    bool found = false;

    if (!gsv_rootfs_list(&machine->rootfs, "/proc/driver/nvidia/capabilities", "gpu", GSV_MAX_GPUS,
                         &gpus))
        return false;
    for (size_t i = 0; i < gpus.n && !found; i++) {
        snprintf(path, sizeof(path), "/proc/driver/nvidia/capabilities/%.31s/mig", gpus.names[i]);
        if (!gsv_rootfs_list(&machine->rootfs, path, "gi", 8, &instances))
            continue;
        found = instances.n > 0;
        gsv_names_free(&instances);
    }
    gsv_names_free(&gpus);
    return found;
}

static void judge_mig(struct gsv_machine *machine)
{
    if (!has_mig_instances(machine))
        return;
    if (!exists(machine, "/dev/nvidia-caps"))
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_BROKEN,
                       "run nvidia-modprobe -f, or give the container a MIG device",
                       "a GPU is split by MIG, but /dev/nvidia-caps is missing");
    else if (!gsv_machine_variable(machine, "CUDA_VISIBLE_DEVICES"))
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_WARNING,
                       "set CUDA_VISIBLE_DEVICES to a MIG UUID of nvidia-smi -L",
                       "a GPU is split by MIG: CUDA shows a process its first MIG device only");
}

/* -------------------------------------------------------------------------------------------- MPS
 */

/* A control daemon that died leaves its folder, and CUDA then fails to initialize. */
static void judge_mps(struct gsv_machine *machine)
{
    const char *const variable = gsv_machine_variable(machine, "CUDA_MPS_PIPE_DIRECTORY");
    const char *const folder = variable ? variable : "/tmp/nvidia-mps";
    char path[GSV_ROOTFS_PATH_BYTES], text[32];
    long pid;

    if (*folder != '/' || !exists(machine, folder)) {
        if (variable)
            gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_WARNING,
                           "start nvidia-cuda-mps-control -d, or mount the folder into the "
                           "container",
                           "CUDA_MPS_PIPE_DIRECTORY=%s is not there: MPS is not used", variable);
        return;
    }
    if (snprintf(path, sizeof(path), "%s/nvidia-cuda-mps-control.pid", folder) >=
            (int)sizeof(path) ||
        gsv_rootfs_read(&machine->rootfs, path, text, sizeof(text)) == 0)
        return;
    pid = strtol(text, NULL, 10);
    snprintf(path, sizeof(path), "/proc/%ld", pid);
    if (pid > 0 && !exists(machine, path) && !machine->in_container)
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_BROKEN,
                       "start nvidia-cuda-mps-control -d again, or remove the folder",
                       "the MPS daemon of %s (process %ld) has ended", folder, pid);
}

/* ---------------------------------------------------------------------------------------- targets
 */

/* Whether the plugin has code for a GPU: that of an sm of the same major version, not newer, or
 * PTX of an older one. */
static bool has_code(const char *targets, int32_t capability)
{
    for (const char *at = targets; at; at = strchr(at, '+')) {
        const char *const number = strchr(at, '_');
        const int32_t target = number ? (int32_t)strtol(number + 1, NULL, 10) : 0;

        at += *at == '+';
        if (target > 0 && target <= capability &&
            (strncmp(at, "ptx_", 4) == 0 || target / 10 == capability / 10))
            return true;
    }
    return false;
}

static void judge_targets(struct gsv_machine *machine)
{
    const struct gsv_gpu *without = NULL;
    bool any_works = false;

    if (!machine->gpus || !machine->plugin_targets[0])
        return;
    for (int32_t i = 0; i < machine->gpus->n; i++) {
        const struct gsv_gpu *const gpu = &machine->gpus->all[i];

        if (gpu->capability <= 0 || has_code(machine->plugin_targets, gpu->capability))
            any_works = true;
        else if (!without)
            without = gpu;
    }
    if (without)
        gsv_layer_find(machine, GSV_LAYER_PLUGIN,
                       any_works ? GSV_VERDICT_WARNING : GSV_VERDICT_BROKEN,
                       without->capability < OLDEST_CAPABILITY
                           ? "use the device cpu: gpuserve needs a GPU of sm_80 (Ampere) or newer"
                           : "install a plugin for this GPU: the released wheel, or build with "
                             "-Dgpu_targets=release",
                       "the plugin has no code for sm_%d (%s) and no PTX that the driver could "
                       "compile for it; it has %s",
                       without->capability, without->name, machine->plugin_targets);
}

/* ------------------------------------------------------------------------------------- Kubernetes
 */

/* The images of CUDA set NVIDIA_VISIBLE_DEVICES=all; where the runtime is the default one, a pod
 * without a request then sees every GPU of its node. */
static void judge_pod(struct gsv_machine *machine)
{
    const char *const wanted = gsv_machine_variable(machine, "NVIDIA_VISIBLE_DEVICES");

    if (gsv_machine_variable(machine, "KUBERNETES_SERVICE_HOST") && wanted &&
        strcmp(wanted, "all") == 0 && machine->n_device_files > 0)
        gsv_layer_find(machine, GSV_LAYER_DEVICES, GSV_VERDICT_WARNING,
                       "request GPUs (resources.limits nvidia.com/gpu); set "
                       "NVIDIA_VISIBLE_DEVICES=void in pods without a request",
                       "the pod sees all GPUs of its node (NVIDIA_VISIBLE_DEVICES=all), whatever "
                       "it requested");
}

void gsv_machine_judge_devices(struct gsv_machine *machine)
{
    const int32_t n = gsv_machine_whole_gpus(machine);
    char text[64];

    snprintf(text, sizeof(text), "%d GPU%s", n, n == 1 ? "" : "s");
    if (n > 0 && machine->wants_gpu)
        gsv_layer_found(machine, GSV_LAYER_DEVICES, "", text);
    for (int32_t i = 0; machine->gpus && i < machine->gpus->n; i++) {
        const struct gsv_gpu *const gpu = &machine->gpus->all[i];

        if (gpu->is_lost)
            gsv_layer_find(machine, GSV_LAYER_DEVICES,
                           n > 0 ? GSV_VERDICT_WARNING : GSV_VERDICT_BROKEN,
                           "see the kernel log (dmesg | grep -i xid) and restart the machine",
                           "GPU %s (%s): %s", gpu->bus_id, gpu->name, gpu->fault);
    }
    judge_visible(machine);
    judge_targets(machine);
    judge_mig(machine);
    judge_mps(machine);
    judge_pod(machine);
}
