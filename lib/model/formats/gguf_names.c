/*
 * gguf_names.c - maps the tensors of a GGUF file to the names of the original checkpoint.
 *
 * A name is BASE.weight or BASE.bias, in a layer blk.N.BASE.weight. One table for each architecture
 * lists the bases. A tensor that no table lists is refused: it may change the result.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 192
#define MAX_LAYER 9999

/* A base name in the file and in the original checkpoint. In a layer, %d is its number. */
struct name_pair {
    const char *gguf, *original;
    bool is_vector; /* the weight has rank 1; files lose a matrix's dimension of 1 */
};

static const struct name_pair bert[] = {
    { "token_embd", "embeddings.word_embeddings", false },
    { "position_embd", "embeddings.position_embeddings", false },
    { "token_types", "embeddings.token_type_embeddings", false },
    { "token_embd_norm", "embeddings.LayerNorm", true },
    { "blk.%d.attn_q", "encoder.layer.%d.attention.self.query", false },
    { "blk.%d.attn_k", "encoder.layer.%d.attention.self.key", false },
    { "blk.%d.attn_v", "encoder.layer.%d.attention.self.value", false },
    { "blk.%d.attn_output", "encoder.layer.%d.attention.output.dense", false },
    { "blk.%d.attn_output_norm", "encoder.layer.%d.attention.output.LayerNorm", true },
    { "blk.%d.ffn_up", "encoder.layer.%d.intermediate.dense", false },
    { "blk.%d.ffn_down", "encoder.layer.%d.output.dense", false },
    { "blk.%d.layer_output_norm", "encoder.layer.%d.output.LayerNorm", true },
    { "cls", "classifier.dense", false },
    { "cls.output", "classifier.out_proj", false },
    { NULL, NULL, false },
};

static const struct name_pair nomic_bert[] = {
    { "token_embd", "embeddings.word_embeddings", false },
    { "token_types", "embeddings.token_type_embeddings", false },
    { "token_embd_norm", "emb_ln", true },
    { "blk.%d.attn_qkv", "encoder.layers.%d.attn.Wqkv", false },
    { "blk.%d.attn_output", "encoder.layers.%d.attn.out_proj", false },
    { "blk.%d.attn_output_norm", "encoder.layers.%d.norm1", true },
    { "blk.%d.ffn_up", "encoder.layers.%d.mlp.fc11", false },
    { "blk.%d.ffn_gate", "encoder.layers.%d.mlp.fc12", false },
    { "blk.%d.ffn_down", "encoder.layers.%d.mlp.fc2", false },
    { "blk.%d.layer_output_norm", "encoder.layers.%d.norm2", true },
    { NULL, NULL, false },
};

static const struct name_pair jina_bert_v2[] = {
    { "token_embd", "embeddings.word_embeddings", false },
    { "token_types", "embeddings.token_type_embeddings", false },
    { "token_embd_norm", "embeddings.LayerNorm", true },
    { "blk.%d.attn_q", "encoder.layer.%d.attention.self.query", false },
    { "blk.%d.attn_q_norm", "encoder.layer.%d.attention.self.layer_norm_q", true },
    { "blk.%d.attn_k", "encoder.layer.%d.attention.self.key", false },
    { "blk.%d.attn_k_norm", "encoder.layer.%d.attention.self.layer_norm_k", true },
    { "blk.%d.attn_v", "encoder.layer.%d.attention.self.value", false },
    { "blk.%d.attn_output", "encoder.layer.%d.attention.output.dense", false },
    { "blk.%d.attn_output_norm", "encoder.layer.%d.attention.output.LayerNorm", true },
    { "blk.%d.ffn_up", "encoder.layer.%d.mlp.gated_layers", false },
    { "blk.%d.ffn_down", "encoder.layer.%d.mlp.wo", false },
    { "blk.%d.layer_output_norm", "encoder.layer.%d.mlp.layernorm", true },
    { NULL, NULL, false },
};

