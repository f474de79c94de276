/*
 * test_entity_query.c - entities of given labels: the models of tests/data/entities against the
 * reference package (tools/fixtures/make_entity_models.py), batches, truncation, refused requests;
 * with the CUDA backend too, which runs on the emulator (EMULATED_PLUGIN is the plugin's folder).
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

static const char *const names[] = { "deberta-spans", "bert-spans", "modernbert-spans",
                                     "deberta-tokens" };
#define N_NAMES (sizeof(names) / sizeof(names[0]))
enum { MAX_TEXTS = 64, MAX_LABELS = 256, FIELDS = 4 };

/* Where open_limited() loads. */
static const char *device = "cpu";
static gpuserve_context *context;

static gpuserve_model *open_limited(const char *name, uint32_t max_tokens)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model;
    char path[64];

    snprintf(path, sizeof(path), "entities/%s", name);
    options.device = device;
    options.dtype = GPUSERVE_DTYPE_FLOAT32;
    options.max_tokens = max_tokens;
    cr_assert_eq(gpuserve_model_open(&model, context, test_data(path), &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    return model;
}

static gpuserve_model *open_model(const char *name)
{
    return open_limited(name, 0);
}

/* A case of reference.json as a request; the arrays point into the JSON. */
struct one_case {
    gpuserve_entity_request request;
    const char *texts[MAX_TEXTS], *labels[MAX_LABELS];
    size_t sizes[MAX_TEXTS], label_offsets[MAX_TEXTS + 1];
};

static void add_labels(struct one_case *c, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        c->labels[c->request.n_labels++] = json_string_value(json_array_get(list, i));
}

static void read_case(struct one_case *c, const json_t *row)
{
    const gpuserve_entity_request fresh = GPUSERVE_ENTITY_REQUEST_INIT;
    const json_t *texts = json_object_get(row, "texts"), *labels = json_object_get(row, "labels");

    memset(c, 0, sizeof(*c));
    c->request = fresh;
    c->request.threshold = (float)json_number_value(json_object_get(row, "threshold"));
    c->request.overlap = json_is_true(json_object_get(row, "nested"));
    c->request.multi_label = json_is_true(json_object_get(row, "multi_label"));
    c->request.n_texts = json_array_size(texts);
    c->request.texts = c->texts;
    c->request.text_sizes = c->sizes;
    c->request.labels = c->labels;
    for (size_t i = 0; i < c->request.n_texts; i++) {
        c->texts[i] = json_string_value(json_array_get(texts, i));
        c->sizes[i] = json_string_length(json_array_get(texts, i));
    }
    if (!json_is_array(json_array_get(labels, 0))) {
        add_labels(c, labels);
        return;
    }
    c->request.label_offsets = c->label_offsets;
    for (size_t i = 0; i < c->request.n_texts; i++) {
        add_labels(c, json_array_get(labels, i));
        c->label_offsets[i + 1] = c->request.n_labels;
    }
}

static json_t *read_cases(const char *name)
{
    char path[96];

    snprintf(path, sizeof(path), "entities/%s/reference.json", name);
    return read_json(path);
}

static gpuserve_entity_query *make_query(gpuserve_model *model,
                                         const gpuserve_entity_request *request)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_entity_query *query;

    cr_assert_eq(gpuserve_entity_query_create(&query, model, request, &error), GPUSERVE_OK, "%s",
                 error.message);
    return query;
}

static gpuserve_entity_query *run_query(gpuserve_model *model,
                                        const gpuserve_entity_request *request)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_entity_query *query = make_query(model, request);

    cr_assert_eq(gpuserve_entity_query_run(query, NULL, &error), GPUSERVE_OK, "%s", error.message);
    return query;
}

