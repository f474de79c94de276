/*
 * server.c - start, drain and stop: the functions of <gpuserve/http.h>.
 *
 * Start: options, listener, models, libmicrohttpd, worker threads, event loop. Stop: cancel all
 * work, join loads and workers, stop the event loop, then libmicrohttpd.
 *
 * Invariants: an exchange is in the server's list from its header to its end. libmicrohttpd stops
 * only when no connection is suspended, that is when n_working is 0.
 */
#include "lib/base/clock.h"
#include "lib/http/inference/load_queue.h"
#include "lib/http/models/idle.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/access_log.h"
#include "lib/http/protocol/exchange.h"
#include "lib/http/protocol/route.h"
#include "lib/http/protocol/worker_threads.h"
#include "lib/http/traces/traces.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/http/batch/batch.h"
#include "lib/http/protocol/access.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* The largest header, its cookies again, a record for each field, and the reply's header. Above 32
 * kB libmicrohttpd uses mmap(): freed memory returns to the system, and untouched pages cost
 * nothing. */
enum { CONNECTION_MEMORY = 56 * 1024 };

static void log_from_mhd(void *user, const char *format, va_list arguments)
{
    const struct gpuserve_http *server = user;
    char line[512];
    size_t size;

    vsnprintf(line, sizeof(line), format, arguments);
    size = strlen(line);
    if (size > 0 && line[size - 1] == '\n')
        line[size - 1] = 0;
    server->options.log(server->options.log_user, GPUSERVE_LOG_DEBUG, line);
}

/* ------------------------------------------------------------------------------------- options */

static void set_default(uint32_t *field, uint32_t value)
{
    if (*field == 0)
        *field = value;
}

