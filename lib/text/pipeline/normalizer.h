/*
 * normalizer.h - the "normalizer" of tokenizer.json: a chain of steps over characters.
 *
 * Which bytes of the original a character stands for follows `tokenizers` in every corner, also
 * where marks change places, since offsets must be equal.
 */
#ifndef GSV_TEXT_NORMALIZER_H
#define GSV_TEXT_NORMALIZER_H

#include "lib/base/json_tree.h"
#include "lib/text/unicode/chars.h"
#include "lib/text/pipeline/charsmap.h"

#include <gpuserve/types.h>

#include <stdbool.h>

enum gsv_normal_kind {
    GSV_NORMAL_CLEAN,       /* drop control characters, all white space becomes ' ' */
    GSV_NORMAL_CHINESE,     /* spaces around Chinese characters */
    GSV_NORMAL_DECOMPOSE,   /* NFD */
    GSV_NORMAL_DECOMPOSE_K, /* NFKD */
    GSV_NORMAL_COMPOSE,     /* NFC */
    GSV_NORMAL_COMPOSE_K,   /* NFKC */
    GSV_NORMAL_DROP_NONSPACING,
    GSV_NORMAL_DROP_COMBINING,
    GSV_NORMAL_LOWERCASE,
    GSV_NORMAL_STRIP,       /* white space at either or both ends */
    GSV_NORMAL_REPLACE,     /* a text by another */
    GSV_NORMAL_REPLACE_RUN, /* a text and repetitions of its last character by another */
    GSV_NORMAL_PREPEND,     /* a text before one that is not empty */
    GSV_NORMAL_NMT, /* SentencePiece's: drop some control characters, white space becomes ' ' */
    GSV_NORMAL_CHARSMAP, /* SentencePiece's map of texts */
};

struct gsv_normal_step {
    enum gsv_normal_kind kind;
    bool left, right;         /* of STRIP */
    struct gsv_chars pattern; /* of REPLACE and REPLACE_RUN; never empty */
    struct gsv_chars content; /* of these and PREPEND */
    struct gsv_charsmap *charsmap;
};

enum { GSV_NORMAL_MAX_STEPS = 64 };

struct gsv_normalizer {
    struct gsv_normal_step *steps; /* [n] */
    size_t n, capacity;
    /* All steps are those of one BertNormalizer (or a lowercasing, or none), in its order: then
     * the text can be read in one pass, see bert_fast_path.c. */
    bool simple;
    bool clean, chinese, strip_accents, lowercase; /* which of them, when simple */
};

/* `json` may be null: no steps. */
gpuserve_status gsv_normalizer_parse(struct gsv_normalizer *normalizer,
                                     const struct gsv_json_value *json, const char *name,
                                     gpuserve_error *error);
/* As if from {"type": "BertNormalizer", ...}. */
gpuserve_status gsv_normalizer_bert(struct gsv_normalizer *normalizer, bool clean, bool chinese,
                                    bool strip_accents, bool lowercase, gpuserve_error *error);
/* That of SentencePiece's own files: their charsmap if there is one, white space at the end
 * dropped, runs of spaces as one U+2581. */
gpuserve_status gsv_normalizer_spm(struct gsv_normalizer *normalizer, const unsigned char *charsmap,
                                   size_t size, const char *name, gpuserve_error *error);
void gsv_normalizer_reset(struct gsv_normalizer *normalizer);
size_t gsv_normalizer_bytes(const struct gsv_normalizer *normalizer);

/* Normalize text[begin, end) into buffers->text. False when out of memory. */
bool gsv_normalizer_apply(const struct gsv_normalizer *normalizer, const char *text, size_t begin,
                          size_t end, struct gsv_normal_buffers *buffers);
void gsv_normal_buffers_reset(struct gsv_normal_buffers *buffers);

#endif
