/*
 * test_bpe.c - byte pair encoding: equals its definition, within the expected time.
 */
#include "lib/text/models/bpe.h"
#include "lib/text/scratch.h"
#include "tests/text/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MERGES = 200, MAX_WORD = 1000 };

/* A random model over a few letters, and its merges in order of creation. */
struct made {
    struct gsv_vocab vocab;
    struct gsv_bpe model;
    struct {
        int32_t left, right, id;
    } merges[MAX_MERGES]; /* [n] by rank */
    size_t n;
};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void text_of(const struct made *made, int32_t id, char *text)
{
    size_t size = 0;
    const char *at = gsv_vocab_text(&made->vocab, id, &size);

    memcpy(text, at, size);
    text[size] = '\0';
}

/* Letters are the first tokens; each merge joins two existing tokens; ranks are random. */
static void make_random(struct made *made, uint32_t *state, const char *letters, size_t n_merges)
{
    char lines[4] = { 0 }, text[MAX_WORD];

    *made = (struct made){ .model = { .unknown = -1 } };
    made->model.prefix = strdup("");
    made->model.suffix = strdup("");
    for (size_t i = 0; letters[i]; i++) {
        snprintf(lines, sizeof(lines), "%c", letters[i]);
        cr_assert_eq(gsv_vocab_append(&made->vocab, lines, 1, (uint32_t)i, "made", NULL),
                     GPUSERVE_OK);
    }
    for (size_t i = 0; i < n_merges; i++) {
        const int32_t left = (int32_t)(next_random(state) % made->vocab.n);
        const int32_t right = (int32_t)(next_random(state) % made->vocab.n);

        text_of(made, left, text);
        text_of(made, right, text + strlen(text));
        if (strlen(text) > 40 || gsv_vocab_id(&made->vocab, text, strlen(text)) >= 0)
            continue;
        cr_assert_eq(gsv_vocab_append(&made->vocab, text, strlen(text), (uint32_t)made->vocab.n,
                                      "made", NULL),
                     GPUSERVE_OK);
        made->merges[made->n].left = left;
        made->merges[made->n].right = right;
        made->merges[made->n++].id = (int32_t)made->vocab.n - 1;
    }
    for (size_t i = made->n; i > 1; i--) { /* shuffles the ranks */
        const size_t k = next_random(state) % i;
        const int32_t all[3] = { made->merges[i - 1].left, made->merges[i - 1].right,
                                 made->merges[i - 1].id };

        if (next_random(state) % 2)
            continue;
        made->merges[i - 1] = made->merges[k];
        made->merges[k].left = all[0];
        made->merges[k].right = all[1];
        made->merges[k].id = all[2];
    }
    made->vocab.n_model = made->vocab.n;
    for (size_t i = 0; i < made->n; i++)
        cr_assert(gsv_bpe_add_merge(&made->model, made->merges[i].left, made->merges[i].right,
                                    made->merges[i].id, (uint32_t)i));
    cr_assert_eq(gsv_bpe_build(&made->model, &made->vocab, false, "made", NULL), GPUSERVE_OK);
}

static void reset(struct made *made)
{
    gsv_bpe_reset(&made->model);
    gsv_vocab_reset(&made->vocab);
}

static size_t rank_of(const struct made *made, int32_t left, int32_t right)
{
    for (size_t rank = 0; rank < made->n; rank++)
        if (made->merges[rank].left == left && made->merges[rank].right == right)
            return rank;
    return SIZE_MAX;
}

/* Reference: merges the pair of lowest rank, the leftmost first, until none is left. Returns the
 * number of ids. */
static size_t split_slowly(const struct made *made, const char *word, int32_t *ids)
{
    size_t n = 0;

    for (; word[n]; n++)
        ids[n] = gsv_vocab_id(&made->vocab, word + n, 1);
    for (;;) {
        size_t best = SIZE_MAX, at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            const size_t rank = rank_of(made, ids[i], ids[i + 1]);

            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == SIZE_MAX)
            return n;
        ids[at] = made->merges[best].id;
        n--;
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 1) * sizeof(*ids));
    }
}

