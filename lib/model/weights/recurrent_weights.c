/*
 * recurrent_weights.c - reads the weights of an LSTM's layers and packs them on the device.
 *
 * A file's matrix becomes [4 units, inputs] with the gates in the order of the backend; both biases
 * are added.
 */
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* One layer in float32, in all directions: for each the input weights, the hidden weights and the
 * bias. */
struct layer_floats {
    size_t units, input;
    float *all;  /* the arrays of the layer; owned */
    float *file; /* one tensor as in the file, in `all` */
};

static size_t direction_floats(const struct layer_floats *floats)
{
    return 4 * floats->units * (floats->input + floats->units + 1);
}

static gpuserve_status alloc_floats(struct layer_floats *floats,
                                    const struct gpuserve_lstm_source *source,
                                    gpuserve_error *error)
{
    const size_t directions = (size_t)source->n_directions;
    size_t widest, total;

    floats->units = (size_t)source->hidden_size;
    floats->input = (size_t)source->input_size;
    widest = floats->units > floats->input ? floats->units : floats->input;
    total = directions * direction_floats(floats) + 4 * floats->units * widest; /* below 2^36 */
    floats->all = gsv_alloc_array(total, sizeof(float));
    if (!floats->all)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an LSTM layer of %zu floats",
                        total);
    floats->file = floats->all + directions * direction_floats(floats);
    return GPUSERVE_OK;
}

/* Read tensor `part` of an item, `cols` wide, with the gates in the backend's order. */
static gpuserve_status read_gates(struct gsv_reader *reader, const struct gsv_weight *item,
                                  size_t part, const struct layer_floats *floats, size_t cols,
                                  float *to, gpuserve_error *error)
{
    const struct gsv_recurrent *recurrent = &reader->spec->config.recurrent;
    const size_t units = floats->units;
    const gpuserve_status st = gsv_read_tensor(reader, item, part, floats->file, error);

    for (size_t row = 0; row < 4 * units && st == GPUSERVE_OK; row++) {
        const size_t from = (size_t)recurrent->order[row / units] * units + row % units;

        if (!recurrent->is_keras || cols == 1)
            memcpy(to + row * cols, floats->file + from * cols, cols * sizeof(float));
        else
            for (size_t i = 0; i < cols; i++)
                to[row * cols + i] = floats->file[i * 4 * units + from];
    }
    return st;
}

static gpuserve_status read_bias(struct gsv_reader *reader, const struct gsv_weight *item,
                                 const struct layer_floats *floats, float *to,
                                 gpuserve_error *error)
{
    const size_t n = 4 * floats->units;
    float *second = gsv_alloc_array(n, sizeof(*second));
    gpuserve_status st =
        second ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a bias");

    if (st == GPUSERVE_OK && item->bias[0].count)
        st = read_gates(reader, item, 3, floats, 1, to, error);
    if (st == GPUSERVE_OK && item->bias[1].count)
        st = read_gates(reader, item, 4, floats, 1, second, error);
    for (size_t i = 0; i < n && st == GPUSERVE_OK; i++)
        to[i] += second[i];
    free(second);
    return st;
}

static gpuserve_status read_direction(struct gsv_reader *reader, const struct gsv_weight *item,
                                      const struct layer_floats *floats,
                                      struct gpuserve_lstm_source *source, gpuserve_error *error)
{
    const int32_t d = item->which;
    float *ih = floats->all + (size_t)d * direction_floats(floats);
    float *hh = ih + 4 * floats->units * floats->input;
    float *bias = hh + 4 * floats->units * floats->units;
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
