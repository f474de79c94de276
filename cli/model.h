/*
 * model.h - opens the context and the model that the command line asks for.
 *
 * Translates struct cli_args into the library's options. Log lines of the library go to standard
 * error.
 */
#ifndef CLI_MODEL_H
#define CLI_MODEL_H

#include "cli/options/options.h"

/* The log level of the library for --verbose and --quiet. */
int32_t cli_log_level(const struct cli_args *args);

/* Creates the context; returns CLI_FAILED after a message. */
int cli_context(gpuserve_context **context, const struct cli_args *args);

/* The library's model options for the command line. */
gpuserve_model_options cli_model_options(const struct cli_args *args);

/* The message for a command line without --model; CLI_USAGE. */
int cli_model_missing(void);

/* Opens the model of --model; returns CLI_USAGE if --model is missing. */
int cli_model_open(gpuserve_model **model, const struct cli_args *args);

/* A library call that writes text of unknown size: with too little capacity it returns the size. It
 * takes (of, name, text, capacity, size, error). cli_text_of() result: owned; NULL after a
 * message. */
typedef gpuserve_status (*cli_text_call)(void *of, const char *name, char *text, size_t capacity,
                                         size_t *size, gpuserve_error *error);
char *cli_text_of(cli_text_call call, void *of, const char *name);

/* The properties of an open model. */
gpuserve_model_properties cli_model_properties(const gpuserve_model *model);

/* The JSON of gpuserve_model_info() for an open model. Owned; NULL after a message. */
char *cli_model_facts(gpuserve_model *model);

/* Copies the options of an embedding to a job: dimensions, normalization, truncation, prompt. */
void cli_vector_options(gpuserve_job *job, const struct cli_args *args);
/* The floats of a vector: --dimensions, or all that the model has. An error if it has fewer. */
int cli_vector_dim(size_t *dim, const gpuserve_model *model, const struct cli_args *args);

#endif
