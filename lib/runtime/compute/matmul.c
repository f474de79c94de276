/*
 * matmul.c - gpuserve_matmul(): C = alpha * op(A) * op(B) + beta * C, with strided float32
 * operands.
 *
 *   check the whole job -> copy operands to the device -> backend's matmul() -> copy C back
 *
 * A device with its own memory stores rows without gaps. A matrix whose rows have gaps is copied
 * through a contiguous host buffer, so the gaps are neither read nor written. The CPU works on the
 * caller's memory directly. The lock of `compute` is held while it runs.
 */
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/compute/compute.h"
#include "lib/runtime/core/context.h"

#include <inttypes.h>
#include <string.h>

/* A row-major matrix in the caller's memory. */
struct matrix {
    const char *name;
    const float *data;
    int64_t rows, columns, stride;
    size_t bytes; /* without gaps */
};

struct matmul_call {
    gpuserve_compute *compute;
    gpuserve_matmul_job job;
    struct matrix a, b, c;
    struct gpuserve_op_matmul op;
    double copy_seconds;
};

/* ------------------------------------------------------------------------------------ checking */

static gpuserve_status check_side(const char *name, int64_t side, gpuserve_error *error)
{
    if (side < 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s is %" PRId64 ", the minimum is 0", name,
                        side);
    if (side > GPUSERVE_MATMUL_MAX_SIDE)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s is %" PRId64 ", the limit is %d", name,
                        side, GPUSERVE_MATMUL_MAX_SIDE);
    return GPUSERVE_OK;
}

static gpuserve_status check_words(const gpuserve_matmul_job *job, gpuserve_error *error)
{
    if (job->dtype == GPUSERVE_DTYPE_INT8 || job->dtype > GPUSERVE_DTYPE_INT8)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "dtype is %u; a product supports float32, float16, bfloat16 and tf32",
                        job->dtype);
    if (job->variant > GPUSERVE_MATMUL_CUBLAS)
        return gsv_fail(error, GPUSERVE_E_INVALID, "variant is %u, outside 0 to %d", job->variant,
                        GPUSERVE_MATMUL_CUBLAS);
    if (job->transpose_a > 1 || job->transpose_b > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "transpose_%s is %u, neither 0 nor 1",
                        job->transpose_a > 1 ? "a" : "b",
                        job->transpose_a > 1 ? job->transpose_a : job->transpose_b);
    if (job->reserved != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "gpuserve_matmul_job: `reserved` is not zero");
    return GPUSERVE_OK;
}

