/*
 * config.c - reads config.json of a transformer: family, sizes, positions, activation and labels.
 *
 * A setting that changes the result and is not supported is refused by name. The maxima are far
 * above existing models; they keep later size computations within 64 bits.
 */
#include "lib/model/families/config.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/model/formats/checkpoint.h"

#include <gpuserve/sys/backend.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "config.json"
#define MAX_VOCABULARY (1 << 24)
#define MAX_WIDTH (1 << 16)
/* From 512 buckets on, the exact ones reach the largest distance of the logarithmic ones, 128. */
#define MAX_RELATIVE_BUCKETS 511
#define MAX_LAYERS 512
#define MAX_POSITIONS (1 << 20)
#define MAX_LABELS 100000

void gsv_labels_free(char **labels, size_t n_labels)
{
    for (size_t i = 0; labels && i < n_labels; i++)
        free(labels[i]);
    free(labels);
}

void gsv_config_reset(struct gsv_config *config)
{
    free(config->architecture);
    free(config->model_type);
    gsv_labels_free(config->labels, config->n_labels);
    memset(config, 0, sizeof(*config));
}

gpuserve_status gsv_labels_copy(char ***out, size_t *n_out,
                                const struct gsv_json_value *const *texts, size_t n,
                                const char *shown, gpuserve_error *error)
{
    char **labels;

    if (n == 0 || n > MAX_LABELS)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: %zu labels, expected 1 to %d", shown, n,
                        MAX_LABELS);
    labels = gsv_alloc_array(n, sizeof(*labels));
    if (!labels)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", shown);
    for (size_t i = 0; i < n; i++) {
        if (!gsv_json_is(texts[i], GSV_JSON_STRING)) {
            gsv_labels_free(labels, n);
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: label %zu is not a string", shown, i);
        }
        labels[i] = gsv_copy_text(texts[i]->is.text, texts[i]->n);
        if (!labels[i]) {
            gsv_labels_free(labels, n);
            return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", shown);
        }
    }
    *out = labels;
    *n_out = n;
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------ family */

static const char *first_architecture(const struct gsv_json_value *json)
{
    return gsv_json_get_string(gsv_json_at(gsv_json_member(json, "architectures"), 0));
}

static gpuserve_status read_family(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    const char *architecture = first_architecture(json);
    const char *model_type = NULL;
    gpuserve_status st = gsv_json_string(json, "model_type", FILE_NAME, &model_type, error);

    if (st != GPUSERVE_OK)
        return st;
    config->family = gsv_family_find(model_type, architecture);
    if (!config->family || (architecture && !gsv_family_has_class(config->family, architecture))) {
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      FILE_NAME ": architecture '%.64s' of model type '%.64s' is not supported",
                      architecture ? architecture : "(none)", model_type ? model_type : "(none)");
        return gsv_hint(error, st, "supported model types: %s", gsv_family_names());
    }
    if (!model_type)
        model_type = config->family->model_types[0];
    if (!architecture)
        architecture = "(none)";
    config->classifies = strstr(architecture, "ForSequenceClassification") != NULL;
    config->labels_tokens = strstr(architecture, "ForTokenClassification") != NULL;
    config->is_masked = strstr(architecture, "ForMaskedLM") != NULL;
    config->architecture = gsv_copy_text(architecture, strlen(architecture));
    config->model_type = gsv_copy_text(model_type, strlen(model_type));
    if (!config->architecture || !config->model_type)
        return gsv_fail(error, GPUSERVE_E_NOMEM, FILE_NAME ": out of memory");
    return GPUSERVE_OK;
}

/* Refuse JSON fields that change the computation and that no family here implements. */
static gpuserve_status refuse_fields(const struct gsv_json_value *json, gpuserve_error *error)
{
    const struct gsv_json_value *const code = gsv_json_member(json, "auto_map");
    const struct gsv_json_value *const scaling = gsv_json_member(json, "rope_scaling");

    if (code && !gsv_json_is(code, GSV_JSON_NULL) &&
        !(gsv_json_is(code, GSV_JSON_OBJECT) && code->n == 0))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": \"auto_map\" names custom Python code, which gpuserve does "
                                  "not run: the architecture may differ from model_type");
    if (scaling && !gsv_json_is(scaling, GSV_JSON_NULL))
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            FILE_NAME
            ": \"rope_scaling\" is not supported: this model_type has no rotary positions");
    return GPUSERVE_OK;
}

