/*
 * gpuserve/gpuserve.h - text to vectors, labels and scores, inside your process.
 *
 *   gpuserve_model *model = NULL;
 *   gpuserve_model_open(&model, NULL, "sentence-transformers/all-MiniLM-L6-v2", NULL, &err);
 *   gpuserve_embed(model, texts, n, vectors, n * gpuserve_model_dim(model), NULL, &err);
 *   gpuserve_model_close(&model);
 *
 * The nouns
 *   context   threads, budgets and logging; everything in a process can share one, nothing is
 *             global. A NULL context gives a model a private one.
 *   device    found by listing, or by a selector string ("auto", "cpu", "cuda:0").
 *   model     tokenizer, encoder, pooling, heads. Thread-safe. It changes only by a swap, which
 *             exchanges it whole.
 *   request   one asynchronous submission; completed exactly once.
 *   error     the caller's memory, optional everywhere.
 *
 * Three words for memory: *owned* (the caller ends it with the matching function), *borrowed*
 * (used until the call returns, or until the request completes), *lent* (the result of an
 * accessor, good as long as its parent lives).
 *
 * On failure outputs are untouched, handles are NULL, and the error says what, where and the
 * limit. The library never prints, exits, aborts, or changes the environment, the locale or
 * signal handlers. After fork() the child gets GPUSERVE_E_FORKED from every handle of its parent
 * except in the functions that end one.
 */
#ifndef GPUSERVE_GPUSERVE_H
#define GPUSERVE_GPUSERVE_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSERVE_VERSION_MAJOR 0
#define GPUSERVE_VERSION_MINOR 1
#define GPUSERVE_VERSION_PATCH 0

typedef struct gpuserve_context gpuserve_context;
typedef struct gpuserve_model   gpuserve_model;
typedef struct gpuserve_request gpuserve_request;

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
                                              GPUSERVE_PLUGIN_DIR, then beside the library */
    const char     *cache_dir;           /**< Hugging Face cache; default: HF_HUB_CACHE, HF_HOME/hub
                                              or ~/.cache/huggingface/hub */
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
    GPUSERVE_SUSPENDED_RESUME = 0, /**< resumes it first, in the thread that submits; GPUSERVE_E_BUSY
                                        when there is no memory for it now, or from a callback */
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
    uint32_t    use_mmap;         /**< 1: map the weights; the file must stay as it is meanwhile */
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
                                       `version` nobody else's in the context. Default: the path */
    const char *version;          /**< default ""; a swap may give another one */
    uint32_t    keep;             /**< 1: never suspended in favour of another model */
    uint32_t    when_suspended;   /**< gpuserve_when_suspended */
    gpuserve_lost_fn lost;        /**< told when the device is lost; may be NULL */
    void       *lost_user;
    uint32_t    max_wait_us;      /**< for a fuller batch while the device is busy; default: docs/batching.md */
    uint32_t    reserved;         /**< zero */
} gpuserve_model_options;

/* clang-format off */
#define GPUSERVE_MODEL_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_model_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
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
 * @param footprint  Receives the figures; struct_size set by the caller. A model that does not fit
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
 *                 ("sentence-transformers/all-MiniLM-L6-v2"). Nothing is downloaded.
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
 * callback. Thread-safety: the owner's last call on this model. Since: 0.1
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
 *         GPUSERVE_E_INVALID    the new model has another length or labels than allowed
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
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID
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
 * dtype. Store it beside vectors. Since: 0.1
 */
GPUSERVE_API const char *gpuserve_model_fingerprint(const gpuserve_model *model);

/* ===================================================================================== text */

/** One token's place in its text. */
typedef struct gpuserve_span {
    uint32_t begin; /**< first byte of the text as given */
    uint32_t end;   /**< one past the last byte; begin == end for special tokens */
} gpuserve_span;

