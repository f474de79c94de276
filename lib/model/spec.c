/*
 * spec.c - builds a gsv_spec from a model directory and checks that its files agree.
 *
 *   modules.json -> config.json -> weight file headers -> facts -> items -> labels and counts
 */
#include "lib/model/spec.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/encoder/encoder.h"
#include "lib/model/formats/lora.h"
#include "lib/model/weights/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gsv_spec_free(struct gsv_spec **out)
{
    struct gsv_spec *spec = out ? *out : NULL;

    if (!spec)
        return;
    gsv_adapter_files_close(spec);
    gsv_checkpoint_close(&spec->weights);
    gsv_checkpoint_close(&spec->layer_weights);
    gsv_checkpoint_close(&spec->lstm_weights);
    for (int i = 0; i < GSV_MAX_STEPS; i++)
        gsv_checkpoint_close(&spec->step_weights[i]);
    gsv_heads_close(&spec->heads);
    free(spec->label_heads);
    gsv_late_heads_close(spec);
    gsv_config_reset(&spec->config);
    gsv_modules_reset(&spec->modules);
    gsv_labels_free(spec->default_labels, spec->n_default_labels);
    free(spec->entity_tokens[0]);
    free(spec->entity_tokens[1]);
    free(spec->items);
    free(spec->layers);
    free(spec);
    *out = NULL;
}

const struct gsv_spec_facts *gsv_spec_facts(const struct gsv_spec *spec)
{
    return &spec->facts;
}

int32_t gsv_spec_pad_id(const struct gsv_spec *spec)
{
    return spec->config.pad_id;
}

gpuserve_status gsv_fail_dtype(const struct gsv_spec_facts *facts, gpuserve_error *error)
{
    if (facts->only_float32) {
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "a model with %s layers computes in float32 only",
                 facts->only_float32);
        return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "use float32");
    }
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "a model with a %s does not compute in int8",
             facts->no_int8);
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "use bfloat16 or float32");
}

/* ---------------------------------------------------------------------------------------- files */

static gpuserve_status open_files(struct gsv_spec *spec, const struct gsv_dir *dir,
                                  const struct gsv_adapter_dirs *adapters,
                                  const struct gsv_head_files *heads, gpuserve_error *error)
{
    gpuserve_status st = gsv_modules_read(&spec->modules, dir, error);

    if (st == GPUSERVE_OK)
        st = gsv_static_detect(spec, dir, error);
    if (st == GPUSERVE_OK)
        st = gsv_recurrent_read(spec, dir, error);
    if (st == GPUSERVE_OK)
        st = gsv_entity_read(spec, dir, error);
    if (st == GPUSERVE_OK && !spec->modules.is_static && !spec->modules.words.present &&
        !spec->config.family)
        st = gsv_config_read(&spec->config, dir, spec->modules.transformer, error);
    if (st == GPUSERVE_OK && spec->config.is_late && !spec->modules.present)
        st = gsv_late_read_stanford(&spec->modules, dir, error);
    if (st == GPUSERVE_OK)
        st = gsv_checkpoint_open(&spec->weights, dir, spec->modules.transformer, error);
    if (st == GPUSERVE_OK && adapters->n > 0)
        st = gsv_adapter_files_open(spec, adapters, error);
    if (st == GPUSERVE_OK)
        st = gsv_entity_set_vocabulary(spec, error);
    if (st == GPUSERVE_OK && spec->modules.is_static)
        st = gsv_static_configure(spec, error);
    if (st == GPUSERVE_OK && spec->modules.words.folder)
        st = gsv_recurrent_configure(spec, error);
    if (st == GPUSERVE_OK && spec->modules.words.folder)
        st = gsv_checkpoint_open(&spec->lstm_weights, dir, spec->modules.words.folder, error);
    if (st == GPUSERVE_OK && spec->modules.layer_weights.folder)
        st = gsv_checkpoint_open(&spec->layer_weights, dir, spec->modules.layer_weights.folder,
                                 error);
    for (int32_t i = 0; i < spec->modules.n_steps && st == GPUSERVE_OK; i++)
        if (spec->modules.steps[i].folder)
            st = gsv_checkpoint_open(&spec->step_weights[i], dir, spec->modules.steps[i].folder,
                                     error);
    if (st == GPUSERVE_OK)
        st = gsv_late_heads_open(spec, dir, error);
    return st == GPUSERVE_OK ? gsv_heads_open(&spec->heads, heads, error) : st;
}

