/*
 * serve.c - `gpuserve serve`: serves models over HTTP until a signal.
 *
 * SIGHUP reloads changed files: models, keys, certificates.
 *
 * SIGTERM and SIGINT drain: readiness fails at once, new connections are refused after
 * --shutdown-delay, accepted requests are answered, exit code 0. A second signal ends the program
 * at once. After --drain-timeout the remaining requests are cancelled. A running batch cannot be
 * cancelled: the program waits `grace_s` for it, then exits without it.
 *
 * With --on-device-lost exit, the first permanent loss of a device acts like SIGTERM with exit code
 * 1, so that a supervisor restarts the program.
 *
 * Threading: signals are blocked in all threads; the main thread waits for them.
 */
#include "cli/io/output.h"
#include "cli/model.h"
#include "cli/pull/pull.h"
#include "cli/serve/serve.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static const struct cli_http_library *library;

/* Each connection uses three descriptors; the usual soft limit is 1,024. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Returns freed memory of large replies to the system. By default glibc raises this threshold after
 * the first large block, and the memory of many slow readers' replies would stay in the heap. */
static void return_large_blocks(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
#endif
}

static const uint32_t default_drain_s = 30, default_queue_ms = 500;
static const unsigned grace_s = 5; /* for the running batch at exit */

/* NAME=PATH gives a model a name; anything else is a path, "random:layers=2" too. model->name is
 * owned. */
static void read_model(gpuserve_http_model *model, const char *argument)
{
    const gpuserve_http_model none = GPUSERVE_HTTP_MODEL_INIT;
    const char *equals = strncmp(argument, "random:", 7) == 0 ? NULL : strchr(argument, '=');

    *model = none;
    model->path = equals ? equals + 1 : argument;
    model->name = equals ? cli_copy(argument, (size_t)(equals - argument)) : NULL;
}

/* The model of this name or path; NULL: none. */
static gpuserve_http_model *find_model(gpuserve_http_model *models, size_t n, const char *wanted,
                                       size_t size)
{
    for (size_t i = 0; i < n; i++) {
        const char *names[] = { models[i].path, models[i].name ? models[i].name : "" };

        for (size_t j = 0; j < 2; j++)
            if (strlen(names[j]) == size && memcmp(names[j], wanted, size) == 0)
                return &models[i];
    }
    return NULL;
}

/* --ranges FILE applies to the first model, --ranges MODEL=FILE to the model of that name or path.
 * Read here: a sandbox may hide the file later. */
static int read_ranges(gpuserve_http_model *models, size_t n, const char *given)
{
    const char *equals = strrchr(given, '=');
    gpuserve_http_model *model =
        equals ? find_model(models, n, given, (size_t)(equals - given)) : &models[0];
    float *ranges;
    int result;

    if (!model)
        return cli_usage("--ranges %s: no model argument has the name \"%.*s\"", given,
                         (int)(equals - given), given);
    if (model->ranges)
        return cli_usage("--ranges %s: the model has ranges already", given);
    result = cli_ranges_load(&ranges, &model->ranges_dim, equals ? equals + 1 : given);
    model->ranges = ranges;
    return result;
}

/* --alias NAME applies to the first model, --alias NAME=MODEL to the model of that name or path. */
static int read_alias(gpuserve_http_model *models, size_t n, const char *given)
{
    const char *equals = strchr(given, '=');
    const char *wanted = equals ? equals + 1 : NULL;
    gpuserve_http_model *model =
        wanted ? find_model(models, n, wanted, strlen(wanted)) : &models[0];
    const char **aliases;

    if (!model)
        return cli_usage("--alias %s: no model argument has the name \"%s\"", given, wanted);
    aliases = cli_alloc(model->n_aliases + 1, sizeof(*aliases));
    for (size_t i = 0; i < model->n_aliases; i++)
        aliases[i] = model->aliases[i];
    aliases[model->n_aliases] = cli_copy(given, equals ? (size_t)(equals - given) : strlen(given));
    free((void *)model->aliases);
    model->aliases = aliases;
    model->n_aliases++;
    return CLI_OK;
}

