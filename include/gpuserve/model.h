/*
 * gpuserve/model.h - model life cycle: inspection, memory footprint, loading, swap, suspend and
 * resume, and properties. <gpuserve/gpuserve.h> includes this header.
 */
#ifndef GPUSERVE_MODEL_H
#define GPUSERVE_MODEL_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==================================================================================== model */

/** Special values of gpuserve_model_options.warmup, which else is a number of batches. */
#define GPUSERVE_WARMUP_GPU UINT32_C(0xfffffffd) /**< auto on a GPU, the default on a CPU; Since: 0.2 */
#define GPUSERVE_WARMUP_OFF UINT32_C(0xfffffffe)
#define GPUSERVE_WARMUP_AUTO UINT32_C(0xffffffff) /**< until batches stop getting faster */
#define GPUSERVE_WAIT_NONE UINT32_C(0xffffffff)   /**< value of
                                                       gpuserve_model_options.max_wait_us */

/** Stage of a model load. */
typedef enum gpuserve_stage {
    GPUSERVE_STAGE_WARMUP = 1, /**< progress in batches */
    GPUSERVE_STAGE_CONVERT = 3, /**< gpuserve_convert(): progress in bytes of the tensors read */
    GPUSERVE_STAGE_WEIGHTS = 2 /**< progress in bytes of the files; precedes the warm-up. At 0 the
                                    memory is reserved and nothing has been read */
} gpuserve_stage;

/** Policy for a request to a suspended model. */
typedef enum gpuserve_when_suspended {
    GPUSERVE_SUSPENDED_RESUME = 0, /**< resume the model first, in the submitting thread. It waits
                                        for memory under the context's policy, at most until the
                                        job's deadline; then GPUSERVE_E_BUSY or GPUSERVE_E_EXPIRED
                                        with the sizes. From a callback: GPUSERVE_E_BUSY */
    GPUSERVE_SUSPENDED_REFUSE = 1  /**< GPUSERVE_E_BUSY at once */
} gpuserve_when_suspended;

/**
 * Reports the progress of a model load, from the loading thread: must not use the model.
 *
 * @param stage  A gpuserve_stage; more may be added.
 * @param done   From 0 to `total`, increasing within a stage.
 * @return 0 to continue; any other value aborts the load with GPUSERVE_E_CANCELLED
 */
typedef int32_t (*gpuserve_progress_fn)(void *user, uint32_t stage, uint64_t done, uint64_t total);

