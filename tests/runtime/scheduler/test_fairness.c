/*
 * test_fairness.c - fairness of the queue under bulk clients, on a simulated clock.
 *
 * The batcher is the real one. The test replaces its workers and the clock: a batch ends a
 * simulated time after it was formed, single texts arrive from a seeded generator, and bulk clients
 * send again on an answer or after retry_after_ms. One thread runs everything, so each run is
 * identical.
 */
#include "lib/base/error.h"
#include "lib/runtime/scheduler/batcher.h"
#include "lib/runtime/scheduler/batcher_internal.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_BULK = 100,
    MAX_PROBERS = 12, /* more than the queue takes, with one bulk client too */
    BULK_TEXTS = 200,
    TEXT_TOKENS = 14,
    WORKERS = 2,
    BATCH_TOKENS = 512,
    MAX_SEQUENCES = 128,
    SINGLE_CLIENT = 1000, /* client id of the single texts */
    MAX_LATENCIES = 100000,
    MIN_PROBED_BATCHES = 4, /* of one worker: capacity is released at the end of batches */
    FIXED_TOKENS = 2,       /* a batch on a CPU takes the time of these tokens more */
};

static const uint64_t forever = UINT64_MAX, ms = 1000000;

/* The simulation whose time the batcher reads. */
static const struct simulation *clocked;

/* How the queue identifies clients. */
enum identity { EACH_ITS_OWN, ALL_ONE };

struct bulk {
    uint64_t client;
    bool is_told; /* the last request was refused, with a time to return */
    size_t n_served;
    uint64_t send_ns; /* next send time; forever: has a queued request */
};

/* A client that returns after half of retry_after_ms, or after twice of it, in turn. */
struct prober {
    struct bulk bulk;
    uint64_t told_ns; /* 0: the last request was admitted */
    bool is_late;
};

struct prediction {
    struct bulk *bulk; /* NULL: none */
    uint64_t begun_ns, predicted_ns;
};

struct simulation {
    struct gsv_batcher *batcher;
    struct gsv_metrics metrics;
    struct gsv_batch batches[WORKERS];
    struct gsv_batch *running[WORKERS];
    uint64_t end_ns[WORKERS];
    uint64_t token_ns; /* on one worker */
    uint64_t now_ns;
    struct bulk bulk[MAX_BULK];
    size_t n_bulk;
    struct prober probers[MAX_PROBERS];
    size_t n_probers;
    size_t n_probes[2], n_probes_right[2]; /* early, late */
    double overhead;                       /* time between batches, of the time of a batch */
    uint64_t seed, single_ns, single_gap_ns, single_client;
    size_t n_singles, n_answered, n_refused;
    uint64_t computed; /* tokens */
    uint64_t longest_single_ns;
    uint64_t *latencies; /* [MAX_LATENCIES] of the answered single texts; NULL: not kept */
    struct gsv_cores cores;
    bool has_cores;     /* a CPU, whose workers also share the operations of a wide batch */
    uint64_t max_timed; /* max in the queue at any time */
    struct prediction prediction;
    size_t n_returns, n_returns_served; /* of clients that waited as told */
    size_t n_predictions, n_right, n_bulk_refused;
};

/* ------------------------------------------------------------------------------------ requests */

static struct gsv_queue_reservation charge_of(size_t n_texts, uint64_t client)
{
    return (struct gsv_queue_reservation){ .tokens = n_texts * TEXT_TOKENS,
                                           .work = n_texts * TEXT_TOKENS,
                                           .bytes = n_texts * 100,
                                           .n_items = n_texts,
                                           .client = client };
}

