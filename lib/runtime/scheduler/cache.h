/*
 * cache.h - results of a loaded model that may be asked for again, within a bound of bytes.
 *
 * The key is everything a row depends on: the token ids and types, the task, dimensions,
 * normalization and score; model, number format and device are the cache's own, since each loaded
 * model has one. A hash finds the entry, a comparison of the whole key decides: a collision costs
 * time, never a wrong row. When a shard is full its least recently used entries go.
 *
 * Thread-safety: safe. Shards have a lock each, held for one comparison and one copy.
 */
#ifndef GSV_RUNTIME_CACHE_H
#define GSV_RUNTIME_CACHE_H

#include "lib/runtime/core/metrics.h"
#include "lib/runtime/scheduler/request.h"

struct gsv_cache;

struct gsv_cache_key {
    struct gsv_tokens tokens;
    struct gsv_batch_key batch;
    uint64_t hash; /* gsv_tokens_hash(tokens) */
};

uint64_t gsv_tokens_hash(const struct gsv_tokens *tokens);

/* `bytes` bounds everything it allocates; `metrics` counts hits, misses and bytes. */
gpuserve_status gsv_cache_create(struct gsv_cache **cache, uint64_t bytes,
                                 struct gsv_metrics *metrics, gpuserve_error *error);
void gsv_cache_free(struct gsv_cache **cache); /* accepts NULL, leaves NULL */

/* Copy the row kept under the key; false when there is none. */
bool gsv_cache_get(struct gsv_cache *cache, const struct gsv_cache_key *key, float *row,
                   size_t n_floats);

/* Keep a copy of the row, unless there is one or it is too large for a shard. */
void gsv_cache_put(struct gsv_cache *cache, const struct gsv_cache_key *key, const float *row,
                   size_t n_floats);

#endif
