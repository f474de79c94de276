/*
 * test_profile_stages.c - the stage and the layer of every operation of models whose products are
 * not the four of a BERT layer: projected embeddings, shared layers, adapters, experts.
 */
#include "lib/runtime/observe/profile_backend.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 12, MAX_TEXTS = 4 };

static struct gsv_profiler profiler;
static struct gpuserve_backend inner;
static int n_attentions; /* that reach the inner backend */

static gpuserve_status count_attention(struct gpuserve_stream *stream,
                                       const struct gpuserve_op_attention *op)
{
    n_attentions++;
    return gsv_backend_cpu()->attention(stream, op);
}

static gpuserve_status open_wrapped(struct gpuserve_device **device, int32_t index,
                                    gpuserve_error *error)
{
    return gsv_profiler_open(&profiler, device, index, error);
}

static void load(struct loaded *model, const char *name)
{
    struct load_options options = { .backend = &profiler.table };
    char path[64];

    inner = *gsv_backend_cpu();
    inner.attention = count_attention;
    gsv_profiler_init(&profiler, &inner);
    profiler.table.device_open = open_wrapped;
    options.observer = gsv_profiler_observer(&profiler);
    snprintf(path, sizeof(path), "models/%s", name);
    load_model(model, test_data(path), &options);
}

static void unload(struct loaded *model)
{
    unload_model(model);
    gsv_profiler_reset(&profiler);
}

/* Embeds a batch of texts with these adapters; the events are in the profiler. */
static void run_batch(const struct loaded *model, const int32_t *adapters, size_t n_texts)
{
    const struct gsv_spec_facts *facts = gsv_spec_facts(model->spec);
    int32_t ids[MAX_TEXTS * N_TOKENS], n[MAX_TEXTS];
    const struct texts texts = { ids, n, n_texts };
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED,
                           .dimensions = facts->dim,
                           .normalize = true,
                           .adapters = adapters };

    for (size_t i = 0; i < n_texts * N_TOKENS; i++)
        ids[i] = 8 + (int32_t)(i % N_TOKENS);
    for (size_t i = 0; i < n_texts; i++)
        n[i] = N_TOKENS;
    n_attentions = 0;
    run.output = calloc(n_texts * (size_t)facts->dim, sizeof(float));
    run_texts(model, &texts, 0, n_texts, &run);
    free(run.output);
}

/* Embeds one text. */
static void run(const struct loaded *model, int32_t adapter)
{
    run_batch(model, &adapter, 1);
}

/* Events of a phase in a layer; `products` counts only products. */
static int count(enum gsv_phase phase, int32_t layer, bool products)
{
    int n = 0;

    for (size_t i = 0; i < profiler.n_events; i++)
        n += profiler.events[i].stage == gsv_profile_stage_of(phase) &&
             profiler.events[i].layer == layer && (!products || profiler.events[i].columns > 0);
    return n;
}

static int32_t last_layer(void)
{
    int32_t last = -1;

    for (size_t i = 0; i < profiler.n_events; i++)
        last = profiler.events[i].layer > last ? profiler.events[i].layer : last;
    return last;
}

/* Each layer has its own products in each of the four stages, and attention once. */
static void expect_layers(const char *name, int32_t n_layers, int per_stage)
{
    static const enum gsv_phase phases[] = { GSV_PHASE_QKV, GSV_PHASE_OUTPUT, GSV_PHASE_EXPAND,
                                             GSV_PHASE_CONTRACT };

    cr_expect_eq(last_layer(), n_layers - 1, "%s: %d", name, last_layer());
    for (int32_t layer = 0; layer < n_layers; layer++) {
        for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
            cr_expect_eq(count(phases[i], layer, true), per_stage,
                         "%s: phase %d of layer %d has %d products", name, (int)phases[i], layer,
                         count(phases[i], layer, true));
        cr_expect_geq(count(GSV_PHASE_ATTENTION, layer, false), 1, "%s: %d", name, layer);
        cr_expect_eq(count(GSV_PHASE_NORM, layer, false), 1, "%s: %d", name, layer);
        cr_expect_eq(count(GSV_PHASE_FFN_NORM, layer, false), 1, "%s: %d", name, layer);
    }
    cr_expect_geq(count(GSV_PHASE_POOL, -1, false), 1, "%s", name);
}

static void expect_stages(const char *name, int projections, int32_t adapter, int per_stage)
{
    struct loaded model;

    load(&model, name);
    run(&model, adapter);
    cr_expect_eq(count(GSV_PHASE_EMBED, -1, true), projections, "%s: %d", name,
                 count(GSV_PHASE_EMBED, -1, true));
    expect_layers(name, gsv_spec_facts(model.spec)->n_layers, per_stage);
    unload(&model);
}