static gpuserve_request *make_request(size_t n_texts,
                                      const struct gsv_queue_reservation *reservation)
{
    gpuserve_request *request = calloc(1, sizeof(*request));

    request->job.n_items = n_texts;
    request->job.cache = GPUSERVE_CACHE_OFF;
    request->reservation = *reservation;
    request->items = calloc(n_texts, sizeof(*request->items));
    request->chunks = calloc(1, sizeof(*request->chunks));
    request->n_chunks = 1;
    request->chunks[0] = (struct gsv_chunk){ .state = GSV_CHUNK_READY,
                                             .end = n_texts,
                                             .n_left = n_texts,
                                             .n_tokens = n_texts * TEXT_TOKENS };
    for (size_t i = 0; i < n_texts; i++)
        request->items[i].n_tokens = TEXT_TOKENS;
    return request;
}

/* 0, or the nanoseconds until the retry. */
static uint64_t send(struct simulation *s, size_t n_texts, uint64_t client, void *user)
{
    struct gsv_queue_reservation reservation = charge_of(n_texts, client);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_request *request;

    if (gsv_batcher_admit(s->batcher, &reservation, &error) != GPUSERVE_OK) {
        cr_assert_eq(error.status, GPUSERVE_E_BUSY, "%s", error.message);
        cr_assert_gt(error.retry_after_ms, 0);
        return error.retry_after_ms * ms;
    }
    if (s->batcher->reserved.timed > s->max_timed)
        s->max_timed = s->batcher->reserved.timed;
    request = make_request(n_texts, &reservation);
    request->user = user;
    request->submitted_ns = s->now_ns;
    gsv_batcher_enqueue(s->batcher, request);
    return 0;
}

static void end_request(struct simulation *s, gpuserve_request *request)
{
    struct bulk *bulk = request->user;

    cr_assert_eq(request->failure, GPUSERVE_OK);
    gsv_batcher_release(s->batcher, &request->reservation);
    gsv_batcher_leave(s->batcher);
    if (bulk) {
        bulk->send_ns = s->now_ns;
    } else {
        const uint64_t took = s->now_ns - request->submitted_ns;

        if (s->latencies && s->n_answered < MAX_LATENCIES)
            s->latencies[s->n_answered] = took;
        s->n_answered++;
        s->longest_single_ns = took > s->longest_single_ns ? took : s->longest_single_ns;
    }
    free(request->items);
    free(request->chunks);
    free(request);
}

/* --------------------------------------------------------------------------------------- clock */

static double next_random(struct simulation *s)
{
    s->seed ^= s->seed << 13;
    s->seed ^= s->seed >> 7;
    s->seed ^= s->seed << 17;
    return ((double)(s->seed >> 11) + 1) / 9007199254740993.0;
}

static uint64_t duration_of(const struct simulation *s, const struct gsv_batch *batch)
{
    const uint64_t tokens = (uint64_t)batch->n_tokens;

    if (!s->has_cores)
        return tokens * s->token_ns;
    return (FIXED_TOKENS + tokens / (batch->is_wide ? WORKERS : 1)) * s->token_ns;
}

static uint64_t now_of_simulation(void)
{
    return clocked->now_ns + 1; /* 0 is no time */
}

/* All cores compute: a worker would wait for one. */
static bool is_full(const struct simulation *s)
{
    return s->has_cores && s->cores.n_busy >= s->cores.n;
}

static void begin_batches(struct simulation *s)
{
    for (int i = 0; i < WORKERS; i++) {
        struct gsv_step step;

        if (s->running[i] || s->batcher->ready_tokens == 0 || is_full(s) ||
            gsv_waits_for_batch(s->batcher))
            continue;
        step = gsv_batcher_next(s->batcher, 0);
        cr_assert_eq(step.kind, GSV_STEP_RUN);
        s->running[i] = step.batch;
        s->end_ns[i] =
            s->now_ns + (uint64_t)((double)duration_of(s, step.batch) * (1 + s->overhead));
    }
}

static void end_batches(struct simulation *s)
{
    for (int i = 0; i < WORKERS; i++) {
        struct gsv_batch *batch = s->running[i];
        gpuserve_request *over;

        if (!batch || s->end_ns[i] > s->now_ns)
            continue;
        s->running[i] = NULL;
        s->computed += (uint64_t)batch->n_tokens;
        over = gsv_batcher_ran(s->batcher, batch, duration_of(s, batch), GPUSERVE_OK, NULL);
        while (over) {
            gpuserve_request *next = over->next_to_complete;

            end_request(s, over);
            over = next;
        }
    }
}

