/*
 * execution_slot.c - executes one batch: packs its tokens, runs the network, copies the rows to the
 * requests and to the cache.
 *
 *   items --pack--> gpuserve_host_batch --gsv_net_run--> slot->output --unpack--> staging, cache
 *
 * The texts of a run are the parts in the order of their adapters, so that the rows of each adapter
 * are adjacent (encoder/low_rank.c).
 *
 * A batch with several outputs is one pass: gsv_net_run() computes the first output with the
 * encoder, and each further one from what the encoder left. The rows of each output are copied to
 * the blocks of the items (outputs.h) before the next one takes slot->output.
 *
 * The thread that dequeued the batch owns the slot. Coalescing ends before the rows are copied, so
 * the list of coalesced items is constant then. A device failure starts failover (gsv_lost_note).
 */
#include "lib/runtime/scheduler/worker.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/number.h"
#include "lib/runtime/model.h"
#include "lib/runtime/plan/load_plan.h"

#include <stdlib.h>
#include <string.h>

/* Put the parts in the order of their adapters, and then of their numbers. */
static void order_parts(struct gsv_slot *slot)
{
    const struct gsv_batch *batch = &slot->batch;
    int32_t first[GSV_MAX_ADAPTERS + 2] = { 0 }; /* by adapter: the number of texts before */

    for (int32_t i = 0; i < batch->n_parts; i++)
        first[batch->parts[i].request->key.adapter + 1]++;
    for (int32_t i = 0; i <= GSV_MAX_ADAPTERS; i++)
        first[i + 1] += first[i];
    for (int32_t i = 0; i < batch->n_parts; i++) {
        const int32_t adapter = batch->parts[i].request->key.adapter;
        const int32_t at = first[adapter]++;

        slot->order[at] = i;
        slot->adapters[at] = adapter;
    }
}

/* Pack the batch's tokens end to end, without padding. */
static void pack(struct gsv_slot *slot, struct gpuserve_host_batch *host)
{
    const struct gsv_batch *batch = &slot->batch;
    bool is_whole = true;
    int32_t at = 0;

    order_parts(slot);
    slot->cu_seqlens[0] = 0;
    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[slot->order[i]];
        const struct gsv_item *item = &part->request->items[part->item];
        const int32_t n = (int32_t)item->n_tokens;
        const uint8_t *types = part->chunk->type_ids;

        memcpy(slot->ids + at, part->chunk->ids + item->offset, (size_t)n * sizeof(int32_t));
        gsv_positions(slot->model->plan.facts, slot->ids + at, (size_t)n, slot->positions + at);
        slot->key_counts[i] = n;
        for (int32_t j = 0; j < n; j++) {
            const uint8_t type = types ? types[item->offset + (size_t)j] : 0;

            slot->type_ids[at + j] = type & ~GSV_NO_KEY;
            slot->key_counts[i] -= (type & GSV_NO_KEY) != 0;
        }
        is_whole = is_whole && slot->key_counts[i] == n;
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
        .key_counts = is_whole ? NULL : slot->key_counts,
    };
}

/* The queries of a batch of MaxSim, and the rows of each text that count. */
static struct gsv_late_batch pack_late(const struct gsv_slot *slot)
{
    const struct gsv_batch *batch = &slot->batch;
    const struct gsv_plan *plan = &slot->model->plan;
    struct gsv_late_batch late = { .queries = slot->late_queries,
                                   .texts = slot->late_texts,
                                   .rows = slot->late_rows };
    int32_t end = 0; /* query rows */

    memset(slot->late_texts, 0, (size_t)plan->narrow.max_sequences * sizeof(*slot->late_texts));
    for (int32_t i = 0; i < batch->n_parts; i++) {
        const gpuserve_job *job = &batch->parts[i].request->job;
        const int32_t n = (int32_t)job->n_query_vectors;

        if (batch->parts[i].query_row == end && n > 0) { /* the first part with this query */
            slot->late_queries[late.n_queries++] =
                (struct gsv_late_query){ job->query_vectors, end, n };
            end += n;
        }
    }
    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[slot->order[i]];
        const int32_t n = (int32_t)part->request->job.n_query_vectors, first = late.n_rows;

        for (int32_t at = slot->cu_seqlens[i] + plan->facts->first_vector;
             at < slot->cu_seqlens[i + 1]; at++)
            if (!batch->key.drops || !gsv_is_skipped(&plan->late, slot->ids[at]))
                slot->late_rows[late.n_rows++] = at;
        slot->late_texts[i] =
            (struct gpuserve_max_sim_text){ part->query_row, n, first, late.n_rows - first };
    }
    return late;
}

