/*
 * block.cpp - runs a grid: blocks one after another, the threads of a block as fibers; the blocks
 * of a cooperative launch all together, and those of a cluster.
 *
 * A thread runs until it waits: at __syncthreads for the whole block, in a warp function for the
 * lanes of its mask. The last lane to arrive does the work of all, makes the others ready and
 * continues. So accesses not ordered by a barrier run in an order unlike a GPU's, and with a seed
 * unlike the last run's. Blocks of a cooperative launch also wait for each other's signals: a
 * thread whose counter is too low sleeps until any thread signals.
 *
 * Shared memory is allocated at its exact size for each grid and filled with 0xff, a NaN in every
 * format, before each block. A guard after it is checked after each block; with the address
 * sanitizer, the sanitizer checks.
 *
 * A fault (gsv_emu_fault) ends the grid: the fibers are abandoned and their stacks reused.
 */
#include "block.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <emu_hopper.h>

#include "sanitizers.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace
{

const size_t watchdog_bytes = GSV_EMU_ASAN ? 0 : 256;
const unsigned char watchdog_byte = 0xa5;
struct warp {
    unsigned exists;     /* number of lanes; below 32 in the last warp of an odd block */
    unsigned waiting;    /* lanes waiting in a warp function */
    unsigned generation; /* of its barriers, for the thread sanitizer */
    char order[2];
};

} // namespace

/* A running block. */
struct gsv_emu_block {
    uint3 at = {};
    std::vector<warp> warps;
    size_t first_lane = 0; /* index of its first lane */
    unsigned n_returned = 0;
    unsigned n_in_barrier = 0;
    int barrier_result = 0;
    unsigned generation = 0;
    char order[2] = {};
    unsigned char *shared = nullptr;
};

