/*
 * test_tokenizer.c - loading, rejected calls, limits, spans and queries of tokenizers.
 *
 * Equality of ids with Hugging Face tokenizers is tested by oracle.py and differential.py.
 */
#include "tests/text/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char bert[] = "{\"type\": \"BertNormalizer\", \"clean_text\": true, "
                           "\"handle_chinese_chars\": true, \"strip_accents\": null, "
                           "\"lowercase\": true}";
static const char bert_words[] = "{\"type\": \"BertPreTokenizer\"}";
static const char bert_ends[] =
    "{\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 2], \"cls\": [\"[CLS]\", 1]}";

static gpuserve_status load_json(struct gsv_tokenizer **tokenizer, char *json,
                                 gpuserve_error *error)
{
    const gpuserve_status status =
        load_text(tokenizer, "tokenizer.json", json, strlen(json), error);

    free(json);
    return status;
}

static struct gsv_tokenizer *small(void)
{
    struct gsv_tokenizer *t = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(load_json(&t, tokenizer_json(NULL, bert, bert_words, bert_ends), &error),
                 GPUSERVE_OK, "%s", error.message);
    return t;
}

/* A complete added token except for `normalized`. */
#define ADDED(content, normalized)                                                          \
    "[{\"id\": 0, \"content\": \"" content "\", \"single_word\": false, \"lstrip\": false," \
    " \"rstrip\": false, \"normalized\": " normalized ", \"special\": false}]"

Test(tokenizer, the_files_own_truncation_is_not_heeded)
{
    struct gsv_tokenizer *t = small();

    cr_expect_str_eq(ids_of(t, "UNAFFABLE. aab caf\xC3\xA9"), "1 3 4 5 10 9 8 0 2");
    cr_expect_str_eq(ids_of(t, ""), "1 2");
    cr_expect_str_eq(gsv_tokenizer_kind(t), "WordPiece");
    cr_expect_eq(gsv_tokenizer_vocab_size(t), 13);
    cr_expect_eq(gsv_tokenizer_special_count(t, false), 2);
    cr_expect_eq(gsv_tokenizer_special_count(t, true), 3);
    cr_expect_eq(gsv_tokenizer_id(t, "##able"), 5);
    cr_expect_eq(gsv_tokenizer_id(t, "able"), -1);
    cr_expect_gt(gsv_tokenizer_bytes(t), 1000);
    gsv_tokenizer_free(&t);
    cr_expect_null(t);
    gsv_tokenizer_free(&t);
}

Test(tokenizer, what_is_not_known_is_refused_by_name)
{
    static const struct {
        const char *added, *normalizer, *words, *ends, *named;
        gpuserve_status status;
    } cases[] = {
        { NULL, "{\"type\": \"Precompiled\"}", NULL, NULL, "\"precompiled_charsmap\"",
          GPUSERVE_E_FORMAT },
        { NULL, "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Odd\"}]}", NULL, NULL,
          "\"Odd\"", GPUSERVE_E_UNSUPPORTED },
        { NULL, "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"\"}", NULL,
          NULL, "\"Replace\"", GPUSERVE_E_UNSUPPORTED },
        { NULL, "3", NULL, NULL, "normalizer", GPUSERVE_E_UNSUPPORTED },
        { NULL, NULL, "{\"type\": \"CharDelimiterSplit\"}", NULL, "\"CharDelimiterSplit\"",
          GPUSERVE_E_UNSUPPORTED },
        { NULL, NULL, NULL, "{\"type\": \"Sequence\"}", "\"processors\"", GPUSERVE_E_FORMAT },
        { NULL, NULL, NULL,
          "{\"type\": \"TemplateProcessing\", \"single\": [], \"pair\": [], \"special_tokens\": "
          "{}}",
          "single", GPUSERVE_E_UNSUPPORTED },
        { ADDED("\\u0301", "true"), bert, NULL, NULL, "is empty after normalization",
          GPUSERVE_E_UNSUPPORTED },
        { "[{\"id\": 1, \"single_word\": false, \"lstrip\": false, \"rstrip\": false,"
          " \"normalized\": false, \"special\": false}]",
          NULL, NULL, NULL, "content", GPUSERVE_E_FORMAT },
        { ADDED("x", "1"), NULL, NULL, NULL, "\"normalized\" is not", GPUSERVE_E_FORMAT },
        { "[{\"content\": \"x\"}]", NULL, NULL, NULL, "\"id\" is missing", GPUSERVE_E_FORMAT },
        { "null", NULL, NULL, NULL, "added_tokens", GPUSERVE_E_FORMAT },
        { NULL, "{\"type\": \"BertNormalizer\", \"clean_text\": true}", NULL, NULL,
          "\"handle_chinese_chars\" is missing", GPUSERVE_E_FORMAT },
        { NULL, NULL, NULL,
          "{\"type\": \"RobertaProcessing\", \"sep\": [\"a\", 1], \"cls\": [\"b\", 2]}",
          "\"trim_offsets\"", GPUSERVE_E_UNSUPPORTED },
        { "{}", NULL, NULL, NULL, "added_tokens", GPUSERVE_E_FORMAT },
        { NULL, NULL, NULL, "{\"type\": \"BertProcessing\"}", "\"cls\"", GPUSERVE_E_FORMAT },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_tokenizer *t = NULL;

        cr_expect_eq(load_json(&t,
                               tokenizer_json(cases[i].added, cases[i].normalizer, cases[i].words,
                                              cases[i].ends),
                               &error),
                     cases[i].status, "case %zu: %s", i, error.message);
        cr_expect(strstr(error.message, cases[i].named), "case %zu: %s", i, error.message);
        cr_expect(strstr(error.message, "tokenizer.json"), "case %zu: %s", i, error.message);
        cr_expect_null(t);
    }
}

