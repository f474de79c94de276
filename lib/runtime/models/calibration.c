/*
 * calibration.c - built-in texts: calibration of int8 activations and of compact vectors, error
 * probes.
 *
 * The texts vary in subject, length, register and punctuation. Some are only a few tokens: their
 * errors average out least, so their vectors are the worst. The texts are part of what an int8
 * model computes: changing one moves its vectors in the last digits.
 */
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/models/load_steps.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST 128 /* tokens used of a text */

/*
 * Token ids drawn from a vocabulary with a fixed generator (SplitMix64).
 *
 * A tokenizer that knows none of the built-in texts' words encodes all of them as one id, the
 * unknown token. What an int8 model does with that one id says nothing about its other tokens.
 */

#define SEED UINT64_C(16)

/* The ordinary tokens of a model, and the state of the generator. */
struct drawn_ids {
    int32_t *ids; /* [n]; owned */
    int32_t n;
    uint64_t state;
};

static bool is_ordinary(const struct gsv_plan *plan, int32_t id)
{
    size_t size;

    return id != plan->facts->first_position - 1 && /* RoBERTa's pad token */
           gsv_tokenizer_token(plan->tokenizer, id, &size) &&
           !gsv_tokenizer_is_special(plan->tokenizer, id);
}

/* Collects the tokens that texts consist of: those with rows in the model's table, without special
 * tokens, the pad token and ids that no token has. */
static gpuserve_status drawn_ids_init(struct drawn_ids *drawn, const struct gsv_plan *plan,
                                      gpuserve_error *error)
{
    const int32_t known = gsv_tokenizer_vocab_size(plan->tokenizer);
    const int32_t rows = plan->facts->vocab_size, end = known < rows ? known : rows;

    memset(drawn, 0, sizeof(*drawn));
    drawn->state = SEED;
    drawn->ids = gsv_alloc_array((size_t)(end > 0 ? end : 1), sizeof(*drawn->ids));
    if (!drawn->ids)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the token ids of the probes");
    for (int32_t id = 0; id < end; id++)
        if (is_ordinary(plan, id))
            drawn->ids[drawn->n++] = id;
    return GPUSERVE_OK;
}

static void drawn_ids_reset(struct drawn_ids *drawn)
{
    free(drawn->ids);
    memset(drawn, 0, sizeof(*drawn));
}

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Draws `n` ids with replacement; there must be an ordinary token. The sequences are the same in
 * each load. */
static void drawn_ids_next(struct drawn_ids *drawn, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = drawn->ids[(next(&drawn->state) >> 32) * (uint64_t)drawn->n >> 32];
}

/* The number of different ids among the `n`, up to `enough`, without special tokens. */
static int32_t count_distinct_ids(const struct gsv_tokenizer *tokenizer, const int32_t *ids,
                                  size_t n, int32_t enough)
{
    int32_t count = 0;

    for (size_t i = 0; i < n && count < enough; i++) {
        bool is_new = !gsv_tokenizer_is_special(tokenizer, ids[i]);

        for (size_t j = 0; j < i && is_new; j++)
            is_new = ids[j] != ids[i];
        count += is_new;
    }
    return count;
}

