/*
 * inspect.c - describes a model as JSON.
 *
 * gpuserve_model_inspect() reads the files' headers only, without loading weights.
 * gpuserve_model_info() describes an open model, pinned for the call, and adds device, memory, int8
 * and failover facts.
 */
#include "lib/base/error.h"

#include "lib/runtime/core/context.h"
#include "lib/runtime/core/json_out.h"
#include "lib/runtime/models/handle.h"

#include <math.h>
#include <string.h>

static const char *pooling_name(int32_t pooling)
{
    static const char *const names[] = { "unknown",       "cls",           "mean", "max",
                                         "mean_sqrt_len", "weighted_mean", "last" };
    const size_t index = (size_t)pooling; /* a negative value wraps past the end */

    return index < sizeof(names) / sizeof(names[0]) ? names[index] : names[0];
}

static const char *score_name(int32_t score)
{
    switch (score) {
    case GPUSERVE_SCORE_RAW:
        return "raw";
    case GPUSERVE_SCORE_SOFTMAX:
        return "softmax";
    case GPUSERVE_SCORE_SIGMOID:
        return "sigmoid";
    default:
        return "unknown";
    }
}

/* Takes ownership of `value`; NULL after an allocation failure. */
static json_t *append(json_t *array, json_t *value)
{
    if (array && json_array_append_new(array, value) == 0)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *poolings_of(const struct gsv_spec_facts *facts)
{
    json_t *array = json_array();

    for (int32_t i = 0; i < facts->n_poolings && array; i++)
        array = append(array, json_string(pooling_name(facts->poolings[i])));
    return array;
}

static json_t *labels_of(const char *const *labels, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n && array; i++)
        array = append(array, json_string(labels[i]));
    return array;
}

static json_t *heads_of(const struct gsv_spec_facts *facts)
{
    json_t *array = json_array();

    for (size_t i = 0; i < facts->n_label_heads && array; i++) {
        const struct gsv_label_head *head = &facts->label_heads[i];
        struct gsv_json json = gsv_json_begin();

        gsv_json_add_string(&json, "name", head->name);
        gsv_json_add_value(&json, "labels", labels_of(head->labels, head->n_labels));
        gsv_json_add_string(&json, "score", score_name(head->score));
        array = append(array, json.object);
    }
    return array;
}

static json_t *adapters_of(const struct gsv_spec_facts *facts)
{
    json_t *array = json_array();

    for (size_t i = 0; i < facts->n_adapters && array; i++)
        array = append(array, json_string(facts->adapters[i]));
    return array;
}

static json_t *routes_of(const struct gsv_spec_facts *facts)
{
    json_t *array = json_array();

    for (int32_t i = 0; i < facts->n_routes && array; i++)
        array = append(array, json_string(facts->routes[i]));
    return array;
}

static json_t *tasks_of(const struct gsv_spec_facts *facts)
{
    json_t *array = json_array();

    if (facts->dim > 0 && array)
        array = append(array, json_string("embed"));
    if (gsv_classifies(facts) && array)
        array = append(array, json_string("classify"));
    if (facts->labels_tokens && array)
        array = append(array, json_string("token_labels"));
    if (facts->is_sparse && array)
        array = append(array, json_string("sparse"));
    if (facts->entity.width > 0 && array)
        array = append(array, json_string("entities"));
    return array ? append(array, json_string("token_vectors")) : NULL;
}

static struct gsv_json prompts_of(const struct gsv_spec_facts *facts)
{
    struct gsv_json prompts = gsv_json_begin();

    for (size_t i = 0; i < facts->n_prompts; i++)
        gsv_json_add_string(&prompts, facts->prompts[i].name, facts->prompts[i].text);
    return prompts;
}

static struct gsv_json tokenizer_of(const struct gsv_tokenizer *tokenizer)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "kind", gsv_tokenizer_kind(tokenizer));
    gsv_json_add_number(&json, "vocab_size", gsv_tokenizer_vocab_size(tokenizer));
    gsv_json_add_number(&json, "special_tokens",
                        (int64_t)gsv_tokenizer_special_count(tokenizer, false));
    return json;
}

static struct gsv_json entity_head_of(const struct gsv_entity_facts *facts)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "kind", facts->by_token ? "tokens" : "spans");
    gsv_json_add_number(&json, "max_words", facts->max_words);
    gsv_json_add_number(&json, "max_labels", GPUSERVE_ENTITY_MAX_LABELS);
    if (facts->max_span > 0)
        gsv_json_add_number(&json, "max_words_per_entity", facts->max_span);
    return json;
}

