/*
 * gpuserve/run.h - inference on a model: tokenization, embeddings, classification, entities;
 * blocking calls, and asynchronous requests. <gpuserve/gpuserve.h> includes this header.
 */
#ifndef GPUSERVE_RUN_H
#define GPUSERVE_RUN_H

#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ===================================================================================== text */

/** Byte range of a token in its text. The layout of this struct is fixed. */
typedef struct gpuserve_span {
    uint32_t begin; /**< offset of the first byte in the given text */
    uint32_t end;   /**< one past the last byte; 0 for special tokens, which have no position. The
                         span of a token that is only a space may be empty, at its position */
} gpuserve_span;

/** Options of gpuserve_tokenize(). Zero means the default in every field. */
typedef struct gpuserve_tokenize_options {
    uint32_t struct_size;
    uint32_t no_special;  /**< 1: add no special tokens ([CLS], [SEP] and similar) */
    uint32_t max_tokens;  /**< token limit; default 0: no limit, unlike in gpuserve_run() */
    uint32_t truncation;  /**< gpuserve_truncation */
} gpuserve_tokenize_options;

/* clang-format off */
#define GPUSERVE_TOKENIZE_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_tokenize_options), 0, 0, 0 }
/* clang-format on */

/** Truncation side of a text over the token limit. */
typedef enum gpuserve_truncation {
    GPUSERVE_TRUNCATE_DEFAULT = 0, /**< the model's own; usually the right side */
    GPUSERVE_TRUNCATE_RIGHT = 1,
    GPUSERVE_TRUNCATE_LEFT = 2,
    GPUSERVE_TRUNCATE_STRICT = 3   /**< fail with GPUSERVE_E_TOO_LARGE instead */
} gpuserve_truncation;

/**
 * Tokenize one text. The token ids equal those of Hugging Face `tokenizers`.
 *
 * @param text      UTF-8, borrowed; may contain NUL bytes. Invalid UTF-8 is an error.
 * @param size      Bytes of `text`.
 * @param ids       Receives at most `capacity` ids; NULL with capacity 0 queries the count only,
 *                  with GPUSERVE_OK.
 * @param spans     Receives a span for each id, or NULL.
 * @param n_tokens  Receives the number of tokens of the text.
 * @return GPUSERVE_OK; GPUSERVE_E_TOO_LARGE if `capacity` is too small (only *n_tokens is set), or
 *         in strict truncation; GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_tokenize(gpuserve_model *model, const char *text, size_t size, int32_t *ids,
                  gpuserve_span *spans, size_t capacity, size_t *n_tokens,
                  const gpuserve_tokenize_options *options, gpuserve_error *error);

/**
 * Decode token ids to text with the tokenizer's decoder.
 *
 * @param skip_special  1: skip special tokens.
 * @return as gpuserve_context_metrics(); GPUSERVE_E_INVALID for an id outside the vocabulary
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_detokenize(gpuserve_model *model, const int32_t *ids, size_t n_ids, int32_t skip_special,
                    char *text, size_t capacity, size_t *size, gpuserve_error *error);

/**
 * A token as written in the vocabulary, with its markers: "##ing" of WordPiece, "\xc4\xa0dog" of
 * byte-level BPE, "\xe2\x96\x81dog" of Unigram.
 *
 * @return as gpuserve_detokenize(); GPUSERVE_E_INVALID also for an id without a token
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_token_text(gpuserve_model *model, int32_t id,
                                                                  char *text, size_t capacity,
                                                                  size_t *size,
                                                                  gpuserve_error *error);

/* ================================================================================= entities */

/** How token labels (GPUSERVE_TASK_TOKEN_LABELS) are merged into entities, as in the
 *  token-classification pipeline of transformers. */
