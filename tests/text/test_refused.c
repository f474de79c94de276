/*
 * test_refused.c - a complete tokenizer.json with one error: each is rejected with a message that
 * names it.
 *
 * Each case isolates one check: without it, the file would be accepted, or rejected for another
 * reason.
 */
#define _GNU_SOURCE
#include "tests/text/support.h"

#include "lib/text/pipeline/added_tokens.h"
#include "lib/text/pipeline/decoder.h"
#include "lib/text/pipeline/normalizer.h"
#include "lib/text/pipeline/post_processor.h"
#include "lib/text/pipeline/pretokenizer.h"
#include "lib/text/models/vocab.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPLATE                                                                            \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\","     \
    "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":" \
    "{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"           \
    "\"special_tokens\":{\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[1],\"tokens\":[\"[CLS]\"]}}}"

static const char good[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
    "\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":" TEMPLATE ","
    "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},"
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##"
    "\","
    "\"max_input_chars_per_word\":9,\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"a\":3}}}";

/* Replaces `from` in the valid file by `to`. */
struct wrong {
    const char *from, *to, *says;
    gpuserve_status status;
};

#define ENDS "\"post_processor\":" TEMPLATE
#define BERT_ENDS(cls) \
    "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],\"cls\":" cls "}"
#define NO_NORMALIZER "\"normalizer\":null"
#define NO_WORDS "\"pre_tokenizer\":null"
#define NO_TRUNCATION "\"truncation\":null"
#define NO_PADDING "\"padding\":null"
#define REPLACE(fields) "\"normalizer\":{\"type\":\"Replace\"," fields "}"
#define PRECOMPILED(map) \
    "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":" map "}"
#define PAD(strategy, direction)                                                       \
    "\"padding\":{\"strategy\":" strategy ",\"direction\":" direction ",\"pad_id\":0," \
    "\"pad_type_id\":0,\"pad_token\":\"[PAD]\"}"
#define WORDS(fields) "\"pre_tokenizer\":{" fields "}"
#define SPLIT(fields) WORDS("\"type\":\"Split\",\"invert\":false," fields)
#define BYTES(more) "\"type\":\"ByteLevel\",\"trim_offsets\":true,\"add_prefix_space\":true" more
#define DECODER "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"
#define DECODES(fields) "\"decoder\":{" fields "}"
#define WORDPIECE \
    "\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\""
#define BPE(options, merges) "\"type\":\"BPE\"," options "\"merges\":" merges
#define META(options) WORDS("\"type\":\"Metaspace\",\"replacement\":" options)
#define CUT(strategy, direction)                                                              \
    "\"truncation\":{\"strategy\":" strategy ",\"direction\":" direction ",\"max_length\":9," \
    "\"stride\":0}"

static const struct wrong cases[] = {
    { "\"version\":\"1.0\"", "\"version\":1", "\"version\" is", GPUSERVE_E_UNSUPPORTED },
    { NO_NORMALIZER, "\"normalizer\":{\"type\":\"Sequence\"}", "\"normalizers\" is missing",
      GPUSERVE_E_FORMAT },
    { NO_NORMALIZER, "\"normalizer\":{\"type\":5}", "a normalizer has no \"type\"",
      GPUSERVE_E_UNSUPPORTED },
    { NO_NORMALIZER, REPLACE("\"pattern\":{\"String\":\"\"},\"content\":\"b\""),
      "\"pattern\" is empty or missing", GPUSERVE_E_UNSUPPORTED },
    { NO_NORMALIZER, REPLACE("\"pattern\":{\"String\":\"a\"}"), "\"content\" is missing",
      GPUSERVE_E_FORMAT },
    { NO_NORMALIZER, REPLACE("\"pattern\":{\"String\":\"a\"},\"content\":1"),
      "\"content\" is missing", GPUSERVE_E_FORMAT },
    { NO_NORMALIZER, REPLACE("\"pattern\":{\"Regex\":\" +\"},\"content\":\"b\""),
      "the regex \" +\" is not supported", GPUSERVE_E_UNSUPPORTED },
    { NO_NORMALIZER, "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"\"}",
      "\"Prepend\": \"prepend\" is missing", GPUSERVE_E_UNSUPPORTED },
    { NO_NORMALIZER, "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":[1]}",
      "\"Prepend\": \"prepend\" is missing", GPUSERVE_E_UNSUPPORTED },
    { NO_NORMALIZER, "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":1}",
      "\"Prepend\": \"prepend\" is missing", GPUSERVE_E_UNSUPPORTED },
    { NO_NORMALIZER, PRECOMPILED("null"), "\"Precompiled\": \"precompiled_charsmap\" is missing",
      GPUSERVE_E_FORMAT },
    { NO_NORMALIZER, PRECOMPILED("\"AAA\""), "is not base64", GPUSERVE_E_FORMAT },
    { NO_NORMALIZER, PRECOMPILED("\"BAAAAA==\""), "a trie of 4 bytes does not fit the 4",
      GPUSERVE_E_FORMAT },
    { NO_WORDS, "\"pre_tokenizer\":{}", "a pre-tokenizer has no \"type\"", GPUSERVE_E_UNSUPPORTED },
    { NO_WORDS, "\"pre_tokenizer\":{\"type\":\"Sequence\"}", "\"pretokenizers\" is missing",
      GPUSERVE_E_FORMAT },
    { NO_WORDS, "\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Odd\"}",
      "\"Punctuation\": behavior \"Odd\"", GPUSERVE_E_UNSUPPORTED },
    { "\"type\":\"WordPiece\",\"prefix\"", "\"type\":\"CTC\",\"prefix\"", "decoder \"CTC\"",
      GPUSERVE_E_UNSUPPORTED },
    { "\"decoder\":{\"type\":\"WordPiece\"", "\"decoder\":{\"type\":\"Metaspace\"",
      "\"replacement\" is not a single character", GPUSERVE_E_FORMAT },
    { "\"type\":\"WordPiece\",\"prefix\"", "\"prefix\"", "decoder \"\"", GPUSERVE_E_UNSUPPORTED },

    { NO_TRUNCATION, "\"truncation\":1", "\"truncation\" is not an object", GPUSERVE_E_FORMAT },
    { NO_TRUNCATION, CUT("\"Odd\"", "\"Left\""), "unknown value of \"strategy\": \"Odd\"",
      GPUSERVE_E_FORMAT },
    { NO_TRUNCATION, CUT("\"OnlyFirst\"", "1"), "unknown value of \"direction\": \"not a string\"",
      GPUSERVE_E_FORMAT },
    { NO_PADDING, "\"padding\":[]", "\"padding\" is not an object", GPUSERVE_E_FORMAT },
    { NO_PADDING, PAD("{\"Odd\":9}", "\"Left\""), "\"Fixed\" is missing", GPUSERVE_E_FORMAT },
    { NO_PADDING, PAD("\"BatchLongest\"", "\"Up\""), "unknown value of \"direction\": \"Up\"",
      GPUSERVE_E_FORMAT },

    { ENDS, BERT_ENDS("[\"[CLS]\"]"), "\"cls\" is not [token, id]", GPUSERVE_E_FORMAT },
    { ENDS, BERT_ENDS("[\"[CLS]\",1,1]"), "\"cls\" is not [token, id]", GPUSERVE_E_FORMAT },
    { ENDS, BERT_ENDS("[1,1]"), "\"cls\" is not [token, id]", GPUSERVE_E_FORMAT },
    { ENDS, BERT_ENDS("[\"[CLS]\",1.5]"), "\"cls\" is not [token, id]", GPUSERVE_E_FORMAT },
    { ENDS, BERT_ENDS("[\"[CLS]\",-1]"), "\"cls\" is not [token, id]", GPUSERVE_E_FORMAT },
    { ENDS, BERT_ENDS("[\"[CLS]\",16777216]"), "\"cls\" is not [token, id]", GPUSERVE_E_FORMAT },
    { ENDS,
      "\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"a\",1],\"cls\":[\"b\",2],"
      "\"trim_offsets\":true}",
      "\"trim_offsets\" or \"add_prefix_space\" is missing", GPUSERVE_E_UNSUPPORTED },
    { ENDS,
      "\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"a\",1],\"cls\":[\"b\",2],"
      "\"add_prefix_space\":true}",
      "\"trim_offsets\" or \"add_prefix_space\" is missing", GPUSERVE_E_UNSUPPORTED },
    { ENDS, "\"post_processor\":{\"cls\":[\"b\",2]}", "post-processor \"\"",
      GPUSERVE_E_UNSUPPORTED },
    { "\"type_id\":0", "\"type_id\":256", "\"type_id\" is 256, the limit is 255",
      GPUSERVE_E_TOO_LARGE },
    { "\"id\":\"[CLS]\",\"type_id\"", "\"id\":\"[SOS]\",\"type_id\"",
      "special token \"[SOS]\" is missing", GPUSERVE_E_FORMAT },
    { "\"ids\":[1]", "\"ids\":[16777216]", "an id of \"[CLS]\" exceeds 16777215",
      GPUSERVE_E_TOO_LARGE },
    { "\"ids\":[1]", "\"ids\":[1.5]", "invalid id of \"[CLS]\"", GPUSERVE_E_FORMAT },
    { "\"ids\":[1]", "\"ids\":[-1]", "invalid id of \"[CLS]\"", GPUSERVE_E_FORMAT },
    { "\"ids\":[1]", "\"ids\":[4294967296]", "invalid id of \"[CLS]\"", GPUSERVE_E_FORMAT },
    { "\"tokens\":[\"[CLS]\"]", "\"tokens\":[1]", "a token of \"[CLS]\" is not a string",
      GPUSERVE_E_FORMAT },
    { "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]", "7]", "piece 1 of a template",
      GPUSERVE_E_FORMAT },
    { "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]", "[{\"id\":\"A\",\"type_id\":0}]]",
      "piece 1 of a template", GPUSERVE_E_FORMAT },
    { "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]",
      "{\"Sequence\":{\"id\":\"A\",\"type_id\":0},\"x\":{}}]", "piece 1 of a template",
      GPUSERVE_E_FORMAT },
    { "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]", "{\"Sequence\":{\"id\":7,\"type_id\":0}}]",
      "piece 1 of a template", GPUSERVE_E_FORMAT },
    { "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]",
      "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]",
      "must contain each text once", GPUSERVE_E_UNSUPPORTED },

    { NO_WORDS, WORDS("\"type\":\"ByteLevel\",\"trim_offsets\":true"),
      "\"add_prefix_space\" is missing", GPUSERVE_E_FORMAT },
    { NO_WORDS, WORDS("\"type\":\"ByteLevel\",\"add_prefix_space\":true"),
      "\"trim_offsets\" is missing", GPUSERVE_E_FORMAT },
    { NO_WORDS, WORDS(BYTES(",\"use_regex\":1")), "\"use_regex\" is not", GPUSERVE_E_FORMAT },
    { NO_WORDS, WORDS(BYTES("")), "\"ByteLevel\" with a WordPiece model", GPUSERVE_E_UNSUPPORTED },
    { NO_WORDS,
      WORDS("\"type\":\"Sequence\",\"pretokenizers\":[{" BYTES("") "},{\"type\":\"Whitespace\"}]"),
      "a pre-tokenizer after \"ByteLevel\"", GPUSERVE_E_UNSUPPORTED },
    { NO_WORDS, WORDS("\"type\":\"Digits\""), "\"individual_digits\" is missing",
      GPUSERVE_E_FORMAT },
    { NO_WORDS, SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"a+\"}"),
      "\"Split\": regex \"a+\"", GPUSERVE_E_UNSUPPORTED },
    { NO_WORDS, SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"String\":\"\"}"),
      "\"Split\": an empty string", GPUSERVE_E_UNSUPPORTED },
    { NO_WORDS, SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"String\":\"12345678901234567\"}"),
      "the string has more than 16 characters", GPUSERVE_E_TOO_LARGE },
    { NO_WORDS, SPLIT("\"behavior\":\"Isolated\""), "neither a regex nor a string",
      GPUSERVE_E_FORMAT },
    { NO_WORDS, META("\"a\",\"prepend_scheme\":\"sometimes\""), "\"prepend_scheme\" \"sometimes\"",
      GPUSERVE_E_FORMAT },
    { NO_WORDS, META("\"a\",\"prepend_scheme\":\"always\",\"add_prefix_space\":false"),
      "\"prepend_scheme\" \"always\"", GPUSERVE_E_FORMAT },
    { NO_WORDS, META("\"ab\""), "\"replacement\" is not a single character", GPUSERVE_E_FORMAT },
    { NO_WORDS, META("\"\""), "\"replacement\" is not a single character", GPUSERVE_E_FORMAT },
    { NO_WORDS, SPLIT("\"behavior\":\"Isolated\",\"pattern\":\"a\""),
      "neither a regex nor a string", GPUSERVE_E_FORMAT },
    { NO_WORDS, SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"String\":1}"),
      "neither a regex nor a string", GPUSERVE_E_FORMAT },
    { NO_WORDS,
      SPLIT("\"behavior\":\"Isolated\",\"pattern\":{\"String\":\"a\",\"Regex\":\"\\\\p{N}{1,3}\"}"),
      "neither a regex nor a string", GPUSERVE_E_FORMAT },
    { NO_WORDS, SPLIT("\"behavior\":\"Odd\",\"pattern\":{\"String\":\"a\"}"),
      "\"Split\": behavior \"Odd\"", GPUSERVE_E_UNSUPPORTED },
    { NO_WORDS, SPLIT("\"pattern\":{\"String\":\"a\"}"), "\"behavior\" is missing",
      GPUSERVE_E_FORMAT },
    { NO_WORDS,
      WORDS("\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"String\":\"a\"}"),
      "\"invert\" is missing", GPUSERVE_E_FORMAT },

    { ENDS, "\"post_processor\":{\"type\":\"ByteLevel\",\"trim_offsets\":true}",
      "\"ByteLevel\": \"trim_offsets\" or \"add_prefix_space\" is missing",
      GPUSERVE_E_UNSUPPORTED },
    { ENDS, "\"post_processor\":{\"type\":\"Sequence\"}", "\"processors\" is missing",
      GPUSERVE_E_FORMAT },
    { ENDS,
      "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{" BYTES("") "},{" BYTES("") "}]}",
      "two post-processors with \"trim_offsets\"", GPUSERVE_E_UNSUPPORTED },
    { ENDS,
      "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" TEMPLATE ",{" BYTES("") "}]}",
      "\"ByteLevel\" after one that adds special tokens", GPUSERVE_E_UNSUPPORTED },

    { DECODER, DECODES("\"type\":\"Sequence\""), "\"decoders\" is missing", GPUSERVE_E_FORMAT },
    { DECODER, DECODES("\"type\":\"Sequence\",\"decoders\":[{\"type\":\"CTC\"}]"),
      "decoder \"CTC\"", GPUSERVE_E_UNSUPPORTED },
    { DECODER, DECODES("\"type\":\"ByteLevel\",\"trim_offsets\":true"),
      "decoder \"ByteLevel\": \"trim_offsets\" or \"add_prefix_space\" is missing",
      GPUSERVE_E_FORMAT },
    { DECODER, DECODES("\"type\":\"BPEDecoder\""), "\"BPEDecoder\": an empty or missing suffix",
      GPUSERVE_E_UNSUPPORTED },
    { DECODER, DECODES("\"type\":\"BPEDecoder\",\"suffix\":\"\""),
      "\"BPEDecoder\": an empty or missing suffix", GPUSERVE_E_UNSUPPORTED },
    { DECODER, DECODES("\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\""),
      "decoder \"Replace\": only a literal", GPUSERVE_E_UNSUPPORTED },
    { DECODER, DECODES("\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}"),
      "decoder \"Replace\": \"content\" is missing", GPUSERVE_E_FORMAT },
    { DECODER, DECODES("\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"b\""),
      "decoder \"Replace\": only a literal", GPUSERVE_E_UNSUPPORTED },
    { DECODER, DECODES("\"type\":\"Strip\",\"content\":\"\",\"start\":1,\"stop\":0"),
      "\"content\" is not a single character", GPUSERVE_E_FORMAT },
    { DECODER, DECODES("\"type\":\"Strip\",\"start\":1,\"stop\":0"),
      "\"content\" is not a single character", GPUSERVE_E_FORMAT },
    { DECODER, DECODES("\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0"),
      "\"content\" is not a single character", GPUSERVE_E_FORMAT },
    { DECODER, DECODES("\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":1"),
      "\"Strip\": \"stop\" 1 is not supported", GPUSERVE_E_UNSUPPORTED },
    { DECODER, DECODES("\"type\":\"Strip\",\"content\":\"a\",\"start\":1"), "\"stop\" is missing",
      GPUSERVE_E_FORMAT },

    { WORDPIECE, "\"type\":\"BPE\"", "model: \"merges\" is missing", GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[\"a\"]"), "merge 0 is not two tokens", GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[\"a a a\"]"), "merge 0 is not two tokens", GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[[\"a\"]]"), "merge 0 is not a pair of strings", GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[[\"a\",\"a\",\"a\"]]"), "merge 0 is not a pair of strings",
      GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[[\"a\",1]]"), "merge 0 is not a pair of strings", GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[1]"), "merge 0 is not a string", GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[\"b a\"]"), "merge 0: a token of the merge or its result",
      GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[\"a b\"]"), "merge 0: a token of the merge or its result",
      GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("", "[\"a a\"]"), "merge 0: a token of the merge or its result",
      GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("\"dropout\":0.1,", "[]"), "\"dropout\" 0.1", GPUSERVE_E_UNSUPPORTED },
    { WORDPIECE, BPE("\"fuse_unk\":1,", "[]"), "\"fuse_unk\" is neither", GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("\"unk_token\":\"b\",", "[]"), "\"unk_token\" is not in the vocabulary",
      GPUSERVE_E_FORMAT },
    { WORDPIECE, BPE("\"byte_fallback\":true,\"continuing_subword_prefix\":\"a\",", "[]"),
      "\"byte_fallback\" together with a prefix", GPUSERVE_E_UNSUPPORTED },
    { WORDPIECE, BPE("\"byte_fallback\":true,\"end_of_word_suffix\":\"a\",", "[]"),
      "\"byte_fallback\" together with a prefix", GPUSERVE_E_UNSUPPORTED },
    { WORDPIECE,
      BPE("\"end_of_word_suffix\":"
          "\"12345678901234567890123456789012345678901234567890123456789012345\",",
          "[]"),
      "\"end_of_word_suffix\" has 65 bytes, the limit is 64", GPUSERVE_E_TOO_LARGE },

    { "\"continuing_subword_prefix\":\"##\"", "\"continuing_subword_prefix\":2",
      "\"continuing_subword_prefix\" is not a string", GPUSERVE_E_FORMAT },
    { "\"continuing_subword_prefix\":\"##\"", "\"continuing_subword_prefix\":\"#\\u0000\"",
      "\"continuing_subword_prefix\" contains a NUL", GPUSERVE_E_UNSUPPORTED },
    { "\"max_input_chars_per_word\":9,", "", "\"max_input_chars_per_word\" is missing",
      GPUSERVE_E_FORMAT },
    { "\"vocab\":", "\"vokab\":", "model: \"vocab\" is missing", GPUSERVE_E_FORMAT },
    { "\"a\":3", "\"a\":16777216", "id exceeds 16777215", GPUSERVE_E_TOO_LARGE },
    { "\"a\":3", "\"a\":3,\"a\":4", "duplicate token \"a\"", GPUSERVE_E_FORMAT },
};

/* The valid file with a change; owned. */
static char *changed(const char *from, const char *to)
{
    const char *place = strstr(good, from);
    char *made;

    cr_assert(place, "'%s' is not there", from);
    cr_assert(asprintf(&made, "%.*s%s%s", (int)(place - good), good, to, place + strlen(from)) > 0);
    return made;
}

static void expect_refused(const struct wrong *c)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;
    char *text = changed(c->from, c->to);

    cr_expect_eq(load_text(&t, "tokenizer.json", text, strlen(text), &error), c->status,
                 "%.200s: %s", c->to, error.message);
    cr_expect(strstr(error.message, c->says), "%.200s: '%s' is not in: %s", c->to, c->says,
              error.message);
    gsv_tokenizer_free(&t);
    free(text);
}

Test(refused, whatever_one_thing_is_wrong)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;

    cr_assert_eq(load_text(&t, "tokenizer.json", good, strlen(good), &error), GPUSERVE_OK, "%s",
                 error.message);
    gsv_tokenizer_free(&t);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refused(&cases[i]);
}

