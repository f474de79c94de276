/*
 * test_int8_vocabulary.c - int8 of models whose tokenizer knows none of the built-in probe texts'
 * words: near float32 on drawn token ids, or refused with the numbers.
 *
 * Every model of tests/data/models/families.txt gets a tokenizer of the words "w0", "w1", ...
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = 300, MAX_TOKENS = 128, MAX_VOCAB = 4096 };

#define BOUND 0.997

struct drawn {
    int32_t ids[N_TEXTS * MAX_TOKENS];
    size_t offsets[N_TEXTS + 1];
};

static void write_text(const struct folder *folder, const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    write_file(path, text, strlen(text));
}

/* A WordPiece tokenizer of `n` words without special tokens, of which "w0" is unknown. */
static void write_tokenizer(const struct folder *folder, int n)
{
    static char text[MAX_VOCAB * 16 + 512];
    int at = snprintf(text, sizeof(text),
                      "{\"added_tokens\":[],\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
                      "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"w0\","
                      "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,"
                      "\"vocab\":{");

    cr_assert_leq(n, MAX_VOCAB);
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s\"w%d\":%d", i ? "," : "", i, i);
    snprintf(text + at, sizeof(text) - (size_t)at, "}}}");
    write_text(folder, "tokenizer.json", text);
    write_text(folder, "tokenizer_config.json",
               "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"model_max_length\":100000}");
}

/* A Unigram tokenizer of `n` pieces without an unknown one: texts with other characters are
 * errors. */
static void write_unigram(const struct folder *folder, int n)
{
    static char text[MAX_VOCAB * 16 + 512];
    int at = snprintf(text, sizeof(text),
                      "{\"added_tokens\":[],\"model\":{\"type\":\"Unigram\",\"unk_id\":null,"
                      "\"vocab\":[");

    cr_assert_leq(n, MAX_VOCAB);
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s[\"\\u%04x\",-1.0]", i ? "," : "",
                       0x3400 + i);
    snprintf(text + at, sizeof(text) - (size_t)at, "]}}");
    write_text(folder, "tokenizer.json", text);
}

/* The vocab_size of config.json; 0 if the folder has none. */
static int vocab_of(const struct folder *folder)
{
    static const char key[] = "\"vocab_size\":";
    char path[128], *text, *at;
    FILE *file;
    size_t size;
    int n = 0;

    snprintf(path, sizeof(path), "%s/config.json", folder->path);
    file = fopen(path, "r");
    if (!file)
        return 0;
    fclose(file);
    text = read_file(path, &size);
    at = strstr(text, key);
    if (at)
        n = atoi(at + strlen(key));
    free(text);
    return n;
}

static gpuserve_status open_model(gpuserve_model **model, const struct folder *folder,
                                  uint32_t dtype, gpuserve_error *error)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    *model = NULL;
    options.device = "cpu";
    options.dtype = dtype;
    options.n_threads = 1;
    options.warmup = GPUSERVE_WARMUP_OFF;
    return gpuserve_model_open(model, NULL, folder->path, &options, error);
}

/* Any length up to the limit; every third text has one to four tokens. */
static void draw(struct drawn *drawn, int vocab, size_t limit)
{
    uint32_t state = 11;

    limit = limit < MAX_TOKENS ? limit : MAX_TOKENS;
    for (size_t i = 0; i < N_TEXTS; i++) {
        const size_t longest = i % 3 == 0 && limit > 4 ? 4 : limit;
        const size_t n = 1 + next_random(&state) % longest;

        drawn->offsets[i + 1] = drawn->offsets[i] + n;
        for (size_t j = drawn->offsets[i]; j < drawn->offsets[i + 1]; j++)
            drawn->ids[j] = 1 + (int32_t)(next_random(&state) % (uint32_t)(vocab - 1));
    }
}

static float *embed(gpuserve_model *model, const struct drawn *drawn)
{
    const size_t n = N_TEXTS * gpuserve_model_dim(model);
    float *rows = calloc(n, sizeof(float));
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.task = GPUSERVE_TASK_EMBED;
    job.n_items = N_TEXTS;
    job.ids = drawn->ids;
    job.id_offsets = drawn->offsets;
    job.output = rows;
    job.output_capacity = n;
    cr_assert_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    return rows;
}

