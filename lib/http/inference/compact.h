/*
 * compact.h - embeddings as float16, int8, uint8 or sign bits, for dialects that offer them.
 *
 * int8 and uint8 need a range for each dimension. The server computes it once per model, number of
 * dimensions and normalization, from the library's calibration texts; the first such request
 * computes these texts before its own.
 */
#ifndef GSV_HTTP_COMPACT_H
#define GSV_HTTP_COMPACT_H

#include "lib/http/inference/inputs.h"
#include "lib/http/protocol/exchange.h"

struct gsv_ranges; /* of a model: see gsv_served */

/* The precisions of a request, and their ranges. */
struct gsv_compact {
    uint32_t precisions; /* bit 1 << gpuserve_precision */
    const float *ranges; /* [2, columns]; NULL: no int8 and uint8 */
    gpuserve_job job;    /* private: what gsv_compact_start() starts after the calibration */
    struct gsv_inputs inputs;
    gsv_handler finish;
    bool (*start)(struct gsv_exchange *exchange);
    struct gsv_request_usage usage;
};

/* A precision by its name in requests: float, float16, int8, uint8, binary, ubinary. False:
 * unknown.
 */
bool gsv_precision_named(const char *name, uint32_t *precision);

/* As gsv_call_start(), with compact->ranges set before `finish` runs. `compact` lives as long as
 * the exchange. */
bool gsv_compact_start(struct gsv_exchange *exchange, struct gsv_compact *compact,
                       const gpuserve_job *job, const struct gsv_inputs *inputs,
                       gsv_handler finish);

/* Sets compact->ranges for vectors of the form of `job`, then calls `start`, which is false after
 * gsv_refuse. `compact` lives as long as the exchange. */
bool gsv_compact_calibrate(struct gsv_exchange *exchange, struct gsv_compact *compact,
                           const gpuserve_job *job, bool (*start)(struct gsv_exchange *exchange));

/* Appends row i in a precision: a JSON list of numbers, or a base64 string of its bytes, which are
 * little-endian. */
void gsv_put_compact(struct gsv_exchange *exchange, const struct gsv_compact *compact, size_t i,
                     uint32_t precision, bool base64);

void gsv_ranges_free(struct gsv_ranges *ranges);

#endif