/** How a text is tokenized. Zero means the default in every field. */
typedef struct gpuserve_tokenize_options {
    uint32_t struct_size;
    uint32_t no_special;  /**< 1: leave [CLS], [SEP] and their like out */
    uint32_t max_tokens;  /**< cut here; default 0: no limit, unlike in a run */
    uint32_t truncation;  /**< gpuserve_truncation */
} gpuserve_tokenize_options;

/* clang-format off */
#define GPUSERVE_TOKENIZE_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_tokenize_options), 0, 0, 0 }
/* clang-format on */

/** Which end of a text over the limit is cut. */
typedef enum gpuserve_truncation {
    GPUSERVE_TRUNCATE_DEFAULT = 0, /**< the model's own; mostly the right end */
    GPUSERVE_TRUNCATE_RIGHT = 1,
    GPUSERVE_TRUNCATE_LEFT = 2,
    GPUSERVE_TRUNCATE_STRICT = 3   /**< refuse with GPUSERVE_E_TOO_LARGE instead */
} gpuserve_truncation;

/**
 * The token ids of one text, equal to Hugging Face `tokenizers`.
 *
 * @param text      UTF-8, borrowed; may hold NUL bytes. Invalid UTF-8 is refused.
 * @param size      Bytes of `text`.
 * @param ids       Receives at most `capacity` ids; NULL with capacity 0 asks for the count only,
 *                  which is GPUSERVE_OK.
 * @param spans     Receives the same number of places, or NULL.
 * @param n_tokens  Receives how many tokens the text has.
 * @return GPUSERVE_OK; GPUSERVE_E_TOO_LARGE when `capacity` is too small (*n_tokens is set, nothing
 *         else) or in strict truncation; GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_tokenize(gpuserve_model *model, const char *text, size_t size, int32_t *ids,
                  gpuserve_span *spans, size_t capacity, size_t *n_tokens,
                  const gpuserve_tokenize_options *options, gpuserve_error *error);

/**
 * The text of token ids, as the tokenizer's decoder joins them.
 *
 * @param skip_special  1: leave special tokens out.
 * @return as gpuserve_context_metrics(); GPUSERVE_E_INVALID for an id outside the vocabulary
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_detokenize(gpuserve_model *model, const int32_t *ids, size_t n_ids, int32_t skip_special,
                    char *text, size_t capacity, size_t *size, gpuserve_error *error);

/* ====================================================================================== run */

/** What a job computes. */
typedef enum gpuserve_task {
    GPUSERVE_TASK_EMBED = 0,        /**< one vector a text: gpuserve_model_dim() floats */
    GPUSERVE_TASK_CLASSIFY = 1,     /**< one score a label: gpuserve_model_label_count() floats */
    GPUSERVE_TASK_TOKEN_VECTORS = 2, /**< the last hidden state: hidden_size floats a token */
    GPUSERVE_TASK_SPARSE = 3,       /**< a weight for each word of the vocabulary, mostly zero:
                                         gpuserve_model_sparse_dim() floats. Needs a masked language
                                         model (SPLADE). See gpuserve_sparse_compact() */
    GPUSERVE_TASK_TOKEN_LABELS = 4  /**< by token classifiers: one score a label for each token */
} gpuserve_task;

typedef enum gpuserve_normalize {
    GPUSERVE_NORMALIZE_DEFAULT = 0, /**< as the model says */
    GPUSERVE_NORMALIZE_YES = 1,     /**< to L2 norm 1 */
    GPUSERVE_NORMALIZE_NO = 2
} gpuserve_normalize;

typedef enum gpuserve_score {
    GPUSERVE_SCORE_DEFAULT = 0, /**< as the model's problem_type says: softmax, sigmoid, identity */
    GPUSERVE_SCORE_RAW = 1,     /**< logits */
    GPUSERVE_SCORE_SOFTMAX = 2,
    GPUSERVE_SCORE_SIGMOID = 3
} gpuserve_score;

