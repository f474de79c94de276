/*
 * weight_map.c - finds each weight by name, checks its type and shape, and adds it to the items.
 *
 * Names differ between checkpoints: with or without the encoder's prefix, LayerNorm parameters as
 * weight/bias or, in the oldest, gamma/beta. Other tensors of a checkpoint (position buffers,
 * pretraining heads, an unused pooler) are ignored.
 */
#include "lib/model/weight_map.h"

#include "lib/base/error.h"
#include "lib/model/weights/adapters.h"
#include "lib/model/encoder/convolution.h"
#include "lib/model/encoder/experts.h"

#include <stdio.h>
#include <string.h>

static const struct gsv_norm_items no_norm = { -1, -1 };

struct gsv_weight *gsv_add_item(struct gsv_spec *spec, enum gsv_weight_kind kind, int32_t n,
                                int32_t k)
{
    struct gsv_weight *item = &spec->items[spec->n_items++]; /* alloc_items() reserved enough */

    item->kind = kind;
    item->n = n;
    item->k = k;
    item->n_parts = 1;
    item->rows[0] = n;
    return item;
}

static gpuserve_status add_table(const struct gsv_collector *c, enum gsv_weight_kind kind,
                                 const char *name, int32_t rows, int32_t cols, int32_t *index)
{
    *index = -1;
    if (!name || rows == 0)
        return GPUSERVE_OK;
    *index = (int32_t)c->spec->n_items;
    return gsv_find_tensor(c, &gsv_add_item(c->spec, kind, rows, cols)->weight[0], name, ".weight",
                           NULL, rows, cols, GSV_REQUIRED);
}

gpuserve_status gsv_add_vector(const struct gsv_collector *c, const char *name, const char *suffix,
                               const char *other, int32_t cols, enum gsv_presence presence,
                               int32_t *index)
{
    struct gsv_tensor tensor = { 0 };
    const gpuserve_status st = gsv_find_tensor(c, &tensor, name, suffix, other, 0, cols, presence);

    *index = -1;
    if (st != GPUSERVE_OK || tensor.count == 0)
        return st;
    *index = (int32_t)c->spec->n_items;
    gsv_add_item(c->spec, GSV_ITEM_FLOATS, 1, cols)->weight[0] = tensor;
    return GPUSERVE_OK;
}

/* Add gamma, then beta. A name NULL: no norm. */
gpuserve_status gsv_add_norm(const struct gsv_collector *c, const char *name, int32_t cols,
                             struct gsv_norm_items *norm)
{
    const struct gsv_config *config = &c->spec->config;
    gpuserve_status st;

    *norm = no_norm;
    if (!name)
        return GPUSERVE_OK;
    st = gsv_add_vector(c, name, ".weight", ".gamma", cols, GSV_REQUIRED, &norm->gamma);
    if (st != GPUSERVE_OK)
        return st;
    c->spec->items[norm->gamma].plus_one = config->family->gamma_plus_one && !config->includes_one;
    return gsv_add_vector(c, name, ".bias", ".beta", cols, config->norm_bias, &norm->beta);
}

/* The parts of a linear: `n` tensors stacked, or, with one name for several parts, one tensor of
 * all rows. */
struct linear_parts {
    const char *names[3];
    int32_t rows[3];
    int32_t n;
    enum gsv_presence bias;
};

static gpuserve_status add_parts(const struct gsv_collector *c, enum gsv_weight_kind kind,
                                 const struct linear_parts *parts, int32_t cols, int32_t activation)
{
    struct gsv_weight *item = gsv_add_item(c->spec, kind, 0, cols);
    gpuserve_status st = GPUSERVE_OK;

    item->n_parts = parts->n;
    item->activation = activation;
    for (int32_t i = 0; i < parts->n && st == GPUSERVE_OK; i++) {
        item->rows[i] = parts->rows[i];
        item->n += parts->rows[i];
        st = gsv_find_tensor(c, &item->weight[i], parts->names[i], ".weight", NULL, parts->rows[i],
                             cols, GSV_REQUIRED);
        if (st == GPUSERVE_OK)
            st = gsv_find_tensor(c, &item->bias[i], parts->names[i], ".bias", NULL, 0,
                                 parts->rows[i], parts->bias);
    }
    return st;
}

gpuserve_status gsv_add_linear(const struct gsv_collector *c, enum gsv_weight_kind kind,
                               const char *name, enum gsv_presence bias, int32_t rows, int32_t cols,
                               int32_t activation)
{
    const struct linear_parts parts = { { name }, { rows }, 1, bias };

    return add_parts(c, kind, &parts, cols, activation);
}

/* ----------------------------------------------------------------------------------- embeddings */