static const struct name_pair modern_bert[] = {
    { "token_embd", "embeddings.tok_embeddings", false },
    { "token_embd_norm", "embeddings.norm", true },
    { "blk.%d.attn_norm", "layers.%d.attn_norm", true },
    { "blk.%d.attn_qkv", "layers.%d.attn.Wqkv", false },
    { "blk.%d.attn_output", "layers.%d.attn.Wo", false },
    { "blk.%d.ffn_norm", "layers.%d.mlp_norm", true },
    { "blk.%d.ffn_up", "layers.%d.mlp.Wi", false },
    { "blk.%d.ffn_down", "layers.%d.mlp.Wo", false },
    { "output_norm", "final_norm", true },
    { NULL, NULL, false },
};

/* Names that Qwen3 and Gemma share. */
#define DECODER_NAMES                                                         \
    { "token_embd", "embed_tokens", false }, { "output_norm", "norm", true }, \
        { "blk.%d.attn_norm", "layers.%d.input_layernorm", true },            \
        { "blk.%d.attn_q", "layers.%d.self_attn.q_proj", false },             \
        { "blk.%d.attn_k", "layers.%d.self_attn.k_proj", false },             \
        { "blk.%d.attn_v", "layers.%d.self_attn.v_proj", false },             \
        { "blk.%d.attn_q_norm", "layers.%d.self_attn.q_norm", true },         \
        { "blk.%d.attn_k_norm", "layers.%d.self_attn.k_norm", true },         \
        { "blk.%d.attn_output", "layers.%d.self_attn.o_proj", false },        \
        { "blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", false },              \
        { "blk.%d.ffn_up", "layers.%d.mlp.up_proj", false },                  \
    {                                                                         \
        "blk.%d.ffn_down", "layers.%d.mlp.down_proj", false                   \
    }

static const struct name_pair qwen3[] = {
    DECODER_NAMES,
    { "blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", true },
    { NULL, NULL, false },
};

static const struct name_pair gemma_embedding[] = {
    DECODER_NAMES,
    { "blk.%d.post_attention_norm", "layers.%d.post_attention_layernorm", true },
    { "blk.%d.ffn_norm", "layers.%d.pre_feedforward_layernorm", true },
    { "blk.%d.post_ffw_norm", "layers.%d.post_feedforward_layernorm", true },
    { NULL, NULL, false },
};

static const struct {
    const char *architecture;
    const struct name_pair *names;
} tables[] = {
    { "bert", bert },
    { "nomic-bert", nomic_bert },
    { "jina-bert-v2", jina_bert_v2 },
    { "modern-bert", modern_bert },
    { "qwen3", qwen3 },
    { "gemma-embedding", gemma_embedding },
};

/* -------------------------------------------------------------------------------------- names */

/* Split blk.N.REST: *pattern is "blk.%d.REST". False if the name has no such beginning. */
static bool split_layer(const char *name, char pattern[NAME_BYTES], int *layer)
{
    const char *p = name + 4;
    int number = 0;

    if (strncmp(name, "blk.", 4) != 0 || *p < '0' || *p > '9' || (*p == '0' && p[1] != '.'))
        return false; /* one name for each layer: no leading zeros */
    for (; *p >= '0' && *p <= '9'; p++) {
        number = 10 * number + (*p - '0');
        if (number > MAX_LAYER)
            return false;
    }
    snprintf(pattern, NAME_BYTES, "blk.%%d%s", p);
    *layer = number;
    return true;
}

/* Write the original name of a tensor; NULL if the table lacks it. */
static const struct name_pair *rename_tensor(const struct name_pair *names,
                                             struct gsv_gguf_text text, char original[NAME_BYTES])
{
    char name[NAME_BYTES], pattern[NAME_BYTES];
    const char *suffix;
    char *dot;
    int layer = -1;