/* ---------------------------------------------------------------------------------------- facts */

static void lower_limit(int32_t *limit, int32_t other)
{
    if (other > 0 && other < *limit)
        *limit = other;
}

static void set_encoder_facts(struct gsv_spec *spec)
{
    const struct gsv_config *config = &spec->config;
    const struct gsv_modules *modules = &spec->modules;
    struct gsv_spec_facts *facts = &spec->facts;

    facts->architecture = config->architecture;
    facts->model_type = config->model_type;
    facts->vocab_size = config->vocab_size;
    facts->hidden_size = config->hidden_size;
    facts->n_layers = gsv_is_recurrent(config) ? config->recurrent.n_layers : config->n_layers;
    facts->n_heads = config->n_heads;
    facts->intermediate_size = config->intermediate_size;
    facts->max_positions = config->max_positions;
    facts->first_position = config->first_position;
    facts->type_vocab_size = config->type_vocab_size;
    facts->max_tokens = config->max_positions - config->first_position;
    lower_limit(&facts->max_tokens, config->token_limit);
    if (modules->max_tokens &&
        (modules->max_tokens < facts->max_tokens || config->family->unbounded))
        facts->max_tokens = modules->max_tokens;
    facts->long_from = config->rotary[0].long_from;
    facts->folder = modules->transformer;
    facts->do_lower_case = modules->do_lower_case;
    facts->reads_end = config->last_rule == GSV_LAST_END && !gsv_has_heads(spec);
    facts->end_id = config->end_id;
    facts->empty_id = gsv_is_recurrent(config) ? config->recurrent.empty_id
                      : config->n_layers == 0  ? config->vocab_size
                                               : 0;
    facts->only_float32 = !gsv_is_recurrent(config)                      ? NULL
                          : config->recurrent.cell == GPUSERVE_CELL_LSTM ? "LSTM"
                                                                         : "GRU";
    facts->no_special = modules->is_static;
    facts->skips_unknown = modules->is_static && !modules->present;
    facts->prompts = modules->prompts;
    facts->n_prompts = modules->n_prompts;
    facts->late = &modules->late;
    facts->routes = modules->routes;
    facts->n_routes = modules->n_routes;
    facts->default_route = modules->default_route;
    facts->default_prompt = modules->default_prompt;
    facts->adapters = (const char *const *)config->adapters.names;
    facts->n_adapters = config->adapters.n;
    facts->no_int8 = config->experts.n > 0   ? "mixture of experts"
                     : config->n_layers == 0 ? "table of static embeddings"
                                             : NULL;
}

/* A masked language model is a sparse encoder if its modules say so, or if it has no modules.json
 * and its weights include the masked-LM head. An encoder saved under the class of a masked model
 * lacks that head. */
static void set_sparse_fact(struct gsv_spec *spec)
{
    const struct gsv_masked_names *names = spec->config.family->masked;
    struct gsv_tensor tensor;
    char name[128];

    if (names && names->transform)
        snprintf(name, sizeof(name), "%s.weight", names->transform);
    spec->facts.is_sparse =
        spec->modules.is_sparse ||
        (spec->config.is_masked && !spec->modules.present && names &&
         (!names->transform || gsv_checkpoint_find(&spec->weights, name, &tensor)));
}

