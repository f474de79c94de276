/*
 * lstm: one layer, computed with the products of linear.c.
 *
 *   fused   one product for the inputs of all steps; then per step one product for the hidden
 *           states of the sequences still running, and their gates
 *   steps   additionally one product per step for the inputs
 *
 * The sequences are sorted by length, longest first. Those still running at a step are therefore
 * the first `active` rows of h and c, and no padding is computed. The summation order of each
 * output depends on its own row only: a sequence gives the same bits in any batch.
 */
#include "kernels/cpu/runtime/cpu.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

struct gpuserve_lstm_layer {
    int32_t input, hidden, directions;
    struct gpuserve_linear *ih[2]; /* with the bias */
    struct gpuserve_linear *hh[2];
};

/* -------------------------------------------------------------------------------------- weights */

static size_t ih_bytes(const struct gpuserve_lstm_source *source)
{
    return gsv_cpu_linear_bytes(4 * source->hidden_size, source->input_size, source->dtype);
}

static size_t hh_bytes(const struct gpuserve_lstm_source *source)
{
    return gsv_cpu_linear_bytes(4 * source->hidden_size, source->hidden_size, source->dtype);
}

gpuserve_status gsv_cpu_lstm_layer_bytes(struct gpuserve_device *device,
                                         const struct gpuserve_lstm_source *source, size_t *size,
                                         gpuserve_error *error)
{
    (void)device;
    *size = 0;
    if (source->dtype != GPUSERVE_DTYPE_FLOAT32)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype is %u; an LSTM on a CPU supports only float32",
                        (unsigned)source->dtype);
    *size = (size_t)source->n_directions * (ih_bytes(source) + hh_bytes(source));
    return GPUSERVE_OK;
}

static gpuserve_status create_direction(struct gpuserve_device *device,
                                        struct gpuserve_lstm_layer *layer, int32_t d, char *memory,
                                        const struct gpuserve_lstm_source *source,
                                        gpuserve_error *error)
{
    struct gpuserve_linear_source linear = {
        .struct_size = sizeof(linear),
        .dtype = source->dtype,
        .n = 4 * source->hidden_size,
        .k = source->input_size,
        .weight = source->weight_ih[d],
        .bias = source->bias[d],
    };
    gpuserve_status st = gsv_cpu_linear_create(device, &layer->ih[d], memory, &linear, error);

    linear.k = source->hidden_size;
    linear.weight = source->weight_hh[d];
    linear.bias = NULL;
    return st == GPUSERVE_OK ? gsv_cpu_linear_create(device, &layer->hh[d],
                                                     memory + ih_bytes(source), &linear, error)
                             : st;
}

gpuserve_status gsv_cpu_lstm_layer_create(struct gpuserve_device *device,
                                          struct gpuserve_lstm_layer **layer, void *memory,
                                          const struct gpuserve_lstm_source *source,
                                          gpuserve_error *error)
{
    struct gpuserve_lstm_layer *made = gsv_alloc_array(1, sizeof(*made));
    gpuserve_status st = GPUSERVE_OK;

    *layer = NULL;
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a layer");
    made->input = source->input_size;
    made->hidden = source->hidden_size;
    made->directions = source->n_directions;
    for (int32_t d = 0; st == GPUSERVE_OK && d < source->n_directions; d++)
        st = create_direction(device, made, d,
                              (char *)memory + (size_t)d * (ih_bytes(source) + hh_bytes(source)),
                              source, error);
    if (st != GPUSERVE_OK)
        gsv_cpu_lstm_layer_destroy(&made);
    *layer = made;
    return st;
}

void gsv_cpu_lstm_layer_destroy(struct gpuserve_lstm_layer **layer)
{
    if (!layer || !*layer)
        return;
    for (int32_t d = 0; d < 2; d++) {
        gsv_cpu_linear_destroy(&(*layer)->ih[d]);
        gsv_cpu_linear_destroy(&(*layer)->hh[d]);
    }
    free(*layer);
    *layer = NULL;
}

/* -------------------------------------------------------------------------------------- scratch */

/* Offsets in floats. */
struct cpu_lstm_plan {
    size_t add; /* input products: [n_rows, directions, 4 hidden]; STEPS: one step, [n, 4 hidden] */
    size_t sums; /* [n_sequences, 4 hidden] */
    size_t h, c; /* [n_sequences, hidden] */
    size_t in;   /* STEPS: [n_sequences, input] */
    size_t total;
};

static bool take(struct cpu_lstm_plan *plan, size_t *at, size_t rows, size_t columns)
{
    size_t floats;

    *at = plan->total;
    return gsv_mul_size(rows, columns, &floats) && gsv_round_up(floats, 16) != SIZE_MAX &&
           gsv_add_size(plan->total, gsv_round_up(floats, 16), &plan->total);
}

static bool make_plan(const struct gpuserve_op_lstm *op, struct cpu_lstm_plan *plan)
{
    const struct gpuserve_lstm_layer *l = op->layer;
    const size_t n = (size_t)op->n_sequences, hidden = (size_t)l->hidden;
    const bool steps = op->variant == GPUSERVE_LSTM_STEPS;

    memset(plan, 0, sizeof(*plan));
    return take(plan, &plan->add, steps ? n : (size_t)op->n_rows,
                4 * hidden * (steps ? 1 : (size_t)l->directions)) &&
           take(plan, &plan->sums, n, 4 * hidden) && take(plan, &plan->h, n, hidden) &&
           take(plan, &plan->c, n, hidden) &&
           take(plan, &plan->in, steps ? n : 0, (size_t)l->input);
}

