/*
 * model.h - a model and its context as the options ask for them.
 */
#ifndef CLI_MODEL_H
#define CLI_MODEL_H

#include "cli/options/options.h"

/* Prints the library's log lines, and how loud the options want them. */
void cli_log(void *user, int32_t level, const char *message);
int32_t cli_log_level(const struct cli_args *args);

/* The context; CLI_FAILED after a message. */
int cli_context(gpuserve_context **context, const struct cli_args *args);

/* The library's options of a model. */
gpuserve_model_options cli_model_options(const struct cli_args *args);

/* The model of --model; CLI_USAGE when there is none. */
int cli_model_open(gpuserve_model **model, const struct cli_args *args);

/* A library call that gives text, in two steps: its size, then itself. `call` is a function of
 * (capacity, text, size, error). Owned; NULL after a message. */
typedef gpuserve_status (*cli_text_call)(void *of, const char *name, char *text, size_t capacity,
                                         size_t *size, gpuserve_error *error);
char *cli_text_of(cli_text_call call, void *of, const char *name);

/* The facts of an open model, as gpuserve_model_info() tells them. Owned; NULL after a message. */
char *cli_model_facts(gpuserve_model *model);

#endif
