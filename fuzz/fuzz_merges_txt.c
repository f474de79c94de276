/*
 * fuzz_merges_txt.c - arbitrary bytes as merges.txt, vocab.json and tokenizer_config.json.
 *
 * Bit 0 of byte 0 selects the tokenizer class; a NUL ends the config. With bit 1 the text up to the
 * next NUL is the vocabulary, which rarely has a token for each byte. Otherwise a built-in
 * vocabulary with all bytes is used.
 */
#include "fuzz/fuzz.h"

#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/models/byte_alphabet.h"
#include "lib/text/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A token for each byte, and some that merges can produce. */
static struct gsv_text_file whole_vocab(void)
{
    static const char *const more[] = { "ab", "abc", "abab", "\xC4\xA0\x61", "<s>", "</s>", "<m>" };
    static char text[8192];
    size_t n = 0, id = 0;

    for (uint32_t c = 0; c < 0x144; c++) {
        char character[5] = { 0 };

        if (gsv_byte_of_char(c) < 0)
            continue;
        (void)gsv_utf8_encode(c, character);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%c\"%s%s\":%zu", id ? ',' : '{',
                              c == '"' || c == '\\' ? "\\" : "", character, id);
        id++;
    }
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"%s\":%zu", more[i], id++);
    text[n++] = '}';
    return (struct gsv_text_file){ "vocab.json", text, n };
}

static void encode(const struct gsv_tokenizer *t)
{
    static const char text[] = "abab c <m> Na\xC3\xAFve\n\xE5\xAD\x97 </s>";
    struct gsv_encoding e = { 0 };

    if (gsv_tokenizer_encode(t, &e, text, strlen(text), text, strlen(text), NULL, NULL) !=
        GPUSERVE_OK)
        abort();
    for (size_t i = 0; i < e.n; i++)
        if (e.ids[i] < 0 || e.ids[i] >= gsv_tokenizer_vocab_size(t) ||
            e.spans[i].begin > e.spans[i].end || e.spans[i].end > strlen(text))
            abort();
    gsv_encoding_reset(&e);
}

static void load(enum gsv_tokenizer_class class, const struct gsv_text_file *vocab,
                 const struct gsv_text_file *merges, const struct gsv_json_value *config)
{
    struct gsv_tokenizer *t = calloc(1, sizeof(*t));
    /* One object serves as all three files. */
    const struct gsv_vocab_files files = { config, gsv_json_member(config, "specials"),
                                           gsv_json_member(config, "added") };

    if (!t)
        return;
    if (gsv_tokenizer_read_merges(t, class, vocab, merges, &files, NULL) == GPUSERVE_OK &&
        gsv_tokenizer_finish(t, "fuzz", NULL) == GPUSERVE_OK)
        encode(t);
    gsv_tokenizer_free(&t);
}

/* Returns the text up to the next NUL, or the rest if no NUL follows. */
static struct gsv_text_file take(const char *name, const char **at, const char *end)
{
    const char *nul = *at < end ? memchr(*at, '\0', (size_t)(end - *at)) : NULL;
    const struct gsv_text_file file = { name, *at, (size_t)((nul ? nul : end) - *at) };

    *at = nul ? nul + 1 : end;
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct gsv_json_limits limits = { .max_values = 1000, .max_depth = 16 };
    const char *at = (const char *)data + 1, *end = (const char *)data + size;
    struct gsv_text_file config_file, vocab, merges;
    struct gsv_json_value *config = NULL;

    if (size < 1 || gsv_utf8_valid_length(at, size - 1) != size - 1)
        return 0; /* gsv_tokenizer_load() rejects invalid UTF-8 earlier */
    config_file = take("tokenizer_config.json", &at, end);
    vocab = data[0] & 2 ? take("vocab.json", &at, end) : whole_vocab();
    merges = take("merges.txt", &at, end);
    if (gsv_json_read(&config, config_file.text, config_file.size, "fuzz", limits, NULL) !=
        GPUSERVE_OK)
        config = NULL;
    load(data[0] & 1 ? GSV_CLASS_GPT2 : GSV_CLASS_ROBERTA, &vocab, &merges, config);
    gsv_json_free(&config);
    return 0;
}