typedef enum gpuserve_aggregation {
    GPUSERVE_AGGREGATION_SIMPLE = 0, /**< adjacent tokens of one kind form one entity: "B-KIND"
                                          begins an entity, "I-KIND" and "KIND" continue one of the
                                          same kind */
    GPUSERVE_AGGREGATION_NONE = 1,   /**< each token is an entity */
    /* Word-level strategies: each word gets one label, then adjacent words form entities as with
     * SIMPLE. A token belongs to the previous word if it has the continuing-subword prefix ("##");
     * for tokenizers without such a prefix, if no space precedes it. */
    GPUSERVE_AGGREGATION_FIRST = 2,   /**< the scores of a word's first token */
    GPUSERVE_AGGREGATION_AVERAGE = 3, /**< the mean scores of its tokens */
    GPUSERVE_AGGREGATION_MAX = 4      /**< the scores of the token with the highest one */
} gpuserve_aggregation;

/** A range of tokens with one label. The layout of this struct is fixed. */
typedef struct gpuserve_entity {
    uint32_t first;       /**< index of the first token */
    uint32_t last;        /**< index of the last token */
    uint32_t label;       /**< the best label of the first token or word: gpuserve_model_label() */
    float    score;       /**< the mean of the best scores of its tokens or words */
} gpuserve_entity;

/**
 * Find the entities of one text, including those of the label "O", which the caller may skip.
 *
 * @param scores    [n_tokens, n_labels], the output of the job.
 * @param n_labels  Columns of `scores`: gpuserve_model_label_count() when the scores were computed.
 *                  It must be the model's present number of labels, which a swap can change.
 * @param text      The text, borrowed for the call, with its token ids. FIRST, AVERAGE and MAX find
 *                  words in them; else they may be NULL.
 * @param spans     [n_tokens] from gpuserve_tokenize(); special tokens are in no entity.
 * @param entities  Receives the entities in text order; capacity n_tokens.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID,
 *         GPUSERVE_E_MISMATCH   the model has another number of labels than `n_labels`: compute the
 *                               scores again
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_entities(gpuserve_model *model, const float *scores, size_t n_labels,
                  const char *text, size_t text_size,
                  const int32_t *ids, const gpuserve_span *spans, size_t n_tokens,
                  uint32_t aggregation, gpuserve_entity *entities, size_t *n_entities,
                  gpuserve_error *error);

/** Name of an entity: its label or, unless the aggregation is NONE, the part after the first dash of
 *  the label. Borrowed from the model; NULL if the label index is out of range. Since: 0.2 */
GPUSERVE_API const char *gpuserve_entity_name(const gpuserve_model *model,
                                              const gpuserve_entity *entity, uint32_t aggregation);

/**
 * The word of an entity: a single token as gpuserve_token_text(), several as decoded text. An
 * unknown token is replaced by its characters in the text.
 *
 * @param text   The text, borrowed for the call, with its token ids and spans.
 * @return as gpuserve_detokenize()
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_entity_word(gpuserve_model *model, const gpuserve_entity *entity, uint32_t aggregation,
                     const char *text, size_t text_size, const int32_t *ids,
                     const gpuserve_span *spans, size_t n_tokens, char *word, size_t capacity,
                     size_t *size, gpuserve_error *error);

/* ====================================================================================== run */

/** Task of a job. */
typedef enum gpuserve_task {
    GPUSERVE_TASK_EMBED = 0,        /**< one vector per text: gpuserve_model_dim() floats */
    GPUSERVE_TASK_CLASSIFY = 1,     /**< one score per label: gpuserve_model_label_count() floats,
                                         or those of gpuserve_job.heads */
    GPUSERVE_TASK_TOKEN_VECTORS = 2, /**< per token its vector: the last hidden state, or what the
                                         model's modules on tokens make of it (ColBERT). Its width
                                         is token_dim of gpuserve_model_properties */
    GPUSERVE_TASK_SPARSE = 3,       /**< one weight per vocabulary entry, mostly zero:
                                         sparse_dim of gpuserve_model_properties. Needs a masked
                                         language model (SPLADE). To limit memory, run some dozens of
                                         texts, keep the output of gpuserve_sparse_compact(), and
                                         reuse the rows */
    GPUSERVE_TASK_TOKEN_LABELS = 4, /**< token classification: one score per label and token */
    GPUSERVE_TASK_MAX_SIM = 5       /**< one float per text: gpuserve_max_sim() of the job's
                                         query_vectors and the text's token vectors, which stay on
                                         the device. Needs a late-interaction model (ColBERT,
                                         BGE-M3). Scores are not cached. Since: 0.2 */
} gpuserve_task;

