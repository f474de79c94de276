/*
 * event_loop.c - the epoll loop: accept, timeouts, draining.
 *
 * One turn: epoll_wait() without `loop`, then with `loop` the events, new connections,
 * libmicrohttpd, timeouts (every TICK_MS) and sweep(). Events hold raw client pointers. Therefore a
 * client that ends is only marked, and sweep() removes it at the end of a turn, before the next
 * epoll_wait(). Turns of the two threads never overlap: the second one takes its turns with `loop`
 * held, and only while the first computes.
 *
 * Which connections are admitted: connection_limits.c.
 */
#include "lib/http/net/event_loop.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/http/net/server_state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    N_EVENTS = 64,
    TICK_MS = 100,
    UNSENT_BYTES = 128 * 1024 /* unsent bytes of a reply that the kernel may buffer */
};

static const uint64_t certificate_look_ns = 1000000000u;

/* ----------------------------------------------------------------------------------- accepting */

static struct gsv_client *add_client(struct gsv_event_loop *event_loop, int fd,
                                     const struct sockaddr_storage *address, socklen_t size)
{
    struct gsv_client *client = calloc(1, sizeof(*client));
    struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP };

    if (!client)
        return NULL;
    client->event_loop = event_loop;
    atomic_init(&client->n_owners, 1);
    client->net = (struct gsv_end){ client, fd, event.events, false };
    client->mhd = (struct gsv_end){ client, -1, 0, false };
    client->address = *address;
    client->address_size = size;
    client->framing.max_body = event_loop->server->options.max_body_bytes;
    client->since_ns = gsv_now_ns();
    client->waiting = true;
    client->ready = !gsv_tls_is_on(&event_loop->server->tls);
    event.data.ptr = &client->net;
    if (epoll_ctl(event_loop->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(client);
        return NULL;
    }
    client->next = event_loop->clients;
    if (client->next)
        client->next->before = client;
    event_loop->clients = client;
    atomic_fetch_add(&event_loop->n_clients, 1);
    return client;
}

/* TCP_NODELAY: chunks are sent at once. TCP_NOTSENT_LOWAT: an unread reply stays in this process,
 * where it is counted; otherwise the kernel would buffer megabytes for each connection. */
