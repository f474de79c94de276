/*
 * rerank.c - scores documents against a query and ranks them.
 *
 *   CROSS_ENCODER   (query, document) as a pair -> the model's single logit -> sigmoid
 *   COSINE          query -> unit vector; documents -> unit vectors -> dot products
 *   MAX_SIM         query -> token vectors; documents with these -> scores (GPUSERVE_TASK_MAX_SIM)
 *
 * MaxSim is computed on the host, by gpuserve_max_sim(), where the model has a result cache: it
 * keeps the documents' token vectors for the next query. Also for a query of too many tokens.
 *
 * Documents run in blocks of BLOCK_DOCUMENTS, so that scratch memory, without the results, does not
 * grow with their number. The caller's memory is written last, after all results are known. The
 * model stays pinned for the whole call: query and documents use the same model.
 */
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/runtime/api/job_fields.h"
#include "lib/runtime/models/handle.h"

#include <math.h>
#include <string.h>

#define BLOCK_DOCUMENTS 4096
/* Address space of the token vectors of a block, as if each document had the most tokens; only the
 * pages of those it has are used. */
#define BLOCK_BYTES ((size_t)256 << 20)

struct rerank {
    struct gsv_model *model; /* pinned: one model for the query and all documents */
    const char *query;
    size_t query_size;
    const char *const *documents;
    size_t n;
    gpuserve_rerank_options options;
    gpuserve_job job; /* settings of all jobs of the call */
    size_t dim;
    size_t block;            /* documents */
    size_t row_floats;       /* of a text: dim, or those of the most tokens */
    float *scores;           /* [n] */
    gpuserve_item *items;    /* [n] */
    float *vectors;          /* COSINE: [block, dim]; MAX_SIM: [tokens of the block, dim], on the
                                host */
    float *query_vector;     /* COSINE: [dim]; MAX_SIM: [tokens, dim] */
    size_t n_query;          /* MAX_SIM: rows of the query that count */
    size_t *offsets;         /* MAX_SIM: [block + 1] first token of each document */
    size_t query_offsets[2]; /* MAX_SIM: of the query */
    const char **queries;    /* CROSS_ENCODER: the query, [block] times */
    size_t *query_sizes;     /* [block] */
    uint64_t begin_ns;
    gpuserve_result result;
};

/* ------------------------------------------------------------------------------------- checks */

static gpuserve_status check_options(const gpuserve_rerank_options *options, gpuserve_error *error)
{
    if (options->method > GPUSERVE_RERANK_MAX_SIM)
        return gsv_fail(error, GPUSERVE_E_INVALID, "rerank options: method is %u, outside 0 to %d",
                        options->method, GPUSERVE_RERANK_MAX_SIM);
    if (options->reserved != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "rerank options: `reserved` is not zero");
    if (options->score != GPUSERVE_SCORE_DEFAULT && options->score != GPUSERVE_SCORE_RAW &&
        options->score != GPUSERVE_SCORE_SIGMOID)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "rerank options: score is %u, neither raw nor sigmoid", options->score);
    return GPUSERVE_OK;
}

static gpuserve_status check_texts(const struct rerank *r, gpuserve_error *error)
{
    size_t valid;

    if (!r->query)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`query` is NULL");
    valid = gsv_utf8_valid_length(r->query, r->query_size);
    if (valid != r->query_size)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the query is not UTF-8 at byte %zu", valid);
    if (r->n > 0 && !r->documents)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`documents` is NULL");
    for (size_t i = 0; i < r->n; i++)
        if (!r->documents[i])
            return gsv_fail(error, GPUSERVE_E_INVALID, "document %zu is NULL", i);
    return GPUSERVE_OK;
}

