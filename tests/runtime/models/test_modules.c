/*
 * test_modules.c - chains of sentence-transformers modules, static embeddings, routes and token
 * vectors, against the texts and vectors of expected.json (tools/fixtures/make_family_models); with
 * the CUDA backend too, which runs on the emulator (EMULATED_PLUGIN is the plugin's folder).
 */
#include "tests/model/support.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXTS = 8, MAX_DIM = 64, MAX_TOKENS = 64 };

/* Where open_path() loads. */
static const char *device = "cpu";
static gpuserve_context *context;

static gpuserve_model *open_path(const char *path, uint64_t cache_bytes)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = device;
    options.dtype = GPUSERVE_DTYPE_FLOAT32;
    options.cache_bytes = cache_bytes;
    cr_assert_eq(gpuserve_model_open(&model, context, path, &options, &error), GPUSERVE_OK, "%s",
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
        gpuserve_job options = GPUSERVE_JOB_INIT;
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
    gpuserve_job options = GPUSERVE_JOB_INIT;
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

enum { WIDTH = 16 };

/* The token vectors of a text in a role; returns their number. */
static size_t vectors_of(gpuserve_model *model, const char *text, const char *prompt_name,
                         float *rows)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t offsets[2];

    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    job.texts = &text;
    job.n_items = 1;
    job.prompt_name = prompt_name;
    job.output = rows;
    job.output_capacity = MAX_TOKENS * WIDTH;
    job.token_offsets = offsets;
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    return offsets[1];
}

static void expect_vectors(const json_t *want, const float *rows, size_t n, const char *what)
{
    cr_assert_eq(n, json_array_size(want), "%s: %zu rows, not %zu", what, n, json_array_size(want));
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(json_array_size(json_array_get(want, i)), WIDTH);
        expect_row(what, rows + i * WIDTH, json_array_get(want, i), i);
    }
}

/* All token vectors of a role in the directory are those of st-multi-vector. */
static void expect_role(gpuserve_model *model, const char *role)
{
    json_t *root = expected_of("st-multi-vector");
    const json_t *all = json_object_get(root, role);
    const char *texts[MAX_TEXTS];

    cr_assert_leq(json_array_size(all), texts_of(root, texts));
    for (size_t i = 0; i < json_array_size(all); i++) {
        float rows[MAX_TOKENS * WIDTH];
        const size_t n = vectors_of(model, texts[i], role, rows);

        expect_vectors(json_array_get(all, i), rows, n, role);
    }
    json_decref(root);
}

static void expect_max_sim(gpuserve_model *model)
{
    json_t *root = expected_of("st-multi-vector");
    const json_t *all = json_object_get(root, "maxsim");
    const char *texts[MAX_TEXTS];
    const size_t n = texts_of(root, texts);

    cr_assert_gt(json_array_size(all), 0);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *want = json_array_get(all, i);
        gpuserve_rerank_options options = GPUSERVE_RERANK_OPTIONS_INIT;
        float scores[MAX_TEXTS];
        size_t order[MAX_TEXTS];

        cr_assert_eq(json_array_size(want), n);
        options.score = GPUSERVE_SCORE_RAW;
        cr_assert_eq(
            gpuserve_rerank(model, texts[i], texts, n, scores, order, n, &options, NULL, NULL),
            GPUSERVE_OK);
        for (size_t j = 0; j < n; j++) {
            cr_expect_float_eq(scores[j], json_real_value(json_array_get(want, j)), 1e-5,
                               "query %zu, document %zu: %g", i, j, (double)scores[j]);
            cr_expect(j == 0 || json_real_value(json_array_get(want, order[j - 1])) >=
                                    json_real_value(json_array_get(want, order[j])));
        }
    }
    json_decref(root);
}

static void expect_late(const char *given)
{
    gpuserve_model *model = open_path(given, 1 << 20);
    char path[1024];

    snprintf(path, sizeof(path), "%s", given); /* of path_of(), which is used again */
    cr_expect_eq(gpuserve_model_dim(model), 0);
    expect_role(model, "query");
    expect_role(model, "document");
    expect_role(model, "query"); /* from the cache */
    expect_max_sim(model);       /* with token vectors from the cache */
    gpuserve_model_close(&model);
    model = open_path(path, 0);
    expect_max_sim(model); /* where the token vectors are made */
    gpuserve_model_close(&model);
}

Test(modules, token_vectors_of_late_interaction)
{
    expect_late(path_of("st-multi-vector"));
}

