/*
 * input.h - where a command's texts come from: arguments, lines, JSON lines or CSV.
 *
 * Records come one at a time, checked: text is UTF-8, required members are there. Messages name the
 * file and the line.
 */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "cli/io/csv.h"
#include "cli/options/options.h"

#include <jansson.h>

/* One record, lent until the next one. */
struct cli_record {
    const char *text;
    size_t text_size;
    const char *second; /* the second text of a pair, or a label; NULL when none was asked for */
    size_t second_size;
};

struct cli_input {
    /* what is wanted of a record */
    const char *text_column;
    const char *second_column;    /* NULL: no second text */
    const struct cli_list *where; /* "column=value", or NULL */
    /* where it is read from */
    const char *const *arguments;
    size_t n_arguments, next_argument;
    uint32_t format; /* cli_input_format */
    struct cli_reader reader;
    struct cli_csv *csv;
    int text_at, second_at, where_at[CLI_LIST_MAX]; /* columns of the CSV */
    json_t *object;                                 /* the current JSON line */
    char number[64];                                /* a label that is a number */
    uint64_t line;
};

/* Open a file by its format, BY_NAME meaning its suffix. The strings are lent. */
int cli_input_open(struct cli_input *input, const char *path, uint32_t format,
                   const char *text_column, const char *second_column,
                   const struct cli_list *where);

/* The texts that the command line gives: arguments, --input or standard input. */
int cli_input_from(struct cli_input *input, const struct cli_args *args, bool pairs);

void cli_input_close(struct cli_input *input);

/* 1, 0 at the end, -1 after a message. */
int cli_input_next(struct cli_input *input, struct cli_record *record);

/* Where the current record is, for messages: "FILE: line 7", "argument 3". Owned. */
char *cli_input_where(const struct cli_input *input);

/* Whether the next record would have to be waited for. */
bool cli_input_would_wait(const struct cli_input *input);

#endif
