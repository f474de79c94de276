/*
 * batch_formation.c - which items the next batch is made of. All of it runs under the batcher's
 * lock.
 *
 * Classes: the lane that was served least, measured in tokens divided by its weight, comes first;
 * what it leaves of the budget goes to the next. A lane that was empty starts where the one served
 * last stands, so that nobody saves up turns.
 *
 * Within a lane small requests (admission.c) come first, in order of arrival: a single text waits
 * for no large request's turn. While large ones wait, small ones leave them a quantum of each batch
 * (or half of it), so that neither starves. Large requests stand in line. The first gives items up
 * to a quantum and goes to the end if it has more; so a request of one text waits for a quantum of
 * each before it, not for all of them.
 */
#include "lib/runtime/core/clock.h"
#include "lib/runtime/scheduler/batcher_internal.h"

/* A request gives this part of the largest batch before the next one's turn. */
#define QUANTA_A_BATCH 32
/* Small requests are taken to come again for so many batches after the last one. */
#define RECENT_BATCHES 256
/* Requests looked at for a batch: those that cannot share it are passed over. */
#define MOST_VISITS 4096
/* Of them, in a row, such as are too large for the little that is left of the budget. */
#define MOST_MISFITS 16

/* Of each class, what a token costs: the reciprocals of 16 : 4 : 1. */
static const uint64_t costs[GSV_LANES] = {
    [GPUSERVE_PRIORITY_NORMAL] = 4,
    [GPUSERVE_PRIORITY_HIGH] = 1,
    [GPUSERVE_PRIORITY_LOW] = 16,
};

/* ------------------------------------------------------------------------------------- lanes */

struct gsv_lane *gsv_next_raw_lane(struct gsv_batcher *batcher)
{
    struct gsv_lane *next = NULL;

    for (size_t i = 0; i < GSV_LANES; i++) {
        struct gsv_lane *lane = &batcher->lanes[i];

        if (lane->n_raw_chunks > 0 && (!next || lane->served < next->served))
            next = lane;
    }
    return next;
}

/* Of the lanes that were not done yet and have items to take. */
static struct gsv_lane *next_ready_lane(struct gsv_batcher *batcher, const bool is_done[GSV_LANES])
{
    struct gsv_lane *next = NULL;

    for (size_t i = 0; i < GSV_LANES; i++) {
        struct gsv_lane *lane = &batcher->lanes[i];

        if (!is_done[i] && lane->ready_tokens > 0 && (!next || lane->served < next->served))
            next = lane;
    }
    return next;
}

/* What is not full waits for more no longer than it may; one with a deadline near waits for nobody.
 */
static void set_due(struct gsv_batcher *batcher, const gpuserve_request *request)
{
    const uint64_t now = gsv_now_ns(), wait = batcher->options.max_wait_ns;

    if (batcher->ready_tokens == 0)
        batcher->due_ns = now + wait;
    if (request->deadline_ns && request->deadline_ns < now + 2 * wait && now < batcher->due_ns)
        batcher->due_ns = now;
}

static struct gsv_link *list_of(struct gsv_lane *lane, const gpuserve_request *request)
{
    return request->charge.is_small ? &lane->small : &lane->ready;
}

void gsv_add_ready(struct gsv_batcher *batcher, gpuserve_request *request, size_t tokens)
{
    struct gsv_lane *lane = &batcher->lanes[request->job.priority];

    if (tokens == 0)
        return;
    if (batcher->options.max_wait_ns > 0)
        set_due(batcher, request);
    if (lane->ready_tokens == 0 && lane->served < batcher->served)
        lane->served = batcher->served;
    if (request->charge.is_small)
        batcher->n_since_small = 0;
    if (request->ready_tokens == 0)
        gsv_list_append(list_of(lane, request), &request->ready);
    request->ready_tokens += tokens;
    lane->ready_tokens += tokens;
    batcher->ready_tokens += tokens;
}

/* ------------------------------------------------------------------------------------- items */

