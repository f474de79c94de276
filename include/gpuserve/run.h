/*
 * gpuserve/run.h - what a model does: tokens, vectors, labels; at once, or submitted and waited for.
 * <gpuserve/gpuserve.h> includes it.
 */
#ifndef GPUSERVE_RUN_H
#define GPUSERVE_RUN_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ===================================================================================== text */

/** One token's place in its text. The layout of this struct is fixed for ever. */
typedef struct gpuserve_span {
    uint32_t begin; /**< first byte of the text as given */
    uint32_t end;   /**< one past the last byte; 0 for special tokens, which are nowhere. A
                         token of a space alone may be empty too, at its place */
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

/**
 * A token as the vocabulary writes it, with its marks: "##ing", "\xc4\xa0dog" of byte-level BPE,
 * "\xe2\x96\x81dog" of Unigram.
 *
 * @return as gpuserve_detokenize(); GPUSERVE_E_INVALID also for an id that is no token's
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_token_text(gpuserve_model *model, int32_t id,
                                                                  char *text, size_t capacity,
                                                                  size_t *size,
                                                                  gpuserve_error *error);

/* ================================================================================= entities */

/** How labels of tokens (GPUSERVE_TASK_TOKEN_LABELS) become entities, as in transformers' pipeline
 *  for token classification. */
typedef enum gpuserve_aggregation {
    GPUSERVE_AGGREGATION_SIMPLE = 0, /**< neighbours of one kind are one: "B-KIND" begins an entity,
                                          "I-KIND" and "KIND" go on with one of the same kind */
    GPUSERVE_AGGREGATION_NONE = 1    /**< each token by itself */
} gpuserve_aggregation;

/** The layout of this struct is fixed for ever. */
typedef struct gpuserve_entity {
    uint32_t first;       /**< of its tokens */
    uint32_t last;        /**< the last one */
    uint32_t label;       /**< the best one of the first: gpuserve_model_label() */
    float    score;       /**< the mean of its tokens' best scores */
} gpuserve_entity;

/**
 * The entities of one text, also those that a caller may want to leave out ("O").
 *
 * @param scores    [n_tokens, gpuserve_model_label_count()], as the job wrote them.
 * @param spans     [n_tokens] of gpuserve_tokenize(); special tokens are in no entity.
 * @param entities  Receives them in the text's order; room for n_tokens.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_entities(gpuserve_model *model, const float *scores, const gpuserve_span *spans,
                  size_t n_tokens, uint32_t aggregation, gpuserve_entity *entities,
                  size_t *n_entities, gpuserve_error *error);

/** What an entity is called: its label or, of several tokens together, what follows the label's
 *  first dash. Lent; NULL for a label that there is not. Since: 0.1 */
GPUSERVE_API const char *gpuserve_entity_name(const gpuserve_model *model,
                                              const gpuserve_entity *entity, uint32_t aggregation);

/**
 * The word of an entity: one token as gpuserve_token_text(), several as the decoder joins them. A
 * token that stands for what the vocabulary lacks is told by the text's own letters.
 *
 * @param text   The text, borrowed for the call, with its tokens and their places in it.
 * @return as gpuserve_detokenize()
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_entity_word(gpuserve_model *model, const gpuserve_entity *entity, uint32_t aggregation,
                     const char *text, size_t text_size, const int32_t *ids,
                     const gpuserve_span *spans, size_t n_tokens, char *word, size_t capacity,
                     size_t *size, gpuserve_error *error);

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
    GPUSERVE_NORMALIZE_NO = 2,
    GPUSERVE_NORMALIZE_WHOLE = 3    /**< as the model says, the whole vector, of which `dimensions`
                                         are kept afterwards: truncate_dim of sentence-transformers */
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
    char     device[64];      /**< selector of the device: "cpu", "cuda:0"; of replicas those that
                                   computed: "cuda:0,cuda:1" */
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
    const char          *prompt;      /**< put before every text, or NULL; excludes prompt_name.
                                           Where pooling leaves the prompt's tokens out
                                           (include_prompt false) and no others are there, as when the
                                           text joins the prompt's last word, it gives zeros; a cls
                                           pooling has its first token all the same */
    uint32_t             dimensions;  /**< keep the first ones of an embedding; default all. Before
                                           it is normalized, so that a normalized one has norm 1,
                                           as OpenAI's `dimensions`; with
                                           GPUSERVE_NORMALIZE_WHOLE after it */
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
    uint64_t             client;      /**< any number that names the caller on whose behalf it runs:
                                           a full queue keeps a reserve for clients with little in
                                           it. Callers with equal numbers, 0 too, are one client */
} gpuserve_job;

/* clang-format off */
#define GPUSERVE_JOB_INIT { (uint32_t)sizeof(gpuserve_job), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
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
    uint64_t       client;
} gpuserve_embed_options;

/* clang-format off */
#define GPUSERVE_EMBED_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_embed_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
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
    uint64_t           client;
} gpuserve_classify_options;

/* clang-format off */
#define GPUSERVE_CLASSIFY_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_classify_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
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
 * request that has completed stays as it is.
 *
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID for a NULL request; GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API gpuserve_status gpuserve_cancel(gpuserve_request *request);

/** End a request; waits for its completion and its callback first. Accepts NULL and a pointer to
 *  NULL; leaves NULL. From its own callback: allowed. Since: 0.1 */
GPUSERVE_API void gpuserve_request_free(gpuserve_request **request);

/**
 * A file descriptor (eventfd) that becomes readable whenever a request of this model completes;
 * reading 8 bytes gives how many since the last read, and at first since the first call of this
 * function: ask for it before submitting. It does not block. Lent: never close it. -1 on failure.
 * Thread-safety: safe. Since: 0.1
 */
GPUSERVE_API int gpuserve_completion_fd(gpuserve_model *model);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_RUN_H */
