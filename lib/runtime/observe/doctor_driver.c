/*
 * doctor_driver.c - the layers libcuda, kernel module and device files.
 *
 *   /proc/driver/nvidia/version, /sys/module/nvidia    the loaded kernel module
 *   /proc/driver/nvidia/gpus                           its GPUs, with UUIDs
 *   /sys/bus/pci/devices                               GPUs without a driver
 *   libcuda.so.1 in the loader's path                  the driver's library
 *   /proc/1/mountinfo                                  whether a container has it from its host
 */
#define _GNU_SOURCE
#include "lib/runtime/observe/doctor_layers.h"

#include "lib/base/alloc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES 65536

static bool reads(const struct gsv_machine *machine, const char *path, char *text, size_t capacity)
{
    return gsv_rootfs_read(&machine->rootfs, path, text, capacity) > 0;
}

static bool exists(const struct gsv_machine *machine, const char *path)
{
    return gsv_rootfs_find(&machine->rootfs, path, NULL, NULL);
}

/* ---------------------------------------------------------------------------------------- module
 */

/* The first word of digits and dots, "580.65.06", after the words "Kernel Module". */
static void read_module_version(struct gsv_machine *machine)
{
    char text[1024];
    const char *at;

    if (reads(machine, "/sys/module/nvidia/version", text, sizeof(text)) &&
        strspn(text, "0123456789.") > 0) {
        snprintf(machine->module, sizeof(machine->module), "%.*s", (int)strspn(text, "0123456789."),
                 text);
        return;
    }
    if (!reads(machine, "/proc/driver/nvidia/version", text, sizeof(text)))
        return;
    at = strstr(text, "Kernel Module");
    while (at && *at && *at != '\n') {
        const size_t length = strspn(at, "0123456789.");

        if (length > 3 && memchr(at, '.', length)) {
            snprintf(machine->module, sizeof(machine->module), "%.*s",
                     (int)(length < 31 ? length : 31), at);
            return;
        }
        at += length > 0 ? length : 1;
    }
}

/* The first NVIDIA display controller on the PCI bus, and the kernel driver that holds it. */
static void read_pci(struct gsv_machine *machine)
{
    char path[128];

    if (!gsv_find_nvidia_pci(&machine->rootfs, machine->gpu_address))
        return;
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.31s/driver", machine->gpu_address);
    gsv_rootfs_link_name(&machine->rootfs, path, machine->gpu_driver, sizeof(machine->gpu_driver));
}

/* ------------------------------------------------------------------------------------------ GPUs
 */

/* Copies the value of a line "Key:   value" of /proc/driver/nvidia/gpus/N/information. */
static void read_field(const char *text, const char *key, char *value, size_t capacity)
{
    const char *at = strstr(text, key);

    value[0] = '\0';
    if (!at)
        return;
    at += strlen(key);
    at += strspn(at, " \t");
    snprintf(value, capacity, "%.*s", (int)strcspn(at, "\n"), at);
}

/* The compute capability by PCI device id, of GPUs since Volta: the driver's files do not have it.
 */
static int32_t capability_of(long id)
{
    static const struct {
        long first, last;
        int32_t capability;
    } chips[] = {
        { 0x1d80, 0x1dff, 70 },  { 0x1e00, 0x1fff, 75 },  { 0x2080, 0x20ff, 80 },
        { 0x2180, 0x21ff, 75 },  { 0x2200, 0x22ff, 86 },  { 0x2300, 0x23ff, 90 },
        { 0x2400, 0x25ff, 86 },  { 0x2600, 0x28ff, 89 },  { 0x2900, 0x297f, 100 },
        { 0x2b80, 0x2fff, 120 }, { 0x3180, 0x31ff, 103 },
    };

    for (size_t i = 0; i < sizeof(chips) / sizeof(chips[0]); i++) {
        if (id >= chips[i].first && id <= chips[i].last)
            return chips[i].capability;
    }
    return GSV_GPU_UNKNOWN;
}

