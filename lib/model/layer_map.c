/*
 * layer_map.c - finds the weights of the layers: attention, feed-forward networks, bottlenecks,
 * cross-attention.
 */
#include "lib/model/weight_map.h"

#include "lib/model/encoder/encoder.h"
#include "lib/model/weights/adapters.h"

#include <stdio.h>

/* A linear of a layer, and its adapters. */
static gpuserve_status add_linear(const struct gsv_collector *c, const char *name,
                                  enum gsv_presence bias, int32_t rows, int32_t cols,
                                  int32_t activation)
{
    const gpuserve_status st =
        gsv_add_linear(c, GSV_ITEM_LINEAR, name, bias, rows, cols, activation);

    return st == GPUSERVE_OK ? gsv_add_linear_adapters(c, name) : st;
}

static gpuserve_status add_parts(const struct gsv_collector *c,
                                 const struct gsv_linear_parts *parts, int32_t cols)
{
    const gpuserve_status st = gsv_add_parts(c, GSV_ITEM_LINEAR, parts, cols, GPUSERVE_ACT_NONE);

    return st == GPUSERVE_OK ? gsv_adapter_files_add(c) : st;
}

/* DeBERTa's query, key and value alternate by head in one tensor; only query and value have a
 * bias. */
static gpuserve_status add_interleaved(const struct gsv_collector *c)
{
    const struct gsv_config *config = &c->spec->config;
    const int32_t hidden = config->hidden_size;
    struct gsv_weight *item = gsv_add_item(c->spec, GSV_ITEM_LINEAR, 3 * hidden, hidden);
    gpuserve_status st = gsv_find_tensor(c, &item->weight[0], c->spec->names->qkv, ".weight", NULL,
                                         3 * hidden, hidden, GSV_REQUIRED);

    item->interleaved = true;
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &item->bias[0], "attention.self.q_bias", "", NULL, 0, hidden,
                             GSV_REQUIRED);
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &item->bias[2], "attention.self.v_bias", "", NULL, 0, hidden,
                             GSV_REQUIRED);
    return st;
}

static gpuserve_status add_qkv(const struct gsv_collector *c)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t q = gsv_context_columns(config), kv = config->n_kv_heads * config->head_size;
    const struct gsv_linear_parts parts = { { names->query, names->key, names->value },
                                            { q, kv, kv },
                                            gsv_has_own_value(config) ? 2 : 3,
                                            config->qkv_bias };

    if (!names->qkv)
        return add_parts(c, &parts, gsv_inner_size(config));
    if (config->family->interleaves_qkv)
        return add_interleaved(c);
    return add_linear(c, names->qkv, config->qkv_bias, q + 2 * kv, config->hidden_size,
                      GPUSERVE_ACT_NONE);
}

/* Gate and values, in this order, from one tensor or two. */
static gpuserve_status add_gated(const struct gsv_collector *c)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t wide = config->intermediate_size;
    const struct gsv_linear_parts parts = {
        { names->gate, names->values }, { wide, wide }, 2, config->ffn_in_bias
    };
    struct gsv_weight *item;
    gpuserve_status st;

    if (names->gate)
        return add_parts(c, &parts, config->hidden_size);
    st = gsv_add_linear(c, GSV_ITEM_LINEAR, names->ffn_in, config->ffn_in_bias, 2 * wide,
                        config->hidden_size, GPUSERVE_ACT_NONE);
    if (st != GPUSERVE_OK)
        return st;
    if (!names->values_first)
        return gsv_adapter_files_add(c);
    item = &c->spec->items[c->spec->n_items - 1];
    item->n_parts = 2;
    item->rows[0] = item->rows[1] = wide;
    item->weight[1] = gsv_tensor_rows(&item->weight[0], 0, wide);
    item->weight[0] = gsv_tensor_rows(&item->weight[0], wide, wide);
    if (item->bias[0].count) {
        item->bias[1] = gsv_tensor_rows(&item->bias[0], 0, wide);
        item->bias[0] = gsv_tensor_rows(&item->bias[0], wide, wide);
    }
    return gsv_adapter_files_add(c);
}

