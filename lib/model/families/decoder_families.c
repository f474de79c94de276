/*
 * decoder_families.c - pre-norm stacks of language models used as encoders: T5, CLIP text, Llama,
 * Mistral, Qwen, Gemma.
 *
 * Names and defaults are those of transformers' configuration and modeling files.
 */
#include "lib/model/families/config.h"

#include "lib/base/error.h"

#include <math.h>
#include <string.h>

#define FILE_NAME GSV_CONFIG_NAME

/* ------------------------------------------------------------------------------------------- T5 */

static const struct gsv_config_keys t5_keys = {
    .hidden_size = "d_model",
    .n_layers = "num_layers",
    .n_heads = "num_heads",
    .intermediate_size = "d_ff",
    .activation = "dense_act_fn",
    .eps = "layer_norm_epsilon",
    .max_positions = "n_positions",
    .head_size = "d_kv",
};

#define T5_NAMES                                                                          \
    .word = "shared|encoder.embed_tokens", .layer = "encoder.block.%d.",                  \
    .query = "layer.0.SelfAttention.q", .key = "layer.0.SelfAttention.k",                 \
    .value = "layer.0.SelfAttention.v", .out = "layer.0.SelfAttention.o",                 \
    .norm_before_attention = "layer.0.layer_norm", .ffn_in = "layer.1.DenseReluDense.wi", \
    .gate = "layer.1.DenseReluDense.wi_0", .values = "layer.1.DenseReluDense.wi_1",       \
    .ffn_out = "layer.1.DenseReluDense.wo", .norm_before_ffn = "layer.1.layer_norm",      \
    .final_norm = "encoder.final_layer_norm"

static const struct gsv_tensor_names t5_names = {
    T5_NAMES,
    .relative = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
};
static const struct gsv_tensor_names umt5_names = {
    T5_NAMES,
    .relative = "layer.0.SelfAttention.relative_attention_bias",
};

/* "relu", "gated-gelu": the latter is GELU's tanh approximation, as in the authors' code. */
static gpuserve_status read_t5(struct gsv_config *config, const struct gsv_json_value *json,
                               gpuserve_error *error)
{
    const char *kind = "relu";
    gpuserve_status st = gsv_json_string(json, "feed_forward_proj", FILE_NAME, &kind, error);

    if (st != GPUSERVE_OK)
        return st;
    config->is_gated = strncmp(kind, "gated-", 6) == 0;
    config->relative.by_layer = strchr(config->family->names[0]->relative, '.') != NULL &&
                                strncmp(config->family->names[0]->relative, "layer", 5) == 0;
    if (strcmp(kind, "gated-gelu") == 0) {
        config->activation = GPUSERVE_ACT_GELU_TANH;
        return GPUSERVE_OK;
    }
    return gsv_activation_by_name(config->is_gated ? kind + 6 : kind, "feed_forward_proj",
                                  &config->activation, error);
}

/* ----------------------------------------------------------------------------------------- CLIP */

static const struct gsv_config_keys clip_keys = {
    .hidden_size = "hidden_size",
    .n_layers = "num_hidden_layers",
    .n_heads = "num_attention_heads",
    .intermediate_size = "intermediate_size",
    .activation = "hidden_act",
    .eps = "layer_norm_eps",
    .max_positions = "max_position_embeddings",
};
static const struct gsv_tensor_names clip_names = {
    .word = "embeddings.token_embedding",
    .position = "embeddings.position_embedding",
    .layer = "encoder.layers.%d.",
    .query = "self_attn.q_proj",
    .key = "self_attn.k_proj",
    .value = "self_attn.v_proj",
    .out = "self_attn.out_proj",
    .norm_before_attention = "layer_norm1",
    .ffn_in = "mlp.fc1",
    .ffn_out = "mlp.fc2",
    .norm_before_ffn = "layer_norm2",
    .final_norm = "final_layer_norm",
};

/* The embedding is the vector of the end of text. Configurations with eos_token_id 2 are older than
 * the key: there it is the token with the largest id. */
static gpuserve_status read_clip(struct gsv_config *config, const struct gsv_json_value *json,
                                 gpuserve_error *error)
{
    int64_t end = 2;
    const gpuserve_status st =
        gsv_json_int(json, "eos_token_id", FILE_NAME, 0, config->vocab_size - 1, &end, error);

    if (st != GPUSERVE_OK)
        return st;
    config->end_id = (int32_t)end;
    config->last_rule = end == 2 ? GSV_LAST_LARGEST : GSV_LAST_FIRST_END;
    if (!strstr(config->architecture, "WithProjection"))
        return GPUSERVE_OK;
    config->projection_dim = 512;
    return gsv_config_size(json, "projection_dim", 1 << 16, &config->projection_dim, error);
}