static const char *const texts[] = {
    "The train to the coast leaves at ten past seven and arrives shortly before noon.",
    "How do I reset the password of my account?",
    "Add two cups of flour, a pinch of salt and half a cup of warm water, then knead for ten "
    "minutes until the dough no longer sticks to your hands.",
    "yes",
    "?",
    "!!",
    "...",
    "is it",
    "as we",
    ", and",
    "of the",
    "- -",
    "ok.",
    "1 2 3",
    "(a)",
    "Not so.",
    "I think it is",
    "! ;",
    "no no no",
    "__",
    "The court held that the contract was void because neither party had the authority to sign it "
    "on behalf of the company, and it ordered each side to bear its own costs.",
    "Terrible service, the soup was cold and nobody apologised. We will not come back!",
    "A neutron star packs more mass than the sun into a sphere about twenty kilometres across.",
    "import os; print(os.path.join(\"a\", \"b\"))  # joins two paths",
    "What is the capital of Mongolia?",
    "Shares of the airline fell 4.3 % on Tuesday after it cut its forecast for the third quarter.",
    "She closed the door quietly, took off her wet shoes and sat down by the window without "
    "turning on the light.",
    "Error 404: the page /docs/install.html was not found on this server.",
    "Regular exercise lowers blood pressure, improves sleep and may delay the onset of dementia.",
    "Best headphones I have ever owned :-) battery lasts all week",
    "In 1687 Newton published three laws that described how bodies move when forces act on them.",
    "Please find attached the signed invoice no. 2041-B for EUR 1,250.00, payable within 30 days.",
    "The cat slept.",
    "Photosynthesis turns carbon dioxide and water into sugar and oxygen, driven by sunlight that "
    "chlorophyll absorbs in the leaves of green plants.",
    "Can you recommend a good book about the history of Japan for a twelve-year-old?",
    "GOAL!!! United win it in the last minute of extra time!",
    "The patient was given 500 mg of the antibiotic twice a day and recovered within a week.",
    "To be, or not to be: that was never really the question, he thought, and ordered another "
    "coffee.",
    "Lithium-ion batteries degrade faster when they are kept fully charged at high temperature; "
    "storing them half full in a cool place doubles their life.",
    "Turn left at the church, go straight for two blocks, and you will see the museum on your "
    "right.",
    "La biblioteca abre a las nueve de la ma\xC3\xB1"
    "ana y cierra a las ocho de la tarde.",
    "Der Zug nach M\xC3\xBCnchen hat heute leider etwa zwanzig Minuten Versp\xC3\xA4tung.",
    "Le march\xC3\xA9 aux fleurs a lieu chaque dimanche, m\xC3\xAAme quand il pleut.",
    "SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name ORDER BY 2 DESC;",
    "I would like to cancel my subscription and get a refund for the remaining months.",
    "Astronomers using a radio telescope in Chile have found traces of phosphine, a gas that on "
    "Earth is made mostly by living things, although they warn that unknown chemistry could "
    "explain the signal as well.",
    "Wash at 30 degrees. Do not bleach. Do not tumble dry.",
    "The committee meets every second Thursday; minutes are sent to all members by e-mail.",
    "Why did the chicken cross the road? To get to the other side.",
    "Unemployment rose slightly in March, while inflation slowed for the fifth month in a row.",
    "He plays the violin, the piano and, rather badly, the trumpet.",
    "Version 2.0 removes the deprecated functions, so programs written for 1.x must be adapted "
    "before they can be compiled.",
    "weather tomorrow new york",
    "The bridge, which was built in 1932 from steel made in Ohio, carries six lanes of traffic, "
    "two railway tracks and a footpath, and it has to be painted again every seven years.",
    "Two young men are playing football in the park while an old man watches from a bench.",
    "Thank you very much for your kind letter. I was delighted to hear that you and your family "
    "are well, and I hope that we shall see each other again before the end of the year.",
};

#define N_TEXTS ((int32_t)(sizeof(texts) / sizeof(texts[0])))

/* Used for calibration and for comparing int8 with full precision: `text`, repeated `times` times.
 * One repeated token gives every row of a batch the same outliers, which ordinary texts never
 * do. */
