/*
 * step_map.c - finds the weights of the modules between the encoder and the output: those on token
 * vectors, then those on pooled vectors.
 */
#include "lib/model/weight_map.h"

#include "lib/base/error.h"

static struct gsv_row_step *append_step(struct gsv_row_steps *steps, enum gsv_row_step_kind kind,
                                        int32_t route, int32_t columns)
{
    struct gsv_row_step *step = &steps->at[steps->n++];

    *step = (struct gsv_row_step){ .kind = kind,
                                   .route = route,
                                   .columns = columns,
                                   .linear = -1,
                                   .residual = -1,
                                   .norm = { -1, -1 } };
    return step;
}

/* Products on token vectors have the activation type, those on pooled vectors are float32. */
static gpuserve_status add_dense(const struct gsv_collector *c,
                                 const struct gsv_module_step *module, struct gsv_row_step *step)
{
    const struct gsv_dense_spec *dense = &module->dense;
    const enum gsv_weight_kind kind =
        module->by_token ? GSV_ITEM_LINEAR_PLAIN : GSV_ITEM_LINEAR_EXACT;
    gpuserve_status st = GPUSERVE_OK;

    step->adds_input = dense->has_residual && dense->in_features == dense->out_features;
    if (step->adds_input && !module->by_token &&
        (c->spec->facts.skips_prompt || gsv_pools_before_end(c->spec, GPUSERVE_TASK_EMBED)))
        return gsv_fail(c->error, GPUSERVE_E_UNSUPPORTED,
                        "%s: use_residual in config.json next to it is not supported after a "
                        "Pooling module that leaves out tokens",
                        gsv_weight_file_name(c->from->files[0]));
    if (dense->has_residual && !step->adds_input) {
        step->residual = (int32_t)c->spec->n_items;
        st = gsv_add_linear(c, kind, "residual", GSV_ABSENT, dense->out_features,
                            dense->in_features, GPUSERVE_ACT_NONE);
    }
    step->linear = (int32_t)c->spec->n_items;
    return st == GPUSERVE_OK
               ? gsv_add_linear(c, kind, "linear", dense->has_bias ? GSV_REQUIRED : GSV_ABSENT,
                                dense->out_features, dense->in_features, dense->activation)
               : st;
}

static gpuserve_status add_layer_norm(const struct gsv_collector *c, int32_t width,
                                      struct gsv_norm_items *norm)
{
    const gpuserve_status st =
        gsv_add_vector(c, "norm", ".weight", NULL, width, GSV_REQUIRED, &norm->gamma);

    return st == GPUSERVE_OK
               ? gsv_add_vector(c, "norm", ".bias", NULL, width, GSV_REQUIRED, &norm->beta)
               : st;
}

/* Add the modules of one place, in order. */
static gpuserve_status add_modules(struct gsv_spec *spec, bool by_token,
                                   struct gsv_row_steps *steps, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (int32_t i = 0; i < spec->modules.n_steps && st == GPUSERVE_OK; i++) {
        const struct gsv_module_step *module = &spec->modules.steps[i];
        const struct gsv_collector c = { spec, &spec->step_weights[i], "", error };
        struct gsv_row_step *step;

        if (module->by_token != by_token)
            continue;
        step = append_step(steps, module->kind, module->route, module->dense.out_features);
        if (module->kind == GSV_STEP_DENSE)
            st = add_dense(&c, module, step);
        else if (module->kind == GSV_STEP_LAYER_NORM)
            st = add_layer_norm(&c, module->dense.in_features, &step->norm);
    }
    return st;
}

/* CLIP's projection after pooling. */
static gpuserve_status add_text_projection(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_collector c = { spec, &spec->weights, "", error };
    const int32_t width = spec->config.projection_dim;

    if (width == 0)
        return GPUSERVE_OK;
    append_step(&spec->pooled_steps, GSV_STEP_DENSE, -1, width)->linear = (int32_t)spec->n_items;
    return gsv_add_linear(&c, GSV_ITEM_LINEAR_EXACT, "text_projection", GSV_ABSENT, width,
                          spec->config.hidden_size, GPUSERVE_ACT_NONE);
}

/* The projection of token vectors that is stored with the encoder: that of ColBERT, or that of an
 * entity head with rows of another width. */
static gpuserve_status add_token_projection(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_collector c = { spec, &spec->weights, "", error };
    const bool is_entity = spec->facts.entity.width > 0;
    const int32_t width = spec->facts.token_dim;

    if (is_entity ? width == spec->config.hidden_size
                  : !spec->config.is_late || spec->modules.present)
        return GPUSERVE_OK;
    append_step(&spec->token_steps, GSV_STEP_DENSE, -1, width)->linear = (int32_t)spec->n_items;
    return gsv_add_linear(
        &c, GSV_ITEM_LINEAR_PLAIN, is_entity ? "token_rep_layer.projection" : "linear",
        is_entity ? GSV_REQUIRED : GSV_ABSENT, width, spec->config.hidden_size, GPUSERVE_ACT_NONE);
}

/* One weight for the embeddings and one for each layer, from the first one on. As in
 * sentence-transformers, the module has no effect unless config.json asks for all layers. */
static gpuserve_status add_layer_weights(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_layer_weights *weights = &spec->modules.layer_weights;
    const struct gsv_collector c = { spec, &spec->layer_weights, "", error };
    gpuserve_status st;

    if (!weights->folder || !spec->config.outputs_layers)
        return GPUSERVE_OK;
    if (spec->config.n_decoder_layers > 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "WeightedLayerPooling is not supported for a model with a decoder");
    if (weights->first + weights->n != spec->config.n_layers + 1)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: num_hidden_layers in config.json next to it is %d, the model has %d "
                        "layers",
                        gsv_weight_file_name(spec->layer_weights.files[0]),
                        weights->first + weights->n - 1, spec->config.n_layers);
    st = gsv_add_vector(&c, "layer_weights", "", NULL, weights->n, GSV_REQUIRED, &spec->mix);
    if (st != GPUSERVE_OK)
        return st;
    spec->items[spec->mix].sums_to_one = true;
    spec->mix_first = weights->first;
    return GPUSERVE_OK;
}

gpuserve_status gsv_collect_steps(struct gsv_spec *spec, gpuserve_error *error)
{
    gpuserve_status st = add_layer_weights(spec, error);

    if (st == GPUSERVE_OK)
        st = add_token_projection(spec, error);
    if (st == GPUSERVE_OK)
        st = add_modules(spec, true, &spec->token_steps, error);
    if (st == GPUSERVE_OK)
        st = gsv_collect_late_heads(spec, error);
    spec->first_dense = (int32_t)spec->n_items;
    if (st == GPUSERVE_OK)
        st = add_text_projection(spec, error);
    return st == GPUSERVE_OK ? add_modules(spec, false, &spec->pooled_steps, error) : st;
}
