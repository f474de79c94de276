/*
 * job.c - validation of a job against its model.
 *
 * The order matters under load: first fields and sizes, which are cheap (gsv_job_check); then
 * admission (admission.c); only then every byte of the texts (gsv_job_check_content).
 */
#include "lib/runtime/scheduler/request.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/runtime/model.h"
#include "lib/runtime/plan/load_plan.h"
#include "lib/runtime/scheduler/result_cache.h"

#include <stdio.h>
#include <string.h>

#define MAX_ITEMS (1u << 28)
#define MAX_TEXT_BYTES (1u << 30) /* offsets in a text have 32 bits */
#define BYTES_A_TOKEN 3           /* an estimate: English prose has 4 to 5, other scripts 2 to 3 */

static const char *text_at(const char *const *texts, const size_t *sizes, size_t i, size_t *size)
{
    if (!texts)
        return NULL;
    *size = sizes ? sizes[i] : strlen(texts[i]);
    return texts[i];
}

const char *gsv_job_text(const gpuserve_job *job, size_t i, size_t *size)
{
    return text_at(job->texts, job->text_sizes, i, size);
}

const char *gsv_job_pair(const gpuserve_job *job, size_t i, size_t *size)
{
    return text_at(job->pairs, job->pair_sizes, i, size);
}

/* ------------------------------------------------------------------------------------ fields */

static gpuserve_status check_enum(const char *name, uint32_t value, uint32_t last,
                                  gpuserve_error *error)
{
    return value <= last ? GPUSERVE_OK
                         : gsv_fail(error, GPUSERVE_E_INVALID, "job.%s is %u, outside 0 to %u",
                                    name, value, last);
}

static gpuserve_status check_enums(const gpuserve_job *job, gpuserve_error *error)
{
    gpuserve_status st = check_enum("task", job->task, GPUSERVE_TASK_MAX_SIM, error);

    if (st == GPUSERVE_OK)
        st = check_enum("truncation", job->truncation, GPUSERVE_TRUNCATE_STRICT, error);
    if (st == GPUSERVE_OK)
        st = check_enum("normalize", job->normalize, GPUSERVE_NORMALIZE_WHOLE, error);
    if (st == GPUSERVE_OK)
        st = check_enum("score", job->score, GPUSERVE_SCORE_SIGMOID, error);
    if (st == GPUSERVE_OK)
        st = check_enum("priority", job->priority, GPUSERVE_PRIORITY_LOW, error);
    if (st == GPUSERVE_OK)
        st = check_enum("cache", job->cache, GPUSERVE_CACHE_OFF, error);
    if (st == GPUSERVE_OK)
        st = check_enum("role", job->role, GPUSERVE_ROLE_DOCUMENT, error);
    if (st == GPUSERVE_OK)
        st = check_enum("precision", job->precision, GPUSERVE_PRECISION_UBINARY, error);
    return st;
}

static gpuserve_status check_input(const gpuserve_job *job, gpuserve_error *error)
{
    if (job->n_items > MAX_ITEMS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the job has %zu items, the limit is %u",
                        job->n_items, MAX_ITEMS);
    if (job->texts && job->ids)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the job has both `texts` and `ids`");
    if (!job->texts && (job->text_sizes || job->pairs))
        return gsv_fail(error, GPUSERVE_E_INVALID, "the job has `%s` but no `texts`",
                        job->pairs ? "pairs" : "text_sizes");
    if (!job->pairs && job->pair_sizes)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the job has `pair_sizes` but no `pairs`");
    if (!job->ids && job->id_offsets)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the job has `id_offsets` but no `ids`");
    if (job->prompt_in_ids > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.prompt_in_ids is %u, neither 0 nor 1",
                        job->prompt_in_ids);
    if (job->prompt_in_ids && job->n_items > 0 && !job->ids)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.prompt_in_ids is 1, but `ids` is NULL");
    if (job->ids && !job->prompt_in_ids && (job->prompt || job->prompt_name))
        return gsv_fail(error, GPUSERVE_E_INVALID, "a prompt cannot be combined with token ids");
    if (job->prompt && job->prompt_name)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the job has both `prompt` and `prompt_name`");
    if (job->n_items == 0)
        return GPUSERVE_OK;
    if (!job->texts && !job->ids)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the job has neither `texts` nor `ids`");
    if (job->ids && !job->id_offsets)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the job has `ids` but no `id_offsets`");
    if (!job->output)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the job's `output` is NULL");
    return GPUSERVE_OK;
}

