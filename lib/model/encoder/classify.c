/*
 * classify.c - classifiers on pooled rows and on tokens, the masked-LM head of sparse encoders, and
 * the heads of BGE-M3.
 */
#include "lib/model/encoder/rows.h"

#include <math.h>
#include <string.h>

/* out = norm(in) on token rows of `cols` columns. */
static gpuserve_status token_norm(const struct gsv_rows *rows, void *out, const void *in,
                                  const struct gsv_norm_items *norm, int32_t cols)
{
    const struct gsv_net *net = rows->work->net;
    const struct gpuserve_op_add_norm op = {
        .out = out,
        .in = in,
        .gamma = gsv_net_address(net, norm->gamma),
        .beta = gsv_net_address(net, norm->beta),
        .eps = norm->eps,
        .norm = norm->kind,
        .rows = rows->batch->n_rows,
        .cols = cols,
    };

    return norm->gamma < 0 ? GPUSERVE_OK : net->backend->add_norm(rows->work->stream, &op);
}

/* The classifier on each token: logits in `wide`. */
gpuserve_status gsv_rows_label_tokens(const struct gsv_rows *rows)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const struct gsv_activations *at = &rows->work->at;
    const int32_t last = spec->first_classifier + spec->n_classifier - 1;
    const bool has_dense = spec->n_classifier > 1;
    gpuserve_status st = GPUSERVE_OK;

    gsv_begin_phase(rows->work->net, GSV_PHASE_HEAD, -1);
    if (has_dense)
        st = gsv_token_linear(rows, spec->first_classifier, at->hidden, at->context,
                              spec->config.hidden_size, NULL);
    if (st == GPUSERVE_OK && has_dense)
        st = token_norm(rows, at->context, at->context, &spec->classifier_norm,
                        spec->config.hidden_size);
    return st == GPUSERVE_OK ? gsv_token_linear(rows, last, has_dense ? at->context : at->hidden,
                                                at->wide, spec->items[last].n, NULL)
                             : st;
}

/* The mean of the logits of all tokens (EuroBERT's "late" pooling). */
static gpuserve_status pool_logits(struct gsv_rows *rows)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const int32_t n = (int32_t)spec->facts.n_labels;
    const struct gpuserve_op_pool op = {
        .batch = rows->batch,
        .in = rows->work->at.wide,
        .out = rows->work->pooled[0],
        .pooling = GPUSERVE_POOL_MEAN,
        .hidden = n,
        .columns = n,
        .out_ld = n,
    };
    gpuserve_status st = gsv_rows_label_tokens(rows);

    rows->data = rows->work->pooled[0];
    rows->columns = rows->ld = n;
    gsv_begin_phase(rows->work->net, GSV_PHASE_POOL, -1);
    if (st == GPUSERVE_OK)
        st = rows->work->net->backend->pool(rows->work->stream, &op);
    gsv_begin_phase(rows->work->net, GSV_PHASE_HEAD, -1);
    return st;
}

/* The model's own classifier on pooled rows. */
static gpuserve_status own_logits(struct gsv_rows *rows)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const int32_t last = spec->first_classifier + spec->n_classifier - 1;
    gpuserve_status st;

    rows->tokens = rows->work->at.hidden;
    rows->token_columns = spec->config.hidden_size;
    st = gsv_rows_pool(rows, &spec->config.classifier_pooling, 1, spec->config.hidden_size, false);

    if (st == GPUSERVE_OK && spec->n_classifier > 1)
        st = gsv_rows_layer(rows, spec->first_classifier);
    if (st == GPUSERVE_OK && spec->n_classifier > 1)
        st = gsv_rows_norm(rows, &spec->classifier_norm, spec->classifier_norm.eps);
    return st == GPUSERVE_OK ? gsv_rows_layer(rows, last) : st;
}

gpuserve_status gsv_rows_score(const struct gsv_rows *rows, uint32_t score)
{
    if (score == GPUSERVE_SCORE_SOFTMAX)
        return gsv_rows_activate(rows, rows->columns, GPUSERVE_ACT_SOFTMAX);
    if (score == GPUSERVE_SCORE_SIGMOID)
        return gsv_rows_activate(rows, rows->columns, GPUSERVE_ACT_SIGMOID);
    return GPUSERVE_OK;
}

