/*
 * stream.cpp - streams and events: when operations run.
 *
 * By default an operation runs at its call. After gsv_emu_set_late() nothing runs until a call
 * waits; then, as often as needed, a random runnable stream runs its first operation. So two
 * operations not ordered by a stream, event or wait run in either order, and a missing event
 * dependency is detected.
 *
 * The default stream waits for all blocking streams before it takes an operation, and runs it at
 * once; this is stricter than a device, never weaker.
 */
#include <condition_variable>

#include "state.h"

namespace
{

const size_t max_history = 4096;

/* Signalled when a hang ends or the state is reset. Never destroyed: a hung thread may wait on
 * it. */
std::condition_variable &progress = *new std::condition_variable();

/* An error while a stream runs is permanent for the device. */
void fail_device(int device, cudaError_t error)
{
    if (gsv_emu.stuck[device] == cudaSuccess)
        gsv_emu.stuck[device] = error;
}

bool can_run(const CUstream_st *stream)
{
    if (stream->queue.empty())
        return false;
    const gsv_emu_operation &first = stream->queue.front();
    return first.work != gsv_emu_work::wait || first.passing->done;
}

/* Runs the first operation of a runnable stream; false if none is runnable. */
bool run_some()
{
    std::vector<CUstream_st *> able;

    for (CUstream_st *stream : gsv_emu.streams)
        if (can_run(stream))
            able.push_back(stream);
    if (able.empty() || gsv_emu.hang)
        return false;
    CUstream_st *stream = able[gsv_emu_pick(able.size())];
    const gsv_emu_operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    fail_device(stream->device, gsv_emu_execute(operation, stream->device, stream->number));
    return true;
}

bool blocking_streams_done()
{
    for (const CUstream_st *stream : gsv_emu.streams)
        if (stream->blocking && !stream->queue.empty())
            return false;
    return true;
}

void count(const gsv_emu_operation &operation)
{
    gsv_emu_counters &c = gsv_emu.counters;

    switch (operation.work) {
    case gsv_emu_work::product:
        c.products++;
        c.launches++;
        break;
    case gsv_emu_work::kernel:
        c.launches++;
        break;
    case gsv_emu_work::graph:
        c.graph_launches++;
        break;
    case gsv_emu_work::copy_in:
        c.copies_in++;
        c.bytes_in += operation.bytes;
        break;
    case gsv_emu_work::copy_out:
        c.copies_out++;
        c.bytes_out += operation.bytes;
        break;
    case gsv_emu_work::copy_inside:
        c.copies_inside++;
        break;
    case gsv_emu_work::fill:
        c.fills++;
        break;
    default:
        break;
    }
}

void write_down(const gsv_emu_operation &operation, int stream)
{
    gsv_emu_deed deed = { stream, GSV_EMU_DID_OTHER };

    if (operation.work == gsv_emu_work::kernel || operation.work == gsv_emu_work::product)
        deed.did = GSV_EMU_DID_KERNEL;
    else if (operation.work == gsv_emu_work::copy_in)
        deed.did = GSV_EMU_DID_COPY_IN;
    else if (operation.work == gsv_emu_work::copy_out)
        deed.did = GSV_EMU_DID_COPY_OUT;
    if (gsv_emu.history.size() < max_history)
        gsv_emu.history.push_back(deed);
}

cudaError_t create_stream(const char *name, cudaStream_t *stream, unsigned flags)
{
    gsv_emu_entry entry(name);

    *stream = nullptr;
    if (entry.failed())
        return entry.error();
    *stream = new CUstream_st();
    (*stream)->device = gsv_emu_current_device();
    (*stream)->number = ++gsv_emu.n_streams_made;
    (*stream)->blocking = !(flags & cudaStreamNonBlocking);
    gsv_emu.streams.insert(*stream);
    gsv_emu.counters.live_objects++;
    return entry.finish(cudaSuccess);
}

cudaError_t create_event(const char *name, cudaEvent_t *event)
{
    gsv_emu_entry entry(name);

    *event = nullptr;
    if (entry.failed())
        return entry.error();
    *event = new CUevent_st();
    gsv_emu.counters.live_objects++;
    return entry.finish(cudaSuccess);
}

bool known(const CUstream_st *stream)
{
    return stream == &gsv_emu.default_stream ||
           gsv_emu.streams.count(const_cast<CUstream_st *>(stream));
}

/* A call that is forbidden in a capture invalidates the whole capture. */
cudaError_t forbid(gsv_emu_graph_capture *capture)
{
    capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

} // namespace

void gsv_emu_wake()
{
    progress.notify_all();
}

void gsv_emu_wait_for_calls(std::unique_lock<std::mutex> &lock)
{
    while (gsv_emu.hang > 1)
        progress.wait(lock);
}

CUstream_st *gsv_emu_stream(cudaStream_t stream)
{
    return !stream || stream == cudaStreamLegacy ? &gsv_emu.default_stream : stream;
}

/* After a failure operations do nothing, but events complete, so that no wait blocks forever. */
cudaError_t gsv_emu_execute(const gsv_emu_operation &operation, int device, int stream)
{
    if (operation.work == gsv_emu_work::record) {
        operation.passing->done = true;
        operation.passing->seconds = gsv_emu_now();
    }
    if (!operation.run || gsv_emu.stuck[device] != cudaSuccess)
        return cudaSuccess;
    count(operation);
    write_down(operation, stream);
    gsv_emu.running = device;
    gsv_emu.running_stream = stream;
    return operation.run();
}

cudaError_t gsv_emu_run_until(std::unique_lock<std::mutex> &lock, const std::function<bool()> &done)
{
    gsv_emu.counters.synchronizations++;
    while (!done()) {
        if (run_some())
            continue;
        if (!gsv_emu.hang)
            return cudaErrorLaunchTimeout; /* no stream will record this event */
        progress.wait(lock);
    }
    return gsv_emu_stuck();
}

cudaError_t gsv_emu_enqueue(CUstream_st *stream, gsv_emu_operation operation)
{
    if (!known(stream))
        return cudaErrorInvalidResourceHandle;
    if (stream->capture) {
        if (stream->capture->invalid)
            return cudaErrorStreamCaptureInvalidated;
        gsv_emu_capture_operation(stream, std::move(operation));
        return cudaSuccess;
    }
    if (stream == &gsv_emu.default_stream) {
        while (!blocking_streams_done() && run_some())
            continue;
        const int device = gsv_emu_current_device();

        if (!gsv_emu.hang)
            fail_device(device, gsv_emu_execute(operation, device, 0));
        return gsv_emu.stuck[device];
    }
    stream->queue.push_back(std::move(operation));
    while (!gsv_emu.late && run_some())
        continue;
    return cudaSuccess;
}

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return create_stream("cudaStreamCreate", stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return create_stream("cudaStreamCreateWithFlags", stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int)
{
    return create_stream("cudaStreamCreateWithPriority", stream, flags);
}

/* A device completes pending work asynchronously; here it runs now. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    gsv_emu_entry entry("cudaStreamDestroy");

    if (!stream || !gsv_emu.streams.count(stream))
        return entry.finish(cudaErrorInvalidResourceHandle);
    while (!stream->queue.empty() && run_some())
        continue;
    gsv_emu.streams.erase(stream);
    gsv_emu.counters.live_objects--;
    delete stream;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    gsv_emu_entry entry("cudaStreamSynchronize");
    CUstream_st *s = gsv_emu_stream(stream);

    if (entry.failed())
        return entry.error();
    if (!known(s))
        return entry.finish(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return entry.finish(forbid(s->capture));
    return entry.finish(gsv_emu_run_until(entry.lock, [s] { return s->queue.empty(); }));
}

cudaError_t cudaDeviceSynchronize(void)
{
    gsv_emu_entry entry("cudaDeviceSynchronize");

    if (entry.failed())
        return entry.error();
    if (gsv_emu_forbidden_in_capture())
        return entry.finish(cudaErrorStreamCaptureUnsupported);
    return entry.finish(gsv_emu_run_until(entry.lock, [] {
        for (const CUstream_st *stream : gsv_emu.streams)
            if (!stream->queue.empty())
                return false;
        return true;
    }));
}

/* Each query runs one operation of a late stream, otherwise a polling loop would never end. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    gsv_emu_entry entry("cudaStreamQuery");
    CUstream_st *s = gsv_emu_stream(stream);

    if (entry.failed())
        return entry.error();
    if (!known(s))
        return entry.finish(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return entry.finish(forbid(s->capture));
    run_some();
    if (gsv_emu_stuck() != cudaSuccess)
        return entry.finish(gsv_emu_stuck());
    return entry.finish(s->queue.empty() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    gsv_emu_entry entry("cudaStreamWaitEvent");
    CUstream_st *s = gsv_emu_stream(stream);

    if (entry.failed())
        return entry.error();
    if (!event || !known(s))
        return entry.finish(cudaErrorInvalidResourceHandle);
    if (event->capture) {
        if (s->capture && s->capture != event->capture)
            return entry.finish(forbid(s->capture));
        s->capture = event->capture;
        s->tail.insert(s->tail.end(), event->tail.begin(), event->tail.end());
        return entry.finish(cudaSuccess);
    }
    if (s->capture || !event->passing)
        return entry.finish(s->capture ? forbid(s->capture) : cudaSuccess);
    return entry.finish(gsv_emu_enqueue(s, { gsv_emu_work::wait, 0, nullptr, event->passing, {} }));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user)
{
    gsv_emu_entry entry("cudaLaunchHostFunc");
    gsv_emu_operation operation = { gsv_emu_work::host, 0, nullptr, nullptr, {} };

    if (entry.failed())
        return entry.error();
    operation.run = [=] {
        fn(user);
        return cudaSuccess;
    };
    return entry.finish(gsv_emu_enqueue(gsv_emu_stream(stream), std::move(operation)));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return create_event("cudaEventCreate", event);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int)
{
    return create_event("cudaEventCreateWithFlags", event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    gsv_emu_entry entry("cudaEventDestroy");

    if (!event)
        return entry.finish(cudaErrorInvalidResourceHandle);
    gsv_emu.counters.live_objects--;
    delete event;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    gsv_emu_entry entry("cudaEventRecord");
    CUstream_st *s = gsv_emu_stream(stream);

    if (entry.failed())
        return entry.error();
    if (!event || !known(s))
        return entry.finish(cudaErrorInvalidResourceHandle);
    event->capture = s->capture;
    event->tail = s->tail;
    if (s->capture)
        return entry.finish(cudaSuccess);
    event->passing = std::make_shared<gsv_emu_passing>();
    return entry.finish(
        gsv_emu_enqueue(s, { gsv_emu_work::record, 0, nullptr, event->passing, {} }));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    gsv_emu_entry entry("cudaEventSynchronize");

    if (entry.failed())
        return entry.error();
    if (!event)
        return entry.finish(cudaErrorInvalidResourceHandle);
    if (event->capture)
        return entry.finish(forbid(event->capture));
    const std::shared_ptr<gsv_emu_passing> passing = event->passing;
    return entry.finish(
        gsv_emu_run_until(entry.lock, [passing] { return !passing || passing->done; }));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    gsv_emu_entry entry("cudaEventQuery");

    if (entry.failed())
        return entry.error();
    if (!event)
        return entry.finish(cudaErrorInvalidResourceHandle);
    if (event->capture)
        return entry.finish(forbid(event->capture));
    run_some();
    if (gsv_emu_stuck() != cudaSuccess)
        return entry.finish(gsv_emu_stuck());
    return entry.finish(!event->passing || event->passing->done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    gsv_emu_entry entry("cudaEventElapsedTime");

    if (entry.failed())
        return entry.error();
    if (!start || !end || !start->passing || !end->passing)
        return entry.finish(cudaErrorInvalidResourceHandle);
    if (!start->passing->done || !end->passing->done)
        return entry.finish(cudaErrorNotReady);
    *milliseconds = static_cast<float>((end->passing->seconds - start->passing->seconds) * 1e3);
    return entry.finish(cudaSuccess);
}

} // extern "C"
