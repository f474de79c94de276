/*
 * input.h - source of a command's texts: arguments, lines, JSON Lines or CSV.
 *
 * Records are read one at a time and validated: text is UTF-8, the required JSON fields or columns
 * are present. Error messages name the file and the line.
 */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "cli/io/reader.h"
#include "cli/options/options.h"

#include <jansson.h>

/* One record, borrowed until the next call. */
struct cli_record {
    const char *text;
    size_t text_size;
    const char *second; /* second text of a pair, or a label; NULL if not requested */
    size_t second_size;
    const char *label; /* NULL if not requested */
    size_t label_size;
};

struct cli_input {
    /* requested fields */
    const char *text_column;
    const char *second_column;    /* NULL: no second text */
    const char *label_column;     /* NULL: no label; not in a file of lines */
    const struct cli_list *where; /* filters "column=value", or NULL */
    /* source */
    const char *const *arguments;
    size_t n_arguments, next_argument;
    uint32_t format; /* cli_input_format */
    struct cli_reader reader;
    struct cli_csv *csv;
    int text_at, second_at, label_at, where_at[CLI_LIST_MAX]; /* column indices of the CSV */
    json_t *object;                                           /* the current JSON line */
    char number[64]; /* text of a label that is a JSON number */
    uint64_t line;
};

/* Opens a file of a format; BY_NAME selects the format by the file suffix. The strings are
 * borrowed. */
int cli_input_open(struct cli_input *input, const char *path, uint32_t format,
                   const char *text_column, const char *second_column, const char *label_column,
                   const struct cli_list *where);

/* Opens the texts of the command line: arguments, --input or standard input. */
int cli_input_from(struct cli_input *input, const struct cli_args *args, bool pairs);

void cli_input_close(struct cli_input *input);

/* 1, 0 at the end, -1 after a message. */
int cli_input_next(struct cli_input *input, struct cli_record *record);

/* Position of the current record for messages: "FILE: line 7", "argument 3". Owned. */
char *cli_input_where(const struct cli_input *input);

/* True if reading the next record would block. */
bool cli_input_would_wait(const struct cli_input *input);

#endif
