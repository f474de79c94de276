/*
 * config.c - reads config.json of a transformer: family, sizes, positions, options, labels.
 *
 *   family row -> sizes -> positions -> activation -> options of all families -> the family's own
 *
 * A setting that changes the result and is not supported is refused by name. The maxima are far
 * above existing models; they keep later size computations within 64 bits.
 */
#include "lib/model/families/config.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/formats/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME GSV_CONFIG_NAME
#define MAX_VOCABULARY (1 << 24)
/* From 512 buckets on, the exact ones reach the largest distance of the logarithmic ones, 128. */
#define MAX_RELATIVE_BUCKETS 511
#define MAX_POSITIONS (1 << 20)
#define MAX_KEY_BYTES 64

void gsv_config_reset(struct gsv_config *config)
{
    free(config->architecture);
    free(config->model_type);
    gsv_labels_free(config->labels, config->n_labels);
    gsv_adapters_reset(&config->adapters);
    memset(config, 0, sizeof(*config));
}

/* -------------------------------------------------------------------------------------- getters */

/* The first key of "a|b" that the object has with a value other than null; else the first key. */
static void find_key(char key[MAX_KEY_BYTES], const struct gsv_json_value *json, const char *keys)
{
    char first[MAX_KEY_BYTES] = "";

    for (const char *at = keys; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const struct gsv_json_value *value;

        snprintf(key, MAX_KEY_BYTES, "%.*s", (int)strcspn(at, "|"), at);
        if (at == keys)
            memcpy(first, key, sizeof(first));
        value = gsv_json_member(json, key);
        if (value && !gsv_json_is(value, GSV_JSON_NULL))
            return;
    }
    memcpy(key, first, sizeof(first));
}

gpuserve_status gsv_config_size(const struct gsv_json_value *json, const char *keys,
                                int64_t maximum, int32_t *value, gpuserve_error *error)
{
    char key[MAX_KEY_BYTES];
    int64_t found = 0;
    gpuserve_status st;

    find_key(key, json, keys);
    st = gsv_json_int(json, key, FILE_NAME, 1, maximum, &found, error);
    if (st == GPUSERVE_OK && found > 0)
        *value = (int32_t)found;
    return st;
}

/* Like gsv_config_size(), but the value must be there unless `*value` is already set. */
static gpuserve_status read_size(const struct gsv_json_value *json, const char *keys,
                                 int64_t maximum, int32_t *value, gpuserve_error *error)
{
    gpuserve_status st;

    if (!keys)
        return GPUSERVE_OK;
    st = gsv_config_size(json, keys, maximum, value, error);
    if (st != GPUSERVE_OK || *value != 0)
        return st;
    return gsv_fail(error, GPUSERVE_E_FORMAT, FILE_NAME ": \"%.*s\" is missing",
                    (int)strcspn(keys, "|"), keys);
}

gpuserve_status gsv_config_refuse(const struct gsv_json_value *json, const char *key,
                                  gpuserve_error *error)
{
    const struct gsv_json_value *value = gsv_json_member(json, key);

    if (!value || gsv_json_is(value, GSV_JSON_NULL) ||
        (gsv_json_is(value, GSV_JSON_BOOL) && !value->is.boolean) ||
        (gsv_json_is(value, GSV_JSON_INT) && value->is.whole == 0))
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, FILE_NAME ": \"%s\" is not supported", key);
}

/* --------------------------------------------------------------------------------------- family */

static const char *first_architecture(const struct gsv_json_value *json)
{
    return gsv_json_get_string(gsv_json_at(gsv_json_member(json, "architectures"), 0));
}

/* Bytes of a class name before its end: 4 of "BertModel" and "BertForMaskedLM". */
static size_t class_start(const char *architecture)
{
    const char *end = strstr(architecture, "For");

    if (!end)
        end = strstr(architecture, "Model");
    return end ? (size_t)(end - architecture) : strlen(architecture);
}

