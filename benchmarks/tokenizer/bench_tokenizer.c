/*
 * bench_tokenizer.c - measures lib/text; bench.py controls it over a pipe.
 *
 *   bench_tokenizer MODEL_DIRECTORY FILE
 *
 * FILE has texts, each preceded by its size as 32 bits. A line on stdin requests one round: "warm"
 * (all texts, word cache as the previous round left it), "cold" (empty word cache), or "load" (load
 * the tokenizer again). The answer is a line: seconds of CPU time, tokens, trie steps. "file FILE"
 * selects other texts; its answer is zeros.
 */
#include "lib/base/dir.h"
#include "lib/text/scratch.h"
#include "lib/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static size_t encode_all(const struct gsv_tokenizer *tokenizer, struct gsv_encoding *encoding,
                         const char *texts, size_t size)
{
    size_t tokens = 0;

    for (size_t at = 0; at + 4 <= size;) {
        uint32_t length;

        memcpy(&length, texts + at, sizeof(length));
        at += sizeof(length);
        if (length > size - at)
            break;
        if (gsv_tokenizer_encode(tokenizer, encoding, texts + at, length, NULL, 0, NULL, NULL) ==
            GPUSERVE_OK)
            tokens += encoding->n;
        at += length;
    }
    return tokens;
}

static void load(const struct gsv_dir *dir)
{
    const double start = seconds();
    struct gsv_tokenizer *tokenizer = NULL;
    const gpuserve_status status = gsv_tokenizer_load(&tokenizer, dir, NULL, NULL);

    printf("%.9f %d 0\n", seconds() - start, (int)status);
    gsv_tokenizer_free(&tokenizer);
}

/* Reads the texts of the file that a line names. */
static void take_file(char *name, char **texts, size_t *size)
{
    free(*texts);
    *texts = NULL;
    *size = 0;
    name[strcspn(name, "\n")] = '\0';
    if (gsv_file_read(name, (size_t)1 << 30, texts, size, NULL) == GPUSERVE_OK)
        printf("0 0 0\n");
    else
        printf("no file\n");
}

int main(int argc, char **argv)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *tokenizer = NULL;
    struct gsv_encoding encoding = { 0 };
    struct gsv_dir *dir = NULL;
    char *texts = NULL, line[4096];
    size_t size = 0;

    if (argc != 3 || gsv_dir_open(&dir, argv[1], &error) != GPUSERVE_OK ||
        gsv_tokenizer_load(&tokenizer, dir, NULL, &error) != GPUSERVE_OK ||
        gsv_file_read(argv[2], (size_t)1 << 30, &texts, &size, &error) != GPUSERVE_OK) {
        fprintf(stderr, "bench_tokenizer: %s\n", error.message);
        gsv_tokenizer_free(&tokenizer);
        gsv_dir_close(&dir);
        return 2;
    }
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t steps;
        double start;
        size_t tokens;

        if (strcmp(line, "load\n") == 0 || strncmp(line, "file ", 5) == 0) {
            if (line[0] == 'l')
                load(dir);
            else
                take_file(line + 5, &texts, &size);
            fflush(stdout);
            continue;
        }
        if (strcmp(line, "cold\n") == 0)
            gsv_encoding_reset(&encoding);
        steps = encoding.scratch ? ((struct gsv_scratch *)encoding.scratch)->steps : 0;
        start = seconds();
        tokens = encode_all(tokenizer, &encoding, texts, size);
        printf("%.9f %zu %llu\n", seconds() - start, tokens,
               (unsigned long long)(((struct gsv_scratch *)encoding.scratch)->steps - steps));
        fflush(stdout);
    }
    gsv_encoding_reset(&encoding);
    gsv_tokenizer_free(&tokenizer);
    gsv_dir_close(&dir);
    free(texts);
    return 0;
}
