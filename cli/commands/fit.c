/*
 * fit.c - `gpuserve fit`: trains a classifier head on the embeddings of labelled texts.
 *
 *   read the sets -> split and sample -> embed -> solve -> measure accuracy -> save the head
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
    return cli_fit_check_where(args);
}

static int read_sets(struct fit *fit, const struct cli_args *args)
{
    struct fit_set *const all[N_SETS] = { &fit->sets[TRAIN], &fit->sets[VALIDATION],
                                          &fit->sets[TEST] };
    const char *paths[N_SETS] = { args->train, args->validation, args->test };
    size_t common;

    for (int i = 0; i < N_SETS; i++) {
        if (paths[i] && cli_fit_read(all[i], &fit->labels, paths[i], args) != CLI_OK)
            return CLI_FAILED;
    }
    if (fit->labels.n < 2)
        return cli_fail("%s: the texts have only one label, fit needs two or more", args->train);
    const int result = cli_fit_order_labels(&fit->labels, all, N_SETS, &args->label_names);
    if (result != CLI_OK)
        return result;
    if (args->split > 0)
        cli_fit_split(all[TRAIN], all[TEST], args->split, (uint64_t)args->seed);
    if (args->limit)
        cli_fit_sample(all[TRAIN], args->limit, (uint64_t)args->seed);
    if (all[TRAIN]->n == 0 || (args->split > 0 && all[TEST]->n == 0))
        return cli_fail("%s: too few texts for --split %g", args->train, args->split);
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

/* Solves for --C, or for each value of a grid, and keeps the head with the best validation
 * accuracy. On a tie the most regularized one (smallest C) is kept. */
static void solve(struct fit *fit, const struct cli_args *args)
{
    static const double grid[] = { 0.1, 1, 10, 100, 1000 };
    const double tolerance = args->tolerance > 0 ? args->tolerance : FIT_DEFAULT_TOLERANCE;
    struct fit_head head;
    double best = -1;

    fit->origin.c = args->c > 0 ? args->c : FIT_DEFAULT_C;
    if (args->c > 0 || !fit->sets[VALIDATION].n) {
        cli_fit_solve(&fit->head, &fit->sets[TRAIN], fit->origin.c, tolerance);
        return;
    }
    cli_fit_head_init(&head, fit->head.n_labels, fit->head.dim);
    for (size_t i = 0; i < sizeof(grid) / sizeof(grid[0]); i++) {
        double accuracy;

        cli_fit_solve(&head, &fit->sets[TRAIN], grid[i],
                      tolerance); /* warm start: previous weights */
        accuracy = cli_fit_accuracy(&head, &fit->sets[VALIDATION]);
        if (!args->quiet)
            fprintf(stderr, "C %-6g validation accuracy %.4f\n", grid[i], accuracy);
        if (accuracy <= best)
            continue;
        best = accuracy;
        fit->origin.c = grid[i];
        fit->head.iterations = head.iterations;
        fit->head.converged = head.converged;
        memcpy(fit->head.weight, head.weight,
               head.n_labels * (head.dim + 1) * sizeof(*head.weight));
    }
    cli_fit_head_free(&head);
}

static void measure(struct fit *fit, const gpuserve_model *model, const struct cli_args *args)
{
    struct fit_origin *origin = &fit->origin;
    const char *slash = strrchr(args->train, '/');
    double *const accuracies[N_SETS] = { &origin->train_accuracy, &origin->validation_accuracy,
                                         &origin->test_accuracy };

    for (int i = 0; i < N_SETS; i++)
        *accuracies[i] = fit->sets[i].n ? cli_fit_accuracy(&fit->head, &fit->sets[i]) : -1;
    origin->n_train = fit->sets[TRAIN].n;
    origin->n_validation = fit->sets[VALIDATION].n;
    origin->n_test = fit->sets[TEST].n;
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

static int print_result(const struct fit *fit, const struct cli_args *args)
{
    const struct fit_origin *origin = &fit->origin;
    json_t *facts = json_pack("{s:s, s:I, s:I, s:f, s:i}", "head", args->output, "n_labels",
                              (json_int_t)fit->head.n_labels, "dim", (json_int_t)fit->head.dim, "C",
                              origin->c, "iterations", fit->head.iterations);

    if (!facts)
        return cli_fail("--output: not UTF-8");
    set_accuracy(facts, "train", origin->n_train, origin->train_accuracy);
    set_accuracy(facts, "validation", origin->n_validation, origin->validation_accuracy);
    set_accuracy(facts, "test", origin->n_test, origin->test_accuracy);
    return cli_facts_print(facts, args->json);
}

static int run_fit(struct fit *fit, const struct cli_args *args)
{
    gpuserve_model *model;
    int result = read_sets(fit, args);

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
    cli_fit_head_free(&fit->head);
    free(fit);
    return result;
}
