/*
 * test_model_lora.c - LoRA adapters: by request equal to merged, and adapters that are wrong.
 *
 * tests/python/test_lora.py compares both with PEFT.
 */
#define _GNU_SOURCE
#include "tests/model/support.h"

#include "lib/model/formats/lora.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gsv_run embed_run(const struct loaded *model, int32_t adapter)
{
    return (struct gsv_run){ .task = GPUSERVE_TASK_EMBED,
                             .dimensions = gsv_spec_facts(model->spec)->dim,
                             .normalize = true,
                             .adapter = adapter };
}

static double *doubles(const float *values, size_t n)
{
    double *copy = malloc(n * sizeof(*copy));

    for (size_t i = 0; i < n; i++)
        copy[i] = values[i];
    return copy;
}

/* Each adapter of a base, merged and by request. */
static void check_adapters(const char *base, const char *const *names, size_t n)
{
    struct gsv_adapter_dirs adapters = { .n = 0 };
    struct load_options options = { .max_tokens = 256 };
    char path[512], below[64];
    struct loaded several;
    struct texts texts;

    snprintf(below, sizeof(below), "models/%s/reference.safetensors", base);
    texts = read_texts(test_data(below));
    snprintf(below, sizeof(below), "models/%s", base);
    snprintf(path, sizeof(path), "%s", test_data(below));
    for (size_t i = 0; i < n; i++)
        add_adapter(&adapters, names[i]);
    options.adapters = &adapters;
    load_model(&several, path, &options);
    cr_assert_eq(gsv_spec_facts(several.spec)->n_adapters, n);
    for (size_t i = 0; i < n; i++) {
        const size_t columns = (size_t)gsv_spec_facts(several.spec)->dim;
        struct load_options merged = { .max_tokens = 256 };
        char adapter[512];
        struct loaded one;
        struct difference d;
        double *want;
        float *sum, *got;

        snprintf(below, sizeof(below), "lora/%s", names[i]);
        snprintf(adapter, sizeof(adapter), "%s", test_data(below));
        merged.lora = adapter;
        load_model(&one, path, &merged);
        sum = run_all(&one, &texts, embed_run(&one, 0));
        got = run_all(&several, &texts, embed_run(&several, (int32_t)i + 1));
        want = doubles(sum, texts.n * columns);
        d = compare_rows(got, want, texts.n, columns);
        cr_expect(d.largest <= 1e-5, "%s: difference %g", names[i], d.largest);
        free(want);
        free(got);
        free(sum);
        unload_model(&one);
    }
    unload_model(&several);
    close_adapters(&adapters);
    free_texts(&texts);
}

Test(model_lora, by_request_equals_merged)
{
    static const char *const bert[] = { "attention", "words" };
    static const char *const qwen3[] = { "decoder" };
    static const char *const modernbert[] = { "modern" };

    check_adapters("bert", bert, 2);
    check_adapters("qwen3", qwen3, 1);
    check_adapters("modernbert", modernbert, 1);
}

/* ------------------------------------------------------------------------- several in one batch */

enum { MAX_MIXED = 24 };

/* The first texts in one batch, each with one of the adapters or none, have the bits of each alone.
 */