/* The entities of a text are those of the reference: the same spans, scores within 1e-5. */
static void expect_found(const char *name, const gpuserve_entity_query *query, size_t text,
                         const json_t *want)
{
    size_t n;
    const gpuserve_found_entity *found = gpuserve_entity_query_found(query, text, &n, NULL);

    cr_assert_eq(n, json_array_size(want), "%s, text %zu: %zu entities, expected %zu", name, text,
                 n, json_array_size(want));
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(want, i);
        const json_int_t got[] = { found[i].begin, found[i].end, found[i].label };

        for (size_t field = 0; field + 1 < FIELDS; field++)
            cr_expect_eq(got[field], json_integer_value(json_array_get(one, field)),
                         "%s, text %zu, entity %zu", name, text, i);
        cr_expect_leq(fabs((double)found[i].score - json_number_value(json_array_get(one, 3))),
                      1e-5, "%s, text %zu, entity %zu", name, text, i);
    }
}

/* The cases of a model from `first` on; returns the number of entities found. */
static size_t check_cases(const char *name, size_t first)
{
    gpuserve_model *model = open_model(name);
    json_t *rows = read_cases(name), *row;
    size_t r, n_found = 0;

    json_array_foreach(rows, r, row)
    {
        const json_t *want = json_object_get(row, "entities");
        gpuserve_entity_query *query;
        struct one_case c;

        if (r < first)
            continue;
        read_case(&c, row);
        query = run_query(model, &c.request);
        for (size_t t = 0; t < c.request.n_texts; t++) {
            expect_found(name, query, t, json_array_get(want, t));
            n_found += json_array_size(json_array_get(want, t));
        }
        gpuserve_entity_query_free(&query);
    }
    json_decref(rows);
    gpuserve_model_close(&model);
    return n_found;
}

Test(entity_query, entities_are_those_of_the_reference)
{
    size_t n_found = 0;

    for (size_t i = 0; i < N_NAMES; i++)
        n_found += check_cases(names[i], 0);
    cr_expect_gt(n_found, 300u);
}

#ifdef EMULATED_PLUGIN
enum { LAST_CASE = 11 };

Test(entity_query, entities_on_cuda_are_those_of_the_reference)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;

    options.plugin_dir = EMULATED_PLUGIN;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    device = "cuda:0";
    for (size_t i = IS_SANITIZED ? N_NAMES - 1 : 0; i < N_NAMES; i++)
        cr_expect_gt(check_cases(names[i], LAST_CASE), 4u, "%s", names[i]);
    gpuserve_context_unref(&context);
    device = "cpu";
}
#endif

/* Each text alone, and by a job of the caller: the same bits as in one call. */
Test(entity_query, batches_do_not_matter)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        gpuserve_model *model = open_model(names[i]);
        json_t *rows = read_cases(names[i]);
        gpuserve_entity_query *query;
        struct one_case c;

        read_case(&c, json_array_get(rows, 1)); /* labels of each text */
        query = run_query(model, &c.request);
        for (size_t t = 0; t < c.request.n_texts; t++) {
            gpuserve_entity_request alone = c.request;
            gpuserve_entity_query *other;
            size_t n, n_other;
            const gpuserve_found_entity *found, *again;

            alone.texts += t;
            alone.text_sizes += t;
            alone.label_offsets += t;
            alone.n_texts = 1;
            other = run_query(model, &alone);
            found = gpuserve_entity_query_found(query, t, &n, NULL);
            again = gpuserve_entity_query_found(other, 0, &n_other, NULL);
            cr_assert_eq(n, n_other);
            cr_expect(n == 0 || memcmp(found, again, n * sizeof(*found)) == 0);
            gpuserve_entity_query_free(&other);
        }
        gpuserve_entity_query_free(&query);
        json_decref(rows);
        gpuserve_model_close(&model);
    }
}

