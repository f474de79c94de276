/*
 * vocab.h - the tokens of a model: text to id and id to text.
 *
 * Order of use: one that reads, or gsv_vocab_reserve, any gsv_vocab_add and gsv_vocab_finish; then
 * the look-ups.
 */
#ifndef GSV_TEXT_VOCAB_H
#define GSV_TEXT_VOCAB_H

#include "lib/base/json_reader.h"

enum {
    GSV_VOCAB_MAX_ID = (1 << 24) - 1, /* a table of ids is allocated: no file makes it 8 GB */
    GSV_VOCAB_MAX_TOKEN_BYTES = 1 << 16,
};

struct gsv_vocab_token {
    uint32_t at, size; /* in `text` */
    int32_t id;
};

struct gsv_vocab {
    char *text; /* tokens end to end */
    size_t text_size, text_capacity;
    struct gsv_vocab_token *tokens; /* [n] in the order they were added */
    size_t n, capacity;
    size_t n_model;   /* the first of them, which the model itself knows; others were appended */
    uint32_t *hashed; /* [n_hashed] index into tokens, plus one; open addressing */
    size_t n_hashed;  /* a power of two */
    uint32_t *by_id;  /* [n_ids] index into tokens, plus one; 0: no such id */
    size_t n_ids;
};

/* The tokens {"text": id, ...} of a JSON object. */
gpuserve_status gsv_vocab_read_json(struct gsv_vocab *vocab, struct gsv_json_slice object,
                                    const char *name, gpuserve_error *error);
/* One token a line, its id the line's number from 0; white space at the end is no part of it. A
 * text that comes twice has the later id. */
gpuserve_status gsv_vocab_read_lines(struct gsv_vocab *vocab, const char *text, size_t size,
                                     const char *name, gpuserve_error *error);
/* A vocabulary whose ids count up from 0, a text at a time, in room for so many bytes more. A text
 * that comes twice keeps both ids; the later one is found. `text` is what stands between quotes. */
gpuserve_status gsv_vocab_reserve(struct gsv_vocab *vocab, size_t bytes, const char *name,
                                  gpuserve_error *error);
gpuserve_status gsv_vocab_add(struct gsv_vocab *vocab, const struct gsv_json_reader *reader,
                              struct gsv_json_slice text, gpuserve_error *error);
/* The same of a text that is UTF-8. */
gpuserve_status gsv_vocab_add_text(struct gsv_vocab *vocab, const char *text, size_t size,
                                   const char *name, gpuserve_error *error);
gpuserve_status gsv_vocab_finish(struct gsv_vocab *vocab, const char *name, gpuserve_error *error);
/* One more token (an added one), once the vocabulary has been read. */
gpuserve_status gsv_vocab_append(struct gsv_vocab *vocab, const char *text, size_t size,
                                 uint32_t id, const char *name, gpuserve_error *error);
void gsv_vocab_reset(struct gsv_vocab *vocab);

/* -1: no such token. */
int32_t gsv_vocab_id(const struct gsv_vocab *vocab, const char *text, size_t size);
/* The same among the tokens that the model itself knows. */
int32_t gsv_vocab_model_id(const struct gsv_vocab *vocab, const char *text, size_t size);
/* The text of an id, lent, not NUL-terminated; NULL when no token has it. */
const char *gsv_vocab_text(const struct gsv_vocab *vocab, int32_t id, size_t *size);

size_t gsv_vocab_bytes(const struct gsv_vocab *vocab);

#endif
