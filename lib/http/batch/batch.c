/*
 * batch.c - the records of batches: creation, status, list, and their text on disk.
 *
 * The record on disk is the public form plus the fields `owner`, `outputs` and `output_seconds`. It
 * is written at each change of the status. Any thread; the store's lock protects the table.
 */
#include "lib/http/batch/batch.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Both outputs of each unfinished batch fit in the list of files. */
_Static_assert(GSV_STORE_MAX_OUTPUTS >= 2 * GSV_BATCH_MAX_RECORDS, "outputs of all batches");

static const char *const names[GSV_BATCH_N_STATUSES] = { "validating", "in_progress", "finalizing",
                                                         "completed",  "failed",      "expired",
                                                         "cancelling", "cancelled" };

bool gsv_batch_has_ended(const struct gsv_batch_job *batch)
{
    return batch->status == GSV_BATCH_COMPLETED || batch->status == GSV_BATCH_FAILED ||
           batch->status == GSV_BATCH_EXPIRED || batch->status == GSV_BATCH_CANCELLED;
}

static void release(struct gsv_batch_job *batch)
{
    if (!batch)
        return;
    json_decref(batch->metadata);
    json_decref(batch->errors);
    free(batch);
}

/* ----------------------------------------------------------------------------------------- form */

static json_t *time_of(int64_t seconds)
{
    return seconds ? json_integer(seconds) : json_null();
}

static json_t *id_if(bool exists, const char *id)
{
    return exists ? json_string(id) : json_null();
}

/* Called with the lock held. The object is a deep copy, for another thread. */
static json_t *form_of(const struct gsv_batch_job *batch)
{
    json_t *errors = batch->errors ? json_pack("{s:s, s:o}", "object", "list", "data",
                                               json_deep_copy(batch->errors))
                                   : json_null();
    json_t *form = json_pack(
        "{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:o, s:o, s:I, s:o, s:{s:I, s:I, s:I}, s:o}", "id",
        batch->id, "object", "batch", "endpoint", batch->endpoint, "errors", errors,
        "input_file_id", batch->input_id, "completion_window", batch->window, "status",
        names[batch->status], "output_file_id", id_if(batch->has_output, batch->output_id),
        "error_file_id", id_if(batch->has_errors, batch->error_id), "created_at",
        (json_int_t)batch->times[GSV_BATCH_VALIDATING], "expires_at", time_of(batch->expires),
        "request_counts", "total", (json_int_t)batch->n_lines, "completed",
        (json_int_t)batch->n_completed, "failed", (json_int_t)batch->n_failed, "metadata",
        batch->metadata ? json_deep_copy(batch->metadata) : json_null());
    bool whole = form != NULL;

    for (int i = GSV_BATCH_VALIDATING + 1; whole && i < GSV_BATCH_N_STATUSES; i++) {
        char key[32];

        snprintf(key, sizeof(key), "%s_at", names[i]);
        whole = json_object_set_new(form, key, time_of(batch->times[i])) == 0;
    }
    if (whole)
        return form;
    json_decref(form);
    return NULL;
}

static gpuserve_status store(struct gsv_batch_jobs *batches, const struct gsv_batch_job *batch,
                             gpuserve_error *error)
{
    json_t *form = form_of(batch);
    json_t *more =
        json_pack("{s:s, s:[s, s], s:I}", "owner", batch->owner, "outputs", batch->output_id,
                  batch->error_id, "output_seconds", (json_int_t)batch->output_seconds);
    gpuserve_status st;

    if (!form || !more || json_object_update(form, more) != 0)
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the record %s", batch->id);
    else
        st = gsv_store_write_json(&batches->store, batch->id, form, error);
    json_decref(form);
    json_decref(more);
    return st;
}

static bool read_text(const json_t *object, const char *key, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text && (size_t)snprintf(to, size, "%s", text) < size;
}

