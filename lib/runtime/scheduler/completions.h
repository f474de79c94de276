/*
 * completions.h - the descriptor that tells how many requests of a model have completed.
 *
 * It is the handle's, which lends it to the caller for its whole life, and shared with every queue
 * the handle has had: a request that completes while its model is exchanged is counted as well.
 */
#ifndef GSV_RUNTIME_COMPLETIONS_H
#define GSV_RUNTIME_COMPLETIONS_H

#include <gpuserve/types.h>

#include <stdatomic.h>

struct gsv_completions {
    atomic_size_t n_owners;
    atomic_int fd; /* -1 until it is asked for */
};

/* NULL when out of memory. */
struct gsv_completions *gsv_completions_create(void);
struct gsv_completions *gsv_completions_ref(struct gsv_completions *completions);
void gsv_completions_unref(struct gsv_completions **completions);

/* The eventfd, made at the first call; -1 on failure. */
int gsv_completions_fd(struct gsv_completions *completions);

/* A request completed: adds one to it, if it was made. */
void gsv_completions_notify(struct gsv_completions *completions);

#endif
