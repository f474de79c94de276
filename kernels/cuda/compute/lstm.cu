/*
 * lstm.cu - backend entries of gpuserve_lstm_run() and of recurrent models: packs weights at
 * creation, runs a layer.
 *
 *   steps   per direction and step: gather the input rows next to the hidden states,
 *           one product with both weights, the gates. A GRU with the reset gate before the
 *           product of the new state has one product more, and runs only in this way
 *   fused   the inputs of all steps as rows of the element type, one product per
 *           direction; then all steps in one kernel, for as many sequences at a time
 *           as its plan has rows
 *   cudnn   lstm_cudnn.cu
 *
 * The scratch memory is one allocation, divided by make_plan().
 */
#include "kernels/cuda/compute/lstm.cuh"
#include "kernels/cuda/compute/matmul.cuh"
#include "kernels/cuda/runtime/stream.cuh"

#include <stdlib.h>
#include <string.h>

namespace
{

int up(int n)
{
    return (n + GSV_LSTM_STEP - 1) / GSV_LSTM_STEP * GSV_LSTM_STEP;
}

/* ------------------------------------------------------------------------------------- weights */

struct gpuserve_lstm_layer shape_of(const struct gpuserve_lstm_source *source)
{
    struct gpuserve_lstm_layer layer = {};

    layer.element = gsv_cuda_element(source->dtype);
    layer.input = source->input_size;
    layer.hidden = source->hidden_size;
    layer.directions = source->n_directions;
    layer.cell = source->cell;
    layer.in_up = up(source->input_size);
    layer.units = up(source->hidden_size);
    return layer;
}

/* Number of elements of one direction. */
size_t weight_elements(const struct gpuserve_lstm_layer *layer)
{
    return 4 * static_cast<size_t>(layer->units) * static_cast<size_t>(gsv_lstm_ld(layer));
}

size_t weights_bytes(const struct gpuserve_lstm_layer *layer)
{
    return layer->directions * weight_elements(layer) * gsv_lstm_element_size(layer);
}

/* Arranges one direction's weights in host memory in the layout of the kernels. */
void arrange(const struct gpuserve_lstm_layer *layer, const struct gpuserve_lstm_source *source,
             int direction, float *weight, float *bias)
{
    const size_t ld = static_cast<size_t>(gsv_lstm_ld(layer));
    const size_t hidden = static_cast<size_t>(layer->hidden);
    const size_t input = static_cast<size_t>(layer->input);

    const bool is_gru = layer->cell != GPUSERVE_CELL_LSTM;

    for (size_t gate = 0; gate < 4; gate++) {
        const size_t block = is_gru && gate == 3 ? 2 : gate; /* of the source's weights */

        for (size_t unit = 0; unit < hidden; unit++) {
            const size_t from = block * hidden + unit;
            const size_t to = gate * layer->units + unit;

            if (!is_gru || gate < 3)
                memcpy(weight + to * ld, source->weight_ih[direction] + from * input,
                       input * sizeof(float));
            if (!is_gru || gate != 2)
                memcpy(weight + to * ld + layer->in_up,
                       source->weight_hh[direction] + from * hidden, hidden * sizeof(float));
            if (gate < 3 || layer->cell != GPUSERVE_CELL_GRU_RESET_BEFORE)
                bias[to] = source->bias[direction][gate * hidden + unit];
        }
    }
}

gpuserve_status write_direction(struct gpuserve_device *device,
                                const struct gpuserve_lstm_layer *layer,
                                const struct gpuserve_lstm_source *source, int direction,
                                gpuserve_error *error)
{
    const size_t n = weight_elements(layer);
    const size_t n_bias = 4 * static_cast<size_t>(layer->units);
    float *const weight = static_cast<float *>(calloc(n + n_bias, sizeof(float)));
    char *const to = static_cast<char *>(const_cast<void *>(layer->weight)) +
                     direction * n * gsv_lstm_element_size(layer);
    gpuserve_status status;

    if (!weight)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu weights", n);
    arrange(layer, source, direction, weight, weight + n);
    status = gsv_cuda_memory_write_floats(device, to, weight, n, source->dtype, error);
    if (status == GPUSERVE_OK)
        status =
            gsv_cuda_memory_write(device, const_cast<float *>(layer->bias) + direction * n_bias,
                                  weight + n, n_bias * sizeof(float), error);
    free(weight);
    return status;
}

} /* namespace */

