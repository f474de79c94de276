/*
 * queue_model.c - discrete-event simulation of batches, and the fit of their service times.
 *
 * The queue is first in, first out and texts arrive in order, so the next batch always begins with
 * the oldest waiting text, on the thread that is free first. One pass over the texts is enough.
 */
#include "cli/commands/plan/plan.h"

#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SKIPPED (CLI_QUEUE_TEXTS / 20) /* while the queue fills */

struct simulation {
    const struct cli_queue *queue;
    double *arrivals, *tokens, *latencies; /* [CLI_QUEUE_TEXTS] */
    double free_at[CLI_QUEUE_MAX_THREADS];
    double busy_s;
    size_t n_batches;
    uint64_t random;
};

/* xorshift64; uniform in (0, 1]. */
static double uniform(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return ((double)(*random >> 11) + 1) / 9007199254740992.0;
}

static double drawn(const double *values, size_t n, uint64_t *random)
{
    const size_t i = (size_t)(uniform(random) * (double)n);

    return values[i < n ? i : n - 1];
}

static void make_arrivals(struct simulation *s)
{
    const struct cli_queue *queue = s->queue;
    double now = 0;

    for (size_t i = 0; i < CLI_QUEUE_TEXTS; i++) {
        now += -log(uniform(&s->random)) / queue->rate;
        s->arrivals[i] = now;
        s->tokens[i] = drawn(queue->lengths, queue->n_lengths, &s->random);
    }
}

static int first_free(const struct simulation *s)
{
    int first = 0;

    for (int i = 1; i < s->queue->threads; i++)
        if (s->free_at[i] < s->free_at[first])
            first = i;
    return first;
}

/* Runs the batch that begins with text `head`; returns its number of texts. */
static size_t run_batch(struct simulation *s, size_t head)
{
    const struct cli_queue *queue = s->queue;
    const int thread = first_free(s);
    const double begin = fmax(s->free_at[thread], s->arrivals[head]);
    double tokens = s->tokens[head], duration;
    size_t n = 1;

    while (head + n < CLI_QUEUE_TEXTS && s->arrivals[head + n] <= begin &&
           tokens + s->tokens[head + n] <= queue->max_batch_tokens)
        tokens += s->tokens[head + n++];
    duration = (queue->service.batch_s + queue->service.token_s * tokens) * queue->slowdown *
               drawn(queue->factors, queue->n_factors, &s->random);
    for (size_t i = 0; i < n; i++)
        s->latencies[head + i] = begin + duration - s->arrivals[head + i];
    s->free_at[thread] = begin + duration;
    s->busy_s += duration;
    s->n_batches++;
    return n;
}

static void summarize(struct simulation *s, struct cli_queue_result *result)
{
    const size_t n = CLI_QUEUE_TEXTS - SKIPPED;
    double *latencies = s->latencies + SKIPPED, end = 0, sum = 0;

    for (int i = 0; i < s->queue->threads; i++)
        end = fmax(end, s->free_at[i]);
    for (size_t i = 0; i < n; i++)
        sum += latencies[i];
    cli_sort_doubles(latencies, n);
    *result = (struct cli_queue_result){
        .mean_s = sum / (double)n,
        .p50_s = latencies[n / 2],
        .p99_s = latencies[n - 1 - n / 100],
        .busy = s->busy_s / (end * s->queue->threads),
        .batch_texts = (double)CLI_QUEUE_TEXTS / (double)s->n_batches,
    };
}

void cli_queue_simulate(const struct cli_queue *queue, struct cli_queue_result *result)
{
    struct simulation s = { .queue = queue, .random = queue->seed };

    s.arrivals = cli_alloc(3 * CLI_QUEUE_TEXTS, sizeof(double));
    s.tokens = s.arrivals + CLI_QUEUE_TEXTS;
    s.latencies = s.tokens + CLI_QUEUE_TEXTS;
    make_arrivals(&s);
    for (size_t head = 0; head < CLI_QUEUE_TEXTS;)
        head += run_batch(&s, head);
    summarize(&s, result);
    free(s.arrivals);
}

/* Minimizes the sum of ((a + b x - t) / t)^2: normal equations of u = 1 / t and v = x / t. */
struct cli_service cli_service_fit(const double *tokens, const double *seconds, size_t n)
{
    double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0, determinant;
    struct cli_service fit;

    for (size_t i = 0; i < n; i++) {
        const double u = 1 / seconds[i], v = tokens[i] / seconds[i];

        uu += u * u;
        uv += u * v;
        vv += v * v;
        u1 += u;
        v1 += v;
    }
    determinant = uu * vv - uv * uv;
    if (!(determinant > 1e-12 * uu * vv)) /* one size only */
        return (struct cli_service){ 0, v1 / vv };
    fit.batch_s = (u1 * vv - v1 * uv) / determinant;
    fit.token_s = (v1 * uu - u1 * uv) / determinant;
    if (fit.batch_s < 0)
        return (struct cli_service){ 0, v1 / vv };
    if (fit.token_s < 0)
        return (struct cli_service){ u1 / uu, 0 };
    return fit;
}
