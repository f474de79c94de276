/*
 * admission.c - admission control of a queue (backpressure): a request is admitted whole or
 * rejected, before any work on it.
 *
 * A queue bounds tokens, bytes, and `in_time`: the tokens that run within max_queue_ns at the
 * recent throughput. Admission is fair between clients, by capacity classes:
 *
 *   - Of tokens and bytes, large requests may fill the smallest part of the bound. Small requests
 *     may fill more, and small ones of clients with few queued tokens all of it.
 *   - Of tokens by time (in_time), large requests are counted apart, so small ones take no
 *     capacity from them. Small requests have a reserve that large ones cannot fill. Small ones of
 *     clients with few queued tokens have a further reserve, and so does a large request of a
 *     client with nothing in the queue. The total is at most 7/4 in_time.
 *
 * Waiting line: a client whose large request is refused by time gets a place in a FIFO line, and
 * its capacity is kept from the clients behind it when it returns. Otherwise clients that send
 * again at once would take each released capacity before the ones that wait as told. A client loses
 * its place when it is admitted, or when it has not returned after twice retry_after_ms. A client
 * with queued work yields to one without. The line never leaves the device idle: with less than
 * MIN_LARGE large requests in the queue the next one is admitted, whoever waits.
 *
 * Quota: a token bucket. A request takes its estimated tokens at admission, and gets back at its
 * release what it did not compute.
 *
 * retry_after_ms is the time until enough is released, for the clients ahead too. Small requests
 * run first, so their tokens are released at the recent throughput. Large ones share the device
 * equally, and each one that ends below the limit is followed by one of a client ahead
 * (work_until). The rate of their progress is measured by wall time (struct gsv_drain): unlike the
 * throughput of a batch it contains tokenizing, small requests and other programs on the same
 * cores. The time told is a little shorter than expected (EARLY): clients that return late leave
 * the queue empty.
 */
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/scheduler/batcher_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define RETRY_MIN_MS 10
#define RETRY_MAX_MS 3600000
#define RETRY_UNKNOWN_MS 100
#define TIMED_SHARE 8       /* maximum reservation: in_time / TIMED_SHARE */
#define BATCHES_WAITING 2   /* for each worker, at any throughput */
#define SMALL_SHARE 32      /* small request of several texts: at most in_time / SMALL_SHARE, */
#define SMALL_BATCH_SHARE 8 /* and max_batch_tokens / SMALL_BATCH_SHARE */
#define LITTLE_SHARE 16     /* few queued tokens of a client: at most in_time / LITTLE_SHARE */
#define CHANGE_SHARE 64     /* in_time / CHANGE_SHARE: its small changes do not change what fits */
#define EARLY 0.85          /* share of the expected time that a client is told */
#define MAX_LARGE 128       /* large requests that retry_after_ms considers */
#define MIN_LARGE 1         /* large requests that keep a device busy */
#define RETURN_SLACK_NS 100000000 /* of a place in the waiting line, for the way of a request */

/* Capacity classes, from the lowest limit to the highest. */
enum capacity_class { CAPACITY_LARGE, CAPACITY_LARGE_FIRST, CAPACITY_SMALL, CAPACITY_SMALL_FIRST };

/* Quantity that a limit counts. */
enum bound { BOUND_TOKENS, BOUND_BYTES, BOUND_TIMED, BOUND_LARGE };

static uint64_t amount(const struct gsv_queue_reservation *reservation, enum bound bound)
{
    if (bound == BOUND_LARGE && reservation->is_small)
        return 0;
    return bound == BOUND_TOKENS  ? reservation->tokens
           : bound == BOUND_BYTES ? reservation->bytes
                                  : reservation->timed;
}

static uint64_t held(const struct gsv_batcher *batcher, enum bound bound)
{
    return amount(&batcher->reserved, bound) - (bound == BOUND_LARGE ? batcher->small_timed : 0);
}

/* Stochastic fairness queueing: clients share buckets by hash. A mixing hash (splitmix64 style)
 * keeps clients with adjacent numbers in different buckets. */
