/*
 * select_c.c - chooses the inverse regularization strength C of a head.
 *
 *   texts -> folds -> for each fold: solve on the other folds, score on the fold, for each C
 *   -> mean scores of each C -> the C with the lowest log loss
 *
 * The score is the log loss: it is a proper scoring rule for the probabilities that a head gives,
 * and few values of C have the same one. Many have the same accuracy on a small set of texts.
 * Folds are independent of each other, a thread takes the next one. Within a fold the weights of
 * one C are the start for the next, larger one. The embeddings are shared and read only.
 */
#include "cli/fit/fit.h"
#include "cli/io/output.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define GRID_MIN_EXPONENT (-4.0)
#define GRID_MAX_EXPONENT 4.0

/* One pair of parts to solve on and to score on. */
struct fit_trial {
    struct fit_part train, held_out;
    struct fit_score scores[FIT_GRID];
};

struct fit_trials {
    struct fit_trial *items; /* [n] */
    size_t n, n_labels, dim;
    double tolerance;
    pthread_mutex_t lock;
    size_t next, n_done; /* trials begun; heads solved */
    struct cli_progress progress;
};

static double grid_value(size_t i)
{
    const double step = (GRID_MAX_EXPONENT - GRID_MIN_EXPONENT) / (FIT_GRID - 1);

    return pow(10, GRID_MIN_EXPONENT + step * (double)i);
}

static void note_solved(struct fit_trials *trials)
{
    pthread_mutex_lock(&trials->lock);
    trials->n_done++;
    cli_progress_update(&trials->progress, (double)trials->n_done,
                        (double)trials->n_done / (double)(trials->n * FIT_GRID));
    pthread_mutex_unlock(&trials->lock);
}

static void run_trial(struct fit_trials *trials, struct fit_trial *trial)
{
    struct fit_head head;

    cli_fit_head_init(&head, trials->n_labels, trials->dim);
    for (size_t i = 0; i < FIT_GRID; i++) {
        cli_fit_solve(&head, &trial->train, grid_value(i), trials->tolerance);
        trial->scores[i] = cli_fit_score(&head, &trial->held_out, NULL);
        note_solved(trials);
    }
    cli_fit_head_free(&head);
}

static void *run_next_trials(void *of)
{
    struct fit_trials *trials = of;

    for (;;) {
        size_t k;

        pthread_mutex_lock(&trials->lock);
        k = trials->next++;
        pthread_mutex_unlock(&trials->lock);
        if (k >= trials->n)
            return NULL;
        run_trial(trials, trials->items + k);
    }
}

static size_t thread_limit(const struct cli_args *args)
{
    cpu_set_t usable;

    if (args->threads)
        return args->threads;
    if (sched_getaffinity(0, sizeof(usable), &usable) == 0)
        return (size_t)CPU_COUNT(&usable);
    return 1;
}

/* Runs the trials on this thread and others. Without other threads it takes longer. */
static void run_trials(struct fit_trials *trials, const struct cli_args *args)
{
    const size_t limit = thread_limit(args), n = limit < trials->n ? limit : trials->n;
    pthread_t *threads = cli_alloc(n, sizeof(*threads));
    size_t n_started = 0;

    pthread_mutex_init(&trials->lock, NULL);
    cli_progress_begin(&trials->progress, "fits", args->quiet);
    while (n_started + 1 < n &&
           pthread_create(&threads[n_started], NULL, run_next_trials, trials) == 0)
        n_started++;
    run_next_trials(trials);
    for (size_t i = 0; i < n_started; i++)
        pthread_join(threads[i], NULL);
    cli_progress_end(&trials->progress);
    pthread_mutex_destroy(&trials->lock);
    free(threads);
}

/* Fills the selection with the means over the trials, and the best C. */
static void select_best(struct fit_selection *selection, const struct fit_trials *trials)
{
    size_t best = 0;

    selection->n_scores = FIT_GRID;
    for (size_t i = 0; i < FIT_GRID; i++) {
        struct fit_score *mean = &selection->scores[i];

        *mean = (struct fit_score){ .c = grid_value(i) };
        for (size_t k = 0; k < trials->n; k++) {
            mean->log_loss += trials->items[k].scores[i].log_loss / (double)trials->n;
            mean->accuracy += trials->items[k].scores[i].accuracy / (double)trials->n;
        }
        if (mean->log_loss < selection->scores[best].log_loss)
            best = i;
    }
    selection->c = selection->scores[best].c;
}

