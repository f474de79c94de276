/*
 * weights.h - inside of gsv_net: packed weights in one allocation of device memory.
 */
#ifndef GSV_MODEL_WEIGHTS_H
#define GSV_MODEL_WEIGHTS_H

#include "lib/model/tensor_reader.h"

struct gsv_net {
    const struct gsv_spec *spec; /* borrowed */
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    uint32_t dtype;
    char *memory;                     /* device; NULL while it is parked */
    char *offloaded_from;             /* where it was then: `places` are still relative to it */
    size_t bytes;                     /* of memory */
    char **places;                    /* [n_items] within memory */
    struct gpuserve_linear **linears; /* [n_items], NULL for tables */
    uint64_t digest[2];
    struct gsv_int8_facts int8;
};

/* The address of an item by its index; NULL for -1. */
static inline void *gsv_net_place(const struct gsv_net *net, int32_t item)
{
    return item < 0 ? NULL : net->places[item];
}

/* INT8 with calibration: run the batch through the encoder, layer by layer, and pack each linear
 * with what its input was. In smoothquant.c. */
gpuserve_status gsv_net_smooth(struct gsv_net *net, struct gsv_reader *reader,
                               const struct gpuserve_host_batch *batch, int32_t n_threads,
                               gpuserve_error *error);

/* INT8 with probes, after smoothing: compare the vectors of the probes with full precision, and
 * keep products in it until all are near enough. GPUSERVE_E_UNSUPPORTED when that is not possible
 * within the memory that gsv_net_bytes() has for them. In mixed_precision.c. */
gpuserve_status gsv_net_mix(struct gsv_net *net, struct gsv_reader *reader,
                            const struct gpuserve_host_batch *probes, int32_t n_threads,
                            gpuserve_error *error);

#endif
