/*
 * rerank.c - reranking in the dialects of TEI, Cohere, Jina, Voyage and llama.cpp.
 *
 *   POST /rerank                     `texts`: TEI; `documents`: Jina and llama.cpp
 *   POST /v1/rerank                  Cohere v1 and Jina share it: the reply has the fields of both
 *   POST /v2/rerank                  Cohere v2
 *   POST /v1/reranking, /reranking   llama.cpp
 *
 * Scores are 0 to 1, in descending order: a cross-encoder's sigmoid, or (1 + cosine) / 2 of an
 * embedder. The header x-gpuserve-rerank-method names the method. `raw_scores` (TEI) gives the
 * logit or the cosine.
 *
 * A request with Voyage's fields (`top_k`, `truncation`) gets the results as `data` too.
 *
 * `max_tokens_per_doc` (Cohere v2) truncates documents; `top_k` (Voyage) equals `top_n`. A document
 * is one chunk, and only its `text` is ranked: other `max_chunks_per_doc` and `rank_fields` are
 * rejected.
 */
#include "lib/http/dialects/tei.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/request_options.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "lib/http/protocol/route.h"

#include <string.h>

struct rerank_ranking {
    struct gsv_rerank rerank;    /* first: exchange->rerank points to it */
    struct gsv_inputs documents; /* unmodified; those of `rerank` may be truncated */
    struct gsv_cut cut;
    bool return_texts, is_voyage;
    size_t top_n;
};

/* Starts the ranking. All dialects but TEI truncate long documents by default: the beginning is
 * often enough, and most of these clients cannot request it. */
static bool start(struct gsv_exchange *exchange, struct rerank_ranking *ranking, const json_t *body,
                  const char *name, gsv_handler finish)
{
    if (!gsv_rerank_read(exchange, &ranking->rerank, json_object_get(body, "query"),
                         json_object_get(body, name), name))
        return false;
    ranking->documents = ranking->rerank.documents;
    return gsv_inputs_cut_texts(exchange, &ranking->rerank.documents, &ranking->cut) &&
           gsv_rerank_start(exchange, &ranking->rerank, finish);
}

/* The ranking that start() began. */
static const struct rerank_ranking *ranking_of(const struct gsv_exchange *exchange)
{
    return (const struct rerank_ranking *)exchange->rerank;
}

static size_t n_told(const struct rerank_ranking *ranking)
{
    const size_t n = ranking->rerank.documents.n;

    return ranking->top_n < n ? ranking->top_n : n;
}

/* ----------------------------------------------------------------------------------------- TEI */

void gsv_tei_put_ranking(struct gsv_exchange *exchange)
{
    const struct rerank_ranking *ranking = ranking_of(exchange);
    const struct gsv_inputs *texts = &ranking->rerank.documents;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < n_told(ranking); i++) {
        const struct gsv_ranked *one = &ranking->rerank.ranked[i];

        gsv_buffer_format(to, "%s{\"index\":%zu,\"score\":", i > 0 ? "," : "", one->index);
        gsv_put_float(to, one->score);
        if (ranking->return_texts) {
            gsv_buffer_text(to, ",\"text\":");
            gsv_put_bytes(to, texts->texts[one->index], texts->sizes[one->index]);
        }
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "]");
}

static void write_tei(struct gsv_exchange *exchange)
{
    gsv_tei_put_ranking(exchange);
    gsv_reply_json(exchange);
}

void gsv_tei_rerank_start(struct gsv_exchange *exchange, const json_t *body, gsv_handler finish)
{
    struct rerank_ranking *ranking = gsv_exchange_alloc(exchange, 1, sizeof(*ranking));
    gpuserve_job job = GPUSERVE_JOB_INIT;
    int64_t top_n = INT64_MAX;

    if (!ranking || !gsv_option_truncation(exchange, body, &job) ||
        !gsv_member_count(exchange, body, "top_n", 1, INT64_MAX, &top_n) ||
        !gsv_member_flag(exchange, body, "raw_scores", &ranking->rerank.raw) ||
        !gsv_member_flag(exchange, body, "return_text", &ranking->return_texts))
        return;
    ranking->top_n = (size_t)top_n;
    ranking->rerank.truncation = job.truncation;
    start(exchange, ranking, body, "texts", finish);
}