    snprintf(name, sizeof(name), "%.*s", (int)text.size, text.at);
    dot = strrchr(name, '.');
    if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0))
        return NULL;
    suffix = dot[1] == 'w' ? ".weight" : ".bias";
    *dot = '\0';
    if (!split_layer(name, pattern, &layer))
        snprintf(pattern, sizeof(pattern), "%s", name);
    for (; names->gguf; names++) {
        const char *number = strchr(names->original, '%');

        if (strcmp(names->gguf, pattern) != 0 || (layer < 0) != (number == NULL))
            continue;
        if (!number)
            snprintf(original, NAME_BYTES, "%s%s", names->original, suffix);
        else
            snprintf(original, NAME_BYTES, "%.*s%d%s%s", (int)(number - names->original),
                     names->original, layer, number + 2, suffix);
        return names;
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------- tensors */

static enum gsv_tensor_type type_of(const char *name)
{
    static const struct {
        const char *name;
        enum gsv_tensor_type type;
    } types[] = {
        { "F32", GSV_TENSOR_F32 },       { "F16", GSV_TENSOR_F16 },   { "BF16", GSV_TENSOR_BF16 },
        { "F64", GSV_TENSOR_F64 },       { "Q4_0", GSV_TENSOR_Q4_0 }, { "Q4_1", GSV_TENSOR_Q4_1 },
        { "Q5_0", GSV_TENSOR_Q5_0 },     { "Q5_1", GSV_TENSOR_Q5_1 }, { "Q8_0", GSV_TENSOR_Q8_0 },
        { "IQ4_NL", GSV_TENSOR_IQ4_NL }, { "Q2_K", GSV_TENSOR_Q2_K }, { "Q3_K", GSV_TENSOR_Q3_K },
        { "Q4_K", GSV_TENSOR_Q4_K },     { "Q5_K", GSV_TENSOR_Q5_K }, { "Q6_K", GSV_TENSOR_Q6_K },
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return GSV_TENSOR_OTHER;
}

/* Fill `to`, except its file; false if out of memory. */
static bool take_tensor(struct gsv_tensor *to, const struct gsv_gguf_tensor *from, const char *name,
                        bool is_matrix)
{
    const uint32_t rank = from->rank;

    to->name = gsv_copy_text(name, strlen(name));
    to->type_name = gsv_gguf_type_of(from->type)->name;
    to->type = type_of(to->type_name);
    to->rank = rank;
    for (uint32_t i = 0; i < rank; i++)
        to->shape[i] = from->dims[rank - 1 - i];
    if (is_matrix && rank == 1) {
        to->rank = 2;
        to->shape[0] = 1;
        to->shape[1] = from->dims[0];
    }
    to->count = from->count;
    to->offset = from->offset;
    to->size_bytes = from->size_bytes;
    return to->name != NULL;
}

/* The names of a Dense layer: the file's dense_2.weight is linear.weight of its folder. */
static const struct name_pair *dense_names(struct name_pair pair[2], const char *folder)
{
    pair[0] = (struct name_pair){ folder, "linear", false };
    pair[1] = (struct name_pair){ NULL, NULL, false };
    return pair;
}

static gpuserve_status find_names(const struct gsv_gguf *gguf, const struct name_pair **names,
                                  gpuserve_error *error)
{
    struct gsv_gguf_text architecture = { "", 0 };
    gpuserve_status st = gsv_gguf_string(gguf, "general.architecture", &architecture, error);

    if (st != GPUSERVE_OK)
        return st;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        if (gsv_gguf_text_is(architecture, tables[i].architecture)) {
            *names = tables[i].names;
            return GPUSERVE_OK;
        }
    }
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: architecture '%.*s' is not supported",
                    gguf->shown, (int)(architecture.size < 64 ? architecture.size : 64),
                    architecture.at);
}

/* -------------------------------------------------------------------------------------- files */

struct gguf_weights {
    struct gsv_weight_file file; /* first */
    struct gsv_tensor *table;    /* [n] sorted by name; owned, with the names */
    size_t n;
};

static const struct gguf_weights *as_gguf(const struct gsv_weight_file *file)
{
    return (const struct gguf_weights *)(const void *)file; /* its first field */
}

