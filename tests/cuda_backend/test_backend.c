/*
 * test_backend.c - lib/model on the whole CUDA backend, on the emulator.
 *
 * Real and tiny models are compared with vectors that torch computed in float64. Streams run late
 * and in random order. Launches, copies, allocations and bytes are counted. Each CUDA runtime call
 * fails in turn, with each class of error.
 */
#include "kernels/kernels.h"
#include "tests/base/sanitized.h"
#include "tests/cudaemu/emu.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void print_log(void *user, int32_t level, const char *message)
{
    (void)user;
    if (level <= GPUSERVE_LOG_WARNING)
        fprintf(stderr, "%s\n", message);
}

static const struct gpuserve_backend *cuda(void)
{
    static const struct gpuserve_backend *backend;
    static const struct gpuserve_host host = { sizeof(host), GPUSERVE_BACKEND_ABI, print_log,
                                               NULL };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    void *library;

    if (backend)
        return backend;
    library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    backend = ((gpuserve_backend_entry_fn)dlsym(library, GPUSERVE_BACKEND_ENTRY))(&host, &error);
    cr_assert_not_null(backend, "%s", error.message);
    return backend;
}

static struct gsv_run embed_run(const struct loaded *model)
{
    return (struct gsv_run){ .task = GPUSERVE_TASK_EMBED,
                             .dimensions = gsv_spec_facts(model->spec)->dim };
}

/* The first `n` texts of a reference file. */
static struct texts some_texts(const char *path, size_t n)
{
    struct texts texts = read_texts(path);

    cr_assert_geq(texts.n, n);
    texts.n = n;
    return texts;
}

static const char *tiny_reference(void)
{
    return test_data("models/bert/reference.safetensors");
}

static void load_named(struct loaded *model, const char *name, uint32_t dtype)
{
    const struct load_options options = { .backend = cuda(), .dtype = dtype, .max_tokens = 256 };
    char path[1024], below[64];

    snprintf(below, sizeof(below), "models/%s", name);
    snprintf(path, sizeof(path), "%s", test_data(below));
    load_model(model, path, &options);
}

static void load_tiny(struct loaded *model, uint32_t dtype)
{
    load_named(model, "bert", dtype);
}

static struct gsv_emu_counters counters(void)
{
    struct gsv_emu_counters c;

    gsv_emu_get_counters(&c);
    return c;
}

/* ------------------------------------------------------------------------------------ numbers */

struct bounds {
    uint32_t dtype;
    double cosine, largest;
    int32_t adapter; /* as in gsv_run */
};

/* Unnormalized means are several times larger than components of a unit vector, so is `largest`. */
static void check_vectors(const char *path, const char *reference, const char *tensor, size_t n,
                          const struct bounds *b)
{
    struct loaded model;
    struct load_options options = { .backend = cuda(), .dtype = b->dtype, .max_tokens = 512 };
    struct texts texts = some_texts(test_data(reference), n);
    size_t count;
    double *want = read_reference(test_data(reference), tensor, &count);
    struct difference d;
    struct gsv_run run;
    float *got;

    load_model(&model, path, &options);
    run = embed_run(&model);
    run.adapter = b->adapter;
    got = run_all(&model, &texts, run);
    d = compare_rows(got, want, texts.n, (size_t)gsv_spec_facts(model.spec)->dim);
    cr_expect(d.min_cosine >= b->cosine, "%s, dtype %u: cosine %.9f", path, b->dtype, d.min_cosine);
    cr_expect(d.largest <= b->largest, "%s, dtype %u: difference %g", path, b->dtype, d.largest);
    free(got);
    free(want);
    free_texts(&texts);
    unload_model(&model);
    cr_expect_str_empty(gsv_emu_report());
    cr_expect_eq(counters().live_allocations, 0);
    cr_expect_eq(counters().live_objects, 0);
}

