/*
 * support.h - a compute handle on every device there is: the CPU, and the emulated GPU that the
 * build finds by GPUSERVE_PLUGIN_DIR.
 */
#ifndef GSV_TEST_COMPUTE_SUPPORT_H
#define GSV_TEST_COMPUTE_SUPPORT_H

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>

#define N_DEVICES 2
extern const char *const devices[N_DEVICES]; /* "cpu", "cuda:0" */

/* Three threads on the CPU. Asserts. */
gpuserve_compute *open_compute(const char *device);

/* gpuserve_chain(), and which kernel ran it. Asserts. */
uint32_t run_chain(gpuserve_compute *compute, const gpuserve_chain_step *steps, size_t n_steps,
                   const float *in, float *out, size_t n);

/* n floats between -1 and 1, the same for the same seed; free() ends them. */
float *random_floats(size_t n, uint32_t seed);
float *poison_floats(size_t n);

#endif
