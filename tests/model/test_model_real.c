/*
 * test_model_real.c - real models against vectors that torch computed in float64.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The reference's texts, or as many as show a sanitizer the batches. */
static struct texts read_some(const char *reference)
{
    struct texts texts = read_texts(test_data(reference));

    if (IS_SANITIZED && texts.n > 30)
        texts.n = 30;
    return texts;
}

/* Compares a model's unnormalized mean vectors with `mean_f64`. */
static void check_mean(const char *name, const char *reference, const struct load_options *options,
                       double cosine, double largest)
{
    struct loaded model;
    struct texts texts = read_some(reference);
    size_t count;
    double *want = read_reference(test_data(reference), "mean_f64", &count);
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED };
    struct difference d;
    float *got;

    load_model(&model, real_model(name), options);
    run.dimensions = gsv_spec_facts(model.spec)->dim;
    cr_assert_geq(count, texts.n * (size_t)run.dimensions);
    got = run_all(&model, &texts, run);
    d = compare_rows(got, want, texts.n, (size_t)run.dimensions);
    cr_expect(d.min_cosine >= cosine, "%s: cosine %.9f", name, d.min_cosine);
    cr_expect(d.largest <= largest, "%s: difference %g", name, d.largest);
    free(got);
    free(want);
    free_texts(&texts);
    unload_model(&model);
}

Test(model_real, float32_vectors_equal_torch_in_float64)
{
    const struct load_options plain = { 0 };

    check_mean("all-MiniLM-L6-v2", "oracle/vectors/all-MiniLM-L6-v2.safetensors", &plain, 0.999999,
               1e-5);
    check_mean("splade-tiny", "oracle/vectors/splade-bert-tiny.safetensors", &plain, 0.999999,
               1e-5);
}

/* Compares a head's logits with `tensor` (float64, or float32 if `wide` is false). */
static void check_head(const char *name, const char *vectors, const char *reference,
                       const char *tensor, bool wide, const struct load_options *options)
{
    struct loaded model;
    struct texts texts = read_some(vectors);
    size_t count, columns;
    void *raw = read_reference(test_data(reference), tensor, &count);
    double *want = malloc(count * sizeof(double));
    struct difference d;
    float *got;

    for (size_t i = 0; i < count; i++)
        want[i] = wide ? ((double *)raw)[i] : (double)((float *)raw)[i];
    load_model(&model, real_model(name), options);
    columns = gsv_spec_facts(model.spec)->n_labels;
    cr_assert_geq(count, texts.n * columns, "%s: %zu labels", tensor, columns);
    got = run_all(&model, &texts,
                  (struct gsv_run){ .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_RAW });
    d = compare_rows(got, want, texts.n, columns);
    cr_expect(d.largest <= 2e-5, "%s: logits differ by %g", tensor, d.largest);
    free(got);
    free(want);
    free(raw);
    free_texts(&texts);
    unload_model(&model);
}

Test(model_real, heads_over_embeddings_equal_torch)
{
    struct load_options options = { 0 };
    char head[1024];

    snprintf(head, sizeof(head), "%s", real_model("rag-intent"));
    options.head = head; /* a folder: head.safetensors and head.json, on normalized vectors */
    check_head("all-MiniLM-L6-v2", "oracle/vectors/all-MiniLM-L6-v2.safetensors",
               "oracle/classifiers/rag-intent-LogisticRegression.safetensors", "logits_f64", true,
               &options);
    snprintf(head, sizeof(head), "%s", test_data("heads/splade-polarity.safetensors"));
    options.pooling = GPUSERVE_POOLING_CLS; /* two layers, on the raw first token */
    check_head("splade-tiny", "oracle/vectors/splade-bert-tiny.safetensors",
               "oracle/classifiers/splade-bert-tiny-heads.safetensors", "polarity", false,
               &options);
    snprintf(head, sizeof(head), "%s", test_data("heads/splade-relation-type.safetensors"));
    check_head("splade-tiny", "oracle/vectors/splade-bert-tiny.safetensors",
               "oracle/classifiers/splade-bert-tiny-heads.safetensors", "relation_type", false,
               &options);
}

#if !defined(__SANITIZE_ADDRESS__) /* numbers of ways that the two tests below take */
Test(model_real, calibrated_int8_keeps_the_direction)
{
    const char *reference = "oracle/vectors/all-MiniLM-L6-v2.safetensors";
    struct loaded model;
    struct texts texts = read_texts(test_data(reference));
    const struct gsv_spec_facts first = { .first_position = 0 };
    struct gpuserve_host_batch calibration = make_batch(&first, &texts, 0, 80);
    struct load_options options = { .dtype = GPUSERVE_DTYPE_INT8 };
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED, .dimensions = 384 };
    double *want, mean[2];
    size_t count;

    want = read_reference(test_data(reference), "mean_f64", &count);
    for (int calibrated = 0; calibrated < 2; calibrated++) {
        struct difference d;
        float *got;

        options.calibration = calibrated ? &calibration : NULL;
        options.probes = options.calibration;
        load_model(&model, real_model("all-MiniLM-L6-v2"), &options);
        got = run_all(&model, &texts, run);
        d = compare_rows(got, want, texts.n, 384);
        mean[calibrated] = d.mean_cosine;
        if (calibrated) {
            cr_expect(d.mean_cosine >= 0.9985, "mean cosine %.6f", d.mean_cosine);
            cr_expect(d.min_cosine >= 0.997, "least cosine %.6f", d.min_cosine);
        }
        free(got);
        unload_model(&model);
    }
    cr_expect(mean[1] > mean[0], "calibration helps: %.6f, without %.6f", mean[1], mean[0]);
    free(want);
    free_batch(&calibration);
    free_texts(&texts);
}

