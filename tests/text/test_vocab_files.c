/*
 * test_vocab_files.c - directories with vocab.txt and older companion files, against transformers.
 *
 * Data in tests/data/tokenizers is written by tools/fixtures/make_test_tokenizers.py.
 */
#include "lib/text/tokenizer.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
    "plain", "cased", "flags", "accents", "map", "added", "decoder"
};

static struct gsv_tokenizer *open_folder(const char *path, const char *folder, bool lower)
{
    const struct gsv_tokenizer_settings settings = { folder, lower };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;
    struct gsv_dir *dir = NULL;

    cr_assert_eq(gsv_dir_open(&dir, path, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gsv_tokenizer_load(&t, dir, &settings, &error), GPUSERVE_OK, "%s", error.message);
    gsv_dir_close(&dir);
    return t;
}

static void check_row(const struct gsv_tokenizer *t, struct gsv_encoding *e, const json_t *row,
                      const char *name)
{
    const json_t *text = json_object_get(row, "text"), *pair = json_object_get(row, "pair");
    const json_t *ids = json_object_get(row, "ids");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    bool same;

    cr_assert_eq(gsv_tokenizer_encode(t, e, json_string_value(text), json_string_length(text),
                                      json_string_value(pair), json_string_length(pair), NULL,
                                      &error),
                 GPUSERVE_OK, "%s", error.message);
    same = e->n == json_array_size(ids);
    for (size_t i = 0; same && i < e->n; i++) {
        same = e->ids[i] == json_integer_value(json_array_get(ids, i));
        cr_expect_leq(e->spans[i].begin, e->spans[i].end);
        cr_expect(e->type_ids[i] || e->spans[i].end <= json_string_length(text));
    }
    cr_expect(same, "%s: \"%s\" and \"%s\"%s: %s", name, json_string_value(text),
              pair ? json_string_value(pair) : "",
              json_is_true(json_object_get(row, "lower")) ? " in lowercase" : "",
              json_dumps(ids, 0));
}

Test(vocab_files, ids_equal_transformers)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct gsv_tokenizer *as_is, *lowered;
        struct gsv_encoding e[2] = { { 0 } };
        char path[1024], expected[1100];
        const json_t *row;
        json_t *rows;
        size_t j;

        snprintf(path, sizeof(path), "%s/tokenizers/%s", TEST_DATA_DIR, names[i]);
        snprintf(expected, sizeof(expected), "%s/expected.json", path);
        rows = json_load_file(expected, 0, NULL);
        cr_assert_gt(json_array_size(rows), 40);
        as_is = open_folder(path, NULL, false);
        lowered = open_folder(path, "", true);
        json_array_foreach(rows, j, row)
        {
            const bool lower = json_is_true(json_object_get(row, "lower"));

            check_row(lower ? lowered : as_is, &e[lower], row, names[i]);
        }
        json_decref(rows);
        for (j = 0; j < 2; j++)
            gsv_encoding_reset(&e[j]);
        gsv_tokenizer_free(&as_is);
        gsv_tokenizer_free(&lowered);
    }
}

