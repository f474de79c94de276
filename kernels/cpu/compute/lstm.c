/*
 * lstm: one layer of an LSTM or a GRU, computed with the products of linear.c.
 *
 *   fused   all steps of a group of sequences on one thread (lstm_rows.c). If the weights exceed
 *           the cache of a core: one product for the inputs of all steps; then per step one product
 *           over all threads for the hidden states of the sequences still running, and their gates
 *   steps   per step one product for the inputs, one for the hidden states, and the gates: the
 *           baseline
 *
 * The sequences are sorted by length, longest first. Those still running at a step are therefore
 * the first `active` rows of h and c, and no padding is computed. The summation order of each
 * output depends on its own row only: a sequence gives the same bits in any batch.
 *
 * A GRU has three gates. Where the reset gate comes before the product of the new state, a step has
 * two products of hidden states: of h for the gates r and z, then of r * h for n.
 */
#include "kernels/cpu/compute/lstm.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- weights */

static size_t ih_bytes(const struct gpuserve_lstm_source *source)
{
    return gsv_cpu_linear_bytes(gpuserve_cell_gates(source->cell) * source->hidden_size,
                                source->input_size, source->dtype);
}

/* Gates whose recurrent products are of h. */
static int32_t hh_gates(const struct gpuserve_lstm_source *source)
{
    return source->cell == GPUSERVE_CELL_GRU_RESET_BEFORE ? 2 : gpuserve_cell_gates(source->cell);
}

static size_t hh_bytes(const struct gpuserve_lstm_source *source)
{
    return gsv_cpu_linear_bytes(hh_gates(source) * source->hidden_size, source->hidden_size,
                                source->dtype);
}

static size_t hn_bytes(const struct gpuserve_lstm_source *source)
{
    return source->cell == GPUSERVE_CELL_GRU_RESET_BEFORE
               ? gsv_cpu_linear_bytes(source->hidden_size, source->hidden_size, source->dtype)
               : 0;
}

static size_t direction_bytes(const struct gpuserve_lstm_source *source)
{
    return ih_bytes(source) + hh_bytes(source) + hn_bytes(source);
}

gpuserve_status gsv_cpu_lstm_layer_bytes(const struct gpuserve_lstm_source *source, size_t *size,
                                         gpuserve_error *error)
{
    *size = 0;
    if (source->dtype != GPUSERVE_DTYPE_FLOAT32)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype is %u; an LSTM on a CPU supports only float32",
                        (unsigned)source->dtype);
    *size = (size_t)source->n_directions * direction_bytes(source);
    return GPUSERVE_OK;
}

/* The recurrent weights; `bias` is that of their products, or NULL. */
static gpuserve_status create_recurrent(struct gpuserve_device *device,
                                        struct gpuserve_lstm_layer *layer, int32_t d, char *memory,
                                        const struct gpuserve_lstm_source *source,
                                        const float *bias, gpuserve_error *error)
{
    const size_t hidden = (size_t)source->hidden_size;
    struct gpuserve_linear_source linear = {
        .struct_size = sizeof(linear),
        .dtype = source->dtype,
        .n = hh_gates(source) * source->hidden_size,
        .k = source->hidden_size,
        .weight = source->weight_hh[d],
        .bias = bias,
    };
    gpuserve_status st = gsv_cpu_linear_create(device, &layer->hh[d], memory, &linear, error);

    if (st != GPUSERVE_OK || source->cell != GPUSERVE_CELL_GRU_RESET_BEFORE)
        return st;
    linear.n = source->hidden_size;
    linear.weight += 2 * hidden * hidden;
    return gsv_cpu_linear_create(device, &layer->hn[d], memory + hh_bytes(source), &linear, error);
}

