/*
 * curand.cuh - the generator of cuRAND 10, loaded with dlopen().
 *
 * The prototypes and values are those of curand.h of NVIDIA cuRAND 10, written with the types of
 * their ABI, as in cudnn.cuh.
 */
#ifndef GSV_CUDA_CURAND_CUH
#define GSV_CUDA_CURAND_CUH

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

/* Values that carry the name that they have in cuRAND. */
enum gsv_curand_value {
    GSV_CURAND_STATUS_SUCCESS = 0,
    GSV_CURAND_STATUS_ALLOCATION_FAILED = 102,
    GSV_CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
    GSV_CURAND_ORDERING_PSEUDO_LEGACY = 103
};

struct gsv_curand {
    void *library; /* NULL in the emulator */
    int (*create)(void **generator, int type);
    int (*destroy)(void *generator);
    int (*set_stream)(void *generator, cudaStream_t stream);
    int (*set_seed)(void *generator, unsigned long long seed);
    int (*set_offset)(void *generator, unsigned long long offset);
    int (*set_order)(void *generator, int order);
    int (*generate)(void *generator, unsigned *outputs, size_t n);
};

/* False if the library is not available, which is no error; `why` then has the cause. */
bool gsv_curand_open(struct gsv_curand *curand, char *why, size_t size);
void gsv_curand_close(struct gsv_curand *curand);

#endif
