/*
 * long_windows.c - windows of long texts as jobs of token ids, and the vectors from their rows.
 *
 *   gsv_long_cut_windows -> next: a block of windows as a job -> take: rows into sums -> vectors
 *
 * Windows are computed and taken in order, so one sum in float64 is open at a time: that of a text
 * (windows) or of a chunk (late chunking). It is written when the next one begins. A block is
 * bounded in tokens and in output, so memory does not grow with the texts.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/api/long_texts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BLOCK_TOKENS 65536u
#define MAX_BLOCK_FLOATS ((size_t)1 << 22)
#define LATE_OVERLAP 256 /* default: tokens that adjacent windows of late chunking share */
#define MIN_STRIDES 8    /* a text's token is in at most so many windows */

/* ------------------------------------------------------------------------------------- windows */

static gpuserve_status check_windows(const struct gpuserve_long_texts *lt,
                                     const struct gsv_long_text *text, gpuserve_error *error)
{
    const size_t around = text->n_before + text->n_after, stride = lt->options.stride;
    const uint32_t tokens = lt->options.window_tokens;
    const bool is_cut = text->n_windows > 1;

    if (around + (text->n_own > 0) > tokens || (is_cut && text->capacity < around))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "window_tokens is %u, of which prompt and special tokens take %zu: at "
                        "least half must be left for the text",
                        tokens, around);
    if (stride > text->capacity)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "stride is %zu, more than the %zu tokens of the text in a window of %u",
                        stride, text->capacity, tokens);
    if (is_cut && stride > 0 && stride < (text->capacity + MIN_STRIDES - 1) / MIN_STRIDES)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "stride is %zu, less than an eighth of the %zu tokens of the text in a "
                        "window",
                        stride, text->capacity);
    return GPUSERVE_OK;
}

static size_t default_stride(const struct gpuserve_long_texts *lt, size_t capacity)
{
    const size_t overlap = capacity / 4 < LATE_OVERLAP ? capacity / 4 : LATE_OVERLAP;

    return gsv_is_late(lt) ? capacity - overlap : capacity;
}

static struct gsv_window window_at(const struct gsv_long_text *text, size_t i)
{
    struct gsv_window window = { .begin = i * text->stride };
    const size_t left = text->n_own - window.begin;

    window.end = left < text->capacity ? text->n_own : window.begin + text->capacity;
    return window;
}

/* The first token taken from window i: the tokens that it shares with the window before are halved,
 * the middle one goes to the earlier window. */
static size_t taken_from(const struct gsv_long_text *text, size_t i)
{
    const size_t begin = window_at(text, i).begin;
    size_t shared_end;

    if (i == 0)
        return 0;
    shared_end = window_at(text, i - 1).end;
    return begin + (shared_end - begin + 1) / 2;
}

static struct gsv_window taken_window(const struct gsv_long_text *text, size_t i)
{
    struct gsv_window window = window_at(text, i);

    window.taken_begin = taken_from(text, i);
    window.taken_end = i + 1 < text->n_windows ? taken_from(text, i + 1) : text->n_own;
    return window;
}

gpuserve_status gsv_long_cut_windows(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                     gpuserve_error *error)
{
    struct gsv_long_text *text = &lt->texts[cut->index];
    const size_t around = text->n_before + text->n_after;
    gpuserve_status st;

    text->capacity = lt->options.window_tokens > around ? lt->options.window_tokens - around : 0;
    text->n_windows = text->n_own > text->capacity ? 2 : 1; /* at least */
    st = check_windows(lt, text, error);
    if (st != GPUSERVE_OK)
        return st;
    text->stride = lt->options.stride ? lt->options.stride : default_stride(lt, text->capacity);
    if (text->n_windows > 1)
        text->n_windows = 1 + (text->n_own - text->capacity + text->stride - 1) / text->stride;
    for (size_t i = 0; i < text->n_windows && !gsv_is_late(lt) && st == GPUSERVE_OK; i++) {
        const struct gsv_window window = window_at(text, i);
        gpuserve_span span = { 0, 0 };

        if (window.end > window.begin)
            span = (gpuserve_span){ gsv_long_span(cut, window.begin).begin,
                                    gsv_long_span(cut, window.end - 1).end };
        st = gsv_long_add_chunk(lt, cut, span, window.end - window.begin, error);
    }
    return st;
}

