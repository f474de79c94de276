/*
 * vocab.h - vocabulary: maps token text to id and id to text.
 *
 * Order of use: one gsv_vocab_read_*(), or gsv_vocab_reserve(), any number of gsv_vocab_add*() and
 * gsv_vocab_finish(); then gsv_vocab_append() for added tokens, and the lookups. Lookups do not
 * change the vocabulary and are thread-safe.
 */
#ifndef GSV_TEXT_VOCAB_H
#define GSV_TEXT_VOCAB_H

#include "lib/base/json_reader.h"

enum {
    GSV_VOCAB_MAX_ID = (1 << 24) - 1, /* bounds the table of ids: a file cannot make it 8 GB */
    GSV_VOCAB_MAX_TOKEN_BYTES = 1 << 16,
};

struct gsv_vocab_token {
    uint32_t at, size; /* range in `text` */
    int32_t id;
};

struct gsv_vocab {
    char *text; /* tokens, concatenated without separators */
    size_t text_size, text_capacity;
    struct gsv_vocab_token *tokens; /* [n] in the order of insertion */
    size_t n, capacity;
    size_t n_model;   /* the first n_model tokens belong to the model; later ones were appended */
    uint32_t *hashed; /* [n_hashed] index into tokens plus one; open addressing */
    size_t n_hashed;  /* a power of two */
    uint32_t *by_id;  /* [n_ids] index into tokens plus one; 0: no such id */
    size_t n_ids;
};

/* Read the tokens {"text": id, ...} of a JSON object. */
gpuserve_status gsv_vocab_read_json(struct gsv_vocab *vocab, struct gsv_json_slice object,
                                    const char *name, gpuserve_error *error);
/* Read one token a line; the id is the line number from 0. Trailing white space is dropped. A
 * duplicate text gets the later id. */
gpuserve_status gsv_vocab_read_lines(struct gsv_vocab *vocab, const char *text, size_t size,
                                     const char *name, gpuserve_error *error);
/* Build a vocabulary with ids from 0, one text at a time; reserve capacity for `bytes` of text
 * first. A duplicate text keeps both ids, and lookups return the later one. `text` is the JSON
 * string without its quotes. */
gpuserve_status gsv_vocab_reserve(struct gsv_vocab *vocab, size_t bytes, const char *name,
                                  gpuserve_error *error);
gpuserve_status gsv_vocab_add(struct gsv_vocab *vocab, const struct gsv_json_reader *reader,
                              struct gsv_json_slice text, gpuserve_error *error);
/* The same with plain UTF-8 text. */
gpuserve_status gsv_vocab_add_text(struct gsv_vocab *vocab, const char *text, size_t size,
                                   const char *name, gpuserve_error *error);
gpuserve_status gsv_vocab_finish(struct gsv_vocab *vocab, const char *name, gpuserve_error *error);
/* Append one added token, after the vocabulary has been read. */
gpuserve_status gsv_vocab_append(struct gsv_vocab *vocab, const char *text, size_t size,
                                 uint32_t id, const char *name, gpuserve_error *error);
void gsv_vocab_reset(struct gsv_vocab *vocab);

/* The id of a text; -1: no such token. */
int32_t gsv_vocab_id(const struct gsv_vocab *vocab, const char *text, size_t size);
/* The same among the model's own tokens. */
int32_t gsv_vocab_model_id(const struct gsv_vocab *vocab, const char *text, size_t size);
/* The text of an id, borrowed, not NUL-terminated; NULL if no token has the id. */
const char *gsv_vocab_text(const struct gsv_vocab *vocab, int32_t id, size_t *size);

size_t gsv_vocab_bytes(const struct gsv_vocab *vocab);

#endif