/* Sends for one refused bulk client at every event, to see when it is admitted. */
static void check_prediction(struct simulation *s)
{
    struct prediction *p = &s->prediction;
    const uint64_t batch_ns = BATCH_TOKENS * s->token_ns, took = s->now_ns - p->begun_ns;

    if (!p->bulk || send(s, BULK_TEXTS, p->bulk->client, p->bulk) > 0)
        return;
    p->bulk->send_ns = forever;
    p->bulk->is_told = false;
    p->bulk->n_served++;
    p->bulk = NULL;
    s->n_predictions++;
    /* Capacity is released at the end of batches, so one batch is the precision of the
     * prediction. */
    s->n_right += p->predicted_ns <= 2 * took + batch_ns && took <= 2 * p->predicted_ns + batch_ns;
}

static void send_bulk(struct simulation *s)
{
    for (size_t i = 0; i < s->n_bulk; i++) {
        struct bulk *bulk = &s->bulk[i];
        uint64_t retry_ns;

        if (bulk->send_ns > s->now_ns)
            continue;
        retry_ns = send(s, BULK_TEXTS, bulk->client, bulk);
        s->n_returns += bulk->is_told;
        s->n_returns_served += bulk->is_told && retry_ns == 0;
        bulk->n_served += retry_ns == 0;
        bulk->is_told = retry_ns > 0;
        bulk->send_ns = retry_ns > 0 ? s->now_ns + retry_ns : forever;
        s->n_bulk_refused += retry_ns > 0;
        if (retry_ns > 0 && !s->prediction.bulk) {
            s->prediction = (struct prediction){ bulk, s->now_ns, retry_ns };
            bulk->send_ns = forever;
        }
    }
}

static void send_probers(struct simulation *s)
{
    for (size_t i = 0; i < s->n_probers; i++) {
        struct prober *prober = &s->probers[i];
        uint64_t told_ns;

        if (prober->bulk.send_ns > s->now_ns)
            continue;
        told_ns = send(s, BULK_TEXTS, prober->bulk.client, &prober->bulk);
        if (prober->told_ns > MIN_PROBED_BATCHES * BATCH_TOKENS * s->token_ns) {
            s->n_probes[prober->is_late]++;
            s->n_probes_right[prober->is_late] += prober->is_late == (told_ns == 0);
        }
        if (prober->told_ns > 0)
            prober->is_late = !prober->is_late;
        prober->told_ns = told_ns;
        prober->bulk.send_ns = told_ns == 0      ? forever
                               : prober->is_late ? s->now_ns + 2 * told_ns
                                                 : s->now_ns + told_ns / 2;
    }
}

static void send_singles(struct simulation *s)
{
    while (s->single_ns <= s->now_ns) {
        s->n_singles++;
        s->n_refused += send(s, 1, s->single_client, NULL) > 0;
        s->single_ns += (uint64_t)(-log(next_random(s)) * (double)s->single_gap_ns) + 1;
    }
}

static uint64_t next_event(const struct simulation *s)
{
    uint64_t next = s->single_ns;

    for (int i = 0; i < WORKERS; i++) {
        if (s->running[i] && s->end_ns[i] < next)
            next = s->end_ns[i];
    }
    for (size_t i = 0; i < s->n_bulk; i++) {
        if (s->bulk[i].send_ns < next)
            next = s->bulk[i].send_ns;
    }
    for (size_t i = 0; i < s->n_probers; i++) {
        if (s->probers[i].bulk.send_ns < next)
            next = s->probers[i].bulk.send_ns;
    }
    return next;
}

