/*
 * hostmem.h - functions shared by the host backends (ref, cpu): facts about this machine, and plain
 * host memory in place of device memory.
 *
 * All functions except gsv_hostmem_facts() and the batch helpers are entries of the backend table.
 * They keep no state, so any thread may call them.
 */
#ifndef GSV_KERNELS_HOSTMEM_H
#define GSV_KERNELS_HOSTMEM_H

#include <gpuserve/sys/backend.h>

/* Fills all fields except `isa`, which the backend sets. */
void gsv_hostmem_facts(struct gpuserve_device_facts *facts);

/* Table entries that are identical in every host backend. */
gpuserve_status gsv_hostmem_device_count(int32_t *count, gpuserve_error *error);
gpuserve_status gsv_hostmem_device_check(int32_t index, gpuserve_error *error);
gpuserve_status gsv_hostmem_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                  gpuserve_error *error);
void gsv_hostmem_free(struct gpuserve_device *device, void *memory);
gpuserve_status gsv_hostmem_write(struct gpuserve_device *device, void *to, const void *from_host,
                                  size_t size, gpuserve_error *error);
gpuserve_status gsv_hostmem_read(struct gpuserve_device *device, void *to_host, const void *from,
                                 size_t size, gpuserve_error *error);

/* Stores float32 for every dtype: host backends keep activations in float32. */
gpuserve_status gsv_hostmem_memory_write_floats(struct gpuserve_device *device, void *to,
                                                const float *from_host, size_t count,
                                                uint32_t dtype, gpuserve_error *error);
/* Pageable memory only; PINNED is refused. A transfer is a memcpy() on the calling thread. */
gpuserve_status gsv_hostmem_host_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                       uint32_t kind, gpuserve_error *error);
void gsv_hostmem_host_free(struct gpuserve_device *device, void *memory, uint32_t kind);
gpuserve_status gsv_hostmem_transfer(struct gpuserve_device *device,
                                     struct gpuserve_op_transfer *op, gpuserve_error *error);
/* A memcpy() at once. */
gpuserve_status gsv_hostmem_prefetch(struct gpuserve_stream *stream,
                                     const struct gpuserve_op_prefetch *op);
/* For a device that is a single heap allocation. Accepts NULL. */
void gsv_hostmem_device_close(struct gpuserve_device **device);
/* Host operations are synchronous: batch_end copies the result at once, stream_wait does
 * nothing. */
gpuserve_status gsv_hostmem_batch_end(struct gpuserve_stream *stream, void *to_host,
                                      const void *from, size_t size, gpuserve_error *error);
gpuserve_status gsv_hostmem_stream_wait(struct gpuserve_stream *stream, gpuserve_error *error);

/* Philox4x32-10 on one thread. The variant CURAND is refused. */
gpuserve_status gsv_hostmem_random(struct gpuserve_stream *stream, struct gpuserve_op_random *op,
                                   gpuserve_error *error);

/* Copies the four arrays of a batch one after the other into `memory` and describes them in
 * `batch`. `memory` holds at least gsv_hostmem_batch_bytes() bytes. */
size_t gsv_hostmem_batch_bytes(int32_t max_tokens, int32_t max_sequences);
void gsv_hostmem_batch_copy(void *memory, const struct gpuserve_host_batch *host,
                            struct gpuserve_batch *batch);

#endif
