/*
 * gpuserve/retrieval.h - reranking, sparse vectors, compact vectors (int8, binary), dot product and
 * top-k search on vectors.
 * <gpuserve/gpuserve.h> includes this header.
 */
#ifndef GPUSERVE_RETRIEVAL_H
#define GPUSERVE_RETRIEVAL_H

#include <gpuserve/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* =================================================================================== rerank */

/** Scoring method of a document against a query. */
typedef enum gpuserve_rerank_method {
    GPUSERVE_RERANK_DEFAULT = 0,       /**< the model's default: rerank_method of
                                            gpuserve_model_properties */
    GPUSERVE_RERANK_CROSS_ENCODER = 1, /**< query and document as one text pair through the model's
                                            single-label classifier */
    GPUSERVE_RERANK_COSINE = 2,        /**< cosine similarity of their embeddings */
    GPUSERVE_RERANK_MAX_SIM = 3        /**< gpuserve_max_sim() of their token vectors, computed on the
                                            model's device unless the call uses its result cache;
                                            needs a late-interaction model (ColBERT, BGE-M3) */
} gpuserve_rerank_method;

/** Options of gpuserve_rerank(). Zero means the default in every field. */
typedef struct gpuserve_rerank_options {
    uint32_t       struct_size;
    uint32_t       method;          /**< gpuserve_rerank_method */
    uint32_t       score;           /**< CROSS_ENCODER: GPUSERVE_SCORE_SIGMOID (default; 0 to 1) or
                                         _RAW. COSINE: -1 to 1 with both. MAX_SIM: _RAW is the sum of
                                         gpuserve_max_sim(); the others divide the sum by n_query,
                                         -1 to 1 */
    uint32_t       reserved;        /**< zero */
    size_t         top_n;           /**< max documents in `order`; default all */
    size_t         query_size;      /**< bytes of the query; default: NUL-terminated */
    const size_t  *document_sizes;  /**< [n_documents] bytes, or NULL: NUL-terminated */
    const char    *query_prompt;    /**< COSINE, MAX_SIM: prefix of the query; default the model's
                                         prompt "query", else its default one. Of a reranker that
                                         is a language model (Qwen3-Reranker): the instruction */
    const char    *document_prompt; /**< COSINE, MAX_SIM: prefix of documents; default the model's
                                         prompt "document", "passage" or "corpus", else its default
                                         one */
} gpuserve_rerank_options;

/* clang-format off */
#define GPUSERVE_RERANK_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_rerank_options), 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Score documents by relevance to a query and sort them, blocking.
 *
 * @param query        UTF-8, borrowed for the call.
 * @param documents    [n_documents] UTF-8, borrowed for the call. A pair (or a text) over the
 *                     model's token limit is cut and marked in job->items.
 * @param n_documents  0 is allowed and does nothing.
 * @param scores       Receives n_documents scores, score i for documents[i]; higher is better.
 * @param order        Receives the indices of the best options->top_n documents, best first; equal
 *                     scores in document order, NaN last. May be NULL.
 * @param capacity     Elements at `scores`, and at `order` if given; at least n_documents.
 * @param options      May be NULL.
 * @param job          May be NULL. Of its fields `deadline_us` (of the whole call), `priority`, `cache`,
 *                     `client`, `expected_fingerprint`, `truncation`, `items` ([n_documents]) and
 *                     `result` (sums over all parts, with the tokens of the query) apply; another one
 *                     that is not zero is GPUSERVE_E_INVALID.
 * @return as gpuserve_run(); GPUSERVE_E_UNSUPPORTED if the model supports no method, or not
 *         options->method
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_rerank(gpuserve_model *model, const char *query, const char *const *documents,
                size_t n_documents, float *scores, size_t *order, size_t capacity,
                const gpuserve_rerank_options *options, const gpuserve_job *job,
                gpuserve_error *error);

/* =================================================================================== sparse */

/**
 * Extract the positive values of a row and their indices, in ascending index order.
 *
 * @param row       [n], n at most 2^32 - 1.
 * @param indices   Receives at most `capacity` indices (token ids, for a sparse row).
 * @param values    Receives the same number of values.
 * @return the number of positive values; if more than `capacity`, only the first ones were written.
 *         0 for a NULL row; `indices` and `values` may be NULL with capacity 0, to count
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API size_t gpuserve_sparse_compact(const float *row, size_t n, uint32_t *indices,
                                            float *values, size_t capacity);

/* ========================================================================== compact vectors */

/** Element type of a stored vector. The conversions equal quantize_embeddings() of
 *  sentence-transformers 6, bit by bit. */
typedef enum gpuserve_precision {
    GPUSERVE_PRECISION_FLOAT32 = 0,
    GPUSERVE_PRECISION_FLOAT16 = 1, /**< IEEE 754 binary16, to nearest, ties to even; magnitudes
                                         from 65,520 become infinity */
    GPUSERVE_PRECISION_INT8 = 2,    /**< scalar quantization: that of UINT8 minus 128 */
    GPUSERVE_PRECISION_UINT8 = 3,   /**< scalar quantization to one of 256 buckets of the range of
                                         each dimension: floor((x - min) / ((max - min) / 255)),
                                         clipped to 0..255; the divisor is 1 where max = min */
    GPUSERVE_PRECISION_BINARY = 4,  /**< that of UBINARY minus 128, as int8 */
    GPUSERVE_PRECISION_UBINARY = 5  /**< one bit per dimension: 1 if x > 0. Eight per byte, the
                                         first in the highest bit; the last byte is padded with
                                         zero bits */
} gpuserve_precision;

