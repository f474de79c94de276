/*
 * test_growth.c - a process that opens, suspends, swaps and closes models over and over keeps no
 * memory, no thread and no descriptor.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <pthread.h>

enum { WORD = 10 };

static gpuserve_context *make_context(void)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;

    options.n_threads = 2;
    options.plugin_dir = "/nonexistent";
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    return context;
}

static void embed(gpuserve_model *model, float row[FOLDER_HIDDEN])
{
    static const char *const text[] = { "w10 w11" };

    cr_assert_eq(gpuserve_embed(model, text, 1, row, FOLDER_HIDDEN, NULL, NULL), GPUSERVE_OK);
}

struct usage {
    size_t resident;
    int threads, descriptors;
};

static struct usage usage_now(void)
{
    return (struct usage){ resident_bytes(), count_threads(), count_descriptors() };
}

/* A release build keeps no memory of 4,000 rounds. The address sanitizer's allocator keeps 0 to 5
 * MB after 1,000 or 4,000 rounds, more if other programs run; it finds leaks itself at exit. */
#ifdef __SANITIZE_ADDRESS__
enum { MORE_BYTES = 16 << 20 };
#else
enum { MORE_BYTES = 4 << 20 };
#endif

static void expect_no_more(struct usage before, const char *what)
{
    const struct usage now = usage_now();

    /* Tolerance for arena pages that the C library touches for the first time; a leak of 4 kB per
     * round is more. test_memory.c counts every byte. */
    cr_expect_leq(now.resident, before.resident + MORE_BYTES, "%s: %zu bytes of memory became %zu",
                  what, before.resident, now.resident);
    cr_expect_eq(now.threads, before.threads, "%s", what);
    cr_expect_eq(now.descriptors, before.descriptors, "%s", what);
}

/* The address sanitizer's allocator keeps freed memory and settles late. */
enum { N_SETTLING = FOR_RACES ? 20 : 100, N_ROUNDS = FOR_RACES ? 100 : 1000 };

Test(growth, a_thousand_models_opened_and_closed_leave_nothing)
{
    gpuserve_context *context = make_context();
    float row[FOLDER_HIDDEN];
    struct usage usage;
    struct folder a;

    folder_make(&a, "bert");
    for (int i = 0; i < N_SETTLING + N_ROUNDS; i++) {
        gpuserve_model *model = folder_open(&a, context);

        embed(model, row);
        gpuserve_model_close(&model);
        if (i == N_SETTLING)
            usage = usage_now();
    }
    expect_no_more(usage, "open and close");
    gpuserve_context_unref(&context);
    folder_remove(&a);
}

Test(growth, a_thousand_suspensions_and_swaps_leave_nothing)
{
    gpuserve_context *context = make_context();
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    float row[FOLDER_HIDDEN];
    struct usage usage;
    struct folder folders[2];
    gpuserve_model *model;

    for (int i = 0; i < 2; i++) {
        folder_make(&folders[i], "bert");
        folder_set_word(&folders[i], WORD, 0.25f * (float)i);
    }
    options.warmup = GPUSERVE_WARMUP_OFF;
    model = folder_open(&folders[0], context);
    for (int i = 0; i < N_SETTLING + N_ROUNDS; i++) {
        if (i % 2)
            cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
        else
            cr_assert_eq(
                gpuserve_model_swap(model, folders[i / 2 % 2].path, NULL, &options, NULL, NULL),
                GPUSERVE_OK);
        embed(model, row);
        if (i == N_SETTLING)
            usage = usage_now();
    }
    expect_no_more(usage, "suspend and swap");
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    folder_remove(&folders[0]);
    folder_remove(&folders[1]);
}

/* Sanitizers have their own heap. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
enum { N_LOADERS = 3 };

struct loaders {
    pthread_barrier_t all_there; /* concurrent, so that each gets its own malloc arena */
    pthread_mutex_t turn;
};

static void open_and_close_real(void)
{
    gpuserve_model *model = open_real("all-MiniLM-L6-v2", GPUSERVE_DTYPE_INT8, 2);

    gpuserve_model_close(&model);
}

static void *load_in_turn(void *argument)
{
    struct loaders *loaders = argument;

    pthread_barrier_wait(&loaders->all_there);
    pthread_mutex_lock(&loaders->turn);
    open_and_close_real();
    pthread_mutex_unlock(&loaders->turn);
    pthread_barrier_wait(&loaders->all_there);
    return NULL;
}

/* The C library keeps an arena for some threads, each at its peak size. malloc_trim() does not
 * release the free top of an arena, of which 2 MB may be dirty. */
Test(growth, no_heap_keeps_what_a_load_needed)
{
    struct loaders loaders = { .turn = PTHREAD_MUTEX_INITIALIZER };
    pthread_t threads[N_LOADERS];
    size_t before;

    open_and_close_real();
    before = resident_bytes();
    pthread_barrier_init(&loaders.all_there, NULL, N_LOADERS);
    for (int i = 0; i < N_LOADERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, load_in_turn, &loaders), 0);
    for (int i = 0; i < N_LOADERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&loaders.all_there);
    cr_expect_leq(resident_bytes(), before + (4 << 20) + N_LOADERS * (2 << 20),
                  "%zu bytes became %zu", before, resident_bytes());
}
#endif
