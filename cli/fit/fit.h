/*
 * fit.h - the parts of `gpuserve fit`, which trains a linear classifier head on embeddings.
 *
 *   data.c: labelled texts -> vectors.c: embeddings -> solve.c: weights -> head.c: head file
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
#define FIT_DEFAULT_TOLERANCE 1e-4 /* scikit-learn's default */

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

/* Minimizes  C * sum of log losses + 1/2 * sum of squared weights  (biases are not penalized), the
 * objective of scikit-learn's LogisticRegression. Starts from the weights in `head`. Stops when the
 * max norm of the mean loss's gradient is at most `tolerance`. */
void cli_fit_solve(struct fit_head *head, const struct fit_set *set, double c, double tolerance);
void cli_fit_head_init(struct fit_head *head, size_t n_labels, size_t dim);
void cli_fit_head_free(struct fit_head *head);

/* The label with the highest logit for a vector; of equal logits the first. */
size_t cli_fit_predict(const struct fit_head *head, const float *vector);
/* Fraction of the set's texts whose predicted label is correct. */
double cli_fit_accuracy(const struct fit_head *head, const struct fit_set *set);

/* Limited-memory BFGS (L-BFGS): moves x[n] to a minimum of `f`, which returns the value and writes
 * the gradient. Stops when the max norm of the gradient is at most `tolerance`. */
typedef double (*cli_function)(void *of, const double *x, double *gradient);
struct cli_minimum {
    int iterations;
    bool converged;
};
struct cli_minimum cli_minimize(cli_function f, void *of, double *x, size_t n, double tolerance,
                                int max_iterations);

/* ---------------------------------------------------------------------------------------- file */

/* Provenance that the head file's metadata records. */
struct fit_origin {
    const char *data; /* name of the training data */
    size_t n_train, n_validation, n_test;
    double train_accuracy, validation_accuracy, test_accuracy; /* negative: not measured */
    double c;
    const char *fingerprint; /* fingerprint of the embedding model */
};

int cli_fit_save(const char *path, const struct fit_head *head, const struct fit_labels *labels,
                 const struct fit_origin *origin);

#endif
