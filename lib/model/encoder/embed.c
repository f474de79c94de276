/*
 * embed.c - the embeddings of a batch: tables, projection, norm.
 */
#include "lib/model/encoder/rows.h"
#include "lib/model/encoder/pass.h"
#include "lib/model/weights/adapters.h"

/* `adapter` is that of all rows; 0: none. */
static gpuserve_status embed(const struct gsv_pass *pass, int32_t adapter, void *out,
                             bool normalize, const struct gpuserve_linear *reader)
{
    const struct gsv_spec *spec = pass->net->spec;
    const bool has_norm = normalize && spec->embedding_norm.gamma >= 0;
    const struct gpuserve_op_embed op = {
        .batch = pass->batch,
        .out = out,
        .word = gsv_net_address(pass->net, spec->word),
        .position = gsv_net_address(pass->net, spec->position),
        .type = gsv_net_address(pass->net, gsv_adapter_types(spec, adapter)),
        .gamma = has_norm ? gsv_net_address(pass->net, spec->embedding_norm.gamma) : NULL,
        .beta = has_norm ? gsv_net_address(pass->net, spec->embedding_norm.beta) : NULL,
        .eps = spec->embedding_norm.eps,
        .hidden = spec->config.embedding_size,
        .norm = has_norm ? spec->embedding_norm.kind : GPUSERVE_NORM_NONE,
        .word_scale = spec->config.word_scale,
        .table_dtype = pass->net->dtype,
        .reader = reader,
    };

    return pass->net->backend->embed(pass->stream, &op);
}

/* Embeddings narrower than the layers: embed -> projection, with the norm before it or after it. */
static gpuserve_status embed_projected(const struct gsv_pass *pass)
{
    const struct gsv_spec *spec = pass->net->spec;
    const bool after = spec->config.family->norm_after_projection;
    gpuserve_status st = embed(pass, 0, pass->at->wide, !after, NULL);

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
        .table_dtype = pass->net->dtype,
    };
    const struct gpuserve_op_embed words = {
        .batch = spec->config.is_trigram ? &trigrams : pass->batch,
        .out = at->wide,
        .word = gsv_net_address(pass->net, spec->word),
        .hidden = spec->config.embedding_size,
        .norm = GPUSERVE_NORM_NONE,
        .table_dtype = pass->net->dtype,
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
static gpuserve_status embed_adapted(const struct gsv_pass *pass, int32_t adapter, void *out,
                                     const struct gpuserve_linear *reader)
{
    const struct gsv_spec *spec = pass->net->spec;
    const int32_t item = gsv_adapter_item(spec->word, adapter);
    const int32_t rank = spec->items[item].k;
    const struct gpuserve_op_embed down = {
        .batch = pass->batch,
        .out = pass->at->low,
        .word = gsv_net_address(pass->net, item),
        .hidden = rank,
        .norm = GPUSERVE_NORM_NONE,
        .table_dtype = pass->net->dtype,
    };
    const struct gpuserve_op_linear up = {
        .weight = pass->net->linears[item + 1],
        .in = pass->at->low,
        .out = out,
        .residual = out,
        .rows = pass->batch->n_rows,
        .in_ld = rank,
        .out_ld = spec->config.hidden_size,
    };
    gpuserve_status st = embed(pass, adapter, out, false, NULL);

    if (st == GPUSERVE_OK)
        st = pass->net->backend->embed(pass->stream, &down);
    if (st == GPUSERVE_OK)
        st = pass->net->backend->linear(pass->stream, &up);
    return st == GPUSERVE_OK
               ? gsv_pass_hidden_norm(pass, out, out, NULL, NULL, &spec->embedding_norm, reader)
               : st;
}

/* The embeddings of rows that all have `adapter`. */
static gpuserve_status embed_rows(const struct gsv_pass *pass, int32_t adapter, void *out,
                                  const struct gpuserve_linear *reader)
{
    return adapter > 0 && pass->net->spec->config.adapters.words
               ? embed_adapted(pass, adapter, out, reader)
               : embed(pass, adapter, out, true, reader);
}

/* Range by range, if the adapters change the tables. The reader reads all rows, so no range has
 * one. */
static gpuserve_status embed_ranges(const struct gsv_pass *pass,
                                    const struct gpuserve_linear *reader)
{
    const struct gsv_config *config = &pass->net->spec->config;
    const struct gsv_activations *at = pass->at;
    gpuserve_status st = GPUSERVE_OK;

    if (at->n_ranges < 2 || (!config->adapters.words && !config->adapters.types))
        return embed_rows(pass, at->n_ranges > 0 ? at->ranges[0].adapter : 0, at->hidden, reader);
    for (int32_t i = 0; i < at->n_ranges && st == GPUSERVE_OK; i++) {
        const struct gsv_adapter_rows rows = gsv_rows_of_range(pass, i);
        struct gpuserve_batch batch = *pass->batch;
        const struct gsv_pass range = { pass->net, pass->stream, &batch, at };

        batch.ids += rows.first;
        batch.type_ids += rows.first;
        batch.positions += rows.first;
        batch.n_rows = rows.n;
        st = embed_rows(&range, rows.adapter,
                        gsv_row_at(pass->net, at->hidden, rows.first, config->hidden_size), NULL);
    }
    return st;
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
    else
        st = embed_ranges(&pass, gsv_is_post_norm(spec) ? reader : NULL);
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
