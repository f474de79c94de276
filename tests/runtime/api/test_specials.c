/*
 * test_specials.c - special tokens written inside texts, from text to vector, against
 * sentence-transformers.
 *
 * Alone and in batches, computed and from the cache, on the CPU and on the CUDA backend, which runs
 * on the emulator (EMULATED_PLUGIN is the plugin's folder). The references in MODEL/specials.json
 * are written by tools/fixtures/make_specials_reference.py. In XLM-R a literal <pad> takes position
 * padding_idx and is not counted; in BERT each token is counted.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 32, MAX_TEXTS = 64, MAX_IDS = 32, MAX_COMPANY = 12 };
enum { N_BATCHES = IS_SANITIZED ? 3 : 25 };

static const char *const names[] = { "st-xlm-roberta", "st-newer" };
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

/* Texts without special tokens, short and long, for the same batch. */
static const char *const ordinary[] = { "a", "1 2 3 a b c d e f g h i j k l m n o", "b c",
                                        "3 2 1" };
enum { N_ORDINARY = sizeof(ordinary) / sizeof(ordinary[0]) };

struct specials {
    json_t *file;
    const char *path; /* path of the model */
    size_t n;
    const char *texts[MAX_TEXTS];
    float want[MAX_TEXTS][DIM];
};

static void read_specials(struct specials *s, const char *name)
{
    static char path[1024];
    char below[128];
    json_t *texts;

    memset(s, 0, sizeof(*s));
    snprintf(below, sizeof(below), "models/%s", name);
    snprintf(path, sizeof(path), "%s", test_data(below));
    s->path = path;
    snprintf(below, sizeof(below), "models/%s/specials.json", name);
    s->file = json_load_file(test_data(below), 0, NULL);
    cr_assert_not_null(s->file, "%s", below);
    texts = json_object_get(s->file, "texts");
    s->n = json_array_size(texts);
    cr_assert(s->n > 20 && s->n + N_ORDINARY <= MAX_TEXTS, "%zu texts", s->n);
    for (size_t i = 0; i < s->n; i++) {
        const json_t *row = json_array_get(json_object_get(s->file, "embeddings"), i);

        s->texts[i] = json_string_value(json_array_get(texts, i));
        cr_assert_eq(json_array_size(row), DIM);
        for (size_t j = 0; j < DIM; j++)
            s->want[i][j] = (float)json_real_value(json_array_get(row, j));
    }
    for (size_t i = 0; i < N_ORDINARY; i++)
        s->texts[s->n + i] = ordinary[i];
}

static gpuserve_model *open_on(gpuserve_context *context, const char *path, const char *device,
                               uint32_t dtype, uint64_t cache_bytes)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = device;
    options.dtype = dtype;
    options.cache_bytes = cache_bytes;
    options.max_batch_tokens = 256;
    cr_assert_eq(gpuserve_model_open(&model, context, path, &options, &error), GPUSERVE_OK,
                 "%s on %s: %s", path, device, error.message);
    return model;
}

/* One row per text; computed, unless the model has a result cache. */
static void embed(gpuserve_model *model, const char *const *texts, size_t n, float *rows,
                  gpuserve_item *items, bool is_cached)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    job.n_items = n;
    job.texts = texts;
    job.output = rows;
    job.output_capacity = n * DIM;
    job.items = items;
    job.cache = is_cached ? GPUSERVE_CACHE_DEFAULT : GPUSERVE_CACHE_OFF;
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
}

static void expect_ids(gpuserve_model *model, const struct specials *s, size_t i)
{
    const json_t *want = json_array_get(json_object_get(s->file, "ids"), i);
    int32_t ids[MAX_IDS];
    size_t n;

    cr_assert_eq(gpuserve_tokenize(model, s->texts[i], strlen(s->texts[i]), ids, NULL, MAX_IDS, &n,
                                   NULL, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(n, json_array_size(want), "\"%s\"", s->texts[i]);
    for (size_t j = 0; j < n; j++)
        cr_expect_eq(ids[j], json_integer_value(json_array_get(want, j)), "\"%s\"", s->texts[i]);
}

/* Difference relative to the vector's norm: some models do not normalize. */
static void expect_near(const struct specials *s, size_t i, const float *got, double most)
{
    double difference = 0, length = 0;

    for (size_t j = 0; j < DIM; j++) {
        difference += pow((double)got[j] - (double)s->want[i][j], 2);
        length += pow((double)s->want[i][j], 2);
    }
    cr_expect_leq(sqrt(difference / length), most, "%s, \"%s\": %g", s->path, s->texts[i],
                  sqrt(difference / length));
}

/* Each text alone equals the reference. In random batches, also with ordinary texts, its bits are
 * the same. */
static void check(const struct specials *s, gpuserve_model *model, double most)
{
    const size_t n_all = s->n + N_ORDINARY;
    float alone[MAX_TEXTS][DIM], rows[MAX_COMPANY][DIM];
    uint32_t seed = 11;

    for (size_t i = 0; i < n_all; i++)
        embed(model, &s->texts[i], 1, alone[i], NULL, false);
    for (size_t i = 0; i < s->n; i++) {
        expect_ids(model, s, i);
        expect_near(s, i, alone[i], most);
    }
    for (int batch = 0; batch < N_BATCHES; batch++) {
        const size_t n = 2 + next_random(&seed) % (MAX_COMPANY - 1);
        const char *chosen[MAX_COMPANY];
        size_t which[MAX_COMPANY];

        for (size_t i = 0; i < n; i++) {
            which[i] = next_random(&seed) % n_all;
            chosen[i] = s->texts[which[i]];
        }
        embed(model, chosen, n, rows[0], NULL, false);
        for (size_t i = 0; i < n; i++)
            cr_expect_arr_eq(rows[i], alone[which[i]], sizeof(rows[i]), "%s, batch %d: \"%s\"",
                             s->path, batch, chosen[i]);
    }
}

static void check_everywhere(gpuserve_context *context, const char *device, uint32_t dtype,
                             double most)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        struct specials s;
        gpuserve_model *model;

        read_specials(&s, names[i]);
        model = open_on(context, s.path, device, dtype, 0);
        check(&s, model, most);
        gpuserve_model_close(&model);
        json_decref(s.file);
    }
}