static gpuserve_status create_direction(struct gpuserve_device *device,
                                        struct gpuserve_lstm_layer *layer, int32_t d, char *memory,
                                        const struct gpuserve_lstm_source *source,
                                        gpuserve_error *error)
{
    const size_t hidden = (size_t)source->hidden_size;
    const struct gpuserve_linear_source linear = {
        .struct_size = sizeof(linear),
        .dtype = source->dtype,
        .n = gpuserve_cell_gates(source->cell) * source->hidden_size,
        .k = source->input_size,
        .weight = source->weight_ih[d],
        .bias = source->bias[d],
    };
    gpuserve_status st = gsv_cpu_linear_create(device, &layer->ih[d], memory, &linear, error);
    float *bias = NULL;

    if (st == GPUSERVE_OK && source->cell == GPUSERVE_CELL_GRU) {
        bias = gsv_alloc_array(3 * hidden, sizeof(*bias));
        if (!bias)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a bias");
        memset(bias, 0, 2 * hidden * sizeof(*bias));
        memcpy(bias + 2 * hidden, source->bias[d] + 3 * hidden, hidden * sizeof(*bias));
    }
    if (st == GPUSERVE_OK)
        st = create_recurrent(device, layer, d, memory + ih_bytes(source), source, bias, error);
    free(bias);
    return st;
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
    made->cell = source->cell;
    made->gates = gpuserve_cell_gates(source->cell);
    for (int32_t d = 0; st == GPUSERVE_OK && d < source->n_directions; d++)
        st = create_direction(device, made, d, (char *)memory + (size_t)d * direction_bytes(source),
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
        gsv_cpu_linear_destroy(&(*layer)->hn[d]);
    }
    free(*layer);
    *layer = NULL;
}

void gsv_cpu_lstm_layer_move(struct gpuserve_lstm_layer *layer, const void *from, void *to)
{
    for (int32_t d = 0; d < layer->directions; d++) {
        gsv_cpu_linear_move(layer->ih[d], from, to);
        gsv_cpu_linear_move(layer->hh[d], from, to);
        if (layer->hn[d])
            gsv_cpu_linear_move(layer->hn[d], from, to);
    }
}

/* -------------------------------------------------------------------------------------- scratch */

/* Offsets in floats. */
struct cpu_lstm_plan {
    size_t add;  /* input products, see gsv_cpu_lstm_job; by groups for each direction */
    size_t sums; /* [directions, n_sequences, columns]; STEPS: one direction, as the next two */
    size_t h, c; /* [directions, n_sequences, hidden] */
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

static bool take_products(struct cpu_lstm_plan *plan, const struct gpuserve_op_lstm *op, bool steps)
{
    const struct gpuserve_lstm_layer *l = op->layer;
    const size_t n = (size_t)op->n_sequences, columns = (size_t)gsv_cpu_lstm_columns(l);
    const size_t directions = (size_t)l->directions;

    if (steps)
        return take(plan, &plan->add, n, columns);
    if (gsv_cpu_lstm_fits_rows(l))
        return take(plan, &plan->add, directions * n * GSV_LSTM_CHUNK, columns);
    return take(plan, &plan->add, (size_t)op->n_rows, directions * columns);
}

static bool make_plan(const struct gpuserve_op_lstm *op, struct cpu_lstm_plan *plan)
{
    const struct gpuserve_lstm_layer *l = op->layer;
    const bool steps = op->variant == GPUSERVE_LSTM_STEPS;
    const size_t hidden = (size_t)l->hidden;
    const size_t n = (size_t)op->n_sequences, rows = n * (steps ? 1 : (size_t)l->directions);

    memset(plan, 0, sizeof(*plan));
    return take_products(plan, op, steps) &&
           take(plan, &plan->sums, rows, (size_t)gsv_cpu_lstm_columns(l)) &&
           take(plan, &plan->h, rows, hidden) && take(plan, &plan->c, rows, hidden) &&
           take(plan, &plan->in, steps ? n : 0, (size_t)l->input);
}

gpuserve_status gsv_cpu_lstm_bytes(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                   size_t *size, gpuserve_error *error)
{
    struct cpu_lstm_plan plan;

    (void)device;
    *size = 0;
    if (op->variant == GPUSERVE_LSTM_CUDNN)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "variant cudnn: a CPU has no cuDNN");
    if (op->variant == GPUSERVE_LSTM_AUTO)
        op->variant = GPUSERVE_LSTM_FUSED;
    if (!make_plan(op, &plan) || !gsv_mul_size(plan.total, sizeof(float), size))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "an LSTM over %d rows: the size of its scratch memory overflows",
                        (int)op->n_rows);
    return GPUSERVE_OK;
}

