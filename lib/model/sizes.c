/*
 * sizes.c - computes the device memory of a net and of a gsv_exec before any allocation.
 *
 * gsv_net_load() and gsv_exec_create() each make one allocation of exactly the size computed here.
 */
#include "lib/model/weights/weights.h"

#include "lib/base/alloc.h"
#include "lib/model/encoder/rows.h"

#include <string.h>

/* The packed weights of a layer, counted at its first item. */
static size_t recurrent_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                              const struct gsv_weight *item)
{
    const int32_t layer = gsv_recurrent_layer(spec, (size_t)(item - spec->items));
    const struct gpuserve_lstm_source source = gsv_recurrent_source(&spec->config, layer);
    size_t size = 0;

    if (item->which == 0 && backend->lstm_layer_bytes(&source, &size, NULL) != GPUSERVE_OK)
        return 0; /* float32 has a size on every backend */
    return gsv_round_up(size, GSV_ITEM_ALIGNMENT);
}

size_t gsv_weight_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                        const struct gsv_weight *item, uint32_t dtype)
{
    const size_t elements = gsv_weight_elements(spec, item);

    switch (item->kind) {
    case GSV_ITEM_RECURRENT:
        return recurrent_bytes(spec, backend, item);
    case GSV_ITEM_TABLE:
    case GSV_ITEM_SUM_TABLE:
    case GSV_ITEM_MAPPED_TABLE:
        return gsv_round_up(elements * backend->table_size(dtype), GSV_ITEM_ALIGNMENT);
    case GSV_ITEM_POSITIONS:
        return gsv_round_up(elements * backend->activation_size(dtype), GSV_ITEM_ALIGNMENT);
    case GSV_ITEM_LINEAR:
    case GSV_ITEM_LINEAR_PLAIN:
    case GSV_ITEM_LINEAR_EXACT:
        return gsv_round_up(
            backend->linear_bytes(item->n, item->k, gsv_weight_dtype(item, backend, dtype)),
            GSV_ITEM_ALIGNMENT);
    default:
        return gsv_round_up(elements * sizeof(float), GSV_ITEM_ALIGNMENT);
    }
}

uint64_t gsv_kept_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend)
{
    const uint32_t dtype = gsv_between_products(backend, GPUSERVE_DTYPE_INT8);
    uint64_t total = 0, largest = 0;

    for (size_t i = 0; i < spec->n_items; i++) {
        const struct gsv_weight *item = &spec->items[i];
        const uint64_t bytes = gsv_weight_bytes(spec, backend, item, dtype);

        if (item->kind != GSV_ITEM_LINEAR)
            continue;
        total = gsv_add_bytes(total, bytes);
        largest = bytes > largest ? bytes : largest;
    }
    total = total / 2 / GSV_ITEM_ALIGNMENT * GSV_ITEM_ALIGNMENT;
    return total > largest ? total : largest;
}

uint64_t gsv_net_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                       uint32_t dtype)
{
    uint64_t total = 0;

    if (backend->activation_size(dtype) == 0)
        return GSV_TOO_MANY_BYTES;
    for (size_t i = 0; i < spec->n_items; i++)
        total = gsv_add_bytes(total, gsv_weight_bytes(spec, backend, &spec->items[i], dtype));
    if (dtype == GPUSERVE_DTYPE_INT8)
        total = gsv_add_bytes(total, gsv_kept_bytes(spec, backend));
    return total;
}