Test(vocab_files, spans_of_a_lowered_text_are_of_the_text_as_given)
{
    /* U+212A, the Kelvin sign, has 3 bytes and is lowercased to a 1-byte k. */
    static const char text[] = "HELLO \xE2\x84\xAA x";
    char path[1024];
    struct gsv_tokenizer *t;
    struct gsv_encoding e = { 0 };

    snprintf(path, sizeof(path), "%s/tokenizers/cased", TEST_DATA_DIR);
    t = open_folder(path, NULL, true);
    cr_assert_eq(gsv_tokenizer_encode(t, &e, text, strlen(text), NULL, 0, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(e.n, 5); /* [CLS] hello k x [SEP] */
    cr_expect(e.spans[1].begin == 0 && e.spans[1].end == 5);
    cr_expect(e.spans[2].begin == 6 && e.spans[2].end == 9);
    cr_expect(e.spans[3].begin == 10 && e.spans[3].end == 11);
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

/* Both texts of RoBERTa's pairs have type 0: the type does not tell which text a span is of. */
Test(vocab_files, spans_of_a_lowered_pair_are_of_their_own_texts)
{
    static const char first[] = "\xE2\x84\xAA a", second[] = "a b";
    char path[1024];
    struct gsv_tokenizer *t;
    struct gsv_encoding e = { 0 };
    size_t i = 1;

    snprintf(path, sizeof(path), "%s/models/st-xlm-roberta", TEST_DATA_DIR);
    t = open_folder(path, NULL, true);
    cr_assert_eq(
        gsv_tokenizer_encode(t, &e, first, strlen(first), second, strlen(second), NULL, NULL),
        GPUSERVE_OK);
    while (i + 1 < e.n && e.spans[i + 1].end > 0)
        i++;
    cr_expect_eq(e.spans[i].end, strlen(first)); /* of the last token of the first text */
    cr_expect_eq(e.spans[e.n - 2].end, strlen(second));
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

Test(vocab_files, a_tokenizer_is_looked_for_beside_its_transformer_first)
{
    char path[1024];
    struct gsv_tokenizer *inner, *outer;

    snprintf(path, sizeof(path), "%s/tokenizers", TEST_DATA_DIR);
    inner = open_folder(path, "map", false);
    cr_expect_gt(gsv_tokenizer_id(inner, "<s>"), 0);
    gsv_tokenizer_free(&inner);
    snprintf(path, sizeof(path), "%s/tokenizers/plain", TEST_DATA_DIR);
    outer = open_folder(path, "0_Transformer", false); /* has no vocab.txt */
    cr_expect_gt(gsv_tokenizer_vocab_size(outer), 100);
    gsv_tokenizer_free(&outer);
}

/* Neither in the subfolder nor in its parent. */
static void expect_none(const char *path, const char *folder)
{
    const struct gsv_tokenizer_settings settings = { folder, false };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;
    struct gsv_dir *dir = NULL;

    cr_assert_eq(gsv_dir_open(&dir, path, &error), GPUSERVE_OK);
    cr_expect_eq(gsv_tokenizer_load(&t, dir, &settings, &error), GPUSERVE_E_NOT_FOUND);
    cr_expect(strstr(error.message, "neither tokenizer.json nor vocab.txt, vocab.json"), "%s",
              error.message);
    cr_expect_null(t);
    gsv_dir_close(&dir);
}

#define BERTS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

Test(vocab_files, entries_without_an_id_are_refused)
{
    static const struct {
        const char *vocab, *added, *says;
    } cases[] = {
        { BERTS, "{\"<a>\": \"x\"}", "the added token \"<a>\" has no id" },
        { BERTS, "{\"<a>\": null}", "the added token \"<a>\" has no id" },
        { BERTS, "[1]", "" },
        { "[PAD]\n[UNK]\n[SEP]\n[MASK]\n", "{}", "token \"[CLS]\" is not in the vocabulary" },
        { "[PAD]\n[CLS]\n[SEP]\n[MASK]\n", "{}", "token \"[UNK]\" is not in the vocabulary" },
    };
    char folder[] = "/tmp/gpuserve-vocab-XXXXXX", path[256], vocab[256];

    cr_assert(mkdtemp(folder));
    snprintf(vocab, sizeof(vocab), "%s/vocab.txt", folder);
    snprintf(path, sizeof(path), "%s/added_tokens.json", folder);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_tokenizer *t = NULL;
        struct gsv_dir *dir = NULL;
        FILE *file = fopen(vocab, "w");

        fputs(cases[i].vocab, file);
        fclose(file);
        file = fopen(path, "w");
        fputs(cases[i].added, file);
        fclose(file);
        cr_assert_eq(gsv_dir_open(&dir, folder, &error), GPUSERVE_OK);
        cr_expect_eq(gsv_tokenizer_load(&t, dir, NULL, &error), GPUSERVE_E_FORMAT, "%zu", i);
        cr_expect(strstr(error.message, cases[i].says), "%zu: %s", i, error.message);
        cr_expect_null(t);
        gsv_dir_close(&dir);
    }
    unlink(path);
    unlink(vocab);
    expect_none(folder, NULL);
    expect_none(folder, "none");
    rmdir(folder);
}
