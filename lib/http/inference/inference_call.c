/*
 * inference_call.c - submits jobs and loads, suspends connections, takes up results.
 *
 *   gsv_call_start -> gpuserve_submit -> on_complete -> gsv_event_loop_resume -> gsv_call_finish
 *                  -> inline: gsv_call_compute on the event loop thread        -> gsv_call_finish
 *
 * `handshake`: SUBMITTING -> SUSPENDED by the starting thread, or -> DONE by the completing one. An
 * atomic exchange makes the second of them resume. Every started call is counted in n_working until
 * it is finished or abandoned.
 */
#include "lib/http/inference/inference_call.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/http/inference/load_queue.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/idle.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/connection.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/access.h"
#include "lib/http/traces/traces.h"

#include <time.h>

/* A larger reply would be a quarter of a gigabyte of JSON. */
enum { MAX_OUTPUT_FLOATS = 1 << 24 };
/* Limits of an inline job. */
enum { INLINE_ITEMS = 4, INLINE_BYTES = 1024 };

static const uint64_t lone_ns = 20000000u;

/* --------------------------------------------------------------------------------------- start */

/* `left` numbers of the reply are not used by other outputs. */
static bool check_size(struct gsv_exchange *exchange, size_t n_rows, size_t columns, size_t left)
{
    return columns == 0 || n_rows <= left / columns ||
           gsv_refuse(exchange, GSV_P_TOO_LARGE, NULL,
                      "the reply needs %zu rows of %zu numbers%s, the limit is %d numbers: send "
                      "fewer inputs",
                      n_rows, columns, left < MAX_OUTPUT_FLOATS ? " with its other outputs" : "",
                      MAX_OUTPUT_FLOATS);
}

bool gsv_call_check_reply(struct gsv_exchange *exchange, size_t n_rows, size_t columns)
{
    return check_size(exchange, n_rows, columns, MAX_OUTPUT_FLOATS);
}

/* Floats of a row of a task. */
static size_t columns_of(const struct gsv_exchange *exchange, uint32_t task)
{
    const struct gsv_served *served = exchange->served;

    switch (task) {
    case GPUSERVE_TASK_EMBED:
        return exchange->work.job.dimensions ? exchange->work.job.dimensions : served->dim;
    case GPUSERVE_TASK_CLASSIFY:
        return gsv_job_labels(exchange, &exchange->work.job);
    case GPUSERVE_TASK_SPARSE:
        return served->properties.sparse_dim;
    case GPUSERVE_TASK_TOKEN_LABELS:
        return served->n_token_labels;
    case GPUSERVE_TASK_MAX_SIM:
        return 1;
    default:
        return served->properties.token_dim;
    }
}

/* Allocates the rows of one output; *left floats may still be used. */
static float *make_rows(struct gsv_exchange *exchange, const struct gsv_inputs *inputs,
                        uint32_t task, size_t *columns, size_t *n_floats, size_t *left)
{
    const bool by_token = task == GPUSERVE_TASK_TOKEN_VECTORS || task == GPUSERVE_TASK_TOKEN_LABELS;
    size_t n_rows = inputs->n;

    if (by_token)
        n_rows = inputs->offsets[inputs->n] +
                 inputs->n * gsv_late_expansion(exchange, &exchange->work.job);
    *columns = columns_of(exchange, task);
    if (!check_size(exchange, n_rows, *columns, *left))
        return NULL;
    *n_floats = n_rows * *columns;
    *left -= *n_floats;
    if (by_token && !exchange->work.job.token_offsets) {
        exchange->work.job.token_offsets =
            gsv_exchange_alloc(exchange, inputs->n + 1, sizeof(size_t));
        if (!exchange->work.job.token_offsets)
            return NULL;
    }
    return gsv_exchange_alloc(exchange, *n_floats, sizeof(float));
}