uint64_t gsv_product_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                           uint32_t dtype)
{
    uint64_t total = 0;

    for (size_t i = 0; i < spec->n_items; i++)
        if (spec->items[i].kind == GSV_ITEM_LINEAR)
            total = gsv_add_bytes(total, gsv_weight_bytes(spec, backend, &spec->items[i], dtype));
    return total;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The maximum number of columns among the layers of heads from `first` on, in steps of two, without
 * the last layers, whose outputs are scores. */
static int32_t inner_columns(const struct gsv_spec *spec, int32_t first)
{
    int32_t widest = 0;

    for (size_t i = 0; i < spec->heads.n; i++)
        for (int32_t layer = first; layer < spec->heads.at[i].n_layers - 1; layer += 2)
            widest = larger(widest, spec->items[spec->heads.at[i].first_item + layer].n);
    return widest;
}

/* The maximum number of labels of a head. */
static int32_t label_columns(const struct gsv_spec *spec)
{
    int32_t widest = 0;

    for (size_t i = 0; i < spec->heads.n; i++)
        widest = larger(widest, (int32_t)spec->heads.at[i].n_labels);
    return widest;
}

/* The maximum number of columns among pooled vectors, Dense outputs, inner layers of heads and
 * scores of the model's own classifier. */
static int32_t pooled_columns(const struct gsv_spec *spec)
{
    int32_t widest = larger(spec->config.hidden_size, gsv_pooled_width(spec));

    for (int32_t i = spec->first_dense; i < spec->first_classifier + spec->n_classifier; i++)
        widest = larger(widest, spec->items[i].n);
    return larger(widest, inner_columns(spec, 0));
}

/* Columns of the first buffer of pooled rows, which also holds sparse rows. */
static int32_t first_pooled_columns(const struct gsv_spec *spec)
{
    const int32_t rows = gsv_has_parts(spec) ? 2 : 1; /* parts left out have rows too */

    return larger(rows * pooled_columns(spec), gsv_has_decoder(spec) ? spec->config.vocab_size : 0);
}

/* Round up to the alignment. */
static uint64_t align(uint64_t end)
{
    const uint64_t mask = GSV_ITEM_ALIGNMENT - 1, last = gsv_add_bytes(end, mask);

    return last == GSV_TOO_MANY_BYTES ? last : last & ~mask;
}

/* Place rows * columns elements of `size` bytes at *place = *total, and advance *total. */
static void add_rows(uint64_t *total, uint64_t *size_bytes, int32_t rows, int32_t columns,
                     size_t size)
{
    const uint64_t n = (uint64_t)rows * (uint64_t)columns; /* no overflow: both are below 2^31 */

    *size_bytes = *total;
    *total = align(gsv_add_bytes(*total, gsv_mul_bytes(n, size)));
}

/* The list of sequences, their last states, and the scratch memory of the largest layer. */
static void add_recurrent(uint64_t *total, const struct gsv_spec *spec,
                          const struct gpuserve_backend *backend,
                          const struct gsv_exec_options *options, struct gsv_exec_layout *layout)
{
    const struct gsv_recurrent *recurrent = &spec->config.recurrent;
    uint64_t bytes = 0;

    if (!gsv_is_recurrent(&spec->config))
        return;
    add_rows(total, &layout->sequences, options->max_sequences, 1,
             sizeof(struct gpuserve_lstm_sequence));
    for (int i = 0; i < 2; i++)
        add_rows(total, &layout->states[i], options->max_sequences,
                 recurrent->directions * recurrent->units, sizeof(float));
    for (int32_t i = 0; i < recurrent->n_layers; i++) {
        const struct gpuserve_lstm_source source = gsv_recurrent_source(&spec->config, i);
        const size_t size =
            backend->lstm_max_bytes(&source, options->max_tokens, options->max_sequences);

        bytes = size > bytes ? size : bytes;
    }
    layout->scratch = *total;
    *total = align(gsv_add_bytes(*total, bytes));
}

/* The texts, rows and queries of MaxSim. */
static void add_late(uint64_t *total, const struct gsv_spec *spec,
                     const struct gsv_exec_options *options, struct gsv_exec_layout *layout)
{
    const int32_t is_late = spec->facts.is_late;

    add_rows(total, &layout->late_texts, options->max_sequences, is_late,
             sizeof(struct gpuserve_max_sim_text));
    add_rows(total, &layout->late_rows, options->max_tokens, is_late, sizeof(int32_t));
    add_rows(total, &layout->queries, GPUSERVE_MAX_QUERY_VECTORS,
             is_late ? spec->facts.token_dim : 0, sizeof(float));
}

bool gsv_exec_layout(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                     const struct gsv_exec_options *options, struct gsv_exec_layout *layout)
{
    const struct gsv_config *config = &spec->config;
    const size_t size = backend->activation_size(options->dtype);
    const int32_t kernel = config->convolution.kernel;
    uint64_t total = 0;

    memset(layout, 0, sizeof(*layout));
    layout->wide_columns =
        larger(larger(gsv_qkv_columns(config), config->hidden_size),
               config->intermediate_size * (config->is_gated || config->adapters.n > 0 ? 2 : 1));
    layout->wide_columns =
        larger(layout->wide_columns, config->embedding_size * (config->is_trigram ? 3 : 1));
    layout->wide_columns = larger(layout->wide_columns, config->experts.n);
    if (kernel > 0)
        layout->wide_columns = larger(layout->wide_columns, 2 * config->hidden_size);
    layout->context_columns = larger(config->hidden_size, gsv_context_columns(config));
    if (gsv_is_recurrent(config))
        layout->context_columns = larger(layout->context_columns, config->embedding_size);
    if (gsv_has_decoder(spec))
        layout->context_columns =
            larger(layout->context_columns, spec->items[spec->first_decoder].k);
    if (spec->facts.labels_tokens || config->pools_logits)
        layout->wide_columns = larger(layout->wide_columns, (int32_t)spec->facts.n_labels);
    if (gsv_has_decoder(spec))
        layout->wide_columns = larger(layout->wide_columns, GSV_DECODER_ROWS);
    if (spec->late_file)
        layout->context_columns = larger(layout->context_columns, spec->facts.token_dim);
    for (int32_t i = 0; i < spec->token_steps.n; i++) { /* they alternate, context first */
        int32_t *columns = i % 2 == 0 ? &layout->context_columns : &layout->wide_columns;

        *columns = larger(*columns, spec->token_steps.at[i].columns);
    }
    layout->pooled_columns = pooled_columns(spec);
    if (size == 0 || options->max_tokens < 1 || options->max_sequences < 1)
        return false;
    add_rows(&total, &layout->hidden, options->max_tokens + (kernel > 0 ? 1 : 0),
             config->hidden_size, size);
    add_rows(&total, &layout->context, options->max_tokens, layout->context_columns, size);
    add_rows(&total, &layout->wide, options->max_tokens, layout->wide_columns, size);
    add_rows(&total, &layout->pooled[0], options->max_sequences, first_pooled_columns(spec),
             sizeof(float));
    add_rows(&total, &layout->pooled[1], options->max_sequences, layout->pooled_columns,
             sizeof(float));
    add_rows(&total, &layout->inner, options->max_sequences, inner_columns(spec, 1), sizeof(float));
    layout->scores = total;
    total = align(gsv_add_bytes(
        total,
        gsv_mul_bytes(gsv_score_floats(spec, UINT32_MAX, options->max_sequences), sizeof(float))));
    add_rows(&total, &layout->mix, spec->mix >= 0 ? options->max_tokens : 0, config->hidden_size,
             size);
    add_rows(&total, &layout->parts, options->max_sequences, gsv_has_parts(spec) ? 2 : 0,
             sizeof(int32_t));
    add_rows(&total, &layout->low, options->max_tokens,
             larger(config->adapters.rank, config->experts.n), size);
    add_rows(&total, &layout->weights, options->max_tokens, config->experts.n, sizeof(float));
    add_rows(&total, &layout->sum, options->max_tokens,
             config->experts.n > 0 ? config->hidden_size : 0, size);
    add_rows(&total, &layout->convolved, options->max_tokens, kernel > 0 ? config->hidden_size : 0,
             size);
    add_rows(&total, &layout->neighbours, options->max_tokens, gsv_neighbours_per_token(config),
             sizeof(int32_t));
    add_rows(&total, &layout->narrow, options->max_tokens, config->bottleneck.width, size);
    add_rows(&total, &layout->encoded, options->max_tokens,
             config->n_decoder_layers > 0 ? config->hidden_size : 0, size);
    add_recurrent(&total, spec, backend, options, layout);
    add_late(&total, spec, options, layout);
    add_rows(&total, &layout->ranges, 2, spec->facts.dim, sizeof(float));
    layout->total_bytes = total;
    return total < SIZE_MAX;
}

struct gsv_activations gsv_map_activations(const struct gsv_exec_layout *layout, char *memory,
                                           int32_t max_tokens)
{
    return (struct gsv_activations){
        .hidden = memory + layout->hidden,
        .context = memory + layout->context,
        .wide = memory + layout->wide,
        .low = memory + layout->low,
        .weights = (float *)(void *)(memory + layout->weights),
        .sum = memory + layout->sum,
        .convolved = memory + layout->convolved,
        .neighbours = (const int32_t *)(void *)(memory + layout->neighbours),
        .neighbours_ld = max_tokens,
        .mix = memory + layout->mix,
        .narrow = memory + layout->narrow,
        .encoded = memory + layout->encoded,
    };
}

struct gpuserve_stream_options gsv_stream_options(const struct gsv_spec *spec,
                                                  const struct gpuserve_backend *backend,
                                                  const struct gsv_exec_options *options,
                                                  const struct gsv_exec_layout *layout)
{
    const int32_t labels = spec->facts.labels_tokens ? (int32_t)spec->facts.n_labels : 0;
    const size_t tokens =
        (size_t)options->max_tokens *
        (size_t)larger(larger(spec->config.hidden_size, labels), spec->facts.token_dim) *
        backend->activation_size(options->dtype);
    const size_t pooled =
        (size_t)options->max_sequences * (size_t)first_pooled_columns(spec) * sizeof(float);
    const size_t scores =
        gsv_score_floats(spec, UINT32_MAX, options->max_sequences) * sizeof(float);
    const size_t texts = pooled > scores ? pooled : scores;

    return (struct gpuserve_stream_options){
        .struct_size = sizeof(struct gpuserve_stream_options),
        .dtype = options->dtype,
        .n_threads = options->n_threads,
        .max_tokens = options->max_tokens,
        .max_sequences = options->max_sequences,
        .max_seqlen = options->max_seqlen,
        .max_columns = larger(larger(layout->wide_columns, layout->context_columns),
                              larger(layout->pooled_columns, label_columns(spec))),
        .hidden_size = spec->config.hidden_size,
        .n_heads = spec->config.n_heads,
        .head_size = spec->config.head_size,
        .position_rows = spec->config.relative.kind == GSV_RELATIVE_DISENTANGLED
                             ? 2 * spec->config.relative.span
                             : 0,
        .flags = options->deterministic ? GPUSERVE_STREAM_DETERMINISTIC : 0,
        .output_bytes = tokens > texts ? tokens : texts,
    };
}

void gsv_exec_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                    const struct gsv_exec_options *options, uint64_t *activations, uint64_t *stream)
{
    struct gsv_exec_layout layout;
    struct gpuserve_stream_options stream_options;

    *activations = *stream = GSV_TOO_MANY_BYTES;
    if (!gsv_exec_layout(spec, backend, options, &layout))
        return;
    stream_options = gsv_stream_options(spec, backend, options, &layout);
    *activations = layout.total_bytes;
    *stream = backend->stream_bytes(&stream_options);
}