/* A job whose texts are documents. */
static gpuserve_job max_sim_job(const char *const *texts, size_t n, const float *query,
                                size_t n_query, float *scores)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.task = GPUSERVE_TASK_MAX_SIM;
    job.prompt_name = "document";
    job.texts = texts;
    job.n_items = n;
    job.query_vectors = query;
    job.n_query_vectors = n_query;
    job.output = scores;
    job.output_capacity = n;
    return job;
}

/* Documents have a skip list: their rows are fewer than their tokens. */
Test(modules, max_sim_of_a_job_is_that_of_its_token_vectors)
{
    gpuserve_model *model = open_path(path_of("st-multi-vector"), 0);
    json_t *root = expected_of("st-multi-vector");
    const char *texts[MAX_TEXTS];
    const size_t n = texts_of(root, texts);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (size_t i = 0; i < n; i++) {
        float query[MAX_TOKENS * WIDTH], rows[MAX_TOKENS * WIDTH], scores[MAX_TEXTS], alone;
        const size_t n_query = vectors_of(model, texts[i], "query", query);
        gpuserve_job job = max_sim_job(texts, n, query, n_query, scores);

        cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
        for (size_t j = 0; j < n; j++) {
            const size_t n_rows = vectors_of(model, texts[j], "document", rows);

            cr_expect_float_eq(scores[j], gpuserve_max_sim(query, n_query, rows, n_rows, WIDTH),
                               1e-5, "query %zu, document %zu", i, j);
            job = max_sim_job(&texts[j], 1, query, n_query, &alone);
            cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
            cr_expect_eq(memcmp(&alone, &scores[j], sizeof(alone)), 0, "document %zu", j);
        }
    }
    json_decref(root);
    gpuserve_model_close(&model);
}

enum { N_QUERIES = 24, QUERY_ROWS = 100 };

/* Equal documents are not computed twice for one query, and always for another one. The queries of
 * all requests are more than a batch has room for. */
Test(modules, requests_with_other_queries_share_batches_and_no_scores)
{
    static const char *const texts[] = { "w20 w21", "w21 w22 w20", "w30", "w20 w21" };
    static float queries[N_QUERIES][QUERY_ROWS * WIDTH], want[N_QUERIES][4], got[N_QUERIES][4];
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    gpuserve_request *requests[N_QUERIES];
    uint32_t seed = 5;

    cr_assert_gt(N_QUERIES * QUERY_ROWS, 2 * GPUSERVE_MAX_QUERY_VECTORS);
    options.device = "cpu";
    options.n_threads = 1; /* while the first batch runs, the others wait together */
    cr_assert_eq(gpuserve_model_open(&model, NULL, path_of("st-multi-vector"), &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    for (size_t i = 0; i < N_QUERIES; i++) {
        gpuserve_job job = max_sim_job(texts, 4, queries[i], QUERY_ROWS - i, want[i]);

        for (size_t j = 0; j < QUERY_ROWS * WIDTH; j++) {
            seed = seed * 1664525u + 1013904223u;
            queries[i][j] = (float)(seed >> 8) / 8388608.0f - 1.0f;
        }
        cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    }
    for (size_t i = 0; i < N_QUERIES; i++) {
        gpuserve_job job = max_sim_job(texts, 4, queries[i], QUERY_ROWS - i, got[i]);

        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, &error), GPUSERVE_OK,
                     "%s", error.message);
    }
    for (size_t i = 0; i < N_QUERIES; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, &error), GPUSERVE_OK, "%s", error.message);
        gpuserve_request_free(&requests[i]);
        cr_expect_eq(memcmp(got[i], want[i], sizeof(want[i])), 0, "query %zu", i);
        cr_expect(i == 0 || want[i][0] != want[i - 1][0]);
        cr_expect_eq(want[i][0], want[i][3]);
    }
    gpuserve_model_close(&model);
}

