/*
 * test_model_real.c - real models against vectors that torch computed in float64.
 */
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

/* A model's unnormalized mean vectors against `mean_f64`. */
static void check_mean(const char *name, const char *reference, const struct load_options *options,
                       double cosine, double largest)
{
    struct loaded model;
    struct texts texts = read_texts(test_data(reference));
    size_t count;
    double *want = read_reference(test_data(reference), "mean_f64", &count);
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED };
    struct difference d;
    float *got;

    load_model(&model, real_model(name), options);
    run.dimensions = gsv_spec_facts(model.spec)->dim;
    cr_assert_eq(count, texts.n * (size_t)run.dimensions);
    got = run_all(&model, &texts, run);
    d = compare_rows(got, want, texts.n, (size_t)run.dimensions);
    cr_expect(d.least_cosine >= cosine, "%s: cosine %.9f", name, d.least_cosine);
    cr_expect(d.largest <= largest, "%s: difference %g", name, d.largest);
    free(got);
    free(want);
    free_texts(&texts);
    unload_model(&model);
}

Test(model_real, float32_vectors_equal_torch_in_float64)
{
    const struct load_options plain = { 0 }, mapped = { .use_mmap = true };

    check_mean("all-MiniLM-L6-v2", "oracle/vectors/all-MiniLM-L6-v2.safetensors", &plain, 0.999999,
               1e-5);
    check_mean("splade-tiny", "oracle/vectors/splade-bert-tiny.safetensors", &plain, 0.999999,
               1e-5);
    check_mean("splade-tiny", "oracle/vectors/splade-bert-tiny.safetensors", &mapped, 0.999999,
               1e-5);
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
