/*
 * test_random.c - gpuserve_random_numbers() on the CPU and on the emulated GPU, by the own kernel
 * and by cuRAND: equal numbers, outputs of cuRAND, rejected arguments, and failing calls.
 */
#include "tests/compute/support.h"
#include "tests/cudaemu/emu.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *device;
    uint32_t variant;
} ways[] = {
    { "cpu", GPUSERVE_RANDOM_AUTO },
    { "cuda:0", GPUSERVE_RANDOM_AUTO },
    { "cuda:0", GPUSERVE_RANDOM_CURAND },
};
#define N_WAYS (sizeof(ways) / sizeof(ways[0]))

static uint32_t *make_numbers(size_t way, uint64_t seed, uint64_t first, size_t n)
{
    gpuserve_compute *compute = open_compute(ways[way].device);
    gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    uint32_t *out = malloc((n + 1) * sizeof(*out));

    cr_assert_not_null(out);
    memset(out, 0xA5, (n + 1) * sizeof(*out));
    cr_assert_eq(
        gpuserve_random_numbers(compute, ways[way].variant, seed, first, out, n, &result, &error),
        GPUSERVE_OK, "way %zu: %s", way, error.message);
    cr_expect_eq(result.variant, ways[way].variant);
    cr_expect_eq(out[n], 0xA5A5A5A5u, "way %zu wrote past the end", way);
    gpuserve_compute_close(&compute);
    return out;
}

/* Beyond one turn of all threads of cuRAND's order, and in parts. */
Test(random, every_way_has_the_same_numbers)
{
    static const struct {
        uint64_t seed, first;
        size_t n;
    } cases[] = {
        { 1, 0, 300001 },
        { UINT64_C(0xfedcba9876543210), 4 * 65535, 9 },
        { 7, UINT64_C(1) << 40, 1023 },
        { UINT64_MAX, UINT64_C(1) << 60, 5 },
        { 0, 4, 1 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t *want = make_numbers(0, cases[i].seed, cases[i].first, cases[i].n);

        for (size_t way = 1; way < N_WAYS; way++) {
            uint32_t *got = make_numbers(way, cases[i].seed, cases[i].first, cases[i].n);

            cr_expect_eq(memcmp(got, want, cases[i].n * sizeof(*got)), 0, "way %zu, case %zu", way,
                         i);
            free(got);
        }
        free(want);
    }
}

/* Outputs of cuRAND 10.3.10, as in tests/base/test_philox.c. */
Test(random, they_are_those_of_curand)
{
    for (size_t way = 0; way < N_WAYS; way++) {
        uint32_t *got = make_numbers(way, UINT64_C(0x123456789), 0, 8);

        cr_expect_eq(got[0], 0x5aa1da32u);
        cr_expect_eq(got[1], 0xb611012au);
        cr_expect_eq(got[5], 0xe0c755e6u);
        free(got);
        got = make_numbers(way, UINT64_C(0x123456789), 4 * 65536, 4);
        cr_expect_eq(got[0], 0x43d5dacfu);
        free(got);
    }
}

static void refuse(gpuserve_compute *compute, uint32_t variant, uint64_t first, uint32_t *out,
                   size_t n, gpuserve_status status, const char *words)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_expect_eq(gpuserve_random_numbers(compute, variant, 1, first, out, n, NULL, &error), status);
    cr_expect(strstr(error.message, words), "%s", error.message);
}

Test(random, arguments_have_limits)
{
    gpuserve_compute *cpu = open_compute("cpu");
    uint32_t out[4] = { 1, 2, 3, 4 };

    refuse(cpu, 2, 0, out, 4, GPUSERVE_E_INVALID, "variant is 2, outside 0 to 1");
    refuse(cpu, 0, 2, out, 4, GPUSERVE_E_INVALID, "first is 2, not a multiple of 4");
    refuse(cpu, 0, (UINT64_C(1) << 60) + 4, out, 4, GPUSERVE_E_INVALID, "up to 2^60");
    refuse(cpu, 0, 0, NULL, 4, GPUSERVE_E_INVALID, "`out` is NULL");
    refuse(cpu, 0, 0, out, (size_t)GPUSERVE_RANDOM_MAX_NUMBERS + 1, GPUSERVE_E_TOO_LARGE,
           "the limit is 1073741824");
    refuse(cpu, GPUSERVE_RANDOM_CURAND, 0, out, 4, GPUSERVE_E_UNSUPPORTED, "a CPU has no cuRAND");
    refuse(NULL, 0, 0, out, 4, GPUSERVE_E_INVALID, "NULL");
    cr_expect_eq(out[3], 4);
    cr_expect_eq(gpuserve_random_numbers(cpu, 0, 1, 0, NULL, 0, NULL, NULL), GPUSERVE_OK);
    gpuserve_compute_close(&cpu);
}

