/*
 * watchdog.cu - the watchdog: runs a call on a worker thread and waits for it with a time-out.
 *
 * `struct watch` is shared by both threads under its lock. The caller frees it after a call that
 * ended in time; after a time-out the worker thread frees it, should the call return.
 */
#include "kernels/cuda/runtime/watchdog.cuh"
#include "lib/base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace
{

const int64_t DEFAULT_TIMEOUT_MS = 60000;
const int64_t LOOK_AGAIN_MS = 100; /* another thread may have marked the device as hung */

/* Shared by the caller and the worker thread; freed by the last of them. */
struct watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct gsv_guarded *call;
    int index;
    bool is_done;
    bool is_left;
};

void free_watch(struct watch *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void run_call(struct gsv_guarded *call, int index)
{
    cudaError_t code = index >= 0 ? gsv_cuda_set_device(index) : cudaSuccess;

    if (code == cudaSuccess || call->always)
        call->run(call);
    else
        call->status = gsv_cuda_fail(index, code, "cudaSetDevice", &call->error);
}

void *run_watched(void *argument)
{
    struct watch *const w = static_cast<struct watch *>(argument);
    bool is_left;

    run_call(w->call, w->index);
    pthread_mutex_lock(&w->lock);
    w->is_done = true;
    is_left = w->is_left;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (is_left) {
        w->call->end(w->call);
        free_watch(w);
    }
    return NULL;
}

/* Blocks all signals in the worker thread: signal handling belongs to the host program. */
int start(pthread_t *thread, struct watch *w)
{
    sigset_t all;
    sigset_t before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(thread, NULL, run_watched, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

int64_t now_ms(void)
{
    return static_cast<int64_t>(gsv_now_ns() / 1000000);
}

/* True if the call ended in time. */
bool wait_for(struct watch *w, int64_t timeout_ms)
{
    const int64_t end = now_ms() + timeout_ms;
    bool done;

    pthread_mutex_lock(&w->lock);
    while (!w->is_done && !gsv_cuda_hangs(w->index) && now_ms() < end) {
        const int64_t until = now_ms() + LOOK_AGAIN_MS < end ? now_ms() + LOOK_AGAIN_MS : end;
        const struct timespec t = { static_cast<time_t>(until / 1000), until % 1000 * 1000000 };

        pthread_cond_timedwait(&w->changed, &w->lock, &t);
    }
    done = w->is_done;
    w->is_left = !done;
    pthread_mutex_unlock(&w->lock);
    return done;
}

struct watch *make_watch(int index, struct gsv_guarded *call)
{
    struct watch *const w = static_cast<struct watch *>(calloc(1, sizeof(struct watch)));
    pthread_condattr_t monotonic;

    if (!w)
        return NULL;
    w->call = call;
    w->index = index;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return w;
}

gpuserve_status finish(struct gsv_guarded *call, gpuserve_error *error)
{
    const gpuserve_status status = call->status;

    if (status != GPUSERVE_OK)
        gsv_error_copy(error, &call->error);
    call->end(call);
    return status;
}

} /* namespace */

int64_t gsv_cuda_timeout_ms(void)
{
    const char *const text = getenv("GPUSERVE_CUDA_TIMEOUT_MS");
    const long long ms = text ? strtoll(text, NULL, 10) : 0;

    return ms > 0 ? ms : DEFAULT_TIMEOUT_MS;
}

void gsv_watchdog_run_here(int index, struct gsv_guarded *call)
{
    run_call(call, index);
}

gpuserve_status gsv_watchdog_run(int index, const char *what, struct gsv_guarded *call, bool *left,
                                 gpuserve_error *error)
{
    const int64_t timeout_ms = gsv_cuda_timeout_ms();
    struct watch *const w = make_watch(index, call);
    pthread_t thread;

    *left = false;
    if (!w || start(&thread, w) != 0) {
        if (w)
            free_watch(w);
        run_call(call, index); /* no worker thread: call directly, without a time-out */
        return finish(call, error);
    }
    if (wait_for(w, timeout_ms)) {
        pthread_join(thread, NULL);
        free_watch(w);
        return finish(call, error);
    }
    pthread_detach(thread);
    *left = true;
    return gsv_cuda_fail_timeout(index, what, timeout_ms, error);
}