/* --revision applies to a single model by cache name: becomes NAME@REVISION. *named is owned. */
static int read_revision(gpuserve_http_model *models, size_t n, const char *revision, char **named)
{
    struct stat st;

    if (n > 1 || strchr(models->path, '@')) {
        cli_usage("--revision is valid only with one model without @REVISION");
        cli_hint("for several models write MODEL@REVISION");
        return CLI_USAGE;
    }
    if (!cli_pull_revision_ok(revision))
        return cli_usage("--revision: \"%s\" is not a branch, tag or commit", revision);
    if (stat(models->path, &st) == 0)
        return cli_usage("--revision: %s is a directory, not a name in the cache", models->path);
    *named = cli_format("%s@%s", models->path, revision);
    models->path = *named;
    return CLI_OK;
}

static void free_models(gpuserve_http_model *models, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < models[i].n_aliases; j++)
            free((void *)models[i].aliases[j]);
        free((void *)models[i].aliases);
        free((void *)models[i].name);
        free((void *)models[i].ranges);
    }
    free(models);
}

/* True after a permanent device loss with --on-device-lost exit. */
static atomic_bool device_lost;

static void end_with_device(void *user, gpuserve_status status, const char *device,
                            const gpuserve_error *cause)
{
    (void)user, (void)device;
    if (status != GPUSERVE_E_DEVICE || atomic_exchange(&device_lost, true))
        return;
    cli_fail_with(cause, "the device is lost");
    kill(getpid(), SIGTERM);
}

static gpuserve_http_options http_options(const struct cli_args *args)
{
    gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;

    options.port = args->port ? args->port - 1 : 8080;
    options.host = args->host;
    options.insecure = args->insecure;
    options.n_threads = args->http_threads;
    options.max_connections = args->max_connections;
    options.max_address_connections = args->max_address_connections;
    options.header_timeout_ms = args->header_timeout * 1000;
    options.body_timeout_ms = args->body_timeout * 1000;
    options.idle_timeout_ms = args->idle_timeout * 1000;
    options.min_body_rate = args->min_body_rate;
    options.max_body_bytes = args->max_body_bytes;
    options.max_unread_bytes = args->max_unread_bytes;
    options.max_client_batch = args->max_client_batch;
    options.auto_truncate = args->auto_truncate;
    options.model_control = args->model_control;
    options.api_keys = args->api_keys.items;
    options.n_api_keys = args->api_keys.n;
    options.api_key_file = args->api_key_file;
    options.key_rate = args->key_rate;
    options.key_burst = args->key_burst;
    options.cors_origins = args->cors_origins.items;
    options.n_cors_origins = args->cors_origins.n;
    options.allowed_hosts = args->allowed_hosts.items;
    options.n_allowed_hosts = args->allowed_hosts.n;
    options.shutdown_delay_ms = (uint32_t)(args->shutdown_delay * 1000);
    options.open_metrics = args->open_metrics;
    options.access_log = args->access_log;
    options.unix_path = args->unix_path;
    options.tls_certificate_file = args->tls_cert;
    options.tls_key_file = args->tls_key;
    options.tls_client_ca_file = args->tls_client_ca;
    options.tls_client_crl_file = args->tls_client_crl;
    options.compression = args->compress;
    options.batch_dir = args->batch_dir;
    options.dialects = args->dialects;
    options.predict_route = args->predict_route;
    options.health_route = args->health_route;
    options.batch_disk_bytes = args->batch_disk;
    options.json_log = cli_log_is_json();
    options.log = cli_log;
    options.log_level = cli_log_level(args);
    return options;
}

static void reload(gpuserve_http *server, const struct cli_args *args)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cli_notify_reloading();
    if (library->reload(server, &error) != GPUSERVE_OK)
        cli_fail_with(&error, "reload");
    else if (!args->quiet)
        cli_tell(GPUSERVE_LOG_INFO, "reloaded");
    cli_notify("READY=1");
}