Test(tokenizer, models_of_other_kinds_are_refused)
{
    static const char *const texts[][2] = {
        { "{\"model\": {\"type\": \"WordNone\", \"vocab\": {}}}", "WordNone" },
        { "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {}}}", "\"unk_token\"" },
        { "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"[UNK]\", \"vocab\": {\"a\": 0}}}",
          "token \"[UNK]\" is not in the vocabulary" },
        { "{\"model\": {\"vocab\": {}}}", "type" },
        { "{}", "model" },
        { "{\"model\": {\"type\": \"WordPiece\", \"continuing_subword_prefix\": \"##\","
          " \"unk_token\": \"[UNK]\", \"max_input_chars_per_word\": 9, \"vocab\": {\"a\": 0}}}",
          "token \"[UNK]\" is not in the vocabulary" },
        { "{\"model\": 1, \"model\": 2}", "duplicate" },
        { "{\"model\": 1} x", "end of the file" },
        { "{\"model\": 1, \"extra\": 1}", "\"extra\"" },
        { "{\"version\": \"2.0\", \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"a\","
          " \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 9,"
          " \"vocab\": {\"a\": 0}}}",
          "not \"1.0\"" },
        { "\xFF", "UTF-8 at byte 0" },
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_tokenizer *t = NULL;

        cr_expect_neq(load_text(&t, "tokenizer.json", texts[i][0], strlen(texts[i][0]), &error),
                      GPUSERVE_OK);
        cr_expect(strstr(error.message, texts[i][1]), "case %zu: %s", i, error.message);
        cr_expect_null(t);
    }
}

Test(tokenizer, a_text_that_is_not_utf8_is_refused_with_the_byte)
{
    struct gsv_tokenizer *t = small();
    struct gsv_encoding e = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_expect_eq(gsv_tokenizer_encode(t, &e, "ab\xC3(", 4, NULL, 0, NULL, &error),
                 GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "byte 2"), "%s", error.message);
    cr_expect_eq(gsv_tokenizer_encode(t, &e, "ab", 2, "abc\xFF", 4, NULL, &error),
                 GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "second text"), "%s", error.message);
    cr_expect(strstr(error.message, "byte 3"), "%s", error.message);
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

/* Encoding buffers may be used with several tokenizers; cached words are not shared. */
Test(tokenizer, words_of_one_tokenizer_are_not_anothers)
{
    char *json = tokenizer_json(NULL, bert, bert_words, bert_ends);
    struct gsv_tokenizer *first = small(), *second = NULL;
    struct gsv_encoding e = { 0 };

    memcpy(strstr(json, "\"a\": 6"), "\"z\": 6", 6); /* "a" is unknown to the second tokenizer */
    cr_assert_eq(load_json(&second, json, NULL), GPUSERVE_OK);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(gsv_tokenizer_encode(i % 2 ? second : first, &e, "a", 1, NULL, 0, NULL, NULL),
                     GPUSERVE_OK);
        cr_expect_eq(e.n, 3);
        cr_expect_eq(e.ids[1], i % 2 ? 0 : 6, "%d", e.ids[1]);
    }
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&first);
    gsv_tokenizer_free(&second);
}

