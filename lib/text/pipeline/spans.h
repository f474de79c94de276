/*
 * spans.h - spans of the original text: of lowercased texts, and trimmed ones.
 */
#ifndef GSV_TEXT_SPANS_H
#define GSV_TEXT_SPANS_H

#include "lib/text/models/vocab.h"

#include <gpuserve/gpuserve.h>
#include <stdbool.h>

/*
 * Lowercases a whole text before tokenization, with a map back to the original.
 *
 * For models with do_lower_case in the configuration of sentence-transformers.
 */

/* The lowercased text and the source of its bytes. Initialise to zero; free with
 * gsv_lowered_reset(). */
struct gsv_lowered {
    char *bytes;          /* [n] */
    gpuserve_span *spans; /* [n] source span of each byte: its character in the original text */
    size_t n;
    size_t bytes_capacity, spans_capacity;
};

/* Lowercase UTF-8 text as Python's str.lower() does. False when out of memory. */
bool gsv_lower_text(struct gsv_lowered *lowered, const char *text, size_t size);
void gsv_lowered_reset(struct gsv_lowered *lowered);

/* Map a span of the lowercased text to the original text. */
gpuserve_span gsv_lowered_span(const struct gsv_lowered *lowered, gpuserve_span span);

/* "trim_offsets": excludes the white space at both ends of a token from its span. */

struct gsv_sink;
struct gsv_tokenizer;

/* The number of white-space characters at each end of a token; U+0120, which stands for a space,
 * counts. */
struct gsv_trim {
    uint32_t leading, trailing;
};

/* Count them for a text. */
struct gsv_trim gsv_trim_of(const char *text, size_t size);
/* Count them for all tokens of the model. *trims [vocab->n_ids] is owned by the caller; NULL if no
 * token has any. */
gpuserve_status gsv_trims_make(struct gsv_trim **trims, const struct gsv_vocab *vocab,
                               const char *name, gpuserve_error *error);
/* The trimmed span of a token about to be added to the sink. */
gpuserve_span gsv_trim_span(const struct gsv_sink *sink, struct gsv_trim trim, gpuserve_span span);
/* The span of the first token after left truncation: undoes the trimming of its prefix space. */
gpuserve_span gsv_trim_first(const struct gsv_tokenizer *tokenizer, const char *text, int32_t id,
                             gpuserve_span span);

#endif
