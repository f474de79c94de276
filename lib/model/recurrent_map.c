/*
 * recurrent_map.c - finds the weights of text classifiers of word embeddings, LSTM or GRU layers
 * and one linear layer, and those of sentence-transformers' modules WordEmbeddings and LSTM.
 *
 *   token ids -> embedding -> LSTM or GRU layers -> pooling -> classifier
 *
 *   layout "torch"   torch.nn.LSTM:  weight_ih_l0 [4 units, inputs], weight_hh_l0, bias_ih_l0,
 *                    bias_hh_l0; the backward direction has the suffix _reverse
 *   layout "keras"   keras.layers.LSTM:  lstm/lstm_cell/kernel [inputs, 4 units],
 *                    recurrent_kernel, bias; lstm_1 is the second layer; a bidirectional layer
 *                    is bidirectional/forward_lstm and bidirectional/backward_lstm
 *
 * A GRU has 3 units rows and the name gru; Keras with reset_after has two rows of biases. The
 * modules of sentence-transformers are of layout "torch" and have the prefix encoder.
 *
 * docs/recurrent.md describes the directory. After the last layer the hidden states of a token are
 * its token vector, so that pooling and everything behind it are those of an encoder.
 */
#include "lib/model/weight_map.h"

#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>

/* The names of one direction of a layer. */
struct cell_names {
    char ih[GSV_TENSOR_NAME_BYTES], hh[GSV_TENSOR_NAME_BYTES];
    char bias_ih[GSV_TENSOR_NAME_BYTES], bias_hh[GSV_TENSOR_NAME_BYTES]; /* Keras: one bias */
};

static void name_torch(struct cell_names *names, const char *prefix, int32_t layer,
                       int32_t direction)
{
    const char *suffix = direction ? "_reverse" : "";

    snprintf(names->ih, sizeof(names->ih), "%s.weight_ih_l%d%s", prefix, layer, suffix);
    snprintf(names->hh, sizeof(names->hh), "%s.weight_hh_l%d%s", prefix, layer, suffix);
    snprintf(names->bias_ih, sizeof(names->bias_ih), "%s.bias_ih_l%d%s", prefix, layer, suffix);
    snprintf(names->bias_hh, sizeof(names->bias_hh), "%s.bias_hh_l%d%s", prefix, layer, suffix);
}

/* Keras numbers the second layer 1 and leaves the number of the first one out. */
static void name_keras(struct cell_names *names, const char *kind, int32_t layer, int32_t direction,
                       bool both)
{
    char number[16] = "", cell[128];

    if (layer > 0)
        snprintf(number, sizeof(number), "_%d", layer);
    if (both)
        snprintf(cell, sizeof(cell), "bidirectional%s/%s_%s%s/%s_cell", number,
                 direction ? "backward" : "forward", kind, number, kind);
    else
        snprintf(cell, sizeof(cell), "%s%s/%s_cell", kind, number, kind);
    snprintf(names->ih, sizeof(names->ih), "%s/kernel", cell);
    snprintf(names->hh, sizeof(names->hh), "%s/recurrent_kernel", cell);
    snprintf(names->bias_ih, sizeof(names->bias_ih), "%s/bias", cell);
    names->bias_hh[0] = '\0';
}

/* A matrix [rows, cols], or its transpose with the layout of Keras. */
static gpuserve_status find_matrix(const struct gsv_collector *c, struct gsv_tensor *tensor,
                                   const char *name, int32_t rows, int32_t cols)
{
    const bool is_keras = c->spec->config.recurrent.is_keras;

    return gsv_find_tensor(c, tensor, name, "", NULL, is_keras ? cols : rows,
                           is_keras ? rows : cols, GSV_REQUIRED);
}

static int32_t input_of(const struct gsv_config *config, int32_t layer)
{
    if (config->recurrent.over_words)
        return config->recurrent.directions * config->recurrent.units;
    return layer == 0 ? config->embedding_size : config->hidden_size;
}

/* The layers' weights are files of the model, or those of the module LSTM. */
static gpuserve_status add_direction(const struct gsv_collector *c, int32_t layer,
                                     int32_t direction)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_recurrent *recurrent = &config->recurrent;
    const char *kind = recurrent->cell == GPUSERVE_CELL_LSTM ? "lstm" : "gru";
    const int32_t rows = gpuserve_cell_gates(recurrent->cell) * recurrent->units;
    const int32_t input = input_of(config, layer);
    const int32_t bias_rows = recurrent->is_keras && recurrent->cell == GPUSERVE_CELL_GRU ? 2 : 0;
    const enum gsv_presence bias = recurrent->has_bias ? GSV_REQUIRED : GSV_ABSENT;
    struct gsv_weight *item =
        gsv_add_item(c->spec, GSV_ITEM_RECURRENT, rows, input + recurrent->units);
    struct cell_names names;
    gpuserve_status st;

    item->which = direction;
    if (recurrent->is_keras)
        name_keras(&names, kind, layer, direction, recurrent->directions == 2);
    else
        name_torch(&names, recurrent->is_words ? "encoder" : kind, layer, direction);
    st = find_matrix(c, &item->weight[0], names.ih, rows, input);
    if (st == GPUSERVE_OK)
        st = find_matrix(c, &item->weight[1], names.hh, rows, recurrent->units);
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &item->bias[0], names.bias_ih, "", NULL, bias_rows, rows, bias);
    if (st == GPUSERVE_OK && names.bias_hh[0])
        st = gsv_find_tensor(c, &item->bias[1], names.bias_hh, "", NULL, 0, rows, bias);
    return st;
}

