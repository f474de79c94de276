/*
 * execution_slot.c - executes one batch: packs its tokens, runs the network, copies the rows to the
 * requests and to the cache.
 *
 *   items --pack--> gpuserve_host_batch --gsv_net_run--> slot->output --unpack--> staging, cache
 *
 * The thread that dequeued the batch owns the slot. Coalescing ends before the rows are copied, so
 * the list of coalesced items is constant then. A device failure starts failover (gsv_lost_note).
 */
#include "lib/runtime/scheduler/worker.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/core/clock.h"
#include "lib/runtime/model.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pack the batch's tokens end to end, without padding. */
static void pack(struct gsv_slot *slot, struct gpuserve_host_batch *host)
{
    const struct gsv_batch *batch = &slot->batch;
    int32_t at = 0;

    slot->cu_seqlens[0] = 0;
    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[i];
        const struct gsv_item *item = &part->request->items[part->item];
        const int32_t n = (int32_t)item->n_tokens;
        const uint8_t *types = part->chunk->type_ids;

        memcpy(slot->ids + at, part->chunk->ids + item->offset, (size_t)n * sizeof(int32_t));
        gsv_positions(slot->model->plan.facts, slot->ids + at, (size_t)n, slot->positions + at);
        for (int32_t j = 0; j < n; j++)
            slot->type_ids[at + j] = types ? types[item->offset + (size_t)j] : 0;
        at += n;
        slot->cu_seqlens[i + 1] = at;
    }
    *host = (struct gpuserve_host_batch){
        .n_tokens = at,
        .n_sequences = batch->n_parts,
        .max_seqlen = batch->longest,
        .ids = slot->ids,
        .type_ids = slot->type_ids,
        .positions = slot->positions,
        .cu_seqlens = slot->cu_seqlens,
    };
}

static bool all_finite(const float *values, size_t n)
{
    bool finite = true;

    for (size_t i = 0; i < n; i++)
        finite &= fabsf(values[i]) <= FLT_MAX;
    return finite;
}

/* Address of a part's rows in the output, and their number of floats. */
static const float *rows_of(const struct gsv_slot *slot, int32_t part, size_t *n_floats)
{
    const int32_t *begins = slot->cu_seqlens;
    const size_t columns = (size_t)slot->batch.parts[part].request->columns;
    const bool by_token = gsv_is_by_token(slot->batch.key.task);
    const size_t row = (size_t)(by_token ? begins[part] : part);

    *n_floats = columns * (by_token ? (size_t)(begins[part + 1] - begins[part]) : 1);
    return slot->output + row * columns;
}

/* Copy an item's rows to its request. No other thread accesses the item until it is counted
 * back. */
static void hand_out(const struct gsv_part *to, const float *from, size_t n)
{
    gpuserve_request *request = to->request;
    struct gsv_item *item = &request->items[to->item];

    memcpy(request->staging + item->row * (size_t)request->columns, from, n * sizeof(float));
    item->status = all_finite(from, n) ? GPUSERVE_OK : GPUSERVE_E_NUMERIC;
}

static void keep(const struct gsv_slot *slot, const struct gsv_part *part, const float *rows,
                 size_t n)
{
    const struct gsv_item *item = &part->request->items[part->item];
    const struct gsv_cache_key key = { .tokens = gsv_tokens_of(part->chunk, item),
                                       .batch = slot->batch.key,
                                       .hash = item->hash };

    if (slot->model->cache && part->request->job.cache != GPUSERVE_CACHE_OFF &&
        item->status == GPUSERVE_OK)
        gsv_cache_put(slot->model->cache, &key, rows, n);
}

static void unpack(const struct gsv_slot *slot)
{
    const struct gsv_batch *batch = &slot->batch;
    struct gsv_metrics *metrics = &slot->model->context->metrics;
    size_t n;

    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[i];
        const struct gsv_item *item = &part->request->items[part->item];
        const float *rows = rows_of(slot, i, &n);

        hand_out(part, rows, n);
        gsv_metrics_item(metrics, item->n_tokens, item->truncated);
        keep(slot, part, rows, n);
    }
    for (int32_t i = 0; i < batch->n_coalesced; i++) {
        const float *rows = rows_of(slot, batch->coalesced[i].number, &n);

        hand_out(&batch->coalesced[i], rows, n);
    }
    atomic_fetch_add(&metrics->shared_items, (uint64_t)batch->n_coalesced);
}

gpuserve_request *gsv_slot_run(struct gsv_slot *slot)
{
    struct gsv_model *model = slot->model;
    struct gsv_batch *batch = &slot->batch;
    const struct gsv_run run = { .task = batch->key.task,
                                 .dimensions = batch->key.dimensions,
                                 .normalize = batch->key.normalize,
                                 .score = batch->key.score,
                                 .route = batch->key.route,
                                 .skip = batch->key.skip,
                                 .adapter = batch->key.adapter,
                                 .output = slot->output };
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
    pack(slot, &host);
    packed = gsv_now_ns();
    st = gsv_net_run(batch->is_wide ? model->workers.wide : slot->work, &host, &run, &error);
    ran = gsv_now_ns();
    gsv_batcher_end_coalescing(model->batcher, batch);
    if (st == GPUSERVE_OK)
        unpack(slot);
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

static gpuserve_status make_buffers(struct gsv_slot *slot, gpuserve_error *error)
{
    const struct gsv_plan *plan = &slot->model->plan;
    const size_t tokens = (size_t)plan->narrow.max_tokens;
    const size_t sequences = (size_t)plan->narrow.max_sequences;
    size_t output_bytes;

    if (!gsv_mul_size(gsv_plan_output_floats(plan), sizeof(float), &output_bytes))
        output_bytes = SIZE_MAX; /* no allocation of this size succeeds */
    slot->batch.parts = gsv_alloc_array(sequences, sizeof(*slot->batch.parts));
    slot->batch.coalesced = gsv_alloc_array(sequences, sizeof(*slot->batch.coalesced));
    slot->ids = gsv_alloc_array(tokens, sizeof(int32_t));
    slot->type_ids = gsv_alloc_array(tokens, sizeof(int32_t));
    slot->positions = gsv_alloc_array(tokens, sizeof(int32_t));
    slot->cu_seqlens = gsv_alloc_array(sequences + 1, sizeof(int32_t));
    slot->output = gsv_alloc_mapped(output_bytes);
    if (!slot->batch.parts || !slot->batch.coalesced || !slot->ids || !slot->type_ids ||
        !slot->positions || !slot->cu_seqlens || !slot->output)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a batch of %zu tokens", tokens);
    return GPUSERVE_OK;
}

void gsv_slot_reset(struct gsv_slot *slot)
{
    gsv_exec_free(&slot->work);
    free(slot->batch.parts);
    free(slot->batch.coalesced);
    free(slot->ids);
    free(slot->type_ids);
    free(slot->positions);
    free(slot->cu_seqlens);
    gsv_free_mapped(slot->output);
}

gpuserve_status gsv_slot_init(struct gsv_slot *slot, struct gsv_model *model, int32_t replica,
                              gpuserve_error *error)
{
    gpuserve_status st;

    slot->model = model;
    slot->batch.replica = replica;
    st = make_buffers(slot, error);
    if (st == GPUSERVE_OK && gsv_model_has_replica(model, (size_t)replica))
        st = gsv_exec_create(&slot->work, model->replicas[replica].net, &model->plan.narrow, error);
    return st;
}
