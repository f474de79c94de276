/*
 * embed_outputs.h - `gpuserve embed --outputs`.
 */
#ifndef CLI_EMBED_OUTPUTS_H
#define CLI_EMBED_OUTPUTS_H

#include "cli/options/options.h"

/* Runs `embed` with the outputs of --outputs; the exit status. */
int cli_embed_outputs(const struct cli_args *args);

#endif
