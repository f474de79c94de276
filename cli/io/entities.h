/*
 * entities.h - `gpuserve classify` with a model that labels tokens.
 */
#ifndef CLI_ENTITIES_H
#define CLI_ENTITIES_H

#include "cli/io/input.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"

/* Whether the model's labels are of tokens, not of texts. */
bool cli_labels_tokens(gpuserve_model *model);

/* The entities of each text as a JSON line; CLI_OK or CLI_FAILED. */
int cli_entities(gpuserve_model *model, struct cli_input *input, struct cli_output *output,
                 const struct cli_args *args);

#endif