static void run_until(struct simulation *s, uint64_t until_ns)
{
    while (s->now_ns < until_ns) {
        end_batches(s);
        check_prediction(s);
        send_bulk(s);
        send_probers(s);
        send_singles(s);
        begin_batches(s);
        s->now_ns = next_event(s);
    }
}

/* --------------------------------------------------------------------------------------- setup */

static struct simulation *start_on(bool has_cores, size_t n_bulk, enum identity identity,
                                   uint64_t token_ns)
{
    struct simulation *s = calloc(1, sizeof(*s));
    struct gsv_batcher_options options = { .max_queue_tokens = 1000000,
                                           .max_queue_bytes = 1000000000,
                                           .max_queue_ns = 500 * ms,
                                           .max_batch_tokens = BATCH_TOKENS,
                                           .max_sequences = MAX_SEQUENCES,
                                           .n_workers = WORKERS,
                                           .n_replicas = 1,
                                           .now_ns = now_of_simulation };

    clocked = s;
    gsv_cores_init(&s->cores, WORKERS);
    s->has_cores = options.has_wide = has_cores;
    options.cores = has_cores ? &s->cores : NULL;
    options.metrics = &s->metrics;
    options.completions = gsv_completions_create();
    cr_assert_not_null(options.completions);
    cr_assert_eq(gsv_batcher_create(&s->batcher, &options, NULL), GPUSERVE_OK);
    gsv_completions_unref(&options.completions);
    for (int i = 0; i < WORKERS; i++) {
        s->batches[i].parts = calloc(MAX_SEQUENCES, sizeof(struct gsv_part));
        s->batches[i].coalesced = calloc(MAX_SEQUENCES, sizeof(struct gsv_part));
        gsv_batcher_add_batch(s->batcher, &s->batches[i]);
    }
    s->n_bulk = n_bulk;
    for (size_t i = 0; i < n_bulk; i++)
        s->bulk[i].client = identity == ALL_ONE ? SINGLE_CLIENT : i + 1;
    s->single_client = SINGLE_CLIENT;
    s->token_ns = token_ns;
    s->seed = 88172645463325252u;
    s->single_gap_ns = TEXT_TOKENS * token_ns / WORKERS * 5; /* 20 % of the workers' throughput */
    return s;
}

static struct simulation *start(size_t n_bulk, enum identity identity, uint64_t token_ns)
{
    return start_on(false, n_bulk, identity, token_ns);
}

static void end(struct simulation *s)
{
    for (size_t i = 0; i < s->n_bulk; i++) { /* no new requests; queued ones complete */
        s->bulk[i].send_ns = s->bulk[i].send_ns == forever ? forever : forever - 1;
    }
    s->single_ns = forever - 1;
    while (s->batcher->n_requests > 0) {
        end_batches(s);
        for (size_t i = 0; i < s->n_bulk; i++)
            s->bulk[i].send_ns = forever;
        for (size_t i = 0; i < s->n_probers; i++)
            s->probers[i].bulk.send_ns = forever;
        begin_batches(s);
        if (s->batcher->n_requests > 0)
            s->now_ns = next_event(s);
    }
    cr_expect_eq(s->batcher->reserved.tokens, 0);
    cr_expect_eq(s->batcher->reserved.timed, 0);
    cr_expect_eq(s->batcher->reserved.bytes, 0);
    cr_expect(gsv_list_is_empty(&s->batcher->large));
    for (size_t i = 0; i < GSV_CLIENT_BUCKETS; i++)
        cr_assert_eq(s->batcher->usage[i].timed + s->batcher->usage[i].n_requests, 0);
    for (int i = 0; i < WORKERS; i++) {
        free(s->batches[i].parts);
        free(s->batches[i].coalesced);
    }
    gsv_batcher_unref(&s->batcher);
    gsv_cores_reset(&s->cores);
    free(s->latencies);
    free(s);
}

/* A fast device, whose queue holds 500 ms of work, and a slow one, whose queue has the min size. */
static const uint64_t speeds[] = { 50000, 2000000 };
static const size_t counts[] = { 1, 8, 100 };

