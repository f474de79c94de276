/*
 * ops.c - cuts all operations except the matrix products into tasks for the stream's threads.
 *
 * Row operations: a task is a group of rows. Attention: heads of one sequence. Pooling and late
 * interaction: one sequence. Each call returns when all tasks are done.
 */
#include "kernels/cpu/runtime/cpu.h"

#include "lib/base/number.h"

#include <stdbool.h>

/* Minimum floats per task, about a microsecond of work. Below it another thread costs more than it
 * saves. */
#define TASK_FLOATS 8192

/* The same of attention, in multiply-adds: 2 microseconds. A row also costs its copies. */
#define TASK_ATTENTION 65536
#define ATTENTION_ROW_COST 32

struct rows_job {
    gsv_rows_fn run;
    const void *op;
    int32_t rows, rows_per_task;
};

static void rows_task(void *job_, int32_t thread, int32_t task)
{
    const struct rows_job *job = job_;
    const int32_t row = task * job->rows_per_task;
    const int32_t left = job->rows - row;

    (void)thread;
    job->run(job->op, row, row + (left < job->rows_per_task ? left : job->rows_per_task));
}

void gsv_cpu_run_rows(struct gpuserve_stream *stream, gsv_rows_fn run, const void *op, int32_t rows,
                      int32_t cols)
{
    struct rows_job job = { run, op, rows, cols < TASK_FLOATS ? TASK_FLOATS / cols : 1 };

    if (rows > 0)
        gsv_thread_pool_run(stream->thread_pool, (rows - 1) / job.rows_per_task + 1, rows_task,
                            &job);
}

/* Context of a task: an operation and its stream. */
struct op_job {
    const struct gpuserve_stream *stream;
    const void *op;
};