gpuserve_status gsv_cuda_lstm_layer_bytes(const struct gpuserve_lstm_source *source, size_t *size,
                                          gpuserve_error *error)
{
    const struct gpuserve_lstm_layer layer = shape_of(source);

    *size = 0;
    if (source->dtype != GPUSERVE_DTYPE_FLOAT32 && source->dtype != GPUSERVE_DTYPE_FLOAT16)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype is %u; an LSTM on a CUDA device supports float32 and float16",
                        source->dtype);
    *size = weights_bytes(&layer) +
            4 * sizeof(float) * static_cast<size_t>(layer.units) * layer.directions;
    return GPUSERVE_OK;
}

gpuserve_status gsv_cuda_lstm_layer_create(struct gpuserve_device *device,
                                           struct gpuserve_lstm_layer **layer, void *memory,
                                           const struct gpuserve_lstm_source *source,
                                           gpuserve_error *error)
{
    struct gpuserve_lstm_layer *const made =
        static_cast<struct gpuserve_lstm_layer *>(malloc(sizeof(*made)));
    gpuserve_status status = GPUSERVE_OK;

    *layer = NULL;
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a layer");
    *made = shape_of(source);
    made->weight = memory;
    made->bias = reinterpret_cast<const float *>(static_cast<char *>(memory) + weights_bytes(made));
    for (int d = 0; status == GPUSERVE_OK && d < made->directions; d++)
        status = write_direction(device, made, source, d, error);
    if (status != GPUSERVE_OK) {
        free(made);
        return status;
    }
    *layer = made;
    return GPUSERVE_OK;
}

void gsv_cuda_lstm_layer_destroy(struct gpuserve_lstm_layer **layer)
{
    if (!layer)
        return;
    free(*layer);
    *layer = NULL;
}

void gsv_cuda_lstm_layer_move(struct gpuserve_lstm_layer *layer, const void *from, void *to)
{
    layer->weight = gsv_moved(layer->weight, from, to);
    layer->bias = static_cast<const float *>(gsv_moved(layer->bias, from, to));
}

/* ------------------------------------------------------------------------------------- scratch */

namespace
{

const int MAX_PROCESSORS = 4096; /* of any device */

struct cuda_lstm_plan {
    struct gsv_lstm_plan division; /* FUSED */
    size_t rows;   /* FUSED: inputs [n_rows, in_up] unless float32; STEPS: gsv_lstm_by_steps.rows */
    size_t add;    /* FUSED: [n_rows, directions, 4, units] */
    size_t states; /* FUSED: [directions, n_sequences + n_rows, units] */
    size_t counters; /* FUSED: one per thread group */
    size_t sums;     /* STEPS */
    size_t cells;    /* STEPS */
    size_t total;
};

bool take(struct cuda_lstm_plan *plan, size_t *at, size_t rows, size_t columns, size_t size)
{
    size_t bytes;

    *at = plan->total;
    return gsv_mul_size(rows, columns, &bytes) && gsv_mul_size(bytes, size, &bytes) &&
           gsv_round_up(bytes, 256) != SIZE_MAX &&
           gsv_add_size(plan->total, gsv_round_up(bytes, 256), &plan->total);
}

bool plan_steps(const struct gpuserve_op_lstm *op, struct cuda_lstm_plan *plan)
{
    const struct gpuserve_lstm_layer *const layer = op->layer;
    const size_t n = static_cast<size_t>(op->n_sequences);
    const size_t units = static_cast<size_t>(layer->units);

    return take(plan, &plan->rows, layer->directions * n, static_cast<size_t>(gsv_lstm_ld(layer)),
                gsv_lstm_element_size(layer)) &&
           take(plan, &plan->sums, n, 4 * units, sizeof(float)) &&
           take(plan, &plan->cells, layer->directions * n, units, sizeof(float));
}

bool plan_fused(const struct gpuserve_op_lstm *op, struct cuda_lstm_plan *plan)
{
    const struct gpuserve_lstm_layer *const layer = op->layer;
    const size_t n = static_cast<size_t>(op->n_sequences);
    const size_t rows = static_cast<size_t>(op->n_rows);
    const size_t directions = static_cast<size_t>(layer->directions);
    const size_t units = static_cast<size_t>(layer->units);
    const bool packs = layer->element != GSV_ELEMENT_F32;

    return take(plan, &plan->rows, packs ? rows : 0, static_cast<size_t>(layer->in_up),
                gsv_lstm_element_size(layer)) &&
           take(plan, &plan->add, rows, directions * 4 * units, sizeof(float)) &&
           take(plan, &plan->states, directions * (n + rows), units,
                gsv_lstm_element_size(layer)) &&
           take(plan, &plan->counters,
                static_cast<size_t>(plan->division.row_blocks) * plan->division.directions, 1,
                sizeof(unsigned));
}

bool fuses(const struct gpuserve_device *device, const struct gpuserve_op_lstm *op,
           struct gsv_lstm_plan *division)
{
    return device->cooperates && op->layer->cell != GPUSERVE_CELL_GRU_RESET_BEFORE &&
           gsv_lstm_make_plan(op->layer, op->n_sequences, device->n_processors,
                              device->shared_bytes, division);
}

bool make_plan(const struct gpuserve_device *device, const struct gpuserve_op_lstm *op,
               struct cuda_lstm_plan *plan)
{
    *plan = {};
    if (op->variant == GPUSERVE_LSTM_STEPS)
        return plan_steps(op, plan);
    return fuses(device, op, &plan->division) && plan_fused(op, plan);
}

} /* namespace */

