/*
 * copy_files.h - copies the files of a model directory that are not weights.
 */
#ifndef GSV_RUNTIME_COPY_FILES_H
#define GSV_RUNTIME_COPY_FILES_H

#include "lib/runtime/convert/output_dir.h"

/* The report of a conversion, which is not copied from directory to directory. */
#define GSV_CONVERT_REPORT_NAME "gpuserve-convert.json"

/* Copy configuration, tokenizer, modules and documents: files of the directory and of its folders,
 * by the ends of their names. Weights, their indexes and hidden files are left out. */
gpuserve_status gsv_copy_files(const struct gsv_dir *from, const struct gsv_output_dir *to,
                               gpuserve_error *error);

#endif