/** Load options of a model. Zero means the default in every field. */
typedef struct gpuserve_model_options {
    uint32_t    struct_size;
    uint32_t    dtype;            /**< gpuserve_dtype */
    const char *device;           /**< selector as in gpuserve_device_select(); default "auto". A
                                       selector of several devices ("cuda:*", "auto:limit=2") loads
                                       a replica with all weights on each; the replicas share the
                                       model's queue */
    const char *head;             /**< file of a classifier head over the embedding, or the name
                                       of an installed one (see docs/heads.md), or NULL. Its name is
                                       that of the file without folder and ".safetensors" */
    uint32_t    max_tokens;       /**< token limit of a text, special tokens included; default the
                                       model's; more than its position count is an error */
    uint32_t    max_batch_tokens; /**< max tokens of a batch, which one thread computes; default 512
                                       on a CPU, 16384 on a GPU, halved until the budgets allow it.
                                       Larger work is split into batches of this size */
    uint32_t    n_threads;        /**< number of the context's threads; default all. On a GPU they
                                       tokenize, and one runs each batch */
    uint32_t    pooling;          /**< gpuserve_pooling_kind that overrides the model's own */
    uint32_t    use_mmap;         /**< 1, on a CPU: packed weights of any dtype are kept on disk and
                                       mapped read-only, so that processes share them; see
                                       gpuserve_model_open() */
    uint32_t    max_queue_tokens; /**< queue limit; one request reserves at most half of it; default
                                       1048576 */
    uint32_t    warmup;           /**< batches to run before the model is returned: a number, or
                                       GPUSERVE_WARMUP_AUTO, _GPU or _OFF. Default: off for
                                       gpuserve_model_open(), auto for gpuserve_model_swap(). A
                                       GPU's first batches load code, measure products and record
                                       graphs: they take up to a hundred times as long */
    uint32_t    on_device_lost;   /**< gpuserve_lost_policy; also applies if the device is lost
                                       before or during the load */
    gpuserve_progress_fn progress; /**< reports the progress of the load; may be NULL */
    void       *progress_user;
    uint64_t    max_queue_bytes;  /**< queue limit on bytes of texts and results, as
                                       max_queue_tokens; default 256 MiB */
    uint64_t    cache_bytes;      /**< max memory of the result cache: gpuserve_cache; default 0: no
                                       cache */
    uint64_t    memory_budget_bytes; /**< max memory of this model, of every kind; default none */
    const char *name;             /**< name for gpuserve_context_find(); the pair of `name` and
                                       `version` is unique in the context. Both are UTF-8. Default:
                                       the path */
    const char *version;          /**< default ""; a swap may set another one */
    uint32_t    keep;             /**< 1: never evicted in favour of another model */
    uint32_t    when_suspended;   /**< gpuserve_when_suspended */
    gpuserve_lost_fn lost;        /**< reports a lost device; may be NULL */
    void       *lost_user;
    uint32_t    max_wait_us;      /**< max wait for a fuller batch while the device is busy; default
                                       300 on a GPU, none on a CPU; see docs/batching.md.
                                       GPUSERVE_WAIT_NONE: none */
    uint32_t    max_queue_ms;     /**< queue limit in time: work waiting, divided by the recently
                                       measured throughput. Applies below max_queue_tokens; one
                                       request reserves at most an eighth of it. Two batches per
                                       thread may always wait. Small requests, and clients with few
                                       queued tokens, have reserves above the limit; in total at
                                       most 7/4 of it waits. Default none */
    const char *default_prompt_name; /**< the model's prompt for jobs that name none; default: the
                                          model's own default prompt */
    const char *default_prompt;   /**< the same as a text, UTF-8; "": no prompt */
    uint64_t    max_tokens_per_second; /**< quota, at most 10^12: a token bucket with the capacity of
                                       one second. A request is admitted while the bucket is not
                                       empty and takes its tokens, below zero too, so that the rate
                                       holds for requests of any size; else GPUSERVE_E_BUSY, with
                                       retry_after_ms. Counted are tokens that are computed: not
                                       those of the result cache. Default 0: none. Since: 0.2 */
    uint32_t    deterministic;    /**< 1, on a GPU: the bits of a text's result do not depend on the
                                       other texts of its batch, at a cost in speed; part of the
                                       fingerprint there. Always so on a CPU. Since: 0.2 */
    const char *adapters;         /**< LoRA adapters in PEFT's format, "NAME=DIRECTORY", one a line;
                                       DIRECTORY as the path of gpuserve_model_open(), at most 64.
                                       A job chooses one by its prompt name, NAME, which is a prompt
                                       with an empty text unless the model has one of that name; a
                                       job without it gets the model without an adapter. An adapter
                                       with a classifier is GPUSERVE_E_UNSUPPORTED: open its
                                       directory as a model. Default: none. Since: 0.2 */
    const char *heads;            /**< further classifier heads, "NAME=FILE" or "FILE", one a line,
                                       FILE as `head`; with `head` at most 32. A name has 1 to 64
                                       bytes of UTF-8 without "," and control characters, is not
                                       "*", and is unique. A job chooses heads by name, and all of
                                       them are computed in one pass: gpuserve_job.heads. Default:
                                       none. Since: 0.2 */
    uint32_t    portable_bits;    /**< 1, on a CPU: the bits of embeddings are the same on every
                                       processor, for every dtype, at a cost in speed where it has
                                       bfloat16 instructions (docs/accuracy.md); part of the
                                       fingerprint of int8. The default device is the CPU then;
                                       another one is GPUSERVE_E_UNSUPPORTED. Since: 0.2 */
    uint32_t    stream_weights;   /**< 1, on a GPU: if the model does not fit in the memory of the
                                       device, or in its budget, the products of as many of the last
                                       layers as needed stay in pinned host memory, and each batch
                                       copies them to the device, layer by layer, beside the
                                       computation. A batch then takes at least the time of the
                                       copies: see docs/lessons.md. One stream instead of two. Not
                                       for int8: GPUSERVE_E_UNSUPPORTED. Without effect on a CPU,
                                       whose weights use_mmap maps. gpuserve_model_info() tells the
                                       number of layers. Since: 0.2 */
    uint32_t    pipeline;         /**< 1: the GPUs of a selector of several share the layers of one
                                       copy of the weights, in order and by bytes, each within its
                                       free memory and its budget, so that a model larger than a
                                       GPU runs. Several batches are in flight, and the GPUs compute
                                       at the same time. If one is lost, the model is. Not for one
                                       device, more devices than layers, int8, stream_weights and
                                       gpuserve_model_profile(): GPUSERVE_E_UNSUPPORTED.
                                       gpuserve_model_info() tells the layers of each device; the
                                       footprint's available_bytes are those of all. Since: 0.2 */
} gpuserve_model_options;

