/*
 * test_failover.c - failover of a model whose device is lost, on the emulated CUDA devices.
 */
#include "tests/base/sanitized.h"
#include "tests/cudaemu/emu.h"
#include "tests/model/support.h"
#include "tests/runtime/models/lost_place.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* For each error code after which a context is lost: the failed request's message has the code, and
 * the next answers come from the CPU. */
static void move_with(const int *codes, int n)
{
    const float *right = right_vector();

    gsv_emu_set_devices(n, 0);
    for (int i = 0; i < n; i++) {
        struct place place;
        char device[16], number[32];
        float vector[1024];

        make_place(&place);
        snprintf(device, sizeof(device), "cuda:%d", i);
        snprintf(number, sizeof(number), "CUDA error %d ", codes[i]);
        cr_assert_eq(open_on(&place, device, GPUSERVE_LOST_CPU), GPUSERVE_OK, "%s",
                     place.error.message);
        expect_right(&place, right);
        cr_expect_eq(gpuserve_model_ready(place.model, NULL), GPUSERVE_OK);
        gsv_emu_fail_call(2, codes[i]);
        cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
        cr_expect_neq(strstr(place.error.message, number), NULL, "%s", place.error.message);
        cr_expect(place.error.hint[0], "%s", number);
        wait_while_moving(&place);
        cr_expect_eq(gpuserve_model_ready(place.model, &place.error), GPUSERVE_OK, "%s",
                     place.error.message);
        expect_right(&place, right);
        expect_in_info(&place, "\"device\": \"cpu\"");
        expect_in_info(&place, "moved from cuda:");
        expect_in_info(&place, "\"ready\": true");
        expect_in_info(&place, number);
        expect_in_metrics(&place, "gpuserve_devices_lost_total 1\n");
        expect_in_metrics(&place, "gpuserve_models_moved_total 1\n");
        expect_in_metrics(&place, "gpuserve_models_lost 0\n");
        close_place(&place);
        cr_expect_eq(place.told.n, 2);
        cr_expect_eq(place.told.status[0], GPUSERVE_E_BUSY);
        cr_expect_eq(place.told.status[1], GPUSERVE_OK);
        cr_expect_str_eq(place.told.device[1], "cpu");
        cr_expect_neq(strstr(place.told.cause, number), NULL, "%s", place.told.cause);
    }
}

Test(lost, moves_to_the_cpu_after_each_sticky_error)
{
    static const int codes[] = { 214, 220, 226, 700, 702, 709, 710, 714 };

    move_with(codes, FOR_RACES ? 2 : 8);
}

Test(lost, moves_to_the_cpu_after_each_other_sticky_error)
{
    static const int codes[] = { 715, 716, 717, 718, 719, 721, 999 };

    move_with(codes, FOR_RACES ? 1 : 7);
}

Test(lost, fails_with_the_cause_by_default)
{
    const float *right = right_vector();
    struct place lost, beside, other;
    float vector[1024];

    gsv_emu_set_devices(2, 0);
    make_place(&lost);
    make_place(&beside);
    make_place(&other);
    cr_assert_eq(open_on(&lost, "cuda:0", GPUSERVE_LOST_FAIL), GPUSERVE_OK);
    cr_assert_eq(open_on(&beside, "cuda:0", GPUSERVE_LOST_FAIL), GPUSERVE_OK);
    cr_assert_eq(open_on(&other, "cuda:1", GPUSERVE_LOST_FAIL), GPUSERVE_OK);
    gsv_emu_fail_call(1, 719);
    cr_expect_eq(embed(&lost, vector), GPUSERVE_E_DEVICE);
    cr_expect_eq(gpuserve_model_ready(beside.model, &beside.error), GPUSERVE_E_DEVICE);
    cr_expect_neq(strstr(beside.error.message, "719"), NULL, "%s", beside.error.message);
    cr_expect_eq(gpuserve_model_ready(lost.model, &lost.error), GPUSERVE_E_DEVICE);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(embed(&lost, vector), GPUSERVE_E_DEVICE);
        cr_expect_eq(embed(&beside, vector), GPUSERVE_E_DEVICE);
        cr_expect_neq(strstr(lost.error.message, "719"), NULL, "%s", lost.error.message);
        cr_expect(lost.error.hint[0]);
    }
    expect_in_info(&lost, "\"ready\": false");
    expect_in_info(&lost, "\"on_device_lost\": \"fail\"");
    expect_in_metrics(&lost, "gpuserve_models_lost 1\n");
    cr_expect_eq(gpuserve_model_ready(other.model, NULL), GPUSERVE_OK);
    expect_right(&other, right);
    gpuserve_model_close(&lost.model);
    expect_in_metrics(&lost, "gpuserve_models_lost 0\n");
    close_place(&lost);
    close_place(&beside);
    close_place(&other);
    cr_expect_eq(lost.told.n, 1);
    cr_expect_eq(lost.told.status[0], GPUSERVE_E_DEVICE);
}

