/*
 * cublaslt.cuh - optional use of cuBLASLt, and autotuning of the products that use it.
 *
 * When the first weights of a size are loaded, the backend's own kernel and the best cuBLASLt
 * candidates are timed once per (n, k) and number format: for several numbers of rows, with and
 * without GELU. A deterministic stream uses one algorithm for all numbers of rows: cuBLASLt's if
 * the bits of its rows did not depend on their number, else the own kernel, whose bits never do.
 */
#ifndef GSV_CUDA_CUBLASLT_CUH
#define GSV_CUDA_CUBLASLT_CUH

#include "kernels/cuda/runtime/backend.cuh"

#include <cublasLt.h>
#include <pthread.h>
#include <stddef.h>

/* Smaller products use the own kernel. The emulator's times are meaningless: there both are used.
 */
#ifdef GSV_CUDA_EMU
#define GSV_LT_MIN_ROWS 129
#else
#define GSV_LT_MIN_ROWS 1
#endif

struct gsv_lt;
struct gsv_lt_choice;

/* One per open device. NULL if the library is missing or GPUSERVE_CUBLASLT is 0, which is no
 * error. */
struct gsv_lt *gsv_lt_open(void);
void gsv_lt_close(struct gsv_lt **lt);

/* Returns the fastest choice for products with these weights; times them if they are the first of
 * their size. Borrowed from `lt`. NULL when out of memory: the own kernels are used. */
struct gsv_lt_choice *gsv_lt_choose(const struct gpuserve_linear *linear);

/* True if cuBLASLt should compute this product. */
bool gsv_lt_wins(struct gsv_lt_choice *choice, const struct gsv_gemm *gemm, bool deterministic);

/* Computes the product with cuBLASLt. `workspace` has GSV_LT_WORKSPACE_BYTES. A product that the
 * library refuses runs on the own kernel, with one logged warning; an algorithm refused in the call
 * is not used again. In a deterministic stream a refusal is cudaErrorNotSupported. */
cudaError_t gsv_lt_multiply(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                            bool deterministic, void *workspace, cudaStream_t stream);

/*
 * The cuBLASLt functions loaded by cublaslt_loader.cu, and what cublaslt.cu shares with
 * cublaslt_tuner.cu and matmul_cublaslt.cu.
 */

struct gsv_lt_functions {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmulAlgoCheck) check;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtGetVersion) version;
};

struct gsv_lt {
    void *library; /* NULL in the emulator */
    struct gsv_lt_functions f;
    cublasLtHandle_t handle;
    pthread_mutex_t lock;
    struct gsv_lt_choice
        *choices; /* guarded by `lock`; entries in the list change only in their atomics */
};

/* Classes of numbers of rows, each with a choice of its own. */
#ifdef GSV_CUDA_EMU
#define GSV_LT_CLASSES 2
#else
#define GSV_LT_CLASSES 10
#endif
/* Row counts whose check result is cached; larger ones are checked each time. */
#define GSV_LT_CHECKED_ROWS 8192

struct gsv_lt_algo {
    bool wins; /* the timing results; constant once the choice is in the list */
    bool wins_with_gelu;
    uint32_t withdrawn;  /* atomic: a call was refused */
    uint32_t has_warned; /* atomic */
    cublasLtMatmulAlgo_t algo;
    uint32_t
        checked[GSV_LT_CHECKED_ROWS / 32]; /* atomic, one bit per row count that passed the check */
};

struct gsv_lt_choice {
    enum gsv_math math;
    int32_t n;
    int32_t k;
    struct gsv_lt_algo choices[GSV_LT_CLASSES];
    struct gsv_lt_algo fixed; /* of deterministic streams */
    struct gsv_lt_choice *next;
};

/* The library's descriptors of one product; destroyed by gsv_lt_release(). */
struct gsv_lt_product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t weight;
    cublasLtMatrixLayout_t in;
    cublasLtMatrixLayout_t out;
};

bool gsv_lt_describe(const struct gsv_lt_functions *f, const struct gpuserve_linear *linear,
                     const struct gsv_gemm *gemm, struct gsv_lt_product *p);
void gsv_lt_release(const struct gsv_lt_functions *f, struct gsv_lt_product *p);
/* True if the library supports the algorithm for this number of rows within the workspace. */
bool gsv_lt_passes_check(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                         const cublasLtMatmulAlgo_t *algo);
/* The product and its activation by one algorithm. */
cudaError_t gsv_lt_multiply_with(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                                 const cublasLtMatmulAlgo_t *algo, void *workspace,
                                 cudaStream_t stream);

/* The element type of a product's operands. */
cudaDataType_t gsv_lt_type(enum gsv_math math);
/* The CUDA error behind a library status; cudaSuccess for success. A status without a CUDA error is
 * a refusal of this product and gives cudaErrorNotSupported; the device is unaffected. */
cudaError_t gsv_lt_error(cublasStatus_t status);
/* Frees the list of choices for gsv_lt_close(); defined in cublaslt.cu. */
void gsv_lt_free_choices(struct gsv_lt_choice *choices);

/* Opens a library of the CUDA toolkit at run time. */

/* Searches `name` in the loader's path and the folders of lib/base/host/rootfs.h. Opens the first
 * one that can be loaded; NULL if none can. Close with dlclose(). */
void *gsv_cuda_open_library(const char *name);

/* After a NULL result: writes the searched places, or why an existing library cannot be loaded.
 * Truncated to `size`. */
void gsv_cuda_tell_missing(const char *name, char *text, size_t size);

#endif
