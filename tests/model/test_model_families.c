/*
 * test_model_families.c - every family and option against transformers in float64.
 *
 * tests/data/models/families.txt names the models; tools/fixtures/make_family_models writes them.
 */
#include "tests/base/sanitized.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* float32 against float64: of vectors of length 1, of probabilities, and of other values divided
 * by the largest of them. */
#define LARGEST 1e-5

/* One output of a model: the reference tensor, and the run that computes it. */
struct output {
    const char *tensor;
    struct gsv_run run;
    bool is_normalized; /* the reference is compared as vectors of length 1 */
    bool is_probability;
};

static void normalize(double *rows, size_t n, size_t columns)
{
    for (size_t i = 0; i < n; i++) {
        double norm = 0;

        for (size_t j = 0; j < columns; j++)
            norm += rows[i * columns + j] * rows[i * columns + j];
        for (size_t j = 0; j < columns && norm > 0; j++)
            rows[i * columns + j] /= sqrt(norm);
    }
}

static double largest(const double *values, size_t n)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(values[i]));
    return most;
}

/* Each text in a batch of its own; rows as run_all() returns them. */
static float *run_alone(const struct loaded *model, const struct texts *texts, struct gsv_run run)
{
    const size_t columns = (size_t)gsv_run_columns(gsv_spec_facts(model->spec), &run);
    size_t rows = 0, row = 0;
    float *output;

    for (size_t i = 0; i < texts->n; i++)
        rows += gsv_is_by_token(run.task) ? (size_t)texts->n_tokens[i] : 1;
    output = calloc(rows * columns, sizeof(float));
    for (size_t i = 0; i < texts->n; i++) {
        run.output = output + row * columns;
        run_texts(model, texts, i, 1, &run);
        row += gsv_is_by_token(run.task) ? (size_t)texts->n_tokens[i] : 1;
    }
    return output;
}

/* Index of the largest of a row. */
static size_t winner_of(const double *row, size_t columns)
{
    size_t winner = 0;

    for (size_t j = 1; j < columns; j++)
        if (row[j] > row[winner])
            winner = j;
    return winner;
}

static void check_labels(const char *name, const float *got, const double *want, size_t rows,
                         size_t columns)
{
    for (size_t i = 0; i < rows; i++) {
        const size_t winner = winner_of(want + i * columns, columns);

        for (size_t j = 0; j < columns; j++)
            cr_expect(got[i * columns + j] <= got[i * columns + winner], "%s: row %zu: label %zu",
                      name, i, j);
    }
}

/* Texts alone equal the reference; texts of one batch equal texts alone in every bit. */
static void check_output(const struct loaded *model, const char *name, const char *reference,
                         const struct texts *texts, const struct output *output)
{
    const size_t columns = (size_t)gsv_run_columns(gsv_spec_facts(model->spec), &output->run);
    size_t count;
    double *want = read_reference(reference, output->tensor, &count);
    float *alone = run_alone(model, texts, output->run);
    float *together = run_all(model, texts, output->run);
    const size_t rows = count / columns;
    struct difference d;
    double scale;

    cr_assert_eq(count % columns, 0, "%s: %s has other columns than %zu", name, output->tensor,
                 columns);
    if (output->is_normalized)
        normalize(want, rows, columns);
    scale = output->is_normalized || output->is_probability ? 1.0 : fmax(1.0, largest(want, count));
    d = compare_rows(alone, want, rows, columns);
    cr_expect(d.largest <= LARGEST * scale, "%s: %s differs by %g of %g", name, output->tensor,
              d.largest, scale);
    if (output->run.task == GPUSERVE_TASK_CLASSIFY ||
        output->run.task == GPUSERVE_TASK_TOKEN_LABELS)
        check_labels(name, alone, want, rows, columns);
    cr_expect(memcmp(alone, together, count * sizeof(float)) == 0,
              "%s: %s of a batch has other bits than texts alone", name, output->tensor);
    free(together);
    free(alone);
    free(want);
}

/* The outputs that the model has by its configuration: each must be in the reference or be left
 * out of it. Returns their number. */
static size_t list_outputs(const struct gsv_spec_facts *facts, const char *reference,
                           struct output *outputs)
{
    const uint32_t classify =
        facts->labels_tokens ? GPUSERVE_TASK_TOKEN_LABELS : GPUSERVE_TASK_CLASSIFY;
    const struct output all[] = {
        { "hidden_f64", { .task = GPUSERVE_TASK_TOKEN_VECTORS }, false, false },
        { "vectors_f64", { .task = GPUSERVE_TASK_TOKEN_VECTORS }, true, false },
        { "embedding_f64",
          { .task = GPUSERVE_TASK_EMBED, .dimensions = facts->dim, .normalize = true },
          true,
          false },
        { "sparse_f64", { .task = GPUSERVE_TASK_SPARSE }, false, false },
        { "logits_f64", { .task = classify, .score = GPUSERVE_SCORE_RAW }, false, false },
        { "probs_f64", { .task = classify, .score = (uint32_t)facts->score }, false, true },
    };
    const bool projects = has_reference(reference, "vectors_f64");
    size_t n = 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (has_reference(reference, all[i].tensor) && !(projects && i == 0))
            outputs[n++] = all[i];
    return n;
}