gpuserve_status gsv_rows_classify(struct gsv_rows *rows, uint32_t score)
{
    const gpuserve_status st =
        rows->work->net->spec->config.pools_logits ? pool_logits(rows) : own_logits(rows);

    return st == GPUSERVE_OK ? gsv_rows_score(rows, score) : st;
}

/* --------------------------------------------------------------------------------------- sparse */

/* The rows that the decoder reads: norm(activation(transform(hidden))), or hidden. */
static gpuserve_status transform(const struct gsv_rows *rows, const void **out)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const struct gsv_activations *at = &rows->work->at;
    gpuserve_status st;

    *out = at->hidden;
    if (spec->transform < 0)
        return GPUSERVE_OK;
    *out = at->context;
    st = gsv_token_linear(rows, spec->transform, at->hidden, at->context,
                          spec->items[spec->transform].n, NULL);
    return st == GPUSERVE_OK ? token_norm(rows, at->context, at->context, &spec->masked_norm,
                                          spec->items[spec->transform].n)
                             : st;
}

/* log(1 + relu(x)) is monotonic: the maximum logit of each word is computed first, on the device,
 * and gsv_saturate() takes the logarithm of the maximum only. */
gpuserve_status gsv_rows_weigh_words(struct gsv_rows *rows)
{
    struct gsv_exec *work = rows->work;
    const struct gsv_net *net = work->net;
    const int32_t vocab = net->spec->config.vocab_size;
    const void *in;
    gpuserve_status st;

    gsv_begin_phase(net, GSV_PHASE_HEAD, -1);
    st = transform(rows, &in);
    for (int32_t i = 0; i < net->spec->n_decoder && st == GPUSERVE_OK; i++) {
        const int32_t item = net->spec->first_decoder + i;
        const struct gpuserve_op_pool op = {
            .batch = rows->batch,
            .in = work->at.wide,
            .out = work->pooled[0] + (size_t)i * GSV_DECODER_ROWS,
            .pooling = GPUSERVE_POOL_MAX,
            .hidden = GSV_DECODER_ROWS,
            .columns = net->spec->items[item].n,
            .out_ld = vocab,
        };

        gsv_begin_phase(net, GSV_PHASE_HEAD, -1);
        st = gsv_token_linear(rows, item, in, work->at.wide, GSV_DECODER_ROWS, NULL);
        gsv_begin_phase(net, GSV_PHASE_POOL, -1);
        if (st == GPUSERVE_OK)
            st = net->backend->pool(work->stream, &op);
    }
    return st;
}

/* Convert logits to weights. The maximum of only NaN values may be an infinity: both become NaN. */
void gsv_saturate(float *values, size_t n, bool twice)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            values[i] = NAN;
        else if (values[i] <= 0.0f)
            values[i] = 0.0f;
        else
            values[i] = twice ? log1pf(log1pf(values[i])) : log1pf(values[i]);
    }
}

/*
 * The heads of BGE-M3 on token vectors: weights of tokens, and vectors of late
 * interaction.
 *
 * Both read the encoder's output and write rows by token. The runtime makes a text's sparse vector
 * of the weights of its tokens with gsv_gather_words(): a batch of vectors as wide as the
 * vocabulary would be far larger than its other outputs.
 */

gpuserve_status gsv_rows_late(struct gsv_rows *rows)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const struct gsv_activations *at = &rows->work->at;

    gsv_begin_phase(rows->work->net, GSV_PHASE_HEAD, -1);
    return gsv_token_linear(rows, spec->late, at->hidden, at->context, spec->facts.token_dim, NULL);
}

gpuserve_status gsv_rows_weigh_tokens(struct gsv_rows *rows)
{
    const struct gsv_activations *at = &rows->work->at;

    gsv_begin_phase(rows->work->net, GSV_PHASE_HEAD, -1);
    return gsv_token_linear(rows, rows->work->net->spec->lexical, at->hidden, at->wide, 1, NULL);
}

/* A NaN stays. */
static void raise_to(float *word, float weight)
{
    if (weight > *word || isnan(weight))
        *word = weight;
}

void gsv_gather_words(const struct gsv_spec *spec, const int32_t *ids, const float *weights,
                      size_t n, float *row)
{
    memset(row, 0, (size_t)spec->config.vocab_size * sizeof(*row));
    for (size_t i = 0; i < n; i++)
        if (gsv_is_weighted(spec, ids[i]))
            raise_to(&row[ids[i]], weights[i]);
}