static void set_up_socket(int fd)
{
    const int yes = 1, unsent = UNSENT_BYTES;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

static void accept_one(struct gsv_event_loop *event_loop, int fd,
                       const struct sockaddr_storage *address, socklen_t size)
{
    const gpuserve_http_options *options = &event_loop->server->options;
    /* All clients of a unix socket have one address, so the address limit does not apply. */
    const bool crowd =
        address->ss_family != AF_UNIX &&
        gsv_connections_of_address(event_loop, address) >= options->max_address_connections;
    const bool has_capacity = gsv_connections_make_capacity(event_loop);
    struct gsv_client *client = NULL;

    if (has_capacity || gsv_connections_make_reserved(event_loop))
        client = add_client(event_loop, fd, address, size);
    if (!client) {
        close(fd);
        return;
    }
    set_up_socket(fd);
    client->probation = !has_capacity;
    if (crowd)
        gsv_client_refuse(client, 429, "too many connections from this address",
                          options->max_address_connections, "(--max-address-connections)");
}

/* False: the queue is empty, or accept4() failed. */
static bool accept_all(struct gsv_event_loop *event_loop)
{
    for (int i = 0; i < N_EVENTS; i++) {
        struct sockaddr_storage address = { 0 };
        socklen_t size = sizeof(address);
        const int fd = accept4(event_loop->server->listener, (struct sockaddr *)&address, &size,
                               SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            accept_one(event_loop, fd, &address, size);
            continue;
        }
        /* Out of descriptors: evict an idle connection, so that new clients can connect. */
        if (errno == EMFILE || errno == ENFILE) {
            struct gsv_client *victim = gsv_connections_idle(event_loop, true);

            if (victim)
                gsv_client_close(victim);
        }
        return false;
    }
    return true;
}

/* -------------------------------------------------------------------------------------- clients */

void gsv_client_release(struct gsv_client *client)
{
    if (atomic_fetch_sub(&client->n_owners, 1) == 1)
        free(client);
}

/* Removes the clients that ended during this turn. No event of the turn refers to them any more. */
static void sweep(struct gsv_event_loop *event_loop)
{
    struct gsv_client *next;

    if (!event_loop->has_ended)
        return;
    event_loop->has_ended = false;
    for (struct gsv_client *c = event_loop->clients; c; c = next) {
        next = c->next;
        if (!c->ended)
            continue;
        if (c->before)
            c->before->next = c->next;
        else
            event_loop->clients = c->next;
        if (c->next)
            c->next->before = c->before;
        atomic_fetch_sub(&event_loop->n_clients, 1);
        gsv_client_release(c);
    }
    if (!event_loop->clients) {
        pthread_mutex_lock(&event_loop->server->lock);
        pthread_cond_broadcast(&event_loop->server->idle);
        pthread_mutex_unlock(&event_loop->server->lock);
    }
}

/* Only the thread that holds `loop` uses the listener, so a reused descriptor number is never
 * accepted from. */
static void stop_listening(struct gsv_event_loop *event_loop)
{
    struct sock_filter drop = { .code = BPF_RET | BPF_K };
    const struct sock_fprog program = { 1, &drop };
    const int listener = event_loop->server->listener;

    if (listener < 0)
        return;
    /* Closing a listener resets connections that the kernel has established but accept4() has not
     * returned. So first a filter drops new connections, then the queue is accepted, then the
     * listener closes. */
    if (event_loop->server->unix_address.sun_path[0])
        shutdown(listener, SHUT_RDWR); /* socket filters do not apply to unix sockets; shutdown()
                                          keeps the queued connections */
    else
        setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
    while (accept_all(event_loop))
        continue;
    epoll_ctl(event_loop->epoll, EPOLL_CTL_DEL, listener, NULL); /* child processes may share it */
    gsv_http_close_listener(event_loop->server);
    pthread_mutex_lock(&event_loop->server->lock);
    atomic_store(&event_loop->deaf, true);
    pthread_cond_broadcast(&event_loop->server->idle);
    pthread_mutex_unlock(&event_loop->server->lock);
}

static void check_times(struct gsv_event_loop *event_loop)
{
    const uint64_t now = gsv_now_ns();
    const bool draining = atomic_load(&event_loop->draining);

    for (struct gsv_client *c = event_loop->clients; c; c = c->next) {
        if (c->ended)
            continue;
        if (draining)
            gsv_client_drain(c);
        if (!c->ended)
            gsv_client_check_time(c, now);
    }
    gsv_clients_relieve(event_loop, now);
}

static void handle(struct gsv_event_loop *event_loop, const struct epoll_event *event,
                   bool *accepting)
{
    struct gsv_end *end = event->data.ptr;
    uint64_t count;

    if (event->data.ptr == event_loop) {
        *accepting = true;
    } else if (event->data.ptr == &event_loop->lock) {
        return; /* libmicrohttpd's epoll set; it runs after all other events */
    } else if (event->data.ptr == &event_loop->wake) {
        if (read(event_loop->wake, &count, sizeof(count)) < 0)
            return; /* nothing to read */
    } else if (event->data.ptr == &event_loop->timer) {
        event_loop->is_tick = read(event_loop->timer, &count, sizeof(count)) > 0;
    } else if (!end->client->ended) {
        gsv_client_event(end->client, end, event->events);
    }
}

/* -------------------------------------------------------------------------------------- threads */

/* Reloads the certificate when its files change. */
static void check_certificate(struct gsv_event_loop *event_loop, uint64_t now)
{
    struct gpuserve_http *server = event_loop->server;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (!gsv_tls_is_on(&server->tls) || now - event_loop->certificate_ns < certificate_look_ns)
        return;
    event_loop->certificate_ns = now;
    if (!gsv_tls_has_changed(&server->tls))
        return;
    if (gsv_tls_reload(&server->tls, &error) == GPUSERVE_OK)
        gsv_http_log(server, GPUSERVE_LOG_INFO,
                     "the certificate changed: the server uses the new one");
    else
        gsv_http_log(server, GPUSERVE_LOG_ERROR, "the server keeps the old certificate: %s",
                     error.message);
}

/* The part of a turn after the wait. `loop` is held. */
static void handle_all(struct gsv_event_loop *event_loop, const struct epoll_event *events, int n)
{
    bool accepting = false;
    uint64_t now;

    for (int i = 0; i < n; i++)
        handle(event_loop, &events[i], &accepting);
    if (atomic_load(&event_loop->draining))
        stop_listening(event_loop);
    else if (accepting)
        accept_all(event_loop);
    event_loop->is_done = gsv_event_loop_run_mhd(event_loop);
    now = gsv_now_ns();
    if (event_loop->is_tick || atomic_load(&event_loop->draining)) {
        check_times(event_loop);
        check_certificate(event_loop, now);
        event_loop->is_tick = false;
    } else if (event_loop->held_bytes > event_loop->server->options.max_unread_bytes) {
        gsv_clients_relieve(event_loop, now);
    }
    gsv_http_tell_unread(event_loop->server, event_loop->held_bytes);
    sweep(event_loop);
}

static void close_all(struct gsv_event_loop *event_loop)
{
    for (struct gsv_client *c = event_loop->clients; c; c = c->next)
        gsv_client_close(c);
    sweep(event_loop);
}

static void begin_thread(void)
{
    pthread_setname_np(pthread_self(), "gpuserve-http"); /* others' names are set by /proc */
    gsv_tls_block_sigpipe();
}

/* The leader: waits for events and handles them. */
static void *lead(void *user)
{
    struct gsv_event_loop *event_loop = user;
    struct epoll_event events[N_EVENTS];

    begin_thread();
    pthread_mutex_lock(&event_loop->loop);
    while (!atomic_load(&event_loop->stopping)) {
        const int timeout_ms = event_loop->is_done && !event_loop->has_ended ? -1 : 0;
        int n;

        pthread_mutex_unlock(&event_loop->loop);
        n = epoll_wait(event_loop->epoll, events, N_EVENTS, timeout_ms);
        pthread_mutex_lock(&event_loop->loop);
        handle_all(event_loop, events, n);
        while (event_loop->lead)
            gsv_event_loop_run_inline(event_loop);
    }
    close_all(event_loop);
    pthread_mutex_unlock(&event_loop->loop);
    return NULL;
}

/* The follower: handles events while the leader computes. It waits for the leader's epoll set,
 * which gsv_event_loop_watch() puts on watch for one event, so that a request that arrives alone
 * wakes no second thread. */
static void *follow(void *user)
{
    struct gsv_event_loop *event_loop = user;
    struct epoll_event events[N_EVENTS];
    bool is_done = true;

    begin_thread();
    while (!atomic_load(&event_loop->stopping)) {
        epoll_wait(event_loop->follower, events, 1, is_done ? -1 : 0);
        pthread_mutex_lock(&event_loop->loop);
        is_done = true;
        if (event_loop->is_leading) {
            handle_all(event_loop, events, epoll_wait(event_loop->epoll, events, N_EVENTS, 0));
            is_done = event_loop->is_done;
            gsv_event_loop_watch(event_loop, EPOLLIN | EPOLLONESHOT);
        }
        pthread_mutex_unlock(&event_loop->loop);
    }
    return NULL;
}

static gpuserve_status start_threads(struct gsv_event_loop *event_loop, gpuserve_error *error)
{
    static void *(*const runs[GSV_EVENT_LOOP_THREADS])(void *) = { lead, follow };
    int failed = 0;

    while (event_loop->n_threads < GSV_EVENT_LOOP_THREADS && !failed) {
        const uint32_t i = event_loop->n_threads;

        failed = pthread_create(&event_loop->threads[i], NULL, runs[i], event_loop);
        event_loop->n_threads += !failed;
    }
    return failed ? gsv_fail(error, GPUSERVE_E_IO, "the HTTP server did not start: thread %u: %s",
                             event_loop->n_threads, strerror(failed))
                  : GPUSERVE_OK;
}

static bool add_to(int epoll, int fd, void *data, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = data };

    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

gpuserve_status gsv_event_loop_start(struct gsv_event_loop *event_loop,
                                     struct gpuserve_http *server, gpuserve_error *error)
{
    static const struct timespec tick = { .tv_nsec = TICK_MS * 1000000L };
    const struct itimerspec ticks = { .it_interval = tick, .it_value = tick };
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);

    event_loop->server = server;
    event_loop->is_done = true;
    pthread_mutex_init(&event_loop->lock, NULL);
    pthread_mutex_init(&event_loop->loop, NULL);
    event_loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    event_loop->follower = epoll_create1(EPOLL_CLOEXEC);
    event_loop->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    event_loop->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    event_loop->scratch = malloc(GSV_SCRATCH_BYTES);
    if (!event_loop->scratch || !info || timerfd_settime(event_loop->timer, 0, &ticks, NULL) != 0 ||
        !add_to(event_loop->epoll, server->listener, event_loop, EPOLLIN) ||
        !add_to(event_loop->epoll, info->epoll_fd, &event_loop->lock, EPOLLIN) ||
        !add_to(event_loop->epoll, event_loop->wake, &event_loop->wake, EPOLLIN) ||
        !add_to(event_loop->epoll, event_loop->timer, &event_loop->timer, EPOLLIN) ||
        !add_to(event_loop->follower, event_loop->epoll, event_loop, 0))
        return gsv_fail(error, GPUSERVE_E_IO, "the HTTP server did not start: %s", strerror(errno));
    return start_threads(event_loop, error);
}

void gsv_event_loop_drain(struct gsv_event_loop *event_loop)
{
    atomic_store(&event_loop->draining_ns, gsv_now_ns());
    atomic_store(&event_loop->draining, true);
    gsv_event_loop_wake(event_loop);
}

void gsv_event_loop_stop(struct gsv_event_loop *event_loop)
{
    const int fds[] = { event_loop->follower, event_loop->epoll, event_loop->wake,
                        event_loop->timer };

    atomic_store(&event_loop->stopping, true);
    for (uint32_t i = 0; i < event_loop->n_threads; i++) {
        /* The leader reads `wake`; after its end the eventfd stays readable, which wakes the
         * follower. */
        gsv_event_loop_watch(event_loop, i > 0 ? EPOLLIN : 0);
        gsv_event_loop_wake(event_loop);
        pthread_join(event_loop->threads[i], NULL);
    }
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] > 0)
            close(fds[i]);
    }
    free(event_loop->scratch);
    *event_loop = (struct gsv_event_loop){ 0 };
}

void gsv_http_log(const struct gpuserve_http *server, int32_t level, const char *format, ...)
{
    char line[1024];
    va_list arguments;

    if (!server->options.log || level > server->options.log_level)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    server->options.log(server->options.log_user, level, line);
}
