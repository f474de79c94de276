/*
 * lstm_run.c - gpuserve_lstm_run(): runs LSTM layers over packed sequences.
 *
 *   input -> layer 0 -> B -> layer 1 -> C -> layer 2 -> B ... -> output
 *
 * The whole job is checked first; then operands go to the device, the backend runs each layer, and
 * the outputs come back. Layers alternate between the buffers B and C. On the CPU the first layer
 * reads the caller's input and the last one writes the caller's output. A device with its own
 * memory has the input in A, and the states and the list of sequences in D. The lock of `compute`
 * is held while it runs.
 */
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/compute/compute.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Floats in the caller's memory, borrowed. */
struct span {
    const char *name;
    const float *data;
    size_t bytes;
};

struct lstm_run_call {
    gpuserve_lstm *lstm;
    gpuserve_lstm_job job;
    int32_t n_rows;
    size_t state_floats; /* per layer: [directions, n_sequences, hidden] */
    size_t row_bytes;    /* bytes of one row of a layer's output */
    struct span input, h_0, c_0, output, h_n, c_n;
    struct gpuserve_lstm_sequence *sequences; /* [n_sequences], longest first */
    char *states; /* D: h_0, c_0, h_n, c_n and the sequences, in this order */
    double kernel_seconds, copy_seconds;
    uint32_t variant;
};

/* ------------------------------------------------------------------------------------ checking */

static gpuserve_status check_lengths(struct lstm_run_call *call, gpuserve_error *error)
{
    const gpuserve_lstm_job *job = &call->job;

    if (job->variant > GPUSERVE_LSTM_CUDNN)
        return gsv_fail(error, GPUSERVE_E_INVALID, "variant is %u, outside 0 to %d", job->variant,
                        GPUSERVE_LSTM_CUDNN);
    if (job->n_sequences < 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "n_sequences is %" PRId32 ", the minimum is 0",
                        job->n_sequences);
    if (job->n_sequences == 0)
        return GPUSERVE_OK;
    if (!job->cu_seqlens)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`cu_seqlens` is NULL");
    if (job->cu_seqlens[0] != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "cu_seqlens[0] is %" PRId32 ", not 0",
                        job->cu_seqlens[0]);
    for (int32_t i = 0; i < job->n_sequences; i++) {
        if (job->cu_seqlens[i + 1] < job->cu_seqlens[i])
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "cu_seqlens[%" PRId32 "] is %" PRId32 ", less than the %" PRId32
                            " before it",
                            i + 1, job->cu_seqlens[i + 1], job->cu_seqlens[i]);
    }
    call->n_rows = job->cu_seqlens[job->n_sequences];
    return GPUSERVE_OK;
}

