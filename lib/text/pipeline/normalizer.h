/*
 * normalizer.h - the "normalizer" of tokenizer.json: a list of steps over the characters.
 *
 * Each character carries the byte range of the original text that it stands for. These ranges equal
 * those of `tokenizers` in every case, also where marks are reordered, because offsets must match.
 *
 * Threading: immutable once parsed; the text buffers belong to the caller.
 */
#ifndef GSV_TEXT_NORMALIZER_H
#define GSV_TEXT_NORMALIZER_H

#include "lib/base/json_tree.h"
#include "lib/text/unicode/chars.h"
#include "lib/text/pipeline/charsmap.h"

#include <gpuserve/types.h>

#include <stdbool.h>

enum gsv_normal_kind {
    GSV_NORMAL_CLEAN,       /* drop control characters; white space becomes ' ' */
    GSV_NORMAL_CHINESE,     /* put spaces around Chinese characters */
    GSV_NORMAL_DECOMPOSE,   /* NFD */
    GSV_NORMAL_DECOMPOSE_K, /* NFKD */
    GSV_NORMAL_COMPOSE,     /* NFC */
    GSV_NORMAL_COMPOSE_K,   /* NFKC */
    GSV_NORMAL_DROP_NONSPACING,
    GSV_NORMAL_DROP_COMBINING,
    GSV_NORMAL_LOWERCASE,
    GSV_NORMAL_STRIP,       /* drop white space at one or both ends */
    GSV_NORMAL_REPLACE,     /* replace a text by another */
    GSV_NORMAL_REPLACE_RUN, /* replace a text, and repetitions of its last character, by another */
    GSV_NORMAL_REPLACE_SPACE, /* replace runs of white space by another text */
    GSV_NORMAL_PREPEND,       /* put a text before a non-empty text */
    GSV_NORMAL_NMT, /* SentencePiece's nmt rules: drop some control characters; white space becomes
                       ' ' */
    GSV_NORMAL_CHARSMAP, /* SentencePiece's precompiled charsmap */
};

struct gsv_normal_step {
    enum gsv_normal_kind kind;
    bool left, right;         /* STRIP */
    struct gsv_chars pattern; /* REPLACE and REPLACE_RUN; never empty */
    size_t min_length;        /* REPLACE_SPACE: shorter runs stay; at least 1 */
    bool lines; /* REPLACE_SPACE: a single line feed, carriage return or tab is replaced too */
    struct gsv_chars content; /* all REPLACE steps and PREPEND */
    struct gsv_charsmap *charsmap;
};

enum { GSV_NORMAL_MAX_STEPS = 64 };

struct gsv_normalizer {
    struct gsv_normal_step *steps; /* [n] */
    size_t n, capacity;
    /* All steps come from one BertNormalizer, one Lowercase, or none, in that order:
     * bert_fast_path.c can normalize in one pass. */
    bool simple;
    bool clean, chinese, strip_accents, lowercase; /* which of the steps, if simple */
};

/* Parse the normalizer; `json` may be NULL or a JSON null: no steps. */
gpuserve_status gsv_normalizer_parse(struct gsv_normalizer *normalizer,
                                     const struct gsv_json_value *json, const char *name,
                                     gpuserve_error *error);
/* Append the steps of a BertNormalizer. */
gpuserve_status gsv_normalizer_bert(struct gsv_normalizer *normalizer, bool clean, bool chinese,
                                    bool strip_accents, bool lowercase, gpuserve_error *error);
/* Append SentencePiece's precompiled charsmap; size 0: nothing. */
gpuserve_status gsv_normalizer_charsmap(struct gsv_normalizer *normalizer,
                                        const unsigned char *charsmap, size_t size,
                                        const char *name, gpuserve_error *error);
/* Append the steps of a SentencePiece file: its charsmap if any, trailing white space dropped, runs
 * of spaces replaced by one U+2581. */
gpuserve_status gsv_normalizer_spm(struct gsv_normalizer *normalizer, const unsigned char *charsmap,
                                   size_t size, const char *name, gpuserve_error *error);
void gsv_normalizer_reset(struct gsv_normalizer *normalizer);
size_t gsv_normalizer_bytes(const struct gsv_normalizer *normalizer);

/* Normalize text[begin, end) into buffers->text. False when out of memory. */
bool gsv_normalizer_apply(const struct gsv_normalizer *normalizer, const char *text, size_t begin,
                          size_t end, struct gsv_normal_buffers *buffers);
void gsv_normal_buffers_reset(struct gsv_normal_buffers *buffers);

#endif