/* The model loaded elsewhere must be the same model. */
Test(lost, files_that_have_changed_are_not_taken_for_the_old_ones)
{
    char folder[] = "/tmp/gpuserve-lost-XXXXXX", path[64], command[600];
    struct place place;
    float vector[1024];
    FILE *file;

    cr_assert_not_null(mkdtemp(folder));
    snprintf(command, sizeof(command), "cp -r '%s/.' %s", test_data("models/st-newer"), folder);
    cr_assert_eq(system(command), 0);
    gsv_emu_set_devices(1, 0);
    make_place(&place);
    cr_assert_eq(open_folder_on(&place, folder, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_OK);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    file = fopen(path, "r+b");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, -20000, SEEK_END), 0);
    for (int i = 0; i < 10000; i++)
        cr_assert_eq(fputc(i % 4 == 3 ? 0x3E : i, file), i % 4 == 3 ? 0x3E : i & 0xFF);
    cr_assert_eq(fclose(file), 0);
    gsv_emu_fail_call(1, 700);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    wait_while_moving(&place);
    cr_expect_neq(gpuserve_model_ready(place.model, &place.error), GPUSERVE_OK);
    cr_expect_neq(strstr(place.told.cause, "the files changed since the model was opened"), NULL,
                  "%s", place.told.cause);
    close_place(&place);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

Test(lost, moves_to_another_gpu_and_fails_when_there_is_none_left)
{
    const float *right = right_vector();
    struct place place;
    float vector[1024];

    gsv_emu_set_devices(2, 0);
    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_GPU), GPUSERVE_OK);
    gsv_emu_fail_call(2, 700);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    wait_while_moving(&place);
    expect_right(&place, right);
    expect_in_info(&place, "\"device\": \"cuda:1\"");
    gsv_emu_fail_call(2, 719);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    wait_while_moving(&place);
    cr_expect_eq(gpuserve_model_ready(place.model, &place.error), GPUSERVE_E_DEVICE);
    cr_expect_neq(strstr(place.error.message, "719"), NULL, "%s", place.error.message);
    cr_expect_neq(strstr(place.error.message, "no other GPU"), NULL, "%s", place.error.message);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    expect_in_metrics(&place, "gpuserve_models_lost 1\n");
    expect_in_metrics(&place, "gpuserve_models 1\n");
    expect_in_metrics(&place, "gpuserve_models_suspended 1\n");
    close_place(&place);
    cr_expect_eq(place.told.n, 4);
    cr_expect_str_eq(place.told.device[1], "cuda:1");
    cr_expect_eq(place.told.status[3], GPUSERVE_E_DEVICE);
}

Test(lost, moves_to_the_cpu_when_there_is_no_other_gpu)
{
    const float *right = right_vector();
    struct place place;
    float vector[1024];

    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_GPU_OR_CPU), GPUSERVE_OK);
    gsv_emu_fail_call(2, 700);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    wait_while_moving(&place);
    expect_right(&place, right);
    expect_in_info(&place, "\"device\": \"cpu\"");
    close_place(&place);
}

