/*
 * execution_slot.c - running one batch: packing its tokens, the network, handing out the rows.
 */
#include "lib/runtime/scheduler/execution_slot.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/core/clock.h"
#include "lib/runtime/models/failover.h"
#include "lib/runtime/model.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Lay the batch's tokens end to end. */
static void pack(struct gsv_seat *seat, struct gpuserve_host_batch *host)
{
    const struct gsv_batch *batch = &seat->batch;
    int32_t at = 0;

    seat->cu_seqlens[0] = 0;
    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[i];
        const struct gsv_item *item = &part->request->items[part->item];
        const int32_t n = (int32_t)item->n_tokens;
        const uint8_t *types = part->chunk->type_ids;

        memcpy(seat->ids + at, part->chunk->ids + item->offset, (size_t)n * sizeof(int32_t));
        gsv_positions(seat->model->plan.facts, seat->ids + at, (size_t)n, seat->positions + at);
        for (int32_t j = 0; j < n; j++)
            seat->type_ids[at + j] = types ? types[item->offset + (size_t)j] : 0;
        at += n;
        seat->cu_seqlens[i + 1] = at;
    }
    *host = (struct gpuserve_host_batch){
        .n_tokens = at,
        .n_sequences = batch->n_parts,
        .max_seqlen = batch->longest,
        .ids = seat->ids,
        .type_ids = seat->type_ids,
        .positions = seat->positions,
        .cu_seqlens = seat->cu_seqlens,
    };
}

static bool all_finite(const float *values, size_t n)
{
    bool finite = true;

    for (size_t i = 0; i < n; i++)
        finite &= fabsf(values[i]) <= FLT_MAX;
    return finite;
}

/* Where the rows of a part begin in the output, and how many floats they have. */
static const float *rows_of(const struct gsv_seat *seat, int32_t part, size_t *n_floats)
{
    const int32_t *begins = seat->cu_seqlens;
    const size_t columns = (size_t)seat->batch.parts[part].request->columns;
    const bool by_token = gsv_is_by_token(seat->batch.key.task);
    const size_t row = (size_t)(by_token ? begins[part] : part);

    *n_floats = columns * (by_token ? (size_t)(begins[part + 1] - begins[part]) : 1);
    return seat->output + row * columns;
}

/* Hand an item its rows. No other thread touches it until it is counted back. */
static void hand_out(const struct gsv_part *to, const float *from, size_t n)
{
    gpuserve_request *request = to->request;
    struct gsv_item *item = &request->items[to->item];

    memcpy(request->staging + item->row * (size_t)request->columns, from, n * sizeof(float));
    item->status = all_finite(from, n) ? GPUSERVE_OK : GPUSERVE_E_NUMERIC;
}

static void keep(const struct gsv_seat *seat, const struct gsv_part *part, const float *rows,
                 size_t n)
{
    const struct gsv_item *item = &part->request->items[part->item];
    const struct gsv_cache_key key = { .tokens = gsv_tokens_of(part->chunk, item),
                                       .batch = seat->batch.key,
                                       .hash = item->hash };

    if (seat->model->cache && part->request->job.cache != GPUSERVE_CACHE_OFF &&
        item->status == GPUSERVE_OK)
        gsv_cache_put(seat->model->cache, &key, rows, n);
}

static void unpack(const struct gsv_seat *seat)
{
    const struct gsv_batch *batch = &seat->batch;
    struct gsv_metrics *metrics = &seat->model->context->metrics;
    size_t n;

    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[i];
        const struct gsv_item *item = &part->request->items[part->item];
        const float *rows = rows_of(seat, i, &n);

        hand_out(part, rows, n);
        gsv_metrics_item(metrics, item->n_tokens, item->truncated);
        keep(seat, part, rows, n);
    }
    for (int32_t i = 0; i < batch->n_riders; i++) {
        const float *rows = rows_of(seat, batch->riders[i].number, &n);

        hand_out(&batch->riders[i], rows, n);
    }
    atomic_fetch_add(&metrics->shared_items, (uint64_t)batch->n_riders);
}