/* The prefix of the names of layer `number`. */
static void name_layer(char prefix[GSV_TENSOR_NAME_BYTES], const struct gsv_tensor_names *names,
                       const char *encoder, int32_t number)
{
    const int before_number = (int)(strchr(names->layer, '%') - names->layer);

    snprintf(prefix, GSV_TENSOR_NAME_BYTES, "%s%.*s%d%s", encoder, before_number, names->layer,
             number, names->layer + before_number + 2);
}

/* True if the layout's word embeddings and the first layer's output product are there. */
static bool has_layout(const struct gsv_spec *spec, const struct gsv_tensor_names *names,
                       const char *prefix)
{
    const struct gsv_collector c = { (struct gsv_spec *)spec, &spec->weights, prefix, NULL };
    char full[GSV_TENSOR_NAME_BYTES], out[2 * GSV_TENSOR_NAME_BYTES];
    struct gsv_tensor tensor;

    name_layer(out, names, "", 0);
    snprintf(out + strlen(out), GSV_TENSOR_NAME_BYTES, "%s", names->out);
    return gsv_lookup_weight(&c, &tensor, names->word, ".weight", full) &&
           gsv_lookup_weight(&c, &tensor, out, ".weight", full);
}

/* The words are missing, or the first layer is. */
static gpuserve_status fail_layout(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_family *family = spec->config.family;
    const struct gsv_tensor_names *names = family->names[0];
    const char *file = gsv_weight_file_name(spec->weights.files[0]);
    const char *const prefixes[] = { "", family->prefix };

    for (size_t i = 0; i < 2; i++) {
        const struct gsv_collector c = { spec, &spec->weights, prefixes[i] ? prefixes[i] : "",
                                         error };
        struct gsv_tensor tensor;
        char full[GSV_TENSOR_NAME_BYTES];

        if (!gsv_lookup_weight(&c, &tensor, names->word, ".weight", full))
            continue;
        name_layer(full, names, c.prefix, 0);
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s%s.weight' is missing", file, full,
                        names->out);
    }
    return gsv_fail(
        error, GPUSERVE_E_FORMAT, "%s: tensor '%.*s.weight' is missing, with or without '%s'", file,
        (int)strcspn(names->word, "|"), names->word, family->prefix ? family->prefix : "");
}

/* Find the layout and the prefix of the checkpoint's names. */
static gpuserve_status find_layout(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_family *family = spec->config.family;
    const char *const prefixes[] = { "",
                                     family->prefix ? family->prefix : "",
                                     family->other_prefix ? family->other_prefix : "",
                                     "model.",
                                     "auto_model.",
                                     "0.auto_model." };
    const size_t n = sizeof(prefixes) / sizeof(prefixes[0]);

    for (size_t i = 0; i < 3 * n; i++) {
        const struct gsv_tensor_names *names = family->names[i / n];

        if (names && has_layout(spec, names, prefixes[i % n])) {
            snprintf(spec->prefix, sizeof(spec->prefix), "%s", prefixes[i % n]);
            spec->names = names;
            return GPUSERVE_OK;
        }
    }
    return fail_layout(spec, error);
}

/* Tables of relative and rotary positions. */
static gpuserve_status add_distances(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_relative *relative = &config->relative;

    spec->relative = spec->position_index = spec->rotary[0] = spec->rotary[1] = -1;
    for (int32_t i = 0; i < 2; i++) {
        if (config->rotary[i].dims == 0 || (i == 1 && config->window == 0))
            continue;
        spec->rotary[i] = (int32_t)spec->n_items;
        gsv_add_item(spec, GSV_ITEM_ROTARY, gsv_relative_span(spec) + config->rotary[i].long_from,
                     config->rotary[i].dims)
            ->which = i;
    }
    switch (relative->kind) {
    case GSV_RELATIVE_BUCKETS:
        return relative->by_layer
                   ? GPUSERVE_OK
                   : add_table(c, GSV_ITEM_RELATIVE, spec->names->relative, relative->n_buckets,
                               config->n_heads, &spec->relative);
    case GSV_RELATIVE_ALIBI:
        spec->relative = (int32_t)spec->n_items;
        gsv_add_item(spec, GSV_ITEM_ALIBI, 1, config->n_heads);
        break;
    case GSV_RELATIVE_DISENTANGLED:
        spec->position_index = (int32_t)spec->n_items;
        gsv_add_item(spec, GSV_ITEM_POSITION_INDEX, 1, 1);
        break;
    default:
        break;
    }
    return GPUSERVE_OK;
}

static gpuserve_status add_projection(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const bool after = config->family->norm_after_projection;

    spec->projection = -1;
    if (!spec->names->projection ||
        (config->embedding_size == config->hidden_size && !config->family->always_projects))
        return GPUSERVE_OK;
    spec->projection = (int32_t)spec->n_items;
    return gsv_add_linear(c, GSV_ITEM_LINEAR_PLAIN, spec->names->projection,
                          after ? GSV_ABSENT : GSV_REQUIRED, config->hidden_size,
                          config->embedding_size, GPUSERVE_ACT_NONE);
}

