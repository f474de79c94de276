/*
 * json_reader.c - pull parser: walks a large JSON text without building a tree.
 *
 * The reader's cursor `at` only moves forward, in one pass and without allocation. Skipped
 * containers are checked for bracket balance and string ends only.
 */
#include "lib/base/json_reader.h"

#include "lib/base/error.h"
#include "lib/base/utf8.h"

#include <string.h>

enum { MAX_DEPTH = 64 }; /* one bit per level in the stack of skip_container() */

static gpuserve_status broken(const struct gsv_json_reader *r, const char *wanted,
                              gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: byte %zu: expected %s", r->name,
                    (size_t)(r->at - r->begin), wanted);
}

static void skip_space(struct gsv_json_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static bool take(struct gsv_json_reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

#define EACH_BYTE(c) (UINT64_C(0x0101010101010101) * (unsigned char)(c))

/* The high bit of each byte that is zero, or of bytes behind the first of these. */
static uint64_t zero_bytes(uint64_t eight)
{
    return (eight - EACH_BYTE(1)) & ~eight & EACH_BYTE(0x80);
}

/* Quotes, backslashes and control characters, as zero_bytes(). */
static uint64_t string_ends(uint64_t eight)
{
    return zero_bytes(eight ^ EACH_BYTE('"')) | zero_bytes(eight ^ EACH_BYTE('\\')) |
           ((eight - EACH_BYTE(0x20)) & ~eight & EACH_BYTE(0x80));
}

/* Quotes, braces and brackets; '{' and '}' are '[' and ']' with another bit. */
static uint64_t container_parts(uint64_t eight)
{
    const uint64_t folded = eight | EACH_BYTE(0x20);

    return zero_bytes(eight ^ EACH_BYTE('"')) | zero_bytes(folded ^ EACH_BYTE('{')) |
           zero_bytes(folded ^ EACH_BYTE('}'));
}

/* Moves the cursor over bytes that `find` does not find, by eight; the last seven are left. */
static inline void skip_eights(struct gsv_json_reader *r, uint64_t (*find)(uint64_t eight))
{
    for (uint64_t eight; r->end - r->at >= (ptrdiff_t)sizeof(eight); r->at += sizeof(eight)) {
        uint64_t found;

        memcpy(&eight, r->at, sizeof(eight));
        found = find(eight);
        if (found) {
            r->at += __builtin_ctzll(found) / 8; /* all targets are little-endian */
            return;
        }
    }
}

/* Moves the cursor to the next quote, backslash or control character of a string. */
static void skip_plain(struct gsv_json_reader *r)
{
    skip_eights(r, string_ends);
    while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20)
        r->at++;
}

/* Reads from the opening quote past the closing quote; escapes are not decoded. */
static gpuserve_status read_string(struct gsv_json_reader *r, struct gsv_json_slice *slice,
                                   gpuserve_error *error)
{
    if (!take(r, '"'))
        return broken(r, "a string", error);
    slice->at = r->at;
    for (skip_plain(r); r->at < r->end && *r->at != '"'; skip_plain(r)) {
        if (*r->at != '\\')
            return broken(r, "a string without control characters", error);
        r->at += r->end - r->at > 1 ? 2 : 1;
    }
    if (r->at == r->end)
        return broken(r, "the end of a string", error);
    slice->size = (size_t)(r->at - slice->at);
    r->at++;
    return GPUSERVE_OK;
}

/* Skips from an opening bracket past its closing bracket. */
static gpuserve_status skip_container(struct gsv_json_reader *r, gpuserve_error *error)
{
    uint64_t braces = 0; /* stack of bits: 1 for '{', 0 for '['; bit 0 is the innermost */
    unsigned depth = 0;
    struct gsv_json_slice ignored;

    for (skip_eights(r, container_parts); r->at < r->end; skip_eights(r, container_parts)) {
        const char c = *r->at;

        if (c == '"') {
            const gpuserve_status status = read_string(r, &ignored, error);

            if (status != GPUSERVE_OK)
                return status;
            continue;
        }
        if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH)
                return broken(r, "at most 64 levels of nesting", error);
            braces = braces << 1 | (c == '{');
        } else if (c == '}' || c == ']') {
            if ((braces & 1) != (c == '}'))
                return broken(r, "the bracket that matches the opening one", error);
            braces >>= 1;
            if (--depth == 0) {
                r->at++;
                return GPUSERVE_OK;
            }
        }
        r->at++;
    }
    return broken(r, "a closing bracket", error);
}

gpuserve_status gsv_json_reader_open(struct gsv_json_reader *r, char bracket, gpuserve_error *error)
{
    if (!take(r, bracket))
        return broken(r, bracket == '{' ? "an object" : "an array", error);
    return GPUSERVE_OK;
}

