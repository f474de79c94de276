/*
 * gpuserve/devices.h - what there is to compute on, the statistics of what was computed, and where
 * the time goes.
 * <gpuserve/gpuserve.h> includes it.
 */
#ifndef GPUSERVE_DEVICES_H
#define GPUSERVE_DEVICES_H

#include <gpuserve/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================== devices */

/** A device as the context sees it. */
typedef struct gpuserve_device_info {
    uint32_t struct_size;
    int32_t  index;             /**< N of "cuda:N"; 0 for the CPU */
    char     selector[64];      /**< what selects exactly this device: "cpu", "cuda:0" */
    char     name[128];         /**< "AMD EPYC 9555", "NVIDIA H200" */
    char     uuid[64];          /**< "GPU-..." or empty */
    char     isa[64];           /**< what its kernels were chosen for: "avx512_vnni", "sm_90" */
    uint64_t memory_bytes;      /**< all memory; for the CPU what the cgroup allows */
    uint64_t memory_free_bytes; /**< at the time of the call */
    int32_t  n_cores;           /**< usable hardware threads or multiprocessors */
    int32_t  reserved;
    uint64_t held_bytes;        /**< of it, by the models of this context */
    /* What follows is the driver's word, and -1 or empty where there is none. */
    int32_t  driver_index;      /**< the number in nvidia-smi: the order of the bus */
    int32_t  load_percent;
    int32_t  temperature_celsius;
    int32_t  power_milliwatts;
    int32_t  n_processes;       /**< that compute on it */
    int32_t  flags;             /**< GPUSERVE_DEVICE_* */
    char     bus_id[32];        /**< "00000000:0F:00.0" */
    char     limit[64];         /**< what bounds it beside its size: "MIG", "vGPU", "MPS: ..." */
} gpuserve_device_info;

/* clang-format off */
#define GPUSERVE_DEVICE_INFO_INIT { (uint32_t)sizeof(gpuserve_device_info), 0, { 0 }, { 0 }, { 0 }, { 0 }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 } }
/* clang-format on */

#define GPUSERVE_DEVICE_MIG     1 /**< a part of a GPU */
#define GPUSERVE_DEVICE_VIRTUAL 2 /**< a share of a GPU, given to a virtual machine */

/**
 * List the devices that can be used now.
 *
 * @param devices   Array of `capacity` elements whose struct_size is set in the first; may be NULL
 *                  when capacity is 0.
 * @param n         Receives how many devices there are; more than `capacity` means the array
 *                  holds only the first ones.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_device_list(gpuserve_context *context, gpuserve_device_info *devices, size_t capacity,
                     size_t *n, gpuserve_error *error);

/**
 * Resolve a selector to one device.
 *
 * @param selector  "auto" or NULL (the GPU with the most memory free if one works, else the CPU);
 *                  "cpu"; "cuda" (the first), "cuda:N"; a GPU's or MIG device's UUID ("GPU-...",
 *                  "MIG-...") or a beginning of it that no other has; or
 *                  "auto:order=load,limit=2,max_load=0.5,max_memory=0.5,memory_free=8G,
 *                  exclude=0,3,exclude_uuid=GPU-...": GPUs as GPUtil's getAvailable() picks them,
 *                  with its defaults; order is first, index, last, load, memory or random.
 *                  An explicit device that cannot be had is an error, never another device.
 * @param device    Receives the device; begin with GPUSERVE_DEVICE_INFO_INIT.
 * @param reason    Receives why `auto` chose as it did, NUL-terminated, cut at `reason_bytes`.
 *                  May be NULL with 0.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID (no such selector); GPUSERVE_E_DEVICE (the message names
 *         the missing layer, the hint the remedy)
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_device_select(gpuserve_context *context, const char *selector,
                       gpuserve_device_info *device, char *reason, size_t reason_bytes,
                       gpuserve_error *error);

/**
 * Resolve a selector to all devices that it names, best first: "cuda:*" is every CUDA device,
 * "auto:limit=3" at most three. Otherwise as gpuserve_device_select().
 *
 * @param devices  Array of `capacity` elements whose struct_size is set in the first; may be NULL
 *                 when capacity is 0.
 * @param n        Receives how many there are; more than `capacity` means the array holds only
 *                 the first ones.
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_device_select_all(gpuserve_context *context, const char *selector,
                           gpuserve_device_info *devices, size_t capacity, size_t *n,
                           gpuserve_error *error);

/**
 * Bring the figures of a device up to date: free memory, load, temperature, what is held.
 *
 * @param device  As gpuserve_device_list() or gpuserve_device_select() filled it; its selector says
 *                which device. Unchanged on failure.
 * @return as gpuserve_device_select(); GPUSERVE_E_DEVICE when the device is gone
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_device_refresh(gpuserve_context *context,
                                                                      gpuserve_device_info *device,
                                                                      gpuserve_error *error);

/**
 * Everything about devices as a JSON object: the usable ones with their processes and the models
 * of this context on them; the GPUs that the driver sees, with what hides them from CUDA; how they
 * reach each other; the environment variables that matter. A driver that does not answer costs some
 * seconds once. Output as in gpuserve_context_metrics().
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_device_report(gpuserve_context *context,
                                                                     char *text, size_t capacity,
                                                                     size_t *size,
                                                                     gpuserve_error *error);

/* =============================================================================== statistics */

