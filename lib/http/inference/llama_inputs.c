/*
 * llama_inputs.c - llama.cpp's forms of an input, rewritten in place to the forms of inputs.c.
 *
 *   {"prompt_string": "text"}                             a text
 *   {"content": [{"type": "text", "text": "a"}, ...]}     a text: the parts, joined
 *   [101, "text", 102]                                    one list of ids; the text's own ids have
 *                                                         no special tokens
 *
 * As in llama.cpp, the form may be the whole input or an item of a list. Images and sound are
 * refused. The model must be held: its tokenizer makes the ids.
 */
#include "lib/http/inference/inputs.h"

#include <string.h>

static json_t *or_no_memory(struct gsv_exchange *exchange, json_t *made)
{
    if (!made)
        gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for a text");
    return made;
}

static json_t *join_parts(struct gsv_exchange *exchange, const char *name, const json_t *parts)
{
    struct gsv_buffer text = { 0 };
    json_t *part, *joined = NULL;
    size_t i;

    json_array_foreach(parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *chunk = json_object_get(part, "text");

        if (!type || strcmp(type, "text") != 0 || !json_is_string(chunk)) {
            gsv_refuse(
                exchange, GSV_P_UNSUPPORTED, name,
                "`%s`: part %zu of `content` is not {\"type\": \"text\", \"text\": \"...\"}: "
                "the model reads text",
                name, i);
            gsv_buffer_reset(&text);
            return NULL;
        }
        gsv_buffer_add(&text, json_string_value(chunk), json_string_length(chunk));
    }
    if (!text.failed)
        joined = json_stringn(text.size > 0 ? text.bytes : "", text.size);
    gsv_buffer_reset(&text);
    return or_no_memory(exchange, joined);
}

static json_t *text_of(struct gsv_exchange *exchange, const char *name, const json_t *object)
{
    const json_t *content = json_object_get(object, "content");
    const json_t *data = json_object_get(object, "multimodal_data");
    json_t *text = json_object_get(object, "prompt_string");

    if (json_is_array(content))
        return join_parts(exchange, name, content);
    if (json_is_string(text) && (!data || json_is_null(data) || json_array_size(data) == 0))
        return json_incref(text);
    gsv_refuse(exchange, json_is_string(text) ? GSV_P_UNSUPPORTED : GSV_P_INVALID, name,
               json_is_string(text)
                   ? "`%s`: `multimodal_data` is not supported: the model reads text"
                   : "`%s`: an object has no string `prompt_string` and no list `content`",
               name);
    return NULL;
}

/* True for a list of token ids and texts that begins with an id. One that begins with a text is
 * left alone: it is rather a list of texts with a wrong item. */
static bool is_mixed(const json_t *list)
{
    size_t n_texts = 0, i;
    json_t *value;

    if (!json_is_integer(json_array_get(list, 0)))
        return false;
    json_array_foreach(list, i, value)
    {
        if (!json_is_integer(value) && !json_is_string(value))
            return false;
        n_texts += json_is_string(value);
    }
    return n_texts > 0;
}

static bool append_text(struct gsv_exchange *exchange, json_t *ids, const json_t *text)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    struct gsv_token_spans tokens = { 0 };

    options.no_special = true;
    if (!gsv_tokens_of_text(exchange, json_string_value(text), json_string_length(text), &options,
                            GSV_MAX_TOKENS, &tokens))
        return false;
    for (size_t i = 0; i < tokens.n; i++) {
        if (json_array_append_new(ids, json_integer(tokens.ids[i])) != 0)
            return or_no_memory(exchange, NULL) != NULL;
    }
    return true;
}

static json_t *ids_of(struct gsv_exchange *exchange, const json_t *list)
{
    json_t *ids = or_no_memory(exchange, json_array()), *value;
    bool good = ids != NULL;

    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        value = json_array_get(list, i);
        if (json_is_string(value))
            good = append_text(exchange, ids, value);
        else if (json_array_append(ids, value) != 0)
            good = or_no_memory(exchange, NULL) != NULL;
    }
    if (good)
        return ids;
    json_decref(ids);
    return NULL;
}

/* A new reference to the plain form, which is often `value` itself; NULL after gsv_refuse. */
static json_t *plain(struct gsv_exchange *exchange, const char *name, json_t *value)
{
    if (json_is_object(value))
        return text_of(exchange, name, value);
    return is_mixed(value) ? ids_of(exchange, value) : json_incref(value);
}

bool gsv_inputs_from_llama(struct gsv_exchange *exchange, const char *name)
{
    json_t *value = json_object_get(exchange->json, name), *now;

    if (!value)
        return true;
    now = plain(exchange, name, value);
    if (!now)
        return false;
    if (now != value)
        return json_object_set_new(exchange->json, name, now) == 0 ||
               or_no_memory(exchange, NULL) != NULL;
    json_decref(now);
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *item = json_array_get(value, i);

        now = plain(exchange, name, item);
        if (!now)
            return false;
        if (now == item)
            json_decref(now);
        else if (json_array_set_new(value, i, now) != 0)
            return or_no_memory(exchange, NULL) != NULL;
    }
    return true;
}
