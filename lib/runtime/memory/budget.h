/*
 * budget.h - who holds how much memory, and who may have more.
 *
 *   plan --gsv_budget_take--> claim (the model may allocate) --gsv_budget_give--> gone
 *
 * Three limits are kept: the context's budget over all bytes of all models; a budget for each
 * device, where one is set; and what the device itself has free. A load that is over one of them is
 * refused, waits for others to end, or has idle models suspended in its favour (evict.c), as the
 * context's policy says. Nothing is read or allocated before its claim stands here.
 *
 * Locks, in this order: a handle's `changing`, then `lock` here, then a handle's `lock`. Under
 * `lock` a handle's `changing` is only ever tried.
 */
#ifndef GSV_RUNTIME_BUDGET_H
#define GSV_RUNTIME_BUDGET_H

#include "lib/runtime/plan/load_plan.h"

#include <pthread.h>

/* What one loaded model holds; part of it. */
struct gsv_memory_reservation {
    struct gsv_memory_reservation *next;
    const char *name;                        /* of the model, lent by it */
    const struct gsv_device_choice *devices; /* [n_devices], lent by its plan */
    size_t n_devices;
    uint64_t lost;         /* bit i: device i is lost, and holds nothing any more */
    uint64_t bytes;        /* all */
    uint64_t device_bytes; /* those on each device */
    bool is_taken;
};

struct gsv_device_budget {
    const struct gpuserve_backend *backend;
    int32_t index;
    uint64_t bytes; /* 0: none */
};

/* Suspend the idle model that was used longest ago, of those that hold memory of a device (NULL:
 * any memory) and may be evicted. False when there is none. The budget's lock is held before and
 * after, not meanwhile. */
typedef bool (*gsv_evict_fn)(gpuserve_context *context, const struct gsv_device_choice *device);

struct gsv_budget {
    pthread_mutex_t lock;
    pthread_cond_t freed; /* something was given back */
    uint64_t bytes;       /* of everything; 0: none */
    struct gsv_device_budget *devices;
    size_t n_devices, capacity;
    struct gsv_memory_reservation *reservations; /* the newest first */
    uint32_t policy;                             /* gpuserve_memory_policy */
    uint32_t wait_ms;
    struct gpuserve_model *handles; /* open ones: registry.c */
    gsv_evict_fn evict;             /* of the policy GPUSERVE_MEMORY_EVICT */
};

void gsv_budget_init(struct gsv_budget *budget, const gpuserve_context_options *options,
                     gsv_evict_fn evict);
void gsv_budget_reset(struct gsv_budget *budget);

/* Set plan->room (what is free now) and plan->most (what would be, were nothing else loaded). */
void gsv_budget_measure(gpuserve_context *context, struct gsv_plan *plan, uint64_t model_budget);

/* Whether a claim holds memory of a device. */
bool gsv_reservation_is_on(const struct gsv_memory_reservation *reservation,
                           const struct gsv_device_choice *device);

/* Claim the plan's bytes, of all its devices that are not lost or of none, by the context's policy
 * and till `until_ns` at most (0: as the policy says), in place of what the claim kept; on failure
 * it keeps that. Brings the free bytes of its replicas up to date. GPUSERVE_E_TOO_LARGE tells
 * needed, free, budget and who holds what. */
gpuserve_status gsv_budget_reserve(gpuserve_context *context, struct gsv_plan *plan,
                                   const char *name, uint64_t until_ns,
                                   struct gsv_memory_reservation *reservation,
                                   gpuserve_error *error);

/* A device of the claim is lost: what it held is given back, and not claimed again. */
void gsv_budget_release_device(gpuserve_context *context,
                               struct gsv_memory_reservation *reservation, size_t which);

/* Give back all but `bytes` that are not on a device. */
void gsv_budget_release_all_but(gpuserve_context *context,
                                struct gsv_memory_reservation *reservation, uint64_t bytes);

/* Accepts a claim that was never taken. */
void gsv_budget_release(gpuserve_context *context, struct gsv_memory_reservation *reservation);

#endif