Test(cuda_backend, tiny_models_equal_torch)
{
    static const struct bounds bounds[] = {
        { GPUSERVE_DTYPE_FLOAT32, 0.999999, 2e-5 }, { GPUSERVE_DTYPE_TF32, 0.9999, 2e-2 },
        { GPUSERVE_DTYPE_FLOAT16, 0.9999, 2e-2 },   { GPUSERVE_DTYPE_BFLOAT16, 0.998, 1e-1 },
        { GPUSERVE_DTYPE_INT8, 0.99, 3e-1 },
    };
    static const char *const names[] = { "bert", "mpnet", "roberta", "bert-gelu-new" };
    char path[1024], reference[256];

    for (size_t m = 0; m < sizeof(names) / sizeof(names[0]); m++) {
        snprintf(reference, sizeof(reference), "models/%s", names[m]);
        snprintf(path, sizeof(path), "%s", test_data(reference));
        snprintf(reference, sizeof(reference), "models/%s/reference.safetensors", names[m]);
        for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
            if (!IS_SANITIZED || i == m % (sizeof(bounds) / sizeof(bounds[0])))
                check_vectors(path, reference, "embedding_f64", 4, &bounds[i]);
    }
}

/* A model of each family whose operations differ: norms, positions, attention, gates. */
Test(cuda_backend, families_equal_transformers)
{
    static const struct bounds bounds[] = {
        { GPUSERVE_DTYPE_FLOAT32, 0.9999999, 1e-4 },
        { GPUSERVE_DTYPE_FLOAT16, 0.9995, 1.0 },
        { GPUSERVE_DTYPE_BFLOAT16, 0.995, 1.0 },
    };
    static const char *const names[] = {
        "albert-groups",
        "electra",
        "ernie",
        "megatron-bert",
        "rembert",
        "deberta",
        "deberta-v3",
        "modernbert",
        "eurobert",
        "nomic-bert",
        "gte-hub-ntk",
        "jina-v3",
        "umt5-encoder",
        "clip-text",
        "t5-encoder-gated",
        "qwen3",
        "mistral",
        "llama-yarn",
        "gemma2",
        "gemma3-bidirectional",
        "jina-v2-hub",
        "jina-v2-code-hub",
        "jina-v3-hub-lora",
        "nomic-moe-hub",
        "deberta-v2-conv",
        "mobilebert",
        "mobilebert-options",
        "bart",
        "bart-scaled",
    };
    char path[1024], reference[256];

    for (size_t m = 0; m < sizeof(names) / sizeof(names[0]); m += FOR_RACES ? 2 : 1) {
        snprintf(reference, sizeof(reference), "models/%s", names[m]);
        snprintf(path, sizeof(path), "%s", test_data(reference));
        snprintf(reference, sizeof(reference), "models/%s/reference.safetensors", names[m]);
        for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
            if (!IS_SANITIZED || i == m % (sizeof(bounds) / sizeof(bounds[0])))
                check_vectors(path, reference, "embedding_f64", 4, &bounds[i]);
    }
}

/* Options that change no format: float32 shows them. */
Test(cuda_backend, options_equal_transformers)
{
    static const struct bounds float32 = { GPUSERVE_DTYPE_FLOAT32, 0.9999999, 1e-4 };
    static const char *const names[] = {
        "roberta-prelayernorm", "xlm-roberta-xl",       "big-bird",       "longformer-window",
        "qwen2-window",         "qwen2-bidirectional",  "gemma3-causal",  "llama-linear",
        "llama-dynamic",        "llama-llama3",         "llama-longrope", "llama-bidirectional",
        "st-weighted-layers",   "gte-hub-multilingual",
    };
    char path[1024], reference[256];

    for (size_t m = 0; m < sizeof(names) / sizeof(names[0]); m += FOR_RACES ? 3 : 1) {
        snprintf(reference, sizeof(reference), "models/%s", names[m]);
        snprintf(path, sizeof(path), "%s", test_data(reference));
        snprintf(reference, sizeof(reference), "models/%s/reference.safetensors", names[m]);
        check_vectors(path, reference, "embedding_f64", 4, &float32);
    }
}