/* Positions in a text are 32 bits. The text is rejected without being read. */
Test(tokenizer, a_text_of_four_gigabytes_is_refused)
{
    struct gsv_tokenizer *t = small();
    struct gsv_encoding e = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_expect_eq(gsv_tokenizer_encode(t, &e, "a", (size_t)UINT32_MAX + 1, NULL, 0, NULL, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect(strstr(error.message, "4294967296 bytes"), "%s", error.message);
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

/* In strict mode the tokens of a text that is too long are counted to its end, alone and in a
 * pair. */
static void expect_length(const struct gsv_tokenizer *t, const char *pair, const char *message)
{
    const struct gsv_encode_options options = { .max_tokens = 5,
                                                .truncation = GPUSERVE_TRUNCATE_STRICT };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_encoding e = { 0 };
    char text[40000];

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 2 ? ' ' : 'a';
    cr_expect_eq(gsv_tokenizer_encode(t, &e, text, sizeof(text), pair, pair ? strlen(pair) : 0,
                                      &options, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_str_eq(error.message, message);
    gsv_encoding_reset(&e);
}

Test(tokenizer, limits_cut_refuse_or_are_too_small)
{
    struct gsv_tokenizer *t = small();
    struct gsv_encoding e = { 0 };
    struct gsv_encode_options options = { .max_tokens = 5 };

    cr_assert_eq(gsv_tokenizer_encode(t, &e, "a aa a . aab", 12, NULL, 0, &options, NULL),
                 GPUSERVE_OK);
    cr_expect(e.n == 5 && e.truncated && e.ids[1] == 6 && e.ids[2] == 9 && e.ids[3] == 6);
    options.truncation = GPUSERVE_TRUNCATE_LEFT;
    cr_assert_eq(gsv_tokenizer_encode(t, &e, "a aa a . aab", 12, NULL, 0, &options, NULL),
                 GPUSERVE_OK);
    cr_expect(e.n == 5 && e.truncated && e.ids[1] == 10 && e.ids[2] == 9 && e.ids[3] == 8);
    cr_expect(e.spans[3].begin == 11 && e.spans[3].end == 12);
    options.truncation = GPUSERVE_TRUNCATE_STRICT;
    cr_expect_eq(gsv_tokenizer_encode(t, &e, "a aa a .", 8, NULL, 0, &options, NULL),
                 GPUSERVE_E_TOO_LARGE);
    expect_length(t, NULL, "the text has 20002 tokens (2 of them special), the limit is 5");
    expect_length(t, "a aa",
                  "the pair of texts has 20005 tokens (3 of them special), the limit is 5");
    cr_expect_eq(gsv_tokenizer_encode(t, &e, "a aa a", 6, NULL, 0, &options, NULL), GPUSERVE_OK);
    cr_expect(!e.truncated);
    options.max_tokens = 1;
    cr_expect_eq(gsv_tokenizer_encode(t, &e, "a", 1, NULL, 0, &options, NULL), GPUSERVE_E_INVALID);
    options.no_special = true;
    cr_expect_eq(gsv_tokenizer_encode(t, &e, "a", 1, NULL, 0, &options, NULL), GPUSERVE_OK);
    cr_expect_eq(e.n, 1);
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

/* A text of ten million words truncated to 8 tokens needs no more memory than a short one. */
Test(tokenizer, a_cut_text_takes_memory_by_the_limit)
{
    static const uint32_t ends[] = { GPUSERVE_TRUNCATE_RIGHT, GPUSERVE_TRUNCATE_LEFT };
    const size_t size = 10 << 20;
    struct gsv_tokenizer *t = small();
    char *text = malloc(size);

    cr_assert(text);
    for (size_t i = 0; i < size; i++)
        text[i] = i % 2 ? ' ' : 'a';
    for (size_t i = 0; i < 2; i++) {
        const struct gsv_encode_options options = { .max_tokens = 8, .truncation = ends[i] };
        struct gsv_encoding e = { 0 };

        cr_assert_eq(gsv_tokenizer_encode(t, &e, text, size, NULL, 0, &options, NULL), GPUSERVE_OK);
        cr_expect(e.n == 8 && e.truncated);
        cr_expect_lt(e.capacity, 10000);
        cr_assert_eq(gsv_tokenizer_encode(t, &e, text, size, text, size, &options, NULL),
                     GPUSERVE_OK);
        cr_expect(e.n == 8 && e.truncated);
        cr_expect_lt(e.capacity, 20000);
        gsv_encoding_reset(&e);
    }
    free(text);
    gsv_tokenizer_free(&t);
}

/* One encoding, two tokenizers alternating: the word cache is never used for the other
 * tokenizer. */
Test(tokenizer, an_encoding_serves_several_tokenizers)
{
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\naab\n";
    struct gsv_tokenizer *one = small(), *other = NULL;
    struct gsv_encoding e = { 0 };

    cr_assert_eq(load_text(&other, "vocab.txt", vocab, sizeof(vocab) - 1, NULL), GPUSERVE_OK);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(gsv_tokenizer_encode(one, &e, "aab", 3, NULL, 0, NULL, NULL), GPUSERVE_OK);
        cr_expect(e.n == 4 && e.ids[1] == 9 && e.ids[2] == 8);
        cr_assert_eq(gsv_tokenizer_encode(other, &e, "aab", 3, NULL, 0, NULL, NULL), GPUSERVE_OK);
        cr_expect(e.n == 3 && e.ids[1] == 5);
    }
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&one);
    gsv_tokenizer_free(&other);
}

Test(tokenizer, decoding_joins_and_cleans)
{
    static const int32_t ids[] = { 1, 3, 4, 5, 10, 2 };
    struct gsv_tokenizer *t = small();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char text[64];
    size_t size = 0;

    cr_expect_eq(gsv_tokenizer_decode(t, ids, 6, true, text, sizeof(text), &size, &error),
                 GPUSERVE_OK);
    cr_expect_str_eq(text, "[CLS] unaffable. [SEP]"); /* the added tokens are not marked special */
    cr_expect_eq(size, strlen(text) + 1);
    cr_expect_eq(gsv_tokenizer_decode(t, ids, 6, true, NULL, 0, &size, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(gsv_tokenizer_decode(t, ids, 6, true, text, size - 1, &size, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(gsv_tokenizer_decode(t, ids, 6, true, NULL, 64, &size, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(gsv_tokenizer_decode(t, (const int32_t[]){ 13 }, 1, true, text, 64, &size, &error),
                 GPUSERVE_E_INVALID);
    cr_expect_eq(gsv_tokenizer_decode(t, (const int32_t[]){ -1 }, 1, true, text, 64, &size, &error),
                 GPUSERVE_E_INVALID);
    gsv_tokenizer_free(&t);
}

static void add_to_sum(void *state, const void *bytes, size_t size)
{
    uint64_t *sum = state;

    for (size_t i = 0; i < size; i++)
        *sum = (*sum ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
}

Test(tokenizer, the_digest_tells_tokenizers_apart)
{
    const char *const lower = "{\"type\": \"Lowercase\"}";
    char *const texts[] = {
        tokenizer_json(NULL, bert, bert_words, bert_ends),
        tokenizer_json(NULL, lower, bert_words, bert_ends),
        tokenizer_json(NULL, bert, NULL, bert_ends),
        tokenizer_json(NULL, bert, bert_words, NULL),
        tokenizer_json(ADDED("a", "false"), bert, bert_words, bert_ends),
        tokenizer_json(ADDED("a", "true"), bert, bert_words, bert_ends),
        tokenizer_json(NULL, bert, bert_words, bert_ends),
    };
    enum { N = sizeof(texts) / sizeof(texts[0]) };
    uint64_t sums[N] = { 0 };

    for (size_t i = 0; i < N; i++) {
        struct gsv_tokenizer *t = NULL;

        cr_assert_eq(load_json(&t, texts[i], NULL), GPUSERVE_OK);
        gsv_tokenizer_digest(t, add_to_sum, &sums[i]);
        gsv_tokenizer_free(&t);
        for (size_t k = 0; k < i; k++)
            cr_expect_eq(sums[k] == sums[i], i == N - 1 && k == 0, "%zu and %zu", k, i);
    }
}
