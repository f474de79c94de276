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

static gpuserve_model *open_copy(const char *name, bool overflows, uint64_t cache_bytes)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    folder_make(&folder, name);
    if (overflows) /* the mean of such an embedding overflows */
        folder_set_word(&folder, OVERFLOWING, 3e38f);
    options.device = "cpu";
    options.cache_bytes = cache_bytes;
    cr_assert_eq(gpuserve_model_open(&model, NULL, folder.path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    return model;
}

static gpuserve_model *open_tiny(bool overflows)
{
    return open_copy("bert-single", overflows, 0);
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
    gpuserve_job options = GPUSERVE_JOB_INIT;
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
    gpuserve_job options = GPUSERVE_JOB_INIT;
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

/* ------------------------------------------------------------------------------------ precision */

enum { DIM = 32, N_COMPACT = 4 };

static const char *const to_compact[N_COMPACT] = { "w8 w9", "w10", "w11 w12 w13 w14", "w8 w9" };

static gpuserve_job compact_job(uint32_t precision, const float *ranges, void *output,
                                size_t capacity)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.texts = to_compact;
    job.n_items = N_COMPACT;
    job.precision = precision;
    job.ranges = ranges;
    job.output = output;
    job.output_capacity = capacity;
    return job;
}

/* The float32 rows of the texts, and ranges that some of their numbers leave. */
static void float_rows(gpuserve_model *model, uint32_t dimensions, uint32_t normalize, float *rows,
                       float *ranges)
{
    const size_t dim = dimensions ? dimensions : DIM;
    gpuserve_job job = compact_job(0, NULL, rows, N_COMPACT * dim);

    job.dimensions = dimensions;
    job.normalize = normalize;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_vector_ranges(rows, 3, dim, 0, ranges, NULL), GPUSERVE_OK);
    ranges[0] += 0.5f * (ranges[dim] - ranges[0]);
}

static void expect_compact(gpuserve_model *model, uint32_t precision, uint32_t dimensions,
                           uint32_t normalize)
{
    const size_t dim = dimensions ? dimensions : DIM;
    const size_t bytes = N_COMPACT * gpuserve_quantized_bytes(precision, dim);
    unsigned char want[N_COMPACT * 4 * DIM], got[N_COMPACT * 4 * DIM + 2];
    float rows[N_COMPACT * DIM], ranges[2 * DIM];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job;

    float_rows(model, dimensions, normalize, rows, ranges);
    cr_assert_eq(
        gpuserve_quantize(rows, N_COMPACT, dim, precision, ranges, want, sizeof(want), NULL),
        GPUSERVE_OK);
    memset(got, 0xA5, sizeof(got));
    job = compact_job(precision, ranges, got + 1, bytes); /* at any address */
    job.dimensions = dimensions;
    job.normalize = normalize;
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(memcmp(got + 1, want, bytes), 0, "precision %u, %zu dimensions, normalize %u",
                 precision, dim, normalize);
    cr_expect(got[0] == 0xA5 && got[bytes + 1] == 0xA5, "precision %u", precision);
}

Test(tiny, a_job_makes_the_bytes_that_quantize_makes)
{
    static const uint32_t dimensions[] = { 0, 1, 7, 10, DIM };
    gpuserve_model *model = open_copy("bert", false, 0);

    for (uint32_t one = GPUSERVE_PRECISION_FLOAT16; one <= GPUSERVE_PRECISION_UBINARY; one++)
        for (size_t i = 0; i < sizeof(dimensions) / sizeof(dimensions[0]); i++)
            for (uint32_t normalize = 0; normalize <= GPUSERVE_NORMALIZE_WHOLE; normalize++)
                expect_compact(model, one, dimensions[i], normalize);
    close_tiny(&model);
}

/* Of texts whose results are cached, only those of the same precision and ranges are found. */
Test(tiny, precisions_share_no_results)
{
    gpuserve_model *model = open_copy("bert", false, 1 << 20);
    unsigned char first[N_COMPACT * DIM], got[N_COMPACT * 4 * DIM];
    float rows[N_COMPACT * DIM], ranges[2 * DIM];
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_job job;

    float_rows(model, 0, 0, rows, ranges);
    for (uint32_t one = GPUSERVE_PRECISION_FLOAT16; one <= GPUSERVE_PRECISION_UBINARY; one++) {
        for (int again = 0; again < 2; again++) {
            job = compact_job(one, ranges, got, sizeof(got));
            job.result = &result;
            cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
            cr_expect_eq(result.n_cached, again ? N_COMPACT : 1, "precision %u", one);
            expect_compact(model, one, 0, 0);
        }
    }
    job = compact_job(GPUSERVE_PRECISION_INT8, ranges, first, sizeof(first));
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < DIM; i++)
        ranges[DIM + i] += 1.0f;
    job.result = &result;
    job.output = (float *)(void *)got;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(result.n_cached, 1, "the ranges have changed");
    cr_expect_neq(memcmp(first, got, sizeof(first)), 0);
    close_tiny(&model);
}

