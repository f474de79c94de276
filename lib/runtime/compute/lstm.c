/*
 * lstm.c - gpuserve_lstm_create() and gpuserve_lstm_free().
 *
 *   check the whole network -> per layer: add both biases -> backend packs the weights on the
 * device
 *
 * The caller's weights are not needed after creation.
 */
#include "lib/runtime/compute/compute.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <inttypes.h>
#include <stdlib.h>

/* ------------------------------------------------------------------------------------ checking */

static gpuserve_status check_size(const char *name, int32_t size, int32_t maximum,
                                  gpuserve_error *error)
{
    if (size < 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s is %" PRId32 ", the minimum is 1", name,
                        size);
    if (size > maximum)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s is %" PRId32 ", the limit is %" PRId32,
                        name, size, maximum);
    return GPUSERVE_OK;
}

static int32_t directions_of(const gpuserve_lstm_network *network)
{
    return network->bidirectional ? 2 : 1;
}

static gpuserve_status check_weights(const gpuserve_lstm_network *network, gpuserve_error *error)
{
    const int32_t n_directions = directions_of(network);
    const size_t wanted = (size_t)network->n_layers * (size_t)n_directions;

    if (network->n_weights != wanted)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "n_weights is %zu; %" PRId32 " layers in %" PRId32 " directions need %zu",
                        network->n_weights, network->n_layers, n_directions, wanted);
    if (!network->weights)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`weights` is NULL");
    for (size_t i = 0; i < wanted; i++) {
        const gpuserve_lstm_weights *w = &network->weights[i];

        if (!w->weight_ih || !w->weight_hh)
            return gsv_fail(error, GPUSERVE_E_INVALID, "weights[%zu].weight_%s is NULL", i,
                            w->weight_ih ? "hh" : "ih");
    }
    return GPUSERVE_OK;
}

static gpuserve_status check_network(const gpuserve_lstm_network *network, gpuserve_error *error)
{
    gpuserve_status st =
        check_size("input_size", network->input_size, GPUSERVE_LSTM_MAX_SIZE, error);

    if (st == GPUSERVE_OK)
        st = check_size("hidden_size", network->hidden_size, GPUSERVE_LSTM_MAX_SIZE, error);
    if (st == GPUSERVE_OK)
        st = check_size("n_layers", network->n_layers, GPUSERVE_LSTM_MAX_LAYERS, error);
    if (st != GPUSERVE_OK)
        return st;
    if (network->bidirectional > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "bidirectional is %u, neither 0 nor 1",
                        network->bidirectional);
    if (network->dtype > GPUSERVE_DTYPE_INT8)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "dtype is %u; an LSTM supports float32 and float16", network->dtype);
    return check_weights(network, error);
}

/* ------------------------------------------------------------------------------------ creating */

/* Adds both biases of each direction, in a block that the caller frees. */
static gpuserve_status add_biases(struct gpuserve_lstm_source *source,
                                  const gpuserve_lstm_weights *weights, float **memory,
                                  gpuserve_error *error)
{
    const size_t n = 4 * (size_t)source->hidden_size;

    *memory = gsv_alloc_array((size_t)source->n_directions * n, sizeof(float));
    if (!*memory)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for biases, %zu floats",
                        (size_t)source->n_directions * n);
    for (int32_t d = 0; d < source->n_directions; d++) {
        float *sum = *memory + (size_t)d * n;

        for (size_t i = 0; i < n; i++)
            sum[i] = (weights[d].bias_ih ? weights[d].bias_ih[i] : 0.0f) +
                     (weights[d].bias_hh ? weights[d].bias_hh[i] : 0.0f);
        source->weight_ih[d] = weights[d].weight_ih;
        source->weight_hh[d] = weights[d].weight_hh;
        source->bias[d] = sum;
    }
    return GPUSERVE_OK;
}

