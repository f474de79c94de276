/*
 * token_spans.h - the tokens of one text with their spans in it.
 */
#ifndef GSV_HTTP_TOKEN_SPANS_H
#define GSV_HTTP_TOKEN_SPANS_H

#include "lib/http/protocol/exchange.h"

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