/* An operation on rows: `rows_` rows of `cols_` floats each. */
#define ROW_OPERATION(name, struct_name, rows_, cols_)                                       \
    static void name##_rows(const void *job_, int32_t row, int32_t row_end)                  \
    {                                                                                        \
        const struct op_job *job = job_;                                                     \
                                                                                             \
        job->stream->isa->name(job->op, row, row_end);                                       \
    }                                                                                        \
                                                                                             \
    gpuserve_status gsv_cpu_##name(struct gpuserve_stream *stream,                           \
                                   const struct gpuserve_op_##struct_name *op)               \
    {                                                                                        \
        gsv_cpu_run_rows(stream, name##_rows, &(struct op_job){ stream, op }, rows_, cols_); \
        return GPUSERVE_OK;                                                                  \
    }

ROW_OPERATION(embed, embed, op->batch->n_rows, op->hidden)
ROW_OPERATION(add_norm, add_norm, op->rows, op->cols)
ROW_OPERATION(normalize, rows, op->rows, op->cols)
ROW_OPERATION(activate, rows, op->rows, op->cols)
ROW_OPERATION(rotate, rotate, op->batch->n_rows, (op->n_heads + op->n_kv_heads) * op->head_size)
ROW_OPERATION(glu, glu, op->rows, 2 * op->cols)
ROW_OPERATION(route, route, op->rows, op->experts)
ROW_OPERATION(add_scaled, add_scaled, op->rows, op->cols)

/* True also if the next product is in float32: the attention of a model that otherwise rounds then
 * stays exact too. */
static bool is_exact(const struct gpuserve_op_attention *op)
{
    return op->exact || (op->reader && op->reader->dtype == GPUSERVE_DTYPE_FLOAT32);
}

/* True for options that attention_16bit lacks. */
static bool needs_float32(const struct gpuserve_op_attention *op)
{
    return op->softcap != 0.0f || op->position_key || op->position_query;
}

struct attention_job {
    const struct gpuserve_stream *stream;
    const struct gpuserve_op_attention *op;
    int32_t heads, parts; /* heads of a task; tasks of a sequence */
};

static void attention_task(void *job_, int32_t thread, int32_t task)
{
    const struct attention_job *job = job_;
    const struct gpuserve_op_attention *op = job->op;
    const struct gpuserve_stream *stream = job->stream;
    const bool in_float32 = is_exact(op) || needs_float32(op);
    const gsv_attention_fn run = in_float32 ? stream->isa->attention : stream->attention;
    const int32_t first = task % job->parts * job->heads;
    const int32_t end = gsv_min(first + job->heads, op->n_heads);

    for (int32_t head = first; head < end; head++)
        run(op, task / job->parts, head, stream->scratch + (size_t)thread * stream->scratch_floats);
}

/* The multiply-adds of one head of the longest sequence, and the cost of its rows in their terms.
 */
static int64_t attention_work(const struct gpuserve_op_attention *op)
{
    const int64_t rows = op->batch->max_seqlen;

    return rows * (rows + ATTENTION_ROW_COST) * op->head_size;
}

gpuserve_status gsv_cpu_attention(struct gpuserve_stream *stream,
                                  const struct gpuserve_op_attention *op)
{
    const int64_t heads = TASK_ATTENTION / (attention_work(op) + 1);
    struct attention_job job = { stream, op, 1, 0 };

    if (heads > 1)
        job.heads = heads < op->n_heads ? (int32_t)heads : op->n_heads;
    job.parts = gsv_parts(op->n_heads, job.heads);
    gsv_thread_pool_run(stream->thread_pool, op->batch->n_sequences * job.parts, attention_task,
                        &job);
    return GPUSERVE_OK;
}

static void pool_task(void *job_, int32_t thread, int32_t task)
{
    const struct op_job *job = job_;

    (void)thread;
    job->stream->isa->pool(job->op, task);
}

gpuserve_status gsv_cpu_pool(struct gpuserve_stream *stream, const struct gpuserve_op_pool *op)
{
    struct op_job job = { stream, op };

    gsv_thread_pool_run(stream->thread_pool, op->batch->n_sequences, pool_task, &job);
    return GPUSERVE_OK;
}

static void max_sim_task(void *job_, int32_t thread, int32_t task)
{
    const struct op_job *job = job_;
    const struct gpuserve_op_max_sim *op = job->op;
    const struct gpuserve_max_sim_text *text = &op->texts[task];
    const struct gsv_max_sim one = {
        .query = op->query + (size_t)text->query * (size_t)op->dim,
        .n_query = (size_t)text->n_query,
        .document = op->in,
        .rows = op->rows + text->first,
        .n_document = (size_t)text->n,
        .dim = (size_t)op->dim,
        .normalizes = op->normalize != 0,
    };

    (void)thread;
    op->out[task] = gsv_cpu_sum_max_sim(job->stream->isa, &one);
}

gpuserve_status gsv_cpu_op_max_sim(struct gpuserve_stream *stream,
                                   const struct gpuserve_op_max_sim *op)
{
    struct op_job job = { stream, op };

    gsv_thread_pool_run(stream->thread_pool, op->batch->n_sequences, max_sim_task, &job);
    return GPUSERVE_OK;
}

static void compact_rows(const void *job_, int32_t row, int32_t row_end)
{
    const struct op_job *job = job_;
    const struct gpuserve_op_compact *op = job->op;

    for (; row < row_end; row++) {
        const float *in = op->in + (size_t)row * (size_t)op->ld;
        uint32_t *out = op->out + (size_t)row * (size_t)op->words;

        if (op->words > 1)
            out[op->words - 2] = 0; /* behind the last byte */
        job->stream->isa->compact(in, (size_t)op->cols, op->precision, op->ranges, (uint8_t *)out);
        out[op->words - 1] = gsv_all_finite(in, (size_t)op->cols);
    }
}

gpuserve_status gsv_cpu_compact(struct gpuserve_stream *stream,
                                const struct gpuserve_op_compact *op)
{
    gsv_cpu_run_rows(stream, compact_rows, &(struct op_job){ stream, op }, op->rows, op->cols);
    return GPUSERVE_OK;
}