Test(modules, queries_of_max_sim_are_refused_by_name)
{
    static const float vectors[WIDTH];
    static const struct {
        const float *query;
        size_t n_query;
        uint32_t task, cache;
        gpuserve_status status;
        const char *words;
    } cases[] = {
        { vectors, 1025, GPUSERVE_TASK_MAX_SIM, 0, GPUSERVE_E_TOO_LARGE,
          "job.n_query_vectors is 1025, the limit is 1024" },
        { NULL, 1, GPUSERVE_TASK_MAX_SIM, 0, GPUSERVE_E_INVALID, "`query_vectors` is NULL" },
        { vectors, 1, GPUSERVE_TASK_TOKEN_VECTORS, 0, GPUSERVE_E_INVALID,
          "job.query_vectors is valid only for MaxSim" },
        { NULL, 1, GPUSERVE_TASK_TOKEN_VECTORS, 0, GPUSERVE_E_INVALID,
          "job.query_vectors is valid only for MaxSim" },
        { vectors, 1, GPUSERVE_TASK_MAX_SIM, GPUSERVE_CACHE_ON, GPUSERVE_E_UNSUPPORTED,
          "MaxSim scores are not cached" },
    };
    gpuserve_model *model = open_path(path_of("st-multi-vector"), 1 << 20);
    const char *text = "w20";
    float score = 1;
    gpuserve_job job = max_sim_job(&text, 1, NULL, 0, &score);

    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(score, 0, "a query without vectors");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        job = max_sim_job(&text, 1, cases[i].query, cases[i].n_query, &score);
        job.task = cases[i].task;
        job.cache = cases[i].cache;
        cr_expect_eq(gpuserve_run(model, &job, &error), cases[i].status, "case %zu", i);
        cr_expect(strstr(error.message, cases[i].words), "case %zu: %s", i, error.message);
    }
    gpuserve_model_close(&model);
}

static void make_pylate(char *folder, const char *config)
{
    cr_assert(mkdtemp(folder));
    each_file(path_of("st-multi-vector"), folder);
    write_text(folder, "modules.json",
               "[{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"},"
               " {\"path\": \"1_Dense\", \"type\": \"pylate.models.Dense.Dense\"}]");
    write_text(folder, "1_Dense/config.json",
               "{\"in_features\": 32, \"out_features\": 16, \"bias\": false, "
               "\"activation_function\": \"torch.nn.modules.linear.Identity\"}");
    write_text(folder, "sentence_bert_config.json", "{\"max_seq_length\": 33}");
    write_text(folder, "config_sentence_transformers.json", config);
}

/* PyLate lists the projection only, without names of its rows, and calls the prompts prefixes. */
Test(modules, token_vectors_of_pylate)
{
    char folder[] = "/tmp/gsv-pylate-XXXXXX";

    make_pylate(folder,
                "{\"model_type\": \"ColBERT\", \"prompts\": {\"query\": \"w16 \"}, "
                "\"query_prefix\": \"w16 \", \"document_prefix\": \"w17 \", \"query_length\": 12, "
                "\"do_query_expansion\": true, \"attend_to_expansion_tokens\": false, "
                "\"skiplist_words\": [\"w1\", \"a\", \"no such word\"]}");
    expect_late(folder);
    each_file(folder, NULL);
}

/* Tokens of a text behind the special tokens. */
static size_t rows_of(const char *folder, const char *text, const char *role)
{
    gpuserve_model *model = open_path(folder, 0);
    float rows[MAX_TOKENS * WIDTH];
    const size_t n = vectors_of(model, text, role, rows);

    gpuserve_model_close(&model);
    return n;
}

Test(modules, lengths_of_queries_and_documents)
{
    static const char config[] =
        "{\"max_seq_length\": 33, \"query_expansion\": {\"strategy\": \"min\", \"length\": 6, "
        "\"attend\": true}, \"query_length\": %d, \"document_length\": 5}";
    static const char text[] = "w2 w3 w4 w5 w6 w7 w8 w9";
    char folder[] = "/tmp/gsv-late-XXXXXX", written[256];

    cr_assert(mkdtemp(folder));
    each_file(path_of("st-multi-vector"), folder);
    snprintf(written, sizeof(written), config, 9);
    write_text(folder, "sentence_bert_config.json", written);
    cr_expect_eq(rows_of(folder, "w2", "query"), 6);
    cr_expect_eq(rows_of(folder, text, "query"), 9); /* cut from 11 with the prompt */
    cr_expect_eq(rows_of(folder, text, "document"), 5);
    cr_expect_eq(rows_of(folder, text, NULL), 10);
    cr_expect_eq(rows_of(folder, "w1 w2", NULL), 3); /* without w1 */
    each_file(folder, NULL);
}

