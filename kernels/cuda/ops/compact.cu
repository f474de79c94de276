/*
 * compact: rows of floats as float16, scalar-quantized bytes or sign bits, so that only these leave
 * the device.
 *
 *   One block per row. A thread makes whole words of the output from 2, 4 or 32 columns. All
 *   operations are rounded as on the host, in the same order, so the bytes are equal.
 *
 *   Needs:  any cols.
 *   Oracle: kernels/ref/compact.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"
#include "kernels/cuda/runtime/types.cuh"

#include <gpuserve/retrieval.h>

namespace
{

const int THREADS = 128;

struct compact_args {
    const float *in;
    uint32_t *out;
    const float *ranges;
    int32_t cols;
    int32_t ld;
    int32_t words;
};

/* Packing policies of a 32-bit word: the number of columns in it, and the bits of one column. */
struct halves {
    static constexpr int columns = 2;

    static __device__ __forceinline__ uint32_t part(const struct compact_args &, float x, int,
                                                    int j)
    {
        const half rounded = __float2half_rn(x);
        uint16_t bits;

        memcpy(&bits, &rounded, sizeof(bits));
        if (x != x) /* the NaN of the host */
            bits = __float_as_int(x) < 0 ? 0xfe00 : 0x7e00;
        return static_cast<uint32_t>(bits) << 16 * j;
    }
};

struct buckets {
    static constexpr int columns = 4;

    static __device__ __forceinline__ uint32_t part(const struct compact_args &args, float x, int c,
                                                    int j)
    {
        const float min = args.ranges[c];
        const float width = (args.ranges[args.cols + c] - min) / 255.f;
        const float bucket = (x - min) / (width == 0.f ? 1.f : width);
        const float above = bucket > 0.f ? bucket : 0.f; /* NaN becomes 0 */

        return static_cast<uint32_t>(above < 255.f ? above : 255.f) << 8 * j;
    }
};

struct signs {
    static constexpr int columns = 32;

    static __device__ __forceinline__ uint32_t part(const struct compact_args &, float x, int,
                                                    int j)
    {
        return static_cast<uint32_t>(x > 0.f) << (j / 8 * 8 + 7 - j % 8);
    }
};

/* The bytes of a word that belong to the row: the last word may have fewer than four. */
template <typename Kind> __device__ __forceinline__ uint32_t mask_of(int columns)
{
    const int bits = Kind::columns == 32 ? (columns + 7) / 8 * 8 : columns * (32 / Kind::columns);

    return bits >= 32 ? 0xffffffffu : (1u << bits) - 1u;
}

/* `flip` 0x80808080 subtracts 128 from each byte, modulo 256. */
template <typename Kind>
__global__ void __launch_bounds__(THREADS)
    compact_rows(const struct compact_args args, uint32_t flip)
{
    const float *const row = args.in + static_cast<size_t>(blockIdx.x) * args.ld;
    uint32_t *const out = args.out + static_cast<size_t>(blockIdx.x) * args.words;
    bool is_wrong = false;

    gsv_grid_wait();
    gsv_grid_launch_next();
    for (int w = static_cast<int>(threadIdx.x); w < args.words - 1; w += THREADS) {
        const int first = w * Kind::columns;
        const int n = min(args.cols - first, Kind::columns);
        uint32_t word = 0;

        for (int j = 0; j < n; j++) {
            const float x = row[first + j];

            is_wrong = is_wrong || !(fabsf(x) < INFINITY); /* NaN too */
            word |= Kind::part(args, x, first + j, j);
        }
        out[w] = (word ^ flip) & mask_of<Kind>(n);
    }
    is_wrong = __syncthreads_or(is_wrong) != 0;
    if (threadIdx.x == 0)
        out[args.words - 1] = is_wrong ? 0 : 1;
}

} /* namespace */

cudaError_t gsv_cuda_compact(const struct gpuserve_op_compact *op, cudaStream_t stream)
{
    const struct compact_args args = { op->in, op->out, op->ranges, op->cols, op->ld, op->words };
    const bool is_signed =
        op->precision == GPUSERVE_PRECISION_INT8 || op->precision == GPUSERVE_PRECISION_BINARY;
    const uint32_t flip = is_signed ? 0x80808080u : 0;

    switch (op->precision) {
    case GPUSERVE_PRECISION_FLOAT16:
        return GSV_LAUNCH_OVERLAP(compact_rows<halves>, op->rows, THREADS, 0, stream, args, flip);
    case GPUSERVE_PRECISION_INT8:
    case GPUSERVE_PRECISION_UINT8:
        return GSV_LAUNCH_OVERLAP(compact_rows<buckets>, op->rows, THREADS, 0, stream, args, flip);
    default:
        return GSV_LAUNCH_OVERLAP(compact_rows<signs>, op->rows, THREADS, 0, stream, args, flip);
    }
}