/* Copy the rows of an item's tokens that are not skipped; returns the end of all its rows. */
static const float *copy_unskipped(const struct gsv_late_plan *late, const struct gsv_part *part,
                                   const float *from, size_t columns, float *to)
{
    const struct gsv_item *item = &part->request->items[part->item];
    const int32_t *ids = part->chunk->ids + item->offset;

    for (uint32_t i = 0; i < item->n_tokens; i++, from += columns) {
        if (gsv_is_skipped(late, ids[i]))
            continue;
        memcpy(to, from, columns * sizeof(float));
        to += columns;
    }
    return from;
}

/* Copy the rows of one output to the blocks of the batch's parts, or make sparse vectors of the
 * weights of tokens. No other thread accesses these items until they are counted back. */
static void unpack_output(const struct gsv_slot *slot, uint32_t task)
{
    const struct gsv_plan *plan = &slot->model->plan;
    const bool gathers = task == GPUSERVE_TASK_SPARSE && plan->facts->weighs_tokens;
    const float *from = slot->output;

    for (int32_t i = 0; i < slot->batch.n_parts; i++) {
        const struct gsv_part *part = &slot->batch.parts[slot->order[i]];
        const struct gsv_outputs *outputs = &part->request->outputs;
        const struct gsv_item *item = &part->request->items[part->item];
        const size_t n_tokens = item->n_tokens;
        const bool drops = slot->batch.key.drops && gsv_is_by_token(task);
        const size_t n = gathers ? n_tokens : gsv_output_floats(outputs, task, n_tokens);
        float *to = gsv_block_of(part->request, part->item) +
                    gsv_output_offset(outputs, task, item->n_rows);

        if (drops) {
            from = copy_unskipped(&plan->late, part, from, (size_t)outputs->columns[task], to);
            continue;
        }
        if (gathers)
            gsv_gather_words(plan->spec, part->chunk->ids + item->offset, from, n_tokens, to);
        else
            memcpy(to, from, n * sizeof(float));
        from += n;
    }
}

static void cache_row(const struct gsv_slot *slot, const struct gsv_part *part, const float *block,
                      size_t n)
{
    const struct gsv_item *item = &part->request->items[part->item];
    const struct gsv_cache_key key = { .tokens = gsv_tokens_of(part->chunk, item),
                                       .batch = part->request->key,
                                       .hash = item->hash };

    if (slot->model->cache && gsv_is_cacheable(&key.batch) &&
        part->request->job.cache != GPUSERVE_CACHE_OFF && item->status == GPUSERVE_OK)
        gsv_cache_put(slot->model->cache, &key, block, n);
}

/* The blocks of all parts are complete: check them, and copy them to the cache and to the items
 * that joined the parts. */
static void finish_items(const struct gsv_slot *slot)
{
    const struct gsv_batch *batch = &slot->batch;
    struct gsv_metrics *metrics = &slot->model->context->metrics;

    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[i];
        struct gsv_item *item = &part->request->items[part->item];
        const float *block = gsv_block_of(part->request, part->item);
        const size_t n = gsv_block_floats(&part->request->outputs, item);

        item->status = gsv_is_block_finite(&part->request->outputs, block, n) ? GPUSERVE_OK
                                                                              : GPUSERVE_E_NUMERIC;
        gsv_metrics_item(metrics, item->n_tokens, item->truncated);
        cache_row(slot, part, block, n);
    }
    for (int32_t i = 0; i < batch->n_coalesced; i++) {
        const struct gsv_part *to = &batch->coalesced[i], *from = &batch->parts[to->number];
        const struct gsv_item *item = &from->request->items[from->item];

        memcpy(gsv_block_of(to->request, to->item), gsv_block_of(from->request, from->item),
               gsv_block_floats(&from->request->outputs, item) * sizeof(float));
        to->request->items[to->item].status = item->status;
    }
    atomic_fetch_add(&metrics->shared_items, (uint64_t)batch->n_coalesced);
}

/* The fields of a run that its task depends on; equal runs have equal recordings of a device. */
static struct gsv_run run_of(const struct gsv_slot *slot, uint32_t task)
{
    const struct gsv_batch_key *key = &slot->batch.key;
    const bool embeds = task == GPUSERVE_TASK_EMBED, classifies = task == GPUSERVE_TASK_CLASSIFY;
    const gpuserve_request *first = slot->batch.parts[0].request; /* all have equal ranges */

    return (struct gsv_run){
        .task = task,
        .heads = classifies ? key->heads : (struct gsv_head_choice){ 0 },
        .dimensions = embeds ? key->dimensions : 0,
        .normalize = embeds && key->normalize,
        .score = classifies || task == GPUSERVE_TASK_TOKEN_LABELS ? key->score : 0,
        .route = embeds || classifies ? key->route : 0,
        .skip = embeds || classifies ? key->skip : 0,
        .adapters = slot->adapters,
        .compact = gsv_compact_run_of(key, first->job.ranges),
        .output = slot->output,
    };
}

