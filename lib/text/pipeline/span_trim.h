/*
 * span_trim.h - "trim_offsets": excludes the white space at both ends of a token from its span.
 */
#ifndef GSV_TEXT_SPAN_TRIM_H
#define GSV_TEXT_SPAN_TRIM_H

#include "lib/text/models/vocab.h"

#include <gpuserve/gpuserve.h>

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
