/*
 * test_replicas.c - a model on all emulated CUDA devices continues without a lost one.
 */
#include "tests/cudaemu/emu.h"
#include "tests/model/support.h"
#include "tests/runtime/models/lost_place.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The callback runs on its own thread. */
static void wait_until_told(struct place *place, int n)
{
    const time_t begin = time(NULL);
    int calls = 0;

    while (calls < n) {
        pthread_mutex_lock(&place->told.lock);
        calls = place->told.n;
        pthread_mutex_unlock(&place->told.lock);
        cr_assert_lt(time(NULL) - begin, 300, "told %d times, not %d", calls, n);
        usleep(1000);
    }
}

/* Loses, of two devices, the one that computes next. */
static void lose_one(struct place *place, uint32_t policy)
{
    float vector[1024];

    gsv_emu_set_devices(2, 0);
    make_place(place);
    cr_assert_eq(open_on(place, "cuda:*", policy), GPUSERVE_OK, "%s", place->error.message);
    expect_in_info(place, "\"device\": \"cuda:0,cuda:1\"");
    cr_assert_eq(embed(place, vector), GPUSERVE_OK, "%s", place->error.message);
    gsv_emu_fail_call(2, 719);
}

/* One replica is out; the model has been serving all the time. */
static void expect_some_left(struct place *place, const float *right)
{
    cr_expect_eq(gpuserve_model_ready(place->model, &place->error), GPUSERVE_OK, "%s",
                 place->error.message);
    for (int i = 0; i < 4; i++)
        expect_right(place, right);
    wait_until_told(place, 1);
    cr_expect_eq(place->told.status[0], GPUSERVE_OK);
    cr_expect_eq(strncmp(place->told.device[0], "cuda:", 5), 0, "%s", place->told.device[0]);
    cr_expect_neq(strstr(place->told.cause, "719"), NULL, "%s", place->told.cause);
    expect_in_info(place, "\"ready\": true");
    expect_in_info(place, "\"lost\": true");
    expect_in_info(place, "\"lost\": false");
    expect_in_metrics(place, "gpuserve_devices_lost_total 1\n");
    expect_in_metrics(place, "gpuserve_replicas_lost 1\n");
    expect_in_metrics(place, "gpuserve_models_moved_total 0\n");
    expect_in_metrics(place, "gpuserve_models_lost 0\n");
}

Test(replicas, work_of_a_lost_one_is_done_by_the_other)
{
    const float *right = right_vector();
    struct place place;
    gpuserve_result result = GPUSERVE_RESULT_INIT;
    gpuserve_job options = GPUSERVE_JOB_INIT;
    const char *const texts[] = { lost_text };
    float vector[1024];

    lose_one(&place, GPUSERVE_LOST_GPU_OR_CPU);
    options.result = &result;
    cr_assert_eq(gpuserve_embed(place.model, texts, 1, vector, gpuserve_model_dim(place.model),
                                &options, &place.error),
                 GPUSERVE_OK, "%s", place.error.message);
    expect_some_left(&place, right);
    cr_expect_str_eq(result.device, place.told.device[0]);
    expect_in_metrics(&place, "gpuserve_batches_rerun_total 1\n");
    close_place(&place);
    cr_expect_eq(place.told.n, 1);
}

Test(replicas, work_of_a_lost_one_fails_with_its_cause_by_default)
{
    const float *right = right_vector();
    struct place place;
    float vector[1024];

    lose_one(&place, GPUSERVE_LOST_FAIL);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    cr_expect_neq(strstr(place.error.message, "719"), NULL, "%s", place.error.message);
    expect_some_left(&place, right);
    expect_in_metrics(&place, "gpuserve_batches_rerun_total 0\n");
    close_place(&place);
}

Test(replicas, when_the_last_is_lost_the_policy_begins)
{
    const float *right = right_vector();
    struct place place;
    float vector[1024];

    lose_one(&place, GPUSERVE_LOST_CPU);
    cr_expect_eq(embed(&place, vector), GPUSERVE_OK, "%s", place.error.message);
    expect_some_left(&place, right);
    gsv_emu_fail_call(2, 700);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    cr_expect_neq(strstr(place.error.message, "700"), NULL, "%s", place.error.message);
    wait_while_moving(&place);
    expect_right(&place, right);
    expect_in_info(&place, "\"device\": \"cpu\"");
    expect_in_metrics(&place, "gpuserve_replicas_lost 0\n");
    expect_in_metrics(&place, "gpuserve_models_moved_total 1\n");
    wait_until_told(&place, 3);
    close_place(&place);
    cr_expect_eq(place.told.status[1], GPUSERVE_E_BUSY);
    cr_expect_str_eq(place.told.device[2], "cpu");
}

Test(replicas, when_the_last_is_lost_every_request_fails_by_default)
{
    struct place place;
    float vector[1024];

    lose_one(&place, GPUSERVE_LOST_FAIL);
    cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
    cr_expect_eq(embed(&place, vector), GPUSERVE_OK, "%s", place.error.message);
    gsv_emu_fail_call(2, 700);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(embed(&place, vector), GPUSERVE_E_DEVICE);
        cr_expect_neq(strstr(place.error.message, "700"), NULL, "%s", place.error.message);
    }
    wait_while_moving(&place);
    cr_expect_eq(gpuserve_model_ready(place.model, NULL), GPUSERVE_E_DEVICE);
    expect_in_metrics(&place, "gpuserve_models_lost 1\n");
    close_place(&place);
}

