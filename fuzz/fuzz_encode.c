/*
 * fuzz_encode.c - arbitrary text for a WordPiece tokenizer in one of several configurations.
 *
 * Byte 0 selects the configuration and the truncation side, byte 1 the token limit; a byte 0x7F
 * starts the second text of a pair. Checks: the fast path and the general path of encode.c agree;
 * truncated results are a prefix or suffix of the full result.
 */
#include "fuzz/fuzz.h"

#include "lib/base/utf8.h"
#include "lib/text/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDED(content, single, left, right, normalized)                                   \
    "{\"id\":0,\"content\":\"" content "\",\"single_word\":" #single ",\"lstrip\":" #left \
    ",\"rstrip\":" #right ",\"normalized\":" #normalized ",\"special\":false}"

static const char added[] = "[" ADDED("[NEW]", false, true, false, false) "," ADDED(
    "one", true, false, false, false) "," ADDED("  a", false, false, false,
                                                false) "," ADDED("<r>", false, false, true,
                                                                 false) "%s]";
static const char *const normalizers[] = {
    "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
    "\"strip_accents\":null,\"lowercase\":true}",
    "{\"type\":\"BertNormalizer\",\"clean_text\":false,\"handle_chinese_chars\":false,"
    "\"strip_accents\":true,\"lowercase\":false}",
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Strip\",\"strip_"
    "left\":true,"
    "\"strip_right\":true},{\"type\":\"Replace\",\"pattern\":{\"String\":\"aa\"},\"content\":\"b\"}"
    "]}",
};

enum { N_SETTINGS = sizeof(normalizers) / sizeof(normalizers[0]) };

static struct gsv_tokenizer *make(const char *normalizer, bool normalized_token)
{
    char tokens[1024], json[4096];
    struct gsv_tokenizer *t = calloc(1, sizeof(*t));

    snprintf(tokens, sizeof(tokens), added,
             normalized_token ? "," ADDED("N\\u00e9w", false, false, true, true) : "");
    snprintf(
        json, sizeof(json),
        "{\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
        "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],\"cls\":[\"[CLS]\","
        "1]},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
        "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":9,\"vocab\":{\"[UNK]\":"
        "0,"
        "\"[CLS]\":1,\"[SEP]\":2,\"a\":3,\"##a\":4,\"ab\":5,\"##b\":6,\"b\":7,\"##abc\":8,\"e\":9,"
        "\"\\u00e9\":10,\"##e\":11,\"\\u5b57\":12,\"##c\":13,\".\":14,\"[\":15,\"aabb\":16}}}",
        tokens, normalizer);
    if (!t || gsv_tokenizer_read_json(t, json, strlen(json), "fuzz", NULL) != GPUSERVE_OK ||
        gsv_tokenizer_finish(t, "fuzz", NULL) != GPUSERVE_OK)
        abort();
    return t;
}

/* The fast path and the general path give the same ids and spans. */
static void compare_ways(struct gsv_tokenizer *t, const char *text, size_t size)
{
    struct gsv_encoding one = { 0 }, other = { 0 };
    const bool scans = t->scans;

    if (gsv_tokenizer_encode(t, &one, text, size, NULL, 0, NULL, NULL) != GPUSERVE_OK)
        abort();
    t->scans = false;
    if (gsv_tokenizer_encode(t, &other, text, size, NULL, 0, NULL, NULL) != GPUSERVE_OK)
        abort();
    t->scans = scans;
    if (one.n != other.n || memcmp(one.ids, other.ids, one.n * sizeof(*one.ids)) != 0 ||
        memcmp(one.spans, other.spans, one.n * sizeof(*one.spans)) != 0)
        abort();
    gsv_encoding_reset(&one);
    gsv_encoding_reset(&other);
}

/* Truncation at either side keeps the first or the last tokens of the full result. */
static void compare_cut(const struct gsv_tokenizer *t, const char *text, size_t size, size_t limit,
                        bool left)
{
    const struct gsv_encode_options options = { .max_tokens = limit,
                                                .truncation = left ? GPUSERVE_TRUNCATE_LEFT
                                                                   : GPUSERVE_TRUNCATE_RIGHT };
    struct gsv_encoding whole = { 0 }, cut = { 0 };
    size_t from;

    if (gsv_tokenizer_encode(t, &whole, text, size, NULL, 0, NULL, NULL) != GPUSERVE_OK ||
        gsv_tokenizer_encode(t, &cut, text, size, NULL, 0, &options, NULL) != GPUSERVE_OK)
        abort();
    if (cut.truncated != (whole.n > limit) || cut.n != (whole.n > limit ? limit : whole.n))
        abort();
    from = left ? whole.n - cut.n : 0;
    for (size_t i = 1; i + 1 < cut.n; i++)
        if (cut.ids[i] != whole.ids[from + i] ||
            cut.spans[i].begin != whole.spans[from + i].begin ||
            cut.spans[i].end != whole.spans[from + i].end || cut.spans[i].end > size)
            abort();
    gsv_encoding_reset(&whole);
    gsv_encoding_reset(&cut);
}

static void pair(const struct gsv_tokenizer *t, const char *text, size_t size, size_t limit,
                 bool left)
{
    const struct gsv_encode_options options = { .max_tokens = limit,
                                                .truncation = left ? GPUSERVE_TRUNCATE_LEFT
                                                                   : GPUSERVE_TRUNCATE_RIGHT };
    const char *second = memchr(text, 0x7F, size);
    const size_t first = second ? (size_t)(second - text) : size;
    struct gsv_encoding e = { 0 };

    if (gsv_tokenizer_encode(t, &e, text, first, text + first, size - first, &options, NULL) !=
            GPUSERVE_OK ||
        e.n > limit || e.ids[0] != 1 || e.ids[e.n - 1] != 2)
        abort();
    gsv_encoding_reset(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gsv_tokenizer *tokenizers[2 * N_SETTINGS];
    struct gsv_tokenizer *t;
    const char *text = (const char *)data + 2;
    size_t limit;
    bool left;

    if (size < 2)
        return 0;
    for (size_t i = 0; i < 2 * N_SETTINGS && !tokenizers[i]; i++)
        tokenizers[i] = make(normalizers[i / 2], i % 2);
    t = tokenizers[(data[0] >> 1) % (2 * N_SETTINGS)];
    left = data[0] & 1;
    limit = 3 + data[1] % 64;
    size -= 2;
    if (gsv_utf8_valid_length(text, size) != size) {
        struct gsv_encoding e = { 0 };

        if (gsv_tokenizer_encode(t, &e, text, size, NULL, 0, NULL, NULL) != GPUSERVE_E_INVALID)
            abort();
        gsv_encoding_reset(&e);
        return 0;
    }
    compare_ways(t, text, size);
    compare_cut(t, text, size, limit, left);
    pair(t, text, size, limit, left);
    return 0;
}
