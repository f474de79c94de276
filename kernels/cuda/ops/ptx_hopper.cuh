/*
 * ptx_hopper.cuh - PTX instructions of sm_90a alone: barriers in shared memory that count bytes
 * (mbarrier), copies of boxes of a matrix (TMA), products of four warps (wgmma), clusters of
 * blocks.
 *
 * A source that includes this file is compiled for sm_90a only, and launched on capability 9.0
 * only. The emulator's versions are in tests/cudaemu/include/emu_hopper.h.
 */
#ifndef GSV_CUDA_PTX_HOPPER_CUH
#define GSV_CUDA_PTX_HOPPER_CUH

#include "kernels/cuda/ops/ptx.cuh"

#include <cuda.h>

#ifdef GSV_CUDA_EMU
#include <emu_hopper.h>
#else

/* --- barriers -------------------------------------------------------------------------------- */
/* A barrier is 8 bytes of shared memory. Its phase ends when `arrivals` arrivals and all expected
 * bytes have come; then the next phase begins. The first phase has parity 0. */

__device__ __forceinline__ void gsv_barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(gsv_shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}

/* Makes initialized barriers visible to copies; other threads need a __syncthreads() too. */
__device__ __forceinline__ void gsv_barrier_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void gsv_barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(gsv_shared_address(barrier))
                 : "memory");
}

/* Arrives, and has the phase wait for `bytes` more bytes of copies. */
__device__ __forceinline__ void gsv_barrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gsv_shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

/* Waits until a phase of this parity has ended. The caller waits for each phase, or knows that the
 * one before it has ended: the phase two earlier has the same parity. */
__device__ __forceinline__ void gsv_barrier_wait(uint64_t *barrier, int parity)
{
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; "
                 "@p bra ended; bra again; ended: }" ::"r"(gsv_shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* --- copies ---------------------------------------------------------------------------------- */

/* Copies the box at column x, row y of the matrix of `map` to shared memory, in the map's swizzle;
 * its bytes arrive at the barrier. Elements outside of the matrix are zeros, and count. */
__device__ __forceinline__ void gsv_tma_load(void *shared, const CUtensorMap *map, int x, int y,
                                             uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(gsv_shared_address(shared)),
                 "l"(map), "r"(x), "r"(y), "r"(gsv_shared_address(barrier))
                 : "memory");
}

/* --- products -------------------------------------------------------------------------------- */

/* Descriptor of an operand in shared memory: rows of 128 bytes of k, 8 rows in a swizzled kilobyte
 * (CU_TENSOR_MAP_SWIZZLE_128B). `tile` is aligned to 1024 bytes; adding 2 advances 32 bytes of
 * k. */
__device__ __forceinline__ uint64_t gsv_wgmma_operand(const void *tile)
{
    return static_cast<uint64_t>((gsv_shared_address(tile) & 0x3ffff) >> 4) | uint64_t{ 1 } << 16 |
           uint64_t{ 1024 >> 4 } << 32 | uint64_t{ 1 } << 62;
}

/* Before the first product after the registers of sums were accessed. */
__device__ __forceinline__ void gsv_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Closes the group of products since the last commit. */
__device__ __forceinline__ void gsv_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most the last `groups` groups still run. */
template <int groups> __device__ __forceinline__ void gsv_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

/* After gsv_wgmma_wait<0>(): no access to the sums moves ahead of it. */
template <int n> __device__ __forceinline__ void gsv_wgmma_sums_done(float (&d)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

template <int n> __device__ __forceinline__ void gsv_wgmma_sums_done(int32_t (&d)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}

/* m64nNk16: d += A B, or d = A B without `add`; A is 64 x 16, B is 16 x N, D is float. All threads
 * of a warp group execute it together. Warp w of the group has rows 16 w + g and + 8, with g and t
 * as for mma.sync (ptx.cuh): d[4 j], d[4 j + 1] are D[g][8 j + 2 t, + 1], d[4 j + 2], d[4 j + 3]
 * those 8 rows below. Runs until it is waited for; until then `d` and the operands are its. */
__device__ __forceinline__ void gsv_wgmma(float (&d)[16], uint64_t a, uint64_t b, bool add, half)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; "
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, "
                 "%17, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "l"(a), "l"(b), "r"(add ? 1 : 0)
                 : "memory");
}

__device__ __forceinline__ void gsv_wgmma(float (&d)[16], uint64_t a, uint64_t b, bool add,
                                          __nv_bfloat16)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; "
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, "
                 "%17, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "l"(a), "l"(b), "r"(add ? 1 : 0)
                 : "memory");
}

__device__ __forceinline__ void gsv_wgmma(float (&d)[32], uint64_t a, uint64_t b, bool add, half)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
                 "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, "
                 "%33, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(add ? 1 : 0)
                 : "memory");
}

__device__ __forceinline__ void gsv_wgmma(float (&d)[32], uint64_t a, uint64_t b, bool add,
                                          __nv_bfloat16)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
                 "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, "
                 "%33, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(add ? 1 : 0)
                 : "memory");
}

__device__ __forceinline__ void gsv_wgmma(float (&d)[64], uint64_t a, uint64_t b, bool add, half)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
                 "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
                 "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
                 "%62, %63}, %64, %65, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
                   "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
                   "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(add ? 1 : 0)
                 : "memory");
}

__device__ __forceinline__ void gsv_wgmma(float (&d)[64], uint64_t a, uint64_t b, bool add,
                                          __nv_bfloat16)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
                 "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
                 "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
                 "%62, %63}, %64, %65, p, 1, 1, 0, 0; }"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                   "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
                   "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
                   "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
                   "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(add ? 1 : 0)
                 : "memory");
}

/* Bytes: m64n96k32, exact sums. */
__device__ __forceinline__ void gsv_wgmma(int32_t (&d)[48], uint64_t a, uint64_t b, bool add,
                                          int8_t)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %50, 0; "
                 "wgmma.mma_async.sync.aligned.m64n96k32.s32.s8.s8 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
                 "%48, %49, p; }"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]),
                   "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]),
                   "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]),
                   "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]),
                   "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]),
                   "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]),
                   "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]),
                   "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47])
                 : "l"(a), "l"(b), "r"(add ? 1 : 0)
                 : "memory");
}

/* A copy that the compiler knows nothing of: what depends on it is computed here, instead of ahead
 * and spilled. */
__device__ __forceinline__ int gsv_fresh(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* --- clusters -------------------------------------------------------------------------------- */
/* The blocks of GSV_LAUNCH_CLUSTER; a block's number in its cluster is blockIdx.z. */

/* Arrives at the cluster's barrier: writes before it are visible to the threads of all blocks that
 * have waited. A thread that has ended counts as arrived. */
__device__ __forceinline__ void gsv_cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/* Waits until all threads of the cluster have arrived. A block whose shared memory is read waits
 * before it ends. */
__device__ __forceinline__ void gsv_cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Reads 16 bytes at the place of `shared` in the shared memory of another block of the cluster. */
__device__ __forceinline__ float4 gsv_cluster_load(const float4 *shared, int block)
{
    uint32_t at;
    float4 x;

    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(at)
                 : "r"(gsv_shared_address(shared)), "r"(block));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(at)
                 : "memory");
    return x;
}

/* --- registers ------------------------------------------------------------------------------- */
/* A warp group releases registers, or acquires as many as others released. */

template <int registers> __device__ __forceinline__ void gsv_registers_release()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> __device__ __forceinline__ void gsv_registers_acquire()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

#endif
#endif
