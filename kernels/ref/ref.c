/*
 * ref.c - backend table of the oracle: one host device, float32 and int8, single-threaded.
 *
 * A stream is one allocation: the struct followed by the copy of the batch.
 */
#include "kernels/ref/ref.h"

#include "kernels/hostmem.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>

struct gpuserve_device {
    int32_t index;
};

static gpuserve_status device_facts(int32_t index, struct gpuserve_device_facts *facts,
                                    gpuserve_error *error)
{
    if (index != 0)
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND,
                        "device %d: no such device; the only ref device is 0", (int)index);
    gsv_hostmem_facts(facts);
    snprintf(facts->isa, sizeof(facts->isa), "c");
    return GPUSERVE_OK;
}

static gpuserve_status device_open(struct gpuserve_device **device, int32_t index,
                                   gpuserve_error *error)
{
    *device = NULL;
    if (index != 0)
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND,
                        "device %d: no such device; the only ref device is 0", (int)index);
    *device = gsv_alloc_array(1, sizeof(**device));
    return *device ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a device");
}

static size_t activation_size(uint32_t dtype)
{
    return dtype == GPUSERVE_DTYPE_FLOAT32 || dtype == GPUSERVE_DTYPE_INT8 ||
                   dtype == GPUSERVE_DTYPE_INT16
               ? sizeof(float)
               : 0;
}

static size_t stream_bytes(const struct gpuserve_stream_options *options)
{
    return sizeof(struct gpuserve_stream) +
           gsv_hostmem_batch_bytes(options->max_tokens, options->max_sequences);
}

static gpuserve_status stream_create(struct gpuserve_device *device,
                                     struct gpuserve_stream **stream,
                                     const struct gpuserve_stream_options *options,
                                     gpuserve_error *error)
{
    struct gpuserve_stream *made = gsv_alloc_array(1, stream_bytes(options));

    (void)device;
    *stream = made;
    if (!made)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a stream");
    made->batch_memory = made + 1;
    return GPUSERVE_OK;
}

static void stream_destroy(struct gpuserve_stream **stream)
{
    if (!stream)
        return;
    free(*stream);
    *stream = NULL;
}

static gpuserve_status batch_begin(struct gpuserve_stream *stream, uint64_t program,
                                   const struct gpuserve_host_batch *host,
                                   struct gpuserve_batch *batch, int32_t *replayed,
                                   gpuserve_error *error)
{
    (void)program;
    (void)error;
    gsv_hostmem_batch_copy(stream->batch_memory, host, batch);
    *replayed = 0;
    return GPUSERVE_OK;
}

static const struct gpuserve_backend backend = {
    .struct_size = sizeof(struct gpuserve_backend),
    .abi = GPUSERVE_BACKEND_ABI,
    .name = "ref",
    .device_count = gsv_hostmem_device_count,
    .device_facts = device_facts,
    .device_open = device_open,
    .device_close = gsv_hostmem_device_close,
    .device_check = gsv_hostmem_device_check,
    .activation_size = activation_size,
    .table_size = activation_size,
    .linear_bytes = gsv_ref_linear_bytes,
    .stream_bytes = stream_bytes,
    .memory_alloc = gsv_hostmem_alloc,
    .memory_free = gsv_hostmem_free,
    .memory_write = gsv_hostmem_write,
    .memory_read = gsv_hostmem_read,
    .memory_write_floats = gsv_hostmem_memory_write_floats,
    .memory_write_table = gsv_hostmem_memory_write_floats,
    .host_alloc = gsv_hostmem_host_alloc,
    .host_free = gsv_hostmem_host_free,
    .transfer = gsv_hostmem_transfer,
    .int8_scales = gsv_ref_int8_scales,
    .int8_copies = gsv_ref_int8_copies,
    .linear_create = gsv_ref_linear_create,
    .linear_destroy = gsv_ref_linear_destroy,
    .linear_move = gsv_ref_linear_move,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .batch_begin = batch_begin,
    .batch_end = gsv_hostmem_batch_end,
    .stream_wait = gsv_hostmem_stream_wait,
    .prefetch = gsv_hostmem_prefetch,
    .embed = gsv_ref_embed,
    .linear = gsv_ref_linear,
    .add_norm = gsv_ref_add_norm,
    .rotate = gsv_ref_rotate,
    .glu = gsv_ref_glu,
    .route = gsv_ref_route,
    .add_scaled = gsv_ref_add_scaled,
    .attention = gsv_ref_attention,
    .pool = gsv_ref_pool,
    .normalize = gsv_ref_normalize,
    .activate = gsv_ref_activate,
    .max_sim = gsv_ref_op_max_sim,
    .compact = gsv_ref_compact,
    .matmul_bytes = gsv_ref_matmul_bytes,
    .matmul = gsv_ref_matmul,
    .chain = gsv_ref_chain,
    .lstm_layer_bytes = gsv_ref_lstm_layer_bytes,
    .lstm_layer_create = gsv_ref_lstm_layer_create,
    .lstm_max_bytes = gsv_ref_lstm_max_bytes,
    .lstm_layer_destroy = gsv_ref_lstm_layer_destroy,
    .lstm_layer_move = gsv_ref_lstm_layer_move,
    .lstm_bytes = gsv_ref_lstm_bytes,
    .lstm = gsv_ref_lstm,
    .random = gsv_hostmem_random,
};

const struct gpuserve_backend *gsv_backend_ref(void)
{
    return &backend;
}
