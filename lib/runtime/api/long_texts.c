/*
 * long_texts.c - public calls for texts over the token limit: options, tokenization, blocking run.
 *
 *   create: texts -> token ids (whole text, with prompt) -> chunks and windows
 *   run:    next -> gpuserve_run -> take, until all windows are computed
 *
 * The ids of all texts are kept in one array. A text's own tokens are those behind the special
 * tokens and the prompt; a token that joins the end of the prompt with the begin of the text is the
 * text's. The model is pinned only while texts are tokenized; jobs name its fingerprint, so windows
 * of two models never meet.
 */
#include "lib/runtime/api/long_texts.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/api/job_fields.h"
#include "lib/runtime/models/handle.h"
#include "lib/runtime/plan/load_plan.h"

#include <stdio.h>
#include <string.h>

/* Model, prompt and buffers of the tokenization of a call's texts. */
struct tokenizing {
    struct gsv_model *model; /* pinned */
    const char *prompt;      /* or NULL */
    size_t prompt_bytes;
    int32_t skip; /* leading ids that pooling leaves out */
    char *joined; /* prompt and text */
    size_t joined_capacity;
    struct gsv_encoding encoding;
};

/* ------------------------------------------------------------------------------------- options */

static gpuserve_status check_number(const char *name, uint32_t value, uint32_t last,
                                    gpuserve_error *error)
{
    return value <= last ? GPUSERVE_OK
                         : gsv_fail(error, GPUSERVE_E_INVALID, "%s is %u, outside 0 to %u", name,
                                    value, last);
}

static gpuserve_status check_late(const gpuserve_long_options *o, gpuserve_error *error)
{
    const bool is_late = o->method == GPUSERVE_LONG_LATE;
    const bool has_spans = o->chunk_by == GPUSERVE_CHUNK_BY_SPANS;

    if (!is_late && (o->chunk_by || o->chunk_tokens || o->spans || o->span_offsets))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "chunk_by, chunk_tokens and spans need the method LATE");
    if (has_spans && (!o->spans || !o->span_offsets))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "chunk_by is BY_SPANS, but `spans` or `span_offsets` is NULL");
    if (!has_spans && (o->spans || o->span_offsets))
        return gsv_fail(error, GPUSERVE_E_INVALID, "`spans` needs chunk_by BY_SPANS");
    if (has_spans && o->chunk_tokens)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "chunk_tokens is %u, but the chunks are given by `spans`", o->chunk_tokens);
    return GPUSERVE_OK;
}

static gpuserve_status check_offsets(const gpuserve_long_options *o, size_t n_texts,
                                     gpuserve_error *error)
{
    for (size_t i = 0; o->span_offsets && i < n_texts; i++)
        if (o->span_offsets[i + 1] < o->span_offsets[i])
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "span_offsets must not decrease: text %zu begins at %zu and ends at "
                            "%zu",
                            i, o->span_offsets[i], o->span_offsets[i + 1]);
    return GPUSERVE_OK;
}

static gpuserve_status check_options(const gpuserve_long_options *o, size_t n_texts,
                                     gpuserve_error *error)
{
    gpuserve_status st = check_number("method", o->method, GPUSERVE_LONG_LATE, error);

    if (st == GPUSERVE_OK)
        st = check_number("chunk_by", o->chunk_by, GPUSERVE_CHUNK_BY_SPANS, error);
    if (st == GPUSERVE_OK)
        st = check_number("normalize", o->normalize, GPUSERVE_NORMALIZE_WHOLE, error);
    if (st == GPUSERVE_OK)
        st = check_late(o, error);
    if (st == GPUSERVE_OK)
        st = check_offsets(o, n_texts, error);
    if (st == GPUSERVE_OK && o->prompt && o->prompt_name)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`prompt` and `prompt_name` are both set");
    return st;
}