static void read_gpu(struct gsv_machine *machine, const char *address)
{
    char path[160], text[2048], value[32];
    struct gsv_gpu *gpu;

    snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%.63s/information", address);
    if (!reads(machine, path, text, sizeof(text)))
        return;
    gpu = gsv_gpus_add(machine->gpus, machine->gpus->n);
    if (!gpu)
        return;
    read_field(text, "Model:", gpu->name, sizeof(gpu->name));
    read_field(text, "GPU UUID:", gpu->uuid, sizeof(gpu->uuid));
    read_field(text, "Bus Location:", gpu->bus_id, sizeof(gpu->bus_id));
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.63s/device", address);
    if (reads(machine, path, value, sizeof(value)))
        gpu->capability = capability_of(strtol(value, NULL, 16));
    read_field(text, "Device Minor:", value, sizeof(value));
    snprintf(path, sizeof(path), "/dev/nvidia%.8s", value);
    if (value[0] && !exists(machine, path) && machine->in_container)
        machine->gpus->n--; /* of the host, not given to this container */
    read_field(text, "GPU Excluded:", value, sizeof(value));
    if (strcmp(value, "Yes") == 0) {
        gpu->is_lost = true;
        snprintf(gpu->fault, sizeof(gpu->fault), "the driver excludes it");
    }
}

static void read_gpus(struct gsv_machine *machine)
{
    struct gsv_names names;

    machine->gpus = gsv_alloc_array(1, sizeof(*machine->gpus));
    if (!machine->gpus ||
        !gsv_rootfs_list(&machine->rootfs, "/proc/driver/nvidia/gpus", "", GSV_MAX_GPUS, &names))
        return;
    for (size_t i = 0; i < names.n; i++)
        read_gpu(machine, names.names[i]);
    gsv_names_free(&names);
}

static void count_device_files(struct gsv_machine *machine)
{
    struct gsv_names names;

    if (!gsv_rootfs_list(&machine->rootfs, "/dev", "nvidia", GSV_MAX_GPUS, &names))
        return;
    for (size_t i = 0; i < names.n; i++) {
        const char *const number = names.names[i] + strlen("nvidia");

        if (*number && number[strspn(number, "0123456789")] == '\0')
            machine->n_device_files++;
    }
    gsv_names_free(&names);
}

/* --------------------------------------------------------------------------------------- libcuda
 */

/* Where container runtimes and toolkits put the library outside of the loader's path. */
static void find_outside_loader(struct gsv_machine *machine)
{
    static const char *const folders[] = { "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                                           "/usr/lib/wsl/lib", "/usr/local/cuda/compat" };
    struct gsv_found_library *const found = &machine->libcuda;

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(found->path, sizeof(found->path), "%s/libcuda.so.1", folders[i]);
        if (!gsv_rootfs_find(&machine->rootfs, found->path, found->real, NULL))
            continue;
        snprintf(found->version, sizeof(found->version), "%.63s",
                 strstr(found->real, ".so.") ? strstr(found->real, ".so.") + 4 : "");
        return;
    }
    found->path[0] = '\0';
}

/* Whether a line of mountinfo mounts `path` or a folder of it, other than the root. */
static bool is_mounted(const char *mounts, const char *path)
{
    for (const char *line = mounts; *line;) {
        char point[GSV_ROOTFS_PATH_BYTES];
        const size_t length = strcspn(line, "\n");
        size_t n;

        if (sscanf(line, "%*s %*s %*s %*s %1023s", point) == 1) {
            n = strlen(point);
            if (n > 1 && strncmp(path, point, n) == 0 && (path[n] == '/' || path[n] == '\0'))
                return true;
        }
        line += length + (line[length] == '\n');
    }
    return false;
}

/* A container has the driver's library from its host by a mount. A library of the image itself fits
 * one driver version only. */
static bool is_baked(const struct gsv_machine *machine)
{
    char *mounts;
    bool result = false;

    if (!machine->in_container || !machine->libcuda.path[0] ||
        strstr(machine->libcuda.real, "/compat/") || strstr(machine->libcuda.real, "/stubs/"))
        return false;
    mounts = gsv_alloc_array(TEXT_BYTES, 1);
    if (mounts && reads(machine, machine->is_live ? "/proc/self/mountinfo" : "/proc/1/mountinfo",
                        mounts, TEXT_BYTES))
        result = !is_mounted(mounts, machine->libcuda.real);
    free(mounts);
    return result;
}

