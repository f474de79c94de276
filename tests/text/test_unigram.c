/*
 * test_unigram.c - Unigram: best path through a word (Viterbi), scores, unknown characters, errors.
 *
 * Equality of ids with Hugging Face tokenizers is tested by oracle.py and differential_unigram.py.
 */
#define _GNU_SOURCE
#include "tests/text/small_charsmap.h"
#include "tests/text/support.h"

#include "lib/text/scratch.h"
#include "lib/text/models/unigram.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL(fields) \
    "{\"added_tokens\":[],\"model\":{\"type\":\"Unigram\"," fields "},\"decoder\":null}"
#define SPACES "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"always\"}"

static gpuserve_status load(struct gsv_tokenizer **t, const char *json, gpuserve_error *error)
{
    return load_text(t, "tokenizer.json", json, strlen(json), error);
}

static struct gsv_tokenizer *loaded(const char *json)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;

    cr_assert_eq(load(&t, json, &error), GPUSERVE_OK, "%s", error.message);
    return t;
}

static void expect_ids(const char *json, const char *text, const char *ids)
{
    struct gsv_tokenizer *t = loaded(json);

    cr_expect_str_eq(ids_of(t, text), ids, "%s of %s", text, json);
    gsv_tokenizer_free(&t);
}

/* ------------------------------------------------------------------ scores */

/* Bit patterns read by tokenizers 0.23.3; the first ones are not the nearest double. */
Test(unigram, a_score_is_read_as_the_package_reads_it)
{
    static const struct {
        const char *text;
        double score;
    } cases[] = {
        { "-9.901456065267025", -0x1.3cd8ba63e3496p+3 },
        { "-22.948876077192974", -0x1.6f2e98ae78028p+4 },
        { "-2.6545823107882534", -0x1.53c95a68b0159p+1 },
        { "2.8015773609034312694682012e-298", 0x1.773d41959a2bap-989 },
        { "4.814218960472781197581367e-135", 0x1.bfe48002613ccp-447 },
        { "1.4997703887458938417683535e-65", 0x1.945659178b7d4p-216 },
        { "9.6253984755863456087392449e-36", 0x1.996b4edad3fa3p-117 },
        { "9.128957532341279556493004e-39", 0x1.8d9f4726520e3p-127 },
        { "5.6659603922778057930890024e-36", 0x1.e201b0c0d783bp-118 },
        { "20268344855871335e-309", 0x1.9e3b7c7546810p-973 },
        { "72218264985210082e-317", 0x1.ef3f79cb3cb2cp-998 },
        { "37167842347404091e-312", 0x1.84ec284f97547p-982 },
        { "52557780033929258465688109", 0x1.5bcc57b7af6d3p+85 },
        { "95465430435416601444515788", 0x1.3bde5d6a41edcp+86 },
        { "97885618782404946195030198", 0x1.43e0581b9867cp+86 },
        { "-3.4635426998138428", -0x1.bb555e0000000p+1 },
        { "-24.518644332885746", -0x1.884c5e0000001p+4 },
        { "1.7976931348623157e308", 0x1.fffffffffffffp+1023 },
        { "4.9e-324", 0x0.0000000000001p-1022 },
        { "184467440737095516159.3", 0x1.4000000000000p+67 },
        { "123456789012345678901234567890e-20", 0x1.26580b487e6b7p+30 },
        { "1e23", 0x1.52d02c7e14af6p+76 },
        { "0", 0 },
        { "-0", 0 },
        { "-12", -12 },
        { "1E2", 100 },
        { "0e99999999999999999999", 0 },
        { "1e-99999999999999999999", 0 },
        { "18446744073709551616", 18446744073709551616.0 },
    };
    static const char *const wrong[] = { "",     "-",     "+1",  "01",    "1.",   ".5",
                                         "1e",   "1e+",   "NaN", "inf",   "0x1",  "1e400",
                                         "null", "\"1\"", "1 2", "1e309", "2e308" };
    double score;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_expect(gsv_unigram_score(cases[i].text, strlen(cases[i].text), &score), "%s",
                  cases[i].text);
        cr_expect_eq(score, cases[i].score, "%s: %a, not %a", cases[i].text, score, cases[i].score);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect(!gsv_unigram_score(wrong[i], strlen(wrong[i]), &score), "%s", wrong[i]);
}

