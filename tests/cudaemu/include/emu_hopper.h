/*
 * emu_hopper.h - emulator part of kernels/cuda/ops/ptx_hopper.cuh, which describes the functions.
 * They are in tests/cudaemu/device/hopper.cpp.
 */
#ifndef GSV_EMU_HOPPER_H
#define GSV_EMU_HOPPER_H

#include <cuda.h>
#include <emu_ptx.h>

GSV_EMU_CUDA void gsv_emu_barrier_init(uint64_t *barrier, int arrivals);
/** `expects`: of a thread that arrives and has the phase wait for more bytes. */
GSV_EMU_CUDA void gsv_emu_barrier_arrive(uint64_t *barrier, int bytes, bool expects);
GSV_EMU_CUDA void gsv_emu_barrier_wait(uint64_t *barrier, int parity);
GSV_EMU_CUDA void gsv_emu_tma_load(void *shared, const CUtensorMap *map, int x, int y,
                                   uint64_t *barrier);
/** `kind`: GSV_EMU_MMA_F16 or GSV_EMU_MMA_BF16 with float sums, or GSV_EMU_MMA_S8 with int32_t. */
GSV_EMU_CUDA void gsv_emu_wgmma(int kind, int columns, void *d, uint64_t a, uint64_t b, bool add);
GSV_EMU_CUDA void gsv_emu_wgmma_commit(void);
GSV_EMU_CUDA void gsv_emu_wgmma_wait(int groups);
GSV_EMU_CUDA void gsv_emu_cluster_arrive(void);
GSV_EMU_CUDA void gsv_emu_cluster_wait(void);
GSV_EMU_CUDA void gsv_emu_cluster_load(const void *shared, int block, void *to, size_t size);

/** The low bits of the pointer, which are an address as good as any. */
inline uint32_t gsv_shared_address(const void *p)
{
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 0x3ffff;
}

inline void gsv_barrier_init(uint64_t *barrier, int arrivals)
{
    gsv_emu_barrier_init(barrier, arrivals);
}

inline void gsv_barrier_publish()
{
}

inline void gsv_barrier_arrive(uint64_t *barrier)
{
    gsv_emu_barrier_arrive(barrier, 0, false);
}

inline void gsv_barrier_expect(uint64_t *barrier, int bytes)
{
    gsv_emu_barrier_arrive(barrier, bytes, true);
}

inline void gsv_barrier_wait(uint64_t *barrier, int parity)
{
    gsv_emu_barrier_wait(barrier, parity);
}

inline void gsv_tma_load(void *shared, const CUtensorMap *map, int x, int y, uint64_t *barrier)
{
    gsv_emu_tma_load(shared, map, x, y, barrier);
}

inline uint64_t gsv_wgmma_operand(const void *tile)
{
    return static_cast<uint64_t>(gsv_shared_address(tile) >> 4) | uint64_t{ 1 } << 16 |
           uint64_t{ 1024 >> 4 } << 32 | uint64_t{ 1 } << 62;
}

inline void gsv_wgmma_fence()
{
}

inline void gsv_wgmma_commit()
{
    gsv_emu_wgmma_commit();
}

template <int groups> inline void gsv_wgmma_wait()
{
    gsv_emu_wgmma_wait(groups);
}

template <typename Sum, int n> inline void gsv_wgmma_sums_done(Sum (&)[n])
{
}

template <int n> inline void gsv_wgmma(float (&d)[n], uint64_t a, uint64_t b, bool add, half)
{
    gsv_emu_wgmma(GSV_EMU_MMA_F16, 2 * n, d, a, b, add);
}

template <int n>
inline void gsv_wgmma(float (&d)[n], uint64_t a, uint64_t b, bool add, __nv_bfloat16)
{
    gsv_emu_wgmma(GSV_EMU_MMA_BF16, 2 * n, d, a, b, add);
}

template <int n> inline void gsv_wgmma(int32_t (&d)[n], uint64_t a, uint64_t b, bool add, int8_t)
{
    gsv_emu_wgmma(GSV_EMU_MMA_S8, 2 * n, d, a, b, add);
}

inline int gsv_fresh(int x)
{
    return x;
}

inline void gsv_cluster_arrive()
{
    gsv_emu_cluster_arrive();
}

inline void gsv_cluster_wait()
{
    gsv_emu_cluster_wait();
}

inline float4 gsv_cluster_load(const float4 *shared, int block)
{
    float4 x;

    gsv_emu_cluster_load(shared, block, &x, sizeof(x));
    return x;
}

template <int registers> inline void gsv_registers_release()
{
}

template <int registers> inline void gsv_registers_acquire()
{
}

#endif
