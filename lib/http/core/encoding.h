/*
 * encoding.h - encodings in requests and replies: percent-encoding, base64, durations, multipart.
 */
#ifndef GSV_HTTP_ENCODING_H
#define GSV_HTTP_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Percent-decoding of request paths. */

/* Decodes %XX in place. False: a broken escape, NUL, a control character or invalid UTF-8. No valid
 * path contains these. */
bool gsv_uri_decode(char *text);

/* Removes blanks at both ends and a line end, in place. */
char *gsv_trim(char *text);

/* Bytes as base64 (RFC 4648, with padding). */

static inline size_t gsv_base64_size(size_t size)
{
    return (size + 2) / 3 * 4;
}

/* Writes gsv_base64_size(size) bytes without a terminating NUL. */
void gsv_base64_encode(char *to, const void *bytes, size_t size);

/*
 * Durations as text: "24h", "5m", "1h30m", "300ms".
 */

/* Reads numbers with the units d, h, m, s, ms, largest first or not, or "0"; a leading '-' is
 * allowed. False: another form, or more than a hundred years. */
bool gsv_duration_read(const char *text, int64_t *ms);

/*
 * The parts of a multipart/form-data body (RFC 7578), in place.
 */

enum { GSV_BOUNDARY_BYTES = 70, GSV_PART_HEADER_BYTES = 4096 };

struct gsv_multipart {
    char delimiter[GSV_BOUNDARY_BYTES + 5]; /* CR LF - - boundary */
    const char *at, *end;                   /* the rest of the body */
    const char *fault;                      /* why a part is refused, or NULL */
    bool begun;
};

/* Borrowed from the body. */
struct gsv_form_part {
    const char *name, *filename; /* filename NULL: not given */
    size_t name_size, filename_size;
    const char *bytes;
    size_t size;
};

/* False: the content type (NULL: none) is not multipart/form-data with a boundary. */
bool gsv_multipart_begin(struct gsv_multipart *multipart, const char *content_type,
                         const char *body, size_t size);
/* True: *part is the next one. False: no further part, or multipart->fault says what is wrong. */
bool gsv_multipart_next(struct gsv_multipart *multipart, struct gsv_form_part *part);

#endif
