/*
 * outputs.h - the outputs of a job: a set of tasks, the widths of their rows, and where they go.
 *
 * All outputs of one item are adjacent in the request's staging memory and in the result cache: the
 * block of the item. It holds the rows of each task in the order of gpuserve_task: one row for a
 * task on texts, n_rows rows for a task on tokens.
 *
 * An embedding with a precision is the row of gpuserve_op_compact: bytes in the place of floats,
 * and a word that says whether all of its numbers were finite.
 *
 *   slot->output --copy--> block of the item (staging, result cache) --write--> the caller's rows
 */
#ifndef GSV_RUNTIME_OUTPUTS_H
#define GSV_RUNTIME_OUTPUTS_H

#include "lib/base/number.h"
#include "lib/model/model.h"

#include <gpuserve/gpuserve.h>
#include <stdbool.h>
#include <string.h>

#define GSV_TASKS_BY_TOKEN \
    (GSV_TASK_BIT(GPUSERVE_TASK_TOKEN_VECTORS) | GSV_TASK_BIT(GPUSERVE_TASK_TOKEN_LABELS))

struct gsv_outputs {
    uint32_t tasks;                /* GSV_TASK_BIT() of each */
    gpuserve_output at[GSV_TASKS]; /* by task; the memory is the caller's */
    int32_t columns[GSV_TASKS];    /* of a computed row; 0 outside the set */
    int32_t written; /* EMBED: leading columns that are written, at most columns[EMBED] */
    size_t text_floats, token_floats; /* of a block: for the text, and for each of its tokens */
    size_t compact_bytes;             /* EMBED with a precision: of a row at the caller; else 0 */
};

static inline bool gsv_has_task(uint32_t tasks, uint32_t task)
{
    return (tasks & GSV_TASK_BIT(task)) != 0;
}

/* The name of a task in messages. */
const char *gsv_task_name(uint32_t task);

/* Collect the outputs of a job. Fails if one is named twice, is unknown or has no memory. */
gpuserve_status gsv_outputs_read(struct gsv_outputs *outputs, const gpuserve_job *job,
                                 gpuserve_error *error);

/* Set columns, written and the floats of a block. `run` has the fields of gsv_run that sizes depend
 * on; `dimensions` is that of the job. */
void gsv_outputs_size(struct gsv_outputs *outputs, const struct gsv_spec_facts *facts,
                      const struct gsv_run *run, uint32_t dimensions);

/* Check that the memory of each output has the capacity for its rows. by_token: that of the tasks
 * on tokens, else that of the others. */
gpuserve_status gsv_outputs_check(const struct gsv_outputs *outputs, bool by_token, size_t n_rows,
                                  gpuserve_error *error);

/* The floats of the blocks of `n_items` items with `n_rows` rows by token in total; SIZE_MAX if
 * they are too many to count. */
size_t gsv_outputs_floats(const struct gsv_outputs *outputs, size_t n_items, size_t n_rows);

/* The floats of a task's rows in a block, and those before them. */
static inline size_t gsv_output_floats(const struct gsv_outputs *outputs, uint32_t task,
                                       size_t n_rows)
{
    return (size_t)outputs->columns[task] * (gsv_is_by_token(task) ? n_rows : 1);
}
/* True if all numbers of an item's block of n floats are finite. */
static inline bool gsv_is_block_finite(const struct gsv_outputs *outputs, const float *block,
                                       size_t n)
{
    uint32_t is_finite;

    if (outputs->compact_bytes == 0)
        return gsv_all_finite(block, n);
    memcpy(&is_finite, block + n - 1, sizeof(is_finite));
    return is_finite != 0;
}

size_t gsv_output_offset(const struct gsv_outputs *outputs, uint32_t task, size_t n_rows);

/* Check ranges [2, dim] of INT8 and UINT8. */
gpuserve_status gsv_ranges_check(const float *ranges, size_t dim, gpuserve_error *error);

/* Copy the rows of a task from a block to the caller, where they begin at row `row`. */
void gsv_output_write(const struct gsv_outputs *outputs, uint32_t task, const float *block,
                      size_t n_rows, size_t row);

#endif
