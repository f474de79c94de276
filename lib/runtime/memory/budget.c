/*
 * budget.c - memory admission: reservations of loaded models against the budgets.
 *
 * gsv_budget_reserve() checks three limits under the budget's lock: the context's budget, each
 * device's budget, and each device's free memory. On a shortage it fails, waits or evicts an idle
 * model, by the context's policy. The lock is dropped while a device is queried or a model is
 * evicted.
 */
#include "lib/runtime/memory/budget.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/core/context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DEFAULT_WAIT_MS 30000
#define LOOK_AGAIN_MS 100 /* no event tells that another process ends or a model becomes idle */

void gsv_budget_init(struct gsv_budget *budget, const gpuserve_context_options *options,
                     gsv_evict_fn evict)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&budget->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&budget->freed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    budget->bytes = options->memory_budget_bytes;
    budget->policy = options->memory_policy;
    budget->wait_ms = options->memory_wait_ms ? options->memory_wait_ms : DEFAULT_WAIT_MS;
    budget->evict = evict;
}

void gsv_budget_reset(struct gsv_budget *budget)
{
    free(budget->devices);
    pthread_cond_destroy(&budget->freed);
    pthread_mutex_destroy(&budget->lock);
}

/* ------------------------------------------------------------------------------------- sums */

static bool is_lost(const struct gsv_memory_reservation *reservation, size_t which)
{
    return reservation->lost >> which & 1;
}

static bool is_device(const struct gsv_device_choice *one, const struct gsv_device_choice *other)
{
    return one->backend == other->backend && one->facts.index == other->facts.index;
}

/* Bytes on device `which` of the reservation. */
static uint64_t bytes_on(const struct gsv_memory_reservation *reservation, size_t which)
{
    return reservation->device_bytes && !is_lost(reservation, which)
               ? reservation->device_bytes[which]
               : 0;
}

bool gsv_reservation_is_on(const struct gsv_memory_reservation *reservation,
                           const struct gsv_device_choice *device)
{
    for (size_t i = 0; i < reservation->n_devices; i++) {
        if (!is_lost(reservation, i) && is_device(&reservation->devices[i], device))
            return true;
    }
    return false;
}

static uint64_t reserved_on(const struct gsv_memory_reservation *reservation,
                            const struct gsv_device_choice *device)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < reservation->n_devices; i++)
        sum += is_device(&reservation->devices[i], device) ? bytes_on(reservation, i) : 0;
    return sum;
}

static uint64_t used(const struct gsv_budget *budget)
{
    uint64_t sum = 0;

    for (const struct gsv_memory_reservation *reservation = budget->reservations; reservation;
         reservation = reservation->next)
        sum += reservation->bytes;
    return sum;
}

static uint64_t used_on(const struct gsv_budget *budget, const struct gsv_device_choice *device)
{
    uint64_t sum = 0;

    for (const struct gsv_memory_reservation *reservation = budget->reservations; reservation;
         reservation = reservation->next)
        sum += reserved_on(reservation, device);
    return sum;
}

