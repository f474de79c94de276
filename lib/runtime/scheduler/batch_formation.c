/*
 * batch_formation.c - forms the next batch: weighted deficit round robin, counted in tokens, and
 * request coalescing. All functions need the batcher's lock.
 *
 * Between classes: weighted fair queueing by virtual time (`served`). The class with the fewest
 * tokens served, divided by its weight, comes first; the next class gets the rest of the budget. An
 * empty class rejoins at the virtual time of the class served last, so it cannot save up turns.
 *
 * Within a class: small requests (admission.c) come first, in order of arrival, so a single text
 * does not wait for large ones. While large requests are ready, small ones leave them a quantum of
 * each batch (or half of it), so neither starves. Large requests take turns round robin: a turn
 * takes items up to a token quantum, then the request moves to the end. No deficit is carried over.
 *
 * Budget: max_batch_tokens, or less while few tokens are ready: then they are divided by the number
 * of slots, so that all workers finish together. A small model on a CPU has batches whose rows stay
 * in the cache of a core (`cached_tokens`): as many for each worker, of equal size.
 *
 * While small requests come, a CPU runs short batches: a small request waits for the end of one,
 * and then for its own, which holds small ones alone as long as large ones are not behind
 * (`small_lead`). Each short batch would read the weights of a large model from memory again, which
 * takes about as long as its products in a dtype faster than float32 (`prefers_wide`): such a model
 * runs one wide batch at a time instead, which takes as long and reads them once for the tokens of
 * all workers. If the model runs nothing else, cores for all its workers are free, and too few
 * tokens are ready to feed each worker, one worker runs a wide batch, whose operations all workers'
 * threads share.
 *
 * MaxSim: the requests of a batch have queries of their own, as many as the device has room for.
 *
 * Coalescing: an item with the tokens and row key of one in flight is not computed. It joins that
 * batch and gets a copy of the row.
 */
#include "lib/base/clock.h"
#include "lib/runtime/scheduler/batcher_internal.h"

/* The quantum of a turn is this part of the largest batch. */
#define QUANTA_A_BATCH 32
/* Small requests are expected during this many batches after the last one. */
#define RECENT_BATCHES 512
/* Short batches, on a CPU while small requests are expected: of large requests, of small ones. */
#define SHORT_TOKENS 64
#define SHORT_SMALL_TOKENS 32
/* Tokens that batches of small requests alone may take before large ones make up for them. */
#define MAX_SMALL_LEAD 128
/* Maximum number of requests visited for a batch; those with another batch key are skipped. */
#define MAX_VISITS 4096
/* Maximum number of visited requests in a row whose next item exceeds the rest of the budget. */
#define MAX_MISFITS 16

/* Cost of a token by class: the reciprocals of the weights 16 : 4 : 1. */
static const uint64_t costs[GSV_PRIORITY_CLASSES] = {
    [GPUSERVE_PRIORITY_NORMAL] = 4,
    [GPUSERVE_PRIORITY_HIGH] = 1,
    [GPUSERVE_PRIORITY_LOW] = 16,
};

/* ----------------------------------------------------------------------------------- classes */

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

/* The class with the least virtual time among those with ready items that are not done yet. */
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

/* A partial batch waits at most `max_wait_ns`; a request close to its deadline does not wait. */
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

/* Skip items whose row is known already: from the cache or by coalescing. */
static void skip_cached(const gpuserve_request *request, struct gsv_chunk *chunk)
{
    while (chunk->next < chunk->end && request->items[chunk->next].is_cached)
        chunk->next++;
}

