/*
 * handle.h - what a caller holds: a name for a model that may be exchanged or suspended.
 *
 *   call --gsv_handle_pin--> the model of now --gsv_handle_unpin--> (freed when it was exchanged)
 *        --gsv_handle_use--> the same, able to run; resumed first if it was suspended
 *
 * A call pins the model once and uses nothing else, so it sees one model wholly. A request needs
 * no pin beyond its creation: its model's queue counts it, and whoever unloads the model waits for
 * the queue.
 *
 * Two locks, in this order: `changing` is held as long as a change of the handle takes (seconds);
 * `lock` only to read or write what stands under it.
 */
#ifndef GSV_RUNTIME_HANDLE_H
#define GSV_RUNTIME_HANDLE_H

#include "lib/runtime/models/model_info.h"
#include "lib/runtime/models/failover.h"
#include "lib/runtime/model.h"
#include "lib/runtime/models/load_options.h"

struct gpuserve_model {
    atomic_size_t n_owners;
    gpuserve_context *context;                 /* shared */
    struct gsv_completions *completions;       /* shared */
    const struct gsv_model_info *_Atomic info; /* of the current model */
    char *name;                                /* in the context's registry */
    char *version;
    bool is_kept;              /* never evicted */
    bool refuses;              /* requests while it is suspended, instead of resuming it */
    gpuserve_model *next_open; /* in the registry, under the budget's lock */

    pthread_mutex_t changing; /* for what follows, and one change at a time */
    struct gsv_load_options load_options;
    uint64_t unresumed_ns;        /* when it could not be resumed last; 0: it could */
    gpuserve_error unresumed;     /* and why */
    struct gsv_model_info *infos; /* all that were ever lent */

    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t unpinned;
    struct gsv_model *current; /* NULL while the handle is being opened */
    bool is_suspended;
    uint64_t last_used_ns;
    uint64_t n_swaps, n_suspensions;

    struct gsv_lost lost; /* has a lock of its own, taken last */
};

/* Not NULL and not forked. */
gpuserve_status gsv_handle_check(const gpuserve_model *handle, gpuserve_error *error);

/* The same for what waits until the model's requests have completed. */
gpuserve_status gsv_handle_check_change(const gpuserve_model *handle, gpuserve_error *error);

/* Check the handle and take its model for one call that needs no weights. On failure there is
 * nothing to unpin. */
gpuserve_status gsv_handle_pin(gpuserve_model *handle, struct gsv_model **model,
                               gpuserve_error *error);
void gsv_handle_unpin(gpuserve_model *handle, struct gsv_model **model);

/* The same for a call that submits a request; resumes a suspended model, or GPUSERVE_E_BUSY; when
 * `until_ns` passes meanwhile GPUSERVE_E_EXPIRED. 0: it may take as long as the policy lets it. */
gpuserve_status gsv_handle_use(gpuserve_model *handle, uint64_t until_ns, struct gsv_model **model,
                               gpuserve_error *error);
void gsv_handle_unuse(gpuserve_model *handle, struct gsv_model **model);

/* Nobody uses the current model and its queue is empty; `lock` is held. */
bool gsv_handle_is_idle(const gpuserve_model *handle);

/* Put `fresh` and `face` in place and return the model before, which no call uses any more. Both
 * are the handle's afterwards. `changing` is held. */
struct gsv_model *gsv_handle_exchange(gpuserve_model *handle, struct gsv_model *fresh,
                                      struct gsv_model_info *info);

/* Give back what the model holds but its plan, once its requests have completed; with `if_idle`
 * only when there are none. With `park` the weights of a GPU stay in host memory, else they are
 * dropped, also by one that is parked. False when there was nothing to do. `changing` is held. */
bool gsv_handle_suspend(gpuserve_model *handle, bool if_idle, bool offload);

/* Load it again; begun by `until_ns`, 0: whenever. What an attempt failed with while this one
 * waited for its turn is its own result too. With `use` not NULL the model is taken as by
 * gsv_handle_use before anybody can suspend it. */
gpuserve_status gsv_handle_resume(gpuserve_model *handle, uint64_t until_ns, struct gsv_model **use,
                                  gpuserve_error *error);

#endif