static const struct probe {
    const char *text;
    int32_t times;
} common_probes[] = {
    { "The train to the coast leaves at ten past seven and arrives shortly before noon.", 1 },
    { "How do I reset the password of my account?", 1 },
    { "Der Zug nach M\xC3\xBCnchen hat heute leider zwanzig Minuten Versp\xC3\xA4tung.", 1 },
    { "Le march\xC3\xA9 aux fleurs a lieu chaque dimanche, m\xC3\xAAme quand il pleut.", 1 },
    { "\xD0\x9F\xD0\xBE\xD0\xB5\xD0\xB7\xD0\xB4 \xD1\x83\xD1\x88\xD1\x91\xD0\xBB", 1 },
    { "\xE6\xBC\xA2\xE5\xAD\x97\xE3\x81\xAE\xE6\x96\x87\xE7\xAB\xA0", 1 },
    { "SELECT name, COUNT(*) FROM orders WHERE total > 100 GROUP BY name;", 1 },
    { "Please find attached the signed invoice no. 2041-B for EUR 1,250.00.", 1 },
    { "yes", 1 },
    { "?", 1 },
    { "- -", 1 },
    { "1 2 3", 1 },
    { "x", 1 },
    { "\xF0\x9F\x98\x80 \xF0\x9F\x91\x8D", 1 },
    { "\xE3\x80\x82 ", 5 },
    { "a ", 8 },
    { "\xE0\xB8\x81 ", 30 },
    { "the ", 30 },
    { "Paris ", 17 },
    { "42 ", 50 },
    { ". ", 34 },
    { "? ", 100 },
    { "\xE6\xBC\xA2 ", 94 },
    { "\xE6\xBC\xA2 ", 250 },
};

/* Probes for the comparison only, not for ranges: short texts of every script and kind, because
 * nothing averages their errors out. Chosen for variety, not for any model. */
