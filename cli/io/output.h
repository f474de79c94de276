/*
 * output.h - writes results to standard output or to a file.
 *
 * A file is written under a temporary name in the same folder. cli_output_finish() syncs it to disk
 * and renames it, so a file under the final name is always complete.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/cli.h"
#include "cli/io/input.h"
#include "cli/model.h"

#include <jansson.h>
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

/* Refuses a name for --output that promises a format which the command does not write: a known
 * suffix of data files that is not in `written`, a list with spaces between. --format overrules the
 * name. Returns CLI_OK or CLI_USAGE after a message. */
int cli_output_suffix(const struct cli_args *args, const char *command, const char *written);

/* Prints a message if an earlier write failed. */
int cli_output_check(const struct cli_output *output);

/* Writes floats as JSON numbers. */
void cli_output_floats(struct cli_output *output, const float *values, size_t n,
                       const char *separator);

/* A .npy file (format 1.0) of rows of one type, as numpy names it. The header has fixed size for
 * any row count; it is rewritten at the end with the count. `columns` is in elements, `bytes` are
 * of whole rows. */
#define CLI_NPY_FLOAT32 "<f4"
#define CLI_NPY_FLOAT16 "<f2"
#define CLI_NPY_INT8 "|i1"
#define CLI_NPY_UINT8 "|u1"
int cli_npy_begin(struct cli_output *output, const char *type, size_t columns);
int cli_npy_rows(struct cli_output *output, const void *rows, size_t bytes);
int cli_npy_end(struct cli_output *output, const char *type, size_t n, size_t columns);

/* `gpuserve classify` with a token classification model (named entities). */

/* True if the model labels tokens, not texts. */
bool cli_labels_tokens(const gpuserve_model *model);

/* Writes the entities of each text as a JSON line; returns CLI_OK or CLI_FAILED. */
int cli_entities(gpuserve_model *model, struct cli_input *input, struct cli_output *output,
                 const struct cli_args *args);

/* `gpuserve classify --labels` with a model that finds entities of given labels (GLiNER). */

/* True if the model takes labels with the texts. */
bool cli_takes_labels(const gpuserve_model *model);

/* As cli_entities(), of the labels of --labels. */
int cli_label_entities(gpuserve_model *model, struct cli_input *input, struct cli_output *output,
                       const struct cli_args *args);

/* Prints JSON objects as JSON or as lines for humans. */

/* Parses JSON text of the library; frees `text`, which may be NULL. Owned; NULL after a message. */
json_t *cli_facts_parse(char *text);

/* Prints to standard output, as JSON or as lines of names and values. Takes ownership of
 * `facts`. */
int cli_facts_print(json_t *facts, bool as_json);

/*
 * Progress line on the terminal for long operations.
 *
 * Prints nothing if standard error is not a terminal, or with --quiet.
 */

struct cli_progress {
    bool shown;
    bool lines;       /* for another program: GPUSERVE_PROGRESS=lines */
    const char *unit; /* "texts"; "bytes" are printed as kB, MB, GB */
    double began, printed;
};

void cli_progress_begin(struct cli_progress *progress, const char *unit, bool quiet);
/* `share` is the completed fraction, 0 to 1; negative if unknown. */
void cli_progress_update(struct cli_progress *progress, double done, double share);
void cli_progress_end(struct cli_progress *progress);

/*
 * The range of each dimension, for int8 and uint8 vectors: a .npy file [2, dim] of
 * float32, the minima before the maxima, or computed from the library's calibration texts.
 */

/* True if vectors of --precision have ranges. */
bool cli_has_ranges(const struct cli_args *args);

/* Read a file of `calibrate` or numpy. The caller frees *ranges, NULL on failure. */
int cli_ranges_load(float **ranges, size_t *dim, const char *path);

/* The same for vectors of `dim` numbers; any other type or shape is an error. */
int cli_ranges_read(float **ranges, const char *path, size_t dim);

/* Compute ranges from the built-in texts; `job` has the options of the vectors. */
int cli_ranges_builtin(float **ranges, gpuserve_model *model, const gpuserve_job *job, size_t dim);

#endif
