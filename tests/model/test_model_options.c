/*
 * test_model_options.c - absurd and contradictory options in config.json of every kind of family.
 *
 * Each case is the config.json of a model of tests/data/models with one text replaced.
 */
#include "lib/model/families/config.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option_case {
    const char *model, *from, *to;
    gpuserve_status status;
    const char *message; /* part of it */
};

static char *read_text_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    size_t n;

    cr_assert(file && text, "%s", path);
    n = fread(text, 1, (1 << 16) - 1, file);
    cr_assert(n > 0, "%s is empty", path);
    fclose(file);
    return text;
}

/* The text with the first `from` replaced. */
static char *replace(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char *out = calloc(1, strlen(text) + strlen(to) + 1);

    cr_assert(at && out, "'%s' is not in the file", from);
    memcpy(out, text, (size_t)(at - text));
    strcat(out, to);
    strcat(out, at + strlen(from));
    return out;
}

static gpuserve_status parse(const char *text, struct gsv_config *config, gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { 100000, 16 };
    struct gsv_json_value *json;
    gpuserve_status st;

    memset(config, 0, sizeof(*config));
    cr_assert_eq(gsv_json_read(&json, text, strlen(text), "config.json", limits, error),
                 GPUSERVE_OK, "%s", error->message);
    st = gsv_config_parse(config, json, error);
    gsv_json_free(&json);
    return st;
}

#define BAD GPUSERVE_E_FORMAT
#define NOT GPUSERVE_E_UNSUPPORTED

