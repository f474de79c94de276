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
#define MAX_VISITS 4096
/* Of them, in a row, such as are too large for the little that is left of the budget. */
#define MAX_MISFITS 16

/* Of each class, what a token costs: the reciprocals of 16 : 4 : 1. */
static const uint64_t costs[GSV_PRIORITY_CLASSES] = {
    [GPUSERVE_PRIORITY_NORMAL] = 4,
    [GPUSERVE_PRIORITY_HIGH] = 1,
    [GPUSERVE_PRIORITY_LOW] = 16,
};

/* ------------------------------------------------------------------------------------- lanes */

struct gsv_priority_class *gsv_next_raw_class(struct gsv_batcher *batcher)
{
    struct gsv_priority_class *next = NULL;

    for (size_t i = 0; i < GSV_PRIORITY_CLASSES; i++) {
        struct gsv_priority_class *class = &batcher->classes[i];

        if (class->n_raw_chunks > 0 && (!next || class->served < next->served))
            next = class;
    }
    return next;
}

/* Of the lanes that were not done yet and have items to take. */
static struct gsv_priority_class *next_ready_class(struct gsv_batcher *batcher,
                                                   const bool is_done[GSV_PRIORITY_CLASSES])
{
    struct gsv_priority_class *next = NULL;

    for (size_t i = 0; i < GSV_PRIORITY_CLASSES; i++) {
        struct gsv_priority_class *class = &batcher->classes[i];

        if (!is_done[i] && class->ready_tokens > 0 && (!next || class->served < next->served))
            next = class;
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

static struct gsv_link *list_of(struct gsv_priority_class *class, const gpuserve_request *request)
{
    return request->reservation.is_small ? &class->small : &class->ready;
}

void gsv_add_ready(struct gsv_batcher *batcher, gpuserve_request *request, size_t tokens)
{
    struct gsv_priority_class *class = &batcher->classes[request->job.priority];

    if (tokens == 0)
        return;
    if (batcher->options.max_wait_ns > 0)
        set_due(batcher, request);
    if (class->ready_tokens == 0 && class->served < batcher->served)
        class->served = batcher->served;
    if (request->reservation.is_small)
        batcher->n_since_small = 0;
    if (request->ready_tokens == 0)
        gsv_list_append(list_of(class, request), &request->ready);
    request->ready_tokens += tokens;
    class->ready_tokens += tokens;
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
static void leave_class(struct gsv_batcher *batcher, gpuserve_request *request,
                        struct gsv_chunk *chunk, uint64_t now_ns)
{
    const uint32_t n_tokens = request->items[chunk->next++].n_tokens;

    request->ready_tokens -= n_tokens;
    batcher->classes[request->job.priority].ready_tokens -= n_tokens;
    batcher->ready_tokens -= n_tokens;
    request->n_untaken--;
    request->n_in_flight++;
    if (request->first_run_ns == 0)
        request->first_run_ns = now_ns;
}

/* ----------------------------------------------------------------------------------- flights */

static struct gsv_part **bucket_of(struct gsv_batcher *batcher, uint64_t hash)
{
    return &batcher->in_flight[hash & (batcher->n_in_flight_buckets - 1)];
}

static const struct gsv_item *item_of(const struct gsv_part *part)
{
    return &part->request->items[part->item];
}

/* What is being computed with the tokens and the key of this item; NULL when nothing is. */
static struct gsv_part *find_in_flight(struct gsv_batcher *batcher, const gpuserve_request *request,
                                       const struct gsv_chunk *chunk, const struct gsv_item *item)
{
    const struct gsv_tokens wanted = gsv_tokens_of(chunk, item);
    struct gsv_part *part;

    if (request->job.cache == GPUSERVE_CACHE_OFF)
        return NULL;
    for (part = *bucket_of(batcher, item->hash); part; part = part->next_in_flight) {
        const struct gsv_tokens flying = gsv_tokens_of(part->chunk, item_of(part));

        if (item_of(part)->hash == item->hash &&
            gsv_same_batch_key(&part->batch->key, &request->key) &&
            gsv_tokens_equal(&flying, &wanted))
            return part;
    }
    return NULL;
}

void gsv_in_flight_remove(struct gsv_batcher *batcher, const struct gsv_part *part)
{
    struct gsv_part **place = bucket_of(batcher, item_of(part)->hash);

    while (*place && *place != part)
        place = &(*place)->next_in_flight;
    if (*place)
        *place = part->next_in_flight;
}

/* Let an item of the chunk ride along with an equal one, if there is one and a seat. */
static bool coalesce(struct gsv_batcher *batcher, gpuserve_request *request,
                     struct gsv_chunk *chunk, size_t item)
{
    struct gsv_part *part = find_in_flight(batcher, request, chunk, &request->items[item]);
    struct gsv_batch *batch = part ? part->batch : NULL;

    if (!part || batch->n_coalesced == batcher->options.max_sequences)
        return false;
    batch->coalesced[batch->n_coalesced++] = (struct gsv_part){
        .request = request, .chunk = chunk, .item = item, .number = part->number
    };
    request->items[item].is_cached = true;
    return true;
}

size_t gsv_coalesce_chunk(struct gsv_batcher *batcher, gpuserve_request *request,
                          struct gsv_chunk *chunk)
{
    size_t tokens = chunk->n_tokens - chunk->cached_tokens;

    for (size_t i = chunk->next; i < chunk->end; i++) {
        if (request->items[i].is_cached || !coalesce(batcher, request, chunk, i))
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

        part->next_in_flight = *bucket;
        *bucket = part;
    }
    batch->n_tokens += n_tokens;
    batch->longest = n_tokens > batch->longest ? n_tokens : batch->longest;
    batcher->classes[request->job.priority].served +=
        (uint64_t)n_tokens * costs[request->job.priority];
    leave_class(batcher, request, chunk, batch->taken_ns);
}

/* Take items of one request up to `quantum` tokens, or one item at least; true when it gave any. */
static bool serve_turn(struct gsv_batcher *batcher, struct gsv_batch *batch,
                       gpuserve_request *request, int32_t budget, int32_t turn_tokens)
{
    const int32_t begin = batch->n_tokens;
    const size_t n_untaken = request->n_untaken;

    while (batch->n_parts < batcher->options.max_sequences) {
        struct gsv_chunk *chunk = ready_chunk(request);
        int32_t n_tokens;

        if (!chunk)
            break;
        if (coalesce(batcher, request, chunk, chunk->next)) {
            leave_class(batcher, request, chunk, batch->taken_ns);
            continue;
        }
        n_tokens = (int32_t)request->items[chunk->next].n_tokens;
        if (batch->n_parts > 0 && batch->n_tokens + n_tokens > budget)
            break;
        if (batch->n_tokens > begin && batch->n_tokens - begin + n_tokens > turn_tokens)
            break;
        add_item(batcher, batch, request, chunk);
    }
    return request->n_untaken < n_untaken;
}

static int32_t turn_tokens_of(const struct gsv_batcher *batcher)
{
    const int32_t part = batcher->options.max_batch_tokens / QUANTA_A_BATCH;

    return part > GSV_FEW_TOKENS ? part : GSV_FEW_TOKENS;
}

/* One look at all requests in a list of a lane, those that move to its end included. */
static bool serve_round(struct gsv_batcher *batcher, struct gsv_batch *batch, struct gsv_link *list,
                        int32_t budget, int *visits)
{
    const int32_t turn_tokens = turn_tokens_of(batcher);
    struct gsv_link *link = list->after;
    int misfits = 0;
    bool any = false;

    while (link != list && batch->n_tokens < budget && misfits < MAX_MISFITS && --*visits > 0) {
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
        if (!serve_turn(batcher, batch, request, budget, turn_tokens))
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
static int32_t small_budget(const struct gsv_batcher *batcher,
                            const struct gsv_priority_class *class, int32_t budget)
{
    const int32_t turn_tokens = turn_tokens_of(batcher), half = budget / 2;

    if (gsv_list_is_empty(&class->ready))
        return budget;
    return budget - (turn_tokens < half ? turn_tokens : half);
}

static void take_all(struct gsv_batcher *batcher, struct gsv_batch *batch, struct gsv_link *list,
                     int32_t budget, int *visits)
{
    while (batch->n_tokens<budget && * visits> 0 &&
           serve_round(batcher, batch, list, budget, visits))
        continue;
}

/* Small requests, then large ones, then what small ones are left. */
static void serve_class(struct gsv_batcher *batcher, struct gsv_batch *batch,
                        struct gsv_priority_class *class, int32_t budget, int *visits)
{
    take_all(batcher, batch, &class->small, small_budget(batcher, class, budget), visits);
    take_all(batcher, batch, &class->ready, budget, visits);
    take_all(batcher, batch, &class->small, budget, visits);
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

    for (size_t i = 0; i < GSV_PRIORITY_CLASSES; i++)
        has_large = has_large || !gsv_list_is_empty(&batcher->classes[i].ready);
    return has_large && batcher->options.cores && batcher->n_since_small < RECENT_BATCHES;
}

/* Tokens that the next batch should have: see the head of batcher.h. */
static int32_t choose_budget(const struct gsv_batcher *batcher, bool *is_wide)
{
    const struct gsv_batcher_options *options = &batcher->options;
    const size_t most = (size_t)options->max_batch_tokens, n = (size_t)batcher->n_slots;
    const size_t least = batcher->n_sleeping > 0 ? GSV_MIN_TOKENS : GSV_FEW_TOKENS;
    size_t each = (batcher->ready_tokens + n - 1) / n;

    *is_wide = batcher->ready_tokens <= n * GSV_FEW_TOKENS && widen(batcher);
    if (!*is_wide && expects_small(batcher) && most > GSV_FEW_TOKENS)
        return GSV_FEW_TOKENS;
    if (*is_wide || each > most)
        return (int32_t)most;
    each = each < least ? least : each;
    return (int32_t)(each < most ? each : most);
}

void gsv_form_batch(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    const int32_t budget = choose_budget(batcher, &batch->is_wide);
    bool is_done[GSV_PRIORITY_CLASSES] = { false };
    int visits = MAX_VISITS;

    batch->n_parts = batch->n_coalesced = batch->n_tokens = batch->longest = 0;
    batch->is_inline = batch->is_retry = false;
    batch->taken_ns = gsv_now_ns();
    batcher->n_since_small += batcher->n_since_small < RECENT_BATCHES;
    for (size_t i = 0; i < GSV_PRIORITY_CLASSES && batch->n_tokens < budget; i++) {
        struct gsv_priority_class *class = next_ready_class(batcher, is_done);

        if (!class)
            break;
        if (class->served > batcher->served)
            batcher->served = class->served;
        is_done[class - batcher->classes] = true;
        serve_class(batcher, batch, class, budget, &visits);
    }
    /* One long text and nobody else: nothing to divide but its operations. */
    if (batch->n_parts == 1 && !batch->is_wide && batcher->ready_tokens == 0)
        batch->is_wide = widen(batcher);
    if (batch->n_parts == 0 && batch->is_wide && batcher->options.cores)
        gsv_cores_narrow(batcher->options.cores, batcher->options.n_workers);
}
