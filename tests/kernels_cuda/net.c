/*
 * net.c - a small encoder: seven operations per layer, one before the layers and one after; or
 * pre-norm, thirteen per layer, two before and one after.
 */
#include "tests/kernels_cuda/net.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BLOCKS 64

#define KV_HEADS 2 /* of a pre-norm net */
#define HEAD_SIZE (NET_HIDDEN / NET_HEADS)
#define QKV_WIDTH ((NET_HEADS + 2 * KV_HEADS) * HEAD_SIZE)
#define EXPERTS 2

enum linear_name { QKV, OUT, UP, DOWN, ROUTER, N_LINEARS };

struct layer {
    struct gpuserve_linear *linears[N_LINEARS];
    float *norms[4]; /* gamma, beta after attention; gamma, beta at the end */
};

struct net {
    const struct gpuserve_backend *backend;
    struct gpuserve_device *device;
    struct gpuserve_stream *stream;
    struct gpuserve_stream_options options;
    uint32_t dtype;
    uint32_t seed;
    void *blocks[MAX_BLOCKS]; /* all device memory */
    int n_blocks;
    void *word, *position, *type;
    float *gamma, *beta;
    struct layer layers[NET_LAYERS];
    void *hidden, *qkv, *mixed, *inner;
    float *pooled;
    /* Of a pre-norm net. */
    bool pre_norm;
    void *sum, *gated, *logits; /* the residual stream; rows of the gated unit and the router */
    float *weights;             /* of the experts */
    float *angles, *head_gamma; /* rotary positions, and the norm of queries and keys */
};

static void *take(struct net *net, size_t size, gpuserve_error *error)
{
    void *memory = NULL;

    cr_assert_lt(net->n_blocks, MAX_BLOCKS);
    if (net->backend->memory_alloc(net->device, &memory, size, error) != GPUSERVE_OK)
        return NULL;
    net->blocks[net->n_blocks++] = memory;
    return memory;
}

static float *make_weights(struct net *net, size_t n, float scale, float middle)
{
    float *floats = malloc(n * sizeof(*floats));

    cr_assert_not_null(floats);
    for (size_t i = 0; i < n; i++) {
        net->seed = net->seed * 1664525u + 1013904223u;
        floats[i] = middle + scale * ((float)(net->seed >> 8) / 8388608.0f - 1.0f);
    }
    return floats;
}

static void *put(struct net *net, size_t n, float scale, float middle, uint32_t dtype,
                 gpuserve_error *error)
{
    float *floats = make_weights(net, n, scale, middle);
    void *memory = take(net, n * sizeof(float), error);

    if (memory && net->backend->memory_write_floats(net->device, memory, floats, n, dtype, error) !=
                      GPUSERVE_OK)
        memory = NULL;
    free(floats);
    return memory;
}

static bool put_linear(struct net *net, struct gpuserve_linear **linear, int32_t n, int32_t k,
                       gpuserve_error *error)
{
    float *weight = make_weights(net, (size_t)n * (size_t)k, 0.2f, 0.0f);
    float *bias = make_weights(net, (size_t)n, 0.1f, 0.0f);
    const struct gpuserve_linear_source source = { .struct_size = sizeof(source),
                                                   .dtype = net->dtype,
                                                   .n = n,
                                                   .k = k,
                                                   .weight = weight,
                                                   .bias = bias };
    void *memory = take(net, net->backend->linear_bytes(n, k, net->dtype), error);
    const bool ok = memory && net->backend->linear_create(net->device, linear, memory, &source,
                                                          error) == GPUSERVE_OK;

    free(weight);
    free(bias);
    return ok;
}

