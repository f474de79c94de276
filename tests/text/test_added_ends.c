/*
 * test_added_ends.c - "add_bos_token" and "add_eos_token" of tokenizer_config.json.
 *
 * transformers 5.23 removes both keys where there is a tokenizer.json, whose post-processor says
 * what is added: the ids below are those of LlamaTokenizer, PreTrainedTokenizerFast, GemmaTokenizer
 * and others for all values of the keys. Without tokenizer.json, GPT-2's are in
 * test_merges_files.c.
 */
#include "lib/text/tokenizer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], path[128];

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");

    cr_assert_not_null(file);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

static void begin(void)
{
    strcpy(folder, "/tmp/gpuserve-ends-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void end(void)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer_config.json", "config.json",
                                         "spiece.model" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(in_folder(names[i]));
    rmdir(folder);
}

static gpuserve_status load(struct gsv_tokenizer **tokenizer, gpuserve_error *error)
{
    struct gsv_dir *dir;
    gpuserve_status st = gsv_dir_open(&dir, folder, error);

    cr_assert_eq(st, GPUSERVE_OK);
    st = gsv_tokenizer_load(tokenizer, dir, NULL, error);
    gsv_dir_close(&dir);
    return st;
}

#define ADDED(id, text)                                                               \
    "{\"id\":" id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":false," \
    "\"rstrip\":false,\"normalized\":false,\"special\":true}"

/* A Llama-like tokenizer.json with this list of the tokens around a text. */
static void put_tokenizer(const char *single)
{
    static char text[4096];

    snprintf(
        text, sizeof(text),
        "{\"added_tokens\":[" ADDED("1", "<s>") "," ADDED(
            "2", "</s>") "],"
                         "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\","
                         "\"prepend_scheme\":\"first\",\"split\":false},"
                         "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[%s],"
                         "\"pair\":[%s,"
                         "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{"
                         "\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]},"
                         "\"</s>\":{\"id\":\"</s>\",\"ids\":[2],\"tokens\":[\"</s>\"]}}},"
                         "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
                         "\"byte_fallback\":false,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</"
                         "s>\":2,\"\\u2581\":3,"
                         "\"a\":4,\"b\":5,\"\\u2581a\":6,\"\\u2581ab\":7},"
                         "\"merges\":[[\"\\u2581\",\"a\"],[\"\\u2581a\",\"b\"]]}}",
        single, single);
    put("tokenizer.json", text);
}

static void expect_ids(const int32_t *ids, size_t n, const char *config)
{
    const struct gsv_encode_options options = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_encoding e = { 0 };
    struct gsv_tokenizer *t;

    cr_assert_eq(load(&t, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gsv_tokenizer_encode(t, &e, "ab", 2, NULL, 0, &options, &error), GPUSERVE_OK);
    cr_expect(e.n == n && memcmp(e.ids, ids, n * sizeof(*ids)) == 0, "%s: %zu tokens", config, e.n);
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

#define TOKEN(name) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":0}}"
#define TEXT "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define LLAMA \
    "\"tokenizer_class\":\"LlamaTokenizerFast\",\"bos_token\":\"<s>\",\"eos_token\":\"</s>\""

Test(added_ends, the_post_processor_of_tokenizer_json_decides)
{
    static const struct {
        const char *single;
        int32_t ids[3];
        size_t n;
    } cases[] = {
        { TEXT, { 7 }, 1 },
        { TOKEN("<s>") "," TEXT, { 1, 7 }, 2 },
        { TEXT "," TOKEN("</s>"), { 7, 2 }, 2 },
        { TOKEN("<s>") "," TEXT "," TOKEN("</s>"), { 1, 7, 2 }, 3 },
    };
    static const char *const configs[] = {
        "{" LLAMA "}",
        "{" LLAMA ",\"add_eos_token\":true}",
        "{" LLAMA ",\"add_bos_token\":true,\"add_eos_token\":true}",
        "{" LLAMA ",\"add_bos_token\":false,\"add_eos_token\":false}",
        "{" LLAMA ",\"add_bos_token\":false,\"add_eos_token\":true}",
    };

    begin();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        put_tokenizer(cases[i].single);
        for (size_t j = 0; j < sizeof(configs) / sizeof(configs[0]); j++) {
            put("tokenizer_config.json", configs[j]);
            expect_ids(cases[i].ids, cases[i].n, configs[j]);
        }
    }
    end();
}

Test(added_ends, of_albert_without_tokenizer_json_are_refused)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t;
    char command[512];

    begin();
    snprintf(command, sizeof(command), "cp '%s/tokenizers/albert/spiece.model' '%s'", TEST_DATA_DIR,
             folder);
    cr_assert_eq(system(command), 0);
    put("config.json", "{\"model_type\":\"albert\"}");
    put("tokenizer_config.json", "{\"add_eos_token\":true}");
    cr_expect_eq(load(&t, &error), GPUSERVE_E_UNSUPPORTED);
    cr_expect(strstr(error.message, "\"add_eos_token\" of an ALBERT tokenizer needs"), "%s",
              error.message);
    put("tokenizer_config.json", "{}");
    cr_expect_eq(load(&t, &error), GPUSERVE_OK, "%s", error.message);
    gsv_tokenizer_free(&t);
    end();
}
