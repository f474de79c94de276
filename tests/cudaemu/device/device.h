/*
 * device.h - the emulated multiprocessor as the fake runtime sees it. One grid runs at a time; the
 * runtime's lock sees to that.
 */
#ifndef GSV_EMU_MULTIPROCESSOR_H
#define GSV_EMU_MULTIPROCESSOR_H

#include <string>

#include <cuda_runtime_api.h>

struct gsv_emu_grid {
    const void *kernel;
    const char *name;
    void (*invoke)(const void *kernel, void *const *arguments);
    void *const *arguments;
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    bool overlap;     /**< launched to overlap the kernel before it */
    bool cooperative; /**< all blocks run at the same time */
};

/** Run all of it on this OS thread. `seed` as gsv_emu_seed(). On a fault the error that the device
 *  would report, and `report` says what happened. */
cudaError_t gsv_emu_run_grid(const gsv_emu_grid &grid, uint64_t seed, std::string *report);

/** The next of a sequence of well-mixed numbers. */
inline uint64_t gsv_emu_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
