/*
 * test_merges_files.c - directories with vocab.json and merges.txt, sentencepiece.bpe.model, or the
 * tokenizer.json of an encoder family, against transformers and `tokenizers`.
 *
 * Data in tests/data/tokenizers is written by tools/fixtures/make_test_tokenizers.py. Also damaged
 * merges; damaged models are in test_spm.c.
 */
#include "lib/text/models/bpe.h"
#include "lib/text/tokenizer.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gpuserve_status load(struct gsv_tokenizer **t, const char *path, const char *folder,
                            gpuserve_error *error)
{
    const struct gsv_tokenizer_settings settings = { folder, false };
    struct gsv_dir *dir = NULL;
    gpuserve_status status;

    cr_assert_eq(gsv_dir_open(&dir, path, error), GPUSERVE_OK, "%s", error->message);
    status = gsv_tokenizer_load(t, dir, &settings, error);
    gsv_dir_close(&dir);
    return status;
}

/* ------------------------------------------------------------------ against transformers */

static int64_t number_at(const json_t *row, const char *key, size_t i)
{
    return json_integer_value(json_array_get(json_object_get(row, key), i));
}

static void check_decoded(const struct gsv_tokenizer *t, const struct gsv_encoding *e,
                          const json_t *row, const char *name)
{
    char text[1024];
    const gpuserve_status status =
        gsv_tokenizer_decode(t, e->ids, e->n, true, text, sizeof(text), NULL, NULL);

    cr_assert_eq(status, GPUSERVE_OK);
    cr_expect_str_eq(text, json_string_value(json_object_get(row, "decoded")), "%s", name);
}

static void check_row(const struct gsv_tokenizer *t, struct gsv_encoding *e, const json_t *row,
                      const char *name)
{
    const json_t *text = json_object_get(row, "text"), *pair = json_object_get(row, "pair");
    const json_t *spans = json_object_get(row, "spans");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    bool same;

    cr_assert_eq(gsv_tokenizer_encode(t, e, json_string_value(text), json_string_length(text),
                                      json_string_value(pair), json_string_length(pair), NULL,
                                      &error),
                 GPUSERVE_OK, "%s", error.message);
    same = e->n == json_array_size(spans);
    for (size_t i = 0; same && i < e->n; i++) {
        const json_t *span = json_array_get(spans, i);

        same = e->ids[i] == number_at(row, "ids", i) &&
               e->type_ids[i] == number_at(row, "types", i) &&
               e->spans[i].begin == (uint64_t)json_integer_value(json_array_get(span, 0)) &&
               e->spans[i].end == (uint64_t)json_integer_value(json_array_get(span, 1));
    }
    cr_expect(same, "%s: \"%s\" and \"%s\": %zu tokens, not %s", name, json_string_value(text),
              pair ? json_string_value(pair) : "", e->n, json_dumps(row, 0));
    if (same)
        check_decoded(t, e, row, name);
}

/* All rows of expected.json in one directory. */
static void check_directory(const char *name, const char *kind)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_encoding e = { 0 };
    struct gsv_tokenizer *t = NULL;
    char path[1024], expected[1100];
    const json_t *row;
    json_t *rows;
    size_t j;

    snprintf(path, sizeof(path), "%s/tokenizers/%s", TEST_DATA_DIR, name);
    snprintf(expected, sizeof(expected), "%s/expected.json", path);
    rows = json_load_file(expected, 0, NULL);
    cr_assert_gt(json_array_size(rows), 25, "%s", name);
    cr_assert_eq(load(&t, path, NULL, &error), GPUSERVE_OK, "%s", error.message);
    cr_expect_str_eq(gsv_tokenizer_kind(t), kind, "%s", name);
    json_array_foreach(rows, j, row) check_row(t, &e, row, name);
    json_decref(rows);
    gsv_encoding_reset(&e);
    gsv_tokenizer_free(&t);
}

