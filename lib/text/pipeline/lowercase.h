/*
 * lowercase.h - lowercases a whole text before tokenization, with a map back to the original.
 *
 * For models with do_lower_case in the configuration of sentence-transformers.
 */
#ifndef GSV_TEXT_LOWERCASE_H
#define GSV_TEXT_LOWERCASE_H

#include <gpuserve/gpuserve.h>

#include <stdbool.h>

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

#endif
