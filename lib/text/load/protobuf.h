/*
 * protobuf.h - iterates over the fields of a Protocol Buffers message by field number.
 *
 * No allocation, no copy: bytes of strings and of nested messages are borrowed from the message.
 * The input is untrusted: every length is checked before use. Groups (deprecated) are refused.
 */
#ifndef GSV_TEXT_PROTOBUF_H
#define GSV_TEXT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Wire type of a field. */
enum gsv_proto_wire {
    GSV_PROTO_VARINT = 0,
    GSV_PROTO_FIXED64 = 1,
    GSV_PROTO_BYTES = 2, /* a string, a nested message, or bytes */
    GSV_PROTO_FIXED32 = 5,
};

struct gsv_proto_bytes {
    const unsigned char *at;
    size_t size;
};

struct gsv_proto_field {
    uint32_t number;
    enum gsv_proto_wire wire;
    uint64_t value;               /* for all wire types but BYTES */
    struct gsv_proto_bytes bytes; /* for BYTES */
};

/* Read the next field and advance `message` past it. False at the end of the message, or at a
 * malformed field: then message->size is not 0. */
bool gsv_proto_next(struct gsv_proto_bytes *message, struct gsv_proto_field *field);

#endif