static const struct probe more_probes[] = {
    /* clang-format off */
    { "!", 1 }, { ".", 1 }, { "-", 1 }, { "_", 1 }, { "(", 1 }, { "\"", 1 }, { "0", 1 }, { "7", 1 },
    { "\xC3\xA9", 1 }, { "\xC3\x9F", 1 }, { "\xD0\x96", 1 }, { "\xE4\xB8\xAD", 1 },
    { "\xE3\x81\x82", 1 }, { "\xD7\x90", 1 }, { "\xD8\xB9", 1 }, { "\xE0\xA4\x95", 1 },
    { "\xED\x95\x9C", 1 }, { "\xE2\x80\xA6", 1 }, { "A b", 1 }, { "a b c", 1 }, { "Z!", 1 },
    { "\xC3\xB1 \xC3\xB6 \xC3\xA1", 1 }, { "x y z", 1 }, { "A", 1 }, { "Rome", 1 }, { "hi", 1 },
    { "my", 1 }, { "well", 1 }, { "3.14", 1 }, { "can't", 1 }, { "C++", 1 }, { "@user #tag", 1 },
    { "http://a.b/c", 1 }, { "a@b.org", 1 }, { "!?", 1 }, { "###", 1 }, { "NULL", 1 },
    { "na\xC3\xAF" "f", 1 }, { "Gr\xC3\xB6\xC3\x9F" "e", 1 },
    { "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82, \xD0\xBA\xD0\xB0\xD0\xBA \xD0\xB4\xD0\xB5\xD0\xBB\xD0\xB0?", 1 },
    { "\xD0\xB4\xD0\xB0,\xD0\xBD\xD0\xB5\xD1\x82", 1 }, { "\xE4\xBD\xA0\xE5\xA5\xBD", 1 },
    { "\xE6\xBC\xA2\xE5\xAD\x97 \xE8\xAA\x9E", 1 },
    { "\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF\xE4\xB8\x96\xE7\x95\x8C", 1 },
    { "\xEC\x95\x88\xEB\x85\x95\xED\x95\x98\xEC\x84\xB8\xEC\x9A\x94", 1 },
    { "\xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 \xD8\xA8\xD8\xA7\xD9\x84\xD8\xB9\xD8\xA7\xD9\x84\xD9\x85", 1 },
    { "\xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D \xD7\xA2\xD7\x95\xD7\x9C\xD7\x9D", 1 },
    { "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87 \xE0\xA4\xA6\xE0\xA5\x81\xE0\xA4\xA8\xE0\xA4\xBF\xE0\xA4\xAF\xE0\xA4\xBE", 1 },
    { "\xE0\xB8\xAA\xE0\xB8\xA7\xE0\xB8\xB1\xE0\xB8\xAA\xE0\xB8\x94\xE0\xB8\xB5", 1 },
    { "\xCE\xB3\xCE\xB5\xCE\xB9\xCE\xAC \xCF\x83\xCE\xBF\xCF\x85 \xCE\x9A\xCF\x8C\xCF\x83\xCE\xBC\xCE\xB5", 1 },
    { "Xin ch\xC3\xA0o", 1 }, { "1/2 + 3/4 = 5/4", 1 }, { "100 %", 1 }, { "2026-01-31", 1 },
    { "12:30", 1 }, { "0xFF", 1 }, { "E = mc\xC2\xB2", 1 },
    { "\xE2\x88\x80x \xE2\x88\x88 \xE2\x84\x9D", 1 },
    { "\xE2\x86\x92 \xE2\x86\x90 \xE2\x86\x91", 1 }, { "\xC2\xBD \xC2\xBC", 1 },
    { "\xC2\xA9\xC2\xAE\xE2\x84\xA2", 1 }, { "\xEF\xAC\x81 \xEF\xAC\x82", 1 }, { "I", 1 },
    { "if (x == 0) { return; }", 1 }, { "<br/>", 1 }, { "{\"a\": [1, 2]}", 1 }, { "AAAA", 1 },
    { "LOL", 1 }, { "qwxz", 1 }, { "asdf jkl;", 1 }, { "supercalifragilistic", 1 },
    { "\xC5\xBB\xC3\xB3\xC5\x82\xC4\x87 i g\xC4\x99\xC5\x9B", 1 },
    { "\xC4\x8C" "esk\xC3\xBD k\xC5\xAF\xC5\x88", 1 },
    { "T\xC3\xBCrk\xC3\xA7" "e \xC4\xB1\xC4\x9F\xC3\xBC\xC5\x9F", 1 },
    { "\xC3\xA7\xC3\xA0 et l\xC3\xA0", 1 }, { ". . .", 1 }, { ". a", 1 }, { ", ;", 1 }, { "*", 1 },
    { "~", 1 }, { "x_1", 1 }, { "\\\\n", 1 }, { "it's", 1 }, { "tl;dr", 1 }, { "sky", 1 },
    { "run fast", 1 }, { "two words", 1 }, { "The end.", 1 }, { "Why?", 1 }, { "Stop!", 1 },
    { "red green blue", 1 }, { "\xF0\x9F\x98\x80 \xF0\x9F\x98\x80", 1 },
    { "\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD", 1 },
    { "\xE2\x99\xA5\xE2\x99\xA6\xE2\x99\xA3\xE2\x99\xA0", 1 },
    { "\xE2\x91\xA0 \xE2\x91\xA1 \xE2\x91\xA2", 1 }, { "\xE2\x85\xB7 \xE2\x85\xAB", 1 },
    { "\xCE\xAC \xE1\xBD\xA6", 1 }, { "\xE1\xBA\x9E", 1 }, { "\xC3\x90 \xC3\xBE", 1 },
    { "\xCA\x83 \xCA\x92", 1 }, { "\xD8\xA7 \xD8\xA8 \xD8\xAA", 1 },
    { "\xE0\xA6\x95 \xE0\xA6\x96", 1 }, { "\xE1\x83\x90 \xE1\x83\x91", 1 },
    { "\xD4\xB1 \xD4\xB2", 1 }, { "\xE1\x8A\xA0", 1 }, { "! ", 3 }, { "! ", 12 }, { "0 ", 3 },
    { "0 ", 12 }, { "- ", 3 }, { "- ", 12 }, { "\xD0\x96 ", 3 }, { "\xD0\x96 ", 12 },
    { "word ", 3 }, { "word ", 12 }, { "\xC3\xA9 ", 3 }, { "\xC3\xA9 ", 12 },
    /* clang-format on */
};

/* Words that are repeated, for the comparison of int8 only: the loss of one word differs from that
 * of another, and from one count to the next. The words are taken twice, and the counts as often
 * as needed. */