/* clang-format off */
#define GPUSERVE_MODEL_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_model_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Pooling: reduces the token vectors of a text to one vector. */
typedef enum gpuserve_pooling_kind {
    GPUSERVE_POOLING_DEFAULT = 0, /**< the model's own; mean if it names none */
    GPUSERVE_POOLING_CLS = 1,
    GPUSERVE_POOLING_MEAN = 2,
    GPUSERVE_POOLING_MAX = 3,
    GPUSERVE_POOLING_MEAN_SQRT_LEN = 4,
    GPUSERVE_POOLING_WEIGHTED_MEAN = 5,
    GPUSERVE_POOLING_LAST = 6
} gpuserve_pooling_kind;

/** Memory that a model needs, computed from file headers before the load. Exact. */
typedef struct gpuserve_footprint {
    uint32_t struct_size;
    uint32_t fits;            /**< 1: within the device's free memory and the context's budget */
    uint64_t weights_bytes;   /**< as packed for the device and dtype; sum over replicas */
    uint64_t workspace_bytes; /**< activations, sum over streams */
    uint64_t stream_bytes;    /**< scratch and staging memory of the backend */
    uint64_t host_bytes;      /**< tokenizer, labels, queues; an upper bound */
    uint64_t total_bytes;     /**< sum of the four */
    uint64_t available_bytes; /**< the limit that `fits` compares with */
    uint32_t max_batch_tokens; /**< the largest value that fits, 0 if none */
    uint32_t n_streams;
} gpuserve_footprint;

/* clang-format off */
#define GPUSERVE_FOOTPRINT_INIT { (uint32_t)sizeof(gpuserve_footprint), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Describe a model directory as a JSON object, from its configuration and file headers only:
 * architecture, sizes, tokenizer, pooling, prompts, labels, limits, parameter count. Output as in
 * gpuserve_context_metrics().
 *
 * @param path     As for gpuserve_model_open().
 * @param options  As for gpuserve_model_open(); may be NULL. Heads, adapters, a pooling and a
 *                 limit of tokens are described as they are when the model is opened.
 * @return as gpuserve_model_open(), without the device
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_inspect(gpuserve_context *context, const char *path,
                       const gpuserve_model_options *options, char *text, size_t capacity,
                       size_t *size, gpuserve_error *error);

