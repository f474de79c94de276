/*
 * embedding.h - fields of an embedding request: number formats, several outputs, long texts.
 */
#ifndef GSV_HTTP_EMBEDDING_H
#define GSV_HTTP_EMBEDDING_H

#include "lib/http/inference/inputs.h"
#include "lib/http/protocol/exchange.h"

/*
 * Embeddings as float16, int8, uint8 or sign bits, for dialects that offer them.
 *
 * int8 and uint8 need a range for each dimension. The server computes it once per model, number of
 * dimensions and normalization, from the library's calibration texts; the first such request
 * computes these texts before its own.
 */

/* The precisions of a request, and their ranges. */
struct gsv_compact {
    uint32_t precisions; /* bit 1 << gpuserve_precision */
    const float *ranges; /* [2, columns]; NULL: no int8 and uint8 */
    gpuserve_job job;    /* private: what gsv_compact_start() starts after the calibration */
    struct gsv_inputs inputs;
    gsv_handler finish;
    bool (*start)(struct gsv_exchange *exchange);
    struct gsv_request_usage usage;
};

/* A precision by its name in requests: float, float16, int8, uint8, binary, ubinary. False:
 * unknown.
 */
bool gsv_precision_named(const char *name, uint32_t *precision);
const char *gsv_precision_name(uint32_t precision);

/* As gsv_call_start(), with compact->ranges set before `finish` runs. `compact` lives as long as
 * the exchange. */
bool gsv_compact_start(struct gsv_exchange *exchange, struct gsv_compact *compact,
                       const gpuserve_job *job, const struct gsv_inputs *inputs,
                       gsv_handler finish);

/* Sets compact->ranges for vectors of the form of `job`, then calls `start`, which is false after
 * gsv_refuse. `compact` lives as long as the exchange. */
bool gsv_compact_calibrate(struct gsv_exchange *exchange, struct gsv_compact *compact,
                           const gpuserve_job *job, bool (*start)(struct gsv_exchange *exchange));

/* Lets a job make its vectors in the precision, if the request wants one alone. */
void gsv_compact_job(const struct gsv_exchange *exchange, const struct gsv_compact *compact,
                     gpuserve_job *job);

/* Appends row i in a precision: a JSON list of numbers, or a base64 string of its bytes, which are
 * little-endian. */
void gsv_put_compact(struct gsv_exchange *exchange, const struct gsv_compact *compact, size_t i,
                     uint32_t precision, bool base64);

/*
 * The field `outputs` of a request: several outputs of each text from one pass.
 *
 *   {"outputs": ["dense", "sparse", "colbert", "labels"]}
 *
 * A request without the field has the dense output alone, in the form that its dialect always had.
 */

struct gsv_output_set {
    bool is_given;
    bool has_dense;
    gpuserve_output more[GSV_CALL_OUTPUTS]; /* tasks only; gsv_call_start() makes the rows */
    size_t first_vector;                    /* of a text's token vectors in late interaction */
    uint32_t *indices;                      /* [sparse_dim] scratch of a sparse row, or NULL */
    float *values;
};

/* Reads `outputs` into job->task and job->more, which points to `set`: it lives as long as the
 * exchange. Refuses a name that is unknown or that the held model does not have. Without the field
 * the job embeds, and the model must make embeddings. */
bool gsv_output_set_read(struct gsv_exchange *exchange, struct gsv_output_set *set,
                         gpuserve_job *job);

/* Refuses the fields of the dense output in a request without it; call it when they are read. */
bool gsv_output_set_form(struct gsv_exchange *exchange, const struct gsv_output_set *set,
                         gpuserve_job *job);

/* Counts the tokens of the inputs if an output has a row for each of them: sets inputs->offsets.
 * The job still tokenizes texts itself. */
bool gsv_output_set_count(struct gsv_exchange *exchange, const struct gsv_output_set *set,
                          const gpuserve_job *job, struct gsv_inputs *inputs);