static const char *const repeated_words[] = {
    /* clang-format off */
    "b ", "e ", "s ", "I ", "7 ", "1 ", "% ", ") ", ": ", "; ", "[ ", "/ ", "= ", "* ", "+ ",
    "\" ", "\xC3\xA9 ", "\xC3\xBC ", "\xC3\xB1 ", "\xCE\xA9 ", "\xD0\xB8 ", "\xD0\x96 ",
    "\xE4\xB8\xAD ", "\xE6\x97\xA5 ", "\xE3\x81\xAE ", "\xE3\x82\xA2 ", "\xEA\xB0\x80 ",
    "\xEB\x82\xA0 ", "\xE0\xB8\x82 ", "\xE0\xB8\xA1 ", "\xD7\x90 ", "\xD8\xB9 ", "\xE0\xA4\x95 ",
    "\xE0\xAE\x95 ", "\xE0\xB0\x85 ", "\xE1\x83\xA5 ", "\xD5\xB0 ", "\xE1\x8A\xA0 ",
    "\xE2\x98\x85 ", "\xE2\x86\x92 ", "\xE2\x80\x93 ", "\xE2\x80\xA6 ", "\xF0\x9F\x91\x8D ",
    "and ", "is ", "house ", "Berlin ", "Haus ", "\xD0\xB3\xD0\xBE\xD0\xB4 ",
    "\xE4\xB8\x8D \xE6\x98\xAF ", "x1 ", "foo bar ",
    /* clang-format on */
};

static const uint8_t repetitions[] = { 14, 60, 24, 102, 33, 44, 18, 78, 28, 120, 39 };

#define N_REPEATED_WORDS ((int32_t)(sizeof(repeated_words) / sizeof(repeated_words[0])))
#define N_REPEATED (2 * N_REPEATED_WORDS)
#define N_REPETITIONS ((int32_t)(sizeof(repetitions) / sizeof(repetitions[0])))
#define N_PROBES ((int32_t)(sizeof(common_probes) / sizeof(common_probes[0])))
#define N_MORE_PROBES ((int32_t)(sizeof(more_probes) / sizeof(more_probes[0])))
#define LONGEST_PROBE 256 /* tokens */

/* With random models whose tokenizer knew some of the texts' words, int8 lost 1.3 to 2.8 times as
 * much on other texts with up to 36 different tokens as with 100, and about as much from 74 on. */
#define MIN_DISTINCT 64
/* Fewer tokens are not measured at all. */
#define MIN_VOCABULARY 16

/* Sequences of drawn ids, repeated in this order: most are short, since nothing averages their
 * errors out. */
static const struct drawn_shape {
    uint8_t n;    /* without special tokens */
    bool repeats; /* one id n times */
} drawn_shapes[] = {
    { 1, false }, { 4, false },   { 2, false },  { 12, false }, { 3, false },  { 7, false },
    { 2, false }, { 126, false }, { 1, false },  { 5, false },  { 30, true },  { 3, false },
    { 9, false }, { 2, false },   { 33, false }, { 4, false },  { 17, false }, { 94, true },
};

#define N_SHAPES ((int32_t)(sizeof(drawn_shapes) / sizeof(drawn_shapes[0])))
#define N_DRAWN 90
#define N_DRAWN_PROBES 144

/* A batch under construction. */
struct filling {
    struct gsv_calibration *to;
    const struct gsv_plan *plan;
    int32_t *ids, *positions, *cu_seqlens;
    struct gsv_encode_options options;
    struct gsv_encoding encoding;
};

/* Allocates the arrays of at most `n` texts of at most `longest` tokens in one block. */
static gpuserve_status begin(struct filling *f, struct gsv_calibration *to,
                             const struct gsv_plan *plan, int32_t n, int32_t longest,
                             gpuserve_error *error)
{
    const size_t max_tokens = (size_t)n * (size_t)longest;

    memset(f, 0, sizeof(*f));
    memset(to, 0, sizeof(*to));
    f->to = to;
    f->plan = plan;
    f->options.max_tokens = (size_t)(plan->max_tokens < longest ? plan->max_tokens : longest);
    to->memory = gsv_alloc_array(3 * max_tokens + (size_t)n + 1, sizeof(int32_t));
    if (!to->memory)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the calibration texts");
    f->ids = to->memory;
    f->positions = f->ids + 2 * max_tokens;
    f->cu_seqlens = f->positions + max_tokens;
    to->batch.ids = f->ids;
    to->batch.type_ids = f->ids + max_tokens;
    to->batch.positions = f->positions;
    to->batch.cu_seqlens = f->cu_seqlens;
    return GPUSERVE_OK;
}

