/*
 * long_texts.c - embeddings of long texts as a sequence of jobs of one exchange.
 *
 *   gsv_long_read -> gsv_long_start -> (calibration for int8) -> create: tokens, windows, chunks
 *                 -> next: job -> on_block: take -> next ... -> finish
 *
 * The exchange owns the library's object, whose memory the jobs write to. No thread waits between
 * two jobs.
 */
#include "lib/http/inference/embedding.h"

#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------- read */

static bool read_number(struct gsv_exchange *exchange, const json_t *object, const char *key,
                        uint32_t *number)
{
    int64_t value = 0;

    if (!gsv_member_count(exchange, object, key, 1, INT32_MAX, &value))
        return false;
    *number = (uint32_t)value;
    return true;
}

/* The fields of `chunking`; combinations that the library refuses are left to it. */
static bool read_chunking(struct gsv_exchange *exchange, const json_t *object,
                          struct gsv_long *wanted)
{
    static const char *const fields[] = { "method", "by", "chunk_tokens", "window_tokens", "stride",
                                          "spans",  NULL };
    static const char *const methods[] = { "window", "late", NULL };
    static const char *const kinds[] = { "tokens", "sentence", "spans", NULL };
    gpuserve_long_options *options = &wanted->options;

    options->method = UINT32_MAX;
    if (!gsv_option_known(exchange, object, "chunking", fields) ||
        !gsv_member_choice(exchange, object, "method", methods, &options->method) ||
        !gsv_member_choice(exchange, object, "by", kinds, &options->chunk_by) ||
        !read_number(exchange, object, "chunk_tokens", &options->chunk_tokens) ||
        !read_number(exchange, object, "window_tokens", &options->window_tokens) ||
        !read_number(exchange, object, "stride", &options->stride))
        return false;
    if (options->method == UINT32_MAX)
        return gsv_refuse(exchange, GSV_P_INVALID, "chunking",
                          "`chunking` has no `method`: \"window\" or \"late\"");
    wanted->spans = gsv_member_given(object, "spans");
    return true;
}

bool gsv_long_read(struct gsv_exchange *exchange, const json_t *object, struct gsv_long *wanted)
{
    const gpuserve_long_options none = GPUSERVE_LONG_OPTIONS_INIT;
    const json_t *chunking = gsv_member_given(object, "chunking");

    *wanted = (struct gsv_long){ .options = none };
    if (!gsv_member_flag(exchange, object, "late_chunking", &wanted->is_joined))
        return false;
    wanted->is_asked = wanted->is_joined || chunking;
    if (!wanted->is_asked)
        return true;
    if (wanted->is_joined && chunking)
        return gsv_refuse(exchange, GSV_P_INVALID, "late_chunking",
                          "`late_chunking` and `chunking` exclude each other");
    if (!wanted->is_joined)
        return read_chunking(exchange, chunking, wanted);
    wanted->options.method = GPUSERVE_LONG_LATE;
    wanted->options.chunk_by = GPUSERVE_CHUNK_BY_SPANS;
    return true;
}

/* --------------------------------------------------------------------------------------- spans */

static bool refuse_spans(struct gsv_exchange *exchange, size_t text, size_t i)
{
    return gsv_refuse(exchange, GSV_P_INVALID, "chunking",
                      "`chunking.spans`: span %zu of input %zu is not a list of two byte offsets, "
                      "[begin, end]",
                      i, text);
}

static bool read_span(const json_t *value, gpuserve_span *span)
{
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);

    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(begin) > UINT32_MAX ||
        json_integer_value(end) < 0 || json_integer_value(end) > UINT32_MAX)
        return false;
    *span =
        (gpuserve_span){ (uint32_t)json_integer_value(begin), (uint32_t)json_integer_value(end) };
    return true;
}

/* The spans of input `text` of `n`: the list itself if it holds the spans of one input. */
static const json_t *spans_of(const json_t *spans, size_t text, size_t n)
{
    const json_t *first = json_array_get(spans, 0);

    return n == 1 && !json_is_array(json_array_get(first, 0)) ? spans : json_array_get(spans, text);
}

