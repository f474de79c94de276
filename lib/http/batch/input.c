/*
 * input.c - checks the lines of a batch before any of them is computed.
 *
 * One pass over the file keeps the offset and the `custom_id` of each line. Sorting the ids finds
 * duplicates. Limits: GSV_BATCH_MAX_LINES lines of --max-body-bytes, ids of 512 bytes. Runs on the
 * batch thread.
 */
#include "lib/http/batch/batch.h"

#include "lib/base/alloc.h"
#include "lib/base/dir.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ID_BYTES = 512, MAX_SHOWN = 64 };

/* Equal to the limits of gsv_request_parse(), which parses the line again. */
static const struct gsv_json_limits limits = { GSV_BODY_VALUES, GSV_BODY_DEPTH };

struct custom_id {
    char *text;
    size_t line; /* of the file, from 1 */
};

struct input_scan {
    struct gsv_batch_input *input;
    struct gsv_batch_jobs *batches;
    struct gsv_batch_job *batch;
    struct custom_id *ids;
    size_t n_ids, capacity, n_faults;
    size_t line;  /* of the file, from 1 */
    bool is_full; /* the file has more lines than the limit */
};

static void fault(struct input_scan *scan, const char *code, size_t line, const char *message)
{
    scan->n_faults++;
    gsv_batch_add_error(scan->batches, scan->batch, code, message, line);
}

/* ---------------------------------------------------------------------------------------- lines */

static bool check_text(struct input_scan *scan, const json_t *value, const char *key,
                       const char *wanted, const char *code)
{
    const char *text = json_string_value(json_object_get(value, key));
    const int n = text ? (int)gsv_utf8_valid_length(text, strnlen(text, MAX_SHOWN)) : 0;
    char message[256];

    if (text && (!wanted || strcmp(text, wanted) == 0))
        return true;
    if (!text)
        snprintf(message, sizeof(message), "Missing required parameter: '%s'.", key);
    else
        snprintf(message, sizeof(message), "The '%s' of the line is '%.*s', not '%s'.", key, n,
                 text, wanted);
    fault(scan, text ? code : "missing_required_parameter", scan->line, message);
    return false;
}

static gpuserve_status add_id(struct input_scan *scan, const json_t *value, gpuserve_error *error)
{
    const json_t *id = json_object_get(value, "custom_id");
    char *text;

    if (json_string_length(id) > MAX_ID_BYTES || json_string_length(id) == 0 ||
        memchr(json_string_value(id), 0, json_string_length(id))) {
        fault(scan, "invalid_custom_id", scan->line,
              "The 'custom_id' has no bytes, more than 512, or a NUL.");
        return GPUSERVE_OK;
    }
    text = gsv_copy_text(json_string_value(id), json_string_length(id));
    if (!text || !gsv_grow((void **)&scan->ids, &scan->capacity, scan->n_ids + 1,
                           sizeof(*scan->ids), GSV_BATCH_MAX_LINES)) {
        free(text);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for ids");
    }
    scan->ids[scan->n_ids++] = (struct custom_id){ text, scan->line };
    return GPUSERVE_OK;
}

static gpuserve_status check_value(struct input_scan *scan, const json_t *value,
                                   gpuserve_error *error)
{
    if (!json_is_object(value)) {
        fault(scan, "invalid_json_line", scan->line, "This line is not a JSON object.");
        return GPUSERVE_OK;
    }
    if (!check_text(scan, value, "custom_id", NULL, "") ||
        !check_text(scan, value, "method", "POST", "invalid_method") ||
        !check_text(scan, value, "url", scan->batch->endpoint, "invalid_url"))
        return GPUSERVE_OK;
    if (!json_is_object(json_object_get(value, "body"))) {
        fault(scan, "missing_required_parameter", scan->line,
              "Missing required parameter: 'body', an object.");
        return GPUSERVE_OK;
    }
    return add_id(scan, value, error);
}

static gpuserve_status check_line(struct input_scan *scan, const char *text, size_t size,
                                  gpuserve_error *error)
{
    const uint64_t max_bytes = scan->batches->server->options.max_body_bytes;
    gpuserve_error why = GPUSERVE_ERROR_INIT;
    char message[128];
    gpuserve_status st;
    json_t *value;

    if (size > max_bytes) {
        snprintf(message, sizeof(message),
                 "The line has %zu bytes, the limit is %llu (--max-body-bytes).", size,
                 (unsigned long long)max_bytes);
        fault(scan, "line_too_large", scan->line, message);
        return GPUSERVE_OK;
    }
    st = gsv_json_parse(&value, text, size, "line", limits, &why);
    if (st == GPUSERVE_OK)
        st = check_value(scan, value, error);
    else if (st == GPUSERVE_E_NOMEM)
        gsv_error_copy(error, &why);
    else
        fault(scan, "invalid_json_line", scan->line, why.message), st = GPUSERVE_OK;
    json_decref(value);
    return st;
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    }
    return true;
}

