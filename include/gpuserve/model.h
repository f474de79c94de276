/*
 * gpuserve/model.h - a model from its directory to its end: footprint, loading, swap, suspension, and
 * what it tells of itself. <gpuserve/gpuserve.h> includes it.
 */
#ifndef GPUSERVE_MODEL_H
#define GPUSERVE_MODEL_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==================================================================================== model */

/** Values of gpuserve_model_options.warmup beside a number of batches. */
#define GPUSERVE_WARMUP_OFF UINT32_C(0xfffffffe)
#define GPUSERVE_WARMUP_AUTO UINT32_C(0xffffffff) /**< as long as batches get faster */
#define GPUSERVE_WAIT_NONE UINT32_C(0xffffffff)   /**< as gpuserve_model_options.max_wait_us */

/** What a loading model is at. */
typedef enum gpuserve_stage {
    GPUSERVE_STAGE_WARMUP = 1, /**< counted in batches */
    GPUSERVE_STAGE_WEIGHTS = 2 /**< counted in bytes of the files; comes before the warm-up. At 0 the
                                    memory is claimed and nothing is read */
} gpuserve_stage;

/** What a request does that finds its model suspended. */
typedef enum gpuserve_when_suspended {
    GPUSERVE_SUSPENDED_RESUME = 0, /**< resumes it first, in the thread that submits, waiting for
                                        memory as the context's policy says and no longer than the
                                        job's deadline; then GPUSERVE_E_BUSY or GPUSERVE_E_EXPIRED
                                        with the numbers. From a callback: GPUSERVE_E_BUSY */
    GPUSERVE_SUSPENDED_REFUSE = 1  /**< GPUSERVE_E_BUSY at once */
} gpuserve_when_suspended;

/**
 * Told how a model's loading goes, from the thread that loads it: must not use the model.
 *
 * @param stage  A gpuserve_stage; others may be added.
 * @param done   From 0 to `total`, rising within a stage.
 * @return 0 to go on; anything else ends the loading with GPUSERVE_E_CANCELLED
 */
typedef int32_t (*gpuserve_progress_fn)(void *user, uint32_t stage, uint64_t done, uint64_t total);

/** How a model is opened. Zero means the default in every field. */
typedef struct gpuserve_model_options {
    uint32_t    struct_size;
    uint32_t    dtype;            /**< gpuserve_dtype */
    const char *device;           /**< selector as in gpuserve_device_select(); default "auto". One
                                       that names several ("cuda:*", "auto:limit=2") puts all
                                       weights on each: the replicas share the model's queue */
    const char *head;             /**< file of a classifier head over the embedding (see
                                       docs/heads.md), or NULL */
    uint32_t    max_tokens;       /**< limit of a text, special tokens included; default the
                                       model's; more than its positions is refused */
    uint32_t    max_batch_tokens; /**< most tokens computed together by one thread; default 512 on
                                       a CPU, 16384 on a GPU, halved until the budgets allow it.
                                       More work is split into batches of this size */
    uint32_t    n_threads;        /**< of the context's threads; default all */
    uint32_t    pooling;          /**< gpuserve_pooling_kind instead of the model's own */
    uint32_t    use_mmap;         /**< 0 or 1, without effect: weights are read, never mapped */
    uint32_t    max_queue_tokens; /**< waiting, a request counts as half at most; default 1048576 */
    uint32_t    warmup;           /**< batches run before the model is handed out: a number, or
                                       GPUSERVE_WARMUP_AUTO, or GPUSERVE_WARMUP_OFF. Default: off
                                       for gpuserve_model_open(), auto for gpuserve_model_swap() */
    uint32_t    on_device_lost;   /**< gpuserve_lost_policy; also when the device is lost, or was
                                       before, while the model is opened */
    gpuserve_progress_fn progress; /**< told how the loading goes; may be NULL */
    void       *progress_user;
    uint64_t    max_queue_bytes;  /**< most bytes of texts and results waiting likewise; default 256 MiB */
    uint64_t    cache_bytes;      /**< most memory for results that may be asked again: gpuserve_cache */
    uint64_t    memory_budget_bytes; /**< most memory of this model, of every kind; default none */
    const char *name;             /**< what gpuserve_context_find() finds it by; together with
                                       `version` nobody else's in the context. UTF-8, as the version.
                                       Default: the path */
    const char *version;          /**< default ""; a swap may give another one */
    uint32_t    keep;             /**< 1: never suspended in favour of another model */
    uint32_t    when_suspended;   /**< gpuserve_when_suspended */
    gpuserve_lost_fn lost;        /**< told when the device is lost; may be NULL */
    void       *lost_user;
    uint32_t    max_wait_us;      /**< for a fuller batch while the device is busy; default 300 on a GPU, none on
                                       a CPU; see docs/batching.md. GPUSERVE_WAIT_NONE: none */
    uint32_t    max_queue_ms;     /**< most work waiting, in the time that it takes at the speed of late: a bound
                                       below max_queue_tokens, in which a request counts as an eighth at
                                       most. Two batches for each thread may wait in any case. Small requests,
                                       and clients with little in the queue, have reserves above it, so that
                                       7/4 of it wait at most. Default none */
    const char *default_prompt_name; /**< one of the model's prompts, put before the texts of jobs that name
                                       none; default: the model's own default */
    const char *default_prompt;   /**< or this text, UTF-8; "": none at all */
} gpuserve_model_options;

