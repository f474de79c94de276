/*
 * test_model_pickle.c - weights in PyTorch files give the same bits as in safetensors.
 *
 * Each folder of tests/data/pickle, written by tools/fixtures/make_pickle_fixtures.py, has PyTorch
 * files, and MODEL: the model of tests/data/models with the rest. Hostile files are in
 * hostile_torch.py.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "lib/model/formats/torch/torch_file.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WEIGHTS "pytorch_model.bin"

static const char *const layouts[] = {
    "state-dict", "parameters", "shared",     "wrapped", "protocol-4", "protocol-5", "old",
    "old-shared", "f16",        "classifier", "sharded", "dense",      "bf16",
};

/* Removes the safetensors of a model's copy, but not the reference vectors. */
static void remove_weights(const char *folder)
{
    static const char *const names[] = { "model.safetensors", "model.safetensors.index.json",
                                         "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors",
                                         "2_Dense/model.safetensors" };
    char path[1100];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
}

/* Makes a copy of the model that `layout` names, with PyTorch files as its weights. `original`
 * becomes the model's own path. */
static void make_model(char *folder, char original[1024], const char *layout)
{
    char source[1024], path[1100];
    size_t size;
    char *model;

    cr_assert(mkdtemp(folder));
    snprintf(source, sizeof(source), "%s/pickle/%s", TEST_DATA_DIR, layout);
    snprintf(path, sizeof(path), "%s/MODEL", source);
    model = read_file(path, &size);
    model[strcspn(model, "\n")] = '\0';
    snprintf(original, 1024, "%s/models/%s", TEST_DATA_DIR, model);
    each_file(original, folder);
    remove_weights(folder);
    each_file(source, folder);
    free(model);
}

static void check_equal_rows(const struct loaded *a, const struct loaded *b,
                             const struct texts *texts, struct gsv_run run, const char *layout)
{
    const size_t columns = (size_t)gsv_run_columns(gsv_spec_facts(a->spec), &run);
    size_t rows = texts->n;
    float *x = run_all(a, texts, run), *y = run_all(b, texts, run);

    for (size_t i = 0; i < texts->n && gsv_is_by_token(run.task); i++)
        rows += (size_t)texts->n_tokens[i] - 1;
    cr_expect_eq(memcmp(x, y, rows * columns * sizeof(float)), 0, "%s: task %u: other numbers",
                 layout, run.task);
    free(x);
    free(y);
}

static void check_layout(const char *layout)
{
    char folder[] = "/tmp/gsv-pickle-XXXXXX", original[1024], path[1100];
    struct loaded pickle, safetensors;
    const struct gsv_spec_facts *facts;
    uint64_t a[2], b[2];
    struct texts texts;

    make_model(folder, original, layout);
    snprintf(path, sizeof(path), "%s/reference.safetensors", original);
    texts = read_texts(path);
    load_model(&pickle, folder, &(struct load_options){ 0 });
    load_model(&safetensors, original, &(struct load_options){ 0 });
    facts = gsv_spec_facts(pickle.spec);
    cr_expect_str_eq(facts->weights_format, "pickle", "%s", layout);
    cr_expect_str_eq(gsv_spec_facts(safetensors.spec)->weights_format, "safetensors");
    cr_expect_str_eq(facts->weights_dtype, gsv_spec_facts(safetensors.spec)->weights_dtype);
    cr_expect_eq(facts->parameter_count, gsv_spec_facts(safetensors.spec)->parameter_count);
    gsv_net_digest(pickle.net, a);
    gsv_net_digest(safetensors.net, b);
    /* the digest includes the names, to which a wrapper adds a prefix */
    cr_expect_eq(memcmp(a, b, sizeof(a)) == 0, strcmp(layout, "wrapped") != 0, "%s: digest",
                 layout);
    check_equal_rows(&pickle, &safetensors, &texts,
                     (struct gsv_run){ .task = GPUSERVE_TASK_TOKEN_VECTORS }, layout);
    if (facts->dim > 0)
        check_equal_rows(&pickle, &safetensors, &texts,
                         (struct gsv_run){ .task = GPUSERVE_TASK_EMBED, .dimensions = facts->dim },
                         layout);
    if (facts->n_labels > 0)
        check_equal_rows(
            &pickle, &safetensors, &texts,
            (struct gsv_run){ .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_RAW },
            layout);
    unload_model(&pickle);
    unload_model(&safetensors);
    free_texts(&texts);
    each_file(folder, NULL);
}

