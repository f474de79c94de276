/*
 * test_pipeline.c - models whose layers several devices share, on the emulator and on the CPU's
 * backend.
 *
 * The bits are those of the same model on one device, because the same kernels read the same bytes.
 * Streams run late and in random order, so that a missing wait shows.
 */
#include "kernels/kernels.h"
#include "tests/base/sanitized.h"
#include "tests/cudaemu/emu.h"
#include "tests/kernels_cuda/harness.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = 3, MAX_TOKENS = 256, MAX_TEXTS = 32, N_BATCHES = 5 };

/* More devices than one: before the first call of CUDA in the process. */
static const struct gpuserve_backend *several_devices(void)
{
    gsv_emu_set_devices(MAX_STAGES, 0);
    return cuda_backend();
}

static void open_divided(struct loaded *model, const char *name,
                         const struct gpuserve_backend *backend, uint32_t dtype,
                         const struct gsv_layer_range *ranges, int32_t n)
{
    const struct load_options options = { .backend = backend,
                                          .dtype = dtype,
                                          .max_tokens = MAX_TOKENS,
                                          .max_sequences = MAX_TEXTS,
                                          .ranges = ranges,
                                          .n_ranges = n };
    char path[1024], below[128];

    snprintf(below, sizeof(below), "models/%.95s", name);
    snprintf(path, sizeof(path), "%s", test_data(below));
    load_model(model, path, &options);
}

static struct texts texts_of(const char *name, size_t least)
{
    char reference[128];
    struct texts texts;

    snprintf(reference, sizeof(reference), "models/%.95s/reference.safetensors", name);
    texts = read_texts(test_data(reference));
    cr_assert_geq(texts.n, least, "%s", name);
    return texts;
}

/* ---------------------------------------------------------------------------------- same bits */

static struct gsv_run main_run(const struct gsv_spec_facts *facts)
{
    return (struct gsv_run){ .task = facts->dim > 0          ? GPUSERVE_TASK_EMBED
                                     : gsv_classifies(facts) ? GPUSERVE_TASK_CLASSIFY
                                                             : GPUSERVE_TASK_TOKEN_VECTORS,
                             .dimensions = facts->dim };
}

/* The rows of five batches, of which all but the second are equal: the last ones are replayed. */
static float *run_often(const struct loaded *model, const struct texts *texts, size_t *n)
{
    const struct gsv_spec_facts *facts = gsv_spec_facts(model->spec);
    struct gsv_run run = main_run(facts);
    const size_t columns = (size_t)gsv_run_columns(facts, &run);
    float *rows;

    cr_assert(!gsv_is_by_token(run.task));
    *n = N_BATCHES * N_TEXTS * columns;
    rows = calloc(*n, sizeof(*rows));
    for (size_t i = 0; i < N_BATCHES; i++) {
        run.output = rows + i * N_TEXTS * columns;
        run_texts(model, texts, i == 1 ? N_TEXTS : 0, N_TEXTS, &run);
    }
    return rows;
}

static void expect_bits(const char *name, const struct gpuserve_backend *backend, uint32_t dtype,
                        const struct gsv_layer_range *ranges, int32_t n_ranges, const float *want,
                        size_t n)
{
    struct texts texts = texts_of(name, 2 * N_TEXTS);
    struct loaded model;
    size_t again;
    float *got;

    open_divided(&model, name, backend, dtype, ranges, n_ranges);
    got = run_often(&model, &texts, &again);
    cr_expect_eq(again, n);
    cr_expect_eq(memcmp(got, want, n * sizeof(*got)), 0, "%s, dtype %u: %d devices, from layer %d",
                 name, dtype, n_ranges, ranges[1].first);
    free(got);
    unload_model(&model);
    free_texts(&texts);
}

/* In float16 each way to divide the layers among two devices and, if there are so many, among
 * three; in another number format, and under a sanitizer, one of each. */