/* A mark is one token although the pre-tokenizer would split it. */
Test(modules, a_mark_is_a_token)
{
    char folder[] = "/tmp/gsv-mark-XXXXXX";
    gpuserve_model *model;
    int32_t ids[8];
    size_t n = 0;

    make_pylate(folder, "{\"query_prefix\": \"<pad> \", \"document_prefix\": \"no token: \"}");
    model = open_path(folder, 0);
    cr_assert_eq(gpuserve_tokenize(model, "<pad> w1", 8, ids, NULL, 8, &n, NULL, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(n, 4);
    cr_expect_eq(ids[1], 1);
    gpuserve_model_close(&model);
    each_file(folder, NULL);
}

/* Equal tokens in another role, and a text of mask tokens, are other vectors. */
Test(modules, roles_do_not_share_results)
{
    char folder[] = "/tmp/gsv-roles-XXXXXX";
    gpuserve_model *model;
    float filled[MAX_TOKENS * WIDTH], written[MAX_TOKENS * WIDTH];

    make_pylate(folder, "{\"query_length\": 7, \"skiplist_words\": [\"w1\"], "
                        "\"model_type\": \"ColBERT\"}");
    model = open_path(folder, 1 << 20);
    cr_expect_eq(vectors_of(model, "w1 w2 [MASK] [MASK] [MASK]", "query", written), 7);
    cr_expect_eq(vectors_of(model, "w1 w2 [MASK] [MASK] [MASK]", "document", written), 6);
    cr_expect_eq(vectors_of(model, "w1 w2 w3 w4 w5", "document", written), 6);
    cr_expect_eq(vectors_of(model, "w1 w2 w3 w4 w5", "query", written), 7);
    gpuserve_model_close(&model);
    /* Without special tokens a filled query has the ids of a text of mask tokens. */
    write_text(folder, "config_sentence_transformers.json",
               "{\"query_length\": 7, \"skiplist_words\": []}");
    model = open_path(folder, 1 << 20);
    {
        static const int32_t given[] = { 3, 30, 4, 5, 5, 5, 5 };
        static const size_t three[] = { 0, 3 }, seven[] = { 0, 7 };
        gpuserve_job job = GPUSERVE_JOB_INIT;

        job.task = GPUSERVE_TASK_TOKEN_VECTORS;
        job.n_items = 1;
        job.ids = given;
        job.id_offsets = seven;
        job.role = GPUSERVE_ROLE_QUERY;
        job.output = written;
        job.output_capacity = 7 * WIDTH;
        cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
        job.id_offsets = three;
        job.output = filled;
        cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
        cr_expect_neq(memcmp(filled, written, 7 * WIDTH * sizeof(float)), 0);
    }
    gpuserve_model_close(&model);
    each_file(folder, NULL);
}

Test(modules, settings_of_late_interaction_are_refused_by_name)
{
    static const struct {
        const char *file, *text, *words;
    } cases[] = {
        { "sentence_bert_config.json", "{\"query_expansion\": {\"strategy\": \"max\"}}", "'max'" },
        { "sentence_bert_config.json", "{\"query_expansion\": {\"strategy\": \"min\"}}",
          "no length" },
        { "sentence_bert_config.json", "{\"query_expansion\": 3}", "not an object" },
        { "sentence_bert_config.json",
          "{\"query_expansion\": {\"strategy\": \"fixed\", \"length\": 5, \"token\": \"none\"}}",
          "'none'" },
        { "sentence_bert_config.json",
          "{\"query_expansion\": {\"strategy\": \"fixed\", \"length\": 400}}", "400 tokens" },
        { "2_MultiVectorMask/config.json", "{\"keep_only_token_ids\": [3]}",
          "keep_only_token_ids" },
        { "2_MultiVectorMask/config.json", "{\"skiplist_tasks\": [\"other\"]}", "'other'" },
        { "2_MultiVectorMask/config.json", "{\"skiplist_words\": [3]}", "skiplist_words[0]" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char folder[] = "/tmp/gsv-late-XXXXXX";
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model *model = NULL;

        cr_assert(mkdtemp(folder));
        each_file(path_of("st-multi-vector"), folder);
        write_text(folder, cases[i].file, cases[i].text);
        cr_expect_neq(gpuserve_model_open(&model, NULL, folder, NULL, &error), GPUSERVE_OK);
        cr_expect(strstr(error.message, cases[i].words), "case %zu: %s", i, error.message);
        gpuserve_model_close(&model);
        each_file(folder, NULL);
    }
}

/* -------------------------------------------------------------------------------- CUDA emulator */

#ifdef EMULATED_PLUGIN
static void use_emulator(void)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;

    options.plugin_dir = EMULATED_PLUGIN;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    device = "cuda:0";
}

static void leave_emulator(void)
{
    gpuserve_context_unref(&context);
    device = "cpu";
}

Test(modules, static_embeddings_on_cuda)
{
    use_emulator();
    check_chain("st-static");
    check_chain("model2vec");
    check_chain("model2vec-mapping");
    leave_emulator();
}

Test(modules, late_interaction_on_cuda)
{
    use_emulator();
    expect_late(path_of("st-multi-vector"));
    leave_emulator();
}
#endif
