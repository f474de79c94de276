/*
 * weight_map.c - finds each weight by name, checks its type and shape, and adds it to the items.
 *
 * Names differ between checkpoints: with or without the encoder's prefix, LayerNorm parameters as
 * weight/bias or, in the oldest, gamma/beta. Other tensors of a checkpoint (position buffers,
 * pretraining heads, an unused pooler) are ignored.
 */
#include "lib/model/spec.h"

#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 192

/* Context of the search, to keep argument lists short. */
struct collector {
    struct gsv_spec *spec;
    const struct gsv_checkpoint *from;
    const char *prefix;
    gpuserve_error *error;
};

static gpuserve_status check_tensor(const struct gsv_tensor *t, uint64_t rows, uint64_t cols,
                                    gpuserve_error *error)
{
    const bool fits = rows == 0 ? t->rank == 1 && t->shape[0] == cols
                                : t->rank == 2 && t->shape[0] == rows && t->shape[1] == cols;

    if (t->type == GSV_TENSOR_OTHER)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: tensor '%s' is %s; supported weight types: F32, F16, BF16, F64",
                        gsv_safetensors_name(t->file), t->name, t->type_name);
    if (fits)
        return GPUSERVE_OK;
    if (rows == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' has rank %llu and %llu elements, expected shape [%llu]",
                        gsv_safetensors_name(t->file), t->name, (unsigned long long)t->rank,
                        (unsigned long long)t->count, (unsigned long long)cols);
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: tensor '%s' is [%llu, %llu] of rank %llu, expected shape [%llu, %llu]",
                    gsv_safetensors_name(t->file), t->name, (unsigned long long)t->shape[0],
                    (unsigned long long)t->shape[1], (unsigned long long)t->rank,
                    (unsigned long long)rows, (unsigned long long)cols);
}

/* Find the tensor PREFIX NAME SUFFIX, or with suffix `other` if that is not NULL. rows 0: a vector
 * of `cols` elements. */
static gpuserve_status find(const struct collector *c, struct gsv_tensor *tensor, const char *name,
                            const char *suffix, const char *other, int32_t rows, int32_t cols)
{
    char full[NAME_BYTES];

    snprintf(full, sizeof(full), "%s%s%s", c->prefix, name, suffix);
    if (gsv_checkpoint_find(c->from, full, tensor))
        return check_tensor(tensor, (uint64_t)rows, (uint64_t)cols, c->error);
    if (other) {
        char second[NAME_BYTES];

        snprintf(second, sizeof(second), "%s%s%s", c->prefix, name, other);
        if (gsv_checkpoint_find(c->from, second, tensor))
            return check_tensor(tensor, (uint64_t)rows, (uint64_t)cols, c->error);
    }
    return gsv_fail(c->error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                    gsv_safetensors_name(c->from->files[0]), full);
}

static struct gsv_weight *add_item(struct gsv_spec *spec, enum gsv_weight_kind kind, int32_t n,
                                   int32_t k)
{
    struct gsv_weight *item = &spec->items[spec->n_items++]; /* alloc_items() reserved enough */

    item->kind = kind;
    item->n = n;
    item->k = k;
    item->n_parts = 1;
    return item;
}

static gpuserve_status add_table(const struct collector *c, enum gsv_weight_kind kind,
                                 const char *name, int32_t rows, int32_t cols, int32_t *index)
{
    *index = -1;
    if (!name || rows == 0)
        return GPUSERVE_OK;
    *index = (int32_t)c->spec->n_items;
    return find(c, &add_item(c->spec, kind, rows, cols)->weight[0], name, ".weight", NULL, rows,
                cols);
}

/* Add gamma, then beta. */
static gpuserve_status add_norm(const struct collector *c, const char *name)
{
    const int32_t hidden = c->spec->config.hidden_size;
    struct gsv_weight *gamma = add_item(c->spec, GSV_ITEM_FLOATS, 1, hidden);
    struct gsv_weight *beta = add_item(c->spec, GSV_ITEM_FLOATS, 1, hidden);
    gpuserve_status st = find(c, &gamma->weight[0], name, ".weight", ".gamma", 0, hidden);

    if (st == GPUSERVE_OK)
        st = find(c, &beta->weight[0], name, ".bias", ".beta", 0, hidden);
    return st;
}

