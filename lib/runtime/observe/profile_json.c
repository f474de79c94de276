/*
 * profile_json.c - a profile as JSON, with an optional trace for Chrome's and Perfetto's viewers.
 *
 * The trace is the last round: complete events ("ph": "X") in microseconds, nested as text >
 * tokenize, pack, batch > layer > operation.
 */
#include "lib/runtime/observe/profile.h"

#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/runtime/core/json_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const stage_names[GSV_PROFILE_STAGES] = {
    "upload",   "embed",    "qkv",  "attention", "attention output", "attention norm", "expand",
    "contract", "ffn norm", "pool", "head",      "download"
};

static void add_real(struct gsv_json *json, const char *key, double value)
{
    gsv_json_add_value(json, key, json_real(value));
}

/* Time, rate and fraction of the peak. */
static void add_rate(struct gsv_json *json, const struct gsv_profile *profile, double ns,
                     double flops)
{
    const double rate = ns > 0 ? flops / (ns * 1e-9) : 0;

    add_real(json, "us", ns / 1000);
    if (flops <= 0)
        return;
    add_real(json, "gflops", rate / 1e9);
    if (profile->peak_flops > 0)
        add_real(json, "of_peak", rate / profile->peak_flops);
}

static double total_ns(const struct gsv_profile *profile)
{
    return profile->tokenize_ns + profile->pack_ns + profile->batch_ns;
}

static json_t *describe_stage(const struct gsv_profile *profile, const char *name, double ns,
                              double flops, int32_t calls)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "stage", name);
    add_rate(&json, profile, ns, flops);
    add_real(&json, "share", ns / total_ns(profile));
    gsv_json_add_number(&json, "calls", calls);
    return json.object;
}

static json_t *describe_stages(const struct gsv_profile *profile)
{
    json_t *list = json_array();
    const int32_t n_texts = (int32_t)profile->options.n_texts;
    double known = 0;

    gsv_json_append(&list, describe_stage(profile, "tokenize", profile->tokenize_ns, 0, n_texts));
    gsv_json_append(&list, describe_stage(profile, "pack", profile->pack_ns, 0, 1));
    for (int i = 0; i < GSV_PROFILE_STAGES; i++) {
        known += profile->stage_ns[i];
        if (profile->stage_calls[i] > 0 && gsv_profile_has(profile, (enum gsv_profile_stage)i))
            gsv_json_append(&list,
                            describe_stage(profile, stage_names[i], profile->stage_ns[i],
                                           profile->stage_flops[i], profile->stage_calls[i]));
    }
    /* Time of no stage: gaps between operations; on a device also the effect of overlap. */
    gsv_json_append(&list, describe_stage(profile, "other", profile->batch_ns - known, 0, 1));
    return list;
}

static json_t *describe_layers(const struct gsv_profile *profile)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < profile->n_layers; i++) {
        struct gsv_json json = gsv_json_begin();

        gsv_json_add_number(&json, "layer", i);
        add_real(&json, "us", profile->layer_ns[i] / 1000);
        gsv_json_append(&list, json.object);
    }
    return list;
}

static json_t *describe_products(const struct gsv_profile *profile)
{
    json_t *list = json_array();

    for (size_t i = 0; i < profile->n_products; i++) {
        const struct gsv_profile_product *product = &profile->products[i];
        struct gsv_json json = gsv_json_begin();

        gsv_json_add_string(&json, "stage", stage_names[product->stage]);
        gsv_json_add_number(&json, "rows", product->rows);
        gsv_json_add_number(&json, "columns", product->columns);
        gsv_json_add_number(&json, "inner", product->inner);
        gsv_json_add_number(&json, "calls", product->calls);
        add_rate(&json, profile, product->ns, product->flops);
        gsv_json_append(&list, json.object);
    }
    return list;
}

static struct gsv_json describe_memory(const struct gsv_profile *profile)
{
    const struct gsv_memory *memory = &profile->plan.memory;
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_number(&json, "weights_bytes", (int64_t)memory->weights);
    gsv_json_add_number(&json, "workspace_bytes", (int64_t)memory->workspace);
    gsv_json_add_number(&json, "stream_bytes", (int64_t)memory->stream);
    gsv_json_add_number(&json, "host_bytes", (int64_t)memory->host);
    gsv_json_add_number(&json, "total_bytes", (int64_t)profile->plan.total_bytes);
    return json;
}

/* -------------------------------------------------------------------------------------- trace */

struct trace {
    json_t *list;
    uint64_t zero; /* start of the trace's time axis */
};

static void add_span(struct trace *trace, const char *name, const char *kind, uint64_t begin,
                     uint64_t end, struct gsv_json arguments)
{
    struct gsv_json json = gsv_json_begin();

    gsv_json_add_string(&json, "name", name);
    gsv_json_add_string(&json, "cat", kind);
    gsv_json_add_string(&json, "ph", "X");
    add_real(&json, "ts", (double)(begin - trace->zero) / 1000);
    add_real(&json, "dur", (double)(end - begin) / 1000);
    gsv_json_add_number(&json, "pid", 1);
    gsv_json_add_number(&json, "tid", 1);
    gsv_json_add_object(&json, "args", arguments);
    gsv_json_append(&trace->list, json.object);
}

