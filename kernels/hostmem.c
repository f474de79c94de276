/*
 * hostmem.c - facts about this machine, and host memory in the role of device memory.
 *
 * Large allocations use huge pages (lib/base/alloc.h). Weights are read sequentially; with 4 KiB
 * pages a short text spends a tenth of its time in page walks.
 */
#include "kernels/hostmem.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/host/host.h"
#include "lib/base/philox.h"

#include <stdlib.h>
#include <string.h>

void gsv_hostmem_facts(struct gpuserve_device_facts *facts)
{
    facts->index = 0;
    gsv_host_cpu_name(facts->name, (uint32_t)sizeof(facts->name));
    facts->uuid[0] = '\0';
    facts->memory_bytes = gsv_host_memory_bytes();
    facts->memory_free_bytes = gsv_host_memory_free_bytes();
    facts->n_cores = gsv_host_cpus();
    facts->widened = 0;
}

gpuserve_status gsv_hostmem_device_count(int32_t *count, gpuserve_error *error)
{
    (void)error;
    *count = 1;
    return GPUSERVE_OK;
}

/* Always succeeds: host memory cannot be lost while the process runs. */
gpuserve_status gsv_hostmem_device_check(int32_t index, gpuserve_error *error)
{
    (void)index;
    (void)error;
    return GPUSERVE_OK;
}

void gsv_hostmem_device_close(struct gpuserve_device **device)
{
    if (!device)
        return;
    free(*device);
    *device = NULL;
}

gpuserve_status gsv_hostmem_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                  gpuserve_error *error)
{
    (void)device;
    *memory = gsv_alloc_mapped(size);
    if (!*memory)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory: %zu bytes", size);
    return GPUSERVE_OK;
}

void gsv_hostmem_free(struct gpuserve_device *device, void *memory)
{
    (void)device;
    gsv_free_mapped(memory);
}

gpuserve_status gsv_hostmem_write(struct gpuserve_device *device, void *to, const void *from_host,
                                  size_t size, gpuserve_error *error)
{
    (void)device;
    (void)error;
    memcpy(to, from_host, size);
    return GPUSERVE_OK;
}

gpuserve_status gsv_hostmem_read(struct gpuserve_device *device, void *to_host, const void *from,
                                 size_t size, gpuserve_error *error)
{
    return gsv_hostmem_write(device, to_host, from, size, error);
}

gpuserve_status gsv_hostmem_memory_write_floats(struct gpuserve_device *device, void *to,
                                                const float *from_host, size_t count,
                                                uint32_t dtype, gpuserve_error *error)
{
    (void)dtype;
    return gsv_hostmem_write(device, to, from_host, count * sizeof(float), error);
}

gpuserve_status gsv_hostmem_host_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                       uint32_t kind, gpuserve_error *error)
{
    *memory = NULL;
    if (kind == GPUSERVE_HOST_PINNED)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "a CPU has no pinned memory: its memory is that of the host");
    return gsv_hostmem_alloc(device, memory, size, error);
}

void gsv_hostmem_host_free(struct gpuserve_device *device, void *memory, uint32_t kind)
{
    (void)kind;
    gsv_hostmem_free(device, memory);
}

gpuserve_status gsv_hostmem_transfer(struct gpuserve_device *device,
                                     struct gpuserve_op_transfer *op, gpuserve_error *error)
{
    const uint64_t begin = gsv_now_ns();

    (void)device;
    (void)error;
    if (op->direction == GPUSERVE_TRANSFER_FROM_DEVICE)
        memcpy(op->host, op->device, op->size);
    else
        memcpy(op->device, op->host, op->size);
    op->seconds = gsv_seconds_since(begin);
    return GPUSERVE_OK;
}

gpuserve_status gsv_hostmem_prefetch(struct gpuserve_stream *stream,
                                     const struct gpuserve_op_prefetch *op)
{
    (void)stream;
    if (op->size > 0)
        memcpy(op->to, op->from, op->size);
    return GPUSERVE_OK;
}

size_t gsv_hostmem_batch_bytes(int32_t max_tokens, int32_t max_sequences)
{
    return (3 * (size_t)max_tokens + 2 * (size_t)max_sequences + 1) * sizeof(int32_t);
}

void gsv_hostmem_batch_copy(void *memory, const struct gpuserve_host_batch *host,
                            struct gpuserve_batch *batch)
{
    const size_t n = (size_t)host->n_tokens;
    const size_t n_sequences = (size_t)host->n_sequences;
    int32_t *at = memory;

    batch->n_tokens = batch->n_rows = host->n_tokens;
    batch->n_sequences = host->n_sequences;
    batch->max_seqlen = host->max_seqlen;
    batch->ids = memcpy(at, host->ids, n * sizeof(*at));
    batch->type_ids = memcpy(at + n, host->type_ids, n * sizeof(*at));
    batch->positions = memcpy(at + 2 * n, host->positions, n * sizeof(*at));
    batch->cu_seqlens = memcpy(at + 3 * n, host->cu_seqlens, (n_sequences + 1) * sizeof(*at));
    batch->key_counts = host->key_counts ? memcpy(at + 3 * n + n_sequences + 1, host->key_counts,
                                                  n_sequences * sizeof(*at))
                                         : NULL;
}

gpuserve_status gsv_hostmem_batch_end(struct gpuserve_stream *stream, void *to_host,
                                      const void *from, size_t size, gpuserve_error *error)
{
    (void)stream;
    (void)error;
    memcpy(to_host, from, size);
    return GPUSERVE_OK;
}

gpuserve_status gsv_hostmem_stream_wait(struct gpuserve_stream *stream, gpuserve_error *error)
{
    (void)stream;
    (void)error;
    return GPUSERVE_OK;
}

gpuserve_status gsv_hostmem_random(struct gpuserve_stream *stream, struct gpuserve_op_random *op,
                                   gpuserve_error *error)
{
    const uint64_t begin = gsv_now_ns();

    (void)stream;
    if (op->variant == GPUSERVE_RANDOM_CURAND)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "variant curand: a CPU has no cuRAND");
    for (size_t i = 0; i < op->n; i += 4) {
        const size_t n = op->n - i < 4 ? op->n - i : 4;
        uint32_t words[4];

        gsv_philox_at(words, op->seed, op->first + i / 4);
        memcpy(op->out + i, words, n * sizeof(*words));
    }
    op->seconds = gsv_seconds_since(begin);
    return GPUSERVE_OK;
}
