/*
 * bpe_long.c - the merges of a long chunk.
 *
 * A tree of all its merges would make each cost the logarithm of the chunk, and a walk through all
 * of memory. So the chunk is merged in windows, and joined where that is known to change nothing:
 *
 *   What u and v come to, end to end, is what uv comes to, if and only if the last token of the one
 *   and the first of the other come to themselves when their symbols are merged alone.
 *
 * For as long as no merge is over the border, both sides change as they would alone; what the first
 * one over it joins are symbols of those two tokens, and which merge is next among theirs does not
 * depend on any others. For the same reason a prefix of tokens is what its own symbols come to: the
 * next window may begin at any token of those before. It begins a few before the end, for the end
 * of a window is where the tokens are not what they will be, and further back if that was too few.
 */
#include "lib/base/alloc.h"
#include "lib/text/models/bpe.h"

enum {
    WINDOW = 112, /* symbols that are new in one, at least */
    NEW = 3,      /* and as many for each that is made again */
    BACK = 8      /* of its symbols at least are made again, as many as whole tokens are */
};

/* The window's tokens from merged[n] on; returns how many there are then. `begin` is where the
 * window began. */
static size_t take_tokens(struct gsv_bpe_work *w, size_t n, size_t begin, size_t end)
{
    for (size_t i = 0; i < end - begin; i += w->window[i].width) {
        w->merged[n++] =
            (struct gsv_bpe_token){ w->window[i].id, w->window[i].size, (uint32_t)(begin + i) };
    }
    return n;
}

/* The token where a window is to begin, so that it has `back` symbols of those that are done. */
static size_t token_before(const struct gsv_bpe_work *w, size_t n_merged, size_t done, size_t back)
{
    while (n_merged > 0 && done - w->merged[n_merged - 1].first < back)
        n_merged--;
    return n_merged > 0 ? n_merged - 1 : 0;
}

/* Two tokens that came to themselves: in long repetitions they are there again and again. */
struct known_border {
    int32_t left, right;
};

/* Whether merged[k - 1] and merged[k], whose symbols end at `end`, come to themselves. */
static bool is_border(const struct gsv_bpe *m, struct gsv_bpe_work *w, size_t k, size_t end,
                      struct known_border *known, bool *no_memory, uint64_t *steps)
{
    const struct gsv_bpe_token left = w->merged[k - 1], right = w->merged[k];
    const size_t border = right.first - left.first;

    if (known->left == left.id && known->right == right.id)
        return true;
    *no_memory = !gsv_bpe_merge(m, w, left.first, end - left.first, steps);
    if (*no_memory || w->window[0].width != border || w->window[border].width != end - right.first)
        return false;
    if (m->one_way)
        *known = (struct known_border){ left.id, right.id };
    return true;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

ptrdiff_t gsv_bpe_merge_long(const struct gsv_bpe *m, struct gsv_bpe_work *w, size_t n,
                             uint64_t *steps)
{
    size_t done = 0, n_merged = 0, back = BACK, window = WINDOW;
    struct known_border known = { -1, -1 };
    bool no_memory = false;

    if (!gsv_grow((void **)&w->merged, &w->merged_capacity, n, sizeof(*w->merged), SIZE_MAX))
        return GSV_BPE_NO_MEMORY;
    while (done < n) {
        const size_t k = token_before(w, n_merged, done, back);
        const size_t begin = k < n_merged ? w->merged[k].first : done;
        const size_t n_new = larger(window, NEW * (done - begin));
        const size_t end = n - done > n_new ? done + n_new : n;
        size_t n_then;

        if (!gsv_bpe_merge(m, w, begin, end - begin, steps))
            return GSV_BPE_NO_MEMORY;
        n_then = take_tokens(w, k, begin, end);
        if (k > 0 && !is_border(m, w, k, k + 1 < n_then ? w->merged[k + 1].first : end, &known,
                                &no_memory, steps)) {
            if (no_memory)
                return GSV_BPE_NO_MEMORY;
            n_merged = k; /* the others were overwritten, and are made again */
            back *= 4;
            window *= 4;
            continue;
        }
        n_merged = n_then;
        done = end;
        back = BACK;
        window = WINDOW;
    }
    return (ptrdiff_t)n_merged;
}
