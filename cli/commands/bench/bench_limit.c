/*
 * bench_limit.c - compares a workload's time with that of reading its weights, and with the CPU
 * time of its threads.
 *
 * A buffer of the size of the layers' weights is read as the threads read them: by each of them
 * whole, or in slices. A buffer that fits a cache is read from there, as the weights would be.
 */
#include "cli/commands/bench/bench.h"

#include "cli/io/output.h"
#include "cli/model.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_READERS 256
#define ROUNDS 5
#define MANY_BYTES ((size_t)1 << 30) /* no larger buffer is read */
#define MEMORY_SHARE 0.5
#define THREADS_BUSY 0.85

struct reader {
    const uint64_t *from;
    size_t n;
    uint64_t sum;
};

static void *read_words(void *argument)
{
    struct reader *reader = argument;
    const uint64_t *from = reader->from;
    uint64_t sum = 0;

#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < reader->n; i++)
        sum += from[i];
    reader->sum = sum;
    return NULL;
}

/* Reads the buffer once by all threads, whole or in slices. If a thread cannot be created, this one
 * reads in its place. */
static double read_once(const uint64_t *words, size_t n, int threads, bool is_divided)
{
    const size_t slice = is_divided ? n / (size_t)threads : n;
    struct reader readers[MAX_READERS];
    pthread_t ids[MAX_READERS];
    bool runs[MAX_READERS] = { false };
    const double begin = cli_now();

    for (int i = 0; i < threads; i++) {
        readers[i] = (struct reader){ words + (is_divided ? (size_t)i * slice : 0), slice, 0 };
        runs[i] = i > 0 && pthread_create(&ids[i], NULL, read_words, &readers[i]) == 0;
    }
    for (int i = 0; i < threads; i++)
        if (!runs[i])
            read_words(&readers[i]);
    for (int i = 1; i < threads; i++)
        if (runs[i])
            pthread_join(ids[i], NULL);
    return cli_now() - begin;
}

/* The least of several times: that without other processes. */
static double read_time(const uint64_t *words, size_t n, int threads, bool is_divided)
{
    double min = INFINITY;

    for (int i = 0; i < ROUNDS; i++)
        min = fmin(min, read_once(words, n, threads, is_divided));
    return min;
}

static double number_of(const json_t *facts, const char *key)
{
    return json_number_value(json_object_get(facts, key));
}

/* Bytes of the layers' weights: all parameters but the table of words. */
static double layer_bytes(const json_t *facts)
{
    const char *dtype = json_string_value(json_object_get(facts, "dtype"));
    const double words = number_of(facts, "vocab_size") * number_of(facts, "hidden_size");
    const double n = fmax(0, number_of(facts, "parameters") - words);

    if (dtype && strcmp(dtype, "int8") == 0)
        return n;
    return n * (dtype && strcmp(dtype, "float32") == 0 ? 4 : 2);
}

int cli_bench_limit_init(struct bench_limit *limit, struct cli_bench *bench)
{
    json_t *facts = cli_facts_parse(cli_model_facts(bench->model));
    const char *device = json_string_value(json_object_get(facts, "device"));
    size_t n = (size_t)fmin(layer_bytes(facts), (double)MANY_BYTES) / sizeof(uint64_t);
    uint64_t *words;

    *limit = (struct bench_limit){ 0 };
    if (!facts)
        return CLI_FAILED;
    if (device && strcmp(device, "cpu") == 0 && n > 0) {
        limit->threads = (int)fmin(fmax(number_of(facts, "threads"), 1), MAX_READERS);
        limit->max_batch_tokens = fmax(number_of(facts, "max_batch_tokens"), 1);
        words = cli_alloc(n, sizeof(*words));
        memset(words, 1, n * sizeof(*words)); /* each page has memory of its own */
        limit->all_s = read_time(words, n, limit->threads, false);
        limit->slice_s = read_time(words, n, limit->threads, true);
        free(words);
    }
    json_decref(facts);
    return CLI_OK;
}

const char *cli_bench_limit_name(double threads_busy, double weights_share)
{
    if (weights_share >= MEMORY_SHARE)
        return "memory bandwidth";
    return threads_busy < THREADS_BUSY ? "threads" : "compute";
}

void cli_bench_limit_add(const struct bench_limit *limit, const struct cli_bench *bench,
                         bool is_latency, json_t *facts)
{
    const double median = cli_bench_quantile(bench, 0.5);
    const double batches = ceil((double)bench->n_tokens / limit->max_batch_tokens);
    double busy, share;

    if (limit->threads == 0 || bench->wall_s <= 0 || median <= 0)
        return;
    busy = fmin(1, bench->cpu_s / (bench->wall_s * limit->threads));
    share = is_latency ? limit->slice_s / median
                       : ceil(batches / limit->threads) * limit->all_s / median;
    json_object_set_new(facts, "threads_busy", json_real(busy));
    json_object_set_new(facts, "weights_share", json_real(fmin(1, share)));
    json_object_set_new(facts, "limit", json_string(cli_bench_limit_name(busy, share)));
}
