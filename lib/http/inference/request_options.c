/*
 * request_options.c - parses and validates the JSON fields that several dialects share; truncates
 * inputs at a number of tokens that the request gives.
 *
 *   embedding input: prompt + text -> token ids of at most `limit` tokens -> job of token ids
 *   document of a pair: text -> tokens with spans -> the kept span of the text -> job of texts
 *
 * The limit of an embedding input counts everything that the model computes, and token ids keep it
 * exact: a text cut at a token boundary can have other tokens when it is tokenized again. A
 * document is one part of a pair, which a job accepts only as texts, so it is cut as a text.
 */
#include "lib/http/inference/request_options.h"

#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <string.h>

uint32_t gsv_server_truncation(const struct gsv_exchange *exchange)
{
    return exchange->server->options.auto_truncate ? GPUSERVE_TRUNCATE_DEFAULT
                                                   : GPUSERVE_TRUNCATE_STRICT;
}

bool gsv_option_truncation_or(struct gsv_exchange *exchange, const json_t *object, bool truncate,
                              gpuserve_job *job)
{
    static const char *const directions[] = { "right", "left", NULL };
    static const uint32_t truncations[] = { GPUSERVE_TRUNCATE_RIGHT, GPUSERVE_TRUNCATE_LEFT,
                                            GPUSERVE_TRUNCATE_DEFAULT };
    uint32_t direction = 2;

    if (!gsv_member_flag(exchange, object, "truncate", &truncate) ||
        !gsv_member_choice(exchange, object, "truncation_direction", directions, &direction))
        return false;
    job->truncation = truncate ? truncations[direction] : (uint32_t)GPUSERVE_TRUNCATE_STRICT;
    exchange->cut_by =
        object == exchange->json ? "`truncate`: true" : "`truncate`: true in `parameters`";
    return true;
}

bool gsv_option_truncation(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job)
{
    return gsv_option_truncation_or(exchange, object, exchange->server->options.auto_truncate, job);
}

bool gsv_option_truncated_end(struct gsv_exchange *exchange, const json_t *object,
                              gpuserve_job *job)
{
    static const char *const names[] = { "END", "START", "NONE", NULL };
    static const uint32_t truncations[] = { GPUSERVE_TRUNCATE_RIGHT, GPUSERVE_TRUNCATE_LEFT,
                                            GPUSERVE_TRUNCATE_STRICT };
    uint32_t truncate = UINT32_MAX;

    if (!gsv_member_choice(exchange, object, "truncate", names, &truncate))
        return false;
    if (truncate != UINT32_MAX)
        job->truncation = truncations[truncate];
    return true;
}

/* Uses the words that tei-client parses. */
static bool refuse_prompt(struct gsv_exchange *exchange, const char *name)
{
    struct gsv_buffer known = { .maximum = 512 };
    const json_t *prompts = gsv_served_prompts(exchange->served);
    const char *key;
    json_t *value;

    /* tei-client would parse "[]" as one prompt without a name. */
    if (json_object_size(prompts) == 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "prompt_name",
                          "unknown prompt \"%.100s\": the model has no prompts", name);
    json_object_foreach((json_t *)prompts, key, value)
        gsv_buffer_format(&known, "%s\"%s\"", known.size ? ", " : "", key);
    gsv_buffer_add(&known, "", 1);
    gsv_refuse(exchange, GSV_P_INVALID, "prompt_name",
               "unknown prompt \"%.100s\". Available prompts: [%s]", name,
               known.failed ? "too many to list" : known.bytes);
    gsv_buffer_reset(&known);
    return false;
}

bool gsv_option_prompt(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job)
{
    const char *name = NULL;

    if (!gsv_member_text(exchange, object, "prompt_name", &name))
        return false;
    if (name && !json_object_get(gsv_served_prompts(exchange->served), name))
        return refuse_prompt(exchange, name);
    job->prompt_name = name;
    return true;
}

bool gsv_option_vector(struct gsv_exchange *exchange, const json_t *object, gpuserve_job *job)
{
    bool normalize = true;
    int64_t dimensions = 0;

    if (!gsv_member_flag(exchange, object, "normalize", &normalize) ||
        !gsv_member_count(exchange, object, "dimensions", 1, (int64_t)exchange->served->dim,
                          &dimensions))
        return false;
    job->normalize = normalize ? GPUSERVE_NORMALIZE_YES : GPUSERVE_NORMALIZE_NO;
    job->dimensions = (uint32_t)dimensions;
    return true;
}