static bool fill_layer(struct net *net, struct layer *layer, gpuserve_error *error)
{
    for (int i = 0; i < 4; i++) {
        layer->norms[i] =
            put(net, NET_HIDDEN, 0.2f, i % 2 ? 0.0f : 1.0f, GPUSERVE_DTYPE_FLOAT32, error);
        if (!layer->norms[i])
            return false;
    }
    return put_linear(net, &layer->linears[QKV], net->pre_norm ? QKV_WIDTH : 3 * NET_HIDDEN,
                      NET_HIDDEN, error) &&
           put_linear(net, &layer->linears[OUT], NET_HIDDEN, NET_HIDDEN, error) &&
           put_linear(net, &layer->linears[UP], net->pre_norm ? 2 * NET_INNER : NET_INNER,
                      NET_HIDDEN, error) &&
           put_linear(net, &layer->linears[DOWN], NET_HIDDEN, NET_INNER, error) &&
           (!net->pre_norm || put_linear(net, &layer->linears[ROUTER], EXPERTS, NET_HIDDEN, error));
}

/* What a pre-norm net has besides. */
static bool fill_pre_norm(struct net *net, gpuserve_error *error)
{
    const size_t element = net->backend->activation_size(net->dtype);
    const size_t rows = NET_MAX_TOKENS * element;

    net->angles = put(net, NET_MAX_TOKENS * HEAD_SIZE, 1.0f, 0.0f, GPUSERVE_DTYPE_FLOAT32, error);
    if (!net->angles)
        return false;
    net->head_gamma = put(net, HEAD_SIZE, 0.2f, 1.0f, GPUSERVE_DTYPE_FLOAT32, error);
    return net->head_gamma && (net->sum = take(net, rows * NET_HIDDEN, error)) != NULL &&
           (net->gated = take(net, rows * 2 * NET_INNER, error)) != NULL &&
           (net->logits = take(net, rows * EXPERTS, error)) != NULL &&
           (net->weights = take(net, NET_MAX_TOKENS * EXPERTS * sizeof(float), error)) != NULL;
}

static bool fill(struct net *net, gpuserve_error *error)
{
    const size_t element = net->backend->activation_size(net->dtype);
    const size_t rows = NET_MAX_TOKENS * element;

    net->word = put(net, NET_VOCAB * NET_HIDDEN, 1.0f, 0.0f, net->dtype, error);
    if (!net->word)
        return false;
    net->position = put(net, NET_MAX_TOKENS * NET_HIDDEN, 0.5f, 0.0f, net->dtype, error);
    if (!net->position)
        return false;
    net->type = put(net, 2 * NET_HIDDEN, 0.5f, 0.0f, net->dtype, error);
    if (!net->type)
        return false;
    net->gamma = put(net, NET_HIDDEN, 0.2f, 1.0f, GPUSERVE_DTYPE_FLOAT32, error);
    if (!net->gamma)
        return false;
    net->beta = put(net, NET_HIDDEN, 0.2f, 0.0f, GPUSERVE_DTYPE_FLOAT32, error);
    if (!net->beta)
        return false;
    for (int i = 0; i < NET_LAYERS; i++) {
        if (!fill_layer(net, &net->layers[i], error))
            return false;
    }
    if (net->pre_norm && !fill_pre_norm(net, error))
        return false;
    return (net->hidden = take(net, rows * NET_HIDDEN, error)) != NULL &&
           (net->qkv = take(net, rows * 3 * NET_HIDDEN, error)) != NULL &&
           (net->mixed = take(net, rows * NET_HIDDEN, error)) != NULL &&
           (net->inner = take(net, rows * NET_INNER, error)) != NULL &&
           (net->pooled = take(net, NET_MAX_SEQUENCES * NET_HIDDEN * sizeof(float), error)) != NULL;
}

