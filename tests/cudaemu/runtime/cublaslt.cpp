/*
 * cublaslt.cpp - cuBLASLt by a naive product on the CPU, summed in float32 in the order of k.
 *
 * A, B, C and D have elements of float, half or bfloat16. Supports strided batches, and the
 * epilogues bias, ReLU and GELU in the tanh form, which cuBLASLt uses. Rejects what cuBLASLt
 * rejects: a leading dimension below the rows, a missing workspace, unequal sizes.
 */
#include <cmath>
#include <cstring>
#include <new>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cublasLt.h>

#include "state.h"

struct gsv_emu_blas_handle {
    char unused;
};

struct gsv_emu_blas_product {
    int32_t transpose_a = CUBLAS_OP_N;
    int32_t transpose_b = CUBLAS_OP_N;
    int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
    int32_t bias_type = -1; /* same as D */
    const void *bias = nullptr;
};

struct gsv_emu_blas_layout {
    int32_t type;
    int32_t order = CUBLASLT_ORDER_COL;
    uint64_t rows;
    uint64_t cols;
    int64_t ld;
    int32_t batches = 1;
    int64_t batch_stride = 0;
};

struct gsv_emu_blas_preference {
    uint64_t workspace_bytes = 0;
};

namespace
{

cublasStatus_t to_status(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
        return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorInvalidValue:
        return CUBLAS_STATUS_INVALID_VALUE;
    case cudaErrorDevicesUnavailable:
    case cudaErrorInitializationError:
        return CUBLAS_STATUS_NOT_INITIALIZED;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

/* Copies an attribute's value into its field; sizes must be equal. */
template <typename T> cublasStatus_t set(T *field, const void *value, size_t size)
{
    if (size != sizeof(T))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename... A>
cublasStatus_t create(const char *name, T **object, A... arguments)
{
    gsv_emu_entry entry(name);

    *object = nullptr;
    if (entry.failed())
        return to_status(entry.error());
    *object = new T{ arguments... };
    gsv_emu.counters.live_objects++;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t destroy(const char *name, T *object)
{
    gsv_emu_entry entry(name);

    gsv_emu.counters.live_objects -= object ? 1 : 0;
    delete object;
    return to_status(entry.error());
}

/* --- the product --------------------------------------------------------------------------------
 */

size_t element_size(int type)
{
    return type == CUDA_R_32F ? 4 : 2;
}

float load(const void *from, int type, size_t i)
{
    if (type == CUDA_R_32F)
        return static_cast<const float *>(from)[i];
    const uint16_t bits = static_cast<const uint16_t *>(from)[i];
    return type == CUDA_R_16F ? gsv_emu_half_to_float(bits) : gsv_emu_bfloat16_to_float(bits);
}

void store(void *to, int type, size_t i, float value)
{
    if (type == CUDA_R_32F)
        static_cast<float *>(to)[i] = value;
    else
        static_cast<uint16_t *>(to)[i] =
            type == CUDA_R_16F ? gsv_emu_float_to_half(value) : gsv_emu_float_to_bfloat16(value);
}

/* Offset of element (row, column). */
size_t offset(const gsv_emu_blas_layout &m, size_t row, size_t column)
{
    const size_t ld = static_cast<size_t>(m.ld);
    return m.order == CUBLASLT_ORDER_COL ? column * ld + row : row * ld + column;
}

/* op(m) as floats, row-major. */
std::vector<float> unpack(const gsv_emu_blas_layout &m, const void *from, bool transposed)
{
    const size_t rows = transposed ? m.cols : m.rows, cols = transposed ? m.rows : m.cols;
    std::vector<float> out(rows * cols);

    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            out[r * cols + c] = load(from, m.type, transposed ? offset(m, c, r) : offset(m, r, c));
    return out;
}

/* out[n][m] = sum over k of a[m][k] b[k][n], with m as the inner loop. */
std::vector<float> multiply(const std::vector<float> &a_by_k, const std::vector<float> &b_by_n,
                            size_t m, size_t n, size_t k, bool reversed)
{
    std::vector<float> out(m * n);

    for (size_t j = 0; j < n; j++) {
        float *column = &out[j * m];
        for (size_t step = 0; step < k; step++) {
            const size_t i = reversed ? k - 1 - step : step;
            const float factor = b_by_n[j * k + i];
            const float *row = &a_by_k[i * m];
            for (size_t r = 0; r < m; r++)
                column[r] += factor * row[r];
        }
    }
    return out;
}

float apply_epilogue(int epilogue, float x)
{
    if (epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        return x > 0 ? x : 0;
    if (epilogue == CUBLASLT_EPILOGUE_GELU || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS)
        return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    return x;
}

struct matmul {
    gsv_emu_blas_product product;
    gsv_emu_blas_layout a_layout, b_layout, c_layout, d_layout;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
    bool reversed;
};

const char *at_batch(const void *p, const gsv_emu_blas_layout &layout, int batch)
{
    return static_cast<const char *>(p) +
           batch * layout.batch_stride * static_cast<int64_t>(element_size(layout.type));
}

void run_one(const matmul &w, int batch)
{
    const size_t m = w.d_layout.rows, n = w.d_layout.cols;
    const size_t k = w.product.transpose_a ? w.a_layout.rows : w.a_layout.cols;
    const bool biased = w.product.epilogue & CUBLASLT_EPILOGUE_BIAS;
    const int bias_type = w.product.bias_type < 0 ? w.d_layout.type : w.product.bias_type;
    void *d = const_cast<char *>(at_batch(w.d, w.d_layout, batch));
    const void *c = w.c ? at_batch(w.c, w.c_layout, batch) : nullptr;
    const std::vector<float> sums =
        multiply(unpack(w.a_layout, at_batch(w.a, w.a_layout, batch), !w.product.transpose_a),
                 unpack(w.b_layout, at_batch(w.b, w.b_layout, batch), !w.product.transpose_b), m, n,
                 k, w.reversed);

    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < m; i++) {
            float x = w.alpha * sums[j * m + i];
            if (w.beta != 0)
                x += w.beta * load(c, w.c_layout.type, offset(w.c_layout, i, j));
            if (biased)
                x += load(w.product.bias, bias_type, i);
            store(d, w.d_layout.type, offset(w.d_layout, i, j),
                  apply_epilogue(w.product.epilogue, x));
        }
}

bool fits(const gsv_emu_blas_layout &m)
{
    const uint64_t needed = m.order == CUBLASLT_ORDER_COL ? m.rows : m.cols;
    return m.ld >= 0 && static_cast<uint64_t>(m.ld) >= needed &&
           (m.type == CUDA_R_32F || m.type == CUDA_R_16F || m.type == CUDA_R_16BF);
}

bool consistent(const gsv_emu_blas_product &p, const gsv_emu_blas_layout &a,
                const gsv_emu_blas_layout &b, const gsv_emu_blas_layout &c,
                const gsv_emu_blas_layout &d)
{
    const uint64_t m = p.transpose_a ? a.cols : a.rows, k = p.transpose_a ? a.rows : a.cols;
    const uint64_t k_of_b = p.transpose_b ? b.cols : b.rows, n = p.transpose_b ? b.rows : b.cols;

    return fits(a) && fits(b) && fits(c) && fits(d) && k == k_of_b && d.rows == m && d.cols == n &&
           c.rows == m && c.cols == n && a.type == b.type &&
           (!(p.epilogue & CUBLASLT_EPILOGUE_BIAS) || p.bias);
}

/* True if the matrix is inside one device allocation. */
bool on_device(const void *p, const gsv_emu_blas_layout &m)
{
    const size_t last = offset(m, m.rows - 1, m.cols - 1) + 1;
    const size_t batches = static_cast<size_t>(m.batches - 1) * static_cast<size_t>(m.batch_stride);
    const gsv_emu_allocation *found = gsv_emu_find(p, (last + batches) * element_size(m.type));

    return found && found->device;
}

/* Rejections set by the test; protected by gsv_emu.lock. */
gsv_emu_refusal refusal = {};
uint64_t n_refused = 0;
uint32_t refusal_state = 0;
int64_t reversed_from = 0;

bool is_aligned(const void *p, int alignment)
{
    return alignment == 0 ||
           reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment) == 0;
}

/* `b` and `d` are NULL in a check, which has no addresses. */
bool is_refused(const gsv_emu_blas_layout &d_layout, const void *b, const void *d)
{
    const int64_t columns = static_cast<int64_t>(d_layout.cols);
    const bool misaligned = !is_aligned(b, refusal.alignment) || !is_aligned(d, refusal.alignment);

    if (refusal.one_in == 0 || (!misaligned && refusal.alignment) ||
        columns < refusal.columns_from || columns > refusal.columns_to)
        return false;
    refusal_state = refusal_state * 1664525u + 1013904223u;
    if ((refusal_state >> 16) % refusal.one_in != 0)
        return false;
    n_refused++;
    return true;
}

} // namespace

void gsv_emu_refuse_products(const gsv_emu_refusal *next)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);

