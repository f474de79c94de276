/*
 * chain.c - gpuserve_chain(): a chain of element-wise steps over one vector.
 *
 *   check steps -> copy vector and steps to the device -> backend's chain() -> copy the result back
 *
 * On the CPU the backend works on the caller's memory directly.
 */
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/runtime/compute/compute.h"
#include "lib/runtime/core/context.h"

#include <string.h>

static gpuserve_status check_steps(const gpuserve_chain_step *steps, size_t n_steps,
                                   gpuserve_error *error)
{
    if (n_steps > GPUSERVE_CHAIN_MAX_STEPS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "n_steps is %zu, the limit is %d", n_steps,
                        GPUSERVE_CHAIN_MAX_STEPS);
    if (n_steps > 0 && !steps)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`steps` is NULL");
    for (size_t i = 0; i < n_steps; i++) {
        if (steps[i].kind < GPUSERVE_CHAIN_ADD || steps[i].kind > GPUSERVE_CHAIN_GELU)
            return gsv_fail(error, GPUSERVE_E_INVALID, "step %zu: kind is %u, outside 1 to %d", i,
                            steps[i].kind, GPUSERVE_CHAIN_GELU);
    }
    return GPUSERVE_OK;
}

static gpuserve_status check_vectors(const float *in, const float *out, size_t n,
                                     gpuserve_error *error)
{
    const uintptr_t from = (uintptr_t)in, to = (uintptr_t)out;
    const size_t bytes = n * sizeof(float);

    if (n > PTRDIFF_MAX / sizeof(float))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "n is %zu: the size in bytes overflows the address space", n);
    if (n > 0 && (!in || !out))
        return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` is NULL", in ? "out" : "in");
    if (n > 0 && from != to && from < to + bytes && to < from + bytes)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "`out` overlaps `in`; the two must be equal or separate");
    return GPUSERVE_OK;
}

/* Copies through a host buffer, so that `out` is written only after everything succeeded. */
static gpuserve_status run_there(gpuserve_compute *c, struct gpuserve_op_chain *op,
                                 double *copy_seconds, gpuserve_error *error)
{
    const struct gpuserve_op_chain here = *op;
    const size_t bytes = op->n * sizeof(float), step_bytes = op->n_steps * sizeof(*op->steps);
    float *back = gsv_alloc_aligned(bytes);
    uint64_t begin = gsv_now_ns();
    gpuserve_status st;

    if (!back)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a copy of %zu bytes", bytes);
    st = gsv_compute_reserve(c, GSV_COMPUTE_A, bytes, error);
    if (st == GPUSERVE_OK)
        st = gsv_compute_reserve(c, GSV_COMPUTE_B, step_bytes + 1, error);
    op->in = op->out = c->buffers[GSV_COMPUTE_A].memory;
    op->steps = c->buffers[GSV_COMPUTE_B].memory;
    if (st == GPUSERVE_OK)
        st = c->backend->memory_write(c->device, op->out, here.in, bytes, error);
    if (st == GPUSERVE_OK && step_bytes > 0)
        st = c->backend->memory_write(c->device, c->buffers[GSV_COMPUTE_B].memory, here.steps,
                                      step_bytes, error);
    *copy_seconds = gsv_seconds_since(begin);
    if (st == GPUSERVE_OK)
        st = c->backend->chain(c->stream, op, error);
    begin = gsv_now_ns();
    if (st == GPUSERVE_OK)
        st = c->backend->memory_read(c->device, back, op->out, bytes, error);
    if (st == GPUSERVE_OK)
        memcpy(here.out, back, bytes);
    *copy_seconds += gsv_seconds_since(begin);
    gsv_free_aligned(back);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_chain(gpuserve_compute *compute,
                                            const gpuserve_chain_step *steps, size_t n_steps,
                                            const float *in, float *out, size_t n,
                                            gpuserve_compute_result *result, gpuserve_error *error)
{
    struct gpuserve_op_chain op = {
        .in = in, .out = out, .n = n, .steps = steps, .n_steps = n_steps, .host_steps = steps
    };
    double copy_seconds = 0;
    gpuserve_status st = gsv_compute_check(compute, error);

    if (st == GPUSERVE_OK && result)
        st = gsv_check_struct(result, sizeof(*result), "gpuserve_compute_result", error);
    if (st == GPUSERVE_OK)
        st = check_steps(steps, n_steps, error);
    if (st == GPUSERVE_OK)
        st = check_vectors(in, out, n, error);
    if (st != GPUSERVE_OK)
        return st;
    if (n > 0) {
        pthread_mutex_lock(&compute->lock);
        st = compute->is_host ? compute->backend->chain(compute->stream, &op, error)
                              : run_there(compute, &op, &copy_seconds, error);
        pthread_mutex_unlock(&compute->lock);
    }
    if (st == GPUSERVE_OK)
        gsv_compute_report(result, op.variant, op.seconds, copy_seconds);
    return st;
}