static gpuserve_status add_linear(const struct collector *c, enum gsv_weight_kind kind,
                                  const char *const names[], int32_t n_parts, bool has_bias,
                                  int32_t rows, int32_t cols, int32_t activation)
{
    struct gsv_weight *item = add_item(c->spec, kind, rows * n_parts, cols);
    gpuserve_status st = GPUSERVE_OK;

    item->n_parts = n_parts;
    item->activation = activation;
    for (int32_t i = 0; i < n_parts && st == GPUSERVE_OK; i++) {
        st = find(c, &item->weight[i], names[i], ".weight", NULL, rows, cols);
        if (st == GPUSERVE_OK && has_bias)
            st = find(c, &item->bias[i], names[i], ".bias", NULL, 0, rows);
    }
    return st;
}

/* ------------------------------------------------------------------------------------ encoder */

/* Find the prefix under which the word embeddings are stored. */
static gpuserve_status find_prefix(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_family *family = spec->config.family;
    const char *prefixes[] = { "", family->prefix, "model.", "auto_model.", "0.auto_model." };
    struct gsv_tensor tensor;
    char name[NAME_BYTES];

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        snprintf(name, sizeof(name), "%s%s.weight", prefixes[i], family->word);
        if (gsv_checkpoint_find(&spec->weights, name, &tensor)) {
            snprintf(spec->prefix, sizeof(spec->prefix), "%s", prefixes[i]);
            return GPUSERVE_OK;
        }
    }
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: tensor '%s.weight' is missing, with or without '%s'",
                    gsv_safetensors_name(spec->weights.files[0]), family->word, family->prefix);
}

static gpuserve_status add_embeddings(const struct collector *c)
{
    struct gsv_spec *spec = c->spec;
    const struct gsv_config *config = &spec->config;
    const struct gsv_family *family = config->family;
    gpuserve_status st = add_table(c, GSV_ITEM_TABLE, family->word, config->vocab_size,
                                   config->hidden_size, &spec->word);

    if (st == GPUSERVE_OK)
        st = add_table(c, GSV_ITEM_TABLE, family->position, config->max_positions,
                       config->hidden_size, &spec->position);
    if (st == GPUSERVE_OK)
        st = add_table(c, GSV_ITEM_TABLE, family->type, config->type_vocab_size,
                       config->hidden_size, &spec->type);
    if (st == GPUSERVE_OK)
        st = add_table(c, GSV_ITEM_RELATIVE, family->relative, config->n_relative_buckets,
                       config->n_heads, &spec->relative);
    if (st != GPUSERVE_OK)
        return st;
    spec->embedding_gamma = (int32_t)spec->n_items;
    spec->embedding_beta = spec->embedding_gamma + 1;
    return add_norm(c, family->embedding_norm);
}

/* Add the items of one layer, in the order of the enum in spec.h. */
static gpuserve_status add_layer(const struct collector *encoder, int32_t layer)
{
    const struct gsv_config *config = &encoder->spec->config;
    const struct gsv_family *family = config->family;
    const char *const qkv[] = { family->query, family->key, family->value };
    const int32_t hidden = config->hidden_size, wide = config->intermediate_size;
    struct collector c = *encoder;
    const int before_number = (int)(strchr(family->layer, '%') - family->layer);
    char prefix[NAME_BYTES];
    gpuserve_status st;

    snprintf(prefix, sizeof(prefix), "%s%.*s%d.", encoder->prefix, before_number, family->layer,
             layer);
    c.prefix = prefix;
    st = add_linear(&c, GSV_ITEM_LINEAR, qkv, 3, true, hidden, hidden, GPUSERVE_ACT_NONE);
    if (st == GPUSERVE_OK)
        st = add_linear(&c, GSV_ITEM_LINEAR, &family->out, 1, true, hidden, hidden,
                        GPUSERVE_ACT_NONE);
    if (st == GPUSERVE_OK)
        st = add_norm(&c, family->attention_norm);
    if (st == GPUSERVE_OK)
        st = add_linear(&c, GSV_ITEM_LINEAR, &family->ffn_in, 1, true, wide, hidden,
                        config->activation);
    if (st == GPUSERVE_OK)
        st = add_linear(&c, GSV_ITEM_LINEAR, &family->ffn_out, 1, true, hidden, wide,
                        GPUSERVE_ACT_NONE);
    return st == GPUSERVE_OK ? add_norm(&c, family->output_norm) : st;
}

/* ------------------------------------------------------------------------- Dense, classifiers */

