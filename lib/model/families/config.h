/*
 * config.h - config.json of a transformer: family, sizes, options of the encoder, and labels.
 */
#ifndef GSV_MODEL_CONFIG_H
#define GSV_MODEL_CONFIG_H

#include "lib/base/dir.h"
#include "lib/base/json_tree.h"
#include "lib/model/families/family.h"

#include <gpuserve/gpuserve.h>

#define GSV_MAX_LAYERS 512
#define GSV_MAX_WIDTH (1 << 16) /* columns of a token vector */
#define GSV_MAX_ROTARY 256      /* dimensions of a head */
#define GSV_MAX_FFNS 8          /* feed-forward networks of a layer */

/* Rotary positions: pair i turns by position * frequency[i]. */
struct gsv_rotary {
    int32_t dims; /* of a head; 0: none */
    bool interleaved;
    float scale; /* of the cosines and sines */
    float frequency[GSV_MAX_ROTARY / 2];
    /* Texts of more tokens than this turn by long_frequency (LongRoPE); 0: all by `frequency`. */
    int32_t long_from;
    float long_frequency[GSV_MAX_ROTARY / 2];
};

/* Relative positions. */
enum gsv_relative_kind {
    GSV_RELATIVE_NONE,
    GSV_RELATIVE_BUCKETS,     /* a learned bias for each bucket of distances (T5, MPNet) */
    GSV_RELATIVE_ALIBI,       /* a bias that falls with the distance, by a slope of each head */
    GSV_RELATIVE_DISENTANGLED /* products with vectors of positions (DeBERTa) */
};

struct gsv_relative {
    enum gsv_relative_kind kind;
    bool by_layer;        /* BUCKETS: each layer has its own table (UMT5) */
    int32_t n_buckets;    /* BUCKETS */
    int32_t max_distance; /* BUCKETS: larger distances are in the last bucket */
    /* DISENTANGLED: distances -span to span - 1, or logarithmic buckets of them. */
    int32_t span, log_buckets, log_distance;
    bool content_to_position, position_to_content;
    bool shares_projections; /* with query and key */
    bool norm;               /* LayerNorm of the vectors of positions */
};

/* The token that LAST pooling takes, if not the last one of the text. */
enum gsv_last_rule {
    GSV_LAST_TOKEN,
    GSV_LAST_BEFORE_PADS, /* the last one that is not pad_id, of classifiers */
    GSV_LAST_FIRST_END,   /* the first one that is end_id, of embeddings (CLIP) */
    GSV_LAST_LARGEST,     /* the first one with the largest id, of embeddings (older CLIP) */
    GSV_LAST_END          /* the last one that is end_id, of classifiers (BART) */
};

/* A convolution over the tokens of a text, parallel to the first layer. */
struct gsv_convolution {
    int32_t kernel; /* tokens, odd; 0: none */
    int32_t groups;
    int32_t activation; /* gpuserve_activation */
};

/* Input of the query and key projections of a bottleneck layer (MobileBERT). */
enum gsv_bottleneck_source {
    GSV_BOTTLENECK_HIDDEN, /* the layer's input, as the value */
    GSV_BOTTLENECK_SHARED, /* a projection of their own; the value reads the layer's input */
    GSV_BOTTLENECK_INPUT   /* the narrow stream, as the value */
};

/* Layers that compute on fewer columns: a projection before attention, one after the feed-forward
 * networks (MobileBERT). */
struct gsv_bottleneck {
    int32_t width; /* 0: none */
    enum gsv_bottleneck_source source;
};

/* A mixture of experts in layers `first`, `first` + `every`, ... in place of the feed-forward
 * network. */
struct gsv_experts {
    int32_t n; /* 0: none */
    int32_t top_k;
    int32_t every, first;
};

/* LoRA adapters, in the order of their tensors. */
struct gsv_adapters {
    size_t n;
    char **names;      /* [n], owned */
    char **texts;      /* [n], owned: the instruction before each text, or "" */
    int32_t rank;      /* the largest of any product */
    float scale;       /* of the products */
    bool words, types; /* there are items for the word table, and for the type table */
};

/* Layers of an LSTM or a GRU in place of the encoder. The gates are input, forget, cell and output;
 * reset, update and new. */
