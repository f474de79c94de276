/*
 * block.h - state of the running grid, shared by the files of this folder; block.cpp describes it.
 */
#ifndef GSV_EMU_BLOCK_H
#define GSV_EMU_BLOCK_H

#include <vector>

#include <emu_device.h>

#include "device.h"
#include "fiber.h"

/** A cp.async in flight. */
struct gsv_emu_copy {
    char *shared;
    const char *global;
    int bytes;
    bool valid;
    unsigned group;
};

/** A wgmma in flight. */
struct gsv_emu_group_product {
    int kind;
    int columns;
    void *d; /**< sums of a lane: float, or int32_t of GSV_EMU_MMA_S8 */
    uint64_t a;
    uint64_t b;
    bool add;
    unsigned group;
};

enum class gsv_emu_state { ready, in_block_barrier, in_warp, sleeping, returned };

struct gsv_emu_block;

/** One CUDA thread. */
struct gsv_emu_lane {
    gsv_emu_fiber fiber;
    unsigned index; /**< index in the block */
    uint3 at;       /**< the same as threadIdx */
    gsv_emu_block *block;
    gsv_emu_state state;
    const char *what; /**< name of the function it waits in */
    unsigned mask;
    void *data; /**< argument for the warp function */
    int predicate;
    std::vector<gsv_emu_copy> copies;
    unsigned group; /**< current group of cp.async copies */
    std::vector<gsv_emu_group_product> products;
    unsigned product_group; /**< current group of wgmma */
    unsigned cluster_phase; /**< of the cluster's barrier, when the thread arrived */
    bool in_cluster_barrier;
};

/** Work of a warp function, run by the last lane to arrive: data[i] is lane i's argument, for lanes
 * in mask. */
typedef void (*gsv_emu_meeting)(void *const data[32], unsigned mask);

/** Waits for all lanes of `mask`, which must arrive with the same `what`; the last lane runs
 * `meeting`. */
void gsv_emu_meet(const char *what, unsigned mask, void *data, gsv_emu_meeting meeting);

/** Ends the kernel: `error` is the device's error, the rest is the report. */
[[noreturn]] void gsv_emu_fault(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Sleeps in `what` until gsv_emu_wake_lanes(), which another lane may have called for another
 * reason. */
void gsv_emu_sleep_lane(const char *what);
void gsv_emu_wake_lanes();
/** Continues after all lanes that are ready now. */
void gsv_emu_step_aside();

/** Forgets the TMA copies in flight and returns their number: at the end of a block none is left.
 */
size_t gsv_emu_forget_boxes();

/** The running lane; NULL outside of kernels. */
gsv_emu_lane *gsv_emu_running();

/** Faults unless `size` bytes at `address` are in the block's shared memory, aligned to `align`. */
void gsv_emu_check_shared(const char *what, const void *address, size_t size, size_t align);

#endif
