/*
 * span_trim.h - spans without the white space at the ends of their tokens ("trim_offsets").
 */
#ifndef GSV_TEXT_SPAN_TRIM_H
#define GSV_TEXT_SPAN_TRIM_H

#include "lib/text/models/vocab.h"

#include <gpuserve/gpuserve.h>

struct gsv_sink;
struct gsv_tokenizer;

/* Characters of a token that are white space, or stand for a space as U+0120 does. */
struct gsv_trim {
    uint32_t leading, trailing;
};

/* Of a text. */
struct gsv_trim gsv_trim_of(const char *text, size_t size);
/* Of all tokens of the model: *trims [vocab->n_ids] is owned, NULL when no token has any. */
gpuserve_status gsv_trims_make(struct gsv_trim **trims, const struct gsv_vocab *vocab,
                               const char *name, gpuserve_error *error);
/* The span of a token that is about to be put into the sink. */
gpuserve_span gsv_trim_span(const struct gsv_sink *sink, struct gsv_trim trim, gpuserve_span span);
/* The same of a token that is the first of `text` only because the left end was cut. */
gpuserve_span gsv_trim_first(const struct gsv_tokenizer *tokenizer, const char *text, int32_t id,
                             gpuserve_span span);

#endif
