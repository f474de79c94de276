/*
 * scratch.h - the buffers of one gsv_encoding, reused from text to text, and its cache of words.
 *
 * The cache holds what words came to: most words of a text are among a few thousand. It is
 * direct-mapped and of a fixed size. It belongs to the tokenizer whose serial it has.
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

/* One cache line. All zero is no word. */
struct gsv_cached_word {
    uint64_t key[2]; /* the normalized word's bytes, zeros, and its length in the last byte */
    int32_t ids[GSV_CACHED_PIECES];
    uint8_t ends[GSV_CACHED_PIECES];
    uint8_t n;
    uint8_t unused[7];
};

/* A normalized word being put together. Of one longer than the model's limit only the limit and
 * one character more are kept, and the span of the last byte grows. */
struct gsv_word {
    char *bytes;          /* [n] */
    gpuserve_span *spans; /* [n] the bytes of the text that each byte stands for */
    size_t n, n_chars;
    size_t bytes_capacity, spans_capacity;
};

/* Why a word came to no pieces. */
enum gsv_split_failure {
    GSV_SPLIT_GOOD,
    GSV_SPLIT_NO_MEMORY,
    GSV_SPLIT_NO_UNKNOWN, /* it is unknown, and the model has no token for that */
};

struct gsv_scratch {
    uint64_t serial;
    struct gsv_cached_word *cache; /* [1 << GSV_CACHE_BITS] */
    struct gsv_word word;
    struct gsv_piece *pieces;
    size_t pieces_capacity;
    struct gsv_best_way *ways; /* [bytes of a word + 1] of Unigram */
    size_t ways_capacity;
    enum gsv_split_failure failure;
    struct gsv_normal_buffers normal;
    struct gsv_pretokens pretokens;
    char *bytes; /* normalized text, where added tokens are looked for */
    size_t bytes_capacity;
    uint32_t *char_of; /* [bytes] which character a byte is of */
    size_t char_of_capacity;
    struct gsv_bpe_work bpe;
    uint64_t steps; /* of tries and merges, since it was made: how tests count work */
};

static inline struct gsv_cached_word *gsv_cache_slot(struct gsv_cached_word *cache,
                                                     const uint64_t key[2])
{
    /* The odd numbers are from the digits of the golden ratio and of sqrt 3. */
    const uint64_t h = (key[0] * 0x9E3779B97F4A7C15u) ^ (key[1] * 0xBB67AE8584CAA73Bu);

    return &cache[(h ^ h >> 29) * 0x9E3779B97F4A7C15u >> (64 - GSV_CACHE_BITS)];
}

#endif
