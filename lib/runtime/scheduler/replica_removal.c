/*
 * replica_removal.c - a model on several devices goes on without one that is lost.
 *
 * Its batches leave the free ones, so that nothing begins there. What was running there comes back
 * with its failure: either as such, or, in a free batch of another replica, to be run once more.
 */
#include "lib/runtime/core/clock.h"
#include "lib/runtime/scheduler/batcher_internal.h"

bool gsv_batcher_retire(struct gsv_batcher *batcher, int32_t replica)
{
    struct gsv_stand *stand = &batcher->stands[replica];
    struct gsv_batch **place = &batcher->free_batches;
    bool goes;

    pthread_mutex_lock(&batcher->lock);
    goes = !stand->is_out && batcher->n_live > 1;
    if (goes) {
        stand->is_out = true;
        batcher->n_live--;
        batcher->n_seats -= stand->n_seats;
        while (*place) {
            if ((*place)->replica == replica)
                *place = (*place)->next_free;
            else
                place = &(*place)->next_free;
        }
        gsv_wake(batcher); /* what waited for its end waits for another's */
    }
    pthread_mutex_unlock(&batcher->lock);
    return goes;
}

/* One that fails a second time may be the cause itself, and would take down one device after the
 * other. */
bool gsv_leave_for_rerun(struct gsv_batcher *batcher, struct gsv_batch *batch,
                         gpuserve_status status)
{
    if (status != GPUSERVE_E_DEVICE || !batcher->options.reruns || batch->is_rerun ||
        !batcher->stands[batch->replica].is_out || batcher->broken.status != GPUSERVE_OK)
        return false;
    batch->next_free = batcher->reruns;
    batcher->reruns = batch;
    atomic_fetch_add(&batcher->options.metrics->batches_rerun, 1);
    gsv_wake(batcher);
    return true;
}

struct gsv_batch *gsv_begin_rerun(struct gsv_batcher *batcher, int32_t group)
{
    struct gsv_batch *left = batcher->reruns, *batch = gsv_take_free(batcher, group);
    const struct gsv_batch own = *batch;

    batcher->reruns = left->next_free;
    *batch = *left;
    batch->replica = own.replica;
    batch->group = own.group;
    batch->is_rerun = true;
    batch->taken_ns = gsv_now_ns();
    left->parts = own.parts;
    left->riders = own.riders;
    batcher->stands[batch->replica].n_running++;
    batcher->n_running++;
    return batch;
}
