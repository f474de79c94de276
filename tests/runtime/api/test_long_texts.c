/*
 * test_long_texts.c - windows and late chunking of texts over the token limit, against
 * sentence-transformers and Jina's chunked pooling (tests/data/long-texts, written by
 * tools/fixtures/make_long_texts.py), and against gpuserve_embed() where a text fits.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SPANS = 16 };

/* A text of thousands of sentences; QEMU and sanitizers take minutes for it, and QEMU for the
 * vectors of a real model, which cross-aarch64 compares. */
#if defined(__aarch64__) && defined(GSV_PLAIN_CRITERION_H)
enum { LONG_BYTES = 20000, N_REAL_TEXTS = 2 };
#else
enum { LONG_BYTES = IS_SANITIZED ? 20000 : 100000, N_REAL_TEXTS = 24 };
#endif

static gpuserve_model *open_model(const char *path, uint32_t pooling, const char *prompt_name)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.n_threads = 2;
    options.pooling = pooling;
    options.default_prompt_name = prompt_name;
    cr_assert_eq(gpuserve_model_open(&model, NULL, path, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    return model;
}

static gpuserve_model *open_small(void)
{
    return open_model(test_data("long-texts/model"), 0, NULL);
}

/* Creates and runs; asserts. */
static gpuserve_long_texts *run_long(gpuserve_model *model, const char *const *texts, size_t n,
                                     const gpuserve_long_options *options)
{
    gpuserve_long_texts *lt = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_long_texts_create(&lt, model, texts, NULL, n, options, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gpuserve_long_texts_run(lt, model, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
    return lt;
}

static gpuserve_long_result result_of(const gpuserve_long_texts *lt)
{
    gpuserve_long_result result = GPUSERVE_LONG_RESULT_INIT;

    cr_assert_eq(gpuserve_long_texts_result(lt, &result, NULL), GPUSERVE_OK);
    return result;
}

static void expect_near(const float *got, const float *want, size_t n, double tolerance,
                        const char *what)
{
    double worst = 0;

    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    cr_expect_leq(worst, tolerance, "%s: %g", what, worst);
}

/* ----------------------------------------------------------------------------------- reference */

static json_t *read_cases(void)
{
    json_t *cases = json_load_file(test_data("long-texts/reference.json"), 0, NULL);

    cr_assert(json_array_size(cases) > 8);
    return cases;
}

static uint32_t number_of(const json_t *row, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(row, key));
}

/* The options of a case; `spans` and `offsets` receive those of the caller. */
static gpuserve_long_options options_of(const json_t *row, gpuserve_span *spans, size_t *offsets)
{
    const char *by = json_string_value(json_object_get(row, "chunk_by"));
    const json_t *given = json_object_get(row, "spans");
    gpuserve_long_options options = GPUSERVE_LONG_OPTIONS_INIT;

    options.method = strcmp(json_string_value(json_object_get(row, "method")), "late") == 0;
    options.chunk_tokens = number_of(row, "chunk_tokens");
    options.window_tokens = number_of(row, "window_tokens");
    options.stride = number_of(row, "stride");
    options.prompt_name = json_string_value(json_object_get(row, "prompt_name"));
    if (by && strcmp(by, "sentence") == 0)
        options.chunk_by = GPUSERVE_CHUNK_BY_SENTENCES;
    if (!given)
        return options;
    cr_assert(json_array_size(given) <= MAX_SPANS);
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *one = json_array_get(given, i);

        spans[i].begin = (uint32_t)json_integer_value(json_array_get(one, 0));
        spans[i].end = (uint32_t)json_integer_value(json_array_get(one, 1));
    }
    offsets[0] = 0;
    offsets[1] = json_array_size(given);
    options.chunk_by = GPUSERVE_CHUNK_BY_SPANS;
    options.spans = spans;
    options.span_offsets = offsets;
    return options;
}

static void expect_case(const json_t *row, const gpuserve_long_texts *lt, size_t number)
{
    const json_t *spans = json_object_get(row, "want_spans");
    const json_t *vectors = json_object_get(row, "vectors");
    const gpuserve_long_result result = result_of(lt);
    const size_t columns = result.dim, n = result.n_chunks;
    const float *rows = result.vectors;
    const gpuserve_chunk *chunks = result.chunks;

    cr_assert_not_null(rows);
    cr_assert_eq(n, json_array_size(spans), "case %zu: %zu chunks", number, n);
    cr_assert_eq(result.n_vectors, json_array_size(vectors), "case %zu", number);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(spans, i);

        cr_expect_eq(chunks[i].begin, json_integer_value(json_array_get(one, 0)), "case %zu, %zu",
                     number, i);
        cr_expect_eq(chunks[i].end, json_integer_value(json_array_get(one, 1)), "case %zu, %zu",
                     number, i);
    }
    for (size_t i = 0; i < json_array_size(vectors); i++) {
        const json_t *one = json_array_get(vectors, i);

        cr_assert_eq(json_array_size(one), columns);
        for (size_t j = 0; j < columns; j++)
            cr_expect_float_eq(rows[i * columns + j], json_real_value(json_array_get(one, j)), 1e-6,
                               "case %zu, vector %zu, number %zu", number, i, j);
    }
}

