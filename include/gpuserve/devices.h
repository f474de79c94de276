/*
 * gpuserve/devices.h - devices: listing, selection, reports; statistics of contexts and models;
 * profiling; the readiness of a model. <gpuserve/gpuserve.h> includes this header.
 */
#ifndef GPUSERVE_DEVICES_H
#define GPUSERVE_DEVICES_H

#include <gpuserve/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================== devices */

/** A device as seen by the context. */
typedef struct gpuserve_device_info {
    uint32_t struct_size;
    int32_t  index;             /**< N of "cuda:N"; 0 for the CPU */
    char     selector[64];      /**< the selector of exactly this device: "cpu", "cuda:0" */
    char     name[128];         /**< "AMD EPYC 9555", "NVIDIA H200" */
    char     uuid[64];          /**< "GPU-..." or empty */
    char     isa[64];           /**< instruction set its kernels were selected for: "avx512_vnni",
                                     "sm_90" */
    uint64_t memory_bytes;      /**< total memory; for the CPU the cgroup's limit */
    uint64_t memory_free_bytes; /**< at the time of the call */
    int32_t  n_cores;           /**< usable hardware threads or multiprocessors */
    int32_t  reserved;
    uint64_t held_bytes;        /**< part of memory_bytes reserved by the models of this context */
    /* The fields below are reported by the driver; -1 or empty if unavailable. */
    int32_t  driver_index;      /**< the index in nvidia-smi, in PCI bus order */
    int32_t  load_percent;
    int32_t  temperature_celsius;
    int32_t  power_milliwatts;
    int32_t  n_processes;       /**< processes that compute on it */
    int32_t  flags;             /**< GPUSERVE_DEVICE_* */
    char     bus_id[32];        /**< "00000000:0F:00.0" */
    char     limit[64];         /**< a limit other than its size: "MIG", "vGPU", "MPS: ..." */
} gpuserve_device_info;

/* clang-format off */
#define GPUSERVE_DEVICE_INFO_INIT { (uint32_t)sizeof(gpuserve_device_info), 0, { 0 }, { 0 }, { 0 }, { 0 }, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 } }
/* clang-format on */

#define GPUSERVE_DEVICE_MIG     1 /**< a MIG instance of a GPU */
#define GPUSERVE_DEVICE_VIRTUAL 2 /**< a vGPU: a share of a GPU, assigned to a virtual machine */

/**
 * List the devices that are usable now.
 *
 * @param devices   Array of `capacity` elements whose struct_size is set in the first; may be NULL
 *                  if capacity is 0.
 * @param n         Receives the number of devices; if more than `capacity`, the array holds only
 *                  the first ones.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_device_list(gpuserve_context *context, gpuserve_device_info *devices, size_t capacity,
                     size_t *n, gpuserve_error *error);

/**
 * Resolve a selector to its devices, best first. For the best one alone, `capacity` is 1.
 *
 * @param selector  "auto" or NULL (the usable GPU with the most free memory, else the CPU);
 *                  "cpu"; "cuda" (the first), "cuda:N", "cuda:N,cuda:N" (several, in this order),
 *                  "cuda:*" (every one); the UUID of a GPU or MIG device ("GPU-...", "MIG-...") or a
 *                  unique prefix of it; or
 *                  "auto:order=load,limit=2,max_load=0.5,max_memory=0.5,memory_free=8G,
 *                  exclude=0,3,exclude_uuid=GPU-...": the selection of GPUtil's getAvailable(),
 *                  with its defaults; order is first, index, last, load, memory or random, `limit`
 *                  the most devices.
 *                  An unavailable explicit device is an error; no other device replaces it.
 * @param devices   Array of `capacity` elements whose struct_size is set in the first; may be NULL
 *                  if capacity is 0.
 * @param n         Receives the number of matches, at least 1; if more than `capacity`, the array
 *                  holds only the first ones. May be NULL.
 * @param reason    Receives the reason for the choice of `auto`, NUL-terminated, truncated to
 *                  `reason_bytes`. May be NULL with 0.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID (invalid selector); GPUSERVE_E_DEVICE (the message names
 *         the missing layer, the hint the remedy)
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_device_select(gpuserve_context *context, const char *selector,
                       gpuserve_device_info *devices, size_t capacity, size_t *n, char *reason,
                       size_t reason_bytes, gpuserve_error *error);

/**
 * Update the values of a device that change: free memory, load, temperature, reserved bytes.
 *
 * @param device  As filled by gpuserve_device_list() or gpuserve_device_select(); its selector
 *                identifies the device. Unchanged on failure.
 * @return as gpuserve_device_select(); GPUSERVE_E_DEVICE if the device is gone
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_device_refresh(gpuserve_context *context,
                                                                      gpuserve_device_info *device,
                                                                      gpuserve_error *error);

/**
 * Report on devices as a JSON object: usable devices with their processes and this context's models
 * on them; GPUs that the driver reports, with what hides them from CUDA; links between GPUs;
 * the plugin that lists GPUs, and why not that for newer drivers; libraries of the CUDA toolkit that
 * it finds; relevant environment variables. An unresponsive driver costs a timeout of some seconds once.
 * Output as in gpuserve_context_metrics().
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_device_report(gpuserve_context *context,
                                                                     char *text, size_t capacity,
                                                                     size_t *size,
                                                                     gpuserve_error *error);

/* =============================================================================== statistics */