/* Number the positions of the `n` ids at the end of the batch and make them its next sequence. */
static void close_sequence(struct filling *f, size_t n)
{
    struct gpuserve_host_batch *batch = &f->to->batch;
    const int32_t *ids = f->ids + batch->n_tokens;

    gsv_positions(f->plan->facts, ids, n, f->positions + batch->n_tokens);
    batch->n_tokens += (int32_t)n;
    f->cu_seqlens[++batch->n_sequences] = batch->n_tokens;
    if ((int32_t)n > batch->max_seqlen)
        batch->max_seqlen = (int32_t)n;
}

/* A text that the tokenizer refuses, because it has no token for a character, is left out. */
static gpuserve_status add(struct filling *f, const char *text, size_t size, gpuserve_error *error)
{
    const struct gsv_encoding *encoding = &f->encoding;
    gpuserve_error refused = GPUSERVE_ERROR_INIT;
    const gpuserve_status st = gsv_tokenizer_encode(f->plan->tokenizer, &f->encoding, text, size,
                                                    NULL, 0, &f->options, &refused);

    if (st == GPUSERVE_E_INVALID)
        return GPUSERVE_OK;
    if (st != GPUSERVE_OK)
        gsv_error_copy(error, &refused);
    if (st != GPUSERVE_OK || encoding->n == 0)
        return st;
    memcpy(f->ids + f->to->batch.n_tokens, encoding->ids, encoding->n * sizeof(int32_t));
    close_sequence(f, encoding->n);
    return GPUSERVE_OK;
}

static gpuserve_status end(struct filling *f, gpuserve_status st)
{
    gsv_encoding_reset(&f->encoding);
    if (st != GPUSERVE_OK)
        gsv_calibration_reset(f->to);
    return st;
}

static gpuserve_status add_probe(struct filling *f, const struct probe *probe,
                                 gpuserve_error *error)
{
    const size_t size = strlen(probe->text), all = size * (size_t)probe->times;
    char *text = malloc(all);
    gpuserve_status st;

    if (!text)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the probe texts");
    for (size_t at = 0; at < all; at += size)
        memcpy(text + at, probe->text, size);
    st = add(f, text, all, error);
    free(text);
    return st;
}

/* Add a sequence of drawn ids, shorter where the model's limit is lower, between the special tokens
 * of a text. */
static void add_drawn(struct filling *f, struct drawn_ids *drawn, struct drawn_shape shape)
{
    size_t before, special, n = shape.n;
    const int32_t *around = gsv_tokenizer_special_ids(f->plan->tokenizer, &before, &special);
    int32_t *ids = f->ids + f->to->batch.n_tokens;

    if (special >= f->options.max_tokens)
        return;
    n = n < f->options.max_tokens - special ? n : f->options.max_tokens - special;
    for (size_t i = 0; i < special; i++)
        ids[i < before ? i : n + i] = around[i];
    drawn_ids_next(drawn, ids + before, shape.repeats ? 1 : n);
    for (size_t i = 1; i < n && shape.repeats; i++)
        ids[before + i] = ids[before];
    close_sequence(f, n + special);
}

static void remove_sequences(struct filling *f)
{
    struct gpuserve_host_batch *batch = &f->to->batch;

    batch->n_sequences = batch->n_tokens = batch->max_seqlen = 0;
}

static int32_t count_distinct(const struct filling *f)
{
    return count_distinct_ids(f->plan->tokenizer, f->ids, (size_t)f->to->batch.n_tokens,
                              MIN_DISTINCT);
}

/* Replace the texts by `n` drawn sequences if they have too few different tokens to say anything
 * about others, for example because the tokenizer knows none of their words; and by `n_repeated`
 * that repeat one id. */
