/*
 * pairs.h - similarities of text pairs as a stream, for `gpuserve similarity --pairs` and `eval`.
 */
#ifndef CLI_PAIRS_H
#define CLI_PAIRS_H

#include "cli/io/output.h"
#include "cli/io/pipeline.h"

struct cli_pairs {
    /* Set by the caller. */
    struct cli_input *input;                                  /* of records with a second text */
    int (*read)(void *user, const struct cli_record *record); /* of each pair; may be NULL */
    int (*write)(void *user, float similarity);               /* in the order of the input */
    int (*end_chunk)(void *user);                             /* may be NULL */
    int (*convert)(void *user, float *rows, size_t n);        /* of vectors [n, dim]; may be NULL */
    uint32_t normalize; /* gpuserve_normalize of the vectors before convert() */
    void *user;
    /* private to pairs.c */
    struct cli_record record;
    struct cli_progress progress;
    size_t dim;
    bool second_is_next, have_first;
    float *first; /* [dim] vector of the first text of a pair */
};

/* Embeds the pairs and writes the dot product of each, with GPUSERVE_NORMALIZE_YES the cosine
 * similarity; CLI_OK or CLI_FAILED. */
int cli_pairs_run(struct cli_pairs *pairs, gpuserve_model *model, const struct cli_args *args);

#endif
