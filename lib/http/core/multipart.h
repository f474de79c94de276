/*
 * multipart.h - the parts of a multipart/form-data body (RFC 7578), in place.
 */
#ifndef GSV_HTTP_MULTIPART_H
#define GSV_HTTP_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

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
