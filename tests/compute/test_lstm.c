/*
 * test_lstm.c - gpuserve_lstm_run() on the CPU and on the emulated GPU: against torch, larger
 * shapes against kernels/ref, and rejected arguments.
 */
#include "kernels/kernels.h"
#include "tests/compute/support.h"
#include "tests/cudaemu/emu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WEIGHTS 8
#define MAX_SEQUENCES 40

/* A network, its sequences and the expected results. */
struct problem {
    gpuserve_lstm_network network;
    gpuserve_lstm_weights weights[MAX_WEIGHTS];
    int32_t cu_seqlens[MAX_SEQUENCES + 1];
    gpuserve_lstm_job job;
    size_t n_output, n_state;
    float *floats; /* one allocation for all arrays */
    const float *output, *h_n, *c_n;
};

struct way {
    const char *device;
    uint32_t variant, dtype;
    double room; /* tolerance of |got - want| / |want| */
};

static const struct way ways[] = {
    { "cpu", GPUSERVE_LSTM_AUTO, GPUSERVE_DTYPE_DEFAULT, 1e-6 },
    { "cpu", GPUSERVE_LSTM_STEPS, GPUSERVE_DTYPE_FLOAT32, 1e-6 },
    { "cuda:0", GPUSERVE_LSTM_STEPS, GPUSERVE_DTYPE_FLOAT32, 1e-6 },
    { "cuda:0", GPUSERVE_LSTM_FUSED, GPUSERVE_DTYPE_DEFAULT, 1e-6 },
    { "cuda:0", GPUSERVE_LSTM_STEPS, GPUSERVE_DTYPE_FLOAT16, 1e-3 },
    { "cuda:0", GPUSERVE_LSTM_FUSED, GPUSERVE_DTYPE_FLOAT16, 1e-3 },
    { "cuda:0", GPUSERVE_LSTM_CUDNN, GPUSERVE_DTYPE_FLOAT32, 1e-6 },
};

#define COUNT(array) (sizeof(array) / sizeof(array[0]))

static double distance(const float *got, const float *want, size_t n)
{
    double apart = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - (double)want[i];

        if (isnan(d))
            return INFINITY;
        apart += d * d;
        size += (double)want[i] * (double)want[i];
    }
    /* States are in [-1, 1] and are sums of terms of that size, so the error of a single state near
     * zero is not relative to the state. The emulator's tanhf() is the C library's, whose last
     * digit changed between glibc 2.36 and 2.41: with the latter, in the same program, the state
     * 0.038 of the network of one unit is 8e-8 off, 2.1e-6 of itself. */
    return n ? sqrt(apart / fmax(size, 0.01 * (double)n)) : 0;
}

