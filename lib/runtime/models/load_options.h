/*
 * load_options.h - how a model was opened, kept so that it can be opened again.
 */
#ifndef GSV_RUNTIME_LOAD_OPTIONS_H
#define GSV_RUNTIME_LOAD_OPTIONS_H

#include <gpuserve/gpuserve.h>

struct gsv_opening {
    char *path;
    gpuserve_model_options options; /* its strings are owned */
};

/* Copy path and options, which were read with gsv_read_model_options; not the names. */
gpuserve_status gsv_opening_init(struct gsv_opening *opening, const char *path,
                                 const gpuserve_model_options *options, gpuserve_error *error);
void gsv_opening_reset(struct gsv_opening *opening);

#endif
