/*
 * steps.c - pooled rows: the modules on token vectors, pooling, the modules on pooled vectors.
 *
 * Token rows alternate between two buffers: the first module reads the encoder's output and writes
 * `context`, the next one `wide`. Pooled rows alternate between the buffers of gsv_exec, one linear
 * at a time.
 */
#include "lib/model/encoder/rows.h"

#define LAYER_NORM_EPS 1e-5f /* the default of torch.nn.LayerNorm, which the module uses */

/* ---------------------------------------------------------------------------------------- tokens
 */

void *gsv_token_input(const struct gsv_spec *spec, const struct gsv_activations *at)
{
    return spec->mix >= 0 ? at->mix : at->hidden;
}

/* The buffer that token step `i` writes. */
static void *token_buffer(const struct gsv_activations *at, int32_t i)
{
    return i % 2 == 0 ? at->context : at->wide;
}

void *gsv_token_output(const struct gsv_spec *spec, const struct gsv_activations *at)
{
    return spec->token_steps.n > 0 ? token_buffer(at, spec->token_steps.n - 1)
                                   : gsv_token_input(spec, at);
}

gpuserve_status gsv_token_linear(const struct gsv_rows *rows, int32_t item_index, const void *in,
                                 void *out, int32_t out_ld, const void *residual)
{
    const struct gsv_net *net = rows->work->net;
    const struct gsv_weight *item = &net->spec->items[item_index];
    const struct gpuserve_op_linear op = {
        .weight = net->linears[item_index],
        .in = in,
        .out = out,
        .residual = residual,
        .rows = rows->batch->n_rows,
        .in_ld = item->k,
        .out_ld = out_ld,
        .activation = item->activation,
    };

    return net->backend->linear(rows->work->stream, &op);
}

gpuserve_status gsv_rows_tokens(struct gsv_rows *rows)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    gpuserve_status st = GPUSERVE_OK;

    gsv_begin_phase(rows->work->net, GSV_PHASE_HEAD, -1);
    rows->tokens = gsv_token_input(spec, &rows->work->at);
    rows->token_columns = spec->config.hidden_size;
    for (int32_t i = 0; i < spec->token_steps.n && st == GPUSERVE_OK; i++) {
        const struct gsv_row_step *step = &spec->token_steps.at[i];
        void *out = token_buffer(&rows->work->at, i);
        const void *residual = step->adds_input ? rows->tokens : NULL;

        if (step->residual >= 0) {
            st = gsv_token_linear(rows, step->residual, rows->tokens, out, step->columns, NULL);
            residual = out;
        }
        if (st == GPUSERVE_OK)
            st = gsv_token_linear(rows, step->linear, rows->tokens, out, step->columns, residual);
        rows->tokens = out;
        rows->token_columns = step->columns;
    }
    return st;
}

/* --------------------------------------------------------------------------------------- pooling
 */

gpuserve_status gsv_rows_pool(struct gsv_rows *rows, const int32_t poolings[], int32_t n_poolings,
                              int32_t columns, bool normalize)
{
    const struct gsv_net *net = rows->work->net;
    const int32_t hidden = rows->token_columns;
    struct gpuserve_batch parts = *rows->batch;
    gpuserve_status st = GPUSERVE_OK;

    gsv_begin_phase(net, GSV_PHASE_POOL, -1);
    rows->data = rows->work->pooled[0];
    rows->columns = columns;
    rows->ld = rows->skips ? 2 * columns : columns;
    parts.n_sequences = 2 * parts.n_sequences - 1;
    parts.cu_seqlens = (const int32_t *)(void *)(rows->work->memory + rows->work->layout.parts);
    for (int32_t i = 0; i < n_poolings && i * hidden < columns && st == GPUSERVE_OK; i++) {
        const int32_t left = columns - i * hidden;
        const bool in_parts = rows->skips && poolings[i] != GPUSERVE_POOL_CLS;
        const struct gsv_config *config = &net->spec->config;
        /* The last token of sentence-transformers' word modules is that of Pooling. */
        const bool has_ends = poolings[i] == GPUSERVE_POOL_LAST && gsv_is_recurrent(config) &&
                              config->recurrent.directions == 2 && !config->recurrent.is_words;
        struct gpuserve_op_pool op = {
            .batch = in_parts ? &parts : rows->batch,
            .in = rows->tokens,
            .out = rows->data + (size_t)i * (size_t)hidden,
            .pooling = poolings[i],
            .hidden = hidden,
            .columns = left < hidden ? left : hidden,
            .out_ld = in_parts ? columns : rows->ld,
            .normalize = normalize,
        };

        st = has_ends ? gsv_recurrent_pool_ends(rows, &op)
                      : net->backend->pool(rows->work->stream, &op);
    }
    gsv_begin_phase(net, GSV_PHASE_HEAD, -1);
    return st;
}

float *gsv_other_buffer(const struct gsv_rows *rows)
{
    struct gsv_exec *work = rows->work;

    return rows->data == work->pooled[0] ? work->pooled[1] : work->pooled[0];
}

