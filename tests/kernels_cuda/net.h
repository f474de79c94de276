/*
 * net.h - a small encoder of two layers, run through a backend's table like lib/model does:
 * post-norm like BERT, or pre-norm with all other operations.
 *
 * Has the operation order of a real batch, for tests of batches, replays and faults.
 */
#ifndef GSV_TEST_KERNELS_CUDA_NET_H
#define GSV_TEST_KERNELS_CUDA_NET_H

#include "tests/kernels_cuda/harness.h"

/* The narrowest rows that LayerNorm processes by a warp: the emulator's cost is per thread. */
#define NET_HIDDEN 128
#define NET_HEADS 4
#define NET_INNER 160
#define NET_LAYERS 2
/* Launches of a batch, in any number format but INT8: there the router of the experts reads rows
 * that are quantized for another product. */
#define NET_LAUNCHES (2 + 7 * NET_LAYERS)
#define NET_PRE_NORM_LAUNCHES (3 + 13 * NET_LAYERS)
#define NET_VOCAB 40
#define NET_MAX_TOKENS 112
#define NET_MAX_SEQUENCES 8

struct net;

/* In the flags of net_open(): RMSNorm before attention and feed-forward, rotary positions with
 * norms of queries and keys, grouped queries, a causal window and a soft cap, a gated linear unit,
 * and a mixture of two experts with the same weights. */
#define NET_PRE_NORM 0x10000

/* NULL on failure, with `error` filled. Everything is released then. */
struct net *net_open(const struct gpuserve_backend *backend, uint32_t dtype, int32_t flags,
                     gpuserve_error *error);
void net_close(struct net **net);

/* Submits a batch to the net's stream; its vectors are valid after net_wait(). Arguments as in
 * net_run(). */
gpuserve_status net_begin(struct net *net, uint64_t program, const struct gpuserve_host_batch *host,
                          float *vectors, int32_t *replayed, gpuserve_error *error);
gpuserve_status net_wait(struct net *net, gpuserve_error *error);

/* One normalized vector per sequence in `vectors`; *replayed may be NULL. */
gpuserve_status net_run(struct net *net, uint64_t program, const struct gpuserve_host_batch *host,
                        float *vectors, int32_t *replayed, gpuserve_error *error);

/* Bytes that the net's stream reports. */
size_t net_stream_bytes(const struct net *net);

#endif
