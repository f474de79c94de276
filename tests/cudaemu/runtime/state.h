/*
 * state.h - the fake runtime's state and internal functions.
 *
 * One lock protects everything. Each entry point constructs a gsv_emu_entry, which takes the lock,
 * counts the call, and determines whether it fails by plan or because the device is lost. Device
 * memory is host memory. A stream is a queue of operations; stream.cpp describes when they run.
 */
#ifndef GSV_EMU_STATE_H
#define GSV_EMU_STATE_H

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "../device/device.h"
#include "../emu.h"

#define GSV_EMU_PROCESSORS 16 /* multiprocessors of the emulated device */

struct gsv_emu_graph_capture;

enum class gsv_emu_work {
    kernel,
    product,
    copy_in,
    copy_out,
    copy_inside,
    fill,
    record,
    wait,
    host,
    graph
};

/** One record of an event; done when the stream has reached it. */
struct gsv_emu_passing {
    bool done = false;
    double seconds = 0;
};

struct gsv_emu_operation {
    gsv_emu_work work;
    size_t bytes = 0;
    std::function<cudaError_t()> run;         /**< NULL for record and wait */
    std::shared_ptr<gsv_emu_passing> passing; /**< record, wait */
    std::vector<size_t> after;                /**< in a graph: its dependencies */
};

struct CUgraph_st {
    std::vector<gsv_emu_operation> nodes;
};

struct CUgraphExec_st {
    std::shared_ptr<std::vector<gsv_emu_operation>> nodes;
};

struct CUstream_st {
    int device = 0;
    int number = 0; /**< 1, 2, ... in the order of creation; 0: the default stream */
    std::deque<gsv_emu_operation> queue;
    bool blocking = true; /**< ordered with the default stream */
    gsv_emu_graph_capture *capture = nullptr;
    std::vector<size_t> tail; /**< in a capture: dependencies of the next node */
};

struct CUevent_st {
    std::shared_ptr<gsv_emu_passing> passing; /**< NULL: never recorded */
    gsv_emu_graph_capture *capture = nullptr;
    std::vector<size_t> tail;
};

struct gsv_emu_graph_capture {
    CUgraph_st *graph;
    CUstream_st *origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread; /**< that began the capture */
    bool invalid = false;
};

struct gsv_emu_allocation {
    size_t size;
    void *memory; /**< start of the allocation, including guards */
    bool device;
    int device_index;
};

struct gsv_emu_runtime {
    std::mutex lock;
    gsv_emu_counters counters = {};
    std::map<uintptr_t, gsv_emu_allocation> allocations; /**< by address */
    std::set<CUstream_st *> streams;
    std::set<gsv_emu_graph_capture *> captures;
    std::map<const void *, int>
        shared_limits; /**< kernels with an increased limit of shared memory */
    std::vector<uint64_t> used_bytes = std::vector<uint64_t>(8);
    uint64_t memory_bytes = 16ull << 30;
    uint64_t copy_ns[4] = {}; /**< a KiB to the device: pageable, pinned; from it: the same */
    int n_devices = 1;
    int capability[2] = { 9, 0 };
    int driver = CUDART_VERSION;
    int n_streams_made = 0;
    std::vector<gsv_emu_deed> history;
    cudaError_t devices_error = cudaSuccess;
    cudaError_t stuck[8] = {}; /**< per device: the sticky error */
    int running = 0;           /**< device of the running operation */
    int running_stream = 0;    /**< and its stream's number */
    uint64_t fail_at = 0;      /**< value of counters.calls; 0 plans nothing */
    cudaError_t fail_with = cudaSuccess;
    const char *failed_in = nullptr;
    bool late = false;
    int hang = 0; /**< 1: streams make no progress; 2: no call returns either */
    uint64_t seed = 0;
    uint64_t random = 0;
    std::string report;
    CUstream_st default_stream;
};

extern gsv_emu_runtime &gsv_emu;

/** One entry point, from call to return. */
class gsv_emu_entry
{
  public:
    /** A call that `asks` needs no device context, so it works while the thread's device is lost.
     * A planned failure is one of `device`, of the thread's device if negative. */
    explicit gsv_emu_entry(const char *name, bool asks = false, int device = -1);
    /** True if the call must return error() at once. */
    bool failed() const
    {
        return error_ != cudaSuccess;
    }
    cudaError_t error() const
    {
        return error_;
    }
    /** Stores `error` as the thread's last error and returns it; an earlier error has priority. */
    cudaError_t finish(cudaError_t error);
    std::unique_lock<std::mutex> lock;

  private:
    cudaError_t error_;
};

/** Max bytes of shared memory per block. */
size_t gsv_emu_shared_optin();

/** If the error is sticky, every later call for `device` fails with it; negative: the thread's. */
void gsv_emu_stick(cudaError_t error, int device = -1);
int gsv_emu_current_device();
/** The sticky error of the thread's device. */
inline cudaError_t gsv_emu_stuck()
{
    return gsv_emu.stuck[gsv_emu_current_device()];
}
/** Blocks while calls must not return (hang 2). */
void gsv_emu_wait_for_calls(std::unique_lock<std::mutex> &lock);

/** The allocation that contains `size` bytes at `p`, NULL if none. */
const gsv_emu_allocation *gsv_emu_find(const void *p, size_t size);
/** Checks the guards of all device memory; returns a report if one was overwritten. */
std::string gsv_emu_check_guards();
/** A report if a product kernel requests more shared memory than its budget. */
std::string gsv_emu_over_budget(const std::string &name, unsigned threads, size_t shared);

/** NULL and the legacy handle mean the default stream. */
CUstream_st *gsv_emu_stream(cudaStream_t stream);
/** Appends the operation, records it into the graph being captured, or runs it now. */
cudaError_t gsv_emu_enqueue(CUstream_st *stream, gsv_emu_operation operation);
/** Runs one operation of a stream on a device, counts it, and adds it to the history. */
cudaError_t gsv_emu_execute(const gsv_emu_operation &operation, int device, int stream);
/** Runs operations until `done()`; blocks while the device hangs. */
cudaError_t gsv_emu_run_until(std::unique_lock<std::mutex> &lock,
                              const std::function<bool()> &done);
void gsv_emu_wake();

/** For calls that are forbidden in a capture of this thread, or of any thread in global mode:
 * returns true and invalidates the captures. */
bool gsv_emu_forbidden_in_capture();
void gsv_emu_capture_operation(CUstream_st *stream, gsv_emu_operation operation);

double gsv_emu_now();

/** A random number below n, 0 without a seed. */
uint64_t gsv_emu_pick(uint64_t n);

#endif
