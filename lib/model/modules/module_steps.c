/*
 * module_steps.c - reads the modules on token vectors and on pooled vectors: Dense, LayerNorm,
 * Normalize, and WeightedLayerPooling.
 *
 *   Dense            sizes, activation, residual; on "token_embeddings" or "sentence_embedding"
 *   LayerNorm        of pooled vectors
 *   Normalize        of pooled vectors, or of token vectors at the end (ColBERT)
 *   Dropout          no effect outside training
 *   MultiVectorMask  which tokens have a vector: late_interaction.c
 */
#include "lib/model/modules/modules.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/model/families/config.h"

#include <stdlib.h>
#include <string.h>

#define TOKENS "token_embeddings"
#define POOLED "sentence_embedding"

/* ---------------------------------------------------------------------------------------- Dense */

const char *gsv_class_name(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

static gpuserve_status dense_activation(int32_t *activation, const struct gsv_json_value *json,
                                        gpuserve_error *error)
{
    static const struct {
        const char *name;
        int32_t activation;
    } names[] = {
        { "Identity", GPUSERVE_ACT_NONE },   { "Tanh", GPUSERVE_ACT_TANH },
        { "ReLU", GPUSERVE_ACT_RELU },       { "GELU", GPUSERVE_ACT_GELU },
        { "SiLU", GPUSERVE_ACT_SILU },       { "Sigmoid", GPUSERVE_ACT_SIGMOID },
        { "Softmax", GPUSERVE_ACT_SOFTMAX },
    };
    const char *name = "Tanh"; /* the default of the class */
    const gpuserve_status st = gsv_json_string(json, "activation_function", "Dense", &name, error);

    if (st != GPUSERVE_OK)
        return st;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, gsv_class_name(name)) == 0) {
            *activation = names[i].activation;
            return GPUSERVE_OK;
        }
    }
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "Dense: activation_function '%.64s' is not supported", name);
}

gpuserve_status gsv_dense_parse(struct gsv_dense_spec *spec, const struct gsv_json_value *json,
                                gpuserve_error *error)
{
    int64_t in = 0, out = 0;
    gpuserve_status st =
        gsv_json_int(json, "in_features", "Dense", 1, GSV_MAX_WIDTH * 16, &in, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "out_features", "Dense", 1, GSV_MAX_WIDTH * 16, &out, error);
    if (st == GPUSERVE_OK && (in == 0 || out == 0))
        st = gsv_fail(error, GPUSERVE_E_FORMAT, "Dense: in_features or out_features is missing");
    spec->in_features = (int32_t)in;
    spec->out_features = (int32_t)out;
    spec->has_bias = true;
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "bias", "Dense", &spec->has_bias, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "use_residual", "Dense", &spec->has_residual, error);
    if (st == GPUSERVE_OK)
        st = dense_activation(&spec->activation, json, error);
    if (st == GPUSERVE_OK && spec->has_residual && spec->activation > GPUSERVE_ACT_QUICK_GELU)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "Dense: use_residual with Sigmoid or Softmax is not supported");
    return st;
}

/* ---------------------------------------------------------------------------------------- places
 */

/* Read the rows that a Dense or Normalize module reads and writes; *by_token is the default. */
static gpuserve_status parse_target(bool *by_token, const struct gsv_json_value *json,
                                    const char *name, gpuserve_error *error)
{
    const char *in = *by_token ? TOKENS : POOLED;
    const char *out;
    gpuserve_status st = gsv_json_string(json, "module_input_name", name, &in, error);

    out = in;
    if (st == GPUSERVE_OK)
        st = gsv_json_string(json, "module_output_name", name, &out, error);
    if (st != GPUSERVE_OK)
        return st;
    *by_token = strcmp(in, TOKENS) == 0;
    if ((*by_token || strcmp(in, POOLED) == 0) && strcmp(in, out) == 0)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: module_input_name '%.64s' and module_output_name '%.64s' are not "
                    "supported, only both '" TOKENS "' or both '" POOLED "' are",
                    name, in, out);
}

