/*
 * emu_ptx.h - emulator part of kernels/cuda/ops/ptx.cuh, which describes the functions.
 *
 * Functions of a whole warp are in tests/cudaemu/device/.
 */
#ifndef GSV_EMU_PTX_H
#define GSV_EMU_PTX_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

enum gsv_emu_mma_kind { GSV_EMU_MMA_F16, GSV_EMU_MMA_BF16, GSV_EMU_MMA_TF32, GSV_EMU_MMA_S8 };

/** d is float[4]; int32_t[4] for S8. */
GSV_EMU_CUDA void gsv_emu_mma(int kind, void *d, const uint32_t *a, const uint32_t *b);
GSV_EMU_CUDA void gsv_emu_ldmatrix(uint32_t *registers, const void *row, int count,
                                   bool transposed);
GSV_EMU_CUDA void gsv_emu_cp_async(void *shared, const void *global, int bytes, bool valid);
GSV_EMU_CUDA void gsv_emu_cp_async_commit(void);
GSV_EMU_CUDA void gsv_emu_cp_async_wait(int groups);
GSV_EMU_CUDA void gsv_emu_grid_wait(void);
GSV_EMU_CUDA void gsv_emu_signal(unsigned *counter);
GSV_EMU_CUDA unsigned gsv_emu_arrive(unsigned *counter);
GSV_EMU_CUDA void gsv_emu_wait_for(const unsigned *counter, unsigned target);

inline void gsv_mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], half)
{
    gsv_emu_mma(GSV_EMU_MMA_F16, d, a, b);
}

inline void gsv_mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             __nv_bfloat16)
{
    gsv_emu_mma(GSV_EMU_MMA_BF16, d, a, b);
}

inline void gsv_mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    gsv_emu_mma(GSV_EMU_MMA_TF32, d, a, b);
}

inline void gsv_mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    gsv_emu_mma(GSV_EMU_MMA_S8, d, a, b);
}

/** Rounds ties away from zero: adds half of the last kept bit to the magnitude. */
inline uint32_t gsv_tf32(float x)
{
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

#define GSV_EMU_LDMATRIX(name, count, transposed)                         \
    inline void gsv_ldmatrix_##name(uint32_t(&r)[count], const void *row) \
    {                                                                     \
        gsv_emu_ldmatrix(r, row, count, transposed);                      \
    }
GSV_EMU_LDMATRIX(x1, 1, false)
GSV_EMU_LDMATRIX(x2, 2, false)
GSV_EMU_LDMATRIX(x4, 4, false)
GSV_EMU_LDMATRIX(x1_trans, 1, true)
GSV_EMU_LDMATRIX(x2_trans, 2, true)
GSV_EMU_LDMATRIX(x4_trans, 4, true)
#undef GSV_EMU_LDMATRIX

inline void gsv_cp_async_16(void *shared, const void *global, bool valid = true)
{
    gsv_emu_cp_async(shared, global, 16, valid);
}

inline void gsv_cp_async_8(void *shared, const void *global, bool valid = true)
{
    gsv_emu_cp_async(shared, global, 8, valid);
}

inline void gsv_cp_async_4(void *shared, const void *global, bool valid = true)
{
    gsv_emu_cp_async(shared, global, 4, valid);
}

inline void gsv_cp_async_commit()
{
    gsv_emu_cp_async_commit();
}

template <int groups> inline void gsv_cp_async_wait()
{
    gsv_emu_cp_async_wait(groups);
}

inline float gsv_exp2(float x)
{
    return exp2f(x);
}

inline float gsv_reciprocal(float x)
{
    return 1.f / x;
}

inline void gsv_grid_wait()
{
    gsv_emu_grid_wait();
}

inline void gsv_signal(unsigned *counter)
{
    gsv_emu_signal(counter);
}

inline unsigned gsv_arrive(unsigned *counter)
{
    return gsv_emu_arrive(counter);
}

inline void gsv_wait_for(const unsigned *counter, unsigned target)
{
    gsv_emu_wait_for(counter, target);
}

inline void gsv_grid_launch_next()
{
}

#endif
