/*
 * entity_decode.c - scores of an entity head to entities.
 *
 *   scores -> candidates above the threshold -> sorted by descending score
 *          -> each candidate without a forbidden overlap with a selected one (greedy)
 *
 * Equal scores keep the order of candidates: by start, end and label, as in the reference. A
 * candidate is compared with all selected entities through tables by word: its cost is its length,
 * and the number of selected entities with the same start.
 */
#include "lib/runtime/api/entity_query.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* ----------------------------------------------------------------------------------- candidates
 */

gpuserve_status gsv_entity_append(struct gsv_entity_candidates *candidates, uint32_t first,
                                  uint32_t last, uint32_t label, float score, gpuserve_error *error)
{
    if (candidates->n == GPUSERVE_ENTITY_MAX_CANDIDATES) {
        gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                 "more than %d spans and labels have a score above the threshold",
                 GPUSERVE_ENTITY_MAX_CANDIDATES);
        return gsv_hint(error, GPUSERVE_E_TOO_LARGE,
                        "raise the threshold, or send fewer labels or a shorter text");
    }
    if (!gsv_grow((void **)&candidates->at, &candidates->capacity, candidates->n + 1,
                  sizeof(*candidates->at), GPUSERVE_ENTITY_MAX_CANDIDATES))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu entities", candidates->n);
    candidates->at[candidates->n] =
        (struct gsv_entity_candidate){ first, last, label, (uint32_t)candidates->n, score };
    candidates->n++;
    return GPUSERVE_OK;
}

gpuserve_status gsv_entity_span_candidates(struct gsv_entity_candidates *candidates,
                                           const struct gsv_entity_facts *facts,
                                           const float *starts, const float *ends, size_t n_words,
                                           const float *queries, const float *offsets,
                                           size_t n_labels, float threshold, gpuserve_error *error)
{
    const size_t inner = (size_t)facts->inner, max_span = (size_t)facts->max_span;
    float *span = gsv_alloc_array(inner, sizeof(*span));
    gpuserve_status st =
        span ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a span");

    for (size_t i = 0; i < n_words * max_span && st == GPUSERVE_OK; i++) {
        const size_t first = i / max_span, last = first + i % max_span;

        if (last >= n_words)
            continue;
        gsv_entity_span(starts + first * inner, ends + last * inner, facts->inner, span);
        for (size_t label = 0; label < n_labels && st == GPUSERVE_OK; label++) {
            const float score = sigmoid(
                gsv_entity_score(span, queries + label * inner, offsets[label], facts->inner));

            if (score > threshold)
                st = gsv_entity_append(candidates, (uint32_t)first, (uint32_t)last, (uint32_t)label,
                                       score, error);
        }
    }
    free(span);
    return st;
}

/* The entities of a label that begin with a word: up to the first word that is not inside. The
 * score is the lowest of all. */
static gpuserve_status add_from(struct gsv_entity_candidates *candidates, const float *scores,
                                size_t first, size_t n_words, size_t n_labels, size_t label,
                                float threshold, gpuserve_error *error)
{
    float lowest = scores[(first * n_labels + label) * 3];
    gpuserve_status st = GPUSERVE_OK;

    for (size_t last = first; last < n_words && st == GPUSERVE_OK; last++) {
        const float *word = scores + (last * n_labels + label) * 3;

        if (!(word[2] >= threshold))
            break;
        lowest = word[2] < lowest ? word[2] : lowest;
        if (word[1] > threshold)
            st = gsv_entity_append(candidates, (uint32_t)first, (uint32_t)last, (uint32_t)label,
                                   word[1] < lowest ? word[1] : lowest, error);
    }
    return st;
}

gpuserve_status gsv_entity_token_candidates(struct gsv_entity_candidates *candidates, float *logits,
                                            size_t n_words, size_t n_labels, float threshold,
                                            gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < n_words * n_labels * 3; i++)
        logits[i] = sigmoid(logits[i]);
    for (size_t i = 0; i < n_words * n_labels && st == GPUSERVE_OK; i++)
        if (logits[i * 3] > threshold)
            st = add_from(candidates, logits, i / n_labels, n_words, n_labels, i % n_labels,
                          threshold, error);
    return st;
}

/* ------------------------------------------------------------------------------------- selection
 */

#define NONE UINT32_MAX

/* The selected entities of a text, by word. */
struct selection {
    uint32_t *latest;     /* [n_words] by start: the last word of the longest one, or NONE */
    uint32_t *earliest;   /* [n_words] by last word: the start of the longest one, or NONE */
    uint32_t *head;       /* [n_words] by start: the first of a list of selected candidates */
    uint32_t *next;       /* [n candidates] the rest of the list */
    unsigned char *taken; /* [n_words] 1: in a selected entity */
    bool nested, multi_label;
};

