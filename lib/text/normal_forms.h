/*
 * normal_forms.h - NFD, NFC, NFKD, NFKC.
 */
#ifndef GSV_TEXT_NORMAL_FORMS_H
#define GSV_TEXT_NORMAL_FORMS_H

#include "lib/text/chars.h"

#include <stdbool.h>

/* buffers->text becomes the n characters of buffers->decomposed, as `tokenizers` aligns what a
 * normalizer makes: characters of the old text are used up in their order, by what `change` says.
 * False when out of memory. */
bool gsv_normal_transform(struct gsv_normal_buffers *buffers, size_t n);

/* Bring buffers->text into the form. False when out of memory. */
bool gsv_normal_form(struct gsv_normal_buffers *buffers, bool compatible, bool compose);

#endif
