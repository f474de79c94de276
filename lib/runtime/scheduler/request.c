/*
 * request.c - life cycle of one submission: creation, staging of results, completion.
 *
 *   job --check--> admit --create--> enqueue, or inline batch ... gsv_request_complete --> caller
 *
 * The creating thread builds the request. After enqueueing, workers own its items, and the fields
 * under the batcher's lock are shared. `lock` guards the completion state that waiting threads
 * read.
 */
#define _GNU_SOURCE
#include "lib/runtime/scheduler/request.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Texts of up to this total size are tokenized at once in the caller's thread. Larger requests are
 * cut into chunks of this size, which workers tokenize while others already compute. */
#define CHUNK_BYTES 16384

void gsv_chunk_reset(struct gsv_chunk *chunk)
{
    if (chunk->is_owned) {
        free(chunk->ids);
        free(chunk->type_ids);
    }
    chunk->ids = NULL;
    chunk->type_ids = NULL;
}

void gsv_request_destroy(gpuserve_request *request)
{
    for (size_t i = 0; request->chunks && i < request->n_chunks; i++)
        gsv_chunk_reset(&request->chunks[i]);
    free(request->chunks);
    free(request->items);
    free(request->staging);
    free(request->prompt);
    pthread_cond_destroy(&request->changed);
    pthread_mutex_destroy(&request->lock);
    gsv_batcher_unref(&request->batcher);
    gpuserve_context_unref(&request->context);
    free(request);
}

/* ---------------------------------------------------------------------------------- creation */

/* Cut the items into chunks: a new one starts when the last has CHUNK_BYTES. With chunks NULL:
 * count only. */
static size_t cut_chunks(const gpuserve_request *request, struct gsv_chunk *chunks)
{
    const size_t n_items = request->job.n_items;
    size_t n = 0, bytes = CHUNK_BYTES;

    for (size_t i = 0; i < n_items; i++) {
        size_t size = 0, pair = 0;

        if (bytes >= CHUNK_BYTES) {
            if (chunks)
                chunks[n].first = chunks[n].next = i;
            bytes = 0;
            n++;
        }
        gsv_job_text(&request->job, i, &size);
        gsv_job_pair(&request->job, i, &pair);
        bytes += size + pair + 1;
        if (chunks) {
            chunks[n - 1].end = i + 1;
            chunks[n - 1].n_left++;
        }
    }
    return n;
}

/* The caller's ids are one chunk, ready for batches. */
static gpuserve_status adopt_ids(gpuserve_request *request, const struct gsv_model *model,
                                 gpuserve_error *error)
{
    const gpuserve_job *job = &request->job;
    struct gsv_chunk *chunk = &request->chunks[0];

    chunk->state = GSV_CHUNK_READY;
    chunk->end = chunk->n_left = job->n_items;
    if (request->fills)
        return gsv_fill_ids(model, request, chunk, error);
    chunk->ids = (int32_t *)(uintptr_t)job->ids; /* read only: is_owned is false */
    chunk->n_tokens = job->id_offsets[job->n_items];
    for (size_t i = 0; i < job->n_items; i++) {
        request->items[i].offset = job->id_offsets[i];
        request->items[i].n_tokens = (uint32_t)(job->id_offsets[i + 1] - job->id_offsets[i]);
        gsv_count_rows(&model->plan, request, chunk, &request->items[i]);
    }
    return GPUSERVE_OK;
}

static gpuserve_status make_chunks(gpuserve_request *request, const struct gsv_model *model,
                                   gpuserve_error *error)
{
    const gpuserve_job *job = &request->job;

    request->items = gsv_alloc_array(job->n_items, sizeof(*request->items));
    request->n_chunks = job->ids ? job->n_items > 0 : cut_chunks(request, NULL);
    request->chunks = gsv_alloc_array(request->n_chunks, sizeof(*request->chunks));
    if (!request->items || !request->chunks)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a job of %zu items",
                        job->n_items);
    if (!job->ids)
        cut_chunks(request, request->chunks);
    else if (request->n_chunks > 0)
        return adopt_ids(request, model, error);
    return GPUSERVE_OK;
}

