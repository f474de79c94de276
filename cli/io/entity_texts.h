/*
 * entity_texts.h - functions of both entity commands: chunks of texts, JSON strings, positions.
 *
 *   text -> add() -> ... chunk is full, or reading would block -> write() -> one line per text
 *
 * Memory is bounded by the chunk, for input of any length. Single-threaded.
 */
#ifndef CLI_ENTITY_TEXTS_H
#define CLI_ENTITY_TEXTS_H

#include "cli/io/output.h"

#include <gpuserve/gpuserve.h>

enum { CLI_CHUNK_TEXTS = 64 };

struct cli_text_chunk {
    /* Set by the caller. */
    int (*add)(void *user, const struct cli_record *record); /* before it is stored */
    int (*write)(void *user);                                /* results of the texts */
    void *user;
    /* For these functions. */
    bool is_full; /* add() sets it: the chunk ends after this text */
    size_t n;     /* texts */
    char *bytes;  /* of all texts; text i is [text_at[i], text_at[i + 1]) */
    size_t text_at[CLI_CHUNK_TEXTS + 1];
    size_t n_texts; /* of the chunks before */
    /* private */
    size_t capacity;
};

/* Reads all texts and writes their results. Texts before an invalid record are written too. Returns
 * CLI_OK or CLI_FAILED. The caller frees `bytes`. */
int cli_chunks_run(struct cli_text_chunk *chunk, struct cli_input *input, struct cli_output *output,
                   const struct cli_args *args);
/* Prints a failure of the chunk's texts; returns CLI_FAILED. */
int cli_chunk_fail(const struct cli_text_chunk *chunk, const gpuserve_error *error);
/* Sleeps for the delay that GPUSERVE_E_BUSY asks for before a retry. */
void cli_wait_busy(const gpuserve_error *error);

/* Splits "person, city" at the commas, without blanks around a label. The caller frees *labels and
 * the bytes they point to, the result. */
char *cli_split_labels(const char *given, const char ***labels, size_t *n_labels);

/* Writes a string as JSON. */
void cli_write_text(FILE *out, const char *text, size_t size);

/* A position in a text, in both units; zero at its start. */
struct cli_position {
    size_t byte, n_characters;
};

/* Moves the position to byte `end`; returns the number of characters before it. */
size_t cli_characters_to(const char *text, size_t end, struct cli_position *position);

#endif
