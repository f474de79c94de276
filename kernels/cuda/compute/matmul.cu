/*
 * matmul.cu - backend entry of gpuserve_matmul(): chooses the variant, packs the operands, and
 * measures the time.
 *
 *   naive, tiled   read A and B in place
 *   tensor_core    A [m, k] and B [n, k] as padded rows in the number format, in scratch memory
 *   cublas         16-bit types: rounded copies in the stored layout, in scratch memory;
 *                  float32 and tf32: in place
 */
#include "kernels/cuda/runtime/cublaslt.cuh"
#include "kernels/cuda/compute/matmul.cuh"
#include "kernels/cuda/runtime/stream.cuh"

namespace
{

const char *name_of(uint32_t variant)
{
    static const char *const names[] = {
        "auto", "naive", "tiled", "simd", "tensor_core", "cublas"
    };

    return variant < sizeof(names) / sizeof(names[0]) ? names[variant] : "unknown";
}

enum gsv_math math_of(uint32_t dtype)
{
    switch (dtype) {
    case GPUSERVE_DTYPE_FLOAT16:
        return GSV_MATH_F16;
    case GPUSERVE_DTYPE_BFLOAT16:
        return GSV_MATH_BF16;
    case GPUSERVE_DTYPE_TF32:
        return GSV_MATH_TF32;
    default:
        return GSV_MATH_F32;
    }
}

gpuserve_status choose(const struct gpuserve_device *device, struct gpuserve_op_matmul *op,
                       gpuserve_error *error)
{
    const bool is_float32 = op->dtype == GPUSERVE_DTYPE_FLOAT32;
    const gpuserve_status lacking = GPUSERVE_E_UNSUPPORTED;

    if (op->variant == GPUSERVE_MATMUL_AUTO)
        op->variant = device->lt   ? GPUSERVE_MATMUL_CUBLAS
                      : is_float32 ? GPUSERVE_MATMUL_TILED
                                   : GPUSERVE_MATMUL_TENSOR_CORE;
    if (op->variant == GPUSERVE_MATMUL_SIMD)
        return gsv_fail(error, lacking,
                        "a CUDA device has no variant simd; its variants are naive, tiled, "
                        "tensor_core and cublas");
    if (op->variant == GPUSERVE_MATMUL_CUBLAS && !device->lt) {
        gsv_fail(error, lacking, "variant cublas: cuBLASLt is not available on this machine");
        return gsv_hint(error, lacking,
                        "install cuBLASLt (CUDA toolkit or PyPI's nvidia-cublas), or set the "
                        "variant to \"auto\"; GPUSERVE_CUBLASLT must not be 0");
    }
    if (op->variant == GPUSERVE_MATMUL_TENSOR_CORE && is_float32)
        return gsv_fail(error, lacking,
                        "variant tensor_core supports tf32, float16 and bfloat16, not float32");
    if (op->variant < GPUSERVE_MATMUL_TENSOR_CORE && !is_float32)
        return gsv_fail(error, lacking, "variant %s supports only float32", name_of(op->variant));
    return GPUSERVE_OK;
}

/* ---------------------------------------------------------------------------------- the rows */

/* One operand as rows in the scratch memory; size 0: it is used in place. */
struct matmul_rows {
    struct gsv_repack repack;
    size_t size;
};

/* n vectors of k elements; `turned` if k is not the contiguous dimension. */
bool measure(struct matmul_rows *rows, const float *from, int64_t stride, int32_t n, int32_t k,
             bool turned, size_t element)
{
    const size_t ld = gsv_round_up(static_cast<size_t>(k) * element, 16) / element;

    rows->repack = { from, stride, NULL, n, k, static_cast<int32_t>(ld), turned };
    return gsv_mul_size(static_cast<size_t>(n), ld * element, &rows->size) &&
           gsv_round_up(rows->size, 256) != SIZE_MAX;
}

struct cuda_matmul_plan {
    struct matmul_rows a;
    struct matmul_rows b;
};

size_t element_of(enum gsv_math math)
{
    return math == GSV_MATH_F16 || math == GSV_MATH_BF16 ? 2 : 4;
}

bool make_plan(const struct gpuserve_op_matmul *op, struct cuda_matmul_plan *plan)
{
    const enum gsv_math math = math_of(op->dtype);
    const size_t element = element_of(math);
    const bool a = op->transpose_a != 0;
    const bool b = op->transpose_b != 0;

    *plan = {};
    if (op->variant == GPUSERVE_MATMUL_TENSOR_CORE)
        return measure(&plan->a, op->a, op->a_stride, op->m, op->k, a, element) &&
               measure(&plan->b, op->b, op->b_stride, op->n, op->k, !b, element);
    if (op->variant != GPUSERVE_MATMUL_CUBLAS || element == 4)
        return true;
    return measure(&plan->a, op->a, op->a_stride, a ? op->k : op->m, a ? op->m : op->k, false,
                   element) &&
           measure(&plan->b, op->b, op->b_stride, b ? op->n : op->k, b ? op->k : op->n, false,
                   element);
}

} /* namespace */

