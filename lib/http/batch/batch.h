/*
 * batch.h - batches of OpenAI's Batch API: their records, and the thread that computes them.
 *
 *   POST /v1/batches -> record (validating) -> batch thread: check the input file (in_progress)
 *     -> lines as requests without a connection, at low priority -> one appended line each
 *     -> finalizing -> completed, expired or cancelled; failed if the input is not valid
 *
 * One batch runs at a time, the oldest first, with at most GSV_BATCH_IN_FLIGHT lines in flight. The
 * id of a result line contains the index of its input line. The output files are therefore the
 * record of finished lines: a restart computes only the other lines. The files are flushed every
 * second and before each change of the status. After a power failure the lines of the last second
 * are computed again.
 */
#ifndef GSV_HTTP_BATCH_BATCH_H
#define GSV_HTTP_BATCH_BATCH_H

#include "lib/base/buffer.h"
#include "lib/http/batch/store.h"

enum {
    GSV_BATCH_MAX_LINES = 50000,
    GSV_BATCH_MAX_RECORDS = 1000,
    GSV_BATCH_MAX_ERRORS = 20, /* of an invalid input, in the record */
    GSV_BATCH_IN_FLIGHT = 64,
    GSV_BATCH_ENDPOINT_BYTES = 32
};

/* The message of an I/O error for clients. The log has the path and the cause. */
#define GSV_BATCH_DISK_FAULT \
    "the server cannot read or write its files (--batch-dir): its log says why"

/* In the order of the names in batch.c. */
enum gsv_batch_status {
    GSV_BATCH_VALIDATING,
    GSV_BATCH_IN_PROGRESS,
    GSV_BATCH_FINALIZING,
    GSV_BATCH_COMPLETED,
    GSV_BATCH_FAILED,
    GSV_BATCH_EXPIRED,
    GSV_BATCH_CANCELLING,
    GSV_BATCH_CANCELLED,
    GSV_BATCH_N_STATUSES
};

struct gpuserve_http;
struct gsv_batch_runner;

/* Protected by the store's lock, except the fields that are constant after the creation. */
struct gsv_batch_job {
    char id[GSV_STORE_ID_BYTES], owner[GSV_STORE_OWNER_BYTES];
    char input_id[GSV_STORE_ID_BYTES], output_id[GSV_STORE_ID_BYTES], error_id[GSV_STORE_ID_BYTES];
    char endpoint[GSV_BATCH_ENDPOINT_BYTES], window[16];
    enum gsv_batch_status status;
    int64_t times[GSV_BATCH_N_STATUSES]; /* when each status began; 0: never */
    int64_t expires;                     /* the end of the completion window */
    int64_t output_seconds;              /* until the output files expire; 0: never */
    bool has_output, has_errors;         /* of an ended batch: the files exist */
    size_t n_lines, n_completed, n_failed;
    json_t *metadata; /* an object, or NULL */
    json_t *errors;   /* of the input: an array, or NULL */
};

struct gsv_batch_jobs {
    struct gsv_store store;
    struct gpuserve_http *server;
    struct gsv_batch_job **batches; /* by time of creation */
    size_t n_batches, capacity;
    struct gsv_batch_runner *runner;
    _Atomic unsigned long long n_done, n_errors, n_retries; /* lines */
};

/* Opens the directory and reads the records. gsv_batch_jobs_run() resumes unfinished batches. */
gpuserve_status gsv_batch_jobs_open(struct gsv_batch_jobs **batches, struct gpuserve_http *server,
                                    const char *path, uint64_t max_bytes, gpuserve_error *error);
gpuserve_status gsv_batch_jobs_run(struct gsv_batch_jobs *batches, gpuserve_error *error);
/* Starts no further line; lines in flight are computed. Accepts NULL. */
void gsv_batch_jobs_drain(struct gsv_batch_jobs *batches);
/* Cancels the lines in flight and joins the thread. Accepts NULL. */
void gsv_batch_jobs_stop(struct gsv_batch_jobs *batches);
void gsv_batch_jobs_close(struct gsv_batch_jobs **batches);

bool gsv_batch_has_ended(const struct gsv_batch_job *batch);

/* Adds a batch; it takes over `metadata`, also on failure. The fields owner, input_id, endpoint,
 * window, expires and output_seconds are set. *json is its public form. GPUSERVE_E_NOT_FOUND: the
 * owner has no such input file. */
gpuserve_status gsv_batch_jobs_create(struct gsv_batch_jobs *batches,
                                      const struct gsv_batch_job *given, json_t **json,
                                      gpuserve_error *error);
/* Public form of a batch, owned; NULL: there is none of this owner, or out of memory. */
json_t *gsv_batch_jobs_find(struct gsv_batch_jobs *batches, const char *id, const char *owner);
/* Begins to cancel it. GPUSERVE_E_NOT_FOUND; GPUSERVE_E_MISMATCH: it has ended. */
gpuserve_status gsv_batch_jobs_cancel(struct gsv_batch_jobs *batches, const char *id,
                                      const char *owner, json_t **json, gpuserve_error *error);
/* A page of the owner's batches, newest first: at most `limit`, older than the batch `after` (NULL:
 * the newest). NULL: out of memory, or `after` is unknown. */
json_t *gsv_batch_jobs_list(struct gsv_batch_jobs *batches, const char *owner, const char *after,
                            size_t limit, bool *has_more);
/* Deletes a file of this owner. GPUSERVE_E_NOT_FOUND; GPUSERVE_E_MISMATCH: a batch that has not
 * ended reads or writes it. */
