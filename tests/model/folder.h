/*
 * folder.h - a temporary folder and whole files, for tests of model files.
 *
 * Include after _GNU_SOURCE is defined. All functions assert.
 */
#ifndef GSV_TESTS_MODEL_FOLDER_H
#define GSV_TESTS_MODEL_FOLDER_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/gsv-gguf-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

static const char *in_folder(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    struct stat info;
    unsigned char *bytes;

    cr_assert(f, "%s", path);
    cr_assert_eq(fstat(fileno(f), &info), 0);
    *size = (size_t)info.st_size;
    bytes = malloc(*size + 1);
    cr_assert_eq(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");

    cr_assert(f, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

#endif
