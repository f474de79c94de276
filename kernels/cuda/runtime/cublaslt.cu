/*
 * cublaslt.cu - products by cuBLASLt. cublaslt_loader.cu loads it, cublaslt_tuner.cu chooses.
 *
 * Our matrices are row-major, the library's column-major: out^T [n, m] = weight [n, k] in^T, with
 * the weights as its transposed A and the activations as its B. Its bias runs over the rows of its
 * result, as ours over n; the residual is its C. Its GELU is the tanh form, so the exact GELU runs
 * in bias_act afterwards. (Parts of rows whose outputs are still in the L2 cache were slower on an
 * H200: more products with partly filled waves of tiles.)
 *
 * cublasLtMatmulAlgoCheck runs once per number of rows. A product that the library refuses, in the
 * check or in the call, runs on the own kernel. A refusal in the call withdraws the algorithm for
 * its whole range. Neither is a device failure. In a deterministic stream a refusal is an error:
 * another kernel would give other bits.
 */
#include "kernels/cuda/runtime/cublaslt.cuh"
#include "kernels/cuda/runtime/stream.cuh"

#include <stdlib.h>

namespace
{

/* The largest number of rows of each class. */
#ifdef GSV_CUDA_EMU
const int32_t CLASS_ROWS[GSV_LT_CLASSES] = { 1024, INT32_MAX };
#else
const int32_t CLASS_ROWS[GSV_LT_CLASSES] = { 1, 16, 32, 64, 128, 256, 512, 1024, 4096, INT32_MAX };
#endif

} /* namespace */

void gsv_lt_free_choices(struct gsv_lt_choice *choices)
{
    while (choices) {
        struct gsv_lt_choice *const next = choices->next;

        free(choices);
        choices = next;
    }
}

/* -------------------------------------------------------------------------------- one product */

void gsv_lt_release(const struct gsv_lt_functions *f, struct gsv_lt_product *p)
{
    if (p->desc)
        f->desc_destroy(p->desc);
    if (p->weight)
        f->layout_destroy(p->weight);
    if (p->in)
        f->layout_destroy(p->in);
    if (p->out)
        f->layout_destroy(p->out);
}

bool gsv_lt_describe(const struct gsv_lt_functions *f, const struct gpuserve_linear *linear,
                     const struct gsv_gemm *gemm, struct gsv_lt_product *p)
{
    const cudaDataType_t type = gsv_lt_type(linear->math);
    const cublasComputeType_t compute =
        linear->math == GSV_MATH_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;

    *p = {};
    if (f->desc_create(&p->desc, compute, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS ||
        f->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)) !=
            CUBLAS_STATUS_SUCCESS ||
        f->layout_create(&p->weight, type, gemm->k, gemm->n, gemm->weight_ld) !=
            CUBLAS_STATUS_SUCCESS ||
        f->layout_create(&p->in, type, gemm->k, gemm->m, gemm->in_ld) != CUBLAS_STATUS_SUCCESS ||
        f->layout_create(&p->out, type, gemm->n, gemm->m, gemm->out_ld) != CUBLAS_STATUS_SUCCESS)
        return false;
    if (!linear->element_bias)
        return true;
    return f->desc_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)) ==
               CUBLAS_STATUS_SUCCESS &&
           f->desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &linear->element_bias,
                       sizeof(linear->element_bias)) == CUBLAS_STATUS_SUCCESS;
}

/* The product only: with an activation, bias_act adds the residual. */
static cudaError_t run_product(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                               const cublasLtMatmulAlgo_t *algo, void *workspace,
                               cudaStream_t stream)
{
    const struct gsv_lt *const lt = linear->device->lt;
    const bool adds = gemm->residual && gemm->activation == GPUSERVE_ACT_NONE;
    const void *const c = adds ? gemm->residual : gemm->out;
    const float one = 1.f;
    const float beta = adds ? 1.f : 0.f;
    struct gsv_lt_product p;
    cublasStatus_t status = CUBLAS_STATUS_ALLOC_FAILED;

    if (gsv_lt_describe(&lt->f, linear, gemm, &p))
        status = lt->f.matmul(lt->handle, p.desc, &one, linear->weight, p.weight, gemm->in, p.in,
                              &beta, c, p.out, gemm->out, p.out, algo, workspace,
                              GSV_LT_WORKSPACE_BYTES, stream);
    gsv_lt_release(&lt->f, &p);
    return gsv_lt_error(status);
}

static struct gsv_lt_algo *choice_of(struct gsv_lt_choice *choice, const struct gsv_gemm *gemm,
                                     bool deterministic)
{
    int i = 0;

    if (deterministic)
        return &choice->fixed;
    while (gemm->m > CLASS_ROWS[i])
        i++;
    return &choice->choices[i];
}

