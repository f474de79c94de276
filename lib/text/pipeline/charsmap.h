/*
 * charsmap.h - SentencePiece's "precompiled_charsmap": texts and what each becomes.
 *
 * A double array of 32-bit units (darts-clone's) leads from a text's bytes to an offset into
 * strings, which end with NUL. It comes from a stranger's file: every unit that can be reached
 * from another was checked when it was read, so that looking up needs no check.
 */
#ifndef GSV_TEXT_CHARSMAP_H
#define GSV_TEXT_CHARSMAP_H

#include <gpuserve/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* The longest that a text becomes (NFKC: 33 bytes), so that no text grows without bound. */
    GSV_CHARSMAP_MAX_STRING = 1024,
};

struct gsv_charsmap {
    uint32_t *units; /* [n_units] */
    size_t n_units;
    char *strings; /* [size] and a NUL */
    size_t size;
};

/* From base64, as tokenizer.json has it; owned. */
gpuserve_status gsv_charsmap_read(struct gsv_charsmap **charsmap, const char *base64, size_t size,
                                  const char *name, gpuserve_error *error);
/* From its bytes, as SentencePiece's own files have it; owned. */
gpuserve_status gsv_charsmap_read_bytes(struct gsv_charsmap **charsmap, const unsigned char *bytes,
                                        size_t size, const char *name, gpuserve_error *error);
void gsv_charsmap_free(struct gsv_charsmap **charsmap); /* accepts NULL, leaves NULL */

/* What the shortest known beginning of the text becomes, lent, NUL-terminated UTF-8; NULL when no
 * beginning is known. */
const char *gsv_charsmap_find(const struct gsv_charsmap *charsmap, const char *text, size_t size);

size_t gsv_charsmap_bytes(const struct gsv_charsmap *charsmap);

#endif
