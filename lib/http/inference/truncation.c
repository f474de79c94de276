/*
 * truncation.c - cuts texts at token boundaries by tokenizing them with spans.
 *
 *   text -> token count -> over the limit? -> tokens with spans -> the kept span of the text
 */
#include "lib/http/inference/request_options.h"

#include "lib/http/inference/model_registry.h"

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

/* Keeps the span of the text that `limit` tokens cover, at its start or end. */
static bool cut_to(struct gsv_exchange *exchange, struct gsv_inputs *inputs, size_t i, size_t limit,
                   uint32_t truncation)
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
    options.truncation = truncation;
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
    size_t n = 0, n_plain = 0;

    if (!count(exchange, inputs->texts[i], inputs->sizes[i], cut->special, &n))
        return false;
    if (n <= cut->limit)
        return true;
    if (cut->truncation == GPUSERVE_TRUNCATE_STRICT)
        return gsv_refuse(exchange, GSV_P_TOO_LONG, cut->name,
                          "input %zu has %zu tokens, `%s` is %zu", i, n, cut->name, cut->limit);
    if (!count(exchange, inputs->texts[i], inputs->sizes[i], false, &n_plain))
        return false;
    if (cut->limit <= n - n_plain)
        return gsv_refuse(exchange, GSV_P_INVALID, cut->name,
                          "`%s` is %zu, but the model adds %zu special tokens", cut->name,
                          cut->limit, n - n_plain);
    return cut_to(exchange, inputs, i, cut->limit - (n - n_plain), cut->truncation);
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

bool gsv_inputs_cut(struct gsv_exchange *exchange, struct gsv_inputs *inputs,
                    const struct gsv_cut *cut)
{
    const char **texts;
    size_t *sizes;

    if (cut->limit == 0)
        return true;
    if (!inputs->texts)
        return check_ids(exchange, inputs, cut);
    texts = gsv_keep(exchange, inputs->n, sizeof(*texts));
    sizes = gsv_keep(exchange, inputs->n, sizeof(*sizes));
    if (!texts || !sizes)
        return false;
    memcpy(texts, inputs->texts, inputs->n * sizeof(*texts));
    memcpy(sizes, inputs->sizes, inputs->n * sizeof(*sizes));
    inputs->texts = texts;
    inputs->sizes = sizes;
    for (size_t i = 0; i < inputs->n; i++) {
        if (!cut_text(exchange, inputs, i, cut))
            return false;
    }
    return true;
}
