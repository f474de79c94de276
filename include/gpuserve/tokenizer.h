/*
 * gpuserve/tokenizer.h - a tokenizer without a model: token ids, byte spans, pairs and decoding from
 * a directory of tokenizer files. <gpuserve/gpuserve.h> includes this header.
 *
 *   gpuserve_tokenizer *tokenizer = NULL;
 *   gpuserve_tokenizer_open(&tokenizer, NULL, "all-MiniLM-L6-v2", &err);
 *   gpuserve_tokenizer_encode(tokenizer, &text, NULL, 0, &n, NULL, &err); // count only
 *   gpuserve_tokenizer_close(&tokenizer);
 */
#ifndef GPUSERVE_TOKENIZER_H
#define GPUSERVE_TOKENIZER_H

#include <gpuserve/run.h>
#include <gpuserve/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================ tokenizer */

/** A tokenizer. Immutable: any number of threads may use it concurrently. */
typedef struct gpuserve_tokenizer gpuserve_tokenizer;

/** A text, or a pair of texts, to tokenize. */
typedef struct gpuserve_tokenizer_input {
    uint32_t    struct_size;
    uint32_t    reserved;  /**< zero */
    const char *text;      /**< UTF-8, borrowed; may contain NUL bytes */
    size_t      size;      /**< bytes of `text` */
    const char *pair;      /**< second text, or NULL: a single text */
    size_t      pair_size; /**< bytes of `pair` */
} gpuserve_tokenizer_input;

/* clang-format off */
#define GPUSERVE_TOKENIZER_INPUT_INIT { (uint32_t)sizeof(gpuserve_tokenizer_input), 0, 0, 0, 0, 0 }
/* clang-format on */

/** The tokens of a text or pair. The caller's memory; each array is NULL or has `capacity`
 *  elements. */
typedef struct gpuserve_tokenizer_output {
    uint32_t       struct_size;
    uint32_t       reserved; /**< zero */
    size_t         capacity; /**< elements of each array */
    int32_t       *ids;      /**< token ids */
    int32_t       *type_ids; /**< 0 or 1: token type, which most models set to 1 for the second text;
                                  RoBERTa has only 0 */
    gpuserve_span *spans;    /**< bytes of the text, or of the second text of a pair */
} gpuserve_tokenizer_output;

/* clang-format off */
#define GPUSERVE_TOKENIZER_OUTPUT_INIT { (uint32_t)sizeof(gpuserve_tokenizer_output), 0, 0, 0, 0, 0 }
/* clang-format on */

/**
 * Open the tokenizer of a directory. The directory needs no config.json and no weights: it holds
 * tokenizer.json, or vocab.txt, or vocab.json with merges.txt, or sentencepiece.bpe.model, next to
 * tokenizer_config.json where the format needs it. In a model directory the result is the model's
 * tokenizer: the same ids and spans as from gpuserve_tokenize().
 *
 * @param tokenizer  Receives the tokenizer, owned by the caller and released with
 *                   gpuserve_tokenizer_close(); NULL on failure.
 * @param context    Its cache directory is searched for names; not used afterwards. NULL: the
 *                   directories of the environment, as for a default context.
 * @param path       A directory, or a name as in gpuserve_model_open().
 * @return GPUSERVE_OK
 *         GPUSERVE_E_NOT_FOUND    no such directory, or it has no tokenizer files; the message
 *                                 lists the names
 *         GPUSERVE_E_FORMAT       a file is damaged, or files contradict each other
 *         GPUSERVE_E_UNSUPPORTED  the tokenizer has a part that this version lacks
 *         GPUSERVE_E_INVALID, GPUSERVE_E_NOMEM, GPUSERVE_E_IO
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_tokenizer_open(gpuserve_tokenizer **tokenizer, gpuserve_context *context, const char *path,
                        gpuserve_error *error);

/** Release a tokenizer, which no other call may use at that time. Accepts NULL and a pointer to
 *  NULL; leaves NULL. Since: 0.2 */
GPUSERVE_API void gpuserve_tokenizer_close(gpuserve_tokenizer **tokenizer);

/**
 * Tokenize a text or a pair of texts. The tokens equal those of Hugging Face `tokenizers`.
 *
 * @param output    Receives the tokens; NULL counts them only.
 * @param n_tokens  Receives the number of tokens, special tokens included.
 * @param options   As for gpuserve_tokenize(); may be NULL. A pair over `max_tokens` loses tokens
 *                  of its longer text first.
 * @return GPUSERVE_OK
 *         GPUSERVE_E_INVALID    a text is not UTF-8, or the input is invalid
 *         GPUSERVE_E_TOO_LARGE  output->capacity is too small: *n_tokens is set, the arrays are
 *                               unchanged; or the text is over max_tokens in strict truncation, or
 *                               has over 2147483647 bytes
 *         GPUSERVE_E_UNSUPPORTED the tokenizer has no template for pairs
 *         GPUSERVE_E_FORKED, GPUSERVE_E_NOMEM
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_tokenizer_encode(gpuserve_tokenizer *tokenizer, const gpuserve_tokenizer_input *input,
                          const gpuserve_tokenizer_output *output, size_t *n_tokens,
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
gpuserve_tokenizer_decode(gpuserve_tokenizer *tokenizer, const int32_t *ids, size_t n_ids,
                          int32_t skip_special, char *text, size_t capacity, size_t *size,
                          gpuserve_error *error);

/**
 * A token as written in the vocabulary, with its markers, as from gpuserve_token_text().
 *
 * @return as gpuserve_tokenizer_decode(); GPUSERVE_E_INVALID also for an id without a token
 *
 * Thread-safety: safe. Since: 0.2
 */
GPUSERVE_API GPUSERVE_MUST_USE gpuserve_status
gpuserve_tokenizer_token_text(gpuserve_tokenizer *tokenizer, int32_t id, char *text,
                              size_t capacity, size_t *size, gpuserve_error *error);

/** The largest token id plus one; 0 for NULL. Since: 0.2 */
GPUSERVE_API size_t gpuserve_tokenizer_vocab_size(const gpuserve_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif

#endif /* GPUSERVE_TOKENIZER_H */