size_t gsv_cpu_lstm_max_bytes(const struct gpuserve_lstm_source *source, int32_t n_rows,
                              int32_t n_sequences)
{
    const struct gpuserve_lstm_layer layer = { .input = source->input_size,
                                               .hidden = source->hidden_size,
                                               .directions = source->n_directions,
                                               .gates = gpuserve_cell_gates(source->cell),
                                               .cell = source->cell };
    const struct gpuserve_op_lstm op = { .layer = &layer,
                                         .n_rows = n_rows,
                                         .n_sequences = n_sequences,
                                         .variant = GPUSERVE_LSTM_FUSED };
    struct cpu_lstm_plan plan;
    size_t size;

    return make_plan(&op, &plan) && gsv_mul_size(plan.total, sizeof(float), &size) ? size
                                                                                   : SIZE_MAX;
}

/* ------------------------------------------------------------------------------------ computing */

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

static void apply_gates(const struct gsv_cpu_lstm_job *job, int32_t row, int32_t row_end,
                        bool only_reset)
{
    const struct gpuserve_lstm_layer *l = job->op->layer;
    const size_t columns = (size_t)gsv_cpu_lstm_columns(l), directions = (size_t)l->directions;
    const size_t d = (size_t)job->direction;

    for (int32_t i = row; i < row_end; i++) {
        const size_t r = gsv_cpu_lstm_row(job, i, job->step) * directions + d;

        gsv_cpu_lstm_gates(job, i, job->step, job->add + columns * (job->by_steps ? (size_t)i : r),
                           only_reset);
    }
}

static void gates_of_rows(const void *job, int32_t row, int32_t row_end)
{
    apply_gates(job, row, row_end, false);
}

static void reset_of_rows(const void *job, int32_t row, int32_t row_end)
{
    apply_gates(job, row, row_end, true);
}

static void run_step(struct gpuserve_stream *stream, struct gsv_cpu_lstm_job *job, int32_t active)
{
    const struct gpuserve_lstm_layer *l = job->op->layer;
    const size_t input = (size_t)l->input;
    const int32_t columns = gsv_cpu_lstm_columns(l);
    const struct gpuserve_linear *hn = l->hn[job->direction];

    if (job->by_steps) {
        for (int32_t i = 0; i < active; i++)
            memcpy(job->in + (size_t)i * input,
                   job->op->in + gsv_cpu_lstm_row(job, i, job->step) * input,
                   input * sizeof(float));
        multiply(stream, l->ih[job->direction], job->in, job->add, active, columns);
    }
    multiply(stream, l->hh[job->direction], job->h, job->sums, active, columns);
    if (hn) {
        gsv_cpu_run_rows(stream, reset_of_rows, job, active, l->hidden);
        multiply(stream, hn, job->c, job->sums + 2 * l->hidden, active, columns);
    }
    gsv_cpu_run_rows(stream, gates_of_rows, job, active, columns);
}

/* All steps of one direction, each over all threads. */
static void run_steps(struct gpuserve_stream *stream, struct gsv_cpu_lstm_job *job)
{
    const struct gpuserve_op_lstm *op = job->op;
    int32_t active = op->n_sequences;

    for (job->step = 0;; job->step++) {
        while (active > 0 && op->sequences[active - 1].length <= job->step)
            active--;
        if (active == 0)
            return;
        run_step(stream, job, active);
    }
}

