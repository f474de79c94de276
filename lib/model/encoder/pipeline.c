/*
 * pipeline.c - the layers of a model on several devices, one range after the other (pipeline
 * parallelism): which items a device has, and the way of a batch.
 *
 *   first device   embeddings, its layers   --rows--> host memory --rows-->
 *   next device    its layers               --rows--> host memory --rows-->
 *   last device    its layers, and what follows the encoder
 *
 * Each device has a gsv_net with its items, and in each gsv_exec activations and a stream. The net
 * and the gsv_exec of the last device own those of the others (`before`). Rows cross a border as
 * the bytes that they are, and the same kernels read them: the bits are those of one device.
 *
 * Threading: the thread of a gsv_exec takes its batch from device to device and waits for each. So
 * several gsv_exec compute at a time, one on each device; that is the pipeline.
 */
#include "lib/model/encoder/rows.h"
#include "lib/model/encoder/pass.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>

/* -------------------------------------------------------------------------------------- items */

int32_t gsv_pipeline_layers(const struct gsv_spec *spec)
{
    return gsv_is_recurrent(&spec->config) ? 0 : spec->config.n_layers;
}

/* The last layer with the weights of this one. */
static int32_t last_sharing(const struct gsv_spec *spec, int32_t layer)
{
    while (layer + 1 < spec->config.n_layers &&
           spec->layers[layer + 1].qkv == spec->layers[layer].qkv)
        layer++;
    return layer;
}

static bool is_of_norm(const struct gsv_norm_items *norm, int32_t item)
{
    return item == norm->gamma || item == norm->beta;
}

/* The items of a layer that the layer before it reads: its first norm, the way into its bottleneck.
 */
static bool is_entrance(const struct gsv_layer *layer, int32_t item)
{
    return is_of_norm(&layer->before_attention, item) || item == layer->bottleneck_in.linear ||
           is_of_norm(&layer->bottleneck_in.norm, item) ||
           item == layer->bottleneck_attention.linear ||
           is_of_norm(&layer->bottleneck_attention.norm, item);
}

/* Items outside of the layers that each layer reads. */
static bool is_of_all_layers(const struct gsv_spec *spec, int32_t item)
{
    return item == spec->relative || item == spec->position_index || item == spec->rotary[0] ||
           item == spec->rotary[1] || item == spec->mix;
}

/* The embeddings of a decoder, which the last layer of the encoder reads. */
static bool is_of_decoder_entrance(const struct gsv_spec *spec, int32_t item)
{
    return item == spec->word || item == spec->decoder_position ||
           is_of_norm(&spec->decoder_norm, item);
}

static bool enters_decoder(const struct gsv_config *config, struct gsv_layer_range range)
{
    const int32_t last = config->n_layers - config->n_decoder_layers - 1;

    return config->n_decoder_layers > 0 && range.first <= last && last < range.end;
}

static bool is_whole(const struct gsv_spec *spec, struct gsv_layer_range range)
{
    return range.first == 0 && range.end == spec->config.n_layers;
}

bool gsv_range_has(const struct gsv_spec *spec, struct gsv_layer_range range, size_t index)
{
    const int32_t layer = spec->items[index].layer, item = (int32_t)index;

    if (is_whole(spec, range))
        return true;
    if (layer >= 0)
        return (layer < range.end && last_sharing(spec, layer) >= range.first) ||
               (range.end < spec->config.n_layers && is_entrance(&spec->layers[range.end], item));
    if (is_of_all_layers(spec, item) ||
        (enters_decoder(&spec->config, range) && is_of_decoder_entrance(spec, item)))
        return true;
    return item < spec->layers[0].qkv ? range.first == 0 : range.end == spec->config.n_layers;
}

uint64_t gsv_range_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                         uint32_t dtype, struct gsv_layer_range range)
{
    uint64_t total = 0;

    if (is_whole(spec, range) || backend->activation_size(dtype) == 0)
        return gsv_net_bytes(spec, backend, dtype);
    for (size_t i = 0; i < spec->n_items; i++)
        if (gsv_range_has(spec, range, i))
            total = gsv_add_bytes(total, gsv_weight_bytes(spec, backend, &spec->items[i], dtype));
    return total;
}

