/*
 * bert_families.c - families with learned positions: BERT and its descendants.
 *
 * Names and defaults are those of transformers' configuration and modeling files.
 */
#include "lib/model/families/config.h"

#include "lib/base/error.h"

#include <string.h>

#define FILE_NAME GSV_CONFIG_NAME

/* --------------------------------------------------------------------------------- shared parts */

static const struct gsv_config_keys bert_keys = {
    .hidden_size = "hidden_size",
    .n_layers = "num_hidden_layers",
    .n_heads = "num_attention_heads",
    .intermediate_size = "intermediate_size",
    .activation = "hidden_act",
    .eps = "layer_norm_eps",
    .max_positions = "max_position_embeddings",
};
static const struct gsv_config_keys projected_keys = {
    .hidden_size = "hidden_size",
    .n_layers = "num_hidden_layers",
    .n_heads = "num_attention_heads",
    .intermediate_size = "intermediate_size",
    .activation = "hidden_act",
    .eps = "layer_norm_eps",
    .max_positions = "max_position_embeddings",
    .embedding_size = "embedding_size|input_embedding_size",
};
static const struct gsv_config_keys distilbert_keys = {
    .hidden_size = "dim",
    .n_layers = "n_layers",
    .n_heads = "n_heads",
    .intermediate_size = "hidden_dim",
    .activation = "activation",
    .eps = "layer_norm_eps",
    .max_positions = "max_position_embeddings",
};

#define BERT_WORDS                                                                      \
    .word = "embeddings.word_embeddings", .position = "embeddings.position_embeddings", \
    .type = "embeddings.token_type_embeddings"
#define BERT_EMBEDDINGS BERT_WORDS, .embedding_norm = "embeddings.LayerNorm"
#define BERT_QKV \
    .query = "attention.self.query", .key = "attention.self.key", .value = "attention.self.value"
#define BERT_PRODUCTS                                                        \
    .layer = "encoder.layer.%d.", BERT_QKV, .out = "attention.output.dense", \
    .ffn_in = "intermediate.dense", .ffn_out = "output.dense"
#define BERT_LAYER                                                       \
    BERT_PRODUCTS, .norm_after_attention = "attention.output.LayerNorm", \
                   .norm_after_ffn = "output.LayerNorm"

static const struct gsv_tensor_names bert_names = { BERT_EMBEDDINGS, BERT_LAYER };

static const struct gsv_classifier_names bert_classifier = {
    .dense = "pooler.dense",
    .in_encoder = true,
    .activation = GPUSERVE_ACT_TANH,
    .output = "classifier",
};
static const struct gsv_classifier_names roberta_classifier = {
    .dense = "classifier.dense",
    .activation = GPUSERVE_ACT_TANH,
    .output = "classifier.out_proj",
};
const struct gsv_masked_names gsv_bert_masked = {
    .transform = "cls.predictions.transform.dense",
    .norm = "cls.predictions.transform.LayerNorm",
    .decoder = "cls.predictions.decoder",
    .bias = "cls.predictions.bias",
    .other_bias = "cls.predictions.decoder.bias",
    .activation = -1,
};
static const struct gsv_masked_names roberta_masked = {
    .transform = "lm_head.dense",
    .norm = "lm_head.layer_norm",
    .decoder = "lm_head.decoder",
    .bias = "lm_head.decoder.bias",
    .other_bias = "lm_head.bias",
    .activation = GPUSERVE_ACT_GELU,
};

const struct gsv_tensor_names gsv_flash_names = {
    BERT_WORDS,          .embedding_norm = "emb_ln", .layer = "encoder.layers.%d.",
    .qkv = "mixer.Wqkv", .out = "mixer.out_proj",    .norm_after_attention = "norm1",
    .ffn_in = "mlp.fc1", .ffn_out = "mlp.fc2",       .norm_after_ffn = "norm2",
};

/* Jina's XLM-RoBERTa has rotary positions from 0, if position_embedding_type says so. */
static gpuserve_status read_roberta(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    const char *kind = "absolute";
    gpuserve_status st = gsv_json_string(json, "position_embedding_type", FILE_NAME, &kind, error);

    if (st == GPUSERVE_OK && strcmp(kind, "absolute") == 0)
        return gsv_config_refuse(json, "lora_adaptations", error);
    if (st != GPUSERVE_OK)
        return st;
    if (strcmp(kind, "rotary") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": position_embedding_type '%.64s' is not supported, only "
                                  "'absolute' and 'rotary' are",
                        kind);
    config->no_position_table = true;
    config->first_position = 0;
    st = gsv_rotary_read(&config->rotary[0], config, json, NULL, "rotary_emb_base", 10000.0, error);
    return st == GPUSERVE_OK ? gsv_adapters_read(&config->adapters, json, error) : st;
}

