/*
 * net.h - a small encoder of two layers, run through a backend's table as lib/model does it: the
 * order of operations of a real batch, for tests of batches, replays and faults.
 */
#ifndef GSV_TEST_KERNELS_CUDA_NET_H
#define GSV_TEST_KERNELS_CUDA_NET_H

#include "tests/kernels_cuda/harness.h"

/* The narrowest rows that LayerNorm takes a warp for: the emulator pays for each thread. */
#define NET_HIDDEN 128
#define NET_HEADS 4
#define NET_INNER 160
#define NET_LAYERS 2
#define NET_VOCAB 40
#define NET_MAX_TOKENS 112
#define NET_MAX_SEQUENCES 8

struct net;

/* NULL for a failure, which `error` tells. Nothing is left behind then. */
struct net *net_open(const struct gpuserve_backend *backend, uint32_t dtype, int32_t flags,
                     gpuserve_error *error);
void net_close(struct net **net);

/* Put a batch on the net's stream; its vectors are there after net_wait(). Both as net_run(). */
gpuserve_status net_begin(struct net *net, uint64_t program, const struct gpuserve_host_batch *host,
                          float *vectors, int32_t *replayed, gpuserve_error *error);
gpuserve_status net_wait(struct net *net, gpuserve_error *error);

/* One normalized vector for each sequence into `vectors`; *replayed may be NULL. */
gpuserve_status net_run(struct net *net, uint64_t program, const struct gpuserve_host_batch *host,
                        float *vectors, int32_t *replayed, gpuserve_error *error);

/* Bytes of what the net's stream says that it allocates. */
size_t net_stream_bytes(const struct net *net);

#endif
