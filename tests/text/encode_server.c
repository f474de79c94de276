/*
 * encode_server.c - a tokenizer behind a pipe, for tests/text/differential.py.
 *
 *   encode_server MODEL_DIRECTORY
 *
 * Numbers are 32 bits in native byte order. An encode request is
 *   'E' max_tokens truncation no_special size_a size_b, the bytes of both texts
 * (size_b 0xFFFFFFFF: no second text), and its answer is
 *   status n_tokens truncated, ids[n], begins and ends[2 n], types[n]
 * A decode request is 'D' skip_special n, ids[n]; its answer is status size, bytes.
 */
#include "lib/base/dir.h"
#include "lib/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_all(void *to, size_t size)
{
    if (fread(to, 1, size, stdin) != size)
        exit(0); /* the client closed the pipe */
}

static void write_number(uint32_t number)
{
    fwrite(&number, sizeof(number), 1, stdout);
}

static char *read_bytes(uint32_t size)
{
    char *bytes = malloc((size_t)size + 1);

    if (!bytes)
        exit(2);
    read_all(bytes, size);
    return bytes;
}

static void answer_encode(const struct gsv_tokenizer *tokenizer, struct gsv_encoding *encoding)
{
    uint32_t head[5];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_status status;
    struct gsv_encode_options options = { 0 };
    char *a, *b = NULL;

    read_all(head, sizeof(head));
    options.max_tokens = head[0];
    options.truncation = head[1];
    options.no_special = head[2];
    a = read_bytes(head[3]);
    if (head[4] != UINT32_MAX)
        b = read_bytes(head[4]);
    status =
        gsv_tokenizer_encode(tokenizer, encoding, a, head[3], b, b ? head[4] : 0, &options, &error);
    write_number(status);
    write_number(status == GPUSERVE_OK ? (uint32_t)encoding->n : 0);
    write_number(encoding->truncated);
    if (status == GPUSERVE_OK && encoding->n > 0) {
        fwrite(encoding->ids, sizeof(*encoding->ids), encoding->n, stdout);
        fwrite(encoding->spans, sizeof(*encoding->spans), encoding->n, stdout);
        fwrite(encoding->type_ids, 1, encoding->n, stdout);
    }
    free(a);
    free(b);
}

static void answer_decode(const struct gsv_tokenizer *tokenizer)
{
    static char text[1 << 20];
    uint32_t head[2];
    size_t size = 1;
    gpuserve_status status;
    char *ids;

    read_all(head, sizeof(head));
    ids = read_bytes(4 * head[1]);
    status = gsv_tokenizer_decode(tokenizer, (const int32_t *)(const void *)ids, head[1], head[0],
                                  text, sizeof(text), &size, NULL);
    write_number(status);
    write_number(status == GPUSERVE_OK ? (uint32_t)size - 1 : 0);
    if (status == GPUSERVE_OK)
        fwrite(text, 1, size - 1, stdout);
    free(ids);
}

int main(int argc, char **argv)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *tokenizer = NULL;
    struct gsv_encoding encoding = { 0 };
    struct gsv_dir *dir = NULL;

    if (argc != 2 || gsv_dir_open(&dir, argv[1], &error) != GPUSERVE_OK ||
        gsv_tokenizer_load(&tokenizer, dir, NULL, &error) != GPUSERVE_OK) {
        fprintf(stderr, "encode_server: %s\n", argc == 2 ? error.message : "no model directory");
        gsv_dir_close(&dir);
        return 2;
    }
    for (;;) {
        unsigned char kind;

        if (fread(&kind, 1, 1, stdin) != 1)
            break;
        if (kind == 'E')
            answer_encode(tokenizer, &encoding);
        else
            answer_decode(tokenizer);
        fflush(stdout);
    }
    gsv_encoding_reset(&encoding);
    gsv_tokenizer_free(&tokenizer);
    gsv_dir_close(&dir);
    return 0;
}
