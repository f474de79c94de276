/*
 * fuzz_http_multipart.c - arbitrary forms: the Content-Type up to the first LF, then the body.
 *
 * Checks: parts lie in the body one after the other, and no delimiter lies in one.
 */
#define _GNU_SOURCE
#include "fuzz/fuzz.h"

#include "lib/http/core/encoding.h"

#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds)
        abort();
}

static bool lies_in(const char *bytes, size_t size, const char *begin, const char *end)
{
    return bytes >= begin && bytes <= end && size <= (size_t)(end - bytes);
}

static void read_form(const char *type, const char *body, size_t size)
{
    const char *at = body, *end = body + size;
    struct gsv_multipart multipart;
    struct gsv_form_part part;

    if (!gsv_multipart_begin(&multipart, type, body, size))
        return;
    check(strlen(multipart.delimiter) > 4 &&
          strlen(multipart.delimiter) < sizeof(multipart.delimiter));
    while (gsv_multipart_next(&multipart, &part)) {
        check(lies_in(part.name, part.name_size, at, end));
        check(!part.filename || lies_in(part.filename, part.filename_size, at, end));
        check(part.bytes > part.name && lies_in(part.bytes, part.size, at, end));
        check(!memmem(part.bytes, part.size, multipart.delimiter, strlen(multipart.delimiter)));
        at = part.bytes + part.size;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, '\n', size) : NULL;
    const size_t n = end ? (size_t)(end - data) : 0;
    char *type;

    if (!end)
        return 0;
    type = calloc(n + 1, 1);
    if (!type)
        abort();
    memcpy(type, data, n);
    read_form(type, (const char *)end + 1, size - n - 1);
    free(type);
    return 0;
}