/* Rows that came from the cache are there already. */
static void skip_cached(const gpuserve_request *request, struct gsv_chunk *chunk)
{
    while (chunk->next < chunk->end && request->items[chunk->next].is_cached)
        chunk->next++;
}

/* The first chunk with an item to take; NULL when none is ready. */
static struct gsv_chunk *ready_chunk(gpuserve_request *request)
{
    for (size_t i = request->first_chunk; i < request->n_chunks; i++) {
        struct gsv_chunk *chunk = &request->chunks[i];

        if (chunk->state == GSV_CHUNK_RAW)
            return NULL; /* so are all after it */
        if (chunk->state == GSV_CHUNK_ENCODING)
            continue;
        skip_cached(request, chunk);
        if (chunk->next < chunk->end)
            return chunk;
        if (i == request->first_chunk)
            request->first_chunk++;
    }
    return NULL;
}

/* Count the chunk's next item as taken. */
static void leave_lane(struct gsv_batcher *batcher, gpuserve_request *request,
                       struct gsv_chunk *chunk, uint64_t now_ns)
{
    const uint32_t n_tokens = request->items[chunk->next++].n_tokens;

    request->ready_tokens -= n_tokens;
    batcher->lanes[request->job.priority].ready_tokens -= n_tokens;
    batcher->ready_tokens -= n_tokens;
    request->n_untaken--;
    request->n_in_flight++;
    if (request->first_run_ns == 0)
        request->first_run_ns = now_ns;
}

/* ----------------------------------------------------------------------------------- flights */

static struct gsv_part **bucket_of(struct gsv_batcher *batcher, uint64_t hash)
{
    return &batcher->flights[hash & (batcher->n_flights - 1)];
}

static const struct gsv_item *item_of(const struct gsv_part *part)
{
    return &part->request->items[part->item];
}

/* What is being computed with the tokens and the key of this item; NULL when nothing is. */
static struct gsv_part *find_flight(struct gsv_batcher *batcher, const gpuserve_request *request,
                                    const struct gsv_chunk *chunk, const struct gsv_item *item)
{
    const struct gsv_tokens wanted = gsv_tokens_of(chunk, item);
    struct gsv_part *part;

    if (request->job.cache == GPUSERVE_CACHE_OFF)
        return NULL;
    for (part = *bucket_of(batcher, item->hash); part; part = part->next_flight) {
        const struct gsv_tokens flying = gsv_tokens_of(part->chunk, item_of(part));

        if (item_of(part)->hash == item->hash &&
            gsv_same_batch_key(&part->batch->key, &request->key) &&
            gsv_tokens_equal(&flying, &wanted))
            return part;
    }
    return NULL;
}

void gsv_flight_remove(struct gsv_batcher *batcher, const struct gsv_part *part)
{
    struct gsv_part **place = bucket_of(batcher, item_of(part)->hash);

    while (*place && *place != part)
        place = &(*place)->next_flight;
    if (*place)
        *place = part->next_flight;
}

/* Let an item of the chunk ride along with an equal one, if there is one and a seat. */
static bool ride(struct gsv_batcher *batcher, gpuserve_request *request, struct gsv_chunk *chunk,
                 size_t item)
{
    struct gsv_part *part = find_flight(batcher, request, chunk, &request->items[item]);
    struct gsv_batch *batch = part ? part->batch : NULL;

    if (!part || batch->n_riders == batcher->options.max_sequences)
        return false;
    batch->riders[batch->n_riders++] = (struct gsv_part){
        .request = request, .chunk = chunk, .item = item, .number = part->number
    };
    request->items[item].is_cached = true;
    return true;
}

size_t gsv_board(struct gsv_batcher *batcher, gpuserve_request *request, struct gsv_chunk *chunk)
{
    size_t tokens = chunk->n_tokens - chunk->cached_tokens;

    for (size_t i = chunk->next; i < chunk->end; i++) {
        if (request->items[i].is_cached || !ride(batcher, request, chunk, i))
            continue;
        tokens -= request->items[i].n_tokens;
        request->n_untaken--;
        request->n_in_flight++;
        if (request->first_run_ns == 0)
            request->first_run_ns = gsv_now_ns();
    }
    return tokens;
}

