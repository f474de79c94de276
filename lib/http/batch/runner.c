/*
 * runner.c - the batch thread: runs batches one at a time, with their lines in flight together.
 *
 * A slot holds one line. The library's threads only set `is_done` of a slot and wake the batch
 * thread, under `lock`; the batch thread owns everything else. A reply of 429 or 503 is not a
 * result: the line is retried with exponential backoff until the batch ends.
 *
 * Lines in flight are bounded by GSV_BATCH_IN_FLIGHT and by MAX_WEIGHT together, which bounds their
 * inputs and bytes; one line may have more.
 */
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/http/batch/batch.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/exchange.h"

#include <gpuserve/run.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_WEIGHT = 4096, EXPIRY_CHECK_S = 60 };

static const uint64_t second_ns = 1000000000u, min_retry_ns = 100000000u,
                      max_retry_ns = 5000000000u;

struct run_slot {
    struct gsv_batch_runner *runner;
    struct gsv_exchange *exchange;    /* NULL: free, or waiting for its retry */
    char *text;                       /* the line; NULL: free */
    char id[GSV_STORE_ID_BYTES + 24]; /* of the request */
    size_t line, size, weight;
    uint64_t retry_ns, delay_ns;
    bool is_done; /* protected by the runner's lock */
};

struct gsv_batch_runner {
    struct gsv_batch_jobs *batches;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool woken, draining, stopping, has_thread; /* protected by the lock */
    uint64_t expired_ns;                        /* the last deletion of expired files; 0: none */
    struct run_slot slots[GSV_BATCH_IN_FLIGHT];
};

/* The running batch. */
struct batch_run {
    struct gsv_batch_runner *runner;
    struct gsv_batch_jobs *batches;
    struct gsv_batch_job *batch;
    struct gsv_batch_input input;
    struct gsv_batch_results results;
    size_t next, n_used, weight; /* the next line to start; slots in use and their weight */
};

/* Why the batch starts no further lines; RUN_ON: no reason. */
enum run_end { RUN_ON, RUN_CANCELLED, RUN_EXPIRED, RUN_INTERRUPTED, RUN_FAILED };

/* --------------------------------------------------------------------------------------- waking */

static void wake(struct gsv_batch_runner *runner)
{
    pthread_mutex_lock(&runner->lock);
    runner->woken = true;
    pthread_cond_signal(&runner->wake);
    pthread_mutex_unlock(&runner->lock);
}

void gsv_batch_runner_wake(struct gsv_batch_runner *runner)
{
    if (runner)
        wake(runner);
}

/* From any thread. */
static void on_resume(struct gsv_exchange *exchange)
{
    struct run_slot *slot = exchange->resume_user;
    struct gsv_batch_runner *runner = slot->runner;

    pthread_mutex_lock(&runner->lock);
    slot->is_done = true;
    runner->woken = true;
    pthread_cond_signal(&runner->wake);
    pthread_mutex_unlock(&runner->lock);
}

/* Waits until something has changed, at most `timeout_ns`. */
static void wait_for_wake(struct gsv_batch_runner *runner, uint64_t timeout_ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ns / second_ns);
    until.tv_nsec += (long)(timeout_ns % second_ns);
    until.tv_sec += until.tv_nsec / (long)second_ns;
    until.tv_nsec %= (long)second_ns;
    pthread_mutex_lock(&runner->lock);
    while (!runner->woken && pthread_cond_timedwait(&runner->wake, &runner->lock, &until) == 0)
        continue;
    runner->woken = false;
    pthread_mutex_unlock(&runner->lock);
}

static bool must_pause(struct gsv_batch_runner *runner, bool *must_stop)
{
    bool pause;

    pthread_mutex_lock(&runner->lock);
    pause = runner->draining || runner->stopping;
    if (must_stop)
        *must_stop = runner->stopping;
    pthread_mutex_unlock(&runner->lock);
    return pause;
}

/* ---------------------------------------------------------------------------------------- slots */

static bool is_done(struct run_slot *slot)
{
    bool done;

    pthread_mutex_lock(&slot->runner->lock);
    done = slot->is_done;
    slot->is_done = false;
    pthread_mutex_unlock(&slot->runner->lock);
    return done;
}

static void free_slot(struct batch_run *run, struct run_slot *slot)
{
    gsv_detached_end(&slot->exchange);
    free(slot->text);
    slot->text = NULL;
    run->n_used--;
    run->weight -= slot->weight;
}

