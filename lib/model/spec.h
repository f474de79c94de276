/*
 * spec.h - contents of gsv_spec: the open files and the list of weights (items).
 *
 * Each weight of the network is an item. The list is built once; sizes, loading and the digest all
 * iterate over it, so they are consistent. The order of items:
 *
 *   word [position] [type] [relative ...] [norm] [projection] [decoder's position, norm]
 * layer 0 ... layer n-1   [final norm] [layer weights]   Dense of tokens ...   [late heads]   Dense
 * ...   classifier ... [transform norm] [decoder ...]
 *
 * Private to lib/model. Immutable after gsv_spec_load().
 */
#ifndef GSV_MODEL_SPEC_H
#define GSV_MODEL_SPEC_H

#include "lib/model/families/config.h"
#include "lib/model/modules/modules.h"
#include "lib/model/model.h"

enum gsv_weight_kind {
    GSV_ITEM_TABLE,        /* rows in the table type */
    GSV_ITEM_MAPPED_TABLE, /* as TABLE; row i is weight[0][weight[1][i]] * weight[2][i] (model2vec)
                            */
    GSV_ITEM_SUM_TABLE,    /* a table with an adapter: rows in the table type */
    GSV_ITEM_FLOATS,       /* float32 */
    GSV_ITEM_RELATIVE,     /* buckets expanded to all distances, float32 */
    GSV_ITEM_ALIBI,        /* biases of all distances, float32; computed, not in a file */
    GSV_ITEM_ROTARY,       /* cosines and sines of all positions, float32; computed */
    GSV_ITEM_POSITIONS,    /* projected vectors of positions (DeBERTa), activation type */
    GSV_ITEM_POSITION_INDEX, /* their rows for all distances, int32; computed */
    GSV_ITEM_LINEAR,         /* a matrix product in the net's dtype */
    GSV_ITEM_LINEAR_PLAIN,   /* a product on token vectors outside the layers: never INT8 */
    GSV_ITEM_LINEAR_EXACT,   /* a product on pooled vectors: always float32 */
    GSV_ITEM_RECURRENT /* one direction of a layer of an LSTM or a GRU, float32; the first item of a
                          layer holds the packed weights of all its directions */
};

struct gsv_weight {
    enum gsv_weight_kind kind;
    int32_t n, k;           /* rows and columns; FLOATS: n = 1 */
    int32_t n_parts;        /* stacked tensors: 3 for query, key and value, else 1 */
    int32_t rows[3];        /* rows of each part; their sum is n */
    int32_t activation;     /* gpuserve_activation of a linear */
    int32_t layer;          /* the first layer with this weight; -1: outside of the layers */
    bool plus_one;          /* FLOATS: 1 is added to each value */
    bool sums_to_one;       /* FLOATS: the values are divided by their sum */
    bool zero_row;          /* TABLE: the last row is 0, and not in the file */
    int32_t n_file_columns; /* LINEAR_EXACT: columns of the tensor, of which the linear has those
                               from `first` on; 0: k */
    bool subtracts;         /* LINEAR_EXACT of one part: weight[1] is subtracted from weight[0] */
    bool interleaved;       /* rows of query, key and value alternate by head: sorted on reading */
    bool transposed;        /* a linear's tensor is [k, n] */
    float scale;            /* of the values of an adapter; 0: 1 */
    int32_t n_ones;         /* LINEAR_PLAIN: rows beyond those of the tensor whose output is 1 */
    int32_t n_taps;    /* LINEAR_PLAIN: the tensor is a convolution [rows, k / groups, n_taps] */
    int32_t tap;       /* of these */
    int32_t n_columns; /* LINEAR_PLAIN: columns of weight[0], if fewer than k; the others are those
                          of weight[1], a tensor [k - n_columns, ...], from column `first` on */
    int32_t first;
    int32_t which; /* ROTARY: index into gsv_config.rotary; RECURRENT: the direction */
    struct gsv_tensor weight[3]; /* each [rows, k]. TABLE: the first row of [1] is added to each
                                    row. SUM_TABLE: scale * [1] [2] is added. POSITIONS: vectors,
                                    projection, gamma. MAPPED_TABLE: vectors, their indices (count
                                    0: the rows themselves), and factors (count 0: 1). RECURRENT:
                                   [n, k - units] of the input, [n, units] of the hidden states */
    struct gsv_tensor bias[3];   /* each [rows]; count 0: zeros. POSITIONS: -, of the projection,
                                    beta. RECURRENT: both are added */
};