/* begin_states() and end_states() convert between states in the caller's order (`number`) and rows
 * in order of length. */
static void begin_states(const struct gsv_cpu_lstm_job *job, float *to, const float *from)
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

static void end_states(const struct gsv_cpu_lstm_job *job, float *to, const float *from)
{
    const size_t n = (size_t)job->op->n_sequences, hidden = (size_t)job->op->layer->hidden;

    for (size_t i = 0; i < n; i++) {
        const size_t number = (size_t)job->op->sequences[i].number;

        memcpy(to + ((size_t)job->direction * n + number) * hidden, from + i * hidden,
               hidden * sizeof(float));
    }
}

/* The job of a direction. With STEPS both directions share the scratch memory. */
static struct gsv_cpu_lstm_job make_job(const struct gpuserve_stream *stream,
                                        const struct gpuserve_op_lstm *op, int32_t direction)
{
    const bool by_steps = op->variant == GPUSERVE_LSTM_STEPS;
    const bool by_rows = !by_steps && gsv_cpu_lstm_fits_rows(op->layer);
    const size_t rows = by_steps ? 0 : (size_t)direction * (size_t)op->n_sequences;
    const size_t states = rows * (size_t)op->layer->hidden;
    const size_t sums = rows * (size_t)gsv_cpu_lstm_columns(op->layer);
    float *scratch = op->scratch;
    struct cpu_lstm_plan plan;

    (void)make_plan(op, &plan); /* checked when the scratch size was computed */
    return (struct gsv_cpu_lstm_job){
        .op = op,
        .isa = stream->isa,
        .direction = direction,
        .by_steps = by_steps,
        .add = scratch + plan.add + (by_rows ? GSV_LSTM_CHUNK * sums : 0),
        .sums = scratch + plan.sums + sums,
        .h = scratch + plan.h + states,
        .c = scratch + plan.c + states,
        .in = scratch + plan.in,
    };
}

static void begin(struct gpuserve_stream *stream, const struct gsv_cpu_lstm_job *job, bool by_rows)
{
    const struct gpuserve_op_lstm *op = job->op;
    const struct gpuserve_lstm_layer *l = op->layer;
    const int32_t columns = gsv_cpu_lstm_columns(l);

    if (!job->by_steps && !by_rows && op->n_rows > 0)
        multiply(stream, l->ih[job->direction], op->in,
                 job->add + (size_t)job->direction * (size_t)columns, op->n_rows,
                 l->directions * columns);
    begin_states(job, job->h, op->h_0);
    if (l->cell == GPUSERVE_CELL_LSTM)
        begin_states(job, job->c, op->c_0);
}

static void end(const struct gsv_cpu_lstm_job *job)
{
    end_states(job, job->op->h_n, job->h);
    if (job->op->layer->cell == GPUSERVE_CELL_LSTM)
        end_states(job, job->op->c_n, job->c);
}

gpuserve_status gsv_cpu_lstm(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                             gpuserve_error *error)
{
    const uint64_t start = gsv_now_ns();
    const int32_t directions = op->layer->directions;
    const bool by_rows = op->variant != GPUSERVE_LSTM_STEPS && gsv_cpu_lstm_fits_rows(op->layer);
    struct gsv_cpu_lstm_job jobs[2];

    (void)error;
    for (int32_t d = 0; d < directions; d++) {
        jobs[d] = make_job(stream, op, d);
        begin(stream, &jobs[d], by_rows);
        if (!by_rows) {
            run_steps(stream, &jobs[d]);
            end(&jobs[d]);
        }
    }
    if (by_rows)
        gsv_cpu_lstm_rows(stream, jobs);
    for (int32_t d = 0; by_rows && d < directions; d++)
        end(&jobs[d]);
    op->seconds = gsv_seconds_since(start);
    return GPUSERVE_OK;
}