Test(long_texts, equal_the_reference)
{
    gpuserve_model *model = open_small();
    json_t *cases = read_cases();

    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *row = json_array_get(cases, i);
        const char *text = json_string_value(json_object_get(row, "text"));
        gpuserve_span spans[MAX_SPANS];
        size_t offsets[2];
        const gpuserve_long_options options = options_of(row, spans, offsets);
        gpuserve_long_texts *lt = run_long(model, &text, 1, &options);

        expect_case(row, lt, i);
        gpuserve_long_texts_free(&lt);
        cr_expect_null(lt);
    }
    json_decref(cases);
    gpuserve_model_close(&model);
}

/* -------------------------------------------------------------------------------------- one shot
 */

/* The vectors of short texts, by both methods with the whole text as a chunk, are those of
 * gpuserve_embed(). */
static void expect_one_shot(gpuserve_model *model, const char *const *texts, size_t n,
                            const char *prompt_name, bool late)
{
    gpuserve_job how = GPUSERVE_JOB_INIT;
    gpuserve_long_options options = GPUSERVE_LONG_OPTIONS_INIT;
    const size_t dim = gpuserve_model_dim(model);
    float *want = malloc(n * dim * sizeof(*want));
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_long_texts *lt;

    how.prompt_name = options.prompt_name = prompt_name;
    cr_assert_eq(gpuserve_embed(model, texts, n, want, n * dim, &how, &error), GPUSERVE_OK, "%s",
                 error.message);
    options.method = late ? GPUSERVE_LONG_LATE : GPUSERVE_LONG_WINDOWS;
    options.chunk_tokens = late ? 100000 : 0;
    lt = run_long(model, texts, n, &options);
    cr_assert_eq(result_of(lt).n_vectors, n);
    expect_near(result_of(lt).vectors, want, n * dim, 1e-6, prompt_name ? prompt_name : "-");
    gpuserve_long_texts_free(&lt);
    free(want);
}

Test(long_texts, a_text_that_fits_is_one_shot)
{
    static const char *const texts[] = { "A dog runs.", "", "the lazy fox, quick", "??" };
    gpuserve_model *model = open_small();

    for (int late = 0; late < 2; late++) {
        expect_one_shot(model, texts, 4, NULL, late);
        expect_one_shot(model, texts, 4, "query", late);
    }
    gpuserve_model_close(&model);
}

Test(long_texts, real_model_is_one_shot)
{
    gpuserve_model *model = open_real("all-MiniLM-L6-v2", GPUSERVE_DTYPE_FLOAT32, 2);
    size_t n = 0;
    const char *const *texts = oracle_texts(&n);
    const char *some[N_REAL_TEXTS];
    size_t kept = 0;

    for (size_t i = 0; i < n && kept < N_REAL_TEXTS; i++)
        if (strlen(texts[i]) > 0 && strlen(texts[i]) < 400)
            some[kept++] = texts[i];
    expect_one_shot(model, some, kept, NULL, false);
    expect_one_shot(model, some, kept, NULL, true);
    gpuserve_model_close(&model);
}

/* A prompt that pooling leaves out (include_prompt false). */
Test(long_texts, prompt_left_out_of_pooling)
{
    static const char *const texts[] = { "w7 w8 w9", "w20" };
    gpuserve_model *all = open_model(test_data("models/st-no-prompt"), 0, NULL);
    gpuserve_model *mean =
        open_model(test_data("models/st-no-prompt"), GPUSERVE_POOLING_MEAN, NULL);
    json_t *info = NULL;
    const char *name = NULL;
    char json[16384];
    size_t size = 0;

    cr_assert_eq(gpuserve_model_info(all, json, sizeof(json), &size, NULL), GPUSERVE_OK);
    info = json_loads(json, 0, NULL);
    name = json_object_iter_key(json_object_iter(json_object_get(info, "prompts")));
    cr_assert_not_null(name);
    expect_one_shot(all, texts, 2, NULL, false);
    expect_one_shot(all, texts, 2, name, false);
    expect_one_shot(mean, texts, 2, NULL, true);
    expect_one_shot(mean, texts, 2, name, true);
    json_decref(info);
    gpuserve_model_close(&all);
    gpuserve_model_close(&mean);
}

