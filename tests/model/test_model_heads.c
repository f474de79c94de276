/*
 * test_model_heads.c - several heads on one encoder: the bits of each head alone, from one pass.
 */
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_HEADS = 5, MAX_TEXTS = 12 };

/* Each number of layers, activation and input. */
static const struct head_shape shapes[N_HEADS] = {
    { "plain", "softmax", "normalized", { 3 } },    { "deep", "none", "raw", { 10, 7, 9, 4 } },
    { "three", "sigmoid", "model", { 40, 50, 5 } }, { "two", "softmax", "raw", { 8, 17 } },
    { "other", "sigmoid", "normalized", { 2 } },
};

/* Choices of heads, in orders other than the model's too. */
static const struct gsv_head_choice choices[] = {
    { 5, { 0, 1, 2, 3, 4 } },
    { 5, { 4, 3, 2, 1, 0 } },
    { 2, { 2, 0 } },
    { 3, { 1, 4, 3 } },
    { 1, { 1 } },
    { 1, { 4 } },
    { 0, { 0 } },
};

struct fixture {
    char folder[64], lines[1024], path[1024];
    struct texts texts;
    size_t n_texts; /* of the file */
    uint32_t dtype;
};

/* The columns of an embedding; a classifier alone has one only if a pooling is requested. */
static int32_t dim_of(const char *path)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_dir *dir = NULL;
    int32_t dim = 0;

    cr_assert_eq(gsv_dir_open(&dir, path, &error), GPUSERVE_OK, "%s", error.message);
    for (uint32_t pooling = 0; pooling <= GPUSERVE_POOLING_MEAN && dim == 0;
         pooling += GPUSERVE_POOLING_MEAN) {
        struct gsv_spec *spec = NULL;

        cr_assert_eq(gsv_spec_load(&spec, dir, NULL, pooling, &error), GPUSERVE_OK, "%s",
                     error.message);
        dim = gsv_spec_facts(spec)->dim;
        gsv_spec_free(&spec);
    }
    gsv_dir_close(&dir);
    return dim;
}

static void begin(struct fixture *f, const char *model, uint32_t dtype)
{
    char reference[1100];

    memset(f, 0, sizeof(*f));
    f->dtype = dtype;
    strcpy(f->folder, "/tmp/gsv-heads-XXXXXX");
    cr_assert_not_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/models/%s", TEST_DATA_DIR, model);
    for (size_t i = 0; i < N_HEADS; i++) {
        const size_t used = strlen(f->lines);

        write_head(f->folder, &shapes[i], dim_of(f->path));
        snprintf(f->lines + used, sizeof(f->lines) - used, "%s/%s.safetensors\n", f->folder,
                 shapes[i].name);
    }
    snprintf(reference, sizeof(reference), "%s/reference.safetensors", f->path);
    f->texts = read_texts(reference);
    f->n_texts = f->texts.n;
    f->texts.n = f->texts.n < MAX_TEXTS ? f->texts.n : MAX_TEXTS;
}

static void end(struct fixture *f)
{
    f->texts.n = f->n_texts;
    free_texts(&f->texts);
    each_file(f->folder, NULL);
}

/* A model that leaves prompts out of pooling gets one of one token. */
static struct gsv_run run_of(const struct loaded *model, uint32_t score,
                             const struct gsv_head_choice *choice)
{
    return (struct gsv_run){ .task = GPUSERVE_TASK_CLASSIFY,
                             .score = score,
                             .heads = *choice,
                             .skip = gsv_spec_facts(model->spec)->skips_prompt };
}

/* The scores of one head that a model was loaded with alone; owned. */
static float *alone(const struct fixture *f, size_t head, uint32_t score)
{
    const struct gsv_head_choice first = { .n = 0 };
    struct load_options options = { .dtype = f->dtype };
    struct loaded model;
    char path[128];
    float *rows;

    snprintf(path, sizeof(path), "%s/%s.safetensors", f->folder, shapes[head].name);
    options.head = path;
    load_model(&model, f->path, &options);
    rows = run_all(&model, &f->texts, run_of(&model, score, &first));
    unload_model(&model);
    return rows;
}