Test(merges_files, all_equals_transformers)
{
    static const char *const names[] = {
        "roberta",         "roberta-added",   "roberta-map", "roberta-untrimmed",
        "roberta-decoder", "roberta-named",   "gpt2",        "gpt2-bos",
        "gpt2-eos",        "gpt2-bos-eos",    "xlm-roberta", "xlm-roberta-added",
        "camembert",       "camembert-added",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_directory(names[i], i < 10 ? "BPE" : "Unigram");
}

/* tokenizer.json as the checkpoints of the encoder families have it; written by
 * tools/fixtures/make_family_tokenizers.py. */
Test(merges_files, families)
{
    static const struct {
        const char *name, *kind;
    } families[] = {
        { "family-qwen2", "BPE" },
        { "family-qwen3-embedding", "BPE" },
        { "family-llama3", "BPE" },
        { "family-eurobert", "BPE" },
        { "family-modernbert", "BPE" },
        { "family-deberta", "BPE" },
        { "family-clip", "BPE" },
        { "family-clip-special", "BPE" },
        { "family-llama2", "BPE" },
        { "family-mistral", "BPE" },
        { "family-gemma", "BPE" },
        { "family-t5", "Unigram" },
        { "family-albert", "Unigram" },
        { "family-deberta-v2", "Unigram" },
        { "family-deberta-v2-newer", "Unigram" },
        /* without tokenizer.json, by tools/fixtures/make_test_tokenizers.py */
        { "deberta", "BPE" },
        { "deberta-prefix", "BPE" },
        { "deberta-v2", "Unigram" },
        { "deberta-v2-lower", "Unigram" },
        { "t5", "Unigram" },
        { "t5-few", "Unigram" },
        { "mt5", "Unigram" },
        { "albert", "Unigram" },
        { "albert-cased", "Unigram" },
    };

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        check_directory(families[i].name, families[i].kind);
}

/* ------------------------------------------------------------------ broken files */

struct file {
    const char *name, *text; /* text NULL: the file is missing */
};

static const char *const every[] = { "vocab.json",       "merges.txt", "tokenizer_config.json",
                                     "config.json",      "vocab.txt",  "special_tokens_map.json",
                                     "added_tokens.json" };

enum { N_EVERY = sizeof(every) / sizeof(every[0]), MAX_CHANGES = 4 };

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
    if (!text)
        return;
    file = fopen(path, "w");
    cr_assert(file);
    cr_assert_geq(fputs(text, file), 0);
    fclose(file);
}

/* The valid vocabulary with `more` appended; owned. */
static char *vocab_with(const char *more)
{
    json_t *vocab = json_load_file(TEST_DATA_DIR "/tokenizers/roberta/vocab.json", 0, NULL);
    char *text = json_dumps(vocab, JSON_COMPACT), *longer;
    const size_t size = strlen(text);

    json_decref(vocab);
    longer = malloc(size + strlen(more) + 2);
    snprintf(longer, size + strlen(more) + 2, "%.*s%s}", (int)size - 1, text, more);
    free(text);
    return longer;
}

static void put_sound(const char *folder)
{
    char *vocab = vocab_with("");

    for (size_t i = 0; i < N_EVERY; i++)
        put_file(folder, every[i], NULL);
    put_file(folder, "vocab.json", vocab);
    put_file(folder, "merges.txt", "#version: 0.2\n\xC4\xA0 t\nh e\n");
    put_file(folder, "config.json", "{\"model_type\": \"roberta\"}");
    free(vocab);
}

/* Applies changes to a valid directory; the message of the load must contain `says`. */
static void expect(const char *folder, const struct file *changes, gpuserve_status wanted,
                   const char *says)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;
    gpuserve_status status;

    put_sound(folder);
    for (size_t i = 0; i < MAX_CHANGES && changes[i].name; i++)
        put_file(folder, changes[i].name, changes[i].text);
    status = load(&t, folder, NULL, &error);
    cr_expect_eq(status, wanted, "%s: status %d, \"%s\"", says, status, error.message);
    if (wanted != GPUSERVE_OK)
        cr_expect(strstr(error.message, says), "\"%s\", not \"%s\"", error.message, says);
    cr_expect_eq(t != NULL, wanted == GPUSERVE_OK);
    gsv_tokenizer_free(&t);
}

struct change_case {
    struct file changes[MAX_CHANGES];
    gpuserve_status status;
    const char *says;
};

static void expect_each(const struct change_case *cases, size_t n)
{
    char folder[] = "/tmp/gpuserve-merges-XXXXXX";

    cr_assert(mkdtemp(folder));
    expect(folder, (const struct file[MAX_CHANGES]){ { 0 } }, GPUSERVE_OK, "unchanged");
    for (size_t i = 0; i < n; i++)
        expect(folder, cases[i].changes, cases[i].status, cases[i].says);
    for (size_t i = 0; i < N_EVERY; i++)
        put_file(folder, every[i], NULL);
    rmdir(folder);
}

#define EXPECT_EACH(cases) expect_each(cases, sizeof(cases) / sizeof((cases)[0]))
#define MERGES(text) .changes = { { "merges.txt", text } }, .status = GPUSERVE_E_FORMAT
#define HEAD "#version: 0.2\n"

