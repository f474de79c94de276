/*
 * job_fields.h - a job as the options of a public call that sets some of its fields itself.
 */
#ifndef GSV_RUNTIME_JOB_FIELDS_H
#define GSV_RUNTIME_JOB_FIELDS_H

#include <gpuserve/run.h>

/* Groups of fields that a call may refuse. deadline_us, priority, cache, expected_fingerprint,
 * result and client are in none: every call takes them. */
enum gsv_job_group {
    GSV_JOB_INPUT_OUTPUT = 1, /* task, inputs, output: the call's own arguments */
    GSV_JOB_PAIRS = 2,
    GSV_JOB_PRECISION = 4, /* a type of the output other than float */
    GSV_JOB_VALUES = 8,    /* prompts, roles, heads, further outputs, what vectors and scores are */
    GSV_JOB_TRUNCATION = 16,
    GSV_JOB_ITEMS = 32,
    GSV_JOB_TRACE = 64,
    GSV_JOB_ALL = 127
};

/* Read the caller's job, NULL: all defaults. A field of `groups` that is not zero is
 * GPUSERVE_E_INVALID, and the message names it. `function` is the public call, for the message. */
gpuserve_status gsv_read_job_options(gpuserve_job *job, const gpuserve_job *given, uint32_t groups,
                                     const char *function, gpuserve_error *error);

#endif
