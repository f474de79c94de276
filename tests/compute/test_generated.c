/*
 * test_generated.c - chains by kernels generated at run time, on the emulator, which compiles the
 * same source.
 *
 * Compared with kernels/ref, and bit by bit with the interpreter; cached, evicted, and with each
 * call failing.
 */
#include "kernels/ref/ref.h"
#include "tests/compute/support.h"
#include "tests/cudaemu/emu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 70, MAX_FLOATS = 1100 };

/* The kinds of a list; the whole sequence is repeated `repeats` times. */
static const struct list {
    const char *what;
    uint32_t kinds[MAX];
    size_t n_kinds;
    size_t repeats;
} lists[] = {
    { "one step", { GPUSERVE_CHAIN_FMA }, 1, 1 },
    { "two steps, no loop", { GPUSERVE_CHAIN_SIN, GPUSERVE_CHAIN_MAXIMUM }, 2, 1 },
    { "a loop of one", { GPUSERVE_CHAIN_COS }, 1, 37 },
    { "a loop of three",
      { GPUSERVE_CHAIN_MULTIPLY, GPUSERVE_CHAIN_TANH, GPUSERVE_CHAIN_ADD },
      3,
      12 },
    { "all kinds, as calls",
      { 1,  2,  3,  4, 5,  6,  7,  6,  8,  16, 10, 11, 12, 13, 14,
        15, 16, 17, 9, 11, 12, 13, 14, 15, 17, 1,  11, 14, 2,  12 },
      30,
      1 },
    { "all kinds in a loop", { 1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16, 17 }, 13, 4 },
};
#define N_LISTS (sizeof(lists) / sizeof(lists[0]))

static size_t make(const struct list *list, gpuserve_chain_step *steps)
{
    size_t n = 0;

    for (size_t r = 0; r < list->repeats; r++) {
        for (size_t i = 0; i < list->n_kinds; i++, n++)
            steps[n] = (gpuserve_chain_step){ list->kinds[i], 1.25f - 0.03f * (float)n, 0.125f };
    }
    return n;
}

static gpuserve_compute *open_with(const char *nvrtc)
{
    setenv("GPUSERVE_NVRTC", nvrtc, 1);
    return open_compute("cuda:0");
}

/* Each list at lengths around the four elements of a thread and the 1024 of a block. */
Test(generated, equals_the_interpreter_and_is_near_the_reference)
{
    static const size_t lengths[] = { 1, 2, 3, 4, 5, 1023, 1024, 1025 };
    gpuserve_compute *generated = open_with("1"), *interpreted = open_with("0");
    static gpuserve_chain_step steps[64];

    for (size_t l = 0; l < N_LISTS * 8; l++) {
        const size_t n_steps = make(&lists[l / 8], steps), n = lengths[l % 8];
        float *in = random_floats(n, 3), *got = poison_floats(n + 1), *same = poison_floats(n);
        float *want = poison_floats(n);
        struct gpuserve_op_chain op = {
            .in = in, .out = want, .n = n, .steps = steps, .n_steps = n_steps
        };
        double distance = 0, length = 0;

        cr_assert_eq(gsv_ref_chain(NULL, &op, NULL), GPUSERVE_OK);
        cr_expect_eq(run_chain(generated, steps, n_steps, in, got, n), GPUSERVE_CHAIN_GENERATED);
        cr_expect_eq(run_chain(interpreted, steps, n_steps, in, same, n),
                     GPUSERVE_CHAIN_PRECOMPILED);
        cr_expect_arr_eq(got, same, n * sizeof(float), "%s, n %zu", lists[l / 8].what, n);
        cr_expect(isnan(got[n]), "written behind the end");
        for (size_t i = 0; i < n; i++) {
            cr_assert_eq(isnan(got[i]), isnan(want[i]));
            distance += isnan(want[i]) ? 0 : pow((double)got[i] - (double)want[i], 2);
            length += isnan(want[i]) ? 0 : pow((double)want[i], 2);
        }
        /* Both round at each step; errors grow in a list of multiplications. */
        cr_expect(sqrt(distance) <= 1e-5 * sqrt(length) + 1e-30, "%s, n %zu: %g of %g",
                  lists[l / 8].what, n, sqrt(distance), sqrt(length));
        free(in), free(got), free(same), free(want);
    }
    gpuserve_compute_close(&generated);
    gpuserve_compute_close(&interpreted);
}