/* What a head computes, in float32: rows by text, or by token. */
static void check_head(const char *name, const char *tensor, uint32_t task)
{
    const struct gsv_run run = { .task = task, .score = GPUSERVE_SCORE_RAW };
    struct texts texts;
    struct loaded model;
    struct difference d;
    char reference[128];
    size_t count, columns, rows;
    double *want;
    float *got;

    snprintf(reference, sizeof(reference), "models/%s/reference.safetensors", name);
    texts = some_texts(test_data(reference), 4);
    want = read_reference(test_data(reference), tensor, &count);
    load_named(&model, name, GPUSERVE_DTYPE_FLOAT32);
    columns = (size_t)gsv_run_columns(gsv_spec_facts(model.spec), &run);
    rows = texts.n;
    for (size_t i = 0; i < texts.n && gsv_is_by_token(task); i++)
        rows += (size_t)texts.n_tokens[i] - 1;
    cr_assert_geq(count, rows * columns, "%s", name);
    got = run_all(&model, &texts, run);
    d = compare_rows(got, want, rows, columns);
    cr_expect_leq(d.largest, 1e-4, "%s: difference %g", name, d.largest);
    free(got);
    free(want);
    free_texts(&texts);
    unload_model(&model);
    cr_expect_str_empty(gsv_emu_report());
}

Test(cuda_backend, heads_equal_transformers)
{
    static const struct {
        const char *name, *tensor;
        uint32_t task;
    } heads[] = {
        { "albert-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "electra-multi", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "ernie-regression", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "mobilebert-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "deberta-v3-multi", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "modernbert-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "eurobert-multi-late", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "nomic-bert-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "gte-hub-regression", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "big-bird-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "xlm-roberta-xl-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "mpnet-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "qwen3-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "gemma3-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "bart-single", "logits_f64", GPUSERVE_TASK_CLASSIFY },
        { "deberta-tokens", "logits_f64", GPUSERVE_TASK_TOKEN_LABELS },
        { "modernbert-tokens", "logits_f64", GPUSERVE_TASK_TOKEN_LABELS },
        { "megatron-bert-tokens", "logits_f64", GPUSERVE_TASK_TOKEN_LABELS },
        { "roberta-prelayernorm-tokens", "logits_f64", GPUSERVE_TASK_TOKEN_LABELS },
        { "jina-v3-tokens", "logits_f64", GPUSERVE_TASK_TOKEN_LABELS },
        { "mistral-tokens", "logits_f64", GPUSERVE_TASK_TOKEN_LABELS },
        { "t5-tokens", "logits_f64", GPUSERVE_TASK_TOKEN_LABELS },
        { "colbert", "vectors_f64", GPUSERVE_TASK_TOKEN_VECTORS },
        { "rembert-masked", "sparse_f64", GPUSERVE_TASK_SPARSE },
        { "mobilebert-masked", "sparse_f64", GPUSERVE_TASK_SPARSE },
        { "modernbert-masked", "sparse_f64", GPUSERVE_TASK_SPARSE },
        { "deberta-v3-masked", "sparse_f64", GPUSERVE_TASK_SPARSE },
    };

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i += FOR_RACES ? 3 : 1)
        check_head(heads[i].name, heads[i].tensor, heads[i].task);
}

/* Products of different widths in one layer, and cross-attention: some in int8, others in float16.
 */
Test(cuda_backend, layers_of_two_dtypes)
{
    static const struct bounds int8 = { GPUSERVE_DTYPE_INT8, 0.98, 1.0 };
    static const char *const names[] = { "mobilebert", "mobilebert-options",
                                         "mobilebert-narrow-attention", "mobilebert-same-size",
                                         "bart" };
    char path[1024], reference[256];

    for (size_t m = 0; m < sizeof(names) / sizeof(names[0]); m++) {
        snprintf(reference, sizeof(reference), "models/%s", names[m]);
        snprintf(path, sizeof(path), "%s", test_data(reference));
        snprintf(reference, sizeof(reference), "models/%s/reference.safetensors", names[m]);
        check_vectors(path, reference, "embedding_f64", 4, &int8);
    }
}