/* A norm: indices of its items; -1: absent. */
struct gsv_norm_items {
    int32_t gamma, beta;
    int32_t kind; /* gpuserve_norm */
    float eps;
};

/* Items of an entity head; -1: absent. Each is a product on rows of words or labels; `inner` and
 * `width` are those of gsv_entity_facts.
 *
 *   spans:   start, end: word -> inner of the last layer's input; query: label -> inner
 *   tokens:  word_pair, label_pair: two rows of `width`; pair: both and their product -> 3 logits
 */
struct gsv_entity_items {
    int32_t prompt[2], query, query_bias;
    int32_t start[3], end[3];
    int32_t word_pair, label_pair, pair[2];
};
#define GSV_ENTITY_ITEMS 10 /* at most, without those of the LSTM */

#define GSV_NO_NORM ((struct gsv_norm_items){ .gamma = -1, .beta = -1 })

/* A feed-forward network: indices of its items. */
struct gsv_ffn {
    int32_t in, out;
    struct gsv_norm_items before, after;
};

/* A product with a norm after it. */
struct gsv_bottleneck_items {
    int32_t linear;
    struct gsv_norm_items norm;
};

/* Cross-attention of a decoder layer: indices of its items; -1: absent. */
struct gsv_cross_items {
    int32_t query;     /* reads the decoder's rows */
    int32_t key_value; /* reads the encoder's output */
    int32_t out;
    struct gsv_norm_items after;
};

/* Indices of a layer's items; -1: absent. */
struct gsv_layer {
    int32_t qkv, out;
    int32_t value;  /* of bottleneck layers: `qkv` holds query and key only */
    int32_t router; /* of a mixture of experts, whose first expert is ffn[0] */
    struct gsv_norm_items before_attention, after_attention;
    struct gsv_ffn ffn[GSV_MAX_FFNS]; /* in order */
    struct gsv_bottleneck_items bottleneck_in, bottleneck_attention, bottleneck_out;
    struct gsv_cross_items cross;
    int32_t query_gamma, key_gamma;
    struct gsv_norm_items all_query_heads, all_key_heads; /* LayerNorm over all heads */
    struct gsv_norm_items
        again_attention;                  /* of the sum of the input and after_attention's output */
    int32_t relative;                     /* RELATIVE or ALIBI */
    int32_t position_key, position_query; /* POSITIONS */
};

/* Without adapters and experts, and with one feed-forward network; two linears and two norms of
 * each other one. */
#define GSV_MAX_LAYER_ITEMS 21
#define GSV_FFN_ITEMS 6
#define GSV_BOTTLENECK_ITEMS 10 /* three linears with their norms, and `value` */
#define GSV_CROSS_ITEMS 5       /* three linears and a norm */

/* A module on token vectors or pooled vectors. */
struct gsv_row_step {
    enum gsv_row_step_kind kind;
    int32_t route;            /* -1: every text */
    int32_t columns;          /* of its output */
    int32_t linear, residual; /* items of a Dense; -1: absent */
    bool adds_input;          /* the residual is the input itself */
    struct gsv_norm_items norm;
};

#define GSV_MAX_UNWEIGHTED 8

/* The steps of one place. */
struct gsv_row_steps {
    struct gsv_row_step at[GSV_MAX_STEPS + 1]; /* CLIP's projection is one more */
    int32_t n;
};

struct gsv_spec {
    struct gsv_spec_facts facts;
    struct gsv_config config;
    struct gsv_modules modules;
    struct gsv_heads heads;             /* of files; they replace the model's own classifier */
    struct gsv_label_head *label_heads; /* [heads.n]: facts.label_heads */
    struct gsv_checkpoint weights;
    struct gsv_adapter_files *adapter_files;           /* NULL: no adapters in files of their own */
    struct gsv_checkpoint step_weights[GSV_MAX_STEPS]; /* of modules.steps */
    struct gsv_checkpoint layer_weights;               /* of WeightedLayerPooling */
    struct gsv_checkpoint lstm_weights;                /* of the module LSTM */
    const struct gsv_tensor_names *names;              /* the layout of the checkpoint */
    char prefix[64];        /* prefix of the encoder's tensor names: "" or "bert." */
    char *entity_tokens[2]; /* owned: gsv_entity_facts.class_token, .separator */
    int32_t entity_layers;  /* of the LSTM over words */
    char **default_labels;  /* "LABEL_0", ... if no file names the labels */
    size_t n_default_labels;

