/*
 * rows: operations on the few float32 rows that leave the device: L2 norm, LayerNorm, softmax,
 * sigmoid and other activations, in place.
 *
 *   One block per row; the row stays in L1 between the passes.
 *
 *   Needs:  any cols.
 *   Oracle: kernels/ref/rows.c.
 */
#include "kernels/cuda/runtime/backend.cuh"
#include "kernels/cuda/ops/math.cuh"
#include "kernels/cuda/ops/ptx.cuh"
#include "kernels/cuda/ops/reduce.cuh"

namespace
{

const int THREADS = 128;

__global__ void __launch_bounds__(THREADS) normalize_rows(float *data, int cols, int ld)
{
    GSV_SHARED(float, scratch);
    float *const row = data + static_cast<size_t>(blockIdx.x) * ld;
    float squares = 0.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS)
        squares += row[c] * row[c];
    const float norm = sqrtf(gsv_block_reduce<gsv_sum>(squares, scratch));
    const float divisor = gsv_max::combine(norm, 1e-12f);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS)
        row[c] /= divisor;
}

__global__ void __launch_bounds__(THREADS) softmax_rows(float *data, int cols, int ld)
{
    GSV_SHARED(float, scratch);
    float *const row = data + static_cast<size_t>(blockIdx.x) * ld;
    float maximum = gsv_max::identity();
    float sum = 0.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS)
        maximum = gsv_max::combine(maximum, row[c]);
    maximum = gsv_block_reduce<gsv_max>(maximum, scratch);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS) {
        row[c] = expf(row[c] - maximum);
        sum += row[c];
    }
    sum = gsv_block_reduce<gsv_sum>(sum, scratch);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS)
        row[c] /= sum;
}

__global__ void __launch_bounds__(THREADS)
    activate_float_rows(float *data, int cols, int ld, int activation)
{
    float *const row = data + static_cast<size_t>(blockIdx.x) * ld;

    gsv_grid_wait();
    gsv_grid_launch_next();
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS)
        row[c] = gsv_activate(row[c], activation);
}

/* Mean first, then the variance of (x - mean). */
__global__ void __launch_bounds__(THREADS)
    layernorm_rows(float *data, int cols, int ld, const float *gamma, const float *beta, float eps)
{
    GSV_SHARED(float, scratch);
    float *const row = data + static_cast<size_t>(blockIdx.x) * ld;
    float sum = 0.f;
    float squares = 0.f;

    gsv_grid_wait();
    gsv_grid_launch_next();
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS)
        sum += row[c];
    const float mean = gsv_block_reduce<gsv_sum>(sum, scratch) / cols;
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS)
        squares += (row[c] - mean) * (row[c] - mean);
    const float scale = 1.f / sqrtf(gsv_block_reduce<gsv_sum>(squares, scratch) / cols + eps);
    for (int c = static_cast<int>(threadIdx.x); c < cols; c += THREADS)
        row[c] = (row[c] - mean) * scale * (gamma ? gamma[c] : 1.f) + (beta ? beta[c] : 0.f);
}

const size_t SCRATCH = sizeof(float) * THREADS / GSV_WARP;

} /* namespace */

cudaError_t gsv_cuda_normalize(const struct gpuserve_op_rows *op, cudaStream_t stream)
{
    return GSV_LAUNCH_OVERLAP(normalize_rows, op->rows, THREADS, SCRATCH, stream, op->data,
                              op->cols, op->ld);
}

cudaError_t gsv_cuda_activate(const struct gpuserve_op_rows *op, cudaStream_t stream)
{
    if (op->activation == GPUSERVE_ACT_SOFTMAX)
        return GSV_LAUNCH_OVERLAP(softmax_rows, op->rows, THREADS, SCRATCH, stream, op->data,
                                  op->cols, op->ld);
    if (op->activation == GPUSERVE_ACT_LAYERNORM)
        return GSV_LAUNCH_OVERLAP(layernorm_rows, op->rows, THREADS, SCRATCH, stream, op->data,
                                  op->cols, op->ld, op->gamma, op->beta, op->eps);
    return GSV_LAUNCH_OVERLAP(activate_float_rows, op->rows, THREADS, 0, stream, op->data, op->cols,
                              op->ld, op->activation);
}
