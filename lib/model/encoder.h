/*
 * encoder.h - the encoder as operations of a backend, one stage for each matrix product.
 */
#ifndef GSV_MODEL_ENCODER_H
#define GSV_MODEL_ENCODER_H

#include "lib/model/weights.h"

/* Device memory of the activations; see struct gsv_exec_layout. */
struct gsv_activations {
    void *hidden, *context, *wide;
};

/* The stages of a layer, in their order; each begins with one linear. */
enum gsv_stage {
    GSV_STAGE_ATTEND,   /* hidden -> QKV in wide -> context */
    GSV_STAGE_PROJECT,  /* context -> wide; hidden = LayerNorm(wide + hidden) */
    GSV_STAGE_EXPAND,   /* hidden -> activation in wide */
    GSV_STAGE_CONTRACT, /* wide -> context; hidden = LayerNorm(context + hidden) */
    GSV_STAGE_COUNT
};

/* As gsv_net_run() for EMBED, of hidden states that are in host memory: batch->n_tokens rows as the
 * net's activations are. */
gpuserve_status gsv_exec_embed(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                               const void *hidden, const struct gsv_run *run,
                               gpuserve_error *error);

/* The offset of the stage's linear among the items of its layer. */
int32_t gsv_stage_linear(enum gsv_stage stage);

/* Where the stage's linear reads, `columns` wide. */
void *gsv_stage_input(const struct gsv_activations *at, enum gsv_stage stage);

gpuserve_status gsv_encode_embed(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at);

/* A linear of a layer and what follows it up to the next. */
gpuserve_status gsv_encode_stage(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at, int32_t layer,
                                 enum gsv_stage stage);

/* All layers. */
gpuserve_status gsv_encode(const struct gsv_net *net, struct gpuserve_stream *stream,
                           const struct gpuserve_batch *batch, const struct gsv_activations *at);

/* An operation of a batch failed with `refused`. Ends the batch, so that the stream is free for
 * another; the status, and the error with what the backend knows. */
gpuserve_status gsv_give_up_batch(const struct gpuserve_backend *backend,
                                  struct gpuserve_stream *stream, gpuserve_status refused,
                                  gpuserve_error *error);

#endif
