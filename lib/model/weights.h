/*
 * weights.h - contents of gsv_net: packed weights in one allocation of device memory.
 *
 * Private to lib/model. Immutable after gsv_net_load(), except by gsv_net_offload() and
 * gsv_net_reload(), which require that no gsv_exec of the net exists.
 */
#ifndef GSV_MODEL_WEIGHTS_H
#define GSV_MODEL_WEIGHTS_H

#include "lib/model/tensor_reader.h"

struct gsv_net {
    const struct gsv_spec *spec; /* borrowed */
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    uint32_t dtype;
    char *memory;         /* device memory; NULL while offloaded */
    char *offloaded_from; /* the former address: while offloaded, `places` still point there */
    size_t bytes;         /* size of `memory` */
    char **places;        /* [n_items] addresses within `memory` */
    struct gpuserve_linear **linears; /* [n_items] NULL for items that are not linears */
    uint64_t digest[2];
    struct gsv_int8_facts int8;
};

/* The address of an item; NULL for index -1. */
static inline void *gsv_net_place(const struct gsv_net *net, int32_t item)
{
    return item < 0 ? NULL : net->places[item];
}

/* INT8 with calibration: run the batch through the encoder stage by stage, and create each linear
 * with the measured range of its input. Implemented in smoothquant.c. */
gpuserve_status gsv_net_smooth(struct gsv_net *net, struct gsv_reader *reader,
                               const struct gpuserve_host_batch *batch, int32_t n_threads,
                               gpuserve_error *error);

/* INT8 with probes, after smoothing: compare the probes' vectors with full precision, and keep
 * products in higher precision until all are close enough. GPUSERVE_E_UNSUPPORTED if the memory
 * reserved by gsv_net_bytes() does not suffice. Implemented in mixed_precision.c. */
gpuserve_status gsv_net_mix(struct gsv_net *net, struct gsv_reader *reader,
                            const struct gpuserve_host_batch *probes, int32_t n_threads,
                            gpuserve_error *error);

#endif