/* Each call in turn fails with an error that passes: it is reported, and the next run is right. */
Test(random, a_failure_of_each_call)
{
    gpuserve_compute *compute = open_compute("cuda:0");
    uint32_t out[8];
    uint64_t n = 0, live;
    bool happened;
    struct gsv_emu_counters counters;

    cr_assert_eq(gpuserve_random_numbers(compute, GPUSERVE_RANDOM_CURAND, 1, 0, out, 8, NULL, NULL),
                 GPUSERVE_OK);
    gsv_emu_get_counters(&counters);
    live = counters.live_objects;
    do {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_status status;
        const char *call;

        gsv_emu_fail_call(++n, 2 /* cudaErrorMemoryAllocation */);
        status = gpuserve_random_numbers(compute, GPUSERVE_RANDOM_CURAND, UINT64_C(0x123456789), 0,
                                         out, 8, NULL, &error);
        call = gsv_emu_failed_call();
        happened = call != NULL;
        if (happened && strncmp(call, "curand", 6) == 0 && !strstr(call, "Destroy"))
            cr_expect(status != GPUSERVE_OK && strstr(error.message, call), "%s: %s", call,
                      error.message);
        gsv_emu_fail_call(0, 0);
        cr_assert_eq(gpuserve_random_numbers(compute, GPUSERVE_RANDOM_CURAND, UINT64_C(0x123456789),
                                             0, out, 8, NULL, &error),
                     GPUSERVE_OK, "after call %llu: %s", (unsigned long long)n, error.message);
        cr_expect_eq(out[0], 0x5aa1da32u);
    } while (happened);
    cr_expect_gt(n, 8);
    gsv_emu_get_counters(&counters);
    cr_expect_eq(counters.live_objects, live, "a generator stayed");
    gpuserve_compute_close(&compute);
}

static gpuserve_status run_curand(gpuserve_compute *compute, gpuserve_error *error)
{
    uint32_t out[8];

    return gpuserve_random_numbers(compute, GPUSERVE_RANDOM_CURAND, 1, 0, out, 8, NULL, error);
}

/* Finds the call by failing each one in turn, with an error that passes. Then the device is lost in
 * it: the call is named, and the handle computes nothing more. The loss lasts as long as the
 * process. */
static void lose_device_in(const char *call)
{
    gpuserve_compute *compute = open_compute("cuda:0");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    uint32_t out[8];
    uint64_t n = 0;

    cr_assert_eq(run_curand(compute, &error), GPUSERVE_OK, "%s", error.message);
    do {
        gsv_emu_fail_call(++n, 2);
        cr_expect(run_curand(compute, &error) == GPUSERVE_OK || error.message[0]);
        cr_assert_not_null(gsv_emu_failed_call(), "%s is not called", call);
    } while (strcmp(gsv_emu_failed_call(), call) != 0);
    gsv_emu_fail_call(n, 719 /* cudaErrorLaunchFailure */);
    cr_expect_eq(run_curand(compute, &error), GPUSERVE_E_DEVICE);
    cr_expect(strstr(error.message, call) && strstr(error.message, "719"), "%s: %s", call,
              error.message);
    gsv_emu_fail_call(0, 0);
    cr_expect_eq(gpuserve_random_numbers(compute, GPUSERVE_RANDOM_AUTO, 1, 0, out, 8, NULL, &error),
                 GPUSERVE_E_DEVICE, "after %s", call);
    gpuserve_compute_close(&compute);
}

Test(random, a_device_lost_while_the_generator_is_made)
{
    lose_device_in("curandCreateGenerator");
}

Test(random, a_device_lost_while_numbers_are_made)
{
    lose_device_in("curandGenerate");
}
