/*
 * json_write.c - streaming JSON writer.
 *
 * Strings are escaped as RFC 8259 requires, floats have their shortest exact form, vectors may be
 * base64.
 */
#include "lib/base/number.h"
#include "lib/http/core/encoding.h"
#include "lib/http/core/json_write.h"

#include <string.h>

/* Number of bytes from `text` on that need no escape. */
static size_t plain_length(const char *text, size_t size)
{
    size_t n = 0;

    while (n < size && (unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\')
        n++;
    return n;
}

static void escape(struct gsv_buffer *buffer, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    static const char named[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    char code[6] = { '\\', 'u', '0', '0' };

    for (size_t i = 0; named[i]; i += 2) {
        if ((unsigned char)named[i] == c) {
            code[1] = named[i + 1];
            gsv_buffer_add(buffer, code, 2);
            return;
        }
    }
    code[4] = digits[c >> 4];
    code[5] = digits[c & 15];
    gsv_buffer_add(buffer, code, 6);
}

void gsv_put_bytes(struct gsv_buffer *buffer, const char *text, size_t size)
{
    size_t at = 0;

    gsv_buffer_add(buffer, "\"", 1);
    while (at < size) {
        const size_t n = plain_length(text + at, size - at);

        gsv_buffer_add(buffer, text + at, n);
        at += n;
        if (at < size)
            escape(buffer, (unsigned char)text[at++]);
    }
    gsv_buffer_add(buffer, "\"", 1);
}

void gsv_put_text(struct gsv_buffer *buffer, const char *text)
{
    if (text)
        gsv_put_bytes(buffer, text, strlen(text));
    else
        gsv_buffer_text(buffer, "null");
}

void gsv_put_number(struct gsv_buffer *buffer, int64_t number)
{
    char *to = gsv_buffer_reserve(buffer, GSV_FLOAT_BYTES);

    if (to)
        buffer->size += gsv_integer_text(number, to);
}

void gsv_put_float(struct gsv_buffer *buffer, float value)
{
    char *to = gsv_buffer_reserve(buffer, GSV_FLOAT_BYTES);

    if (to)
        buffer->size += gsv_float_text(value, to);
}

void gsv_put_floats(struct gsv_buffer *buffer, const float *values, size_t n)
{
    /* One reservation for the longest possible text, so that the loop only writes. */
    char *to = n < SIZE_MAX / 64 ? gsv_buffer_reserve(buffer, n * (GSV_FLOAT_BYTES + 1) + 2) : NULL;
    char *const begin = to;

    if (!to)
        return;
    *to++ = '[';
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            *to++ = ',';
        to += gsv_float_text(values[i], to);
    }
    *to++ = ']';
    buffer->size += (size_t)(to - begin);
}

void gsv_put_rows(struct gsv_buffer *buffer, const float *values, size_t n_rows, size_t columns)
{
    gsv_buffer_text(buffer, "[");
    for (size_t i = 0; i < n_rows; i++) {
        gsv_buffer_text(buffer, i > 0 ? "," : "");
        gsv_put_floats(buffer, values + i * columns, columns);
    }
    gsv_buffer_text(buffer, "]");
}

void gsv_put_base64(struct gsv_buffer *buffer, const void *bytes, size_t size)
{
    char *to = gsv_buffer_reserve(buffer, gsv_base64_size(size) + 2);

    if (!to)
        return;
    to[0] = '"';
    gsv_base64_encode(to + 1, bytes, size);
    to[gsv_base64_size(size) + 1] = '"';
    buffer->size += gsv_base64_size(size) + 2;
}
