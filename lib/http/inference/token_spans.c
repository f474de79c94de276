/*
 * token_spans.c - tokenizes one text with spans, and converts byte offsets to character counts.
 */
#include "lib/http/inference/inputs.h"

#include "lib/http/models/model_registry.h"

enum { LIKELY_TOKENS = 4096, MORE_TOKENS = 16 /* special tokens */ };

bool gsv_tokens_of_text(struct gsv_exchange *exchange, const char *text, size_t size,
                        const gpuserve_tokenize_options *options, size_t max_tokens,
                        struct gsv_token_spans *tokens)
{
    gpuserve_model *model = exchange->served->model;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;

    /* First guess, enough for most texts; a call that exceeds it returns the exact count for a
     * second call. */
    tokens->n = size < LIKELY_TOKENS ? size + MORE_TOKENS : LIKELY_TOKENS;
    for (int i = 0;; i++) {
        const size_t capacity = tokens->n;

        tokens->ids = gsv_exchange_alloc(exchange, capacity, sizeof(*tokens->ids));
        tokens->spans = gsv_exchange_alloc(exchange, capacity, sizeof(*tokens->spans));
        if (!tokens->ids || !tokens->spans)
            return false;
        st = gpuserve_tokenize(model, text, size, tokens->ids, tokens->spans, capacity, &tokens->n,
                               options, &error);
        if (st != GPUSERVE_E_TOO_LARGE || tokens->n <= capacity || tokens->n > max_tokens || i > 0)
            break;
    }
    if ((st == GPUSERVE_OK || st == GPUSERVE_E_TOO_LARGE) && tokens->n > max_tokens)
        return gsv_refuse(exchange, GSV_P_TOO_LARGE, NULL,
                          "the reply exceeds %d tokens: send fewer inputs", GSV_MAX_TOKENS);
    return st == GPUSERVE_OK || gsv_refuse_tokens(exchange, st, &error);
}

void gsv_note_cut(struct gsv_exchange *exchange, const char *text, size_t size, size_t n,
                  size_t limit)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (n < limit)
        return;
    options.max_tokens = (uint32_t)limit + 1;
    if (gpuserve_tokenize(exchange->served->model, text, size, NULL, NULL, 0, &n, &options,
                          &error) == GPUSERVE_OK &&
        n > limit)
        exchange->usage.n_truncated++;
}

static bool begins_character(char byte)
{
    return ((unsigned char)byte & 0xC0) != 0x80;
}

/* Counts backward as well as forward, never from the start again: byte tokens of one character all
 * begin at that character. */
size_t gsv_characters_to(const char *text, size_t end, struct gsv_text_position *position)
{
    for (; position->byte > end; position->byte--)
        position->count -= begins_character(text[position->byte - 1]);
    for (; position->byte < end; position->byte++)
        position->count += begins_character(text[position->byte]);
    return position->count;
}
