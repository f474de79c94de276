/*
 * recurrent_weights.c - reads the weights of LSTM or GRU layers and packs them on the device.
 *
 * A file's matrix becomes [gates * units, inputs] with the gates in the order of the backend; both
 * biases of a gate are added, but for the new state of a GRU.
 */
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* One layer in float32, in all directions: for each the input weights, the hidden weights and the
 * bias. */
struct layer_floats {
    size_t gates, units, input;
    float *all;  /* the arrays of the layer; owned */
    float *file; /* one tensor as in the file, in `all` */
};

static size_t direction_floats(const struct layer_floats *floats)
{
    return floats->units * (floats->gates * (floats->input + floats->units) + 4);
}

static gpuserve_status alloc_floats(struct layer_floats *floats,
                                    const struct gpuserve_lstm_source *source,
                                    gpuserve_error *error)
{
    const size_t directions = (size_t)source->n_directions;
    size_t widest, total;

    floats->gates = (size_t)gpuserve_cell_gates(source->cell);
    floats->units = (size_t)source->hidden_size;
    floats->input = (size_t)source->input_size;
    widest = floats->units > floats->input ? floats->units : floats->input;
    widest = widest > 2 ? widest : 2;                                           /* two biases */
    total = directions * direction_floats(floats) + 4 * floats->units * widest; /* below 2^36 */
    floats->all = gsv_alloc_array(total, sizeof(float));
    if (!floats->all)
        return gsv_fail(error, GPUSERVE_E_NOMEM,
                        "out of memory for a recurrent layer of %zu floats", total);
    floats->file = floats->all + directions * direction_floats(floats);
    return GPUSERVE_OK;
}

/* Read matrix `part` of an item, `cols` wide, with the gates in the backend's order. */
static gpuserve_status read_gates(struct gsv_reader *reader, const struct gsv_weight *item,
                                  size_t part, const struct layer_floats *floats, size_t cols,
                                  float *to, gpuserve_error *error)
{
    const struct gsv_recurrent *recurrent = &reader->spec->config.recurrent;
    const size_t units = floats->units;
    const gpuserve_status st = gsv_read_tensor(reader, item, part, floats->file, error);

    for (size_t row = 0; row < floats->gates * units && st == GPUSERVE_OK; row++) {
        const size_t from = (size_t)recurrent->order[row / units] * units + row % units;

        if (!recurrent->is_keras)
            memcpy(to + row * cols, floats->file + from * cols, cols * sizeof(float));
        else
            for (size_t i = 0; i < cols; i++)
                to[row * cols + i] = floats->file[i * floats->gates * units + from];
    }
    return st;
}

/* Add a file's bias vector, in the file's order of gates, to the backend's. */
static void add_bias(const struct gsv_recurrent *recurrent, const struct layer_floats *floats,
                     const float *from, bool is_recurrent, float *to)
{
    const size_t units = floats->units;
    const bool has_fourth = recurrent->cell == GPUSERVE_CELL_GRU && is_recurrent;

    for (size_t gate = 0; gate < floats->gates; gate++)
        for (size_t i = 0; i < units; i++)
            to[(gate == 2 && has_fourth ? 3 : gate) * units + i] +=
                from[(size_t)recurrent->order[gate] * units + i];
}

/* `to` is zeros. Keras has both biases of a GRU in one tensor. */
static gpuserve_status read_bias(struct gsv_reader *reader, const struct gsv_weight *item,
                                 const struct layer_floats *floats, float *to,
                                 gpuserve_error *error)
{
    const struct gsv_recurrent *recurrent = &reader->spec->config.recurrent;
    const size_t n = floats->gates * floats->units;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < 2 && st == GPUSERVE_OK; i++) {
        if (item->bias[i].count == 0)
            continue;
        st = gsv_read_tensor(reader, item, 3 + i, floats->file, error);
        if (st != GPUSERVE_OK)
            break;
        add_bias(recurrent, floats, floats->file, i == 1, to);
        if (item->bias[i].count == 2 * n)
            add_bias(recurrent, floats, floats->file + n, true, to);
    }
    return st;
}

static gpuserve_status read_direction(struct gsv_reader *reader, const struct gsv_weight *item,
                                      const struct layer_floats *floats,
                                      struct gpuserve_lstm_source *source, gpuserve_error *error)
{
    const int32_t d = item->which;
    float *ih = floats->all + (size_t)d * direction_floats(floats);
    float *hh = ih + floats->gates * floats->units * floats->input;
    float *bias = hh + floats->gates * floats->units * floats->units;
    gpuserve_status st = read_gates(reader, item, 0, floats, floats->input, ih, error);

    if (st == GPUSERVE_OK)
        st = read_gates(reader, item, 1, floats, floats->units, hh, error);
    if (st == GPUSERVE_OK)
        st = read_bias(reader, item, floats, bias, error);
    source->weight_ih[d] = ih;
    source->weight_hh[d] = hh;
    source->bias[d] = bias;
    return st;
}

gpuserve_status gsv_load_recurrent(struct gsv_net *net, struct gsv_reader *reader, size_t index,
                                   gpuserve_error *error)
{
    const struct gsv_spec *spec = net->spec;
    struct gpuserve_lstm_source source =
        gsv_recurrent_source(&spec->config, gsv_recurrent_layer(spec, index));
    struct layer_floats floats = { 0 };
    gpuserve_status st = alloc_floats(&floats, &source, error);

    for (int32_t d = 0; d < source.n_directions && st == GPUSERVE_OK; d++)
        st = read_direction(reader, &spec->items[index + (size_t)d], &floats, &source, error);
    if (st == GPUSERVE_OK)
        st = net->backend->lstm_layer_create(net->device, &net->recurrent[index],
                                             net->addresses[index], &source, error);
    free(floats.all);
    return st;
}