/* Writes the complete reply of a slot as a result line. */
static gpuserve_status write_result(struct batch_run *run, const struct run_slot *slot,
                                    gpuserve_error *error)
{
    const struct gsv_exchange *exchange = slot->exchange;
    const bool good = exchange->status >= 200 && exchange->status < 300;
    struct gsv_buffer text = { 0 };
    char *custom_id = NULL;
    gpuserve_status st;

    st = gsv_batch_custom_id(slot->text, slot->size, &custom_id, error);
    if (st != GPUSERVE_OK)
        return st;
    gsv_batch_results_begin(&run->results, &text, slot->line, custom_id);
    gsv_buffer_format(&text, ",\"response\":{\"status_code\":%u,\"request_id\":\"%s\",\"body\":",
                      exchange->status, slot->id);
    gsv_buffer_add(&text, exchange->reply.bytes, exchange->reply.size);
    gsv_buffer_text(&text, "},\"error\":null}\n");
    st = gsv_batch_results_add(&run->results, good ? GSV_BATCH_OUTPUT : GSV_BATCH_ERRORS,
                               slot->line, &text, error);
    if (st == GPUSERVE_OK)
        atomic_fetch_add(good ? &run->batches->n_done : &run->batches->n_errors, 1ull);
    gsv_buffer_reset(&text);
    free(custom_id);
    return st;
}

/* The reply is complete: writes the result, or schedules a retry. */
static gpuserve_status end_line(struct batch_run *run, struct run_slot *slot, gpuserve_error *error)
{
    gpuserve_status st;

    /* Out of memory for the reply: retried too. */
    if (!slot->exchange || slot->exchange->status == 429 || slot->exchange->status == 503 ||
        slot->exchange->reply.failed) {
        gsv_detached_end(&slot->exchange);
        slot->delay_ns = slot->delay_ns ? 2 * slot->delay_ns : min_retry_ns;
        if (slot->delay_ns > max_retry_ns)
            slot->delay_ns = max_retry_ns;
        slot->retry_ns = gsv_now_ns() + slot->delay_ns;
        atomic_fetch_add(&run->batches->n_retries, 1ull);
        return GPUSERVE_OK;
    }
    st = write_result(run, slot, error);
    free_slot(run, slot);
    gsv_batch_count(run->batches, run->batch, run->input.n, run->results.n_completed,
                    run->results.n_failed);
    return st;
}

static gpuserve_status start_line(struct batch_run *run, struct run_slot *slot,
                                  gpuserve_error *error)
{
    const struct gsv_detached_options options = {
        run->batch->endpoint, slot->id, run->batch->owner, GPUSERVE_PRIORITY_LOW, on_resume, slot
    };

    snprintf(slot->id, sizeof(slot->id), "%s-%zu", run->batch->id, slot->line);
    slot->is_done = false;
    if (gsv_detached_begin(&slot->exchange, run->batches->server, &options, slot->text, slot->size))
        return GPUSERVE_OK;
    return end_line(run, slot, error);
}

/* ---------------------------------------------------------------------------------------- lines */

static struct run_slot *free_slot_of(struct gsv_batch_runner *runner)
{
    for (size_t i = 0; i < GSV_BATCH_IN_FLIGHT; i++) {
        if (!runner->slots[i].text)
            return &runner->slots[i];
    }
    return NULL;
}

/* Starts lines while slots are free. */
static gpuserve_status start_lines(struct batch_run *run, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    while (st == GPUSERVE_OK && run->n_used < GSV_BATCH_IN_FLIGHT && run->weight < MAX_WEIGHT) {
        struct run_slot *slot = free_slot_of(run->runner);

        while (run->next < run->input.n && run->results.is_done[run->next])
            run->next++;
        if (run->next == run->input.n || !slot)
            return GPUSERVE_OK;
        st = gsv_batch_input_read(&run->input, run->next, &slot->text, error);
        if (st != GPUSERVE_OK)
            return st;
        slot->line = run->next++;
        slot->size = run->input.lines[slot->line].size;
        slot->weight = gsv_batch_line_weight(slot->text, slot->size);
        slot->delay_ns = 0;
        run->n_used++;
        run->weight += slot->weight;
        st = start_line(run, slot, error);
    }
    return st;
}

