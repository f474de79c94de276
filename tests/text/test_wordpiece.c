/*
 * test_wordpiece.c - WordPiece by one linear trie walk equals greedy longest match first.
 */
#include "lib/text/models/trie.h"
#include "lib/text/models/wordpiece.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static size_t random_word(uint32_t *state, const char *letters, size_t longest, char *word)
{
    const size_t n = 1 + next_random(state) % longest;

    for (size_t i = 0; i < n; i++)
        word[i] = letters[next_random(state) % strlen(letters)];
    word[n] = '\0';
    return n;
}

/* Reference: longest matching token first; 0 pieces if none matches. */
static size_t split_slowly(const struct gsv_vocab *vocab, const char *word, size_t size,
                           struct gsv_piece *pieces)
{
    size_t n = 0;

    for (size_t begin = 0; begin < size;) {
        char tried[128];
        size_t end = size;
        int32_t id = -1;

        for (; end > begin; end--) {
            const int length = snprintf(tried, sizeof(tried), "%s%.*s", begin ? "##" : "",
                                        (int)(end - begin), word + begin);

            id = gsv_vocab_id(vocab, tried, (size_t)length);
            if (id >= 0)
                break;
        }
        if (id < 0)
            return 0;
        pieces[n++] = (struct gsv_piece){ id, (uint32_t)end };
        begin = end;
    }
    return n;
}

static void random_vocab(struct gsv_vocab *vocab, uint32_t *state, const char *letters, size_t n)
{
    char lines[8192] = "[UNK]\n", word[16];
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (size_t i = 0; i < n; i++) {
        random_word(state, letters, 6, word);
        strcat(lines, next_random(state) % 2 ? "##" : "");
        strcat(lines, word);
        strcat(lines, "\n");
    }
    cr_assert_eq(gsv_vocab_read_lines(vocab, lines, strlen(lines), "random", &error), GPUSERVE_OK);
}

Test(wordpiece, the_walk_agrees_with_the_definition)
{
    uint32_t state = 7;
    size_t known = 0;

    for (size_t round = 0; round < 300; round++) {
        struct gsv_wordpiece model = { .max_chars = 100 };
        struct gsv_vocab vocab = { 0 };

        random_vocab(&vocab, &state, round % 2 ? "ab" : "abcd#", 10 + round);
        model.prefix = strdup("##");
        cr_assert_eq(gsv_wordpiece_build(&model, &vocab, "random", NULL), GPUSERVE_OK);
        for (size_t i = 0; i < 200; i++) {
            struct gsv_piece want[64], got[64];
            char word[64];
            const size_t size = random_word(&state, round % 2 ? "ab" : "abcd#", 30, word);
            size_t n = split_slowly(&vocab, word, size, want);
            uint64_t steps = 0;

            known += n > 0;
            if (n == 0)
                want[n++] = (struct gsv_piece){ 0, (uint32_t)size };
            cr_assert_eq(gsv_wordpiece_split(&model, word, size, size, got, &steps), n, "%s", word);
            cr_assert_eq(memcmp(got, want, n * sizeof(*got)), 0, "%s", word);
            cr_assert_leq(steps, 4 * size, "%s: %llu steps", word, (unsigned long long)steps);
        }
        gsv_wordpiece_reset(&model);
        gsv_vocab_reset(&vocab);
    }
    cr_expect_gt(known, 1000, "the random words are too seldom known: %zu", known);
}

/* With this vocabulary, greedy matching would need quadratic time. */
Test(wordpiece, work_is_linear_in_the_word)
{
    struct gsv_wordpiece model = { .max_chars = SIZE_MAX };
    struct gsv_vocab vocab = { 0 };
    char lines[4096] = "[UNK]\n", word[2000];
    struct gsv_piece pieces[2000];
    uint64_t steps = 0;

    strcat(lines, "a\n##a\n");
    for (int length = 2; length < 60; length += 7) { /* "aaa...ab" is a token, "aaa...a" is not */
        char token[64];

        memset(token, 'a', (size_t)length);
        snprintf(token + length, 2, "b");
        strcat(strcat(strcat(lines, "##"), token), "\n");
    }
    cr_assert_eq(gsv_vocab_read_lines(&vocab, lines, strlen(lines), "lines", NULL), GPUSERVE_OK);
    model.prefix = strdup("##");
    cr_assert_eq(gsv_wordpiece_build(&model, &vocab, "lines", NULL), GPUSERVE_OK);
    memset(word, 'a', sizeof(word));
    cr_expect_eq(gsv_wordpiece_split(&model, word, sizeof(word), 1, pieces, &steps), sizeof(word));
    cr_expect_leq(steps, 4 * sizeof(word));
    gsv_wordpiece_reset(&model);
    gsv_vocab_reset(&vocab);
}

enum { LETTERS = 2800, TWINS = 18, LONE = 5000 };