/* How token vectors of queries and documents are made. */
static struct gsv_json late_of(const struct gsv_plan *plan)
{
    const struct gsv_late_facts *late = plan->facts->late;
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_number(&json, "query_tokens", gsv_role_limit(plan, GSV_ROLE_QUERY));
    gsv_json_add_number(&json, "document_tokens", gsv_role_limit(plan, GSV_ROLE_DOCUMENT));
    gsv_json_add_number(&json, "expanded_tokens", late->length);
    gsv_json_add_bool(&json, "attends_to_expansion", late->length > 0 && late->attends);
    gsv_json_add_number(&json, "skipped_words", (int64_t)plan->late.n_skipped);
    return json;
}

static struct gsv_json describe(const struct gsv_plan *plan)
{
    const struct gsv_spec_facts *facts = plan->facts;
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "path", gsv_dir_path(plan->dir));
    gsv_json_add_string(&json, "architecture", facts->architecture);
    gsv_json_add_string(&json, "model_type", facts->model_type);
    gsv_json_add_value(&json, "tasks", tasks_of(facts));
    gsv_json_add_number(&json, "parameters", (int64_t)facts->parameter_count);
    gsv_json_add_number(&json, "file_bytes", (int64_t)facts->file_bytes);
    gsv_json_add_string(&json, "weights_dtype", facts->weights_dtype);
    gsv_json_add_string(&json, "weights_format", facts->weights_format);
    gsv_json_add_number(&json, "dim", facts->dim);
    gsv_json_add_number(&json, "max_tokens", plan->max_tokens);
    gsv_json_add_number(&json, "max_positions", facts->max_positions);
    gsv_json_add_number(&json, "vocab_size", facts->vocab_size);
    gsv_json_add_number(&json, "hidden_size", facts->hidden_size);
    gsv_json_add_number(&json, "token_dim", facts->token_dim);
    gsv_json_add_bool(&json, "late_interaction", facts->is_late);
    gsv_json_add_number(&json, "first_vector", facts->first_vector);
    if (facts->is_by_token)
        gsv_json_add_object(&json, "late", late_of(plan));
    gsv_json_add_number(&json, "layers", facts->n_layers);
    gsv_json_add_number(&json, "heads", facts->n_heads);
    gsv_json_add_number(&json, "intermediate_size", facts->intermediate_size);
    gsv_json_add_value(&json, "pooling", poolings_of(facts));
    gsv_json_add_number(&json, "dense_layers", facts->n_dense);
    gsv_json_add_bool(&json, "normalize", facts->normalize);
    gsv_json_add_object(&json, "prompts", prompts_of(facts));
    gsv_json_add_string(&json, "merged_adapter", facts->merged_adapter);
    gsv_json_add_value(&json, "adapters", adapters_of(facts));
    gsv_json_add_string(&json, "default_prompt", plan->default_prompt_name);
    gsv_json_add_string(&json, "default_prompt_text", plan->default_prompt);
    gsv_json_add_value(&json, "routes", routes_of(facts));
    gsv_json_add_value(&json, "labels", labels_of(facts->labels, facts->n_labels));
    gsv_json_add_value(&json, "classifier_heads", heads_of(facts));
    gsv_json_add_string(&json, "score", facts->n_labels > 0 ? score_name(facts->score) : NULL);
    gsv_json_add_string(&json, "rerank", gsv_rerank_method_name(gsv_rerank_method(facts)));
    if (gsv_entailment_label(facts) >= 0)
        gsv_json_add_number(&json, "entailment_label", gsv_entailment_label(facts));
    if (facts->pair_template)
        gsv_json_add_string(&json, "pair_template", facts->pair_template->name);
    if (facts->entity.width > 0)
        gsv_json_add_object(&json, "entity_head", entity_head_of(&facts->entity));
    gsv_json_add_object(&json, "tokenizer", tokenizer_of(plan->tokenizer));
    return json;
}

GPUSERVE_API gpuserve_status gpuserve_model_inspect(gpuserve_context *context, const char *model,
                                                    const gpuserve_model_options *given, char *text,
                                                    size_t capacity, size_t *size,
                                                    gpuserve_error *error)
{
    gpuserve_model_options options;
    struct gsv_plan plan;
    struct gsv_json json;
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK)
        st = gsv_read_model_options(&options, given, error);
    if (st == GPUSERVE_OK)
        st = gsv_plan_read(&plan, context, model, &options, error);
    if (st != GPUSERVE_OK)
        return st;
    json = describe(&plan);
    gsv_plan_reset(&plan);
    return gsv_json_write(&json, text, capacity, size, error);
}

