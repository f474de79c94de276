/*
 * embed.h - `gpuserve embed` with --chunking and with --outputs, and `similarity` by MaxSim.
 */
#ifndef CLI_EMBED_H
#define CLI_EMBED_H

#include "cli/io/output.h"
#include "cli/io/pipeline.h"
#include "cli/options/options.h"

/*
 * `gpuserve embed --chunking`: texts over the token limit, whole.
 */

/* Texts of one call of the library, read from `input`. */
struct cli_long {
    gpuserve_model *model;
    struct cli_input *input;
    const struct cli_args *args;
    int (*sink)(void *user, const struct cli_chunk *chunk); /* receives the vectors as rows */
    void *user;
    size_t n_vectors; /* result */
    /* private to embed_long.c */
    gpuserve_long_texts *texts;
    const gpuserve_chunk *chunks; /* [n_chunks] of `texts` */
    size_t n_chunks, at;          /* at: the first window that no head has written */
    size_t first;                 /* index of the first of these texts in the input */
    size_t n, n_bytes, n_spans;
    char *bytes; /* the texts, concatenated */
    const char **pointers;
    size_t *sizes, *span_offsets; /* [n]; [n + 1] */
    gpuserve_span *spans;
    size_t bytes_capacity, pointers_capacity, sizes_capacity, offsets_capacity, spans_capacity;
};

/* CLI_USAGE if options of --chunking are without it, or with others that exclude it. */
int cli_long_check(const struct cli_args *args);

/* Embeds the input. */
int cli_long_run(struct cli_long *l);

/* Writes the begin of the JSON object of row i, up to the comma before its vector. */
void cli_long_head(struct cli_long *l, FILE *out, size_t i);

/*
 * `gpuserve embed --outputs`.
 */

/* Runs `embed` with the outputs of --outputs; the exit status. */
int cli_embed_outputs(const struct cli_args *args);

/*
 * `gpuserve similarity` by MaxSim, of models whose output is token vectors.
 */

/* Each text as a query with each as a document, a line for each query; or the pairs of the input.
 */
int cli_late_similarity(struct cli_output *output, gpuserve_model *model, struct cli_input *input,
                        const struct cli_args *args);

#endif
