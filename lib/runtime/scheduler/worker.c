/*
 * worker.c - the worker threads of a model, and inline execution by callers.
 *
 * Worker threads block all signals, which belong to the host program. On a machine with several
 * core groups each worker stays in one group, within the host's affinity mask, and prefers the
 * batches, with their streams and buffers, of that group.
 */
#define _GNU_SOURCE
#include "lib/runtime/scheduler/worker.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKER_STACK_BYTES (2u << 20)

struct gsv_worker {
    struct gsv_model *model;
    pthread_t thread;
    int32_t number, group;
};

static void complete_all(gpuserve_request *list)
{
    while (list) {
        gpuserve_request *request = list;

        list = request->next_to_complete;
        gsv_request_complete(request);
    }
}

static void encode(struct gsv_model *model, const struct gsv_step *step)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status st = gsv_encode_chunk(model, step->request, step->chunk, &error);

    if (st == GPUSERVE_OK)
        gsv_recall_chunk(model, step->request, step->chunk);
    complete_all(gsv_batcher_encoded(model->batcher, step, st, &error));
}

static void *work(void *argument)
{
    const struct gsv_worker *worker = argument;
    struct gsv_model *model = worker->model;
    char name[16];

    snprintf(name, sizeof(name), "gpuserve-%d", worker->number % 100000);
    pthread_setname_np(pthread_self(), name);
    gsv_log_scope(model->context);
    if (model->plan.device.is_cpu)
        gsv_topology_stay(&model->context->topology, worker->group);
    for (;;) {
        const struct gsv_step step = gsv_batcher_next(model->batcher, worker->group);

        switch (step.kind) {
        case GSV_STEP_STOP:
            return NULL;
        case GSV_STEP_COMPLETE:
            gsv_request_complete(step.request);
            break;
        case GSV_STEP_ENCODE:
            encode(model, &step);
            break;
        case GSV_STEP_RUN:
            complete_all(gsv_slot_run(gsv_slot_of(step.batch)));
            break;
        }
    }
}

void gsv_run_inline(struct gsv_batch *batch)
{
    struct gsv_model *model = gsv_slot_of(batch)->model;
    const gpuserve_context *before = gsv_log_scope(model->context);
    gpuserve_request *list = gsv_slot_run(gsv_slot_of(batch));

    while (list) {
        gpuserve_request *request = list;

        list = request->next_to_complete;
        if (request->callback) /* callbacks run in worker threads only */
            gsv_batcher_defer(model->batcher, request);
        else
            gsv_request_complete(request);
    }
    gsv_log_scope(before);
}

/* --------------------------------------------------------------------------- start and stop */

/* A new thread inherits the signal mask of its creator. */
int gsv_start_thread(pthread_t *thread, void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    int failed;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(thread, &attributes, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

/* The workers of a GPU only wait for it, so their group does not matter. */
static int32_t group_of(const struct gsv_model *model, int32_t worker)
{
    const struct gsv_topology *topology = &model->context->topology;

    return model->plan.device.is_cpu ? gsv_topology_group(topology, worker, model->plan.n_workers)
                                     : 0;
}

static gpuserve_status make_slots(struct gsv_workers *workers, struct gsv_model *model,
                                  gpuserve_error *error)
{
    const struct gsv_plan *plan = &model->plan;
    gpuserve_status st = GPUSERVE_OK;

    workers->n_threads = gsv_plan_threads(plan);
    workers->all = gsv_alloc_array((size_t)workers->n_threads, sizeof(*workers->all));
    workers->slots = gsv_alloc_array((size_t)plan->n_workers, sizeof(*workers->slots));
    if (!workers->all || !workers->slots)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %d workers",
                        workers->n_threads);
    workers->n = plan->n_workers;
    if (plan->has_wide)
        st = gsv_exec_create(&workers->wide, model->replicas[0].net, &plan->wide, error);
    for (int32_t i = 0; i < workers->n && st == GPUSERVE_OK; i++) {
        st = gsv_slot_init(&workers->slots[i], model, i % (int32_t)plan->n_replicas, error);
        workers->slots[i].batch.group = group_of(model, i);
    }
    return st;
}

gpuserve_status gsv_workers_start(struct gsv_workers *workers, struct gsv_model *model,
                                  gpuserve_error *error)
{
    gpuserve_status st = make_slots(workers, model, error);

    for (int32_t i = 0; i < (int32_t)model->plan.n_replicas && st == GPUSERVE_OK; i++) {
        if (!gsv_model_has_replica(model, (size_t)i))
            gsv_batcher_retire(model->batcher, i);
    }
    for (int32_t i = workers->n; i-- > 0 && st == GPUSERVE_OK;)
        gsv_batcher_add_batch(model->batcher, &workers->slots[i].batch);
    while (workers->n_started < workers->n_threads && st == GPUSERVE_OK) {
        struct gsv_worker *worker = &workers->all[workers->n_started];
        int failed;

        *worker = (struct gsv_worker){ .model = model,
                                       .number = workers->n_started,
                                       .group = group_of(model, workers->n_started) };
        failed = gsv_start_thread(&worker->thread, work, worker);
        if (failed)
            st = gsv_fail(error, GPUSERVE_E_NOMEM, "cannot start thread %d of %d: error %d",
                          workers->n_started + 1, workers->n_threads, failed);
        else
            workers->n_started++;
    }
    return st;
}

void gsv_workers_stop(struct gsv_workers *workers)
{
    for (int32_t i = 0; i < workers->n_started; i++)
        pthread_join(workers->all[i].thread, NULL);
    for (int32_t i = 0; i < workers->n; i++)
        gsv_slot_reset(&workers->slots[i]);
    gsv_exec_free(&workers->wide);
    free(workers->slots);
    free(workers->all);
    memset(workers, 0, sizeof(*workers));
}