/* -------------------------------------------------------------------- MPNet, DistilBERT, ALBERT */

static const struct gsv_tensor_names mpnet_names = {
    .word = "embeddings.word_embeddings",
    .position = "embeddings.position_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .relative = "encoder.relative_attention_bias",
    .layer = "encoder.layer.%d.",
    .query = "attention.attn.q",
    .key = "attention.attn.k",
    .value = "attention.attn.v",
    .out = "attention.attn.o",
    .norm_after_attention = "attention.LayerNorm",
    .ffn_in = "intermediate.dense",
    .ffn_out = "output.dense",
    .norm_after_ffn = "output.LayerNorm",
};

static const struct gsv_tensor_names distilbert_names = {
    .word = "embeddings.word_embeddings",
    .position = "embeddings.position_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "transformer.layer.%d.",
    .query = "attention.q_lin",
    .key = "attention.k_lin",
    .value = "attention.v_lin",
    .out = "attention.out_lin",
    .norm_after_attention = "sa_layer_norm",
    .ffn_in = "ffn.lin1",
    .ffn_out = "ffn.lin2",
    .norm_after_ffn = "output_layer_norm",
};
static const struct gsv_classifier_names distilbert_classifier = {
    .dense = "pre_classifier",
    .activation = GPUSERVE_ACT_RELU,
    .output = "classifier",
};
static const struct gsv_masked_names distilbert_masked = {
    .transform = "vocab_transform",
    .norm = "vocab_layer_norm",
    .decoder = "vocab_projector",
    .bias = "vocab_projector.bias",
    .activation = -1,
};

static const struct gsv_tensor_names albert_names = {
    BERT_EMBEDDINGS,
    .projection = "encoder.embedding_hidden_mapping_in",
    .layer = "encoder.albert_layer_groups.%d.albert_layers.0.",
    .query = "attention.query",
    .key = "attention.key",
    .value = "attention.value",
    .out = "attention.dense",
    .norm_after_attention = "attention.LayerNorm",
    .ffn_in = "ffn",
    .ffn_out = "ffn_output",
    .norm_after_ffn = "full_layer_layer_norm",
};
static const struct gsv_classifier_names albert_classifier = {
    .dense = "pooler",
    .in_encoder = true,
    .activation = GPUSERVE_ACT_TANH,
    .output = "classifier",
};
static const struct gsv_masked_names albert_masked = {
    .transform = "predictions.dense",
    .norm = "predictions.LayerNorm",
    .decoder = "predictions.decoder",
    .bias = "predictions.bias",
    .other_bias = "predictions.decoder.bias",
    .activation = -1,
};

/* Layers share the weights of their group. */
static gpuserve_status read_albert(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    int32_t groups = 1, inner = 1;
    gpuserve_status st = gsv_config_size(json, "num_hidden_groups", GSV_MAX_LAYERS, &groups, error);

    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "inner_group_num", GSV_MAX_LAYERS, &inner, error);
    if (st != GPUSERVE_OK)
        return st;
    if (inner > 1)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": inner_group_num %d is not supported, only 1 is", inner);
    config->n_stored_layers = groups > 1 ? groups : 1;
    if (config->n_stored_layers > config->n_layers)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME ": num_hidden_groups %d exceeds %d layers", groups,
                        config->n_layers);
    return GPUSERVE_OK;
}

/* ---------------------------------------------------------------------- ELECTRA, ERNIE, RemBERT */

static const struct gsv_tensor_names electra_names = {
    BERT_EMBEDDINGS,
    .projection = "embeddings_project",
    BERT_LAYER,
};
static const struct gsv_classifier_names electra_classifier = {
    .dense = "classifier.dense",
    .activation = GPUSERVE_ACT_GELU,
    .output = "classifier.out_proj",
};
static const struct gsv_masked_names electra_masked = {
    .transform = "generator_predictions.dense",
    .norm = "generator_predictions.LayerNorm",
    .decoder = "generator_lm_head",
    .bias = "generator_lm_head.bias",
    .activation = GPUSERVE_ACT_GELU,
};

static const struct gsv_tensor_names ernie_names = {
    BERT_EMBEDDINGS,
    .task = "embeddings.task_type_embeddings",
    BERT_LAYER,
};

static gpuserve_status read_ernie(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    return gsv_json_bool(json, "use_task_id", FILE_NAME, &config->has_task, error);
}