gpuserve_status gsv_cuda_op_lstm_bytes(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                       size_t *size, gpuserve_error *error)
{
    struct gsv_lstm_plan division;
    struct cuda_lstm_plan plan;

    *size = 0;
    if (op->variant == GPUSERVE_LSTM_CUDNN)
        return gsv_cuda_lstm_cudnn_bytes(device, op, size, error);
    if (op->variant != GPUSERVE_LSTM_STEPS) {
        const bool can = fuses(device, op, &division);

        if (!can && op->variant == GPUSERVE_LSTM_FUSED &&
            op->layer->cell == GPUSERVE_CELL_GRU_RESET_BEFORE)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "variant fused: a GRU with the reset gate before the product of the "
                            "new state runs step by step");
        if (!can && op->variant == GPUSERVE_LSTM_FUSED)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "variant fused: %d units exceed what the %d multiprocessors of %s can "
                            "hold, %d each",
                            op->layer->hidden, device->cooperates ? device->n_processors : 0,
                            device->name, GSV_LSTM_MAX_UNITS);
        op->variant = can ? GPUSERVE_LSTM_FUSED : GPUSERVE_LSTM_STEPS;
    }
    if (!make_plan(device, op, &plan))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "an LSTM over %d rows: the size of its scratch memory overflows",
                        op->n_rows);
    *size = plan.total;
    return GPUSERVE_OK;
}

/* The number of thread groups of a plan is at most that of the multiprocessors. */
size_t gsv_cuda_lstm_max_bytes(const struct gpuserve_lstm_source *source, int32_t n_rows,
                               int32_t n_sequences)
{
    const struct gpuserve_lstm_layer layer = shape_of(source);
    struct gpuserve_op_lstm op = {};
    struct cuda_lstm_plan steps = {}, fused = {};

    op.layer = &layer;
    op.n_rows = n_rows;
    op.n_sequences = n_sequences;
    fused.division.row_blocks = MAX_PROCESSORS;
    fused.division.directions = 1;
    if (!plan_steps(&op, &steps) || !plan_fused(&op, &fused))
        return SIZE_MAX;
    return steps.total > fused.total ? steps.total : fused.total;
}

/* ----------------------------------------------------------------------------------- computing */

namespace
{

/* A run with its stream and its division of the scratch memory. */
struct work {
    struct gpuserve_stream *stream;
    const struct gpuserve_op_lstm *op;
    struct gsv_lstm_run run;
    struct cuda_lstm_plan plan;
};

struct gsv_lstm_run run_of(const struct gpuserve_op_lstm *op)
{
    struct gsv_lstm_run run = {};

