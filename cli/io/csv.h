/*
 * csv.h - rows of comma-separated values (RFC 4180): quoted fields may hold commas, line ends and
 * doubled quotes. The first row names the columns. Empty lines are skipped.
 */
#ifndef CLI_CSV_H
#define CLI_CSV_H

#include "cli/io/reader.h"

#define CLI_CSV_COLUMNS 1024

struct cli_field {
    char *text;
    size_t size;
};

struct cli_csv {
    char *columns[CLI_CSV_COLUMNS]; /* owned */
    size_t n_columns;
    struct cli_field fields[CLI_CSV_COLUMNS]; /* of the current row, lent */
    size_t n_fields;
    uint64_t line; /* where the current row begins */
};

/* Read the first row. */
int cli_csv_open(struct cli_csv *csv, struct cli_reader *reader);
void cli_csv_close(struct cli_csv *csv);

/* The index of a column, or -1 after a message with the names there are. */
int cli_csv_column(const struct cli_csv *csv, const char *name, const char *file);

/* The next row into csv->fields: 1, 0 at the end, -1 after a message. */
int cli_csv_next(struct cli_csv *csv, struct cli_reader *reader);

#endif
