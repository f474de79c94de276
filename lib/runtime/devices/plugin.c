/*
 * plugin.c - loads a backend from a shared object.
 *
 * Search order: the context's plugin_dir, GPUSERVE_PLUGIN_DIR, the folder of this library. A bare
 * name is never used: the loader's search path is not trusted. The first folder that has a build of
 * the plugin is the one whose builds are tried.
 *
 * A plugin stays mapped once loaded (RTLD_NODELETE), because its runtime libraries do not support
 * being unloaded and loaded again. For the same reason the host struct that it keeps is constant.
 * Its log lines go to the context that the logging thread works for (gsv_log_scope).
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/device.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/core/context.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct gpuserve_host host = {
    .struct_size = sizeof(host),
    .abi = GPUSERVE_BACKEND_ABI,
    .log = gsv_log_in_scope,
};

#define SLOT(member)                                       \
    {                                                      \
#member, offsetof(struct gpuserve_backend, member) \
    }

static const struct {
    const char *name;
    size_t offset;
} slots[] = {
    SLOT(device_count),
    SLOT(device_facts),
    SLOT(device_open),
    SLOT(device_close),
    SLOT(device_check),
    SLOT(activation_size),
    SLOT(table_size),
    SLOT(linear_bytes),
    SLOT(stream_bytes),
    SLOT(memory_alloc),
    SLOT(memory_free),
    SLOT(memory_write),
    SLOT(memory_read),
    SLOT(memory_write_floats),
    SLOT(memory_write_table),
    SLOT(host_alloc),
    SLOT(host_free),
    SLOT(transfer),
    SLOT(int8_scales),
    SLOT(int8_copies),
    SLOT(linear_create),
    SLOT(linear_destroy),
    SLOT(linear_move),
    SLOT(stream_create),
    SLOT(stream_destroy),
    SLOT(batch_begin),
    SLOT(batch_end),
    SLOT(stream_wait),
    SLOT(prefetch),
    SLOT(embed),
    SLOT(linear),
    SLOT(add_norm),
    SLOT(rotate),
    SLOT(glu),
    SLOT(route),
    SLOT(add_scaled),
    SLOT(attention),
    SLOT(pool),
    SLOT(normalize),
    SLOT(activate),
    SLOT(max_sim),
    SLOT(compact),
    SLOT(matmul_bytes),
    SLOT(matmul),
    SLOT(chain),
    SLOT(lstm_layer_bytes),
    SLOT(lstm_layer_create),
    SLOT(lstm_max_bytes),
    SLOT(lstm_layer_destroy),
    SLOT(lstm_layer_move),
    SLOT(lstm_bytes),
    SLOT(lstm),
    SLOT(random),
};

#define N_SLOTS (sizeof(slots) / sizeof(slots[0]))

/* A new slot of struct gpuserve_backend must be added here. */
_Static_assert(offsetof(struct gpuserve_backend, device_count) + N_SLOTS * sizeof(void (*)(void)) ==
                   sizeof(struct gpuserve_backend),
               "slots[] lists every slot of struct gpuserve_backend");

