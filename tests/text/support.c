/*
 * support.c - tokenizers for the tests of lib/text.
 */
#include "tests/text/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gsv_tokenizer *real_tokenizer(const char *name)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *tokenizer = NULL;
    const char *models = getenv("GPUSERVE_TEST_MODELS"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    struct gsv_dir *dir = NULL;
    char path[4096];

    if (models)
        snprintf(path, sizeof(path), "%s/%s", models, name);
    else if (cache)
        snprintf(path, sizeof(path), "%s/gpuserve/models/%s", cache, name);
    else
        snprintf(path, sizeof(path), "%s/.cache/gpuserve/models/%s", home ? home : "", name);
    cr_assert_eq(gsv_dir_open(&dir, path, &error), GPUSERVE_OK, "%s; run `./dev models %s`",
                 error.message, name);
    cr_assert_eq(gsv_tokenizer_load(&tokenizer, dir, NULL, &error), GPUSERVE_OK, "%s",
                 error.message);
    gsv_dir_close(&dir);
    return tokenizer;
}

gpuserve_status load_text(struct gsv_tokenizer **tokenizer, const char *file, const char *text,
                          size_t size, gpuserve_error *error)
{
    char folder[] = "/tmp/gpuserve-text-XXXXXX", path[256];
    struct gsv_dir *dir = NULL;
    gpuserve_status status;
    FILE *to;

    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    to = fopen(path, "wb");
    cr_assert(to && fwrite(text, 1, size, to) == size && fclose(to) == 0);
    cr_assert_eq(gsv_dir_open(&dir, folder, error), GPUSERVE_OK);
    status = gsv_tokenizer_load(tokenizer, dir, NULL, error);
    gsv_dir_close(&dir);
    unlink(path);
    rmdir(folder);
    return status;
}

char *tokenizer_json(const char *added_tokens, const char *normalizer, const char *pre_tokenizer,
                     const char *post_processor)
{
    static const char form[] =
        "{\"version\": \"1.0\", \"truncation\": {\"max_length\": 2, \"strategy\": \"LongestFirst\","
        " \"stride\": 0}, \"padding\": {\"strategy\": {\"Fixed\": 9}, \"direction\": \"Left\","
        " \"pad_id\": 0, \"pad_type_id\": 0, \"pad_token\": \"[PAD]\", \"x\": [1, {}]},"
        " \"added_tokens\": %s, \"normalizer\": %s, \"pre_tokenizer\": %s, \"post_processor\": %s,"
        " \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true},"
        " \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\","
        " \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 20, \"vocab\": {"
        "\"[UNK]\": 0, \"[CLS]\": 1, \"[SEP]\": 2, \"un\": 3, \"##aff\": 4, \"##able\": 5, \"a\": "
        "6,"
        " \"##a\": 7, \"##b\": 8, \"aa\": 9, \".\": 10, \"caf\\u00e9\": 11, \"##ab\": 12}}}";
    const size_t room = sizeof(form) + 4096;
    char *json = malloc(room);

    cr_assert(json);
    cr_assert_lt(snprintf(json, room, form, added_tokens ? added_tokens : "[]",
                          normalizer ? normalizer : "null", pre_tokenizer ? pre_tokenizer : "null",
                          post_processor ? post_processor : "null"),
                 (int)room);
    return json;
}

const char *ids_of(const struct gsv_tokenizer *tokenizer, const char *text)
{
    static char list[4096];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_encoding encoding = { 0 };
    int n = 0;

    cr_assert_eq(
        gsv_tokenizer_encode(tokenizer, &encoding, text, strlen(text), NULL, 0, NULL, &error),
        GPUSERVE_OK, "%s", error.message);
    list[0] = '\0';
    for (size_t i = 0; i < encoding.n && n < (int)sizeof(list) - 16; i++)
        n += snprintf(list + n, sizeof(list) - (size_t)n, "%s%d", i ? " " : "", encoding.ids[i]);
    gsv_encoding_reset(&encoding);
    return list;
}
