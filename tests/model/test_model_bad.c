/*
 * test_model_bad.c - damaged and hostile model directories: each is rejected, and the message names
 * the file, the faulty part and what was expected.
 */
#define _GNU_SOURCE
#include "lib/base/alloc.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How a file of a good model is damaged. */
enum damage {
    TEXT,     /* `from` becomes `to` */
    HEADER,   /* the same in a safetensors header; its length is updated */
    TRUNCATE, /* truncated to `to` bytes, or by that many if negative */
    WRITE,    /* `to` replaces the whole content */
    REMOVE,
    NUMBER, /* the first float of tensor `from` becomes `to` */
    LENGTH, /* the safetensors header length becomes `to` */
    SHAPE,  /* tensor `from` is replaced by zeros of shape `to` */
};

struct bad_case {
    const char *what;
    const char *model;
    enum damage damage;
    const char *file, *from, *to;
    gpuserve_status status;
    const char *message; /* required part of the message */
};

/* -------------------------------------------------------------------------------------- files */

/* `bytes` with the first `from` replaced by `to`; frees the old buffer. */
static char *replace(char *bytes, size_t *size, size_t begin, const char *from, const char *to)
{
    char *place = memmem(bytes + begin, *size - begin, from, strlen(from));
    const size_t before = place ? (size_t)(place - bytes) : 0;
    const size_t after = *size - before - strlen(from);
    char *made = malloc(before + strlen(to) + after + 1);

    cr_assert(place, "'%s' is not there", from);
    memcpy(made, bytes, before);
    memcpy(made + before, to, strlen(to));
    memcpy(made + before + strlen(to), place + strlen(from), after);
    *size = before + strlen(to) + after;
    free(bytes);
    return made;
}

static void set_length(char *bytes, uint64_t length)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(length >> (8 * i));
}

static uint64_t get_length(const char *bytes)
{
    uint64_t length = 0;

    for (int i = 7; i >= 0; i--)
        length = length << 8 | (unsigned char)bytes[i];
    return length;
}

/* Sets the first float of a tensor. */
static void set_first_float(char *bytes, const char *tensor, float value)
{
    const char *place = strstr(bytes + 8, tensor);
    const char *offsets = place ? strstr(place, "\"data_offsets\":[") : NULL;
    uint64_t offset;

    cr_assert(offsets, "%s", tensor);
    offset = 8 + get_length(bytes) + strtoull(offsets + strlen("\"data_offsets\":["), NULL, 10);
    memcpy(bytes + offset, &value, sizeof(value));
}

/* Renames the tensor, and appends a tensor of that name and the given shape to the file. */
static char *reshape(char *bytes, size_t *size, const char *name, const char *shape)
{
    const size_t data = *size - 8 - get_length(bytes);
    char from[256], to[256], entry[512];
    size_t n_bytes = sizeof(float), header;
    const char *p = shape;

    while (*p) {
        n_bytes *= strtoull(p, (char **)&p, 10);
        p += *p == ',';
    }
    snprintf(from, sizeof(from), "\"%s\":", name);
    snprintf(to, sizeof(to), "\"old %s\":", name);
    bytes = replace(bytes, size, 8, from, to);
    snprintf(entry, sizeof(entry),
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]},", name, shape,
             data, data + n_bytes);
    bytes = replace(bytes, size, 8, "{", entry);
    header = *size - 8 - data;
    bytes = realloc(bytes, *size + n_bytes);
    memset(bytes + *size, 0, n_bytes);
    *size += n_bytes;
    set_length(bytes, header);
    return bytes;
}

static void spoil(const char *folder, const struct bad_case *c)
{
    char path[2048];
    size_t size;
    char *bytes;

    snprintf(path, sizeof(path), "%s/%s", folder, c->file);
    if (c->damage == REMOVE) {
        cr_assert_eq(unlink(path), 0, "%s", path);
        return;
    }
    if (c->damage == WRITE) {
        write_file(path, c->to, strlen(c->to));
        return;
    }
    bytes = read_file(path, &size);
    if (c->damage == TEXT)
        bytes = replace(bytes, &size, 0, c->from, c->to);
    else if (c->damage == HEADER) {
        const size_t before = size;

        bytes = replace(bytes, &size, 8, c->from, c->to);
        set_length(bytes, get_length(bytes) + size - before);
    } else if (c->damage == TRUNCATE)
        size = atoi(c->to) < 0 ? size - (size_t)-atoi(c->to) : (size_t)atoi(c->to);
    else if (c->damage == SHAPE)
        bytes = reshape(bytes, &size, c->from, c->to);
    else if (c->damage == NUMBER)
        set_first_float(bytes, c->from, strtof(c->to, NULL));
    else
        set_length(bytes, strtoull(c->to, NULL, 10));
    write_file(path, bytes, size);
    free(bytes);
}

/* -------------------------------------------------------------------------------------- cases */

#define WEIGHTS "model.safetensors"
#define SENTENCES "config_sentence_transformers.json"
#define INDEX "model.safetensors.index.json"
#define MODULE(name, path) \
    "{\"type\":\"sentence_transformers.models." name "\",\"path\":\"" path "\"}"
#define FIRST_MODULES "[" MODULE("Transformer", "") "," MODULE("Pooling", "1_Pooling") ","
#define DENSE MODULE("Dense", "2_Dense")
#define TIMES_4(text) text text text text
#define LONG TIMES_4(TIMES_4(TIMES_4("long name, ")))
#define LFS "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 90868376\n"

