/*
 * watchdog.cuh - calls that may never return, made by a thread of their own.
 *
 * A device that hangs does not give back the thread that waits for it, and most of the runtime's
 * calls may wait: taking and freeing memory, blocking copies, loading kernels. Batches are polled
 * instead (stream.cu). Everything else that asks something of the device goes through here: another
 * thread makes the call, and this one gives the device up after a time. The other thread and what
 * it works on are left behind then, so `work` owns all it touches, or what it borrows is left
 * behind too.
 */
#ifndef GSV_CUDA_WATCHDOG_CUH
#define GSV_CUDA_WATCHDOG_CUH

#include "kernels/cuda/runtime/backend.cuh"

#include <new>
#include <stdlib.h>

struct gsv_guarded {
    void (*run)(struct gsv_guarded *call);
    void (*end)(struct gsv_guarded *call); /* free it */
    bool always;                           /* also on a device that is lost */
    gpuserve_status status;
    gpuserve_error error;
};

/* Run and end `call`; its status and error. After the device's time-out: GPUSERVE_E_DEVICE, *left
 * is set, the device is marked as one that hangs, and the call ends itself should it ever return.
 */
gpuserve_status gsv_watchdog_run(int index, const char *what, struct gsv_guarded *call, bool *left,
                                 gpuserve_error *error);

/* GPUSERVE_CUDA_TIMEOUT_MS, or a minute. */
int64_t gsv_cuda_timeout_ms(void);

/*
 * work(gpuserve_error *) -> gpuserve_status, on another thread with device `index` its own. `what`
 * ends the sentence "device 0 did not answer within 60000 ms while ...". *left, which may be NULL,
 * tells that `work` still has what it borrowed.
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
    void *const memory = malloc(sizeof(call));
    bool unused;

    if (!left)
        left = &unused;
    *left = false;
    if (!memory)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "device %d: out of memory", index);
    call *const made = new (memory) call(work);
    made->always = always;
    made->error = GPUSERVE_ERROR_INIT;
    made->run = [](struct gsv_guarded *c) { c->status = static_cast<call *>(c)->work(&c->error); };
    made->end = [](struct gsv_guarded *c) { free(static_cast<call *>(c)); };
    return gsv_watchdog_run(index, what, made, left, error);
}

/* For work() -> void that gives something back: done on a lost device too, not on one that hangs.
 * False when it was left undone, with what it borrowed. */
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
