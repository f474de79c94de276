/*
 * bench_kernels.c - speed of the CPU backend's operations, as JSON on standard output.
 *
 *   bench_kernels [threads] [seconds for each figure]
 *
 * Matrix products of a MiniLM layer (out x in features) over 1 to 2048 rows in float32, bfloat16
 * and int8; then attention and LayerNorm. If oneDNN is built in, its runs alternate with ours, so
 * both see the same machine state. `best` is the fastest run, `median` the median. Weights rotate
 * through several copies, like the layers of a model.
 */
#include "benchmarks/kernels/onednn.h"
#include "benchmarks/kernels/peak.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPIES 6
#define MAX_ROWS 2048
#define MAX_TURNS 1000

static const struct gpuserve_backend *cpu;
static struct gpuserve_device *device;
static int n_threads = 1;
static double budget = 0.05;

static void check(gpuserve_status st, const gpuserve_error *error)
{
    if (st == GPUSERVE_OK)
        return;
    fprintf(stderr, "bench_kernels: %s\n", error->message);
    exit(1);
}

static float *device_floats(size_t n)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    void *memory;
    float *floats;

    check(cpu->memory_alloc(device, &memory, n * sizeof(float), &error), &error);
    floats = memory;
    for (size_t i = 0; i < n; i++)
        floats[i] = (float)(i * 2654435761u % 1000) * 1e-3f - 0.5f;
    return floats;
}

static struct gpuserve_stream *open_stream(uint32_t dtype)
{
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = dtype,
        .n_threads = n_threads,
        .max_tokens = MAX_ROWS,
        .max_sequences = 512,
        .max_seqlen = 512,
        .max_columns = 1536,
        .hidden_size = 384,
        .n_heads = 12,
        .output_bytes = 64,
    };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_stream *stream;

    check(cpu->stream_create(device, &stream, &options, &error), &error);
    return stream;
}

/* ---------------------------------------------------------------------------------- measuring */

struct figure {
    double best, median; /* seconds */
};

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct figure figure_of(double *turns, int n)
{
    qsort(turns, (size_t)n, sizeof(*turns), compare_doubles);
    return (struct figure){ turns[0], turns[n / 2] };
}

static double clock_of_turns(void)
{
    return n_threads == 1 ? thread_seconds() : seconds_now();
}

/* Calls run(what, turn) for the time budget; alternates with `other` (its figure in *theirs). */
static struct figure measure(void (*run)(void *what, int turn), void *what,
                             struct onednn_product *other, struct figure *theirs)
{
    static double turns[MAX_TURNS], other_turns[MAX_TURNS];
    const double end = seconds_now() + budget;
    int n = 0;

    run(what, 0);
    do {
        double start = clock_of_turns();

        run(what, n);
        turns[n] = clock_of_turns() - start;
        if (other) {
            start = clock_of_turns();
            onednn_run(other, n % COPIES);
            other_turns[n] = clock_of_turns() - start;
        }
        n++;
    } while (n < MAX_TURNS && (n < 5 || seconds_now() < end));
    if (other)
        *theirs = figure_of(other_turns, n);
    return figure_of(turns, n);
}

/* ----------------------------------------------------------------------------------- products */

struct product {
    struct gpuserve_stream *stream;
    struct gpuserve_linear *copies[COPIES];
    void *memory[COPIES];
    struct gpuserve_op_linear op;
};

static void run_product(void *product_, int turn)
{
    struct product *product = product_;

    product->op.weight = product->copies[turn % COPIES];
    cpu->linear(product->stream, &product->op);
}

static void open_product(struct product *p, uint32_t dtype, int32_t n, int32_t k, const float *w)
{
    const struct gpuserve_linear_source source = {
        .struct_size = sizeof(source),
        .dtype = dtype,
        .n = n,
        .k = k,
        .weight = w,
        .bias = w,
    };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    p->stream = open_stream(dtype);
    for (int i = 0; i < COPIES; i++) {
        check(cpu->memory_alloc(device, &p->memory[i], cpu->linear_bytes(n, k, dtype), &error),
              &error);
        check(cpu->linear_create(device, &p->copies[i], p->memory[i], &source, &error), &error);
    }
}

static void close_product(struct product *p)
{
    for (int i = 0; i < COPIES; i++) {
        cpu->linear_destroy(&p->copies[i]);
        cpu->memory_free(device, p->memory[i]);
    }
    cpu->stream_destroy(&p->stream);
}