/* Constants are not part of the source: lists with other constants share a kernel. */
Test(generated, lists_that_differ_in_numbers_share_a_kernel)
{
    gpuserve_compute *compute = open_with("1");
    gpuserve_chain_step steps[] = { { GPUSERVE_CHAIN_ADD, 1, 0 }, { GPUSERVE_CHAIN_FMA, 2, 3 } };
    struct gsv_emu_counters before, after;
    float x = 4;

    run_chain(compute, steps, 2, &x, &x, 1);
    cr_expect_eq(x, 13.0f);
    gsv_emu_get_counters(&before);
    steps[1].b = -1;
    run_chain(compute, steps, 2, &x, &x, 1);
    cr_expect_eq(x, 27.0f);
    gsv_emu_get_counters(&after);
    cr_expect_eq(after.live_objects, before.live_objects, "no second kernel");
    gpuserve_compute_close(&compute);
}

/* A list without a loop is interpreted, and so is a list with little work. */
Test(generated, only_what_is_worth_it_is_generated)
{
    enum { MANY = 1500 };
    static gpuserve_chain_step steps[MANY];
    gpuserve_compute *compute = open_with("1");
    float x = 1;
    uint32_t state = 1;

    for (size_t s = 0; s < MANY; s++) {
        state = state * 1664525u + 1013904223u;
        steps[s] = (gpuserve_chain_step){ GPUSERVE_CHAIN_ADD + (state >> 24) % 5, 1, 0 };
    }
    cr_expect_eq(run_chain(compute, steps, MANY, &x, &x, 1), GPUSERVE_CHAIN_PRECOMPILED);
    cr_expect_eq(run_chain(compute, NULL, 0, &x, &x, 1), GPUSERVE_CHAIN_PRECOMPILED);
    gpuserve_compute_close(&compute);
    unsetenv("GPUSERVE_NVRTC");
    compute = open_compute("cuda:0");
    cr_expect_eq(run_chain(compute, steps, 1, &x, &x, 1), GPUSERVE_CHAIN_PRECOMPILED);
    gpuserve_compute_close(&compute);
}

/* More lists than the cache holds: least recently used kernels are unloaded, and compiled again. */
Test(generated, the_kernels_kept_are_bounded)
{
    enum { KEPT = 16, LISTS = 18 };
    static gpuserve_chain_step steps[LISTS + 3];
    gpuserve_compute *compute = open_with("1");
    struct gsv_emu_counters start, full, over;

    for (size_t s = 0; s < LISTS + 3; s++)
        steps[s] = (gpuserve_chain_step){ GPUSERVE_CHAIN_ADD, 1, 0 };
    gsv_emu_get_counters(&start);
    for (size_t n_steps = 3; n_steps < LISTS + 3; n_steps++) {
        float x = 0;

        cr_expect_eq(run_chain(compute, steps, n_steps, &x, &x, 1), GPUSERVE_CHAIN_GENERATED);
        cr_expect_eq(x, (float)n_steps);
        if (n_steps == KEPT + 2)
            gsv_emu_get_counters(&full);
    }
    gsv_emu_get_counters(&over);
    cr_expect_eq(full.live_objects, start.live_objects + KEPT);
    cr_expect_eq(over.live_objects, full.live_objects);
    for (size_t n_steps = 3; n_steps < 5; n_steps++) {
        float x = 0;

        cr_expect_eq(run_chain(compute, steps, n_steps, &x, &x, 1), GPUSERVE_CHAIN_GENERATED);
        cr_expect_eq(x, (float)n_steps);
    }
    gpuserve_compute_close(&compute);
    gsv_emu_get_counters(&over);
    cr_expect_eq(over.live_objects, 0);
}

