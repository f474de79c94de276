/*
 * eval_scores.c - correlation, and the separation of labels 0 and 1 by a threshold.
 */
#include "cli/commands/eval/eval.h"
#include "cli/cli.h"

#include <math.h>
#include <stdlib.h>

static double pearson(const double *x, const double *y, size_t n)
{
    double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;

    for (size_t i = 0; i < n; i++) {
        mean_x += x[i] / (double)n;
        mean_y += y[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        xx += (x[i] - mean_x) * (x[i] - mean_x);
        yy += (y[i] - mean_y) * (y[i] - mean_y);
        xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

struct ranked {
    double value;
    size_t index;
};

static int by_value(const void *a, const void *b)
{
    const double x = ((const struct ranked *)a)->value, y = ((const struct ranked *)b)->value;

    return (x > y) - (x < y);
}

/* Replaces the values by their ranks. */
static void rank(double *values, size_t n)
{
    struct ranked *sorted = cli_alloc(n, sizeof(*sorted));

    for (size_t i = 0; i < n; i++)
        sorted[i] = (struct ranked){ .value = values[i], .index = i };
    qsort(sorted, n, sizeof(*sorted), by_value);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && sorted[end].value == sorted[i].value;)
            end++;
        for (size_t j = i; j < end; j++)
            values[sorted[j].index] = ((double)i + (double)end + 1) / 2;
    }
    free(sorted);
}

static double correlation(const struct eval_pair *pairs, size_t n, void (*change)(double *, size_t))
{
    double *x = cli_alloc(n, sizeof(*x)), *y = cli_alloc(n, sizeof(*y)), r;

    for (size_t i = 0; i < n; i++) {
        x[i] = pairs[i].similarity;
        y[i] = pairs[i].label;
    }
    if (change) {
        change(x, n);
        change(y, n);
    }
    r = pearson(x, y, n);
    free(x);
    free(y);
    return r;
}

double cli_eval_pearson(const struct eval_pair *pairs, size_t n)
{
    return correlation(pairs, n, NULL);
}

double cli_eval_spearman(const struct eval_pair *pairs, size_t n)
{
    return correlation(pairs, n, rank);
}

static int best_first(const void *a, const void *b)
{
    const float x = ((const struct eval_pair *)a)->similarity;
    const float y = ((const struct eval_pair *)b)->similarity;

    return (x < y) - (x > y);
}

/* scikit-learn's average_precision_score: a step for each distinct similarity. */
static double average_precision(const struct eval_pair *pairs, size_t n, double total)
{
    double sum = 0, found = 0;

    for (size_t i = 0, end; i < n; i = end) {
        const double before = found;

        for (end = i; end < n && pairs[end].similarity == pairs[i].similarity; end++)
            found += pairs[end].label;
        sum += (found - before) / total * (found / (double)end);
    }
    return sum;
}

void cli_eval_binary(struct eval_binary *scores, struct eval_pair *pairs, size_t n)
{
    double total = 0, found = 0;

    qsort(pairs, n, sizeof(*pairs), best_first);
    for (size_t i = 0; i < n; i++)
        total += pairs[i].label;
    *scores = (struct eval_binary){ .average_precision = average_precision(pairs, n, total) };
    for (size_t i = 0; i + 1 < n; i++) {
        const double taken = (double)i + 1;
        const double middle = ((double)pairs[i].similarity + pairs[i + 1].similarity) / 2;

        found += pairs[i].label;
        /* Equal similarities are on one side of every threshold. */
        if (pairs[i].similarity == pairs[i + 1].similarity)
            continue;
        const double accuracy = (found + (double)n - total - (taken - found)) / (double)n;
        const double f1 = 2 * found / (taken + total);
        if (accuracy > scores->accuracy) {
            scores->accuracy = accuracy;
            scores->accuracy_threshold = middle;
        }
        if (f1 > scores->f1) {
            scores->f1 = f1;
            scores->f1_threshold = middle;
        }
    }
}