/** Whose work comes first. When all classes wait, a model's time is shared 16 : 4 : 1, so that none
 *  starves; within a class requests take turns. */
typedef enum gpuserve_priority {
    GPUSERVE_PRIORITY_NORMAL = 0,
    GPUSERVE_PRIORITY_HIGH = 1,
    GPUSERVE_PRIORITY_LOW = 2
} gpuserve_priority;

/** Whether a text may be answered with a result that was computed for an equal one. Results are
 *  the same bits either way: texts are equal when their token ids are. */
typedef enum gpuserve_cache {
    GPUSERVE_CACHE_DEFAULT = 0, /**< as ON where the model has a cache; else equal texts that are
                                     in the queue at the same time are computed once */
    GPUSERVE_CACHE_ON = 1,      /**< likewise, but refused (GPUSERVE_E_UNSUPPORTED) without a cache */
    GPUSERVE_CACHE_OFF = 2      /**< compute every text, keep nothing */
} gpuserve_cache;

/** What became of one text. The layout of this struct is fixed for ever. */
typedef struct gpuserve_item {
    int32_t  status;      /**< GPUSERVE_OK, or GPUSERVE_E_NUMERIC: this row holds NaN */
    uint32_t n_tokens;    /**< tokens of the text, special ones included */
    uint32_t truncated;   /**< 1: the text was longer than the limit and was cut */
    uint32_t cached;      /**< 1: the row was computed for an equal text, not for this one */
    uint32_t reserved[4]; /**< zero */
} gpuserve_item;

/** What became of a job as a whole. Written when it completes with GPUSERVE_OK or
 *  GPUSERVE_E_NUMERIC, untouched otherwise. */
typedef struct gpuserve_result {
    uint32_t struct_size;
    uint32_t dtype;           /**< gpuserve_dtype it was computed in; never DEFAULT */
    uint64_t n_tokens;        /**< of all items, special ones included */
    uint64_t n_truncated;     /**< items that were cut */
    uint64_t n_cached;        /**< items that were computed for an equal text */
    uint64_t tokenize_us;     /**< spent on tokenization, summed over threads */
    uint64_t queue_us;        /**< from the end of the submitting call's work until the first batch
                                   with one of its items began; for a large job tokenization that
                                   was waited for is part of it */
    uint64_t compute_us;      /**< from then to the end of its last batch */
    uint64_t total_us;        /**< from submission to completion */
    char     device[64];      /**< selector of the device: "cpu", "cuda:0" */
    char     fingerprint[40]; /**< of the model: see gpuserve_model_fingerprint() */
} gpuserve_result;

/* clang-format off */
#define GPUSERVE_RESULT_INIT { (uint32_t)sizeof(gpuserve_result), 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 } }
/* clang-format on */

/**
 * One piece of work: n_items texts (or pairs of texts, or lists of token ids) and where the
 * result goes. Zero means the default in every field but n_items, its input and the output.
 * Give exactly one of `texts` and `ids`.
 */