static void expect_scores(const struct fixture *f, const struct loaded *model, const float *rows,
                          float *const want[N_HEADS], const struct gsv_head_choice *choice)
{
    const struct gsv_spec_facts *facts = gsv_spec_facts(model->spec);
    const struct gsv_run run = { .task = GPUSERVE_TASK_CLASSIFY, .heads = *choice };
    const size_t columns = (size_t)gsv_run_columns(facts, &run);
    size_t first = 0;

    for (size_t i = 0; i < gsv_chosen_count(choice); i++) {
        const size_t head = choice->at[i], n = facts->label_heads[head].n_labels;

        for (size_t text = 0; text < f->texts.n; text++)
            cr_expect_eq(
                memcmp(rows + text * columns + first, want[head] + text * n, n * sizeof(float)), 0,
                "%s: head %s of text %zu, with %d others, has other bits", f->path,
                shapes[head].name, text, choice->n - 1);
        first += n;
    }
    cr_expect_eq(first, columns);
}

/* Together in one batch, and text by text. */
static void check_choices(const struct fixture *f, const struct loaded *model,
                          float *const want[N_HEADS], uint32_t score)
{
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        struct gsv_run run = run_of(model, score, &choices[i]);
        const size_t columns = (size_t)gsv_run_columns(gsv_spec_facts(model->spec), &run);
        float *rows = run_all(model, &f->texts, run);

        expect_scores(f, model, rows, want, &choices[i]);
        for (size_t text = 0; text < f->texts.n; text++) {
            run.output = rows + text * columns;
            run_texts(model, &f->texts, text, 1, &run);
        }
        expect_scores(f, model, rows, want, &choices[i]);
        free(rows);
    }
}

static void check_model(const char *name, uint32_t dtype, uint32_t score)
{
    struct load_options options = { .dtype = dtype };
    struct loaded model;
    float *want[N_HEADS];
    struct fixture f;

    begin(&f, name, dtype);
    options.heads = f.lines;
    load_model(&model, f.path, &options);
    for (size_t i = 0; i < N_HEADS; i++)
        want[i] = alone(&f, i, score);
    check_choices(&f, &model, want, score);
    for (size_t i = 0; i < N_HEADS; i++)
        free(want[i]);
    unload_model(&model);
    end(&f);
}

/* Models with Dense modules, with several poolings that leave a prompt out, and with a classifier
 * of their own. */
static const char *const models[] = { "bert", "st-dense", "st-no-prompt", "bert-single" };

Test(model_heads, together_have_the_bits_of_each_alone)
{
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        check_model(models[i], GPUSERVE_DTYPE_FLOAT32, GPUSERVE_SCORE_DEFAULT);
        check_model(models[i], GPUSERVE_DTYPE_FLOAT32, GPUSERVE_SCORE_RAW);
    }
}

Test(model_heads, together_have_the_bits_of_each_alone_in_int8)
{
    check_model("bert", GPUSERVE_DTYPE_INT8, GPUSERVE_SCORE_DEFAULT);
    check_model("st-dense", GPUSERVE_DTYPE_INT8, GPUSERVE_SCORE_SIGMOID);
}

/* ------------------------------------------------------------------------------------ one pass */

static void count_layers(void *user, enum gsv_phase phase, int32_t layer)
{
    int *n = user;

    (void)layer;
    n[phase]++;
}

Test(model_heads, of_any_number_are_one_pass_of_the_encoder)
{
    int n[GSV_PHASES] = { 0 };
    struct load_options options = { .observer = { count_layers, n } };
    const struct gsv_run one = { .task = GPUSERVE_TASK_CLASSIFY };
    const struct gsv_run all = { .task = GPUSERVE_TASK_CLASSIFY, .heads = choices[0] };
    struct loaded model;
    struct fixture f;
    int qkv;

    begin(&f, "bert", GPUSERVE_DTYPE_FLOAT32);
    options.heads = f.lines;
    load_model(&model, f.path, &options);
    free(run_all(&model, &f.texts, one));
    qkv = n[GSV_PHASE_QKV];
    cr_assert_gt(qkv, 0);
    free(run_all(&model, &f.texts, all));
    cr_expect_eq(n[GSV_PHASE_QKV], 2 * qkv, "%d products of five heads, %d of one",
                 n[GSV_PHASE_QKV] - qkv, qkv);
    cr_expect_eq(n[GSV_PHASE_POOL], 3, "pooled once for either kind of input: %d",
                 n[GSV_PHASE_POOL]);
    unload_model(&model);
    end(&f);
}