gpuserve_request *gsv_seat_run(struct gsv_seat *seat)
{
    struct gsv_model *model = seat->model;
    struct gsv_batch *batch = &seat->batch;
    const struct gsv_run run = { .task = batch->key.task,
                                 .dimensions = batch->key.dimensions,
                                 .normalize = batch->key.normalize,
                                 .score = batch->key.score,
                                 .skip = batch->key.skip,
                                 .output = seat->output };
    struct gsv_batch_facts facts = { .sequences = (uint64_t)batch->n_parts,
                                     .tokens = (uint64_t)batch->n_tokens,
                                     .longest = (uint64_t)batch->longest };
    const uint64_t begin = gsv_now_ns();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_host_batch host;
    gpuserve_status st;
    uint64_t packed, ran;

    gsv_nvtx_push(&model->context->nvtx, "gpuserve batch of %d texts, %d tokens", batch->n_parts,
                  batch->n_tokens);
    pack(seat, &host);
    packed = gsv_now_ns();
    st = gsv_net_run(batch->is_wide ? model->workers.wide : seat->work, &host, &run, &error);
    ran = gsv_now_ns();
    gsv_batcher_land(model->batcher, batch);
    if (st == GPUSERVE_OK)
        unpack(seat);
    else
        gsv_log(model->context, GPUSERVE_LOG_ERROR, "a batch of %d tokens failed: %s",
                batch->n_tokens, error.message);
    if (st == GPUSERVE_E_DEVICE)
        gsv_lost_note(model);
    gsv_nvtx_pop(&model->context->nvtx);
    facts.is_ok = st == GPUSERVE_OK;
    facts.all_ns = gsv_now_ns() - begin;
    facts.ns[GSV_BATCH_INPUT] = packed - begin;
    facts.ns[GSV_BATCH_INFER] = ran - packed;
    facts.ns[GSV_BATCH_OUTPUT] = facts.all_ns - (ran - begin);
    gsv_metrics_batch(&model->context->metrics, &model->metrics, &facts);
    return gsv_batcher_ran(model->batcher, batch, facts.all_ns, st, &error);
}

/* --------------------------------------------------------------------------- start and stop */

static gpuserve_status make_buffers(struct gsv_seat *seat, gpuserve_error *error)
{
    const struct gsv_plan *plan = &seat->model->plan;
    const size_t tokens = (size_t)plan->narrow.max_tokens;
    const size_t sequences = (size_t)plan->narrow.max_sequences;
    size_t output_bytes;

    if (!gsv_mul_size(gsv_plan_output_floats(plan), sizeof(float), &output_bytes))
        output_bytes = SIZE_MAX; /* which no memory has */
    seat->batch.parts = gsv_alloc_array(sequences, sizeof(*seat->batch.parts));
    seat->batch.riders = gsv_alloc_array(sequences, sizeof(*seat->batch.riders));
    seat->ids = gsv_alloc_array(tokens, sizeof(int32_t));
    seat->type_ids = gsv_alloc_array(tokens, sizeof(int32_t));
    seat->positions = gsv_alloc_array(tokens, sizeof(int32_t));
    seat->cu_seqlens = gsv_alloc_array(sequences + 1, sizeof(int32_t));
    seat->output = gsv_alloc_mapped(output_bytes);
    if (!seat->batch.parts || !seat->batch.riders || !seat->ids || !seat->type_ids ||
        !seat->positions || !seat->cu_seqlens || !seat->output)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a batch of %zu tokens", tokens);
    return GPUSERVE_OK;
}

void gsv_seat_reset(struct gsv_seat *seat)
{
    gsv_work_free(&seat->work);
    free(seat->batch.parts);
    free(seat->batch.riders);
    free(seat->ids);
    free(seat->type_ids);
    free(seat->positions);
    free(seat->cu_seqlens);
    gsv_free_mapped(seat->output);
}

gpuserve_status gsv_seat_init(struct gsv_seat *seat, struct gsv_model *model, int32_t replica,
                              gpuserve_error *error)
{
    gpuserve_status st;

    seat->model = model;
    seat->batch.replica = replica;
    st = make_buffers(seat, error);
    if (st == GPUSERVE_OK && gsv_model_has_replica(model, (size_t)replica))
        st = gsv_work_create(&seat->work, model->replicas[replica].net, &model->plan.narrow, error);
    return st;
}