typedef enum gpuserve_normalize {
    GPUSERVE_NORMALIZE_DEFAULT = 0, /**< the model's setting */
    GPUSERVE_NORMALIZE_YES = 1,     /**< to L2 norm 1 */
    GPUSERVE_NORMALIZE_NO = 2,
    GPUSERVE_NORMALIZE_WHOLE = 3    /**< the model's setting, applied to the whole vector before
                                         `dimensions` cuts it: truncate_dim of
                                         sentence-transformers */
} gpuserve_normalize;

typedef enum gpuserve_score {
    GPUSERVE_SCORE_DEFAULT = 0, /**< by the model's problem_type: softmax, sigmoid, identity */
    GPUSERVE_SCORE_RAW = 1,     /**< logits */
    GPUSERVE_SCORE_SOFTMAX = 2,
    GPUSERVE_SCORE_SIGMOID = 3
} gpuserve_score;

/** Priority class of a request. A model's time is shared 16 : 4 : 1 between classes with waiting
 *  requests (weighted fair queueing), so no class starves. Within a class requests take turns. */
typedef enum gpuserve_priority {
    GPUSERVE_PRIORITY_NORMAL = 0,
    GPUSERVE_PRIORITY_HIGH = 1,
    GPUSERVE_PRIORITY_LOW = 2
} gpuserve_priority;

/** Whether the result of an equal text may be reused (coalescing, result cache). The bits are the
 *  same either way: texts are equal if their token ids are. */
typedef enum gpuserve_cache {
    GPUSERVE_CACHE_DEFAULT = 0, /**< as ON if the model has a cache; else only equal texts queued at
                                     the same time are coalesced */
    GPUSERVE_CACHE_ON = 1,      /**< use the cache; GPUSERVE_E_UNSUPPORTED if the model has none */
    GPUSERVE_CACHE_OFF = 2      /**< compute every text, store nothing */
} gpuserve_cache;

/** Outcome of one text. The layout of this struct is fixed. */
typedef struct gpuserve_item {
    int32_t  status;      /**< GPUSERVE_OK, or GPUSERVE_E_NUMERIC: an output of this item has NaN or
                               infinity */
    uint32_t n_tokens;    /**< tokens of the text, including special tokens */
    uint32_t truncated;   /**< 1: the text was over the token limit and was cut */
    uint32_t cached;      /**< 1: the row is the result of an equal text (cache or coalescing) */
    uint32_t reserved[4]; /**< zero */
} gpuserve_item;

/** Outcome of a job. Written if it completes with GPUSERVE_OK or GPUSERVE_E_NUMERIC, else
 *  unchanged. */
typedef struct gpuserve_result {
    uint32_t struct_size;
    uint32_t dtype;           /**< gpuserve_dtype of the computation; never DEFAULT */
    uint64_t n_tokens;        /**< of all items, including special tokens */
    uint64_t n_truncated;     /**< items that were cut */
    uint64_t n_cached;        /**< items with the result of an equal text */
    uint64_t tokenize_us;     /**< time of tokenization, summed over threads */
    uint64_t queue_us;        /**< from the end of the submitting call's own work to the start of
                                   the first batch with one of its items; for a large job this
                                   includes waiting for tokenization */
    uint64_t compute_us;      /**< from there to the end of its last batch */
    uint64_t total_us;        /**< from submission to completion */
    char     device[64];      /**< selector of the device: "cpu", "cuda:0"; with replicas, of those
                                   that ran it: "cuda:0,cuda:1" */
    char     fingerprint[40]; /**< of the model: see gpuserve_model_fingerprint() */
} gpuserve_result;

