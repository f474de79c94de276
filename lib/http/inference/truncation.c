/*
 * truncation.c - truncates inputs at a number of tokens that the request gives.
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

#include <string.h>

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
