/*
 * load_options.h - the options a model was opened with, kept for loading it again.
 */
#ifndef GSV_RUNTIME_LOAD_OPTIONS_H
#define GSV_RUNTIME_LOAD_OPTIONS_H

#include <gpuserve/gpuserve.h>

struct gsv_load_options {
    char *path;
    gpuserve_model_options options; /* owns its strings */
};

/* Copies path and options, which come from gsv_read_model_options(). Name and version are not
 * copied. */
gpuserve_status gsv_load_options_init(struct gsv_load_options *load_options, const char *path,
                                      const gpuserve_model_options *options, gpuserve_error *error);
void gsv_load_options_reset(struct gsv_load_options *load_options);

#endif