/* The width after the modules on token vectors, or on the pooled vectors of one route. */
static gpuserve_status width_after(const struct gsv_spec *spec, bool by_token, int32_t route,
                                   int32_t *width, gpuserve_error *error)
{
    for (int32_t i = 0; i < spec->modules.n_steps; i++) {
        const struct gsv_module_step *step = &spec->modules.steps[i];
        const struct gsv_dense_spec *dense = &step->dense;

        if (step->kind == GSV_STEP_NORMALIZE || step->by_token != by_token ||
            (step->route >= 0 && step->route != route))
            continue;
        if (dense->in_features != *width)
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: %s in config.json next to it is %d, the layer's input has %d "
                            "columns",
                            gsv_weight_file_name(spec->step_weights[i].files[0]),
                            step->kind == GSV_STEP_DENSE ? "in_features" : "dimension",
                            dense->in_features, *width);
        if (by_token && dense->out_features > GSV_MAX_WIDTH)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                            "%s: out_features in config.json next to it is %d, the limit for token "
                            "vectors is %d",
                            gsv_weight_file_name(spec->step_weights[i].files[0]),
                            dense->out_features, GSV_MAX_WIDTH);
        *width = dense->out_features;
    }
    return GPUSERVE_OK;
}

/* Token vectors: what the transformer returns, or the modules on tokens after it. */
static gpuserve_status set_token_facts(struct gsv_spec *spec, gpuserve_error *error)
{
    struct gsv_spec_facts *facts = &spec->facts;
    struct gsv_tensor linear;

    facts->token_dim = facts->hidden_size;
    facts->is_by_token = facts->is_late = spec->modules.by_token;
    spec->normalizes_tokens = spec->modules.normalizes_tokens;
    if (facts->entity.width > 0) {
        facts->token_dim = facts->entity.width;
        return GPUSERVE_OK;
    }
    if (!spec->config.is_late || spec->modules.present)
        return width_after(spec, true, -1, &facts->token_dim, error);
    facts->is_by_token = facts->is_late = spec->normalizes_tokens = true;
    if (!gsv_checkpoint_find(&spec->weights, "linear.weight", &linear))
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor 'linear.weight' is missing",
                        gsv_weight_file_name(spec->weights.files[0]));
    if (linear.rank != 2 || linear.shape[0] < 1 || linear.shape[0] > GSV_MAX_WIDTH)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor 'linear.weight' is not a matrix of 1 to %d rows",
                        gsv_weight_file_name(linear.file), GSV_MAX_WIDTH);
    facts->token_dim = (int32_t)linear.shape[0];
    return GPUSERVE_OK;
}

/* Expansion tokens that no token attends to: attention leaves their keys out, other layers cannot.
 */
static gpuserve_status check_expansion(const struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_late_facts *late = &spec->modules.late;
    const struct gsv_config *config = &spec->config;
    const char *part = config->convolution.kernel > 0 ? "a convolution"
                       : gsv_is_recurrent(config)     ? "recurrent layers"
                       : config->n_decoder_layers > 0 ? "a decoder"
                       : config->window > 0 && config->window < late->length
                           ? "a window of attention shorter than a query"
                           : NULL;

    if (late->length == 0 || late->attends || !part)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "query_expansion with attend false is not supported for a model with %s", part);
}

/* The width of embeddings, which is that of every route. */
static gpuserve_status set_dim(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_modules *modules = &spec->modules;
    const int32_t first =
        spec->config.projection_dim > 0 ? spec->config.projection_dim : gsv_pooled_width(spec);
    struct gsv_spec_facts *facts = &spec->facts;

    facts->n_dense = spec->config.projection_dim > 0;
    for (int32_t i = 0; i < modules->n_steps; i++)
        facts->n_dense += modules->steps[i].kind == GSV_STEP_DENSE && !modules->steps[i].by_token &&
                          modules->steps[i].route <= 0;
    for (int32_t route = 0; route < modules->n_routes || route == 0; route++) {
        int32_t width = first;
        const gpuserve_status st = width_after(spec, false, route, &width, error);

        if (st != GPUSERVE_OK)
            return st;
        if (route > 0 && width != facts->dim)
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "Router: route '%.64s' has %d dimensions, route '%.64s' has %d; equal "
                            "dimensions are required",
                            modules->routes[route], width, modules->routes[0], facts->dim);
        facts->dim = width;
    }
    return GPUSERVE_OK;
}