/* Neither an offloaded host copy nor the files are loaded to the lost device again. */
Test(replicas, a_suspended_model_comes_back_without_the_lost_one)
{
    const float *right = right_vector();
    struct place place, after;
    float vector[1024];

    lose_one(&place, GPUSERVE_LOST_GPU);
    cr_expect_eq(embed(&place, vector), GPUSERVE_OK, "%s", place.error.message);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(gpuserve_model_suspend(place.model, &place.error), GPUSERVE_OK, "%s",
                     place.error.message);
        expect_right(&place, right);
    }
    expect_some_left(&place, right);
    cr_assert_eq(gpuserve_model_swap(place.model, NULL, NULL, NULL, NULL, &place.error),
                 GPUSERVE_OK, "%s", place.error.message);
    expect_right(&place, right);
    make_place(&after);
    cr_expect_eq(open_on(&after, "cuda:*", GPUSERVE_LOST_FAIL), GPUSERVE_E_DEVICE);
    cr_assert_eq(open_on(&after, "cuda:*", GPUSERVE_LOST_GPU), GPUSERVE_OK, "%s",
                 after.error.message);
    expect_right(&after, right);
    expect_in_info(&after, "\"device\": \"cuda:");
    close_place(&after);
    close_place(&place);
}

/* The bytes that the budget counts for the only model. */
static uint64_t reserved_bytes(const struct place *place)
{
    static const char key[] = "\"bytes\": ";
    char json[8192];
    const char *at;

    cr_assert_eq(gpuserve_context_models(place->context, json, sizeof(json), NULL, NULL),
                 GPUSERVE_OK);
    at = strstr(json, key);
    cr_assert_not_null(at, "%s", json);
    return strtoull(at + strlen(key), NULL, 10);
}

static gpuserve_status open_beside(const struct place *place, gpuserve_model **model)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = strcmp(place->told.device[0], "cuda:0") == 0 ? "cuda:0" : "cuda:1";
    options.max_batch_tokens = 256;
    return gpuserve_model_open(model, place->context, test_data("models/st-newer"), &options, NULL);
}

Test(replicas, bytes_of_a_lost_one_go_back_to_the_budget)
{
    const float *right = right_vector();
    struct place place;
    gpuserve_stats both = { .struct_size = sizeof(both) }, one = both;
    gpuserve_model *other = NULL;
    uint64_t before, after;
    float vector[1024];

    lose_one(&place, GPUSERVE_LOST_GPU);
    before = reserved_bytes(&place);
    cr_assert_eq(gpuserve_context_stats(place.context, &both, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_context_set_budget(place.context, NULL, before, NULL), GPUSERVE_OK);
    cr_expect_eq(open_beside(&place, &other), GPUSERVE_E_TOO_LARGE);
    cr_expect_eq(embed(&place, vector), GPUSERVE_OK, "%s", place.error.message);
    expect_some_left(&place, right);
    after = reserved_bytes(&place);
    cr_assert_eq(gpuserve_context_stats(place.context, &one, NULL), GPUSERVE_OK);
    cr_expect_eq(before - after,
                 (both.weights_bytes + both.workspace_bytes + both.stream_bytes) / 2);
    cr_expect_eq(one.weights_bytes, both.weights_bytes / 2);
    cr_expect_eq(one.workspace_bytes, both.workspace_bytes / 2);
    cr_expect_eq(one.stream_bytes, both.stream_bytes / 2);
    cr_assert_eq(gpuserve_model_suspend(place.model, NULL), GPUSERVE_OK);
    expect_right(&place, right);
    cr_expect_eq(reserved_bytes(&place), after, "it is not reserved again");
    cr_assert_eq(gpuserve_context_set_budget(place.context, NULL, 2 * after, NULL), GPUSERVE_OK);
    cr_expect_eq(open_beside(&place, &other), GPUSERVE_OK);
    gpuserve_model_close(&other);
    close_place(&place);
}

/* ------------------------------------------------------------------------------- many callers */

enum { N_CALLERS = 6, N_CALLS = 6 };

struct caller {
    struct place *place;
    const float *right;
    int n_right;
    gpuserve_error error;
};

/* Different texts, so that each is computed. */
static void *call_often(void *argument)
{
    struct caller *caller = argument;
    const size_t dim = gpuserve_model_dim(caller->place->model);
    gpuserve_job options = GPUSERVE_JOB_INIT;
    const char *const texts[] = { lost_text };

    options.cache = GPUSERVE_CACHE_OFF;
    for (int i = 0; i < N_CALLS; i++) {
        float vector[1024], worst = 0;

        if (gpuserve_embed(caller->place->model, texts, 1, vector, dim, &options, &caller->error) !=
            GPUSERVE_OK)
            break;
        for (size_t j = 0; j < dim; j++) {
            const float d = vector[j] - caller->right[j];

            worst = d > worst ? d : -d > worst ? -d : worst;
        }
        caller->n_right += worst < 2e-2f;
    }
    return NULL;
}

Test(replicas, no_caller_notices_the_loss_of_one_of_three, .timeout = 120)
{
    const float *right = right_vector();
    struct caller callers[N_CALLERS];
    pthread_t threads[N_CALLERS];
    struct place place;

    gsv_emu_set_devices(3, 0);
    make_place(&place);
    cr_assert_eq(open_on(&place, "cuda:*", GPUSERVE_LOST_GPU), GPUSERVE_OK);
    gsv_emu_fail_call(80, 719);
    for (int i = 0; i < N_CALLERS; i++) {
        callers[i] =
            (struct caller){ .place = &place, .right = right, .error = GPUSERVE_ERROR_INIT };
        cr_assert_eq(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < N_CALLERS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(callers[i].n_right, N_CALLS, "%d right: %s", callers[i].n_right,
                     callers[i].error.message);
    }
    expect_some_left(&place, right);
    close_place(&place);
}
