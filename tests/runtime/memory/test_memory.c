/*
 * test_memory.c - memory of a real model: the footprint equals the allocations, all memory is
 * released, and allocation failures during a load are handled.
 */
#include "tests/model/support.h"
#include "tests/base/failing_malloc.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const texts[] = { "A man is eating food.", "A dog runs." };

static gpuserve_context *make_context(void)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;

    options.n_threads = 2;
    options.plugin_dir = "/nonexistent";
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    return context;
}

static void check_footprint(const char *path, uint32_t dtype, const char *heads)
{
    gpuserve_context *context = make_context();
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_footprint footprint = { .struct_size = sizeof(footprint) };
    gpuserve_model *model = NULL;
    uint64_t device, taken;
    size_t before;

    options.dtype = dtype;
    options.heads = heads;
    options.device = "cpu";
    cr_assert_eq(gpuserve_model_footprint(context, path, &options, &footprint, NULL), GPUSERVE_OK);
    before = failing_malloc_live_bytes();
    cr_assert_eq(gpuserve_model_open(&model, context, path, &options, NULL), GPUSERVE_OK);
    taken = failing_malloc_live_bytes() - before;
    device = footprint.weights_bytes + footprint.workspace_bytes + footprint.stream_bytes;
    cr_expect_geq(taken, device, "%s, dtype %u: %llu bytes taken, %llu told", path, dtype,
                  (unsigned long long)taken, (unsigned long long)device);
    cr_expect_leq(taken, footprint.total_bytes, "%s, dtype %u: %llu bytes taken, %llu told", path,
                  dtype, (unsigned long long)taken, (unsigned long long)footprint.total_bytes);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(memory, the_footprint_is_what_is_taken)
{
    static const uint32_t dtypes[] = { GPUSERVE_DTYPE_FLOAT32, GPUSERVE_DTYPE_INT8 };
    static const char *const names[] = { "splade-tiny", "all-MiniLM-L6-v2" };

    for (size_t m = 0; m < 2; m++) {
        for (size_t d = 0; d < 2; d++)
            check_footprint(real_model(names[m]), dtypes[d], NULL);
    }
}

/* Weights and scores of heads, those of one with many labels among them. */
Test(memory, the_footprint_of_heads_is_what_is_taken)
{
    static const struct head_shape shapes[] = {
        { "few", "softmax", "raw", { 2 } },
        { "wide", "softmax", "normalized", { 70, 90, 80 } },
        { "deep", "sigmoid", "raw", { 500, 600, 700, 3 } }
    };
    char folder[] = "/tmp/gsv-heads-XXXXXX", lines[512] = "";

    cr_assert_not_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        write_head(folder, &shapes[i], 384);
        snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%s/%s.safetensors\n",
                 folder, shapes[i].name);
        check_footprint(real_model("all-MiniLM-L6-v2"), GPUSERVE_DTYPE_FLOAT32, lines);
    }
    each_file(folder, NULL);
}

/* ----------------------------------------------------------------------------------- long texts */

enum { LONG_BYTES = 100000 };

/* 100 kB of text needs the model's memory, the result, 8 bytes for each token (half as much again
 * while an array grows), one block of windows, and the block's results in the queue. The token
 * vectors of the whole text would take three times as much as a block. */