/* Sets the row sizes and allocates the outputs. */
static bool make_output(struct gsv_exchange *exchange, const struct gsv_inputs *inputs)
{
    struct gsv_call *work = &exchange->work;
    size_t left = MAX_OUTPUT_FLOATS;

    work->job.output = make_rows(exchange, inputs, work->job.task, &work->columns,
                                 &work->job.output_capacity, &left);
    if (!work->job.output)
        return false;
    if (work->job.precision != GPUSERVE_PRECISION_FLOAT32)
        work->job.output_capacity *= sizeof(float); /* bytes */
    for (size_t i = 0; i < work->job.n_more; i++) {
        work->more[i] = (gpuserve_output){ .task = work->job.more[i].task };
        work->more[i].rows = make_rows(exchange, inputs, work->more[i].task, &work->more_columns[i],
                                       &work->more[i].capacity, &left);
        if (!work->more[i].rows)
            return false;
    }
    work->job.more = work->more;
    work->items = gsv_exchange_alloc(exchange, inputs->n, sizeof(*work->items));
    work->job.items = work->items;
    return work->items != NULL;
}

const float *gsv_call_rows(const struct gsv_exchange *exchange, uint32_t task, size_t *columns)
{
    const struct gsv_call *work = &exchange->work;

    *columns = work->columns;
    if (work->job.task == task)
        return work->job.output;
    for (size_t i = 0; i < work->job.n_more; i++) {
        *columns = work->more_columns[i];
        if (work->more[i].task == task)
            return work->more[i].rows;
    }
    return NULL;
}

/* From any thread. After the resumption the exchange may be freed. */
void gsv_call_complete(struct gsv_exchange *exchange)
{
    if (atomic_exchange(&exchange->work.handshake, GSV_DONE) != GSV_SUSPENDED)
        return;
    if (exchange->resume)
        exchange->resume(exchange);
    else
        gsv_event_loop_resume(&exchange->server->event_loop, exchange);
}

static void on_complete(void *user, gpuserve_request *request, gpuserve_status status)
{
    (void)request;
    (void)status; /* gpuserve_wait() returns it with its message */
    gsv_call_complete(user);
}

/* Counted before the submission, so that a stop misses no call. */
bool gsv_call_count_in(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;
    bool stopping;

    pthread_mutex_lock(&server->lock);
    stopping = server->stopping;
    if (!stopping)
        server->n_working++;
    pthread_mutex_unlock(&server->lock);
    return !stopping;
}

static bool refuse_late(struct gsv_exchange *exchange)
{
    return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "the server is stopping");
}

