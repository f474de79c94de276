/*
 * token_writer.h - the sink: collects the tokens of one text in a gsv_encoding.
 *
 * Characters are assembled into words (scratch->word), each completed word is split by the model or
 * found in the word cache, and its tokens and spans are appended. The number of tokens kept is
 * bounded by the token limit.
 */
#ifndef GSV_TEXT_TOKEN_WRITER_H
#define GSV_TEXT_TOKEN_WRITER_H

#include "lib/base/utf8.h"
#include "lib/text/scratch.h"
#include "lib/text/tokenizer_parts.h"

struct gsv_sink {
    const struct gsv_tokenizer *tokenizer;
    struct gsv_encoding *out;
    struct gsv_scratch *scratch;
    const char *text; /* the original text being encoded */
    size_t first;     /* index of the text's first token in out's arrays */
    size_t n;         /* index of the next token */
    size_t capacity;  /* tokens up to this index fit without gsv_sink_reserve() */
    size_t limit;     /* maximum number of tokens; SIZE_MAX: no limit */
    size_t stop;      /* encoding stops above this number of tokens */
    bool left;        /* left truncation: keep the last tokens */
    size_t dropped;   /* number of tokens found and not kept */
    bool done;        /* found enough tokens, or failed */
    bool no_memory;
    bool no_unknown; /* a character is unknown and the model has no unknown token */
};

enum {
    GSV_SINK_SLACK = GSV_CACHED_PIECES /* capacity reserved before each word */
};

/* Grow the arrays to a capacity of `needed` tokens. */
bool gsv_encoding_grow(struct gsv_encoding *encoding, size_t needed);
/* The encoding's scratch, created on first use, with a word cache for this tokenizer. NULL when out
 * of memory. */
struct gsv_scratch *gsv_encoding_scratch(struct gsv_encoding *encoding,
                                         const struct gsv_tokenizer *tokenizer);

void gsv_sink_begin(struct gsv_sink *sink, size_t first);
/* Ensure capacity for n more tokens. False if no more are accepted, see `done`. */
bool gsv_sink_reserve(struct gsv_sink *sink, size_t n);
/* Drop the tokens above the limit. Returns the number of tokens of the text; if encoding stopped
 * early, a number above the limit. */
size_t gsv_sink_finish(struct gsv_sink *sink);

static inline bool gsv_sink_has_capacity(struct gsv_sink *sink)
{
    return sink->n + GSV_SINK_SLACK <= sink->capacity || gsv_sink_reserve(sink, GSV_SINK_SLACK);
}

static inline void gsv_sink_token(struct gsv_sink *sink, int32_t id, uint32_t begin, uint32_t end)
{
    if (!gsv_sink_has_capacity(sink))
        return;
    sink->out->ids[sink->n] = id;
    sink->out->spans[sink->n++] = (gpuserve_span){ begin, end };
}

/* Ensure a capacity of n bytes for the word. */
bool gsv_word_reserve(struct gsv_word *word, size_t n);

/* Append a character to scratch->word. */
static inline void gsv_sink_char(struct gsv_sink *sink, uint32_t c, uint32_t begin, uint32_t end)
{
    struct gsv_word *w = &sink->scratch->word;
    size_t length;

    if (w->n_chars > sink->tokenizer->model.max_chars) { /* unknown whatever follows */
        w->spans[w->n - 1].end = end;
        return;
    }
    if ((w->n + 4 > w->bytes_capacity || w->n + 4 > w->spans_capacity) &&
        !gsv_word_reserve(w, w->n + 4)) {
        sink->done = sink->no_memory = true;
        return;
    }
    length = gsv_utf8_encode(c, w->bytes + w->n);
    for (size_t i = 0; i < length; i++)
        w->spans[w->n + i] = (gpuserve_span){ begin, end };
    w->n += length;
    w->n_chars++;
}
/* Append text[begin, end), all ASCII, to the word, with `fold` (0x20 or 0) set in each byte. */
void gsv_sink_ascii(struct gsv_sink *sink, const char *text, size_t begin, size_t end,
                    unsigned char fold);
/* End the word and emit its tokens; an empty word has none. */
void gsv_sink_word(struct gsv_sink *sink);
/* Look up a word of at most GSV_CACHED_BYTES by its key; NULL on a cache miss. */
static inline const struct gsv_cached_word *gsv_sink_cached(const struct gsv_sink *sink,
                                                            const uint64_t key[2])
{
    const struct gsv_cached_word *cached = gsv_cache_slot(sink->scratch->cache, key);

    return cached->key[0] == key[0] && cached->key[1] == key[1] ? cached : NULL;
}
/* Split a word and insert it into the cache. NULL if it has too many tokens for a cache line; then
 * its *n tokens are in scratch->pieces. */
const struct gsv_cached_word *gsv_sink_look_up(struct gsv_sink *sink, const uint64_t key[2],
                                               size_t size, size_t n_chars, size_t *n);

#endif
