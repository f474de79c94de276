/*
 * gguf_config.c - writes the JSON of config.json from the key-values of a GGUF file.
 *
 * The JSON is what the families' own reader takes, so each family is described in one place. The
 * numbers are checked against the same limits there. Sizes that a tensor's shape shows come from
 * the shape: the rows of the position table are not always the context length.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/model/formats/formats.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 128
#define NUMBERS_BYTES 4096 /* of the JSON without labels */
#define MAX_LABELS 100000

/* The key-values that the families use; 0 if absent. */
struct gguf_numbers {
    int64_t vocab, hidden, layers, heads, kv_heads, ffn, positions, types, head_dim;
    int64_t window, window_pattern, context;
    double eps, rms_eps, rope_base, rope_base_local;
    bool is_causal;
    struct gsv_gguf_text activation;
};

/* A text that grows up to its capacity. */
struct gguf_json {
    char *text;
    size_t size, capacity;
};

struct gguf_architecture {
    const char *name;
    void (*write)(struct gguf_json *json, const struct gguf_numbers *n, bool has_classifier);
};

__attribute__((format(printf, 2, 3))) static void put(struct gguf_json *json, const char *format,
                                                      ...)
{
    va_list list;

    va_start(list, format);
    json->size += (size_t)vsnprintf(json->text + json->size, json->capacity - json->size, format,
                                    list); /* the capacity suffices for all calls */
    va_end(list);
}

/* ----------------------------------------------------------------------------------- families */

#define SIZES                                                  \
    "\"vocab_size\":%lld,\"hidden_size\":%lld,"                \
    "\"num_hidden_layers\":%lld,\"num_attention_heads\":%lld," \
    "\"intermediate_size\":%lld,\"max_position_embeddings\":%lld"
#define SIZE_VALUES(n, positions)                                                                 \
    (long long)(n)->vocab, (long long)(n)->hidden, (long long)(n)->layers, (long long)(n)->heads, \
        (long long)(n)->ffn, (long long)(positions)

/* Classifiers of the BERT architecture have the two layers of RoBERTa's head. Its positions would
 * begin after pad_token_id. */
static void write_bert(struct gguf_json *json, const struct gguf_numbers *n, bool has_classifier)
{
    put(json, "\"model_type\":\"%s\",\"architectures\":[\"%s\"],\"pad_token_id\":-1,",
        has_classifier ? "roberta" : "bert",
        has_classifier ? "RobertaForSequenceClassification" : "BertModel");
    put(json, SIZES ",\"type_vocab_size\":%lld,\"layer_norm_eps\":%.9g,\"hidden_act\":\"gelu\"",
        SIZE_VALUES(n, n->positions), (long long)n->types, n->eps);
}

static void write_nomic_bert(struct gguf_json *json, const struct gguf_numbers *n,
                             bool has_classifier)
{
    (void)has_classifier;
    put(json,
        "\"model_type\":\"nomic_bert\",\"architectures\":[\"NomicBertModel\"],"
        "\"vocab_size\":%lld,\"n_embd\":%lld,\"n_layer\":%lld,\"n_head\":%lld,\"n_inner\":%lld,"
        "\"n_positions\":%lld,\"type_vocab_size\":%lld,\"layer_norm_epsilon\":%.9g,",
        SIZE_VALUES(n, n->context), (long long)n->types, n->eps);
    put(json,
        "\"rotary_emb_base\":%.9g,\"rotary_emb_fraction\":1.0,\"rotary_emb_interleaved\":false,"
        "\"activation_function\":\"swiglu\",\"prenorm\":false,\"qkv_proj_bias\":false,"
        "\"mlp_fc1_bias\":false,\"mlp_fc2_bias\":false,\"causal\":false,\"use_rms_norm\":false",
        n->rope_base);
}

static void write_jina_bert_v2(struct gguf_json *json, const struct gguf_numbers *n,
                               bool has_classifier)
{
    (void)has_classifier;
    put(json, "\"model_type\":\"bert\",\"architectures\":[\"JinaBertModel\"],");
    put(json,
        SIZES ",\"type_vocab_size\":%lld,\"layer_norm_eps\":%.9g,\"hidden_act\":\"gelu\","
              "\"position_embedding_type\":\"alibi\",\"feed_forward_type\":\"geglu\"",
        SIZE_VALUES(n, n->context), (long long)n->types, n->eps);
}

