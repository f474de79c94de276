/*
 * test_open.c - compute handles: rejected options, threads, forks, device memory.
 */
#include "tests/compute/support.h"
#include "tests/cudaemu/emu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_refused(gpuserve_context *context, const gpuserve_compute_options *options,
                           gpuserve_status status, const char *word)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_compute *compute = (gpuserve_compute *)&error;

    cr_expect_eq(gpuserve_compute_open(&compute, context, options, &error), status, "%s",
                 error.message);
    cr_expect_null(compute);
    cr_expect(strstr(error.message, word), "%s", error.message);
}

Test(compute, what_opening_refuses)
{
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;

    cr_expect_eq(gpuserve_compute_open(NULL, NULL, NULL, NULL), GPUSERVE_E_INVALID);
    options.device = "tpu";
    expect_refused(NULL, &options, GPUSERVE_E_INVALID, "tpu");
    options.device = "cuda:9";
    expect_refused(NULL, &options, GPUSERVE_E_DEVICE, "cuda:9");
    options.device = "cpu";
    options.n_threads = 100000;
    expect_refused(NULL, &options, GPUSERVE_E_INVALID, "n_threads is 100000");
    options.struct_size = 4;
    expect_refused(NULL, &options, GPUSERVE_E_INVALID, "struct_size");
    gpuserve_compute_close(NULL);
    cr_expect_null(gpuserve_compute_device(NULL));
}

static gpuserve_status multiply(gpuserve_compute *compute, int64_t side, float *c,
                                gpuserve_error *error)
{
    gpuserve_matmul_job job = GPUSERVE_MATMUL_JOB_INIT;
    float *a = random_floats((size_t)(side * side), 4);
    gpuserve_status status;

    job.m = job.n = job.k = side;
    job.a = job.b = a;
    job.c = c;
    job.c_capacity = (size_t)(side * side);
    status = gpuserve_matmul(compute, &job, NULL, error);
    free(a);
    return status;
}

#define SIDE 40

static void *multiply_often(void *compute)
{
    static float want[SIDE * SIDE];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int first = 1;
    float c[SIDE * SIDE];

    for (int i = 0; i < 20; i++) {
        cr_assert_eq(multiply(compute, SIDE, c, NULL), GPUSERVE_OK);
        pthread_mutex_lock(&lock);
        if (first)
            memcpy(want, c, sizeof(want));
        first = 0;
        cr_expect_arr_eq(c, want, sizeof(want));
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

Test(compute, threads_may_share_a_handle)
{
    gpuserve_compute *compute = open_compute("cpu");
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, multiply_often, compute), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    gpuserve_compute_close(&compute);
}

Test(compute, a_child_is_refused)
{
    gpuserve_compute *compute = open_compute("cpu");
    float c[SIDE * SIDE];
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        const gpuserve_status refused = multiply(compute, SIDE, c, NULL);

        gpuserve_compute_close(&compute);
        _exit(refused == GPUSERVE_E_FORKED && !compute ? 7 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    cr_expect_eq(multiply(compute, SIDE, c, NULL), GPUSERVE_OK);
    gpuserve_compute_close(&compute);
}

/* Device memory grows to the largest call, is reused, and is released at close. */
Test(compute, memory_of_the_device)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_compute *compute = open_compute("cuda:0");
    float *c = random_floats(512 * 512, 1), untouched = c[7];
    struct gsv_emu_counters before, after;

    cr_expect_eq(multiply(compute, SIDE, c, &error), GPUSERVE_OK, "%s", error.message);
    gsv_emu_get_counters(&before);
    c[7] = untouched;
    cr_expect_eq(multiply(compute, SIDE / 2, c + 8, &error), GPUSERVE_OK, "%s", error.message);
    gsv_emu_get_counters(&after);
    cr_expect_eq(after.allocations, before.allocations);
    gsv_emu_set_memory(after.live_bytes + 1000);
    cr_expect_eq(multiply(compute, 512, c, &error), GPUSERVE_E_NOMEM, "%s", error.message);
    cr_expect(strstr(error.message, "MB requested"), "%s", error.message);
    cr_expect_eq(c[7], untouched);
    gsv_emu_set_memory(0);
    cr_expect_eq(multiply(compute, SIDE, c, &error), GPUSERVE_OK, "%s", error.message);
    gpuserve_compute_close(&compute);
    gsv_emu_get_counters(&after);
    cr_expect_eq(after.live_allocations, 0);
    cr_expect_eq(after.live_objects, 0);
    free(c);
}

/* Each call fails in turn: an error with a message, C unchanged, no leak. */
Test(compute, every_failing_call_is_told)
{
    float c[SIDE * SIDE];
    int n_failed = 0;

    for (uint64_t n = 1;; n++) {
        gpuserve_compute *compute = open_compute("cuda:0");
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_status status;
        struct gsv_emu_counters counters;

        memset(c, 0x55, sizeof(c));
        gsv_emu_fail_call(n, 2 /* 2 = cudaErrorMemoryAllocation, which is transient */);
        status = multiply(compute, SIDE, c, &error);
        if (!gsv_emu_failed_call()) {
            cr_expect_eq(status, GPUSERVE_OK, "%s", error.message);
            gsv_emu_fail_call(0, 0);
            gpuserve_compute_close(&compute);
            break;
        }
        n_failed++;
        if (status != GPUSERVE_OK) {
            cr_expect(error.message[0], "call %d says nothing", (int)n);
            for (size_t i = 0; i < SIDE * SIDE; i++)
                cr_assert_eq(((unsigned char *)c)[4 * i], 0x55, "call %d (%s) left a part of C",
                             (int)n, gsv_emu_failed_call());
        }
        gsv_emu_fail_call(0, 0);
        gpuserve_compute_close(&compute);
        gsv_emu_get_counters(&counters);
        cr_expect_eq(counters.live_allocations, 0, "call %d (%s)", (int)n, gsv_emu_failed_call());
        cr_expect_eq(counters.live_objects, 0, "call %d (%s)", (int)n, gsv_emu_failed_call());
        gsv_emu_reset();
    }
    cr_expect_gt(n_failed, 10);
}
