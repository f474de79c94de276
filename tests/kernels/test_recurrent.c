/*
 * test_recurrent.c - layers of LSTM and GRU cells on every target against ref: both variants,
 * sequences of any lengths, initial states, and units that are no multiple of a vector.
 */
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_SEQUENCES 7

/* Longest first; more steps than a chunk of input products has. */
static const int32_t lengths[N_SEQUENCES] = { 29, 13, 12, 12, 5, 1, 0 };
#define N_ROWS 72

struct layer_case {
    uint32_t cell;
    int32_t input, units, directions;
    bool states;
};

/* The last of each cell has weights beyond the cache of a core. */
static const struct layer_case cases[] = {
    { GPUSERVE_CELL_LSTM, 9, 21, 2, true },
    { GPUSERVE_CELL_LSTM, 40, 350, 1, false },
    { GPUSERVE_CELL_GRU, 1, 1, 1, false },
    { GPUSERVE_CELL_GRU, 9, 21, 2, true },
    { GPUSERVE_CELL_GRU, 33, 64, 1, true },
    { GPUSERVE_CELL_GRU, 40, 410, 1, false },
    { GPUSERVE_CELL_GRU_RESET_BEFORE, 1, 1, 2, false },
    { GPUSERVE_CELL_GRU_RESET_BEFORE, 9, 21, 2, true },
    { GPUSERVE_CELL_GRU_RESET_BEFORE, 33, 64, 1, false },
    { GPUSERVE_CELL_GRU_RESET_BEFORE, 40, 410, 2, true },
};

struct recurrent_run {
    size_t n_out, n_state;
    float *out, *h_n, *c_n;
};

static void make_source(struct gpuserve_lstm_source *source, const struct layer_case *c)
{
    const size_t units = (size_t)c->units;
    const size_t rows = (size_t)gpuserve_cell_gates(c->cell) * units;

    *source = (struct gpuserve_lstm_source){
        .struct_size = sizeof(*source),
        .dtype = GPUSERVE_DTYPE_FLOAT32,
        .input_size = c->input,
        .hidden_size = c->units,
        .n_directions = c->directions,
        .cell = c->cell,
    };
    for (uint32_t d = 0; d < (uint32_t)c->directions; d++) {
        float *hh = make_floats(rows * units, 10 + d);

        for (size_t i = 0; i < rows * units; i++)
            hh[i] *= 2.0f / sqrtf((float)units);
        source->weight_ih[d] = make_floats(rows * (size_t)c->input, 20 + d);
        source->weight_hh[d] = hh;
        source->bias[d] = make_floats(4 * units, 30 + d);
    }
}

static void free_source(struct gpuserve_lstm_source *source)
{
    for (int32_t d = 0; d < source->n_directions; d++) {
        free_floats((float *)(uintptr_t)source->weight_ih[d]);
        free_floats((float *)(uintptr_t)source->weight_hh[d]);
        free_floats((float *)(uintptr_t)source->bias[d]);
    }
}

static void run_op(const struct target *t, struct gpuserve_op_lstm *op,
                   const struct gpuserve_lstm_source *source)
{
    struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, N_ROWS, 64, 1, 32);
    size_t size;

    cr_assert_eq(t->backend->lstm_bytes(t->device, op, &size, NULL), GPUSERVE_OK);
    if (op->variant != GPUSERVE_LSTM_STEPS)
        cr_expect_leq(size, t->backend->lstm_max_bytes(source, N_ROWS, N_SEQUENCES));
    op->scratch = make_poison(size / sizeof(float) + 1);
    cr_assert_eq(t->backend->lstm(stream, op, NULL), GPUSERVE_OK);
    free_floats(op->scratch);
    t->backend->stream_destroy(&stream);
}