gpuserve_status gsv_backend_check(const struct gpuserve_backend *backend, const char *from,
                                  gpuserve_error *error)
{
    if (backend->abi != GPUSERVE_BACKEND_ABI || backend->struct_size < sizeof(*backend)) {
        gsv_fail(
            error, GPUSERVE_E_DEVICE,
            "%s: the plugin has backend ABI %u (%u bytes), this library needs ABI %u (%zu bytes)",
            from, backend->abi, backend->struct_size, GPUSERVE_BACKEND_ABI, sizeof(*backend));
        return gsv_hint(error, GPUSERVE_E_DEVICE, "install the plugin of this library's version");
    }
    for (size_t i = 0; i < N_SLOTS; i++) {
        void (*slot)(void);

        memcpy(&slot, (const char *)backend + slots[i].offset, sizeof(slot));
        if (!slot)
            return gsv_fail(error, GPUSERVE_E_DEVICE, "%s: the operation `%s` is missing", from,
                            slots[i].name);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_plugin_init(struct gsv_plugin *plugin,
                                const char *const names[GSV_PLUGIN_BUILDS], const char *dir,
                                gpuserve_error *error)
{
    for (size_t i = 0; i < GSV_PLUGIN_BUILDS; i++)
        plugin->builds[i].name = names[i];
    if (!dir)
        return GPUSERVE_OK;
    plugin->dir = gsv_copy_text(dir, strlen(dir));
    return plugin->dir ? GPUSERVE_OK
                       : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for plugin_dir");
}

void gsv_plugin_close(struct gsv_plugin *plugin)
{
    for (size_t i = 0; i < GSV_PLUGIN_BUILDS; i++) {
        if (plugin->builds[i].handle)
            dlclose(plugin->builds[i].handle);
    }
    free(plugin->path);
    free(plugin->dir);
    memset(plugin, 0, sizeof(*plugin));
}

/* The folder that this code was loaded from; `length` is 0 if unknown. */
static const char *own_folder(int *length)
{
    Dl_info info;
    const char *slash;

    *length = 0;
    if (!dladdr(&host, &info) || !info.dli_fname)
        return "";
    slash = strrchr(info.dli_fname, '/');
    if (!slash)
        return "";
    *length = (int)(slash - info.dli_fname);
    return info.dli_fname;
}

struct plugin_folder {
    const char *dir;
    int length; /* 0: not set */
    const char *below;
};

#define N_FOLDERS 4

static gpuserve_status fail_missing(const struct gsv_plugin *plugin,
                                    const struct plugin_folder *folders, size_t n,
                                    gpuserve_error *error)
{
    char list[400] = "";
    size_t at = 0;

    for (size_t i = 0; i < n && at < sizeof(list); i++) {
        if (folders[i].length > 0)
            at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%.*s%s", at > 0 ? ", " : "",
                                   folders[i].length, folders[i].dir, folders[i].below);
    }
    gsv_fail(error, GPUSERVE_E_DEVICE, "the plugin is missing: libgpuserve-%s.so is not in %s",
             plugin->builds[0].name, list);
    return gsv_hint(error, GPUSERVE_E_DEVICE,
                    "install the %s plugin next to the library, or set plugin_dir or "
                    "GPUSERVE_PLUGIN_DIR to its folder",
                    plugin->builds[0].name);
}

void gsv_plugin_free_paths(struct gsv_plugin_paths *paths)
{
    for (size_t i = 0; i < GSV_PLUGIN_BUILDS; i++)
        free(paths->all[i]);
    memset(paths, 0, sizeof(*paths));
}

/* The builds in one folder; *found tells whether there is one. */
static gpuserve_status look_in(const struct gsv_plugin *plugin, const struct plugin_folder *folder,
                               struct gsv_plugin_paths *paths, bool *found, gpuserve_error *error)
{
    for (size_t i = 0; i < GSV_PLUGIN_BUILDS; i++) {
        if (asprintf(&paths->all[i], "%.*s%s/libgpuserve-%s.so", folder->length, folder->dir,
                     folder->below, plugin->builds[i].name) < 0) {
            paths->all[i] = NULL;
            gsv_plugin_free_paths(paths);
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a path");
        }
        if (access(paths->all[i], F_OK) == 0) {
            *found = true;
            continue;
        }
        free(paths->all[i]);
        paths->all[i] = NULL;
    }
    return GPUSERVE_OK;
}

/* The last folder is where `meson install` puts the plugin. */
gpuserve_status gsv_plugin_find(const struct gsv_plugin *plugin, struct gsv_plugin_paths *paths,
                                gpuserve_error *error)
{
    const char *variable = secure_getenv("GPUSERVE_PLUGIN_DIR");
    int length;
    const char *const own = own_folder(&length);
    const struct plugin_folder folders[N_FOLDERS] = {
        { plugin->dir, plugin->dir ? (int)strlen(plugin->dir) : 0, "" },
        { variable, variable ? (int)strlen(variable) : 0, "" },
        { own, length, "" },
        { own, length, "/gpuserve" },
    };
    gpuserve_status st = GPUSERVE_OK;
    bool found = false;

    memset(paths, 0, sizeof(*paths));
    for (size_t i = 0; i < N_FOLDERS && st == GPUSERVE_OK && !found; i++) {
        if (folders[i].length > 0)
            st = look_in(plugin, &folders[i], paths, &found, error);
    }
    return st != GPUSERVE_OK || found ? st : fail_missing(plugin, folders, N_FOLDERS, error);
}

/* Report dlerror() with a hint. */
static gpuserve_status fail_to_load(const char *path, gpuserve_error *error)
{
    const char *why = dlerror();

    gsv_fail(error, GPUSERVE_E_DEVICE, "the plugin cannot be loaded: %s", why ? why : path);
    return gsv_hint(error, GPUSERVE_E_DEVICE,
                    "install the missing library, or add its folder to the loader's path");
}

gpuserve_status gsv_plugin_load(struct gsv_plugin *plugin, size_t build, const char *path,
                                const struct gpuserve_backend **out, gpuserve_error *error)
{
    struct gsv_plugin_build *const one = &plugin->builds[build];
    gpuserve_backend_entry_fn entry;
    const struct gpuserve_backend *backend;
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    void *handle = NULL, *symbol;
    gpuserve_status st;

    *out = one->backend;
    if (one->backend)
        return GPUSERVE_OK;
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return fail_to_load(path, error);
    symbol = dlsym(handle, GPUSERVE_BACKEND_ENTRY);
    if (!symbol) {
        st = gsv_fail(error, GPUSERVE_E_DEVICE, "%s: not a gpuserve plugin: symbol %s is missing",
                      path, GPUSERVE_BACKEND_ENTRY);
        goto out;
    }
    memcpy(&entry, &symbol, sizeof(entry));
    backend = entry(&host, &why);
    if (!backend) {
        st =
            gsv_fail(error, GPUSERVE_E_DEVICE, "%s: %s", path,
                     why.message[0] ? why.message : "the plugin failed to start without a message");
        gsv_hint(error, st, "%s", why.hint);
        goto out;
    }
    st = gsv_backend_check(backend, path, error);
    if (st != GPUSERVE_OK)
        goto out;
    one->handle = handle;
    one->backend = *out = backend;
    handle = NULL;
out:
    if (handle)
        dlclose(handle);
    return st;
}

bool gsv_plugin_choose(struct gsv_plugin *plugin, size_t build, const char *path,
                       const char *refusal)
{
    if (plugin->chosen)
        return false;
    plugin->path = gsv_copy_text(path, strlen(path)); /* NULL, out of memory: a report lacks it */
    snprintf(plugin->refusal, sizeof(plugin->refusal), "%s", refusal);
    plugin->chosen = &plugin->builds[build];
    return true;
}
