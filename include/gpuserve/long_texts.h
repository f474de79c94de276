/*
 * gpuserve/long_texts.h - embeddings of texts over a model's token limit: windows with one vector
 * for the text, and late chunking with one vector for each chunk. <gpuserve/gpuserve.h> includes
 * this header.
 *
 *   gpuserve_long_texts *long_texts = NULL;
 *   gpuserve_long_texts_create(&long_texts, model, &text, NULL, 1, &options, &err);
 *   gpuserve_long_texts_run(long_texts, model, NULL, &err);
 *   gpuserve_long_texts_result(long_texts, &result, &err); // result.vectors, result.chunks
 *   gpuserve_long_texts_free(&long_texts);
 *
 * A text is tokenized once, together with its prompt, and cut into windows. A window has the
 * prompt's tokens, tokens of the text and the special tokens; it is an item of an ordinary job of
 * token ids, so batching, fairness, limits and deadlines are those of jobs. A text that fits in one
 * window has the same token ids as in gpuserve_embed().
 *
 *   WINDOWS   vector of a text = mean of its windows' vectors, weighted by their numbers of tokens
 *             of the text, then the model's normalization. The vectors of the windows are not
 *             normalized before.
 *   LATE      vector of a chunk = mean of the token vectors of the chunk, then the model's
 *             normalization (Günther et al. 2024, "Late Chunking"). The tokens before the text
 *             (special tokens, prompt) belong to the chunk of its first token, those after it to
 *             the chunk of its last one. A model that leaves its prompt out of pooling leaves it
 *             out here too. A text over one window is cut into overlapping windows. The vector of
 *             a token is computed in the window with the most context around it: the window in
 *             which the distance from the token to the nearer edge is greatest, and the first of
 *             two equal ones.
 *
 * Memory in addition to the result: 8 bytes for each token, and one block of windows with at most 16 MiB of
 * output, or one window. gpuserve_long_texts_create() also holds the tokenization of one text.
 */
#ifndef GPUSERVE_LONG_TEXTS_H
#define GPUSERVE_LONG_TEXTS_H

#include <gpuserve/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* =============================================================================== long texts */

/** Texts, their windows and chunks, and the vectors. One thread uses it at a time. Since: 0.2 */
typedef struct gpuserve_long_texts gpuserve_long_texts;

/** Maximum bytes of a text. */
#define GPUSERVE_LONG_TEXT_BYTES 16777216
/** Maximum texts, and maximum chunks, of one gpuserve_long_texts_create() call. */
#define GPUSERVE_LONG_TEXT_CHUNKS 1048576

/** Method of embedding. */
typedef enum gpuserve_long_method {
    GPUSERVE_LONG_WINDOWS = 0, /**< one vector for each text */
    GPUSERVE_LONG_LATE = 1     /**< one vector for each chunk; the model must pool by the mean and
                                    have no module after it except Normalize */
} gpuserve_long_method;

/** Chunking method of late chunking: how a text is split into chunks. */
typedef enum gpuserve_chunk_by {
    GPUSERVE_CHUNK_BY_TOKENS = 0,    /**< chunk_tokens tokens of the text; the last chunk has the rest */
    GPUSERVE_CHUNK_BY_SENTENCES = 1, /**< a sentence; with chunk_tokens, adjacent sentences of
                                          together at most that many tokens. Rules in docs/http.md */
    GPUSERVE_CHUNK_BY_SPANS = 2      /**< the caller's byte spans */
} gpuserve_chunk_by;

/** Options of gpuserve_long_texts_create(). Zero means the default in every field. */
typedef struct gpuserve_long_options {
    uint32_t             struct_size;
    uint32_t             method;        /**< gpuserve_long_method */
    uint32_t             window_tokens; /**< tokens of a window, including prompt and special
                                             tokens; default and maximum: the model's limit. If a
                                             text needs several windows, at least half of them must
                                             be left for the text */
    uint32_t             stride;        /**< tokens of the text from the begin of a window to that
                                             of the next one: from an eighth of the window's tokens
                                             of the text to all of them. Default: all of them; with
                                             LATE 256 less, but at least three quarters */
    uint32_t             chunk_by;      /**< LATE: gpuserve_chunk_by */
    uint32_t             chunk_tokens;  /**< LATE: BY_TOKENS default 256; BY_SENTENCES default: each
                                             sentence is a chunk */
    uint32_t             dimensions;    /**< as in gpuserve_job */
    uint32_t             normalize;     /**< gpuserve_normalize, as in gpuserve_job */
    const char          *prompt_name;   /**< as in gpuserve_job; copied */
    const char          *prompt;        /**< as in gpuserve_job; copied */
    const gpuserve_span *spans;         /**< BY_SPANS: in the order of their text, without overlap,
                                             at borders of characters; each must hold the end of a
                                             token. Tokens outside of all spans are in no chunk */
    const size_t        *span_offsets;  /**< BY_SPANS: [n_texts + 1] the first span of each text */
} gpuserve_long_options;