/* Clients that wait as told are served in turn, after few returns: those whose requests just ended
 * do not take the capacity of those that wait. */
static void expect_turns(const struct simulation *s)
{
    size_t min = SIZE_MAX, max = 0;

    for (size_t i = 0; i < s->n_bulk; i++) {
        const size_t n = s->bulk[i].n_served;

        min = n < min ? n : min;
        max = n > max ? n : max;
    }
    cr_expect_gt(s->n_predictions, 2);
    cr_expect_geq(min, 2);
    cr_expect_leq(max, min + 1, "one client is served %zu times, another one %zu times", max, min);
    cr_expect_leq(s->n_returns, 8 * s->n_returns_served, "%zu returns, %zu were admitted",
                  s->n_returns, s->n_returns_served);
}

static void beside_bulk_clients(size_t n_bulk, enum identity identity, uint64_t token_ns)
{
    struct simulation *s = start(n_bulk, identity, token_ns);
    uint64_t possible;

    run_until(s, 500000 * token_ns);
    possible = s->now_ns / token_ns * WORKERS;
    cr_expect_gt(s->n_singles, 10000);
    cr_expect_leq(s->n_refused * 1000, s->n_singles * 5, "%zu of %zu refused with %zu bulk",
                  s->n_refused, s->n_singles, n_bulk);
    cr_expect_leq(s->longest_single_ns, 3 * BATCH_TOKENS * token_ns, "%.1f batches with %zu bulk",
                  (double)s->longest_single_ns / (double)(BATCH_TOKENS * token_ns), n_bulk);
    cr_expect_geq(s->computed * 100, possible * 95, "%lu of %lu tokens with %zu bulk", s->computed,
                  possible, n_bulk);
    cr_expect_geq(s->n_right * 100, s->n_predictions * 95, "%zu of %zu predictions with %zu bulk",
                  s->n_right, s->n_predictions, n_bulk);
    if (n_bulk == MAX_BULK && identity == ALL_ONE)
        cr_expect_gt(s->n_predictions, 50);
    if (n_bulk == MAX_BULK && identity == EACH_ITS_OWN)
        expect_turns(s);
    end(s);
}

static void beside_all(enum identity identity)
{
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 2; k++)
            beside_bulk_clients(counts[i], identity, speeds[k]);
    }
}

Test(fairness, single_texts_are_answered_beside_bulk_clients)
{
    beside_all(EACH_ITS_OWN);
}

Test(fairness, single_texts_of_a_bulk_client_are_answered_too)
{
    beside_all(ALL_ONE);
}

/* A client that returns after half of retry_after_ms is refused again, one that returns after twice
 * of it is admitted. Both in a queue whose batches fill a part of the time only: tokenizing, and
 * other programs, take the rest. */
static void probe(size_t n_bulk, uint64_t token_ns, double overhead)
{
    struct simulation *s = start_on(true, n_bulk, EACH_ITS_OWN, token_ns);

    s->overhead = overhead;
    s->single_gap_ns = (uint64_t)((double)s->single_gap_ns * (1 + overhead));
    s->n_probers = MAX_PROBERS;
    for (size_t i = 0; i < MAX_PROBERS; i++)
        s->probers[i] = (struct prober){ .bulk.client = 2000 + i, .is_late = i % 2 };
    run_until(s, 1000000 * token_ns);
    for (int late = 0; late < 2; late++) {
        cr_expect_gt(s->n_probes[late], 10);
        cr_expect_geq(s->n_probes_right[late] * 100, s->n_probes[late] * 90,
                      "%zu of %zu %s returns were predicted with %zu bulk, a token in %" PRIu64
                      " ns, overhead %g",
                      s->n_probes_right[late], s->n_probes[late], late ? "late" : "early", n_bulk,
                      token_ns, overhead);
    }
    end(s);
}

