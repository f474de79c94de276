/*
 * files.h - the files that the server may open while it serves; see files.c.
 */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "cli/cli.h"
#include "cli/options/options.h"

#include <gpuserve/http.h>

/* To be called after the context is made and before the server starts its threads. What keeps the
 * limit away is told on standard error; the server goes on without. */
void cli_limit_files(const struct cli_args *args, gpuserve_context *context,
                     const gpuserve_http_options *options);

#endif
