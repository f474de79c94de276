/*
 * load_queue.c - implements the load queue; load_queue.h defines coalescing, order and
 * cancellation.
 *
 * The queue thread runs tasks without the lock. The thread that removes a waiter from a task's list
 * owns it, so every waiter is completed exactly once. A completed exchange may be freed at once.
 */
#include "lib/http/inference/load_queue.h"

#include "lib/base/error.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/models/model_registry.h"

#include <stdlib.h>
#include <string.h>

struct gsv_load_task {
    struct gsv_load_task *next;
    struct gsv_entry *entry;
    enum gsv_load_kind kind;
    struct gsv_exchange *waiters; /* linked by work.next_waiter */
    bool is_running;
    struct gsv_buffer report; /* of a check */
    bool is_good;
};

void gsv_load_queue_init(struct gsv_load_queue *queue, struct gsv_models *models)
{
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    queue->models = models;
}

/* -------------------------------------------------------------------- called with the lock held */

/* The last task of the entry, or NULL; *link is the link for a new task. */
static struct gsv_load_task *find_last(struct gsv_load_queue *queue, const struct gsv_entry *entry,
                                       struct gsv_load_task ***link)
{
    struct gsv_load_task *last = NULL;

    for (*link = &queue->first; **link; *link = &(**link)->next) {
        if ((**link)->entry == entry)
            last = **link;
    }
    return last;
}

static void unlink_task(struct gsv_load_queue *queue, struct gsv_load_task *task)
{
    struct gsv_load_task **link = &queue->first;

    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
    queue->n--;
}

/* Detaches the waiters; the caller must complete them. */
static struct gsv_exchange *take_waiters(struct gsv_load_task *task)
{
    struct gsv_exchange *waiters = task->waiters;

    for (struct gsv_exchange *x = waiters; x; x = x->work.next_waiter)
        x->work.load = NULL;
    task->waiters = NULL;
    return waiters;
}

static void drop_task(struct gsv_load_queue *queue, struct gsv_load_task *task)
{
    unlink_task(queue, task);
    free(task);
    atomic_fetch_add(&queue->n_cancelled, 1ull);
}

/* ----------------------------------------------------------------------------------- completion */

static void complete_all(struct gsv_exchange *waiters, gpuserve_status status,
                         const gpuserve_error *error)
{
    while (waiters) {
        struct gsv_exchange *next = waiters->work.next_waiter;

        waiters->work.status = status;
        if (status != GPUSERVE_OK)
            gsv_error_copy(&waiters->work.error, error);
        gsv_call_complete(waiters);
        waiters = next;
    }
}

/* Each waiter gets a copy of the report for its reply. */
static void share_report(const struct gsv_load_task *task, struct gsv_exchange *waiters)
{
    for (; waiters && task->kind == GSV_CHECK; waiters = waiters->work.next_waiter) {
        gsv_buffer_add(&waiters->reply, task->report.bytes, task->report.size);
        waiters->reply.failed |= task->report.failed;
        *(bool *)waiters->state = task->is_good;
    }
}

static gpuserve_status run_task(struct gsv_load_queue *queue, struct gsv_load_task *task,
                                gpuserve_error *error)
{
    if (task->kind == GSV_CHECK) {
        task->is_good = gsv_models_try(queue->models, &task->report);
        return GPUSERVE_OK;
    }
    if (task->kind == GSV_UNLOAD)
        return gsv_models_unload(queue->models, task->entry, error);
    atomic_fetch_add(&queue->n_loads, 1ull);
    return gsv_models_load(queue->models, task->entry, false, error);
}

