/*
 * test_adapters.c - LoRA adapters chosen by the prompt's name (tests/data/models/jina-v3-hub-lora).
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE "jina-v3-hub-lora"

enum { DIM = 16, VOCAB = 48, N_ADAPTERS = 5, N_NAMES = N_ADAPTERS + 1, MAX_TEXTS = 16 };

/* The last one: no adapter. */
static const char *const names[N_NAMES] = { "retrieval.query", "retrieval.passage", "separation",
                                            "classification",  "text-matching",     NULL };

/* The model with a tokenizer as small as its vocabulary. */
static gpuserve_model *open_model(const char *name, uint32_t dtype, uint32_t n_threads)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    struct folder folder;
    char path[128];
    FILE *file;

    folder_make(&folder, SOURCE);
    snprintf(path, sizeof(path), "%s/vocab.txt", folder.path);
    file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nrepresent\nthe\nquery\nfor\nretrieving\nevidence\n"
          "documents\n:\ndocument\nretrieval\n",
          file);
    for (int i = 15; i < VOCAB; i++)
        fprintf(file, "w%d\n", i);
    fclose(file);
    options.device = "cpu";
    options.dtype = dtype;
    options.n_threads = n_threads;
    options.default_prompt_name = name;
    options.cache_bytes = 1 << 20;
    cr_assert_eq(gpuserve_model_open(&model, NULL, folder.path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    folder_remove(&folder);
    return model;
}

/* The vectors of the reference's texts, given as token ids. */
static void vectors_of(gpuserve_model *model, float *rows, size_t *n)
{
    struct texts texts = read_texts(test_data("models/" SOURCE "/reference.safetensors"));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    size_t offsets[MAX_TEXTS + 1] = { 0 };

    cr_assert_leq(texts.n, MAX_TEXTS);
    for (size_t i = 0; i < texts.n; i++)
        offsets[i + 1] = offsets[i] + (size_t)texts.n_tokens[i];
    job.n_items = *n = texts.n;
    job.ids = texts.ids;
    job.id_offsets = offsets;
    job.normalize = GPUSERVE_NORMALIZE_YES;
    job.output = rows;
    job.output_capacity = MAX_TEXTS * DIM;
    cr_assert_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    free_texts(&texts);
}

/* Rows compared with the reference of an adapter. */
static struct difference difference_of(const float *rows, size_t n, const char *name)
{
    char tensor[96];
    size_t count;
    struct difference difference;
    double *want;

    snprintf(tensor, sizeof(tensor), "embedding_%s%sf64", name ? name : "", name ? "_" : "");
    want = read_reference(test_data("models/" SOURCE "/reference.safetensors"), tensor, &count);
    cr_assert_eq(count, n * DIM);
    for (size_t i = 0; i < n; i++) { /* the job asks for rows of length 1 */
        double square = 0;

        for (size_t j = 0; j < DIM; j++)
            square += want[i * DIM + j] * want[i * DIM + j];
        for (size_t j = 0; j < DIM; j++)
            want[i * DIM + j] /= sqrt(square);
    }
    difference = compare_rows(rows, want, n, DIM);
    free(want);
    return difference;
}

static double least_cosine(const float *rows, size_t n, const char *name)
{
    return difference_of(rows, n, name).min_cosine;
}

Test(adapters, the_default_prompt_chooses_the_adapter_of_token_ids)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        gpuserve_model *model = open_model(names[i], GPUSERVE_DTYPE_FLOAT32, 0);
        float rows[MAX_TEXTS * DIM];
        size_t n;

        vectors_of(model, rows, &n);
        for (size_t j = 0; j < N_NAMES; j++) {
            const double cosine = least_cosine(rows, n, names[j]);

            cr_expect(i == j ? cosine > 1 - 1e-6 : cosine < 1 - 1e-4, "%zu, %zu: %g", i, j, cosine);
        }
        cr_expect_leq(difference_of(rows, n, names[i]).largest, 1e-5, "%zu", i);
        gpuserve_model_close(&model);
    }
}

