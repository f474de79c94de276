/*
 * doctor_plugin.c - the layers plugin and CUDA runtime: which build of the plugin is used, and why.
 *
 * The CUDA version and the targets of a build are read from its file, which is not loaded. The
 * build that listed devices in this process is the one; else the driver's version decides, as it
 * does when the plugin is loaded.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/device.h"
#include "lib/runtime/observe/doctor_layers.h"

#include "lib/base/host/rootfs.h"
#include "lib/runtime/core/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the plugin's file; see kernels/cuda/plugin.cu. */
#define PLUGIN_KEY "gpuserve-plugin-build cuda="
#define PLUGIN_TARGETS " targets="

/* --------------------------------------------------------------------------------------- drivers
 */

/* The oldest driver that runs a CUDA version's programs, by CUDA's minor version compatibility. */
static const char *oldest_driver(int32_t cuda_major)
{
    switch (cuda_major) {
    case 11:
        return "450.80.02";
    case 12:
        return "525.60.13";
    case 13:
        return "580";
    default:
        return NULL;
    }
}

/* The driver that the plugin will find; "" if its version is unknown. */
static const char *driver_version(const struct gsv_machine *machine)
{
    const char *const version =
        machine->libcuda.version[0] ? machine->libcuda.version : machine->module;

    return strchr(version, '.') ? version : "";
}

/* The oldest driver of the plugin's CUDA, if this driver is older; else NULL. */
static const char *missed_driver(const struct gsv_machine *machine)
{
    const char *const driver = driver_version(machine);
    const char *const oldest = oldest_driver(machine->cuda_version / 1000);

    return oldest && *driver && gsv_compare_versions(driver, oldest) < 0 ? oldest : NULL;
}

static void write_cuda_version(const struct gsv_machine *machine, char text[32])
{
    snprintf(text, 32, "%d.%d", machine->cuda_version / 1000, machine->cuda_version % 1000 / 10);
}

/* --------------------------------------------------------------------------------------- builds */

static void read_build(struct gsv_machine *machine, const char *path)
{
    const int fd = gsv_rootfs_open_file(&machine->rootfs, path);
    char text[sizeof(machine->plugin_targets) + 32], *rest;

    machine->cuda_version = 0;
    machine->plugin_targets[0] = '\0';
    if (fd < 0)
        return;
    if (gsv_elf_find_text(fd, PLUGIN_KEY, text, sizeof(text))) {
        machine->cuda_version = (int32_t)strtol(text, &rest, 10);
        if (strncmp(rest, PLUGIN_TARGETS, strlen(PLUGIN_TARGETS)) == 0)
            snprintf(machine->plugin_targets, sizeof(machine->plugin_targets), "%s",
                     rest + strlen(PLUGIN_TARGETS));
    }
    close(fd);
}

static void take_build(struct gsv_machine *machine, const char *path)
{
    snprintf(machine->plugin, sizeof(machine->plugin), "%s", path);
    read_build(machine, path);
}

/* The first build that the driver is new enough for, as the library chooses it, else the last. */
static void choose_build(struct gsv_machine *machine, const char *const paths[GSV_PLUGIN_BUILDS])
{
    const char *missed = NULL;

    for (size_t i = 0; i < GSV_PLUGIN_BUILDS; i++) {
        char version[32];

        if (!paths[i])
            continue;
        write_cuda_version(machine, version);
        if (missed)
            gsv_layer_find(machine, GSV_LAYER_PLUGIN, GSV_VERDICT_OK, NULL,
                           "not %s: CUDA %s needs driver %s or newer; this one is %s",
                           strrchr(machine->plugin, '/') + 1, version, missed,
                           driver_version(machine));
        take_build(machine, paths[i]);
        missed = missed_driver(machine);
        if (!missed)
            return;
    }
}

/* The builds of a folder of a root; false if it has none. */
static bool find_builds(struct gsv_machine *machine, const char *folder)
{
    static const char *const names[GSV_PLUGIN_BUILDS] = GSV_CUDA_BUILDS;
    char path[GSV_PLUGIN_BUILDS][GSV_ROOTFS_PATH_BYTES];
    const char *found[GSV_PLUGIN_BUILDS] = { NULL };
    bool any = false;

    for (size_t i = 0; i < GSV_PLUGIN_BUILDS; i++) {
        if (snprintf(path[i], sizeof(path[i]), "%s/libgpuserve-%s.so", folder, names[i]) <
                (int)sizeof(path[i]) &&
            gsv_rootfs_find(&machine->rootfs, path[i], NULL, NULL)) {
            found[i] = path[i];
            any = true;
        }
    }
    choose_build(machine, found);
    return any;
}

