/*
 * worker.c - the threads of a model.
 *
 * Each has a stream of its own and buffers for one packed batch; nothing is allocated while it
 * works. All signals are blocked in them: they belong to the host program. They are never pinned.
 */
#define _GNU_SOURCE
#include "lib/runtime/worker.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/runtime/clock.h"
#include "lib/runtime/lost.h"
#include "lib/runtime/model.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define WORKER_STACK_BYTES (2u << 20)

struct gsv_worker {
    struct gsv_model *model;
    struct gsv_work *work;
    struct gsv_batch batch;
    int32_t *ids, *type_ids, *positions; /* [max_tokens] */
    int32_t *cu_seqlens;                 /* [max_sequences + 1] */
    float *output;                       /* gsv_plan_output_floats() */
    pthread_t thread;
    int32_t number;
};

/* Lay the batch's tokens end to end. */
static void pack(struct gsv_worker *worker, struct gpuserve_host_batch *host)
{
    const struct gsv_batch *batch = &worker->batch;
    const int32_t first_position = worker->model->plan.facts->first_position;
    int32_t at = 0;

    worker->cu_seqlens[0] = 0;
    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[i];
        const struct gsv_item *item = &part->request->items[part->item];
        const int32_t n = (int32_t)item->n_tokens;
        const uint8_t *types = part->chunk->type_ids;

        memcpy(worker->ids + at, part->chunk->ids + item->offset, (size_t)n * sizeof(int32_t));
        for (int32_t j = 0; j < n; j++) {
            worker->type_ids[at + j] = types ? types[item->offset + (size_t)j] : 0;
            worker->positions[at + j] = first_position + j;
        }
        at += n;
        worker->cu_seqlens[i + 1] = at;
    }
    *host = (struct gpuserve_host_batch){
        .n_tokens = at,
        .n_sequences = batch->n_parts,
        .max_seqlen = batch->longest,
        .ids = worker->ids,
        .type_ids = worker->type_ids,
        .positions = worker->positions,
        .cu_seqlens = worker->cu_seqlens,
    };
}

static bool all_finite(const float *values, size_t n)
{
    bool finite = true;

    for (size_t i = 0; i < n; i++)
        finite &= fabsf(values[i]) <= FLT_MAX;
    return finite;
}

/* Where the rows of a part begin in the output, and how many floats they have. */
static const float *rows_of(const struct gsv_worker *worker, int32_t part, size_t *n_floats)
{
    const int32_t *begins = worker->cu_seqlens;
    const size_t columns = (size_t)worker->batch.parts[part].request->columns;
    const bool by_token = worker->batch.key.task == GPUSERVE_TASK_TOKEN_VECTORS;
    const size_t row = (size_t)(by_token ? begins[part] : part);

    *n_floats = columns * (by_token ? (size_t)(begins[part + 1] - begins[part]) : 1);
    return worker->output + row * columns;
}

/* Hand an item its rows. No other thread touches it until it is counted back. */
static void hand_out(const struct gsv_part *to, const float *from, size_t n)
{
    gpuserve_request *request = to->request;
    struct gsv_item *item = &request->items[to->item];

    memcpy(request->staging + item->row * (size_t)request->columns, from, n * sizeof(float));
    item->status = all_finite(from, n) ? GPUSERVE_OK : GPUSERVE_E_NUMERIC;
}

static void keep(const struct gsv_worker *worker, const struct gsv_part *part, const float *rows,
                 size_t n)
{
    const struct gsv_item *item = &part->request->items[part->item];
    const struct gsv_cache_key key = { .tokens = gsv_tokens_of(part->chunk, item),
                                       .batch = worker->batch.key,
                                       .hash = item->hash };

    if (worker->model->cache && part->request->job.cache != GPUSERVE_CACHE_OFF &&
        item->status == GPUSERVE_OK)
        gsv_cache_put(worker->model->cache, &key, rows, n);
}

static void unpack(const struct gsv_worker *worker)
{
    const struct gsv_batch *batch = &worker->batch;
    struct gsv_metrics *metrics = &worker->model->context->metrics;
    size_t n;

    for (int32_t i = 0; i < batch->n_parts; i++) {
        const struct gsv_part *part = &batch->parts[i];
        const struct gsv_item *item = &part->request->items[part->item];
        const float *rows = rows_of(worker, i, &n);

        hand_out(part, rows, n);
        gsv_metrics_item(metrics, item->n_tokens, item->truncated);
        keep(worker, part, rows, n);
    }
    for (int32_t i = 0; i < batch->n_riders; i++) {
        const float *rows = rows_of(worker, batch->riders[i].number, &n);

        hand_out(&batch->riders[i], rows, n);
    }
    atomic_fetch_add(&metrics->shared_items, (uint64_t)batch->n_riders);
}

static void complete_all(gpuserve_request *list)
{
    while (list) {
        gpuserve_request *request = list;

        list = request->next_to_complete;
        gsv_request_complete(request);
    }
}

