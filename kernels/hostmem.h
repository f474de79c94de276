/*
 * hostmem.h - what the backends that compute in host memory share: facts about this machine, and
 * plain memory in place of device memory.
 */
#ifndef GSV_KERNELS_HOSTMEM_H
#define GSV_KERNELS_HOSTMEM_H

#include <gpuserve/sys/backend.h>

/* Fill everything but `isa`, which the backend chooses. */
void gsv_hostmem_facts(struct gpuserve_device_facts *facts);

/* Slots of the table that are alike on every host backend. */
gpuserve_status gsv_hostmem_device_count(int32_t *count, gpuserve_error *error);
gpuserve_status gsv_hostmem_device_check(int32_t index, gpuserve_error *error);
gpuserve_status gsv_hostmem_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                  gpuserve_error *error);
void gsv_hostmem_free(struct gpuserve_device *device, void *memory);
gpuserve_status gsv_hostmem_write(struct gpuserve_device *device, void *to, const void *from_host,
                                  size_t size, gpuserve_error *error);
gpuserve_status gsv_hostmem_read(struct gpuserve_device *device, void *to_host, const void *from,
                                 size_t size, gpuserve_error *error);

/* Activations are float32 whatever the dtype. */
gpuserve_status gsv_hostmem_memory_write_floats(struct gpuserve_device *device, void *to,
                                                const float *from_host, size_t count,
                                                uint32_t dtype, gpuserve_error *error);
/* For devices that are one allocation. */
void gsv_hostmem_device_close(struct gpuserve_device **device);
/* An operation is over when it returns: the result is copied at once, and there is no waiting. */
gpuserve_status gsv_hostmem_batch_end(struct gpuserve_stream *stream, void *to_host,
                                      const void *from, size_t size, gpuserve_error *error);
gpuserve_status gsv_hostmem_stream_wait(struct gpuserve_stream *stream, gpuserve_error *error);

/* Copy a batch's four arrays behind one another into `memory` (gsv_hostmem_batch_bytes() of it) and
 * describe them in `batch`. */
size_t gsv_hostmem_batch_bytes(int32_t max_tokens, int32_t max_sequences);
void gsv_hostmem_batch_copy(void *memory, const struct gpuserve_host_batch *host,
                            struct gpuserve_batch *batch);

#endif