typedef struct gpuserve_job {
    uint32_t             struct_size;
    uint32_t             task;        /**< gpuserve_task */
    size_t               n_items;     /**< 0 is allowed and does nothing */
    const char *const   *texts;       /**< [n_items] UTF-8 */
    const size_t        *text_sizes;  /**< [n_items] bytes, or NULL: NUL-terminated */
    const char *const   *pairs;       /**< [n_items] second texts, or NULL */
    const size_t        *pair_sizes;  /**< as text_sizes */
    const int32_t       *ids;         /**< token ids with their special tokens, end to end; a list
                                           over the model's limit is refused, never cut */
    const size_t        *id_offsets;  /**< [n_items + 1] where each list begins in `ids` */
    const char          *prompt_name; /**< one of the model's prompts ("query"), or NULL */
    const char          *prompt;      /**< put before every text, or NULL; excludes prompt_name */
    uint32_t             dimensions;  /**< keep the first ones of an embedding; default all */
    uint32_t             truncation;  /**< gpuserve_truncation */
    uint32_t             normalize;   /**< gpuserve_normalize, of an embedding */
    uint32_t             score;       /**< gpuserve_score, of a text's or a token's labels */
    float               *output;      /**< row i for item i; untouched on failure */
    size_t               output_capacity; /**< floats at `output` */
    size_t               output_stride;   /**< floats from row to row; default tight */
    gpuserve_item       *items;       /**< [n_items], or NULL */
    size_t              *token_offsets; /**< TOKEN_VECTORS and _LABELS: receives [n_items + 1] rows
                                             of each item; else NULL */
    int64_t              deadline_us; /**< from submission; what has not begun to be computed by then
                                           is not: GPUSERVE_E_EXPIRED. Negative: past already; 0:
                                           none. A job whose last item has begun is finished */
    uint32_t             priority;    /**< gpuserve_priority */
    uint32_t             cache;       /**< gpuserve_cache */
    const char          *expected_fingerprint; /**< refuse with GPUSERVE_E_MISMATCH unless it is the
                                           model's; default NULL: any */
    gpuserve_result     *result;      /**< receives tokens, device and times, or NULL */
} gpuserve_job;

/* clang-format off */
#define GPUSERVE_JOB_INIT { (uint32_t)sizeof(gpuserve_job), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Called once when a request completes, from a library thread: it may submit (which does not resume
 *  a suspended model: GPUSERVE_E_BUSY), must not block and must not close the model. `status` is what
 *  gpuserve_wait() will return. */
typedef void (*gpuserve_completion_fn)(void *user, gpuserve_request *request,
                                       gpuserve_status status);

/**
 * Run a job, blocking until every row is written. Calls of many threads are batched together.
 *
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID    the job is wrong: output too small, text not UTF-8, id outside the
 *                               vocabulary, unknown prompt (the message lists them), both or
 *                               neither input, unknown struct_size
 *         GPUSERVE_E_TOO_LARGE  over the memory budget, or over the token limit in strict mode
 *         GPUSERVE_E_UNSUPPORTED the model cannot do the task (no head, no pair template)
 *         GPUSERVE_E_NUMERIC    some items are NaN or infinite: items[i].status names them, the
 *                               others are good
 *         GPUSERVE_E_BUSY       the queue is full; try again after error->retry_after_ms
 *         GPUSERVE_E_EXPIRED    the deadline passed before the last item began to be computed
 *         GPUSERVE_E_MISMATCH   the model has another fingerprint than the one expected
 *         GPUSERVE_E_DEVICE     the device failed; close the model
 *         GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_run(gpuserve_model     *model,
                                                           const gpuserve_job *job,
                                                           gpuserve_error     *error);

/** Options of gpuserve_embed(); the fields are those of gpuserve_job. */
typedef struct gpuserve_embed_options {
    uint32_t       struct_size;
    uint32_t       dimensions;
    uint32_t       truncation;
    uint32_t       normalize;
    const char    *prompt_name;
    const char    *prompt;
    gpuserve_item *items;
    int64_t        deadline_us;
    uint32_t       priority;
    uint32_t       cache;
    const char    *expected_fingerprint;
    gpuserve_result *result;
} gpuserve_embed_options;

/* clang-format off */
#define GPUSERVE_EMBED_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_embed_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Embed a batch of texts, blocking until every vector is written.
 *
 * @param model     Other threads may use it at the same time.
 * @param texts     NUL-terminated UTF-8, borrowed for the call. A text past the model's token
 *                  limit is cut, and told in options->items; see gpuserve_model_max_tokens().
 * @param n_texts   0 is allowed and does nothing.
 * @param vectors   Receives n_texts * gpuserve_model_dim(model) floats (or options->dimensions a
 *                  text), row i for texts[i]. The caller's memory; untouched on failure.
 * @param n_floats  Capacity of `vectors`, counted in floats.
 * @param options   May be NULL: the model's defaults.
 * @param error     May be NULL; filled on failure only.
 * @return as gpuserve_run()
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_embed(gpuserve_model    *model,
                                                             const char *const *texts,
                                                             size_t n_texts, float *vectors,
                                                             size_t n_floats,
                                                             const gpuserve_embed_options *options,
                                                             gpuserve_error *error);