static const struct bad_case cases[] = {
    { "no config", "bert", REMOVE, "config.json", 0, 0, GPUSERVE_E_NOT_FOUND, "config.json" },
    { "no weights", "bert", REMOVE, WEIGHTS, 0, 0, GPUSERVE_E_NOT_FOUND, WEIGHTS },
    { "cut config", "bert", TRUNCATE, "config.json", 0, "50", GPUSERVE_E_FORMAT, "config.json" },
    { "config is an array", "bert", WRITE, "config.json", 0, "[1]", GPUSERVE_E_FORMAT,
      "not a JSON object" },
    { "config is a pointer", "bert", WRITE, "config.json", 0, LFS, GPUSERVE_E_FORMAT, "Git LFS" },
    { "unknown type", "bert", TEXT, "config.json", "\"model_type\": \"bert\"",
      "\"model_type\": \"gpt2\"", GPUSERVE_E_UNSUPPORTED, "gpt2" },
    { "another's class", "bert", TEXT, "config.json", "BertModel", "NezhaModel",
      GPUSERVE_E_UNSUPPORTED, "NezhaModel" },
    { "heads", "bert", TEXT, "config.json", "\"num_attention_heads\": 4",
      "\"num_attention_heads\": 5", GPUSERVE_E_FORMAT, "hidden_size 32" },
    { "no hidden size", "bert", TEXT, "config.json", "\"hidden_size\"", "\"hidden\"",
      GPUSERVE_E_FORMAT, "\"hidden_size\" is missing" },
    { "negative layers", "bert", TEXT, "config.json", "\"num_hidden_layers\": 2",
      "\"num_hidden_layers\": -2", GPUSERVE_E_FORMAT, "num_hidden_layers" },
    { "more layers than weights", "bert", TEXT, "config.json", "\"num_hidden_layers\": 2",
      "\"num_hidden_layers\": 3", GPUSERVE_E_FORMAT,
      "'encoder.layer.2.attention.self.query.weight' is missing" },
    { "unknown activation", "bert", TEXT, "config.json", "\"gelu\"", "\"mish\"",
      GPUSERVE_E_UNSUPPORTED, "mish" },
    { "relative positions", "bert", TEXT, "config.json", "\"absolute\"", "\"relative_key\"",
      GPUSERVE_E_UNSUPPORTED, "relative_key" },
    { "vocabulary", "bert", TEXT, "config.json", "\"vocab_size\": 96", "\"vocab_size\": 97",
      GPUSERVE_E_FORMAT, "[96, 32] of rank 2, expected shape [97, 32]" },
    { "labels", "bert-single", TEXT, "config.json", "\"0\": \"bad\",",
      "\"0\": \"bad\", \"3\": \"x\",", GPUSERVE_E_FORMAT,
      "4 labels, the classifier's weights have 3" },
    { "label numbers", "bert-single", TEXT, "config.json", "\"2\": \"so so\"", "\"7\": \"so so\"",
      GPUSERVE_E_FORMAT, "label 2 is missing" },
    { "problem type", "bert-single", TEXT, "config.json", "single_label_classification", "guessing",
      GPUSERVE_E_FORMAT, "guessing" },
    { "no labels", "bert-single", TEXT, "config.json", "\"id2label\": {",
      "\"id2label\": {}, \"other\": {", GPUSERVE_E_FORMAT, "0 labels, expected 1 to 100000" },
    { "labels that are no object", "bert-single", TEXT, "config.json", "\"id2label\": {",
      "\"id2label\": 3, \"other\": {", GPUSERVE_E_FORMAT, "id2label is not an object" },
    { "a label that is no string", "bert-single", TEXT, "config.json", "\"bad\",", "1,",
      GPUSERVE_E_FORMAT, "label 0 is not a string" },
    { "decoder", "bert", TEXT, "config.json", "\"hidden_act\"",
      "\"is_decoder\": true, \"hidden_act\"", GPUSERVE_E_UNSUPPORTED, "a decoder" },
    { "code of its own", "bert", TEXT, "config.json", "\"hidden_act\"",
      "\"auto_map\": {\"AutoModel\": \"m.M\"}, \"hidden_act\"", GPUSERVE_E_UNSUPPORTED,
      "auto_map" },
    { "scaled rotary positions", "bert", TEXT, "config.json", "\"hidden_act\"",
      "\"rope_scaling\": {\"type\": \"linear\"}, \"hidden_act\"", GPUSERVE_E_UNSUPPORTED,
      "rope_scaling" },
    { "adapters without a rank", "jina-v3-hub-lora", TEXT, "config.json", "\"lora_rank\"",
      "\"rank\"", GPUSERVE_E_FORMAT, "\"lora_rank\" is missing" },
    { "adapters of an absurd rank", "jina-v3-hub-lora", TEXT, "config.json", "\"lora_rank\": 4",
      "\"lora_rank\": 100000", GPUSERVE_E_FORMAT, "lora_rank" },
    { "adapters of another rank", "jina-v3-hub-lora", TEXT, "config.json", "\"lora_rank\": 4",
      "\"lora_rank\": 5", GPUSERVE_E_FORMAT, "expected shape [5, 48, 5]" },
    { "two adapters of one name", "jina-v3-hub-lora", TEXT, "config.json", "\"separation\",",
      "\"classification\",", GPUSERVE_E_FORMAT, "'classification' is there twice" },
    { "an adapter without a name", "jina-v3-hub-lora", TEXT, "config.json", "\"separation\",", "7,",
      GPUSERVE_E_FORMAT, "element 2 is not a name" },
    { "no adapters", "jina-v3-hub-lora", TEXT, "config.json", "\"lora_adaptations\": [",
      "\"lora_adaptations\": [], \"x\": [", GPUSERVE_E_FORMAT, "list of 1 to 64 names" },
    { "an adapter without a tensor", "jina-v3-hub-lora", HEADER, "model.safetensors",
      "out_proj.parametrizations.weight.0.lora_B", "out_proj.parametrizations.weight.0.lora_C",
      GPUSERVE_E_FORMAT, "lora_B' is missing" },
    { "adapters of learned positions", "roberta", TEXT, "config.json", "\"hidden_act\"",
      "\"lora_adaptations\": [\"a\"], \"hidden_act\"", GPUSERVE_E_UNSUPPORTED,
      "\"lora_adaptations\" is not supported" },
    { "more experts chosen than there are", "nomic-moe-hub", TEXT, "config.json",
      "\"moe_top_k\": 2", "\"moe_top_k\": 5", GPUSERVE_E_UNSUPPORTED,
      "num_experts 4, moe_top_k 5" },
    { "experts in no layer", "nomic-moe-hub", TEXT, "config.json", "\"moe_every_n_layers\": 2",
      "\"moe_every_n_layers\": 1", GPUSERVE_E_UNSUPPORTED, "moe_every_n_layers 1" },
    { "no experts", "nomic-moe-hub", TEXT, "config.json", "\"num_experts\"", "\"experts\"",
      GPUSERVE_E_UNSUPPORTED, "num_experts 0" },
    { "absurdly many experts", "nomic-moe-hub", TEXT, "config.json", "\"num_experts\": 4",
      "\"num_experts\": 257", GPUSERVE_E_FORMAT, "num_experts" },
    { "other experts", "nomic-moe-hub", TEXT, "config.json", "\"num_experts\": 4",
      "\"num_experts\": 5", GPUSERVE_E_FORMAT, "expected shape [5, 32]" },
    { "experts with gates", "nomic-moe-hub", TEXT, "config.json",
      "\"activation_function\": \"gelu\"", "\"activation_function\": \"swiglu\"",
      GPUSERVE_E_UNSUPPORTED, "'swiglu' is not supported" },
    { "experts that choose tokens", "nomic-moe-hub", TEXT, "config.json",
      "\"expert_choice_router\": false", "\"expert_choice_router\": true", GPUSERVE_E_UNSUPPORTED,
      "expert_choice_router" },
    { "weights of experts divided by their sum", "nomic-moe-hub", TEXT, "config.json",
      "\"moe_normalize_expert_weights\": false", "\"moe_normalize_expert_weights\": true",
      GPUSERVE_E_UNSUPPORTED, "moe_normalize_expert_weights" },
    { "experts without a bias", "nomic-moe-hub", HEADER, "model.safetensors", "mlp.experts.bias",
      "mlp.experts.bios", GPUSERVE_E_FORMAT, "mlp.experts.bias' is missing" },
    { "a convolution of other groups", "deberta-v2-conv-tanh", TEXT, "config.json",
      "\"conv_groups\": 2", "\"conv_groups\": 4", GPUSERVE_E_FORMAT, "expected shape [32, 8, 3]" },
    { "a convolution without weights", "deberta-v2-conv", HEADER, "model.safetensors",
      "encoder.conv.conv.weight", "encoder.conv.conv.height", GPUSERVE_E_FORMAT,
      "encoder.conv.conv.weight' is missing" },
    { "no other feed-forward network", "mobilebert", HEADER, "model.safetensors",
      "layer.0.ffn.1.output.dense.weight", "layer.0.ffn.1.output.dense.height", GPUSERVE_E_FORMAT,
      "layer.0.ffn.1.output.dense.weight' is missing" },
    { "one feed-forward network too many", "mobilebert", TEXT, "config.json",
      "\"num_feedforward_networks\": 4", "\"num_feedforward_networks\": 3", GPUSERVE_E_UNSUPPORTED,
      "ffn.2." },
    { "a bottleneck of other columns", "mobilebert", SHAPE, "model.safetensors",
      "encoder.layer.1.bottleneck.input.dense.weight", "32,16", GPUSERVE_E_FORMAT,
      "expected shape [16, 32]" },
    { "a decoder without its other columns", "mobilebert-masked", HEADER, "model.safetensors",
      "cls.predictions.dense.weight", "cls.predictions.dense.height", GPUSERVE_E_FORMAT,
      "cls.predictions.dense.weight' is missing" },
    { "other columns of other words", "mobilebert-masked", SHAPE, "model.safetensors",
      "cls.predictions.dense.weight", "48,8", GPUSERVE_E_FORMAT, "expected shape [8, 48]" },
    { "a decoder without a layer", "bart", TEXT, "config.json", "\"decoder_layers\": 2",
      "\"decoder_layers\": 3", GPUSERVE_E_FORMAT,
      "tensor 'decoder.layers.2.self_attn.q_proj.weight' is missing" },
    { "a decoder layer too many", "bart", TEXT, "config.json", "\"decoder_layers\": 2",
      "\"decoder_layers\": 1", GPUSERVE_E_UNSUPPORTED, "tensor 'decoder.layers.1." },
    { "an encoder layer too few", "bart", TEXT, "config.json", "\"encoder_layers\": 2",
      "\"encoder_layers\": 3", GPUSERVE_E_FORMAT,
      "tensor 'encoder.layers.2.self_attn.q_proj.weight' is missing" },
    { "an encoder layer too many", "bart", TEXT, "config.json", "\"encoder_layers\": 2",
      "\"encoder_layers\": 1", GPUSERVE_E_UNSUPPORTED, "tensor 'encoder.layers.1." },
    { "no cross-attention", "bart", HEADER, "model.safetensors",
      "decoder.layers.0.encoder_attn.k_proj.weight", "decoder.layers.0.encoder_attn.k_proj.height",
      GPUSERVE_E_FORMAT, "decoder.layers.0.encoder_attn.k_proj.weight' is missing" },
    { "cross-attention of other columns", "bart", SHAPE, "model.safetensors",
      "decoder.layers.1.encoder_attn.out_proj.weight", "32,16", GPUSERVE_E_FORMAT,
      "expected shape [32, 32]" },
    { "no norm after cross-attention", "bart", HEADER, "model.safetensors",
      "decoder.layers.0.encoder_attn_layer_norm.bias",
      "decoder.layers.0.encoder_attn_layer_norm.bios", GPUSERVE_E_FORMAT,
      "decoder.layers.0.encoder_attn_layer_norm.bias' is missing" },
    { "a decoder without positions", "bart", HEADER, "model.safetensors",
      "decoder.embed_positions.weight", "decoder.embed_positions.height", GPUSERVE_E_FORMAT,
      "decoder.embed_positions.weight' is missing" },
    { "positions without those of pads", "bart", SHAPE, "model.safetensors",
      "decoder.embed_positions.weight", "33,32", GPUSERVE_E_FORMAT, "expected shape [35, 32]" },
    { "a decoder without its norm", "bart", HEADER, "model.safetensors",
      "decoder.layernorm_embedding.weight", "decoder.layernorm_embedding.height", GPUSERVE_E_FORMAT,
      "decoder.layernorm_embedding.weight' is missing" },
    { "a classifier without its first layer", "bart-single", HEADER, "model.safetensors",
      "classification_head.dense.weight", "classification_head.dense.height", GPUSERVE_E_FORMAT,
      "classification_head.dense.weight' is missing" },
    { "cross attention", "bert", TEXT, "config.json", "\"hidden_act\"",
      "\"add_cross_attention\": true, \"hidden_act\"", GPUSERVE_E_UNSUPPORTED, "a decoder" },
    { "too many buckets", "mpnet", TEXT, "config.json", "\"relative_attention_num_buckets\": 32",
      "\"relative_attention_num_buckets\": 512", GPUSERVE_E_FORMAT,
      "relative_attention_num_buckets" },
    { "no room for positions", "roberta", TEXT, "config.json", "\"max_position_embeddings\": 40",
      "\"max_position_embeddings\": 2", GPUSERVE_E_FORMAT,
      "positions start at 2, but the position table has only 2" },
    { "negative eps", "bert", TEXT, "config.json", "1e-12", "-1e-12", GPUSERVE_E_FORMAT,
      "outside 0 to 1" },
    { "large eps", "bert", TEXT, "config.json", "1e-12", "1.5", GPUSERVE_E_FORMAT,
      "\"layer_norm_eps\" is 1.5, outside 0 to 1" },
    { "no classifier", "bert-single", HEADER, WEIGHTS, "\"classifier.weight\"",
      "\"klassifier.weight\"", GPUSERVE_E_FORMAT, "'classifier.weight' is missing" },

    { "cut weights", "bert", TRUNCATE, WEIGHTS, 0, "-1", GPUSERVE_E_FORMAT, "truncated" },
    { "cut header", "bert", TRUNCATE, WEIGHTS, 0, "100", GPUSERVE_E_FORMAT, "the file only 100" },
    { "empty weights", "bert", TRUNCATE, WEIGHTS, 0, "0", GPUSERVE_E_FORMAT, "0 bytes" },
    { "header too long", "bert", LENGTH, WEIGHTS, 0, "100000001", GPUSERVE_E_FORMAT,
      "the limit is 100000000" },
    { "header length of all ones", "bert", LENGTH, WEIGHTS, 0, "18446744073709551615",
      GPUSERVE_E_FORMAT, "the limit" },
    { "pointer", "bert", WRITE, WEIGHTS, 0, LFS, GPUSERVE_E_FORMAT, "Git LFS pointer" },
    { "not safetensors", "bert", WRITE, WEIGHTS, 0, "PK\x03\x04 a zip file, say", GPUSERVE_E_FORMAT,
      "header" },
    { "bad JSON", "bert", HEADER, WEIGHTS, "{", "{,", GPUSERVE_E_FORMAT, WEIGHTS },
    { "gap", "bert", HEADER, WEIGHTS, "\"data_offsets\":[0,", "\"data_offsets\":[4,",
      GPUSERVE_E_FORMAT, "gap" },
    { "dtype", "bert", HEADER, WEIGHTS, "\"F32\"", "\"F33\"", GPUSERVE_E_FORMAT, "F33" },
    { "shape", "bert", HEADER, WEIGHTS, "\"shape\":[32]", "\"shape\":[33]", GPUSERVE_E_FORMAT,
      "needs 132 bytes, data_offsets span 128" },
    { "overflow", "bert", HEADER, WEIGHTS, "\"shape\":[32]", "\"shape\":[4294967296,4294967296,32]",
      GPUSERVE_E_FORMAT, "overflows" },
    { "rank of a vector", "bert", HEADER, WEIGHTS, "\"shape\":[32]", "\"shape\":[4,8]",
      GPUSERVE_E_FORMAT, "has rank 2 and 32 elements, expected shape [32]" },
    { "no words", "bert", HEADER, WEIGHTS, "\"embeddings.word_embeddings.weight\"",
      "\"embeddings.vord_embeddings.weight\"", GPUSERVE_E_FORMAT,
      "'embeddings.word_embeddings.weight' is missing, with or without 'bert.'" },
    { "classifier of no rows", "bert-single", SHAPE, WEIGHTS, "classifier.weight", "0,32",
      GPUSERVE_E_FORMAT, "or 0 rows outside" },
    { "classifier that is no matrix", "bert-single", SHAPE, WEIGHTS, "classifier.weight", "96",
      GPUSERVE_E_FORMAT, "or 96 rows outside" },
    { "classifier of too many rows", "bert-single", SHAPE, WEIGHTS, "classifier.weight", "100001,1",
      GPUSERVE_E_FORMAT, "or 100001 rows outside" },
    { "no bias of words", "bert-masked", HEADER, WEIGHTS, "\"cls.predictions.bias\"",
      "\"cls.predictions.bios\"", GPUSERVE_E_FORMAT, "'cls.predictions.bias' is missing" },
    { "integer weights", "bert", HEADER, WEIGHTS, "\"F32\"", "\"I32\"", GPUSERVE_E_UNSUPPORTED,
      "is I32" },
    { "metadata", "bert", HEADER, WEIGHTS, "\"format\":\"pt\"", "\"format\":1", GPUSERVE_E_FORMAT,
      "__metadata__" },
    { "missing tensor", "bert", HEADER, WEIGHTS, "encoder.layer.1.output.dense.bias",
      "encoder.layer.1.output.dense.bios", GPUSERVE_E_FORMAT,
      "'encoder.layer.1.output.dense.bias' is missing" },
    { "NaN", "bert", NUMBER, WEIGHTS, "\"encoder.layer.1.output.dense.weight\"", "nan",
      GPUSERVE_E_FORMAT, "'encoder.layer.1.output.dense.weight': element 0 is not a number" },
    { "infinity", "bert", NUMBER, WEIGHTS, "\"embeddings.word_embeddings.weight\"", "-inf",
      GPUSERVE_E_FORMAT, "'embeddings.word_embeddings.weight': element 0 is infinite" },

    { "shard away", "bert-sharded", REMOVE, "model-00002-of-00002.safetensors", 0, 0,
      GPUSERVE_E_NOT_FOUND, "model-00002-of-00002.safetensors" },
    { "shard outside", "bert-sharded", TEXT, "model.safetensors.index.json",
      "model-00002-of-00002.safetensors", "../../../etc/passwd", GPUSERVE_E_INVALID,
      "leaves the directory" },
    { "no map", "bert-sharded", TEXT, "model.safetensors.index.json", "weight_map", "weight_mop",
      GPUSERVE_E_FORMAT, "weight_map is missing" },

    { "empty map", "bert-sharded", TEXT, INDEX, "\"weight_map\": {",
      "\"weight_map\": {}, \"other\": {", GPUSERVE_E_FORMAT, "weight_map is missing" },
    { "shard that is no name", "bert-sharded", TEXT, INDEX, "\"model-00001-of-00002.safetensors\"",
      "7", GPUSERVE_E_FORMAT, "is not a string" },
    { "shard's name too long", "bert-sharded", TEXT, INDEX, "model-00001-of-00002.safetensors",
      LONG, GPUSERVE_E_FORMAT, "is longer than 511 bytes" },

    { "folder's name too long", "st-dense", TEXT, "modules.json", "1_Pooling", LONG,
      GPUSERVE_E_FORMAT, "is longer than 511 bytes" },
    { "no Pooling", "st-dense", WRITE, "modules.json", 0, "[" MODULE("Transformer", "") "]",
      GPUSERVE_E_UNSUPPORTED, "the Pooling module is missing" },
    { "two Transformers", "st-dense", WRITE, "modules.json", 0,
      "[" MODULE("Transformer", "") "," MODULE("Transformer", "") "]", GPUSERVE_E_UNSUPPORTED,
      "two Transformer modules" },
    { "module without a type", "st-dense", WRITE, "modules.json", 0, "[{\"path\":\"\"}]",
      GPUSERVE_E_FORMAT, "a module has no \"type\"" },
    { "Dense without a width", "st-dense", TEXT, "2_Dense/config.json", "\"in_features\"", "\"in\"",
      GPUSERVE_E_FORMAT, "in_features or out_features is missing" },
    { "prompts that are no object", "st-dense", TEXT, SENTENCES, "\"prompts\": {",
      "\"prompts\": 3, \"other\": {", GPUSERVE_E_FORMAT, "prompts is not an object" },
    { "no modules", "st-dense", WRITE, "modules.json", 0, "[]", GPUSERVE_E_FORMAT,
      "0 modules, expected 1 to 64" },
    { "too many modules", "st-dense", WRITE, "modules.json", 0,
      "[" TIMES_4(TIMES_4(TIMES_4(MODULE("Dropout", "") ","))) MODULE("Dropout", "") "]",
      GPUSERVE_E_FORMAT, "65 modules, expected 1 to 64" },
    { "too many Dense", "st-dense", WRITE, "modules.json", 0,
      FIRST_MODULES TIMES_4(DENSE ",") TIMES_4(DENSE ",") DENSE "]", GPUSERVE_E_UNSUPPORTED,
      "more than 8 Dense" },
    { "Dense on other rows", "st-dense-kinds", TEXT, "3_Dense/config.json",
      "\"module_output_name\": \"sentence_embedding\"", "\"module_output_name\": \"scores\"",
      GPUSERVE_E_UNSUPPORTED, "module_output_name 'scores'" },
    { "Dense on tokens after Pooling", "st-dense-kinds", TEXT, "3_Dense/config.json",
      "\"sentence_embedding\",\n    \"module_output_name\": \"sentence_embedding\"",
      "\"token_embeddings\",\n    \"module_output_name\": \"token_embeddings\"",
      GPUSERVE_E_UNSUPPORTED, "on token vectors after Pooling" },
    { "Dense on pooled vectors before Pooling", "st-dense-kinds", TEXT, "1_Dense/config.json",
      "\"token_embeddings\",\n    \"module_output_name\": \"token_embeddings\"",
      "\"sentence_embedding\",\n    \"module_output_name\": \"sentence_embedding\"",
      GPUSERVE_E_UNSUPPORTED, "no Pooling module precedes it" },
    { "sigmoid on tokens", "st-dense-kinds", TEXT, "1_Dense/config.json", "activation.ReLU",
      "activation.Sigmoid", GPUSERVE_E_UNSUPPORTED, "Sigmoid and Softmax on token vectors" },
    { "residual of a sigmoid", "st-dense-kinds", TEXT, "3_Dense/config.json", "activation.GELU",
      "activation.Sigmoid", GPUSERVE_E_UNSUPPORTED, "use_residual with Sigmoid" },
    { "LayerNorm without a dimension", "st-layer-norm", TEXT, "2_LayerNorm/config.json",
      "\"dimension\"", "\"width\"", GPUSERVE_E_FORMAT, "dimension is missing" },
    { "LayerNorm of another width", "st-layer-norm", TEXT, "2_LayerNorm/config.json", "32", "31",
      GPUSERVE_E_FORMAT, "dimension in config.json next to it is 31" },
    { "weights of other layers", "st-weighted-layers", TEXT, "1_WeightedLayerPooling/config.json",
      "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4", GPUSERVE_E_FORMAT,
      "num_hidden_layers in config.json next to it is 4, the model has 3" },
    { "first layer after the last", "st-weighted-layers", TEXT,
      "1_WeightedLayerPooling/config.json", "\"layer_start\": 1", "\"layer_start\": 4",
      GPUSERVE_E_FORMAT, "layer_start is 4, num_hidden_layers only 3" },
    { "route of an unknown module", "st-router-dense", TEXT, "2_Router/router_config.json",
      "modules.dense.Dense", "modules.rnn.LSTM", GPUSERVE_E_UNSUPPORTED, "modules.rnn.LSTM" },
    { "routes that are no object", "st-router-dense", TEXT, "2_Router/router_config.json",
      "\"structure\"", "\"other\"", GPUSERVE_E_FORMAT, "\"structure\" is missing" },
    { "route that is no list", "st-router-dense", TEXT, "2_Router/router_config.json",
      "\"query\": [", "\"query\": 3, \"other\": [", GPUSERVE_E_FORMAT,
      "route 'query' is not a list" },
    { "static embedding without a table", "st-static", TEXT, "modules.json",
      "static_embedding.StaticEmbedding", "static_embedding.Other", GPUSERVE_E_UNSUPPORTED,
      "static_embedding.Other" },
    { "ColBERT without its projection", "colbert", TEXT, "model.safetensors", "linear.weight",
      "linear.weighs", GPUSERVE_E_FORMAT, "tensor 'linear.weight' is missing" },
    { "a prompt that is no text", "st-dense", TEXT, SENTENCES, "\"query: \"", "7",
      GPUSERVE_E_FORMAT, "prompt 'query' is not a string" },
    { "unknown module", "st-dense", TEXT, "modules.json", "models.Dense", "models.LSTM",
      GPUSERVE_E_UNSUPPORTED, "models.LSTM" },
    { "module of code", "st-dense", TEXT, "modules.json", "sentence_transformers.models.Dense",
      "custom_code.Dense", GPUSERVE_E_UNSUPPORTED, "custom_code.Dense" },
    { "module outside", "st-dense", TEXT, "modules.json", "1_Pooling", "../bert",
      GPUSERVE_E_INVALID, "leaves the directory" },
    { "no pooling on", "st-newer", TEXT, "1_Pooling/config.json", "\"cls\"", "[]",
      GPUSERVE_E_FORMAT, "no pooling mode" },
    { "unknown pooling", "st-newer", TEXT, "1_Pooling/config.json", "\"cls\"", "\"median\"",
      GPUSERVE_E_UNSUPPORTED, "median" },
    { "weighted pooling without prompt", "st-poolings", TEXT, "1_Pooling/config.json",
      "\"include_prompt\": true", "\"include_prompt\": false", GPUSERVE_E_UNSUPPORTED,
      "include_prompt" },
    { "Dense input", "st-dense", TEXT, "2_Dense/config.json", "\"in_features\": 64",
      "\"in_features\": 32", GPUSERVE_E_FORMAT,
      "in_features in config.json next to it is 32, the layer's input has 64 columns" },
    { "Dense output", "st-dense", TEXT, "2_Dense/config.json", "\"out_features\": 24",
      "\"out_features\": 25", GPUSERVE_E_FORMAT, "expected shape [25, 64]" },
    { "Dense activation", "st-dense", TEXT, "2_Dense/config.json", "Tanh", "Softplus",
      GPUSERVE_E_UNSUPPORTED, "Softplus" },
    { "default prompt", "st-dense", TEXT, "config_sentence_transformers.json",
      "\"default_prompt_name\": \"query\"", "\"default_prompt_name\": \"question\"",
      GPUSERVE_E_FORMAT, "'question' is not one of the 2 prompts" },
    { "token limit", "st-dense", TEXT, "sentence_bert_config.json", "36", "0", GPUSERVE_E_FORMAT,
      "max_seq_length" },
    /* Tensors that the changed configuration leaves without a reader. */
    { "fewer layers than weights", "bert", TEXT, "config.json", "\"num_hidden_layers\": 2",
      "\"num_hidden_layers\": 1", GPUSERVE_E_UNSUPPORTED, "tensor 'encoder.layer.1." },
    { "unread types", "bert", TEXT, "config.json", "\"type_vocab_size\": 2",
      "\"type_vocab_size\": 0", GPUSERVE_E_UNSUPPORTED,
      "tensor 'embeddings.token_type_embeddings.weight' belongs to no part" },
    { "unread tasks", "ernie", TEXT, "config.json", "\"use_task_id\": true",
      "\"use_task_id\": false", GPUSERVE_E_UNSUPPORTED,
      "tensor 'embeddings.task_type_embeddings.weight' belongs to no part" },
    { "unread convolution", "deberta-v2-conv", TEXT, "config.json", "\"conv_kernel_size\": 3",
      "\"conv_kernel_size\": 0", GPUSERVE_E_UNSUPPORTED, "tensor 'encoder.conv." },
    { "unread norm of distances", "deberta-v3", TEXT, "config.json",
      "\"norm_rel_ebd\": \"layer_norm\"", "\"norm_rel_ebd\": \"none\"", GPUSERVE_E_UNSUPPORTED,
      "tensor 'encoder.LayerNorm." },
    { "unread distances", "deberta-v3", TEXT, "config.json", "\"relative_attention\": true",
      "\"relative_attention\": false", GPUSERVE_E_UNSUPPORTED, "tensor 'encoder." },
    { "unread layers", "../recurrent/torch-two-layers", TEXT, "config.json", "\"num_layers\": 2",
      "\"num_layers\": 1", GPUSERVE_E_UNSUPPORTED, "_l1' belongs to no part" },
    { "an unknown part", "mpnet", HEADER, "model.safetensors", "\"embeddings.LayerNorm.bias\":",
      "\"crf.transitions\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
      "\"embeddings.LayerNorm.bias\":",
      GPUSERVE_E_UNSUPPORTED, "tensor 'crf.transitions' belongs to no part" },
    { "class token", "../entities/bert-spans", TEXT, "gliner_config.json",
      "\"class_token_index\": 181", "\"class_token_index\": 2147483647", GPUSERVE_E_FORMAT,
      "class_token_index" },
};

