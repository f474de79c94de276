/*
 * recurrent_config.c - reads the configuration of models of LSTM or GRU layers: config.json with
 * the model type "recurrent" (docs/recurrent.md), or the modules WordEmbeddings and LSTM of
 * sentence-transformers.
 */
#include "lib/model/spec.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <string.h>

#define MODEL_TYPE "recurrent"
#define MAX_WORDS (1 << 24)
#define MAX_UNITS (1 << 14)
#define MAX_LAYERS 64
#define MAX_TOKENS 8192
#define DEFAULT_TOKENS 512

static const char *const no_names[] = { NULL };
static const struct gsv_tensor_names recurrent_names = { .word = "embedding" };
static const struct gsv_family recurrent_family = {
    .model_types = no_names,
    .classes = no_names,
    .names = { &recurrent_names },
    .norm_position = GSV_NORM_AFTER,
    .norm_bias = GSV_ABSENT,
};

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

/* The gates of a cell in the order in which a backend takes them. `other`: a second letter of the
 * third one. */
static const struct cell {
    const char *name, *gates;
    char other;
    const char *torch, *keras; /* usual orders in files */
    const char *words;         /* for messages */
} cells[] = {
    [GPUSERVE_CELL_LSTM] = { "lstm", "ifco", 'g', "ifgo", "ifgo",
                             "i (input), f (forget), g or c (cell) and o (output)" },
    [GPUSERVE_CELL_GRU] = { "gru", "rzn", 'h', "rzn", "zrh",
                            "r (reset), z (update) and n or h (new)" },
};

static gpuserve_status read_cell(struct gsv_recurrent *recurrent, const struct gsv_json_value *json,
                                 gpuserve_error *error)
{
    const char *name = "lstm";
    const gpuserve_status st = gsv_json_string(json, "cell", GSV_CONFIG_NAME, &name, error);

    if (st != GPUSERVE_OK)
        return st;
    for (uint32_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
        if (strcmp(name, cells[i].name) == 0) {
            recurrent->cell = i;
            return GPUSERVE_OK;
        }
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    GSV_CONFIG_NAME ": cell '%.64s' is not supported, only 'lstm' and 'gru' are",
                    name);
}

/* Where `order` has each gate. */
static gpuserve_status read_order(struct gsv_recurrent *recurrent, const char *order,
                                  gpuserve_error *error)
{
    const struct cell *cell = &cells[recurrent->cell];
    const size_t n = strlen(cell->gates);
    bool is_order = strlen(order) == n;

    for (size_t gate = 0; gate < n && is_order; gate++) {
        const char *at = strchr(order, cell->gates[gate]);

        if (!at && gate == 2)
            at = strchr(order, cell->other);
        is_order = at != NULL;
        recurrent->order[gate] = at ? (int32_t)(at - order) : 0;
    }
    if (is_order)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    GSV_CONFIG_NAME ": gate_order '%.64s' is not an order of the gates %s", order,
                    cell->words);
}

/* Keras has one bias of each gate, or with reset_after two of them. */
static gpuserve_status read_reset(struct gsv_recurrent *recurrent,
                                  const struct gsv_json_value *json, gpuserve_error *error)
{
    bool is_after = true;
    const gpuserve_status st =
        gsv_json_bool(json, "reset_after", GSV_CONFIG_NAME, &is_after, error);

    if (st != GPUSERVE_OK || is_after)
        return st;
    if (recurrent->cell != GPUSERVE_CELL_GRU || !recurrent->is_keras)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        GSV_CONFIG_NAME ": reset_after false is supported with cell 'gru' and "
                                        "layout 'keras' only");
    recurrent->cell = GPUSERVE_CELL_GRU_RESET_BEFORE;
    return GPUSERVE_OK;
}

static gpuserve_status read_layout(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    struct gsv_recurrent *recurrent = &config->recurrent;
    const char *layout = "torch", *order = NULL;
    gpuserve_status st = read_cell(recurrent, json, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "layout", GSV_CONFIG_NAME, &layout, error);
    recurrent->has_bias = true;
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "bias", GSV_CONFIG_NAME, &recurrent->has_bias, error);
    if (st != GPUSERVE_OK)
        return st;
    recurrent->is_keras = strcmp(layout, "keras") == 0;
    if (!recurrent->is_keras && strcmp(layout, "torch") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        GSV_CONFIG_NAME ": layout '%.64s' is not supported, only 'torch' and "
                                        "'keras' are",
                        layout);
    order = recurrent->is_keras ? cells[recurrent->cell].keras : cells[recurrent->cell].torch;
    st = gsv_json_string(json, "gate_order", GSV_CONFIG_NAME, &order, error);
    if (st == GPUSERVE_OK)
        st = read_order(recurrent, order, error);
    return st == GPUSERVE_OK ? read_reset(recurrent, json, error) : st;
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

static gpuserve_status name_model(struct gsv_config *config, const char *class, const char *type,
                                  gpuserve_error *error)
{
    config->architecture = gsv_copy_text(class, strlen(class));
    config->model_type = gsv_copy_text(type, strlen(type));
    if (!config->architecture || !config->model_type)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the configuration");
    config->family = &recurrent_family;
    config->n_heads = config->n_kv_heads = config->head_size = 1; /* there is no attention */
    config->pad_id = -1;
    config->norm_bias = GSV_ABSENT;
    return GPUSERVE_OK;
}

static gpuserve_status parse(struct gsv_config *config, const struct gsv_json_value *json,
                             gpuserve_error *error)
{
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
    config->classifies = true;
    return name_model(config, "RecurrentForSequenceClassification", MODEL_TYPE, error);
}

gpuserve_status gsv_recurrent_read(struct gsv_spec *spec, const struct gsv_dir *dir,
                                   gpuserve_error *error)
{
    struct gsv_json_value *json;
    const char *type;
    gpuserve_status st;

    if (spec->modules.is_static || spec->modules.words.present || gsv_dir_gguf(dir))
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

/* The vocabulary is that of the table, whose first row is of padding. */
gpuserve_status gsv_recurrent_configure(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_word_modules *words = &spec->modules.words;
    struct gsv_config *config = &spec->config;
    struct gsv_recurrent *recurrent = &config->recurrent;
    struct gsv_tensor table;

    if (!gsv_checkpoint_find(&spec->weights, GSV_WORD_TABLE, &table))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '" GSV_WORD_TABLE "' is missing",
                        gsv_weight_file_name(spec->weights.files[0]));
    if (table.rank != 2 || table.shape[0] < 1 || table.shape[0] > MAX_WORDS)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '" GSV_WORD_TABLE "' is not a table of 1 to %d rows",
                        gsv_weight_file_name(table.file), MAX_WORDS);
    config->vocab_size = (int32_t)table.shape[0];
    config->embedding_size = words->inputs;
    config->max_positions = MAX_TOKENS;
    recurrent->n_layers = words->n_layers;
    recurrent->units = words->units;
    recurrent->directions = words->is_bidirectional ? 2 : 1;
    recurrent->has_bias = recurrent->is_words = true;
    for (int32_t gate = 0; gate < 4; gate++)
        recurrent->order[gate] = gate;
    config->hidden_size = recurrent->directions * recurrent->units;
    return name_model(config, "WordEmbeddings-LSTM", "lstm", error);
}
