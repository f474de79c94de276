/*
 * fuzz_bpe.c - arbitrary UTF-8 text for a BPE tokenizer in one of several configurations.
 *
 * Byte 0 selects the configuration, byte 1 the token limit. Checks: a word split into chunks gives
 * the same tokens as the unsplit word; spans are inside the text; right truncation gives a prefix
 * of the full result; ids can be decoded.
 */
#include "fuzz/fuzz.h"

#include "lib/base/utf8.h"
#include "lib/text/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

#define MODEL(options)                                                                       \
    "\"model\":{\"type\":\"BPE\"," options "\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"ab\":3,"    \
    "\"ba\":4,\"aa\":5,\"aaaa\":6,\"\\u0120\":7,\"\\u0120a\":8,\"\\u2581\":9,"               \
    "\"\\u2581a\":10,\"<0xC3>\":11,\"<0xA9>\":12,\"\\u5b57\":13,\"a\\u5b57\":14,\"1\":15,"   \
    "\"11\":16,\"\\u00c3\":17,\"\\u00c3\\u00a9\":18,\"\\u00a9\":19},\"merges\":[\"a a\","    \
    "\"aa aa\",\"b a\",\"a b\",\"\\u0120 a\",\"\\u2581 a\",\"a \\u5b57\",\"1 1\",\"\\u00c3 " \
    "\\u00a9\"]}"
#define BYTE_LEVEL(prefix, regex)                                                    \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"trim_offsets\":true," \
    "\"use_regex\":" regex "}"
#define ADDED                                                                                \
    "\"added_tokens\":[{\"id\":0,\"content\":\"[N]\",\"single_word\":false,\"lstrip\":true," \
    "\"rstrip\":false,\"normalized\":false,\"special\":false}],"

static const char *const settings[] = {
    "{" ADDED "\"pre_tokenizer\":" BYTE_LEVEL("false", "true") ",\"post_processor\":" BYTE_LEVEL(
        "true", "true") "," MODEL("\"unk_token\":\"?\",") ",\"decoder\":" BYTE_LEVEL("true",
                                                                                     "true") "}",
    "{" ADDED "\"pre_tokenizer\":" BYTE_LEVEL("true", "false") "," MODEL(
        "\"unk_token\":\"?\",\"ignore_merges\":true,") "}",
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"split\":false}"
    "," MODEL(
        "\"byte_fallback\":true,") ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
                                   "\"ByteFallback\"},{\"type\":\"Fuse\"}]}}",
    "{" MODEL("\"unk_token\":\"?\",\"byte_fallback\":true,\"fuse_unk\":true,") "}",
    "{" MODEL("\"unk_token\":\"?\",\"end_of_word_suffix\":\"a\",") ",\"pre_tokenizer\":{\"type\":"
                                                                   "\"Digits\",\"individual_"
                                                                   "digits\":false}}",
};

enum { N_SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static struct gsv_tokenizer *make(const char *json, bool whole)
{
    struct gsv_tokenizer *t = calloc(1, sizeof(*t));

    if (!t || gsv_tokenizer_read_json(t, json, strlen(json), "fuzz", NULL) != GPUSERVE_OK ||
        gsv_tokenizer_finish(t, "fuzz", NULL) != GPUSERVE_OK)
        abort();
    t->serial = whole ? 2 : 1;
    if (whole) /* any two characters may be joined in a token: words are never split */
        memset(t->model.bpe.joined, 0xFF, ((size_t)1 << GSV_BPE_JOINED_BITS) / 8);
    return t;
}

static void encode(const struct gsv_tokenizer *t, struct gsv_encoding *e, const char *text,
                   size_t size, size_t limit)
{
    const struct gsv_encode_options options = { .max_tokens = limit,
                                                .truncation = GPUSERVE_TRUNCATE_RIGHT };

    if (gsv_tokenizer_encode(t, e, text, size, NULL, 0, &options, NULL) != GPUSERVE_OK)
        abort();
    for (size_t i = 0; i < e->n; i++)
        if (e->spans[i].begin > e->spans[i].end || e->spans[i].end > size)
            abort();
}

static void compare(const struct gsv_encoding *a, const struct gsv_encoding *b, size_t n)
{
    if (a->n < n || b->n < n)
        abort();
    for (size_t i = 0; i < n; i++)
        if (a->ids[i] != b->ids[i] || a->spans[i].begin != b->spans[i].begin ||
            a->spans[i].end != b->spans[i].end)
            abort();
}

static void decode(const struct gsv_tokenizer *t, const struct gsv_encoding *e)
{
    size_t size = 0;
    char *text;

    if (gsv_tokenizer_decode(t, e->ids, e->n, false, NULL, 0, &size, NULL) != GPUSERVE_E_TOO_LARGE)
        abort();
    text = malloc(size);
    if (!text ||
        gsv_tokenizer_decode(t, e->ids, e->n, false, text, size, NULL, NULL) != GPUSERVE_OK ||
        gsv_utf8_valid_length(text, size - 1) != size - 1)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gsv_tokenizer *cut[N_SETTINGS], *whole[N_SETTINGS];
    struct gsv_encoding one = { 0 }, other = { 0 };
    const char *text = (const char *)data + 2;
    size_t setting;

    if (size < 2 || gsv_utf8_valid_length(text, size - 2) != size - 2)
        return 0;
    size -= 2;
    setting = data[0] % N_SETTINGS;
    if (!cut[setting]) {
        cut[setting] = make(settings[setting], false);
        whole[setting] = make(settings[setting], true);
    }
    encode(cut[setting], &one, text, size, 0);
    encode(whole[setting], &other, text, size, 0);
    if (one.n != other.n)
        abort();
    compare(&one, &other, one.n);
    encode(cut[setting], &other, text, size, 1 + data[1] % 64);
    compare(&one, &other, other.n);
    decode(cut[setting], &one);
    gsv_encoding_reset(&one);
    gsv_encoding_reset(&other);
    return 0;
}
