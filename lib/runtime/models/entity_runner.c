/*
 * entity_runner.c - the execution context of a model's entity head, shared by all callers.
 *
 * The context is on the first replica whose device works. If that device is lost while others work,
 * the next call moves it to another one. Created and freed while no request is in flight.
 */
#include "lib/runtime/models/load_steps.h"

#include "lib/base/error.h"

static gpuserve_status create(struct gsv_model *model, gpuserve_error *error)
{
    struct gsv_entity_runner *runner = &model->entity;

    runner->replica = 0;
    while (!gsv_model_has_replica(model, runner->replica) &&
           runner->replica + 1 < model->plan.n_replicas)
        runner->replica++;
    return gsv_entity_exec_create(&runner->exec, model->replicas[runner->replica].net,
                                  gsv_plan_entity_threads(&model->plan),
                                  model->plan.narrow.deterministic, error);
}

gpuserve_status gsv_entity_start(struct gsv_model *model, gpuserve_error *error)
{
    return model->plan.facts->entity.width > 0 ? create(model, error) : GPUSERVE_OK;
}

void gsv_entity_stop(struct gsv_model *model)
{
    gsv_entity_exec_free(&model->entity.exec);
}

gpuserve_status gsv_entity_acquire(struct gsv_model *model, struct gsv_entity_exec **exec,
                                   gpuserve_error *error)
{
    struct gsv_entity_runner *runner = &model->entity;
    gpuserve_status st = GPUSERVE_OK;

    pthread_mutex_lock(&runner->lock);
    if (runner->exec && !gsv_model_has_replica(model, runner->replica)) {
        gsv_entity_exec_free(&runner->exec);
        st = create(model, error);
    }
    if (st == GPUSERVE_OK && !runner->exec)
        st = gsv_fail(error, GPUSERVE_E_DEVICE, "the model's entity head is not loaded");
    *exec = runner->exec;
    return st;
}

void gsv_entity_release(struct gsv_model *model)
{
    pthread_mutex_unlock(&model->entity.lock);
}
