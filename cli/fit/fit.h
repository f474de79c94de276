/*
 * fit.h - the parts of `gpuserve fit`, which trains a linear classifier head on embeddings.
 *
 *   data.c: labelled texts -> vectors.c: embeddings -> select_c.c: C -> solve.c: weights
 *   -> head.c: head file
 *
 * commands/fit.c calls them in this order. minimize.c is the optimizer that solve.c uses.
 * `gpuserve eval` and `bench --lstm` read labelled texts and run models on them with these parts.
 */
#ifndef CLI_FIT_H
#define CLI_FIT_H

#include "cli/options/options.h"

/* ---------------------------------------------------------------------------------------- data */

#define FIT_LABELS 4096
#define FIT_DEFAULT_C 10.0

/* A label as given in the data, and as named in the head. */
struct fit_label {
    char *given;
    const char *name; /* borrowed from `given` or from the command line */
    char *where;      /* its first text, for messages: "FILE: line 7" */
};

/* The labels of all sets. */
struct fit_labels {
    struct fit_label items[FIT_LABELS];
    size_t n;
};

struct fit_set {
    char *bytes; /* all texts, concatenated */
    size_t n_bytes, bytes_capacity;
    size_t *offsets; /* [n + 1] */
    size_t offsets_capacity;
    int32_t *labels; /* [n] index into fit_labels */
    size_t labels_capacity;
    size_t n;
    float *vectors; /* [n, dim] */
};

/* Appends a text; the bytes are copied. */
void cli_fit_add(struct fit_set *set, const char *text, size_t size, int32_t label);

/* Checks the values of --where; CLI_OK or CLI_USAGE. */
int cli_fit_check_where(const struct cli_args *args);
/* Reads a file of labelled texts; adds new labels to `labels`. */
int cli_fit_read(struct fit_set *set, struct fit_labels *labels, const char *path,
                 const struct cli_args *args);
void cli_fit_set_free(struct fit_set *set);

/* Sorts the labels (by number if all are integers, else by bytes), applies the names OLD=NEW, and
 * renumbers the labels of the sets' texts. */
int cli_fit_order_labels(struct fit_labels *labels, struct fit_set *const *sets, size_t n_sets,
                         const struct cli_list *names);
/* Checks that each label has a name of its own and a text in `train`, which was read from `path`.
 * CLI_OK, CLI_FAILED or CLI_USAGE. */
int cli_fit_check_labels(const struct fit_labels *labels, const struct fit_set *train,
                         const char *path);
void cli_fit_labels_free(struct fit_labels *labels);
/* map[i]: index of label i, by its name, among the labels of the model's classifier. An error if
 * the classifier lacks one. */
int cli_fit_map_labels(int32_t *map, const struct fit_labels *labels, const gpuserve_model *model);

/* Moves the fraction `part` of `from` to `to`. A hash of text and seed selects the texts: equal
 * texts stay together, and the order of the file has no effect. */
void cli_fit_split(struct fit_set *from, struct fit_set *to, double part, uint64_t seed);
/* The same for the fraction `part` of the texts of each label, rounded: at least one text moves and
 * at least one stays. An error if a label has fewer than two different texts. */
int cli_fit_split_labels(struct fit_set *from, struct fit_set *to, const struct fit_labels *labels,
                         double part, uint64_t seed);
/* Keeps `limit` texts, selected by a hash in the same way. */
void cli_fit_sample(struct fit_set *set, size_t limit, uint64_t seed);
/* Number of texts of `a` that are also in `b`. */
size_t cli_fit_common(const struct fit_set *a, const struct fit_set *b);

/* A part of a set: the texts rows[n], or the first n where rows is NULL. */
struct fit_part {
    const struct fit_set *set;
    const size_t *rows; /* [n] */
    size_t n;
};

struct fit_part cli_fit_all(const struct fit_set *set);

/* A set in n parts of about equal size. */
struct fit_folds {
    size_t n;
    size_t *starts; /* [n + 1] fold k is rows[starts[k]] to rows[starts[k + 1] - 1] */
    size_t *rows;   /* [2 * set->n] the rows twice: the texts outside of a fold are one range too */
};

/* Makes n stratified folds: each label is spread evenly over them. Equal texts are in one fold. A
 * hash of text and seed orders the texts, the order of the file has no effect. */
void cli_fit_folds_init(struct fit_folds *folds, const struct fit_set *set, size_t n,
                        uint64_t seed);
void cli_fit_folds_free(struct fit_folds *folds);
/* The texts of fold k, and those of the other folds. */
struct fit_part cli_fit_fold(const struct fit_folds *folds, const struct fit_set *set, size_t k);
struct fit_part cli_fit_other_folds(const struct fit_folds *folds, const struct fit_set *set,
                                    size_t k);
