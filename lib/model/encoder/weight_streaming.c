/*
 * weight_streaming.c - weights of layers that are in host memory and visit the device in each
 * batch.
 *
 *   device memory   all other items | buffer 0 | buffer 1
 *   host memory     products of stored layer `first`, of the next one, ..., each on its own
 *
 * The products of streamed layer i are computed from buffer i % 2. While a layer computes, the
 * products of the next one are copied into the other buffer (double buffering): the prefetch that
 * starts its copy at the beginning of layer i also waits for that of layer i. Only products are
 * streamed, since they are nearly all of a layer; its norms, tables and adapters stay.
 */
#include "lib/model/encoder/encoder.h"
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* The number of products of a layer, and the item of each. */
static int32_t product_count(const struct gsv_spec *spec, int32_t layer)
{
    return spec->layers[layer].router < 0 ? gsv_stage_count(spec)
                                          : GSV_STAGE_EXPAND + 2 * spec->config.experts.n;
}

static int32_t product_item(const struct gsv_spec *spec, int32_t layer, int32_t product)
{
    const struct gsv_layer *items = &spec->layers[layer];

    return items->router < 0 || product < GSV_STAGE_EXPAND
               ? gsv_stage_item(spec, layer, product)
               : items->ffn[0].in + product - GSV_STAGE_EXPAND;
}

static uint64_t product_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                              uint32_t dtype, int32_t stored)
{
    const int32_t layer = gsv_stored_layer(spec, stored);
    uint64_t bytes = 0;

    for (int32_t i = 0; i < product_count(spec, layer); i++)
        bytes = gsv_add_bytes(
            bytes,
            gsv_weight_bytes(spec, backend, &spec->items[product_item(spec, layer, i)], dtype));
    return bytes;
}

int32_t gsv_stored_layers(const struct gsv_spec *spec)
{
    return gsv_is_recurrent(&spec->config) ? 0 : spec->config.n_stored_layers;
}

struct gsv_streamed_bytes gsv_streamed_net_bytes(const struct gsv_spec *spec,
                                                 const struct gpuserve_backend *backend,
                                                 uint32_t dtype, int32_t n_streamed)
{
    const int32_t n = gsv_stored_layers(spec);
    struct gsv_streamed_bytes bytes = { gsv_net_bytes(spec, backend, dtype), 0 };
    uint64_t largest = 0;

    if (bytes.device == GSV_TOO_MANY_BYTES)
        return bytes;
    for (int32_t i = n - n_streamed; i < n; i++) {
        const uint64_t layer = product_bytes(spec, backend, dtype, i);

        bytes.host += layer; /* at most bytes.device */
        largest = layer > largest ? layer : largest;
    }
    bytes.device = bytes.device - bytes.host + 2 * largest;
    return bytes;
}

/* One allocation for each layer: pinning many gigabytes in one call takes longer than a device that
 * answers may take. */
static gpuserve_status alloc_layer(struct gsv_net *net, struct gsv_streamed_layer *layer,
                                   gpuserve_error *error)
{
    struct gsv_weight_streaming *streaming = &net->streaming;
    void *image;
    gpuserve_status st =
        net->backend->host_alloc(net->device, &image, layer->size, streaming->kind, error);

    if (st == GPUSERVE_E_UNSUPPORTED) { /* a host backend */
        streaming->kind = GPUSERVE_HOST_PAGEABLE;
        st = net->backend->host_alloc(net->device, &image, layer->size, streaming->kind, error);
    }
    if (st == GPUSERVE_OK)
        layer->image = image;
    return st;
}

gpuserve_status gsv_streaming_init(struct gsv_net *net, int32_t n_streamed, gpuserve_error *error)
{
    const struct gsv_spec *spec = net->spec;
    struct gsv_weight_streaming *streaming = &net->streaming;

    streaming->first = gsv_stored_layers(spec) - n_streamed;
    streaming->kind = GPUSERVE_HOST_PINNED;
    streaming->layers = gsv_alloc_array((size_t)n_streamed, sizeof(*streaming->layers));
    streaming->layer_of = gsv_alloc_array(spec->n_items, sizeof(*streaming->layer_of));
    if (!streaming->layers || !streaming->layer_of)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    for (size_t i = 0; i < spec->n_items; i++)
        streaming->layer_of[i] = -1;
    for (int32_t i = 0; i < n_streamed; i++) {
        const int32_t layer = gsv_stored_layer(spec, streaming->first + i);
        struct gsv_streamed_layer *at = &streaming->layers[i];
        gpuserve_status st;

        at->size = (size_t)product_bytes(spec, net->backend, net->dtype, streaming->first + i);
        streaming->buffer_bytes =
            at->size > streaming->buffer_bytes ? at->size : streaming->buffer_bytes;
        for (int32_t p = 0; p < product_count(spec, layer); p++)
            streaming->layer_of[product_item(spec, layer, p)] = i;
        st = alloc_layer(net, at, error);
        if (st != GPUSERVE_OK)
            return gsv_fail_in(error, st, "streamed layer %d of %d", i + 1, n_streamed);
        streaming->n++;
    }
    return GPUSERVE_OK;
}

void gsv_streaming_reset(struct gsv_net *net)
{
    struct gsv_weight_streaming *streaming = &net->streaming;

    for (int32_t i = 0; i < streaming->n; i++)
        net->backend->host_free(net->device, streaming->layers[i].image, streaming->kind);
    free(streaming->layers);
    free(streaming->layer_of);
    memset(streaming, 0, sizeof(*streaming));
}

static char *buffer_of(const struct gsv_net *net, int32_t streamed)
{
    const struct gsv_weight_streaming *streaming = &net->streaming;

    return net->memory + net->bytes - (size_t)(2 - streamed % 2) * streaming->buffer_bytes;
}

void gsv_streaming_set_addresses(struct gsv_net *net)
{
    const struct gsv_spec *spec = net->spec;

    for (int32_t i = 0; i < net->streaming.n; i++) {
        const int32_t layer = gsv_stored_layer(spec, net->streaming.first + i);
        char *at = buffer_of(net, i);

        for (int32_t p = 0; p < product_count(spec, layer); p++) {
            const int32_t item = product_item(spec, layer, p);

            net->addresses[item] = at;
            at += gsv_weight_bytes(spec, net->backend, &spec->items[item], net->dtype);
        }
    }
}

gpuserve_status gsv_streaming_save(const struct gsv_net *net, int32_t streamed,
                                   gpuserve_error *error)
{
    const struct gsv_streamed_layer *layer = &net->streaming.layers[streamed];

    return net->backend->memory_read(net->device, layer->image, buffer_of(net, streamed),
                                     layer->size, error);
}

gpuserve_status gsv_streaming_prefetch(const struct gsv_net *net, struct gpuserve_stream *stream,
                                       int32_t streamed)
{
    struct gpuserve_op_prefetch op = { 0 };

    if (streamed < net->streaming.n) {
        op.to = buffer_of(net, streamed);
        op.from = net->streaming.layers[streamed].image;
        op.size = net->streaming.layers[streamed].size;
    }
    return net->backend->prefetch(stream, &op);
}