/* clang-format off */
#define GPUSERVE_MODEL_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_model_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** How one vector is made of a text's token vectors. */
typedef enum gpuserve_pooling_kind {
    GPUSERVE_POOLING_DEFAULT = 0, /**< the model's own; mean where it names none */
    GPUSERVE_POOLING_CLS = 1,
    GPUSERVE_POOLING_MEAN = 2,
    GPUSERVE_POOLING_MAX = 3,
    GPUSERVE_POOLING_MEAN_SQRT_LEN = 4,
    GPUSERVE_POOLING_WEIGHTED_MEAN = 5,
    GPUSERVE_POOLING_LAST = 6
} gpuserve_pooling_kind;

/** What a model will take, known from file headers before anything is loaded. Exact. */
typedef struct gpuserve_footprint {
    uint32_t struct_size;
    uint32_t fits;            /**< 1: within the device's free memory and the context's budget */
    uint64_t weights_bytes;   /**< as packed for the device and dtype; of all replicas */
    uint64_t workspace_bytes; /**< activations of all streams together */
    uint64_t stream_bytes;    /**< the backend's own scratch and staging */
    uint64_t host_bytes;      /**< tokenizer, labels, queues; an upper bound */
    uint64_t total_bytes;     /**< the sum */
    uint64_t available_bytes; /**< what it was compared with */
    uint32_t max_batch_tokens; /**< the largest that fits, 0 if none */
    uint32_t n_streams;
} gpuserve_footprint;

/* clang-format off */
#define GPUSERVE_FOOTPRINT_INIT { (uint32_t)sizeof(gpuserve_footprint), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * What a model directory holds, from its configuration and file headers only, as a JSON object:
 * architecture, sizes, tokenizer, pooling, prompts, labels, limits, parameter count. Output as in
 * gpuserve_context_metrics().
 *
 * @param model  A directory, or the name of a model in the Hugging Face cache.
 * @return as gpuserve_model_open(), without the device
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_inspect(gpuserve_context *context, const char *model, char *text, size_t capacity,
                       size_t *size, gpuserve_error *error);