/** Statistics of a context since its creation. Times are sums unless they are quantiles. Quantiles
 *  are interpolated within the histogram buckets of gpuserve_context_metrics(). */
typedef struct gpuserve_stats {
    uint32_t struct_size;
    uint32_t n_models;              /**< open now, including suspended ones */
    uint64_t requests;              /**< completed or refused; sum of the next five */
    uint64_t requests_ok;
    uint64_t requests_busy;         /**< refused because of a full queue */
    uint64_t requests_cancelled;
    uint64_t requests_expired;      /**< the deadline passed */
    uint64_t requests_failed;       /**< all other failures */
    uint64_t items;                 /**< texts computed */
    uint64_t items_truncated;       /**< computed texts that were cut at the token limit */
    uint64_t tokens;                /**< computed tokens */
    uint64_t batches;
    uint64_t padding_tokens_saved;  /**< tokens that padding each batch to its longest text would
                                         have added */
    uint64_t queued_requests;       /**< not completed at the time of the call */
    uint64_t queued_tokens;         /**< estimated tokens of the queued requests */
    uint64_t tokenize_ns;           /**< summed over threads */
    uint64_t compute_ns;            /**< of batches, summed over threads */
    uint64_t queue_ns;              /**< time from submission to the first batch, of requests */
    uint64_t request_ns;            /**< from submission to completion */
    uint64_t request_p50_us;        /**< quantiles of request time */
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
    uint64_t queued_bytes;          /**< of texts and results of requests that are not completed
                                         now */
    uint64_t items_shared;          /**< texts coalesced with an equal text in flight */
    uint64_t cache_hits;            /**< texts with their result in the cache */
    uint64_t cache_misses;
    uint64_t cache_bytes;           /**< bytes of the caches of open models now */
    uint64_t n_suspended;           /**< open models without weights on a device */
} gpuserve_stats;

/* clang-format off */
#define GPUSERVE_STATS_INIT { (uint32_t)sizeof(gpuserve_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Read the statistics. Each value is exact; the values are taken at nearly the same moment.
 *
 * @param stats  Receives them; initialise with GPUSERVE_STATS_INIT.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_context_stats(gpuserve_context *context,
                                                                     gpuserve_stats   *stats,
                                                                     gpuserve_error   *error);

/* ================================================================================== profile */

/** Timing method of a profile. */
typedef enum gpuserve_profile_timing {
    GPUSERVE_PROFILE_DEFAULT = 0,    /**< depends on the device */
    GPUSERVE_PROFILE_OPERATIONS = 1, /**< each operation from its call to its return: on a CPU */
    GPUSERVE_PROFILE_DIFFERENCES = 2 /**< the difference of batch times with and without a stage or
                                          layer: on a device where calls return before their work is
                                          done */
} gpuserve_profile_timing;

/** Options of gpuserve_model_profile(). Zero means the default in every field. */
typedef struct gpuserve_profile_options {
    uint32_t           struct_size;
    uint32_t           text_tokens; /**< tokens of each text; default 128, or the model's limit */
    uint32_t           n_texts;     /**< texts of the batch; default as many as fit; required with
                                         `texts` */
    uint32_t           rounds;      /**< number of runs; default 20, at most 10000; results are
                                         medians */
    uint32_t           timing;      /**< gpuserve_profile_timing */
    uint32_t           trace;       /**< 1: add a "trace" for the viewers of Chrome and Perfetto */
    const char *const *texts;       /**< [n_texts] NUL-terminated UTF-8, cut at text_tokens; default
                                         generated texts */
} gpuserve_profile_options;