static const struct option_case cases[] = {
    /* heads */
    { "qwen3", "\"head_dim\": 16", "\"head_dim\": 0", BAD, "\"head_dim\" is 0, outside 1 to" },
    { "qwen3", "\"head_dim\": 16", "\"head_dim\": 65536", GPUSERVE_E_TOO_LARGE,
      "4 attention heads of size 65536 exceed" },
    { "qwen3", "\"head_dim\": 16", "\"head_dim\": 15", NOT, "15 of 15 dimensions" },
    { "qwen3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", BAD,
      "4 attention heads are not divisible by 3" },
    { "qwen3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": -1", BAD,
      "\"num_key_value_heads\" is -1" },
    { "bert", "\"num_attention_heads\": 4", "\"num_attention_heads\": 5", BAD,
      "hidden_size 32 is not divisible by 5" },
    /* rotary positions */
    { "qwen3", "\"rope_type\": \"default\"", "\"rope_type\": \"spiral\"", NOT,
      "rope_type 'spiral'" },
    { "qwen3", "\"rope_theta\": 10000.0", "\"rope_theta\": 0.5", BAD, "rope_theta" },
    { "qwen3", "\"rope_theta\": 10000.0", "\"partial_rotary_factor\": 0.01", NOT,
      "0 of 16 dimensions" },
    { "llama-llama3", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 0.5", BAD,
      "high_freq_factor 0.5 is not above low_freq_factor 1" },
    { "llama-linear", "\"factor\": 2.0", "\"factor\": -2.0", BAD, "\"factor\"" },
    { "llama-longrope", "\"short_factor\": [", "\"short_factor\": [7,", BAD,
      "short_factor has 5 numbers, expected 4" },
    { "llama-longrope", "\"long_factor\": [", "\"long_factor\": [7,", BAD,
      "long_factor has 5 numbers, expected 4" },
    { "gte-hub-ntk", "\"type\": \"ntk\"", "\"type\": \"ntk\", \"mixed_b\": 0.5", NOT, "mixed_b" },
    /* local layers */
    { "modernbert", "\"full_attention\",", "\"dense_attention\",", NOT,
      "layer_types: 'dense_attention' of layer 0" },
    { "modernbert", "\"full_attention\",", "", BAD, "layer_types has 3 elements for 4 layers" },
    { "modernbert", "\"local_attention\": 8", "\"local_attention\": 0", BAD, "local_attention" },
    { "mistral", "\"sliding_window\": 8", "\"sliding_window\": 1", NOT, "sliding_window of 1" },
    { "mistral", "\"sliding_window\": 8", "\"sliding_window\": -8", BAD, "sliding_window" },
    { "modernbert", "\"classifier_pooling\": \"cls\"", "\"classifier_pooling\": \"max\"", NOT,
      "classifier_pooling 'max'" },
    { "modernbert", "\"hidden_activation\": \"gelu\"", "\"hidden_activation\": \"mish\"", NOT,
      "hidden_activation 'mish'" },
    /* relative positions */
    { "t5-encoder", "\"relative_attention_num_buckets\": 8",
      "\"relative_attention_num_buckets\": 3", BAD, "relative_attention_num_buckets" },
    { "t5-encoder", "\"feed_forward_proj\": \"relu\"", "\"feed_forward_proj\": \"gated-mish\"", NOT,
      "feed_forward_proj 'mish'" },
    { "deberta-v3", "\"position_buckets\": 8", "\"position_buckets\": 40000", BAD,
      "position_buckets" },
    { "deberta-v3", "\"max_relative_positions\": -1", "\"max_relative_positions\": 100000", BAD,
      "max_relative_positions" },
    { "deberta-v3", "\"pooler_hidden_size\": 32", "\"pooler_hidden_size\": 16", NOT,
      "pooler_hidden_size 16 differs" },
    /* convolution */
    { "deberta-v2-conv", "\"conv_kernel_size\": 3", "\"conv_kernel_size\": 4", NOT,
      "conv_kernel_size 4 with conv_groups 1 of 32 columns" },
    { "deberta-v2-conv", "\"conv_kernel_size\": 3", "\"conv_kernel_size\": 33", BAD,
      "conv_kernel_size" },
    { "deberta-v2-conv-tanh", "\"conv_groups\": 2", "\"conv_groups\": 3", NOT,
      "conv_groups 3 of 32 columns" },
    { "deberta-v2-conv", "\"conv_act\": \"gelu\"", "\"conv_act\": \"mish\"", NOT,
      "conv_act 'mish'" },
    { "deberta", "\"hidden_act\"", "\"conv_kernel_size\": 3, \"hidden_act\"", NOT,
      "\"conv_kernel_size\" is not supported" },
    /* bottlenecks */
    { "mobilebert", "\"intra_bottleneck_size\": 16", "\"intra_bottleneck_size\": 0", BAD,
      "\"intra_bottleneck_size\" is 0" },
    { "mobilebert", "\"num_attention_heads\": 4", "\"num_attention_heads\": 5", BAD,
      "intra_bottleneck_size 16 is not divisible by 5" },
    { "mobilebert", "\"intra_bottleneck_size\": 16", "\"intra_bottleneck_size\": 20", BAD,
      "true_hidden_size is 16, but layers compute on 20" },
    { "mobilebert", "\"key_query_shared_bottleneck\": true",
      "\"key_query_shared_bottleneck\": false", BAD, "read 32 columns, but intra_bottleneck_size" },
    { "mobilebert", "\"num_feedforward_networks\": 4", "\"num_feedforward_networks\": 9", BAD,
      "\"num_feedforward_networks\" is 9, outside 1 to 8" },
    { "mobilebert", "\"normalization_type\": \"no_norm\"", "\"normalization_type\": \"rms\"", NOT,
      "normalization_type 'rms'" },
    /* encoder and decoder */
    { "bart-single", "BartForSequenceClassification", "BartForConditionalGeneration", NOT,
      "architecture 'BartForConditionalGeneration' is not supported; of model type bart" },
    { "bart-single", "BartForSequenceClassification", "BartForQuestionAnswering", NOT,
      "architecture 'BartForQuestionAnswering' is not supported; of model type bart" },
    { "bart", "\"decoder_layers\": 2", "\"decoder_depth\": 2", BAD,
      "\"decoder_layers\" is missing" },
    { "bart", "\"decoder_layers\": 2", "\"decoder_layers\": 0", BAD, "\"decoder_layers\" is 0" },
    { "bart", "\"decoder_layers\": 2", "\"decoder_layers\": 512", GPUSERVE_E_TOO_LARGE,
      "2 encoder_layers and 512 decoder_layers exceed 512 layers" },
    { "bart", "\"decoder_attention_heads\": 4", "\"decoder_attention_heads\": 2", NOT,
      "decoder_attention_heads 2 differs from encoder_attention_heads 4" },
    { "bart", "\"decoder_ffn_dim\": 24", "\"decoder_ffn_dim\": 32", NOT,
      "decoder_ffn_dim 32 differs from encoder_ffn_dim 24" },
    { "bart", "\"decoder_start_token_id\": 4", "\"decoder_start_token_id\": 48", BAD,
      "decoder_start_token_id 48 is outside a vocabulary of 48" },
    { "bart", "\"eos_token_id\": 4", "\"eos_token_id\": -1", BAD, "\"eos_token_id\" is -1" },
    { "bart", "\"eos_token_id\": 4", "\"eos_token_id\": [4, 5]", BAD, "\"eos_token_id\"" },
    { "bart", "\"d_model\"", "\"normalize_before\": true, \"d_model\"", NOT, "normalize_before" },
    { "bart", "\"d_model\"", "\"add_final_layer_norm\": true, \"d_model\"", NOT,
      "add_final_layer_norm" },
    { "bart", "\"d_model\"", "\"static_position_embeddings\": true, \"d_model\"", NOT,
      "static_position_embeddings" },
    { "bart", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", NOT,
      "tie_word_embeddings false" },
    /* windows of all layers */
    { "longformer", "\"attention_window\": [", "\"attention_window\": [64,", BAD,
      "attention_window has 3 elements for 2 layers" },
    { "longformer", "\"attention_window\": [", "\"attention_window\": 63, \"x\": [", BAD,
      "attention_window is not an even number" },
    { "longformer", "\"attention_window\": [", "\"attention_window\": [32, 64], \"x\": [", NOT,
      "attention_window 32 and 64" },
    { "longformer", "LongformerModel", "LongformerForSequenceClassification", NOT,
      "needs global attention" },
    /* sharing, embeddings, other families */
    { "albert-groups", "\"num_hidden_groups\": 2", "\"num_hidden_groups\": 9", BAD,
      "num_hidden_groups 9 exceeds 4 layers" },
    { "albert", "\"inner_group_num\": 1", "\"inner_group_num\": 2", NOT, "inner_group_num 2" },
    { "albert", "\"embedding_size\": 16", "\"embedding_size\": 100000", BAD, "embedding_size" },
    { "gemma3-bidirectional", "\"query_pre_attn_scalar\": 16", "\"query_pre_attn_scalar\": 0", BAD,
      "query_pre_attn_scalar" },
    { "nomic-bert-hub", "\"rotary_emb_fraction\": 1.0", "\"rotary_emb_fraction\": 0.5", NOT,
      "rotary_emb_fraction 0.5" },
    { "nomic-bert-hub", "\"prenorm\": false", "\"prenorm\": true", NOT, "\"prenorm\"" },
    { "clip-text", "\"eos_token_id\": 47", "\"eos_token_id\": 48", BAD, "eos_token_id" },
    { "gte-hub-ntk", "NewConfig", "OtherConfig", NOT, "auto_map" },
    /* fields without meaning for the family, or of parts that are not computed */
    { "bert", "\"num_attention_heads\": 4",
      "\"num_attention_heads\": 4, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", NOT,
      "\"rope_scaling\" is not supported: this model_type has no rotary positions" },
    { "bert", "\"num_attention_heads\": 4",
      "\"num_attention_heads\": 4, \"rope_parameters\": {\"rope_type\": \"default\"}", NOT,
      "\"rope_parameters\" is not supported: this model_type has no rotary positions" },
    { "deberta-v3", "\"num_attention_heads\"", "\"rope_parameters\": {}, \"num_attention_heads\"",
      NOT, "\"rope_parameters\" is not supported" },
    { "llama", "\"num_attention_heads\"", "\"sliding_window\": 16, \"num_attention_heads\"", NOT,
      "\"sliding_window\" is not supported" },
    { "nomic-bert-hub", "\"prenorm\": false", "\"prenorm\": false, \"norm_mlp\": true", NOT,
      "\"norm_mlp\"" },
    { "nomic-bert-hub", "\"prenorm\": false", "\"prenorm\": false, \"rotary_head_dim\": true", NOT,
      "\"rotary_head_dim\"" },
    { "jina-v3-hub", "\"num_attention_heads\"", "\"truncate_dim\": 16, \"num_attention_heads\"",
      NOT, "\"truncate_dim\" is not supported" },
    { "eurobert-multi-late", "\"classifier_pooling\": \"late\"", "\"clf_pooling\": \"max\"", NOT,
      "classifier_pooling 'max'" },
};

