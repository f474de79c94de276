/*
 * budget.h - memory budgets: which model holds how much memory, and admission of further loads.
 *
 *   plan --gsv_budget_reserve--> reservation (the model may allocate) --gsv_budget_release--> none
 *
 * Three limits apply: the context's budget for all bytes of all models; an optional budget for each
 * device; and the device's free memory. A load over one of them fails, waits for memory, or has
 * idle models suspended (models/evict.c), by the context's policy. A model reads and allocates
 * nothing before its reservation is granted.
 *
 * Lock order: a handle's `changing`, then `lock` here, then a handle's `lock`. While `lock` is
 * held, a handle's `changing` is only acquired by trylock.
 */
#ifndef GSV_RUNTIME_BUDGET_H
#define GSV_RUNTIME_BUDGET_H

#include "lib/runtime/plan/load_plan.h"

#include <pthread.h>

/* Memory reserved by one loaded model; embedded in it. */
struct gsv_memory_reservation {
    struct gsv_memory_reservation *next;
    const char *name;                        /* of the model, which owns it */
    const struct gsv_device_choice *devices; /* [n_devices], borrowed from its plan */
    size_t n_devices;
    uint64_t lost;                /* bit i: device i is lost and holds nothing any more */
    uint64_t bytes;               /* total */
    const uint64_t *device_bytes; /* [n_devices], borrowed from its plan; NULL: none on a device */
    bool is_reserved;
};

struct gsv_device_budget {
    const struct gpuserve_backend *backend;
    int32_t index;
    uint64_t bytes; /* 0: none */
};

/* Suspend the least recently used idle model that may be evicted and holds memory of `device`
 * (NULL: any memory). False if no model qualifies. The caller holds the budget's lock, which the
 * function drops and takes again. */
typedef bool (*gsv_evict_fn)(gpuserve_context *context, const struct gsv_device_choice *device);

struct gsv_budget {
    pthread_mutex_t lock;
    pthread_cond_t freed; /* a reservation was released */
    uint64_t bytes;       /* total; 0: no limit */
    struct gsv_device_budget *devices;
    size_t n_devices, capacity;
    struct gsv_memory_reservation *reservations; /* newest first */
    uint32_t policy;                             /* gpuserve_memory_policy */
    uint32_t wait_ms;
    struct gpuserve_model *handles; /* open models: see registry.c */
    gsv_evict_fn evict;             /* for the policy GPUSERVE_MEMORY_EVICT */
};

void gsv_budget_init(struct gsv_budget *budget, const gpuserve_context_options *options,
                     gsv_evict_fn evict);
void gsv_budget_reset(struct gsv_budget *budget);

/* Whether a reservation holds memory of a device. */
bool gsv_reservation_is_on(const struct gsv_memory_reservation *reservation,
                           const struct gsv_device_choice *device);

/* Reserve the plan's bytes on all its devices that are not lost, or on none. Waits by the context's
 * policy, until `until_ns` at most (0: as the policy says). Replaces what the reservation held,
 * which stays on failure. Updates the free bytes of the plan's replicas. GPUSERVE_E_TOO_LARGE names
 * the bytes needed, free and allowed, and the holders. */
gpuserve_status gsv_budget_reserve(gpuserve_context *context, struct gsv_plan *plan,
                                   const char *name, uint64_t until_ns,
                                   struct gsv_memory_reservation *reservation,
                                   gpuserve_error *error);

/* Device `which` is lost: release its bytes, and do not reserve them again. */
void gsv_budget_release_device(gpuserve_context *context,
                               struct gsv_memory_reservation *reservation, size_t which);

/* Release all except `bytes`, none of which are on a device. */
void gsv_budget_release_all_but(gpuserve_context *context,
                                struct gsv_memory_reservation *reservation, uint64_t bytes);

/* Accepts a reservation that was never granted. */
void gsv_budget_release(gpuserve_context *context, struct gsv_memory_reservation *reservation);

#endif
