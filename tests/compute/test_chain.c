/*
 * test_chain.c - gpuserve_chain() on the CPU and on the emulated GPU, interpreted and by generated
 * kernels, each step against float64.
 */
#include "tests/compute/support.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double exact(double x, const gpuserve_chain_step *step)
{
    const double a = (double)step->a;

    switch (step->kind) {
    case GPUSERVE_CHAIN_ADD:
        return x + a;
    case GPUSERVE_CHAIN_MULTIPLY:
        return x * a;
    case GPUSERVE_CHAIN_FMA:
        return x * a + (double)step->b;
    case GPUSERVE_CHAIN_MINIMUM:
        return isnan(x) || x < a ? x : a;
    case GPUSERVE_CHAIN_MAXIMUM:
        return isnan(x) || x > a ? x : a;
    case GPUSERVE_CHAIN_ABSOLUTE:
        return fabs(x);
    case GPUSERVE_CHAIN_RECIPROCAL:
        return 1 / x;
    case GPUSERVE_CHAIN_SQRT:
        return sqrt(x);
    case GPUSERVE_CHAIN_EXP:
        return exp(x);
    case GPUSERVE_CHAIN_LOG:
        return log(x);
    case GPUSERVE_CHAIN_SIN:
        return sin(x);
    case GPUSERVE_CHAIN_COS:
        return cos(x);
    case GPUSERVE_CHAIN_TANH:
        return tanh(x);
    case GPUSERVE_CHAIN_ERF:
        return erf(x);
    case GPUSERVE_CHAIN_SIGMOID:
        return 1 / (1 + exp(-x));
    case GPUSERVE_CHAIN_RELU:
        return isnan(x) || x > 0 ? x : 0;
    default:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    }
}

static bool is_near(float got, double want)
{
    if (isnan(want))
        return isnan(got);
    if (isinf((float)want))
        return got == (float)want;
    /* Four units in the last place; results below the min normal number may be flushed to zero. */
    return fabs((double)got - want) <= 4 * 1.2e-7 * fabs(want) + 1.2e-38;
}

static const struct place {
    const char *name;
    const char *device;
    const char *nvrtc; /* value of GPUSERVE_NVRTC */
    uint32_t variant;
} places[] = {
    { "cpu", "cpu", "0", GPUSERVE_CHAIN_PRECOMPILED },
    { "cuda, interpreted", "cuda:0", "0", GPUSERVE_CHAIN_PRECOMPILED },
    { "cuda, generated", "cuda:0", "1", GPUSERVE_CHAIN_GENERATED },
};
#define N_PLACES (sizeof(places) / sizeof(places[0]))

static gpuserve_compute *open_place(const struct place *place)
{
    setenv("GPUSERVE_NVRTC", place->nvrtc, 1);
    return open_compute(place->device);
}

/* Each kind of step alone, on values of all magnitudes, infinities and NaN. */
Test(chain, every_step_is_within_four_units)
{
    static const float odd[] = { 0.0f,   -0.0f,       1.0f,     -1.0f,    0.5f,
                                 88.0f,  -88.0f,      89.5f,    INFINITY, -INFINITY,
                                 NAN,    3.14159274f, 99999.0f, 1e-30f,   1e30f,
                                 -7.25f, 49999.0f,    50001.0f, -3.2e7f,  3.4e38f };
    const size_t n_odd = sizeof(odd) / sizeof(odd[0]), n = n_odd + 203;

    for (size_t d = 0; d < N_PLACES; d++) {
        gpuserve_compute *compute = open_place(&places[d]);
        float *in = random_floats(n, 7), *out = poison_floats(n);

        for (size_t i = 0; i < n; i++)
            in[i] *= 12.0f;
        memcpy(in, odd, sizeof(odd));
        for (uint32_t kind = GPUSERVE_CHAIN_ADD; kind <= GPUSERVE_CHAIN_GELU; kind++) {
            const gpuserve_chain_step step = { kind, -1.75f, 0.3f };

            cr_expect_eq(run_chain(compute, &step, 1, in, out, n), places[d].variant);
            for (size_t i = 0; i < n; i++) {
                /* GPU code uses our own range reduction, which is valid for any argument. */
                const bool far = d == 0 && (fabsf(in[i]) > 1e5f || isinf(in[i]));
                const bool periodic = kind == GPUSERVE_CHAIN_SIN || kind == GPUSERVE_CHAIN_COS;
                /* Where a sum cancels, the error is relative to its terms. The tail of GELU too. */
                const double slack =
                    kind == GPUSERVE_CHAIN_FMA || kind == GPUSERVE_CHAIN_GELU || periodic ? 2e-7
                                                                                          : 0;
                const double want = exact((double)in[i], &step);

                if (periodic && far)
                    continue;
                cr_expect(is_near(out[i], want) || fabs((double)out[i] - want) <= slack,
                          "%s, kind %u of %.9g is %.9g, not %.9g", places[d].name, kind,
                          (double)in[i], (double)out[i], want);
            }
        }
        free(in), free(out);
        gpuserve_compute_close(&compute);
    }
}