/**
 * Compute the memory a model needs, without loading it.
 *
 * @param options    As for gpuserve_model_open(); may be NULL.
 * @param footprint  Receives the sizes; initialise with GPUSERVE_FOOTPRINT_INIT. A model that does
 *                   not fit is not an error here: see `fits`.
 * @return as gpuserve_model_open()
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_footprint(gpuserve_context *context, const char *path,
                         const gpuserve_model_options *options, gpuserve_footprint *footprint,
                         gpuserve_error *error);

/**
 * Load a model from an unmodified Hugging Face or sentence-transformers directory, or a GGUF file.
 *
 * On a CPU, packed int8 weights (with `use_mmap` those of every dtype) are kept in a folder on disk
 * together with their calibration, and a later load takes them from there: docs/formats.md. The
 * folder is GPUSERVE_WEIGHTS_CACHE when the context is created (an absolute path; any other value:
 * none), by default gpuserve/weights in XDG_CACHE_HOME or ~/.cache. It never fails a load.
 *
 * @param model    Receives the model, owned; NULL on failure.
 * @param context  NULL gives the model a private context.
 * @param path     A directory, a GGUF file, or the name of a model in the Hugging Face cache
 *                 ("sentence-transformers/all-MiniLM-L6-v2"), optionally followed by "@" and a
 *                 branch, tag or commit; default the branch main. Nothing is downloaded. Or
 *                 "random:SHAPE": a BERT encoder with seeded random weights, made without files, to
 *                 try sizes and speeds. SHAPE is bert-tiny, -mini, -small, -medium, -base or -large,
 *                 minilm-l6, or keys, separated by commas: layers, hidden, heads, intermediate,
 *                 vocab, positions, seed ("random:bert-base,seed=1", "random:layers=4,hidden=256").
 *                 The same path gives the same weights on every machine and device.
 * @param options  May be NULL. Strings are copied.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_NOT_FOUND    no such directory, or a file is missing; see the hint
 *         GPUSERVE_E_FORMAT       a file is corrupt or contradicts another
 *         GPUSERVE_E_UNSUPPORTED  an architecture, tokenizer part or dtype this version lacks
 *         GPUSERVE_E_TOO_LARGE    over the memory budget; the message has the sizes
 *         GPUSERVE_E_DEVICE       the named device is unavailable
 *         GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM, GPUSERVE_E_IO
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_open(gpuserve_model **model, gpuserve_context *context, const char *path,
                    const gpuserve_model_options *options, gpuserve_error *error);

/** Add a reference; returns the same model. NULL returns NULL. Since: 0.2 */
GPUSERVE_API gpuserve_model *gpuserve_model_ref(gpuserve_model *model);

/**
 * Drop a reference; the last one closes the model. Waits until its requests have completed; no
 * request may be submitted meanwhile. Accepts NULL and a pointer to NULL; leaves NULL. Not from a
 * completion callback. All memory returns to the system: after opening, suspending, swapping and
 * closing, the library calls malloc_trim() of glibc, which returns the free heap of the whole
 * process in some tenths of a millisecond. Thread-safety: the last call with this reference.
 * Since: 0.2
 */
GPUSERVE_API void gpuserve_model_close(gpuserve_model **model);

/** Bit flags of the changes that a swap made. */
typedef enum gpuserve_change {
    GPUSERVE_CHANGE_FINGERPRINT = 1, /**< another vector space: never compare new vectors with those
                                          of before the swap */
    GPUSERVE_CHANGE_DIM = 2,         /**< dim, token_dim or sparse_dim of gpuserve_model_properties */
    GPUSERVE_CHANGE_LABELS = 4,      /**< number, names or order of the labels; with several heads
                                          those of every head, and of the heads */
    GPUSERVE_CHANGE_MAX_TOKENS = 8   /**< gpuserve_model_max_tokens() */
} gpuserve_change;

/** Conditions of a swap. Zero means the default in every field. */
typedef struct gpuserve_swap_options {
    uint32_t    struct_size;
    uint32_t    allow;       /**< GPUSERVE_CHANGE_DIM and GPUSERVE_CHANGE_LABELS: callers depend on
                                  both for buffer sizes and column names, so a swap that changes
                                  them fails unless allowed here. The other changes are always
                                  allowed */
    const char *fingerprint; /**< the required fingerprint of the new model; NULL: any */
} gpuserve_swap_options;

/* clang-format off */
#define GPUSERVE_SWAP_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_swap_options), 0, 0 }
/* clang-format on */

