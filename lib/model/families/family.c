/*
 * family.c - the table of encoder families: their names for settings and tensors.
 */
#include "lib/model/families/family.h"

#include <gpuserve/sys/backend.h>

#include <string.h>

static const char *const bert_types[] = { "bert", NULL };
static const char *const bert_classes[] = { "Bert", NULL };
static const char *const roberta_types[] = { "roberta", "xlm-roberta", "camembert", NULL };
static const char *const roberta_classes[] = { "Roberta", "XLMRoberta", "Camembert", NULL };
static const char *const mpnet_types[] = { "mpnet", NULL };
static const char *const mpnet_classes[] = { "MPNet", NULL };
static const char *const distilbert_types[] = { "distilbert", NULL };
static const char *const distilbert_classes[] = { "DistilBert", NULL };

/* Names that BERT, RoBERTa and MPNet share. */
#define BERT_KEYS                                                               \
    .hidden_size = "hidden_size", .n_layers = "num_hidden_layers",              \
    .n_heads = "num_attention_heads", .intermediate_size = "intermediate_size", \
    .activation = "hidden_act"
#define BERT_EMBEDDINGS                                                                 \
    .word = "embeddings.word_embeddings", .position = "embeddings.position_embeddings", \
    .embedding_norm = "embeddings.LayerNorm"
#define BERT_FFN \
    .ffn_in = "intermediate.dense", .ffn_out = "output.dense", .output_norm = "output.LayerNorm"
#define BERT_ATTENTION                                                                             \
    .query = "attention.self.query", .key = "attention.self.key", .value = "attention.self.value", \
    .out = "attention.output.dense", .attention_norm = "attention.output.LayerNorm"
/* The classification head of RoBERTa and MPNet. */
#define ROBERTA_CLASSIFIER                                            \
    .classifier = { { "classifier.dense", false, GPUSERVE_ACT_TANH }, \
                    { "classifier.out_proj", false, GPUSERVE_ACT_NONE } }

/* The masked-LM head of RoBERTa and MPNet. */
#define ROBERTA_MASKED                                                           \
    .masked = { "lm_head.dense",        "lm_head.layer_norm", "lm_head.decoder", \
                "lm_head.decoder.bias", "lm_head.bias",       GPUSERVE_ACT_GELU }

static const struct gsv_family families[] = {
    {
        .model_types = bert_types,
        .classes = bert_classes,
        .prefix = "bert.",
        BERT_KEYS,
        .position_rule = GSV_POSITION_FROM_ZERO,
        BERT_EMBEDDINGS,
        .type = "embeddings.token_type_embeddings",
        .layer = "encoder.layer.%d.",
        BERT_ATTENTION,
        BERT_FFN,
        .classifier = { { "pooler.dense", true, GPUSERVE_ACT_TANH },
                        { "classifier", false, GPUSERVE_ACT_NONE } },
        .masked = { "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                    "cls.predictions.decoder", "cls.predictions.bias",
                    "cls.predictions.decoder.bias", -1 },
    },
    {
        .model_types = roberta_types,
        .classes = roberta_classes,
        .prefix = "roberta.",
        BERT_KEYS,
        .position_rule = GSV_POSITION_AFTER_PAD,
        BERT_EMBEDDINGS,
        .type = "embeddings.token_type_embeddings",
        .layer = "encoder.layer.%d.",
        BERT_ATTENTION,
        BERT_FFN,
        ROBERTA_CLASSIFIER,
        ROBERTA_MASKED,
    },
    {
        .model_types = mpnet_types,
        .classes = mpnet_classes,
        .prefix = "mpnet.",
        BERT_KEYS,
        .position_rule = GSV_POSITION_FROM_TWO,
        BERT_EMBEDDINGS,
        .relative = "encoder.relative_attention_bias",
        .layer = "encoder.layer.%d.",
        .query = "attention.attn.q",
        .key = "attention.attn.k",
        .value = "attention.attn.v",
        .out = "attention.attn.o",
        .attention_norm = "attention.LayerNorm",
        BERT_FFN,
        ROBERTA_CLASSIFIER,
        ROBERTA_MASKED,
    },
    {
        .model_types = distilbert_types,
        .classes = distilbert_classes,
        .prefix = "distilbert.",
        .hidden_size = "dim",
        .n_layers = "n_layers",
        .n_heads = "n_heads",
        .intermediate_size = "hidden_dim",
        .activation = "activation",
        .position_rule = GSV_POSITION_FROM_ZERO,
        BERT_EMBEDDINGS,
        .layer = "transformer.layer.%d.",
        .query = "attention.q_lin",
        .key = "attention.k_lin",
        .value = "attention.v_lin",
        .out = "attention.out_lin",
        .attention_norm = "sa_layer_norm",
        .ffn_in = "ffn.lin1",
        .ffn_out = "ffn.lin2",
        .output_norm = "output_layer_norm",
        .classifier = { { "pre_classifier", false, GPUSERVE_ACT_RELU },
                        { "classifier", false, GPUSERVE_ACT_NONE } },
        .masked = { "vocab_transform", "vocab_layer_norm", "vocab_projector",
                    "vocab_projector.bias", NULL, -1 },
    },
};

static const size_t n_families = sizeof(families) / sizeof(families[0]);

bool gsv_family_has_class(const struct gsv_family *family, const char *architecture)
{
    for (const char *const *class = family->classes; *class; class ++) {
        const size_t length = strlen(*class);

        if (strncmp(architecture, *class, length) != 0)
            continue;
        if (strcmp(architecture + length, "Model") == 0 ||
            strncmp(architecture + length, "For", 3) == 0)
            return true;
    }
    return false;
}

const struct gsv_family *gsv_family_find(const char *model_type, const char *architecture)
{
    for (size_t i = 0; i < n_families; i++) {
        if (!model_type && architecture && gsv_family_has_class(&families[i], architecture))
            return &families[i];
        for (const char *const *type = families[i].model_types; model_type && *type; type++)
            if (strcmp(*type, model_type) == 0)
                return &families[i];
    }
    return NULL;
}

const char *gsv_family_names(void)
{
    return "bert, roberta, xlm-roberta, camembert, mpnet, distilbert";
}