/* Ends completed lines and retries lines that are due. */
static gpuserve_status advance_lines(struct batch_run *run, bool is_ending, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < GSV_BATCH_IN_FLIGHT && st == GPUSERVE_OK; i++) {
        struct run_slot *slot = &run->runner->slots[i];

        if (!slot->text)
            continue;
        if (slot->exchange && is_done(slot) && !gsv_detached_continue(slot->exchange))
            st = end_line(run, slot, error);
        if (st == GPUSERVE_OK && slot->text && !slot->exchange) {
            if (is_ending)
                free_slot(run, slot);
            else if (gsv_now_ns() >= slot->retry_ns)
                st = start_line(run, slot, error);
        }
    }
    return st;
}

static enum run_end end_of(struct batch_run *run, bool *must_cancel)
{
    bool must_stop;

    *must_cancel = false;
    if (must_pause(run->runner, &must_stop)) {
        *must_cancel = must_stop;
        return RUN_INTERRUPTED;
    }
    *must_cancel = true;
    if (gsv_batch_get(run->batches, run->batch) == GSV_BATCH_CANCELLING)
        return RUN_CANCELLED;
    return (int64_t)time(NULL) >= run->batch->expires ? RUN_EXPIRED : RUN_ON;
}

static void cancel_lines(struct batch_run *run)
{
    for (size_t i = 0; i < GSV_BATCH_IN_FLIGHT; i++) {
        if (run->runner->slots[i].exchange)
            gsv_detached_cancel(run->runner->slots[i].exchange);
    }
}

/* Releases all slots after a failure of the disk or of memory. */
static void drop_lines(struct batch_run *run)
{
    cancel_lines(run);
    while (run->n_used > 0) {
        for (size_t i = 0; i < GSV_BATCH_IN_FLIGHT; i++) {
            struct run_slot *slot = &run->runner->slots[i];

            if (slot->text && (!slot->exchange || !slot->exchange->work.waiting ||
                               (is_done(slot) && !gsv_detached_continue(slot->exchange))))
                free_slot(run, slot);
        }
        if (run->n_used > 0)
            wait_for_wake(run->runner, second_ns);
    }
}

/* Called while a batch runs too: its completion window may be days. */
static void expire_files(struct gsv_batch_runner *runner)
{
    const uint64_t now = gsv_now_ns();

    if (runner->expired_ns != 0 && now - runner->expired_ns <= EXPIRY_CHECK_S * second_ns)
        return;
    gsv_batch_jobs_expire_files(runner->batches);
    runner->expired_ns = now;
}

static enum run_end run_lines(struct batch_run *run, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;
    enum run_end end = RUN_ON;
    bool must_cancel = false;

    while (st == GPUSERVE_OK) {
        expire_files(run->runner);
        if (end == RUN_ON || end == RUN_INTERRUPTED)
            end = end_of(run, &must_cancel);
        if (end != RUN_ON && must_cancel)
            cancel_lines(run);
        st = advance_lines(run, end != RUN_ON, error);
        if (st == GPUSERVE_OK && end == RUN_ON)
            st = start_lines(run, error);
        if (st == GPUSERVE_OK)
            st = gsv_batch_results_flush(&run->results, second_ns, error);
        if (st == GPUSERVE_OK && run->n_used == 0)
            return end;
        if (st == GPUSERVE_OK)
            wait_for_wake(run->runner, min_retry_ns);
    }
    drop_lines(run);
    return RUN_FAILED;
}

/* ------------------------------------------------------------------------------------ the batch */

/* Writes an error line with the reason for each line that was not executed. */
static gpuserve_status write_rest(struct batch_run *run, const char *code, const char *message,
                                  gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < run->input.n && st == GPUSERVE_OK; i++) {
        struct gsv_buffer text = { 0 };
        char *line = NULL, *custom_id = NULL;

        if (run->results.is_done[i])
            continue;
        st = gsv_batch_input_read(&run->input, i, &line, error);
        if (st == GPUSERVE_OK)
            st = gsv_batch_custom_id(line, run->input.lines[i].size, &custom_id, error);
        if (st == GPUSERVE_OK) {
            gsv_batch_results_begin(&run->results, &text, i, custom_id);
            gsv_buffer_format(
                &text, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}\n", code,
                message);
            st = gsv_batch_results_add(&run->results, GSV_BATCH_ERRORS, i, &text, error);
        }
        gsv_buffer_reset(&text);
        free(custom_id);
        free(line);
    }
    return st;
}