/* Options of the job that none of its tasks has. */
static gpuserve_status check_options(const gpuserve_job *job, uint32_t tasks, gpuserve_error *error)
{
    const bool embeds = gsv_has_task(tasks, GPUSERVE_TASK_EMBED);

    if (!embeds && job->dimensions != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.dimensions is valid only for embeddings");
    if (!embeds && job->normalize != GPUSERVE_NORMALIZE_DEFAULT)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.normalize is valid only for embeddings");
    if (!gsv_has_task(tasks, GPUSERVE_TASK_CLASSIFY) &&
        !gsv_has_task(tasks, GPUSERVE_TASK_TOKEN_LABELS) && job->score != GPUSERVE_SCORE_DEFAULT)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.score is valid only for classification");
    if (!gsv_has_task(tasks, GPUSERVE_TASK_CLASSIFY) && job->heads)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "job.heads is valid only for the classification of texts");
    if (!(tasks & GSV_TASKS_BY_TOKEN) && job->token_offsets)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "job.token_offsets is valid only for tasks with one row per token");
    return GPUSERVE_OK;
}

/* The query of MaxSim. */
static gpuserve_status check_query(const gpuserve_job *job, uint32_t tasks, gpuserve_error *error)
{
    if (!gsv_has_task(tasks, GPUSERVE_TASK_MAX_SIM))
        return !job->query_vectors && job->n_query_vectors == 0
                   ? GPUSERVE_OK
                   : gsv_fail(error, GPUSERVE_E_INVALID,
                              "job.query_vectors is valid only for MaxSim");
    if (job->n_query_vectors > GPUSERVE_MAX_QUERY_VECTORS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "job.n_query_vectors is %zu, the limit is %d",
                        job->n_query_vectors, GPUSERVE_MAX_QUERY_VECTORS);
    if (job->n_query_vectors > 0 && !job->query_vectors)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "job.n_query_vectors is %zu, but `query_vectors` is NULL",
                        job->n_query_vectors);
    if (job->cache == GPUSERVE_CACHE_ON)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "job.cache is ON, but MaxSim scores are not cached");
    return GPUSERVE_OK;
}

/* The precision of embeddings, once their dimensions are checked. */
static gpuserve_status check_precision(const struct gsv_spec_facts *facts, const gpuserve_job *job,
                                       uint32_t tasks, gpuserve_error *error)
{
    if (job->reserved != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.reserved is not zero");
    if (job->precision == GPUSERVE_PRECISION_FLOAT32)
        return GPUSERVE_OK;
    if (tasks != GSV_TASK_BIT(GPUSERVE_TASK_EMBED))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "job.precision is valid only for embeddings without other outputs");
    if (facts->dim < 2)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "job.precision: the model's vectors have one number");
    return gsv_has_ranges(job->precision)
               ? gsv_ranges_check(job->ranges,
                                  job->dimensions ? job->dimensions : (size_t)facts->dim, error)
               : GPUSERVE_OK;
}

/* Whether the model has the output of a task. */
static gpuserve_status check_task(const struct gsv_spec_facts *facts, uint32_t task,
                                  gpuserve_error *error)
{
    if (task == GPUSERVE_TASK_EMBED && facts->dim == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "the model makes no embeddings, it only %s",
                        facts->labels_tokens  ? "labels tokens"
                        : facts->n_labels > 0 ? "classifies"
                        : facts->is_by_token  ? "makes token vectors"
                                              : "makes sparse vectors");
    if (task == GPUSERVE_TASK_TOKEN_LABELS && !facts->labels_tokens)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "the model is not a token classifier");
    if (task == GPUSERVE_TASK_CLASSIFY && facts->labels_tokens)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the model is a token classifier: it labels tokens, not texts");
    if (task == GPUSERVE_TASK_CLASSIFY && facts->n_labels == 0) {
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "the model has no classifier head");
        return gsv_hint(error, GPUSERVE_E_UNSUPPORTED,
                        "open the model with a head file, or open a classifier model");
    }
    if (task == GPUSERVE_TASK_MAX_SIM && !facts->is_late)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the model does not support MaxSim: its token vectors are not made for "
                        "late interaction (ColBERT)");
    if (task == GPUSERVE_TASK_SPARSE && !facts->is_sparse)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the model makes no sparse vectors: it is not a masked language model");
    return GPUSERVE_OK;
}

