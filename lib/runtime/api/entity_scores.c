/*
 * entity_scores.c - token vectors of texts with their labels to entities.
 *
 *   token vectors -> vectors of words and labels -> head -> scores of spans -> selected entities
 *
 * Texts run in groups of about GSV_ENTITY_ROWS words and labels, so that memory does not grow with
 * their number. The head's context is reserved for the products of a group and released before
 * its spans are scored.
 */
#include "lib/runtime/api/entity_query.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/number.h"
#include "lib/runtime/models/load_steps.h"

#include <stdlib.h>
#include <string.h>

/* Adjacent texts whose vectors are in memory, and rows of their words and labels. */
struct group {
    const gpuserve_entity_query *query;
    const struct gsv_entity_facts *facts;
    const float *vectors; /* those of the first text from row `first_row` of the query on */
    size_t first_row;
    size_t first, end; /* texts */
    size_t n_words, n_labels;
    size_t columns;       /* of starts, ends and queries */
    float *words;         /* [n_words, width]; freed before the spans are scored */
    float *labels;        /* [n_labels, width]; likewise */
    int32_t *cu_words;    /* [texts + 1] */
    float *starts, *ends; /* [n_words, columns] */
    float *queries;       /* [n_labels, columns] */
    float *offsets;       /* [n_labels] */
};

static void reset_group(struct group *g)
{
    free(g->words);
    free(g->labels);
    free(g->cu_words);
    free(g->starts);
    free(g->ends);
    free(g->queries);
    free(g->offsets);
}

/* Texts from `first` on up to GSV_ENTITY_ROWS words and as many labels; at least one. */
static void choose_group(struct group *g, size_t first, size_t end)
{
    const struct gsv_entity_text *texts = g->query->texts;

    g->first = first;
    g->end = first;
    g->n_words = g->n_labels = 0;
    while (g->end < end && g->end - first < GSV_ENTITY_ROWS &&
           (g->end == first || (g->n_words + texts[g->end].n_words <= GSV_ENTITY_ROWS &&
                                g->n_labels + texts[g->end].n_labels <= GSV_ENTITY_ROWS))) {
        g->n_words += texts[g->end].n_words;
        g->n_labels += texts[g->end].n_labels;
        g->end++;
    }
}

static gpuserve_status alloc_group(struct group *g, gpuserve_error *error)
{
    const size_t width = (size_t)g->facts->width;

    g->columns = g->facts->by_token ? 2 * width : (size_t)g->facts->inner;
    g->words = gsv_alloc_array(g->n_words + 1, width * sizeof(float));
    g->labels = gsv_alloc_array(g->n_labels + 1, width * sizeof(float));
    g->cu_words = gsv_alloc_array(g->end - g->first + 1, sizeof(int32_t));
    g->starts = gsv_alloc_array(g->n_words + 1, g->columns * sizeof(float));
    g->ends = gsv_alloc_array(g->facts->by_token ? 1 : g->n_words + 1, g->columns * sizeof(float));
    g->queries = gsv_alloc_array(g->n_labels + 1, g->columns * sizeof(float));
    g->offsets = gsv_alloc_array(g->n_labels + 1, sizeof(float));
    return g->words && g->labels && g->cu_words && g->starts && g->ends && g->queries && g->offsets
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu words of an entity query",
                          g->n_words);
}

/* One vector of the n token vectors of a word. */
static void pool_word(const struct gsv_entity_facts *facts, const float *rows, size_t n, float *to)
{
    const size_t width = (size_t)facts->width;
    const size_t which = facts->subtokens == GSV_SUBTOKENS_LAST ? n - 1 : 0;

    memcpy(to, rows + which * width, width * sizeof(*to));
    if (facts->subtokens == GSV_SUBTOKENS_FIRST || facts->subtokens == GSV_SUBTOKENS_LAST)
        return;
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < width; j++) {
            const float value = rows[i * width + j];

            if (facts->subtokens == GSV_SUBTOKENS_MEAN)
                to[j] += value;
            else if (value > to[j])
                to[j] = value;
        }
    for (size_t j = 0; j < width && facts->subtokens == GSV_SUBTOKENS_MEAN; j++)
        to[j] /= (float)n;
}

static void gather(struct group *g)
{
    const gpuserve_entity_query *query = g->query;
    const size_t width = (size_t)g->facts->width;
    size_t n_words = 0, n_labels = 0;

    for (size_t i = g->first; i < g->end; i++) {
        const struct gsv_entity_text *text = &query->texts[i];
        const float *rows = g->vectors + (query->offsets[i] - g->first_row) * width;

        g->cu_words[i - g->first] = (int32_t)n_words;
        for (size_t j = 0; j < text->n_words; j++) {
            const struct gsv_entity_word *word = &query->words[text->first_word + j];

            pool_word(g->facts, rows + word->first * width, word->n, g->words + n_words++ * width);
        }
        for (size_t j = 0; j < text->n_labels; j++)
            memcpy(g->labels + n_labels++ * width,
                   rows + query->label_tokens[text->first_label_token + j] * width,
                   width * sizeof(float));
    }
    g->cu_words[g->end - g->first] = (int32_t)n_words;
}

