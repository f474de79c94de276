/*
 * tei_text.c - TEI's /tokenize and /decode, llama.cpp's /tokenize and /detokenize. Both use the
 * same /tokenize path; the request's fields select the dialect.
 */
#include "lib/http/inference/inputs.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <string.h>

static bool tokenize_text(struct gsv_exchange *exchange, const char *text, size_t size,
                          bool add_special, size_t max_tokens, struct gsv_token_spans *tokens)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;

    options.no_special = !add_special;
    return gsv_tokens_of_text(exchange, text, size, &options, max_tokens, tokens);
}

/* Writes a token's id and, as field `name`, its span of the text or a special token's name. */
static void put_token(struct gsv_exchange *exchange, const char *text, size_t size,
                      const struct gsv_token_spans *tokens, size_t i, const char *name)
{
    const gpuserve_span span = tokens->spans[i];
    struct gsv_buffer *to = &exchange->reply;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st = GPUSERVE_E_NOT_FOUND; /* only special tokens have a name */
    size_t word_size = 0;
    char word[512];

    gsv_buffer_text(to, i > 0 ? ",{\"id\":" : "{\"id\":");
    gsv_put_number(to, tokens->ids[i]);
    gsv_buffer_format(to, ",\"%s\":", name);
    if (gsv_is_special(span))
        st = gpuserve_detokenize(exchange->served->model, &tokens->ids[i], 1, 0, word, sizeof(word),
                                 &word_size, &error);
    to->failed |= st == GPUSERVE_E_NOMEM;
    if (st == GPUSERVE_OK)
        gsv_put_text(to, word);
    else
        gsv_put_bytes(to, text + span.begin, span.end <= size ? span.end - span.begin : 0);
}

static bool put_tokens(struct gsv_exchange *exchange, const char *text, size_t size,
                       const struct gsv_token_spans *tokens)
{
    struct gsv_buffer *to = &exchange->reply;
    struct gsv_text_position position = { 0 };

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < tokens->n; i++) {
        const gpuserve_span span = tokens->spans[i];

        put_token(exchange, text, size, tokens, i, "text");
        if (gsv_is_special(span)) {
            gsv_buffer_text(to, ",\"special\":true,\"start\":null,\"stop\":null}");
        } else {
            gsv_buffer_text(to, ",\"special\":false,\"start\":");
            gsv_put_number(to, (int64_t)gsv_characters_to(text, span.begin, &position));
            gsv_buffer_text(to, ",\"stop\":");
            gsv_put_number(to, (int64_t)gsv_characters_to(text, span.end, &position));
            gsv_buffer_text(to, "}");
        }
    }
    gsv_buffer_text(to, "]");
    return !to->failed;
}

static void tokenize_tei(struct gsv_exchange *exchange)
{
    gpuserve_job job = GPUSERVE_JOB_INIT; /* only for its prompt */
    struct gsv_inputs inputs;
    size_t left = GSV_MAX_TOKENS;
    bool add_special = true;

    if (!gsv_member_flag(exchange, exchange->json, "add_special_tokens", &add_special) ||
        !gsv_option_prompt(exchange, exchange->json, &job) ||
        !gsv_inputs_read(exchange, json_object_get(exchange->json, "inputs"), "inputs",
                         GSV_INPUTS_NO_IDS, NULL, &inputs) ||
        !gsv_inputs_prompt(exchange, &inputs, job.prompt_name))
        return;
    gsv_buffer_text(&exchange->reply, "[");
    for (size_t i = 0; i < inputs.n; i++) {
        struct gsv_token_spans tokens = { 0 };

        if (!tokenize_text(exchange, inputs.texts[i], inputs.sizes[i], add_special, left, &tokens))
            return;
        left -= tokens.n;
        gsv_buffer_text(&exchange->reply, i > 0 ? "," : "");
        put_tokens(exchange, inputs.texts[i], inputs.sizes[i], &tokens);
    }
    gsv_buffer_text(&exchange->reply, "]");
    gsv_reply_json(exchange);
}

static void put_llama(struct gsv_exchange *exchange, const char *text, size_t size,
                      const struct gsv_token_spans *tokens, bool with_pieces)
{
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"tokens\":[");
    for (size_t i = 0; i < tokens->n; i++) {
        if (with_pieces) {
            put_token(exchange, text, size, tokens, i, "piece");
            gsv_buffer_text(to, "}");
        } else {
            gsv_buffer_text(to, i > 0 ? "," : "");
            gsv_put_number(to, tokens->ids[i]);
        }
    }
    gsv_buffer_text(to, "]}");
    gsv_reply_json(exchange);
}

