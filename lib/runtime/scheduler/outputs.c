/*
 * outputs.c - reads, checks, sizes and writes the outputs of a job.
 */
#include "lib/runtime/scheduler/outputs.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <math.h>
#include <string.h>

const char *gsv_task_name(uint32_t task)
{
    static const char *const names[GSV_TASKS] = {
        [GPUSERVE_TASK_EMBED] = "embedding",
        [GPUSERVE_TASK_CLASSIFY] = "labels",
        [GPUSERVE_TASK_TOKEN_VECTORS] = "token vectors",
        [GPUSERVE_TASK_SPARSE] = "sparse vector",
        [GPUSERVE_TASK_TOKEN_LABELS] = "token labels",
        [GPUSERVE_TASK_MAX_SIM] = "MaxSim",
    };

    return task < GSV_TASKS ? names[task] : "unknown";
}

gpuserve_status gsv_ranges_check(const float *ranges, size_t dim, gpuserve_error *error)
{
    if (!ranges)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "int8 and uint8 need ranges: [2, %zu] minima and maxima", dim);
    for (size_t i = 0; i < dim; i++)
        if (!isfinite(ranges[i]) || !isfinite(ranges[dim + i]) || ranges[i] > ranges[dim + i])
            return gsv_fail(error, GPUSERVE_E_INVALID,
                            "the range of dimension %zu is %g to %g: a finite minimum and a "
                            "maximum that is not below it are needed",
                            i, (double)ranges[i], (double)ranges[dim + i]);
    return GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------------- reading */

static gpuserve_status add_more(struct gsv_outputs *outputs, const gpuserve_job *job, size_t i,
                                gpuserve_error *error)
{
    const gpuserve_output *output = &job->more[i];

    if (output->task >= GSV_TASKS)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.more[%zu].task is %u, outside 0 to %d", i,
                        output->task, GSV_TASKS - 1);
    if (output->reserved != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.more[%zu].reserved is not zero", i);
    if (gsv_has_task(outputs->tasks, output->task))
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "job.more[%zu].task is %u (%s), which the job already has", i, output->task,
                        gsv_task_name(output->task));
    if (!output->rows && job->n_items > 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.more[%zu].rows is NULL", i);
    outputs->tasks |= GSV_TASK_BIT(output->task);
    outputs->at[output->task] = *output;
    return GPUSERVE_OK;
}

gpuserve_status gsv_outputs_read(struct gsv_outputs *outputs, const gpuserve_job *job,
                                 gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    memset(outputs, 0, sizeof(*outputs));
    outputs->tasks = GSV_TASK_BIT(job->task);
    outputs->at[job->task] = (gpuserve_output){ .task = job->task,
                                                .rows = job->output,
                                                .capacity = job->output_capacity,
                                                .stride = job->output_stride };
    if (job->n_more > 0 && !job->more)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.n_more is %zu, but `more` is NULL",
                        job->n_more);
    if (job->n_more >= GSV_TASKS)
        return gsv_fail(error, GPUSERVE_E_INVALID, "job.n_more is %zu, the limit is %d",
                        job->n_more, GSV_TASKS - 1);
    for (size_t i = 0; i < job->n_more && st == GPUSERVE_OK; i++)
        st = add_more(outputs, job, i, error);
    return st;
}

/* ---------------------------------------------------------------------------------------- sizes */

void gsv_outputs_size(struct gsv_outputs *outputs, const struct gsv_spec_facts *facts,
                      const struct gsv_run *run, uint32_t dimensions)
{
    for (uint32_t task = 0; task < GSV_TASKS; task++) {
        struct gsv_run one = *run;

        if (!gsv_has_task(outputs->tasks, task))
            continue;
        one.task = task;
        outputs->columns[task] =
            task == GPUSERVE_TASK_SPARSE ? facts->vocab_size : gsv_run_columns(facts, &one);
        *(gsv_is_by_token(task) ? &outputs->token_floats : &outputs->text_floats) +=
            (size_t)outputs->columns[task];
    }
    outputs->written = dimensions ? (int32_t)dimensions : outputs->columns[GPUSERVE_TASK_EMBED];
    if (run->compact.precision != 0)
        outputs->compact_bytes =
            gpuserve_quantized_bytes(run->compact.precision, (size_t)run->compact.columns);
}

/* Columns of a row in the caller's memory. */
static size_t written_columns(const struct gsv_outputs *outputs, uint32_t task)
{
    return (size_t)(task == GPUSERVE_TASK_EMBED ? outputs->written : outputs->columns[task]);
}

