/*
 * cublaslt_loader.cuh - the cuBLASLt functions loaded by cublaslt_loader.cu, for cublaslt.cu and
 * matmul_cublaslt.cu.
 */
#ifndef GSV_CUDA_CUBLASLT_LOADER_CUH
#define GSV_CUDA_CUBLASLT_LOADER_CUH

#include "kernels/cuda/runtime/cublaslt.cuh"

#include <cublasLt.h>
#include <pthread.h>

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
};

struct gsv_lt {
    void *library; /* NULL in the emulator */
    struct gsv_lt_functions f;
    cublasLtHandle_t handle;
    pthread_mutex_t lock;
    struct gsv_lt_choice
        *choices; /* guarded by `lock`; entries in the list change only in their atomics */
};

/* The element type of a product's operands. */
cudaDataType_t gsv_lt_type(enum gsv_math math);
/* The CUDA error behind a library status; cudaSuccess for success. A status without a CUDA error is
 * a refusal of this product and gives cudaErrorNotSupported; the device is unaffected. */
cudaError_t gsv_lt_error(cublasStatus_t status);
/* Frees the list of choices for gsv_lt_close(); defined in cublaslt.cu. */
void gsv_lt_free_choices(struct gsv_lt_choice *choices);

#endif