/* ------------------------------------------------------------------------------------- refused */

static gpuserve_status load_heads(const struct fixture *f, const struct gsv_head_files *files,
                                  gpuserve_error *error)
{
    const struct gsv_adapter_dirs none = { .n = 0 };
    struct gsv_spec *spec = NULL;
    struct gsv_dir *dir = NULL;
    gpuserve_status st;

    cr_assert_eq(gsv_dir_open(&dir, f->path, error), GPUSERVE_OK, "%s", error->message);
    st = gsv_spec_load_with(&spec, dir, &none, files, 0, error);
    cr_assert(st == GPUSERVE_OK || !spec);
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
    return st;
}

static void expect_refused(const struct fixture *f, const char *one, const char *lines,
                           gpuserve_status status, const char *says)
{
    const struct gsv_head_files files = { .one = one, .lines = lines };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status st = load_heads(f, &files, &error);

    cr_expect_eq(st, status, "%s: status %d: %s", lines, st, error.message);
    cr_expect(strstr(error.message, says), "%s: '%s' is not in: %s", lines, says, error.message);
}

Test(model_heads, that_do_not_fit_or_have_no_good_name_are_refused)
{
    static const struct {
        const char *lines; /* "%s" is the folder */
        gpuserve_status status;
        const char *says;
    } cases[] = {
        { "a=%s/plain.safetensors\n\nb=%s/wide.safetensors\n", GPUSERVE_E_FORMAT,
          "wide.safetensors: tensor 'layers.0.weight' is [3, 33] of rank 2, expected shape [3, "
          "32]" },
        { "%s/plain.safetensors\nplain=%s/two.safetensors", GPUSERVE_E_INVALID,
          "\"plain\" is the name of two heads" },
        { "=%s/plain.safetensors", GPUSERVE_E_INVALID, "\"\" is not the name of a head" },
        { "a=", GPUSERVE_E_INVALID, "\"a=\" has no file" },
        { "*=%s/plain.safetensors", GPUSERVE_E_INVALID, "\"*\" is not the name of a head" },
        { "a,b=%s/plain.safetensors", GPUSERVE_E_INVALID, "\"a,b\" is not the name of a head" },
        { "a\tb=%s/plain.safetensors", GPUSERVE_E_INVALID, "is not the name of a head" },
        { "a\xff=%s/plain.safetensors", GPUSERVE_E_INVALID, "is not UTF-8" },
        { "a=%s/plain.safetensors\nb=%s/absent.safetensors", GPUSERVE_E_NOT_FOUND,
          "absent.safetensors: No such file or directory" },
        { "a=b=%s/plain.safetensors", GPUSERVE_E_NOT_FOUND, "b=" },
    };
    const struct head_shape wide = { "wide", "softmax", "raw", { 3 } };
    struct fixture f;

    begin(&f, "bert", GPUSERVE_DTYPE_FLOAT32);
    write_head(f.folder, &wide, 33);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char lines[400];

        snprintf(lines, sizeof(lines), cases[i].lines, f.folder, f.folder);
        expect_refused(&f, NULL, lines, cases[i].status, cases[i].says);
    }
    end(&f);
}

