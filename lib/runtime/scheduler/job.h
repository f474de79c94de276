/*
 * job.h - validation of a job against its model, before admission and tokenization.
 */
#ifndef GSV_RUNTIME_JOB_H
#define GSV_RUNTIME_JOB_H

#include "lib/runtime/scheduler/request.h"

/* Sizes and parameters derived from a job. */
struct gsv_job_size {
    struct gsv_batch_key key;
    int32_t columns; /* of a computed row */
    int32_t kept;    /* leading columns that are copied to the caller */
    struct gsv_queue_reservation reservation;
    const char *prompt; /* borrowed from the job or the model; NULL or empty: none */
};

/* Check everything except the texts' bytes: fields, pointers, sizes. */
gpuserve_status gsv_job_check(const struct gsv_model *model, const gpuserve_job *job,
                              struct gsv_job_size *size, gpuserve_error *error);

/* Check that texts are UTF-8 and ids are within the vocabulary. */
gpuserve_status gsv_job_check_content(const struct gsv_model *model, const gpuserve_job *job,
                                      const struct gsv_job_size *size, gpuserve_error *error);

/* Check that the output has capacity for n_rows rows. */
gpuserve_status gsv_job_check_output(const gpuserve_job *job, size_t n_rows, int32_t columns,
                                     gpuserve_error *error);

/* Text i, or its pair (NULL if the job has no pairs). */
const char *gsv_job_text(const gpuserve_job *job, size_t i, size_t *size);
const char *gsv_job_pair(const gpuserve_job *job, size_t i, size_t *size);

#endif
