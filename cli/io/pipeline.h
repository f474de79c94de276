/*
 * pipeline.h - texts through a model, a chunk at a time, several chunks in flight.
 *
 *   next() -> chunk being filled -> submitted -> ... -> oldest one waited for -> sink()
 *
 * Memory is bounded by the chunks whatever the input's length; the sink sees chunks in the order of
 * the input. When the next text is not there yet (a pipe), what there is is computed and handed on
 * first, so that another program can talk to this one line by line.
 */
#ifndef CLI_PIPELINE_H
#define CLI_PIPELINE_H

#include "cli/io/input.h"

struct cli_chunk {
    size_t first; /* number of its first text in the input, from 0 */
    size_t n;
    const char **texts; /* [n] */
    size_t *sizes;
    float *rows; /* [n, row_floats] */
    gpuserve_item *items;
    double share; /* of the input, up to the end of its last text: 0 to 1; below 0: not known */
    /* the pump's own */
    const char **seconds; /* of pairs */
    size_t *second_sizes;
    char *bytes; /* all texts end to end; texts point here when the chunk is submitted */
    size_t n_bytes, bytes_capacity;
    gpuserve_request *request;
};

struct cli_pump {
    gpuserve_model *model;
    gpuserve_job job; /* what every chunk's job has in common */
    bool pairs;       /* records have a second text */
    size_t row_floats;
    size_t chunk_texts; /* 0: the default */
    const char *name;   /* of the input, for messages; may be NULL */
    int (*next)(void *source, struct cli_record *record); /* 1, 0, -1 as cli_input_next() */
    bool (*would_wait)(const void *source);               /* may be NULL */
    double (*share)(const void *source); /* of what next() has returned; may be NULL */
    void *source;
    int (*sink)(void *user, const struct cli_chunk *chunk); /* CLI_OK or CLI_FAILED */
    void *user;
    /* result */
    size_t n_texts, n_tokens, n_truncated;
};

int cli_pump_run(struct cli_pump *pump);

/* A pump that reads `input`. */
void cli_pump_from_input(struct cli_pump *pump, struct cli_input *input);

/* After a run, unless quiet: how many texts were cut. */
void cli_pump_remarks(const struct cli_pump *pump, const struct cli_args *args);

#endif