static gpuserve_status choose_method(struct rerank *r, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = r->model->plan.facts;
    const gpuserve_rerank_method own = gsv_rerank_method(facts);

    if (r->options.method == GPUSERVE_RERANK_DEFAULT)
        r->options.method = own;
    if (r->options.method == GPUSERVE_RERANK_CROSS_ENCODER && own != GPUSERVE_RERANK_CROSS_ENCODER)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the model is not a cross-encoder: a cross-encoder's own classifier has "
                        "one label, this one has %zu",
                        facts->own_classifier ? facts->n_labels : 0);
    if ((r->options.method == GPUSERVE_RERANK_COSINE && facts->dim > 0) ||
        (r->options.method == GPUSERVE_RERANK_MAX_SIM && facts->is_late))
        return GPUSERVE_OK;
    if (r->options.method == GPUSERVE_RERANK_MAX_SIM)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the model does not support MaxSim: its token vectors are not made for "
                        "late interaction (ColBERT)");
    if (r->options.method == GPUSERVE_RERANK_COSINE)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the model does not support cosine scores: it has no embedding, only a "
                        "classifier with %zu labels",
                        facts->n_labels);
    if (r->options.method != GPUSERVE_RERANK_CROSS_ENCODER)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the model does not support reranking: its classifier has %zu labels, and "
                        "it has no embedding",
                        facts->n_labels);
    if ((r->options.query_prompt && !facts->pair_template) || r->options.document_prompt)
        return gsv_fail(error, GPUSERVE_E_INVALID, "a cross-encoder does not accept prompts");
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------- memory */

static bool is_max_sim(const struct rerank *r)
{
    return r->options.method == GPUSERVE_RERANK_MAX_SIM;
}

static gpuserve_status fail_memory(const struct rerank *r, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory to rerank %zu documents", r->n);
}

static bool alloc_query(struct rerank *r)
{
    const struct gsv_plan *plan = &r->model->plan;

    r->dim = (size_t)(is_max_sim(r) ? plan->facts->token_dim : plan->facts->dim);
    r->row_floats = r->dim * (is_max_sim(r) ? (size_t)plan->max_tokens : 1);
    r->query_vector = gsv_alloc_mapped(r->row_floats * sizeof(float)); /* both are below 2^31 */
    return r->query_vector;
}

/* Vectors of a block of documents. */
static bool alloc_vectors(struct rerank *r)
{
    const size_t bytes = r->row_floats * sizeof(float);

    if (is_max_sim(r) && r->block > BLOCK_BYTES / bytes)
        r->block = BLOCK_BYTES / bytes > 0 ? BLOCK_BYTES / bytes : 1;
    if (is_max_sim(r)) {
        r->offsets = gsv_alloc_array(r->block + 1, sizeof(*r->offsets));
        if (!r->offsets)
            return false;
    }
    r->vectors = gsv_alloc_mapped(r->block * bytes);
    return r->vectors;
}

/* The query of each pair of a block. */
static bool alloc_queries(struct rerank *r)
{
    r->queries = gsv_alloc_array(r->block, sizeof(*r->queries));
    r->query_sizes = gsv_alloc_array(r->block, sizeof(*r->query_sizes));
    for (size_t i = 0; i < r->block && r->queries && r->query_sizes; i++) {
        r->queries[i] = r->query;
        r->query_sizes[i] = r->query_size;
    }
    return r->queries && r->query_sizes;
}

static gpuserve_status alloc_buffers(struct rerank *r, gpuserve_error *error)
{
    bool whole;

    r->block = r->n < BLOCK_DOCUMENTS ? r->n : BLOCK_DOCUMENTS;
    r->scores = gsv_alloc_array(r->n, sizeof(*r->scores));
    r->items = gsv_alloc_array(r->n, sizeof(*r->items));
    whole = r->scores && r->items;
    if (whole)
        whole =
            r->options.method == GPUSERVE_RERANK_CROSS_ENCODER ? alloc_queries(r) : alloc_query(r);
    return whole ? GPUSERVE_OK : fail_memory(r, error);
}

static void free_buffers(struct rerank *r)
{
    free(r->scores);
    free(r->items);
    gsv_free_mapped(r->vectors);
    gsv_free_mapped(r->query_vector);
    free(r->offsets);
    free(r->queries);
    free(r->query_sizes);
}

/* --------------------------------------------------------------------------------------- jobs */

static const char *prompt_named(const struct gsv_spec_facts *facts, const char *const names[])
{
    for (; *names; names++)
        for (size_t i = 0; i < facts->n_prompts; i++)
            if (strcmp(facts->prompts[i].name, *names) == 0)
                return facts->prompts[i].name;
    return NULL;
}

/* As sentence-transformers' encode_query and encode_document: the prompt of that name, else the
 * model's default prompt. */
static void set_prompt(const struct rerank *r, gpuserve_job *job, bool is_query)
{
    static const char *const of_query[] = { "query", "retrieval.query", NULL };
    static const char *const of_document[] = { "document", "passage", "corpus", "retrieval.passage",
                                               NULL };

    job->prompt = is_query ? r->options.query_prompt : r->options.document_prompt;
    if (!job->prompt)
        job->prompt_name = prompt_named(r->model->plan.facts, is_query ? of_query : of_document);
}

