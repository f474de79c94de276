/*
 * bpe_chunk.c - merges a short run of symbols: lowest rank first, leftmost at equal rank.
 *
 * ranks[] is an implicit tournament tree of minima. For n symbols the leaves are ranks[n, 2 n), the
 * parent of ranks[i] is ranks[i / 2], and ranks[1] is the next merge. A key is rank << 32 |
 * position. Each merge updates three leaves and their ancestors: O(log n).
 */
#include "lib/base/alloc.h"
#include "lib/text/models/bpe.h"

#define NO_MERGE UINT64_MAX

static inline uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The key of merging the token at `at` with the token at `next`; NO_MERGE if next == end or no
 * merge exists. */
static inline uint64_t rank_of(const struct gsv_bpe *m, struct gsv_bpe_node *s, size_t at,
                               size_t next, size_t end)
{
    const struct gsv_bpe_merge *merge =
        next < end ? gsv_bpe_find_merge(m, s[at].id, s[next].id) : NULL;

    if (!merge)
        return NO_MERGE;
    s[at].merged = merge->id;
    return (uint64_t)merge->rank << 32 | at;
}

static inline void set_rank(uint64_t *ranks, size_t leaf, uint64_t rank)
{
    for (; leaf > 1; leaf /= 2) {
        ranks[leaf] = rank;
        rank = smaller(rank, ranks[leaf ^ 1]);
    }
    ranks[1] = rank;
}

/* Merge the token at `at` with the next one and update the tree. */
static inline void join(const struct gsv_bpe *m, struct gsv_bpe_node *s, size_t at, size_t n,
                        uint64_t *ranks)
{
    const size_t right = at + s[at].width, next = right + s[right].width;
    const size_t before = at > 0 ? at - s[at - 1].width : 0;
    uint64_t rank;

    s[at].id = s[at].merged;
    s[at].size += s[right].size;
    s[at].width = s[next - 1].width = (uint32_t)(next - at);
    rank = rank_of(m, s, at, next, n);
    if (at > 0)
        set_rank(ranks, n + before, rank_of(m, s, before, at, n));
    set_rank(ranks, n + right, NO_MERGE);
    set_rank(ranks, n + at, rank);
}

bool gsv_bpe_merge(const struct gsv_bpe *m, struct gsv_bpe_work *w, size_t begin, size_t n,
                   uint64_t *steps)
{
    const struct gsv_bpe_symbol *const symbols = w->symbols + begin;
    struct gsv_bpe_node *s;
    uint64_t *ranks;
    unsigned height = 1;

    if (!gsv_grow((void **)&w->window, &w->window_capacity, n, sizeof(*w->window), SIZE_MAX) ||
        !gsv_grow((void **)&w->ranks, &w->ranks_capacity, 2 * n, sizeof(*w->ranks), SIZE_MAX))
        return false;
    s = w->window;
    ranks = w->ranks;
    for (size_t i = 0; i < n; i++)
        s[i] = (struct gsv_bpe_node){ .id = symbols[i].id, .size = symbols[i].size, .width = 1 };
    for (size_t i = 0; i < n; i++)
        ranks[n + i] = rank_of(m, s, i, i + 1, n);
    for (size_t i = n - 1; i > 0; i--)
        ranks[i] = smaller(ranks[2 * i], ranks[2 * i + 1]);
    for (size_t i = n; i > 1; i /= 2)
        height++;
    *steps += n;
    while (ranks[1] != NO_MERGE) {
        join(m, s, (uint32_t)ranks[1], n, ranks);
        *steps += height;
    }
    return true;
}