/* Checks `rows` times `columns` floats at `data`; NULL is accepted unless `needed`. */
static gpuserve_status take_span(struct span *span, const char *name, const float *data,
                                 size_t rows, size_t columns, bool needed, gpuserve_error *error)
{
    size_t bytes;

    if (!gsv_mul_size(rows, columns, &bytes) || !gsv_mul_size(bytes, sizeof(float), &bytes) ||
        bytes > PTRDIFF_MAX / 8)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "`%s` has %zu rows of %zu floats: its size overflows the address space",
                        name, rows, columns);
    if (needed && bytes > 0 && !data)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` is NULL", name);
    *span = (struct span){ name, data, data ? bytes : 0 };
    return GPUSERVE_OK;
}

static gpuserve_status check_capacity(const struct span *span, size_t capacity,
                                      gpuserve_error *error)
{
    if (capacity < span->bytes / sizeof(float))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "%s_capacity is %zu floats, the output needs %zu", span->name, capacity,
                        span->bytes / sizeof(float));
    return GPUSERVE_OK;
}

static gpuserve_status take_spans(struct lstm_run_call *call, gpuserve_error *error)
{
    const gpuserve_lstm *lstm = call->lstm;
    const gpuserve_lstm_job *job = &call->job;
    const size_t rows = (size_t)call->n_rows, hidden = (size_t)lstm->hidden_size;
    const size_t width = hidden * (size_t)lstm->n_directions;
    const size_t states =
        (size_t)lstm->n_layers * (size_t)lstm->n_directions * (size_t)job->n_sequences;
    gpuserve_status st =
        take_span(&call->input, "input", job->input, rows, (size_t)lstm->input_size, true, error);

    call->row_bytes = width * sizeof(float);
    call->state_floats = (size_t)lstm->n_directions * (size_t)job->n_sequences * hidden;
    if (st == GPUSERVE_OK)
        st = take_span(&call->output, "output", job->output, rows, width, false, error);
    if (st == GPUSERVE_OK)
        st = take_span(&call->h_0, "h_0", job->h_0, states, hidden, false, error);
    if (st == GPUSERVE_OK)
        st = take_span(&call->c_0, "c_0", job->c_0, states, hidden, false, error);
    if (st == GPUSERVE_OK)
        st = take_span(&call->h_n, "h_n", job->h_n, states, hidden, false, error);
    if (st == GPUSERVE_OK)
        st = take_span(&call->c_n, "c_n", job->c_n, states, hidden, false, error);
    if (st == GPUSERVE_OK)
        st = check_capacity(&call->output, job->output_capacity, error);
    if (st == GPUSERVE_OK)
        st = check_capacity(&call->h_n, job->h_n_capacity, error);
    return st == GPUSERVE_OK ? check_capacity(&call->c_n, job->c_n_capacity, error) : st;
}

static bool meet(const struct span *a, const struct span *b)
{
    const uintptr_t from = (uintptr_t)a->data, to = (uintptr_t)b->data;

    return a->bytes > 0 && b->bytes > 0 && from < to + b->bytes && to < from + a->bytes;
}

static gpuserve_status check_apart(const struct lstm_run_call *call, gpuserve_error *error)
{
    const struct span lengths = { "cu_seqlens", (const float *)(const void *)call->job.cu_seqlens,
                                  ((size_t)call->job.n_sequences + 1) * sizeof(int32_t) };
    const struct span *all[] = { &call->output, &call->h_n, &call->c_n, &call->input,
                                 &call->h_0,    &call->c_0, &lengths };

    for (size_t out = 0; out < 3; out++) {
        for (size_t other = out + 1; other < sizeof(all) / sizeof(all[0]); other++) {
            if (meet(all[out], all[other]))
                return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` overlaps `%s`", all[out]->name,
                                all[other]->name);
        }
    }
    return GPUSERVE_OK;
}

