/*
 * fuzz_unigram.c - arbitrary lines as vocabulary pieces, the last line as the word to split.
 *
 * The first character of a line encodes the piece's score. Checks: the resulting pieces cover the
 * word from begin to end without gaps and match its text.
 */
#include "fuzz/fuzz.h"

#include "lib/base/utf8.h"
#include "lib/text/scratch.h"
#include "lib/text/models/unigram.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PIECES = 256 };

/* Reads all lines except the last one; returns the offset of the last. */
static size_t read_pieces(struct gsv_vocab *vocab, struct gsv_unigram *m, const char *text,
                          size_t size)
{
    const struct gsv_json_reader reader = { text, text, text + size, "fuzz" };
    const char *newline;
    size_t at = 0;

    if (gsv_vocab_reserve(vocab, size + 1, "fuzz", NULL) != GPUSERVE_OK)
        abort();
    while (vocab->n < MAX_PIECES && (newline = memchr(text + at, '\n', size - at))) {
        const size_t end = (size_t)(newline - text);

        if (end > at && !memchr(text + at, '\\', end - at)) { /* no escapes */
            if (gsv_vocab_add(vocab, &reader,
                              (struct gsv_json_slice){ text + at + 1, end - at - 1 },
                              NULL) != GPUSERVE_OK)
                abort();
            m->scores[m->n_scores++] = -(double)(text[at] % 16) / 3;
        }
        at = end + 1;
    }
    return at;
}

/* A byte-fallback piece such as "<0xC3>", which matches any text. */
static bool is_byte(const char *text, size_t length)
{
    return length == 6 && memcmp(text, "<0x", 3) == 0;
}

static void check_split(const struct gsv_unigram *m, const struct gsv_vocab *vocab,
                        const char *word, size_t size, struct gsv_scratch *s)
{
    const size_t n = gsv_unigram_split(m, word, size, s);
    size_t begin = 0, at = 0;

    if (n == 0 ? s->failure == GSV_SPLIT_GOOD : s->failure != GSV_SPLIT_GOOD)
        abort();
    for (size_t i = 0; i < n; i++) {
        const struct gsv_piece piece = s->pieces[i];
        size_t length = 0;
        const char *text = gsv_vocab_text(vocab, piece.id, &length);

        if (!text || piece.end < at || piece.end > size)
            abort();
        if (piece.end != at)
            begin = at;
        at = piece.end;
        if (piece.id != m->unknown && !is_byte(text, length) &&
            (length != at - begin || memcmp(text, word + begin, length) != 0))
            abort();
    }
    if (n > 0 && at != size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gsv_vocab vocab = { 0 };
    struct gsv_unigram m = { 0 };
    struct gsv_scratch scratch = { 0 };
    const char *text = (const char *)data + 1;
    size_t at;

    if (size < 2 || gsv_utf8_valid_length(text, size - 1) != size - 1)
        return 0;
    size--;
    m.scores = calloc(MAX_PIECES, sizeof(*m.scores));
    scratch.pieces = calloc(size, sizeof(*scratch.pieces));
    if (!m.scores || !scratch.pieces)
        abort();
    at = read_pieces(&vocab, &m, text, size);
    m.byte_fallback = data[0] & 1;
    m.unknown = vocab.n > 0 && data[0] & 2 ? (int32_t)((data[0] >> 2) % vocab.n) : -1;
    if (gsv_vocab_finish(&vocab, "fuzz", NULL) != GPUSERVE_OK ||
        gsv_unigram_build(&m, &vocab, "fuzz", NULL) != GPUSERVE_OK)
        abort();
    if (at < size)
        check_split(&m, &vocab, text + at, size - at, &scratch);
    gsv_unigram_reset(&m);
    gsv_vocab_reset(&vocab);
    free(scratch.pieces);
    free(scratch.ways);
    return 0;
}