static void check_mixed(const char *base, const struct gsv_adapter_dirs *adapters, uint32_t dtype)
{
    struct load_options options = { .max_tokens = 256, .adapters = adapters, .dtype = dtype };
    char path[512], below[64];
    int32_t of[MAX_MIXED], last;
    struct loaded model;
    struct texts texts;
    struct gsv_run run;
    size_t columns, n;
    float *mixed, *alone;

    snprintf(below, sizeof(below), "models/%s/reference.safetensors", base);
    texts = read_texts(test_data(below));
    snprintf(below, sizeof(below), "models/%s", base);
    snprintf(path, sizeof(path), "%s", test_data(below));
    load_model(&model, path, &options);
    run = embed_run(&model, 0);
    columns = (size_t)run.dimensions;
    last = (int32_t)gsv_spec_facts(model.spec)->n_adapters;
    n = texts.n < MAX_MIXED ? texts.n : MAX_MIXED;
    cr_assert_gt(last, 0);
    cr_assert_gt(n, (size_t)last, "%s: a text for each adapter and one for none", base);
    mixed = calloc(n * columns, sizeof(*mixed));
    alone = calloc(columns, sizeof(*alone));
    for (int32_t first = 0; first < 2; first++) { /* with and without texts without an adapter */
        for (size_t i = 0; i < n; i++)
            of[i] = first + (int32_t)(i * (size_t)(last + 1 - first) / n);
        run.adapters = of;
        run.output = mixed;
        run_texts(&model, &texts, 0, n, &run);
        for (size_t i = 0; i < n; i++) {
            run.adapters = NULL;
            run.adapter = of[i];
            run.output = alone;
            run_texts(&model, &texts, i, 1, &run);
            cr_expect_eq(memcmp(alone, mixed + i * columns, columns * sizeof(*alone)), 0,
                         "%s, dtype %u: text %zu with adapter %d has other bits than alone", base,
                         dtype, i, of[i]);
        }
    }
    free(mixed);
    free(alone);
    unload_model(&model);
    free_texts(&texts);
}

Test(model_lora, adapters_in_one_batch_have_the_bits_of_each_alone)
{
    static const uint32_t dtypes[] = { GPUSERVE_DTYPE_FLOAT32, GPUSERVE_DTYPE_BFLOAT16,
                                       GPUSERVE_DTYPE_INT8 };
    static const struct {
        const char *base, *names[3];
    } cases[] = { { "bert", { "attention", "words" } },
                  { "qwen3", { "decoder" } },
                  { "modernbert", { "modern" } },
                  { "jina-v3-hub-lora", { NULL } } };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gsv_adapter_dirs adapters = { .n = 0 };

        for (size_t j = 0; cases[i].names[j]; j++)
            add_adapter(&adapters, cases[i].names[j]);
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
            check_mixed(cases[i].base, adapters.n > 0 ? &adapters : NULL, dtypes[d]);
        close_adapters(&adapters);
    }
}