/** Options of gpuserve_classify(); the fields are those of gpuserve_job. */
typedef struct gpuserve_classify_options {
    uint32_t           struct_size;
    uint32_t           truncation;
    uint32_t           score;
    uint32_t           reserved;
    const char *const *pairs; /**< [n_texts] second texts for a model of pairs, or NULL */
    gpuserve_item     *items;
    int64_t            deadline_us;
    uint32_t           priority;
    uint32_t           cache;
    const char        *expected_fingerprint;
    gpuserve_result   *result;
} gpuserve_classify_options;

/* clang-format off */
#define GPUSERVE_CLASSIFY_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_classify_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Score a batch of texts on every label, blocking.
 *
 * @param scores    Receives n_texts * gpuserve_model_label_count(model) floats: column j of a row
 *                  is gpuserve_model_label(model, j). Probabilities unless the model is a
 *                  regression or options->score says otherwise.
 * @param n_floats  Capacity of `scores`, counted in floats.
 * @return as gpuserve_run()
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_classify(
    gpuserve_model *model, const char *const *texts, size_t n_texts, float *scores, size_t n_floats,
    const gpuserve_classify_options *options, gpuserve_error *error);

/* ============================================================================= asynchronous */

/**
 * Submit a job and return at once.
 *
 * @param request   Receives the request, owned by the caller, who ends it with
 *                  gpuserve_request_free(); NULL on failure.
 * @param job       The struct is copied; texts, ids and outputs are borrowed until the request
 *                  completes. The prompt strings are copied.
 * @param callback  May be NULL.
 * @param user      Handed to the callback.
 * @return as gpuserve_run(): a job that is wrong is refused here, whole. Of more than 16 KiB of
 *         text, what only tokenizing can find is told at completion instead.
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_submit(gpuserve_request **request, gpuserve_model *model, const gpuserve_job *job,
                gpuserve_completion_fn callback, void *user, gpuserve_error *error);

/**
 * Wait for a request.
 *
 * @param timeout_us  0 asks without waiting; a negative number waits as long as it takes.
 * @return GPUSERVE_E_TIMEOUT while it is not complete, else its result as from gpuserve_run(), or
 *         GPUSERVE_E_CANCELLED. May be called again, by several threads.
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_wait(gpuserve_request *request,
                                                            int64_t timeout_us,
                                                            gpuserve_error *error);

/**
 * Ask that a request not be computed. What is already being computed is finished and thrown away;
 * either way the request completes with GPUSERVE_E_CANCELLED and its output is untouched. A
 * request that has completed stays as it is. Returns GPUSERVE_OK in every case but a NULL request.
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API gpuserve_status gpuserve_cancel(gpuserve_request *request);

/** End a request; waits for its completion and its callback first. Accepts NULL and a pointer to
 *  NULL; leaves NULL. From its own callback: allowed. Since: 0.1 */
GPUSERVE_API void gpuserve_request_free(gpuserve_request **request);

/**
 * A file descriptor (eventfd) that becomes readable whenever a request of this model completes;
 * reading 8 bytes gives how many since the last read. Lent: never close it. -1 on failure.
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API int gpuserve_completion_fd(gpuserve_model *model);

#ifdef __cplusplus
}
#endif

#include <gpuserve/compute.h>
#include <gpuserve/devices.h>
#include <gpuserve/retrieval.h>

#endif /* GPUSERVE_GPUSERVE_H */
