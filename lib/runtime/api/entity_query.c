/*
 * entity_query.c - public calls that find entities of given labels.
 *
 *   create: texts and labels -> tokens                                  entity_tokens.c
 *   run:    tokens -> job -> token vectors -> decode, in parts of bounded size
 *   decode: token vectors -> words and labels -> head -> scores         entity_scores.c
 *           scores -> entities                                          entity_decode.c
 *
 * The query keeps a reference to the model's handle, and the fingerprint of the model that
 * tokenized it: vectors of another one are refused.
 */
#include "lib/runtime/api/entity_query.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/api/job_fields.h"
#include "lib/runtime/models/handle.h"

#include <stdlib.h>
#include <string.h>

#define PART_TEXTS 64
#define PART_TOKENS 16384 /* of token vectors in memory at a time */

/* --------------------------------------------------------------------------------------- create
 */

static gpuserve_status check_settings(const gpuserve_entity_request *request, gpuserve_error *error)
{
    if (!(request->threshold >= 0.0f && request->threshold <= 1.0f))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "entity request: threshold is %g, outside 0 to 1",
                        (double)request->threshold);
    if (request->overlap > GPUSERVE_OVERLAP_NESTED)
        return gsv_fail(error, GPUSERVE_E_INVALID, "entity request: overlap is %u, outside 0 to %d",
                        request->overlap, GPUSERVE_OVERLAP_NESTED);
    if (request->multi_label > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "entity request: multi_label is %u, neither 0 nor 1", request->multi_label);
    if (request->truncation > GPUSERVE_TRUNCATE_STRICT)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "entity request: truncation is %u, outside 0 to %d", request->truncation,
                        GPUSERVE_TRUNCATE_STRICT);
    if (request->reserved != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "entity request: `reserved` is not zero");
    return GPUSERVE_OK;
}

static gpuserve_status check_request(const gpuserve_entity_request *request, gpuserve_error *error)
{
    const size_t *offsets = request->label_offsets;
    gpuserve_status st = check_settings(request, error);

    if (st != GPUSERVE_OK)
        return st;
    if (request->n_texts > 0 && !request->texts)
        return gsv_fail(error, GPUSERVE_E_INVALID, "entity request: `texts` is NULL");
    if (request->n_labels > 0 && !request->labels)
        return gsv_fail(error, GPUSERVE_E_INVALID, "entity request: `labels` is NULL");
    for (size_t i = 0; i < request->n_texts; i++) {
        if (!request->texts[i])
            return gsv_fail(error, GPUSERVE_E_INVALID, "text %zu is NULL", i);
        if (offsets && (offsets[i] > offsets[i + 1] || offsets[i + 1] > request->n_labels))
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "label_offsets of text %zu are %zu to %zu of %zu labels", i, offsets[i],
                            offsets[i + 1], request->n_labels);
    }
    return GPUSERVE_OK;
}

static gpuserve_status check_model(const struct gsv_model *model, gpuserve_error *error)
{
    if (model->plan.facts->entity.width > 0)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "%s has no entity head: it does not take labels with the request", model->name);
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED,
                    "open a GLiNER model; a token classifier finds entities of its own labels "
                    "without `labels`");
}

static gpuserve_status alloc_query(gpuserve_entity_query *query, gpuserve_error *error)
{
    const size_t n = query->n_texts;

    if (n >= SIZE_MAX / sizeof(*query->texts))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the request has %zu texts", n);
    query->texts = gsv_alloc_array(n + 1, sizeof(*query->texts));
    query->offsets = gsv_alloc_array(n + 1, sizeof(*query->offsets));
    query->found_offsets = gsv_alloc_array(n + 1, sizeof(*query->found_offsets));
    return query->texts && query->offsets && query->found_offsets
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu texts", n);
}

