/*
 * test_tokenizer.c - a tokenizer without a model: directories of tokenizer files only, against the
 * ids of Hugging Face tokenizers, and against the calls of a model.
 */
#define _GNU_SOURCE
#include "tests/model/support.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CAPACITY = 512 };

static const char *const files[] = { "tokenizer.json",
                                     "tokenizer_config.json",
                                     "vocab.txt",
                                     "vocab.json",
                                     "merges.txt",
                                     "sentencepiece.bpe.model",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "sentence_bert_config.json" };
enum { N_FILES = sizeof(files) / sizeof(files[0]) };

/* A copy of a directory's tokenizer files, without config.json and weights. */
static void copy_tokenizer(const char *from, char *to)
{
    cr_assert(mkdtemp(to));
    for (size_t i = 0; i < N_FILES; i++) {
        char path[2048], command[4200];

        snprintf(path, sizeof(path), "%s/%s", from, files[i]);
        if (access(path, R_OK) != 0)
            continue;
        snprintf(command, sizeof(command), "cp '%s' '%s/'", path, to);
        cr_assert_eq(system(command), 0, "%s", command);
    }
}

static void remove_copy(const char *folder)
{
    for (size_t i = 0; i < N_FILES; i++) {
        char path[2048];

        snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static gpuserve_tokenizer *open_tokenizer(const char *path)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_tokenizer *tokenizer = NULL;

    cr_assert_eq(gpuserve_tokenizer_open(&tokenizer, NULL, path, &error), GPUSERVE_OK, "%s: %s",
                 path, error.message);
    return tokenizer;
}

struct tokens {
    int32_t ids[CAPACITY], type_ids[CAPACITY];
    gpuserve_span spans[CAPACITY];
    size_t n;
};

static gpuserve_status encode(gpuserve_tokenizer *tokenizer, const char *text, const char *pair,
                              const gpuserve_tokenize_options *options, struct tokens *tokens,
                              gpuserve_error *error)
{
    gpuserve_tokenizer_input input = GPUSERVE_TOKENIZER_INPUT_INIT;
    gpuserve_tokenizer_output output = GPUSERVE_TOKENIZER_OUTPUT_INIT;

    input.text = text;
    input.size = strlen(text);
    input.pair = pair;
    input.pair_size = pair ? strlen(pair) : 0;
    output.capacity = CAPACITY;
    output.ids = tokens->ids;
    output.type_ids = tokens->type_ids;
    output.spans = tokens->spans;
    return gpuserve_tokenizer_encode(tokenizer, &input, &output, &tokens->n, options, error);
}

/* The rows of expected.json that need no file other than the tokenizer's. */
static size_t check_rows(gpuserve_tokenizer *tokenizer, const char *path)
{
    char name[2048];
    json_t *rows, *row;
    size_t i, j, n = 0;

    snprintf(name, sizeof(name), "%s/expected.json", path);
    rows = json_load_file(name, 0, NULL);
    cr_assert(rows, "%s", name);
    json_array_foreach(rows, i, row)
    {
        const json_t *want = json_object_get(row, "ids");
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct tokens tokens;
        json_t *id;

        if (json_is_true(json_object_get(row, "lower")))
            continue; /* a setting of the model directory */
        cr_assert_eq(encode(tokenizer, json_string_value(json_object_get(row, "text")),
                            json_string_value(json_object_get(row, "pair")), NULL, &tokens, &error),
                     GPUSERVE_OK, "%s", error.message);
        cr_assert_eq(tokens.n, json_array_size(want), "%s row %zu", path, i);
        json_array_foreach(want, j, id)
            cr_expect_eq(tokens.ids[j], (int32_t)json_integer_value(id), "%s row %zu", path, i);
        n++;
    }
    json_decref(rows);
    return n;
}

Test(runtime_tokenizer, directories_of_tokenizer_files_need_no_config_and_no_weights)
{
    /* The BERT format needs no class name; the others name theirs in tokenizer_config.json. */
    static const char *const names[] = { "plain", "cased", "accents",         "added",
                                         "map",   "flags", "camembert-added", "roberta-decoder" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char below[64], folder[] = "/tmp/gsv-tokenizer-XXXXXX";
        gpuserve_tokenizer *tokenizer;
        const char *path;

        snprintf(below, sizeof(below), "tokenizers/%s", names[i]);
        path = test_data(below);
        copy_tokenizer(path, folder);
        tokenizer = open_tokenizer(folder);
        cr_expect_gt(check_rows(tokenizer, path), 5, "%s", names[i]);
        gpuserve_tokenizer_close(&tokenizer);
        cr_expect_null(tokenizer);
        remove_copy(folder);
    }
}

Test(runtime_tokenizer, a_model_and_its_tokenizer_say_the_same)
{
    static const char *const names[] = { "models/bert-pairs", "models/st-xlm-roberta" };
    static const char *const texts[] = { "", "Hello world", "a b c d e f 1 2 3",
                                         "n\xC3\xA9 \xE4\xB8\xAD" };

    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
        gpuserve_tokenizer *tokenizer = open_tokenizer(test_data(names[k]));
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
        gpuserve_model *model = NULL;

        options.device = "cpu";
        cr_assert_eq(gpuserve_model_open(&model, NULL, test_data(names[k]), &options, &error),
                     GPUSERVE_OK, "%s", error.message);
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            gpuserve_span spans[CAPACITY];
            struct tokens tokens;
            int32_t ids[CAPACITY];
            char text[256], other[256];
            size_t n, size;

            cr_assert_eq(encode(tokenizer, texts[i], NULL, NULL, &tokens, &error), GPUSERVE_OK);
            cr_assert_eq(gpuserve_tokenize(model, texts[i], strlen(texts[i]), ids, spans, CAPACITY,
                                           &n, NULL, &error),
                         GPUSERVE_OK);
            cr_assert_eq(n, tokens.n);
            cr_expect_arr_eq(ids, tokens.ids, n * sizeof(*ids));
            cr_expect_arr_eq(spans, tokens.spans, n * sizeof(*spans));
            cr_assert_eq(
                gpuserve_tokenizer_decode(tokenizer, ids, n, 1, text, sizeof(text), &size, &error),
                GPUSERVE_OK, "%s", error.message);
            cr_assert_eq(gpuserve_detokenize(model, ids, n, 1, other, sizeof(other), &size, &error),
                         GPUSERVE_OK);
            cr_expect_str_eq(text, other);
            cr_assert_eq(
                gpuserve_tokenizer_token_text(tokenizer, ids[0], text, sizeof(text), &size, &error),
                GPUSERVE_OK);
            cr_assert_eq(gpuserve_token_text(model, ids[0], other, sizeof(other), &size, &error),
                         GPUSERVE_OK);
            cr_expect_str_eq(text, other);
        }
        cr_expect_gt(gpuserve_tokenizer_vocab_size(tokenizer), 10);
        gpuserve_model_close(&model);
        gpuserve_tokenizer_close(&tokenizer);
    }
}

