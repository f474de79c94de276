/*
 * test_load_queue.c - load and unload requests of clients: merged, ordered, cancelled, limited.
 *
 * Models are fakes: a load blocks until the test releases it, and is counted.
 */
#include "lib/base/error.h"
#include "lib/http/inference/inference_call.h"
#include "lib/http/inference/load_queue.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/exchange.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held;
    int n_running, n_loads, n_unloads, n_checks, max_running;
    int n_completed;
    char order[256];
} world = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, 0, 0, 0, 0, 0, "" };

static void work_on(int *counter, char kind)
{
    const size_t end = strlen(world.order);

    pthread_mutex_lock(&world.lock);
    ++*counter;
    if (end < sizeof(world.order) - 1)
        world.order[end] = kind;
    if (++world.n_running > world.max_running)
        world.max_running = world.n_running;
    pthread_cond_broadcast(&world.changed);
    while (world.is_held)
        pthread_cond_wait(&world.changed, &world.lock);
    world.n_running--;
    pthread_mutex_unlock(&world.lock);
}

gpuserve_status gsv_models_load(struct gsv_models *models, struct gsv_entry *entry, bool instead,
                                gpuserve_error *error)
{
    (void)models;
    cr_assert_not(instead);
    work_on(&world.n_loads, 'L');
    return entry->path ? GPUSERVE_OK
                       : gsv_fail(error, GPUSERVE_E_NOT_FOUND, "no path for %s", entry->name);
}

gpuserve_status gsv_models_unload(struct gsv_models *models, struct gsv_entry *entry,
                                  gpuserve_error *error)
{
    (void)models;
    (void)entry;
    (void)error;
    work_on(&world.n_unloads, 'U');
    return GPUSERVE_OK;
}

bool gsv_models_try(struct gsv_models *models, struct gsv_buffer *to)
{
    (void)models;
    gsv_buffer_text(to, "report");
    work_on(&world.n_checks, 'C');
    return true;
}

void gsv_call_complete(struct gsv_exchange *exchange)
{
    pthread_mutex_lock(&world.lock);
    world.n_completed++;
    atomic_fetch_add(&exchange->work.handshake, 1);
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
}

static void hold(bool is_held)
{
    pthread_mutex_lock(&world.lock);
    world.is_held = is_held;
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
}

static void wait_for(const int *counter, int n)
{
    pthread_mutex_lock(&world.lock);
    while (*counter < n)
        pthread_cond_wait(&world.changed, &world.lock);
    pthread_mutex_unlock(&world.lock);
}

enum { MANY = 400 };

static struct gsv_exchange exchanges[MANY];
static char path[] = "path";
static struct gsv_entry first = { .name = path, .path = path }, second = { .name = path };
static struct gsv_load_queue queue;

static gpuserve_status add(size_t i, struct gsv_entry *entry, enum gsv_load_kind kind,
                           gpuserve_error *error)
{
    return gsv_load_queue_add(&queue, &exchanges[i], entry, kind, error);
}

static void setup(void)
{
    const gpuserve_error none = GPUSERVE_ERROR_INIT;

    gsv_load_queue_init(&queue, NULL);
    for (size_t i = 0; i < MANY; i++)
        exchanges[i].work.error = none;
}

static void teardown(void)
{
    gsv_load_queue_close(&queue);
    hold(false);
    gsv_load_queue_join(&queue);
    gsv_load_queue_destroy(&queue);
    cr_expect_eq(queue.n, 0);
    cr_expect_leq(world.max_running, 1);
}

Test(load_queue, equal_requests_share_one_load, .init = setup, .fini = teardown)
{
    hold(true);
    for (size_t i = 0; i < MANY; i++)
        cr_assert_eq(add(i, &first, GSV_LOAD, NULL), GPUSERVE_OK);
    wait_for(&world.n_loads, 1);
    hold(false);
    wait_for(&world.n_completed, MANY);
    for (size_t i = 0; i < MANY; i++) {
        cr_expect_eq(exchanges[i].work.status, GPUSERVE_OK);
        cr_expect_eq(atomic_load(&exchanges[i].work.handshake), 1, "completed once");
    }
    cr_expect_eq(world.n_loads, 1);
    cr_expect_eq(atomic_load(&queue.n_joined), MANY - 1);
}

Test(load_queue, a_failure_is_the_result_of_all, .init = setup, .fini = teardown)
{
    hold(true);
    cr_assert_eq(add(0, &first, GSV_LOAD, NULL), GPUSERVE_OK);
    cr_assert_eq(add(1, &second, GSV_LOAD, NULL), GPUSERVE_OK);
    cr_assert_eq(add(2, &second, GSV_LOAD, NULL), GPUSERVE_OK);
    hold(false);
    wait_for(&world.n_completed, 3);
    cr_expect_eq(exchanges[0].work.status, GPUSERVE_OK);
    for (size_t i = 1; i < 3; i++) {
        cr_expect_eq(exchanges[i].work.status, GPUSERVE_E_NOT_FOUND);
        cr_expect_str_eq(exchanges[i].work.error.message, "no path for path");
    }
    cr_expect_eq(world.n_loads, 2);
}

