/*
 * work.c - see work.h.
 */
#include "lib/http/work.h"

#include "lib/http/models.h"
#include "lib/http/server.h"

/* A reply larger than this would be a quarter of a gigabyte of JSON. */
enum { MAX_OUTPUT_FLOATS = 1 << 24 };

/* ---------------------------------------------------------------------------------------- start */

/* Room for the rows: floats in one, and how many there are. */
static bool make_output(struct gsv_exchange *exchange, const struct gsv_inputs *inputs)
{
    struct gsv_work *work = &exchange->work;
    const struct gsv_served *served = exchange->served;
    size_t n_rows = inputs->n, n_floats;

    if (work->job.task == GPUSERVE_TASK_EMBED) {
        work->columns = work->job.dimensions ? work->job.dimensions : served->dim;
    } else if (work->job.task == GPUSERVE_TASK_CLASSIFY) {
        work->columns = served->n_labels;
    } else {
        work->columns = (size_t)json_integer_value(json_object_get(served->facts, "hidden_size"));
        n_rows = inputs->offsets[inputs->n];
        work->job.token_offsets = gsv_keep(exchange, inputs->n + 1, sizeof(size_t));
        if (!work->job.token_offsets)
            return false;
    }
    if (__builtin_mul_overflow(n_rows, work->columns, &n_floats) || n_floats > MAX_OUTPUT_FLOATS)
        return gsv_refuse(exchange, GSV_P_TOO_LARGE, NULL,
                          "%zu rows of %zu numbers in one reply, at most %d numbers: send less",
                          n_rows, work->columns, MAX_OUTPUT_FLOATS);
    work->job.output = gsv_keep(exchange, n_floats, sizeof(float));
    work->job.output_capacity = n_floats;
    work->items = gsv_keep(exchange, inputs->n, sizeof(*work->items));
    work->job.items = work->items;
    return work->job.output && work->items;
}

/* From a thread of the library. After the resumption the exchange may be gone. */
static void on_complete(void *user, gpuserve_request *request, gpuserve_status status)
{
    struct gsv_exchange *exchange = user;
    struct MHD_Connection *connection = exchange->connection;

    (void)request;
    exchange->work.status = status;
    exchange->work.ended_ns = gsv_http_now();
    if (atomic_exchange(&exchange->work.handshake, GSV_DONE) == GSV_SUSPENDED)
        MHD_resume_connection(connection);
}

/* Counted before it is submitted, so that stopping never misses one. */
static bool count_in(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;
    bool stopping;

    pthread_mutex_lock(&server->lock);
    stopping = server->stopping;
    if (!stopping)
        server->n_working++;
    pthread_mutex_unlock(&server->lock);
    return !stopping || gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "the server is stopping");
}

static void count_out(struct gsv_exchange *exchange)
{
    struct gpuserve_http *server = exchange->server;

    pthread_mutex_lock(&server->lock);
    if (--server->n_working == 0)
        pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

/* Others may want to cancel it. */
static void set_request(struct gsv_exchange *exchange, gpuserve_request *request)
{
    pthread_mutex_lock(&exchange->server->lock);
    exchange->work.request = request;
    if (request && exchange->server->stopping)
        gpuserve_cancel(request);
    pthread_mutex_unlock(&exchange->server->lock);
}

bool gsv_work_start(struct gsv_exchange *exchange, const gpuserve_job *job,
                    const struct gsv_inputs *inputs, gsv_handler finish)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_work *work = &exchange->work;
    gpuserve_request *request = NULL;
    gpuserve_status st;

    work->job = *job;
    gsv_inputs_into(inputs, &work->job);
    if (!make_output(exchange, inputs) || !count_in(exchange))
        return false;
    work->finish = finish;
    work->started_ns = gsv_http_now();
    atomic_store(&work->handshake, GSV_SUBMITTING);
    st = gpuserve_submit(&request, exchange->served->model, &work->job, on_complete, exchange,
                         &error);
    if (st != GPUSERVE_OK) {
        count_out(exchange);
        return gsv_refuse_error(exchange, st, &error);
    }
    set_request(exchange, request);
    work->waiting = true;
    exchange->account.n_characters += inputs->n_characters;
    return true;
}

/* ---------------------------------------------------------------------------------------- finish
 */

bool gsv_work_suspend(struct gsv_exchange *exchange)
{
    if (atomic_load(&exchange->work.handshake) == GSV_DONE)
        return false;
    MHD_suspend_connection(exchange->connection);
    if (atomic_exchange(&exchange->work.handshake, GSV_SUSPENDED) == GSV_DONE)
        MHD_resume_connection(exchange->connection);
    return true;
}

/* What a client can rely on, whatever its dialect. */
static void add_headers(struct gsv_exchange *exchange)
{
    const struct gsv_account *account = &exchange->account;
    const struct gsv_served *served = exchange->served;
    const uint64_t total_ns = gsv_http_now() - exchange->begun_ns;

    gsv_add_header(exchange, "x-compute-type", gsv_keep_format(exchange, "%s", served->device));
    gsv_add_header(exchange, "x-gpuserve-dtype", gsv_keep_format(exchange, "%s", served->dtype));
    gsv_add_header(exchange, "x-gpuserve-space", gsv_keep_format(exchange, "%s", served->space));
    gsv_add_header(exchange, "x-gpuserve-truncated",
                   gsv_keep_format(exchange, "%zu", account->n_truncated));
    gsv_add_header(exchange, "x-compute-characters",
                   gsv_keep_format(exchange, "%zu", account->n_characters));
    gsv_add_header(exchange, "x-compute-tokens",
                   gsv_keep_format(exchange, "%zu", account->n_tokens));
    gsv_add_header(
        exchange, "x-compute-time",
        gsv_keep_format(exchange, "%llu", (unsigned long long)account->compute_ns / 1000000));
    gsv_add_header(exchange, "x-total-time",
                   gsv_keep_format(exchange, "%llu", (unsigned long long)total_ns / 1000000));
}

static void keep_account(struct gsv_exchange *exchange)
{
    const struct gsv_work *work = &exchange->work;

    exchange->account.compute_ns += work->ended_ns - work->started_ns;
    for (size_t i = 0; i < work->job.n_items; i++) {
        exchange->account.n_tokens += work->items[i].n_tokens;
        exchange->account.n_truncated += work->items[i].truncated;
    }
}

void gsv_work_finish(struct gsv_exchange *exchange)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_work *work = &exchange->work;
    gpuserve_request *request = work->request;
    gpuserve_status st;

    work->waiting = false;
    st = gpuserve_wait(request, -1, &error); /* it has completed: only its message is wanted */
    set_request(exchange, NULL);
    gpuserve_request_free(&request);
    count_out(exchange);
    if (st != GPUSERVE_OK) {
        gsv_refuse_error(exchange, st, &error);
        return;
    }
    keep_account(exchange);
    work->finish(exchange);
    if (!work->waiting && exchange->status == 200)
        add_headers(exchange);
}
