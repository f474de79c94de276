/*
 * support.c - compute handles and random numbers for the tests of the compute API.
 */
#include "tests/compute/support.h"

#include <math.h>
#include <stdlib.h>

const char *const devices[N_DEVICES] = { "cpu", "cuda:0" };

gpuserve_compute *open_compute(const char *device)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_compute_options options = GPUSERVE_COMPUTE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_compute *compute = NULL;

    context_options.n_threads = 3;
    options.device = device;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_eq(gpuserve_compute_open(&compute, context, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_assert_str_eq(gpuserve_compute_device(compute), device);
    gpuserve_context_unref(&context); /* the handle holds a reference */
    return compute;
}

uint32_t run_chain(gpuserve_compute *compute, const gpuserve_chain_step *steps, size_t n_steps,
                   const float *in, float *out, size_t n)
{
    gpuserve_compute_result result = GPUSERVE_COMPUTE_RESULT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    cr_assert_eq(gpuserve_chain(compute, steps, n_steps, in, out, n, &result, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_assert(result.kernel_seconds >= 0 && result.copy_seconds >= 0);
    return result.variant;
}

float *random_floats(size_t n, uint32_t seed)
{
    float *floats = malloc((n + 1) * sizeof(*floats));
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;

    cr_assert_not_null(floats);
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        floats[i] = (float)(int32_t)(state >> 32) / 2147483648.0f;
    }
    return floats;
}

float *poison_floats(size_t n)
{
    float *floats = random_floats(n, 1);

    for (size_t i = 0; i < n; i++)
        floats[i] = NAN;
    return floats;
}