static bool read_spans(struct gsv_exchange *exchange, struct gsv_long *wanted, size_t n_texts)
{
    size_t *offsets = gsv_exchange_alloc(exchange, n_texts + 1, sizeof(*offsets));
    gpuserve_span *spans;

    if (!offsets)
        return false;
    for (size_t i = 0; i < n_texts; i++) {
        const json_t *list = spans_of(wanted->spans, i, n_texts);

        if (!json_is_array(list))
            return gsv_refuse(exchange, GSV_P_INVALID, "chunking",
                              "`chunking.spans` is not a list of spans for each of the %zu inputs",
                              n_texts);
        offsets[i + 1] = offsets[i] + json_array_size(list);
    }
    spans = gsv_exchange_alloc(exchange, offsets[n_texts] + 1, sizeof(*spans));
    if (!spans)
        return false;
    for (size_t i = 0; i < n_texts; i++) {
        const json_t *list = spans_of(wanted->spans, i, n_texts);

        for (size_t j = 0; j < json_array_size(list); j++)
            if (!read_span(json_array_get(list, j), &spans[offsets[i] + j]))
                return refuse_spans(exchange, i, j);
    }
    wanted->options.spans = spans;
    wanted->options.span_offsets = offsets;
    return true;
}

static bool is_blank_byte(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Inputs are separated by a blank, unless they have one there. */
static bool needs_blank(const struct gsv_inputs *inputs, size_t i)
{
    const char *before = i > 0 ? inputs->texts[i - 1] : NULL;

    return before && inputs->sizes[i - 1] > 0 && inputs->sizes[i] > 0 &&
           !is_blank_byte(before[inputs->sizes[i - 1] - 1]) && !is_blank_byte(inputs->texts[i][0]);
}

/* One text of all inputs, each a span. */
static bool join(struct gsv_exchange *exchange, struct gsv_long *wanted, struct gsv_inputs *inputs)
{
    const size_t n = inputs->n;
    gpuserve_span *spans = gsv_exchange_alloc(exchange, n, sizeof(*spans));
    size_t *offsets = gsv_exchange_alloc(exchange, 2, sizeof(*offsets));
    struct gsv_inputs one;
    size_t size = 0;
    char *text;

    for (size_t i = 0; i < n; i++)
        size += inputs->sizes[i] + needs_blank(inputs, i);
    if (size > GPUSERVE_LONG_TEXT_BYTES)
        return gsv_refuse(exchange, GSV_P_TOO_LARGE, "input",
                          "`input` has %zu bytes together, the limit of `late_chunking` is %d",
                          size, GPUSERVE_LONG_TEXT_BYTES);
    text = gsv_exchange_alloc(exchange, size + 1, 1);
    if (!spans || !offsets || !text || !gsv_inputs_make(exchange, 1, false, &one))
        return false;
    size = 0;
    for (size_t i = 0; i < n; i++) {
        if (needs_blank(inputs, i))
            text[size++] = ' ';
        spans[i].begin = (uint32_t)size;
        memcpy(text + size, inputs->texts[i], inputs->sizes[i]);
        size += inputs->sizes[i];
        spans[i].end = (uint32_t)size;
    }
    offsets[1] = n;
    gsv_inputs_set(&one, 0, text, size);
    *inputs = one;
    wanted->options.spans = spans;
    wanted->options.span_offsets = offsets;
    return true;
}

/* --------------------------------------------------------------------------------------- start */

static void on_block(struct gsv_exchange *exchange);

/* Submits the next block of windows, or finishes with the vectors as the rows of the call. */
static bool advance(struct gsv_exchange *exchange)
{
    struct gsv_long *wanted = exchange->long_wanted;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = wanted->how;
    gpuserve_long_result result = GPUSERVE_LONG_RESULT_INIT;
    gpuserve_status st = gpuserve_long_texts_next(exchange->long_texts, &job, &error);

    if (st != GPUSERVE_OK)
        return gsv_refuse_error(exchange, st, &error);
    if (job.n_items > 0)
        return gsv_call_submit(exchange, &job, on_block);
    st = gpuserve_long_texts_result(exchange->long_texts, &result, &error);
    if (st != GPUSERVE_OK)
        return gsv_refuse_error(exchange, st, &error);
    wanted->chunks = result.chunks;
    wanted->n_chunks = result.n_chunks;
    exchange->work.job.n_items = result.n_vectors;
    exchange->work.job.output = (float *)(uintptr_t)result.vectors;
    exchange->work.columns = result.dim;
    wanted->finish(exchange);
    return true;
}

static void on_block(struct gsv_exchange *exchange)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status st = gpuserve_long_texts_take(exchange->long_texts, &error);

    if (st != GPUSERVE_OK)
        gsv_refuse_error(exchange, st, &error);
    else
        advance(exchange);
}

