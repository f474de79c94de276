/*
 * test_chain.c - the functions of elementwise chains on every instruction set, against float64.
 *
 * The arguments are every GPUSERVE_CHAIN_STRIDE-th bit pattern of float32, by default every
 * 8,191st. benchmarks/chain_range.py tries all of them, in several processes: each one takes a part
 * of the bit patterns, GPUSERVE_CHAIN_PART=I/N with I from 0 to N - 1.
 */
#include "tests/kernels/harness.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ULP 2.0 /* units in the last place of float32 */
#define BLOCK 4096

struct function {
    const char *name;
    uint32_t kind;
    double (*exact)(double);
};

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}

static const struct function functions[] = {
    { "sin", GPUSERVE_CHAIN_SIN, sin },
    { "cos", GPUSERVE_CHAIN_COS, cos },
    { "exp", GPUSERVE_CHAIN_EXP, exp },
    { "log", GPUSERVE_CHAIN_LOG, log },
    { "tanh", GPUSERVE_CHAIN_TANH, tanh },
    { "erf", GPUSERVE_CHAIN_ERF, erf },
    { "sigmoid", GPUSERVE_CHAIN_SIGMOID, sigmoid },
    { "gelu", GPUSERVE_CHAIN_GELU, gelu },
};
#define N_FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

/* One target for each instruction set: those with one thread. Target 0 is kernels/ref. A model of
 * tile registers has the chain functions of AVX2 or AVX-512. */
static int n_streams;
static struct gpuserve_stream *streams[MAX_TARGETS];
static const struct target *targets[MAX_TARGETS];

static void open_streams(void)
{
    n_streams = 0;
    for (int i = 1; i < target_count(); i++) {
        const struct target *t = target_at(i);

        if (t->n_threads != 1 || t->has_model)
            continue;
        targets[n_streams] = t;
        streams[n_streams++] = open_stream(t, GPUSERVE_DTYPE_FLOAT32, 16, 16, 1, 16);
    }
    cr_assert_gt(n_streams, 0);
}

static void close_streams(void)
{
    for (int i = 0; i < n_streams; i++)
        targets[i]->backend->stream_destroy(&streams[i]);
}

static void run(int i, const gpuserve_chain_step *steps, size_t n_steps, const float *in,
                float *out, size_t n)
{
    struct gpuserve_op_chain op = {
        .in = in, .out = out, .n = n, .steps = steps, .n_steps = n_steps, .host_steps = steps
    };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(targets[i]->backend->chain(streams[i], &op, &error), GPUSERVE_OK, "%s",
                 error.message);
}

static float from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* The distance in units in the last place of the exact value; 0 if both are NaN. */
static double ulp_distance(float got, double want)
{
    int exponent;

    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf((float)want) || isinf(got))
        return (float)want == got || fabs(want) > 3.4028234e38 ? 0 : INFINITY;
    frexp(want, &exponent);
    exponent = exponent - 24 < -149 ? -149 : exponent - 24;
    return fabs((double)got - want) / ldexp(1.0, exponent);
}

/* Index of the value with the largest distance; 0 and `floor` if no distance exceeds `floor`. */
static size_t find_worst(const float *got, const double *want, size_t n, double floor,
                         double *distance)
{
    size_t worst = 0;

    *distance = floor;
    for (size_t j = 0; j < n; j++) {
        double d;

        /* A unit in the last place is at least 2^-24 of the value. */
        if (fabs(want[j]) < INFINITY &&
            fabs(got[j] - want[j]) * 0x1p24 <= *distance * fabs(want[j]))
            continue;
        d = ulp_distance(got[j], want[j]);
        if (d > *distance) {
            *distance = d;
            worst = j;
        }
    }
    return worst;
}

/* Most instruction sets give the same bits: these are compared with `want` once. */
static void check_block(const float *in, size_t n, double worst[MAX_TARGETS][N_FUNCTIONS],
                        float at[MAX_TARGETS][N_FUNCTIONS])
{
    static float out[MAX_TARGETS][BLOCK];
    static double want[BLOCK];
    double distance[MAX_TARGETS];
    size_t index[MAX_TARGETS];

    for (size_t f = 0; f < N_FUNCTIONS; f++) {
        const gpuserve_chain_step step = { functions[f].kind, 0.0f, 0.0f };
        double floor = INFINITY;

        for (int i = 0; i < n_streams; i++)
            floor = fmin(floor, worst[i][f]);
        for (size_t j = 0; j < n; j++)
            want[j] = functions[f].exact((double)in[j]);
        for (int i = 0; i < n_streams; i++) {
            int same = 0;

            run(i, &step, 1, in, out[i], n);
            while (!same_bits(out[same], out[i], n))
                same++;
            index[i] = same < i ? index[same] : find_worst(out[i], want, n, floor, &distance[i]);
            distance[i] = distance[same];
            if (distance[i] > worst[i][f]) {
                worst[i][f] = distance[i];
                at[i][f] = in[index[i]];
            }
        }
    }
}

static void expect_near(double worst[MAX_TARGETS][N_FUNCTIONS], float at[MAX_TARGETS][N_FUNCTIONS])
{
    for (int i = 0; i < n_streams; i++) {
        for (size_t f = 0; f < N_FUNCTIONS; f++) {
            printf("%s: %s is within %.3f ULP, at %a\n", targets[i]->name, functions[f].name,
                   worst[i][f], (double)at[i][f]);
            cr_expect(worst[i][f] <= MAX_ULP, "%s: %s(%a) is off by %.3f ULP", targets[i]->name,
                      functions[f].name, (double)at[i][f], worst[i][f]);
        }
    }
}