static const struct gsv_tensor_names rembert_names = {
    BERT_EMBEDDINGS,
    .projection = "encoder.embedding_hidden_mapping_in",
    BERT_LAYER,
};
static const struct gsv_masked_names rembert_masked = {
    .transform = "cls.predictions.dense",
    .norm = "cls.predictions.LayerNorm",
    .decoder = "cls.predictions.decoder",
    .bias = "cls.predictions.decoder.bias",
    .activation = -1,
};

/* -------------------------------------------------------------------------------------- BigBird */

static const struct gsv_classifier_names big_bird_classifier = {
    .dense = "classifier.dense",
    .activation = -1,
    .output = "classifier.out_proj",
};

/* BigBird attends to all tokens of short texts, with block_sparse attention too; longer texts are
 * not supported. */
static gpuserve_status read_big_bird(struct gsv_config *config, const struct gsv_json_value *json,
                                     gpuserve_error *error)
{
    const char *kind = "block_sparse";
    int32_t block = 64, random = 3;
    bool has_bias = true, rescale = false;
    gpuserve_status st = gsv_json_string(json, "attention_type", FILE_NAME, &kind, error);

    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "block_size", 1 << 10, &block, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "num_random_blocks", 1 << 8, &random, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "use_bias", FILE_NAME, &has_bias, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "rescale_embeddings", FILE_NAME, &rescale, error);
    if (strcmp(kind, "original_full") != 0)
        config->token_limit = (5 + 2 * random) * block;
    config->qkv_bias = has_bias ? GSV_REQUIRED : GSV_ABSENT;
    config->word_scale = rescale ? 1.0f / gsv_inverse_root(config->hidden_size) : 0.0f;
    return st;
}

/* ----------------------------------------------------------------------------------- MobileBERT */

static const struct gsv_tensor_names mobilebert_names = {
    BERT_EMBEDDINGS,
    .projection = "embeddings.embedding_transformation",
    BERT_LAYER,
    /* The second is in the class even if nothing widens the embeddings. */
    .unused = "bottleneck.attention.|embeddings.embedding_transformation.",
    .other_ffns = "ffn.%d.",
    .bottleneck_in = "bottleneck.input.dense",
    .norm_bottleneck_in = "bottleneck.input.LayerNorm",
    .bottleneck_attention = "bottleneck.attention.dense",
    .norm_bottleneck_attention = "bottleneck.attention.LayerNorm",
    .bottleneck_out = "output.bottleneck.dense",
    .norm_bottleneck_out = "output.bottleneck.LayerNorm",
};
static const struct gsv_masked_names mobilebert_masked = {
    .transform = "cls.predictions.transform.dense",
    .norm = "cls.predictions.transform.LayerNorm",
    .decoder = "cls.predictions.decoder",
    .decoder_columns = "cls.predictions.dense",
    .bias = "cls.predictions.bias",
    .other_bias = "cls.predictions.decoder.bias",
    .activation = -1,
};

/* "no_norm" is gamma * x + beta. The embeddings' norm and the norm before a bottleneck's output are
 * created without layer_norm_eps: they have the default of torch. */
static gpuserve_status read_mobilebert(struct gsv_config *config, const struct gsv_json_value *json,
                                       gpuserve_error *error)
{
    const char *norm = "no_norm";
    bool has_dense = true;
    gpuserve_status st = gsv_json_string(json, "normalization_type", FILE_NAME, &norm, error);

    config->is_trigram = true;
    config->fixed_eps = 1e-5f;
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "trigram_input", FILE_NAME, &config->is_trigram, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "classifier_activation", FILE_NAME, &has_dense, error);
    if (st != GPUSERVE_OK)
        return st;
    config->has_no_dense = !has_dense;
    if (strcmp(norm, "no_norm") == 0)
        config->norm = GPUSERVE_NORM_NONE;
    else if (strcmp(norm, "layer_norm") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": normalization_type '%.64s' is not supported, only 'no_norm' "
                                  "and 'layer_norm' are",
                        norm);
    return GPUSERVE_OK;
}

/* ----------------------------------------------------------------------------------- Longformer */

/* Global attention has products of its own. No task but sequence classification uses it. */
static const struct gsv_tensor_names longformer_names = {
    BERT_EMBEDDINGS,
    BERT_LAYER,
    .unused = ".query_global.|.key_global.|.value_global.",
};

