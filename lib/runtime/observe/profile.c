/*
 * profile.c - gpuserve_model_profile(): measures a model stage by stage.
 *
 *   plan -> budget -> load through a gsv_profiler -> warm-up -> rounds -> peak -> JSON
 *
 * Every round runs the same batch; the reported times are medians. On the CPU each operation is
 * timed. On an asynchronous device a stage's time is the batch time minus the time without that
 * stage. The model is loaded for this call only; one thread runs everything.
 */
#include "lib/runtime/observe/profile.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/models/load_steps.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_TEXT_TOKENS 128
#define DEFAULT_ROUNDS 20
#define MAX_ROUNDS 10000
#define WARM_ROUNDS 2

static const char paragraph[] =
    "The harbour was quiet when the last ferry came in, and the men who had waited for it since "
    "noon carried the crates ashore without a word. Prices had risen again; nobody could say by "
    "how much, but the grocer wrote new figures on his slate every morning. ";

/* ------------------------------------------------------------------------------------ options */

static gpuserve_status check_texts(const gpuserve_profile_options *options, gpuserve_error *error)
{
    if (options->texts && options->n_texts == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`texts` is set, but n_texts is 0");
    for (uint32_t i = 0; options->texts && i < options->n_texts; i++)
        if (!options->texts[i])
            return gsv_fail(error, GPUSERVE_E_INVALID, "text %u is NULL", i);
    return GPUSERVE_OK;
}

static gpuserve_status check_rounds(gpuserve_profile_options *options, gpuserve_error *error)
{
    if (options->rounds == 0)
        options->rounds = DEFAULT_ROUNDS;
    if (options->rounds > MAX_ROUNDS)
        return gsv_fail(error, GPUSERVE_E_INVALID, "rounds is %u, the limit is %d", options->rounds,
                        MAX_ROUNDS);
    if (options->timing > GPUSERVE_PROFILE_DIFFERENCES)
        return gsv_fail(error, GPUSERVE_E_INVALID, "timing is %u, outside 0 to %d", options->timing,
                        GPUSERVE_PROFILE_DIFFERENCES);
    return GPUSERVE_OK;
}

static gpuserve_status check_options(struct gsv_profile *profile, gpuserve_error *error)
{
    gpuserve_profile_options *options = &profile->options;
    const struct gsv_plan *plan = &profile->plan;
    gpuserve_status st = check_rounds(options, error);
    uint32_t fit;

    if (st == GPUSERVE_OK)
        st = check_texts(options, error);
    if (st != GPUSERVE_OK)
        return st;
    profile->shape = plan->has_wide ? &plan->wide : &plan->narrow;
    if (options->text_tokens == 0)
        options->text_tokens = plan->max_tokens < DEFAULT_TEXT_TOKENS ? (uint32_t)plan->max_tokens
                                                                      : DEFAULT_TEXT_TOKENS;
    if (options->text_tokens > (uint32_t)plan->max_tokens || options->text_tokens < 3)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "text_tokens is %u, outside 3 to %d (the model's limit)",
                        options->text_tokens, plan->max_tokens);
    fit = (uint32_t)profile->shape->max_tokens / options->text_tokens;
    fit = fit < 1 ? 1 : fit;
    if (fit > (uint32_t)profile->shape->max_sequences)
        fit = (uint32_t)profile->shape->max_sequences;
    if (options->n_texts == 0)
        options->n_texts = fit;
    if (options->n_texts > fit)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "%u texts of %u tokens exceed a batch of %d tokens and %d texts",
                        options->n_texts, options->text_tokens, profile->shape->max_tokens,
                        profile->shape->max_sequences);
    profile->by_difference = options->timing == GPUSERVE_PROFILE_DIFFERENCES ||
                             (options->timing == GPUSERVE_PROFILE_DEFAULT && !plan->device.is_cpu);
    return GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------------- loading */