/* The ranges of a batch ascend. */
Test(model_lora, adapters_out_of_order_are_refused)
{
    static const int32_t of[] = { 2, 1 };
    const struct load_options options = { .max_tokens = 256 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_host_batch batch;
    struct loaded model;
    struct texts texts;
    struct gsv_run run;
    float rows[2 * 64];
    char path[512];

    texts = read_texts(test_data("models/jina-v3-hub-lora/reference.safetensors"));
    snprintf(path, sizeof(path), "%s", test_data("models/jina-v3-hub-lora"));
    load_model(&model, path, &options);
    batch = make_batch(gsv_spec_facts(model.spec), &texts, 0, 2);
    run = embed_run(&model, 0);
    run.adapters = of;
    run.output = rows;
    cr_expect_eq(gsv_net_run(model.work, &batch, &run, &error), GPUSERVE_E_INVALID);
    cr_expect_str_eq(error.message,
                     "text 1 of a batch has adapter 1 after adapter 2: they must ascend");
    free_batch(&batch);
    unload_model(&model);
    free_texts(&texts);
}

/* A text in the adapter's files, replaced by one of equal length. */
struct damage {
    const char *name, *from, *to;
    gpuserve_status status;
    const char *words;
};

static const struct damage damages[] = {
    { "a factor of another name", "query.lora_A", "query.lora_X", GPUSERVE_E_UNSUPPORTED,
      "is not one of a LoRA adapter" },
    { "a name without the prefix", "base_model.model.encoder.layer.1.attention.self.value.lora_B",
      "best_model.model.encoder.layer.1.attention.self.value.lora_B", GPUSERVE_E_UNSUPPORTED,
      "is not one of a LoRA adapter" },
    { "a module that the base lacks", "layer.0.attention.self.value.lora_B",
      "layer.7.attention.self.value.lora_B", GPUSERVE_E_FORMAT,
      "which the base model does not have" },
    { "a factor turned around", "[4,32]", "[32,4]", GPUSERVE_E_FORMAT, "does not fit" },
    { "a factor of another rank", "[32,4]", "[16,8]", GPUSERVE_E_FORMAT, "does not fit" },
    { "a factor that is a vector", "[4,32]", " [128]", GPUSERVE_E_FORMAT, "does not fit" },
    { "a factor without numbers", "\"F32\"", "\"C64\"", GPUSERVE_E_FORMAT, "" },
    { "a whole tensor in place of a factor", "self.query.lora_A.weight", "self.query.lora_A.weighs",
      GPUSERVE_E_UNSUPPORTED, "is not one of a LoRA adapter" },
};

static void replace(const char *path, const char *from, const char *to)
{
    size_t size;
    char *bytes = read_file(path, &size);
    char *at = memmem(bytes, size, from, strlen(from));

    cr_assert_eq(strlen(from), strlen(to), "%s", from);
    cr_assert(at, "%s", from);
    memcpy(at, to, strlen(to));
    write_file(path, bytes, size);
    free(bytes);
}

Test(model_lora, wrong_adapters_are_refused)
{
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_dir *dir = NULL, *base = NULL;
        struct gsv_spec *spec = NULL;
        char folder[] = "/tmp/gsv-lora-XXXXXX", file[96];
        gpuserve_status st;

        cr_assert(mkdtemp(folder));
        each_file(test_data("lora/attention"), folder);
        snprintf(file, sizeof(file), "%s/adapter_model.safetensors", folder);
        replace(file, damages[i].from, damages[i].to);
        cr_assert_eq(gsv_dir_open(&base, test_data("models/bert"), &error), GPUSERVE_OK);
        cr_assert_eq(gsv_dir_open(&dir, folder, &error), GPUSERVE_OK);
        cr_assert_eq(gsv_dir_set_base(dir, base, &error), GPUSERVE_OK);
        st = gsv_spec_load(&spec, dir, NULL, 0, &error);
        cr_expect_eq(st, damages[i].status, "%s: status %d, %s", damages[i].name, (int)st,
                     error.message);
        cr_expect(strstr(error.message, damages[i].words), "%s: %s", damages[i].name,
                  error.message);
        cr_expect_null(spec);
        gsv_spec_free(&spec);
        gsv_dir_close(&dir);
        each_file(folder, NULL);
    }
}

/* A valid and an invalid adapter: the load fails and frees both. */
Test(model_lora, a_second_adapter_that_is_wrong)
{
    const struct gsv_head_files no_heads = { NULL, NULL };
    struct gsv_adapter_dirs adapters = { .n = 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_dir *dir = NULL;
    struct gsv_spec *spec = NULL;

    add_adapter(&adapters, "attention");
    add_adapter(&adapters, "decoder");
    cr_assert_eq(gsv_dir_open(&dir, test_data("models/bert"), &error), GPUSERVE_OK);
    cr_expect_eq(gsv_spec_load_with(&spec, dir, &adapters, &no_heads, 0, &error),
                 GPUSERVE_E_FORMAT);
    cr_expect_null(spec);
    gsv_dir_close(&dir);
    close_adapters(&adapters);
}

/* A directory is an adapter by its own files only. */
Test(model_lora, the_base_of_a_directory)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_dir *dir = NULL;
    char *base;

    cr_assert_eq(gsv_dir_open(&dir, test_data("lora/attention"), &error), GPUSERVE_OK);
    cr_expect_eq(gsv_lora_base(&base, dir, &error), GPUSERVE_OK);
    cr_expect_str_eq(base, "org/bert");
    free(base);
    gsv_dir_close(&dir);
    cr_assert_eq(gsv_dir_open(&dir, test_data("models/bert"), &error), GPUSERVE_OK);
    cr_expect_eq(gsv_lora_base(&base, dir, &error), GPUSERVE_OK);
    cr_expect_null(base);
    gsv_dir_close(&dir);
}
