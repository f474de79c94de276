/*
 * test_model_outputs.c - several outputs of one pass have the bits of separate passes, for every
 * family, whatever output comes first.
 *
 * tests/data/models/families.txt names the models; tools/fixtures/make_family_models writes them.
 */
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXTS = 8 };

/* Rows of one task for the first texts of a model. */
struct rows {
    struct gsv_run run;
    float *alone; /* of a pass of its own */
    size_t n_floats;
};

static size_t list_rows(const struct gsv_spec_facts *facts, struct rows *rows)
{
    size_t n = 0;

    rows[n++].run = (struct gsv_run){ .task = GPUSERVE_TASK_TOKEN_VECTORS };
    if (facts->dim > 0)
        rows[n++].run = (struct gsv_run){ .task = GPUSERVE_TASK_EMBED,
                                          .dimensions = facts->dim,
                                          .normalize = true };
    if (facts->is_sparse)
        rows[n++].run = (struct gsv_run){ .task = GPUSERVE_TASK_SPARSE };
    if (facts->n_labels > 0)
        rows[n++].run = (struct gsv_run){ .task = facts->labels_tokens ? GPUSERVE_TASK_TOKEN_LABELS
                                                                       : GPUSERVE_TASK_CLASSIFY,
                                          .score = (uint32_t)facts->score };
    return n;
}

static float *run_one(const struct loaded *model, const struct texts *texts,
                      const struct rows *rows, bool again)
{
    struct gsv_run run = rows->run;

    run.again = again;
    run.output = calloc(rows->n_floats, sizeof(float));
    run_texts(model, texts, 0, texts->n, &run);
    return run.output;
}

/* Each output comes first once, and the others follow in order. */
static void check_passes(const struct loaded *model, const struct texts *texts, const char *name)
{
    struct rows rows[4] = { 0 };
    const size_t n = list_rows(gsv_spec_facts(model->spec), rows);
    size_t n_tokens = 0;

    for (size_t i = 0; i < texts->n; i++)
        n_tokens += (size_t)texts->n_tokens[i];
    for (size_t i = 0; i < n; i++) {
        rows[i].n_floats = (gsv_is_by_token(rows[i].run.task) ? n_tokens : texts->n) *
                           (size_t)gsv_run_columns(gsv_spec_facts(model->spec), &rows[i].run);
        rows[i].alone = run_one(model, texts, &rows[i], false);
    }
    for (size_t first = 0; first < n; first++) {
        for (size_t i = 0; i < n; i++) {
            const struct rows *one = &rows[(first + i) % n];
            float *got = run_one(model, texts, one, i > 0);

            cr_expect(memcmp(got, one->alone, one->n_floats * sizeof(float)) == 0,
                      "%s: task %u after task %u has other bits", name, one->run.task,
                      rows[first].run.task);
            free(got);
        }
    }
    for (size_t i = 0; i < n; i++)
        free(rows[i].alone);
}

static void check_model(const char *name, uint32_t dtype)
{
    char path[1024], reference[1100];
    struct loaded model;
    struct texts texts;
    size_t n;

    snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA_DIR, name);
    snprintf(reference, sizeof(reference), "%s/reference.safetensors", path);
    texts = read_texts(reference);
    n = texts.n;
    texts.n = n < MAX_TEXTS ? n : MAX_TEXTS;
    load_model(&model, path, &(struct load_options){ .dtype = dtype });
    check_passes(&model, &texts, name);
    unload_model(&model);
    texts.n = n;
    free_texts(&texts);
}

static void check_all(uint32_t dtype)
{
    static struct model_name names[MAX_MODELS];
    const size_t n = read_families(names);
    char reason[96];

    cr_assert_gt(n, 100, "%zu models", n);
    for (size_t i = 0; i < n; i++)
        if (!is_refused(names[i].text, reason))
            check_model(names[i].text, dtype);
}

Test(model_outputs, of_one_pass_equal_separate_passes_in_every_family)
{
    check_all(GPUSERVE_DTYPE_FLOAT32);
}

Test(model_outputs, of_one_pass_equal_separate_passes_in_int8)
{
    static const char *const models[] = { "bert-masked", "roberta-masked", "modernbert-masked",
                                          "bert-single", "electra-tokens", "st-dense" };

    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        check_model(models[i], GPUSERVE_DTYPE_INT8);
}
