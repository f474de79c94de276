/*
 * family.h - encoder families: keys of config.json, options of the encoder, tensor names, heads.
 *
 * All families are the same encoder with options. A new one of known parts needs a table row here
 * and no code. The rows are in bert_families.c (learned positions), deberta_families.c,
 * rotary_families.c (rotary positions, ALiBi), decoder_families.c (pre-norm stacks of language
 * models) and pair_families.c (encoder and decoder).
 */
#ifndef GSV_MODEL_FAMILY_H
#define GSV_MODEL_FAMILY_H

#include "lib/base/json_tree.h"

#include <gpuserve/sys/backend.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gsv_config;

/* The position of a text's first token in the position table. */
enum gsv_position_rule {
    GSV_POSITION_FROM_ZERO,
    GSV_POSITION_AFTER_PAD, /* pad_token_id + 1: fairseq's numbering, kept by RoBERTa */
    GSV_POSITION_FROM_TWO   /* MPNet, independent of its pad_token_id */
};

/* Where a layer normalizes. f is attention or the feed-forward network. */
enum gsv_norm_position {
    GSV_NORM_AFTER,  /* x = norm(x + f(x)) */
    GSV_NORM_BEFORE, /* x = x + f(norm(x)) */
    GSV_NORM_AROUND  /* x = x + norm(f(norm(x))) */
};

/* Whether the checkpoints of a family have a parameter. */
enum gsv_presence {
    GSV_REQUIRED,
    GSV_ABSENT,
    GSV_IF_PRESENT /* the configuration or the checkpoint decides */
};

/* Tensor names of the encoder, without ".weight" and ".bias". NULL: there is no such tensor. */
struct gsv_tensor_names {
    const char *word, *position, *type, *task, *relative;
    const char *embedding_norm, *projection; /* from embedding_size to hidden_size */
    const char *layer;                       /* "encoder.layer.%d.", prefix of the names below */
    const char *query, *key, *value;         /* or one tensor: */
    const char *qkv;
    const char *query_norm, *key_norm; /* of each head */
    bool norms_all_heads;              /* these norms are over all heads */
    const char *out;
    const char *norm_before_attention, *norm_after_attention; /* see enum gsv_norm_position */
    const char *norm_again; /* after attention and its norm: norm(x + norm_after_attention(..)) */
    const char *norm_before_ffn, *norm_after_ffn;
    const char *ffn_in; /* plain; or gate and values in one tensor; or two tensors: */
    const char *gate, *values;
    bool values_first; /* in `ffn_in`: the values, then the gate */
    const char *ffn_out;
    const char *router, *experts_in, *experts_out, *experts_bias; /* of a mixture of experts; the
                                                                     last three are whole names */
    const char *final_norm;
    /* Tensor names of the decoder of an encoder-decoder model; its self-attention and feed-forward
     * names are those of the encoder layers. */
    const char *decoder_layer; /* "decoder.layers.%d." */
    const char *decoder_position, *decoder_norm;
    const char *cross_query, *cross_key, *cross_value, *cross_out, *norm_after_cross;
    /* Products of bottleneck layers, and their norms. */
    const char *bottleneck_in, *norm_bottleneck_in;
    const char *bottleneck_attention, *norm_bottleneck_attention;
    const char *bottleneck_out, *norm_bottleneck_out;
    const char *unused;     /* parts "a|b" of names of tensors that are in the file even if nothing
                               reads them */
    const char *other_ffns; /* "ffn.%d.", prefix of the feed-forward networks before the last one */
};

/* Pooling and layers of a sequence classifier. */
struct gsv_classifier_names {
    const char *dense;  /* first layer, or NULL: the classifier is one layer */
    bool in_encoder;    /* the name `dense` has the encoder's prefix */
    int32_t activation; /* of `dense`; -1: the encoder's own */
    const char *norm;   /* after `dense`, or NULL */
    const char *output; /* to the labels */
    int32_t pooling;    /* gpuserve_pooling; 0: CLS */
    enum gsv_presence dense_bias, output_bias;
};

/* The masked-LM head: norm(activation(transform)), then a product with `decoder`, or with the word
 * embeddings if the file has no decoder. `norm` may list names, "a|b"; NULL: no transform. */
struct gsv_masked_names {
    const char *transform, *norm, *decoder;
    const char *decoder_columns;   /* [columns, words]: further columns of a narrower decoder */
    const char *bias, *other_bias; /* full names; the second is used by newer files */
    int32_t activation;            /* gpuserve_activation; -1: the encoder's own; -2: the
                                      classifier's */
    enum gsv_presence transform_bias, decoder_bias;
};