    run.layer = *op->layer;
    run.in = op->in;
    run.out = op->out;
    run.h_0 = op->h_0;
    run.c_0 = op->c_0;
    run.h_n = op->h_n;
    run.c_n = op->c_n;
    run.sequences = op->sequences;
    run.n_sequences = op->n_sequences;
    run.n_rows = op->n_rows;
    return run;
}

char *scratch_at(const struct work *w, size_t offset)
{
    return static_cast<char *>(w->op->scratch) + offset;
}

/* A block of one direction's weights. */
struct weight_part {
    int direction;
    int first_gate, gates;
    int first_column, columns; /* columns: k of the product */
};

/* C [m, gates * units] = A [m, k] times a part of the weights. `lt`: use cuBLASLt if available. */
cudaError_t multiply(const struct work *w, const void *a, int64_t a_ld, int m,
                     const struct weight_part &part, float *c, int64_t c_ld, bool lt)
{
    const int k = part.columns;
    const struct gpuserve_lstm_layer *const layer = &w->run.layer;
    const struct gpuserve_device *const device = w->stream->device;
    const bool is_float32 = layer->element == GSV_ELEMENT_F32;
    const int64_t first = static_cast<int64_t>(part.first_gate) * layer->units * gsv_lstm_ld(layer);
    const void *const b = static_cast<const char *>(layer->weight) +
                          (part.direction * weight_elements(layer) + static_cast<size_t>(first) +
                           static_cast<size_t>(part.first_column)) *
                              gsv_lstm_element_size(layer);
    struct gsv_matmul of = {};
    const struct gsv_packed packed = { a, b, a_ld, gsv_lstm_ld(layer), k };

    of.a = static_cast<const float *>(a);
    of.b = static_cast<const float *>(b);
    of.c = c;
    of.a_stride = a_ld;
    of.b_stride = gsv_lstm_ld(layer);
    of.c_stride = c_ld;
    of.m = m;
    of.n = part.gates * layer->units;
    of.k = k;
    of.transpose_b = true;
    of.alpha = 1.f;
    if (lt && device->lt)
        return gsv_lt_matmul(device->lt, &of, &packed, is_float32 ? GSV_MATH_F32 : GSV_MATH_F16,
                             w->stream->workspace, w->stream->queue);
    if (is_float32)
        return gsv_cuda_matmul_tiled(&of, device->n_processors, w->stream->queue);
    return gsv_cuda_matmul_mma(&of, &packed, GSV_MATH_F16, device->n_processors, w->stream->queue);
}

/* --- steps --- */

/* The product of s(r) * h for the new state of a GRU, in place of that of h. */
cudaError_t multiply_reset(const struct work *w, const struct gsv_lstm_by_steps *by,
                           const char *rows, int direction, int active)
{
    const struct gpuserve_lstm_layer *const layer = &w->run.layer;
    const int64_t ld = gsv_lstm_ld(layer);
    const struct weight_part part = { direction, 3, 1, layer->in_up, layer->units };
    const cudaError_t code = gsv_cuda_lstm_reset(&w->run, by, direction, active, w->stream->queue);

    return code == cudaSuccess
               ? multiply(w, rows + layer->in_up * gsv_lstm_element_size(layer), ld, active, part,
                          by->sums + 3 * static_cast<int64_t>(layer->units),
                          4 * static_cast<int64_t>(layer->units), false)
               : code;
}

cudaError_t run_step(const struct work *w, const struct gsv_lstm_by_steps *by, int direction,
                     int step, int active)
{
    const struct gpuserve_lstm_layer *const layer = &w->run.layer;
    const int64_t ld = gsv_lstm_ld(layer);
    const char *const rows = static_cast<const char *>(by->rows) +
                             direction * ld * w->run.n_sequences * gsv_lstm_element_size(layer);
    cudaError_t code = gsv_cuda_lstm_gather(&w->run, by, direction, step, active, w->stream->queue);

    const struct weight_part all = { direction, 0, 4, 0, static_cast<int>(ld) };

    if (code == cudaSuccess)
        code = multiply(w, rows, ld, active, all, by->sums, 4 * static_cast<int64_t>(layer->units),
                        false);
    if (code == cudaSuccess && layer->cell == GPUSERVE_CELL_GRU_RESET_BEFORE)
        code = multiply_reset(w, by, rows, direction, active);
    return code == cudaSuccess
               ? gsv_cuda_lstm_gates(&w->run, by, direction, step, active, w->stream->queue)
               : code;
}

cudaError_t run_steps(const struct work *w)
{
    const struct gpuserve_lstm_layer *const layer = &w->run.layer;
    const struct gsv_lstm_by_steps by = { scratch_at(w, w->plan.rows),
                                          reinterpret_cast<float *>(scratch_at(w, w->plan.sums)),
                                          reinterpret_cast<float *>(scratch_at(w, w->plan.cells)) };
    const int64_t ld = gsv_lstm_ld(layer);
    const struct gsv_lstm_begin begin = { static_cast<char *>(by.rows) +
                                              layer->in_up * gsv_lstm_element_size(layer),
                                          by.cells, ld, ld * w->run.n_sequences };
    cudaError_t code = gsv_cuda_lstm_begin(&w->run, &begin, w->stream->queue);

    for (int d = 0; d < layer->directions; d++) {
        int active = w->run.n_sequences;

        for (int step = 0; code == cudaSuccess; step++) {
            while (active > 0 && w->op->host_sequences[active - 1].length <= step)
                active--;
            if (active == 0)
                break;
            code = run_step(w, &by, d, step, active);
        }
    }
    return code;
}

/* --- fused --- */

/* Products of the inputs of all steps with the weights of each direction. */
cudaError_t multiply_inputs(const struct work *w, float *add)
{
    const struct gpuserve_lstm_layer *const layer = &w->run.layer;
    const int64_t add_ld = 4 * static_cast<int64_t>(layer->units) * layer->directions;
    const bool packs = layer->element != GSV_ELEMENT_F32;
    const void *in = w->run.in;
    cudaError_t code = cudaSuccess;

    if (packs) {
        const struct gsv_repack repack = { w->run.in,     layer->input, scratch_at(w, w->plan.rows),
                                           w->run.n_rows, layer->input, layer->in_up,
                                           false };

        in = repack.to;
        code = gsv_cuda_repack(&repack, layer->element, w->stream->queue);
    }
    for (int d = 0; code == cudaSuccess && d < layer->directions; d++) {
        const struct weight_part inputs = { d, 0, 4, 0, packs ? layer->in_up : layer->input };

        code = multiply(w, in, inputs.columns, w->run.n_rows, inputs,
                        add + 4 * static_cast<int64_t>(layer->units) * d, add_ld, true);
    }
    return code;
}

cudaError_t run_fused(const struct work *w)
{
    const struct gpuserve_lstm_layer *const layer = &w->run.layer;
    const struct gsv_lstm_plan *const plan = &w->plan.division;
    float *const add = reinterpret_cast<float *>(scratch_at(w, w->plan.add));
    unsigned *const counters = reinterpret_cast<unsigned *>(scratch_at(w, w->plan.counters));
    const struct gsv_lstm_fused at = { add, scratch_at(w, w->plan.states), counters };
    const struct gsv_lstm_begin begin = {
        at.states, NULL, layer->units,
        (static_cast<int64_t>(w->run.n_sequences) + w->run.n_rows) * layer->units
    };
    cudaError_t code = gsv_cuda_lstm_begin(&w->run, &begin, w->stream->queue);

    if (w->run.n_rows == 0)
        return code;
    if (code == cudaSuccess)
        code = multiply_inputs(w, add);
    for (int d = 0; d < layer->directions; d += plan->directions) {
        for (int64_t first = 0; code == cudaSuccess && first < w->run.n_sequences;
             first += static_cast<int64_t>(plan->row_blocks) * plan->rows) {
            code = cudaMemsetAsync(counters, 0,
                                   sizeof(*counters) * plan->row_blocks * plan->directions,
                                   w->stream->queue);
            if (code == cudaSuccess)
                code = gsv_cuda_lstm_fused(&w->run, &at, plan, d, static_cast<int32_t>(first),
                                           w->stream->queue);
        }
    }
    return code;
}

cudaError_t run_variant(const struct work *w, struct gsv_lstm_cudnn_run *kept)
{
    switch (w->op->variant) {
    case GPUSERVE_LSTM_STEPS:
        return run_steps(w);
    case GPUSERVE_LSTM_CUDNN:
        return gsv_cuda_lstm_cudnn(w->stream, w->op, &w->run, kept);
    default:
        return run_fused(w);
    }
}

} /* namespace */

gpuserve_status gsv_cuda_op_lstm(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                                 gpuserve_error *error)
{
    struct work work = { stream, op, run_of(op), {} };
    struct gsv_timer timer = {};
    struct gsv_lstm_cudnn_run kept = { NULL, "the launch of lstm" };
    gpuserve_status status = gsv_cuda_stream_begin(stream, error);

    if (status != GPUSERVE_OK)
        return status;
    if (op->variant != GPUSERVE_LSTM_CUDNN)
        (void)make_plan(stream->device, op, &work.plan); /* checked by lstm_bytes */
    if (gsv_cuda_timer_start(&timer, stream) == GPUSERVE_OK) {
        const cudaError_t code = run_variant(&work, &kept);

        if (gsv_cuda_note(stream, code, kept.failed) == GPUSERVE_OK)
            gsv_cuda_timer_stop(&timer, stream);
    }
    status = gsv_cuda_stream_finish(stream, error);
    free(kept.index);
    op->seconds = gsv_cuda_timer_end(&timer, stream);
    return status;
}
