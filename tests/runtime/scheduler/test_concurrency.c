/*
 * test_concurrency.c - at most as many threads compute as there are cores, for any number of
 * models; busy models get equal shares.
 */
#define _GNU_SOURCE
#include "lib/runtime/core/context.h"
#include "lib/runtime/scheduler/concurrency.h"

#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N_CORES = 3, N_SHARES = 4, N_EACH = 5, N_TURNS = 400 };

struct crowd {
    struct gsv_cores cores;
    struct gsv_core_share shares[N_SHARES];
    atomic_int n_busy, n_max, n_wide, n_wrong;
};

struct one {
    struct crowd *crowd;
    size_t share;
};

static void *take_turns(void *argument)
{
    const struct one *one = argument;
    struct crowd *crowd = one->crowd;

    for (int i = 0; i < N_TURNS; i++) {
        bool is_wide;
        int busy;

        gsv_cores_enter(&crowd->cores, &crowd->shares[one->share]);
        is_wide = i % 3 == 0 && gsv_cores_widen(&crowd->cores, N_CORES);
        busy = atomic_fetch_add(&crowd->n_busy, is_wide ? N_CORES : 1) + (is_wide ? N_CORES : 1);
        if (busy > N_CORES)
            atomic_fetch_add(&crowd->n_wrong, 1);
        atomic_fetch_add(&crowd->n_wide, is_wide);
        if (i % 7 == 0)
            sched_yield();
        atomic_fetch_sub(&crowd->n_busy, is_wide ? N_CORES : 1);
        if (is_wide && i % 2) {
            gsv_cores_narrow(&crowd->cores, N_CORES);
            is_wide = false;
        }
        gsv_cores_leave(&crowd->cores, &crowd->shares[one->share], is_wide ? N_CORES : 1, 1000);
    }
    return NULL;
}

Test(cores, never_more_than_there_are_and_none_is_lost)
{
    static struct crowd crowd;
    struct one ones[N_SHARES * N_EACH];
    pthread_t threads[N_SHARES * N_EACH];

    gsv_cores_init(&crowd.cores, N_CORES);
    for (size_t i = 0; i < N_SHARES * N_EACH; i++) {
        ones[i] = (struct one){ &crowd, i % N_SHARES };
        cr_assert_eq(pthread_create(&threads[i], NULL, take_turns, &ones[i]), 0);
    }
    for (size_t i = 0; i < N_SHARES * N_EACH; i++)
        pthread_join(threads[i], NULL);
    take_turns(&ones[0]); /* under contention one caller may never get all cores */
    cr_expect_eq(atomic_load(&crowd.n_wrong), 0);
    cr_expect_gt(atomic_load(&crowd.n_wide), 0);
    cr_expect_eq(crowd.cores.n_busy, 0);
    cr_expect_null(crowd.cores.waiters);
    for (size_t i = 0; i < N_SHARES; i++)
        cr_expect_eq(crowd.shares[i].n_inside, 0);
    gsv_cores_reset(&crowd.cores);
}

static atomic_int n_granted, places[3];

static void *wait_for_core(void *argument)
{
    const struct one *one = argument;
    struct crowd *crowd = one->crowd;

    gsv_cores_enter(&crowd->cores, &crowd->shares[one->share]);
    atomic_store(&places[one->share], atomic_fetch_add(&n_granted, 1));
    gsv_cores_leave(&crowd->cores, &crowd->shares[one->share], 1, 1);
    return NULL;
}

static void wait_until_inside(struct crowd *crowd, size_t share, int32_t n)
{
    for (int32_t inside = -1; inside != n; sched_yield()) {
        pthread_mutex_lock(&crowd->cores.lock);
        inside = crowd->shares[share].n_inside;
        pthread_mutex_unlock(&crowd->cores.lock);
    }
}

/* Fair queueing: of three waiters for the only core, the one with the least used time is first, not
 * the first to arrive. An idle share gets no credit for its idle time. */
Test(cores, who_has_used_min_comes_first)
{
    static struct crowd crowd;
    struct one ones[3];
    pthread_t threads[3];

    gsv_cores_init(&crowd.cores, 1);
    crowd.cores.level_ns = 5000;
    crowd.shares[0].used_ns = 9000;
    crowd.shares[2].used_ns = 7000;
    gsv_cores_enter(&crowd.cores, &crowd.shares[0]);
    for (size_t i = 0; i < 3; i++) {
        ones[i] = (struct one){ &crowd, i };
        cr_assert_eq(pthread_create(&threads[i], NULL, wait_for_core, &ones[i]), 0);
        wait_until_inside(&crowd, i, i == 0 ? 2 : 1);
    }
    cr_expect_eq(crowd.shares[1].used_ns, 5000, "level with the one served last");
    gsv_cores_leave(&crowd.cores, &crowd.shares[0], 1, 100);
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(atomic_load(&places[1]), 0);
    cr_expect_eq(atomic_load(&places[2]), 1);
    cr_expect_eq(atomic_load(&places[0]), 2);
    gsv_cores_reset(&crowd.cores);
}

