/*
 * family.h - encoder families: their names for settings and tensors.
 *
 * All families are the same post-norm encoder. Another one of that kind needs only a table entry.
 */
#ifndef GSV_MODEL_FAMILY_H
#define GSV_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The position of a text's first token in the position table. */
enum gsv_position_rule {
    GSV_POSITION_FROM_ZERO,
    GSV_POSITION_AFTER_PAD, /* pad_token_id + 1: fairseq's numbering, kept by RoBERTa */
    GSV_POSITION_FROM_TWO   /* MPNet, independent of its pad_token_id */
};

/* One layer of a sequence classifier, which runs on the first token's vector. */
struct gsv_classifier_layer {
    const char *name;
    bool in_encoder; /* the name has the encoder's prefix */
    int32_t activation;
};

/* The masked-LM head: norm(activation(transform)), then a product with `decoder`, or with the word
 * embeddings if the file has no decoder. */
struct gsv_masked_names {
    const char *transform, *norm, *decoder;
    const char *bias, *other_bias; /* full names; the second is used by newer files */
    int32_t activation;            /* gpuserve_activation; -1: the encoder's own */
};

struct gsv_family {
    const char *const *model_types; /* "model_type" in config.json; ends with NULL */
    const char *const *classes;     /* prefixes of class names in "architectures"; ends with NULL */
    const char *prefix;             /* prefix of the encoder's tensors inside a larger model */

    /* Keys of config.json. */
    const char *hidden_size, *n_layers, *n_heads, *intermediate_size, *activation;
    enum gsv_position_rule position_rule;

    /* Tensor names, without ".weight" and ".bias". NULL: the family has no such tensor. */
    const char *word, *position, *type, *relative, *embedding_norm;
    const char *layer; /* "encoder.layer.%d.", the prefix of the following names */
    const char *query, *key, *value, *out, *attention_norm;
    const char *ffn_in, *ffn_out, *output_norm;
    struct gsv_classifier_layer classifier[2];
    struct gsv_masked_names masked;
};

/* Find a family by "model_type", or by "architectures" if `model_type` is NULL. NULL if it is
 * unknown. */
const struct gsv_family *gsv_family_find(const char *model_type, const char *architecture);

/* True if the class belongs to the family: "BertModel", "BertForMaskedLM". Other classes with the
 * same model type ("JinaBertModel") compute something else. */
bool gsv_family_has_class(const struct gsv_family *family, const char *architecture);

/* "bert, roberta, ...", for messages. */
const char *gsv_family_names(void);

#endif
