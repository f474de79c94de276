/*
 * chain: splits a vector into blocks that fit the L1 cache and distributes groups of blocks over
 * the stream's threads. chain_block.c has the inner loops.
 */
#include "kernels/cpu/runtime/cpu.h"

#include "lib/base/clock.h"

#define BLOCK 2048    /* floats: 8 KiB */
#define TASK_BLOCKS 8 /* maximum per task; fewer for short vectors */

struct chain_job {
    const struct gpuserve_op_chain *op;
    const struct gsv_cpu_isa *isa;
    size_t task_floats;
};

static void task(void *job_, int32_t thread, int32_t number)
{
    const struct chain_job *job = job_;
    const struct gpuserve_op_chain *op = job->op;
    const size_t begin = (size_t)number * job->task_floats;
    const size_t end = op->n - begin < job->task_floats ? op->n : begin + job->task_floats;

    (void)thread;
    for (size_t at = begin; at < end; at += BLOCK) {
        const size_t n = end - at < BLOCK ? end - at : BLOCK;

        if (op->out != op->in)
            memcpy(op->out + at, op->in + at, n * sizeof(float));
        job->isa->chain(op->out + at, n, op->steps, op->n_steps);
    }
}

gpuserve_status gsv_cpu_chain(struct gpuserve_stream *stream, struct gpuserve_op_chain *op,
                              gpuserve_error *error)
{
    struct chain_job job = { op, stream->isa, BLOCK };
    const uint64_t begin = gsv_now_ns();

    (void)error;
    while (job.task_floats < BLOCK * TASK_BLOCKS &&
           op->n / job.task_floats > 64 * (size_t)stream->n_threads)
        job.task_floats *= 2;
    while ((op->n - 1) / job.task_floats >= INT32_MAX)
        job.task_floats *= 2;
    gsv_thread_pool_run(stream->thread_pool, (int32_t)((op->n - 1) / job.task_floats + 1), task,
                        &job);
    op->seconds = gsv_seconds_since(begin);
    return GPUSERVE_OK;
}