gpuserve_status gsv_long_make_rows(struct gpuserve_long_texts *lt, gpuserve_error *error)
{
    size_t n = 0;

    lt->n_rows = gsv_is_late(lt) ? lt->n_chunks : lt->n_texts;
    if (gsv_mul_size(lt->n_rows, lt->dim, &n))
        lt->rows = gsv_alloc_array(n, sizeof(*lt->rows));
    lt->sum = gsv_alloc_array(lt->dim, sizeof(*lt->sum));
    lt->is_complete = lt->n_texts == 0;
    return lt->rows && lt->sum
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu vectors of %zu floats",
                          lt->n_rows, lt->dim);
}

/* ---------------------------------------------------------------------------------------- next */

/* The position of a window: text and number. */
static void step(const struct gpuserve_long_texts *lt, size_t *text, size_t *window)
{
    if (++*window < lt->texts[*text].n_windows)
        return;
    *window = 0;
    ++*text;
}

static size_t ids_of(const struct gsv_long_text *text, const struct gsv_window *window)
{
    return text->n_before + (window->end - window->begin) + text->n_after;
}

/* Count the windows of the next block, with their ids and floats of output. */
static void measure(const struct gpuserve_long_texts *lt, struct gsv_long_block *block,
                    size_t *n_ids)
{
    size_t text = lt->text, window = lt->window;

    block->n = block->output_floats = *n_ids = 0;
    while (text < lt->n_texts) {
        const struct gsv_window range = window_at(&lt->texts[text], window);
        const size_t n = ids_of(&lt->texts[text], &range);
        const size_t floats = (gsv_is_late(lt) ? n : 1) * lt->dim;

        if (block->n > 0 &&
            (*n_ids + n > MAX_BLOCK_TOKENS || block->output_floats + floats > MAX_BLOCK_FLOATS))
            return;
        *n_ids += n;
        block->output_floats += floats;
        block->n++;
        step(lt, &text, &window);
    }
}

static void copy_ids(const struct gpuserve_long_texts *lt, struct gsv_long_block *block)
{
    size_t text = lt->text, window = lt->window, at = 0;

    for (size_t i = 0; i < block->n; i++) {
        const struct gsv_long_text *t = &lt->texts[text];
        const struct gsv_window range = window_at(t, window);
        const size_t n = range.end - range.begin;
        const int32_t *own = lt->ids + t->first + t->n_before;

        block->offsets[i] = at;
        memcpy(block->ids + at, lt->ids + t->first, t->n_before * sizeof(*block->ids));
        at += t->n_before;
        memcpy(block->ids + at, own + range.begin, n * sizeof(*block->ids));
        at += n;
        memcpy(block->ids + at, own + t->n_own, t->n_after * sizeof(*block->ids));
        at += t->n_after;
        step(lt, &text, &window);
    }
    block->offsets[block->n] = at;
}

static gpuserve_status make_block(struct gpuserve_long_texts *lt, gpuserve_error *error)
{
    struct gsv_long_block *block = &lt->block;
    size_t n_ids;

    measure(lt, block, &n_ids);
    if (!gsv_grow((void **)&block->ids, &block->ids_capacity, n_ids, sizeof(*block->ids),
                  SIZE_MAX) ||
        !gsv_grow((void **)&block->offsets, &block->offsets_capacity, block->n + 1,
                  sizeof(*block->offsets), SIZE_MAX) ||
        !gsv_grow((void **)&block->output, &block->output_capacity, block->output_floats,
                  sizeof(*block->output), SIZE_MAX)) {
        block->n = 0;
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu tokens of windows", n_ids);
    }
    copy_ids(lt, block);
    return GPUSERVE_OK;
}

static void fill_job(const struct gpuserve_long_texts *lt, gpuserve_job *job)
{
    const struct gsv_long_block *block = &lt->block;

    job->task = gsv_is_late(lt) ? GPUSERVE_TASK_TOKEN_VECTORS : GPUSERVE_TASK_EMBED;
    job->n_items = block->n;
    job->texts = job->pairs = NULL;
    job->text_sizes = job->pair_sizes = NULL;
    job->ids = block->n > 0 ? block->ids : NULL;
    job->id_offsets = block->n > 0 ? block->offsets : NULL;
    job->prompt_name = lt->prompt_name;
    job->prompt = lt->prompt;
    job->prompt_in_ids = block->n > 0;
    job->dimensions = 0;
    job->truncation = GPUSERVE_TRUNCATE_DEFAULT;
    job->normalize = gsv_is_late(lt) ? GPUSERVE_NORMALIZE_DEFAULT : GPUSERVE_NORMALIZE_NO;
    job->score = GPUSERVE_SCORE_DEFAULT;
    job->output = block->output;
    job->output_capacity = block->output_floats;
    job->output_stride = 0;
    job->items = NULL;
    job->token_offsets = NULL;
    if (!job->expected_fingerprint && lt->fingerprint[0])
        job->expected_fingerprint = lt->fingerprint;
}

