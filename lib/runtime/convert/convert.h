/*
 * convert.h - the parts of gpuserve_convert(): accuracy, copied files, the output directory.
 */
#ifndef GSV_RUNTIME_CONVERT_H
#define GSV_RUNTIME_CONVERT_H

#include "lib/base/dir.h"

#include <gpuserve/convert.h>
#include <gpuserve/run.h>

/*
 * The vectors of a model directory on the built-in probe texts, to compare two
 * directories.
 */

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

/*
 * A directory that appears under its name only when it is complete.
 */

struct gsv_output_dir {
    char *path;      /* the final one, without trailing slashes; owned */
    char *temporary; /* in the same folder; owned, NULL before the beginning and after the end */
    int fd;          /* of the temporary directory; -1: none */
    bool replaces;   /* an existing directory may be replaced */
};

/* Check that `path` may become the output of a model in `input`. */
gpuserve_status gsv_output_check(const char *path, const char *input, bool force,
                                 gpuserve_error *error);

/* Create the temporary directory. gsv_output_end() or gsv_output_abandon() ends it. */
gpuserve_status gsv_output_begin(struct gsv_output_dir *output, const char *path, bool force,
                                 gpuserve_error *error);
/* Flush, and rename the directory into place. */
gpuserve_status gsv_output_end(struct gsv_output_dir *output, gpuserve_error *error);
/* Remove what was written. Also after gsv_output_end(), and for a struct with fd -1. */
void gsv_output_abandon(struct gsv_output_dir *output);

/* Open FOLDER of the temporary directory ("" is itself), creating it; the caller closes it. */
gpuserve_status gsv_output_folder(const struct gsv_output_dir *output, const char *folder, int *fd,
                                  gpuserve_error *error);

/*
 * Copies the files of a model directory that are not weights.
 */

/* The report of a conversion, which is not copied from directory to directory. */
#define GSV_CONVERT_REPORT_NAME "gpuserve-convert.json"

/* Copy configuration, tokenizer, modules and documents: files of the directory and of its folders,
 * by the ends of their names. Weights, their indexes and hidden files are left out. */
gpuserve_status gsv_copy_files(const struct gsv_dir *from, const struct gsv_output_dir *to,
                               gpuserve_error *error);

#endif
