/*
 * emu_device.h - built-ins of nvcc that a C++ compiler lacks: qualifiers, vector types, threadIdx
 * etc., barriers, warp functions and atomics.
 *
 * The functions are in tests/cudaemu/device/. __shared__ and <<< >>> do not exist here:
 * kernels/cuda/runtime/launch.cuh replaces them.
 */
#ifndef GSV_EMU_DEVICE_H
#define GSV_EMU_DEVICE_H

#include <cstring>
#include <type_traits>
#include <cuda_runtime_api.h>

#define GSV_EMU_VARIABLE extern "C" __attribute__((visibility("default")))

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

/* --- vector types: aligned as on the device, so that the alignment check sees misuse -----------
 */

#define GSV_EMU_VECTORS(scalar, name, align2, align4)                     \
    struct name##1                                                        \
    {                                                                     \
        scalar x;                                                         \
    };                                                                    \
    struct alignas(align2) name##2                                        \
    {                                                                     \
        scalar x, y;                                                      \
    };                                                                    \
    struct name##3                                                        \
    {                                                                     \
        scalar x, y, z;                                                   \
    };                                                                    \
    struct alignas(align4) name##4                                        \
    {                                                                     \
        scalar x, y, z, w;                                                \
    };                                                                    \
    inline name##2 make_##name##2(scalar x, scalar y)                     \
    {                                                                     \
        return { x, y };                                                  \
    }                                                                     \
    inline name##3 make_##name##3(scalar x, scalar y, scalar z)           \
    {                                                                     \
        return { x, y, z };                                               \
    }                                                                     \
    inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) \
    {                                                                     \
        return { x, y, z, w };                                            \
    }

GSV_EMU_VECTORS(signed char, char, 2, 4)
GSV_EMU_VECTORS(unsigned char, uchar, 2, 4)
GSV_EMU_VECTORS(short, short, 4, 8)
GSV_EMU_VECTORS(unsigned short, ushort, 4, 8)
GSV_EMU_VECTORS(int, int, 8, 16)
GSV_EMU_VECTORS(unsigned int, uint, 8, 16)
GSV_EMU_VECTORS(float, float, 8, 16)
GSV_EMU_VECTORS(double, double, 16, 16)
GSV_EMU_VECTORS(long long, longlong, 16, 16)
#undef GSV_EMU_VECTORS

/* --- where a thread is -------------------------------------------------------------------------
 */

/* Of the running thread; set at each switch between threads. */
GSV_EMU_VARIABLE uint3 threadIdx;
GSV_EMU_VARIABLE uint3 blockIdx;
GSV_EMU_VARIABLE dim3 blockDim;
GSV_EMU_VARIABLE dim3 gridDim;
#define warpSize 32

/** The block's dynamic shared memory. */
GSV_EMU_CUDA void *gsv_emu_shared(void);

/* --- meeting points ----------------------------------------------------------------------------
 */

/** Barrier of all threads of the block; returns the number of true predicates. */
GSV_EMU_CUDA int gsv_emu_sync_block(const char *what, int predicate);
GSV_EMU_CUDA void gsv_emu_sync_warp(unsigned mask);
/** The value of lane `source`, which must be in the mask. */
GSV_EMU_CUDA uint64_t gsv_emu_shuffle(const char *what, unsigned mask, uint64_t value, int source);
GSV_EMU_CUDA unsigned gsv_emu_ballot(const char *what, unsigned mask, int predicate);
GSV_EMU_CUDA int gsv_emu_lane_index(void);

inline void __syncthreads()
{
    gsv_emu_sync_block("__syncthreads", 0);
}

inline int __syncthreads_count(int predicate)
{
    return gsv_emu_sync_block("__syncthreads_count", predicate);
}

inline int __syncthreads_or(int predicate)
{
    return gsv_emu_sync_block("__syncthreads_or", predicate) != 0;
}

inline int __syncthreads_and(int predicate)
{
    return gsv_emu_sync_block("__syncthreads_and", !predicate) == 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    gsv_emu_sync_warp(mask);
}

inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return gsv_emu_ballot("__ballot_sync", mask, predicate);
}

