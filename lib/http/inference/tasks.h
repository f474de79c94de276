/*
 * tasks.h - tasks other than embedding: similarity, zero-shot classification, entities, scores.
 */
#ifndef GSV_HTTP_TASKS_H
#define GSV_HTTP_TASKS_H

#include "lib/http/inference/inputs.h"
#include "lib/http/protocol/exchange.h"

/*
 * Cosine similarity of one sentence to others. TEI's /similarity and Hugging Face's
 * sentence_similarity send the same body.
 */

/* Handles {"inputs":{"source_sentence","sentences"},"parameters":{}} -> [f, ...]. Needs
 * exchange->served. */
void gsv_similarity(struct gsv_exchange *exchange);

/*
 * Zero-shot classification: labels that the model was not trained on, by entailment of text pairs
 * or by similarity of embeddings.
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
/* The same of all labels of a head, a JSON array of strings. */
void gsv_put_head_labels(struct gsv_exchange *exchange, const float *row, const json_t *labels);

/*
 * The field `heads` of a request: classifier heads of the model, whose scores are one row.
 */

/* Reads `heads`, a list of names, into job->heads; without the field the job has the first head.
 * False after gsv_refuse. */
bool gsv_heads_read(struct gsv_exchange *exchange, gpuserve_job *job);

/* Scores of a row: the labels of the job's heads, or of the model's classifier. */
size_t gsv_job_labels(const struct gsv_exchange *exchange, const gpuserve_job *job);

/* Writes "heads":{"NAME":...} of a row of the finished job, which has heads; `put` writes the value
 * of each from its part of the row. */
void gsv_put_heads(struct gsv_exchange *exchange, const float *row,
                   void (*put)(struct gsv_exchange *exchange, const float *row,
                               const json_t *labels));

/*
 * Functions of both kinds of entity requests: token classification (entities.c)
 * and given labels (label_entities.c).
 */

struct gsv_entity_inputs {
    const char **texts; /* [n] of the inputs, as sent */
    const size_t *sizes;
    bool is_list; /* the reply is a list of lists */
};

/* Reads `inputs` and, of `parameters`, the truncation; `known` (NULL-terminated) are all parameters
 * that the request may have. False after gsv_refuse. */
bool gsv_entity_texts_read(struct gsv_exchange *exchange, const char *const *known,
                           struct gsv_entity_inputs *texts, gpuserve_job *job,
                           struct gsv_inputs *inputs);

/* The host program swapped the model during the request. Returns false. */
bool gsv_refuse_swapped(struct gsv_exchange *exchange);

/*
 * Asynchronous reranking of documents against a query, for all dialects.
 *
 * A cross-encoder scores pairs in one job. An embedder gives cosines, and a multi-vector model
 * MaxSim, in two jobs, the query's first, because query and documents may have different prompts.
 * Same rules as gpuserve_rerank(). The field `method` of a request chooses one that the model has.
 */

struct gsv_rerank {
    const char *query;
    size_t query_size;
    struct gsv_inputs documents;
    bool raw;                /* logits or cosines; otherwise 0 to 1 */
    const char *instruction; /* of a pair template; NULL: the model's own */
    uint32_t truncation;
    struct gsv_ranked *ranked; /* [documents.n], best first: the result */
    gpuserve_rerank_method method;
    float *query_vector; /* or the token vectors of the query */
    size_t n_query;      /* of them */
    gsv_handler finish;
};

/* Reads `query` and the documents of `list`: texts, or objects with `text`. `name` is the list's
 * field. */
bool gsv_rerank_read(struct gsv_exchange *exchange, struct gsv_rerank *rerank, const json_t *query,
                     const json_t *list, const char *name);

/* Reads `instruction`; refused unless the model writes pairs into a template. */
bool gsv_rerank_read_instruction(struct gsv_exchange *exchange, struct gsv_rerank *rerank,
                                 const json_t *instruction);

/* Starts the first job; `rerank` must live in the exchange. Sets exchange->rerank. */
bool gsv_rerank_start(struct gsv_exchange *exchange, struct gsv_rerank *rerank, gsv_handler finish);

/* "cross-encoder", "cosine" or "max-sim". */
const char *gsv_ranking_method(const struct gsv_rerank *rerank);

/* The first of these names (NULL-terminated) that is a prompt of the model, or NULL. */
const char *gsv_prompt_named(const struct gsv_exchange *exchange, const char *const *names);
extern const char *const gsv_query_prompts[], *const gsv_document_prompts[];

/*
 * Token vectors of queries and documents for late interaction, in a job of an exchange. The prompt,
 * the length and the expansion are those of the role.
 */

/* Tokenizes the texts and starts the job; `role` is a gpuserve_role, not DEFAULT. */
bool gsv_late_vectors_start(struct gsv_exchange *exchange, const struct gsv_inputs *texts,
                            uint32_t role, uint32_t truncation, gsv_handler done);

/* The vectors of text i of the finished job, which live as long as the exchange. */
float *gsv_late_vectors(const struct gsv_exchange *exchange, size_t i, size_t *n);

/* Whether the library scores documents against a query of so many vectors. It does not where the
 * model has a result cache: that keeps the documents' vectors for the next query. */
bool gsv_scores_max_sim(const struct gsv_exchange *exchange, size_t n_query);

/* Starts a job with one float for each document: its MaxSim with the query's vectors, which must
 * live as long as the exchange. */
bool gsv_max_sim_start(struct gsv_exchange *exchange, const struct gsv_inputs *documents,
                       const float *query, size_t n_query, uint32_t truncation, gsv_handler done);

/* Rows that a query may have in addition to those of its own tokens. */
size_t gsv_late_expansion(const struct gsv_exchange *exchange, const gpuserve_job *job);

/* The role of texts with the prompt of `job`; of lists of ids: none. */
uint32_t gsv_late_role(const gpuserve_job *job, const struct gsv_inputs *inputs);

/* Most tokens of a text of this role. */
size_t gsv_late_limit(const struct gsv_exchange *exchange, uint32_t role);

#endif
