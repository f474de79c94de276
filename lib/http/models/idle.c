/*
 * idle.c - a thread that suspends idle models; it sleeps until the next one is due.
 *
 * The idle time of a model starts at the end of its last job. A model with jobs in flight
 * (`n_active`) is not idle.
 * Threading: the fields of a model are atomic; `lock` only pairs changes with the sleep.
 */
#include "lib/http/models/idle.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/http/models/model_registry.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static const uint64_t ms_ns = 1000000u, second_ns = 1000000000u, max_sleep_ns = 60000000000u;

void gsv_idle_init(struct gsv_idle *idle, struct gsv_models *models)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&idle->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&idle->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    idle->models = models;
}

void gsv_idle_destroy(struct gsv_idle *idle)
{
    pthread_cond_destroy(&idle->changed);
    pthread_mutex_destroy(&idle->lock);
}

/* Nanoseconds until the model is to be suspended; UINT64_MAX: not by time. */
static uint64_t left_of(struct gsv_served *served, uint64_t now)
{
    const int64_t keep_ms = atomic_load(&served->keep_ms);
    uint64_t due;

    if (keep_ms < 0 || atomic_load(&served->n_active) > 0 || atomic_load(&served->is_suspended))
        return UINT64_MAX;
    due = atomic_load(&served->used_ns) + (uint64_t)keep_ms * ms_ns;
    return due > now ? due - now : 0;
}

/* The flag is set first: requests that follow resume the model on a worker thread. A job that began
 * just before has cleared the flag already and would leave it set on a resumed model, so n_active
 * is read after it. */
static void suspend(struct gsv_idle *idle, struct gsv_served *served)
{
    atomic_store(&served->is_suspended, true);
    if (atomic_load(&served->n_active) > 0) {
        atomic_store(&served->is_suspended, false);
        return;
    }
    if (gpuserve_model_suspend(served->model, NULL) == GPUSERVE_OK)
        atomic_fetch_add(&idle->n_suspended, 1ull);
    else
        atomic_store(&served->is_suspended, false);
}

/* Suspends the models whose time has passed. Returns the time until the next model is due. */
static uint64_t suspend_due(struct gsv_idle *idle)
{
    uint64_t next = max_sleep_ns;

    for (size_t i = 0; i < idle->models->n; i++) {
        struct gsv_served *served = gsv_models_hold(idle->models, &idle->models->entries[i]);
        const uint64_t left = served ? left_of(served, gsv_now_ns()) : UINT64_MAX;

        if (left == 0)
            suspend(idle, served);
        else if (left < next)
            next = left;
        gsv_served_release(served);
    }
    return next;
}

static void *run(void *user)
{
    struct gsv_idle *idle = user;

    pthread_setname_np(pthread_self(), "gpuserve-idle");
    pthread_mutex_lock(&idle->lock);
    while (!idle->is_closed) {
        struct timespec until;
        uint64_t left, at;

        pthread_mutex_unlock(&idle->lock);
        left = suspend_due(idle);
        pthread_mutex_lock(&idle->lock);
        at = gsv_now_ns() + left;
        until.tv_sec = (time_t)(at / second_ns);
        until.tv_nsec = (long)(at % second_ns);
        while (!idle->is_closed && !idle->is_woken &&
               pthread_cond_timedwait(&idle->changed, &idle->lock, &until) == 0)
            continue;
        idle->is_woken = false;
    }
    pthread_mutex_unlock(&idle->lock);
    return NULL;
}

static void wake(struct gsv_idle *idle)
{
    pthread_mutex_lock(&idle->lock);
    idle->is_woken = true;
    pthread_cond_signal(&idle->changed);
    pthread_mutex_unlock(&idle->lock);
}

gpuserve_status gsv_idle_keep(struct gsv_idle *idle, struct gsv_served *served, int64_t keep_ms,
                              gpuserve_error *error)
{
    int failed = 0;

    if (!served->owned) /* the program's own model */
        return GPUSERVE_OK;
    if (keep_ms > 0)
        atomic_store(&served->used_ns, gsv_now_ns());
    atomic_store(&served->keep_ms, keep_ms);
    atomic_store(&idle->is_used, true);
    pthread_mutex_lock(&idle->lock);
    if (!idle->is_started && !idle->is_closed)
        failed = pthread_create(&idle->thread, NULL, run, idle);
    idle->is_started = idle->is_started || (!failed && !idle->is_closed);
    idle->is_woken = true;
    pthread_cond_signal(&idle->changed);
    pthread_mutex_unlock(&idle->lock);
    return failed ? gsv_fail(error, GPUSERVE_E_NOMEM, "the server cannot start a thread: %s",
                             strerror(failed))
                  : GPUSERVE_OK;
}

void gsv_idle_note(struct gsv_idle *idle, struct gsv_served *served, bool has_ended)
{
    if (!has_ended) {
        atomic_fetch_add(&served->n_active, 1);
        atomic_store(&served->is_suspended, false);
        return;
    }
    atomic_store(&served->used_ns, gsv_now_ns());
    if (atomic_fetch_sub(&served->n_active, 1) == 1 && atomic_load(&served->keep_ms) >= 0)
        wake(idle);
}

bool gsv_idle_any(struct gsv_idle *idle)
{
    bool any = false;

    if (!atomic_load(&idle->is_used))
        return false;
    for (size_t i = 0; i < idle->models->n && !any; i++) {
        struct gsv_served *served = gsv_models_hold(idle->models, &idle->models->entries[i]);

        any = served && atomic_load(&served->is_suspended);
        gsv_served_release(served);
    }
    return any;
}

void gsv_idle_close(struct gsv_idle *idle)
{
    bool must_join;

    pthread_mutex_lock(&idle->lock);
    must_join = idle->is_started && !idle->is_closed;
    idle->is_closed = true;
    pthread_cond_signal(&idle->changed);
    pthread_mutex_unlock(&idle->lock);
    if (must_join)
        pthread_join(idle->thread, NULL);
}
