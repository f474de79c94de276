/*
 * plan.c - `gpuserve plan`: cores, dtype, memory and cost for a rate of texts and a latency.
 *
 * Prints a row for each dtype, the cheapest one as the answer, and how sure it is. With --json the
 * measurement is part of the output; --measured reads it again, for other rates and latencies.
 */
#include "cli/commands/plan/plan.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_P99_MS 50
#define DEFAULT_CORE_PRICE 0.04

struct plan {
    struct plan_measured measured;
    struct plan_target target;
    struct plan_answer answers[PLAN_MAX_DTYPES];
};

/* The dtype with the fewest cores, of equal ones the first: they are in the order of accuracy. -1:
 * none meets the target. */
static int cheapest(const struct plan *plan)
{
    int best = -1;

    for (int i = 0; i < (int)plan->measured.n_dtypes; i++)
        if (plan->answers[i].is_possible &&
            (best < 0 || plan->answers[i].cores < plan->answers[best].cores))
            best = i;
    return best;
}

/* ------------------------------------------------------------------------------------- as text */

static void print_range(char *text, size_t capacity, const struct plan_answer *answer)
{
    if (answer->cores_low == answer->cores_high)
        snprintf(text, capacity, "%d", answer->cores);
    else
        snprintf(text, capacity, "%d (%d to %d)", answer->cores, answer->cores_low,
                 answer->cores_high);
}

static void print_row(const struct plan_dtype *dtype, const struct plan_answer *answer)
{
    char cores[48];

    if (!answer->is_possible) {
        printf("%-9s more than %d cores: these complete %.0f texts/s, p99 is %.4g ms\n",
               dtype->name, CLI_QUEUE_MAX_THREADS, answer->capacity, answer->p99_s * 1e3);
        return;
    }
    print_range(cores, sizeof(cores), answer);
    printf("%-9s %-14s %5.0f%% %8.1f %8.1f (%.1f to %.1f) %9.0f %12.4f\n", dtype->name, cores,
           answer->busy * 100, answer->p50_s * 1e3, answer->p99_s * 1e3, answer->p99_low_s * 1e3,
           answer->p99_high_s * 1e3, answer->memory_bytes / 1e6, answer->cost);
}

static void print_lengths(const struct plan_measured *measured)
{
    double sorted[PLAN_MAX_LENGTHS], sum = 0;

    memcpy(sorted, measured->lengths, measured->n_lengths * sizeof(*sorted));
    cli_sort_doubles(sorted, measured->n_lengths);
    for (size_t i = 0; i < measured->n_lengths; i++)
        sum += sorted[i];
    printf("%zu texts of %.0f tokens on average, half below %.0f, the longest %.0f\n",
           measured->n_lengths, sum / (double)measured->n_lengths, sorted[measured->n_lengths / 2],
           sorted[measured->n_lengths - 1]);
}

static void print_answer(const struct plan *plan, int best)
{
    const struct plan_answer *answer = &plan->answers[best];
    const struct plan_dtype *dtype = &plan->measured.dtypes[best];

    printf("\nanswer: %s on %d core%s, %.0f MB, %.4f per million texts\n", dtype->name,
           answer->cores, answer->cores == 1 ? "" : "s", answer->memory_bytes / 1e6, answer->cost);
    printf("sure: p99 is within %.1f ms in at least 19 of 20 simulations; a single one needs "
           "%d to %d cores\n",
           plan->target.p99_s * 1e3, answer->cores_low, answer->cores_high);
    if (answer->is_extrapolated && plan->measured.threads == 1)
        puts("less sure: more than one core is extrapolated without a measurement of several");
    else if (answer->is_extrapolated)
        printf("less sure: more than %d cores are extrapolated; these %d are %.2f times as fast as "
               "one\n",
               plan->measured.threads, plan->measured.threads,
               dtype->all_threads / dtype->one_thread);
}

/* Threads that hardly speed up say that the measurement shared the machine with others. */
static void print_speedups(const struct plan *plan)
{
    for (size_t i = 0; i < plan->measured.n_dtypes; i++)
        if (plan->answers[i].speedup < 0.7 * plan->measured.threads)
            printf("%s: %d threads are %.2f times as fast as one: if other processes used the "
                   "machine, measure again\n",
                   plan->measured.dtypes[i].name, plan->measured.threads, plan->answers[i].speedup);
}