Test(entity_query, job_of_the_caller)
{
    enum { WIDTH = 16 };
    gpuserve_model *model = open_model("deberta-spans");
    json_t *rows = read_cases("deberta-spans");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_entity_query *query;
    size_t offsets[MAX_TEXTS + 1], n_floats, n;
    uint32_t truncated = 7;
    struct one_case c;

    read_case(&c, json_array_get(rows, 0));
    query = make_query(model, &c.request);
    cr_expect_null(gpuserve_entity_query_found(query, 0, &n, &truncated),
                   "found before the query ran");
    cr_expect_eq(n, 0);
    cr_expect_eq(truncated, 0);
    truncated = 7;
    cr_expect_null(gpuserve_entity_query_found(query, c.request.n_texts, &n, &truncated));
    cr_expect_eq(truncated, 0, "no such text");
    n_floats = WIDTH * gpuserve_entity_query_job(query, &job);
    cr_assert_eq(job.n_items, c.request.n_texts);
    job.output = calloc(n_floats, sizeof(float));
    job.output_capacity = n_floats;
    job.token_offsets = offsets;
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(gpuserve_entity_query_decode(query, job.output, n_floats - 1, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_entity_query_decode(query, NULL, n_floats, &error), GPUSERVE_E_INVALID);
    for (int twice = 0; twice < 2; twice++) {
        cr_assert_eq(gpuserve_entity_query_decode(query, job.output, n_floats, &error), GPUSERVE_OK,
                     "%s", error.message);
        for (size_t t = 0; t < c.request.n_texts; t++)
            expect_found("job", query, t,
                         json_array_get(json_object_get(json_array_get(rows, 0), "entities"), t));
    }
    free(job.output);
    gpuserve_entity_query_free(&query);
    json_decref(rows);
    gpuserve_model_close(&model);
}

static const char *const two_labels[] = { "person", "city" };

/* One text with two labels, with every span above the threshold. */
static gpuserve_entity_request request_of(const char *const *text)
{
    gpuserve_entity_request request = GPUSERVE_ENTITY_REQUEST_INIT;

    request.texts = text;
    request.n_texts = 1;
    request.labels = two_labels;
    request.n_labels = 2;
    request.threshold = 1e-9f;
    request.overlap = GPUSERVE_OVERLAP_NESTED;
    request.multi_label = 1;
    return request;
}

/* A query of many parts of a job: the deadline is that of the call, not of each part. */
Test(entity_query, the_deadline_covers_all_parts)
{
    enum { N = 3000 };
    static const char *texts[N];
    gpuserve_model *model = open_model("bert-spans");
    gpuserve_entity_request request = request_of(texts);
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_entity_query *query;

    for (size_t i = 0; i < N; i++)
        texts[i] = "Ada lives in London";
    request.n_texts = N;
    query = make_query(model, &request);
    job.cache = GPUSERVE_CACHE_OFF;
    job.result = &result;
    cr_assert_eq(gpuserve_entity_query_run(query, &job, &error), GPUSERVE_OK, "%s", error.message);
    job.deadline_us = (int64_t)result.total_us / 4;
    cr_expect_eq(gpuserve_entity_query_run(query, &job, &error), GPUSERVE_E_EXPIRED, "%s",
                 error.message);
    cr_expect_null(gpuserve_entity_query_found(query, 0, NULL, NULL));
    gpuserve_entity_query_free(&query);
    gpuserve_model_close(&model);
}

/* The model was swapped for one without entities, whose vocabulary and vectors have other sizes. */
Test(entity_query, a_swapped_model_is_refused)
{
    enum { WIDTH = 24, MAX_FLOATS = 1024 };
    static const char *const text = "Ada lives in London";
    gpuserve_model *model = open_model("bert-spans");
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_swap_options how = GPUSERVE_SWAP_OPTIONS_INIT;
    const gpuserve_entity_request request = request_of(&text);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    static float vectors[MAX_FLOATS];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_entity_query *query;
    size_t n_floats;

    query = make_query(model, &request);
    n_floats = WIDTH * gpuserve_entity_query_job(query, &job);
    cr_assert_leq(n_floats, MAX_FLOATS);
    options.device = "cpu";
    how.allow = GPUSERVE_CHANGE_DIM | GPUSERVE_CHANGE_LABELS;
    cr_assert_eq(
        gpuserve_model_swap(model, test_data("recurrent/torch"), NULL, &options, &how, &error),
        GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(gpuserve_entity_query_run(query, NULL, &error), GPUSERVE_E_MISMATCH, "%s",
                 error.message);
    cr_expect_eq(gpuserve_entity_query_decode(query, vectors, n_floats, &error),
                 GPUSERVE_E_MISMATCH, "%s", error.message);
    gpuserve_entity_query_free(&query);
    gpuserve_model_close(&model);
}

struct gsv_model;

static bool loses_device;
static int n_lost;

gpuserve_status __real_gsv_entity_pairs(struct gsv_entity_exec *exec, const float *words,
                                        int32_t n_words, const float *labels, int32_t n_labels,
                                        float *logits, gpuserve_error *error);
gpuserve_status __wrap_gsv_entity_pairs(struct gsv_entity_exec *exec, const float *words,
                                        int32_t n_words, const float *labels, int32_t n_labels,
                                        float *logits, gpuserve_error *error);
void __wrap_gsv_lost_note(struct gsv_model *model);

gpuserve_status __wrap_gsv_entity_pairs(struct gsv_entity_exec *exec, const float *words,
                                        int32_t n_words, const float *labels, int32_t n_labels,
                                        float *logits, gpuserve_error *error)
{
    return loses_device
               ? GPUSERVE_E_DEVICE
               : __real_gsv_entity_pairs(exec, words, n_words, labels, n_labels, logits, error);
}

void __wrap_gsv_lost_note(struct gsv_model *model)
{
    (void)model;
    n_lost++;
}

static bool is_nan;

gpuserve_status __real_gsv_entity_labels(struct gsv_entity_exec *exec, const float *labels,
                                         int32_t n, float *queries, float *offsets,
                                         gpuserve_error *error);
gpuserve_status __wrap_gsv_entity_labels(struct gsv_entity_exec *exec, const float *labels,
                                         int32_t n, float *queries, float *offsets,
                                         gpuserve_error *error);

gpuserve_status __wrap_gsv_entity_labels(struct gsv_entity_exec *exec, const float *labels,
                                         int32_t n, float *queries, float *offsets,
                                         gpuserve_error *error)
{
    const gpuserve_status st = __real_gsv_entity_labels(exec, labels, n, queries, offsets, error);

    if (is_nan)
        queries[0] = NAN;
    return st;
}

Test(entity_query, results_that_are_no_numbers_are_an_error)
{
    static const char *const text = "Ada lives in London";

    for (size_t i = 0; i < N_NAMES; i++) {
        gpuserve_model *model = open_model(names[i]);
        const gpuserve_entity_request request = request_of(&text);
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_entity_query *query;

        query = make_query(model, &request);
        is_nan = true;
        cr_expect_eq(gpuserve_entity_query_run(query, NULL, &error), GPUSERVE_E_NUMERIC);
        cr_expect(strstr(error.message, "text 0: "), "%s", error.message);
        is_nan = false;
        cr_expect_eq(gpuserve_entity_query_run(query, NULL, &error), GPUSERVE_OK);
        gpuserve_entity_query_free(&query);
        gpuserve_model_close(&model);
    }
}

/* A device that fails in the last product of a token head is reported as in the others. */
Test(entity_query, a_lost_device_is_noted)
{
    static const char *const text = "Ada lives in London";
    gpuserve_model *model = open_model("deberta-tokens");
    const gpuserve_entity_request request = request_of(&text);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_entity_query *query;

    query = make_query(model, &request);
    loses_device = true;
    cr_expect_eq(gpuserve_entity_query_run(query, NULL, &error), GPUSERVE_E_DEVICE);
    cr_expect_eq(n_lost, 1);
    loses_device = false;
    cr_expect_eq(gpuserve_entity_query_run(query, NULL, &error), GPUSERVE_OK);
    gpuserve_entity_query_free(&query);
    gpuserve_model_close(&model);
}

/* BERT's normalizer removes a combining mark, which is a word of its own: the words after it keep
 * their places. */
Test(entity_query, words_without_tokens_shift_nothing)
{
    enum { SHIFT = 4 };
    const char *plain = "Ada lives in London", *marked = "\xe0\xa5\x8d Ada lives in London";
    gpuserve_model *model = open_model("bert-spans");
    gpuserve_entity_request request = request_of(&plain);
    gpuserve_entity_query *first = run_query(model, &request), *second;
    size_t n, n_marked;
    const gpuserve_found_entity *found = gpuserve_entity_query_found(first, 0, &n, NULL), *shifted;

    request.texts = &marked;
    second = run_query(model, &request);
    shifted = gpuserve_entity_query_found(second, 0, &n_marked, NULL);
    cr_assert_gt(n, 10u);
    cr_assert_eq(n, n_marked);
    for (size_t i = 0; i < n; i++) {
        cr_expect_eq(found[i].begin + SHIFT, shifted[i].begin);
        cr_expect_eq(found[i].end + SHIFT, shifted[i].end);
        cr_expect_eq(found[i].score, shifted[i].score);
    }
    gpuserve_entity_query_free(&first);
    gpuserve_entity_query_free(&second);
    gpuserve_model_close(&model);
}

/* The first and the last byte of all entities of a text of 60 words, of which the model reads 24.
 */
static void find_range(gpuserve_model *model, uint32_t truncation, uint32_t *begin, uint32_t *end)
{
    char text[60 * 4 + 1];
    const char *at = text;
    gpuserve_entity_request request = request_of(&at);
    gpuserve_entity_query *query;
    uint32_t truncated = 0;
    size_t n;
    const gpuserve_found_entity *found;

    for (int i = 0; i < 60; i++)
        memcpy(text + 4 * i, "the ", 5);
    request.truncation = truncation;
    query = run_query(model, &request);
    found = gpuserve_entity_query_found(query, 0, &n, &truncated);
    cr_expect_eq(truncated, 1);
    *begin = UINT32_MAX;
    *end = 0;
    for (size_t i = 0; i < n; i++) {
        *begin = found[i].begin < *begin ? found[i].begin : *begin;
        *end = found[i].end > *end ? found[i].end : *end;
    }
    gpuserve_entity_query_free(&query);
}

Test(entity_query, long_texts_are_cut_at_either_end)
{
    gpuserve_model *model = open_model("bert-spans");
    uint32_t begin, end;

    find_range(model, GPUSERVE_TRUNCATE_DEFAULT, &begin, &end);
    cr_expect_eq(begin, 0u);
    cr_expect_eq(end, 24u * 4 - 1);
    find_range(model, GPUSERVE_TRUNCATE_LEFT, &begin, &end);
    cr_expect_eq(begin, 36u * 4);
    cr_expect_eq(end, 60u * 4 - 1);
    gpuserve_model_close(&model);
}

/* 20 words in 24 tokens, some of which are those of labels. */
Test(entity_query, texts_are_cut_at_the_limit_of_tokens)
{
    char text[20 * 4 + 1];
    const char *at = text;
    gpuserve_entity_request request = request_of(&at);
    gpuserve_model *model = open_limited("bert-spans", 24);
    uint32_t last[2] = { 0 };

    for (int i = 0; i < 20; i++)
        memcpy(text + 4 * i, "the ", 5);
    for (uint32_t left = 0; left < 2; left++) {
        gpuserve_entity_query *query;
        uint32_t truncated = 0;
        size_t n;
        const gpuserve_found_entity *found;

        request.truncation = left ? GPUSERVE_TRUNCATE_LEFT : GPUSERVE_TRUNCATE_RIGHT;
        query = run_query(model, &request);
        found = gpuserve_entity_query_found(query, 0, &n, &truncated);
        cr_expect_eq(truncated, 1);
        cr_assert_gt(n, 0u);
        cr_expect(left ? found[0].begin > 0 : found[0].begin == 0);
        last[left] = found[n - 1].end;
        gpuserve_entity_query_free(&query);
    }
    cr_expect_lt(last[0], 20u * 4 - 1);
    cr_expect_eq(last[1], 20u * 4 - 1);
    gpuserve_model_close(&model);
}

static void refuse(gpuserve_model *model, const gpuserve_entity_request *request,
                   gpuserve_status status, const char *words)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_entity_query *query = (gpuserve_entity_query *)1;

    cr_expect_eq(gpuserve_entity_query_create(&query, model, request, &error), status, "%s",
                 error.message);
    cr_expect_null(query);
    cr_expect(strstr(error.message, words), "'%s' is not in '%s'", words, error.message);
}

Test(entity_query, bad_labels_are_refused)
{
    static const char *const bad[][2] = { { "person", "" },
                                          { "person", "person" },
                                          { "person", NULL },
                                          { "a", "b<<ENT>>c" },
                                          { "a", "\xff" } };
    static const char *const words[] = { "label 1 is empty", "is that of label 0",
                                         "label 1 is NULL", "contains the token", "label 1" };
    const char *text = "Ada", *many[GPUSERVE_ENTITY_MAX_LABELS + 1];
    gpuserve_model *model = open_model("deberta-spans");
    gpuserve_entity_request request = request_of(&text);
    char numbers[GPUSERVE_ENTITY_MAX_LABELS + 1][8];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        request.labels = bad[i];
        refuse(model, &request, GPUSERVE_E_INVALID, words[i]);
    }
    for (size_t i = 0; i <= GPUSERVE_ENTITY_MAX_LABELS; i++) {
        snprintf(numbers[i], sizeof(numbers[i]), "%zu", i);
        many[i] = numbers[i];
    }
    request.labels = many;
    request.n_labels = GPUSERVE_ENTITY_MAX_LABELS + 1;
    refuse(model, &request, GPUSERVE_E_TOO_LARGE, "1025 labels for one text, the limit is 1024");
    request.n_labels = GPUSERVE_ENTITY_MAX_LABELS;
    refuse(model, &request, GPUSERVE_E_TOO_LARGE, "leaves no room for a text: the limit is 2048");
    gpuserve_model_close(&model);
}

