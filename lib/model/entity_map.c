/*
 * entity_map.c - heads that find entities of labels given with the text (GLiNER): reads
 * gliner_config.json and finds the weights.
 *
 *   encoder -> projection -> vectors of words -> LSTM -> starts, ends    } spans (markerV0)
 *                         -> vectors of labels -> queries                }
 *                         -> both -> logits of start, end and inside     tokens (token_level)
 *
 * Tensors:
 *   token_rep_layer.bert_layer.model.*   the encoder, under the names of its own checkpoints
 *   token_rep_layer.projection           [width, hidden_size], if the two differ
 *   rnn.lstm.*                           torch.nn.LSTM, in both directions
 *   prompt_rep_layer.{0,3}               two layers with ReLU between them, as the next three
 *   span_rep_layer.span_rep_layer.{project_start,project_end,out_project}.{0,3}
 *   scorer.{proj_token,proj_label,out_mlp.0,out_mlp.3}
 *
 * Parts of the architecture that are not computed are refused by the name of their setting.
 */
#include "lib/model/weight_map.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <string.h>

#define FILE_NAME "gliner_config.json"
#define MAX_SPAN 64
#define MAX_WORDS 4096
#define MAX_ENTITY_WIDTH 8192
#define MAX_LSTM_LAYERS 8
#define MAX_VOCABULARY (1 << 24)
/* Of a text with labels, for an encoder whose positions are all relative. */
#define MAX_RELATIVE_TOKENS 2048
#define SPANS "span_rep_layer.span_rep_layer."

/* --------------------------------------------------------------------------------- configuration
 */

/* True if a setting is absent, null, false, 0 or empty. */
static bool is_off(const struct gsv_json_value *value)
{
    return !value || gsv_json_is(value, GSV_JSON_NULL) ||
           (gsv_json_is(value, GSV_JSON_BOOL) && !value->is.boolean) ||
           (gsv_json_is(value, GSV_JSON_INT) && value->is.whole == 0) ||
           (gsv_json_is(value, GSV_JSON_STRING) && value->n == 0);
}

static gpuserve_status refuse_parts(const struct gsv_json_value *json, gpuserve_error *error)
{
    static const char *const keys[] = {
        "fuse_layers",     "post_fusion_schema", "labels_encoder",      "labels_decoder",
        "relations_layer", "represent_spans",    "span_encoder_config", "precomputed_prompts_mode",
    };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!is_off(gsv_json_member(json, keys[i])))
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            FILE_NAME ": \"%s\" is not supported: only models with one encoder and "
                                      "a span or token head are",
                            keys[i]);
    return GPUSERVE_OK;
}

/* Index of a setting's value in a list that ends with NULL; the first one by default. */
static gpuserve_status read_choice(const struct gsv_json_value *json, const char *key,
                                   const char *const values[], size_t *choice,
                                   gpuserve_error *error)
{
    const char *value = values[0];
    const gpuserve_status st = gsv_json_string(json, key, FILE_NAME, &value, error);

    if (st != GPUSERVE_OK)
        return st;
    for (*choice = 0; values[*choice]; ++*choice)
        if (strcmp(values[*choice], value) == 0)
            return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, FILE_NAME ": %s '%.64s' is not supported", key,
                    value);
}

static gpuserve_status read_modes(struct gsv_entity_facts *facts, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    static const char *const spans[] = { "markerV0", "token_level", "token-level", NULL };
    static const char *const subtokens[] = { "first", "last", "mean", "max",
                                             NULL }; /* enum gsv_subtokens */
    static const char *const splitters[] = { "whitespace", NULL };
    bool uses_class_token = true;
    size_t choice;
    gpuserve_status st = read_choice(json, "span_mode", spans, &choice, error);

    if (st != GPUSERVE_OK)
        return st;
    facts->by_token = choice > 0;
    st = read_choice(json, "words_splitter_type", splitters, &choice, error);
    if (st == GPUSERVE_OK)
        st = read_choice(json, "subtoken_pooling", subtokens, &choice, error);
    if (st != GPUSERVE_OK)
        return st;
    facts->subtokens = (enum gsv_subtokens)choice;
    st = gsv_json_bool(json, "embed_ent_token", FILE_NAME, &uses_class_token, error);
    facts->after_class_token = !uses_class_token;
    return st;
}

