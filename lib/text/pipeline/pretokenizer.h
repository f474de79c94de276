/*
 * pretokenizer.h - the "pre_tokenizer" of tokenizer.json: splits normalized text into words.
 *
 * Each step sets marks on the characters; a step may also insert or replace characters. Immutable
 * once parsed; the marks are in the caller's gsv_pretokens.
 */
#ifndef GSV_TEXT_PRETOKENIZER_H
#define GSV_TEXT_PRETOKENIZER_H

#include "lib/base/json_tree.h"
#include "lib/text/unicode/chars.h"

#include <gpuserve/types.h>
#include <stdbool.h>

/*
 * The regular expressions of pre-tokenizers, as hand-written matchers.
 *
 * A general regular expression engine is not included: each supported pattern is recognised by its
 * exact text.
 */

enum gsv_split_pattern {
    GSV_SPLIT_GPT2,     /* also used by "ByteLevel" */
    GSV_SPLIT_CL100K,   /* tiktoken's cl100k_base and Llama 3 */
    GSV_SPLIT_QWEN2,    /* as CL100K, with single digits */
    GSV_SPLIT_NUMBERS,  /* DeepSeek's first pattern */
    GSV_SPLIT_CJK,      /* DeepSeek's second pattern */
    GSV_SPLIT_DEEPSEEK, /* DeepSeek's third pattern */
    GSV_SPLIT_CLIP,
    GSV_SPLIT_CLIP_SPECIAL, /* as CLIP, with its special tokens first */
    GSV_N_SPLIT_PATTERNS
};

/* The pattern with this text; GSV_N_SPLIT_PATTERNS if it is not supported. */
enum gsv_split_pattern gsv_split_pattern_of(const char *regex);

/* The end of the match at chars[at] within chars[at, end); `at` if it does not match. */
size_t gsv_split_match(enum gsv_split_pattern pattern, const struct gsv_char *chars, size_t at,
                       size_t end);

enum gsv_pretoken_kind {
    GSV_PRETOKEN_SPACE,       /* split at white space and drop it */
    GSV_PRETOKEN_WORDS,       /* \w+|[^\w\s]+ */
    GSV_PRETOKEN_PUNCTUATION, /* split at punctuation, by `behavior` */
    GSV_PRETOKEN_METASPACE,   /* replace spaces by a visible character that begins a word */
    GSV_PRETOKEN_DIGITS,      /* split at digits, by `behavior` */
    GSV_PRETOKEN_SPLIT,       /* split at `pattern` or `literal`, by `behavior` */
    GSV_PRETOKEN_BYTE_LEVEL,  /* put a space before words, split by `pattern`; words become bytes */
};

/* Treatment of a delimiter, by the names of `tokenizers`. */
enum gsv_pretoken_behavior {
    GSV_PRETOKEN_ISOLATED,
    GSV_PRETOKEN_REMOVED,
    GSV_PRETOKEN_CONTIGUOUS,
    GSV_PRETOKEN_WITH_PREVIOUS,
    GSV_PRETOKEN_WITH_NEXT,
};

/* Words that get a prefix character, unless they begin with it. */
enum gsv_prefix_scheme { GSV_PREFIX_NEVER, GSV_PREFIX_FIRST /* of the text */, GSV_PREFIX_ALWAYS };

enum { GSV_PRETOKEN_MAX_LITERAL = 16 };

struct gsv_pretoken_step {
    enum gsv_pretoken_kind kind;
    enum gsv_pretoken_behavior behavior;
    enum gsv_prefix_scheme scheme; /* METASPACE and BYTE_LEVEL; the next two: METASPACE */
    uint32_t replacement;
    bool splits;
    enum gsv_split_pattern pattern; /* SPLIT and BYTE_LEVEL; GSV_N_SPLIT_PATTERNS: none */
    bool inverted;                  /* SPLIT: the text between matches is the delimiter */
    uint32_t literal[GSV_PRETOKEN_MAX_LITERAL]; /* [n_literal] SPLIT without a pattern */
    size_t n_literal;
};

enum { GSV_PRETOKEN_MAX_STEPS = 16 };

struct gsv_pretokenizer {
    struct gsv_pretoken_step steps[GSV_PRETOKEN_MAX_STEPS];
    size_t n;
    bool bert; /* exactly one BertPreTokenizer: bert_fast_path.c applies */
};

/* Marks of a character, the result of gsv_pretokenizer_cut(). */
enum {
    GSV_CUT_BEFORE = 1,  /* a word begins here */
    GSV_CUT_DROPPED = 2, /* the character is in no word */
    GSV_CUT_PREFIXED = 4 /* a `space` with the same span precedes the character */
};

/* Parse the pre-tokenizer; `json` may be NULL or a JSON null: no steps, each text is one word. */
gpuserve_status gsv_pretokenizer_parse(struct gsv_pretokenizer *pretokenizer,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error);
/* Parse a "Metaspace" object, which is also a decoder. */
gpuserve_status gsv_pretoken_metaspace(struct gsv_pretoken_step *step,
                                       const struct gsv_json_value *json, const char *name,
                                       gpuserve_error *error);
void gsv_pretokenizer_bert(struct gsv_pretokenizer *pretokenizer);
void gsv_pretokenizer_white_space(struct gsv_pretokenizer *pretokenizer);
/* Split at white space, with U+2581 before each word, as SentencePiece does. */
void gsv_pretokenizer_metaspace(struct gsv_pretokenizer *pretokenizer);
/* GPT-2's pre-tokenizer; add_prefix_space puts a space before a text that does not begin with
 * one. */
void gsv_pretokenizer_gpt2(struct gsv_pretokenizer *pretokenizer, bool add_prefix_space);
/* True if the last step is BYTE_LEVEL: the model gets words as bytes. */
bool gsv_pretokenizer_is_byte_level(const struct gsv_pretokenizer *pretokenizer);

/* Characters and their marks. Initialise to zero. */
struct gsv_pretokens {
    const struct gsv_char *at; /* [n] borrowed, or those of `own` */
    size_t n;
    uint8_t *flags; /* [n] */
    size_t flags_capacity;
    uint32_t space;              /* replacement of ' ' */
    bool unwritten;              /* replacements and prefixes are not yet applied to `at` */
    struct gsv_chars own, other; /* buffers for changed or inserted characters */
    uint8_t *other_flags;
    size_t other_flags_capacity;
};

/* Mark chars[0, n), or the characters that the steps make of them. The character after a dropped
 * one begins a word even without a mark. False when out of memory. */
bool gsv_pretokenizer_cut(const struct gsv_pretokenizer *pretokenizer, const struct gsv_char *chars,
                          size_t n, struct gsv_pretokens *pretokens);
void gsv_pretokens_reset(struct gsv_pretokens *pretokens);

#endif