Test(cuda_backend, adapters_equal_transformers)
{
    static const struct bounds bounds[] = {
        { GPUSERVE_DTYPE_FLOAT32, 0.9999999, 1e-4, 5 },
        { GPUSERVE_DTYPE_FLOAT16, 0.9995, 1.0, 5 },
        { GPUSERVE_DTYPE_BFLOAT16, 0.995, 1.0, 5 },
        { GPUSERVE_DTYPE_INT8, 0.99, 1.0, 5 },
    };
    char path[1024];

    snprintf(path, sizeof(path), "%s", test_data("models/jina-v3-hub-lora"));
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i += FOR_RACES ? 3 : 1)
        check_vectors(path, "models/jina-v3-hub-lora/reference.safetensors",
                      "embedding_text-matching_f64", 4, &bounds[i]);
}

/* One row per token of texts with special tokens anywhere; pad tokens have special positions. */
static void check_specials(const char *name)
{
    const struct gsv_run run = { .task = GPUSERVE_TASK_TOKEN_VECTORS };
    struct loaded model;
    char reference[128];
    struct texts texts;
    struct difference d;
    size_t count, columns;
    double *want;
    float *got;

    snprintf(reference, sizeof(reference), "models/%s/specials.safetensors", name);
    texts = read_texts(test_data(reference));
    want = read_reference(test_data(reference), "hidden_f64", &count);
    load_named(&model, name, GPUSERVE_DTYPE_FLOAT32);
    columns = (size_t)gsv_run_columns(gsv_spec_facts(model.spec), &run);
    got = run_all(&model, &texts, run);
    d = compare_rows(got, want, count / columns, columns);
    cr_expect(d.largest <= 5e-5, "%s: difference %g", name, d.largest);
    free(got);
    free(want);
    free_texts(&texts);
    unload_model(&model);
    cr_expect_str_empty(gsv_emu_report());
}

Test(cuda_backend, special_tokens_inside_texts_equal_transformers)
{
    check_specials("bert");
    check_specials("roberta");
    check_specials("xlm-roberta-single");
    check_specials("camembert");
    check_specials("mpnet");
}

#ifndef __SANITIZE_THREAD__ /* numbers of a large model, by the kernels of the small ones */
Test(cuda_backend, minilm_equals_torch)
{
    static const struct bounds fp16 = { GPUSERVE_DTYPE_FLOAT16, 0.99999, 5e-3 };
    char path[1024];

    snprintf(path, sizeof(path), "%s", real_model("all-MiniLM-L6-v2"));
    check_vectors(path, "oracle/vectors/all-MiniLM-L6-v2.safetensors", "mean_f64", 4, &fp16);
}

/* Calibrated by its first texts: as close to torch as int8 is, and close to the CPU's result. */
Test(cuda_backend, calibrated_int8_is_that_of_the_cpu)
{
    static const char reference[] = "oracle/vectors/all-MiniLM-L6-v2.safetensors";
    const struct gpuserve_backend *backends[] = { gsv_backend_cpu(), cuda() };
    struct load_options options = { .dtype = GPUSERVE_DTYPE_INT8, .max_tokens = 512 };
    struct texts texts = some_texts(test_data(reference), IS_SANITIZED ? 3 : 8);
    size_t count;
    double *want = read_reference(test_data(reference), "mean_f64", &count);
    struct gpuserve_host_batch calibration = { 0 };
    char path[1024];

    snprintf(path, sizeof(path), "%s", real_model("all-MiniLM-L6-v2"));
    for (int i = 0; i < 3; i++) { /* model 0 only makes the batch */
        struct loaded model;
        struct difference d;
        float *got;
        size_t dim;

        options.backend = backends[i == 2];
        load_model(&model, path, &options);
        dim = (size_t)gsv_spec_facts(model.spec)->dim;
        if (i == 0) {
            calibration = make_batch(gsv_spec_facts(model.spec), &texts, 0, texts.n);
            options.calibration = options.probes = &calibration;
            unload_model(&model);
            continue;
        }
        cr_expect(gsv_net_int8(model.net)->is_measured);
        cr_expect_geq(gsv_net_int8(model.net)->cosine, 0.997f);
        got = run_all(&model, &texts, embed_run(&model));
        d = compare_rows(got, want, texts.n, dim);
        cr_expect_geq(d.min_cosine, i == 1 ? 0.99 : 0.999, "%d: cosine %.6f", i, d.min_cosine);
        for (size_t j = 0; j < texts.n * dim; j++)
            want[j] = (double)got[j]; /* the next result is compared with the CPU's */
        free(got);
        unload_model(&model);
    }
    cr_expect_str_empty(gsv_emu_report());
    cr_expect_eq(counters().live_allocations, 0);
    free(want);
    free_batch(&calibration);
    free_texts(&texts);
}