/* Job fields common to the whole call; the deadline covers the whole call. */
static gpuserve_job new_job(const struct rerank *r)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;

    job.truncation = r->job.truncation;
    job.priority = r->job.priority;
    job.cache = r->job.cache;
    job.expected_fingerprint = r->job.expected_fingerprint;
    job.client = r->job.client;
    job.deadline_us = gsv_deadline_left_us(r->job.deadline_us, r->begin_ns);
    return job;
}

static gpuserve_job embedding_job(const struct rerank *r, bool is_query)
{
    gpuserve_job job = new_job(r);

    job.task = is_max_sim(r) ? GPUSERVE_TASK_TOKEN_VECTORS : GPUSERVE_TASK_EMBED;
    job.role = is_query ? GPUSERVE_ROLE_QUERY : GPUSERVE_ROLE_DOCUMENT;
    if (!is_max_sim(r))
        job.normalize = GPUSERVE_NORMALIZE_YES; /* makes the dot product the cosine */
    set_prompt(r, &job, is_query);
    return job;
}

/* GPUSERVE_E_NUMERIC is not an error here: judge() reports rows of NaN for all documents
 * together. */
static gpuserve_status await(struct rerank *r, gpuserve_request **request,
                             const gpuserve_result *result, gpuserve_error *error)
{
    gpuserve_status st = gpuserve_wait(*request, -1, error);

    gpuserve_request_free(request);
    if (st != GPUSERVE_OK && st != GPUSERVE_E_NUMERIC)
        return st;
    r->result.n_tokens += result->n_tokens;
    r->result.n_truncated += result->n_truncated;
    r->result.n_cached += result->n_cached;
    r->result.tokenize_us += result->tokenize_us;
    r->result.queue_us += result->queue_us;
    r->result.compute_us += result->compute_us;
    r->result.dtype = result->dtype;
    memcpy(r->result.device, result->device, sizeof(result->device));
    memcpy(r->result.fingerprint, result->fingerprint, sizeof(result->fingerprint));
    return GPUSERVE_OK;
}

static gpuserve_status run_block(struct rerank *r, gpuserve_job *job, size_t first,
                                 gpuserve_error *error)
{
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_request *request = NULL;
    gpuserve_status st;

    job->items = r->items + first;
    job->result = &result;
    st = gsv_request_create(&request, r->model, job, NULL, NULL, true, gsv_now_ns(), error);
    if (st == GPUSERVE_OK)
        st = await(r, &request, &result, error);
    if (st == GPUSERVE_OK) /* in a message, item numbers are relative to `first` */
        return st;
    return first == 0 ? gsv_fail_in(error, st, "the documents")
                      : gsv_fail_in(error, st, "the documents from index %zu", first);
}

static gpuserve_status score_pairs(struct rerank *r, size_t first, size_t n, gpuserve_error *error)
{
    gpuserve_job job = new_job(r);

    job.task = GPUSERVE_TASK_CLASSIFY;
    job.prompt = r->options.query_prompt; /* the instruction of a pair template */
    job.score = r->options.score ? r->options.score : (uint32_t)GPUSERVE_SCORE_SIGMOID;
    job.n_items = n;
    job.texts = r->queries;
    job.text_sizes = r->query_sizes;
    job.pairs = r->documents + first;
    job.pair_sizes = r->options.document_sizes ? r->options.document_sizes + first : NULL;
    job.output = r->scores + first;
    job.output_capacity = n;
    return run_block(r, &job, first, error);
}

static gpuserve_status embed_documents(struct rerank *r, size_t first, size_t n,
                                       gpuserve_error *error)
{
    gpuserve_job job = embedding_job(r, false);

    job.n_items = n;
    job.texts = r->documents + first;
    job.text_sizes = r->options.document_sizes ? r->options.document_sizes + first : NULL;
    job.output = r->vectors;
    job.output_capacity = n * r->row_floats;
    job.token_offsets = r->offsets;
    return run_block(r, &job, first, error);
}

/* The query is submitted before the first block of documents and usually joins its batch. */
static gpuserve_status submit_query(struct rerank *r, gpuserve_request **request,
                                    gpuserve_result *result, gpuserve_error *error)
{
    gpuserve_job job = embedding_job(r, true);
    gpuserve_status st;

    job.n_items = 1;
    job.texts = &r->query;
    job.text_sizes = &r->query_size;
    job.output = r->query_vector;
    job.output_capacity = r->row_floats;
    job.token_offsets = is_max_sim(r) ? r->query_offsets : NULL;
    job.result = result;
    st = gsv_request_create(request, r->model, &job, NULL, NULL, false, gsv_now_ns(), error);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "the query");
}

