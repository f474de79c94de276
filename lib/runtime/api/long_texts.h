/*
 * long_texts.h - long texts: their token ids, chunks and windows, and the block in computation.
 *
 *   long_texts.c    options, tokenization, the public calls
 *   long_chunks.c   chunks of late chunking: by tokens, sentences, spans
 *   long_windows.c  windows -> jobs of token ids -> sums -> vectors
 */
#ifndef GSV_RUNTIME_LONG_TEXTS_H
#define GSV_RUNTIME_LONG_TEXTS_H

#include <gpuserve/gpuserve.h>

#include <stdbool.h>

#define GSV_NO_CHUNK UINT32_MAX

/* The ids of a text: `before` (special tokens and prompt), the text's own, `after` (special). */
struct gsv_long_text {
    size_t first; /* index of its first id */
    size_t n_before, n_own, n_after;
    size_t n_windows;
    size_t capacity; /* own tokens of a window */
    size_t stride;   /* own tokens between the begins of two windows */
};

/* A window as ranges of a text's own tokens. The part that late chunking takes from it is
 * [taken_begin, taken_end). */
struct gsv_window {
    size_t begin, end;
    size_t taken_begin, taken_end;
};

/* The windows of one job: n windows from the next one on. */
struct gsv_long_block {
    size_t n;
    int32_t *ids;
    size_t *offsets; /* [n + 1] */
    float *output;
    size_t ids_capacity, offsets_capacity, output_capacity, output_floats;
};

struct gpuserve_long_texts {
    gpuserve_long_options options; /* prompts are owned copies; spans are not kept */
    char *prompt_name, *prompt;
    char fingerprint[40]; /* of the model that tokenized the texts */
    struct gsv_long_text *texts;
    size_t n_texts;
    int32_t *ids; /* [n_ids] */
    size_t n_ids, ids_capacity;
    uint32_t *chunk_of; /* LATE: [n_ids], the chunk of each id or GSV_NO_CHUNK; ascending */
    size_t chunk_of_capacity;
    gpuserve_chunk *chunks; /* [n_chunks] */
    size_t n_chunks, chunks_capacity;

    size_t dim, columns; /* of a computed row; of a vector */
    bool normalize;
    float *rows; /* [n_rows, dim]; in the end [n_rows, columns] */
    size_t n_rows;
    double *sum; /* [dim] of row `open` */
    double weight;
    size_t open;

    struct gsv_long_block block; /* n 0: no job to take */
    size_t text, window;         /* the next window to take */
    bool is_complete;
};

static inline bool gsv_is_late(const struct gpuserve_long_texts *lt)
{
    return lt->options.method == GPUSERVE_LONG_LATE;
}

/* A text while it is cut. Spans are of prompt and text together. */
struct gsv_long_cut {
    const char *text;
    size_t size;
    size_t index;
    const gpuserve_span *spans; /* of its own tokens */
    size_t prompt_bytes;
    size_t skip; /* leading ids that pooling leaves out */
};

/* Bytes of the text of own token i. */
static inline gpuserve_span gsv_long_span(const struct gsv_long_cut *cut, size_t i)
{
    const size_t prompt = cut->prompt_bytes;
    const gpuserve_span span = cut->spans[i];

    return (gpuserve_span){ .begin = span.begin > prompt ? (uint32_t)(span.begin - prompt) : 0,
                            .end = span.end > prompt ? (uint32_t)(span.end - prompt) : 0 };
}

/* long_chunks.c: append the chunks of a text and set chunk_of of its ids. */
gpuserve_status gsv_long_cut_chunks(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                    gpuserve_error *error);
/* Append a chunk of own tokens [begin, end). */
gpuserve_status gsv_long_add_chunk(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                   gpuserve_span span, size_t n_tokens, gpuserve_error *error);

/* long_windows.c: set the windows of a text, and append them as chunks unless late. */
gpuserve_status gsv_long_cut_windows(struct gpuserve_long_texts *lt, const struct gsv_long_cut *cut,
                                     gpuserve_error *error);
/* Allocate the rows, after all texts are cut. */
gpuserve_status gsv_long_make_rows(struct gpuserve_long_texts *lt, gpuserve_error *error);

#endif