static size_t stride_of(const struct gsv_outputs *outputs, uint32_t task)
{
    return outputs->at[task].stride ? outputs->at[task].stride : written_columns(outputs, task);
}

/* With a precision the capacity is in bytes. */
static gpuserve_status check_compact(const struct gsv_outputs *outputs, size_t n_rows,
                                     gpuserve_error *error)
{
    const gpuserve_output *at = &outputs->at[GPUSERVE_TASK_EMBED];
    size_t needed;

    if (at->stride != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "output_stride is %zu, but rows with a precision are contiguous",
                        at->stride);
    if (!gsv_mul_size(n_rows, outputs->compact_bytes, &needed) || needed > at->capacity)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "the output has capacity for %zu bytes, %zu rows of %zu bytes do not fit",
                        at->capacity, n_rows, outputs->compact_bytes);
    return GPUSERVE_OK;
}

/* Messages name the output as `output` of the job, or by its task if there are several. */
static gpuserve_status check_one(const struct gsv_outputs *outputs, uint32_t task, size_t n_rows,
                                 gpuserve_error *error)
{
    const size_t columns = written_columns(outputs, task), stride = stride_of(outputs, task);
    size_t needed = 0;

    if (task == GPUSERVE_TASK_EMBED && outputs->compact_bytes > 0)
        return check_compact(outputs, n_rows, error);
    if (stride < columns)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "output_stride is %zu, less than the row width %zu", stride, columns);
    if (n_rows > 0 &&
        (!gsv_mul_size(n_rows - 1, stride, &needed) || !gsv_add_size(needed, columns, &needed)))
        return gsv_fail(
            error, GPUSERVE_E_TOO_LARGE,
            "the output has %zu rows, %zu floats apart: its size overflows the address space",
            n_rows, stride);
    if (needed > outputs->at[task].capacity)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "the output has capacity for %zu floats, %zu rows of %zu need %zu",
                        outputs->at[task].capacity, n_rows, columns, needed);
    return GPUSERVE_OK;
}

gpuserve_status gsv_outputs_check(const struct gsv_outputs *outputs, bool by_token, size_t n_rows,
                                  gpuserve_error *error)
{
    const bool has_several = (outputs->tasks & (outputs->tasks - 1)) != 0;

    for (uint32_t task = 0; task < GSV_TASKS; task++) {
        gpuserve_status st;

        if (!gsv_has_task(outputs->tasks, task) || gsv_is_by_token(task) != by_token)
            continue;
        st = check_one(outputs, task, n_rows, error);
        if (st != GPUSERVE_OK)
            return has_several ? gsv_fail_in(error, st, "task %u (%s)", task, gsv_task_name(task))
                               : st;
    }
    return GPUSERVE_OK;
}

size_t gsv_outputs_floats(const struct gsv_outputs *outputs, size_t n_items, size_t n_tokens)
{
    size_t texts, tokens, all;

    return gsv_mul_size(outputs->text_floats, n_items, &texts) &&
                   gsv_mul_size(outputs->token_floats, n_tokens, &tokens) &&
                   gsv_add_size(texts, tokens, &all)
               ? all
               : SIZE_MAX;
}

/* --------------------------------------------------------------------------------------- blocks */

size_t gsv_output_offset(const struct gsv_outputs *outputs, uint32_t task, size_t n_tokens)
{
    size_t offset = 0;

    for (uint32_t before = 0; before < task; before++)
        offset += gsv_output_floats(outputs, before, n_tokens);
    return offset;
}

void gsv_output_write(const struct gsv_outputs *outputs, uint32_t task, const float *block,
                      size_t n_tokens, size_t row)
{
    const size_t columns = (size_t)outputs->columns[task];
    const size_t written = written_columns(outputs, task), stride = stride_of(outputs, task);
    const size_t n_rows = gsv_is_by_token(task) ? n_tokens : 1;
    const float *from = block + gsv_output_offset(outputs, task, n_tokens);
    float *to;

    if (task == GPUSERVE_TASK_EMBED && outputs->compact_bytes > 0) {
        memcpy((char *)outputs->at[task].rows + row * outputs->compact_bytes, from,
               outputs->compact_bytes);
        return;
    }
    to = outputs->at[task].rows + row * stride;
    if (written == columns && stride == columns) {
        memcpy(to, from, n_rows * columns * sizeof(float));
        return;
    }
    for (size_t i = 0; i < n_rows; i++)
        memcpy(to + i * stride, from + i * columns, written * sizeof(float));
}