static void close_file(struct gsv_weight_file *file)
{
    const struct gguf_weights *weights = as_gguf(file);

    for (size_t i = 0; i < weights->n; i++)
        free((char *)(uintptr_t)weights->table[i].name);
    free(weights->table);
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct gsv_tensor *)a)->name, ((const struct gsv_tensor *)b)->name);
}

static bool find_tensor(const struct gsv_weight_file *file, const char *name,
                        struct gsv_tensor *tensor)
{
    const struct gguf_weights *weights = as_gguf(file);
    const struct gsv_tensor key = { .name = name };
    const struct gsv_tensor *found =
        bsearch(&key, weights->table, weights->n, sizeof(key), compare_tensors);

    if (found)
        *tensor = *found;
    return found != NULL;
}

static bool tensor_at(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor)
{
    if (i >= as_gguf(file)->n)
        return false;
    *tensor = as_gguf(file)->table[i];
    return true;
}

static const struct gsv_weight_format gguf_format = { "gguf", find_tensor, tensor_at, close_file };

/* True for a tensor that the encoder does not need: the output layer of a language model, and Dense
 * layers, which are read by a table of their own. */
static bool is_of_other_part(struct gsv_gguf_text name)
{
    static const char *const others[] = { "output.weight", "dense_2.weight", "dense_3.weight" };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (gsv_gguf_text_is(name, others[i]))
            return true;
    return false;
}

static gpuserve_status fill_table(struct gguf_weights *weights, const struct gsv_gguf *gguf,
                                  const struct name_pair *names, bool is_encoder,
                                  gpuserve_error *error)
{
    weights->table = gsv_alloc_array(gguf->n_tensors, sizeof(*weights->table));
    if (!weights->table)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gguf->shown);
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        char name[NAME_BYTES];
        struct gsv_tensor *to = &weights->table[weights->n];
        const struct name_pair *found = rename_tensor(names, gguf->tensors[i].name, name);
        const bool is_bias = found && strcmp(strrchr(name, '.'), ".bias") == 0;

        if (!found && is_encoder && !is_of_other_part(gguf->tensors[i].name))
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "%s: tensor '%.*s' belongs to no part of the file's architecture",
                            gguf->shown, (int)gguf->tensors[i].name.size, gguf->tensors[i].name.at);
        if (!found)
            continue;
        weights->n++;
        to->file = &weights->file;
        if (!take_tensor(to, &gguf->tensors[i], name, !found->is_vector && !is_bias))
            return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gguf->shown);
    }
    qsort(weights->table, weights->n, sizeof(*weights->table), compare_tensors);
    return GPUSERVE_OK;
}

gpuserve_status gsv_gguf_weights(struct gsv_weight_file **out, const struct gsv_gguf *first,
                                 size_t part, const char *folder, gpuserve_error *error)
{
    const struct gsv_gguf *gguf = part == 0 ? first : first->parts[part - 1];
    struct name_pair pair[2];
    const struct name_pair *names = dense_names(pair, folder);
    struct gguf_weights *weights;
    struct gsv_weight_file *file;
    gpuserve_status st = *folder ? GPUSERVE_OK : find_names(first, &names, error);

    *out = NULL;
    if (st != GPUSERVE_OK)
        return st;
    weights = gsv_alloc_array(1, sizeof(*weights));
    if (!weights)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gguf->shown);
    file = &weights->file;
    file->format = &gguf_format;
    file->size_bytes = gguf->file_size;
    file->fd = dup(gguf->fd);
    file->shown = gsv_copy_text(gguf->shown, strlen(gguf->shown));
    if (file->fd < 0)
        st = gsv_fail(error, GPUSERVE_E_IO, "%s: too many open files", gguf->shown);
    else if (!file->shown)
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gguf->shown);
    else
        st = fill_table(weights, gguf, names, *folder == '\0', error);
    if (st != GPUSERVE_OK)
        gsv_weight_file_close(&file);
    *out = file;
    return st;
}