Test(model_bad, every_damage_is_refused_with_its_reason)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct bad_case *c = &cases[i];
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char folder[] = "/tmp/gsv-bad-XXXXXX";
        char good[1024];
        gpuserve_status st;

        cr_assert(mkdtemp(folder));
        snprintf(good, sizeof(good), "%s/models/%s", TEST_DATA_DIR, c->model);
        each_file(good, folder);
        spoil(folder, c);
        st = try_load(folder, NULL, &error);
        cr_expect_eq(st, c->status, "%s: status %d: %s", c->what, st, error.message);
        cr_expect_eq(error.status, (int32_t)c->status, "%s", c->what);
        cr_expect(strstr(error.message, c->message), "%s: '%s' is not in: %s", c->what, c->message,
                  error.message);
        each_file(folder, NULL);
    }
}

/* Encoder and decoder of BART share the words, which files have under any of three names. */
Test(model_bad, shared_words_have_any_of_their_names)
{
    static const char *const names[] = { "encoder.embed_tokens.weight",
                                         "decoder.embed_tokens.weight" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct bad_case c = {
            .damage = HEADER, .file = "model.safetensors", .from = "shared.weight", .to = names[i]
        };
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char folder[] = "/tmp/gsv-bad-XXXXXX";

        cr_assert(mkdtemp(folder));
        each_file(test_data("models/bart"), folder);
        spoil(folder, &c);
        cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_OK, "%s: %s", names[i],
                     error.message);
        each_file(folder, NULL);
    }
}