gpuserve_status gsv_recurrent_add_layers(const struct gsv_collector *c)
{
    const struct gsv_recurrent *recurrent = &c->spec->config.recurrent;
    gpuserve_status st = GPUSERVE_OK;

    c->spec->recurrent = (int32_t)c->spec->n_items;
    for (int32_t i = 0; i < recurrent->n_layers * recurrent->directions && st == GPUSERVE_OK; i++)
        st = add_direction(c, i / recurrent->directions, i % recurrent->directions);
    return st;
}

/* The number of labels is that of the classifier's outputs. */
static gpuserve_status add_classifier(const struct gsv_collector *c)
{
    static const char torch[] = "classifier.weight|fc.weight|linear.weight|dense.weight";
    const struct gsv_config *config = &c->spec->config;
    const bool is_keras = config->recurrent.is_keras;
    struct gsv_tensor weight = { 0 }, bias = { 0 };
    char name[GSV_TENSOR_NAME_BYTES];
    struct gsv_weight *item;
    uint64_t n;
    gpuserve_status st;

    if (!gsv_lookup(c, &weight, is_keras ? "dense/kernel" : torch, "", name))
        return gsv_fail(c->error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                        gsv_weight_file_name(c->from->files[0]), name);
    n = weight.rank == 2 ? weight.shape[is_keras] : 0;
    if (n < 1 || n > 100000)
        return gsv_fail(c->error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' is not a matrix of 1 to 100000 labels",
                        gsv_weight_file_name(weight.file), name);
    st = find_matrix(c, &weight, name, (int32_t)n, config->hidden_size);
    snprintf(strrchr(name, is_keras ? '/' : '.') + 1, 8, "bias");
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &bias, name, "", NULL, 0, (int32_t)n, GSV_REQUIRED);
    if (st != GPUSERVE_OK)
        return st;
    c->spec->first_classifier = (int32_t)c->spec->n_items;
    c->spec->n_classifier = 1;
    item = gsv_add_item(c->spec, GSV_ITEM_LINEAR_EXACT, (int32_t)n, config->hidden_size);
    item->weight[0] = weight;
    item->bias[0] = bias;
    item->transposed = is_keras;
    return GPUSERVE_OK;
}

/* A head file over the hidden states replaces the model's classifier. */
gpuserve_status gsv_recurrent_collect(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_config *config = &spec->config;
    const bool is_words = config->recurrent.is_words;
    const struct gsv_collector c = { spec, &spec->weights, "", error };
    const struct gsv_collector layers = { spec, is_words ? &spec->lstm_weights : &spec->weights, "",
                                          error };
    const char *name = is_words                     ? GSV_WORD_TABLE
                       : config->recurrent.is_keras ? "embedding/embeddings"
                                                    : "embedding.weight|embeddings.weight";
    gpuserve_status st;

    spec->convolution = spec->position = spec->type = spec->projection = spec->relative =
        spec->position_index = -1;
    spec->rotary[0] = spec->rotary[1] = -1;
    spec->embedding_norm = spec->final_norm = GSV_NO_NORM;
    spec->word = (int32_t)spec->n_items;
    st = gsv_find_tensor(
        &c,
        &gsv_add_item(spec, GSV_ITEM_TABLE, config->vocab_size, config->embedding_size)->weight[0],
        name, "", NULL, config->vocab_size, config->embedding_size, GSV_REQUIRED);
    if (st == GPUSERVE_OK)
        st = gsv_recurrent_add_layers(&layers);
    spec->first_dense = (int32_t)spec->n_items;
    if (st != GPUSERVE_OK || gsv_has_heads(spec) || is_words)
        return st == GPUSERVE_OK ? gsv_collect_heads(spec, error) : st;
    return add_classifier(&c);
}

struct gpuserve_lstm_source gsv_recurrent_source(const struct gsv_config *config, int32_t number)
{
    return (struct gpuserve_lstm_source){
        .struct_size = sizeof(struct gpuserve_lstm_source),
        .dtype = GPUSERVE_DTYPE_FLOAT32,
        .input_size = input_of(config, number),
        .hidden_size = config->recurrent.units,
        .n_directions = config->recurrent.directions,
        .cell = config->recurrent.cell,
    };
}