/* The embeddings of each adapter of a model. */
static void check_adapters(const struct loaded *model, const char *name, const char *reference,
                           const struct texts *texts)
{
    const struct gsv_spec_facts *facts = gsv_spec_facts(model->spec);

    for (size_t i = 0; i < facts->n_adapters; i++) {
        char tensor[96];
        const struct output output = { tensor,
                                       { .task = GPUSERVE_TASK_EMBED,
                                         .dimensions = facts->dim,
                                         .normalize = true,
                                         .adapter = (int32_t)i + 1 },
                                       true,
                                       false };

        snprintf(tensor, sizeof(tensor), "embedding_%s_f64", facts->adapters[i]);
        check_output(model, name, reference, texts, &output);
    }
}

/* A language model as a reranker: the classifier is the difference of two logits of the next
 * token. Without a second token it is the logit of the first. */
static void check_answers(const struct loaded *model, const char *name, const char *reference,
                          const struct texts *texts)
{
    const struct gsv_run run = { .task = GPUSERVE_TASK_CLASSIFY, .score = GPUSERVE_SCORE_RAW };
    const size_t vocab = (size_t)gsv_spec_facts(model->spec)->vocab_size;
    size_t count;
    double *next = read_reference(reference, "next_f64", &count);
    float *got = run_all(model, texts, run);

    cr_assert_eq(count, texts->n * vocab);
    for (size_t i = 0; i < texts->n; i++)
        cr_expect_float_eq(got[i], next[i * vocab + YES] - next[i * vocab + NO], LARGEST, "%s: %zu",
                           name, i);
    free(got);
    free(next);
}

/* Pairs of texts: the tokens of the second one have type 1. Returns false if the model has none. */
static bool check_pairs(const struct loaded *model, const char *name, const char *path)
{
    const struct output output = {
        "hidden_f64", { .task = GPUSERVE_TASK_TOKEN_VECTORS }, false, false
    };
    char reference[1100];
    struct texts texts;

    snprintf(reference, sizeof(reference), "%s/pairs.safetensors", path);
    if (access(reference, F_OK) != 0)
        return false;
    texts = read_texts(reference);
    cr_assert(texts.type_ids, "%s", reference);
    check_output(model, name, reference, &texts, &output);
    free_texts(&texts);
    return true;
}

static bool check_model(const char *name, const struct gpuserve_backend *backend)
{
    struct loaded model;
    struct output outputs[8];
    const struct gsv_spec_facts *facts;
    char path[1024], reference[1100];
    struct texts texts;
    bool has_pairs;
    size_t n;

    snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA_DIR, name);
    snprintf(reference, sizeof(reference), "%s/reference.safetensors", path);
    texts = read_texts(reference);
    load_model(&model, path, &(struct load_options){ .backend = backend });
    facts = gsv_spec_facts(model.spec);
    for (size_t i = 0; i < texts.n; i++)
        cr_expect(texts.n_tokens[i] <= facts->max_tokens, "%s takes %d tokens", name,
                  facts->max_tokens);
    n = list_outputs(facts, reference, outputs);
    for (size_t i = 0; i < n; i++)
        check_output(&model, name, reference, &texts, &outputs[i]);
    check_adapters(&model, name, reference, &texts);
    if (facts->scores_answers)
        check_answers(&model, name, reference, &texts);
    has_pairs = check_pairs(&model, name, path);
    unload_model(&model);
    free_texts(&texts);
    return has_pairs;
}

/* A model that needs an unsupported option is refused by its name. */
static void check_refusal(const char *name, const char *reason)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char path[1024];
    gpuserve_status st;

    snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA_DIR, name);
    st = try_load(path, NULL, &error);
    cr_expect_eq(st, GPUSERVE_E_UNSUPPORTED, "%s: status %d", name, (int)st);
    cr_expect(strstr(error.message, reason), "%s: '%s' is not in: %s", name, reason, error.message);
}

/* The lowest cosine of embeddings to float64, of random models with 32 columns. */
static double lowest_cosine(uint32_t dtype)
{
    return dtype == GPUSERVE_DTYPE_INT8 ? 0.997 : 0.999;
}

/* An output in a narrower type: equal bits alone and together; embeddings are near to the
 * reference. */