static void add_name(struct trace *trace, const char *what, const char *name)
{
    struct gsv_json json = gsv_json_begin(), arguments = gsv_json_begin();

    gsv_json_add_string(&arguments, "name", name);
    gsv_json_add_string(&json, "name", what);
    gsv_json_add_string(&json, "ph", "M");
    gsv_json_add_number(&json, "pid", 1);
    gsv_json_add_number(&json, "tid", 1);
    gsv_json_add_object(&json, "args", arguments);
    gsv_json_append(&trace->list, json.object);
}

static void add_operation(struct trace *trace, const struct gsv_profile_event *event)
{
    struct gsv_json arguments = gsv_json_begin();
    const double ns = (double)(event->end_ns - event->begin_ns);

    if (event->columns > 0) {
        gsv_json_add_number(&arguments, "rows", event->rows);
        gsv_json_add_number(&arguments, "columns", event->columns);
        gsv_json_add_number(&arguments, "inner", event->inner);
    }
    if (event->flops > 0 && ns > 0)
        add_real(&arguments, "gflops", event->flops / ns);
    add_span(trace, stage_names[event->stage], "operation", event->begin_ns, event->end_ns,
             arguments);
}

/* Operations, with an enclosing span per layer. */
static void add_operations(struct trace *trace, const struct gsv_profile *profile)
{
    size_t i = 0;

    while (i < profile->n_events) {
        const int32_t layer = profile->events[i].layer;
        size_t end = i + 1;
        char name[32];

        while (end < profile->n_events && profile->events[end].layer == layer)
            end++;
        snprintf(name, sizeof(name), "layer %d", layer);
        if (layer >= 0)
            add_span(trace, name, "layer", profile->events[i].begin_ns,
                     profile->events[end - 1].end_ns, gsv_json_begin());
        for (; i < end; i++)
            add_operation(trace, &profile->events[i]);
    }
}

static struct gsv_json describe_trace(const struct gsv_profile *profile)
{
    struct trace trace = { json_array(), profile->tokenize_begin };
    struct gsv_json json = gsv_json_begin(), arguments = gsv_json_begin();

    add_name(&trace, "process_name", "gpuserve profile");
    add_name(&trace, "thread_name", profile->by_difference ? "issued by the host" : "batch");
    gsv_json_add_number(&arguments, "texts", profile->options.n_texts);
    gsv_json_add_number(&arguments, "tokens", profile->batch.n_tokens);
    add_span(&trace, "texts to rows", "round", profile->tokenize_begin, profile->batch_end,
             arguments);
    add_span(&trace, "tokenize", "text", profile->tokenize_begin, profile->tokenize_end,
             gsv_json_begin());
    add_span(&trace, "pack", "text", profile->tokenize_end, profile->pack_end, gsv_json_begin());
    add_span(&trace, "batch", "batch", profile->pack_end, profile->batch_end, gsv_json_begin());
    add_operations(&trace, profile);
    gsv_json_add_value(&json, "traceEvents", trace.list);
    gsv_json_add_string(&json, "displayTimeUnit", "ms");
    return json;
}

/* --------------------------------------------------------------------------------------- write */

gpuserve_status gsv_profile_write(const struct gsv_profile *profile, gpuserve_text_fn write,
                                  void *user, gpuserve_error *error)
{
    const struct gsv_plan *plan = &profile->plan;
    struct gsv_json json = gsv_json_begin();
    char selector[64], *text;

    gsv_device_selector(&plan->device, selector, sizeof(selector));
    gsv_json_add_string(&json, "model", profile->path);
    gsv_json_add_string(&json, "device", selector);
    gsv_json_add_string(&json, "device_name", plan->device.facts.name);
    gsv_json_add_string(&json, "isa", plan->device.facts.isa);
    gsv_json_add_string(&json, "dtype", gsv_dtype_name(plan->dtype));
    gsv_json_add_number(&json, "threads", profile->shape->n_threads);
    gsv_json_add_string(&json, "timing", profile->by_difference ? "differences" : "operations");
    gsv_json_add_number(&json, "rounds", profile->options.rounds);
    gsv_json_add_number(&json, "texts", profile->options.n_texts);
    gsv_json_add_number(&json, "tokens", profile->batch.n_tokens);
    add_real(&json, "us", total_ns(profile) / 1000);
    add_real(&json, "batch_us", profile->batch_ns / 1000);
    gsv_json_add_value(&json, "peak_gflops",
                       profile->peak_flops > 0 ? json_real(profile->peak_flops / 1e9)
                                               : json_null());
    gsv_json_add_value(&json, "stages", describe_stages(profile));
    gsv_json_add_value(&json, "layers", describe_layers(profile));
    gsv_json_add_value(&json, "products", describe_products(profile));
    gsv_json_add_object(&json, "memory", describe_memory(profile));
    if (profile->options.trace)
        gsv_json_add_object(&json, "trace", describe_trace(profile));
    text = gsv_json_dump(json.object, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
    json_decref(json.object);
    if (!text)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the profile");
    write(user, text, strlen(text));
    free(text);
    return GPUSERVE_OK;
}
