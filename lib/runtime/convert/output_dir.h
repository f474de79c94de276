/*
 * output_dir.h - a directory that appears under its name only when it is complete.
 */
#ifndef GSV_RUNTIME_OUTPUT_DIR_H
#define GSV_RUNTIME_OUTPUT_DIR_H

#include "lib/base/dir.h"

struct gsv_output_dir {
    char *path;      /* the final one, without trailing slashes; owned */
    char *temporary; /* beside it; owned, NULL before the beginning and after the end */
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

#endif