Test(runtime_tokenizer, counts_limits_pairs_and_types)
{
    gpuserve_tokenizer *tokenizer = open_tokenizer(test_data("models/bert-pairs"));
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    gpuserve_tokenizer_input input = GPUSERVE_TOKENIZER_INPUT_INIT;
    gpuserve_tokenizer_output output = GPUSERVE_TOKENIZER_OUTPUT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct tokens tokens;
    int32_t one_id = -7;
    size_t n = 0;

    cr_assert_eq(encode(tokenizer, "a b c", "d e", NULL, &tokens, &error), GPUSERVE_OK);
    cr_assert_eq(tokens.n, 8); /* [CLS] a b c [SEP] d e [SEP] */
    for (size_t i = 0; i < tokens.n; i++)
        cr_expect_eq(tokens.type_ids[i], i >= 5, "token %zu", i);
    cr_expect_eq(tokens.spans[0].end, 0);
    cr_expect_eq(tokens.spans[6].begin, 2, "bytes of the second text");

    input.text = "a b c";
    input.size = 5;
    cr_expect_eq(gpuserve_tokenizer_encode(tokenizer, &input, NULL, &n, NULL, &error), GPUSERVE_OK);
    cr_expect_eq(n, 5);
    output.capacity = 1;
    output.ids = &one_id;
    n = 0;
    cr_expect_eq(gpuserve_tokenizer_encode(tokenizer, &input, &output, &n, NULL, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(n, 5);
    cr_expect_eq(one_id, -7, "unchanged on failure");

    options.max_tokens = 6;
    cr_assert_eq(encode(tokenizer, "a b c", "d e", &options, &tokens, &error), GPUSERVE_OK);
    cr_expect_eq(tokens.n, 6);
    options.truncation = GPUSERVE_TRUNCATE_STRICT;
    cr_expect_eq(encode(tokenizer, "a b c", "d e", &options, &tokens, &error),
                 GPUSERVE_E_TOO_LARGE);
    options.max_tokens = 0;
    options.no_special = 1;
    cr_assert_eq(encode(tokenizer, "a b c", NULL, &options, &tokens, &error), GPUSERVE_OK);
    cr_expect_eq(tokens.n, 3);
    gpuserve_tokenizer_close(&tokenizer);
}

static void expect(gpuserve_status got, gpuserve_status status, const char *says,
                   gpuserve_error *error)
{
    cr_expect_eq(got, status, "status %d, expected %d (%s): %s", got, status, says, error->message);
    cr_expect(strstr(error->message, says), "'%s' is not in: %s", says, error->message);
    *error = (gpuserve_error)GPUSERVE_ERROR_INIT;
}

Test(runtime_tokenizer, invalid_calls_name_the_argument)
{
    gpuserve_tokenizer *tokenizer = open_tokenizer(test_data("models/bert-pairs")),
                       *none = tokenizer;
    gpuserve_tokenizer_input input = GPUSERVE_TOKENIZER_INPUT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[] = "/tmp/gsv-tokenizer-XXXXXX", text[8];
    struct tokens tokens;
    int32_t id = 1000000;
    size_t n;

    cr_assert(mkdtemp(folder));
    expect(gpuserve_tokenizer_open(&none, NULL, folder, &error), GPUSERVE_E_NOT_FOUND,
           "neither tokenizer.json nor vocab.txt", &error);
    cr_expect_null(none);
    rmdir(folder);
    expect(gpuserve_tokenizer_open(&none, NULL, "/nowhere/at/all", &error), GPUSERVE_E_NOT_FOUND,
           "/nowhere/at/all", &error);
    expect(gpuserve_tokenizer_open(NULL, NULL, folder, &error), GPUSERVE_E_INVALID, "`tokenizer`",
           &error);
    expect(gpuserve_tokenizer_encode(NULL, &input, NULL, &n, NULL, &error), GPUSERVE_E_INVALID,
           "`tokenizer` is NULL", &error);
    expect(gpuserve_tokenizer_encode(tokenizer, NULL, NULL, &n, NULL, &error), GPUSERVE_E_INVALID,
           "`input` is NULL", &error);
    expect(gpuserve_tokenizer_encode(tokenizer, &input, NULL, NULL, NULL, &error),
           GPUSERVE_E_INVALID, "`n_tokens`", &error);
    input.size = 1;
    expect(gpuserve_tokenizer_encode(tokenizer, &input, NULL, &n, NULL, &error), GPUSERVE_E_INVALID,
           "`text` is NULL", &error);
    input.text = "x";
    input.pair_size = 1;
    expect(gpuserve_tokenizer_encode(tokenizer, &input, NULL, &n, NULL, &error), GPUSERVE_E_INVALID,
           "`pair` is NULL", &error);
    expect(encode(tokenizer, "ab\xFF", NULL, NULL, &tokens, &error), GPUSERVE_E_INVALID, "byte 2",
           &error);
    expect(gpuserve_tokenizer_decode(tokenizer, &id, 1, 0, text, sizeof(text), &n, &error),
           GPUSERVE_E_INVALID, "1000000", &error);
    expect(gpuserve_tokenizer_decode(tokenizer, NULL, 1, 0, text, sizeof(text), &n, &error),
           GPUSERVE_E_INVALID, "`ids` is NULL", &error);
    expect(gpuserve_tokenizer_token_text(tokenizer, id, text, sizeof(text), &n, &error),
           GPUSERVE_E_INVALID, "1000000", &error);
    cr_expect_eq(gpuserve_tokenizer_vocab_size(NULL), 0);
    gpuserve_tokenizer_close(NULL);
    gpuserve_tokenizer_close(&tokenizer);
    gpuserve_tokenizer_close(&tokenizer);
}

static void *many_texts(void *given)
{
    for (int i = 0; i < 500; i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct tokens tokens;

        cr_assert_eq(encode(given, "a b c", "d e", NULL, &tokens, &error), GPUSERVE_OK);
        cr_assert_eq(tokens.n, 8);
    }
    return NULL;
}

Test(runtime_tokenizer, threads_share_a_tokenizer_and_a_child_process_does_not)
{
    gpuserve_tokenizer *tokenizer = open_tokenizer(test_data("models/bert-pairs"));
    pthread_t threads[4];
    int status = 0;
    pid_t child;

    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, many_texts, tokenizer), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    child = fork();
    if (child == 0) {
        gpuserve_tokenizer_input input = GPUSERVE_TOKENIZER_INPUT_INIT;
        size_t n;

        _exit(gpuserve_tokenizer_encode(tokenizer, &input, NULL, &n, NULL, NULL));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(WEXITSTATUS(status), GPUSERVE_E_FORKED);
    gpuserve_tokenizer_close(&tokenizer);
}