static void *run(void *user)
{
    struct gsv_load_queue *queue = user;

    pthread_setname_np(pthread_self(), "gpuserve-load");
    pthread_mutex_lock(&queue->lock);
    while (!queue->is_closed) {
        struct gsv_load_task *task = queue->first;
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_exchange *waiters;
        gpuserve_status st;

        if (!task) {
            pthread_cond_wait(&queue->changed, &queue->lock);
            continue;
        }
        task->is_running = true;
        pthread_mutex_unlock(&queue->lock);
        st = run_task(queue, task, &error);
        pthread_mutex_lock(&queue->lock);
        unlink_task(queue, task);
        waiters = take_waiters(task);
        pthread_mutex_unlock(&queue->lock);
        share_report(task, waiters);
        gsv_buffer_reset(&task->report);
        free(task);
        complete_all(waiters, st, &error);
        pthread_mutex_lock(&queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

/* ------------------------------------------------------------------------------------- waiters */

/* Called with the lock held. */
static gpuserve_status start_thread(struct gsv_load_queue *queue, gpuserve_error *error)
{
    int failed = 0;

    if (!queue->is_started)
        failed = pthread_create(&queue->thread, NULL, run, queue);
    if (failed)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "the server cannot start a thread for loads: %s",
                        strerror(failed));
    queue->is_started = true;
    return GPUSERVE_OK;
}

/* Finds or appends the task to wait for. Called with the lock held. */
static gpuserve_status find_task(struct gsv_load_queue *queue, struct gsv_entry *entry,
                                 enum gsv_load_kind kind, struct gsv_load_task **task,
                                 gpuserve_error *error)
{
    struct gsv_load_task **link;

    *task = find_last(queue, entry, &link);
    if (*task && (*task)->kind == kind) {
        atomic_fetch_add(&queue->n_joined, 1ull);
        return GPUSERVE_OK;
    }
    if (queue->n >= GSV_MAX_LOAD_TASKS) {
        gsv_fail(error, GPUSERVE_E_BUSY, "%zu loads and unloads are queued, the limit is %d",
                 queue->n, GSV_MAX_LOAD_TASKS);
        return gsv_retry_after(error, GPUSERVE_E_BUSY, 1000);
    }
    *task = calloc(1, sizeof(**task));
    if (!*task)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a load");
    (*task)->entry = entry;
    (*task)->kind = kind;
    *link = *task;
    queue->n++;
    pthread_cond_signal(&queue->changed);
    return GPUSERVE_OK;
}

gpuserve_status gsv_load_queue_add(struct gsv_load_queue *queue, struct gsv_exchange *exchange,
                                   struct gsv_entry *entry, enum gsv_load_kind kind,
                                   gpuserve_error *error)
{
    struct gsv_load_task *task = NULL;
    gpuserve_status st;

    pthread_mutex_lock(&queue->lock);
    st = queue->is_closed ? gsv_fail(error, GPUSERVE_E_CANCELLED, "the server is stopping")
                          : start_thread(queue, error);
    if (st == GPUSERVE_OK)
        st = find_task(queue, entry, kind, &task, error);
    if (st == GPUSERVE_OK) {
        exchange->work.load = task;
        exchange->work.next_waiter = task->waiters;
        task->waiters = exchange;
    }
    pthread_mutex_unlock(&queue->lock);
    return st;
}

void gsv_load_queue_leave(struct gsv_load_queue *queue, struct gsv_exchange *exchange)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_exchange **link;
    struct gsv_load_task *task;

    pthread_mutex_lock(&queue->lock);
    task = exchange->work.load;
    if (task) {
        link = &task->waiters;
        while (*link != exchange)
            link = &(*link)->work.next_waiter;
        *link = exchange->work.next_waiter;
        exchange->work.next_waiter = NULL;
        exchange->work.load = NULL;
        if (!task->waiters && !task->is_running)
            drop_task(queue, task);
    }
    pthread_mutex_unlock(&queue->lock);
    if (!task)
        return;
    gsv_fail(&error, GPUSERVE_E_CANCELLED, "the client has closed its connection");
    complete_all(exchange, GPUSERVE_E_CANCELLED, &error);
}

void gsv_load_queue_close(struct gsv_load_queue *queue)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_load_task *task, *next;

    gsv_fail(&error, GPUSERVE_E_CANCELLED, "the server is stopping and cancelled this request");
    pthread_mutex_lock(&queue->lock);
    queue->is_closed = true;
    pthread_cond_broadcast(&queue->changed);
    for (task = queue->first; task; task = next) {
        struct gsv_exchange *waiters = take_waiters(task);

        next = task->next;
        if (!task->is_running)
            drop_task(queue, task);
        complete_all(waiters, GPUSERVE_E_CANCELLED, &error);
    }
    pthread_mutex_unlock(&queue->lock);
}

void gsv_load_queue_join(struct gsv_load_queue *queue)
{
    if (queue->is_started)
        pthread_join(queue->thread, NULL);
}

void gsv_load_queue_destroy(struct gsv_load_queue *queue)
{
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
}
