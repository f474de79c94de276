/*
 * pair_families.c - models of an encoder and a decoder that both read the text: BART.
 *
 *   hidden = encoder(text)
 *   hidden = decoder(the text shifted by one token, hidden): causal attention and cross-attention
 *
 * Nothing is generated: one pass of the decoder reads the whole text. Names and defaults are those
 * of transformers' configuration and modeling files.
 */
#include "lib/model/families/config.h"

#include "lib/base/error.h"

#include <string.h>

#define FILE_NAME GSV_CONFIG_NAME

/* ----------------------------------------------------------------------------------------- BART */

/* No key sets the eps of its norms. */
static const struct gsv_config_keys bart_keys = {
    .hidden_size = "d_model",
    .n_layers = "encoder_layers",
    .n_heads = "encoder_attention_heads",
    .intermediate_size = "encoder_ffn_dim",
    .activation = "activation_function",
    .max_positions = "max_position_embeddings",
};

static const struct gsv_tensor_names bart_names = {
    .word = "shared|encoder.embed_tokens|decoder.embed_tokens",
    .position = "encoder.embed_positions",
    .embedding_norm = "encoder.layernorm_embedding",
    .layer = "encoder.layers.%d.",
    .query = "self_attn.q_proj",
    .key = "self_attn.k_proj",
    .value = "self_attn.v_proj",
    .out = "self_attn.out_proj",
    .norm_after_attention = "self_attn_layer_norm",
    .ffn_in = "fc1",
    .ffn_out = "fc2",
    .norm_after_ffn = "final_layer_norm",
    .decoder_layer = "decoder.layers.%d.",
    .decoder_position = "decoder.embed_positions",
    .decoder_norm = "decoder.layernorm_embedding",
    .cross_query = "encoder_attn.q_proj",
    .cross_key = "encoder_attn.k_proj",
    .cross_value = "encoder_attn.v_proj",
    .cross_out = "encoder_attn.out_proj",
    .norm_after_cross = "encoder_attn_layer_norm",
    /* Version numbers of fairseq, and the bias of the language model. */
    .unused = "encoder.version|decoder.version|final_logits_bias",
};
static const struct gsv_classifier_names bart_classifier = {
    .dense = "classification_head.dense",
    .activation = GPUSERVE_ACT_TANH,
    .output = "classification_head.out_proj",
    .pooling = GPUSERVE_POOL_LAST,
};

/* A size of the decoder that must be the encoder's. */
static gpuserve_status check_same(const struct gsv_json_value *json, const char *key,
                                  const char *of_encoder, int32_t wanted, gpuserve_error *error)
{
    int32_t found = wanted;
    const gpuserve_status st = gsv_config_size(json, key, GSV_MAX_WIDTH, &found, error);

    if (st != GPUSERVE_OK || found == wanted)
        return st;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    FILE_NAME ": %s %d differs from %s %d, which is not supported", key, found,
                    of_encoder, wanted);
}

static gpuserve_status read_decoder_sizes(struct gsv_config *config,
                                          const struct gsv_json_value *json, gpuserve_error *error)
{
    gpuserve_status st =
        gsv_config_size(json, "decoder_layers", GSV_MAX_LAYERS, &config->n_decoder_layers, error);

    if (st == GPUSERVE_OK && config->n_decoder_layers == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, FILE_NAME ": \"decoder_layers\" is missing");
    if (st == GPUSERVE_OK && config->n_layers + config->n_decoder_layers > GSV_MAX_LAYERS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        FILE_NAME ": %d encoder_layers and %d decoder_layers exceed %d layers",
                        config->n_layers, config->n_decoder_layers, GSV_MAX_LAYERS);
    if (st == GPUSERVE_OK)
        st = check_same(json, "decoder_attention_heads", "encoder_attention_heads", config->n_heads,
                        error);
    if (st == GPUSERVE_OK)
        st = check_same(json, "decoder_ffn_dim", "encoder_ffn_dim", config->intermediate_size,
                        error);
    config->n_layers += config->n_decoder_layers;
    config->n_stored_layers = config->n_layers;
    return st;
}

/* Options of older versions that moved norms or replaced the position table, and tables of words
 * that the encoder and the decoder do not share. */
static gpuserve_status refuse_options(const struct gsv_json_value *json, gpuserve_error *error)
{
    static const char *const keys[] = { "normalize_before", "add_final_layer_norm",
                                        "static_position_embeddings" };
    bool is_tied = true;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && st == GPUSERVE_OK; i++)
        st = gsv_config_refuse(json, keys[i], error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "tie_word_embeddings", FILE_NAME, &is_tied, error);
    if (st != GPUSERVE_OK || is_tied)
        return st;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    FILE_NAME ": tie_word_embeddings false is not supported");
}

/* A token id, 2 by default. */
static gpuserve_status read_id(const struct gsv_config *config, const struct gsv_json_value *json,
                               const char *key, int32_t *id, gpuserve_error *error)
{
    int64_t found = 2;
    const gpuserve_status st = gsv_json_int(json, key, FILE_NAME, 0, INT32_MAX, &found, error);

    *id = (int32_t)found;
    if (st != GPUSERVE_OK || *id < config->vocab_size)
        return st;
    return gsv_fail(error, GPUSERVE_E_FORMAT, FILE_NAME ": %s %d is outside a vocabulary of %d",
                    key, *id, config->vocab_size);
}

/* The classifier reads the decoder's row at the last end token of the text. */
static gpuserve_status read_bart(struct gsv_config *config, const struct gsv_json_value *json,
                                 gpuserve_error *error)
{
    bool scales = false;
    gpuserve_status st;

    if (!config->classifies && strcmp(config->architecture, "BartModel") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        FILE_NAME ": architecture '%.64s' is not supported; of model type bart "
                                  "BartModel and BartForSequenceClassification are",
                        config->architecture);
    st = read_decoder_sizes(config, json, error);
    if (st == GPUSERVE_OK)
        st = refuse_options(json, error);
    if (st == GPUSERVE_OK)
        st = read_id(config, json, "decoder_start_token_id", &config->start_id, error);
    if (st == GPUSERVE_OK)
        st = read_id(config, json, "eos_token_id", &config->end_id, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "scale_embedding", FILE_NAME, &scales, error);
    config->last_rule = GSV_LAST_END;
    config->word_scale = scales ? 1.0f / gsv_inverse_root(config->hidden_size) : 0.0f;
    return st;
}

/* ----------------------------------------------------------------------------------------- rows */

const struct gsv_family gsv_pair_families[] = {
    {
        .model_types = GSV_NAME_LIST("bart"),
        .classes = GSV_NAME_LIST("Bart"),
        .prefix = "model.",
        .keys = &bart_keys,
        .names = { &bart_names },
        .default_eps = 1e-5,
        .skipped_positions = 2,
        .classifier = &bart_classifier,
        .read = read_bart,
    },
};

const size_t gsv_pair_families_count = sizeof(gsv_pair_families) / sizeof(gsv_pair_families[0]);