    refusal = *next;
    refusal_state = next->seed;
    n_refused = 0;
}

void gsv_emu_reverse_products(int64_t columns)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);

    reversed_from = columns;
}

uint64_t gsv_emu_refused_products(void)
{
    std::lock_guard<std::mutex> lock(gsv_emu.lock);

    return n_refused;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    return create("cublasLtCreate", handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy("cublasLtDestroy", handle);
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (scale != CUDA_R_32F || compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_16F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return create("cublasLtMatmulDescCreate", desc);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return destroy("cublasLtMatmulDescDestroy", desc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size)
{
    gsv_emu_entry entry("cublasLtMatmulDescSetAttribute");

    if (entry.failed())
        return to_status(entry.error());
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&desc->transpose_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&desc->transpose_b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&desc->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return set(&desc->pointer_mode, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(&desc->bias_type, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&desc->bias, value, size);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    const int32_t number = type, order = CUBLASLT_ORDER_COL;
    return create("cublasLtMatrixLayoutCreate", layout, number, order, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy("cublasLtMatrixLayoutDestroy", layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t size)
{
    gsv_emu_entry entry("cublasLtMatrixLayoutSetAttribute");

    if (entry.failed())
        return to_status(entry.error());
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return set(&layout->type, value, size);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return set(&layout->order, value, size);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return set(&layout->rows, value, size);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return set(&layout->cols, value, size);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return set(&layout->ld, value, size);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&layout->batches, value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&layout->batch_stride, value, size);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    return create("cublasLtMatmulPreferenceCreate", preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy("cublasLtMatmulPreferenceDestroy", preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size)
{
    gsv_emu_entry entry("cublasLtMatmulPreferenceSetAttribute");

    if (entry.failed())
        return to_status(entry.error());
    if (attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return CUBLAS_STATUS_SUCCESS;
    return set(&preference->workspace_bytes, value, size);
}

/* Both results require the whole allowed workspace, so that a call with less is detected. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned)
{
    gsv_emu_entry entry("cublasLtMatmulAlgoGetHeuristic");

    *returned = 0;
    if (entry.failed())
        return to_status(entry.error());
    if (!consistent(*desc, *a, *b, *c, *d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < requested && i < 2; i++) {
        results[i] = cublasLtMatmulHeuristicResult_t();
        results[i].algo.data[0] = static_cast<uint64_t>(i) + 1;
        results[i].algo.data[1] = results[i].workspaceSize = preference->workspace_bytes;
        results[i].wavesCount = 1;
        ++*returned;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    gsv_emu_entry entry("cublasLtMatmulAlgoCheck");

    if (entry.failed())
        return to_status(entry.error());
    if (!consistent(*desc, *a, *b, *c, *d) ||
        (refusal.in_check && is_refused(*d, nullptr, nullptr)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = cublasLtMatmulHeuristicResult_t();
    result->algo = *algo;
    result->workspaceSize = algo->data[1];
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t size, size_t *written)
{
    gsv_emu_entry entry("cublasLtMatmulAlgoConfigGetAttribute");
    const int32_t number = attribute == CUBLASLT_ALGO_CONFIG_ID ? static_cast<int>(algo->data[0])
                           : attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1
                                                                          : 0;

    if (entry.failed())
        return to_status(entry.error());
    if (size < sizeof(number))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &number, sizeof(number));
    if (written)
        *written = sizeof(number);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    gsv_emu_entry entry("cublasLtMatmul");
    gsv_emu_operation operation = { gsv_emu_work::product, 0, nullptr, nullptr, {} };

    if (entry.failed())
        return to_status(entry.error());
    if (!handle || !consistent(*desc, *a_layout, *b_layout, *c_layout, *d_layout) ||
        desc->pointer_mode != CUBLASLT_POINTER_MODE_HOST)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo && (algo->data[1] > workspace_bytes || (algo->data[1] && !workspace)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (is_refused(*d_layout, b, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool reversed =
        reversed_from > 0 && static_cast<int64_t>(d_layout->cols) >= reversed_from;
    matmul work = { *desc, *a_layout, *b_layout, *c_layout, *d_layout, a, b, c, d, 0, 0, reversed };
    memcpy(&work.alpha, alpha, sizeof(work.alpha));
    memcpy(&work.beta, beta, sizeof(work.beta));
    if (!on_device(a, *a_layout) || !on_device(b, *b_layout) || !on_device(d, *d_layout) ||
        (work.beta != 0 && !on_device(c, *c_layout)))
        return to_status(entry.finish(cudaErrorIllegalAddress));
    operation.run = [work] {
        for (int i = 0; i < work.d_layout.batches; i++)
            run_one(work, i);
        return cudaSuccess;
    };
    return to_status(entry.finish(gsv_emu_enqueue(gsv_emu_stream(stream), std::move(operation))));
}

} // extern "C"