Test(fairness, retry_after_is_right_within_twice)
{
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < 2; k++) {
            probe(counts[i], speeds[k], 0);
            probe(counts[i], speeds[k], 0.6);
        }
    }
}

/* Measures the throughput first, so that the time limit applies from the first request on. */
static struct simulation *start_warm(uint64_t token_ns)
{
    struct simulation *s = start(1, EACH_ITS_OWN, token_ns);

    s->single_ns = forever;
    run_until(s, 10 * BATCH_TOKENS * token_ns);
    cr_assert_gt(s->batcher->tokens_per_ns, 0);
    return s;
}

/* Submits requests of `n_texts` by `client` until one is rejected. */
static size_t fill(struct simulation *s, size_t n_texts, uint64_t client)
{
    size_t n = 0;

    while (n < 100000 && send(s, n_texts, client, NULL) == 0)
        n++;
    return n;
}

Test(fairness, no_number_of_clients_exceeds_the_bound)
{
    struct simulation *s = start_warm(50000);
    const uint64_t room = (uint64_t)(s->batcher->tokens_per_ns * 500e6);
    size_t n = 0;

    while (n < 100000 && send(s, 1, n + 5000, NULL) == 0)
        n++;
    cr_expect_lt(n, 100000);
    cr_expect_leq(s->batcher->reserved.timed, room + room / 4 * 3);
    for (uint64_t client = 1; client < 3000; client++) {
        send(s, BULK_TEXTS, client + 900000, NULL);
        send(s, 1, client + 500000, NULL);
    }
    cr_expect_leq(s->batcher->reserved.timed, room + room / 4 * 3);
    end(s);
}

Test(fairness, a_client_that_fills_the_queue_leaves_room_for_the_others)
{
    struct simulation *s = start_warm(50000);

    cr_expect_gt(fill(s, 1, 1), 100, "small ones of one client");
    cr_expect_eq(send(s, 1, 2, NULL), 0, "a client with nothing in the queue");
    cr_expect_eq(send(s, BULK_TEXTS, 3, NULL), 0, "a large one, counted by itself");
    cr_expect_gt(fill(s, BULK_TEXTS, 4), 1, "large ones of one client");
    cr_expect_eq(send(s, BULK_TEXTS, 5, NULL), 0, "of a client with nothing in the queue");
    cr_expect_gt(send(s, BULK_TEXTS, 4, NULL), 0, "no more of the first");
    end(s);
}

Test(fairness, tokens_and_bytes_keep_a_reserve_for_small_requests)
{
    struct simulation *s = start_warm(50000);

    s->batcher->options.max_queue_ns = 0;
    s->batcher->options.max_queue_tokens = 40000;
    cr_expect_gt(fill(s, BULK_TEXTS, 1), 5);
    cr_expect_gt(fill(s, 1, 1), 10, "small ones of the same client");
    cr_expect_gt(fill(s, 1, 2), 10, "and of another one");
    cr_expect_leq(s->batcher->reserved.tokens, 40000);
    s->batcher->options.max_queue_tokens = 1000000;
    s->batcher->options.max_queue_bytes = s->batcher->reserved.bytes * 16 / 13;
    cr_expect_gt(send(s, BULK_TEXTS, 1, NULL), 0);
    cr_expect_eq(send(s, BULK_TEXTS, 3, NULL), 0, "of a client with nothing in the queue");
    cr_expect_gt(fill(s, 1, 3), 10);
    cr_expect_leq(s->batcher->reserved.bytes, s->batcher->options.max_queue_bytes);
    end(s);
}

/* ------------------------------------------------------------------------------- tail latency */

static const uint64_t cpu_token_ns = 200000;