static int64_t read_int(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static size_t read_count(const json_t *object, const char *key)
{
    const json_int_t n = json_integer_value(json_object_get(object, key));

    return n > 0 && n <= GSV_BATCH_MAX_LINES ? (size_t)n : 0;
}

static bool read_status(struct gsv_batch_job *batch, const json_t *value)
{
    const char *status = json_string_value(json_object_get(value, "status"));
    int i = 0;

    while (status && i < GSV_BATCH_N_STATUSES && strcmp(names[i], status) != 0)
        i++;
    batch->status = (enum gsv_batch_status)i;
    batch->times[GSV_BATCH_VALIDATING] = read_int(value, "created_at");
    for (int k = GSV_BATCH_VALIDATING + 1; k < GSV_BATCH_N_STATUSES; k++) {
        char key[32];

        snprintf(key, sizeof(key), "%s_at", names[k]);
        batch->times[k] = read_int(value, key);
    }
    return status && i < GSV_BATCH_N_STATUSES;
}

static bool read_fields(struct gsv_batch_job *batch, const char *id, const json_t *value)
{
    const json_t *outputs = json_object_get(value, "outputs");
    const json_t *counts = json_object_get(value, "request_counts");
    const char *output = json_string_value(json_array_get(outputs, 0));
    const char *errors = json_string_value(json_array_get(outputs, 1));

    batch->expires = read_int(value, "expires_at");
    batch->output_seconds = read_int(value, "output_seconds");
    batch->n_lines = read_count(counts, "total");
    batch->n_completed = read_count(counts, "completed");
    batch->n_failed = read_count(counts, "failed");
    batch->has_output = json_is_string(json_object_get(value, "output_file_id"));
    batch->has_errors = json_is_string(json_object_get(value, "error_file_id"));
    if (json_is_object(json_object_get(value, "metadata")))
        batch->metadata = json_deep_copy(json_object_get(value, "metadata"));
    if (json_is_object(json_object_get(value, "errors")))
        batch->errors = json_deep_copy(json_object_get(json_object_get(value, "errors"), "data"));
    return output && errors && strncmp(output, "file-", 5) == 0 && !strchr(output, '/') &&
           strncmp(errors, "file-", 5) == 0 && !strchr(errors, '/') &&
           (size_t)snprintf(batch->id, sizeof(batch->id), "%s", id) < sizeof(batch->id) &&
           (size_t)snprintf(batch->output_id, sizeof(batch->output_id), "%s", output) <
               sizeof(batch->output_id) &&
           (size_t)snprintf(batch->error_id, sizeof(batch->error_id), "%s", errors) <
               sizeof(batch->error_id) &&
           read_text(value, "owner", batch->owner, sizeof(batch->owner)) &&
           read_text(value, "input_file_id", batch->input_id, sizeof(batch->input_id)) &&
           strncmp(batch->input_id, "file-", 5) == 0 && !strchr(batch->input_id, '/') &&
           read_text(value, "endpoint", batch->endpoint, sizeof(batch->endpoint)) &&
           read_text(value, "completion_window", batch->window, sizeof(batch->window)) &&
           read_status(batch, value);
}

/* ---------------------------------------------------------------------------------------- table */

/* Called with the lock held: removes the oldest ended record if the table is full. */
static void make_free(struct gsv_batch_jobs *batches)
{
    size_t i = 0;

    if (batches->n_batches < GSV_BATCH_MAX_RECORDS)
        return;
    while (i < batches->n_batches && !gsv_batch_has_ended(batches->batches[i]))
        i++;
    if (i == batches->n_batches)
        return;
    gsv_store_remove_json(&batches->store, batches->batches[i]->id);
    release(batches->batches[i]);
    batches->n_batches--;
    memmove(batches->batches + i, batches->batches + i + 1,
            (batches->n_batches - i) * sizeof(struct gsv_batch_job *));
}

/* Takes over the batch, also on failure. */
static gpuserve_status add(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch,
                           gpuserve_error *error)
{
    make_free(batches);
    if (batches->n_batches >= GSV_BATCH_MAX_RECORDS) {
        release(batch);
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%d batches have not ended, which is the limit: cancel some or wait",
                        GSV_BATCH_MAX_RECORDS);
    }
    if (!gsv_grow((void **)&batches->batches, &batches->capacity, batches->n_batches + 1,
                  sizeof(struct gsv_batch_job *), GSV_BATCH_MAX_RECORDS)) {
        release(batch);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the list of batches");
    }
    batches->batches[batches->n_batches++] = batch;
    return GPUSERVE_OK;
}

