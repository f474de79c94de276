/*
 * normal_forms.h - the Unicode normalization forms NFD, NFC, NFKD and NFKC.
 */
#ifndef GSV_TEXT_NORMAL_FORMS_H
#define GSV_TEXT_NORMAL_FORMS_H

#include "lib/text/unicode/chars.h"

#include <stdbool.h>

/* Align the next character of a normalized text as `tokenizers` does. The characters of the old
 * text (at least one) are consumed in order, as `change` says (struct gsv_decomposed). */
static inline struct gsv_char gsv_normal_align(const struct gsv_chars *old, size_t *used,
                                               uint32_t c, int32_t change)
{
    size_t source = change > 0 ? (*used > 0 ? *used - 1 : 0) : *used;

    if (source >= old->n)
        source = old->n - 1;
    if (change <= 0)
        *used += 1 + (size_t)-change;
    return (struct gsv_char){ c, old->at[source].begin, old->at[source].end };
}

/* Normalize buffers->text. False when out of memory. */
bool gsv_normal_form(struct gsv_normal_buffers *buffers, bool compatible, bool compose);

#endif
