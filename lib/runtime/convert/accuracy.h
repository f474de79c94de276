/*
 * accuracy.h - the vectors of a model directory on the built-in probe texts, to compare two
 * directories.
 */
#ifndef GSV_RUNTIME_ACCURACY_H
#define GSV_RUNTIME_ACCURACY_H

#include <gpuserve/convert.h>
#include <gpuserve/run.h>

/* What one model computes for the probes, in float32 on the CPU. */
struct gsv_probe_results {
    uint32_t task;   /* gpuserve_task of the vectors */
    size_t n;        /* texts */
    float *vectors;  /* owned */
    size_t *offsets; /* [n + 1] where each text's vector begins, in floats; owned */
    float *scores;   /* [n * n_labels], NULL without labels of texts; owned */
    size_t n_labels;
};

/* Load the model in `path` and compute the probes. `name` is its name in the context. */
gpuserve_status gsv_probe_results_make(struct gsv_probe_results *results, gpuserve_context *context,
                                       const char *path, const char *name,
                                       const gpuserve_convert_options *options,
                                       gpuserve_error *error);
void gsv_probe_results_reset(struct gsv_probe_results *results);

/* Fill task, n_probes, cosines and score_difference of the report. */
gpuserve_status gsv_probe_results_compare(const struct gsv_probe_results *a,
                                          const struct gsv_probe_results *b,
                                          gpuserve_convert_report *report, gpuserve_error *error);

#endif
