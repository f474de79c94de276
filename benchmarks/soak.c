/*
 * soak.c - memory growth test under load: soak MODEL MINUTES.
 *
 * Eight threads embed random texts, one or several per job. One call in a hundred is malformed or
 * cancelled; another thread swaps the model for itself and suspends it. Every second all threads
 * pause and two figures are read: bytes allocated and not freed, which shows leaks independently of
 * malloc's caches, and resident bytes. The first half of the run is warm-up, because malloc's
 * per-thread caches fill slowly. Over the rest, the slope is fitted by least squares to the min of
 * each minute (of each tenth in a short run); the min is near a swap, where the model's result
 * cache is empty.
 *
 * Prints a JSON object. Exit code 1 if a call returned an unexpected status, or either figure grew
 * by more than 1 MB per hour and 256 KiB in total.
 */
#define _GNU_SOURCE /* for a lock that prefers writers */
#include "tests/base/failing_malloc.h"

#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N_THREADS = 8, MAX_TEXTS = 12, MAX_WORDS = 40, TEXT_BYTES = 512, MAX_SECONDS = 86400 };

#define MAX_MB_PER_HOUR 1.0
#define MIN_BYTES (256 * 1024)

struct soak {
    gpuserve_context *context;
    gpuserve_model *model;
    size_t dim;
    pthread_rwlock_t pause; /* read-locked during each call, write-locked while sampling */
    atomic_bool stop;
    atomic_ullong n_calls, n_malformed, n_cancelled, n_busy, n_wrong, n_swaps;
};

struct actor {
    struct soak *soak;
    uint32_t seed;
};

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static void make_text(char text[TEXT_BYTES], uint32_t *seed)
{
    static const char *const words[] = {
        "time", "river", "of", "the",     "unbelievable", "grow",
        "a",    "never", "is", "memory.", "42",           "stays"
    };
    const uint32_t n = 1 + next(seed) % MAX_WORDS;
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < n && length + 16 < TEXT_BYTES; i++)
        length += (size_t)snprintf(text + length, TEXT_BYTES - length, "%s ",
                                   words[next(seed) % (sizeof(words) / sizeof(words[0]))]);
}

/* Counts a call and compares its status with the expected one. */
static void judge(struct soak *soak, gpuserve_status st, gpuserve_status wanted,
                  const gpuserve_error *error)
{
    atomic_fetch_add(&soak->n_calls, 1);
    if (st == GPUSERVE_E_BUSY) {
        atomic_fetch_add(&soak->n_busy, 1);
    } else if (st != wanted) {
        atomic_fetch_add(&soak->n_wrong, 1);
        fprintf(stderr, "soak: %d, not %d: %s\n", (int)st, (int)wanted, error->message);
    }
}

static void malformed(struct soak *soak, gpuserve_job *job, uint32_t which)
{
    static const char *const bad_utf8[] = { "caf\xe9 au lait" };
    static const int32_t bad_ids[] = { 101, 2000000000, 102 };
    static const size_t offsets[] = { 0, 3 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;

    if (which % 4 == 0) {
        job->texts = bad_utf8;
        job->n_items = 1;
    } else if (which % 4 == 1) {
        job->texts = NULL;
        job->ids = bad_ids;
        job->id_offsets = offsets;
        job->n_items = 1;
    } else if (which % 4 == 2) {
        job->output_capacity = 1;
    } else {
        job->prompt_name = "no such prompt";
    }
    st = gpuserve_run(soak->model, job, &error);
    atomic_fetch_add(&soak->n_malformed, 1);
    judge(soak, st, GPUSERVE_E_INVALID, &error);
}

static void cancelled(struct soak *soak, const gpuserve_job *job)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_request *request = NULL;
    gpuserve_status st = gpuserve_submit(&request, soak->model, job, NULL, NULL, &error);

    if (st == GPUSERVE_OK) {
        (void)gpuserve_cancel(request);
        st = gpuserve_wait(request, -1, &error);
        gpuserve_request_free(&request);
        atomic_fetch_add(&soak->n_cancelled, 1);
    }
    judge(soak, st == GPUSERVE_E_CANCELLED ? GPUSERVE_OK : st, GPUSERVE_OK, &error);
}