/* A classifier without modules.json has no embedding, unless a pooling or a head is requested. */
static gpuserve_status set_embedding_facts(struct gsv_spec *spec, uint32_t pooling,
                                           gpuserve_error *error)
{
    struct gsv_modules *modules = &spec->modules;
    struct gsv_spec_facts *facts = &spec->facts;

    if ((spec->config.classifies || spec->config.labels_tokens) && !modules->present &&
        pooling == 0 && !gsv_has_heads(spec))
        return GPUSERVE_OK;
    if (spec->facts.scores_answers)
        return GPUSERVE_OK;
    if (facts->entity.width > 0 && pooling == 0 && !gsv_has_heads(spec))
        return GPUSERVE_OK;
    if ((modules->is_sparse || facts->is_by_token) && pooling == 0 && !gsv_has_heads(spec))
        return GPUSERVE_OK;
    if (pooling > GPUSERVE_POOLING_LAST)
        return gsv_fail(error, GPUSERVE_E_INVALID, "pooling is %u, outside 0 to %d", pooling,
                        GPUSERVE_POOLING_LAST);
    if (!modules->present && spec->config.family->pooling != 0) {
        modules->poolings[0] = spec->config.family->pooling;
        modules->n_poolings = 1;
    }
    if (pooling != 0) { /* gpuserve_pooling_kind and gpuserve_pooling have equal values */
        modules->poolings[0] = (int32_t)pooling;
        modules->n_poolings = 1;
    }
    memcpy(facts->poolings, modules->poolings, sizeof(facts->poolings));
    facts->n_poolings = modules->n_poolings;
    facts->normalize = modules->normalize;
    facts->skips_prompt = modules->skips_prompt && pooling == 0;
    return set_dim(spec, error);
}

static gpuserve_status make_default_labels(struct gsv_spec *spec, size_t n, gpuserve_error *error)
{
    spec->default_labels = gsv_alloc_array(n, sizeof(*spec->default_labels));
    if (!spec->default_labels)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu labels", n);
    spec->n_default_labels = n;
    for (size_t i = 0; i < n; i++) {
        char label[32];
        const int length = snprintf(label, sizeof(label), "LABEL_%zu", i);

        spec->default_labels[i] = gsv_copy_text(label, (size_t)length);
        if (!spec->default_labels[i])
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu labels", n);
    }
    return GPUSERVE_OK;
}

static gpuserve_status set_classifier_labels(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_config *config = &spec->config;
    const size_t n = (size_t)spec->items[spec->first_classifier + spec->n_classifier - 1].n;
    struct gsv_spec_facts *facts = &spec->facts;
    const bool has_labels = config->labels && !facts->scores_answers;
    gpuserve_status st = GPUSERVE_OK;

    if (has_labels && config->n_labels != n)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: id2label in config.json next to it has %zu labels, the classifier's "
                        "weights have %zu",
                        gsv_weight_file_name(spec->weights.files[0]), config->n_labels, n);
    if (!has_labels)
        st = make_default_labels(spec, n, error);
    facts->labels = (const char *const *)(has_labels ? config->labels : spec->default_labels);
    facts->n_labels = n;
    facts->own_classifier = true;
    facts->score = config->score;
    if (spec->modules.score != GPUSERVE_SCORE_DEFAULT)
        facts->score = spec->modules.score;
    if (facts->labels_tokens)
        facts->score = GPUSERVE_SCORE_SOFTMAX; /* problem_type applies to whole texts */
    else if (facts->scores_answers && facts->score == GPUSERVE_SCORE_DEFAULT)
        facts->score = GPUSERVE_SCORE_SIGMOID; /* of two logits: softmax of both */
    else if (facts->score == GPUSERVE_SCORE_DEFAULT)
        facts->score = n == 1 ? GPUSERVE_SCORE_RAW : GPUSERVE_SCORE_SOFTMAX;
    return st;
}