#endif

/* ------------------------------------------------------------------- order, graphs, counting */

/* The same batch repeatedly: direct run, recording, replays. */
Test(cuda_backend, replayed_batches_have_the_same_bits_in_any_order)
{
    struct loaded model;
    struct texts texts = some_texts(tiny_reference(), 4);
    float *first, *again;
    size_t size;

    load_tiny(&model, GPUSERVE_DTYPE_FLOAT16);
    size = texts.n * (size_t)gsv_spec_facts(model.spec)->dim * sizeof(float);
    first = run_all(&model, &texts, embed_run(&model));
    for (uint64_t seed = 0; seed < 12; seed++) {
        gsv_emu_seed(seed);
        gsv_emu_set_late(seed % 4 != 3);
        again = run_all(&model, &texts, embed_run(&model));
        cr_expect_arr_eq(again, first, size, "seed %d", (int)seed);
        free(again);
    }
    cr_expect_gt(counters().graph_launches, 5, "recorded batches are replayed");
    cr_expect_str_empty(gsv_emu_report());
    free(first);
    free_texts(&texts);
    unload_model(&model);
}

/* The texts of a file, repeated `times` times. */
static struct texts repeated_texts(const char *path, size_t times)
{
    const struct texts once = read_texts(path);
    struct texts all = { .n = once.n * times };
    size_t n_ids = 0;

    for (size_t i = 0; i < once.n; i++)
        n_ids += (size_t)once.n_tokens[i];
    all.ids = malloc(times * n_ids * sizeof(*all.ids));
    all.n_tokens = malloc(all.n * sizeof(*all.n_tokens));
    for (size_t i = 0; i < times; i++) {
        memcpy(all.ids + i * n_ids, once.ids, n_ids * sizeof(*all.ids));
        memcpy(all.n_tokens + i * once.n, once.n_tokens, once.n * sizeof(*all.n_tokens));
    }
    free_texts((struct texts *)&once);
    return all;
}

/* A batch of 192 rows through a whole encoder: direct run, recording, replay. Our own kernels
 * compute the products that cuBLASLt rejects, also during recording: vectors and device stay
 * right. */
Test(cuda_backend, vectors_are_right_whatever_cublaslt_refuses)
{
    static const struct gsv_emu_refusal refusals[] = {
        { .columns_to = 1 << 20, .one_in = 2, .seed = 5 },
        { .in_check = 1, .columns_to = 1 << 20, .one_in = 3, .seed = 2 },
        { .columns_to = 1 << 20, .one_in = 1 },
    };
    struct texts texts = repeated_texts(tiny_reference(), 3);
    double *want = read_reference(tiny_reference(), "embedding_f64", &(size_t){ 0 });

    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct loaded model;
        size_t dim;

        load_tiny(&model, GPUSERVE_DTYPE_FLOAT16);
        dim = (size_t)gsv_spec_facts(model.spec)->dim;
        gsv_emu_refuse_products(&refusals[i]);
        for (int run = 0; run < 4; run++) {
            float *got = run_all(&model, &texts, embed_run(&model));

            for (size_t t = 0; t < texts.n; t += 6)
                cr_expect_geq(compare_rows(got + t * dim, want, 6, dim).min_cosine, 0.9999,
                              "refusal %zu, run %d, text %zu", i, run, t);
            free(got);
        }
        cr_expect_gt(gsv_emu_refused_products(), 0, "refusal %zu", i);
        gsv_emu_refuse_products(&(struct gsv_emu_refusal){ 0 });
        cr_expect_str_empty(gsv_emu_report());
        unload_model(&model);
    }
    cr_expect_gt(counters().graph_launches, 3, "batches are recorded and replayed");
    free(want);
    free_texts(&texts);
}

