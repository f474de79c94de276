/*
 * test_batch.c - the directory of batches and the check of their input, without a server.
 */
#include "lib/base/buffer.h"
#include "lib/http/batch/batch.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"
#include "tests/base/folder.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct gpuserve_http server = { .options = { .max_body_bytes = 1 << 20 } };

static bool reads_fail;

/* The names that the linker gives to wrapped functions. */
ssize_t __real_getline(char **text, size_t *capacity, FILE *file);
ssize_t __real___getdelim(char **text, size_t *capacity, int end, FILE *file);
ssize_t __wrap_getline(char **text, size_t *capacity, FILE *file);
ssize_t __wrap___getdelim(char **text, size_t *capacity, int end, FILE *file);

ssize_t __wrap_getline(char **text, size_t *capacity, FILE *file)
{
    errno = EIO;
    return reads_fail ? -1 : __real_getline(text, capacity, file);
}

ssize_t __wrap___getdelim(char **text, size_t *capacity, int end, FILE *file)
{
    errno = EIO;
    return reads_fail ? -1 : __real___getdelim(text, capacity, end, file);
}

static void write_file(const char *name)
{
    FILE *file = fopen(in_folder(name), "w");

    cr_assert_not_null(file);
    fputs("text", file);
    fclose(file);
}

static struct gsv_batch_jobs *open_jobs(void)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_batch_jobs *jobs;

    cr_assert_eq(gsv_batch_jobs_open(&jobs, &server, folder, 8 << 20, &error), GPUSERVE_OK, "%s",
                 error.message);
    return jobs;
}

Test(batch, leaves_the_files_of_others, .init = make_folder, .fini = remove_folder)
{
    static const char *const others[] = { "notes.tmp", "file-list", "file-report.tmp",
                                          "batch_1.json" };
    struct gsv_batch_jobs *jobs;

    write_file("file-0123456789abcdef01234567");
    write_file("file-0123456789abcdef01234567.tmp");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        write_file(others[i]);
    jobs = open_jobs();
    cr_expect_eq(atomic_load(&jobs->store.n_bytes), 0);
    gsv_batch_jobs_close(&jobs);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect_eq(access(in_folder(others[i]), F_OK), 0, "%s", others[i]);
    cr_expect_neq(access(in_folder("file-0123456789abcdef01234567"), F_OK), 0);
    cr_expect_neq(access(in_folder("file-0123456789abcdef01234567.tmp"), F_OK), 0);
}

/* Stores `text` as an input file, and describes a batch of it. */
static struct gsv_batch_job upload(struct gsv_batch_jobs *jobs, const char *text, int64_t expires)
{
    struct gsv_stored_file file = { .name = "in.jsonl", .purpose = "batch", .expires = expires };
    struct gsv_batch_job batch = { .endpoint = "/v1/embeddings", .window = "24h" };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gsv_store_upload(&jobs->store, &file, text, strlen(text), &error), GPUSERVE_OK,
                 "%s", error.message);
    memcpy(batch.input_id, file.id, sizeof(batch.input_id));
    batch.expires = (int64_t)time(NULL) + 86400;
    return batch;
}

static gpuserve_status create(struct gsv_batch_jobs *jobs, const struct gsv_batch_job *batch)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    json_t *json;
    const gpuserve_status st = gsv_batch_jobs_create(jobs, batch, &json, &error);

    json_decref(json);
    return st;
}

static gpuserve_status delete (struct gsv_batch_jobs *jobs, const struct gsv_batch_job *batch)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    return gsv_batch_jobs_delete_file(jobs, batch->input_id, "", &error);
}

Test(batch, needs_its_file_and_keeps_it, .init = make_folder, .fini = remove_folder)
{
    struct gsv_batch_jobs *jobs = open_jobs();
    const struct gsv_batch_job one = upload(jobs, "{}", 0), other = upload(jobs, "{}", 0);

    cr_expect_eq(create(jobs, &one), GPUSERVE_OK);
    cr_expect_eq(delete (jobs, &one), GPUSERVE_E_MISMATCH);
    cr_expect_eq(delete (jobs, &other), GPUSERVE_OK);
    cr_expect_eq(delete (jobs, &other), GPUSERVE_E_NOT_FOUND);
    cr_expect_eq(create(jobs, &other), GPUSERVE_E_NOT_FOUND);
    cr_expect_eq(jobs->n_batches, 1);
    gsv_batch_jobs_close(&jobs);
}

