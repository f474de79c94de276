/*
 * solve.c - multinomial logistic regression in float64, trained with L-BFGS (minimize.c).
 *
 * Parameters are one array: weights [n_labels, dim], then biases [n_labels]. Embeddings are
 * float32; all sums are float64.
 */
#include "cli/fit/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITERATIONS 2000

struct problem {
    const struct fit_set *set;
    size_t n_labels, dim;
    double penalty; /* factor of 1/2 * squared weights, relative to the mean loss */
    double *scores; /* [n_labels] */
};

static double dot_mixed(const double *w, const float *x, size_t n)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += w[i] * (double)x[i];
    return sum;
}

/* Replaces scores by probabilities, returns log(sum(exp(scores))). The max is subtracted first, so
 * that exp() does not overflow. */
static double softmax(double *scores, size_t n)
{
    double max_score = scores[0], sum = 0;

    for (size_t k = 1; k < n; k++)
        max_score = fmax(max_score, scores[k]);
    for (size_t k = 0; k < n; k++) {
        scores[k] = exp(scores[k] - max_score);
        sum += scores[k];
    }
    for (size_t k = 0; k < n; k++)
        scores[k] /= sum;
    return log(sum) + max_score;
}

/* Mean loss plus penalty, and its gradient, at x = weights then biases. */
static double loss(void *of, const double *x, double *gradient)
{
    const struct problem *p = of;
    const size_t n_weights = p->n_labels * p->dim;
    const double *bias = x + n_weights, share = 1.0 / (double)p->set->n;
    double *bias_gradient = gradient + n_weights, value = 0, squares = 0;

    memset(gradient, 0, (n_weights + p->n_labels) * sizeof(*gradient));
    for (size_t i = 0; i < p->set->n; i++) {
        const float *vector = p->set->vectors + i * p->dim;
        const size_t label = (size_t)p->set->labels[i];

        for (size_t k = 0; k < p->n_labels; k++)
            p->scores[k] = dot_mixed(x + k * p->dim, vector, p->dim) + bias[k];
        value -= p->scores[label];
        value += softmax(p->scores, p->n_labels);
        p->scores[label] -= 1;
        for (size_t k = 0; k < p->n_labels; k++) {
            const double slope = p->scores[k] * share;
            double *row = gradient + k * p->dim;

            for (size_t j = 0; j < p->dim; j++)
                row[j] += slope * (double)vector[j];
            bias_gradient[k] += slope;
        }
    }
    for (size_t j = 0; j < n_weights; j++) {
        squares += x[j] * x[j];
        gradient[j] += p->penalty * x[j];
    }
    return value * share + 0.5 * p->penalty * squares;
}

void cli_fit_head_init(struct fit_head *head, size_t n_labels, size_t dim)
{
    *head = (struct fit_head){ .n_labels = n_labels, .dim = dim };
    head->weight = cli_alloc(n_labels, (dim + 1) * sizeof(*head->weight));
}

void cli_fit_head_free(struct fit_head *head)
{
    free(head->weight);
    head->weight = NULL;
}

void cli_fit_solve(struct fit_head *head, const struct fit_set *set, double c, double tolerance)
{
    struct problem p = { .set = set, .n_labels = head->n_labels, .dim = head->dim };
    struct cli_minimum minimum;

    /* For two labels scikit-learn uses one weight vector w with penalty 1/2 w^2. Here the two rows
     * converge to -w/2 and w/2 with half that penalty. Doubling the penalty gives the same w. */
    p.penalty = (head->n_labels == 2 ? 2 : 1) / (c * (double)set->n);
    p.scores = cli_alloc(p.n_labels, sizeof(*p.scores));
    minimum =
        cli_minimize(loss, &p, head->weight, p.n_labels * (p.dim + 1), tolerance, MAX_ITERATIONS);
    free(p.scores);
    head->iterations = minimum.iterations;
    head->converged = minimum.converged;
}

size_t cli_fit_predict(const struct fit_head *head, const float *vector)
{
    const double *bias = head->weight + head->n_labels * head->dim;
    double best_score = -INFINITY;
    size_t best = 0;

    for (size_t k = 0; k < head->n_labels; k++) {
        const double score = dot_mixed(head->weight + k * head->dim, vector, head->dim) + bias[k];

        if (score > best_score) {
            best_score = score;
            best = k;
        }
    }
    return best;
}

double cli_fit_accuracy(const struct fit_head *head, const struct fit_set *set)
{
    size_t right = 0;

    for (size_t i = 0; i < set->n; i++)
        right += cli_fit_predict(head, set->vectors + i * head->dim) == (size_t)set->labels[i];
    return (double)right / (double)set->n;
}