static void run_batch(struct gsv_worker *worker)
{
    struct gsv_model *model = worker->model;
    const struct gsv_batch *batch = &worker->batch;
    const struct gsv_run run = { .task = batch->key.task,
                                 .dimensions = batch->key.dimensions,
                                 .normalize = batch->key.normalize,
                                 .score = batch->key.score,
                                 .skip = batch->key.skip,
                                 .output = worker->output };
    const uint64_t begin = gsv_now_ns();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_host_batch host;
    gpuserve_status st;
    uint64_t spent;

    gsv_nvtx_push(&model->context->nvtx, "gpuserve batch of %d texts, %d tokens", batch->n_parts,
                  batch->n_tokens);
    pack(worker, &host);
    st = gsv_net_run(batch->is_wide ? model->workers.wide : worker->work, &host, &run, &error);
    gsv_batcher_land(model->batcher, &worker->batch);
    if (st == GPUSERVE_OK)
        unpack(worker);
    else
        gsv_log(model->context, GPUSERVE_LOG_ERROR, "a batch of %d tokens failed: %s",
                batch->n_tokens, error.message);
    if (st == GPUSERVE_E_DEVICE)
        gsv_lost_note(model);
    gsv_nvtx_pop(&model->context->nvtx);
    spent = gsv_now_ns() - begin;
    gsv_metrics_batch(&model->context->metrics, &model->metrics, (uint64_t)batch->n_parts,
                      (uint64_t)batch->n_tokens, (uint64_t)batch->longest, spent);
    complete_all(gsv_batcher_ran(model->batcher, batch, spent, st, &error));
}

static void encode(struct gsv_worker *worker, const struct gsv_step *step)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status st = gsv_encode_chunk(worker->model, step->request, step->chunk, &error);

    if (st == GPUSERVE_OK)
        gsv_recall_chunk(worker->model, step->request, step->chunk);
    complete_all(gsv_batcher_encoded(worker->model->batcher, step, st, &error));
}

static void *work(void *argument)
{
    struct gsv_worker *worker = argument;
    char name[16];

    snprintf(name, sizeof(name), "gpuserve-%d", worker->number % 100000);
    pthread_setname_np(pthread_self(), name);
    gsv_log_scope(worker->model->context);
    for (;;) {
        const struct gsv_step step = gsv_batcher_next(worker->model->batcher, &worker->batch);

        switch (step.kind) {
        case GSV_STEP_STOP:
            return NULL;
        case GSV_STEP_COMPLETE:
            gsv_request_complete(step.request);
            break;
        case GSV_STEP_ENCODE:
            encode(worker, &step);
            break;
        case GSV_STEP_RUN:
            run_batch(worker);
            break;
        }
    }
}

/* --------------------------------------------------------------------------- start and stop */

static gpuserve_status make_buffers(struct gsv_worker *worker, gpuserve_error *error)
{
    const struct gsv_plan *plan = &worker->model->plan;
    const size_t tokens = (size_t)plan->narrow.max_tokens;
    const size_t sequences = (size_t)plan->narrow.max_sequences;

    worker->batch.parts = gsv_alloc_array(sequences, sizeof(*worker->batch.parts));
    worker->batch.riders = gsv_alloc_array(sequences, sizeof(*worker->batch.riders));
    worker->ids = gsv_alloc_array(tokens, sizeof(int32_t));
    worker->type_ids = gsv_alloc_array(tokens, sizeof(int32_t));
    worker->positions = gsv_alloc_array(tokens, sizeof(int32_t));
    worker->cu_seqlens = gsv_alloc_array(sequences + 1, sizeof(int32_t));
    worker->output = gsv_alloc_array(gsv_plan_output_floats(plan), sizeof(float));
    if (!worker->batch.parts || !worker->batch.riders || !worker->ids || !worker->type_ids ||
        !worker->positions || !worker->cu_seqlens || !worker->output)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a batch of %zu tokens", tokens);
    return GPUSERVE_OK;
}

static void worker_reset(struct gsv_worker *worker)
{
    gsv_work_free(&worker->work);
    free(worker->batch.parts);
    free(worker->batch.riders);
    free(worker->ids);
    free(worker->type_ids);
    free(worker->positions);
    free(worker->cu_seqlens);
    free(worker->output);
}

/* A thread inherits the signal mask of its maker. */
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

gpuserve_status gsv_workers_start(struct gsv_workers *workers, struct gsv_model *model,
                                  gpuserve_error *error)
{
    const struct gsv_plan *plan = &model->plan;
    gpuserve_status st = GPUSERVE_OK;

    workers->all = gsv_alloc_array((size_t)plan->n_workers, sizeof(*workers->all));
    if (!workers->all)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %d workers", plan->n_workers);
    workers->n = plan->n_workers;
    if (plan->has_wide)
        st = gsv_work_create(&workers->wide, model->replicas[0].net, &plan->wide, error);
    for (int32_t i = 0; i < workers->n && st == GPUSERVE_OK; i++) {
        workers->all[i].model = model;
        workers->all[i].number = i;
        st = make_buffers(&workers->all[i], error);
        if (st == GPUSERVE_OK)
            st = gsv_work_create(&workers->all[i].work,
                                 model->replicas[(size_t)i % plan->n_replicas].net, &plan->narrow,
                                 error);
    }
    while (workers->n_started < workers->n && st == GPUSERVE_OK) {
        struct gsv_worker *worker = &workers->all[workers->n_started];
        const int failed = gsv_start_thread(&worker->thread, work, worker);

        if (failed)
            st = gsv_fail(error, GPUSERVE_E_NOMEM, "cannot start thread %d of %d: error %d",
                          workers->n_started + 1, workers->n, failed);
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
        worker_reset(&workers->all[i]);
    gsv_work_free(&workers->wide);
    free(workers->all);
    memset(workers, 0, sizeof(*workers));
}
