/*
 * gpuserve/entities.h - named entities of labels that are given with the text (GLiNER models).
 *
 *   gpuserve_entity_request request = GPUSERVE_ENTITY_REQUEST_INIT;
 *   gpuserve_entity_query *query = NULL;
 *   request.texts = texts;    request.n_texts = n;
 *   request.labels = labels;  request.n_labels = 2;
 *   gpuserve_entity_query_create(&query, model, &request, &err);
 *   gpuserve_entity_query_run(query, NULL, &err);
 *   found = gpuserve_entity_query_found(query, 0, &n_found, NULL);
 *   gpuserve_entity_query_free(&query);
 *
 * A query holds the tokens of labels and texts. An asynchronous caller runs its job itself:
 * gpuserve_entity_query_job(), gpuserve_submit(), gpuserve_wait(), gpuserve_entity_query_decode().
 *
 * A model with this head has finds_entities in gpuserve_model_properties, and its limits in "entity_head"
 * of gpuserve_model_inspect(). Token classifiers, whose labels are fixed, use gpuserve_entities().
 */
#ifndef GPUSERVE_ENTITIES_H
#define GPUSERVE_ENTITIES_H

#include <gpuserve/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Maximum number of labels of one text. */
#define GPUSERVE_ENTITY_MAX_LABELS 1024
/** Maximum number of pairs of span and label of one text with a score above the threshold, before
 *  overlaps are removed. */
#define GPUSERVE_ENTITY_MAX_CANDIDATES 1048576

/** Overlaps that are kept. Of two entities with another overlap, the one with the higher score is
 *  kept. Since: 0.2 */
typedef enum gpuserve_overlap {
    GPUSERVE_OVERLAP_FLAT = 0,  /**< none */
    GPUSERVE_OVERLAP_NESTED = 1 /**< one inside the other */
} gpuserve_overlap;

/** Texts and labels. Zero means the default in every field but the texts and labels. Since: 0.2 */
typedef struct gpuserve_entity_request {
    uint32_t           struct_size;
    float              threshold;  /**< entities have a score above it; default 0.5; at most 1 */
    const char *const *texts;      /**< [n_texts] UTF-8 */
    const size_t      *text_sizes; /**< [n_texts] bytes, or NULL: NUL-terminated */
    size_t             n_texts;    /**< 0 is allowed and does nothing */
    const char *const *labels;     /**< [n_labels] UTF-8, NUL-terminated; not empty */
    size_t             n_labels;
    const size_t      *label_offsets; /**< [n_texts + 1]: text i has the labels from label_offsets[i]
                                           to label_offsets[i + 1]; NULL: every text has all */
    uint32_t           overlap;     /**< gpuserve_overlap */
    uint32_t           multi_label; /**< 1: a span may have several labels; else the best one */
    uint32_t           truncation;  /**< gpuserve_truncation, of texts over the model's limit of words
                                         or tokens; labels are never cut */
    uint32_t           reserved;    /**< zero */
} gpuserve_entity_request;

/* clang-format off */
#define GPUSERVE_ENTITY_REQUEST_INIT { (uint32_t)sizeof(gpuserve_entity_request), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** An entity in a text. The layout of this struct is fixed. Since: 0.2 */
typedef struct gpuserve_found_entity {
    uint32_t begin; /**< first byte in the text */
    uint32_t end;   /**< byte after the last one */
    uint32_t label; /**< index in the request's labels, counted from the text's first label */
    float    score; /**< probability, above the threshold */
} gpuserve_found_entity;

/** Tokens of texts with their labels, and the entities found. Since: 0.2 */
typedef struct gpuserve_entity_query gpuserve_entity_query;

/**
 * Tokenize texts with their labels.
 *
 * A text has the words that the expression `\w+(?:[-_]\w+)*|\S` finds. Words without tokens
 * (control characters) are left out.
 *
 * @param query    Receives the query, owned; NULL on failure. It holds a reference to the model.
 * @param request  Borrowed for the call; texts and labels are not kept.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID      a pointer is NULL, a text or label is not UTF-8, a label is empty,
 *                                 has no tokens or is repeated, the offsets decrease, the threshold
 *                                 is outside 0 to 1
 *         GPUSERVE_E_TOO_LARGE    too many labels, or their tokens leave no room for a text; in
 *                                 strict mode a text over the limit
 *         GPUSERVE_E_UNSUPPORTED  the model has no entity head
 *         GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_entity_query_create(gpuserve_entity_query **query, gpuserve_model *model,
                             const gpuserve_entity_request *request, gpuserve_error *error);

/**
 * Run a query, blocking: the job in parts of bounded size, and the head on each.
 *
 * @param job  May be NULL. Of its fields only `deadline_us` (of the whole call), `priority`, `cache`,
 *             `client`, `expected_fingerprint`, `items` and `result` (sums over all parts) apply;
 *             another one that is not zero is GPUSERVE_E_INVALID.
 * @return as gpuserve_run() and gpuserve_entity_query_decode(). After a failure there are no entities,
 *         and `items` of the parts before it are written.
 *
 * Thread-safety: one call on a query at a time. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_entity_query_run(gpuserve_entity_query *query, const gpuserve_job *job,
                          gpuserve_error *error);

/**
 * Set the input of a job: task, n_items, ids and id_offsets, borrowed from the query. The caller
 * sets the output: token vectors of all n_tokens tokens.
 *
 * @return the number of tokens, which is that of output rows; 0 for NULL
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API size_t gpuserve_entity_query_job(const gpuserve_entity_query *query,
                                              gpuserve_job *job);

/**
 * Find the entities in the output of the query's job.
 *
 * @param vectors   [n_tokens, token_dim]: token_dim of gpuserve_model_properties
 * @param n_floats  Number of floats in `vectors`.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID    `vectors` is NULL or has another size
 *         GPUSERVE_E_TOO_LARGE  a text has over GPUSERVE_ENTITY_MAX_CANDIDATES spans above the
 *                               threshold
 *         GPUSERVE_E_NUMERIC    results of the entity head are NaN or infinite
 *         GPUSERVE_E_MISMATCH   the model was swapped: create the query again
 *         GPUSERVE_E_BUSY, GPUSERVE_E_DEVICE, GPUSERVE_E_NOMEM as gpuserve_run()
 *
 * Thread-safety: one call on a query at a time; not in a completion callback. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_entity_query_decode(gpuserve_entity_query *query, const float *vectors, size_t n_floats,
                             gpuserve_error *error);

/**
 * The entities of a text in the order of their starts, borrowed from the query until it runs again.
 *
 * @param n          Receives their number; may be NULL.
 * @param truncated  Receives 1 if the text was over a limit and was cut, else 0; known before the query
 *                   runs. May be NULL.
 * @return NULL if there are none, before the query has run, and if `text` is out of range
 *
 * Thread-safety: safe, but not while the query runs. Since: 0.2
 */
GPUSERVE_API const gpuserve_found_entity *
gpuserve_entity_query_found(const gpuserve_entity_query *query, size_t text, size_t *n,
                            uint32_t *truncated);

/** Release a query. Accepts NULL and a pointer to NULL; leaves NULL. Since: 0.2 */
GPUSERVE_API void gpuserve_entity_query_free(gpuserve_entity_query **query);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_ENTITIES_H */