gpuserve_status gsv_cuda_op_matmul_bytes(struct gpuserve_device *device,
                                         struct gpuserve_op_matmul *op, size_t *size,
                                         gpuserve_error *error)
{
    struct cuda_matmul_plan plan;
    const gpuserve_status status = choose(device, op, error);

    *size = 0;
    if (status != GPUSERVE_OK)
        return status;
    if (!make_plan(op, &plan) ||
        !gsv_add_size(gsv_round_up(plan.a.size, 256), gsv_round_up(plan.b.size, 256), size))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "a product of %d x %d by %d x %d: the size of its scratch memory overflows",
                        op->m, op->k, op->k, op->n);
    return GPUSERVE_OK;
}

/* ---------------------------------------------------------------------------------- computing */

static cudaError_t pack(const struct gpuserve_op_matmul *op, struct cuda_matmul_plan *plan,
                        struct gsv_packed *packed, cudaStream_t stream)
{
    const enum gsv_math math = math_of(op->dtype);
    const enum gsv_element element = math == GSV_MATH_F16    ? GSV_ELEMENT_F16
                                     : math == GSV_MATH_BF16 ? GSV_ELEMENT_BF16
                                                             : GSV_ELEMENT_F32;
    cudaError_t code;

    *packed = { op->a, op->b, op->a_stride, op->b_stride, op->k };
    if (plan->a.size == 0)
        return cudaSuccess;
    plan->a.repack.to = op->scratch;
    plan->b.repack.to = static_cast<char *>(op->scratch) + gsv_round_up(plan->a.size, 256);
    code = gsv_cuda_repack(&plan->a.repack, element, stream);
    if (code == cudaSuccess)
        code = gsv_cuda_repack(&plan->b.repack, element, stream);
    *packed = { plan->a.repack.to, plan->b.repack.to, plan->a.repack.ld, plan->b.repack.ld,
                plan->a.repack.ld };
    return code;
}

static struct gsv_matmul matrices_of(const struct gpuserve_op_matmul *op)
{
    struct gsv_matmul of = {};

    of.a = op->a;
    of.b = op->b;
    of.c = op->c;
    of.a_stride = op->a_stride;
    of.b_stride = op->b_stride;
    of.c_stride = op->c_stride;
    of.m = op->m;
    of.n = op->n;
    of.k = op->k;
    of.transpose_a = op->transpose_a != 0;
    of.transpose_b = op->transpose_b != 0;
    of.alpha = op->alpha;
    of.beta = op->beta;
    return of;
}

static cudaError_t launch(struct gpuserve_stream *stream, const struct gpuserve_op_matmul *op)
{
    const struct gpuserve_device *const device = stream->device;
    const struct gsv_matmul of = matrices_of(op);
    const enum gsv_math math = math_of(op->dtype);
    struct cuda_matmul_plan plan;
    struct gsv_packed packed;
    cudaError_t code;

    (void)make_plan(op, &plan); /* checked when the scratch size was computed */
    code = pack(op, &plan, &packed, stream->queue);
    if (code != cudaSuccess)
        return code;
    switch (op->variant) {
    case GPUSERVE_MATMUL_NAIVE:
        return gsv_cuda_matmul_naive(&of, stream->queue);
    case GPUSERVE_MATMUL_TILED:
        return gsv_cuda_matmul_tiled(&of, device->n_processors, stream->queue);
    case GPUSERVE_MATMUL_TENSOR_CORE:
        return gsv_cuda_matmul_mma(&of, &packed, math, device->n_processors, stream->queue);
    default:
        return gsv_lt_matmul(device->lt, &of, &packed, math, stream->workspace, stream->queue);
    }
}

gpuserve_status gsv_cuda_op_matmul(struct gpuserve_stream *stream, struct gpuserve_op_matmul *op,
                                   gpuserve_error *error)
{
    struct gsv_timer timer = {};
    gpuserve_status status = gsv_cuda_stream_begin(stream, error);

    if (status != GPUSERVE_OK)
        return status;
    if (gsv_cuda_timer_start(&timer, stream) == GPUSERVE_OK &&
        gsv_cuda_note(stream, launch(stream, op), "the launch of matmul") == GPUSERVE_OK)
        gsv_cuda_timer_stop(&timer, stream);
    status = gsv_cuda_stream_finish(stream, error);
    op->seconds = gsv_cuda_timer_end(&timer, stream);
    return status;
}
