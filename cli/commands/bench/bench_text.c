/*
 * bench_text.c - generates English-like texts of given token counts, identical on all machines.
 *
 * Texts are common words in pseudo-random order. The speed of a transformer depends only on the
 * number of tokens; the tokenizer gets real words. Deterministic for a seed.
 */
#include "cli/commands/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MU 3.35
#define SIGMA 0.8
#define SHORTEST 3
#define LONGEST_WORD 16
#define MAX_ROUNDS 1000

static const char *const words[] = {
    "the",   "of",     "and",     "to",      "in",     "a",       "is",     "that",   "for",
    "it",    "was",    "on",      "are",     "with",   "as",      "be",     "at",     "one",
    "have",  "this",   "from",    "by",      "not",    "but",     "what",   "all",    "were",
    "when",  "we",     "there",   "can",     "an",     "your",    "which",  "their",  "if",
    "will",  "each",   "about",   "how",     "up",     "out",     "them",   "then",   "she",
    "many",  "some",   "so",      "these",   "would",  "other",   "into",   "has",    "more",
    "her",   "two",    "like",    "him",     "see",    "time",    "could",  "no",     "make",
    "than",  "first",  "been",    "its",     "who",    "now",     "people", "my",     "made",
    "over",  "did",    "down",    "only",    "way",    "find",    "use",    "may",    "water",
    "long",  "little", "very",    "after",   "words",  "called",  "just",   "where",  "most",
    "know",  "get",    "through", "back",    "much",   "before",  "go",     "good",   "new",
    "write", "our",    "used",    "me",      "man",    "too",     "any",    "day",    "same",
    "right", "look",   "think",   "also",    "around", "another", "came",   "come",   "work",
    "three", "word",   "must",    "because", "does",   "part",    "even",   "place",  "well",
    "such",  "here",   "take",    "why",     "things", "help",    "put",    "years",  "different",
    "away",  "again",  "off",     "went",    "old",    "number",  "great",  "tell",   "men",
    "say",   "small",  "every",   "found",   "still",  "between", "name",   "should", "home",
    "big",   "give",   "air",     "line",    "set",    "own",     "under",  "read",   "last",
    "never", "us",     "left",    "end",     "along",  "while",
};

#define N_WORDS (sizeof(words) / sizeof(words[0]))

/* Never 0: the logarithm is finite. */
double cli_bench_uniform(uint64_t *state)
{
    return (double)((cli_random(state) >> 11) + 1) * 0x1p-53;
}

size_t cli_bench_length(uint64_t *random, size_t max_length)
{
    const double radius = sqrt(-2 * log(cli_bench_uniform(random)));
    const double normal = radius * cos(2 * 3.14159265358979323846 * cli_bench_uniform(random));
    const double length = exp(MU + SIGMA * normal);

    if (length >= (double)max_length)
        return max_length;
    return length < SHORTEST ? SHORTEST : (size_t)length;
}

void cli_bench_add(struct bench_texts *texts, const char *text, size_t size)
{
    size_t capacity = texts->capacity;

    texts->texts = cli_grow(texts->texts, &capacity, texts->n + 1, sizeof(*texts->texts));
    texts->sizes = cli_grow(texts->sizes, &texts->capacity, texts->n + 1, sizeof(*texts->sizes));
    texts->texts[texts->n] = cli_copy(text, size);
    texts->sizes[texts->n++] = size;
}

void cli_bench_free(struct bench_texts *texts)
{
    for (size_t i = 0; i < texts->n; i++)
        free(texts->texts[i]);
    free(texts->texts);
    free(texts->sizes);
    memset(texts, 0, sizeof(*texts));
}

static int count_tokens(gpuserve_model *model, const char *text, size_t size, size_t *n)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status = gpuserve_tokenize(model, text, size, NULL, NULL, 0, n, NULL, &error);

    if (status == GPUSERVE_OK || status == GPUSERVE_E_TOO_LARGE)
        return CLI_OK;
    return cli_fail_with(&error, NULL);
}

int cli_bench_add_made(struct bench_texts *texts, gpuserve_model *model, size_t n_tokens,
                       uint64_t *random)
{
    const size_t capacity = n_tokens * LONGEST_WORD + LONGEST_WORD;
    char *text = cli_alloc(capacity, 1);
    size_t size = 0, n = 0, n_words = n_tokens;
    int result = CLI_OK;

    /* In most vocabularies each of these words is one token. So each round adds the number of
     * missing words, then counts the tokens. A round that exceeds n_tokens is undone, and the next
     * one adds half as many words. */
    for (int round = 0; result == CLI_OK; round++) {
        const size_t before = size;

        result = count_tokens(model, text, size, &n);
        if (result != CLI_OK || n >= n_tokens || round > MAX_ROUNDS)
            break;
        if (n_tokens - n < n_words)
            n_words = n_tokens - n;
        for (size_t k = n_words; k && size + LONGEST_WORD < capacity; k--) {
            const char *word = words[cli_random(random) % N_WORDS];

            if (size)
                text[size++] = ' ';
            memcpy(text + size, word, strlen(word));
            size += strlen(word);
        }
        result = count_tokens(model, text, size, &n);
        if (result == CLI_OK && n > n_tokens) {
            size = before;
            n_words = n_words > 1 ? n_words / 2 : 1;
        }
    }
    if (result == CLI_OK && n != n_tokens)
        result = cli_fail("bench cannot generate a text of %zu tokens for this model", n_tokens);
    if (result == CLI_OK)
        cli_bench_add(texts, text, size);
    free(text);
    return result;
}
