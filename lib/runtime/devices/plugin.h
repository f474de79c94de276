/*
 * plugin.h - a backend plugin: search, load and check of a shared object.
 */
#ifndef GSV_RUNTIME_PLUGIN_H
#define GSV_RUNTIME_PLUGIN_H

#include <gpuserve/sys/backend.h>

#include <stdbool.h>

struct gsv_plugin {
    const char *name; /* "cuda": the file is libgpuserve-cuda.so */
    char *dir;        /* from the context's options, or NULL */
    void *handle;     /* NULL until loaded */
    const struct gpuserve_backend *backend;
};

/* `dir` is copied and may be NULL. Loads nothing. */
gpuserve_status gsv_plugin_init(struct gsv_plugin *plugin, const char *name, const char *dir,
                                gpuserve_error *error);
void gsv_plugin_close(struct gsv_plugin *plugin);

/* Find, load and check the plugin once; GPUSERVE_E_DEVICE names the missing layer. A failure is not
 * cached, since the plugin may be installed while the process runs. The caller holds the context's
 * lock. */
gpuserve_status gsv_plugin_load(struct gsv_plugin *plugin, gpuserve_error *error);

/* Path of the file that gsv_plugin_load() loads: the first that exists in its folders. Owned:
 * free(). GPUSERVE_E_DEVICE names the folders, and *path is NULL. */
gpuserve_status gsv_plugin_find(const struct gsv_plugin *plugin, char **path,
                                gpuserve_error *error);

/* Check that a backend matches this library and has no empty slot. `from` is for the message. */
gpuserve_status gsv_backend_check(const struct gpuserve_backend *backend, const char *from,
                                  gpuserve_error *error);

#endif
