/*
 * linear.c - cuts a product into tasks for the stream's threads.
 *
 * A task is a block of rows by a block of panels. A block of panels fits half of an L2 cache, so
 * that all rows of the task find it there. With few rows and several threads the panels are
 * divided, and each weight is read by one thread only; with many rows the rows are divided.
 *
 * int8, int16 and bfloat16: a first pass converts the input rows into the stream's buffer.
 */
#include "kernels/cpu/runtime/cpu.h"

#include "lib/base/alloc.h"

#define BLOCK_BYTES (512 << 10)
#define TASKS_PER_THREAD 2 /* load balancing if other processes slow one of the threads */

struct gemm_job {
    const struct gsv_cpu_isa *isa;
    const struct gsv_gemm_f32 *f32; /* exactly one of the five is set */
    const struct gsv_gemm_s8 *s8;
    const struct gsv_gemm_s16 *s16;
    const struct gsv_gemm_bf16 *bf16;
    const struct gsv_gemm_half *half;
    int32_t rows, panels;         /* totals */
    int32_t row_step, panel_step; /* per task */
    int32_t row_tasks;
};

static void gemm_task(void *job_, int32_t thread, int32_t task)
{
    const struct gemm_job *job = job_;
    struct gsv_span span;

    (void)thread;
    span.row = task % job->row_tasks * job->row_step;
    span.row_end = span.row + gsv_min(job->row_step, job->rows - span.row);
    span.panel = task / job->row_tasks * job->panel_step;
    span.panel_end = span.panel + gsv_min(job->panel_step, job->panels - span.panel);
    if (job->s8)
        job->isa->gemm_s8(job->s8, &span);
    else if (job->s16)
        job->isa->gemm_s16(job->s16, &span);
    else if (job->bf16)
        job->isa->gemm_bf16(job->bf16, &span);
    else if (job->half)
        job->isa->gemm_half(job->half, &span);
    else
        job->isa->gemm_f32(job->f32, &span);
}

/* Largest step up to `max` that gives each thread the same number of tasks, at least
 * TASKS_PER_THREAD. */
static int32_t even_step(int32_t panels, int32_t max, int32_t n_threads)
{
    const int32_t rounds = gsv_parts(gsv_parts(panels, max), n_threads);
    const int32_t tasks = n_threads * (rounds > TASKS_PER_THREAD ? rounds : TASKS_PER_THREAD);

    return gsv_parts(panels, tasks);
}

/* The division into tasks never changes the bits of the result. */
static void cut(struct gemm_job *job, int32_t n_threads, size_t panel_bytes)
{
    const int32_t many_rows = 4 * job->isa->tile_rows * n_threads;

    job->row_step = job->rows;
    job->panel_step = gsv_min(job->panels, (int32_t)(1 + (BLOCK_BYTES - 1) / panel_bytes));
    if (n_threads > 1 && job->rows >= many_rows)
        job->row_step = gsv_parts(job->rows, n_threads * 2);
    else if (n_threads > 1 && job->rows > job->isa->tile_rows)
        job->panel_step = even_step(job->panels, job->panel_step, n_threads);
    else if (n_threads > 1) /* bound by memory: long sequential reads are best */
        job->panel_step =
            gsv_min(job->panel_step, gsv_parts(job->panels, n_threads * TASKS_PER_THREAD));
    job->row_tasks = gsv_parts(job->rows, job->row_step);
}

static void run_gemm(struct gpuserve_stream *stream, struct gemm_job *job, int32_t n, int32_t depth,
                     size_t element)
{
    job->isa = stream->isa;
    job->panels = gsv_parts(n, stream->isa->panel);
    cut(job, stream->n_threads, (size_t)depth * element * (size_t)stream->isa->panel);
    gsv_thread_pool_run(stream->thread_pool,
                        job->row_tasks * gsv_parts(job->panels, job->panel_step), gemm_task, job);
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
    const int32_t depth = gsv_cpu_linear_depth(w);
    /* Row stride in the conversion buffer. Its rows hold 16 bits for each input: copies fit. */
    const size_t byte_ld = gsv_round_up((size_t)depth, 64);
    const struct quantize_job quantize = {
        stream->isa,
        {
            .in = op->in,
            .input_scale = w->input_scale,
            .shared = w->shared,
            .n_shared = w->n_shared,
            .out = stream->bytes,
            .min = stream->min,
            .step = stream->step,
            .in_ld = (size_t)op->in_ld,
            .out_ld = byte_ld,
            .k = w->k,
        },
    };
    const struct gsv_gemm_s8 gemm = {
        .in = stream->bytes,
        .weight = w->weight,
        .scales = { stream->min, stream->step, w->scale, w->column_sum },
        .in_ld = byte_ld,
        .k = depth,
        .sum = w->sum,
        .finish = *finish,
    };
    struct gemm_job job = { .s8 = &gemm, .rows = op->rows };

    gsv_cpu_run_rows(stream, quantize_rows, &quantize, op->rows, w->k);
    run_gemm(stream, &job, w->n, depth, sizeof(int8_t));
}

