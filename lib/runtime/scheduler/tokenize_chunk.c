/*
 * tokenize_chunk.c - tokenizes the items of a request and looks their rows up in the cache.
 *
 * The pool of encoders has one lock. An encoder belongs to one thread from gsv_encoder_acquire() to
 * gsv_encoder_release().
 */
#include "lib/runtime/scheduler/tokenize_chunk.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/model.h"
#include "lib/runtime/plan/load_plan.h"
#include "lib/runtime/scheduler/request.h"

#include <stdlib.h>
#include <string.h>

#define MAX_IDLE 64              /* maximum encoders in the pool */
#define MAX_IDLE_BYTES (1 << 20) /* maximum buffer of joined text that an idle encoder keeps */

/* ---------------------------------------------------------------------------------- encoders */

static void encoder_free(struct gsv_encoder *encoder)
{
    gsv_encoding_reset(&encoder->encoding);
    free(encoder->text);
    free(encoder);
}

void gsv_encoders_init(struct gsv_encoders *encoders)
{
    memset(encoders, 0, sizeof(*encoders));
    pthread_mutex_init(&encoders->lock, NULL);
}

void gsv_encoders_reset(struct gsv_encoders *encoders)
{
    while (encoders->idle) {
        struct gsv_encoder *encoder = encoders->idle;

        encoders->idle = encoder->next;
        encoder_free(encoder);
    }
    pthread_mutex_destroy(&encoders->lock);
}

struct gsv_encoder *gsv_encoder_acquire(struct gsv_encoders *encoders)
{
    struct gsv_encoder *encoder;

    pthread_mutex_lock(&encoders->lock);
    encoder = encoders->idle;
    if (encoder) {
        encoders->idle = encoder->next;
        encoders->n_idle--;
    }
    pthread_mutex_unlock(&encoders->lock);
    return encoder ? encoder : gsv_alloc_array(1, sizeof(*encoder));
}

void gsv_encoder_release(struct gsv_encoders *encoders, struct gsv_encoder *encoder)
{
    bool becomes_idle;

    if (encoder->capacity > MAX_IDLE_BYTES) {
        free(encoder->text);
        encoder->text = NULL;
        encoder->capacity = 0;
    }
    pthread_mutex_lock(&encoders->lock);
    becomes_idle = encoders->n_idle < MAX_IDLE;
    if (becomes_idle) {
        encoder->next = encoders->idle;
        encoders->idle = encoder;
        encoders->n_idle++;
    }
    pthread_mutex_unlock(&encoders->lock);
    if (!becomes_idle)
        encoder_free(encoder);
}

/* ------------------------------------------------------------------------------------ chunks */

/* Capacities of a chunk's arrays, which grow with its tokens. */
struct chunk_capacity {
    size_t ids, type_ids;
};