void gsv_machine_read_driver(struct gsv_machine *machine)
{
    read_module_version(machine);
    read_pci(machine);
    machine->is_wsl = exists(machine, "/dev/dxg");
    read_gpus(machine);
    count_device_files(machine);
    if (!gsv_machine_find_library(machine, "libcuda.so.1", false, &machine->libcuda))
        find_outside_loader(machine);
    machine->is_baked = is_baked(machine);
}

/* ---------------------------------------------------------------------------------- judge: libcuda
 */

#define START_CONTAINER                                                                        \
    "start the container with GPUs: docker run --gpus all, or in Kubernetes resources.limits " \
    "nvidia.com/gpu; the host needs the NVIDIA container toolkit"

static void judge_missing_libcuda(struct gsv_machine *machine)
{
    const char *const capabilities = gsv_machine_variable(machine, "NVIDIA_DRIVER_CAPABILITIES");

    if (machine->libcuda.fault)
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN,
                       machine->in_container
                           ? "remove the file from the image: the container runtime mounts the "
                             "host's driver"
                           : "install the driver again",
                       "%s: %s", machine->libcuda.fault_path, machine->libcuda.fault);
    else if (machine->n_device_files > 0 && capabilities && !strstr(capabilities, "compute") &&
             !strstr(capabilities, "all"))
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN,
                       "set NVIDIA_DRIVER_CAPABILITIES=compute,utility in the container",
                       "NVIDIA_DRIVER_CAPABILITIES=%s leaves out libcuda.so.1", capabilities);
    else if (machine->in_container)
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN, START_CONTAINER,
                       "the container has no libcuda.so.1");
    else
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN,
                       "install the NVIDIA driver with its CUDA library (on Debian libcuda1, on "
                       "Ubuntu libnvidia-compute-VERSION)",
                       "libcuda.so.1 is in no folder of the loader");
}

static void judge_loader_path(struct gsv_machine *machine)
{
    const struct gsv_found_library *const library = &machine->libcuda;

    if (library->needs_ldconfig)
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN, "run ldconfig",
                       "%s is not in the loader's cache", library->path);
    else if (!library->in_loader_path && strstr(library->path, "/compat/"))
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN, START_CONTAINER,
                       "only the cuda-compat library %s is there, no driver", library->path);
    else if (!library->in_loader_path)
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN,
                       "add its folder to LD_LIBRARY_PATH, or to /etc/ld.so.conf.d and run "
                       "ldconfig",
                       "%s is mounted, but the loader does not search its folder", library->path);
}

/* cuda-compat is a newer libcuda for an older kernel module; otherwise both have one version. */
static void judge_versions(struct gsv_machine *machine)
{
    const struct gsv_found_library *const library = &machine->libcuda;
    const bool is_compat = strstr(library->real, "/compat/") != NULL;
    int order;

    if (!machine->module[0] || !strchr(library->version, '.'))
        return;
    order = gsv_compare_versions(library->version, machine->module);
    if (order == 0)
        return;
    if (is_compat && order < 0)
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN,
                       "remove the folder of cuda-compat from LD_LIBRARY_PATH or from "
                       "/etc/ld.so.conf.d",
                       "cuda-compat %s at %s is older than the kernel module %s", library->version,
                       library->path, machine->module);
    else if (is_compat)
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_WARNING,
                       "update the driver if CUDA error 804 is reported",
                       "cuda-compat %s runs on kernel module %s: data-center GPUs only",
                       library->version, machine->module);
    else if (machine->is_baked)
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN,
                       "remove the driver from the image; the container runtime mounts the host's",
                       "the image has its own driver library %s, the host's kernel module is %s",
                       library->version, machine->module);
    else
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN,
                       "restart the machine, so that the kernel module of the installed driver is "
                       "loaded",
                       "libcuda.so.1 is version %s, the loaded kernel module %s", library->version,
                       machine->module);
}

static void judge_libcuda(struct gsv_machine *machine)
{
    const struct gsv_found_library *const library = &machine->libcuda;

    if (!library->path[0]) {
        judge_missing_libcuda(machine);
        return;
    }
    gsv_layer_found(machine, GSV_LAYER_LIBCUDA, library->path, library->version);
    if (strstr(library->path, "/stubs/") || strstr(library->real, "/stubs/"))
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_BROKEN,
                       "remove the stubs folder from the loader's path",
                       "%s is the toolkit's stub for linking, not a driver", library->path);
    judge_loader_path(machine);
    judge_versions(machine);
    if (machine->is_baked && !gsv_layer_is_broken(machine, GSV_LAYER_LIBCUDA))
        gsv_layer_find(machine, GSV_LAYER_LIBCUDA, GSV_VERDICT_WARNING,
                       "remove the driver from the image; the container runtime mounts the host's",
                       "%s is a file of the image: it fails with the next driver of the host",
                       library->path);
}