static void compare(const char *name, const struct gpuserve_backend *backend, uint32_t dtype)
{
    const bool all = dtype == GPUSERVE_DTYPE_FLOAT16 && !IS_SANITIZED;
    struct texts texts = texts_of(name, 2 * N_TEXTS);
    struct loaded model;
    int32_t n_layers;
    size_t n;
    float *want;

    open_divided(&model, name, backend, dtype, NULL, 0);
    n_layers = gsv_pipeline_layers(model.spec);
    want = run_often(&model, &texts, &n);
    unload_model(&model);
    free_texts(&texts);
    cr_assert_geq(n_layers, 2, "%s", name);
    for (int32_t i = all ? 1 : n_layers / 2; i < (all ? n_layers : n_layers / 2 + 1); i++) {
        const struct gsv_layer_range two[] = { { 0, i }, { i, n_layers } };

        expect_bits(name, backend, dtype, two, 2, want, n);
        for (int32_t j = i + 1; j < n_layers; j += all ? 1 : n_layers) {
            const struct gsv_layer_range three[] = { { 0, i }, { i, j }, { j, n_layers } };

            expect_bits(name, backend, dtype, three, 3, want, n);
        }
    }
    free(want);
}

static const char *const names[] = {
    "modernbert",            /* four layers; a norm before each, a gated linear unit */
    "albert-groups",         /* two stored layers are used by four */
    "nomic-moe-hub-every-3", /* a layer of experts after layers of one network */
    "gemma3-older",          /* three layers with norms around each function */
    "st-weighted-layers",    /* the output of each layer counts */
    "bart-multi",            /* a decoder's layers follow */
    "mobilebert",            /* bottleneck layers */
    "deberta-v2-conv",       /* a convolution beside the first layer; one index of positions */
    "qwen3-embedding",       /* a causal model; the last token is pooled */
};
#define N_NAMES (sizeof(names) / sizeof(names[0]))

Test(pipeline, bits_are_those_of_one_device)
{
    const struct gpuserve_backend *cuda = several_devices();

    for (size_t i = 0; i < (FOR_RACES ? 2 : N_NAMES); i++) {
        compare(names[i], cuda, GPUSERVE_DTYPE_FLOAT16);
        if (!IS_SANITIZED)
            compare(names[i], cuda, i % 3 == 2 ? GPUSERVE_DTYPE_BFLOAT16 : GPUSERVE_DTYPE_FLOAT32);
    }
}

/* Operations run when a call waits for them, in an order that the seed shuffles. */
Test(pipeline, a_device_waits_for_the_rows_of_the_one_before)
{
    const struct gpuserve_backend *cuda = several_devices();

    for (uint64_t seed = 1; seed <= (IS_SANITIZED ? 1 : 2); seed++) {
        gsv_emu_set_late(1);
        gsv_emu_seed(seed);
        compare("modernbert", cuda, GPUSERVE_DTYPE_FLOAT16);
    }
    gsv_emu_set_late(0);
    gsv_emu_seed(0);
}

/* Rows of the main task, or token vectors. */
static float *run_task(const struct loaded *model, const struct texts *texts, bool by_token,
                       size_t *n)
{
    const struct gsv_spec_facts *facts = gsv_spec_facts(model->spec);
    struct gsv_run run = main_run(facts);
    size_t n_rows = texts->n;

    if (by_token)
        run = (struct gsv_run){ .task = GPUSERVE_TASK_TOKEN_VECTORS };
    if (gsv_is_by_token(run.task)) {
        n_rows = 0;
        for (size_t i = 0; i < texts->n; i++)
            n_rows += (size_t)texts->n_tokens[i];
    }
    *n = n_rows * (size_t)gsv_run_columns(facts, &run);
    return run_all(model, texts, run);
}

/* False for a model of one layer, or of none. */
static bool compare_halves(const char *name)
{
    struct texts texts = texts_of(name, 1);
    struct loaded whole, halves;
    struct gsv_layer_range ranges[2];
    int32_t n_layers;

    open_divided(&whole, name, gsv_backend_cpu(), GPUSERVE_DTYPE_FLOAT32, NULL, 0);
    n_layers = gsv_pipeline_layers(whole.spec);
    if (n_layers >= 2) {
        ranges[0] = (struct gsv_layer_range){ 0, n_layers / 2 };
        ranges[1] = (struct gsv_layer_range){ n_layers / 2, n_layers };
        open_divided(&halves, name, gsv_backend_cpu(), GPUSERVE_DTYPE_FLOAT32, ranges, 2);
        texts.n = texts.n < N_TEXTS ? texts.n : N_TEXTS;
        for (int i = 0; i < 2; i++) {
            size_t n, again;
            float *want = run_task(&whole, &texts, i == 1, &n);
            float *got = run_task(&halves, &texts, i == 1, &again);

            cr_expect_eq(n, again);
            cr_expect_eq(memcmp(got, want, n * sizeof(*got)), 0, "%s", name);
            free(want);
            free(got);
        }
        unload_model(&halves);
    }
    unload_model(&whole);
    free_texts(&texts);
    return n_layers >= 2;
}

