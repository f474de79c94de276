/*
 * handle.h - the public model handle: a name for a model that can be swapped or suspended.
 *
 *   call --gsv_handle_pin--> current model --gsv_handle_unpin--> (freed if it was swapped out)
 *        --gsv_handle_use--> the same, ready to run; resumed first if it was suspended
 *
 * A call pins the model once and uses only that model, so it never sees two. A request needs no pin
 * after its creation: its model's queue counts it, and unloading a model waits for its queue.
 *
 * Two locks, taken in this order: `changing` is held for the duration of a change (seconds); `lock`
 * only to read or write the fields below it.
 */
#ifndef GSV_RUNTIME_HANDLE_H
#define GSV_RUNTIME_HANDLE_H

#include "lib/runtime/memory/budget.h"
#include "lib/runtime/model.h"
#include "lib/runtime/models/failover.h"

#include <gpuserve/gpuserve.h>

/*
 * The options a model was opened with, kept for loading it again.
 */

struct gsv_load_options {
    char *path;
    gpuserve_model_options options; /* owns its strings */
};

/* Copies path and options, which come from gsv_read_model_options(). Name and version are not
 * copied. */
gpuserve_status gsv_load_options_init(struct gsv_load_options *load_options, const char *path,
                                      const gpuserve_model_options *options, gpuserve_error *error);
void gsv_load_options_reset(struct gsv_load_options *load_options);

struct gpuserve_model {
    atomic_size_t n_owners;
    gpuserve_context *context;                 /* shared, counted reference */
    struct gsv_completions *completions;       /* shared with the requests */
    const struct gsv_model_info *_Atomic info; /* of the current model */
    char *name;                                /* key in the context's registry */
    char *version;
    bool is_kept;              /* never evicted */
    bool refuses;              /* a suspended model refuses requests instead of resuming */
    gpuserve_model *next_open; /* registry list, under the budget's lock */

    pthread_mutex_t changing; /* protects the fields below; serialises changes */
    struct gsv_load_options load_options;
    uint64_t unresumed_ns;        /* time of the last failed resume; 0: none failed */
    gpuserve_error unresumed;     /* its error */
    struct gsv_model_info *infos; /* all infos ever borrowed by callers */

    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t unpinned;
    struct gsv_model *current; /* NULL while the handle is being opened */
    bool is_suspended;
    uint64_t last_used_ns;
    uint64_t n_swaps, n_suspensions;

    struct gsv_lost lost; /* has its own lock, taken last */
};

/* The handle is not NULL and the process is not a fork of its creator. */
gpuserve_status gsv_handle_check(const gpuserve_model *handle, gpuserve_error *error);

/* Also refuses completion callbacks: the operation waits until the model's requests have
 * completed. */
gpuserve_status gsv_handle_check_change(const gpuserve_model *handle, gpuserve_error *error);

/* Checks the handle and pins its model for one call that needs no weights. On failure *model is
 * NULL and needs no unpin. */
gpuserve_status gsv_handle_pin(gpuserve_model *handle, struct gsv_model **model,
                               gpuserve_error *error);
void gsv_handle_unpin(gpuserve_model *handle, struct gsv_model **model);

/* The same for a call that submits a request. A suspended model is resumed, or refused with
 * GPUSERVE_E_BUSY; GPUSERVE_E_EXPIRED if `until_ns` passes first. 0: the policy bounds the wait. */
gpuserve_status gsv_handle_use(gpuserve_model *handle, uint64_t until_ns, struct gsv_model **model,
                               gpuserve_error *error);
void gsv_handle_unuse(gpuserve_model *handle, struct gsv_model **model);

/* No call uses the current model and its queue is empty. Caller holds `lock`. */
bool gsv_handle_is_idle(const gpuserve_model *handle);

/* Installs `fresh` and `info`, waits for the pins of the previous model and returns it. The handle
 * owns both afterwards. With `options` their policy for a lost device holds from the same moment;
 * NULL keeps the previous one. Caller holds `changing`. */
struct gsv_model *gsv_handle_exchange(gpuserve_model *handle, struct gsv_model *fresh,
                                      struct gsv_model_info *info,
                                      const gpuserve_model_options *options);

/* Releases everything the model holds except its plan, after its requests have completed; with
 * `if_idle` only if it has none. With `offload` the weights of a GPU stay in host memory. Without
 * it they are dropped, also those of an offloaded model. False if nothing was done. Caller holds
 * `changing`. */
bool gsv_handle_suspend(gpuserve_model *handle, bool if_idle, bool offload);

/* Loads the model again; the load must begin by `until_ns` (0: any time). If another attempt failed
 * while this one waited for `changing`, its error is returned here too. With `use` not NULL the
 * model is taken as by gsv_handle_use(), before another thread can suspend it. */
gpuserve_status gsv_handle_resume(gpuserve_model *handle, uint64_t until_ns, struct gsv_model **use,
                                  gpuserve_error *error);

/*
 * Immutable facts that the handle's accessors return: lengths, labels, fingerprint.
 *
 * Callers may keep the strings for the lifetime of the handle, also after a swap. So a model info
 * is never changed or freed before its handle. Swapping back and forth between the same models
 * reuses the existing info.
 */

struct gsv_model_info {
    struct gsv_model_info *next;          /* older infos */
    gpuserve_model_properties properties; /* gpuserve_model_fingerprint() returns its fingerprint */
    const char *const *labels;            /* [n_labels], owned, as are their strings */
    struct gsv_label_head *heads; /* [n_heads], strings owned; `labels` are also those of the
                                     first */
};

gpuserve_status gsv_model_info_create(struct gsv_model_info **info, const struct gsv_model *model,
                                      gpuserve_error *error);
void gsv_model_infos_free(struct gsv_model_info *list);

/* Prepends `info` to the list, or frees it if the list has an equal one. Returns the one in the
 * list. */
struct gsv_model_info *gsv_model_infos_add(struct gsv_model_info **list,
                                           struct gsv_model_info *info);

/* Differences of the model from the info, as bits of gpuserve_change. The fingerprint is known only
 * after loading; before that its bit is never set. */
uint32_t gsv_model_info_changes(const struct gsv_model_info *info, const struct gsv_model *model);

/* How a model scores documents against a query; DEFAULT if it cannot. */
gpuserve_rerank_method gsv_rerank_method(const struct gsv_spec_facts *facts);
/* "cross_encoder", "cosine"; NULL for DEFAULT. */
const char *gsv_rerank_method_name(gpuserve_rerank_method method);
/* The index of the label of entailment, of a text classifier with two labels or more; -1: it has
 * none. */
int32_t gsv_entailment_label(const struct gsv_spec_facts *facts);

/*
 * The open models of a context, by name and version.
 *
 * The list is protected by the lock of the context's budget.
 */

/* Adds a handle. With `is_unique` another handle of that name and version is an error. */
gpuserve_status gsv_registry_add(gpuserve_model *handle, bool is_unique, gpuserve_error *error);

/* Accepts a handle that is not in the list. */
void gsv_registry_remove(gpuserve_model *handle);

/* Takes ownership of `version`. */
void gsv_registry_set_version(gpuserve_model *handle, char *version);

/* Counts the open models (without those still loading) and the suspended ones among them. */
void gsv_registry_count(gpuserve_context *context, uint32_t *n_open, uint64_t *n_suspended);

/* LRU eviction: suspends an idle model to free memory for a model that loads. */

/* A gsv_evict_fn (budget.h states its contract and its locks). */
bool gsv_evict_one(gpuserve_context *context, const struct gsv_device_choice *device);

#endif