/* Writes the outputs of input i other than the dense one, as members after the first one of an
 * object: ,"sparse":{"indices":[..],"values":[..]},"colbert":[[..]],"labels":[..], or with the
 * field `heads` ,"heads":{"NAME":[..]}. base64: each row of `colbert` is a string of its float32
 * bytes. */
void gsv_put_output_set(struct gsv_exchange *exchange, const struct gsv_output_set *set, size_t i,
                        bool base64);

/*
 * The field `chunking` of an embedding request (windows, late chunking) and Jina's
 * `late_chunking`.
 */

struct gsv_long {
    bool is_asked;  /* the request has one of the fields */
    bool is_joined; /* `late_chunking`: the inputs are the chunks of one text */
    const json_t *spans;
    gpuserve_long_options options;
    gpuserve_job
        how; /* private: fields of every job; the rest is for the start after calibration */
    struct gsv_inputs inputs;
    gsv_handler finish;
    const gpuserve_chunk *chunks; /* [n_chunks] of the exchange's long texts, for `finish` */
    size_t n_chunks;
};

/* Reads `chunking` or `late_chunking`; is_asked stays false without them. False after gsv_refuse.
 */
bool gsv_long_read(struct gsv_exchange *exchange, const json_t *object, struct gsv_long *wanted);

/* Starts the embedding of texts as `wanted` says, with the prompt and vector form of `job`.
 * `finish` runs with the vectors as rows of exchange->work: one for each text, or for each chunk.
 * `wanted` and `compact` live as long as the exchange. False after gsv_refuse. */
bool gsv_long_start(struct gsv_exchange *exchange, struct gsv_long *wanted,
                    struct gsv_compact *compact, const gpuserve_job *job,
                    const struct gsv_inputs *inputs, gsv_handler finish);

/* Appends the fields of a reply that tell the chunk of row i, or the windows of text i: each
 * begins with a comma. *at counts the chunks already written, from 0. */
void gsv_put_chunks(struct gsv_exchange *exchange, const struct gsv_long *wanted, size_t i,
                    size_t *at);

/*
 * Embeddings as JSON lines (`Accept: application/x-ndjson`), one for each text, or as an Arrow IPC
 * stream (`Accept: application/vnd.apache.arrow.stream`), computed and sent in blocks.
 */

struct gsv_row_stream {
    struct gsv_stream stream; /* first: exchange->stream points to it */
    bool is_arrow;
    /* Set by the dialect. JSON lines: write one line without its line feed: row i of the call, of
     * text `index`; and the last line, or NULL. Arrow: the element type. */
    void (*put_row)(struct gsv_exchange *exchange, size_t i, size_t index);
    gsv_handler put_end;
    uint32_t precision;
    /* Private. */
    const struct gsv_compact *compact;
    gpuserve_job job;
    struct gsv_inputs inputs;
    size_t at, block, columns; /* texts done, texts of a block */
    float *output;             /* [block, columns] */
    size_t *offsets;           /* [block + 1] */
};

/* Sets exchange->stream if the client asks for JSON lines or Arrow. `rows` lives as long as the
 * exchange. Before gsv_inputs_read(), which then accepts GSV_STREAM_INPUTS texts. */
void gsv_row_stream_read(struct gsv_exchange *exchange, struct gsv_row_stream *rows);
/* Its media type. */
const char *gsv_row_stream_type(const struct gsv_row_stream *rows);
/* Refuses the field `name`, which a streamed reply does not support. */
bool gsv_row_stream_refuse(struct gsv_exchange *exchange, const struct gsv_row_stream *rows,
                           const char *name);
/* Starts the reply. `compact`: as in gsv_compact_start(), or NULL. False after gsv_refuse. */
bool gsv_row_stream_start(struct gsv_exchange *exchange, struct gsv_row_stream *rows,
                          struct gsv_compact *compact, const gpuserve_job *job,
                          const struct gsv_inputs *inputs);

#endif
