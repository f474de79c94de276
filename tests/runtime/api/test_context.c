/*
 * test_context.c - context options, metrics, doctor, model facts, and permitted calls in a forked
 * child.
 */
#define _GNU_SOURCE
#include "tests/base/sanitized.h"
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <jansson.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const text[] = { "a text" };

Test(context, options_that_are_wrong_are_refused)
{
    struct {
        gpuserve_context_options options;
        const char *words;
    } cases[] = {
        { { .struct_size = 8 }, "struct_size is 8" },
        { { .struct_size = sizeof(gpuserve_context_options), .n_threads = 100000 }, "n_threads" },
        { { .struct_size = sizeof(gpuserve_context_options), .log_level = 9 }, "log_level" },
        { { .struct_size = sizeof(gpuserve_context_options), .reserved = 1 }, "reserved" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_context *context = (gpuserve_context *)1;

        cr_expect_eq(gpuserve_context_create(&context, &cases[i].options, &error),
                     GPUSERVE_E_INVALID);
        cr_expect_null(context);
        cr_expect_neq(strstr(error.message, cases[i].words), NULL, "%s", error.message);
    }
    cr_expect_eq(gpuserve_context_create(NULL, NULL, NULL), GPUSERVE_E_INVALID);
}

Test(context, the_budget_refuses_a_model_with_both_numbers)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_footprint footprint = { .struct_size = sizeof(footprint) };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *first = NULL, *second = NULL;
    char number[32];

    options.n_threads = 1;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_footprint(context, ".", NULL, &footprint, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_expect_eq(footprint.fits, 1);
    cr_expect_eq(footprint.n_streams, 1);
    cr_expect_eq(footprint.total_bytes, footprint.weights_bytes + footprint.workspace_bytes +
                                            footprint.stream_bytes + footprint.host_bytes);
    cr_expect_geq(footprint.max_batch_tokens, 512);
    gpuserve_context_unref(&context);

    options.memory_budget_bytes = footprint.total_bytes * 3 / 2; /* enough for one model */
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_open(&first, context, ".", NULL, &error), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_open(&second, context, ".", NULL, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_null(second);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)footprint.total_bytes);
    cr_expect_neq(strstr(error.message, number), NULL, "%s", error.message);
    cr_expect_gt(strlen(error.hint), 0);
    cr_expect_eq(gpuserve_model_footprint(context, ".", NULL, &footprint, NULL), GPUSERVE_OK);
    cr_expect_eq(footprint.fits, 0, "and the footprint says so beforehand");
    cr_expect_lt(footprint.max_batch_tokens, 512);
    gpuserve_model_close(&first);
    cr_expect_eq(gpuserve_model_open(&second, context, ".", NULL, NULL), GPUSERVE_OK,
                 "closing gives the room back");
    gpuserve_model_close(&second);
    gpuserve_context_unref(&context);
}

/* The value of a metric's line; -1 if it is missing. */
static double metric(gpuserve_context *context, const char *name)
{
    char page[65536];
    const char *line;

    cr_assert_eq(gpuserve_context_metrics(context, page, sizeof(page), NULL, NULL), GPUSERVE_OK);
    for (line = page; (line = strstr(line, name)) != NULL; line++) {
        if ((line == page || line[-1] == '\n') && line[strlen(name)] == ' ')
            return atof(line + strlen(name));
    }
    return -1;
}

/* Expects a batch of 2 texts and one of 3: with enough capacity, with too little, with invalid
 * arguments. */
