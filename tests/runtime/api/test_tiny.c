/*
 * test_tiny.c - a classifier of 2 layers of width 32 and a vocabulary of 96 words, as a model
 * directory.
 *
 * Labels and pairs through the public API, and weights that overflow.
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_LABELS = 3, OVERFLOWING = 50 };

static struct folder folder;

static gpuserve_model *open_tiny(bool overflows)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    folder_make(&folder, "bert-single");
    if (overflows) /* the mean of such an embedding overflows */
        folder_set_word(&folder, OVERFLOWING, 3e38f);
    options.device = "cpu";
    cr_assert_eq(gpuserve_model_open(&model, NULL, folder.path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    return model;
}

static void close_tiny(gpuserve_model **model)
{
    gpuserve_model_close(model);
    folder_remove(&folder);
}

/* Progress of loading the weights, and the call at which the callback ends it. */
struct loading {
    uint64_t done, total;
    int n, most;
};

static int32_t follow(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    struct loading *loading = user;

    cr_expect_eq(stage, GPUSERVE_STAGE_WEIGHTS);
    cr_expect(loading->n == 0 ? done == 0 : done > loading->done, "%llu after %llu",
              (unsigned long long)done, (unsigned long long)loading->done);
    cr_expect_leq(done, total);
    loading->done = done;
    loading->total = total;
    return ++loading->n == loading->most;
}

Test(tiny, loading_is_told_by_bytes_and_may_be_ended_amid)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model = NULL;
    struct loading whole = { .most = 1000 }, part = { .most = 3 };

    folder_make(&folder, "bert-single");
    options.device = "cpu";
    options.n_threads = 1; /* one thread both reads tensors and reports progress */
    options.progress = follow;
    options.progress_user = &whole;
    cr_assert_eq(gpuserve_model_open(&model, NULL, folder.path, &options, NULL), GPUSERVE_OK);
    cr_expect_gt(whole.n, 10);
    cr_expect_eq(whole.done, whole.total);
    gpuserve_model_close(&model);
    options.progress_user = &part;
    cr_expect_eq(gpuserve_model_open(&model, NULL, folder.path, &options, NULL),
                 GPUSERVE_E_CANCELLED);
    cr_expect_eq(part.n, 3);
    cr_expect_lt(part.done, part.total);
    cr_expect_null(model);
    folder_remove(&folder);
}

Test(tiny, probabilities_equal_the_references)
{
    gpuserve_model *model = open_tiny(false);
    struct texts texts = read_texts(test_data("models/bert-single/reference.safetensors"));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    float probabilities[16 * N_LABELS];
    size_t offsets[17] = { 0 }, n;
    double *want =
        read_reference(test_data("models/bert-single/reference.safetensors"), "probs_f64", &n);

    cr_assert_eq(n, texts.n * N_LABELS);
    for (size_t i = 0; i < texts.n; i++)
        offsets[i + 1] = offsets[i] + (size_t)texts.n_tokens[i];
    job.task = GPUSERVE_TASK_CLASSIFY;
    job.n_items = texts.n;
    job.ids = texts.ids;
    job.id_offsets = offsets;
    job.output = probabilities;
    job.output_capacity = sizeof(probabilities) / sizeof(float);
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < n; i++)
        cr_expect_float_eq(probabilities[i], want[i], 1e-5, "number %zu", i);
    cr_expect_eq(gpuserve_model_label_count(model), N_LABELS);
    cr_expect_str_eq(gpuserve_model_label(model, 2), "so so");
    cr_expect_null(gpuserve_model_label(model, 3));
    free(want);
    free_texts(&texts);
    close_tiny(&model);
}

Test(tiny, scores_are_as_asked_and_pairs_are_not_single_texts)
{
    static const char *const first[] = { "w10 w11", "w20" };
    static const char *const second[] = { "w30", "w40 w41 w42" };
    gpuserve_model *model = open_tiny(false);
    gpuserve_classify_options options = GPUSERVE_CLASSIFY_OPTIONS_INIT;
    float softmax[2 * N_LABELS], raw[2 * N_LABELS], sigmoid[2 * N_LABELS], pairs[2 * N_LABELS];
    gpuserve_item items[2];
    const size_t n = 2 * N_LABELS;

    cr_assert_eq(gpuserve_classify(model, first, 2, softmax, n, NULL, NULL), GPUSERVE_OK);
    options.score = GPUSERVE_SCORE_RAW;
    cr_assert_eq(gpuserve_classify(model, first, 2, raw, n, &options, NULL), GPUSERVE_OK);
    options.score = GPUSERVE_SCORE_SIGMOID;
    cr_assert_eq(gpuserve_classify(model, first, 2, sigmoid, n, &options, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < 2; i++) {
        double sum = 0;

        for (size_t j = 0; j < N_LABELS; j++)
            sum += exp(raw[i * N_LABELS + j]);
        for (size_t j = 0; j < N_LABELS; j++) {
            const double logit = raw[i * N_LABELS + j];

            cr_expect_float_eq(softmax[i * N_LABELS + j], exp(logit) / sum, 1e-6);
            cr_expect_float_eq(sigmoid[i * N_LABELS + j], 1 / (1 + exp(-logit)), 1e-6);
        }
    }
    options.score = GPUSERVE_SCORE_DEFAULT;
    options.pairs = second;
    options.items = items;
    cr_assert_eq(gpuserve_classify(model, first, 2, pairs, n, &options, NULL), GPUSERVE_OK);
    cr_expect_eq(items[0].n_tokens, 6); /* [CLS] w10 w11 [SEP] w30 [SEP] */
    cr_expect_eq(items[1].n_tokens, 7);
    cr_expect_neq(memcmp(pairs, softmax, sizeof(pairs)), 0);
    close_tiny(&model);
}

Test(tiny, an_overflow_stays_in_its_row)
{
    static const char *const texts[] = { "w10 w11", "w12 w50 w13", "w14" };
    gpuserve_model *sound = open_tiny(false);
    float want[3 * N_LABELS], got[3 * N_LABELS];
    gpuserve_classify_options options = GPUSERVE_CLASSIFY_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_item items[3];
    gpuserve_model *model;

    cr_assert_eq(gpuserve_classify(sound, texts, 3, want, 9, NULL, NULL), GPUSERVE_OK);
    close_tiny(&sound);
    model = open_tiny(true);
    options.items = items;
    cr_expect_eq(gpuserve_classify(model, texts, 3, got, 9, &options, &error), GPUSERVE_E_NUMERIC);
    cr_expect_neq(strstr(error.message, "item 1"), NULL, "%s", error.message);
    cr_expect_eq(items[0].status, GPUSERVE_OK);
    cr_expect_eq(items[1].status, GPUSERVE_E_NUMERIC);
    cr_expect_eq(items[2].status, GPUSERVE_OK);
    cr_expect_eq(memcmp(got, want, 3 * sizeof(float)), 0);
    cr_expect_eq(memcmp(got + 6, want + 6, 3 * sizeof(float)), 0);
    close_tiny(&model);
}
