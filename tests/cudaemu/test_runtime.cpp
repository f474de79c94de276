/*
 * test_runtime.cpp - the fake runtime: memory, late streams, events, graphs, planned failures.
 */
#include <criterion/criterion.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include <cublasLt.h>
#include <cuda_fp16.h>

#include "device_memory.h"
#include "emu.h"
#include "kernels/cuda/runtime/launch.cuh"

namespace
{

__global__ void put(int *at, int value)
{
    *at = value;
}

__global__ void add(int *at, int value)
{
    *at += value;
}

__global__ void times(int *at, int value)
{
    *at *= value;
}

struct fixture {
    int *device = nullptr;
    int *pinned = nullptr;
    cudaStream_t a = nullptr, b = nullptr;
    cudaEvent_t event = nullptr;

    fixture()
    {
        gsv_emu_reset();
        cr_assert_eq(cudaMalloc(&device, 64), cudaSuccess);
        cr_assert_eq(cudaMallocHost(&pinned, 64), cudaSuccess);
        cr_assert_eq(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
        cr_assert_eq(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
        cr_assert_eq(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    }

    ~fixture()
    {
        gsv_emu_counters c;

        cudaEventDestroy(event);
        cudaStreamDestroy(a);
        cudaStreamDestroy(b);
        cudaFreeHost(pinned);
        cudaFree(device);
        gsv_emu_get_counters(&c);
        cr_expect_eq(c.live_allocations, 0);
        cr_expect_eq(c.live_objects, 0);
        cr_expect_eq(c.live_bytes, 0);
    }

    int value() const
    {
        int v;
        cr_expect_eq(cudaMemcpy(&v, device, sizeof(v), cudaMemcpyDeviceToHost), cudaSuccess);
        return v;
    }
};

/* Multiplies on one stream, adds on the other; with the edge the result is always the same. */
int run_two_streams(fixture &f, bool edge)
{
    GSV_LAUNCH(put, 1, 1, 0, f.a, f.device, 3);
    cudaStreamSynchronize(f.a);
    GSV_LAUNCH(times, 1, 1, 0, f.a, f.device, 10);
    cudaEventRecord(f.event, f.a);
    if (edge)
        cudaStreamWaitEvent(f.b, f.event);
    GSV_LAUNCH(add, 1, 1, 0, f.b, f.device, 4);
    cr_expect_eq(cudaDeviceSynchronize(), cudaSuccess);
    return f.value();
}

} // namespace

Test(cudaemu_runtime, memory_limit_poison_and_peak)
{
    gsv_emu_counters c;
    unsigned char *p, *q, host[16];
    size_t free_bytes, total;

    gsv_emu_set_memory(1000);
    cr_assert_eq(cudaMalloc(&p, 600), cudaSuccess);
    cr_expect_eq((uintptr_t)p % 256, 0);
    cr_expect_eq(cudaMalloc(&q, 401), cudaErrorMemoryAllocation);
    cr_expect_null(q);
    cr_expect_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    cr_expect_eq(cudaGetLastError(), cudaSuccess, "out of memory does not stick");
    cr_assert_eq(cudaMalloc(&q, 400), cudaSuccess);
    cudaMemGetInfo(&free_bytes, &total);
    cr_expect_eq(free_bytes, 0);
    cr_expect_eq(total, 1000);
    cudaMemcpy(host, p + 584, 16, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 16; i++)
        cr_expect_eq(host[i], 0xff);
    cr_expect_eq(cudaMemcpy(host, p + 585, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    cr_expect_eq(cudaMemcpy(host, p, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    cr_expect_eq(cudaFree(p), cudaSuccess);
    cr_expect_eq(cudaFree(q), cudaSuccess);
    cr_expect_eq(cudaFree(q), cudaErrorInvalidValue, "freed twice");
    cr_expect_eq(cudaFree(nullptr), cudaSuccess);
    gsv_emu_get_counters(&c);
    cr_expect_eq(c.peak_bytes, 1000);
    cr_expect_eq(c.live_bytes, 0);
    cr_expect_eq(c.allocations, 2);
}

Test(cudaemu_runtime, late_streams_show_a_missing_event)
{
    fixture f;
    int with_edge = 0, first_order = 0, second_order = 0;

    gsv_emu_set_late(1);
    for (uint64_t seed = 1; seed <= 32; seed++) {
        gsv_emu_seed(seed);
        with_edge += run_two_streams(f, true) == 34;
        const int without = run_two_streams(f, false);
        first_order += without == 34;
        second_order += without == 70;
    }
    cr_expect_eq(with_edge, 32);
    cr_expect_gt(first_order, 0);
    cr_expect_gt(second_order, 0);
    cr_expect_eq(first_order + second_order, 32);
}

Test(cudaemu_runtime, pinned_memory_is_read_late_and_pageable_at_once)
{
    fixture f;
    int pageable = 1;

    gsv_emu_set_late(1);
    cudaMemcpyAsync(f.device, &pageable, sizeof(int), cudaMemcpyHostToDevice, f.a);
    pageable = 2;
    cudaStreamSynchronize(f.a);
    cr_expect_eq(f.value(), 1);
    *f.pinned = 3;
    cudaMemcpyAsync(f.device, f.pinned, sizeof(int), cudaMemcpyHostToDevice, f.a);
    *f.pinned = 4;
    cr_expect_eq(cudaStreamQuery(f.b), cudaSuccess);
    cudaStreamSynchronize(f.a);
    cr_expect_eq(f.value(), 4, "a buffer that is reused too early shows");
}

Test(cudaemu_runtime, graph_is_captured_replayed_and_updated)
{
    fixture f;
    cudaGraph_t graph, other;
    cudaGraphExec_t exec;
    cudaGraphExecUpdateResultInfo info;
    cudaEvent_t back;
    gsv_emu_counters c;
    size_t n_nodes = 0;

    cudaEventCreateWithFlags(&back, cudaEventDisableTiming);
    cudaMemset(f.device, 0, 64);
    cr_assert_eq(cudaStreamBeginCapture(f.a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    GSV_LAUNCH(put, 1, 1, 0, f.a, f.device, 5);
    cudaEventRecord(f.event, f.a);
    cudaStreamWaitEvent(f.b, f.event);
    GSV_LAUNCH(times, 1, 1, 0, f.b, f.device, 6);
    cudaEventRecord(back, f.b);
    cudaStreamWaitEvent(f.a, back);
    GSV_LAUNCH(add, 1, 1, 0, f.a, f.device, 7);
    cr_assert_eq(cudaStreamEndCapture(f.a, &graph), cudaSuccess);
    cr_expect_eq(f.value(), 0, "nothing ran while captured");
    cr_assert_eq(cudaGraphInstantiate(&exec, graph), cudaSuccess);
    cudaGraphGetNodes(graph, nullptr, &n_nodes);
    cr_expect_eq(n_nodes, 3);
    gsv_emu_set_late(1);
    for (uint64_t seed = 1; seed <= 8; seed++) {
        gsv_emu_seed(seed);
        cr_assert_eq(cudaGraphLaunch(exec, f.a), cudaSuccess);
        cr_expect_eq(cudaStreamSynchronize(f.a), cudaSuccess);
        cr_expect_eq(f.value(), 37);
    }
    gsv_emu_get_counters(&c);
    cr_expect_eq(c.graph_launches, 8);
    cr_expect_eq(c.launches, 24);

    cudaStreamBeginCapture(f.a, cudaStreamCaptureModeThreadLocal);
    GSV_LAUNCH(put, 1, 1, 0, f.a, f.device, 5);
    cudaStreamEndCapture(f.a, &other);
    cr_expect_eq(cudaGraphExecUpdate(exec, other, &info), cudaErrorGraphExecUpdateFailure);
    cr_expect_eq(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    cudaGraphDestroy(other);
    cudaGraphDestroy(graph);
    cudaGraphLaunch(exec, f.a);
    cudaGraphExecDestroy(exec);
    cr_expect_eq(cudaStreamSynchronize(f.a), cudaSuccess, "runs on after its destruction");
    cudaEventDestroy(back);
}

Test(cudaemu_runtime, what_a_capture_does_not_allow)
{
    fixture f;
    cudaGraph_t graph;
    void *memory;

    cudaStreamBeginCapture(f.a, cudaStreamCaptureModeThreadLocal);
    cr_expect_eq(cudaStreamSynchronize(f.a), cudaErrorStreamCaptureUnsupported);
    cr_expect_eq(cudaStreamEndCapture(f.a, &graph), cudaErrorStreamCaptureInvalidated);
    cr_expect_null(graph);

    cudaStreamBeginCapture(f.a, cudaStreamCaptureModeGlobal);
    cr_expect_eq(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
    cr_expect_eq(cudaStreamEndCapture(f.a, &graph), cudaErrorStreamCaptureInvalidated);

    cudaStreamBeginCapture(f.a, cudaStreamCaptureModeRelaxed);
    GSV_LAUNCH(put, 1, 1, 0, f.a, f.device, 1);
    cudaEventRecord(f.event, f.a);
    cudaStreamWaitEvent(f.b, f.event);
    GSV_LAUNCH(put, 1, 1, 0, f.b, f.device, 1);
    cr_expect_eq(cudaStreamEndCapture(f.a, &graph), cudaErrorStreamCaptureUnjoined);
    cudaGetLastError();
}

Test(cudaemu_runtime, planned_failures)
{
    const int sticky[] = { 700, 719, 214, 999 }, passing[] = { 2, 46 };

    for (int error : sticky) {
        fixture f;
        gsv_emu_fail_call(2, error);
        cr_expect_eq(GSV_LAUNCH(put, 1, 1, 0, f.a, f.device, 1), cudaSuccess);
        cr_expect_null(gsv_emu_failed_call());
        cr_expect_eq(cudaStreamSynchronize(f.a), error);
        cr_expect_str_eq(gsv_emu_failed_call(), "cudaStreamSynchronize");
        cr_expect_eq(cudaStreamSynchronize(f.a), error, "it sticks");
        cr_expect_eq(cudaGetLastError(), error);
        cr_expect_eq(cudaGetLastError(), error);
    }
    for (int error : passing) {
        fixture f;
        gsv_emu_fail_call(1, error);
        cr_expect_eq(cudaStreamSynchronize(f.a), error);
        cr_expect_eq(cudaStreamSynchronize(f.a), cudaSuccess);
        cr_expect_eq(cudaGetLastError(), error);
        cr_expect_eq(cudaGetLastError(), cudaSuccess);
    }
    {
        fixture f;
        gsv_emu_set_devices(2, 0);
        gsv_emu_fail_call(1, 719);
        cr_expect_eq(cudaSetDevice(1), 719, "the thread's device is 0, the failing one is 1");
        cr_expect_eq(cudaStreamSynchronize(f.a), cudaSuccess);
        cr_expect_eq(cudaSetDevice(1), 719);
        cr_expect_eq(cudaSetDevice(0), cudaSuccess);
    }
    gsv_emu_reset();
    int count = 7;
    gsv_emu_set_devices(0, 0);
    cr_expect_eq(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    gsv_emu_set_devices(0, cudaErrorInsufficientDriver);
    cr_expect_eq(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    gsv_emu_set_devices(3, 0);
    cr_expect_eq(cudaGetDeviceCount(&count), cudaSuccess);
    cr_expect_eq(count, 3);
}

Test(cudaemu_runtime, a_device_that_hangs)
{
    fixture f;

    gsv_emu_hang(1);
    GSV_LAUNCH(put, 1, 1, 0, f.a, f.device, 8);
    cudaEventRecord(f.event, f.a);
    for (int i = 0; i < 100; i++)
        cr_expect_eq(cudaEventQuery(f.event), cudaErrorNotReady);
    cr_expect_eq(cudaStreamQuery(f.a), cudaErrorNotReady);
    std::thread rescue([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        gsv_emu_hang(0);
    });
    cr_expect_eq(cudaStreamSynchronize(f.a), cudaSuccess);
    rescue.join();
    cr_expect_eq(f.value(), 8);
}

/* D [n][m] row-major = X [n][k] W^T [m][k] + bias, as linear layers use it. */
Test(cudaemu_runtime, matrix_product_of_cublaslt)
{
    const int m = 5, n = 3, k = 4;
    half w[m * k], x[n * k], out[n * m], bias[m];
    const float one = 1, zero = 0;
    const cublasOperation_t transpose = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t lw, lx, lo;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found[4];
    int n_found;
    gsv_emu_counters c;

    for (int i = 0; i < m * k; i++)
        w[i] = half((float)(i * 7 % 11 - 5));
    for (int i = 0; i < n * k; i++)
        x[i] = half((float)(i * 3 % 7 - 3));
    for (int i = 0; i < m; i++)
        bias[i] = half((float)i);
    device_memory<half> device_w(w, m * k), device_x(x, n * k), device_out(n * m),
        device_bias(bias, m);
    const half *bias_pointer = device_bias;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                   sizeof(transpose));
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                   sizeof(epilogue));
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_pointer,
                                   sizeof(bias_pointer));
    cublasLtMatrixLayoutCreate(&lw, CUDA_R_16F, k, m, k);
    cublasLtMatrixLayoutCreate(&lx, CUDA_R_16F, k, n, k);
    cublasLtMatrixLayoutCreate(&lo, CUDA_R_16F, m, n, m);
    cublasLtMatmulPreferenceCreate(&preference);
    cr_assert_eq(cublasLtMatmulAlgoGetHeuristic(handle, desc, lw, lx, lo, lo, preference, 4, found,
                                                &n_found),
                 CUBLAS_STATUS_SUCCESS);
    cr_expect_eq(n_found, 2);
    cr_assert_eq(cublasLtMatmul(handle, desc, &one, device_w, lw, device_x, lx, &zero, device_out,
                                lo, device_out, lo, &found[0].algo, nullptr, 0, nullptr),
                 CUBLAS_STATUS_SUCCESS);
    cudaMemcpy(out, device_out, sizeof(out), cudaMemcpyDeviceToHost);
    for (int row = 0; row < n; row++)
        for (int column = 0; column < m; column++) {
            float want = bias[column];
            for (int i = 0; i < k; i++)
                want += (float)w[column * k + i] * (float)x[row * k + i];
            cr_expect_eq((float)out[row * m + column], want, "[%d][%d]", row, column);
        }
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(lw);
    cublasLtMatrixLayoutDestroy(lx);
    cublasLtMatrixLayoutDestroy(lo);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    gsv_emu_get_counters(&c);
    cr_expect_eq(c.live_objects, 0);
    cr_expect_eq(c.launches, 1);
}