Test(load_queue, loads_and_unloads_of_a_model_keep_their_order, .init = setup, .fini = teardown)
{
    hold(true);
    cr_assert_eq(add(0, &first, GSV_LOAD, NULL), GPUSERVE_OK);
    wait_for(&world.n_loads, 1);
    cr_assert_eq(add(1, &first, GSV_UNLOAD, NULL), GPUSERVE_OK);
    cr_assert_eq(add(2, &first, GSV_LOAD, NULL), GPUSERVE_OK, "not joined with the running one");
    cr_assert_eq(add(3, &first, GSV_LOAD, NULL), GPUSERVE_OK);
    hold(false);
    wait_for(&world.n_completed, 4);
    cr_expect_str_eq(world.order, "LUL");
}

Test(load_queue, load_without_waiters_is_not_started, .init = setup, .fini = teardown)
{
    hold(true);
    cr_assert_eq(add(0, &first, GSV_LOAD, NULL), GPUSERVE_OK);
    wait_for(&world.n_loads, 1);
    for (size_t i = 1; i < MANY; i++)
        cr_assert_eq(add(i, i % 2 ? &second : &first, GSV_LOAD, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < MANY; i++) {
        gsv_load_queue_leave(&queue, &exchanges[i]);
        gsv_load_queue_leave(&queue, &exchanges[i]);
    }
    cr_expect_eq(world.n_completed, MANY, "at once, while the load runs");
    cr_expect_eq(exchanges[0].work.status, GPUSERVE_E_CANCELLED);
    cr_expect_eq(queue.n, 1, "the running one");
    hold(false);
    cr_assert_eq(add(0, &first, GSV_UNLOAD, NULL), GPUSERVE_OK);
    wait_for(&world.n_completed, MANY + 1);
    cr_expect_str_eq(world.order, "LU");
    cr_expect_eq(atomic_load(&queue.n_cancelled), 1);
}

Test(load_queue, a_load_goes_on_for_those_who_stay, .init = setup, .fini = teardown)
{
    hold(true);
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(add(i, &first, GSV_LOAD, NULL), GPUSERVE_OK);
    gsv_load_queue_leave(&queue, &exchanges[1]);
    hold(false);
    wait_for(&world.n_completed, 3);
    cr_expect_eq(exchanges[0].work.status, GPUSERVE_OK);
    cr_expect_eq(exchanges[1].work.status, GPUSERVE_E_CANCELLED);
    cr_expect_eq(exchanges[2].work.status, GPUSERVE_OK);
}

Test(load_queue, closing_completes_all_without_the_running_load, .init = setup, .fini = teardown)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    hold(true);
    cr_assert_eq(add(0, &first, GSV_LOAD, NULL), GPUSERVE_OK);
    wait_for(&world.n_loads, 1);
    for (size_t i = 1; i < 10; i++)
        cr_assert_eq(add(i, &second, GSV_LOAD, NULL), GPUSERVE_OK);
    gsv_load_queue_close(&queue);
    cr_expect_eq(world.n_completed, 10);
    for (size_t i = 0; i < 10; i++)
        cr_expect_eq(exchanges[i].work.status, GPUSERVE_E_CANCELLED);
    cr_expect_eq(add(10, &first, GSV_LOAD, &error), GPUSERVE_E_CANCELLED);
    hold(false);
    cr_expect_eq(world.n_loads, 1);
}

Test(load_queue, the_number_of_tasks_is_bounded, .init = setup, .fini = teardown)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    hold(true);
    for (size_t i = 0; i < GSV_MAX_LOAD_TASKS; i++)
        cr_assert_eq(add(i, &first, i % 2 ? GSV_UNLOAD : GSV_LOAD, NULL), GPUSERVE_OK);
    cr_expect_eq(add(200, &second, GSV_LOAD, &error), GPUSERVE_E_BUSY);
    cr_expect_neq(strstr(error.message, "64"), NULL, "%s", error.message);
    cr_expect_gt(error.retry_after_ms, 0);
    cr_expect_eq(add(201, &first, GSV_UNLOAD, NULL), GPUSERVE_OK, "joins the last one");
    hold(false);
    wait_for(&world.n_completed, GSV_MAX_LOAD_TASKS + 1);
}

Test(load_queue, checks_are_shared_and_each_has_its_own_reply, .init = setup, .fini = teardown)
{
    bool good[3] = { false, false, false };

    hold(true);
    for (size_t i = 0; i < 3; i++) {
        exchanges[i].state = &good[i];
        cr_assert_eq(add(i, NULL, GSV_CHECK, NULL), GPUSERVE_OK);
    }
    hold(false);
    wait_for(&world.n_completed, 3);
    for (size_t i = 0; i < 3; i++) {
        cr_expect(good[i]);
        cr_expect_eq(exchanges[i].reply.size, 6);
        cr_expect_eq(memcmp(exchanges[i].reply.bytes, "report", 6), 0);
        gsv_buffer_reset(&exchanges[i].reply);
    }
    cr_expect_eq(world.n_checks, 1);
}
