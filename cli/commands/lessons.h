/*
 * lessons.h - the experiments of docs/lessons.md, each one run of `gpuserve bench`.
 */
#ifndef CLI_LESSONS_H
#define CLI_LESSONS_H

#include "cli/options/options.h"

#include <jansson.h>

/* `gpuserve bench --chain`: a list of elementwise operations over a vector. */
int cli_bench_chain(const struct cli_args *args);

/* `gpuserve bench --lstm`: an LSTM by every path, and the accuracy of a model on every device. */
int cli_bench_lstm(const struct cli_args *args);

/* The second table of --lstm: classify labelled texts on every device. Appends rows to `table`. */
int cli_bench_devices(const struct cli_args *args, json_t *table);

/* Runs a Python script with $PYTHON or python3. The script prints one number: seconds. -1 if it
 * cannot run, as without an imported package. Messages of Python are dropped. */
double cli_python_seconds(const char *script);

/* Appends one row, {"path": name, "seconds": ...}; negative seconds: the path cannot run here, and
 * `why` says why. */
void cli_lesson_row(json_t *rows, const char *name, double seconds, const char *why);

#endif
