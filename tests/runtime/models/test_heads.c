/*
 * test_heads.c - jobs that name classifier heads of one model, through the public API.
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_HEADS = 4, N_TEXTS = 4, MAX_LABELS = 64, DIM = FOLDER_HIDDEN };

static const struct head_shape shapes[N_HEADS] = { { "plain", "softmax", "normalized", { 3 } },
                                                   { "deep", "none", "raw", { 10, 7, 9, 4 } },
                                                   { "two", "sigmoid", "raw", { 8, 17 } },
                                                   { "other", "softmax", "model", { 2 } } };
static const size_t n_labels[N_HEADS] = { 3, 4, 17, 2 };
static const char *const texts[N_TEXTS] = { "w5 w6 w7", "w20", "w9 w10 w11 w12 w13 w14", "w90 w5" };

struct fixture {
    struct folder folder;
    char lines[512];
};

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    folder_make(&f->folder, "bert");
    for (size_t i = 0; i < N_HEADS; i++) {
        const size_t used = strlen(f->lines);

        write_head(f->folder.path, &shapes[i], DIM);
        snprintf(f->lines + used, sizeof(f->lines) - used, "%s=%s/%s.safetensors\n",
                 i == 2 ? "a name" : shapes[i].name, f->folder.path, shapes[i].name);
    }
}

static gpuserve_model *open_model(const char *path, const char *head, const char *heads,
                                  uint32_t dtype, uint64_t cache_bytes)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.dtype = dtype;
    options.head = head;
    options.heads = heads;
    options.cache_bytes = cache_bytes;
    cr_assert_eq(gpuserve_model_open(&model, NULL, path, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    return model;
}

static size_t count_heads(const gpuserve_model *model)
{
    gpuserve_model_properties properties = GPUSERVE_MODEL_PROPERTIES_INIT;

    cr_assert_eq(gpuserve_model_get_properties(model, &properties, NULL), GPUSERVE_OK);
    return properties.n_heads;
}

static void classify(gpuserve_model *model, const char *heads, float *scores, size_t columns)
{
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    options.heads = heads;
    cr_assert_eq(
        gpuserve_classify(model, texts, N_TEXTS, scores, N_TEXTS * columns, &options, &error),
        GPUSERVE_OK, "%s", error.message);
}

/* The scores of each head from a model that has no other. */
static void score_alone(const struct fixture *f, uint32_t dtype,
                        float want[N_HEADS][N_TEXTS * MAX_LABELS])
{
    for (size_t i = 0; i < N_HEADS; i++) {
        gpuserve_model *model;
        char path[128];

        snprintf(path, sizeof(path), "%s/%s.safetensors", f->folder.path, shapes[i].name);
        model = open_model(f->folder.path, path, NULL, dtype, 0);
        cr_assert_eq(gpuserve_model_label_count(model), n_labels[i]);
        classify(model, NULL, want[i], n_labels[i]);
        gpuserve_model_close(&model);
    }
}

static void expect_rows(const float *rows, const float want[N_HEADS][N_TEXTS * MAX_LABELS],
                        const size_t *order, size_t n)
{
    size_t columns = 0, first = 0;

    for (size_t i = 0; i < n; i++)
        columns += n_labels[order[i]];
    for (size_t i = 0; i < n; i++) {
        const size_t head = order[i];

        for (size_t t = 0; t < N_TEXTS; t++)
            cr_expect_eq(memcmp(rows + t * columns + first, want[head] + t * n_labels[head],
                                n_labels[head] * sizeof(float)),
                         0, "text %zu: head %s has other scores than alone", t, shapes[head].name);
        first += n_labels[head];
    }
}

static const struct {
    const char *names;
    size_t order[N_HEADS], n;
} lists[] = {
    { "*", { 0, 1, 2, 3 }, 4 },
    { NULL, { 0 }, 1 },
    { "other,plain", { 3, 0 }, 2 },
    { "a name", { 2 }, 1 },
    { "deep,other,a name", { 1, 3, 2 }, 3 },
};
enum { N_LISTS = sizeof(lists) / sizeof(lists[0]) };