static void expect_as_defined(const struct made *made, const char *word, struct gsv_bpe_work *work,
                              size_t *n_long)
{
    static struct gsv_piece pieces[MAX_WORD];
    static int32_t want[MAX_WORD];
    const size_t n = split_slowly(made, word, want), size = strlen(word);
    uint64_t steps = 0;
    size_t end = 0;

    cr_assert_eq(gsv_bpe_split(&made->model, word, size, work, pieces, &steps), (ptrdiff_t)n, "%s",
                 word);
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;

        gsv_vocab_text(&made->vocab, want[i], &length);
        end += length;
        cr_assert_eq(pieces[i].id, want[i], "%s, piece %zu", word, i);
        cr_assert_eq(pieces[i].end, end, "%s, piece %zu", word, i);
    }
    *n_long += work->merged != NULL;
}

Test(bpe, both_ways_agree_with_the_definition)
{
    static const char *const letters[] = { "a", "ab", "abcd", "abcdefghijklmnopqrstuvwxyz" };
    uint32_t state = 11;
    size_t n_long = 0;

    for (size_t round = 0; round < 400; round++) {
        struct gsv_bpe_work work = { 0 };
        struct made made;

        make_random(&made, &state, letters[round % 4], 1 + next_random(&state) % MAX_MERGES);
        for (size_t i = 0; i < 20; i++) {
            const size_t n = 1 + next_random(&state) % (i % 2 ? 20 : 300);
            char word[MAX_WORD];

            for (size_t k = 0; k < n; k++)
                word[k] = letters[round % 4][next_random(&state) % strlen(letters[round % 4])];
            word[n] = '\0';
            expect_as_defined(&made, word, &work, &n_long);
        }
        gsv_bpe_work_reset(&work);
        reset(&made);
    }
    cr_expect_gt(n_long, 1000, "long words were too seldom long: %zu", n_long);
}

/* Tokens are "yz", "xyz", ... up to the alphabet: the unfinished part at the end of a window is
 * long, and none of its tokens is final. */
Test(bpe, windows_begin_before_what_is_not_done)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    struct gsv_bpe_work work = { 0 };
    struct made made = { .model = { .unknown = -1 } };
    size_t n_long = 0;

    made.model.prefix = strdup("");
    made.model.suffix = strdup("");
    for (uint32_t i = 0; i < 26; i++)
        cr_assert_eq(gsv_vocab_append(&made.vocab, &letters[i], 1, i, "made", NULL), GPUSERVE_OK);
    for (int i = 24; i >= 0; i--) {
        const int32_t id = (int32_t)made.vocab.n, right = i == 24 ? 25 : id - 1;

        cr_assert_eq(gsv_vocab_append(&made.vocab, &letters[i], (size_t)(26 - i), (uint32_t)id,
                                      "made", NULL),
                     GPUSERVE_OK);
        made.merges[made.n].left = i;
        made.merges[made.n].right = right;
        made.merges[made.n].id = id;
        cr_assert(gsv_bpe_add_merge(&made.model, i, right, id, (uint32_t)made.n++));
    }
    made.vocab.n_model = made.vocab.n;
    cr_assert_eq(gsv_bpe_build(&made.model, &made.vocab, false, "made", NULL), GPUSERVE_OK);
    memset(made.model.joined, 0xFF, ((size_t)1 << GSV_BPE_JOINED_BITS) / 8); /* one chunk */
    for (size_t begin = 0; begin < 26; begin++) {
        char word[MAX_WORD];

        for (size_t i = 0; i + 1 < sizeof(word); i++)
            word[i] = letters[(begin + i) % 26];
        word[sizeof(word) - 1] = '\0';
        expect_as_defined(&made, word, &work, &n_long);
    }
    cr_expect_eq(n_long, 26);
    gsv_bpe_work_reset(&work);
    reset(&made);
}

/* ------------------------------------------------------------------ work */

static uint64_t steps_of(const struct gsv_tokenizer *t, const char *text, size_t size)
{
    struct gsv_encoding e = { 0 };
    uint64_t steps;

    cr_assert_eq(gsv_tokenizer_encode(t, &e, text, size, NULL, 0, NULL, NULL), GPUSERVE_OK);
    steps = ((struct gsv_scratch *)e.scratch)->steps;
    gsv_encoding_reset(&e);
    return steps;
}