Test(cuda_backend, a_batch_costs_few_launches_one_copy_each_way_and_no_memory)
{
    struct loaded model;
    struct texts texts = some_texts(tiny_reference(), 4);
    uint64_t most;

    load_tiny(&model, GPUSERVE_DTYPE_FLOAT16);
    most = 2 + 7 * (uint64_t)gsv_spec_facts(model.spec)->n_layers;
    for (int i = 0; i < 6; i++) {
        const struct gsv_emu_counters before = counters();
        float *out = run_all(&model, &texts, embed_run(&model));
        const struct gsv_emu_counters after = counters();

        cr_expect_leq(after.launches - before.launches, most, "run %d: %d launches", i,
                      (int)(after.launches - before.launches));
        /* A launch is one call; what the device can do is not asked for each. */
        cr_expect_leq(after.calls - before.calls, after.launches - before.launches + 12,
                      "run %d: %d calls, %d launches", i, (int)(after.calls - before.calls),
                      (int)(after.launches - before.launches));
        cr_expect_eq(after.copies_in - before.copies_in, 1);
        cr_expect_eq(after.copies_out - before.copies_out, 1);
        cr_expect_eq(after.copies_inside - before.copies_inside, 0);
        cr_expect_eq(after.fills - before.fills, 0);
        cr_expect_eq(after.allocations - before.allocations, 0);
        cr_expect_eq(after.host_allocations - before.host_allocations, 0);
        free(out);
    }
    free_texts(&texts);
    unload_model(&model);
}