static void print_product(const char *provider, const char *dtype, const struct product *p,
                          int32_t n, struct figure f)
{
    const double ops = 2.0 * p->op.rows * n * p->op.in_ld;

    printf(
        "    {\"op\": \"linear\", \"provider\": \"%s\", \"dtype\": \"%s\", \"n\": %d, \"k\": %d, "
        "\"gelu\": %d, \"rows\": %d, \"best_us\": %.2f, \"median_us\": %.2f, \"best_gops\": "
        "%.1f, \"median_gops\": %.1f},\n",
        provider, dtype, (int)n, (int)p->op.in_ld, p->op.activation == GPUSERVE_ACT_GELU,
        (int)p->op.rows, f.best * 1e6, f.median * 1e6, ops / f.best * 1e-9, ops / f.median * 1e-9);
}

static void bench_shape(int32_t n, int32_t k, int32_t activation, uint32_t dtype, const char *name)
{
    float *w = device_floats((size_t)n * (size_t)k);
    float *in = device_floats((size_t)MAX_ROWS * (size_t)k);
    float *out = device_floats((size_t)MAX_ROWS * (size_t)n);
    struct product p;

    open_product(&p, dtype, n, k, w);
    for (int32_t rows = 1; rows <= MAX_ROWS; rows *= 2) {
        struct onednn_product *other = NULL;
        struct figure ours, theirs = { 0, 0 };

        if (dtype != GPUSERVE_DTYPE_BFLOAT16)
            other = onednn_open(dtype == GPUSERVE_DTYPE_INT8, rows, n, k,
                                activation == GPUSERVE_ACT_GELU, w, COPIES);
        p.op = (struct gpuserve_op_linear){
            .in = in,
            .out = out,
            .rows = rows,
            .in_ld = k,
            .out_ld = n,
            .activation = activation,
        };
        ours = measure(run_product, &p, other, &theirs);
        print_product("ours", name, &p, n, ours);
        if (other)
            print_product("onednn", name, &p, n, theirs);
        onednn_close(other);
    }
    close_product(&p);
    cpu->memory_free(device, w);
    cpu->memory_free(device, in);
    cpu->memory_free(device, out);
}

/* ---------------------------------------------------------------------- attention and row work */

struct row_work {
    struct gpuserve_stream *stream;
    struct gpuserve_op_attention attention;
    struct gpuserve_op_add_norm layernorm;
};

static void run_attention(void *work_, int turn)
{
    struct row_work *work = work_;

    (void)turn;
    cpu->attention(work->stream, &work->attention);
}

static void run_layernorm(void *work_, int turn)
{
    struct row_work *work = work_;

    (void)turn;
    cpu->add_norm(work->stream, &work->layernorm);
}

static void bench_attention(struct row_work *work, int32_t length)
{
    static int32_t cu_seqlens[MAX_ROWS + 1];
    struct gpuserve_batch batch = { .n_sequences = 512 / length,
                                    .max_seqlen = length,
                                    .cu_seqlens = cu_seqlens };
    struct figure f;
    double ops;

    for (int32_t i = 0; i < batch.n_sequences; i++)
        cu_seqlens[i + 1] = (i + 1) * length;
    batch.n_tokens = batch.n_rows = batch.n_sequences * length;
    work->attention.batch = &batch;
    ops = 4.0 * length * length * 384 * batch.n_sequences;
    f = measure(run_attention, work, NULL, NULL);
    printf("    {\"op\": \"attention\", \"tokens\": %d, \"length\": %d, \"best_us\": %.2f, "
           "\"median_us\": %.2f, \"best_gops\": %.1f},\n",
           (int)batch.n_tokens, (int)length, f.best * 1e6, f.median * 1e6, ops / f.best * 1e-9);
}

static void bench_rows(void)
{
    float *qkv = device_floats(512 * 1152), *out = device_floats(512 * 384);
    struct row_work work = { .stream = open_stream(GPUSERVE_DTYPE_FLOAT32) };
    struct figure f;

    work.attention = (struct gpuserve_op_attention){
        .qkv = qkv,
        .out = out,
        .n_heads = 12,
        .head_size = 32,
        .scale = 0.1767767f,
    };
    for (int32_t length = 8; length <= 512; length *= 2)
        bench_attention(&work, length);
    work.layernorm = (struct gpuserve_op_add_norm){
        .out = out,
        .in = out,
        .gamma = qkv,
        .beta = qkv,
        .eps = 1e-12f,
        .rows = 512,
        .cols = 384,
    };
    f = measure(run_layernorm, &work, NULL, NULL);
    printf("    {\"op\": \"add_norm\", \"tokens\": 512, \"best_us\": %.2f, \"median_us\": "
           "%.2f},\n",
           f.best * 1e6, f.median * 1e6);
    cpu->stream_destroy(&work.stream);
    cpu->memory_free(device, qkv);
    cpu->memory_free(device, out);
}

