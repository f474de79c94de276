/*
 * token_spans.h - the tokens of one text with their places in it.
 */
#ifndef GSV_HTTP_TOKEN_SPANS_H
#define GSV_HTTP_TOKEN_SPANS_H

#include "lib/http/protocol/exchange.h"

struct gsv_token_spans {
    int32_t *ids;         /* [n], kept by the exchange, as: */
    gpuserve_span *spans; /* [n] bytes of the text; empty for special tokens */
    size_t n;
};

/* Of no place in the text. Others may be empty: byte-level tokens of a space alone. */
static inline bool gsv_is_special(gpuserve_span span)
{
    return span.end == 0;
}

/* Of all texts of one reply that tells each: more would be a quarter of a gigabyte of JSON. */
enum { GSV_MAX_TOKENS = 1 << 22 };

/* False after gsv_refuse; so it is when there are more than `most`. */
bool gsv_tokens_of_text(struct gsv_exchange *exchange, const char *text, size_t size,
                        const gpuserve_tokenize_options *options, size_t most,
                        struct gsv_token_spans *tokens);

/* Tells the account of a text that was tokenized here and not in its job, to `n` tokens: it is cut
 * where it has more than `limit`. */
void gsv_note_cut(struct gsv_exchange *exchange, const char *text, size_t size, size_t n,
                  size_t limit);

/* How far characters were counted; zero at the start of a text. */
struct gsv_place {
    size_t byte, count;
};

/* How many characters (not bytes) the first `end` bytes are, going on from the place. */
size_t gsv_characters_to(const char *text, size_t end, struct gsv_place *place);

#endif
