/*
 * folder.h - model directories in /tmp that tests may change.
 */
#ifndef TEST_RUNTIME_FOLDER_H
#define TEST_RUNTIME_FOLDER_H

enum { FOLDER_VOCAB = 96, FOLDER_HIDDEN = 32 };

struct folder {
    char path[64];
};

/* A copy of tests/data/models/SOURCE with a vocabulary of "w5" to "w95" after BERT's special
 * tokens; asserts. */
void folder_make(struct folder *folder, const char *source);
/* Let each number of a word's embedding be `value`, in a new file that takes the old one's name; or
 * in the same file. */
void folder_set_word(const struct folder *folder, int id, float value);
void folder_overwrite_word(const struct folder *folder, int id, float value);
void folder_remove(struct folder *folder);

#endif
