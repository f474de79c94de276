/*
 * modules.c - reads the sentence-transformers modules around a transformer.
 *
 *   modules.json                        the chain: Transformer, or modules of word_modules.c, then
 *                                       modules of output_modules.c, module_steps.c and router.c
 *   sentence_bert_config.json           max_seq_length, which overrides tokenizer.json's limit;
 *                                       do_lower_case
 *   config_sentence_transformers.json   prompts.c, late_interaction.c
 *
 * A module is identified by the last word of its Python class, since the path changed between
 * releases ("sentence_transformers.models.Pooling", later
 * "sentence_transformers.sentence_transformer.modules.pooling.Pooling").
 */
#include "lib/model/modules/modules.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/model/formats/formats.h"
#include "lib/model/formats/lora.h"

#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS (1 << 20)

/* -------------------------------------------------------------------------------------- modules */

gpuserve_status gsv_modules_nomem(const struct gsv_dir *dir, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
}

static gpuserve_status add_transformer(struct gsv_modules *modules, const struct gsv_dir *dir,
                                       const char *folder, gpuserve_error *error)
{
    if (modules->transformer)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s/modules.json: two Transformer modules",
                        gsv_dir_path(dir));
    modules->transformer = gsv_copy_text(folder, strlen(folder));
    return modules->transformer ? GPUSERVE_OK : gsv_modules_nomem(dir, error);
}

/* A table of token vectors, whose mean is the embedding. */
static gpuserve_status add_static(struct gsv_modules *modules, const struct gsv_dir *dir,
                                  const char *folder, gpuserve_error *error)
{
    modules->is_static = true;
    modules->poolings[0] = GPUSERVE_POOL_MEAN;
    modules->n_poolings = 1;
    return add_transformer(modules, dir, folder, error);
}

/* Add a module of the encoder. *known is false if it is none, or may not be here. */
static gpuserve_status add_encoder_module(const struct gsv_module_reader *r, const char *name,
                                          const char *folder, bool *known)
{
    struct gsv_modules *modules = r->modules;
    const bool may_pool = modules->n_poolings == 0 && !modules->is_sparse;

    *known = true;
    if (strcmp(name, "Transformer") == 0 || strcmp(name, "MLMTransformer") == 0)
        return add_transformer(modules, r->dir, folder, r->error);
    if (strcmp(name, "StaticEmbedding") == 0 && !modules->transformer)
        return add_static(modules, r->dir, folder, r->error);
    if (strcmp(name, "WordEmbeddings") == 0 && !modules->transformer) {
        const gpuserve_status st = add_transformer(modules, r->dir, folder, r->error);

        return st == GPUSERVE_OK ? gsv_word_embeddings_add(r, folder) : st;
    }
    if (strcmp(name, "LSTM") == 0 && may_pool && modules->words.present && !modules->words.folder &&
        modules->n_steps == 0)
        return gsv_lstm_add(r, folder);
    if (strcmp(name, "Pooling") == 0 && may_pool)
        return gsv_pooling_add(r, folder);
    if (strcmp(name, "SpladePooling") == 0 && may_pool && modules->n_steps == 0)
        return gsv_splade_add(r, folder);
    if (strcmp(name, "WeightedLayerPooling") == 0 && may_pool && modules->transformer &&
        !modules->words.present && !modules->layer_weights.folder && modules->n_steps == 0)
        return gsv_layer_weights_add(r, folder);
    if (strcmp(name, "Router") == 0)
        return gsv_router_add(r, folder, "router_config.json");
    if (strcmp(name, "Asym") == 0)
        return gsv_router_add(r, folder, "config.json");
    *known = false;
    return GPUSERVE_OK;
}

static gpuserve_status add_module(const struct gsv_module_reader *r,
                                  const struct gsv_json_value *module)
{
    const char *type = NULL, *folder = "";
    const char *name;
    bool known = false, is_pylate, is_ours;
    gpuserve_status st = gsv_json_string(module, "type", "modules.json", &type, r->error);

    if (st == GPUSERVE_OK)
        st = gsv_json_string(module, "path", "modules.json", &folder, r->error);
    if (st != GPUSERVE_OK)
        return st;
    if (!type)
        return gsv_fail(r->error, GPUSERVE_E_FORMAT, "%s/modules.json: a module has no \"type\"",
                        gsv_dir_path(r->dir));
    name = gsv_class_name(type);
    if (strcmp(type, "custom_st.Transformer") == 0) /* Jina: chooses the adapter of a text */
        return add_transformer(r->modules, r->dir, folder, r->error);
    folder = strcmp(folder, ".") == 0 ? "" : folder;
    is_pylate = strncmp(type, "pylate.", 7) == 0;
    is_ours = is_pylate || strncmp(type, "sentence_transformers.", 22) == 0;
    if (is_ours && strcmp(name, "LogitScore") == 0 && r->modules->n_poolings == 0 &&
        !r->modules->is_sparse)
        return gsv_logit_score_add(r, folder);
    if (is_ours)
        st = add_encoder_module(r, name, folder, &known);
    if (st == GPUSERVE_OK && !known && is_ours)
        st = gsv_step_add(r, name, is_pylate, folder, -1, &known);
    if (st != GPUSERVE_OK || known)
        return st;
    st = gsv_fail(r->error, GPUSERVE_E_UNSUPPORTED,
                  "%s/modules.json: module '%.128s' is not supported at this position",
                  gsv_dir_path(r->dir), type);
    return gsv_hint(
        r->error, st,
        "supported: Transformer, StaticEmbedding, WordEmbeddings or WordEmbeddings and LSTM; "
        "WeightedLayerPooling, Pooling, then "
        "Dense, LayerNorm, Normalize, Dropout and Router; MLMTransformer and "
        "SpladePooling; Transformer and LogitScore; Dense, MultiVectorMask and Normalize on token "
        "vectors");
}

