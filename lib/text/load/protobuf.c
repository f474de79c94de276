/*
 * protobuf.c - iterates over the fields of a Protocol Buffers message by field number.
 *
 * Each read function takes its bytes from the front of a slice and checks the length first. On
 * failure gsv_proto_next() leaves the message unchanged.
 */
#include "lib/text/load/protobuf.h"

/* A varint: seven bits a byte, lowest first, at most ten bytes. */
static bool read_varint(struct gsv_proto_bytes *from, uint64_t *value)
{
    *value = 0;
    for (unsigned i = 0; i < 10 && i < from->size; i++) {
        const unsigned char byte = from->at[i];

        if (i == 9 && byte > 1)
            return false; /* more than 64 bits */
        *value |= (uint64_t)(byte & 0x7F) << 7 * i;
        if (byte & 0x80)
            continue;
        from->at += i + 1;
        from->size -= i + 1;
        return true;
    }
    return false;
}

/* Little-endian. */
static bool read_fixed(struct gsv_proto_bytes *from, size_t n, uint64_t *value)
{
    *value = 0;
    if (from->size < n)
        return false;
    for (size_t i = 0; i < n; i++)
        *value |= (uint64_t)from->at[i] << 8 * i;
    from->at += n;
    from->size -= n;
    return true;
}

static bool read_bytes(struct gsv_proto_bytes *from, struct gsv_proto_bytes *bytes)
{
    uint64_t size;

    if (!read_varint(from, &size) || size > from->size)
        return false;
    *bytes = (struct gsv_proto_bytes){ from->at, (size_t)size };
    from->at += size;
    from->size -= (size_t)size;
    return true;
}

bool gsv_proto_next(struct gsv_proto_bytes *message, struct gsv_proto_field *field)
{
    struct gsv_proto_bytes rest = *message;
    uint64_t tag;
    bool good = false;

    *field = (struct gsv_proto_field){ 0 };
    if (!read_varint(&rest, &tag) || tag >> 3 == 0 || tag > UINT32_MAX)
        return false;
    field->number = (uint32_t)(tag >> 3);
    field->wire = (enum gsv_proto_wire)(tag & 7);
    switch (field->wire) {
    case GSV_PROTO_VARINT:
        good = read_varint(&rest, &field->value);
        break;
    case GSV_PROTO_FIXED64:
        good = read_fixed(&rest, 8, &field->value);
        break;
    case GSV_PROTO_BYTES:
        good = read_bytes(&rest, &field->bytes);
        break;
    case GSV_PROTO_FIXED32:
        good = read_fixed(&rest, 4, &field->value);
        break;
    default:
        break;
    }
    if (good)
        *message = rest;
    return good;
}
