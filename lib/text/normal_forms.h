/*
 * normal_forms.h - NFD, NFC, NFKD, NFKC.
 */
#ifndef GSV_TEXT_NORMAL_FORMS_H
#define GSV_TEXT_NORMAL_FORMS_H

#include "lib/text/chars.h"

#include <stdbool.h>

/* Bring buffers->text into the form. False when out of memory. */
bool gsv_normal_form(struct gsv_normal_buffers *buffers, bool compatible, bool compose);

#endif
