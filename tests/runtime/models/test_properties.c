/*
 * test_properties.c - gpuserve_model_get_properties(): the values of the JSON for models of every
 * kind, one snapshot while models are swapped, and structs of other sizes.
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIT(task) (1u << GPUSERVE_TASK_##task)

static gpuserve_model *open_model(const char *path)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.n_threads = 1;
    cr_assert_eq(gpuserve_model_open(&model, NULL, path, &options, &error), GPUSERVE_OK, "%s: %s",
                 path, error.message);
    return model;
}

static gpuserve_model_properties read_properties(const gpuserve_model *model)
{
    gpuserve_model_properties properties = GPUSERVE_MODEL_PROPERTIES_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_model_get_properties(model, &properties, &error), GPUSERVE_OK, "%s",
                 error.message);
    return properties;
}

static json_t *read_info(gpuserve_model *model)
{
    size_t size = 0;
    json_t *info;
    char *text;

    cr_assert_eq(gpuserve_model_info(model, NULL, 0, &size, NULL), GPUSERVE_OK);
    text = malloc(size);
    cr_assert_eq(gpuserve_model_info(model, text, size, NULL, NULL), GPUSERVE_OK);
    info = json_loads(text, 0, NULL);
    cr_assert_not_null(info);
    free(text);
    return info;
}

/* ------------------------------------------------------------------------- the values of the JSON
 */

static void expect_number(const char *path, const json_t *info, const char *key, size_t got)
{
    const json_t *value = json_object_get(info, key);

    cr_assert(json_is_integer(value), "%s: %s", path, key);
    cr_expect_eq((json_int_t)got, json_integer_value(value), "%s: %s is %zu", path, key, got);
}

static uint32_t tasks_of(const json_t *info)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } known[] = { { "embed", BIT(EMBED) },
                  { "classify", BIT(CLASSIFY) },
                  { "token_vectors", BIT(TOKEN_VECTORS) },
                  { "sparse", BIT(SPARSE) },
                  { "token_labels", BIT(TOKEN_LABELS) } };
    uint32_t tasks = json_is_true(json_object_get(info, "late_interaction")) ? BIT(MAX_SIM) : 0;
    const json_t *task;
    size_t i;

    json_array_foreach(json_object_get(info, "tasks"), i, task)
    {
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            if (strcmp(json_string_value(task), known[k].name) == 0)
                tasks |= known[k].bit;
    }
    return tasks;
}

static bool has_entities(const json_t *info)
{
    const json_t *task;
    size_t i;

    json_array_foreach(json_object_get(info, "tasks"), i, task)
    {
        if (strcmp(json_string_value(task), "entities") == 0)
            return true;
    }
    return false;
}

static const char *text_of(const json_t *info, const char *key)
{
    const char *text = json_string_value(json_object_get(info, key));

    return text ? text : "none";
}

