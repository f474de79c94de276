/*
 * rotary_families.c - bidirectional encoders with rotary positions or ALiBi: ModernBERT, NomicBERT,
 * GTE, Jina embeddings v2 and v3, EuroBERT.
 *
 * Names and defaults are those of transformers, or of the authors' modeling files for the layouts
 * in which the checkpoints are published.
 */
#include "lib/model/families/config.h"

#include "lib/base/error.h"

#include <string.h>

#define FILE_NAME GSV_CONFIG_NAME
#define MAX_EXPERTS 256

#define BERT_KEYS                                                               \
    .hidden_size = "hidden_size", .n_layers = "num_hidden_layers",              \
    .n_heads = "num_attention_heads", .intermediate_size = "intermediate_size", \
    .activation = "hidden_act", .max_positions = "max_position_embeddings"

static const struct gsv_config_keys rotary_keys = {
    BERT_KEYS,
    .eps = "layer_norm_eps",
    .head_size = "head_dim",
};

#define SPLIT_PROJECTIONS                                                                \
    .query = "self_attn.q_proj", .key = "self_attn.k_proj", .value = "self_attn.v_proj", \
    .out = "self_attn.o_proj"
#define SPLIT_GATE .gate = "mlp.gate_proj", .values = "mlp.up_proj", .ffn_out = "mlp.down_proj"
#define WORDS_AND_TYPES \
    .word = "embeddings.word_embeddings", .type = "embeddings.token_type_embeddings"

static const struct gsv_masked_names lm_masked = {
    .transform = "lm_head.dense",
    .norm = "lm_head.layer_norm|lm_head.norm",
    .decoder = "lm_head.decoder",
    .bias = "lm_head.bias",
    .other_bias = "lm_head.decoder.bias",
    .activation = GPUSERVE_ACT_GELU,
};
static const struct gsv_classifier_names pooler_classifier = {
    .dense = "pooler.dense",
    .in_encoder = true,
    .activation = GPUSERVE_ACT_TANH,
    .output = "classifier",
};

/* ----------------------------------------------------------------------------------- ModernBERT */

static const struct gsv_config_keys modernbert_keys = {
    .hidden_size = "hidden_size",
    .n_layers = "num_hidden_layers",
    .n_heads = "num_attention_heads",
    .intermediate_size = "intermediate_size",
    .activation = "hidden_activation",
    .eps = "norm_eps",
    .max_positions = "max_position_embeddings",
};
static const struct gsv_tensor_names modernbert_names = {
    .word = "embeddings.tok_embeddings",
    .embedding_norm = "embeddings.norm",
    .layer = "layers.%d.",
    .qkv = "attn.Wqkv",
    .out = "attn.Wo",
    .norm_before_attention = "attn_norm",
    .ffn_in = "mlp.Wi",
    .ffn_out = "mlp.Wo",
    .norm_before_ffn = "mlp_norm",
    .final_norm = "final_norm",
};
static const struct gsv_classifier_names modernbert_classifier = {
    .dense = "head.dense",
    .activation = GPUSERVE_ACT_GELU,
    .norm = "head.norm",
    .output = "classifier",
    .dense_bias = GSV_IF_PRESENT,
};
static const struct gsv_masked_names modernbert_masked = {
    .transform = "head.dense",
    .norm = "head.norm",
    .decoder = "decoder",
    .bias = "decoder.bias",
    .activation = -2, /* classifier_activation */
    .transform_bias = GSV_IF_PRESENT,
    .decoder_bias = GSV_IF_PRESENT,
};

/* "cls" (or "bos"), "mean" or "late" in `classifier_pooling`; in EuroBERT's first checkpoints
 * `clf_pooling`. */
static gpuserve_status read_classifier_pooling(struct gsv_config *config,
                                               const struct gsv_json_value *json,
                                               const char *preset, gpuserve_error *error)
{
    const char *name = preset;
    gpuserve_status st = gsv_json_string(json, "clf_pooling", FILE_NAME, &name, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "classifier_pooling", FILE_NAME, &name, error);
    if (st != GPUSERVE_OK)
        return st;
    config->classifier_pooling = GPUSERVE_POOL_MEAN;
    if (strcmp(name, "cls") == 0 || strcmp(name, "bos") == 0)
        config->classifier_pooling = GPUSERVE_POOL_CLS;
    else if (strcmp(name, "late") == 0)
        config->pools_logits = true;
    else if (strcmp(name, "mean") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": classifier_pooling '%.64s' is not supported", name);
    return GPUSERVE_OK;
}