/* Keys of config.json. NULL: a family without this key; several names are separated by '|'. */
struct gsv_config_keys {
    const char *hidden_size, *n_layers, *n_heads, *intermediate_size, *activation, *eps;
    const char *max_positions, *embedding_size, *n_kv_heads, *head_size;
};

/* An array of names that ends with NULL. */
#define GSV_NAME_LIST(...) \
    (const char *const[])  \
    {                      \
        __VA_ARGS__, NULL  \
    }

struct gsv_family {
    const char *const *model_types; /* "model_type" in config.json; ends with NULL */
    const char *const *classes;     /* prefixes of class names in "architectures"; ends with NULL */
    const char *code;         /* the "AutoConfig" classes, "A|B", of checkpoints published with
                                 custom code, from which the family is implemented; or NULL */
    const char *prefix;       /* prefix of the encoder's tensors inside a larger model */
    const char *other_prefix; /* another one, or NULL */
    const struct gsv_config_keys *keys;
    const struct gsv_tensor_names
        *names[3]; /* layouts of checkpoints, the first that fits is used */
    const struct gsv_classifier_names *classifier; /* NULL: none */
    const char *token_classifier;                  /* NULL: "classifier" */
    bool token_transform; /* token labels: the classifier's `dense` and `norm` come first */
    const struct gsv_masked_names *masked; /* NULL: none */

    /* Options that are equal in all models of the family; the others are in config.json. */
    enum gsv_position_rule position_rule;
    enum gsv_norm_position norm_position;
    int32_t norm;               /* gpuserve_norm of all norms */
    bool gamma_plus_one;        /* the file holds gamma - 1 (Gemma) */
    bool is_causal;             /* unless config.json says otherwise */
    bool is_gated;              /* activation(gate) * values */
    bool unbounded;             /* relative positions: no table limits the length */
    bool always_projects;       /* `projection` exists even if the sizes are equal */
    bool norm_after_projection; /* the embedding norm follows the projection (DeBERTa) */
    bool interleaves_qkv;       /* `qkv` holds query, key and value head by head (DeBERTa) */
    bool scale_words;           /* word embeddings times sqrt(hidden_size) (Gemma) */
    bool is_bucketed;           /* `relative` names a table of buckets of distances */
    bool bias_keys;             /* config.json has "attention_bias", "mlp_bias", "norm_bias" */
    bool adds_after_projection; /* positions and types are added to the projection (MobileBERT) */
    bool has_bottlenecks;       /* config.json may have bottleneck layers */
    bool skips_first_norm;      /* layer 0 has no norm before attention (ModernBERT) */
    bool scales_global_only;    /* "rope_scaling" applies to the global layers (Gemma 3) */
    int32_t skipped_positions;  /* rows of the file's position tables before that of position 0 */
    const char *position_type;  /* the supported "position_embedding_type"; NULL: not read */
    float attention_scale;      /* 0: 1 / sqrt(head_size) */
    const char *default_activation; /* NULL: gelu */
    double default_eps;             /* 0: 1e-12 */
    int32_t default_types;          /* type_vocab_size if config.json has none */
    int32_t default_max_positions;  /* 0: config.json must have it */
    int32_t pooling; /* gpuserve_pooling of a directory without modules.json; 0: MEAN */
    double theta;    /* base of rotary positions; 0: none */
    enum gsv_presence qkv_bias, out_bias, ffn_in_bias, ffn_out_bias, norm_bias;
    /* Read what only this family has; NULL: nothing. */
    gpuserve_status (*read)(struct gsv_config *config, const struct gsv_json_value *json,
                            gpuserve_error *error);
};

/* Find a family by "model_type", or by "architectures" if `model_type` is NULL. NULL if it is
 * unknown. */
const struct gsv_family *gsv_family_find(const char *model_type, const char *architecture);

/* True if the class belongs to the family: "BertModel", "BertForMaskedLM". Other classes with the
 * same model type ("JinaBertModel") compute something else. */
bool gsv_family_has_class(const struct gsv_family *family, const char *architecture);

/* "bert, roberta, ...", for messages. */
const char *gsv_family_names(void);

/* The masked-LM head of BERT. */
extern const struct gsv_masked_names gsv_bert_masked;

/* The layout of the flash-attention implementation of XLM-RoBERTa by Jina. */
extern const struct gsv_tensor_names gsv_flash_names;

/* The rows. */
extern const struct gsv_family gsv_bert_families[];
extern const size_t gsv_bert_families_count;
extern const struct gsv_family gsv_deberta_families[];
extern const size_t gsv_deberta_families_count;
extern const struct gsv_family gsv_rotary_families[];
extern const size_t gsv_rotary_families_count;
extern const struct gsv_family gsv_decoder_families[];
extern const size_t gsv_decoder_families_count;
extern const struct gsv_family gsv_pair_families[];
extern const size_t gsv_pair_families_count;

#endif