/* Vectors of positions, projected like the keys (or queries) of this layer. */
static gpuserve_status add_positions(const struct gsv_collector *c, const char *name, bool has_bias,
                                     int32_t *index)
{
    const struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_collector encoder = { c->spec, c->from, spec->prefix, c->error };
    const int32_t hidden = config->hidden_size;
    struct gsv_weight *item;
    gpuserve_status st;

    *index = (int32_t)spec->n_items;
    item = gsv_add_item(c->spec, GSV_ITEM_POSITIONS, 2 * config->relative.span, hidden);
    st = gsv_find_tensor(&encoder, &item->weight[0], spec->names->relative, ".weight", NULL,
                         item->n, hidden, GSV_REQUIRED);
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &item->weight[1], name, ".weight", NULL,
                             gsv_context_columns(config), hidden, GSV_REQUIRED);
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &item->bias[1], name, ".bias", NULL, 0, gsv_context_columns(config),
                             has_bias ? GSV_REQUIRED : GSV_ABSENT);
    if (st != GPUSERVE_OK || !config->relative.norm)
        return st;
    st = gsv_find_tensor(&encoder, &item->weight[2], "encoder.LayerNorm", ".weight", NULL, 0,
                         hidden, GSV_REQUIRED);
    return st == GPUSERVE_OK ? gsv_find_tensor(&encoder, &item->bias[2], "encoder.LayerNorm",
                                               ".bias", NULL, 0, hidden, GSV_REQUIRED)
                             : st;
}

static gpuserve_status add_layer_positions(const struct gsv_collector *c, struct gsv_layer *layer)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_relative *relative = &config->relative;
    const bool first = config->family->interleaves_qkv; /* DeBERTa v1 */
    const char *key = first                          ? "pos_proj"
                      : relative->shares_projections ? "key_proj"
                                                     : "pos_key_proj";
    const char *query = first                          ? "pos_q_proj"
                        : relative->shares_projections ? "query_proj"
                                                       : "pos_query_proj";
    char name[GSV_TENSOR_NAME_BYTES];
    gpuserve_status st = GPUSERVE_OK;

    layer->relative = c->spec->relative;
    layer->position_key = layer->position_query = -1;
    if (relative->kind == GSV_RELATIVE_BUCKETS && relative->by_layer)
        return gsv_add_table(c, GSV_ITEM_RELATIVE, c->spec->names->relative, relative->n_buckets,
                             config->n_heads, &layer->relative);
    if (relative->content_to_position) {
        snprintf(name, sizeof(name), "attention.self.%s", key);
        st = add_positions(c, name, !first, &layer->position_key);
    }
    if (relative->position_to_content && st == GPUSERVE_OK) {
        snprintf(name, sizeof(name), "attention.self.%s", query);
        st = add_positions(c, name, true, &layer->position_query);
    }
    return st;
}

/* Norms of query and key: of each head, or over all heads. */
static gpuserve_status add_head_norms(const struct gsv_collector *c, struct gsv_layer *layer)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const bool by_head = names->query_norm && !names->norms_all_heads;
    const enum gsv_presence presence = by_head ? GSV_REQUIRED : GSV_ABSENT;
    gpuserve_status st = gsv_add_norm(c, names->norms_all_heads ? names->query_norm : NULL,
                                      gsv_context_columns(config), &layer->all_query_heads);

    if (st == GPUSERVE_OK)
        st = gsv_add_norm(c, names->norms_all_heads ? names->key_norm : NULL,
                          config->n_kv_heads * config->head_size, &layer->all_key_heads);
    if (st == GPUSERVE_OK)
        st = gsv_add_vector(c, names->query_norm, ".weight", NULL, config->head_size, presence,
                            &layer->query_gamma);
    if (st == GPUSERVE_OK)
        st = gsv_add_vector(c, names->key_norm, ".weight", NULL, config->head_size, presence,
                            &layer->key_gamma);
    for (int32_t i = 0; i < 2 && st == GPUSERVE_OK; i++) {
        const int32_t gamma = i == 0 ? layer->query_gamma : layer->key_gamma;

        if (gamma >= 0)
            c->spec->items[gamma].plus_one =
                config->family->gamma_plus_one && !config->includes_one;
    }
    return st;
}

