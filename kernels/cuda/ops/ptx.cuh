/*
 * ptx.cuh - the PTX instructions that the kernels use, one small function each. Requires sm_80.
 *
 * Fragments of mma.sync for lane l of the warp, g = l / 4, t = l % 4, as in the PTX ISA (two 16-bit
 * elements in each 32-bit register, the lower column in the lower half):
 *
 *   m16n8k16   a[0] = A[g][2t, 2t+1]   a[1] = A[g+8][2t, 2t+1]   a[2], a[3]: the same, columns + 8
 *              b[0] = B[2t, 2t+1][g]   b[1] = B[2t+8, 2t+9][g]
 *   m16n8k8    a[0] = A[g][t]   a[1] = A[g+8][t]   a[2] = A[g][t+4]   a[3] = A[g+8][t+4]
 *   (tf32)     b[0] = B[t][g]   b[1] = B[t+4][g]
 *   m16n8k32   a[0] = A[g][4t..4t+3]   a[1] = A[g+8][4t..]   a[2], a[3]: the same, columns + 16
 *   (s8)       b[0] = B[4t..4t+3][g]   b[1] = B[4t+16..4t+19][g]
 *   all        d[0], d[1] = D[g][2t, 2t+1]   d[2], d[3] = D[g+8][2t, 2t+1]
 *
 * All 32 lanes execute each mma, ldmatrix and shuffle function together. The emulator's versions
 * are in tests/cudaemu/include/emu_ptx.h.
 */
#ifndef GSV_CUDA_PTX_CUH
#define GSV_CUDA_PTX_CUH

#include <stdint.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef GSV_CUDA_EMU
#include <emu_ptx.h>
#else

__device__ __forceinline__ uint32_t gsv_shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* --- matrix products: d += A * B ------------------------------------------------------------- */

/* m16n8k16, A and B half, D float. The unused last argument selects the element type. */
__device__ __forceinline__ void gsv_mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2], half)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* m16n8k16, A and B bfloat16, D float. */
__device__ __forceinline__ void gsv_mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2], __nv_bfloat16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* m16n8k8, A and B the bits of floats rounded by gsv_tf32(), D float. */
__device__ __forceinline__ void gsv_mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4],
                                                     const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* m16n8k32, A and B signed bytes, D int32. */
__device__ __forceinline__ void gsv_mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* x rounded to tf32 (10 bits of mantissa, ties away from zero), in the register format of mma. */
__device__ __forceinline__ uint32_t gsv_tf32(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/* --- 8x8 matrices of 16-bit elements from shared memory -------------------------------------- */
/* Lanes 0..7 pass the 16-byte aligned addresses of rows 0..7 of the first matrix, lanes 8..15 of
 * the second, and so on; the addresses of other lanes are unused but must be valid. Of each matrix
 * lane l receives M[l / 4][2 (l % 4), + 1], transposed M[2 (l % 4), + 1][l / 4]. */

__device__ __forceinline__ void gsv_ldmatrix_x1(uint32_t (&r)[1], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(gsv_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void gsv_ldmatrix_x2(uint32_t (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(gsv_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void gsv_ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gsv_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void gsv_ldmatrix_x1_trans(uint32_t (&r)[1], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(gsv_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void gsv_ldmatrix_x2_trans(uint32_t (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(gsv_shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void gsv_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(gsv_shared_address(row))
                 : "memory");
}

/* --- asynchronous copies --------------------------------------------------------------------- */
/* Both addresses are aligned to the copied size. With valid = false nothing is read and the shared
 * memory is zero-filled. The data is visible to this thread after gsv_cp_async_wait, and to other
 * threads after a following __syncthreads(). */

__device__ __forceinline__ void gsv_cp_async_16(void *shared, const void *global, bool valid = true)
{
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(gsv_shared_address(shared)),
        "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
        : "memory");
}

__device__ __forceinline__ void gsv_cp_async_8(void *shared, const void *global, bool valid = true)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(gsv_shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(valid ? 8 : 0)
                 : "memory");
}

__device__ __forceinline__ void gsv_cp_async_4(void *shared, const void *global, bool valid = true)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(gsv_shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(valid ? 4 : 0)
                 : "memory");
}

/* Closes the group of copies issued since the last commit; it may be empty. */
__device__ __forceinline__ void gsv_cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most the last `groups` groups of this thread are in flight. */
template <int groups> __device__ __forceinline__ void gsv_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

/* --- other instructions ---------------------------------------------------------------------- */

/* 2^x to 2 ulp; 0 for -infinity. */
__device__ __forceinline__ float gsv_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x to 1 ulp, for a normal x. */
__device__ __forceinline__ float gsv_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Waits until the preceding kernels in the stream have finished; see GSV_LAUNCH_OVERLAP. Does
 * nothing in a kernel launched otherwise, and below sm_90. */
__device__ __forceinline__ void gsv_grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Adds one to *counter with release semantics: a waiting thread sees all writes of this thread, and
 * those of other threads before a barrier that this thread has passed. */
__device__ __forceinline__ void gsv_signal(unsigned *counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(counter))
                 : "memory");
}

/* Adds one to *counter like gsv_signal, with acquire semantics too; returns the previous value. The
 * writes of earlier arrivals are visible to this thread, and to others after a barrier. */
__device__ __forceinline__ unsigned gsv_arrive(unsigned *counter)
{
    unsigned before;

    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
    return before;
}

/* Spins until *counter is at least `target`. The signalling blocks must be co-resident:
 * GSV_LAUNCH_TOGETHER. */
__device__ __forceinline__ void gsv_wait_for(const unsigned *counter, unsigned target)
{
    unsigned seen;

    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(seen)
                     : "l"(__cvta_generic_to_global(counter))
                     : "memory");
    } while (seen < target);
}

/* Allows the next kernel of the stream to start once all blocks have called this or ended. */
__device__ __forceinline__ void gsv_grid_launch_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
#endif