/* Out of memory does not lose the device. */
Test(lost, an_error_that_does_not_stick_moves_nothing)
{
    const float *right = right_vector();
    struct place place;
    float vector[1024];

    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_OK);
    gsv_emu_fail_call(2, 2);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_NOMEM, "%s", place.error.message);
    cr_expect_eq(gpuserve_model_ready(place.model, NULL), GPUSERVE_OK);
    expect_right(&place, right);
    expect_in_info(&place, "\"device\": \"cuda:0\"");
    close_place(&place);
    cr_expect_eq(place.told.n, 0);
}

/* Whichever call of a batch fails, the next batches are computed. Each time with a new model, whose
 * batch is not a graph yet. */
Test(lost, an_error_that_does_not_stick_leaves_nothing_behind)
{
    const float *right = right_vector();
    struct place place;
    float vector[1024];
    int n_failed = 0;

    for (uint64_t n = 1; n <= 8; n++) {
        make_place(&place);
        cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_FAIL), GPUSERVE_OK, "%s",
                     place.error.message);
        gsv_emu_fail_call(n, 2);
        if (embed(&place, vector) != GPUSERVE_OK) {
            n_failed++;
            cr_expect_eq(place.error.status, GPUSERVE_E_NOMEM);
            cr_expect_neq(strstr(place.error.message, "CUDA error 2 "), NULL, "%s in %s",
                          place.error.message, gsv_emu_failed_call());
        }
        for (int i = 0; i < 3; i++)
            expect_right(&place, right);
        close_place(&place);
    }
    cr_expect_geq(n_failed, 4);
}

Test(lost, each_call_of_a_batch_tells_what_failed)
{
    struct place place;
    float vector[1024];

    gsv_emu_set_devices(8, 0);
    for (int i = 0; i < 8; i++) {
        char device[16];

        make_place(&place);
        snprintf(device, sizeof(device), "cuda:%d", i);
        cr_assert_eq(open_on(&place, device, GPUSERVE_LOST_FAIL), GPUSERVE_OK, "%s",
                     place.error.message);
        gsv_emu_fail_call((uint64_t)i + 1, 700);
        cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
        cr_expect_neq(strstr(place.error.message, "CUDA error 700 "), NULL, "%s in %s",
                      place.error.message, gsv_emu_failed_call());
        close_place(&place);
    }
}

/* ------------------------------------------------------------------------------------- hangs */

/* Timeout, from the device's opening: enough for a slow but working device on a busy machine. */
#ifdef __SANITIZE_THREAD__
#define SLOW_MS "20000"
#else
#define SLOW_MS "8000"
#endif

Test(lost, a_device_that_hangs_is_left)
{
    const float *right = right_vector();
    struct place place;
    float vector[1024];

    setenv("GPUSERVE_CUDA_TIMEOUT_MS", SLOW_MS, 1);
    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_OK);
    expect_right(&place, right);
    gsv_emu_hang(1);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    cr_expect_neq(strstr(place.error.message, "did not answer within " SLOW_MS " ms"), NULL, "%s",
                  place.error.message);
    wait_while_moving(&place);
    expect_right(&place, right);
    close_place(&place);
}

/* 1: a kernel does not end; 2: no driver call returns. */
static void hang_at_open(int kind)
{
    const float *right = right_vector();
    struct place place;

    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:0", 0), GPUSERVE_OK);
    gpuserve_model_close(&place.model);
    setenv("GPUSERVE_CUDA_TIMEOUT_MS", "300", 1);
    gsv_emu_hang(kind);
    cr_expect_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_FAIL), GPUSERVE_E_DEVICE);
    cr_expect_null(place.model);
    cr_expect_neq(strstr(place.error.message, "did not answer within 300 ms"), NULL, "%s",
                  place.error.message);
    cr_expect(strstr(place.error.hint, "GPUSERVE_CUDA_TIMEOUT_MS"), "%s", place.error.hint);
    if (kind == 1) {
        cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_OK, "%s",
                     place.error.message);
        expect_right(&place, right);
        expect_in_info(&place, "moved from cuda:0");
    }
    close_place(&place);
}