static void write_modern_bert(struct gguf_json *json, const struct gguf_numbers *n,
                              bool has_classifier)
{
    const bool is_named = n->activation.size > 0 && n->activation.size < 32;

    (void)has_classifier;
    put(json, "\"model_type\":\"modernbert\",\"architectures\":[\"ModernBertModel\"],");
    put(json,
        SIZES ",\"norm_eps\":%.9g,\"global_rope_theta\":%.9g,\"local_rope_theta\":%.9g,"
              "\"local_attention\":%lld,\"global_attn_every_n_layers\":%lld,"
              "\"hidden_activation\":\"%.*s\",\"attention_bias\":false,\"mlp_bias\":false,"
              "\"norm_bias\":false",
        SIZE_VALUES(n, n->context), n->eps, n->rope_base,
        n->rope_base_local > 0 ? n->rope_base_local : n->rope_base, (long long)n->window,
        (long long)(n->window_pattern ? n->window_pattern : 3),
        is_named ? (int)n->activation.size : 4, is_named ? n->activation.at : "gelu");
}

static void write_decoder_sizes(struct gguf_json *json, const struct gguf_numbers *n)
{
    put(json,
        SIZES ",\"num_key_value_heads\":%lld,\"head_dim\":%lld,\"rms_norm_eps\":%.9g,"
              "\"rope_theta\":%.9g,\"attention_bias\":false,",
        SIZE_VALUES(n, n->context), (long long)n->kv_heads, (long long)n->head_dim, n->rms_eps,
        n->rope_base);
}

static void write_qwen3(struct gguf_json *json, const struct gguf_numbers *n, bool has_classifier)
{
    (void)has_classifier;
    put(json, "\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3Model\"],");
    write_decoder_sizes(json, n);
    put(json, "\"hidden_act\":\"silu\",\"use_sliding_window\":false,\"is_causal\":%s",
        n->is_causal ? "true" : "false");
}

/* The file's norm weights are those of the checkpoint plus 1. */
static void write_gemma_embedding(struct gguf_json *json, const struct gguf_numbers *n,
                                  bool has_classifier)
{
    (void)has_classifier;
    put(json, "\"model_type\":\"gemma3_text\",\"architectures\":[\"Gemma3TextModel\"],");
    write_decoder_sizes(json, n);
    put(json,
        "\"rope_local_base_freq\":%.9g,\"sliding_window\":%lld,\"sliding_window_pattern\":%lld,"
        "\"query_pre_attn_scalar\":%lld,\"use_bidirectional_attention\":true,"
        "\"hidden_activation\":\"gelu_pytorch_tanh\",\"norm_weights_include_one\":true",
        n->rope_base_local > 0 ? n->rope_base_local : 10000.0, (long long)n->window,
        (long long)(n->window_pattern ? n->window_pattern : 6), (long long)n->head_dim);
}

static const struct gguf_architecture architectures[] = {
    { "bert", write_bert },
    { "nomic-bert", write_nomic_bert },
    { "jina-bert-v2", write_jina_bert_v2 },
    { "modern-bert", write_modern_bert },
    { "qwen3", write_qwen3 },
    { "gemma-embedding", write_gemma_embedding },
};

static gpuserve_status find_architecture(const struct gsv_gguf *gguf,
                                         const struct gguf_architecture **found,
                                         gpuserve_error *error)
{
    struct gsv_gguf_text name = { NULL, 0 };
    gpuserve_status st = gsv_gguf_string(gguf, "general.architecture", &name, error);

    if (st != GPUSERVE_OK)
        return st;
    if (!name.at)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key 'general.architecture' is missing",
                        gguf->shown);
    for (size_t i = 0; i < sizeof(architectures) / sizeof(architectures[0]); i++) {
        if (gsv_gguf_text_is(name, architectures[i].name)) {
            *found = &architectures[i];
            return GPUSERVE_OK;
        }
    }
    st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: architecture '%.*s' is not supported",
                  gguf->shown, (int)(name.size < 64 ? name.size : 64), name.at);
    return gsv_hint(error, st,
                    "supported: bert (also RoBERTa and XLM-RoBERTa), nomic-bert, jina-bert-v2, "
                    "modern-bert, qwen3, gemma-embedding");
}