/* Name the outputs that the model has, in the error's hint. */
static gpuserve_status hint_outputs(const struct gsv_spec_facts *facts, gpuserve_status st,
                                    gpuserve_error *error)
{
    return gsv_hint(error, st, "the model's outputs: token vectors%s%s%s%s%s",
                    facts->dim > 0 ? ", embedding" : "", facts->is_sparse ? ", sparse vector" : "",
                    gsv_classifies(facts) ? ", labels" : "",
                    facts->labels_tokens ? ", token labels" : "", facts->is_late ? ", MaxSim" : "");
}

static gpuserve_status check_tasks(const struct gsv_model *model, const gpuserve_job *job,
                                   uint32_t tasks, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = model->plan.facts;
    gpuserve_status st = check_options(job, tasks, error);

    if (st == GPUSERVE_OK)
        st = check_query(job, tasks, error);
    if (st == GPUSERVE_OK)
        st = check_task(facts, job->task, error);
    if (st == GPUSERVE_OK && facts->pair_template && job->pairs && job->n_more > 0)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "job.more: a pair in the template of a reranker has one output, its score");
    for (size_t i = 0; i < job->n_more && st == GPUSERVE_OK; i++) {
        st = check_task(facts, job->more[i].task, error);
        if (st != GPUSERVE_OK)
            return hint_outputs(facts,
                                gsv_fail_in(error, st, "job.more[%zu].task is %u (%s)", i,
                                            job->more[i].task, gsv_task_name(job->more[i].task)),
                                error);
    }
    if (st == GPUSERVE_OK && job->dimensions > (uint32_t)facts->dim)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "job.dimensions is %u, the model has %d dimensions", job->dimensions,
                        facts->dim);
    return st == GPUSERVE_OK ? check_precision(facts, job, tasks, error) : st;
}

/* Check the caller's requirements: cache, fingerprint, deadline. */
static gpuserve_status check_expectations(const struct gsv_model *model, const gpuserve_job *job,
                                          gpuserve_error *error)
{
    if (job->cache == GPUSERVE_CACHE_ON && !model->cache) {
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "job.cache is ON, but the model has no cache");
        return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "open the model with cache_bytes");
    }
    if (job->expected_fingerprint && strcmp(job->expected_fingerprint, model->fingerprint) != 0) {
        gsv_fail(error, GPUSERVE_E_MISMATCH, "the model's fingerprint is %s, expected %.100s",
                 model->fingerprint, job->expected_fingerprint);
        return gsv_hint(error, GPUSERVE_E_MISMATCH,
                        "vectors of different models are not comparable: embed the texts again, or "
                        "open the model that made the vectors");
    }
    if (job->deadline_us < 0)
        return gsv_fail(error, GPUSERVE_E_EXPIRED, "the deadline passed %llu us before submission",
                        0 - (unsigned long long)job->deadline_us);
    return GPUSERVE_OK;
}

/* ------------------------------------------------------------------------------------- sizes */

static gpuserve_status add_text(const char *what, size_t i, const char *const *texts,
                                const size_t *sizes, size_t *bytes, gpuserve_error *error)
{
    size_t size = 0;

    if (!texts[i])
        return gsv_fail(error, GPUSERVE_E_INVALID, "item %zu: the %s is NULL", i, what);
    text_at(texts, sizes, i, &size);
    if (size > MAX_TEXT_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "item %zu: the %s has %zu bytes, the limit is %u", i, what, size,
                        MAX_TEXT_BYTES);
    *bytes += size;
    return GPUSERVE_OK;
}

static gpuserve_status size_texts(const struct gsv_model *model, const gpuserve_job *job,
                                  struct gsv_job_size *size, gpuserve_error *error)
{
    const uint64_t limit = (uint64_t)model->plan.max_tokens;
    const uint64_t length = size->fills ? (uint64_t)model->plan.facts->late->length : 0;
    const uint64_t special = gsv_tokenizer_special_count(model->plan.tokenizer, job->pairs != NULL);
    const bool framed = gsv_uses_template(&model->plan, job);
    const size_t prompt_bytes = size->prompt ? strlen(size->prompt) : 0;
    const size_t frame_bytes = framed ? gsv_pair_middle_write(model->plan.facts->pair_template,
                                                              (struct gsv_pair_middle){ 0 }, NULL)
                                      : 0;
    const size_t frame_tokens = model->plan.frame.n_before + model->plan.frame.n_after;
    gpuserve_status st = GPUSERVE_OK;

