/*
 * entity_query.h - contents of gpuserve_entity_query: texts and labels as tokens, and the entities.
 *
 *   entity_query.c   public calls: checks, the job
 *   entity_tokens.c  texts and labels -> token ids, words, tokens of labels
 *   entity_scores.c  token vectors -> words and labels -> head -> scores
 *   entity_decode.c  scores -> entities without forbidden overlaps
 */
#ifndef GSV_RUNTIME_ENTITY_QUERY_H
#define GSV_RUNTIME_ENTITY_QUERY_H

#include "lib/runtime/model.h"

#include <gpuserve/entities.h>

/* A word, and its tokens in the text's token ids. */
struct gsv_entity_word {
    uint32_t begin, end; /* bytes of the text */
    uint32_t first, n;
};

struct gsv_entity_text {
    size_t first_word, n_words;
    size_t first_label_token, n_labels;
    bool truncated;
};

struct gpuserve_entity_query {
    gpuserve_model *model; /* owned reference */
    char fingerprint[33];  /* of the model that tokenized the texts */
    size_t width;          /* token_dim of that model */
    float threshold;
    uint32_t overlap;
    bool multi_label;
    size_t n_texts;
    struct gsv_entity_text *texts; /* [n_texts] */
    struct gsv_entity_word *words;
    size_t n_words, words_capacity;
    uint32_t *label_tokens; /* the token of each label's vector, in the text's token ids */
    size_t n_label_tokens, label_tokens_capacity;
    int32_t *ids;
    size_t n_ids, ids_capacity;
    size_t *offsets;              /* [n_texts + 1] in ids */
    gpuserve_found_entity *found; /* those of text i from found_offsets[i] on */
    size_t n_found, found_capacity;
    size_t *found_offsets; /* [n_texts + 1] */
    bool is_done;
};

/* Fill texts, words, tokens of labels, ids and offsets from a checked request. */
gpuserve_status gsv_entity_tokenize(gpuserve_entity_query *query, struct gsv_model *model,
                                    const gpuserve_entity_request *request, gpuserve_error *error);

/* Append the entities of texts [first, end) to the query, from their token vectors. The model is
 * loaded, in use by the caller, and the one that tokenized the query. */
gpuserve_status gsv_entity_decode(gpuserve_entity_query *query, struct gsv_model *model,
                                  const float *vectors, size_t first, size_t end,
                                  gpuserve_error *error);

/* A possible entity: words [first, last], and its place in the reference's order of candidates. */
struct gsv_entity_candidate {
    uint32_t first, last, label, order;
    float score;
};

/* Candidates of one text, appended in the reference's order. */
struct gsv_entity_candidates {
    struct gsv_entity_candidate *at;
    size_t n, capacity;
};

/* GPUSERVE_E_TOO_LARGE over GPUSERVE_ENTITY_MAX_CANDIDATES. */
gpuserve_status gsv_entity_append(struct gsv_entity_candidates *candidates, uint32_t first,
                                  uint32_t last, uint32_t label, float score,
                                  gpuserve_error *error);

/* Candidates of a span head. starts and ends: [n_words, inner]; queries: [n_labels, inner]. */
gpuserve_status gsv_entity_span_candidates(struct gsv_entity_candidates *candidates,
                                           const struct gsv_entity_facts *facts,
                                           const float *starts, const float *ends, size_t n_words,
                                           const float *queries, const float *offsets,
                                           size_t n_labels, float threshold, gpuserve_error *error);

/* Candidates of a token head. logits: [n_words, n_labels, 3]; they become probabilities. */
gpuserve_status gsv_entity_token_candidates(struct gsv_entity_candidates *candidates, float *logits,
                                            size_t n_words, size_t n_labels, float threshold,
                                            gpuserve_error *error);

/* Select by descending score those that do not overlap, and append them to the query's entities, by
 * ascending start. The words of the text are those from query->words[first_word] on. */
gpuserve_status gsv_entity_select(gpuserve_entity_query *query, const struct gsv_entity_text *text,
                                  struct gsv_entity_candidates *candidates, gpuserve_error *error);

#endif