/* Whether to tokenize in the caller's thread: validation needs the tokens, or they are few. */
static bool encode_at_once(const gpuserve_request *request)
{
    return !request->job.ids &&
           (request->n_chunks <= 1 || (request->outputs.tasks & GSV_TASKS_BY_TOKEN) ||
            request->job.truncation == GPUSERVE_TRUNCATE_STRICT);
}

static gpuserve_status make_staging(gpuserve_request *request, gpuserve_error *error)
{
    const struct gsv_outputs *outputs = &request->outputs;
    const bool by_token = (outputs->tasks & GSV_TASKS_BY_TOKEN) != 0;
    const size_t n_items = request->job.n_items;
    gpuserve_status st;
    size_t n_floats;

    for (size_t i = 0; i < n_items && by_token; i++) {
        request->items[i].row = request->n_token_rows;
        request->n_token_rows += request->items[i].n_rows;
    }
    st = gsv_outputs_check(outputs, true, request->n_token_rows, error);
    if (st != GPUSERVE_OK)
        return st;
    n_floats = gsv_outputs_floats(outputs, n_items, request->n_token_rows);
    request->staging = gsv_alloc_array(n_floats, sizeof(float));
    return request->staging ? GPUSERVE_OK
                            : gsv_fail(error, GPUSERVE_E_NOMEM,
                                       "out of memory for the results of %zu items: %zu floats",
                                       n_items, n_floats);
}

static gpuserve_status fill(gpuserve_request *request, struct gsv_model *model, const char *prompt,
                            gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (prompt && *prompt) {
        request->prompt = gsv_copy_text(prompt, strlen(prompt));
        if (!request->prompt)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the prompt");
    }
    st = make_chunks(request, model, error);
    if (st == GPUSERVE_OK && encode_at_once(request)) {
        for (size_t i = 0; i < request->n_chunks && st == GPUSERVE_OK; i++) {
            st = gsv_encode_chunk(model, request, &request->chunks[i], error);
            request->chunks[i].state = GSV_CHUNK_READY;
        }
    }
    if (st == GPUSERVE_OK)
        st = make_staging(request, error);
    for (size_t i = 0; i < request->n_chunks && st == GPUSERVE_OK; i++) {
        if (request->chunks[i].state == GSV_CHUNK_READY)
            gsv_recall_chunk(model, request, &request->chunks[i]);
    }
    return st;
}

/* Set the fields of job.result that are known in advance. */
static void describe(gpuserve_request *request, const struct gsv_model *model)
{
    gpuserve_result *result = &request->result;

    if (!request->job.result)
        return;
    result->struct_size = request->job.result->struct_size;
    result->dtype = model->plan.dtype;
    snprintf(result->fingerprint, sizeof(result->fingerprint), "%s", model->fingerprint);
}

