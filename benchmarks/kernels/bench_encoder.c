/*
 * bench_encoder.c - the operations of a 6-layer MiniLM on random weights, as JSON.
 *
 *   bench_encoder [threads] [seconds for each figure] [lengths]
 *
 * Measures the backend alone, without tokenizer and queues. Latency: one text of n tokens, all
 * threads in one forward pass; with "lengths" only that, of lengths next to multiples of the
 * kernels' tile heights (benchmarks/lengths.py). Throughput: batches of about 512 tokens, one
 * forward pass after another in each thread (streams with one thread each).
 */
#include "benchmarks/kernels/peak.h"
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 6
#define HIDDEN 384
#define INNER 1536
#define HEADS 12
#define MAX_TOKENS 1024
#define MAX_TEXTS 256
#define MAX_TURNS 4000
#define MAX_THREADS 64

enum { QKV, OUT, UP, DOWN, N_LINEARS };

static const int32_t linear_sizes[N_LINEARS][2] = {
    { 3 * HIDDEN, HIDDEN }, { HIDDEN, HIDDEN }, { INNER, HIDDEN }, { HIDDEN, INNER }
};

static const struct gpuserve_backend *cpu;
static struct gpuserve_device *device;
static struct gpuserve_linear *linears[LAYERS][N_LINEARS];
static float *table, *vectors_of_ones; /* constant embeddings, gamma and beta */
static double budget = 0.2;

struct forward {
    struct gpuserve_stream *stream;
    const struct gpuserve_host_batch *host;
    float *hidden, *wide, *context, *pooled;
    int n_runs;
    double until;
};

static void check(gpuserve_status st, const gpuserve_error *error)
{
    if (st == GPUSERVE_OK)
        return;
    fprintf(stderr, "bench_encoder: %s\n", error->message);
    exit(1);
}

static void *device_memory(size_t size)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    void *memory;

    check(cpu->memory_alloc(device, &memory, size, &error), &error);
    return memory;
}

static float *device_floats(size_t n)
{
    float *floats = device_memory(n * sizeof(float));

    for (size_t i = 0; i < n; i++)
        floats[i] = ((float)(i * 2654435761u % 1000) * 1e-3f - 0.5f) * 0.1f;
    return floats;
}

static void open_linears(uint32_t dtype)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int i = 0; i < N_LINEARS; i++) {
            const int32_t n = linear_sizes[i][0], k = linear_sizes[i][1];
            const struct gpuserve_linear_source source = {
                .struct_size = sizeof(source),
                .dtype = dtype,
                .n = n,
                .k = k,
                .weight = table + layer,
                .bias = vectors_of_ones,
            };
            gpuserve_error error = GPUSERVE_ERROR_INIT;

            check(cpu->linear_create(device, &linears[layer][i],
                                     device_memory(cpu->linear_bytes(n, k, dtype)), &source,
                                     &error),
                  &error);
        }
    }
}

static void open_forward(struct forward *f, uint32_t dtype, int32_t n_threads)
{
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = dtype,
        .n_threads = n_threads,
        .max_tokens = MAX_TOKENS,
        .max_sequences = MAX_TEXTS,
        .max_seqlen = 512,
        .max_columns = INNER,
        .hidden_size = HIDDEN,
        .n_heads = HEADS,
        .output_bytes = MAX_TEXTS * HIDDEN * sizeof(float),
    };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    check(cpu->stream_create(device, &f->stream, &options, &error), &error);
    f->hidden = device_floats(MAX_TOKENS * HIDDEN);
    f->wide = device_floats(MAX_TOKENS * INNER);
    f->context = device_floats(MAX_TOKENS * HIDDEN);
    f->pooled = device_floats(MAX_TEXTS * HIDDEN);
}

static void close_forward(struct forward *f)
{
    cpu->stream_destroy(&f->stream);
    cpu->memory_free(device, f->hidden);
    cpu->memory_free(device, f->wide);
    cpu->memory_free(device, f->context);
    cpu->memory_free(device, f->pooled);
}