/* ------------------------------------------------------------------ the best way */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Pieces of up to 4 letters with few distinct scores, so that ties are frequent; the first piece is
 * the unknown one. */
static void random_model(struct gsv_unigram *m, struct gsv_vocab *vocab, uint32_t *state)
{
    char lines[4096] = "?\n";

    for (size_t i = 0; i < 30; i++) {
        const size_t n = 1 + next_random(state) % 4;
        char piece[8] = { 0 };

        for (size_t k = 0; k < n; k++)
            piece[k] = "abc"[next_random(state) % 3];
        strcat(strcat(lines, piece), "\n");
    }
    cr_assert_eq(gsv_vocab_read_lines(vocab, lines, strlen(lines), "random", NULL), GPUSERVE_OK);
    *m = (struct gsv_unigram){ .scores = calloc(64, sizeof(double)), .n_scores = 31 };
    for (size_t i = 0; i < m->n_scores; i++)
        m->scores[i] = -(double)(next_random(state) % 4) / (i % 2 ? 1 : 3);
    cr_assert_eq(gsv_unigram_build(m, vocab, "random", NULL), GPUSERVE_OK);
}

/* Reference: best score over all begins and ends; fills the pieces and returns their number. */
static size_t split_slowly(const struct gsv_unigram *m, const struct gsv_vocab *vocab,
                           const char *word, size_t size, struct gsv_piece *pieces)
{
    double best[64] = { 0 };
    size_t from[64], n = 0;
    int32_t last[64];
    bool known[64] = { true };

    for (size_t begin = 0; begin < size; begin++)
        for (size_t end = begin + 1; end <= size; end++) {
            int32_t id = gsv_vocab_id(vocab, word + begin, end - begin);
            double score = id < 0 ? m->unknown_score : m->scores[id];

            if (id < 0 && end > begin + 1)
                continue;
            score += best[begin];
            if (known[end] && !(score > best[end]))
                continue;
            known[end] = true;
            best[end] = score;
            from[end] = begin;
            last[end] = id < 0 ? m->unknown : id;
        }
    for (size_t end = size; end > 0; end = from[end]) /* from the right; merges unknown ones */
        if (n == 0 || last[end] != m->unknown || pieces[n - 1].id != m->unknown)
            pieces[n++] = (struct gsv_piece){ last[end], (uint32_t)end };
    return n;
}

Test(unigram, the_best_way_is_that_of_the_definition)
{
    struct gsv_scratch scratch = { 0 };
    uint32_t state = 5;
    size_t unknown = 0;

    scratch.pieces = calloc(64, sizeof(*scratch.pieces));
    for (size_t round = 0; round < 200; round++) {
        struct gsv_unigram m;
        struct gsv_vocab vocab = { 0 };

        random_model(&m, &vocab, &state);
        for (size_t i = 0; i < 100; i++) {
            struct gsv_piece want[64];
            const size_t size = 1 + next_random(&state) % 40;
            char word[64] = { 0 };
            size_t n;

            for (size_t k = 0; k < size; k++)
                word[k] = "aaabbbcccd"[next_random(&state) % 10];
            n = split_slowly(&m, &vocab, word, size, want);
            cr_assert_eq(gsv_unigram_split(&m, word, size, &scratch), n, "%s", word);
            for (size_t k = 0; k < n; k++) {
                cr_assert_eq(scratch.pieces[k].id, want[n - 1 - k].id, "%s at %zu", word, k);
                cr_assert_eq(scratch.pieces[k].end, want[n - 1 - k].end, "%s at %zu", word, k);
                unknown += want[k].id == 0;
            }
        }
        gsv_unigram_reset(&m);
        gsv_vocab_reset(&vocab);
    }
    cr_expect_gt(unknown, 1000, "unknown characters are too rare: %zu", unknown);
    free(scratch.pieces);
    free(scratch.ways);
}