static void check_narrow_output(const struct loaded *model, const char *name, const char *reference,
                                const struct texts *texts, const struct output *output,
                                uint32_t dtype)
{
    const size_t columns = (size_t)gsv_run_columns(gsv_spec_facts(model->spec), &output->run);
    size_t count;
    double *want = read_reference(reference, output->tensor, &count);
    float *alone = run_alone(model, texts, output->run);
    float *together = run_all(model, texts, output->run);

    cr_expect(memcmp(alone, together, count * sizeof(float)) == 0,
              "%s: %s in dtype %u has other bits in a batch", name, output->tensor, dtype);
    if (output->run.task == GPUSERVE_TASK_EMBED) {
        const struct difference d = compare_rows(alone, want, count / columns, columns);

        cr_expect_geq(d.min_cosine, lowest_cosine(dtype), "%s, dtype %u: cosine %g", name, dtype,
                      d.min_cosine);
    }
    free(together);
    free(alone);
    free(want);
}

/* All outputs of a model in a narrower type, calibrated and probed by its own texts if that is
 * int8. */
static void check_narrow(const char *name, uint32_t dtype)
{
    struct load_options options = { .dtype = dtype };
    struct gpuserve_host_batch calibration = { 0 };
    char path[1024], reference[1100];
    struct output outputs[8];
    struct loaded model;
    struct texts texts;
    size_t n;

    snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA_DIR, name);
    snprintf(reference, sizeof(reference), "%s/reference.safetensors", path);
    texts = read_texts(reference);
    load_model(&model, path, &(struct load_options){ 0 });
    if (dtype == GPUSERVE_DTYPE_INT8 && gsv_spec_facts(model.spec)->no_int8) {
        unload_model(&model);
        free_texts(&texts);
        return;
    }
    if (dtype == GPUSERVE_DTYPE_INT8) {
        calibration = make_batch(gsv_spec_facts(model.spec), &texts, 0, texts.n);
        options.calibration = options.probes = &calibration;
    }
    unload_model(&model);
    load_model(&model, path, &options);
    n = list_outputs(gsv_spec_facts(model.spec), reference, outputs);
    for (size_t i = 0; i < n; i++)
        check_narrow_output(&model, name, reference, &texts, &outputs[i], dtype);
    if (dtype == GPUSERVE_DTYPE_INT8) {
        cr_expect(gsv_net_int8(model.net)->is_measured, "%s", name);
        free_batch(&calibration);
    }
    unload_model(&model);
    free_texts(&texts);
}

Test(model_families, narrower_types_have_equal_bits_in_a_batch)
{
    static const uint32_t dtypes[] = { GPUSERVE_DTYPE_BFLOAT16, GPUSERVE_DTYPE_FLOAT16,
                                       GPUSERVE_DTYPE_INT8 };
    static struct model_name names[MAX_MODELS];
    const size_t n = read_families(names);
    char reason[96];

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++)
            if (!is_refused(names[i].text, reason))
                check_narrow(names[i].text, dtypes[k]);
}

/* ------------------------------------------------------------------------------- portable bits */

/* Instruction sets by GPUSERVE_MAX_ISA; NULL: the best one. Those that a processor lacks are the
 * best one too. */
#if defined(__aarch64__)
static const char *const isas[] = { NULL, "generic", "neon", "neon_dotprod", "neon_i8mm" };
#else
static const char *const isas[] = { NULL, "generic", "avx2", "avx512", "avx512_vnni" };
#endif

#define MAX_OUTPUTS 8
/* Each EACH_HASHED-th model has a hash; QEMU and sanitizers, which take minutes, compute those
 * only. They leave out the backend of plain C, and QEMU compares each third model with
 * transformers. */
#define EACH_HASHED 16
#if defined(__aarch64__) && defined(GSV_PLAIN_CRITERION_H)
enum { IS_SLOW = 1, EACH_COMPARED = 3 };
#else
enum { IS_SLOW = IS_SANITIZED, EACH_COMPARED = FOR_RACES ? 8 : 1 };
#endif

struct rows {
    size_t n_bytes[MAX_OUTPUTS];
    float *rows[MAX_OUTPUTS]; /* owned */
    bool is_embedding[MAX_OUTPUTS];
    size_t n;
};

static struct rows run_portable(const char *name, uint32_t dtype, const char *isa)
{
    struct load_options options = { .dtype = dtype,
                                    .may_be_imprecise = true,
                                    .backend = gsv_backend_cpu_portable() };
    struct gpuserve_host_batch calibration = { 0 };
    char path[1024], reference[1100];
    struct output outputs[MAX_OUTPUTS];
    struct rows made = { 0 };
    struct loaded model;
    struct texts texts;

