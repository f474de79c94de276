/*
 * linear.c - packing weights once, and cutting a product into tasks.
 *
 * A task is a block of rows by a block of panels. Blocks of panels fit half of a second-level
 * cache, so that all rows of the task find them there. With few rows and several threads the
 * panels are divided (each weight is read by one thread only), with many the rows.
 */
#include "kernels/cpu/cpu.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (512 << 10)
#define TASKS_PER_THREAD 2 /* evens out what other processes take from one of the threads */
#define LEAST_WIDTH 1e-30f /* of a range that is divided into steps: see kernels/ref/linear.c */

static size_t columns_up(int32_t n)
{
    return gsv_round_up((size_t)n, GSV_COLUMN_STEP);
}

static bool is_int8(uint32_t dtype)
{
    return dtype == GPUSERVE_DTYPE_INT8;
}

static size_t depth_up(int32_t k, uint32_t dtype)
{
    return is_int8(dtype) ? gsv_round_up((size_t)k, 4) : (size_t)k;
}

size_t gsv_cpu_linear_bytes(int32_t n, int32_t k, uint32_t dtype)
{
    const size_t columns = columns_up(n);
    const size_t weight = columns * depth_up(k, dtype) * (is_int8(dtype) ? 1 : sizeof(float));
    const size_t floats = columns * (is_int8(dtype) ? 3 : 1) + (is_int8(dtype) ? (size_t)k : 0);

    return gsv_round_up(weight + floats * sizeof(float), 64);
}

/* Where the arrays lie in the caller's memory. */
static void place(struct gpuserve_linear *linear, void *memory)
{
    const size_t columns = columns_up(linear->n);
    const size_t count = columns * depth_up(linear->k, linear->dtype);

    if (!is_int8(linear->dtype)) {
        linear->weight = memory;
        linear->bias = linear->weight + count;
        return;
    }
    linear->values = memory;
    linear->bias = (float *)(void *)(linear->values + count);
    linear->scale = linear->bias + columns;
    linear->column_sum = linear->scale + columns;
    linear->input_scale = linear->column_sum + columns;
}

static void pack_f32(struct gpuserve_linear *to, const float *weight, size_t panel)
{
    const size_t n = (size_t)to->n, k = (size_t)to->k, columns = columns_up(to->n);
    float *at = to->weight;

    for (size_t column = 0; column < columns; column += panel) {
        for (size_t i = 0; i < k; i++) {
            for (size_t j = column; j < column + panel; j++)
                *at++ = j < n ? weight[j * k + i] : 0.0f;
        }
    }
}

/* Where element i of column j is in packed bytes. */
static size_t byte_at(size_t j, size_t i, size_t k_up, size_t panel)
{
    return j / panel * panel * k_up + i / 4 * 4 * panel + j % panel * 4 + i % 4;
}

static void pack_s8(struct gpuserve_linear *to, const float *weight, size_t panel)
{
    const size_t n = (size_t)to->n, k = (size_t)to->k, columns = columns_up(to->n);
    const size_t k_up = depth_up(to->k, to->dtype);

    memset(to->values, 0, columns * k_up);
    memset(to->scale, 0, 2 * columns * sizeof(float));
    for (size_t j = 0; j < n; j++) {
        const float *w = weight + j * k;
        float largest = 0.0f, inverse;
        int32_t sum = 0;

        for (size_t i = 0; i < k; i++)
            largest = fmaxf(largest, fabsf(w[i]));
        inverse = largest >= LEAST_WIDTH ? 127.0f / largest : 0.0f;
        for (size_t i = 0; i < k; i++) {
            const int32_t q = (int32_t)lrintf(w[i] * inverse);

            to->values[byte_at(j, i, k_up, panel)] = (int8_t)q;
            sum += q;
        }
        to->scale[j] = largest / 127.0f;
        to->column_sum[j] = (float)sum;
    }
}

gpuserve_status gsv_cpu_linear_create(struct gpuserve_device *device,
                                      struct gpuserve_linear **linear, void *memory,
                                      const struct gpuserve_linear_source *source,
                                      gpuserve_error *error)
{
    struct gpuserve_linear *made;

    *linear = NULL;
    if (!is_int8(source->dtype) && source->dtype != GPUSERVE_DTYPE_FLOAT32)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "dtype %u: this processor computes in float32 and int8",
                        (unsigned)source->dtype);
    if (is_int8(source->dtype) && source->k > GSV_MAX_INT8_K)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "int8 product over %d inputs: at most %d",
                        (int)source->k, GSV_MAX_INT8_K);
    made = gsv_alloc_array(1, sizeof(*made));
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a linear");
    made->n = source->n;
    made->k = source->k;
    made->dtype = source->dtype;
    place(made, memory);
    memset(made->bias, 0, columns_up(made->n) * sizeof(float));
    if (source->bias)
        memcpy(made->bias, source->bias, (size_t)made->n * sizeof(float));
    if (is_int8(made->dtype)) {
        pack_s8(made, source->weight, (size_t)device->isa->panel);
        if (source->input_scale)
            memcpy(made->input_scale, source->input_scale, (size_t)made->k * sizeof(float));
        else
            made->input_scale = NULL;
    } else {
        pack_f32(made, source->weight, (size_t)device->isa->panel);
    }
    *linear = made;
    return GPUSERVE_OK;
}