static gpuserve_status add_dense(struct gsv_spec *spec, int32_t i, gpuserve_error *error)
{
    static const char *const name = "linear";
    const struct gsv_dense_spec *dense = &spec->modules.dense[i].spec;
    const struct collector c = { spec, &spec->dense_weights[i], "", error };

    return add_linear(&c, GSV_ITEM_LINEAR_EXACT, &name, 1, dense->has_bias, dense->out_features,
                      dense->in_features, dense->activation);
}

/* The number of labels is the number of rows of the last layer; config.json does not contain it. */
static gpuserve_status count_labels(const struct gsv_spec *spec, const char *layer, int32_t *n,
                                    gpuserve_error *error)
{
    struct gsv_tensor last;
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "%s.weight", layer);
    if (!gsv_checkpoint_find(&spec->weights, name, &last))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                        gsv_safetensors_name(spec->weights.files[0]), name);
    if (last.rank != 2 || last.shape[0] < 1 || last.shape[0] > 100000)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' is not a label matrix: rank other than 2, or %llu rows "
                        "outside 1 to 100000",
                        gsv_safetensors_name(last.file), name, (unsigned long long)last.shape[0]);
    *n = (int32_t)last.shape[0];
    return GPUSERVE_OK;
}

static gpuserve_status add_classifier(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_classifier_layer *layers = spec->config.family->classifier;
    const int32_t hidden = spec->config.hidden_size;
    const struct collector inside = { spec, &spec->weights, spec->prefix, error };
    const struct collector outside = { spec, &spec->weights, "", error };
    int32_t n = 0;
    gpuserve_status st = count_labels(spec, layers[1].name, &n, error);

    if (st == GPUSERVE_OK)
        st = add_linear(layers[0].in_encoder ? &inside : &outside, GSV_ITEM_LINEAR_EXACT,
                        &layers[0].name, 1, true, hidden, hidden, layers[0].activation);
    if (st != GPUSERVE_OK)
        return st;
    spec->n_classifier = 2;
    return add_linear(&outside, GSV_ITEM_LINEAR_EXACT, &layers[1].name, 1, true, n, hidden,
                      layers[1].activation);
}

/* Add a token classifier: one layer with the same name in all families. */
static gpuserve_status add_token_classifier(struct gsv_spec *spec, gpuserve_error *error)
{
    static const char *const name = "classifier";
    const struct collector outside = { spec, &spec->weights, "", error };
    int32_t n = 0;
    const gpuserve_status st = count_labels(spec, name, &n, error);

    if (st != GPUSERVE_OK)
        return st;
    spec->n_classifier = 1;
    return add_linear(&outside, GSV_ITEM_LINEAR_PLAIN, &name, 1, true, n, spec->config.hidden_size,
                      GPUSERVE_ACT_NONE);
}

static gpuserve_status add_head_layer(struct gsv_spec *spec, const struct gsv_head_layer *layer,
                                      int32_t k, bool is_last, gpuserve_error *error)
{
    const struct gsv_tensor *w = &layer->weight;
    const int32_t n = w->rank == 2 && w->shape[0] <= 100000 ? (int32_t)w->shape[0] : 0;
    struct gsv_weight *item;
    gpuserve_status st;

    if (n == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' is not a matrix of 1 to 100000 rows",
                        gsv_safetensors_name(w->file), w->name);
    st = check_tensor(w, (uint64_t)n, (uint64_t)k, error);
    if (st == GPUSERVE_OK && layer->bias.count)
        st = check_tensor(&layer->bias, 0, (uint64_t)n, error);
    if (st != GPUSERVE_OK)
        return st;
    item = add_item(spec, GSV_ITEM_LINEAR_EXACT, n, k);
    item->weight[0] = layer->weight;
    item->bias[0] = layer->bias;
    item->activation = is_last ? GPUSERVE_ACT_NONE : GPUSERVE_ACT_RELU;
    return GPUSERVE_OK;
}

static gpuserve_status add_head(struct gsv_spec *spec, gpuserve_error *error)
{
    int32_t k = spec->facts.dim;

    for (int32_t i = 0; i < spec->head.n_layers; i++) {
        const gpuserve_status st =
            add_head_layer(spec, &spec->head.layers[i], k, i == spec->head.n_layers - 1, error);

        if (st != GPUSERVE_OK)
            return st;
        k = (int32_t)spec->head.layers[i].weight.shape[0];
    }
    spec->n_classifier = spec->head.n_layers;
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------ masked language model */

/* Find the decoder's bias under its name or its other name. */
static gpuserve_status find_bias(const struct gsv_spec *spec, struct gsv_tensor *bias,
                                 gpuserve_error *error)
{
    const struct gsv_masked_names *names = &spec->config.family->masked;

    if (gsv_checkpoint_find(&spec->weights, names->bias, bias) ||
        (names->other_bias && gsv_checkpoint_find(&spec->weights, names->other_bias, bias)))
        return check_tensor(bias, 0, (uint64_t)spec->config.vocab_size, error);
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                    gsv_safetensors_name(spec->weights.files[0]), names->bias);
}

