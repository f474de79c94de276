/*
 * token_writer.c - the sink: collects the tokens of one text in a gsv_encoding.
 *
 * Tokens above the limit are also written, up to 2 * limit + MORE_THAN_LIMIT. Then the surplus is
 * dropped at once: amortized O(1) for each token, and memory is bounded by the limit, not by the
 * size of the text.
 */
#include "lib/text/pipeline/token_writer.h"

#include "lib/base/alloc.h"
#include "lib/text/pipeline/spans.h"

#include <stdlib.h>

enum { MORE_THAN_LIMIT = 4096 };

void gsv_sink_begin(struct gsv_sink *s, size_t first)
{
    s->first = s->n = first;
    s->capacity = first; /* no capacity yet: the first word calls gsv_sink_reserve() */
    s->dropped = 0;
    s->scratch->word.n = s->scratch->word.n_chars = 0;
}

/* Keep only the tokens within the limit. */
static void drop_surplus(struct gsv_sink *s)
{
    const size_t kept = s->n - s->first;
    const size_t surplus = kept > s->limit ? kept - s->limit : 0;

    if (s->left && surplus) {
        memmove(s->out->ids + s->first, s->out->ids + s->first + surplus,
                s->limit * sizeof(*s->out->ids));
        memmove(s->out->spans + s->first, s->out->spans + s->first + surplus,
                s->limit * sizeof(*s->out->spans));
    }
    s->n -= surplus;
    s->dropped += surplus;
}