void gsv_call_count_out(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;

    pthread_mutex_lock(&server->lock);
    if (--server->n_working == 0)
        pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

static bool is_no_text(const struct gsv_exchange *exchange, const char *text, size_t size)
{
    size_t n;

    return gpuserve_tokenize(exchange->served->model, text, size, NULL, NULL, 0, &n, NULL, NULL) ==
           GPUSERVE_E_INVALID;
}

/* True if the tokenizer rejects one of the job's texts, which explains the failure. */
static bool has_no_text(const struct gsv_exchange *exchange, const gpuserve_job *job)
{
    for (size_t i = 0; job->texts && i < job->n_items; i++) {
        if (is_no_text(exchange, job->texts[i], job->text_sizes[i]) ||
            (job->pairs && is_no_text(exchange, job->pairs[i], job->pair_sizes[i])))
            return true;
    }
    return false;
}

static bool refuse_job(struct gsv_exchange *exchange, gpuserve_status status,
                       const gpuserve_error *error)
{
    const struct gsv_call *work = &exchange->work;
    gpuserve_error in_stream = *error;

    if (exchange->stream && exchange->stream->n_before > 0) {
        gsv_fail_in(&in_stream, status, "after %zu inputs", exchange->stream->n_before);
        error = &in_stream;
    }
    if (status == GPUSERVE_E_INVALID && !work->is_load && has_no_text(exchange, &work->job))
        return gsv_refuse_tokens(exchange, status, error);
    return gsv_refuse_error(exchange, status, error);
}

static void count_failure(struct gsv_exchange *exchange)
{
    if (exchange->served && !exchange->work.is_load)
        atomic_fetch_add(&exchange->served->stats.n_failed, 1u);
}

/* Protected by the lock, because other threads may cancel the request. */
static void set_request(struct gsv_exchange *exchange, gpuserve_request *request)
{
    pthread_mutex_lock(&exchange->server->lock);
    exchange->work.request = request;
    if (request && (exchange->server->stopping || (exchange->client && exchange->client->gone)))
        gpuserve_cancel(request);
    pthread_mutex_unlock(&exchange->server->lock);
}

/* An inline job cannot be cancelled, so it must be short. */
static bool is_small(const gpuserve_job *job)
{
    size_t bytes = 0;

    if (job->n_items > INLINE_ITEMS)
        return false;
    if (!job->texts)
        return job->id_offsets[job->n_items] <= INLINE_BYTES / 4;
    for (size_t i = 0; i < job->n_items; i++)
        bytes += job->text_sizes[i] + (job->pairs ? job->pair_sizes[i] : 0);
    return bytes <= INLINE_BYTES;
}

/* Selects inline computation on this event loop thread, if requests came one at a time for lone_ns.
 * With concurrent requests, an inline job would prevent batching them. */
static bool take_lead(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;
    bool is_alone;

    if (exchange->is_offloaded || !exchange->connection || !is_small(&exchange->work.job) ||
        !gsv_event_loop_may_run_inline(&server->event_loop))
        return false;
    pthread_mutex_lock(&server->lock);
    is_alone = server->n_working == 1 && exchange->begun_ns - server->crowded_ns > lone_ns;
    pthread_mutex_unlock(&server->lock);
    if (is_alone)
        server->event_loop.lead = exchange;
    return is_alone;
}

void gsv_call_compute(struct gsv_exchange *exchange)
{
    struct gsv_call *work = &exchange->work;

    work->status = gpuserve_run(exchange->served->model, &work->job, &work->error);
    atomic_store(&work->handshake, GSV_DONE);
}

static void note_begin(struct gsv_model_stats *stats)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    atomic_store(&stats->last_ms, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

/* Submits exchange->work.job. */
static bool submit(struct gsv_exchange *exchange, gsv_handler finish)
{
    const char *space = gsv_header(exchange, "x-gpuserve-space");
    const gpuserve_error no_error = GPUSERVE_ERROR_INIT;
    const gpuserve_result none = GPUSERVE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_call *work = &exchange->work;
    gpuserve_request *request = NULL;
    gpuserve_status st = GPUSERVE_OK;

    note_begin(&exchange->served->stats);
    if (!gsv_call_count_in(exchange))
        return refuse_late(exchange);
    work->finish = finish;
    work->result = none;
    work->job.result = &work->result;
    work->job.client = gsv_client_identity(exchange);
    work->job.priority = exchange->priority;
    work->job.trace =
        exchange->trace ? gsv_request_trace_job(exchange->trace, work->job.n_items) : NULL;
    if (exchange->deadline_ns)
        work->job.deadline_us = ((int64_t)exchange->deadline_ns - (int64_t)gsv_now_ns()) / 1000;
    if (exchange->deadline_ns && work->job.deadline_us == 0)
        work->job.deadline_us = -1; /* 0 would mean "none" */
    if (space)
        work->job.expected_fingerprint = space;
    work->error = no_error;
    atomic_store(&work->handshake, GSV_SUBMITTING);
    work->is_inline = take_lead(exchange);
    gsv_idle_note(exchange->server->idle_models, exchange->served, false);
    if (!work->is_inline)
        st = gpuserve_submit(&request, exchange->served->model, &work->job, on_complete, exchange,
                             &error);
    if (st != GPUSERVE_OK) {
        count_failure(exchange);
        gsv_idle_note(exchange->server->idle_models, exchange->served, true);
        gsv_call_count_out(exchange);
        return refuse_job(exchange, st, &error);
    }
    set_request(exchange, request);
    work->waiting = true;
    return true;
}

bool gsv_call_start(struct gsv_exchange *exchange, const gpuserve_job *job,
                    const struct gsv_inputs *inputs, gsv_handler finish)
{
    exchange->work.job = *job;
    gsv_inputs_into(inputs, &exchange->work.job);
    if (!make_output(exchange, inputs) || !submit(exchange, finish))
        return false;
    exchange->usage.n_characters += inputs->n_characters;
    return true;
}

bool gsv_call_submit(struct gsv_exchange *exchange, const gpuserve_job *job, gsv_handler finish)
{
    exchange->work.job = *job;
    return submit(exchange, finish);
}

/* From here on a disconnect removes the exchange from the queue. False: already disconnected. */
static bool set_queue(struct gsv_exchange *exchange, struct gsv_load_queue *queue)
{
    bool gone;

    pthread_mutex_lock(&exchange->server->lock);
    exchange->work.load_queue = queue;
    gone = exchange->client && exchange->client->gone;
    pthread_mutex_unlock(&exchange->server->lock);
    return !gone;
}

bool gsv_call_load(struct gsv_exchange *exchange, struct gsv_load_queue *queue,
                   struct gsv_entry *entry, enum gsv_load_kind kind, gsv_handler finish)
{
    const gpuserve_error no_error = GPUSERVE_ERROR_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_call *work = &exchange->work;
    gpuserve_status st;

    if (!gsv_call_count_in(exchange))
        return refuse_late(exchange);
    work->is_load = true;
    work->error = no_error;
    work->finish = finish;
    atomic_store(&work->handshake, GSV_SUBMITTING);
    st = gsv_load_queue_add(queue, exchange, entry, kind, &error);
    if (st != GPUSERVE_OK) {
        work->is_load = false;
        gsv_call_count_out(exchange);
        if (st != GPUSERVE_E_BUSY)
            return gsv_refuse_error(exchange, st, &error);
        gsv_add_retry_after(exchange, error.retry_after_ms);
        return gsv_refuse(exchange, GSV_P_OVERLOADED, NULL, "%s", error.message);
    }
    work->waiting = true;
    if (!set_queue(exchange, queue))
        gsv_load_queue_leave(queue, exchange);
    return true;
}

/* -------------------------------------------------------------------------------------- finish */

bool gsv_call_suspend(struct gsv_exchange *exchange)
{
    if (atomic_load(&exchange->work.handshake) == GSV_DONE)
        return false;
    MHD_suspend_connection(exchange->connection);
    if (!gsv_call_leave(exchange))
        MHD_resume_connection(exchange->connection);
    return true;
}

bool gsv_call_leave(struct gsv_exchange *exchange)
{
    return atomic_exchange(&exchange->work.handshake, GSV_SUSPENDED) != GSV_DONE;
}

static void add_number(struct gsv_exchange *exchange, const char *name, uint64_t number)
{
    gsv_add_header(exchange, name,
                   gsv_exchange_format(exchange, "%llu", (unsigned long long)number));
}

/* Whole milliseconds, as in text-embeddings-inference. */
static void add_time(struct gsv_exchange *exchange, const char *name, uint64_t us)
{
    add_number(exchange, name, us / 1000);
}

/* Response headers that are the same in all dialects. */
static void add_headers(struct gsv_exchange *exchange)
{
    static const char *const dtypes[] = { "", "float32", "float16", "bfloat16", "tf32", "int8" };
    const struct gsv_request_usage *usage = &exchange->usage;
    const gpuserve_result *result = &exchange->work.result;
    const size_t dtype = result->dtype < sizeof(dtypes) / sizeof(dtypes[0]) ? result->dtype : 0;

    gsv_add_header(exchange, "x-compute-type", result->device);
    gsv_add_header(exchange, "x-gpuserve-dtype", dtypes[dtype]);
    gsv_add_header(exchange, "x-gpuserve-products-dtype", exchange->served->products_dtype);
    gsv_add_header(exchange, "x-gpuserve-space", result->fingerprint);
    if (exchange->stream) /* the numbers are known at its end */
        return;
    add_number(exchange, "x-gpuserve-truncated", usage->n_truncated);
    add_number(exchange, "x-compute-characters", usage->n_characters);
    add_number(exchange, "x-compute-tokens", usage->n_tokens);
    add_time(exchange, "x-compute-time", usage->tokenize_us + usage->queue_us + usage->compute_us);
    add_time(exchange, "x-total-time", (gsv_now_ns() - exchange->begun_ns) / 1000);
    add_time(exchange, "x-tokenization-time", usage->tokenize_us);
    add_time(exchange, "x-queue-time", usage->queue_us);
    add_time(exchange, "x-inference-time", usage->compute_us);
}

static void keep_usage(struct gsv_exchange *exchange)
{
    const gpuserve_result *result = &exchange->work.result;
    struct gsv_model_stats *stats = &exchange->served->stats;
    struct gsv_request_usage *usage = &exchange->usage;

    atomic_fetch_add(&stats->n_ok, 1u);
    atomic_fetch_add(&stats->total_us, result->total_us);
    atomic_fetch_add(&stats->tokenize_us, result->tokenize_us);
    atomic_fetch_add(&stats->queue_us, result->queue_us);
    atomic_fetch_add(&stats->compute_us, result->compute_us);
    if (exchange->trace)
        gsv_request_trace_tokens(exchange->trace, exchange->work.job.trace, result->n_tokens);
    usage->n_tokens += result->n_tokens;
    usage->n_truncated += result->n_truncated;
    usage->tokenize_us += result->tokenize_us;
    usage->queue_us += result->queue_us;
    usage->compute_us += result->compute_us;
}

/* Returns the status of the completed job, with its message on failure. */
static gpuserve_status take_result(struct gsv_exchange *exchange, gpuserve_error *error)
{
    gpuserve_request *request = exchange->work.request;
    gpuserve_status st = gpuserve_wait(request, -1, error); /* does not block: completed */

    set_request(exchange, NULL);
    gpuserve_request_free(&request);
    return st;
}

void gsv_call_abandon(struct gsv_exchange *exchange)
{
    if (exchange->is_offloaded)
        gsv_call_count_out(exchange);
    if (exchange->work.waiting) {
        count_failure(exchange);
        if (!exchange->work.is_load)
            gsv_idle_note(exchange->server->idle_models, exchange->served, true);
        gsv_call_count_out(exchange);
    }
    if (exchange->holds_model)
        gsv_idle_note(exchange->server->idle_models, exchange->served, true);
    exchange->is_offloaded = exchange->work.waiting = exchange->holds_model = false;
}

void gsv_call_finish(struct gsv_exchange *exchange)
{
    struct gsv_call *work = &exchange->work;
    const bool is_job = !work->is_load;

    work->waiting = false;
    if (is_job && !work->is_inline)
        work->status = take_result(exchange, &work->error);
    if (is_job)
        gsv_idle_note(exchange->server->idle_models, exchange->served, true);
    gsv_call_count_out(exchange);
    if (work->status != GPUSERVE_OK) {
        count_failure(exchange);
        refuse_job(exchange, work->status, &work->error);
        return;
    }
    if (is_job)
        keep_usage(exchange);
    work->finish(exchange);
    if (is_job && !work->waiting && exchange->status == 200)
        add_headers(exchange);
}

void gsv_client_abandon(struct gsv_client *client)
{
    struct gpuserve_http *server = client->event_loop->server;
    struct gsv_load_queue *queue;
    struct gsv_exchange *exchange;

    pthread_mutex_lock(&server->lock);
    exchange = client->exchange; /* an exchange ends on this thread only */
    queue = exchange ? exchange->work.load_queue : NULL;
    client->gone = true;
    if (client->exchange && client->exchange->work.request)
        gpuserve_cancel(client->exchange->work.request);
    pthread_mutex_unlock(&server->lock);
    if (queue)
        gsv_load_queue_leave(queue, exchange);
}