static void run_way(const struct problem *p, const struct way *way, const char *name)
{
    gpuserve_compute *compute = open_compute(way->device);
    gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_lstm_network network = p->network;
    gpuserve_lstm_job job = p->job;
    gpuserve_lstm *lstm = NULL;
    float *output = poison_floats(p->n_output), *h_n = poison_floats(p->n_state);
    float *c_n = poison_floats(p->n_state);

    network.dtype = way->dtype;
    network.weights = p->weights;
    job.variant = way->variant;
    job.cu_seqlens = p->cu_seqlens;
    job.output = output, job.output_capacity = p->n_output;
    job.h_n = h_n, job.h_n_capacity = p->n_state;
    job.c_n = c_n, job.c_n_capacity = p->n_state;
    cr_assert_eq(gpuserve_lstm_create(&lstm, compute, &network, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_eq(gpuserve_lstm_run(lstm, &job, &result, &error), GPUSERVE_OK, "%s: %s", name,
                 error.message);
    cr_expect_eq(result.variant, way->variant ? way->variant : GPUSERVE_LSTM_FUSED);
    cr_expect_leq(distance(output, p->output, p->n_output), way->room,
                  "%s on %s, variant %u, dtype %u: output is %.3g off", name, way->device,
                  way->variant, way->dtype, distance(output, p->output, p->n_output));
    cr_expect_leq(distance(h_n, p->h_n, p->n_state), way->room, "%s on %s, variant %u: h_n", name,
                  way->device, way->variant);
    cr_expect_leq(distance(c_n, p->c_n, p->n_state), way->room, "%s on %s, variant %u: c_n", name,
                  way->device, way->variant);
    gpuserve_lstm_free(&lstm);
    cr_assert_null(lstm);
    gpuserve_compute_close(&compute);
    free(output), free(h_n), free(c_n);
}

/* ---------------------------------------------------------------------------------------- torch */

static const float *take(const float **at, size_t n)
{
    const float *taken = *at;

    *at += n;
    return taken;
}

static void point(struct problem *p, const int32_t head[8])
{
    const size_t hidden = (size_t)head[1], directions = (size_t)head[3], n = (size_t)head[4];
    const float *at = p->floats;

    for (int32_t layer = 0; layer < head[2]; layer++) {
        const size_t width = layer == 0 ? (size_t)head[0] : directions * hidden;

        for (size_t d = 0; d < directions; d++) {
            gpuserve_lstm_weights *w = &p->weights[(size_t)layer * directions + d];

            w->weight_ih = take(&at, 4 * hidden * width);
            w->weight_hh = take(&at, 4 * hidden * hidden);
            w->bias_ih = head[6] ? take(&at, 4 * hidden) : NULL;
            w->bias_hh = head[6] ? take(&at, 4 * hidden) : NULL;
        }
    }
    p->n_state = (size_t)head[2] * directions * n * hidden;
    p->n_output = (size_t)head[5] * directions * hidden;
    p->job.input = take(&at, (size_t)head[5] * (size_t)head[0]);
    p->job.h_0 = head[7] ? take(&at, p->n_state) : NULL;
    p->job.c_0 = head[7] ? take(&at, p->n_state) : NULL;
    p->output = take(&at, p->n_output);
    p->h_n = take(&at, p->n_state);
    p->c_n = take(&at, p->n_state);
}

static struct problem read_problem(const char *name)
{
    struct problem p = { .network = GPUSERVE_LSTM_NETWORK_INIT, .job = GPUSERVE_LSTM_JOB_INIT };
    int32_t head[8], length;
    char path[512];
    long begin, end;
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s.f32", LSTM_DATA, name);
    file = fopen(path, "rb");
    cr_assert(file && fread(head, sizeof(head), 1, file) == 1, "%s", path);
    p.network.input_size = head[0];
    p.network.hidden_size = head[1];
    p.network.n_layers = head[2];
    p.network.bidirectional = head[3] == 2;
    p.network.n_weights = (size_t)(head[2] * head[3]);
    p.job.n_sequences = head[4];
    for (int32_t i = 0; i < head[4]; i++) {
        cr_assert_eq(fread(&length, sizeof(length), 1, file), 1);
        p.cu_seqlens[i + 1] = p.cu_seqlens[i] + length;
    }
    cr_assert_eq(p.cu_seqlens[head[4]], head[5]);
    begin = ftell(file);
    fseek(file, 0, SEEK_END);
    end = ftell(file);
    fseek(file, begin, SEEK_SET);
    p.floats = malloc((size_t)(end - begin));
    cr_assert(p.floats && fread(p.floats, (size_t)(end - begin), 1, file) == 1);
    fclose(file);
    point(&p, head);
    cr_assert_eq(p.c_n + p.n_state, p.floats + (size_t)(end - begin) / sizeof(float));
    return p;
}

Test(lstm, computes_what_torch_does)
{
    static const char *const names[] = { "one", "deep", "plain", "three", "single" };

    for (size_t i = 0; i < COUNT(names); i++) {
        struct problem p = read_problem(names[i]);

        /* In float16 the error of a single value is not averaged. */
        for (size_t w = 0; w < COUNT(ways); w++)
            if (p.n_state > 1 || ways[w].dtype != GPUSERVE_DTYPE_FLOAT16)
                run_way(&p, &ways[w], names[i]);
        free(p.floats);
    }
}

/* --------------------------------------------------------------------------------------- larger */

struct shape {
    int32_t input, hidden, directions, n;
    int32_t lengths[MAX_SEQUENCES];
    bool states;
};

static const struct shape shapes[] = {
    { 4, 3, 2, 5, { 0, 2, 0, 1, 3 }, true }, /* empty sequences in between */
    { 2, 5, 1, 3, { 0, 0, 0 }, true },       /* only empty sequences */
    { 31, 200, 1, 3, { 5, 9, 1 }, false },   /* several blocks of a team */
    { 8, 330, 2, 2, { 3, 2 }, true },        /* and in both directions */
    { 40,
      64,
      1,
      37,
      { 7, 3, 5, 5, 1, 0, 2, 4, 4, 4, 6, 1, 1, 2, 3, 7, 3, 5, 5,
        1, 2, 2, 4, 4, 4, 6, 1, 1, 2, 3, 1, 1, 1, 1, 1, 1, 2 },
      true }, /* tiles */
};

/* Expected results for the single layer of `p`, from kernels/ref. */
static void ask_oracle(struct problem *p)
{
    const struct gpuserve_backend *ref = gsv_backend_ref();
    const int32_t n = p->job.n_sequences, directions = p->network.bidirectional ? 2 : 1;
    const size_t gates = 4 * (size_t)p->network.hidden_size;
    struct gpuserve_lstm_source source = {
        .struct_size = sizeof(source),
        .dtype = GPUSERVE_DTYPE_FLOAT32,
        .input_size = p->network.input_size,
        .hidden_size = p->network.hidden_size,
        .n_directions = directions,
    };
    struct gpuserve_lstm_sequence sequences[MAX_SEQUENCES];
    float *bias = calloc(2 * gates, sizeof(float));
    float *results = calloc(p->n_output + 2 * p->n_state + 1, sizeof(float));
    struct gpuserve_op_lstm op = { .in = p->job.input, .h_0 = p->job.h_0, .c_0 = p->job.c_0 };
    struct gpuserve_lstm_layer *layer;
    void *memory, *scratch;
    size_t size;

    cr_assert(bias && results);
    for (int32_t d = 0; d < directions; d++) {
        source.weight_ih[d] = p->weights[d].weight_ih;
        source.weight_hh[d] = p->weights[d].weight_hh;
        source.bias[d] = bias + (size_t)d * gates;
        for (size_t i = 0; i < gates; i++)
            bias[(size_t)d * gates + i] = p->weights[d].bias_ih[i] + p->weights[d].bias_hh[i];
    }
    for (int32_t i = 0; i < n; i++)
        sequences[i] =
            (struct gpuserve_lstm_sequence){ p->cu_seqlens[i],
                                             p->cu_seqlens[i + 1] - p->cu_seqlens[i], i, 0 };
    cr_assert_eq(ref->lstm_layer_bytes(&source, &size, NULL), GPUSERVE_OK);
    memory = malloc(size);
    cr_assert_eq(ref->lstm_layer_create(NULL, &layer, memory, &source, NULL), GPUSERVE_OK);
    op.layer = layer;
    op.sequences = op.host_sequences = sequences;
    op.n_sequences = n;
    op.n_rows = p->cu_seqlens[n];
    op.out = results, op.h_n = op.out + p->n_output, op.c_n = op.h_n + p->n_state;
    cr_assert_eq(ref->lstm_bytes(NULL, &op, &size, NULL), GPUSERVE_OK);
    op.scratch = scratch = malloc(size);
    cr_assert_eq(ref->lstm(NULL, &op, NULL), GPUSERVE_OK);
    p->floats = results;
    p->output = op.out, p->h_n = op.h_n, p->c_n = op.c_n;
    ref->lstm_layer_destroy(&layer);
    free(memory), free(scratch), free(bias);
}

static struct problem make_problem(const struct shape *s)
{
    struct problem p = { .network = GPUSERVE_LSTM_NETWORK_INIT, .job = GPUSERVE_LSTM_JOB_INIT };
    const size_t hidden = (size_t)s->hidden, input = (size_t)s->input;

    p.network.input_size = s->input;
    p.network.hidden_size = s->hidden;
    p.network.bidirectional = s->directions == 2;
    p.network.n_weights = (size_t)s->directions;
    p.job.n_sequences = s->n;
    for (int32_t i = 0; i < s->n; i++)
        p.cu_seqlens[i + 1] = p.cu_seqlens[i] + s->lengths[i];
    for (uint32_t d = 0; d < 2; d++) {
        float *hh = random_floats(4 * hidden * hidden, 20 + d);

        for (size_t i = 0; i < 4 * hidden * hidden; i++)
            hh[i] *= 2.0f / sqrtf((float)hidden);
        p.weights[d].weight_ih = random_floats(4 * hidden * input, 10 + d);
        p.weights[d].weight_hh = hh;
        p.weights[d].bias_ih = random_floats(4 * hidden, 30 + d);
        p.weights[d].bias_hh = random_floats(4 * hidden, 40 + d);
    }
    p.n_state = (size_t)(s->directions * s->n) * hidden;
    p.n_output = (size_t)p.cu_seqlens[s->n] * (size_t)s->directions * hidden;
    p.job.input = random_floats((size_t)p.cu_seqlens[s->n] * input, 50);
    p.job.h_0 = s->states ? random_floats(p.n_state, 51) : NULL;
    p.job.c_0 = s->states ? random_floats(p.n_state, 52) : NULL;
    ask_oracle(&p);
    return p;
}

static void free_problem(struct problem *p)
{
    for (int d = 0; d < 2; d++) {
        free((void *)(uintptr_t)p->weights[d].weight_ih);
        free((void *)(uintptr_t)p->weights[d].weight_hh);
        free((void *)(uintptr_t)p->weights[d].bias_ih);
        free((void *)(uintptr_t)p->weights[d].bias_hh);
    }
    free((void *)(uintptr_t)p->job.input);
    free((void *)(uintptr_t)p->job.h_0);
    free((void *)(uintptr_t)p->job.c_0);
    free(p->floats);
}

Test(lstm, any_shape)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct problem p = make_problem(&shapes[i]);
        char name[32];

        snprintf(name, sizeof(name), "shape %zu", i);
        for (size_t w = 0; w < COUNT(ways); w++)
            run_way(&p, &ways[w], name);
        free_problem(&p);
    }
}