static gpuserve_status read_modernbert(struct gsv_config *config, const struct gsv_json_value *json,
                                       gpuserve_error *error)
{
    const char *activation = "gelu";
    int32_t every = 3, window = 128;
    gpuserve_status st =
        gsv_config_size(json, "global_attn_every_n_layers", GSV_MAX_LAYERS, &every, error);

    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "local_attention", 1 << 20, &window, error);
    if (st == GPUSERVE_OK)
        st = gsv_layer_types_read(config, json, every ? every : 3, 0, error);
    if (st == GPUSERVE_OK)
        st = gsv_rotary_read(&config->rotary[0], config, json, "full_attention",
                             "global_rope_theta", 160000.0, error);
    if (st == GPUSERVE_OK)
        st = gsv_rotary_read(&config->rotary[1], config, json, "sliding_attention",
                             "local_rope_theta", 10000.0, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "classifier_activation", FILE_NAME, &activation, error);
    if (st == GPUSERVE_OK)
        st = gsv_activation_by_name(activation, "classifier_activation",
                                    &config->classifier_activation, error);
    config->window = (window ? window : 128) / 2;
    return st == GPUSERVE_OK ? read_classifier_pooling(config, json, "cls", error) : st;
}

/* ------------------------------------------------------------------------------------- EuroBERT */

static const struct gsv_config_keys eurobert_keys = {
    BERT_KEYS,
    .eps = "rms_norm_eps",
    .n_kv_heads = "num_key_value_heads",
    .head_size = "head_dim",
};
static const struct gsv_tensor_names eurobert_names = {
    .word = "embed_tokens",
    .layer = "layers.%d.",
    SPLIT_PROJECTIONS,
    SPLIT_GATE,
    .norm_before_attention = "input_layernorm",
    .norm_before_ffn = "post_attention_layernorm",
    .final_norm = "norm",
};
static const struct gsv_classifier_names eurobert_classifier = {
    .dense = "dense",
    .activation = GPUSERVE_ACT_GELU,
    .output = "classifier",
};
static const struct gsv_masked_names eurobert_masked = {
    .decoder = "lm_head",
    .decoder_bias = GSV_ABSENT,
};

static gpuserve_status read_eurobert(struct gsv_config *config, const struct gsv_json_value *json,
                                     gpuserve_error *error)
{
    const gpuserve_status st = gsv_rotary_read(&config->rotary[0], config, json, NULL, "rope_theta",
                                               config->family->theta, error);

    return st == GPUSERVE_OK ? read_classifier_pooling(config, json, "late", error) : st;
}

/* ------------------------------------------------------------------------------------ NomicBERT */

static const struct gsv_config_keys nomic_keys = {
    .hidden_size = "hidden_size|n_embd",
    .n_layers = "num_hidden_layers|n_layer",
    .n_heads = "num_attention_heads|n_head",
    .intermediate_size = "intermediate_size|n_inner",
    .activation = "hidden_act",
    .eps = "layer_norm_eps|layer_norm_epsilon",
    .max_positions = "max_position_embeddings|n_positions|max_trained_positions",
    .head_size = "head_dim",
};
static const struct gsv_tensor_names nomic_hub_names = {
    WORDS_AND_TYPES,
    .embedding_norm = "emb_ln",
    .layer = "encoder.layers.%d.",
    .qkv = "attn.Wqkv",
    .out = "attn.out_proj",
    .norm_after_attention = "norm1",
    .gate = "mlp.fc12",
    .values = "mlp.fc11",
    .ffn_out = "mlp.fc2",
    .norm_after_ffn = "norm2",
    .ffn_in = "mlp.fc1",
    .router = "mlp.router.layer",
    .experts_in = "mlp.experts.mlp.w1",
    .experts_out = "mlp.experts.mlp.w2",
    .experts_bias = "mlp.experts.bias",
};
static const struct gsv_tensor_names nomic_names = {
    WORDS_AND_TYPES,
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "layers.%d.",
    SPLIT_PROJECTIONS,
    SPLIT_GATE,
    .norm_after_attention = "post_attention_layernorm",
    .norm_after_ffn = "post_mlp_layernorm",
};
static const struct gsv_masked_names nomic_masked = {
    .transform = "cls.predictions.transform.dense",
    .norm = "cls.predictions.transform.layer_norm",
    .decoder = "cls.predictions.decoder",
    .bias = "cls.predictions.bias",
    .other_bias = "cls.predictions.decoder.bias",
    .activation = -1,
};

