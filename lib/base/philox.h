/*
 * philox.h - Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw:
 * "Parallel random numbers: as easy as 1, 2, 3", 2011).
 *
 * A block of four 32-bit outputs is a function of a 128-bit counter and a 64-bit key, so any part
 * of the sequence is computed alone, by any thread, on any device. The key is the seed. Output i is
 * word i % 4 of block b = i / 4, whose counter is b / 65536 in the lower half and b % 65536 in the
 * upper half: the outputs of cuRAND's curandGenerate() for CURAND_RNG_PSEUDO_PHILOX4_32_10 in its
 * default order, which gives each of 65,536 threads a subsequence.
 */
#ifndef GSV_BASE_PHILOX_H
#define GSV_BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__) || defined(GSV_CUDA_EMU)
#define GSV_PHILOX_CALL __host__ __device__ static inline
#else
#define GSV_PHILOX_CALL static inline
#endif

#define GSV_PHILOX_ROUNDS 10
#define GSV_PHILOX_SEQUENCES 65536 /* interleaved */

/* One block: `words` is the counter on entry, least significant word first, and the output on
 * return. */
GSV_PHILOX_CALL void gsv_philox_block(uint32_t words[4], uint32_t key_low, uint32_t key_high)
{
    for (int round = 0; round < GSV_PHILOX_ROUNDS; round++) {
        const uint64_t a = UINT64_C(0xD2511F53) * words[0], b = UINT64_C(0xCD9E8D57) * words[2];

        words[0] = (uint32_t)(b >> 32) ^ words[1] ^ key_low;
        words[2] = (uint32_t)(a >> 32) ^ words[3] ^ key_high;
        words[1] = (uint32_t)b;
        words[3] = (uint32_t)a;
        key_low += 0x9E3779B9u; /* the golden ratio and the square root of 3, less 1 */
        key_high += 0xBB67AE85u;
    }
}

/* Block `index` of a seed's sequence: outputs 4 * index to 4 * index + 3. */
GSV_PHILOX_CALL void gsv_philox_at(uint32_t words[4], uint64_t seed, uint64_t index)
{
    const uint64_t position = index / GSV_PHILOX_SEQUENCES;

    words[0] = (uint32_t)position;
    words[1] = (uint32_t)(position >> 32);
    words[2] = (uint32_t)(index % GSV_PHILOX_SEQUENCES);
    words[3] = 0;
    gsv_philox_block(words, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* The one conversion of outputs to weights: uniform in [-limit, limit), in multiples of limit /
 * 2^31, rounded to float32. No library function takes part, so every device gets the same bits. */
GSV_PHILOX_CALL float gsv_philox_uniform(uint32_t output, float limit)
{
    return (float)(int32_t)output * (limit * 0x1p-31f);
}

#endif