gpuserve_status gsv_cpu_lstm_bytes(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                   size_t *size, gpuserve_error *error)
{
    struct cpu_lstm_plan plan;

    (void)device;
    if (op->variant == GPUSERVE_LSTM_AUTO)
        op->variant = GPUSERVE_LSTM_FUSED;
    if (!make_plan(op, &plan) || !gsv_mul_size(plan.total, sizeof(float), size))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "an LSTM over %d rows: the size of its scratch memory overflows",
                        (int)op->n_rows);
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------ computing */

struct lstm_job {
    const struct gpuserve_op_lstm *op;
    const struct gsv_cpu_isa *isa;
    int32_t direction;
    int32_t step;
    float *add, *sums, *h, *c, *in;
};

static bool by_steps(const struct lstm_job *job)
{
    return job->op->variant == GPUSERVE_LSTM_STEPS;
}

/* The input row of the i-th sequence at this step. */
static size_t row_of(const struct lstm_job *job, int32_t i)
{
    const struct gpuserve_lstm_sequence *s = &job->op->sequences[i];

    return (size_t)(s->first + (job->direction ? s->length - 1 - job->step : job->step));
}

static void multiply(struct gpuserve_stream *stream, const struct gpuserve_linear *weight,
                     const float *in, float *out, int32_t rows, int32_t out_ld)
{
    const struct gpuserve_op_linear op = {
        .weight = weight,
        .in = in,
        .out = out,
        .rows = rows,
        .in_ld = weight->k,
        .out_ld = out_ld,
        .activation = GPUSERVE_ACT_NONE,
    };

    (void)gsv_cpu_linear(stream, &op); /* cannot fail */
}

static void gates_of_rows(const void *job_, int32_t row, int32_t row_end)
{
    const struct lstm_job *job = job_;
    const struct gpuserve_lstm_layer *l = job->op->layer;
    const size_t hidden = (size_t)l->hidden, directions = (size_t)l->directions;
    const size_t d = (size_t)job->direction;

    for (int32_t i = row; i < row_end; i++) {
        const size_t r = row_of(job, i), at = (size_t)i * hidden;
        const struct gsv_lstm_gates gates = {
            .sums = job->sums + 4 * at,
            .add = job->add + 4 * (by_steps(job) ? at : (r * directions + d) * hidden),
            .c = job->c + at,
            .h = job->h + at,
            .out = job->op->out + (r * directions + d) * hidden,
            .n = l->hidden,
        };

        job->isa->lstm_gates(&gates);
    }
}

static void run_step(struct gpuserve_stream *stream, struct lstm_job *job, int32_t active)
{
    const struct gpuserve_lstm_layer *l = job->op->layer;
    const size_t input = (size_t)l->input;

    if (by_steps(job)) {
        for (int32_t i = 0; i < active; i++)
            memcpy(job->in + (size_t)i * input, job->op->in + row_of(job, i) * input,
                   input * sizeof(float));
        multiply(stream, l->ih[job->direction], job->in, job->add, active, 4 * l->hidden);
    }
    multiply(stream, l->hh[job->direction], job->h, job->sums, active, 4 * l->hidden);
    gsv_cpu_run_rows(stream, gates_of_rows, job, active, 4 * l->hidden);
}

/* begin_states() and end_states() convert between states in the caller's order (`number`) and rows
 * in order of length. */
static void begin_states(const struct lstm_job *job, float *to, const float *from)
{
    const size_t n = (size_t)job->op->n_sequences, hidden = (size_t)job->op->layer->hidden;

    for (size_t i = 0; i < n; i++) {
        const size_t number = (size_t)job->op->sequences[i].number;

        if (from)
            memcpy(to + i * hidden, from + ((size_t)job->direction * n + number) * hidden,
                   hidden * sizeof(float));
        else
            memset(to + i * hidden, 0, hidden * sizeof(float));
    }
}

static void end_states(const struct lstm_job *job, float *to, const float *from)
{
    const size_t n = (size_t)job->op->n_sequences, hidden = (size_t)job->op->layer->hidden;

    for (size_t i = 0; i < n; i++) {
        const size_t number = (size_t)job->op->sequences[i].number;

        memcpy(to + ((size_t)job->direction * n + number) * hidden, from + i * hidden,
               hidden * sizeof(float));
    }
}

static void run_direction(struct gpuserve_stream *stream, struct lstm_job *job)
{
    const struct gpuserve_op_lstm *op = job->op;
    int32_t active = op->n_sequences;

    if (!by_steps(job) && op->n_rows > 0)
        multiply(stream, op->layer->ih[job->direction], op->in,
                 job->add + 4 * (size_t)job->direction * (size_t)op->layer->hidden, op->n_rows,
                 4 * op->layer->directions * op->layer->hidden);
    begin_states(job, job->h, op->h_0);
    begin_states(job, job->c, op->c_0);
    for (job->step = 0;; job->step++) {
        while (active > 0 && op->sequences[active - 1].length <= job->step)
            active--;
        if (active == 0)
            break;
        run_step(stream, job, active);
    }
    end_states(job, op->h_n, job->h);
    end_states(job, op->c_n, job->c);
}

gpuserve_status gsv_cpu_lstm(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                             gpuserve_error *error)
{
    const double begin = gsv_cpu_now();
    float *scratch = op->scratch;
    struct lstm_job job = { .op = op, .isa = stream->isa };
    struct cpu_lstm_plan plan;

    (void)error;
    (void)make_plan(op, &plan); /* checked when the scratch size was computed */
    job.add = scratch + plan.add;
    job.sums = scratch + plan.sums;
    job.h = scratch + plan.h;
    job.c = scratch + plan.c;
    job.in = scratch + plan.in;
    for (job.direction = 0; job.direction < op->layer->directions; job.direction++)
        run_direction(stream, &job);
    op->seconds = gsv_cpu_now() - begin;
    return GPUSERVE_OK;
}