/* Check the options that depend on the model, and set the defaults. */
static gpuserve_status check_model(struct gpuserve_long_texts *lt, const struct gsv_plan *plan,
                                   gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = plan->facts;
    gpuserve_long_options *o = &lt->options;

    if (facts->dim == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "the model makes no embeddings");
    if (gsv_is_late(lt) && !facts->is_token_mean) {
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                 "late chunking averages token vectors: the model's embedding is not their mean, "
                 "or has modules after it");
        return gsv_hint(error, GPUSERVE_E_UNSUPPORTED,
                        "use the method WINDOWS, or open the model with mean pooling");
    }
    if (o->window_tokens > (uint32_t)plan->max_tokens)
        return gsv_fail(error, GPUSERVE_E_INVALID, "window_tokens is %u, the model's limit is %d",
                        o->window_tokens, plan->max_tokens);
    if (o->dimensions > (uint32_t)facts->dim)
        return gsv_fail(error, GPUSERVE_E_INVALID, "dimensions is %u, the model has %d dimensions",
                        o->dimensions, facts->dim);
    if (o->window_tokens == 0)
        o->window_tokens = (uint32_t)plan->max_tokens;
    lt->dim = (size_t)facts->dim;
    lt->columns = o->dimensions ? o->dimensions : lt->dim;
    lt->normalize =
        o->normalize == GPUSERVE_NORMALIZE_DEFAULT || o->normalize == GPUSERVE_NORMALIZE_WHOLE
            ? facts->normalize
            : o->normalize == GPUSERVE_NORMALIZE_YES;
    return GPUSERVE_OK;
}

/* Choose the prompt as a job does. */
static gpuserve_status choose_prompt(struct gpuserve_long_texts *lt, struct tokenizing *t,
                                     gpuserve_error *error)
{
    const struct gsv_plan *plan = &t->model->plan;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    int32_t adapter = 0;
    gpuserve_status st;

    job.prompt = lt->prompt;
    job.prompt_name = lt->prompt_name;
    st = gsv_prompt_of(plan, &job, &t->prompt, &adapter, error);
    t->prompt_bytes = st == GPUSERVE_OK && t->prompt ? strlen(t->prompt) : 0;
    if (st == GPUSERVE_OK && t->prompt_bytes > GPUSERVE_LONG_TEXT_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the prompt has %zu bytes, the limit is %d",
                        t->prompt_bytes, GPUSERVE_LONG_TEXT_BYTES);
    if (st == GPUSERVE_OK && plan->facts->skips_prompt && t->prompt)
        st = gsv_prompt_tokens(t->model, t->prompt, &t->skip, error);
    return st;
}

/* -------------------------------------------------------------------------------- tokenization */

static gpuserve_status encode(struct tokenizing *t, const char *text, size_t size,
                              gpuserve_error *error)
{
    const struct gsv_encode_options how = { 0 };

    if (t->prompt_bytes > 0) {
        if (!gsv_grow((void **)&t->joined, &t->joined_capacity, t->prompt_bytes + size, 1,
                      SIZE_MAX))
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a prompt and its text");
        memcpy(t->joined, t->prompt, t->prompt_bytes);
        memcpy(t->joined + t->prompt_bytes, text, size);
        text = t->joined;
        size += t->prompt_bytes;
    }
    return gsv_tokenizer_encode(t->model->plan.tokenizer, &t->encoding, text, size, NULL, 0, &how,
                                error);
}

/* Jobs of token ids have token type 0 only. */
static gpuserve_status check_types(const struct tokenizing *t, gpuserve_error *error)
{
    for (size_t i = 0; t->model->plan.facts->type_vocab_size > 1 && i < t->encoding.n; i++)
        if (t->encoding.type_ids[i] != 0)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "the tokenizer gives token %zu of a single text the type %u", i,
                            t->encoding.type_ids[i]);
    return GPUSERVE_OK;
}

/* Divide the ids of an encoding into those before the text, its own, and those after it. */
static void divide(const struct tokenizing *t, struct gsv_long_text *text)
{
    const struct gsv_encoding *encoding = &t->encoding;
    size_t n_special = 0, end;

    gsv_tokenizer_special_ids(t->model->plan.tokenizer, &text->n_before, &n_special);
    if (n_special > encoding->n) {
        text->n_before = encoding->n;
        return;
    }
    text->n_after = n_special - text->n_before;
    end = encoding->n - text->n_after;
    while (text->n_before < end && t->prompt_bytes > 0 &&
           encoding->spans[text->n_before].begin < t->prompt_bytes &&
           encoding->spans[text->n_before].end <= t->prompt_bytes)
        text->n_before++;
    text->n_own = end - text->n_before;
}

static gpuserve_status keep_ids(struct gpuserve_long_texts *lt, const struct tokenizing *t,
                                struct gsv_long_text *text, gpuserve_error *error)
{
    const int32_t empty_id = t->model->plan.facts->empty_id;
    const size_t n = t->encoding.n > 0 ? t->encoding.n : 1;