/* ------------------------------------------------------------------------------------ numbers */

/* "bert.block_count" */
static const char *key_of(char key[KEY_BYTES], const struct gguf_architecture *architecture,
                          const char *name)
{
    snprintf(key, KEY_BYTES, "%s.%s", architecture->name, name);
    return key;
}

/* The rows of a matrix; 0 if the file lacks it. */
static int64_t rows_of(const struct gsv_gguf *gguf, const char *name)
{
    const struct gsv_gguf_tensor *tensor = gsv_gguf_find_tensor(gguf, name);

    return !tensor ? 0 : tensor->rank == 1 ? 1 : (int64_t)tensor->dims[1];
}

static gpuserve_status read_integers(struct gguf_numbers *n, const struct gsv_gguf *gguf,
                                     const struct gguf_architecture *architecture,
                                     gpuserve_error *error)
{
    const struct {
        const char *name;
        int64_t *value;
        bool needed;
    } integers[] = {
        { "block_count", &n->layers, true },
        { "embedding_length", &n->hidden, true },
        { "feed_forward_length", &n->ffn, true },
        { "attention.head_count", &n->heads, true },
        { "context_length", &n->context, true },
        { "attention.head_count_kv", &n->kv_heads, false },
        { "attention.key_length", &n->head_dim, false },
        { "attention.sliding_window", &n->window, false },
        { "attention.sliding_window_pattern", &n->window_pattern, false },
    };

    for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
        char key[KEY_BYTES];
        const gpuserve_status st = gsv_gguf_int(gguf, key_of(key, architecture, integers[i].name),
                                                1, INT32_MAX, integers[i].value, error);

        if (st != GPUSERVE_OK)
            return st;
        if (integers[i].needed && *integers[i].value == 0)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key '%s' is missing", gguf->shown, key);
    }
    return GPUSERVE_OK;
}

static gpuserve_status read_others(struct gguf_numbers *n, const struct gsv_gguf *gguf,
                                   const struct gguf_architecture *architecture,
                                   gpuserve_error *error)
{
    const struct {
        const char *name;
        double *value;
    } reals[] = {
        { "attention.layer_norm_epsilon", &n->eps },
        { "attention.layer_norm_rms_epsilon", &n->rms_eps },
        { "rope.freq_base", &n->rope_base },
        { "rope.freq_base_swa", &n->rope_base_local },
    };
    char key[KEY_BYTES];
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]) && st == GPUSERVE_OK; i++)
        st = gsv_gguf_float(gguf, key_of(key, architecture, reals[i].name), reals[i].value, error);
    if (st == GPUSERVE_OK)
        st = gsv_gguf_bool(gguf, key_of(key, architecture, "attention.causal"), &n->is_causal,
                           error);
    if (st == GPUSERVE_OK)
        st = gsv_gguf_string(gguf, key_of(key, architecture, "hidden_activation"), &n->activation,
                             error);
    for (size_t i = 0; i < n->activation.size && st == GPUSERVE_OK; i++) {
        const char c = n->activation.at[i];

        if (c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9'))
            st = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: key '%s' is not a name", gguf->shown, key);
    }
    return st;
}

static bool is_decoder(const struct gguf_architecture *architecture)
{
    return strcmp(architecture->name, "qwen3") == 0 ||
           strcmp(architecture->name, "gemma-embedding") == 0;
}

static bool has_rotary(const struct gguf_architecture *architecture)
{
    return strcmp(architecture->name, "bert") != 0 &&
           strcmp(architecture->name, "jina-bert-v2") != 0;
}

/* Scaled rotary positions. The factor has an effect without a type too: llama.cpp's default is
 * "linear". */
