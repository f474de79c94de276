/*
 * model_stats.h - batch statistics of a model since it started to serve.
 *
 * They include the host program's own use of the model. Work before that point, such as the test
 * run of a reload, is subtracted as a baseline.
 */
#ifndef GSV_HTTP_MODEL_STATS_H
#define GSV_HTTP_MODEL_STATS_H

#include <gpuserve/gpuserve.h>

struct gsv_served;

/* Batch counts by number of texts, in ascending order. */
struct gsv_batches {
    gpuserve_batch_counts *rows; /* [n] */
    size_t n;
};

void gsv_batches_free(struct gsv_batches *batches);

/* Takes the baseline: later results exclude all work before this call. */
gpuserve_status gsv_served_begin_stats(struct gsv_served *served, gpuserve_error *error);

/* Counts of batches and texts; the caller frees `batches` with gsv_batches_free(). */
gpuserve_status gsv_served_stats(const struct gsv_served *served, gpuserve_model_counts *counts,
                                 struct gsv_batches *batches, gpuserve_error *error);

#endif
