/*
 * files.h - limits the files that the server may open to those that it needs (Landlock).
 */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "cli/cli.h"
#include "cli/options/options.h"

#include <gpuserve/http.h>

/* Call after the context is created and before the server starts threads. If the limit cannot be
 * set, the reason goes to standard error and the server continues without the limit. */
void cli_limit_files(const struct cli_args *args, gpuserve_context *context,
                     const gpuserve_http_options *options);

#endif
