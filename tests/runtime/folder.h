/*
 * folder.h - model directories in /tmp that a test can change.
 */
#ifndef TEST_RUNTIME_FOLDER_H
#define TEST_RUNTIME_FOLDER_H

enum { FOLDER_VOCAB = 96, FOLDER_HIDDEN = 32 };

struct folder {
    char path[64];
};

/* Copies tests/data/models/SOURCE with a vocabulary of BERT's special tokens and "w5" to "w95";
 * asserts. */
void folder_make(struct folder *folder, const char *source);
/* Sets all components of a word's embedding to `value`: in a new file that replaces the old one, or
 * in the same file. */
void folder_set_word(const struct folder *folder, int id, float value);
void folder_overwrite_word(const struct folder *folder, int id, float value);
void folder_remove(struct folder *folder);

#endif