static struct gsv_device_budget *find_device(const struct gsv_budget *budget,
                                             const struct gsv_device_choice *device)
{
    for (size_t i = 0; i < budget->n_devices; i++) {
        if (budget->devices[i].backend == device->backend &&
            budget->devices[i].index == device->facts.index)
            return &budget->devices[i];
    }
    return NULL;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Maximum bytes that this process may use on a device. */
static uint64_t device_limit(const struct gsv_budget *budget,
                             const struct gsv_device_choice *device)
{
    const struct gsv_device_budget *found = find_device(budget, device);

    return smaller(found && found->bytes ? found->bytes : UINT64_MAX,
                   device->mps_bytes ? device->mps_bytes : UINT64_MAX);
}

void gsv_budget_measure(gpuserve_context *context, struct gsv_plan *plan, uint64_t model_budget)
{
    struct gsv_budget *budget = context->budget;
    const uint64_t own = model_budget ? model_budget : UINT64_MAX;
    uint64_t all;

    pthread_mutex_lock(&budget->lock);
    all = budget->bytes ? budget->bytes : UINT64_MAX;
    plan->max_available.all = smaller(all, own);
    plan->available.all = smaller(less(all, used(budget)), own);
    for (size_t i = 0; i < plan->n_devices; i++) {
        const struct gsv_device_choice *device = &plan->devices[i];
        const uint64_t limit = device_limit(budget, device);
        const uint64_t left = less(limit, used_on(budget, device));

        plan->max_available.devices[i] = smaller(limit, device->facts.memory_bytes);
        plan->available.devices[i] = smaller(left, device->facts.memory_free_bytes);
    }
    pthread_mutex_unlock(&budget->lock);
}

/* -------------------------------------------------------------------------------- admission */

/* A limit that a reservation exceeds. */
struct shortage {
    const char *what; /* name of the limit */
    uint64_t needed, limit, used, free;
    bool is_hopeless;                       /* the reservation alone exceeds the limit */
    bool is_outside;                        /* memory outside this context may become free */
    const struct gsv_device_choice *device; /* NULL: of all memory */
};

/* The lock is held. */
static bool find_shortage_of(const struct gsv_budget *budget,
                             const struct gsv_memory_reservation *reservation, size_t which,
                             struct shortage *shortage)
{
    const struct gsv_device_choice *device = &reservation->devices[which];
    const struct gpuserve_device_facts *facts = &device->facts;
    const uint64_t limit = device_limit(budget, device), on = used_on(budget, device);
    const uint64_t needed = bytes_on(reservation, which);

    if (needed > less(limit, on))
        *shortage = (struct shortage){ .what = limit == device->mps_bytes
                                                   ? "the MPS memory limit per process"
                                                   : "the budget",
                                       .limit = limit,
                                       .used = on,
                                       .free = less(limit, on),
                                       .is_hopeless = needed > limit };
    else if (needed > facts->memory_free_bytes)
        *shortage = (struct shortage){ .what = "the memory",
                                       .limit = facts->memory_bytes,
                                       .used = less(facts->memory_bytes, facts->memory_free_bytes),
                                       .free = facts->memory_free_bytes,
                                       .is_hopeless = needed > facts->memory_bytes,
                                       .is_outside = true };
    else
        return false;
    shortage->needed = needed;
    shortage->device = device;
    return true;
}

/* Find the first limit that the reservation exceeds; the lock is held. */
static bool find_shortage(const struct gsv_budget *budget,
                          const struct gsv_memory_reservation *reservation,
                          struct shortage *shortage)
{
    const uint64_t all = budget->bytes ? budget->bytes : UINT64_MAX, in_use = used(budget);

    if (reservation->bytes > less(all, in_use)) {
        *shortage = (struct shortage){ .what = "the context's memory budget",
                                       .needed = reservation->bytes,
                                       .limit = all,
                                       .used = in_use,
                                       .free = less(all, in_use),
                                       .is_hopeless = reservation->bytes > all };
        return true;
    }
    for (size_t i = 0; i < reservation->n_devices; i++) {
        if (!is_lost(reservation, i) && find_shortage_of(budget, reservation, i, shortage))
            return true;
    }
    return false;
}

/* "A holds 9 bytes, B holds 5 bytes" for this shortage; the lock is held. */
static void list_holders(const struct gsv_budget *budget, const struct shortage *shortage,
                         char *text, size_t capacity)
{
    size_t length = 0;

    text[0] = '\0';
    for (const struct gsv_memory_reservation *reservation = budget->reservations;
         reservation && length < capacity; reservation = reservation->next) {
        const uint64_t bytes =
            shortage->device ? reserved_on(reservation, shortage->device) : reservation->bytes;
        int n;

        if (bytes == 0)
            continue;
        n = snprintf(text + length, capacity - length, "%s%.100s holds %" PRIu64,
                     length ? ", " : "; ", reservation->name, bytes);
        length += n > 0 ? (size_t)n : 0;
    }
}

static gpuserve_status fail_short(const struct gsv_budget *budget, const struct gsv_plan *plan,
                                  const struct gsv_memory_reservation *reservation,
                                  const struct shortage *shortage, uint64_t waited_ms,
                                  gpuserve_error *error)
{
    const struct gsv_memory *m = &plan->memory;
    char holders[320], device[96] = "", selector[64], waited[64] = "";

    list_holders(budget, shortage, holders, sizeof(holders));
    if (shortage->device) {
        gsv_device_selector(shortage->device, selector, sizeof(selector));
        snprintf(device, sizeof(device), " of %s", selector);
    }
    if (waited_ms > 0)
        snprintf(waited, sizeof(waited), " after %" PRIu64 " ms", waited_ms);
    gsv_fail(error, GPUSERVE_E_TOO_LARGE,
             "%.120s needs %" PRIu64 " bytes (weights %" PRIu64 ", workspace %" PRIu64
             ", streams %" PRIu64 ", host %" PRIu64 "); %s%s is %" PRIu64 " bytes, used %" PRIu64
             ", free %" PRIu64 "%s%s",
             reservation->name, shortage->needed, m->weights, m->workspace, m->stream, m->host,
             shortage->what, device, shortage->limit, shortage->used, shortage->free, waited,
             holders);
    return gsv_hint(
        error, GPUSERVE_E_TOO_LARGE,
        "close or suspend another model, raise the budget, set stream_weights on a GPU or pipeline "
        "on several, or lower max_batch_tokens, n_threads or the dtype");
}

static void wait_for_more(struct gsv_budget *budget, const struct shortage *shortage,
                          uint64_t end_ns)
{
    const uint64_t soon_ns = gsv_now_ns() + (uint64_t)LOOK_AGAIN_MS * 1000000;
    const bool looks_again = shortage->is_outside || budget->policy == GPUSERVE_MEMORY_EVICT;
    const uint64_t until_ns = looks_again ? smaller(soon_ns, end_ns) : end_ns;
    const struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
                                    .tv_nsec = (long)(until_ns % 1000000000) };

    pthread_cond_timedwait(&budget->freed, &budget->lock, &until);
}

