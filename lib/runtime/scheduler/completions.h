/*
 * completions.h - an eventfd that counts the completed requests of a model.
 *
 * The handle owns it, and the caller borrows it for the handle's lifetime. Every queue that the
 * handle has had shares it, so a request that completes during a model swap is counted too.
 */
#ifndef GSV_RUNTIME_COMPLETIONS_H
#define GSV_RUNTIME_COMPLETIONS_H

#include <gpuserve/types.h>

#include <stdatomic.h>

struct gsv_completions {
    atomic_size_t n_owners;
    atomic_int fd; /* -1 until the first gsv_completions_fd() */
};

/* NULL when out of memory. */
struct gsv_completions *gsv_completions_create(void);
struct gsv_completions *gsv_completions_ref(struct gsv_completions *completions);
void gsv_completions_unref(struct gsv_completions **completions);

/* The eventfd, created at the first call; -1 on failure. */
int gsv_completions_fd(struct gsv_completions *completions);

/* Add one completion, if the eventfd exists. */
void gsv_completions_notify(struct gsv_completions *completions);

#endif
