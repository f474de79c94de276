/*
 * test_recurrent.c - layers of LSTM and GRU cells on the CUDA backend against kernels/ref, in every
 * variant that it has for them. On a machine with a GPU, cuDNN may be missing: its variant is then
 * refused by name.
 */
#include "tests/kernels_cuda/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SEQUENCES 6
#define N_ROWS 29

static const int32_t lengths[N_SEQUENCES] = { 9, 8, 8, 3, 1, 0 }; /* longest first */

struct layer_case {
    uint32_t cell;
    int32_t input, units, directions;
    bool states;
};

static const struct layer_case cases[] = {
    { GPUSERVE_CELL_LSTM, 7, 21, 2, true },
    { GPUSERVE_CELL_GRU, 1, 1, 1, false },
    { GPUSERVE_CELL_GRU, 7, 21, 2, true },
    { GPUSERVE_CELL_GRU, 40, 70, 1, true },
    { GPUSERVE_CELL_GRU_RESET_BEFORE, 7, 21, 2, true },
    { GPUSERVE_CELL_GRU_RESET_BEFORE, 40, 70, 1, false },
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

/* A layer with its inputs on both sides. */
struct layer_problem {
    const struct layer_case *of;
    struct gpuserve_lstm_source source;
    struct gpuserve_lstm_sequence sequences[N_SEQUENCES];
    struct buffer weights[2][3], in, h_0, c_0;
    size_t n_state, n_out;
    float *out, *h_n, *c_n; /* of kernels/ref */
};

static void ask_oracle(struct layer_problem *p)
{
    const struct gpuserve_backend *ref = gsv_backend_ref();
    struct gpuserve_op_lstm op = {
        .in = p->in.host,
        .h_0 = p->of->states ? p->h_0.host : NULL,
        .c_0 = p->of->states ? p->c_0.host : NULL,
        .sequences = p->sequences,
        .host_sequences = p->sequences,
        .n_rows = N_ROWS,
        .n_sequences = N_SEQUENCES,
    };
    struct gpuserve_lstm_layer *layer;
    void *memory;
    size_t size;

    op.out = p->out = calloc(p->n_out, sizeof(float));
    op.h_n = p->h_n = calloc(p->n_state, sizeof(float));
    op.c_n = p->c_n = calloc(p->n_state, sizeof(float));
    cr_assert_eq(ref->lstm_layer_bytes(&p->source, &size, NULL), GPUSERVE_OK);
    memory = malloc(size);
    cr_assert_eq(ref->lstm_layer_create(NULL, &layer, memory, &p->source, NULL), GPUSERVE_OK);
    op.layer = layer;
    cr_assert_eq(ref->lstm_bytes(NULL, &op, &size, NULL), GPUSERVE_OK);
    op.scratch = malloc(size);
    cr_assert_eq(ref->lstm(NULL, &op, NULL), GPUSERVE_OK);
    ref->lstm_layer_destroy(&layer);
    free(memory), free(op.scratch);
}

static struct layer_problem make_problem(const struct layer_case *c)
{
    const size_t units = (size_t)c->units;
    const size_t rows = (size_t)gpuserve_cell_gates(c->cell) * units;
    struct layer_problem p = {
        .of = c,
        .source = { .struct_size = sizeof(p.source),
                    .dtype = GPUSERVE_DTYPE_FLOAT32,
                    .input_size = c->input,
                    .hidden_size = c->units,
                    .n_directions = c->directions,
                    .cell = c->cell },
        .n_state = (size_t)(c->directions * N_SEQUENCES) * units,
        .n_out = (size_t)(N_ROWS * c->directions) * units,
    };
    int32_t first = 0;

    for (int32_t d = 0; d < c->directions; d++) {
        const size_t sizes[3] = { rows * (size_t)c->input, rows * units, 4 * units };

        for (uint32_t i = 0; i < 3; i++)
            p.weights[d][i] = make_input(GPUSERVE_DTYPE_FLOAT32, sizes[i], 60 + 3 * (uint32_t)d + i,
                                         i == 1 ? 2.0f / sqrtf((float)units) : 1.0f);
        p.source.weight_ih[d] = p.weights[d][0].host;
        p.source.weight_hh[d] = p.weights[d][1].host;
        p.source.bias[d] = p.weights[d][2].host;
    }
    for (int32_t i = 0; i < N_SEQUENCES; first += lengths[i], i++)
        p.sequences[i] =
            (struct gpuserve_lstm_sequence){ first, lengths[i], (i * 5 + 1) % N_SEQUENCES, 0 };
    p.in = make_input(GPUSERVE_DTYPE_FLOAT32, (size_t)(N_ROWS * c->input), 70, 1.0f);
    p.h_0 = make_input(GPUSERVE_DTYPE_FLOAT32, p.n_state, 71, 1.0f);
    p.c_0 = make_input(GPUSERVE_DTYPE_FLOAT32, p.n_state, 72, 1.0f);
    ask_oracle(&p);
    return p;
}

static void free_problem(struct layer_problem *p)
{
    for (int32_t d = 0; d < p->of->directions; d++)
        for (int i = 0; i < 3; i++)
            free_buffer(&p->weights[d][i]);
    free_buffer(&p->in), free_buffer(&p->h_0), free_buffer(&p->c_0);
    free(p->out), free(p->h_n), free(p->c_n);
}

static void *alloc_bytes(size_t size)
{
    void *memory = NULL;

    cr_assert_eq(cuda_backend()->memory_alloc(cuda_device(), &memory, size ? size : 1, NULL),
                 GPUSERVE_OK);
    return memory;
}

static void compare(const struct layer_problem *p, struct buffer *got, const float *want, size_t n,
                    double tolerance, const char *what, uint32_t variant, uint32_t dtype)
{
    download(got);
    cr_expect_leq(distance(got->host, want, n), tolerance,
                  "%s of cell %u, %d units, variant %u, dtype %u: %g off", what, p->of->cell,
                  (int)p->of->units, variant, dtype, distance(got->host, want, n));
    free_buffer(got);
}

/* The emulator has cuDNN. */
static bool is_emulated(void)
{
    const char *folder = getenv("GPUSERVE_PLUGIN_DIR");

    return folder && strstr(folder, "cudaemu");
}

static void try_variant(const struct layer_problem *p, uint32_t variant, uint32_t dtype)
{
    const struct gpuserve_backend *cuda = cuda_backend();
    const double tolerance = dtype == GPUSERVE_DTYPE_FLOAT32 ? 2e-6 : 3e-3;
    struct gpuserve_stream *stream = cuda_stream(GPUSERVE_DTYPE_FLOAT32, 64, 8, 1, 0);
    struct buffer out = make_output(GPUSERVE_DTYPE_FLOAT32, p->n_out);
    struct buffer h_n = make_output(GPUSERVE_DTYPE_FLOAT32, p->n_state);
    struct buffer c_n = make_output(GPUSERVE_DTYPE_FLOAT32, p->n_state);
    struct gpuserve_lstm_source source = p->source;
    struct gpuserve_op_lstm op = {
        .in = p->in.device,
        .out = out.device,
        .h_0 = p->of->states ? p->h_0.device : NULL,
        .c_0 = p->of->states ? p->c_0.device : NULL,
        .h_n = h_n.device,
        .c_n = c_n.device,
        .sequences = alloc_bytes(sizeof(p->sequences)),
        .host_sequences = p->sequences,
        .n_rows = N_ROWS,
        .n_sequences = N_SEQUENCES,
        .variant = variant,
    };
    struct gpuserve_lstm_layer *layer;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;
    void *memory;
    size_t size;

    source.dtype = dtype;
    cr_assert_eq(cuda->memory_write(cuda_device(), (void *)(uintptr_t)op.sequences, p->sequences,
                                    sizeof(p->sequences), NULL),
                 GPUSERVE_OK);
    cr_assert_eq(cuda->lstm_layer_bytes(&source, &size, NULL), GPUSERVE_OK);
    memory = alloc_bytes(size);
    cr_assert_eq(cuda->lstm_layer_create(cuda_device(), &layer, memory, &source, NULL),
                 GPUSERVE_OK);
    op.layer = layer;
    status = cuda->lstm_bytes(cuda_device(), &op, &size, &error);
    if (status != GPUSERVE_OK && variant == GPUSERVE_LSTM_CUDNN && !is_emulated()) {
        cr_expect_eq(status, GPUSERVE_E_UNSUPPORTED);
        printf("cuDNN is not tested: %s\n", error.message);
        return; /* the process ends with the test */
    }
    cr_assert_eq(status, GPUSERVE_OK, "%s", error.message);
    op.scratch = alloc_bytes(size);
    cr_assert_eq(cuda->lstm(stream, &op, &error), GPUSERVE_OK, "%s", error.message);
    compare(p, &out, p->out, p->n_out, tolerance, "out", op.variant, dtype);
    compare(p, &h_n, p->h_n, p->n_state, tolerance, "h_n", op.variant, dtype);
    if (p->of->cell == GPUSERVE_CELL_LSTM)
        compare(p, &c_n, p->c_n, p->n_state, tolerance, "c_n", op.variant, dtype);
    else
        free_buffer(&c_n);
    cuda->lstm_layer_destroy(&layer);
    cuda->stream_destroy(&stream);
    cuda->memory_free(cuda_device(), memory);
    cuda->memory_free(cuda_device(), op.scratch);
    cuda->memory_free(cuda_device(), (void *)(uintptr_t)op.sequences);
}

Test(kernels_cuda_recurrent, matches_ref)
{
    for (size_t i = 0; i < N_CASES; i++) {
        const bool is_before = cases[i].cell == GPUSERVE_CELL_GRU_RESET_BEFORE;
        struct layer_problem p = make_problem(&cases[i]);

        for (uint32_t dtype = GPUSERVE_DTYPE_FLOAT32; dtype != 0;
             dtype = dtype == GPUSERVE_DTYPE_FLOAT32 ? GPUSERVE_DTYPE_FLOAT16 : 0) {
            try_variant(&p, GPUSERVE_LSTM_STEPS, dtype);
            try_variant(&p, is_before ? GPUSERVE_LSTM_AUTO : GPUSERVE_LSTM_FUSED, dtype);
        }
        free_problem(&p);
    }
}

Test(kernels_cuda_recurrent, cudnn_matches_ref)
{
    for (size_t i = 0; i < N_CASES; i++) {
        struct layer_problem p;

        if (cases[i].cell == GPUSERVE_CELL_GRU_RESET_BEFORE)
            continue;
        p = make_problem(&cases[i]);
        try_variant(&p, GPUSERVE_LSTM_CUDNN, GPUSERVE_DTYPE_FLOAT32);
        try_variant(&p, GPUSERVE_LSTM_CUDNN, GPUSERVE_DTYPE_FLOAT16);
        free_problem(&p);
    }
}

/* The one kernel for all steps has one product for each of them, and cuDNN has no such cell. */
Test(kernels_cuda_recurrent, reset_before_is_not_fused)
{
    struct layer_problem p = make_problem(&cases[N_CASES - 1]);
    const struct gpuserve_backend *cuda = cuda_backend();
    struct gpuserve_lstm_layer *layer;
    struct gpuserve_op_lstm op = { .host_sequences = p.sequences,
                                   .n_rows = N_ROWS,
                                   .n_sequences = N_SEQUENCES,
                                   .variant = GPUSERVE_LSTM_FUSED };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    void *memory;
    size_t size;

    cr_assert_eq(cuda->lstm_layer_bytes(&p.source, &size, NULL), GPUSERVE_OK);
    memory = alloc_bytes(size);
    cr_assert_eq(cuda->lstm_layer_create(cuda_device(), &layer, memory, &p.source, NULL),
                 GPUSERVE_OK);
    op.layer = layer;
    cr_expect_eq(cuda->lstm_bytes(cuda_device(), &op, &size, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "a GRU with the reset gate before"), "%s", error.message);
    op.variant = GPUSERVE_LSTM_CUDNN;
    cr_expect_eq(cuda->lstm_bytes(cuda_device(), &op, &size, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "cuDNN has no GRU with the reset gate"), "%s", error.message);
    op.variant = GPUSERVE_LSTM_AUTO;
    cr_expect_eq(cuda->lstm_bytes(cuda_device(), &op, &size, &error), GPUSERVE_OK);
    cr_expect_eq(op.variant, (uint32_t)GPUSERVE_LSTM_STEPS);
    cuda->lstm_layer_destroy(&layer);
    cuda->memory_free(cuda_device(), memory);
    free_problem(&p);
}