/* ---------------------------------------------------------------------- Cohere, Jina and others */

/* Writes the ranked documents; Voyage's form of a document is its text alone. */
static void put_results(struct gsv_exchange *exchange, const struct rerank_ranking *ranking,
                        bool is_plain)
{
    const struct gsv_inputs *texts = &ranking->documents;
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "[");
    for (size_t i = 0; i < n_told(ranking); i++) {
        const struct gsv_ranked *one = &ranking->rerank.ranked[i];

        gsv_buffer_format(to, "%s{\"index\":%zu,\"relevance_score\":", i > 0 ? "," : "",
                          one->index);
        gsv_put_float(to, one->score);
        if (ranking->return_texts) {
            gsv_buffer_text(to, is_plain ? ",\"document\":" : ",\"document\":{\"text\":");
            gsv_put_bytes(to, texts->texts[one->index], texts->sizes[one->index]);
            gsv_buffer_text(to, is_plain ? "" : "}");
        }
        gsv_buffer_text(to, "}");
    }
    gsv_buffer_text(to, "]");
}

static void write_results(struct gsv_exchange *exchange)
{
    const struct rerank_ranking *ranking = ranking_of(exchange);
    const bool v2 = exchange->path[2] == '2';
    struct gsv_buffer *to = &exchange->reply;

    gsv_buffer_text(to, "{\"id\":");
    gsv_put_text(to, exchange->id);
    gsv_buffer_text(to, ",\"model\":");
    gsv_put_text(to, exchange->served->name);
    gsv_buffer_text(to, ",\"object\":\"list\",\"results\":");
    put_results(exchange, ranking, false);
    if (ranking->is_voyage) {
        gsv_buffer_text(to, ",\"data\":");
        put_results(exchange, ranking, true);
    }
    gsv_buffer_format(to,
                      ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu},\"meta\":{"
                      "\"api_version\":{\"version\":\"%d\"},\"billed_units\":{\"search_units\":1},"
                      "\"method\":\"%s\"}}",
                      exchange->usage.n_tokens, exchange->usage.n_tokens, v2 ? 2 : 1,
                      gsv_ranking_method(&ranking->rerank));
    gsv_reply_json(exchange);
}

/* Reads `top_n`, or Voyage's `top_k`; the smaller one applies. */
static bool read_count(struct gsv_exchange *exchange, size_t *n)
{
    int64_t top_n = INT64_MAX, top_k = INT64_MAX;

    if (!gsv_member_count(exchange, exchange->json, "top_n", 1, INT64_MAX, &top_n) ||
        !gsv_member_count(exchange, exchange->json, "top_k", 1, INT64_MAX, &top_k))
        return false;
    *n = (size_t)(top_n < top_k ? top_n : top_k);
    return true;
}

/* Accepts only one chunk for each document, ranked by its `text`. */
static bool check_form(struct gsv_exchange *exchange)
{
    static const char *const paddings[] = { "do_not_pad", NULL };
    const json_t *fields = json_object_get(exchange->json, "rank_fields");
    const char *field = json_string_value(json_array_get(fields, 0));
    const bool by_text = json_array_size(fields) == 1 && field && strcmp(field, "text") == 0;
    uint32_t padding;
    int64_t chunks = 1;

    if (!gsv_member_choice(exchange, exchange->json, "padding", paddings, &padding) ||
        !gsv_member_count(exchange, exchange->json, "max_chunks_per_doc", 1, INT64_MAX, &chunks))
        return false;
    if (chunks != 1)
        return gsv_refuse(exchange, GSV_P_UNSUPPORTED, "max_chunks_per_doc",
                          "`max_chunks_per_doc` is %lld, only 1 is supported: a document is one "
                          "chunk, cut at the model's limit or at `max_tokens_per_doc`",
                          (long long)chunks);
    return !fields || json_is_null(fields) || by_text ||
           gsv_refuse(exchange, GSV_P_UNSUPPORTED, "rank_fields",
                      "`rank_fields` is not supported: the server ranks a document by its `text`");
}

