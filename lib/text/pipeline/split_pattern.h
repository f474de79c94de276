/*
 * split_pattern.h - the regular expressions of pre-tokenizers, as hand-written matchers.
 *
 * A general regular expression engine is not included: each supported pattern is recognised by its
 * exact text.
 */
#ifndef GSV_TEXT_SPLIT_PATTERN_H
#define GSV_TEXT_SPLIT_PATTERN_H

#include "lib/text/unicode/chars.h"

enum gsv_split_pattern {
    GSV_SPLIT_GPT2,     /* also used by "ByteLevel" */
    GSV_SPLIT_CL100K,   /* tiktoken's cl100k_base and Llama 3 */
    GSV_SPLIT_QWEN2,    /* as CL100K, with single digits */
    GSV_SPLIT_NUMBERS,  /* DeepSeek's first pattern */
    GSV_SPLIT_CJK,      /* DeepSeek's second pattern */
    GSV_SPLIT_DEEPSEEK, /* DeepSeek's third pattern */
    GSV_N_SPLIT_PATTERNS
};

/* The pattern with this text; GSV_N_SPLIT_PATTERNS if it is not supported. */
enum gsv_split_pattern gsv_split_pattern_of(const char *regex);

/* The end of the match at chars[at] within chars[at, end); `at` if it does not match. */
size_t gsv_split_match(enum gsv_split_pattern pattern, const struct gsv_char *chars, size_t at,
                       size_t end);

#endif
