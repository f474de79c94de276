/*
 * test_modules.c - chains of sentence-transformers modules, static embeddings, routes and token
 * vectors, against the texts and vectors of expected.json (tools/make_family_models).
 */
#include "tests/model/support.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXTS = 8, MAX_DIM = 64, MAX_TOKENS = 64 };

static gpuserve_model *open_path(const char *path, uint64_t cache_bytes)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.cache_bytes = cache_bytes;
    cr_assert_eq(gpuserve_model_open(&model, NULL, path, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    return model;
}

static const char *path_of(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "models/%s", name);
    return test_data(path);
}

static json_t *expected_of(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "models/%s/expected.json", name);
    return read_json(path);
}

static size_t texts_of(const json_t *root, const char **texts)
{
    const json_t *array = json_object_get(root, "texts");
    const size_t n = json_array_size(array);

    cr_assert(n > 0 && n <= MAX_TEXTS);
    for (size_t i = 0; i < n; i++)
        texts[i] = json_string_value(json_array_get(array, i));
    return n;
}

static void expect_row(const char *name, const float *got, const json_t *want, size_t i)
{
    for (size_t j = 0; j < json_array_size(want); j++)
        cr_expect_float_eq(got[j], json_real_value(json_array_get(want, j)), 1e-5,
                           "%s: text %zu, number %zu", name, i, j);
}

/* -------------------------------------------------------------------------------------- chains */

static void check_chain(const char *name)
{
    json_t *root = expected_of(name);
    gpuserve_model *model = open_path(path_of(name), 1 << 20);
    const size_t dim = gpuserve_model_dim(model);
    const char *texts[MAX_TEXTS], *task;
    const size_t n = texts_of(root, texts);
    const json_t *rows;

    cr_assert(dim > 0 && dim <= MAX_DIM);
    json_object_foreach(json_object_get(root, "embeddings"), task, rows)
    {
        gpuserve_embed_options options = GPUSERVE_EMBED_OPTIONS_INIT;
        float together[MAX_TEXTS * MAX_DIM], alone[MAX_DIM];

        options.prompt_name = *task ? task : NULL;
        cr_assert_eq(gpuserve_embed(model, texts, n, together, n * dim, &options, NULL),
                     GPUSERVE_OK);
        for (size_t i = 0; i < n; i++) {
            expect_row(name, together + i * dim, json_array_get(rows, i), i);
            cr_assert_eq(gpuserve_embed(model, &texts[i], 1, alone, dim, &options, NULL),
                         GPUSERVE_OK);
            cr_expect_eq(memcmp(alone, together + i * dim, dim * sizeof(float)), 0, "text %zu", i);
        }
    }
    json_decref(root);
    gpuserve_model_close(&model);
}

Test(modules, chains_equal_sentence_transformers)
{
    static const char *const chains[] = {
        "st-layer-norm", "st-weighted-layers", "st-dense-kinds",  "st-static",
        "model2vec",     "model2vec-mapping",  "st-router-dense", "st-asym",
    };

    for (size_t i = 0; i < sizeof(chains) / sizeof(chains[0]); i++)
        check_chain(chains[i]);
}

/* -------------------------------------------------------------------------------------- routes */

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    write_file(path, text, strlen(text));
}

static void expect_default_route(const char *name, const char *route)
{
    gpuserve_model *model = open_path(path_of(name), 0);
    gpuserve_embed_options options = GPUSERVE_EMBED_OPTIONS_INIT;
    const char *const text = "w1 w2";
    float by_default[MAX_DIM], by_name[MAX_DIM];
    const size_t dim = gpuserve_model_dim(model);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    options.prompt_name = route;
    cr_assert_eq(gpuserve_embed(model, &text, 1, by_default, dim, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_embed(model, &text, 1, by_name, dim, &options, NULL), GPUSERVE_OK);
    cr_expect_eq(memcmp(by_default, by_name, dim * sizeof(float)), 0, "%s", name);
    options.prompt_name = "other";
    cr_expect_eq(gpuserve_embed(model, &text, 1, by_name, dim, &options, &error),
                 GPUSERVE_E_INVALID);
    gpuserve_model_close(&model);
}

Test(modules, a_text_without_a_route_takes_the_default)
{
    expect_default_route("st-router-dense", "document");
    expect_default_route("st-asym", "query"); /* the first one */
}

/* Routes are prompts, also in directories without prompts. */
Test(modules, a_route_is_named_as_a_prompt)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_spec *spec = NULL;
    struct gsv_dir *dir = NULL;
    char folder[] = "/tmp/gsv-route-XXXXXX", path[64];
    gpuserve_status st;

    cr_assert(mkdtemp(folder));
    each_file(path_of("st-layer-norm"), folder);
    snprintf(path, sizeof(path), "%s/config_sentence_transformers.json", folder);
    cr_assert_eq(remove(path), 0);
    write_text(folder, "router_config.json",
               "{\"structure\": {\"query\": [], \"document\": []}, \"types\": {}}");
    write_text(folder, "modules.json",
               "[{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
               " {\"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"},"
               " {\"path\": \"\", \"type\": \"sentence_transformers.models.Router\"}]");
    cr_assert_eq(gsv_dir_open(&dir, folder, &error), GPUSERVE_OK);
    st = gsv_spec_load(&spec, dir, NULL, 0, &error);
    cr_assert_eq(st, GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gsv_spec_facts(spec)->n_prompts, 2);
    cr_expect_str_eq(gsv_spec_facts(spec)->prompts[0].name, "query");
    cr_expect_str_eq(gsv_spec_facts(spec)->prompts[1].text, "");
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
    each_file(folder, NULL);
}

