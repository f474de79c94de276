/*
 * tensor_reader.h - tensors from their files as float32, checked and hashed while they pass.
 *
 * A tensor is read in pieces that stay in the cache from disk to packed weights; each piece has
 * its own hash, so any thread may read any piece.
 */
#ifndef GSV_MODEL_TENSOR_READER_H
#define GSV_MODEL_TENSOR_READER_H

#include "lib/model/spec.h"

#include <stdatomic.h>

#define GSV_PIECE_ELEMENTS ((size_t)1 << 18) /* 1 MiB of float32 */

/* The hashes of all pieces of all tensors of a spec, in the items' order. */
struct gsv_hashes {
    struct gsv_hash {
        uint64_t high, low;
    } * pieces; /* XXH3-128 */
    size_t n_pieces;
    size_t *first; /* [n_items * 6] a tensor's first piece: weights of 3 parts, then biases */
};

gpuserve_status gsv_hashes_init(struct gsv_hashes *hashes, const struct gsv_spec *spec,
                                gpuserve_error *error);
void gsv_hashes_reset(struct gsv_hashes *hashes);

/* One digest of everything: see gsv_net_digest(). */
void gsv_hashes_digest(const struct gsv_hashes *hashes, const struct gsv_spec *spec,
                       uint64_t digest[2]);

/* What all threads that read a spec have read. */
struct gsv_reading {
    atomic_uint_fast64_t bytes;
    int32_t (*progress)(void *user, uint64_t bytes); /* see gsv_net_options; may be NULL */
    void *progress_user;
};

/* What one thread reads with. */
struct gsv_reader {
    const struct gsv_spec *spec;
    struct gsv_hashes *hashes;   /* each piece is written by the one thread that reads it */
    struct gsv_reading *reading; /* may be NULL */
    bool tells;                  /* it is the thread that tells the progress */
    unsigned char *raw;          /* bytes of one piece as the file holds it */
    float *floats;               /* [capacity] for the caller */
    size_t capacity;
};

/* Buffers for the largest single read that the spec's items need. */
gpuserve_status gsv_reader_init(struct gsv_reader *reader, const struct gsv_spec *spec,
                                struct gsv_hashes *hashes, gpuserve_error *error);
void gsv_reader_reset(struct gsv_reader *reader);

size_t gsv_piece_count(const struct gsv_tensor *tensor);

/* Piece `piece` of an item's weight 0 to `to`; *n receives its elements. */
gpuserve_status gsv_read_piece(struct gsv_reader *reader, const struct gsv_weight *item,
                               size_t piece, float *to, size_t *n, gpuserve_error *error);

/* A linear's stacked weights and biases to reader->floats, described by `source`. */
gpuserve_status gsv_read_linear(struct gsv_reader *reader, const struct gsv_weight *item,
                                struct gpuserve_linear_source *source, gpuserve_error *error);

/* All of an item's weight 0 to reader->floats. */
gpuserve_status gsv_read_whole(struct gsv_reader *reader, const struct gsv_weight *item,
                               gpuserve_error *error);

#endif
