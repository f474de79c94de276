/*
 * test_programs.c - the key of a recording includes the operations of a batch: runs of equal shape
 * that differ in one property do not share a recording.
 */
#include "lib/model/encoder/encoder.h"
#include "tests/kernels_cuda/harness.h"
#include "tests/model/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXTS = 2, N_RECORDED = 4 /* run, recorded, replayed */ };

static const int32_t same[N_TEXTS] = { 1, 1 }, mixed[N_TEXTS] = { 1, 2 },
                     turned[N_TEXTS] = { 0, 2 };

#define EMBED(columns, ...)                                               \
    {                                                                     \
        .task = GPUSERVE_TASK_EMBED, .dimensions = (columns), __VA_ARGS__ \
    }

static const struct {
    const char *member, *model;
    struct gsv_run before, run;
    const char *texts; /* the model whose token ids are used; NULL: the same */
} pairs[] = {
    { "task",
      "bert-masked",
      { .task = GPUSERVE_TASK_TOKEN_VECTORS },
      { .task = GPUSERVE_TASK_SPARSE } },
    { "score",
      "bert-multi",
      { .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_RAW },
      { .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_SIGMOID } },
    { "normalize", "bert", EMBED(32, .normalize = false), EMBED(32, .normalize = true) },
    { "dimensions", "bert", EMBED(32, .normalize = true), EMBED(8, .normalize = true) },
    { "skip", "st-no-prompt", EMBED(96, .skip = 0), EMBED(96, .skip = 1) },
    { "adapter", "jina-v3-hub-lora", EMBED(16, .adapter = 1), EMBED(16, .adapter = 2) },
    { "adapters", "jina-v3-hub-lora", EMBED(16, .adapters = same), EMBED(16, .adapters = mixed) },
    { "adapters of several", "jina-v3-hub-lora", EMBED(16, .adapters = mixed),
      EMBED(16, .adapters = turned) },
    { "route", "st-router-dense", EMBED(16, .route = 0), EMBED(16, .route = 1), "colbert" },
    { "raw",
      "colbert",
      { .task = GPUSERVE_TASK_TOKEN_VECTORS, .raw = true },
      { .task = GPUSERVE_TASK_TOKEN_VECTORS } },
};

/* Texts are token ids of the reference of `from`. */
static void load_heads(struct loaded *model, struct texts *texts, const char *name,
                       const char *from, const char *heads, uint32_t dtype)
{
    const struct load_options options = {
        .backend = cuda_backend(), .max_tokens = 256, .heads = heads, .dtype = dtype
    };
    char path[1024], below[128];

    snprintf(below, sizeof(below), "models/%s", name);
    snprintf(path, sizeof(path), "%s", test_data(below));
    load_model(model, path, &options);
    snprintf(below, sizeof(below), "models/%s/reference.safetensors", from);
    *texts = read_texts(test_data(below));
}

static void load(struct loaded *model, struct texts *texts, const char *name, const char *from)
{
    load_heads(model, texts, name, from, NULL, 0);
}

static size_t n_floats(const struct loaded *model, const struct texts *texts,
                       const struct gsv_run *run)
{
    size_t rows = 0;

    for (size_t i = 0; i < N_TEXTS; i++)
        rows += gsv_is_by_token(run->task) ? (size_t)texts->n_tokens[i] : 1;
    return rows * (size_t)gsv_run_columns(gsv_spec_facts(model->spec), run);
}

/* Runs the first texts as one batch, `n` times. Owned. */
static float *run_often(const struct loaded *model, const struct texts *texts, struct gsv_run run,
                        int n)
{
    run.output = calloc(n_floats(model, texts, &run), sizeof(float));
    cr_assert_not_null(run.output);
    for (int i = 0; i < n; i++)
        run_texts(model, texts, 0, N_TEXTS, &run);
    return run.output;
}

Test(cuda_programs, each_member_of_a_program_tells_recordings_apart)
{
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const char *from = pairs[i].texts ? pairs[i].texts : pairs[i].model;
        struct loaded fresh, used;
        struct texts texts;
        float *want, *got;

        load(&fresh, &texts, pairs[i].model, from);
        want = run_often(&fresh, &texts, pairs[i].run, 1);
        unload_model(&fresh);
        free_texts(&texts);
        load(&used, &texts, pairs[i].model, from);
        free(run_often(&used, &texts, pairs[i].before, N_RECORDED));
        got = run_often(&used, &texts, pairs[i].run, 1);
        cr_expect_leq(distance(got, want, n_floats(&used, &texts, &pairs[i].run)), 1e-5,
                      "%s is not looked at", pairs[i].member);
        unload_model(&used);
        free_texts(&texts);
        free(want);
        free(got);
    }
}