Test(lost, a_hang_at_load_time_is_ended)
{
    hang_at_open(1);
}

Test(lost, a_driver_that_does_not_come_back_is_left)
{
    hang_at_open(2);
}

/* --------------------------------------------------------------------------------- load time */

/* The device is lost in the middle of a load: the model still opens, on the CPU. */
Test(lost, a_loss_at_load_time_moves_the_model)
{
    const float *right = right_vector();
    struct gsv_emu_counters before, after;
    struct place place;
    uint64_t calls;

    gsv_emu_set_devices(8, 0);
    make_place(&place);
    gsv_emu_get_counters(&before);
    cr_assert_eq(open_on(&place, "cuda:7", 0), GPUSERVE_OK);
    gsv_emu_get_counters(&after);
    close_place(&place);
    calls = after.calls - before.calls;
    for (uint64_t i = 0; i < 7; i++) {
        char device[16];

        make_place(&place);
        snprintf(device, sizeof(device), "cuda:%d", (int)i);
        gsv_emu_fail_call(calls * (2 * i + 1) / 15 + 2, i % 2 ? 700 : 214);
        cr_assert_eq(open_on(&place, device, GPUSERVE_LOST_CPU), GPUSERVE_OK, "%s: %s",
                     gsv_emu_failed_call() ? gsv_emu_failed_call() : "", place.error.message);
        cr_expect_not_null(gsv_emu_failed_call());
        expect_right(&place, right);
        close_place(&place);
    }
}

/* ----------------------------------------------------------------------------- many callers */

struct caller {
    struct place *place;
    const float *right;
    int n_right, n_failed, n_wrong;
};

/* The second callback; the first reports the loss. */
static bool has_moved(struct place *place)
{
    bool has;

    pthread_mutex_lock(&place->told.lock);
    has = place->told.n > 1;
    pthread_mutex_unlock(&place->told.lock);
    return has;
}

static bool is_right(const float *vector, const float *right, size_t dim)
{
    for (size_t i = 0; i < dim; i++)
        if (!(fabsf(vector[i] - right[i]) < 2e-2f))
            return false;
    return true;
}

/* Calls until the model has moved, and some times more: none of the later calls may fail. */
static void *call_often(void *argument)
{
    struct caller *caller = argument;
    const size_t dim = gpuserve_model_dim(caller->place->model);
    const char *const texts[] = { lost_text };

    for (int n_after = 0; n_after < 5;) {
        const bool moved = has_moved(caller->place);
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        float vector[1024];
        const gpuserve_status st =
            gpuserve_embed(caller->place->model, texts, 1, vector, dim, NULL, &error);

        n_after += moved;
        if (st == GPUSERVE_OK && is_right(vector, caller->right, dim)) {
            caller->n_right++;
        } else if (st == GPUSERVE_E_DEVICE && !moved) {
            caller->n_failed++;
            usleep(1000); /* an immediate retry would starve the moving thread of the core */
        } else {
            caller->n_wrong++;
        }
    }
    return NULL;
}

/* Concurrent callers get a right answer or the cause of the failure, and none blocks forever. */
Test(lost, callers_get_the_right_answer_or_the_cause, .timeout = 120)
{
    enum { N_CALLERS = 6 };
    const float *right = right_vector();
    struct caller callers[N_CALLERS];
    pthread_t threads[N_CALLERS];
    struct place place;
    int n_failed = 0;

    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_OK);
    gsv_emu_fail_call(150, 719);
    for (int i = 0; i < N_CALLERS; i++) {
        callers[i] = (struct caller){ &place, right, 0, 0, 0 };
        cr_assert_eq(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < N_CALLERS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(callers[i].n_wrong, 0);
        cr_expect_geq(callers[i].n_right, 5);
        n_failed += callers[i].n_failed;
    }
    cr_expect_gt(n_failed, 0, "no request failed");
    cr_expect_eq(place.told.status[1], GPUSERVE_OK);
    expect_in_info(&place, "\"device\": \"cpu\"");
    close_place(&place);
}

