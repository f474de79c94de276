/*
 * eval.h - the parts of `gpuserve eval`.
 */
#ifndef CLI_EVAL_H
#define CLI_EVAL_H

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

/* Measures the rows of `input` as pairs of a query and a document that is relevant to it; adds the
 * results to `row`. CLI_OK or CLI_FAILED. */
int cli_eval_retrieval(json_t *row, struct cli_input *input, gpuserve_model *model,
                       const struct cli_args *args);

#endif
