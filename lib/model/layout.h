/*
 * layout.h - memory layout of a net's weights and of a gsv_exec's activations.
 *
 * Each is one device allocation; the functions compute sizes and offsets without a device.
 */
#ifndef GSV_MODEL_LAYOUT_H
#define GSV_MODEL_LAYOUT_H

#include "lib/model/spec.h"

#define GSV_PLACE_ALIGNMENT 64

/* Device memory of one item, a multiple of GSV_PLACE_ALIGNMENT. Cannot overflow: sizes were bounded
 * when the configuration was read. */
size_t gsv_weight_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                        const struct gsv_weight *item, uint32_t dtype);

/* INT8: memory after the items, reserved for products kept in higher precision. Enough for half of
 * the layers' weights, and for the largest product. */
uint64_t gsv_kept_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend);

/* Byte offsets of a gsv_exec's buffers. */
struct gsv_exec_layout {
    uint64_t hidden;    /* [max_tokens, hidden] the residual stream */
    uint64_t context;   /* [max_tokens, hidden] attention output, then FFN output */
    uint64_t wide;      /* [max_tokens, wide_columns] QKV; attention projection; FFN intermediate */
    uint64_t pooled[2]; /* [max_sequences, pooled_columns] floats: input and output of a layer; the
                           first also fits sparse rows */
    uint64_t parts;     /* [2 * max_sequences] int32 for gsv_run.skip, if the model skips prompts */
    uint64_t total_bytes;
    int32_t wide_columns, pooled_columns;
};

/* False if the backend does not support the dtype or a size overflows. */
bool gsv_exec_layout(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                     const struct gsv_exec_options *options, struct gsv_exec_layout *layout);

struct gpuserve_stream_options gsv_stream_options(const struct gsv_spec *spec,
                                                  const struct gpuserve_backend *backend,
                                                  const struct gsv_exec_options *options,
                                                  const struct gsv_exec_layout *layout);

#endif