Test(heads, of_a_job_come_in_its_order_with_the_bits_of_each_alone)
{
    static const uint32_t dtypes[] = { GPUSERVE_DTYPE_FLOAT32, GPUSERVE_DTYPE_INT8 };
    static float want[N_HEADS][N_TEXTS * MAX_LABELS], rows[N_TEXTS * MAX_LABELS];
    struct fixture f;

    begin(&f);
    for (size_t d = 0; d < 2; d++) {
        gpuserve_model *model = open_model(f.folder.path, NULL, f.lines, dtypes[d], 0);

        score_alone(&f, dtypes[d], want);
        for (size_t i = 0; i < N_LISTS; i++) {
            gpuserve_model_counts before = { .struct_size = sizeof(before) }, after = before;
            size_t columns = 0;

            for (size_t k = 0; k < lists[i].n; k++)
                columns += n_labels[lists[i].order[k]];
            cr_assert_eq(gpuserve_model_stats(model, &before, NULL), GPUSERVE_OK);
            classify(model, lists[i].names, rows, columns);
            cr_assert_eq(gpuserve_model_stats(model, &after, NULL), GPUSERVE_OK);
            cr_expect_eq(after.batches - before.batches, 1, "\"%s\"", lists[i].names);
            expect_rows(rows, want, lists[i].order, lists[i].n);
        }
        gpuserve_model_close(&model);
    }
    folder_remove(&f.folder);
}

Test(heads, and_the_embedding_are_outputs_of_one_job)
{
    static float want[N_HEADS][N_TEXTS * MAX_LABELS], rows[N_TEXTS * MAX_LABELS];
    static float vectors[N_TEXTS * DIM], embedded[N_TEXTS * DIM];
    const gpuserve_output more = { .task = GPUSERVE_TASK_CLASSIFY,
                                   .rows = rows,
                                   .capacity = N_TEXTS * MAX_LABELS };
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_model *model;
    struct fixture f;

    begin(&f);
    score_alone(&f, GPUSERVE_DTYPE_FLOAT32, want);
    model = open_model(f.folder.path, NULL, f.lines, GPUSERVE_DTYPE_FLOAT32, 0);
    job.task = GPUSERVE_TASK_EMBED;
    job.n_items = N_TEXTS;
    job.texts = texts;
    job.output = vectors;
    job.output_capacity = N_TEXTS * DIM;
    job.heads = "deep,other,a name";
    job.more = &more;
    job.n_more = 1;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    expect_rows(rows, want, (const size_t[]){ 1, 3, 2 }, 3);
    cr_assert_eq(gpuserve_embed(model, texts, N_TEXTS, embedded, N_TEXTS * DIM, NULL, NULL),
                 GPUSERVE_OK);
    cr_expect_eq(memcmp(vectors, embedded, sizeof(vectors)), 0);
    gpuserve_model_close(&model);
    folder_remove(&f.folder);
}

/* Jobs of different lists wait at the same time; coalescing and the cache tell them apart. */
Test(heads, of_jobs_on_equal_texts_are_told_apart)
{
    enum { JOBS = 4 * N_LISTS };
    static float want[N_HEADS][N_TEXTS * MAX_LABELS], rows[JOBS][N_TEXTS * MAX_LABELS];
    gpuserve_request *requests[JOBS] = { NULL };
    gpuserve_model *model;
    struct fixture f;

    begin(&f);
    score_alone(&f, GPUSERVE_DTYPE_FLOAT32, want);
    model = open_model(f.folder.path, NULL, f.lines, GPUSERVE_DTYPE_FLOAT32, 1 << 20);
    for (size_t i = 0; i < JOBS; i++) {
        gpuserve_job job = GPUSERVE_JOB_INIT;

        job.task = GPUSERVE_TASK_CLASSIFY;
        job.n_items = N_TEXTS;
        job.texts = texts;
        job.heads = lists[i % N_LISTS].names;
        job.output = rows[i];
        job.output_capacity = N_TEXTS * MAX_LABELS;
        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, NULL), GPUSERVE_OK);
    }
    for (size_t i = 0; i < JOBS; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
        expect_rows(rows[i], want, lists[i % N_LISTS].order, lists[i % N_LISTS].n);
    }
    gpuserve_model_close(&model);
    folder_remove(&f.folder);
}

/* ------------------------------------------------------------------------------------- properties
 */