static gpuserve_status load(struct gsv_profile *profile, gpuserve_error *error)
{
    const struct gsv_plan *plan = &profile->plan;
    struct gsv_net_options options = {
        .dtype = plan->dtype,
        .n_threads = plan->n_workers,
    };
    struct gsv_calibration calibration = { 0 }, probes = { 0 };
    gpuserve_status st;

    profile->profiler = gsv_alloc_array(1, sizeof(*profile->profiler));
    if (!profile->profiler)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for profiling");
    gsv_profiler_init(profile->profiler, plan->device.backend);
    st = gsv_profiler_open(profile->profiler, &profile->device, plan->device.facts.index, error);
    if (st == GPUSERVE_OK && plan->dtype == GPUSERVE_DTYPE_INT8) {
        st = gsv_calibration_make_int8(&calibration, &probes, plan, error);
        options.calibration = &calibration.batch;
        options.probes = &probes.batch;
    }
    options.observer = gsv_profiler_observer(profile->profiler);
    if (st == GPUSERVE_OK)
        st = gsv_net_load(&profile->net, plan->spec, &profile->profiler->table, profile->device,
                          &options, error);
    gsv_calibration_reset(&calibration);
    gsv_calibration_reset(&probes);
    if (st == GPUSERVE_OK)
        st = gsv_exec_create(&profile->work, profile->net, profile->shape, error);
    return st;
}