static void expect_too_many(struct gsv_vocab *vocab)
{
    struct gsv_wordpiece model = { .prefix = strdup("##"), .max_chars = SIZE_MAX };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    vocab->n_model = vocab->n;
    cr_expect_eq(gsv_wordpiece_build(&model, vocab, "lines", &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_str_eq(error.message,
                     "lines: the vocabulary has too many repetitive tokens for the trie");
    gsv_wordpiece_reset(&model);
}

/* Precomputed failure data is limited: for a token "aaa...ab" it has quadratic size. Tokens overlap
 * in `text` here; a real file would have 70 MB. */
Test(wordpiece, tokens_that_repeat_themselves_are_bounded)
{
    struct gsv_vocab_token *tokens = calloc(2 + LETTERS * TWINS, sizeof(*tokens));
    char *text = malloc((LETTERS + 1) * TWINS + LONE);
    struct gsv_vocab vocab = { .text = text, .tokens = tokens, .n = 2 };

    memcpy(text, "a##a", 4);
    tokens[0] = (struct gsv_vocab_token){ 0, 1, 0 };
    tokens[1] = (struct gsv_vocab_token){ 1, 3, 1 };
    memset(text + 4, 'a', LONE);
    text[4 + LONE - 1] = 'b';
    tokens[vocab.n++] = (struct gsv_vocab_token){ 4, LONE, 2 };
    expect_too_many(&vocab); /* stored failure data */
    vocab.n = 2;
    for (uint32_t twin = 0; twin < TWINS; twin++) {
        const uint32_t begin = 4 + twin * LETTERS;

        memset(text + begin, 'a', LETTERS);
        text[begin + LETTERS - 2] = (char)('b' + twin);
        text[begin + LETTERS - 1] = 'z';
        for (uint32_t i = 0; i < LETTERS - 2; i++, vocab.n++)
            tokens[vocab.n] = (struct gsv_vocab_token){ begin + i, LETTERS - i, (int32_t)vocab.n };
    }
    expect_too_many(&vocab); /* work of the search, without stored data */
    free(tokens);
    free(text);
}

Test(wordpiece, a_word_over_the_limit_is_unknown_and_one_at_it_is_not)
{
    struct gsv_wordpiece model = { .max_chars = 3 };
    struct gsv_vocab vocab = { 0 };
    struct gsv_piece pieces[4];
    uint64_t steps = 0;

    cr_assert_eq(gsv_vocab_read_lines(&vocab, "[UNK]\na\n##a\n", 12, "lines", NULL), GPUSERVE_OK);
    model.prefix = strdup("##");
    cr_assert_eq(gsv_wordpiece_build(&model, &vocab, "lines", NULL), GPUSERVE_OK);
    cr_expect_eq(gsv_wordpiece_split(&model, "aaa", 3, 3, pieces, &steps), 3);
    cr_expect_eq(gsv_wordpiece_split(&model, "aaaa", 4, 4, pieces, &steps), 1);
    cr_expect_eq(pieces[0].id, 0);
    cr_expect_eq(pieces[0].end, 4);
    gsv_wordpiece_reset(&model);
    gsv_vocab_reset(&vocab);
}

/* Each node has its own slot: all inserted keys are found, and no others. */
Test(trie, holds_its_keys_and_no_others)
{
    static const char *const letters[] = { "ab", "abcdefghijklmnopqrstuvwxyz", "\x01\x02z!~" };
    uint32_t state = 3;

    for (size_t round = 0; round < 60; round++) {
        struct gsv_trie_builder builder = { 0 };
        struct gsv_trie trie = { 0 };
        struct gsv_vocab keys = { 0 };
        char word[16];

        random_vocab(&keys, &state, letters[round % 3], 300);
        for (size_t i = 0; i < keys.n; i++)
            cr_assert(gsv_trie_add(&builder, -1, keys.text + keys.tokens[i].at, keys.tokens[i].size,
                                   keys.tokens[i].id));
        cr_assert(gsv_trie_build(&trie, &builder));
        for (size_t i = 0; i < 2000; i++) {
            const size_t size = random_word(&state, letters[round % 3], 6, word);
            const int32_t want = gsv_vocab_id(&keys, word, size);
            uint32_t slot = trie.root;
            int32_t got = -1;

            for (size_t k = 0; k < size && slot != GSV_TRIE_NO_SLOT; k++)
                slot = gsv_trie_step(&trie, slot, (unsigned char)word[k]);
            for (size_t node = 0; node < builder.n && slot != GSV_TRIE_NO_SLOT; node++)
                if (builder.nodes[node].slot == slot)
                    got = builder.nodes[node].value;
            cr_assert_eq(got, want, "%s", word);
        }
        gsv_trie_builder_reset(&builder);
        gsv_trie_reset(&trie);
        gsv_vocab_reset(&keys);
    }
}