/* --------------------------------------------------------------------------- unsupported fields */

static bool has_no_effect(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

bool gsv_option_unoffered(struct gsv_exchange *exchange, const json_t *object,
                          const struct gsv_unoffered *list)
{
    for (; list->name; list++) {
        if (!has_no_effect(json_object_get(object, list->name)))
            return gsv_refuse(exchange, GSV_P_UNSUPPORTED, list->name, "`%s` is not supported: %s",
                              list->name, list->why);
    }
    return true;
}

static bool refuse_member(struct gsv_exchange *exchange, const char *name, const char *key,
                          const char *const *known)
{
    struct gsv_buffer names = { .maximum = 512 };

    for (const char *const *one = known; *one; one++)
        gsv_buffer_format(&names, "%s%s", names.size ? ", " : "", *one);
    gsv_buffer_add(&names, "", 1);
    gsv_refuse(exchange, GSV_P_UNSUPPORTED, key,
               "`%s` holds `%.64s`, which is not supported for this task, only %s", name, key,
               names.failed ? "others" : names.bytes);
    gsv_buffer_reset(&names);
    return false;
}

bool gsv_option_known(struct gsv_exchange *exchange, const json_t *object, const char *name,
                      const char *const *known)
{
    const char *key;
    json_t *value;

    if (!object || json_is_null(object))
        return true;
    if (!json_is_object(object))
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is not an object", name);
    json_object_foreach((json_t *)object, key, value)
    {
        const char *const *one = known;

        while (*one && strcmp(*one, key) != 0)
            one++;
        if (!*one && !json_is_null(value))
            return refuse_member(exchange, name, key, known);
    }
    return true;
}

/* --------------------------------------------------------------------------------------- models */

bool gsv_require_embedder(struct gsv_exchange *exchange)
{
    const struct gsv_served *served = exchange->served;
    const char *what = "makes token vectors or sparse vectors";

    if (served->is_reranker)
        what = "is a reranker";
    else if (served->n_labels > 0 || served->n_token_labels > 0)
        what = "is a classifier";
    return served->can_embed ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                      "model \"%s\" makes no embeddings: it %s", served->name, what);
}

bool gsv_require_classifier(struct gsv_exchange *exchange)
{
    if (exchange->served->n_token_labels > 0)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                          "model \"%s\" labels tokens, not texts: use the route /",
                          exchange->served->name);
    return exchange->served->n_labels > 0 ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "model",
                      "model \"%s\" has no classifier: it makes embeddings",
                      exchange->served->name);
}

/* --------------------------------------------------------------------------------- truncation */

static bool count(struct gsv_exchange *exchange, const char *text, size_t size, bool special,
                  size_t *n)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;

    options.no_special = !special;
    st = gpuserve_tokenize(exchange->served->model, text, size, NULL, NULL, 0, n, &options, &error);
    return st == GPUSERVE_OK || gsv_refuse_tokens(exchange, st, &error);
}

/* Blanks that the tokenizer skips before the first token stay in a text that is cut at its end. */
static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (!strchr(" \t\r\n", text[i]) || text[i] == 0)
            return false;
    }
    return true;
}

/* Keeps the beginning of the text that `limit` tokens cover. */
static bool cut_to(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t i, size_t limit)
{
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_buffer scratch = { 0 };
    size_t n = 0;
    int32_t *ids = (int32_t *)(void *)gsv_buffer_reserve(
        &scratch, limit * (sizeof(int32_t) + sizeof(gpuserve_span)));
    gpuserve_span *spans = (gpuserve_span *)(void *)(ids + (ids ? limit : 0));
    gpuserve_status st;

    if (!ids)
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for token ids");
    options.no_special = true;
    options.max_tokens = (uint32_t)limit;
    options.truncation = GPUSERVE_TRUNCATE_RIGHT;
    st = gpuserve_tokenize(exchange->served->model, inputs->texts[i], inputs->sizes[i], ids, spans,
                           limit, &n, &options, &error);
    if (st == GPUSERVE_OK && n > 0) {
        const size_t begin = is_blank(inputs->texts[i], spans[0].begin) ? 0 : spans[0].begin;

        inputs->sizes[i] = spans[n - 1].end - begin;
        inputs->texts[i] += begin;
        exchange->usage.n_truncated++;
    }
    gsv_buffer_reset(&scratch);
    return st == GPUSERVE_OK || gsv_refuse_tokens(exchange, st, &error);
}

