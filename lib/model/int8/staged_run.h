/*
 * staged_run.h - runs one batch of texts through a net stage by stage, so that the linear of a
 * stage may be created, or replaced, before it runs.
 *
 *   gsv_staged_open() -> gsv_staged_step(-1), (0), (1), ... -> gsv_staged_close()
 */
#ifndef GSV_STAGED_RUN_H
#define GSV_STAGED_RUN_H

#include "lib/model/encoder/encoder.h"

#include <stdint.h>

/* A stream with the activations of the batch. All zero: closed. */
struct gsv_staged_run {
    const struct gsv_net *net;
    const struct gpuserve_host_batch *host;
    struct gpuserve_stream *stream;
    char *memory; /* device memory of the activations */
    struct gsv_activations at;
    int32_t wide_columns; /* of the widest activation */
    uint64_t program; /* program number of the next batch: each batch issues different operations */
};

/* Options of a gsv_exec for this batch alone. */
struct gsv_exec_options gsv_staged_options(const struct gpuserve_host_batch *host, uint32_t dtype,
                                           int32_t n_threads);

/* `net` and `host` are borrowed. Close the run on failure too. */
gpuserve_status gsv_staged_open(struct gsv_staged_run *run, const struct gsv_net *net,
                                const struct gpuserve_host_batch *host, uint32_t dtype,
                                int32_t n_threads, gpuserve_error *error);
void gsv_staged_close(struct gsv_staged_run *run);

/* Run stage `step` of all layers' stages and the operations after it, or the embedding (-1), as a
 * batch. */
gpuserve_status gsv_staged_step(struct gsv_staged_run *run, int32_t step, gpuserve_error *error);

#endif