static void expect_as_json(const char *path, const gpuserve_model_properties *p, const json_t *info)
{
    static const char *const methods[] = { "none", "cross_encoder", "cosine", "max_sim" };
    static const char *const dtypes[] = { "default",  "float32", "float16",
                                          "bfloat16", "tf32",    "int8" };
    const json_t *late = json_object_get(info, "late");
    const json_t *entailment = json_object_get(info, "entailment_label");

    expect_number(path, info, "dim", p->dim);
    expect_number(path, info, "token_dim", p->token_dim);
    expect_number(path, info, "first_vector", p->first_vector);
    expect_number(path, info, "max_tokens", p->max_tokens);
    expect_number(path, info, "vocab_size", p->vocab_size);
    cr_expect_eq(p->tasks, tasks_of(info), "%s: %#x", path, p->tasks);
    cr_expect_eq(p->sparse_dim, p->tasks & BIT(SPARSE) ? p->vocab_size : 0, "%s", path);
    cr_expect_eq(p->n_labels, json_array_size(json_object_get(info, "labels")), "%s", path);
    cr_expect_eq(p->n_heads, json_array_size(json_object_get(info, "classifier_heads")), "%s",
                 path);
    cr_expect_eq(p->entailment_label, entailment ? (int32_t)json_integer_value(entailment) : -1,
                 "%s: %d", path, p->entailment_label);
    cr_assert_lt(p->rerank_method, 4);
    cr_expect_str_eq(text_of(info, "rerank"), methods[p->rerank_method], "%s", path);
    cr_assert_lt(p->dtype, 6);
    cr_expect_str_eq(text_of(info, "dtype"), dtypes[p->dtype], "%s", path);
    cr_expect_eq(p->finds_entities, has_entities(info), "%s", path);
    cr_expect_eq(p->takes_instruction, json_object_get(info, "pair_template") != NULL, "%s", path);
    cr_expect_str_eq(text_of(info, "fingerprint"), p->fingerprint, "%s", path);
    if (late) {
        expect_number(path, late, "query_tokens", p->query_tokens);
        expect_number(path, late, "document_tokens", p->document_tokens);
        expect_number(path, late, "expanded_tokens", p->expanded_tokens);
    } else {
        cr_expect_eq(p->query_tokens, p->max_tokens, "%s", path);
        cr_expect_eq(p->document_tokens, p->max_tokens, "%s", path);
        cr_expect_eq(p->expanded_tokens, 0, "%s", path);
    }
}

/* Models of every kind, and the values that tell them apart. A name without a folder is a model of
 * tests/data/models that gets a vocabulary: folder_make(). */
static const struct {
    const char *path;
    uint32_t tasks, rerank_method;
    int32_t entailment_label;
    uint32_t finds_entities, takes_instruction;
} models[] = {
    { "bert", BIT(EMBED) | BIT(TOKEN_VECTORS), GPUSERVE_RERANK_COSINE, -1, 0, 0 },
    { "bert-masked", BIT(EMBED) | BIT(SPARSE) | BIT(TOKEN_VECTORS), GPUSERVE_RERANK_COSINE, -1, 0,
      0 },
    { "bert-single", BIT(CLASSIFY) | BIT(TOKEN_VECTORS), GPUSERVE_RERANK_DEFAULT, -1, 0, 0 },
    { "models/bert-tokens", BIT(TOKEN_LABELS) | BIT(TOKEN_VECTORS), GPUSERVE_RERANK_DEFAULT, -1, 0,
      0 },
    { "models/bert-cross-encoder", BIT(CLASSIFY) | BIT(TOKEN_VECTORS),
      GPUSERVE_RERANK_CROSS_ENCODER, -1, 0, 0 },
    { "models/st-multi-vector", BIT(TOKEN_VECTORS) | BIT(MAX_SIM), GPUSERVE_RERANK_MAX_SIM, -1, 0,
      0 },
    { "nli/bart", BIT(CLASSIFY) | BIT(TOKEN_VECTORS), GPUSERVE_RERANK_DEFAULT, 2, 0, 0 },
    { "entities/bert-spans", BIT(TOKEN_VECTORS), GPUSERVE_RERANK_DEFAULT, -1, 1, 0 },
    { "rerankers/causal", BIT(CLASSIFY) | BIT(TOKEN_VECTORS), GPUSERVE_RERANK_CROSS_ENCODER, -1, 0,
      1 },
};

Test(properties, are_the_values_of_the_info)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        const char *const path = models[i].path;
        const bool is_copied = !strchr(path, '/');
        struct folder folder;
        gpuserve_model_properties got;
        gpuserve_model *model;
        json_t *info;

        if (is_copied)
            folder_make(&folder, path);
        model = open_model(is_copied ? folder.path : test_data(path));
        got = read_properties(model);
        info = read_info(model);
        expect_as_json(path, &got, info);
        cr_expect_eq(got.tasks, models[i].tasks, "%s: %#x", path, got.tasks);
        cr_expect_eq(got.rerank_method, models[i].rerank_method, "%s: %u", path, got.rerank_method);
        cr_expect_eq(got.entailment_label, models[i].entailment_label, "%s: %d", path,
                     got.entailment_label);
        cr_expect_eq(got.finds_entities, models[i].finds_entities, "%s", path);
        cr_expect_eq(got.takes_instruction, models[i].takes_instruction, "%s", path);
        cr_expect_eq(got.dim, gpuserve_model_dim(model));
        cr_expect_eq(got.max_tokens, gpuserve_model_max_tokens(model));
        cr_expect_eq(got.n_labels, gpuserve_model_label_count(model));
        cr_expect_str_eq(got.fingerprint, gpuserve_model_fingerprint(model));
        json_decref(info);
        gpuserve_model_close(&model);
        if (is_copied)
            folder_remove(&folder);
    }
}