/* Two models in a context of two threads: four batches are waiting to run, two run. */
Test(cores, two_busy_models_share_the_context)
{
    enum { N = 200 };
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *models[2] = { NULL };
    gpuserve_request *requests[2];
    const char *texts[N];
    float *rows = calloc((size_t)2 * N * FAKE_DIM, sizeof(*rows));

    context_options.n_threads = 2;
    options.device = "cpu";
    options.max_batch_tokens = 128;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < N; i++)
        texts[i] = "some words that are the same in each of all the texts";
    fake_hold();
    for (size_t i = 0; i < 2; i++) {
        gpuserve_job job = fake_job(texts, N, rows + i * N * FAKE_DIM);

        job.cache = GPUSERVE_CACHE_OFF;
        cr_assert_eq(gpuserve_model_open(&models[i], context, ".", &options, NULL), GPUSERVE_OK);
        cr_assert_eq(gpuserve_submit(&requests[i], models[i], &job, NULL, NULL, NULL), GPUSERVE_OK);
    }
    fake_wait_running(2);
    cr_expect_eq(gpuserve_wait(requests[0], 20000, NULL), GPUSERVE_E_TIMEOUT);
    cr_expect_eq(fake_batches(), 2, "one for each core");
    fake_release();
    for (size_t i = 0; i < 2; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, NULL), GPUSERVE_OK);
        gpuserve_request_free(&requests[i]);
        gpuserve_model_close(&models[i]);
    }
    gpuserve_context_unref(&context);
    free(rows);
}

/* ---------------------------------------------------------------------------------- core groups */

/* The thread of that name in this process; 0: not started yet. */
static pid_t find_thread(const char *wanted)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    pid_t found = 0;

    cr_assert_not_null(tasks);
    while ((entry = readdir(tasks)) && !found) {
        char path[300], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "r");
        if (file && fgets(name, sizeof(name), file)) {
            name[strcspn(name, "\n")] = '\0';
            if (strcmp(name, wanted) == 0)
                found = (pid_t)atoi(entry->d_name);
        }
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return found;
}

static void expect_on_core(const char *thread, int core)
{
    const time_t begin = time(NULL);
    cpu_set_t mask;
    pid_t id;

    do {
        cr_assert_lt(time(NULL) - begin, 300, "%s is not on core %d alone", thread, core);
        usleep(1000);
        id = find_thread(thread);
    } while (!id || sched_getaffinity(id, sizeof(mask), &mask) != 0 || CPU_COUNT(&mask) != 1 ||
             !CPU_ISSET(core, &mask));
}

/* Simulates a cache per core: one worker is pinned to each core, callers are not, and a single text
 * is still computed by all. */
Test(cores, each_group_has_its_workers)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    const char *const text[] = { "a text" };
    float row[FAKE_DIM], want[FAKE_DIM];
    cpu_set_t mask;
    int cores[2], n = 0;

    cr_assert_eq(sched_getaffinity(0, sizeof(mask), &mask), 0);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++) {
        if (CPU_ISSET(i, &mask))
            cores[n++] = i;
    }
    if (n < 2) /* needs two cores */
        return;
    context_options.n_threads = 2;
    options.device = "cpu";
    cr_assert_eq(gpuserve_context_create(&context, &context_options, NULL), GPUSERVE_OK);
    gsv_topology_reset(&context->topology);
    context->topology.groups = calloc(2, sizeof(*context->topology.groups));
    cr_assert_not_null(context->topology.groups);
    context->topology.n = 2;
    for (int i = 0; i < 2; i++)
        context->topology.groups[i].bits[cores[i] / 64] = UINT64_C(1) << (cores[i] % 64);
    cr_assert_eq(gpuserve_model_open(&model, context, ".", &options, NULL), GPUSERVE_OK);
    expect_on_core("gpuserve-0", cores[0]);
    expect_on_core("gpuserve-1", cores[1]);
    fake_vector(text[0], want);
    cr_assert_eq(gpuserve_embed(model, text, 1, row, FAKE_DIM, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(memcmp(row, want, sizeof(row)), 0);
    cr_expect_eq(fake_wide_batches(), 1);
    cr_assert_eq(sched_getaffinity(0, sizeof(mask), &mask), 0);
    cr_expect(CPU_ISSET(cores[0], &mask) && CPU_ISSET(cores[1], &mask), "the caller's own mask");
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
}