/* Above these limits sums in the event loop and zlib's size types would overflow. */
static gpuserve_status check_options(const gpuserve_http_options *options, gpuserve_error *error)
{
    const struct {
        const char *name;
        uint64_t given, maximum;
    } limits[] = {
        { "n_threads", options->n_threads, 256 },
        { "max_connections", options->max_connections, 1u << 20 },
        { "max_address_connections", options->max_address_connections, 1u << 20 },
        { "max_body_bytes", options->max_body_bytes, 1u << 30 },
        { "compression", options->compression, GPUSERVE_COMPRESSION_NEVER },
        { "max_client_batch", options->max_client_batch, 1u << 20 },
        { "traces_delay_ms", options->traces_delay_ms, 3600000 },
        { "traces_queue", options->traces_queue, 1u << 20 },
    };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (limits[i].given > limits[i].maximum)
            return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` is %llu, the limit is %llu",
                            limits[i].name, (unsigned long long)limits[i].given,
                            (unsigned long long)limits[i].maximum);
    }
    return GPUSERVE_OK;
}

static gpuserve_status read_options(gpuserve_http_options *options,
                                    const gpuserve_http_options *given, gpuserve_error *error)
{
    const gpuserve_http_options none = GPUSERVE_HTTP_OPTIONS_INIT;
    gpuserve_status st;

    *options = none;
    if (!given)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`options` is NULL");
    st = gsv_read_struct(options, sizeof(*options), given, "gpuserve_http_options", error);
    if (st == GPUSERVE_OK)
        st = check_options(options, error);
    options->struct_size = sizeof(*options);
    set_default(&options->n_threads, 2);
    set_default(&options->max_connections, 4096);
    set_default(&options->max_address_connections, (options->max_connections + 1) / 2);
    set_default(&options->max_client_batch, 2048);
    set_default(&options->header_timeout_ms, 10000);
    set_default(&options->body_timeout_ms, 60000);
    set_default(&options->idle_timeout_ms, 75000);
    set_default(&options->min_body_rate, 1024);
    if (options->max_body_bytes == 0)
        options->max_body_bytes = 32u << 20;
    if (options->max_unread_bytes == 0)
        options->max_unread_bytes = 12u << 20;
    if (options->batch_disk_bytes == 0)
        options->batch_disk_bytes = UINT64_C(10) << 30;
    if (options->log_level == 0)
        options->log_level = GPUSERVE_LOG_WARNING;
    return st;
}

static gpuserve_status copy_host(struct gpuserve_http *server, gpuserve_error *error)
{
    const char *host = server->options.host ? server->options.host : "127.0.0.1";

    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (strlen(host) >= sizeof(server->host))
        return gsv_fail(error, GPUSERVE_E_INVALID, "the host has %zu bytes, the limit is %zu",
                        strlen(host), sizeof(server->host) - 1);
    memcpy(server->host, host, strlen(host) + 1);
    server->options.host = server->host;
    return GPUSERVE_OK;
}

static gpuserve_status copy_origins(struct gpuserve_http *server, gpuserve_error *error)
{
    const gpuserve_http_options *options = &server->options;

    if (options->n_cors_origins > 0 && !options->cors_origins)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`cors_origins` is NULL, n_cors_origins is %zu",
                        options->n_cors_origins);
    server->origins = gsv_alloc_array(options->n_cors_origins, sizeof(*server->origins));
    for (size_t i = 0; server->origins && i < options->n_cors_origins; i++) {
        const char *origin = options->cors_origins[i];

        if (!origin)
            return gsv_fail(error, GPUSERVE_E_INVALID, "`cors_origins`: origin %zu is NULL", i);
        /* Browsers send scheme, host and port, compared byte by byte. */
        if (strcmp(origin, "*") != 0 &&
            (!strstr(origin, "://") || strchr(strstr(origin, "://") + 3, '/')))
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "\"%.200s\" is not an origin such as https://example.com", origin);
        server->origins[i] = gsv_copy_text(origin, strlen(origin));
        if (!server->origins[i])
            break;
        server->n_origins++;
    }
    return server->n_origins == options->n_cors_origins
               ? GPUSERVE_OK
               : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for origins");
}

/* Copies a path of the options, which may be NULL. */
static gpuserve_status copy_route(char **copy, const char *name, const char *path,
                                  gpuserve_error *error)
{
    if (!path)
        return GPUSERVE_OK;
    if (!gsv_route_is_path(path))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "`%s`: \"%.200s\" is not a path such as /predict", name, path);
    *copy = gsv_copy_text(path, strlen(path));
    return *copy ? GPUSERVE_OK
                 : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a path of the options");
}

/* Jobs of a kept batch would have no way to be read or cancelled without OpenAI's paths. */
static gpuserve_status check_batches(const gpuserve_http_options *options, gpuserve_error *error)
{
    if (!options->batch_dir || gsv_route_has_dialect(options->dialects, "openai"))
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_INVALID, "`batch_dir` needs `openai` among the `dialects`");
}

/* Read again when the export starts. */
static gpuserve_status check_traces(const gpuserve_http_options *options, gpuserve_error *error)
{
    struct gsv_trace_options read = { 0 };
    const gpuserve_status st = gsv_trace_options_read(&read, options, error);

    gsv_trace_options_reset(&read);
    return st;
}

/* --------------------------------------------------------------------------------------- start */

static gpuserve_status start_daemon(struct gpuserve_http *server, gpuserve_error *error)
{
    const gpuserve_http_options *options = &server->options;
    const bool has_log = options->log && options->log_level >= GPUSERVE_LOG_DEBUG;
    const unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                           MHD_USE_NO_LISTEN_SOCKET | (has_log ? MHD_USE_ERROR_LOG : 0);
    gpuserve_status st;
    /* The event loop enforces connection limits and timeouts; libmicrohttpd must never refuse
     * first. */
    const unsigned limit = options->max_connections + 64;
    struct MHD_OptionItem items[] = {
        { MHD_OPTION_CONNECTION_LIMIT, limit, NULL },
        { MHD_OPTION_CONNECTION_TIMEOUT, 0, NULL },
        { MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, NULL },
        { MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL },
        { MHD_OPTION_END, 0, NULL },
    };

    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, gsv_on_request, server, MHD_OPTION_EXTERNAL_LOGGER, log_from_mhd,
        server, MHD_OPTION_URI_LOG_CALLBACK, gsv_on_request_line, server,
        MHD_OPTION_NOTIFY_CONNECTION, gsv_on_connection, server, MHD_OPTION_NOTIFY_COMPLETED,
        gsv_on_completed, server, MHD_OPTION_ARRAY, items, MHD_OPTION_END);
    if (!server->daemon)
        return gsv_fail(error, GPUSERVE_E_IO, "%s: the HTTP server did not start: %s",
                        server->address, strerror(errno));
    st = gsv_worker_threads_start(server->workers, options->n_threads, options->max_unread_bytes,
                                  error);
    return st == GPUSERVE_OK ? gsv_event_loop_start(&server->event_loop, server, error) : st;
}

static void warn_of_certificate(const struct gpuserve_http *server)
{
    const long long end = atomic_load(&server->tls.not_after), now = (long long)time(NULL);

    if (gsv_tls_is_on(&server->tls) && end < now)
        gsv_http_log(server, GPUSERVE_LOG_WARNING,
                     "%s: the certificate expired %lld days ago: clients will reject it",
                     server->tls.certificate_file, (now - end) / 86400);
}

/* A server with the parts that its higher layers define. */
struct whole_server {
    struct gpuserve_http http; /* first: the address that is freed */
    struct gsv_worker_threads workers;
    struct gsv_models models;
    struct gsv_load_queue loads, checks;
    struct gsv_idle idle_models;
    struct gsv_keys keys;
    struct gsv_access_log access_log;
};

/* An idle server, to be freed by gpuserve_http_stop(); NULL: out of memory. */
static struct gpuserve_http *create(void)
{
    struct whole_server *parts = calloc(1, sizeof(*parts));
    struct gpuserve_http *server = &parts->http;

    if (!parts)
        return NULL;
    server->workers = &parts->workers;
    server->models = &parts->models;
    server->loads = &parts->loads;
    server->checks = &parts->checks;
    server->idle_models = &parts->idle_models;
    server->keys = &parts->keys;
    server->access_log = &parts->access_log;
    server->listener = -1;
    pthread_mutex_init(&server->lock, NULL);
    pthread_mutex_init(&server->reloading, NULL);
    pthread_mutex_init(&server->keys->lock, NULL);
    pthread_mutex_init(&server->access_log->lock, NULL);
    pthread_mutex_init(&server->tls.lock, NULL);
    pthread_mutex_init(&server->asking, NULL);
    pthread_cond_init(&server->idle, NULL);
    gsv_load_queue_init(server->loads, server->models);
    gsv_load_queue_init(server->checks, server->models);
    gsv_idle_init(server->idle_models, server->models);
    server->started_ns = gsv_now_ns();
    if (getrandom(&server->seed, sizeof(server->seed), GRND_NONBLOCK) < 0)
        server->seed = server->started_ns; /* names requests only, not a secret */
    return server;
}

/* The steps that need neither a port nor a model. */
static gpuserve_status prepare(struct gpuserve_http *server, const gpuserve_http_options *given,
                               gpuserve_error *error)
{
    gpuserve_status st = read_options(&server->options, given, error);

    if (st == GPUSERVE_OK)
        st = copy_host(server, error);
    if (st == GPUSERVE_OK)
        st = copy_origins(server, error);
    if (st == GPUSERVE_OK)
        st = gsv_hosts_open(server, error);
    if (st == GPUSERVE_OK)
        st = copy_route(&server->predict_route, "predict_route", server->options.predict_route,
                        error);
    if (st == GPUSERVE_OK)
        st = copy_route(&server->health_route, "health_route", server->options.health_route, error);
    if (st == GPUSERVE_OK)
        st = gsv_route_dialects(&server->dialects, server->options.dialects, error);
    if (st == GPUSERVE_OK)
        st = gsv_http_make_document(server, error);
    if (st == GPUSERVE_OK)
        st = check_batches(&server->options, error);
    if (st == GPUSERVE_OK)
        st = check_traces(&server->options, error);
    if (st == GPUSERVE_OK)
        st = gsv_keys_open(server->keys, &server->options, error);
    server->has_keys = server->keys->n > 0;
    if (server->options.compression != GPUSERVE_COMPRESSION_NEVER)
        gsv_compress_load();
    if (st == GPUSERVE_OK)
        st = gsv_tls_open(&server->tls, &server->options, error);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_http_check(const gpuserve_http_options *options,
                                                 gpuserve_error *error)
{
    struct gpuserve_http *server = create();
    gpuserve_status st;

    if (!server)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the server");
    st = prepare(server, options, error);
    if (st == GPUSERVE_OK)
        st = gsv_http_check_address(server, error);
    gpuserve_http_stop(&server);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_http_start(gpuserve_http **out, gpuserve_context *context,
                                                 const gpuserve_http_options *given,
                                                 gpuserve_error *error)
{
    struct gpuserve_http *server;
    gpuserve_context *own = NULL;
    gpuserve_status st;

    if (!out)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`server` is NULL");
    *out = NULL;
    server = create();
    if (!server)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the server");
    st = prepare(server, given, error);
    if (st == GPUSERVE_OK)
        st = gsv_access_log_open(server->access_log, server->options.access_log, error);
    if (st == GPUSERVE_OK)
        st = gsv_traces_start(&server->traces, server, error);
    if (st == GPUSERVE_OK)
        warn_of_certificate(server);
    if (st == GPUSERVE_OK && server->options.batch_dir)
        st = gsv_batch_jobs_open(&server->batches, server, server->options.batch_dir,
                                 server->options.batch_disk_bytes, error);
    /* Bind before loading models, which can take a minute: a port in use fails at once. */
    if (st == GPUSERVE_OK)
        st = gsv_http_listen(server, error);
    if (st == GPUSERVE_OK && !context)
        st = gpuserve_context_create(&own, NULL, error);
    if (st == GPUSERVE_OK)
        st = gsv_models_open(server->models, context ? context : own, server->options.models,
                             server->options.n_models, error);
    gpuserve_context_unref(&own);
    server->options.models = NULL; /* borrowed from the caller until here */
    server->options.api_keys = NULL;
    server->options.api_key_file = NULL;
    server->options.cors_origins = NULL;
    server->options.allowed_hosts = NULL;
    server->options.access_log = NULL;
    server->options.unix_path = NULL;
    server->options.predict_route = NULL;
    server->options.health_route = NULL;
    server->options.batch_dir = NULL;
    server->options.dialects = NULL;
    server->options.otlp_traces_endpoint = NULL;
    server->options.otlp_service_name = NULL;
    server->options.otlp_headers = NULL;
    server->options.otlp_certificate_file = NULL;
    server->options.traces_sampler = NULL;
    server->options.traces_sampler_argument = NULL;
    server->options.tls_certificate_file = NULL;
    server->options.tls_key_file = NULL;
    server->options.tls_client_ca_file = NULL;
    server->options.tls_client_crl_file = NULL;
    if (st == GPUSERVE_OK)
        st = start_daemon(server, error);
    if (st == GPUSERVE_OK && server->batches)
        st = gsv_batch_jobs_run(server->batches, error);
    if (st == GPUSERVE_OK)
        *out = server;
    else
        gpuserve_http_stop(&server);
    return st;
}

GPUSERVE_API const char *gpuserve_http_address(const gpuserve_http *server)
{
    return server ? server->address : NULL;
}

/* ----------------------------------------------------------------------------------------- stop */

/* Called with the lock held: no clients and no exchanges are left, and none can arrive. */
static bool is_idle(const struct gpuserve_http *server)
{
    return atomic_load(&server->event_loop.deaf) && server->n_exchanges == 0 &&
           atomic_load(&server->event_loop.n_clients) == 0;
}

/* True if the last connection closed before the timeout. */
static bool wait_until_idle(struct gpuserve_http *server, uint32_t timeout_ms)
{
    struct timespec until;
    bool idle;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&server->lock);
    while (!is_idle(server)) {
        if (pthread_cond_timedwait(&server->idle, &server->lock, &until) == ETIMEDOUT)
            break;
    }
    idle = is_idle(server);
    pthread_mutex_unlock(&server->lock);
    return idle;
}

/* The server still serves but reports not ready, so that load balancers stop sending requests. */
static void wait_for_delay(uint32_t delay_ms)
{
    struct timespec left = { delay_ms / 1000, (long)(delay_ms % 1000) * 1000000 };

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

GPUSERVE_API gpuserve_status gpuserve_http_drain(gpuserve_http *server, uint32_t timeout_ms)
{
    uint64_t begin_ns, spent_ms;
    bool idle;

    if (!server)
        return GPUSERVE_E_INVALID;
    atomic_store(&server->draining, true);
    gsv_batch_jobs_drain(server->batches);
    wait_for_delay(server->options.shutdown_delay_ms);
    gsv_load_queue_close(server->loads);
    gsv_event_loop_drain(&server->event_loop);
    begin_ns = gsv_now_ns();
    idle = wait_until_idle(server, timeout_ms ? timeout_ms : 1);
    spent_ms = (gsv_now_ns() - begin_ns) / 1000000;
    gsv_traces_flush(server->traces, spent_ms < timeout_ms ? timeout_ms - (uint32_t)spent_ms : 0);
    return idle ? GPUSERVE_OK : GPUSERVE_E_TIMEOUT;
}

/* Cancel all work, let none begin, and wait until none is left: then nothing is suspended. */
static void cancel_all(struct gpuserve_http *server)
{
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    for (struct gsv_exchange *x = server->exchanges; x; x = x->after) {
        if (x->work.request)
            gpuserve_cancel(x->work.request);
    }
    pthread_mutex_unlock(&server->lock);
    gsv_load_queue_close(server->loads);
    gsv_load_queue_close(server->checks);
    pthread_mutex_lock(&server->lock);
    while (server->n_working > 0)
        pthread_cond_wait(&server->idle, &server->lock);
    pthread_mutex_unlock(&server->lock);
}

GPUSERVE_API void gpuserve_http_stop(gpuserve_http **handle)
{
    struct gpuserve_http *server = handle ? *handle : NULL;

    if (!server)
        return;
    *handle = NULL;
    atomic_store(&server->draining, true);
    gsv_batch_jobs_stop(server->batches); /* its lines count as work */
    if (server->daemon)
        cancel_all(server);
    gsv_load_queue_close(server->loads);
    gsv_load_queue_close(server->checks);
    gsv_load_queue_join(server->loads);
    gsv_load_queue_join(server->checks);
    gsv_idle_close(server->idle_models);
    gsv_worker_threads_stop(server->workers);
    gsv_event_loop_stop(&server->event_loop); /* its clients leave the load queues */
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    gsv_traces_stop(&server->traces);
    gsv_load_queue_destroy(server->loads);
    gsv_load_queue_destroy(server->checks);
    gsv_idle_destroy(server->idle_models);
    gsv_worker_threads_reset(server->workers);
    gsv_http_close_listener(server);
    for (size_t i = 0; i < server->n_expected; i++) {
        if (server->expected[i])
            gsv_client_release(server->expected[i]);
    }
    free(server->expected);
    for (size_t i = 0; i < server->n_origins; i++)
        free(server->origins[i]);
    free(server->origins);
    gsv_hosts_close(server);
    free(server->predict_route);
    free(server->health_route);
    free(server->openapi);
    gsv_keys_close(server->keys);
    gsv_tls_close(&server->tls);
    gsv_access_log_close(server->access_log);
    gsv_batch_jobs_close(&server->batches);
    gsv_models_close(server->models);
    pthread_cond_destroy(&server->idle);
    pthread_mutex_destroy(&server->reloading);
    pthread_mutex_destroy(&server->keys->lock);
    pthread_mutex_destroy(&server->access_log->lock);
    pthread_mutex_destroy(&server->tls.lock);
    pthread_mutex_destroy(&server->asking);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