Test(entity_query, bad_requests_are_refused)
{
    static const size_t falling[] = { 1, 0 }, beyond[] = { 0, 3 };
    const char *text = "Ada", *bytes = "\xc3", *null = NULL;
    gpuserve_model *model = open_model("bert-spans");
    const gpuserve_entity_request good = request_of(&text);
    gpuserve_entity_request request = good;
    char words[30 * 4 + 1] = "";

    request.threshold = 1.5f;
    refuse(model, &request, GPUSERVE_E_INVALID, "threshold is 1.5, outside 0 to 1");
    request.threshold = NAN;
    refuse(model, &request, GPUSERVE_E_INVALID, "threshold");
    request = good;
    request.overlap = 2;
    refuse(model, &request, GPUSERVE_E_INVALID, "overlap is 2");
    request = good;
    request.label_offsets = falling;
    refuse(model, &request, GPUSERVE_E_INVALID, "label_offsets of text 0");
    request.label_offsets = beyond;
    refuse(model, &request, GPUSERVE_E_INVALID, "label_offsets of text 0");
    request = good;
    request.texts = &bytes;
    refuse(model, &request, GPUSERVE_E_INVALID, "not UTF-8 at byte 0");
    request.texts = &null;
    refuse(model, &request, GPUSERVE_E_INVALID, "text 0 is NULL");
    request = good;
    for (int i = 0; i < 30; i++)
        memcpy(words + 4 * i, "the ", 5);
    text = words;
    request.truncation = GPUSERVE_TRUNCATE_STRICT;
    refuse(model, &request, GPUSERVE_E_TOO_LARGE, "30 words, the limit is 24");
    refuse(model, NULL, GPUSERVE_E_INVALID, "NULL");
    gpuserve_model_close(&model);
}

Test(entity_query, other_models_are_refused)
{
    const char *text = "Ada";
    const gpuserve_entity_request request = request_of(&text);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model;

    cr_assert_eq(gpuserve_model_open(&model, NULL, test_data("recurrent/torch"), NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    refuse(model, &request, GPUSERVE_E_UNSUPPORTED, "has no entity head");
    gpuserve_model_close(&model);
}
