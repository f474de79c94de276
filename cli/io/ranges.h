/*
 * ranges.h - the range of each dimension, for int8 and uint8 vectors: a .npy file [2, dim] of
 * float32, the minima before the maxima, or computed from the library's calibration texts.
 */
#ifndef CLI_RANGES_H
#define CLI_RANGES_H

#include "cli/model.h"
#include "cli/io/output.h"

/* Read a file of `calibrate` or numpy; any other type or shape is an error. The caller frees
 * *ranges, NULL on failure. */
int cli_ranges_read(float **ranges, const char *path, size_t dim);

/* Compute ranges from the built-in texts; `job` has the options of the vectors. */
int cli_ranges_builtin(float **ranges, gpuserve_model *model, const gpuserve_job *job, size_t dim);

#endif