static gpuserve_status replace_unknown(struct filling *f, int32_t n, int32_t n_repeated,
                                       gpuserve_error *error)
{
    struct drawn_ids drawn;
    gpuserve_status st;

    f->to->n_distinct = count_distinct(f);
    if (f->to->n_distinct >= MIN_DISTINCT)
        return GPUSERVE_OK;
    st = drawn_ids_init(&drawn, f->plan, error);
    if (st != GPUSERVE_OK || drawn.n <= f->to->n_distinct) {
        drawn_ids_reset(&drawn);
        return st;
    }
    remove_sequences(f);
    for (int32_t i = 0; i < n; i++)
        add_drawn(f, &drawn, drawn_shapes[i % N_SHAPES]);
    for (int32_t i = 0; i < n_repeated; i++)
        add_drawn(f, &drawn, (struct drawn_shape){ repetitions[i % N_REPETITIONS], true });
    drawn_ids_reset(&drawn);
    f->to->n_distinct = count_distinct(f);
    return GPUSERVE_OK;
}

gpuserve_status gsv_calibration_make(struct gsv_calibration *calibration,
                                     const struct gsv_plan *plan, gpuserve_error *error)
{
    struct filling f;
    gpuserve_status st = begin(&f, calibration, plan, N_TEXTS + N_PROBES + N_DRAWN, LONGEST, error);

    for (int32_t i = 0; i < N_TEXTS && st == GPUSERVE_OK; i++)
        st = add(&f, texts[i], strlen(texts[i]), error);
    for (int32_t i = 0; i < N_PROBES && st == GPUSERVE_OK; i++)
        st = add_probe(&f, &common_probes[i], error);
    if (st == GPUSERVE_OK)
        st = replace_unknown(&f, N_DRAWN, 0, error);
    return end(&f, st);
}

/* The probes, and `n_repeated` of the repeated words. */
static gpuserve_status make_probes(struct gsv_calibration *calibration, const struct gsv_plan *plan,
                                   int32_t n_repeated, gpuserve_error *error)
{
    struct filling f;
    gpuserve_status st =
        begin(&f, calibration, plan, N_PROBES + N_MORE_PROBES + N_DRAWN_PROBES + n_repeated,
              LONGEST_PROBE, error);

    for (int32_t i = 0; i < N_PROBES && st == GPUSERVE_OK; i++)
        st = add_probe(&f, &common_probes[i], error);
    for (int32_t i = 0; i < N_MORE_PROBES && st == GPUSERVE_OK; i++)
        st = add_probe(&f, &more_probes[i], error);
    for (int32_t i = 0; i < n_repeated && st == GPUSERVE_OK; i++)
        st = add_probe(
            &f,
            &(struct probe){ repeated_words[i % N_REPEATED_WORDS], repetitions[i % N_REPETITIONS] },
            error);
    if (st == GPUSERVE_OK)
        st = replace_unknown(&f, N_DRAWN_PROBES, n_repeated, error);
    return end(&f, st);
}

gpuserve_status gsv_calibration_make_probes(struct gsv_calibration *calibration,
                                            const struct gsv_plan *plan, gpuserve_error *error)
{
    return make_probes(calibration, plan, 0, error);
}

gpuserve_status gsv_calibration_make_int8(struct gsv_calibration *calibration,
                                          struct gsv_calibration *probes,
                                          const struct gsv_plan *plan, gpuserve_error *error)
{
    gpuserve_status st = gsv_calibration_make(calibration, plan, error);

    memset(probes, 0, sizeof(*probes));
    if (st == GPUSERVE_OK)
        st = make_probes(probes, plan, N_REPEATED, error);
    if (st == GPUSERVE_OK && probes->n_distinct < MIN_VOCABULARY) {
        gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "the error of int8 cannot be measured for this model: of its vocabulary, %d tokens "
            "are not special (min %d)",
            probes->n_distinct, MIN_VOCABULARY);
        st = gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "load it in float32");
    }
    return st;
}

void gsv_calibration_reset(struct gsv_calibration *calibration)
{
    free(calibration->memory);
    memset(calibration, 0, sizeof(*calibration));
}

GPUSERVE_API const char *gpuserve_calibration_text(size_t index)
{
    return index < (size_t)N_TEXTS ? texts[index] : NULL;
}
