/*
 * support.h - compute handles on all devices of the tests: the CPU, and the emulated GPU, whose
 * plugin is found by GPUSERVE_PLUGIN_DIR.
 */
#ifndef GSV_TEST_COMPUTE_SUPPORT_H
#define GSV_TEST_COMPUTE_SUPPORT_H

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>

#define N_DEVICES 2
extern const char *const devices[N_DEVICES]; /* "cpu", "cuda:0" */

/* Opens a handle; three threads on the CPU. Asserts. */
gpuserve_compute *open_compute(const char *device);

/* Runs gpuserve_chain() and returns the variant that ran. Asserts. */
uint32_t run_chain(gpuserve_compute *compute, const gpuserve_chain_step *steps, size_t n_steps,
                   const float *in, float *out, size_t n);

/* n floats in [-1, 1], the same for the same seed; release with free(). */
float *random_floats(size_t n, uint32_t seed);
float *poison_floats(size_t n);

#endif