Test(model_heads, names_and_their_number_are_bounded)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char lines[33 * 128] = "", name[80], plain[128];
    struct gsv_head_files files = { .lines = lines };
    struct fixture f;

    begin(&f, "bert", GPUSERVE_DTYPE_FLOAT32);
    snprintf(plain, sizeof(plain), "%s/plain.safetensors", f.folder);
    for (int i = 0; i < GSV_MAX_HEADS; i++)
        snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "h%d=%s\n", i, plain);
    cr_expect_eq(load_heads(&f, &files, &error), GPUSERVE_OK, "%s", error.message);
    files.one = plain;
    cr_expect_eq(load_heads(&f, &files, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect(strstr(error.message, "heads: 33, the limit is 32"), "%s", error.message);
    memset(name, 'n', sizeof(name));
    for (size_t n = GSV_MAX_HEAD_NAME; n <= GSV_MAX_HEAD_NAME + 1; n++) {
        snprintf(lines, sizeof(lines), "%.*s=%s", (int)n, name, plain);
        files.one = NULL;
        cr_expect_eq(load_heads(&f, &files, &error),
                     n == GSV_MAX_HEAD_NAME ? GPUSERVE_OK : GPUSERVE_E_INVALID, "%zu bytes", n);
    }
    end(&f);
}

/* ---------------------------------------------------------------------------------- arithmetic */

/* The layers of a head file in double, on a vector of length 1 or as pooled. */
static void score_in_double(const struct fixture *f, const struct head_shape *shape,
                            const float *vector, size_t dim, double *scores)
{
    double in[64], out[64], square = 0, sum = 0;
    char path[128], name[32];
    size_t n = dim, count;

    snprintf(path, sizeof(path), "%s/%s.safetensors", f->folder, shape->name);
    for (size_t i = 0; i < dim; i++)
        square += (double)vector[i] * (double)vector[i];
    for (size_t i = 0; i < dim; i++)
        in[i] = strcmp(shape->input, "normalized") == 0 ? (double)vector[i] / sqrt(square)
                                                        : (double)vector[i];
    for (size_t layer = 0; layer < 4 && shape->widths[layer] > 0; layer++) {
        const size_t rows = (size_t)shape->widths[layer];
        const bool is_last = layer == 3 || shape->widths[layer + 1] == 0;
        float *weight, *bias;

        snprintf(name, sizeof(name), "layers.%zu.weight", layer);
        weight = read_reference(path, name, &count);
        snprintf(name, sizeof(name), "layers.%zu.bias", layer);
        bias = read_reference(path, name, &count);
        for (size_t i = 0; i < rows; i++) {
            out[i] = (double)bias[i];
            for (size_t j = 0; j < n; j++)
                out[i] += (double)weight[i * n + j] * in[j];
            out[i] = is_last ? out[i] : fmax(out[i], 0);
        }
        memcpy(in, out, rows * sizeof(*in));
        n = rows;
        free(weight);
        free(bias);
    }
    for (size_t i = 0; i < n; i++)
        sum += exp(in[i]);
    for (size_t i = 0; i < n; i++)
        scores[i] = strcmp(shape->activation, "softmax") == 0   ? exp(in[i]) / sum
                    : strcmp(shape->activation, "sigmoid") == 0 ? 1 / (1 + exp(-in[i]))
                                                                : in[i];
}

Test(model_heads, scores_are_those_of_the_formula_in_float64)
{
    const struct gsv_run embed = { .task = GPUSERVE_TASK_EMBED, .dimensions = 32 };
    const struct gsv_run all = { .task = GPUSERVE_TASK_CLASSIFY, .heads = choices[0] };
    struct load_options options = { 0 };
    float *vectors, *rows;
    struct loaded model;
    struct fixture f;
    size_t columns;

    begin(&f, "bert", GPUSERVE_DTYPE_FLOAT32);
    options.heads = f.lines;
    load_model(&model, f.path, &options);
    vectors = run_all(&model, &f.texts, embed);
    rows = run_all(&model, &f.texts, all);
    columns = (size_t)gsv_run_columns(gsv_spec_facts(model.spec), &all);
    for (size_t text = 0; text < f.texts.n; text++) {
        const float *row = rows + text * columns;

        for (size_t head = 0; head < N_HEADS; head++) {
            const size_t n = gsv_spec_facts(model.spec)->label_heads[head].n_labels;
            double want[64];

            score_in_double(&f, &shapes[head], vectors + text * 32, 32, want);
            for (size_t i = 0; i < n; i++)
                cr_expect_float_eq((double)row[i], want[i], 2e-5 * fmax(1, fabs(want[i])),
                                   "head %s, text %zu, label %zu: %g, %g", shapes[head].name, text,
                                   i, (double)row[i], want[i]);
            row += n;
        }
    }
    free(vectors);
    free(rows);
    unload_model(&model);
    end(&f);
}