struct gsv_recurrent {
    int32_t n_layers;   /* 0: the model is another one */
    int32_t units;      /* hidden states of one direction */
    int32_t directions; /* 1 or 2 */
    uint32_t cell;      /* gpuserve_cell */
    int32_t order[4];   /* the block of the file's rows that holds a gate */
    bool is_keras;      /* the layout of Keras: transposed, one bias */
    bool is_words;      /* modules of sentence-transformers: no classifier */
    bool has_bias;
    bool over_words;  /* the layers read the words of an entity head, after the encoder */
    int32_t empty_id; /* the token of a text without words; 0: none */
};

struct gsv_config {
    const struct gsv_family *family;
    char *architecture;        /* owned */
    const char *adapter_class; /* as gsv_lora_class(); NULL: that of config.json */
    char *model_type;          /* owned */
    bool classifies;           /* ...ForSequenceClassification */
    bool labels_tokens;        /* ...ForTokenClassification */
    bool is_masked;            /* ...ForMaskedLM */
    bool outputs_layers;       /* "output_hidden_states" */
    bool is_late;              /* HF_ColBERT: token vectors for late interaction */
    int32_t vocab_size, hidden_size, n_layers, n_heads, intermediate_size;
    int32_t n_kv_heads, head_size, embedding_size;
    int32_t n_stored_layers;  /* fewer than n_layers if layers share weights (ALBERT) */
    int32_t n_decoder_layers; /* the last ones of n_layers; 0: the model is an encoder */
    int32_t start_id;         /* the token before a text in the decoder's input */
    int32_t max_positions, first_position, type_vocab_size;
    int32_t token_limit; /* of a text, below that of the positions; 0: none */
    int32_t pad_id;      /* -1: config.json has none */
    int32_t end_id;      /* of GSV_LAST_FIRST_END and GSV_LAST_END */
    enum gsv_last_rule last_rule;
    int32_t activation; /* gpuserve_activation of the feed-forward layers */
    int32_t norm;       /* gpuserve_norm of the encoder */
    float eps;
    float fixed_eps; /* of the embeddings' norm, and of a layer's last norm before the bottleneck's
                        output; 0: `eps` */
    int32_t n_ffns;  /* feed-forward networks of a layer */
    struct gsv_bottleneck bottleneck;
    bool is_trigram; /* the projection of a token reads the embeddings of the next token, of its
                        own and of the previous token */
    bool is_gated, is_causal;
    bool no_position_table; /* config.json leaves the family's position table out */
    bool caps_logits;       /* of the language model: not computed */
    bool has_task;          /* ERNIE: the first task vector is added to each token */
    float attention_scale, softcap, word_scale;
    struct gsv_relative relative;
    struct gsv_rotary rotary[2]; /* of global layers, of local layers */
    int32_t window;              /* of local layers: distance of the farthest key; 0: none */
    uint64_t local[GSV_MAX_LAYERS / 64]; /* bitmap: local layers */
    int32_t projection_dim;              /* CLIP: of the projection after pooling; 0: none */
    /* The classifier, from the family and config.json. */
    int32_t classifier_pooling, classifier_activation;
    bool pools_logits; /* the classifier runs on each token, then the logits are averaged */
    bool has_no_dense; /* the classifier's first layer is left out */
    enum gsv_presence qkv_bias, out_bias, ffn_in_bias, ffn_out_bias, norm_bias;
    struct gsv_convolution convolution;
    struct gsv_experts experts;
    struct gsv_adapters adapters;
    struct gsv_recurrent recurrent;
    char **labels; /* owned; NULL if the file has no labels */
    size_t n_labels;
    int32_t score;     /* gpuserve_score; DEFAULT if the file does not specify it */
    bool includes_one; /* despite gamma_plus_one the file holds gamma (GGUF) */
};

static inline bool gsv_is_local(const struct gsv_config *config, int32_t layer)
{
    return (config->local[layer / 64] >> layer % 64 & 1) != 0;
}

/* True for a layer of the decoder: causal attention, then cross-attention to the encoder's output.
 */
