/*
 * lowercase.h - a whole text in lowercase, before a tokenizer sees it.
 */
#ifndef GSV_TEXT_LOWERCASE_H
#define GSV_TEXT_LOWERCASE_H

#include <gpuserve/gpuserve.h>

#include <stdbool.h>

/* The text and where its bytes come from. Start with all zero; end with gsv_lowered_reset. */
struct gsv_lowered {
    char *bytes;          /* [n] */
    gpuserve_span *spans; /* [n] the character of the text that each byte stands for */
    size_t n;
    size_t bytes_capacity, spans_capacity;
};

/* As Python's str.lower() does it. `text` is UTF-8. False when out of memory. */
bool gsv_lower_text(struct gsv_lowered *lowered, const char *text, size_t size);
void gsv_lowered_reset(struct gsv_lowered *lowered);

/* A span of the lowered text to one of the text. */
gpuserve_span gsv_lowered_span(const struct gsv_lowered *lowered, gpuserve_span span);

#endif