/* Makes an output file one of the API, or removes it if it is empty. */
static gpuserve_status describe(struct batch_run *run, int stream, const char *id,
                                const char *suffix, gpuserve_error *error)
{
    const struct gsv_batch_job *batch = run->batch;
    struct gsv_stored_file file = { .n_bytes = run->results.sizes[stream],
                                    .created = (int64_t)time(NULL) };

    if (run->results.fds[stream] < 0)
        return GPUSERVE_OK; /* not opened: the file is kept */
    if (file.n_bytes == 0) {
        gsv_store_remove_data(&run->batches->store, id);
        return GPUSERVE_OK;
    }
    file.expires = batch->output_seconds ? file.created + batch->output_seconds : 0;
    memcpy(file.id, id, sizeof(file.id));
    memcpy(file.owner, batch->owner, sizeof(file.owner));
    memcpy(file.purpose, "batch_output", sizeof("batch_output"));
    snprintf(file.name, sizeof(file.name), "%s_%s.jsonl", batch->id, suffix);
    return gsv_store_describe(&run->batches->store, &file, error);
}

static gpuserve_status finalize(struct batch_run *run, enum gsv_batch_status status,
                                gpuserve_error *error)
{
    struct gsv_batch_job *batch = run->batch;
    gpuserve_status st = gsv_batch_results_flush(&run->results, 0, error);

    if (st == GPUSERVE_OK)
        st = describe(run, GSV_BATCH_OUTPUT, batch->output_id, "output", error);
    if (st == GPUSERVE_OK)
        st = describe(run, GSV_BATCH_ERRORS, batch->error_id, "error", error);
    if (st != GPUSERVE_OK)
        return st;
    gsv_batch_count(run->batches, batch, run->input.n, run->results.n_completed,
                    run->results.n_failed);
    gsv_batch_set_outputs(run->batches, batch, run->results.sizes[GSV_BATCH_OUTPUT] > 0,
                          run->results.sizes[GSV_BATCH_ERRORS] > 0);
    if (gsv_batch_get(run->batches, batch) == GSV_BATCH_CANCELLING)
        status = GSV_BATCH_CANCELLED;
    return gsv_batch_set(run->batches, batch, status, error);
}

/* Opens input and results. *n_faults: the input is not valid. */
static gpuserve_status open_run(struct batch_run *run, size_t *n_faults, gpuserve_error *error)
{
    gpuserve_status st =
        gsv_batch_input_open(&run->input, run->batches, run->batch, n_faults, error);

    if (st == GPUSERVE_OK && *n_faults == 0)
        st = gsv_batch_results_open(&run->results, &run->batches->store, run->batch, run->input.n,
                                    error);
    if (st != GPUSERVE_OK || *n_faults > 0)
        return st;
    gsv_batch_count(run->batches, run->batch, run->input.n, run->results.n_completed,
                    run->results.n_failed);
    if (gsv_batch_get(run->batches, run->batch) == GSV_BATCH_VALIDATING)
        st = gsv_batch_set(run->batches, run->batch, GSV_BATCH_IN_PROGRESS, error);
    return st;
}

static gpuserve_status end_run(struct batch_run *run, enum run_end end, gpuserve_error *error)
{
    enum gsv_batch_status status = GSV_BATCH_COMPLETED;
    gpuserve_status st = GPUSERVE_OK;

    if (end == RUN_INTERRUPTED)
        return gsv_batch_results_flush(&run->results, 0, error);
    if (end == RUN_CANCELLED)
        st = write_rest(run, "batch_cancelled",
                        "This request was not executed because the batch was cancelled.", error);
    if (end == RUN_EXPIRED) {
        st = write_rest(run, "batch_expired",
                        "This request could not be executed before the completion window expired.",
                        error);
        status = GSV_BATCH_EXPIRED;
    }
    if (end == RUN_ON)
        st = gsv_batch_set(run->batches, run->batch, GSV_BATCH_FINALIZING, error);
    return st == GPUSERVE_OK ? finalize(run, status, error) : st;
}

