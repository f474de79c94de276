/*
 * rows.h - contents of gsv_exec, and the pooled rows during the layers after the encoder.
 *
 * run.c runs batches; steps.c pools and embeds; classify.c classifies and weighs vocabulary words,
 * and has the heads of BGE-M3; heads.c runs head files; max_sim.c compares texts with queries.
 * Operations are queued on the stream of one thread.
 */
#ifndef GSV_MODEL_ROWS_H
#define GSV_MODEL_ROWS_H

#include "lib/model/encoder/encoder.h"
#include "lib/model/weight_map.h"
#include "lib/model/weights/weights.h"

struct gsv_exec {
    const struct gsv_net *net; /* borrowed */
    struct gpuserve_stream *stream;
    struct gsv_exec_layout layout;
    char *memory; /* device memory */
    struct gsv_activations at;
    float *pooled[2];    /* device, [max_sequences, pooled_columns] */
    float *inner;        /* device, [max_sequences, inner_columns] */
    float *scores;       /* device; blocks of head files, see heads.c */
    float *bounce;       /* host; rows that are cut or interleaved; NULL if none */
    int32_t *parts;      /* host, [2 * max_sequences]; NULL unless the model skips prompts */
    int32_t *neighbours; /* host, see gsv_write_neighbours(); NULL if the model needs none */
    struct gpuserve_lstm_sequence *sequences; /* host, [max_sequences] of an LSTM; else NULL */
    int32_t max_sequences, max_tokens;
    struct gsv_exec **before; /* [net->n_before] owned: on a pipeline's devices before this one */
    void *border;             /* host, gsv_pipeline_host_bytes(); NULL without `before` */
    struct gpuserve_device *border_device; /* that frees it */
    uint32_t border_kind;                  /* gpuserve_host_memory */
};

/* float32 rows on the device during the layers after the encoder. */
struct gsv_rows {
    struct gsv_exec *work;
    const struct gpuserve_batch *batch;
    float *data; /* one of work->pooled */
    int32_t columns;
    int32_t ld; /* leading dimension: floats from row to row */
    bool skips; /* pooling excludes the prompt's tokens, or pad tokens at the end */
    int32_t route;
    const void *tokens; /* the token rows that are pooled */
    int32_t token_columns;
};

/* The encoder's output, before and after the modules on token vectors. */
void *gsv_token_input(const struct gsv_spec *spec, const struct gsv_activations *at);
void *gsv_token_output(const struct gsv_spec *spec, const struct gsv_activations *at);

/* The token vectors of the model, once they are computed. Those of gsv_normalizes_tokens() are not
 * normalized on the device. */
static inline const void *gsv_token_vectors(const struct gsv_exec *work)
{
    return work->net->spec->late_file ? work->at.context
                                      : gsv_token_output(work->net->spec, &work->at);
}

/* The vectors of late interaction have length 1. */
static inline bool gsv_normalizes_tokens(const struct gsv_spec *spec)
{
    return spec->normalizes_tokens || spec->late_file;
}

/* Apply the modules on token vectors to the encoder's output. */
gpuserve_status gsv_rows_tokens(struct gsv_rows *rows);

/* One linear on token rows; `residual` is added to the output, or NULL. */
gpuserve_status gsv_token_linear(const struct gsv_rows *rows, int32_t item_index, const void *in,
                                 void *out, int32_t out_ld, const void *residual);

/* Pool the first `columns` columns of the concatenated poolings. CLS takes the first token of a
 * text, even if it is skipped. */
gpuserve_status gsv_rows_pool(struct gsv_rows *rows, const int32_t poolings[], int32_t n_poolings,
                              int32_t columns, bool normalize);

/* The buffer of pooled rows that the rows are not in. */
float *gsv_other_buffer(const struct gsv_rows *rows);

/* Apply one linear; the rows move to the other buffer, or to `out`. */
gpuserve_status gsv_rows_layer(struct gsv_rows *rows, int32_t item_index);
gpuserve_status gsv_rows_layer_to(struct gsv_rows *rows, int32_t item_index, float *out);

/* Normalize (NONE) or activate the first `columns` columns of each row, in place. */
gpuserve_status gsv_rows_activate(const struct gsv_rows *rows, int32_t columns, int32_t activation);

