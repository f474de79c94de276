/*
 * graphemes.h - extended grapheme clusters, and the normalizer that goes by them.
 *
 * `tokenizers` looks a whole cluster up in a charsmap when it has less than 6 bytes, else its
 * characters one by one. So only the bounds of such small clusters matter here. Regional
 * indicators, of 4 bytes each, are in none and are not paired.
 */
#ifndef GSV_TEXT_GRAPHEMES_H
#define GSV_TEXT_GRAPHEMES_H

#include "lib/text/unicode/chars.h"
#include "lib/text/pipeline/charsmap.h"

/* The characters of the cluster that at[0, n), of 1 or more, begins with. */
size_t gsv_grapheme_length(const struct gsv_char *at, size_t n);

/* Replace what the map knows in buffers->text. False when out of memory. */
bool gsv_normal_charsmap(struct gsv_normal_buffers *buffers, const struct gsv_charsmap *map);

#endif