Test(merges_files, broken_merges_are_refused_by_their_line)
{
    static const struct change_case cases[] = {
        { MERGES(""), .says = "merges.txt:1: the line \"#version\" is missing" },
        { MERGES("#versio"), .says = "merges.txt:1: the line \"#version\" is missing" },
        { MERGES("h e\ni n\ni n\n"), .says = "merges.txt:1: the line \"#version\" is missing" },
        { MERGES("h e\n"), .says = "merges.txt:1: the line \"#version\" is missing" },
        { MERGES("#version: 0.2"), .says = "merges.txt: the last line has no newline" },
        { MERGES(HEAD "h e\ni n"), .says = "merges.txt: the last line has no newline" },
        { MERGES(HEAD "h e\n\ni n\n"), .says = "merges.txt:3: the line is not two tokens" },
        { MERGES(HEAD "h e\nin\n"), .says = "merges.txt:3: the line is not two tokens" },
        { MERGES(HEAD "h e r\n"), .says = "merges.txt:2: the line is not two tokens" },
        { MERGES(HEAD " he\n"), .says = "merges.txt:2: the line is not two tokens" },
        { MERGES(HEAD "he \n"), .says = "merges.txt:2: the line is not two tokens" },
        { MERGES(HEAD "h  e\n"), .says = "merges.txt:2: the line is not two tokens" },
        { MERGES(HEAD "\r\n"), .says = "merges.txt:2: the line is not two tokens" },
        { MERGES(HEAD "xy e\n"), .says = "merges.txt:2: the first token of this merge is not in" },
        { MERGES(HEAD "h e\nh xy\n"), .says = "merges.txt:3: the second token of this merge is" },
        { MERGES(HEAD "<ma sk>\n"), .says = "merges.txt:2: the first token of this merge is" },
        { MERGES(HEAD "< mask>\n"), .says = "merges.txt:2: the second token of this merge is" },
        { MERGES(HEAD "e h\n"), .says = "merges.txt:2: the result of this merge is not in" },
        { MERGES(HEAD "h\te\n"), .says = "merges.txt:2: the line is not two tokens" },
        { MERGES("\xEF\xBB\xBF" HEAD "h e\n"),
          .says = "merges.txt:1: the file begins with a byte order" },
        { MERGES(HEAD "h e\n\xFFx e\n"), .says = "merges.txt is not UTF-8 at byte 18" },
        { { { "merges.txt", HEAD "h e\r\ni n\r\n" } }, GPUSERVE_OK, "lines of Windows" },
        { { { "merges.txt", HEAD } }, GPUSERVE_OK, "no merges" },
    };

    EXPECT_EACH(cases);
}

/* Neither a text nor its last line needs a terminator. */
Test(merges_files, no_byte_behind_the_end_is_read)
{
    static const char text[] = "#version: 0.2\nh e\n";
    const struct gsv_vocab none = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_bpe model = { 0 };

    cr_expect_eq(gsv_bpe_read_merges(&model, text, 7, &none, "x", &error), GPUSERVE_E_FORMAT);
    cr_expect_str_eq(error.message, "x:1: the line \"#version\" is missing");
    cr_expect_eq(gsv_bpe_read_merges(&model, text, 14, &none, "x", &error), GPUSERVE_OK);
    gsv_bpe_reset(&model);
}

#define HUGE(id)                                                                        \
    .changes = { { "vocab.json", "{\"a\": " id "}" } }, .status = GPUSERVE_E_TOO_LARGE, \
    .says = "vocab.json: byte 6: the id exceeds 16777215"
#define VOCAB(text) .changes = { { "vocab.json", text } }, .status = GPUSERVE_E_FORMAT