/* The sizes suffice for the output of every task. */
Test(properties, sizes_are_those_of_the_outputs)
{
    static const uint32_t tasks[] = { GPUSERVE_TASK_TOKEN_VECTORS, GPUSERVE_TASK_SPARSE };
    static const int32_t ids[] = { 2, 10, 11, 3 };
    static const size_t offsets[] = { 0, 4 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model_properties p;
    gpuserve_model *model;
    struct folder folder;
    size_t floats[2];

    folder_make(&folder, "bert-masked");
    model = open_model(folder.path);
    p = read_properties(model);
    floats[0] = 4 * p.token_dim;
    floats[1] = p.sparse_dim;
    for (size_t i = 0; i < 2; i++) {
        gpuserve_job job = GPUSERVE_JOB_INIT;
        size_t token_offsets[2];

        job.task = tasks[i];
        job.n_items = 1;
        job.ids = ids;
        job.id_offsets = offsets;
        job.token_offsets = i == 0 ? token_offsets : NULL;
        job.output = calloc(floats[i], sizeof(*job.output));
        job.output_capacity = floats[i] - 1;
        job.expected_fingerprint = p.fingerprint;
        cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID, "one float too few");
        job.output_capacity = floats[i];
        cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
        free(job.output);
    }
    gpuserve_model_close(&model);
    folder_remove(&folder);
}

/* -------------------------------------------------------------------------------- swap and suspend
 */

struct reading {
    gpuserve_model *model;
    const gpuserve_model_properties *one, *other;
    atomic_bool stops;
    atomic_int n_one, n_other, n_mixed;
};

static void *read_all_the_time(void *user)
{
    struct reading *r = user;

    while (!atomic_load(&r->stops)) {
        gpuserve_model_properties got = GPUSERVE_MODEL_PROPERTIES_INIT;

        if (gpuserve_model_get_properties(r->model, &got, NULL) != GPUSERVE_OK)
            atomic_fetch_add(&r->n_mixed, 1);
        else if (memcmp(&got, r->one, sizeof(got)) == 0)
            atomic_fetch_add(&r->n_one, 1);
        else if (memcmp(&got, r->other, sizeof(got)) == 0)
            atomic_fetch_add(&r->n_other, 1);
        else
            atomic_fetch_add(&r->n_mixed, 1);
    }
    return NULL;
}

static void wait_for(const atomic_int *n)
{
    const int before = atomic_load(n);

    while (atomic_load(n) < before + 100)
        usleep(1000);
}

Test(properties, are_those_of_one_model_during_swaps)
{
    char pairs_path[256];
    struct folder folder;
    gpuserve_swap_options how = GPUSERVE_SWAP_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model_properties single, pairs, kept;
    gpuserve_model *model, *other;
    struct reading r = { 0 };
    pthread_t thread;

    folder_make(&folder, "bert");
    snprintf(pairs_path, sizeof(pairs_path), "%s", test_data("models/bert-cross-encoder"));
    model = open_model(folder.path);
    other = open_model(pairs_path);
    single = read_properties(model);
    pairs = read_properties(other);
    cr_assert_neq(memcmp(&single, &pairs, sizeof(single)), 0);
    how.allow = GPUSERVE_CHANGE_DIM | GPUSERVE_CHANGE_LABELS;
    r.model = model;
    r.one = &single;
    r.other = &pairs;
    cr_assert_eq(pthread_create(&thread, NULL, read_all_the_time, &r), 0);
    for (int i = 0; i < 4; i++) {
        wait_for(&r.n_one);
        cr_assert_eq(gpuserve_model_swap(model, pairs_path, NULL, NULL, &how, &error), GPUSERVE_OK,
                     "%s", error.message);
        wait_for(&r.n_other);
        cr_assert_eq(gpuserve_model_swap(model, folder.path, NULL, NULL, &how, &error), GPUSERVE_OK,
                     "%s", error.message);
    }
    atomic_store(&r.stops, true);
    pthread_join(thread, NULL);
    cr_expect_eq(atomic_load(&r.n_mixed), 0);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    kept = read_properties(model);
    cr_expect_eq(memcmp(&kept, &single, sizeof(kept)), 0, "a suspended model keeps them");
    gpuserve_model_close(&other);
    gpuserve_model_close(&model);
    folder_remove(&folder);
}