    if (prompt_bytes > MAX_TEXT_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "the prompt has %zu bytes, the limit is %u",
                        prompt_bytes, MAX_TEXT_BYTES);
    for (size_t i = 0; i < job->n_items && st == GPUSERVE_OK; i++) {
        size_t bytes = prompt_bytes + frame_bytes;
        uint64_t tokens;

        st = add_text("text", i, job->texts, job->text_sizes, &bytes, error);
        if (st == GPUSERVE_OK && job->pairs)
            st = add_text("pair", i, job->pairs, job->pair_sizes, &bytes, error);
        tokens = (framed ? frame_tokens : special) + bytes / BYTES_A_TOKEN + 1;
        tokens = tokens < length ? length : tokens;
        size->reservation.bytes += bytes;
        size->reservation.tokens += tokens < limit ? tokens : limit;
    }
    return st;
}

static gpuserve_status size_ids(const struct gsv_model *model, const gpuserve_job *job,
                                struct gsv_job_size *size, gpuserve_error *error)
{
    const size_t limit = (size_t)model->plan.max_tokens;

    for (size_t i = 0; i < job->n_items; i++) {
        const size_t begin = job->id_offsets[i], end = job->id_offsets[i + 1];

        if (end < begin || (i == 0 && begin != 0))
            return gsv_fail(
                error, GPUSERVE_E_INVALID,
                "id_offsets must start at 0 and increase: item %zu begins at %zu and ends at %zu",
                i, begin, end);
        if (end == begin)
            return gsv_fail(error, GPUSERVE_E_INVALID, "item %zu has no ids", i);
        if (end - begin > limit)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "item %zu has %zu ids, the limit is %zu",
                            i, end - begin, limit);
    }
    size->reservation.tokens = job->n_items > 0 ? job->id_offsets[job->n_items] : 0;
    if (size->fills)
        size->reservation.tokens += job->n_items * (uint64_t)model->plan.facts->late->length;
    size->reservation.bytes = size->reservation.tokens * sizeof(*job->ids);
    return GPUSERVE_OK;
}

static gpuserve_status fail_head(const struct gsv_spec_facts *facts, const char *name, size_t size,
                                 gpuserve_error *error)
{
    char list[400] = "";

    for (size_t i = 0; i < facts->n_label_heads; i++) {
        const size_t used = strlen(list);

        snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "",
                 facts->label_heads[i].name);
    }
    return gsv_hint(error,
                    gsv_fail(error, GPUSERVE_E_INVALID, "the model has no head \"%.*s\"",
                             size < 100 ? (int)size : 100, name),
                    "its heads: %s", *list ? list : "none");
}

static gpuserve_status add_head(struct gsv_head_choice *choice, const struct gsv_spec_facts *facts,
                                const char *name, size_t size, gpuserve_error *error)
{
    size_t found = 0;

    while (found < facts->n_label_heads &&
           (strlen(facts->label_heads[found].name) != size ||
            memcmp(facts->label_heads[found].name, name, size) != 0))
        found++;
    if (found == facts->n_label_heads)
        return fail_head(facts, name, size, error);
    if (memchr(choice->at, (int)found, choice->n))
        return gsv_fail(error, GPUSERVE_E_INVALID, "the head \"%.*s\" is named twice", (int)size,
                        name);
    choice->at[choice->n++] = (uint8_t)found;
    return GPUSERVE_OK;
}

/* Read a list of head names, separated by commas; NULL: the first head; "*": all. */
static gpuserve_status choose_heads(struct gsv_head_choice *choice,
                                    const struct gsv_spec_facts *facts, const char *names,
                                    gpuserve_error *error)
{
    const bool is_all = names && strcmp(names, "*") == 0;
    gpuserve_status st = GPUSERVE_OK;

    *choice = (struct gsv_head_choice){ 0 };
    if (facts->n_label_heads == 0)
        return names ? fail_head(facts, names, strcspn(names, ","), error) : st;
    if (!names)
        choice->n = 1;
    for (size_t i = 0; is_all && i < facts->n_label_heads; i++)
        choice->at[choice->n++] = (uint8_t)i;
    for (const char *at = names; at && !is_all && st == GPUSERVE_OK;) {
        const size_t size = strcspn(at, ",");

        st = add_head(choice, facts, at, size, error);
        at = at[size] ? at + size + 1 : NULL;
    }
    return st;
}