void gsv_cpu_linear_destroy(struct gpuserve_linear **linear)
{
    if (!linear)
        return;
    free(*linear);
    *linear = NULL;
}

/* -------------------------------------------------------------------------------- running it */

struct gemm_job {
    const struct gsv_cpu_isa *isa;
    const struct gsv_gemm_f32 *f32; /* one of the two */
    const struct gsv_gemm_s8 *s8;
    int32_t rows, panels;         /* all of them */
    int32_t row_step, panel_step; /* of a task */
    int32_t row_tasks;
};

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t parts(int32_t whole, int32_t step)
{
    return (whole - 1) / step + 1;
}

static void gemm_task(void *job_, int32_t thread, int32_t task)
{
    const struct gemm_job *job = job_;
    struct gsv_span span;

    (void)thread;
    span.row = task % job->row_tasks * job->row_step;
    span.row_end = span.row + least(job->row_step, job->rows - span.row);
    span.panel = task / job->row_tasks * job->panel_step;
    span.panel_end = span.panel + least(job->panel_step, job->panels - span.panel);
    if (job->s8)
        job->isa->gemm_s8(job->s8, &span);
    else
        job->isa->gemm_f32(job->f32, &span);
}

/* How a task is cut changes no bit of the result, only who computes it and from which cache. */
static void cut(struct gemm_job *job, int32_t n_threads, size_t panel_bytes)
{
    const int32_t many_rows = 4 * job->isa->tile_rows * n_threads;

    job->row_step = job->rows;
    job->panel_step = least(job->panels, (int32_t)(1 + (BLOCK_BYTES - 1) / panel_bytes));
    if (n_threads > 1 && job->rows >= many_rows)
        job->row_step = parts(job->rows, n_threads * 2);
    else if (n_threads > 1)
        job->panel_step = least(job->panel_step, parts(job->panels, n_threads * TASKS_PER_THREAD));
    job->row_tasks = parts(job->rows, job->row_step);
}

static void run_gemm(struct gpuserve_stream *stream, struct gemm_job *job, int32_t n,
                     size_t column_bytes)
{
    job->isa = stream->isa;
    job->panels = parts(n, stream->isa->panel);
    cut(job, stream->n_threads, column_bytes * (size_t)stream->isa->panel);
    gsv_team_run(stream->team, job->row_tasks * parts(job->panels, job->panel_step), gemm_task,
                 job);
}

struct quantize_job {
    const struct gsv_cpu_isa *isa;
    struct gsv_quantize quantize;
};

static void quantize_rows(const void *job_, int32_t row, int32_t row_end)
{
    const struct quantize_job *job = job_;

    job->isa->quantize(&job->quantize, row, row_end);
}

static void run_s8(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op,
                   const struct gsv_finish *finish)
{
    const struct gpuserve_linear *w = op->weight;
    const struct quantize_job quantize = {
        stream->isa,
        { op->in, w->input_scale, stream->bytes, stream->least, stream->step, (size_t)op->in_ld,
          stream->byte_ld, w->k },
    };
    const struct gsv_gemm_s8 gemm = {
        stream->bytes, stream->least, stream->step,    w->values,
        w->scale,      w->column_sum, stream->byte_ld, (int32_t)depth_up(w->k, w->dtype),
        *finish,
    };
    struct gemm_job job = { .s8 = &gemm, .rows = op->rows };

    gsv_cpu_run_rows(stream, quantize_rows, &quantize, op->rows, w->k);
    run_gemm(stream, &job, w->n, depth_up(w->k, w->dtype));
}

static void run_f32(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op,
                    const struct gsv_finish *finish)
{
    const struct gpuserve_linear *w = op->weight;
    const struct gsv_gemm_f32 gemm = { op->in, w->weight, (size_t)op->in_ld, w->k, *finish };
    struct gemm_job job = { .f32 = &gemm, .rows = op->rows };

    run_gemm(stream, &job, w->n, (size_t)w->k * sizeof(float));
}

gpuserve_status gsv_cpu_linear(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op)
{
    const struct gsv_finish finish = {
        op->weight->bias, op->residual, op->out, (size_t)op->out_ld, op->weight->n, op->activation,
    };

    if (op->rows <= 0)
        return GPUSERVE_OK;
    if (is_int8(op->weight->dtype))
        run_s8(stream, op, &finish);
    else
        run_f32(stream, op, &finish);
    return GPUSERVE_OK;
}
