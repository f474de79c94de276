/*
 * probe.cu - probes cuBLASLt behaviour that its manual does not define, as JSON lines.
 *
 *     probe
 *
 * Determines which GELU its epilogue computes, and whether e4m3 products accept our scales. Result
 * of the first: cuBLASLt does not compute the erf GELU, so such models use our own kernels.
 */
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int SIDE = 32; /* of all matrices */
static const int ELEMENTS = SIDE * SIDE;
static const size_t WORKSPACE_BYTES = size_t{ 4 } << 20;

static void check(int code, const char *call)
{
    if (code != 0) {
        fprintf(stderr, "%s failed with %d\n", call, code);
        exit(1);
    }
}

#define CHECK(call) check(static_cast<int>(call), #call)

template <typename T>
static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, T value)
{
    CHECK(cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof(value)));
}

static void *to_device(const void *from, size_t size)
{
    void *memory = NULL;

    CHECK(cudaMalloc(&memory, size));
    if (from)
        CHECK(cudaMemcpy(memory, from, size, cudaMemcpyHostToDevice));
    return memory;
}

/* D = epilogue(A^T B), column-major squares; false if cuBLASLt has no algorithm for it. */
static bool multiply(cublasLtMatmulDesc_t desc, cudaDataType_t in_type, cudaDataType_t out_type,
                     const void *a, const void *b, void *d)
{
    const float one = 1.f, zero = 0.f;
    cublasLtHandle_t handle;
    cublasLtMatrixLayout_t in, out;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found = {};
    int n = 0;
    void *const workspace = to_device(NULL, WORKSPACE_BYTES);

    CHECK(cublasLtCreate(&handle));
    CHECK(cublasLtMatrixLayoutCreate(&in, in_type, SIDE, SIDE, SIDE));
    CHECK(cublasLtMatrixLayoutCreate(&out, out_type, SIDE, SIDE, SIDE));
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &WORKSPACE_BYTES, sizeof(WORKSPACE_BYTES)));
    if (cublasLtMatmulAlgoGetHeuristic(handle, desc, in, in, out, out, preference, 1, &found, &n) !=
        CUBLAS_STATUS_SUCCESS)
        n = 0;
    if (n > 0) {
        CHECK(cublasLtMatmul(handle, desc, &one, a, in, b, in, &zero, d, out, d, out, &found.algo,
                             workspace, WORKSPACE_BYTES, 0));
        CHECK(cudaDeviceSynchronize());
    }
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(in);
    cublasLtMatrixLayoutDestroy(out);
    cublasLtDestroy(handle);
    cudaFree(workspace);
    return n > 0;
}

/* Row i of A is x[i] in column 0, column j of B is 1 in row 0, so D is GELU(x[i]) in row i. */
static void probe_gelu(void)
{
    static float a[ELEMENTS], b[ELEMENTS], d[ELEMENTS];
    double from_erf = 0, from_tanh = 0;
    cublasLtMatmulDesc_t desc;
    bool there;

    for (int i = 0; i < SIDE; i++) {
        a[i * SIDE] = -4.f + 0.25f * static_cast<float>(i);
        b[i * SIDE] = 1.f;
    }
    void *const on_a = to_device(a, sizeof(a)), *const on_b = to_device(b, sizeof(b));
    void *const on_d = to_device(d, sizeof(d));
    CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU);
    there = multiply(desc, CUDA_R_32F, CUDA_R_32F, on_a, on_b, on_d);
    CHECK(cudaMemcpy(d, on_d, sizeof(d), cudaMemcpyDeviceToHost));
    for (int i = 0; i < SIDE && there; i++) {
        const double x = static_cast<double>(a[i * SIDE]), got = static_cast<double>(d[i]);
        const double by_tanh =
            0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));

        from_erf = fmax(from_erf, fabs(got - 0.5 * x * erfc(-x * 0.70710678118654752)));
        from_tanh = fmax(from_tanh, fabs(got - by_tanh));
    }
    printf("{\"stage\": \"probe\", \"name\": \"cublaslt_gelu\", \"kind\": \"%s\", \"from_erf\": "
           "%.3g, \"from_tanh\": %.3g}\n",
           !there                 ? "none"
           : from_erf < from_tanh ? "erf"
                                  : "tanh",
           from_erf, from_tanh);
    cublasLtMatmulDescDestroy(desc);
    cudaFree(on_a), cudaFree(on_b), cudaFree(on_d);
}

#ifdef GSV_CUDA_EMU

static void probe_fp8(void)
{
    printf(
        "{\"stage\": \"probe\", \"name\": \"fp8\", \"skipped\": \"the emulator has no e4m3\"}\n");
}

#else

/* Exact e4m3 values: sums of their products are exact in bfloat16 too. */
static uint8_t e4m3(int i)
{
    static const uint8_t codes[] = { 0x30, 0x38, 0x40, 0xb8 };

    return codes[i % 4];
}

static float value_of(uint8_t code)
{
    return code == 0x30 ? 0.5f : code == 0x38 ? 1.f : code == 0x40 ? 2.f : -1.f;
}

static float from_bfloat16(uint16_t bits)
{
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return value;
}

static void probe_fp8(void)
{
    static uint8_t a[ELEMENTS], b[ELEMENTS];
    static uint16_t d[ELEMENTS];
    const float a_scale = 0.25f, b_scale = 2.f;
    double worst = 0;
    cublasLtMatmulDesc_t desc;
    bool there;

    for (int i = 0; i < ELEMENTS; i++) {
        a[i] = e4m3(i * 7 + i / SIDE);
        b[i] = e4m3(i * 3 + i / SIDE);
    }
    void *const on_a = to_device(a, sizeof(a)), *const on_b = to_device(b, sizeof(b));
    void *const on_d = to_device(d, sizeof(d));
    void *const on_a_scale = to_device(&a_scale, sizeof(a_scale));
    void *const on_b_scale = to_device(&b_scale, sizeof(b_scale));
    CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, on_a_scale);
    set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, on_b_scale);
    there = multiply(desc, CUDA_R_8F_E4M3, CUDA_R_16BF, on_a, on_b, on_d);
    CHECK(cudaMemcpy(d, on_d, sizeof(d), cudaMemcpyDeviceToHost));
    for (int i = 0; i < ELEMENTS && there; i++) {
        double want = 0;

        for (int k = 0; k < SIDE; k++)
            want += static_cast<double>(value_of(a[i % SIDE * SIDE + k])) *
                    static_cast<double>(value_of(b[i / SIDE * SIDE + k]));
        want *= static_cast<double>(a_scale * b_scale);
        worst = fmax(worst,
                     fabs(static_cast<double>(from_bfloat16(d[i])) - want) / fmax(1.0, fabs(want)));
    }
    printf("{\"stage\": \"probe\", \"name\": \"fp8\", \"works\": %s, \"max_relative\": %.3g}\n",
           there ? "true" : "false", worst);
    cublasLtMatmulDescDestroy(desc);
    cudaFree(on_a), cudaFree(on_b), cudaFree(on_d), cudaFree(on_a_scale), cudaFree(on_b_scale);
}

#endif

int main(void)
{
    probe_gelu();
    probe_fp8();
    return 0;
}