/* Other activations run in bias_act after either product, so the time without one decides. */
static bool is_faster(const struct gsv_lt_algo *algo, const struct gsv_gemm *gemm)
{
    return gemm->activation == GPUSERVE_ACT_GELU ? algo->wins_with_gelu : algo->wins;
}

bool gsv_lt_wins(struct gsv_lt_choice *choice, const struct gsv_gemm *gemm, bool deterministic)
{
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(gemm->in) |
                                reinterpret_cast<uintptr_t>(gemm->out) |
                                reinterpret_cast<uintptr_t>(gemm->residual);
    struct gsv_lt_algo *algo;

    /* The candidates were requested for dense rows, 16-byte aligned. */
    if (!choice || gemm->in_ld != gemm->k || gemm->out_ld != gemm->n || addresses % 16 != 0)
        return false;
    algo = choice_of(choice, gemm, deterministic);
    if (deterministic)
        return algo->wins;
    return gemm->m >= GSV_LT_MIN_ROWS && is_faster(algo, gemm) &&
           !__atomic_load_n(&algo->withdrawn, __ATOMIC_RELAXED);
}

/* Applies what the algorithm cannot: the activation, and a residual after it. */
static cudaError_t finish_product(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                                  cudaStream_t stream)
{
    struct gsv_gemm rest = *gemm;

    if (gemm->activation == GPUSERVE_ACT_NONE)
        return cudaSuccess;
    rest.bias = NULL; /* added by cuBLASLt */
    return gsv_cuda_bias_act(&rest, linear->element, stream);
}

cudaError_t gsv_lt_multiply_with(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                                 const cublasLtMatmulAlgo_t *algo, void *workspace,
                                 cudaStream_t stream)
{
    const cudaError_t code = run_product(linear, gemm, algo, workspace, stream);

    return code == cudaSuccess ? finish_product(linear, gemm, stream) : code;
}

bool gsv_lt_passes_check(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                         const cublasLtMatmulAlgo_t *algo)
{
    const struct gsv_lt *const lt = linear->device->lt;
    cublasLtMatmulHeuristicResult_t result = {};
    struct gsv_lt_product p;
    const bool passes = gsv_lt_describe(&lt->f, linear, gemm, &p) &&
                        lt->f.check(lt->handle, p.desc, p.weight, p.in, p.out, p.out, algo,
                                    &result) == CUBLAS_STATUS_SUCCESS &&
                        result.workspaceSize <= GSV_LT_WORKSPACE_BYTES;

    gsv_lt_release(&lt->f, &p);
    return passes;
}

static bool is_checked(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                       struct gsv_lt_algo *choice)
{
    const uint32_t bit = 1u << (gemm->m % 32);
    uint32_t *const word = gemm->m < GSV_LT_CHECKED_ROWS ? &choice->checked[gemm->m / 32] : NULL;

    if (word && (__atomic_load_n(word, __ATOMIC_RELAXED) & bit))
        return true;
    if (!gsv_lt_passes_check(linear, gemm, &choice->algo))
        return false;
    if (word)
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    return true;
}

/* Once per algorithm, so that requests cannot flood the log. */
static void warn_of_refusal(struct gsv_lt_algo *choice, const struct gsv_gemm *gemm,
                            const char *range)
{
    if (__atomic_exchange_n(&choice->has_warned, 1, __ATOMIC_RELAXED))
        return;
    gsv_cuda_log(GPUSERVE_LOG_WARNING,
                 "cuBLASLt rejects a product of %d x %d with %d rows%s, for which it was fastest: "
                 "gpuserve's own kernel computes %s",
                 gemm->n, gemm->k, gemm->m,
                 gemm->activation == GPUSERVE_ACT_GELU ? " and GELU" : "", range);
}

cudaError_t gsv_lt_multiply(const struct gpuserve_linear *linear, const struct gsv_gemm *gemm,
                            bool deterministic, void *workspace, cudaStream_t stream)
{
    struct gsv_lt_algo *const choice = choice_of(linear->choice, gemm, deterministic);
    cudaError_t code;

    if (!deterministic && !is_checked(linear, gemm, choice)) {
        warn_of_refusal(choice, gemm, "the row counts that cuBLASLt rejects");
        return gsv_cuda_multiply(linear, gemm, stream);
    }
    code = run_product(linear, gemm, &choice->algo, workspace, stream);
    if (code == cudaErrorNotSupported && !deterministic) {
        __atomic_store_n(&choice->withdrawn, 1, __ATOMIC_RELAXED);
        warn_of_refusal(choice, gemm, "all products of this size");
        return gsv_cuda_multiply(linear, gemm, stream);
    }
    return code == cudaSuccess ? finish_product(linear, gemm, stream) : code;
}