static gpuserve_status join_prompt(struct gsv_encoder *encoder, const char *prompt,
                                   const char **text, size_t *size, gpuserve_error *error)
{
    const size_t before = prompt ? strlen(prompt) : 0;

    if (before == 0)
        return GPUSERVE_OK;
    if (!gsv_grow((void **)&encoder->text, &encoder->capacity, before + *size, 1, SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a prompt and its text");
    memcpy(encoder->text, prompt, before);
    memcpy(encoder->text + before, *text, *size);
    *text = encoder->text;
    *size += before;
    return GPUSERVE_OK;
}

/* Write the tokens of a pair template around the tokens from ids[before] on. */
static void put_frame(const struct gsv_pair_frame *frame, int32_t *ids, size_t n_middle)
{
    if (!frame)
        return;
    memcpy(ids, frame->ids, frame->n_before * sizeof(*ids));
    memcpy(ids + frame->n_before + n_middle, frame->ids + frame->n_before,
           frame->n_after * sizeof(*ids));
}

void gsv_count_rows(const struct gsv_plan *plan, const gpuserve_request *request,
                    const struct gsv_chunk *chunk, struct gsv_item *item)
{
    item->n_rows = item->n_tokens;
    for (uint32_t i = 0; request->key.drops && i < item->n_tokens; i++)
        item->n_rows -= gsv_is_skipped(&plan->late, chunk->ids[item->offset + i]);
}

/* Fill a query of n tokens up to the length of the model. */
static void put_fill(const struct gsv_plan *plan, int32_t *ids, uint8_t *type_ids, size_t n,
                     size_t end)
{
    for (; n < end; n++) {
        ids[n] = plan->late.fill_id;
        type_ids[n] = plan->facts->late->attends ? 0 : GSV_NO_KEY;
    }
}

/* Append the tokens of an item, inside a frame unless that is NULL, and those that fill it up.
 * `text->type_ids` may be NULL: all zero. */
static gpuserve_status append(const struct gsv_model *model, const gpuserve_request *request,
                              struct gsv_chunk *chunk, struct chunk_capacity *capacity,
                              const struct gsv_encoding *text, const struct gsv_pair_frame *frame,
                              struct gsv_item *item, gpuserve_error *error)
{
    const size_t length = request->fills ? (size_t)model->plan.facts->late->length : 0;
    int32_t empty_id = model->plan.facts->empty_id;
    uint8_t empty_type = 0;
    struct gsv_encoding empty = { .ids = &empty_id, .type_ids = &empty_type, .n = 1 };
    const struct gsv_encoding *from = text->n == 0 && empty_id > 0 ? &empty : text;
    const size_t before = frame ? frame->n_before : 0;
    const size_t n = from->n + before + (frame ? frame->n_after : 0);
    const size_t end = n < length ? length : n, needed = chunk->n_tokens + end;
    gpuserve_status st;

    if (n == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the text has no tokens");
    if (!gsv_grow((void **)&chunk->ids, &capacity->ids, needed, sizeof(*chunk->ids), SIZE_MAX) ||
        !gsv_grow((void **)&chunk->type_ids, &capacity->type_ids, needed, 1, SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for tokens");
    memcpy(chunk->ids + chunk->n_tokens + before, from->ids, from->n * sizeof(*from->ids));
    put_frame(frame, chunk->ids + chunk->n_tokens, from->n);
    st = gsv_job_check_end(model->plan.facts, request->outputs.tasks, chunk->ids + chunk->n_tokens,
                           n, error);
    if (st != GPUSERVE_OK)
        return st;
    memset(chunk->type_ids + chunk->n_tokens, 0, n);
    /* A model with one token type has no embedding for a second one. */
    if (model->plan.facts->type_vocab_size > 1 && from->type_ids)
        memcpy(chunk->type_ids + chunk->n_tokens + before, from->type_ids, from->n);
    put_fill(&model->plan, chunk->ids + chunk->n_tokens, chunk->type_ids + chunk->n_tokens, n, end);
    item->offset = chunk->n_tokens;
    item->n_tokens = (uint32_t)end;
    item->truncated = from->truncated;
    gsv_count_rows(&model->plan, request, chunk, item);
    chunk->n_tokens = needed;
    return GPUSERVE_OK;
}

/* Tokenize a pair as the middle of the model's pair template. */
static gpuserve_status encode_middle(const struct gsv_model *model, struct gsv_encoder *encoder,
                                     const struct gsv_pair_middle *middle, uint32_t truncation,
                                     gpuserve_error *error)
{
    const struct gsv_pair_template *template = model->plan.facts->pair_template;
    const struct gsv_pair_frame *frame = &model->plan.frame;
    const struct gsv_encode_options options = {
        .max_tokens = (size_t)model->plan.max_tokens - frame->n_before - frame->n_after,
        .truncation = truncation,
        .no_special = true,
    };
    const size_t size = gsv_pair_middle_write(template, *middle, NULL);

    if (!gsv_grow((void **)&encoder->text, &encoder->capacity, size, 1, SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a pair in its template");
    gsv_pair_middle_write(template, *middle, encoder->text);
    return gsv_tokenizer_encode(model->plan.tokenizer, &encoder->encoding, encoder->text, size,
                                NULL, 0, &options, error);
}

static gpuserve_status encode_items(struct gsv_model *model, gpuserve_request *request,
                                    struct gsv_chunk *chunk, struct gsv_encoder *encoder,
                                    gpuserve_error *error)
{
    const struct gsv_encode_options options = {
        .max_tokens = (size_t)gsv_role_limit(&model->plan, request->role),
        .truncation = request->job.truncation,
    };
    const struct gsv_pair_frame *frame =
        gsv_uses_template(&model->plan, &request->job) ? &model->plan.frame : NULL;
    struct chunk_capacity capacity = { 0 };

    for (size_t i = chunk->first; i < chunk->end; i++) {
        struct gsv_pair_middle item = { .instruction = request->prompt };
        gpuserve_status st = GPUSERVE_OK;

        item.text = gsv_job_text(&request->job, i, &item.size);
        item.pair = gsv_job_pair(&request->job, i, &item.pair_size);
        if (frame)
            st = encode_middle(model, encoder, &item, options.truncation, error);
        else
            st = join_prompt(encoder, request->prompt, &item.text, &item.size, error);
        if (st == GPUSERVE_OK && !frame)
            st = gsv_tokenizer_encode(model->plan.tokenizer, &encoder->encoding, item.text,
                                      item.size, item.pair, item.pair_size, &options, error);
        if (st == GPUSERVE_OK)
            st = append(model, request, chunk, &capacity, &encoder->encoding, frame,
                        &request->items[i], error);
        if (st != GPUSERVE_OK)
            return gsv_fail_in(error, st, "item %zu", i);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_fill_ids(const struct gsv_model *model, gpuserve_request *request,
                             struct gsv_chunk *chunk, gpuserve_error *error)
{
    const gpuserve_job *job = &request->job;
    struct chunk_capacity capacity = { 0 };
    gpuserve_status st = GPUSERVE_OK;

    chunk->is_owned = true;
    for (size_t i = 0; i < job->n_items && st == GPUSERVE_OK; i++) {
        const struct gsv_encoding list = {
            .ids = (int32_t *)(uintptr_t)job->ids + job->id_offsets[i], /* read only */
            .n = job->id_offsets[i + 1] - job->id_offsets[i],
        };

        st = append(model, request, chunk, &capacity, &list, NULL, &request->items[i], error);
    }
    return st;
}

gpuserve_status gsv_prompt_tokens(struct gsv_model *model, const char *prompt, int32_t *n,
                                  gpuserve_error *error)
{
    const struct gsv_encode_options options = { .max_tokens = (size_t)model->plan.max_tokens };
    struct gsv_encoder *encoder = gsv_encoder_acquire(&model->encoders);
    gpuserve_status st;

    if (!encoder)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for tokenization");
    st = gsv_tokenizer_encode(model->plan.tokenizer, &encoder->encoding, prompt, strlen(prompt),
                              NULL, 0, &options, error);
    if (st == GPUSERVE_OK)
        *n = encoder->encoding.n > 0 ? (int32_t)encoder->encoding.n - 1 : 0;
    gsv_encoder_release(&model->encoders, encoder);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "the prompt");
}

/* Several threads tokenize chunks of a request: the latest end remains. */
static void note_end(gpuserve_request *request, uint64_t end_ns)
{
    uint_fast64_t before = atomic_load(&request->tokenized_ns);

    while (before < end_ns &&
           !atomic_compare_exchange_weak(&request->tokenized_ns, &before, end_ns))
        continue;
}

gpuserve_status gsv_encode_chunk(struct gsv_model *model, gpuserve_request *request,
                                 struct gsv_chunk *chunk, gpuserve_error *error)
{
    const struct gsv_nvtx *nvtx = &model->context->nvtx;
    const uint64_t begin = gsv_now_ns();
    struct gsv_encoder *encoder = gsv_encoder_acquire(&model->encoders);
    gpuserve_status st;
    uint64_t spent, end;

    if (!encoder)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for tokenization");
    chunk->is_owned = true;
    if (gsv_nvtx_is_on(nvtx))
        gsv_nvtx_push(nvtx, "gpuserve tokenize");
    st = encode_items(model, request, chunk, encoder, error);
    if (gsv_nvtx_is_on(nvtx))
        gsv_nvtx_pop(nvtx);
    gsv_encoder_release(&model->encoders, encoder);
    if (st != GPUSERVE_OK)
        gsv_chunk_reset(chunk);
    end = gsv_now_ns();
    spent = end - begin;
    atomic_fetch_add(&request->tokenize_ns, spent);
    note_end(request, end);
    atomic_fetch_add(&model->context->metrics.tokenize_ns, spent);
    return st;
}

void gsv_recall_chunk(struct gsv_model *model, gpuserve_request *request, struct gsv_chunk *chunk)
{
    if (request->job.cache == GPUSERVE_CACHE_OFF)
        return;
    for (size_t i = chunk->first; i < chunk->end; i++) {
        struct gsv_item *item = &request->items[i];
        struct gsv_cache_key key = { .tokens = gsv_tokens_of(chunk, item), .batch = request->key };

        item->hash = key.hash = gsv_tokens_hash(&key.tokens);
        if (!model->cache || !gsv_is_cacheable(&request->key) ||
            !gsv_cache_get(model->cache, &key, gsv_block_of(request, i),
                           gsv_block_floats(&request->outputs, item)))
            continue;
        item->is_cached = true;
        chunk->n_cached++;
        chunk->cached_tokens += item->n_tokens;
        chunk->n_left--;
    }
    if (chunk->n_left == 0)
        gsv_chunk_reset(chunk);
}