/* ----------------------------------------------------------------------------- late interaction */

enum { LATE_DIM = 128, LATE_QUERY = 32, LATE_DOCUMENTS = 16, LATE_ROWS = 180 };

struct late_work {
    struct gpuserve_stream *stream;
    struct gpuserve_op_max_sim op;
};

static void run_max_sim(void *work_, int turn)
{
    struct late_work *work = work_;

    (void)turn;
    cpu->max_sim(work->stream, &work->op);
}

/* A query of ColBERT and documents of a typical length, whose vectors are normalized. */
static void bench_max_sim(void)
{
    static struct gpuserve_max_sim_text texts[LATE_DOCUMENTS];
    static int32_t rows[LATE_DOCUMENTS * LATE_ROWS];
    static float scores[LATE_DOCUMENTS];
    const struct gpuserve_batch batch = { .n_sequences = LATE_DOCUMENTS };
    float *in = device_floats((size_t)LATE_DOCUMENTS * LATE_ROWS * LATE_DIM);
    float *query = device_floats((size_t)LATE_QUERY * LATE_DIM);
    struct late_work work = { .stream = open_stream(GPUSERVE_DTYPE_FLOAT32) };
    const double ops = 2.0 * LATE_DOCUMENTS * LATE_ROWS * LATE_QUERY * LATE_DIM;
    struct figure f;

    for (int32_t i = 0; i < LATE_DOCUMENTS * LATE_ROWS; i++)
        rows[i] = i;
    for (int32_t i = 0; i < LATE_DOCUMENTS; i++)
        texts[i] = (struct gpuserve_max_sim_text){ 0, LATE_QUERY, i * LATE_ROWS, LATE_ROWS };
    work.op = (struct gpuserve_op_max_sim){ .batch = &batch,
                                            .in = in,
                                            .query = query,
                                            .texts = texts,
                                            .rows = rows,
                                            .out = scores,
                                            .dim = LATE_DIM,
                                            .normalize = 1 };
    f = measure(run_max_sim, &work, NULL, NULL);
    printf(
        "    {\"op\": \"max_sim\", \"documents\": %d, \"tokens\": %d, \"query\": %d, \"dim\": %d, "
        "\"best_us\": %.2f, \"median_us\": %.2f, \"best_gops\": %.1f}\n",
        LATE_DOCUMENTS, LATE_DOCUMENTS * LATE_ROWS, LATE_QUERY, LATE_DIM, f.best * 1e6,
        f.median * 1e6, ops / f.best * 1e-9);
    cpu->stream_destroy(&work.stream);
    cpu->memory_free(device, in);
    cpu->memory_free(device, query);
}

int main(int argc, char **argv)
{
    static const int32_t shapes[][2] = {
        { 1152, 384 }, { 384, 384 }, { 1536, 384 }, { 384, 1536 }
    };
    static const struct {
        uint32_t dtype;
        const char *name;
    } dtypes[] = { { GPUSERVE_DTYPE_FLOAT32, "float32" },
                   { GPUSERVE_DTYPE_BFLOAT16, "bfloat16" },
                   { GPUSERVE_DTYPE_INT8, "int8" } };
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (argc > 1)
        n_threads = atoi(argv[1]);
    if (argc > 2)
        budget = atof(argv[2]);
    onednn_set_threads(n_threads);
    cpu = gsv_backend_cpu();
    check(cpu->device_facts(0, &facts, &error), &error);
    check(cpu->device_open(&device, 0, &error), &error);
    printf("{\n  \"cpu\": \"%s\", \"isa\": \"%s\", \"threads\": %d,\n", facts.name, facts.isa,
           n_threads);
    printf("  \"peak_float_gops\": %.1f, \"peak_byte_gops\": %.1f, \"peak_bf16_gops\": %.1f,\n"
           "  \"figures\": [\n",
           peak_float_ops(facts.isa) * 1e-9, peak_byte_ops(facts.isa) * 1e-9,
           peak_bf16_ops(facts.isa) * 1e-9);
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        if (cpu->activation_size(dtypes[d].dtype) == 0)
            continue;
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            bench_shape(shapes[i][0], shapes[i][1],
                        shapes[i][0] == 1536 ? GPUSERVE_ACT_GELU : GPUSERVE_ACT_NONE,
                        dtypes[d].dtype, dtypes[d].name);
    }
    bench_rows();
    bench_max_sim();
    printf("  ]\n}\n");
    cpu->device_close(&device);
    return 0;
}
