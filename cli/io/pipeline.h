/*
 * pipeline.h - runs texts through a model in chunks, with several chunks in flight.
 *
 *   next() -> chunk being filled -> gpuserve_submit() -> ... -> gpuserve_wait() on the oldest ->
 * sink()
 *
 * Memory is bounded by the number of chunks, for input of any length. The sink receives the chunks
 * in input order. If the next text is not available yet (a pipe), the pipeline submits the partial
 * chunk and finishes all chunks in flight before it blocks. So another program can exchange single
 * lines with this one.
 *
 * Threading: next() and sink() run on the calling thread.
 */
#ifndef CLI_PIPELINE_H
#define CLI_PIPELINE_H

#include "cli/io/input.h"

#define CLI_MORE_OUTPUTS 4 /* of a job, in addition to its own */

struct cli_chunk {
    size_t first; /* index of its first text in the input, from 0 */
    size_t n;
    const char **texts; /* [n] */
    size_t *sizes;
    float *rows; /* [n, row_floats], or rows by token at token_offsets; bytes if pump->job has a
                    precision */
    float *more[CLI_MORE_OUTPUTS]; /* rows of job.more */
    size_t *token_offsets;         /* [n + 1] with pump->by_token: first token of each text */
    gpuserve_item *items;
    double share; /* fraction of the input up to its last text, 0 to 1; negative: unknown */
    /* private to pipeline.c */
    const char **seconds; /* second texts of pairs */
    size_t *second_sizes;
    char *bytes; /* all texts concatenated; `texts` points into it after submission */
    size_t n_bytes, bytes_capacity;
    gpuserve_request *request;
};

struct cli_pump {
    gpuserve_model *model;
    gpuserve_job job;  /* common fields of all chunks' jobs; of job.more only the tasks are read */
    bool by_token;     /* an output has a row for each token */
    bool pairs;        /* records have a second text */
    size_t row_floats; /* of a text: its row, or the rows of the most tokens */
    size_t more_floats[CLI_MORE_OUTPUTS];
    size_t chunk_texts; /* 0: the default */
    const char *name;   /* name of the input for messages; may be NULL */
    int (*next)(void *source, struct cli_record *record); /* 1, 0, -1 like cli_input_next() */
    bool (*would_wait)(const void *source);               /* may be NULL */
    double (*share)(const void *source); /* fraction of the input returned by next(); may be NULL */
    void *source;
    int (*sink)(void *user, const struct cli_chunk *chunk); /* CLI_OK or CLI_FAILED */
    void *user;
    /* result */
    size_t n_texts, n_tokens, n_truncated;
};

int cli_pump_run(struct cli_pump *pump);

/* Sets the callbacks to read from `input`. */
void cli_pump_from_input(struct cli_pump *pump, struct cli_input *input);

/* After a run: prints the number of truncated texts, unless --quiet. */
void cli_pump_remarks(const struct cli_pump *pump, const struct cli_args *args);

#endif
