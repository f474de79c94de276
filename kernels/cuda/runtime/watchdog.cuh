/*
 * watchdog.cuh - watchdog: runs calls that may never return on a separate thread.
 *
 * A hung device blocks the thread that waits for it, and most runtime calls may wait: allocating
 * and freeing memory, blocking copies, loading kernels. Batches are polled instead (stream.cu). All
 * other device calls use this watchdog: a worker thread makes the call, and the caller gives the
 * device up after a time-out. The worker thread and its data are then abandoned. `work` must
 * therefore own all data it touches, or the caller must abandon what it borrows, too.
 */
#ifndef GSV_CUDA_WATCHDOG_CUH
#define GSV_CUDA_WATCHDOG_CUH

#include "kernels/cuda/runtime/backend.cuh"

#include <new>
#include <stdlib.h>

struct gsv_guarded {
    void (*run)(struct gsv_guarded *call);
    void (*end)(struct gsv_guarded *call); /* frees it */
    bool always;                           /* also on a lost device */
    gpuserve_status status;
    gpuserve_error error;
};

/* Runs and ends `call`; returns its status and error. On time-out: returns GPUSERVE_E_DEVICE, sets
 * *left, and marks the device as hung; the call ends itself if it ever returns. */
gpuserve_status gsv_watchdog_run(int index, const char *what, struct gsv_guarded *call, bool *left,
                                 gpuserve_error *error);

/* Runs `call` on this thread, without a time-out. */
void gsv_watchdog_run_here(int index, struct gsv_guarded *call);

/* GPUSERVE_CUDA_TIMEOUT_MS, default one minute. */
int64_t gsv_cuda_timeout_ms(void);

/*
 * Runs work(gpuserve_error *) -> gpuserve_status on another thread with device `index` current.
 * `what` ends the sentence "device 0 did not answer within 60000 ms while ...". *left (may be NULL)
 * is true if `work` still holds what it borrowed. Without memory for the call it fails, but with
 * `always` it runs on this thread: what releases resources must run.
 */
template <typename Work>
gpuserve_status gsv_watchdog(int index, const char *what, Work work, bool *left,
                             gpuserve_error *error, bool always = false)
{
    struct call : gsv_guarded {
        explicit call(const Work &given) : gsv_guarded(), work(given)
        {
        }
        Work work;
    };
    const auto run = [](struct gsv_guarded *c) {
        c->status = static_cast<call *>(c)->work(&c->error);
    };
    void *const memory = malloc(sizeof(call));
    bool unused;

    if (!left)
        left = &unused;
    *left = false;
    if (!memory && !always)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "device %d: out of memory", index);
    if (!memory) {
        call here(work);

        here.always = true;
        here.run = run;
        gsv_watchdog_run_here(index, &here);
        return here.status;
    }
    call *const made = new (memory) call(work);
    made->always = always;
    made->error = GPUSERVE_ERROR_INIT;
    made->run = run;
    made->end = [](struct gsv_guarded *c) { free(static_cast<call *>(c)); };
    return gsv_watchdog_run(index, what, made, left, error);
}

/* Runs a work() -> void that releases resources: on a lost device too, but not on a hung one. False
 * if it did not complete; its borrowed data must then be abandoned. */
template <typename Work> bool gsv_watchdog_release(int index, const char *what, Work work)
{
    bool left = gsv_cuda_hangs(index);

    if (!left)
        gsv_watchdog(
            index, what,
            [=](gpuserve_error *) {
                work();
                return GPUSERVE_OK;
            },
            &left, NULL, true);
    return !left;
}

#endif