static gpuserve_status read_record(void *user, const char *id, const json_t *value,
                                   gpuserve_error *error)
{
    struct gsv_batch_job *batch = calloc(1, sizeof(*batch));

    if (!batch)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a batch");
    if (!read_fields(batch, id, value)) {
        release(batch);
        return gsv_fail(error, GPUSERVE_E_FORMAT, "%s.json is no record of a batch", id);
    }
    return add(user, batch, error);
}

static struct gsv_batch_job *find(const struct gsv_batch_jobs *batches, const char *id,
                                  const char *owner)
{
    for (size_t i = 0; i < batches->n_batches; i++) {
        if (strcmp(batches->batches[i]->id, id) == 0 &&
            strcmp(batches->batches[i]->owner, owner) == 0)
            return batches->batches[i];
    }
    return NULL;
}

static struct gsv_batch_job *user_of(const struct gsv_batch_jobs *batches, const char *file_id)
{
    for (size_t i = 0; i < batches->n_batches; i++) {
        struct gsv_batch_job *batch = batches->batches[i];

        if (!gsv_batch_has_ended(batch) &&
            (strcmp(batch->input_id, file_id) == 0 || strcmp(batch->output_id, file_id) == 0 ||
             strcmp(batch->error_id, file_id) == 0))
            return batch;
    }
    return NULL;
}

static gpuserve_status fail_file(const char *file_id, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_NOT_FOUND, "No such File object: %.64s", file_id);
}

gpuserve_status gsv_batch_jobs_delete_file(struct gsv_batch_jobs *batches, const char *file_id,
                                           const char *owner, gpuserve_error *error)
{
    const struct gsv_stored_file *file;
    const struct gsv_batch_job *batch;
    gpuserve_status st = GPUSERVE_OK;

    pthread_mutex_lock(&batches->store.lock);
    file = gsv_store_file(&batches->store, file_id, owner);
    batch = user_of(batches, file_id);
    if (!file)
        st = fail_file(file_id, error);
    else if (batch)
        st = gsv_fail(error, GPUSERVE_E_MISMATCH,
                      "the file belongs to %s, which has not ended: cancel it first", batch->id);
    else
        gsv_store_delete(&batches->store, file);
    pthread_mutex_unlock(&batches->store.lock);
    return st;
}

/* ----------------------------------------------------------------------------------- operations */

gpuserve_status gsv_batch_jobs_create(struct gsv_batch_jobs *batches,
                                      const struct gsv_batch_job *given, json_t **json,
                                      gpuserve_error *error)
{
    struct gsv_batch_job *batch = malloc(sizeof(*batch));
    gpuserve_status st;

    *json = NULL;
    if (!batch) {
        json_decref(given->metadata);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a batch");
    }
    *batch = *given;
    batch->times[GSV_BATCH_VALIDATING] = (int64_t)time(NULL);
    st = gsv_store_new_id(batch->id, "batch_", error);
    if (st == GPUSERVE_OK)
        st = gsv_store_new_id(batch->output_id, "file-", error);
    if (st == GPUSERVE_OK)
        st = gsv_store_new_id(batch->error_id, "file-", error);
    if (st != GPUSERVE_OK) {
        release(batch);
        return st;
    }
    pthread_mutex_lock(&batches->store.lock);
    if (!gsv_store_file(&batches->store, batch->input_id, batch->owner))
        st = fail_file(batch->input_id, error); /* deleted since the caller's check */
    else
        st = gsv_store_check_files(&batches->store, error);
    if (st == GPUSERVE_OK)
        st = add(batches, batch, error);
    else
        release(batch);
    if (st == GPUSERVE_OK) {
        st = store(batches, batch, error);
        if (st == GPUSERVE_OK)
            *json = form_of(batch);
        else
            release(batches->batches[--batches->n_batches]);
    }
    pthread_mutex_unlock(&batches->store.lock);
    if (st == GPUSERVE_OK)
        gsv_batch_runner_wake(batches->runner);
    return st;
}

