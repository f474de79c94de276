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