/* "moe_every_n_layers" 2: experts in layers 1, 3, 5, ... */
static gpuserve_status read_experts(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    static const char *const refused[] = { "expert_choice_router", "num_shared_experts",
                                           "moe_normalize_expert_weights" };
    struct gsv_experts *experts = &config->experts;
    int64_t every = 0;
    int32_t n = 0, top_k = 1;
    gpuserve_status st =
        gsv_json_int(json, "moe_every_n_layers", FILE_NAME, 0, GSV_MAX_LAYERS, &every, error);

    if (st != GPUSERVE_OK || every == 0)
        return st;
    st = gsv_config_size(json, "num_experts", MAX_EXPERTS, &n, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "moe_top_k", MAX_EXPERTS, &top_k, error);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]) && st == GPUSERVE_OK; i++)
        st = gsv_config_refuse(json, refused[i], error);
    if (st != GPUSERVE_OK)
        return st;
    if (n == 0 || top_k > n || every == 1 || config->is_gated)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": moe_every_n_layers %d with num_experts %d, moe_top_k %d and "
                                  "%s is not supported",
                        (int)every, n, top_k, config->is_gated ? "'swiglu'" : "'gelu'");
    *experts = (struct gsv_experts){ n, top_k, (int32_t)every, 1 };
    return GPUSERVE_OK;
}

/* "swiglu", or "gelu" without gates. */
static gpuserve_status read_nomic_activation(struct gsv_config *config,
                                             const struct gsv_json_value *json,
                                             gpuserve_error *error)
{
    const char *activation = NULL;
    bool in = false, out = false;
    gpuserve_status st =
        gsv_json_string(json, "activation_function", FILE_NAME, &activation, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "mlp_fc1_bias", FILE_NAME, &in, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "mlp_fc2_bias", FILE_NAME, &out, error);
    if (st != GPUSERVE_OK)
        return st;
    config->ffn_in_bias = in ? GSV_REQUIRED : GSV_ABSENT;
    config->ffn_out_bias = out ? GSV_REQUIRED : GSV_ABSENT;
    if (!activation || strcmp(activation, "swiglu") == 0)
        return GPUSERVE_OK;
    if (strcmp(activation, "gelu") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": activation_function '%.64s' is not supported, only 'swiglu' "
                                  "and 'gelu' are",
                        activation);
    config->is_gated = false;
    config->activation = GPUSERVE_ACT_GELU;
    return GPUSERVE_OK;
}

/* With rotary_scaling_factor, the base of texts over max_trained_positions depends on their length
 * (dynamic NTK). Such texts are not supported: the tokens are limited. */
static gpuserve_status read_trained_positions(struct gsv_config *config,
                                              const struct gsv_json_value *json,
                                              gpuserve_error *error)
{
    double factor = 0;
    int32_t trained = 2048;
    gpuserve_status st =
        gsv_json_double(json, "rotary_scaling_factor", FILE_NAME, 0, 1e6, &factor, error);

    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "max_trained_positions", 1 << 20, &trained, error);
    if (factor > 0)
        config->token_limit = trained;
    return st;
}

/* The authors' configuration. Their class computes more than their models use. */
static gpuserve_status read_nomic(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    static const char *const refused[] = { "prenorm",      "parallel_block",
                                           "use_rms_norm", "rotary_emb_scale_base",
                                           "causal",       "rotary_head_dim",
                                           "norm_mlp" };
    double fraction = 1.0;
    bool bias = false;
    gpuserve_status st = gsv_json_bool(json, "qkv_proj_bias", FILE_NAME, &bias, error);

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]) && st == GPUSERVE_OK; i++)
        st = gsv_config_refuse(json, refused[i], error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(json, "rotary_emb_fraction", FILE_NAME, 0, 1, &fraction, error);
    if (st == GPUSERVE_OK)
        st = read_trained_positions(config, json, error);
    if (st == GPUSERVE_OK && fraction != 1.0)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      FILE_NAME ": rotary_emb_fraction %g is not supported, only 1 is", fraction);
    if (st == GPUSERVE_OK)
        st = read_nomic_activation(config, json, error);
    if (st == GPUSERVE_OK)
        st = read_experts(config, json, error);
    if (st == GPUSERVE_OK)
        st = gsv_rotary_read(&config->rotary[0], config, json, NULL, "rotary_emb_base",
                             config->family->theta, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "rotary_emb_interleaved", FILE_NAME,
                           &config->rotary[0].interleaved, error);
    if (bias)
        config->qkv_bias = config->out_bias = GSV_REQUIRED;
    return st;
}

