/*
 * input.c - reads records from arguments, lines, JSON Lines or CSV.
 *
 *   reader.c (bytes) -> line or CSV row -> filter "column=value" -> UTF-8 check -> record
 *
 * Filtered-out records are skipped. The first invalid record ends the input with a message. Record
 * strings are borrowed from the reader or the parsed JSON line.
 */
#include "cli/io/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t format_of(const char *path)
{
    const char *dot = strrchr(path, '.');

    if (dot && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".ndjson") == 0))
        return CLI_INPUT_JSONL;
    if (dot && strcmp(dot, ".csv") == 0)
        return CLI_INPUT_CSV;
    return CLI_INPUT_LINES;
}

/* Name part of a filter "column=value". */
static char *where_column(const char *where)
{
    return cli_copy(where, strcspn(where, "="));
}

static int open_csv(struct cli_input *input)
{
    const char *file = input->reader.name;

    input->csv = cli_alloc(1, sizeof(*input->csv));
    if (cli_csv_open(input->csv, &input->reader) != CLI_OK)
        return CLI_FAILED;
    input->text_at = cli_csv_column(input->csv, input->text_column, file);
    if (input->text_at < 0)
        return CLI_FAILED;
    if (input->second_column) {
        input->second_at = cli_csv_column(input->csv, input->second_column, file);
        if (input->second_at < 0)
            return CLI_FAILED;
    }
    if (input->label_column) {
        input->label_at = cli_csv_column(input->csv, input->label_column, file);
        if (input->label_at < 0)
            return CLI_FAILED;
    }
    for (size_t i = 0; input->where && i < input->where->n; i++) {
        char *name = where_column(input->where->items[i]);

        input->where_at[i] = cli_csv_column(input->csv, name, file);
        free(name);
        if (input->where_at[i] < 0)
            return CLI_FAILED;
    }
    return CLI_OK;
}

int cli_input_open(struct cli_input *input, const char *path, uint32_t format,
                   const char *text_column, const char *second_column, const char *label_column,
                   const struct cli_list *where)
{
    memset(input, 0, sizeof(*input));
    input->text_column = text_column ? text_column : "text";
    input->second_column = second_column;
    input->label_column = label_column;
    input->where = where;
    input->format = format ? format : format_of(path);
    if (cli_reader_open(&input->reader, path) != CLI_OK)
        return CLI_FAILED;
    if (input->format == CLI_INPUT_CSV && open_csv(input) != CLI_OK) {
        cli_input_close(input);
        return CLI_FAILED;
    }
    return CLI_OK;
}

int cli_input_from(struct cli_input *input, const struct cli_args *args, bool pairs)
{
    const char *second = NULL;

    if (pairs)
        second = args->pair_column ? args->pair_column : "pair";
    if (args->n_rest && args->input)
        return cli_usage("texts as arguments and --input %s exclude each other", args->input);
    if (!args->n_rest) {
        if (!args->input && isatty(STDIN_FILENO)) {
            cli_usage("the texts are missing");
            cli_hint("give texts as arguments, with --input FILE, or on standard input");
            return CLI_USAGE;
        }
        return cli_input_open(input, args->input ? args->input : "-", args->input_format,
                              args->text_column, second, NULL, NULL);
    }
    if (pairs)
        return cli_usage("pairs of texts need --input FILE with JSON objects or CSV rows");
    memset(input, 0, sizeof(*input));
    input->arguments = args->rest;
    input->n_arguments = args->n_rest;
    return CLI_OK;
}

void cli_input_close(struct cli_input *input)
{
    if (input->csv) {
        cli_csv_close(input->csv);
        free(input->csv);
    }
    json_decref(input->object);
    cli_reader_close(&input->reader);
    memset(input, 0, sizeof(*input));
}

static int fail_at(const struct cli_input *input, const char *message, const char *name)
{
    if (name)
        cli_fail("%s: line %llu: %s \"%s\"", input->reader.name, (unsigned long long)input->line,
                 message, name);
    else
        cli_fail("%s: line %llu: %s", input->reader.name, (unsigned long long)input->line, message);
    return -1;
}

/* A JSON field as text: strings unchanged; numbers and booleans as JSON text, since labels are
 * often numbers. NULL for other types and for a missing field. */
static const char *member_text(struct cli_input *input, const char *name, size_t *size)
{
    const json_t *value = json_object_get(input->object, name);

    if (json_is_string(value)) {
        *size = json_string_length(value);
        return json_string_value(value);
    }
    *size = json_dumpb(value, input->number, sizeof(input->number), JSON_ENCODE_ANY);
    if (!(json_is_number(value) || json_is_boolean(value)) || *size > sizeof(input->number))
        return NULL;
    return input->number;
}

static bool same_text(const char *text, size_t size, const char *other)
{
    return text && strlen(other) == size && memcmp(text, other, size) == 0;
}

/* -------------------------------------------------------------------------------------- formats */