static struct gsv_client_usage *usage_of(struct gsv_batcher *batcher, uint64_t client)
{
    client = (client ^ client >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    client = (client ^ client >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return &batcher->usage[(client ^ client >> 32) % GSV_CLIENT_BUCKETS];
}

static uint64_t now_of(const struct gsv_batcher *batcher)
{
    return batcher->options.now_ns ? batcher->options.now_ns() : gsv_now_ns();
}

static uint64_t capacity_in_time(const struct gsv_batcher *batcher);

/* ------------------------------------------------------------------------------- retry-after */

static double work_of_item(const gpuserve_request *request)
{
    return request->job.n_items == 0 || request->reservation.is_small
               ? 0
               : (double)request->reservation.work / (double)request->job.n_items;
}

/* An average with a horizon of a full queue: older progress counts less. */
void gsv_learn_drain(struct gsv_batcher *batcher, const struct gsv_batch *batch)
{
    struct gsv_drain *drain = &batcher->drain;
    const uint64_t now_ns = now_of(batcher);
    const double horizon = (double)capacity_in_time(batcher);
    double work = 0, decay;

    for (int32_t i = 0; i < batch->n_parts; i++)
        work += work_of_item(batch->parts[i].request);
    for (int32_t i = 0; i < batch->n_coalesced; i++)
        work += work_of_item(batch->coalesced[i].request);
    decay = horizon > 0 ? horizon / (horizon + work) : 1;
    if (drain->since_ns > 0 && now_ns >= drain->since_ns) {
        drain->work = (drain->work + work) * decay;
        drain->ns = (drain->ns + (double)(now_ns - drain->since_ns)) * decay;
    }
    drain->since_ns = batcher->n_large > 0 ? now_ns : 0;
}

/* Work of large requests per nanosecond. Before enough was seen, the throughput of batches. */
static double drain_rate(const struct gsv_batcher *batcher)
{
    const struct gsv_drain *drain = &batcher->drain;
    const double speed = batcher->tokens_per_ns;
    const double assumed = (double)capacity_in_time(batcher) / TIMED_SHARE;

    return (drain->work + assumed) / (drain->ns + assumed / speed);
}

/* Amount that a large request releases at its end, and its tokens not computed yet. */
struct release {
    uint64_t remaining, amount;
    bool has_ended;
};

static int compare_remaining(const void *a, const void *b)
{
    const struct release *x = a, *y = b;

    return (x->remaining > y->remaining) - (x->remaining < y->remaining);
}

static uint64_t remaining_of(const gpuserve_request *request)
{
    const size_t n = request->job.n_items, left = request->n_untaken + request->n_in_flight;

    return n == 0 || left >= n
               ? request->reservation.work
               : (uint64_t)((double)request->reservation.work * (double)left / (double)n);
}

/* List the large requests by remaining work; reduces *small_amount to the amount of small ones. */
static size_t list_releases(struct gsv_batcher *batcher, enum bound bound,
                            struct release releases[MAX_LARGE], uint64_t *small_amount)
{
    size_t n = 0;

    for (struct gsv_link *link = batcher->large.after; link != &batcher->large && n < MAX_LARGE;
         link = link->after) {
        const gpuserve_request *request = gsv_of_large(link);

        releases[n] = (struct release){ .remaining = remaining_of(request),
                                        .amount = amount(&request->reservation, bound) };
        *small_amount -= releases[n++].amount;
    }
    qsort(releases, n, sizeof(releases[0]), compare_remaining);
    return n;
}

/* A refused request, and what it waits for. */
struct refused {
    enum bound bound;
    uint64_t limit;
    uint64_t holds, needs;
    uint64_t ahead; /* capacity kept for the clients ahead in the waiting line */
    uint64_t work;
};

/* The clients ahead return with requests like this one: to free capacity at once. */
static size_t add_ahead(struct refused *refused, struct release *releases, size_t n)
{
    uint64_t holds = refused->holds;

    while (n < MAX_LARGE && refused->needs > 0 && refused->ahead >= refused->needs &&
           holds + refused->needs <= refused->limit) {
        refused->ahead -= refused->needs;
        holds += refused->needs;
        releases[n++] = (struct release){ .remaining = refused->work, .amount = refused->needs };
    }
    return n;
}

/* Work until `excess` is released by large requests. They share the device: all get as much work,
 * and the one with the least remaining work ends next. While clients are ahead, one takes the
 * released capacity below the limit with a request like this one; later fewer and fewer share. */
static double work_until(struct refused refused, struct release *releases, size_t n,
                         uint64_t excess)
{
    const uint64_t over = refused.holds > refused.limit ? refused.holds - refused.limit : 0;
    uint64_t released = 0, served = 0; /* work that each request got */
    double total = 0;
    size_t n_active;

    n = n_active = add_ahead(&refused, releases, n);
    for (size_t i = 0; n_active > 0 && released < excess; i = i + 1 < n ? i + 1 : 0) {
        struct release *next = &releases[i];

        if (next->has_ended)
            continue;
        if (next->remaining > served) {
            total += (double)n_active * (double)(next->remaining - served);
            served = next->remaining;
        }
        released += next->amount;
        next->has_ended = released <= over || refused.ahead < refused.needs || refused.needs == 0;
        n_active -= next->has_ended;
        if (!next->has_ended) {
            refused.ahead -= refused.needs;
            next->remaining += refused.work;
            next->amount = refused.needs;
        }
    }
    return total;
}

static uint32_t retry_after_ms(struct gsv_batcher *batcher, const struct refused *refused)
{
    struct release releases[MAX_LARGE];
    const uint64_t excess = refused->holds + refused->ahead + refused->needs - refused->limit;
    uint64_t small = refused->holds;
    const size_t n = list_releases(batcher, refused->bound, releases, &small);
    double ns = (double)batcher->small_timed / batcher->tokens_per_ns, ms;

    if (!(batcher->tokens_per_ns > 0))
        return RETRY_UNKNOWN_MS;
    if (excess <= small)
        ns *= (double)excess / (double)small;
    else
        ns += work_until(*refused, releases, n, excess - small) / drain_rate(batcher);
    ms = EARLY * ns / 1e6;
    return ms < RETRY_MIN_MS ? RETRY_MIN_MS : ms > RETRY_MAX_MS ? RETRY_MAX_MS : (uint32_t)ms;
}

static struct refused refuse(const struct gsv_batcher *batcher, enum bound bound,
                             const struct gsv_queue_reservation *reservation, uint64_t limit,
                             uint64_t ahead)
{
    return (struct refused){ .bound = bound,
                             .limit = limit,
                             .holds = held(batcher, bound),
                             .needs = amount(reservation, bound),
                             .ahead = ahead,
                             .work = reservation->work };
}

static gpuserve_status fail_busy(struct gsv_batcher *batcher, const struct refused *refused,
                                 uint64_t maximum, gpuserve_error *error)
{
    static const char *const options[] = { "max_queue_tokens", "max_queue_bytes", "max_queue_ms",
                                           "max_queue_ms" };
    char reserved[64] = "";

    if (refused->ahead > 0)
        snprintf(reserved, sizeof(reserved), ", %" PRIu64 " are kept for waiting clients",
                 refused->ahead);
    gsv_fail(error, GPUSERVE_E_BUSY,
             "the queue holds %" PRIu64 " %s of %" PRIu64 " (%" PRIu64
             " for this priority class)%s, this request needs %" PRIu64,
             refused->holds, refused->bound == BOUND_BYTES ? "bytes" : "tokens", maximum,
             refused->limit, reserved, refused->needs);
    gsv_hint(error, GPUSERVE_E_BUSY, "try again later, or raise %s", options[refused->bound]);
    return gsv_retry_after(error, GPUSERVE_E_BUSY, retry_after_ms(batcher, refused));
}

/* -------------------------------------------------------------------------------- waiting line */

struct waiting_line {
    uint64_t timed; /* capacity of the clients ahead */
    size_t n;
};

static void leave_line(struct gsv_client_usage *usage)
{
    gsv_list_remove(&usage->waiting);
    usage->waiting_timed = 0;
}

/* The clients ahead of this one, all if it has no place. Drops those that did not return. */
static struct waiting_line line_ahead(struct gsv_batcher *batcher,
                                      const struct gsv_client_usage *usage)
{
    struct waiting_line ahead = { 0 };
    struct gsv_link *link = batcher->waiting.after;
    const uint64_t now_ns = link == &batcher->waiting ? 0 : now_of(batcher);

    while (link != &batcher->waiting && link != &usage->waiting) {
        struct gsv_client_usage *other = gsv_of_waiting(link);

        link = link->after;
        if (now_ns > other->waiting_until_ns) {
            leave_line(other);
        } else if (other->n_requests == 0 || usage->n_requests > 0) {
            ahead.timed += other->waiting_timed;
            ahead.n++;
        }
    }
    return ahead;
}

/* Join the line, or keep the place in it. */
static void join_line(struct gsv_batcher *batcher, struct gsv_client_usage *usage, uint64_t timed,
                      uint32_t after_ms)
{
    if (usage->waiting_timed == 0)
        gsv_list_append(&batcher->waiting, &usage->waiting);
    usage->waiting_timed = timed > 0 ? timed : 1;
    usage->waiting_until_ns = now_of(batcher) + after_ms * UINT64_C(2000000) + RETURN_SLACK_NS;
}

/* ------------------------------------------------------------------------------------ limits */

/* Limit by time: the tokens that run within max_queue_ns at the recent throughput, but at least
 * enough to keep every worker busy. Until the second batch has run, the throughput is unknown and
 * only max_queue_tokens applies. The lock is held. */
static uint64_t capacity_in_time(const struct gsv_batcher *batcher)
{
    const struct gsv_batcher_options *options = &batcher->options;
    const uint64_t minimum =
        (uint64_t)options->max_batch_tokens * (uint64_t)options->n_workers * BATCHES_WAITING;
    const double capacity = batcher->tokens_per_ns * (double)options->max_queue_ns;

    if (options->max_queue_ns == 0 || !(capacity > 0) ||
        capacity >= (double)options->max_queue_tokens)
        return options->max_queue_tokens;
    return capacity > (double)minimum ? (uint64_t)capacity : minimum;
}

static enum capacity_class class_of(struct gsv_batcher *batcher,
                                    const struct gsv_queue_reservation *reservation,
                                    uint64_t in_time)
{
    const struct gsv_client_usage *usage = usage_of(batcher, reservation->client);

    if (!reservation->is_small)
        return usage->n_requests > 0 ? CAPACITY_LARGE : CAPACITY_LARGE_FIRST;
    return usage->timed + reservation->timed > in_time / LITTLE_SHARE ? CAPACITY_SMALL
                                                                      : CAPACITY_SMALL_FIRST;
}

/* Limit of tokens or bytes for a class. A request of half the bound fits into an empty queue in any
 * class. */
static uint64_t limit_within(uint64_t bound, enum capacity_class class)
{
    static const uint64_t sixteenths[] = { 3, 2, 1, 0 };

    return bound - bound / 16 * sixteenths[class];
}

static bool fits(const struct gsv_batcher *batcher, const struct gsv_queue_reservation *reservation,
                 enum bound bound, uint64_t limit)
{
    const uint64_t holds = held(batcher, bound);

    return holds <= limit && amount(reservation, bound) <= limit - holds;
}

static gpuserve_status check_bound(struct gsv_batcher *batcher,
                                   const struct gsv_queue_reservation *reservation,
                                   enum bound bound, uint64_t maximum, enum capacity_class class,
                                   gpuserve_error *error)
{
    const uint64_t limit = limit_within(maximum, class);
    const struct refused refused = refuse(batcher, bound, reservation, limit, 0);

    return fits(batcher, reservation, bound, limit) ? GPUSERVE_OK
                                                    : fail_busy(batcher, &refused, maximum, error);
}

/* Large requests: the limit, less what is kept for the clients ahead in the waiting line. */
static gpuserve_status check_large(struct gsv_batcher *batcher,
                                   const struct gsv_queue_reservation *reservation,
                                   enum bound bound, uint64_t limit, uint64_t in_time,
                                   gpuserve_error *error)
{
    struct gsv_client_usage *usage = usage_of(batcher, reservation->client);
    const struct waiting_line ahead = line_ahead(batcher, usage);
    const uint64_t wanted = held(batcher, bound) + ahead.timed + reservation->timed;
    const struct refused refused = refuse(batcher, bound, reservation, limit, ahead.timed);

    if (batcher->n_reserved + ahead.n < TIMED_SHARE || batcher->n_large < MIN_LARGE ||
        wanted <= limit)
        return GPUSERVE_OK;
    join_line(batcher, usage, reservation->timed, retry_after_ms(batcher, &refused));
    return fail_busy(batcher, &refused, in_time + in_time / 4 * 3, error);
}

static gpuserve_status check_time(struct gsv_batcher *batcher,
                                  const struct gsv_queue_reservation *reservation, uint64_t in_time,
                                  enum capacity_class class, gpuserve_error *error)
{
    const uint64_t maximum = in_time + in_time / 4 * 3;
    const uint64_t large =
        (class == CAPACITY_LARGE_FIRST ? in_time + in_time / 8 : in_time) + in_time / CHANGE_SHARE;
    const uint64_t total = class == CAPACITY_LARGE_FIRST ? maximum : maximum - in_time / 8;
    const uint64_t small = class == CAPACITY_SMALL_FIRST ? in_time + in_time / 4 : in_time;
    const uint64_t reserve = class == CAPACITY_SMALL_FIRST ? in_time / 4 * 3 : in_time / 2;
    struct refused refused;
    gpuserve_status st;

    /* The first requests are always admitted, even if the throughput, and in_time with it, fell
     * since they were queued. */
    if (reservation->is_small) {
        refused = refuse(batcher, BOUND_TIMED, reservation, small, 0);
        return batcher->n_reserved < TIMED_SHARE ||
                       batcher->small_timed + reservation->timed <= reserve ||
                       fits(batcher, reservation, BOUND_TIMED, small)
                   ? GPUSERVE_OK
                   : fail_busy(batcher, &refused, maximum, error);
    }
    st = check_large(batcher, reservation, BOUND_LARGE, large, in_time, error);
    return st == GPUSERVE_OK ? check_large(batcher, reservation, BOUND_TIMED, total, in_time, error)
                             : st;
}

/* -------------------------------------------------------------------------------------- quota */

static void add_to_quota(struct gsv_batcher *batcher, double tokens)
{
    const double capacity = (double)batcher->options.max_tokens_per_second;

    batcher->quota = batcher->quota + tokens < capacity ? batcher->quota + tokens : capacity;
}

static gpuserve_status check_quota(struct gsv_batcher *batcher,
                                   const struct gsv_queue_reservation *reservation,
                                   gpuserve_error *error)
{
    const double rate = (double)batcher->options.max_tokens_per_second;
    const uint64_t now = now_of(batcher);
    double ms;

    if (rate <= 0 || reservation->work == 0)
        return GPUSERVE_OK;
    add_to_quota(batcher,
                 batcher->quota_ns ? rate * (double)(now - batcher->quota_ns) / 1e9 : rate);
    batcher->quota_ns = now;
    if (batcher->quota > 0)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_BUSY,
             "the model's quota of %" PRIu64
             " tokens per second (max_tokens_per_second) is used up",
             batcher->options.max_tokens_per_second);
    ms = 1 - batcher->quota / rate * 1e3;
    return gsv_retry_after(error, GPUSERVE_E_BUSY, ms < RETRY_MAX_MS ? (uint32_t)ms : RETRY_MAX_MS);
}

/* The lock is held. */
static gpuserve_status check_capacity(struct gsv_batcher *batcher,
                                      const struct gsv_queue_reservation *reservation,
                                      uint64_t in_time, gpuserve_error *error)
{
    const struct gsv_batcher_options *options = &batcher->options;
    const enum capacity_class class = class_of(batcher, reservation, in_time);
    gpuserve_status st;

    if (batcher->broken.status != GPUSERVE_OK) {
        gsv_error_copy(error, &batcher->broken);
        return (gpuserve_status)batcher->broken.status;
    }
    if (batcher->is_closing)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the model is being closed");
    st = check_bound(batcher, reservation, BOUND_TOKENS, options->max_queue_tokens, class, error);
    if (st == GPUSERVE_OK)
        st = check_time(batcher, reservation, in_time, class, error);
    if (st == GPUSERVE_OK)
        st = check_bound(batcher, reservation, BOUND_BYTES, options->max_queue_bytes, class, error);
    return st == GPUSERVE_OK ? check_quota(batcher, reservation, error) : st;
}

static uint64_t share_at_most(uint64_t wanted, uint64_t capacity, uint64_t share)
{
    return wanted < capacity / share ? wanted : capacity / share;
}

/* A request of one text is small unless it is a large part of in_time. */
static bool is_small(const struct gsv_batcher *batcher,
                     const struct gsv_queue_reservation *reservation, uint64_t in_time)
{
    const uint64_t of_batch = (uint64_t)batcher->options.max_batch_tokens / SMALL_BATCH_SHARE;

    if (reservation->n_items <= 1)
        return reservation->work <= in_time / TIMED_SHARE;
    return reservation->work <= in_time / SMALL_SHARE && reservation->work <= of_batch;
}

/* The lock is held. */
static void count_in(struct gsv_batcher *batcher, const struct gsv_queue_reservation *reservation)
{
    struct gsv_client_usage *usage = usage_of(batcher, reservation->client);

    if (!reservation->is_small)
        leave_line(usage);
    usage->timed += reservation->timed;
    usage->n_requests++;
    batcher->reserved.tokens += reservation->tokens;
    batcher->reserved.bytes += reservation->bytes;
    batcher->reserved.timed += reservation->timed;
    batcher->small_timed += reservation->is_small ? reservation->timed : 0;
    batcher->n_large += !reservation->is_small;
    if (batcher->n_large > 0 && batcher->drain.since_ns == 0)
        batcher->drain.since_ns = now_of(batcher);
    batcher->n_reserved++;
    batcher->n_requests++;
    batcher->quota -= (double)reservation->work;
}

gpuserve_status gsv_batcher_admit(struct gsv_batcher *batcher,
                                  struct gsv_queue_reservation *reservation, gpuserve_error *error)
{
    struct gsv_metrics *metrics = batcher->options.metrics;
    uint64_t in_time;
    gpuserve_status st;

