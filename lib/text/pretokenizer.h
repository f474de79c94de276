/*
 * pretokenizer.h - the "pre_tokenizer" of tokenizer.json: where words begin and end.
 */
#ifndef GSV_TEXT_PRETOKENIZER_H
#define GSV_TEXT_PRETOKENIZER_H

#include "lib/base/json_tree.h"
#include "lib/text/chars.h"

#include <gpuserve/types.h>

#include <stdbool.h>

enum gsv_pretoken_kind {
    GSV_PRETOKEN_SPACE,       /* white space separates and is dropped */
    GSV_PRETOKEN_WORDS,       /* \w+|[^\w\s]+ */
    GSV_PRETOKEN_PUNCTUATION, /* by `behavior` */
};

/* What becomes of a delimiter: the names of `tokenizers`. */
enum gsv_pretoken_behavior {
    GSV_PRETOKEN_ISOLATED,
    GSV_PRETOKEN_REMOVED,
    GSV_PRETOKEN_CONTIGUOUS,
    GSV_PRETOKEN_WITH_PREVIOUS,
    GSV_PRETOKEN_WITH_NEXT,
};

struct gsv_pretoken_step {
    enum gsv_pretoken_kind kind;
    enum gsv_pretoken_behavior behavior;
};

enum { GSV_PRETOKEN_MAX_STEPS = 16 };

struct gsv_pretokenizer {
    struct gsv_pretoken_step steps[GSV_PRETOKEN_MAX_STEPS];
    size_t n;
    bool bert; /* exactly a BertPreTokenizer: see bert_scan.c */
};

/* Marks of a character, as gsv_pretokenizer_cut() leaves them. */
enum {
    GSV_CUT_BEFORE = 1, /* a word begins here */
    GSV_CUT_DROPPED = 2 /* it is in no word */
};

/* `json` may be null: no steps, every text is one word. */
gpuserve_status gsv_pretokenizer_parse(struct gsv_pretokenizer *pretokenizer,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error);
void gsv_pretokenizer_bert(struct gsv_pretokenizer *pretokenizer);

/* Mark chars[0, n). The character after a dropped one begins a word even if not marked. */
void gsv_pretokenizer_cut(const struct gsv_pretokenizer *pretokenizer, const struct gsv_char *chars,
                          size_t n, uint8_t *marks);

#endif