static gpuserve_status add_attention(const struct gsv_collector *c, struct gsv_layer *layer,
                                     bool has_norm)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t hidden = gsv_inner_size(config);
    gpuserve_status st = gsv_add_norm(c, has_norm ? names->norm_before_attention : NULL, hidden,
                                      &layer->before_attention);

    layer->qkv = (int32_t)c->spec->n_items;
    if (st == GPUSERVE_OK)
        st = add_qkv(c);
    layer->value = -1;
    if (st == GPUSERVE_OK && gsv_has_own_value(config)) {
        layer->value = (int32_t)c->spec->n_items;
        st = gsv_add_linear(c, GSV_ITEM_LINEAR_PLAIN, names->value, config->qkv_bias,
                            config->n_kv_heads * config->head_size, config->hidden_size,
                            GPUSERVE_ACT_NONE);
    }
    if (st == GPUSERVE_OK)
        st = add_head_norms(c, layer);
    if (st == GPUSERVE_OK)
        st = add_layer_positions(c, layer);
    layer->out = (int32_t)c->spec->n_items;
    if (st == GPUSERVE_OK)
        st = add_linear(c, names->out, config->out_bias, hidden, gsv_context_columns(config),
                        GPUSERVE_ACT_NONE);
    if (st == GPUSERVE_OK)
        st = gsv_add_norm(c, names->norm_after_attention, hidden, &layer->after_attention);
    return st == GPUSERVE_OK ? gsv_add_norm(c, names->norm_again, hidden, &layer->again_attention)
                             : st;
}

/* The products of one feed-forward network, or the experts. */
static gpuserve_status add_ffn_products(const struct gsv_collector *c, struct gsv_layer *layer,
                                        struct gsv_ffn *ffn, bool has_experts)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t hidden = gsv_inner_size(config), wide = config->intermediate_size;
    gpuserve_status st;

    if (has_experts)
        return gsv_add_experts(c, layer);
    ffn->in = (int32_t)c->spec->n_items;
    st = config->is_gated
             ? add_gated(c)
             : add_linear(c, names->ffn_in, config->ffn_in_bias, wide, hidden, config->activation);
    ffn->out = (int32_t)c->spec->n_items;
    return st == GPUSERVE_OK ? add_linear(c, names->ffn_out, config->ffn_out_bias, hidden, wide,
                                          GPUSERVE_ACT_NONE)
                             : st;
}

static gpuserve_status add_ffn(const struct gsv_collector *c, struct gsv_layer *layer,
                               struct gsv_ffn *ffn, bool has_experts)
{
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t hidden = gsv_inner_size(&c->spec->config);
    gpuserve_status st = gsv_add_norm(c, names->norm_before_ffn, hidden, &ffn->before);

    if (st == GPUSERVE_OK)
        st = add_ffn_products(c, layer, ffn, has_experts);
    return st == GPUSERVE_OK ? gsv_add_norm(c, names->norm_after_ffn, hidden, &ffn->after) : st;
}

/* The feed-forward networks in order; names of all but the last one have a prefix. */
static gpuserve_status add_ffns(const struct gsv_collector *layer_c, struct gsv_layer *layer,
                                bool has_experts)
{
    const struct gsv_config *config = &layer_c->spec->config;
    const int32_t last = config->n_ffns - 1;
    gpuserve_status st = GPUSERVE_OK;

    layer->router = -1;
    for (int32_t i = 0; i < last && st == GPUSERVE_OK; i++) {
        struct gsv_collector c = *layer_c;
        char prefix[GSV_TENSOR_NAME_BYTES];

        gsv_name_numbered(prefix, layer_c->prefix, layer_c->spec->names->other_ffns, i);
        c.prefix = prefix;
        st = add_ffn(&c, layer, &layer->ffn[i], false);
    }
    if (st == GPUSERVE_OK)
        st = add_ffn(layer_c, layer, &layer->ffn[last], has_experts);
    if (config->bottleneck.width > 0 && config->fixed_eps > 0.0f)
        layer->ffn[last].after.eps = config->fixed_eps;
    return st;
}

/* ---------------------------------------------------------------------------------- bottlenecks */

/* A name NULL: absent. */
static gpuserve_status add_bottleneck(const struct gsv_collector *c, const char *linear,
                                      const char *norm, int32_t rows, int32_t columns,
                                      struct gsv_bottleneck_items *items)
{
    gpuserve_status st;

    items->linear = -1;
    items->norm = GSV_NO_NORM;
    if (!linear)
        return GPUSERVE_OK;
    items->linear = (int32_t)c->spec->n_items;
    st = gsv_add_linear(c, GSV_ITEM_LINEAR_PLAIN, linear, GSV_REQUIRED, rows, columns,
                        GPUSERVE_ACT_NONE);
    return st == GPUSERVE_OK ? gsv_add_norm(c, norm, rows, &items->norm) : st;
}