/* An invalid option is an invalid field of the request. */
static bool refuse_chunking(struct gsv_exchange *exchange, gpuserve_status st,
                            const gpuserve_error *error)
{
    const char *name = exchange->long_wanted->is_joined ? "late_chunking" : "chunking";

    if (st == GPUSERVE_E_INVALID)
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s`: %s", name, error->message);
    if (st == GPUSERVE_E_TOO_LARGE)
        return gsv_refuse(exchange, GSV_P_TOO_LARGE, name, "`%s`: %s", name, error->message);
    return gsv_refuse_error(exchange, st, error);
}

static bool create(struct gsv_exchange *exchange)
{
    struct gsv_long *wanted = exchange->long_wanted;
    const struct gsv_inputs *inputs = &wanted->inputs;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_long_result result = GPUSERVE_LONG_RESULT_INIT;
    gpuserve_status st =
        gpuserve_long_texts_create(&exchange->long_texts, exchange->served->model, inputs->texts,
                                   inputs->sizes, inputs->n, &wanted->options, &error);

    if (st == GPUSERVE_OK)
        st = gpuserve_long_texts_result(exchange->long_texts, &result, &error);
    if (st != GPUSERVE_OK)
        return refuse_chunking(exchange, st, &error);
    if (!gsv_call_check_reply(exchange, result.n_vectors, result.dim))
        return false;
    exchange->usage.n_characters += inputs->n_characters;
    return advance(exchange);
}

bool gsv_long_start(struct gsv_exchange *exchange, struct gsv_long *wanted,
                    struct gsv_compact *compact, const gpuserve_job *job,
                    const struct gsv_inputs *inputs, gsv_handler finish)
{
    wanted->how = *job;
    wanted->inputs = *inputs;
    wanted->finish = finish;
    wanted->options.dimensions = job->dimensions;
    wanted->options.normalize = job->normalize;
    wanted->options.prompt_name = job->prompt_name;
    wanted->options.prompt = job->prompt;
    exchange->long_wanted = wanted;
    if (wanted->is_joined) {
        if (!join(exchange, wanted, &wanted->inputs))
            return false;
    } else if (wanted->spans && !read_spans(exchange, wanted, inputs->n)) {
        return false;
    }
    return gsv_compact_calibrate(exchange, compact, job, create);
}

/* --------------------------------------------------------------------------------------- reply */

void gsv_put_chunks(struct gsv_exchange *exchange, const struct gsv_long *wanted, size_t i,
                    size_t *at)
{
    struct gsv_buffer *to = &exchange->reply;
    const gpuserve_chunk *chunks = wanted->chunks;
    const char *comma = "";

    if (!wanted->is_asked || wanted->is_joined)
        return;
    if (wanted->options.method == GPUSERVE_LONG_LATE) {
        gsv_buffer_format(to, ",\"input\":%u,\"span\":[%u,%u],\"tokens\":%u", chunks[i].text,
                          chunks[i].begin, chunks[i].end, chunks[i].n_tokens);
        return;
    }
    gsv_buffer_text(to, ",\"spans\":[");
    for (; *at < wanted->n_chunks && chunks[*at].row == i; ++*at, comma = ",")
        gsv_buffer_format(to, "%s[%u,%u]", comma, chunks[*at].begin, chunks[*at].end);
    gsv_buffer_text(to, "]");
}