static gpuserve_status read_sizes(struct gsv_spec *spec, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    struct gsv_entity_facts *facts = &spec->facts.entity;
    int64_t width = 512, span = 12, words = 384, layers = 1, class_token = -1;
    gpuserve_status st =
        gsv_json_int(json, "hidden_size", FILE_NAME, 1, MAX_ENTITY_WIDTH, &width, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "max_width", FILE_NAME, 1, MAX_SPAN, &span, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "max_len", FILE_NAME, 1, MAX_WORDS, &words, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "num_rnn_layers", FILE_NAME, -1, MAX_LSTM_LAYERS, &layers, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "class_token_index", FILE_NAME, -1, MAX_VOCABULARY - 1,
                          &class_token, error);
    if (st == GPUSERVE_OK && layers > 0 && width % 2 != 0)
        st = gsv_fail(error, GPUSERVE_E_FORMAT,
                      FILE_NAME ": hidden_size %d is not even, as an LSTM in both directions needs",
                      (int)width);
    facts->width = (int32_t)width;
    facts->inner = 4 * facts->width;
    facts->max_span = facts->by_token ? 0 : (int32_t)span;
    facts->max_words = (int32_t)words;
    facts->class_token_id = (int32_t)class_token;
    spec->entity_layers = layers > 0 ? (int32_t)layers : 0;
    return st;
}

static gpuserve_status read_tokens(struct gsv_spec *spec, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    static const char *const keys[] = { "ent_token", "sep_token" };
    const char *texts[] = { "<<ENT>>", "<<SEP>>" };

    for (size_t i = 0; i < 2; i++) {
        const gpuserve_status st = gsv_json_string(json, keys[i], FILE_NAME, &texts[i], error);

        if (st != GPUSERVE_OK)
            return st;
        spec->entity_tokens[i] = gsv_copy_text(texts[i], strlen(texts[i]));
        if (!spec->entity_tokens[i])
            return gsv_fail(error, GPUSERVE_E_NOMEM, FILE_NAME ": out of memory");
    }
    spec->facts.entity.class_token = spec->entity_tokens[0];
    spec->facts.entity.separator = spec->entity_tokens[1];
    return GPUSERVE_OK;
}

static gpuserve_status read_encoder(struct gsv_spec *spec, const struct gsv_dir *dir,
                                    const struct gsv_json_value *json, gpuserve_error *error)
{
    const struct gsv_json_value *encoder = gsv_json_member(json, "encoder_config");
    gpuserve_status st;

    if (gsv_json_is(encoder, GSV_JSON_OBJECT)) {
        st = gsv_config_parse(&spec->config, encoder, error);
        return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, FILE_NAME ": encoder_config");
    }
    if (gsv_dir_has_in(dir, spec->modules.transformer, GSV_CONFIG_NAME))
        return gsv_config_read(&spec->config, dir, spec->modules.transformer, error);
    gsv_fail(error, GPUSERVE_E_NOT_FOUND,
             FILE_NAME
             ": \"encoder_config\" is missing, and the directory has no " GSV_CONFIG_NAME);
    return gsv_hint(error, GPUSERVE_E_NOT_FOUND,
                    "copy " GSV_CONFIG_NAME " and the tokenizer files of the encoder that "
                    "\"model_name\" names into the directory");
}

static void set_recurrent(struct gsv_spec *spec)
{
    struct gsv_recurrent *recurrent = &spec->config.recurrent;

    if (spec->entity_layers == 0)
        return;
    *recurrent = (struct gsv_recurrent){
        .n_layers = spec->entity_layers,
        .units = spec->facts.entity.width / 2,
        .directions = 2,
        .order = { 0, 1, 2, 3 },
        .has_bias = true,
        .over_words = true,
    };
}