/* ------------------------------------------------------------------------------------- ranges */

/* Prefix sums of the item bytes, for cost_of(): gsv_range_bytes() in constant time, or more where
 * layers share weights, which count once for each. */
struct costs {
    uint64_t all;                          /* on each device */
    uint64_t first, last;                  /* on the first and the last device */
    uint64_t decoder;                      /* on the device of the encoder's last layer */
    uint64_t layers[GSV_MAX_LAYERS + 1];   /* of the layers before this one */
    uint64_t entrance[GSV_MAX_LAYERS + 1]; /* of a device that ends before this layer */
};

static void count_costs(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                        uint32_t dtype, struct costs *costs)
{
    const int32_t n = spec->config.n_layers;
    uint64_t own[GSV_MAX_LAYERS] = { 0 };

    *costs = (struct costs){ 0 };
    for (size_t i = 0; i < spec->n_items; i++) {
        const uint64_t bytes = gsv_weight_bytes(spec, backend, &spec->items[i], dtype);
        const int32_t layer = spec->items[i].layer, item = (int32_t)i;

        for (int32_t at = layer; layer >= 0 && at <= last_sharing(spec, layer); at++) {
            own[at] += bytes;
            if (is_entrance(&spec->layers[at], item))
                costs->entrance[at] += bytes;
        }
        if (layer >= 0)
            continue;
        if (is_of_decoder_entrance(spec, item))
            costs->decoder += bytes;
        if (is_of_all_layers(spec, item))
            costs->all += bytes;
        else if (item < spec->layers[0].qkv)
            costs->first += bytes;
        else
            costs->last += bytes;
    }
    for (int32_t i = 0; i < n; i++)
        costs->layers[i + 1] = costs->layers[i] + own[i];
    costs->entrance[n] = 0;
}

static uint64_t cost_of(const struct gsv_spec *spec, const struct costs *costs,
                        struct gsv_layer_range range)
{
    const int32_t n = spec->config.n_layers;

    return costs->all + (range.first == 0 ? costs->first : 0) +
           (range.end == n ? costs->last : costs->entrance[range.end]) +
           (range.first > 0 && enters_decoder(&spec->config, range) ? costs->decoder : 0) +
           costs->layers[range.end] - costs->layers[range.first];
}

/* Give each device as many layers as fit into max_bytes and into its free bytes; false if layers
 * are left. */
static bool fill(const struct gsv_spec *spec, const struct costs *costs, const uint64_t *free_bytes,
                 uint64_t max_bytes, int32_t n, struct gsv_layer_range *ranges)
{
    const int32_t n_layers = spec->config.n_layers;
    int32_t first = 0;

    for (int32_t i = 0; i < n; i++) {
        const uint64_t limit = free_bytes && free_bytes[i] < max_bytes ? free_bytes[i] : max_bytes;
        const int32_t max_end = n_layers - (n - 1 - i); /* a layer for each device after it */
        int32_t end = i + 1 < n ? first + 1 : n_layers;

        while (end < max_end &&
               cost_of(spec, costs, (struct gsv_layer_range){ first, end + 1 }) <= limit)
            end++;
        ranges[i] = (struct gsv_layer_range){ first, end };
        if (cost_of(spec, costs, ranges[i]) > limit)
            return false;
        first = end;
    }
    return true;
}

bool gsv_pipeline_split(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                        uint32_t dtype, const uint64_t *free_bytes, int32_t n,
                        struct gsv_layer_range *ranges)
{
    uint64_t low = 0, high;
    struct costs costs;

