/*
 * print_json.h - prints JSON objects as JSON or as lines for humans.
 */
#ifndef CLI_PRINT_JSON_H
#define CLI_PRINT_JSON_H

#include "cli/cli.h"

#include <jansson.h>

/* Parses JSON text of the library; frees `text`, which may be NULL. Owned; NULL after a message. */
json_t *cli_facts_parse(char *text);

/* Prints to standard output, as JSON or as lines of names and values. Takes ownership of
 * `facts`. */
int cli_facts_print(json_t *facts, bool as_json);

#endif