gpuserve_status gsv_entity_read(struct gsv_spec *spec, const struct gsv_dir *dir,
                                gpuserve_error *error)
{
    struct gsv_json_value *json;
    gpuserve_status st;

    if (spec->modules.is_static || gsv_dir_gguf(dir) || spec->config.family)
        return GPUSERVE_OK;
    st = gsv_read_optional_json(&json, dir, spec->modules.transformer, FILE_NAME, error);
    if (st != GPUSERVE_OK || !json)
        return st;
    st = refuse_parts(json, error);
    if (st == GPUSERVE_OK)
        st = read_modes(&spec->facts.entity, json, error);
    if (st == GPUSERVE_OK)
        st = read_sizes(spec, json, error);
    if (st == GPUSERVE_OK)
        st = read_tokens(spec, json, error);
    if (st == GPUSERVE_OK)
        st = read_encoder(spec, dir, json, error);
    if (st == GPUSERVE_OK)
        set_recurrent(spec);
    gsv_json_free(&json);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "%s", gsv_dir_path(dir));
}

gpuserve_status gsv_entity_set_vocabulary(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_collector c = { spec, &spec->weights, GSV_ENTITY_PREFIX, error };
    char name[GSV_TENSOR_NAME_BYTES];
    struct gsv_tensor words;

    if (spec->facts.entity.width == 0)
        return GPUSERVE_OK;
    if (!gsv_lookup(&c, &words, spec->config.family->names[0]->word, ".weight", name))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is missing",
                        gsv_weight_file_name(spec->weights.files[0]), name);
    if (words.rank != 2 || words.shape[0] < 1 || words.shape[0] > MAX_VOCABULARY)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' is not a matrix of 1 to %d rows",
                        gsv_weight_file_name(words.file), name, MAX_VOCABULARY);
    spec->config.vocab_size = (int32_t)words.shape[0];
    return GPUSERVE_OK;
}

void gsv_entity_set_limits(struct gsv_spec *spec)
{
    struct gsv_spec_facts *facts = &spec->facts;

    if (facts->entity.width == 0)
        return;
    facts->no_int8 = "entity head";
    /* Distances beyond the last bucket share it, so that no table limits the length. */
    if (spec->config.relative.kind == GSV_RELATIVE_DISENTANGLED && spec->config.no_position_table &&
        facts->max_tokens == facts->max_positions && facts->max_tokens < MAX_RELATIVE_TOKENS)
        facts->max_tokens = facts->max_positions = MAX_RELATIVE_TOKENS;
}

/* ----------------------------------------------------------------------------------------- items
 */

static gpuserve_status add(const struct gsv_collector *c, const char *name, int32_t rows,
                           int32_t cols, int32_t activation, int32_t *index)
{
    *index = (int32_t)c->spec->n_items;
    return gsv_add_linear(c, GSV_ITEM_LINEAR_EXACT, name, GSV_REQUIRED, rows, cols, activation);
}

/* The first layer of a projection with its ReLU, and the second one with `activation`. */
static gpuserve_status add_projection(const struct gsv_collector *c, const char *name,
                                      int32_t activation, int32_t items[2])
{
    const int32_t width = c->spec->facts.entity.width, inner = c->spec->facts.entity.inner;
    char layer[GSV_TENSOR_NAME_BYTES];
    gpuserve_status st;

    snprintf(layer, sizeof(layer), "%s.0", name);
    st = add(c, layer, inner, width, GPUSERVE_ACT_RELU, &items[0]);
    snprintf(layer, sizeof(layer), "%s.3", name);
    return st == GPUSERVE_OK ? add(c, layer, width, inner, activation, &items[1]) : st;
}

/* Half of the columns of the first layer of out_project: those of the start, with its bias, or
 * those of the end. */
