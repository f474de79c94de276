/*
 * recurrent.h - runs the LSTM layers of a recurrent model.
 */
#ifndef GSV_MODEL_RECURRENT_H
#define GSV_MODEL_RECURRENT_H

#include "lib/model/encoder/rows.h"

/* Compute `hidden` of a batch: the embedding, then all layers. Blocks until it is done, outside of
 * a batch of the stream. */
gpuserve_status gsv_recurrent_encode(struct gsv_exec *work, const struct gpuserve_host_batch *host,
                                     gpuserve_error *error);

/* LAST pooling of a bidirectional model: the forward states of the last token, then the backward
 * states of the first one, which are the states after all tokens. `op` pools the first of
 * op->columns columns. */
gpuserve_status gsv_recurrent_pool_ends(const struct gsv_rows *rows, struct gpuserve_op_pool *op);

#endif