static void check_long_text(uint32_t method, const char *text)
{
    static const char path[] = "random:layers=1,hidden=384,heads=6,intermediate=32";
    gpuserve_context *context = make_context();
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_long_options how = GPUSERVE_LONG_OPTIONS_INIT;
    gpuserve_footprint footprint = { .struct_size = sizeof(footprint) };
    gpuserve_model *model = NULL;
    gpuserve_long_texts *lt = NULL;
    gpuserve_long_result made = GPUSERVE_LONG_RESULT_INIT;
    const gpuserve_chunk *chunks;
    uint64_t created, computed, result, block, tokens = 0;
    size_t before, columns, n = 0;

    options.device = "cpu";
    options.max_queue_tokens = 131072;
    how.method = method;
    cr_assert_eq(gpuserve_model_footprint(context, path, &options, &footprint, NULL), GPUSERVE_OK);
    before = failing_malloc_live_bytes();
    cr_assert_eq(gpuserve_model_open(&model, context, path, &options, NULL), GPUSERVE_OK);
    (void)failing_malloc_peak_bytes();
    cr_assert_eq(gpuserve_long_texts_create(&lt, model, &text, NULL, 1, &how, NULL), GPUSERVE_OK);
    created = failing_malloc_peak_bytes() - before;
    cr_assert_eq(gpuserve_long_texts_run(lt, model, NULL, NULL), GPUSERVE_OK);
    computed = failing_malloc_peak_bytes() - before;
    cr_assert_eq(gpuserve_long_texts_result(lt, &made, NULL), GPUSERVE_OK);
    chunks = made.chunks;
    n = made.n_chunks;
    for (size_t i = 0; i < n; i++)
        tokens += chunks[i].n_tokens;
    columns = made.dim * sizeof(float);
    result = n * sizeof(*chunks) + made.n_vectors * columns;
    block = method == GPUSERVE_LONG_LATE ? UINT64_C(16) << 20 : n * columns; /* a chunk: a window */
    cr_assert_gt(tokens * columns, UINT64_C(32) << 20, "%llu tokens", (unsigned long long)tokens);
    cr_expect_leq(created, footprint.total_bytes + result + 40 * tokens);
    cr_expect_leq(computed, footprint.total_bytes + result + 12 * tokens + 2 * block,
                  "method %u: %llu bytes taken, the model has %llu, the result %llu", method,
                  (unsigned long long)computed, (unsigned long long)footprint.total_bytes,
                  (unsigned long long)result);
    gpuserve_long_texts_free(&lt);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

Test(memory, hundred_kilobytes_of_text_stay_within_the_formula)
{
    char *text = malloc(LONG_BYTES + 1);

    for (size_t i = 0; i < LONG_BYTES; i++)
        text[i] = "The quick brown fox runs over the lazy dog. "[i % 44];
    text[LONG_BYTES] = '\0';
    check_long_text(GPUSERVE_LONG_WINDOWS, text);
    check_long_text(GPUSERVE_LONG_LATE, text);
    free(text);
}

Test(memory, nothing_grows_from_model_to_model_or_from_call_to_call)
{
    gpuserve_context *context = make_context();
    float rows[2 * 128];
    ptrdiff_t after_first = 0;

    for (int i = 0; i < 20; i++) {
        gpuserve_model *model = NULL;

        cr_assert_eq(gpuserve_model_open(&model, context, real_model("splade-tiny"), NULL, NULL),
                     GPUSERVE_OK);
        for (int j = 0; j < 20; j++)
            cr_assert_eq(gpuserve_embed(model, texts, 2, rows, 256, NULL, NULL), GPUSERVE_OK);
        gpuserve_model_close(&model);
        if (i == 2)
            after_first = (ptrdiff_t)failing_malloc_live_bytes();
    }
    cr_expect_leq((ptrdiff_t)failing_malloc_live_bytes(), after_first + 4096);
    gpuserve_context_unref(&context);
}

/* False if no allocation failed. */
static bool open_while_failing(gpuserve_context *context, const char *path, const char *heads,
                               uint32_t dtype, long n)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;
    float rows[2 * 128];
    bool fired;

    options.dtype = dtype;
    options.heads = heads;
    failing_malloc_arm(n, n % 2);
    st = gpuserve_model_open(&model, context, path, &options, &error);
    if (st == GPUSERVE_OK)
        st = gpuserve_embed(model, texts, 2, rows, 256, NULL, &error);
    fired = failing_malloc_fired();
    failing_malloc_arm(0, false);
    cr_assert(st == GPUSERVE_OK || (st == GPUSERVE_E_NOMEM && fired), "allocation %ld: %s: %s", n,
              gpuserve_status_name(st), error.message);
    if (model)
        cr_assert_eq(gpuserve_embed(model, texts, 2, rows, 256, NULL, NULL), GPUSERVE_OK);
    gpuserve_model_close(&model);
    return fired;
}

Test(memory, failing_allocations_while_loading_are_survived)
{
    static const struct head_shape shapes[] = { { "one", "softmax", "raw", { 2 } },
                                                { "two", "sigmoid", "normalized", { 3, 4 } } };
    char folder[] = "/tmp/gsv-heads-XXXXXX", lines[256] = "";
    gpuserve_context *context = make_context();
    const char *path = real_model("splade-tiny");

    cr_assert_not_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        write_head(folder, &shapes[i], 128);
        snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%s/%s.safetensors\n",
                 folder, shapes[i].name);
    }
    /* All of the first allocations, then at growing distances: most are alike, vocabulary words. */
    for (uint32_t dtype = GPUSERVE_DTYPE_FLOAT32; dtype <= GPUSERVE_DTYPE_INT8;
         dtype += GPUSERVE_DTYPE_INT8 - GPUSERVE_DTYPE_FLOAT32) {
        long blocks;

        open_while_failing(context, path, lines, dtype, 0);
        blocks = failing_malloc_live_blocks();
        for (long n = 1; open_while_failing(context, path, lines, dtype, n); n += 1 + n / 40)
            cr_assert_leq(failing_malloc_live_blocks(), blocks, "after allocation %ld", n);
    }
    each_file(folder, NULL);
    gpuserve_context_unref(&context);
}
