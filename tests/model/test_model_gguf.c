/*
 * test_model_gguf.c - GGUF files: dequantized blocks equal the bits of the gguf package, models
 * give the bits of their safetensors originals, and damaged files are refused with what is wrong
 * where.
 */
#define _GNU_SOURCE
#include "lib/base/gguf.h"
#include "lib/model/formats/checkpoint.h"
#include "tests/base/folder.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------- blocks */

static const struct {
    const char *name;
    enum gsv_tensor_type type;
} block_types[] = {
    { "Q4_0", GSV_TENSOR_Q4_0 }, { "Q4_1", GSV_TENSOR_Q4_1 }, { "Q5_0", GSV_TENSOR_Q5_0 },
    { "Q5_1", GSV_TENSOR_Q5_1 }, { "Q8_0", GSV_TENSOR_Q8_0 }, { "IQ4_NL", GSV_TENSOR_IQ4_NL },
    { "Q2_K", GSV_TENSOR_Q2_K }, { "Q3_K", GSV_TENSOR_Q3_K }, { "Q4_K", GSV_TENSOR_Q4_K },
    { "Q5_K", GSV_TENSOR_Q5_K }, { "Q6_K", GSV_TENSOR_Q6_K },
};

static void *read_tensor(const struct gsv_gguf *gguf, const char *name, uint64_t *count)
{
    const struct gsv_gguf_tensor *tensor = gsv_gguf_find_tensor(gguf, name);
    void *bytes;

    cr_assert(tensor, "%s", name);
    bytes = malloc((size_t)tensor->size_bytes);
    cr_assert_eq(
        gsv_fd_read(gguf->fd, bytes, (size_t)tensor->size_bytes, tensor->offset, name, NULL),
        GPUSERVE_OK);
    *count = tensor->count;
    return bytes;
}

Test(gguf, blocks_equal_the_bits_of_the_gguf_package)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_gguf *gguf;
    struct gsv_dir *dir;

    cr_assert_eq(gsv_dir_open(&dir, test_data("gguf/types.gguf"), &error), GPUSERVE_OK);
    cr_assert_eq(gsv_gguf_open(&gguf, dir, &error), GPUSERVE_OK, "%s", error.message);
    for (size_t i = 0; i < sizeof(block_types) / sizeof(block_types[0]); i++) {
        uint64_t count, n;
        char name[32];
        void *blocks = read_tensor(gguf, block_types[i].name, &count);
        float *want, *got = calloc((size_t)count, sizeof(float));

        snprintf(name, sizeof(name), "want.%s", block_types[i].name);
        want = read_tensor(gguf, name, &n);
        cr_assert_eq(n, count);
        gsv_floats_from_blocks(got, blocks, block_types[i].type, (size_t)count);
        cr_expect_eq(memcmp(got, want, (size_t)count * sizeof(float)), 0, "%s",
                     block_types[i].name);
        free(blocks);
        free(want);
        free(got);
    }
    gsv_gguf_close(&gguf);
    gsv_dir_close(&dir);
}

/* -------------------------------------------------------------------------------------- models */

/* A GGUF file and its original; `cosine` is the least direction of an output, 1: equal bits. */
static const struct {
    const char *file, *original;
    uint32_t original_pooling; /* 0: the original's own */
    bool classifies;
    double cosine;
} models[] = {
    { "gguf/bert-f32.gguf", "models/bert-pairs", GPUSERVE_POOLING_MEAN, false, 1 },
    { "gguf/bert-f16.gguf", "models/bert-pairs", GPUSERVE_POOLING_MEAN, false, 0.999999 },
    { "gguf/bert-q8_0.gguf", "models/bert-pairs", GPUSERVE_POOLING_MEAN, false, 0.9995 },
    { "gguf/bert-split-00001-of-00003.gguf", "gguf/bert-q8_0.gguf", 0, false, 1 },
    { "gguf/bert-q4_0.gguf", "models/bert-pairs", GPUSERVE_POOLING_MEAN, false, 0.95 },
    { "gguf/bert-cls.gguf", "models/bert", GPUSERVE_POOLING_CLS, false, 1 },
    { "gguf/roberta-none.gguf", "models/roberta", GPUSERVE_POOLING_MEAN, false, 1 },
    { "gguf/xlm-roberta.gguf", "models/st-xlm-roberta", GPUSERVE_POOLING_MEAN, false, 1 },
    { "gguf/nomic-bert.gguf", "models/nomic-bert-hub", GPUSERVE_POOLING_MEAN, false, 1 },
    { "gguf/jina-bert-v2.gguf", "models/jina-v2-hub", GPUSERVE_POOLING_MEAN, false, 1 },
    { "gguf/modern-bert.gguf", "models/modernbert", GPUSERVE_POOLING_MEAN, false, 1 },
    { "gguf/qwen3.gguf", "models/qwen3-embedding", GPUSERVE_POOLING_LAST, false, 1 },
    { "gguf/xlm-roberta-rank.gguf", "models/xlm-roberta-single", 0, true, 1 },
};

