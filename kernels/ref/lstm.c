/*
 * lstm: one layer of an LSTM or a GRU in float64, one sequence and one step at a time. Outputs and
 * final states are rounded to float32 when they are stored.
 *
 * All variants but CUDNN run this code: a variant selects how a layer is computed, not its result.
 */
#include "kernels/ref/ref.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Copies of the source's weights, in the layer's memory and in the source's layout. */
struct gpuserve_lstm_layer {
    int32_t input, hidden, directions;
    int32_t gates; /* 4, of a GRU 3 */
    uint32_t cell; /* gpuserve_cell */
    const float *weight_ih[2];
    const float *weight_hh[2];
    const float *bias[2];
};

static size_t direction_floats(const struct gpuserve_lstm_source *source)
{
    const size_t hidden = (size_t)source->hidden_size;

    return (size_t)gpuserve_cell_gates(source->cell) * hidden *
               ((size_t)source->input_size + hidden) +
           4 * hidden;
}

gpuserve_status gsv_ref_lstm_layer_bytes(const struct gpuserve_lstm_source *source, size_t *size,
                                         gpuserve_error *error)
{
    *size = 0;
    if (source->dtype != GPUSERVE_DTYPE_FLOAT32)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype is %u; an LSTM on ref supports only float32",
                        (unsigned)source->dtype);
    *size =
        gsv_round_up((size_t)source->n_directions * direction_floats(source) * sizeof(float), 64);
    return GPUSERVE_OK;
}

static const float *put(float **to, const float *from, size_t n)
{
    float *at = *to;

    memcpy(at, from, n * sizeof(float));
    *to = at + n;
    return at;
}

gpuserve_status gsv_ref_lstm_layer_create(struct gpuserve_device *device,
                                          struct gpuserve_lstm_layer **layer, void *memory,
                                          const struct gpuserve_lstm_source *source,
                                          gpuserve_error *error)
{
    const size_t hidden = (size_t)source->hidden_size;
    const size_t rows = (size_t)gpuserve_cell_gates(source->cell) * hidden;
    struct gpuserve_lstm_layer *made = gsv_alloc_array(1, sizeof(*made));
    float *to = memory;

    (void)device;
    *layer = made;
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a layer");
    made->input = source->input_size;
    made->hidden = source->hidden_size;
    made->directions = source->n_directions;
    made->gates = gpuserve_cell_gates(source->cell);
    made->cell = source->cell;
    for (int32_t d = 0; d < source->n_directions; d++) {
        made->weight_ih[d] = put(&to, source->weight_ih[d], rows * (size_t)source->input_size);
        made->weight_hh[d] = put(&to, source->weight_hh[d], rows * hidden);
        made->bias[d] = put(&to, source->bias[d], 4 * hidden);
    }
    return GPUSERVE_OK;
}

void gsv_ref_lstm_layer_destroy(struct gpuserve_lstm_layer **layer)
{
    if (!layer)
        return;
    free(*layer);
    *layer = NULL;
}

void gsv_ref_lstm_layer_move(struct gpuserve_lstm_layer *layer, const void *from, void *to)
{
    for (int32_t d = 0; d < layer->directions; d++) {
        layer->weight_ih[d] = gsv_moved(layer->weight_ih[d], from, to);
        layer->weight_hh[d] = gsv_moved(layer->weight_hh[d], from, to);
        layer->bias[d] = gsv_moved(layer->bias[d], from, to);
    }
}

/* The four gates of one step, and the states h and c. */
static size_t scratch_bytes(int32_t hidden)
{
    return 6 * (size_t)hidden * sizeof(double);
}

size_t gsv_ref_lstm_max_bytes(const struct gpuserve_lstm_source *source, int32_t n_rows,
                              int32_t n_sequences)
{
    (void)n_rows;
    (void)n_sequences;
    return scratch_bytes(source->hidden_size);
}

gpuserve_status gsv_ref_lstm_bytes(struct gpuserve_device *device, struct gpuserve_op_lstm *op,
                                   size_t *size, gpuserve_error *error)
{
    (void)device;
    *size = 0;
    if (op->variant == GPUSERVE_LSTM_CUDNN)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "variant cudnn: a CPU has no cuDNN");
    *size = scratch_bytes(op->layer->hidden);
    if (op->variant == GPUSERVE_LSTM_AUTO)
        op->variant = GPUSERVE_LSTM_STEPS;
    return GPUSERVE_OK;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double input_sum(const struct gpuserve_lstm_layer *l, int32_t direction, int32_t row,
                        const float *x)
{
    const float *w = l->weight_ih[direction] + (size_t)row * (size_t)l->input;
    double sum = 0.0;

    for (int32_t i = 0; i < l->input; i++)
        sum += (double)w[i] * (double)x[i];
    return sum;
}

