/*
 * rerank.c - reranking as a sequence of jobs of one exchange.
 *
 *   cross-encoder: pairs -> on_pairs -> sort -> finish
 *   embedder:      query -> on_query -> documents -> on_documents -> dot products -> sort -> finish
 *   multi-vector:  query -> on_query -> documents with its token vectors -> on_documents -> sort ->
 *                  finish; gsv_scores_max_sim() says whether the library or gpuserve_max_sim()
 * scores
 */
#include "lib/http/inference/tasks.h"

#include "lib/http/inference/inference_call.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <string.h>

const char *const gsv_query_prompts[] = { "query", "search_query", "retrieval.query", NULL };
const char *const gsv_document_prompts[] = { "document",        "passage",           "corpus",
                                             "search_document", "retrieval.passage", NULL };

const char *gsv_prompt_named(const struct gsv_exchange *exchange, const char *const *names)
{
    for (; *names; names++) {
        if (json_object_get(gsv_served_prompts(exchange->served), *names))
            return *names;
    }
    return NULL;
}

const char *gsv_ranking_method(const struct gsv_rerank *rerank)
{
    if (rerank->method == GPUSERVE_RERANK_MAX_SIM)
        return "max-sim";
    return rerank->method == GPUSERVE_RERANK_COSINE ? "cosine" : "cross-encoder";
}

/* ---------------------------------------------------------------------------------------- read */

static const json_t *document_text(const json_t *document)
{
    return json_is_object(document) ? json_object_get(document, "text") : document;
}

bool gsv_rerank_read(struct gsv_exchange *exchange, struct gsv_rerank *rerank, const json_t *query,
                     const json_t *list, const char *name)
{
    json_t *document;
    size_t i;

    if (!json_is_string(query))
        return gsv_refuse(exchange, GSV_P_INVALID, "query", "`query` is not a string");
    if (json_string_length(query) == 0)
        return gsv_refuse(exchange, GSV_P_EMPTY, "query", "`query` cannot be empty");
    if (!json_is_array(list))
        return gsv_refuse(exchange, GSV_P_INVALID, name, "`%s` is not a list of strings", name);
    rerank->query = json_string_value(query);
    rerank->query_size = json_string_length(query);
    if (!gsv_inputs_count(exchange, json_array_size(list), name) ||
        !gsv_inputs_make(exchange, json_array_size(list), false, &rerank->documents))
        return false;
    json_array_foreach(list, i, document)
    {
        const json_t *text = document_text(document);

        if (!json_is_string(text))
            return gsv_refuse(exchange, GSV_P_INVALID, name,
                              "`%s`: item %zu is neither a string nor an object with a `text`",
                              name, i);
        gsv_inputs_set(&rerank->documents, i, json_string_value(text), json_string_length(text));
    }
    return true;
}

bool gsv_rerank_read_instruction(struct gsv_exchange *exchange, struct gsv_rerank *rerank,
                                 const json_t *instruction)
{
    if (!instruction || json_is_null(instruction))
        return true;
    if (!exchange->served->properties.takes_instruction)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "instruction",
                          "`instruction` is not supported: the model is not a reranker that "
                          "follows instructions");
    if (!json_is_string(instruction))
        return gsv_refuse(exchange, GSV_P_INVALID, "instruction", "`instruction` is not a string");
    if (strlen(json_string_value(instruction)) != json_string_length(instruction))
        return gsv_refuse(exchange, GSV_P_INVALID, "instruction",
                          "`instruction` has a NUL character");
    rerank->instruction = json_string_value(instruction);
    return true;
}

/* ----------------------------------------------------------------------------------------- run */

static void finish(struct gsv_exchange *exchange, struct gsv_rerank *rerank)
{
    gsv_rank(rerank->ranked, rerank->documents.n);
    gsv_add_header(exchange, "x-gpuserve-rerank-method", gsv_ranking_method(rerank));
    rerank->finish(exchange);
}