static void add_item(struct gsv_batcher *batcher, struct gsv_batch *batch,
                     gpuserve_request *request, struct gsv_chunk *chunk)
{
    struct gsv_part *part = &batch->parts[batch->n_parts];
    const int32_t n_tokens = (int32_t)request->items[chunk->next].n_tokens;

    *part = (struct gsv_part){ .request = request,
                               .chunk = chunk,
                               .item = chunk->next,
                               .batch = batch,
                               .number = batch->n_parts++ };
    if (request->job.cache != GPUSERVE_CACHE_OFF) {
        struct gsv_part **bucket = bucket_of(batcher, item_of(part)->hash);

        part->next_flight = *bucket;
        *bucket = part;
    }
    batch->n_tokens += n_tokens;
    batch->longest = n_tokens > batch->longest ? n_tokens : batch->longest;
    batcher->lanes[request->job.priority].served +=
        (uint64_t)n_tokens * costs[request->job.priority];
    leave_lane(batcher, request, chunk, batch->taken_ns);
}

/* Take items of one request up to `quantum` tokens, or one item at least; true when it gave any. */
static bool take_quantum(struct gsv_batcher *batcher, struct gsv_batch *batch,
                         gpuserve_request *request, int32_t budget, int32_t quantum)
{
    const int32_t begin = batch->n_tokens;
    const size_t n_untaken = request->n_untaken;

    while (batch->n_parts < batcher->options.max_sequences) {
        struct gsv_chunk *chunk = ready_chunk(request);
        int32_t n_tokens;

        if (!chunk)
            break;
        if (ride(batcher, request, chunk, chunk->next)) {
            leave_lane(batcher, request, chunk, batch->taken_ns);
            continue;
        }
        n_tokens = (int32_t)request->items[chunk->next].n_tokens;
        if (batch->n_parts > 0 && batch->n_tokens + n_tokens > budget)
            break;
        if (batch->n_tokens > begin && batch->n_tokens - begin + n_tokens > quantum)
            break;
        add_item(batcher, batch, request, chunk);
    }
    return request->n_untaken < n_untaken;
}

static int32_t quantum_of(const struct gsv_batcher *batcher)
{
    const int32_t part = batcher->options.max_batch_tokens / QUANTA_A_BATCH;

    return part > GSV_FEW_TOKENS ? part : GSV_FEW_TOKENS;
}

/* One look at all requests in a list of a lane, those that move to its end included. */
static bool take_round(struct gsv_batcher *batcher, struct gsv_batch *batch, struct gsv_link *list,
                       int32_t budget, int *visits)
{
    const int32_t quantum = quantum_of(batcher);
    struct gsv_link *link = list->after;
    int misfits = 0;
    bool any = false;

    while (link != list && batch->n_tokens < budget && misfits < MOST_MISFITS && --*visits > 0) {
        gpuserve_request *request = gsv_of_ready(link);

        link = link->after;
        if (gsv_is_expired(request, batch->taken_ns)) {
            gsv_expire(batcher, request);
            continue;
        }
        if (batch->n_parts == 0)
            batch->key = request->key;
        if (!gsv_same_batch_key(&request->key, &batch->key))
            continue;
        misfits++;
        if (!take_quantum(batcher, batch, request, budget, quantum))
            continue;
        misfits = 0;
        any = true;
        gsv_list_remove(&request->ready);
        if (request->ready_tokens > 0)
            gsv_list_append(list, &request->ready);
    }
    return any;
}

/* ----------------------------------------------------------------------------------- batches */