/* True if pooled vectors exist at this place of the chain. */
static bool is_pooled(const struct gsv_modules *modules)
{
    return modules->n_poolings > 0;
}

static gpuserve_status refuse_target(const char *name, bool by_token, gpuserve_error *error)
{
    if (by_token)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: the module is on token vectors after Pooling or after a Normalize of "
                        "token vectors, which is not supported",
                        name);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: the module is on pooled vectors, but no Pooling module precedes it", name);
}

/* ----------------------------------------------------------------------------------------- steps
 */

static gpuserve_status append_step(const struct gsv_module_reader *r,
                                   const struct gsv_module_step *step, const char *folder)
{
    struct gsv_modules *modules = r->modules;
    struct gsv_module_step *to = &modules->steps[modules->n_steps];

    if (modules->n_steps == GSV_MAX_STEPS)
        return gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED,
                        "%s: more than %d Dense, LayerNorm and Normalize modules",
                        gsv_dir_path(r->dir), GSV_MAX_STEPS);
    *to = *step;
    if (folder)
        to->folder = gsv_copy_text(folder, strlen(folder));
    if (folder && !to->folder)
        return gsv_modules_nomem(r->dir, r->error);
    modules->n_steps++;
    return GPUSERVE_OK;
}

static gpuserve_status parse_dense_step(const struct gsv_module_reader *r,
                                        struct gsv_module_step *step,
                                        const struct gsv_json_value *json)
{
    gpuserve_status st = gsv_dense_parse(&step->dense, json, r->error);

    if (st == GPUSERVE_OK)
        st = parse_target(&step->by_token, json, "Dense", r->error);
    if (st != GPUSERVE_OK)
        return st;
    if (step->by_token == is_pooled(r->modules) ||
        (step->by_token && r->modules->normalizes_tokens))
        return refuse_target("Dense", step->by_token, r->error);
    if (step->by_token && step->dense.activation > GPUSERVE_ACT_QUICK_GELU)
        return gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED,
                        "Dense: Sigmoid and Softmax on token vectors are not supported");
    return GPUSERVE_OK;
}

static gpuserve_status add_dense(const struct gsv_module_reader *r, const char *folder,
                                 int32_t route)
{
    struct gsv_module_step step = { .kind = GSV_STEP_DENSE,
                                    .by_token = !is_pooled(r->modules),
                                    .route = route };
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_json(&json, r->dir, folder, "config.json", r->error);

    if (st != GPUSERVE_OK)
        return st;
    st = parse_dense_step(r, &step, json);
    gsv_json_free(&json);
    if (st != GPUSERVE_OK)
        return gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
    return append_step(r, &step, folder);
}

static gpuserve_status add_layer_norm(const struct gsv_module_reader *r, const char *folder,
                                      int32_t route)
{
    struct gsv_module_step step = { .kind = GSV_STEP_LAYER_NORM, .route = route };
    struct gsv_json_value *json;
    int64_t size = 0;
    gpuserve_status st = gsv_read_json(&json, r->dir, folder, "config.json", r->error);

    if (st != GPUSERVE_OK)
        return st;
    st = gsv_json_int(json, "dimension", "LayerNorm", 1, GSV_MAX_WIDTH * 16, &size, r->error);
    gsv_json_free(&json);
    if (st == GPUSERVE_OK && size == 0)
        st = gsv_fail(r->error, GPUSERVE_E_FORMAT, "LayerNorm: dimension is missing");
    if (st == GPUSERVE_OK && !is_pooled(r->modules))
        st = refuse_target("LayerNorm", false, r->error);
    if (st != GPUSERVE_OK)
        return gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
    step.dense.in_features = step.dense.out_features = (int32_t)size;
    return append_step(r, &step, folder);
}

