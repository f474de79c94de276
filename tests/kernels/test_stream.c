/*
 * test_stream.c - guarantees of a device, a stream and its thread pool: facts, sizes, tasks.
 */
#include "kernels/cpu/runtime/thread_pool.h"
#include "tests/base/failing_malloc.h"
#include "tests/kernels/harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Test(stream, every_slot_of_the_tables_is_filled)
{
    const struct gpuserve_backend *tables[] = { gsv_backend_ref(), gsv_backend_cpu() };

    for (size_t i = 0; i < 2; i++) {
        void *const *slot = (void *const *)(const void *)&tables[i]->device_count;
        void *const *end = (void *const *)(const void *)(tables[i] + 1);

        cr_expect_eq(tables[i]->struct_size, sizeof(struct gpuserve_backend));
        cr_expect_eq(tables[i]->abi, GPUSERVE_BACKEND_ABI);
        for (; slot < end; slot++)
            cr_expect_not_null(*slot, "%s: slot %zu", tables[i]->name,
                               (size_t)(slot - (void *const *)(const void *)tables[i]));
    }
}

Test(stream, facts_name_the_machine_and_refuse_another)
{
    for (int i = 0; i < target_count(); i++) {
        const struct gpuserve_backend *b = target_at(i)->backend;
        struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };
        struct gpuserve_device *device = NULL;
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        int32_t count = 0;

        cr_expect_eq(b->device_count(&count, NULL), GPUSERVE_OK);
        cr_expect_eq(count, 1);
        cr_expect_eq(b->device_facts(0, &facts, &error), GPUSERVE_OK);
        cr_expect(facts.name[0] && facts.isa[0] && facts.n_cores >= 1);
        cr_expect(facts.memory_free_bytes > 0 && facts.memory_free_bytes <= facts.memory_bytes);
        cr_expect_eq(b->device_facts(1, &facts, &error), GPUSERVE_E_NOT_FOUND);
        cr_expect_eq(b->device_open(&device, 1, &error), GPUSERVE_E_NOT_FOUND);
        cr_expect_null(device);
        cr_expect_not_null(strchr(error.message, '1'), "%s", error.message);
    }
}

#ifdef COUNTS_MEMORY /* a sanitizer has a malloc of its own */
/* A one-thread stream allocates exactly stream_bytes, plus headers and the rest of a page. */
Test(stream, stream_bytes_is_exact)
{
    static const uint32_t dtypes[] = { GPUSERVE_DTYPE_FLOAT32, GPUSERVE_DTYPE_FLOAT16,
                                       GPUSERVE_DTYPE_BFLOAT16, GPUSERVE_DTYPE_INT8 };

    for (int i = 0; i < target_count(); i++) {
        const struct target *t = target_at(i);
        struct gpuserve_stream_options options = {
            .struct_size = sizeof(options),
            .n_threads = 1,
            .max_tokens = 777,
            .max_sequences = 33,
            .max_seqlen = 300,
            .max_columns = 1537,
            .hidden_size = 384,
            .n_heads = 12,
        };

        for (size_t d = 0; d < 4; d++) {
            struct gpuserve_stream *stream;
            size_t before, taken;

            options.dtype = dtypes[d % 2];
            options.head_size = d < 2 ? 0 : 257; /* wider than hidden_size / n_heads */
            options.position_rows = d < 2 ? 0 : 511;
            before = failing_malloc_live_bytes();
            cr_assert_eq(t->backend->stream_create(t->device, &stream, &options, NULL),
                         GPUSERVE_OK);
            taken = failing_malloc_live_bytes() - before;
            cr_expect(taken >= t->backend->stream_bytes(&options) &&
                          taken <= t->backend->stream_bytes(&options) + 8192,
                      "%s: %zu bytes taken, %zu said", t->name, taken,
                      t->backend->stream_bytes(&options));
            t->backend->stream_destroy(&stream);
            cr_expect_null(stream);
        }
    }
}
#endif

