/*
 * minimize.c - L-BFGS (Nocedal and Wright, Numerical Optimization, algorithm 7.5) with a bisection
 * line search for the weak Wolfe conditions.
 *
 * For smooth convex functions. All vectors are float64, in one allocation.
 */
#include "cli/fit/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAST 10       /* history length: stored (s, y) pairs */
#define TRIES 60      /* max steps of a line search */
#define DECREASE 1e-4 /* Wolfe constants c1 and c2 of the book */
#define CURVATURE 0.9

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double *a, double scale, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] += scale * b[i];
}

static double largest(const double *a, size_t n)
{
    double max = 0;

    for (size_t i = 0; i < n; i++)
        max = fmax(max, fabs(a[i]));
    return max;
}

struct minimize_search {
    cli_function f;
    void *of;
    size_t n;
    double value;
    double *x, *gradient, *direction; /* [n] */
    double *new_x, *new_gradient;     /* [n] */
    /* history as ring buffers: s = steps, y = gradient differences */
    double *s[PAST], *y[PAST], rho[PAST];
    size_t n_past, newest;
};

/* Two-loop recursion: direction = -H * gradient, H the inverse Hessian estimated by the history. */
static void find_direction(struct minimize_search *search)
{
    const size_t n = search->n;
    double alpha[PAST], *d = search->direction;

    for (size_t i = 0; i < n; i++)
        d[i] = -search->gradient[i];
    for (size_t k = 0; k < search->n_past; k++) {
        const size_t i = (search->newest + PAST - k) % PAST;

        alpha[i] = search->rho[i] * dot(search->s[i], d, n);
        add_scaled(d, -alpha[i], search->y[i], n);
    }
    if (search->n_past) {
        const double *y = search->y[search->newest];
        const double scale = 1 / (search->rho[search->newest] * dot(y, y, n));

        for (size_t i = 0; i < n; i++)
            d[i] *= scale;
    }
    for (size_t k = search->n_past; k-- > 0;) {
        const size_t i = (search->newest + PAST - k) % PAST;
        const double beta = search->rho[i] * dot(search->y[i], d, n);

        add_scaled(d, alpha[i] - beta, search->s[i], n);
    }
}

/* Line search into new_x; false if no step decreases the function. */
static bool find_step(struct minimize_search *search, double *new_value)
{
    const double slope = dot(search->gradient, search->direction, search->n);
    double low = 0, high = INFINITY, step = 1;

    if (!(slope < 0))
        return false;
    if (search->n_past == 0) /* no history: the scale is unknown */
        step = fmin(1, 1 / sqrt(dot(search->gradient, search->gradient, search->n)));
    for (int i = 0; i < TRIES; i++) {
        memcpy(search->new_x, search->x, search->n * sizeof(*search->x));
        add_scaled(search->new_x, step, search->direction, search->n);
        *new_value = search->f(search->of, search->new_x, search->new_gradient);
        if (!(*new_value <= search->value + DECREASE * step * slope))
            high = step;
        else if (dot(search->new_gradient, search->direction, search->n) < CURVATURE * slope)
            low = step;
        else
            return true;
        step = isinf(high) ? 2 * low : (low + high) / 2;
    }
    return false;
}

static void remember(struct minimize_search *search)
{
    const size_t slot = search->n_past ? (search->newest + 1) % PAST : 0;
    double *s = search->s[slot], *y = search->y[slot], product;

    for (size_t i = 0; i < search->n; i++) {
        s[i] = search->new_x[i] - search->x[i];
        y[i] = search->new_gradient[i] - search->gradient[i];
    }
    product = dot(s, y, search->n);
    if (!(product > 0)) /* rounding error removed the curvature: skip this pair */
        return;
    search->rho[slot] = 1 / product;
    search->newest = slot;
    if (search->n_past < PAST)
        search->n_past++;
}

static void search_init(struct minimize_search *search, double *memory)
{
    double **const parts[] = { &search->gradient, &search->direction, &search->new_x,
                               &search->new_gradient };

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++, memory += search->n)
        *parts[i] = memory;
    for (size_t i = 0; i < PAST; i++, memory += 2 * search->n) {
        search->s[i] = memory;
        search->y[i] = memory + search->n;
    }
}

struct cli_minimum cli_minimize(cli_function f, void *of, double *x, size_t n, double tolerance,
                                int max_iterations)
{
    struct minimize_search search = { .f = f, .of = of, .n = n, .x = x };
    struct cli_minimum minimum = { 0, false };
    double *memory = cli_alloc((4 + 2 * PAST) * n, sizeof(*memory)), value;

    search_init(&search, memory);
    search.value = f(of, x, search.gradient);
    while (!(minimum.converged = largest(search.gradient, n) <= tolerance) &&
           minimum.iterations < max_iterations) {
        find_direction(&search);
        if (!find_step(&search, &value))
            break;
        remember(&search);
        memcpy(x, search.new_x, n * sizeof(*x));
        memcpy(search.gradient, search.new_gradient, n * sizeof(*x));
        search.value = value;
        minimum.iterations++;
    }
    free(memory);
    return minimum;
}
