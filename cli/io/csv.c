/*
 * csv.c - CSV parser as a state machine, in place.
 *
 * First a scan finds the end of the row; it tracks quotes and reads more of the file as needed.
 * Then the row is split into fields in place: an unquoted field is never longer than the quoted
 * one.
 */
#include "cli/io/reader.h"

#include <stdlib.h>
#include <string.h>

/* State of the scan. A quote opens a field only as its first byte, as in Python's csv module. */
enum state { FIELD_BEGIN, PLAIN, QUOTED, QUOTE_IN_QUOTED };

static enum state step(enum state state, char c)
{
    if (state == QUOTED)
        return c == '"' ? QUOTE_IN_QUOTED : QUOTED;
    if (c == '"' && state == FIELD_BEGIN)
        return QUOTED;
    if (c == '"' && state == QUOTE_IN_QUOTED)
        return QUOTED; /* a doubled quote is one quote */
    return c == ',' ? FIELD_BEGIN : PLAIN;
}

/* Reads until the window has the byte at offset `at`: 1, 0 at the end of the file, -1 on an
 * error. */
static int have_byte(struct cli_reader *reader, size_t at)
{
    while (reader->begin + at >= reader->end) {
        if (reader->at_end)
            return 0;
        if (cli_reader_fill(reader) != CLI_OK)
            return -1;
    }
    return 1;
}

struct csv_row {
    size_t size;      /* bytes from the window's begin */
    size_t ending;    /* bytes of the line end: LF, CR LF or CR; 0 at the end of the file */
    uint64_t n_lines; /* line ends inside quoted fields */
};

/* 1, 0 at the end of the file, -1 after a message. The row stays in the window. */
static int find_row(struct cli_reader *reader, struct csv_row *row)
{
    enum state state = FIELD_BEGIN;
    int have;

    memset(row, 0, sizeof(*row));
    for (; (have = have_byte(reader, row->size)) > 0; row->size++) {
        const char c = reader->bytes[reader->begin + row->size];

        if (state != QUOTED && (c == '\n' || c == '\r')) {
            row->ending = 1;
            if (c == '\r' && (have = have_byte(reader, row->size + 1)) > 0)
                row->ending += reader->bytes[reader->begin + row->size + 1] == '\n';
            return have < 0 ? -1 : 1;
        }
        row->n_lines += c == '\n';
        state = step(state, c);
    }
    if (have == 0 && state == QUOTED) {
        cli_fail("%s: line %llu: a quoted field has no closing quote", reader->name,
                 (unsigned long long)reader->line);
        return -1;
    }
    return have < 0 ? -1 : row->size > 0;
}

static int cut_fields(struct cli_csv *csv, char *row, size_t size, const char *file)
{
    enum state state = FIELD_BEGIN;
    char *out = row, *field = row;

    csv->n_fields = 0;
    for (size_t i = 0; i <= size; i++) {
        const bool ends = i == size || (row[i] == ',' && state != QUOTED);

        if (ends) {
            if (csv->n_fields == CLI_CSV_COLUMNS)
                return cli_fail("%s: line %llu: more than %d columns", file,
                                (unsigned long long)csv->line, CLI_CSV_COLUMNS);
            csv->fields[csv->n_fields++] = (struct cli_field){ field, (size_t)(out - field) };
            state = FIELD_BEGIN;
            field = out = row + i + 1;
            continue;
        }
        const enum state next = step(state, row[i]);
        /* Skips the opening and the closing quote. */
        if (!(row[i] == '"' && (state == QUOTED || (state == FIELD_BEGIN && next == QUOTED))))
            *out++ = row[i];
        state = next;
    }
    return CLI_OK;
}

int cli_csv_next(struct cli_csv *csv, struct cli_reader *reader)
{
    struct csv_row row;
    char *bytes;

    do {
        const int found = find_row(reader, &row);

        if (found <= 0)
            return found;
        bytes = reader->bytes + reader->begin;
        csv->line = reader->line;
        reader->line += row.n_lines + (row.ending > 0);
        reader->begin += row.size + row.ending;
    } while (row.size == 0);
    return cut_fields(csv, bytes, row.size, reader->name) == CLI_OK ? 1 : -1;
}

int cli_csv_open(struct cli_csv *csv, struct cli_reader *reader)
{
    const int found = cli_csv_next(csv, reader);

    if (found < 0)
        return CLI_FAILED;
    if (found == 0)
        return cli_fail("%s: the file is empty; its first row must name the columns", reader->name);
    for (size_t i = 0; i < csv->n_fields; i++)
        csv->columns[i] = cli_copy(csv->fields[i].text, csv->fields[i].size);
    csv->n_columns = csv->n_fields;
    return CLI_OK;
}

void cli_csv_close(struct cli_csv *csv)
{
    for (size_t i = 0; i < csv->n_columns; i++)
        free(csv->columns[i]);
    csv->n_columns = 0;
}

int cli_csv_column(const struct cli_csv *csv, const char *name, const char *file)
{
    char names[256] = "";

    for (size_t i = 0; i < csv->n_columns; i++) {
        if (strcmp(csv->columns[i], name) == 0)
            return (int)i;
        strncat(names, names[0] ? ", " : "", sizeof(names) - strlen(names) - 1);
        strncat(names, csv->columns[i], sizeof(names) - strlen(names) - 1);
    }
    cli_fail("%s: column \"%s\" is missing", file, name);
    cli_hint("the file's columns are %s", names);
    return -1;
}