/* The modules of another model around BART: its decoder has no layers to mix, and reads all tokens.
 */
Test(model_bad, modules_that_a_decoder_does_not_support)
{
    static const struct {
        const char *modules;
        struct bad_case edit; /* of BART's config.json */
        const char *message;
    } models[] = {
        { "st-weighted-layers",
          { .damage = TEXT,
            .file = "config.json",
            .from = "\"d_model\"",
            .to = "\"output_hidden_states\": true, \"d_model\"" },
          "WeightedLayerPooling is not supported for a model with a decoder" },
        { "st-multi-vector",
          { .damage = TEXT, .file = "config.json", .from = "{", .to = "{" },
          "query_expansion with attend false is not supported for a model with a decoder" },
    };

    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char folder[] = "/tmp/gsv-bad-XXXXXX", path[256];

        cr_assert(mkdtemp(folder));
        snprintf(path, sizeof(path), "models/%s", models[i].modules);
        each_file(test_data(path), folder);
        each_file(test_data("models/bart"), folder);
        spoil(folder, &models[i].edit);
        cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_UNSUPPORTED, "%s",
                     models[i].modules);
        cr_expect(strstr(error.message, models[i].message), "%s", error.message);
        each_file(folder, NULL);
    }
}

/* Parts of published checkpoints that change nothing in the encoder's vectors. */
Test(model_bad, parts_after_an_encoder_may_be_unread)
{
    static const char *const names[][2] = {
        { "bert", "embeddings.position_ids" },
        { "bert", "cls.predictions.decoder.weight" },
        { "bert", "cls.seq_relationship.weight" },
        { "bert", "classifier.weight" },
        { "bert", "encoder.layer.0.attention.self.rotary_emb.inv_freq" },
        { "roberta", "lm_head.layer_norm.weight" },
        { "roberta", "classifier.out_proj.weight" },
        { "electra", "discriminator_predictions.dense.weight" },
        { "albert", "sop_classifier.classifier.weight" },
        { "distilbert-single", "vocab_transform.weight" },
        { "distilbert-single", "qa_outputs.weight" },
        { "deberta-v3", "lm_predictions.lm_head.dense.weight" },
        { "deberta-v3", "mask_predictions.classifier.weight" },
        { "deberta-v3", "embeddings.position_embeddings.weight" },
        { "modernbert", "head.dense.weight" },
        { "t5-encoder", "decoder.final_layer_norm.weight" },
        { "t5-encoder", "encoder.embed_tokens.weight" },
        { "bart", "encoder.embed_tokens.weight" },
        { "bart", "decoder.embed_tokens.weight" },
        { "bart", "decoder.version" },
        { "bart", "lm_head.weight" },
        { "bart", "final_logits_bias" },
        { "clip-text", "vision_model.embeddings.class_embedding" },
        { "clip-text", "logit_scale" },
        { "qwen3", "lm_head.weight" },
        { "mistral", "layers.0.self_attn.rotary_emb.inv_freq" },
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct bad_case c = { .damage = HEADER, .file = "model.safetensors", .from = "{" };
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char folder[] = "/tmp/gsv-bad-XXXXXX", good[1024], entry[256];

        cr_assert(mkdtemp(folder));
        snprintf(good, sizeof(good), "%s/models/%s", TEST_DATA_DIR, names[i][0]);
        each_file(good, folder);
        snprintf(entry, sizeof(entry),
                 "{\"%s\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},", names[i][1]);
        c.to = entry;
        spoil(folder, &c);
        cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_OK, "%s: %s", names[i][0],
                     error.message);
        each_file(folder, NULL);
    }
}