/* ------------------------------------------------------------------------------------------ GTE */

static const struct gsv_tensor_names gte_hub_names = {
    WORDS_AND_TYPES,
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "encoder.layer.%d.",
    .qkv = "attention.qkv_proj",
    .out = "attention.o_proj",
    .norm_after_attention = "attn_ln",
    .ffn_in = "mlp.up_gate_proj",
    .values_first = true,
    .ffn_out = "mlp.down_proj",
    .norm_after_ffn = "mlp_ln",
};

static gpuserve_status read_gte(struct gsv_config *config, const struct gsv_json_value *json,
                                gpuserve_error *error)
{
    const char *norm = "layer_norm";
    gpuserve_status st = gsv_config_refuse(json, "logn_attention_scale", error);

    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "layer_norm_type", FILE_NAME, &norm, error);
    if (st == GPUSERVE_OK && strcmp(norm, "layer_norm") != 0)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      FILE_NAME ": layer_norm_type '%.64s' is not supported", norm);
    return st == GPUSERVE_OK ? gsv_rotary_read(&config->rotary[0], config, json, NULL, "rope_theta",
                                               config->family->theta, error)
                             : st;
}

/* ------------------------------------------------------------------------------ Jina embeddings */

static const struct gsv_tensor_names jina_v3_names = {
    WORDS_AND_TYPES,
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "layers.%d.",
    SPLIT_PROJECTIONS,
    .norm_after_attention = "post_attention_layernorm",
    .ffn_in = "mlp.fc1",
    .ffn_out = "mlp.fc2",
    .norm_after_ffn = "post_mlp_layernorm",
};
static gpuserve_status read_jina_v3(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    config->no_position_table = true;
    return gsv_rotary_read(&config->rotary[0], config, json, NULL, "rope_theta",
                           config->family->theta, error);
}

static const struct gsv_classifier_names jina_classifier = {
    .dense = "classifier.dense",
    .activation = GPUSERVE_ACT_TANH,
    .output = "classifier.out_proj",
};

static const struct gsv_tensor_names jina_v2_names = {
    WORDS_AND_TYPES,
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "encoder.layer.%d.",
    .query = "attention.self.query",
    .key = "attention.self.key",
    .value = "attention.self.value",
    .out = "attention.output.dense",
    .norm_after_attention = "attention.output.LayerNorm",
    .ffn_in = "mlp.gated_layers",
    .ffn_out = "mlp.wo",
    .norm_after_ffn = "mlp.layernorm",
};

/* jinaai/jina-bert-v2-qk-post-norm */
static const struct gsv_tensor_names jina_v2_code_names = {
    WORDS_AND_TYPES,
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "encoder.layer.%d.",
    .query = "attention.self.query",
    .key = "attention.self.key",
    .value = "attention.self.value",
    .query_norm = "attention.self.layer_norm_q",
    .key_norm = "attention.self.layer_norm_k",
    .norms_all_heads = true,
    .out = "attention.output.dense",
    .norm_after_attention = "attention.output.LayerNorm",
    .norm_again = "layer_norm_1",
    .ffn_in = "mlp.up_gated_layer",
    .values_first = true,
    .ffn_out = "mlp.down_layer",
    .norm_after_ffn = "layer_norm_2",
};

static gpuserve_status read_jina_v2(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    const char *kind = "original";
    gpuserve_status st = gsv_json_string(json, "feed_forward_type", FILE_NAME, &kind, error);

    if (st == GPUSERVE_OK && strcmp(kind, "geglu") != 0 && strcmp(kind, "reglu") != 0)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      FILE_NAME ": feed_forward_type '%.64s' is not supported, only 'geglu' and "
                                "'reglu' are",
                      kind);
    config->activation = strcmp(kind, "reglu") == 0 ? GPUSERVE_ACT_RELU : GPUSERVE_ACT_GELU;
    config->relative.kind = GSV_RELATIVE_ALIBI;
    return st;
}