/* An I/O error, out of memory, or --batch-disk is exceeded: finished lines are kept. */
static void fail_batch(struct batch_run *run, gpuserve_status status, const gpuserve_error *error)
{
    gpuserve_error ignored = GPUSERVE_ERROR_INIT;
    const char *code = status == GPUSERVE_E_TOO_LARGE ? "storage_limit_exceeded" : "server_error";
    const char *why = status == GPUSERVE_E_IO ? GSV_BATCH_DISK_FAULT : error->message;

    gsv_http_log(run->batches->server, GPUSERVE_LOG_WARNING, "batch %s: %s", run->batch->id,
                 error->message);
    gsv_batch_add_error(run->batches, run->batch, code, why, 0);
    if (run->results.is_done && finalize(run, GSV_BATCH_FAILED, &ignored) == GPUSERVE_OK)
        return;
    if (gsv_batch_set(run->batches, run->batch, GSV_BATCH_FAILED, &ignored) != GPUSERVE_OK)
        gsv_http_log(run->batches->server, GPUSERVE_LOG_WARNING, "batch %s: %s", run->batch->id,
                     ignored.message);
}

static void run_batch(struct gsv_batch_runner *runner, struct gsv_batch_job *batch)
{
    struct batch_run run = { .runner = runner, .batches = runner->batches, .batch = batch };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;
    size_t n_faults = 0;

    run.results.fds[GSV_BATCH_OUTPUT] = run.results.fds[GSV_BATCH_ERRORS] = -1;
    st = open_run(&run, &n_faults, &error);
    if (st == GPUSERVE_OK && n_faults > 0) {
        st = gsv_batch_set(run.batches, batch, GSV_BATCH_FAILED, &error);
    } else if (st == GPUSERVE_OK) {
        const enum run_end end = run_lines(&run, &error);

        st = end == RUN_FAILED ? (gpuserve_status)error.status : end_run(&run, end, &error);
    }
    if (st != GPUSERVE_OK)
        fail_batch(&run, st, &error);
    gsv_batch_results_close(&run.results);
    gsv_batch_input_close(&run.input);
}

/* --------------------------------------------------------------------------------------- thread */

static void *main_of(void *user)
{
    struct gsv_batch_runner *runner = user;

    pthread_setname_np(pthread_self(), "gpuserve-batch");
    for (;;) {
        struct gsv_batch_job *batch;
        bool must_stop;

        if (must_pause(runner, &must_stop)) {
            if (must_stop)
                return NULL;
            wait_for_wake(runner, second_ns);
            continue;
        }
        expire_files(runner);
        batch = gsv_batch_jobs_next(runner->batches);
        if (batch)
            run_batch(runner, batch);
        else
            wait_for_wake(runner, EXPIRY_CHECK_S * second_ns);
    }
}

gpuserve_status gsv_batch_runner_create(struct gsv_batch_jobs *batches, gpuserve_error *error)
{
    struct gsv_batch_runner *runner = calloc(1, sizeof(*runner));
    pthread_condattr_t attributes;

    if (!runner)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the batch thread");
    runner->batches = batches;
    for (size_t i = 0; i < GSV_BATCH_IN_FLIGHT; i++)
        runner->slots[i].runner = runner;
    pthread_mutex_init(&runner->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&runner->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    batches->runner = runner;
    return GPUSERVE_OK;
}

gpuserve_status gsv_batch_runner_start(struct gsv_batch_runner *runner, gpuserve_error *error)
{
    pthread_mutex_lock(&runner->lock);
    runner->has_thread = pthread_create(&runner->thread, NULL, main_of, runner) == 0;
    pthread_mutex_unlock(&runner->lock);
    return runner->has_thread ? GPUSERVE_OK
                              : gsv_fail(error, GPUSERVE_E_NOMEM, "the batch thread did not start");
}

void gsv_batch_runner_drain(struct gsv_batch_runner *runner)
{
    pthread_mutex_lock(&runner->lock);
    runner->draining = true;
    pthread_mutex_unlock(&runner->lock);
    wake(runner);
}

void gsv_batch_runner_stop(struct gsv_batch_runner *runner)
{
    bool has_thread;

    pthread_mutex_lock(&runner->lock);
    runner->stopping = true;
    has_thread = runner->has_thread;
    runner->has_thread = false;
    pthread_mutex_unlock(&runner->lock);
    wake(runner);
    if (has_thread)
        pthread_join(runner->thread, NULL);
}

void gsv_batch_runner_free(struct gsv_batch_runner *runner)
{
    pthread_cond_destroy(&runner->wake);
    pthread_mutex_destroy(&runner->lock);
    free(runner);
}