/* ---------------------------------------------------------------------------------- judge: module
 */

/* The module is built for each kernel. */
static bool is_built_for_another_kernel(const struct gsv_machine *machine, char release[128],
                                        char other[128])
{
    static const char *const below[] = { "updates/dkms/nvidia.ko", "extra/nvidia.ko",
                                         "kernel/drivers/video/nvidia.ko",
                                         "kernel/nvidia/nvidia.ko" };
    static const char *const endings[] = { "", ".zst", ".xz", ".gz" };
    char path[512];
    struct gsv_names names;

    other[0] = '\0';
    if (!reads(machine, "/proc/sys/kernel/osrelease", release, 128))
        return false;
    release[strcspn(release, "\n")] = '\0';
    if (!gsv_rootfs_list(&machine->rootfs, "/lib/modules", "", 64, &names))
        return false;
    for (size_t i = 0; i < names.n; i++) {
        for (size_t k = 0; k < 16; k++) {
            snprintf(path, sizeof(path), "/lib/modules/%.255s/%s%s", names.names[i], below[k / 4],
                     endings[k % 4]);
            if (!exists(machine, path))
                continue;
            snprintf(other, 128, "%.127s", names.names[i]);
            if (strcmp(other, release) == 0) {
                gsv_names_free(&names);
                return false;
            }
        }
    }
    gsv_names_free(&names);
    return other[0] != '\0';
}

static void judge_missing_module(struct gsv_machine *machine)
{
    char release[128] = "", other[128] = "";

    if (machine->in_container)
        gsv_layer_find(machine, GSV_LAYER_KERNEL_MODULE, GSV_VERDICT_BROKEN,
                       "install the NVIDIA driver on the host, or run on a host with a GPU",
                       "the container's host has no loaded NVIDIA kernel module");
    else if (strcmp(machine->gpu_driver, "nouveau") == 0)
        gsv_layer_find(machine, GSV_LAYER_KERNEL_MODULE, GSV_VERDICT_BROKEN,
                       "blacklist nouveau (/etc/modprobe.d), rebuild the initramfs and restart",
                       "the GPU %s is held by nouveau", machine->gpu_address);
    else if (strcmp(machine->gpu_driver, "vfio-pci") == 0)
        gsv_layer_find(machine, GSV_LAYER_KERNEL_MODULE, GSV_VERDICT_BROKEN,
                       "run gpuserve in the virtual machine, or unbind the GPU from vfio-pci",
                       "the GPU %s is given to a virtual machine (vfio-pci)", machine->gpu_address);
    else if (is_built_for_another_kernel(machine, release, other))
        gsv_layer_find(machine, GSV_LAYER_KERNEL_MODULE, GSV_VERDICT_BROKEN,
                       "install the headers of the running kernel and run dkms autoinstall, or "
                       "start the other kernel",
                       "the module is built for kernel %s, but kernel %s runs", other, release);
    else
        gsv_layer_find(machine, GSV_LAYER_KERNEL_MODULE, GSV_VERDICT_BROKEN,
                       "load it (modprobe nvidia) and see the kernel log if that fails: with "
                       "Secure Boot the module must be signed",
                       "the kernel module nvidia is not loaded");
}