Test(merges_files, broken_vocabularies_are_refused)
{
    static const struct change_case cases[] = {
        { VOCAB(""), .says = "vocab.json: the file is not a JSON object" },
        { VOCAB("[\"a\"]"), .says = "vocab.json: the file is not a JSON object" },
        { VOCAB("{\"a\": 0"), .says = "vocab.json: byte 7" },
        { VOCAB("{\"a\": 0} 1"), .says = "vocab.json: byte 9" },
        { VOCAB("\xEF\xBB\xBF{\"a\": 0}"),
          .says = "vocab.json:1: the file begins with a byte order" },
        { VOCAB("{\"a\": -1}"), .says = "vocab.json: byte 6" },
        { VOCAB("{\"a\": 0.5}"), .says = "vocab.json: byte" },
        { VOCAB("{\"a\": \"0\"}"), .says = "vocab.json: byte 6" },
        { HUGE("16777216") },
        { HUGE("99999999999999999999") },
        { VOCAB("{\"a\": 0, \"a\": 1}"), .says = "vocab.json: duplicate token \"a\"" },
        { VOCAB("{\"a\": 0, \"b\": 2}"), .says = "token id 1 is missing, although ids go up to 2" },
        { VOCAB("{\"\xFF\": 0}"), .says = "vocab.json is not UTF-8 at byte 2" },
        { { { "vocab.json", "{\"a\":0,\"<s>\":1,\"</s>\":2}" }, { "merges.txt", HEAD } },
          GPUSERVE_E_UNSUPPORTED,
          "\"vocab\" has no token for byte 0x00" },
    };

    EXPECT_EACH(cases);
}

Test(merges_files, two_tokens_with_one_id_are_refused)
{
    char folder[] = "/tmp/gpuserve-merges-XXXXXX";
    char *vocab = vocab_with(",\"twice\":7");

    cr_assert(mkdtemp(folder));
    expect(folder, (const struct file[MAX_CHANGES]){ { "vocab.json", vocab } }, GPUSERVE_E_FORMAT,
           "vocab.json: model: two tokens have the id 7");
    free(vocab);
    for (size_t i = 0; i < N_EVERY; i++)
        put_file(folder, every[i], NULL);
    rmdir(folder);
}

#define BERTS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
#define CLASS(name) "{\"tokenizer_class\": \"" name "\"}"
#define CONFIG(text) .changes = { { "tokenizer_config.json", text } }

Test(merges_files, both_files_and_a_known_class_are_needed)
{
    static const struct change_case cases[] = {
        { { { "merges.txt", NULL } },
          GPUSERVE_E_NOT_FOUND,
          "the file merges.txt is missing, which RobertaTokenizer needs" },
        { { { "vocab.json", NULL } },
          GPUSERVE_E_NOT_FOUND,
          "the file vocab.json is missing, which RobertaTokenizer needs" },
        { { { "vocab.json", NULL }, { "merges.txt", NULL } },
          GPUSERVE_E_NOT_FOUND,
          "neither tokenizer.json nor vocab.txt, vocab.json with merges.txt, sentencepiece." },
        { { { "config.json", "{\"model_type\": \"xlm-roberta\"}" } },
          GPUSERVE_E_NOT_FOUND,
          "the file sentencepiece.bpe.model is missing, which XLMRobertaTokenizer needs" },
        { { { "config.json", "{\"model_type\": \"camembert\"}" } },
          GPUSERVE_E_NOT_FOUND,
          "the file sentencepiece.bpe.model is missing, which CamembertTokenizer needs" },
        { { { "config.json", NULL } },
          GPUSERVE_E_UNSUPPORTED,
          "the tokenizer of a model without config.json needs tokenizer.json" },
        { { { "config.json", "{\"model_type\": \"clip\"}" } },
          GPUSERVE_E_UNSUPPORTED,
          "the tokenizer of clip needs tokenizer.json; without it only the tokenizers of" },
        { { { "config.json", "{\"model_type\": \"roberta\", \"tokenizer_class\": \"X\"}" } },
          GPUSERVE_E_UNSUPPORTED,
          "the tokenizer of X needs tokenizer.json" },
        { { { "config.json", "[]" } },
          GPUSERVE_E_FORMAT,
          "config.json: the file is not a JSON object" },
        { CONFIG(CLASS("RobertaTokenizerSlow")), GPUSERVE_E_UNSUPPORTED,
          "of RobertaTokenizerSlow needs tokenizer.json" },
        { CONFIG(CLASS("BertTokenizer")), GPUSERVE_E_UNSUPPORTED,
          "of BertTokenizer needs tokenizer.json" },
        { CONFIG(CLASS("GPT2TokenizerFast")), GPUSERVE_OK, "GPT-2" },
        { { { "vocab.txt", BERTS } }, GPUSERVE_OK, "a vocab.txt that is not RoBERTa's" },
        { { { "vocab.txt", BERTS }, { "merges.txt", NULL } }, GPUSERVE_OK, "BERT" },
        { { { "vocab.txt", BERTS }, { "config.json", NULL } }, GPUSERVE_OK, "BERT" },
    };

    EXPECT_EACH(cases);
}

