/*
 * tensor_reader.h - reads tensors as float32, with NaN checks and hashing in the same pass.
 *
 * A tensor is read in chunks that stay in the CPU cache from the read to the packed weights. Each
 * chunk has its own hash, so any thread may read any chunk. One gsv_reader for each thread.
 */
#ifndef GSV_MODEL_TENSOR_READER_H
#define GSV_MODEL_TENSOR_READER_H

#include "lib/model/spec.h"

#include <stdatomic.h>

/* Elements of a chunk: 1 MiB of float32; a multiple of each block size of GGUF. */
#define GSV_CHUNK_ELEMENTS ((size_t)1 << 18)

/* The hashes of all chunks of all tensors of a spec, in the order of items. */
struct gsv_hashes {
    struct gsv_hash {
        uint64_t high, low;
    } * chunks; /* XXH3-128 */
    size_t n_chunks;
    size_t *first; /* [n_items * 6] first chunk of a tensor: 3 weights, then 3 biases */
};

gpuserve_status gsv_hashes_init(struct gsv_hashes *hashes, const struct gsv_spec *spec,
                                gpuserve_error *error);
void gsv_hashes_reset(struct gsv_hashes *hashes);

/* Combine the hashes and the settings into the digest of gsv_net_digest(). */
void gsv_hashes_digest(const struct gsv_hashes *hashes, const struct gsv_spec *spec,
                       uint64_t digest[2]);

/* Progress of all threads that load a spec. */
struct gsv_reading {
    atomic_uint_fast64_t bytes;
    int32_t (*progress)(void *user, uint64_t bytes); /* as in gsv_net_options; may be NULL */
    void *progress_user;
};

/* State of one reading thread. */
struct gsv_reader {
    const struct gsv_spec *spec;
    struct gsv_hashes *hashes;   /* shared; each chunk's hash has a single writer */
    struct gsv_reading *reading; /* may be NULL */
    bool tells;                  /* this thread calls the progress callback */
    unsigned char *raw;          /* file bytes of one chunk */
    float *floats;               /* [capacity] output buffer for the caller */
    size_t capacity;
};

/* Allocate buffers for the largest read that any item needs. */
gpuserve_status gsv_reader_init(struct gsv_reader *reader, const struct gsv_spec *spec,
                                struct gsv_hashes *hashes, gpuserve_error *error);
void gsv_reader_reset(struct gsv_reader *reader);

size_t gsv_chunk_count(const struct gsv_tensor *tensor);

/* Read chunk `chunk` of an item's weight 0 into `to`; *n receives the number of elements. */
gpuserve_status gsv_read_chunk(struct gsv_reader *reader, const struct gsv_weight *item,
                               size_t chunk, float *to, size_t *n, gpuserve_error *error);

/* Read a linear's stacked weights and biases into reader->floats, described by `source`. */
gpuserve_status gsv_read_linear(struct gsv_reader *reader, const struct gsv_weight *item,
                                struct gpuserve_linear_source *source, gpuserve_error *error);

/* Read tensor `i` of an item, 0 to 2 a weight, 3 to 5 a bias, into `to`. An absent one has no
 * elements. */
gpuserve_status gsv_read_tensor(struct gsv_reader *reader, const struct gsv_weight *item, size_t i,
                                float *to, gpuserve_error *error);

/* Read all of an item's weight 0 into reader->floats. */
gpuserve_status gsv_read_whole(struct gsv_reader *reader, const struct gsv_weight *item,
                               gpuserve_error *error);

#endif
