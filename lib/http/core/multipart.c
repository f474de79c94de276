/*
 * multipart.c - a strict parser: no preamble, no nested parts, CR LF everywhere.
 *
 * A delimiter is found by memmem(), so the bytes of a file are read once.
 */
#include "lib/http/core/encoding.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool fail(struct gsv_multipart *multipart, const char *fault)
{
    multipart->fault = fault;
    return false;
}

bool gsv_multipart_begin(struct gsv_multipart *multipart, const char *content_type,
                         const char *body, size_t size)
{
    static const char type[] = "multipart/form-data";
    const char *boundary, *end;

    *multipart = (struct gsv_multipart){ .at = body, .end = body + size };
    if (!content_type || strncasecmp(content_type, type, sizeof(type) - 1) != 0)
        return false;
    boundary = strcasestr(content_type, "boundary=");
    if (!boundary)
        return false;
    boundary += strlen("boundary=");
    if (*boundary == '"') {
        boundary++;
        end = strchr(boundary, '"');
    } else {
        end = boundary + strcspn(boundary, "; \t");
    }
    if (!end || end == boundary || end - boundary > GSV_BOUNDARY_BYTES)
        return false;
    snprintf(multipart->delimiter, sizeof(multipart->delimiter), "\r\n--%.*s",
             (int)(end - boundary), boundary);
    return true;
}

/* The value of a parameter such as name="file" in a header line; NULL: not there. */
static const char *parameter(const char *line, size_t size, const char *key, size_t *value_size)
{
    const size_t n = strlen(key);

    for (size_t i = 0; i + n + 2 <= size; i++) {
        const char *at = line + i + 1;
        const char *end;

        if (line[i] != ';' && line[i] != ' ')
            continue;
        if (i + 1 + n + 2 > size || strncasecmp(at, key, n) != 0 || at[n] != '=' ||
            at[n + 1] != '"')
            continue;
        at += n + 2;
        end = memchr(at, '"', (size_t)(line + size - at));
        if (!end)
            return NULL;
        *value_size = (size_t)(end - at);
        return at;
    }
    return NULL;
}

/* Reads the header lines of a part. */
static bool read_header(struct gsv_multipart *multipart, const char *header, size_t size,
                        struct gsv_form_part *part)
{
    static const char disposition[] = "Content-Disposition:";
    static const char encoding[] = "Content-Transfer-Encoding:";

    for (size_t at = 0; at < size;) {
        const char *line = header + at;
        const char *end = memmem(line, size - at, "\r\n", 2);
        const size_t n = end ? (size_t)(end - line) : size - at;

        if (n > sizeof(disposition) &&
            strncasecmp(line, disposition, sizeof(disposition) - 1) == 0) {
            part->name = parameter(line, n, "name", &part->name_size);
            part->filename = parameter(line, n, "filename", &part->filename_size);
        }
        if (n > sizeof(encoding) && strncasecmp(line, encoding, sizeof(encoding) - 1) == 0 &&
            !memmem(line, n, "binary", 6) && !memmem(line, n, "8bit", 4))
            return fail(multipart, "a part has a Content-Transfer-Encoding");
        at += n + 2;
    }
    return part->name || fail(multipart, "a part has no name");
}

bool gsv_multipart_next(struct gsv_multipart *multipart, struct gsv_form_part *part)
{
    const char *delimiter = multipart->delimiter;
    const char *header, *end;
    size_t n = strlen(delimiter), left;

    if (!multipart->begun) { /* the first delimiter has no line before it */
        delimiter += 2;
        n -= 2;
        multipart->begun = true;
    }
    left = (size_t)(multipart->end - multipart->at);
    if (left < n + 2 || memcmp(multipart->at, delimiter, n) != 0)
        return fail(multipart, "the body does not begin with the boundary of its Content-Type");
    multipart->at += n;
    left -= n;
    if (memcmp(multipart->at, "--", 2) == 0)
        return false; /* the last delimiter */
    if (memcmp(multipart->at, "\r\n", 2) != 0)
        return fail(multipart, "a boundary does not end in CR LF");
    header = multipart->at + 2;
    left -= 2;
    end =
        memmem(header, left < GSV_PART_HEADER_BYTES ? left : GSV_PART_HEADER_BYTES, "\r\n\r\n", 4);
    if (!end)
        return fail(multipart, "the header of a part has no end within 4096 bytes");
    *part = (struct gsv_form_part){ .bytes = end + 4 };
    if (!read_header(multipart, header, (size_t)(end - header), part))
        return false;
    left = (size_t)(multipart->end - part->bytes);
    multipart->at = memmem(part->bytes, left, multipart->delimiter, strlen(multipart->delimiter));
    if (!multipart->at)
        return fail(multipart, "the last part has no boundary after it");
    part->size = (size_t)(multipart->at - part->bytes);
    return true;
}