Test(merges_files, broken_options_and_special_tokens_are_refused)
{
    static const struct change_case cases[] = {
        { CONFIG("{\"add_prefix_space\": 1}"), GPUSERVE_E_FORMAT, "add_prefix_space" },
        { CONFIG("{\"trim_offsets\": \"no\"}"), GPUSERVE_E_FORMAT, "trim_offsets" },
        { CONFIG("{\"cls_token\": null}"), GPUSERVE_E_FORMAT, "\"cls_token\" is null" },
        { CONFIG("{\"sep_token\": null}"), GPUSERVE_E_FORMAT, "\"sep_token\" is null" },
        { CONFIG("{\"sep_token\": \"[SEP]\"}"), GPUSERVE_OK, "one that is added" },
        { CONFIG("{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_bos_token\": 1}"),
          GPUSERVE_E_FORMAT, "add_bos_token" },
        { CONFIG("{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_bos_token\": true, "
                 "\"bos_token\": null}"),
          GPUSERVE_E_FORMAT, "\"add_bos_token\" is set, but \"bos_token\" is missing" },
        { CONFIG("{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_eos_token\": true, "
                 "\"eos_token\": null}"),
          GPUSERVE_E_FORMAT, "\"add_eos_token\" is set, but \"eos_token\" is missing" },
        { { { "special_tokens_map.json", "1" } }, GPUSERVE_E_FORMAT, "special_tokens_map.json" },
        { { { "added_tokens.json", "{\"x\": null}" } }, GPUSERVE_E_FORMAT, "\"x\" has no id" },
    };

    EXPECT_EACH(cases);
}

static const char *kind_of(const char *folder, const char *vocab_txt, const char *class)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;
    const char *kind;

    put_sound(folder);
    put_file(folder, "vocab.txt", vocab_txt);
    put_file(folder, "tokenizer_config.json", class);
    cr_assert_eq(load(&t, folder, NULL, &error), GPUSERVE_OK, "%s", error.message);
    kind = gsv_tokenizer_kind(t);
    gsv_tokenizer_free(&t);
    return kind;
}

Test(merges_files, with_a_vocab_txt_too_the_class_decides)
{
    char folder[] = "/tmp/gpuserve-merges-XXXXXX";

    cr_assert(mkdtemp(folder));
    cr_expect_str_eq(kind_of(folder, BERTS, NULL), "BPE");
    cr_expect_str_eq(kind_of(folder, BERTS, CLASS("BertTokenizer")), "WordPiece");
    for (size_t i = 0; i < N_EVERY; i++)
        put_file(folder, every[i], NULL);
    rmdir(folder);
}

/* config.json is in the folder with the transformer's weights; tokenizer files may be in its
 * parent. */
Test(merges_files, the_class_is_that_of_the_transformers_folder)
{
    char folder[] = "/tmp/gpuserve-merges-XXXXXX", inner[64];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;

    cr_assert(mkdtemp(folder));
    snprintf(inner, sizeof(inner), "%s/0_Transformer", folder);
    cr_assert_eq(mkdir(inner, 0700), 0);
    put_sound(folder);
    put_file(folder, "config.json", NULL);
    put_file(inner, "config.json", "{\"model_type\": \"roberta\"}");
    cr_expect_eq(load(&t, folder, "0_Transformer", &error), GPUSERVE_OK, "%s", error.message);
    gsv_tokenizer_free(&t);
    put_sound(inner);
    put_file(folder, "vocab.json", "{");
    cr_expect_eq(load(&t, folder, "0_Transformer", &error), GPUSERVE_OK, "%s", error.message);
    gsv_tokenizer_free(&t);
    for (size_t i = 0; i < N_EVERY; i++) {
        put_file(inner, every[i], NULL);
        put_file(folder, every[i], NULL);
    }
    rmdir(inner);
    rmdir(folder);
}

Test(merges_files, files_over_the_limit_are_refused)
{
    static const char *const names[] = { "vocab.json", "merges.txt" };
    char folder[] = "/tmp/gpuserve-merges-XXXXXX", path[64];

    cr_assert(mkdtemp(folder));
    for (size_t i = 0; i < 2; i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_tokenizer *t = NULL;

        put_sound(folder);
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        cr_assert_eq(truncate(path, (64 << 20) + 1), 0);
        cr_expect_eq(load(&t, folder, NULL, &error), GPUSERVE_E_TOO_LARGE);
        cr_expect(strstr(error.message, names[i]), "%s", error.message);
    }
    for (size_t i = 0; i < N_EVERY; i++)
        put_file(folder, every[i], NULL);
    rmdir(folder);
}