#endif

/* A faulty backend: negates the weights of int8 products, of all or of those with more input than
 * output columns. */
static struct gpuserve_backend bad;
static bool spoils_all;

static gpuserve_status spoil(struct gpuserve_device *device, struct gpuserve_linear **linear,
                             void *memory, const struct gpuserve_linear_source *source,
                             gpuserve_error *error)
{
    const size_t n = (size_t)source->n * (size_t)source->k;
    struct gpuserve_linear_source other = *source;
    float *weight;
    gpuserve_status st;

    if (source->dtype != GPUSERVE_DTYPE_INT8 || (!spoils_all && source->k <= source->n))
        return gsv_backend_cpu()->linear_create(device, linear, memory, source, error);
    weight = malloc(n * sizeof(float));
    cr_assert_not_null(weight);
    for (size_t i = 0; i < n; i++)
        weight[i] = -source->weight[i];
    other.weight = weight;
    st = gsv_backend_cpu()->linear_create(device, linear, memory, &other, error);
    free(weight);
    return st;
}

static gpuserve_status load_spoiled(struct gsv_int8_facts *facts, gpuserve_error *error)
{
    struct texts texts = read_texts(test_data("oracle/vectors/all-MiniLM-L6-v2.safetensors"));
    const struct gsv_spec_facts first = { .first_position = 0 };
    struct gpuserve_host_batch probes = make_batch(&first, &texts, 0, 8);
    const struct gsv_net_options options = {
        .dtype = GPUSERVE_DTYPE_INT8, .n_threads = 1, .calibration = &probes, .probes = &probes
    };
    struct gpuserve_device *device;
    struct gsv_spec *spec;
    struct gsv_dir *dir;
    struct gsv_net *net = NULL;
    gpuserve_status st;

    bad = *gsv_backend_cpu();
    bad.linear_create = spoil;
    cr_assert_eq(gsv_dir_open(&dir, real_model("all-MiniLM-L6-v2"), error), GPUSERVE_OK);
    cr_assert_eq(gsv_spec_load(&spec, dir, NULL, 0, error), GPUSERVE_OK);
    cr_assert_eq(bad.device_open(&device, 0, error), GPUSERVE_OK);
    st = gsv_net_load(&net, spec, &bad, device, &options, error);
    if (st == GPUSERVE_OK)
        *facts = *gsv_net_int8(net);
    gsv_net_free(&net);
    bad.device_close(&device);
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
    free_batch(&probes);
    free_texts(&texts);
    return st;
}

Test(model_real, int8_keeps_the_products_that_lose)
{
    struct gsv_int8_facts facts;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    spoils_all = false;
    cr_assert_eq(load_spoiled(&facts, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect(facts.is_measured);
    cr_expect_geq(facts.cosine, 0.997f);
    cr_expect_geq(facts.n_kept, 6);
    for (int32_t layer = 0; layer < 6; layer++)
        cr_expect(gsv_int8_keeps(&facts, 4 * layer + 3), "layer %d", layer);
}

Test(model_real, int8_that_loses_everywhere_is_refused_with_the_numbers)
{
    struct gsv_int8_facts facts;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    spoils_all = true;
    cr_expect_eq(load_spoiled(&facts, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "0.9980"), "%s", error.message);
    cr_expect(strstr(error.message, "8 probe texts"), "%s", error.message);
    cr_expect(strstr(error.message, "float32"), "%s", error.message);
}

Test(model_real, facts_are_those_of_the_files)
{
    struct loaded model;
    const struct gsv_spec_facts *facts;

    load_model(&model, real_model("all-MiniLM-L6-v2"), &(struct load_options){ 0 });
    facts = gsv_spec_facts(model.spec);
    cr_expect_str_eq(facts->architecture, "BertModel");
    cr_expect_eq(facts->max_tokens, 256, "sentence_bert_config.json counts, not tokenizer.json");
    cr_expect_eq(facts->dim, 384);
    cr_expect_eq(facts->n_poolings, 1);
    cr_expect_eq(facts->poolings[0], GPUSERVE_POOL_MEAN);
    cr_expect(facts->normalize);
    cr_expect_eq(facts->n_labels, 0);
    cr_expect_str_eq(facts->weights_dtype, "F32");
    unload_model(&model);
    load_model(&model, real_model("splade-tiny"), &(struct load_options){ 0 });
    facts = gsv_spec_facts(model.spec);
    cr_expect_eq(facts->dim, 128);
    cr_expect_not(facts->normalize);
    unload_model(&model);
}