/* Jobs in flight together: only those of one precision and equal ranges share a batch. */
Test(tiny, jobs_of_every_precision_run_at_a_time)
{
    enum { N_JOBS = 60 };
    static unsigned char got[N_JOBS][N_COMPACT * 2 * DIM], want[N_JOBS][N_COMPACT * 2 * DIM];
    static float ranges[N_JOBS][2 * DIM];
    gpuserve_model *model = open_copy("bert", false, 0);
    gpuserve_request *requests[N_JOBS];
    float rows[N_COMPACT * DIM];

    for (uint32_t i = 0; i < N_JOBS; i++) {
        const uint32_t precision = 1 + i % GPUSERVE_PRECISION_UBINARY;
        gpuserve_job job = compact_job(precision, ranges[i], got[i], sizeof(got[i]));

        float_rows(model, 0, 0, rows, ranges[i]);
        ranges[i][DIM] += (float)(i / 20); /* others, and equal ones at another address */
        cr_assert_eq(gpuserve_quantize(rows, N_COMPACT, DIM, precision, ranges[i], want[i],
                                       sizeof(want[i]), NULL),
                     GPUSERVE_OK);
        cr_assert_eq(gpuserve_submit(&requests[i], model, &job, NULL, NULL, NULL), GPUSERVE_OK);
    }
    for (size_t i = 0; i < N_JOBS; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
        cr_expect_eq(memcmp(got[i], want[i], sizeof(got[i])), 0, "job %zu", i);
    }
    close_tiny(&model);
}

Test(tiny, a_row_of_bytes_that_is_not_finite_is_marked)
{
    static const char *const texts[] = { "w8 w9", "w12 w50 w13", "w10" };
    gpuserve_model *model = open_copy("bert", true, 0);
    unsigned char got[3 * DIM], alone[DIM];
    gpuserve_item items[3];
    gpuserve_job job = compact_job(GPUSERVE_PRECISION_UBINARY, NULL, got, sizeof(got));

    job.texts = texts;
    job.n_items = 3;
    job.items = items;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_E_NUMERIC);
    cr_expect(items[0].status == GPUSERVE_OK && items[1].status == GPUSERVE_E_NUMERIC &&
              items[2].status == GPUSERVE_OK);
    job = compact_job(GPUSERVE_PRECISION_UBINARY, NULL, alone, sizeof(alone));
    job.texts = texts + 2;
    job.n_items = 1;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(memcmp(alone, got + 2 * DIM / 8, DIM / 8), 0);
    close_tiny(&model);
}

Test(tiny, precisions_are_refused_by_name)
{
    static float wrong[2 * DIM] = { [3] = 1 }; /* a minimum above its maximum */
    static float vectors[N_COMPACT * 8 * DIM];
    static const gpuserve_output more = { GPUSERVE_TASK_TOKEN_VECTORS, 0, vectors,
                                          N_COMPACT * 8 * DIM, 0 };
    gpuserve_model *model = open_copy("bert", false, 0);
    unsigned char got[N_COMPACT * DIM];
    const gpuserve_job good =
        compact_job(GPUSERVE_PRECISION_UBINARY, NULL, got, N_COMPACT * DIM / 8);
    gpuserve_job jobs[8];
    static const char *const words[] = { "job.precision is 6, outside 0 to 5",
                                         "int8 and uint8 need ranges: [2, 32]",
                                         "the range of dimension 3 is 1 to 0",
                                         "output_stride is 32",
                                         "4 rows of 4 bytes do not fit",
                                         "valid only for embeddings without other outputs",
                                         "valid only for embeddings without other outputs",
                                         "job.reserved is not zero" };

    cr_expect_eq(gpuserve_run(model, &good, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < 8; i++)
        jobs[i] = good;
    jobs[0].precision = 6;
    jobs[1].precision = GPUSERVE_PRECISION_INT8;
    jobs[2].precision = GPUSERVE_PRECISION_UINT8;
    jobs[2].ranges = wrong;
    jobs[3].output_stride = DIM;
    jobs[4].output_capacity--;
    jobs[5].task = GPUSERVE_TASK_TOKEN_VECTORS;
    jobs[6].more = &more;
    jobs[6].n_more = 1;
    jobs[7].reserved = 1;
    for (size_t i = 0; i < 8; i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        cr_expect_eq(gpuserve_run(model, &jobs[i], &error), GPUSERVE_E_INVALID, "job %zu", i);
        cr_expect(strstr(error.message, words[i]), "job %zu: %s", i, error.message);
    }
    close_tiny(&model);
}