static void expect_heads(const char *text)
{
    static const char *const scores[] = { "softmax", "raw", "sigmoid", "softmax" };
    json_t *info = json_loads(text, 0, NULL);
    const json_t *heads = json_object_get(info, "classifier_heads");

    cr_assert_eq(json_array_size(heads), N_HEADS, "%s", text);
    for (size_t i = 0; i < N_HEADS; i++) {
        const json_t *head = json_array_get(heads, i);

        cr_expect_str_eq(json_string_value(json_object_get(head, "name")),
                         i == 2 ? "a name" : shapes[i].name);
        cr_expect_str_eq(json_string_value(json_object_get(head, "score")), scores[i]);
        cr_expect_eq(json_array_size(json_object_get(head, "labels")), n_labels[i]);
    }
    json_decref(info);
}

Test(heads, have_names_labels_and_scores)
{
    static const uint32_t scores[] = { GPUSERVE_SCORE_SOFTMAX, GPUSERVE_SCORE_RAW,
                                       GPUSERVE_SCORE_SIGMOID, GPUSERVE_SCORE_SOFTMAX };
    static char text[1 << 16];
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_head head = GPUSERVE_HEAD_INIT;
    gpuserve_model *model;
    struct fixture f;
    size_t size;

    begin(&f);
    model = open_model(f.folder.path, NULL, f.lines, GPUSERVE_DTYPE_FLOAT32, 0);
    cr_expect_eq(count_heads(model), N_HEADS);
    cr_expect_eq(gpuserve_model_label_count(model), n_labels[0]);
    cr_expect_str_eq(gpuserve_model_label(model, 2), "plain 2");
    for (size_t i = 0; i < N_HEADS; i++) {
        char label[32];

        cr_assert_eq(gpuserve_model_head(model, i, &head, NULL), GPUSERVE_OK);
        cr_expect_str_eq(head.name, i == 2 ? "a name" : shapes[i].name);
        cr_expect_eq(head.score, scores[i]);
        cr_assert_eq(head.n_labels, n_labels[i]);
        snprintf(label, sizeof(label), "%s %zu", shapes[i].name, n_labels[i] - 1);
        cr_expect_str_eq(head.labels[n_labels[i] - 1], label);
    }
    cr_expect_eq(gpuserve_model_head(model, N_HEADS, &head, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "index is 4, the model has 4"), "%s", error.message);
    cr_assert_eq(gpuserve_model_info(model, text, sizeof(text), &size, NULL), GPUSERVE_OK);
    expect_heads(text);
    gpuserve_model_close(&model);
    options.heads = f.lines;
    cr_assert_eq(gpuserve_context_create(&context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(
        gpuserve_model_inspect(context, f.folder.path, &options, text, sizeof(text), &size, NULL),
        GPUSERVE_OK);
    expect_heads(text);
    gpuserve_context_unref(&context);
    folder_remove(&f.folder);
}

/* `head` is the first, under the name of its file. */
Test(heads, one_head_and_further_ones)
{
    static float one[N_TEXTS * MAX_LABELS], named[N_TEXTS * MAX_LABELS];
    gpuserve_head head = GPUSERVE_HEAD_INIT;
    char path[128], lines[256];
    gpuserve_model *model;
    struct fixture f;

    begin(&f);
    snprintf(path, sizeof(path), "%s/two.safetensors", f.folder.path);
    snprintf(lines, sizeof(lines), "%s/other.safetensors", f.folder.path);
    model = open_model(f.folder.path, path, lines, GPUSERVE_DTYPE_FLOAT32, 0);
    cr_expect_eq(count_heads(model), 2);
    cr_assert_eq(gpuserve_model_head(model, 0, &head, NULL), GPUSERVE_OK);
    cr_expect_str_eq(head.name, "two");
    cr_assert_eq(gpuserve_model_head(model, 1, &head, NULL), GPUSERVE_OK);
    cr_expect_str_eq(head.name, "other");
    classify(model, NULL, one, 17);
    classify(model, "two", named, 17);
    cr_expect_eq(memcmp(one, named, sizeof(one)), 0);
    gpuserve_model_close(&model);
    folder_remove(&f.folder);
}

/* --------------------------------------------------------------------------------------- refused
 */

static void expect_refused(gpuserve_model *model, uint32_t task, const char *heads, size_t capacity,
                           const char *says)
{
    static float rows[N_TEXTS * MAX_LABELS];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.task = task;
    job.n_items = N_TEXTS;
    job.texts = texts;
    job.heads = heads;
    job.output = rows;
    job.output_capacity = capacity;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID, "\"%s\"", heads);
    cr_expect(strstr(error.message, says) || strstr(error.hint, says), "'%s' is not in: %s; %s",
              says, error.message, error.hint);
}

Test(heads, that_a_model_does_not_have_are_refused)
{
    struct fixture f;
    gpuserve_model *model;

    begin(&f);
    model = open_model(f.folder.path, NULL, f.lines, GPUSERVE_DTYPE_FLOAT32, 0);
    expect_refused(model, GPUSERVE_TASK_CLASSIFY, "plain,nope", 400,
                   "job.heads: the model has no head \"nope\"");
    expect_refused(model, GPUSERVE_TASK_CLASSIFY, "nope", 400,
                   "its heads: plain, deep, a name, other");
    expect_refused(model, GPUSERVE_TASK_CLASSIFY, "", 400, "the model has no head \"\"");
    expect_refused(model, GPUSERVE_TASK_CLASSIFY, "plain,", 400, "the model has no head \"\"");
    expect_refused(model, GPUSERVE_TASK_CLASSIFY, "*,plain", 400, "the model has no head \"*\"");
    expect_refused(model, GPUSERVE_TASK_CLASSIFY, "deep,plain,deep", 400,
                   "the head \"deep\" is named twice");
    expect_refused(model, GPUSERVE_TASK_CLASSIFY, "*", N_TEXTS * 26 - 1, "4 rows of 26 need 104");
    expect_refused(model, GPUSERVE_TASK_EMBED, "plain", 400, "job.heads is valid only for");
    gpuserve_model_close(&model);
    model = open_model(f.folder.path, NULL, NULL, GPUSERVE_DTYPE_FLOAT32, 0);
    cr_expect_eq(count_heads(model), 0);
    gpuserve_model_close(&model);
    folder_remove(&f.folder);
    folder_make(&f.folder, "bert-single");
    model = open_model(f.folder.path, NULL, NULL, GPUSERVE_DTYPE_FLOAT32, 0);
    expect_refused(model, GPUSERVE_TASK_CLASSIFY, "plain", 400, "its heads: none");
    gpuserve_model_close(&model);
    folder_remove(&f.folder);
}

/* ----------------------------------------------------------------------------- swap and suspend */

Test(heads, are_kept_by_a_suspended_model_and_changed_by_a_swap)
{
    static float want[N_HEADS][N_TEXTS * MAX_LABELS], rows[N_TEXTS * MAX_LABELS];
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_swap_options how = GPUSERVE_SWAP_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_head head = GPUSERVE_HEAD_INIT;
    uint32_t changes = 0;
    gpuserve_model *model;
    char lines[256];
    struct fixture f;

    begin(&f);
    score_alone(&f, GPUSERVE_DTYPE_FLOAT32, want);
    model = open_model(f.folder.path, NULL, f.lines, GPUSERVE_DTYPE_FLOAT32, 0);
    memset(f.lines, 'x', sizeof(f.lines) - 1); /* the model has a copy */
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    classify(model, "*", rows, 26);
    expect_rows(rows, want, (const size_t[]){ 0, 1, 2, 3 }, 4);
    cr_assert_eq(gpuserve_model_head(model, 3, &head, NULL), GPUSERVE_OK);
    snprintf(lines, sizeof(lines), "plain=%s/plain.safetensors\ndeeper=%s/deep.safetensors",
             f.folder.path, f.folder.path);
    options.device = "cpu";
    options.heads = lines;
    cr_expect_eq(gpuserve_model_swap(model, NULL, &changes, &options, &how, &error),
                 GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "2 heads differ"), "%s", error.message);
    how.allow = GPUSERVE_CHANGE_LABELS;
    cr_assert_eq(gpuserve_model_swap(model, NULL, &changes, &options, &how, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_expect(changes & GPUSERVE_CHANGE_LABELS);
    cr_expect(changes & GPUSERVE_CHANGE_FINGERPRINT);
    cr_expect_eq(count_heads(model), 2);
    cr_expect_str_eq(head.name, "other", "borrowed strings stay");
    classify(model, "deeper,plain", rows, 7);
    expect_rows(rows, want, (const size_t[]){ 1, 0 }, 2);
    gpuserve_model_close(&model);
    folder_remove(&f.folder);
}