static gpuserve_status find_decoder(struct gsv_spec *spec, struct gsv_tensor *decoder,
                                    gpuserve_error *error)
{
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "%s.weight", spec->config.family->masked.decoder);
    spec->is_decoder_tied = !gsv_checkpoint_find(&spec->weights, name, decoder);
    if (spec->is_decoder_tied)
        *decoder = spec->items[spec->word].weight[0];
    return check_tensor(decoder, (uint64_t)spec->config.vocab_size,
                        (uint64_t)spec->config.hidden_size, error);
}

/* Rows [first, first + n) of a tensor with a checked shape. */
static struct gsv_tensor rows_of(const struct gsv_tensor *whole, int32_t first, int32_t n)
{
    const uint64_t columns = whole->rank == 2 ? whole->shape[1] : 1;
    const uint64_t element = gsv_tensor_element_size(whole->type);
    struct gsv_tensor part = *whole;

    part.shape[0] = (uint64_t)n;
    part.count = (uint64_t)n * columns;
    part.offset += (uint64_t)first * columns * element;
    part.size_bytes = part.count * element;
    return part;
}

static void add_decoder(struct gsv_spec *spec, const struct gsv_tensor *decoder,
                        const struct gsv_tensor *bias)
{
    const int32_t vocab = spec->config.vocab_size;

    for (int32_t first = 0; first < vocab; first += GSV_DECODER_ROWS) {
        const int32_t n = vocab - first < GSV_DECODER_ROWS ? vocab - first : GSV_DECODER_ROWS;
        struct gsv_weight *item =
            add_item(spec, GSV_ITEM_LINEAR_PLAIN, n, spec->config.hidden_size);

        item->weight[0] = rows_of(decoder, first, n);
        item->bias[0] = rows_of(bias, first, n);
        item->activation = GPUSERVE_ACT_NONE;
        spec->n_decoder++;
    }
}

static gpuserve_status add_masked(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_masked_names *names = &spec->config.family->masked;
    const struct collector c = { spec, &spec->weights, "", error };
    const int32_t hidden = spec->config.hidden_size;
    struct gsv_tensor decoder, bias;
    gpuserve_status st =
        add_linear(&c, GSV_ITEM_LINEAR_PLAIN, &names->transform, 1, true, hidden, hidden,
                   names->activation < 0 ? spec->config.activation : names->activation);

    if (st == GPUSERVE_OK)
        st = add_norm(&c, names->norm);
    if (st == GPUSERVE_OK)
        st = find_decoder(spec, &decoder, error);
    if (st == GPUSERVE_OK)
        st = find_bias(spec, &bias, error);
    if (st == GPUSERVE_OK)
        add_decoder(spec, &decoder, &bias);
    return st;
}

gpuserve_status gsv_spec_collect(struct gsv_spec *spec, gpuserve_error *error)
{
    struct collector c = { spec, &spec->weights, spec->prefix, error };
    gpuserve_status st = find_prefix(spec, error);

    if (st == GPUSERVE_OK)
        st = add_embeddings(&c);
    spec->first_layer = (int32_t)spec->n_items;
    for (int32_t i = 0; i < spec->config.n_layers && st == GPUSERVE_OK; i++)
        st = add_layer(&c, i);
    spec->first_dense = (int32_t)spec->n_items;
    for (int32_t i = 0; i < spec->modules.n_dense && st == GPUSERVE_OK; i++)
        st = add_dense(spec, i, error);
    spec->first_classifier = (int32_t)spec->n_items;
    if (st == GPUSERVE_OK && spec->has_head)
        st = add_head(spec, error);
    else if (st == GPUSERVE_OK && spec->config.classifies)
        st = add_classifier(spec, error);
    else if (st == GPUSERVE_OK && spec->config.labels_tokens)
        st = add_token_classifier(spec, error);
    spec->masked = (int32_t)spec->n_items;
    if (st == GPUSERVE_OK && spec->facts.is_sparse)
        st = add_masked(spec, error);
    return st;
}
