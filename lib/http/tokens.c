/*
 * tokens.c - see tokens.h.
 */
#include "lib/http/tokens.h"

#include "lib/http/models.h"

bool gsv_tokens_of_text(struct gsv_exchange *exchange, const char *text, size_t size,
                        const gpuserve_tokenize_options *options, struct gsv_tokens *tokens)
{
    gpuserve_model *model = exchange->served->model;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;

    /* The first call only counts: memory is for the tokens there are, not for those there might be.
     */
    st = gpuserve_tokenize(model, text, size, NULL, NULL, 0, &tokens->n, options, &error);
    if (st == GPUSERVE_OK || st == GPUSERVE_E_TOO_LARGE) {
        tokens->ids = gsv_keep(exchange, tokens->n, sizeof(*tokens->ids));
        tokens->spans = gsv_keep(exchange, tokens->n, sizeof(*tokens->spans));
        if (!tokens->ids || !tokens->spans)
            return false;
        st = gpuserve_tokenize(model, text, size, tokens->ids, tokens->spans, tokens->n, &tokens->n,
                               options, &error);
    }
    return st == GPUSERVE_OK || gsv_refuse_error(exchange, st, &error);
}

size_t gsv_characters_to(const char *text, size_t end, struct gsv_place *place)
{
    if (end < place->byte)
        *place = (struct gsv_place){ 0 };
    for (; place->byte < end; place->byte++)
        place->count += ((unsigned char)text[place->byte] & 0xC0) != 0x80;
    return place->count;
}
