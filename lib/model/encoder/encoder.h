/*
 * encoder.h - the transformer encoder as backend operations.
 *
 * A layer has four stages, each a matrix product (linear) and the operations after it. run.c runs
 * whole layers; smoothquant.c and mixed_precision.c run single stages to measure INT8.
 */
#ifndef GSV_MODEL_ENCODER_H
#define GSV_MODEL_ENCODER_H

#include "lib/model/weight_map.h"
#include "lib/model/weights/weights.h"

/* Adjacent rows of a batch whose texts have the same adapter; they end where the next range begins,
 * or with the batch. */
struct gsv_adapter_range {
    int32_t adapter; /* 0: none */
    int32_t first;   /* row */
};
#define GSV_MAX_ADAPTER_RANGES (GSV_MAX_ADAPTERS + 1)

/* Device memory of the activations; the shapes are in struct gsv_exec_layout. */
struct gsv_activations {
    void *hidden, *context, *wide;
    void *low;      /* of adapters; logits of experts */
    float *weights; /* of experts */
    void *sum;      /* of experts */
    void *convolved;
    const int32_t *neighbours; /* see gsv_write_neighbours() */
    int32_t neighbours_ld;
    void *narrow;     /* rows inside a bottleneck layer */
    void *encoded;    /* the encoder's output, which a decoder reads */
    void *mix;        /* WeightedLayerPooling */
    int32_t n_ranges; /* 0: no text of the batch has an adapter */
    struct gsv_adapter_range ranges[GSV_MAX_ADAPTER_RANGES]; /* of the batch; adapters ascend */
};

/* The stages of a layer, in order; each begins with one linear. x is `hidden`, in a bottleneck
 * layer `narrow`. In pre-norm layers the input of ATTEND and EXPAND is in `context`, normalized; in
 * post-norm layers it is x. Further feed-forward networks are further pairs of EXPAND and CONTRACT.
 */
enum gsv_stage {
    GSV_STAGE_ATTEND,   /* input -> QKV in wide -> context */
    GSV_STAGE_PROJECT,  /* context -> wide; x = x + wide, with the layer's norms; in a decoder layer
                           cross-attention too */
    GSV_STAGE_EXPAND,   /* input -> activation or gated linear unit in wide */
    GSV_STAGE_CONTRACT, /* wide -> context; x = x + context, with the layer's norms */
};

/* Stages of a layer. */
static inline int32_t gsv_stage_count(const struct gsv_spec *spec)
{
    return GSV_STAGE_EXPAND + 2 * spec->config.n_ffns;
}

static inline enum gsv_stage gsv_stage_kind(int32_t stage)
{
    return stage < GSV_STAGE_EXPAND ? (enum gsv_stage)stage
                                    : (enum gsv_stage)(GSV_STAGE_EXPAND + stage % 2);
}

/* The feed-forward network of an EXPAND or CONTRACT stage. */
static inline int32_t gsv_stage_ffn(int32_t stage)
{
    return (stage - GSV_STAGE_EXPAND) / 2;
}

/* Like gsv_net_run() for EMBED, but from hidden states in host memory: batch->n_tokens rows in the
 * net's activation type. */
gpuserve_status gsv_exec_embed(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                               const void *hidden, const struct gsv_run *run,
                               gpuserve_error *error);

/* The activations in device memory of gsv_exec_layout(). */
struct gsv_activations gsv_map_activations(const struct gsv_exec_layout *layout, char *memory,
                                           int32_t max_tokens);

/* The index of the item of a stage's linear. */
int32_t gsv_stage_item(const struct gsv_spec *spec, int32_t layer, int32_t stage);

/* The first layer with the weights of stored layer `stored`, 0 to n_stored_layers - 1. */
int32_t gsv_stored_layer(const struct gsv_spec *spec, int32_t stored);

/* The input of the stage's linear, and the elements from row to row. */
void *gsv_stage_input(const struct gsv_spec *spec, const struct gsv_activations *at, int32_t stage);
int32_t gsv_stage_input_ld(const struct gsv_spec *spec, const struct gsv_activations *at,
                           int32_t stage);

