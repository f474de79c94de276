/*
 * deberta_families.c - DeBERTa v1, v2 and v3: disentangled attention (He et al. 2020, 2021).
 *
 * Names and defaults are those of transformers' configuration and modeling files.
 */
#include "lib/model/families/config.h"

#include "lib/base/error.h"

#include <string.h>

#define FILE_NAME GSV_CONFIG_NAME
#define MAX_KERNEL 31 /* tokens of a convolution */

static const struct gsv_config_keys deberta_keys = {
    .hidden_size = "hidden_size",
    .n_layers = "num_hidden_layers",
    .n_heads = "num_attention_heads",
    .intermediate_size = "intermediate_size",
    .activation = "hidden_act",
    .eps = "layer_norm_eps",
    .max_positions = "max_position_embeddings",
    .embedding_size = "embedding_size",
    .head_size = "attention_head_size",
};

/* The authors' checkpoints may hold a position table even if position_biased_input is false;
 * transformers ignores it too. */
#define UNUSED_POSITIONS .unused = "embeddings.position_embeddings."

static const struct gsv_tensor_names deberta_names = {
    .word = "embeddings.word_embeddings",
    .position = "embeddings.position_embeddings",
    .type = "embeddings.token_type_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .projection = "embeddings.embed_proj",
    .relative = "encoder.rel_embeddings",
    .layer = "encoder.layer.%d.",
    .qkv = "attention.self.in_proj",
    .out = "attention.output.dense",
    .norm_after_attention = "attention.output.LayerNorm",
    .ffn_in = "intermediate.dense",
    .ffn_out = "output.dense",
    .norm_after_ffn = "output.LayerNorm",
    UNUSED_POSITIONS,
};
static const struct gsv_tensor_names deberta_v2_names = {
    .word = "embeddings.word_embeddings",
    .position = "embeddings.position_embeddings",
    .type = "embeddings.token_type_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .projection = "embeddings.embed_proj",
    .relative = "encoder.rel_embeddings",
    .layer = "encoder.layer.%d.",
    .query = "attention.self.query_proj",
    .key = "attention.self.key_proj",
    .value = "attention.self.value_proj",
    .out = "attention.output.dense",
    .norm_after_attention = "attention.output.LayerNorm",
    .ffn_in = "intermediate.dense",
    .ffn_out = "output.dense",
    .norm_after_ffn = "output.LayerNorm",
    UNUSED_POSITIONS,
};
static const struct gsv_classifier_names deberta_classifier = {
    .dense = "pooler.dense",
    .activation = GPUSERVE_ACT_GELU,
    .output = "classifier",
};

/* "c2p|p2c", or a list of the two. */
static void read_terms(struct gsv_relative *relative, const struct gsv_json_value *json)
{
    const struct gsv_json_value *terms = gsv_json_member(json, "pos_att_type");
    const char *text = gsv_json_get_string(terms);

    for (size_t i = 0; text || i < gsv_json_count(terms); i++) {
        const char *term = text ? text : gsv_json_get_string(gsv_json_at(terms, i));

        if (term && strstr(term, "c2p"))
            relative->content_to_position = true;
        if (term && strstr(term, "p2c"))
            relative->position_to_content = true;
        if (text)
            break;
    }
}

static gpuserve_status read_distances(struct gsv_config *config, const struct gsv_json_value *json,
                                      gpuserve_error *error)
{
    struct gsv_relative *relative = &config->relative;
    int64_t span = -1, buckets = -1;
    gpuserve_status st =
        gsv_json_int(json, "max_relative_positions", FILE_NAME, -1, 1 << 16, &span, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "position_buckets", FILE_NAME, -1, 1 << 15, &buckets, error);
    if (st != GPUSERVE_OK)
        return st;
    if (span < 1)
        span = config->max_positions;
    if (span > 1 << 16)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        FILE_NAME ": %lld relative positions, limit %d", (long long)span, 1 << 16);
    relative->kind = GSV_RELATIVE_DISENTANGLED;
    relative->span = (int32_t)span;
    if (buckets > 1) {
        relative->log_buckets = relative->span = (int32_t)buckets;
        relative->log_distance = (int32_t)span;
    }
    return st;
}