/* `residual` is added to the output, or NULL; it may be the output. */
static gpuserve_status apply_linear(struct gsv_rows *rows, int32_t item_index, float *out,
                                    const float *residual)
{
    const struct gsv_net *net = rows->work->net;
    const struct gsv_weight *item = &net->spec->items[item_index];
    const bool follows = item->activation > GPUSERVE_ACT_QUICK_GELU; /* not part of a product */
    const struct gpuserve_op_linear op = {
        .weight = net->linears[item_index],
        .in = rows->data,
        .out = out,
        .residual = residual,
        .rows = rows->batch->n_sequences,
        .in_ld = rows->ld,
        .out_ld = item->n,
        .activation = follows ? GPUSERVE_ACT_NONE : item->activation,
    };

    return net->backend->linear(rows->work->stream, &op);
}

gpuserve_status gsv_rows_layer_to(struct gsv_rows *rows, int32_t item_index, float *out)
{
    const struct gsv_weight *item = &rows->work->net->spec->items[item_index];
    const gpuserve_status st = apply_linear(rows, item_index, out, NULL);

    rows->data = out;
    rows->columns = rows->ld = item->n;
    return st;
}

gpuserve_status gsv_rows_layer(struct gsv_rows *rows, int32_t item_index)
{
    return gsv_rows_layer_to(rows, item_index, gsv_other_buffer(rows));
}

/* Normalize or activate the first `columns` columns of each row, in place. */
gpuserve_status gsv_rows_activate(const struct gsv_rows *rows, int32_t columns, int32_t activation)
{
    const struct gpuserve_backend *backend = rows->work->net->backend;
    const struct gpuserve_op_rows op = {
        .data = rows->data,
        .rows = rows->batch->n_sequences,
        .cols = columns,
        .ld = rows->ld,
        .activation = activation,
    };

    return activation == GPUSERVE_ACT_NONE ? backend->normalize(rows->work->stream, &op)
                                           : backend->activate(rows->work->stream, &op);
}

gpuserve_status gsv_rows_norm(const struct gsv_rows *rows, const struct gsv_norm_items *norm,
                              float eps)
{
    const struct gsv_net *net = rows->work->net;
    const struct gpuserve_op_rows op = {
        .data = rows->data,
        .rows = rows->batch->n_sequences,
        .cols = rows->columns,
        .ld = rows->ld,
        .activation = GPUSERVE_ACT_LAYERNORM,
        .eps = eps,
        .gamma = gsv_net_address(net, norm->gamma),
        .beta = gsv_net_address(net, norm->beta),
    };

    return norm->gamma < 0 ? GPUSERVE_OK : net->backend->activate(rows->work->stream, &op);
}

/* ----------------------------------------------------------------------------------------- steps
 */

int32_t gsv_count_dense(const struct gsv_spec *spec, int32_t route)
{
    int32_t n = 0;

    for (int32_t i = 0; i < spec->pooled_steps.n; i++)
        n += spec->pooled_steps.at[i].kind == GSV_STEP_DENSE &&
             gsv_takes_step(&spec->pooled_steps.at[i], route);
    return n;
}

static gpuserve_status apply_dense(struct gsv_rows *rows, const struct gsv_row_step *step)
{
    const int32_t activation = rows->work->net->spec->items[step->linear].activation;
    float *out = gsv_other_buffer(rows);
    const float *residual = step->adds_input ? rows->data : NULL;
    gpuserve_status st = GPUSERVE_OK;

    if (step->residual >= 0) {
        st = apply_linear(rows, step->residual, out, NULL);
        residual = out;
    }
    if (st == GPUSERVE_OK)
        st = apply_linear(rows, step->linear, out, residual);
    rows->data = out;
    rows->columns = rows->ld = step->columns;
    if (st == GPUSERVE_OK && activation > GPUSERVE_ACT_QUICK_GELU)
        st = gsv_rows_activate(rows, rows->columns, activation);
    return st;
}

static gpuserve_status apply_steps(struct gsv_rows *rows)
{
    const struct gsv_row_steps *steps = &rows->work->net->spec->pooled_steps;
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0; i < steps->n && st == GPUSERVE_OK; i++) {
        const struct gsv_row_step *step = &steps->at[i];

        if (!gsv_takes_step(step, rows->route))
            continue;
        if (step->kind == GSV_STEP_DENSE)
            st = apply_dense(rows, step);
        else if (step->kind == GSV_STEP_LAYER_NORM)
            st = gsv_rows_norm(rows, &step->norm, LAYER_NORM_EPS);
        else
            st = gsv_rows_activate(rows, rows->columns, GPUSERVE_ACT_NONE);
    }
    return st;
}

gpuserve_status gsv_rows_embed(struct gsv_rows *rows, int32_t dimensions, bool normalize)
{
    const struct gsv_spec *spec = rows->work->net->spec;
    const struct gsv_spec_facts *facts = &spec->facts;
    const bool has_steps = spec->pooled_steps.n > 0;
    const int32_t pooled = has_steps ? gsv_pooled_width(spec) : dimensions;
    const bool normalize_in_pool = normalize && !has_steps && facts->n_poolings == 1;
    gpuserve_status st = gsv_rows_tokens(rows);

    if (st == GPUSERVE_OK)
        st = gsv_rows_pool(rows, facts->poolings, facts->n_poolings, pooled, normalize_in_pool);
    if (st == GPUSERVE_OK)
        st = apply_steps(rows);
    if (st == GPUSERVE_OK && normalize && !normalize_in_pool)
        st = gsv_rows_activate(rows, dimensions, GPUSERVE_ACT_NONE);
    return st;
}