/* "name " at the start of a line of /proc/modules. */
static bool has_module(const char *modules, const char *name)
{
    const size_t length = strlen(name);
    const char *line = modules;

    while (line) {
        if (strncmp(line, name, length) == 0 && line[length] == ' ')
            return true;
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return false;
}

static void judge_uvm(struct gsv_machine *machine)
{
    char *modules = gsv_alloc_array(TEXT_BYTES, 1);

    if (modules && reads(machine, "/proc/modules", modules, TEXT_BYTES) &&
        has_module(modules, "nvidia") && !has_module(modules, "nvidia_uvm"))
        gsv_layer_find(machine, GSV_LAYER_KERNEL_MODULE, GSV_VERDICT_BROKEN,
                       "load it: modprobe nvidia-uvm, or nvidia-modprobe -u -c 0",
                       "the kernel module nvidia_uvm is not loaded; CUDA needs it");
    free(modules);
}

static void judge_module(struct gsv_machine *machine)
{
    if (machine->is_wsl) {
        gsv_layer_found(machine, GSV_LAYER_KERNEL_MODULE, "/dev/dxg", "WSL");
        return;
    }
    if (machine->module[0]) {
        gsv_layer_found(machine, GSV_LAYER_KERNEL_MODULE, "/proc/driver/nvidia/version",
                        machine->module);
        judge_uvm(machine);
        return;
    }
    if (machine->wants_gpu)
        judge_missing_module(machine);
    else if (machine->gpu_address[0] && !machine->in_container && !machine->asked)
        gsv_layer_find(machine, GSV_LAYER_KERNEL_MODULE, GSV_VERDICT_ABSENT,
                       "install the NVIDIA driver to use it",
                       "an NVIDIA GPU is at %s, without NVIDIA's driver", machine->gpu_address);
}

/* ---------------------------------------------------------------------------- judge: device files
 */

/* The permission bits of a root. On this machine the file is opened, as CUDA does: a control group
 * may deny a device that the bits allow. */
static bool is_usable(const struct gsv_machine *machine, const char *path)
{
    struct stat info;

    if (machine->is_live) {
        const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);

        if (fd >= 0)
            close(fd);
        return fd >= 0;
    }
    return gsv_rootfs_find(&machine->rootfs, path, NULL, &info) && (info.st_mode & 06) == 06;
}

static void judge_missing_files(struct gsv_machine *machine, bool has_control, bool has_uvm)
{
    gsv_layer_find(machine, GSV_LAYER_DEVICE_FILES, GSV_VERDICT_BROKEN,
                   machine->in_container ? START_CONTAINER
                                         : "create them: nvidia-modprobe -c 0 -u, or run "
                                           "nvidia-smi as root once",
                   "missing:%s%s%s", has_control ? "" : " /dev/nvidiactl",
                   has_uvm ? "" : " /dev/nvidia-uvm",
                   machine->n_device_files > 0 ? "" : " /dev/nvidia0");
}

static void judge_access(struct gsv_machine *machine, const char *path)
{
    if (machine->wants_gpu && exists(machine, path) && !is_usable(machine, path))
        gsv_layer_find(machine, GSV_LAYER_DEVICE_FILES, GSV_VERDICT_BROKEN,
                       "give the user access (chmod 666, or the group of the file); start a "
                       "container with --gpus, which also allows the device",
                       "%s cannot be opened for reading and writing", path);
}

static void judge_device_files(struct gsv_machine *machine)
{
    const bool has_control = exists(machine, "/dev/nvidiactl");
    const bool has_uvm = exists(machine, "/dev/nvidia-uvm");
    const int32_t n = machine->n_device_files;
    char text[64];

    if (machine->is_wsl) {
        gsv_layer_found(machine, GSV_LAYER_DEVICE_FILES, "/dev/dxg", "");
        return;
    }
    snprintf(text, sizeof(text), "%d GPU%s", n, n == 1 ? "" : "s");
    if (n > 0)
        gsv_layer_found(machine, GSV_LAYER_DEVICE_FILES, "/dev/nvidia*", text);
    if (!has_control || !has_uvm || n == 0)
        judge_missing_files(machine, has_control, has_uvm);
    judge_access(machine, "/dev/nvidiactl");
    judge_access(machine, "/dev/nvidia-uvm");
    if (n > 0 && !machine->in_container && gsv_machine_whole_gpus(machine) > n)
        gsv_layer_find(machine, GSV_LAYER_DEVICE_FILES, GSV_VERDICT_WARNING,
                       "create it: nvidia-modprobe -c NUMBER",
                       "the driver has %d GPUs, /dev has files for %d",
                       gsv_machine_whole_gpus(machine), n);
}

void gsv_machine_judge_driver(struct gsv_machine *machine)
{
    judge_libcuda(machine);
    judge_module(machine);
    judge_device_files(machine);
}