static gpuserve_status read_family(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    const char *architecture = first_architecture(json);
    const char *model_type = NULL;
    char of_adapter[128];
    gpuserve_status st = gsv_json_string(json, "model_type", FILE_NAME, &model_type, error);

    if (st != GPUSERVE_OK)
        return st;
    config->is_late = architecture && model_type && strcmp(architecture, "HF_ColBERT") == 0;
    config->family = gsv_family_find(model_type, config->is_late ? NULL : architecture);
    if (!config->family) {
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      FILE_NAME ": architecture '%.64s' of model type '%.64s' is not supported",
                      architecture ? architecture : "(none)", model_type ? model_type : "(none)");
        return gsv_hint(error, st, "supported model types: %s", gsv_family_names());
    }
    if (!model_type)
        model_type = config->family->model_types[0];
    if (!architecture)
        architecture = "(none)";
    if (config->adapter_class) {
        snprintf(of_adapter, sizeof(of_adapter), "%.*s%s", (int)class_start(architecture),
                 architecture, config->adapter_class);
        architecture = of_adapter;
    }
    config->classifies = strstr(architecture, "ForSequenceClassification") != NULL;
    config->labels_tokens = strstr(architecture, "ForTokenClassification") != NULL;
    config->is_masked = strstr(architecture, "ForMaskedLM") != NULL;
    config->architecture = gsv_copy_text(architecture, strlen(architecture));
    config->model_type = gsv_copy_text(model_type, strlen(model_type));
    if (!config->architecture || !config->model_type)
        return gsv_fail(error, GPUSERVE_E_NOMEM, FILE_NAME ": out of memory");
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------- refused fields */

/* True if `text` ends with one of the names "A|B". */
static bool ends_with_any(const char *text, const char *names)
{
    for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        const size_t n = strcspn(at, "|"), length = strlen(text);

        if (length >= n && memcmp(text + length - n, at, n) == 0)
            return true;
    }
    return false;
}

/* Custom code may compute something else. A family published with custom code is implemented from
 * it, and recognized by the class of its configuration. */
static gpuserve_status refuse_code(const struct gsv_config *config,
                                   const struct gsv_json_value *json, gpuserve_error *error)
{
    const struct gsv_json_value *const code = gsv_json_member(json, "auto_map");
    const char *class = gsv_json_get_string(gsv_json_member(code, "AutoConfig"));

    if (!code || gsv_json_is(code, GSV_JSON_NULL) ||
        (gsv_json_is(code, GSV_JSON_OBJECT) && code->n == 0))
        return GPUSERVE_OK;
    if (class && config->family->code && ends_with_any(class, config->family->code))
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    FILE_NAME ": \"auto_map\" names custom Python code, which gpuserve does "
                              "not run: the architecture may differ from model_type");
}

/* Rotary settings in a family without rotary positions. */
static gpuserve_status refuse_rotary(const struct gsv_config *config,
                                     const struct gsv_json_value *json, gpuserve_error *error)
{
    static const char *const keys[] = { "rope_scaling", "rope_parameters" };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && config->family->theta <= 0; i++) {
        const struct gsv_json_value *const settings = gsv_json_member(json, keys[i]);

        if (settings && !gsv_json_is(settings, GSV_JSON_NULL))
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            FILE_NAME
                            ": \"%s\" is not supported: this model_type has no rotary positions",
                            keys[i]);
    }
    return GPUSERVE_OK;
}

static gpuserve_status refuse_variants(struct gsv_config *config, const struct gsv_json_value *json,
                                       gpuserve_error *error)
{
    const char *kind = NULL;
    bool decoder = false, cross = false;
    gpuserve_status st = gsv_json_string(json, "position_embedding_type", FILE_NAME, &kind, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "is_decoder", FILE_NAME, &decoder, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "add_cross_attention", FILE_NAME, &cross, error);
    if (st != GPUSERVE_OK)
        return st;
    if (kind && config->family->position_type && strcmp(kind, config->family->position_type) != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": position_embedding_type '%.64s' is not supported, only "
                                  "'%s' is",
                        kind, config->family->position_type);
    if ((decoder || cross) && !config->family->is_causal)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": the model is a decoder (is_decoder or add_cross_attention); "
                                  "only encoders are supported");
    st = refuse_code(config, json, error);
    return st == GPUSERVE_OK ? refuse_rotary(config, json, error) : st;
}

/* ---------------------------------------------------------------------------------------- sizes */

static gpuserve_status check_heads(struct gsv_config *config, gpuserve_error *error)
{
    if (config->head_size == 0) {
        if (gsv_inner_size(config) % config->n_heads != 0)
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            FILE_NAME ": %s %d is not divisible by %d attention heads",
                            config->bottleneck.width > 0 ? "intra_bottleneck_size" : "hidden_size",
                            gsv_inner_size(config), config->n_heads);
        config->head_size = gsv_inner_size(config) / config->n_heads;
    }
    if (config->n_heads % config->n_kv_heads != 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME ": %d attention heads are not divisible by %d key-value heads",
                        config->n_heads, config->n_kv_heads);
    if ((int64_t)(config->n_heads + 2 * (int64_t)config->n_kv_heads) * config->head_size >
        3 * (int64_t)GSV_MAX_WIDTH)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        FILE_NAME ": %d attention heads of size %d exceed %d columns",
                        config->n_heads, config->head_size, 3 * GSV_MAX_WIDTH);
    return GPUSERVE_OK;
}