/* Descending length; sequences of equal length keep their order. */
static int by_length(const void *a_, const void *b_)
{
    const struct gpuserve_lstm_sequence *a = a_, *b = b_;

    if (a->length != b->length)
        return a->length < b->length ? 1 : -1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static gpuserve_status sort_sequences(struct lstm_run_call *call, gpuserve_error *error)
{
    const size_t n = (size_t)call->job.n_sequences;

    call->sequences = gsv_alloc_array(n, sizeof(*call->sequences));
    if (!call->sequences)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a list of %zu sequences", n);
    for (size_t i = 0; i < n; i++) {
        call->sequences[i].first = call->job.cu_seqlens[i];
        call->sequences[i].length = call->job.cu_seqlens[i + 1] - call->job.cu_seqlens[i];
        call->sequences[i].number = (int32_t)i;
    }
    qsort(call->sequences, n, sizeof(*call->sequences), by_length);
    return GPUSERVE_OK;
}

static gpuserve_status check_job(struct lstm_run_call *call, gpuserve_error *error)
{
    gpuserve_status st = check_lengths(call, error);

    if (st == GPUSERVE_OK)
        st = take_spans(call, error);
    return st == GPUSERVE_OK ? check_apart(call, error) : st;
}

/* -------------------------------------------------------------------------------------- memory */

static size_t state_bytes(const struct lstm_run_call *call)
{
    return call->state_floats * sizeof(float);
}

/* Bytes of one kind of state over all layers, rounded up to 64 for alignment. */
static size_t states_bytes(const struct lstm_run_call *call)
{
    return gsv_round_up((size_t)call->lstm->n_layers * state_bytes(call), 64);
}

/* The operation of a layer, without operands. */
static struct gpuserve_op_lstm op_of(const struct lstm_run_call *call, int32_t layer)
{
    return (struct gpuserve_op_lstm){
        .layer = call->lstm->layers[layer].layer,
        .host_sequences = call->sequences,
        .sequences = call->sequences,
        .n_rows = call->n_rows,
        .n_sequences = call->job.n_sequences,
        .variant = call->job.variant,
    };
}

static gpuserve_status reserve_scratch(const struct lstm_run_call *call, gpuserve_error *error)
{
    gpuserve_compute *c = call->lstm->compute;
    size_t max_bytes = 0;

    for (int32_t i = 0; i < call->lstm->n_layers; i++) {
        struct gpuserve_op_lstm op = op_of(call, i);
        size_t size;
        const gpuserve_status st = c->backend->lstm_bytes(c->device, &op, &size, error);

        if (st != GPUSERVE_OK)
            return st;
        max_bytes = size > max_bytes ? size : max_bytes;
    }
    return gsv_compute_reserve(c, GSV_COMPUTE_SCRATCH, max_bytes, error);
}

/* Reserves device memory for scratch, layer outputs, states and the list of sequences. */
static gpuserve_status reserve(const struct lstm_run_call *call, gpuserve_error *error)
{
    gpuserve_compute *c = call->lstm->compute;
    const size_t rows_bytes = (size_t)call->n_rows * call->row_bytes;
    const size_t list_bytes = (size_t)call->job.n_sequences * sizeof(*call->sequences);
    gpuserve_status st = reserve_scratch(call, error);

    if (st == GPUSERVE_OK && !c->is_host)
        st = gsv_compute_reserve(c, GSV_COMPUTE_A, call->input.bytes, error);
    if (st == GPUSERVE_OK)
        st = gsv_compute_reserve(c, GSV_COMPUTE_B, rows_bytes, error);
    if (st == GPUSERVE_OK && call->lstm->n_layers > 1)
        st = gsv_compute_reserve(c, GSV_COMPUTE_C, rows_bytes, error);
    if (st == GPUSERVE_OK)
        st = gsv_compute_reserve(c, GSV_COMPUTE_D, 4 * states_bytes(call) + list_bytes, error);
    return st;
}

static gpuserve_status send(const gpuserve_compute *c, void *to, const struct span *from,
                            gpuserve_error *error)
{
    if (from->bytes == 0)
        return GPUSERVE_OK;
    return c->backend->memory_write(c->device, to, from->data, from->bytes, error);
}

static gpuserve_status send_all(struct lstm_run_call *call, gpuserve_error *error)
{
    const gpuserve_compute *c = call->lstm->compute;
    const size_t list_bytes = (size_t)call->job.n_sequences * sizeof(*call->sequences);
    const uint64_t begin = gsv_now_ns();
    gpuserve_status st = send(c, c->buffers[GSV_COMPUTE_A].memory, &call->input, error);

    if (st == GPUSERVE_OK)
        st = send(c, call->states, &call->h_0, error);
    if (st == GPUSERVE_OK)
        st = send(c, call->states + states_bytes(call), &call->c_0, error);
    if (st == GPUSERVE_OK)
        st = c->backend->memory_write(c->device, call->states + 4 * states_bytes(call),
                                      call->sequences, list_bytes, error);
    call->copy_seconds += gsv_seconds_since(begin);
    return st;
}

/* Copies through a host buffer, so that the caller's outputs are written only after every copy
 * succeeded. */
static gpuserve_status fetch_all(struct lstm_run_call *call, gpuserve_error *error)
{
    const gpuserve_compute *c = call->lstm->compute;
    const bool even = call->lstm->n_layers % 2 == 0;
    const void *const from[] = {
        c->buffers[even ? GSV_COMPUTE_C : GSV_COMPUTE_B].memory,
        call->states + 2 * states_bytes(call),
        call->states + 3 * states_bytes(call),
    };
    const struct span *const to[] = { &call->output, &call->h_n, &call->c_n };
    const uint64_t begin = gsv_now_ns();
    char *buffer = gsv_alloc_aligned(call->output.bytes + call->h_n.bytes + call->c_n.bytes + 64);
    size_t at = 0;
    gpuserve_status st = GPUSERVE_OK;

    if (!buffer)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a copy of the outputs");
    for (size_t i = 0; st == GPUSERVE_OK && i < 3; at += to[i++]->bytes) {
        if (to[i]->bytes > 0)
            st = c->backend->memory_read(c->device, buffer + at, from[i], to[i]->bytes, error);
    }
    at = 0;
    for (size_t i = 0; st == GPUSERVE_OK && i < 3; at += to[i++]->bytes) {
        if (to[i]->bytes > 0)
            memcpy((void *)(uintptr_t)to[i]->data, buffer + at, to[i]->bytes);
    }
    gsv_free_aligned(buffer);
    call->copy_seconds += gsv_seconds_since(begin);
    return st;
}

/* ------------------------------------------------------------------------------------- running */

/* States of one kind and layer: on the CPU the caller's array if given, else device memory. */
static float *states_at(const struct lstm_run_call *call, const struct span *given, int kind,
                        int32_t layer)
{
    const size_t at = (size_t)layer * call->state_floats;
    float *own = (float *)(void *)(call->states + (size_t)kind * states_bytes(call));

    if (call->lstm->compute->is_host && given->data)
        return (float *)(uintptr_t)given->data + at;
    return own + at;
}

static void point(const struct lstm_run_call *call, struct gpuserve_op_lstm *op, int32_t layer)
{
    const gpuserve_compute *c = call->lstm->compute;
    const bool last = layer == call->lstm->n_layers - 1;
    const enum gsv_compute_buffer in = layer % 2 ? GSV_COMPUTE_B : GSV_COMPUTE_C;
    const enum gsv_compute_buffer out = layer % 2 ? GSV_COMPUTE_C : GSV_COMPUTE_B;

    op->in = layer > 0    ? c->buffers[in].memory
             : c->is_host ? call->job.input
                          : c->buffers[GSV_COMPUTE_A].memory;
    op->out = last && c->is_host && call->job.output ? call->job.output : c->buffers[out].memory;
    op->h_0 = call->job.h_0 ? states_at(call, &call->h_0, 0, layer) : NULL;
    op->c_0 = call->job.c_0 ? states_at(call, &call->c_0, 1, layer) : NULL;
    op->h_n = states_at(call, &call->h_n, 2, layer);
    op->c_n = states_at(call, &call->c_n, 3, layer);
    op->scratch = c->buffers[GSV_COMPUTE_SCRATCH].memory;
    if (!c->is_host)
        op->sequences = (const void *)(call->states + 4 * states_bytes(call));
}

static gpuserve_status run_layers(struct lstm_run_call *call, gpuserve_error *error)
{
    gpuserve_compute *c = call->lstm->compute;
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0; st == GPUSERVE_OK && i < call->lstm->n_layers; i++) {
        struct gpuserve_op_lstm op = op_of(call, i);
        size_t size;

        st = c->backend->lstm_bytes(c->device, &op, &size, error);
        point(call, &op, i);
        if (st == GPUSERVE_OK)
            st = c->backend->lstm(c->stream, &op, error);
        call->kernel_seconds += op.seconds;
        call->variant = op.variant;
    }
    return st;
}

