/*
 * fit.c - `gpuserve fit`: trains a classifier head on the embeddings of labelled texts.
 *
 *   read the sets -> split, sample and folds -> embed -> choose C -> solve -> measure accuracy
 *   -> save the head
 */
#include "cli/io/output.h"
#include "cli/fit/fit.h"
#include "cli/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRAIN, VALIDATION, TEST, N_SETS };

struct fit {
    struct fit_set sets[N_SETS];
    struct fit_labels labels;
    struct fit_head head;
    struct fit_selection selection;
    struct fit_origin origin;
};

static int check_usage(const struct cli_args *args)
{
    if (!args->model || !args->train || !args->output) {
        cli_usage("fit needs a model, --train and --output");
        cli_hint("`gpuserve fit --help` has examples");
        return CLI_USAGE;
    }
    if (args->n_rest)
        return cli_usage("fit does not accept arguments: \"%s\"", args->rest[0]);
    if (args->test && args->split > 0)
        return cli_usage("--test and --split exclude each other");
    if (args->folds && (args->c > 0 || args->validation))
        return cli_usage("--folds and %s exclude each other", args->c > 0 ? "--C" : "--validation");
    if (args->folds == 1)
        return cli_usage("--folds 1: a cross-validation needs two folds or more");
    return cli_fit_check_where(args);
}

static int check_labels(const struct fit *fit, const struct cli_args *args)
{
    const int result = cli_fit_check_labels(&fit->labels, &fit->sets[TRAIN], args->train);

    if (result == CLI_FAILED && (args->split > 0 || args->limit))
        cli_hint("--split and --limit leave texts out; --seed N selects others");
    return result;
}

static int read_sets(struct fit *fit, const struct cli_args *args)
{
    struct fit_set *const all[N_SETS] = { &fit->sets[TRAIN], &fit->sets[VALIDATION],
                                          &fit->sets[TEST] };
    const char *paths[N_SETS] = { args->train, args->validation, args->test };
    size_t common;
    int result;

    for (int i = 0; i < N_SETS; i++) {
        if (paths[i] && cli_fit_read(all[i], &fit->labels, paths[i], args) != CLI_OK)
            return CLI_FAILED;
    }
    if (fit->labels.n < 2)
        return cli_fail("%s: the texts have only one label, fit needs two or more", args->train);
    result = cli_fit_order_labels(&fit->labels, all, N_SETS, &args->label_names);
    if (result != CLI_OK)
        return result;
    if (args->split > 0)
        cli_fit_split(all[TRAIN], all[TEST], args->split, (uint64_t)args->seed);
    if (args->limit)
        cli_fit_sample(all[TRAIN], args->limit, (uint64_t)args->seed);
    if (all[TRAIN]->n == 0 || (args->split > 0 && all[TEST]->n == 0))
        return cli_fail("%s: too few texts for --split %g", args->train, args->split);
    result = check_labels(fit, args);
    if (result != CLI_OK)
        return result;
    common = all[TEST]->n ? cli_fit_common(all[TRAIN], all[TEST]) : 0;
    if (common && !args->quiet)
        cli_warn("%zu of %zu test texts are also training texts", common, all[TEST]->n);
    return CLI_OK;
}

static int embed_sets(struct fit *fit, gpuserve_model *model, const struct cli_args *args)
{
    static const char *const names[N_SETS] = { "training texts", "validation texts", "test texts" };

    for (int i = 0; i < N_SETS; i++) {
        if (fit->sets[i].n &&
            cli_fit_embed(&fit->sets[i], model, names[i], GPUSERVE_NORMALIZE_YES, args) != CLI_OK)
            return CLI_FAILED;
    }
    return CLI_OK;
}

/* Chooses C and solves on all training texts, from zero weights as for a given C. */
static void solve(struct fit *fit, const struct cli_args *args)
{
    const struct fit_part train = cli_fit_all(&fit->sets[TRAIN]);

    cli_fit_select(&fit->selection, &fit->sets[TRAIN], &fit->sets[VALIDATION], fit->labels.n,
                   fit->head.dim, args);
    cli_fit_solve(&fit->head, &train, fit->selection.c, cli_fit_tolerance(args));
}

/* Negative for a set without texts. */
static double accuracy(const struct fit_head *head, const struct fit_set *set)
{
    const struct fit_part all = cli_fit_all(set);

    return set->n ? cli_fit_score(head, &all, NULL).accuracy : -1;
}

