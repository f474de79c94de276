/*
 * matmul_cublaslt.cu - one product by cuBLASLt for gpuserve_matmul().
 *
 * Row-major C is column-major C^T = op(B)^T op(A)^T, and a row-major matrix read as column-major is
 * its own transpose. B is therefore the library's first operand, transposed if ours is.
 */
#include "kernels/cuda/runtime/cublaslt.cuh"
#include "kernels/cuda/compute/matmul.cuh"
#include "kernels/cuda/runtime/stream.cuh"

/* The library's descriptors; release() destroys all of them. */
struct description {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t b; /* the library's first operand */
    cublasLtMatrixLayout_t a;
    cublasLtMatrixLayout_t c;
    cublasLtMatmulPreference_t preference;
};

static void release(const struct gsv_lt_functions *f, struct description *d)
{
    if (d->desc)
        f->desc_destroy(d->desc);
    if (d->b)
        f->layout_destroy(d->b);
    if (d->a)
        f->layout_destroy(d->a);
    if (d->c)
        f->layout_destroy(d->c);
    if (d->preference)
        f->preference_destroy(d->preference);
}

static cublasStatus_t describe(const struct gsv_lt_functions *f, const struct gsv_matmul *of,
                               const struct gsv_packed *rows, enum gsv_math math,
                               struct description *d)
{
    const cublasComputeType_t compute =
        math == GSV_MATH_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t b_op = of->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t a_op = of->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t type = gsv_lt_type(math);
    cublasStatus_t s = f->desc_create(&d->desc, compute, CUDA_R_32F);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = f->desc_set(d->desc, CUBLASLT_MATMUL_DESC_TRANSA, &b_op, sizeof(b_op));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = f->desc_set(d->desc, CUBLASLT_MATMUL_DESC_TRANSB, &a_op, sizeof(a_op));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = f->layout_create(&d->b, type, of->transpose_b ? of->k : of->n,
                             of->transpose_b ? of->n : of->k, rows->b_ld);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = f->layout_create(&d->a, type, of->transpose_a ? of->m : of->k,
                             of->transpose_a ? of->k : of->m, rows->a_ld);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = f->layout_create(&d->c, CUDA_R_32F, of->n, of->m, of->c_stride);
    return s;
}

/* Takes the first choice of the heuristic. Split-k is excluded, since its summation order
 * differs. */
static cublasStatus_t choose(const struct gsv_lt *lt, struct description *d,
                             cublasLtMatmulHeuristicResult_t *found)
{
    const struct gsv_lt_functions *const f = &lt->f;
    const size_t workspace = GSV_LT_WORKSPACE_BYTES;
    const uint32_t no_split = CUBLASLT_REDUCTION_SCHEME_NONE;
    int n = 0;
    cublasStatus_t s = f->preference_create(&d->preference);

    if (s == CUBLAS_STATUS_SUCCESS)
        s = f->preference_set(d->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                              sizeof(workspace));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = f->preference_set(d->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_split,
                              sizeof(no_split));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = f->heuristic(lt->handle, d->desc, d->b, d->a, d->c, d->c, d->preference, 1, found, &n);
    return s == CUBLAS_STATUS_SUCCESS && n == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : s;
}

cudaError_t gsv_lt_matmul(struct gsv_lt *lt, const struct gsv_matmul *of,
                          const struct gsv_packed *rows, enum gsv_math math, void *workspace,
                          cudaStream_t stream)
{
    cublasLtMatmulHeuristicResult_t found = {};
    struct description d = {};
    cublasStatus_t status = describe(&lt->f, of, rows, math, &d);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = choose(lt, &d, &found);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = lt->f.matmul(lt->handle, d.desc, &of->alpha, rows->b, d.b, rows->a, d.a, &of->beta,
                              of->c, d.c, of->c, d.c, &found.algo, workspace,
                              GSV_LT_WORKSPACE_BYTES, stream);
    release(&lt->f, &d);
    return gsv_lt_error(status);
}