/* The first head is the model's classifier for jobs that name no head. */
static gpuserve_status set_head_facts(struct gsv_spec *spec, gpuserve_error *error)
{
    struct gsv_spec_facts *facts = &spec->facts;

    spec->label_heads = gsv_alloc_array(spec->heads.n, sizeof(*spec->label_heads));
    if (!spec->label_heads)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu heads", spec->heads.n);
    for (size_t i = 0; i < spec->heads.n; i++) {
        struct gsv_head *head = &spec->heads.at[i];

        head->normalizes = head->input == GSV_HEAD_INPUT_NORMALIZED ||
                           (head->input == GSV_HEAD_INPUT_MODEL && facts->normalize);
        spec->label_heads[i] = (struct gsv_label_head){ .name = head->name,
                                                        .labels = (const char *const *)head->labels,
                                                        .n_labels = head->n_labels,
                                                        .score = head->score };
        facts->n_head_labels += head->n_labels;
    }
    facts->label_heads = spec->label_heads;
    facts->n_label_heads = spec->heads.n;
    facts->labels = spec->label_heads[0].labels;
    facts->n_labels = spec->label_heads[0].n_labels;
    facts->score = spec->label_heads[0].score;
    return GPUSERVE_OK;
}

static gpuserve_status set_label_facts(struct gsv_spec *spec, gpuserve_error *error)
{
    if (gsv_has_heads(spec))
        return set_head_facts(spec, error);
    spec->facts.labels_tokens = spec->config.labels_tokens;
    return spec->n_classifier > 0 ? set_classifier_labels(spec, error) : GPUSERVE_OK;
}

static void count_tensor(struct gsv_spec_facts *facts, const struct gsv_tensor *tensor)
{
    if (tensor->count == 0)
        return;
    facts->parameter_count += tensor->count;
    facts->file_bytes += tensor->size_bytes;
    if (!facts->weights_dtype)
        facts->weights_dtype = tensor->type_name;
    else if (strcmp(facts->weights_dtype, tensor->type_name) != 0)
        facts->weights_dtype = "mixed";
}

static void set_count_facts(struct gsv_spec *spec)
{
    spec->facts.weights_format = spec->weights.files[0]->format->name;
    for (size_t i = 0; i < spec->n_items; i++) {
        const bool is_counted = spec->is_decoder_tied && i >= (size_t)spec->first_decoder;

        for (int32_t part = 0; part < 3; part++) {
            const bool is_factor = part == 0 && spec->items[i].kind == GSV_ITEM_SUM_TABLE;
            const bool is_index = part == 1 && spec->items[i].kind == GSV_ITEM_MAPPED_TABLE;
            const bool is_columns = part == 1 && spec->items[i].n_columns > 0;

            if (spec->items[i].n_file_columns > 0 && spec->items[i].first > 0)
                continue; /* counted with the item of the first columns */
            if (is_columns ? spec->items[i].first == 0 : !is_counted && !is_factor && !is_index)
                count_tensor(&spec->facts, &spec->items[i].weight[part]);
            count_tensor(&spec->facts, &spec->items[i].bias[part]);
        }
    }
}

static void set_adapter_facts(struct gsv_spec *spec)
{
    struct gsv_lora_facts merged = { 0 };

    if (spec->weights.lora) {
        gsv_lora_read_facts(spec->weights.lora, &merged);
        spec->facts.merged_adapter = gsv_weight_file_name(spec->weights.lora);
    }
    spec->facts.adapter_bytes = merged.bytes + gsv_adapter_files_bytes(spec);
}

/* -------------------------------------------------------------------------------------- loading */

