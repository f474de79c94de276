/*
 * matmul: C = alpha * op(A) op(B) + beta * C, each element summed in float64.
 *
 * All variants run this code: a variant selects how a product is computed, not its result.
 */
#include "kernels/ref/ref.h"
#include "lib/base/error.h"

gpuserve_status gsv_ref_matmul_bytes(struct gpuserve_device *device, struct gpuserve_op_matmul *op,
                                     size_t *size, gpuserve_error *error)
{
    (void)device;
    *size = 0;
    if (op->dtype != GPUSERVE_DTYPE_FLOAT32)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "dtype is %u; ref supports only float32",
                        (unsigned)op->dtype);
    return GPUSERVE_OK;
}

static double element(const float *matrix, int64_t stride, int32_t transpose, int32_t row,
                      int32_t column)
{
    return transpose ? (double)matrix[column * stride + row]
                     : (double)matrix[row * stride + column];
}

gpuserve_status gsv_ref_matmul(struct gpuserve_stream *stream, struct gpuserve_op_matmul *op,
                               gpuserve_error *error)
{
    (void)stream;
    (void)error;
    for (int32_t i = 0; i < op->m; i++) {
        for (int32_t j = 0; j < op->n; j++) {
            float *c = &op->c[i * op->c_stride + j];
            double sum = 0.0;

            for (int32_t p = 0; p < op->k; p++)
                sum += element(op->a, op->a_stride, op->transpose_a, i, p) *
                       element(op->b, op->b_stride, op->transpose_b, p, j);
            sum *= (double)op->alpha;
            if (op->beta != 0.0f)
                sum += (double)op->beta * (double)*c;
            *c = (float)sum;
        }
    }
    op->seconds = 0.0;
    return GPUSERVE_OK;
}