Test(unigram, ties_and_unknown_pieces_in_a_row)
{
    /* Of equal sums, the path with the longest last piece wins. */
    expect_ids(MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\"aa\",-2],[\"aaa\",-3]]"),
               "aaa", "3");
    expect_ids(MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],[\"aa\",-2]]"), "aaa", "1 2");
    /* A run of unknown characters is one token, even if a piece equals the unknown token. */
    expect_ids(MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1]]"), "xyazz?", "0 1 0");
    expect_ids(MODEL("\"unk_id\":0,\"vocab\":[[\"?\",50],[\"xyz\",50],[\"a\",50]]"), "xyzaxy",
               "1 2 0");
    /* Of duplicate pieces the later one wins, with its score. */
    expect_ids(
        MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0],[\"ab\",9],[\"a\",-1],[\"b\",-1],[\"ab\",-5]]"),
        "ab", "2 3");
    expect_ids(
        MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0],[\"ab\",-9],[\"a\",-1],[\"b\",-1],[\"ab\",5]]"),
        "ab", "4");
    expect_ids(MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0],[\"\",9],[\"a\",-1]]"), "a", "2");
}

Test(unigram, bytes_of_what_is_unknown_all_stand_for_it)
{
    static const char json[] =
        MODEL("\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"?\",0],[\"a\",-1],"
              "[\"<0xC3>\",-2],[\"<0xA9>\",-2]]");
    struct gsv_tokenizer *t = loaded(json);
    struct gsv_encoding e = { 0 };

    cr_assert_eq(gsv_tokenizer_encode(t, &e,
                                      "a\xC3\xA9\xC3\xA9"
                                      "a",
                                      6, NULL, 0, NULL, NULL),
                 GPUSERVE_OK);
    cr_assert_eq(e.n, 6);
    for (size_t i = 1; i < 5; i++) {
        cr_expect_eq(e.ids[i], i % 2 ? 2 : 3);
        cr_expect(e.spans[i].begin == 1 && e.spans[i].end == 5);
    }
    cr_expect(e.spans[5].begin == 5 && e.spans[5].end == 6 && e.ids[5] == 1);
    cr_expect_str_eq(ids_of(t, "\xC3\xA8"), "0"); /* one of its bytes has no piece */
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

Test(unigram, without_an_unknown_piece_a_text_may_be_refused)
{
    struct gsv_tokenizer *t = loaded(MODEL("\"unk_id\":null,\"vocab\":[[\"a\",-1],[\"b\",-1]]"));
    struct gsv_tokenizer *other = loaded(MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0]]"));
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_encoding e = { 0 };

    for (int i = 0; i < 2; i++) {
        cr_expect_eq(gsv_tokenizer_encode(t, &e, "abx", 3, NULL, 0, NULL, &error),
                     GPUSERVE_E_INVALID);
        cr_expect(strstr(error.message, "has no unknown token"), "%s", error.message);
        cr_expect_eq(gsv_tokenizer_encode(t, &e, "ab", 2, "x", 1, NULL, &error),
                     GPUSERVE_E_INVALID);
        cr_expect_eq(gsv_tokenizer_encode(t, &e, "x", 1, "ab", 2, NULL, &error),
                     GPUSERVE_E_INVALID);
        cr_expect_eq(gsv_tokenizer_encode(other, &e, "x", 1, NULL, 0, NULL, &error), GPUSERVE_OK);
        cr_expect_eq(gsv_tokenizer_encode(t, &e, "ab", 2, "b", 1, NULL, &error), GPUSERVE_OK);
        cr_expect_eq(e.n, 3);
    }
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&other);
    gsv_tokenizer_free(&t);
}

