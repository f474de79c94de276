/*
 * test_faults.cpp - the emulator detects each kind of fault. Each small kernel has one planted
 * error; the same kernel without it must pass.
 */
#include <criterion/criterion.h>

#include <cmath>
#include <cstring>

#include "device/sanitizers.h"
#include "device_memory.h"
#include "emu.h"
#include "kernels/cuda/runtime/launch.cuh"
#include "kernels/cuda/ops/ptx_hopper.cuh"

namespace
{

/* Expects a fault with this error, and a report that contains each text. */
void expect_fault(cudaError_t error, std::initializer_list<const char *> texts)
{
    cr_expect_eq(cudaDeviceSynchronize(), error, "%s", cudaGetErrorName(cudaPeekAtLastError()));
    for (const char *text : texts)
        cr_expect(strstr(gsv_emu_report(), text), "\"%s\" is not in: %s", text, gsv_emu_report());
    gsv_emu_reset();
}

void expect_no_fault()
{
    cr_expect_eq(cudaDeviceSynchronize(), cudaSuccess, "%s", gsv_emu_report());
    cr_expect_str_empty(gsv_emu_report());
}

/* Each thread writes its index to shared memory and reads that of the mirrored thread. */
__global__ void reverse_block(int *out, bool synchronize)
{
    GSV_SHARED(int, values);
    const unsigned i = threadIdx.x;

    values[i] = (int)i;
    if (synchronize)
        __syncthreads();
    out[i] = values[blockDim.x - 1 - i];
}

__global__ void copy_async(float *out, const float *in, bool wait)
{
    GSV_SHARED(float, values);
    const unsigned i = 4 * threadIdx.x;

    gsv_cp_async_16(values + i, in + i);
    gsv_cp_async_commit();
    if (wait)
        gsv_cp_async_wait<0>();
    __syncthreads();
    for (unsigned j = i; j < i + 4; j++)
        out[j] = values[j];
}

/* Two groups in flight; a wait for all but the last must not complete the second group's data. */
__global__ void copy_two_groups(float *out, const float *in)
{
    GSV_SHARED(float, values);

    for (int group = 0; group < 2; group++) {
        gsv_cp_async_4(values + group, in + group);
        gsv_cp_async_commit();
    }
    gsv_cp_async_wait<1>();
    out[0] = values[0];
    out[1] = values[1];
    gsv_cp_async_wait<0>();
    out[2] = values[1];
    gsv_cp_async_4(values, in, false);
    gsv_cp_async_commit();
    gsv_cp_async_wait<0>();
    out[3] = values[0];
}

__global__ void sum_lanes(int *out, unsigned n)
{
    const unsigned i = threadIdx.x;
    int sum = (int)i;

    if (i >= n)
        return;
    for (int offset = 16; offset; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    out[i] = sum;
}

__global__ void leave_before_barrier(int *out, unsigned n)
{
    if (threadIdx.x >= n)
        return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void different_functions(int *out, bool together)
{
    const unsigned i = threadIdx.x;

    out[i] = together || i < 16 ? __shfl_xor_sync(0xffffffffu, 1, 1)
                                : __shfl_down_sync(0xffffffffu, 1, 1);
}

__global__ void write_at(float *at, int index)
{
    if (threadIdx.x == 0)
        at[index] = 1.0f;
}

__global__ void write_shared_at(float *out, int index)
{
    GSV_SHARED(float, values);

    values[index] = 1.0f;
    out[0] = values[index];
}

__global__ void read_vector_at(float *out, const float *in, int index)
{
    const float4 v = *reinterpret_cast<const float4 *>(in + index);

    out[0] = v.x + v.y + v.z + v.w;
}

__global__ void load_matrix_at(float *out, int offset_bytes)
{
    GSV_SHARED(char, values);
    uint32_t r[1];

    gsv_ldmatrix_x1(r, values + offset_bytes + threadIdx.x % 8 * 16);
    out[threadIdx.x] = (float)r[0];
}

/* Each block waits until all have signalled, then reads what the last block wrote. */
__global__ void relay(unsigned *counter, float *out, unsigned target)
{
    if (threadIdx.x == 0) {
        out[blockIdx.x] = 1.f + static_cast<float>(blockIdx.x);
        gsv_signal(counter);
        gsv_wait_for(counter, target);
    }
    __syncthreads();
    out[gridDim.x + blockIdx.x] = out[gridDim.x - 1 - blockIdx.x];
}

__global__ void overlap(float *out, bool wait)
{
    if (wait)
        gsv_grid_wait();
    out[threadIdx.x] = 1.0f;
}

} // namespace

enum class hopper_fault {
    none,
    no_wait_for_the_box,
    no_wait_for_the_product,
    no_initialization,
    too_many_arrivals,
    too_few_bytes,
    never_waits,
    lanes_disagree,
};

/* One warp group multiplies a box of 64 x 64 by itself. */
__global__ void square_box(float *out, const CUtensorMap map, hopper_fault fault)
{
    GSV_SHARED(char, memory);
    char *const tile = memory + (-gsv_shared_address(memory) & 1023);
    uint64_t *const barrier = reinterpret_cast<uint64_t *>(tile + 8192);
    const uint64_t operand = gsv_wgmma_operand(tile);
    float sums[32];

    if (threadIdx.x == 0 && fault != hopper_fault::no_initialization)
        gsv_barrier_init(barrier, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        gsv_barrier_expect(barrier, fault == hopper_fault::too_few_bytes ? 4096 : 8192);
        if (fault == hopper_fault::too_many_arrivals)
            gsv_barrier_arrive(barrier);
        gsv_tma_load(tile, &map, 0, 0, barrier);
    }
    if (fault == hopper_fault::never_waits)
        return;
    if (fault != hopper_fault::no_wait_for_the_box)
        gsv_barrier_wait(barrier, 0);
    gsv_wgmma(sums, operand,
              fault == hopper_fault::lanes_disagree && threadIdx.x == 3 ? operand + 2 : operand,
              false, half());
    gsv_wgmma_commit();
    if (fault != hopper_fault::no_wait_for_the_product)
        gsv_wgmma_wait<0>();
    out[threadIdx.x] = sums[0];
    gsv_wgmma_wait<0>();
    gsv_barrier_wait(barrier, 0);
}

Test(cudaemu_faults, boxes_and_products_of_groups)
{
    const cuuint64_t sizes[] = { 64, 64 }, strides[] = { 128 };
    const cuuint32_t box[] = { 64, 64 }, steps[] = { 1, 1 };
    const std::vector<uint16_t> ones(64 * 64, half(1.f).bits);
    device_memory<uint16_t> matrix(ones.data(), ones.size());
    device_memory<float> device(128);
    CUtensorMap map;
    float out[128];
    const auto run = [&](hopper_fault fault) {
        GSV_LAUNCH(square_box, 1, 128, 1024 + 8192 + 8, nullptr, device, map, fault);
    };

    cr_assert_eq(cuTensorMapEncodeTiled(
                     &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (uint16_t *)matrix, sizes, strides,
                     box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                 CUDA_SUCCESS);
    for (hopper_fault fault : { hopper_fault::none, hopper_fault::no_wait_for_the_box,
                                hopper_fault::no_wait_for_the_product }) {
        run(fault);
        cudaMemcpy(out, device, sizeof(out), cudaMemcpyDeviceToHost);
        for (float x : out)
            cr_expect(fault == hopper_fault::none ? x == 16.f : std::isnan(x), "%g", x);
    }
    expect_no_fault();
    run(hopper_fault::no_initialization);
    expect_fault(cudaErrorLaunchFailure, { "before its initialization" });
    run(hopper_fault::too_many_arrivals);
    expect_fault(cudaErrorLaunchFailure, { "more than its 1 arrivals" });
    run(hopper_fault::too_few_bytes);
    expect_fault(cudaErrorLaunchFailure, { "deadlock", "gsv_barrier_wait" });
    run(hopper_fault::never_waits);
    expect_fault(cudaErrorLaunchFailure, { "a TMA copy is in flight" });
    run(hopper_fault::lanes_disagree);
    expect_fault(cudaErrorLaunchFailure, { "wgmma", "other tiles" });
}

Test(cudaemu_faults, missing_syncthreads)
{
    int out[64];
    device_memory<int> device(64);

    for (uint64_t seed = 0; seed < 4; seed++) {
        gsv_emu_seed(seed);
        for (int synchronize = 0; synchronize < 2; synchronize++) {
            int wrong = 0;
            cr_assert_eq(GSV_LAUNCH(reverse_block, 1, 64, 64 * sizeof(int), nullptr, device,
                                    synchronize != 0),
                         cudaSuccess);
            cudaMemcpy(out, device, sizeof(out), cudaMemcpyDeviceToHost);
            for (int i = 0; i < 64; i++)
                wrong += out[i] != 63 - i;
            cr_expect(synchronize ? wrong == 0 : wrong > 0, "%d wrong", wrong);
        }
    }
    expect_no_fault();
}

Test(cudaemu_faults, missing_wait_for_cp_async)
{
    float in[128], out[128];
    device_memory<float> from(128), to(128);

    for (int i = 0; i < 128; i++)
        in[i] = (float)i;
    cudaMemcpy(from, in, sizeof(in), cudaMemcpyHostToDevice);
    for (int wait = 0; wait < 2; wait++) {
        cr_assert_eq(GSV_LAUNCH(copy_async, 1, 32, sizeof(in), nullptr, to, from, wait != 0), 0);
        cudaMemcpy(out, to, sizeof(out), cudaMemcpyDeviceToHost);
        for (int i = 0; i < 128; i++)
            cr_expect(wait ? out[i] == in[i] : std::isnan(out[i]), "[%d] is %g", i, out[i]);
    }
    cr_assert_eq(GSV_LAUNCH(copy_two_groups, 1, 1, 2 * sizeof(float), nullptr, to, from + 1), 0);
    cudaMemcpy(out, to, sizeof(out), cudaMemcpyDeviceToHost);
    cr_expect_eq(out[0], 1.0f);
    cr_expect(std::isnan(out[1]));
    cr_expect_eq(out[2], 2.0f);
    cr_expect_eq(out[3], 0.0f, "an invalid copy fills with zeros");
    expect_no_fault();
}

Test(cudaemu_faults, lane_leaves_before_a_shuffle)
{
    int out[32];
    device_memory<int> device(32);

    GSV_LAUNCH(sum_lanes, 1, 32, 0, nullptr, device, 32u);
    cudaMemcpy(out, device, sizeof(out), cudaMemcpyDeviceToHost);
    for (int i = 0; i < 32; i++)
        cr_expect_eq(out[i], 31 * 16);
    GSV_LAUNCH(sum_lanes, dim3(1, 3), 32, 0, nullptr, device, 31u);
    expect_fault(cudaErrorLaunchFailure,
                 { "kernel sum_lanes, block (0,0,0)", "deadlock", "thread (0,0,0) and 30 more",
                   "__shfl_xor_sync with mask 0xffffffff", "thread (31,0,0) has returned" });
    /* The device works again after a reset. */
    GSV_LAUNCH(sum_lanes, 1, 32, 0, nullptr, device, 32u);
    expect_no_fault();
    GSV_LAUNCH(sum_lanes, 1, 40, 0, nullptr, device, 40u);
    expect_fault(cudaErrorLaunchFailure, { "lanes that the block of 40 threads has not" });
}

Test(cudaemu_faults, thread_leaves_before_a_barrier)
{
    device_memory<int> device(64);

    GSV_LAUNCH(leave_before_barrier, 1, dim3(8, 8), 0, nullptr, device, 8u);
    expect_no_fault();
    GSV_LAUNCH(leave_before_barrier, 1, dim3(8, 8), 0, nullptr, device, 7u);
    expect_fault(cudaErrorLaunchFailure, { "__syncthreads", "thread (7,0,0) has returned" });
}

Test(cudaemu_faults, lanes_meet_in_different_functions)
{
    device_memory<int> device(32);

    GSV_LAUNCH(different_functions, 1, 32, 0, nullptr, device, true);
    expect_no_fault();
    GSV_LAUNCH(different_functions, 1, 32, 0, nullptr, device, false);
    expect_fault(cudaErrorLaunchFailure, { "__shfl_down_sync", "meets __shfl_xor_sync" });
}

Test(cudaemu_faults, misaligned_access)
{
    device_memory<float> in(64), out(64);

    GSV_LAUNCH(read_vector_at, 1, 1, 0, nullptr, out, in, 4);
    GSV_LAUNCH(load_matrix_at, 1, 32, 128 + 16, nullptr, out, 16);
    expect_no_fault();
    GSV_LAUNCH(read_vector_at, 2, 1, 0, nullptr, out, in, 5);
    expect_fault(cudaErrorMisalignedAddress,
                 { "kernel read_vector_at", "test_faults.cpp", "16-byte alignment", "4 past" });
    GSV_LAUNCH(load_matrix_at, 1, 32, 128 + 16, nullptr, out, 8);
    expect_fault(cudaErrorMisalignedAddress, { "ldmatrix.x1", "16 bytes" });
}

Test(cudaemu_faults, matrix_load_past_shared_memory)
{
    device_memory<float> out(64);

    GSV_LAUNCH(load_matrix_at, 1, 32, 128, nullptr, out, 16);
    expect_fault(cudaErrorIllegalAddress, { "ldmatrix.x1", "offset 128 of 128 bytes" });
}

/* The address sanitizer ends the process at the access, with the exit status that ./dev asan
 * sets. */
#if GSV_EMU_ASAN
extern "C" __attribute__((visibility("default"))) const char *__asan_default_options()
{
    return "exitcode=66";
}
#define OUT_OF_BOUNDS(name) Test(cudaemu_faults, name, .exit_code = 66)
#else
#define OUT_OF_BOUNDS(name) Test(cudaemu_faults, name)
#endif

OUT_OF_BOUNDS(global_memory_past_its_end)
{
    device_memory<float> out(100);

    GSV_LAUNCH(write_at, 1, 32, 0, nullptr, out, 99);
    GSV_LAUNCH(write_at, 1, 32, 0, nullptr, out, 0);
    expect_no_fault();
    GSV_LAUNCH(write_at, 1, 32, 0, nullptr, out, 100);
    expect_fault(cudaErrorIllegalAddress, { "kernel write_at", "past the end", "400 bytes" });
}

OUT_OF_BOUNDS(shared_memory_past_its_end)
{
    device_memory<float> out(1);

    GSV_LAUNCH(write_shared_at, 1, 1, 100, nullptr, out, 24);
    expect_no_fault();
    GSV_LAUNCH(write_shared_at, 1, 1, 100, nullptr, out, 25);
    expect_fault(cudaErrorIllegalAddress, { "kernel write_shared_at", "0 bytes past the 100" });
}

enum class cluster_fault { none, no_arrival, two_arrivals, ends_early };

/* Each block adds what all blocks of its cluster have written. */
__global__ void cluster_sum(float *out, cluster_fault fault)
{
    GSV_SHARED(float4, own);
    float sum = 0.f;

    gsv_grid_wait();
    own[threadIdx.x] = make_float4(1.f + static_cast<float>(blockIdx.z), 0.f, 0.f, 0.f);
    if (fault != cluster_fault::no_arrival)
        gsv_cluster_arrive();
    if (fault == cluster_fault::two_arrivals)
        gsv_cluster_arrive();
    gsv_cluster_wait();
    if (fault == cluster_fault::ends_early && blockIdx.z == 1)
        return;
    for (int i = 0; i < static_cast<int>(gridDim.z); i++)
        sum += gsv_cluster_load(own + threadIdx.x, i).x;
    gsv_cluster_arrive();
    out[(blockIdx.x * gridDim.z + blockIdx.z) * blockDim.x + threadIdx.x] = sum;
    gsv_cluster_wait();
}

Test(cudaemu_faults, clusters)
{
    const dim3 grid(3, 1, 4);
    device_memory<float> out(3 * 4 * 32);
    const auto run = [&](cluster_fault fault) {
        return GSV_LAUNCH_CLUSTER(cluster_sum, grid, 32, 32 * sizeof(float4), nullptr, out, fault);
    };

    run(cluster_fault::none);
    expect_no_fault();
    for (int i = 0; i < 3 * 4 * 32; i++)
        cr_expect_eq(out[i], 10.f);
    run(cluster_fault::no_arrival);
    expect_fault(cudaErrorLaunchFailure, { "cluster_sum", "a wait without an arrival" });
    run(cluster_fault::two_arrivals);
    expect_fault(cudaErrorLaunchFailure, { "cluster_sum", "a second arrival" });
    run(cluster_fault::ends_early);
    expect_fault(cudaErrorLaunchFailure, { "cluster_sum", "has ended" });
    GSV_LAUNCH_OVERLAP(cluster_sum, grid, 32, 32 * sizeof(float4), nullptr, out,
                       cluster_fault::none);
    expect_fault(cudaErrorLaunchFailure, { "the launch has no cluster" });
    cr_expect_eq(GSV_LAUNCH_CLUSTER(cluster_sum, dim3(1, 1, 9), 32, 32 * sizeof(float4), nullptr,
                                    out, cluster_fault::none),
                 cudaErrorInvalidConfiguration);
    gsv_emu_reset();
}

Test(cudaemu_faults, blocks_that_wait_for_each_other)
{
    device_memory<unsigned> counter(1);
    device_memory<float> out(8);

    cudaMemset(counter, 0, sizeof(unsigned));
    GSV_LAUNCH_TOGETHER(relay, 4, 32, 0, nullptr, counter, out, 4u);
    expect_no_fault();
    for (int i = 0; i < 4; i++)
        cr_expect_eq(out[4 + i], 4.f - static_cast<float>(i));
    cudaMemset(counter, 0, sizeof(unsigned));
    GSV_LAUNCH(relay, 4, 32, 0, nullptr, counter, out, 4u);
    expect_fault(cudaErrorLaunchTimeout, { "relay", "the launch is not cooperative" });
    cudaMemset(counter, 0, sizeof(unsigned));
    GSV_LAUNCH_TOGETHER(relay, 4, 32, 0, nullptr, counter, out, 5u);
    expect_fault(cudaErrorLaunchFailure, { "relay", "deadlock", "gsv_wait_for" });
    cr_expect_eq(GSV_LAUNCH_TOGETHER(relay, 5000, 1024, 0, nullptr, counter, out, 4u),
                 cudaErrorCooperativeLaunchTooLarge);
    gsv_emu_reset();
}

Test(cudaemu_faults, overlapping_launch_without_waiting)
{
    device_memory<float> out(32);

    GSV_LAUNCH_OVERLAP(overlap, 1, 32, 0, nullptr, out, true);
    expect_no_fault();
    GSV_LAUNCH_OVERLAP(overlap, 1, 32, 0, nullptr, out, false);
    expect_fault(cudaErrorLaunchFailure, { "never calls gsv_grid_wait" });
}

Test(cudaemu_faults, launches_that_a_device_refuses)
{
    device_memory<float> out(1);
    const struct {
        dim3 grid, block;
        size_t shared;
        cudaError_t error;
    } cases[] = {
        { { 0, 1, 1 }, { 32, 1, 1 }, 0, cudaErrorInvalidConfiguration },
        { { 1, 65536, 1 }, { 32, 1, 1 }, 0, cudaErrorInvalidConfiguration },
        { { 1, 1, 1 }, { 32, 33, 1 }, 0, cudaErrorInvalidConfiguration },
        { { 1, 1, 1 }, { 1, 1, 65 }, 0, cudaErrorInvalidConfiguration },
        { { 1, 1, 1 }, { 32, 1, 1 }, (48 << 10) + 1, cudaErrorInvalidValue },
    };

    for (const auto &c : cases) {
        cr_expect_eq(GSV_LAUNCH(write_at, c.grid, c.block, c.shared, nullptr, out, 0), c.error);
        cr_expect_eq(cudaGetLastError(), c.error);
    }
    cr_expect_eq(GSV_ALLOW_SHARED(write_at, 100 << 10), cudaSuccess);
    cr_expect_eq(GSV_LAUNCH(write_at, 1, 32, 100 << 10, nullptr, out, 0), cudaSuccess);
    cr_expect_eq(GSV_ALLOW_SHARED(write_at, 228 << 10), cudaErrorInvalidValue);
}
