/*
 * budget.c - who holds how much memory, and who may have more.
 */
#include "lib/runtime/budget.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/clock.h"
#include "lib/runtime/context.h"
#include "lib/runtime/evict.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DEFAULT_WAIT_MS 30000
#define LOOK_AGAIN_MS 100 /* nobody tells when another process ends or a model becomes idle */

void gsv_budget_init(struct gsv_budget *budget, const gpuserve_context_options *options)
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
}

void gsv_budget_reset(struct gsv_budget *budget)
{
    free(budget->devices);
    pthread_cond_destroy(&budget->freed);
    pthread_mutex_destroy(&budget->lock);
}

/* ------------------------------------------------------------------------------------- sums */

static bool on_device(const struct gsv_claim *claim, const struct gpuserve_backend *backend,
                      int32_t index)
{
    return claim->backend == backend && claim->index == index;
}

static uint64_t used(const struct gsv_budget *budget)
{
    uint64_t sum = 0;

    for (const struct gsv_claim *claim = budget->claims; claim; claim = claim->next)
        sum += claim->bytes;
    return sum;
}

static uint64_t used_on(const struct gsv_budget *budget, const struct gpuserve_backend *backend,
                        int32_t index)
{
    uint64_t sum = 0;

    for (const struct gsv_claim *claim = budget->claims; claim; claim = claim->next)
        sum += on_device(claim, backend, index) ? claim->device_bytes : 0;
    return sum;
}

static struct gsv_device_budget *find_device(const struct gsv_budget *budget,
                                             const struct gpuserve_backend *backend, int32_t index)
{
    for (size_t i = 0; i < budget->n_devices; i++) {
        if (budget->devices[i].backend == backend && budget->devices[i].index == index)
            return &budget->devices[i];
    }
    return NULL;
}

