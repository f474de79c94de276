/*
 * test_model_tiny.c - every model family, file layout and name variant against torch in float64.
 *
 * The tiny random models in tests/data/models are written by tools/fixtures/make_test_models.py.
 */
#define _GNU_SOURCE
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST 2e-5 /* float32 against float64; values are around 1 */

/* Expected facts of a directory. */
struct expected {
    const char *name;
    const char *architecture, *weights_dtype;
    int32_t dim, max_tokens, first_position;
    bool normalize;
    size_t n_labels;
    int32_t score;
    const char *first_label;
    bool is_sparse;
    bool has_sparse_reference;
};

static const struct expected models[] = {
    { "bert", "BertModel", "F32", 32, 40, 0, false, 0, 0, NULL },
    { "bert-f16", "BertModel", "F16", 32, 40, 0, false, 0, 0, NULL },
    { "bert-bf16", "BertModel", "BF16", 32, 40, 0, false, 0, 0, NULL },
    { "bert-gelu-new", "BertModel", "F32", 32, 40, 0, false, 0, 0, NULL },
    { "bert-sharded", "BertForMaskedLM", "F32", 32, 40, 0, false, 0, 0, NULL, true, false },
    { "bert-masked", "BertForMaskedLM", "F32", 32, 40, 0, false, 0, 0, NULL, true, true },
    { "distilbert-masked", "DistilBertForMaskedLM", "F32", 32, 40, 0, false, 0, 0, NULL, true,
      true },
    { "roberta-masked", "RobertaForMaskedLM", "F32", 32, 38, 2, false, 0, 0, NULL, true, true },
    { "mpnet-masked", "MPNetForMaskedLM", "F32", 32, 38, 2, false, 0, 0, NULL, true, true },
    { "bert-single", "BertForSequenceClassification", "F32", 0, 40, 0, false, 3,
      GPUSERVE_SCORE_SOFTMAX, "bad" },
    { "bert-multi", "BertForSequenceClassification", "F32", 0, 40, 0, false, 4,
      GPUSERVE_SCORE_SIGMOID, "LABEL_0" },
    { "bert-regression", "BertForSequenceClassification", "F32", 0, 40, 0, false, 1,
      GPUSERVE_SCORE_RAW, "LABEL_0" },
    { "mpnet", "MPNetModel", "F32", 32, 200, 2, false, 0, 0, NULL },
    { "roberta", "RobertaModel", "F32", 32, 38, 2, false, 0, 0, NULL },
    { "xlm-roberta-single", "XLMRobertaForSequenceClassification", "F32", 0, 38, 2, false, 2,
      GPUSERVE_SCORE_SOFTMAX, "LABEL_0" },
    { "distilbert-single", "DistilBertForSequenceClassification", "F32", 0, 40, 0, false, 3,
      GPUSERVE_SCORE_SOFTMAX, "LABEL_0" },
    { "st-dense", "BertModel", "F32", 24, 36, 0, true, 0, 0, NULL },
    { "st-poolings", "BertModel", "F32", 6 * 32, 36, 0, false, 0, 0, NULL },
    { "st-newer", "BertModel", "F32", 32, 36, 0, true, 0, 0, NULL },
};

static void check_facts(const struct gsv_spec_facts *facts, const struct expected *e)
{
    cr_expect_str_eq(facts->architecture, e->architecture, "%s", e->name);
    cr_expect_str_eq(facts->weights_dtype, e->weights_dtype, "%s", e->name);
    cr_expect_eq(facts->dim, e->dim, "%s: dim %d", e->name, facts->dim);
    cr_expect_eq(facts->max_tokens, e->max_tokens, "%s: max_tokens %d", e->name, facts->max_tokens);
    cr_expect_eq(facts->first_position, e->first_position, "%s", e->name);
    cr_expect_eq(facts->normalize, e->normalize, "%s", e->name);
    cr_expect_eq(facts->is_sparse, e->is_sparse, "%s", e->name);
    cr_expect_eq(facts->n_labels, e->n_labels, "%s: %zu labels", e->name, facts->n_labels);
    cr_expect_eq(facts->score, e->score, "%s: score %d", e->name, facts->score);
    if (e->first_label)
        cr_expect_str_eq(facts->labels[0], e->first_label, "%s", e->name);
}

static void check_rows(const struct loaded *model, const char *name, const struct texts *texts,
                       const char *reference, const char *tensor, struct gsv_run run)
{
    const size_t columns = (size_t)gsv_run_columns(gsv_spec_facts(model->spec), &run);
    size_t count;
    double *want = read_reference(reference, tensor, &count);
    float *got = run_all(model, texts, run);
    const struct difference d = compare_rows(got, want, count / columns, columns);

    cr_expect_eq(count % columns, 0, "%s: %s", name, tensor);
    cr_expect(d.largest <= LARGEST, "%s: %s differs by %g", name, tensor, d.largest);
    free(got);
    free(want);
}

