/*
 * mhd_bridge.c - drives libmicrohttpd from the event loop: resume, run, pass replies, inline jobs.
 *
 * Any thread may request a resumption, which goes through the list `resumed` and the eventfd. All
 * else runs on the thread that holds `loop`.
 */
#include "lib/http/net/event_loop.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/exchange.h"

#include <sys/epoll.h>
#include <unistd.h>

enum { N_TURNS = 16 }; /* before other clients are served */

void gsv_event_loop_wake(struct gsv_event_loop *event_loop)
{
    const uint64_t one = 1;

    if (write(event_loop->wake, &one, sizeof(one)) < 0)
        return; /* the counter is saturated: it wakes anyway */
}

void gsv_event_loop_resume(struct gsv_event_loop *event_loop, struct gsv_exchange *exchange)
{
    pthread_mutex_lock(&event_loop->lock);
    exchange->queued = event_loop->resumed;
    event_loop->resumed = exchange;
    /* Under the lock, so that the event loop cannot stop and close `wake` in between. */
    if (!exchange->queued)
        gsv_event_loop_wake(event_loop);
    pthread_mutex_unlock(&event_loop->lock);
}

static void resume_all(struct gsv_event_loop *event_loop)
{
    struct gsv_exchange *exchange, *next;

    pthread_mutex_lock(&event_loop->lock);
    exchange = event_loop->resumed;
    event_loop->resumed = NULL;
    pthread_mutex_unlock(&event_loop->lock);
    for (; exchange; exchange = next) {
        next = exchange->queued;
        MHD_resume_connection(exchange->connection);
    }
}

void gsv_event_loop_answered(struct gsv_client *client)
{
    if (client->ended || client->is_answered)
        return;
    client->is_answered = true;
    client->next_answered = client->event_loop->answered;
    client->event_loop->answered = client;
}

/* Passes new replies on at once; epoll would report them one turn later. */
static void pass_replies(struct gsv_event_loop *event_loop)
{
    struct gsv_client *client = event_loop->answered, *next;

    event_loop->answered = NULL;
    for (; client; client = next) {
        next = client->next_answered;
        client->is_answered = false;
        if (!client->ended)
            gsv_client_event(client, &client->mhd, EPOLLIN);
    }
}

bool gsv_event_loop_run_mhd(struct gsv_event_loop *event_loop)
{
    struct MHD_Daemon *daemon = event_loop->server->daemon;
    MHD_UNSIGNED_LONG_LONG left_ms;

    resume_all(event_loop);
    for (int i = 0; i < N_TURNS; i++) {
        MHD_run(daemon);
        pass_replies(event_loop);
        if (MHD_get_timeout(daemon, &left_ms) != MHD_YES || left_ms > 0)
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------------------------- inline jobs */

bool gsv_event_loop_may_run_inline(const struct gsv_event_loop *event_loop)
{
    return !event_loop->lead && !event_loop->is_leading;
}

void gsv_event_loop_run_inline(struct gsv_event_loop *event_loop)
{
    struct gsv_exchange *const exchange = event_loop->lead;
    struct gsv_client *const client = exchange->client;

    /* `attended` stays unchanged: take_turn() has cleared it, unless this is a second inline job in
     * a row. In that case the other thread waits for events. A further thread would sweep the
     * clients that its events refer to. */
    event_loop->lead = NULL;
    event_loop->is_leading = true;
    atomic_fetch_add(&client->n_owners, 1); /* libmicrohttpd may release it below */
    pthread_cond_signal(&event_loop->follow);
    pthread_mutex_unlock(&event_loop->loop);
    gsv_call_compute(exchange);
    pthread_mutex_lock(&event_loop->loop);
    event_loop->is_leading = false;
    MHD_resume_connection(exchange->connection);
    event_loop->is_done = gsv_event_loop_run_mhd(event_loop);
    /* The thread in epoll_wait() has not seen this work, and only a turn sweeps ended clients. */
    if (!event_loop->is_done || client->ended)
        gsv_event_loop_wake(event_loop);
    gsv_client_release(client);
}
