/*
 * token_writer.h - where the tokens of one text go: the arrays of a gsv_encoding, and no more of
 * them than are wanted.
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
    const char *text; /* whose tokens come, as given */
    size_t first;     /* where the text's tokens begin in out's arrays */
    size_t n;         /* where the next one goes */
    size_t room;      /* up to where there is place without asking */
    size_t limit;     /* tokens wanted; SIZE_MAX: all */
    size_t stop;      /* with more tokens than this no more need be found */
    bool left;        /* the last ones are wanted, not the first */
    size_t dropped;   /* tokens that were found and not kept */
    bool done;        /* found enough, or out of memory */
    bool no_memory;
    bool no_unknown; /* a character is unknown, and the model has no token for that */
};

enum {
    GSV_SINK_SLACK = GSV_CACHED_PIECES /* place asked for before a word */
};

/* Place for `needed` tokens in all. */
bool gsv_encoding_grow(struct gsv_encoding *encoding, size_t needed);
/* The encoding's scratch, made if need be, its cache that of the tokenizer; NULL: no memory. */
struct gsv_scratch *gsv_encoding_scratch(struct gsv_encoding *encoding,
                                         const struct gsv_tokenizer *tokenizer);

void gsv_sink_begin(struct gsv_sink *sink, size_t first);
/* Place for n more tokens; false when no more are to come, see `done`. */
bool gsv_sink_make_room(struct gsv_sink *sink, size_t n);
/* Drop what is over the limit; returns how many tokens the text had (or that it has too many). */
size_t gsv_sink_finish(struct gsv_sink *sink);

static inline bool gsv_sink_has_room(struct gsv_sink *sink)
{
    return sink->n + GSV_SINK_SLACK <= sink->room || gsv_sink_make_room(sink, GSV_SINK_SLACK);
}

static inline void gsv_sink_token(struct gsv_sink *sink, int32_t id, uint32_t begin, uint32_t end)
{
    if (!gsv_sink_has_room(sink))
        return;
    sink->out->ids[sink->n] = id;
    sink->out->spans[sink->n++] = (gpuserve_span){ begin, end };
}

/* Place for n bytes of a word in all. */
bool gsv_word_reserve(struct gsv_word *word, size_t n);

/* A character of the word that is being put together in scratch->word. */
static inline void gsv_sink_char(struct gsv_sink *sink, uint32_t c, uint32_t begin, uint32_t end)
{
    struct gsv_word *w = &sink->scratch->word;
    size_t length;

    if (w->n_chars > sink->tokenizer->model.max_chars) { /* unknown however it goes on */
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
/* Its next characters are text[begin, end), all ASCII, with `fold` (0x20 or 0) set in each. */
void gsv_sink_ascii(struct gsv_sink *sink, const char *text, size_t begin, size_t end,
                    unsigned char fold);
/* That word is complete: its tokens. No word is no token. */
void gsv_sink_word(struct gsv_sink *sink);
/* The pieces of a word of at most GSV_CACHED_BYTES by its key, NULL when it is not in the cache. */
static inline const struct gsv_cached_word *gsv_sink_cached(const struct gsv_sink *sink,
                                                            const uint64_t key[2])
{
    const struct gsv_cached_word *cached = gsv_cache_slot(sink->scratch->cache, key);

    return cached->key[0] == key[0] && cached->key[1] == key[1] ? cached : NULL;
}
/* Split such a word and put it into the cache. NULL when it has too many pieces for it: then they
 * are in scratch->pieces, *n of them. */
const struct gsv_cached_word *gsv_sink_look_up(struct gsv_sink *sink, const uint64_t key[2],
                                               size_t size, size_t n_chars, size_t *n);

#endif
