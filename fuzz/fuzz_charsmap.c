/*
 * fuzz_charsmap.c - arbitrary bytes as a SentencePiece charsmap, and the rest as the text to
 * normalize.
 *
 * The first two bytes are the map's size. Checks: a map that loads produces valid code points, with
 * increasing spans inside the text.
 */
#include "fuzz/fuzz.h"

#include "lib/base/utf8.h"
#include "lib/text/pipeline/charsmap.h"
#include "lib/text/pipeline/normalizer.h"

#include <stdlib.h>
#include <string.h>

static char *base64_of(const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = calloc(1, n / 3 * 4 + 5), *to = text;

    for (size_t i = 0; text && i < n; i += 3) {
        uint32_t group = 0;

        for (size_t k = 0; k < 3; k++)
            group = group << 8 | (i + k < n ? bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *to++ = i + k > n ? '=' : digits[group >> (18 - 6 * k) & 63];
    }
    return text;
}

static void check(const struct gsv_chars *chars, size_t size)
{
    uint32_t begin = 0;

    for (size_t i = 0; i < chars->n; i++) {
        const struct gsv_char c = chars->at[i];

        if (c.begin < begin || c.begin > c.end || c.end > size || c.c > 0x10FFFF ||
            (c.c >= 0xD800 && c.c <= 0xDFFF))
            abort();
        begin = c.begin;
    }
}

/* Splits a text into grapheme clusters and applies the map. */
static void normalize(const struct gsv_charsmap *map, const char *text, size_t size)
{
    static const struct gsv_normalizer none;
    struct gsv_normal_buffers b = { 0 };

    if (!gsv_normalizer_apply(&none, text, 0, size, &b))
        return;
    for (size_t i = 0, length; i < b.text.n; i += length) {
        length = gsv_grapheme_length(b.text.at + i, b.text.n - i);
        if (length == 0 || length > b.text.n - i)
            abort();
    }
    if (gsv_normal_charsmap(&b, map))
        check(&b.text, size);
    gsv_normal_buffers_reset(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char fixed[] =
        "abc e\xCC\x81\r\n\xE1\x84\x80\xE1\x85\xA1 \xEF\xAC\x81\xE2\x84\xA2";
    struct gsv_charsmap *map = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t n_map;
    char *base64;

    if (size < 2)
        return 0;
    n_map = (size_t)data[0] << 8 | data[1];
    data += 2;
    size -= 2;
    n_map = n_map < size ? n_map : size;
    base64 = base64_of(data, n_map);
    if (base64 && gsv_charsmap_read(&map, base64, strlen(base64), "fuzz", &error) == GPUSERVE_OK) {
        const char *text = (const char *)data + n_map;

        normalize(map, fixed, sizeof(fixed) - 1);
        normalize(map, text, gsv_utf8_valid_length(text, size - n_map));
    }
    gsv_charsmap_free(&map);
    free(base64);
    return 0;
}
