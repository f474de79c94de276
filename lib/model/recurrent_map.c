/*
 * recurrent_map.c - text classifiers of word embeddings, LSTM layers and one linear layer: reads
 * config.json and finds the weights.
 *
 *   token ids -> embedding -> LSTM layers -> pooling -> classifier
 *
 *   layout "torch"   torch.nn.LSTM:  weight_ih_l0 [4 units, inputs], weight_hh_l0, bias_ih_l0,
 *                    bias_hh_l0; the backward direction has the suffix _reverse
 *   layout "keras"   keras.layers.LSTM:  lstm/lstm_cell/kernel [inputs, 4 units],
 *                    recurrent_kernel, bias; lstm_1 is the second layer; a bidirectional layer
 *                    is bidirectional/forward_lstm and bidirectional/backward_lstm
 *
 * docs/recurrent.md describes the directory. After the last layer the hidden states of a token are
 * its token vector, so that pooling and everything behind it are those of an encoder.
 */
#include "lib/model/weight_map.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>

#define MODEL_TYPE "recurrent"
#define MAX_WORDS (1 << 24)
#define MAX_UNITS (1 << 14)
#define MAX_LAYERS 64
#define MAX_TOKENS 8192
#define DEFAULT_TOKENS 512
#define GATES "ifco" /* the order in which a backend takes them */

static const char *const no_names[] = { NULL };
static const struct gsv_tensor_names recurrent_names = { .word = "embedding" };
static const struct gsv_family recurrent_family = {
    .model_types = no_names,
    .classes = no_names,
    .names = { &recurrent_names },
    .norm_position = GSV_NORM_AFTER,
    .norm_bias = GSV_ABSENT,
};

/* --------------------------------------------------------------------------------- configuration
 */

static gpuserve_status need_size(const struct gsv_json_value *json, const char *key,
                                 int64_t maximum, int32_t *value, gpuserve_error *error)
{
    const gpuserve_status st = gsv_config_size(json, key, maximum, value, error);

    if (st != GPUSERVE_OK || *value != 0)
        return st;
    return gsv_fail(error, GPUSERVE_E_FORMAT, GSV_CONFIG_NAME ": \"%s\" is missing", key);
}

static gpuserve_status read_sizes(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    struct gsv_recurrent *recurrent = &config->recurrent;
    bool is_bidirectional = false;
    gpuserve_status st = need_size(json, "vocab_size", MAX_WORDS, &config->vocab_size, error);

    if (st == GPUSERVE_OK)
        st = need_size(json, "embedding_size", GSV_MAX_WIDTH, &config->embedding_size, error);
    if (st == GPUSERVE_OK)
        st = need_size(json, "hidden_size", MAX_UNITS, &recurrent->units, error);
    recurrent->n_layers = 1;
    config->max_positions = DEFAULT_TOKENS;
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "num_layers", MAX_LAYERS, &recurrent->n_layers, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "max_length", MAX_TOKENS, &config->max_positions, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "bidirectional", GSV_CONFIG_NAME, &is_bidirectional, error);
    recurrent->directions = is_bidirectional ? 2 : 1;
    config->hidden_size = recurrent->directions * recurrent->units;
    return st;
}

/* The letters of the gates in the order of the file's blocks: c and g are the cell. */
static gpuserve_status read_order(struct gsv_recurrent *recurrent, const char *order,
                                  gpuserve_error *error)
{
    bool is_order = strlen(order) == 4;

    for (int32_t gate = 0; gate < 4 && is_order; gate++) {
        const char *at = strchr(order, GATES[gate]);

        if (!at && GATES[gate] == 'c')
            at = strchr(order, 'g');
        is_order = at != NULL;
        recurrent->order[gate] = at ? (int32_t)(at - order) : 0;
    }
    if (is_order)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    GSV_CONFIG_NAME ": gate_order '%.64s' is not an order of the gates i (input), "
                                    "f (forget), g or c (cell) and o (output)",
                    order);
}

