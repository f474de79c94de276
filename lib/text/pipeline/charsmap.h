/*
 * charsmap.h - SentencePiece's "precompiled_charsmap": maps strings to their replacements.
 *
 * A double-array trie of 32-bit units (darts-clone) maps the bytes of a string to an offset into a
 * table of NUL-terminated replacements. The input is untrusted: all reachable units are checked at
 * load time, so lookups need no checks. Immutable afterwards.
 */
#ifndef GSV_TEXT_CHARSMAP_H
#define GSV_TEXT_CHARSMAP_H

#include "lib/text/unicode/chars.h"

#include <gpuserve/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Maximum size of a replacement (NFKC needs 33 bytes); bounds the growth of texts. */
    GSV_CHARSMAP_MAX_STRING = 1024,
};

struct gsv_charsmap {
    uint32_t *units; /* [n_units] */
    size_t n_units;
    char *strings; /* [size] plus a final NUL */
    size_t size;
};

/* Read from base64, as in tokenizer.json; *charsmap is owned by the caller. */
gpuserve_status gsv_charsmap_read(struct gsv_charsmap **charsmap, const char *base64, size_t size,
                                  const char *name, gpuserve_error *error);
/* Read from bytes, as in SentencePiece files; *charsmap is owned by the caller. */
gpuserve_status gsv_charsmap_read_bytes(struct gsv_charsmap **charsmap, const unsigned char *bytes,
                                        size_t size, const char *name, gpuserve_error *error);
void gsv_charsmap_free(struct gsv_charsmap **charsmap); /* accepts NULL, sets NULL */

/* The replacement of the shortest prefix of the text in the map: borrowed, NUL-terminated UTF-8.
 * NULL if no prefix is in the map. */
const char *gsv_charsmap_find(const struct gsv_charsmap *charsmap, const char *text, size_t size);

size_t gsv_charsmap_bytes(const struct gsv_charsmap *charsmap);

/*
 * Extended grapheme clusters, and the charsmap normalizer that works on them.
 *
 * `tokenizers` looks up a whole cluster in the charsmap if it has less than 6 bytes, else each of
 * its characters. So only the borders of small clusters matter. Regional indicators have 4 bytes
 * each: no small cluster has a pair of them, and they are not paired here.
 */

/* The length in characters of the first cluster of at[0, n); n > 0. */
size_t gsv_grapheme_length(const struct gsv_char *at, size_t n);

/* Replace the strings of the map in buffers->text. False when out of memory. */
bool gsv_normal_charsmap(struct gsv_normal_buffers *buffers, const struct gsv_charsmap *map);

#endif