static gpuserve_status refuse_variants(const struct gsv_json_value *json, gpuserve_error *error)
{
    const char *kind = "absolute";
    bool decoder = false, cross = false;
    gpuserve_status st = gsv_json_string(json, "position_embedding_type", FILE_NAME, &kind, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "is_decoder", FILE_NAME, &decoder, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "add_cross_attention", FILE_NAME, &cross, error);
    if (st != GPUSERVE_OK)
        return st;
    if (strcmp(kind, "absolute") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": position_embedding_type '%.64s' is not supported, only "
                                  "'absolute' is",
                        kind);
    if (decoder || cross)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": the model is a decoder (is_decoder or add_cross_attention); "
                                  "only encoders are supported");
    return refuse_fields(json, error);
}

/* ------------------------------------------------------------------------------------- sizes */

/* Read a required size, at least 1. */
static gpuserve_status read_size(const struct gsv_json_value *json, const char *key,
                                 int64_t maximum, int32_t *value, gpuserve_error *error)
{
    int64_t found = 0;
    const gpuserve_status st = gsv_json_int(json, key, FILE_NAME, 1, maximum, &found, error);

    if (st != GPUSERVE_OK)
        return st;
    if (found == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, FILE_NAME ": \"%s\" is missing", key);
    *value = (int32_t)found;
    return GPUSERVE_OK;
}

static gpuserve_status read_sizes(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const struct gsv_family *family = config->family;
    const struct {
        const char *key;
        int64_t maximum;
        int32_t *value;
    } sizes[] = {
        { "vocab_size", MAX_VOCABULARY, &config->vocab_size },
        { family->hidden_size, MAX_WIDTH, &config->hidden_size },
        { family->n_layers, MAX_LAYERS, &config->n_layers },
        { family->n_heads, MAX_WIDTH, &config->n_heads },
        { family->intermediate_size, MAX_WIDTH, &config->intermediate_size },
        { "max_position_embeddings", MAX_POSITIONS, &config->max_positions },
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const gpuserve_status st =
            read_size(json, sizes[i].key, sizes[i].maximum, sizes[i].value, error);

        if (st != GPUSERVE_OK)
            return st;
    }
    if (config->hidden_size % config->n_heads != 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME ": hidden_size %d is not divisible by %d attention heads",
                        config->hidden_size, config->n_heads);
    return GPUSERVE_OK;
}

static gpuserve_status read_positions(struct gsv_config *config, const struct gsv_json_value *json,
                                      gpuserve_error *error)
{
    int64_t pad = 1, types = config->family->type ? 2 : 0, buckets = 32;
    gpuserve_status st =
        gsv_json_int(json, "pad_token_id", FILE_NAME, -1, MAX_VOCABULARY, &pad, error);

    if (st == GPUSERVE_OK && config->family->type)
        st = gsv_json_int(json, "type_vocab_size", FILE_NAME, 0, MAX_WIDTH, &types, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "relative_attention_num_buckets", FILE_NAME, 4,
                          MAX_RELATIVE_BUCKETS, &buckets, error);
    if (st != GPUSERVE_OK)
        return st;
    config->type_vocab_size = (int32_t)types;
    config->n_relative_buckets = (int32_t)buckets;
    switch (config->family->position_rule) {
    case GSV_POSITION_FROM_ZERO:
        config->first_position = 0;
        break;
    case GSV_POSITION_AFTER_PAD:
        config->first_position = (int32_t)pad + 1;
        break;
    case GSV_POSITION_FROM_TWO:
        config->first_position = 2;
        break;
    }
    if (config->first_position >= config->max_positions)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME
                        ": positions start at %d, but the position table has only %d rows",
                        config->first_position, config->max_positions);
    return GPUSERVE_OK;
}

static gpuserve_status read_activation(struct gsv_config *config, const struct gsv_json_value *json,
                                       gpuserve_error *error)
{
    static const struct {
        const char *name;
        int32_t activation;
    } names[] = {
        { "gelu", GPUSERVE_ACT_GELU },           { "gelu_python", GPUSERVE_ACT_GELU },
        { "gelu_new", GPUSERVE_ACT_GELU_TANH },  { "gelu_pytorch_tanh", GPUSERVE_ACT_GELU_TANH },
        { "gelu_fast", GPUSERVE_ACT_GELU_TANH }, { "relu", GPUSERVE_ACT_RELU },
        { "silu", GPUSERVE_ACT_SILU },           { "swish", GPUSERVE_ACT_SILU },
        { "tanh", GPUSERVE_ACT_TANH },
    };
    const char *name = "gelu";
    double eps = 1e-12;
    gpuserve_status st = gsv_json_string(json, config->family->activation, FILE_NAME, &name, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_double(json, "layer_norm_eps", FILE_NAME, 0.0, 1.0, &eps, error);
    if (st != GPUSERVE_OK)
        return st;
    config->eps = (float)eps;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, name) == 0) {
            config->activation = names[i].activation;
            return GPUSERVE_OK;
        }
    }
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, FILE_NAME ": %s '%.64s' is not supported",
                    config->family->activation, name);
}

