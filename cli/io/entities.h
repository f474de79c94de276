/*
 * entities.h - `gpuserve classify` with a token classification model (named entities).
 */
#ifndef CLI_ENTITIES_H
#define CLI_ENTITIES_H

#include "cli/io/input.h"
#include "cli/io/output.h"
#include "cli/io/progress.h"

/* True if the model labels tokens, not texts. */
bool cli_labels_tokens(gpuserve_model *model);

/* Writes the entities of each text as a JSON line; returns CLI_OK or CLI_FAILED. */
int cli_entities(gpuserve_model *model, struct cli_input *input, struct cli_output *output,
                 const struct cli_args *args);

#endif