/** Statistics of a context since it was created. Times are sums unless they are quantiles; those
 *  are interpolated in the buckets that gpuserve_context_metrics() shows. */
typedef struct gpuserve_stats {
    uint32_t struct_size;
    uint32_t n_models;              /**< open now, the suspended ones too */
    uint64_t requests;              /**< completed or refused; the sum of the next five */
    uint64_t requests_ok;
    uint64_t requests_busy;         /**< refused because the queue was full */
    uint64_t requests_cancelled;
    uint64_t requests_expired;      /**< their deadline passed */
    uint64_t requests_failed;       /**< all others */
    uint64_t items;                 /**< texts computed */
    uint64_t items_truncated;       /**< of them cut at the token limit */
    uint64_t tokens;                /**< computed */
    uint64_t batches;
    uint64_t padding_tokens_saved;  /**< what padding to each batch's longest text would have added */
    uint64_t queued_requests;       /**< not completed now */
    uint64_t queued_tokens;         /**< what they were estimated at */
    uint64_t tokenize_ns;           /**< summed over threads */
    uint64_t compute_ns;            /**< of batches, summed over threads */
    uint64_t queue_ns;              /**< requests' waits for their first batch */
    uint64_t request_ns;            /**< from submission to completion */
    uint64_t request_p50_us;        /**< quantiles of the same */
    uint64_t request_p95_us;
    uint64_t request_p99_us;
    uint64_t queue_p50_us;
    uint64_t queue_p95_us;
    uint64_t queue_p99_us;
    uint64_t weights_bytes;         /**< of open models that are not suspended, as in
                                         gpuserve_footprint */
    uint64_t workspace_bytes;
    uint64_t stream_bytes;
    uint64_t host_bytes;
    uint64_t queued_bytes;          /**< of the texts and results of requests not completed now */
    uint64_t items_shared;          /**< texts that got the result of an equal one in flight */
    uint64_t cache_hits;            /**< texts whose result was in the cache */
    uint64_t cache_misses;
    uint64_t cache_bytes;           /**< of the caches of open models, now */
    uint64_t n_suspended;           /**< models that are open without their weights on a device */
} gpuserve_stats;

/* clang-format off */
#define GPUSERVE_STATS_INIT { (uint32_t)sizeof(gpuserve_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Read the statistics. Each figure is exact; together they are those of nearly one moment.
 *
 * @param stats  Receives them; begin with GPUSERVE_STATS_INIT.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_context_stats(gpuserve_context *context,
                                                                     gpuserve_stats   *stats,
                                                                     gpuserve_error   *error);

/* ================================================================================== profile */

/** How the times of a profile are taken. */
typedef enum gpuserve_profile_timing {
    GPUSERVE_PROFILE_DEFAULT = 0,    /**< as fits the device */
    GPUSERVE_PROFILE_OPERATIONS = 1, /**< each operation from its call to its return: on a CPU */
    GPUSERVE_PROFILE_DIFFERENCES = 2 /**< what a batch takes less without a stage or a layer: on a
                                          device, where a call returns before its work is done */
} gpuserve_profile_timing;

/** What gpuserve_model_profile() measures. Zero means the default in every field. */
typedef struct gpuserve_profile_options {
    uint32_t           struct_size;
    uint32_t           text_tokens; /**< of each text; default 128, or the model's limit */
    uint32_t           n_texts;     /**< of the batch; default as many as fit, but with `texts` their
                                         number has to be said */
    uint32_t           rounds;      /**< default 20, at most 10000; figures are medians */
    uint32_t           timing;      /**< gpuserve_profile_timing */
    uint32_t           trace;       /**< 1: with a "trace" for Chrome's and Perfetto's viewers */
    const char *const *texts;       /**< [n_texts] NUL-terminated UTF-8, cut at text_tokens; default
                                         made ones */
} gpuserve_profile_options;

