/*
 * plan_search.c - the least number of cores that meets a latency, by simulation, and its spread.
 *
 * Each of PLAN_REPLICATES replicates draws one round of the measurement as the service time. So the
 * spread of the answer is that of the rounds, and of the arrivals. Cores beyond the measured ones
 * are extrapolated: the time of a batch grows by the same amount for each further thread, as it did
 * from one thread to all.
 */
#include "cli/commands/plan/plan.h"

#include <math.h>
#include <stdlib.h>

#define SURE (PLAN_REPLICATES * 19 / 20) /* replicates that must meet the target */

struct search {
    const struct plan_measured *measured;
    const struct plan_dtype *dtype;
    const struct plan_target *target;
};

static double slowdown(const struct search *s, int threads)
{
    const int n = s->measured->threads;
    const double speedup = s->dtype->all_threads / s->dtype->one_thread;
    const double each = n > 1 ? (n / speedup - 1) / (n - 1) : 0;

    return 1 + fmax(0, each) * (threads - 1);
}

static struct cli_queue_result simulate(const struct search *s, int replicate, int threads)
{
    const struct plan_dtype *dtype = s->dtype;
    const size_t round = (size_t)replicate * dtype->n_rounds / PLAN_REPLICATES;
    const struct cli_queue queue = {
        .rate = s->target->rate,
        .lengths = s->measured->lengths,
        .n_lengths = s->measured->n_lengths,
        .service = dtype->rounds[round],
        .factors = dtype->factors,
        .n_factors = dtype->n_factors,
        .slowdown = slowdown(s, threads),
        .threads = threads,
        .max_batch_tokens = s->measured->max_batch_tokens,
        .seed = 88172645463325252u + (uint64_t)replicate,
    };
    struct cli_queue_result result;

    cli_queue_simulate(&queue, &result);
    return result;
}

static double mean(const double *values, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += values[i];
    return sum / (double)n;
}

/* Texts a second of full batches: no queue completes more. */
static double capacity(const struct search *s, int replicate, int threads)
{
    const struct plan_measured *m = s->measured;
    const struct plan_dtype *dtype = s->dtype;
    const struct cli_service *service =
        &dtype->rounds[(size_t)replicate * dtype->n_rounds / PLAN_REPLICATES];
    const double length = mean(m->lengths, m->n_lengths), batch = fmax(m->max_batch_tokens, length);
    const double seconds = (service->batch_s + service->token_s * batch) * slowdown(s, threads) *
                           mean(dtype->factors, dtype->n_factors);

    return threads * batch / length / seconds;
}

static bool meets(const struct search *s, int replicate, int threads)
{
    if (s->target->rate > 1.05 * capacity(s, replicate, threads)) /* its queue only grows */
        return false;
    return simulate(s, replicate, threads).p99_s <= s->target->p99_s;
}

/* The least threads that meet the target: exponential, then binary search. 0: none. */
static int min_threads(const struct search *s, int replicate)
{
    int low = 0, high = 1;

    while (!meets(s, replicate, high)) {
        if (high == CLI_QUEUE_MAX_THREADS)
            return 0;
        low = high;
        high = high * 2 < CLI_QUEUE_MAX_THREADS ? high * 2 : CLI_QUEUE_MAX_THREADS;
    }
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;

        if (meets(s, replicate, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void describe(const struct search *s, struct plan_answer *answer)
{
    double p50[PLAN_REPLICATES], p99[PLAN_REPLICATES], busy[PLAN_REPLICATES];
    const int middle = PLAN_REPLICATES / 2;

    for (int i = 0; i < PLAN_REPLICATES; i++) {
        const struct cli_queue_result result = simulate(s, i, answer->cores);

        p50[i] = result.p50_s;
        p99[i] = result.p99_s;
        busy[i] = result.busy;
    }
    cli_sort_doubles(p50, PLAN_REPLICATES);
    cli_sort_doubles(p99, PLAN_REPLICATES);
    cli_sort_doubles(busy, PLAN_REPLICATES);
    answer->p50_s = p50[middle];
    answer->p99_s = p99[middle];
    answer->busy = busy[middle];
    answer->p99_low_s = p99[1];
    answer->p99_high_s = p99[PLAN_REPLICATES - 2];
    answer->memory_bytes =
        s->dtype->memory.base_bytes + s->dtype->memory.per_thread_bytes * answer->cores;
    answer->cost = answer->cores * s->target->core_price / 3600 / s->target->rate * 1e6;
    answer->is_extrapolated = answer->cores > s->measured->threads;
}

void plan_search(const struct plan_measured *measured, const struct plan_dtype *dtype,
                 const struct plan_target *target, struct plan_answer *answer)
{
    const struct search s = { measured, dtype, target };
    int cores[PLAN_REPLICATES];

    *answer = (struct plan_answer){ 0 };
    for (int i = 0; i < PLAN_REPLICATES; i++) {
        cores[i] = min_threads(&s, i);
        if (cores[i] == 0) /* more than the most */
            cores[i] = CLI_QUEUE_MAX_THREADS + 1;
    }
    qsort(cores, PLAN_REPLICATES, sizeof(*cores), by_number);
    answer->cores = cores[SURE - 1];
    answer->cores_low = cores[0];
    answer->cores_high = cores[PLAN_REPLICATES - 1];
    answer->is_possible = answer->cores <= CLI_QUEUE_MAX_THREADS;
    if (!answer->is_possible)
        answer->cores = CLI_QUEUE_MAX_THREADS;
    answer->capacity = capacity(&s, PLAN_REPLICATES / 2, answer->cores);
    answer->speedup = dtype->all_threads / dtype->one_thread;
    describe(&s, answer);
}