/* The model needs no weights here: an offloaded one is not reloaded. */
static gpuserve_status fill_query(gpuserve_entity_query *query,
                                  const gpuserve_entity_request *request, gpuserve_error *error)
{
    struct gsv_model *model;
    gpuserve_status st = gsv_handle_pin(query->model, &model, error);

    if (st != GPUSERVE_OK)
        return st;
    memcpy(query->fingerprint, model->fingerprint, sizeof(query->fingerprint));
    query->width = (size_t)model->plan.facts->entity.width;
    st = check_model(model, error);
    if (st == GPUSERVE_OK)
        st = alloc_query(query, error);
    if (st == GPUSERVE_OK)
        st = gsv_entity_tokenize(query, model, request, error);
    gsv_handle_unpin(query->model, &model);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_entity_query_create(gpuserve_entity_query **out,
                                                          gpuserve_model *model,
                                                          const gpuserve_entity_request *given,
                                                          gpuserve_error *error)
{
    gpuserve_entity_request request;
    gpuserve_entity_query *query;
    gpuserve_status st;

    if (!out)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`query` is NULL");
    *out = NULL;
    st = gsv_handle_check(model, error);
    if (st == GPUSERVE_OK && !given)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`request` is NULL");
    if (st == GPUSERVE_OK)
        st = gsv_read_struct(&request, sizeof(request), given, "gpuserve_entity_request", error);
    if (st == GPUSERVE_OK)
        st = check_request(&request, error);
    if (st != GPUSERVE_OK)
        return st;
    query = gsv_alloc_array(1, sizeof(*query));
    if (!query)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an entity query");
    query->model = gpuserve_model_ref(model);
    query->n_texts = request.n_texts;
    query->threshold = request.threshold > 0.0f ? request.threshold : 0.5f;
    query->overlap = request.overlap;
    query->multi_label = request.multi_label == 1;
    st = fill_query(query, &request, error);
    if (st == GPUSERVE_OK)
        *out = query;
    else
        gpuserve_entity_query_free(&query);
    return st;
}

GPUSERVE_API void gpuserve_entity_query_free(gpuserve_entity_query **out)
{
    gpuserve_entity_query *query = out ? *out : NULL;

    if (!query)
        return;
    *out = NULL;
    gpuserve_model_close(&query->model);
    free(query->texts);
    free(query->words);
    free(query->label_tokens);
    free(query->ids);
    free(query->offsets);
    free(query->found);
    free(query->found_offsets);
    free(query);
}

/* --------------------------------------------------------------------------------------- decode
 */

static gpuserve_status check_same(const gpuserve_entity_query *query, const struct gsv_model *model,
                                  gpuserve_error *error)
{
    if (strcmp(query->fingerprint, model->fingerprint) == 0)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_MISMATCH,
             "%s: the fingerprint was %s when the texts were tokenized, and is %s", model->name,
             query->fingerprint, model->fingerprint);
    return gsv_hint(error, GPUSERVE_E_MISMATCH, "the model was swapped: create the query again");
}

/* Decode the texts [first, end) from their vectors. */
static gpuserve_status decode_texts(gpuserve_entity_query *query, const float *vectors,
                                    size_t first, size_t end, gpuserve_error *error)
{
    struct gsv_model *model;
    gpuserve_status st = gsv_handle_use(query->model, 0, &model, error);

    if (st != GPUSERVE_OK)
        return st;
    st = check_same(query, model, error);
    if (st == GPUSERVE_OK)
        st = gsv_entity_decode(query, model, vectors, first, end, error);
    gsv_handle_unuse(query->model, &model);
    return st;
}

static void begin(gpuserve_entity_query *query)
{
    query->is_done = false;
    query->n_found = 0;
}

static void finish(gpuserve_entity_query *query)
{
    query->found_offsets[query->n_texts] = query->n_found;
    query->is_done = true;
}

GPUSERVE_API gpuserve_status gpuserve_entity_query_decode(gpuserve_entity_query *query,
                                                          const float *vectors, size_t n_floats,
                                                          gpuserve_error *error)
{
    gpuserve_status st;

    if (!query)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`query` is NULL");
    st = gsv_handle_check(query->model, error);
    if (st != GPUSERVE_OK)
        return st;
    if (n_floats != query->n_ids * query->width || (n_floats > 0 && !vectors))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "`vectors` is NULL or has %zu floats, expected %zu tokens of %zu", n_floats,
                        query->n_ids, query->width);
    begin(query);
    st = decode_texts(query, vectors, 0, query->n_texts, error);
    if (st == GPUSERVE_OK)
        finish(query);
    return st;
}

/* ------------------------------------------------------------------------------------------ run
 */

GPUSERVE_API size_t gpuserve_entity_query_job(const gpuserve_entity_query *query, gpuserve_job *job)
{
    if (!query || !job)
        return 0;
    job->task = GPUSERVE_TASK_TOKEN_VECTORS;
    job->n_items = query->n_texts;
    job->ids = query->ids;
    job->id_offsets = query->offsets;
    return query->n_ids;
}