gpuserve_status gsv_json_reader_key(struct gsv_json_reader *r, bool first, bool *more,
                                    struct gsv_json_slice *key, gpuserve_error *error)
{
    gpuserve_status status;

    *more = !take(r, '}');
    if (!*more)
        return GPUSERVE_OK;
    if (!first && !take(r, ','))
        return broken(r, "a comma or a closing brace", error);
    status = read_string(r, key, error);
    if (status == GPUSERVE_OK && !take(r, ':'))
        return broken(r, "a colon", error);
    return status;
}

gpuserve_status gsv_json_reader_element(struct gsv_json_reader *r, bool first, bool *more,
                                        gpuserve_error *error)
{
    *more = !take(r, ']');
    if (*more && !first && !take(r, ','))
        return broken(r, "a comma or a closing bracket", error);
    return GPUSERVE_OK;
}

char gsv_json_reader_peek(struct gsv_json_reader *r)
{
    skip_space(r);
    return r->at < r->end ? *r->at : '\0';
}

/* No number or word contains a NUL. */
static bool ends_scalar(char c)
{
    return c == ',' || c == ']' || c == '}' || c == ' ' || c == '\n' || c == '\r' || c == '\t' ||
           c == '\0';
}

gpuserve_status gsv_json_reader_value(struct gsv_json_reader *r, struct gsv_json_slice *value,
                                      gpuserve_error *error)
{
    gpuserve_status status = GPUSERVE_OK;
    struct gsv_json_slice ignored;

    skip_space(r);
    value->at = r->at;
    if (r->at < r->end && (*r->at == '{' || *r->at == '['))
        status = skip_container(r, error);
    else if (r->at < r->end && *r->at == '"')
        status = read_string(r, &ignored, error);
    else
        while (r->at < r->end && !ends_scalar(*r->at))
            r->at++;
    value->size = (size_t)(r->at - value->at);
    if (status == GPUSERVE_OK && value->size == 0)
        return broken(r, "a value", error);
    return status;
}

gpuserve_status gsv_json_reader_id(struct gsv_json_reader *r, uint32_t maximum, uint32_t *value,
                                   gpuserve_error *error)
{
    uint64_t number = 0;
    const char *digits;

    skip_space(r);
    digits = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        number = number * 10 + (uint64_t)(*r->at - '0');
        if (number > maximum)
            return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: byte %zu: the id exceeds %u", r->name,
                            (size_t)(digits - r->begin), maximum);
    }
    if (r->at == digits || (r->at - digits > 1 && *digits == '0'))
        return broken(r, "an id", error);
    *value = (uint32_t)number;
    return GPUSERVE_OK;
}

gpuserve_status gsv_json_reader_end(struct gsv_json_reader *r, gpuserve_error *error)
{
    skip_space(r);
    return r->at == r->end ? GPUSERVE_OK : broken(r, "the end of the file", error);
}

/* Value of the four hex digits of \uXXXX at p; -1 if they are malformed. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t value = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char c = p[i];

        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            value = value << 4 | ((c | 0x20) - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* Decodes one \u escape, or two for a surrogate pair, at *p just past "\u"; -1 if it is no
 * character. */
static int32_t unicode_escape(const char **p, const char *end)
{
    int32_t high = hex4(*p, end), low;

    *p += 4;
    if (high < 0xD800 || high > 0xDFFF)
        return high;
    if (high > 0xDBFF || end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u')
        return -1;
    low = hex4(*p + 2, end);
    *p += 6;
    if (low < 0xDC00 || low > 0xDFFF)
        return -1;
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

gpuserve_status gsv_json_reader_text(const struct gsv_json_reader *r, struct gsv_json_slice slice,
                                     char *out, size_t *size, gpuserve_error *error)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *p = slice.at, *const end = slice.at + slice.size;
    char *to = out;

    if (slice.size > 0 && !memchr(p, '\\', slice.size)) { /* no escape: most strings */
        memcpy(out, p, slice.size);
        *size = slice.size;
        return GPUSERVE_OK;
    }
    while (p < end) {
        const char *found;
        int32_t c;

        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        found = end - p > 1 && p[1] ? strchr(letters, p[1]) : NULL;
        if (found) {
            *to++ = meanings[found - letters];
            p += 2;
            continue;
        }
        c = -1;
        if (end - p > 1 && p[1] == 'u') {
            p += 2;
            c = unicode_escape(
                &p, end); /* consumes 6 or 12 bytes, always more than the UTF-8 it becomes */
        }
        if (c < 0)
            return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: byte %zu: invalid escape in a string",
                            r->name, (size_t)(slice.at - r->begin));
        to += gsv_utf8_encode((uint32_t)c, to);
    }
    *size = (size_t)(to - out);
    return GPUSERVE_OK;
}