/** Bytes of a vector of `dim` numbers; 0 for an unknown precision or too many bytes. Since: 0.2 */
GPUSERVE_API size_t gpuserve_quantized_bytes(uint32_t precision, size_t dim);

/**
 * Convert vectors to a smaller element type.
 *
 * @param vectors    [n, dim] float32, contiguous. NaN becomes 0 (UINT8, UBINARY), -128 (INT8,
 *                   BINARY), NaN (FLOAT16).
 * @param precision  gpuserve_precision.
 * @param ranges     INT8 and UINT8: [2, dim], the minimum of each dimension, then the maximum, as
 *                   from gpuserve_vector_ranges() over many typical vectors. Vectors are comparable
 *                   only if the same ranges made them. Other precisions: NULL or ignored.
 * @param to         Receives n * gpuserve_quantized_bytes() bytes, row by row. No overlap with
 *                   `vectors`. Unchanged on failure.
 * @param capacity   Bytes at `to`.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID: a NULL argument, an unknown precision, ranges that are
 *         missing, not finite or have a minimum above the maximum (the message names the
 *         dimension); GPUSERVE_E_TOO_LARGE: `capacity` is too small
 *
 * Thread-safety: safe; no state. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_quantize(const float *vectors, size_t n, size_t dim, uint32_t precision,
                  const float *ranges, void *to, size_t capacity, gpuserve_error *error);

/**
 * The range of each dimension of some vectors, for gpuserve_quantize().
 *
 * @param vectors  [n, dim] float32, finite; n at least 2.
 * @param margin   Widens each range by this share of its width at both ends, so that vectors of
 *                 other texts are clipped less often: 0 to 1. 0 equals sentence-transformers.
 * @param ranges   Receives [2, dim]: the minima, then the maxima.
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID, GPUSERVE_E_NUMERIC: a value is not finite (the message
 *         names row and dimension)
 *
 * Thread-safety: safe; no state. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_vector_ranges(const float *vectors, size_t n,
                                                                     size_t dim, float margin,
                                                                     float *ranges,
                                                                     gpuserve_error *error);

/**
 * Read ranges from a .npy file, as `gpuserve calibrate` and numpy write it: [2, dim] of float32.
 *
 * @param ranges    Receives 2 * *dim floats; NULL: only the number of dimensions is read. On
 *                  failure the contents are undefined.
 * @param capacity  Floats at `ranges`.
 * @param dim       Receives the dimensions of the vectors; unchanged on failure.
 * @return GPUSERVE_OK; GPUSERVE_E_NOT_FOUND, GPUSERVE_E_IO: the file cannot be read;
 *         GPUSERVE_E_FORMAT: another type or shape; GPUSERVE_E_TOO_LARGE: `capacity` is too small;
 *         GPUSERVE_E_INVALID: a NULL argument
 *
 * Thread-safety: safe; no state. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_vector_ranges_read(const char *path, float *ranges, size_t capacity, size_t *dim,
                            gpuserve_error *error);

/** The `margin` of gpuserve_vector_ranges() for the built-in texts, which are few, in percent: the
 *  ranges that the program, the server and the Python package use without a file. */
#define GPUSERVE_CALIBRATION_MARGIN_PERCENT 25

/**
 * Built-in texts of several subjects, lengths and languages: their vectors give usable ranges where
 * a caller has no texts. Own texts, some hundreds or more, give better ones.
 *
 * @return text `index`, NUL-terminated UTF-8, static; NULL from the number of texts on
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API const char *gpuserve_calibration_text(size_t index);

/* =============================================================================== arithmetic */

/** The dot product of two vectors of n floats, accumulated in float64. Since: 0.2 */
GPUSERVE_API float gpuserve_dot(const float *a, const float *b, size_t n);

/**
 * Late interaction score of a query and a document (MaxSim; Khattab and Zaharia 2020, "ColBERT"):
 *
 *   score = sum over i of max over j of dot(query[i], document[j])
 *
 * Dot products are accumulated in float32; their order, and so the last bits of the score, depend on
 * the processor's instruction set. The sum over i is accumulated in float64.
 *
 * @param query     [n_query, dim] token vectors, as from GPUSERVE_TASK_TOKEN_VECTORS of one text.
 * @param document  [n_document, dim] token vectors.
 * @param dim       Floats of a vector, at most 2^31 - 1.
 * @return the score; NaN if a dot product is NaN; 0 if an argument is NULL, n_query or n_document is
 *         0, or dim is over the limit
 *
 * Thread-safety: safe; no state. Since: 0.2
 */
GPUSERVE_API float gpuserve_max_sim(const float *query, size_t n_query, const float *document,
                                    size_t n_document, size_t dim);

/**
 * Exact top-k search: the k rows of a matrix with the highest dot product with a query, best first.
 * Equal scores are in row order; rows with a NaN score come last.
 *
 * @param query    [dim]
 * @param rows     [n_rows, dim]
 * @param indices  Receives min(k, n_rows) row indices.
 * @param scores   Receives the same number of scores; may be NULL.
 * @return the number of rows written; 0 for a NULL argument
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API size_t gpuserve_top_k(const float *query, const float *rows, size_t n_rows, size_t dim,
                                   size_t k, size_t *indices, float *scores);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_RETRIEVAL_H */