Test(lost, a_model_closes_while_it_moves)
{
    struct place place;
    float vector[1024];

    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:0", GPUSERVE_LOST_CPU), GPUSERVE_OK);
    gsv_emu_fail_call(2, 719);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    close_place(&place);
}

/* ------------------------------------------------------------------------------------- closing */

static atomic_int n_refused_locks;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
/* Visible to shared libraries: the linker requires it with a sanitizer. */
__attribute__((visibility("default"))) int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

/* Replaces the library's function (--wrap): counts locks of a destroyed mutex. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    const int failed = __real_pthread_mutex_lock(mutex);

    if (failed)
        atomic_fetch_add(&n_refused_locks, 1);
    return failed;
}

static void *close_model(void *argument)
{
    struct place *place = argument;

    gpuserve_model_close(&place->model);
    return NULL;
}

/* A hung batch fails while its model is being closed, together with the requests queued behind it.
 * Each records the loss in the handle's memory. */
static void close_amid(const char *device, uint32_t policy)
{
    enum { N = 3 };
    static const char *const texts[N] = { "hello world", "hello", "world" };
    float vectors[N][1024];
    gpuserve_request *requests[N];
    struct place place;
    pthread_t closer;

    make_place(&place);
    cr_assert_eq(open_on(&place, device, policy), GPUSERVE_OK, "%s", place.error.message);
    cr_assert_eq(embed(&place, vectors[0]), GPUSERVE_OK, "%s", place.error.message);
    gsv_emu_hang(1);
    for (int i = 0; i < N; i++) {
        gpuserve_job job = GPUSERVE_JOB_INIT;

        job.n_items = 1;
        job.texts = &texts[i];
        job.output = vectors[i];
        job.output_capacity = 1024;
        cr_assert_eq(gpuserve_submit(&requests[i], place.model, &job, NULL, NULL, &place.error),
                     GPUSERVE_OK, "%s", place.error.message);
    }
    usleep(20000); /* it begins */
    cr_assert_eq(pthread_create(&closer, NULL, close_model, &place), 0);
    usleep(100000); /* the handle's thread exits */
    gsv_emu_fail_call(1, 719);
    gsv_emu_hang(0);
    pthread_join(closer, NULL);
    for (int i = 0; i < N; i++) {
        cr_expect_eq(gpuserve_wait(requests[i], -1, &place.error), GPUSERVE_E_DEVICE, "%s, %d: %s",
                     device, i, place.error.message);
        gpuserve_request_free(&requests[i]);
    }
    expect_in_metrics(&place, "gpuserve_devices_lost_total 1\n");
    expect_in_metrics(&place, "gpuserve_models_lost 0\n");
    close_place(&place);
}

Test(lost, a_model_closes_while_its_batches_fail, .timeout = 60)
{
    gsv_emu_set_devices(3, 0);
    close_amid("cuda:0", GPUSERVE_LOST_FAIL);
    close_amid("cuda:1", GPUSERVE_LOST_CPU);
    close_amid("cuda:2", GPUSERVE_LOST_GPU_OR_CPU);
    cr_expect_eq(atomic_load(&n_refused_locks), 0, "a lock was destroyed before its last use");
}

Test(lost, a_wrong_policy_is_refused)
{
    struct place place;

    make_place(&place);
    cr_expect_eq(open_on(&place, "cpu", 4), GPUSERVE_E_INVALID);
    cr_expect_neq(strstr(place.error.message, "on_device_lost is 4, outside 0 to 3"), NULL, "%s",
                  place.error.message);
    cr_expect_eq(gpuserve_model_ready(NULL, &place.error), GPUSERVE_E_INVALID);
    close_place(&place);
}
