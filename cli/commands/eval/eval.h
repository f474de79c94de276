/*
 * eval.h - the parts of `gpuserve eval`.
 */
#ifndef CLI_EVAL_H
#define CLI_EVAL_H

#include "cli/fit/fit.h"
#include "cli/io/input.h"

#include <stddef.h>

/* A pair: what the model says, and what the data say. */
struct eval_pair {
    float similarity;
    double label;
};

/* NaN where one of both is constant. */
double cli_eval_pearson(const struct eval_pair *pairs, size_t n);
/* Ties have their average rank, as in scipy. */
double cli_eval_spearman(const struct eval_pair *pairs, size_t n);

struct eval_binary {
    double average_precision, accuracy, accuracy_threshold, f1, f1_threshold;
};

/* Sorts the pairs by similarity. Labels are 0 and 1. As BinaryClassificationEvaluator of
 * sentence-transformers: a threshold is the middle of two adjacent similarities. */
void cli_eval_binary(struct eval_binary *scores, struct eval_pair *pairs, size_t n);

/* Vectors as --precision stores them and --similarity compares them by their dot product. */
struct eval_vectors {
    size_t dim;
    uint32_t precision; /* gpuserve_precision */
    bool dot;           /* --similarity dot: the vectors keep their lengths */
    float *ranges;      /* [2, dim] of int8 and uint8 */
    uint8_t *stored;    /* [capacity] the values of a vector */
    size_t capacity;
};

/* The gpuserve_normalize of the job that computes the vectors. */
uint32_t cli_eval_normalize(const struct cli_args *args);
/* Close it whatever the result. */
int cli_eval_vectors_open(struct eval_vectors *vectors, gpuserve_model *model,
                          const struct cli_args *args);
void cli_eval_vectors_close(struct eval_vectors *vectors);
/* Replaces rows [n, dim] by the values to compare. */
int cli_eval_vectors_convert(struct eval_vectors *vectors, float *rows, size_t n);
/* Fills set->vectors with converted vectors. */
int cli_eval_embed(struct fit_set *set, gpuserve_model *model, const char *what,
                   struct eval_vectors *vectors, const struct cli_args *args);

/* Measures the rows of `input` as pairs of a query and a document that is relevant to it; adds the
 * results to `row`. CLI_OK or CLI_FAILED. */
int cli_eval_retrieval(json_t *row, struct cli_input *input, gpuserve_model *model,
                       const struct cli_args *args);

/* Measures the labels of the texts of --input; adds the results to `row`. CLI_OK, CLI_FAILED or
 * CLI_USAGE. */
int cli_eval_classification(json_t *row, const struct cli_args *args);

#endif