static gpuserve_status refuse_scaling(const struct gsv_gguf *gguf,
                                      const struct gguf_architecture *architecture,
                                      gpuserve_error *error)
{
    struct gsv_gguf_text type = { "linear", 6 };
    double factor = 1.0;
    char key[KEY_BYTES];
    gpuserve_status st =
        gsv_gguf_float(gguf, key_of(key, architecture, "rope.scaling.factor"), &factor, error);

    if (st == GPUSERVE_OK)
        st = gsv_gguf_string(gguf, key_of(key, architecture, "rope.scaling.type"), &type, error);
    if (st != GPUSERVE_OK || !has_rotary(architecture) || gsv_gguf_text_is(type, "none") ||
        (gsv_gguf_text_is(type, "linear") && (factor == 0.0 || factor == 1.0)))
        return st;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: key '%s' is '%.*s' with factor %g; scaled rotary positions are not "
                    "supported in GGUF files",
                    gguf->shown, key, (int)(type.size < 64 ? type.size : 64), type.at, factor);
}

/* Keys that change the result and that no family of GGUF files computes: any other value than
 * `neutral` is refused. */
static gpuserve_status refuse_options(const struct gsv_gguf *gguf,
                                      const struct gguf_architecture *architecture,
                                      gpuserve_error *error)
{
    static const struct {
        const char *name;
        double neutral;
    } options[] = {
        { "attention.clamp_kqv", 0 },
        { "attention.scale", 0 },
        { "attn_logit_softcapping", 0 },
        { "embedding_scale", 0 },
        { "logit_scale", 0 },
        { "residual_scale", 0 },
        { "rope.scale_linear", 1 },
        { "rope.scaling.attn_factor", 1 },
    };
    bool is_parallel = false;
    int64_t n_experts = 0;
    char key[KEY_BYTES];
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]) && st == GPUSERVE_OK; i++) {
        double value = options[i].neutral;

        st = gsv_gguf_float(gguf, key_of(key, architecture, options[i].name), &value, error);
        if (st == GPUSERVE_OK && value != options[i].neutral)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "%s: key '%s' is %g, only %g is supported", gguf->shown, key, value,
                            options[i].neutral);
    }
    if (st == GPUSERVE_OK)
        st = gsv_gguf_bool(gguf, key_of(key, architecture, "use_parallel_residual"), &is_parallel,
                           error);
    if (st == GPUSERVE_OK && is_parallel)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: key '%s' is not supported", gguf->shown,
                        key);
    if (st == GPUSERVE_OK)
        st = gsv_gguf_int(gguf, key_of(key, architecture, "expert_count"), 0, INT32_MAX, &n_experts,
                          error);
    if (st == GPUSERVE_OK && n_experts != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: key '%s' is %lld; experts are not supported in GGUF files",
                        gguf->shown, key, (long long)n_experts);
    return st;
}

/* Sizes that the families take from others: of a value's head, of the rotated dimensions, and of a
 * head where the width divided by the number of heads is meant. */
static gpuserve_status check_head_sizes(const struct gguf_numbers *n, const struct gsv_gguf *gguf,
                                        const struct gguf_architecture *architecture,
                                        gpuserve_error *error)
{
    const int64_t head_dim = is_decoder(architecture) ? n->head_dim : n->hidden / n->heads;
    const struct {
        const char *name;
        bool has_effect;
    } sizes[] = {
        { "attention.key_length", true },
        { "attention.value_length", true },
        { "rope.dimension_count", has_rotary(architecture) },
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char key[KEY_BYTES];
        int64_t value = head_dim;
        const gpuserve_status st = gsv_gguf_int(gguf, key_of(key, architecture, sizes[i].name), 1,
                                                INT32_MAX, &value, error);

        if (st != GPUSERVE_OK)
            return st;
        if (sizes[i].has_effect && value != head_dim)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "%s: key '%s' is %lld, but a head has %lld columns", gguf->shown, key,
                            (long long)value, (long long)head_dim);
    }
    return GPUSERVE_OK;
}

