/*
 * support.h - tokenizers for the tests of lib/text: of real models, and of generated files.
 */
#ifndef GSV_TESTS_TEXT_SUPPORT_H
#define GSV_TESTS_TEXT_SUPPORT_H

#include "lib/text/tokenizer.h"

/* The tokenizer of a real model; fails the test if it is missing. */
struct gsv_tokenizer *real_tokenizer(const char *name);

/* Loads a directory with the single file FILE that contains `text`; returns status and message. */
gpuserve_status load_text(struct gsv_tokenizer **tokenizer, const char *file, const char *text,
                          size_t size, gpuserve_error *error);

/* tokenizer.json of a small WordPiece model; each part may be NULL (becomes "null"). Owned. */
char *tokenizer_json(const char *added_tokens, const char *normalizer, const char *pre_tokenizer,
                     const char *post_processor);

/* "101 7592 102" */
const char *ids_of(const struct gsv_tokenizer *tokenizer, const char *text);

#endif
