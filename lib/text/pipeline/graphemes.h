/*
 * graphemes.h - extended grapheme clusters, and the charsmap normalizer that works on them.
 *
 * `tokenizers` looks up a whole cluster in the charsmap if it has less than 6 bytes, else each of
 * its characters. So only the borders of small clusters matter. Regional indicators have 4 bytes
 * each: no small cluster has a pair of them, and they are not paired here.
 */
#ifndef GSV_TEXT_GRAPHEMES_H
#define GSV_TEXT_GRAPHEMES_H

#include "lib/text/unicode/chars.h"
#include "lib/text/pipeline/charsmap.h"

/* The length in characters of the first cluster of at[0, n); n > 0. */
size_t gsv_grapheme_length(const struct gsv_char *at, size_t n);

/* Replace the strings of the map in buffers->text. False when out of memory. */
bool gsv_normal_charsmap(struct gsv_normal_buffers *buffers, const struct gsv_charsmap *map);

#endif
