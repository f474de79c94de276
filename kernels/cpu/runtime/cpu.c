/*
 * cpu.c - backend table of the CPU backend and its single device.
 *
 *   gemm/pack.c                   packs weights into the layout that the products read
 *   gemm/linear.c runtime/ops.c   cut operations into tasks
 *   runtime/stream.c              memory of a stream
 *   runtime/thread_pool.c         runs the tasks on the stream's threads
 *   runtime/dispatch.c            selects an instruction set
 *   gemm/gemm_f32.c ...           inner loops, compiled once per instruction set
 *
 * Invariant: the bits of a text's result depend on that text alone, not on other texts in the
 * batch, the number of threads or the assignment of tasks. A NaN does not spread to another text.
 */
#include "kernels/cpu/runtime/cpu.h"

#include "kernels/hostmem.h"
#include "kernels/kernels.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <pthread.h>
#include <stdio.h>

static gpuserve_status check_index(int32_t index, gpuserve_error *error)
{
    if (index == 0)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_NOT_FOUND,
                    "cpu:%d: no such device; the only CPU device is cpu:0", (int)index);
}

static gpuserve_status facts_of(const struct gsv_cpu_isa *isa, int32_t index,
                                struct gpuserve_device_facts *facts, gpuserve_error *error)
{
    const gpuserve_status st = check_index(index, error);

    if (st != GPUSERVE_OK)
        return st;
    gsv_hostmem_facts(facts);
    facts->widened = gsv_cpu_widened(isa);
    snprintf(facts->isa, sizeof(facts->isa), "%s", isa->name);
    return GPUSERVE_OK;
}

static gpuserve_status open_with(const struct gsv_cpu_isa *isa, struct gpuserve_device **device,
                                 int32_t index, gpuserve_error *error)
{
    const gpuserve_status st = check_index(index, error);

    *device = NULL;
    if (st != GPUSERVE_OK)
        return st;
    *device = gsv_alloc_array(1, sizeof(**device));
    if (!*device)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a device");
    (*device)->isa = isa;
    return GPUSERVE_OK;
}

static gpuserve_status device_facts(int32_t index, struct gpuserve_device_facts *facts,
                                    gpuserve_error *error)
{
    return facts_of(gsv_cpu_choose_isa(), index, facts, error);
}

static gpuserve_status device_open(struct gpuserve_device **device, int32_t index,
                                   gpuserve_error *error)
{
    return open_with(gsv_cpu_choose_isa(), device, index, error);
}

static gpuserve_status portable_facts(int32_t index, struct gpuserve_device_facts *facts,
                                      gpuserve_error *error)
{
    return facts_of(gsv_cpu_choose_portable_isa(), index, facts, error);
}

static gpuserve_status portable_open(struct gpuserve_device **device, int32_t index,
                                     gpuserve_error *error)
{
    return open_with(gsv_cpu_choose_portable_isa(), device, index, error);
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
    .name = "cpu",
    .device_count = gsv_hostmem_device_count,
    .device_facts = device_facts,
    .device_open = device_open,
    .device_close = gsv_hostmem_device_close,
    .device_check = gsv_hostmem_device_check,
    .activation_size = gsv_cpu_activation_size,
    .table_size = gsv_cpu_table_size,
    .linear_bytes = gsv_cpu_linear_bytes,
    .stream_bytes = gsv_cpu_stream_bytes,
    .memory_alloc = gsv_hostmem_alloc,
    .memory_free = gsv_hostmem_free,
    .memory_write = gsv_hostmem_write,
    .memory_read = gsv_hostmem_read,
    .memory_write_floats = gsv_hostmem_memory_write_floats,
    .memory_write_table = gsv_cpu_write_table,
    .host_alloc = gsv_hostmem_host_alloc,
    .host_free = gsv_hostmem_host_free,
    .transfer = gsv_hostmem_transfer,
    .int8_scales = gsv_cpu_int8_scales,
    .int8_copies = gsv_cpu_int8_copies,
    .linear_create = gsv_cpu_linear_create,
    .linear_destroy = gsv_cpu_linear_destroy,
    .linear_move = gsv_cpu_linear_move,
    .stream_create = gsv_cpu_stream_create,
    .stream_destroy = gsv_cpu_stream_destroy,
    .batch_begin = batch_begin,
    .batch_end = gsv_hostmem_batch_end,
    .stream_wait = gsv_hostmem_stream_wait,
    .prefetch = gsv_hostmem_prefetch,
    .embed = gsv_cpu_embed,
    .linear = gsv_cpu_linear,
    .add_norm = gsv_cpu_add_norm,
    .rotate = gsv_cpu_rotate,
    .glu = gsv_cpu_glu,
    .route = gsv_cpu_route,
    .add_scaled = gsv_cpu_add_scaled,
    .attention = gsv_cpu_attention,
    .pool = gsv_cpu_pool,
    .normalize = gsv_cpu_normalize,
    .activate = gsv_cpu_activate,
    .max_sim = gsv_cpu_op_max_sim,
    .compact = gsv_cpu_compact,
    .matmul_bytes = gsv_cpu_matmul_bytes,
    .matmul = gsv_cpu_matmul,
    .chain = gsv_cpu_chain,
    .lstm_layer_bytes = gsv_cpu_lstm_layer_bytes,
    .lstm_layer_create = gsv_cpu_lstm_layer_create,
    .lstm_max_bytes = gsv_cpu_lstm_max_bytes,
    .lstm_layer_destroy = gsv_cpu_lstm_layer_destroy,
    .lstm_layer_move = gsv_cpu_lstm_layer_move,
    .lstm_bytes = gsv_cpu_lstm_bytes,
    .lstm = gsv_cpu_lstm,
    .random = gsv_hostmem_random,
};

const struct gpuserve_backend *gsv_backend_cpu(void)
{
    return &backend;
}

static struct gpuserve_backend portable_backend;

static void make_portable(void)
{
    portable_backend = backend;
    portable_backend.device_facts = portable_facts;
    portable_backend.device_open = portable_open;
}

const struct gpuserve_backend *gsv_backend_cpu_portable(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_portable);
    return &portable_backend;
}
