/*
 * thread_pool.h - the threads that share the operations of a stream.
 *
 * An operation is cut into tasks. The caller and the helper threads claim one task after the other
 * until none is left (dynamic scheduling). A late helper finds no task, and the caller does not
 * wait for it. Between operations helpers spin for up to 100 microseconds, then sleep.
 */
#ifndef GSV_CPU_THREAD_POOL_H
#define GSV_CPU_THREAD_POOL_H

#include <gpuserve/types.h>

#include <stddef.h>

#define GSV_MAX_POOL_THREADS 256

struct gsv_thread_pool;

/* `task` is in 0..n_tasks - 1. `thread` is below n_threads; no two concurrent tasks have the same
 * value. */
typedef void (*gsv_task_fn)(void *context, int32_t thread, int32_t task);

/* n_threads includes the caller; with 1 no thread is started. */
gpuserve_status gsv_thread_pool_create(struct gsv_thread_pool **thread_pool, int32_t n_threads,
                                       gpuserve_error *error);
void gsv_thread_pool_destroy(struct gsv_thread_pool **thread_pool); /* accepts NULL, leaves NULL */
size_t gsv_thread_pool_bytes(int32_t n_threads);

/* Returns when all tasks are done. One caller at a time. */
void gsv_thread_pool_run(struct gsv_thread_pool *thread_pool, int32_t n_tasks, gsv_task_fn task,
                         void *context);

#endif