/* The texts of the next part: their tokens' vectors are in memory together. */
static size_t end_of_part(const gpuserve_entity_query *query, size_t first)
{
    size_t end = first + 1;

    while (end < query->n_texts && end - first < PART_TEXTS &&
           query->offsets[end + 1] - query->offsets[first] <= PART_TOKENS)
        end++;
    return end;
}

static void add_result(gpuserve_result *sum, const gpuserve_result *part)
{
    const uint32_t size = sum->struct_size;
    gpuserve_result total = *part;

    total.struct_size = size;
    total.n_tokens += sum->n_tokens;
    total.n_truncated += sum->n_truncated;
    total.n_cached += sum->n_cached;
    total.tokenize_us += sum->tokenize_us;
    total.queue_us += sum->queue_us;
    total.compute_us += sum->compute_us;
    total.total_us += sum->total_us;
    *sum = total;
}

/* Run the texts [first, end) of a call that began at begin_ns; `given` has the settings of the job.
 */
static gpuserve_status run_part(gpuserve_entity_query *query, const gpuserve_job *given,
                                uint64_t begin_ns, size_t first, size_t end, gpuserve_result *sum,
                                gpuserve_error *error)
{
    const size_t n = end - first, from = query->offsets[first];
    const size_t n_floats = (query->offsets[end] - from) * query->width;
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    size_t offsets[PART_TEXTS + 1], rows[PART_TEXTS + 1];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    float *vectors = gsv_alloc_array(n_floats + 1, sizeof(*vectors));
    gpuserve_status st;

    if (!vectors)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the vectors of %zu texts", n);
    for (size_t i = 0; i <= n; i++)
        offsets[i] = query->offsets[first + i] - from;
    job.deadline_us = gsv_deadline_left_us(given->deadline_us, begin_ns);
    job.priority = given->priority;
    job.cache = given->cache;
    job.client = given->client;
    job.expected_fingerprint =
        given->expected_fingerprint ? given->expected_fingerprint : query->fingerprint;
    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    job.n_items = n;
    job.ids = query->ids + from;
    job.id_offsets = offsets;
    job.token_offsets = rows;
    job.output = vectors;
    job.output_capacity = n_floats;
    job.items = given->items ? given->items + first : NULL;
    job.result = &result;
    st = gpuserve_run(query->model, &job, error);
    if (st == GPUSERVE_OK)
        st = decode_texts(query, vectors, first, end, error);
    for (size_t i = 0; i < n && st == GPUSERVE_OK; i++) {
        result.n_truncated += query->texts[first + i].truncated;
        if (job.items)
            job.items[i].truncated = query->texts[first + i].truncated;
    }
    if (st == GPUSERVE_OK)
        add_result(sum, &result);
    free(vectors);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_entity_query_run(gpuserve_entity_query *query,
                                                       const gpuserve_job *given,
                                                       gpuserve_error *error)
{
    const uint64_t begin_ns = gsv_now_ns();
    gpuserve_result sum = GPUSERVE_RESULT_INIT;
    gpuserve_job job;
    gpuserve_status st;

    if (!query)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`query` is NULL");
    st = gsv_read_job_options(&job, given, GSV_JOB_ALL & ~GSV_JOB_ITEMS,
                              "gpuserve_entity_query_run", error);
    if (st == GPUSERVE_OK && job.result)
        st = gsv_check_struct(job.result, sizeof(*job.result), "gpuserve_result", error);
    if (st != GPUSERVE_OK)
        return st;
    begin(query);
    for (size_t first = 0, end; first < query->n_texts && st == GPUSERVE_OK; first = end) {
        end = end_of_part(query, first);
        st = run_part(query, &job, begin_ns, first, end, &sum, error);
    }
    if (st != GPUSERVE_OK)
        return st;
    finish(query);
    if (job.result)
        memcpy((char *)job.result + sizeof(uint32_t), (const char *)&sum + sizeof(uint32_t),
               sizeof(sum) - sizeof(uint32_t));
    return GPUSERVE_OK;
}

/* --------------------------------------------------------------------------------------- results
 */

GPUSERVE_API const gpuserve_found_entity *
gpuserve_entity_query_found(const gpuserve_entity_query *query, size_t text, size_t *n,
                            uint32_t *truncated)
{
    const bool exists = query && text < query->n_texts;
    size_t count = 0;

    if (exists && query->is_done)
        count = query->found_offsets[text + 1] - query->found_offsets[text];
    if (n)
        *n = count;
    if (truncated)
        *truncated = exists && query->texts[text].truncated;
    return count > 0 ? query->found + query->found_offsets[text] : NULL;
}
