/*
 * model_stats.h - what a model has computed since it took its place among those that are served,
 * also for the program around: not what it was tried with before.
 */
#ifndef GSV_HTTP_MODEL_STATS_H
#define GSV_HTTP_MODEL_STATS_H

#include <gpuserve/gpuserve.h>

struct gsv_served;

/* Batches by their number of texts, smallest first. */
struct gsv_batches {
    gpuserve_batch_counts *rows; /* [n] */
    size_t n;
};

void gsv_batches_free(struct gsv_batches *batches);

/* All before this call was before it took its place. */
gpuserve_status gsv_served_begin_stats(struct gsv_served *served, gpuserve_error *error);

/* Batches and texts; `batches` is to be freed. */
gpuserve_status gsv_served_stats(const struct gsv_served *served, gpuserve_model_counts *counts,
                                 struct gsv_batches *batches, gpuserve_error *error);

#endif
