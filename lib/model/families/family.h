/*
 * family.h - the encoder families: what each calls its settings and its tensors.
 *
 * All of them are the same post-norm encoder; a new family of that kind is one more entry.
 */
#ifndef GSV_MODEL_FAMILY_H
#define GSV_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which row of the position table a text's first token takes. */
enum gsv_position_rule {
    GSV_POSITION_FROM_ZERO,
    GSV_POSITION_AFTER_PAD, /* pad_token_id + 1: fairseq's numbering, kept by RoBERTa */
    GSV_POSITION_FROM_TWO   /* MPNet, whatever its pad_token_id */
};

/* One layer of a sequence classifier, applied to the first token's vector. */
struct gsv_classifier_layer {
    const char *name;
    bool in_encoder; /* the name stands behind the encoder's own prefix */
    int32_t activation;
};

/* What a masked language model has behind the encoder: norm(activation(transform)), then a product
 * with `decoder`, or with the word embeddings where a file has no such tensor. */
struct gsv_masked_names {
    const char *transform, *norm, *decoder;
    const char *bias, *other_bias; /* whole names; the second is a newer file's */
    int32_t activation;            /* gpuserve_activation; -1: the encoder's own */
};

struct gsv_family {
    const char *const *model_types; /* of config.json, NULL at the end */
    const char *const *classes;     /* how "architectures" begin, NULL at the end */
    const char *prefix;             /* of the encoder's tensors inside a larger model */

    /* Keys of config.json. */
    const char *hidden_size, *n_layers, *n_heads, *intermediate_size, *activation;
    enum gsv_position_rule position_rule;

    /* Tensors; ".weight" and ".bias" are added where both exist. NULL: the family has none. */
    const char *word, *position, *type, *relative, *embedding_norm;
    const char *layer; /* "encoder.layer.%d." goes before the rest */
    const char *query, *key, *value, *out, *attention_norm;
    const char *ffn_in, *ffn_out, *output_norm;
    struct gsv_classifier_layer classifier[2];
    struct gsv_masked_names masked;
};

/* By "model_type", or by "architectures" where a file has none (`model_type` NULL). NULL when no
 * family is meant. */
const struct gsv_family *gsv_family_find(const char *model_type, const char *architecture);

/* Whether the architecture is one of the family's own: "BertModel", "BertForMaskedLM". Others that
 * borrow the model type ("JinaBertModel") compute something else. */
bool gsv_family_has_class(const struct gsv_family *family, const char *architecture);

/* "bert, roberta, ..." for messages. */
const char *gsv_family_names(void);

#endif