/**
 * The memory a model will take, without loading it.
 *
 * @param options    As for gpuserve_model_open(); may be NULL.
 * @param footprint  Receives the figures; begin with GPUSERVE_FOOTPRINT_INIT. A model that does not fit
 *                   is no error here: see `fits`.
 * @return as gpuserve_model_open()
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_footprint(gpuserve_context *context, const char *model,
                         const gpuserve_model_options *options, gpuserve_footprint *footprint,
                         gpuserve_error *error);

/**
 * Load a model from an ordinary Hugging Face or sentence-transformers directory.
 *
 * @param model    Receives the model, owned; NULL on failure.
 * @param context  NULL gives the model a private context.
 * @param path     A directory, or the name of a model in the Hugging Face cache
 *                 ("sentence-transformers/all-MiniLM-L6-v2"), which may be followed by "@" and a
 *                 branch, tag or commit; else it is the branch main. Nothing is downloaded.
 * @param options  May be NULL. Strings are copied.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_NOT_FOUND    no such directory, or a file is missing; see the hint
 *         GPUSERVE_E_FORMAT       a file is corrupt or contradicts another
 *         GPUSERVE_E_UNSUPPORTED  an architecture, tokenizer part or dtype this version lacks
 *         GPUSERVE_E_TOO_LARGE    over the memory budget; the message has the numbers
 *         GPUSERVE_E_DEVICE       the device named cannot be had
 *         GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM, GPUSERVE_E_IO
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_open(gpuserve_model **model, gpuserve_context *context, const char *path,
                    const gpuserve_model_options *options, gpuserve_error *error);

/** One more owner; returns the same model. NULL is returned as it is. Since: 0.1 */
GPUSERVE_API gpuserve_model *gpuserve_model_ref(gpuserve_model *model);

/**
 * One owner less; the last one ends the model. Waits until its requests have completed; nothing may
 * be submitted meanwhile. Accepts NULL and a pointer to NULL; leaves NULL. Not from a completion
 * callback. All memory goes back to the system: as after opening, suspending and swapping, glibc is
 * asked to return what it keeps free for the whole process (malloc_trim), which takes some tenths
 * of a millisecond. Thread-safety: the owner's last call on this model. Since: 0.1
 */
GPUSERVE_API void gpuserve_model_close(gpuserve_model **model);

/** What a swap changed, as bits. */
typedef enum gpuserve_change {
    GPUSERVE_CHANGE_FINGERPRINT = 1, /**< vectors are of another space: never compare them with
                                          those of before */
    GPUSERVE_CHANGE_DIM = 2,         /**< gpuserve_model_dim() or gpuserve_model_sparse_dim() */
    GPUSERVE_CHANGE_LABELS = 4,      /**< the labels' number, names or order */
    GPUSERVE_CHANGE_MAX_TOKENS = 8   /**< gpuserve_model_max_tokens() */
} gpuserve_change;

/** What a swap may do. Zero means the default in every field. */
typedef struct gpuserve_swap_options {
    uint32_t    struct_size;
    uint32_t    allow;       /**< GPUSERVE_CHANGE_DIM and GPUSERVE_CHANGE_LABELS: what callers size
                                  their buffers and name their columns by is kept unless allowed
                                  here. The other changes are always allowed */
    const char *fingerprint; /**< refuse a model with another one; NULL: any */
} gpuserve_swap_options;

/* clang-format off */
#define GPUSERVE_SWAP_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_swap_options), 0, 0 }
/* clang-format on */