static inline bool gsv_is_decoder_layer(const struct gsv_config *config, int32_t layer)
{
    return layer >= config->n_layers - config->n_decoder_layers;
}

/* Columns of the rows inside a layer. */
static inline int32_t gsv_inner_size(const struct gsv_config *config)
{
    return config->bottleneck.width > 0 ? config->bottleneck.width : config->hidden_size;
}

/* True if the value reads other rows than query and key. */
static inline bool gsv_has_own_value(const struct gsv_config *config)
{
    return config->bottleneck.width > 0 && config->bottleneck.source == GSV_BOTTLENECK_SHARED;
}

/* True if an LSTM takes the place of the encoder. */
static inline bool gsv_is_recurrent(const struct gsv_config *config)
{
    return config->recurrent.n_layers > 0 && !config->recurrent.over_words;
}

/* Columns of query, key and value together, and of the attention output. */
static inline int32_t gsv_qkv_columns(const struct gsv_config *config)
{
    return (config->n_heads + 2 * config->n_kv_heads) * config->head_size;
}

static inline int32_t gsv_context_columns(const struct gsv_config *config)
{
    return config->n_heads * config->head_size;
}

gpuserve_status gsv_config_read(struct gsv_config *config, const struct gsv_dir *dir,
                                const char *folder, gpuserve_error *error);
/* Parse the JSON; `config` must be zeroed. */
gpuserve_status gsv_config_parse(struct gsv_config *config, const struct gsv_json_value *json,
                                 gpuserve_error *error);
void gsv_config_reset(struct gsv_config *config);

/* Copy n strings into a new array, freed with gsv_labels_free(); also used by head.c. */
gpuserve_status gsv_labels_copy(char ***labels, size_t *n_labels,
                                const struct gsv_json_value *const *texts, size_t n,
                                const char *shown, gpuserve_error *error);
void gsv_labels_free(char **labels, size_t n_labels);

/* --- for the families' own readers; the file's name in messages is "config.json" --- */

#define GSV_CONFIG_NAME "config.json"

/* Read a size of at least 1, by the first of the keys "a|b" that is present. 0 and OK if none is.
 */
gpuserve_status gsv_config_size(const struct gsv_json_value *json, const char *keys,
                                int64_t maximum, int32_t *value, gpuserve_error *error);

/* gpuserve_activation of a name as in transformers; `key` is for the message. */
gpuserve_status gsv_activation_by_name(const char *name, const char *key, int32_t *activation,
                                       gpuserve_error *error);

/* Refuse a true or non-null value of a key, because the encoder does not implement it. */
gpuserve_status gsv_config_refuse(const struct gsv_json_value *json, const char *key,
                                  gpuserve_error *error);

/* labels.c: read "id2label"; read how scores are computed. */
gpuserve_status gsv_config_labels(struct gsv_config *config, const struct gsv_json_value *json,
                                  gpuserve_error *error);
gpuserve_status gsv_config_score(struct gsv_config *config, const struct gsv_json_value *json,
                                 gpuserve_error *error);

/* bottleneck.c: read the sizes of bottleneck layers. */
gpuserve_status gsv_bottleneck_read(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error);

/* adapters.c: read "lora_adaptations" and their relatives. */
gpuserve_status gsv_adapters_read(struct gsv_adapters *adapters, const struct gsv_json_value *json,
                                  gpuserve_error *error);
void gsv_adapters_reset(struct gsv_adapters *adapters);

/* 1 / sqrt(n) */
float gsv_inverse_root(int32_t n);

/* rotary.c: read "rope_parameters", "rope_scaling", "rope_theta" and their relatives. `type`
 * is a layer type inside "rope_parameters", or NULL; `theta_key` holds the base, by default
 * `theta`. */
gpuserve_status gsv_rotary_read(struct gsv_rotary *rotary, const struct gsv_config *config,
                                const struct gsv_json_value *json, const char *type,
                                const char *theta_key, double theta, gpuserve_error *error);

/* Read "layer_types" into config->local, or mark layer i as global if (i + offset) % every is 0. */
gpuserve_status gsv_layer_types_read(struct gsv_config *config, const struct gsv_json_value *json,
                                     int32_t every, int32_t offset, gpuserve_error *error);

#endif