Test(adapters, in_narrower_types)
{
    static const struct {
        uint32_t dtype;
        double cosine;
    } cases[] = { { GPUSERVE_DTYPE_BFLOAT16, 0.999 }, { GPUSERVE_DTYPE_INT8, 0.99 } };

    for (size_t c = 0; c < 2; c++) {
        for (size_t i = 0; i < N_NAMES; i++) {
            gpuserve_model *model = open_model(names[i], cases[c].dtype, 0);
            float rows[MAX_TEXTS * DIM];
            size_t n;

            vectors_of(model, rows, &n);
            cr_expect_gt(least_cosine(rows, n, names[i]), cases[c].cosine, "%s, type %u: %g",
                         names[i] ? names[i] : "none", cases[c].dtype,
                         least_cosine(rows, n, names[i]));
            gpuserve_model_close(&model);
        }
    }
}

/* ----------------------------------------------------------------------------------- by request */

static void embed(gpuserve_model *model, const char *name, const char *prompt, const char *text,
                  uint32_t cache, float *row)
{
    gpuserve_job options = GPUSERVE_JOB_INIT;

    options.prompt_name = name;
    options.prompt = prompt;
    options.cache = cache;
    cr_assert_eq(gpuserve_embed(model, &text, 1, row, DIM, &options, NULL), GPUSERVE_OK);
}

static const char *const words[] = { "w20 w21 w22", "w30", "w40 w41 w42 w43 w44", "w25 w26" };
#define N_WORDS (sizeof(words) / sizeof(words[0]))

struct caller {
    pthread_t thread;
    gpuserve_model *model;
    size_t number;
    float (*want)[N_WORDS][DIM];
    int n_other; /* rows with other bits */
};

static void *call(void *argument)
{
    struct caller *caller = argument;

    for (size_t i = 0; i < 200; i++) {
        const size_t name = (caller->number + i) % N_NAMES, text = i / N_NAMES % N_WORDS;
        float row[DIM];

        embed(caller->model, names[name], NULL, words[text],
              i % 2 ? GPUSERVE_CACHE_OFF : GPUSERVE_CACHE_DEFAULT, row);
        caller->n_other += memcmp(row, caller->want[name][text], sizeof(row)) != 0;
    }
    return NULL;
}