static gpuserve_status run(struct lstm_run_call *call, gpuserve_error *error)
{
    gpuserve_compute *c = call->lstm->compute;
    gpuserve_status st = sort_sequences(call, error);

    if (st == GPUSERVE_OK)
        st = reserve(call, error);
    call->states = c->buffers[GSV_COMPUTE_D].memory;
    if (st == GPUSERVE_OK && !c->is_host)
        st = send_all(call, error);
    if (st == GPUSERVE_OK)
        st = run_layers(call, error);
    if (st == GPUSERVE_OK && !c->is_host)
        st = fetch_all(call, error);
    free(call->sequences);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_lstm_run(gpuserve_lstm *lstm, const gpuserve_lstm_job *job,
                                               gpuserve_compute_result *result,
                                               gpuserve_error *error)
{
    struct lstm_run_call call = { .lstm = lstm };
    gpuserve_status st;

    if (!lstm)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the LSTM's handle is NULL");
    st = gsv_compute_read(lstm->compute, &call.job, sizeof(call.job), job, "gpuserve_lstm_job",
                          result, error);
    if (st == GPUSERVE_OK)
        st = check_job(&call, error);
    if (st != GPUSERVE_OK)
        return st;
    call.variant = call.job.variant ? call.job.variant : GPUSERVE_LSTM_FUSED;
    if (call.job.n_sequences > 0) {
        pthread_mutex_lock(&lstm->compute->lock);
        st = run(&call, error);
        pthread_mutex_unlock(&lstm->compute->lock);
    }
    if (st == GPUSERVE_OK)
        gsv_compute_report(result, call.variant, call.kernel_seconds, call.copy_seconds);
    return st;
}
