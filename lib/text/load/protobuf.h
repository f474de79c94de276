/*
 * protobuf.h - walking the fields of a Protocol Buffers message, by their numbers.
 *
 * Nothing is allocated or copied: the bytes of texts and of messages within are lent. They come
 * from a stranger's file; every length is checked before use. Groups, which are long out of use,
 * are refused.
 */
#ifndef GSV_TEXT_PROTOBUF_H
#define GSV_TEXT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a field is written. */
enum gsv_proto_wire {
    GSV_PROTO_VARINT = 0,
    GSV_PROTO_FIXED64 = 1,
    GSV_PROTO_BYTES = 2, /* a text, a message, or bytes */
    GSV_PROTO_FIXED32 = 5,
};

struct gsv_proto_bytes {
    const unsigned char *at;
    size_t size;
};

struct gsv_proto_field {
    uint32_t number;
    enum gsv_proto_wire wire;
    uint64_t value;               /* of all but BYTES */
    struct gsv_proto_bytes bytes; /* of BYTES */
};

/* The next field, which `message` then begins behind; false at its end, or where it is broken: then
 * the message is not empty. */
bool gsv_proto_next(struct gsv_proto_bytes *message, struct gsv_proto_field *field);

#endif
