/*
 * device.h - resolves a device selector ("auto", "cpu", "cuda:0", a UUID) to devices.
 */
#ifndef GSV_RUNTIME_DEVICE_H
#define GSV_RUNTIME_DEVICE_H

#include <gpuserve/gpuserve.h>
#include <gpuserve/sys/backend.h>

#include <stdbool.h>

struct gsv_device_choice {
    const struct gpuserve_backend *backend;
    struct gpuserve_device_facts facts;
    bool is_cpu;
    bool was_auto;      /* not named explicitly */
    uint64_t mps_bytes; /* maximum that MPS allows a process there; 0: no limit */
    char reason[GPUSERVE_ERROR_TEXT_BYTES]; /* reason for this choice */
};

/* As gpuserve_device_select(). */
gpuserve_status gsv_device_choose(gpuserve_context *context, const char *selector,
                                  struct gsv_device_choice *choice, gpuserve_error *error);

/* All devices of a selector: several for "cuda:*", "cuda:0,cuda:1" and "auto:limit=N". *choices is
 * owned, freed with free(); *n is at least 1 on success. leaves_out: "cuda:*" skips devices that do
 * not work with a warning, as long as one works; otherwise it fails. */
gpuserve_status gsv_device_choose_all(gpuserve_context *context, const char *selector,
                                      bool leaves_out, struct gsv_device_choice **choices,
                                      size_t *n, gpuserve_error *error);

/* "cpu" or "cuda:0": the selector of this device alone. */
void gsv_device_selector(const struct gsv_device_choice *choice, char *selector, size_t capacity);

/* Number of devices of the plugin's backend, and that of the build that fits the driver. 0 and
 * GPUSERVE_E_DEVICE, which names the missing layer; *backend is NULL if no build could be loaded.
 */
gpuserve_status gsv_device_cuda(gpuserve_context *context, const struct gpuserve_backend **backend,
                                int32_t *count, gpuserve_error *error);

/*
 * A backend plugin: search, load and check of shared objects.
 *
 * It may have several builds in one folder, that for the newest driver first. A build whose
 * device_count() returns GPUSERVE_E_UNSUPPORTED needs another driver, and the next one is tried.
 */

#define GSV_PLUGIN_BUILDS 2
/* Builds of the CUDA plugin, newest CUDA first: libgpuserve-cuda.so, libgpuserve-cuda12.so. */
#define GSV_CUDA_BUILDS  \
    {                    \
        "cuda", "cuda12" \
    }

struct gsv_plugin_build {
    const char *name; /* "cuda": the file is libgpuserve-cuda.so */
    void *handle;     /* NULL until loaded */
    const struct gpuserve_backend *backend;
};

struct gsv_plugin {
    char *dir; /* from the context's options, or NULL */
    struct gsv_plugin_build builds[GSV_PLUGIN_BUILDS];
    const struct gsv_plugin_build *chosen;   /* the one that listed devices; NULL until then */
    char *path;                              /* of the chosen one, owned */
    char refusal[GPUSERVE_ERROR_TEXT_BYTES]; /* of the builds before it, or "" */
};

/* Paths of the builds in the first folder that has one; NULL for a build that is not there. */
struct gsv_plugin_paths {
    char *all[GSV_PLUGIN_BUILDS]; /* owned: gsv_plugin_free_paths() */
};

/* `names` are those of the builds, constants. `dir` is copied and may be NULL. Loads nothing. */
gpuserve_status gsv_plugin_init(struct gsv_plugin *plugin,
                                const char *const names[GSV_PLUGIN_BUILDS], const char *dir,
                                gpuserve_error *error);
void gsv_plugin_close(struct gsv_plugin *plugin);

/* Load and check a build once; GPUSERVE_E_DEVICE names the missing layer. A failure is not cached,
 * since the plugin may be installed while the process runs. The caller holds the context's lock. */
gpuserve_status gsv_plugin_load(struct gsv_plugin *plugin, size_t build, const char *path,
                                const struct gpuserve_backend **backend, gpuserve_error *error);

/* Remember a build that lists devices, and why those before it did not. Returns false if another
 * thread was first. The caller holds the context's lock. */
bool gsv_plugin_choose(struct gsv_plugin *plugin, size_t build, const char *path,
                       const char *refusal);

/* GPUSERVE_E_DEVICE names the folders if none has a build, and *paths is empty. */
gpuserve_status gsv_plugin_find(const struct gsv_plugin *plugin, struct gsv_plugin_paths *paths,
                                gpuserve_error *error);
void gsv_plugin_free_paths(struct gsv_plugin_paths *paths);

/* Check that a backend matches this library and has no empty slot. `from` is for the message. */
gpuserve_status gsv_backend_check(const struct gpuserve_backend *backend, const char *from,
                                  gpuserve_error *error);

#endif
