/*
 * device.h - interface of the emulated multiprocessor for the fake runtime. One grid runs at a
 * time, under the runtime's lock.
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
    bool overlap;     /**< launched to overlap the previous kernel */
    bool cooperative; /**< all blocks run concurrently */
    bool cluster;     /**< the blocks along z run concurrently */
};

/** Runs a grid on this OS thread. `seed` as in gsv_emu_seed(). On a fault returns the device's
 * error, and `report` describes it. */
cudaError_t gsv_emu_run_grid(const gsv_emu_grid &grid, uint64_t seed, std::string *report);

/** Next number of a pseudo-random sequence. */
inline uint64_t gsv_emu_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
