/*
 * support.h - tokenizers for the tests of lib/text: of real models, and of files made on the spot.
 */
#ifndef GSV_TESTS_TEXT_SUPPORT_H
#define GSV_TESTS_TEXT_SUPPORT_H

#include "lib/text/tokenizer.h"

/* The tokenizer of a real model; fails the test when it is not there. */
struct gsv_tokenizer *real_tokenizer(const char *name);

/* Load a directory that holds one file, FILE with `text`; its status, and the error's message. */
gpuserve_status load_text(struct gsv_tokenizer **tokenizer, const char *file, const char *text,
                          size_t size, gpuserve_error *error);

/* tokenizer.json of a small WordPiece model; each of the parts may be NULL (then "null"). Owned. */
char *tokenizer_json(const char *added_tokens, const char *normalizer, const char *pre_tokenizer,
                     const char *post_processor);

/* "101 7592 102" */
const char *ids_of(const struct gsv_tokenizer *tokenizer, const char *text);

#endif