static gpuserve_status add_embeddings(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_tensor_names *names = spec->names;
    const int32_t width = config->embedding_size;
    gpuserve_status st =
        add_table(c, GSV_ITEM_TABLE, names->word, config->vocab_size, width, &spec->word);

    if (st == GPUSERVE_OK)
        st = gsv_add_word_adapters(c);
    if (st == GPUSERVE_OK)
        st = add_table(c, GSV_ITEM_TABLE, config->no_position_table ? NULL : names->position,
                       config->max_positions, width, &spec->position);
    if (st == GPUSERVE_OK)
        st = add_table(c, GSV_ITEM_TABLE, names->type, config->type_vocab_size, width, &spec->type);
    if (st == GPUSERVE_OK)
        st = gsv_add_type_adapters(c);
    if (st == GPUSERVE_OK && config->has_task && names->task && spec->type >= 0) {
        struct gsv_tensor *task = &spec->items[spec->type].weight[1];
        char full[GSV_TENSOR_NAME_BYTES];

        if (!gsv_lookup_weight(c, task, names->task, ".weight", full) || task->rank != 2)
            return gsv_fail(c->error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                            gsv_weight_file_name(c->from->files[0]), full);
        st = gsv_check_tensor(task, task->shape[0], (uint64_t)width, c->error);
        *task = gsv_tensor_rows(task, 0, 1);
    }
    if (st == GPUSERVE_OK)
        st = add_distances(c);
    if (st == GPUSERVE_OK)
        st = gsv_add_norm(c, names->embedding_norm,
                          config->family->norm_after_projection ? config->hidden_size : width,
                          &spec->embedding_norm);
    return st == GPUSERVE_OK ? add_projection(c) : st;
}

/* --------------------------------------------------------------------------------------- layers */

/* A linear of a layer, and its adapters. */
static gpuserve_status add_linear(const struct gsv_collector *c, const char *name,
                                  enum gsv_presence bias, int32_t rows, int32_t cols,
                                  int32_t activation)
{
    const gpuserve_status st =
        gsv_add_linear(c, GSV_ITEM_LINEAR, name, bias, rows, cols, activation);

    return st == GPUSERVE_OK ? gsv_add_linear_adapters(c, name) : st;
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
    const struct linear_parts parts = {
        { names->query, names->key, names->value }, { q, kv, kv }, 3, config->qkv_bias
    };

    if (!names->qkv)
        return add_parts(c, GSV_ITEM_LINEAR, &parts, config->hidden_size, GPUSERVE_ACT_NONE);
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
    const struct linear_parts parts = {
        { names->gate, names->values }, { wide, wide }, 2, config->ffn_in_bias
    };
    struct gsv_weight *item;
    gpuserve_status st;

    if (names->gate)
        return add_parts(c, GSV_ITEM_LINEAR, &parts, config->hidden_size, GPUSERVE_ACT_NONE);
    st = gsv_add_linear(c, GSV_ITEM_LINEAR, names->ffn_in, config->ffn_in_bias, 2 * wide,
                        config->hidden_size, GPUSERVE_ACT_NONE);
    if (st != GPUSERVE_OK || !names->values_first)
        return st;
    item = &c->spec->items[c->spec->n_items - 1];
    item->n_parts = 2;
    item->rows[0] = item->rows[1] = wide;
    item->weight[1] = gsv_tensor_rows(&item->weight[0], 0, wide);
    item->weight[0] = gsv_tensor_rows(&item->weight[0], wide, wide);
    if (item->bias[0].count) {
        item->bias[1] = gsv_tensor_rows(&item->bias[0], 0, wide);
        item->bias[0] = gsv_tensor_rows(&item->bias[0], wide, wide);
    }
    return GPUSERVE_OK;
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
        return add_table(c, GSV_ITEM_RELATIVE, c->spec->names->relative, relative->n_buckets,
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

static gpuserve_status add_attention(const struct gsv_collector *c, struct gsv_layer *layer,
                                     bool has_norm)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t hidden = config->hidden_size;
    gpuserve_status st = gsv_add_norm(c, has_norm ? names->norm_before_attention : NULL, hidden,
                                      &layer->before_attention);

    layer->qkv = (int32_t)c->spec->n_items;
    if (st == GPUSERVE_OK)
        st = add_qkv(c);
    if (st == GPUSERVE_OK)
        st = gsv_add_vector(c, names->query_norm, ".weight", NULL, config->head_size,
                            names->query_norm ? GSV_REQUIRED : GSV_ABSENT, &layer->query_gamma);
    if (st == GPUSERVE_OK)
        st = gsv_add_vector(c, names->key_norm, ".weight", NULL, config->head_size,
                            names->key_norm ? GSV_REQUIRED : GSV_ABSENT, &layer->key_gamma);
    for (int32_t i = 0; i < 2 && st == GPUSERVE_OK; i++) {
        const int32_t gamma = i == 0 ? layer->query_gamma : layer->key_gamma;

        if (gamma >= 0)
            c->spec->items[gamma].plus_one =
                config->family->gamma_plus_one && !config->includes_one;
    }
    if (st == GPUSERVE_OK)
        st = add_layer_positions(c, layer);
    layer->out = (int32_t)c->spec->n_items;
    if (st == GPUSERVE_OK)
        st = add_linear(c, names->out, config->out_bias, hidden, gsv_context_columns(config),
                        GPUSERVE_ACT_NONE);
    return st == GPUSERVE_OK
               ? gsv_add_norm(c, names->norm_after_attention, hidden, &layer->after_attention)
               : st;
}

static gpuserve_status add_ffn(const struct gsv_collector *c, struct gsv_layer *layer,
                               bool has_experts)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_tensor_names *names = c->spec->names;
    const int32_t hidden = config->hidden_size, wide = config->intermediate_size;
    gpuserve_status st = gsv_add_norm(c, names->norm_before_ffn, hidden, &layer->before_ffn);

    layer->router = -1;
    if (has_experts) {
        st = st == GPUSERVE_OK ? gsv_add_experts(c, layer) : st;
        return st == GPUSERVE_OK ? gsv_add_norm(c, names->norm_after_ffn, hidden, &layer->after_ffn)
                                 : st;
    }
    layer->ffn_in = (int32_t)c->spec->n_items;
    if (st == GPUSERVE_OK)
        st = config->is_gated ? add_gated(c)
                              : add_linear(c, names->ffn_in, config->ffn_in_bias, wide, hidden,
                                           config->activation);
    layer->ffn_out = (int32_t)c->spec->n_items;
    if (st == GPUSERVE_OK)
        st = add_linear(c, names->ffn_out, config->ffn_out_bias, hidden, wide, GPUSERVE_ACT_NONE);
    return st == GPUSERVE_OK ? gsv_add_norm(c, names->norm_after_ffn, hidden, &layer->after_ffn)
                             : st;
}

