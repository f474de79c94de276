/*
 * inference_call.h - asynchronous jobs of the library for an exchange; no thread waits for them.
 *
 * gsv_call_start() submits the job. The completion callback and the starting thread meet in
 * work.handshake by an atomic exchange: the second to arrive sees that the first was there. If the
 * result arrives before the handler returns, the connection is never suspended.
 *
 * A small job is run inline if it is the only one. The event loop thread computes it after
 * libmicrohttpd's calls return; see event_loop.h. Two thread switches would cost more than the rest
 * of such a request other than its computation.
 */
#ifndef GSV_HTTP_INFERENCE_CALL_H
#define GSV_HTTP_INFERENCE_CALL_H

#include "lib/http/inference/inputs.h"
#include "lib/http/inference/load_queue.h"
#include "lib/http/protocol/exchange.h"

/* Submits `job` over `inputs` to exchange->served and allocates its outputs; of job->more only the
 * tasks are read. An output by token needs inputs->offsets. After success `finish`
 * runs with items and job.output in exchange->work; a failure is sent to the client. False after
 * gsv_refuse. */
bool gsv_call_start(struct gsv_exchange *exchange, const gpuserve_job *job,
                    const struct gsv_inputs *inputs, gsv_handler finish);

/* The same for a job whose input and output are set. */
bool gsv_call_submit(struct gsv_exchange *exchange, const gpuserve_job *job, gsv_handler finish);

/* Checks the size of a reply of n_rows rows. False after gsv_refuse. */
bool gsv_call_check_reply(struct gsv_exchange *exchange, size_t n_rows, size_t columns);

/* Queues a load or unload of `entry`, or a check. False after gsv_refuse. */
bool gsv_call_load(struct gsv_exchange *exchange, struct gsv_load_queue *queue,
                   struct gsv_entry *entry, enum gsv_load_kind kind, gsv_handler finish);
/* From any thread: the work is done and its status is set. The exchange may be freed on return. */
void gsv_call_complete(struct gsv_exchange *exchange);

/* The rows of a task of the job; NULL if it has no such output. */
const float *gsv_call_rows(const struct gsv_exchange *exchange, uint32_t task, size_t *columns);

/* Row i of the output. */
static inline const float *gsv_call_row(const struct gsv_exchange *exchange, size_t i)
{
    return exchange->work.job.output + i * exchange->work.columns;
}

#endif
