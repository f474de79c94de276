/*
 * inputs.h - the texts, text pairs or token ids of a request, in the form of a job.
 *
 * Texts are borrowed from the exchange's JSON or body. Arrays live as long as the exchange.
 */
#ifndef GSV_HTTP_INPUTS_H
#define GSV_HTTP_INPUTS_H

#include "lib/http/protocol/exchange.h"

struct gsv_inputs {
    size_t n;
    const char **texts; /* [n], or NULL: token ids */
    size_t *sizes;      /* [n] bytes */
    const char **pairs; /* [n] second texts, or NULL */
    size_t *pair_sizes;
    int32_t *ids;    /* concatenated */
    size_t *offsets; /* [n + 1] */
    size_t n_characters;
    bool has_prompt; /* the ids that were texts include the prompt */
};

enum {
    GSV_INPUTS_EMPTY_TEXTS = 1, /* accepts "" */
    GSV_INPUTS_NO_IDS = 2,      /* texts only */
    GSV_INPUTS_NO_TEXTS = 4     /* ids only */
};

/* Reads a text, a list of texts, a list of ids, a list of lists of ids, or a mixed list of texts
 * and lists of ids. A mixed list is converted to ids, with the prompt and truncation of `job`
 * (NULL: `flags` exclude mixed lists). `name` is the field, for messages. False after gsv_refuse.
 */
bool gsv_inputs_read(struct gsv_exchange *exchange, const json_t *value, const char *name,
                     unsigned flags, const gpuserve_job *job, struct gsv_inputs *inputs);

/* Rewrites llama.cpp's forms of an input in field `name` of the body to those that
 * gsv_inputs_read() accepts. The model is held: its tokenizer makes ids. False after gsv_refuse. */
bool gsv_inputs_from_llama(struct gsv_exchange *exchange, const char *name);

/* Allocates n texts, or pairs of texts, to be set one by one. */
bool gsv_inputs_make(struct gsv_exchange *exchange, size_t n, bool pairs,
                     struct gsv_inputs *inputs);
void gsv_inputs_set(struct gsv_inputs *inputs, size_t i, const char *text, size_t size);
void gsv_inputs_set_pair(struct gsv_inputs *inputs, size_t i, const char *text, size_t size);

/* Prepends one of the model's prompts to every text; NULL: the default prompt. */
bool gsv_inputs_prompt(struct gsv_exchange *exchange, struct gsv_inputs *inputs, const char *name);

/* Tokenizes the texts with the model's tokenizer; truncates at `limit` tokens (0: the model's
 * limit) unless `truncation` is strict. */
bool gsv_inputs_tokenize(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t limit,
                         uint32_t truncation);

/* Rejects more inputs than max_client_batch. */
bool gsv_inputs_count(struct gsv_exchange *exchange, size_t n, const char *name);

void gsv_inputs_into(const struct gsv_inputs *inputs, gpuserve_job *job);

/*
 * The tokens of one text with their spans in it.
 */

struct gsv_token_spans {
    int32_t *ids;         /* [n], kept by the exchange, like: */
    gpuserve_span *spans; /* [n] bytes of the text; empty for special tokens */
    size_t n;
};

/* True for tokens without a position in the text. Other spans may be empty: byte-level tokens of a
 * lone space. */
static inline bool gsv_is_special(gpuserve_span span)
{
    return span.end == 0;
}

/* Maximum tokens in one reply that lists them: more would be a quarter of a gigabyte of JSON. */
enum { GSV_MAX_TOKENS = 1 << 22 };

/* False after gsv_refuse, also for more than `max_tokens` tokens. */
bool gsv_tokens_of_text(struct gsv_exchange *exchange, const char *text, size_t size,
                        const gpuserve_tokenize_options *options, size_t max_tokens,
                        struct gsv_token_spans *tokens);

/* Updates usage.n_truncated for a text that was tokenized to `n` tokens outside its job: counts it
 * if it has more than `limit` tokens. */
void gsv_note_cut(struct gsv_exchange *exchange, const char *text, size_t size, size_t n,
                  size_t limit);

/* Counting position; zero at the start of a text. */
struct gsv_text_position {
    size_t byte, count;
};

/* Number of characters (not bytes) in the first `end` bytes, counted on from the position. */
size_t gsv_characters_to(const char *text, size_t end, struct gsv_text_position *position);

#endif
