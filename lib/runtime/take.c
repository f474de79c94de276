/*
 * take.c - which items the next batch is made of. All of it runs under the batcher's lock.
 */
#include "lib/runtime/queue.h"

#include "lib/runtime/clock.h"

/* A worker is kept busy long enough by this many tokens for its thread to be worth waking. */
#define LEAST_BATCH_TOKENS 128

void gsv_ring_add(struct gsv_batcher *batcher, gpuserve_request *request)
{
    gpuserve_request *head = batcher->ring;

    if (!head) {
        request->ring_before = request->ring_after = request;
        batcher->ring = request;
        return;
    }
    request->ring_after = head;
    request->ring_before = head->ring_before;
    head->ring_before->ring_after = request;
    head->ring_before = request;
}

void gsv_ring_remove(struct gsv_batcher *batcher, gpuserve_request *request)
{
    if (request->ring_after == request)
        batcher->ring = NULL;
    else if (batcher->ring == request)
        batcher->ring = request->ring_after;
    request->ring_before->ring_after = request->ring_after;
    request->ring_after->ring_before = request->ring_before;
    request->ring_before = request->ring_after = NULL;
}

static bool same_key(const struct gsv_batch_key *a, const struct gsv_batch_key *b)
{
    return a->task == b->task && a->dimensions == b->dimensions && a->normalize == b->normalize &&
           a->score == b->score;
}

/* The first chunk with an item to take; NULL when none is ready. */
static struct gsv_chunk *ready_chunk(gpuserve_request *request)
{
    while (request->first_chunk < request->n_chunks &&
           request->chunks[request->first_chunk].next == request->chunks[request->first_chunk].end)
        request->first_chunk++;
    for (size_t i = request->first_chunk; i < request->n_chunks; i++) {
        struct gsv_chunk *chunk = &request->chunks[i];

        if (chunk->state == GSV_CHUNK_RAW)
            return NULL; /* so are all after it */
        if (chunk->state == GSV_CHUNK_READY && chunk->next < chunk->end)
            return chunk;
    }
    return NULL;
}

static void add_item(struct gsv_batcher *batcher, struct gsv_batch *batch,
                     gpuserve_request *request, struct gsv_chunk *chunk)
{
    const size_t item = chunk->next++;
    const int32_t n_tokens = (int32_t)request->items[item].n_tokens;

    batch->parts[batch->n_parts++] = (struct gsv_part){ request, chunk, item };
    batch->n_tokens += n_tokens;
    batch->longest = n_tokens > batch->longest ? n_tokens : batch->longest;
    request->ready_tokens -= (size_t)n_tokens;
    batcher->ready_tokens -= (size_t)n_tokens;
    request->n_untaken--;
    request->n_in_flight++;
}

/* Take items of one request up to `share` tokens, or one item at least; true when it gave any. */
static bool take_share(struct gsv_batcher *batcher, struct gsv_batch *batch,
                       gpuserve_request *request, int32_t budget, int32_t share)
{
    const int32_t begin = batch->n_tokens;

    while (batch->n_parts < batcher->options.max_sequences) {
        struct gsv_chunk *chunk = ready_chunk(request);
        int32_t n_tokens;

        if (!chunk)
            break;
        n_tokens = (int32_t)request->items[chunk->next].n_tokens;
        if (batch->n_parts > 0 && batch->n_tokens + n_tokens > budget)
            break;
        if (batch->n_tokens > begin && batch->n_tokens - begin + n_tokens > share)
            break;
        add_item(batcher, batch, request, chunk);
    }
    return batch->n_tokens > begin;
}

/* Tokens that the next batch should have: see the head of batcher.h. */
static int32_t choose_budget(const struct gsv_batcher *batcher, bool *is_wide)
{
    const struct gsv_batcher_options *options = &batcher->options;
    const size_t most = (size_t)options->max_batch_tokens, n = (size_t)options->n_workers;
    const size_t feeds_all = n * LEAST_BATCH_TOKENS;
    size_t each = (batcher->ready_tokens + n - 1) / n;

    *is_wide = options->has_wide && batcher->n_running == 0 && batcher->n_raw_chunks == 0 &&
               batcher->ready_tokens <= (feeds_all < most ? feeds_all : most);
    if (*is_wide || each > most)
        return (int32_t)most;
    each = each < LEAST_BATCH_TOKENS ? LEAST_BATCH_TOKENS : each;
    return (int32_t)(each < most ? each : most);
}

/* How many requests of the ring may share this batch. */
static int32_t count_sharers(const struct gsv_batcher *batcher, const struct gsv_batch_key *key)
{
    const gpuserve_request *request = batcher->ring;
    int32_t n = 0;

    do {
        n += request->ready_tokens > 0 && same_key(&request->key, key);
        request = request->ring_after;
    } while (request != batcher->ring);
    return n > 0 ? n : 1;
}

/* One turn of the ring: a share of each request that fits. True when any gave items. */
static bool take_turn(struct gsv_batcher *batcher, struct gsv_batch *batch, int32_t budget)
{
    const int32_t left = budget > batch->n_tokens ? budget - batch->n_tokens : 0;
    const int32_t share = left / count_sharers(batcher, &batch->key);
    gpuserve_request *first = batcher->ring, *request = first;
    bool any = false;

    do {
        if (same_key(&request->key, &batch->key))
            any |= take_share(batcher, batch, request, budget, share);
        request = request->ring_after;
    } while (request != first && batch->n_tokens < budget);
    batcher->ring = request; /* the next one's turn */
    return any;
}

static void remove_taken(struct gsv_batcher *batcher, const struct gsv_batch *batch)
{
    const uint64_t now = gsv_now_ns();

    for (int32_t i = 0; i < batch->n_parts; i++) {
        gpuserve_request *request = batch->parts[i].request;

        if (request->taken_ns == 0)
            request->taken_ns = now;
        if (request->ring_after && request->n_untaken == 0)
            gsv_ring_remove(batcher, request);
    }
}

void gsv_take_batch(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    const int32_t budget = choose_budget(batcher, &batch->is_wide);

    batch->n_parts = batch->n_tokens = batch->longest = 0;
    while (batcher->ring->ready_tokens == 0)
        batcher->ring = batcher->ring->ring_after;
    batch->key = batcher->ring->key;
    while (batch->n_tokens < budget && take_turn(batcher, batch, budget))
        continue;
    remove_taken(batcher, batch);
    /* One long text and nobody else: nothing to divide but its operations. */
    if (batch->n_parts == 1 && batcher->options.has_wide && batcher->n_running == 0 &&
        batcher->ready_tokens == 0 && batcher->n_raw_chunks == 0)
        batch->is_wide = true;
}