/* Logits of all pairs of a text's words and labels. */
static gpuserve_status score_pairs(const struct group *g, struct gsv_model *model, size_t word,
                                   size_t n_words, size_t label, size_t n_labels, float **logits,
                                   gpuserve_error *error)
{
    struct gsv_entity_exec *exec;
    gpuserve_status st;

    *logits = gsv_alloc_array(n_words * n_labels + 1, 3 * sizeof(float));
    if (!*logits)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for scores of %zu words", n_words);
    st = gsv_entity_acquire(model, &exec, error);
    if (st == GPUSERVE_OK)
        st = gsv_entity_pairs(exec, g->starts + word * g->columns, (int32_t)n_words,
                              g->queries + label * g->columns, (int32_t)n_labels, *logits, error);
    gsv_entity_release(model);
    return st;
}

/* A NaN exceeds no threshold: without this check an entity would be lost silently. */
static bool is_finite(const struct group *g, const struct gsv_entity_text *text, size_t word,
                      size_t label)
{
    const size_t words = text->n_words * g->columns, labels = text->n_labels * g->columns;
    const bool by_token = g->facts->by_token;

    return gsv_all_finite(g->starts + word * g->columns, words) &&
           gsv_all_finite(g->queries + label * g->columns, labels) &&
           (by_token || gsv_all_finite(g->ends + word * g->columns, words)) &&
           (by_token || gsv_all_finite(g->offsets + label, text->n_labels));
}

static gpuserve_status find_candidates(const struct group *g, struct gsv_model *model,
                                       const struct gsv_entity_text *text, size_t word,
                                       size_t label, struct gsv_entity_candidates *candidates,
                                       gpuserve_error *error)
{
    float *logits = NULL;
    gpuserve_status st;

    if (!is_finite(g, text, word, label))
        return gsv_fail(error, GPUSERVE_E_NUMERIC, "rows of the entity head are NaN or infinite");
    if (!g->facts->by_token)
        return gsv_entity_span_candidates(candidates, g->facts, g->starts + word * g->columns,
                                          g->ends + word * g->columns, text->n_words,
                                          g->queries + label * g->columns, g->offsets + label,
                                          text->n_labels, g->query->threshold, error);
    st = score_pairs(g, model, word, text->n_words, label, text->n_labels, &logits, error);
    if (st == GPUSERVE_OK)
        st = gsv_entity_token_candidates(candidates, logits, text->n_words, text->n_labels,
                                         g->query->threshold, error);
    free(logits);
    return st;
}

static gpuserve_status select_texts(gpuserve_entity_query *query, const struct group *g,
                                    struct gsv_model *model, gpuserve_error *error)
{
    struct gsv_entity_candidates candidates = { 0 };
    size_t label = 0;
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = g->first; i < g->end && st == GPUSERVE_OK; i++) {
        const struct gsv_entity_text *text = &query->texts[i];

        candidates.n = 0;
        query->found_offsets[i] = query->n_found;
        if (text->n_words > 0 && text->n_labels > 0)
            st = find_candidates(g, model, text, (size_t)g->cu_words[i - g->first], label,
                                 &candidates, error);
        if (st == GPUSERVE_OK)
            st = gsv_entity_select(query, text, &candidates, error);
        if (st != GPUSERVE_OK)
            st = gsv_fail_in(error, st, "text %zu", i);
        label += text->n_labels;
    }
    free(candidates.at);
    return st;
}

static gpuserve_status run_head(struct group *g, struct gsv_model *model, gpuserve_error *error)
{
    const struct gsv_entity_texts texts = { g->words, g->cu_words, (int32_t)(g->end - g->first) };
    struct gsv_entity_exec *exec;
    gpuserve_status st = gsv_entity_acquire(model, &exec, error);

    if (st == GPUSERVE_OK)
        st = gsv_entity_words(exec, &texts, g->starts, g->ends, error);
    if (st == GPUSERVE_OK)
        st =
            gsv_entity_labels(exec, g->labels, (int32_t)g->n_labels, g->queries, g->offsets, error);
    gsv_entity_release(model);
    free(g->words);
    free(g->labels);
    g->words = g->labels = NULL;
    return st;
}

static gpuserve_status decode_group(gpuserve_entity_query *query, struct group *g,
                                    struct gsv_model *model, gpuserve_error *error)
{
    gpuserve_status st = alloc_group(g, error);

    if (st == GPUSERVE_OK) {
        gather(g);
        st = run_head(g, model, error);
    }
    if (st == GPUSERVE_OK)
        st = select_texts(query, g, model, error);
    reset_group(g);
    return st;
}

gpuserve_status gsv_entity_decode(gpuserve_entity_query *query, struct gsv_model *model,
                                  const float *vectors, size_t first, size_t end,
                                  gpuserve_error *error)
{
    const size_t width = (size_t)model->plan.facts->entity.width;
    gpuserve_status st = GPUSERVE_OK;

    while (first < end && st == GPUSERVE_OK) {
        struct group group = { .query = query,
                               .facts = &model->plan.facts->entity,
                               .vectors = vectors,
                               .first_row = query->offsets[first] };

        choose_group(&group, first, end);
        st = decode_group(query, &group, model, error);
        vectors += (query->offsets[group.end] - query->offsets[first]) * width;
        first = group.end;
    }
    if (st == GPUSERVE_E_DEVICE)
        gsv_lost_note(model);
    return st;
}