/* The predicted bytes equal the allocated bytes exactly. */
Test(cuda_backend, footprint_is_what_is_allocated)
{
    static const struct {
        const char *model;
        uint32_t dtype;
    } cases[] = {
        { "bert", GPUSERVE_DTYPE_FLOAT32 },
        { "bert", GPUSERVE_DTYPE_FLOAT16 },
        { "bert", GPUSERVE_DTYPE_INT8 },
        { "roberta", GPUSERVE_DTYPE_TF32 },
        { "mpnet", GPUSERVE_DTYPE_BFLOAT16 },
        { "mpnet", GPUSERVE_DTYPE_FLOAT32 },
        { "distilbert-single", GPUSERVE_DTYPE_FLOAT16 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t dtype = cases[i].dtype;
        char reference[64];
        struct texts texts;
        const struct gsv_exec_options options = {
            .dtype = dtype,
            .n_threads = 1,
            .max_tokens = 256,
            .max_sequences = 32,
            .max_seqlen = 40,
        };
        struct loaded model;
        uint64_t weights = 0, activations = 0, stream = 0;
        struct gsv_emu_counters c;
        float *out;

        gsv_emu_reset();
        snprintf(reference, sizeof(reference), "models/%s/reference.safetensors", cases[i].model);
        texts = some_texts(test_data(reference), 4);
        load_named(&model, cases[i].model, dtype);
        out = run_all(&model, &texts, embed_run(&model));
        weights = gsv_net_bytes(model.spec, cuda(), dtype);
        gsv_exec_bytes(model.spec, cuda(), &options, &activations, &stream);
        c = counters();
        cr_expect_eq(c.live_bytes + c.live_host_bytes, weights + activations + stream,
                     "%s, dtype %u: %llu + %llu taken, %llu + %llu + %llu told", cases[i].model,
                     dtype, (unsigned long long)c.live_bytes, (unsigned long long)c.live_host_bytes,
                     (unsigned long long)weights, (unsigned long long)activations,
                     (unsigned long long)stream);
        cr_expect_leq(c.peak_bytes + c.live_host_bytes, weights + activations + stream,
                      "%llu at most", (unsigned long long)c.peak_bytes);
        free(out);
        free_texts(&texts);
        unload_model(&model);
    }
}

/* ------------------------------------------------------------------------------- every failure */

/* After fork() the thread sanitizer no longer sees the synchronization and reports at random. */
#ifndef __SANITIZE_THREAD__

/* Result of a child process. */
enum found { FOUND_RIGHT = 0, FOUND_WRONG = 1, FOUND_NO_FAILURE = 2 };

struct scene {
    struct gsv_spec *spec;
    struct texts texts;
    struct gpuserve_host_batch batch;
    size_t n_floats;
    float *want;
};

static struct scene make_scene(void)
{
    struct loaded model;
    struct scene scene;

    load_tiny(&model, GPUSERVE_DTYPE_FLOAT16);
    scene.texts = some_texts(tiny_reference(), 3);
    scene.batch = make_batch(gsv_spec_facts(model.spec), &scene.texts, 0, scene.texts.n);
    scene.n_floats = scene.texts.n * (size_t)gsv_spec_facts(model.spec)->dim;
    scene.want = run_all(&model, &scene.texts, embed_run(&model));
    scene.spec = model.spec;
    model.spec = NULL;
    unload_model(&model);
    return scene;
}

static void free_scene(struct scene *scene)
{
    gsv_spec_free(&scene->spec);
    free_batch(&scene->batch);
    free_texts(&scene->texts);
    free(scene->want);
}

/* Opens, runs until batches are replayed, and closes; returns the first failure. With `hang` the
 * device hangs after the model is loaded. */
static gpuserve_status play(const struct scene *scene, bool hang, float *got, gpuserve_error *error)
{
    const struct gpuserve_backend *backend = cuda();
    const struct gsv_net_options net_options = { .dtype = GPUSERVE_DTYPE_FLOAT16, .n_threads = 1 };
    const struct gsv_exec_options work_options = { .dtype = GPUSERVE_DTYPE_FLOAT16,
                                                   .n_threads = 1,
                                                   .max_tokens = 256,
                                                   .max_sequences = 8,
                                                   .max_seqlen = 40 };
    const struct gsv_run run = { .task = GPUSERVE_TASK_EMBED,
                                 .dimensions = gsv_spec_facts(scene->spec)->dim,
                                 .output = got };
    struct gpuserve_device_facts facts = { .struct_size = sizeof(facts) };
    struct gpuserve_device *device = NULL;
    struct gsv_net *net = NULL;
    struct gsv_exec *work = NULL;
    int32_t count = 0;
    gpuserve_status st = backend->device_count(&count, error);

    if (st == GPUSERVE_OK)
        st = backend->device_facts(0, &facts, error);
    if (st == GPUSERVE_OK)
        st = backend->device_open(&device, 0, error);
    if (st == GPUSERVE_OK)
        st = gsv_net_load(&net, scene->spec, backend, device, &net_options, error);
    if (st == GPUSERVE_OK)
        st = gsv_exec_create(&work, net, &work_options, error);
    if (hang)
        gsv_emu_hang(1);
    for (int i = 0; i < 5 && st == GPUSERVE_OK; i++)
        st = gsv_net_run(work, &scene->batch, &run, error);
    gsv_exec_free(&work);
    gsv_net_free(&net);
    backend->device_close(&device);
    return st;
}

static bool status_suits(gpuserve_status status, int cuda_error)
{
    if (cuda_error == 2)
        return status == GPUSERVE_E_NOMEM || status == GPUSERVE_E_TOO_LARGE;
    return status == GPUSERVE_E_DEVICE;
}

static enum found complain(int n, int cuda_error, const char *what)
{
    fprintf(stderr, "call %d (%s) failing with %d: %s\n", n, gsv_emu_failed_call(), cuda_error,
            what);
    return FOUND_WRONG;
}

/* In its own process: a lost device stays lost for the life of a process. */
static enum found fail_one(const struct scene *scene, int n, int cuda_error)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float *got = calloc(scene->n_floats, sizeof(float));
    struct gsv_emu_counters c;
    gpuserve_status status;
    char text[sizeof(error.message) + 64];
    bool right;

    gsv_emu_reset();
    gsv_emu_fail_call((uint64_t)n, cuda_error);
    status = play(scene, false, got, &error);
    right = memcmp(got, scene->want, scene->n_floats * sizeof(float)) == 0;
    free(got);
    c = counters();
    if (!gsv_emu_failed_call())
        return right && status == GPUSERVE_OK ? FOUND_NO_FAILURE : FOUND_WRONG;
    if (status != GPUSERVE_OK && !status_suits(status, cuda_error)) {
        snprintf(text, sizeof(text), "status %d, \"%s\"", (int)status, error.message);
        return complain(n, cuda_error, text);
    }
    if (status != GPUSERVE_OK && !error.message[0])
        return complain(n, cuda_error, "no message");
    if (status == GPUSERVE_OK && !right)
        return complain(n, cuda_error, "a wrong answer");
    if (c.live_allocations || c.live_objects) {
        snprintf(text, sizeof(text), "%d blocks of memory and %d objects leak, status %d",
                 (int)c.live_allocations, (int)c.live_objects, (int)status);
        return complain(n, cuda_error, text);
    }
    return FOUND_RIGHT;
}

