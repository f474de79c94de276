/*
 * folder.h - model directories in /tmp that a test can change.
 */
#ifndef TEST_RUNTIME_FOLDER_H
#define TEST_RUNTIME_FOLDER_H

#include <gpuserve/gpuserve.h>

enum { FOLDER_VOCAB = 96, FOLDER_HIDDEN = 32 };

struct folder {
    char path[64];
};

/* Copies tests/data/models/SOURCE with a vocabulary of BERT's special tokens and "w5" to "w95";
 * asserts. */
void folder_make(struct folder *folder, const char *source);
/* Writes a vocabulary of `n` words: BERT's special tokens and "w5" to "w<n - 1>". */
void folder_set_vocabulary(const struct folder *folder, int n);
/* Opens the model with the default options; asserts. */
gpuserve_model *folder_open(const struct folder *folder, gpuserve_context *context);
/* Sets all components of a word's embedding to `value`: in a new file that replaces the old one, or
 * in the same file. */
void folder_set_word(const struct folder *folder, int id, float value);
void folder_overwrite_word(const struct folder *folder, int id, float value);
void folder_remove(struct folder *folder);

#endif