/* Compute each output of the batch, in one pass; *ran_ns receives the time of the network. */
static gpuserve_status run_outputs(const struct gsv_slot *slot,
                                   const struct gpuserve_host_batch *host, uint64_t *ran_ns,
                                   gpuserve_error *error)
{
    const struct gsv_batch *batch = &slot->batch;
    struct gsv_exec *work = batch->is_wide ? slot->model->workers.wide : slot->work;
    struct gsv_late_batch late = { 0 };
    gpuserve_status st = GPUSERVE_OK;
    bool is_first = true;

    if (gsv_has_task(batch->key.tasks, GPUSERVE_TASK_MAX_SIM))
        late = pack_late(slot);
    for (uint32_t task = 0; task < GSV_TASKS && st == GPUSERVE_OK; task++) {
        struct gsv_run run = run_of(slot, task);
        const uint64_t begin = gsv_now_ns();

        if (!gsv_has_task(batch->key.tasks, task))
            continue;
        run.again = !is_first;
        run.late = &late;
        is_first = false;
        st = gsv_net_run(work, host, &run, error);
        *ran_ns += gsv_now_ns() - begin;
        if (st == GPUSERVE_OK)
            unpack_output(slot, task);
    }
    return st;
}

gpuserve_request *gsv_slot_run(struct gsv_slot *slot)
{
    struct gsv_model *model = slot->model;
    struct gsv_batch *batch = &slot->batch;
    const struct gsv_nvtx *nvtx = &model->context->nvtx;
    struct gsv_batch_facts facts = { .sequences = (uint64_t)batch->n_parts,
                                     .tokens = (uint64_t)batch->n_tokens,
                                     .longest = (uint64_t)batch->longest };
    const uint64_t begin = gsv_now_ns();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_host_batch host;
    uint64_t packed, ran_ns = 0;
    gpuserve_status st;

    if (gsv_nvtx_is_on(nvtx))
        gsv_nvtx_push(nvtx, "gpuserve batch of %d texts, %d tokens", batch->n_parts,
                      batch->n_tokens);
    pack(slot, &host);
    packed = gsv_now_ns();
    st = run_outputs(slot, &host, &ran_ns, &error);
    gsv_batcher_end_coalescing(model->batcher, batch);
    if (st == GPUSERVE_OK)
        finish_items(slot);
    else
        gsv_log(model->context, GPUSERVE_LOG_ERROR, "a batch of %d tokens failed: %s",
                batch->n_tokens, error.message);
    if (st == GPUSERVE_E_DEVICE)
        gsv_lost_note(model);
    if (gsv_nvtx_is_on(nvtx))
        gsv_nvtx_pop(nvtx);
    facts.is_ok = st == GPUSERVE_OK;
    facts.all_ns = gsv_now_ns() - begin;
    facts.ns[GSV_BATCH_INPUT] = packed - begin;
    facts.ns[GSV_BATCH_INFER] = ran_ns;
    facts.ns[GSV_BATCH_OUTPUT] = facts.all_ns - facts.ns[GSV_BATCH_INPUT] - ran_ns;
    gsv_metrics_batch(&model->context->metrics, &model->metrics, &facts);
    return gsv_batcher_ran(model->batcher, batch, facts.all_ns, st, &error);
}

/* --------------------------------------------------------------------------- start and stop */

static bool make_late_buffers(struct gsv_slot *slot)
{
    const struct gsv_plan *plan = &slot->model->plan;
    const size_t sequences = (size_t)plan->narrow.max_sequences;

    if (!plan->facts->is_late)
        return true;
    slot->late_queries = gsv_alloc_array(sequences, sizeof(*slot->late_queries));
    slot->late_texts = gsv_alloc_array(sequences, sizeof(*slot->late_texts));
    slot->late_rows = gsv_alloc_array((size_t)plan->narrow.max_tokens, sizeof(int32_t));
    return slot->late_queries && slot->late_texts && slot->late_rows;
}

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
    slot->key_counts = gsv_alloc_array(sequences, sizeof(int32_t));
    slot->order = gsv_alloc_array(sequences, sizeof(int32_t));
    slot->adapters = gsv_alloc_array(sequences, sizeof(int32_t));
    slot->output = gsv_alloc_mapped(output_bytes);
    if (!make_late_buffers(slot) || !slot->batch.parts || !slot->batch.coalesced || !slot->ids ||
        !slot->type_ids || !slot->positions || !slot->cu_seqlens || !slot->key_counts ||
        !slot->order || !slot->adapters || !slot->output)
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
    free(slot->key_counts);
    free(slot->order);
    free(slot->adapters);
    free(slot->late_queries);
    free(slot->late_texts);
    free(slot->late_rows);
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