/* The first bit pattern, and the one behind the last, of the part that GPUSERVE_CHAIN_PART names.
 */
static void part_range(uint64_t *begin, uint64_t *end)
{
    const char *text = getenv("GPUSERVE_CHAIN_PART");
    unsigned i = 0, n = 1;

    if (text)
        cr_assert(sscanf(text, "%u/%u", &i, &n) == 2 && i < n, "GPUSERVE_CHAIN_PART=%s", text);
    *begin = ((uint64_t)1 << 32) * i / n;
    *end = ((uint64_t)1 << 32) * (i + 1) / n;
}

/* Test with a time limit for the default stride. */
Test(chain, functions_over_all_magnitudes, .timeout = 100)
{
    const char *text = getenv("GPUSERVE_CHAIN_STRIDE");
    const uint64_t stride = text ? strtoull(text, NULL, 10) : 8191;
    static double worst[MAX_TARGETS][N_FUNCTIONS];
    static float at[MAX_TARGETS][N_FUNCTIONS];
    static float in[BLOCK];
    uint64_t begin, end;
    size_t n = 0;

    cr_assert_gt(stride, 0u);
    part_range(&begin, &end);
    open_streams();
    for (uint64_t bits = begin; bits < end; bits += stride) {
        in[n++] = from_bits((uint32_t)bits);
        if (n == BLOCK || bits + stride >= end) {
            check_block(in, n, worst, at);
            n = 0;
        }
    }
    expect_near(worst, at);
    close_streams();
}

/* The float32 numbers around multiples of pi / 2, where the reduction cancels, and around limits of
 * the code. */
Test(chain, functions_near_difficult_arguments)
{
    static const float limits[] = { 0.0f,  0.3f,   1.0f,      10.6f,         14.2f,         87.3f,
                                    88.7f, 103.9f, 131072.0f, 3.4028235e38f, 1.1754944e-38f };
    static double worst[MAX_TARGETS][N_FUNCTIONS];
    static float at[MAX_TARGETS][N_FUNCTIONS];
    static float in[BLOCK];
    size_t n = 0;

    open_streams();
    for (double k = 1; k < 2e38; k = k < 2000 ? k + 1 : k * 1.37) {
        const float middle = (float)(k * 1.57079632679489661923);

        in[n++] = nextafterf(middle, 0.0f);
        in[n++] = middle;
        in[n++] = nextafterf(middle, INFINITY);
        in[n++] = -middle;
        if (n + 4 > BLOCK) {
            check_block(in, n, worst, at);
            n = 0;
        }
    }
    check_block(in, n, worst, at);
    n = 0;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            in[n++] = (float)sign * limits[i];
            in[n++] = (float)sign * nextafterf(limits[i], 0.0f);
            in[n++] = (float)sign * nextafterf(limits[i], INFINITY);
        }
    }
    in[n++] = NAN, in[n++] = INFINITY, in[n++] = -INFINITY;
    check_block(in, n, worst, at);
    expect_near(worst, at);
    close_streams();
}

/* A value gives the same bits at any position, whatever its neighbours, in a list of steps and in
 * one call for each step. */
Test(chain, bits_depend_on_the_value_alone)
{
    static const gpuserve_chain_step steps[] = {
        { GPUSERVE_CHAIN_SIN, 0, 0 },         { GPUSERVE_CHAIN_COS, 0, 0 },
        { GPUSERVE_CHAIN_ABSOLUTE, 0, 0 },    { GPUSERVE_CHAIN_COS, 0, 0 },
        { GPUSERVE_CHAIN_FMA, 300.0f, 1 },    { GPUSERVE_CHAIN_COS, 0, 0 },
        { GPUSERVE_CHAIN_TANH, 0, 0 },        { GPUSERVE_CHAIN_SIN, 0, 0 },
        { GPUSERVE_CHAIN_SIGMOID, 0, 0 },     { GPUSERVE_CHAIN_LOG, 0, 0 },
        { GPUSERVE_CHAIN_MULTIPLY, 1e7f, 0 }, { GPUSERVE_CHAIN_SIN, 0, 0 },
    };
    enum { N_STEPS = sizeof(steps) / sizeof(steps[0]), N = 2 * 37 };
    float in[N], whole[N], single[N];

    for (int i = 0; i < N; i++)
        in[i] = (i % 5 == 0 ? 4e7f : 3.0f) * sinf((float)i);
    in[3] = -0.0f;
    open_streams();
    for (int t = 0; t < n_streams; t++) {
        run(t, steps, N_STEPS, in, whole, N);
        memcpy(single, in, sizeof(in));
        for (size_t s = 0; s < N_STEPS; s++)
            run(t, &steps[s], 1, single, single, N);
        cr_expect(same_bits(whole, single, N), "%s: steps one by one", targets[t]->name);
        for (int i = 0; i < N; i++)
            run(t, steps, N_STEPS, in + i, single + i, 1);
        cr_expect(same_bits(whole, single, N), "%s: values one by one", targets[t]->name);
        run(t, steps, 1, in + 3, single, 1);
        cr_expect(signbit(single[0]), "%s: sin(-0) is -0", targets[t]->name);
        in[4] = 0.0f;
        run(t, steps + 1, 1, in + 4, single, 1);
        cr_expect_eq(single[0], 1.0f, "%s: cos(0) is 1", targets[t]->name);
    }
    close_streams();
}