/* Heads for models/st-dense, whose embedding has 24 columns. */
static const struct bad_case head_cases[] = {
    { "no labels", "mlp", HEADER, "mlp.safetensors", "\"labels\"", "\"lobels\"", GPUSERVE_E_FORMAT,
      "\"labels\" is missing" },
    { "no rows", "mlp", SHAPE, "mlp.safetensors", "layers.0.weight", "0,24", GPUSERVE_E_FORMAT,
      "not a matrix of 1 to 100000 rows" },
    { "too many rows", "mlp", SHAPE, "mlp.safetensors", "layers.0.weight", "100001,1",
      GPUSERVE_E_FORMAT, "not a matrix of 1 to 100000 rows" },
    { "a file next to it without labels", "mlp", WRITE, "mlp.json", 0, "{}", GPUSERVE_OK, "" },
    { "one label more", "mlp", HEADER, "mlp.safetensors", "[\\\"a\\\",", "[\\\"a\\\", \\\"z\\\",",
      GPUSERVE_E_FORMAT, "4 labels for 3 rows" },
    { "labels that are no JSON", "mlp", HEADER, "mlp.safetensors", "[\\\"a\\\",", "[[",
      GPUSERVE_E_FORMAT, "mlp.safetensors" },
    { "unknown activation", "mlp", HEADER, "mlp.safetensors", "softmax", "hardmax",
      GPUSERVE_E_FORMAT, "activation 'hardmax' is unknown" },
    { "unknown input", "mlp", HEADER, "mlp.safetensors", "\"normalized\"", "\"whitened\"",
      GPUSERVE_E_FORMAT, "input 'whitened' is unknown" },
    { "no layers", "mlp", HEADER, "mlp.safetensors", "layers.0.weight", "leyers.0.weight",
      GPUSERVE_E_FORMAT, "not a classifier head" },
    { "input width", "mlp", HEADER, "mlp.safetensors", "[8,24]", "[24,8]", GPUSERVE_E_FORMAT,
      "expected shape [24, 24]" },
    { "layers that do not fit", "mlp", HEADER, "mlp.safetensors", "[3,8]", "[4,6]",
      GPUSERVE_E_FORMAT, "labels for 4 rows" },
    { "NaN", "mlp", NUMBER, "mlp.safetensors", "\"layers.1.bias\"", "nan", GPUSERVE_E_FORMAT,
      "'layers.1.bias': element 0 is not a number" },
};