static void *act(void *argument)
{
    struct actor *actor = argument;
    struct soak *soak = actor->soak;
    char(*text)[TEXT_BYTES] = malloc(sizeof(*text) * MAX_TEXTS);
    float *rows = malloc(sizeof(float) * MAX_TEXTS * soak->dim);

    while (text && rows && !atomic_load(&soak->stop)) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        const char *texts[MAX_TEXTS];
        gpuserve_job job = GPUSERVE_JOB_INIT;
        const uint32_t dice = next(&actor->seed) % 200;

        job.n_items = dice % 3 ? 1 : 1 + next(&actor->seed) % MAX_TEXTS;
        for (size_t i = 0; i < job.n_items; i++) {
            make_text(text[i], &actor->seed);
            texts[i] = text[i];
        }
        job.texts = texts;
        job.output = rows;
        job.output_capacity = MAX_TEXTS * soak->dim;
        pthread_rwlock_rdlock(&soak->pause);
        if (dice == 0)
            malformed(soak, &job, next(&actor->seed));
        else if (dice == 1)
            cancelled(soak, &job);
        else
            judge(soak, gpuserve_run(soak->model, &job, &error), GPUSERVE_OK, &error);
        pthread_rwlock_unlock(&soak->pause);
    }
    free(text);
    free(rows);
    return NULL;
}

/* Every few seconds swaps the model for itself, or suspends it; a later call resumes it. */
static void *disturb(void *argument)
{
    struct soak *soak = argument;

    for (unsigned i = 0; !atomic_load(&soak->stop); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        pthread_rwlock_rdlock(&soak->pause);
        if (i % 30 == 10)
            judge(soak, gpuserve_model_swap(soak->model, NULL, NULL, NULL, NULL, &error),
                  GPUSERVE_OK, &error);
        if (i % 30 == 25)
            judge(soak, gpuserve_model_suspend(soak->model, &error), GPUSERVE_OK, &error);
        atomic_fetch_add(&soak->n_swaps, i % 15 == 10);
        pthread_rwlock_unlock(&soak->pause);
        usleep(100000);
    }
    return NULL;
}

