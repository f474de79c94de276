/*
 * test_swap.c - hot swap of the model behind a handle.
 *
 * What changes, which swaps are rejected, and that each answer under load is entirely the old
 * model's or the new one's.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_TEXTS = 4, DIM = FOLDER_HIDDEN, WORD = 10 };

/* Each text has the word whose embedding differs between the versions. */
static const char *const texts[N_TEXTS] = { "w10", "w11 w10", "w10 w12 w13", "w20 w21 w22 w10" };

static gpuserve_context *make_context(void)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;

    options.n_threads = 2;
    options.plugin_dir = "/nonexistent";
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    return context;
}

static void embed(gpuserve_model *model, float rows[N_TEXTS * DIM])
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_embed(model, texts, N_TEXTS, rows, N_TEXTS * DIM, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
}

Test(swap, the_new_model_answers_and_what_was_lent_stays)
{
    gpuserve_context *context = make_context();
    struct folder a, b;
    float before[N_TEXTS * DIM], after[N_TEXTS * DIM], want[N_TEXTS * DIM];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model, *other;
    const char *fingerprint;
    char copy[33];
    uint32_t changes = 0;
    int fd;

    folder_make(&a, "bert");
    folder_make(&b, "bert");
    folder_set_word(&b, WORD, 0.25f);
    model = folder_open(&a, context);
    other = folder_open(&b, context);
    fd = gpuserve_completion_fd(model);
    fingerprint = gpuserve_model_fingerprint(model);
    strcpy(copy, fingerprint);
    embed(model, before);
    embed(other, want);
    cr_assert_eq(gpuserve_model_swap(model, b.path, &changes, NULL, NULL, &error), GPUSERVE_OK,
                 "%s", error.message);
    embed(model, after);
    cr_expect_eq(memcmp(after, want, sizeof(want)), 0);
    cr_expect_neq(memcmp(after, before, sizeof(before)), 0);
    cr_expect_eq(changes, GPUSERVE_CHANGE_FINGERPRINT);
    cr_expect_str_eq(fingerprint, copy);
    cr_expect_str_eq(gpuserve_model_fingerprint(model), gpuserve_model_fingerprint(other));
    cr_expect_eq(gpuserve_completion_fd(model), fd);
    cr_assert_eq(gpuserve_model_swap(model, a.path, &changes, NULL, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_fingerprint(model), fingerprint, "the face of before is found");
    /* Without a path the files are read again: now with other content. */
    folder_set_word(&a, WORD, 0.25f);
    cr_assert_eq(gpuserve_model_swap(model, NULL, &changes, NULL, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(changes, GPUSERVE_CHANGE_FINGERPRINT);
    embed(model, after);
    cr_expect_eq(memcmp(after, want, sizeof(want)), 0);
    cr_assert_eq(gpuserve_model_swap(model, NULL, &changes, NULL, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(changes, 0);
    gpuserve_model_close(&other);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    folder_remove(&a);
    folder_remove(&b);
}

/* A swap that must fail with `status` and a message containing `says`; the model stays. */
static void refuse(gpuserve_model *model, const char *path, const gpuserve_model_options *options,
                   const gpuserve_swap_options *how, gpuserve_status status, const char *says)
{
    char copy[33];
    float before[N_TEXTS * DIM], after[N_TEXTS * DIM];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    uint32_t changes = 77;

    strcpy(copy, gpuserve_model_fingerprint(model));
    embed(model, before);
    cr_expect_eq(gpuserve_model_swap(model, path, &changes, options, how, &error), status, "%s: %s",
                 says, error.message);
    cr_expect_not_null(strstr(error.message, says), "\"%s\" in: %s", says, error.message);
    cr_expect_eq(changes, 77, "outputs are untouched");
    embed(model, after);
    cr_expect_eq(memcmp(before, after, sizeof(before)), 0);
    cr_expect_str_eq(gpuserve_model_fingerprint(model), copy);
}

static int32_t stop_at_once(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    (void)stage;
    (void)done;
    (void)total;
    ++*(int *)user;
    return 1;
}

Test(swap, a_failure_leaves_the_old_model_serving)
{
    gpuserve_context *context = make_context();
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_swap_options how = GPUSERVE_SWAP_OPTIONS_INIT;
    struct folder a, huge, labels, dense;
    gpuserve_model *model;
    int n_told = 0, threads, descriptors;

    folder_make(&a, "bert");
    folder_make(&huge, "bert");
    folder_set_word(&huge, 50, 3e38f);
    folder_make(&labels, "bert-single");
    folder_make(&dense, "st-dense");
    model = folder_open(&a, context);
    threads = count_threads();
    descriptors = count_descriptors();
    refuse(model, "/nonexistent", NULL, NULL, GPUSERVE_E_NOT_FOUND, "/nonexistent");
    refuse(model, "", NULL, NULL, GPUSERVE_E_INVALID, "empty");
    refuse(model, huge.path, NULL, NULL, GPUSERVE_E_NUMERIC, "the warm-up");
    refuse(model, labels.path, NULL, NULL, GPUSERVE_E_INVALID, "0 dimensions");
    how.allow = GPUSERVE_CHANGE_DIM;
    refuse(model, labels.path, NULL, &how, GPUSERVE_E_INVALID, "labels");
    how.allow = 0;
    refuse(model, dense.path, NULL, NULL, GPUSERVE_E_INVALID, "that of the open model has 32");
    how.fingerprint = "0123";
    refuse(model, a.path, NULL, &how, GPUSERVE_E_MISMATCH, "expected 0123");
    how.fingerprint = NULL;
    how.allow = 0x100;
    refuse(model, a.path, NULL, &how, GPUSERVE_E_INVALID, "allow");
    options.progress = stop_at_once;
    options.progress_user = &n_told;
    refuse(model, a.path, &options, NULL, GPUSERVE_E_CANCELLED, "callback");
    cr_expect_eq(n_told, 1);
    options.progress = NULL;
    options.warmup = GPUSERVE_WARMUP_GPU - 1;
    refuse(model, a.path, &options, NULL, GPUSERVE_E_INVALID, "warmup");
    options.warmup = 0;
    options.device = "moon";
    refuse(model, a.path, &options, NULL, GPUSERVE_E_INVALID, "moon");
    cr_expect_eq(gpuserve_model_swap(NULL, a.path, NULL, NULL, NULL, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(count_threads(), threads);
    cr_expect_eq(count_descriptors(), descriptors);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    folder_remove(&a);
    folder_remove(&huge);
    folder_remove(&labels);
    folder_remove(&dense);
}

Test(swap, sizes_and_labels_change_where_that_is_allowed)
{
    gpuserve_context *context = make_context();
    gpuserve_swap_options how = GPUSERVE_SWAP_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct folder single, multi;
    gpuserve_model *model;
    const char *label;
    uint32_t changes = 0;

    folder_make(&single, "bert-single");
    folder_make(&multi, "bert-multi");
    model = folder_open(&single, context);
    label = gpuserve_model_label(model, 2);
    cr_assert_str_eq(label, "so so");
    how.allow = GPUSERVE_CHANGE_LABELS;
    cr_assert_eq(gpuserve_model_swap(model, multi.path, &changes, NULL, &how, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_expect_eq(changes, GPUSERVE_CHANGE_LABELS | GPUSERVE_CHANGE_FINGERPRINT);
    cr_expect_str_eq(gpuserve_model_label(model, 0), "LABEL_0");
    cr_expect_str_eq(label, "so so");
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    folder_remove(&single);
    folder_remove(&multi);
}

Test(swap, a_suspended_model_comes_back_as_it_was_or_not_at_all)
{
    gpuserve_context *context = make_context();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float before[N_TEXTS * DIM], after[N_TEXTS * DIM];
    struct folder a;
    gpuserve_model *model;
    int threads;

    folder_make(&a, "bert");
    model = folder_open(&a, context);
    threads = count_threads();
    embed(model, before);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    cr_expect_lt(count_threads(), threads, "its threads are given back as well");
    embed(model, after);
    cr_expect_eq(memcmp(before, after, sizeof(before)), 0);
    cr_expect_eq(count_threads(), threads);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    folder_overwrite_word(&a, WORD, 0.25f);
    cr_expect_eq(gpuserve_model_resume(model, &error), GPUSERVE_E_MISMATCH, "%s", error.message);
    cr_expect_eq(gpuserve_embed(model, texts, N_TEXTS, after, N_TEXTS * DIM, NULL, NULL),
                 GPUSERVE_E_MISMATCH);
    cr_assert_eq(gpuserve_model_swap(model, NULL, NULL, NULL, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
    embed(model, before);
    cr_expect_neq(memcmp(before, after, sizeof(before)), 0);
    /* A new file under the same name is another model; the old file is still open. */
    folder_set_word(&a, WORD, 0.5f);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    embed(model, after);
    cr_expect_eq(memcmp(before, after, sizeof(before)), 0);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    folder_remove(&a);
}

/* ------------------------------------------------------------------------------- under load */

enum { N_CALLERS = 4, N_SWAPS = IS_SANITIZED ? 200 : 1000 };

struct stage {
    gpuserve_model *model;
    float want[2][N_TEXTS * DIM];
    atomic_bool is_over;
    atomic_int n_answers[2];
    atomic_int n_mixed, n_failed;
};

static void *call(void *argument)
{
    struct stage *stage = argument;
    float rows[N_TEXTS * DIM];
    gpuserve_model *mine = gpuserve_model_ref(stage->model);

    while (!atomic_load(&stage->is_over)) {
        if (gpuserve_embed(mine, texts, N_TEXTS, rows, N_TEXTS * DIM, NULL, NULL) != GPUSERVE_OK)
            atomic_fetch_add(&stage->n_failed, 1);
        else if (memcmp(rows, stage->want[0], sizeof(rows)) == 0)
            atomic_fetch_add(&stage->n_answers[0], 1);
        else if (memcmp(rows, stage->want[1], sizeof(rows)) == 0)
            atomic_fetch_add(&stage->n_answers[1], 1);
        else
            atomic_fetch_add(&stage->n_mixed, 1);
    }
    gpuserve_model_close(&mine);
    return NULL;
}

Test(swap, every_answer_is_wholly_of_one_model)
{
    gpuserve_context *context = make_context();
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    struct stage stage = { .n_mixed = 0 };
    struct folder folders[2];
    pthread_t threads[N_CALLERS];
    int n_threads, n_descriptors;

    for (int i = 0; i < 2; i++) {
        gpuserve_model *model;

        folder_make(&folders[i], "bert");
        folder_set_word(&folders[i], WORD, 0.25f * (float)i);
        model = folder_open(&folders[i], context);
        embed(model, stage.want[i]);
        gpuserve_model_close(&model);
    }
    options.warmup = GPUSERVE_WARMUP_OFF;
    stage.model = folder_open(&folders[0], context);
    n_threads = settled_threads();
    n_descriptors = count_descriptors();
    for (int i = 0; i < N_CALLERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, call, &stage), 0);
    for (int i = 1; i <= N_SWAPS; i++)
        cr_assert_eq(
            gpuserve_model_swap(stage.model, folders[i % 2].path, NULL, &options, NULL, NULL),
            GPUSERVE_OK);
    atomic_store(&stage.is_over, true);
    for (int i = 0; i < N_CALLERS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(atomic_load(&stage.n_mixed), 0);
    cr_expect_eq(atomic_load(&stage.n_failed), 0);
    cr_expect_gt(atomic_load(&stage.n_answers[0]), 0);
    cr_expect_gt(atomic_load(&stage.n_answers[1]), 0);
    cr_expect_eq(settled_threads(), n_threads);
    cr_expect_eq(count_descriptors(), n_descriptors);
    gpuserve_model_close(&stage.model);
    gpuserve_context_unref(&context);
    folder_remove(&folders[0]);
    folder_remove(&folders[1]);
}