Test(modules, routes_with_encoders_are_refused_by_name)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_expect_eq(gpuserve_model_open(&model, NULL, path_of("st-router-static"), NULL, &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "StaticEmbedding"), "%s", error.message);
    cr_expect(strstr(error.message, "of a route"), "%s", error.message);
}

/* ---------------------------------------------------------------------------- static embeddings */

Test(modules, a_static_embedding_of_no_tokens_is_zero)
{
    gpuserve_model *model = open_path(path_of("st-static"), 0);
    const char *const texts[] = { "", "w1", "" };
    float rows[3 * MAX_DIM];
    const size_t dim = gpuserve_model_dim(model);
    float sum = 0.0f;

    cr_assert_eq(gpuserve_embed(model, texts, 3, rows, 3 * dim, NULL, NULL), GPUSERVE_OK);
    for (size_t j = 0; j < dim; j++) {
        cr_expect_eq(rows[j], 0.0f);
        cr_expect_eq(rows[2 * dim + j], 0.0f);
        sum += rows[dim + j] * rows[dim + j];
    }
    cr_expect_float_eq(sum, 1.0f, 1e-6);
    gpuserve_model_close(&model);
}

/* Without modules.json the rules are those of model2vec. */
Test(modules, model2vec_leaves_unknown_tokens_out)
{
    char folder[] = "/tmp/gsv-m2v-XXXXXX", modules[64];
    const char *const texts[] = { "w1 w2", "zzz w1 zzz w2", "zzz" };
    float rows[3 * MAX_DIM];
    gpuserve_model *model;
    size_t dim;

    cr_assert(mkdtemp(folder));
    each_file(path_of("model2vec"), folder);
    snprintf(modules, sizeof(modules), "%s/modules.json", folder);
    cr_assert_eq(remove(modules), 0);
    model = open_path(folder, 0);
    dim = gpuserve_model_dim(model);
    cr_assert_eq(gpuserve_embed(model, texts, 3, rows, 3 * dim, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(memcmp(rows, rows + dim, dim * sizeof(float)), 0);
    for (size_t j = 0; j < dim; j++)
        cr_expect_eq(rows[2 * dim + j], 0.0f);
    gpuserve_model_close(&model);
    each_file(folder, NULL);
}

Test(modules, int8_is_refused_for_models_without_layers)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.dtype = GPUSERVE_DTYPE_INT8;
    cr_expect_eq(gpuserve_model_open(&model, NULL, path_of("st-static"), &options, &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "table of static embeddings"), "%s", error.message);
}

/* -------------------------------------------------------------------------------- token vectors */

/* The reference leaves out the vectors of words in its list; the others are in order. */
static size_t expect_subset(const float *rows, size_t n, size_t width, const json_t *want)
{
    size_t found = 0;

    for (size_t i = 0; i < n && found < json_array_size(want); i++) {
        const json_t *row = json_array_get(want, found);
        double most = 0;

        cr_assert_eq(json_array_size(row), width);
        for (size_t j = 0; j < width; j++)
            most = fmax(most, fabs(rows[i * width + j] - json_real_value(json_array_get(row, j))));
        found += most <= 1e-5;
    }
    return found;
}

/* The vectors of documents in the directory `path` are those of st-multi-vector. */
static void expect_documents(const char *path)
{
    enum { WIDTH = 16 };
    gpuserve_model *model = open_path(path, 0); /* first: the path is borrowed */
    json_t *root = expected_of("st-multi-vector");
    const char *texts[MAX_TEXTS];
    const size_t n = texts_of(root, texts);

    cr_expect_eq(gpuserve_model_dim(model), 0);
    for (size_t i = 0; i < n; i++) {
        const json_t *want = json_array_get(json_object_get(root, "document"), i);
        gpuserve_job job = GPUSERVE_JOB_INIT;
        float rows[MAX_TOKENS * WIDTH];
        size_t offsets[2];

        job.task = GPUSERVE_TASK_TOKEN_VECTORS;
        job.texts = &texts[i];
        job.n_items = 1;
        job.prompt_name = "document";
        job.output = rows;
        job.output_capacity = MAX_TOKENS * WIDTH;
        job.token_offsets = offsets;
        cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
        cr_expect_eq(expect_subset(rows, offsets[1], WIDTH, want), json_array_size(want),
                     "text %zu", i);
    }
    json_decref(root);
    gpuserve_model_close(&model);
}

Test(modules, token_vectors_of_late_interaction)
{
    expect_documents(path_of("st-multi-vector"));
}

/* PyLate lists the projection only, without names of its rows, and calls the prompts prefixes. */
Test(modules, token_vectors_of_pylate)
{
    char folder[] = "/tmp/gsv-pylate-XXXXXX";

    cr_assert(mkdtemp(folder));
    each_file(path_of("st-multi-vector"), folder);
    write_text(folder, "modules.json",
               "[{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
               " {\"path\": \"1_Dense\", \"type\": \"pylate.models.Dense.Dense\"}]");
    write_text(folder, "1_Dense/config.json",
               "{\"in_features\": 32, \"out_features\": 16, \"bias\": false, "
               "\"activation_function\": \"torch.nn.modules.linear.Identity\"}");
    write_text(folder, "config_sentence_transformers.json",
               "{\"model_type\": \"ColBERT\", \"prompts\": {\"query\": \"w16 \"}, "
               "\"query_prefix\": \"w16 \", \"document_prefix\": \"w17 \"}");
    expect_documents(folder);
    each_file(folder, NULL);
}
