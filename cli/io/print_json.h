/*
 * print_json.h - JSON objects for people and for programs.
 */
#ifndef CLI_PRINT_JSON_H
#define CLI_PRINT_JSON_H

#include "cli/cli.h"

#include <jansson.h>

/* Text of the library as JSON; frees `text`, which may be NULL. Owned; NULL after a message. */
json_t *cli_facts_parse(char *text);

/* On standard output: as JSON, or as lines of names and values. Takes over `facts`. */
int cli_facts_print(json_t *facts, bool as_json);

#endif
