/*
 * evict.c - LRU eviction: suspends the idle model that was used longest ago.
 *
 * The candidates are idle, not kept, and hold memory of the wanted device. For a limit on the
 * context (device NULL), weights in host memory count too. The budget's lock is held on entry and
 * on return, but not during the suspension.
 */
#include "lib/runtime/models/handle.h"

#include "lib/runtime/core/context.h"

#include <inttypes.h>

static bool may_go(gpuserve_model *handle, const struct gsv_device_choice *device,
                   uint64_t *last_used_ns)
{
    const struct gsv_memory_reservation *reservation;
    bool may = false;

    if (handle->is_kept)
        return false;
    pthread_mutex_lock(&handle->lock);
    if (handle->current && handle->is_suspended) {
        may = !device && handle->current->reservation
                             .is_reserved; /* offloaded: its weights are in host memory */
        *last_used_ns = handle->last_used_ns;
    } else if (handle->current) {
        reservation = &handle->current->reservation;
        may = gsv_handle_is_idle(handle) && (!device || gsv_reservation_is_on(reservation, device));
        *last_used_ns = handle->last_used_ns;
    }
    pthread_mutex_unlock(&handle->lock);
    return may;
}

/* Returns the victim with `changing` locked. A handle whose `changing` is taken is skipped: it is
 * being changed, or it is the one that loads. */
static gpuserve_model *find_victim(const struct gsv_budget *budget,
                                   const struct gsv_device_choice *device)
{
    gpuserve_model *oldest = NULL;
    uint64_t oldest_ns = UINT64_MAX, used_ns = 0;

    for (gpuserve_model *handle = budget->handles; handle; handle = handle->next_open) {
        if (!may_go(handle, device, &used_ns) || used_ns >= oldest_ns ||
            pthread_mutex_trylock(&handle->changing) != 0)
            continue;
        if (oldest)
            pthread_mutex_unlock(&oldest->changing);
        oldest = handle;
        oldest_ns = used_ns;
    }
    return oldest;
}

bool gsv_evict_one(gpuserve_context *context, const struct gsv_device_choice *device)
{
    struct gsv_budget *budget = context->budget;
    gpuserve_model *victim = find_victim(budget, device);
    uint64_t bytes;

    if (!victim)
        return false;
    /* The victim cannot be freed while `changing` is held. */
    pthread_mutex_unlock(&budget->lock);
    bytes = victim->current->reservation.bytes;
    /* The context's own limit counts weights wherever they are, so they are dropped, not offloaded.
     * If a request arrived meanwhile nothing is suspended, and the caller searches again. */
    if (gsv_handle_suspend(victim, true, device != NULL))
        gsv_log(context, GPUSERVE_LOG_INFO,
                "%s: suspended to free memory for another model: %" PRIu64 " bytes",
                victim->current->name, bytes);
    pthread_mutex_unlock(&victim->changing);
    pthread_mutex_lock(&budget->lock);
    return true;
}
