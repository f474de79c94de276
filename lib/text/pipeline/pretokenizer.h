/*
 * pretokenizer.h - the "pre_tokenizer" of tokenizer.json: where words begin and end.
 */
#ifndef GSV_TEXT_PRETOKENIZER_H
#define GSV_TEXT_PRETOKENIZER_H

#include "lib/base/json_tree.h"
#include "lib/text/unicode/chars.h"
#include "lib/text/pipeline/split_pattern.h"

#include <gpuserve/types.h>

#include <stdbool.h>

enum gsv_pretoken_kind {
    GSV_PRETOKEN_SPACE,       /* white space separates and is dropped */
    GSV_PRETOKEN_WORDS,       /* \w+|[^\w\s]+ */
    GSV_PRETOKEN_PUNCTUATION, /* by `behavior` */
    GSV_PRETOKEN_METASPACE,   /* spaces become a visible character that begins words */
    GSV_PRETOKEN_DIGITS,      /* by `behavior` */
    GSV_PRETOKEN_SPLIT,       /* at `pattern` or `literal`, by `behavior` */
    GSV_PRETOKEN_BYTE_LEVEL,  /* a space before words, and `pattern`; words are bytes */
};

/* What becomes of a delimiter: the names of `tokenizers`. */
enum gsv_pretoken_behavior {
    GSV_PRETOKEN_ISOLATED,
    GSV_PRETOKEN_REMOVED,
    GSV_PRETOKEN_CONTIGUOUS,
    GSV_PRETOKEN_WITH_PREVIOUS,
    GSV_PRETOKEN_WITH_NEXT,
};

/* Which words get a character before them that they do not begin with yet. */
enum gsv_prefix_scheme { GSV_PREFIX_NEVER, GSV_PREFIX_FIRST /* of the text */, GSV_PREFIX_ALWAYS };

enum { GSV_PRETOKEN_MAX_LITERAL = 16 };

struct gsv_pretoken_step {
    enum gsv_pretoken_kind kind;
    enum gsv_pretoken_behavior behavior;
    enum gsv_prefix_scheme scheme; /* of METASPACE, as are: */
    uint32_t replacement;
    bool splits;
    enum gsv_split_pattern pattern; /* of SPLIT and BYTE_LEVEL; GSV_N_SPLIT_PATTERNS: none */
    bool inverted;                  /* of SPLIT: what is between matches is the delimiter */
    uint32_t literal[GSV_PRETOKEN_MAX_LITERAL]; /* [n_literal] of SPLIT without a pattern */
    size_t n_literal;
};

enum { GSV_PRETOKEN_MAX_STEPS = 16 };

struct gsv_pretokenizer {
    struct gsv_pretoken_step steps[GSV_PRETOKEN_MAX_STEPS];
    size_t n;
    bool bert; /* exactly a BertPreTokenizer: see bert_fast_path.c */
};

/* Marks of a character, as gsv_pretokenizer_cut() leaves them. */
enum {
    GSV_CUT_BEFORE = 1,  /* a word begins here */
    GSV_CUT_DROPPED = 2, /* it is in no word */
    GSV_CUT_PREFIXED = 4 /* `space` is put before it, and stands for the same bytes */
};

/* `json` may be null: no steps, every text is one word. */
gpuserve_status gsv_pretokenizer_parse(struct gsv_pretokenizer *pretokenizer,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error);
/* What a "Metaspace" says, which is a decoder, too. */
gpuserve_status gsv_pretoken_metaspace(struct gsv_pretoken_step *step,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error);
void gsv_pretokenizer_bert(struct gsv_pretokenizer *pretokenizer);
/* Words at white space, with U+2581 before each, as SentencePiece's. */
void gsv_pretokenizer_metaspace(struct gsv_pretokenizer *pretokenizer);
/* GPT-2's, with a space before a text that begins with none, or as it is. */
void gsv_pretokenizer_gpt2(struct gsv_pretokenizer *pretokenizer, bool add_prefix_space);
/* Its words go to the model as bytes: the last step is a BYTE_LEVEL one. */
bool gsv_pretokenizer_is_byte_level(const struct gsv_pretokenizer *pretokenizer);

/* Characters and their marks. Start with all zero. */
struct gsv_pretokens {
    const struct gsv_char *at; /* [n] lent, or `own`'s */
    size_t n;
    uint8_t *marks; /* [n] */
    size_t marks_capacity;
    uint32_t space; /* what a ' ' is to be */
    bool unwritten; /* some are, or have one before them, and `at` does not say so yet */
    struct gsv_chars own, other; /* where a step has changed or added some */
    uint8_t *other_marks;
    size_t other_marks_capacity;
};

/* Mark chars[0, n), or what a step makes of them. The character after a dropped one begins a word
 * even if not marked. False when out of memory. */
bool gsv_pretokenizer_cut(const struct gsv_pretokenizer *pretokenizer, const struct gsv_char *chars,
                          size_t n, struct gsv_pretokens *pretokens);
void gsv_pretokens_reset(struct gsv_pretokens *pretokens);

#endif
