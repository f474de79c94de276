/*
 * framing.h - where a request ends, decided before anything else reads it.
 *
 * libmicrohttpd 0.9.75 takes two Content-Length headers, Content-Length beside Transfer-Encoding,
 * NUL in targets and lines that end in a bare LF; a length with a blank after it is none to it. Two
 * readers of such bytes disagree about where a request ends, and the second may take a stranger's
 * bytes for a request. So every byte of a connection goes through here first, and what RFC 9112
 * does not allow, or allows to be read in two ways, is refused. No I/O, no memory: bytes in,
 * verdict out.
 */
#ifndef GSV_HTTP_FRAMING_H
#define GSV_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A header with its request line may have so many bytes, and so many fields, parts of its query and
 * cookies together. */
enum { GSV_HEADER_BYTES = 16384, GSV_HEADER_FIELDS = 100, GSV_TARGET_BYTES = 128 };

enum gsv_framing_state {
    GSV_FRAMING_HEADER, /* of the next request */
    GSV_FRAMING_BODY,   /* `left` bytes of it are to come */
    GSV_FRAMING_CHUNK_SIZE,
    GSV_FRAMING_CHUNK_SIZE_LF,
    GSV_FRAMING_CHUNK_DATA, /* `left` bytes */
    GSV_FRAMING_CHUNK_CR,   /* after the data */
    GSV_FRAMING_CHUNK_LF,
    GSV_FRAMING_END_CR, /* after the last chunk */
    GSV_FRAMING_END_LF,
    GSV_FRAMING_REFUSED
};

struct gsv_framing {
    enum gsv_framing_state state;
    uint64_t left;
    uint64_t chunked;   /* bytes of all chunks of this body so far */
    uint64_t max_body;  /* of a chunked body */
    unsigned digits;    /* of a chunk's size so far */
    size_t scanned;     /* of an unfinished header: no end before here */
    uint64_t n_headers; /* requests whose header has passed */
    unsigned status;    /* REFUSED: what to answer */
    const char *reason;
    uint64_t limit;                /* that was exceeded; 0: none */
    const char *unit;              /* of it, and the flag that sets it */
    bool is_health;                /* the last header's target is one of the health paths */
    char target[GSV_TARGET_BYTES]; /* how it begins, in whose dialect a refusal is told; "": unknown
                                    */
};

/* The bytes from `bytes` on that are good and may be passed on; at most up to the end of one header
 * or body. 0: more are needed, or state is REFUSED. A header is passed only whole. */
size_t gsv_framing_take(struct gsv_framing *framing, const char *bytes, size_t size);

#endif