static void run_linear(struct forward *f, const struct gpuserve_linear *w, int which,
                       const float *in, float *out, const float *residual)
{
    const struct gpuserve_op_linear op = {
        .weight = w,
        .in = in,
        .out = out,
        .residual = residual,
        .rows = f->host->n_tokens,
        .in_ld = linear_sizes[which][1],
        .out_ld = linear_sizes[which][0],
        .activation = which == UP ? GPUSERVE_ACT_GELU : GPUSERVE_ACT_NONE,
    };

    cpu->linear(f->stream, &op);
}

static void run_layernorm(struct forward *f)
{
    const struct gpuserve_op_add_norm op = {
        .out = f->hidden,
        .in = f->hidden,
        .gamma = vectors_of_ones,
        .beta = vectors_of_ones,
        .eps = 1e-12f,
        .rows = f->host->n_tokens,
        .cols = HIDDEN,
    };

    cpu->add_norm(f->stream, &op);
}

static void run_layer(struct forward *f, const struct gpuserve_batch *batch,
                      struct gpuserve_linear *const *w)
{
    const struct gpuserve_op_attention attention = {
        .batch = batch,
        .qkv = f->wide,
        .out = f->context,
        .n_heads = HEADS,
        .head_size = HIDDEN / HEADS,
        .scale = 0.1767767f,
    };

    run_linear(f, w[QKV], QKV, f->hidden, f->wide, NULL);
    cpu->attention(f->stream, &attention);
    run_linear(f, w[OUT], OUT, f->context, f->hidden, f->hidden);
    run_layernorm(f);
    run_linear(f, w[UP], UP, f->hidden, f->wide, NULL);
    run_linear(f, w[DOWN], DOWN, f->wide, f->hidden, f->hidden);
    run_layernorm(f);
}

static void run_forward(struct forward *f)
{
    struct gpuserve_batch batch;
    int32_t replayed;

    cpu->batch_begin(f->stream, 0, f->host, &batch, &replayed, NULL);
    {
        const struct gpuserve_op_embed embed = {
            .batch = &batch,
            .out = f->hidden,
            .word = table,
            .position = table,
            .type = table,
            .gamma = vectors_of_ones,
            .beta = vectors_of_ones,
            .eps = 1e-12f,
            .hidden = HIDDEN,
        };
        const struct gpuserve_op_pool pool = {
            .batch = &batch,
            .in = f->hidden,
            .out = f->pooled,
            .pooling = GPUSERVE_POOL_MEAN,
            .hidden = HIDDEN,
            .columns = HIDDEN,
            .out_ld = HIDDEN,
            .normalize = 1,
        };

        cpu->embed(f->stream, &embed);
        for (int layer = 0; layer < LAYERS; layer++)
            run_layer(f, &batch, linears[layer]);
        cpu->pool(f->stream, &pool);
    }
}

/* A batch of texts with these lengths, cyclically, up to `tokens` tokens. */
static struct gpuserve_host_batch make_host(const int32_t *lengths, int n_lengths, int32_t tokens)
{
    static int32_t zeros[MAX_TOKENS];
    static int32_t cu_seqlens[MAX_TEXTS + 1];
    struct gpuserve_host_batch host = {
        .ids = zeros, .type_ids = zeros, .positions = zeros, .cu_seqlens = cu_seqlens
    };