static struct gsv_json memory_of(const struct gsv_plan *plan)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_number(&json, "weights_bytes", (int64_t)plan->memory.weights);
    gsv_json_add_number(&json, "workspace_bytes", (int64_t)plan->memory.workspace);
    gsv_json_add_number(&json, "stream_bytes", (int64_t)plan->memory.stream);
    gsv_json_add_number(&json, "host_bytes", (int64_t)plan->memory.host);
    gsv_json_add_number(&json, "total_bytes", (int64_t)plan->total_bytes);
    return json;
}

static json_t *kept_products(const struct gsv_int8_facts *facts)
{
    static const char *const names[] = { "query-key-value", "attention output", "feed-forward in",
                                         "feed-forward out" };
    json_t *array = json_array();

    for (int32_t i = 0; i < facts->n_products && array; i++) {
        const int32_t layer = i / facts->n_layer_products, at = i % facts->n_layer_products;

        if (!gsv_int8_keeps(facts, i))
            continue;
        if (facts->n_layer_products == 4 || at < 2)
            array = append(array, json_sprintf("layer %d %s", layer, names[at]));
        else
            array = append(array,
                           json_sprintf("layer %d %s %d", layer, names[2 + at % 2], (at - 2) / 2));
    }
    return array;
}

/* Measured error of int8, and the products kept in higher precision because of it. */
static struct gsv_json int8_of(const struct gsv_int8_facts *facts)
{
    struct gsv_json json = gsv_json_begin();

    /* Four digits, rounded down: no binary fraction digits, and never above the measured value. */
    gsv_json_add_value(&json, "least_cosine",
                       json_real(floor((double)facts->cosine * 10000.0) / 10000.0));
    gsv_json_add_value(&json, "bound", json_real(GSV_INT8_BOUND));
    gsv_json_add_number(&json, "probe_texts", facts->n_probes);
    gsv_json_add_number(&json, "products", facts->n_products);
    gsv_json_add_value(&json, "kept", kept_products(facts));
    gsv_json_add_string(&json, "kept_dtype", gsv_dtype_name(facts->kept_dtype));
    gsv_json_add_bool(&json, "float32_attention", facts->exact_attention);
    return json;
}

static json_t *replicas_of(const struct gsv_model *model)
{
    const uint64_t lost = atomic_load(&model->lost_replicas);
    json_t *array = json_array();

    for (size_t i = 0; array && i < model->plan.n_replicas; i++) {
        struct gsv_json json = gsv_json_begin();
        char selector[32];

        gsv_device_selector(&model->plan.devices[i], selector, sizeof(selector));
        gsv_json_add_string(&json, "device", selector);
        gsv_json_add_bool(&json, "lost", lost >> i & 1);
        array = append(array, json.object);
    }
    return array;
}

/* The devices of a pipeline, in the order of the layers. */
static json_t *pipeline_of(const struct gsv_plan *plan)
{
    json_t *array = json_array();

    for (size_t i = 0; array && i < plan->n_devices; i++) {
        struct gsv_json json = gsv_json_begin();
        char selector[32];

        gsv_device_selector(&plan->devices[i], selector, sizeof(selector));
        gsv_json_add_string(&json, "device", selector);
        gsv_json_add_number(&json, "first_layer", plan->layers[i].first);
        gsv_json_add_number(&json, "layers", plan->layers[i].end - plan->layers[i].first);
        gsv_json_add_number(&json, "bytes", (int64_t)plan->device_bytes[i]);
        array = append(array, json.object);
    }
    return array;
}

/* The dtype in which the model's products multiply: not that of the weights if the device converts
 * them first. */
static uint32_t products_dtype(const struct gsv_plan *plan)
{
    return plan->device.facts.widened >> plan->dtype & 1 ? (uint32_t)GPUSERVE_DTYPE_FLOAT32
                                                         : plan->dtype;
}

static struct gsv_json describe_open(const struct gsv_model *model)
{
    char selector[64];
    struct gsv_json json = describe(&model->plan);

