/*
 * dictionary.h - the words of sentence-transformers' WhitespaceTokenizer: a word in the vocabulary
 * is one token, any other word is left out, and so are stop words.
 *
 * A word is looked up as it is, then without the ASCII punctuation around it, then lowercased.
 */
#ifndef GSV_TEXT_DICTIONARY_H
#define GSV_TEXT_DICTIONARY_H

#include "lib/base/json_reader.h"
#include "lib/text/models/vocab.h"

struct gsv_scratch;

struct gsv_dictionary {
    const struct gsv_vocab *vocab; /* borrowed; set when the model is built */
    struct gsv_vocab stops;
};

/* Read "vocab" and "stop_words", lists of texts; the second may be absent. */
gpuserve_status gsv_dictionary_read(struct gsv_dictionary *dictionary, struct gsv_vocab *vocab,
                                    struct gsv_json_slice words, struct gsv_json_slice stop_words,
                                    const char *name, gpuserve_error *error);
void gsv_dictionary_reset(struct gsv_dictionary *dictionary);

/* As gsv_token_model_split(). */
size_t gsv_dictionary_split(const struct gsv_dictionary *dictionary, const char *word, size_t size,
                            struct gsv_scratch *scratch);

#endif