/* LayerNorm of each row, in place; no gamma: nothing. */
gpuserve_status gsv_rows_norm(const struct gsv_rows *rows, const struct gsv_norm_items *norm,
                              float eps);

/* The number of Dense modules on pooled rows of a route, each of which switches buffers. */
int32_t gsv_count_dense(const struct gsv_spec *spec, int32_t route);

/* Compute the embedding, of which `dimensions` columns are valid. With modules after pooling the
 * rows keep their full width. */
gpuserve_status gsv_rows_embed(struct gsv_rows *rows, int32_t dimensions, bool normalize);

/* The classifier on each token: logits in `wide`. */
gpuserve_status gsv_rows_label_tokens(const struct gsv_rows *rows);

/* Scores of the model's own classifier. */
gpuserve_status gsv_rows_classify(struct gsv_rows *rows, uint32_t score);
/* Apply a gpuserve_score to logits, in place. */
gpuserve_status gsv_rows_score(const struct gsv_rows *rows, uint32_t score);

/* heads.c: a choice as a set, a bit for each head; scores of the heads of a set; their floats for
 * so many texts; and their copy to run->output. */
uint32_t gsv_head_set(const struct gsv_head_choice *choice);
gpuserve_status gsv_rows_heads(struct gsv_rows *rows, uint32_t heads, uint32_t score);
size_t gsv_score_floats(const struct gsv_spec *spec, uint32_t heads, int32_t n_sequences);
gpuserve_status gsv_finish_heads(const struct gsv_rows *rows, const struct gsv_run *run,
                                 int32_t n_texts, gpuserve_error *error);

/* The maximum logit of each vocabulary word over the tokens of a text, and its weight. */
gpuserve_status gsv_rows_weigh_words(struct gsv_rows *rows);
void gsv_saturate(float *values, size_t n, bool twice);

/* BGE-M3: vectors of late interaction in `context`; weights of tokens in `wide`. */
gpuserve_status gsv_rows_late(struct gsv_rows *rows);
gpuserve_status gsv_rows_weigh_tokens(struct gsv_rows *rows);

/* max_sim.c: write the queries, texts and rows of a batch before it begins; the scores of the texts
 * from their token vectors, in the first buffer of pooled rows. */
gpuserve_status gsv_write_max_sim(struct gsv_exec *work, const struct gsv_late_batch *late,
                                  gpuserve_error *error);
gpuserve_status gsv_rows_max_sim(struct gsv_rows *rows);

/*
 * The convolution of DeBERTa v2, parallel to its first layer.
 *
 *   x = norm(layer_0(e) + activation(bias + sum over j of W[j] e[t + j - kernel / 2]))
 *
 * e are the embeddings, zeros outside of the text. Each W[j] is one product on rows that are
 * gathered from the same text.
 */

/* Add the products, that of the middle first, and the norm. */
gpuserve_status gsv_add_convolution(const struct gsv_collector *c);

/* Compute at->convolved from the embeddings in `hidden`; changes `context` and `wide`. */
gpuserve_status gsv_run_convolution(const struct gsv_net *net, struct gpuserve_stream *stream,
                                    const struct gpuserve_batch *batch,
                                    const struct gsv_activations *at);

/*
 * The devices of a pipeline before the last one: pipeline.c.
 */

/* Create work->before and work->border, if the net has devices before this one. */
gpuserve_status gsv_pipeline_create(struct gsv_exec *work, const struct gsv_exec_options *options,
                                    gpuserve_error *error);
/* Accepts a gsv_exec without them, or with a part. */
void gsv_pipeline_reset(struct gsv_exec *work);

/* Run the layers of the devices before this one, and copy what they leave to this one. Blocks until
 * it is done; the batch of work->stream begins after it. */
gpuserve_status gsv_pipeline_encode(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                                    const struct gsv_run *run, gpuserve_error *error);

/*
 * Runs the LSTM layers of a recurrent model.
 */

/* Compute `hidden` of a batch: the embedding, then all layers. Blocks until it is done, outside of
 * a batch of the stream. */
gpuserve_status gsv_recurrent_encode(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                                     gpuserve_error *error);

/* LAST pooling of a bidirectional model: the forward states of the last token, then the backward
 * states of the first one, which are the states after all tokens. `op` pools the first of
 * op->columns columns. */
gpuserve_status gsv_recurrent_pool_ends(const struct gsv_rows *rows, struct gpuserve_op_pool *op);

#endif