/* clang-format off */
#define GPUSERVE_RESULT_INIT { (uint32_t)sizeof(gpuserve_result), 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, { 0 } }
/* clang-format on */

/**
 * What the texts of a late interaction model (ColBERT) are. The model's files say how token vectors
 * of queries and of documents differ: a query is cut or filled up to a number of tokens with mask
 * tokens; documents have no vectors for words of a skip list. A text then has more or fewer rows
 * than tokens; `token_offsets` tells how many, at most gpuserve_model_max_tokens():
 * gpuserve_model_properties has the numbers. Other models ignore the role. Since: 0.2
 */
typedef enum gpuserve_role {
    GPUSERVE_ROLE_DEFAULT = 0, /**< QUERY or DOCUMENT if prompt_name is "query" or "document". Else
                                    texts have the skip list of documents, and lists of ids have a
                                    row for each id */
    GPUSERVE_ROLE_QUERY = 1,
    GPUSERVE_ROLE_DOCUMENT = 2
} gpuserve_role;

/** One more output of a job. The layout of this struct is fixed. Since: 0.2 */
typedef struct gpuserve_output {
    uint32_t task;     /**< gpuserve_task; each task at most once in a job, its own `task` included */
    uint32_t reserved; /**< zero */
    float   *rows;     /**< row i for item i, or the rows by token at the job's `token_offsets`;
                            unchanged on failure; must not overlap another output */
    size_t   capacity; /**< of `rows` in floats */
    size_t   stride;   /**< floats between row starts; default contiguous */
} gpuserve_output;

/** A batch that computed items of a job. The layout of this struct is fixed. Since: 0.2 */
typedef struct gpuserve_trace_batch {
    uint64_t id;         /**< number of the batch in this process; jobs with the same number shared
                              the batch */
    uint64_t begin_ns;   /**< when it was formed */
    uint64_t end_ns;     /**< when its rows were computed */
    uint32_t n_items;    /**< of all jobs in the batch */
    uint32_t n_tokens;   /**< of these */
    char     device[24]; /**< selector of its device */
} gpuserve_trace_batch;

/** The phases of a job, for tracing. Times are nanoseconds of CLOCK_MONOTONIC; 0: the job did not
 *  get that far. Since: 0.2 */
typedef struct gpuserve_trace {
    uint32_t              struct_size;
    uint32_t              capacity;     /**< of `batches` */
    gpuserve_trace_batch *batches;      /**< receives the first `capacity` batches, in the order of
                                             their ends; may be NULL with 0 */
    size_t                n_batches;    /**< all, also those that failed; a text with the result of
                                             an equal one in a batch counts, one from the cache does
                                             not */
    uint64_t              submitted_ns; /**< start of the submitting call */
    uint64_t              tokenized_ns; /**< end of the tokenization; of a large job after queued_ns */
    uint64_t              queued_ns;    /**< end of the submitting call's own work */
    uint64_t              started_ns;   /**< start of the first batch */
    uint64_t              ended_ns;     /**< end of the last batch */
    uint64_t              completed_ns; /**< the result is known */
    uint64_t              tokenize_ns;  /**< time of tokenization, summed over threads */
} gpuserve_trace;

/* clang-format off */
#define GPUSERVE_TRACE_INIT { (uint32_t)sizeof(gpuserve_trace), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Most query vectors of a job of GPUSERVE_TASK_MAX_SIM. Since: 0.2 */
#define GPUSERVE_MAX_QUERY_VECTORS 1024

/**
 * A unit of work: n_items texts (or text pairs, or token id lists) and the output buffers.
 * Zero means the default in every field but n_items, its input and the output.
 * Set exactly one of `texts` and `ids`.
 */
