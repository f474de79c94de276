/*
 * load_options.h - how a model was opened, kept so that it can be opened again.
 */
#ifndef GSV_RUNTIME_LOAD_OPTIONS_H
#define GSV_RUNTIME_LOAD_OPTIONS_H

#include <gpuserve/gpuserve.h>

struct gsv_load_options {
    char *path;
    gpuserve_model_options options; /* its strings are owned */
};

/* Copy path and options, which were read with gsv_read_model_options; not the names. */
gpuserve_status gsv_load_options_init(struct gsv_load_options *load_options, const char *path,
                                      const gpuserve_model_options *options, gpuserve_error *error);
void gsv_load_options_reset(struct gsv_load_options *load_options);

#endif
