/*
 * curand_loader.cu - loads cuRAND at run time.
 *
 * In the emulator the functions are linked instead of loaded.
 */
#include "kernels/cuda/runtime/curand.cuh"

#include "kernels/cuda/runtime/cublaslt.cuh"

#include <dlfcn.h>
#include <stdio.h>

#define LIBRARY_NAME "libcurand.so.10"

#ifdef GSV_CUDA_EMU
#include <curand.h>

bool gsv_curand_open(struct gsv_curand *curand, char *why, size_t size)
{
    (void)why;
    (void)size;
    *curand = { NULL,
                curandCreateGenerator,
                curandDestroyGenerator,
                curandSetStream,
                curandSetPseudoRandomGeneratorSeed,
                curandSetGeneratorOffset,
                curandSetGeneratorOrdering,
                curandGenerate };
    return true;
}

#else

#if __has_include(<curand.h>)
#include <curand.h>

#define SAME(name) static_assert(GSV_##name == static_cast<int>(name), #name)
SAME(CURAND_STATUS_SUCCESS);
SAME(CURAND_STATUS_ALLOCATION_FAILED);
SAME(CURAND_RNG_PSEUDO_PHILOX4_32_10);
SAME(CURAND_ORDERING_PSEUDO_LEGACY);
#endif

template <typename F> static bool load(void *library, const char *name, F *function)
{
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != NULL;
}

bool gsv_curand_open(struct gsv_curand *curand, char *why, size_t size)
{
    void *const library = gsv_cuda_open_library(LIBRARY_NAME);

    *curand = {};
    curand->library = library;
    if (!library) {
        gsv_cuda_tell_missing(LIBRARY_NAME, why, size);
        return false;
    }
    if (load(library, "curandCreateGenerator", &curand->create) &&
        load(library, "curandDestroyGenerator", &curand->destroy) &&
        load(library, "curandSetStream", &curand->set_stream) &&
        load(library, "curandSetPseudoRandomGeneratorSeed", &curand->set_seed) &&
        load(library, "curandSetGeneratorOffset", &curand->set_offset) &&
        load(library, "curandSetGeneratorOrdering", &curand->set_order) &&
        load(library, "curandGenerate", &curand->generate))
        return true;
    snprintf(why, size, LIBRARY_NAME " does not export a required function");
    gsv_curand_close(curand);
    return false;
}

#endif

void gsv_curand_close(struct gsv_curand *curand)
{
    if (curand->library)
        dlclose(curand->library);
    *curand = {};
}
