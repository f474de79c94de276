/*
 * test_embedded.c - a server embedded in a program: <gpuserve/http.h> from C, with a tiny model.
 */
#include <gpuserve/http.h>

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TINY GSV_TEST_MODELS "/st-no-prompt"

static gpuserve_error error;

static gpuserve_http_model tiny(void)
{
    gpuserve_http_model model = GPUSERVE_HTTP_MODEL_INIT;

    model.path = TINY;
    model.name = "tiny";
    return model;
}

static gpuserve_http_options with(const gpuserve_http_model *models, size_t n)
{
    gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;

    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    options.models = models;
    options.n_models = n;
    return options;
}

static int reach(const gpuserve_http *server)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    const char *port = strrchr(gpuserve_http_address(server), ':') + 1;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Returns the status of the answer; `text` receives its bytes. Ends the connection. */
static int ask_over(int fd, const char *method, const char *path, const char *body, char *text,
                    size_t room)
{
    size_t size = 0;
    char request[512];
    ssize_t n;

    snprintf(
        request, sizeof(request),
        "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
        method, path, strlen(body), body);
    cr_assert_eq(send(fd, request, strlen(request), 0), (ssize_t)strlen(request));
    while (size + 1 < room && (n = recv(fd, text + size, room - 1 - size, 0)) > 0)
        size += (size_t)n;
    text[size] = 0;
    shutdown(fd, SHUT_RDWR); /* a child may have it open too */
    close(fd);
    return size > 12 ? atoi(text + 9) : 0;
}

static int ask(const gpuserve_http *server, const char *method, const char *path, const char *body,
               char *text, size_t room)
{
    return ask_over(reach(server), method, path, body, text, room);
}

static void expect_embedded(const gpuserve_http *server, const char *name)
{
    char text[16384], body[128];

    snprintf(body, sizeof(body), "{\"model\":\"%s\",\"input\":\"w1 w2\"}", name);
    cr_expect_eq(ask(server, "POST", "/v1/embeddings", body, text, sizeof(text)), 200, "%s", text);
    cr_expect_neq(strstr(text, "\"embedding\":["), NULL, "%s", text);
}