static gpuserve_status read_layout(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    struct gsv_recurrent *recurrent = &config->recurrent;
    const char *cell = "lstm", *layout = "torch", *order = "ifgo";
    gpuserve_status st = gsv_json_string(json, "cell", GSV_CONFIG_NAME, &cell, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "layout", GSV_CONFIG_NAME, &layout, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "gate_order", GSV_CONFIG_NAME, &order, error);
    recurrent->has_bias = true;
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "bias", GSV_CONFIG_NAME, &recurrent->has_bias, error);
    if (st != GPUSERVE_OK)
        return st;
    if (strcmp(cell, "lstm") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        GSV_CONFIG_NAME ": cell '%.64s' is not supported, only 'lstm' is", cell);
    recurrent->is_keras = strcmp(layout, "keras") == 0;
    if (!recurrent->is_keras && strcmp(layout, "torch") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        GSV_CONFIG_NAME ": layout '%.64s' is not supported, only 'torch' and "
                                        "'keras' are",
                        layout);
    return read_order(recurrent, order, error);
}

static gpuserve_status read_pooling(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    static const struct {
        const char *name;
        int32_t pooling;
    } poolings[] = {
        { "last", GPUSERVE_POOL_LAST },
        { "mean", GPUSERVE_POOL_MEAN },
        { "max", GPUSERVE_POOL_MAX },
    };
    const char *name = "last";
    int64_t empty = 0;
    gpuserve_status st = gsv_json_int(json, "pad_token_id", GSV_CONFIG_NAME, 0,
                                      config->vocab_size - 1, &empty, error);

    config->recurrent.empty_id = (int32_t)empty;
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "pooling", GSV_CONFIG_NAME, &name, error);
    for (size_t i = 0; i < sizeof(poolings) / sizeof(poolings[0]) && st == GPUSERVE_OK; i++)
        if (strcmp(name, poolings[i].name) == 0)
            config->classifier_pooling = poolings[i].pooling;
    if (st == GPUSERVE_OK && config->classifier_pooling == 0)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      GSV_CONFIG_NAME ": pooling '%.64s' is not supported, only 'last', 'mean' and "
                                      "'max' are",
                      name);
    return st;
}

