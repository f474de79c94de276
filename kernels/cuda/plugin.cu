/*
 * plugin.cu - the CUDA backend table and the only symbol that libgpuserve-cuda.so exports.
 */
#include "kernels/cuda/runtime/backend.cuh"

#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdio.h>

#define STRINGIFY_TOKEN(x) #x
#define STRINGIFY(x) STRINGIFY_TOKEN(x)

/* `gpuserve doctor` reads it from the file, which it does not load. Targets: "sm_80+sm_90+ptx_90".
 */
extern "C" __attribute__((used)) const char gsv_cuda_build[] =
    "gpuserve-plugin-build cuda=" STRINGIFY(CUDART_VERSION)
#ifdef GSV_CUDA_TARGETS
        " targets=" STRINGIFY(GSV_CUDA_TARGETS)
#endif
    ;

static struct gpuserve_host the_host; /* written once, when the plugin is loaded */

void gsv_cuda_log(int32_t level, const char *format, ...)
{
    char line[512];
    va_list args;

    if (!the_host.log)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    the_host.log(the_host.log_user, level, line);
}

static struct gpuserve_backend make_table(void)
{
    struct gpuserve_backend table = {};

    table.struct_size = sizeof(table);
    table.abi = GPUSERVE_BACKEND_ABI;
    table.name = "cuda";
    table.device_count = gsv_cuda_device_count;
    table.device_facts = gsv_cuda_device_facts;
    table.device_open = gsv_cuda_device_open;
    table.device_close = gsv_cuda_device_close;
    table.device_check = gsv_cuda_check_lost;
    table.activation_size = gsv_cuda_activation_size;
    table.table_size = gsv_cuda_activation_size;
    table.linear_bytes = gsv_cuda_linear_bytes;
    table.stream_bytes = gsv_cuda_stream_bytes;
    table.memory_alloc = gsv_cuda_memory_alloc;
    table.memory_free = gsv_cuda_memory_free;
    table.memory_write = gsv_cuda_memory_write;
    table.memory_read = gsv_cuda_memory_read;
    table.memory_write_floats = gsv_cuda_memory_write_floats;
    table.memory_write_table = gsv_cuda_memory_write_floats;
    table.host_alloc = gsv_cuda_host_alloc;
    table.host_free = gsv_cuda_host_free;
    table.transfer = gsv_cuda_transfer;
    table.int8_scales = gsv_cuda_int8_scales;
    table.int8_copies = gsv_cuda_int8_copies;
    table.linear_create = gsv_cuda_linear_create;
    table.linear_destroy = gsv_cuda_linear_destroy;
    table.linear_move = gsv_cuda_linear_move;
    table.stream_create = gsv_cuda_stream_create;
    table.stream_destroy = gsv_cuda_stream_destroy;
    table.batch_begin = gsv_cuda_batch_begin;
    table.batch_end = gsv_cuda_batch_end;
    table.stream_wait = gsv_cuda_stream_wait;
    table.prefetch = gsv_cuda_op_prefetch;
    table.embed = gsv_cuda_op_embed;
    table.linear = gsv_cuda_op_linear;
    table.add_norm = gsv_cuda_op_add_norm;
    table.rotate = gsv_cuda_op_rotate;
    table.glu = gsv_cuda_op_glu;
    table.route = gsv_cuda_op_route;
    table.add_scaled = gsv_cuda_op_add_scaled;
    table.attention = gsv_cuda_op_attention;
    table.pool = gsv_cuda_op_pool;
    table.normalize = gsv_cuda_op_normalize;
    table.activate = gsv_cuda_op_activate;
    table.max_sim = gsv_cuda_op_max_sim;
    table.compact = gsv_cuda_op_compact;
    table.matmul_bytes = gsv_cuda_op_matmul_bytes;
    table.matmul = gsv_cuda_op_matmul;
    table.chain = gsv_cuda_op_chain;
    table.random = gsv_cuda_op_random;
    table.lstm_layer_bytes = gsv_cuda_lstm_layer_bytes;
    table.lstm_layer_create = gsv_cuda_lstm_layer_create;
    table.lstm_max_bytes = gsv_cuda_lstm_max_bytes;
    table.lstm_layer_destroy = gsv_cuda_lstm_layer_destroy;
    table.lstm_layer_move = gsv_cuda_lstm_layer_move;
    table.lstm_bytes = gsv_cuda_op_lstm_bytes;
    table.lstm = gsv_cuda_op_lstm;
    return table;
}

extern "C" __attribute__((visibility("default"))) const struct gpuserve_backend *
gpuserve_backend_entry(const struct gpuserve_host *host, gpuserve_error *error);

const struct gpuserve_backend *gpuserve_backend_entry(const struct gpuserve_host *host,
                                                      gpuserve_error *error)
{
    static const struct gpuserve_backend table = make_table();

    if (!host || host->struct_size < sizeof(*host) || host->abi != GPUSERVE_BACKEND_ABI) {
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                 "the CUDA plugin has backend ABI %u, libgpuserve ABI %u", GPUSERVE_BACKEND_ABI,
                 host ? host->abi : 0);
        gsv_hint(error, GPUSERVE_E_UNSUPPORTED,
                 "install libgpuserve and libgpuserve-cuda of the same version");
        return NULL;
    }
    if (!the_host.log)
        the_host = *host;
    return &table;
}