static void check_model(const struct expected *e)
{
    struct loaded model;
    const struct gsv_spec_facts *facts;
    char path[1024], reference[1100];
    struct texts texts;

    snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA_DIR, e->name);
    snprintf(reference, sizeof(reference), "%s/reference.safetensors", path);
    texts = read_texts(reference);
    load_model(&model, path, &(struct load_options){ 0 });
    facts = gsv_spec_facts(model.spec);
    check_facts(facts, e);
    check_rows(&model, e->name, &texts, reference, "hidden_f64",
               (struct gsv_run){ .task = GPUSERVE_TASK_TOKEN_VECTORS });
    if (facts->dim > 0)
        check_rows(&model, e->name, &texts, reference, "embedding_f64",
                   (struct gsv_run){ .task = GPUSERVE_TASK_EMBED,
                                     .dimensions = facts->dim,
                                     .normalize = facts->normalize });
    if (e->has_sparse_reference)
        check_rows(&model, e->name, &texts, reference, "sparse_f64",
                   (struct gsv_run){ .task = GPUSERVE_TASK_SPARSE });
    if (facts->n_labels > 0) {
        check_rows(&model, e->name, &texts, reference, "logits_f64",
                   (struct gsv_run){ .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_RAW });
        check_rows(
            &model, e->name, &texts, reference, "probs_f64",
            (struct gsv_run){ .task = GPUSERVE_TASK_CLASSIFY, .score = (uint32_t)facts->score });
    }
    unload_model(&model);
    free_texts(&texts);
}

Test(model_tiny, every_variant_equals_torch_in_float64)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        check_model(&models[i]);
}

/* Special tokens at the start, inside, at the end and alone
 * (tools/fixtures/make_specials_reference.py). */
static void check_specials(const char *name, const struct gpuserve_backend *backend)
{
    struct loaded model;
    char path[1024], reference[1100];
    struct texts texts;

    snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA_DIR, name);
    snprintf(reference, sizeof(reference), "%s/specials.safetensors", path);
    texts = read_texts(reference);
    load_model(&model, path, &(struct load_options){ .backend = backend });
    check_rows(&model, name, &texts, reference, "hidden_f64",
               (struct gsv_run){ .task = GPUSERVE_TASK_TOKEN_VECTORS });
    unload_model(&model);
    free_texts(&texts);
}

Test(model_tiny, special_tokens_inside_texts_equal_transformers_in_every_family)
{
    static const char *const families[] = { "bert",    "distilbert-single",  "mpnet",
                                            "roberta", "xlm-roberta-single", "camembert" };

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        check_specials(families[i], gsv_backend_cpu());
        check_specials(families[i], gsv_backend_ref());
    }
}

/* First `dimensions` columns, then normalized: like truncate_dim of sentence-transformers. */
static void check_cut(const char *name, int32_t dimensions)
{
    struct loaded model;
    char path[1024], reference[1100];
    struct texts texts;
    double *want, *cut;
    float *got;
    size_t count, width;
    struct difference d;

    snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA_DIR, name);
    snprintf(reference, sizeof(reference), "%s/reference.safetensors", path);
    texts = read_texts(reference);
    want = read_reference(reference, "embedding_f64", &count);
    width = count / texts.n;
    cut = calloc(texts.n * (size_t)dimensions, sizeof(double));
    for (size_t i = 0; i < texts.n; i++) {
        double norm = 0;

        for (size_t j = 0; j < (size_t)dimensions; j++)
            norm += want[i * width + j] * want[i * width + j];
        for (size_t j = 0; j < (size_t)dimensions; j++)
            cut[i * (size_t)dimensions + j] = want[i * width + j] / sqrt(norm);
    }
    load_model(&model, path, &(struct load_options){ 0 });
    got = run_all(&model, &texts,
                  (struct gsv_run){
                      .task = GPUSERVE_TASK_EMBED, .dimensions = dimensions, .normalize = true });
    d = compare_rows(got, cut, texts.n, (size_t)dimensions);
    cr_expect(d.largest <= LARGEST, "%s cut to %d differs by %g", name, dimensions, d.largest);
    unload_model(&model);
    free(got);
    free(cut);
    free(want);
    free_texts(&texts);
}

Test(model_tiny, vectors_are_cut_before_they_are_normalized)
{
    check_cut("bert", 1);
    check_cut("bert", 20);
    check_cut("st-dense", 5);
    check_cut("st-poolings", 50); /* all of the first pooling and part of the second */
    check_cut("st-poolings", 64);
}