static void print_plan(const struct plan *plan, int best)
{
    printf("%g texts/s, p99 within %g ms, on %s, %d threads measured\n", plan->target.rate,
           plan->target.p99_s * 1e3, plan->measured.processor, plan->measured.threads);
    print_lengths(&plan->measured);
    printf("\n%-9s %-14s %6s %8s %8s %-16s %9s %12s\n", "dtype", "cores", "busy", "p50 ms",
           "p99 ms", "(spread)", "memory MB", "per million");
    for (size_t i = 0; i < plan->measured.n_dtypes; i++)
        print_row(&plan->measured.dtypes[i], &plan->answers[i]);
    if (best >= 0)
        print_answer(plan, best);
    print_speedups(plan);
}

/* ------------------------------------------------------------------------------------- as JSON */

static json_t *answer_of(const struct plan *plan, size_t i)
{
    const struct plan_answer *a = &plan->answers[i];

    return json_pack("{s:s, s:b, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "dtype",
                     plan->measured.dtypes[i].name, "possible", a->is_possible, "cores", a->cores,
                     "cores_low", a->cores_low, "cores_high", a->cores_high, "busy", a->busy,
                     "p50_ms", a->p50_s * 1e3, "p99_ms", a->p99_s * 1e3, "p99_ms_low",
                     a->p99_low_s * 1e3, "p99_ms_high", a->p99_high_s * 1e3, "memory_bytes",
                     a->memory_bytes, "cost_per_million", a->cost, "extrapolated",
                     a->is_extrapolated);
}

static int print_json(const struct plan *plan, int best)
{
    json_t *plans = json_array();

    for (size_t i = 0; i < plan->measured.n_dtypes; i++)
        json_array_append_new(plans, answer_of(plan, i));
    return cli_facts_print(
        json_pack("{s:s, s:f, s:f, s:f, s:o, s:o, s:o}", "gpuserve", gpuserve_version(), "rate",
                  plan->target.rate, "p99_ms", plan->target.p99_s * 1e3, "core_price",
                  plan->target.core_price, "answer",
                  best < 0 ? json_null() : json_string(plan->measured.dtypes[best].name), "plans",
                  plans, "measured", plan_to_json(&plan->measured)),
        true);
}

/* ------------------------------------------------------------------------------------- command */

static int check(const struct cli_args *args)
{
    if (args->n_rest)
        return cli_usage("plan does not accept texts as arguments");
    if (args->rate <= 0) {
        cli_usage("the rate is missing");
        cli_hint("--rate 500 plans for 500 texts per second, those of the busiest minute");
        return CLI_USAGE;
    }
    if (args->device && strcmp(args->device, "cpu") != 0)
        return cli_usage("plan counts CPU cores: --device %s is not valid", args->device);
    if (!args->measured && !args->model)
        return cli_model_missing();
    if (args->measured &&
        (args->model || args->input || args->dtype || args->seconds > 0 || args->threads))
        return cli_usage(
            "--measured replaces the measurement: a model, --input, --dtype, --seconds "
            "and --threads are not valid");
    return CLI_OK;
}

static int answer(struct plan *plan, const struct cli_args *args)
{
    int best, result = CLI_OK;

    for (size_t i = 0; i < plan->measured.n_dtypes; i++)
        plan_search(&plan->measured, &plan->measured.dtypes[i], &plan->target, &plan->answers[i]);
    best = cheapest(plan);
    if (args->json)
        result = print_json(plan, best);
    else
        print_plan(plan, best);
    if (result == CLI_OK && best < 0)
        return cli_fail("no dtype meets p99 %g ms at %g texts/s with %d cores or fewer",
                        plan->target.p99_s * 1e3, plan->target.rate, CLI_QUEUE_MAX_THREADS);
    return result;
}

int cli_plan(const struct cli_args *args)
{
    struct plan *plan;
    int result = check(args);

    if (result != CLI_OK)
        return result;
    plan = cli_alloc(1, sizeof(*plan));
    plan->target = (struct plan_target){
        .rate = args->rate,
        .p99_s = (args->p99_ms > 0 ? args->p99_ms : DEFAULT_P99_MS) / 1e3,
        .core_price = args->core_price > 0 ? args->core_price : DEFAULT_CORE_PRICE,
    };
    result = args->measured ? plan_from_file(&plan->measured, args->measured)
                            : plan_measure(&plan->measured, args);
    if (result == CLI_OK)
        result = answer(plan, args);
    free(plan);
    return result;
}
