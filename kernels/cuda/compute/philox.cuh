/*
 * philox.cuh - philox_fill: outputs of Philox4x32-10, the generator of random models, on a device.
 *
 *   One thread for each block of four outputs; a full block is one 128-bit store.
 *
 *   Needs:  outputs aligned to 16 bytes.
 *   Oracle: lib/base/philox.h on the host, whose outputs are those of cuRAND's default order.
 *
 * A header, so that the emulator's test launches the kernel with any sizes; random.cu is its
 * caller.
 */
#ifndef GSV_CUDA_PHILOX_CUH
#define GSV_CUDA_PHILOX_CUH

#include "kernels/cuda/runtime/launch.cuh"
#include "lib/base/philox.h"

#define GSV_PHILOX_THREADS 256

/* Outputs 4 * first to 4 * first + n - 1 of a seed. */
__global__ void __launch_bounds__(GSV_PHILOX_THREADS)
    philox_fill(uint32_t *outputs, uint64_t n, uint64_t seed, uint64_t first)
{
    const uint64_t block = static_cast<uint64_t>(blockIdx.x) * GSV_PHILOX_THREADS + threadIdx.x;
    uint32_t words[4];

    if (4 * block >= n)
        return;
    gsv_philox_at(words, seed, first + block);
    if (4 * block + 4 <= n) {
        *reinterpret_cast<uint4 *>(outputs + 4 * block) =
            make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
    for (unsigned i = 0; 4 * block + i < n; i++)
        outputs[4 * block + i] = words[i];
}

/* At most 2^40 outputs in one launch. */
static inline cudaError_t gsv_cuda_philox(uint32_t *outputs, uint64_t n, uint64_t seed,
                                          uint64_t first, cudaStream_t stream)
{
    const uint64_t outputs_a_block = 4 * GSV_PHILOX_THREADS;
    const unsigned blocks = static_cast<unsigned>((n + outputs_a_block - 1) / outputs_a_block);

    if (n > UINT64_C(1) << 40)
        return cudaErrorInvalidValue;
    if (n == 0)
        return cudaSuccess;
    return GSV_LAUNCH(philox_fill, blocks, GSV_PHILOX_THREADS, 0, stream, outputs, n, seed, first);
}

#endif
