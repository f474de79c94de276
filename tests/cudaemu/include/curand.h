/*
 * curand.h - the part of cuRAND 10 that the emulator implements; replaces NVIDIA's header.
 *
 * A generator is a pointer and enumerations are ints, as in the ABI. The functions are in
 * tests/cudaemu/runtime/curand.cpp.
 */
#ifndef GSV_EMU_CURAND_H
#define GSV_EMU_CURAND_H

#include <cuda_runtime_api.h>
#include <stddef.h>

GSV_EMU_CUDA int curandCreateGenerator(void **generator, int type);
GSV_EMU_CUDA int curandDestroyGenerator(void *generator);
GSV_EMU_CUDA int curandSetStream(void *generator, cudaStream_t stream);
GSV_EMU_CUDA int curandSetPseudoRandomGeneratorSeed(void *generator, unsigned long long seed);
GSV_EMU_CUDA int curandSetGeneratorOffset(void *generator, unsigned long long offset);
GSV_EMU_CUDA int curandSetGeneratorOrdering(void *generator, int order);
GSV_EMU_CUDA int curandGenerate(void *generator, unsigned *outputs, size_t n);

#endif