static gpuserve_status make_key(const struct gsv_spec_facts *facts, const gpuserve_job *job,
                                struct gsv_job_size *size, gpuserve_error *error)
{
    const uint32_t tasks = size->outputs.tasks;
    const bool has_heads = facts->n_label_heads > 0;
    struct gsv_run run = { 0 };

    if (gsv_has_task(tasks, GPUSERVE_TASK_CLASSIFY)) {
        const gpuserve_status st = choose_heads(&run.heads, facts, job->heads, error);

        if (st != GPUSERVE_OK)
            return gsv_fail_in(error, st, "job.heads");
    }

    if (gsv_has_task(tasks, GPUSERVE_TASK_EMBED)) {
        const bool is_whole = job->normalize == GPUSERVE_NORMALIZE_WHOLE;

        run.dimensions = job->dimensions && !is_whole ? (int32_t)job->dimensions : facts->dim;
        run.normalize = job->normalize == GPUSERVE_NORMALIZE_DEFAULT || is_whole
                            ? facts->normalize
                            : job->normalize == GPUSERVE_NORMALIZE_YES;
    }
    if (gsv_has_task(tasks, GPUSERVE_TASK_CLASSIFY) ||
        gsv_has_task(tasks, GPUSERVE_TASK_TOKEN_LABELS))
        run.score = job->score || has_heads ? job->score : (uint32_t)facts->score;
    size->key = (struct gsv_batch_key){ .tasks = tasks,
                                        .dimensions = run.dimensions,
                                        .normalize = run.normalize,
                                        .score = run.score,
                                        .heads = run.heads,
                                        .precision = job->precision };
    if (job->precision != GPUSERVE_PRECISION_FLOAT32)
        size->key.columns = job->dimensions ? (int32_t)job->dimensions : facts->dim;
    if (gsv_has_ranges(job->precision))
        gsv_ranges_digest(job->ranges, (size_t)size->key.columns, size->key.ranges);
    run.compact = gsv_compact_run_of(&size->key, NULL);
    gsv_outputs_size(&size->outputs, facts, &run, job->dimensions);
    return GPUSERVE_OK;
}

/* An expanded query has other tokens than the text of its other outputs. */
static gpuserve_status choose_role(const struct gsv_plan *plan, const gpuserve_job *job,
                                   struct gsv_job_size *size, gpuserve_error *error)
{
    size->role = gsv_role_of(job);
    size->fills = gsv_job_fills(plan, job);
    size->key.drops = gsv_job_skips(plan, job);
    if (size->fills && (size->outputs.tasks & ~(GSV_TASK_BIT(GPUSERVE_TASK_TOKEN_VECTORS) |
                                                GSV_TASK_BIT(GPUSERVE_TASK_MAX_SIM))) != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "the token vectors of a query, which the model expands, cannot be combined "
                        "with other outputs in a job");
    return GPUSERVE_OK;
}

/* Compute the queue capacity that the job reserves. */
static void reserve(const gpuserve_job *job, struct gsv_job_size *size)
{
    struct gsv_queue_reservation *reservation = &size->reservation;
    const struct gsv_outputs *outputs = &size->outputs;

    /* Items and tokens are at most 2^58 together, and a block has few columns: no overflow. */
    reservation->bytes += (job->n_items * (uint64_t)outputs->text_floats +
                           reservation->tokens * (uint64_t)outputs->token_floats) *
                              sizeof(float) +
                          job->n_items * sizeof(struct gsv_item);
    reservation->work = reservation->tokens;
    reservation->client = job->client;
    reservation->n_items = job->n_items;
}

static gpuserve_status check_trace(const gpuserve_trace *trace, gpuserve_error *error)
{
    const gpuserve_status st = gsv_check_struct(trace, sizeof(*trace), "gpuserve_trace", error);

    if (st == GPUSERVE_OK && trace->capacity > 0 && !trace->batches)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`trace`: batches is NULL, capacity is %u",
                        trace->capacity);
    return st;
}

gpuserve_status gsv_job_check(const struct gsv_model *model, const gpuserve_job *job,
                              struct gsv_job_size *size, gpuserve_error *error)
{
    gpuserve_status st = check_enums(job, error);