/* The first chunk with an item to take; NULL if none is ready. */
static struct gsv_chunk *ready_chunk(gpuserve_request *request)
{
    for (size_t i = request->first_chunk; i < request->n_chunks; i++) {
        struct gsv_chunk *chunk = &request->chunks[i];

        if (chunk->state == GSV_CHUNK_RAW)
            return NULL; /* all later ones are raw, too */
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

/* --------------------------------------------------------------------------- in-flight table */

static struct gsv_part **bucket_of(struct gsv_batcher *batcher, uint64_t hash)
{
    return &batcher->in_flight[hash & (batcher->n_in_flight_buckets - 1)];
}

static const struct gsv_item *item_of(const struct gsv_part *part)
{
    return &part->request->items[part->item];
}

/* A query in flight is borrowed from its caller, so equal addresses have equal contents. */
static bool has_same_query(const gpuserve_request *a, const gpuserve_request *b)
{
    return a->job.query_vectors == b->job.query_vectors &&
           a->job.n_query_vectors == b->job.n_query_vectors;
}

/* The part in flight with this item's tokens, query and row key; NULL if none. */
static struct gsv_part *find_in_flight(struct gsv_batcher *batcher, const gpuserve_request *request,
                                       const struct gsv_chunk *chunk, const struct gsv_item *item)
{
    const struct gsv_tokens wanted = gsv_tokens_of(chunk, item);
    struct gsv_part *part;

    if (request->job.cache == GPUSERVE_CACHE_OFF)
        return NULL;
    for (part = *bucket_of(batcher, item->hash); part; part = part->next_in_flight) {
        const struct gsv_tokens flying = gsv_tokens_of(part->chunk, item_of(part));

        if (item_of(part)->hash == item->hash && has_same_query(part->request, request) &&
            gsv_same_row_key(&part->request->key, &request->key) &&
            gsv_tokens_equal(&flying, &wanted))
            return part;
    }
    return NULL;
}

void gsv_in_flight_remove(struct gsv_batcher *batcher, const struct gsv_part *part)
{
    struct gsv_part **link = bucket_of(batcher, item_of(part)->hash);

    while (*link && *link != part)
        link = &(*link)->next_in_flight;
    if (*link)
        *link = part->next_in_flight;
}

/* Coalesce an item with an equal one in flight; false if none is, or that batch is full. */
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

/* The batch has the query of a request, or the capacity for it. */
static bool fits_query(const struct gsv_batch *batch, const gpuserve_request *request)
{
    return request->query_batch == batch->id ||
           (size_t)batch->n_query_rows + request->job.n_query_vectors <= GPUSERVE_MAX_QUERY_VECTORS;
}

/* Add the query of a request to a batch, with its first item: several turns share the rows. */
static void add_query(struct gsv_batch *batch, gpuserve_request *request)
{
    if (request->query_batch == batch->id)
        return;
    request->query_batch = batch->id;
    request->query_row = batch->n_query_rows;
    batch->n_query_rows += (int32_t)request->job.n_query_vectors;
}

static void add_item(struct gsv_batcher *batcher, struct gsv_batch *batch,
                     gpuserve_request *request, struct gsv_chunk *chunk)
{
    struct gsv_part *part = &batch->parts[batch->n_parts];
    const int32_t n_tokens = (int32_t)request->items[chunk->next].n_tokens;

    add_query(batch, request);
    *part = (struct gsv_part){ .request = request,
                               .chunk = chunk,
                               .item = chunk->next,
                               .batch = batch,
                               .number = batch->n_parts++,
                               .query_row = request->query_row };
    if (request->job.cache != GPUSERVE_CACHE_OFF) {
        struct gsv_part **bucket = bucket_of(batcher, item_of(part)->hash);

        part->next_in_flight = *bucket;
        *bucket = part;
    }
    batch->n_tokens += n_tokens;
    batch->longest = n_tokens > batch->longest ? n_tokens : batch->longest;
    batcher->classes[request->job.priority].served +=
        (uint64_t)n_tokens * costs[request->job.priority];
    leave_class(batcher, request, chunk, batch->formed_ns);
}

/* One turn: take items of a request up to `turn_tokens`; the first may exceed them. True if any was
 * taken. */
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
            leave_class(batcher, request, chunk, batch->formed_ns);
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

/* One round over a list of a class, including the requests that move to its end meanwhile. */
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
        if (gsv_is_expired(request, batch->formed_ns)) {
            gsv_expire(batcher, request);
            continue;
        }
        if (batch->n_parts == 0)
            batch->key = request->key;
        if (!gsv_same_batch_key(&request->key, &batch->key) || !fits_query(batch, request))
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

/* Token budget of small requests in a batch, next to large ones. */
static int32_t small_budget(const struct gsv_batcher *batcher,
                            const struct gsv_priority_class *class, int32_t budget)
{
    const int32_t turn_tokens = turn_tokens_of(batcher), half = budget / 2;

    if (gsv_list_is_empty(&class->ready))
        return budget;
    return budget - (turn_tokens < half ? turn_tokens : half);
}

static void lower_small_lead(struct gsv_batcher *batcher, int32_t tokens)
{
    batcher->small_lead -= tokens < batcher->small_lead ? tokens : batcher->small_lead;
}

static void fill_from(struct gsv_batcher *batcher, struct gsv_batch *batch, struct gsv_link *list,
                      int32_t budget, int *visits)
{
    while (batch->n_tokens<budget && * visits> 0 &&
           serve_round(batcher, batch, list, budget, visits))
        continue;
}

/* Small requests, then large ones, then small ones with the rest of the budget. */
static void serve_class(struct gsv_batcher *batcher, struct gsv_batch *batch,
                        struct gsv_priority_class *class, int32_t budget, int *visits)
{
    int32_t begin;

    fill_from(batcher, batch, &class->small, small_budget(batcher, class, budget), visits);
    begin = batch->n_tokens;
    fill_from(batcher, batch, &class->ready, budget, visits);
    lower_small_lead(batcher, batch->n_tokens - begin);
    fill_from(batcher, batch, &class->small, budget, visits);
}

/* Try to get the cores of all workers for the next batch; true if it may run wide. */
static bool widen(const struct gsv_batcher *batcher)
{
    return batcher->options.has_wide && batcher->n_running == 0 &&
           (batcher->n_raw_chunks == 0 || gsv_has_enough(batcher)) &&
           (!batcher->options.cores ||
            gsv_cores_widen(batcher->options.cores, batcher->options.n_workers));
}

/* Batches are short, see the head of this file: large requests are ready, small ones come. */
static bool is_short(const struct gsv_batcher *batcher)
{
    bool has_large = false;

    for (size_t i = 0; i < GSV_PRIORITY_CLASSES; i++)
        has_large = has_large || !gsv_list_is_empty(&batcher->classes[i].ready);
    return has_large && batcher->options.cores && batcher->n_since_small < RECENT_BATCHES &&
           batcher->options.max_batch_tokens > GSV_FEW_TOKENS;
}

bool gsv_waits_for_batch(const struct gsv_batcher *batcher)
{
    return batcher->options.prefers_wide && batcher->n_running > 0 && is_short(batcher);
}

/* The next batch holds small requests alone: the class that comes first has some. */
static bool is_small_alone(struct gsv_batcher *batcher)
{
    const bool is_done[GSV_PRIORITY_CLASSES] = { false };
    const struct gsv_priority_class *class = next_ready_class(batcher, is_done);

    return class && !gsv_list_is_empty(&class->small) && is_short(batcher) &&
           batcher->small_lead < MAX_SMALL_LEAD;
}

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* Token budget of the next batch: see the head of this file. */
static int32_t choose_budget(const struct gsv_batcher *batcher, bool *is_wide)
{
    const struct gsv_batcher_options *options = &batcher->options;
    const size_t max_tokens = (size_t)options->max_batch_tokens, n = (size_t)batcher->n_slots;
    const size_t cached =
        options->cached_tokens < options->max_batch_tokens ? (size_t)options->cached_tokens : 0;
    const bool another = batcher->n_sleeping > 0 && batcher->free_batches; /* may start, too */
    const size_t min_tokens = another ? GSV_MIN_TOKENS : GSV_FEW_TOKENS;
    const bool are_few = batcher->ready_tokens <= n * GSV_FEW_TOKENS, has_short = is_short(batcher);
    size_t each = divide_up(batcher->ready_tokens, n);

    *is_wide = (are_few || (has_short && options->prefers_wide)) && widen(batcher);
    if (has_short && !*is_wide)
        return SHORT_TOKENS;
    if (has_short && !are_few && n * SHORT_TOKENS < max_tokens)
        return (int32_t)(n * SHORT_TOKENS);
    if (*is_wide)
        return (int32_t)max_tokens;
    if (cached > 0 && each > cached)
        each = divide_up(each, divide_up(each, cached));
    each = each < min_tokens ? min_tokens : each;
    return (int32_t)(each < max_tokens ? each : max_tokens);
}

/* Mark the next ready class as done, and advance the batcher's virtual time to that of the class.
 */
static struct gsv_priority_class *begin_class(struct gsv_batcher *batcher,
                                              bool is_done[GSV_PRIORITY_CLASSES])
{
    struct gsv_priority_class *class = next_ready_class(batcher, is_done);

    if (!class)
        return NULL;
    if (class->served > batcher->served)
        batcher->served = class->served;
    is_done[class - batcher->classes] = true;
    return class;
}

/* Small requests of all classes, in the order of their virtual times. */
static void form_small_batch(struct gsv_batcher *batcher, struct gsv_batch *batch, int *visits)
{
    bool is_done[GSV_PRIORITY_CLASSES] = { false };
    struct gsv_priority_class *class;

    while (batch->n_tokens < SHORT_SMALL_TOKENS && (class = begin_class(batcher, is_done)))
        fill_from(batcher, batch, &class->small, SHORT_SMALL_TOKENS, visits);
    batcher->small_lead += batch->n_tokens;
}

/* Requests of all classes, in the order of their virtual times. */
static void form_mixed_batch(struct gsv_batcher *batcher, struct gsv_batch *batch, int32_t budget,
                             int *visits)
{
    bool is_done[GSV_PRIORITY_CLASSES] = { false };
    struct gsv_priority_class *class;

    while (batch->n_tokens < budget && (class = begin_class(batcher, is_done)))
        serve_class(batcher, batch, class, budget, visits);
}

void gsv_form_batch(struct gsv_batcher *batcher, struct gsv_batch *batch)
{
    const int32_t budget = choose_budget(batcher, &batch->is_wide);
    int visits = MAX_VISITS;

    batch->n_parts = batch->n_coalesced = batch->n_tokens = batch->longest = 0;
    batch->n_query_rows = 0;
    batch->id = ++batcher->n_formed;
    batch->is_inline = batch->is_retry = false;
    batch->formed_ns = gsv_now_ns();
    batcher->n_since_small += batcher->n_since_small < RECENT_BATCHES;
    if ((!batch->is_wide || batcher->options.prefers_wide) && is_small_alone(batcher))
        form_small_batch(batcher, batch, &visits);
    else
        form_mixed_batch(batcher, batch, budget, &visits);
    /* A single long text with nothing else ready: only its operations can be divided. */
    if (batch->n_parts == 1 && !batch->is_wide && batcher->ready_tokens == 0)
        batch->is_wide = widen(batcher);
    if (batch->n_parts == 0 && batch->is_wide && batcher->options.cores)
        gsv_cores_narrow(batcher->options.cores, batcher->options.n_workers);
}