static double min_cosine(const float *a, const float *b, size_t dim)
{
    double min = 1;

    for (size_t i = 0; i < N_TEXTS; i++) {
        double dot = 0, aa = 0, bb = 0;

        for (size_t j = i * dim; j < (i + 1) * dim; j++) {
            dot += (double)a[j] * (double)b[j];
            aa += (double)a[j] * (double)a[j];
            bb += (double)b[j] * (double)b[j];
        }
        min = fmin(min, dot / sqrt(aa * bb));
    }
    return min;
}

static int n_imprecise; /* models refused with the numbers of the measurement */

/* 1 if the model holds the bound in int8, 0 if it makes no embeddings or is refused. */
static int check(const char *name, const struct folder *folder, int vocab)
{
    static struct drawn drawn;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *exact, *int8;
    float *want, *got;
    size_t dim;

    if (open_model(&exact, folder, GPUSERVE_DTYPE_FLOAT32, NULL) != GPUSERVE_OK)
        return 0;
    dim = gpuserve_model_dim(exact);
    if (dim == 0 || open_model(&int8, folder, GPUSERVE_DTYPE_INT8, &error) != GPUSERVE_OK) {
        const bool is_imprecise = dim > 0 && strstr(error.message, "int8 is too imprecise");

        n_imprecise += is_imprecise;
        cr_expect(dim == 0 || is_imprecise || strstr(error.message, "does not compute in int8"),
                  "%s: %s", name, error.message);
        gpuserve_model_close(&exact);
        return 0;
    }
    draw(&drawn, vocab, gpuserve_model_max_tokens(exact));
    want = embed(exact, &drawn);
    got = embed(int8, &drawn);
    cr_expect_geq(min_cosine(want, got, dim), BOUND, "%s: %.5f", name, min_cosine(want, got, dim));
    free(want);
    free(got);
    gpuserve_model_close(&exact);
    gpuserve_model_close(&int8);
    return 1;
}

Test(int8_vocabulary, every_family_holds_the_bound_on_drawn_ids)
{
    FILE *file = fopen(test_data("models/families.txt"), "r");
    char line[1024], name[96];
    int n = 0;

    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file)) {
        struct folder folder;
        int vocab;

        if (sscanf(line, "%95[^#\t\n]", name) != 1)
            continue;
        folder_make(&folder, name);
        vocab = vocab_of(&folder);
        if (vocab > 0) {
            write_tokenizer(&folder, vocab);
            n += check(name, &folder, vocab);
        }
        folder_remove(&folder);
    }
    fclose(file);
    cr_expect_geq(n, 90, "only %d models were compared", n);
    /* The estimate for other texts differs between instruction sets. */
    cr_expect_leq(n_imprecise, 3, "%d models are refused", n_imprecise);
}

/* CLIP pools the token of the first end of the text, or the one with the largest id. */
Test(int8_vocabulary, clip_is_measured_at_the_token_that_it_pools)
{
    struct folder folder;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model;

    folder_make(&folder, "clip-text");
    write_tokenizer(&folder, 48);
    cr_expect_eq(open_model(&model, &folder, GPUSERVE_DTYPE_INT8, &error), GPUSERVE_OK, "%s",
                 error.message);
    gpuserve_model_close(&model);
    folder_remove(&folder);
}

Test(int8_vocabulary, too_few_tokens_are_refused_with_the_numbers)
{
    struct folder folder;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model;

    folder_make(&folder, "bert");
    write_tokenizer(&folder, 9); /* 8 without the unknown token */
    cr_expect_eq(open_model(&model, &folder, GPUSERVE_DTYPE_INT8, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "8 tokens are not special (min 16)"), "%s", error.message);
    cr_expect(strstr(error.hint, "float32"), "%s", error.hint);
    cr_expect_eq(open_model(&model, &folder, GPUSERVE_DTYPE_FLOAT32, &error), GPUSERVE_OK);
    gpuserve_model_close(&model);
    folder_remove(&folder);
}

/* No text can be encoded, and ids can be embedded. */
Test(int8_vocabulary, a_tokenizer_without_an_unknown_token_is_measured)
{
    struct folder folder;

    folder_make(&folder, "bert");
    write_unigram(&folder, FOLDER_VOCAB);
    cr_expect_eq(check("bert", &folder, FOLDER_VOCAB), 1);
    folder_remove(&folder);
}