/* The outputs of a model, `path` from the root. */
static float *outputs(const char *path, uint32_t pooling, bool classifies,
                      const struct texts *texts, size_t *columns)
{
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED };
    struct loaded model;
    float *rows;

    load_model(&model, path, &(struct load_options){ .pooling = pooling });
    run.dimensions = gsv_spec_facts(model.spec)->dim;
    if (classifies)
        run = (struct gsv_run){ .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_RAW };
    *columns = (size_t)gsv_run_columns(gsv_spec_facts(model.spec), &run);
    rows = run_all(&model, texts, run);
    unload_model(&model);
    return rows;
}

Test(gguf, models_give_the_vectors_of_their_originals)
{
    struct texts texts = read_texts(test_data("models/roberta/reference.safetensors"));
    const int32_t *n_tokens = texts.n_tokens;

    for (size_t i = 0, at = 0; i < texts.n; at += (size_t)n_tokens[i++])
        for (size_t k = at; k < at + (size_t)n_tokens[i]; k++)
            texts.ids[k] %= 48; /* the smallest vocabulary */
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        size_t columns, n;
        float *got = outputs(test_data(models[i].file), 0, models[i].classifies, &texts, &columns);
        float *want = outputs(test_data(models[i].original), models[i].original_pooling,
                              models[i].classifies, &texts, &n);
        double *wide = calloc(texts.n * n, sizeof(double));
        struct difference d;

        cr_assert_eq(columns, n, "%s", models[i].file);
        for (size_t k = 0; k < texts.n * n; k++)
            wide[k] = (double)want[k];
        d = compare_rows(got, wide, texts.n, columns);
        if (models[i].cosine == 1)
            cr_expect_eq(d.largest, 0, "%s: %g", models[i].file, d.largest);
        else
            cr_expect(d.min_cosine >= models[i].cosine && d.largest > 0, "%s: cosine %.7f",
                      models[i].file, d.min_cosine);
        free(got);
        free(want);
        free(wide);
    }
    free_texts(&texts);
}

/* llama.cpp's vectors of the same files (tools/compare_llama.py). It computes products of quantized
 * weights with quantized rows. */
static const struct {
    const char *name;
    double cosine; /* the least */
} llama_models[] = {
    { "bert-f32", 0.999999 },   { "bert-f16", 0.999999 },        { "bert-q8_0", 0.9995 },
    { "bert-q4_0", 0.9995 },    { "bert-cls", 0.999999 },        { "xlm-roberta", 0.999999 },
    { "nomic-bert", 0.999999 }, { "jina-bert-v2", 0.999999 },    { "modern-bert", 0.999999 },
    { "qwen3", 0.999999 },      { "gemma-embedding", 0.999999 },
};

Test(gguf, models_give_the_vectors_of_llama_cpp)
{
    char reference[1024];
    struct texts texts;

    snprintf(reference, sizeof(reference), "%s", test_data("gguf/llama.safetensors"));
    texts = read_texts(reference);
    for (size_t i = 0; i < sizeof(llama_models) / sizeof(llama_models[0]); i++) {
        const char *name = llama_models[i].name;
        char path[64];
        size_t columns, count;
        double *want = read_reference(reference, name, &count);
        float *got;
        struct difference d;

        snprintf(path, sizeof(path), "gguf/%s.gguf", name);
        got = outputs(test_data(path), 0, false, &texts, &columns);
        cr_assert_eq(count, texts.n * columns, "%s", name);
        d = compare_rows(got, want, texts.n, columns);
        cr_expect_geq(d.min_cosine, llama_models[i].cosine, "%s: cosine %.7f", name, d.min_cosine);
        free(got);
        free(want);
    }
    free_texts(&texts);
}

Test(gguf, the_file_says_what_the_model_is)
{
    struct gsv_dir *dir;
    struct gsv_spec *spec;
    const struct gsv_spec_facts *facts;

    cr_assert_eq(gsv_dir_open(&dir, test_data("gguf/roberta-none.gguf"), NULL), GPUSERVE_OK);
    cr_assert_eq(gsv_spec_load(&spec, dir, NULL, 0, NULL), GPUSERVE_OK);
    facts = gsv_spec_facts(spec);
    cr_expect_str_eq(facts->model_type, "bert");
    cr_expect_eq(facts->first_position, 0);
    cr_expect_eq(facts->max_tokens, 38);
    cr_expect_eq(facts->poolings[0], GPUSERVE_POOL_MEAN);
    cr_expect_not(facts->normalize);
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
    cr_assert_eq(gsv_dir_open(&dir, test_data("gguf/bert-cls.gguf"), NULL), GPUSERVE_OK);
    cr_assert_eq(gsv_spec_load(&spec, dir, NULL, 0, NULL), GPUSERVE_OK);
    cr_expect_eq(gsv_spec_facts(spec)->poolings[0], GPUSERVE_POOL_CLS);
    cr_expect_str_eq(gsv_spec_facts(spec)->weights_dtype, "F32");
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
}

/* ------------------------------------------------------------------------------------- folders */

/* The norm weights of the file are those of the checkpoint plus 1. The attention's scale is not in
 * the file: it is that of the head size. */
