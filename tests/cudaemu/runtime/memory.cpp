/*
 * memory.cpp - device and pinned memory, all in host memory.
 *
 * Fresh memory is filled with 0xff, a NaN in every format. Device memory has guards around it that
 * are checked after each kernel; with the address sanitizer, the sanitizer checks.
 */
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../device/sanitizers.h"
#include "state.h"

namespace
{

const size_t watchdog_bytes = GSV_EMU_ASAN ? 0 : 256;
const unsigned char watchdog_byte = 0xa5;
const size_t alignment = 256;

void *allocate(size_t size, bool device)
{
    void *memory = nullptr;

    if (posix_memalign(&memory, alignment, size + 2 * watchdog_bytes) != 0)
        return nullptr;
    unsigned char *bytes = static_cast<unsigned char *>(memory);
    memset(bytes, watchdog_byte, watchdog_bytes);
    memset(bytes + watchdog_bytes, 0xff, size);
    memset(bytes + watchdog_bytes + size, watchdog_byte, watchdog_bytes);
    const int index = gsv_emu_current_device();
    gsv_emu.allocations[reinterpret_cast<uintptr_t>(bytes + watchdog_bytes)] = { size, memory,
                                                                                 device, index };
    gsv_emu_counters &c = gsv_emu.counters;
    c.live_allocations++;
    if (device) {
        c.allocations++;
        c.live_bytes += size;
        c.peak_bytes = std::max(c.peak_bytes, c.live_bytes);
        gsv_emu.used_bytes[static_cast<size_t>(index)] += size;
    } else {
        c.host_allocations++;
        c.live_host_bytes += size;
    }
    return bytes + watchdog_bytes;
}

cudaError_t release(void *memory, bool device)
{
    const auto found = gsv_emu.allocations.find(reinterpret_cast<uintptr_t>(memory));

    if (found == gsv_emu.allocations.end() || found->second.device != device)
        return cudaErrorInvalidValue;
    const gsv_emu_allocation &a = found->second;
    gsv_emu.counters.live_allocations--;
    if (device) {
        gsv_emu.counters.live_bytes -= a.size;
        gsv_emu.used_bytes[static_cast<size_t>(a.device_index)] -= a.size;
    } else {
        gsv_emu.counters.live_host_bytes -= a.size;
    }
    free(a.memory);
    gsv_emu.allocations.erase(found);
    return cudaSuccess;
}

/* Eight bytes at a time: each kernel is followed by a look at the guards of every allocation. */
bool watchdog_intact(const unsigned char *watchdog)
{
    const uint64_t intact = 0x0101010101010101u * watchdog_byte;
    uint64_t differs = 0;

    for (size_t i = 0; i < watchdog_bytes; i += sizeof(uint64_t)) {
        uint64_t bytes;
        memcpy(&bytes, watchdog + i, sizeof(bytes));
        differs |= bytes ^ intact;
    }
    return differs == 0;
}

/* Runs all operations of all streams: on a device, freeing memory waits for them. */
cudaError_t run_all(std::unique_lock<std::mutex> &lock)
{
    return gsv_emu_run_until(lock, [] {
        for (const CUstream_st *stream : gsv_emu.streams)
            if (!stream->queue.empty())
                return false;
        return true;
    });
}

cudaError_t host_alloc(const char *name, void **memory, size_t size)
{
    gsv_emu_entry entry(name);

    *memory = nullptr;
    if (entry.failed())
        return entry.error();
    if (gsv_emu_forbidden_in_capture())
        return entry.finish(cudaErrorStreamCaptureUnsupported);
    if (size)
        *memory = allocate(size, false);
    return entry.finish(*memory || !size ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Determines the real direction of a copy, which must match the caller's `kind`. */
cudaError_t copy_direction(void *to, const void *from, size_t size, cudaMemcpyKind kind,
                           gsv_emu_work *work)
{
    const gsv_emu_allocation *target = gsv_emu_find(to, 1), *source = gsv_emu_find(from, 1);
    const bool to_device = target && target->device, from_device = source && source->device;

    if ((target && !gsv_emu_find(to, size)) || (source && !gsv_emu_find(from, size))) {
        gsv_emu.report = "copy of " + std::to_string(size) + " bytes past the end of an allocation";
        return cudaErrorInvalidValue;
    }
    if (kind != cudaMemcpyDefault &&
        (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
         from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))) {
        gsv_emu.report = "copy whose direction is not that of its pointers";
        return cudaErrorInvalidValue;
    }
    *work = to_device && !from_device   ? gsv_emu_work::copy_in
            : from_device && !to_device ? gsv_emu_work::copy_out
                                        : gsv_emu_work::copy_inside;
    return cudaSuccess;
}

gsv_emu_operation copy_operation(void *to, const void *from, size_t size, gsv_emu_work work)
{
    gsv_emu_operation operation = { work, size, nullptr, nullptr, {} };

    operation.run = [=] {
        memcpy(to, from, size);
        return cudaSuccess;
    };
    return operation;
}

/* Lasts as long as GSV_EMU_COPY_NS has it for the direction and the kind of host memory. */
void spend_copy_time(const void *to, const void *from, size_t size, gsv_emu_work work)
{
    const bool out = work == gsv_emu_work::copy_out;
    const bool pinned = gsv_emu_find(out ? to : from, 1) != nullptr;
    const uint64_t ns = gsv_emu.copy_ns[2 * out + pinned] * size / 1024;

    if (ns && work != gsv_emu_work::copy_inside)
        std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

gsv_emu_operation fill_operation(void *memory, int value, size_t size)
{
    gsv_emu_operation operation = { gsv_emu_work::fill, size, nullptr, nullptr, {} };

    operation.run = [=] {
        memset(memory, value, size);
        return cudaSuccess;
    };
    return operation;
}

/* Pageable memory is read before the call returns, because the driver stages it. */
void stage(gsv_emu_operation *operation, void *to, const void *from, size_t size)
{
    const auto *bytes = static_cast<const unsigned char *>(from);
    const auto staged = std::make_shared<std::vector<unsigned char>>(bytes, bytes + size);

    operation->run = [=] {
        memcpy(to, staged->data(), size);
        return cudaSuccess;
    };
}

} // namespace

const gsv_emu_allocation *gsv_emu_find(const void *p, size_t size)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    auto next = gsv_emu.allocations.upper_bound(at);

    if (next == gsv_emu.allocations.begin())
        return nullptr;
    --next;
    if (at - next->first > next->second.size || size > next->second.size - (at - next->first))
        return nullptr;
    return &next->second;
}

std::string gsv_emu_check_guards()
{
    for (const auto &entry : gsv_emu.allocations) {
        const auto *begin = reinterpret_cast<const unsigned char *>(entry.first);
        if (!watchdog_intact(begin - watchdog_bytes))
            return "memory written before the begin of an allocation of " +
                   std::to_string(entry.second.size) + " bytes";
        if (!watchdog_intact(begin + entry.second.size))
            return "memory written past the end of an allocation of " +
                   std::to_string(entry.second.size) + " bytes";
    }
    return "";
}

extern "C" {

cudaError_t cudaMalloc(void **memory, size_t size)
{
    gsv_emu_entry entry("cudaMalloc");

    *memory = nullptr;
    if (entry.failed())
        return entry.error();
    if (gsv_emu_forbidden_in_capture())
        return entry.finish(cudaErrorStreamCaptureUnsupported);
    if (!size)
        return entry.finish(cudaSuccess);
    const uint64_t used = gsv_emu.used_bytes[static_cast<size_t>(gsv_emu_current_device())];
    if (used > gsv_emu.memory_bytes || size > gsv_emu.memory_bytes - used)
        return entry.finish(cudaErrorMemoryAllocation);
    *memory = allocate(size, true);
    return entry.finish(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *memory)
{
    gsv_emu_entry entry("cudaFree");
    cudaError_t error = cudaSuccess;

    if (gsv_emu_forbidden_in_capture())
        return entry.finish(cudaErrorStreamCaptureUnsupported);
    if (memory) {
        error = run_all(entry.lock);
        const cudaError_t freed = release(memory, true);
        error = error == cudaSuccess ? freed : error;
    }
    return entry.finish(error);
}

cudaError_t cudaMallocHost(void **memory, size_t size)
{
    return host_alloc("cudaMallocHost", memory, size);
}

cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned int)
{
    return host_alloc("cudaHostAlloc", memory, size);
}

cudaError_t cudaFreeHost(void *memory)
{
    gsv_emu_entry entry("cudaFreeHost");
    cudaError_t error = cudaSuccess;

    if (memory) {
        error = run_all(entry.lock);
        const cudaError_t freed = release(memory, false);
        error = error == cudaSuccess ? freed : error;
    }
    return entry.finish(error);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    gsv_emu_entry entry("cudaMemGetInfo");

    if (entry.failed())
        return entry.error();
    const uint64_t used = gsv_emu.used_bytes[static_cast<size_t>(gsv_emu_current_device())];
    *total_bytes = gsv_emu.memory_bytes;
    *free_bytes = used > gsv_emu.memory_bytes ? 0 : gsv_emu.memory_bytes - used;
    return entry.finish(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    gsv_emu_entry entry("cudaMemcpyAsync");
    gsv_emu_work work = gsv_emu_work::copy_inside;

    if (entry.failed())
        return entry.error();
    cudaError_t error = size ? copy_direction(to, from, size, kind, &work) : cudaSuccess;
    if (error != cudaSuccess || !size)
        return entry.finish(error);
    spend_copy_time(to, from, size, work);
    CUstream_st *s = gsv_emu_stream(stream);
    gsv_emu_operation operation = copy_operation(to, from, size, work);
    if (work == gsv_emu_work::copy_in && !gsv_emu_find(from, 1) && !s->capture)
        stage(&operation, to, from, size);
    const bool wait = work == gsv_emu_work::copy_out && !gsv_emu_find(to, 1) && !s->capture;
    error = gsv_emu_enqueue(s, std::move(operation));
    if (wait && error == cudaSuccess)
        error = gsv_emu_run_until(entry.lock, [s] { return s->queue.empty(); });
    return entry.finish(error);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    gsv_emu_entry entry("cudaMemcpy");
    gsv_emu_work work = gsv_emu_work::copy_inside;

    if (entry.failed())
        return entry.error();
    if (gsv_emu_forbidden_in_capture())
        return entry.finish(cudaErrorStreamCaptureUnsupported);
    cudaError_t error = size ? copy_direction(to, from, size, kind, &work) : cudaSuccess;
    if (error != cudaSuccess || !size)
        return entry.finish(error);
    error = gsv_emu_enqueue(&gsv_emu.default_stream, copy_operation(to, from, size, work));
    if (error == cudaSuccess)
        error = gsv_emu_run_until(entry.lock, [] { return gsv_emu.default_stream.queue.empty(); });
    return entry.finish(error);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t stream)
{
    gsv_emu_entry entry("cudaMemsetAsync");

    if (entry.failed())
        return entry.error();
    const gsv_emu_allocation *a = gsv_emu_find(memory, size);
    if (!a || !a->device)
        return entry.finish(cudaErrorInvalidValue);
    return entry.finish(
        gsv_emu_enqueue(gsv_emu_stream(stream), fill_operation(memory, value, size)));
}

cudaError_t cudaMemset(void *memory, int value, size_t size)
{
    return cudaMemsetAsync(memory, value, size, nullptr);
}

} // extern "C"