inline int __any_sync(unsigned mask, int predicate)
{
    return gsv_emu_ballot("__any_sync", mask, predicate) != 0;
}

inline int __all_sync(unsigned mask, int predicate)
{
    return gsv_emu_ballot("__all_sync", mask, predicate) == mask;
}

template <typename T>
inline T gsv_emu_shuffle_value(const char *what, unsigned mask, T value, int source)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "at most 64 bits");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = gsv_emu_shuffle(what, mask, bits, source);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

template <typename T> inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    const int lane = gsv_emu_lane_index();
    return gsv_emu_shuffle_value("__shfl_sync", mask, value,
                                 (lane & -width) | (source & (width - 1)));
}

template <typename T> inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    const int lane = gsv_emu_lane_index(), source = lane - (int)by;
    return gsv_emu_shuffle_value("__shfl_up_sync", mask, value,
                                 source < (lane & -width) ? lane : source);
}

template <typename T> inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    const int lane = gsv_emu_lane_index(), source = lane + (int)by;
    return gsv_emu_shuffle_value("__shfl_down_sync", mask, value,
                                 source > (lane | (width - 1)) ? lane : source);
}

template <typename T> inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    const int lane = gsv_emu_lane_index(), source = lane ^ bits;
    return gsv_emu_shuffle_value("__shfl_xor_sync", mask, value,
                                 source > (lane | (width - 1)) ? lane : source);
}

/** Integer reductions over the lanes of a mask, as a sequence of shuffles. */
template <typename T, typename Op>
inline T gsv_emu_reduce(const char *what, unsigned mask, T value, Op combine)
{
    T total = value;
    bool first = true;
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1))
            continue;
        const T other = gsv_emu_shuffle_value(what, mask, value, lane);
        total = first ? other : combine(total, other);
        first = false;
    }
    return total;
}

#define GSV_EMU_REDUCE(name, type, expression)                                    \
    inline type __reduce_##name##_sync(unsigned mask, type value)                 \
    {                                                                             \
        return gsv_emu_reduce("__reduce_" #name "_sync", mask, value,             \
                              [](type a, type b) -> type { return expression; }); \
    }
GSV_EMU_REDUCE(add, int, a + b)
GSV_EMU_REDUCE(add, unsigned, a + b)
GSV_EMU_REDUCE(min, int, a < b ? a : b)
GSV_EMU_REDUCE(min, unsigned, a < b ? a : b)
GSV_EMU_REDUCE(max, int, a > b ? a : b)
GSV_EMU_REDUCE(max, unsigned, a > b ? a : b)
GSV_EMU_REDUCE(and, unsigned, a &b)
GSV_EMU_REDUCE(or, unsigned, a | b)
#undef GSV_EMU_REDUCE

/** The upper half of high:low shifted left. */
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    const unsigned by = shift & 31;
    return by ? high << by | low >> (32 - by) : high;
}

inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* --- atomics -----------------------------------------------------------------------------------
 */

template <typename T, typename Op> inline T gsv_emu_atomic(T *at, Op next)
{
    T old;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    for (;;) {
        T wanted = next(old);
        if (__atomic_compare_exchange(at, &old, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return old;
    }
}

template <typename T> inline T atomicAdd(T *at, T value)
{
    return gsv_emu_atomic(at, [=](T old) -> T { return old + value; });
}

template <typename T> inline T atomicMax(T *at, T value)
{
    return gsv_emu_atomic(at, [=](T old) { return old > value ? old : value; });
}

template <typename T> inline T atomicMin(T *at, T value)
{
    return gsv_emu_atomic(at, [=](T old) { return old < value ? old : value; });
}

template <typename T> inline T atomicOr(T *at, T value)
{
    return gsv_emu_atomic(at, [=](T old) -> T { return old | value; });
}

template <typename T> inline T atomicExch(T *at, T value)
{
    return gsv_emu_atomic(at, [=](T) { return value; });
}

template <typename T> inline T atomicCAS(T *at, T compare, T value)
{
    return gsv_emu_atomic(at, [=](T old) { return old == compare ? value : old; });
}

#endif