Test(model_pickle, every_layout_gives_the_bits_of_safetensors)
{
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        check_layout(layouts[i]);
}

Test(model_pickle, tied_tensors_have_the_same_bytes)
{
    static const char *const shared[] = { "pickle/shared", "pickle/old-shared" };

    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_weight_file *file = NULL;
        struct gsv_tensor word, tied;
        struct gsv_dir *dir = NULL;

        cr_assert_eq(gsv_dir_open(&dir, test_data(shared[i]), &error), GPUSERVE_OK);
        cr_assert_eq(gsv_torch_file_open(&file, dir, WEIGHTS, &error), GPUSERVE_OK, "%s",
                     error.message);
        cr_assert(gsv_weight_file_find(file, "embeddings.word_embeddings.weight", &word));
        cr_assert(gsv_weight_file_find(file, "lm_head.weight", &tied));
        cr_expect_eq(word.offset, tied.offset);
        cr_expect_eq(word.size_bytes, tied.size_bytes);
        cr_expect_not(gsv_weight_file_find(file, "absent", &tied));
        gsv_weight_file_close(&file);
        gsv_dir_close(&dir);
    }
}

Test(model_pickle, safetensors_beside_a_pickle_take_precedence)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[] = "/tmp/gsv-pickle-XXXXXX", original[1024], path[128];

    make_model(folder, original, "state-dict");
    snprintf(path, sizeof(path), "%s/" WEIGHTS, folder);
    write_file(path, "x", 1);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_FORMAT);
    cr_expect(strstr(error.message, WEIGHTS ": the file is not one of torch.save()"), "%s",
              error.message);
    each_file(original, folder);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_OK, "%s", error.message);
    each_file(folder, NULL);
}

/* A pickle that calls os.system in place of a state dict. */
Test(model_pickle, a_pickle_that_needs_code_is_refused_with_the_remedy)
{
    static const char call[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
                               "\x80\x02M\xe9\x03."
                               "\x80\x02}X\x0d\0\0\0little_endian\x88s."
                               "\x80\x02"
                               "cposix\nsystem\nX\x04\0\0\0true\x85R.";
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[] = "/tmp/gsv-pickle-XXXXXX", original[1024], path[128];

    make_model(folder, original, "state-dict");
    snprintf(path, sizeof(path), "%s/" WEIGHTS, folder);
    write_file(path, call, sizeof(call) - 1);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "byte 2: 'posix.system' is refused"), "%s", error.message);
    cr_expect(strstr(error.hint, "safe_serialization"), "%s", error.hint);
    each_file(folder, NULL);
}

Test(model_pickle, a_missing_shard_and_missing_weights_are_named)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[] = "/tmp/gsv-pickle-XXXXXX", original[1024], path[128];

    make_model(folder, original, "sharded");
    snprintf(path, sizeof(path), "%s/pytorch_model-00001-of-00002.bin", folder);
    unlink(path);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_NOT_FOUND);
    cr_expect(strstr(error.message, "pytorch_model-00001-of-00002.bin: no such file"), "%s",
              error.message);
    snprintf(path, sizeof(path), "%s/pytorch_model.bin.index.json", folder);
    write_file(path, "{}", 2);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_FORMAT);
    cr_expect(strstr(error.message, "pytorch_model.bin.index.json: weight_map is missing"), "%s",
              error.message);
    unlink(path);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_NOT_FOUND);
    cr_expect(strstr(error.message, "model.safetensors: no such file, and no pytorch_model.bin"),
              "%s", error.message);
    each_file(folder, NULL);
}

/* The strides of a square matrix are exchanged in the pickle: it is now stored by columns. */
Test(model_pickle, a_weight_that_is_not_contiguous_is_named)
{
    static const char shape[] = "K K \x86", strides[] = "K K\1\x86";
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[] = "/tmp/gsv-pickle-XXXXXX", original[1024], path[128];
    char *bytes, *at;
    size_t size;

    make_model(folder, original, "state-dict");
    snprintf(path, sizeof(path), "%s/" WEIGHTS, folder);
    bytes = read_file(path, &size);
    at = memmem(bytes, size, shape, sizeof(shape) - 1);
    cr_assert(at);
    at = memmem(at, 16, strides, sizeof(strides) - 1);
    cr_assert(at);
    memcpy(at, "K\1K ", 4);
    write_file(path, bytes, size);
    free(bytes);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "weight' is not contiguous"), "%s", error.message);
    cr_expect(strstr(error.hint, "contiguous()"), "%s", error.hint);
    each_file(folder, NULL);
}
