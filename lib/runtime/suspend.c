/*
 * suspend.c - giving a model's memory back while its handle stays open, and loading it again.
 *
 * What stays is the plan: configuration, file headers and tokenizer, so texts can be tokenized and
 * the model described meanwhile. A GPU's weights stay in host memory, packed as they are. A CPU's
 * are dropped and read from the files again: a copy would free nothing, and the page cache is one.
 * The files have not changed when the fingerprint is the same; else the model does not come back.
 */
#include "lib/base/error.h"
#include "lib/runtime/handle.h"

#include "lib/runtime/clock.h"

bool gsv_handle_suspend(gpuserve_model *handle, bool if_idle, bool park)
{
    struct gsv_model *model = handle->current;
    bool begins, is_parked;

    pthread_mutex_lock(&handle->lock);
    is_parked = handle->is_suspended && model->parked;
    begins = !handle->is_suspended && (!if_idle || gsv_handle_is_idle(handle));
    if (begins) {
        handle->is_suspended = true; /* who comes from now on waits in gsv_handle_resume */
        handle->n_suspensions++;
        while (model->n_users > 0)
            pthread_cond_wait(&handle->unpinned, &handle->lock);
    }
    pthread_mutex_unlock(&handle->lock);
    if (begins && park)
        gsv_model_park(model);
    else if (begins || (is_parked && !park))
        gsv_model_unload(model);
    return begins || (is_parked && !park);
}

static gpuserve_status load_again(gpuserve_model *handle, gpuserve_error *error)
{
    struct gsv_model *model = handle->current;
    const gpuserve_status st = gsv_model_load(model, handle->completions, NULL, error);

    if (st == GPUSERVE_E_DEVICE)
        gsv_lost_note(model); /* so that the next one finds it elsewhere */
    return st;
}

gpuserve_status gsv_handle_resume(gpuserve_model *handle, struct gsv_model **use,
                                  gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    pthread_mutex_lock(&handle->changing);
    if (handle->is_suspended) /* nobody changes it without `changing` */
        st = load_again(handle, error);
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
    const gpuserve_status st = gsv_handle_check(model, error);

    if (st != GPUSERVE_OK)
        return st;
    pthread_mutex_lock(&model->changing);
    gsv_handle_suspend(model, false, true);
    pthread_mutex_unlock(&model->changing);
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_status gpuserve_model_resume(gpuserve_model *model, gpuserve_error *error)
{
    const gpuserve_status st = gsv_handle_check(model, error);

    return st == GPUSERVE_OK ? gsv_handle_resume(model, NULL, error) : st;
}