/* ----------------------------------------------------------------------------------------- rows */

const struct gsv_family gsv_rotary_families[] = {
    {
        .model_types = GSV_NAME_LIST("modernbert"),
        .classes = GSV_NAME_LIST("ModernBert"),
        .prefix = "model.",
        .keys = &modernbert_keys,
        .names = { &modernbert_names },
        .norm_position = GSV_NORM_BEFORE,
        .skips_first_norm = true,
        .is_gated = true,
        .default_eps = 1e-5,
        .theta = 160000.0,
        .bias_keys = true,
        .qkv_bias = GSV_ABSENT,
        .out_bias = GSV_IF_PRESENT,
        .ffn_in_bias = GSV_ABSENT,
        .norm_bias = GSV_ABSENT,
        .classifier = &modernbert_classifier,
        .token_transform = true,
        .masked = &modernbert_masked,
        .read = read_modernbert,
    },
    {
        .model_types = GSV_NAME_LIST("eurobert"),
        .classes = GSV_NAME_LIST("EuroBert"),
        .code = "EuroBertConfig",
        .prefix = "model.",
        .keys = &eurobert_keys,
        .names = { &eurobert_names },
        .norm = GPUSERVE_NORM_RMS,
        .norm_position = GSV_NORM_BEFORE,
        .is_gated = true,
        .default_activation = "silu",
        .default_eps = 1e-5,
        .theta = 250000.0,
        .bias_keys = true,
        .qkv_bias = GSV_ABSENT,
        .out_bias = GSV_IF_PRESENT,
        .ffn_in_bias = GSV_ABSENT,
        .norm_bias = GSV_ABSENT,
        .classifier = &eurobert_classifier,
        .masked = &eurobert_masked,
        .read = read_eurobert,
    },
    {
        .model_types = GSV_NAME_LIST("nomic_bert"),
        .classes = GSV_NAME_LIST("NomicBert"),
        .code = "NomicBertConfig",
        .prefix = "nomic_bert.",
        .other_prefix = "bert.",
        .keys = &nomic_keys,
        .names = { &nomic_hub_names, &nomic_names },
        .is_gated = true,
        .default_types = 2,
        .default_activation = "silu",
        .default_max_positions = 2048,
        .theta = 1000.0,
        .qkv_bias = GSV_ABSENT,
        .out_bias = GSV_ABSENT,
        .ffn_in_bias = GSV_ABSENT,
        .ffn_out_bias = GSV_ABSENT,
        .classifier = &pooler_classifier,
        .masked = &nomic_masked,
        .read = read_nomic,
    },
    {
        .model_types = GSV_NAME_LIST("gte", "new"),
        .classes = GSV_NAME_LIST("Gte", "New"),
        .code = "NewConfig|GteConfig",
        .prefix = "gte.",
        .other_prefix = "new.",
        .keys = &rotary_keys,
        .names = { &gte_hub_names, &nomic_names },
        .is_gated = true,
        .default_types = 1,
        .position_type = "rope",
        .theta = 160000.0,
        .ffn_in_bias = GSV_ABSENT,
        .classifier = &pooler_classifier,
        .masked = &lm_masked,
        .read = read_gte,
    },
    {
        .model_types = GSV_NAME_LIST("jina_embeddings_v3"),
        .classes = GSV_NAME_LIST("JinaEmbeddingsV3"),
        .prefix = "roberta.",
        .keys = &rotary_keys,
        .names = { &gsv_flash_names, &jina_v3_names },
        .default_types = 1,
        .default_eps = 1e-5,
        .theta = 20000.0,
        .classifier = &jina_classifier,
        .masked = &lm_masked,
        .read = read_jina_v3,
    },
    {
        .model_types = GSV_NAME_LIST("bert", "jina_bert_v2"),
        .classes = GSV_NAME_LIST("JinaBert", "JinaBertV2"),
        .code = "JinaBertConfig",
        .prefix = "bert.",
        .keys = &rotary_keys,
        .names = { &jina_v2_code_names, &jina_v2_names },
        .position_type = "alibi",
        .is_gated = true,
        .default_types = 2,
        .ffn_in_bias = GSV_ABSENT,
        .classifier = &pooler_classifier,
        .read = read_jina_v2,
    },
};

const size_t gsv_rotary_families_count =
    sizeof(gsv_rotary_families) / sizeof(gsv_rotary_families[0]);
