/*
 * serve_files.h - the files that the server may open while it serves; see serve_files.c.
 */
#ifndef CLI_SERVE_FILES_H
#define CLI_SERVE_FILES_H

#include "cli.h"
#include "options.h"

#include <gpuserve/http.h>

/* To be called after the context is made and before the server starts its threads. What keeps the
 * limit away is told on standard error; the server goes on without. */
void cli_limit_files(const struct cli_args *args, gpuserve_context *context,
                     const gpuserve_http_options *options);

#endif