/* Waits for the next signal. Meanwhile sends systemd heartbeats while the server responds. */
static int next_signal(gpuserve_http *server, const sigset_t *signals)
{
    const uint64_t heartbeat_us = cli_watchdog_us(), whole_ms = heartbeat_us / 1000 + 1;
    const uint32_t heartbeat_ms = whole_ms < UINT32_MAX ? (uint32_t)whole_ms : UINT32_MAX;
    const struct timespec heartbeat = { (time_t)(heartbeat_us / 1000000),
                                        (long)(heartbeat_us % 1000000) * 1000 };

    for (;;) {
        const int number =
            heartbeat_us ? sigtimedwait(signals, NULL, &heartbeat) : sigwaitinfo(signals, NULL);

        if (number > 0)
            return number;
        if (errno == EAGAIN && library->alive(server, heartbeat_ms, NULL) == GPUSERVE_OK)
            cli_notify("WATCHDOG=1");
    }
}

/* Waits for a signal, then drains the server. Returns the seconds left of the drain time. */
static uint32_t wait_for_signals(gpuserve_http *server, const struct cli_args *args,
                                 const sigset_t *signals)
{
    const uint32_t drain_s = args->drain_timeout ? args->drain_timeout : default_drain_s;
    const uint32_t all_s = (uint32_t)args->shutdown_delay + drain_s;
    sigset_t fatal = *signals;
    struct timespec begin, end;
    int number;

    while ((number = next_signal(server, signals)) == SIGHUP)
        reload(server, args);
    cli_notify("STOPPING=1");
    if (!args->quiet)
        cli_tell(GPUSERVE_LOG_INFO,
                 "signal %d: the server answers accepted requests for at most %u s", number, all_s);
    /* From here a second signal has its default action. */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    sigdelset(&fatal, SIGHUP); /* stays blocked: no reload, and SIGHUP must not end the program */
    pthread_sigmask(SIG_UNBLOCK, &fatal, NULL);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (library->drain(server, drain_s * 1000) != GPUSERVE_OK)
        cli_warn("%u s have passed: the server cancels the unanswered requests", drain_s);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return end.tv_sec - begin.tv_sec < all_s ? all_s - (uint32_t)(end.tv_sec - begin.tv_sec) : 0;
}

/* The line of end_at_once(), made before the signal: a handler must not format times. */
static char last_line[PIPE_BUF];
static size_t last_size;

static void end_at_once(int number)
{
    (void)number;
    if (write(STDERR_FILENO, last_line, last_size) < 0)
        _exit(CLI_FAILED); /* standard error is closed: exit anyway */
    _exit(CLI_FAILED);
}

/* Bounds the time until exit with an alarm. A batch of cancelled requests may still be running: it
 * gets the rest of the drain time plus grace_s. */
static void limit_the_end(uint32_t left_s)
{
    const struct sigaction action = { .sa_handler = end_at_once };

    last_size = cli_log_line_at(
        last_line, left_s + grace_s,
        "a computation did not end in time; the process exits without waiting for it");
    sigaction(SIGALRM, &action, NULL);
    alarm(left_s + grace_s);
}

/* False for a pipe, such as `--api-key-file <(pass show keys)`: it can be read once only. */
static bool can_read_twice(const gpuserve_http_options *options)
{
    const char *const files[] = { options->api_key_file,        options->tls_certificate_file,
                                  options->tls_key_file,        options->tls_client_ca_file,
                                  options->tls_client_crl_file, options->otlp_certificate_file };
    struct stat st;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (files[i] && stat(files[i], &st) == 0 && !S_ISREG(st.st_mode))
            return false;
    }
    return true;
}

/* The watchdog's check of an own port, and the export of traces. */
static bool needs_network(const gpuserve_http_options *options)
{
    return (cli_watchdog_us() > 0 && !options->unix_path) || options->otlp_traces_endpoint;
}