static gpuserve_status read_pooler(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    const char *name = "gelu";
    int32_t width = config->hidden_size;
    gpuserve_status st = gsv_json_string(json, "pooler_hidden_act", FILE_NAME, &name, error);

    if (st == GPUSERVE_OK)
        st = gsv_activation_by_name(name, "pooler_hidden_act", &config->classifier_activation,
                                    error);
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "pooler_hidden_size", 1 << 16, &width, error);
    if (st == GPUSERVE_OK && width != 0 && width != config->hidden_size)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      FILE_NAME ": pooler_hidden_size %d differs from hidden_size %d", width,
                      config->hidden_size);
    return st;
}

static gpuserve_status read_convolution(struct gsv_config *config,
                                        const struct gsv_json_value *json, gpuserve_error *error)
{
    struct gsv_convolution *convolution = &config->convolution;
    const char *activation = "tanh";
    int64_t kernel = 0;
    gpuserve_status st =
        gsv_json_int(json, "conv_kernel_size", FILE_NAME, 0, MAX_KERNEL, &kernel, error);

    if (st != GPUSERVE_OK || kernel == 0)
        return st;
    convolution->groups = 1;
    st = gsv_config_size(json, "conv_groups", config->hidden_size, &convolution->groups, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "conv_act", FILE_NAME, &activation, error);
    if (st == GPUSERVE_OK)
        st = gsv_activation_by_name(activation, "conv_act", &convolution->activation, error);
    if (st != GPUSERVE_OK)
        return st;
    if (kernel % 2 == 0 || config->hidden_size % convolution->groups != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": conv_kernel_size %d with conv_groups %d of %d columns is not "
                                  "supported",
                        (int)kernel, convolution->groups, config->hidden_size);
    convolution->kernel = (int32_t)kernel;
    return GPUSERVE_OK;
}

/* Both versions scale by the number of terms, even without relative_attention. */
static gpuserve_status read_deberta(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    struct gsv_relative *relative = &config->relative;
    const char *norm = "none";
    bool is_relative = false, positions = true, shares = false;
    gpuserve_status st = gsv_json_bool(json, "relative_attention", FILE_NAME, &is_relative, error);

    if (st == GPUSERVE_OK)
        st = gsv_config_refuse(json, "talking_head", error);
    if (st == GPUSERVE_OK)
        st = config->family->interleaves_qkv /* DeBERTa v1 */
                 ? gsv_config_refuse(json, "conv_kernel_size", error)
                 : read_convolution(config, json, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "position_biased_input", FILE_NAME, &positions, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "share_att_key", FILE_NAME, &shares, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "norm_rel_ebd", FILE_NAME, &norm, error);
    if (st == GPUSERVE_OK)
        st = read_pooler(config, json, error);
    if (st != GPUSERVE_OK)
        return st;
    read_terms(relative, json);
    config->attention_scale = gsv_inverse_root(
        config->head_size * (1 + relative->content_to_position + relative->position_to_content));
    config->no_position_table = !positions;
    if (!is_relative) {
        memset(relative, 0, sizeof(*relative));
        return GPUSERVE_OK;
    }
    relative->shares_projections = shares;
    relative->norm = strstr(norm, "layer_norm") != NULL;
    return read_distances(config, json, error);
}

const struct gsv_family gsv_deberta_families[] = {
    {
        .model_types = GSV_NAME_LIST("deberta"),
        .classes = GSV_NAME_LIST("Deberta"),
        .prefix = "deberta.",
        .keys = &deberta_keys,
        .names = { &deberta_names },
        .default_eps = 1e-7,
        .norm_after_projection = true,
        .interleaves_qkv = true,
        .qkv_bias = GSV_ABSENT, /* q_bias and v_bias instead */
        .classifier = &deberta_classifier,
        .masked = &gsv_bert_masked,
        .read = read_deberta,
    },
    {
        .model_types = GSV_NAME_LIST("deberta-v2"),
        .classes = GSV_NAME_LIST("DebertaV2"),
        .prefix = "deberta.",
        .keys = &deberta_keys,
        .names = { &deberta_v2_names },
        .default_eps = 1e-7,
        .norm_after_projection = true,
        .classifier = &deberta_classifier,
        .masked = &gsv_bert_masked,
        .read = read_deberta,
    },
};

const size_t gsv_deberta_families_count =
    sizeof(gsv_deberta_families) / sizeof(gsv_deberta_families[0]);
