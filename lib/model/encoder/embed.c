/*
 * embed.c - the embeddings of a batch: tables, projection, norm.
 */
#include "lib/model/encoder/rows.h"
#include "lib/model/encoder/pass.h"
#include "lib/model/weights/adapters.h"

static gpuserve_status embed(const struct gsv_pass *pass, void *out, bool normalize,
                             const struct gpuserve_linear *reader)
{
    const struct gsv_spec *spec = pass->net->spec;
    const bool has_norm = normalize && spec->embedding_norm.gamma >= 0;
    const struct gpuserve_op_embed op = {
        .batch = pass->batch,
        .out = out,
        .word = gsv_net_address(pass->net, spec->word),
        .position = gsv_net_address(pass->net, spec->position),
        .type = gsv_net_address(pass->net, gsv_adapter_types(spec, pass->at->adapter)),
        .gamma = has_norm ? gsv_net_address(pass->net, spec->embedding_norm.gamma) : NULL,
        .beta = has_norm ? gsv_net_address(pass->net, spec->embedding_norm.beta) : NULL,
        .eps = spec->embedding_norm.eps,
        .hidden = spec->config.embedding_size,
        .norm = has_norm ? spec->embedding_norm.kind : GPUSERVE_NORM_NONE,
        .word_scale = spec->config.word_scale,
        .reader = reader,
    };

    return pass->net->backend->embed(pass->stream, &op);
}

/* Embeddings narrower than the layers: embed -> projection, with the norm before it or after it. */
static gpuserve_status embed_projected(const struct gsv_pass *pass)
{
    const struct gsv_spec *spec = pass->net->spec;
    const bool after = spec->config.family->norm_after_projection;
    gpuserve_status st = embed(pass, pass->at->wide, !after, NULL);

    if (st == GPUSERVE_OK)
        st = gsv_pass_multiply(pass, spec->projection, pass->at->wide, pass->at->hidden,
                               spec->config.hidden_size, NULL);
    if (st == GPUSERVE_OK && after)
        st = gsv_pass_hidden_norm(pass, pass->at->hidden, pass->at->hidden, NULL, NULL,
                                  &spec->embedding_norm, NULL);
    return st;
}

/* hidden = norm(projection of words + position + type). With trigram input a row of three words is
 * three rows of one. */
static gpuserve_status embed_words_projected(const struct gsv_pass *pass,
                                             const struct gpuserve_linear *reader)
{
    const struct gsv_spec *spec = pass->net->spec;
    const struct gsv_activations *at = pass->at;
    struct gpuserve_batch by_position = *pass->batch, trigrams = *pass->batch;
    const struct gpuserve_op_embed positions = {
        .batch = &by_position,
        .out = at->hidden,
        .word = gsv_net_address(pass->net, spec->position),
        .type = gsv_net_address(pass->net, spec->type),
        .hidden = spec->config.hidden_size,
        .norm = GPUSERVE_NORM_NONE,
    };
    const struct gpuserve_op_embed words = {
        .batch = spec->config.is_trigram ? &trigrams : pass->batch,
        .out = at->wide,
        .word = gsv_net_address(pass->net, spec->word),
        .hidden = spec->config.embedding_size,
        .norm = GPUSERVE_NORM_NONE,
    };
    gpuserve_status st;

    by_position.ids = by_position.positions;
    trigrams.ids = at->neighbours;
    trigrams.n_rows *= 3;
    st = pass->net->backend->embed(pass->stream, &positions);
    if (st == GPUSERVE_OK)
        st = pass->net->backend->embed(pass->stream, &words);
    if (st == GPUSERVE_OK)
        st = gsv_pass_multiply(pass, spec->projection, at->wide, at->hidden,
                               spec->config.hidden_size, at->hidden);
    return st == GPUSERVE_OK ? gsv_pass_hidden_norm(pass, at->hidden, at->hidden, NULL, NULL,
                                                    &spec->embedding_norm, reader)
                             : st;
}

/* The words of an adapter: the vectors of A, and a product with B. */
static gpuserve_status embed_adapted(const struct gsv_pass *pass,
                                     const struct gpuserve_linear *reader)
{
    const struct gsv_spec *spec = pass->net->spec;
    const int32_t item = gsv_adapter_item(spec->word, pass->at->adapter);
    const int32_t rank = spec->items[item].k;
    const struct gpuserve_op_embed down = {
        .batch = pass->batch,
        .out = pass->at->low,
        .word = gsv_net_address(pass->net, item),
        .hidden = rank,
        .norm = GPUSERVE_NORM_NONE,
    };
    const struct gpuserve_op_linear up = {
        .weight = pass->net->linears[item + 1],
        .in = pass->at->low,
        .out = pass->at->hidden,
        .residual = pass->at->hidden,
        .rows = pass->batch->n_rows,
        .in_ld = rank,
        .out_ld = spec->config.hidden_size,
    };
    gpuserve_status st = embed(pass, pass->at->hidden, false, NULL);

    if (st == GPUSERVE_OK)
        st = pass->net->backend->embed(pass->stream, &down);
    if (st == GPUSERVE_OK)
        st = pass->net->backend->linear(pass->stream, &up);
    return st == GPUSERVE_OK ? gsv_pass_hidden_norm(pass, pass->at->hidden, pass->at->hidden, NULL,
                                                    NULL, &spec->embedding_norm, reader)
                             : st;
}

gpuserve_status gsv_encode_embed(const struct gsv_net *net, struct gpuserve_stream *stream,
                                 const struct gpuserve_batch *batch,
                                 const struct gsv_activations *at)
{
    const struct gsv_pass pass = { net, stream, batch, at };
    const struct gsv_spec *spec = net->spec;
    const struct gpuserve_linear *reader = gsv_linear_behind(net, -1);
    gpuserve_status st;

    gsv_begin_phase(net, GSV_PHASE_EMBED, -1);
    if (spec->projection >= 0 && spec->config.family->adds_after_projection)
        st = embed_words_projected(&pass, reader);
    else if (spec->projection >= 0)
        st = embed_projected(&pass);
    else if (at->adapter > 0 && spec->config.adapters.words)
        st = embed_adapted(&pass, gsv_is_post_norm(spec) ? reader : NULL);
    else
        st = embed(&pass, at->hidden, true, gsv_is_post_norm(spec) ? reader : NULL);
    if (st == GPUSERVE_OK && spec->convolution >= 0)
        st = gsv_run_convolution(net, stream, batch, at);
    if (st == GPUSERVE_OK)
        st = gsv_pass_mix(&pass, 0);
    if (st == GPUSERVE_OK && gsv_is_bottleneck(spec))
        return gsv_enter_bottleneck(&pass, 0);
    if (st == GPUSERVE_OK && !gsv_is_post_norm(spec))
        st = gsv_pass_hidden_norm(&pass, at->context, at->hidden, NULL, NULL,
                                  &spec->layers[0].before_attention, reader);
    return st;
}