/* Tokens of a batch that small requests may fill, beside large ones. */
static int32_t small_budget(const struct gsv_batcher *batcher, const struct gsv_lane *lane,
                            int32_t budget)
{
    const int32_t quantum = quantum_of(batcher), half = budget / 2;

    if (gsv_list_is_empty(&lane->ready))
        return budget;
    return budget - (quantum < half ? quantum : half);
}

static void take_all(struct gsv_batcher *batcher, struct gsv_batch *batch, struct gsv_link *list,
                     int32_t budget, int *visits)
{
    while (batch->n_tokens<budget && * visits> 0 &&
           take_round(batcher, batch, list, budget, visits))
        continue;
}

/* Small requests, then large ones, then what small ones are left. */
static void take_lane(struct gsv_batcher *batcher, struct gsv_batch *batch, struct gsv_lane *lane,
                      int32_t budget, int *visits)
{
    take_all(batcher, batch, &lane->small, small_budget(batcher, lane, budget), visits);
    take_all(batcher, batch, &lane->ready, budget, visits);
    take_all(batcher, batch, &lane->small, budget, visits);
}

/* Whether the next batch has the context's cores for itself; then it is asked no more. */
static bool widen(const struct gsv_batcher *batcher)
{
    return batcher->options.has_wide && batcher->n_running == 0 && batcher->n_raw_chunks == 0 &&
           (!batcher->options.cores ||
            gsv_cores_widen(batcher->options.cores, batcher->options.n_workers));
}

/* A small request waits for the end of a batch: on a CPU, batches of large requests have no more
 * tokens than a core needs while small requests come. */
static bool expects_small(const struct gsv_batcher *batcher)
{
    bool has_large = false;

    for (size_t i = 0; i < GSV_LANES; i++)
        has_large = has_large || !gsv_list_is_empty(&batcher->lanes[i].ready);
    return has_large && batcher->options.cores && batcher->n_since_small < RECENT_BATCHES;
}

/* Tokens that the next batch should have: see the head of batcher.h. */
static int32_t choose_budget(const struct gsv_batcher *batcher, bool *is_wide)
{
    const struct gsv_batcher_options *options = &batcher->options;
    const size_t most = (size_t)options->max_batch_tokens, n = (size_t)batcher->n_seats;
    const size_t least = batcher->n_sleeping > 0 ? GSV_LEAST_TOKENS : GSV_FEW_TOKENS;
    size_t each = (batcher->ready_tokens + n - 1) / n;

    *is_wide = batcher->ready_tokens <= n * GSV_FEW_TOKENS && widen(batcher);
    if (!*is_wide && expects_small(batcher) && most > GSV_FEW_TOKENS)
        return GSV_FEW_TOKENS;
    if (*is_wide || each > most)
        return (int32_t)most;
    each = each < least ? least : each;
    return (int32_t)(each < most ? each : most);
}

void gsv_take_batch(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    const int32_t budget = choose_budget(batcher, &batch->is_wide);
    bool is_done[GSV_LANES] = { false };
    int visits = MOST_VISITS;

    batch->n_parts = batch->n_riders = batch->n_tokens = batch->longest = 0;
    batch->is_led = batch->is_rerun = false;
    batch->taken_ns = gsv_now_ns();
    batcher->n_since_small += batcher->n_since_small < RECENT_BATCHES;
    for (size_t i = 0; i < GSV_LANES && batch->n_tokens < budget; i++) {
        struct gsv_lane *lane = next_ready_lane(batcher, is_done);

        if (!lane)
            break;
        if (lane->served > batcher->served)
            batcher->served = lane->served;
        is_done[lane - batcher->lanes] = true;
        take_lane(batcher, batch, lane, budget, &visits);
    }
    /* One long text and nobody else: nothing to divide but its operations. */
    if (batch->n_parts == 1 && !batch->is_wide && batcher->ready_tokens == 0)
        batch->is_wide = widen(batcher);
    if (batch->n_parts == 0 && batch->is_wide && batcher->options.cores)
        gsv_cores_narrow(batcher->options.cores, batcher->options.n_workers);
}