/* ------------------------------------------------------------------ work */

/* Trie steps for a text of `size` bytes that repeats `part`. */
static double steps_per_byte(const struct gsv_tokenizer *t, const char *part, size_t size)
{
    struct gsv_encoding e = { 0 };
    char *text = malloc(size);
    double steps;

    for (size_t i = 0; i < size; i++)
        text[i] = part[i % strlen(part)];
    size -= size % strlen(part);
    cr_assert_eq(gsv_tokenizer_encode(t, &e, text, size, NULL, 0, NULL, NULL), GPUSERVE_OK);
    steps = (double)((const struct gsv_scratch *)e.scratch)->steps / (double)size;
    gsv_encoding_reset(&e);
    free(text);
    return steps;
}

Test(unigram, work_grows_with_the_text_alone)
{
    static const char *const parts[] = { "a",
                                         "-",
                                         "=",
                                         "_",
                                         ".",
                                         "ab",
                                         "\xE0\xB8\x81",
                                         "aaaaaaab",
                                         "internationalisation",
                                         "\xE2\x96\x81",
                                         "\xEF\xB7\xBA" };
    struct gsv_tokenizer *t = real_tokenizer("deberta-v3");

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const double small = steps_per_byte(t, parts[i], 6000);
        const double large = steps_per_byte(t, parts[i], 600000);

        cr_expect_leq(large, small * 1.05 + 0.1, "%s: %.1f and %.1f steps", parts[i], small, large);
        cr_expect_leq(large, 34, "%s: no piece has more than 32 bytes, %.1f steps", parts[i],
                      large);
    }
    gsv_tokenizer_free(&t);
}

/* ------------------------------------------------------------------ files */

Test(unigram, what_is_wrong_in_a_model_is_told)
{
    static const struct {
        const char *json, *says;
        gpuserve_status status;
    } cases[] = {
        { MODEL("\"unk_id\":0"), "\"vocab\" is missing", GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":[]"), "\"unk_id\" is 0, but the vocabulary has 0 pieces",
          GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":1,\"vocab\":[[\"a\",0]]"), "\"unk_id\" is 1, but the vocabulary has 1",
          GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0.5,\"vocab\":[[\"a\",0]]"), "the end of the file", GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":-1,\"vocab\":[[\"a\",0]]"), "an id", GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":{\"a\":0}"), "byte 0", GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":[[\"a\"]]"), "piece 1 is not [text, score]",
          GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":[[]]"), "piece 0 is not [text, score]", GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":[[0,\"a\"]]"), "piece 0 is not [text, score]",
          GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":[[\"a\",0,0]]"), "piece 1 is not [text, score]",
          GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":[[\"a\",null]]"), "piece 0: invalid score null",
          GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":[[\"a\",1e999]]"), "piece 0: invalid score 1e999",
          GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"vocab\":[[\"\\ud800\",0]]"), "invalid escape", GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"byte_fallback\":null,\"vocab\":[[\"a\",0]]"),
          "\"byte_fallback\" is neither true nor false", GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":0,\"byte_fallback\":tru,\"vocab\":[[\"a\",0]]"),
          "\"byte_fallback\" is neither true nor false", GPUSERVE_E_FORMAT },
        { MODEL("\"unk_id\":nul,\"vocab\":[[\"a\",0]]"), "expected an id", GPUSERVE_E_FORMAT },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_tokenizer *t = NULL;

        cr_expect_eq(load(&t, cases[i].json, &error), cases[i].status, "%s", cases[i].json);
        cr_expect(strstr(error.message, cases[i].says), "'%s' is not in: %s", cases[i].says,
                  error.message);
        gsv_tokenizer_free(&t);
    }
}