    memset(size, 0, sizeof(*size));
    if (st == GPUSERVE_OK)
        st = check_input(job, error);
    if (st == GPUSERVE_OK)
        st = gsv_outputs_read(&size->outputs, job, error);
    if (st == GPUSERVE_OK)
        st = check_tasks(model, job, size->outputs.tasks, error);
    if (st == GPUSERVE_OK && job->result)
        st = gsv_check_struct(job->result, sizeof(*job->result), "gpuserve_result", error);
    if (st == GPUSERVE_OK && job->trace)
        st = check_trace(job->trace, error);
    if (st == GPUSERVE_OK)
        st = check_expectations(model, job, error);
    if (st != GPUSERVE_OK)
        return st;
    st = make_key(model->plan.facts, job, size, error);
    if (st == GPUSERVE_OK)
        st = gsv_prompt_of(&model->plan, job, &size->prompt, &size->key.adapter, error);
    /* On a GPU the kernels depend on the rows of a product. */
    size->key.mixes_adapters = model->plan.device.is_cpu || !model->plan.deterministic;
    if (st == GPUSERVE_OK)
        st = gsv_route_of(&model->plan, job, &size->key.route, error);
    if (st == GPUSERVE_OK)
        st = choose_role(&model->plan, job, size, error);
    /* The number of rows by token is known after tokenization. */
    if (st == GPUSERVE_OK)
        st = gsv_outputs_check(&size->outputs, false, job->n_items, error);
    if (st == GPUSERVE_OK)
        st = job->ids ? size_ids(model, job, size, error) : size_texts(model, job, size, error);
    if (st == GPUSERVE_OK)
        reserve(job, size);
    return st;
}

/* ----------------------------------------------------------------------------------- content */

static gpuserve_status check_utf8(const char *what, size_t i, const char *text, size_t size,
                                  gpuserve_error *error)
{
    const size_t valid = gsv_utf8_valid_length(text, size);

    return valid == size ? GPUSERVE_OK
                         : gsv_fail(error, GPUSERVE_E_INVALID,
                                    "item %zu: the %s is not UTF-8 at byte %zu", i, what, valid);
}

gpuserve_status gsv_job_check_end(const struct gsv_spec_facts *facts, uint32_t tasks,
                                  const int32_t *ids, size_t n, gpuserve_error *error)
{
    if (!facts->reads_end || !gsv_has_task(tasks, GPUSERVE_TASK_CLASSIFY))
        return GPUSERVE_OK;
    for (size_t i = n; i > 0; i--)
        if (ids[i - 1] == facts->end_id)
            return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_INVALID,
                    "the text has no token %d (eos_token_id), whose vector the classifier of model "
                    "type %s reads",
                    facts->end_id, facts->model_type);
}

static gpuserve_status check_ids(const struct gsv_model *model, const gpuserve_job *job,
                                 uint32_t tasks, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = model->plan.facts;
    const int32_t vocab = facts->vocab_size;

    for (size_t i = 0; i < job->n_items; i++) {
        gpuserve_status st;

        for (size_t j = job->id_offsets[i]; j < job->id_offsets[i + 1]; j++) {
            if (job->ids[j] < 0 || job->ids[j] >= vocab)
                return gsv_fail(error, GPUSERVE_E_INVALID,
                                "item %zu: token id %d at index %zu is outside 0 to %d", i,
                                job->ids[j], j - job->id_offsets[i], vocab - 1);
        }
        st = gsv_job_check_end(facts, tasks, job->ids + job->id_offsets[i],
                               job->id_offsets[i + 1] - job->id_offsets[i], error);
        if (st != GPUSERVE_OK)
            return gsv_fail_in(error, st, "item %zu", i);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_job_check_content(const struct gsv_model *model, const gpuserve_job *job,
                                      const struct gsv_job_size *size, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (job->ids)
        return check_ids(model, job, size->outputs.tasks, error);
    if (size->prompt &&
        gsv_utf8_valid_length(size->prompt, strlen(size->prompt)) != strlen(size->prompt))
        return gsv_fail(error, GPUSERVE_E_INVALID, "the prompt is not UTF-8");
    for (size_t i = 0; i < job->n_items && st == GPUSERVE_OK; i++) {
        size_t bytes = 0;
        const char *text = gsv_job_text(job, i, &bytes);

        st = check_utf8("text", i, text, bytes, error);
        text = gsv_job_pair(job, i, &bytes);
        if (st == GPUSERVE_OK && text)
            st = check_utf8("pair", i, text, bytes, error);
    }
    return st;
}