typedef struct gpuserve_job {
    uint32_t             struct_size;
    uint32_t             task;        /**< gpuserve_task */
    size_t               n_items;     /**< 0 is allowed and does nothing */
    const char *const   *texts;       /**< [n_items] UTF-8 */
    const size_t        *text_sizes;  /**< [n_items] bytes, or NULL: NUL-terminated */
    const char *const   *pairs;       /**< [n_items] second texts, or NULL */
    const size_t        *pair_sizes;  /**< as text_sizes */
    const int32_t       *ids;         /**< token ids including special tokens, concatenated; a list
                                           over the model's limit is an error, never cut, as is one
                                           to classify by BART without its end token */
    const size_t        *id_offsets;  /**< [n_items + 1] start of each list in `ids` */
    const char          *prompt_name; /**< one of the model's prompts ("query"), or NULL. Of a model
                                           with LoRA adapters it also chooses the adapter of that
                                           name */
    const char          *prompt;      /**< prefix of every text, or NULL; excludes prompt_name. If
                                           pooling excludes the prompt's tokens (include_prompt
                                           false) and no other tokens remain, for example because
                                           the text joins the prompt's last word, the result is
                                           zeros; cls pooling still uses its first token */
    uint32_t             dimensions;  /**< keep the first values of an embedding; default all. The
                                           cut precedes normalization, as `dimensions` of OpenAI, so
                                           a normalized result has norm 1; with
                                           GPUSERVE_NORMALIZE_WHOLE it follows */
    uint32_t             truncation;  /**< gpuserve_truncation */
    uint32_t             normalize;   /**< gpuserve_normalize, of an embedding */
    uint32_t             score;       /**< gpuserve_score, of the labels of a text or token */
    float               *output;      /**< row i for item i; unchanged on failure */
    size_t               output_capacity; /**< of `output` in floats; with a precision in bytes */
    size_t               output_stride;   /**< floats between row starts; default contiguous */
    gpuserve_item       *items;       /**< [n_items], or NULL */
    size_t              *token_offsets; /**< TOKEN_VECTORS and _LABELS: receives [n_items + 1] the
                                             first row of each item; else NULL */
    int64_t              deadline_us; /**< from submission. Items not started by then are not
                                           computed: GPUSERVE_E_EXPIRED. Negative: already passed;
                                           0: none. A job whose last item has started is finished */
    uint32_t             priority;    /**< gpuserve_priority */
    uint32_t             cache;       /**< gpuserve_cache */
    const char          *expected_fingerprint; /**< fail with GPUSERVE_E_MISMATCH if the model's
                                                    differs; default NULL: any */
    gpuserve_result     *result;      /**< receives token counts, device and times, or NULL */
    uint64_t             client;      /**< any number that identifies the client for fair queueing:
                                           a full queue has a reserve for clients with little queued
                                           work. Equal numbers, including 0, are one client */
    uint32_t             prompt_in_ids; /**< 1: each list of `ids` begins with the special tokens and
                                             the tokens of the prompt, as in a text. prompt_name or
                                             prompt (default: the model's default prompt) then only
                                             choose the adapter, the route and the tokens that
                                             pooling leaves out. 0: ids have no prompt */
    uint32_t             role;          /**< gpuserve_role, of the texts of a late interaction model */
    const gpuserve_output *more; /**< [n_more] further outputs from the same pass of the encoder: any
                                      set of tasks that the model has, each with the same bits as in a
                                      job of its own. The array is read at submission; `rows` are
                                      borrowed until completion. dimensions, normalize and score
                                      apply to every task that has them */
    size_t               n_more;      /**< at most the number of tasks minus 1 */
    gpuserve_trace      *trace;       /**< receives times and batches, whatever the status of the
                                           completed job; unchanged if the submission fails; or
                                           NULL */
    const char          *heads; /**< CLASSIFY: names of heads of the model, separated by commas, or
                                     "*": all, in the order of gpuserve_model_head(). A row has the
                                     scores of each, one after the other in this order, with the
                                     same bits as in a job of its own. One pass of the encoder
                                     serves all. Default: the first head, or the model's own
                                     classifier */
    const float *query_vectors; /**< MAX_SIM: [n_query_vectors, token_dim], the TOKEN_VECTORS of a query
                                     without the first_vector first ones: see
                                     gpuserve_model_properties. Borrowed until completion */
    size_t n_query_vectors; /**< at most GPUSERVE_MAX_QUERY_VECTORS; 0: every score is 0 */
    uint32_t     precision; /**< gpuserve_precision of the vectors of an EMBED job without `more`.
                                 Other than FLOAT32: `output` receives contiguous rows of
                                 gpuserve_quantized_bytes() bytes, of any alignment, with the bits of
                                 gpuserve_quantize() of the float32 vectors. Only they leave the
                                 device and are kept in the result cache */
    uint32_t     reserved;  /**< zero */
    const float *ranges;    /**< INT8 and UINT8: [2, dimensions] as in gpuserve_quantize(), borrowed
                                 until completion; else not read */
} gpuserve_job;