/* Grow the three arrays alike. If one allocation fails, the common capacity does not change. */
bool gsv_encoding_grow(struct gsv_encoding *e, size_t needed)
{
    size_t for_ids = e->capacity, for_types = for_ids, for_spans = for_ids;

    if (needed <= e->capacity)
        return true;
    if (!gsv_grow((void **)&e->ids, &for_ids, needed, sizeof(*e->ids), SIZE_MAX) ||
        !gsv_grow((void **)&e->type_ids, &for_types, needed, sizeof(*e->type_ids), SIZE_MAX) ||
        !gsv_grow((void **)&e->spans, &for_spans, needed, sizeof(*e->spans), SIZE_MAX))
        return false;
    e->capacity = for_ids;
    return true;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool gsv_sink_reserve(struct gsv_sink *s, size_t n)
{
    size_t max_tokens = SIZE_MAX;

    if (s->done)
        return false;
    if (s->dropped + s->n - s->first > s->stop) {
        s->done = true;
        return false;
    }
    if (s->limit < SIZE_MAX / 4)
        max_tokens = s->first + 2 * s->limit + MORE_THAN_LIMIT + GSV_SINK_SLACK;
    if (s->n + n > max_tokens)
        drop_surplus(s);
    if (!gsv_encoding_grow(s->out, s->n + n)) {
        s->done = s->no_memory = true;
        return false;
    }
    s->capacity = smaller(max_tokens, s->out->capacity);
    if (s->stop < SIZE_MAX / 4) /* the first word above `stop` must call gsv_sink_reserve() */
        s->capacity = smaller(s->capacity, s->first + s->stop + GSV_SINK_SLACK);
    if (s->capacity < s->n + n)
        s->capacity = s->n + n;
    return true;
}

size_t gsv_sink_finish(struct gsv_sink *s)
{
    drop_surplus(s);
    return s->dropped + s->n - s->first;
}

/* The word cache is empty in a new scratch, and cleared if it belongs to another tokenizer. */
struct gsv_scratch *gsv_encoding_scratch(struct gsv_encoding *e, const struct gsv_tokenizer *t)
{
    struct gsv_scratch *scratch = e->scratch;
    const size_t cache_bytes = sizeof(*scratch->cache) << GSV_CACHE_BITS;

    if (!scratch) {
        scratch = gsv_alloc_array(1, sizeof(*scratch));
        if (!scratch)
            return NULL;
        e->scratch = scratch;
    }
    if (!scratch->cache) {
        scratch->cache = gsv_alloc_aligned(cache_bytes);
        if (!scratch->cache)
            return NULL;
    } else if (scratch->serial == t->serial) {
        return scratch;
    }
    memset(scratch->cache, 0, cache_bytes);
    scratch->serial = t->serial;
    return scratch;
}

void gsv_encoding_reset(struct gsv_encoding *e)
{
    struct gsv_scratch *scratch = e->scratch;

    if (scratch) {
        gsv_free_aligned(scratch->cache);
        free(scratch->word.bytes);
        free(scratch->word.spans);
        free(scratch->pieces);
        free(scratch->ways);
        gsv_normal_buffers_reset(&scratch->normal);
        gsv_pretokens_reset(&scratch->pretokens);
        free(scratch->bytes);
        free(scratch->char_of);
        gsv_bpe_work_reset(&scratch->bpe);
        free(scratch);
    }
    free(e->ids);
    free(e->type_ids);
    free(e->spans);
    *e = (struct gsv_encoding){ 0 };
}

bool gsv_word_reserve(struct gsv_word *w, size_t n)
{
    return gsv_grow((void **)&w->bytes, &w->bytes_capacity, n, 1, SIZE_MAX) &&
           gsv_grow((void **)&w->spans, &w->spans_capacity, n, sizeof(*w->spans), SIZE_MAX);
}

void gsv_sink_ascii(struct gsv_sink *s, const char *text, size_t begin, size_t end,
                    unsigned char fold)
{
    struct gsv_word *w = &s->scratch->word;
    const size_t max_tokens =
        s->tokenizer->model.max_chars + 1; /* maximum number of characters kept */
    const size_t left = w->n_chars < max_tokens ? max_tokens - w->n_chars : 0;
    const size_t n = smaller(left, end - begin);

    if (!gsv_word_reserve(w, w->n + n)) {
        s->done = s->no_memory = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        w->bytes[w->n + i] = (char)((unsigned char)text[begin + i] | fold);
        w->spans[w->n + i] = (gpuserve_span){ (uint32_t)(begin + i), (uint32_t)(begin + i + 1) };
    }
    w->n += n;
    w->n_chars += n;
    w->spans[w->n - 1].end = (uint32_t)end;
}

static size_t split(struct gsv_sink *s, const char *word, size_t size, size_t n_chars)
{
    struct gsv_scratch *scratch = s->scratch;
    size_t n;

    if (!gsv_grow((void **)&scratch->pieces, &scratch->pieces_capacity, size,
                  sizeof(*scratch->pieces), SIZE_MAX)) {
        s->done = s->no_memory = true;
        return 0;
    }
    scratch->failure = GSV_SPLIT_GOOD;
    n = gsv_token_model_split(&s->tokenizer->model, word, size, n_chars, scratch);
    s->no_memory = s->no_memory || scratch->failure == GSV_SPLIT_NO_MEMORY;
    s->no_unknown = s->no_unknown || scratch->failure == GSV_SPLIT_NO_UNKNOWN;
    s->done = s->done || scratch->failure;
    return n;
}

const struct gsv_cached_word *gsv_sink_look_up(struct gsv_sink *s, const uint64_t key[2],
                                               size_t size, size_t n_chars, size_t *n)
{
    struct gsv_cached_word *cached = gsv_cache_slot(s->scratch->cache, key);
    size_t n_pieces;

    n_pieces = split(s, (const char *)key, size, n_chars);
    *n = n_pieces;
    if (n_pieces == 0 || n_pieces > GSV_CACHED_PIECES)
        return NULL;
    cached->key[0] = key[0];
    cached->key[1] = key[1];
    cached->n = (uint8_t)n_pieces;
    for (size_t i = 0; i < n_pieces; i++) {
        cached->ids[i] = s->scratch->pieces[i].id;
        cached->ends[i] = (uint8_t)s->scratch->pieces[i].end;
    }
    return cached;
}

/* Range of a word's last subword token. */
struct span_cursor {
    const gpuserve_span *spans; /* of the word's bytes */
    size_t begin, end;
};

/* Subword tokens with the same end are the byte tokens of one unknown text: each has its whole
 * span. */
static inline gpuserve_span next_span(struct span_cursor *at, size_t end)
{
    if (end != at->end)
        at->begin = at->end;
    at->end = end;
    return (gpuserve_span){ at->spans[at->begin].begin, at->spans[end - 1].end };
}

/* Append a token of the model. */
static inline void put_piece(struct gsv_sink *s, int32_t id, gpuserve_span span)
{
    const struct gsv_trim *const trims = s->tokenizer->trims;

    if (trims)
        span = gsv_trim_span(s, trims[id], span);
    s->out->ids[s->n] = id;
    s->out->spans[s->n++] = span;
}

static void put_cached(struct gsv_sink *s, const struct gsv_cached_word *cached)
{
    struct span_cursor cursor = { s->scratch->word.spans, 0, 0 };

    if (!gsv_sink_has_capacity(s))
        return;
    for (size_t i = 0; i < cached->n; i++)
        put_piece(s, cached->ids[i], next_span(&cursor, cached->ends[i]));
}

static void put_pieces(struct gsv_sink *s, size_t n)
{
    struct span_cursor cursor = { s->scratch->word.spans, 0, 0 };
    const struct gsv_piece *pieces = s->scratch->pieces;

    if (s->n + n > s->capacity && !gsv_sink_reserve(s, n))
        return;
    for (size_t i = 0; i < n; i++)
        put_piece(s, pieces[i].id, next_span(&cursor, pieces[i].end));
}

void gsv_sink_word(struct gsv_sink *s)
{
    struct gsv_word *w = &s->scratch->word;
    const struct gsv_cached_word *cached = NULL;
    size_t n = 0;

    if (w->n == 0 || s->done)
        return;
    if (w->n <= GSV_CACHED_BYTES && w->n_chars > 1) { /* the trie is as fast for one character */
        uint64_t key[2] = { 0, 0 };

        memcpy(key, w->bytes, w->n);
        ((unsigned char *)key)[GSV_CACHED_BYTES] = (unsigned char)w->n;
        cached = gsv_sink_cached(s, key);
        if (!cached)
            cached = gsv_sink_look_up(s, key, w->n, w->n_chars, &n);
    } else {
        n = split(s, w->bytes, w->n, w->n_chars);
    }
    if (cached)
        put_cached(s, cached);
    else
        put_pieces(s, n);
    w->n = w->n_chars = 0;
}
