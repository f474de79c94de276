/*
 * chain_ops.cuh - the definition of each chain operation, in one place. The interpreter compiles
 * it; chain_source.cu uses its text for generated kernels. Both therefore give the same bits.
 *
 * Sums and products use intrinsics that the compiler must not fuse with adjacent operations.
 */
#ifndef GSV_CUDA_CHAIN_OPS_CUH
#define GSV_CUDA_CHAIN_OPS_CUH

/*
 * CODE(...): functions that the operations call.
 *
 * Sine and cosine by range reduction to quarter turns: x * 2/pi is split into an integer and a
 * rest. Large arguments use as many digits of 2/pi as their exponent requires (Payne and Hanek),
 * without an array: the toolkit's sinf needs local memory. The polynomials are from Cephes.
 */
#define GSV_CHAIN_FUNCTIONS(CODE)                                                                 \
    CODE(static __device__ __forceinline__ unsigned gsv_chain_word(const int i) {                 \
        return i == 0   ? 0u                                                                      \
               : i == 1 ? 0xa2f9836eu                                                             \
               : i == 2 ? 0x4e441529u                                                             \
               : i == 3 ? 0xfc2757d1u                                                             \
               : i == 4 ? 0xf534ddc0u                                                             \
               : i == 5 ? 0xdb629599u                                                             \
               : i == 6 ? 0x3c439041u                                                             \
                        : 0xfe5163abu;                                                            \
    })                                                                                            \
    CODE(static __device__ __forceinline__ float gsv_chain_rest_of_large(const float x,           \
                                                                         int *const quarter) {    \
        const unsigned bits = __float_as_uint(x);                                                 \
        const int at = static_cast<int>(bits >> 23 & 255u) - 120;                                 \
        const unsigned long long digits = (bits & 0x7fffffu) | 0x800000u;                         \
        const int word = at >> 5;                                                                 \
        const unsigned a = gsv_chain_word(word);                                                  \
        const unsigned b = gsv_chain_word(word + 1);                                              \
        const unsigned c = gsv_chain_word(word + 2);                                              \
        const unsigned d = gsv_chain_word(word + 3);                                              \
        const unsigned high = __funnelshift_l(b, a, at & 31);                                     \
        const unsigned middle = __funnelshift_l(c, b, at & 31);                                   \
        const unsigned low = __funnelshift_l(d, c, at & 31);                                      \
        const unsigned long long carried = digits * middle + (digits * low >> 32);                \
        const unsigned long long turns =                                                          \
            (static_cast<unsigned long long>(high * static_cast<unsigned>(digits)) << 32) +       \
            carried;                                                                              \
        const int up = static_cast<int>(turns >> 61 & 1u);                                        \
        const float rest =                                                                        \
            __fmul_rn(static_cast<float>(static_cast<long long>(turns << 2)), 8.5153039e-20f);    \
        *quarter = static_cast<int>(turns >> 62) + up;                                            \
        *quarter = x < 0.f ? -*quarter : *quarter;                                                \
        return x < 0.f ? -rest : rest;                                                            \
    })                                                                                            \
    CODE(static __device__ __forceinline__ float gsv_chain_sine(const float x, const int ahead) { \
        const float nothing = __fsub_rn(x, x);                                                    \
        if (nothing != 0.f)                                                                       \
            return nothing;                                                                       \
        int quarter;                                                                              \
        float rest;                                                                               \
        if (fabsf(x) > 50000.f) {                                                                 \
            rest = gsv_chain_rest_of_large(x, &quarter);                                          \
        } else {                                                                                  \
            const float quarters = rintf(__fmul_rn(x, 0.636619747f));                             \
            quarter = static_cast<int>(quarters);                                                 \
            rest = fmaf(quarters, -1.57079601f, x);                                               \
            rest = fmaf(quarters, -5.39030253e-15f, fmaf(quarters, -3.13916473e-07f, rest));      \
        }                                                                                         \
        quarter += ahead;                                                                         \
        const float square = __fmul_rn(rest, rest);                                               \
        float value;                                                                              \
        if (quarter & 1) {                                                                        \
            value = fmaf(fmaf(2.44331571e-5f, square, -1.38873162e-3f), square, 4.16666456e-2f);  \
            value = fmaf(fmaf(value, square, -0.5f), square, 1.f);                                \
        } else {                                                                                  \
            value = fmaf(fmaf(-1.95152959e-4f, square, 8.33216087e-3f), square, -1.66666546e-1f); \
            value = fmaf(__fmul_rn(value, square), rest, rest);                                   \
        }                                                                                         \
        return quarter & 2 ? -value : value;                                                      \
    })

/* OPERATION(KIND, name, true if it takes many instructions, its value from x, a and b). */
#define GSV_CHAIN_OPERATIONS(OPERATION)                                                   \
    OPERATION(GPUSERVE_CHAIN_ADD, add, false, __fadd_rn(x, a))                            \
    OPERATION(GPUSERVE_CHAIN_MULTIPLY, multiply, false, __fmul_rn(x, a))                  \
    OPERATION(GPUSERVE_CHAIN_FMA, fma, false, fmaf(x, a, b))                              \
    OPERATION(GPUSERVE_CHAIN_MINIMUM, minimum, false, x != x || x < a ? x : a)            \
    OPERATION(GPUSERVE_CHAIN_MAXIMUM, maximum, false, x != x || x > a ? x : a)            \
    OPERATION(GPUSERVE_CHAIN_ABSOLUTE, absolute, false, fabsf(x))                         \
    OPERATION(GPUSERVE_CHAIN_RECIPROCAL, reciprocal, true, __frcp_rn(x))                  \
    OPERATION(GPUSERVE_CHAIN_SQRT, sqrt, true, __fsqrt_rn(x))                             \
    OPERATION(GPUSERVE_CHAIN_EXP, exp, true, expf(x))                                     \
    OPERATION(GPUSERVE_CHAIN_LOG, log, true, logf(x))                                     \
    OPERATION(GPUSERVE_CHAIN_SIN, sin, true, gsv_chain_sine(x, 0))                        \
    OPERATION(GPUSERVE_CHAIN_COS, cos, true, gsv_chain_sine(x, 1))                        \
    OPERATION(GPUSERVE_CHAIN_TANH, tanh, true, tanhf(x))                                  \
    OPERATION(GPUSERVE_CHAIN_ERF, erf, true, erff(x))                                     \
    OPERATION(GPUSERVE_CHAIN_SIGMOID, sigmoid, true, __frcp_rn(__fadd_rn(1.f, expf(-x)))) \
    OPERATION(GPUSERVE_CHAIN_RELU, relu, false, x != x || x > 0.f ? x : 0.f)              \
    OPERATION(GPUSERVE_CHAIN_GELU, gelu, true,                                            \
              __fmul_rn(__fmul_rn(0.5f, x), erfcf(__fmul_rn(x, -0.70710678f))))

#endif
