/*
 * fit.h - the parts of `gpuserve fit`.
 *
 *   data.c: labelled texts -> vectors.c: their embeddings -> solve.c: weights
 *   -> head.c: a head file; fit.c puts them together.
 */
#ifndef CLI_FIT_H
#define CLI_FIT_H

#include "cli/options/options.h"

/* ---------------------------------------------------------------------------------------- data */

#define FIT_LABELS 4096

/* The labels of all sets: as in the data, and as the head will call them. */
struct fit_labels {
    char *given[FIT_LABELS];
    const char *names[FIT_LABELS]; /* lent: `given` or the command line */
    size_t n;
};

struct fit_set {
    char *bytes; /* all texts, end to end */
    size_t n_bytes, bytes_capacity;
    size_t *offsets; /* [n + 1] */
    size_t offsets_capacity;
    int32_t *labels; /* [n] index of the label */
    size_t labels_capacity;
    size_t n;
    float *vectors; /* [n, dim] */
};

/* Read a file of labelled texts; labels not seen before are added. */
int cli_fit_read(struct fit_set *set, struct fit_labels *labels, const char *path,
                 const struct cli_args *args);
void cli_fit_set_free(struct fit_set *set);

/* Bring the labels into order (by number when all are numbers, else by their bytes), give them
 * their names, and number the sets' texts accordingly. */
int cli_fit_order_labels(struct fit_labels *labels, struct fit_set *const *sets, size_t n_sets,
                         const struct cli_list *names);
void cli_fit_labels_free(struct fit_labels *labels);

/* Move a part of `from` to `to`: which text goes is decided by a hash of the text and the seed, so
 * equal texts stay together and the order of the file does not matter. */
void cli_fit_split(struct fit_set *from, struct fit_set *to, double part, uint64_t seed);
/* Keep `limit` texts, chosen in the same way. */
void cli_fit_sample(struct fit_set *set, size_t limit, uint64_t seed);
/* How many texts of `a` are also in `b`. */
size_t cli_fit_common(const struct fit_set *a, const struct fit_set *b);

/* ------------------------------------------------------------------------------------- vectors */

/* Fill set->vectors: every text's embedding, normalized. */
int cli_fit_embed(struct fit_set *set, gpuserve_model *model, const char *what,
                  const struct cli_args *args);

/* --------------------------------------------------------------------------------------- solve */

/* Row k of `weight` and bias[k] give the logit of label k. */
struct fit_head {
    size_t n_labels, dim;
    double *weight; /* [n_labels, dim] then bias [n_labels] */
    int iterations;
    bool converged;
};

/* Minimise  C * sum of log losses + 1/2 * sum of squared weights  (the biases are free), as
 * scikit-learn's LogisticRegression does. Starts from what the head holds, ends when
 * no component of the mean loss's gradient is above `tolerance`. */
void cli_fit_solve(struct fit_head *head, const struct fit_set *set, double c, double tolerance);
void cli_fit_head_init(struct fit_head *head, size_t n_labels, size_t dim);
void cli_fit_head_free(struct fit_head *head);

/* Share of the set's texts whose best label is theirs. */
double cli_fit_accuracy(const struct fit_head *head, const struct fit_set *set);

/* Limited-memory BFGS: x[n] moves to a minimum of `f`, which returns the value and writes the
 * gradient. Ends when no component of the gradient is above `tolerance`. */
typedef double (*cli_function)(void *of, const double *x, double *gradient);
struct cli_minimum {
    int iterations;
    bool converged;
};
struct cli_minimum cli_minimize(cli_function f, void *of, double *x, size_t n, double tolerance,
                                int max_iterations);

/* ---------------------------------------------------------------------------------------- file */

/* What the head's file says of its origin. */
struct fit_origin {
    const char *data; /* name of the training data */
    size_t n_train, n_validation, n_test;
    double train_accuracy, validation_accuracy, test_accuracy; /* negative: not measured */
    double c;
    const char *fingerprint; /* of the model that made the vectors */
};

int cli_fit_save(const char *path, const struct fit_head *head, const struct fit_labels *labels,
                 const struct fit_origin *origin);

#endif