struct quantize_s16_job {
    const struct gsv_cpu_isa *isa;
    struct gsv_quantize_s16 quantize;
};

static void quantize_rows_s16(const void *job_, int32_t row, int32_t row_end)
{
    const struct quantize_s16_job *job = job_;

    job->isa->quantize_s16(&job->quantize, row, row_end);
}

static void run_s16(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op,
                    const struct gsv_finish *finish)
{
    const struct gpuserve_linear *w = op->weight;
    const int32_t depth = gsv_cpu_depth_up(w->k, w->dtype);
    int16_t *words = (int16_t *)(void *)stream->bytes;
    const size_t word_ld = stream->byte_ld / sizeof(*words);
    const struct quantize_s16_job quantize = {
        stream->isa,
        { op->in, words, stream->step, (size_t)op->in_ld, word_ld, w->k, w->row_levels },
    };
    const struct gsv_gemm_s16 gemm = {
        .in = words,
        .weight = w->weight,
        .scales = { .step = stream->step, .scale = w->scale },
        .in_ld = word_ld,
        .k = depth,
        .finish = *finish,
    };
    struct gemm_job job = { .s16 = &gemm, .rows = op->rows };

    gsv_cpu_run_rows(stream, quantize_rows_s16, &quantize, op->rows, w->k);
    run_gemm(stream, &job, w->n, depth, sizeof(int16_t));
}

struct round_job {
    const struct gsv_cpu_isa *isa;
    struct gsv_round_bf16 round;
};

static void round_rows(const void *job_, int32_t row, int32_t row_end)
{
    const struct round_job *job = job_;

    job->isa->round_bf16(&job->round, row, row_end);
}

static void run_bf16(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op,
                     const struct gsv_finish *finish)
{
    const struct gpuserve_linear *w = op->weight;
    const int32_t depth = gsv_cpu_depth_up(w->k, w->dtype);
    uint16_t *words = (uint16_t *)(void *)stream->bytes;
    const size_t word_ld = stream->byte_ld / sizeof(*words);
    const struct round_job round = { stream->isa,
                                     { op->in, words, (size_t)op->in_ld, word_ld, w->k } };
    const struct gsv_gemm_bf16 gemm = { words, w->weight, word_ld, depth, *finish };
    struct gemm_job job = { .bf16 = &gemm, .rows = op->rows };

    gsv_cpu_run_rows(stream, round_rows, &round, op->rows, w->k);
    run_gemm(stream, &job, w->n, depth, sizeof(uint16_t));
}

/* 16-bit weights that the processor does not multiply as such. */
static void run_half(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op,
                     const struct gsv_finish *finish)
{
    const struct gpuserve_linear *w = op->weight;
    const int32_t depth = gsv_cpu_depth_up(w->k, w->dtype);
    const struct gsv_gemm_half gemm = {
        .in = op->in,
        .weight = w->weight,
        .in_ld = (size_t)op->in_ld,
        .panel_bytes = (size_t)depth * (size_t)stream->isa->panel * sizeof(uint16_t),
        .k = w->k,
        .is_f16 = w->dtype == GPUSERVE_DTYPE_FLOAT16,
        .finish = *finish,
    };
    struct gemm_job job = { .half = &gemm, .rows = op->rows };

    run_gemm(stream, &job, w->n, depth, sizeof(uint16_t));
}

static void run_f32(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op,
                    const struct gsv_finish *finish)
{
    const struct gpuserve_linear *w = op->weight;
    const struct gsv_gemm_f32 gemm = { op->in, w->weight, (size_t)op->in_ld, w->k, *finish };
    struct gemm_job job = { .f32 = &gemm, .rows = op->rows };

    run_gemm(stream, &job, w->n, w->k, sizeof(float));
}

gpuserve_status gsv_cpu_linear(struct gpuserve_stream *stream, const struct gpuserve_op_linear *op)
{
    const struct gsv_finish finish = {
        op->weight->bias, op->residual, op->out, (size_t)op->out_ld, op->weight->n, op->activation,
    };

    if (op->rows <= 0)
        return GPUSERVE_OK;
    if (op->weight->dtype == GPUSERVE_DTYPE_INT8)
        run_s8(stream, op, &finish);
    else if (op->weight->dtype == GPUSERVE_DTYPE_INT16)
        run_s16(stream, op, &finish);
    else if (op->weight->dtype == GPUSERVE_DTYPE_BFLOAT16 && stream->isa->gemm_bf16)
        run_bf16(stream, op, &finish);
    else if (op->weight->dtype != GPUSERVE_DTYPE_FLOAT32)
        run_half(stream, op, &finish);
    else
        run_f32(stream, op, &finish);
    return GPUSERVE_OK;
}
