/*
 * idle.h - suspends models that have been idle for the time in a client's `keep_alive`.
 *
 * A suspended model keeps its handle and tokenizer; the next job resumes it in the submitting
 * thread. While a model is suspended, dispatch.c therefore runs handlers on worker threads.
 */
#ifndef GSV_HTTP_IDLE_H
#define GSV_HTTP_IDLE_H

#include <gpuserve/types.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct gsv_models;
struct gsv_served;

struct gsv_idle {
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    pthread_t thread;
    struct gsv_models *models;
    bool is_started, is_closed, is_woken;
    _Atomic bool is_used; /* a request has set a time */
    _Atomic unsigned long long n_suspended;
};

void gsv_idle_init(struct gsv_idle *idle, struct gsv_models *models);
/* Joins the thread. */
void gsv_idle_close(struct gsv_idle *idle);
void gsv_idle_destroy(struct gsv_idle *idle);

/* Suspends the model `keep_ms` after its last job; negative: never. */
gpuserve_status gsv_idle_keep(struct gsv_idle *idle, struct gsv_served *served, int64_t keep_ms,
                              gpuserve_error *error);
/* A job of the model has begun or ended. */
void gsv_idle_note(struct gsv_idle *idle, struct gsv_served *served, bool has_ended);
/* True if a job might have to resume a model. */
bool gsv_idle_any(struct gsv_idle *idle);

#endif