static bool cut_text(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t i,
                     const struct gsv_cut *cut)
{
    size_t n = 0;

    if (!count(exchange, inputs->texts[i], inputs->sizes[i], false, &n))
        return false;
    return n <= cut->limit || cut_to(exchange, inputs, i, cut->limit);
}

static bool check_ids(struct gsv_exchange *exchange, const struct gsv_inputs *inputs,
                      const struct gsv_cut *cut)
{
    for (size_t i = 0; i < inputs->n; i++) {
        const size_t n = inputs->offsets[i + 1] - inputs->offsets[i];

        if (n > cut->limit)
            return gsv_refuse(exchange, GSV_P_TOO_LONG, cut->name,
                              "input %zu has %zu token ids, `%s` is %zu: token ids are never cut",
                              i, n, cut->name, cut->limit);
    }
    return true;
}

/* Copies the arrays, because the caller keeps the full texts. */
static bool copy_texts(struct gsv_exchange *exchange, struct gsv_inputs *inputs)
{
    const char **texts = gsv_exchange_alloc(exchange, inputs->n, sizeof(*texts));
    size_t *sizes = gsv_exchange_alloc(exchange, inputs->n, sizeof(*sizes));

    if (!texts || !sizes)
        return false;
    memcpy(texts, inputs->texts, inputs->n * sizeof(*texts));
    memcpy(sizes, inputs->sizes, inputs->n * sizeof(*sizes));
    inputs->texts = texts;
    inputs->sizes = sizes;
    return true;
}

bool gsv_inputs_cut_texts(struct gsv_exchange *exchange, struct gsv_inputs *inputs,
                          const struct gsv_cut *cut)
{
    if (cut->limit == 0)
        return true;
    if (!copy_texts(exchange, inputs))
        return false;
    for (size_t i = 0; i < inputs->n; i++) {
        if (!cut_text(exchange, inputs, i, cut))
            return false;
    }
    return true;
}

/* Refuses a limit without space for a token of the text. */
static bool check_limit(struct gsv_exchange *exchange, const struct gsv_cut *cut)
{
    size_t n_special = 0;

    return count(exchange, "", 0, true, &n_special) &&
           (cut->limit > n_special ||
            gsv_refuse(exchange, GSV_P_INVALID, cut->name,
                       "`%s` is %zu, but the model adds %zu special tokens", cut->name, cut->limit,
                       n_special));
}

static bool check_lengths(struct gsv_exchange *exchange, const struct gsv_inputs *inputs,
                          const struct gsv_cut *cut)
{
    const char *cut_by = exchange->cut_by;

    for (size_t i = 0; i < inputs->n; i++) {
        size_t n = 0;

        if (!count(exchange, inputs->texts[i], inputs->sizes[i], true, &n))
            return false;
        if (n > cut->limit)
            return gsv_refuse(exchange, GSV_P_TOO_LONG, cut->name,
                              "input %zu has %zu tokens, `%s` is %zu%s%s%s", i, n, cut->name,
                              cut->limit, cut_by ? ": send a shorter text, or " : "",
                              cut_by ? cut_by : "", cut_by ? " to have it cut" : "");
    }
    return true;
}

bool gsv_inputs_cut(struct gsv_exchange *exchange, struct gsv_inputs *inputs, gpuserve_job *job,
                    const struct gsv_cut *cut)
{
    if (cut->limit == 0 || (inputs->texts && cut->limit >= exchange->served->max_tokens))
        return true;
    if (!inputs->texts)
        return check_ids(exchange, inputs, cut);
    if (!check_limit(exchange, cut) || !copy_texts(exchange, inputs) ||
        !gsv_inputs_prompt(exchange, inputs, job->prompt_name))
        return false;
    if (job->truncation == GPUSERVE_TRUNCATE_STRICT && !check_lengths(exchange, inputs, cut))
        return false;
    job->prompt_name = NULL;
    return gsv_inputs_tokenize(exchange, inputs, cut->limit, job->truncation);
}
