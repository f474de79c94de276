/*
 * transfer.c - gpuserve_transfer(): times of copies between host memory and the memory of a device.
 *
 *   to the device     pattern in host memory -> device memory -> read back and compared
 *   from the device   pattern in device memory -> host memory -> compared
 *
 * Each call has a pattern of its own, so that bytes of an earlier call do not pass for a copy.
 */
#include "lib/base/error.h"
#include "lib/runtime/compute/compute.h"
#include "lib/runtime/core/context.h"

#include <string.h>

#define WORD sizeof(uint32_t)

/* Word i of pattern `number`: different for every i, because the factor is odd. */
static uint32_t word_at(uint32_t number, size_t i)
{
    return (uint32_t)i * 2654435761u + number * 0x9e3779b9u;
}

static void fill(unsigned char *bytes, size_t size, uint32_t number)
{
    for (size_t at = 0; at < size; at += WORD) {
        const uint32_t word = word_at(number, at / WORD);

        memcpy(bytes + at, &word, size - at < WORD ? size - at : WORD);
    }
}

/* The first word that is not the pattern's, as its byte; `size` if all are. */
static size_t first_difference(const unsigned char *bytes, size_t size, uint32_t number)
{
    for (size_t at = 0; at < size; at += WORD) {
        const uint32_t word = word_at(number, at / WORD);

        if (memcmp(bytes + at, &word, size - at < WORD ? size - at : WORD) != 0)
            return at;
    }
    return size;
}

static gpuserve_status check(const gpuserve_transfer_job *job, gpuserve_error *error)
{
    if (job->direction > GPUSERVE_TRANSFER_FROM_DEVICE)
        return gsv_fail(error, GPUSERVE_E_INVALID, "direction is %u, outside 0 to %d",
                        job->direction, GPUSERVE_TRANSFER_FROM_DEVICE);
    if (job->host_memory > GPUSERVE_HOST_PINNED)
        return gsv_fail(error, GPUSERVE_E_INVALID, "host_memory is %u, outside 0 to %d",
                        job->host_memory, GPUSERVE_HOST_PINNED);
    if (job->n_copies == 0 || job->size_bytes == 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`%s` is 0",
                        job->n_copies == 0 ? "n_copies" : "size_bytes");
    if (!job->seconds)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`seconds` is NULL");
    if (job->n_copies > GPUSERVE_TRANSFER_MAX_COPIES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "n_copies is %u, the limit is %d",
                        job->n_copies, GPUSERVE_TRANSFER_MAX_COPIES);
    if (job->size_bytes > GPUSERVE_TRANSFER_MAX_BYTES)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "size_bytes is %zu, the limit is %d",
                        job->size_bytes, GPUSERVE_TRANSFER_MAX_BYTES);
    return GPUSERVE_OK;
}

/* A warm-up copy comes first: it causes the page faults of the destination. */
static gpuserve_status copy_all(gpuserve_compute *c, const gpuserve_transfer_job *job,
                                struct gpuserve_op_transfer *op, gpuserve_error *error)
{
    gpuserve_status st = c->backend->transfer(c->device, op, error);

    for (uint32_t i = 0; i < job->n_copies && st == GPUSERVE_OK; i++) {
        st = c->backend->transfer(c->device, op, error);
        job->seconds[i] = op->seconds;
    }
    return st;
}

/* Caller holds the lock. `op` has its memory. */
static gpuserve_status run(gpuserve_compute *c, const gpuserve_transfer_job *job,
                           struct gpuserve_op_transfer *op, gpuserve_error *error)
{
    const bool is_out = job->direction == GPUSERVE_TRANSFER_FROM_DEVICE;
    const uint32_t number = ++c->n_transfers;
    gpuserve_status st = GPUSERVE_OK;
    size_t different;

    fill(op->host, op->size, number);
    if (is_out) {
        st = c->backend->memory_write(c->device, op->device, op->host, op->size, error);
        memset(op->host, 0, op->size);
    }
    if (st == GPUSERVE_OK)
        st = copy_all(c, job, op, error);
    if (st == GPUSERVE_OK && !is_out) {
        memset(op->host, 0, op->size);
        st = c->backend->memory_read(c->device, op->host, op->device, op->size, error);
    }
    if (st != GPUSERVE_OK)
        return st;
    different = first_difference(op->host, op->size, number);
    if (different < op->size)
        return gsv_fail(error, GPUSERVE_E_DEVICE,
                        "%s: of a copy of %zu bytes %s the device those from byte %zu on are wrong",
                        c->selector, op->size, is_out ? "from" : "to", different);
    return GPUSERVE_OK;
}

static gpuserve_status run_in(gpuserve_compute *c, const gpuserve_transfer_job *job,
                              gpuserve_error *error)
{
    struct gpuserve_op_transfer op = { .size = job->size_bytes, .direction = job->direction };
    gpuserve_status st = gsv_compute_reserve(c, GSV_COMPUTE_A, job->size_bytes, error);

    op.device = c->buffers[GSV_COMPUTE_A].memory;
    if (st == GPUSERVE_OK)
        st = c->backend->host_alloc(c->device, &op.host, job->size_bytes, job->host_memory, error);
    if (st != GPUSERVE_OK)
        return st;
    st = run(c, job, &op, error);
    c->backend->host_free(c->device, op.host, job->host_memory);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_transfer(gpuserve_compute *compute,
                                               const gpuserve_transfer_job *given,
                                               gpuserve_error *error)
{
    gpuserve_transfer_job job;
    gpuserve_status st =
        gsv_compute_read(compute, &job, sizeof(job), given, "gpuserve_transfer_job", NULL, error);

    if (st == GPUSERVE_OK)
        st = check(&job, error);
    if (st != GPUSERVE_OK)
        return st;
    pthread_mutex_lock(&compute->lock);
    st = run_in(compute, &job, error);
    pthread_mutex_unlock(&compute->lock);
    return st;
}