Test(embedded, start_address_reload_drain_stop)
{
    const char *const aliases[] = { "one", "org/two" };
    gpuserve_http_model model = tiny();
    gpuserve_http_options options;
    gpuserve_http *server = NULL;
    char text[16384];

    model.aliases = aliases;
    model.n_aliases = 2;
    options = with(&model, 1);
    cr_assert_eq(gpuserve_http_start(&server, NULL, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_eq(strncmp(gpuserve_http_address(server), "http://127.0.0.1:", 17), 0);
    expect_embedded(server, "tiny");
    expect_embedded(server, "org/two");
    cr_expect_eq(ask(server, "GET", "/health", "", text, sizeof(text)), 200);
    cr_expect_eq(gpuserve_http_reload(server, &error), GPUSERVE_OK, "%s", error.message);
    expect_embedded(server, "one");
    cr_expect_eq(gpuserve_http_alive(server, 10000, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(gpuserve_http_alive(server, 0, &error), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_http_drain(server, 10000), GPUSERVE_OK);
    cr_expect_eq(gpuserve_http_alive(server, 10000, &error), GPUSERVE_E_IO);
    cr_expect_neq(strstr(error.message, "Connection refused"), NULL, "%s", error.message);
    gpuserve_http_stop(&server);
    cr_expect_null(server);
}

/* A forked child inherits the descriptors, so connections that the server closes stay open in the
 * child. Clients still see the end (shutdown), and events on them must not reach the server.
 * (`meson test` overwrites freed memory.) */
Test(embedded, a_child_keeps_connections_that_the_server_has_closed, .timeout = 60)
{
    gpuserve_http_model model = tiny();
    gpuserve_http_options options = with(&model, 1);
    gpuserve_http *server = NULL;
    char text[16384];
    int fd, idle;
    pid_t child;

    options.idle_timeout_ms = 500;
    cr_assert_eq(gpuserve_http_start(&server, NULL, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    fd = reach(server);
    idle = reach(server);
    expect_embedded(server, "tiny"); /* so the earlier connections are accepted too */
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    cr_expect_eq(ask_over(fd, "GET", "/health", "", text, sizeof(text)), 200, "%s", text);
    for (int i = 0; i < 20; i++)
        expect_embedded(server, "tiny");
    cr_expect_eq(recv(idle, text, sizeof(text), 0), 0);
    close(idle);
    cr_expect_eq(gpuserve_http_drain(server, 10000), GPUSERVE_OK);
    gpuserve_http_stop(&server);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* The program's own model is served, and stays open when the server stops. */
Test(embedded, a_borrowed_model_stays_the_callers)
{
    gpuserve_http_model served = GPUSERVE_HTTP_MODEL_INIT;
    const char *const text[] = { "w1 w2" };
    gpuserve_http_options options;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    gpuserve_http *server = NULL;
    char text_of_reply[4096];
    float row[1024];

    cr_assert_eq(gpuserve_context_create(&context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, TINY, NULL, NULL), GPUSERVE_OK);
    served.model = model;
    options = with(&served, 1);
    options.model_control = 1;
    cr_assert_eq(gpuserve_http_start(&server, context, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    expect_embedded(server, "default");
    cr_expect_eq(ask(server, "POST", "/v2/repository/models/default/unload", "{}", text_of_reply,
                     sizeof(text_of_reply)),
                 501, "%s", text_of_reply);
    cr_expect_neq(strstr(text_of_reply, "belongs to the host program"), NULL);
    expect_embedded(server, "default");
    gpuserve_http_stop(&server);
    cr_expect_eq(gpuserve_embed(model, text, 1, row, 1024, NULL, NULL), GPUSERVE_OK);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

/* The counts of the old model before serving are not subtracted. */
Test(embedded, a_borrowed_model_that_is_swapped_counts_anew)
{
    enum { N = 64 };
    gpuserve_http_model served = GPUSERVE_HTTP_MODEL_INIT;
    gpuserve_model_counts counts = GPUSERVE_MODEL_COUNTS_INIT;
    gpuserve_http_options options;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    gpuserve_http *server = NULL;
    char text[4096], expected[128], words[N][8];
    const char *texts[N];
    static float rows[N * 1024];

    for (int i = 0; i < N; i++) {
        snprintf(words[i], sizeof(words[i]), "w%d", i);
        texts[i] = words[i];
    }
    cr_assert_eq(gpuserve_context_create(&context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, TINY, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_embed(model, texts, N, rows, N * 1024, NULL, NULL), GPUSERVE_OK);
    served.model = model;
    options = with(&served, 1);
    cr_assert_eq(gpuserve_http_start(&server, context, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_eq(gpuserve_model_swap(model, TINY, NULL, NULL, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
    for (int i = 0; i < N / 4; i++)
        cr_assert_eq(gpuserve_embed(model, texts + i, 1, rows, 1024, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_stats(model, &counts, NULL), GPUSERVE_OK);
    snprintf(expected, sizeof(expected), "\"inference_count\":%llu,\"execution_count\":%llu,",
             (unsigned long long)counts.items, (unsigned long long)counts.batches);
    cr_expect_eq(ask(server, "GET", "/v2/models/default/stats", "", text, sizeof(text)), 200);
    cr_expect_neq(strstr(text, expected), NULL, "%s, not: %s", expected, text);
    gpuserve_http_stop(&server);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

static void refused(const gpuserve_http_options *options, const char *words)
{
    gpuserve_http *server = (gpuserve_http *)&error; /* must be set to NULL */

    cr_expect_eq(gpuserve_http_start(&server, NULL, options, &error), GPUSERVE_E_INVALID, "%s: %s",
                 words, error.message);
    cr_expect_null(server);
    cr_expect_neq(strstr(error.message, words), NULL, "%s, not: %s", words, error.message);
}

#define REFUSED(words, ...)                                 \
    do {                                                    \
        gpuserve_http_model models[2] = { tiny(), tiny() }; \
        gpuserve_http_options options = with(models, 1);    \
        __VA_ARGS__;                                        \
        refused(&options, words);                           \
    } while (0)

Test(embedded, options_that_cannot_be)
{
    const char *const origins[] = { "https://example.com", NULL };
    char long_name[600] = "";

    memset(long_name, 'a', sizeof(long_name) - 1);
    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    refused(NULL, "`options` is NULL");
    cr_expect_eq(gpuserve_http_start(NULL, NULL, NULL, &error), GPUSERVE_E_INVALID);
    REFUSED("gpuserve_http_options: struct_size is 4, less than", options.struct_size = 4);
    REFUSED("`n_threads` is 257, the limit is 256", options.n_threads = 257);
    REFUSED("`max_connections` is 4294967295, the limit is 1048576",
            options.max_connections = UINT32_MAX);
    REFUSED("`max_address_connections` is 1048577, the limit is 1048576",
            options.max_address_connections = 1048577);
    REFUSED("`max_body_bytes` is 1073741825, the limit is 1073741824",
            options.max_body_bytes = (UINT64_C(1) << 30) + 1);
    REFUSED("`max_client_batch` is 1048577, the limit is 1048576",
            options.max_client_batch = 1048577);
    REFUSED("the limit is 65535", options.port = 65536);
    REFUSED("the host has 599 bytes", options.host = long_name);
    REFUSED("a.example", options.host = "a.example");
    REFUSED("`cors_origins` is NULL", options.n_cors_origins = 1);
    REFUSED("`cors_origins`: origin 1 is NULL", options.cors_origins = origins;
            options.n_cors_origins = 2);
    REFUSED("`api_keys` is NULL", options.n_api_keys = 1);
    REFUSED("the path of the unix socket has 0 bytes", options.unix_path = "");
    REFUSED("the path of the unix socket has 599 bytes", options.unix_path = long_name);
    REFUSED("tls", options.tls_key_file = TINY);
    REFUSED("`dialects`: \"tie\" is not one of openai, azure, tei,",
            options.dialects = "openai,tie");
    REFUSED("`dialects`: \"\" is not one of", options.dialects = " ,");
    REFUSED("`traces_queue` is 1048577", options.traces_queue = 1048577);
    REFUSED("`traces_delay_ms` is 3600001", options.traces_delay_ms = 3600001);
    REFUSED("does not begin with http:// or https://", options.otlp_traces_endpoint = "c:4318");
    REFUSED("the CA certificates /nowhere/ca.pem", options.otlp_traces_endpoint = "https://c/";
            options.otlp_certificate_file = "/nowhere/ca.pem");
    REFUSED("header 2 of OTLP exports (OTEL_EXPORTER_OTLP_HEADERS) has no =",
            options.otlp_traces_endpoint = "http://c/";
            options.otlp_headers = "a=b,c");
    REFUSED("service name of traces is not UTF-8", options.otlp_service_name = "\xff");
    REFUSED("OTEL_TRACES_SAMPLER", options.traces_sampler = "xray");
    REFUSED("`batch_dir` needs `openai`", options.dialects = "tei"; options.batch_dir = TINY);
    REFUSED("the list of models to serve is empty", options.n_models = 0);
    REFUSED("the list of models to serve is empty", options.models = NULL);
}

Test(embedded, models_that_cannot_be)
{
    const char *const wrong[] = { "",     "/a",  "a/",  "a//b", ".a",      "a/.b",
                                  "../a", "a b", "a\n", "a:b",  "\xc3\xa4" };
    const char *const same[] = { "tiny" }, *const none[] = { NULL };
    char long_name[600] = "";

    memset(long_name, 'a', sizeof(long_name) - 1);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        REFUSED("the model name", models[0].name = wrong[i]);
    REFUSED("the model name", models[0].name = long_name);
    REFUSED("gpuserve_http_model: struct_size is 8", models[0].struct_size = 8);
    REFUSED("not neither", models[0].path = NULL);
    REFUSED("not both", models[0].model = (gpuserve_model *)&error);
    REFUSED("`aliases` is NULL", models[0].n_aliases = 1);
    REFUSED("the model name \"\" is not valid", models[0].aliases = none; models[0].n_aliases = 1);
    REFUSED("two models have the name", options.n_models = 2);
    REFUSED("two models have the name", options.n_models = 2; models[0].name = "other";
            models[0].aliases = same; models[0].n_aliases = 1);
}

/* Option structs of another version: fewer fields, or fields unknown to this library. */
Test(embedded, options_of_a_model_of_another_size)
{
    struct {
        gpuserve_model_options known;
        uint64_t unknown;
    } newer = { GPUSERVE_MODEL_OPTIONS_INIT, 0 };
    gpuserve_model_options older = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_http_model model = tiny();
    gpuserve_http_options good = with(&model, 1);
    gpuserve_http *server = NULL;

    older.struct_size = offsetof(gpuserve_model_options, head);
    older.head = (const char *)1; /* beyond its struct_size */
    REFUSED("gpuserve_model_options: struct_size is", models[0].options = &older);
    newer.known.struct_size = sizeof(newer);
    newer.unknown = 1;
    REFUSED("gpuserve_model_options: the field at byte", models[0].options = &newer.known);
    newer.unknown = 0;
    model.options = &newer.known;
    cr_assert_eq(gpuserve_http_start(&server, NULL, &good, &error), GPUSERVE_OK, "%s",
                 error.message);
    expect_embedded(server, "tiny");
    cr_expect_eq(gpuserve_http_reload(server, &error), GPUSERVE_OK, "%s", error.message);
    gpuserve_http_stop(&server);
}

static bool is_listed(const char *dialects, const char *path)
{
    gpuserve_http_endpoint endpoints[256];
    const size_t n = gpuserve_http_endpoints(dialects, endpoints, 256);

    cr_assert_leq(n, 256);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(endpoints[i].path, path) == 0)
            return true;
    }
    return false;
}

Test(embedded, dialects_that_are_selected)
{
    gpuserve_http_model model = tiny();
    gpuserve_http_options options = with(&model, 1);
    gpuserve_http *server = NULL;
    char dialects[] = "openai, ollama", text[4096];

    options.dialects = dialects;
    cr_assert_eq(gpuserve_http_start(&server, NULL, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    memset(dialects, 'x', sizeof(dialects) - 1); /* the server keeps what it means */
    expect_embedded(server, "tiny");
    cr_expect_eq(ask(server, "POST", "/embed", "{\"inputs\":\"w1\"}", text, sizeof(text)), 404);
    cr_expect_not_null(strstr(text, "POST /embed belongs to text-embeddings-inference"), "%s",
                       text);
    gpuserve_http_stop(&server);
    cr_expect(is_listed(NULL, "/embed") && is_listed("cohere,tei", "/embed"));
    cr_expect(!is_listed("cohere", "/embed") && is_listed("cohere", "/v1/models"));
    cr_expect_eq(gpuserve_http_endpoints("tie", NULL, 0), 0);
}

Test(embedded, a_handle_that_is_null)
{
    gpuserve_http *none = NULL;

    cr_expect_null(gpuserve_http_address(NULL));
    cr_expect_eq(gpuserve_http_reload(NULL, &error), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_http_drain(NULL, 1), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_http_alive(NULL, 1, &error), GPUSERVE_E_INVALID);
    gpuserve_http_stop(&none);
    gpuserve_http_stop(NULL);
}