/* A device with 99 KB of shared memory per block, too little for all weights. */
Test(lstm, weights_that_shared_memory_does_not_hold)
{
    static const struct shape shape = { 3, 470, 1, 3, { 2, 3, 1 }, true };
    struct problem p = make_problem(&shape);

    gsv_emu_set_capability(8, 6);
    for (size_t w = 0; w < COUNT(ways); w++)
        if (ways[w].variant == GPUSERVE_LSTM_FUSED)
            run_way(&p, &ways[w], "streamed");
    free_problem(&p);
}

/* More sequences than the blocks can hold at once. */
Test(lstm, more_sequences_than_fit)
{
    const int32_t n = 17000;
    float *input = random_floats((size_t)n, 1), *one = random_floats(20, 2);
    gpuserve_lstm_weights weights = { one, one + 4, one + 8, one + 12 };
    gpuserve_lstm_network network = GPUSERVE_LSTM_NETWORK_INIT;
    gpuserve_lstm_job job = GPUSERVE_LSTM_JOB_INIT;
    int32_t *ends = malloc(((size_t)n + 1) * sizeof(*ends));
    float *outputs[N_DEVICES];

    cr_assert_not_null(ends);
    for (int32_t i = 0; i <= n; i++)
        ends[i] = i;
    network.input_size = network.hidden_size = 1;
    network.weights = &weights, network.n_weights = 1;
    job.n_sequences = n, job.cu_seqlens = ends, job.input = input;
    job.output_capacity = (size_t)n;
    for (size_t d = 0; d < N_DEVICES; d++) {
        gpuserve_compute *compute = open_compute(devices[d]);
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_lstm *lstm = NULL;

        job.output = outputs[d] = poison_floats((size_t)n);
        cr_assert_eq(gpuserve_lstm_create(&lstm, compute, &network, &error), GPUSERVE_OK);
        cr_assert_eq(gpuserve_lstm_run(lstm, &job, NULL, &error), GPUSERVE_OK, "%s", error.message);
        gpuserve_lstm_free(&lstm);
        gpuserve_compute_close(&compute);
    }
    cr_expect_leq(distance(outputs[1], outputs[0], (size_t)n), 1e-6);
    for (size_t d = 0; d < N_DEVICES; d++)
        free(outputs[d]);
    free(ends), free(input), free(one);
}

