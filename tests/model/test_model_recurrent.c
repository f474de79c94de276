/*
 * test_model_recurrent.c - models of LSTM and GRU layers on both host backends: equal results,
 * batches, and weights that move. tests/python/test_recurrent.py compares them with torch.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = { "recurrent/torch",         "recurrent/torch-two-layers",
                                     "recurrent/torch-no-bias", "recurrent/keras-two-layers",
                                     "recurrent/gru",           "recurrent/gru-two-layers",
                                     "recurrent/gru-keras",     "recurrent/gru-keras-before" };
#define N_NAMES (sizeof(names) / sizeof(names[0]))

/* Texts of 1 to 12 tokens. */
static struct texts make_texts(void)
{
    enum { N = 40, MAX = 12, WORDS = 18 };
    struct texts texts = { malloc(N * MAX * sizeof(int32_t)), malloc(N * sizeof(int32_t)), N };
    size_t at = 0;

    for (int32_t i = 0; i < N; i++) {
        texts.n_tokens[i] = 1 + i * 7 % MAX;
        for (int32_t t = 0; t < texts.n_tokens[i]; t++)
            texts.ids[at++] = (i * 31 + t * t * 5) % WORDS;
    }
    return texts;
}

static const struct gsv_run classify = { .task = GPUSERVE_TASK_CLASSIFY,
                                         .score = GPUSERVE_SCORE_RAW };

/* All texts in one batch, or each alone. */
static float *run_model(const char *name, const struct gpuserve_backend *backend,
                        const struct texts *texts, bool alone, size_t *columns)
{
    const struct load_options options = { .backend = backend, .max_sequences = 64 };
    struct gsv_run run = classify;
    struct loaded model;
    float *rows;

    load_model(&model, test_data(name), &options);
    *columns = gsv_spec_facts(model.spec)->n_labels;
    rows = calloc(texts->n * *columns, sizeof(*rows));
    for (size_t i = 0; i < texts->n; i += alone ? 1 : texts->n) {
        run.output = rows + i * *columns;
        run_texts(&model, texts, i, alone ? 1 : texts->n, &run);
    }
    unload_model(&model);
    return rows;
}

Test(model_recurrent, backends_agree_and_batches_do_not_matter)
{
    struct texts texts = make_texts();

    for (size_t i = 0; i < N_NAMES; i++) {
        size_t columns;
        float *cpu = run_model(names[i], gsv_backend_cpu(), &texts, false, &columns);
        float *alone = run_model(names[i], gsv_backend_cpu(), &texts, true, &columns);
        float *ref = run_model(names[i], gsv_backend_ref(), &texts, false, &columns);

        cr_expect_arr_eq(cpu, alone, texts.n * columns * sizeof(float), "%s", names[i]);
        for (size_t j = 0; j < texts.n * columns; j++)
            cr_expect(fabsf(cpu[j] - ref[j]) <= 3e-6f, "%s: %g is not %g", names[i], (double)cpu[j],
                      (double)ref[j]);
        free(cpu), free(alone), free(ref);
    }
    free_texts(&texts);
}

