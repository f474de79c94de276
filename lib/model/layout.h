/*
 * layout.h - where the weights of a net and the activations of a work lie in their one allocation.
 */
#ifndef GSV_MODEL_LAYOUT_H
#define GSV_MODEL_LAYOUT_H

#include "lib/model/spec.h"

#define GSV_PLACE_ALIGNMENT 64

/* Device memory of one item, a multiple of GSV_PLACE_ALIGNMENT. Sizes were bounded when the
 * configuration was read, so it cannot overflow. */
size_t gsv_weight_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                        const struct gsv_weight *item, uint32_t dtype);

/* INT8: the memory behind the items for products that are kept in higher precision: enough for half
 * of the layers' weights, and for the largest product. */
uint64_t gsv_kept_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend);

/* Byte offsets of a work's buffers. */
struct gsv_exec_layout {
    uint64_t hidden;    /* [max_tokens, hidden] the residual stream */
    uint64_t context;   /* [max_tokens, hidden] attention's output, then the feed-forward's */
    uint64_t wide;      /* [max_tokens, wide_columns] QKV; attention's projection; FFN's middle */
    uint64_t pooled[2]; /* [max_sequences, pooled_columns] floats: input and output of a layer; the
                           first has room for sparse rows too */
    uint64_t parts;     /* [2 * max_sequences] int32: see gsv_run.skip; nothing in other models */
    uint64_t total_bytes;
    int32_t wide_columns, pooled_columns;
};

/* False when the dtype cannot be had or a size overflows. */
bool gsv_exec_layout(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                     const struct gsv_exec_options *options, struct gsv_exec_layout *layout);

struct gpuserve_stream_options gsv_stream_options(const struct gsv_spec *spec,
                                                  const struct gpuserve_backend *backend,
                                                  const struct gsv_exec_options *options,
                                                  const struct gsv_exec_layout *layout);

#endif