static void measure(struct fit *fit, const gpuserve_model *model, const struct cli_args *args)
{
    struct fit_origin *origin = &fit->origin;
    const char *slash = strrchr(args->train, '/');
    double *const accuracies[N_SETS] = { &origin->train_accuracy, &origin->validation_accuracy,
                                         &origin->test_accuracy };

    for (int i = 0; i < N_SETS; i++)
        *accuracies[i] = accuracy(&fit->head, &fit->sets[i]);
    origin->n_train = fit->sets[TRAIN].n;
    origin->n_validation = fit->sets[VALIDATION].n;
    origin->n_test = fit->sets[TEST].n;
    origin->selection = &fit->selection;
    origin->seed = (uint64_t)args->seed;
    origin->fingerprint = gpuserve_model_fingerprint(model);
    origin->data = args->data_name ? args->data_name : slash ? slash + 1 : args->train;
    if (!fit->head.converged && !args->quiet)
        cli_warn("the solver stopped after %d steps before it reached its tolerance",
                 fit->head.iterations);
}

static void set_accuracy(json_t *facts, const char *name, size_t n, double accuracy)
{
    char key[64];

    if (n == 0)
        return;
    snprintf(key, sizeof(key), "n_%s", name);
    json_object_set_new(facts, key, json_integer((json_int_t)n));
    snprintf(key, sizeof(key), "%s_accuracy", name);
    json_object_set_new(facts, key, json_real(accuracy));
}

static json_t *selection_facts(const struct fit *fit, const struct cli_args *args)
{
    const struct fit_selection *selection = &fit->selection;
    json_t *facts = json_pack("{s:s}", "method", selection->method), *scores = json_array();

    if (selection->folds.n) {
        json_object_set_new(facts, "folds", json_integer((json_int_t)selection->folds.n));
        json_object_set_new(facts, "seed", json_integer((json_int_t)args->seed));
    }
    for (size_t i = 0; i < selection->n_scores; i++)
        json_array_append_new(scores, json_pack("{s:f, s:f, s:f}", "C", selection->scores[i].c,
                                                "log_loss", selection->scores[i].log_loss,
                                                "accuracy", selection->scores[i].accuracy));
    if (selection->n_scores && args->json) /* else a table */
        json_object_set(facts, "scores", scores);
    json_decref(scores);
    return facts;
}

/* The scores of each C; a star marks the chosen one. */
static void print_table(const struct fit_selection *selection)
{
    if (selection->n_scores)
        printf("  %10s %10s %10s\n", "C", "log loss", "accuracy");
    for (size_t i = 0; i < selection->n_scores; i++) {
        const struct fit_score *score = &selection->scores[i];

        printf("%c %10.5g %10.4f %10.4f\n", score->c == selection->c ? '*' : ' ', score->c,
               score->log_loss, score->accuracy);
    }
}

static int print_result(const struct fit *fit, const struct cli_args *args)
{
    const struct fit_origin *origin = &fit->origin;
    json_t *facts = json_pack("{s:s, s:I, s:I, s:f, s:o, s:i}", "head", args->output, "n_labels",
                              (json_int_t)fit->head.n_labels, "dim", (json_int_t)fit->head.dim, "C",
                              fit->selection.c, "selection", selection_facts(fit, args),
                              "iterations", fit->head.iterations);

    if (!facts)
        return cli_fail("--output: not UTF-8");
    set_accuracy(facts, "train", origin->n_train, origin->train_accuracy);
    set_accuracy(facts, "validation", origin->n_validation, origin->validation_accuracy);
    set_accuracy(facts, "test", origin->n_test, origin->test_accuracy);
    if (!args->json)
        print_table(&fit->selection);
    return cli_facts_print(facts, args->json);
}

static int run_fit(struct fit *fit, const struct cli_args *args)
{
    gpuserve_model *model;
    int result = read_sets(fit, args);

    if (result == CLI_OK)
        result = cli_fit_selection_init(&fit->selection, &fit->sets[TRAIN], &fit->sets[VALIDATION],
                                        &fit->labels, args);
    if (result == CLI_OK)
        result = cli_model_open(&model, args);
    if (result != CLI_OK)
        return result;
    result = embed_sets(fit, model, args);
    if (result == CLI_OK) {
        cli_fit_head_init(&fit->head, fit->labels.n, gpuserve_model_dim(model));
        solve(fit, args);
        measure(fit, model, args);
        result = cli_fit_save(args->output, &fit->head, &fit->labels, &fit->origin);
    }
    if (result == CLI_OK)
        result = print_result(fit, args);
    gpuserve_model_close(&model);
    return result;
}

int cli_fit(const struct cli_args *args)
{
    struct fit *fit;
    int result = check_usage(args);

    if (result != CLI_OK)
        return result;
    fit = cli_alloc(1, sizeof(*fit));
    result = run_fit(fit, args);
    for (int i = 0; i < N_SETS; i++)
        cli_fit_set_free(&fit->sets[i]);
    cli_fit_labels_free(&fit->labels);
    cli_fit_selection_free(&fit->selection);
    cli_fit_head_free(&fit->head);
    free(fit);
    return result;
}
