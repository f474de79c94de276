/*
 * job_fields.c - reads a job that a public call takes as its options.
 *
 *   caller's gpuserve_job -> copy of this version's size -> no field of the refused groups is set
 *
 * A call that makes the job's input and output from its own arguments, or runs several jobs, has
 * no use for some fields. It refuses them by name instead of ignoring them.
 */
#include "lib/runtime/api/job_fields.h"

#include "lib/base/error.h"

#include <stdbool.h>

#define FIELD(name, group)                                                               \
    {                                                                                    \
#name, offsetof(gpuserve_job, name), sizeof(((gpuserve_job *)NULL)->name), group \
    }

static const struct job_field {
    const char *name;
    size_t offset, size;
    uint32_t group;
} fields[] = {
    FIELD(task, GSV_JOB_INPUT_OUTPUT),
    FIELD(n_items, GSV_JOB_INPUT_OUTPUT),
    FIELD(texts, GSV_JOB_INPUT_OUTPUT),
    FIELD(text_sizes, GSV_JOB_INPUT_OUTPUT),
    FIELD(ids, GSV_JOB_INPUT_OUTPUT),
    FIELD(id_offsets, GSV_JOB_INPUT_OUTPUT),
    FIELD(prompt_in_ids, GSV_JOB_INPUT_OUTPUT),
    FIELD(output, GSV_JOB_INPUT_OUTPUT),
    FIELD(output_capacity, GSV_JOB_INPUT_OUTPUT),
    FIELD(output_stride, GSV_JOB_INPUT_OUTPUT),
    FIELD(pairs, GSV_JOB_PAIRS),
    FIELD(pair_sizes, GSV_JOB_PAIRS),
    FIELD(precision, GSV_JOB_PRECISION),
    FIELD(prompt_name, GSV_JOB_VALUES),
    FIELD(prompt, GSV_JOB_VALUES),
    FIELD(dimensions, GSV_JOB_VALUES),
    FIELD(normalize, GSV_JOB_VALUES),
    FIELD(score, GSV_JOB_VALUES),
    FIELD(token_offsets, GSV_JOB_VALUES),
    FIELD(role, GSV_JOB_VALUES),
    FIELD(more, GSV_JOB_VALUES),
    FIELD(n_more, GSV_JOB_VALUES),
    FIELD(heads, GSV_JOB_VALUES),
    FIELD(query_vectors, GSV_JOB_VALUES),
    FIELD(n_query_vectors, GSV_JOB_VALUES),
    FIELD(reserved, GSV_JOB_VALUES),
    FIELD(ranges, GSV_JOB_VALUES),
    FIELD(truncation, GSV_JOB_TRUNCATION),
    FIELD(items, GSV_JOB_ITEMS),
    FIELD(trace, GSV_JOB_TRACE),
};

_Static_assert(offsetof(gpuserve_job, ranges) + sizeof(const float *) == sizeof(gpuserve_job),
               "a new field of gpuserve_job needs a line in the table, unless every call takes it");

static bool is_set(const gpuserve_job *job, const struct job_field *field)
{
    const unsigned char *bytes = (const unsigned char *)job + field->offset;

    for (size_t i = 0; i < field->size; i++)
        if (bytes[i] != 0)
            return true;
    return false;
}

gpuserve_status gsv_read_job_options(gpuserve_job *job, const gpuserve_job *given, uint32_t groups,
                                     const char *function, gpuserve_error *error)
{
    const gpuserve_status st = gsv_read_struct(job, sizeof(*job), given, "gpuserve_job", error);

    if (st != GPUSERVE_OK)
        return st;
    job->struct_size = (uint32_t)sizeof(*job);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if ((fields[i].group & groups) && is_set(job, &fields[i]))
            return gsv_fail(error, GPUSERVE_E_INVALID, "%s() does not take job.%s: leave it zero",
                            function, fields[i].name);
    return GPUSERVE_OK;
}
