/*
 * bpe_long.c - the merges of a chunk that is too long to look for the lowest rank each time.
 *
 * A queue of all its merges would make each cost the logarithm of the chunk, and a walk through all
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
#include "lib/text/bpe.h"

#include <string.h>

enum {
    WINDOW = 128, /* symbols that are new in one */
    BACK = 8      /* of its symbols at least are made again, as many as whole tokens are */
};

#define NO_SYMBOL UINT32_MAX

/* ------------------------------------------------------------------ one window */

struct queue {
    uint64_t *heap; /* [n] rank << 32 | symbol; four entries below each, the smallest first */
    size_t n;
    uint64_t steps;
};

static void sift_up(struct queue *q, size_t at)
{
    const uint64_t entry = q->heap[at];

    for (; at > 0 && entry < q->heap[(at - 1) / 4]; at = (at - 1) / 4, q->steps++)
        q->heap[at] = q->heap[(at - 1) / 4];
    q->heap[at] = entry;
}

static void sift_down(struct queue *q, size_t at)
{
    const uint64_t entry = q->heap[at];

    for (;; q->steps++) {
        const size_t first = 4 * at + 1, end = first + 4 < q->n ? first + 4 : q->n;
        size_t least = first;

        if (first >= q->n)
            break;
        for (size_t i = first + 1; i < end; i++)
            if (q->heap[i] < q->heap[least])
                least = i;
        if (entry <= q->heap[least])
            break;
        q->heap[at] = q->heap[least];
        at = least;
    }
    q->heap[at] = entry;
}

/* The merge of a symbol with the next one, if there is one. There is room: at first for one of each
 * symbol, and each merge takes one entry out and puts two in. */
static void push_merge(struct queue *q, const struct gsv_bpe *m, const struct gsv_bpe_symbol *s,
                       uint32_t at)
{
    const struct gsv_bpe_merge *merge =
        s[at].next == NO_SYMBOL ? NULL : gsv_bpe_find_merge(m, s[at].id, s[s[at].next].id);

    if (!merge)
        return;
    q->heap[q->n] = (uint64_t)merge->rank << 32 | at;
    sift_up(q, q->n++);
}

static uint64_t pop_merge(struct queue *q)
{
    const uint64_t top = q->heap[0];

    q->heap[0] = q->heap[--q->n];
    if (q->n > 0)
        sift_down(q, 0);
    return top;
}

/* Join symbol `at` and the next one, if that is still what the entry of the queue was about. */
static bool join(const struct gsv_bpe *m, struct gsv_bpe_symbol *s, uint32_t at, uint32_t rank)
{
    const uint32_t next = s[at].next;
    const struct gsv_bpe_merge *merge;

    if (s[at].size == 0 || next == NO_SYMBOL)
        return false;
    merge = gsv_bpe_find_merge(m, s[at].id, s[next].id);
    if (!merge || merge->rank != rank)
        return false;
    s[at].id = merge->id;
    s[at].size += s[next].size;
    s[at].next = s[next].next;
    s[next].size = 0;
    if (s[at].next != NO_SYMBOL)
        s[s[at].next].previous = at;
    return true;
}

/* Merge symbols[begin, end) of the chunk into work->window, where those that are left have a size.
 */
static bool merge_window(const struct gsv_bpe *m, struct gsv_bpe_work *w, size_t begin, size_t end,
                         uint64_t *steps)
{
    const size_t n = end - begin;
    struct queue q = { 0 };
    struct gsv_bpe_symbol *s;

    if (!gsv_grow((void **)&w->window, &w->window_capacity, n, sizeof(*w->window), SIZE_MAX) ||
        !gsv_grow((void **)&w->queue, &w->queue_capacity, 2 * n, sizeof(*w->queue), SIZE_MAX))
        return false;
    s = w->window;
    q.heap = w->queue;
    memcpy(s, w->symbols + begin, n * sizeof(*s));
    for (size_t i = 0; i < n; i++) {
        s[i].previous = i > 0 ? (uint32_t)i - 1 : NO_SYMBOL;
        s[i].next = i + 1 < n ? (uint32_t)i + 1 : NO_SYMBOL;
    }
    for (size_t i = 0; i < n; i++)
        push_merge(&q, m, s, (uint32_t)i);
    while (q.n > 0) {
        const uint64_t top = pop_merge(&q);
        const uint32_t at = (uint32_t)top;

        q.steps++;
        if (!join(m, s, at, (uint32_t)(top >> 32)))
            continue;
        if (s[at].previous != NO_SYMBOL)
            push_merge(&q, m, s, s[at].previous);
        push_merge(&q, m, s, at);
    }
    *steps += n + q.steps;
    return true;
}

/* ------------------------------------------------------------------ windows to a chunk */

/* The window's tokens from merged[n] on; returns how many there are then. `begin` is where the
 * window began. */
static size_t take_tokens(struct gsv_bpe_work *w, size_t n, size_t begin, size_t end)
{
    for (size_t i = 0; i < end - begin; i++) {
        if (w->window[i].size == 0)
            continue;
        w->merged[n] = w->window[i];
        w->merged[n++].first = (uint32_t)(begin + i);
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
    const struct gsv_bpe_symbol left = w->merged[k - 1], right = w->merged[k];
    const size_t border = right.first - left.first;

    if (known->left == left.id && known->right == right.id)
        return true;
    *no_memory = !merge_window(m, w, left.first, end, steps);
    if (*no_memory || w->window[0].next != border || w->window[border].next != NO_SYMBOL)
        return false;
    if (m->one_way)
        *known = (struct known_border){ left.id, right.id };
    return true;
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
        const size_t end = n - done > window ? done + window : n;
        size_t n_then;

        if (!merge_window(m, w, begin, end, steps))
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
