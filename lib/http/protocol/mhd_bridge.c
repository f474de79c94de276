/*
 * mhd_bridge.c - libmicrohttpd on the guard's thread: what is there for it, connections to resume,
 * replies that it has written, and jobs that this thread computes itself.
 */
#include "lib/http/net/event_loop.h"
#include "lib/http/server.h"
#include "lib/http/inference/inference_call.h"

#include <sys/epoll.h>
#include <unistd.h>

enum { N_TURNS = 16 }; /* before others are looked at */

void gsv_guard_wake(struct gsv_guard *guard)
{
    const uint64_t one = 1;

    if (write(guard->wake, &one, sizeof(one)) < 0)
        return; /* the counter is full: it will wake */
}

void gsv_guard_resume(struct gsv_guard *guard, struct gsv_exchange *exchange)
{
    pthread_mutex_lock(&guard->lock);
    exchange->queued = guard->resumed;
    guard->resumed = exchange;
    /* Under the lock, so that the guard is not stopped, and `wake` closed, in between. */
    if (!exchange->queued)
        gsv_guard_wake(guard);
    pthread_mutex_unlock(&guard->lock);
}

static void resume_all(struct gsv_guard *guard)
{
    struct gsv_exchange *exchange, *next;

    pthread_mutex_lock(&guard->lock);
    exchange = guard->resumed;
    guard->resumed = NULL;
    pthread_mutex_unlock(&guard->lock);
    for (; exchange; exchange = next) {
        next = exchange->queued;
        MHD_resume_connection(exchange->connection);
    }
}

void gsv_guard_answered(struct gsv_client *client)
{
    if (client->ended || client->is_answered)
        return;
    client->is_answered = true;
    client->next_answered = client->guard->answered;
    client->guard->answered = client;
}

/* Replies go on at once; epoll would tell of them a turn later. */
static void pass_replies(struct gsv_guard *guard)
{
    struct gsv_client *client = guard->answered, *next;

    guard->answered = NULL;
    for (; client; client = next) {
        next = client->next_answered;
        client->is_answered = false;
        if (!client->ended)
            gsv_client_event(client, &client->mhd, EPOLLIN);
    }
}

bool gsv_guard_run_mhd(struct gsv_guard *guard)
{
    struct MHD_Daemon *daemon = guard->server->daemon;
    MHD_UNSIGNED_LONG_LONG left_ms;

    resume_all(guard);
    for (int i = 0; i < N_TURNS; i++) {
        MHD_run(daemon);
        pass_replies(guard);
        if (MHD_get_timeout(daemon, &left_ms) != MHD_YES || left_ms > 0)
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------------- leading */

bool gsv_guard_may_lead(const struct gsv_guard *guard)
{
    return !guard->lead && !guard->is_leading;
}

void gsv_guard_lead(struct gsv_guard *guard)
{
    struct gsv_exchange *const exchange = guard->lead;
    struct gsv_client *const client = exchange->client;

    /* Not attended any more, unless this is the second job in a row: then another thread waits for
     * events, and whoever else did would sweep away the clients that they are of. */
    guard->lead = NULL;
    guard->is_leading = true;
    atomic_fetch_add(&client->n_owners, 1); /* libmicrohttpd may be its last one, and end below */
    pthread_cond_signal(&guard->follow);
    pthread_mutex_unlock(&guard->loop);
    gsv_work_compute(exchange);
    pthread_mutex_lock(&guard->loop);
    guard->is_leading = false;
    MHD_resume_connection(exchange->connection);
    guard->is_done = gsv_guard_run_mhd(guard);
    /* Whoever waits for events has not seen this; ended clients leave the list in a turn only. */
    if (!guard->is_done || client->ended)
        gsv_guard_wake(guard);
    gsv_client_release(client);
}
