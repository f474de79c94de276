/*
 * eval_classification.c - `gpuserve eval --task classification`: how well a model labels texts.
 *
 *   labelled texts -> labels of the model's classifier                              -> scores
 *                  -> vectors -> linear head of `gpuserve fit` -> its labels        -> scores
 *
 * A model without a classifier gets a head, trained on --train or on a stratified part of the
 * texts; the rest is measured. The scores are those of scikit-learn's classification_report with
 * zero_division=0: of the labels that the measured texts have or the model predicts.
 */
#include "cli/commands/eval/eval.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_SPLIT 0.2

struct classification {
    struct fit_labels labels; /* of the files */
    struct fit_set train, test;
    int32_t *wanted, *found; /* [test.n] */
    const char **names;      /* [n_names] what the indices of both name */
    size_t n_names;
};

/* ---------------------------------------------------------------------------------------- scores
 */

struct counts {
    size_t right, wanted, found;
};

static double ratio(size_t a, size_t b)
{
    return b ? (double)a / (double)b : 0;
}

static json_t *label_scores(const char *name, const struct counts *counts)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "label", name, "precision",
                     ratio(counts->right, counts->found), "recall",
                     ratio(counts->right, counts->wanted), "f1",
                     ratio(2 * counts->right, counts->wanted + counts->found), "support",
                     (json_int_t)counts->wanted);
}

static int add_scores(json_t *row, const struct classification *c)
{
    struct counts *counts = cli_alloc(c->n_names, sizeof(*counts));
    json_t *labels = json_array();
    double f1_sum = 0, f1_weighted = 0;
    size_t right = 0, n_labels = 0;
    int result = CLI_OK;

    for (size_t i = 0; i < c->test.n; i++) {
        counts[c->wanted[i]].wanted++;
        counts[c->found[i]].found++;
        counts[c->wanted[i]].right += c->wanted[i] == c->found[i];
        right += c->wanted[i] == c->found[i];
    }
    for (size_t k = 0; k < c->n_names && result == CLI_OK; k++) {
        const double f1 = ratio(2 * counts[k].right, counts[k].wanted + counts[k].found);

        if (!counts[k].wanted && !counts[k].found)
            continue;
        n_labels++;
        f1_sum += f1;
        f1_weighted += f1 * (double)counts[k].wanted;
        if (json_array_append_new(labels, label_scores(c->names[k], &counts[k])))
            result = cli_fail("label %zu is not UTF-8", k);
    }
    json_object_set_new(row, "accuracy", json_real(ratio(right, c->test.n)));
    json_object_set_new(row, "macro_f1", json_real(f1_sum / (double)n_labels));
    json_object_set_new(row, "weighted_f1", json_real(f1_weighted / (double)c->test.n));
    json_object_set_new(row, "labels", labels);
    free(counts);
    return result;
}

/* ------------------------------------------------------------------------------------- the files
 */

static int read_files(struct classification *c, const struct cli_args *args)
{
    struct fit_set *const sets[] = { &c->train, &c->test };
    const struct fit_label *first = c->labels.items;
    int result = CLI_OK;

    if (args->train)
        result = cli_fit_read(&c->train, &c->labels, args->train, args);
    if (result == CLI_OK)
        result = cli_fit_read(&c->test, &c->labels, args->input, args);
    if (result == CLI_OK && c->labels.n < 2)
        return cli_fail("%s: label \"%s\" is the only one, eval needs two labels or more",
                        first->where, first->given);
    return result == CLI_OK ? cli_fit_order_labels(&c->labels, sets, 2, &args->label_names)
                            : result;
}

/* -------------------------------------------------------------------------- the model's classifier
 */

/* Options of vectors and heads, which a model with a classifier does not use. */
static const char *head_option(const struct cli_args *args)
{
    return args->train                         ? "--train"
           : args->split > 0                   ? "--split"
           : args->c > 0                       ? "--C"
           : args->tolerance > 0               ? "--tolerance"
           : args->seed > 0                    ? "--seed"
           : args->dimensions                  ? "--dimensions"
           : args->precision                   ? "--precision"
           : args->ranges                      ? "--ranges"
           : args->prompt || args->prompt_name ? "a prompt"
                                               : NULL;
}

static int classify(struct classification *c, gpuserve_model *model, const struct cli_args *args)
{
    int32_t *map = cli_alloc(c->labels.n, sizeof(*map));
    int result;

    c->n_names = gpuserve_model_label_count(model);
    c->names = cli_alloc(c->n_names, sizeof(*c->names));
    for (size_t k = 0; k < c->n_names; k++)
        c->names[k] = gpuserve_model_label(model, k);
    result = cli_fit_map_labels(map, &c->labels, model);
    for (size_t i = 0; i < c->test.n && result == CLI_OK; i++)
        c->wanted[i] = map[c->test.labels[i]];
    free(map);
    return result == CLI_OK ? cli_fit_classify(c->found, &c->test, model, args) : result;
}