Test(model_tiny, prompts_and_their_default_are_read)
{
    struct loaded model;
    const struct gsv_spec_facts *facts;

    load_model(&model, test_data("models/st-dense"), &(struct load_options){ 0 });
    facts = gsv_spec_facts(model.spec);
    cr_assert_eq(facts->n_prompts, 2);
    cr_expect_str_eq(facts->prompts[0].name, "query");
    cr_expect_str_eq(facts->prompts[0].text, "query: ");
    cr_expect_str_eq(facts->prompts[1].text, "passage: ");
    cr_expect_str_eq(facts->default_prompt, "query");
    cr_expect_eq(facts->n_dense, 1);
    unload_model(&model);
}

/* A text alone, in a batch, and at another position: the same bits. */
Test(model_tiny, neighbours_do_not_change_a_text)
{
    struct loaded model;
    struct texts texts = read_texts(test_data("models/st-dense/reference.safetensors"));
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED, .dimensions = 24, .normalize = true };
    float together[16 * 24], alone[24];

    cr_assert(texts.n <= 16);
    load_model(&model, test_data("models/st-dense"), &(struct load_options){ 0 });
    run.output = together;
    run_texts(&model, &texts, 0, texts.n, &run);
    run.output = alone;
    for (size_t i = 0; i < texts.n; i++) {
        run_texts(&model, &texts, i, 1, &run);
        cr_expect_arr_eq(alone, together + i * 24, sizeof(alone), "text %zu", i);
    }
    unload_model(&model);
    free_texts(&texts);
}

/* The digest identifies the weights, independent of threads and dtype. */
Test(model_tiny, the_digest_names_the_weights)
{
    uint64_t digests[4][2];
    const struct {
        const char *name;
        struct load_options options;
    } cases[4] = {
        { "models/bert", { 0 } },
        { "models/bert", { .dtype = GPUSERVE_DTYPE_INT8 } },
        { "models/bert", { .pooling = GPUSERVE_POOLING_CLS } },
        { "models/bert-gelu-new", { 0 } },
    };

    for (size_t i = 0; i < 4; i++) {
        struct loaded model;

        load_model(&model, test_data(cases[i].name), &cases[i].options);
        gsv_net_digest(model.net, digests[i]);
        unload_model(&model);
    }
    cr_expect_arr_eq(digests[0], digests[1], sizeof(digests[0]));
    cr_expect_neq(digests[0][0], digests[2][0]);
    cr_expect_neq(digests[0][0], digests[3][0]);
    cr_expect_neq(digests[2][0], digests[3][0]);
}

/* The digest of a model of tests/data/models with one text of config.json replaced. */
static void digest_of(const char *name, const char *from, const char *to, uint64_t digest[2])
{
    char folder[] = "/tmp/gsv-digest-XXXXXX", good[128], path[64], *text, *at, *changed;
    struct loaded model;
    size_t size;

    cr_assert_not_null(mkdtemp(folder));
    snprintf(good, sizeof(good), "models/%s", name);
    each_file(test_data(good), folder);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    text = read_file(path, &size);
    at = memmem(text, size, from, strlen(from));
    changed = calloc(1, size + strlen(to) + 1);
    cr_assert(at && changed, "%s: '%s'", name, from);
    snprintf(changed, size + strlen(to) + 1, "%.*s%s%.*s", (int)(at - text), text, to,
             (int)(size - (size_t)(at - text) - strlen(from)), at + strlen(from));
    write_file(path, changed, strlen(changed));
    load_model(&model, folder, &(struct load_options){ 0 });
    gsv_net_digest(model.net, digest);
    unload_model(&model);
    each_file(folder, NULL);
    free(changed);
    free(text);
}

/* With the same weights. */
Test(model_tiny, the_digest_names_the_options)
{
    static const struct {
        const char *model, *from, *to;
    } cases[] = {
        { "bart-single", "\"scale_embedding\": false", "\"scale_embedding\": true" },
        { "bart-single", "\"decoder_start_token_id\": 4", "\"decoder_start_token_id\": 5" },
        { "bart-single", "\"eos_token_id\": 4,\n  \"forced", "\"eos_token_id\": 5,\n  \"forced" },
        { "big-bird", "\"rescale_embeddings\": false", "\"rescale_embeddings\": true" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t plain[2], again[2], changed[2];

        digest_of(cases[i].model, cases[i].from, cases[i].from, plain);
        digest_of(cases[i].model, cases[i].from, cases[i].from, again);
        digest_of(cases[i].model, cases[i].from, cases[i].to, changed);
        cr_expect_arr_eq(plain, again, sizeof(plain));
        cr_expect_neq(plain[0], changed[0], "%s: %s", cases[i].model, cases[i].to);
    }
}
