/*
 * replica_removal.c - removes a replica with a lost device from the scheduler; the model continues
 * on the others.
 *
 * The replica's free batches leave the free list, so no batch starts there. Its running batches
 * come back with a failure. Each one either fails its requests, or waits in `retries` for a free
 * batch of another replica and runs once more.
 */
#include "lib/base/clock.h"
#include "lib/runtime/scheduler/batcher_internal.h"

bool gsv_batcher_retire(struct gsv_batcher *batcher, int32_t replica)
{
    struct gsv_replica_state *replica_state = &batcher->replica_states[replica];
    struct gsv_batch **link = &batcher->free_batches;
    bool goes;

    pthread_mutex_lock(&batcher->lock);
    goes = !replica_state->is_out && batcher->n_live > 1;
    if (goes) {
        replica_state->is_out = true;
        batcher->n_live--;
        batcher->n_slots -= replica_state->n_slots;
        while (*link) {
            if ((*link)->replica == replica)
                *link = (*link)->next_free;
            else
                link = &(*link)->next_free;
        }
        gsv_wake(batcher); /* items that waited for this replica now wait for another one */
    }
    pthread_mutex_unlock(&batcher->lock);
    return goes;
}

/* Queue a failed batch for a retry. A batch is retried once: one that fails twice may be the cause
 * itself, and would take down one device after the other. */
bool gsv_leave_for_retry(struct gsv_batcher *batcher, struct gsv_batch *batch,
                         gpuserve_status status)
{
    if (status != GPUSERVE_E_DEVICE || !batcher->options.retries || batch->is_retry ||
        !batcher->replica_states[batch->replica].is_out || batcher->broken.status != GPUSERVE_OK)
        return false;
    batch->next_free = batcher->retries;
    batcher->retries = batch;
    atomic_fetch_add(&batcher->options.metrics->batches_retried, 1);
    gsv_wake(batcher);
    return true;
}

struct gsv_batch *gsv_begin_retry(struct gsv_batcher *batcher, int32_t group)
{
    struct gsv_batch *left = batcher->retries, *batch = gsv_pop_free_batch(batcher, group);
    const struct gsv_batch own = *batch;

    batcher->retries = left->next_free;
    *batch = *left;
    batch->replica = own.replica;
    batch->group = own.group;
    batch->is_retry = true;
    batch->formed_ns = gsv_now_ns();
    left->parts = own.parts;
    left->coalesced = own.coalesced;
    batcher->replica_states[batch->replica].n_running++;
    batcher->n_running++;
    return batch;
}