Test(gguf, gemma_gives_the_vectors_of_its_original, .init = make_folder, .fini = remove_folder)
{
    int32_t ids[7] = { 3, 6, 7, 8, 9, 10, 4 }, n_tokens[2] = { 3, 4 };
    const struct texts texts = { ids, n_tokens, 2 };
    size_t size, columns;
    char *bytes = read_file(test_data("models/gemma3-bidirectional/model.safetensors"), &size);
    float *got, *want;
    char *at;

    write_file(in_folder("model.safetensors"), bytes, size);
    free(bytes);
    bytes = read_file(test_data("models/gemma3-bidirectional/config.json"), &size);
    at = memmem(bytes, size, "scalar\": 16", 11);
    cr_assert(at);
    memcpy(at, "scalar\": 8 ", 11);
    write_file(in_folder("config.json"), bytes, size);
    free(bytes);
    want = outputs(folder, GPUSERVE_POOLING_MEAN, false, &texts, &columns);
    got = outputs(test_data("gguf/gemma-embedding.gguf"), 0, false, &texts, &columns);
    cr_expect_eq(memcmp(got, want, 2 * columns * sizeof(float)), 0);
    free(got);
    free(want);
}

Test(gguf, a_folder_holds_one_file_or_says_so, .init = make_folder, .fini = remove_folder)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t size;
    char *bytes = read_file(test_data("gguf/bert-f32.gguf"), &size);

    write_file(in_folder("a.gguf"), bytes, size);
    write_file(in_folder("config.json"), "{}", 2); /* files next to it are not read */
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(symlink("/nowhere", in_folder("link.gguf")), 0);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "2 GGUF files"), "%s", error.message);
    cr_expect(strstr(error.hint, ".gguf"), "%s", error.hint);
    cr_expect_eq(try_load(in_folder("a.gguf"), NULL, &error), GPUSERVE_OK);
    cr_expect_eq(unlink(in_folder("link.gguf")), 0);
    cr_expect_eq(symlink(test_data("gguf/bert-f32.gguf"), in_folder("b.GGUF")), 0);
    cr_expect_eq(try_load(in_folder("b.GGUF"), NULL, &error), GPUSERVE_OK, "%s", error.message);
    write_file(in_folder("model.safetensors"), "x", 1); /* safetensors go first */
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "config.json"), "%s", error.message);
    free(bytes);
}

/* ---------------------------------------------------------------------------------- split files */

#define PART "bert-split-00001-of-00003.gguf"

/* Write the three parts, or links to them, to FOLDER/FORMAT, with the part's number. */
static void put_parts(const char *format, bool as_links)
{
    for (int i = 1; i <= 3; i++) {
        char name[64], from[128];
        size_t size;
        char *bytes;

        snprintf(from, sizeof(from), "gguf/bert-split-%05d-of-00003.gguf", i);
        snprintf(name, sizeof(name), format, i);
        bytes = read_file(test_data(from), &size);
        if (!as_links)
            write_file(in_folder(name), bytes, size);
        snprintf(from, sizeof(from), "../../blobs/%d", i);
        if (as_links)
            cr_assert_eq(symlink(from, in_folder(name)), 0);
        free(bytes);
    }
}

Test(gguf, parts_in_one_folder_are_one_model, .init = make_folder, .fini = remove_folder)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    put_parts("bert-split-%05d-of-00003.gguf", false);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_OK, "%s", error.message);
    write_file(in_folder("other.gguf"), "x", 1);
    cr_expect_eq(try_load(folder, NULL, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "4 GGUF files") && strstr(error.hint, PART), "%s: %s",
              error.message, error.hint);
    cr_expect_eq(try_load(in_folder(PART), NULL, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(unlink(in_folder("other.gguf")), 0);
    cr_assert_eq(unlink(in_folder("bert-split-00002-of-00003.gguf")), 0);
    cr_expect_eq(try_load(in_folder(PART), NULL, &error), GPUSERVE_E_NOT_FOUND);
    cr_expect(strstr(error.message, "bert-split-00002-of-00003.gguf: no such file"), "%s",
              error.message);
    cr_expect(strstr(error.hint, "a split GGUF file of 3 parts"), "%s", error.hint);
}

/* In the hub's cache the parts are links to files that are named by their hashes. */
Test(gguf, parts_in_the_hub_s_cache_are_found_by_their_links, .init = make_folder,
     .fini = remove_folder)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(mkdir(in_folder("models--o--n"), 0700), 0);
    cr_assert_eq(mkdir(in_folder("models--o--n/blobs"), 0700), 0);
    cr_assert_eq(mkdir(in_folder("models--o--n/snapshots"), 0700), 0);
    cr_assert_eq(mkdir(in_folder("models--o--n/snapshots/c"), 0700), 0);
    put_parts("models--o--n/blobs/%d", false);
    put_parts("models--o--n/snapshots/c/bert-split-%05d-of-00003.gguf", true);
    cr_expect_eq(try_load(in_folder("models--o--n/snapshots/c/" PART), NULL, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_expect_eq(try_load(in_folder("models--o--n/snapshots/c"), NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
}