static void tokenize_llama(struct gsv_exchange *exchange, const json_t *content)
{
    bool add_special = false, with_pieces = false, parse_special = true; /* llama.cpp's defaults */
    const size_t size = json_string_length(content);
    const char *text = json_string_value(content);
    struct gsv_token_spans tokens = { 0 };

    if (!text) {
        gsv_refuse(exchange, GSV_P_INVALID, "content", "`content` is not a string");
        return;
    }
    if (!gsv_member_flag(exchange, exchange->json, "add_special", &add_special) ||
        !gsv_member_flag(exchange, exchange->json, "with_pieces", &with_pieces) ||
        !gsv_member_flag(exchange, exchange->json, "parse_special", &parse_special))
        return;
    if (!parse_special)
        gsv_refuse(
            exchange, GSV_P_UNSUPPORTED, "parse_special",
            "`parse_special`: false is not supported: special tokens in a text are always parsed");
    else if (tokenize_text(exchange, text, size, add_special, GSV_MAX_TOKENS, &tokens))
        put_llama(exchange, text, size, &tokens, with_pieces);
}

static void tokenize(struct gsv_exchange *exchange)
{
    const json_t *content = json_object_get(exchange->json, "content");

    if (content) /* llama.cpp's request: its errors have OpenAI's form */
        exchange->dialect = GSV_OPENAI;
    if (!gsv_request_body_model(exchange))
        return;
    if (content)
        tokenize_llama(exchange, content);
    else
        tokenize_tei(exchange);
}

/* -------------------------------------------------------------------------------------- decode */

/* Writes the text of one list of ids as a JSON string. */
static bool put_decoded(struct gsv_exchange *exchange, const int32_t *ids, size_t n,
                        bool skip_special)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t size = 0;
    char *text = NULL;
    gpuserve_status st =
        gpuserve_detokenize(exchange->served->model, ids, n, skip_special, NULL, 0, &size, &error);

    if (st == GPUSERVE_E_TOO_LARGE || st == GPUSERVE_OK) {
        text = gsv_exchange_alloc(exchange, size + 1, 1);
        if (!text)
            return false;
        st = gpuserve_detokenize(exchange->served->model, ids, n, skip_special, text, size + 1,
                                 &size, &error);
    }
    if (st != GPUSERVE_OK)
        return gsv_refuse_tokens(exchange, st, &error);
    gsv_put_text(&exchange->reply, text);
    return true;
}

static void decode(struct gsv_exchange *exchange)
{
    const json_t *ids = json_object_get(exchange->json, "ids");
    struct gsv_inputs inputs;
    bool skip_special = true;

    if (!gsv_request_body_model(exchange) ||
        !gsv_member_flag(exchange, exchange->json, "skip_special_tokens", &skip_special) ||
        !gsv_inputs_read(exchange, ids, "ids", GSV_INPUTS_NO_TEXTS, NULL, &inputs))
        return;
    gsv_buffer_text(&exchange->reply, "[");
    for (size_t i = 0; i < inputs.n; i++) {
        gsv_buffer_text(&exchange->reply, i > 0 ? "," : "");
        if (!put_decoded(exchange, inputs.ids + inputs.offsets[i],
                         inputs.offsets[i + 1] - inputs.offsets[i], skip_special))
            return;
    }
    gsv_buffer_text(&exchange->reply, "]");
    gsv_reply_json(exchange);
}

static void detokenize(struct gsv_exchange *exchange)
{
    struct gsv_inputs inputs;

    if (!gsv_request_body_model(exchange) ||
        !gsv_inputs_read(exchange, json_object_get(exchange->json, "tokens"), "tokens",
                         GSV_INPUTS_NO_TEXTS, NULL, &inputs))
        return;
    gsv_buffer_text(&exchange->reply, "{\"content\":");
    if (!put_decoded(exchange, inputs.ids, inputs.offsets[1], false))
        return;
    gsv_buffer_text(&exchange->reply, "}");
    gsv_reply_json(exchange);
}

const struct gsv_route gsv_text_routes[] = {
    { "POST", "/tokenize", GSV_TEI, GSV_JSON_BODY | GSV_LONG_REPLY, tokenize,
      "text-embeddings-inference, llama.cpp" },
    { "POST", "/decode", GSV_TEI, GSV_JSON_BODY | GSV_LONG_REPLY, decode },
    { "POST", "/detokenize", GSV_OPENAI, GSV_JSON_BODY | GSV_LONG_REPLY, detokenize, "llama.cpp" },
    { 0 },
};