Test(specials, vectors_equal_transformers_alone_and_in_any_batch)
{
    check_everywhere(NULL, "cpu", GPUSERVE_DTYPE_FLOAT32, 1e-5);
    check_everywhere(NULL, "cpu", GPUSERVE_DTYPE_INT8, 0.1);
}

/* The same ids, passed as ids, give the same result. */
Test(specials, token_ids_with_pads_are_what_their_text_is)
{
    static const int32_t ids[] = { 0, 38, 4, 1, 4, 31, 2, 0, 1, 4, 79, 2 };
    static const size_t offsets[] = { 0, 7, 12 };
    static const char *const texts[] = { "1 <pad> 2", "<pad> 3" };
    float want[2][DIM], got[2][DIM];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct specials s;
    gpuserve_model *model;

    read_specials(&s, "st-xlm-roberta");
    model = open_on(NULL, s.path, "cpu", GPUSERVE_DTYPE_FLOAT32, 0);
    embed(model, texts, 2, want[0], NULL, false);
    job.n_items = 2;
    job.ids = ids;
    job.id_offsets = offsets;
    job.output = got[0];
    job.output_capacity = sizeof(got) / sizeof(float);
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_arr_eq(got, want, sizeof(want));
    gpuserve_model_close(&model);
    json_decref(s.file);
}

/* BART's classifier reads the vector of the last end token. The tokenizer adds one to each text;
 * token ids may lack it. */
Test(specials, token_ids_without_the_end_token_are_refused)
{
    static const int32_t ids[] = { 0, 38, 262, 2, 2, 262, 2, 0, 38, 262 };
    static const size_t offsets[] = { 0, 7, 10 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    float scores[2 * 3] = { 0 };
    gpuserve_model *model = open_on(NULL, test_data("nli/bart"), "cpu", GPUSERVE_DTYPE_FLOAT32, 0);

    job.task = GPUSERVE_TASK_CLASSIFY;
    job.ids = ids;
    job.id_offsets = offsets;
    job.output = scores;
    job.output_capacity = sizeof(scores) / sizeof(float);
    job.n_items = 2;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID);
    cr_expect(
        strstr(error.message,
               "item 1: the text has no token 2 (eos_token_id), whose vector the classifier of "
               "model type bart reads"),
        "%s", error.message);
    job.n_items = 1;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_float_eq(scores[0] + scores[1] + scores[2], 1.0f, 1e-5);
    gpuserve_model_close(&model);
}

Test(specials, the_result_cache_has_their_vectors_and_mixes_none_up)
{
    for (size_t m = 0; m < N_NAMES; m++) {
        struct specials s;
        gpuserve_model *model;
        float first[MAX_TEXTS][DIM], again[MAX_TEXTS][DIM];
        gpuserve_item items[MAX_TEXTS];

        read_specials(&s, names[m]);
        model = open_on(NULL, s.path, "cpu", GPUSERVE_DTYPE_FLOAT32, 1 << 20);
        embed(model, s.texts, s.n, first[0], items, true);
        for (size_t i = 0; i < s.n; i++)
            cr_expect_not(items[i].cached, "\"%s\"", s.texts[i]);
        embed(model, s.texts, s.n, again[0], items, true);
        for (size_t i = 0; i < s.n; i++) {
            cr_expect(items[i].cached, "\"%s\"", s.texts[i]);
            cr_expect_arr_eq(again[i], first[i], sizeof(again[i]), "\"%s\"", s.texts[i]);
            expect_near(&s, i, again[i], 1e-5);
        }
        gpuserve_model_close(&model);
        json_decref(s.file);
    }
}

#ifdef EMULATED_PLUGIN
Test(specials, the_cuda_backend_gives_them_the_same_positions)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;

    options.plugin_dir = EMULATED_PLUGIN;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    check_everywhere(context, "cuda:0", GPUSERVE_DTYPE_FLOAT32, 1e-5);
    if (!FOR_RACES)
        check_everywhere(context, "cuda:0", GPUSERVE_DTYPE_FLOAT16, 5e-3);
    gpuserve_context_unref(&context);
}
#endif
