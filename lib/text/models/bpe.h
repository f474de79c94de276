/*
 * bpe.h - byte-pair encoding (BPE): splits a word into subword tokens.
 *
 * Among all adjacent pairs of symbols with a merge, the one of lowest rank is merged first; at
 * equal rank the leftmost. This repeats until no merge applies.
 *
 * A word is processed in independent chunks. If no token of the vocabulary contains two characters
 * side by side, no merge can cross the border between them. bpe_chunk.c merges short chunks at
 * once, bpe_long.c merges long ones in windows.
 *
 * Threading: a built gsv_bpe is immutable; each thread has its own gsv_bpe_work.
 */
#ifndef GSV_TEXT_BPE_H
#define GSV_TEXT_BPE_H

#include "lib/base/json_reader.h"
#include "lib/text/models/trie.h"
#include "lib/text/models/vocab.h"
#include "lib/text/models/wordpiece.h"

struct gsv_bpe_merge {
    uint64_t pair; /* ids of both tokens, left << 32 | right; UINT64_MAX: an empty slot */
    uint32_t rank;
    int32_t id; /* id of the joined token */
};

/* A one-character token at one of the positions in a word. */
struct gsv_bpe_char {
    uint32_t key; /* position << 21 | character; UINT32_MAX: an empty slot */
    int32_t id;
};

/* Bits of the position in a word: INNER adds the prefix, LAST adds the suffix. */
enum { GSV_BPE_INNER = 1, GSV_BPE_LAST = 2, GSV_BPE_POSITIONS = 4 };

struct gsv_bpe {
    char *prefix, *suffix; /* of characters after the first, and of the last character; owned */
    int32_t unknown;       /* -1: unknown characters are dropped */
    bool has_unknown;      /* the file names an unknown token, in the vocabulary or not */
    bool fuses_unknown;
    bool falls_back; /* an unknown character becomes the tokens of its bytes */
    bool ignores_merges;
    struct gsv_bpe_merge *merges; /* [n_slots] hash table, open addressing */
    size_t n_slots, n_merges;
    /* The following fields are set by gsv_bpe_build(). */
    bool bytes;       /* byte level: each byte of a word is one character */
    bool has_affixes; /* a prefix or a suffix exists: the id depends on the position */
    bool one_way;     /* each token always results from the same symbols */
    int32_t low[GSV_BPE_POSITIONS][256]; /* ids of characters (or bytes) below 256; -1: no token */
    struct gsv_bpe_char *chars;          /* [n_chars] all other characters: open addressing */
    size_t n_chars;
    int32_t byte_ids[256]; /* ids of "<0x00>" to "<0xFF>"; -1: no token */
    uint64_t *joined;      /* bitmap of character pairs that are adjacent in a token */
    uint64_t *may_merge;   /* Bloom filter of merge pairs: one hash, 16 bits or more a merge */
    unsigned pair_shift;   /* right shift of a pair's hash that gives the bit in may_merge */
    struct gsv_trie words; /* with ignore_merges: trie of all tokens */
    int32_t *word_ids;     /* [words.n] token id by slot; -1: no token */
};

/* An initial symbol: a character, a byte, or a run of unknown characters. */
struct gsv_bpe_symbol {
    int32_t id;
    uint32_t size; /* bytes of the word */
};

/* A token during merging: one symbol, or several joined ones. */
struct gsv_bpe_node {
    int32_t id;
    uint32_t size;
    uint32_t width; /* number of its symbols; also stored at its last symbol */
    int32_t merged; /* id after the merge with the next token, if such a merge exists */
};

/* A final token of a long chunk. */
struct gsv_bpe_token {
    int32_t id;
    uint32_t size;
    uint32_t first; /* index of its first symbol in the chunk */
};

/* Buffers of one thread. */
struct gsv_bpe_work {
    struct gsv_bpe_symbol *symbols; /* symbols of the current chunk */
    struct gsv_bpe_node *window;    /* a short chunk, or a window of a long one, during merging */
    struct gsv_bpe_token *merged;   /* tokens of a long chunk so far */
    uint64_t *ranks;                /* tournament tree of merge ranks, see bpe_chunk.c */
    size_t symbols_capacity, window_capacity, merged_capacity, ranks_capacity;
};

enum { GSV_BPE_NO_MEMORY = -1 };

#define GSV_BPE_NO_PAIR UINT64_MAX
#define GSV_BPE_NO_CHAR UINT32_MAX