static gpuserve_status add_bottlenecks(const struct gsv_collector *c, struct gsv_layer *layer)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t width = config->bottleneck.width, hidden = config->hidden_size;
    const bool used = width > 0, shared = config->bottleneck.source == GSV_BOTTLENECK_SHARED;
    gpuserve_status st =
        add_bottleneck(c, used ? names->bottleneck_in : NULL, names->norm_bottleneck_in, width,
                       hidden, &layer->bottleneck_in);

    if (st == GPUSERVE_OK)
        st = add_bottleneck(c, used && shared ? names->bottleneck_attention : NULL,
                            names->norm_bottleneck_attention, width, hidden,
                            &layer->bottleneck_attention);
    return st == GPUSERVE_OK
               ? add_bottleneck(c, used ? names->bottleneck_out : NULL, names->norm_bottleneck_out,
                                hidden, width, &layer->bottleneck_out)
               : st;
}

/* ------------------------------------------------------------------------------ cross-attention */

/* A decoder layer alone has it. The products read rows between two linears of the layer: they are
 * not INT8. */
static gpuserve_status add_cross(const struct gsv_collector *c, bool is_decoder,
                                 struct gsv_cross_items *cross)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t q = gsv_context_columns(config), kv = config->n_kv_heads * config->head_size;
    const struct gsv_linear_parts key_value = {
        { names->cross_key, names->cross_value }, { kv, kv }, 2, config->qkv_bias
    };
    gpuserve_status st;

    cross->query = cross->key_value = cross->out = -1;
    cross->after = GSV_NO_NORM;
    if (!is_decoder)
        return GPUSERVE_OK;
    cross->query = (int32_t)c->spec->n_items;
    st = gsv_add_linear(c, GSV_ITEM_LINEAR_PLAIN, names->cross_query, config->qkv_bias, q,
                        config->hidden_size, GPUSERVE_ACT_NONE);
    cross->key_value = (int32_t)c->spec->n_items;
    if (st == GPUSERVE_OK)
        st = gsv_add_parts(c, GSV_ITEM_LINEAR_PLAIN, &key_value, config->hidden_size,
                           GPUSERVE_ACT_NONE);
    cross->out = (int32_t)c->spec->n_items;
    if (st == GPUSERVE_OK)
        st = gsv_add_linear(c, GSV_ITEM_LINEAR_PLAIN, names->cross_out, config->out_bias,
                            config->hidden_size, q, GPUSERVE_ACT_NONE);
    return st == GPUSERVE_OK
               ? gsv_add_norm(c, names->norm_after_cross, config->hidden_size, &cross->after)
               : st;
}

/* Add the items of one stored layer. The decoder's layers are numbered from 0 in the file. */
static gpuserve_status add_layer(const struct gsv_collector *encoder, int32_t number,
                                 struct gsv_layer *layer)
{
    const struct gsv_config *config = &encoder->spec->config;
    const struct gsv_tensor_names *names = encoder->spec->names;
    const bool has_norm = number > 0 || !config->family->skips_first_norm;
    const bool is_decoder = gsv_is_decoder_layer(config, number);
    struct gsv_collector c = *encoder;
    char prefix[GSV_TENSOR_NAME_BYTES];
    gpuserve_status st;

    if (is_decoder)
        gsv_name_numbered(prefix, encoder->prefix, names->decoder_layer,
                          number - config->n_layers + config->n_decoder_layers);
    else
        gsv_name_layer(prefix, names, encoder->prefix, number);
    c.prefix = prefix;
    st = add_bottlenecks(&c, layer);
    if (st == GPUSERVE_OK)
        st = add_attention(&c, layer, has_norm);
    if (st == GPUSERVE_OK)
        st = add_cross(&c, is_decoder, &layer->cross);
    return st == GPUSERVE_OK ? add_ffns(&c, layer, gsv_has_experts(config, number)) : st;
}

/* Layer i has the weights of stored layer i / (n_layers / n_stored_layers), as in ALBERT. */
gpuserve_status gsv_add_layers(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const double group = (double)spec->config.n_layers / (double)spec->config.n_stored_layers;
    int32_t stored = -1;

    for (int32_t i = 0; i < spec->config.n_layers; i++) {
        const int32_t number = (int32_t)((double)i / group);
        const size_t begin = spec->n_items;
        gpuserve_status st;

        if (number == stored) {
            spec->layers[i] = spec->layers[i - 1];
            continue;
        }
        st = add_layer(c, number, &spec->layers[i]);
        stored = number;
        if (st != GPUSERVE_OK)
            return st;
        for (size_t item = begin; item < spec->n_items; item++)
            spec->items[item].layer = i;
    }
    return gsv_add_norm(c, spec->names->final_norm, spec->config.hidden_size, &spec->final_norm);
}