    struct gsv_weight *items;
    size_t n_items, max_items;
    /* Indices into items; -1: absent. */
    int32_t word, position, type, projection;
    int32_t relative, position_index; /* RELATIVE of all layers; POSITION_INDEX */
    int32_t rotary[2];                /* of global and of local layers */
    int32_t convolution;              /* the first product, of the middle */
    struct gsv_norm_items convolution_norm;
    struct gsv_norm_items embedding_norm, final_norm;
    int32_t decoder_position; /* the decoder's own tables; its words are the encoder's */
    struct gsv_norm_items decoder_norm;
    struct gsv_layer *layers; /* [n_layers]; layers that share weights have equal indices */
    int32_t recurrent;        /* the first item of the LSTM's layers */
    int32_t mix; /* FLOATS of WeightedLayerPooling, or -1; the first is that of layer mix_first */
    int32_t mix_first;
    struct gsv_row_steps token_steps, pooled_steps;
    bool normalizes_tokens;
    int32_t pooled_dim; /* width of the token rows that are pooled */
    /* Heads of BGE-M3 (late_heads.c); NULL and -1: absent. */
    struct gsv_weight_file *lexical_file, *late_file;
    int32_t lexical, late;
    int32_t unweighted[GSV_MAX_UNWEIGHTED]; /* token ids without a weight */
    size_t n_unweighted;
    int32_t first_dense, first_classifier; /* first_dense: the first item of pooled_steps */
    int32_t n_classifier; /* number of linear layers of the model's own classifier */
    struct gsv_norm_items classifier_norm; /* after the first of them */
    struct gsv_norm_items masked_norm;
    /* For sparse models: index of the transform or -1, and of n_decoder chunks of the decoder with
     * at most GSV_DECODER_ROWS words each. */
    int32_t transform, first_decoder, n_decoder;
    struct gsv_entity_items entity;
    struct gsv_tensor answers; /* [vocab_size, hidden_size]: rows of the next token's logits */
    bool is_decoder_tied;      /* the decoder shares the word embedding table */
};

/* True unless the token has no weight in sparse vectors of BGE-M3. */
static inline bool gsv_is_weighted(const struct gsv_spec *spec, int32_t id)
{
    for (size_t i = 0; i < spec->n_unweighted; i++)
        if (spec->unweighted[i] == id)
            return false;
    return true;
}

/* True if CLASSIFY is that of head files, not of the model's own classifier. */
static inline bool gsv_has_heads(const struct gsv_spec *spec)
{
    return spec->heads.n > 0;
}

/* True if the sparse vectors are those of a masked-LM head. */
static inline bool gsv_has_decoder(const struct gsv_spec *spec)
{
    return spec->facts.is_sparse && !spec->facts.weighs_tokens;
}

/* The number of vocabulary words whose logits are computed at a time. The logits of all words for
 * each token would be far larger than the other activations. */
#define GSV_DECODER_ROWS 2048

/* The activation dtype between the products of a net that computes in `dtype`. */
static inline uint32_t gsv_between_products(const struct gpuserve_backend *backend, uint32_t dtype)
{
    if (dtype != GPUSERVE_DTYPE_INT8)
        return dtype;
    return backend->activation_size(dtype) == sizeof(float) ? (uint32_t)GPUSERVE_DTYPE_FLOAT32
                                                            : (uint32_t)GPUSERVE_DTYPE_FLOAT16;
}

/* The dtype of a linear item in a net that computes in `dtype`. */
static inline uint32_t gsv_weight_dtype(const struct gsv_weight *item,
                                        const struct gpuserve_backend *backend, uint32_t dtype)
{
    if (item->kind == GSV_ITEM_LINEAR_EXACT)
        return GPUSERVE_DTYPE_FLOAT32;
    if (item->kind == GSV_ITEM_LINEAR_PLAIN && dtype == GPUSERVE_DTYPE_INT8)
        return gsv_between_products(backend, dtype);
    return dtype;
}

/* The largest number of tokens of a text, which bounds all distances. */
static inline int32_t gsv_relative_span(const struct gsv_spec *spec)
{
    return spec->facts.max_tokens;
}

/* True if a task of the model pools up to the token of gsv_last_rule, which is not the last one. */
static inline bool gsv_pools_before_end(const struct gsv_spec *spec, uint32_t task)
{
    switch (spec->config.last_rule) {
    case GSV_LAST_TOKEN:
        return false;
    case GSV_LAST_BEFORE_PADS:
    case GSV_LAST_END:
        return task == GPUSERVE_TASK_CLASSIFY && !gsv_has_heads(spec);
    default:
        return spec->facts.poolings[0] == GPUSERVE_POOL_LAST && spec->facts.n_poolings == 1 &&
               (task == GPUSERVE_TASK_EMBED ||
                (task == GPUSERVE_TASK_CLASSIFY && gsv_has_heads(spec)));
    }
}

