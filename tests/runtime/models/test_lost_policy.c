/*
 * test_lost_policy.c - when a handle's policy for a lost device begins to hold, on the emulated
 * CUDA devices: with its model, and not at all if the model is not installed.
 */
#include "lib/base/error.h"
#include "lib/runtime/models/handle.h"
#include "lib/runtime/scheduler/worker.h"
#include "tests/cudaemu/emu.h"
#include "tests/model/support.h"
#include "tests/runtime/models/lost_place.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- faults */

static bool no_thread, no_info;
static gpuserve_context *searched; /* the context to search while the thread cannot be started */
static gpuserve_status found;

int __real_gsv_start_thread(pthread_t *thread, void *(*work)(void *), void *argument);
int __wrap_gsv_start_thread(pthread_t *thread, void *(*work)(void *), void *argument);
gpuserve_status __real_gsv_model_info_create(struct gsv_model_info **info,
                                             const struct gsv_model *model, gpuserve_error *error);
gpuserve_status __wrap_gsv_model_info_create(struct gsv_model_info **info,
                                             const struct gsv_model *model, gpuserve_error *error);

/* Only the failover thread: the linker does not wrap calls within worker.c. */
int __wrap_gsv_start_thread(pthread_t *thread, void *(*work)(void *), void *argument)
{
    gpuserve_model *model = NULL;

    if (!no_thread)
        return __real_gsv_start_thread(thread, work, argument);
    if (searched)
        found = gpuserve_context_find(&model, searched, test_data("models/st-newer"), NULL, NULL);
    return EAGAIN; /* a model that was found would be kept here, by a caller that goes on */
}

gpuserve_status __wrap_gsv_model_info_create(struct gsv_model_info **info,
                                             const struct gsv_model *model, gpuserve_error *error)
{
    *info = NULL;
    return no_info ? gsv_fail(error, GPUSERVE_E_NOMEM, "no memory for the test")
                   : __real_gsv_model_info_create(info, model, error);
}

/* -------------------------------------------------------------------------------------- tests */

Test(lost_policy, a_model_that_fails_to_open_is_never_found)
{
    const float *right = right_vector();
    struct place place;

    make_place(&place);
    searched = place.context;
    found = GPUSERVE_OK;
    no_thread = true;
    cr_expect_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_E_NOMEM, "%s",
                 place.error.message);
    cr_expect_null(place.model);
    cr_expect_eq(found, GPUSERVE_E_NOT_FOUND);
    no_thread = false;
    cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_OK, "%s",
                 place.error.message);
    expect_right(&place, right);
    close_place(&place);
}

static void count_told(void *user, gpuserve_status status, const char *device,
                       const gpuserve_error *cause)
{
    (void)status;
    (void)device;
    (void)cause;
    atomic_fetch_add((atomic_int *)user, 1);
}

Test(lost_policy, a_swap_that_fails_leaves_policy_and_callback)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    const float *right = right_vector();
    struct place place;
    float vector[1024];
    atomic_int n_told = 0;

    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_OK, "%s",
                 place.error.message);
    options.device = "cuda:0";
    options.max_batch_tokens = 256;
    options.on_device_lost = GPUSERVE_LOST_GPU; /* there is no other */
    options.lost = count_told;
    options.lost_user = &n_told;
    no_info = true;
    cr_expect_eq(gpuserve_model_swap(place.model, NULL, NULL, &options, NULL, &place.error),
                 GPUSERVE_E_NOMEM, "%s", place.error.message);
    no_info = false;
    expect_in_info(&place, "\"on_device_lost\": \"cpu\"");
    gsv_emu_fail_call(2, 700);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    wait_while_moving(&place);
    expect_right(&place, right);
    close_place(&place);
    cr_expect_eq(place.told.n, 2);
    cr_expect_eq(atomic_load(&n_told), 0);
}

static atomic_bool is_told, is_swapped;

/* Holds the failover thread until the swap. Relaxed: it must not order what it read before the
 * swap's writes, or ThreadSanitizer could not see a race. */
static void wait_for_swap(void *user, gpuserve_status status, const char *device,
                          const gpuserve_error *cause)
{
    count_told(user, status, device, cause);
    cr_expect_eq(status, GPUSERVE_E_BUSY);
    atomic_store_explicit(&is_told, true, memory_order_relaxed);
    while (!atomic_load(&is_swapped))
        sched_yield();
}

/* While a loss is told, a swap brings another callback: that hears how it ended. */
Test(lost_policy, a_swap_takes_policy_and_callback_along, .timeout = 120)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    struct place place;
    atomic_int n_before = 0, n_after = 0;
    float vector[1024];

    gsv_emu_set_devices(2, 0);
    make_place(&place);
    cr_assert_eq(open_on(&place, "cpu", GPUSERVE_LOST_FAIL), GPUSERVE_OK);
    options.device = "cuda:0";
    options.max_batch_tokens = 256;
    options.on_device_lost = GPUSERVE_LOST_CPU;
    options.lost = wait_for_swap;
    options.lost_user = &n_before;
    cr_assert_eq(gpuserve_model_swap(place.model, NULL, NULL, &options, NULL, &place.error),
                 GPUSERVE_OK, "%s", place.error.message);
    gsv_emu_fail_call(2, 700);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    while (!atomic_load_explicit(&is_told, memory_order_relaxed))
        sched_yield();
    options.device = "cuda:1";
    options.on_device_lost = GPUSERVE_LOST_FAIL;
    options.lost = count_told;
    options.lost_user = &n_after;
    cr_assert_eq(gpuserve_model_swap(place.model, NULL, NULL, &options, NULL, &place.error),
                 GPUSERVE_OK, "%s", place.error.message);
    atomic_store(&is_swapped, true);
    while (atomic_load(&n_after) == 0)
        sched_yield();
    cr_expect_eq(gpuserve_model_ready(place.model, NULL), GPUSERVE_OK);
    close_place(&place);
    cr_expect_eq(atomic_load(&n_before), 1);
    cr_expect_eq(atomic_load(&n_after), 1);
    cr_expect_eq(place.told.n, 0);
}

/* Lost while it opens on all devices: the policy holds as with a selector of one. */
Test(lost_policy, all_devices_may_be_lost_at_load_time)
{
    static const char *const selectors[] = { "cuda:*", "cuda" };
    const float *right = right_vector();

    gsv_emu_set_devices(1, 0);
    for (int i = 0; i < 2; i++) { /* the device stays lost */
        struct place place;

        make_place(&place);
        if (i == 0)
            gsv_emu_fail_call(40, 700);
        cr_assert_eq(open_on(&place, selectors[i], GPUSERVE_LOST_CPU), GPUSERVE_OK, "%s: %s",
                     selectors[i], place.error.message);
        cr_expect_not_null(gsv_emu_failed_call());
        expect_right(&place, right);
        expect_in_info(&place, "moved from cuda:0");
        close_place(&place);
    }
}