static gpuserve_status add_modules(struct gsv_modules *modules, const struct gsv_dir *dir,
                                   const struct gsv_json_value *chain, gpuserve_error *error)
{
    const struct gsv_module_reader r = { modules, dir, error };
    gpuserve_status st = GPUSERVE_OK;

    if (gsv_json_count(chain) == 0 || gsv_json_count(chain) > 64)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s/modules.json: %zu modules, expected 1 to 64",
                        gsv_dir_path(dir), gsv_json_count(chain));
    for (size_t i = 0; i < gsv_json_count(chain) && st == GPUSERVE_OK; i++)
        st = add_module(&r, gsv_json_at(chain, i));
    modules->is_static = modules->is_static || (modules->words.present && !modules->words.folder);
    /* A cross-encoder has a Transformer alone, like a directory without modules.json. */
    modules->is_alone = gsv_json_count(chain) == 1 && modules->transformer && !modules->is_static;
    modules->present = !modules->is_alone;
    if (st == GPUSERVE_OK)
        st = gsv_steps_finish(&r);
    /* Dense vectors of these models, on request, are means. */
    if (modules->is_sparse || modules->by_token || modules->scores_answers || modules->is_alone) {
        modules->poolings[0] = GPUSERVE_POOL_MEAN;
        modules->n_poolings = 1;
    }
    if (st == GPUSERVE_OK && (!modules->transformer || modules->n_poolings == 0))
        st = gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "%s/modules.json: the %s module is missing; only Transformer models are supported",
            gsv_dir_path(dir), modules->transformer ? "Pooling" : "Transformer");
    return st;
}

static gpuserve_status set_bare(struct gsv_modules *modules, const struct gsv_dir *dir,
                                gpuserve_error *error)
{
    modules->transformer = gsv_copy_text("", 0);
    modules->poolings[0] = GPUSERVE_POOL_MEAN;
    modules->n_poolings = 1;
    return modules->transformer ? GPUSERVE_OK : gsv_modules_nomem(dir, error);
}

static gpuserve_status read_chain(struct gsv_modules *modules, const struct gsv_dir *dir,
                                  gpuserve_error *error)
{
    struct gsv_json_value *chain;
    const char *class_end;
    gpuserve_status st = gsv_lora_class(&class_end, dir, error);

    if (st != GPUSERVE_OK)
        return st;
    /* A classifier's adapter on a base for embeddings has no use for the modules of the base. */
    if (!gsv_dir_has(dir, "modules.json") || (class_end && !gsv_dir_has_own(dir, "modules.json")))
        return set_bare(modules, dir, error);
    st = gsv_read_json_array(&chain, dir, "modules.json", error);
    if (st != GPUSERVE_OK)
        return st;
    st = add_modules(modules, dir, chain, error);
    gsv_json_free(&chain);
    return st;
}

/* ----------------------------------------------------------------------------------- max_tokens */

/* The same file has a different name for each transformer type. */
static const char *const limit_files[] = {
    "sentence_bert_config.json",        "sentence_roberta_config.json",
    "sentence_distilbert_config.json",  "sentence_camembert_config.json",
    "sentence_xlm-roberta_config.json", "sentence_mpnet_config.json",
};

static gpuserve_status read_limit_file(struct gsv_modules *modules, const struct gsv_dir *dir,
                                       const char *name, bool *found, gpuserve_error *error)
{
    struct gsv_json_value *json;
    int64_t limit = 0;
    gpuserve_status st = gsv_read_optional_json(&json, dir, modules->transformer, name, error);

    if (st != GPUSERVE_OK || !json)
        return st;
    *found = true;
    st = gsv_json_int(json, "max_seq_length", name, 1, MAX_TOKENS, &limit, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "do_lower_case", name, &modules->do_lower_case, error);
    gsv_json_free(&json);
    modules->max_tokens = (int32_t)limit;
    return st;
}

/* Read the tokenizer's limit, used if no module has one. Values above MAX_TOKENS (1e30) mean no
 * limit. */
