/*
 * split_pattern.h - the regular expressions by which tokenizers split texts, as code.
 *
 * There is no engine of regular expressions here: each that is in use is known by its exact text.
 */
#ifndef GSV_TEXT_SPLIT_PATTERN_H
#define GSV_TEXT_SPLIT_PATTERN_H

#include "lib/text/unicode/chars.h"

enum gsv_split_pattern {
    GSV_SPLIT_GPT2,     /* also what "ByteLevel" splits by */
    GSV_SPLIT_CL100K,   /* of tiktoken's cl100k_base and Llama 3 */
    GSV_SPLIT_QWEN2,    /* the same with single digits */
    GSV_SPLIT_NUMBERS,  /* DeepSeek's first */
    GSV_SPLIT_CJK,      /* its second */
    GSV_SPLIT_DEEPSEEK, /* its third */
    GSV_N_SPLIT_PATTERNS
};

/* The pattern that is written so; GSV_N_SPLIT_PATTERNS: none that is known. */
enum gsv_split_pattern gsv_split_pattern_of(const char *regex);

/* Where the match at chars[at] ends, of chars[at, end); `at` when there is none. */
size_t gsv_split_match(enum gsv_split_pattern pattern, const struct gsv_char *chars, size_t at,
                       size_t end);

#endif