/**
 * Replace the model behind a handle with another one, loaded from a directory, without downtime.
 *
 * The new model is loaded and warmed up while the old one serves, so both need memory; then it replaces
 * the old one atomically. A request uses the model that was current at its submission. The old
 * model serves until the replacement; after a failure it continues unchanged. Returns when the
 * requests of the old model have completed and its memory is released.
 *
 * Strings from accessors stay valid until the model is closed: a swap to another fingerprint,
 * labels or limits keeps some bytes until then. The accessors describe the new model from the
 * replacement on. A caller that allows other sizes must read them again, and check them at each
 * submission (for example with expected_fingerprint). gpuserve_completion_fd() does not change.
 *
 * @param path     As for gpuserve_model_open(); NULL: the path of the last load, which reads its
 *                 files again.
 * @param changes  Receives bits of gpuserve_change; may be NULL.
 * @param options  As for gpuserve_model_open(); NULL: the options of the last load. `name`, `keep`
 *                 and `when_suspended` keep their values from gpuserve_model_open().
 * @param how      May be NULL.
 * @return as gpuserve_model_open(): GPUSERVE_E_TOO_LARGE if there is no memory for both (a
 *         remedy is to suspend the model first); and
 *         GPUSERVE_E_INVALID    the new model has a dimension or labels that are not allowed; or
 *                               the call is from a completion callback
 *         GPUSERVE_E_MISMATCH   its fingerprint differs from how->fingerprint
 *         GPUSERVE_E_NUMERIC    its warm-up gave NaN or infinite results
 *         GPUSERVE_E_CANCELLED  the progress callback aborted the load
 *
 * Thread-safety: safe; concurrent swaps are serialised. Not from a callback. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_swap(gpuserve_model *model, const char *path, uint32_t *changes,
                    const gpuserve_model_options *options, const gpuserve_swap_options *how,
                    gpuserve_error *error);

/**
 * Release the memory of a model, on its device and on the host, and keep the handle open: only the
 * configuration and the tokenizer stay. Waits until its requests have completed. Requests during
 * and after the call resume the model or are refused, as when_suspended says. A suspended model
 * is unchanged.
 *
 * Weights of a GPU model are offloaded to host memory, one copy for all replicas, which counts
 * against the context's budget. They are dropped if there is no memory for the copy, or when
 * another model needs the budget. Weights of a CPU model are dropped at once: a resume reads the
 * files again, from the page cache if possible. The files stay open, so removing or replacing them
 * is safe; modifying them in place is not.
 *
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID, also in a completion callback
 *
 * Thread-safety: safe. Not from a callback. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_suspend(gpuserve_model *model,
                                                                     gpuserve_error *error);

/**
 * Load a suspended model again. A model that is not suspended is unchanged.
 *
 * @return GPUSERVE_OK
 *         GPUSERVE_E_TOO_LARGE  not enough memory now; it stays suspended
 *         GPUSERVE_E_MISMATCH   its files were modified in place; gpuserve_model_swap() loads them
 *         else as gpuserve_model_open(); it stays suspended
 *
 * Thread-safety: safe. Not from a callback. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_resume(gpuserve_model *model,
                                                                    gpuserve_error *error);

/**
 * Model info of an open model as a JSON object: the fields of gpuserve_model_inspect(), and device,
 * the reason for its choice, dtype, threads, fingerprint and memory.
 * Output as in gpuserve_context_metrics(). Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_info(gpuserve_model *model, char *text,
                                                                  size_t capacity, size_t *size,
                                                                  gpuserve_error *error);

/**
 * Properties of an open model: tasks, vector dimensions, token limits, label counts. A snapshot: all
 * values are of the same model, also beside a swap. Since: 0.2
 */
typedef struct gpuserve_model_properties {
    uint32_t struct_size;
    uint32_t tasks;            /**< bits 1 << gpuserve_task of the tasks that it supports */
    size_t   dim;              /**< floats of an embedding: gpuserve_model_dim() */
    size_t   token_dim;        /**< floats of a token vector */
    size_t   first_vector;     /**< the first ones of a text's token vectors that are not part of late
                                    interaction: gpuserve_max_sim() begins behind them */
    size_t   sparse_dim;       /**< floats of a row of GPUSERVE_TASK_SPARSE, at most 2^24; 0 without the
                                    task */
    size_t   max_tokens;       /**< gpuserve_model_max_tokens() */
    size_t   query_tokens;     /**< token limit of a text with GPUSERVE_ROLE_QUERY */
    size_t   document_tokens;  /**< and with GPUSERVE_ROLE_DOCUMENT */
    size_t   expanded_tokens;  /**< token vectors of a query that has fewer tokens; 0: queries are not
                                    filled up */
    size_t   vocab_size;       /**< the ids of gpuserve_job.ids are below it */
    size_t   n_labels;         /**< gpuserve_model_label_count() */
    size_t   n_heads;          /**< heads that the model was opened with, `head` and `heads` of
                                    gpuserve_model_options: see gpuserve_model_head(). The model's own
                                    classifier is not one */
    int32_t  entailment_label; /**< index of the label of entailment, for zero-shot classification; -1:
                                    the model has none */
    uint32_t rerank_method;    /**< the default gpuserve_rerank_method: CROSS_ENCODER if the model has a
                                    classifier of its own with one label, else COSINE if it computes
                                    embeddings, else MAX_SIM if its output is token vectors, else
                                    DEFAULT: it cannot rerank */
    uint32_t dtype;            /**< gpuserve_dtype of the computation; never DEFAULT */
    uint32_t finds_entities;   /**< 1: it takes labels with the text: gpuserve_entity_query_create() */
    uint32_t takes_instruction; /**< 1: a reranker whose gpuserve_rerank_options.query_prompt is an
                                     instruction */
    uint32_t reserved;         /**< zero */
    char     fingerprint[40];  /**< gpuserve_model_fingerprint(). As gpuserve_job.expected_fingerprint
                                    it holds a job to the model that has these properties */
} gpuserve_model_properties;

