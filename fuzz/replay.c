/*
 * replay.c - runs a fuzz target once on each file of a corpus, without libFuzzer.
 *
 *   replay_NAME FOLDER    every regular file of FOLDER; then "N passed, 0 failed"
 *
 * Each input is a heap block of exactly its size, so a sanitizer detects reads past its end. A bug
 * crashes the program. An empty folder is a failure too, so that a missing corpus is detected.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz/fuzz.h"

/* Runs one file. Returns 0 if it could be read. */
static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    long size = -1;
    int result = -1;

    if (!file)
        return -1;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0)
        data = malloc((size_t)size + (size == 0));
    if (data && fread(data, 1, (size_t)size, file) == (size_t)size) {
        LLVMFuzzerTestOneInput(data, (size_t)size);
        result = 0;
    }
    free(data);
    fclose(file);
    return result;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    struct dirent *entry;
    int passed = 0, failed = 0;

    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    while ((entry = readdir(folder))) {
        char path[4096];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
        if (replay_file(path) == 0) {
            passed++;
        } else {
            fprintf(stderr, "%s: cannot be read\n", path);
            failed++;
        }
    }
    closedir(folder);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