    if (isa)
        setenv("GPUSERVE_MAX_ISA", isa, 1);
    else
        unsetenv("GPUSERVE_MAX_ISA");
    snprintf(path, sizeof(path), "%s/models/%s", TEST_DATA_DIR, name);
    snprintf(reference, sizeof(reference), "%s/reference.safetensors", path);
    texts = read_texts(reference);
    load_model(&model, path, &(struct load_options){ 0 });
    if (dtype != GPUSERVE_DTYPE_INT8 || !gsv_spec_facts(model.spec)->no_int8) {
        if (dtype == GPUSERVE_DTYPE_INT8) {
            calibration = make_batch(gsv_spec_facts(model.spec), &texts, 0, texts.n);
            options.calibration = options.probes = &calibration;
        }
        unload_model(&model);
        load_model(&model, path, &options);
        if (model.net)
            made.n = list_outputs(gsv_spec_facts(model.spec), reference, outputs);
    }
    for (size_t i = 0; i < made.n; i++) {
        size_t count;

        free(read_reference(reference, outputs[i].tensor, &count));
        made.n_bytes[i] = count * sizeof(float);
        made.rows[i] = run_all(&model, &texts, outputs[i].run);
        made.is_embedding[i] = outputs[i].run.task == GPUSERVE_TASK_EMBED;
    }
    if (calibration.n_tokens > 0)
        free_batch(&calibration);
    unload_model(&model);
    free_texts(&texts);
    return made;
}

static void free_rows(struct rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        free(rows->rows[i]);
}

/* FNV-1a */
static uint64_t hash_of(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t check_portable(const char *name, uint32_t dtype, uint64_t hash)
{
    struct rows best = run_portable(name, dtype, isas[0]);

    for (size_t k = 1; k < sizeof(isas) / sizeof(isas[0]); k++) {
        struct rows other = run_portable(name, dtype, isas[k]);

        cr_assert_eq(other.n, best.n);
        for (size_t i = 0; i < best.n; i++)
            cr_expect(memcmp(best.rows[i], other.rows[i], best.n_bytes[i]) == 0,
                      "%s, dtype %u, output %zu: %s has other bits than the best instruction set",
                      name, (unsigned)dtype, i, isas[k]);
        free_rows(&other);
    }
    for (size_t i = 0; i < best.n; i++)
        hash = best.is_embedding[i] ? hash_of(hash, best.rows[i], best.n_bytes[i]) : hash;
    free_rows(&best);
    return hash;
}

/* Every instruction set has the same bits, and so has every processor: the hashes of embeddings are
 * those of x86-64 and of aarch64. Labels and sparse weights end in functions of the C library.
 */
Test(model_families, portable_bits_are_equal_everywhere)
{
    static const struct {
        uint32_t dtype;
        uint64_t hash;
    } wanted[] = { { GPUSERVE_DTYPE_FLOAT32, UINT64_C(0x9be16e00811d8179) },
                   { GPUSERVE_DTYPE_BFLOAT16, UINT64_C(0x48ef448d9bc3e07b) },
                   { GPUSERVE_DTYPE_FLOAT16, UINT64_C(0xb7612c0350e4bc45) },
                   { GPUSERVE_DTYPE_INT8, UINT64_C(0xee37cd9a905defb4) } };
    static struct model_name names[MAX_MODELS];
    const size_t n = read_families(names);
    char reason[96];

    for (size_t k = 0; k < sizeof(wanted) / sizeof(wanted[0]); k++) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325);

        for (size_t i = 0; i < n; i += IS_SLOW ? EACH_HASHED : 1) {
            const uint64_t next = is_refused(names[i].text, reason)
                                      ? hash
                                      : check_portable(names[i].text, wanted[k].dtype, hash);

            hash = i % EACH_HASHED == 0 ? next : hash;
        }
        cr_expect(hash == wanted[k].hash, "dtype %u: the hash is 0x%016" PRIx64,
                  (unsigned)wanted[k].dtype, hash);
    }
}

Test(model_families, equals_transformers_in_float64)
{
    static struct model_name names[MAX_MODELS];
    const size_t n = read_families(names);
    size_t n_pairs = 0;

    cr_assert(n > 100, "families.txt has only %zu models", n);
    for (size_t i = 0; i < n; i += EACH_COMPARED) {
        char reason[96];

        if (is_refused(names[i].text, reason)) {
            check_refusal(names[i].text, reason);
            continue;
        }
        n_pairs += check_model(names[i].text, gsv_backend_cpu());
        if (!IS_SLOW)
            check_model(names[i].text, gsv_backend_ref());
    }
    cr_expect_geq(n_pairs, 10 / EACH_COMPARED, "%zu models have pairs.safetensors", n_pairs);
}
