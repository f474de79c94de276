/*
 * fake_pipeline.c - the fake model has no layers that devices could share.
 */
#include "lib/model/model.h"

int32_t gsv_pipeline_layers(const struct gsv_spec *spec)
{
    (void)spec;
    return 0;
}

uint64_t gsv_range_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                         uint32_t dtype, struct gsv_layer_range range)
{
    (void)spec;
    (void)backend;
    (void)dtype;
    (void)range;
    return 0;
}

bool gsv_pipeline_split(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                        uint32_t dtype, const uint64_t *free_bytes, int32_t n,
                        struct gsv_layer_range *ranges)
{
    (void)spec;
    (void)backend;
    (void)dtype;
    (void)free_bytes;
    (void)n;
    (void)ranges;
    return false;
}

uint64_t gsv_pipeline_host_bytes(const struct gsv_spec *spec,
                                 const struct gpuserve_backend *backend,
                                 const struct gsv_exec_options *options)
{
    (void)spec;
    (void)backend;
    (void)options;
    return 0;
}
