/*
 * gpuserve/context.h - what models share: threads, memory budgets, logging; and all that a context
 * tells of its models. <gpuserve/gpuserve.h> includes it.
 */
#ifndef GPUSERVE_CONTEXT_H
#define GPUSERVE_CONTEXT_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================== library */

/** The library's version, "0.1.0". Lent for ever. Thread-safety: safe. Since: 0.1 */
GPUSERVE_API const char *gpuserve_version(void);

/** The soname's number: equal numbers are binary compatible. Thread-safety: safe. Since: 0.1 */
GPUSERVE_API uint32_t gpuserve_abi_version(void);

/** "GPUSERVE_E_BUSY" for GPUSERVE_E_BUSY, "unknown status" for no status. Since: 0.1 */
GPUSERVE_API const char *gpuserve_status_name(gpuserve_status status);

/* ================================================================================== context */

/** What happens to a load that is over a memory budget, or over what its device has free. */
typedef enum gpuserve_memory_policy {
    GPUSERVE_MEMORY_REFUSE = 0, /**< GPUSERVE_E_TOO_LARGE at once */
    GPUSERVE_MEMORY_WAIT = 1,   /**< wait until others are closed or suspended, at most
                                     memory_wait_ms; then refuse */
    GPUSERVE_MEMORY_EVICT = 2   /**< suspend idle models, the one used longest ago first, until it
                                     fits; while all are busy wait as above. A model that was
                                     evicted is resumed by its next request, which may evict others:
                                     see gpuserve_model_options.keep and .when_suspended */
} gpuserve_memory_policy;

/** What a context is created with. Zero means the default in every field. */
typedef struct gpuserve_context_options {
    uint32_t        struct_size;
    uint32_t        n_threads;           /**< compute threads; default: what the affinity mask and
                                              the cgroup's quota allow */
    uint64_t        memory_budget_bytes; /**< most memory for all models together; default none */
    gpuserve_log_fn log;                 /**< default: no logging */
    void           *log_user;
    int32_t         log_level;           /**< default GPUSERVE_LOG_WARNING */
    int32_t         reserved;
    const char     *plugin_dir;          /**< where libgpuserve-cuda.so is looked for first; then
                                              GPUSERVE_PLUGIN_DIR, then beside the library and in
                                              `gpuserve/` there, where it is installed */
    const char     *cache_dir;           /**< Hugging Face cache; default: HF_HUB_CACHE, HF_HOME/hub
                                              or huggingface/hub in XDG_CACHE_HOME or ~/.cache. A
                                              name that is not there is looked for in
                                              gpuserve/models beside huggingface/ */
    uint32_t        memory_policy;       /**< gpuserve_memory_policy. What could not fit even alone
                                              is refused at once whatever the policy */
    uint32_t        memory_wait_ms;      /**< longest wait for memory; default 30000 */
} gpuserve_context_options;

/* clang-format off */
#define GPUSERVE_CONTEXT_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_context_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Create a context.
 *
 * @param context  Receives the context, owned; NULL on failure.
 * @param options  May be NULL. Strings are copied.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID (bad option), GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_context_create(gpuserve_context **context, const gpuserve_context_options *options,
                        gpuserve_error *error);

/** One more owner; returns the same context. NULL is returned as it is. Since: 0.1 */
GPUSERVE_API gpuserve_context *gpuserve_context_ref(gpuserve_context *context);

/**
 * One owner less; the last one frees it. Models keep their context alive themselves. Accepts NULL
 * and a pointer to NULL; leaves NULL. Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API void gpuserve_context_unref(gpuserve_context **context);

/**
 * Set the most memory that the models of a context may take together. What is open stays; loads
 * that wait for memory look again.
 *
 * @param device  A selector as in gpuserve_device_select(): the budget is for bytes on that device.
 *                NULL: for all bytes of all models, as gpuserve_context_options.memory_budget_bytes.
 * @param bytes   0 lifts the budget: then what the device has free is the limit.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_DEVICE, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_context_set_budget(gpuserve_context *context, const char *device, uint64_t bytes,
                            gpuserve_error *error);

/**
 * The open models of a context as a JSON object {"models": [...]}, in the order of their opening:
 * name, version, state ("loading", "ready", "suspended") and, once loaded, path, fingerprint,
 * device, dtype, bytes held now and when loaded, whether it is idle, milliseconds since its last
 * request, and how often it was swapped and suspended. Output as in gpuserve_context_metrics().
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_context_models(gpuserve_context *context,
                                                                      char *text, size_t capacity,
                                                                      size_t *size,
                                                                      gpuserve_error *error);

/**
 * An open model by its name.
 *
 * @param model    Receives the model, one more owner: gpuserve_model_close() ends it. NULL on
 *                 failure.
 * @param name     As gpuserve_model_options.name, or the path where none was given.
 * @param version  As gpuserve_model_options.version; NULL: the model of that name opened last.
 * @return GPUSERVE_OK; GPUSERVE_E_NOT_FOUND when none is open, or it is still loading;
 *         GPUSERVE_E_INVALID
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_context_find(gpuserve_model **model, gpuserve_context *context, const char *name,
                      const char *version, gpuserve_error *error);

/**
 * Statistics of everything in the context as Prometheus text (exposition format 0.0.4): requests,
 * items, tokens, batches, histograms of times and sizes, queue, memory by purpose, by model and by
 * device, and the names that text-embeddings-inference has for the same (te_*). The number of series is
 * bounded: of open models 64 are told apart.
 *
 * @param text      Receives NUL-terminated UTF-8; may be NULL to ask for the size only.
 * @param capacity  Bytes at `text`.
 * @param size      Receives the bytes needed, the NUL included. May be NULL.
 * @return GPUSERVE_OK; GPUSERVE_E_TOO_LARGE when `capacity` is too small (nothing is written but
 *         *size); GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_context_metrics(gpuserve_context *context,
                                                                       char *text, size_t capacity,
                                                                       size_t *size,
                                                                       gpuserve_error *error);

/**
 * What works here and what does not, as a JSON object: library, processor, backends found or why
 * not, devices, limits of the process. Output as in gpuserve_context_metrics(). Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_context_doctor(gpuserve_context *context,
                                                                      char *text, size_t capacity,
                                                                      size_t *size,
                                                                      gpuserve_error *error);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_CONTEXT_H */