struct net *net_open(const struct gpuserve_backend *backend, uint32_t dtype, int32_t flags,
                     gpuserve_error *error)
{
    struct net *net = calloc(1, sizeof(*net));
    const struct gpuserve_stream_options options = {
        .struct_size = sizeof(options),
        .dtype = dtype,
        .max_tokens = NET_MAX_TOKENS,
        .max_sequences = NET_MAX_SEQUENCES,
        .max_seqlen = NET_MAX_TOKENS,
        .max_columns = 3 * NET_HIDDEN, /* larger than NET_INNER */
        .hidden_size = NET_HIDDEN,
        .n_heads = NET_HEADS,
        .flags = flags & ~NET_PRE_NORM,
        .output_bytes = NET_MAX_SEQUENCES * NET_HIDDEN * sizeof(float),
    };

    cr_assert_not_null(net);
    net->backend = backend;
    net->dtype = dtype;
    net->pre_norm = (flags & NET_PRE_NORM) != 0;
    net->seed = 7;
    net->options = options;
    if (backend->device_open(&net->device, 0, error) != GPUSERVE_OK || !fill(net, error) ||
        backend->stream_create(net->device, &net->stream, &options, error) != GPUSERVE_OK)
        net_close(&net);
    return net;
}

void net_close(struct net **net)
{
    struct net *n = *net;

    if (!n)
        return;
    *net = NULL;
    if (n->stream)
        n->backend->stream_destroy(&n->stream);
    for (int i = 0; i < NET_LAYERS; i++)
        for (int j = 0; j < N_LINEARS; j++)
            n->backend->linear_destroy(&n->layers[i].linears[j]);
    while (n->n_blocks > 0)
        n->backend->memory_free(n->device, n->blocks[--n->n_blocks]);
    n->backend->device_close(&n->device);
    free(n);
}

static gpuserve_status product(struct net *net, const struct gpuserve_linear *weight, int32_t rows,
                               int32_t n, int32_t k, const void *in, void *out,
                               const void *residual, int32_t activation,
                               const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_linear op = {
        weight, in, out, residual, rows, k, n, activation, reader
    };

    return net->backend->linear(net->stream, &op);
}

static gpuserve_status norm(struct net *net, int32_t rows, float *const gamma_beta[2],
                            const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_add_norm op = { net->hidden,   net->hidden,   NULL,
                                             gamma_beta[0], gamma_beta[1], 1e-12f,
                                             rows,          NET_HIDDEN,    reader };

    return net->backend->add_norm(net->stream, &op);
}

/* `next` is the linear after this layer, or NULL. */
static gpuserve_status run_layer(struct net *net, const struct layer *layer,
                                 const struct gpuserve_batch *batch,
                                 const struct gpuserve_linear *next)
{
    const int32_t rows = batch->n_rows;
    const struct gpuserve_op_attention attention = { .batch = batch,
                                                     .qkv = net->qkv,
                                                     .out = net->mixed,
                                                     .n_heads = NET_HEADS,
                                                     .head_size = NET_HIDDEN / NET_HEADS,
                                                     .scale = 0.17677669f,
                                                     .reader = layer->linears[OUT] };
    gpuserve_status st = product(net, layer->linears[QKV], rows, 3 * NET_HIDDEN, NET_HIDDEN,
                                 net->hidden, net->qkv, NULL, 0, NULL);

    st = st ? st : net->backend->attention(net->stream, &attention);
    st = st ? st
            : product(net, layer->linears[OUT], rows, NET_HIDDEN, NET_HIDDEN, net->mixed,
                      net->hidden, net->hidden, 0, NULL);
    st = st ? st : norm(net, rows, &layer->norms[0], layer->linears[UP]);
    st = st ? st
            : product(net, layer->linears[UP], rows, NET_INNER, NET_HIDDEN, net->hidden, net->inner,
                      NULL, GPUSERVE_ACT_GELU, layer->linears[DOWN]);
    st = st ? st
            : product(net, layer->linears[DOWN], rows, NET_HIDDEN, NET_INNER, net->inner,
                      net->hidden, net->hidden, 0, NULL);
    return st ? st : norm(net, rows, &layer->norms[2], next);
}

/* --- pre-norm --- */