static gpuserve_status alloc_selection(struct selection *s, size_t n_words, size_t n,
                                       gpuserve_error *error)
{
    s->latest = gsv_alloc_array(n_words, sizeof(*s->latest));
    s->earliest = gsv_alloc_array(n_words, sizeof(*s->earliest));
    s->head = gsv_alloc_array(n_words, sizeof(*s->head));
    s->next = gsv_alloc_array(n, sizeof(*s->next));
    s->taken = gsv_alloc_array(n_words, 1);
    if (!s->latest || !s->earliest || !s->head || !s->next || !s->taken)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu entities", n);
    for (size_t i = 0; i < n_words; i++)
        s->latest[i] = s->earliest[i] = s->head[i] = NONE;
    return GPUSERVE_OK;
}

static void reset_selection(struct selection *s)
{
    free(s->latest);
    free(s->earliest);
    free(s->head);
    free(s->next);
    free(s->taken);
}

/* True if an entity of exactly these words is selected. */
static bool has_span(const struct selection *s, const struct gsv_entity_candidate *all,
                     const struct gsv_entity_candidate *c)
{
    uint32_t i = s->head[c->first];

    while (i != NONE && all[i].last != c->last)
        i = s->next[i];
    return i != NONE;
}

/* True if a selected entity has words inside this one and others before or after it. */
static bool crosses(const struct selection *s, const struct gsv_entity_candidate *c)
{
    for (uint32_t i = c->first; i < c->last; i++)
        if (s->earliest[i] != NONE && s->earliest[i] < c->first)
            return true;
    for (uint32_t i = c->first + 1; i <= c->last; i++)
        if (s->latest[i] != NONE && s->latest[i] > c->last)
            return true;
    return false;
}

/* An equal span overlaps nothing that the selected one does not. */
static bool may_select(const struct selection *s, const struct gsv_entity_candidate *all,
                       const struct gsv_entity_candidate *c)
{
    if (has_span(s, all, c))
        return s->multi_label;
    if (s->nested)
        return !crosses(s, c);
    return !memchr(s->taken + c->first, 1, c->last - c->first + 1);
}

static void note_selected(struct selection *s, const struct gsv_entity_candidate *c, uint32_t index)
{
    if (s->latest[c->first] == NONE || s->latest[c->first] < c->last)
        s->latest[c->first] = c->last;
    if (s->earliest[c->last] == NONE || s->earliest[c->last] > c->first)
        s->earliest[c->last] = c->first;
    s->next[index] = s->head[c->first];
    s->head[c->first] = index;
    memset(s->taken + c->first, 1, c->last - c->first + 1);
}

static int by_score(const void *a_, const void *b_)
{
    const struct gsv_entity_candidate *a = a_, *b = b_;

    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Ascending start; among equal starts the order of selection. */
static int by_start(const void *a_, const void *b_)
{
    const struct gsv_entity_candidate *a = a_, *b = b_;

    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return by_score(a, b);
}

static gpuserve_status put_found(gpuserve_entity_query *query, const struct gsv_entity_text *text,
                                 const struct gsv_entity_candidate *selected, size_t n,
                                 gpuserve_error *error)
{
    const struct gsv_entity_word *words;

    if (n == 0)
        return GPUSERVE_OK;
    if (!gsv_grow((void **)&query->found, &query->found_capacity, query->n_found + n,
                  sizeof(*query->found), SIZE_MAX))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu entities", n);
    words = query->words + text->first_word;
    for (size_t i = 0; i < n; i++)
        query->found[query->n_found++] =
            (gpuserve_found_entity){ words[selected[i].first].begin, words[selected[i].last].end,
                                     selected[i].label, selected[i].score };
    return GPUSERVE_OK;
}

gpuserve_status gsv_entity_select(gpuserve_entity_query *query, const struct gsv_entity_text *text,
                                  struct gsv_entity_candidates *candidates, gpuserve_error *error)
{
    struct selection s = { .nested = query->overlap == GPUSERVE_OVERLAP_NESTED,
                           .multi_label = query->multi_label };
    struct gsv_entity_candidate *all = candidates->at;
    size_t n = 0;
    gpuserve_status st;

    if (candidates->n == 0)
        return GPUSERVE_OK;
    st = alloc_selection(&s, text->n_words, candidates->n, error);
    if (st == GPUSERVE_OK)
        qsort(all, candidates->n, sizeof(*all), by_score);
    for (size_t i = 0; i < candidates->n && st == GPUSERVE_OK; i++) {
        if (!may_select(&s, all, &all[i]))
            continue;
        all[n] = all[i]; /* the selected ones move to the front, where the lists find them */
        note_selected(&s, &all[n], (uint32_t)n);
        n++;
    }
    reset_selection(&s);
    if (st != GPUSERVE_OK)
        return st;
    qsort(all, n, sizeof(*all), by_start);
    return put_found(query, text, all, n, error);
}