Test(model_bad, every_damage_to_a_head_is_refused_with_its_reason)
{
    for (size_t i = 0; i < sizeof(head_cases) / sizeof(head_cases[0]); i++) {
        const struct bad_case *c = &head_cases[i];
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char folder[] = "/tmp/gsv-bad-XXXXXX";
        char path[1024], head[256];
        size_t size;
        char *bytes;
        gpuserve_status st;

        cr_assert(mkdtemp(folder));
        bytes = read_file(test_data("heads/mlp.safetensors"), &size);
        snprintf(head, sizeof(head), "%s/mlp.safetensors", folder);
        write_file(head, bytes, size);
        free(bytes);
        snprintf(path, sizeof(path), "%s/models/st-dense", TEST_DATA_DIR);
        cr_assert_eq(try_load(path, head, &error), GPUSERVE_OK, "%s", error.message);
        spoil(folder, c);
        st = try_load(path, head, &error);
        cr_expect_eq(st, c->status, "%s: status %d: %s", c->what, st, error.message);
        cr_expect(strstr(error.message, c->message), "%s: '%s' is not in: %s", c->what, c->message,
                  error.message);
        each_file(folder, NULL);
    }
}

Test(model_bad, a_head_that_is_absent_is_named_and_a_link_to_one_is_followed)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[] = "/tmp/gsv-bad-XXXXXX";
    char path[1024], link[128];

    snprintf(path, sizeof(path), "%s/models/st-dense", TEST_DATA_DIR);
    cr_expect_eq(try_load(path, "/nowhere/head.safetensors", &error), GPUSERVE_E_NOT_FOUND);
    cr_expect(strstr(error.message, "/nowhere/head.safetensors"), "%s", error.message);
    cr_assert(mkdtemp(folder));
    snprintf(link, sizeof(link), "%s/current.safetensors", folder);
    cr_assert_eq(symlink(test_data("heads/mlp.safetensors"), link), 0);
    cr_expect_eq(try_load(path, link, &error), GPUSERVE_OK, "%s", error.message);
    each_file(folder, NULL);
}

