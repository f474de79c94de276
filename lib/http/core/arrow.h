/*
 * arrow.h - embeddings as an Arrow IPC stream: a schema, record batches, the end of the stream.
 *
 * Columns: `index` (uint32) and `embedding` (a fixed-size list of float, halffloat, int8 or uint8),
 * without nulls. The stream can be read while it arrives; each part is a multiple of 8 bytes.
 */
#ifndef GSV_HTTP_ARROW_H
#define GSV_HTTP_ARROW_H

#include "lib/base/buffer.h"

#define GSV_ARROW_TYPE "application/vnd.apache.arrow.stream" /* registered at IANA */

enum gsv_arrow_element {
    GSV_ARROW_FLOAT32,
    GSV_ARROW_FLOAT16,
    GSV_ARROW_INT8,
    GSV_ARROW_UINT8,
};

/* Metadata: a name and its value, UTF-8. */
struct gsv_arrow_pair {
    const char *name, *value;
};

/* The start of a stream of vectors of `n_elements`. */
void gsv_arrow_put_schema(struct gsv_buffer *to, enum gsv_arrow_element element, size_t n_elements,
                          const struct gsv_arrow_pair *metadata, size_t n_metadata);

/* Appends a record batch of `n` rows with the indices from `first` on. Returns where the caller
 * writes the n * n_elements elements, little-endian, before it appends more; NULL: to->failed. */
void *gsv_arrow_put_batch(struct gsv_buffer *to, enum gsv_arrow_element element, size_t n_elements,
                          size_t first, size_t n, const struct gsv_arrow_pair *metadata,
                          size_t n_metadata);

void gsv_arrow_put_end(struct gsv_buffer *to);

/* The head of a message that does not follow: no reader takes the stream for complete, even where
 * the transport does not tell. */
void gsv_arrow_put_cut(struct gsv_buffer *to);

#endif