static int compare_times(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* 99th percentile of single texts on a CPU with concurrent bulk clients, in the time of a token. */
static double p99_beside(size_t n_bulk, bool prefers_wide, double *throughput)
{
    struct simulation *s = start_on(true, n_bulk, EACH_ITS_OWN, cpu_token_ns);
    double p99;

    s->batcher->options.prefers_wide = prefers_wide;
    s->latencies = calloc(MAX_LATENCIES, sizeof(*s->latencies));
    run_until(s, 500000 * cpu_token_ns);
    cr_assert(s->n_answered > 10000 && s->n_answered <= MAX_LATENCIES);
    cr_expect_eq(s->n_refused, 0);
    qsort(s->latencies, s->n_answered, sizeof(*s->latencies), compare_times);
    p99 = (double)s->latencies[s->n_answered * 99 / 100] / (double)cpu_token_ns;
    *throughput = (double)s->computed / (double)s->now_ns;
    end(s);
    return p99;
}

static double throughput_of_bulk(size_t n_bulk)
{
    struct simulation *s = start_on(true, n_bulk, EACH_ITS_OWN, cpu_token_ns);
    double throughput;

    s->single_ns = forever;
    run_until(s, 500000 * cpu_token_ns);
    throughput = (double)s->computed / (double)s->now_ns;
    end(s);
    return throughput;
}

/* The throughput is at least `share` of that without single texts. */
static void compare_with_idle(bool prefers_wide, double share)
{
    double throughput;
    const double idle = p99_beside(0, prefers_wide, &throughput);

    for (size_t i = 0; i < 3; i++) {
        const double p99 = p99_beside(counts[i], prefers_wide, &throughput);

        cr_expect_leq(p99, 4 * idle, "p99 is %.1f tokens with %zu, %.1f if idle", p99, counts[i],
                      idle);
        cr_expect_geq(throughput, share * throughput_of_bulk(counts[i]), "with %zu", counts[i]);
    }
}

/* A single text waits for the end of a short batch and is computed without large requests. */
Test(fairness, p99_on_a_cpu_is_near_that_of_an_idle_one)
{
    compare_with_idle(false, 0.95);
}

/* With weights from memory the short batches are wide ones, one at a time, and a single text waits
 * for one of them. The simulated device does not read weights, so that it only shows what this
 * costs: a batch of one single text takes the time of FIXED_TOKENS on all workers. */
Test(fairness, p99_with_weights_from_memory_is_near_that_of_an_idle_one)
{
    compare_with_idle(true, 0.88);
}

/* Short batches of a large model hold the tokens of all workers, once a small request has come. */
Test(fairness, short_batches_with_weights_from_memory_are_wide)
{
    struct simulation *s = start_on(true, 8, EACH_ITS_OWN, cpu_token_ns);
    size_t n_wide = 0, n_narrow = 0;

    s->batcher->options.prefers_wide = true;
    run_until(s, 1000 * cpu_token_ns);
    for (size_t i = 0; i < 2000; i++) {
        run_until(s, s->now_ns + 16 * cpu_token_ns);
        for (int w = 0; w < WORKERS; w++) {
            const struct gsv_batch *batch = s->running[w];

            if (!batch)
                continue;
            cr_assert_leq(batch->n_tokens, WORKERS * GSV_FEW_TOKENS);
            *(batch->is_wide ? &n_wide : &n_narrow) += 1;
        }
    }
    cr_expect_gt(n_wide, 1000);
    cr_expect_eq(n_narrow, 0);
    end(s);
}

/* Batches of small requests alone do not starve large ones, whatever the load of small ones. */
Test(fairness, large_requests_keep_a_share_under_a_load_of_small_ones)
{
    struct simulation *s = start_on(true, 1, EACH_ITS_OWN, cpu_token_ns);

    s->single_gap_ns = TEXT_TOKENS * cpu_token_ns / WORKERS / 2; /* twice the throughput */
    run_until(s, 200000 * cpu_token_ns);
    cr_expect_gt(s->n_refused, 1000);
    cr_expect_geq(s->bulk[0].n_served * BULK_TEXTS * TEXT_TOKENS * 100, s->computed * 25,
                  "%zu large requests in %" PRIu64 " tokens", s->bulk[0].n_served, s->computed);
    end(s);
}