/* The window of a layer: tokens on both sides together. */
static gpuserve_status read_window(const struct gsv_json_value *value, int32_t *window,
                                   gpuserve_error *error)
{
    const int64_t given = gsv_json_get_int(value);

    if (given < 2 || given > GSV_MAX_WIDTH || given % 2 != 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME ": attention_window is not an even number from 2 to %d",
                        GSV_MAX_WIDTH);
    if (*window > 0 && *window != (int32_t)given / 2)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": attention_window %d and %lld; other windows in other layers "
                                  "are not supported",
                        2 * *window, (long long)given);
    *window = (int32_t)given / 2;
    return GPUSERVE_OK;
}

/* Each token attends to attention_window / 2 tokens on each side. */
static gpuserve_status read_longformer(struct gsv_config *config, const struct gsv_json_value *json,
                                       gpuserve_error *error)
{
    const struct gsv_json_value *windows = gsv_json_member(json, "attention_window");
    const size_t n = gsv_json_count(windows);
    gpuserve_status st = GPUSERVE_OK;

    if (config->classifies)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": '%.64s' needs global attention, which is not supported",
                        config->architecture);
    if (!windows || gsv_json_is(windows, GSV_JSON_INT) || n == 0)
        st = windows ? read_window(windows, &config->window, error) : GPUSERVE_OK;
    else if (n != (size_t)config->n_layers)
        st = gsv_fail(error, GPUSERVE_E_FORMAT,
                      FILE_NAME ": attention_window has %zu elements for %d layers", n,
                      config->n_layers);
    for (size_t i = 0; i < n && st == GPUSERVE_OK; i++)
        st = read_window(gsv_json_at(windows, i), &config->window, error);
    if (config->window == 0)
        config->window = 256;
    memset(config->local, 0xFF, sizeof(config->local));
    return st;
}

/* ------------------------------------------------------------------------------ pre-norm stacks */

static const struct gsv_tensor_names megatron_names = {
    BERT_WORDS,
    BERT_PRODUCTS,
    .norm_before_attention = "attention.ln",
    .norm_before_ffn = "ln",
    .final_norm = "encoder.ln",
};
static const struct gsv_tensor_names roberta_pre_names = {
    BERT_EMBEDDINGS,
    BERT_PRODUCTS,
    .norm_before_attention = "attention.LayerNorm",
    .norm_before_ffn = "intermediate.LayerNorm",
    .final_norm = "LayerNorm",
};
static const struct gsv_tensor_names roberta_xl_names = {
    BERT_WORDS,
    BERT_PRODUCTS,
    .norm_before_attention = "attention.self_attn_layer_norm",
    .norm_before_ffn = "LayerNorm",
    .final_norm = "encoder.LayerNorm",
};

/* ----------------------------------------------------------------------------------------- rows */

