/*
 * openai_batch.h - what /v1/files and /v1/batches share.
 */
#ifndef GSV_HTTP_OPENAI_BATCH_H
#define GSV_HTTP_OPENAI_BATCH_H

#include "lib/http/protocol/exchange.h"

struct gsv_batch_jobs;

/* NULL after gsv_refuse: the server has no --batch-dir. */
struct gsv_batch_jobs *gsv_batch_jobs_of(struct gsv_exchange *exchange);
/* Maps a failure of the store. Returns false. */
bool gsv_refuse_storage(struct gsv_exchange *exchange, gpuserve_status status,
                        const gpuserve_error *error);
/* Checks `param`: {"anchor","seconds"}. False after gsv_refuse. */
bool gsv_read_expiry(struct gsv_exchange *exchange, const char *param, const char *anchor,
                     int64_t seconds);

#endif