/* A single endless word costs at most O(n log n). */
Test(bpe, an_endless_word_is_no_square)
{
    static const char *const repeated[] = { "a",  "e",   "ab",  "the", " ",   "\n",          "0",
                                            "is", "...", "=-=", "'s",  "acg", "\xE5\xAD\x97" };
    static const char *const letters[] = { "0123456789", "ACGT", "etao",
                                           "abcdefghijklmnopqrstuvwxyz" };
    enum { SIZE = 1 << 18 };
    struct gsv_tokenizer *t = real_tokenizer("gpt2");
    uint32_t state = 5;
    char *text = malloc(SIZE);

    for (size_t i = 0; i < sizeof(repeated) / sizeof(repeated[0]); i++) {
        const size_t length = strlen(repeated[i]), size = SIZE - SIZE % length;

        for (size_t at = 0; at < size; at++)
            text[at] = repeated[i][at % length];
        cr_expect_leq(steps_of(t, text, size), 16 * size, "'%s' takes %llu steps of %zu bytes",
                      repeated[i], (unsigned long long)steps_of(t, text, size), size);
    }
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++) {
        for (size_t at = 0; at < SIZE; at++)
            text[at] = letters[i][next_random(&state) % strlen(letters[i])];
        cr_expect_leq(steps_of(t, text, SIZE), 8 * SIZE, "'%s' takes %llu steps of %d bytes",
                      letters[i], (unsigned long long)steps_of(t, text, SIZE), SIZE);
    }
    free(text);
    gsv_tokenizer_free(&t);
}

/* ------------------------------------------------------------------ whole tokenizers */

#define SMALL(options, words, merges)                                                         \
    "{\"pre_tokenizer\":" words ",\"model\":{\"type\":\"BPE\"," options "\"vocab\":{\"a\":0," \
    "\"b\":1,\"ab\":2,\"abb\":3,\"\\u0120\":4,\"\\u0120a\":5,\"<0x63>\":6,\"[U]\":7},"        \
    "\"merges\":" merges "}}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}"
#define LINES "[\"#version: 0.2\",\"a b\",\"ab b\",\"\\u0120 a\"]"
#define PAIRS "[[\"a\",\"b\"],[\"ab\",\"b\"],[\"\\u0120\",\"a\"]]"