/* Refuse what the converted JSON would not show. */
static gpuserve_status check_numbers(const struct gguf_numbers *n, const struct gsv_gguf *gguf,
                                     const struct gguf_architecture *architecture,
                                     gpuserve_error *error)
{
    const bool decoder = is_decoder(architecture);
    const double eps = decoder ? n->rms_eps : n->eps;
    gpuserve_status st;

    if (!(eps > 0) || eps >= 1)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: key '%s.attention.layer_norm_%sepsilon' is missing or outside 0 to 1",
                        gguf->shown, architecture->name, decoder ? "rms_" : "");
    if (!decoder && n->is_causal)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: key '%s.attention.causal' is true; only encoders are supported",
                        gguf->shown, architecture->name);
    if (!decoder && n->kv_heads != 0 && n->kv_heads != n->heads)
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "%s: key '%s.attention.head_count_kv' is %lld, not the number of heads %lld",
            gguf->shown, architecture->name, (long long)n->kv_heads, (long long)n->heads);
    if (n->vocab == 0)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor 'token_embd.weight' is missing",
                        gguf->shown);
    st = check_head_sizes(n, gguf, architecture, error);
    if (st == GPUSERVE_OK)
        st = refuse_scaling(gguf, architecture, error);
    return st == GPUSERVE_OK ? refuse_options(gguf, architecture, error) : st;
}

static gpuserve_status read_numbers(struct gguf_numbers *n, const struct gsv_gguf *gguf,
                                    const struct gguf_architecture *architecture,
                                    gpuserve_error *error)
{
    gpuserve_status st = read_integers(n, gguf, architecture, error);
    int64_t types;

    n->rope_base = 10000.0;
    n->is_causal = strcmp(architecture->name, "qwen3") == 0; /* if the file does not say */
    if (st == GPUSERVE_OK)
        st = read_others(n, gguf, architecture, error);
    if (st != GPUSERVE_OK)
        return st;
    n->vocab = rows_of(gguf, "token_embd.weight");
    n->positions = rows_of(gguf, "position_embd.weight");
    n->types = rows_of(gguf, "token_types.weight");
    types = n->types;
    st = gsv_gguf_int(gguf, "tokenizer.ggml.token_type_count", types, types > 0 ? types : INT32_MAX,
                      &types, error);
    if (st != GPUSERVE_OK)
        return st;
    if (n->positions == 0)
        n->positions = n->context;
    if (n->kv_heads == 0)
        n->kv_heads = n->heads;
    if (n->head_dim == 0)
        n->head_dim = n->hidden / n->heads;
    return check_numbers(n, gguf, architecture, error);
}

/* ------------------------------------------------------------------------- classifier, labels */

/* A classifier needs both layers of its head. The converter leaves out the first layer of BERT's,
 * the pooler. */
static gpuserve_status find_classifier(bool *has_classifier, const struct gsv_gguf *gguf,
                                       gpuserve_error *error)
{
    const bool first = gsv_gguf_find_tensor(gguf, "cls.weight") != NULL;
    const bool last = gsv_gguf_find_tensor(gguf, "cls.output.weight") != NULL;
    gpuserve_status st;

    *has_classifier = first && last;
    if (first == last)
        return GPUSERVE_OK;
    st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                  "%s: the file has only one layer of the classifier: tensor '%s' is missing",
                  gguf->shown, first ? "cls.output.weight" : "cls.weight");
    return gsv_hint(error, st,
                    "the conversion to GGUF dropped it; use the original model directory");
}

static void put_string(struct gguf_json *json, struct gsv_gguf_text text)
{
    put(json, "\"");
    for (size_t i = 0; i < text.size; i++) {
        const unsigned char c = (unsigned char)text.at[i];

        if (c < ' ' || c == '"' || c == '\\')
            put(json, "\\u%04x", c);
        else
            json->text[json->size++] = (char)c;
    }
    put(json, "\"");
}

static gpuserve_status put_labels(struct gguf_json *json, const struct gsv_gguf *gguf,
                                  const struct gsv_gguf_value *labels, gpuserve_error *error)
{
    size_t at = 0;

    put(json, ",\"id2label\":{");
    for (uint64_t i = 0; i < labels->n; i++) {
        const struct gsv_gguf_text label = gsv_gguf_next_string(labels, &at);

        if (gsv_utf8_valid_length(label.at, label.size) != label.size)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: label %llu is not UTF-8", gguf->shown,
                            (unsigned long long)i);
        put(json, "%s\"%llu\":", i ? "," : "", (unsigned long long)i);
        put_string(json, label);
    }
    put(json, "}");
    return GPUSERVE_OK;
}