Test(batch, has_no_expired_file, .init = make_folder, .fini = remove_folder)
{
    const int64_t now = (int64_t)time(NULL);
    struct gsv_batch_jobs *jobs = open_jobs();
    const struct gsv_batch_job old = upload(jobs, "{}", now), later = upload(jobs, "{}", now + 60);
    struct gsv_stored_file file;

    cr_expect(!gsv_store_find(&jobs->store, old.input_id, "", &file));
    cr_expect(gsv_store_find(&jobs->store, later.input_id, "", &file));
    cr_expect_eq(create(jobs, &old), GPUSERVE_E_NOT_FOUND);
    cr_expect_eq(access(in_folder(old.input_id), F_OK), 0);
    gsv_batch_jobs_expire_files(jobs);
    cr_expect_neq(access(in_folder(old.input_id), F_OK), 0);
    gsv_batch_jobs_close(&jobs);
}

/* The errors of an input, and how many faults it has. */
static json_t *check(const char *text, size_t *n_faults)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_batch_jobs *jobs = open_jobs();
    struct gsv_batch_job batch = upload(jobs, text, 0);
    struct gsv_batch_input input;

    cr_assert_eq(gsv_batch_input_open(&input, jobs, &batch, n_faults, &error), GPUSERVE_OK, "%s",
                 error.message);
    gsv_batch_input_close(&input);
    gsv_batch_jobs_close(&jobs);
    return batch.errors;
}

Test(batch, says_what_is_wrong_in_whole_characters, .init = make_folder, .fini = remove_folder)
{
    char text[512] = "{\"custom_id\":\"a\",\"method\":\"POST\",\"body\":{},\"url\":\"/v1/x";
    const char *message;
    size_t n_faults;
    json_t *errors;

    for (int i = 0; i < 100; i++) /* byte 64 is within a character */
        strcat(text, "\xE2\x82\xAC");
    strcat(text, "\"}\n");
    errors = check(text, &n_faults);
    cr_expect_eq(n_faults, 1);
    cr_assert_eq(json_array_size(errors), 1);
    message = json_string_value(json_object_get(json_array_get(errors, 0), "message"));
    cr_expect_not_null(strstr(message, "\xE2\x82\xAC', not '/v1/embeddings'"), "%s", message);
    json_decref(errors);
}

Test(batch, has_too_many_lines_once, .init = make_folder, .fini = remove_folder)
{
    const size_t n = GSV_BATCH_MAX_LINES + 3, room = 80;
    char *text = malloc(n * room), *end = text;
    size_t n_faults;
    json_t *errors;

    cr_assert_not_null(text);
    for (size_t i = 0; i < n; i++)
        end += snprintf(end, room,
                        "{\"custom_id\":\"%zu\",\"method\":\"POST\",\"url\":\"/v1/embeddings\","
                        "\"body\":{}}\n",
                        i);
    errors = check(text, &n_faults);
    cr_expect_eq(n_faults, 1);
    cr_expect_eq(json_array_size(errors), 1);
    cr_expect_eq(json_integer_value(json_object_get(json_array_get(errors, 0), "line")),
                 GSV_BATCH_MAX_LINES + 1);
    json_decref(errors);
    free(text);
}

/* Lines of few inputs and many bytes take memory too: 64 of them could be 64 bodies. */
Test(batch, weighs_inputs_and_bytes)
{
    const size_t size = 100 * GSV_BATCH_WEIGHT_BYTES;
    char *text = calloc(size, 1);

    cr_assert_not_null(text);
    cr_expect_eq(gsv_batch_line_weight("", 0), 1);
    cr_expect_eq(gsv_batch_line_weight("[1,2,3,", 7), 4);
    cr_expect_eq(gsv_batch_line_weight(text, size), 101);
    free(text);
}

static gpuserve_status open_results(struct gsv_batch_results *results, struct gsv_batch_jobs *jobs,
                                    const struct gsv_batch_job *batch)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    return gsv_batch_results_open(results, &jobs->store, batch, 2, &error);
}