/* hidden = norm(sum), after sum += hidden if `adds`. */
static gpuserve_status rms_norm(struct net *net, int32_t rows, bool adds, const float *gamma,
                                const struct gpuserve_linear *reader)
{
    const struct gpuserve_op_add_norm op = { .out = net->hidden,
                                             .in = net->sum,
                                             .residual = adds ? net->hidden : NULL,
                                             .gamma = gamma,
                                             .eps = 1e-6f,
                                             .rows = rows,
                                             .cols = NET_HIDDEN,
                                             .reader = reader,
                                             .sum = adds ? net->sum : NULL,
                                             .norm = GPUSERVE_NORM_RMS };

    return net->backend->add_norm(net->stream, &op);
}

static gpuserve_status attend(struct net *net, const struct layer *layer,
                              const struct gpuserve_batch *batch)
{
    const struct gpuserve_op_rotate rotate = { .batch = batch,
                                               .qkv = net->qkv,
                                               .query_gamma = net->head_gamma,
                                               .key_gamma = net->head_gamma,
                                               .table = net->angles,
                                               .eps = 1e-6f,
                                               .n_heads = NET_HEADS,
                                               .n_kv_heads = KV_HEADS,
                                               .head_size = HEAD_SIZE,
                                               .rotary = HEAD_SIZE };
    const struct gpuserve_op_attention attention = { .batch = batch,
                                                     .qkv = net->qkv,
                                                     .out = net->mixed,
                                                     .n_heads = NET_HEADS,
                                                     .head_size = HEAD_SIZE,
                                                     .scale = 0.17677669f,
                                                     .reader = layer->linears[OUT],
                                                     .n_kv_heads = KV_HEADS,
                                                     .causal = 1,
                                                     .window = 9,
                                                     .softcap = 20.0f };
    gpuserve_status st = product(net, layer->linears[QKV], batch->n_rows, QKV_WIDTH, NET_HIDDEN,
                                 net->hidden, net->qkv, NULL, 0, NULL);

    st = st ? st : net->backend->rotate(net->stream, &rotate);
    st = st ? st : net->backend->attention(net->stream, &attention);
    return st ? st
              : product(net, layer->linears[OUT], batch->n_rows, NET_HIDDEN, NET_HIDDEN, net->mixed,
                        net->hidden, NULL, 0, NULL);
}

/* hidden = weighted sum of the experts, which have the same weights. */
static gpuserve_status run_experts(struct net *net, const struct layer *layer, int32_t rows)
{
    const struct gpuserve_op_glu glu = { .in = net->gated,
                                         .out = net->inner,
                                         .rows = rows,
                                         .cols = NET_INNER,
                                         .in_ld = 2 * NET_INNER,
                                         .out_ld = NET_INNER,
                                         .activation = GPUSERVE_ACT_SILU,
                                         .reader = layer->linears[DOWN] };
    const struct gpuserve_op_route route = { net->logits, net->weights, rows, EXPERTS, 1, 1 };
    struct gpuserve_op_add_scaled add = { .out = net->hidden,
                                          .in = net->mixed,
                                          .weights = net->weights,
                                          .weights_ld = EXPERTS,
                                          .rows = rows,
                                          .cols = NET_HIDDEN,
                                          .first = 1,
                                          .factor = 1.0f };
    gpuserve_status st = product(net, layer->linears[UP], rows, 2 * NET_INNER, NET_HIDDEN,
                                 net->hidden, net->gated, NULL, 0, NULL);

    st = st ? st
            : product(net, layer->linears[ROUTER], rows, EXPERTS, NET_HIDDEN, net->hidden,
                      net->logits, NULL, 0, NULL);
    st = st ? st : net->backend->route(net->stream, &route);
    st = st ? st : net->backend->glu(net->stream, &glu);
    st = st ? st
            : product(net, layer->linears[DOWN], rows, NET_HIDDEN, NET_INNER, net->inner,
                      net->mixed, NULL, 0, NULL);
    st = st ? st : net->backend->add_scaled(net->stream, &add);
    add.weights++;
    add.first = 0;
    return st ? st : net->backend->add_scaled(net->stream, &add);
}