/* True if a part of a text may be left out of pooling. */
static inline bool gsv_has_parts(const struct gsv_spec *spec)
{
    return spec->facts.skips_prompt || spec->config.last_rule != GSV_LAST_TOKEN;
}

/* The columns of all poolings together, which the first pooled step reads. */
static inline int32_t gsv_pooled_width(const struct gsv_spec *spec)
{
    return spec->pooled_dim * (spec->facts.n_poolings > 0 ? spec->facts.n_poolings : 1);
}

/* Steps that apply to a run's route. */
static inline bool gsv_takes_step(const struct gsv_row_step *step, int32_t route)
{
    return step->route < 0 || step->route == route;
}

/* The number of float32 values on the device (RELATIVE, FLOATS), or of elements (other kinds). */
size_t gsv_weight_elements(const struct gsv_spec *spec, const struct gsv_weight *item);

/* Recognize a reranker that is a language model, and the template of its pairs; implemented in
 * answer_classifier.c. is_embedder: a pooling or a head is requested. */
gpuserve_status gsv_spec_find_answers(struct gsv_spec *spec, const struct gsv_dir *dir,
                                      bool is_embedder, gpuserve_error *error);

/* Fill items from the open files; implemented in weight_map.c. */
gpuserve_status gsv_spec_collect(struct gsv_spec *spec, gpuserve_error *error);

/* The table of the module WordEmbeddings. */
#define GSV_WORD_TABLE "emb_layer.weight"

/* recurrent_config.c: an LSTM or a GRU over word embeddings in place of the encoder. config.json
 * says so by its model type, "recurrent"; for any other model gsv_recurrent_read() does nothing.
 * gsv_recurrent_configure() is of the modules WordEmbeddings and LSTM, whose weights are open. */
gpuserve_status gsv_recurrent_read(struct gsv_spec *spec, const struct gsv_dir *dir,
                                   gpuserve_error *error);
gpuserve_status gsv_recurrent_configure(struct gsv_spec *spec, gpuserve_error *error);
/* recurrent_map.c */
gpuserve_status gsv_recurrent_collect(struct gsv_spec *spec, gpuserve_error *error);
/* Describe layer `number` without weights: its sizes. */
struct gpuserve_lstm_source gsv_recurrent_source(const struct gsv_config *config, int32_t number);

/* The number of the layer of an item of kind RECURRENT. */
static inline int32_t gsv_recurrent_layer(const struct gsv_spec *spec, size_t item)
{
    return ((int32_t)item - spec->recurrent) / spec->config.recurrent.directions;
}

/* late_heads.c: open the files of BGE-M3's heads if the directory has them, and set the facts that
 * follow. gsv_collect_late_heads() adds their items. */
gpuserve_status gsv_late_heads_open(struct gsv_spec *spec, const struct gsv_dir *dir,
                                    gpuserve_error *error);
gpuserve_status gsv_late_heads_facts(struct gsv_spec *spec, gpuserve_error *error);
gpuserve_status gsv_collect_late_heads(struct gsv_spec *spec, gpuserve_error *error);
void gsv_late_heads_close(struct gsv_spec *spec);

/* entity_map.c: a head that finds entities of labels given with the text. gliner_config.json says
 * so; without that file these functions do nothing. The encoder's configuration is a member of the
 * file, or config.json. */
gpuserve_status gsv_entity_read(struct gsv_spec *spec, const struct gsv_dir *dir,
                                gpuserve_error *error);
/* The size of the vocabulary is that of the checkpoint: tokens are added to it. */
gpuserve_status gsv_entity_set_vocabulary(struct gsv_spec *spec, gpuserve_error *error);
/* Set the maximum tokens of a text, and the dtypes that the head does not support. */
void gsv_entity_set_limits(struct gsv_spec *spec);

/* static_table.c: a model without layers, whose configuration is the shape of its table. A
 * directory of model2vec without modules.json becomes one. */
gpuserve_status gsv_static_detect(struct gsv_spec *spec, const struct gsv_dir *dir,
                                  gpuserve_error *error);
gpuserve_status gsv_static_configure(struct gsv_spec *spec, gpuserve_error *error);
gpuserve_status gsv_static_collect(struct gsv_spec *spec, gpuserve_error *error);

#endif