const struct gsv_family gsv_bert_families[] = {
    {
        .model_types = GSV_NAME_LIST("bert"),
        .classes = GSV_NAME_LIST("Bert", "HF_ColBERT"),
        .prefix = "bert.",
        .keys = &bert_keys,
        .names = { &bert_names },
        .position_type = "absolute",
        .default_types = 2,
        .classifier = &bert_classifier,
        .masked = &gsv_bert_masked,
    },
    {
        .model_types = GSV_NAME_LIST("roberta", "xlm-roberta", "camembert"),
        .classes = GSV_NAME_LIST("Roberta", "XLMRoberta", "Camembert"),
        .code = "XLMRobertaFlashConfig",
        .prefix = "roberta.",
        .keys = &bert_keys,
        .names = { &bert_names, &gsv_flash_names },
        .default_types = 2,
        .position_rule = GSV_POSITION_AFTER_PAD,
        .read = read_roberta,
        .classifier = &roberta_classifier,
        .masked = &roberta_masked,
    },
    {
        .model_types = GSV_NAME_LIST("mpnet"),
        .classes = GSV_NAME_LIST("MPNet"),
        .prefix = "mpnet.",
        .keys = &bert_keys,
        .names = { &mpnet_names },
        .position_type = "absolute",
        .position_rule = GSV_POSITION_FROM_TWO,
        .is_bucketed = true,
        .classifier = &roberta_classifier,
        .masked = &roberta_masked,
    },
    {
        .model_types = GSV_NAME_LIST("distilbert"),
        .classes = GSV_NAME_LIST("DistilBert"),
        .prefix = "distilbert.",
        .keys = &distilbert_keys,
        .names = { &distilbert_names },
        .position_type = "absolute",
        .classifier = &distilbert_classifier,
        .masked = &distilbert_masked,
    },
    {
        .model_types = GSV_NAME_LIST("albert"),
        .classes = GSV_NAME_LIST("Albert"),
        .prefix = "albert.",
        .keys = &projected_keys,
        .names = { &albert_names },
        .position_type = "absolute",
        .default_types = 2,
        .default_activation = "gelu_new",
        .always_projects = true,
        .classifier = &albert_classifier,
        .masked = &albert_masked,
        .read = read_albert,
    },
    {
        .model_types = GSV_NAME_LIST("electra"),
        .classes = GSV_NAME_LIST("Electra"),
        .prefix = "electra.",
        .keys = &projected_keys,
        .names = { &electra_names },
        .position_type = "absolute",
        .default_types = 2,
        .classifier = &electra_classifier,
        .masked = &electra_masked,
    },
    {
        .model_types = GSV_NAME_LIST("ernie"),
        .classes = GSV_NAME_LIST("Ernie"),
        .prefix = "ernie.",
        .keys = &bert_keys,
        .names = { &ernie_names },
        .position_type = "absolute",
        .default_types = 2,
        .classifier = &bert_classifier,
        .masked = &gsv_bert_masked,
        .read = read_ernie,
    },
    {
        .model_types = GSV_NAME_LIST("big_bird"),
        .classes = GSV_NAME_LIST("BigBird"),
        .prefix = "bert.",
        .keys = &bert_keys,
        .names = { &bert_names },
        .position_type = "absolute",
        .default_types = 2,
        .default_activation = "gelu_new",
        .classifier = &big_bird_classifier,
        .masked = &gsv_bert_masked,
        .read = read_big_bird,
    },
    {
        .model_types = GSV_NAME_LIST("rembert"),
        .classes = GSV_NAME_LIST("RemBert"),
        .prefix = "rembert.",
        .keys = &projected_keys,
        .names = { &rembert_names },
        .position_type = "absolute",
        .default_types = 2,
        .always_projects = true,
        .classifier = &bert_classifier,
        .masked = &rembert_masked,
    },
    {
        .model_types = GSV_NAME_LIST("longformer"),
        .classes = GSV_NAME_LIST("Longformer"),
        .prefix = "longformer.",
        .keys = &bert_keys,
        .names = { &longformer_names },
        .position_type = "absolute",
        .default_types = 2,
        .position_rule = GSV_POSITION_AFTER_PAD,
        .masked = &roberta_masked,
        .read = read_longformer,
    },
    {
        .model_types = GSV_NAME_LIST("mobilebert"),
        .classes = GSV_NAME_LIST("MobileBert"),
        .prefix = "mobilebert.",
        .keys = &projected_keys,
        .names = { &mobilebert_names },
        .position_type = "absolute",
        .default_types = 2,
        .default_activation = "relu",
        .adds_after_projection = true,
        .has_bottlenecks = true,
        .classifier = &bert_classifier,
        .masked = &mobilebert_masked,
        .read = read_mobilebert,
    },
    {
        .model_types = GSV_NAME_LIST("megatron-bert"),
        .classes = GSV_NAME_LIST("MegatronBert"),
        .prefix = "bert.",
        .keys = &bert_keys,
        .names = { &megatron_names },
        .position_type = "absolute",
        .default_types = 2,
        .norm_position = GSV_NORM_BEFORE,
        .classifier = &bert_classifier,
        .masked = &gsv_bert_masked,
    },
    {
        .model_types = GSV_NAME_LIST("roberta-prelayernorm"),
        .classes = GSV_NAME_LIST("RobertaPreLayerNorm"),
        .prefix = "roberta_prelayernorm.",
        .keys = &bert_keys,
        .names = { &roberta_pre_names },
        .position_type = "absolute",
        .default_types = 2,
        .position_rule = GSV_POSITION_AFTER_PAD,
        .norm_position = GSV_NORM_BEFORE,
        .classifier = &roberta_classifier,
        .masked = &roberta_masked,
    },
    {
        .model_types = GSV_NAME_LIST("xlm-roberta-xl"),
        .classes = GSV_NAME_LIST("XLMRobertaXL"),
        .prefix = "roberta.",
        .keys = &bert_keys,
        .names = { &roberta_xl_names },
        .position_type = "absolute",
        .default_types = 1,
        .default_eps = 1e-5,
        .position_rule = GSV_POSITION_AFTER_PAD,
        .norm_position = GSV_NORM_BEFORE,
        .classifier = &roberta_classifier,
        .masked = &roberta_masked,
    },
};

const size_t gsv_bert_families_count = sizeof(gsv_bert_families) / sizeof(gsv_bert_families[0]);