namespace
{

struct running_grid {
    const gsv_emu_grid *launch = nullptr;
    std::vector<gsv_emu_block> blocks; /* blocks that run concurrently */
    /* Ready queue: lanes in run order, each at most once. A preallocated ring buffer, because
     * memory allocated by one fiber and used by another would be a race for the thread sanitizer.
     * Its size is a power of two. */
    std::vector<gsv_emu_lane *> ready;
    size_t next_ready = 0;
    size_t n_ready = 0;
    std::vector<gsv_emu_lane *> sleeping; /* preallocated too */
    size_t n_sleeping = 0;
    unsigned n_threads = 0; /* in a block */
    char start_order;
    char end_order;
    bool waited_for_grid = false;
    unsigned n_in_cluster_barrier = 0; /* arrivals at the cluster's barrier */
    unsigned cluster_phase = 0;        /* of its barriers */
    char cluster_order[2] = {};
    uint64_t seed = 0;
    uint64_t random = 0;
    cudaError_t error = cudaSuccess;
    std::string report;
};

running_grid run;
/* Reused by all grids, and never destroyed: a kernel may run at process exit. */
std::vector<std::unique_ptr<gsv_emu_lane>> &lanes =
    *new std::vector<std::unique_ptr<gsv_emu_lane>>();
gsv_emu_fiber scheduler;
gsv_emu_lane *running;

bool same_name(const char *a, const char *b)
{
    return a == b || std::strcmp(a, b) == 0;
}

/* The i-th ready lane. */
gsv_emu_lane *&ready_at(size_t i)
{
    return run.ready[(run.next_ready + i) & (run.ready.size() - 1)];
}

/* Takes the first ready lane, which is about to run. */
gsv_emu_lane *next_lane()
{
    gsv_emu_lane *lane = ready_at(0);

    run.next_ready = (run.next_ready + 1) & (run.ready.size() - 1);
    run.n_ready--;
    running = lane;
    threadIdx = lane->at;
    blockIdx = lane->block->at;
    return lane;
}

/* The running lane waits, or has returned: the next one runs, by one switch. The scheduler runs
 * only when no lane is ready. */
void leave(bool returned)
{
    gsv_emu_lane *self = running;
    gsv_emu_fiber *to = &scheduler;

    if (run.error == cudaSuccess && run.n_ready > 0)
        to = &next_lane()->fiber;
    if (to != &self->fiber)
        gsv_emu_fiber_switch(&self->fiber, to, returned);
}

void make_ready(gsv_emu_lane *lane)
{
    lane->state = gsv_emu_state::ready;
    ready_at(run.n_ready++) = lane;
}

/* Shuffles the lanes that became ready since index `from`. */
void shuffle_ready(size_t from)
{
    if (!run.seed)
        return;
    for (size_t i = run.n_ready; i > from + 1; i--)
        std::swap(ready_at(i - 1), ready_at(from + gsv_emu_random(&run.random) % (i - from)));
}

uint3 thread_position(unsigned index)
{
    const dim3 &block = run.launch->block;
    return { index % block.x, index / block.x % block.y, index / (block.x * block.y) };
}

uint3 next_position(uint3 at)
{
    if (++at.x < run.launch->block.x)
        return at;
    if (++at.y < run.launch->block.y)
        return { 0, at.y, at.z };
    return { 0, 0, at.z + 1 };
}

std::string thread_name(unsigned index)
{
    const uint3 at = thread_position(index);
    char text[64];
    snprintf(text, sizeof(text), "thread (%u,%u,%u)", at.x, at.y, at.z);
    return text;
}

/* "kernel NAME, block (x,y,z)": the prefix of each report */
std::string block_name(const uint3 &at)
{
    char text[64];
    snprintf(text, sizeof(text), ", block (%u,%u,%u)", at.x, at.y, at.z);
    return std::string("kernel ") + run.launch->name + text;
}

void set_fault(cudaError_t error, const std::string &text)
{
    if (run.error != cudaSuccess)
        return;
    run.error = error;
    run.report = text;
}

/* Ends the phase of the cluster's barrier if all threads that have not returned are there. */
void end_cluster_phase()
{
    unsigned n_running = 0;

    for (const gsv_emu_block &block : run.blocks)
        n_running += run.n_threads - block.n_returned;
    if (run.n_in_cluster_barrier == 0 || run.n_in_cluster_barrier < n_running)
        return;
    run.n_in_cluster_barrier = 0;
    run.cluster_phase++;
    gsv_emu_wake_lanes();
}

void lane_main(void *user)
{
    gsv_emu_lane *self = static_cast<gsv_emu_lane *>(user);

    gsv_emu_acquire(&run.start_order);
    run.launch->invoke(run.launch->kernel, run.launch->arguments);
    gsv_emu_release(&run.end_order);
    self->state = gsv_emu_state::returned;
    self->block->n_returned++;
    if (run.launch->cluster)
        end_cluster_phase();
    leave(true);
}

gsv_emu_lane &lane_of(const gsv_emu_block &block, unsigned index)
{
    return *lanes[block.first_lane + index];
}

/* Deadlock: no lane is ready, but not all lanes of this block have returned. Reports which lanes
 * wait, and for which. */
void report_deadlock(const gsv_emu_block &block)
{
    unsigned waiting = 0, gone = 0, n_waiting = 0;
    bool found = false;

    for (unsigned i = 0; i < run.n_threads; i++)
        if (lane_of(block, i).state != gsv_emu_state::returned)
            waiting = n_waiting++ ? waiting : i;
    const gsv_emu_lane &lane = lane_of(block, waiting);
    for (unsigned i = 0; i < run.n_threads && !found; i++) {
        if (lane.state == gsv_emu_state::in_warp &&
            (i / 32 != waiting / 32 || !(lane.mask >> i % 32 & 1)))
            continue;
        if (lane_of(block, i).state == lane.state)
            continue;
        gone = i;
        found = true;
    }
    std::string text = block_name(block.at) + ": deadlock: " + thread_name(waiting) + " and " +
                       std::to_string(n_waiting - 1) + " more wait in " + lane.what;
    if (lane.state == gsv_emu_state::in_warp) {
        char mask[32];
        snprintf(mask, sizeof(mask), " with mask 0x%08x", lane.mask);
        text += mask;
    }
    if (found && lane_of(block, gone).state == gsv_emu_state::returned)
        text += ", but " + thread_name(gone) + " has returned";
    else if (found)
        text += ", but " + thread_name(gone) + " waits in " + lane_of(block, gone).what;
    set_fault(cudaErrorLaunchFailure, text);
}

void run_threads()
{
    while (run.error == cudaSuccess && run.n_ready > 0) {
        gsv_emu_fiber_switch(&scheduler, &next_lane()->fiber, false);
        running = nullptr;
    }
    for (const gsv_emu_block &block : run.blocks)
        if (run.error == cudaSuccess && block.n_returned < run.n_threads)
            report_deadlock(block);
}

void start_threads(gsv_emu_block &block)
{
    block.n_returned = block.n_in_barrier = 0;
    block.barrier_result = 0;
    block.warps.assign((run.n_threads + 31) / 32, warp());
    uint3 at = {};
    for (unsigned i = 0; i < run.n_threads; i++) {
        gsv_emu_lane *lane = &lane_of(block, i);
        block.warps[i / 32].exists |= 1u << i % 32;
        lane->index = i;
        lane->at = at;
        at = next_position(at);
        lane->block = &block;
        lane->copies.clear();
        lane->group = 0;
        lane->products.clear();
        lane->product_group = 0;
        lane->cluster_phase = 0;
        lane->in_cluster_barrier = false;
        gsv_emu_fiber_start(&lane->fiber, lane_main, lane);
        make_ready(lane);
    }
}

void check_watchdog(const gsv_emu_block &block)
{
    for (size_t i = 0; i < watchdog_bytes; i++)
        if (block.shared[run.launch->shared_bytes + i] != watchdog_byte) {
            set_fault(cudaErrorIllegalAddress, block_name(block.at) + ": shared memory written " +
                                                   std::to_string(i) + " bytes past the " +
                                                   std::to_string(run.launch->shared_bytes) +
                                                   " that the launch asked for");
            return;
        }
}

/* Runs all of run.blocks, whose grid positions are set. */
void run_resident_blocks()
{
    run.next_ready = run.n_ready = run.n_sleeping = 0;
    run.n_in_cluster_barrier = run.cluster_phase = 0;
    for (gsv_emu_block &block : run.blocks) {
        std::memset(block.shared, 0xff, run.launch->shared_bytes);
        std::memset(block.shared + run.launch->shared_bytes, watchdog_byte, watchdog_bytes);
        start_threads(block);
    }
    shuffle_ready(0);
    gsv_emu_release(&run.start_order);
    run_threads();
    gsv_emu_acquire(&run.end_order);
    if (gsv_emu_forget_boxes() > 0 && run.error == cudaSuccess)
        set_fault(cudaErrorLaunchFailure,
                  block_name(run.blocks[0].at) + ": returns while a TMA copy is in flight");
    for (const gsv_emu_block &block : run.blocks)
        if (run.error == cudaSuccess)
            check_watchdog(block);
}

void free_resident()
{
    for (gsv_emu_block &block : run.blocks) {
        free(block.shared);
        block.shared = nullptr;
    }
}

/* Allocates `count` concurrent blocks. */
bool make_resident(size_t count)
{
    run.blocks = std::vector<gsv_emu_block>(count);
    /* The same place in each block of a cluster, however a kernel aligns its tiles. */
    const size_t alignment = run.launch->cluster ? 1024 : 128;
    for (size_t i = 0; i < count; i++) {
        void *shared = nullptr;
        if (posix_memalign(&shared, alignment,
                           std::max<size_t>(run.launch->shared_bytes + watchdog_bytes, 1)) != 0)
            return false;
        run.blocks[i].shared = static_cast<unsigned char *>(shared);
        run.blocks[i].first_lane = i * run.n_threads;
    }
    size_t room = 1;
    while (room < count * run.n_threads)
        room *= 2;
    run.ready.assign(room, nullptr);
    run.sleeping.assign(count * run.n_threads, nullptr);
    return true;
}

bool have_lanes(unsigned count)
{
    while (lanes.size() < count) {
        std::unique_ptr<gsv_emu_lane> lane(new gsv_emu_lane());
        if (!gsv_emu_fiber_create(&lane->fiber, static_cast<unsigned>(lanes.size())))
            return false;
        lanes.push_back(std::move(lane));
    }
    return true;
}

/* The thread sanitizer has a call stack per fiber, which is inconsistent after a fault: recreate
 * them. */
void forget_lanes()
{
    for (auto &lane : lanes)
        gsv_emu_fiber_destroy(&lane->fiber);
    lanes.clear();
}

uint3 block_position(uint64_t number, const dim3 &grid)
{
    return { static_cast<unsigned>(number % grid.x),
             static_cast<unsigned>(number / grid.x % grid.y),
             static_cast<unsigned>(number / grid.x / grid.y) };
}

/* A step coprime to the count visits each block once. */
uint64_t shuffled_step(uint64_t count)
{
    uint64_t step = run.seed ? gsv_emu_random(&run.random) % count : 1;
    for (;; step++) {
        uint64_t a = count, b = step;
        while (b) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

void run_blocks()
{
    const dim3 &grid = run.launch->grid;
    const bool cluster = run.launch->cluster;
    const uint64_t all = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    const uint64_t count = cluster ? all / grid.z : all;
    const uint64_t step = shuffled_step(count);
    uint64_t number = 0;

    for (uint64_t i = 0; i < all && run.error == cudaSuccess; i += run.blocks.size()) {
        for (gsv_emu_block &block : run.blocks) {
            block.at = block_position(number, grid);
            if (cluster)
                block.at.z = static_cast<unsigned>(&block - run.blocks.data());
            else
                number = (number + step) % count;
        }
        if (cluster)
            number = (number + step) % count;
        run_resident_blocks();
    }
    if (run.error == cudaSuccess && run.launch->overlap && !run.waited_for_grid)
        set_fault(cudaErrorLaunchFailure,
                  block_name(run.blocks[0].at) +
                      ": launched to overlap, but never calls gsv_grid_wait()");
}

} // namespace

gsv_emu_lane *gsv_emu_running()
{
    return running;
}

void gsv_emu_fault(cudaError_t error, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    set_fault(error,
              block_name(running->block->at) + ", " + thread_name(running->index) + ": " + text);
    gsv_emu_fiber_switch(&running->fiber, &scheduler, true);
    std::abort();
}

void gsv_emu_check_shared(const char *what, const void *address, size_t size, size_t align)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    const uintptr_t begin = reinterpret_cast<uintptr_t>(running->block->shared);

    if (at % align)
        gsv_emu_fault(cudaErrorMisalignedAddress, "%s: shared address not aligned to %zu bytes",
                      what, align);
    if (at < begin || at + size > begin + run.launch->shared_bytes)
        gsv_emu_fault(cudaErrorIllegalAddress,
                      "%s: %zu bytes at offset %td of %zu bytes of shared memory", what, size,
                      static_cast<ptrdiff_t>(at - begin), run.launch->shared_bytes);
}

void gsv_emu_meet(const char *what, unsigned mask, void *data, gsv_emu_meeting meeting)
{
    gsv_emu_lane *self = running;
    gsv_emu_block &block = *self->block;
    warp &w = block.warps[self->index / 32];
    const unsigned base = self->index / 32 * 32, me = self->index % 32;

    if (!(mask >> me & 1))
        gsv_emu_fault(cudaErrorLaunchFailure, "%s: mask 0x%08x is without the lane itself", what,
                      mask);
    if (mask & ~w.exists)
        gsv_emu_fault(cudaErrorLaunchFailure,
                      "%s: mask 0x%08x has lanes that the block of %u threads has not", what, mask,
                      run.n_threads);
    self->state = gsv_emu_state::in_warp;
    self->what = what;
    self->mask = mask;
    self->data = data;
    w.waiting |= 1u << me;
    if ((w.waiting & mask) != mask) {
        leave(false);
        return;
    }
    void *brought[32] = {};
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1))
            continue;
        const gsv_emu_lane &other = lane_of(block, base + i);
        if (!same_name(other.what, what) || other.mask != mask)
            gsv_emu_fault(cudaErrorLaunchFailure,
                          "%s with mask 0x%08x meets %s with mask 0x%08x of %s", what, mask,
                          other.what, other.mask, thread_name(base + i).c_str());
        brought[i] = other.data;
    }
    meeting(brought, mask);
    w.waiting &= ~mask;
    const size_t before = run.n_ready;
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1 && i != me)
            make_ready(&lane_of(block, base + i));
    shuffle_ready(before);
    self->state = gsv_emu_state::ready;
}