static void on_pairs(struct gsv_exchange *exchange)
{
    struct gsv_rerank *rerank = exchange->rerank;

    for (size_t i = 0; i < rerank->documents.n; i++)
        rerank->ranked[i] = (struct gsv_ranked){ i, gsv_call_row(exchange, i)[0] };
    finish(exchange, rerank);
}

/* The query is repeated for each document: limits the total as for a body with explicit pairs. */
static bool check_pairs(struct gsv_exchange *exchange, const struct gsv_rerank *rerank)
{
    const uint64_t max_bytes = exchange->server->options.max_body_bytes;

    return rerank->query_size <= max_bytes / rerank->documents.n ||
           gsv_refuse(exchange, GSV_P_TOO_LARGE, "query",
                      "`query` has %zu bytes, times %zu documents %zu bytes, the limit is %llu "
                      "(--max-body-bytes)",
                      rerank->query_size, rerank->documents.n,
                      rerank->query_size * rerank->documents.n, (unsigned long long)max_bytes);
}

static bool start_pairs(struct gsv_exchange *exchange, struct gsv_rerank *rerank)
{
    const struct gsv_inputs *documents = &rerank->documents;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    struct gsv_inputs pairs;

    if (!check_pairs(exchange, rerank) || !gsv_inputs_make(exchange, documents->n, true, &pairs))
        return false;
    for (size_t i = 0; i < documents->n; i++) {
        gsv_inputs_set(&pairs, i, rerank->query, rerank->query_size);
        gsv_inputs_set_pair(&pairs, i, documents->texts[i], documents->sizes[i]);
    }
    job.task = GPUSERVE_TASK_CLASSIFY;
    job.score = rerank->raw ? GPUSERVE_SCORE_RAW : GPUSERVE_SCORE_SIGMOID;
    job.truncation = rerank->truncation;
    job.prompt = rerank->instruction;
    return gsv_call_start(exchange, &job, &pairs, on_pairs);
}

static bool is_max_sim(const struct gsv_rerank *rerank)
{
    return rerank->method == GPUSERVE_RERANK_MAX_SIM;
}

/* MaxSim of document i. */
static float max_sim_of(const struct gsv_exchange *exchange, size_t i)
{
    const struct gsv_rerank *rerank = exchange->rerank;
    const float *vectors;
    size_t n;

    if (exchange->work.job.task == GPUSERVE_TASK_MAX_SIM)
        return gsv_call_row(exchange, i)[0];
    vectors = gsv_late_vectors(exchange, i, &n);
    return gpuserve_max_sim(rerank->query_vector, rerank->n_query, vectors, n,
                            exchange->work.columns);
}

/* The cosine of document i, or its MaxSim divided by the query's tokens; raw: the sum. */
static float score_of(const struct gsv_exchange *exchange, size_t i)
{
    const struct gsv_rerank *rerank = exchange->rerank;
    float score;

    if (!is_max_sim(rerank))
        return gpuserve_dot(rerank->query_vector, gsv_call_row(exchange, i),
                            exchange->work.columns);
    score = max_sim_of(exchange, i);
    return rerank->raw || rerank->n_query == 0 ? score : score / (float)rerank->n_query;
}

static void on_documents(struct gsv_exchange *exchange)
{
    struct gsv_rerank *rerank = exchange->rerank;

    for (size_t i = 0; i < rerank->documents.n; i++) {
        const float score = score_of(exchange, i);

        rerank->ranked[i] = (struct gsv_ranked){ i, rerank->raw ? score : (1 + score) / 2 };
    }
    finish(exchange, rerank);
}