    if (t->encoding.n == 0 && empty_id <= 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the text has no tokens");
    if (!gsv_grow((void **)&lt->ids, &lt->ids_capacity, lt->n_ids + n, sizeof(*lt->ids), SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for token ids");
    text->first = lt->n_ids;
    if (t->encoding.n == 0) {
        lt->ids[lt->n_ids++] = empty_id;
        text->n_before = 1;
        return GPUSERVE_OK;
    }
    memcpy(lt->ids + lt->n_ids, t->encoding.ids, n * sizeof(*lt->ids));
    lt->n_ids += n;
    divide(t, text);
    return GPUSERVE_OK;
}

static gpuserve_status cut_text(struct gpuserve_long_texts *lt, struct tokenizing *t, size_t i,
                                const char *text, size_t size, gpuserve_error *error)
{
    struct gsv_long_cut cut = { .text = text,
                                .size = size,
                                .index = i,
                                .prompt_bytes = t->prompt_bytes,
                                .skip = (size_t)t->skip };
    gpuserve_status st;

    if (size > GPUSERVE_LONG_TEXT_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the text has %zu bytes, the limit is %d",
                        size, GPUSERVE_LONG_TEXT_BYTES);
    st = encode(t, text, size, error);
    if (st == GPUSERVE_OK)
        st = check_types(t, error);
    if (st == GPUSERVE_OK)
        st = keep_ids(lt, t, &lt->texts[i], error);
    if (st == GPUSERVE_OK) {
        cut.spans = t->encoding.n > 0 ? t->encoding.spans + lt->texts[i].n_before : NULL;
        st = gsv_long_cut_windows(lt, &cut, error);
    }
    if (st == GPUSERVE_OK && gsv_is_late(lt))
        st = gsv_long_cut_chunks(lt, &cut, error);
    return st;
}

static gpuserve_status cut_texts(struct gpuserve_long_texts *lt, struct tokenizing *t,
                                 const char *const *texts, const size_t *sizes,
                                 gpuserve_error *error)
{
    gpuserve_status st = check_model(lt, &t->model->plan, error);

    if (st == GPUSERVE_OK)
        st = choose_prompt(lt, t, error);
    for (size_t i = 0; i < lt->n_texts && st == GPUSERVE_OK; i++) {
        if (!texts[i]) {
            st = gsv_fail(error, GPUSERVE_E_INVALID, "it is NULL");
        } else {
            const size_t size = sizes ? sizes[i] : strlen(texts[i]);

            st = cut_text(lt, t, i, texts[i], size, error);
        }
        if (st != GPUSERVE_OK)
            gsv_fail_in(error, st, "text %zu", i);
    }
    return st == GPUSERVE_OK ? gsv_long_make_rows(lt, error) : st;
}

/* ------------------------------------------------------------------------------ create and free */

static char *copy_of(const char *text, bool *good)
{
    char *copy = text ? gsv_copy_text(text, strlen(text)) : NULL;

    *good = *good && (!text || copy);
    return copy;
}

static gpuserve_status create(struct gpuserve_long_texts *lt, gpuserve_model *handle,
                              const char *const *texts, const size_t *sizes, gpuserve_error *error)
{
    struct tokenizing t = { 0 };
    gpuserve_status st = gsv_handle_pin(handle, &t.model, error);

    if (st != GPUSERVE_OK)
        return st;
    snprintf(lt->fingerprint, sizeof(lt->fingerprint), "%s", t.model->fingerprint);
    st = cut_texts(lt, &t, texts, sizes, error);
    lt->options.spans = NULL; /* the caller's: not after the call */
    lt->options.span_offsets = NULL;
    gsv_encoding_reset(&t.encoding);
    free(t.joined);
    gsv_handle_unpin(handle, &t.model);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_long_texts_create(gpuserve_long_texts **out,
                                                        gpuserve_model *model,
                                                        const char *const *texts,
                                                        const size_t *text_sizes, size_t n_texts,
                                                        const gpuserve_long_options *given,
                                                        gpuserve_error *error)
{
    gpuserve_long_options options;
    gpuserve_long_texts *lt = NULL;
    bool good = true;
    gpuserve_status st;

    if (!out)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`long_texts` is NULL");
    *out = NULL;
    st = gsv_handle_check(model, error);
    if (st == GPUSERVE_OK)
        st = gsv_read_struct(&options, sizeof(options), given, "gpuserve_long_options", error);
    if (st == GPUSERVE_OK && n_texts > 0 && !texts)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`texts` is NULL");
    if (st == GPUSERVE_OK && n_texts > GPUSERVE_LONG_TEXT_CHUNKS)
        st = gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the call has %zu texts, the limit is %d",
                      n_texts, GPUSERVE_LONG_TEXT_CHUNKS);
    if (st == GPUSERVE_OK)
        st = check_options(&options, n_texts, error);
    if (st != GPUSERVE_OK)
        return st;
    lt = gsv_alloc_array(1, sizeof(*lt));
    if (lt) {
        lt->options = options;
        lt->n_texts = n_texts;
        lt->prompt_name = copy_of(options.prompt_name, &good);
        lt->prompt = copy_of(options.prompt, &good);
        lt->texts = gsv_alloc_array(n_texts, sizeof(*lt->texts));
        good = good && lt->texts;
    }
    st = lt && good ? create(lt, model, texts, text_sizes, error)
                    : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu texts", n_texts);
    if (st != GPUSERVE_OK)
        gpuserve_long_texts_free(&lt);
    *out = lt;
    return st;
}

GPUSERVE_API void gpuserve_long_texts_free(gpuserve_long_texts **long_texts)
{
    gpuserve_long_texts *lt = long_texts ? *long_texts : NULL;

    if (!lt)
        return;
    free(lt->prompt_name);
    free(lt->prompt);
    free(lt->texts);
    free(lt->ids);
    free(lt->chunk_of);
    free(lt->chunks);
    free(lt->rows);
    free(lt->sum);
    free(lt->block.ids);
    free(lt->block.offsets);
    free(lt->block.output);
    free(lt);
    *long_texts = NULL;
}

/* -------------------------------------------------------------------------------------- result */

GPUSERVE_API gpuserve_status gpuserve_long_texts_result(const gpuserve_long_texts *lt,
                                                        gpuserve_long_result *result,
                                                        gpuserve_error *error)
{
    gpuserve_long_result found = GPUSERVE_LONG_RESULT_INIT;

    if (!lt)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`long_texts` is NULL");
    found.chunks = lt->chunks;
    found.n_chunks = lt->n_chunks;
    found.vectors = lt->is_complete ? lt->rows : NULL;
    found.n_vectors = lt->n_rows;
    found.dim = lt->columns;
    return gsv_write_struct(result, &found, sizeof(found), "gpuserve_long_result", error);
}

/* ----------------------------------------------------------------------------------------- run */

static void add_result(gpuserve_result *sum, const gpuserve_result *one)
{
    sum->dtype = one->dtype;
    sum->n_tokens += one->n_tokens;
    sum->n_cached += one->n_cached;
    sum->tokenize_us += one->tokenize_us;
    sum->queue_us += one->queue_us;
    sum->compute_us += one->compute_us;
    memcpy(sum->device, one->device, sizeof(sum->device));
    memcpy(sum->fingerprint, one->fingerprint, sizeof(sum->fingerprint));
}

static gpuserve_status run(gpuserve_long_texts *lt, gpuserve_model *model,
                           const gpuserve_job *settings, gpuserve_result *sum,
                           gpuserve_error *error)
{
    const uint64_t begin_ns = gsv_now_ns();
    gpuserve_status st = GPUSERVE_OK;

    while (st == GPUSERVE_OK && !lt->is_complete) {
        gpuserve_job job = GPUSERVE_JOB_INIT;
        gpuserve_result result = GPUSERVE_RESULT_INIT;

        job.priority = settings->priority;
        job.cache = settings->cache;
        job.client = settings->client;
        job.expected_fingerprint = settings->expected_fingerprint;
        job.deadline_us = gsv_deadline_left_us(settings->deadline_us, begin_ns);
        job.result = &result;
        st = gpuserve_long_texts_next(lt, &job, error);
        if (st == GPUSERVE_OK)
            st = gpuserve_run(model, &job, error);
        if (st == GPUSERVE_OK) {
            add_result(sum, &result);
            st = gpuserve_long_texts_take(lt, error);
        }
    }
    sum->total_us = (gsv_now_ns() - begin_ns) / 1000;
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_long_texts_run(gpuserve_long_texts *lt, gpuserve_model *model,
                                                     const gpuserve_job *job, gpuserve_error *error)
{
    gpuserve_result sum = GPUSERVE_RESULT_INIT;
    gpuserve_job settings;
    gpuserve_status st = gsv_handle_check(model, error);

    if (st == GPUSERVE_OK)
        st = gsv_read_job_options(&settings, job, GSV_JOB_ALL, "gpuserve_long_texts_run", error);
    if (st == GPUSERVE_OK && settings.result)
        st = gsv_check_struct(settings.result, sizeof(sum), "gpuserve_result", error);
    if (st == GPUSERVE_OK && !lt)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`long_texts` is NULL");
    if (st == GPUSERVE_OK)
        st = run(lt, model, &settings, &sum, error);
    if (st == GPUSERVE_OK && settings.result) {
        sum.struct_size = settings.result->struct_size;
        *settings.result = sum;
    }
    return st;
}
