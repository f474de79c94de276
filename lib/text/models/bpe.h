/*
 * bpe.h - a word to its pieces by byte pair encoding: of all neighbours that a merge joins, those
 * of the lowest rank first, and of these the leftmost.
 *
 * A word is taken in chunks: where two characters stand side by side in no token of the vocabulary,
 * no merge can join what is left of them with what is right. A short chunk is merged at once
 * (bpe_chunk.c), a long one in windows (bpe_long.c).
 */
#ifndef GSV_TEXT_BPE_H
#define GSV_TEXT_BPE_H

#include "lib/base/json_fields.h"
#include "lib/text/models/trie.h"
#include "lib/text/models/vocab.h"
#include "lib/text/models/wordpiece.h"

struct gsv_bpe_merge {
    uint64_t pair; /* the ids that are joined; UINT64_MAX: an empty slot */
    uint32_t rank;
    int32_t id; /* what they become */
};

/* A character as the vocabulary has it, at one of the places of a word. */
struct gsv_bpe_char {
    uint32_t key; /* place << 21 | character; UINT32_MAX: an empty slot */
    int32_t id;
};

/* Bits of a place: the prefix and the suffix are there. */
enum { GSV_BPE_INNER = 1, GSV_BPE_LAST = 2, GSV_BPE_PLACES = 4 };

struct gsv_bpe {
    char *prefix, *suffix; /* of characters behind the first one, and of the last; owned */
    int32_t unknown;       /* -1: what is unknown is left out */
    bool has_unknown;      /* the file names one, be it in the vocabulary or not */
    bool fuses_unknown;
    bool falls_back; /* a character that is no token becomes the tokens of its bytes */
    bool ignores_merges;
    struct gsv_bpe_merge *merges; /* [n_slots] open addressing */
    size_t n_slots, n_merges;
    /* All below is made by gsv_bpe_build. */
    bool bytes;   /* a word's bytes are its characters */
    bool places;  /* there is a prefix or a suffix: the place of a character matters */
    bool one_way; /* a token is always made of the same symbols */
    int32_t low[GSV_BPE_PLACES][256]; /* characters (or bytes) below 256; -1 */
    struct gsv_bpe_char *chars;       /* [n_chars] all others: open addressing */
    size_t n_chars;
    int32_t byte_ids[256]; /* of "<0x00>" and so on; -1 */
    uint64_t *joined;      /* bits: which two characters stand side by side in a token */
    uint64_t *may_merge;   /* bits, 16 for each merge: of a pair that has none there is none */
    unsigned pair_shift;   /* what a hash is shifted by to be the place of such a bit */
    struct gsv_trie words; /* with ignores_merges: all tokens */
    int32_t *word_ids;     /* [words.n] -1 */
};

/* A character, or what stands for one, before anything is merged. */
struct gsv_bpe_symbol {
    int32_t id;
    uint32_t size; /* bytes of the word */
};

/* A symbol, or the token that several have become, while they are merged. */
struct gsv_bpe_node {
    int32_t id;
    uint32_t size;
    uint32_t width; /* symbols it was made of; the last one of these has it too */
    int32_t merged; /* what it and the next one become, if there is such a merge */
};

/* A token of a chunk. */
struct gsv_bpe_token {
    int32_t id;
    uint32_t size;
    uint32_t first; /* of the chunk's symbols that it was made of */
};

/* Buffers of one thread. */
struct gsv_bpe_work {
    struct gsv_bpe_symbol *symbols; /* a chunk */
    struct gsv_bpe_node *window;    /* a short one, or a part of a long one, while it is merged */
    struct gsv_bpe_token *merged;   /* what a long one has come to so far */
    uint64_t *ranks;                /* of merges, see bpe_chunk.c */
    size_t symbols_capacity, window_capacity, merged_capacity, ranks_capacity;
};

enum { GSV_BPE_NO_MEMORY = -1 };

#define GSV_BPE_NO_PAIR UINT64_MAX
#define GSV_BPE_NO_CHAR UINT32_MAX

static inline uint64_t gsv_bpe_hash(uint64_t key)
{
    /* The odd number is from the digits of the golden ratio. */
    const uint64_t h = key * 0x9E3779B97F4A7C15u;

    return h ^ h >> 29;
}

enum { GSV_BPE_JOINED_BITS = 18 };

/* The bit of two characters in `joined`: of bytes one each, of others by chance several. */
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

/* The merge of two tokens, after gsv_bpe_build; NULL: there is none. Most have none, and the bits,
 * which stay in a cache where the slots do not, tell that of nearly all. */
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

/* From the members of "model"; the vocabulary has been read. */
gpuserve_status gsv_bpe_read(struct gsv_bpe *model, const struct gsv_member *fields,
                             const struct gsv_vocab *vocab, const char *name,
                             gpuserve_error *error);
/* The merges alone, from the text of merges.txt; the vocabulary has been read. */
gpuserve_status gsv_bpe_read_merges(struct gsv_bpe *model, const char *text, size_t size,
                                    const struct gsv_vocab *vocab, const char *name,
                                    gpuserve_error *error);
/* Add a merge of two tokens; one of a pair that is there takes its place. False: no memory. */
bool gsv_bpe_add_merge(struct gsv_bpe *model, int32_t left, int32_t right, int32_t id,
                       uint32_t rank);
/* Whether one of this pair has been added; before gsv_bpe_build. */
bool gsv_bpe_has_merge(const struct gsv_bpe *model, int32_t left, int32_t right);
/* Once prefix, suffix, unknown, the flags and the merges are there. `bytes`: words come as bytes,
 * and the vocabulary writes them by GPT-2's alphabet. */
gpuserve_status gsv_bpe_build(struct gsv_bpe *model, const struct gsv_vocab *vocab, bool bytes,
                              const char *name, gpuserve_error *error);
void gsv_bpe_reset(struct gsv_bpe *model);
size_t gsv_bpe_bytes(const struct gsv_bpe *model);

/* The pieces of a word of 1 or more bytes, into room for `size` of them; returns how many, or
 * GSV_BPE_NO_MEMORY. *steps is increased by the comparisons of ranks and the symbols. */
ptrdiff_t gsv_bpe_split(const struct gsv_bpe *model, const char *word, size_t size,
                        struct gsv_bpe_work *work, struct gsv_piece *pieces, uint64_t *steps);
/* Merge n of work->symbols, n > 0, into work->window, where the token after the one at i is at
 * i + window[i].width. False: no memory. */
bool gsv_bpe_merge(const struct gsv_bpe *model, struct gsv_bpe_work *work, size_t begin, size_t n,
                   uint64_t *steps);
/* A chunk of n symbols into work->merged; returns how many are left, or GSV_BPE_NO_MEMORY. */
ptrdiff_t gsv_bpe_merge_long(const struct gsv_bpe *model, struct gsv_bpe_work *work, size_t n,
                             uint64_t *steps);
void gsv_bpe_work_reset(struct gsv_bpe_work *work);

#endif