Test(profile_stages, plain_layers)
{
    expect_stages("bert", 0, 0, 1);
    expect_stages("modernbert", 0, 0, 1);
    expect_stages("qwen3-embedding", 0, 0, 1);
}

Test(profile_stages, a_projection_of_embeddings_is_no_layer)
{
    expect_stages("electra", 1, 0, 1);
    expect_stages("albert", 1, 0, 1);
}

Test(profile_stages, the_products_of_an_adapter_belong_to_those_that_they_adapt)
{
    expect_stages("jina-v3-hub-lora", 1, 1, 3); /* its words have one product */
}

/* Rows of the products of a phase in a layer that have this number of columns. */
static int32_t count_rows(enum gsv_phase phase, int32_t layer, int32_t columns)
{
    int32_t n = 0;

    for (size_t i = 0; i < profiler.n_events; i++)
        if (profiler.events[i].stage == gsv_profile_stage_of(phase) &&
            profiler.events[i].layer == layer && profiler.events[i].columns == columns)
            n += profiler.events[i].rows;
    return n;
}

/* Two products for each adapter, on its own rows, and one of the base on all rows; the linear
 * before an activation divides the rows without an adapter from the others. */
Test(profile_stages, adapters_of_one_batch_share_the_product_of_the_base)
{
    static const int32_t adapters[MAX_TEXTS] = { 0, 1, 1, 4 };
    struct loaded model;
    int32_t rank, n_layers;

    load(&model, "jina-v3-hub-lora");
    rank = 4;
    n_layers = gsv_spec_facts(model.spec)->n_layers;
    run_batch(&model, adapters, MAX_TEXTS);
    cr_expect_eq(count(GSV_PHASE_EMBED, -1, true), 2, "%d", count(GSV_PHASE_EMBED, -1, true));
    for (int32_t layer = 0; layer < n_layers; layer++) {
        cr_expect_eq(count(GSV_PHASE_QKV, layer, true), 5);
        cr_expect_eq(count(GSV_PHASE_OUTPUT, layer, true), 5);
        cr_expect_eq(count(GSV_PHASE_EXPAND, layer, true), 6);
        cr_expect_eq(count(GSV_PHASE_CONTRACT, layer, true), 5);
        cr_expect_eq(count_rows(GSV_PHASE_QKV, layer, rank), 3 * N_TOKENS);
        cr_expect_eq(n_attentions, n_layers);
    }
    run_batch(&model, adapters + 1, MAX_TEXTS - 1);
    cr_expect_eq(count(GSV_PHASE_QKV, 0, true), 5);
    cr_expect_eq(count(GSV_PHASE_EXPAND, 0, true), 5);
    run_batch(&model, (const int32_t[MAX_TEXTS]){ 0 }, MAX_TEXTS);
    cr_expect_eq(count(GSV_PHASE_QKV, 0, true), 1);
    unload(&model);
}

/* Products of a layer with experts: the router, the bias in every row, two for each expert. */
Test(profile_stages, experts_belong_to_the_feed_forward_network)
{
    struct loaded model;
    int32_t n_layers, n_mixtures = 0;

    load(&model, "nomic-moe-hub");
    n_layers = gsv_spec_facts(model.spec)->n_layers;
    run(&model, 0);
    cr_expect_eq(last_layer(), n_layers - 1);
    for (int32_t layer = 0; layer < n_layers; layer++) {
        const int expand = count(GSV_PHASE_EXPAND, layer, true);
        const int contract = count(GSV_PHASE_CONTRACT, layer, true);

        cr_expect_eq(count(GSV_PHASE_QKV, layer, true), 1);
        cr_expect_eq(count(GSV_PHASE_OUTPUT, layer, true), 1);
        n_mixtures += contract > 1;
        cr_expect_eq(expand, contract > 1 ? contract + 2 : 1, "layer %d: %d, %d", layer, expand,
                     contract);
    }
    cr_expect_geq(n_mixtures, 1);
    unload(&model);
}

Test(profile_stages, a_layer_can_be_left_out)
{
    struct loaded model;

    load(&model, "bert");
    run(&model, 0);
    cr_expect_eq(n_attentions, gsv_spec_facts(model.spec)->n_layers);
    profiler.leaves_out = true;
    profiler.left_out = GSV_PROFILE_STAGES;
    profiler.left_out_layer = 1;
    run(&model, 0);
    cr_expect_eq(n_attentions, gsv_spec_facts(model.spec)->n_layers - 1);
    profiler.left_out = gsv_profile_stage_of(GSV_PHASE_ATTENTION);
    profiler.left_out_layer = -1;
    run(&model, 0);
    cr_expect_eq(n_attentions, 0);
    unload(&model);
}
