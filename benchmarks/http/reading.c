/*
 * reading.c - what each step of a request body costs, from the client's socket to the texts.
 *
 *   receive   kernel -> input buffer of the connection       copy
 *   framing   where the body ends                            reads headers and chunk sizes only
 *   hop       input buffer -> socketpair -> libmicrohttpd    two copies
 *   body      libmicrohttpd -> body of the exchange          copy
 *   json      body -> tree of jansson                        copy
 *   inputs    tree -> pointers to its strings                none
 *   free      the exchange with its tree
 *
 * Prints a JSON object: of bodies of several sizes, nanoseconds of each step by the server's own
 * functions and buffer sizes. The library borrows the texts. bench.py runs it once per round.
 */
#include "lib/base/clock.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/framing.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECEIVE, FRAMING, HOP, BODY, JSON, INPUTS, FREE, N_STEPS };
static const char *const names[] = {
    "receive", "framing", "hop", "body", "json", "inputs", "free"
};
static const size_t sizes[] = { 128, 4096, 65536, 1 << 20 };
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]), MAX_INPUTS = 1 << 16 };
static const uint64_t measured_ns = 200000000u; /* for each size */

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* {"inputs":["...", ...]} of about `size` bytes. */
static struct gsv_buffer make_body(size_t size)
{
    static const char text[] = "\"the quick fox named time year people jumps over a dog\"";
    struct gsv_buffer to = { 0 };

    gsv_buffer_text(&to, "{\"inputs\":[");
    do {
        gsv_buffer_text(&to, text);
        gsv_buffer_text(&to, ",");
    } while (to.size + sizeof(text) + 1 < size);
    to.size--;
    gsv_buffer_text(&to, "]}");
    if (to.failed)
        fail("malloc");
    return to;
}

/* -------------------------------------------------------------------------------------- sockets */

/* Two ends of a TCP connection on the loopback. */
static void open_tcp(int ends[2])
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t size = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || ends[0] < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        connect(ends[0], (struct sockaddr *)&address, size) != 0)
        fail("loopback");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0)
        fail("accept");
    close(listener);
}

static void send_all(int fd, const char *bytes, size_t size)
{
    if (send(fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("send");
}

static void receive_all(int fd, char *to, size_t size)
{
    if (recv(fd, to, size, MSG_WAITALL) != (ssize_t)size)
        fail("recv");
}

/* Nanoseconds of the transfer through a pair of sockets in portions of the connection's buffer;
 * `counts_sending`: of both sides, as the event loop thread does both. */
static uint64_t transfer(const int ends[2], const struct gsv_buffer *body, bool counts_sending)
{
    static char portion[GSV_HEADER_BYTES];
    uint64_t spent = 0;

    for (size_t at = 0; at < body->size; at += sizeof(portion)) {
        const size_t left = body->size - at;
        const size_t n = left < sizeof(portion) ? left : sizeof(portion);
        uint64_t begin = gsv_now_ns();

        send_all(ends[0], body->bytes + at, n);
        if (!counts_sending)
            begin = gsv_now_ns();
        receive_all(ends[1], portion, n);
        spent += gsv_now_ns() - begin;
    }
    return spent;
}

/* ---------------------------------------------------------------------------------------- steps */

static uint64_t frame(const struct gsv_buffer *body)
{
    struct gsv_framing framing = { .max_body = 1 << 25 };
    char header[128];
    size_t at = 0, n;
    uint64_t begin;

    snprintf(header, sizeof(header),
             "POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", body->size);
    begin = gsv_now_ns();
    if (gsv_framing_take(&framing, header, strlen(header)) != strlen(header))
        fail("framing");
    for (; at < body->size; at += n) {
        n = body->size - at < GSV_HEADER_BYTES ? body->size - at : GSV_HEADER_BYTES;
        n = gsv_framing_take(&framing, body->bytes + at, n);
        if (n == 0)
            fail("framing");
    }
    return gsv_now_ns() - begin;
}

static void keep_body(struct gsv_exchange *exchange, const struct gsv_buffer *body)
{
    for (size_t at = 0; at < body->size; at += GSV_HEADER_BYTES) {
        const size_t left = body->size - at;

        gsv_request_take(exchange, body->bytes + at,
                         left < GSV_HEADER_BYTES ? left : GSV_HEADER_BYTES);
    }
}

static void read_once(struct gpuserve_http *server, const int tcp[2], const int pair[2],
                      const struct gsv_buffer *body, uint64_t ns[N_STEPS])
{
    struct gsv_exchange *exchange = gsv_exchange_create(server, NULL, "/embed");
    struct gsv_inputs inputs;
    uint64_t at[5];

    if (!exchange)
        fail("malloc");
    ns[RECEIVE] += transfer(tcp, body, false);
    ns[FRAMING] += frame(body);
    ns[HOP] += transfer(pair, body, true);
    at[0] = gsv_now_ns();
    keep_body(exchange, body);
    at[1] = gsv_now_ns();
    if (!gsv_request_json(exchange))
        fail("JSON");
    at[2] = gsv_now_ns();
    if (!gsv_inputs_read(exchange, json_object_get(exchange->json, "inputs"), "inputs", 0, NULL,
                         &inputs))
        fail("inputs");
    at[3] = gsv_now_ns();
    gsv_exchange_destroy(exchange);
    at[4] = gsv_now_ns();
    for (int i = 0; i < 4; i++)
        ns[BODY + i] += at[i + 1] - at[i];
}

static void measure(struct gpuserve_http *server, const int tcp[2], const int pair[2], size_t size)
{
    struct gsv_buffer body = make_body(size);
    const uint64_t begin = gsv_now_ns();
    uint64_t ns[N_STEPS] = { 0 }, n = 0;

    read_once(server, tcp, pair, &body, ns); /* warm-up */
    memset(ns, 0, sizeof(ns));
    do {
        read_once(server, tcp, pair, &body, ns);
        n++;
    } while (gsv_now_ns() - begin < measured_ns);
    printf("\"%zu\":{\"bytes\":%zu", size, body.size);
    for (int i = 0; i < N_STEPS; i++)
        printf(",\"%s_ns\":%.1f", names[i], (double)ns[i] / (double)n);
    printf("}");
    gsv_buffer_reset(&body);
}

int main(void)
{
    static struct gpuserve_http server = { .options = { .max_client_batch = MAX_INPUTS } };
    int tcp[2], pair[2];

    open_tcp(tcp);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        fail("socketpair");
    printf("{");
    for (size_t i = 0; i < N_SIZES; i++) {
        printf("%s", i > 0 ? "," : "");
        measure(&server, tcp, pair, sizes[i]);
    }
    printf("}\n");
    return 0;
}