Test(model_bad, a_folder_that_is_no_model_is_told_what_one_holds)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[] = "/tmp/gsv-bad-XXXXXX";

    cr_assert(mkdtemp(folder));
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_NOT_FOUND);
    cr_expect(strstr(error.message, "config.json: no such file"), "%s", error.message);
    cr_expect(strstr(error.hint, "model.safetensors"), "%s", error.hint);
    rmdir(folder);
}

Test(model_bad, links_out_of_the_directory_are_not_followed)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[] = "/tmp/gsv-bad-XXXXXX";
    char link[128], weights[1200];

    cr_assert(mkdtemp(folder));
    each_file(test_data("models/bert"), folder);
    snprintf(link, sizeof(link), "%s/" WEIGHTS, folder);
    snprintf(weights, sizeof(weights), "%s/models/bert/" WEIGHTS, TEST_DATA_DIR);
    cr_assert_eq(unlink(link), 0);
    cr_assert_eq(symlink(weights, link), 0);
    cr_expect_neq(try_load(folder, NULL, &error), GPUSERVE_OK);
    each_file(folder, NULL);
}

Test(model_bad, unknown_dtypes_and_poolings_are_refused)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const struct gpuserve_backend *backend = gsv_backend_cpu();
    const struct gpuserve_host_batch nothing = { 0 };
    const struct gsv_net_options options = { .dtype = 99, .n_threads = 1 };
    const struct gsv_net_options empty = { .dtype = GPUSERVE_DTYPE_INT8,
                                           .n_threads = 1,
                                           .calibration = &nothing };
    struct gpuserve_device *device = NULL;
    struct gsv_dir *dir = NULL;
    struct gsv_spec *spec = NULL;
    struct gsv_net *net = NULL;

    cr_assert_eq(gsv_dir_open(&dir, test_data("models/bert"), &error), GPUSERVE_OK);
    cr_assert_eq(gsv_spec_load(&spec, dir, NULL, 0, &error), GPUSERVE_OK);
    cr_assert_eq(backend->device_open(&device, 0, &error), GPUSERVE_OK);
    cr_expect_eq(gsv_net_load(&net, spec, backend, device, &options, &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_expect_null(net);
    cr_expect_eq(gsv_net_bytes(spec, backend, 99), GSV_TOO_MANY_BYTES);
    cr_expect_eq(gsv_net_load(&net, spec, backend, device, &empty, &error), GPUSERVE_E_INVALID);
    cr_expect_str_eq(error.message, "the batch has no tokens");
    cr_expect_null(net);
    gsv_spec_free(&spec);
    cr_expect_eq(gsv_spec_load(&spec, dir, NULL, 7, &error), GPUSERVE_E_INVALID, "pooling 7");
    cr_expect_null(spec);
    gsv_dir_close(&dir);
    backend->device_close(&device);
}