/* Update the free memory of the plan's devices. Other threads may be reading the rest of the
 * facts. */
static void look_again(struct gsv_plan *plan)
{
    for (size_t i = 0; i < plan->n_devices; i++) {
        struct gsv_device_choice *device = &plan->devices[i];
        struct gpuserve_device_facts now = { .struct_size = sizeof(now) };
        const gpuserve_status st = device->backend->device_facts(device->facts.index, &now, NULL);

        /* If the query fails, the later allocation decides. A device that is part of a GPU may
         * report the free memory of the whole GPU. */
        device->facts.memory_free_bytes =
            st == GPUSERVE_OK ? smaller(now.memory_free_bytes, device->facts.memory_bytes)
                              : device->facts.memory_bytes;
    }
}

/* Wait or evict until the reservation fits, or fail by the policy. The lock is held, except while a
 * model is evicted or a device is queried. */
static gpuserve_status wait_for_memory(gpuserve_context *context, struct gsv_plan *plan,
                                       const struct gsv_memory_reservation *reservation,
                                       uint64_t until_ns, gpuserve_error *error)
{
    struct gsv_budget *budget = context->budget;
    const uint64_t begin_ns = gsv_now_ns();
    const uint64_t end_ns =
        smaller(begin_ns + (uint64_t)budget->wait_ms * 1000000, until_ns ? until_ns : UINT64_MAX);
    struct shortage shortage;

    while (find_shortage(budget, reservation, &shortage)) {
        const uint64_t now_ns = gsv_now_ns();

        if (shortage.is_hopeless || budget->policy == GPUSERVE_MEMORY_REFUSE)
            return fail_short(budget, plan, reservation, &shortage, 0, error);
        if (budget->policy == GPUSERVE_MEMORY_EVICT && budget->evict(context, shortage.device)) {
            /* Evicted: check again. */
        } else if (now_ns >= end_ns) {
            return fail_short(budget, plan, reservation, &shortage, (now_ns - begin_ns) / 1000000,
                              error);
        } else {
            wait_for_more(budget, &shortage, end_ns);
        }
        pthread_mutex_unlock(&budget->lock);
        look_again(plan);
        pthread_mutex_lock(&budget->lock);
    }
    return GPUSERVE_OK;
}

/* The lock is held. */
static void link_reservation(struct gsv_budget *budget, struct gsv_memory_reservation *reservation)
{
    reservation->next = budget->reservations;
    budget->reservations = reservation;
    reservation->is_reserved = true;
}

