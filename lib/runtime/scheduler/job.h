/*
 * job.h - checking a job against its model before anything is spent on it.
 */
#ifndef GSV_RUNTIME_JOB_H
#define GSV_RUNTIME_JOB_H

#include "lib/runtime/scheduler/request.h"

/* What a job comes to. */
struct gsv_job_size {
    struct gsv_batch_key key;
    int32_t columns; /* of a row as computed */
    int32_t kept;    /* the first of them, which are the caller's */
    struct gsv_queue_reservation reservation;
    const char *prompt; /* lent by the job or the model; NULL or empty: none */
};

/* Everything but the texts' bytes: fields, pointers, sizes. */
gpuserve_status gsv_job_check(const struct gsv_model *model, const gpuserve_job *job,
                              struct gsv_job_size *size, gpuserve_error *error);

/* The texts are UTF-8, the ids within the vocabulary. */
gpuserve_status gsv_job_check_content(const struct gsv_model *model, const gpuserve_job *job,
                                      const struct gsv_job_size *size, gpuserve_error *error);

/* The output has room for n_rows rows. */
gpuserve_status gsv_job_check_output(const gpuserve_job *job, size_t n_rows, int32_t columns,
                                     gpuserve_error *error);

/* Text i, or its pair (NULL when the job has no pairs). */
const char *gsv_job_text(const gpuserve_job *job, size_t i, size_t *size);
const char *gsv_job_pair(const gpuserve_job *job, size_t i, size_t *size);

#endif