void cli_fit_select(struct fit_selection *selection, const struct fit_set *train,
                    const struct fit_set *validation, size_t n_labels, size_t dim,
                    const struct cli_args *args)
{
    const struct fit_folds *folds = &selection->folds;
    struct fit_trials trials = { .n_labels = n_labels,
                                 .dim = dim,
                                 .tolerance = cli_fit_tolerance(args) };

    if (selection->c > 0)
        return;
    trials.n = folds->n ? folds->n : 1;
    trials.items = cli_alloc(trials.n, sizeof(*trials.items));
    trials.items->train = cli_fit_all(train);
    trials.items->held_out = cli_fit_all(validation);
    for (size_t k = 0; k < folds->n; k++) {
        trials.items[k].train = cli_fit_other_folds(folds, train, k);
        trials.items[k].held_out = cli_fit_fold(folds, train, k);
    }
    run_trials(&trials, args);
    select_best(selection, &trials);
    free(trials.items);
}

/* --------------------------------------------------------------------------- choice of the method
 */

/* Too few texts for a stratified k-fold cross-validation, as `what` says: an error if --folds asks
 * for one, else a warning, and the default C. */
static int refuse_folds(struct fit_selection *selection, const struct fit_label *label,
                        const char *what, const struct cli_args *args)
{
    cli_fit_folds_free(&selection->folds);
    if (args->folds) {
        cli_fail("%s: label \"%s\" has %s", label->where, label->given, what);
        cli_hint("--folds N with a smaller N, or --C C without a cross-validation");
        return CLI_FAILED;
    }
    selection->method = "default";
    selection->c = FIT_DEFAULT_C;
    if (!args->quiet)
        cli_warn("%s: label \"%s\" has %s: no cross-validation, C is %g; --C sets it", label->where,
                 label->given, what, FIT_DEFAULT_C);
    return CLI_OK;
}

/* The first label without a text outside of fold k, or n_labels. */
static size_t missing_label(const struct fit_folds *folds, const struct fit_set *set, size_t k,
                            size_t n_labels)
{
    const struct fit_part others = cli_fit_other_folds(folds, set, k);
    bool *found = cli_alloc(n_labels, sizeof(*found));
    size_t label = 0;

    for (size_t i = 0; i < others.n; i++)
        found[set->labels[others.rows[i]]] = true;
    while (label < n_labels && found[label])
        label++;
    free(found);
    return label;
}

static int make_folds(struct fit_selection *selection, size_t n, const struct fit_set *train,
                      const struct fit_labels *labels, const struct cli_args *args)
{
    cli_fit_folds_init(&selection->folds, train, n, (uint64_t)args->seed);
    for (size_t k = 0; k < n; k++) {
        const size_t missing = missing_label(&selection->folds, train, k, labels->n);

        /* Its texts are also texts of other labels, which decided about their folds. */
        if (missing < labels->n)
            return refuse_folds(selection, &labels->items[missing], "all its texts in one fold",
                                args);
    }
    selection->method = "cross-validation";
    return CLI_OK;
}

/* --folds, or as many folds as the label with the fewest texts permits. */
static int plan_folds(struct fit_selection *selection, const struct fit_set *train,
                      const struct fit_labels *labels, const struct cli_args *args)
{
    const size_t wanted = args->folds ? args->folds : FIT_DEFAULT_FOLDS;
    size_t n_texts;
    const struct fit_label *rarest = &labels->items[cli_fit_rarest_label(train, &n_texts)];
    char what[96] = "no two different training texts";

    if (n_texts >= wanted)
        return make_folds(selection, wanted, train, labels, args);
    if (args->folds)
        snprintf(what, sizeof(what), "%zu different training text%s, --folds %zu needs %zu",
                 n_texts, n_texts > 1 ? "s" : "", wanted, wanted);
    if (args->folds || n_texts < 2)
        return refuse_folds(selection, rarest, what, args);
    if (!args->quiet)
        cli_warn("%s: label \"%s\" has %zu different training texts: %zu folds, not %zu",
                 rarest->where, rarest->given, n_texts, n_texts, wanted);
    return make_folds(selection, n_texts, train, labels, args);
}

int cli_fit_selection_init(struct fit_selection *selection, const struct fit_set *train,
                           const struct fit_set *validation, const struct fit_labels *labels,
                           const struct cli_args *args)
{
    *selection =
        (struct fit_selection){ .method = args->c > 0 ? "fixed" : "validation", .c = args->c };
    if (args->c > 0 || validation->n)
        return CLI_OK;
    return plan_folds(selection, train, labels, args);
}

void cli_fit_selection_free(struct fit_selection *selection)
{
    cli_fit_folds_free(&selection->folds);
}
