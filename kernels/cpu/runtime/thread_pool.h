/*
 * thread_pool.h - the threads that share a stream's operations.
 *
 * An operation is cut into tasks; the caller and its helpers take one after the other until none
 * is left. A helper that comes late finds nothing to do, and nobody waits for it. Between
 * operations helpers spin for some tens of microseconds and then sleep.
 */
#ifndef GSV_CPU_THREAD_POOL_H
#define GSV_CPU_THREAD_POOL_H

#include <gpuserve/types.h>

#include <stddef.h>

#define GSV_MAX_POOL_THREADS 256

struct gsv_thread_pool;

/* Task numbers are 0 to n_tasks - 1; `thread` below n_threads is the same for no two at a time. */
typedef void (*gsv_task_fn)(void *context, int32_t thread, int32_t task);

/* n_threads counts the caller; with 1 no thread is started. */
gpuserve_status gsv_thread_pool_create(struct gsv_thread_pool **thread_pool, int32_t n_threads,
                                       gpuserve_error *error);
void gsv_thread_pool_destroy(struct gsv_thread_pool **thread_pool); /* accepts NULL, leaves NULL */
size_t gsv_thread_pool_bytes(int32_t n_threads);

/* Returns when all tasks are done. One caller at a time. */
void gsv_thread_pool_run(struct gsv_thread_pool *thread_pool, int32_t n_tasks, gsv_task_fn task,
                         void *context);

#endif