/* Every family has the items of its layers where they are read. */
Test(pipeline, of_every_family_on_a_host_backend)
{
    static struct model_name families[MAX_MODELS];
    const size_t n = read_families(families);
    size_t n_compared = 0;

    for (size_t i = 0; i < n; i += FOR_RACES ? 14 : IS_SANITIZED ? 7 : 1) {
        char reason[96];

        if (!is_refused(families[i].text, reason))
            n_compared += compare_halves(families[i].text);
    }
    cr_expect_geq(n_compared, FOR_RACES ? 1 : IS_SANITIZED ? 5 : 70, "%zu of %zu", n_compared, n);
}

/* Batches of one shape, three times in turn: of the base, of an adapter, of several in one batch. A
 * recording of one is not replayed for another. */
static float *run_adapters(const struct loaded *model, const struct texts *texts, size_t *n)
{
    static const int32_t of[][N_TEXTS] = { { 0, 0, 0 }, { 1, 1, 1 }, { 2, 2, 2 },
                                           { 0, 1, 2 }, { 1, 1, 2 }, { 1, 2, 2 } };
    const size_t n_batches = 3 * sizeof(of) / sizeof(of[0]);
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED,
                           .dimensions = gsv_spec_facts(model->spec)->dim };
    const size_t columns = (size_t)run.dimensions;
    float *rows = calloc(n_batches * N_TEXTS * columns, sizeof(*rows));

    *n = n_batches * N_TEXTS * columns;
    for (size_t i = 0; i < n_batches; i++) {
        run.adapters = of[i % (n_batches / 3)];
        run.output = rows + i * N_TEXTS * columns;
        run_texts(model, texts, 0, N_TEXTS, &run);
    }
    return rows;
}

Test(pipeline, adapters_of_texts)
{
    const struct gsv_layer_range ranges[] = { { 0, 1 }, { 1, 2 } };
    struct gsv_adapter_dirs adapters = { .n = 0 };
    struct texts texts = texts_of("bert", N_TEXTS);
    const struct gpuserve_backend *cuda = several_devices();
    float *rows[2];
    char path[1024];
    size_t n;

    snprintf(path, sizeof(path), "%s", test_data("models/bert"));
    add_adapter(&adapters, "attention");
    add_adapter(&adapters, "words");
    for (int i = 0; i < 2; i++) {
        const struct load_options options = { .backend = cuda,
                                              .dtype = GPUSERVE_DTYPE_FLOAT16,
                                              .max_tokens = MAX_TOKENS,
                                              .adapters = &adapters,
                                              .ranges = i == 1 ? ranges : NULL,
                                              .n_ranges = i == 1 ? 2 : 0 };
        struct loaded model;

        load_model(&model, path, &options);
        cr_assert_eq(gsv_pipeline_layers(model.spec), 2);
        rows[i] = run_adapters(&model, &texts, &n);
        unload_model(&model);
    }
    cr_expect_eq(memcmp(rows[0], rows[1], n * sizeof(float)), 0);
    cr_expect_neq(memcmp(rows[0], rows[0] + n / 18, n / 18 * sizeof(float)), 0);
    free(rows[0]);
    free(rows[1]);
    close_adapters(&adapters);
    free_texts(&texts);
}