/* The prompt's name chooses the adapter, although the windows are token ids. */
Test(long_texts, adapters)
{
    static const char *const names[] = { "retrieval.query", "retrieval.passage", "text-matching" };
    static const char *const texts[] = { "w7 w8 w9 w10", "w20" };
    struct folder folder;

    folder_make(&folder, "jina-v3-hub-lora");
    folder_set_vocabulary(&folder, 48);
    for (int i = -1; i < 3; i++) {
        gpuserve_model *model = open_model(folder.path, 0, i < 0 ? NULL : names[i]);
        expect_one_shot(model, texts, 2, NULL, true);
        for (int j = 0; j < 3; j++) {
            expect_one_shot(model, texts, 2, names[j], false);
            expect_one_shot(model, texts, 2, names[j], true);
        }
        gpuserve_model_close(&model);
    }
    folder_remove(&folder);
}

/* ------------------------------------------------------------------------------------ long texts
 */

/* The vectors of chunks do not depend on the blocks, and memory stays bounded. */
Test(long_texts, thousands_of_sentences)
{
    gpuserve_model *model = open_small();
    gpuserve_long_options options = GPUSERVE_LONG_OPTIONS_INIT;
    gpuserve_job how = GPUSERVE_JOB_INIT;
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_long_texts *lt = NULL;
    gpuserve_long_result made;
    char *text = malloc(LONG_BYTES + 1);
    const char *const texts[] = { text };
    const gpuserve_chunk *chunks;
    size_t n = 0, tokens = 0;

    for (size_t i = 0; i < LONG_BYTES; i++)
        text[i] = "The quick brown fox. "[i % 21];
    text[LONG_BYTES] = '\0';
    how.result = &result;
    options.method = GPUSERVE_LONG_LATE;
    options.chunk_by = GPUSERVE_CHUNK_BY_SENTENCES;
    cr_assert_eq(gpuserve_long_texts_create(&lt, model, texts, NULL, 1, &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    made = result_of(lt);
    cr_assert_null(made.vectors);
    cr_assert_eq(made.n_chunks, LONG_BYTES / 21 + 1);
    cr_assert_eq(made.n_vectors, made.n_chunks);
    cr_assert_eq(made.dim, 32);
    cr_assert_eq(gpuserve_long_texts_run(lt, model, &how, &error), GPUSERVE_OK, "%s",
                 error.message);
    made = result_of(lt);
    chunks = made.chunks;
    n = made.n_chunks;
    cr_assert_eq(n, LONG_BYTES / 21 + 1);
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(chunks[i].begin, i * 21);
        cr_assert_eq(chunks[i].row, i);
        tokens += chunks[i].n_tokens;
    }
    cr_expect_gt(result.n_tokens, tokens);
    cr_expect_lt(result.n_tokens, 2 * tokens);
    cr_expect_str_eq(result.device, "cpu");
    for (size_t i = 0; i < n * 32; i++)
        cr_assert(isfinite(made.vectors[i]));
    gpuserve_long_texts_free(&lt);
    free(text);
    gpuserve_model_close(&model);
}

/* A block of windows is bounded, whatever the text: 100 kB of MiniLM's token vectors are 40 MB. */
Test(long_texts, blocks_are_bounded)
{
    gpuserve_model *model = open_real("all-MiniLM-L6-v2", GPUSERVE_DTYPE_FLOAT32, 2);
    gpuserve_long_options options = GPUSERVE_LONG_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char *text = malloc(LONG_BYTES + 1);
    const char *const texts[] = { text };

    memset(text, 'a', LONG_BYTES);
    for (size_t i = 3; i < LONG_BYTES; i += 4)
        text[i] = ' ';
    text[LONG_BYTES] = '\0';
    for (uint32_t method = 0; method < 2; method++) {
        gpuserve_job job = GPUSERVE_JOB_INIT;
        gpuserve_long_texts *lt = NULL;

        options.method = method;
        cr_assert_eq(gpuserve_long_texts_create(&lt, model, texts, NULL, 1, &options, &error),
                     GPUSERVE_OK, "%s", error.message);
        cr_assert_eq(gpuserve_long_texts_next(lt, &job, &error), GPUSERVE_OK);
        cr_assert_gt(job.n_items, 1);
        cr_expect_leq(job.output_capacity, 1 << 22);
        cr_expect_leq(job.id_offsets[job.n_items], 65536);
        gpuserve_long_texts_free(&lt);
    }
    free(text);
    gpuserve_model_close(&model);
}

/* The vectors of several texts, step by step, with a cut and a normalization. */
Test(long_texts, steps_and_dimensions)
{
    static const char *const texts[] = {
        "The quick brown fox runs over the lazy dog. It was red, big and "
        "small! The cat sleeps in the house and the dog runs.",
        "A dog."
    };
    gpuserve_model *model = open_small();
    gpuserve_long_options options = GPUSERVE_LONG_OPTIONS_INIT;
    gpuserve_long_texts *whole, *lt = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    double square = 0;

    whole = run_long(model, texts, 2, &options);
    options.dimensions = 10;
    options.normalize = GPUSERVE_NORMALIZE_WHOLE;
    cr_assert_eq(gpuserve_long_texts_create(&lt, model, texts, NULL, 2, &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    for (;;) {
        gpuserve_job job = GPUSERVE_JOB_INIT, again = GPUSERVE_JOB_INIT;
        gpuserve_request *request = NULL;

        cr_assert_eq(gpuserve_long_texts_next(lt, &job, &error), GPUSERVE_OK);
        cr_assert_eq(gpuserve_long_texts_next(lt, &again, &error), GPUSERVE_OK);
        cr_assert_eq(job.n_items, again.n_items);
        if (job.n_items == 0)
            break;
        cr_assert_eq(gpuserve_submit(&request, model, &job, NULL, NULL, &error), GPUSERVE_OK, "%s",
                     error.message);
        cr_assert_eq(gpuserve_wait(request, -1, &error), GPUSERVE_OK, "%s", error.message);
        gpuserve_request_free(&request);
        cr_assert_eq(gpuserve_long_texts_take(lt, &error), GPUSERVE_OK);
    }
    cr_expect_eq(gpuserve_long_texts_take(lt, &error), GPUSERVE_E_INVALID);
    cr_assert_eq(result_of(lt).dim, 10);
    for (size_t i = 0; i < 2; i++)
        expect_near(result_of(lt).vectors + i * 10, result_of(whole).vectors + i * 32, 10, 1e-6,
                    "cut");
    gpuserve_long_texts_free(&lt);
    options.normalize = GPUSERVE_NORMALIZE_DEFAULT; /* after the cut */
    lt = run_long(model, texts, 2, &options);
    for (size_t i = 0; i < 10; i++)
        square += pow(result_of(lt).vectors[10 + i], 2);
    cr_expect_float_eq(square, 1.0, 1e-6);
    gpuserve_long_texts_free(&lt);
    gpuserve_long_texts_free(&whole);
    gpuserve_model_close(&model);
}

Test(long_texts, sentences_joined_to_a_number_of_tokens)
{
    static const char *const text = "A dog. A cat.\n\n  The fox runs over the lazy dog!  It is. ";
    static const uint32_t want[][2] = { { 0, 13 }, { 17, 48 }, { 50, 56 } };
    gpuserve_model *model = open_small();
    gpuserve_long_options options = GPUSERVE_LONG_OPTIONS_INIT;
    gpuserve_long_texts *lt;
    const gpuserve_chunk *chunks;
    size_t n = 0;

    options.method = GPUSERVE_LONG_LATE;
    options.chunk_by = GPUSERVE_CHUNK_BY_SENTENCES;
    options.chunk_tokens = 8;
    lt = run_long(model, &text, 1, &options);
    chunks = result_of(lt).chunks;
    n = result_of(lt).n_chunks;
    cr_assert_eq(n, 3, "%zu", n);
    for (size_t i = 0; i < n; i++) {
        cr_expect_eq(chunks[i].begin, want[i][0], "%zu: %u", i, chunks[i].begin);
        cr_expect_eq(chunks[i].end, want[i][1], "%zu: %u", i, chunks[i].end);
    }
    gpuserve_long_texts_free(&lt);
    gpuserve_model_close(&model);
}

Test(long_texts, nothing_is_complete)
{
    gpuserve_model *model = open_small();
    gpuserve_long_texts *lt = run_long(model, NULL, 0, NULL);

    cr_expect_eq(result_of(lt).n_vectors, 0);
    gpuserve_long_texts_free(&lt);
    gpuserve_long_texts_free(&lt);
    gpuserve_long_texts_free(NULL);
    gpuserve_model_close(&model);
}