    reservation->tokens = share_at_most(reservation->tokens, batcher->options.max_queue_tokens, 2);
    reservation->bytes = share_at_most(reservation->bytes, batcher->options.max_queue_bytes, 2);
    pthread_mutex_lock(&batcher->lock);
    in_time = capacity_in_time(batcher);
    reservation->timed = share_at_most(reservation->tokens, in_time, TIMED_SHARE);
    reservation->is_small = is_small(batcher, reservation, in_time);
    st = check_capacity(batcher, reservation, in_time, error);
    if (st == GPUSERVE_OK)
        count_in(batcher, reservation);
    pthread_mutex_unlock(&batcher->lock);
    if (st == GPUSERVE_OK) {
        atomic_fetch_add(&metrics->queued_tokens, reservation->tokens);
        atomic_fetch_add(&metrics->queued_bytes, reservation->bytes);
        atomic_fetch_add(&metrics->queued_requests, 1);
    }
    return st;
}

void gsv_batcher_release(struct gsv_batcher *batcher, struct gsv_queue_reservation *reservation)
{
    struct gsv_metrics *metrics = batcher->options.metrics;
    struct gsv_client_usage *usage = usage_of(batcher, reservation->client);

    atomic_fetch_sub(&metrics->queued_tokens, reservation->tokens);
    atomic_fetch_sub(&metrics->queued_bytes, reservation->bytes);
    atomic_fetch_sub(&metrics->queued_requests, 1);
    pthread_mutex_lock(&batcher->lock);
    gsv_list_remove(&reservation->link);
    usage->timed -= reservation->timed;
    usage->n_requests--;
    batcher->reserved.tokens -= reservation->tokens;
    batcher->reserved.bytes -= reservation->bytes;
    batcher->reserved.timed -= reservation->timed;
    batcher->small_timed -= reservation->is_small ? reservation->timed : 0;
    batcher->n_large -= !reservation->is_small;
    if (batcher->n_large == 0)
        batcher->drain.since_ns = 0;
    batcher->n_reserved--;
    add_to_quota(batcher, (double)reservation->work - (double)reservation->used);
    pthread_mutex_unlock(&batcher->lock);
}

void gsv_batcher_leave(struct gsv_batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    if (--batcher->n_requests == 0)
        pthread_cond_broadcast(&batcher->empty);
    pthread_mutex_unlock(&batcher->lock);
}