static bool read_options(struct gsv_exchange *exchange, struct rerank_ranking *ranking)
{
    static const struct gsv_unoffered unoffered[] = {
        { "truncate_prompt_tokens", "use `max_tokens_per_doc` to cut documents" },
        { "max_tokens_per_query", "the server does not cut the query separately" },
        { "max_query_tokens", "the server does not cut the query separately" },
        { "truncation_side", "the server cuts documents at their end" },
        { "relevant_spans", "the reply has no spans" },
        { "return_embeddings", "the reply has no embeddings: use /v1/embeddings" },
        { 0 },
    };
    const json_t *body = exchange->json;
    int64_t limit = 0;
    bool cut = true, activation = true;

    if (!gsv_option_unoffered(exchange, body, unoffered) || !check_form(exchange) ||
        !gsv_rerank_read_instruction(exchange, &ranking->rerank,
                                     json_object_get(body, "instruction")) ||
        !read_count(exchange, &ranking->top_n) ||
        !gsv_member_count(exchange, body, "max_tokens_per_doc", 1, INT32_MAX, &limit) ||
        !gsv_member_flag(exchange, body, "truncation", &cut) ||
        !gsv_member_flag(exchange, body, "use_activation", &activation))
        return false;
    ranking->rerank.raw = !activation; /* vLLM's word for `raw_scores` */
    if (!gsv_member_flag(exchange, body, "raw_scores", &ranking->rerank.raw) ||
        !gsv_member_flag(exchange, body, "return_documents", &ranking->return_texts))
        return false;
    /* Only Voyage has these fields; its clients send them always and read `data`. */
    ranking->is_voyage =
        json_object_get(body, "top_k") != NULL || json_object_get(body, "truncation") != NULL;
    ranking->rerank.truncation = cut ? GPUSERVE_TRUNCATE_DEFAULT : GPUSERVE_TRUNCATE_STRICT;
    ranking->cut = (struct gsv_cut){ "max_tokens_per_doc", (size_t)limit };
    return true;
}

static void rerank_documents(struct gsv_exchange *exchange)
{
    struct rerank_ranking *ranking = gsv_exchange_alloc(exchange, 1, sizeof(*ranking));

    if (!ranking || !gsv_request_body_model(exchange) || !read_options(exchange, ranking))
        return;
    exchange->cut_by = "`truncation`: true";
    start(exchange, ranking, exchange->json, "documents", write_results);
}

void gsv_tei_rerank(struct gsv_exchange *exchange)
{
    if (exchange->dialect == GSV_TEI && !json_object_get(exchange->json, "documents")) {
        if (gsv_request_body_model(exchange))
            gsv_tei_rerank_start(exchange, exchange->json, write_tei);
        return;
    }
    if (exchange->dialect == GSV_TEI) /* llama.cpp's request: its errors have OpenAI's form */
        exchange->dialect = GSV_OPENAI;
    rerank_documents(exchange);
}

const struct gsv_route gsv_rerank_routes[] = {
    { "POST", "/rerank", GSV_TEI, GSV_JSON_BODY, gsv_tei_rerank,
      "text-embeddings-inference, llama.cpp, vLLM" },
    { "POST", "/reranking", GSV_TEI, GSV_JSON_BODY, gsv_tei_rerank, "llama.cpp" },
    { "POST", "/v1/rerank", GSV_JINA, GSV_JSON_BODY, gsv_tei_rerank, "Cohere, Jina, vLLM" },
    { "POST", "/v1/reranking", GSV_JINA, GSV_JSON_BODY, gsv_tei_rerank, "Jina, llama.cpp" },
    { "POST", "/v2/rerank", GSV_COHERE, GSV_JSON_BODY, gsv_tei_rerank, "Cohere, vLLM" },
    { 0 },
};
