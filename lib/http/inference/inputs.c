/*
 * inputs.c - reads texts and token ids from JSON and tokenizes where a job needs ids.
 *
 * Accepts the five forms of gsv_inputs_read(). Ids are range-checked against the vocabulary. All
 * arrays come from gsv_exchange_alloc().
 *
 * llama.cpp's forms are rewritten in place to these forms, as the whole input or as an item of a
 * list. Images and sound are refused.
 *
 *   {"prompt_string": "text"}                             a text
 *   {"content": [{"type": "text", "text": "a"}, ...]}     a text: the parts, joined
 *   [101, "text", 102]                                    one list of ids; the text's own ids have
 *                                                         no special tokens
 */
#include "lib/http/inference/inputs.h"

#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"

#include <string.h>

bool gsv_inputs_count(struct gsv_exchange *exchange, size_t n, const char *name)
{
    size_t max_inputs = exchange->server->options.max_client_batch;

    if (n == 0)
        return gsv_refuse(exchange, GSV_P_EMPTY, name, "`%s` cannot be empty", name);
    if (exchange->stream && max_inputs < GSV_STREAM_INPUTS)
        max_inputs = GSV_STREAM_INPUTS;
    return n <= max_inputs ||
           gsv_refuse(exchange, GSV_P_TOO_MANY, name,
                      "`%s` holds %zu inputs, the limit is %zu (--max-client-batch-size)", name, n,
                      max_inputs);
}

/* --------------------------------------------------------------------------------------- texts */

bool gsv_inputs_make(struct gsv_exchange *exchange, size_t n, bool pairs, struct gsv_inputs *inputs)
{
    *inputs = (struct gsv_inputs){ .n = n };
    inputs->texts = gsv_exchange_alloc(exchange, n, sizeof(*inputs->texts));
    inputs->sizes = gsv_exchange_alloc(exchange, n, sizeof(*inputs->sizes));
    if (pairs) {
        inputs->pairs = gsv_exchange_alloc(exchange, n, sizeof(*inputs->pairs));
        inputs->pair_sizes = gsv_exchange_alloc(exchange, n, sizeof(*inputs->pair_sizes));
    }
    return inputs->texts && inputs->sizes && (!pairs || (inputs->pairs && inputs->pair_sizes));
}

void gsv_inputs_set(struct gsv_inputs *inputs, size_t i, const char *text, size_t size)
{
    inputs->texts[i] = text;
    inputs->sizes[i] = size;
    inputs->n_characters += gsv_utf8_count(text, size);
}

void gsv_inputs_set_pair(struct gsv_inputs *inputs, size_t i, const char *text, size_t size)
{
    inputs->pairs[i] = text;
    inputs->pair_sizes[i] = size;
    inputs->n_characters += gsv_utf8_count(text, size);
}

static bool set_text(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t i,
                     const json_t *value, const char *name, unsigned flags)
{
    if (json_string_length(value) == 0 && !(flags & GSV_INPUTS_EMPTY_TEXTS))
        return gsv_refuse(exchange, GSV_P_EMPTY, name,
                          "`%s` cannot be empty: input %zu is an empty text", name, i);
    gsv_inputs_set(inputs, i, json_string_value(value), json_string_length(value));
    return true;
}