/* Long lists over odd lengths, in place and not: equal to the steps applied one after the other. */
Test(chain, lists_are_their_steps_in_order)
{
    static const size_t lengths[] = { 1, 3, 4, 5, 1023, 1025, 40001 };
    enum { MAX = 37 };
    gpuserve_chain_step steps[MAX];

    for (size_t s = 0; s < MAX; s++)
        steps[s] = (gpuserve_chain_step){ s % 3 == 0   ? GPUSERVE_CHAIN_SIN
                                          : s % 3 == 1 ? GPUSERVE_CHAIN_FMA
                                                       : GPUSERVE_CHAIN_ABSOLUTE,
                                          1.5f - 0.01f * (float)s, 0.25f };
    for (size_t d = 0; d < N_PLACES; d++) {
        gpuserve_compute *compute = open_place(&places[d]);

        for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
            const size_t n = lengths[l], n_steps = n > 2000 ? 3 : MAX - l;
            float *in = random_floats(n + 1, 9), *once = poison_floats(n + 1);
            float *apart = poison_floats(n + 1);

            memcpy(once, in, n * sizeof(float));
            for (size_t s = 0; s < n_steps; s++)
                run_chain(compute, &steps[s], 1, once, once, n);
            run_chain(compute, steps, n_steps, in, apart, n);
            cr_expect_arr_eq(apart, once, n * sizeof(float), "%s, n %zu", places[d].name, n);
            cr_expect(isnan(apart[n]), "written behind the end");
            run_chain(compute, steps, n_steps, in, in, n);
            cr_expect_arr_eq(in, once, n * sizeof(float), "%s, n %zu, in place", places[d].name, n);
            run_chain(compute, NULL, 0, once, apart, n);
            cr_expect_arr_eq(apart, once, n * sizeof(float), "no steps copy");
            free(in), free(once), free(apart);
        }
        gpuserve_compute_close(&compute);
    }
}

static void refuse(gpuserve_compute *compute, const gpuserve_chain_step *steps, size_t n_steps,
                   const float *in, float *out, size_t n, gpuserve_status status, const char *word)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_expect_eq(gpuserve_chain(compute, steps, n_steps, in, out, n, NULL, &error), status,
                 "%s: %s", word, error.message);
    cr_expect(strstr(error.message, word), "\"%s\" is not in \"%s\"", word, error.message);
}

Test(chain, what_is_wrong_is_refused)
{
    static gpuserve_chain_step many[GPUSERVE_CHAIN_MAX_STEPS + 1];
    const gpuserve_chain_step good[] = { { GPUSERVE_CHAIN_ADD, 1, 0 }, { 18, 0, 0 }, { 0, 0, 0 } };
    gpuserve_compute *compute = open_compute("cpu");
    float x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    gpuserve_compute_result small = { .struct_size = 8 };

    refuse(NULL, good, 1, x, x, 8, GPUSERVE_E_INVALID, "NULL");
    refuse(compute, good, 2, x, x, 8, GPUSERVE_E_INVALID, "step 1: kind is 18");
    refuse(compute, good + 2, 1, x, x, 8, GPUSERVE_E_INVALID, "step 0: kind is 0");
    refuse(compute, NULL, 1, x, x, 8, GPUSERVE_E_INVALID, "`steps` is NULL");
    refuse(compute, good, 1, NULL, x, 8, GPUSERVE_E_INVALID, "`in` is NULL");
    refuse(compute, good, 1, x, NULL, 8, GPUSERVE_E_INVALID, "`out` is NULL");
    refuse(compute, good, 1, x, x + 1, 7, GPUSERVE_E_INVALID, "overlaps");
    refuse(compute, good, 1, x, x, SIZE_MAX / 4 + 1, GPUSERVE_E_TOO_LARGE, "address space");
    refuse(compute, many, GPUSERVE_CHAIN_MAX_STEPS + 1, x, x, 8, GPUSERVE_E_TOO_LARGE, "65537");
    cr_expect_eq(gpuserve_chain(compute, good, 1, x, x, 8, &small, NULL), GPUSERVE_E_INVALID);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(x[i], (float)(i + 1));
    cr_expect_eq(gpuserve_chain(compute, good, 1, NULL, NULL, 0, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_chain(compute, good, 1, x, x, 8, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(x[7], 9.0f);
    gpuserve_compute_close(&compute);
}
