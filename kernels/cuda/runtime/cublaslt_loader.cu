/*
 * cublaslt_loader.cu - loads cuBLASLt at run time and creates a handle for each device.
 *
 * A missing library is no error, but large batches are slower: the first device that lacks it logs
 * a warning. In the emulator the functions are linked instead of loaded.
 */
#include "kernels/cuda/runtime/cublaslt.cuh"

#include <atomic>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GSV_CUDA_EMU

static bool load_functions(struct gsv_lt *lt)
{
    lt->f = { cublasLtCreate,
              cublasLtDestroy,
              cublasLtMatmulDescCreate,
              cublasLtMatmulDescDestroy,
              cublasLtMatmulDescSetAttribute,
              cublasLtMatrixLayoutCreate,
              cublasLtMatrixLayoutDestroy,
              cublasLtMatmulPreferenceCreate,
              cublasLtMatmulPreferenceDestroy,
              cublasLtMatmulPreferenceSetAttribute,
              cublasLtMatmulAlgoGetHeuristic,
              cublasLtMatmulAlgoCheck,
              cublasLtMatmul,
              cublasLtGetVersion };
    return true;
}

static void tell_missing(const struct gsv_lt *lt, char *text, size_t size)
{
    (void)lt;
    snprintf(text, size, "cublasLtCreate failed");
}

#else

#define STRINGIFY_TOKEN(x) #x
#define STRINGIFY(x) STRINGIFY_TOKEN(x)
#define LIBRARY_NAME "libcublasLt.so." STRINGIFY(CUBLAS_VER_MAJOR)

template <typename F> static bool load(void *library, const char *name, F *function)
{
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != NULL;
}

static bool load_functions(struct gsv_lt *lt)
{
    struct gsv_lt_functions *const f = &lt->f;
    void *const library = gsv_cuda_open_library(LIBRARY_NAME);

    lt->library = library;
    return library && load(library, "cublasLtCreate", &f->create) &&
           load(library, "cublasLtDestroy", &f->destroy) &&
           load(library, "cublasLtMatmulDescCreate", &f->desc_create) &&
           load(library, "cublasLtMatmulDescDestroy", &f->desc_destroy) &&
           load(library, "cublasLtMatmulDescSetAttribute", &f->desc_set) &&
           load(library, "cublasLtMatrixLayoutCreate", &f->layout_create) &&
           load(library, "cublasLtMatrixLayoutDestroy", &f->layout_destroy) &&
           load(library, "cublasLtMatmulPreferenceCreate", &f->preference_create) &&
           load(library, "cublasLtMatmulPreferenceDestroy", &f->preference_destroy) &&
           load(library, "cublasLtMatmulPreferenceSetAttribute", &f->preference_set) &&
           load(library, "cublasLtMatmulAlgoGetHeuristic", &f->heuristic) &&
           load(library, "cublasLtMatmulAlgoCheck", &f->check) &&
           load(library, "cublasLtMatmul", &f->matmul) &&
           load(library, "cublasLtGetVersion", &f->version);
}

static void tell_missing(const struct gsv_lt *lt, char *text, size_t size)
{
    if (!lt->library)
        gsv_cuda_tell_missing(LIBRARY_NAME, text, size);
    else
        snprintf(text, size, "%s",
                 lt->f.matmul ? "cublasLtCreate failed"
                              : LIBRARY_NAME " does not export a required function");
}

#endif

/* Each device opens the library; the first failure alone is a warning. */
static void log_missing(const struct gsv_lt *lt)
{
    static std::atomic<bool> told;
    char why[400];

    tell_missing(lt, why, sizeof(why));
    gsv_cuda_log(told.exchange(true) ? GPUSERVE_LOG_DEBUG : GPUSERVE_LOG_WARNING,
                 "cuBLASLt is not used, gpuserve's own kernels compute products: %s", why);
}

struct gsv_lt *gsv_lt_open(void)
{
    const char *const wanted = getenv("GPUSERVE_CUBLASLT");
    struct gsv_lt *lt;

    if (wanted && strcmp(wanted, "0") == 0)
        return NULL;
    lt = static_cast<struct gsv_lt *>(calloc(1, sizeof(*lt)));
    if (!lt)
        return NULL;
    pthread_mutex_init(&lt->lock, NULL);
    if (!load_functions(lt) || lt->f.create(&lt->handle) != CUBLAS_STATUS_SUCCESS) {
        log_missing(lt);
        lt->handle = NULL;
        gsv_lt_close(&lt);
    }
    return lt;
}

void gsv_lt_close(struct gsv_lt **lt)
{
    struct gsv_lt *const l = lt ? *lt : NULL;

    if (!l)
        return;
    *lt = NULL;
    if (l->handle)
        l->f.destroy(l->handle);
    gsv_lt_free_choices(l->choices);
    if (l->library)
        dlclose(l->library);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

cudaDataType_t gsv_lt_type(enum gsv_math math)
{
    switch (math) {
    case GSV_MATH_F16:
        return CUDA_R_16F;
    case GSV_MATH_BF16:
        return CUDA_R_16BF;
    default:
        return CUDA_R_32F;
    }
}

cudaError_t gsv_lt_error(cublasStatus_t status)
{
    const cudaError_t last = cudaGetLastError();

    if (status == CUBLAS_STATUS_SUCCESS)
        return cudaSuccess;
    return last != cudaSuccess ? last : cudaErrorNotSupported;
}
