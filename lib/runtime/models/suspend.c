/*
 * suspend.c - releases a model's memory while its handle stays open, and loads it again.
 *
 * The plan stays: configuration, file headers and tokenizer. Texts can be tokenized and the model
 * described meanwhile. A GPU's weights are offloaded to host memory in packed form. A CPU's weights
 * are dropped and read from the files again: a copy would free nothing, and the page cache already
 * holds one. The fingerprint must be unchanged after a reload from files; else the resume fails.
 *
 * Threading: `changing` serialises suspend and resume; `lock` protects the state they write.
 */
#include "lib/base/error.h"
#include "lib/runtime/models/handle.h"

#include "lib/base/clock.h"

#include <time.h>

#define MAX_WAIT_NS 100000000

bool gsv_handle_suspend(gpuserve_model *handle, bool if_idle, bool offload)
{
    struct gsv_model *model = handle->current;
    bool begins, is_offloaded;

    pthread_mutex_lock(&handle->lock);
    is_offloaded = handle->is_suspended && model->offloaded;
    begins = !handle->is_suspended && (!if_idle || gsv_handle_is_idle(handle));
    if (begins) {
        handle->is_suspended = true; /* later requests wait in gsv_handle_resume() */
        handle->n_suspensions++;
        while (model->n_users > 0)
            pthread_cond_wait(&handle->unpinned, &handle->lock);
    }
    pthread_mutex_unlock(&handle->lock);
    if (begins && offload)
        gsv_model_offload(model);
    else if (begins || (is_offloaded && !offload))
        gsv_model_unload(model);
    return begins || (is_offloaded && !offload);
}

/* Locks `changing`, or returns false after `until_ns`. pthread_mutex_timedlock() uses the realtime
 * clock, which can be set, so the wait runs in steps of MAX_WAIT_NS. */
static bool lock_changing(gpuserve_model *handle, uint64_t until_ns)
{
    if (until_ns == 0) {
        pthread_mutex_lock(&handle->changing);
        return true;
    }
    for (;;) {
        const uint64_t now_ns = gsv_now_ns();
        const uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        const uint64_t step_ns = left_ns < MAX_WAIT_NS ? left_ns : MAX_WAIT_NS;
        struct timespec end;

        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_nsec += (long)step_ns;
        end.tv_sec += end.tv_nsec / 1000000000;
        end.tv_nsec %= 1000000000;
        if (pthread_mutex_timedlock(&handle->changing, &end) == 0)
            return true;
        if (left_ns == 0)
            return false;
    }
}

static gpuserve_status load_again(gpuserve_model *handle, uint64_t until_ns, gpuserve_error *error)
{
    struct gsv_model *model = handle->current;
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    const gpuserve_status st = gsv_model_load(model, handle->completions, NULL, until_ns, &why);

    if (st == GPUSERVE_E_DEVICE)
        gsv_lost_note(model); /* so that the next request finds it on another device */
    if (st != GPUSERVE_OK)
        gsv_error_copy(error, &why);
    /* A failure of an attempt whose deadline passed is not shared: other requests may have more
     * time. */
    if (st == GPUSERVE_OK || until_ns == 0 || gsv_now_ns() < until_ns) {
        handle->unresumed = why;
        handle->unresumed_ns = st == GPUSERVE_OK ? 0 : gsv_now_ns();
    }
    return st;
}

gpuserve_status gsv_handle_resume(gpuserve_model *handle, uint64_t until_ns, struct gsv_model **use,
                                  gpuserve_error *error)
{
    const uint64_t begin_ns = gsv_now_ns();
    gpuserve_status st = GPUSERVE_OK;

    if (!lock_changing(handle, until_ns))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "another thread is suspending or resuming the model");
    if (handle->is_suspended && until_ns && gsv_now_ns() >= until_ns) {
        st = gsv_fail(error, GPUSERVE_E_TOO_LARGE, "no time is left to load the model");
    } else if (handle->is_suspended && handle->unresumed_ns > begin_ns) {
        gsv_error_copy(error, &handle->unresumed);
        st = (gpuserve_status)handle->unresumed.status;
    } else if (handle->is_suspended) { /* stable: written only under `changing` */
        st = load_again(handle, until_ns, error);
    }
    if (st == GPUSERVE_OK) {
        pthread_mutex_lock(&handle->lock);
        handle->is_suspended = false;
        handle->last_used_ns = gsv_now_ns();
        if (use) {
            *use = handle->current;
            (*use)->n_pins++;
            (*use)->n_users++;
        }
        pthread_mutex_unlock(&handle->lock);
    }
    pthread_mutex_unlock(&handle->changing);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_model_suspend(gpuserve_model *model, gpuserve_error *error)
{
    const gpuserve_status st = gsv_handle_check_change(model, error);

    if (st != GPUSERVE_OK)
        return st;
    pthread_mutex_lock(&model->changing);
    gsv_handle_suspend(model, false, true);
    pthread_mutex_unlock(&model->changing);
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_model_resume(gpuserve_model *model, gpuserve_error *error)
{
    const gpuserve_status st = gsv_handle_check_change(model, error);

    return st == GPUSERVE_OK ? gsv_handle_resume(model, 0, NULL, error) : st;
}
