/*
 * output.h - results to standard output or to a file.
 *
 * A file is written under a temporary name in its folder and takes its own name in
 * cli_output_finish(), when everything is on the disk: what bears the name is whole.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/cli.h"

#include <stdio.h>

struct cli_output {
    FILE *stream;
    const char *name; /* for messages */
    char *temporary;  /* NULL: written in place (standard output, a pipe, a device) */
};

/* NULL and "-" are standard output. The path is lent. */
int cli_output_open(struct cli_output *output, const char *path);
int cli_output_finish(struct cli_output *output);
/* End without a result: the temporary file goes. Also right after finish and for a zeroed one. */
void cli_output_abandon(struct cli_output *output);

/* A message when an earlier write failed. */
int cli_output_check(const struct cli_output *output);

/* JSON pieces. */
void cli_output_floats(struct cli_output *output, const float *values, size_t n,
                       const char *separator);

/* A .npy file of float32 rows (format 1.0): the header has room for any count and is written again
 * at the end, when the count is known. */
int cli_npy_begin(struct cli_output *output, size_t dim);
int cli_npy_rows(struct cli_output *output, const float *rows, size_t n, size_t dim);
int cli_npy_end(struct cli_output *output, size_t n, size_t dim);

#endif