/* Sets the default stride, computes the size and checks the pointer. */
static gpuserve_status check_matrix(struct matrix *m, gpuserve_error *error)
{
    /* Cannot overflow: each side is at most GPUSERVE_MATMUL_MAX_SIDE. */
    const size_t count = (size_t)m->rows * (size_t)m->columns;

    m->bytes = count * sizeof(float);
    if (m->stride == 0)
        m->stride = m->columns;
    if (m->stride < m->columns)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "%s_stride is %" PRId64 ", less than the %" PRId64 " floats of a row",
                        m->name, m->stride, m->columns);
    if (m->rows > 0 && m->stride > PTRDIFF_MAX / (int64_t)sizeof(float) / m->rows)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "`%s` has %" PRId64 " rows, %" PRId64
                        " floats apart: its size overflows the address space",
                        m->name, m->rows, m->stride);
    if (count > 0 && !m->data)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` is NULL", m->name);
    return GPUSERVE_OK;
}

static struct matrix matrix_of(const char *name, const float *data, int64_t rows, int64_t columns,
                               uint32_t transposed, int64_t stride)
{
    const struct matrix as_is = { name, data, rows, columns, stride, 0 };
    const struct matrix turned = { name, data, columns, rows, stride, 0 };

    return transposed ? turned : as_is;
}

/* Floats from the first to the last element, gaps included; the matrix is not empty. */
static size_t extent(const struct matrix *m)
{
    return (size_t)(m->rows - 1) * (size_t)m->stride + (size_t)m->columns;
}

static gpuserve_status check_capacity(const struct matmul_call *call, gpuserve_error *error)
{
    const struct matrix *c = &call->c;
    size_t needed;

    if (c->bytes == 0)
        return GPUSERVE_OK;
    needed = extent(c);
    if (call->job.c_capacity < needed)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "c_capacity is %zu floats; %" PRId64 " rows of %" PRId64 ", %" PRId64
                        " apart, need %zu",
                        call->job.c_capacity, c->rows, c->columns, c->stride, needed);
    return GPUSERVE_OK;
}

/* Two column ranges of one larger matrix do not overlap, although their rows interleave. */
static bool is_interleaved(const struct matrix *m, const struct matrix *c)
{
    const uintptr_t row = (uintptr_t)c->stride * sizeof(float);
    const uintptr_t ahead = ((uintptr_t)c->data - (uintptr_t)m->data) % row;

    return m->stride == c->stride && m->data < c->data &&
           ahead >= (uintptr_t)m->columns * sizeof(float) &&
           ahead + (uintptr_t)c->columns * sizeof(float) <= row;
}

static bool meets(const struct matrix *m, const struct matrix *c)
{
    const uintptr_t from = (uintptr_t)m->data, to = (uintptr_t)c->data;

    return m->bytes > 0 && c->bytes > 0 && from < to + extent(c) * sizeof(float) &&
           to < from + extent(m) * sizeof(float) && !is_interleaved(m, c) && !is_interleaved(c, m);
}

static gpuserve_status check_apart(const struct matmul_call *call, gpuserve_error *error)
{
    const bool a = meets(&call->a, &call->c);

    if (a || meets(&call->b, &call->c))
        return gsv_fail(error, GPUSERVE_E_INVALID, "`c` overlaps `%s`", a ? "a" : "b");
    return GPUSERVE_OK;
}

static gpuserve_status check_job(struct matmul_call *call, gpuserve_error *error)
{
    const gpuserve_matmul_job *job = &call->job;
    gpuserve_status st = check_words(job, error);

    if (st == GPUSERVE_OK)
        st = check_side("m", job->m, error);
    if (st == GPUSERVE_OK)
        st = check_side("n", job->n, error);
    if (st == GPUSERVE_OK)
        st = check_side("k", job->k, error);
    if (st != GPUSERVE_OK)
        return st;
    call->a = matrix_of("a", job->a, job->m, job->k, job->transpose_a, job->a_stride);
    call->b = matrix_of("b", job->b, job->k, job->n, job->transpose_b, job->b_stride);
    call->c = matrix_of("c", job->c, job->m, job->n, 0, job->c_stride);
    st = check_matrix(&call->a, error);
    if (st == GPUSERVE_OK)
        st = check_matrix(&call->b, error);
    if (st == GPUSERVE_OK)
        st = check_matrix(&call->c, error);
    if (st == GPUSERVE_OK)
        st = check_capacity(call, error);
    return st == GPUSERVE_OK ? check_apart(call, error) : st;
}

/* -------------------------------------------------------------------------------------
 * transfers */

static bool is_tight(const struct matrix *m)
{
    return m->stride == m->columns || m->rows <= 1;
}

static size_t row_bytes(const struct matrix *m)
{
    return (size_t)m->columns * sizeof(float);
}

/* Copies the matrix to the device memory at `buffer`. */
static gpuserve_status send(struct matmul_call *call, const struct matrix *m,
                            enum gsv_compute_buffer buffer, gpuserve_error *error)
{
    gpuserve_compute *c = call->compute;
    void *to = c->buffers[buffer].memory;
    const uint64_t begin = gsv_now_ns();
    char *tight = NULL;
    gpuserve_status st;

    if (!is_tight(m)) {
        tight = gsv_alloc_aligned(m->bytes);
        if (!tight)
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a copy of `%s`, %zu bytes",
                            m->name, m->bytes);
        for (int64_t r = 0; r < m->rows; r++)
            memcpy(tight + (size_t)r * row_bytes(m), m->data + r * m->stride, row_bytes(m));
    }
    st = c->backend->memory_write(c->device, to, tight ? (const void *)tight : m->data, m->bytes,
                                  error);
    gsv_free_aligned(tight);
    call->copy_seconds += gsv_seconds_since(begin);
    return st;
}

/* Copies C from the device. The caller's rows are written only after the whole copy succeeded. */
static gpuserve_status fetch(struct matmul_call *call, gpuserve_error *error)
{
    gpuserve_compute *c = call->compute;
    const uint64_t begin = gsv_now_ns();
    char *tight = gsv_alloc_aligned(call->c.bytes);
    gpuserve_status st;

    if (!tight)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a copy of `c`, %zu bytes",
                        call->c.bytes);
    st = c->backend->memory_read(c->device, tight, c->buffers[GSV_COMPUTE_C].memory, call->c.bytes,
                                 error);
    for (int64_t r = 0; st == GPUSERVE_OK && r < call->c.rows; r++)
        memcpy(call->job.c + r * call->c.stride, tight + (size_t)r * row_bytes(&call->c),
               row_bytes(&call->c));
    gsv_free_aligned(tight);
    call->copy_seconds += gsv_seconds_since(begin);
    return st;
}

/* ------------------------------------------------------------------------------------- running */

static void make_op(struct matmul_call *call)
{
    const gpuserve_matmul_job *job = &call->job;
    const struct gpuserve_op_matmul op = {
        .m = (int32_t)job->m,
        .n = (int32_t)job->n,
        .k = (int32_t)job->k,
        .transpose_a = (int32_t)job->transpose_a,
        .transpose_b = (int32_t)job->transpose_b,
        .variant = job->variant,
        .dtype = job->dtype == GPUSERVE_DTYPE_DEFAULT ? GPUSERVE_DTYPE_FLOAT32 : job->dtype,
        .alpha = job->alpha,
        .beta = job->beta,
        /* device memory holds rows without gaps */
        .a_stride = call->compute->is_host ? call->a.stride : call->a.columns,
        .b_stride = call->compute->is_host ? call->b.stride : call->b.columns,
        .c_stride = call->compute->is_host ? call->c.stride : call->c.columns,
    };

    call->op = op;
}

static void point_at_host(struct matmul_call *call)
{
    call->op.a = call->job.a;
    call->op.b = call->job.b;
    call->op.c = call->job.c;
}

static gpuserve_status send_all(struct matmul_call *call, gpuserve_error *error)
{
    gpuserve_compute *c = call->compute;
    gpuserve_status st = gsv_compute_reserve(c, GSV_COMPUTE_A, call->a.bytes, error);

    if (st == GPUSERVE_OK)
        st = gsv_compute_reserve(c, GSV_COMPUTE_B, call->b.bytes, error);
    if (st == GPUSERVE_OK)
        st = gsv_compute_reserve(c, GSV_COMPUTE_C, call->c.bytes, error);
    if (st == GPUSERVE_OK)
        st = send(call, &call->a, GSV_COMPUTE_A, error);
    if (st == GPUSERVE_OK)
        st = send(call, &call->b, GSV_COMPUTE_B, error);
    if (st == GPUSERVE_OK && call->job.beta != 0.0f)
        st = send(call, &call->c, GSV_COMPUTE_C, error);
    call->op.a = c->buffers[GSV_COMPUTE_A].memory;
    call->op.b = c->buffers[GSV_COMPUTE_B].memory;
    call->op.c = c->buffers[GSV_COMPUTE_C].memory;
    return st;
}

static gpuserve_status multiply(struct matmul_call *call, gpuserve_error *error)
{
    gpuserve_compute *c = call->compute;
    size_t scratch;
    gpuserve_status st = c->backend->matmul_bytes(c->device, &call->op, &scratch, error);

    if (st == GPUSERVE_OK)
        st = gsv_compute_reserve(c, GSV_COMPUTE_SCRATCH, scratch, error);
    if (st == GPUSERVE_OK && c->is_host)
        point_at_host(call);
    else if (st == GPUSERVE_OK)
        st = send_all(call, error);
    call->op.scratch = c->buffers[GSV_COMPUTE_SCRATCH].memory;
    if (st == GPUSERVE_OK)
        st = c->backend->matmul(c->stream, &call->op, error);
    return st == GPUSERVE_OK && !c->is_host ? fetch(call, error) : st;
}

/* C = beta * C: the result of a product with k = 0. */
static void scale(const struct matmul_call *call)
{
    const float beta = call->job.beta;

    for (int64_t r = 0; r < call->c.rows; r++) {
        float *row = call->job.c + r * call->c.stride;

        for (int64_t j = 0; j < call->c.columns; j++)
            row[j] = beta == 0.0f ? 0.0f : beta * row[j];
    }
}

GPUSERVE_API gpuserve_status gpuserve_matmul(gpuserve_compute *compute,
                                             const gpuserve_matmul_job *job,
                                             gpuserve_compute_result *result, gpuserve_error *error)
{
    struct matmul_call call = { .compute = compute };
    size_t unused;
    gpuserve_status st = gsv_compute_read(compute, &call.job, sizeof(call.job), job,
                                          "gpuserve_matmul_job", result, error);

    if (st == GPUSERVE_OK)
        st = check_job(&call, error);
    if (st != GPUSERVE_OK)
        return st;
    make_op(&call);
    pthread_mutex_lock(&compute->lock);
    if (call.c.bytes == 0 || call.job.k == 0) {
        st = compute->backend->matmul_bytes(compute->device, &call.op, &unused, error);
        if (st == GPUSERVE_OK)
            scale(&call);
    } else {
        st = multiply(&call, error);
    }
    pthread_mutex_unlock(&compute->lock);
    if (st == GPUSERVE_OK)
        gsv_compute_report(result, call.op.variant, call.op.seconds, call.copy_seconds);
    return st;
}
