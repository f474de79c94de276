/*
 * results.c - appends results and finds the finished lines after a restart.
 */
#include "lib/base/clock.h"
#include "lib/http/batch/batch.h"

#include "lib/base/alloc.h"
#include "lib/base/dir.h"
#include "lib/base/error.h"
#include "lib/http/core/json_write.h"
#include "lib/http/net/server_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Markers for the recovery. The result of an executed line ends in END. A line that was not
 * executed is finished too, but not counted. */
#define BEGIN "{\"id\":\"batch_req_"
#define END ",\"error\":null}\n"

enum { LINE_DIGITS = 8 };

static const char *digits_of(const struct gsv_batch_job *batch)
{
    return batch->id + strlen("batch_");
}

static const char *file_of(const struct gsv_batch_job *batch, int stream)
{
    return stream == GSV_BATCH_OUTPUT ? batch->output_id : batch->error_id;
}

void gsv_batch_results_begin(const struct gsv_batch_results *results, struct gsv_buffer *to,
                             size_t i, const char *custom_id)
{
    gsv_buffer_format(to, BEGIN "%s%08zx\",\"custom_id\":", digits_of(results->batch), i);
    gsv_put_text(to, custom_id);
}

/* ------------------------------------------------------------------------------------- recovery */

/* The index of the input line; SIZE_MAX: not a complete result of this batch. */
static size_t read_index(const struct gsv_batch_results *results, const char *text, size_t size)
{
    const char *digits = digits_of(results->batch);
    const size_t before = strlen(BEGIN) + strlen(digits);
    char number[LINE_DIGITS + 1] = "", *end;
    size_t i;

    if (size < before + LINE_DIGITS + strlen("\"}\n") || strncmp(text, BEGIN, strlen(BEGIN)) != 0 ||
        strncmp(text + strlen(BEGIN), digits, strlen(digits)) != 0 ||
        memcmp(text + size - 2, "}\n", 2) != 0 || memchr(text, 0, size))
        return SIZE_MAX;
    memcpy(number, text + before, LINE_DIGITS);
    i = strtoul(number, &end, 16);
    return *end || i >= results->n_lines ? SIZE_MAX : i;
}

static void count(struct gsv_batch_results *results, int stream, size_t i, const char *text,
                  size_t size)
{
    const size_t n = strlen(END);

    results->is_done[i] = true;
    if (size < n || memcmp(text + size - n, END, n) != 0)
        return;
    if (stream == GSV_BATCH_OUTPUT)
        results->n_completed++;
    else
        results->n_failed++;
}

static gpuserve_status fail_io(const struct gsv_batch_results *results, int stream,
                               gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_IO, "%s: %s", file_of(results->batch, stream),
                    strerror(errno));
}

/* Counts the results up to the first incomplete line. A read error is not the end of the file. */
static gpuserve_status read_lines(struct gsv_batch_results *results, int stream, FILE *file,
                                  gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;
    size_t capacity = 0, i;
    char *text = NULL;
    ssize_t size;

    while ((size = getline(&text, &capacity, file)) > 0) {
        i = read_index(results, text, (size_t)size);
        if (i == SIZE_MAX)
            break;
        count(results, stream, i, text, (size_t)size);
        results->sizes[stream] += (uint64_t)size;
    }
    if (size < 0 && !feof(file))
        st = fail_io(results, stream, error);
    free(text);
    return st;
}

/* Truncates the file after the last complete line. */
static gpuserve_status cut(struct gsv_batch_results *results, int stream, gpuserve_error *error)
{
    const uint64_t size = results->sizes[stream];
    const off_t found = lseek(results->fds[stream], 0, SEEK_END);

    if (found < 0 || ((uint64_t)found > size && ftruncate(results->fds[stream], (off_t)size) != 0))
        return fail_io(results, stream, error);
    if ((uint64_t)found > size)
        gsv_store_release(results->store, (uint64_t)found - size);
    return GPUSERVE_OK;
}

static gpuserve_status recover(struct gsv_batch_results *results, int stream, gpuserve_error *error)
{
    const int copy = dup(results->fds[stream]);
    FILE *file = copy >= 0 ? fdopen(copy, "r") : NULL;
    gpuserve_status st;
    off_t found;

    if (!file) {
        st = fail_io(results, stream, error);
        if (copy >= 0)
            close(copy);
        return st;
    }
    st = read_lines(results, stream, file, error);
    fclose(file);
    if (st == GPUSERVE_OK)
        return cut(results, stream, error);
    found = lseek(results->fds[stream], 0, SEEK_END);
    results->sizes[stream] = found > 0 ? (uint64_t)found : 0;
    return st;
}

gpuserve_status gsv_batch_results_open(struct gsv_batch_results *results, struct gsv_store *store,
                                       const struct gsv_batch_job *batch, size_t n_lines,
                                       gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    *results = (struct gsv_batch_results){ .store = store, .batch = batch, .n_lines = n_lines };
    results->fds[GSV_BATCH_OUTPUT] = results->fds[GSV_BATCH_ERRORS] = -1;
    results->is_done = gsv_alloc_array(n_lines, sizeof(bool));
    if (!results->is_done)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu lines", n_lines);
    for (int i = 0; i < GSV_BATCH_N_STREAMS; i++) {
        gpuserve_status one = gsv_store_open_data(store, file_of(batch, i), O_RDWR | O_CREAT,
                                                  &results->fds[i], error);

        if (one == GPUSERVE_OK)
            one = recover(results, i, error);
        st = st == GPUSERVE_OK ? one : st;
    }
    return st;
}

void gsv_batch_results_close(struct gsv_batch_results *results)
{
    for (int i = 0; i < GSV_BATCH_N_STREAMS; i++) {
        if (results->fds[i] >= 0)
            close(results->fds[i]);
        results->fds[i] = -1;
    }
    free(results->is_done);
    results->is_done = NULL;
}

/* --------------------------------------------------------------------------------------- append */

gpuserve_status gsv_batch_results_add(struct gsv_batch_results *results,
                                      enum gsv_batch_stream stream, size_t i,
                                      const struct gsv_buffer *text, gpuserve_error *error)
{
    const char *name = file_of(results->batch, stream);
    gpuserve_status st;

    if (text->failed)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a result");
    st = gsv_store_reserve(results->store, text->size, error);
    if (st != GPUSERVE_OK)
        return st;
    st = gsv_fd_write(results->fds[stream], text->bytes, text->size, results->sizes[stream], name,
                      error);
    if (st != GPUSERVE_OK) {
        gsv_store_release(results->store, text->size);
        if (ftruncate(results->fds[stream], (off_t)results->sizes[stream]) != 0)
            return st; /* cut off when the file is opened again */
        return st;
    }
    results->sizes[stream] += text->size;
    results->is_dirty = true;
    count(results, stream, i, text->bytes, text->size);
    return GPUSERVE_OK;
}

gpuserve_status gsv_batch_results_flush(struct gsv_batch_results *results, uint64_t after_ns,
                                        gpuserve_error *error)
{
    const uint64_t now = gsv_now_ns();

    if (!results->is_dirty || now - results->flushed_ns < after_ns)
        return GPUSERVE_OK;
    for (int i = 0; i < GSV_BATCH_N_STREAMS; i++) {
        if (fsync(results->fds[i]) != 0 && errno != EINVAL)
            return fail_io(results, i, error);
    }
    results->is_dirty = false;
    results->flushed_ns = now;
    return GPUSERVE_OK;
}
