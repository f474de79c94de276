/*
 * result_cache.h - result cache of one loaded model, bounded in bytes.
 *
 * Sharded hash table with LRU eviction in each shard. The key is every input of a row: token ids
 * and types, task, dimensions, normalization, score, precision, and tokens that pooling skips.
 * Model, number format and device need no part in the key, since each loaded model has a cache of
 * its own. A lookup compares the whole key after the hash, so a collision costs time and never
 * returns a wrong row.
 *
 * Thread-safety: safe. Each shard has a lock, held for one comparison and one copy.
 */
#ifndef GSV_RUNTIME_RESULT_CACHE_H
#define GSV_RUNTIME_RESULT_CACHE_H

#include "lib/runtime/core/metrics.h"
#include "lib/runtime/scheduler/request.h"

struct gsv_cache;

struct gsv_cache_key {
    struct gsv_tokens tokens;
    struct gsv_batch_key batch;
    uint64_t hash; /* gsv_tokens_hash(tokens) */
};

uint64_t gsv_tokens_hash(const struct gsv_tokens *tokens);

/* XXH3-128 of ranges [2, dim], which stands for them in batch keys. */
void gsv_ranges_digest(const float *ranges, size_t dim, uint64_t digest[2]);

/* `bytes` bounds all allocations; `metrics` counts hits, misses and bytes. */
gpuserve_status gsv_cache_create(struct gsv_cache **cache, uint64_t bytes,
                                 struct gsv_metrics *metrics, gpuserve_error *error);
void gsv_cache_free(struct gsv_cache **cache); /* accepts NULL, leaves NULL */

/* Copy the row stored under the key; false if the key is absent. */
bool gsv_cache_get(struct gsv_cache *cache, const struct gsv_cache_key *key, float *row,
                   size_t n_floats);

/* Store a copy of the row, unless the key exists or the row is too large for a shard. */
void gsv_cache_put(struct gsv_cache *cache, const struct gsv_cache_key *key, const float *row,
                   size_t n_floats);

#endif