static gpuserve_status find_labels(const struct gsv_gguf_value **labels,
                                   const struct gsv_gguf *gguf,
                                   const struct gguf_architecture *architecture,
                                   gpuserve_error *error)
{
    char key[KEY_BYTES];
    const gpuserve_status st =
        gsv_gguf_array(gguf, key_of(key, architecture, "classifier.output_labels"), GSV_GGUF_STRING,
                       labels, error);

    if (st == GPUSERVE_OK && *labels && (*labels)->n > MAX_LABELS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: key '%s' has %llu labels, the limit is %d", gguf->shown, key,
                        (unsigned long long)(*labels)->n, MAX_LABELS);
    return st;
}

/* ------------------------------------------------------------------------------------ the JSON */

static gpuserve_status write_json(struct gguf_json *json, const struct gsv_gguf *gguf,
                                  gpuserve_error *error)
{
    const struct gguf_architecture *architecture = NULL;
    const struct gsv_gguf_value *labels = NULL;
    struct gguf_numbers numbers = { 0 };
    bool has_classifier = false;
    gpuserve_status st = find_architecture(gguf, &architecture, error);

    if (st == GPUSERVE_OK)
        st = read_numbers(&numbers, gguf, architecture, error);
    if (st == GPUSERVE_OK)
        st = find_classifier(&has_classifier, gguf, error);
    if (st == GPUSERVE_OK && has_classifier)
        st = find_labels(&labels, gguf, architecture, error);
    if (st != GPUSERVE_OK)
        return st;
    /* A byte of a label takes up to 6 in JSON, its number and quotes less than 32. */
    json->capacity = NUMBERS_BYTES + (labels ? 6 * labels->size + 32 * (size_t)labels->n : 0);
    json->text = malloc(json->capacity);
    if (!json->text)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gguf->shown);
    put(json, "{");
    architecture->write(json, &numbers, has_classifier);
    if (labels && labels->n > 0)
        st = put_labels(json, gguf, labels, error);
    put(json, "}");
    return st;
}

gpuserve_status gsv_gguf_config(struct gsv_json_value **out, const struct gsv_gguf *gguf,
                                gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { 4 * MAX_LABELS, 8 };
    struct gguf_json json = { 0 };
    gpuserve_status st = write_json(&json, gguf, error);

    *out = NULL;
    if (st == GPUSERVE_OK)
        st = gsv_json_read(out, json.text, json.size, gguf->shown, limits, error);
    free(json.text);
    return st;
}

gpuserve_status gsv_gguf_read_modules(struct gsv_gguf_modules *modules, const struct gsv_gguf *gguf,
                                      gpuserve_error *error)
{
    static const char *const folders[GSV_GGUF_MAX_DENSE] = { "dense_2", "dense_3" };
    const struct gguf_architecture *architecture = NULL;
    char key[KEY_BYTES];
    gpuserve_status st = find_architecture(gguf, &architecture, error);

    *modules = (struct gsv_gguf_modules){ .pooling = GSV_GGUF_POOLING_UNKNOWN };
    if (st == GPUSERVE_OK)
        st = gsv_gguf_int(gguf, key_of(key, architecture, "pooling_type"), GSV_GGUF_POOLING_NONE,
                          GSV_GGUF_POOLING_RANK, &modules->pooling, error);
    if (st == GPUSERVE_OK)
        st = gsv_gguf_int(gguf, key_of(key, architecture, "context_length"), 1, INT32_MAX,
                          &modules->max_tokens, error);
    for (size_t i = 0; i < GSV_GGUF_MAX_DENSE && st == GPUSERVE_OK; i++) {
        char name[32];
        const struct gsv_gguf_tensor *tensor;

        snprintf(name, sizeof(name), "%s.weight", folders[i]);
        tensor = gsv_gguf_find_tensor(gguf, name);
        if (tensor && tensor->rank == 2)
            modules->dense[modules->n_dense++] =
                (struct gsv_gguf_dense){ folders[i], tensor->dims[0], tensor->dims[1] };
    }
    return st;
}