/* --------------------------------------------------------------------------------------- misuse */

static void expect_create(gpuserve_compute *compute, const gpuserve_lstm_network *network,
                          gpuserve_status status, const char *words)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_lstm *lstm = (void *)(uintptr_t)1;

    cr_expect_eq(gpuserve_lstm_create(&lstm, compute, network, &error), status, "%s", words);
    cr_expect_null(lstm);
    cr_expect(strstr(error.message, words), "\"%s\" lacks \"%s\"", error.message, words);
}

Test(lstm, refuses_bad_networks)
{
    struct problem p = read_problem("deep");
    gpuserve_compute *compute = open_compute("cpu");
    gpuserve_lstm_network n = p.network;

    n.weights = p.weights;
    cr_expect_eq(gpuserve_lstm_create(NULL, compute, &n, NULL), GPUSERVE_E_INVALID);
    expect_create(NULL, &n, GPUSERVE_E_INVALID, "the compute handle is NULL");
    expect_create(compute, NULL, GPUSERVE_E_INVALID, "`network` is NULL");
    n.hidden_size = 0;
    expect_create(compute, &n, GPUSERVE_E_INVALID, "hidden_size is 0, the minimum is 1");
    n.hidden_size = GPUSERVE_LSTM_MAX_SIZE + 1;
    expect_create(compute, &n, GPUSERVE_E_TOO_LARGE, "hidden_size is 65537, the limit is 65536");
    n.hidden_size = p.network.hidden_size;
    n.input_size = -4;
    expect_create(compute, &n, GPUSERVE_E_INVALID, "input_size is -4, the minimum is 1");
    n.input_size = p.network.input_size;
    n.n_layers = 257;
    expect_create(compute, &n, GPUSERVE_E_TOO_LARGE, "n_layers is 257, the limit is 256");
    n.n_layers = 3;
    expect_create(compute, &n, GPUSERVE_E_INVALID,
                  "n_weights is 4; 3 layers in 2 directions need 6");
    n.n_layers = 2;
    n.bidirectional = 2;
    expect_create(compute, &n, GPUSERVE_E_INVALID, "bidirectional is 2");
    n.bidirectional = 1;
    n.dtype = 77;
    expect_create(compute, &n, GPUSERVE_E_INVALID, "dtype is 77");
    n.dtype = GPUSERVE_DTYPE_FLOAT16;
    expect_create(compute, &n, GPUSERVE_E_UNSUPPORTED, "layer 0: dtype");
    n.dtype = 0;
    n.weights = NULL;
    expect_create(compute, &n, GPUSERVE_E_INVALID, "`weights` is NULL");
    n.weights = p.weights;
    p.weights[3].weight_hh = NULL;
    expect_create(compute, &n, GPUSERVE_E_INVALID, "weights[3].weight_hh is NULL");
    gpuserve_lstm_free(NULL);
    gpuserve_compute_close(&compute);
    free(p.floats);
}

