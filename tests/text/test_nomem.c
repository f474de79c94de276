/*
 * test_nomem.c - lib/text with each allocation failing in turn; and no allocation in a warm
 * encoding.
 */
#define _GNU_SOURCE
#include "tests/base/failing_malloc.h"
#include "tests/text/small_charsmap.h"
#include "tests/text/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char others[] =
    "Na\xC3\xAFve unaffable words [NEW] and n\xC3\xA9w, \xE5\xAD\x97\xE3\x80\xAE\xE3\x80\xAF!";

/* A tokenizer that uses all code paths: added tokens of both kinds, a normalizer sequence. */
static char *rich_json(void)
{
    return tokenizer_json(
        "[{\"id\": 0, \"content\": \"[NEW]\", \"single_word\": false, \"lstrip\": false,"
        " \"rstrip\": false, \"normalized\": false, \"special\": true},"
        " {\"id\": 1, \"content\": \"N\\u00e9w\", \"single_word\": false, \"lstrip\": false,"
        " \"rstrip\": false, \"normalized\": true, \"special\": false}]",
        "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}, {\"type\":"
        " \"Replace\", \"pattern\": {\"String\": \"x\"}, \"content\": \"yy\"},"
        " {\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true,"
        " \"lowercase\": true}]}",
        "{\"type\": \"BertPreTokenizer\"}",
        "{\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 2], \"cls\": [\"[CLS]\", 1]}");
}

/* A Unigram tokenizer whose charsmap has one entry: U+00EF becomes "ii". */
static char *unigram_json(void)
{
    char *map = small_charsmap("\xC3\xAF", "ii"), *json = NULL;

    cr_assert(
        asprintf(
            &json,
            "{\"added_tokens\":[],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
            "\"Precompiled\",\"precompiled_charsmap\":\"%s\"},{\"type\":\"Prepend\",\"prepend\":"
            "\"x\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}]},"
            "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"},\"decoder\":"
            "{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"},\"model\":{\"type\":\"Unigram\","
            "\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"?\",0],[\"\\u2581w\",-1.5],"
            "[\"ords\",-2],[\"<0xC3>\",-9],[\"aff\",-3e0]]}}",
            map) > 0);
    free(map);
    return json;
}

/* A byte-level BPE tokenizer, and a text with a word that needs several windows. */
#define AB40 "abababababababababababababababababababab"
#define LONG_WORD AB40 AB40 AB40 AB40
static const char bpe_text[] = "ab \xE5\xAD\x97 " LONG_WORD " '' [NEW]ab";

static char *bpe_json(void)
{
    return strdup(
        "{\"added_tokens\":[{\"id\":0,\"content\":\"[NEW]\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":true,\"special\":false}],"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true}"
        ","
        "\"post_processor\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":"
        "true},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"a\"},\"content\":\"bb\"},{\"type\":\"ByteFallback\"},{\"type\":"
        "\"ByteLevel\","
        "\"add_prefix_space\":true,\"trim_offsets\":true}]},"
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"ignore_merges\":true,\"vocab\":{\"u\":0,"
        "\"a\":1,\"b\":2,\"ab\":3,\"ba\":4,\"\u0120\":5,\"\u0120a\":6,\"<0x61>\":7},\"merges\":"
        "[\"a b\",\"b a\",\"\u0120 a\"]}}");
}

static gpuserve_status decode(const struct gsv_tokenizer *t, const struct gsv_encoding *e)
{
    char decoded[1024];

    return gsv_tokenizer_decode(t, e->ids, e->n, false, decoded, sizeof(decoded), NULL, NULL);
}

static void survive_folder(const char *folder, const char *text)
{
    long n = 1, loads = 0;
    bool through = false;
    struct gsv_dir *dir = NULL;

    cr_assert_eq(gsv_dir_open(&dir, folder, NULL), GPUSERVE_OK);
    for (; !through && n < 100000; n++) {
        const long before = failing_malloc_live_blocks();
        struct gsv_tokenizer *t = NULL;
        struct gsv_encoding e = { 0 };
        gpuserve_status status;

        failing_malloc_arm(n, false);
        status = gsv_tokenizer_load(&t, dir, NULL, NULL);
        loads += status == GPUSERVE_OK;
        if (status == GPUSERVE_OK)
            status =
                gsv_tokenizer_encode(t, &e, text, strlen(text), text, strlen(text), NULL, NULL);
        if (status == GPUSERVE_OK)
            status = decode(t, &e);
        through = !failing_malloc_fired();
        failing_malloc_arm(0, false);
        cr_assert_eq(status, through ? GPUSERVE_OK : GPUSERVE_E_NOMEM, "allocation %ld", n);
        gsv_encoding_reset(&e);
        gsv_tokenizer_free(&t);
        cr_assert_eq(failing_malloc_live_blocks(), before, "allocation %ld leaks", n);
    }
    cr_expect(through);
    cr_expect_gt(loads, 5, "encoding was never reached");
    gsv_dir_close(&dir);
}

static void survive(char *json, const char *text)
{
    char folder[] = "/tmp/gpuserve-nomem-XXXXXX", path[256];
    FILE *file;

    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    file = fopen(path, "w");
    cr_assert(file && fputs(json, file) >= 0 && fclose(file) == 0);
    survive_folder(folder, text);
    unlink(path);
    rmdir(folder);
    free(json);
}

Test(nomem, loading_and_encoding_survive_any_failed_allocation)
{
    survive(rich_json(), others);
    survive(unigram_json(), others);
    survive(bpe_json(), bpe_text);
}

Test(nomem, so_do_directories_without_a_tokenizer_json)
{
    survive_folder(TEST_DATA_DIR "/tokenizers/added", others);
    survive_folder(TEST_DATA_DIR "/tokenizers/roberta-added", bpe_text);
    survive_folder(TEST_DATA_DIR "/tokenizers/gpt2-bos", bpe_text);
    survive_folder(TEST_DATA_DIR "/tokenizers/xlm-roberta-added", others);
    survive_folder(TEST_DATA_DIR "/tokenizers/camembert", others);
    survive_folder(TEST_DATA_DIR "/gguf/bert-q8_0.gguf", others);
    survive_folder(TEST_DATA_DIR "/gguf/xlm-roberta.gguf", others);
}

Test(nomem, a_warm_encoding_allocates_nothing)
{
    char *jsons[] = { rich_json(), unigram_json(), bpe_json() };
    struct gsv_tokenizer *each[4] = { real_tokenizer("all-MiniLM-L6-v2") };

    for (int i = 0; i < 3; i++) {
        cr_assert_eq(load_text(&each[i + 1], "tokenizer.json", jsons[i], strlen(jsons[i]), NULL),
                     GPUSERVE_OK);
        free(jsons[i]);
    }
    for (int i = 0; i < 4; i++) {
        const char *text = i < 3 ? others : bpe_text;
        struct gsv_encoding e = { 0 };

        cr_assert_eq(
            gsv_tokenizer_encode(each[i], &e, text, strlen(text), text, strlen(text), NULL, NULL),
            GPUSERVE_OK);
        failing_malloc_arm(1, true);
        for (int k = 0; k < 100; k++)
            cr_assert_eq(gsv_tokenizer_encode(each[i], &e, text, strlen(text), text,
                                              strlen(text) - (k % 2 ? 1 : 0), NULL, NULL),
                         GPUSERVE_OK);
        cr_expect(!failing_malloc_fired());
        failing_malloc_arm(0, false);
        gsv_encoding_reset(&e);
        gsv_tokenizer_free(&each[i]);
    }
}
