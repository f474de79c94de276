/*
 * weights.h - contents of gsv_net: packed weights in one allocation of device memory.
 *
 * Private to lib/model. Immutable after gsv_net_load(), except by gsv_net_offload() and
 * gsv_net_reload(), which require that no gsv_exec of the net exists.
 */
#ifndef GSV_MODEL_WEIGHTS_H
#define GSV_MODEL_WEIGHTS_H

#include "lib/model/spec.h"
#include "lib/model/weights/tensor_reader.h"

/* The products of a streamed layer in host memory of the kind gsv_weight_streaming.kind. */
struct gsv_streamed_layer {
    char *image;
    size_t size;
};

/* Layers whose products are in host memory: encoder/weight_streaming.c. All zero: none. */
struct gsv_weight_streaming {
    int32_t first, n;                  /* stored layers first to first + n - 1, which is the last */
    struct gsv_streamed_layer *layers; /* [n] */
    int32_t *layer_of;                 /* [n_items] 0 to n - 1; -1: not streamed */
    size_t buffer_bytes;               /* of each of the two at the end of gsv_net.memory */
    uint32_t kind;                     /* gpuserve_host_memory of the layers */
};

struct gsv_net {
    const struct gsv_spec *spec; /* borrowed */
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    uint32_t dtype;
    char *memory;         /* device memory; NULL while offloaded */
    char *offloaded_from; /* the former address: while offloaded, `addresses` still point there */
    size_t bytes;         /* size of `memory` */
    char *mapped;         /* a file that `memory` is part of, read-only; NULL: none */
    size_t mapped_bytes;
    char **addresses;                       /* [n_items] addresses within `memory` */
    struct gpuserve_linear **linears;       /* [n_items] NULL for items that are not linears */
    struct gpuserve_lstm_layer **recurrent; /* [n_items] NULL but for the first item of a layer */
    uint64_t digest[2];
    struct gsv_int8_facts int8;
    struct gsv_weight_streaming streaming;
    struct gsv_layer_range layers; /* all of them but in a pipeline */
    struct gsv_net **before; /* [n_before] owned: those of a pipeline's devices before this one */
    int32_t n_before;
    struct gsv_phase_observer observer;
};

static inline void gsv_begin_phase(const struct gsv_net *net, enum gsv_phase phase, int32_t layer)
{
    if (net->observer.begin)
        net->observer.begin(net->observer.user, phase, layer);
}

/* The address of an item; NULL for index -1. */
static inline void *gsv_net_address(const struct gsv_net *net, int32_t item)
{
    return item < 0 ? NULL : net->addresses[item];
}

/*
 * Weight streaming, implemented in encoder/weight_streaming.c. `streamed` counts streamed layers
 * from 0.
 *
 *   init, memory_alloc, set_addresses   then for each layer: load its products, save
 *   prefetch 0                          before the layers of a batch
 *   prefetch i + 1                      before the operations of streamed layer i; after the last
 *                                       one nothing is copied
 */
gpuserve_status gsv_streaming_init(struct gsv_net *net, int32_t n_streamed, gpuserve_error *error);
void gsv_streaming_reset(struct gsv_net *net);
/* The addresses of the products, in the buffers of net->memory. */
void gsv_streaming_set_addresses(struct gsv_net *net);
/* Copy the products of a layer from their buffer to host memory. */
gpuserve_status gsv_streaming_save(const struct gsv_net *net, int32_t streamed,
                                   gpuserve_error *error);
gpuserve_status gsv_streaming_prefetch(const struct gsv_net *net, struct gpuserve_stream *stream,
                                       int32_t streamed);

/* Whether a device with these layers has an item. Implemented in encoder/pipeline.c. */
bool gsv_range_has(const struct gsv_spec *spec, struct gsv_layer_range range, size_t index);

/* Compute and write an item of relative or rotary positions. Implemented in position_tables.c. */
gpuserve_status gsv_load_positions(const struct gsv_net *net, struct gsv_reader *reader,
                                   size_t item, gpuserve_error *error);

/* Compute and write a MAPPED_TABLE. Implemented in static_table.c. */
gpuserve_status gsv_load_mapped_table(const struct gsv_net *net, struct gsv_reader *reader,
                                      size_t item, gpuserve_error *error);