/* Further outputs of a batch are computed from the rows on the last device. */
Test(pipeline, several_outputs_of_a_batch)
{
    const struct gsv_layer_range ranges[] = { { 0, 3 }, { 3, 4 } };
    struct texts texts = texts_of("modernbert", N_TEXTS);
    const struct gpuserve_backend *cuda = several_devices();
    struct gsv_emu_counters before, after;
    float want[N_TEXTS * 1024], got[N_TEXTS * 1024];
    struct loaded model;
    struct gsv_run run;

    open_divided(&model, "modernbert", cuda, GPUSERVE_DTYPE_FLOAT16, ranges, 2);
    run = main_run(gsv_spec_facts(model.spec));
    run.output = want;
    run_texts(&model, &texts, 0, N_TEXTS, &run);
    run.output = got;
    run.again = true;
    gsv_emu_get_counters(&before);
    run_texts(&model, &texts, 0, N_TEXTS, &run);
    gsv_emu_get_counters(&after);
    cr_expect_eq(memcmp(got, want, N_TEXTS * (size_t)run.dimensions * sizeof(float)), 0);
    cr_expect_eq(after.copies_out - before.copies_out, 1, "the result alone");
    unload_model(&model);
    free_texts(&texts);
}

/* ------------------------------------------------------------------------------------ the way */

/* A batch is uploaded to each device, and copies the rows of a layer with a norm before it, hidden
 * and normalized, from the first device to the second. Shapes that come again are replayed. */
Test(pipeline, copies_of_a_batch)
{
    const struct gsv_layer_range ranges[] = { { 0, 2 }, { 2, 4 } };
    struct texts texts = texts_of("modernbert", 2 * N_TEXTS);
    const struct gpuserve_backend *cuda = several_devices();
    struct gsv_emu_counters before, after;
    struct loaded model;
    size_t n;

    open_divided(&model, "modernbert", cuda, GPUSERVE_DTYPE_FLOAT16, ranges, 2);
    free(run_often(&model, &texts, &n));
    gsv_emu_get_counters(&before);
    free(run_often(&model, &texts, &n));
    gsv_emu_get_counters(&after);
    cr_expect_eq(after.copies_in - before.copies_in, N_BATCHES * (2 + 2));
    cr_expect_eq(after.graph_launches - before.graph_launches, N_BATCHES * 2);
    cr_expect_eq(after.allocations, before.allocations);
    cr_expect_eq(after.host_allocations, before.host_allocations);
    unload_model(&model);
    free_texts(&texts);
}

/* ------------------------------------------------------------------------------------- memory */

static uint64_t free_bytes(const struct gpuserve_backend *backend, int32_t index)
{
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };

    cr_assert_eq(backend->device_facts(index, &facts, NULL), GPUSERVE_OK);
    return facts.memory_free_bytes;
}

static void expect_memory(const char *name, const struct gsv_layer_range *ranges, int32_t n)
{
    struct gsv_exec_options options = {
        .dtype = GPUSERVE_DTYPE_FLOAT16,
        .n_threads = 1,
        .max_tokens = MAX_TOKENS,
        .max_sequences = MAX_TEXTS,
    };
    const struct gpuserve_backend *cuda = several_devices();
    uint64_t activations, stream, want, weights[MAX_STAGES], used[MAX_STAGES];
    struct gsv_emu_counters before, c;
    struct loaded model;

    gsv_emu_get_counters(&before);
    for (int32_t i = 0; i < n; i++)
        used[i] = free_bytes(cuda, i);
    open_divided(&model, name, cuda, GPUSERVE_DTYPE_FLOAT16, ranges, n);
    gsv_emu_get_counters(&c);
    options.max_seqlen = gsv_spec_facts(model.spec)->max_tokens;
    gsv_exec_bytes(model.spec, cuda, &options, &activations, &stream);
    want =
        gsv_pipeline_host_bytes(model.spec, cuda, &options) + (uint64_t)n * (activations + stream);
    for (int32_t i = 0; i < n; i++) {
        weights[i] = gsv_range_bytes(model.spec, cuda, GPUSERVE_DTYPE_FLOAT16, ranges[i]);
        want += weights[i];
        used[i] -= free_bytes(cuda, i);
    }
    cr_expect_eq(c.live_bytes + c.live_host_bytes - before.live_bytes - before.live_host_bytes,
                 want, "%s: %llu, %llu", name,
                 (unsigned long long)(c.live_bytes + c.live_host_bytes - before.live_bytes -
                                      before.live_host_bytes),
                 (unsigned long long)want);
    for (int32_t i = 1; i < n; i++) /* all but the weights is equal */
        cr_expect_eq(used[i] - weights[i], used[0] - weights[0], "%s: device %d", name, i);
    unload_model(&model);
    gsv_emu_get_counters(&c);
    cr_expect_eq(c.live_bytes, before.live_bytes);
    cr_expect_eq(c.live_host_bytes, before.live_host_bytes);
}

