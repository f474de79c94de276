/*
 * test_truncated.c - a weights file truncated by another process, while the model is suspended or
 * loading.
 *
 * The load returns an error that names the file, whatever `use_mmap` says; no mapping exists that
 * could end the process with SIGBUS.
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const words[] = { "w5 w6 w7" };

/* A weights file and its original bytes. */
struct weights {
    char path[128], *bytes;
    size_t size;
};

static void open_weights(struct weights *weights, const struct folder *folder, const char *name)
{
    struct stat s;
    FILE *file;

    snprintf(weights->path, sizeof(weights->path), "%s/%s", folder->path, name);
    cr_assert_eq(stat(weights->path, &s), 0, "%s", weights->path);
    weights->size = (size_t)s.st_size;
    weights->bytes = malloc(weights->size);
    file = fopen(weights->path, "rb");
    cr_assert(weights->bytes && file);
    cr_assert_eq(fread(weights->bytes, 1, weights->size, file), weights->size);
    fclose(file);
}

/* Restores the content in place: the model has the file open. */
static void restore(const struct weights *weights)
{
    const int file = open(weights->path, O_WRONLY);

    cr_assert_geq(file, 0);
    cr_assert_eq(pwrite(file, weights->bytes, weights->size, 0), (ssize_t)weights->size);
    close(file);
}

static gpuserve_model_options options_of(uint32_t use_mmap)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = "cpu";
    options.n_threads = 1; /* one thread both reads tensors and reports progress */
    options.use_mmap = use_mmap;
    return options;
}

static void expect_named(gpuserve_status status, const gpuserve_error *error, const char *name,
                         size_t left)
{
    cr_expect(status == GPUSERVE_E_FORMAT || status == GPUSERVE_E_IO, "%zu bytes left: %d, %s",
              left, status, error->message);
    cr_expect_not_null(strstr(error->message, name), "%zu bytes left: %s", left, error->message);
}

/* A truncated file at any size prevents the resume; the restored file allows it. */
static void cut_while_suspended(const char *source, const char *name, uint32_t use_mmap)
{
    const gpuserve_model_options options = options_of(use_mmap);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float before[FOLDER_HIDDEN], after[FOLDER_HIDDEN];
    gpuserve_model *model = NULL;
    struct weights weights;
    struct folder folder;

    folder_make(&folder, source);
    open_weights(&weights, &folder, name);
    cr_assert_eq(gpuserve_model_open(&model, NULL, folder.path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_assert_eq(gpuserve_embed(model, words, 1, before, FOLDER_HIDDEN, NULL, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < 4; i++) {
        const size_t left = weights.size * i / 6; /* shorter than needed */

        cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
        cr_assert_eq(truncate(weights.path, (off_t)left), 0);
        expect_named(gpuserve_model_resume(model, &error), &error, name, left);
        expect_named(gpuserve_embed(model, words, 1, after, FOLDER_HIDDEN, NULL, &error), &error,
                     name, left);
        restore(&weights);
        cr_expect_eq(gpuserve_model_resume(model, &error), GPUSERVE_OK, "%s", error.message);
        cr_expect_eq(gpuserve_embed(model, words, 1, after, FOLDER_HIDDEN, NULL, NULL),
                     GPUSERVE_OK);
        cr_expect_eq(memcmp(before, after, sizeof(before)), 0);
    }
    gpuserve_model_close(&model);
    free(weights.bytes);
    folder_remove(&folder);
}

Test(truncated, a_suspended_model_whose_weights_were_cut_does_not_come_back)
{
    for (uint32_t use_mmap = 0; use_mmap < 2; use_mmap++) {
        cut_while_suspended("bert", "model.safetensors", use_mmap);
        cut_while_suspended("bert-sharded", "model-00002-of-00002.safetensors", use_mmap);
    }
}

struct cutting {
    const struct weights *weights;
    size_t left;
    int n, at;
};

static int32_t cut(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    struct cutting *cutting = user;

    (void)stage, (void)done, (void)total;
    if (++cutting->n == cutting->at)
        cr_assert_eq(truncate(cutting->weights->path, (off_t)cutting->left), 0);
    return 0;
}

/* Truncated after each of the first tensors, when the header is already parsed. */
Test(truncated, weights_that_are_cut_while_they_are_read)
{
    struct weights weights;
    struct folder folder;

    folder_make(&folder, "bert");
    open_weights(&weights, &folder, "model.safetensors");
    for (int i = 0; i < 12; i++) {
        struct cutting cutting = { .weights = &weights, .at = 1 + i / 2 };
        gpuserve_model_options options = options_of(i % 2);
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model *model = NULL;

        options.progress = cut;
        options.progress_user = &cutting;
        expect_named(gpuserve_model_open(&model, NULL, folder.path, &options, &error), &error,
                     "model.safetensors", cutting.left);
        cr_expect_geq(cutting.n, cutting.at);
        cr_expect_null(model);
        restore(&weights);
    }
    free(weights.bytes);
    folder_remove(&folder);
}
