/*
 * result_cache.c - the result cache of a loaded model: sharded hash table with LRU eviction.
 *
 * The hash is XXH3 over the token ids: the upper bits choose a shard, the lower ones a bucket. Each
 * shard has a chained hash table, a list by last use, and a lock. A put evicts the least recently
 * used entries until the new one fits in the shard's bytes.
 */
#include "lib/runtime/scheduler/result_cache.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdlib.h>
#define XXH_INLINE_ALL /* header only: no library is needed at run time */
#include <xxhash.h>

#define N_SHARDS 16
#define TYPICAL_ENTRY_BYTES 2048 /* a row of 384 floats and some tens of tokens */
#define ALLOCATOR_BYTES 16       /* malloc's overhead for one block */

/* One allocation: the struct, the row, the ids, the types. */
struct cache_entry {
    struct cache_entry *next_in_bucket;
    struct cache_entry *newer, *older; /* by last use */
    struct gsv_cache_key key;          /* its tokens point into this entry */
    size_t n_floats;
    size_t bytes;
    float row[];
};

struct shard {
    pthread_mutex_t lock;
    struct cache_entry **buckets; /* [n_buckets] */
    struct cache_entry *newest, *oldest;
    uint64_t bytes; /* of entries */
};

struct gsv_cache {
    struct gsv_metrics *metrics;
    uint64_t own_bytes;
    uint64_t shard_bytes; /* maximum bytes of a shard's entries */
    size_t n_buckets;     /* a power of two */
    struct shard shards[N_SHARDS];
};

uint64_t gsv_tokens_hash(const struct gsv_tokens *tokens)
{
    return XXH3_64bits(tokens->ids, tokens->n * sizeof(*tokens->ids));
}

void gsv_ranges_digest(const float *ranges, size_t dim, uint64_t digest[2])
{
    const XXH128_hash_t hash = XXH3_128bits(ranges, 2 * dim * sizeof(*ranges));

    digest[0] = hash.low64;
    digest[1] = hash.high64;
}

gpuserve_status gsv_cache_create(struct gsv_cache **out, uint64_t bytes,
                                 struct gsv_metrics *metrics, gpuserve_error *error)
{
    struct gsv_cache *cache = gsv_alloc_array(1, sizeof(*cache));
    struct cache_entry **buckets;

    *out = NULL;
    if (!cache)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a cache");
    cache->n_buckets = 1;
    while (cache->n_buckets < bytes / N_SHARDS / TYPICAL_ENTRY_BYTES)
        cache->n_buckets *= 2;
    buckets = gsv_alloc_array(cache->n_buckets * N_SHARDS, sizeof(struct cache_entry *));
    if (!buckets) {
        free(cache);
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a cache");
    }
    cache->metrics = metrics;
    cache->own_bytes = sizeof(*cache) + cache->n_buckets * N_SHARDS * sizeof(struct cache_entry *);
    cache->shard_bytes = bytes > cache->own_bytes ? (bytes - cache->own_bytes) / N_SHARDS : 0;
    for (size_t i = 0; i < N_SHARDS; i++) {
        pthread_mutex_init(&cache->shards[i].lock, NULL);
        cache->shards[i].buckets = buckets + i * cache->n_buckets;
    }
    atomic_fetch_add(&metrics->cache_bytes, cache->own_bytes);
    *out = cache;
    return GPUSERVE_OK;
}

void gsv_cache_free(struct gsv_cache **out)
{
    struct gsv_cache *cache = *out;

    if (!cache)
        return;
    for (size_t i = 0; i < N_SHARDS; i++) {
        struct shard *shard = &cache->shards[i];

        while (shard->newest) {
            struct cache_entry *entry = shard->newest;

            shard->newest = entry->older;
            free(entry);
        }
        atomic_fetch_sub(&cache->metrics->cache_bytes, shard->bytes);
        pthread_mutex_destroy(&shard->lock);
    }
    atomic_fetch_sub(&cache->metrics->cache_bytes, cache->own_bytes);
    free(cache->shards[0].buckets);
    free(cache);
    *out = NULL;
}

/* ------------------------------------------------------------ entries, under the shard's lock */

static struct shard *shard_of(struct gsv_cache *cache, uint64_t hash)
{
    return &cache->shards[hash >> 60 & (N_SHARDS - 1)];
}

static struct cache_entry **bucket_of(const struct gsv_cache *cache, struct shard *shard,
                                      uint64_t hash)
{
    return &shard->buckets[hash & (cache->n_buckets - 1)];
}

