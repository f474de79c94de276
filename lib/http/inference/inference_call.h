/*
 * inference_call.h - a job of the library on behalf of an exchange, without a thread that waits for
 * it.
 *
 * gsv_call_start submits; the library's callback and the thread that started it meet in
 * work.handshake: whoever comes second knows that the first was there. If the result is there
 * before the handler has returned, the connection is never suspended.
 *
 * A small job that is the only one is not submitted: the guard's thread computes it itself once it
 * is out of libmicrohttpd's calls, see event_loop.h. To wake another thread, and to be woken by it,
 * takes longer than all else that a request costs beside its computation.
 */
#ifndef GSV_HTTP_INFERENCE_CALL_H
#define GSV_HTTP_INFERENCE_CALL_H

#include "lib/http/protocol/exchange.h"
#include "lib/http/protocol/handshake.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/inference/load_queue.h"

/* Submit `job` over `inputs` to exchange->served; the output's memory is made here. `finish` runs
 * when it has succeeded: items and job.output are in exchange->work. A failure is told to the
 * client. False after gsv_refuse. */
bool gsv_call_start(struct gsv_exchange *exchange, const gpuserve_job *job,
                    const struct gsv_inputs *inputs, gsv_handler finish);

/* A load, an unload (of `entry`) or a check, which `queue` does. False after gsv_refuse. */
bool gsv_call_load(struct gsv_exchange *exchange, struct gsv_load_queue *queue,
                   struct gsv_entry *entry, enum gsv_load_kind kind, gsv_handler finish);
/* From any thread: the work is done, its status is set. The exchange may be gone on return. */
void gsv_call_complete(struct gsv_exchange *exchange);

/* Row i of the result. */
static inline const float *gsv_call_row(const struct gsv_exchange *exchange, size_t i)
{
    return exchange->work.job.output + i * exchange->work.columns;
}

#endif