/* Longer texts have other frequencies with rotary_scaling_factor (dynamic NTK): not supported. */
Test(model_options, scaled_nomic_positions_limit_the_tokens)
{
    static const struct {
        const char *factor, *trained;
        int32_t limit;
    } scalings[] = { { "null", "2048", 0 }, { "2", "2048", 2048 }, { "1.5", "20", 20 } };
    char *text = read_text_file(test_data("models/nomic-bert-hub/config.json"));

    for (size_t i = 0; i < sizeof(scalings) / sizeof(scalings[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char factor[64], trained[64], *half, *changed;
        struct gsv_config config;

        snprintf(factor, sizeof(factor), "\"rotary_scaling_factor\": %s", scalings[i].factor);
        snprintf(trained, sizeof(trained), "\"max_trained_positions\": %s", scalings[i].trained);
        half = replace(text, "\"rotary_scaling_factor\": null", factor);
        changed = replace(half, "\"max_trained_positions\": 2048", trained);
        cr_assert_eq(parse(changed, &config, &error), GPUSERVE_OK, "%s", error.message);
        cr_expect_eq(config.token_limit, scalings[i].limit, "case %zu: %d", i, config.token_limit);
        gsv_config_reset(&config);
        free(changed);
        free(half);
    }
    free(text);
}

/* The old form of the settings scales the global layers of Gemma 3 only, of ModernBERT all. */
Test(model_options, old_rotary_scaling_applies_to_the_layers_of_transformers)
{
    static const struct {
        const char *model;
        bool local;
    } models[] = { { "gemma3-older", false }, { "modernbert", true } };

    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        char path[256], *text, *half, *changed;
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_config plain, scaled;

        snprintf(path, sizeof(path), "models/%s/config.json", models[i].model);
        text = read_text_file(test_data(path));
        half = strstr(text, "\"rope_parameters\"")
                   ? replace(text, "\"rope_parameters\"", "\"other_parameters\"")
                   : replace(text, "\"rope_scaling\"", "\"other_scaling\"");
        changed = replace(half, "\"num_attention_heads\"",
                          "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}, "
                          "\"num_attention_heads\"");
        cr_assert_eq(parse(half, &plain, &error), GPUSERVE_OK, "%s", error.message);
        cr_assert_eq(parse(changed, &scaled, &error), GPUSERVE_OK, "%s", error.message);
        for (int k = 0; k < 2; k++)
            cr_expect_float_eq(plain.rotary[k].frequency[1] / scaled.rotary[k].frequency[1],
                               k == 0 || models[i].local ? 8.0f : 1.0f, 1e-6, "%s %d",
                               models[i].model, k);
        gsv_config_reset(&plain);
        gsv_config_reset(&scaled);
        free(changed);
        free(half);
        free(text);
    }
}

/* "hidden_act" has no effect in Gemma. */
Test(model_options, gemma_has_the_activation_of_its_own_key)
{
    char *text = read_text_file(test_data("models/gemma2/config.json"));
    char *changed =
        replace(text, "\"hidden_activation\"", "\"hidden_act\": \"gelu\", \"hidden_activation\"");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_config config;

    cr_assert_eq(parse(changed, &config, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(config.activation, GPUSERVE_ACT_GELU_TANH);
    gsv_config_reset(&config);
    free(changed);
    free(text);
}

Test(model_options, absurd_values_are_refused_by_name)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct option_case *c = &cases[i];
        char path[1024];
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_config config;
        char *text, *damaged;
        gpuserve_status st;

        snprintf(path, sizeof(path), "models/%s/config.json", c->model);
        text = read_text_file(test_data(path));
        cr_expect_eq(parse(text, &config, &error), GPUSERVE_OK, "%s: %s", c->model, error.message);
        gsv_config_reset(&config);
        damaged = replace(text, c->from, c->to);
        st = parse(damaged, &config, &error);
        cr_expect_eq(st, c->status, "%s: %s: status %d", c->model, c->to, (int)st);
        cr_expect(st != GPUSERVE_OK && strstr(error.message, c->message), "%s: %s: '%s'", c->model,
                  c->to, error.message);
        if (st == GPUSERVE_OK)
            gsv_config_reset(&config);
        free(damaged);
        free(text);
    }
}
