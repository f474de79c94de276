/*
 * random.c - gpuserve_random_numbers(): outputs of Philox4x32-10, computed on a device.
 *
 * On the CPU the backend writes to the caller's memory.
 */
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/compute/compute.h"
#include "lib/runtime/core/context.h"

#include <inttypes.h>

#define BLOCK 4 /* outputs of one counter */
#define MAX_FIRST (UINT64_C(1) << 60)

static gpuserve_status check(uint32_t variant, uint64_t first, const uint32_t *out, size_t n,
                             gpuserve_error *error)
{
    if (variant > GPUSERVE_RANDOM_CURAND)
        return gsv_fail(error, GPUSERVE_E_INVALID, "variant is %u, outside 0 to %d", variant,
                        GPUSERVE_RANDOM_CURAND);
    if (first % BLOCK != 0 || first > MAX_FIRST)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "first is %" PRIu64 ", not a multiple of %d up to 2^60", first, BLOCK);
    if (n > GPUSERVE_RANDOM_MAX_NUMBERS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "n is %zu, the limit is %d", n,
                        GPUSERVE_RANDOM_MAX_NUMBERS);
    if (n > 0 && !out)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`out` is NULL");
    return GPUSERVE_OK;
}

/* Caller holds the lock. `out` is written last, in one copy. */
static gpuserve_status run_there(gpuserve_compute *c, struct gpuserve_op_random *op,
                                 double *copy_seconds, gpuserve_error *error)
{
    uint32_t *const out = op->out;
    const size_t bytes = op->n * sizeof(*out);
    gpuserve_status st = gsv_compute_reserve(c, GSV_COMPUTE_A, bytes, error);
    uint64_t begin;

    op->out = c->buffers[GSV_COMPUTE_A].memory;
    if (st == GPUSERVE_OK)
        st = c->backend->random(c->stream, op, error);
    begin = gsv_now_ns();
    if (st == GPUSERVE_OK)
        st = c->backend->memory_read(c->device, out, op->out, bytes, error);
    *copy_seconds = gsv_seconds_since(begin);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_random_numbers(gpuserve_compute *compute, uint32_t variant,
                                                     uint64_t seed, uint64_t first, uint32_t *out,
                                                     size_t n, gpuserve_compute_result *result,
                                                     gpuserve_error *error)
{
    struct gpuserve_op_random op = {
        .out = out, .seed = seed, .first = first / BLOCK, .n = n, .variant = variant
    };
    double copy_seconds = 0;
    gpuserve_status st = gsv_compute_check(compute, error);

    if (st == GPUSERVE_OK && result)
        st = gsv_check_struct(result, sizeof(*result), "gpuserve_compute_result", error);
    if (st == GPUSERVE_OK)
        st = check(variant, first, out, n, error);
    if (st != GPUSERVE_OK)
        return st;
    if (n > 0) {
        pthread_mutex_lock(&compute->lock);
        st = compute->is_host ? compute->backend->random(compute->stream, &op, error)
                              : run_there(compute, &op, &copy_seconds, error);
        pthread_mutex_unlock(&compute->lock);
    }
    if (st == GPUSERVE_OK)
        gsv_compute_report(result, variant, op.seconds, copy_seconds);
    return st;
}