/* ----------------------------------------------------------------------------------- a linear head
 */

static int split(struct classification *c, json_t *row, const struct cli_args *args)
{
    const double part = args->split > 0 ? args->split : DEFAULT_SPLIT;
    size_t common;
    int result;

    if (!args->train) {
        c->train = c->test;
        c->test = (struct fit_set){ 0 };
        result = cli_fit_split_labels(&c->train, &c->test, &c->labels, part, (uint64_t)args->seed);
        if (result != CLI_OK)
            return result;
        json_object_set_new(row, "split", json_real(part));
        json_object_set_new(row, "seed", json_integer((json_int_t)args->seed));
    }
    json_object_set_new(row, "n_train", json_integer((json_int_t)c->train.n));
    common = cli_fit_common(&c->train, &c->test);
    if (common && !args->quiet)
        cli_warn("%zu of %zu test texts are also training texts", common, c->test.n);
    return cli_fit_check_labels(&c->labels, &c->train, args->train ? args->train : args->input);
}

static void predict(struct classification *c, size_t dim, const struct cli_args *args)
{
    const struct fit_part train = cli_fit_all(&c->train), test = cli_fit_all(&c->test);
    struct fit_head head;

    cli_fit_head_init(&head, c->labels.n, dim);
    cli_fit_solve(&head, &train, args->c > 0 ? args->c : FIT_DEFAULT_C, cli_fit_tolerance(args));
    if (!head.converged && !args->quiet)
        cli_warn("the solver stopped after %d steps before it reached its tolerance",
                 head.iterations);
    memcpy(c->wanted, c->test.labels, c->test.n * sizeof(*c->wanted));
    cli_fit_score(&head, &test, c->found);
    cli_fit_head_free(&head);
}

static int train_and_predict(struct classification *c, json_t *row, gpuserve_model *model,
                             const struct cli_args *args)
{
    struct eval_vectors vectors = { 0 };
    int result = split(c, row, args);

    if (result == CLI_OK)
        result = cli_eval_vectors_open(&vectors, model, args);
    if (result == CLI_OK)
        result = cli_eval_embed(&c->train, model, "training texts", &vectors, args);
    if (result == CLI_OK)
        result = cli_eval_embed(&c->test, model, "test texts", &vectors, args);
    if (result == CLI_OK) {
        c->n_names = c->labels.n;
        c->names = cli_alloc(c->n_names, sizeof(*c->names));
        for (size_t k = 0; k < c->n_names; k++)
            c->names[k] = c->labels.items[k].name;
        predict(c, vectors.dim, args);
    }
    cli_eval_vectors_close(&vectors);
    return result;
}

static int measure(struct classification *c, json_t *row, gpuserve_model *model,
                   const struct cli_args *args)
{
    const size_t n_labels = gpuserve_model_label_count(model);
    int result;

    if (cli_labels_tokens(model) || cli_takes_labels(model))
        return cli_fail("%s: the model labels %s, not texts", args->model,
                        cli_takes_labels(model) ? "spans" : "tokens");
    if (n_labels == 1)
        return cli_fail("%s: the model has one label only, eval needs two labels or more",
                        args->model);
    if (n_labels && head_option(args))
        return cli_usage("%s has a classifier: %s is for embedding models", args->model,
                         head_option(args));
    c->wanted = cli_alloc(c->test.n, sizeof(*c->wanted));
    c->found = cli_alloc(c->test.n, sizeof(*c->found));
    result = n_labels ? classify(c, model, args) : train_and_predict(c, row, model, args);
    if (result != CLI_OK)
        return result;
    json_object_set_new(row, "n", json_integer((json_int_t)c->test.n));
    return add_scores(row, c);
}

int cli_eval_classification(json_t *row, const struct cli_args *args)
{
    struct classification *c = cli_alloc(1, sizeof(*c));
    gpuserve_model *model = NULL;
    int result = read_files(c, args);

    if (result == CLI_OK)
        result = cli_model_open(&model, args);
    if (result == CLI_OK)
        result = measure(c, row, model, args);
    cli_fit_set_free(&c->train);
    cli_fit_set_free(&c->test);
    cli_fit_labels_free(&c->labels);
    free(c->wanted);
    free(c->found);
    free(c->names);
    free(c);
    gpuserve_model_close(&model);
    return result;
}