    if (n > gsv_pipeline_layers(spec))
        return false;
    count_costs(spec, backend, dtype, &costs);
    high =
        costs.all + costs.first + costs.last + costs.decoder + costs.layers[spec->config.n_layers];
    if (!fill(spec, &costs, free_bytes, high, n, ranges))
        return false;
    while (low < high) { /* the smallest bound on the bytes of a device */
        const uint64_t middle = low + (high - low) / 2;

        if (fill(spec, &costs, free_bytes, middle, n, ranges))
            high = middle;
        else
            low = middle + 1;
    }
    return fill(spec, &costs, free_bytes, high, n, ranges);
}

/* ------------------------------------------------------------------------------------ borders */

/* Rows that a layer leaves to the next one, without space between them. */
struct border_rows {
    void *at;
    int32_t columns;
};
#define MAX_BORDER_ROWS 5

/* The rows that layer `first` and those after it read. */
static int32_t list_rows(const struct gsv_spec *spec, const struct gsv_activations *at,
                         int32_t first, struct border_rows rows[MAX_BORDER_ROWS])
{
    const struct gsv_config *config = &spec->config;
    const bool is_bottleneck = gsv_is_bottleneck(spec);
    int32_t n = 0;

    rows[n++] = (struct border_rows){ at->hidden, config->hidden_size };
    if (is_bottleneck)
        rows[n++] = (struct border_rows){ at->narrow, config->bottleneck.width };
    if (is_bottleneck ? config->bottleneck.source == GSV_BOTTLENECK_SHARED
                      : !gsv_is_post_norm(spec))
        rows[n++] = (struct border_rows){ at->context, gsv_inner_size(config) };
    if (spec->mix >= 0 && first >= spec->mix_first)
        rows[n++] = (struct border_rows){ at->mix, config->hidden_size };
    if (config->n_decoder_layers > 0 && gsv_is_decoder_layer(config, first))
        rows[n++] = (struct border_rows){ at->encoded, config->hidden_size };
    return n;
}

uint64_t gsv_pipeline_host_bytes(const struct gsv_spec *spec,
                                 const struct gpuserve_backend *backend,
                                 const struct gsv_exec_options *options)
{
    return gsv_mul_bytes((uint64_t)options->max_tokens * (uint64_t)spec->config.hidden_size,
                         backend->activation_size(options->dtype));
}

static gpuserve_status alloc_border(struct gsv_exec *work, const struct gsv_exec_options *options,
                                    gpuserve_error *error)
{
    const struct gpuserve_backend *backend = work->net->backend;
    const size_t size = (size_t)gsv_pipeline_host_bytes(work->net->spec, backend, options);
    gpuserve_status st;

    work->border_device = work->net->device;
    work->border_kind = GPUSERVE_HOST_PINNED;
    st = backend->host_alloc(work->border_device, &work->border, size, work->border_kind, error);
    if (st == GPUSERVE_E_UNSUPPORTED) { /* a host backend */
        work->border_kind = GPUSERVE_HOST_PAGEABLE;
        st =
            backend->host_alloc(work->border_device, &work->border, size, work->border_kind, error);
    }
    return st;
}

gpuserve_status gsv_pipeline_create(struct gsv_exec *work, const struct gsv_exec_options *options,
                                    gpuserve_error *error)
{
    const struct gsv_net *net = work->net;
    gpuserve_status st;

    if (net->n_before == 0)
        return GPUSERVE_OK;
    work->before = gsv_alloc_array((size_t)net->n_before, sizeof(*work->before));
    if (!work->before)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    st = alloc_border(work, options, error);
    for (int32_t i = 0; i < net->n_before && st == GPUSERVE_OK; i++)
        st = gsv_exec_create(&work->before[i], net->before[i], options, error);
    return st;
}

void gsv_pipeline_reset(struct gsv_exec *work)
{
    for (int32_t i = 0; work->before && i < work->net->n_before; i++)
        gsv_exec_free(&work->before[i]);
    free(work->before);
    if (work->border)
        work->net->backend->host_free(work->border_device, work->border, work->border_kind);
}

/* One copy between the border's memory and a device. A device that fails may still hold the memory:
 * it frees it. */