/* A restart that cannot read the results must not cut them off. */
Test(batch, keeps_results_that_cannot_be_read, .init = make_folder, .fini = remove_folder)
{
    struct gsv_batch_job batch = { .id = "batch_0123456789abcdef01234567" };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_batch_jobs *jobs = open_jobs();
    struct gsv_batch_results results;
    struct gsv_buffer line = { 0 };
    struct stat st;

    cr_assert_eq(gsv_store_new_id(batch.output_id, "file-", &error), GPUSERVE_OK);
    cr_assert_eq(gsv_store_new_id(batch.error_id, "file-", &error), GPUSERVE_OK);
    cr_assert_eq(open_results(&results, jobs, &batch), GPUSERVE_OK);
    gsv_batch_results_begin(&results, &line, 1, "a");
    gsv_buffer_text(&line, ",\"response\":{},\"error\":null}\n");
    cr_assert_eq(gsv_batch_results_add(&results, GSV_BATCH_OUTPUT, 1, &line, &error), GPUSERVE_OK);
    gsv_batch_results_close(&results);
    reads_fail = true;
    cr_expect_eq(open_results(&results, jobs, &batch), GPUSERVE_E_IO);
    cr_expect_eq(results.sizes[GSV_BATCH_OUTPUT], line.size);
    reads_fail = false;
    gsv_batch_results_close(&results);
    cr_assert_eq(stat(in_folder(batch.output_id), &st), 0);
    cr_expect_eq((size_t)st.st_size, line.size);
    cr_expect_eq(open_results(&results, jobs, &batch), GPUSERVE_OK);
    cr_expect(!results.is_done[0] && results.is_done[1] && results.n_completed == 1);
    gsv_batch_results_close(&results);
    gsv_buffer_reset(&line);
    gsv_batch_jobs_close(&jobs);
}

/* After a restart in the middle of its end, a batch describes its output again. */
Test(batch, describes_a_file_again, .init = make_folder, .fini = remove_folder)
{
    struct gsv_batch_jobs *jobs = open_jobs();
    const struct gsv_batch_job batch = upload(jobs, "{}", 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_stored_file file;

    for (int i = 0; i < 2; i++) { /* in memory and on disk */
        cr_assert(gsv_store_find(&jobs->store, batch.input_id, "", &file));
        cr_expect_eq(file.n_bytes, i == 0 ? 2 : 7);
        file.n_bytes = 7;
        cr_assert_eq(gsv_store_describe(&jobs->store, &file, &error), GPUSERVE_OK);
        cr_assert(gsv_store_find(&jobs->store, batch.input_id, "", &file));
        cr_expect_eq(file.n_bytes, 7);
        gsv_batch_jobs_close(&jobs);
        jobs = open_jobs();
    }
    gsv_batch_jobs_close(&jobs);
}

/* A line that passes the check is parsed again as a request, under the same limits. */
Test(batch, refuses_what_is_nested_too_deep, .init = make_folder, .fini = remove_folder)
{
    char text[256] = "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/embeddings\","
                     "\"body\":{\"input\":";
    const size_t depth = GSV_BODY_DEPTH - 2 + 1, n = strlen(text);
    size_t n_faults;
    json_t *errors;

    memset(text + n, '[', depth);
    memset(text + n + depth, ']', depth);
    strcpy(text + n + 2 * depth, "}}\n");
    errors = check(text, &n_faults);
    cr_expect_eq(n_faults, 1);
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(errors, 0), "code")),
                     "invalid_json_line");
    json_decref(errors);
}

/* The limit of files refuses an upload and a batch, never the results of a computed one. */
Test(batch, keeps_its_outputs_at_the_limit_of_files, .init = make_folder, .fini = remove_folder)
{
    struct gsv_batch_jobs *jobs = open_jobs();
    struct gsv_batch_job batch = upload(jobs, "{}", 0);
    struct gsv_stored_file file = { .name = "a", .purpose = "batch_output" };
    const size_t size = GSV_STORE_MAX_FILES * sizeof(file);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    jobs->store.files = realloc(jobs->store.files, size);
    cr_assert_not_null(jobs->store.files);
    jobs->store.capacity = GSV_STORE_MAX_FILES;
    for (; jobs->store.n_files < GSV_STORE_MAX_FILES; jobs->store.n_files++)
        jobs->store.files[jobs->store.n_files] = file;
    cr_expect_eq(gsv_store_upload(&jobs->store, &file, "{}", 2, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_not_null(strstr(error.message, "the limit is 10000"), "%s", error.message);
    cr_expect_eq(create(jobs, &batch), GPUSERVE_E_TOO_LARGE);
    cr_assert_eq(gsv_store_new_id(file.id, "file-", &error), GPUSERVE_OK);
    cr_expect_eq(gsv_store_describe(&jobs->store, &file, &error), GPUSERVE_OK, "%s", error.message);
    gsv_batch_jobs_close(&jobs);
}
