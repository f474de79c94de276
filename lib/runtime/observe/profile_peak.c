/*
 * profile_peak.c - measures the peak rate of products on this device in the model's dtype, the
 * reference for the model's own products.
 *
 * In a large square product, arithmetic dominates all other costs. The result is therefore the peak
 * of the available kernels, not that of the data sheet.
 */
#include "lib/runtime/observe/profile.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

#define MIN_SIZE 256
#define MAX_SIZE 8192
#define LONG_ENOUGH_NS 4000000.0 /* per product: a larger one would not be faster */
#define REPEATS 2                /* per batch */
#define BATCHES 5

struct square {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    struct gpuserve_stream *stream;
    struct gpuserve_linear *linear;
    void *weights, *in, *out; /* device memory */
    float *floats;            /* host, [size, size] */
    int32_t *ids;             /* host, zeros */
    int32_t size;
    uint32_t dtype;
};

static void square_reset(struct square *s)
{
    s->backend->stream_destroy(&s->stream);
    s->backend->linear_destroy(&s->linear);
    if (s->weights)
        s->backend->memory_free(s->device, s->weights);
    if (s->in)
        s->backend->memory_free(s->device, s->in);
    if (s->out)
        s->backend->memory_free(s->device, s->out);
    free(s->floats);
    free(s->ids);
}

static gpuserve_status make_host(struct square *s, gpuserve_error *error)
{
    const size_t n = (size_t)s->size;
    uint32_t random = 1;

    s->floats = gsv_alloc_array(n * n, sizeof(float));
    s->ids = gsv_alloc_array(n + 1, sizeof(int32_t));
    if (!s->floats || !s->ids)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for measuring the peak");
    for (size_t i = 0; i < n * n; i++) {
        random = random * 1664525u + 1013904223u;
        s->floats[i] = (float)(random >> 8) / (float)(1 << 24) - 0.5f;
    }
    return GPUSERVE_OK;
}

static gpuserve_status make_device(struct square *s, int32_t n_threads, gpuserve_error *error)
{
    const struct gpuserve_backend *b = s->backend;
    const size_t n = (size_t)s->size, bytes = n * n * b->activation_size(s->dtype);
    const struct gpuserve_linear_source source = { .struct_size = sizeof(source),
                                                   .dtype = s->dtype,
                                                   .n = s->size,
                                                   .k = s->size,
                                                   .weight = s->floats };
    const struct gpuserve_stream_options options = { .struct_size = sizeof(options),
                                                     .dtype = s->dtype,
                                                     .n_threads = n_threads,
                                                     .max_tokens = s->size,
                                                     .max_sequences = 1,
                                                     .max_seqlen = s->size,
                                                     .max_columns = s->size,
                                                     .hidden_size = s->size,
                                                     .n_heads = s->size / 64,
                                                     .output_bytes = 64 };
    gpuserve_status st =
        b->memory_alloc(s->device, &s->weights, b->linear_bytes(s->size, s->size, s->dtype), error);

    if (st == GPUSERVE_OK)
        st = b->memory_alloc(s->device, &s->in, bytes, error);
    if (st == GPUSERVE_OK)
        st = b->memory_alloc(s->device, &s->out, bytes, error);
    if (st == GPUSERVE_OK)
        st = b->memory_write_floats(s->device, s->in, s->floats, n * n, s->dtype, error);
    if (st == GPUSERVE_OK)
        st = b->linear_create(s->device, &s->linear, s->weights, &source, error);
    if (st == GPUSERVE_OK)
        st = b->stream_create(s->device, &s->stream, &options, error);
    return st;
}

/* Runs a batch of REPEATS products; *ns is lowered to the time of one product if that is
 * smaller. */
static gpuserve_status run(struct square *s, double *ns, gpuserve_error *error)
{
    const struct gpuserve_backend *b = s->backend;
    const int32_t ends[2] = { 0, s->size };
    const struct gpuserve_host_batch host = { .n_tokens = s->size,
                                              .n_sequences = 1,
                                              .max_seqlen = s->size,
                                              .ids = s->ids,
                                              .type_ids = s->ids,
                                              .positions = s->ids,
                                              .cu_seqlens = ends };
    const struct gpuserve_op_linear op = { .weight = s->linear,
                                           .in = s->in,
                                           .out = s->out,
                                           .rows = s->size,
                                           .in_ld = s->size,
                                           .out_ld = s->size };
    const uint64_t begin = gsv_now_ns();
    struct gpuserve_batch batch;
    int32_t replayed = 0;
    char few[64];
    gpuserve_status st = b->batch_begin(s->stream, 1, &host, &batch, &replayed, error);

    for (int i = 0; i < REPEATS && !replayed && st == GPUSERVE_OK; i++)
        st = b->linear(s->stream, &op);
    if (st == GPUSERVE_OK)
        st = b->batch_end(s->stream, few, s->out, sizeof(few), error);
    if (st == GPUSERVE_OK)
        st = b->stream_wait(s->stream, error);
    if (st == GPUSERVE_OK) {
        const double now = (double)(gsv_now_ns() - begin) / REPEATS;

        *ns = now < *ns ? now : *ns;
    }
    return st;
}

static gpuserve_status measure(struct gsv_profile *profile, int32_t size, double *ns,
                               gpuserve_error *error)
{
    struct square s = {
        .backend = &profile->profiler->table,
        .device = profile->device,
        .size = size,
        .dtype = profile->plan.dtype,
    };
    gpuserve_status st = make_host(&s, error);

    *ns = 1e300;
    if (st == GPUSERVE_OK)
        st = make_device(&s, profile->shape->n_threads, error);
    for (int i = 0; i < BATCHES && st == GPUSERVE_OK; i++)
        st = run(&s, ns, error);
    square_reset(&s);
    return st;
}

/* Doubles the size until a product takes LONG_ENOUGH_NS. */
gpuserve_status gsv_profile_peak(struct gsv_profile *profile, gpuserve_error *error)
{
    gpuserve_error why = GPUSERVE_ERROR_INIT;

    for (int32_t size = MIN_SIZE; size <= MAX_SIZE; size *= 2) {
        const double n = size;
        double ns, rate;
        const gpuserve_status st = measure(profile, size, &ns, &why);

        if (st == GPUSERVE_E_NOMEM) { /* the model's own figures remain valid */
            gsv_log(profile->context, GPUSERVE_LOG_WARNING,
                    "the peak is measured on square products up to %d only: %s", size / 2,
                    why.message);
            return GPUSERVE_OK;
        }
        if (st != GPUSERVE_OK) {
            gsv_error_copy(error, &why);
            return st;
        }
        rate = 2 * n * n * n / (ns * 1e-9);
        profile->peak_flops = rate > profile->peak_flops ? rate : profile->peak_flops;
        if (ns > LONG_ENOUGH_NS)
            break;
    }
    return GPUSERVE_OK;
}