/* Create the layer whose first item this is. Implemented in recurrent_weights.c. */
gpuserve_status gsv_load_recurrent(struct gsv_net *net, struct gsv_reader *reader, size_t item,
                                   gpuserve_error *error);

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

/*
 * Memory layout of a net's weights and of a gsv_exec's activations.
 *
 * Each is one device allocation; the functions compute sizes and offsets without a device.
 */

#define GSV_ITEM_ALIGNMENT 64

/* Device memory of one item, a multiple of GSV_ITEM_ALIGNMENT. Cannot overflow: sizes were bounded
 * when the configuration was read. */
size_t gsv_weight_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                        const struct gsv_weight *item, uint32_t dtype);

/* INT8: memory after the items, reserved for products kept in higher precision. Enough for half of
 * the layers' weights, and for the largest product. */
uint64_t gsv_kept_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend);

/* Byte offsets of a gsv_exec's buffers. */
struct gsv_exec_layout {
    uint64_t hidden;    /* [max_tokens, hidden] the residual stream */
    uint64_t context;   /* [max_tokens, context_columns] attention output, then FFN output; in
                           pre-norm   layers also the normalized rows */
    uint64_t wide;      /* [max_tokens, wide_columns] QKV; attention projection; FFN intermediate */
    uint64_t pooled[2]; /* [max_sequences, pooled_columns] floats: input and output of a layer; the
                           first also fits sparse rows */
    uint64_t inner;  /* [max_sequences, inner_columns] floats: every second inner layer of heads */
    uint64_t scores; /* floats: the scores of all heads, see encoder/heads.c */
    uint64_t mix;    /* [max_tokens, hidden] weighted outputs of the layers, if there are weights */
    uint64_t parts;  /* [2 * max_sequences] int32 for gsv_run.skip, if the model skips prompts */
    uint64_t low;    /* [max_tokens, low_columns] of adapters; logits of experts */
    uint64_t weights;    /* [max_tokens, experts] floats */
    uint64_t sum;        /* [max_tokens, hidden] of experts */
    uint64_t convolved;  /* [max_tokens, hidden] of a convolution; `hidden` has one row more */
    uint64_t neighbours; /* int32, see gsv_write_neighbours() */
    uint64_t narrow;     /* [max_tokens, width of the bottleneck] */
    uint64_t encoded;    /* [max_tokens, hidden] the encoder's output, which a decoder reads */
    uint64_t
        sequences; /* [max_sequences] struct gpuserve_lstm_sequence, of an LSTM; the next too */
    uint64_t states[2];  /* [directions, max_sequences, units] floats */
    uint64_t scratch;    /* of a layer */
    uint64_t late_texts; /* [max_sequences] struct gpuserve_max_sim_text, of late interaction; the
                            next two too */
    uint64_t late_rows;  /* [max_tokens] int32 */
    uint64_t queries;    /* [GPUSERVE_MAX_QUERY_VECTORS, token_dim] floats */
    uint64_t ranges;     /* [2, dim] floats, of an embedder */
    uint64_t total_bytes;
    int32_t wide_columns, context_columns, pooled_columns;
};

/* False if the backend does not support the dtype or a size overflows. */
bool gsv_exec_layout(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                     const struct gsv_exec_options *options, struct gsv_exec_layout *layout);

struct gpuserve_stream_options gsv_stream_options(const struct gsv_spec *spec,
                                                  const struct gpuserve_backend *backend,
                                                  const struct gsv_exec_options *options,
                                                  const struct gsv_exec_layout *layout);

/*
 * The packed weights of a net in a file, so that a later load neither reads the
 * model's weights nor calibrates INT8.
 *
 *   gsv_net_load() --no valid file--> read, calibrate, pack --gsv_net_save()--> file
 *   gsv_net_load() --valid file--> map or read the file, recreate the linears
 *
 * The file holds the net's device memory byte for byte, the digest, the facts of INT8 and a record
 * of each linear. It is only for this machine: byte order, packing and struct layouts are those of
 * the build that wrote it, which the key of the file must cover. A file is replaced by rename and
 * never changed, so processes may map it while another one replaces it.
 */

/* Restores `net` from options->packed, whose `state` and `note` say what was found. False if the
 * file is missing, invalid or of another key; the net then has no memory, as before. */
bool gsv_net_restore(struct gsv_net *net, const struct gsv_net_options *options);

/* Unmaps the file of a restored net. */
void gsv_net_unmap(struct gsv_net *net);

#endif