static inline uint64_t gsv_bpe_hash(uint64_t key)
{
    /* Multiplicative hash. The odd constant is from the digits of the golden ratio. */
    const uint64_t h = key * 0x9E3779B97F4A7C15u;

    return h ^ h >> 29;
}

enum { GSV_BPE_JOINED_BITS = 18 };

/* The bit of a character pair in `joined`. Exact for bytes; other characters may share a bit, which
 * only makes chunks longer. */
static inline size_t gsv_bpe_joined_bit(const struct gsv_bpe *m, uint32_t c, uint32_t next)
{
    if (m->bytes)
        return (size_t)c << 8 | next;
    return gsv_bpe_hash((uint64_t)c << 21 | next) >> (64 - GSV_BPE_JOINED_BITS);
}

static inline bool gsv_bpe_are_joined(const struct gsv_bpe *m, uint32_t c, uint32_t next)
{
    const size_t bit = gsv_bpe_joined_bit(m, c, next);

    return m->joined[bit / 64] >> bit % 64 & 1;
}

/* The merge of two tokens, or NULL. Most pairs have no merge, and the Bloom filter, which fits into
 * the CPU cache where the hash table does not, rejects nearly all of them. Requires
 * gsv_bpe_build(). */
static inline const struct gsv_bpe_merge *gsv_bpe_find_merge(const struct gsv_bpe *m, int32_t left,
                                                             int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const uint64_t hash = gsv_bpe_hash(pair), bit = hash >> m->pair_shift;
    size_t slot = hash & (m->n_slots - 1);

    if (!(m->may_merge[bit / 64] >> bit % 64 & 1))
        return NULL;
    while (m->merges[slot].pair != pair) {
        if (m->merges[slot].pair == GSV_BPE_NO_PAIR)
            return NULL;
        slot = (slot + 1) & (m->n_slots - 1);
    }
    return &m->merges[slot];
}

/* Read the fields of "model"; the vocabulary must have been read. */
gpuserve_status gsv_bpe_read(struct gsv_bpe *model, const struct gsv_member *fields,
                             const struct gsv_vocab *vocab, const char *name,
                             gpuserve_error *error);
/* Read only the merges, from the text of merges.txt; the vocabulary must have been read. */
gpuserve_status gsv_bpe_read_merges(struct gsv_bpe *model, const char *text, size_t size,
                                    const struct gsv_vocab *vocab, const char *name,
                                    gpuserve_error *error);
/* Add a merge; it replaces an existing merge of the same pair. False: out of memory. */
bool gsv_bpe_add_merge(struct gsv_bpe *model, int32_t left, int32_t right, int32_t id,
                       uint32_t rank);
/* True if a merge of the pair has been added. Usable before gsv_bpe_build(). */
bool gsv_bpe_has_merge(const struct gsv_bpe *model, int32_t left, int32_t right);
/* Build the tables, after prefix, suffix, unknown, the flags and the merges are set. `bytes`: words
 * are given as bytes, and the vocabulary writes them in GPT-2's byte alphabet (byte_alphabet.h). */
gpuserve_status gsv_bpe_build(struct gsv_bpe *model, const struct gsv_vocab *vocab, bool bytes,
                              const char *name, gpuserve_error *error);
void gsv_bpe_reset(struct gsv_bpe *model);
size_t gsv_bpe_bytes(const struct gsv_bpe *model);

/* Split a word of at least 1 byte; `pieces` has a capacity of `size`. Returns the number of tokens
 * or GSV_BPE_NO_MEMORY. Adds the number of symbols and of rank comparisons to *steps. */
ptrdiff_t gsv_bpe_split(const struct gsv_bpe *model, const char *word, size_t size,
                        struct gsv_bpe_work *work, struct gsv_piece *pieces, uint64_t *steps);
/* Merge `n` > 0 symbols from work->symbols[begin] into work->window. The token after the one at i
 * is at i + window[i].width. False: out of memory. */
bool gsv_bpe_merge(const struct gsv_bpe *model, struct gsv_bpe_work *work, size_t begin, size_t n,
                   uint64_t *steps);
/* Merge a chunk of n symbols into work->merged. Returns the number of tokens or
 * GSV_BPE_NO_MEMORY. */
ptrdiff_t gsv_bpe_merge_long(const struct gsv_bpe *model, struct gsv_bpe_work *work, size_t n,
                             uint64_t *steps);
void gsv_bpe_work_reset(struct gsv_bpe_work *work);

#endif