static gpuserve_status copy(struct gsv_exec *work, const struct gsv_exec *stage, void *rows,
                            size_t size, uint32_t direction, gpuserve_error *error)
{
    struct gpuserve_op_transfer op = {
        .host = work->border, .device = rows, .size = size, .direction = direction
    };
    const gpuserve_status st = work->net->backend->transfer(stage->net->device, &op, error);

    if (st != GPUSERVE_OK)
        work->border_device = stage->net->device;
    return st;
}

/* Copy what the last layer of `from` left to the device of `to`. */
static gpuserve_status cross_border(struct gsv_exec *work, const struct gsv_exec *from,
                                    const struct gsv_exec *to, int32_t n_rows,
                                    gpuserve_error *error)
{
    const struct gsv_net *net = work->net;
    const size_t element = net->backend->activation_size(net->dtype);
    struct border_rows out[MAX_BORDER_ROWS], in[MAX_BORDER_ROWS];
    const int32_t first = to->net->layers.first, n = list_rows(net->spec, &from->at, first, out);
    gpuserve_status st = GPUSERVE_OK;

    (void)list_rows(net->spec, &to->at, first, in);
    for (int32_t i = 0; i < n && st == GPUSERVE_OK; i++) {
        const size_t size = (size_t)n_rows * (size_t)out[i].columns * element;

        st = copy(work, from, out[i].at, size, GPUSERVE_TRANSFER_FROM_DEVICE, error);
        if (st == GPUSERVE_OK)
            st = copy(work, to, in[i].at, size, GPUSERVE_TRANSFER_TO_DEVICE, error);
    }
    return st;
}

/* ---------------------------------------------------------------------------------------- run */

/* Equal numbers issue equal operations on the gsv_exec of a device: see program_of() in run.c. */
static uint64_t program_of(const struct gsv_activations *at)
{
    if (at->n_ranges > 1)
        return GPUSERVE_PROGRAM_ONCE;
    return at->n_ranges == 1 ? (uint64_t)(uint32_t)at->ranges[0].adapter : 0;
}

/* The layers of one device but the last; *n_rows receives the rows of the batch there. */
static gpuserve_status run_stage(struct gsv_exec *work, struct gsv_exec *stage,
                                 const struct gpuserve_host_batch *host, const struct gsv_run *run,
                                 int32_t *n_rows, gpuserve_error *error)
{
    const struct gpuserve_backend *backend = stage->net->backend;
    struct gpuserve_batch batch;
    int32_t replayed = 0;
    gpuserve_status st = gsv_find_adapter_ranges(&stage->at, host, run, error);

    if (st == GPUSERVE_OK && stage->neighbours)
        st = gsv_write_neighbours(stage->net, stage->max_tokens, host, stage->neighbours,
                                  stage->memory + stage->layout.neighbours, error);
    if (st == GPUSERVE_OK)
        st = backend->batch_begin(stage->stream, program_of(&stage->at), host, &batch, &replayed,
                                  error);
    if (st != GPUSERVE_OK)
        return st;
    *n_rows = batch.n_rows;
    if (!replayed) {
        st = gsv_encode(stage->net, stage->stream, &batch, &stage->at);
        if (st != GPUSERVE_OK)
            return gsv_abandon_batch(backend, stage->stream, st, error);
    }
    st = backend->batch_end(stage->stream, work->border, stage->at.hidden, 0, error);
    return st == GPUSERVE_OK ? backend->stream_wait(stage->stream, error) : st;
}

gpuserve_status gsv_pipeline_encode(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                                    const struct gsv_run *run, gpuserve_error *error)
{
    const int32_t n = work->net->n_before;
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0; i < n && st == GPUSERVE_OK; i++) {
        int32_t n_rows = 0;

        st = run_stage(work, work->before[i], host, run, &n_rows, error);
        if (st == GPUSERVE_OK)
            st = cross_border(work, work->before[i], i + 1 < n ? work->before[i + 1] : work, n_rows,
                              error);
    }
    return st;
}
