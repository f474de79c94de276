/*
 * handle.h - what a caller holds: a name for a model that may be exchanged for another.
 *
 *   call --gsv_handle_pin--> the model of now --gsv_handle_unpin--> (freed when it was exchanged)
 *
 * A call pins the model once and uses nothing else, so it sees one model wholly. A request needs
 * no pin beyond its creation: its model's queue counts it, and whoever frees the model waits for
 * the queue.
 *
 * Two locks, in this order: `changing` is held as long as a change of the handle takes (seconds);
 * `lock` only to read or write what stands under it.
 */
#ifndef GSV_RUNTIME_HANDLE_H
#define GSV_RUNTIME_HANDLE_H

#include "lib/runtime/face.h"
#include "lib/runtime/model.h"
#include "lib/runtime/opening.h"

struct gpuserve_model {
    atomic_size_t n_owners;
    gpuserve_context *context;           /* shared */
    struct gsv_completions *completions; /* shared */
    const struct gsv_face *_Atomic face; /* of the current model */
    struct gsv_face *faces;              /* all that were ever lent */

    pthread_mutex_t changing; /* for what follows, and one change at a time */
    struct gsv_opening opening;

    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t unpinned;
    struct gsv_model *current;
};

/* Not NULL and not forked. */
gpuserve_status gsv_handle_check(const gpuserve_model *handle, gpuserve_error *error);

/* Check the handle and take its model for one call. On failure there is nothing to unpin. */
gpuserve_status gsv_handle_pin(gpuserve_model *handle, struct gsv_model **model,
                               gpuserve_error *error);
void gsv_handle_unpin(gpuserve_model *handle, struct gsv_model **model);

/* Put `fresh` and `face` in place and return the model before, which no call uses any more. Both
 * are the handle's afterwards. */
struct gsv_model *gsv_handle_exchange(gpuserve_model *handle, struct gsv_model *fresh,
                                      struct gsv_face *face);

#endif
