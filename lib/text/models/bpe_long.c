/*
 * bpe_long.c - merges a long chunk in windows.
 *
 * One tournament tree of the whole chunk would cost O(log n) for each merge, with accesses across
 * all of its memory. Instead the chunk is merged in windows, concatenated where this is exact:
 *
 *   merge(u) followed by merge(v) equals merge(uv) if and only if the symbols of the last token of
 *   merge(u) and of the first token of merge(v), merged together alone, give these two tokens.
 *
 * Until a merge crosses the border, both sides change as they would alone. The first merge across
 * it would join symbols of these two tokens, and the order of merges among their symbols does not
 * depend on others. For the same reason a prefix of the tokens is the result of its own symbols.
 *
 * So a window may start at any earlier token. It starts a few symbols before the end, since tokens
 * at the end of a window are not final, and further back if the border check fails.
 */
#include "lib/base/alloc.h"
#include "lib/text/models/bpe.h"

enum {
    WINDOW = 112, /* minimum number of new symbols in a window */
    NEW = 3,      /* minimum number of new symbols for each repeated symbol */
    BACK = 8      /* minimum number of repeated symbols, rounded up to whole tokens */
};

/* Append the window's tokens at merged[n]; returns the new count. The window covers the symbols
 * [begin, end). */
static size_t take_tokens(struct gsv_bpe_work *w, size_t n, size_t begin, size_t end)
{
    for (size_t i = 0; i < end - begin; i += w->window[i].width) {
        w->merged[n++] =
            (struct gsv_bpe_token){ w->window[i].id, w->window[i].size, (uint32_t)(begin + i) };
    }
    return n;
}

/* The token at which a window starts so that it repeats at least `back` symbols. */
static size_t token_before(const struct gsv_bpe_work *w, size_t n_merged, size_t done, size_t back)
{
    while (n_merged > 0 && done - w->merged[n_merged - 1].first < back)
        n_merged--;
    return n_merged > 0 ? n_merged - 1 : 0;
}

/* The last token pair that passed the border check; long repetitions have the same pair again. */
struct known_border {
    int32_t left, right;
};

/* Border check of merged[k - 1] and merged[k], whose symbols end at `end`: true if merging their
 * symbols alone gives the same two tokens. */
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
            n_merged = k; /* later tokens were overwritten and are merged again */
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
