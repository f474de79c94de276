/*
 * framing.h - strict HTTP/1.1 message framing (RFC 9112): decides where each request ends.
 *
 * libmicrohttpd 0.9.75 accepts two Content-Length headers, Content-Length together with
 * Transfer-Encoding, NUL in targets, and lines that end in a bare LF. It ignores a length with a
 * trailing blank. If two parsers disagree about the end of a request, the second may read a body as
 * another client's request (request smuggling). So every byte passes through this state machine
 * first. It rejects what RFC 9112 forbids or leaves ambiguous.
 *
 * Chunk extensions and trailers have no meaning here. They are checked, bounded together by
 * GSV_DROPPED_BYTES a request, and dropped: libmicrohttpd never parses them.
 *
 * No I/O and no allocation: bytes in, verdict out.
 */
#ifndef GSV_HTTP_FRAMING_H
#define GSV_HTTP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `tchar` of RFC 9110: a character of a field name. */
bool gsv_is_token(char c);

/* Maximum bytes of a header with its request line. Maximum number of its fields, query parts and
 * cookies together. Stored bytes of the target. */
enum {
    GSV_HEADER_BYTES = 16384,
    GSV_HEADER_FIELDS = 100,
    GSV_TARGET_BYTES = 128,
    GSV_DROPPED_BYTES = 2048
};

enum gsv_framing_state {
    GSV_FRAMING_HEADER, /* of the next request */
    GSV_FRAMING_BODY,   /* `left` bytes remain */
    GSV_FRAMING_CHUNK_SIZE,
    GSV_FRAMING_CHUNK_EXTENSION, /* up to the CR of the size, dropped */
    GSV_FRAMING_CHUNK_SIZE_LF,
    GSV_FRAMING_CHUNK_DATA, /* `left` bytes remain */
    GSV_FRAMING_CHUNK_CR,   /* after the data */
    GSV_FRAMING_CHUNK_LF,
    GSV_FRAMING_END_CR, /* after the last chunk */
    GSV_FRAMING_END_LF,
    GSV_FRAMING_TRAILER_NAME, /* dropped */
    GSV_FRAMING_TRAILER_VALUE,
    GSV_FRAMING_TRAILER_LF,
    GSV_FRAMING_REFUSED
};

struct gsv_framing {
    enum gsv_framing_state state;
    uint64_t left;
    uint64_t chunked;   /* bytes of all chunks of this body so far */
    uint64_t max_body;  /* of a chunked body */
    unsigned digits;    /* of the chunk size so far, or bytes of a trailer's name */
    char last;          /* byte of a chunk extension */
    bool is_quoted;     /* inside a quoted string of a chunk extension */
    char name[20];      /* start of a trailer's name */
    size_t n_dropped;   /* bytes of extensions and trailers of this request */
    bool drop;          /* the bytes just taken are not passed on */
    size_t scanned;     /* bytes of an incomplete header already searched for its end */
    uint64_t n_headers; /* accepted headers */
    unsigned status;    /* HTTP status when REFUSED */
    const char *reason;
    uint64_t limit;                /* the exceeded limit; 0: none */
    const char *unit;              /* of the limit, with the flag that sets it */
    bool is_health;                /* the last header's target is a health path */
    char target[GSV_TARGET_BYTES]; /* start of the target, selects the dialect of an error; "":
                                      unknown */
};

/* Returns the number of valid bytes from `bytes` on, at most to the end of one header or body. 0:
 * more input is needed, or the state is REFUSED. A header is passed on only when complete. With
 * framing->drop the bytes are valid and must be removed. */
size_t gsv_framing_take(struct gsv_framing *framing, const char *bytes, size_t size);

#endif
