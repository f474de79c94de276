/*
 * output.h - writes results to standard output or to a file.
 *
 * A file is written under a temporary name in the same folder. cli_output_finish() syncs it to disk
 * and renames it, so a file under the final name is always complete.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/cli.h"

#include <stdio.h>

struct cli_output {
    FILE *stream;
    const char *name; /* for messages */
    char *temporary;  /* NULL: written directly (standard output, a pipe, a device) */
};

/* NULL and "-" mean standard output. The path is borrowed. */
int cli_output_open(struct cli_output *output, const char *path);
int cli_output_finish(struct cli_output *output);
/* Removes the temporary file. Valid after cli_output_finish() and for a zeroed struct. */
void cli_output_abandon(struct cli_output *output);

/* Prints a message if an earlier write failed. */
int cli_output_check(const struct cli_output *output);

/* Writes floats as JSON numbers. */
void cli_output_floats(struct cli_output *output, const float *values, size_t n,
                       const char *separator);

/* A .npy file of float32 rows (format 1.0). The header has fixed size for any row count; it is
 * rewritten at the end with the count. */
int cli_npy_begin(struct cli_output *output, size_t dim);
int cli_npy_rows(struct cli_output *output, const float *rows, size_t n, size_t dim);
int cli_npy_end(struct cli_output *output, size_t n, size_t dim);

#endif
