/*
 * gemm_own.c - the chain of matrix products on our CPU backend: one stream and thread per
 * processor.
 */
#define _POSIX_C_SOURCE 200809L

#include "benchmarks/gemm_chain.h"

#include "kernels/kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_LINEARS = CHAIN_MAX_LAYERS * CHAIN_SHAPES };

struct chain {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    const struct chain_model *model;
    size_t n_linears;
    int32_t max_width;  /* columns of the widest input or output */
    size_t max_weights; /* of one product */
    struct gpuserve_linear *linears[MAX_LINEARS];
    void *memory[MAX_LINEARS];
    uint32_t dtype;
    int32_t rows;
    double seconds;
};

struct runner {
    pthread_t thread;
    const struct chain *chain;
    double gflops; /* of this thread */
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Small numbers with a long period, no zeros and no denormals, which would distort the speed. */
static void fill(float *values, size_t n)
{
    uint32_t state = 12345;

    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) / (float)(1u << 24) - 0.5f;
    }
}

static bool make_linear(struct chain *chain, size_t i, const float *weight)
{
    const struct chain_shape shape = chain->model->shapes[i % CHAIN_SHAPES];
    const struct gpuserve_linear_source source = {
        .struct_size = sizeof(source),
        .dtype = chain->dtype,
        .n = shape.n,
        .k = shape.k,
        .weight = weight,
        .bias = weight,
    };
    const struct gpuserve_backend *backend = chain->backend;
    const size_t size = backend->linear_bytes(shape.n, shape.k, chain->dtype);

    return size > 0 &&
           backend->memory_alloc(chain->device, &chain->memory[i], size, NULL) == GPUSERVE_OK &&
           backend->linear_create(chain->device, &chain->linears[i], chain->memory[i], &source,
                                  NULL) == GPUSERVE_OK;
}

static void run_chain(const struct chain *chain, struct gpuserve_stream *stream, float *a, float *b)
{
    for (size_t i = 0; i < chain->n_linears; i++) {
        const struct chain_shape shape = chain->model->shapes[i % CHAIN_SHAPES];
        const struct gpuserve_op_linear op = {
            .weight = chain->linears[i],
            .in = a,
            .out = b,
            .rows = chain->rows,
            .in_ld = shape.k,
            .out_ld = shape.n,
        };

        chain->backend->linear(stream, &op);
    }
}

static double time_chain(const struct chain *chain, struct gpuserve_stream *stream, float *a,
                         float *b)
{
    double flops = 0.0, best = 0.0, end;

    for (size_t i = 0; i < chain->n_linears; i++) {
        const struct chain_shape shape = chain->model->shapes[i % CHAIN_SHAPES];

        flops += 2.0 * chain->rows * shape.n * shape.k;
    }
    run_chain(chain, stream, a, b);
    end = now_s() + chain->seconds;
    do {
        const double started = now_s();
        double rate;

        run_chain(chain, stream, a, b);
        run_chain(chain, stream, a, b);
        rate = 2.0 * flops / (now_s() - started);
        best = rate > best ? rate : best;
    } while (now_s() < end);
    return best / 1e9;
}

static void *run_thread(void *argument)
{
    struct runner *runner = argument;
    const struct chain *chain = runner->chain;
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = chain->dtype,
        .n_threads = 1,
        .max_tokens = chain->rows,
        .max_sequences = chain->rows,
        .max_seqlen = chain->rows,
        .max_columns = chain->max_width,
        .hidden_size = chain->model->shapes[0].k,
        .n_heads = 1,
        .output_bytes = sizeof(float),
    };
    const size_t n = (size_t)chain->rows * (size_t)chain->max_width;
    struct gpuserve_stream *stream = NULL;
    float *a = aligned_alloc(64, n * sizeof(*a));
    float *b = aligned_alloc(64, n * sizeof(*b));

    if (a && b &&
        chain->backend->stream_create(chain->device, &stream, &options, NULL) == GPUSERVE_OK) {
        fill(a, n);
        fill(b, n);
        runner->gflops = time_chain(chain, stream, a, b);
        chain->backend->stream_destroy(&stream);
    }
    free(a);
    free(b);
    return NULL;
}

static double run_threads(const struct chain *chain, int32_t n_threads)
{
    struct runner *runners = calloc((size_t)n_threads, sizeof(*runners));
    int32_t n_started = 0;
    double sum = 0.0;

    if (!runners)
        return 0.0;
    for (; n_started < n_threads; n_started++) {
        runners[n_started].chain = chain;
        if (pthread_create(&runners[n_started].thread, NULL, run_thread, &runners[n_started]) != 0)
            break;
    }
    for (int32_t i = 0; i < n_started; i++) {
        pthread_join(runners[i].thread, NULL);
        sum += runners[i].gflops;
    }
    free(runners);
    return sum;
}

static double make_and_run(struct chain *chain, int32_t n_threads)
{
    float *weight = malloc(chain->max_weights * sizeof(*weight));
    double rate = 0.0;
    bool good = weight && chain->backend->device_open(&chain->device, 0, NULL) == GPUSERVE_OK;

    if (good) {
        fill(weight, chain->max_weights);
        for (size_t i = 0; good && i < chain->n_linears; i++)
            good = make_linear(chain, i, weight);
        if (good)
            rate = run_threads(chain, n_threads);
        for (size_t i = 0; i < chain->n_linears; i++) {
            chain->backend->linear_destroy(&chain->linears[i]);
            chain->backend->memory_free(chain->device, chain->memory[i]);
        }
    }
    chain->backend->device_close(&chain->device);
    free(weight);
    return rate;
}

double chain_rate_own(const struct chain_model *model, uint32_t dtype, int32_t n_threads,
                      int32_t rows, double seconds)
{
    struct chain *chain = calloc(1, sizeof(*chain));
    double rate = 0.0;

    if (!chain)
        return 0.0;
    chain->backend = gsv_backend_cpu();
    chain->model = model;
    chain->n_linears = (size_t)model->n_layers * CHAIN_SHAPES;
    chain->dtype = dtype;
    chain->rows = rows;
    chain->seconds = seconds;
    for (size_t i = 0; i < CHAIN_SHAPES; i++) {
        const struct chain_shape shape = model->shapes[i];
        const int32_t wide = shape.n > shape.k ? shape.n : shape.k;
        const size_t weights = (size_t)shape.n * (size_t)shape.k;

        chain->max_width = wide > chain->max_width ? wide : chain->max_width;
        chain->max_weights = weights > chain->max_weights ? weights : chain->max_weights;
    }
    if (chain->backend->activation_size(dtype) > 0)
        rate = make_and_run(chain, n_threads);
    free(chain);
    return rate;
}
