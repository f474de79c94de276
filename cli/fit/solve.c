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
#define DEFAULT_TOLERANCE 1e-4 /* scikit-learn's */

struct problem {
    const struct fit_part *part;
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

static size_t row_of(const struct fit_part *part, size_t i)
{
    return part->rows ? part->rows[i] : i;
}

/* Logits of a vector by weights then biases. */
static void logits(double *scores, const double *x, const float *vector, size_t n_labels,
                   size_t dim)
{
    for (size_t k = 0; k < n_labels; k++)
        scores[k] = dot_mixed(x + k * dim, vector, dim) + x[n_labels * dim + k];
}

/* Mean loss plus penalty, and its gradient, at x = weights then biases. */
static double loss(void *of, const double *x, double *gradient)
{
    const struct problem *p = of;
    const size_t n_weights = p->n_labels * p->dim;
    const double share = 1.0 / (double)p->part->n;
    const struct fit_set *set = p->part->set;
    double *bias_gradient = gradient + n_weights, value = 0, squares = 0;

    memset(gradient, 0, (n_weights + p->n_labels) * sizeof(*gradient));
    for (size_t i = 0; i < p->part->n; i++) {
        const size_t row = row_of(p->part, i), label = (size_t)set->labels[row];
        const float *vector = set->vectors + row * p->dim;

        logits(p->scores, x, vector, p->n_labels, p->dim);
        value -= p->scores[label];
        value += softmax(p->scores, p->n_labels);
        p->scores[label] -= 1;
        for (size_t k = 0; k < p->n_labels; k++) {
            const double slope = p->scores[k] * share;
            double *weights = gradient + k * p->dim;

            for (size_t j = 0; j < p->dim; j++)
                weights[j] += slope * (double)vector[j];
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

double cli_fit_tolerance(const struct cli_args *args)
{
    return args->tolerance > 0 ? args->tolerance : DEFAULT_TOLERANCE;
}

void cli_fit_solve(struct fit_head *head, const struct fit_part *part, double c, double tolerance)
{
    struct problem p = { .part = part, .n_labels = head->n_labels, .dim = head->dim };
    struct cli_minimum minimum;

    /* For two labels scikit-learn uses one weight vector w with penalty 1/2 w^2. Here the two rows
     * converge to -w/2 and w/2 with half that penalty. Doubling the penalty gives the same w. */
    p.penalty = (head->n_labels == 2 ? 2 : 1) / (c * (double)part->n);
    p.scores = cli_alloc(p.n_labels, sizeof(*p.scores));
    minimum =
        cli_minimize(loss, &p, head->weight, p.n_labels * (p.dim + 1), tolerance, MAX_ITERATIONS);
    free(p.scores);
    head->iterations = minimum.iterations;
    head->converged = minimum.converged;
}

struct fit_part cli_fit_all(const struct fit_set *set)
{
    return (struct fit_part){ .set = set, .n = set->n };
}

/* Index of the highest score; of equal ones the first. */
static size_t best_of(const double *scores, size_t n)
{
    size_t best = 0;

    for (size_t k = 1; k < n; k++) {
        if (scores[k] > scores[best])
            best = k;
    }
    return best;
}

struct fit_score cli_fit_score(const struct fit_head *head, const struct fit_part *part,
                               int32_t *found)
{
    double *scores = cli_alloc(head->n_labels, sizeof(*scores)), loss_sum = 0;
    size_t right = 0;

    for (size_t i = 0; i < part->n; i++) {
        const size_t row = row_of(part, i), label = (size_t)part->set->labels[row];
        size_t best;
        double of_label;

        logits(scores, head->weight, part->set->vectors + row * head->dim, head->n_labels,
               head->dim);
        best = best_of(scores, head->n_labels);
        right += best == label;
        if (found)
            found[i] = (int32_t)best;
        of_label = scores[label]; /* before softmax() replaces it */
        loss_sum += softmax(scores, head->n_labels) - of_label;
    }
    free(scores);
    return (struct fit_score){ .log_loss = loss_sum / (double)part->n,
                               .accuracy = (double)right / (double)part->n };
}