/* clang-format off */
#define GPUSERVE_LONG_OPTIONS_INIT { (uint32_t)sizeof(gpuserve_long_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/** A chunk of a text, or a window of it. The layout of this struct is fixed. A token belongs to the
 *  chunk with its last byte. */
typedef struct gpuserve_chunk {
    uint32_t text;     /**< index of the text */
    uint32_t row;      /**< index of its vector: LATE its own, WINDOWS that of the text */
    uint32_t begin;    /**< bytes [begin, end) of the text: BY_SPANS as given; BY_SENTENCES without
                            blanks at the ends; else from its first token to its last one */
    uint32_t end;
    uint32_t n_tokens; /**< of the text, without prompt and special tokens */
    uint32_t reserved; /**< zero */
} gpuserve_chunk;

/**
 * Tokenize texts and cut them into windows and chunks.
 *
 * @param long_texts  Receives the object, owned by the caller and released with
 *                    gpuserve_long_texts_free(); NULL on failure.
 * @param texts       [n_texts] UTF-8, borrowed for the call.
 * @param text_sizes  [n_texts] bytes, or NULL: NUL-terminated.
 * @param options     May be NULL.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID     a text is not UTF-8 or has no tokens, or an option is invalid; the
 *                                message names field, value and limit
 *         GPUSERVE_E_TOO_LARGE   a text over GPUSERVE_LONG_TEXT_BYTES, or too many chunks
 *         GPUSERVE_E_UNSUPPORTED the model makes no embeddings, or LATE with another pooling
 *         GPUSERVE_E_NOMEM, GPUSERVE_E_FORKED
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_long_texts_create(
    gpuserve_long_texts **long_texts, gpuserve_model *model, const char *const *texts,
    const size_t *text_sizes, size_t n_texts, const gpuserve_long_options *options,
    gpuserve_error *error);

/** Release the object, which no request may use. Accepts NULL and a pointer to NULL; leaves NULL.
 *  Since: 0.2 */
GPUSERVE_API void gpuserve_long_texts_free(gpuserve_long_texts **long_texts);

/** The chunks and vectors of all texts. The pointers are borrowed from the object. Since: 0.2 */
typedef struct gpuserve_long_result {
    uint32_t              struct_size;
    uint32_t              reserved; /**< zero */
    const gpuserve_chunk *chunks;   /**< [n_chunks], in the order of the texts; WINDOWS: the windows */
    size_t                n_chunks;
    const float          *vectors;  /**< [n_vectors, dim]: LATE those of the chunks, WINDOWS those of the
                                         texts. NULL before all windows are computed */
    size_t                n_vectors;
    size_t                dim;
} gpuserve_long_result;

/* clang-format off */
#define GPUSERVE_LONG_RESULT_INIT { (uint32_t)sizeof(gpuserve_long_result), 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Read chunks and vectors. All but the vectors themselves are known from the creation on.
 *
 * @param result  Receives them; initialise with GPUSERVE_LONG_RESULT_INIT.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID
 *
 * Thread-safety: one thread at a time for each object. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_long_texts_result(const gpuserve_long_texts *long_texts, gpuserve_long_result *result,
                           gpuserve_error *error);

/**
 * Compute all windows, blocking. Does nothing if all are computed.
 *
 * @param model  The model of gpuserve_long_texts_create().
 * @param job    May be NULL. Of its fields `deadline_us` (of the whole call), `priority`, `cache`,
 *               `client`, `expected_fingerprint` and `result` (sums over all windows) apply; another
 *               one that is not zero is GPUSERVE_E_INVALID.
 * @return as gpuserve_run(). GPUSERVE_E_MISMATCH also if the model was swapped since the creation.
 *         GPUSERVE_E_NUMERIC: the vectors of a window are NaN or infinite. After a failure a repeated
 *         call continues with the windows that are not computed.
 *
 * Thread-safety: one thread at a time for each object. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_long_texts_run(gpuserve_long_texts *long_texts, gpuserve_model *model,
                        const gpuserve_job *job, gpuserve_error *error);

/**
 * The next job, for callers that submit asynchronously: next(), gpuserve_submit(), and after
 * GPUSERVE_OK take(), until next() gives a job without items. A job that was not taken is given
 * again.
 *
 * @param job  Receives task, inputs, prompt, vector options and output; n_items is 0 when all windows
 *             are computed. expected_fingerprint is set if it is NULL. Other fields are the caller's.
 *             Its pointers are borrowed from the object until the next call for the object.
 * @return GPUSERVE_OK, GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM
 *
 * Thread-safety: one thread at a time for each object. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status gpuserve_long_texts_next(
    gpuserve_long_texts *long_texts, gpuserve_job *job, gpuserve_error *error);

/**
 * Add the output of next()'s job, which completed with GPUSERVE_OK, to the vectors.
 *
 * @return GPUSERVE_OK; GPUSERVE_E_INVALID: next() gave no job
 *
 * Thread-safety: one thread at a time for each object. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_long_texts_take(gpuserve_long_texts *long_texts, gpuserve_error *error);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_LONG_TEXTS_H */