static bool read_texts(struct gsv_exchange *exchange, const json_t *list, const char *name,
                       unsigned flags, struct gsv_inputs *inputs)
{
    json_t *value;
    size_t i;

    if (!gsv_inputs_make(exchange, json_array_size(list), false, inputs))
        return false;
    json_array_foreach(list, i, value)
    {
        if (!json_is_string(value))
            return gsv_refuse(exchange, GSV_P_INVALID, name,
                              "`%s` is a list of strings, but item %zu is not a string", name, i);
        if (!set_text(exchange, inputs, i, value, name, flags))
            return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------- token ids */

static bool read_ids(struct gsv_exchange *exchange, const json_t *list, size_t index,
                     const char *name, int32_t *ids)
{
    json_t *value;
    size_t i;

    if (json_array_size(list) == 0)
        return gsv_refuse(exchange, GSV_P_EMPTY, name,
                          "`%s` cannot be empty: input %zu has no token ids", name, index);
    json_array_foreach(list, i, value)
    {
        const json_int_t id = json_integer_value(value);
        const json_int_t n_ids = (json_int_t)exchange->served->properties.vocab_size;

        if (!json_is_integer(value))
            return gsv_refuse(
                exchange, GSV_P_INVALID, name,
                "`%s`: input %zu is a list of token ids, but item %zu is not a token id", name,
                index, i);
        if (id < 0 || id >= n_ids)
            return gsv_refuse(
                exchange, GSV_P_TOKENIZER, name,
                "`%s`: token id %lld of input %zu is outside this model's vocabulary of %lld ids; "
                "ids of another tokenizer are not valid (langchain-openai sends them unless "
                "check_embedding_ctx_length=False)",
                name, (long long)id, index, (long long)n_ids);
        ids[i] = (int32_t)id;
    }
    return true;
}

static bool read_id_lists(struct gsv_exchange *exchange, const json_t *list, const char *name,
                          struct gsv_inputs *inputs)
{
    const size_t n = json_array_size(list);
    size_t total = 0, i;
    json_t *value;

    *inputs = (struct gsv_inputs){ .n = n };
    json_array_foreach(list, i, value) total += json_array_size(value);
    inputs->ids = gsv_exchange_alloc(exchange, total, sizeof(*inputs->ids));
    inputs->offsets = gsv_exchange_alloc(exchange, n + 1, sizeof(*inputs->offsets));
    if (!inputs->ids || !inputs->offsets)
        return false;
    json_array_foreach(list, i, value)
    {
        if (!json_is_array(value))
            return gsv_refuse(
                exchange, GSV_P_INVALID, name,
                "`%s` is a list of lists of token ids, but item %zu is not a list of token ids",
                name, i);
        if (!read_ids(exchange, value, i, name, inputs->ids + inputs->offsets[i]))
            return false;
        inputs->offsets[i + 1] = inputs->offsets[i] + json_array_size(value);
    }
    return true;
}

static bool read_one_id_list(struct gsv_exchange *exchange, const json_t *list, const char *name,
                             struct gsv_inputs *inputs)
{
    *inputs = (struct gsv_inputs){ .n = 1 };
    inputs->ids = gsv_exchange_alloc(exchange, json_array_size(list), sizeof(*inputs->ids));
    inputs->offsets = gsv_exchange_alloc(exchange, 2, sizeof(*inputs->offsets));
    if (!inputs->ids || !inputs->offsets || !read_ids(exchange, list, 0, name, inputs->ids))
        return false;
    inputs->offsets[1] = json_array_size(list);
    return true;
}

/* Appends the ids of text i to `ids`. */
static bool tokenize(struct gsv_exchange *exchange, const struct gsv_inputs *inputs, size_t i,
                     size_t limit, uint32_t truncation, struct gsv_buffer *ids)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    const size_t size = inputs->sizes[i];
    const char *text = inputs->texts[i];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t n = 0;
    char *to = gsv_buffer_reserve(ids, limit * sizeof(int32_t));
    gpuserve_status st;

    if (!to)
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for token ids");
    options.truncation = truncation;
    options.max_tokens = (uint32_t)limit;
    st = gpuserve_tokenize(exchange->served->model, text, size, (int32_t *)(void *)to, NULL, limit,
                           &n, &options, &error);
    if (st == GPUSERVE_E_TOO_LARGE) {
        gsv_fail_in(&error, st, "input %zu", i);
        return gsv_refuse_length(exchange, error.message, false);
    }
    if (st != GPUSERVE_OK)
        return gsv_refuse_tokens(exchange, gsv_fail_in(&error, st, "input %zu", i), &error);
    ids->size += n * sizeof(int32_t);
    gsv_note_cut(exchange, text, size, n, limit);
    return true;
}

bool gsv_inputs_tokenize(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t limit,
                         uint32_t truncation)
{
    struct gsv_buffer ids = { 0 };
    bool good = true;

    if (limit == 0)
        limit = exchange->served->max_tokens;
    if (!inputs->texts)
        return true;
    inputs->offsets = gsv_exchange_alloc(exchange, inputs->n + 1, sizeof(*inputs->offsets));
    for (size_t i = 0; i < inputs->n && inputs->offsets && good; i++) {
        good = tokenize(exchange, inputs, i, limit, truncation, &ids);
        inputs->offsets[i + 1] = ids.size / sizeof(int32_t);
    }
    if (good && inputs->offsets)
        inputs->ids = (int32_t *)(void *)gsv_exchange_copy_text(exchange, ids.bytes, ids.size);
    gsv_buffer_reset(&ids);
    inputs->texts = NULL;
    inputs->sizes = NULL;
    return good && inputs->ids;
}

/* NULL: no prompt. */
static const json_t *prompt_of(const struct gsv_served *served, const char *name)
{
    const json_t *prompt = name ? json_object_get(gsv_served_prompts(served), name)
                                : json_object_get(served->facts, "default_prompt_text");

    return json_is_string(prompt) ? prompt : NULL;
}

bool gsv_inputs_prompt(struct gsv_exchange *exchange, struct gsv_inputs *inputs, const char *name)
{
    const json_t *prompt = prompt_of(exchange->served, name);
    const size_t size = json_string_length(prompt);

    for (size_t i = 0; prompt && inputs->texts && i < inputs->n; i++) {
        char *text = gsv_exchange_alloc(exchange, size + inputs->sizes[i] + 1, 1);

        if (!text)
            return false;
        memcpy(text, json_string_value(prompt), size);
        memcpy(text + size, inputs->texts[i], inputs->sizes[i]);
        inputs->texts[i] = text;
        inputs->sizes[i] += size;
    }
    return true;
}

/* ------------------------------------------------------------------------------------ all forms */

static bool read_mixed(struct gsv_exchange *exchange, const json_t *list, const char *name,
                       unsigned flags, const gpuserve_job *job, struct gsv_inputs *inputs)
{
    struct gsv_buffer ids = { 0 };
    bool good = true;
    json_t *value;
    size_t i;

    *inputs = (struct gsv_inputs){ .n = json_array_size(list), .has_prompt = true };
    inputs->offsets = gsv_exchange_alloc(exchange, inputs->n + 1, sizeof(*inputs->offsets));
    for (i = 0; i < inputs->n && inputs->offsets && good; i++) {
        struct gsv_inputs one;

        value = json_array_get(list, i);
        if (json_is_string(value)) {
            good = gsv_inputs_make(exchange, 1, false, &one) &&
                   set_text(exchange, &one, 0, value, name, flags) &&
                   gsv_inputs_prompt(exchange, &one, job->prompt_name) &&
                   gsv_inputs_tokenize(exchange, &one, 0, job->truncation);
            inputs->n_characters += good ? one.n_characters : 0;
        } else {
            good = json_is_array(value)
                       ? read_one_id_list(exchange, value, name, &one)
                       : gsv_refuse(exchange, GSV_P_INVALID, name,
                                    "`%s`: item %zu is neither a string nor a list of token ids",
                                    name, i);
        }
        if (good)
            gsv_buffer_add(&ids, one.ids, one.offsets[1] * sizeof(int32_t));
        inputs->offsets[i + 1] = ids.size / sizeof(int32_t);
    }
    if (good && ids.failed)
        good = gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for token ids");
    if (good && inputs->offsets)
        inputs->ids = (int32_t *)(void *)gsv_exchange_copy_text(exchange, ids.bytes, ids.size);
    gsv_buffer_reset(&ids);
    return inputs->ids != NULL;
}

static bool read_list(struct gsv_exchange *exchange, const json_t *list, const char *name,
                      unsigned flags, const gpuserve_job *job, struct gsv_inputs *inputs)
{
    const json_t *first = json_array_get(list, 0);
    size_t n_texts = 0, n_lists = 0, i;
    json_t *value;

    if (json_is_integer(first) && !(flags & GSV_INPUTS_NO_IDS))
        return read_one_id_list(exchange, list, name, inputs);
    if (!gsv_inputs_count(exchange, json_array_size(list), name))
        return false;
    json_array_foreach(list, i, value)
    {
        n_texts += json_is_string(value);
        n_lists += json_is_array(value);
    }
    if (flags & GSV_INPUTS_NO_TEXTS)
        return read_id_lists(exchange, list, name, inputs);
    if (flags & GSV_INPUTS_NO_IDS || n_lists == 0)
        return read_texts(exchange, list, name, flags, inputs);
    if (n_texts == 0)
        return read_id_lists(exchange, list, name, inputs);
    return read_mixed(exchange, list, name, flags, job, inputs);
}

bool gsv_inputs_read(struct gsv_exchange *exchange, const json_t *value, const char *name,
                     unsigned flags, const gpuserve_job *job, struct gsv_inputs *inputs)
{
    if (!value || json_is_null(value))
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is missing", name);
    if (flags & GSV_INPUTS_NO_TEXTS && !json_is_array(value))
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is not a list of token ids", name);
    if (json_is_string(value))
        return gsv_inputs_make(exchange, 1, false, inputs) &&
               set_text(exchange, inputs, 0, value, name, flags);
    if (json_is_array(value))
        return read_list(exchange, value, name, flags, job, inputs);
    return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is neither a string nor a list", name);
}

void gsv_inputs_into(const struct gsv_inputs *inputs, gpuserve_job *job)
{
    job->n_items = inputs->n;
    if (inputs->texts) {
        job->texts = inputs->texts;
        job->text_sizes = inputs->sizes;
        job->pairs = inputs->pairs;
        job->pair_sizes = inputs->pair_sizes;
    } else {
        job->ids = inputs->ids;
        job->id_offsets = inputs->offsets;
        if (inputs->has_prompt)
            job->prompt_name = NULL;
    }
}

/* -------------------------------------------------------------------------- llama.cpp's forms */

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