/* ------------------------------------------------------------------------------------ labels */

/* Order {"0": "no", "1": "yes"} by number. */
static gpuserve_status order_labels(const struct gsv_json_value **texts,
                                    const struct gsv_json_value *id2label, gpuserve_error *error)
{
    for (size_t i = 0; i < id2label->n; i++) {
        char key[24];

        snprintf(key, sizeof(key), "%zu", i);
        texts[i] = gsv_json_member(id2label, key);
        if (!texts[i])
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            FILE_NAME ": id2label has %zu labels, but label %zu is missing",
                            id2label->n, i);
    }
    return GPUSERVE_OK;
}

static gpuserve_status read_labels(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    const struct gsv_json_value *id2label = gsv_json_member(json, "id2label");
    const struct gsv_json_value **texts;
    gpuserve_status st;

    if (!id2label || gsv_json_is(id2label, GSV_JSON_NULL))
        return GPUSERVE_OK;
    if (!gsv_json_is(id2label, GSV_JSON_OBJECT))
        return gsv_fail(error, GPUSERVE_E_FORMAT, FILE_NAME ": id2label is not an object");
    texts = gsv_alloc_array(id2label->n, sizeof(*texts));
    if (!texts)
        return gsv_fail(error, GPUSERVE_E_NOMEM, FILE_NAME ": out of memory");
    st = order_labels(texts, id2label, error);
    if (st == GPUSERVE_OK)
        st = gsv_labels_copy(&config->labels, &config->n_labels, texts, id2label->n,
                             FILE_NAME ": id2label", error);
    free(texts);
    return st;
}

/* The activation of a sentence-transformers cross-encoder, the name of a Python class; "" if
 * absent. */
static const char *cross_encoder_activation(const struct gsv_json_value *json)
{
    const struct gsv_json_value *settings = gsv_json_member(json, "sentence_transformers");
    const char *name = gsv_json_get_string(gsv_json_member(settings, "activation_fn"));

    if (!name)
        name = gsv_json_get_string(gsv_json_member(json, "sbert_ce_default_activation_function"));
    return name ? name : "";
}

static gpuserve_status read_score(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const char *type = NULL;
    const char *activation = cross_encoder_activation(json);
    const gpuserve_status st = gsv_json_string(json, "problem_type", FILE_NAME, &type, error);

    if (st != GPUSERVE_OK)
        return st;
    if (strstr(activation, "Sigmoid"))
        config->score = GPUSERVE_SCORE_SIGMOID;
    else if (strstr(activation, "Identity"))
        config->score = GPUSERVE_SCORE_RAW;
    else if (!type)
        config->score = GPUSERVE_SCORE_DEFAULT;
    else if (strcmp(type, "single_label_classification") == 0)
        config->score = GPUSERVE_SCORE_SOFTMAX;
    else if (strcmp(type, "multi_label_classification") == 0)
        config->score = GPUSERVE_SCORE_SIGMOID;
    else if (strcmp(type, "regression") == 0)
        config->score = GPUSERVE_SCORE_RAW;
    else
        return gsv_fail(error, GPUSERVE_E_FORMAT, FILE_NAME ": unknown problem_type '%.64s'", type);
    return GPUSERVE_OK;
}

gpuserve_status gsv_config_parse(struct gsv_config *config, const struct gsv_json_value *json,
                                 gpuserve_error *error)
{
    static gpuserve_status (*const steps[])(struct gsv_config *, const struct gsv_json_value *,
                                            gpuserve_error *) = {
        read_sizes, read_positions, read_activation, read_labels, read_score,
    };
    gpuserve_status st = read_family(config, json, error);

    if (st == GPUSERVE_OK)
        st = refuse_variants(json, error);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && st == GPUSERVE_OK; i++)
        st = steps[i](config, json, error);
    if (st != GPUSERVE_OK)
        gsv_config_reset(config);
    return st;
}

gpuserve_status gsv_config_read(struct gsv_config *config, const struct gsv_dir *dir,
                                const char *folder, gpuserve_error *error)
{
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_json(&json, dir, folder, FILE_NAME, error);

    memset(config, 0, sizeof(*config));
    if (st == GPUSERVE_E_NOT_FOUND)
        return gsv_hint(error, st, GSV_MODEL_DIRECTORY_HINT);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_config_parse(config, json, error);
    gsv_json_free(&json);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "%s", gsv_dir_path(dir));
}
