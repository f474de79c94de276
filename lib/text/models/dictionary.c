/*
 * dictionary.c - looks up whole words, as sentence-transformers' WhitespaceTokenizer does.
 */
#include "lib/text/models/dictionary.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/text/scratch.h"
#include "lib/text/unicode/unicode.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- reading */

static gpuserve_status add_word(struct gsv_vocab *vocab, struct gsv_json_reader *r,
                                const char *list, gpuserve_error *error)
{
    struct gsv_json_slice text;
    const gpuserve_status status = gsv_json_reader_value(r, &text, error);

    if (status != GPUSERVE_OK)
        return status;
    if (*text.at != '"')
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"%s\": element %zu is not a text", r->name,
                        list, vocab->n);
    return gsv_vocab_add(vocab, r, (struct gsv_json_slice){ text.at + 1, text.size - 2 }, error);
}

static gpuserve_status read_list(struct gsv_vocab *vocab, struct gsv_json_slice words,
                                 const char *list, const char *name, gpuserve_error *error)
{
    struct gsv_json_reader reader = gsv_json_reader_of(words, name);
    gpuserve_status status = gsv_json_reader_open(&reader, '[', error);

    if (status == GPUSERVE_OK) /* the words' text is no larger than the list */
        status = gsv_vocab_reserve(vocab, words.size, name, error);
    for (bool first = true, more = true; status == GPUSERVE_OK; first = false) {
        status = gsv_json_reader_element(&reader, first, &more, error);
        if (status != GPUSERVE_OK || !more)
            break;
        status = add_word(vocab, &reader, list, error);
    }
    return status == GPUSERVE_OK ? gsv_vocab_finish(vocab, name, error) : status;
}

gpuserve_status gsv_dictionary_read(struct gsv_dictionary *dictionary, struct gsv_vocab *vocab,
                                    struct gsv_json_slice words, struct gsv_json_slice stop_words,
                                    const char *name, gpuserve_error *error)
{
    gpuserve_status status;

    if (!words.at)
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"vocab\" is missing", name);
    status = read_list(vocab, words, "vocab", name, error);
    if (status == GPUSERVE_OK && vocab->n == 0)
        status = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: \"vocab\" is empty", name);
    if (status == GPUSERVE_OK && stop_words.at)
        status = read_list(&dictionary->stops, stop_words, "stop_words", name, error);
    return status;
}

void gsv_dictionary_reset(struct gsv_dictionary *dictionary)
{
    gsv_vocab_reset(&dictionary->stops);
}

/* -------------------------------------------------------------------------------------- look-up */

/* Python's string.punctuation. */
static bool is_punctuation(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* True if the search ends: *id is a token, or -1 for a stop word. */
static bool is_found(const struct gsv_dictionary *d, const char *word, size_t size, int32_t *id)
{
    *id = -1;
    if (size == 0)
        return false;
    if (d->stops.n_hashed > 0 && gsv_vocab_id(&d->stops, word, size) >= 0)
        return true;
    *id = gsv_vocab_id(d->vocab, word, size);
    return *id >= 0;
}

/* Write the lowercased word to scratch->bytes, which only texts with added tokens use otherwise.
 * SIZE_MAX: out of memory. */
static size_t lower(const char *word, size_t size, struct gsv_scratch *scratch)
{
    size_t n = 0, length;

    for (size_t at = 0; at < size; at += length) {
        uint32_t chars[GSV_UNICODE_MAX_MAPPING];
        const size_t n_chars = gsv_unicode_lower_at(word, size, at, &length, chars);

        for (size_t i = 0; i < n_chars; i++) {
            if (!gsv_grow((void **)&scratch->bytes, &scratch->bytes_capacity, n + 4, 1, SIZE_MAX))
                return SIZE_MAX;
            n += gsv_utf8_encode(chars[i], scratch->bytes + n);
        }
    }
    return n;
}

/* The token of a word, or -1. */
static int32_t find(const struct gsv_dictionary *d, const char *word, size_t size,
                    struct gsv_scratch *scratch)
{
    int32_t id;
    size_t n;

    if (is_found(d, word, size, &id))
        return id;
    for (; size > 0 && is_punctuation(*word); size--)
        word++;
    while (size > 0 && is_punctuation(word[size - 1]))
        size--;
    if (is_found(d, word, size, &id))
        return id;
    n = lower(word, size, scratch);
    if (n == SIZE_MAX) {
        scratch->failure = GSV_SPLIT_NO_MEMORY;
        return -1;
    }
    (void)is_found(d, scratch->bytes, n, &id);
    return id;
}

/* White space of Python's str.split() that is none of the pre-tokenizer: the separators of ASCII.
 */
static bool is_separator(char c)
{
    return c >= 0x1C && c <= 0x1F;
}

size_t gsv_dictionary_split(const struct gsv_dictionary *d, const char *word, size_t size,
                            struct gsv_scratch *scratch)
{
    size_t n = 0;

    for (size_t begin = 0, end; begin < size; begin = end + 1) {
        int32_t id = -1;

        for (end = begin; end < size && !is_separator(word[end]); end++)
            ;
        if (end > begin)
            id = find(d, word + begin, end - begin, scratch);
        if (id >= 0)
            scratch->pieces[n++] = (struct gsv_piece){ id, (uint32_t)end };
    }
    return n;
}
