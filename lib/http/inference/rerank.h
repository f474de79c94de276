/*
 * rerank.h - asynchronous reranking of documents against a query, for all dialects.
 *
 * A cross-encoder scores pairs in one job. An embedder gives cosines, and a multi-vector model
 * MaxSim, in two jobs, the query's first, because query and documents may have different prompts.
 * Same rules as gpuserve_rerank().
 */
#ifndef GSV_HTTP_RERANK_H
#define GSV_HTTP_RERANK_H

#include "lib/http/inference/inputs.h"
#include "lib/http/inference/tasks.h"

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
    size_t first_vector; /* of a text's token vectors in late interaction */
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

#endif