static gpuserve_status take_line(struct input_scan *scan, const char *text, size_t size,
                                 uint64_t offset, gpuserve_error *error)
{
    struct gsv_batch_input *input = scan->input;
    char message[96];

    scan->line++;
    if (is_blank(text, size))
        return GPUSERVE_OK;
    if (input->n == GSV_BATCH_MAX_LINES) {
        snprintf(message, sizeof(message), "The file has more than %d lines, which is the limit.",
                 GSV_BATCH_MAX_LINES);
        fault(scan, "too_many_tasks", scan->line, message);
        scan->is_full = true;
        return GPUSERVE_OK;
    }
    if (!gsv_grow((void **)&input->lines, &input->capacity, input->n + 1, sizeof(*input->lines),
                  GSV_BATCH_MAX_LINES))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for lines");
    input->lines[input->n++] = (struct gsv_batch_line){ offset, size };
    return check_line(scan, text, size, error);
}

/* ----------------------------------------------------------------------------------------- file */

static gpuserve_status scan_file(struct input_scan *scan, gpuserve_error *error)
{
    const int copy = dup(scan->input->fd);
    FILE *file = copy >= 0 ? fdopen(copy, "r") : NULL;
    gpuserve_status st = GPUSERVE_OK;
    size_t capacity = 0;
    uint64_t offset = 0;
    char *text = NULL;
    ssize_t size = 0;

    if (!file) {
        if (copy >= 0)
            close(copy);
        return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", scan->batch->input_id, strerror(errno));
    }
    /* Reading stops at the limit of lines or of faults. */
    while (st == GPUSERVE_OK && !scan->is_full && scan->n_faults < GSV_BATCH_MAX_ERRORS &&
           (size = getline(&text, &capacity, file)) > 0) {
        const size_t n = (size_t)size - (text[size - 1] == '\n');

        st = take_line(scan, text, n, offset, error);
        offset += (uint64_t)size;
    }
    if (st == GPUSERVE_OK && size < 0 && !feof(file))
        st = gsv_fail(error, GPUSERVE_E_IO, "%s: %s", scan->batch->input_id, strerror(errno));
    free(text);
    fclose(file);
    return st;
}

static int compare(const void *a, const void *b)
{
    const struct custom_id *one = a, *other = b;
    const int order = strcmp(one->text, other->text);

    return order ? order : (one->line > other->line) - (one->line < other->line);
}

static void check_ids(struct input_scan *scan)
{
    char message[128];

    if (scan->n_ids == 0)
        return;
    qsort(scan->ids, scan->n_ids, sizeof(*scan->ids), compare);
    for (size_t i = 1; i < scan->n_ids && scan->n_faults < GSV_BATCH_MAX_ERRORS; i++) {
        if (strcmp(scan->ids[i - 1].text, scan->ids[i].text) != 0)
            continue;
        snprintf(message, sizeof(message),
                 "The 'custom_id' of this line is that of line %zu: it must be unique.",
                 scan->ids[i - 1].line);
        fault(scan, "duplicate_custom_id", scan->ids[i].line, message);
    }
}

gpuserve_status gsv_batch_input_open(struct gsv_batch_input *input, struct gsv_batch_jobs *batches,
                                     struct gsv_batch_job *batch, size_t *n_faults,
                                     gpuserve_error *error)
{
    struct input_scan scan = { .input = input, .batches = batches, .batch = batch };
    gpuserve_status st;

    *input = (struct gsv_batch_input){ .fd = -1 };
    *n_faults = 0;
    st = gsv_store_open_data(&batches->store, batch->input_id, O_RDONLY, &input->fd, error);
    if (st == GPUSERVE_OK)
        st = scan_file(&scan, error);
    if (st == GPUSERVE_OK)
        check_ids(&scan);
    if (st == GPUSERVE_OK && input->n == 0 && scan.n_faults == 0)
        fault(&scan, "empty_file", 0, "The input file has no lines.");
    for (size_t i = 0; i < scan.n_ids; i++)
        free(scan.ids[i].text);
    free(scan.ids);
    *n_faults = scan.n_faults;
    return st;
}

void gsv_batch_input_close(struct gsv_batch_input *input)
{
    if (input->fd >= 0)
        close(input->fd);
    free(input->lines);
    *input = (struct gsv_batch_input){ .fd = -1 };
}

gpuserve_status gsv_batch_input_read(const struct gsv_batch_input *input, size_t i, char **text,
                                     gpuserve_error *error)
{
    const struct gsv_batch_line *line = &input->lines[i];
    gpuserve_status st;

    *text = malloc(line->size + 1);
    if (!*text)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a line");
    st = gsv_fd_read(input->fd, *text, line->size, line->offset, "the input file", error);
    (*text)[line->size] = 0;
    if (st != GPUSERVE_OK) {
        free(*text);
        *text = NULL;
    }
    return st;
}

size_t gsv_batch_line_weight(const char *text, size_t size)
{
    size_t n = 1 + size / GSV_BATCH_WEIGHT_BYTES;

    for (const char *at = text; (at = memchr(at, ',', size - (size_t)(at - text))); at++)
        n++;
    return n;
}

gpuserve_status gsv_batch_custom_id(const char *text, size_t size, char **id, gpuserve_error *error)
{
    const char *found;
    json_t *value;
    gpuserve_status st;

    *id = NULL;
    st = gsv_json_parse(&value, text, size, "line", limits, error);
    if (st != GPUSERVE_OK)
        return st;
    found = json_string_value(json_object_get(value, "custom_id"));
    if (found)
        *id = gsv_copy_text(found, strlen(found));
    json_decref(value);
    return *id ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an id");
}