static gpuserve_status make_buffers(struct gsv_profile *profile, gpuserve_error *error)
{
    const size_t tokens = (size_t)profile->options.n_texts * profile->options.text_tokens;
    const size_t bytes = (size_t)profile->options.text_tokens * 16 + sizeof(paragraph);

    profile->ids = gsv_alloc_array(tokens, sizeof(int32_t));
    profile->type_ids = gsv_alloc_array(tokens, sizeof(int32_t));
    profile->positions = gsv_alloc_array(tokens, sizeof(int32_t));
    profile->cu_seqlens = gsv_alloc_array(profile->options.n_texts + 1u, sizeof(int32_t));
    profile->output = gsv_alloc_array(gsv_plan_output_floats(&profile->plan), sizeof(float));
    profile->text = gsv_alloc_array(bytes, 1);
    profile->events = gsv_alloc_array(GSV_PROFILE_EVENTS, sizeof(*profile->events));
    if (!profile->ids || !profile->type_ids || !profile->positions || !profile->cu_seqlens ||
        !profile->output || !profile->text || !profile->events)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a batch of %zu tokens", tokens);
    for (size_t at = 0; at + 1 < bytes; at++)
        profile->text[at] = paragraph[at % (sizeof(paragraph) - 1)];
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------ measuring */

/* Tokenizes every text and packs the tokens without padding, as requests and workers do. */
static gpuserve_status make_batch(struct gsv_profile *profile, struct gsv_encoding *encoding,
                                  double *tokenize_ns, double *pack_ns, gpuserve_error *error)
{
    const struct gsv_encode_options how = { .max_tokens = profile->options.text_tokens };
    const bool has_types = profile->plan.facts->type_vocab_size > 1;
    int32_t at = 0, longest = 0;
    uint64_t packed = 0;

    profile->tokenize_begin = gsv_now_ns();
    for (uint32_t i = 0; i < profile->options.n_texts; i++) {
        const char *text = profile->options.texts ? profile->options.texts[i] : profile->text;
        const gpuserve_status st = gsv_tokenizer_encode(profile->plan.tokenizer, encoding, text,
                                                        strlen(text), NULL, 0, &how, error);
        const uint64_t begin = gsv_now_ns();

        if (st != GPUSERVE_OK)
            return st;
        for (size_t j = 0; j < encoding->n; j++) {
            profile->ids[at + (int32_t)j] = encoding->ids[j];
            profile->type_ids[at + (int32_t)j] = has_types ? encoding->type_ids[j] : 0;
        }
        gsv_positions(profile->plan.facts, profile->ids + at, encoding->n, profile->positions + at);
        at += (int32_t)encoding->n;
        longest = (int32_t)encoding->n > longest ? (int32_t)encoding->n : longest;
        profile->cu_seqlens[i + 1] = at;
        packed += gsv_now_ns() - begin;
    }
    profile->pack_end = gsv_now_ns();
    profile->tokenize_end = profile->pack_end - packed;
    *tokenize_ns = (double)(profile->tokenize_end - profile->tokenize_begin);
    *pack_ns = (double)packed;
    profile->batch = (struct gpuserve_host_batch){
        .n_tokens = at,
        .n_sequences = (int32_t)profile->options.n_texts,
        .max_seqlen = longest,
        .ids = profile->ids,
        .type_ids = profile->type_ids,
        .positions = profile->positions,
        .cu_seqlens = profile->cu_seqlens,
    };
    return GPUSERVE_OK;
}

static gpuserve_status run_batch(struct gsv_profile *profile, double *ns, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = profile->plan.facts;
    const bool embeds = facts->dim > 0 && facts->n_labels == 0;
    const struct gsv_run run = {
        .task = embeds                 ? GPUSERVE_TASK_EMBED
                : facts->labels_tokens ? GPUSERVE_TASK_TOKEN_LABELS
                : facts->n_labels > 0  ? GPUSERVE_TASK_CLASSIFY
                : facts->is_sparse     ? GPUSERVE_TASK_SPARSE
                                       : GPUSERVE_TASK_TOKEN_VECTORS,
        .dimensions = facts->dim,
        .normalize = facts->normalize,
        .score = facts->score ? (uint32_t)facts->score : GPUSERVE_SCORE_RAW,
        .output = profile->output,
    };
    const uint64_t begin = gsv_now_ns();
    const gpuserve_status st = gsv_net_run(profile->work, &profile->batch, &run, error);

    *ns = (double)(gsv_now_ns() - begin);
    return st;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void count_product(struct gsv_profile *profile, const struct gsv_profile_event *event,
                          double ns)
{
    struct gsv_profile_product *p = profile->products;

    if (event->columns == 0)
        return;
    while (p < profile->products + profile->n_products &&
           (p->stage != event->stage || p->rows != event->rows || p->columns != event->columns ||
            p->inner != event->inner))
        p++;
    if (p == profile->products + GSV_PROFILE_PRODUCTS)
        return;
    if (p == profile->products + profile->n_products) {
        p->stage = event->stage;
        p->rows = event->rows;
        p->columns = event->columns;
        p->inner = event->inner;
        profile->n_products++;
    }
    p->calls++;
    p->ns += ns;
    p->flops += event->flops;
}

/* Adds an event once: counts that are equal in every round, and the time `ns`. */
static void count_event(struct gsv_profile *profile, const struct gsv_profile_event *event,
                        double ns)
{
    profile->stage_ns[event->stage] += ns;
    profile->stage_flops[event->stage] += event->flops;
    profile->stage_calls[event->stage]++;
    if (event->layer >= 0 && event->layer < GSV_PROFILE_MAX_LAYERS) {
        profile->layer_ns[event->layer] += ns;
        if (event->layer >= profile->n_layers)
            profile->n_layers = event->layer + 1;
    }
    count_product(profile, event, ns);
}

static void keep_events(struct gsv_profile *profile)
{
    profile->n_events = profile->profiler->n_events;
    memcpy(profile->events, profile->profiler->events,
           profile->n_events * sizeof(*profile->events));
    profile->batch_end = gsv_now_ns();
}

/* Times of tokenization, packing and whole batches, per round. */
struct rounds {
    double *tokenize, *pack, *batch; /* [n] */
    double *events; /* [events or variants, n]; capacity for GSV_PROFILE_EVENTS events plus a
                       variant per layer */
    size_t n;
};

static void rounds_reset(struct rounds *rounds)
{
    free(rounds->tokenize);
    free(rounds->pack);
    free(rounds->batch);
    free(rounds->events);
}

static gpuserve_status rounds_init(struct rounds *rounds, size_t n, size_t n_events,
                                   gpuserve_error *error)
{
    rounds->n = n;
    rounds->tokenize = gsv_alloc_array(n, sizeof(double));
    rounds->pack = gsv_alloc_array(n, sizeof(double));
    rounds->batch = gsv_alloc_array(n, sizeof(double));
    rounds->events = gsv_alloc_array(n * n_events, sizeof(double));
    if (rounds->tokenize && rounds->pack && rounds->batch && rounds->events)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu rounds", n);
}

static gpuserve_status whole_round(struct gsv_profile *profile, struct gsv_encoding *encoding,
                                   struct rounds *rounds, size_t round, gpuserve_error *error)
{
    gpuserve_status st =
        make_batch(profile, encoding, &rounds->tokenize[round], &rounds->pack[round], error);

    if (st == GPUSERVE_OK)
        st = run_batch(profile, &rounds->batch[round], error);
    if (st == GPUSERVE_OK)
        keep_events(profile);
    return st;
}

/* On the CPU: the time of each operation. */
static gpuserve_status measure_operations(struct gsv_profile *profile,
                                          struct gsv_encoding *encoding, struct rounds *rounds,
                                          gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (size_t round = 0; round < rounds->n && st == GPUSERVE_OK; round++) {
        st = whole_round(profile, encoding, rounds, round, error);
        for (size_t i = 0; i < profile->n_events; i++)
            rounds->events[i * rounds->n + round] =
                (double)(profile->events[i].end_ns - profile->events[i].begin_ns);
    }
    for (size_t i = 0; i < profile->n_events && st == GPUSERVE_OK; i++)
        count_event(profile, &profile->events[i],
                    median(rounds->events + i * rounds->n, rounds->n));
    return st;
}

/* On devices: the time a batch saves without a stage or without a layer. The variants alternate
 * within a round, so that a slow period affects all of them. */
static gpuserve_status measure_differences(struct gsv_profile *profile,
                                           struct gsv_encoding *encoding, struct rounds *rounds,
                                           gpuserve_error *error)
{
    struct gsv_profiler *profiler = profile->profiler;
    const size_t n_variants = GSV_PROFILE_STAGES + (size_t)profile->n_layers;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t round = 0; round < rounds->n && st == GPUSERVE_OK; round++) {
        st = whole_round(profile, encoding, rounds, round, error);
        for (size_t i = 0; i < n_variants && st == GPUSERVE_OK; i++) {
            double *ns = &rounds->events[i * rounds->n + round];
            const bool is_layer = i >= GSV_PROFILE_STAGES;

            if (!is_layer && !gsv_profile_has(profile, (enum gsv_profile_stage)i))
                continue;
            profiler->leaves_out = true;
            profiler->left_out = is_layer ? GSV_PROFILE_STAGES : (enum gsv_profile_stage)i;
            profiler->left_out_layer = is_layer ? (int32_t)(i - GSV_PROFILE_STAGES) : -1;
            st = run_batch(profile, ns, error);
            *ns = rounds->batch[round] - *ns;
            profiler->leaves_out = false;
        }
    }
    if (st != GPUSERVE_OK)
        return st;
    for (size_t i = 0; i < n_variants; i++) {
        const double ns = median(rounds->events + i * rounds->n, rounds->n);

        if (i < GSV_PROFILE_STAGES)
            profile->stage_ns[i] = ns > 0 ? ns : 0;
        else
            profile->layer_ns[i - GSV_PROFILE_STAGES] = ns > 0 ? ns : 0;
    }
    return st;
}

/* Distributes a stage's time over its products in proportion to their operations. */
static void share_out(struct gsv_profile *profile)
{
    for (size_t i = 0; i < profile->n_products; i++) {
        struct gsv_profile_product *p = &profile->products[i];
        const double flops = profile->stage_flops[p->stage];

        p->ns = flops > 0 ? profile->stage_ns[p->stage] * p->flops / flops : 0;
    }
}

static gpuserve_status measure(struct gsv_profile *profile, gpuserve_error *error)
{
    struct gsv_encoding encoding = { 0 };
    struct rounds rounds = { 0 };
    double unused[2], ns;
    gpuserve_status st = make_batch(profile, &encoding, &unused[0], &unused[1], error);

    for (int i = 0; i < WARM_ROUNDS && st == GPUSERVE_OK; i++) {
        st = run_batch(profile, &ns, error);
        if (i == 0)
            keep_events(profile); /* later batches may replay a graph, which issues no operations */
    }
    if (st == GPUSERVE_OK)
        st = rounds_init(&rounds, profile->options.rounds,
                         GSV_PROFILE_EVENTS + GSV_PROFILE_MAX_LAYERS, error);
    if (st == GPUSERVE_OK && profile->by_difference) {
        for (size_t i = 0; i < profile->n_events; i++)
            count_event(profile, &profile->events[i], 0);
        st = measure_differences(profile, &encoding, &rounds, error);
        share_out(profile);
    } else if (st == GPUSERVE_OK) {
        st = measure_operations(profile, &encoding, &rounds, error);
    }
    if (st == GPUSERVE_OK) {
        profile->tokenize_ns = median(rounds.tokenize, rounds.n);
        profile->pack_ns = median(rounds.pack, rounds.n);
        profile->batch_ns = median(rounds.batch, rounds.n);
    }
    rounds_reset(&rounds);
    gsv_encoding_reset(&encoding);
    return st;
}

/* -------------------------------------------------------------------------------------- public */

static void profile_reset(struct gsv_profile *profile)
{
    gsv_exec_free(&profile->work);
    gsv_net_free(&profile->net);
    if (profile->device)
        profile->profiler->table.device_close(&profile->device);
    if (profile->profiler)
        gsv_profiler_reset(profile->profiler);
    free(profile->profiler);
    free(profile->ids);
    free(profile->type_ids);
    free(profile->positions);
    free(profile->cu_seqlens);
    free(profile->output);
    free(profile->text);
    free(profile->events);
    gsv_budget_release(profile->context, &profile->reservation);
    gsv_plan_reset(&profile->plan);
    free(profile);
}

static gpuserve_status run(struct gsv_profile *profile, const gpuserve_model_options *options,
                           gpuserve_error *error)
{
    gpuserve_status st =
        gsv_plan_read(&profile->plan, profile->context, profile->path, options, error);

    if (st == GPUSERVE_OK)
        st = gsv_plan_size(&profile->plan, profile->context, options, error);
    if (st == GPUSERVE_OK && gsv_plan_is_pipeline(&profile->plan))
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "a profile is that of one device: pipeline is not supported");
    if (st == GPUSERVE_OK)
        st = check_options(profile, error);
    if (st == GPUSERVE_OK)
        st = gsv_budget_reserve(profile->context, &profile->plan, profile->path, 0,
                                &profile->reservation, error);
    if (st == GPUSERVE_OK)
        st = load(profile, error);
    if (st == GPUSERVE_OK)
        st = make_buffers(profile, error);
    if (st == GPUSERVE_OK)
        st = measure(profile, error);
    return st == GPUSERVE_OK ? gsv_profile_peak(profile, error) : st;
}

GPUSERVE_API gpuserve_status gpuserve_model_profile(gpuserve_context *context, const char *path,
                                                    const gpuserve_model_options *given,
                                                    const gpuserve_profile_options *how,
                                                    gpuserve_text_fn write, void *user,
                                                    gpuserve_error *error)
{
    gpuserve_model_options options;
    struct gsv_profile *profile;
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK && (!path || !write))
        st = gsv_fail(error, GPUSERVE_E_INVALID, "%s is NULL", path ? "`write`" : "`model`");
    if (st == GPUSERVE_OK)
        st = gsv_read_model_options(&options, given, error);
    if (st != GPUSERVE_OK)
        return st;
    profile = gsv_alloc_array(1, sizeof(*profile));
    if (!profile)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for profiling");
    profile->context = context;
    profile->path = path;
    st = gsv_read_struct(&profile->options, sizeof(profile->options), how,
                         "gpuserve_profile_options", error);
    if (st == GPUSERVE_OK)
        st = run(profile, &options, error);
    if (st == GPUSERVE_OK)
        st = gsv_profile_write(profile, write, user, error);
    profile_reset(profile);
    return st;
}