/* ------------------------------------------------------------------------- Llama, Mistral, Qwen */

static const struct gsv_config_keys llama_keys = {
    .hidden_size = "hidden_size",
    .n_layers = "num_hidden_layers",
    .n_heads = "num_attention_heads",
    .intermediate_size = "intermediate_size",
    .activation = "hidden_act",
    .eps = "rms_norm_eps",
    .max_positions = "max_position_embeddings",
    .n_kv_heads = "num_key_value_heads",
    .head_size = "head_dim",
};
/* Gemma's configurations may have "hidden_act" too, which has no effect. */
static const struct gsv_config_keys gemma_keys = {
    .hidden_size = "hidden_size",
    .n_layers = "num_hidden_layers",
    .n_heads = "num_attention_heads",
    .intermediate_size = "intermediate_size",
    .activation = "hidden_activation",
    .eps = "rms_norm_eps",
    .max_positions = "max_position_embeddings",
    .n_kv_heads = "num_key_value_heads",
    .head_size = "head_dim",
};

#define LLAMA_NAMES                                                                    \
    .word = "embed_tokens", .layer = "layers.%d.", .query = "self_attn.q_proj",        \
    .key = "self_attn.k_proj", .value = "self_attn.v_proj", .out = "self_attn.o_proj", \
    .gate = "mlp.gate_proj", .values = "mlp.up_proj", .ffn_out = "mlp.down_proj",      \
    .norm_before_attention = "input_layernorm", .final_norm = "norm"

static const struct gsv_tensor_names llama_names = {
    LLAMA_NAMES,
    .norm_before_ffn = "post_attention_layernorm",
};
static const struct gsv_tensor_names qwen3_names = {
    LLAMA_NAMES,
    .norm_before_ffn = "post_attention_layernorm",
    .query_norm = "self_attn.q_norm",
    .key_norm = "self_attn.k_norm",
};
static const struct gsv_tensor_names gemma2_names = {
    LLAMA_NAMES,
    .norm_after_attention = "post_attention_layernorm",
    .norm_before_ffn = "pre_feedforward_layernorm",
    .norm_after_ffn = "post_feedforward_layernorm",
};
static const struct gsv_tensor_names gemma3_names = {
    LLAMA_NAMES,
    .query_norm = "self_attn.q_norm",
    .key_norm = "self_attn.k_norm",
    .norm_after_attention = "post_attention_layernorm",
    .norm_before_ffn = "pre_feedforward_layernorm",
    .norm_after_ffn = "post_feedforward_layernorm",
};

static const struct gsv_classifier_names llama_classifier = {
    .output = "score",
    .pooling = GPUSERVE_POOL_LAST,
    .output_bias = GSV_ABSENT,
};
static const struct gsv_masked_names llama_masked = {
    .decoder = "lm_head",
    .decoder_bias = GSV_ABSENT,
};

/* "is_causal": false, or Gemma's "use_bidirectional_attention": true. */
static gpuserve_status read_causal(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    bool is_bidirectional = false;
    gpuserve_status st = gsv_json_bool(json, "is_causal", FILE_NAME, &config->is_causal, error);

    if (st == GPUSERVE_OK)
        st =
            gsv_json_bool(json, "use_bidirectional_attention", FILE_NAME, &is_bidirectional, error);
    if (is_bidirectional)
        config->is_causal = false;
    return st;
}

/* Mistral's window applies to all layers. Qwen's applies from max_window_layers on, if
 * use_sliding_window is set. A window of w tokens reaches w - 1 back. */
static gpuserve_status read_window(struct gsv_config *config, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    bool used = gsv_json_member(json, "use_sliding_window") == NULL &&
                strncmp(config->model_type, "qwen", 4) != 0;
    int64_t window = 0, from = 0;
    gpuserve_status st = gsv_json_bool(json, "use_sliding_window", FILE_NAME, &used, error);

    if (st == GPUSERVE_OK && strcmp(config->model_type, "llama") == 0)
        return gsv_config_refuse(json, "sliding_window", error); /* transformers has none */
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "sliding_window", FILE_NAME, 1, 1 << 30, &window, error);
    if (st == GPUSERVE_OK && strncmp(config->model_type, "qwen", 4) == 0)
        st = gsv_json_int(json, "max_window_layers", FILE_NAME, 0, 1 << 30, &from, error);
    if (st != GPUSERVE_OK || !used || window == 0)
        return st;
    config->window = window > 1 ? (int32_t)window - 1 : 1;
    if (window == 1)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": a sliding_window of 1 token is not supported");
    if (gsv_json_member(json, "layer_types"))
        return gsv_layer_types_read(config, json, 0, 0, error);
    for (int32_t i = from < config->n_layers ? (int32_t)from : config->n_layers;
         i < config->n_layers; i++)
        config->local[i / 64] |= UINT64_C(1) << i % 64;
    return GPUSERVE_OK;
}