static gpuserve_request *request_alloc(struct gsv_model *model, const gpuserve_job *job,
                                       const struct gsv_job_size *size)
{
    gpuserve_request *request = gsv_alloc_array(1, sizeof(*request));
    pthread_condattr_t monotonic;

    if (!request)
        return NULL;
    request->context = gpuserve_context_ref(model->context);
    request->batcher = gsv_batcher_ref(model->batcher);
    request->plan = &model->plan;
    request->job = *job;
    request->job.prompt = request->job.prompt_name = NULL;
    request->job.more = NULL; /* copied: */
    request->job.n_more = 0;
    request->outputs = size->outputs;
    request->key = size->key;
    request->role = size->role;
    request->fills = size->fills;
    describe(request, model);
    request->error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    pthread_mutex_init(&request->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&request->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return request;
}

/* Count the prompt's tokens that pooling leaves out; few models need it. */
static gpuserve_status count_prompt(gpuserve_request *request, struct gsv_model *model,
                                    const char *prompt, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = model->plan.facts;
    const bool pools =
        gsv_has_task(request->key.tasks, GPUSERVE_TASK_EMBED) ||
        (gsv_has_task(request->key.tasks, GPUSERVE_TASK_CLASSIFY) && !facts->own_classifier);

    if (!facts->skips_prompt || !pools || !prompt) /* an empty prompt still skips [CLS] */
        return GPUSERVE_OK;
    return gsv_prompt_tokens(model, prompt, &request->key.skip, error);
}

uint64_t gsv_deadline_ns(int64_t deadline_us, uint64_t submitted_ns)
{
    uint64_t ns;

    if (deadline_us == 0)
        return 0;
    if (deadline_us < 0)
        return submitted_ns;
    if (__builtin_mul_overflow((uint64_t)deadline_us, UINT64_C(1000), &ns))
        ns = UINT64_MAX / 2; /* 292 years */
    return submitted_ns + ns;
}

static gpuserve_status create(gpuserve_request **out, struct gsv_model *model,
                              const gpuserve_job *job, const struct gsv_job_size *size,
                              uint64_t submitted_ns, gpuserve_error *error)
{
    gpuserve_request *request;
    gpuserve_status st = gsv_job_check_content(model, job, size, error);

    if (st != GPUSERVE_OK)
        return st;
    request = request_alloc(model, job, size);
    if (!request)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a request");
    request->submitted_ns = submitted_ns;
    request->deadline_ns = gsv_deadline_ns(job->deadline_us, submitted_ns);
    st = count_prompt(request, model, size->prompt, error);
    if (st == GPUSERVE_OK)
        st = fill(request, model, size->prompt, error);
    if (st == GPUSERVE_OK)
        *out = request;
    else
        gsv_request_destroy(request);
    return st;
}

static bool is_over_already(const gpuserve_request *request)
{
    size_t n_cached = 0;

    for (size_t i = 0; i < request->n_chunks; i++)
        n_cached += request->chunks[i].n_cached;
    return n_cached == request->job.n_items;
}

gpuserve_status gsv_request_create(gpuserve_request **out, struct gsv_model *model,
                                   const gpuserve_job *job, gpuserve_completion_fn callback,
                                   void *user, bool may_run_inline, uint64_t submitted_ns,
                                   gpuserve_error *error)
{
    struct gsv_job_size size;
    gpuserve_request *request = NULL;
    gpuserve_status st = gsv_job_check(model, job, &size, error);

    *out = NULL;
    if (st == GPUSERVE_OK)
        st = gsv_batcher_admit(model->batcher, &size.reservation, error);
    if (st == GPUSERVE_OK) {
        st = create(&request, model, job, &size, submitted_ns, error);
        if (st != GPUSERVE_OK) {
            gsv_batcher_release(model->batcher, &size.reservation);
            gsv_batcher_leave(model->batcher);
        }
    }
    if (st != GPUSERVE_OK) {
        const struct gsv_request_facts facts = {
            .task = job->task,
            .n_items = job->n_items,
            .status = st,
            .ns[GSV_TIME_TOTAL] = gsv_now_ns() - submitted_ns,
        };

        gsv_metrics_request(&model->context->metrics, &facts);
        return st;
    }
    request->callback = callback;
    request->user = user;
    request->reservation = size.reservation;
    if (job->trace)
        job->trace->n_batches = 0;
    request->enqueued_ns = gsv_now_ns();
    *out = request; /* before completion: the callback may compare the pointers */
    /* All rows are known and no callback is set: complete here, without a worker. */
    if (!callback && is_over_already(request)) {
        request->is_ending = true;
        gsv_request_complete(request);
    } else if (may_run_inline) {
        struct gsv_batch *batch = gsv_batcher_begin_inline(model->batcher, request);

        if (batch)
            gsv_run_inline(batch);
    } else {
        gsv_batcher_enqueue(request->batcher, request);
    }
    return GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------- completion */

static gpuserve_status status_of_items(gpuserve_request *request)
{
    size_t bad = 0, first = 0;

    for (size_t i = request->job.n_items; i-- > 0;) {
        if (request->items[i].status == GPUSERVE_OK)
            continue;
        first = i;
        bad++;
    }
    if (bad == 0)
        return GPUSERVE_OK;
    return gsv_fail(&request->error, GPUSERVE_E_NUMERIC,
                    "%zu of %zu results are NaN or infinite, the first is that of item %zu", bad,
                    request->job.n_items, first);
}

static void write_rows(const gpuserve_request *request)
{
    const struct gsv_outputs *outputs = &request->outputs;

    for (uint32_t task = 0; task < GSV_TASKS; task++) {
        const bool by_token = gsv_is_by_token(task);

        for (size_t i = 0; gsv_has_task(outputs->tasks, task) && i < request->job.n_items; i++)
            gsv_output_write(outputs, task, gsv_block_of(request, i), request->items[i].n_rows,
                             by_token ? request->items[i].row : i);
    }
}

static void write_items(const gpuserve_request *request)
{
    const gpuserve_job *job = &request->job;

    for (size_t i = 0; job->items && i < job->n_items; i++)
        job->items[i] = (gpuserve_item){ .status = request->items[i].status,
                                         .n_tokens = request->items[i].n_tokens,
                                         .truncated = request->items[i].truncated,
                                         .cached = request->items[i].is_cached };
    if (!job->token_offsets)
        return;
    for (size_t i = 0; i < job->n_items; i++)
        job->token_offsets[i] = request->items[i].row;
    job->token_offsets[job->n_items] = request->n_token_rows;
}

static uint64_t us_between(uint64_t begin_ns, uint64_t end_ns)
{
    return end_ns > begin_ns ? (end_ns - begin_ns) / 1000 : 0;
}

static void write_result(gpuserve_request *request, uint64_t now_ns)
{
    gpuserve_result *result = &request->result;

    if (!request->job.result)
        return;
    for (size_t i = 0; i < request->job.n_items; i++) {
        result->n_tokens += request->items[i].n_tokens;
        result->n_truncated += request->items[i].truncated;
        result->n_cached += request->items[i].is_cached;
    }
    result->tokenize_us = atomic_load(&request->tokenize_ns) / 1000;
    result->queue_us = us_between(request->enqueued_ns, request->first_run_ns);
    result->compute_us = us_between(request->first_run_ns, request->last_run_ns);
    result->total_us = us_between(request->submitted_ns, now_ns);
    /* The replicas that computed items; all replicas if every row came from a cache. */
    gsv_plan_selector(request->plan, request->replicas ? request->replicas : UINT64_MAX,
                      result->device, sizeof(result->device));
    *request->job.result = *result;
}

/* The batches are there already: gsv_count_back(). */
static void write_trace(const gpuserve_request *request, uint64_t now_ns)
{
    gpuserve_trace *trace = request->job.trace;

    if (!trace)
        return;
    trace->submitted_ns = request->submitted_ns;
    trace->tokenized_ns = atomic_load(&request->tokenized_ns);
    trace->queued_ns = request->enqueued_ns;
    trace->started_ns = request->first_run_ns;
    trace->ended_ns = request->last_run_ns;
    trace->completed_ns = now_ns;
    trace->tokenize_ns = atomic_load(&request->tokenize_ns);
}

/* Number of tokens computed for the request: without items of the result cache, coalesced items and
 * cancelled items. */
static uint64_t computed_tokens(const gpuserve_request *request)
{
    uint64_t n = 0;

    for (size_t i = 0; i < request->job.n_items; i++)
        if (request->items[i].status == GPUSERVE_OK && !request->items[i].is_cached)
            n += request->items[i].n_tokens;
    return n;
}

static void count(const gpuserve_request *request, gpuserve_status status, uint64_t now)
{
    const uint64_t begin_ns = request->first_run_ns ? request->first_run_ns : now;
    struct gsv_request_facts facts = { .task = request->job.task,
                                       .n_items = request->job.n_items,
                                       .status = status,
                                       .was_queued = true };

    facts.ns[GSV_TIME_TOTAL] = now - request->submitted_ns;
    facts.ns[GSV_TIME_TOKENIZE] = atomic_load(&request->tokenize_ns);
    facts.ns[GSV_TIME_QUEUE] = begin_ns - request->enqueued_ns;
    facts.ns[GSV_TIME_COMPUTE] = now - begin_ns;
    gsv_metrics_request(&request->context->metrics, &facts);
}

static _Thread_local bool in_callback;

bool gsv_in_callback(void)
{
    return in_callback;
}

/* Waiting threads see the result before the callback runs. The request is released after the
 * callback, and may then be freed. Without a callback both happen in one step. */
static void publish(gpuserve_request *request, struct gsv_batcher *batcher, gpuserve_status status)
{
    const bool has_callback = request->callback != NULL;
    bool is_orphan;

    pthread_mutex_lock(&request->lock);
    request->status = status;
    request->is_done = true;
    request->is_released = !has_callback;
    request->in_callback = has_callback;
    request->callback_thread = pthread_self();
    pthread_cond_broadcast(&request->changed);
    pthread_mutex_unlock(&request->lock);

    gsv_batcher_notify(batcher);
    if (!has_callback)
        return;
    in_callback = true;
    request->callback(request->user, request, status);
    in_callback = false;

    pthread_mutex_lock(&request->lock);
    request->in_callback = false;
    request->is_released = true;
    is_orphan = request->free_after_callback;
    pthread_cond_broadcast(&request->changed);
    pthread_mutex_unlock(&request->lock);
    if (is_orphan)
        gsv_request_destroy(request);
}

void gsv_request_complete(gpuserve_request *request)
{
    struct gsv_batcher *batcher = request->batcher; /* kept alive by the caller, a worker */
    const uint64_t now = gsv_now_ns();
    gpuserve_status status = request->failure;

    if (status == GPUSERVE_OK) {
        status = status_of_items(request);
        write_rows(request);
        write_items(request);
        write_result(request, now);
    }
    write_trace(request, now);
    free(request->staging);
    request->staging = NULL;
    count(request, status, now);
    request->reservation.used = computed_tokens(request);
    gsv_batcher_release(batcher, &request->reservation); /* before waiting threads wake */
    publish(request, batcher, status);
    gsv_batcher_leave(batcher);
}

/* -------------------------------------------------------------------------- completions of a model
 */
/* An eventfd that counts the completed requests of a model, created on demand. The object is
 * reference counted. Two threads may race to create the eventfd: a compare-and-swap decides, and
 * the loser closes its own. */

struct gsv_completions *gsv_completions_create(void)
{
    struct gsv_completions *completions = gsv_alloc_array(1, sizeof(*completions));

    if (!completions)
        return NULL;
    atomic_init(&completions->n_owners, 1);
    atomic_init(&completions->fd, -1);
    return completions;
}

struct gsv_completions *gsv_completions_ref(struct gsv_completions *completions)
{
    atomic_fetch_add(&completions->n_owners, 1);
    return completions;
}

void gsv_completions_unref(struct gsv_completions **completions)
{
    struct gsv_completions *ended = *completions;
    int fd;

    *completions = NULL;
    if (!ended || atomic_fetch_sub(&ended->n_owners, 1) != 1)
        return;
    fd = atomic_load(&ended->fd);
    if (fd >= 0)
        close(fd);
    free(ended);
}

int gsv_completions_fd(struct gsv_completions *completions)
{
    int fd = atomic_load(&completions->fd), none = -1;

    if (fd >= 0)
        return fd;
    fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0 || atomic_compare_exchange_strong(&completions->fd, &none, fd))
        return fd;
    close(fd); /* another thread was first */
    return none;
}

void gsv_completions_notify(struct gsv_completions *completions)
{
    const int fd = atomic_load(&completions->fd);

    if (fd >= 0)
        eventfd_write(fd, 1); /* at 2^64 - 1 unread completions it fails and stays readable */
}