    for (int i = 0; host.n_sequences < MAX_TEXTS; i++) {
        const int32_t length = lengths[i % n_lengths];

        if (host.n_tokens + length > tokens)
            break;
        host.n_tokens += length;
        host.max_seqlen = length > host.max_seqlen ? length : host.max_seqlen;
        cu_seqlens[++host.n_sequences] = host.n_tokens;
    }
    return host;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void latency(const char *name, uint32_t dtype, int32_t tokens, int32_t n_threads)
{
    static double turns[MAX_TURNS];
    const struct gpuserve_host_batch host = make_host(&tokens, 1, tokens);
    const double end = seconds_now() + budget;
    struct forward f = { .host = &host };
    int n = 0;

    open_forward(&f, dtype, n_threads);
    run_forward(&f);
    do {
        const double start = seconds_now();

        run_forward(&f);
        turns[n++] = seconds_now() - start;
    } while (n < MAX_TURNS && seconds_now() < end);
    qsort(turns, (size_t)n, sizeof(*turns), compare_doubles);
    close_forward(&f);
    printf("    {\"what\": \"latency\", \"dtype\": \"%s\", \"threads\": %d, \"tokens\": %d, "
           "\"p50_ms\": %.3f, \"best_ms\": %.3f},\n",
           name, (int)n_threads, (int)tokens, turns[n / 2] * 1e3, turns[0] * 1e3);
}

static void *forward_main(void *forward)
{
    struct forward *f = forward;

    do {
        run_forward(f);
        f->n_runs++;
    } while (seconds_now() < f->until);
    return NULL;
}

static void throughput(const char *name, uint32_t dtype, const char *mix, const int32_t *lengths,
                       int n_lengths, int n_threads)
{
    static struct forward forwards[MAX_THREADS];
    static pthread_t threads[MAX_THREADS];
    const struct gpuserve_host_batch host = make_host(lengths, n_lengths, 512);
    double start, seconds;
    int runs = 0;

    for (int i = 0; i < n_threads; i++) {
        forwards[i] = (struct forward){ .host = &host };
        open_forward(&forwards[i], dtype, 1);
        run_forward(&forwards[i]);
    }
    start = seconds_now();
    for (int i = 0; i < n_threads; i++) {
        forwards[i].until = start + 2.0 * budget;
        if (pthread_create(&threads[i], NULL, forward_main, &forwards[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        runs += forwards[i].n_runs;
    }
    seconds = seconds_now() - start;
    for (int i = 0; i < n_threads; i++)
        close_forward(&forwards[i]);
    printf("    {\"what\": \"throughput\", \"dtype\": \"%s\", \"threads\": %d, \"texts\": \"%s\", "
           "\"texts_per_s\": %.1f, \"tokens_per_s\": %.0f},\n",
           name, n_threads, mix, (double)runs * host.n_sequences / seconds,
           (double)runs * host.n_tokens / seconds);
}

static void run_dtype(uint32_t dtype, const char *name, int n_threads)
{
    static const int32_t tokens[] = { 8, 16, 32, 64, 128, 256 };
    /* log-normal lengths, mu 3.35, sigma 0.8 */
    static const int32_t mixed[] = { 29, 12, 55, 41, 8, 28, 85, 20, 35, 150, 16, 49, 23, 66, 10 };
    static const int32_t longest[] = { 256 };

    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        latency(name, dtype, tokens[i], n_threads);
    throughput(name, dtype, "mixed", mixed, 15, n_threads);
    throughput(name, dtype, "256 tokens", longest, 1, n_threads);
}

static void run_lengths(uint32_t dtype, const char *name, int n_threads)
{
    static const int32_t tokens[] = { 12, 13, 18, 19, 24, 25 };

    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        latency(name, dtype, tokens[i], n_threads);
}

int main(int argc, char **argv)
{
    static const struct {
        uint32_t dtype;
        const char *name;
    } dtypes[] = { { GPUSERVE_DTYPE_FLOAT32, "float32" },
                   { GPUSERVE_DTYPE_BFLOAT16, "bfloat16" },
                   { GPUSERVE_DTYPE_INT8, "int8" } };
    const int n_threads = argc > 1 ? atoi(argv[1]) : 1;
    const bool only_lengths = argc > 3 && strcmp(argv[3], "lengths") == 0;
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (argc > 2)
        budget = atof(argv[2]);
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return 2;
    cpu = gsv_backend_cpu();
    check(cpu->device_facts(0, &facts, &error), &error);
    check(cpu->device_open(&device, 0, &error), &error);
    table = device_floats((size_t)INNER * HIDDEN + LAYERS);
    vectors_of_ones = device_floats(INNER);
    printf("{\n  \"cpu\": \"%s\", \"isa\": \"%s\",\n  \"figures\": [\n", facts.name, facts.isa);
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        if (cpu->activation_size(dtypes[d].dtype) == 0)
            continue;
        open_linears(dtypes[d].dtype);
        (only_lengths ? run_lengths : run_dtype)(dtypes[d].dtype, dtypes[d].name, n_threads);
    }
    printf("    {\"threads\": %d}\n  ]\n}\n", n_threads);
    return 0;
}