static double hidden_sum(const struct gpuserve_lstm_layer *l, int32_t direction, int32_t row,
                         const double *h)
{
    const float *u = l->weight_hh[direction] + (size_t)row * (size_t)l->hidden;
    double sum = 0.0;

    for (int32_t i = 0; i < l->hidden; i++)
        sum += (double)u[i] * h[i];
    return sum;
}

/* GRU: `gates` are r, z and n, then r * h or the recurrent part of n. */
static void gru_step(const struct gpuserve_lstm_layer *l, int32_t direction, const float *x,
                     double *gates, double *h)
{
    const int32_t hidden = l->hidden;
    const float *bias = l->bias[direction];
    double *const last = gates + 3 * hidden;

    for (int32_t g = 0; g < 3 * hidden; g++)
        gates[g] = (double)bias[g] + input_sum(l, direction, g, x);
    for (int32_t g = 0; g < 2 * hidden; g++)
        gates[g] = sigmoid(gates[g] + hidden_sum(l, direction, g, h));
    if (l->cell == GPUSERVE_CELL_GRU) {
        for (int32_t j = 0; j < hidden; j++)
            last[j] = (double)bias[3 * hidden + j] + hidden_sum(l, direction, 2 * hidden + j, h);
        for (int32_t j = 0; j < hidden; j++)
            gates[2 * hidden + j] += gates[j] * last[j];
    } else {
        for (int32_t j = 0; j < hidden; j++)
            last[j] = gates[j] * h[j];
        for (int32_t j = 0; j < hidden; j++)
            gates[2 * hidden + j] += hidden_sum(l, direction, 2 * hidden + j, last);
    }
    for (int32_t j = 0; j < hidden; j++) {
        const double update = gates[hidden + j];

        h[j] = (1.0 - update) * tanh(gates[2 * hidden + j]) + update * h[j];
    }
}

static void lstm_step(const struct gpuserve_lstm_layer *l, int32_t direction, const float *x,
                      double *gates, double *h, double *c)
{
    const int32_t hidden = l->hidden;

    for (int32_t g = 0; g < 4 * hidden; g++)
        gates[g] = (double)l->bias[direction][g] + input_sum(l, direction, g, x) +
                   hidden_sum(l, direction, g, h);
    for (int32_t j = 0; j < hidden; j++) {
        const double in = sigmoid(gates[j]), forget = sigmoid(gates[hidden + j]);
        const double cell = tanh(gates[2 * hidden + j]), out = sigmoid(gates[3 * hidden + j]);

        c[j] = forget * c[j] + in * cell;
        h[j] = out * tanh(c[j]);
    }
}

static void run_sequence(const struct gpuserve_op_lstm *op, const struct gpuserve_lstm_sequence *s,
                         int32_t direction)
{
    const struct gpuserve_lstm_layer *l = op->layer;
    const size_t hidden = (size_t)l->hidden;
    const size_t state = ((size_t)direction * (size_t)op->n_sequences + (size_t)s->number) * hidden;
    double *gates = op->scratch, *h = gates + 4 * hidden, *c = h + hidden;

    for (size_t j = 0; j < hidden; j++) {
        h[j] = op->h_0 ? (double)op->h_0[state + j] : 0.0;
        c[j] = l->cell == GPUSERVE_CELL_LSTM && op->c_0 ? (double)op->c_0[state + j] : 0.0;
    }
    for (int32_t t = 0; t < s->length; t++) {
        const size_t row = (size_t)(s->first + (direction ? s->length - 1 - t : t));

        if (l->cell == GPUSERVE_CELL_LSTM)
            lstm_step(l, direction, op->in + row * (size_t)l->input, gates, h, c);
        else
            gru_step(l, direction, op->in + row * (size_t)l->input, gates, h);
        for (size_t j = 0; j < hidden; j++)
            op->out[(row * (size_t)l->directions + (size_t)direction) * hidden + j] = (float)h[j];
    }
    for (size_t j = 0; j < hidden; j++) {
        op->h_n[state + j] = (float)h[j];
        op->c_n[state + j] = (float)c[j];
    }
}

gpuserve_status gsv_ref_lstm(struct gpuserve_stream *stream, struct gpuserve_op_lstm *op,
                             gpuserve_error *error)
{
    (void)stream;
    (void)error;
    for (int32_t d = 0; d < op->layer->directions; d++)
        for (int32_t i = 0; i < op->n_sequences; i++)
            run_sequence(op, &op->sequences[i], d);
    op->seconds = 0.0;
    return GPUSERVE_OK;
}