static gpuserve_status read_tokenizer_limit(struct gsv_modules *modules, const struct gsv_dir *dir,
                                            gpuserve_error *error)
{
    struct gsv_json_value *json;
    double limit = 0;
    gpuserve_status st =
        gsv_read_optional_json(&json, dir, modules->transformer, "tokenizer_config.json", error);

    if (st != GPUSERVE_OK || !json)
        return st;
    st =
        gsv_json_double(json, "model_max_length", "tokenizer_config.json", 1, 1e300, &limit, error);
    gsv_json_free(&json);
    if (limit <= MAX_TOKENS)
        modules->max_tokens = (int32_t)limit;
    return st;
}

static gpuserve_status read_limit(struct gsv_modules *modules, const struct gsv_dir *dir,
                                  gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;
    bool found = false;

    for (size_t i = 0; i < sizeof(limit_files) / sizeof(limit_files[0]) && !found; i++) {
        st = read_limit_file(modules, dir, limit_files[i], &found, error);
        if (st != GPUSERVE_OK)
            return st;
    }
    return modules->max_tokens ? st : read_tokenizer_limit(modules, dir, error);
}

/* -------------------------------------------------------------------------------------- GGUF */

static gpuserve_status add_gguf_dense(struct gsv_modules *modules, const struct gsv_dir *dir,
                                      const struct gsv_gguf_dense *dense, gpuserve_error *error)
{
    struct gsv_module_step *step = &modules->steps[modules->n_steps];

    if (dense->in > MAX_TOKENS || dense->out > MAX_TOKENS)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s.weight' is too large",
                        gsv_dir_path(dir), dense->folder);
    step->kind = GSV_STEP_DENSE;
    step->route = -1;
    step->dense = (struct gsv_dense_spec){ .in_features = (int32_t)dense->in,
                                           .out_features = (int32_t)dense->out,
                                           .activation = GPUSERVE_ACT_NONE };
    step->folder = gsv_copy_text(dense->folder, strlen(dense->folder));
    if (!step->folder)
        return gsv_modules_nomem(dir, error);
    modules->n_steps++;
    return GPUSERVE_OK;
}

/* A GGUF file says the pooling and the token limit. It says nothing of normalization, prompts, or a
 * limit below the number of positions. */
static gpuserve_status take_gguf(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 const struct gsv_gguf_modules *from, gpuserve_error *error)
{
    gpuserve_status st = set_bare(modules, dir, error);

    if (from->pooling == GSV_GGUF_POOLING_CLS)
        modules->poolings[0] = GPUSERVE_POOL_CLS;
    else if (from->pooling == GSV_GGUF_POOLING_LAST)
        modules->poolings[0] = GPUSERVE_POOL_LAST;
    modules->max_tokens = from->max_tokens <= MAX_TOKENS ? (int32_t)from->max_tokens : 0;
    for (size_t i = 0; i < from->n_dense && st == GPUSERVE_OK; i++)
        st = add_gguf_dense(modules, dir, &from->dense[i], error);
    return st;
}

static gpuserve_status read_gguf(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 gpuserve_error *error)
{
    struct gsv_gguf_modules from;
    struct gsv_gguf *gguf;
    gpuserve_status st = gsv_gguf_open(&gguf, dir, error);

    if (st == GPUSERVE_OK)
        st = gsv_gguf_read_modules(&from, gguf, error);
    if (st == GPUSERVE_OK)
        st = take_gguf(modules, dir, &from, error);
    gsv_gguf_close(&gguf);
    return st;
}

static gpuserve_status read_files(struct gsv_modules *modules, const struct gsv_dir *dir,
                                  gpuserve_error *error)
{
    gpuserve_status st = read_chain(modules, dir, error);

    /* Only the tokenizer's file is read for these. */
    if (st == GPUSERVE_OK && !modules->is_static && !modules->words.present)
        st = read_limit(modules, dir, error);
    if (st == GPUSERVE_OK)
        st = gsv_prompts_read(modules, dir, error);
    if (st == GPUSERVE_OK && modules->by_token)
        st = gsv_late_read(modules, dir, error);
    return st == GPUSERVE_OK ? gsv_route_prompts_add(modules, dir, error) : st;
}

gpuserve_status gsv_modules_read(struct gsv_modules *modules, const struct gsv_dir *dir,
                                 gpuserve_error *error)
{
    gpuserve_status st;

    memset(modules, 0, sizeof(*modules));
    st = gsv_dir_gguf(dir) ? read_gguf(modules, dir, error) : read_files(modules, dir, error);
    if (st != GPUSERVE_OK)
        gsv_modules_reset(modules);
    return st;
}

void gsv_modules_reset(struct gsv_modules *modules)
{
    free(modules->transformer);
    free(modules->layer_weights.folder);
    free(modules->words.folder);
    for (int32_t i = 0; i < GSV_MAX_STEPS; i++) /* a final Normalize is not counted */
        free(modules->steps[i].folder);
    for (int32_t i = 0; i < modules->n_routes; i++)
        free(modules->routes[i]);
    for (size_t i = 0; i < modules->n_prompts; i++) {
        free(modules->prompts[i].name);
        free(modules->prompts[i].text);
    }
    free(modules->prompts);
    gsv_late_reset(&modules->late);
    memset(modules, 0, sizeof(*modules));
}