Test(adapters, requests_with_other_adapters_do_not_change_a_bit)
{
    static float want[N_NAMES][N_WORDS][DIM];
    struct caller callers[N_NAMES];
    gpuserve_model *model = open_model(NULL, GPUSERVE_DTYPE_FLOAT32, 0);

    for (size_t i = 0; i < N_NAMES * N_WORDS; i++)
        embed(model, names[i / N_WORDS], NULL, words[i % N_WORDS], GPUSERVE_CACHE_OFF,
              want[i / N_WORDS][i % N_WORDS]);
    for (size_t i = 0; i < N_NAMES; i++)
        for (size_t j = 0; j < i; j++)
            cr_expect_neq(memcmp(want[i][0], want[j][0], sizeof(want[i][0])), 0, "%zu, %zu", i, j);
    for (size_t i = 0; i < N_NAMES; i++) {
        callers[i] = (struct caller){ .model = model, .number = i, .want = want };
        cr_assert_eq(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (size_t i = 0; i < N_NAMES; i++) {
        pthread_join(callers[i].thread, NULL);
        cr_expect_eq(callers[i].n_other, 0, "caller %zu: %d rows", i, callers[i].n_other);
    }
    gpuserve_model_close(&model);
}

/* A completion that keeps its worker until it is released. */
struct blocker {
    sem_t is_running, is_released;
};

static void block(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct blocker *blocker = user;

    (void)request;
    cr_assert_eq(status, GPUSERVE_OK);
    sem_post(&blocker->is_running);
    sem_wait(&blocker->is_released);
}

static void submit(gpuserve_model *model, const char *const *text, const char *name, float *row,
                   struct blocker *blocker, gpuserve_request **request)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.texts = text;
    job.n_items = 1;
    job.prompt_name = name;
    job.output = row;
    job.output_capacity = DIM;
    job.cache = GPUSERVE_CACHE_OFF;
    cr_assert_eq(gpuserve_submit(request, model, &job, blocker ? block : NULL, blocker, NULL),
                 GPUSERVE_OK);
}

static gpuserve_model_counts counts_of(gpuserve_model *model)
{
    gpuserve_model_counts counts = GPUSERVE_MODEL_COUNTS_INIT;

    cr_assert_eq(gpuserve_model_stats(model, &counts, NULL), GPUSERVE_OK);
    return counts;
}

/* The only worker waits in a callback until all requests are queued. */
static void run_mixed(uint32_t dtype)
{
    enum { N = N_NAMES * N_WORDS };
    float want[N][DIM], rows[N][DIM], first[DIM];
    gpuserve_model *model = open_model(NULL, dtype, 1);
    gpuserve_request *requests[N + 1];
    gpuserve_model_counts before, after;
    struct blocker blocker;

    for (size_t i = 0; i < N; i++)
        embed(model, names[i % N_NAMES], NULL, words[i / N_NAMES], GPUSERVE_CACHE_OFF, want[i]);
    cr_assert_eq(sem_init(&blocker.is_running, 0, 0), 0);
    cr_assert_eq(sem_init(&blocker.is_released, 0, 0), 0);
    submit(model, words, NULL, first, &blocker, &requests[N]);
    sem_wait(&blocker.is_running);
    before = counts_of(model);
    for (size_t i = 0; i < N; i++)
        submit(model, &words[i / N_NAMES], names[i % N_NAMES], rows[i], NULL, &requests[i]);
    sem_post(&blocker.is_released);
    for (size_t i = 0; i <= N; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
    }
    after = counts_of(model);
    cr_expect_eq(after.batches - before.batches, 1, "dtype %u: %d batches", dtype,
                 (int)(after.batches - before.batches));
    cr_expect_eq(after.items - before.items, N);
    for (size_t i = 0; i < N; i++)
        cr_expect_eq(memcmp(rows[i], want[i], sizeof(rows[i])), 0,
                     "dtype %u: text %zu with %s has other bits than alone", dtype, i / N_NAMES,
                     names[i % N_NAMES] ? names[i % N_NAMES] : "no adapter");
    sem_destroy(&blocker.is_running);
    sem_destroy(&blocker.is_released);
    gpuserve_model_close(&model);
}

Test(adapters, requests_with_different_adapters_share_a_batch)
{
    run_mixed(GPUSERVE_DTYPE_FLOAT32);
    run_mixed(GPUSERVE_DTYPE_BFLOAT16);
    run_mixed(GPUSERVE_DTYPE_INT8);
}

/* The instruction of an adapter comes before the text; a prompt given as text has no adapter. */
Test(adapters, the_instruction_is_the_prompt)
{
    static const char instruction[] = "Represent the document for retrieval: ";
    gpuserve_model *model = open_model(NULL, GPUSERVE_DTYPE_FLOAT32, 0);
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float named[DIM], as_text[DIM], joined[DIM];
    char info[8192];

    embed(model, "retrieval.passage", NULL, "w20", GPUSERVE_CACHE_OFF, named);
    embed(model, NULL, instruction, "w20", GPUSERVE_CACHE_OFF, as_text);
    embed(model, NULL, NULL, "Represent the document for retrieval: w20", GPUSERVE_CACHE_OFF,
          joined);
    cr_expect_neq(memcmp(named, as_text, sizeof(named)), 0);
    cr_expect_eq(memcmp(joined, as_text, sizeof(named)), 0);
    cr_assert_eq(gpuserve_model_info(model, info, sizeof(info), NULL, NULL), GPUSERVE_OK);
    cr_expect_not_null(strstr(info, "\"adapters\""), "%s", info);
    cr_expect_not_null(strstr(info, instruction), "%s", info);
    options.prompt_name = "retrieval";
    cr_expect_eq(gpuserve_embed(model, words, 1, named, DIM, &options, &error), GPUSERVE_E_INVALID);
    cr_expect_not_null(strstr(error.message, "the model has \"retrieval.query\""), "%s",
                       error.message);
    gpuserve_model_close(&model);
}