gpuserve_status gsv_encode_embed(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at);

/* low_rank.c: find the ranges of rows with the same adapter. GPUSERVE_E_INVALID unless the adapters
 * of the texts ascend. */
gpuserve_status gsv_find_adapter_ranges(struct gsv_activations *at,
                                        const struct gpuserve_host_batch *host,
                                        const struct gsv_run *run, gpuserve_error *error);

/* Run one linear of a layer and the operations up to the next linear. */
gpuserve_status gsv_encode_stage(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at, int32_t layer, int32_t stage);

/* Run the embedding and all layers, of a pipeline those of the net's device; with layer weights
 * their outputs are added up in `mix`. */
gpuserve_status gsv_encode(const struct gsv_net *net, struct gpuserve_stream *stream,
                           const struct gpuserve_batch *batch, const struct gsv_activations *at);

/* End a batch after an operation failed with `refused`: waits for the stream, which may then be
 * used again. Returns the status and sets the error, with the backend's details if it has any. */
gpuserve_status gsv_abandon_batch(const struct gpuserve_backend *backend,
                                  struct gpuserve_stream *stream, gpuserve_status refused,
                                  gpuserve_error *error);

/*
 * A mixture of experts in place of a feed-forward network.
 *
 *   weights = softmax(router(x)), of all but the top_k largest 0
 *   sum = bias + weights[0] * expert_0(x) + weights[1] * expert_1(x) + ...
 *
 * Every expert runs on every token, and adds nothing to the tokens that did not choose it.
 */

/* Items of a layer: router, bias, and two products of each expert. */
static inline size_t gsv_experts_items(const struct gsv_config *config)
{
    return config->experts.n > 0 ? 2 + 2 * (size_t)config->experts.n : 0;
}

static inline bool gsv_has_experts(const struct gsv_config *config, int32_t layer)
{
    return config->experts.n > 0 && layer % config->experts.every == config->experts.first;
}

/* Add the items; ffn[0] becomes the first expert. */
gpuserve_status gsv_add_experts(const struct gsv_collector *c, struct gsv_layer *layer);

/* Compute at->sum from `in`; changes `context` and `wide`. */
gpuserve_status gsv_run_experts(const struct gsv_net *net, struct gpuserve_stream *stream,
                                const struct gpuserve_batch *batch,
                                const struct gsv_activations *at, int32_t layer, const void *in);

/*
 * Row indices that let an operation read the tokens next to a token of the same text.
 *
 *   convolution    [kernel - 1, max_tokens]: rows of `hidden`, whose row max_tokens is zeros
 *   trigram input  [max_tokens, 3]: word ids of the next token, the token, the previous token; the
 *                  last row of the word table is zeros
 *   decoder        [max_tokens]: the id of the previous token, gsv_config.start_id for the first
 * one
 *
 * Other tokens outside of the text count as zeros. Written before a batch begins.
 */

/* Indices of each token; 0: the model needs none. */
static inline int32_t gsv_neighbours_per_token(const struct gsv_config *config)
{
    return config->is_trigram               ? 3
           : config->n_decoder_layers > 0   ? 1
           : config->convolution.kernel > 0 ? config->convolution.kernel - 1
                                            : 0;
}

/* Write the indices of a batch to `to`, in device memory. `host` has as many elements. */
gpuserve_status gsv_write_neighbours(const struct gsv_net *net, int32_t max_tokens,
                                     const struct gpuserve_host_batch *batch, int32_t *host,
                                     void *to, gpuserve_error *error);

/* Write the row of zeros after the `max_tokens` rows of `hidden`, which a convolution reads outside
 * of the text. Other models have none. */
gpuserve_status gsv_write_zero_row(const struct gsv_net *net, int32_t max_tokens, void *hidden,
                                   gpuserve_error *error);

/* Both with host memory of its own, for a batch that runs several times. */
gpuserve_status gsv_fill_neighbours(const struct gsv_net *net, int32_t max_tokens,
                                    const struct gpuserve_host_batch *batch,
                                    const struct gsv_activations *at, void *to,
                                    gpuserve_error *error);

#endif
