/*
 * tasks.h - tasks beside embedding: similarity, zero-shot classification, entities, scores.
 */
#ifndef GSV_HTTP_TASKS_H
#define GSV_HTTP_TASKS_H

#include "lib/http/protocol/exchange.h"

/*
 * Cosine similarity of one sentence to others. TEI's /similarity and Hugging Face's
 * sentence_similarity send the same body.
 */

/* Handles {"inputs":{"source_sentence","sentences"},"parameters":{}} -> [f, ...]. Needs
 * exchange->served. */
void gsv_similarity(struct gsv_exchange *exchange);

/*
 * Zero-shot classification: labels that the model was not trained on, by similarity
 * of embeddings.
 */

/* Handles {"inputs":"a text","parameters":{"candidate_labels":[..],"multi_label",
 * "hypothesis_template"}} -> [{"label","score"}], in descending order. Needs exchange->served. */
void gsv_zero_shot(struct gsv_exchange *exchange);

/*
 * Named entity recognition with a token classifier, in Hugging Face's format for
 * token classification.
 */

/* Handles {"inputs":"text" or ["text",...],"parameters":{"aggregation_strategy","ignore_labels"}}.
 * Replies [{"entity_group","score","word","start","end"},...], or a list of these for a list of
 * texts. */
void gsv_entities(struct gsv_exchange *exchange);

/* The same of a model that finds entities of given labels (GLiNER):
 * {"inputs","parameters":{"labels", "threshold","nested","multi_label"}}. `labels` is a list, or a
 * list for each text. */
void gsv_label_entities(struct gsv_exchange *exchange);

/* Ranking of scores and their labels, best first. */

struct gsv_ranked {
    size_t index;
    float score;
};

/* Sorts by descending score; equal scores by index; NaN last. */
void gsv_rank(struct gsv_ranked *ranked, size_t n);

/* Ranks the labels of one row of scores; NULL after gsv_refuse. */
struct gsv_ranked *gsv_rank_labels(struct gsv_exchange *exchange, const float *row, size_t n);

/* Writes [{"score":0.9,"label":"POSITIVE"},...] from one row of scores, at most `max_labels` (0:
 * all). */
void gsv_put_labels(struct gsv_exchange *exchange, const float *row, size_t max_labels);

#endif