static gpuserve_status read_llama(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    gpuserve_status st;

    if (strncmp(config->architecture, "LlamaBidirectional", 18) == 0)
        config->is_causal = false; /* unless config.json says otherwise */
    st = read_causal(config, json, error);
    if (config->classifies && config->pad_id >= 0)
        config->last_rule = GSV_LAST_BEFORE_PADS;
    if (st == GPUSERVE_OK)
        st = read_window(config, json, error);
    if (st == GPUSERVE_OK)
        st = gsv_rotary_read(&config->rotary[0], config, json, NULL, "rope_theta",
                             config->family->theta, error);
    config->rotary[1] = config->rotary[0];
    return st;
}

/* ---------------------------------------------------------------------------------------- Gemma */

/* The soft cap of the language model's logits; Gemma 2's default is 30. */
static gpuserve_status read_last_cap(struct gsv_config *config, const struct gsv_json_value *json,
                                     bool is_third, gpuserve_error *error)
{
    const struct gsv_json_value *value = gsv_json_member(json, "final_logit_softcapping");
    double cap = is_third || gsv_json_is(value, GSV_JSON_NULL) ? 0 : 30;
    const gpuserve_status st =
        gsv_json_double(json, "final_logit_softcapping", FILE_NAME, 0, 1e9, &cap, error);

    config->caps_logits = cap > 0;
    return st;
}