/* The label with the fewest different texts, and their number. Each label has a text. */
size_t cli_fit_rarest_label(const struct fit_set *set, size_t *n_texts);

/* ------------------------------------------------------------------------------------- vectors */

/* Fills set->vectors with the embedding of each text, of --dimensions if given. `normalize` is a
 * gpuserve_normalize. */
int cli_fit_embed(struct fit_set *set, gpuserve_model *model, const char *what, uint32_t normalize,
                  const struct cli_args *args);

/* Writes the index of the classifier's label with the highest score for each text; of equal scores
 * the first. */
int cli_fit_classify(int32_t *found, struct fit_set *set, gpuserve_model *model,
                     const struct cli_args *args);

/* --------------------------------------------------------------------------------------- solve */

/* A linear classifier: logit k = weight row k * embedding + bias[k]. */
struct fit_head {
    size_t n_labels, dim;
    double *weight; /* [n_labels, dim], followed by the biases [n_labels] */
    int iterations;
    bool converged;
};

/* --tolerance, or the default. */
double cli_fit_tolerance(const struct cli_args *args);
/* Minimizes  C * sum of log losses + 1/2 * sum of squared weights  (biases are not penalized), the
 * objective of scikit-learn's LogisticRegression. Starts from the weights in `head`. Stops when the
 * max norm of the mean loss's gradient is at most `tolerance`. */
void cli_fit_solve(struct fit_head *head, const struct fit_part *part, double c, double tolerance);
void cli_fit_head_init(struct fit_head *head, size_t n_labels, size_t dim);
void cli_fit_head_free(struct fit_head *head);

struct fit_score {
    double c;
    double log_loss; /* mean of -log(probability of the text's label) */
    double accuracy; /* fraction of the texts whose predicted label is correct */
};

/* Log loss and accuracy of a head on some texts; c is 0. Writes the label with the highest logit of
 * each text, of equal logits the first, to found[part->n] unless that is NULL. */
struct fit_score cli_fit_score(const struct fit_head *head, const struct fit_part *part,
                               int32_t *found);

/* Limited-memory BFGS (L-BFGS): moves x[n] to a minimum of `f`, which returns the value and writes
 * the gradient. Stops when the max norm of the gradient is at most `tolerance`. */
typedef double (*cli_function)(void *of, const double *x, double *gradient);
struct cli_minimum {
    int iterations;
    bool converged;
};
struct cli_minimum cli_minimize(cli_function f, void *of, double *x, size_t n, double tolerance,
                                int max_iterations);

/* ------------------------------------------------------------------------------ selection of C */

/* The grid of LogisticRegressionCV of scikit-learn: 10 values from 1e-4 to 1e4, evenly spaced in
 * their logarithm. */
#define FIT_GRID 10
#define FIT_DEFAULT_FOLDS 5

/* How C was chosen. */
struct fit_selection {
    const char *method;     /* "fixed" by --C, "cross-validation", "validation" or "default" */
    struct fit_folds folds; /* of the cross-validation; else n is 0 */
    double c;
    struct fit_score scores[FIT_GRID]; /* [n_scores] of each C, means over the folds */
    size_t n_scores;
};

/* Chooses the method, before the embeddings are computed: --C, the texts of `validation` if there
 * are some, else a cross-validation over `train`. Where that is impossible FIT_DEFAULT_C, with a
 * warning, or an error if --folds asks for it. */
int cli_fit_selection_init(struct fit_selection *selection, const struct fit_set *train,
                           const struct fit_set *validation, const struct fit_labels *labels,
                           const struct cli_args *args);
void cli_fit_selection_free(struct fit_selection *selection);
/* Sets C: where the method does not set it, to the value of the grid with the lowest log loss, the
 * smallest of equal ones. */
void cli_fit_select(struct fit_selection *selection, const struct fit_set *train,
                    const struct fit_set *validation, size_t n_labels, size_t dim,
                    const struct cli_args *args);

/* ---------------------------------------------------------------------------------------- file */

/* Provenance that the head file's metadata records. */
struct fit_origin {
    const char *data; /* name of the training data */
    size_t n_train, n_validation, n_test;
    double train_accuracy, validation_accuracy, test_accuracy; /* negative: not measured */
    const struct fit_selection *selection;
    uint64_t seed;           /* of the folds */
    const char *fingerprint; /* fingerprint of the embedding model */
};

int cli_fit_save(const char *path, const struct fit_head *head, const struct fit_labels *labels,
                 const struct fit_origin *origin);

#endif