static gpuserve_status read_sizes(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const struct gsv_config_keys *keys = config->family->keys;
    const struct {
        const char *keys;
        int64_t maximum;
        int32_t *value;
    } sizes[] = {
        { "vocab_size", MAX_VOCABULARY, &config->vocab_size },
        { keys->hidden_size, GSV_MAX_WIDTH, &config->hidden_size },
        { keys->n_layers, GSV_MAX_LAYERS, &config->n_layers },
        { keys->n_heads, GSV_MAX_WIDTH, &config->n_heads },
        { keys->intermediate_size, GSV_MAX_WIDTH, &config->intermediate_size },
        { keys->max_positions, MAX_POSITIONS, &config->max_positions },
        { keys->embedding_size, GSV_MAX_WIDTH, &config->embedding_size },
        { keys->n_kv_heads, GSV_MAX_WIDTH, &config->n_kv_heads },
        { keys->head_size, GSV_MAX_WIDTH, &config->head_size },
    };
    const size_t n_required = 6;

    config->max_positions = config->family->default_max_positions;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gpuserve_status st = GPUSERVE_OK;

        if (i < n_required)
            st = read_size(json, sizes[i].keys, sizes[i].maximum, sizes[i].value, error);
        else if (sizes[i].keys)
            st = gsv_config_size(json, sizes[i].keys, sizes[i].maximum, sizes[i].value, error);
        if (st != GPUSERVE_OK)
            return st;
    }
    if (config->embedding_size == 0)
        config->embedding_size = config->hidden_size;
    if (config->n_kv_heads == 0)
        config->n_kv_heads = config->n_heads;
    config->n_stored_layers = config->n_layers;
    config->n_ffns = 1;
    if (config->family->has_bottlenecks) {
        const gpuserve_status st = gsv_bottleneck_read(config, json, error);

        if (st != GPUSERVE_OK)
            return st;
    }
    return check_heads(config, error);
}

static gpuserve_status read_positions(struct gsv_config *config, const struct gsv_json_value *json,
                                      gpuserve_error *error)
{
    const bool has_types = config->family->names[0]->type != NULL;
    int64_t pad = 1, types = has_types ? config->family->default_types : 0, buckets = 32;
    int64_t distance = 128;
    gpuserve_status st =
        gsv_json_int(json, "pad_token_id", FILE_NAME, -1, MAX_VOCABULARY, &pad, error);

    if (st == GPUSERVE_OK && has_types)
        st = gsv_json_int(json, "type_vocab_size", FILE_NAME, 0, GSV_MAX_WIDTH, &types, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "relative_attention_num_buckets", FILE_NAME, 4,
                          MAX_RELATIVE_BUCKETS, &buckets, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "relative_attention_max_distance", FILE_NAME, 2, MAX_POSITIONS,
                          &distance, error);
    if (st != GPUSERVE_OK)
        return st;
    config->type_vocab_size = (int32_t)types;
    config->pad_id =
        gsv_json_is(gsv_json_member(json, "pad_token_id"), GSV_JSON_INT) ? (int32_t)pad : -1;
    if (config->family->names[0]->relative && config->family->is_bucketed)
        config->relative = (struct gsv_relative){ .kind = GSV_RELATIVE_BUCKETS,
                                                  .n_buckets = (int32_t)buckets,
                                                  .max_distance = (int32_t)distance };
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

/* ----------------------------------------------------------------------------------- activation */

gpuserve_status gsv_activation_by_name(const char *name, const char *key, int32_t *activation,
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
        { "tanh", GPUSERVE_ACT_TANH },           { "quick_gelu", GPUSERVE_ACT_QUICK_GELU },
        { "linear", GPUSERVE_ACT_NONE },
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, name) == 0) {
            *activation = names[i].activation;
            return GPUSERVE_OK;
        }
    }
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, FILE_NAME ": %s '%.64s' is not supported", key,
                    name);
}

static gpuserve_status read_activation(struct gsv_config *config, const struct gsv_json_value *json,
                                       gpuserve_error *error)
{
    const struct gsv_family *family = config->family;
    const char *name = family->default_activation ? family->default_activation : "gelu";
    double eps = family->default_eps > 0 ? family->default_eps : 1e-12;
    char key[MAX_KEY_BYTES];
    gpuserve_status st;

    find_key(key, json, family->keys->eps);
    st = gsv_json_double(json, key, FILE_NAME, 0.0, 1.0, &eps, error);
    config->eps = (float)eps;
    find_key(key, json, family->keys->activation);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, key, FILE_NAME, &name, error);
    return st == GPUSERVE_OK ? gsv_activation_by_name(name, key, &config->activation, error) : st;
}