static void unlink_reservation(struct gsv_budget *budget,
                               struct gsv_memory_reservation *reservation)
{
    struct gsv_memory_reservation **at = &budget->reservations;

    while (*at != reservation)
        at = &(*at)->next;
    *at = reservation->next;
    reservation->is_reserved = false;
}

gpuserve_status gsv_budget_reserve(gpuserve_context *context, struct gsv_plan *plan,
                                   const char *name, uint64_t until_ns,
                                   struct gsv_memory_reservation *reservation,
                                   gpuserve_error *error)
{
    struct gsv_budget *budget = context->budget;
    struct gsv_memory_reservation wanted = { .name = name,
                                             .devices = plan->devices,
                                             .n_devices = plan->n_devices,
                                             .bytes = plan->total_bytes,
                                             .device_bytes = plan->device_bytes };
    bool has_reserved;
    gpuserve_status st;

    look_again(plan); /* the plan may be as old as a suspended model */
    pthread_mutex_lock(&budget->lock);
    wanted.lost = reservation->lost;
    for (size_t i = 0; i < wanted.n_devices; i++)
        wanted.bytes -= is_lost(&wanted, i) ? wanted.device_bytes[i] : 0;
    has_reserved = reservation->is_reserved;
    if (has_reserved)
        unlink_reservation(budget, reservation);
    st = wait_for_memory(context, plan, &wanted, until_ns, error);
    if (st == GPUSERVE_OK)
        *reservation = wanted;
    if (st == GPUSERVE_OK || has_reserved)
        link_reservation(budget, reservation);
    pthread_mutex_unlock(&budget->lock);
    return st;
}

void gsv_budget_release_device(gpuserve_context *context,
                               struct gsv_memory_reservation *reservation, size_t which)
{
    struct gsv_budget *budget = context->budget;

    pthread_mutex_lock(&budget->lock);
    if (reservation->is_reserved)
        reservation->bytes -= bytes_on(reservation, which);
    reservation->lost |= UINT64_C(1) << which;
    pthread_cond_broadcast(&budget->freed);
    pthread_mutex_unlock(&budget->lock);
}

void gsv_budget_release_all_but(gpuserve_context *context,
                                struct gsv_memory_reservation *reservation, uint64_t bytes)
{
    struct gsv_budget *budget = context->budget;

    pthread_mutex_lock(&budget->lock);
    reservation->bytes = bytes;
    reservation->device_bytes = NULL;
    pthread_cond_broadcast(&budget->freed);
    pthread_mutex_unlock(&budget->lock);
}

void gsv_budget_release(gpuserve_context *context, struct gsv_memory_reservation *reservation)
{
    struct gsv_budget *budget = context->budget;

    pthread_mutex_lock(&budget->lock);
    if (reservation->is_reserved)
        unlink_reservation(budget, reservation);
    pthread_cond_broadcast(&budget->freed);
    pthread_mutex_unlock(&budget->lock);
}

/* ---------------------------------------------------------------------------------- setting */

static gpuserve_status set_device(struct gsv_budget *budget, const struct gsv_device_choice *device,
                                  uint64_t bytes, gpuserve_error *error)
{
    struct gsv_device_budget *found = find_device(budget, device);

    if (!found) {
        if (!gsv_grow((void **)&budget->devices, &budget->capacity, budget->n_devices + 1,
                      sizeof(*budget->devices), SIZE_MAX))
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a budget");
        found = &budget->devices[budget->n_devices++];
        *found = (struct gsv_device_budget){ device->backend, device->facts.index, 0 };
    }
    found->bytes = bytes;
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_context_set_budget(gpuserve_context *context,
                                                         const char *device, uint64_t bytes,
                                                         gpuserve_error *error)
{
    struct gsv_device_choice choice;
    gpuserve_status st = gsv_context_check(context, error);

    if (st == GPUSERVE_OK && device)
        st = gsv_device_choose(context, device, &choice, error);
    if (st != GPUSERVE_OK)
        return st;
    pthread_mutex_lock(&context->budget->lock);
    if (device)
        st = set_device(context->budget, &choice, bytes, error);
    else
        context->budget->bytes = bytes;
    pthread_cond_broadcast(&context->budget->freed); /* the budget may have grown */
    pthread_mutex_unlock(&context->budget->lock);
    return st;
}