    gsv_plan_selector(&model->plan, ~atomic_load(&model->lost_replicas), selector,
                      sizeof(selector));
    gsv_json_add_string(&json, "fingerprint", model->fingerprint);
    gsv_json_add_string(&json, "device", selector);
    gsv_json_add_string(&json, "device_name", model->plan.device.facts.name);
    gsv_json_add_string(&json, "device_isa", model->plan.device.facts.isa);
    gsv_json_add_string(&json, "device_reason", model->plan.device.reason);
    gsv_json_add_string(&json, "dtype", gsv_dtype_name(model->plan.dtype));
    gsv_json_add_string(&json, "products_dtype", gsv_dtype_name(products_dtype(&model->plan)));
    if (model->int8.is_measured)
        gsv_json_add_object(&json, "int8", int8_of(&model->int8));
    gsv_json_add_bool(&json, "deterministic", model->plan.deterministic);
    gsv_json_add_bool(&json, "portable_bits", model->plan.portable_bits);
    gsv_json_add_number(&json, "threads", gsv_plan_threads(&model->plan));
    gsv_json_add_number(&json, "streamed_layers", model->plan.n_streamed);
    gsv_json_add_number(&json, "max_batch_tokens", model->plan.narrow.max_tokens);
    gsv_json_add_number(&json, "max_queue_tokens", (int64_t)model->plan.max_queue_tokens);
    gsv_json_add_number(&json, "cache_bytes", (int64_t)model->plan.cache_bytes);
    gsv_json_add_object(&json, "memory", memory_of(&model->plan));
    if (model->plan.n_replicas > 1)
        gsv_json_add_value(&json, "replicas", replicas_of(model));
    if (gsv_plan_is_pipeline(&model->plan))
        gsv_json_add_value(&json, "pipeline", pipeline_of(&model->plan));
    return json;
}

GPUSERVE_API gpuserve_status gpuserve_model_info(gpuserve_model *handle, char *text,
                                                 size_t capacity, size_t *size,
                                                 gpuserve_error *error)
{
    struct gsv_model *model;
    struct gsv_json json;
    gpuserve_status st = gsv_handle_pin(handle, &model, error);

    if (st != GPUSERVE_OK)
        return st;
    json = describe_open(model);
    gsv_handle_unpin(handle, &model);
    gsv_lost_describe(handle, &json);
    return gsv_json_write(&json, text, capacity, size, error);
}

/*
 * Reports the memory a model needs, without loading its weights.
 *
 * The load plan is read and sized exactly as for a load, then dropped.
 */

/* Memory limit of the model: the minimum of the total budget and the device memory. Device memory
 * of replicas is that of the smallest device; of a pipeline it is the sum over its devices. */
static uint64_t available_bytes(const struct gsv_plan *plan)
{
    uint64_t smallest = UINT64_MAX, sum = 0;

    for (size_t i = 0; i < plan->n_devices; i++) {
        const uint64_t bytes = plan->available.devices[i];

        smallest = bytes < smallest ? bytes : smallest;
        sum = gsv_add_bytes(sum, bytes);
    }
    if (gsv_plan_is_pipeline(plan))
        smallest = sum;
    return plan->available.all < smallest ? plan->available.all : smallest;
}

GPUSERVE_API gpuserve_status gpuserve_model_footprint(gpuserve_context *context, const char *model,
                                                      const gpuserve_model_options *given,
                                                      gpuserve_footprint *footprint,
                                                      gpuserve_error *error)
{
    gpuserve_model_options options;
    struct gsv_plan plan;
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK)
        st = gsv_check_struct(footprint, sizeof(*footprint), "gpuserve_footprint", error);
    if (st == GPUSERVE_OK)
        st = gsv_read_model_options(&options, given, error);
    if (st == GPUSERVE_OK)
        st = gsv_plan_read(&plan, context, model, &options, error);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_plan_size(&plan, context, &options, error);
    if (st == GPUSERVE_OK) {
        footprint->fits = gsv_plan_fits(&plan, &plan.available);
        footprint->weights_bytes = plan.memory.weights;
        footprint->workspace_bytes = plan.memory.workspace;
        footprint->stream_bytes = plan.memory.stream;
        footprint->host_bytes = plan.memory.host;
        footprint->total_bytes = plan.total_bytes;
        footprint->available_bytes = available_bytes(&plan);
        footprint->n_streams =
            (uint32_t)plan.n_workers * (uint32_t)gsv_plan_stages(&plan) + plan.has_wide;
        footprint->max_batch_tokens = (uint32_t)gsv_plan_largest_batch(&plan, &plan.available);
    }
    gsv_plan_reset(&plan);
    return st;
}