static gpuserve_status create_layer(gpuserve_lstm *lstm, int32_t number,
                                    const gpuserve_lstm_network *network, gpuserve_error *error)
{
    const gpuserve_compute *c = lstm->compute;
    struct gsv_lstm_layer *layer = &lstm->layers[number];
    struct gpuserve_lstm_source source = {
        .struct_size = sizeof(source),
        .dtype = network->dtype == GPUSERVE_DTYPE_DEFAULT ? GPUSERVE_DTYPE_FLOAT32 : network->dtype,
        .input_size = number == 0 ? lstm->input_size : lstm->hidden_size * lstm->n_directions,
        .hidden_size = lstm->hidden_size,
        .n_directions = lstm->n_directions,
    };
    float *biases = NULL;
    size_t size;
    gpuserve_status st = add_biases(
        &source, network->weights + (size_t)number * (size_t)lstm->n_directions, &biases, error);

    if (st == GPUSERVE_OK)
        st = c->backend->lstm_layer_bytes(&source, &size, error);
    if (st == GPUSERVE_OK)
        st = c->backend->memory_alloc(c->device, &layer->memory, size, error);
    if (st == GPUSERVE_OK)
        st = c->backend->lstm_layer_create(c->device, &layer->layer, layer->memory, &source, error);
    free(biases);
    return st;
}

static gpuserve_status create(gpuserve_lstm **out, gpuserve_compute *compute,
                              const gpuserve_lstm_network *network, gpuserve_error *error)
{
    gpuserve_lstm *lstm =
        gsv_alloc_array(1, sizeof(*lstm) + (size_t)network->n_layers * sizeof(lstm->layers[0]));
    gpuserve_status st = GPUSERVE_OK;

    if (!lstm)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an LSTM's handle");
    lstm->compute = compute;
    lstm->input_size = network->input_size;
    lstm->hidden_size = network->hidden_size;
    lstm->n_layers = network->n_layers;
    lstm->n_directions = directions_of(network);
    pthread_mutex_lock(&compute->lock);
    for (int32_t i = 0; st == GPUSERVE_OK && i < lstm->n_layers; i++) {
        st = create_layer(lstm, i, network, error);
        if (st != GPUSERVE_OK)
            gsv_fail_in(error, st, "layer %" PRId32, i);
    }
    pthread_mutex_unlock(&compute->lock);
    if (st != GPUSERVE_OK)
        gpuserve_lstm_free(&lstm);
    *out = lstm;
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_lstm_create(gpuserve_lstm **lstm, gpuserve_compute *compute,
                                                  const gpuserve_lstm_network *given,
                                                  gpuserve_error *error)
{
    gpuserve_lstm_network network;
    gpuserve_status st;

    if (!lstm)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`lstm` is NULL");
    *lstm = NULL;
    st = gsv_compute_check(compute, error);
    if (st == GPUSERVE_OK && !given)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`network` is NULL");
    if (st == GPUSERVE_OK)
        st = gsv_read_struct(&network, sizeof(network), given, "gpuserve_lstm_network", error);
    if (st != GPUSERVE_OK)
        return st;
    if (network.n_layers == 0)
        network.n_layers = 1;
    st = check_network(&network, error);
    return st == GPUSERVE_OK ? create(lstm, compute, &network, error) : st;
}

GPUSERVE_API void gpuserve_lstm_free(gpuserve_lstm **lstm)
{
    gpuserve_lstm *ended = lstm ? *lstm : NULL;

    if (!ended)
        return;
    *lstm = NULL;
    /* A forked child must not free: the device memory belongs to the parent. */
    if (gsv_compute_check(ended->compute, NULL) != GPUSERVE_OK)
        return;
    pthread_mutex_lock(&ended->compute->lock);
    for (int32_t i = 0; i < ended->n_layers; i++) {
        const struct gsv_lstm_layer *layer = &ended->layers[i];

        ended->compute->backend->lstm_layer_destroy(&ended->layers[i].layer);
        ended->compute->backend->memory_free(ended->compute->device, layer->memory);
    }
    pthread_mutex_unlock(&ended->compute->lock);
    free(ended);
}