/* The plugin of a root. */
static void find_plugin(struct gsv_machine *machine)
{
    const char *const variable = gsv_machine_variable(machine, "GPUSERVE_PLUGIN_DIR");
    const char *const library = machine->layers[GSV_LAYER_LIBRARY].path;
    const char *const slash = strrchr(library, '/');
    const int length = slash ? (int)(slash - library) : 0;
    char folder[GSV_ROOTFS_PATH_BYTES];

    if (variable && *variable == '/' && find_builds(machine, variable))
        return;
    if (!slash)
        return;
    snprintf(folder, sizeof(folder), "%.*s", length, library);
    if (find_builds(machine, folder))
        return;
    snprintf(folder, sizeof(folder), "%.*s/gpuserve", length, library);
    find_builds(machine, folder);
}

/* That of this process: the build that listed devices, or would. */
static void find_own_plugin(struct gsv_machine *machine, gpuserve_context *context)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    const struct gsv_plugin *const plugin = context->cuda;
    struct gsv_plugin_paths paths;
    bool is_chosen;

    pthread_mutex_lock(&context->lock);
    is_chosen = plugin->chosen && plugin->path;
    pthread_mutex_unlock(&context->lock);
    if (is_chosen) { /* what was chosen stays */
        take_build(machine, plugin->path);
        if (plugin->refusal[0])
            gsv_layer_find(machine, GSV_LAYER_PLUGIN, GSV_VERDICT_OK, NULL, "not %s",
                           plugin->refusal);
        return;
    }
    if (gsv_plugin_find(plugin, &paths, &why) == GPUSERVE_OK)
        choose_build(machine, (const char *const *)paths.all);
    else
        gsv_layer_find(machine, GSV_LAYER_PLUGIN, GSV_VERDICT_BROKEN, why.hint, "%s", why.message);
    gsv_plugin_free_paths(&paths);
}

static void judge_plugin(struct gsv_machine *machine)
{
    const char *fault;
    char number[32], version[48] = "";

    if (!machine->plugin[0]) {
        if (!machine->is_live && machine->layers[GSV_LAYER_LIBRARY].is_found)
            gsv_layer_find(machine, GSV_LAYER_PLUGIN, GSV_VERDICT_BROKEN,
                           "install the CUDA plugin: a wheel or package that was built with CUDA",
                           "libgpuserve-cuda.so is not installed with %s",
                           machine->layers[GSV_LAYER_LIBRARY].path);
        return;
    }
    write_cuda_version(machine, number);
    if (machine->cuda_version > 0)
        snprintf(version, sizeof(version), "CUDA %s", number);
    fault = gsv_machine_check_file(machine, machine->plugin, strrchr(machine->plugin, '/') + 1);
    if (fault)
        gsv_layer_find(machine, GSV_LAYER_PLUGIN, GSV_VERDICT_BROKEN, "install the plugin again",
                       "%s: %s", machine->plugin, fault);
    gsv_layer_found(machine, GSV_LAYER_PLUGIN, machine->plugin, version);
}

void gsv_machine_judge_plugin(struct gsv_machine *machine, gpuserve_context *context)
{
    if (machine->is_live)
        find_own_plugin(machine, context);
    else
        find_plugin(machine);
    judge_plugin(machine);
}

void gsv_machine_judge_runtime(struct gsv_machine *machine)
{
    const char *const oldest = missed_driver(machine);
    char version[32];

    if (!machine->plugin[0])
        return;
    write_cuda_version(machine, version);
    gsv_layer_found(machine, GSV_LAYER_CUDART, machine->plugin,
                    machine->cuda_version ? version : "");
    if (!oldest)
        return;
    gsv_layer_find(machine, GSV_LAYER_CUDART, GSV_VERDICT_BROKEN,
                   machine->cuda_version < 13000
                       ? "update the driver, or install the cuda-compat package of the plugin's "
                         "CUDA (data-center GPUs)"
                       : "update the driver, install the cuda-compat package of the plugin's CUDA "
                         "(data-center GPUs), or add libgpuserve-cuda12.so, which needs driver "
                         "525.60.13 or newer, to the plugin's folder",
                   "CUDA %s needs driver %s or newer; this one is %s", version, oldest,
                   driver_version(machine));
}