static gpuserve_status add_half(const struct gsv_collector *c, bool is_end, int32_t *index)
{
    const int32_t width = c->spec->facts.entity.width, inner = c->spec->facts.entity.inner;
    struct gsv_weight *item = gsv_add_item(c->spec, GSV_ITEM_LINEAR_EXACT, inner, width);
    gpuserve_status st;

    *index = (int32_t)(item - c->spec->items);
    item->n_file_columns = 2 * width;
    item->first = is_end ? width : 0;
    st = gsv_find_tensor(c, &item->weight[0], SPANS "out_project.0", ".weight", NULL, inner,
                         2 * width, GSV_REQUIRED);
    return st == GPUSERVE_OK && !is_end ? gsv_find_tensor(c, &item->bias[0], SPANS "out_project.0",
                                                          ".bias", NULL, 0, inner, GSV_REQUIRED)
                                        : st;
}

/* The last layer of out_project, whose output is multiplied by the label's vector p: with
 * weights W and bias b the score is (W x + b) p = x (W' p) + b p. `query` computes W' p from p,
 * `query_bias` computes b p. */
static gpuserve_status add_query(const struct gsv_collector *c)
{
    const int32_t width = c->spec->facts.entity.width, inner = c->spec->facts.entity.inner;
    struct gsv_entity_items *items = &c->spec->entity;
    struct gsv_weight *item = gsv_add_item(c->spec, GSV_ITEM_LINEAR_EXACT, inner, width);
    gpuserve_status st = gsv_find_tensor(c, &item->weight[0], SPANS "out_project.3", ".weight",
                                         NULL, width, inner, GSV_REQUIRED);

    items->query = (int32_t)(item - c->spec->items);
    item->transposed = true;
    if (st != GPUSERVE_OK)
        return st;
    item = gsv_add_item(c->spec, GSV_ITEM_LINEAR_EXACT, 1, width);
    items->query_bias = (int32_t)(item - c->spec->items);
    return gsv_find_tensor(c, &item->weight[0], SPANS "out_project.3", ".bias", NULL, 0, width,
                           GSV_REQUIRED);
}

static gpuserve_status add_spans(const struct gsv_collector *c)
{
    struct gsv_entity_items *items = &c->spec->entity;
    gpuserve_status st = add_projection(c, "prompt_rep_layer", GPUSERVE_ACT_NONE, items->prompt);

    if (st == GPUSERVE_OK)
        st = add_query(c);
    if (st == GPUSERVE_OK)
        st = add_projection(c, SPANS "project_start", GPUSERVE_ACT_RELU, items->start);
    if (st == GPUSERVE_OK)
        st = add_half(c, false, &items->start[2]);
    if (st == GPUSERVE_OK)
        st = add_projection(c, SPANS "project_end", GPUSERVE_ACT_RELU, items->end);
    return st == GPUSERVE_OK ? add_half(c, true, &items->end[2]) : st;
}

static gpuserve_status add_tokens(const struct gsv_collector *c)
{
    const int32_t width = c->spec->facts.entity.width;
    struct gsv_entity_items *items = &c->spec->entity;
    gpuserve_status st =
        add(c, "scorer.proj_token", 2 * width, width, GPUSERVE_ACT_NONE, &items->word_pair);

    if (st == GPUSERVE_OK)
        st = add(c, "scorer.proj_label", 2 * width, width, GPUSERVE_ACT_NONE, &items->label_pair);
    if (st == GPUSERVE_OK)
        st = add(c, "scorer.out_mlp.0", 4 * width, 3 * width, GPUSERVE_ACT_RELU, &items->pair[0]);
    return st == GPUSERVE_OK
               ? add(c, "scorer.out_mlp.3", 3, 4 * width, GPUSERVE_ACT_NONE, &items->pair[1])
               : st;
}

gpuserve_status gsv_collect_entity_head(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_collector c = { spec, &spec->weights, "", error };
    const struct gsv_collector rnn = { spec, &spec->weights, "rnn.", error };
    gpuserve_status st = GPUSERVE_OK;

    if (spec->facts.entity.width == 0)
        return GPUSERVE_OK;
    if (spec->config.recurrent.over_words)
        st = gsv_recurrent_add_layers(&rnn);
    if (st != GPUSERVE_OK)
        return st;
    return spec->facts.entity.by_token ? add_tokens(&c) : add_spans(&c);
}