static struct cache_entry *find(const struct gsv_cache *cache, struct shard *shard,
                                const struct gsv_cache_key *key)
{
    struct cache_entry *entry = *bucket_of(cache, shard, key->hash);

    while (entry &&
           (entry->key.hash != key->hash || !gsv_same_row_key(&entry->key.batch, &key->batch) ||
            !gsv_tokens_equal(&entry->key.tokens, &key->tokens)))
        entry = entry->next_in_bucket;
    return entry;
}

static void unlink_by_use(struct shard *shard, struct cache_entry *entry)
{
    *(entry->newer ? &entry->newer->older : &shard->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &shard->oldest) = entry->newer;
}

static void link_newest(struct shard *shard, struct cache_entry *entry)
{
    entry->newer = NULL;
    entry->older = shard->newest;
    *(entry->older ? &entry->older->newer : &shard->oldest) = entry;
    shard->newest = entry;
}

static void drop_oldest(struct gsv_cache *cache, struct shard *shard)
{
    struct cache_entry *entry = shard->oldest;
    struct cache_entry **link = bucket_of(cache, shard, entry->key.hash);

    while (*link != entry)
        link = &(*link)->next_in_bucket;
    *link = entry->next_in_bucket;
    unlink_by_use(shard, entry);
    shard->bytes -= entry->bytes;
    atomic_fetch_sub(&cache->metrics->cache_bytes, entry->bytes);
    free(entry);
}

/* ------------------------------------------------------------------------------- get and put */

bool gsv_cache_get(struct gsv_cache *cache, const struct gsv_cache_key *key, float *row,
                   size_t n_floats)
{
    struct shard *shard = shard_of(cache, key->hash);
    struct cache_entry *entry;
    bool hit;

    pthread_mutex_lock(&shard->lock);
    entry = find(cache, shard, key);
    hit = entry && entry->n_floats == n_floats;
    if (hit) {
        memcpy(row, entry->row, n_floats * sizeof(float));
        unlink_by_use(shard, entry);
        link_newest(shard, entry);
    }
    pthread_mutex_unlock(&shard->lock);
    atomic_fetch_add(hit ? &cache->metrics->cache_hits : &cache->metrics->cache_misses, 1);
    return hit;
}

static struct cache_entry *entry_make(const struct gsv_cache_key *key, const float *row,
                                      size_t n_floats, size_t bytes)
{
    struct cache_entry *entry = malloc(bytes);
    const size_t n = key->tokens.n;
    int32_t *ids;
    uint8_t *types;

    if (!entry)
        return NULL;
    ids = (int32_t *)(void *)(entry->row + n_floats);
    types = (uint8_t *)(ids + n);
    memset(entry, 0, sizeof(*entry));
    memcpy(entry->row, row, n_floats * sizeof(float));
    memcpy(ids, key->tokens.ids, n * sizeof(*ids));
    if (key->tokens.type_ids)
        memcpy(types, key->tokens.type_ids, n);
    else
        memset(types, 0, n);
    entry->key = *key;
    entry->key.tokens.ids = ids;
    entry->key.tokens.type_ids = types;
    entry->n_floats = n_floats;
    entry->bytes = bytes + ALLOCATOR_BYTES;
    return entry;
}

void gsv_cache_put(struct gsv_cache *cache, const struct gsv_cache_key *key, const float *row,
                   size_t n_floats)
{
    struct shard *shard = shard_of(cache, key->hash);
    const size_t bytes = sizeof(struct cache_entry) + n_floats * sizeof(float) +
                         key->tokens.n * (sizeof(int32_t) + sizeof(uint8_t));
    struct cache_entry *entry, **bucket;

    if (bytes + ALLOCATOR_BYTES > cache->shard_bytes)
        return;
    entry = entry_make(key, row, n_floats, bytes);
    if (!entry)
        return; /* it is computed again next time */
    pthread_mutex_lock(&shard->lock);
    if (find(cache, shard, key)) {
        pthread_mutex_unlock(&shard->lock);
        free(entry);
        return;
    }
    while (shard->bytes + entry->bytes > cache->shard_bytes)
        drop_oldest(cache, shard);
    bucket = bucket_of(cache, shard, key->hash);
    entry->next_in_bucket = *bucket;
    *bucket = entry;
    link_newest(shard, entry);
    shard->bytes += entry->bytes;
    atomic_fetch_add(&cache->metrics->cache_bytes, entry->bytes);
    pthread_mutex_unlock(&shard->lock);
}