static uint64_t device_limit(const struct gsv_budget *budget,
                             const struct gpuserve_backend *backend, int32_t index)
{
    const struct gsv_device_budget *device = find_device(budget, backend, index);

    return device && device->bytes ? device->bytes : UINT64_MAX;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void gsv_budget_measure(gpuserve_context *context, struct gsv_plan *plan, uint64_t model_budget)
{
    struct gsv_budget *budget = &context->budget;
    const struct gsv_device_choice *device = &plan->device;
    const uint64_t own = model_budget ? model_budget : UINT64_MAX;
    uint64_t all, limit;

    pthread_mutex_lock(&budget->lock);
    all = budget->bytes ? budget->bytes : UINT64_MAX;
    limit = device_limit(budget, device->backend, device->facts.index);
    plan->most.all = smaller(all, own);
    plan->most.device = smaller(limit, device->facts.memory_bytes);
    plan->room.all = smaller(less(all, used(budget)), own);
    plan->room.device = smaller(less(limit, used_on(budget, device->backend, device->facts.index)),
                                device->facts.memory_free_bytes);
    pthread_mutex_unlock(&budget->lock);
}

/* -------------------------------------------------------------------------------- admission */

/* A limit that a claim is over. */
struct shortage {
    const char *what; /* whose limit */
    uint64_t needed, limit, used, free;
    bool is_hopeless; /* it would be over it alone */
    bool is_outside;  /* others than this context may give way */
    bool of_device;
};

/* The first limit that the claim is over; the lock is held. */
static bool find_shortage(const struct gsv_budget *budget, const struct gsv_claim *claim,
                          const struct gpuserve_device_facts *facts, struct shortage *shortage)
{
    const uint64_t all = budget->bytes ? budget->bytes : UINT64_MAX;
    const uint64_t limit = device_limit(budget, claim->backend, claim->index);
    const uint64_t in_use = used(budget), on = used_on(budget, claim->backend, claim->index);

    if (claim->bytes > less(all, in_use))
        *shortage = (struct shortage){ .what = "the context's memory budget",
                                       .needed = claim->bytes,
                                       .limit = all,
                                       .used = in_use,
                                       .free = less(all, in_use),
                                       .is_hopeless = claim->bytes > all };
    else if (claim->device_bytes > less(limit, on))
        *shortage = (struct shortage){ .what = "the budget",
                                       .needed = claim->device_bytes,
                                       .limit = limit,
                                       .used = on,
                                       .free = less(limit, on),
                                       .is_hopeless = claim->device_bytes > limit,
                                       .of_device = true };
    else if (claim->device_bytes > facts->memory_free_bytes)
        *shortage = (struct shortage){ .what = "the memory",
                                       .needed = claim->device_bytes,
                                       .limit = facts->memory_bytes,
                                       .used = less(facts->memory_bytes, facts->memory_free_bytes),
                                       .free = facts->memory_free_bytes,
                                       .is_hopeless = claim->device_bytes > facts->memory_bytes,
                                       .is_outside = true,
                                       .of_device = true };
    else
        return false;
    return true;
}

/* "A holds 9 bytes, B holds 5 bytes", those that matter here; the lock is held. */
static void list_holders(const struct gsv_budget *budget, const struct gsv_claim *wanted,
                         const struct shortage *shortage, char *text, size_t capacity)
{
    size_t length = 0;

    text[0] = '\0';
    for (const struct gsv_claim *claim = budget->claims; claim && length < capacity;
         claim = claim->next) {
        const uint64_t bytes = shortage->of_device ? claim->device_bytes : claim->bytes;
        int n;

        if (shortage->of_device && !on_device(claim, wanted->backend, wanted->index))
            continue;
        n = snprintf(text + length, capacity - length, "%s%.100s holds %" PRIu64,
                     length ? ", " : "; ", claim->name, bytes);
        length += n > 0 ? (size_t)n : 0;
    }
}

static gpuserve_status fail_short(const struct gsv_budget *budget, const struct gsv_plan *plan,
                                  const struct gsv_claim *claim, const struct shortage *shortage,
                                  uint64_t waited_ms, gpuserve_error *error)
{
    const struct gsv_memory *m = &plan->memory;
    char holders[320], place[96] = "", selector[64], waited[64] = "";

    list_holders(budget, claim, shortage, holders, sizeof(holders));
    gsv_device_selector(&plan->device, selector, sizeof(selector));
    if (shortage->of_device)
        snprintf(place, sizeof(place), " of %s", selector);
    if (waited_ms > 0)
        snprintf(waited, sizeof(waited), " after %" PRIu64 " ms", waited_ms);
    gsv_fail(error, GPUSERVE_E_TOO_LARGE,
             "%.120s needs %" PRIu64 " bytes (weights %" PRIu64 ", workspace %" PRIu64
             ", streams %" PRIu64 ", host %" PRIu64 "); %s%s is %" PRIu64 ", in use are %" PRIu64
             ", free %" PRIu64 "%s%s",
             claim->name, shortage->needed, m->weights, m->workspace, m->stream, m->host,
             shortage->what, place, shortage->limit, shortage->used, shortage->free, waited,
             holders);
    return gsv_hint(error, GPUSERVE_E_TOO_LARGE,
                    "close or suspend another model, raise the budget, or lower max_batch_tokens, "
                    "n_threads or the dtype");
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

/* Until the claim fits or the policy gives up; the lock is held, but not while a model is evicted
 * or a device is asked. */
static gpuserve_status make_room(gpuserve_context *context, const struct gsv_plan *plan,
                                 const struct gsv_claim *claim, gpuserve_error *error)
{
    struct gsv_budget *budget = &context->budget;
    const uint64_t begin_ns = gsv_now_ns();
    const uint64_t end_ns = begin_ns + (uint64_t)budget->wait_ms * 1000000;
    struct gpuserve_device_facts facts = plan->device.facts;
    struct shortage shortage;

    while (find_shortage(budget, claim, &facts, &shortage)) {
        const uint64_t now_ns = gsv_now_ns();

        if (shortage.is_hopeless || budget->policy == GPUSERVE_MEMORY_REFUSE)
            return fail_short(budget, plan, claim, &shortage, 0, error);
        if (budget->policy == GPUSERVE_MEMORY_EVICT &&
            gsv_evict_one(context, shortage.of_device ? claim : NULL)) {
            /* As it says. */
        } else if (now_ns >= end_ns) {
            return fail_short(budget, plan, claim, &shortage, (now_ns - begin_ns) / 1000000, error);
        } else {
            wait_for_more(budget, &shortage, end_ns);
        }
        pthread_mutex_unlock(&budget->lock);
        facts.memory_free_bytes = UINT64_MAX; /* a device that cannot say decides by allocating */
        (void)plan->device.backend->device_facts(claim->index, &facts, NULL);
        pthread_mutex_lock(&budget->lock);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_budget_take(gpuserve_context *context, const struct gsv_plan *plan,
                                const char *name, struct gsv_claim *claim, gpuserve_error *error)
{
    struct gsv_budget *budget = &context->budget;
    gpuserve_status st;

    *claim = (struct gsv_claim){ .name = name,
                                 .backend = plan->device.backend,
                                 .index = plan->device.facts.index,
                                 .bytes = plan->total_bytes,
                                 .device_bytes = plan->device_bytes };
    pthread_mutex_lock(&budget->lock);
    st = make_room(context, plan, claim, error);
    if (st == GPUSERVE_OK) {
        claim->next = budget->claims;
        budget->claims = claim;
        claim->is_taken = true;
    }
    pthread_mutex_unlock(&budget->lock);
    return st;
}

void gsv_budget_give(gpuserve_context *context, struct gsv_claim *claim)
{
    struct gsv_budget *budget = &context->budget;
    struct gsv_claim **at = &budget->claims;

    if (!claim->is_taken)
        return;
    claim->is_taken = false;
    pthread_mutex_lock(&budget->lock);
    while (*at != claim)
        at = &(*at)->next;
    *at = claim->next;
    pthread_cond_broadcast(&budget->freed);
    pthread_mutex_unlock(&budget->lock);
}

/* ------------------------------------------------------------------------------------ setting */

static gpuserve_status set_device(struct gsv_budget *budget, const struct gsv_device_choice *device,
                                  uint64_t bytes, gpuserve_error *error)
{
    struct gsv_device_budget *found = find_device(budget, device->backend, device->facts.index);

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
    pthread_mutex_lock(&context->budget.lock);
    if (device)
        st = set_device(&context->budget, &choice, bytes, error);
    else
        context->budget.bytes = bytes;
    pthread_cond_broadcast(&context->budget.freed); /* it may have grown */
    pthread_mutex_unlock(&context->budget.lock);
    return st;
}