/* clang-format off */
#define GPUSERVE_JOB_INIT { (uint32_t)sizeof(gpuserve_job), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** Called once when a request completes, from a library thread. It may submit requests (to a
 *  suspended model: GPUSERVE_E_BUSY), must not block and must not close the model. `status` is the
 *  value that gpuserve_wait() returns. */
typedef void (*gpuserve_completion_fn)(void *user, gpuserve_request *request,
                                       gpuserve_status status);

/**
 * Run a job, blocking until every row is written. Concurrent calls are batched together.
 *
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID    the job is invalid: output too small, text not UTF-8, id outside
 *                               the vocabulary, unknown prompt or head (the message lists them),
 *                               both or neither input, unknown struct_size
 *         GPUSERVE_E_TOO_LARGE  over the memory budget, or over the token limit in strict mode
 *         GPUSERVE_E_UNSUPPORTED the model does not support the task (no head, no pair template)
 *         GPUSERVE_E_NUMERIC    some items are NaN or infinite: items[i].status marks them, the
 *                               others are valid
 *         GPUSERVE_E_BUSY       the queue is full; retry after error->retry_after_ms
 *         GPUSERVE_E_EXPIRED    the deadline passed before the last item was started
 *         GPUSERVE_E_MISMATCH   the model's fingerprint differs from the expected one
 *         GPUSERVE_E_DEVICE     the device failed; close the model
 *         GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_run(gpuserve_model     *model,
                                                           const gpuserve_job *job,
                                                           gpuserve_error     *error);

/**
 * Embed a batch of texts, blocking until every vector is written.
 *
 * @param model     Other threads may use it concurrently.
 * @param texts     NUL-terminated UTF-8, borrowed for the call. A text over the model's token
 *                  limit is cut and marked in options->items; see gpuserve_model_max_tokens().
 * @param n_texts   0 is allowed and does nothing.
 * @param vectors   Receives n_texts * gpuserve_model_dim(model) floats (or options->dimensions per
 *                  text), row i for texts[i]. The caller's memory; unchanged on failure.
 * @param n_floats  Capacity of `vectors` in floats.
 * @param options   May be NULL: the model's defaults. Fields as in gpuserve_run(), except those that
 *                  this call sets, which must be zero: task, n_items, inputs (texts, pairs, ids,
 *                  their sizes and offsets) and output. precision must be zero too: `vectors` are
 *                  floats. Any other one is GPUSERVE_E_INVALID, and the message names it.
 * @param error     May be NULL; written on failure only.
 * @return as gpuserve_run()
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_embed(gpuserve_model    *model,
                                                             const char *const *texts,
                                                             size_t n_texts, float *vectors,
                                                             size_t n_floats,
                                                             const gpuserve_job *options,
                                                             gpuserve_error *error);

/**
 * Compute the score of every label for a batch of texts, blocking.
 *
 * @param scores    Receives n_texts * gpuserve_model_label_count(model) floats: column j of a row
 *                  is gpuserve_model_label(model, j). With options->heads a row has the scores of
 *                  these heads: see gpuserve_job. Probabilities unless the model is a regression or
 *                  options->score says otherwise.
 * @param n_floats  Capacity of `scores` in floats.
 * @param options   As in gpuserve_embed(), but `pairs` and `pair_sizes` are allowed: the second texts
 *                  for a text pair model.
 * @return as gpuserve_run()
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_classify(
    gpuserve_model *model, const char *const *texts, size_t n_texts, float *scores, size_t n_floats,
    const gpuserve_job *options, gpuserve_error *error);

/**
 * Scores of zero-shot classification with a model of natural language inference (NLI), as transformers'
 * zero-shot-classification pipeline: a text and the hypothesis "This example is LABEL." are a text pair,
 * and the label's score is that of entailment.
 *
 *   texts[i * n_candidates + j] = text i; pairs[i * n_candidates + j] = hypothesis of candidate j;
 *   options.pairs = pairs; options.score = GPUSERVE_SCORE_RAW;
 *   gpuserve_classify(model, texts, n_texts * n_candidates, logits, n_logits, &options, &error);
 *   gpuserve_zero_shot_scores(model, logits, n_labels, n_texts, n_candidates, 0, scores, &error);
 *
 * The model's label of entailment is the first one that begins with "entail", in any case. Its index is
 * entailment_label of gpuserve_model_properties.
 *
 * @param logits        [n_texts, n_candidates, n_labels] raw scores of the pairs.
 * @param n_labels      Columns of `logits`: gpuserve_model_label_count() when they were computed.
 * @param n_candidates  Candidate labels of each text, at least 1.
 * @param multi_label   0: softmax of the entailment logits of a text's candidates. 1: each candidate
 *                      alone, the softmax of entailment against the model's first label, or the last one
 *                      if entailment is the first. A single candidate is always scored as with 1.
 * @param scores        Receives [n_texts, n_candidates]; may be `logits`.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_FORKED,
 *         GPUSERVE_E_UNSUPPORTED  the model has no label of entailment and another one as well
 *         GPUSERVE_E_MISMATCH     the model has another number of labels than `n_labels`: compute the
 *                                 logits again
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_zero_shot_scores(gpuserve_model *model, const float *logits, size_t n_labels, size_t n_texts,
                          size_t n_candidates, int32_t multi_label, float *scores,
                          gpuserve_error *error);

/* ============================================================================= asynchronous */