static void add_to_sum(void *state, const void *bytes, size_t size)
{
    uint64_t *sum = state;

    for (size_t i = 0; i < size; i++)
        *sum = (*sum ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
}

Test(unigram, the_digest_tells_models_apart)
{
    static const char *const models[] = {
        MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1]]"),
        MODEL("\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1.0000000000000002]]"),
        MODEL("\"unk_id\":1,\"vocab\":[[\"?\",0],[\"a\",-1]]"),
        MODEL("\"unk_id\":null,\"vocab\":[[\"?\",0],[\"a\",-1]]"),
        MODEL("\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"?\",0],[\"a\",-1]]"),
        MODEL("\"unk_id\":0,\"byte_fallback\":false,\"vocab\":[[\"?\",0],[\"a\",-1]]"),
    };
    enum { N = sizeof(models) / sizeof(models[0]) };
    uint64_t sums[N] = { 0 };

    for (size_t i = 0; i < N; i++) {
        struct gsv_tokenizer *t = loaded(models[i]);

        gsv_tokenizer_digest(t, add_to_sum, &sums[i]);
        cr_expect_str_eq(gsv_tokenizer_kind(t), "Unigram");
        cr_expect_gt(gsv_tokenizer_bytes(t), 1000);
        gsv_tokenizer_free(&t);
        for (size_t k = 0; k < i; k++)
            cr_expect_eq(sums[k] == sums[i], i == N - 1 && k == 0, "%zu and %zu", k, i);
    }
}

static uint64_t sum_with(const char *normalizer)
{
    struct gsv_tokenizer *t;
    uint64_t sum = 0;
    char *json;

    cr_assert(asprintf(&json,
                       "{\"added_tokens\":[],\"normalizer\":%s,\"model\":{\"type\":\"Unigram\","
                       "\"unk_id\":0,\"vocab\":[[\"?\",0]]}}",
                       normalizer) > 0);
    t = loaded(json);
    gsv_tokenizer_digest(t, add_to_sum, &sum);
    gsv_tokenizer_free(&t);
    free(json);
    return sum;
}

Test(unigram, the_digest_tells_charsmaps_apart)
{
    static const char *const texts[][2] = { { "a", "b" }, { "a", "c" }, { "b", "b" } };
    uint64_t sums[3];

    for (size_t i = 0; i < 3; i++) {
        char *map = small_charsmap(texts[i][0], texts[i][1]), *json;

        cr_assert(
            asprintf(&json, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}", map) > 0);
        sums[i] = sum_with(json);
        free(json);
        free(map);
    }
    cr_expect(sums[0] != sums[1] && sums[0] != sums[2] && sums[1] != sums[2]);
    cr_expect_neq(
        sum_with("{\"type\":\"Replace\",\"pattern\":{\"String\":\"  \"},\"content\":\"\"}"),
        sum_with("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"\"}"));
    cr_expect_neq(sum_with("{\"type\":\"Prepend\",\"prepend\":\"a\"}"),
                  sum_with("{\"type\":\"Prepend\",\"prepend\":\"b\"}"));
}

Test(unigram, metaspace_decodes_what_it_encodes)
{
    static const char json[] =
        "{\"added_tokens\":[],\"pre_tokenizer\":" SPACES ",\"decoder\":" SPACES
        ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"?\",0],"
        "[\"\\u2581a\",-1],[\"\\u2581\",-2],[\"b\",-1]]}}";
    struct gsv_tokenizer *t = loaded(json);
    const int32_t ids[] = { 1, 3, 2, 1 };
    char text[64];

    cr_expect_str_eq(ids_of(t, "ab  a"), "1 3 2 1");
    cr_expect_eq(gsv_tokenizer_decode(t, ids, 4, true, text, sizeof(text), NULL, NULL),
                 GPUSERVE_OK);
    cr_expect_str_eq(text, "ab  a");
    gsv_tokenizer_free(&t);
}
