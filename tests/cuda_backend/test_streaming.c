/*
 * test_streaming.c - weight streaming: models whose last layers visit the device in each batch, on
 * the emulator and on the CPU's backend.
 *
 * The bits are those of the same model with all weights on the device, because the same kernels
 * read the same bytes. Streams run late and in random order, so that a missing wait shows.
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

enum { N_TEXTS = 3, MAX_TOKENS = 256 };

static void open_streamed(struct loaded *model, const char *name,
                          const struct gpuserve_backend *backend, uint32_t dtype,
                          int32_t n_streamed)
{
    const struct load_options options = {
        .backend = backend, .dtype = dtype, .max_tokens = MAX_TOKENS, .n_streamed = n_streamed
    };
    char path[1024], below[64];

    snprintf(below, sizeof(below), "models/%s", name);
    snprintf(path, sizeof(path), "%s", test_data(below));
    load_model(model, path, &options);
}

/* The rows of three batches; the first and the last one are equal. */
static float *run_thrice(const struct loaded *model, const struct texts *texts, size_t *n)
{
    const struct gsv_spec_facts *facts = gsv_spec_facts(model->spec);
    struct gsv_run run = { .task = facts->dim > 0 ? GPUSERVE_TASK_EMBED : GPUSERVE_TASK_CLASSIFY,
                           .dimensions = facts->dim };
    const size_t columns = facts->dim > 0 ? (size_t)facts->dim : facts->n_labels;
    float *rows;

    *n = 3 * N_TEXTS * columns;
    rows = calloc(*n, sizeof(*rows));
    for (size_t i = 0; i < 3; i++) {
        run.output = rows + i * N_TEXTS * columns;
        run_texts(model, texts, i % 2 * N_TEXTS, N_TEXTS, &run);
    }
    return rows;
}

static struct texts texts_of(const char *name)
{
    char reference[96];
    struct texts texts;

    snprintf(reference, sizeof(reference), "models/%s/reference.safetensors", name);
    texts = read_texts(test_data(reference));
    cr_assert_geq(texts.n, 2 * N_TEXTS, "%s", name);
    return texts;
}

static const char *const names[] = {
    "modernbert",            /* four layers; a gated linear unit */
    "albert-groups",         /* two stored layers are used by four */
    "nomic-moe-hub-every-3", /* a layer of experts after layers of one network */
    "gemma3-older",          /* three layers with norms around each function */
    "st-weighted-layers",    /* the output of each layer counts */
    "bart-multi",            /* a decoder's layers follow */
};
#define N_NAMES (IS_SANITIZED ? 3 : sizeof(names) / sizeof(names[0]))

static void compare(const char *name, const struct gpuserve_backend *backend, uint32_t dtype)
{
    struct texts texts = texts_of(name);
    struct loaded model;
    int32_t n_layers;
    size_t n, again;
    float *want;

    open_streamed(&model, name, backend, dtype, 0);
    n_layers = gsv_stored_layers(model.spec);
    want = run_thrice(&model, &texts, &n);
    unload_model(&model);
    cr_assert_geq(n_layers, 2, "%s", name);
    for (int32_t n_streamed = IS_SANITIZED ? n_layers : 2; n_streamed <= n_layers; n_streamed++) {
        float *got;

        open_streamed(&model, name, backend, dtype, n_streamed);
        got = run_thrice(&model, &texts, &again);
        cr_expect_eq(again, n);
        cr_expect_eq(memcmp(got, want, n * sizeof(*got)), 0, "%s, dtype %u: %d of %d layers", name,
                     dtype, n_streamed, n_layers);
        free(got);
        unload_model(&model);
    }
    free(want);
    free_texts(&texts);
}

Test(streaming, bits_are_those_of_weights_on_the_device)
{
    static const uint32_t dtypes[] = { GPUSERVE_DTYPE_FLOAT16, GPUSERVE_DTYPE_FLOAT32,
                                       GPUSERVE_DTYPE_BFLOAT16, GPUSERVE_DTYPE_TF32 };

    for (size_t i = 0; i < N_NAMES; i++)
        compare(names[i], cuda_backend(), dtypes[i % 4]);
}

