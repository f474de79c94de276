/*
 * reader.h - buffered reader of a file, with space for at least one whole record.
 *
 * The window is bytes[begin, end); cli_reader_fill() extends it. A file of any size needs memory
 * for its longest record only.
 */
#ifndef CLI_READER_H
#define CLI_READER_H

#include "cli/cli.h"

/* Limit of a record. A longer one is an input error: a binary file, or a file without line ends. */
#define CLI_RECORD_BYTES ((size_t)64 << 20)

struct cli_reader {
    int fd;
    const char *name; /* for messages */
    char *bytes;
    size_t capacity, begin, end;
    bool at_end;        /* end of file reached: no bytes after the window */
    uint64_t line;      /* line number of the first byte of the window, from 1 */
    uint64_t n_read;    /* bytes read from the file so far */
    uint64_t file_size; /* 0: unknown (a pipe) */
};

/* "-" is standard input. The name is borrowed. */
int cli_reader_open(struct cli_reader *reader, const char *path);
void cli_reader_close(struct cli_reader *reader);

/* Reads more bytes into the window. CLI_OK at the end of the file too, which sets at_end. */
int cli_reader_fill(struct cli_reader *reader);

/* Fraction of the file returned as lines, 0 to 1; negative if the size is unknown. */
double cli_reader_share(const struct cli_reader *reader);

/* True if reading would block. */
bool cli_reader_would_wait(const struct cli_reader *reader);

/* Next line without its line end (LF or CR LF), borrowed until the next call. 1, 0 at the end of
 * the file, -1 after a message. *number is the line number, from 1. */
int cli_reader_line(struct cli_reader *reader, char **line, size_t *size, uint64_t *number);

/*
 * Parser of comma-separated values (RFC 4180): quoted fields may contain commas, line ends
 * and doubled quotes.
 *
 * The first row names the columns. Empty lines are skipped. Fields are borrowed from the reader's
 * buffer until the next row.
 */

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
