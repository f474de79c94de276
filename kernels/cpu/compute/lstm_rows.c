/*
 * lstm_rows: the recurrence of an LSTM or a GRU by groups of sequences.
 *
 * Sequences do not depend on each other. A task takes a group of them
 * through all steps of one direction: product, gates, next step. No thread waits for another one
 * before the end, where one product for each step over all threads waits twice a step. The products
 * of the inputs are computed for a chunk of steps before the chunk. So everything that a task reads
 * at a step is in the cache of its core, if the weights fit.
 *
 * The bits are those of a product over all sequences: each sum depends on its own row alone.
 */
#include "kernels/cpu/compute/lstm.h"

#define MAX_ROWS 16            /* of a group */
#define CACHED_BYTES (2 << 20) /* of the weights of one direction */

struct lstm_rows_job {
    const struct gsv_cpu_lstm_job *jobs;
    int32_t n_groups, group_rows;
};

bool gsv_cpu_lstm_fits_rows(const struct gpuserve_lstm_layer *layer)
{
    const size_t hidden = (size_t)layer->hidden, input = (size_t)layer->input;

    return (size_t)layer->gates * hidden * (input + hidden) * sizeof(float) <= CACHED_BYTES;
}

/* out [rows, n], rows out_ld apart, = in [rows, k] times the weights. */
static void multiply(const struct gsv_cpu_isa *isa, const struct gpuserve_linear *weight,
                     const float *in, float *out, int32_t out_ld, int32_t rows)
{
    const struct gsv_gemm_f32 gemm = {
        .in = in,
        .weight = weight->weight,
        .in_ld = (size_t)weight->k,
        .k = weight->k,
        .finish = { .bias = weight->bias, .out = out, .out_ld = (size_t)out_ld, .n = weight->n },
    };
    const struct gsv_span span = { 0, rows, 0, gsv_parts(weight->n, isa->panel) };

    isa->gemm_f32(&gemm, &span);
}

/* The steps of sequence i in the chunk that begins at `step`. */
static int32_t chunk_length(const struct gsv_cpu_lstm_job *job, int32_t i, int32_t step)
{
    return gsv_min(GSV_LSTM_CHUNK, job->op->sequences[i].length - step);
}

/* The input products of a sequence's chunk, in the order of the input's rows. */
static float *chunk_at(const struct gsv_cpu_lstm_job *job, int32_t i)
{
    return job->add + (size_t)i * GSV_LSTM_CHUNK * (size_t)gsv_cpu_lstm_columns(job->op->layer);
}

static void multiply_inputs(const struct gsv_cpu_lstm_job *job, int32_t row, int32_t active,
                            int32_t step)
{
    const struct gpuserve_lstm_layer *l = job->op->layer;

    for (int32_t i = row; i < row + active; i++) {
        const int32_t n = chunk_length(job, i, step);
        const size_t first = gsv_cpu_lstm_row(job, i, job->direction ? step + n - 1 : step);

        multiply(job->isa, l->ih[job->direction], job->op->in + first * (size_t)l->input,
                 chunk_at(job, i), gsv_cpu_lstm_columns(l), n);
    }
}

static void apply_gates(const struct gsv_cpu_lstm_job *job, int32_t row, int32_t active,
                        int32_t step, bool only_reset)
{
    const size_t columns = (size_t)gsv_cpu_lstm_columns(job->op->layer);
    const int32_t number = step % GSV_LSTM_CHUNK;

    for (int32_t i = row; i < row + active; i++) {
        const int32_t n = chunk_length(job, i, step - number);
        const int32_t r = job->direction ? n - 1 - number : number;

        gsv_cpu_lstm_gates(job, i, step, chunk_at(job, i) + columns * (size_t)r, only_reset);
    }
}

/* One step of the rows [row, row + active). */
static void run_step(const struct gsv_cpu_lstm_job *job, int32_t row, int32_t active, int32_t step)
{
    const struct gpuserve_lstm_layer *l = job->op->layer;
    const size_t hidden = (size_t)l->hidden, at = (size_t)row * hidden;
    const int32_t columns = gsv_cpu_lstm_columns(l);
    float *const sums = job->sums + (size_t)row * (size_t)columns;
    const struct gpuserve_linear *hn = l->hn[job->direction];

    if (step % GSV_LSTM_CHUNK == 0)
        multiply_inputs(job, row, active, step);
    multiply(job->isa, l->hh[job->direction], job->h + at, sums, columns, active);
    if (hn) {
        apply_gates(job, row, active, step, true);
        multiply(job->isa, hn, job->c + at, sums + 2 * hidden, columns, active);
    }
    apply_gates(job, row, active, step, false);
}

/* All steps of one group in one direction. */
static void run_group(void *job_, int32_t thread, int32_t task)
{
    const struct lstm_rows_job *rows = job_;
    const struct gsv_cpu_lstm_job *job = &rows->jobs[task % rows->jobs->op->layer->directions];
    const struct gpuserve_op_lstm *op = job->op;
    const int32_t row = task / op->layer->directions * rows->group_rows;
    int32_t active = gsv_min(rows->group_rows, op->n_sequences - row);

    (void)thread;
    for (int32_t step = 0;; step++) {
        while (active > 0 && op->sequences[row + active - 1].length <= step)
            active--;
        if (active == 0)
            return;
        run_step(job, row, active, step);
    }
}

void gsv_cpu_lstm_rows(struct gpuserve_stream *stream, const struct gsv_cpu_lstm_job *jobs)
{
    const struct gpuserve_op_lstm *op = jobs->op;
    /* As many groups for each thread. */
    const int32_t n_groups =
        gsv_parts(gsv_parts(op->n_sequences, MAX_ROWS), stream->n_threads) * stream->n_threads;
    struct lstm_rows_job job = { .jobs = jobs, .group_rows = gsv_parts(op->n_sequences, n_groups) };

    job.n_groups = gsv_parts(op->n_sequences, job.group_rows);
    gsv_thread_pool_run(stream->thread_pool, job.n_groups * op->layer->directions, run_group, &job);
}