static void expect_batches(gpuserve_model *model, uint64_t compute_ns)
{
    gpuserve_batch_counts rows[3] = { GPUSERVE_BATCH_COUNTS_INIT };
    uint64_t sum = 0;
    size_t n = 0;

    cr_assert_eq(gpuserve_model_batches(model, NULL, 0, &n, NULL), GPUSERVE_OK);
    cr_expect_eq(n, 2);
    cr_assert_eq(gpuserve_model_batches(model, rows, 1, &n, NULL), GPUSERVE_OK);
    cr_expect_eq(n, 2);
    cr_expect_eq(rows[0].n_texts, 2);
    cr_expect_eq(rows[1].n_texts, 0, "beyond the capacity");
    cr_assert_eq(gpuserve_model_batches(model, rows, 3, &n, NULL), GPUSERVE_OK);
    cr_expect_eq(n, 2);
    for (size_t i = 0; i < 2; i++) {
        cr_expect_eq(rows[i].struct_size, sizeof(rows[i]));
        cr_expect_eq(rows[i].n_texts, i + 2);
        cr_expect_eq(rows[i].batches, 1);
        sum += rows[i].input_ns + rows[i].infer_ns + rows[i].output_ns;
    }
    cr_expect_eq(sum, compute_ns);
    cr_expect_eq(rows[2].n_texts, 0);
    cr_expect_eq(gpuserve_model_batches(NULL, rows, 3, &n, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_model_batches(model, NULL, 3, &n, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_model_batches(model, rows, 3, NULL, NULL), GPUSERVE_E_INVALID);
    rows[0].struct_size = 8;
    cr_expect_eq(gpuserve_model_batches(model, rows, 3, &n, NULL), GPUSERVE_E_INVALID);
}

Test(context, metrics_count_what_happened)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    const char *const texts[] = { "one", "two words", "NAN" };
    float rows[3 * FAKE_DIM];
    gpuserve_stats stats = { .struct_size = sizeof(stats) };
    gpuserve_model_counts counts = GPUSERVE_MODEL_COUNTS_INIT;
    const char *const broken = "BREAK";
    char small[8] = "keep";
    size_t size = 0;

    options.n_threads = 1;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, ".", NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_embed(model, texts, 2, rows, 2 * FAKE_DIM, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_embed(model, texts, 3, rows, 3 * FAKE_DIM, NULL, NULL),
                 GPUSERVE_E_NUMERIC);
    cr_expect_eq(gpuserve_embed(model, texts, 3, rows, 1, NULL, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(metric(context, "gpuserve_requests_total{result=\"ok\"}"), 1);
    cr_expect_eq(metric(context, "gpuserve_requests_total{result=\"numeric\"}"), 1);
    cr_expect_eq(metric(context, "gpuserve_requests_total{result=\"invalid\"}"), 1);
    cr_expect_eq(metric(context, "gpuserve_items_total"), 5);
    cr_expect_eq(metric(context, "gpuserve_tokens_total"), 3 + 4 + 3 + 4 + 3);
    cr_expect_eq(metric(context, "gpuserve_batches_total"), 2);
    cr_expect_eq(metric(context, "gpuserve_padding_tokens_saved_total"), 1 + 2);
    cr_expect_eq(metric(context, "gpuserve_queue_tokens"), 0);
    cr_expect_eq(metric(context, "gpuserve_queue_requests"), 0);
    cr_expect_eq(metric(context, "gpuserve_request_seconds_count"), 3);
    cr_expect_eq(metric(context, "gpuserve_request_queue_seconds_count"), 2, "not the refused one");
    cr_expect_eq(metric(context, "gpuserve_text_tokens_sum"), 3 + 4 + 3 + 4 + 3);
    cr_expect_eq(metric(context, "gpuserve_batch_texts_bucket{le=\"2\"}"), 1);
    cr_expect_eq(metric(context, "te_request_count"), 3);
    cr_expect_eq(metric(context, "te_request_duration_count"), 1, "of what succeeded only");
    cr_expect_eq(metric(context, "te_request_inference_duration_count"), 1);
    cr_expect_eq(metric(context, "te_embed_count"), 2 + 3 + 3, "texts");
    cr_expect_eq(metric(context, "te_embed_success"), 2);
    cr_expect_eq(metric(context, "te_embed_duration_count"), 2);
    cr_expect_eq(metric(context, "te_embed_queue_duration_count"), 2);
    cr_expect_float_eq(metric(context, "te_embed_duration_sum"),
                       2 * metric(context, "te_request_duration_sum"), 1e-8);
    cr_expect_eq(metric(context, "te_predict_count"), 0);
    cr_expect_eq(metric(context, "te_request_failure{err=\"validation\"}"), 1);
    cr_expect_eq(metric(context, "gpuserve_models"), 1);
    cr_expect_eq(metric(context, "gpuserve_memory_bytes{purpose=\"weights\"}"), 1000);
    cr_expect_eq(gpuserve_context_stats(context, &stats, NULL), GPUSERVE_OK);
    cr_expect_eq(stats.requests, 3);
    cr_expect_eq(stats.requests_ok, 1);
    cr_expect_eq(stats.requests_failed, 2);
    cr_expect_eq(stats.items, 5);
    cr_expect_eq(stats.n_models, 1);
    cr_expect_eq(stats.weights_bytes, 1000);
    cr_expect_gt(stats.request_ns, stats.queue_ns);
    cr_expect_leq(stats.request_p50_us, stats.request_p99_us);
    cr_expect_gt(stats.request_p99_us, 0);
    cr_expect_eq(gpuserve_model_stats(model, &counts, NULL), GPUSERVE_OK);
    cr_expect_eq(counts.batches, 2);
    cr_expect_eq(counts.items, 5);
    cr_expect_eq(counts.tokens, 3 + 4 + 3 + 4 + 3);
    cr_expect_gt(counts.compute_ns, 0);
    expect_batches(model, counts.compute_ns);
    cr_expect_eq(gpuserve_embed(model, &broken, 1, rows, FAKE_DIM, NULL, NULL), GPUSERVE_E_DEVICE);
    cr_expect_eq(gpuserve_model_stats(model, &counts, NULL), GPUSERVE_OK);
    cr_expect_eq(counts.batches, 2, "one that failed is none");
    cr_expect_eq(metric(context, "gpuserve_batches_total"), 3);
    cr_expect_eq(gpuserve_model_stats(NULL, &counts, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_model_stats(model, NULL, NULL), GPUSERVE_E_INVALID);
    counts.struct_size = 8;
    cr_expect_eq(gpuserve_model_stats(model, &counts, NULL), GPUSERVE_E_INVALID);
    stats.struct_size = 8;
    cr_expect_eq(gpuserve_context_stats(context, &stats, NULL), GPUSERVE_E_INVALID);
    gpuserve_model_close(&model);
    cr_expect_eq(metric(context, "gpuserve_models"), 0);
    cr_expect_eq(metric(context, "gpuserve_memory_bytes{purpose=\"weights\"}"), 0);

    cr_expect_eq(gpuserve_context_metrics(context, NULL, 0, &size, NULL), GPUSERVE_OK);
    cr_expect_gt(size, 1000);
    cr_expect_eq(gpuserve_context_metrics(context, small, sizeof(small), &size, NULL),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect_str_eq(small, "keep", "nothing is written");
    gpuserve_context_unref(&context);
}

Test(context, texts_do_not_change_with_the_hosts_locale)
{
    gpuserve_context *context = NULL;
    char page[65536];

    if (!setlocale(LC_ALL, "de_DE.UTF-8")) /* the build creates this locale if possible */
        cr_assert_null(getenv("LOCPATH"));
    cr_assert_eq(gpuserve_context_create(&context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_context_metrics(context, page, sizeof(page), NULL, NULL), GPUSERVE_OK);
    cr_expect_neq(strstr(page, "le=\"0.0005\""), NULL);
    cr_expect_neq(strstr(page, "gpuserve_compute_seconds_total 0\n"), NULL);
    gpuserve_context_unref(&context);
}

static json_t *parse(const char *json)
{
    json_error_t error;
    json_t *parsed = json_loads(json, 0, &error);

    cr_assert_not_null(parsed, "%s", error.text);
    return parsed;
}

Test(context, doctor_inspect_and_info_are_json_that_says_why)
{
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    char page[65536];
    json_t *json;

    setenv("GPUSERVE_PLUGIN_DIR", "/nonexistent", 1);
    cr_assert_eq(gpuserve_context_create(&context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_context_doctor(context, NULL, page, sizeof(page), NULL, NULL),
                 GPUSERVE_OK);
    json = parse(page);
    cr_expect_str_eq(json_string_value(json_object_get(json, "version")), gpuserve_version());
    json_t *cuda = json_object_get(json_object_get(json, "backends"), "cuda");
    cr_expect(json_is_false(json_object_get(cuda, "works")));
    cr_expect_neq(strstr(json_string_value(json_object_get(cuda, "reason")), "/nonexistent"), NULL);
    cr_expect_gt(strlen(json_string_value(json_object_get(cuda, "remedy"))), 10);
    json_decref(json);

    cr_assert_eq(gpuserve_model_inspect(context, ".", NULL, page, sizeof(page), NULL, NULL),
                 GPUSERVE_OK);
    json = parse(page);
    cr_expect_str_eq(json_string_value(json_object_get(json, "architecture")), "FakeModel");
    cr_expect_eq(json_array_size(json_object_get(json, "labels")), FAKE_LABELS);
    json_decref(json);

    cr_assert_eq(gpuserve_model_open(&model, context, ".", NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_info(model, page, sizeof(page), NULL, NULL), GPUSERVE_OK);
    json = parse(page);
    cr_expect_str_eq(json_string_value(json_object_get(json, "device")), "cpu");
    cr_expect_neq(strstr(json_string_value(json_object_get(json, "device_reason")), "no GPU"),
                  NULL);
    cr_expect_str_eq(json_string_value(json_object_get(json, "fingerprint")),
                     gpuserve_model_fingerprint(model));
    cr_expect_eq(strspn(gpuserve_model_fingerprint(model), "0123456789abcdef"), 32);
    json_decref(json);
    gpuserve_context_unref(&context); /* the model holds a reference */
    cr_expect_eq(gpuserve_model_info(model, NULL, 0, NULL, NULL), GPUSERVE_OK);
    gpuserve_model_close(&model);
}

Test(context, an_options_max_tokens_is_kept_within_the_positions_and_changes_the_fingerprint)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    char fingerprint[33];

    cr_assert_eq(gpuserve_model_open(&model, NULL, ".", &options, NULL), GPUSERVE_OK);
    strcpy(fingerprint, gpuserve_model_fingerprint(model));
    gpuserve_model_close(&model);
    options.max_tokens = 10;
    cr_assert_eq(gpuserve_model_open(&model, NULL, ".", &options, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_max_tokens(model), 10);
    cr_expect_str_neq(gpuserve_model_fingerprint(model), fingerprint);
    gpuserve_model_close(&model);
    options.max_tokens = FAKE_MAX_TOKENS + 1;
    cr_expect_eq(gpuserve_model_open(&model, NULL, ".", &options, &error), GPUSERVE_E_INVALID);
    cr_expect_neq(strstr(error.message, "64"), NULL, "%s", error.message);
    options.max_tokens = 2;
    cr_expect_eq(gpuserve_model_open(&model, NULL, ".", &options, &error), GPUSERVE_E_INVALID);
    options.max_tokens = 0;
    options.dtype = GPUSERVE_DTYPE_TF32;
    cr_expect_eq(gpuserve_model_open(&model, NULL, ".", &options, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect_null(model);
}

/* Uses the parent's handles in a child; 0 if each call behaves as documented. */
static int in_child(gpuserve_context *context, gpuserve_model *model, gpuserve_request *request)
{
    float row[FAKE_DIM];
    size_t n;
    gpuserve_job job = fake_job(text, 1, row);
    gpuserve_request *other = NULL;
    gpuserve_model *second = NULL;

    if (gpuserve_embed(model, text, 1, row, FAKE_DIM, NULL, NULL) != GPUSERVE_E_FORKED)
        return 1;
    if (gpuserve_submit(&other, model, &job, NULL, NULL, NULL) != GPUSERVE_E_FORKED)
        return 2;
    if (gpuserve_wait(request, -1, NULL) != GPUSERVE_E_FORKED)
        return 3;
    if (gpuserve_cancel(request) != GPUSERVE_E_FORKED)
        return 4;
    if (gpuserve_tokenize(model, "a", 1, NULL, NULL, 0, &n, NULL, NULL) != GPUSERVE_E_FORKED)
        return 5;
    if (gpuserve_context_metrics(context, NULL, 0, NULL, NULL) != GPUSERVE_E_FORKED)
        return 6;
    if (gpuserve_model_open(&second, context, ".", NULL, NULL) != GPUSERVE_E_FORKED)
        return 7;
    if (gpuserve_completion_fd(model) != -1)
        return 8;
    gpuserve_request_free(&request);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
#ifndef GSV_PLAIN_CRITERION_H /* neither TSan nor QEMU allows threads in a child */
    if (gpuserve_model_open(&second, NULL, ".", NULL, NULL) != GPUSERVE_OK)
        return 9;
    if (gpuserve_embed(second, text, 1, row, FAKE_DIM, NULL, NULL) != GPUSERVE_OK)
        return 10;
    gpuserve_model_close(&second);
#endif
    return 0;
}

/* True if each other thread of the process sleeps. */
static bool other_threads_sleep(void)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *task;
    bool sleep = true;

    cr_assert(tasks);
    while ((task = readdir(tasks))) {
        char path[300], line[512];
        const char *state;
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task->d_name);
        if (atoi(task->d_name) == 0 || atoi(task->d_name) == gettid() || !(file = fopen(path, "r")))
            continue;
        state = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
        sleep = sleep && state && state[1] == ' ' && state[2] == 'S';
        fclose(file);
    }
    closedir(tasks);
    return sleep;
}

/* The C library's allocator may be in use at a fork; that of gcc 12's address sanitizer may not:
 * its lock stays taken in the child. */
static void wait_for_the_allocator(void)
{
    while (IS_SANITIZED && !other_threads_sleep())
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

Test(context, a_forked_child_is_told_and_may_begin_anew)
{
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    gpuserve_request *request = NULL;
    float row[FAKE_DIM];
    gpuserve_job job = fake_job(text, 1, row);
    int status = 0;
    pid_t child;

    cr_assert_eq(gpuserve_context_create(&context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_model_open(&model, context, ".", NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_submit(&request, model, &job, NULL, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
    wait_for_the_allocator();
    child = fork();
    if (child == 0) {
        alarm(30);
        _exit(in_child(context, model, request));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status), "signal %d", WTERMSIG(status));
    cr_expect_eq(WEXITSTATUS(status), 0, "step %d", WEXITSTATUS(status));
    cr_expect_eq(gpuserve_embed(model, text, 1, row, FAKE_DIM, NULL, NULL), GPUSERVE_OK,
                 "the parent goes on");
    gpuserve_request_free(&request);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}

static void *embed_and_tokenize(void *failed)
{
    gpuserve_model *model = NULL;
    float row[FAKE_DIM];
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    *(int *)failed = gpuserve_model_open(&model, NULL, ".", NULL, &error) != GPUSERVE_OK ||
                     gpuserve_embed(model, text, 1, row, FAKE_DIM, NULL, &error) != GPUSERVE_OK;
    gpuserve_model_close(&model);
    return NULL;
}

/* aarch64 has no smaller stack than 128 KiB. */
Test(context, a_stack_of_64_kib_is_enough)
{
    const long min = sysconf(_SC_THREAD_STACK_MIN);
    pthread_attr_t attributes;
    pthread_t thread;
    int failed = 1;

    pthread_attr_init(&attributes);
    cr_assert_eq(pthread_attr_setstacksize(&attributes, min > 65536 ? (size_t)min : 65536), 0);
    cr_assert_eq(pthread_create(&thread, &attributes, embed_and_tokenize, &failed), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(failed, 0);
}

static volatile sig_atomic_t handled_by_host;
static pthread_t host_thread;

static void on_signal(int number)
{
    (void)number;
    handled_by_host += pthread_equal(pthread_self(), host_thread) ? 1 : 1000;
}

struct storm {
    pthread_t at;
    atomic_bool is_over;
};

static void *interrupt(void *argument)
{
    struct storm *storm = argument;

    while (!atomic_load(&storm->is_over)) {
        pthread_kill(storm->at, SIGUSR1);
        usleep(200);
    }
    return NULL;
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A signal handler that interrupts system calls does not make the library's calls fail. */
Test(context, calls_go_on_through_signals)
{
    struct sigaction action = { .sa_handler = on_signal };
    struct storm storm = { .at = pthread_self() };
    gpuserve_request *request = NULL;
    gpuserve_model *model;
    pthread_t thread;
    float row[FAKE_DIM];
    const gpuserve_job job = fake_job(text, 1, row);

    host_thread = pthread_self();
    sigaction(SIGUSR1, &action, NULL); /* without SA_RESTART */
    cr_assert_eq(pthread_create(&thread, NULL, interrupt, &storm), 0);
    for (int i = 0; i < 10; i++) {
        double begin;

        model = fake_open(2, 0, 0);
        cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
        fake_hold();
        cr_assert_eq(gpuserve_submit(&request, model, &job, NULL, NULL, NULL), GPUSERVE_OK);
        begin = seconds_now();
        cr_expect_eq(gpuserve_wait(request, 10000, NULL), GPUSERVE_E_TIMEOUT);
        cr_expect_geq(seconds_now() - begin, 0.01, "a signal cut the wait short");
        fake_release();
        cr_expect_eq(gpuserve_wait(request, -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&request);
        gpuserve_model_close(&model);
    }
    atomic_store(&storm.is_over, true);
    pthread_join(thread, NULL);
    cr_expect_gt(handled_by_host, 0);
}

Test(context, signals_are_left_to_the_host)
{
    struct sigaction action = { .sa_handler = on_signal }, after;
    gpuserve_model *model;

    host_thread = pthread_self();
    sigaction(SIGUSR1, &action, NULL);
    model = fake_open(2, 0, 0);
    for (int i = 0; i < 50; i++)
        kill(getpid(), SIGUSR1);
    sigaction(SIGUSR1, NULL, &after);
    cr_expect_eq(after.sa_handler, on_signal);
    cr_expect_gt(handled_by_host, 0);
    cr_expect_lt(handled_by_host, 1000, "a library thread took a signal");
    gpuserve_model_close(&model);
}
