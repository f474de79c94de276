/*
 * gpuserve/context.h - library version, and contexts: the threads, memory budgets and logging that
 * models share, and reports on all models of a context. <gpuserve/gpuserve.h> includes this header.
 */
#ifndef GPUSERVE_CONTEXT_H
#define GPUSERVE_CONTEXT_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================== library */

/** The library version, "0.2.0". Static string. Thread-safety: safe. Since: 0.2 */
GPUSERVE_API const char *gpuserve_version(void);

/** Number in the soname: equal numbers are binary compatible. Thread-safety: safe. Since: 0.2 */
GPUSERVE_API uint32_t gpuserve_abi_version(void);

/** "GPUSERVE_E_BUSY" for GPUSERVE_E_BUSY, "unknown status" for an unknown value. Since: 0.2 */
GPUSERVE_API const char *gpuserve_status_name(gpuserve_status status);

/* ================================================================================== context */

/** Policy for a model load that exceeds a memory budget or the free memory of its device. */
typedef enum gpuserve_memory_policy {
    GPUSERVE_MEMORY_REFUSE = 0, /**< GPUSERVE_E_TOO_LARGE at once */
    GPUSERVE_MEMORY_WAIT = 1,   /**< wait until other models are closed or suspended, at most
                                     memory_wait_ms; then refuse */
    GPUSERVE_MEMORY_EVICT = 2   /**< suspend idle models in LRU order until the load fits; while all
                                     are busy, wait as above. The next request to an evicted model
                                     resumes it, which may evict others: see
                                     gpuserve_model_options.keep and .when_suspended */
} gpuserve_memory_policy;

/** Options of gpuserve_context_create(). Zero means the default in every field. */
typedef struct gpuserve_context_options {
    uint32_t        struct_size;
    uint32_t        n_threads;           /**< compute threads; default: one for each physical core
                                              that the affinity mask allows, at most the cgroup's
                                              CPU quota, rounded to the nearest */
    uint64_t        memory_budget_bytes; /**< max memory of all models together; default no limit */
    gpuserve_log_fn log;                 /**< default: no logging */
    void           *log_user;
    int32_t         log_level;           /**< default GPUSERVE_LOG_WARNING */
    int32_t         reserved;
    const char     *plugin_dir;          /**< first directory searched for libgpuserve-cuda.so; then
                                              GPUSERVE_PLUGIN_DIR, then the library's own directory
                                              and its subdirectory `gpuserve/`, the install
                                              location */
    const char     *cache_dir;           /**< Hugging Face cache; default: HF_HUB_CACHE, HF_HOME/hub
                                              or huggingface/hub in XDG_CACHE_HOME or ~/.cache. A
                                              model name not found there is searched in
                                              gpuserve/models next to huggingface/ */
    uint32_t        memory_policy;       /**< gpuserve_memory_policy. A load that cannot fit even
                                              alone is refused at once under every policy */
    uint32_t        memory_wait_ms;      /**< max wait for memory; default 30000 */
} gpuserve_context_options;

/* clang-format off */
#define GPUSERVE_CONTEXT_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_context_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Create a context.
 *
 * @param context  Receives the context, owned; NULL on failure.
 * @param options  May be NULL. Strings are copied.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID (invalid option), GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_context_create(gpuserve_context **context, const gpuserve_context_options *options,
                        gpuserve_error *error);

/** Add a reference; returns the same context. NULL returns NULL. Since: 0.2 */
GPUSERVE_API gpuserve_context *gpuserve_context_ref(gpuserve_context *context);

/**
 * Drop a reference; the last one frees the context. Each model holds a reference to its context.
 * Accepts NULL and a pointer to NULL; leaves NULL. Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API void gpuserve_context_unref(gpuserve_context **context);

/**
 * Set the memory budget for the models of a context. Open models stay open; loads that wait for
 * memory are checked again.
 *
 * @param device  A selector as in gpuserve_device_select(): the budget covers bytes on that device.
 *                NULL: all bytes of all models, as gpuserve_context_options.memory_budget_bytes.
 * @param bytes   0 removes the budget: the limit is then the device's free memory.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_DEVICE, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_context_set_budget(gpuserve_context *context, const char *device, uint64_t bytes,
                            gpuserve_error *error);

/**
 * List the open models of a context as a JSON object {"models": [...]}, in the order of opening:
 * name, version, state ("loading", "ready", "suspended") and, once loaded, path, fingerprint,
 * device, dtype, bytes reserved now and when loaded, whether it is idle, milliseconds since its
 * last request, and the number of swaps and suspensions. Output as in gpuserve_context_metrics().
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_context_models(gpuserve_context *context,
                                                                      char *text, size_t capacity,
                                                                      size_t *size,
                                                                      gpuserve_error *error);

/**
 * Find an open model by its name.
 *
 * @param model    Receives the model with an added reference, which gpuserve_model_close() drops.
 *                 NULL on failure.
 * @param name     As gpuserve_model_options.name, or the path of a model without a name.
 * @param version  As gpuserve_model_options.version; NULL: the last opened model of that name.
 * @return GPUSERVE_OK; GPUSERVE_E_NOT_FOUND if no such model is open, or it is still loading;
 *         GPUSERVE_E_INVALID
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_context_find(gpuserve_model **model, gpuserve_context *context, const char *name,
                      const char *version, gpuserve_error *error);

/**
 * Metrics of the context as Prometheus text (exposition format 0.0.4): requests, items, tokens,
 * batches, histograms of times and sizes, queue, memory by purpose, by model and by device. The
 * same values also have the names of text-embeddings-inference (te_*). The number of series is
 * bounded: at most 64 open models have series of their own.
 *
 * @param text      Receives NUL-terminated UTF-8; may be NULL to query the size only.
 * @param capacity  Bytes at `text`.
 * @param size      Receives the bytes needed, including the NUL. May be NULL.
 * @return GPUSERVE_OK; GPUSERVE_E_TOO_LARGE if `capacity` is too small (only *size is written);
 *         GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_context_metrics(gpuserve_context *context,
                                                                       char *text, size_t capacity,
                                                                       size_t *size,
                                                                       gpuserve_error *error);

/** Options of gpuserve_context_doctor(). Zero means the default in every field. */
typedef struct gpuserve_doctor_options {
    uint32_t    struct_size;
    uint32_t    reserved;
    const char *root;   /**< examine the files below this folder, such as an unpacked image or
                             /proc/PID/root, as if it were "/"; nothing of it is executed. Default:
                             this machine and process */
    const char *device; /**< device that must work, as in gpuserve_device_select(); "cpu": no GPU is
                             judged. Default: a GPU is judged if the machine is set up for one */
} gpuserve_doctor_options;

/* clang-format off */
#define GPUSERVE_DOCTOR_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_doctor_options), 0, 0, 0 }
/* clang-format on */

/**
 * Diagnose the GPU stack layer by layer, as a JSON object: "stack" has the verdict, the first cause
 * with its remedy, an exit status (0 or the layer's), and each layer with path, version and
 * findings. For this machine also: processor, backends, devices, driver, limits of the process.
 * Output as in gpuserve_context_metrics().
 *
 * @param options  May be NULL.
 * @return GPUSERVE_OK, also if something is broken; GPUSERVE_E_NOT_FOUND or GPUSERVE_E_INVALID for
 *         a root that is no folder; GPUSERVE_E_TOO_LARGE, GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_context_doctor(
    gpuserve_context *context, const gpuserve_doctor_options *options, char *text, size_t capacity,
    size_t *size, gpuserve_error *error);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_CONTEXT_H */
