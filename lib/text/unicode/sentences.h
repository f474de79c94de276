/*
 * sentences.h - finds the ends of sentences by a subset of the rules of Unicode annex 29.
 *
 *   1. The terminators . ! ? and those of other scripts (。 ！ ？ । ۔ ؟ ። and more) end a sentence.
 *      Terminators in a row, closing quotes and brackets after them, and the blanks that follow
 *      belong to it.
 *   2. A full stop does not end it before a digit ("3.5"), between a letter and a capital ("U.S."),
 *      or if the next letter is lowercase ("e.g. this").
 *   3. No terminator ends it if a comma, colon, semicolon or dash follows on the same line.
 *   4. An empty line and U+2029 end it. A single line end is a blank: texts may be wrapped.
 *
 * Differences to the annex: rule 4 (there, each line end ends a sentence), lowercase is known for
 * scripts with case only by block, and opening brackets do not follow a terminator. Abbreviations
 * before a capital ("Mr. Smith") end a sentence, as in the annex. Texts of scripts without
 * terminators (Thai) are one sentence.
 */
#ifndef GSV_TEXT_SENTENCES_H
#define GSV_TEXT_SENTENCES_H

#include <stddef.h>

/* The end of the sentence that begins at byte `begin` < size of a well-formed text: the begin of
 * the next one, or `size`. Linear in the text over all its sentences. */
size_t gsv_sentence_end(const char *text, size_t size, size_t begin);

/* Shrink *begin, *end to the bytes without blanks at both ends; empty if there are only blanks. */
void gsv_trim_blanks(const char *text, size_t *begin, size_t *end);

#endif