static gpuserve_status read_gemma(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const bool is_third = strcmp(config->model_type, "gemma3_text") == 0;
    double scalar = 256, cap = is_third ? 0 : 50;
    int32_t window = 4096, every = 0;
    const struct gsv_json_value *caps = gsv_json_member(json, "attn_logit_softcapping");
    gpuserve_status st = read_causal(config, json, error);

    if (config->classifies && config->pad_id >= 0)
        config->last_rule = GSV_LAST_BEFORE_PADS;
    if (gsv_json_is(caps, GSV_JSON_NULL))
        cap = 0;
    if (st == GPUSERVE_OK)
        st = read_last_cap(config, json, is_third, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(json, "query_pre_attn_scalar", FILE_NAME, 1e-6, 1e9, &scalar, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "norm_weights_include_one", FILE_NAME, &config->includes_one,
                           error);
    if (st == GPUSERVE_OK)
        st = gsv_json_double(json, "attn_logit_softcapping", FILE_NAME, 1e-6, 1e9, &cap, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "sliding_window", 1 << 20, &window, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "sliding_window_pattern|_sliding_window_pattern", GSV_MAX_LAYERS,
                             &every, error);
    if (st == GPUSERVE_OK)
        st = gsv_layer_types_read(config, json, every ? every : is_third ? 6 : 2, 1, error);
    if (st == GPUSERVE_OK)
        st = gsv_rotary_read(&config->rotary[0], config, json, is_third ? "full_attention" : NULL,
                             "rope_theta", config->family->theta, error);
    if (st == GPUSERVE_OK && is_third)
        st = gsv_rotary_read(&config->rotary[1], config, json, "sliding_attention",
                             "rope_local_base_freq", 10000.0, error);
    if (!is_third)
        config->rotary[1] = config->rotary[0];
    window = window ? window : 4096;
    config->window = config->is_causal ? window - 1 : window / 2;
    config->attention_scale = (float)(1.0 / sqrt(scalar));
    config->softcap = (float)cap;
    return st;
}

/* ----------------------------------------------------------------------------------------- rows */

#define T5_OPTIONS                                                                        \
    .keys = &t5_keys, .norm = GPUSERVE_NORM_RMS, .norm_position = GSV_NORM_BEFORE,        \
    .attention_scale = 1.0f, .unbounded = true, .is_bucketed = true, .default_eps = 1e-6, \
    .default_activation = "relu", .default_max_positions = 512, .qkv_bias = GSV_ABSENT,   \
    .out_bias = GSV_ABSENT, .ffn_in_bias = GSV_ABSENT, .ffn_out_bias = GSV_ABSENT,        \
    .norm_bias = GSV_ABSENT, .read = read_t5
#define LLAMA_OPTIONS                                                                     \
    .keys = &llama_keys, .prefix = "model.", .norm = GPUSERVE_NORM_RMS,                   \
    .norm_position = GSV_NORM_BEFORE, .is_gated = true, .is_causal = true,                \
    .default_activation = "silu", .default_eps = 1e-6, .ffn_in_bias = GSV_ABSENT,         \
    .ffn_out_bias = GSV_ABSENT, .norm_bias = GSV_ABSENT, .classifier = &llama_classifier, \
    .token_classifier = "score", .masked = &llama_masked
#define GEMMA_OPTIONS                                                                           \
    .keys = &gemma_keys, .prefix = "model.", .norm = GPUSERVE_NORM_RMS,                         \
    .norm_position = GSV_NORM_AROUND, .gamma_plus_one = true, .scale_words = true,              \
    .is_gated = true, .is_causal = true, .default_activation = "gelu_pytorch_tanh",             \
    .default_eps = 1e-6, .bias_keys = true, .qkv_bias = GSV_ABSENT, .out_bias = GSV_IF_PRESENT, \
    .ffn_in_bias = GSV_ABSENT, .ffn_out_bias = GSV_ABSENT, .norm_bias = GSV_ABSENT,             \
    .read = read_gemma, .classifier = &llama_classifier, .token_classifier = "score",           \
    .masked = &llama_masked

const struct gsv_family gsv_decoder_families[] = {
    {
        .model_types = GSV_NAME_LIST("t5"),
        .classes = GSV_NAME_LIST("T5"),
        .prefix = "transformer.",
        .names = { &t5_names },
        T5_OPTIONS,
    },
    {
        .model_types = GSV_NAME_LIST("mt5"),
        .classes = GSV_NAME_LIST("MT5"),
        .prefix = "transformer.",
        .names = { &t5_names },
        T5_OPTIONS,
    },
    {
        .model_types = GSV_NAME_LIST("umt5"),
        .classes = GSV_NAME_LIST("UMT5"),
        .prefix = "transformer.",
        .names = { &umt5_names },
        T5_OPTIONS,
    },
    {
        .model_types = GSV_NAME_LIST("clip_text_model"),
        .classes = GSV_NAME_LIST("CLIPText", "CLIPTextModelWithProjection"),
        .prefix = "text_model.",
        .keys = &clip_keys,
        .names = { &clip_names },
        .position_type = "absolute",
        .norm_position = GSV_NORM_BEFORE,
        .is_causal = true,
        .default_activation = "quick_gelu",
        .default_eps = 1e-5,
        .pooling = GPUSERVE_POOL_LAST,
        .read = read_clip,
    },
    {
        .model_types = GSV_NAME_LIST("qwen2"),
        .classes = GSV_NAME_LIST("Qwen2"),
        .names = { &llama_names },
        .theta = 10000.0,
        .out_bias = GSV_ABSENT,
        .read = read_llama,
        LLAMA_OPTIONS,
    },
    {
        .model_types = GSV_NAME_LIST("qwen3"),
        .classes = GSV_NAME_LIST("Qwen3"),
        .names = { &qwen3_names },
        .theta = 10000.0,
        .bias_keys = true,
        .qkv_bias = GSV_ABSENT,
        .read = read_llama,
        .out_bias = GSV_IF_PRESENT,
        LLAMA_OPTIONS,
    },
    {
        .model_types = GSV_NAME_LIST("mistral"),
        .classes = GSV_NAME_LIST("Mistral"),
        .names = { &llama_names },
        .theta = 10000.0,
        .qkv_bias = GSV_ABSENT,
        .out_bias = GSV_ABSENT,
        .read = read_llama,
        LLAMA_OPTIONS,
    },
    {
        .model_types = GSV_NAME_LIST("llama", "llama_bidirec"),
        .classes = GSV_NAME_LIST("Llama", "LlamaBidirectional"),
        .code = "LlamaBidirectionalConfig",
        .names = { &llama_names },
        .theta = 10000.0,
        .bias_keys = true,
        .qkv_bias = GSV_ABSENT,
        .read = read_llama,
        .out_bias = GSV_IF_PRESENT,
        LLAMA_OPTIONS,
    },
    {
        .model_types = GSV_NAME_LIST("gemma2"),
        .classes = GSV_NAME_LIST("Gemma2"),
        .names = { &gemma2_names },
        .theta = 10000.0,
        GEMMA_OPTIONS,
    },
    {
        .model_types = GSV_NAME_LIST("gemma3_text"),
        .classes = GSV_NAME_LIST("Gemma3Text", "Gemma3"),
        .names = { &gemma3_names },
        .theta = 1000000.0,
        .scales_global_only = true,
        GEMMA_OPTIONS,
    },
};

const size_t gsv_decoder_families_count =
    sizeof(gsv_decoder_families) / sizeof(gsv_decoder_families[0]);