static gpuserve_status await_query(struct rerank *r, gpuserve_request **request,
                                   const gpuserve_result *result, gpuserve_error *error)
{
    const size_t first = (size_t)r->model->plan.facts->first_vector;
    const gpuserve_status st = await(r, request, result, error);

    if (st != GPUSERVE_OK)
        return gsv_fail_in(error, st, "the query");
    r->n_query = r->query_offsets[1] > first ? r->query_offsets[1] - first : 0;
    return GPUSERVE_OK;
}

/* The vectors of the query that count. */
static const float *query_vectors(const struct rerank *r)
{
    return r->query_vector + (size_t)r->model->plan.facts->first_vector * r->dim;
}

/* MaxSim of a document whose token vectors begin at `vectors`. */
static float max_sim(const struct rerank *r, const float *vectors, size_t n_tokens)
{
    const size_t first = (size_t)r->model->plan.facts->first_vector;
    const size_t n_document = n_tokens > first ? n_tokens - first : 0;

    return gpuserve_max_sim(query_vectors(r), r->n_query, vectors + first * r->dim, n_document,
                            r->dim);
}

/* Documents [first, first + n), whose vectors are in r->vectors. */
static void score_block(const struct rerank *r, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        r->scores[first + i] =
            is_max_sim(r)
                ? max_sim(r, r->vectors + r->offsets[i] * r->dim, r->offsets[i + 1] - r->offsets[i])
                : gpuserve_dot(r->query_vector, r->vectors + i * r->dim, r->dim);
}

/* The scores of documents [first, first + n) are all that leaves the device. */
static gpuserve_status score_on_device(struct rerank *r, size_t first, size_t n,
                                       gpuserve_error *error)
{
    gpuserve_job job = embedding_job(r, false);

    job.task = GPUSERVE_TASK_MAX_SIM;
    job.n_items = n;
    job.texts = r->documents + first;
    job.text_sizes = r->options.document_sizes ? r->options.document_sizes + first : NULL;
    job.query_vectors = query_vectors(r);
    job.n_query_vectors = r->n_query;
    job.output = r->scores + first;
    job.output_capacity = n;
    return run_block(r, &job, first, error);
}

/* `query` is NULL if it was awaited before, else it may join the documents' batch. */
static gpuserve_status score_on_host(struct rerank *r, gpuserve_request **query,
                                     const gpuserve_result *result, size_t first, size_t n,
                                     gpuserve_error *error)
{
    gpuserve_status st = embed_documents(r, first, n, error);

    if (st == GPUSERVE_OK && *query)
        st = await_query(r, query, result, error);
    if (st == GPUSERVE_OK)
        score_block(r, first, n);
    return st;
}

/* The result cache keeps the documents' vectors. */
static bool uses_cache(const struct rerank *r)
{
    return r->model->cache && r->job.cache != GPUSERVE_CACHE_OFF;
}

/* Scores are means over the query's vectors, unless they are raw. */
static void divide_scores(const struct rerank *r)
{
    for (size_t i = 0; i < r->n && r->options.score != GPUSERVE_SCORE_RAW && r->n_query > 0; i++)
        r->scores[i] /= (float)r->n_query;
}

static gpuserve_status score_vectors(struct rerank *r, gpuserve_error *error)
{
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_request *query = NULL;
    gpuserve_status st = submit_query(r, &query, &result, error);
    bool on_device = is_max_sim(r) && !uses_cache(r);

    if (st == GPUSERVE_OK && on_device)
        st = await_query(r, &query, &result, error);
    on_device = on_device && r->n_query <= GPUSERVE_MAX_QUERY_VECTORS;
    if (st == GPUSERVE_OK && !on_device && !alloc_vectors(r))
        st = fail_memory(r, error);
    for (size_t first = 0; first < r->n && st == GPUSERVE_OK; first += r->block) {
        const size_t left = r->n - first, n = left < r->block ? left : r->block;

        st = on_device ? score_on_device(r, first, n, error)
                       : score_on_host(r, &query, &result, first, n, error);
    }
    if (st == GPUSERVE_OK && is_max_sim(r))
        divide_scores(r);
    gpuserve_request_free(&query);
    return st;
}

