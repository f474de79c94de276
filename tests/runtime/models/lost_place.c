/*
 * lost_place.c - a context with the emulated CUDA devices and a model on them, for device loss
 * tests.
 */
#include "tests/runtime/models/lost_place.h"

#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char lost_text[] = "hello world";

static void tell(void *user, gpuserve_status status, const char *device,
                 const gpuserve_error *cause)
{
    struct told *told = user;

    pthread_mutex_lock(&told->lock);
    cr_assert_lt(told->n, MAX_CALLS);
    told->status[told->n] = status;
    snprintf(told->device[told->n++], sizeof(told->device[0]), "%s", device ? device : "");
    snprintf(told->cause, sizeof(told->cause), "%s", cause->message);
    pthread_mutex_unlock(&told->lock);
}

void make_place(struct place *place)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;

    memset(place, 0, sizeof(*place));
    pthread_mutex_init(&place->told.lock, NULL);
    place->error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    options.plugin_dir = EMULATED_PLUGIN;
    options.n_threads = 2;
    cr_assert_eq(gpuserve_context_create(&place->context, &options, NULL), GPUSERVE_OK);
}

gpuserve_status open_on(struct place *place, const char *device, uint32_t policy)
{
    char path[512];

    snprintf(path, sizeof(path), "%s", test_data("models/st-newer"));
    return open_folder_on(place, path, device, policy);
}

gpuserve_status open_folder_on(struct place *place, const char *path, const char *device,
                               uint32_t policy)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = device;
    options.max_batch_tokens = 256;
    options.on_device_lost = policy;
    options.lost = tell;
    options.lost_user = &place->told;
    return gpuserve_model_open(&place->model, place->context, path, &options, &place->error);
}

void close_place(struct place *place)
{
    gpuserve_model_close(&place->model);
    gpuserve_context_unref(&place->context);
}

gpuserve_status embed(struct place *place, float *vector)
{
    const char *const texts[] = { lost_text };

    return gpuserve_embed(place->model, texts, 1, vector, gpuserve_model_dim(place->model), NULL,
                          &place->error);
}

const float *right_vector(void)
{
    static float vector[1024];
    struct place place;

    make_place(&place);
    cr_assert_eq(open_on(&place, "cpu", 0), GPUSERVE_OK, "%s", place.error.message);
    cr_assert_eq(embed(&place, vector), GPUSERVE_OK, "%s", place.error.message);
    close_place(&place);
    return vector;
}

void expect_right(struct place *place, const float *right)
{
    float vector[1024];
    const size_t dim = gpuserve_model_dim(place->model);

    cr_assert_eq(embed(place, vector), GPUSERVE_OK, "%s", place->error.message);
    for (size_t i = 0; i < dim; i++)
        cr_assert_float_eq(vector[i], right[i], 2e-2f);
}

void wait_while_moving(struct place *place)
{
    const time_t begin = time(NULL);

    while (gpuserve_model_ready(place->model, &place->error) == GPUSERVE_E_BUSY) {
        cr_expect_gt(place->error.retry_after_ms, 0);
        cr_assert_lt(time(NULL) - begin, 300, "still moving: %s", place->error.message);
        usleep(1000);
    }
}

void expect_in_info(struct place *place, const char *part)
{
    char info[16384];

    cr_assert_eq(gpuserve_model_info(place->model, info, sizeof(info), NULL, NULL), GPUSERVE_OK);
    cr_expect_neq(strstr(info, part), NULL, "no %s in %s", part, info);
}

void expect_in_metrics(struct place *place, const char *part)
{
    const time_t begin = time(NULL);
    char metrics[65536];

    do {
        usleep(1000);
        cr_assert_eq(gpuserve_context_metrics(place->context, metrics, sizeof(metrics), NULL, NULL),
                     GPUSERVE_OK);
    } while (!strstr(metrics, part) && time(NULL) - begin < 120);
    cr_expect_neq(strstr(metrics, part), NULL, "no %s in %s", part, metrics);
}