/* Offloaded weights come back at another address. */
Test(model_recurrent, weights_move)
{
    const struct gpuserve_backend *const backends[] = { gsv_backend_cpu(), gsv_backend_ref() };
    struct texts texts = make_texts();

    for (size_t i = 0; i < 2; i++) {
        const struct load_options options = { .backend = backends[i],
                                              .max_tokens = 1024,
                                              .max_sequences = 64 };
        const struct gsv_exec_options exec = { .dtype = GPUSERVE_DTYPE_FLOAT32,
                                               .n_threads = 1,
                                               .max_tokens = 1024,
                                               .max_sequences = 64,
                                               .max_seqlen = 12 };
        struct loaded model;
        float *before, *after;
        void *host, *other;
        size_t bytes;

        load_model(&model, test_data("recurrent/torch-two-layers"), &options);
        before = run_all(&model, &texts, classify);
        bytes = (size_t)gsv_net_bytes(model.spec, model.backend, GPUSERVE_DTYPE_FLOAT32);
        host = malloc(bytes);
        gsv_exec_free(&model.work);
        cr_assert_eq(gsv_net_offload(model.net, host, NULL), GPUSERVE_OK);
        /* Takes the former address. */
        cr_assert_eq(model.backend->memory_alloc(model.device, &other, bytes, NULL), GPUSERVE_OK);
        memset(other, 0xFF, bytes);
        cr_assert_eq(gsv_net_reload(model.net, host, NULL), GPUSERVE_OK);
        cr_assert_eq(gsv_exec_create(&model.work, model.net, &exec, NULL), GPUSERVE_OK);
        after = run_all(&model, &texts, classify);
        cr_expect_arr_eq(before, after,
                         texts.n * gsv_spec_facts(model.spec)->n_labels * sizeof(float));
        model.backend->memory_free(model.device, other);
        free(before), free(after), free(host);
        unload_model(&model);
    }
    free_texts(&texts);
}

/* Make the biases of a file integers: these are no weights, so that a model may leave them unread.
 */
static void hide_biases(const char *path)
{
    static const char bias[] = "_cell/bias\":{\"dtype\":\"F32\"";
    size_t size, n = 0;
    char *bytes = read_file(path, &size);

    for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), bias, strlen(bias))); n++)
        *(strchr(at, 'F')) = 'I';
    cr_assert_gt(n, 0);
    write_file(path, bytes, size);
    free(bytes);
}

/* The digest of a GRU of Keras without biases; `reset_after` is "true" or "false". */
static void digest_of(const char *reset_after, uint64_t digest[2])
{
    static const char config[] = "{ \"model_type\": \"recurrent\", \"cell\": \"gru\", "
                                 "\"layout\": \"keras\", \"vocab_size\": 18, "
                                 "\"embedding_size\": 8, \"hidden_size\": 21, "
                                 "\"bidirectional\": true, \"pooling\": \"last\", "
                                 "\"max_length\": 12, \"pad_token_id\": 1, \"bias\": false, "
                                 "\"reset_after\": %s }";
    char folder[] = "/tmp/gsv-recurrent-XXXXXX", path[64], text[512];
    struct loaded model;

    cr_assert_not_null(mkdtemp(folder));
    each_file(test_data("recurrent/gru-keras-before"), folder);
    snprintf(text, sizeof(text), config, reset_after);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    write_file(path, text, strlen(text));
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    hide_biases(path);
    load_model(&model, folder, &(struct load_options){ 0 });
    gsv_net_digest(model.net, digest);
    unload_model(&model);
    each_file(folder, NULL);
}

Test(model_recurrent, the_digest_names_the_cell)
{
    uint64_t after[2], before[2];

    digest_of("true", after);
    digest_of("false", before);
    cr_expect_neq(after[0], before[0]);
}

Test(model_recurrent, other_dtypes_are_refused)
{
    struct gpuserve_device *device = NULL;
    struct gsv_dir *dir = NULL;
    struct gsv_spec *spec = NULL;
    struct gsv_net *net = NULL;
    const struct gsv_net_options options = { .dtype = GPUSERVE_DTYPE_BFLOAT16, .n_threads = 1 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gsv_backend_cpu()->device_open(&device, 0, &error), GPUSERVE_OK);
    cr_assert_eq(gsv_dir_open(&dir, test_data("recurrent/torch"), &error), GPUSERVE_OK);
    cr_assert_eq(gsv_spec_load(&spec, dir, NULL, 0, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(gsv_net_load(&net, spec, gsv_backend_cpu(), device, &options, &error),
                 GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "LSTM layers computes in float32 only"), "%s", error.message);
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
    gsv_backend_cpu()->device_close(&device);
}