void gsv_emu_sleep_lane(const char *what)
{
    running->state = gsv_emu_state::sleeping;
    running->what = what;
    run.sleeping[run.n_sleeping++] = running;
    leave(false);
}

void gsv_emu_wake_lanes()
{
    const size_t before = run.n_ready;

    for (size_t i = 0; i < run.n_sleeping; i++)
        make_ready(run.sleeping[i]);
    run.n_sleeping = 0;
    shuffle_ready(before);
}

void gsv_emu_step_aside()
{
    make_ready(running);
    leave(false);
}

/* A barrier of some lanes: the data of each lane is its warp. */
static void barrier_meeting(void *const data[32], unsigned mask)
{
    static_cast<warp *>(data[__builtin_ctz(mask)])->generation++;
}

extern "C" {

void *gsv_emu_shared(void)
{
    return running->block->shared;
}

int gsv_emu_lane_index(void)
{
    return static_cast<int>(running->index % 32);
}

void gsv_emu_grid_wait(void)
{
    run.waited_for_grid = true;
}

/* Two addresses alternate by generation: a lane that left this barrier and reached the next one
 * must not synchronize with lanes that just reached this one. */
void gsv_emu_sync_warp(unsigned mask)
{
    warp &w = running->block->warps[running->index / 32];
    void *order = &w.order[w.generation & 1];

    gsv_emu_release(order);
    gsv_emu_meet("__syncwarp", mask, &w, barrier_meeting);
    gsv_emu_acquire(order);
}

int gsv_emu_sync_block(const char *what, int predicate)
{
    gsv_emu_lane *self = running;
    gsv_emu_block &block = *self->block;
    void *order = &block.order[block.generation & 1];

    self->state = gsv_emu_state::in_block_barrier;
    self->what = what;
    self->predicate = predicate != 0;
    gsv_emu_release(order);
    if (++block.n_in_barrier < run.n_threads) {
        leave(false);
    } else {
        int total = 0;
        const size_t before = run.n_ready;
        for (unsigned i = 0; i < run.n_threads; i++) {
            gsv_emu_lane *lane = &lane_of(block, i);
            if (!same_name(lane->what, what))
                gsv_emu_fault(cudaErrorLaunchFailure, "%s meets %s of %s", what, lane->what,
                              thread_name(i).c_str());
            total += lane->predicate;
            if (lane != self)
                make_ready(lane);
        }
        shuffle_ready(before);
        self->state = gsv_emu_state::ready;
        block.n_in_barrier = 0;
        block.generation++;
        block.barrier_result = total;
    }
    gsv_emu_acquire(order);
    return block.barrier_result;
}

void gsv_emu_cluster_arrive(void)
{
    gsv_emu_lane *self = running;

    if (!run.launch->cluster)
        gsv_emu_fault(cudaErrorLaunchFailure, "cluster barrier: the launch has no cluster");
    if (self->in_cluster_barrier)
        gsv_emu_fault(cudaErrorLaunchFailure, "cluster barrier: a second arrival without a wait");
    self->in_cluster_barrier = true;
    self->cluster_phase = run.cluster_phase;
    gsv_emu_release(&run.cluster_order[run.cluster_phase & 1]);
    run.n_in_cluster_barrier++;
    end_cluster_phase();
}

void gsv_emu_cluster_wait(void)
{
    gsv_emu_lane *self = running;

    if (!self->in_cluster_barrier)
        gsv_emu_fault(cudaErrorLaunchFailure, "cluster barrier: a wait without an arrival");
    while (run.cluster_phase == self->cluster_phase)
        gsv_emu_sleep_lane("cluster barrier");
    self->in_cluster_barrier = false;
    gsv_emu_acquire(&run.cluster_order[self->cluster_phase & 1]);
}

void gsv_emu_cluster_load(const void *shared, int block, void *to, size_t size)
{
    const gsv_emu_block &own = *running->block;

    if (!run.launch->cluster || block < 0 || static_cast<size_t>(block) >= run.blocks.size())
        gsv_emu_fault(cudaErrorLaunchFailure, "cluster load: block %d of a cluster of %zu", block,
                      run.launch->cluster ? run.blocks.size() : 0);
    gsv_emu_check_shared("cluster load", shared, size, size);
    const gsv_emu_block &other = run.blocks[static_cast<size_t>(block)];
    if (other.n_returned == run.n_threads)
        gsv_emu_fault(cudaErrorLaunchFailure, "cluster load: block %d has ended", block);
    const unsigned char *const from =
        other.shared + (static_cast<const unsigned char *>(shared) - own.shared);
    gsv_emu_note_read(from, size);
    std::memcpy(to, from, size);
}

void gsv_emu_signal(unsigned *counter)
{
    gsv_emu_release(counter);
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
    gsv_emu_wake_lanes();
}

unsigned gsv_emu_arrive(unsigned *counter)
{
    gsv_emu_release(counter);
    gsv_emu_acquire(counter);
    return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

void gsv_emu_wait_for(const unsigned *counter, unsigned target)
{
    while (__atomic_load_n(counter, __ATOMIC_RELAXED) < target) {
        if (!run.launch->cooperative)
            gsv_emu_fault(cudaErrorLaunchTimeout,
                          "gsv_wait_for: another block is waited for, but the launch is not "
                          "cooperative: it need not be running");
        gsv_emu_sleep_lane("gsv_wait_for");
    }
    gsv_emu_acquire(const_cast<unsigned *>(counter));
}

} // extern "C"

cudaError_t gsv_emu_run_grid(const gsv_emu_grid &grid, uint64_t seed, std::string *report)
{
    const size_t resident = grid.cooperative
                                ? static_cast<size_t>(grid.grid.x) * grid.grid.y * grid.grid.z
                            : grid.cluster ? grid.grid.z
                                           : 1;

    run = running_grid();
    run.launch = &grid;
    run.n_threads = grid.block.x * grid.block.y * grid.block.z;
    run.seed = run.random = seed;
    blockDim = grid.block;
    gridDim = grid.grid;
    if (!have_lanes(static_cast<unsigned>(resident * run.n_threads)) || !make_resident(resident)) {
        free_resident();
        return cudaErrorLaunchOutOfResources;
    }
    gsv_emu_fiber_adopt(&scheduler);
    run_blocks();
    free_resident();
    if (run.error != cudaSuccess) {
        *report = run.report;
        forget_lanes();
    }
    return run.error;
}