/* The child's exit status, or 128 plus its signal; a blocked child is killed. */
static int exit_status_of(pid_t child)
{
    int status = 0;

    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int fail_in_child(const struct scene *scene, int n, int cuda_error)
{
    const pid_t child = fork();

    if (child == 0) {
        alarm(300);
        _exit(fail_one(scene, n, cuda_error));
    }
    return exit_status_of(child);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_CALLS_TRIED = 100 };
#else
enum { N_CALLS_TRIED = 200 };
#endif

/* About two hundred of the calls (half under a sanitizer), spread over the life of a model, with
 * the error codes alternating. With GPUSERVE_TEST_ALL each call with each error: ten thousand
 * processes, about 45 minutes on two busy cores (meson test --timeout-multiplier 20
 * cuda-backend). */
Test(cuda_backend, every_call_fails_with_every_error)
{
    static const int errors[] = { 2, 46, 214, 700, 719, 999 };
    const size_t n_errors = sizeof(errors) / sizeof(errors[0]);
    const bool all = getenv("GPUSERVE_TEST_ALL") != NULL;
    struct scene scene = make_scene();
    const int step = all ? 1 : (int)(counters().calls / N_CALLS_TRIED) + 1;
    int n, tried = 0, wrong = 0, status = FOUND_RIGHT;

    for (n = 1; status != FOUND_NO_FAILURE && wrong < 10; n += step, tried++) {
        for (size_t e = 0; e < n_errors && status != FOUND_NO_FAILURE; e++) {
            if (!all && e != (size_t)tried % n_errors)
                continue;
            status = fail_in_child(&scene, n, errors[e]);
            if (status == FOUND_NO_FAILURE)
                continue;
            cr_expect_eq(status, FOUND_RIGHT, "call %d failing with %d: exit status %d", n,
                         errors[e], status);
            wrong += status != FOUND_RIGHT;
        }
    }
    cr_expect_gt(n, 50, "only %d calls", n);
    free_scene(&scene);
}

/* ---------------------------------------------------------------------------------- a hang */

/* In its own process: a hung device is not used again. */
static enum found hang_once(const struct scene *scene)
{
    const struct gpuserve_backend *backend = cuda();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float *got = calloc(scene->n_floats, sizeof(float));
    struct gpuserve_device *device = NULL;
    gpuserve_status status;

    setenv("GPUSERVE_CUDA_TIMEOUT_MS", "50", 1);
    gsv_emu_reset();
    status = play(scene, true, got, &error);
    free(got);
    if (status != GPUSERVE_E_DEVICE || !error.message[0])
        return FOUND_WRONG;
    /* Later calls report it at once. */
    return backend->device_open(&device, 0, &error) == GPUSERVE_E_DEVICE ? FOUND_RIGHT
                                                                         : FOUND_WRONG;
}

Test(cuda_backend, a_device_that_hangs_is_given_up, .timeout = 300)
{
    struct scene scene = make_scene();
    const pid_t child = fork();

    if (child == 0) {
        alarm(240); /* limit in case it blocks */
        _exit(hang_once(&scene));
    }
    cr_expect_eq(exit_status_of(child), FOUND_RIGHT);
    free_scene(&scene);
}

#endif