/* The outputs of one layer; with `moves` its packed weights have another address before the run. */
static struct recurrent_run run_case(const struct target *t, const struct layer_case *c,
                                     uint32_t variant, bool moves)
{
    const size_t states = (size_t)(c->directions * N_SEQUENCES * c->units);
    struct recurrent_run run = { .n_out = (size_t)(N_ROWS * c->directions * c->units),
                                 .n_state = states };
    struct gpuserve_lstm_sequence sequences[N_SEQUENCES];
    struct gpuserve_lstm_source source;
    struct gpuserve_lstm_layer *layer = NULL;
    float *in = make_floats((size_t)(N_ROWS * c->input), 40), *h_0 = make_floats(states, 41);
    float *c_0 = make_floats(states, 42), *memory, *other;
    struct gpuserve_op_lstm op;
    size_t size;
    int32_t first = 0;

    make_source(&source, c);
    for (int32_t i = 0; i < N_SEQUENCES; first += lengths[i], i++)
        sequences[i] =
            (struct gpuserve_lstm_sequence){ first, lengths[i], (i * 3 + 2) % N_SEQUENCES, 0 };
    cr_assert_eq(t->backend->lstm_layer_bytes(&source, &size, NULL), GPUSERVE_OK);
    memory = make_poison(size / sizeof(float) + 1);
    other = make_poison(size / sizeof(float) + 1);
    cr_assert_eq(t->backend->lstm_layer_create(t->device, &layer, memory, &source, NULL),
                 GPUSERVE_OK);
    if (moves) {
        memcpy(other, memory, size);
        memset(memory, 0xFF, size);
        t->backend->lstm_layer_move(layer, memory, other);
    }
    run.out = make_poison(run.n_out);
    run.h_n = make_poison(states);
    run.c_n = make_poison(states);
    op = (struct gpuserve_op_lstm){
        .layer = layer,
        .in = in,
        .out = run.out,
        .h_0 = c->states ? h_0 : NULL,
        .c_0 = c->states ? c_0 : NULL,
        .h_n = run.h_n,
        .c_n = run.c_n,
        .sequences = sequences,
        .host_sequences = sequences,
        .n_rows = N_ROWS,
        .n_sequences = N_SEQUENCES,
        .variant = variant,
    };
    run_op(t, &op, &source);
    t->backend->lstm_layer_destroy(&layer);
    free_source(&source);
    free_floats(memory), free_floats(other);
    free_floats(in), free_floats(h_0), free_floats(c_0);
    return run;
}

static void free_run(struct recurrent_run *run)
{
    free_floats(run->out), free_floats(run->h_n), free_floats(run->c_n);
}

/* States are in [-1, 1]; the errors of their sums go through all steps. */
Test(recurrent, matches_ref)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct layer_case *c = &cases[i];
        struct recurrent_run want = run_case(target_at(0), c, GPUSERVE_LSTM_AUTO, false);

        for (int b = 1; b < target_count(); b++)
            for (uint32_t variant = 0; variant < 2; variant++) {
                struct recurrent_run got = run_case(target_at(b), c, variant, variant);

                cr_expect(all_close(got.out, want.out, want.n_out, 1e-5f, 1e-5f),
                          "%s, case %zu, variant %u: %s", target_at(b)->name, i, variant,
                          difference());
                cr_expect(all_close(got.h_n, want.h_n, want.n_state, 1e-5f, 1e-5f),
                          "%s, case %zu, variant %u, h_n: %s", target_at(b)->name, i, variant,
                          difference());
                if (c->cell == GPUSERVE_CELL_LSTM)
                    cr_expect(all_close(got.c_n, want.c_n, want.n_state, 1e-5f, 1e-5f),
                              "%s, case %zu, variant %u, c_n: %s", target_at(b)->name, i, variant,
                              difference());
                free_run(&got);
            }
        free_run(&want);
    }
}

/* Where the reset gate stands makes a difference. */
Test(recurrent, cells_differ)
{
    const struct layer_case after = { GPUSERVE_CELL_GRU, 9, 21, 1, true };
    const struct layer_case before = { GPUSERVE_CELL_GRU_RESET_BEFORE, 9, 21, 1, true };
    struct recurrent_run a = run_case(target_at(0), &after, GPUSERVE_LSTM_AUTO, false);
    struct recurrent_run b = run_case(target_at(0), &before, GPUSERVE_LSTM_AUTO, false);

    cr_expect(!all_close(a.out, b.out, a.n_out, 1e-2f, 0.0f));
    free_run(&a);
    free_run(&b);
}