static bool is_blank(const char *line, size_t size)
{
    while (size && (line[size - 1] == ' ' || line[size - 1] == '\t'))
        size--;
    return size == 0;
}

static int next_jsonl(struct cli_input *input, struct cli_record *record, bool *kept)
{
    json_error_t where;
    char *line;
    size_t size;
    const int found = cli_reader_line(&input->reader, &line, &size, &input->line);

    if (found <= 0)
        return found;
    *kept = false;
    if (is_blank(line, size))
        return 1;
    json_decref(input->object);
    input->object = json_loadb(line, size, JSON_ALLOW_NUL, &where);
    if (!input->object)
        return fail_at(input, where.text, NULL);
    if (!json_is_object(input->object))
        return fail_at(input, "not a JSON object", NULL);
    for (size_t i = 0; input->where && i < input->where->n; i++) {
        char *name = where_column(input->where->items[i]);
        const char *value = member_text(input, name, &size);
        const bool same = same_text(value, size, input->where->items[i] + strlen(name) + 1);

        free(name);
        if (!same)
            return 1;
    }
    const json_t *text = json_object_get(input->object, input->text_column);
    if (!json_is_string(text))
        return fail_at(input, "no string field", input->text_column);
    record->text = json_string_value(text);
    record->text_size = json_string_length(text);
    if (input->second_column) {
        record->second = member_text(input, input->second_column, &record->second_size);
        if (!record->second)
            return fail_at(input, "no string field", input->second_column);
    }
    if (input->label_column) {
        record->label = member_text(input, input->label_column, &record->label_size);
        if (!record->label)
            return fail_at(input, "no string or number field", input->label_column);
    }
    *kept = true;
    return 1;
}

static int next_csv(struct cli_input *input, struct cli_record *record, bool *kept)
{
    const struct cli_csv *csv = input->csv;
    const int found = cli_csv_next(input->csv, &input->reader);

    if (found <= 0)
        return found;
    input->line = csv->line;
    if (csv->n_fields != csv->n_columns) {
        cli_fail("%s: line %llu: the row has %zu columns, the first row %zu", input->reader.name,
                 (unsigned long long)input->line, csv->n_fields, csv->n_columns);
        return -1;
    }
    *kept = true;
    for (size_t i = 0; input->where && i < input->where->n; i++) {
        const struct cli_field *field = &csv->fields[input->where_at[i]];

        if (!same_text(field->text, field->size, strchr(input->where->items[i], '=') + 1))
            *kept = false;
    }
    record->text = csv->fields[input->text_at].text;
    record->text_size = csv->fields[input->text_at].size;
    if (input->second_column) {
        record->second = csv->fields[input->second_at].text;
        record->second_size = csv->fields[input->second_at].size;
    }
    if (input->label_column) {
        record->label = csv->fields[input->label_at].text;
        record->label_size = csv->fields[input->label_at].size;
    }
    return 1;
}

/* A line is one text, or two texts separated by a tab. */
static int next_line(struct cli_input *input, struct cli_record *record)
{
    char *line, *tab;
    size_t size;
    const int found = cli_reader_line(&input->reader, &line, &size, &input->line);

    if (found <= 0)
        return found;
    record->text = line;
    record->text_size = size;
    if (input->second_column) {
        tab = memchr(line, '\t', size);
        if (!tab)
            return fail_at(input, "the tab between the two texts is missing", NULL);
        record->text_size = (size_t)(tab - line);
        record->second = tab + 1;
        record->second_size = size - record->text_size - 1;
    }
    return 1;
}

static int next_argument(struct cli_input *input, struct cli_record *record)
{
    if (input->next_argument == input->n_arguments)
        return 0;
    record->text = input->arguments[input->next_argument++];
    record->text_size = strlen(record->text);
    if (!cli_is_utf8(record->text, record->text_size)) {
        cli_fail("argument %zu is not UTF-8", input->next_argument);
        return -1;
    }
    return 1;
}

int cli_input_next(struct cli_input *input, struct cli_record *record)
{
    bool kept = true;
    int found;

    memset(record, 0, sizeof(*record));
    if (input->arguments)
        return next_argument(input, record);
    do {
        if (input->format == CLI_INPUT_JSONL)
            found = next_jsonl(input, record, &kept);
        else if (input->format == CLI_INPUT_CSV)
            found = next_csv(input, record, &kept);
        else
            found = next_line(input, record);
    } while (found > 0 && !kept);
    if (found > 0 && (!cli_is_utf8(record->text, record->text_size) ||
                      !cli_is_utf8(record->second, record->second_size)))
        return fail_at(input, "not UTF-8", NULL);
    return found;
}

char *cli_input_where(const struct cli_input *input)
{
    if (input->arguments)
        return cli_format("argument %zu", input->next_argument);
    return cli_format("%s: line %llu", input->reader.name, (unsigned long long)input->line);
}

bool cli_input_would_wait(const struct cli_input *input)
{
    return !input->arguments && cli_reader_would_wait(&input->reader);
}