static double resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long whole = 0, resident = 0;

    if (file && fscanf(file, "%lu %lu", &whole, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

struct samples {
    double *live, *resident; /* [seconds] bytes */
};

/* Samples with the model loaded, without the bytes of its result cache. */
static void sample(struct soak *soak, const struct samples *samples, int at)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_stats stats = { .struct_size = sizeof(stats) };

    pthread_rwlock_wrlock(&soak->pause);
    judge(soak, gpuserve_model_resume(soak->model, &error), GPUSERVE_OK, &error);
    judge(soak, gpuserve_context_stats(soak->context, &stats, &error), GPUSERVE_OK, &error);
    samples->live[at] = (double)failing_malloc_live_bytes() - (double)stats.cache_bytes;
    samples->resident[at] = resident_bytes();
    pthread_rwlock_unlock(&soak->pause);
}

/* Bytes per sample (one per second), by least squares over the min of each block of samples. */
static double fit(const double *samples, int n, int block, double *grown)
{
    const int blocks = n / block;
    double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0, first = 0, last = 0;

    for (int b = 0; b < blocks; b++) {
        double least = samples[b * block];

        for (int i = 1; i < block; i++)
            least = samples[b * block + i] < least ? samples[b * block + i] : least;
        first = b == 0 ? least : first;
        last = least;
        sum_x += b;
        sum_y += least;
        sum_xx += (double)b * b;
        sum_xy += b * least;
    }
    *grown = last - first;
    return (blocks * sum_xy - sum_x * sum_y) / (blocks * sum_xx - sum_x * sum_x) / block;
}

/* True if the figure grows; prints it as JSON fields. */
static bool report_growth(const char *name, const double *samples, int seconds)
{
    const int settling = seconds / 2, n = seconds - settling;
    const int block = n / 60 >= 10 ? 60 : n / 10;
    double grown;
    const double slope = fit(samples + settling, n, block, &grown) * 3600 / 1e6;

    printf(" \"%s_mb\": %.3f,\n \"%s_grown_mb\": %.3f,\n \"%s_mb_per_hour\": %.3f,\n", name,
           samples[seconds - 1] / 1e6, name, grown / 1e6, name, slope);
    return slope > MAX_MB_PER_HOUR && grown > MIN_BYTES;
}

static int report(const struct soak *soak, const struct samples *samples, int seconds)
{
    bool grows;

    printf("{\n \"seconds\": %d,\n \"calls\": %llu,\n \"malformed\": %llu,\n \"cancelled\": %llu,\n"
           " \"busy\": %llu,\n \"wrong\": %llu,\n \"swaps_and_suspensions\": %llu,\n",
           seconds, atomic_load(&soak->n_calls), atomic_load(&soak->n_malformed),
           atomic_load(&soak->n_cancelled), atomic_load(&soak->n_busy), atomic_load(&soak->n_wrong),
           atomic_load(&soak->n_swaps));
    grows = report_growth("live", samples->live, seconds);
    grows |= report_growth("resident", samples->resident, seconds);
    printf(" \"grows\": %s\n}\n", grows ? "true" : "false");
    return grows || atomic_load(&soak->n_wrong) > 0;
}

static int run(struct soak *soak, int seconds)
{
    struct actor actors[N_THREADS];
    pthread_t threads[N_THREADS + 1];
    double *memory = calloc(2 * (size_t)seconds, sizeof(*memory));
    const struct samples samples = { memory, memory + seconds };
    int n = 0, result = 2;

    if (!memory)
        return result;
    for (; n < N_THREADS; n++) {
        actors[n] = (struct actor){ soak, (uint32_t)n * 7919 + 1 };
        if (pthread_create(&threads[n], NULL, act, &actors[n]) != 0)
            break;
    }
    if (n == N_THREADS && pthread_create(&threads[n], NULL, disturb, soak) == 0) {
        n++;
        for (int i = 0; i < seconds; i++) {
            sleep(1);
            sample(soak, &samples, i);
        }
    }
    atomic_store(&soak->stop, true);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    if (n == N_THREADS + 1)
        result = report(soak, &samples, seconds);
    free(memory);
    return result;
}

int main(int argc, char **argv)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    const int seconds = argc == 3 ? (int)(atof(argv[2]) * 60) : 0;
    struct soak soak = { 0 };
    pthread_rwlockattr_t prefer_writers;
    int result;

    if (seconds < 30 || seconds > MAX_SECONDS) {
        fprintf(stderr, "usage: soak MODEL MINUTES, 0.5 to 1440\n");
        return 2;
    }
    options.device = "cpu";
    options.cache_bytes = 4 << 20;
    if (gpuserve_context_create(&soak.context, NULL, &error) != GPUSERVE_OK ||
        gpuserve_model_open(&soak.model, soak.context, argv[1], &options, &error) != GPUSERVE_OK) {
        fprintf(stderr, "soak: %s\n", error.message);
        return 2;
    }
    soak.dim = gpuserve_model_dim(soak.model);
    pthread_rwlockattr_init(&prefer_writers);
    pthread_rwlockattr_setkind_np(&prefer_writers, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&soak.pause, &prefer_writers);
    pthread_rwlockattr_destroy(&prefer_writers);
    result = run(&soak, seconds);
    pthread_rwlock_destroy(&soak.pause);
    gpuserve_model_close(&soak.model);
    gpuserve_context_unref(&soak.context);
    return result;
}