/* clang-format off */
#define GPUSERVE_PROFILE_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_profile_options), 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Receives a text once, NUL-terminated and borrowed for the call. */
typedef void (*gpuserve_text_fn)(void *user, const char *text, size_t size);

/**
 * Load a model, run one batch again and again, and tell where the time goes: microseconds by stage
 * and by layer, the rate of each matrix product and its part of the best that square products reach
 * here, memory by purpose. The batch runs alone, on one stream that all threads share.
 *
 * @param model    As for gpuserve_model_open(); `options` may be NULL.
 * @param how      May be NULL.
 * @param write    Receives a JSON object, on success only.
 * @param user     Handed to it.
 * @return as gpuserve_model_open(); GPUSERVE_E_INVALID when the batch is larger than the model's
 *
 * Thread-safety: safe; other work at the same time disturbs the figures. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_profile(
    gpuserve_context *context, const char *model, const gpuserve_model_options *options,
    const gpuserve_profile_options *how, gpuserve_text_fn write, void *user, gpuserve_error *error);

/** What one model has computed since it was opened or last exchanged, whoever asked for it. */
typedef struct gpuserve_model_counts {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t batches;    /**< executions of the network that did not fail */
    uint64_t items;      /**< texts in them: not those that got another text's result */
    uint64_t tokens;     /**< of these */
    uint64_t compute_ns; /**< time of these batches, summed over threads */
} gpuserve_model_counts;

/* clang-format off */
#define GPUSERVE_MODEL_COUNTS_INIT { (uint32_t)sizeof(gpuserve_model_counts), 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Read what a model has computed: items / batches is how many texts were computed together. Each
 * figure is exact; together they are those of nearly one moment.
 *
 * @param counts  Receives them; struct_size set by the caller.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_stats(gpuserve_model *model,
                                                                   gpuserve_model_counts *counts,
                                                                   gpuserve_error *error);

/** The batches of one number of texts; see gpuserve_model_counts for which are counted. */
typedef struct gpuserve_batch_counts {
    uint32_t struct_size;
    uint32_t n_texts;   /**< in each */
    uint64_t batches;   /**< how many there were; what follows is the sum over them */
    uint64_t input_ns;  /**< to lay their tokens side by side */
    uint64_t infer_ns;  /**< in the network, with the copies to and from a device */
    uint64_t output_ns; /**< to hand the results out */
} gpuserve_batch_counts;

/* clang-format off */
#define GPUSERVE_BATCH_COUNTS_INIT { (uint32_t)sizeof(gpuserve_batch_counts), 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Read which sizes a model's batches had: a row for each number of texts that there was, smallest
 * first. The rows' sum is what gpuserve_model_stats() tells, at nearly the same moment.
 *
 * @param rows  Array of `capacity` elements whose struct_size is set in the first; may be NULL
 *              when capacity is 0.
 * @param n     Receives how many there are, at most 4096; more than `capacity` means the array
 *              holds only the first ones.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_batches(gpuserve_model *model, gpuserve_batch_counts *rows, size_t capacity,
                       size_t *n, gpuserve_error *error);

/* ================================================================================ lost devices */

/**
 * Whether a request submitted now would be computed: what a readiness probe asks. Cheap, never
 * waits, and may be asked many times a second. A device that fails is noticed by the first batch
 * after the fault (one that hangs: when the batch has taken GPUSERVE_CUDA_TIMEOUT_MS), of any model
 * on it; from that moment no model on it is ready that has no other device. What becomes of the model is up to
 * gpuserve_model_options.on_device_lost.
 *
 * @return GPUSERVE_OK
 *         GPUSERVE_E_BUSY    the device was lost and the model is being opened on another one:
 *                            requests wait for it; or it is suspended and refuses requests.
 *                            error->retry_after_ms says when to ask again
 *         GPUSERVE_E_DEVICE  the device was lost for good: the message is the cause, the hint the
 *                            remedy. Close the model; mostly the process must be started anew
 *         GPUSERVE_E_INVALID the model is NULL
 *         GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_ready(gpuserve_model *model,
                                                                   gpuserve_error *error);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_DEVICES_H */
