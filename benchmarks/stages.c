/*
 * stages.c - time of each operation of a forward pass.
 *
 *   stages MODEL [int8|bf16|fp32] [tokens of a text; 0 for mixed lengths] [tokens of a batch]
 *          [rounds] [threads]
 *
 * Runs the library's encoder with a table of operations that measures the time of each call. The
 * time of an operation is the min over all rounds, to exclude disturbance by other processes. The
 * sum of these is the undisturbed time of a forward pass.
 */
#define _POSIX_C_SOURCE 200809L

#include "kernels/kernels.h"
#include "lib/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_OPERATIONS = 512, MAX_TOKENS = 4096, MAX_TEXTS = 512 };

/* log-normal lengths, mu 3.35, sigma 0.8 */
static const int32_t mixed[] = { 29, 12, 55, 41, 8, 28, 85, 20, 35, 150, 16, 49, 23, 66, 10 };

static struct {
    const char *name;
    int32_t columns; /* output columns of a product */
    double least;
} operations[MAX_OPERATIONS];
static size_t n_operations;
static double round_seconds;
static const struct gpuserve_backend *cpu;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void record(const char *name, int32_t columns, double started)
{
    const double spent = now_s() - started;

    if (n_operations == MAX_OPERATIONS)
        return;
    if (!operations[n_operations].name || spent < operations[n_operations].least) {
        operations[n_operations].name = name;
        operations[n_operations].columns = columns;
        operations[n_operations].least = spent;
    }
    n_operations++;
}

#define TIMED(name)                                                          \
    static gpuserve_status timed_##name(struct gpuserve_stream *stream,      \
                                        const struct gpuserve_op_##name *op) \
    {                                                                        \
        const double started = now_s();                                      \
        const gpuserve_status st = cpu->name(stream, op);                    \
                                                                             \
        record(#name, 0, started);                                           \
        return st;                                                           \
    }

TIMED(embed)
TIMED(add_norm)
TIMED(attention)
TIMED(pool)

static gpuserve_status timed_linear(struct gpuserve_stream *stream,
                                    const struct gpuserve_op_linear *op)
{
    const double started = now_s();
    const gpuserve_status st = cpu->linear(stream, op);

    record("linear", op->out_ld * 10000 + op->in_ld, started);
    return st;
}

static void check(gpuserve_status st, const gpuserve_error *error)
{
    if (st == GPUSERVE_OK)
        return;
    fprintf(stderr, "stages: %s\n", error->message);
    exit(1);
}

static struct gpuserve_host_batch make_batch(int32_t length, int32_t tokens, int32_t vocab)
{
    static int32_t ids[MAX_TOKENS], types[MAX_TOKENS], positions[MAX_TOKENS];
    static int32_t cu_seqlens[MAX_TEXTS + 1];
    struct gpuserve_host_batch batch = {
        .ids = ids, .type_ids = types, .positions = positions, .cu_seqlens = cu_seqlens
    };

    for (int32_t i = 0; batch.n_sequences < MAX_TEXTS; i++) {
        const int32_t n = length ? length : mixed[i % (int32_t)(sizeof(mixed) / sizeof(*mixed))];

        if (batch.n_tokens + n > tokens)
            break;
        for (int32_t j = 0; j < n; j++) {
            ids[batch.n_tokens] =
                (int32_t)((uint32_t)batch.n_tokens * 2654435761u % (uint32_t)vocab);
            positions[batch.n_tokens++] = j;
        }
        cu_seqlens[++batch.n_sequences] = batch.n_tokens;
        batch.max_seqlen = n > batch.max_seqlen ? n : batch.max_seqlen;
    }
    return batch;
}

static void print_figures(const struct gpuserve_host_batch *batch)
{
    double sum = 0.0;

    for (size_t i = 0; i < n_operations; i++)
        sum += operations[i].least;
    for (size_t i = 0; i < n_operations; i++) {
        double all = 0.0;
        int times = 0;

        for (size_t j = 0; j < n_operations; j++) {
            if (strcmp(operations[j].name, operations[i].name) != 0 ||
                operations[j].columns != operations[i].columns)
                continue;
            if (j < i)
                break;
            all += operations[j].least;
            times++;
        }
        if (times)
            printf("%-14s %5d x %-5d %2d times %9.1f us %6.2f %%\n", operations[i].name,
                   operations[i].columns / 10000, operations[i].columns % 10000, times, all * 1e6,
                   100.0 * all / sum);
    }
    printf(
        "%d tokens, %d texts: %.1f us in operations, %.1f us whole; %.0f texts/s, %.0f tokens/s\n",
        batch->n_tokens, batch->n_sequences, sum * 1e6, round_seconds * 1e6,
        batch->n_sequences / round_seconds, batch->n_tokens / round_seconds);
}

/* A model with timed operations. */
struct opened {
    struct gpuserve_backend backend;
    struct gpuserve_device *device;
    struct gsv_spec *spec;
    struct gsv_net *net;
    struct gsv_exec *work;
};

static void open_model(struct opened *model, const char *path, uint32_t dtype, int32_t length,
                       int32_t tokens, int32_t n_threads, struct gpuserve_host_batch *batch)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_net_options net = { .dtype = dtype, .n_threads = n_threads, .calibration = batch };
    struct gsv_exec_options work = {
        .dtype = dtype, .n_threads = n_threads, .max_tokens = MAX_TOKENS, .max_sequences = MAX_TEXTS
    };
    struct gsv_dir *dir = NULL;

    check(cpu->device_open(&model->device, 0, &error), &error);
    check(gsv_dir_open(&dir, path, &error), &error);
    check(gsv_spec_load(&model->spec, dir, NULL, 0, &error), &error);
    gsv_dir_close(&dir);
    *batch = make_batch(length, tokens, gsv_spec_facts(model->spec)->vocab_size);
    check(gsv_net_load(&model->net, model->spec, &model->backend, model->device, &net, &error),
          &error);
    work.max_seqlen = gsv_spec_facts(model->spec)->max_tokens;
    check(gsv_exec_create(&model->work, model->net, &work, &error), &error);
}