/* A ColBERT model without its Dense module has wider token vectors; an embedding it has not. */
Test(properties, another_width_of_token_vectors_is_a_change)
{
    static const char modules[] =
        "[{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_transformers.base.modules."
        "transformer.Transformer\"},"
        "{\"idx\":1,\"name\":\"1\",\"path\":\"2_MultiVectorMask\",\"type\":\"sentence_transformers."
        "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask\"},"
        "{\"idx\":2,\"name\":\"2\",\"path\":\"3_Normalize\",\"type\":\"sentence_transformers.base."
        "modules.normalize.Normalize\"}]";
    char folder[] = "/tmp/gpuserve-properties-XXXXXX", path[96];
    gpuserve_swap_options how = GPUSERVE_SWAP_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    uint32_t changes = 0;
    gpuserve_model *model;

    cr_assert_not_null(mkdtemp(folder));
    each_file(test_data("models/st-multi-vector"), folder);
    snprintf(path, sizeof(path), "%s/modules.json", folder);
    write_file(path, modules, strlen(modules));
    model = open_model(test_data("models/st-multi-vector"));
    cr_expect_eq(read_properties(model).token_dim, 16);
    cr_expect_eq(gpuserve_model_swap(model, folder, &changes, NULL, NULL, &error),
                 GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "token vectors have 32 dimensions and sparse ones 0, those of "
                                    "the open model have 16 and 0"),
              "%s", error.message);
    how.allow = GPUSERVE_CHANGE_DIM;
    cr_expect_eq(gpuserve_model_swap(model, folder, &changes, NULL, &how, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_expect(changes & GPUSERVE_CHANGE_DIM);
    cr_expect_eq(read_properties(model).token_dim, 32);
    gpuserve_model_close(&model);
    each_file(folder, NULL);
}

/* --------------------------------------------------------------------------------- other structs
 */

Test(properties, the_callers_size_bounds_what_is_written)
{
    struct {
        gpuserve_model_properties properties;
        uint64_t behind;
    } longer = { GPUSERVE_MODEL_PROPERTIES_INIT, 7 };
    gpuserve_model *model = open_model(test_data("models/bert-pairs"));
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    longer.properties.struct_size = sizeof(longer);
    cr_expect_eq(gpuserve_model_get_properties(model, &longer.properties, &error), GPUSERVE_OK);
    cr_expect_eq(longer.properties.struct_size, sizeof(longer));
    cr_expect_eq(longer.properties.n_labels, 3);
    cr_expect_eq(longer.behind, 7);
    longer.properties.struct_size = sizeof(gpuserve_model_properties) - 1;
    longer.properties.dim = 5;
    cr_expect_eq(gpuserve_model_get_properties(model, &longer.properties, &error),
                 GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "gpuserve_model_properties: struct_size is"), "%s",
              error.message);
    cr_expect_eq(longer.properties.dim, 5);
    cr_expect_eq(gpuserve_model_get_properties(model, NULL, &error), GPUSERVE_E_INVALID);
    cr_expect_str_eq(error.message, "gpuserve_model_properties is NULL");
    cr_expect_eq(gpuserve_model_get_properties(NULL, &longer.properties, &error),
                 GPUSERVE_E_INVALID);
    gpuserve_model_close(&model);
}