/* Given hidden states are pooled, not those that the encoder would compute. */
Test(cuda_programs, given_hidden_states_tell_recordings_apart)
{
    const struct gsv_run embed = EMBED(32, .normalize = false);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct loaded model;
    struct texts texts;
    struct gpuserve_host_batch batch;
    struct gsv_run run = embed;
    float vectors[N_TEXTS * 32] = { 0 }, *hidden;

    load(&model, &texts, "bert", "bert");
    free(run_often(&model, &texts, embed, N_RECORDED));
    batch = make_batch(gsv_spec_facts(model.spec), &texts, 0, N_TEXTS);
    hidden = calloc((size_t)batch.n_tokens * 32, sizeof(*hidden));
    for (int32_t i = 0; i < batch.n_tokens * 32; i++)
        hidden[i] = 2.0f;
    run.output = vectors;
    cr_assert_eq(gsv_exec_embed(model.work, &batch, hidden, &run, &error), GPUSERVE_OK, "%s",
                 error.message);
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        cr_expect_float_eq(vectors[i], 2, 1e-5, "number %zu", i);
    free(hidden);
    free_batch(&batch);
    unload_model(&model);
    free_texts(&texts);
}

/* Heads by index; the first number is that of the choice. */
static const struct gsv_head_choice choices[] = {
    { 1, { 0 } }, { 1, { 1 } }, { 1, { 2 } }, { 2, { 0, 1 } }, { 3, { 2, 0, 1 } }
};
enum { N_CHOICES = sizeof(choices) / sizeof(choices[0]), N_HEADS = 3 };

static void check_heads(const char *lines, const char *const files[N_HEADS], uint32_t dtype)
{
    struct loaded used, model;
    struct texts texts;
    float *want[N_HEADS];

    for (size_t i = 0; i < N_HEADS; i++) {
        load_heads(&model, &texts, "bert", "bert", files[i], dtype);
        want[i] = run_often(&model, &texts, (struct gsv_run){ .task = GPUSERVE_TASK_CLASSIFY }, 1);
        unload_model(&model);
        free_texts(&texts);
    }
    load_heads(&used, &texts, "bert", "bert", lines, dtype);
    for (size_t i = 0; i < 2 * N_CHOICES; i++) { /* each is recorded before and after others */
        const struct gsv_run run = { .task = GPUSERVE_TASK_CLASSIFY,
                                     .heads = choices[i % N_CHOICES] };
        const size_t columns = (size_t)gsv_run_columns(gsv_spec_facts(used.spec), &run);
        float *got = run_often(&used, &texts, run, i < N_CHOICES ? N_RECORDED : 1);
        size_t first = 0;

        for (size_t k = 0; k < run.heads.n; k++) {
            const size_t head = run.heads.at[k];
            const size_t n = gsv_spec_facts(used.spec)->label_heads[head].n_labels;

            for (size_t text = 0; text < N_TEXTS; text++)
                cr_expect_eq(
                    memcmp(got + text * columns + first, want[head] + text * n, n * sizeof(float)),
                    0, "dtype %u, choice %zu: head %zu has other bits than alone", dtype,
                    i % N_CHOICES, head);
            first += n;
        }
        free(got);
    }
    unload_model(&used);
    free_texts(&texts);
    for (size_t i = 0; i < N_HEADS; i++)
        free(want[i]);
}

Test(cuda_programs, heads_have_the_bits_of_each_alone_and_sets_of_them_are_told_apart)
{
    static const struct head_shape shapes[N_HEADS] = { { "plain", "softmax", "normalized", { 3 } },
                                                       { "deep", "none", "raw", { 10, 7, 9, 4 } },
                                                       { "two", "sigmoid", "raw", { 8, 17 } } };
    char folder[] = "/tmp/gsv-heads-XXXXXX", lines[400] = "", file[N_HEADS][100];
    const char *const files[N_HEADS] = { file[0], file[1], file[2] };

    cr_assert_not_null(mkdtemp(folder));
    for (size_t i = 0; i < N_HEADS; i++) {
        write_head(folder, &shapes[i], 32);
        snprintf(file[i], sizeof(file[i]), "%s/%s.safetensors\n", folder, shapes[i].name);
        strcat(lines, file[i]);
    }
    check_heads(lines, files, GPUSERVE_DTYPE_FLOAT32);
    check_heads(lines, files, GPUSERVE_DTYPE_FLOAT16);
    each_file(folder, NULL);
}