static void close_model(struct opened *model)
{
    gsv_exec_free(&model->work);
    gsv_net_free(&model->net);
    gsv_spec_free(&model->spec);
    cpu->device_close(&model->device);
}

static void run_rounds(const struct opened *model, const struct gpuserve_host_batch *batch,
                       int rounds)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const int32_t dim = gsv_spec_facts(model->spec)->dim;
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED, .dimensions = dim, .normalize = true };

    run.output = calloc((size_t)MAX_TEXTS * (size_t)dim, sizeof(float));
    if (!run.output)
        exit(1);
    memset(operations, 0, sizeof(operations)); /* discards the operations of the calibration */
    round_seconds = 1e9;
    for (int i = 0; i < rounds; i++) {
        const double started = now_s();
        double spent;

        n_operations = 0;
        check(gsv_net_run(model->work, batch, &run, &error), &error);
        spent = now_s() - started;
        round_seconds = spent < round_seconds ? spent : round_seconds;
    }
    free(run.output);
}

static uint32_t dtype_of(const char *name)
{
    if (strcmp(name, "int8") == 0)
        return GPUSERVE_DTYPE_INT8;
    return strcmp(name, "bf16") == 0 ? GPUSERVE_DTYPE_BFLOAT16 : GPUSERVE_DTYPE_FLOAT32;
}

int main(int argc, char **argv)
{
    const uint32_t dtype = dtype_of(argc > 2 ? argv[2] : "fp32");
    const int32_t length = argc > 3 ? atoi(argv[3]) : 0;
    const int32_t tokens = argc > 4 ? atoi(argv[4]) : 512;
    const int rounds = argc > 5 ? atoi(argv[5]) : 200;
    const int32_t n_threads = argc > 6 ? atoi(argv[6]) : 1;
    struct gpuserve_host_batch batch;
    struct opened model = { 0 };

    if (argc < 2 || tokens < 1 || tokens > MAX_TOKENS || length < 0 || length > tokens ||
        n_threads < 1) {
        fprintf(stderr, "usage: stages MODEL [int8|bf16|fp32] [length] [tokens] [rounds] "
                        "[threads]\n");
        return 2;
    }
    cpu = gsv_backend_cpu();
    model.backend = *cpu;
    model.backend.embed = timed_embed;
    model.backend.linear = timed_linear;
    model.backend.add_norm = timed_add_norm;
    model.backend.attention = timed_attention;
    model.backend.pool = timed_pool;
    open_model(&model, argv[1], dtype, length, tokens, n_threads, &batch);
    run_rounds(&model, &batch, rounds);
    print_figures(&batch);
    close_model(&model);
    return 0;
}