static int serve(const struct cli_args *args, gpuserve_http_options *options)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_http *server = NULL;
    gpuserve_status status;
    sigset_t signals;
    char *holder;

    return_large_blocks();
    raise_descriptor_limit();
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    cli_never_wait_for_messages();
    /* Before the sandbox, which makes the folders of the options: wrong options make none. */
    if (can_read_twice(options) && library->check(options, &error) != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    if (cli_context(&context, args) != CLI_OK)
        return CLI_FAILED;
    /* While models load, a signal ends the program by default; threads inherit the signal mask. */
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    /* A closed pipe of the access log or of the alive check must not end the program. */
    signal(SIGPIPE, SIG_IGN);
    holder = options->unix_path ? NULL : cli_port_holder(options->port);
    if (!args->no_sandbox)
        cli_limit_files(args, context, options);
    status = library->start(&server, context, options, &error);
    gpuserve_context_unref(&context);
    if (status == GPUSERVE_E_IO && holder)
        cli_warn("port %u is in use by %s", options->port, holder);
    free(holder);
    if (status != GPUSERVE_OK)
        return cli_fail_with(&error, NULL);
    if (!args->no_sandbox && cli_sandbox(needs_network(options)) != 0)
        cli_warn("the sandbox is not active: %s; --no-sandbox turns this warning off",
                 strerror(errno));
    printf("%s\n", library->address(server));
    fflush(stdout);
    cli_notify("READY=1");
    limit_the_end(wait_for_signals(server, args, &signals));
    library->stop(&server);
    return atomic_load(&device_lost) ? CLI_FAILED : CLI_OK;
}

/* Prints the merged options, then validates the files that they name. */
static int check(const struct cli_args *args, const gpuserve_http_options *options)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const int result = cli_serve_print(args);

    if (result != CLI_OK)
        return result;
    return library->check(options, &error) == GPUSERVE_OK ? CLI_OK : cli_fail_with(&error, NULL);
}

static int serve_models(const struct cli_args *args)
{
    gpuserve_model_options model_options = cli_model_options(args);
    const size_t n_extra = args->model ? 1 : 0;
    gpuserve_http_options options = http_options(args);
    gpuserve_http_model *models;
    char *named = NULL, *traces_url = NULL;
    int result = CLI_OK;

    if (args->default_prompt && args->default_prompt_name)
        return cli_usage("--default-prompt and --default-prompt-name exclude each other");
    model_options.warmup = args->warmup ? args->warmup : GPUSERVE_WARMUP_GPU;
    if (args->queue_ms == 0)
        model_options.max_queue_ms = default_queue_ms;
    if (args->n_rest + n_extra == 0) {
        cli_usage("the model is missing");
        cli_hint("usage: gpuserve serve MODEL [MODEL...]; `gpuserve pull NAME` downloads a model");
        return CLI_USAGE;
    }
    if (args->on_device_lost == CLI_LOST_EXIT)
        model_options.lost = end_with_device;
    models = cli_alloc(args->n_rest + n_extra, sizeof(*models));
    if (args->model)
        read_model(&models[0], args->model);
    for (size_t i = 0; i < args->n_rest; i++)
        read_model(&models[i + n_extra], args->rest[i]);
    options.models = models;
    options.n_models = args->n_rest + n_extra;
    for (size_t i = 0; i < options.n_models; i++)
        models[i].options = &model_options;
    for (size_t i = 0; i < args->aliases.n && result == CLI_OK; i++)
        result = read_alias(models, options.n_models, args->aliases.items[i]);
    for (size_t i = 0; i < args->served_ranges.n && result == CLI_OK; i++)
        result = read_ranges(models, options.n_models, args->served_ranges.items[i]);
    if (args->revision && result == CLI_OK)
        result = read_revision(models, options.n_models, args->revision, &named);
    if (result == CLI_OK)
        result = cli_traces_options(args, &options, &traces_url);
    if (result == CLI_OK)
        result = args->check_config ? check(args, &options) : serve(args, &options);
    free_models(models, options.n_models);
    free(named);
    free(traces_url);
    return result;
}

int cli_serve(const struct cli_args *given)
{
    struct cli_args complete = *given;
    int result;

    library = cli_http_library();
    if (!library)
        return CLI_FAILED;
    result = cli_serve_complete(&complete);
    if (result == CLI_OK)
        result = complete.list_endpoints ? cli_print_endpoints(library, complete.dialects,
                                                               complete.list_endpoints == CLI_JSON)
                                         : serve_models(&complete);
    cli_serve_release(&complete);
    return result;
}