/* Older releases saved no file for this module. */
static gpuserve_status add_normalize(const struct gsv_module_reader *r, const char *folder,
                                     int32_t route)
{
    struct gsv_module_step step = { .kind = GSV_STEP_NORMALIZE, .route = route };
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_optional_json(&json, r->dir, folder, "config.json", r->error);

    if (st != GPUSERVE_OK)
        return st;
    if (json)
        st = parse_target(&step.by_token, json, "Normalize", r->error);
    gsv_json_free(&json);
    if (st == GPUSERVE_OK && step.by_token == is_pooled(r->modules))
        st = refuse_target("Normalize", step.by_token, r->error);
    if (st != GPUSERVE_OK)
        return gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
    if (!step.by_token)
        return append_step(r, &step, NULL);
    r->modules->normalizes_tokens = true;
    return GPUSERVE_OK;
}

gpuserve_status gsv_step_add(const struct gsv_module_reader *r, const char *name, bool is_pylate,
                             const char *folder, int32_t route, bool *known)
{
    struct gsv_modules *modules = r->modules;

    *known = !modules->is_sparse && (modules->transformer || strcmp(name, "Dropout") == 0);
    if (strcmp(name, "Dropout") == 0) {
        *known = true;
        return GPUSERVE_OK;
    }
    if (*known && strcmp(name, "Dense") == 0) {
        const gpuserve_status st = add_dense(r, folder, route);

        if (st == GPUSERVE_OK && is_pylate && !is_pooled(modules))
            modules->normalizes_tokens = true; /* PyLate normalizes without a module */
        return st;
    }
    if (*known && strcmp(name, "LayerNorm") == 0)
        return add_layer_norm(r, folder, route);
    if (*known && strcmp(name, "Normalize") == 0)
        return add_normalize(r, folder, route);
    if (*known && strcmp(name, "MultiVectorMask") == 0 && !is_pooled(modules)) {
        modules->by_token = true;
        return gsv_late_mask_add(r, folder);
    }
    *known = false;
    return GPUSERVE_OK;
}

gpuserve_status gsv_steps_finish(const struct gsv_module_reader *r)
{
    struct gsv_modules *modules = r->modules;

    /* A run may leave the last normalization out, or apply it after the cut to fewer columns. */
    while (modules->n_steps > 0 && modules->steps[modules->n_steps - 1].route < 0 &&
           modules->steps[modules->n_steps - 1].kind == GSV_STEP_NORMALIZE) {
        modules->normalize = true;
        modules->n_steps--;
    }
    if (is_pooled(modules)) {
        if (!modules->by_token && !modules->normalizes_tokens)
            return GPUSERVE_OK;
        return gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED,
                        "%s/modules.json: a Normalize module on token vectors, or MultiVectorMask, "
                        "before Pooling is not supported",
                        gsv_dir_path(r->dir));
    }
    modules->by_token = modules->by_token || modules->normalizes_tokens || modules->n_steps > 0;
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------- WeightedLayerPooling */

static gpuserve_status parse_layers(struct gsv_layer_weights *weights,
                                    const struct gsv_json_value *json, gpuserve_error *error)
{
    int64_t first = 4, layers = 12; /* the defaults of the class */
    gpuserve_status st =
        gsv_json_int(json, "layer_start", "WeightedLayerPooling", 0, GSV_MAX_LAYERS, &first, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "num_hidden_layers", "WeightedLayerPooling", 1, GSV_MAX_LAYERS,
                          &layers, error);
    if (st == GPUSERVE_OK && first > layers)
        st = gsv_fail(error, GPUSERVE_E_FORMAT,
                      "WeightedLayerPooling: layer_start is %lld, num_hidden_layers only %lld",
                      (long long)first, (long long)layers);
    weights->first = (int32_t)first;
    weights->n = (int32_t)(layers + 1 - first);
    return st;
}

gpuserve_status gsv_layer_weights_add(const struct gsv_module_reader *r, const char *folder)
{
    struct gsv_layer_weights *weights = &r->modules->layer_weights;
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_json(&json, r->dir, folder, "config.json", r->error);

    if (st != GPUSERVE_OK)
        return st;
    st = parse_layers(weights, json, r->error);
    gsv_json_free(&json);
    if (st != GPUSERVE_OK)
        return gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
    weights->folder = gsv_copy_text(folder, strlen(folder));
    return weights->folder ? GPUSERVE_OK : gsv_modules_nomem(r->dir, r->error);
}