/**
 * Submit a job and return at once.
 *
 * @param request   Receives the request, owned by the caller and released with
 *                  gpuserve_request_free(); NULL on failure.
 * @param job       The struct and the prompt strings are copied; texts, ids and outputs are
 *                  borrowed until the request completes.
 * @param callback  May be NULL.
 * @param user      Passed to the callback.
 * @return as gpuserve_run(): an invalid job is rejected here as a whole. For more than 16 KiB of
 *         text, errors that only tokenization detects are reported at completion instead.
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_submit(gpuserve_request **request, gpuserve_model *model, const gpuserve_job *job,
                gpuserve_completion_fn callback, void *user, gpuserve_error *error);

/**
 * Wait for a request.
 *
 * @param timeout_us  0 polls without waiting; a negative number waits without limit.
 * @return GPUSERVE_E_TIMEOUT if it is not complete yet, else its status as from gpuserve_run(), or
 *         GPUSERVE_E_CANCELLED. May be called repeatedly, and by several threads.
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_wait(gpuserve_request *request,
                                                            int64_t timeout_us,
                                                            gpuserve_error *error);

/**
 * Cancel a request. Items in flight are finished and their results discarded. The request completes
 * with GPUSERVE_E_CANCELLED and its output is unchanged. A completed request is unaffected.
 *
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID for a NULL request; GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API gpuserve_status gpuserve_cancel(gpuserve_request *request);

/** Release a request; waits for its completion and its callback first. Accepts NULL and a pointer
 *  to NULL; leaves NULL. Allowed from its own callback. Since: 0.2 */
GPUSERVE_API void gpuserve_request_free(gpuserve_request **request);

/**
 * A file descriptor (eventfd, nonblocking) that becomes readable when a request of this model
 * completes. Reading 8 bytes returns the number of completions since the last read, at first since
 * the first call of this function: call it before submitting. Borrowed: never close it. -1 on
 * failure. Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API int gpuserve_completion_fd(gpuserve_model *model);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_RUN_H */