static void expect_run(gpuserve_lstm *lstm, const gpuserve_lstm_job *job, gpuserve_status status,
                       const char *words)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_expect_eq(gpuserve_lstm_run(lstm, job, NULL, &error), status, "%s: %s", words,
                 error.message);
    cr_expect(strstr(error.message, words), "\"%s\" lacks \"%s\"", error.message, words);
}

Test(lstm, refuses_bad_jobs)
{
    struct problem p = read_problem("one");
    gpuserve_compute *compute = open_compute("cpu");
    gpuserve_lstm *lstm = NULL;
    gpuserve_lstm_job j = p.job;
    int32_t lengths[] = { 0, 3, 2, 8 };
    float *output = poison_floats(p.n_output);

    p.network.weights = p.weights;
    cr_assert_eq(gpuserve_lstm_create(&lstm, compute, &p.network, NULL), GPUSERVE_OK);
    expect_run(NULL, &j, GPUSERVE_E_INVALID, "the LSTM's handle is NULL");
    expect_run(lstm, NULL, GPUSERVE_E_INVALID, "`job` is NULL");
    expect_run(lstm, &j, GPUSERVE_E_INVALID, "`cu_seqlens` is NULL");
    j.cu_seqlens = lengths;
    expect_run(lstm, &j, GPUSERVE_E_INVALID, "cu_seqlens[2] is 2, less than the 3 before it");
    lengths[2] = 4;
    lengths[0] = 1;
    expect_run(lstm, &j, GPUSERVE_E_INVALID, "cu_seqlens[0] is 1, not 0");
    lengths[0] = 0;
    j.variant = 4;
    expect_run(lstm, &j, GPUSERVE_E_INVALID, "variant is 4");
    j.variant = 0;
    j.n_sequences = -1;
    expect_run(lstm, &j, GPUSERVE_E_INVALID, "n_sequences is -1");
    j.n_sequences = 3;
    j.input = NULL;
    expect_run(lstm, &j, GPUSERVE_E_INVALID, "`input` is NULL");
    j.input = p.job.input;
    j.output = output;
    j.output_capacity = p.n_output - 1;
    expect_run(lstm, &j, GPUSERVE_E_INVALID, "output_capacity is 55 floats, the output needs 56");
    j.output_capacity = p.n_output;
    j.h_n = output + 10;
    j.h_n_capacity = p.n_state;
    expect_run(lstm, &j, GPUSERVE_E_INVALID, "`output` overlaps `h_n`");
    j.h_n = NULL;
    for (size_t i = 0; i < p.n_output; i++)
        cr_assert(isnan(output[i]), "written by a job that was refused");
    cr_expect_eq(gpuserve_lstm_run(lstm, &j, NULL, NULL), GPUSERVE_OK); /* only the output */
    j.n_sequences = 0;
    j.cu_seqlens = NULL;
    cr_expect_eq(gpuserve_lstm_run(lstm, &j, NULL, NULL), GPUSERVE_OK);
    gpuserve_lstm_free(&lstm);
    gpuserve_compute_close(&compute);
    free(output);
    free(p.floats);
}