/* -------------------------------------------------------------------------------------- options */

/* A bias that the configuration decides: "attention_bias", "mlp_bias", "norm_bias". */
static gpuserve_status read_bias(enum gsv_presence *presence, const struct gsv_json_value *json,
                                 const char *key, gpuserve_error *error)
{
    bool has_bias = *presence == GSV_REQUIRED;
    const struct gsv_json_value *value = gsv_json_member(json, key);
    const gpuserve_status st = gsv_json_bool(json, key, FILE_NAME, &has_bias, error);

    if (st == GPUSERVE_OK && value && !gsv_json_is(value, GSV_JSON_NULL))
        *presence = has_bias ? GSV_REQUIRED : GSV_ABSENT;
    return st;
}

float gsv_inverse_root(int32_t n)
{
    return 1.0f / sqrtf((float)n);
}

static void set_defaults(struct gsv_config *config)
{
    const struct gsv_family *family = config->family;

    config->is_gated = family->is_gated;
    config->is_causal = family->is_causal;
    config->norm = family->norm;
    config->qkv_bias = family->qkv_bias;
    config->out_bias = family->out_bias;
    config->ffn_in_bias = family->ffn_in_bias;
    config->ffn_out_bias = family->ffn_out_bias;
    config->norm_bias = family->norm_bias;
    config->attention_scale = family->attention_scale != 0.0f ? family->attention_scale
                                                              : gsv_inverse_root(config->head_size);
    config->word_scale = family->scale_words ? sqrtf((float)config->hidden_size) : 0.0f;
    if (family->classifier) {
        config->classifier_pooling =
            family->classifier->pooling ? family->classifier->pooling : GPUSERVE_POOL_CLS;
        config->classifier_activation = family->classifier->activation < 0
                                            ? config->activation
                                            : family->classifier->activation;
    }
}

static gpuserve_status read_options(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    const struct gsv_family *family = config->family;
    gpuserve_status st = GPUSERVE_OK;

    set_defaults(config);
    st = gsv_json_bool(json, "output_hidden_states", FILE_NAME, &config->outputs_layers, error);
    if (st == GPUSERVE_OK && family->bias_keys) {
        st = read_bias(&config->qkv_bias, json, "attention_bias", error);
        config->out_bias = family->out_bias == GSV_IF_PRESENT ? config->qkv_bias : config->out_bias;
        if (st == GPUSERVE_OK)
            st = read_bias(&config->ffn_in_bias, json, "mlp_bias", error);
        config->ffn_out_bias = config->ffn_in_bias;
        if (st == GPUSERVE_OK)
            st = read_bias(&config->norm_bias, json, "norm_bias", error);
    }
    if (st == GPUSERVE_OK && family->theta > 0 && !family->read)
        st = gsv_rotary_read(&config->rotary[0], config, json, NULL, "rope_theta", family->theta,
                             error);
    return st == GPUSERVE_OK && family->read ? family->read(config, json, error) : st;
}

gpuserve_status gsv_config_parse(struct gsv_config *config, const struct gsv_json_value *json,
                                 gpuserve_error *error)
{
    static gpuserve_status (*const steps[])(struct gsv_config *, const struct gsv_json_value *,
                                            gpuserve_error *) = {
        refuse_variants, read_sizes,        read_positions,   read_activation,
        read_options,    gsv_config_labels, gsv_config_score,
    };
    gpuserve_status st = read_family(config, json, error);

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && st == GPUSERVE_OK; i++)
        st = steps[i](config, json, error);
    if (st != GPUSERVE_OK)
        gsv_config_reset(config);
    return st;
}

gpuserve_status gsv_config_read(struct gsv_config *config, const struct gsv_dir *dir,
                                const char *folder, gpuserve_error *error)
{
    char name[GSV_FILE_NAME_BYTES];
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_config(&json, dir, folder, error);

    memset(config, 0, sizeof(*config));
    if (st == GPUSERVE_E_NOT_FOUND)
        return gsv_hint(error, st, GSV_MODEL_DIRECTORY_HINT);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_lora_class(&config->adapter_class, dir, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_parse(config, json, error);
    gsv_json_free(&json);
    if (st == GPUSERVE_OK)
        return st;
    gsv_join_name(name, folder, FILE_NAME);
    return gsv_fail_in(error, st, "%s", gsv_dir_path(gsv_dir_owner(dir, name)));
}