Test(bpe, options_of_a_file)
{
    static const struct {
        const char *json, *text, *ids;
    } cases[] = {
        { SMALL("", "null", LINES), "abbab", "3 2" },
        { SMALL("", "null", PAIRS), "abbab", "3 2" },
        { SMALL("\"unk_token\":null,", "null", PAIRS), "acccb",
          "2" }, /* unknown, without unk_token */
        { SMALL("\"unk_token\":\"[U]\",", "null", PAIRS), "acccb", "0 7 7 7 1" },
        { SMALL("\"unk_token\":\"[U]\",\"fuse_unk\":true,", "null", PAIRS), "acccb", "0 7 1" },
        { SMALL("\"byte_fallback\":true,", "null", PAIRS), "acb", "0 6 1" },
        { SMALL("\"unk_token\":\"[U]\",\"byte_fallback\":true,", "null", PAIRS), "dcb", "6 7 1" },
        { SMALL("", "null", "[]"), "abb", "0 1 1" },
        { SMALL("\"ignore_merges\":true,", "null", "[]"), "abb", "3" },
        { SMALL("\"ignore_merges\":true,", "null", "[]"), "abba", "0 1 1 0" },
        { SMALL("\"unk_token\":\"[U]\",", BYTES, PAIRS), "ab ab", "2 4 2" },
        { SMALL("\"unk_token\":\"[U]\",", BYTES, PAIRS), "a\xC3\xA9", "0 7 7" },
        { SMALL("\"unk_token\":\"[U]\",\"ignore_merges\":true,", BYTES, "[]"), "ab a", "2 5" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_tokenizer *t = NULL;

        cr_assert_eq(load_text(&t, "tokenizer.json", cases[i].json, strlen(cases[i].json), &error),
                     GPUSERVE_OK, "%zu: %s", i, error.message);
        cr_expect_str_eq(ids_of(t, cases[i].text), cases[i].ids, "%zu: %s", i,
                         ids_of(t, cases[i].text));
        cr_expect_str_eq(gsv_tokenizer_kind(t), "BPE");
        cr_expect_gt(gsv_tokenizer_bytes(t), 1000);
        gsv_tokenizer_free(&t);
    }
}

/* The first token after left truncation keeps its leading space in the span, as in `tokenizers`. */
Test(bpe, trimmed_spans_where_the_left_end_is_cut)
{
    static const char json[] =
        SMALL("\"unk_token\":\"[U]\",",
              BYTES ",\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                    "\"trim_offsets\":true}",
              PAIRS);
    const struct gsv_encode_options options = { .max_tokens = 2,
                                                .truncation = GPUSERVE_TRUNCATE_LEFT };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_encoding e = { 0 };
    struct gsv_tokenizer *t = NULL;

    cr_assert_eq(load_text(&t, "tokenizer.json", json, strlen(json), &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_eq(gsv_tokenizer_encode(t, &e, "a a a", 5, NULL, 0, NULL, &error), GPUSERVE_OK);
    cr_assert_eq(e.n, 3);
    cr_expect_eq(e.spans[1].begin, 2);
    cr_expect_eq(e.spans[2].begin, 4);
    cr_assert_eq(gsv_tokenizer_encode(t, &e, "a a a", 5, NULL, 0, &options, &error), GPUSERVE_OK);
    cr_assert_eq(e.n, 2);
    cr_expect_eq(e.spans[0].begin, 1);
    cr_expect_eq(e.spans[0].end, 3);
    cr_expect_eq(e.spans[1].begin, 4);
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

struct sum {
    uint64_t bytes;
};

static void add_bytes(void *state, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    struct sum *sum = state;

    for (size_t i = 0; i < size; i++)
        sum->bytes = (sum->bytes ^ p[i]) * 0x100000001B3u;
}

/* Everything that determines ids is part of the digest. */
Test(bpe, whatever_differs_changes_the_digest)
{
    static const char *const files[] = {
        SMALL("", "null", PAIRS),
        SMALL("\"unk_token\":\"[U]\",", "null", PAIRS),
        SMALL("\"fuse_unk\":true,", "null", PAIRS),
        SMALL("\"byte_fallback\":true,", "null", PAIRS),
        SMALL("\"ignore_merges\":true,", "null", PAIRS),
        SMALL("\"continuing_subword_prefix\":\"b\",", "null", "[]"),
        SMALL("\"end_of_word_suffix\":\"b\",", "null", "[]"),
        SMALL("", "null", "[[\"ab\",\"b\"],[\"a\",\"b\"],[\"\\u0120\",\"a\"]]"),
        SMALL("", "null", "[[\"a\",\"b\"],[\"ab\",\"b\"]]"),
        SMALL("\"unk_token\":\"[U]\",", BYTES, PAIRS),
        SMALL("\"unk_token\":\"[U]\",",
              "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true}", PAIRS),
        SMALL("\"unk_token\":\"[U]\",",
              "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
              "\"use_regex\":false}",
              PAIRS),
        SMALL("", "{\"type\":\"Digits\",\"individual_digits\":true}", PAIRS),
        SMALL("", "{\"type\":\"Digits\",\"individual_digits\":false}", PAIRS),
        SMALL("",
              "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\","
              "\"invert\":false}",
              PAIRS),
        SMALL("",
              "{\"type\":\"Split\",\"pattern\":{\"String\":\"b\"},\"behavior\":\"Isolated\","
              "\"invert\":false}",
              PAIRS),
        SMALL("",
              "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\","
              "\"invert\":true}",
              PAIRS),
        SMALL("",
              "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}\"},\"behavior\":"
              "\"Isolated\",\"invert\":false}",
              PAIRS),
    };
    enum { N = sizeof(files) / sizeof(files[0]) };
    struct sum sums[N];

    for (size_t i = 0; i < N; i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_tokenizer *t = NULL;

        cr_assert_eq(load_text(&t, "tokenizer.json", files[i], strlen(files[i]), &error),
                     GPUSERVE_OK, "%zu: %s", i, error.message);
        sums[i] = (struct sum){ 0xCBF29CE484222325u };
        gsv_tokenizer_digest(t, add_bytes, &sums[i]);
        for (size_t k = 0; k < i; k++)
            cr_expect_neq(sums[i].bytes, sums[k].bytes, "%zu and %zu", i, k);
        gsv_tokenizer_free(&t);
    }
}