static gpuserve_status score_all_pairs(struct rerank *r, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (size_t first = 0; first < r->n && st == GPUSERVE_OK; first += r->block) {
        const size_t left = r->n - first;

        st = score_pairs(r, first, left < r->block ? left : r->block, error);
    }
    return st;
}

/* ------------------------------------------------------------------------------------- result */

static gpuserve_status judge(struct rerank *r, gpuserve_error *error)
{
    size_t bad = 0, first = 0;

    for (size_t i = r->n; i-- > 0;) {
        if (isfinite(r->scores[i]))
            continue;
        r->items[i].status = GPUSERVE_E_NUMERIC;
        first = i;
        bad++;
    }
    return bad == 0
               ? GPUSERVE_OK
               : gsv_fail(
                     error, GPUSERVE_E_NUMERIC,
                     "%zu of %zu scores are NaN or infinite, the first is that of document %zu",
                     bad, r->n, first);
}

static void hand_over(const struct rerank *r, float *scores, size_t *order)
{
    const size_t top = r->options.top_n;
    const float one = 1.0f;

    memcpy(scores, r->scores, r->n * sizeof(*scores));
    if (r->job.items)
        memcpy(r->job.items, r->items, r->n * sizeof(*r->items));
    if (r->job.result) {
        const uint32_t size = r->job.result->struct_size;

        *r->job.result = r->result;
        r->job.result->struct_size = size;
        r->job.result->total_us = (gsv_now_ns() - r->begin_ns) / 1000;
    }
    if (order)
        gpuserve_top_k(&one, scores, r->n, 1, top ? top : r->n, order, NULL);
}

static gpuserve_status rerank(struct rerank *r, float *scores, size_t *order, gpuserve_error *error)
{
    gpuserve_status st = alloc_buffers(r, error);

    if (st == GPUSERVE_OK)
        st = r->options.method == GPUSERVE_RERANK_CROSS_ENCODER ? score_all_pairs(r, error)
                                                                : score_vectors(r, error);
    if (st == GPUSERVE_OK) {
        st = judge(r, error);
        hand_over(r, scores, order);
    }
    free_buffers(r);
    return st;
}

static gpuserve_status check_all(struct rerank *r, const float *scores, size_t capacity,
                                 gpuserve_error *error)
{
    gpuserve_status st = check_options(&r->options, error);

    if (st == GPUSERVE_OK)
        st = check_texts(r, error);
    if (st == GPUSERVE_OK)
        st = choose_method(r, error);
    if (st == GPUSERVE_OK && r->n > 0 && !scores)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`scores` is NULL");
    if (st == GPUSERVE_OK && capacity < r->n)
        st = gsv_fail(error, GPUSERVE_E_INVALID,
                      "`scores` has capacity for %zu scores, the call has %zu documents", capacity,
                      r->n);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_rerank(gpuserve_model *handle, const char *query,
                                             const char *const *documents, size_t n_documents,
                                             float *scores, size_t *order, size_t capacity,
                                             const gpuserve_rerank_options *given,
                                             const gpuserve_job *job, gpuserve_error *error)
{
    struct rerank r = {
        .query = query, .documents = documents, .n = n_documents, .begin_ns = gsv_now_ns()
    };
    gpuserve_status st = gsv_handle_check(handle, error);

    if (st == GPUSERVE_OK)
        st =
            gsv_read_struct(&r.options, sizeof(r.options), given, "gpuserve_rerank_options", error);
    if (st == GPUSERVE_OK)
        st = gsv_read_job_options(&r.job, job, GSV_JOB_ALL & ~(GSV_JOB_TRUNCATION | GSV_JOB_ITEMS),
                                  "gpuserve_rerank", error);
    if (st == GPUSERVE_OK && r.job.result)
        st = gsv_check_struct(r.job.result, sizeof(r.result), "gpuserve_result", error);
    if (st == GPUSERVE_OK)
        st =
            gsv_handle_use(handle, gsv_deadline_ns(r.job.deadline_us, r.begin_ns), &r.model, error);
    if (st != GPUSERVE_OK)
        return st;
    r.query_size = r.options.query_size || !query ? r.options.query_size : strlen(query);
    st = check_all(&r, scores, capacity, error);
    if (st == GPUSERVE_OK && n_documents > 0)
        st = rerank(&r, scores, order, error);
    gsv_handle_unuse(handle, &r.model);
    return st;
}
