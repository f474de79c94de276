/*
 * gemm_chain.c - rate of a model's matrix products on this machine, by dtype.
 *
 *   gemm_chain [--threads N] [--seconds S] [--shapes LAYERS:N,K:N,K:N,K:N,K]
 *
 * The shapes are of one layer's four products: Q, K and V together, attention output, FFN up, FFN
 * down; without them those of all-MiniLM-L6-v2.
 *
 * Prints one JSON object for benchmarks/peers/gemm_limit.py: for each dtype the rates of our
 * backend and of oneDNN in GFLOP/s, each the max over a few batch sizes. Both exclude other
 * operations (LayerNorm, attention, GELU). Our int8 includes quantizing the input, oneDNN's does
 * not.
 */
#include "benchmarks/gemm_chain.h"

#include <gpuserve/sys/backend.h>
#include <gpuserve/types.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int32_t own_rows[] = { 256, 512, 1024 };
static const int32_t onednn_rows[] = { 512, 2048 };

static const struct {
    const char *name;
    uint32_t dtype;
} dtypes[] = {
    { "fp32", GPUSERVE_DTYPE_FLOAT32 },
    { "int8", GPUSERVE_DTYPE_INT8 },
    { "bf16", GPUSERVE_DTYPE_BFLOAT16 },
    { "int16", GPUSERVE_DTYPE_INT16 }, /* which oneDNN has not */
};

struct arguments {
    struct chain_model model;
    int32_t n_threads;
    double seconds;
};

typedef double (*rate_fn)(const struct chain_model *model, uint32_t dtype, int32_t n_threads,
                          int32_t rows, double seconds);

static double best_rate(const struct arguments *args, rate_fn rate, uint32_t dtype,
                        const int32_t *rows, size_t n)
{
    double best = 0.0;

    for (size_t i = 0; i < n; i++) {
        const double found = rate(&args->model, dtype, args->n_threads, rows[i], args->seconds);

        best = found > best ? found : best;
    }
    return best;
}

static bool is_valid(const struct chain_model *model)
{
    if (model->n_layers < 1 || model->n_layers > CHAIN_MAX_LAYERS)
        return false;
    for (size_t i = 0; i < CHAIN_SHAPES; i++) {
        const struct chain_shape shape = model->shapes[i];

        if (shape.n < 1 || shape.k < 1 || shape.n > CHAIN_MAX_WIDTH || shape.k > CHAIN_MAX_WIDTH)
            return false;
    }
    return true;
}

/* LAYERS:N,K:N,K:N,K:N,K */
static bool read_shapes(struct chain_model *model, const char *text)
{
    char *end;

    model->n_layers = (int32_t)strtol(text, &end, 10);
    for (size_t i = 0; i < CHAIN_SHAPES; i++) {
        if (*end != ':')
            return false;
        model->shapes[i].n = (int32_t)strtol(end + 1, &end, 10);
        if (*end != ',')
            return false;
        model->shapes[i].k = (int32_t)strtol(end + 1, &end, 10);
    }
    return *end == '\0' && is_valid(model);
}

static bool read_arguments(struct arguments *args, int argc, char **argv)
{
    *args = (struct arguments){
        .model = { 6, { { 1152, 384 }, { 384, 384 }, { 1536, 384 }, { 384, 1536 } } },
        .n_threads = 1,
        .seconds = 1.0,
    };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--threads") == 0)
            args->n_threads = (int32_t)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            args->seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--shapes") != 0 || !read_shapes(&args->model, argv[i + 1]))
            return false;
    }
    return argc % 2 == 1 && args->n_threads >= 1 && args->n_threads <= 1024 && args->seconds > 0.0;
}

int main(int argc, char **argv)
{
    struct arguments args;

    if (!read_arguments(&args, argc, argv)) {
        fprintf(stderr, "usage: gemm_chain [--threads N] [--seconds S] "
                        "[--shapes LAYERS:N,K:N,K:N,K:N,K]\n");
        return 2;
    }
    printf("{");
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        const uint32_t dtype = dtypes[i].dtype;
        const double own = best_rate(&args, chain_rate_own, dtype, own_rows,
                                     sizeof(own_rows) / sizeof(own_rows[0]));
        const double onednn = dtype == GPUSERVE_DTYPE_INT16
                                  ? 0.0
                                  : best_rate(&args, chain_rate_onednn, dtype, onednn_rows,
                                              sizeof(onednn_rows) / sizeof(onednn_rows[0]));

        printf("%s\"%s\": {\"gpuserve\": %.1f, \"oneDNN\": %.1f}", i ? ", " : "", dtypes[i].name,
               own, onednn);
    }
    printf("}\n");
    return 0;
}