json_t *gsv_batch_jobs_find(struct gsv_batch_jobs *batches, const char *id, const char *owner)
{
    const struct gsv_batch_job *batch;
    json_t *form = NULL;

    pthread_mutex_lock(&batches->store.lock);
    batch = find(batches, id, owner);
    if (batch)
        form = form_of(batch);
    pthread_mutex_unlock(&batches->store.lock);
    return form;
}

gpuserve_status gsv_batch_jobs_cancel(struct gsv_batch_jobs *batches, const char *id,
                                      const char *owner, json_t **json, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;
    struct gsv_batch_job *batch;

    *json = NULL;
    pthread_mutex_lock(&batches->store.lock);
    batch = find(batches, id, owner);
    if (!batch) {
        st = gsv_fail(error, GPUSERVE_E_NOT_FOUND, "No batch found with id '%.64s'.", id);
    } else if (gsv_batch_has_ended(batch)) {
        st = gsv_fail(error, GPUSERVE_E_MISMATCH, "Cannot cancel a batch with status '%s'.",
                      names[batch->status]);
    } else if (batch->status != GSV_BATCH_CANCELLING) {
        const enum gsv_batch_status before = batch->status;

        batch->status = GSV_BATCH_CANCELLING;
        batch->times[GSV_BATCH_CANCELLING] = (int64_t)time(NULL);
        st = store(batches, batch, error);
        if (st != GPUSERVE_OK)
            batch->status = before;
    }
    if (st == GPUSERVE_OK)
        *json = form_of(batch);
    pthread_mutex_unlock(&batches->store.lock);
    if (st == GPUSERVE_OK)
        gsv_batch_runner_wake(batches->runner);
    return st;
}

json_t *gsv_batch_jobs_list(struct gsv_batch_jobs *batches, const char *owner, const char *after,
                            size_t limit, bool *has_more)
{
    json_t *list = json_array();
    bool begun = !after, good = list != NULL;

    *has_more = false;
    pthread_mutex_lock(&batches->store.lock);
    for (size_t i = batches->n_batches; good && i-- > 0;) {
        const struct gsv_batch_job *batch = batches->batches[i];

        if (strcmp(batch->owner, owner) != 0)
            continue;
        if (begun && json_array_size(list) == limit) {
            *has_more = true;
            break;
        }
        if (begun)
            good = json_array_append_new(list, form_of(batch)) == 0;
        begun = begun || strcmp(batch->id, after) == 0;
    }
    pthread_mutex_unlock(&batches->store.lock);
    if (good && begun)
        return list;
    json_decref(list);
    return NULL;
}

/* ---------------------------------------------------------------------------------- for the run */

struct gsv_batch_job *gsv_batch_jobs_next(struct gsv_batch_jobs *batches)
{
    struct gsv_batch_job *batch = NULL;

    pthread_mutex_lock(&batches->store.lock);
    for (size_t i = 0; i < batches->n_batches && !batch; i++) {
        if (!gsv_batch_has_ended(batches->batches[i]))
            batch = batches->batches[i];
    }
    pthread_mutex_unlock(&batches->store.lock);
    return batch;
}

enum gsv_batch_status gsv_batch_get(struct gsv_batch_jobs *batches,
                                    const struct gsv_batch_job *batch)
{
    enum gsv_batch_status status;

    pthread_mutex_lock(&batches->store.lock);
    status = batch->status;
    pthread_mutex_unlock(&batches->store.lock);
    return status;
}

gpuserve_status gsv_batch_set(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch,
                              enum gsv_batch_status status, gpuserve_error *error)
{
    gpuserve_status st;

    pthread_mutex_lock(&batches->store.lock);
    /* A concurrent cancellation takes precedence. */
    if (batch->status != GSV_BATCH_CANCELLING || status > GSV_BATCH_FINALIZING)
        batch->status = status;
    batch->times[status] = (int64_t)time(NULL);
    st = store(batches, batch, error);
    pthread_mutex_unlock(&batches->store.lock);
    return st;
}