/**
 * Exchange the model behind a handle for another, loaded from a directory, while others use it.
 *
 * The new one is loaded and warmed up beside the old one, so there must be memory for both; then it
 * takes its place at once. A request sees the old or the new wholly, as it was when the request was
 * submitted. Until that moment the old one serves, and on any failure it goes on as if nothing had
 * been tried. Returns when the requests of the old one have completed and its memory is given back.
 *
 * Strings that the accessors lent stay good until the model is closed: for each model with another
 * fingerprint, labels or limits some bytes are kept until then. The accessors tell of the new one
 * from the exchange on; a caller who lets sizes change must take them and submit with a check of
 * his own. gpuserve_completion_fd() stays the same.
 *
 * @param path     As for gpuserve_model_open(); NULL: the one it was last opened from, which reads
 *                 the files again.
 * @param changes  Receives bits of gpuserve_change; may be NULL.
 * @param options  As for gpuserve_model_open(); NULL: those it was last opened with. `name`, `keep`
 *                 and `when_suspended` stay as they were at the opening.
 * @param how      May be NULL.
 * @return as gpuserve_model_open(): GPUSERVE_E_TOO_LARGE when there is no memory for both, in which
 *         case the model may be suspended first; and
 *         GPUSERVE_E_INVALID    the new model has another length or labels than allowed; or this
 *                               is a completion callback
 *         GPUSERVE_E_MISMATCH   it has another fingerprint than how->fingerprint
 *         GPUSERVE_E_NUMERIC    its warm-up gave NaN or infinite results
 *         GPUSERVE_E_CANCELLED  the progress callback said so
 *
 * Thread-safety: safe; a second swap waits for the first. Not from a callback. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_swap(gpuserve_model *model, const char *path, uint32_t *changes,
                    const gpuserve_model_options *options, const gpuserve_swap_options *how,
                    gpuserve_error *error);

/**
 * Give a model's memory back, on its device and beside it, and keep the handle open: only the
 * configuration and the tokenizer stay. Waits until its requests have completed. What comes
 * meanwhile, and later, resumes the model or is refused, as when_suspended says. A model that is
 * suspended stays so.
 *
 * The weights of a model on a GPU are kept in host memory, one copy for all replicas, which counts
 * for the context's budget, and are dropped when there is no memory for it or another model needs
 * the budget. Those of a model on the CPU are dropped at once: a resume reads the files again, from
 * the page cache while it has them. The files stay open meanwhile, so a directory that is removed or
 * has new files under the old names does no harm; files that are changed in place do.
 *
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID, also in a completion callback
 *
 * Thread-safety: safe. Not from a callback. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_suspend(gpuserve_model *model,
                                                                     gpuserve_error *error);

/**
 * Load a suspended model again. One that is not suspended stays as it is.
 *
 * @return GPUSERVE_OK
 *         GPUSERVE_E_TOO_LARGE  there is no memory for it now; it stays suspended
 *         GPUSERVE_E_MISMATCH   its files were changed in place: gpuserve_model_swap() takes them so
 *         else as gpuserve_model_open(); it stays suspended
 *
 * Thread-safety: safe. Not from a callback. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_resume(gpuserve_model *model,
                                                                    gpuserve_error *error);

/**
 * Facts of an open model as a JSON object: what gpuserve_model_inspect() tells, with device, why
 * it was chosen, dtype, threads, fingerprint and memory. Output as in gpuserve_context_metrics().
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_info(gpuserve_model *model, char *text,
                                                                  size_t capacity, size_t *size,
                                                                  gpuserve_error *error);

/** Length of an embedding; 0 for a NULL model. Since: 0.1 */
GPUSERVE_API size_t gpuserve_model_dim(const gpuserve_model *model);

/** Most tokens of a text, special tokens included; longer texts are cut. Since: 0.1 */
GPUSERVE_API size_t gpuserve_model_max_tokens(const gpuserve_model *model);

/** How many labels the model's head has; 0 when it has none and only embeds. Since: 0.1 */
GPUSERVE_API size_t gpuserve_model_label_count(const gpuserve_model *model);

/** Label `index` as UTF-8, lent; NULL past the end. Since: 0.1 */
GPUSERVE_API const char *gpuserve_model_label(const gpuserve_model *model, size_t index);

/**
 * The name of the vector space, 32 hexadecimal digits, lent: equal for two models exactly when
 * weights, tokenizer, pooling, prompts and normalization are equal, whatever their device and
 * dtype. An int8 model has another one on each instruction set, because its vectors differ there.
 * Store it beside vectors.
 *
 * It names the space that the files define, as transformers computes it. A correction that moves
 * the vectors of rare texts only towards that does not change it: the stored vectors of all other
 * texts stay comparable. The changelog names such texts, whose vectors are to be made again; the
 * positions of pad tokens written out in a text ("<pad>") were one. Since: 0.1
 */
GPUSERVE_API const char *gpuserve_model_fingerprint(const gpuserve_model *model);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_MODEL_H */
