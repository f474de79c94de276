/*
 * test_nomem.c - each allocation of a request fails in turn: the reply is the right one, an error
 * in JSON, or none at all.
 */
#include "tests/base/failing_malloc.h"

#include <gpuserve/http.h>

#include <criterion/criterion.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct reply {
    int status; /* 0: the connection was closed */
    const char *body;
    const char *start; /* in the body behind the id, of which each reply has its own */
    size_t size;       /* of the body */
    char bytes[16384];
};

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

/* Allocates nothing. */
static void ask(const gpuserve_http *server, const char *path, const char *body,
                struct reply *reply)
{
    const int fd = reach(server);
    const char *end;
    char request[1024];
    size_t size = 0;
    ssize_t n;

    snprintf(request, sizeof(request),
             "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
             "%zu\r\n\r\n%s",
             path, strlen(body), body);
    cr_assert_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    while (size + 1 < sizeof(reply->bytes) &&
           (n = recv(fd, reply->bytes + size, sizeof(reply->bytes) - 1 - size, 0)) > 0)
        size += (size_t)n;
    close(fd);
    reply->bytes[size] = 0;
    end = strstr(reply->bytes, "\r\n\r\n");
    reply->status = end ? atoi(reply->bytes + 9) : 0;
    reply->body = end ? end + 4 : "";
    reply->start =
        strncmp(reply->body, "{\"id\":", 6) == 0 ? strchr(reply->body, ',') : reply->body;
    reply->size = end ? size - (size_t)(reply->body - reply->bytes) : 0;
}

static void check(const struct reply *reply, const struct reply *right, const char *path, long n)
{
    const size_t size = (size_t)(reply->body + reply->size - reply->start);
    json_t *json;

    if (reply->status == 0)
        return;
    if (reply->status == 200) {
        cr_expect(size == (size_t)(right->body + right->size - right->start) &&
                      memcmp(reply->start, right->start, size) == 0,
                  "%s, allocation %ld: %s", path, n, reply->bytes);
        return;
    }
    json = json_loadb(reply->body, reply->size, 0, NULL);
    cr_expect_not_null(json, "%s, allocation %ld: %s", path, n, reply->bytes);
    cr_expect_eq(reply->status, 503, "%s, allocation %ld: %s", path, n, reply->bytes);
    json_decref(json);
}

static const struct question {
    const char *model, *path, *body;
} questions[] = {
    { "bert-tokens", "/",
      "{\"inputs\":[\"w1 w2 w3\",\"w4 w5\"],\"parameters\":{"
      "\"ignore_labels\":[]}}" },
    { "st-no-prompt", "/v1/embeddings", "{\"input\":[\"w1 w2\",[5,6,7]]}" },
    { "st-no-prompt", "/",
      "{\"inputs\":\"w1\",\"parameters\":{\"candidate_labels\":[\"w2\","
      "\"w3\"]}}" },
    { "bert-pairs", "/v2/models/m/infer",
      "{\"inputs\":[{\"name\":\"TEXT\",\"shape\":[2],\"datatype\":\"BYTES\",\"data\":[\"w1\","
      "\"w2\"]}]}" },
    { "bert-pairs", "/v2/models/m/infer",
      "{\"inputs\":[{\"name\":\"TEXT\",\"shape\":[2],\"datatype\":\"BYTES\",\"data\":[\"w1\","
      "\"w2\"]}],\"parameters\":{\"binary_data_output\":true}}" },
    { "bert-pairs", "/v2/models/m/infer",
      "{\"inputs\":[{\"name\":\"TEXT\",\"shape\":[2],\"datatype\":\"BYTES\",\"data\":[\"w1\","
      "\"w2\"]}],\"outputs\":[{\"name\":\"scores\",\"parameters\":{\"classification\":2}}]}" },
    { "bert-pairs", "/predict", "{\"inputs\":[\"w1\",\"w2\"]}" },
    { "bert-pairs", "/v1/models/m:classify", "{\"examples\":[\"w1\",\"w2\"]}" },
    { "bert-pairs", "/", "{\"inputs\":[\"w1\",\"w2\"]}" },
    { "bert-cross-encoder", "/rerank",
      "{\"query\":\"w1\",\"texts\":[\"w2\",\"w3\"],\"return_text\":true}" },
    { "st-no-prompt", "/v1/rerank", "{\"query\":\"w1\",\"documents\":[\"w2\",\"w3\"]}" },
    { "st-no-prompt", "/embed", "{\"inputs\":[\"w1\",\"w2 w3\"]}" },
    { "st-no-prompt", "/embed_all", "{\"inputs\":[\"w1\",\"w2 w3\"]}" },
    { "st-no-prompt", "/similarity",
      "{\"inputs\":{\"source_sentence\":\"w1\",\"sentences\":[\"w2\",\"w3\"]}}" },
    { "st-no-prompt", "/tokenize", "{\"inputs\":[\"w1\",\"w2 w3\"]}" },
    { "st-no-prompt", "/decode", "{\"ids\":[5,6,7]}" },
    { "st-no-prompt", "/v1/embeddings",
      "{\"input\":[\"w1\",\"w2\"],\"encoding_format\":\"base64\"}" },
    { "st-no-prompt", "/v2/embed",
      "{\"model\":\"m\",\"texts\":[\"w1\",\"w2\"],\"embedding_types\":[\"float\",\"base64\"],"
      "\"input_"
      "type\":\"search_document\"}" },
    { "st-no-prompt", "/v1/models/m:predict", "{\"instances\":[\"w1\",\"w2\"]}" },
};

static void fail_each(const struct question *question)
{
    static struct reply right, reply;
    gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;
    gpuserve_http_model model = GPUSERVE_HTTP_MODEL_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_http *server = NULL;
    int n_refused = 0;
    bool fired = true;
    char path[1024];

    snprintf(path, sizeof(path), GSV_TEST_MODELS "/%s", question->model);
    model.path = path;
    model.name = "m";
    options.models = &model;
    options.n_models = 1;
    cr_assert_eq(gpuserve_http_start(&server, NULL, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    for (int i = 0; i < 3; i++) /* what is allocated once and kept */
        ask(server, question->path, question->body, &right);
    cr_assert_eq(right.status, 200, "%s: %s", question->path, right.bytes);
    for (long n = 1; fired; n++) {
        failing_malloc_arm(n, false);
        ask(server, question->path, question->body, &reply);
        fired = failing_malloc_fired();
        failing_malloc_arm(0, false);
        check(&reply, &right, question->path, n);
        n_refused += reply.status == 503;
    }
    cr_expect_gt(n_refused, 10, "%s: only %d refused", question->path, n_refused);
    gpuserve_http_stop(&server);
}

Test(http_nomem, each_allocation_of_a_request_may_fail, .timeout = 300)
{
    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++)
        fail_each(&questions[i]);
}