/* "BEGIN item,item,...,item END"; owned. `item` may hold one %d, the item's number. */
static char *list(const char *begin, size_t n, const char *item, const char *end)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    fputs(begin, f);
    for (size_t i = 0; i < n; i++) {
        fputs(i > 0 ? "," : "", f);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        fprintf(f, item, (int)i);
#pragma GCC diagnostic pop
    }
    fputs(end, f);
    fclose(f);
    return text;
}

/* Exactly `most` items are accepted, one more is rejected. */
static void expect_at_most(size_t most, const char *from, const char *begin, const char *item,
                           const char *end, const char *says)
{
    char *fits = list(begin, most, item, end), *one_more = list(begin, most + 1, item, end);
    char *text = changed(from, fits);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;

    cr_expect_eq(load_text(&t, "tokenizer.json", text, strlen(text), &error), GPUSERVE_OK, "%s",
                 error.message);
    gsv_tokenizer_free(&t);
    expect_refused(&(struct wrong){ from, one_more, says, GPUSERVE_E_TOO_LARGE });
    free(text);
    free(one_more);
    free(fits);
}

/* Two changes: the pre-tokenizer or an id, and the model. */
Test(refused, a_vocabulary_that_bpe_cannot_do_with)
{
    static const char *const both[][2] = {
        { "{\"pre_tokenizer\":{" BYTES("") "},\"model\":{\"vocab\":{\"a\":0}," BPE("", "[]") "}}",
          "has no token for byte 0x00" },
        { "{\"pre_tokenizer\":{" BYTES("") "},\"model\":{\"vocab\":{\"a\":0}," BPE(
              "\"unk_token\":\"a\",\"byte_fallback\":true,", "[]") "}}",
          "has no token for byte 0x00" },
        { "{\"model\":{\"vocab\":{\"a\":0,\"b\":0}," BPE("", "[]") "}}",
          "two tokens have the id 0" },
    };

    for (size_t i = 0; i < sizeof(both) / sizeof(both[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_tokenizer *t = NULL;

        cr_expect_neq(load_text(&t, "tokenizer.json", both[i][0], strlen(both[i][0]), &error),
                      GPUSERVE_OK);
        cr_expect(strstr(error.message, both[i][1]), "'%s' is not in: %s", both[i][1],
                  error.message);
    }
}

Test(refused, one_step_token_or_byte_too_many)
{
    expect_at_most(GSV_DECODER_MAX_STEPS, DECODER,
                   "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[", "{\"type\":\"Fuse\"}", "]}",
                   "more than 16 steps");
    expect_at_most(GSV_NORMAL_MAX_STEPS, NO_NORMALIZER,
                   "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[", "{\"type\":\"NFC\"}",
                   "]}", "more than 64 steps");
    expect_at_most(GSV_PRETOKEN_MAX_STEPS, NO_WORDS,
                   "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
                   "{\"type\":\"Whitespace\"}", "]}", "more than 16 steps");
    expect_at_most(GSV_TEMPLATE_MAX, "\"ids\":[1]", "\"ids\":[", "1", "]",
                   "more than 64 special tokens");
    expect_at_most(GSV_ADDED_MAX, "\"added_tokens\":[]", "\"added_tokens\":[",
                   "{\"id\":0,\"content\":\"t%d\",\"single_word\":false,\"lstrip\":false,"
                   "\"rstrip\":false,\"normalized\":false,\"special\":false}",
                   "]", "more than 16384 added tokens");
}

/* A text of `n` letters between `begin` and `end`; owned. */
static char *letters(const char *begin, size_t n, const char *end)
{
    const size_t before = strlen(begin);
    char *text = malloc(before + n + strlen(end) + 1);

    memcpy(text, begin, before);
    memset(text + before, 'x', n);
    strcpy(text + before + n, end);
    return text;
}

Test(refused, a_token_that_is_too_long)
{
    char *added =
        letters("\"added_tokens\":[{\"id\":4,\"content\":\"", GSV_ADDED_MAX_BYTES + 1,
                "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                "\"special\":false}]");
    char *token = letters("\"", GSV_VOCAB_MAX_TOKEN_BYTES + 1, "\":3");

    expect_refused(&(struct wrong){ "\"added_tokens\":[]", added, "an added token has 4097 bytes",
                                    GPUSERVE_E_TOO_LARGE });
    expect_refused(
        &(struct wrong){ "\"a\":3", token, "a token has 65537 bytes", GPUSERVE_E_TOO_LARGE });
    free(added);
    free(token);
}

Test(refused, an_appended_token_over_the_last_id)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_vocab vocab = { 0 };

    cr_expect_eq(gsv_vocab_append(&vocab, "a", 1, GSV_VOCAB_MAX_ID + 1, "t", &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect(strstr(error.message, "id exceeds 16777215"), "%s", error.message);
    cr_expect_eq(gsv_vocab_append(&vocab, "a", (size_t)1 << 29, 1, "t", &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect(strstr(error.message, "the vocabulary exceeds"), "%s", error.message);
    gsv_vocab_reset(&vocab);
}

/* An empty line is a token too: a file of 1 MB has 2^20 of them. */
Test(refused, a_list_of_more_lines_than_there_are_ids)
{
    const size_t n = (size_t)GSV_VOCAB_MAX_ID + 2;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_vocab vocab = { 0 };
    char *lines = malloc(n);

    memset(lines, '\n', n);
    cr_expect_eq(gsv_vocab_read_lines(&vocab, lines, n, "t", &error), GPUSERVE_E_TOO_LARGE);
    cr_expect(strstr(error.message, "more than 16777216 lines"), "%s", error.message);
    free(lines);
    gsv_vocab_reset(&vocab);
}

/* A vocabulary may have an empty token, but a merge cannot produce it. */
Test(refused, a_merge_of_nothing)
{
    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\":0,\"a\":1},"
                               "\"merges\":[\" a\"]}}";
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tokenizer *t = NULL;

    cr_expect_eq(load_text(&t, "tokenizer.json", json, strlen(json), &error), GPUSERVE_E_FORMAT);
    cr_expect(strstr(error.message, "merge 0: a token of the merge or its result"), "%s",
              error.message);
}
