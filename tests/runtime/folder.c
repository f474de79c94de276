/*
 * folder.c - model directories in /tmp that a test can change.
 *
 * Copies a model of tests/data/models and patches single embeddings in its safetensors file.
 */
#define _GNU_SOURCE /* memmem */
#include "tests/runtime/folder.h"

#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (1 << 20)

static void run_command(const char *format, const char *a, const char *b)
{
    char command[1024];

    snprintf(command, sizeof(command), format, a, b);
    cr_assert_eq(system(command), 0, "%s", command);
}

void folder_make(struct folder *folder, const char *source)
{
    char from[512];

    strcpy(folder->path, "/tmp/gpuserve-model-XXXXXX");
    cr_assert_not_null(mkdtemp(folder->path));
    snprintf(from, sizeof(from), "models/%s", source);
    run_command("cp -r '%s/.' '%s'", test_data(from), folder->path);
    folder_set_vocabulary(folder, FOLDER_VOCAB);
}

void folder_set_vocabulary(const struct folder *folder, int n)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/vocab.txt", folder->path);
    file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", file);
    for (int i = 5; i < n; i++)
        fprintf(file, "w%d\n", i);
    fclose(file);
}

gpuserve_model *folder_open(const struct folder *folder, gpuserve_context *context)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_assert_eq(gpuserve_model_open(&model, context, folder->path, NULL, &error), GPUSERVE_OK,
                 "%s", error.message);
    return model;
}

/* Offset of the word embeddings in a safetensors file. */
static size_t embeddings_at(const char *bytes)
{
    static const char name[] = "embeddings.word_embeddings.weight\"";
    static const char key[] = "\"data_offsets\":[";
    uint64_t header;
    const char *at;

    memcpy(&header, bytes, sizeof(header));
    at = memmem(bytes + 8, header, name, strlen(name));
    cr_assert_not_null(at);
    at = strstr(at, key);
    cr_assert_not_null(at);
    return 8 + header + strtoul(at + strlen(key), NULL, 10);
}

/* Writes the weights with the changed word to another path. */
static void write_changed(const struct folder *folder, int id, float value, const char *to)
{
    char path[128], *bytes = malloc(MAX_BYTES);
    FILE *file;
    size_t size, at;

    snprintf(path, sizeof(path), "%s/model.safetensors", folder->path);
    file = fopen(path, "rb");
    cr_assert_not_null(file);
    size = fread(bytes, 1, MAX_BYTES, file);
    fclose(file);
    at = embeddings_at(bytes) + (size_t)id * FOLDER_HIDDEN * sizeof(float);
    for (size_t j = 0; j < FOLDER_HIDDEN; j++)
        memcpy(bytes + at + j * sizeof(float), &value, sizeof(value));
    file = fopen(to, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
    free(bytes);
}

void folder_set_word(const struct folder *folder, int id, float value)
{
    char path[128], next[128];

    snprintf(path, sizeof(path), "%s/model.safetensors", folder->path);
    snprintf(next, sizeof(next), "%s/new", folder->path);
    write_changed(folder, id, value, next);
    cr_assert_eq(rename(next, path), 0); /* atomic: a model may be loading the file */
}

void folder_overwrite_word(const struct folder *folder, int id, float value)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/model.safetensors", folder->path);
    write_changed(folder, id, value, path);
}

void folder_remove(struct folder *folder)
{
    run_command("rm -r '%s' %s", folder->path, "");
}