gpuserve_status gsv_batch_jobs_delete_file(struct gsv_batch_jobs *batches, const char *file_id,
                                           const char *owner, gpuserve_error *error);

/* ---- for runner.c */

/* The oldest batch that has not ended, or NULL. */
struct gsv_batch_job *gsv_batch_jobs_next(struct gsv_batch_jobs *batches);
/* Sets the status and stores the record durably. */
gpuserve_status gsv_batch_set(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch,
                              enum gsv_batch_status status, gpuserve_error *error);
enum gsv_batch_status gsv_batch_get(struct gsv_batch_jobs *batches,
                                    const struct gsv_batch_job *batch);
void gsv_batch_count(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch, size_t n_lines,
                     size_t n_completed, size_t n_failed);
/* Adds {"code","message","line","param"} to the errors. */
void gsv_batch_add_error(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch,
                         const char *code, const char *message, size_t line);

/* Of an ended batch: which output files exist. */
void gsv_batch_set_outputs(struct gsv_batch_jobs *batches, struct gsv_batch_job *batch,
                           bool has_output, bool has_errors);
/* Deletes expired files, except those of unfinished batches. */
void gsv_batch_jobs_expire_files(struct gsv_batch_jobs *batches);

/* runner.c */
/* Sets batches->runner, without a thread: requests that precede the thread wake the runner too. */
gpuserve_status gsv_batch_runner_create(struct gsv_batch_jobs *batches, gpuserve_error *error);
gpuserve_status gsv_batch_runner_start(struct gsv_batch_runner *runner, gpuserve_error *error);
void gsv_batch_runner_wake(struct gsv_batch_runner *runner);
void gsv_batch_runner_drain(struct gsv_batch_runner *runner);
/* Joins the thread; the runner may still be woken. */
void gsv_batch_runner_stop(struct gsv_batch_runner *runner);
void gsv_batch_runner_free(struct gsv_batch_runner *runner);

/*
 * The JSON lines of a batch: {"custom_id","method":"POST","url","body"}.
 */

enum { GSV_BATCH_WEIGHT_BYTES = 8192 };

struct gsv_batch_line {
    uint64_t offset;
    size_t size; /* without the line feed */
};

struct gsv_batch_input {
    int fd;
    struct gsv_batch_line *lines; /* [n] lines that are not blank */
    size_t n, capacity;
};

/* Reads the file and checks every line. Invalid lines are added to the batch's errors and counted
 * in *n_faults. Returns an error only for memory and I/O. */
gpuserve_status gsv_batch_input_open(struct gsv_batch_input *input, struct gsv_batch_jobs *batches,
                                     struct gsv_batch_job *batch, size_t *n_faults,
                                     gpuserve_error *error);
void gsv_batch_input_close(struct gsv_batch_input *input);

/* Reads one line into `text`, which has its size and a NUL more; owned: free(). */
gpuserve_status gsv_batch_input_read(const struct gsv_batch_input *input, size_t i, char **text,
                                     gpuserve_error *error);
/* Estimated cost of a line: 1, plus its commas (an upper bound of its inputs), plus 1 for each
 * GSV_BATCH_WEIGHT_BYTES. */
size_t gsv_batch_line_weight(const char *text, size_t size);
/* The `custom_id` of a checked line; owned: free(). */
gpuserve_status gsv_batch_custom_id(const char *text, size_t size, char **id,
                                    gpuserve_error *error);

/*
 * The output files of a batch: one appended line for each finished line of the input.
 *
 *   {"id":"batch_req_<batch><line>","custom_id":"...","response":{...},"error":null}
 *
 * <line> is the index of the input line, 8 hexadecimal digits. These files alone record which lines
 * are finished. Each line is written by one append. Recovery truncates the file after the last
 * complete line.
 */

enum gsv_batch_stream { GSV_BATCH_OUTPUT, GSV_BATCH_ERRORS, GSV_BATCH_N_STREAMS };

struct gsv_batch_results {
    struct gsv_store *store;
    const struct gsv_batch_job *batch;
    int fds[GSV_BATCH_N_STREAMS];
    uint64_t sizes[GSV_BATCH_N_STREAMS];
    bool *is_done; /* [n_lines] */
    size_t n_lines, n_completed, n_failed;
    bool is_dirty; /* written and not flushed */
    uint64_t flushed_ns;
};

/* Opens or creates the files and reads which lines are finished. After a failure the files are
 * unchanged and `sizes` holds their sizes. */
gpuserve_status gsv_batch_results_open(struct gsv_batch_results *results, struct gsv_store *store,
                                       const struct gsv_batch_job *batch, size_t n_lines,
                                       gpuserve_error *error);
void gsv_batch_results_close(struct gsv_batch_results *results);

/* Begins the text of line i: id and custom_id. */
void gsv_batch_results_begin(const struct gsv_batch_results *results, struct gsv_buffer *to,
                             size_t i, const char *custom_id);
/* Appends the text, which ends in a line feed, and counts line i as finished. GPUSERVE_E_TOO_LARGE:
 * over --batch-disk. After a failure the file is unchanged. */
gpuserve_status gsv_batch_results_add(struct gsv_batch_results *results,
                                      enum gsv_batch_stream stream, size_t i,
                                      const struct gsv_buffer *text, gpuserve_error *error);
/* Flushes to the disk if the last flush is at least `after_ns` ago. */
gpuserve_status gsv_batch_results_flush(struct gsv_batch_results *results, uint64_t after_ns,
                                        gpuserve_error *error);

#endif