void gsv_batch_count(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch, size_t n_lines,
                     size_t n_completed, size_t n_failed)
{
    pthread_mutex_lock(&batches->store.lock);
    batch->n_lines = n_lines;
    batch->n_completed = n_completed;
    batch->n_failed = n_failed;
    pthread_mutex_unlock(&batches->store.lock);
}

void gsv_batch_set_outputs(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch,
                           bool has_output, bool has_errors)
{
    pthread_mutex_lock(&batches->store.lock);
    batch->has_output = has_output;
    batch->has_errors = has_errors;
    pthread_mutex_unlock(&batches->store.lock);
}

void gsv_batch_add_error(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch,
                         const char *code, const char *message, size_t line)
{
    /* gsv_error may truncate a message within a character, which JSON does not allow. */
    const int size = (int)gsv_utf8_valid_length(message, strlen(message));

    pthread_mutex_lock(&batches->store.lock);
    if (!batch->errors)
        batch->errors = json_array();
    if (json_array_size(batch->errors) < GSV_BATCH_MAX_ERRORS)
        json_array_append_new(
            batch->errors,
            json_pack("{s:s, s:s#, s:o, s:n}", "code", code, "message", message, size, "line",
                      line ? json_integer((json_int_t)line) : json_null(), "param"));
    pthread_mutex_unlock(&batches->store.lock);
}

/* ----------------------------------------------------------------------------------------- open */

static int compare(const void *a, const void *b)
{
    const struct gsv_batch_job *one = *(struct gsv_batch_job *const *)a;
    const struct gsv_batch_job *other = *(struct gsv_batch_job *const *)b;
    const int64_t x = one->times[GSV_BATCH_VALIDATING], y = other->times[GSV_BATCH_VALIDATING];

    if (x != y)
        return x < y ? -1 : 1;
    return strcmp(one->id, other->id);
}

static bool is_used(void *user, const char *id)
{
    return user_of(user, id) != NULL;
}

void gsv_batch_jobs_expire_files(struct gsv_batch_jobs *batches)
{
    gsv_store_expire(&batches->store, (int64_t)time(NULL), is_used, batches);
}

gpuserve_status gsv_batch_jobs_open(struct gsv_batch_jobs **out, struct gpuserve_http *server,
                                    const char *path, uint64_t max_bytes, gpuserve_error *error)
{
    struct gsv_batch_jobs *batches = calloc(1, sizeof(*batches));
    gpuserve_status st;

    *out = batches;
    if (!batches)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for batches");
    batches->server = server;
    st = gsv_store_open(&batches->store, path, max_bytes, error);
    if (st == GPUSERVE_OK)
        st = gsv_batch_runner_create(batches, error);
    if (st == GPUSERVE_OK)
        st = gsv_store_each_json(&batches->store, "batch_", read_record, batches, error);
    if (st != GPUSERVE_OK)
        return gsv_fail_in(error, st, "%s", path);
    if (batches->n_batches > 0)
        qsort(batches->batches, batches->n_batches, sizeof(struct gsv_batch_job *), compare);
    gsv_store_remove_orphans(&batches->store, is_used, batches);
    return GPUSERVE_OK;
}

gpuserve_status gsv_batch_jobs_run(struct gsv_batch_jobs *batches, gpuserve_error *error)
{
    return gsv_batch_runner_start(batches->runner, error);
}

void gsv_batch_jobs_drain(struct gsv_batch_jobs *batches)
{
    if (batches && batches->runner)
        gsv_batch_runner_drain(batches->runner);
}

void gsv_batch_jobs_stop(struct gsv_batch_jobs *batches)
{
    if (batches && batches->runner)
        gsv_batch_runner_stop(batches->runner);
}

void gsv_batch_jobs_close(struct gsv_batch_jobs **out)
{
    struct gsv_batch_jobs *batches = *out;

    if (!batches)
        return;
    *out = NULL;
    gsv_batch_jobs_stop(batches);
    if (batches->runner)
        gsv_batch_runner_free(batches->runner);
    for (size_t i = 0; i < batches->n_batches; i++)
        release(batches->batches[i]);
    free(batches->batches);
    gsv_store_close(&batches->store);
    free(batches);
}
