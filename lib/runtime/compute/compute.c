/*
 * compute.c - opens a device for arithmetic and manages its scratch memory.
 *
 * A handle owns one device, one stream and five growing blocks of device memory. Its lock
 * serialises calls, because the stream and the blocks are shared. The handle holds a reference to
 * its context.
 */
#include "lib/runtime/compute/compute.h"

#include "lib/base/error.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/devices/device.h"

#include <stdio.h>

gpuserve_status gsv_compute_check(const gpuserve_compute *compute, gpuserve_error *error)
{
    if (!compute)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the compute handle is NULL");
    return gsv_context_check(compute->context, error);
}

gpuserve_status gsv_compute_read(const gpuserve_compute *compute, void *to, size_t size,
                                 const void *job, const char *name,
                                 const gpuserve_compute_result *result, gpuserve_error *error)
{
    gpuserve_status st = gsv_compute_check(compute, error);

    if (st == GPUSERVE_OK && !job)
        st = gsv_fail(error, GPUSERVE_E_INVALID, "`job` is NULL");
    if (st == GPUSERVE_OK)
        st = gsv_read_struct(to, size, job, name, error);
    if (st == GPUSERVE_OK && result)
        st = gsv_check_struct(result, sizeof(*result), "gpuserve_compute_result", error);
    return st;
}

gpuserve_status gsv_compute_reserve(gpuserve_compute *compute, enum gsv_compute_buffer buffer,
                                    size_t size, gpuserve_error *error)
{
    struct gsv_compute_memory *at = &compute->buffers[buffer];
    gpuserve_status st;

    if (size <= at->size)
        return GPUSERVE_OK;
    compute->backend->memory_free(compute->device, at->memory);
    at->memory = NULL;
    at->size = 0;
    st = compute->backend->memory_alloc(compute->device, &at->memory, size, error);
    if (st == GPUSERVE_OK)
        at->size = size;
    return st;
}

void gsv_compute_report(gpuserve_compute_result *to, uint32_t variant, double kernel_seconds,
                        double copy_seconds)
{
    if (!to)
        return;
    to->variant = variant;
    to->kernel_seconds = kernel_seconds;
    to->copy_seconds = copy_seconds;
}

/* Minimal batch sizes: the stream only provides threads or a device queue. */
static gpuserve_status open_stream(gpuserve_compute *compute, int32_t n_threads,
                                   gpuserve_error *error)
{
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = GPUSERVE_DTYPE_FLOAT32,
        .n_threads = n_threads,
        .max_tokens = 1,
        .max_sequences = 1,
        .max_seqlen = 1,
        .max_columns = 1,
        .hidden_size = 1,
        .n_heads = 1,
        .output_bytes = sizeof(float),
    };

    return compute->backend->stream_create(compute->device, &compute->stream, &options, error);
}

static gpuserve_status open_device(gpuserve_compute *compute,
                                   const gpuserve_compute_options *options, gpuserve_error *error)
{
    const int32_t all = compute->context->n_threads;
    struct gsv_device_choice choice;
    gpuserve_status st = gsv_device_choose(compute->context, options->device, &choice, error);

    if (st != GPUSERVE_OK)
        return st;
    compute->backend = choice.backend;
    compute->is_host = choice.is_cpu;
    gsv_device_selector(&choice, compute->selector, sizeof(compute->selector));
    st = compute->backend->device_open(&compute->device, choice.facts.index, error);
    if (st != GPUSERVE_OK)
        return st;
    return open_stream(compute, options->n_threads ? (int32_t)options->n_threads : all, error);
}

static gpuserve_status check_options(const gpuserve_context *context,
                                     const gpuserve_compute_options *options, gpuserve_error *error)
{
    if (options->n_threads > (uint32_t)context->n_threads)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "n_threads is %u, but the context has %d threads", options->n_threads,
                        context->n_threads);
    return GPUSERVE_OK;
}

static gpuserve_status open_in(gpuserve_compute **out, gpuserve_context *context,
                               const gpuserve_compute_options *options, gpuserve_error *error)
{
    gpuserve_compute *compute;
    gpuserve_status st = check_options(context, options, error);

    if (st != GPUSERVE_OK)
        return st;
    compute = gsv_alloc_array(1, sizeof(*compute));
    if (!compute)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a compute handle");
    pthread_mutex_init(&compute->lock, NULL);
    compute->context = gpuserve_context_ref(context);
    st = open_device(compute, options, error);
    if (st != GPUSERVE_OK)
        gpuserve_compute_close(&compute);
    else
        *out = compute;
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_compute_open(gpuserve_compute **out,
                                                   struct gpuserve_context *context,
                                                   const gpuserve_compute_options *given,
                                                   gpuserve_error *error)
{
    gpuserve_compute_options options;
    gpuserve_context *own = NULL;
    gpuserve_status st;

    if (!out)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`compute` is NULL");
    *out = NULL;
    st = gsv_read_struct(&options, sizeof(options), given, "gpuserve_compute_options", error);
    if (st == GPUSERVE_OK)
        st = context ? gsv_context_check(context, error)
                     : gpuserve_context_create(&own, NULL, error);
    if (st == GPUSERVE_OK)
        st = open_in(out, context ? context : own, &options, error);
    gpuserve_context_unref(&own); /* the handle holds its own reference */
    return st;
}

GPUSERVE_API const char *gpuserve_compute_device(const gpuserve_compute *compute)
{
    return compute ? compute->selector : NULL;
}

GPUSERVE_API void gpuserve_compute_close(gpuserve_compute **compute)
{
    gpuserve_compute *ended = compute ? *compute : NULL;

    if (!ended)
        return;
    *compute = NULL;
    /* A forked child has no threads, and the lock may be held by one of them: leak the handle. */
    if (gsv_forked(&ended->context->fork_check))
        return;
    if (ended->backend) {
        for (int i = 0; i < GSV_COMPUTE_BUFFERS && ended->device; i++)
            ended->backend->memory_free(ended->device, ended->buffers[i].memory);
        ended->backend->stream_destroy(&ended->stream);
        ended->backend->device_close(&ended->device);
    }
    pthread_mutex_destroy(&ended->lock);
    gpuserve_context_unref(&ended->context);
    free(ended);
}
