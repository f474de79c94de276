/* block.h - the state of the grid that runs, shared by the files of this folder; see block.cpp. */
#ifndef GSV_EMU_BLOCK_H
#define GSV_EMU_BLOCK_H

#include <vector>

#include <emu_device.h>

#include "device.h"
#include "fiber.h"

/** A cp.async that was issued and has not landed. */
struct gsv_emu_copy {
    char *shared;
    const char *global;
    int bytes;
    bool valid;
    unsigned group;
};

enum class gsv_emu_state { ready, in_block_barrier, in_warp, in_grid, returned };

struct gsv_emu_block;

/** One CUDA thread. */
struct gsv_emu_lane {
    gsv_emu_fiber fiber;
    unsigned index; /**< in the block */
    uint3 at;       /**< the same as threadIdx */
    gsv_emu_block *block;
    gsv_emu_state state;
    const char *what; /**< the function it waits in */
    unsigned mask;
    void *data; /**< what it brought to the meeting */
    int predicate;
    std::vector<gsv_emu_copy> copies;
    unsigned group; /**< of the copies that are issued now */
};

/** What the lanes of a warp do when the last one has come: data[i] is lane i's, for those of mask.
 */
typedef void (*gsv_emu_meeting)(void *const data[32], unsigned mask);

/** Wait for all lanes of `mask`, which must come with the same `what`; the last runs `meeting`. */
void gsv_emu_meet(const char *what, unsigned mask, void *data, gsv_emu_meeting meeting);

/** End the kernel: `error` is what the device then reports, the rest says why. */
[[noreturn]] void gsv_emu_fault(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The lane that runs; NULL outside of kernels. */
gsv_emu_lane *gsv_emu_running();

/** Fault unless `size` bytes at `address` lie in the block's shared memory, aligned to `align`. */
void gsv_emu_check_shared(const char *what, const void *address, size_t size, size_t align);

#endif
