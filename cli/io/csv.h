/*
 * csv.h - parser of comma-separated values (RFC 4180): quoted fields may contain commas, line ends
 * and doubled quotes.
 *
 * The first row names the columns. Empty lines are skipped. Fields are borrowed from the reader's
 * buffer until the next row.
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
    struct cli_field fields[CLI_CSV_COLUMNS]; /* of the current row, borrowed from the reader */
    size_t n_fields;
    uint64_t line; /* line number where the current row begins */
};

/* Reads the first row. */
int cli_csv_open(struct cli_csv *csv, struct cli_reader *reader);
void cli_csv_close(struct cli_csv *csv);

/* Index of a column; -1 after a message that lists the column names. */
int cli_csv_column(const struct cli_csv *csv, const char *name, const char *file);

/* Reads the next row into csv->fields: 1, 0 at the end, -1 after a message. */
int cli_csv_next(struct cli_csv *csv, struct cli_reader *reader);

#endif
