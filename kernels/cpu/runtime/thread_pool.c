/*
 * thread_pool.c - a few threads, one job at a time.
 *
 * `left` counts the tasks nobody has taken. Whoever lowers it owns that task, and the job's
 * description stays as it is until `done` has counted that task too; so a helper reads the
 * description only after it has taken a task, and needs no other sign that a job began or ended.
 *
 * Sleeping: a helper raises `sleepers`, then looks at `left` once more under the lock; the caller
 * sets `left`, then looks at `sleepers`. Both sequentially consistent, so one of them sees the
 * other.
 */
#include "kernels/cpu/runtime/thread_pool.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A text's operations follow each other within a few microseconds; texts that are asked for one by
 * one within some tens. */
#define SPIN_NS 100000
#define SPINS_PER_LOOK 64 /* pauses between two looks at the clock: about a microsecond */
#define STACK_BYTES 262144

struct helper {
    struct gsv_team *team;
    pthread_t thread;
    int32_t number; /* from 1: the caller is 0 */
};

struct gsv_team {
    _Alignas(64) atomic_int left; /* tasks not taken */
    gsv_task_fn task;
    void *context;
    int32_t n_tasks;
    _Alignas(64) atomic_int done; /* tasks finished */
    _Alignas(64) atomic_int sleepers;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int32_t n_helpers;
    struct helper helpers[];
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Take one task and run it; false when none is left. */
static bool run_one(struct gsv_team *team, int32_t thread)
{
    int left = atomic_load_explicit(&team->left, memory_order_relaxed);

    do {
        if (left <= 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&team->left, &left, left - 1,
                                                    memory_order_acquire, memory_order_relaxed));
    team->task(team->context, thread, team->n_tasks - left);
    atomic_fetch_add_explicit(&team->done, 1, memory_order_release);
    return true;
}

static bool has_work(struct gsv_team *team)
{
    return atomic_load(&team->left) > 0 || atomic_load(&team->stop);
}

static void wait_for_work(struct gsv_team *team)
{
    const int64_t until = now_ns() + SPIN_NS;

    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (has_work(team))
                return;
            relax();
        }
        sched_yield(); /* to the caller itself, where both have the same processor */
    } while (now_ns() < until);

    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->sleepers, 1);
    while (!has_work(team))
        pthread_cond_wait(&team->wake, &team->lock);
    atomic_fetch_sub(&team->sleepers, 1);
    pthread_mutex_unlock(&team->lock);
}

static void *helper_main(void *self_)
{
    struct helper *self = self_;
    struct gsv_team *team = self->team;

    while (!atomic_load(&team->stop)) {
        if (!run_one(team, self->number))
            wait_for_work(team);
    }
    return NULL;
}

static void wake_helpers(struct gsv_team *team)
{
    if (atomic_load(&team->sleepers) == 0)
        return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

void gsv_team_run(struct gsv_team *team, int32_t n_tasks, gsv_task_fn task, void *context)
{
    int spins = 0;

    if (team->n_helpers == 0 || n_tasks == 1) {
        for (int32_t i = 0; i < n_tasks; i++)
            task(context, 0, i);
        return;
    }
    team->task = task;
    team->context = context;
    team->n_tasks = n_tasks;
    atomic_store_explicit(&team->done, 0, memory_order_relaxed);
    atomic_store(&team->left, n_tasks);
    wake_helpers(team);
    while (run_one(team, 0))
        ;
    while (atomic_load_explicit(&team->done, memory_order_acquire) < n_tasks) {
        relax();
        if (++spins % 1024 == 0)
            sched_yield(); /* more threads than processors: let the one with the task go on */
    }
}

/* Signals are the host program's business: helpers block them all. */
static int start_helper(struct helper *helper)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed = pthread_attr_init(&attributes);

    if (failed)
        return failed;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (!failed)
        failed = pthread_create(&helper->thread, &attributes, helper_main, helper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

size_t gsv_team_bytes(int32_t n_threads)
{
    const size_t helpers = n_threads > 1 ? (size_t)n_threads - 1 : 0;

    return gsv_round_up(sizeof(struct gsv_team) + helpers * sizeof(struct helper), 64);
}

gpuserve_status gsv_team_create(struct gsv_team **out, int32_t n_threads, gpuserve_error *error)
{
    const size_t bytes = gsv_team_bytes(n_threads);
    struct gsv_team *team = gsv_alloc_aligned(bytes);

    *out = NULL;
    if (!team)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a team of threads");
    memset(team, 0, bytes);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    for (int32_t i = 1; i < n_threads; i++) {
        struct helper *helper = &team->helpers[team->n_helpers];
        int failed;

        helper->team = team;
        helper->number = i;
        failed = start_helper(helper);
        if (failed) {
            gsv_team_destroy(&team);
            return gsv_fail(error, GPUSERVE_E_NOMEM, "cannot start thread %d of %d: %s", (int)i + 1,
                            (int)n_threads, strerror(failed));
        }
        team->n_helpers++;
    }
    *out = team;
    return GPUSERVE_OK;
}

void gsv_team_destroy(struct gsv_team **team_)
{
    struct gsv_team *team = team_ ? *team_ : NULL;

    if (!team)
        return;
    atomic_store(&team->stop, true);
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
    for (int32_t i = 0; i < team->n_helpers; i++)
        pthread_join(team->helpers[i].thread, NULL);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    gsv_free_aligned(team);
    *team_ = NULL;
}