static gpuserve_status alloc_items(struct gsv_spec *spec, gpuserve_error *error)
{
    /* Items outside the layers: embeddings 14, final norm 2, projection 1, the classifier's and the
     * masked-LM head's norms 4, transform 1; layer weights 1; late heads 2; two for each step. */
    const size_t adapters = gsv_adapter_items(&spec->config);
    const size_t around = 26 + 2 * (GSV_MAX_STEPS + 1) + GSV_MAX_HEAD_LAYERS * (1 + spec->heads.n) +
                          2 * adapters + (size_t)spec->config.convolution.kernel + 2 +
                          2 * (size_t)spec->config.recurrent.n_layers + GSV_ENTITY_ITEMS;
    const size_t decoder = (size_t)spec->config.vocab_size / GSV_DECODER_ROWS + 1;
    const size_t layer = GSV_MAX_LAYER_ITEMS + GSV_BOTTLENECK_ITEMS + GSV_CROSS_ITEMS +
                         GSV_FFN_ITEMS * (size_t)(spec->config.n_ffns - 1) + 4 * adapters +
                         gsv_experts_items(&spec->config);

    spec->max_items = around + (size_t)spec->config.n_stored_layers * layer +
                      (gsv_has_decoder(spec) ? decoder : 0);
    spec->items = gsv_alloc_array(spec->max_items, sizeof(*spec->items));
    spec->layers = gsv_alloc_array((size_t)spec->config.n_layers, sizeof(*spec->layers));
    return spec->items && spec->layers ? GPUSERVE_OK
                                       : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
}

gpuserve_status gsv_spec_load(struct gsv_spec **out, const struct gsv_dir *dir, const char *head,
                              uint32_t pooling, gpuserve_error *error)
{
    const struct gsv_adapter_dirs none = { .n = 0 };
    const struct gsv_head_files heads = { .one = head };

    return gsv_spec_load_with(out, dir, &none, &heads, pooling, error);
}

gpuserve_status gsv_spec_load_with(struct gsv_spec **out, const struct gsv_dir *dir,
                                   const struct gsv_adapter_dirs *adapters,
                                   const struct gsv_head_files *heads, uint32_t pooling,
                                   gpuserve_error *error)
{
    struct gsv_spec *spec = gsv_alloc_array(1, sizeof(*spec));
    gpuserve_status st;

    *out = NULL;
    if (!spec)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    st = open_files(spec, dir, adapters, heads, error);
    if (st != GPUSERVE_OK)
        goto fail;
    st = gsv_add_adapter_prompts(spec, error);
    if (st != GPUSERVE_OK)
        goto fail;
    set_encoder_facts(spec);
    gsv_entity_set_limits(spec);
    set_sparse_fact(spec);
    st = set_token_facts(spec, error);
    spec->pooled_dim = spec->facts.token_dim;
    if (st == GPUSERVE_OK)
        st = check_expansion(spec, error);
    if (st == GPUSERVE_OK)
        st = gsv_late_heads_facts(spec, error);
    if (st == GPUSERVE_OK)
        st = gsv_spec_find_answers(spec, dir, pooling != 0 || gsv_has_heads(spec), error);
    if (st == GPUSERVE_OK)
        st = set_embedding_facts(spec, pooling, error);
    if (st == GPUSERVE_OK)
        st = alloc_items(spec, error);
    if (st == GPUSERVE_OK)
        st = gsv_spec_collect(spec, error);
    if (st == GPUSERVE_OK && spec->adapter_files)
        st = gsv_adapter_files_finish(spec, error);
    if (st == GPUSERVE_OK)
        st = set_label_facts(spec, error);
    if (st != GPUSERVE_OK)
        goto fail;
    set_count_facts(spec);
    set_adapter_facts(spec);
    spec->facts.is_token_mean = spec->facts.dim > 0 && spec->facts.n_poolings == 1 &&
                                spec->facts.poolings[0] == GPUSERVE_POOL_MEAN &&
                                spec->pooled_steps.n == 0 && !spec->normalizes_tokens &&
                                !spec->late_file;
    *out = spec;
    return GPUSERVE_OK;
fail:
    gsv_spec_free(&spec);
    return st;
}

size_t gsv_weight_elements(const struct gsv_spec *spec, const struct gsv_weight *item)
{
    const size_t distances = 2 * (size_t)gsv_relative_span(spec) - 1;

    switch (item->kind) {
    case GSV_ITEM_RELATIVE:
    case GSV_ITEM_ALIBI:
        return (size_t)item->k * distances;
    case GSV_ITEM_POSITION_INDEX:
        return distances;
    case GSV_ITEM_POSITIONS:
        return (size_t)item->n * (size_t)gsv_context_columns(&spec->config);
    default:
        return (size_t)item->n * (size_t)item->k;
    }
}
