/*
 * thread_pool.c - fork-join thread pool: helper threads and the caller share one job at a time.
 *
 * `left` counts the unclaimed tasks. The thread that decrements it owns that task. The job's
 * description stays unchanged until `done` has counted that task. A helper therefore reads the
 * description only after claiming a task and needs no other sign of a job's start or end.
 *
 * Sleeping: a helper increments `sleepers`, then checks `left` again under the lock; the caller
 * sets `left`, then checks `sleepers`. Both are sequentially consistent, so at least one sees the
 * other's write and no wake-up is lost.
 */
#include "kernels/cpu/runtime/thread_pool.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Operations of one text follow each other within a few microseconds; texts requested one by one
 * follow within some tens. */
#define SPIN_NS 100000
#define SPINS_PER_LOOK 64 /* pause instructions between two clock reads: about a microsecond */
#define STACK_BYTES 262144

struct helper {
    struct gsv_thread_pool *thread_pool;
    pthread_t thread;
    int32_t number; /* from 1: the caller is 0 */
};

struct gsv_thread_pool {
    _Alignas(64) atomic_int left; /* unclaimed tasks */
    gsv_task_fn task;
    void *context;
    int32_t n_tasks;
    _Alignas(64) atomic_int done; /* finished tasks */
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

/* Claims one task and runs it; false if none is left. */
static bool run_one(struct gsv_thread_pool *thread_pool, int32_t thread)
{
    int left = atomic_load_explicit(&thread_pool->left, memory_order_relaxed);

    do {
        if (left <= 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&thread_pool->left, &left, left - 1,
                                                    memory_order_acquire, memory_order_relaxed));
    thread_pool->task(thread_pool->context, thread, thread_pool->n_tasks - left);
    atomic_fetch_add_explicit(&thread_pool->done, 1, memory_order_release);
    return true;
}

static bool has_work(struct gsv_thread_pool *thread_pool)
{
    return atomic_load(&thread_pool->left) > 0 || atomic_load(&thread_pool->stop);
}

static void wait_for_work(struct gsv_thread_pool *thread_pool)
{
    const uint64_t until = gsv_now_ns() + SPIN_NS;

    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (has_work(thread_pool))
                return;
            relax();
        }
        sched_yield(); /* lets the caller run if both threads share a core */
    } while (gsv_now_ns() < until);

    pthread_mutex_lock(&thread_pool->lock);
    atomic_fetch_add(&thread_pool->sleepers, 1);
    while (!has_work(thread_pool))
        pthread_cond_wait(&thread_pool->wake, &thread_pool->lock);
    atomic_fetch_sub(&thread_pool->sleepers, 1);
    pthread_mutex_unlock(&thread_pool->lock);
}

static void *helper_main(void *self_)
{
    struct helper *self = self_;
    struct gsv_thread_pool *thread_pool = self->thread_pool;

    while (!atomic_load(&thread_pool->stop)) {
        if (!run_one(thread_pool, self->number))
            wait_for_work(thread_pool);
    }
    return NULL;
}

static void wake_helpers(struct gsv_thread_pool *thread_pool)
{
    if (atomic_load(&thread_pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&thread_pool->lock);
    pthread_cond_broadcast(&thread_pool->wake);
    pthread_mutex_unlock(&thread_pool->lock);
}

void gsv_thread_pool_run(struct gsv_thread_pool *thread_pool, int32_t n_tasks, gsv_task_fn task,
                         void *context)
{
    int spins = 0;

    if (thread_pool->n_helpers == 0 || n_tasks == 1) {
        for (int32_t i = 0; i < n_tasks; i++)
            task(context, 0, i);
        return;
    }
    thread_pool->task = task;
    thread_pool->context = context;
    thread_pool->n_tasks = n_tasks;
    atomic_store_explicit(&thread_pool->done, 0, memory_order_relaxed);
    atomic_store(&thread_pool->left, n_tasks);
    wake_helpers(thread_pool);
    while (run_one(thread_pool, 0))
        ;
    while (atomic_load_explicit(&thread_pool->done, memory_order_acquire) < n_tasks) {
        relax();
        if (++spins % 1024 == 0)
            sched_yield(); /* more threads than cores: let the thread that holds the task run */
    }
}

/* Helpers block all signals: signal handling belongs to the host program. */
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

size_t gsv_thread_pool_bytes(int32_t n_threads)
{
    const size_t helpers = n_threads > 1 ? (size_t)n_threads - 1 : 0;

    return gsv_round_up(sizeof(struct gsv_thread_pool) + helpers * sizeof(struct helper), 64);
}

gpuserve_status gsv_thread_pool_create(struct gsv_thread_pool **out, int32_t n_threads,
                                       gpuserve_error *error)
{
    const size_t bytes = gsv_thread_pool_bytes(n_threads);
    struct gsv_thread_pool *thread_pool = gsv_alloc_aligned(bytes);

    *out = NULL;
    if (!thread_pool)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a thread pool");
    memset(thread_pool, 0, bytes);
    pthread_mutex_init(&thread_pool->lock, NULL);
    pthread_cond_init(&thread_pool->wake, NULL);
    for (int32_t i = 1; i < n_threads; i++) {
        struct helper *helper = &thread_pool->helpers[thread_pool->n_helpers];
        int failed;

        helper->thread_pool = thread_pool;
        helper->number = i;
        failed = start_helper(helper);
        if (failed) {
            gsv_thread_pool_destroy(&thread_pool);
            return gsv_fail(error, GPUSERVE_E_NOMEM, "cannot start thread %d of %d: %s", (int)i + 1,
                            (int)n_threads, strerror(failed));
        }
        thread_pool->n_helpers++;
    }
    *out = thread_pool;
    return GPUSERVE_OK;
}

void gsv_thread_pool_destroy(struct gsv_thread_pool **thread_pool_)
{
    struct gsv_thread_pool *thread_pool = thread_pool_ ? *thread_pool_ : NULL;

    if (!thread_pool)
        return;
    atomic_store(&thread_pool->stop, true);
    pthread_mutex_lock(&thread_pool->lock);
    pthread_cond_broadcast(&thread_pool->wake);
    pthread_mutex_unlock(&thread_pool->lock);
    for (int32_t i = 0; i < thread_pool->n_helpers; i++)
        pthread_join(thread_pool->helpers[i].thread, NULL);
    pthread_cond_destroy(&thread_pool->wake);
    pthread_mutex_destroy(&thread_pool->lock);
    gsv_free_aligned(thread_pool);
    *thread_pool_ = NULL;
}