static gpuserve_status run_pre_norm(struct net *net, const struct gpuserve_batch *batch)
{
    const struct gpuserve_op_embed embed = { .batch = batch,
                                             .out = net->sum,
                                             .word = net->word,
                                             .hidden = NET_HIDDEN,
                                             .norm = GPUSERVE_NORM_NONE,
                                             .word_scale = 1.5f };
    const struct gpuserve_op_pool pool = { batch,      net->hidden, net->pooled, GPUSERVE_POOL_LAST,
                                           NET_HIDDEN, NET_HIDDEN,  NET_HIDDEN,  1 };
    const int32_t rows = batch->n_rows;
    gpuserve_status st = net->backend->embed(net->stream, &embed);

    st = st ? st : rms_norm(net, rows, false, net->gamma, net->layers[0].linears[QKV]);
    for (int i = 0; i < NET_LAYERS && st == GPUSERVE_OK; i++) {
        const struct layer *layer = &net->layers[i];

        st = attend(net, layer, batch);
        st = st ? st : rms_norm(net, rows, true, layer->norms[0], layer->linears[UP]);
        st = st ? st : run_experts(net, layer, rows);
        st = st ? st
                : rms_norm(net, rows, true, layer->norms[2],
                           i + 1 < NET_LAYERS ? net->layers[i + 1].linears[QKV] : NULL);
    }
    return st ? st : net->backend->pool(net->stream, &pool);
}

/* --- batches --- */

static gpuserve_status run_operations(struct net *net, const struct gpuserve_batch *batch)
{
    const struct gpuserve_op_embed embed = {
        batch,      net->hidden, net->word, net->position, net->type,
        net->gamma, net->beta,   1e-12f,    NET_HIDDEN,    net->layers[0].linears[QKV]
    };
    const struct gpuserve_op_pool pool = { batch,      net->hidden, net->pooled, GPUSERVE_POOL_MEAN,
                                           NET_HIDDEN, NET_HIDDEN,  NET_HIDDEN,  1 };
    gpuserve_status st = net->backend->embed(net->stream, &embed);

    for (int i = 0; i < NET_LAYERS && st == GPUSERVE_OK; i++)
        st = run_layer(net, &net->layers[i], batch,
                       i + 1 < NET_LAYERS ? net->layers[i + 1].linears[QKV] : NULL);
    return st ? st : net->backend->pool(net->stream, &pool);
}

gpuserve_status net_begin(struct net *net, uint64_t program, const struct gpuserve_host_batch *host,
                          float *vectors, int32_t *replayed, gpuserve_error *error)
{
    const size_t size = (size_t)host->n_sequences * NET_HIDDEN * sizeof(float);
    struct gpuserve_batch batch;
    int32_t was_replayed = 0;
    gpuserve_status st =
        net->backend->batch_begin(net->stream, program, host, &batch, &was_replayed, error);

    if (replayed)
        *replayed = was_replayed;
    if (st != GPUSERVE_OK)
        return st;
    if (!was_replayed)
        (void)(net->pre_norm ? run_pre_norm(net, &batch)
                             : run_operations(net, &batch)); /* batch_end returns the error */
    return net->backend->batch_end(net->stream, vectors, net->pooled, size, error);
}

gpuserve_status net_wait(struct net *net, gpuserve_error *error)
{
    return net->backend->stream_wait(net->stream, error);
}

gpuserve_status net_run(struct net *net, uint64_t program, const struct gpuserve_host_batch *host,
                        float *vectors, int32_t *replayed, gpuserve_error *error)
{
    const gpuserve_status st = net_begin(net, program, host, vectors, replayed, error);

    return st ? st : net_wait(net, error);
}

size_t net_stream_bytes(const struct net *net)
{
    return net->backend->stream_bytes(&net->options);
}