static gpuserve_status parse(struct gsv_config *config, const struct gsv_json_value *json,
                             gpuserve_error *error)
{
    static const char class[] = "RecurrentForSequenceClassification";
    gpuserve_status st = read_sizes(config, json, error);

    if (st == GPUSERVE_OK)
        st = read_layout(config, json, error);
    if (st == GPUSERVE_OK)
        st = read_pooling(config, json, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_labels(config, json, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_score(config, json, error);
    if (st != GPUSERVE_OK)
        return st;
    config->family = &recurrent_family;
    config->architecture = gsv_copy_text(class, strlen(class));
    config->model_type = gsv_copy_text(MODEL_TYPE, strlen(MODEL_TYPE));
    if (!config->architecture || !config->model_type)
        return gsv_fail(error, GPUSERVE_E_NOMEM, GSV_CONFIG_NAME ": out of memory");
    config->classifies = true;
    config->n_heads = config->n_kv_heads = config->head_size = 1; /* there is no attention */
    config->pad_id = -1;
    config->norm_bias = GSV_ABSENT;
    return GPUSERVE_OK;
}

gpuserve_status gsv_recurrent_read(struct gsv_spec *spec, const struct gsv_dir *dir,
                                   gpuserve_error *error)
{
    struct gsv_json_value *json;
    const char *type;
    gpuserve_status st;

    if (spec->modules.is_static || gsv_dir_gguf(dir))
        return GPUSERVE_OK;
    st = gsv_read_optional_json(&json, dir, spec->modules.transformer, GSV_CONFIG_NAME, error);
    if (st != GPUSERVE_OK || !json)
        return st;
    type = gsv_json_get_string(gsv_json_member(json, "model_type"));
    if (type && strcmp(type, MODEL_TYPE) == 0) {
        st = parse(&spec->config, json, error);
        if (st != GPUSERVE_OK)
            st = gsv_fail_in(error, st, "%s", gsv_dir_path(dir));
    }
    gsv_json_free(&json);
    return st;
}

/* ----------------------------------------------------------------------------------------- items
 */

/* The names of one direction of a layer. */
struct cell_names {
    char ih[GSV_TENSOR_NAME_BYTES], hh[GSV_TENSOR_NAME_BYTES];
    char bias_ih[GSV_TENSOR_NAME_BYTES], bias_hh[GSV_TENSOR_NAME_BYTES]; /* Keras: one bias */
};

static void name_torch(struct cell_names *names, int32_t layer, int32_t direction)
{
    const char *suffix = direction ? "_reverse" : "";

    snprintf(names->ih, sizeof(names->ih), "lstm.weight_ih_l%d%s", layer, suffix);
    snprintf(names->hh, sizeof(names->hh), "lstm.weight_hh_l%d%s", layer, suffix);
    snprintf(names->bias_ih, sizeof(names->bias_ih), "lstm.bias_ih_l%d%s", layer, suffix);
    snprintf(names->bias_hh, sizeof(names->bias_hh), "lstm.bias_hh_l%d%s", layer, suffix);
}

/* Keras numbers the second layer 1 and leaves the number of the first one out. */
static void name_keras(struct cell_names *names, int32_t layer, int32_t direction, bool both)
{
    char number[16] = "", cell[128];

    if (layer > 0)
        snprintf(number, sizeof(number), "_%d", layer);
    if (both)
        snprintf(cell, sizeof(cell), "bidirectional%s/%s_lstm%s/lstm_cell", number,
                 direction ? "backward" : "forward", number);
    else
        snprintf(cell, sizeof(cell), "lstm%s/lstm_cell", number);
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
    return layer == 0 ? config->embedding_size : config->hidden_size;
}

static gpuserve_status add_direction(const struct gsv_collector *c, int32_t layer,
                                     int32_t direction)
{
    const struct gsv_config *config = &c->spec->config;
    const struct gsv_recurrent *recurrent = &config->recurrent;
    const int32_t rows = 4 * recurrent->units, input = input_of(config, layer);
    const enum gsv_presence bias = recurrent->has_bias ? GSV_REQUIRED : GSV_ABSENT;
    struct gsv_weight *item =
        gsv_add_item(c->spec, GSV_ITEM_RECURRENT, rows, input + recurrent->units);
    struct cell_names names;
    gpuserve_status st;

    item->which = direction;
    if (recurrent->is_keras)
        name_keras(&names, layer, direction, recurrent->directions == 2);
    else
        name_torch(&names, layer, direction);
    st = find_matrix(c, &item->weight[0], names.ih, rows, input);
    if (st == GPUSERVE_OK)
        st = find_matrix(c, &item->weight[1], names.hh, rows, recurrent->units);
    if (st == GPUSERVE_OK)
        st = gsv_find_tensor(c, &item->bias[0], names.bias_ih, "", NULL, 0, rows, bias);
    if (st == GPUSERVE_OK && names.bias_hh[0])
        st = gsv_find_tensor(c, &item->bias[1], names.bias_hh, "", NULL, 0, rows, bias);
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
    const struct gsv_collector c = { spec, &spec->weights, "", error };
    const char *name =
        config->recurrent.is_keras ? "embedding/embeddings" : "embedding.weight|embeddings.weight";
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
    spec->recurrent = (int32_t)spec->n_items;
    for (int32_t i = 0; i < config->recurrent.n_layers * config->recurrent.directions; i++) {
        if (st == GPUSERVE_OK)
            st = add_direction(&c, i / config->recurrent.directions,
                               i % config->recurrent.directions);
    }
    spec->first_dense = (int32_t)spec->n_items;
    if (st != GPUSERVE_OK || spec->has_head)
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
    };
}