/* clang-format off */
#define GPUSERVE_PROFILE_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_profile_options), 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Receives a text in one call, NUL-terminated and borrowed for the call. */
typedef void (*gpuserve_text_fn)(void *user, const char *text, size_t size);

/**
 * Load a model, run one batch repeatedly, and report microseconds by stage and by layer, the rate
 * of each matrix product and its ratio to the best measured rate of square products, and memory by
 * purpose. The batch runs alone, on one stream shared by all threads.
 *
 * @param path     As for gpuserve_model_open(); `options` may be NULL.
 * @param how      May be NULL.
 * @param write    Receives a JSON object, on success only.
 * @param user     Passed to `write`.
 * @return as gpuserve_model_open(); GPUSERVE_E_INVALID if the batch exceeds the model's limits
 *
 * Thread-safety: safe; concurrent work distorts the results. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_profile(
    gpuserve_context *context, const char *path, const gpuserve_model_options *options,
    const gpuserve_profile_options *how, gpuserve_text_fn write, void *user, gpuserve_error *error);

/** Work of one model since it was opened or last swapped, summed over all callers. */
typedef struct gpuserve_model_counts {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t batches;    /**< successful runs of the network */
    uint64_t items;      /**< texts in these batches, without coalesced items and cache hits */
    uint64_t tokens;     /**< tokens of these texts */
    uint64_t compute_ns; /**< time of these batches, summed over threads */
} gpuserve_model_counts;

/* clang-format off */
#define GPUSERVE_MODEL_COUNTS_INIT { (uint32_t)sizeof(gpuserve_model_counts), 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Read the work counters of a model: items / batches is the mean number of texts per batch. Each
 * value is exact; the values are taken at nearly the same moment.
 *
 * @param counts  Receives them; struct_size set by the caller.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_stats(gpuserve_model *model,
                                                                   gpuserve_model_counts *counts,
                                                                   gpuserve_error *error);

/** Batches with the same number of texts; gpuserve_model_counts defines which batches count. */
typedef struct gpuserve_batch_counts {
    uint32_t struct_size;
    uint32_t n_texts;   /**< texts per batch */
    uint64_t batches;   /**< number of such batches; the times below are sums over them */
    uint64_t input_ns;  /**< time to pack their tokens into one input */
    uint64_t infer_ns;  /**< time in the network, including copies to and from a device */
    uint64_t output_ns; /**< time to distribute the results */
} gpuserve_batch_counts;

/* clang-format off */
#define GPUSERVE_BATCH_COUNTS_INIT { (uint32_t)sizeof(gpuserve_batch_counts), 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Read the batch size distribution of a model: one row for each number of texts that occurred, in
 * ascending order. The sum of the rows equals gpuserve_model_stats() at nearly the same moment.
 *
 * @param rows  Array of `capacity` elements whose struct_size is set in the first; may be NULL
 *              if capacity is 0.
 * @param n     Receives the number of rows, at most 4096; if more than `capacity`, the array
 *              holds only the first ones.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_batches(gpuserve_model *model, gpuserve_batch_counts *rows, size_t capacity,
                       size_t *n, gpuserve_error *error);

/* ================================================================================ lost devices */

/**
 * Readiness probe: whether a request submitted now would be computed. Cheap, never blocks, and
 * suitable for many calls a second. The first failed batch of any model on a device detects its
 * loss; a hang is detected after GPUSERVE_CUDA_TIMEOUT_MS. From then on a model is not ready if it
 * has no other device. gpuserve_model_options.on_device_lost selects the failover.
 *
 * @return GPUSERVE_OK
 *         GPUSERVE_E_BUSY    the device was lost and failover to another one is in progress:
 *                            requests wait for it; or the model is suspended and refuses requests.
 *                            error->retry_after_ms says when to probe again
 *         GPUSERVE_E_DEVICE  the device is lost permanently: the message is the cause, the hint the
 *                            remedy. Close the model; usually the process must be restarted
 *         GPUSERVE_E_INVALID the model is NULL
 *         GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_ready(gpuserve_model *model,
                                                                   gpuserve_error *error);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_DEVICES_H */