/* Starts to embed texts of a gpuserve_role. */
static bool start_vectors(struct gsv_exchange *exchange, const struct gsv_inputs *texts,
                          uint32_t role, gsv_handler done)
{
    const struct gsv_rerank *rerank = exchange->rerank;
    gpuserve_job job = GPUSERVE_JOB_INIT;

    if (is_max_sim(rerank))
        return gsv_late_vectors_start(exchange, texts, role, rerank->truncation, done);
    job.task = GPUSERVE_TASK_EMBED;
    job.truncation = rerank->truncation;
    job.normalize = GPUSERVE_NORMALIZE_YES;
    job.prompt_name = gsv_prompt_named(
        exchange, role == GPUSERVE_ROLE_QUERY ? gsv_query_prompts : gsv_document_prompts);
    return gsv_call_start(exchange, &job, texts, done);
}

static void on_query(struct gsv_exchange *exchange)
{
    struct gsv_rerank *rerank = exchange->rerank;

    rerank->query_vector = exchange->work.job.output; /* lives as long as the exchange */
    if (is_max_sim(rerank))
        rerank->query_vector = gsv_late_vectors(exchange, 0, &rerank->n_query);
    if (is_max_sim(rerank) && gsv_scores_max_sim(exchange, rerank->n_query))
        gsv_max_sim_start(exchange, &rerank->documents, rerank->query_vector, rerank->n_query,
                          rerank->truncation, on_documents);
    else
        start_vectors(exchange, &rerank->documents, GPUSERVE_ROLE_DOCUMENT, on_documents);
}

static bool start_query(struct gsv_exchange *exchange, struct gsv_rerank *rerank)
{
    struct gsv_inputs query;

    if (!gsv_inputs_make(exchange, 1, false, &query))
        return false;
    gsv_inputs_set(&query, 0, rerank->query, rerank->query_size);
    return start_vectors(exchange, &query, GPUSERVE_ROLE_QUERY, on_query);
}

/* Whether the model has the vectors or the classifier of a method. */
static bool has_method(const struct gsv_served *served, gpuserve_rerank_method method)
{
    if (method == GPUSERVE_RERANK_CROSS_ENCODER)
        return served->properties.rerank_method == (uint32_t)method;
    return method == GPUSERVE_RERANK_COSINE ? served->dim > 0
                                            : gsv_served_has(served, GPUSERVE_TASK_MAX_SIM);
}

/* The field `method`, else the model's own. */
static bool choose_method(struct gsv_exchange *exchange, gpuserve_rerank_method *method)
{
    static const char *const names[] = { "cross-encoder", "cosine", "max-sim", NULL };
    static const gpuserve_rerank_method methods[] = { GPUSERVE_RERANK_CROSS_ENCODER,
                                                      GPUSERVE_RERANK_COSINE,
                                                      GPUSERVE_RERANK_MAX_SIM };
    const struct gsv_served *served = exchange->served;
    uint32_t chosen = UINT32_MAX;

    if (!gsv_member_choice(exchange, exchange->json, "method", names, &chosen))
        return false;
    *method = chosen == UINT32_MAX ? (gpuserve_rerank_method)served->properties.rerank_method
                                   : methods[chosen];
    if (*method == GPUSERVE_RERANK_DEFAULT)
        return gsv_refuse(
            exchange, GSV_P_UNSUPPORTED, "model",
            "model \"%s\" does not support reranking: it has %zu labels and no embedding",
            served->name, served->n_labels);
    return chosen == UINT32_MAX || has_method(served, *method) ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "method",
                      "`method` is \"%s\", which model \"%s\" does not support", names[chosen],
                      served->name);
}

bool gsv_rerank_start(struct gsv_exchange *exchange, struct gsv_rerank *rerank, gsv_handler done)
{
    gpuserve_rerank_method method;

    if (!choose_method(exchange, &method))
        return false;
    exchange->rerank = rerank;
    rerank->finish = done;
    rerank->method = method;
    rerank->ranked = gsv_exchange_alloc(exchange, rerank->documents.n, sizeof(*rerank->ranked));
    if (!rerank->ranked)
        return false;
    return method == GPUSERVE_RERANK_CROSS_ENCODER ? start_pairs(exchange, rerank)
                                                   : start_query(exchange, rerank);
}
