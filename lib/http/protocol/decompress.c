/*
 * decompress.c - inflates request bodies with zlib, in chunks of 64 kB, up to max_body_bytes.
 *
 * Accepts exactly one complete gzip or zlib stream. Runs on a worker thread or the event loop
 * thread.
 */
#include "lib/http/protocol/request.h"

#include "lib/http/net/server_state.h"

#include <strings.h>
#include <zlib.h>

enum { PART_BYTES = 64 * 1024 };

/* Inflates one stream; rejects trailing bytes. */
static bool inflate_all(struct gsv_exchange *exchange, z_stream *stream, struct gsv_buffer *to)
{
    const size_t limit = to->maximum;
    int result = Z_OK;

    while (result != Z_STREAM_END) {
        size_t capacity = limit - to->size;
        char *at;

        if (capacity == 0) /* full before the end of the stream: the body is over the limit */
            return gsv_refuse(exchange, GSV_P_TOO_LARGE, NULL,
                              "the decompressed body exceeds %zu bytes (--max-body-bytes)", limit);
        capacity = capacity < PART_BYTES ? capacity : PART_BYTES;
        at = gsv_buffer_reserve(to, capacity);
        if (!at)
            return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL, "out of memory for the body");
        stream->next_out = (Bytef *)at;
        stream->avail_out = (uInt)capacity;
        result = inflate(stream, Z_NO_FLUSH);
        to->size += capacity - stream->avail_out;
        if (result != Z_OK && result != Z_STREAM_END)
            return gsv_refuse(exchange, GSV_P_SYNTAX, NULL, "the compressed body is corrupt");
        if (result == Z_OK && stream->avail_out > 0 && stream->avail_in == 0)
            return gsv_refuse(exchange, GSV_P_SYNTAX, NULL, "the compressed body is truncated");
    }
    return stream->avail_in == 0 ||
           gsv_refuse(exchange, GSV_P_SYNTAX, NULL, "data follows the compressed body");
}

bool gsv_unpack(struct gsv_exchange *exchange)
{
    const char *encoding = gsv_header(exchange, "Content-Encoding");
    struct gsv_buffer unpacked = { .maximum = exchange->server->options.max_body_bytes };
    z_stream stream = { 0 };
    bool good;

    if (!encoding || !encoding[0] || strcasecmp(encoding, "identity") == 0)
        return true;
    if (strcasecmp(encoding, "gzip") != 0 && strcasecmp(encoding, "x-gzip") != 0 &&
        strcasecmp(encoding, "deflate") != 0)
        return gsv_refuse(exchange, GSV_P_MEDIA, NULL,
                          "Content-Encoding \"%.40s\" is not supported, only gzip and deflate",
                          encoding);
    if (exchange->body.size == 0)
        return true;
    if (inflateInit2(&stream, 15 + 32) != Z_OK) /* +32: detects zlib or gzip by the header */
        return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL,
                          "out of memory to decompress the body");
    stream.next_in = (Bytef *)exchange->body.bytes;
    stream.avail_in = (uInt)exchange->body.size;
    good = inflate_all(exchange, &stream, &unpacked);
    inflateEnd(&stream);
    if (!good) {
        gsv_buffer_reset(&unpacked);
        return false;
    }
    gsv_buffer_reset(&exchange->body);
    exchange->body = unpacked;
    return true;
}