/* Operations run when a call waits for them, in an order that the seed shuffles: only the waits in
 * the streams keep a copy from a buffer in use, and a product from a buffer not yet filled. */
Test(streaming, copies_wait_for_the_layers_and_the_layers_for_copies)
{
    for (uint64_t seed = 1; seed <= (IS_SANITIZED ? 2 : 4); seed++) {
        gsv_emu_set_late(1);
        gsv_emu_seed(seed);
        compare("modernbert", cuda_backend(), GPUSERVE_DTYPE_FLOAT16);
    }
    gsv_emu_set_late(0);
    gsv_emu_seed(0);
}

Test(streaming, on_a_host_backend)
{
    for (size_t i = 0; i < N_NAMES; i++)
        compare(names[i], gsv_backend_cpu(), GPUSERVE_DTYPE_FLOAT32);
}

Test(streaming, memory_is_what_is_told)
{
    for (int32_t n_streamed = 0; n_streamed <= 4; n_streamed += n_streamed ? 1 : 3) {
        const struct gsv_exec_options options = {
            .dtype = GPUSERVE_DTYPE_FLOAT16,
            .n_threads = 1,
            .max_tokens = MAX_TOKENS,
            .max_sequences = 32,
            .max_seqlen = 64,
        };
        struct texts texts = texts_of("modernbert");
        struct gsv_streamed_bytes weights;
        uint64_t activations, stream;
        struct gsv_emu_counters before, c;
        struct loaded model;
        size_t n;

        gsv_emu_reset();
        gsv_emu_get_counters(&before);
        open_streamed(&model, "modernbert", cuda_backend(), GPUSERVE_DTYPE_FLOAT16, n_streamed);
        free(run_thrice(&model, &texts, &n));
        gsv_emu_get_counters(&c);
        weights =
            gsv_streamed_net_bytes(model.spec, cuda_backend(), GPUSERVE_DTYPE_FLOAT16, n_streamed);
        gsv_exec_bytes(model.spec, cuda_backend(), &options, &activations, &stream);
        cr_expect_eq(c.live_bytes + c.live_host_bytes - before.live_bytes - before.live_host_bytes,
                     weights.device + weights.host + activations + stream, "%d layers: %llu, %llu",
                     n_streamed,
                     (unsigned long long)(c.live_bytes + c.live_host_bytes - before.live_bytes -
                                          before.live_host_bytes),
                     (unsigned long long)(weights.device + weights.host + activations + stream));
        cr_expect_eq(weights.host == 0, n_streamed == 0);
        if (n_streamed > 0)
            cr_expect_lt(weights.device,
                         gsv_net_bytes(model.spec, cuda_backend(), GPUSERVE_DTYPE_FLOAT16));
        unload_model(&model);
        gsv_emu_get_counters(&c);
        cr_expect_eq(c.live_host_bytes, before.live_host_bytes);
        free_texts(&texts);
    }
}

/* Each batch copies its own upload and each streamed layer once. */
Test(streaming, copies_of_a_batch)
{
    struct texts texts = texts_of("modernbert");
    struct gsv_emu_counters before, after;
    struct gsv_streamed_bytes weights;
    struct loaded model;
    size_t n;

    open_streamed(&model, "modernbert", cuda_backend(), GPUSERVE_DTYPE_FLOAT16, 4);
    weights = gsv_streamed_net_bytes(model.spec, cuda_backend(), GPUSERVE_DTYPE_FLOAT16, 4);
    free(run_thrice(&model, &texts, &n));
    gsv_emu_get_counters(&before);
    free(run_thrice(&model, &texts, &n));
    gsv_emu_get_counters(&after);
    cr_expect_eq(after.copies_in - before.copies_in, 3 * (1 + 4), "%llu",
                 (unsigned long long)(after.copies_in - before.copies_in));
    cr_expect_geq(after.bytes_in - before.bytes_in, 3 * weights.host);
    cr_expect_eq(after.allocations, before.allocations);
    cr_expect_eq(after.host_allocations, before.host_allocations);
    cr_expect_eq(after.graph_launches, before.graph_launches);
    unload_model(&model);
    free_texts(&texts);
}