/* clang-format off */
#define GPUSERVE_MODEL_PROPERTIES_INIT { (uint32_t)sizeof(gpuserve_model_properties), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 } }
/* clang-format on */

/**
 * Read the properties of an open model. gpuserve_model_inspect() and gpuserve_model_info() have them as
 * JSON, with more.
 *
 * @param properties  Receives them; initialise with GPUSERVE_MODEL_PROPERTIES_INIT.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_model_get_properties(const gpuserve_model *model, gpuserve_model_properties *properties,
                              gpuserve_error *error);

/** Dimension of an embedding; 0 for a NULL model. Since: 0.2 */
GPUSERVE_API size_t gpuserve_model_dim(const gpuserve_model *model);

/** Max tokens of a text, special tokens included; longer texts are cut. Since: 0.2 */
GPUSERVE_API size_t gpuserve_model_max_tokens(const gpuserve_model *model);

/** Number of labels of the model's classifier, or of its first head; 0 for a model without one.
 *  Since: 0.2 */
GPUSERVE_API size_t gpuserve_model_label_count(const gpuserve_model *model);

/** Label `index` of these, UTF-8. Borrowed from the model; NULL if the index is out of range. Since: 0.2 */
GPUSERVE_API const char *gpuserve_model_label(const gpuserve_model *model, size_t index);

/** A classifier head. The pointers are borrowed from the model. Since: 0.2 */
typedef struct gpuserve_head {
    uint32_t           struct_size;
    uint32_t           score;    /**< gpuserve_score that GPUSERVE_SCORE_DEFAULT stands for: SOFTMAX,
                                      SIGMOID, or RAW */
    const char        *name;
    const char *const *labels;   /**< [n_labels] UTF-8 */
    size_t             n_labels; /**< columns of its scores */
} gpuserve_head;

/* clang-format off */
#define GPUSERVE_HEAD_INIT { (uint32_t)sizeof(gpuserve_head), 0, 0, 0, 0 }
/* clang-format on */

/**
 * Head `index`: `head` of the options first, then those of `heads` in order.
 *
 * @param head  Receives the head; initialise with GPUSERVE_HEAD_INIT.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID: there is no such head; GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_model_head(const gpuserve_model *model,
                                                                  size_t index,
                                                                  gpuserve_head *head,
                                                                  gpuserve_error *error);

/**
 * Identifier of the vector space, 32 hexadecimal digits, borrowed from the model. Two models have
 * the same one exactly if weights, tokenizer, pooling, prompts and normalization are equal,
 * whatever their device and dtype. An int8 model has another one on each instruction set, because
 * its vectors differ there. Store it with the vectors.
 *
 * It identifies the space that the files define, as transformers computes it. A bug fix that only
 * changes the vectors of rare texts towards that definition keeps it: the stored vectors of all
 * other texts stay comparable. The changelog names such texts, whose vectors must be recomputed;
 * the positions of pad tokens written out in a text ("<pad>") were one case. Since: 0.2
 */
GPUSERVE_API const char *gpuserve_model_fingerprint(const gpuserve_model *model);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_MODEL_H */