/* Add the items of one stored layer. */
static gpuserve_status add_layer(const struct gsv_collector *encoder, int32_t number,
                                 struct gsv_layer *layer)
{
    const bool has_norm = number > 0 || !encoder->spec->config.family->skips_first_norm;
    struct gsv_collector c = *encoder;
    char prefix[GSV_TENSOR_NAME_BYTES];
    gpuserve_status st;

    name_layer(prefix, encoder->spec->names, encoder->prefix, number);
    c.prefix = prefix;
    st = add_attention(&c, layer, has_norm);
    return st == GPUSERVE_OK ? add_ffn(&c, layer, gsv_has_experts(&encoder->spec->config, number))
                             : st;
}

/* Layer i has the weights of stored layer i / (n_layers / n_stored_layers), as in ALBERT. */
static gpuserve_status add_layers(const struct gsv_collector *c)
{
    struct gsv_spec *spec = c->spec;
    const double group = (double)spec->config.n_layers / (double)spec->config.n_stored_layers;
    int32_t stored = -1;

    for (int32_t i = 0; i < spec->config.n_layers; i++) {
        const int32_t number = (int32_t)((double)i / group);
        gpuserve_status st;

        if (number == stored) {
            spec->layers[i] = spec->layers[i - 1];
            continue;
        }
        st = add_layer(c, number, &spec->layers[i]);
        stored = number;
        if (st != GPUSERVE_OK)
            return st;
    }
    return gsv_add_norm(c, spec->names->final_norm, spec->config.hidden_size, &spec->final_norm);
}

gpuserve_status gsv_spec_collect(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_collector c = { spec, &spec->weights, spec->prefix, error };
    gpuserve_status st;

    spec->classifier_norm = spec->masked_norm = no_norm;
    spec->mix = -1;
    if (spec->modules.is_static) {
        st = gsv_static_collect(spec, error);
        return st == GPUSERVE_OK ? gsv_collect_heads(spec, error) : st;
    }
    st = find_layout(spec, error);
    if (st == GPUSERVE_OK)
        st = gsv_check_adapters(spec, error);
    if (st == GPUSERVE_OK)
        st = add_embeddings(&c);
    spec->convolution = -1;
    if (st == GPUSERVE_OK && spec->config.convolution.kernel > 0)
        st = gsv_add_convolution(&c);
    if (st == GPUSERVE_OK)
        st = add_layers(&c);
    if (st == GPUSERVE_OK)
        st = gsv_check_surplus(spec, error);
    return st == GPUSERVE_OK ? gsv_collect_heads(spec, error) : st;
}
