/*
 * convert.h - what `gpuserve convert` and `gpuserve prune` share.
 */
#ifndef CLI_CONVERT_H
#define CLI_CONVERT_H

#include "cli/options/options.h"

#include <jansson.h>

/* Converts args->rest[0] to args->rest[1] with a progress line. A signal cancels it and ends the
 * program. */
int cli_convert_run(gpuserve_context *context, const struct cli_args *args,
                    gpuserve_convert_report *report);
/* The report as JSON; NULL if the path is not UTF-8. Owned. */
json_t *cli_convert_facts(const gpuserve_convert_report *report, const char *output);

#endif