Test(stream, a_batch_is_copied_and_its_result_comes_back)
{
    for (int i = 0; i < target_count(); i++) {
        const struct target *t = target_at(i);
        struct gpuserve_stream *stream = open_stream(t, GPUSERVE_DTYPE_FLOAT32, 5, 32, 1, 32);
        int32_t ids[] = { 1, 2, 3, 4, 5 }, types[5] = { 0 }, positions[] = { 0, 1, 2, 0, 1 };
        int32_t cu_seqlens[] = { 0, 3, 5 }, back[5] = { 0 }, replayed = 7;
        const struct gpuserve_host_batch host = { .n_tokens = 5,
                                                  .n_sequences = 2,
                                                  .max_seqlen = 3,
                                                  .ids = ids,
                                                  .type_ids = types,
                                                  .positions = positions,
                                                  .cu_seqlens = cu_seqlens };
        struct gpuserve_batch batch;

        cr_assert_eq(t->backend->batch_begin(stream, 1, &host, &batch, &replayed, NULL),
                     GPUSERVE_OK);
        memset(ids, 0xFF, sizeof(ids)); /* the caller may reuse its arrays */
        cr_expect_eq(replayed, 0);
        cr_expect(batch.n_rows == 5 && batch.n_sequences == 2 && batch.cu_seqlens[2] == 5 &&
                  batch.positions[4] == 1);
        cr_assert_eq(t->backend->batch_end(stream, back, batch.ids, sizeof(back), NULL),
                     GPUSERVE_OK);
        cr_assert_eq(t->backend->stream_wait(stream, NULL), GPUSERVE_OK);
        cr_expect(back[0] == 1 && back[4] == 5);
        t->backend->stream_destroy(&stream);
    }
}

/* ---------------------------------------------------------------------------------- thread pool */

#define MAX_TASKS 500

struct tally {
    atomic_int runs[MAX_TASKS];
    atomic_int busy[GSV_MAX_POOL_THREADS]; /* tasks of this thread at the moment */
    atomic_int faults;
};

static void count_task(void *tally_, int32_t thread, int32_t task)
{
    struct tally *tally = tally_;
    sigset_t blocked;

    if (atomic_fetch_add(&tally->busy[thread], 1) != 0)
        atomic_fetch_add(&tally->faults, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (thread > 0 && sigismember(&blocked, SIGUSR1) != 1)
        atomic_fetch_add(&tally->faults, 1);
    atomic_fetch_add(&tally->runs[task], 1);
    atomic_fetch_sub(&tally->busy[thread], 1);
}

Test(thread_pool, every_task_runs_once_for_any_number_of_threads)
{
    static struct tally tally;

    for (int32_t n_threads = 1; n_threads <= 5; n_threads += 2) {
        struct gsv_thread_pool *thread_pool = NULL;

        cr_assert_eq(gsv_thread_pool_create(&thread_pool, n_threads, NULL), GPUSERVE_OK);
        for (int32_t n_tasks = 0; n_tasks < MAX_TASKS; n_tasks = n_tasks * 2 + 1) {
            memset(&tally, 0, sizeof(tally));
            gsv_thread_pool_run(thread_pool, n_tasks, count_task, &tally);
            for (int32_t i = 0; i < MAX_TASKS; i++)
                cr_assert_eq(atomic_load(&tally.runs[i]), i < n_tasks ? 1 : 0,
                             "%d threads, %d tasks: task %d", (int)n_threads, (int)n_tasks, (int)i);
            cr_assert_eq(atomic_load(&tally.faults), 0, "shared thread number or open signals");
        }
        gsv_thread_pool_destroy(&thread_pool);
        cr_assert_null(thread_pool);
    }
}

static void add_one(void *sum, int32_t thread, int32_t task)
{
    (void)thread;
    (void)task;
    atomic_fetch_add((atomic_int *)sum, 1);
}

/* Back-to-back jobs find spinning helper threads; a pause lets them sleep first. */
Test(thread_pool, helpers_asleep_or_awake_lose_no_task)
{
    struct gsv_thread_pool *thread_pool = NULL;
    atomic_int sum = 0;

    cr_assert_eq(gsv_thread_pool_create(&thread_pool, 3, NULL), GPUSERVE_OK);
    for (int i = 0; i < 2000; i++) {
        gsv_thread_pool_run(thread_pool, 3, add_one, &sum);
        if (i % 100 == 0)
            nanosleep(&(struct timespec){ 0, 200000 }, NULL);
        cr_assert_eq(atomic_load(&sum), 3 * (i + 1));
    }
    gsv_thread_pool_destroy(&thread_pool);
}