GPUSERVE_API gpuserve_status gpuserve_long_texts_next(gpuserve_long_texts *lt, gpuserve_job *job,
                                                      gpuserve_error *error)
{
    gpuserve_status st = gsv_check_struct(job, sizeof(*job), "gpuserve_job", error);

    if (st != GPUSERVE_OK)
        return st;
    if (!lt)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`long_texts` is NULL");
    if (lt->block.n == 0) /* else the job that was not taken, again */
        st = make_block(lt, error);
    if (st == GPUSERVE_OK)
        fill_job(lt, job);
    return st;
}

/* ---------------------------------------------------------------------------------------- take */

/* Write the open sum to its row. */
static void close_sum(struct gpuserve_long_texts *lt)
{
    float *row = lt->rows + lt->open * lt->dim;

    for (size_t j = 0; j < lt->dim && lt->weight > 0; j++)
        row[j] = (float)(lt->sum[j] / lt->weight);
    memset(lt->sum, 0, lt->dim * sizeof(*lt->sum));
    lt->weight = 0;
}

static void add(struct gpuserve_long_texts *lt, size_t row, const float *vector, double weight)
{
    if (row != lt->open) {
        close_sum(lt);
        lt->open = row;
    }
    for (size_t j = 0; j < lt->dim; j++)
        lt->sum[j] += weight * (double)vector[j];
    lt->weight += weight;
}

/* Add the token vectors of a window to the sums of their chunks: `vectors` [ids of the window]. */
static void take_tokens(struct gpuserve_long_texts *lt, size_t text, size_t number,
                        const float *vectors)
{
    const struct gsv_long_text *t = &lt->texts[text];
    const struct gsv_window window = taken_window(t, number);
    const size_t n_own = window.end - window.begin, n = ids_of(t, &window);
    const bool is_last = number + 1 == t->n_windows;

    for (size_t j = 0; j < n; j++, vectors += lt->dim) {
        size_t id = j; /* of the text's ids */
        uint32_t chunk;

        if (j < t->n_before) {
            if (number > 0)
                continue;
        } else if (j < t->n_before + n_own) {
            const size_t own = window.begin + (j - t->n_before);

            if (own < window.taken_begin || own >= window.taken_end)
                continue;
            id = t->n_before + own;
        } else {
            if (!is_last)
                continue;
            id = j - n_own + t->n_own;
        }
        chunk = lt->chunk_of[t->first + id];
        if (chunk != GSV_NO_CHUNK)
            add(lt, chunk, vectors, 1.0);
    }
}

static void normalize_row(float *row, size_t n)
{
    double square = 0.0, length;

    for (size_t j = 0; j < n; j++)
        square += (double)row[j] * (double)row[j];
    length = fmax(sqrt(square), 1e-12);
    for (size_t j = 0; j < n; j++)
        row[j] = (float)((double)row[j] / length);
}

/* Cut the rows to their columns, in place, and normalize them. */
static void finish_rows(struct gpuserve_long_texts *lt)
{
    const bool whole = lt->options.normalize == GPUSERVE_NORMALIZE_WHOLE;

    close_sum(lt);
    for (size_t i = 0; i < lt->n_rows; i++) {
        float *to = lt->rows + i * lt->columns;

        if (lt->normalize && whole)
            normalize_row(lt->rows + i * lt->dim, lt->dim);
        if (lt->columns != lt->dim)
            memmove(to, lt->rows + i * lt->dim, lt->columns * sizeof(*to));
        if (lt->normalize && !whole)
            normalize_row(to, lt->columns);
    }
    lt->is_complete = true;
    free(lt->block.output);
    lt->block.output = NULL;
    lt->block.output_capacity = 0;
}

GPUSERVE_API gpuserve_status gpuserve_long_texts_take(gpuserve_long_texts *lt,
                                                      gpuserve_error *error)
{
    struct gsv_long_block *block = lt ? &lt->block : NULL;

    if (!lt || block->n == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "there is no job to take");
    for (size_t i = 0; i < block->n; i++) {
        const struct gsv_window window = window_at(&lt->texts[lt->text], lt->window);
        const size_t n = window.end - window.begin;

        if (gsv_is_late(lt))
            take_tokens(lt, lt->text, lt->window, block->output + block->offsets[i] * lt->dim);
        else
            add(lt, lt->text, block->output + i * lt->dim, n > 0 ? (double)n : 1.0);
        step(lt, &lt->text, &lt->window);
    }
    block->n = 0;
    if (lt->text == lt->n_texts)
        finish_rows(lt);
    return GPUSERVE_OK;
}