Test(pipeline, memory_is_what_is_told)
{
    static const struct gsv_layer_range two[] = { { 0, 1 }, { 1, 4 } },
                                        three[] = { { 0, 1 }, { 1, 3 }, { 3, 4 } };

    expect_memory("modernbert", two, 2);
    expect_memory("modernbert", three, 3);
    expect_memory("albert-groups", three, 3);
}

/* --------------------------------------------------------------------------------- the ranges */

static uint64_t range_bytes(const struct loaded *model, int32_t first, int32_t end)
{
    const struct gsv_layer_range range = { first, end };

    return gsv_range_bytes(model->spec, model->backend, GPUSERVE_DTYPE_FLOAT32, range);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The smallest among all ways of the largest bytes of a device. */
static uint64_t least_of(const struct loaded *model, int32_t n_layers, int32_t n)
{
    uint64_t least = UINT64_MAX;

    for (int32_t i = 1; i < n_layers; i++)
        for (int32_t j = n == 2 ? n_layers : i + 1; j < (n == 2 ? n_layers + 1 : n_layers); j++) {
            uint64_t most = larger(range_bytes(model, 0, i), range_bytes(model, i, j));

            if (n == 3)
                most = larger(most, range_bytes(model, j, n_layers));
            least = most < least ? most : least;
        }
    return least;
}

static bool split(const struct loaded *model, const uint64_t *room, int32_t n,
                  struct gsv_layer_range *ranges)
{
    return gsv_pipeline_split(model->spec, model->backend, GPUSERVE_DTYPE_FLOAT32, room, n, ranges);
}

static void expect_ranges(const char *name)
{
    struct gsv_layer_range ranges[MAX_STAGES + 1];
    struct loaded model;
    int32_t n_layers;

    open_divided(&model, name, gsv_backend_cpu(), GPUSERVE_DTYPE_FLOAT32, NULL, 0);
    n_layers = gsv_pipeline_layers(model.spec);
    for (int32_t n = 2; n <= 3 && n <= n_layers; n++) {
        uint64_t most = 0;

        cr_expect(split(&model, NULL, n, ranges), "%s", name);
        for (int32_t i = 0; i < n; i++) {
            cr_expect_eq(ranges[i].first, i > 0 ? ranges[i - 1].end : 0);
            cr_expect_lt(ranges[i].first, ranges[i].end);
            most = larger(most, range_bytes(&model, ranges[i].first, ranges[i].end));
        }
        cr_expect_eq(ranges[n - 1].end, n_layers);
        cr_expect_eq(most, least_of(&model, n_layers, n), "%s: %d devices", name, n);
    }
    for (int32_t i = 1; i < n_layers; i++) { /* exactly the room of one way */
        uint64_t room[2] = { range_bytes(&model, 0, i), range_bytes(&model, i, n_layers) };

        cr_expect(split(&model, room, 2, ranges), "%s: %d", name, i);
        cr_expect_leq(range_bytes(&model, 0, ranges[0].end), room[0], "%s: %d", name, i);
        cr_expect_leq(range_bytes(&model, ranges[1].first, n_layers), room[1], "%s: %d", name, i);
        room[1] = UINT64_MAX;
        cr_expect(split(&model, room, 2, ranges));
        cr_expect_leq(range_bytes(&model, 0, ranges[0].end), room[0]);
    }
    cr_expect(!split(&model, (uint64_t[]){ range_bytes(&model, 0, 1) - 1, UINT64_MAX }, 2, ranges));
    cr_expect(!split(&model,
                     (uint64_t[]){ UINT64_MAX, range_bytes(&model, n_layers - 1, n_layers) - 1 }, 2,
                     ranges));
    cr_expect(!split(&model, NULL, n_layers + 1, ranges));
    unload_model(&model);
}

/* Models whose layers share no weights: shared ones count on each device, as they are there. */
Test(pipeline, ranges_are_balanced_and_fit)
{
    static const char *const divided[] = { "modernbert", "nomic-moe-hub-every-3", "gemma3-older",
                                           "bart-multi", "bart-single",           "mobilebert" };

    for (size_t i = 0; i < sizeof(divided) / sizeof(divided[0]); i++)
        expect_ranges(divided[i]);
}
