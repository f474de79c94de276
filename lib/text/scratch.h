/*
 * scratch.h - reusable buffers of one gsv_encoding, and its word cache.
 *
 * The word cache maps a normalized word to its subword tokens. It is direct-mapped with a fixed
 * size: most words of a text are among a few thousand. The cached ids are valid only for the
 * tokenizer whose `serial` matches.
 *
 * Threading: one gsv_encoding, hence one scratch, is used by one thread at a time.
 */
#ifndef GSV_TEXT_SCRATCH_H
#define GSV_TEXT_SCRATCH_H

#include "lib/text/models/bpe.h"
#include "lib/text/pipeline/pretokenizer.h"
#include "lib/text/models/unigram.h"
#include "lib/text/models/wordpiece.h"

#include <gpuserve/gpuserve.h>

#include <string.h>

enum {
    GSV_CACHE_BITS = 12,
    GSV_CACHED_BYTES = 15, /* longest word in the cache */
    GSV_CACHED_PIECES = 8,
};

/* One cache line. All zero: empty. */
struct gsv_cached_word {
    uint64_t key[2]; /* the normalized word's bytes, zero-padded; the last byte is the length */
    int32_t ids[GSV_CACHED_PIECES];
    uint8_t ends[GSV_CACHED_PIECES];
    uint8_t n;
    uint8_t unused[7];
};

/* The normalized word being assembled. A word over the model's max_chars keeps max_chars + 1
 * characters; further characters only extend the span of the last byte. */
struct gsv_word {
    char *bytes;          /* [n] */
    gpuserve_span *spans; /* [n] bytes of the text that each byte comes from */
    size_t n, n_chars;
    size_t bytes_capacity, spans_capacity;
};

/* Why a word has no tokens. */
enum gsv_split_failure {
    GSV_SPLIT_GOOD,
    GSV_SPLIT_NO_MEMORY,
    GSV_SPLIT_NO_UNKNOWN, /* the word has unknown characters and the model has no unknown token */
};

struct gsv_scratch {
    uint64_t serial;
    struct gsv_cached_word *cache; /* [1 << GSV_CACHE_BITS] */
    struct gsv_word word;
    struct gsv_piece *pieces;
    size_t pieces_capacity;
    struct gsv_best_way *ways; /* [bytes of a word + 1] Viterbi lattice of Unigram */
    size_t ways_capacity;
    enum gsv_split_failure failure;
    struct gsv_normal_buffers normal;
    struct gsv_pretokens pretokens;
    char *bytes; /* normalized text as UTF-8, searched for added tokens */
    size_t bytes_capacity;
    uint32_t *char_of; /* [bytes] index of the character that a byte belongs to */
    size_t char_of_capacity;
    struct gsv_bpe_work bpe;
    uint64_t steps; /* of tries and merges, since creation; tests measure work with it */
};

static inline struct gsv_cached_word *gsv_cache_slot(struct gsv_cached_word *cache,
                                                     const uint64_t key[2])
{
    /* Multiplicative hash. The odd constants are digits of the golden ratio and of sqrt 3. */
    const uint64_t h = (key[0] * 0x9E3779B97F4A7C15u) ^ (key[1] * 0xBB67AE8584CAA73Bu);

    return &cache[(h ^ h >> 29) * 0x9E3779B97F4A7C15u >> (64 - GSV_CACHE_BITS)];
}

#endif
