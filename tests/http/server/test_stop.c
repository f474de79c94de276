/*
 * test_stop.c - a server is stopped while clients that wait for loads disconnect: their resources
 * stay valid until the last client has gone.
 */
#include "lib/http/inference/load_queue.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/exchange.h"

#include <gpuserve/http.h>

#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N_ROUNDS = 40, N_CLIENTS = 6 };

static atomic_int n_refused_locks;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
/* Visible to shared libraries: the linker requires it with a sanitizer. */
__attribute__((visibility("default"))) int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

/* Replaces the server's function (--wrap): rejects a destroyed mutex. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    const int failed = __real_pthread_mutex_lock(mutex);

    if (failed)
        atomic_fetch_add(&n_refused_locks, 1);
    return failed;
}

void __real_gsv_event_loop_stop(struct gsv_event_loop *event_loop);
void __wrap_gsv_event_loop_stop(struct gsv_event_loop *event_loop);

/* Simulates the latest possible disconnects: a client of a finished load, and one of a finished
 * check. */
void __wrap_gsv_event_loop_stop(struct gsv_event_loop *event_loop)
{
    struct gsv_exchange *exchange = calloc(1, sizeof(*exchange));

    cr_assert_not_null(exchange);
    gsv_load_queue_leave(event_loop->server->loads, exchange);
    gsv_load_queue_leave(event_loop->server->checks, exchange);
    free(exchange);
    __real_gsv_event_loop_stop(event_loop);
}

static int send_load(const gpuserve_http *server)
{
    static const char request[] = "POST /v2/repository/models/tiny/load HTTP/1.1\r\n"
                                  "Host: localhost\r\nContent-Length: 0\r\n\r\n";
    struct sockaddr_in address = { .sin_family = AF_INET };
    const char *port = strrchr(gpuserve_http_address(server), ':') + 1;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(send(fd, request, strlen(request), 0), (ssize_t)strlen(request));
    return fd;
}

Test(stop, clients_that_wait_for_loads, .timeout = 100)
{
    gpuserve_http_model model = GPUSERVE_HTTP_MODEL_INIT;
    gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    model.path = GSV_TEST_MODELS "/st-no-prompt";
    model.name = "tiny";
    options.models = &model;
    options.n_models = 1;
    options.model_control = 1;
    for (int round = 0; round < N_ROUNDS; round++) {
        gpuserve_http *server = NULL;
        int fds[N_CLIENTS];

        cr_assert_eq(gpuserve_http_start(&server, NULL, &options, &error), GPUSERVE_OK, "%s",
                     error.message);
        for (int i = 0; i < N_CLIENTS; i++)
            fds[i] = send_load(server);
        usleep((useconds_t)(round % 20) * 150);
        gpuserve_http_stop(&server);
        for (int i = 0; i < N_CLIENTS; i++)
            close(fds[i]);
    }
    cr_expect_eq(atomic_load(&n_refused_locks), 0, "%d locks were destroyed before their last use",
                 atomic_load(&n_refused_locks));
}