/* Each call fails in turn, with a transient or a sticky error: the right bits or an error, never
 * wrong bits. */
static uint64_t fail_call(uint64_t n, int cuda_error)
{
    const gpuserve_chain_step steps[] = { { GPUSERVE_CHAIN_FMA, 2, 1 },
                                          { GPUSERVE_CHAIN_ERF, 0, 0 } };
    const float in = 0.25f;
    gpuserve_compute *compute = open_with("1");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_emu_counters counters;
    const char *failed;
    float out = 7;
    gpuserve_status st;

    gsv_emu_fail_call(n, cuda_error);
    st = gpuserve_chain(compute, steps, 2, &in, &out, 1, NULL, &error);
    failed = gsv_emu_failed_call();
    if (st == GPUSERVE_OK)
        cr_expect_float_eq(out, erff(1.5f), 1e-6, "call %d (%s)", (int)n, failed ? failed : "none");
    else
        cr_expect(out == 7 && error.message[0], "call %d (%s)", (int)n, failed ? failed : "none");
    if (failed && cuda_error == 2 && strncmp(failed, "nvrtc", 5) == 0)
        cr_expect_eq(st, GPUSERVE_OK, "%s fails: the interpreter computes, not %s", failed,
                     error.message);
    gsv_emu_fail_call(0, 0);
    gpuserve_compute_close(&compute);
    gsv_emu_get_counters(&counters);
    cr_expect(cuda_error != 2 || counters.live_objects == 0, "call %d (%s): %d left", (int)n,
              failed ? failed : "none", (int)counters.live_objects);
    return failed != NULL;
}

Test(generated, each_failing_call_is_met)
{
    uint64_t n = 1;

    while (fail_call(n, 2))
        n++;
    cr_expect_gt(n, 15u, "all of a chain's calls failed once: %d", (int)n);
}

Test(generated, a_device_lost_while_loading_is_told)
{
    const gpuserve_chain_step step = { GPUSERVE_CHAIN_EXP, 0, 0 };
    gpuserve_compute *compute = open_with("1");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status st;
    uint64_t n = 0;
    float x = 1;

    /* Finds the call that loads machine code: fails each call in turn, with a transient error. */
    do {
        gsv_emu_fail_call(0, 0);
        gpuserve_compute_close(&compute);
        compute = open_with("1");
        gsv_emu_fail_call(++n, 2);
        st = gpuserve_chain(compute, &step, 1, &x, &x, 1, NULL, &error);
        cr_expect(st == GPUSERVE_OK || error.message[0]);
        cr_assert_not_null(gsv_emu_failed_call());
    } while (strcmp(gsv_emu_failed_call(), "cudaLibraryLoadData") != 0);
    gpuserve_compute_close(&compute);
    compute = open_with("1");
    x = 1;
    gsv_emu_fail_call(n, 719);
    cr_expect_eq(gpuserve_chain(compute, &step, 1, &x, &x, 1, NULL, &error), GPUSERVE_E_DEVICE);
    cr_expect_eq(x, 1.0f);
    cr_expect(strstr(error.message, "719") || strstr(error.message, "aunch"), "%s", error.message);
    gpuserve_compute_close(&compute);
}

/* Streams run late, and threads and blocks in any order. */
Test(generated, late_streams_change_nothing)
{
    const gpuserve_chain_step steps[] = { { GPUSERVE_CHAIN_SIN, 0, 0 },
                                          { GPUSERVE_CHAIN_ADD, 1, 0 } };
    gpuserve_compute *compute = open_with("1");
    float *in = random_floats(5000, 2), *want = poison_floats(5000), *got = poison_floats(5000);

    run_chain(compute, steps, 2, in, want, 5000);
    gsv_emu_set_late(1);
    gsv_emu_seed(11);
    run_chain(compute, steps, 2, in, got, 5000);
    cr_expect_arr_eq(got, want, 5000 * sizeof(float));
    free(in), free(want), free(got);
    gpuserve_compute_close(&compute);
}
